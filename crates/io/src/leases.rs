//! Leases on disk: which identity has which inner addresses, so that a client finds its own again after a restart of the
//! gateway.
//!
//! Owns one SQLite file. What is recorded stays in memory first and is written by [`LeaseStore::flush`], all in one
//! transaction: the data path never waits for a disk. If the disk is full, what is pending stays pending (one entry for each
//! identity, so it is bounded by the pool), the gateway keeps working, and the next flush writes it.

use dormouse_sansio::UnixTime;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Version of the tables, in SQLite's `user_version`.
const SCHEMA: i64 = 1;
/// Bytes of a page, and pages of the file at most: a gigabyte, some ten million leases.
const PAGE: u32 = 4096;
const MAX_PAGES: u32 = 1 << 18;

/// What went wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No room for it. Nothing is lost: it stays in memory and is tried again.
    #[error("{}: the disk is full ({pending} leases wait in memory and are written when there is room)", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// Leases that are not written yet.
        pending: usize,
    },
    /// The file is not, or no longer, a database: nothing in it can be trusted.
    #[error("{}: damaged, or no lease file", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a later release.
    #[error("{}: schema version {found}, this release knows versions up to {SCHEMA}; move the file away or install the later release", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// Anything else.
    #[error("{}: {doing}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: rusqlite::Error,
    },
}

/// One lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredLease {
    /// Who, as displayed.
    pub identity: String,
    /// Its IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// When it was last in use.
    pub used: UnixTime,
}

/// The store. See the module's documentation.
#[derive(Debug)]
pub struct LeaseStore {
    path: PathBuf,
    db: Connection,
    /// By identity: what is to be written, or (`None`) deleted.
    pending: BTreeMap<String, Option<StoredLease>>,
}

impl LeaseStore {
    /// Opens the file, made if it is missing (0600).
    ///
    /// # Errors
    /// If it is not a lease file of this release, or cannot be opened; names the file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        // SQLite gives its journal the permissions of the database, so the database is made with the right ones first.
        use std::os::unix::fs::OpenOptionsExt;
        let made = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        if let Err(e) = made {
            let source = rusqlite::Error::ToSqlConversionFailure(Box::new(e));
            return Err(Error::Sqlite { path: path.into(), doing: "open", source });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags).map_err(|source| Error::Sqlite {
            path: path.into(),
            doing: "open",
            source,
        })?;
        let mut store = Self { path: path.into(), db, pending: BTreeMap::new() };
        store.prepare().map_err(|e| store.explain("prepare", e))??;
        Ok(store)
    }

    /// Limits the file to so many bytes (rounded down to pages): what is beyond counts as a full disk.
    ///
    /// # Errors
    /// Naming the file.
    pub fn limit(&self, bytes: u64) -> Result<(), Error> {
        // Zero would be a question, not a limit; SQLite never goes below what is in use.
        let pages = (bytes / u64::from(PAGE)).max(1);
        self.db
            .pragma_update(None, "max_page_count", i64::try_from(pages).unwrap_or(i64::MAX))
            .map_err(|e| self.explain("limit", e))
    }

    fn prepare(&mut self) -> Result<Result<(), Error>, rusqlite::Error> {
        self.db.pragma_update(None, "page_size", PAGE)?;
        self.db.pragma_update(None, "max_page_count", MAX_PAGES)?;
        // A crash of the machine may cost the last transactions but never the file; a crash of the daemon costs nothing.
        self.db.pragma_update(None, "journal_mode", "wal")?;
        self.db.pragma_update(None, "synchronous", "normal")?;
        let found: i64 = self.db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match found {
            SCHEMA => {}
            0 => {
                let tx = self.db.transaction()?;
                tx.execute_batch(
                    "create table lease (
                        identity text primary key not null,
                        v4 text unique,
                        v6 text unique,
                        used integer not null
                    ) strict, without rowid;
                    create index lease_by_use on lease (used);",
                )?;
                tx.pragma_update(None, "user_version", SCHEMA)?;
                tx.commit()?;
            }
            found => return Ok(Err(Error::Schema { path: self.path.clone(), found })),
        }
        Ok(Ok(()))
    }

    /// All leases, the longest unused first, as a pool wants them. Rows that do not hold addresses are left out, and said so in
    /// the log.
    ///
    /// # Errors
    /// Naming the file.
    pub fn load(&self) -> Result<Vec<StoredLease>, Error> {
        let read = || -> Result<Vec<StoredLease>, rusqlite::Error> {
            let mut query =
                self.db.prepare("select identity, v4, v6, used from lease order by used, identity")?;
            let mut rows = query.query([])?;
            let mut leases = Vec::new();
            while let Some(row) = rows.next()? {
                let identity: String = row.get(0)?;
                let (v4, v6): (Option<String>, Option<String>) = (row.get(1)?, row.get(2)?);
                let used = u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0);
                match (v4.map(|t| t.parse()).transpose(), v6.map(|t| t.parse()).transpose()) {
                    (Ok(v4), Ok(v6)) => leases.push(StoredLease { identity, v4, v6, used: UnixTime(used) }),
                    _ => {
                        tracing::warn!(file = %self.path.display(), %identity, "this lease does not hold addresses")
                    }
                }
            }
            Ok(leases)
        };
        read().map_err(|e| self.explain("read", e))
    }

    /// Remembers a lease; [`LeaseStore::flush`] writes it.
    pub fn record(&mut self, lease: StoredLease) {
        self.pending.insert(lease.identity.clone(), Some(lease));
    }

    /// Forgets the lease of an identity; [`LeaseStore::flush`] deletes it.
    pub fn forget(&mut self, identity: &str) {
        self.pending.insert(identity.into(), None);
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
        match Self::write(&mut self.db, &self.pending) {
            Ok(()) => {
                self.pending.clear();
                Ok(())
            }
            Err(e) => Err(self.explain("write", e)),
        }
    }

    fn write(
        db: &mut Connection,
        pending: &BTreeMap<String, Option<StoredLease>>,
    ) -> Result<(), rusqlite::Error> {
        let tx = db.transaction()?;
        {
            let mut delete = tx.prepare_cached("delete from lease where identity = ?1")?;
            // Deletions first: an address that goes from one identity to another is in both kinds.
            for identity in pending.keys() {
                delete.execute([identity])?;
            }
            // An address may also come from an identity that is not in this batch.
            let mut insert = tx.prepare_cached(
                "insert or replace into lease (identity, v4, v6, used) values (?1, ?2, ?3, ?4)",
            )?;
            for lease in pending.values().flatten() {
                let (v4, v6) = (
                    lease.v4.map(|a| IpAddr::V4(a).to_string()),
                    lease.v6.map(|a| IpAddr::V6(a).to_string()),
                );
                insert.execute(params![
                    lease.identity,
                    v4,
                    v6,
                    i64::try_from(lease.used.0).unwrap_or(i64::MAX)
                ])?;
            }
        }
        tx.commit()
    }

    fn explain(&self, doing: &'static str, source: rusqlite::Error) -> Error {
        let path = self.path.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Error::DiskFull { path, pending: self.pending.len() },
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Error::Damaged { path },
            _ => Error::Sqlite { path, doing, source },
        }
    }
}
