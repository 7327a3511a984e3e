//! What a gateway remembers, in one SQLite file: which identity has which inner addresses ([`leases`]), whom an administrator
//! has refused ([`denials`]), and which tickets count ([`lineage`]). Owns the file, its version and its migrations; each table stands in a module of its own.
//!
//! What is written is durable when the call returns: a crash of the machine takes nothing back that was answered.

mod denials;
mod leases;
pub mod lineage;
mod rows;

use crate::state;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction};
use std::path::{Path, PathBuf};

use leases::Pending;
pub use rows::{OldLease, StoredDenial, StoredLease, StoredLessee};

/// Version of the tables, in SQLite's `user_version`. 1: leases by displayed identity. 2: leases by holder; denials. 3: lineages.
const SCHEMA: i64 = 3;
/// Bytes of a page, and pages of the file at most: a gigabyte, some ten million leases.
const PAGE: u32 = 4096;
const MAX_PAGES: u32 = 1 << 18;

/// What went wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No room for it. Leases stay in memory and are tried again; of anything else nothing has changed.
    #[error("{}: the disk is full ({pending} leases wait in memory and are written when there is room)", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// Leases that are not written yet.
        pending: usize,
    },
    /// The file is not, or no longer, a database: nothing in it can be trusted.
    #[error("{}: damaged, or no database", path.display())]
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
    /// It cannot be opened, or is a link.
    #[error(transparent)]
    File(#[from] state::Error),
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

/// The store. See the module's documentation.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    db: Connection,
    pending: Pending,
}

impl Database {
    /// Opens the file, made if it is missing (0600). `attribute` says whose a lease is that an earlier release wrote down by the
    /// displayed identity alone; those of no holder are left out, and said so in the log.
    ///
    /// # Errors
    /// If it is not a database of this release or an earlier one, or cannot be opened; names the file.
    pub fn open(path: &Path, attribute: &dyn Fn(&OldLease) -> Option<StoredLessee>) -> Result<Self, Error> {
        // SQLite gives its journal the permissions of the database, so the database is made with the right ones first.
        use std::os::unix::fs::OpenOptionsExt;
        state::open_here(path, std::fs::OpenOptions::new().append(true).create(true).mode(0o600))?;
        let db = connect(path).map_err(|e| explain(path, 0, "open", e))?;
        let mut store = Self { path: path.into(), db, pending: Pending::default() };
        store.prepare(attribute).map_err(|e| store.explain("prepare", e))??;
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

    fn prepare(
        &mut self,
        attribute: &dyn Fn(&OldLease) -> Option<StoredLessee>,
    ) -> Result<Result<(), Error>, rusqlite::Error> {
        self.db.pragma_update(None, "journal_mode", "wal")?;
        self.db.pragma_update(None, "synchronous", "full")?;
        let found: i64 = self.db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if !(0..=SCHEMA).contains(&found) {
            return Ok(Err(Error::Schema { path: self.path.clone(), found }));
        }
        if found < SCHEMA {
            let tx = self.db.transaction()?;
            for version in found + 1..=SCHEMA {
                migrate(&tx, version, attribute)?;
            }
            tx.pragma_update(None, "user_version", SCHEMA)?;
            tx.commit()?;
        }
        Ok(Ok(()))
    }

    fn explain(&self, doing: &'static str, source: rusqlite::Error) -> Error {
        explain(&self.path, self.pending(), doing, source)
    }
}

/// A connection to the file, within its bound, which root must not be led away from by a link. SQLite refuses links in the directory's name as well, which
/// are the administrator's.
fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let name = path.file_name().unwrap_or_default();
    let directory = path.parent().and_then(|d| d.canonicalize().ok());
    let db = Connection::open_with_flags(directory.map_or_else(|| path.to_owned(), |d| d.join(name)), flags)?;
    // The bound is the connection's, not the file's.
    db.pragma_update(None, "page_size", PAGE)?;
    db.pragma_update(None, "max_page_count", MAX_PAGES)?;
    Ok(db)
}

fn explain(path: &Path, pending: usize, doing: &'static str, source: rusqlite::Error) -> Error {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::DiskFull { path, pending },
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Error::Damaged { path },
        _ => Error::Sqlite { path, doing, source },
    }
}

/// Makes `version` of the tables out of the one before.
fn migrate(
    tx: &Transaction<'_>,
    version: i64,
    attribute: &dyn Fn(&OldLease) -> Option<StoredLessee>,
) -> Result<(), rusqlite::Error> {
    match version {
        1 => leases::create_by_name(tx),
        2 => leases::by_holder(tx, attribute).and_then(|()| denials::create(tx)),
        3 => lineage::create(tx),
        _ => Ok(()),
    }
}
