//! Which identity has which inner addresses, so that a client finds its own again after a restart of the gateway.
//!
//! Owns the table `lease`. What is recorded stays in memory first and is written by [`Database::flush`], all in one transaction:
//! the data path never waits for a disk. If the disk is full, what is pending stays pending (one entry for each lease, so it is
//! bounded by the pool), the gateway keeps working, and the next flush writes it.

use super::{Database, Error, OldLease, StoredLease, StoredLessee};
use dormouse_sansio::UnixTime;
use rusqlite::{Connection, Transaction, params};
use std::collections::BTreeMap;

/// By holder: what is to be written, or (`None`) deleted.
pub(super) type Pending = BTreeMap<StoredLessee, Option<StoredLease>>;

pub(super) fn create_by_name(tx: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    tx.execute_batch(
        "create table lease (
            identity text primary key not null,
            v4 text unique,
            v6 text unique,
            used integer not null
        ) strict, without rowid;",
    )
}

pub(super) fn by_holder(
    tx: &Transaction<'_>,
    attribute: &dyn Fn(&OldLease) -> Option<StoredLessee>,
) -> Result<(), rusqlite::Error> {
    tx.execute_batch(
        "alter table lease rename to lease_by_name;
        create table lease (
            connection text not null,
            id_type integer not null,
            id_data blob not null,
            device integer not null,
            v4 text unique,
            v6 text unique,
            used integer not null,
            primary key (connection, id_type, id_data, device)
        ) strict, without rowid;",
    )?;
    {
        let mut query = tx.prepare("select identity, v4, v6, used from lease_by_name")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let (v4, v6): (Option<String>, Option<String>) = (row.get(1)?, row.get(2)?);
            let addresses = v4.iter().chain(&v6).filter_map(|a| a.parse().ok()).collect();
            let old = OldLease { identity: row.get(0)?, addresses };
            let Some(StoredLessee { connection, identity: (kind, data), device }) = attribute(&old) else {
                tracing::warn!(identity = %old.identity, addresses = ?old.addresses, "a lease of an earlier release that belongs to no one connection is dropped");
                continue;
            };
            let used: i64 = row.get(3)?;
            tx.execute(
                "insert or replace into lease values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![connection, kind, data, device, v4, v6, used],
            )?;
        }
    }
    tx.execute_batch("drop table lease_by_name; create index lease_by_use on lease (used);")
}

impl Database {
    /// All leases, the longest unused first, as a pool wants them. Rows that do not hold addresses are left out, and said so in
    /// the log.
    ///
    /// # Errors
    /// Naming the file.
    pub fn leases(&self) -> Result<Vec<StoredLease>, Error> {
        let read = || -> Result<Vec<StoredLease>, rusqlite::Error> {
            let mut query = self.db.prepare(
                "select connection, id_type, id_data, device, v4, v6, used from lease
                order by used, connection, id_type, id_data, device",
            )?;
            let mut rows = query.query([])?;
            let mut leases = Vec::new();
            while let Some(row) = rows.next()? {
                let identity = (row.get(1)?, row.get(2)?);
                let holder = StoredLessee { connection: row.get(0)?, identity, device: row.get(3)? };
                let (v4, v6): (Option<String>, Option<String>) = (row.get(4)?, row.get(5)?);
                let used = UnixTime(u64::try_from(row.get::<_, i64>(6)?).unwrap_or(0));
                match (v4.map(|t| t.parse()).transpose(), v6.map(|t| t.parse()).transpose()) {
                    (Ok(v4), Ok(v6)) => leases.push(StoredLease { holder, v4, v6, used }),
                    _ => {
                        tracing::warn!(file = %self.path.display(), ?holder, "this lease does not hold addresses");
                    }
                }
            }
            Ok(leases)
        };
        read().map_err(|e| self.explain("read leases", e))
    }

    /// Remembers a lease; [`Database::flush`] writes it.
    pub fn record(&mut self, lease: StoredLease) {
        self.pending.insert(lease.holder.clone(), Some(lease));
    }

    /// Forgets a lease; [`Database::flush`] deletes it.
    pub fn forget(&mut self, holder: StoredLessee) {
        self.pending.insert(holder, None);
    }

    /// Leases that are not written yet: when it is not zero, a flush is due within a few seconds.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Writes what is pending, all or nothing. Does nothing, and touches no disk, if nothing is.
    ///
    /// # Errors
    /// [`Error::DiskFull`] among others; what was pending still is.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        match write(&mut self.db, &self.pending) {
            Ok(()) => {
                self.pending.clear();
                Ok(())
            }
            Err(e) => Err(self.explain("write leases", e)),
        }
    }
}

fn write(db: &mut Connection, pending: &Pending) -> Result<(), rusqlite::Error> {
    let tx = db.transaction()?;
    {
        let mut delete = tx.prepare_cached(
            "delete from lease where connection = ?1 and id_type = ?2 and id_data = ?3 and device = ?4",
        )?;
        // Deletions first: an address that goes from one identity to another is in both kinds.
        for StoredLessee { connection, identity: (kind, data), device } in pending.keys() {
            delete.execute(params![connection, kind, data, device])?;
        }
        // An address may also come from an identity that is not in this batch.
        let mut insert =
            tx.prepare_cached("insert or replace into lease values (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
        for StoredLease { holder, v4, v6, used } in pending.values().flatten() {
            let StoredLessee { connection, identity: (kind, data), device } = holder;
            let (v4, v6) = (v4.map(|a| a.to_string()), v6.map(|a| a.to_string()));
            let used = i64::try_from(used.0).unwrap_or(i64::MAX);
            insert.execute(params![connection, kind, data, device, v4, v6, used])?;
        }
    }
    tx.commit()
}
