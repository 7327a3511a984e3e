//! A real PostgreSQL for the tests: in a directory of its own, as a user without rights, gone with the last one who uses it, also after a
//! panic. Tests share one, each with a database and gateways' names of its own, unless they kill it.

use dormouse_cluster::admin::{Account, Admin, Owner, role};
use dormouse_cluster::{Database, Joined, Settings};
use dormouse_crypto::Secret;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, Row, TicketHolder};
use dormouse_keying::SaId;
use dormouse_sansio::{Seeded, UnixTime};
use dormouse_testbed::{Need, require};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Where Debian has the server's programs, by version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// Who runs it if we are root, which it refuses.
const USER: &str = "postgres";
static COUNT: AtomicU32 = AtomicU32::new(0);
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

/// Starts a process from a thread that lives as long as ours: `--pdeathsig` means the thread, and tests each have one.
fn spawn(command: Command) -> Child {
    type Started = Sender<std::io::Result<Child>>;
    static NURSERY: OnceLock<Sender<(Command, Started)>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (sender, orders) = channel::<(Command, Started)>();
        std::thread::spawn(move || {
            for (mut command, started) in orders {
                started.send(command.spawn()).unwrap();
            }
        });
        sender
    });
    let (started, child) = channel();
    nursery.send((command, started)).unwrap();
    child.recv().unwrap().unwrap()
}

/// Whether a test can run here.
pub(crate) fn possible(test: &str) -> bool {
    require(test, &[Need::File(PROGRAMS), Need::Program("setpriv")])
}

/// Runs a test's conversation.
pub(crate) fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A certificate's authority, and a server's certificate and key of it, in PEM.
pub(crate) struct Papers {
    pub(crate) authority: String,
    certificate: String,
    key: String,
}

impl Papers {
    pub(crate) fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = parameters.self_signed(&key).unwrap().pem();
        let issuer = rcgen::Issuer::new(parameters, key);
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &issuer).unwrap().pem();
        Self { authority, certificate, key: key.serialize_pem() }
    }
}

/// A server. Stopped and removed when dropped.
pub(crate) struct Server {
    dir: PathBuf,
    process: Mutex<Child>,
    pub(crate) port: u16,
    pub(crate) papers: Papers,
}

impl Server {
    /// The one that tests share; with `fsync = off`.
    pub(crate) fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::new("fsync = off"));
        *shared = Arc::downgrade(&server);
        server
    }

    /// One for a test alone, with more settings.
    pub(crate) fn new(settings: &str) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("dormouse-pg-{}-{number}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        // From now on the directory goes whatever happens.
        let process = Mutex::new(Command::new("true").spawn().unwrap());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Self { dir, process, port, papers: Papers::new("localhost") };
        server.own(&server.dir);
        let data = server.data();
        let mut initdb = server.program("initdb");
        initdb.arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "--no-sync",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-instructions",
        ]);
        let made = initdb.output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut conf = fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).unwrap();
        let Self { dir, port, .. } = &server;
        write!(
            conf,
            "unix_socket_directories = '{}'\nlisten_addresses = '127.0.0.1'\nport = {port}\nmax_connections = 60\nssl = on\n\
            shared_buffers = 64MB\nautovacuum_naptime = 5\n{settings}\n",
            dir.display()
        )
        .unwrap();
        let hba = "local replication postgres trust\nlocal all postgres trust\nlocal all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(data.join("pg_hba.conf"), hba).unwrap();
        for (name, text) in [("server.crt", &server.papers.certificate), ("server.key", &server.papers.key)] {
            fs::write(data.join(name), text).unwrap();
            fs::set_permissions(data.join(name), fs::Permissions::from_mode(0o600)).unwrap();
            server.own(&data.join(name));
        }
        server.start();
        server
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn own(&self, path: &Path) {
        if nix::unistd::Uid::effective().is_root() {
            let user = nix::unistd::User::from_name(USER).unwrap().expect("the user postgres");
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
    }

    /// A program of PostgreSQL's newest version, as a user that it accepts.
    pub(crate) fn program(&self, name: &str) -> Command {
        let versions = fs::read_dir(PROGRAMS).unwrap().map(|entry| entry.unwrap().path().join("bin"));
        let newest = versions.filter(|bin| bin.join("postgres").exists()).max().unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if nix::unistd::Uid::effective().is_root() {
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        }
        command.arg(newest.join(name)).current_dir(&self.dir).env_remove("PGOPTIONS");
        command
    }

    /// Starts it, again if it was stopped or killed, and waits until it answers.
    pub(crate) fn start(&self) {
        for _ in 0..50 {
            let log = fs::OpenOptions::new().append(true).create(true).open(self.dir.join("log")).unwrap();
            let mut server = self.program("postgres");
            server.arg("-D").arg(self.data()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            *self.process.lock().unwrap() = spawn(server);
            while self.process.lock().unwrap().try_wait().unwrap().is_none() {
                let ready = self
                    .program("pg_isready")
                    .arg("-q")
                    .arg("-h")
                    .arg(&self.dir)
                    .arg("-p")
                    .arg(self.port.to_string())
                    .status();
                if ready.unwrap().success() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            // What an earlier one has left runs still.
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not start: {}", fs::read_to_string(self.dir.join("log")).unwrap_or_default());
    }

    /// SIGKILL, or another signal, to the server's first process; waits for its end.
    pub(crate) fn end(&self, signal: nix::sys::signal::Signal) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let id = nix::unistd::Pid::from_raw(i32::try_from(process.id()).unwrap());
        if process.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ended = nix::sys::signal::kill(id, signal);
        }
        let _ended = process.wait();
    }

    /// For the owner.
    pub(crate) fn url(&self, user: &str, database: &str) -> String {
        let dir = self.dir.display().to_string().replace('/', "%2F");
        format!("postgresql://{user}@{dir}:{}/{database}", self.port)
    }

    /// For what the tests look at themselves.
    pub(crate) async fn raw(&self, database: &str) -> tokio_postgres::Client {
        let config: tokio_postgres::Config = self.url("postgres", database).parse().unwrap();
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // At once, and its processes with it.
        self.end(nix::sys::signal::Signal::SIGQUIT);
        let _gone = fs::remove_dir_all(&self.dir);
    }
}

/// A database of its own on a server, with tables.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    pub(crate) database: String,
    number: u32,
}

impl World {
    pub(crate) async fn new(server: Arc<Server>, slots: Option<u8>) -> Self {
        let world = Self::empty(server).await;
        world.admin().await.init(slots).await.unwrap();
        world
    }

    /// Without tables.
    pub(crate) async fn empty(server: Arc<Server>) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let database = format!("t{number}");
        let postgres = server.raw("postgres").await;
        // Its template may be in use for a moment.
        while let Err(e) = postgres.batch_execute(&format!("create database {database}")).await {
            assert_eq!(e.code(), Some(&tokio_postgres::error::SqlState::OBJECT_IN_USE), "{e}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Self { server, database, number }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { url: self.server.url("postgres", &self.database), password: None, authorities: Vec::new() }
    }

    pub(crate) async fn admin(&self) -> Admin {
        Admin::connect(&self.owner()).await.unwrap()
    }

    pub(crate) async fn raw(&self) -> tokio_postgres::Client {
        self.server.raw(&self.database).await
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
            url: self.server.url(&user, &self.database),
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
