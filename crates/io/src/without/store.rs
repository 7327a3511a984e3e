//! In the place of the gateway's SQLite file, in a program without the feature `sqlite`: nothing outlives the daemon. Owns the refusal of a file that another
//! build has left, which may hold what must not be forgotten.

#[path = "../store/rows.rs"]
mod rows;

pub use rows::{OldLease, StoredDenial, StoredLease, StoredLessee};
use std::path::{Path, PathBuf};

/// What cannot be done without the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Never: that would be a file.
    #[error("{}: damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// It is there.
    #[error("{}: leases, tickets and denials of a program with SQLite, which this one was built without: start that one, or move the file away", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
    /// A denial would have to outlive the daemon.
    #[error("this program was built without SQLite, and keeps no denial")]
    NotKept,
}

/// What a gateway would remember. See the module's documentation.
#[derive(Debug)]
pub struct Database(());

impl Database {
    /// Nothing is opened or made. No lease of an earlier release is attributed.
    ///
    /// # Errors
    /// If there is a file.
    pub fn open(path: &Path, _: &dyn Fn(&OldLease) -> Option<StoredLessee>) -> Result<Self, Error> {
        // A link that leads nowhere is something too.
        match path.symlink_metadata() {
            Ok(_) => Err(Error::Unreadable { path: path.into() }),
            Err(_) => Ok(Self(())),
        }
    }

    /// No lease.
    ///
    /// # Errors
    /// None.
    pub fn leases(&self) -> Result<Vec<StoredLease>, Error> {
        Ok(Vec::new())
    }

    /// Is not remembered.
    pub fn record(&mut self, _: StoredLease) {}

    /// There is nothing to forget.
    pub fn forget(&mut self, _: StoredLessee) {}

    /// Writes nothing.
    ///
    /// # Errors
    /// None.
    pub fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// No denial.
    ///
    /// # Errors
    /// None.
    pub fn denials(&self) -> Result<Vec<StoredDenial>, Error> {
        Ok(Vec::new())
    }

    /// Keeps no denial.
    ///
    /// # Errors
    /// Always.
    pub fn deny(&mut self, _: &StoredDenial) -> Result<bool, Error> {
        Err(Error::NotKept)
    }

    /// There was none.
    ///
    /// # Errors
    /// None.
    pub fn allow(&mut self, _: &str) -> Result<bool, Error> {
        Ok(false)
    }
}
