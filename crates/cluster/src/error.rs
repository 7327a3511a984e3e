//! What goes wrong with the database, in words for an administrator: what failed, where, and what to change.

use tokio_postgres::error::SqlState;

/// Why something could not be done. Nothing has changed then, but after [`Error::Lost`] and [`Error::Hangs`], where it may have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Something that is configured is no use; says which and why.
    #[error("{0}")]
    Settings(String),
    /// The server cannot be reached.
    #[error("{server}: cannot be reached: {why}")]
    Unreachable {
        /// Where.
        server: String,
        /// Why.
        why: String,
    },
    /// No TLS, or not with the server that is meant.
    #[error(
        "{server}: TLS failed: {why} (the server must have `ssl = on`, and a certificate for the name in the URL, issued by an authority in the configured file)"
    )]
    Tls {
        /// Where.
        server: String,
        /// Why.
        why: String,
    },
    /// The server does not let this role in.
    #[error(
        "{server}: {why}: check the password (`dormouse cluster add` makes a new one) and the server's pg_hba.conf"
    )]
    Password {
        /// Where.
        server: String,
        /// What the server says.
        why: String,
    },
    /// There is no such database.
    #[error("{server}: {why}: check the name in the URL, or make it with `createdb`")]
    NoDatabase {
        /// Where.
        server: String,
        /// What the server says.
        why: String,
    },
    /// The database is there, and has no tables.
    #[error("{server}: this database has no tables of Dormouse: run `dormouse cluster init`")]
    NoTables {
        /// Where.
        server: String,
    },
    /// The tables are of another release.
    #[error("{server}: the tables have version {found}, this release needs {known}: {advice}", known = crate::SCHEMA)]
    Version {
        /// Where.
        server: String,
        /// The version of the tables.
        found: i32,
        /// What to do.
        advice: &'static str,
    },
    /// The role may not do this.
    #[error("{server}: {doing}: the role lacks rights ({why}): {advice}")]
    Rights {
        /// Where.
        server: String,
        /// What was being done.
        doing: &'static str,
        /// What the server says.
        why: String,
        /// What to do.
        advice: &'static str,
    },
    /// More gateways than slots.
    #[error(
        "{server}: all {slots} slots are taken: remove a gateway that is gone with `dormouse cluster forget`, or make more slots with `dormouse cluster init --gateways`"
    )]
    Full {
        /// Where.
        server: String,
        /// How many gateways may share the pool.
        slots: u8,
    },
    /// The gateway's row is gone.
    #[error("{server}: gateway {gateway} has been removed from the cluster (`dormouse cluster forget`)")]
    Forgotten {
        /// Where.
        server: String,
        /// Its name.
        gateway: String,
    },
    /// The server is a standby, or read only.
    #[error("{server}: takes no writes: it is a standby, or read only; the URL must name the primary server")]
    Standby {
        /// Where.
        server: String,
    },
    /// A ticket key does not open.
    #[error(
        "{server}: the ticket key of day {day} does not open: this gateway's cluster key is not the one that the others have, or the row was changed"
    )]
    ClusterKey {
        /// Where.
        server: String,
        /// Days since 1970.
        day: u32,
    },
    /// A user was changed by somebody else since it was read. Nothing has changed now.
    #[error("{server}: {name} was changed at another gateway just now: look at it, and try again")]
    UserChanged {
        /// Where.
        server: String,
        /// Which user.
        name: String,
    },
    /// The database says what it cannot.
    #[error("{server}: table dormouse.{table}: {what}")]
    Content {
        /// Where.
        server: String,
        /// Which table.
        table: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The connection is gone: join again.
    #[error("{server}: connection lost: {why}")]
    Lost {
        /// Where.
        server: String,
        /// Why.
        why: String,
    },
    /// The server does not answer in time; the connection has been given up: join again.
    #[error("{server}: {doing}: no answer in time")]
    Hangs {
        /// Where.
        server: String,
        /// What was being done.
        doing: &'static str,
    },
    /// The disk of the server is full.
    #[error("{server}: {doing}: the server's disk is full")]
    DiskFull {
        /// Where.
        server: String,
        /// What was being done.
        doing: &'static str,
    },
    /// Anything else that the server refuses.
    #[error("{server}: {doing}: {why}")]
    Refused {
        /// Where.
        server: String,
        /// What was being done.
        doing: &'static str,
        /// What the server says.
        why: String,
    },
}

impl Error {
    /// Nothing that waiting mends: somebody must change the configuration, or the database.
    #[must_use]
    pub const fn needs_somebody(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable { .. }
                | Self::Standby { .. }
                | Self::Lost { .. }
                | Self::Hangs { .. }
                | Self::DiskFull { .. }
                | Self::Refused { .. }
        )
    }
}

/// Inside the crate: with or without words yet.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(tokio_postgres::Error),
    Told(Error),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(e: tokio_postgres::Error) -> Self {
        Self::Sql(e)
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Self {
        Self::Told(e)
    }
}

impl Fault {
    /// The transaction stood in another's way and was rolled back: the next attempt may work. A unique address that another took
    /// meanwhile counts as such: the next attempt sees it.
    pub(crate) fn is_collision(&self) -> bool {
        let Self::Sql(e) = self else { return false };
        let collisions = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::UNIQUE_VIOLATION,
            SqlState::FOREIGN_KEY_VIOLATION,
        ];
        collisions.iter().any(|state| e.code() == Some(state))
    }

    /// In words.
    pub(crate) fn explain(self, server: &str, doing: &'static str) -> Error {
        match self {
            Self::Told(e) => e,
            Self::Sql(e) => explain(server, doing, &e),
        }
    }
}

const GATEWAY_RIGHTS: &str = "run `dormouse cluster init` again, and `dormouse cluster add` for this gateway";

/// What the driver or the server says, in words.
pub(crate) fn explain(server: &str, doing: &'static str, e: &tokio_postgres::Error) -> Error {
    let server = server.to_owned();
    let Some(db) = e.as_db_error() else {
        let why = chain(e);
        return match e.is_closed() || has_io(e) {
            true => Error::Lost { server, why },
            false => Error::Refused { server, doing, why },
        };
    };
    let why = say(db);
    let code = db.code();
    if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) {
        Error::Password { server, why }
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        Error::NoDatabase { server, why }
    } else if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) {
        Error::NoTables { server }
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        Error::Rights { server, doing, why, advice: GATEWAY_RIGHTS }
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        Error::Standby { server }
    } else if *code == SqlState::DISK_FULL {
        Error::DiskFull { server, doing }
    } else if [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN].contains(code) {
        Error::Lost { server, why }
    } else if [SqlState::CANNOT_CONNECT_NOW, SqlState::TOO_MANY_CONNECTIONS].contains(code) {
        Error::Unreachable { server, why }
    } else if [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE].contains(code) {
        Error::Refused {
            server,
            doing,
            why: format!("{why} (the server is too slow, or another holds a lock)"),
        }
    } else {
        Error::Refused { server, doing, why }
    }
}

/// What the server says, with what it says besides.
fn say(db: &tokio_postgres::error::DbError) -> String {
    let mut why = db.message().to_owned();
    for more in [db.detail(), db.hint()].into_iter().flatten() {
        why.push_str("; ");
        why.push_str(more);
    }
    why
}

/// An error and what caused it.
pub(crate) fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(e) = source {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = e.source();
    }
    text
}

/// Whether the system failed below.
pub(crate) fn has_io(e: &dyn std::error::Error) -> bool {
    let mut source = e.source();
    while let Some(e) = source {
        if e.is::<std::io::Error>() {
            return true;
        }
        source = e.source();
    }
    false
}
