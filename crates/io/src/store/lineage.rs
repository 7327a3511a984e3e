//! Lineages on disk: which tickets count. Owns one table and the statements on it, each a rule of `dormouse_ike::ticket::lineage`; a
//! [`Lineages`] is a connection of its own to the database, so that a thread beside the event loop can wait for the disk.
//!
//! A batch is one transaction, durable when [`Lineages::run`] returns.

use super::{Error, connect, explain};
use dormouse_sansio::UnixTime;
use rusqlite::{Connection, Transaction, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for another connection's transaction.
const BUSY: Duration = Duration::from_secs(1);

/// A name of 16 bytes.
pub type Name = [u8; 16];

/// See the module's documentation.
#[derive(Debug)]
pub struct Lineages {
    path: PathBuf,
    db: Connection,
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A row, unless it is there. What has ended by `now` goes, and of more than `most` rows of the holder those that end first.
    Insert {
        /// The lineage.
        id: Name,
        /// Whose it is.
        holder: [u8; 32],
        /// Its tip.
        tip: Name,
        /// When it ends.
        ends: UnixTime,
        /// Now.
        now: UnixTime,
        /// Most rows of one holder.
        most: usize,
    },
    /// The tip becomes `to` if it is one of two; the row ends no earlier than `ends`.
    Move {
        /// The lineage.
        id: Name,
        /// The tips that are taken for right.
        from: [Name; 2],
        /// The new one.
        to: Name,
        /// When the last of its tickets expires.
        ends: UnixTime,
    },
    /// The row goes, if it is this holder's.
    End {
        /// The lineage.
        id: Name,
        /// Whose it must be.
        holder: [u8; 32],
    },
    /// All rows of a holder go.
    EndAll {
        /// Whose.
        holder: [u8; 32],
    },
    /// All rows go.
    EndEvery,
}

pub(super) fn create(tx: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    tx.execute_batch(
        "create table lineage (
            id blob primary key not null,
            holder blob not null,
            tip blob not null,
            ends integer not null
        ) strict, without rowid;
        create index lineage_by_holder on lineage (holder, ends);
        create index lineage_by_end on lineage (ends);",
    )
}

impl Lineages {
    /// Opens the database that [`super::Database::open`] has made.
    ///
    /// # Errors
    /// Naming the file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let open = || {
            let db = connect(path)?;
            db.busy_timeout(BUSY)?;
            db.pragma_update(None, "synchronous", "full")?;
            Ok(db)
        };
        let db = open().map_err(|e| explain(path, 0, "open", e))?;
        Ok(Self { path: path.into(), db })
    }

    /// Carries out steps in their order; for each, whether it found a row to change.
    ///
    /// # Errors
    /// Naming the file; none of them was carried out then.
    pub fn run(&mut self, steps: &[Step]) -> Result<Vec<bool>, Error> {
        let mut all = || {
            let tx = self.db.transaction()?;
            let done = steps.iter().map(|step| run(&tx, step)).collect::<Result<Vec<_>, _>>()?;
            tx.commit()?;
            Ok(done)
        };
        all().map_err(|e| explain(&self.path, 0, "write lineages", e))
    }
}

fn run(tx: &Transaction<'_>, step: &Step) -> Result<bool, rusqlite::Error> {
    let seconds = |time: UnixTime| i64::try_from(time.0).unwrap_or(i64::MAX);
    let rows = match *step {
        Step::Insert { id, holder, tip, ends, now, most } => {
            tx.prepare_cached("delete from lineage where ends <= ?1")?.execute([seconds(now)])?;
            let insert = "insert or ignore into lineage values (?1, ?2, ?3, ?4)";
            let rows = tx.prepare_cached(insert)?.execute(params![id, holder, tip, seconds(ends)])?;
            // Those that end last stay, the new one among them.
            let others = most.saturating_sub(1);
            tx.prepare_cached(
                "delete from lineage where holder = ?1 and id <> ?2 and id not in (
                    select id from lineage where holder = ?1 and id <> ?2 order by ends desc, id desc limit ?3)",
            )?
            .execute(params![holder, id, i64::try_from(others).unwrap_or(i64::MAX)])?;
            rows
        }
        Step::Move { id, from: [a, b], to, ends } => tx
            .prepare_cached(
                "update lineage set tip = ?1, ends = max(ends, ?2) where id = ?3 and tip in (?4, ?5)",
            )?
            .execute(params![to, seconds(ends), id, a, b])?,
        Step::End { id, holder } => tx
            .prepare_cached("delete from lineage where id = ?1 and holder = ?2")?
            .execute(params![id, holder])?,
        Step::EndAll { holder } => {
            tx.prepare_cached("delete from lineage where holder = ?1")?.execute(params![holder])?
        }
        Step::EndEvery => tx.execute("delete from lineage", [])?,
    };
    Ok(rows > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Database, MAX_PAGES};

    #[test]
    fn every_connection_is_bound_to_the_same_size() {
        let path = std::env::temp_dir().join(format!("dormouse-lineages-{}.db", std::process::id()));
        let most =
            |db: &Connection| db.pragma_query_value(None, "max_page_count", |row| row.get::<_, u32>(0));
        let database = Database::open(&path, &|_| None).unwrap();
        assert_eq!(most(&database.db).unwrap(), MAX_PAGES);
        assert_eq!(most(&Lineages::open(&path).unwrap().db).unwrap(), MAX_PAGES, "SQLite's own is terabytes");
        drop(database);
        for journal in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{journal}", path.display()));
        }
    }
}
