//! Whom an administrator has refused. Owns the table `denial`; what a denial means is said where peers are admitted.

use super::{Database, Error, StoredDenial};
use dormouse_sansio::UnixTime;
use rusqlite::{Transaction, params};

pub(super) fn create(tx: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    tx.execute_batch(
        "create table denial (
            whom text primary key not null,
            since integer not null
        ) strict, without rowid;",
    )
}

impl Database {
    /// All denials, the oldest first.
    ///
    /// # Errors
    /// Naming the file.
    pub fn denials(&self) -> Result<Vec<StoredDenial>, Error> {
        let read = || -> Result<Vec<StoredDenial>, rusqlite::Error> {
            let mut query = self.db.prepare("select whom, since from denial order by since, whom")?;
            let rows = query.query_map([], |row| {
                let since = UnixTime(u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0));
                Ok(StoredDenial { whom: row.get(0)?, since })
            })?;
            rows.collect()
        };
        read().map_err(|e| self.explain("read denials", e))
    }

    /// Writes a denial; one that is there stays as it is. True if it is new.
    ///
    /// # Errors
    /// Naming the file; nothing has changed then.
    pub fn deny(&mut self, denial: &StoredDenial) -> Result<bool, Error> {
        let since = i64::try_from(denial.since.0).unwrap_or(i64::MAX);
        let write =
            self.db.execute("insert or ignore into denial values (?1, ?2)", params![denial.whom, since]);
        write.map(|rows| rows > 0).map_err(|e| self.explain("write a denial", e))
    }

    /// Takes a denial back. False if there was none.
    ///
    /// # Errors
    /// Naming the file; nothing has changed then.
    pub fn allow(&mut self, whom: &str) -> Result<bool, Error> {
        let write = self.db.execute("delete from denial where whom = ?1", [whom]);
        write.map(|rows| rows > 0).map_err(|e| self.explain("delete a denial", e))
    }
}
