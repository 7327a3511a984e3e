//! Databases for the tests. Tests share one server, each with a database and gateways' names of its own, unless they kill it; it is gone with the
//! last one who uses it, also after a panic.

use dormouse_cluster::admin::{Account, Admin, Owner, role};
use dormouse_cluster::{Database, Joined, Settings};
use dormouse_crypto::Secret;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, Row, TicketHolder};
use dormouse_keying::SaId;
use dormouse_sansio::{Seeded, UnixTime};
use dormouse_testbed::postgres::{PROGRAMS, Postgres};
use dormouse_testbed::{Need, require};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

static COUNT: AtomicU32 = AtomicU32::new(0);
static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// Whether a test can run here.
pub(crate) fn possible(test: &str) -> bool {
    require(test, &[Need::File(PROGRAMS), Need::Program("setpriv")])
}

/// Runs a test's conversation.
pub(crate) fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The server that tests share; with `fsync = off`.
pub(crate) fn shared() -> Arc<Postgres> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = alone();
    *shared = Arc::downgrade(&server);
    server
}

/// One for a test alone.
pub(crate) fn alone() -> Arc<Postgres> {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("dormouse-pg-{}-{number}", std::process::id()));
    // Killing processes loses no page that the system has; what matters is that commits are not delayed.
    let settings = "fsync = off\nmax_connections = 60\nshared_buffers = 64MB\nautovacuum_naptime = 5";
    Arc::new(Postgres::here(&dir, settings).unwrap())
}

/// For what the tests look at themselves.
pub(crate) async fn raw(server: &Postgres, database: &str) -> tokio_postgres::Client {
    let config: tokio_postgres::Config = server.owner(database).parse().unwrap();
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A database of its own on a server, with tables.
pub(crate) struct World {
    pub(crate) server: Arc<Postgres>,
    pub(crate) database: String,
    number: u32,
}

impl World {
    pub(crate) async fn new(server: Arc<Postgres>, slots: Option<u8>) -> Self {
        let world = Self::empty(server).await;
        world.admin().await.init(slots).await.unwrap();
        world
    }

    /// Without tables.
    pub(crate) async fn empty(server: Arc<Postgres>) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let database = format!("t{number}");
        let postgres = raw(&server, "postgres").await;
        // Its template may be in use for a moment.
        while let Err(e) = postgres.batch_execute(&format!("create database {database}")).await {
            assert_eq!(e.code(), Some(&tokio_postgres::error::SqlState::OBJECT_IN_USE), "{e}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Self { server, database, number }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { url: self.server.owner(&self.database), password: None, authorities: Vec::new() }
    }

    pub(crate) async fn admin(&self) -> Admin {
        Admin::connect(&self.owner()).await.unwrap()
    }

    pub(crate) async fn raw(&self) -> tokio_postgres::Client {
        raw(&self.server, &self.database).await
    }

    /// A number that it gives.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.raw().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// A gateway's full name: roles are the server's, not the database's.
    pub(crate) fn name(&self, gateway: &str) -> String {
        format!("{gateway}-{}", self.number)
    }

    pub(crate) async fn account(&self, gateway: &str) -> Account {
        self.admin()
            .await
            .add_gateway(&self.name(gateway), &mut Seeded::new(self.number.into()))
            .await
            .unwrap()
    }

    /// How a new gateway gets in.
    pub(crate) async fn settings(&self, gateway: &str) -> Settings {
        let Account { user, password } = self.account(gateway).await;
        assert_eq!(user, role(&self.name(gateway)));
        Settings {
            url: self.server.url_here(&user, &self.database),
            password: Some(password),
            authorities: Vec::new(),
            gateway: self.name(gateway),
            address: format!("{gateway}.example"),
            key: Secret::from([7; 32]),
        }
    }

    /// A new gateway, joined.
    pub(crate) async fn join(&self, gateway: &str) -> Database {
        self.join_as(&self.settings(gateway).await, 0).await.0
    }

    pub(crate) async fn join_as(&self, settings: &Settings, beats: u64) -> (Database, Joined) {
        Database::join(settings, beats).await.unwrap()
    }
}

pub(crate) fn name(n: u64) -> Name {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&n.to_be_bytes());
    Name(name)
}

pub(crate) fn holder(n: u8) -> TicketHolder {
    TicketHolder([n; 32])
}

pub(crate) const NOW: UnixTime = UnixTime(1_600_000_000);
pub(crate) const LATER: UnixTime = UnixTime(1_600_086_400);

/// A row whose tip is named like it.
pub(crate) fn insert(id: u64, of: u8) -> Operation {
    Operation::Insert(Row { id: name(id), holder: holder(of), tip: name(id), ends: LATER })
}

pub(crate) fn confirm(lineage: u64, own: u64, before: u64, next: u64) -> Operation {
    let (own, before, next) = (name(own), name(before), name(next));
    Operation::Confirm { sa: SaId::new(lineage), lineage: name(lineage), own, before, next, ends: LATER }
}

pub(crate) async fn run(database: &mut Database, operations: &[Operation]) -> Vec<Outcome> {
    database.run(NOW, operations).await.unwrap()
}
