//! Gateways behind one name, the database that they share, one that shares none, and a crowd: each in a network namespace of its own. Owns all that
//! is there before anything is measured; all of it is removed with the stage.

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use dormouse_cluster::admin::{Account, Admin, Owner};
use dormouse_io::entropy::OsEntropy;
use dormouse_testbed::crowd::{Crowd, NETWORKS, Pki, Site, Task};
use dormouse_testbed::postgres::Postgres;
use dormouse_testbed::{Dormoused, Host, Testbed};

/// The gateways that share the database, by the names that they have there.
pub(crate) const NAMES: [&str; 3] = ["gw1", "gw2", "gw3"];
/// The one that shares none, with its own database.
pub(crate) const OWN: usize = NAMES.len();
/// Where the database is, behind all gateways.
const SERVER: &str = "10.97.255.1";
/// Its standbys, where it has some: their names, and where they are.
pub(crate) const STANDBYS: [(&str, &str); 2] = [("db2", "10.97.255.2"), ("db3", "10.97.255.3")];
const DATABASE: &str = "postgres";
/// Clients that log in at once, or say something else before and after what is measured: fewer than the default `half_open.puzzle_threshold`, from which on a gateway gives puzzles.
pub(crate) const AT_ONCE: usize = 500;

/// One gateway.
pub(crate) struct Gateway {
    pub(crate) daemon: Dormoused,
    /// Where devices reach it.
    pub(crate) address: SocketAddr,
}

/// See the module.
pub(crate) struct Stage {
    pub(crate) crowd: Crowd,
    /// Those of [`NAMES`], and [`OWN`].
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) database: Postgres,
    /// None, or as many as [`STANDBYS`], of which one must have each commit (docs/cluster.md).
    pub(crate) standbys: Vec<Postgres>,
    pub(crate) interrupted: Arc<AtomicBool>,
    // Last: namespaces are removed after the processes in them.
    _bed: Testbed,
}

/// What the database has done since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Transactions that wrote.
    pub(crate) transactions: f64,
    /// Bytes of its log (WAL).
    pub(crate) bytes: f64,
}

impl Load {
    pub(crate) fn since(self, before: Self) -> Self {
        Self { transactions: self.transactions - before.transactions, bytes: self.bytes - before.bytes }
    }
}

impl Stage {
    /// Builds the network, starts the database and the gateways, and gives `devices` their names. None has a session. `followed`: the database has
    /// standbys.
    ///
    /// # Errors
    /// Without root or network namespaces, or if a server does not come up.
    pub(crate) fn build(devices: usize, followed: bool, interrupted: &Arc<AtomicBool>) -> Result<Self> {
        let mut bed = Testbed::new()?;
        let (site, server) = (Site::new(&mut bed)?, bed.host("db")?);
        let addresses: Vec<&str> =
            std::iter::once(SERVER).chain(STANDBYS.map(|(_, address)| address)).collect();
        for address in &addresses {
            server.ip(&format!("addr add {address}/32 dev lo"))?;
        }
        let mut hosts = vec![site.gateway.clone()];
        for number in 1..=OWN {
            hosts.push(site.another(&mut bed, u8::try_from(number)?)?);
        }
        for (number, host) in hosts.iter().enumerate().take(NAMES.len()) {
            let ends = [1, 2].map(|end| format!("10.97.{number}.{end}/30"));
            bed.link((host, "back", &[&ends[0]]), (&server, &format!("gw{number}"), &[&ends[1]]))?;
            for address in &addresses {
                host.ip(&format!("route add {address} via 10.97.{number}.2"))?;
            }
        }
        // A name that a later run removes if this one is killed.
        let dir = std::env::temp_dir().join(format!("dormouse-{}", server.netns()));
        let database = Postgres::start(&server, SERVER, &dir)?;
        let accounts = accounts(&database)?;
        let mut standbys = Vec::new();
        if followed {
            for (name, address) in STANDBYS {
                standbys.push(database.standby(address, name)?);
            }
            require_standbys(&database)?;
        }
        let all: Vec<&Postgres> = std::iter::once(&database).chain(&standbys).collect();
        let pki = Pki::new(dormouse_testbed::crowd::Proof::EcdsaP256)?;
        let connection = site.connection(&bed, &pki)?;
        let mut gateways = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let shared = accounts.get(number).map(|a| section(host, NAMES[number], a, &all)).transpose()?;
            let toml = shared.unwrap_or_default() + &connection;
            let daemon = Dormoused::start(host, "dns = \"off\"\n", &toml)?;
            gateways.push(Gateway { daemon, address: Site::address(u8::try_from(number)?) });
        }
        let crowd = site.crowd(&pki, devices, NETWORKS, interrupted)?;
        Ok(Self { crowd, gateways, database, standbys, interrupted: interrupted.clone(), _bed: bed })
    }

    /// From now on this device talks to this gateway.
    pub(crate) fn turn_to(&mut self, device: usize, gateway: usize) -> Result<()> {
        let address = self.gateways.get(gateway).context("no such gateway")?.address;
        self.crowd.turn_to(device, address)
    }

    /// Devices log in, some at a time, each at the gateway to which it has turned.
    pub(crate) fn log_in(&mut self, devices: Range<usize>) -> Result<()> {
        let all: Vec<(usize, Task)> = devices.map(|device| (device, Task::Full)).collect();
        for some in all.chunks(AT_ONCE) {
            let outcome = self.crowd.release(some, || ())?;
            if let Some((device, why)) = outcome.failed.first() {
                anyhow::bail!("device {device} cannot log in: {why}\n{}", self.logs());
            }
        }
        Ok(())
    }

    /// A statement's answer, by the owner of the database.
    pub(crate) fn sql(&self, statement: &str) -> Result<String> {
        self.database.sql(DATABASE, statement)
    }

    /// What the database has done so far.
    pub(crate) fn load(&self) -> Result<Load> {
        let said = self.sql(
            "select pg_snapshot_xmax(pg_current_snapshot()), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')",
        )?;
        let numbers: Vec<f64> = said.split('|').filter_map(|number| number.parse().ok()).collect();
        ensure!(numbers.len() == 2, "the database says {said:?}");
        Ok(Load { transactions: numbers[0], bytes: numbers[1] })
    }

    /// The ends of the gateways' logs.
    pub(crate) fn logs(&self) -> String {
        let tail = |gateway: &Gateway| {
            let log = gateway.daemon.log();
            let lines: Vec<&str> = log.lines().rev().take(5).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        self.gateways.iter().map(tail).collect::<Vec<_>>().join("\n--\n")
    }
}

/// Makes the tables, and a role for each gateway.
fn accounts(database: &Postgres) -> Result<Vec<Account>> {
    let owner = Owner { url: database.owner(DATABASE), password: None, authorities: Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut admin = Admin::connect(&owner).await?;
        admin.init(None).await?;
        let mut accounts = Vec::new();
        for name in NAMES {
            accounts.push(admin.add_gateway(name, &mut OsEntropy).await?);
        }
        Ok(accounts)
    })
}

/// From now on what is committed at this server has been applied by a standby.
///
/// # Errors
/// If it refuses.
pub(crate) fn require_standbys(database: &Postgres) -> Result<()> {
    let names = STANDBYS.map(|(name, _)| name).join(", ");
    database.set("synchronous_commit", "remote_apply")?;
    database.set("synchronous_standby_names", &format!("ANY 1 ({names})"))
}

/// The gateway's section `[cluster]`, and the files that it names.
fn section(host: &Host, name: &str, account: &Account, databases: &[&Postgres]) -> Result<String> {
    let secret = |file: &str, content: &[u8]| -> Result<PathBuf> {
        let path = host.dir().join(file);
        fs::write(&path, content)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        Ok(path)
    };
    let key = secret("cluster.key", "2b".repeat(32).as_bytes())?;
    let password = secret("cluster.password", account.password.as_bytes())?;
    Ok(format!(
        "[cluster]\ndatabase = \"{}\"\nname = \"{name}\"\nkey_file = {key:?}\npassword_file = {password:?}\nca = {:?}\n",
        Postgres::url_of(databases, &account.user, DATABASE),
        databases[0].authority(),
    ))
}
