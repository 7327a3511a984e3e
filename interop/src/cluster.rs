//! Gateways that share a PostgreSQL database, as installed, in the world of `dormouse_testbed::Roaming`: one name for all of them, a link of each to
//! the Internet and to the server behind them, which has the database too. Owns how they are laid out and started, and the books over what they
//! and the database say of a device; must never play a fault.

use crate::ends::{NET, PATIENCE, POOL, SECRET, by_certificate, by_secret, inner, peers, rung};
use anyhow::{Context, Result, ensure};
use dormouse_cluster::admin::{Account, Admin, Owner};
use dormouse_io::entropy::OsEntropy;
use dormouse_io::netlink::PROTOCOL;
use dormouse_testbed::postgres::{PROGRAMS, Postgres};
use dormouse_testbed::{
    Access, Dormoused, Extra, GATEWAY, GATEWAY_V6, Host, Key, Need, Pki, Roaming, SERVER,
};
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What such a test needs of the machine.
pub const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::File(PROGRAMS)];
/// The gateways' outer addresses, in their order.
pub const OUTER: [&str; 3] = [GATEWAY, "203.0.113.5", "203.0.113.9"];
/// Their inner ones, each in a network that the server is in too.
pub const LAN: [&str; 3] = ["10.99.0.1", "10.98.0.1", "10.97.0.1"];
/// The same of IPv6.
pub const OUTER_V6: [&str; 3] = [GATEWAY_V6, "2001:db8:5::1", "2001:db8:9::1"];
/// Synchronous standbys of the database, by their names, and where they are.
pub const STANDBYS: [(&str, &str); 2] = [("db2", "10.99.0.3"), ("db3", "10.99.0.4")];
/// The database that they share.
pub const DATABASE: &str = "postgres";
/// The gateways' common name.
pub const NAME: &str = "gateway.test";
/// The device's identity.
pub const DEVICE: &str = "device.test";
/// Of a daemon's log, where a test has failed.
const LINES: usize = 40;
/// What is given to clients of all gateways.
const CLIENTS: &str = "10.55.0.0/24";

/// Everything but the daemons: hosts, links and a database with a place for each gateway.
#[derive(Debug)]
pub struct Ground {
    /// The database, on the server behind the gateways.
    pub database: Postgres,
    /// Those that follow it.
    pub standbys: Vec<Postgres>,
    /// The world with the first gateway.
    pub world: Roaming,
    /// Where the gateways run.
    pub hosts: Vec<Host>,
    /// The gateways' section `child`, and the pool behind it.
    pub pool: String,
    /// Lines of the gateways' connection.
    pub policy: String,
    /// The clients' section `child`.
    pub net: String,
    /// Who issues the certificates by which gateways and clients prove who they are; `None`: they do by a secret.
    pub authority: Option<Pki>,
    accounts: Vec<Account>,
}

impl Ground {
    /// For so many gateways, 3 at most.
    ///
    /// # Errors
    /// If the world or the database cannot be made.
    pub fn new(gateways: usize) -> Result<Self> {
        let world = Roaming::new(61)?;
        let dir = database_dir(&world);
        Self::on(world, gateways, &dir, "")
    }

    /// The same in a world of the test's, with the database in a directory that is made, and lines for `postgresql.conf`.
    ///
    /// # Errors
    /// As [`Ground::new`].
    pub fn on(mut world: Roaming, gateways: usize, dir: &Path, settings: &str) -> Result<Self> {
        let mut hosts = vec![world.gateway.clone()];
        for n in 1..gateways {
            hosts.push(another_gateway(&mut world, n)?);
        }
        world.attach(Access::A)?;
        let database = Postgres::start_with(&world.server, SERVER, dir, settings)?;
        let accounts = accounts(&database, gateways)?;
        let (pool, net, policy) = (POOL.to_owned(), NET.to_owned(), String::new());
        let (standbys, authority) = (Vec::new(), None);
        let ground = Self { database, standbys, world, hosts, pool, policy, net, authority, accounts };
        ground.behind_the_name(&OUTER[..gateways])?;
        Ok(ground)
    }

    /// As [`Ground::new`], with two standbys of which one must have applied each commit, as docs/cluster.md advises.
    ///
    /// # Errors
    /// As [`Ground::new`].
    pub fn with_standbys(gateways: usize) -> Result<Self> {
        let mut ground = Self::new(gateways)?;
        for (name, address) in STANDBYS {
            ground.world.server.ip(&format!("addr add {address}/24 dev eth0"))?;
            ground.standbys.push(ground.database.standby(address, name)?);
        }
        ground.database.set("synchronous_commit", "remote_apply")?;
        ground
            .database
            .set("synchronous_standby_names", &format!("ANY 1 ({}, {})", STANDBYS[0].0, STANDBYS[1].0))?;
        Ok(ground)
    }

    /// Gateways and clients that are started from now on prove who they are by certificates of one authority, each gateway by its own for the common
    /// name.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn certify(&mut self) -> Result<()> {
        let pki = Pki::new(&self.world.bed.dir().join("authority"), Key::P256)?;
        for n in 0..self.hosts.len() {
            pki.issue_for(&name(n), &[NAME], None, Key::P256)?;
        }
        pki.issue(DEVICE, Key::P256)?;
        self.authority = Some(pki);
        Ok(())
    }

    /// How a gateway reaches the database: over TLS, across its inner network.
    #[must_use]
    pub fn url(&self, gateway: usize) -> String {
        let all: Vec<&Postgres> = std::iter::once(&self.database).chain(&self.standbys).collect();
        Postgres::url_of(&all, &self.accounts[gateway].user, DATABASE)
    }

    /// The role that a gateway logs in as.
    #[must_use]
    pub fn role(&self, gateway: usize) -> &str {
        &self.accounts[gateway].user
    }

    /// Starts a gateway. `more`: lines of its section `[cluster]`.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_gateway(&self, gateway: usize, url: &str, more: &str, extra: Extra) -> Result<Dormoused> {
        let host = &self.hosts[gateway];
        let secret = |name: &str, content: &[u8]| {
            let path = host.dir().join(name);
            fs::write(&path, content)?;
            fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
            anyhow::Ok(path)
        };
        let key = secret("cluster.key", "2b".repeat(32).as_bytes())?;
        let password = secret("cluster.password", self.accounts[gateway].password.as_bytes())?;
        let section = format!(
            "[cluster]\ndatabase = \"{url}\"\nname = \"{}\"\nkey_file = {key:?}\npassword_file = {password:?}\nca = {:?}\n{more}\n",
            name(gateway),
            self.database.authority(),
        );
        let own = match &self.authority {
            Some(pki) => by_certificate(pki, "gateway", NAME, "*.test", &self.pool)
                .replace(&format!("/{NAME}."), &format!("/{}.", name(gateway))),
            None => by_secret("gateway", NAME, "*.test", SECRET, &self.pool),
        } + "[standin]\n";
        let role = "role = \"gateway\"\n";
        let own = own.replacen(role, &format!("{role}{}\n", self.policy), 1);
        let extra = Extra { user: "nobody".to_owned(), ..extra };
        Dormoused::start_with(host, extra, "dns = \"off\"", &format!("{section}{own}"))
    }

    /// Starts a client in `host`.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_client(&self, host: &Host, identity: &str) -> Result<Dormoused> {
        let client = match &self.authority {
            Some(pki) => by_certificate(pki, "client", identity, NAME, &self.net),
            None => by_secret("client", identity, NAME, SECRET, &self.net),
        } + "[sleep]\nradio = \"none\"\n";
        let client = client.replace(&format!("gateway = \"{GATEWAY}\""), &format!("gateway = \"{NAME}\""));
        Dormoused::start(host, "dns = \"off\"", &client)
    }

    /// The common name has these addresses for the device, the first one first.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn behind_the_name(&self, addresses: &[&str]) -> Result<()> {
        names(&self.world.device, addresses)
    }

    /// The way back to clients leads by this gateway.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn back_by(&self, gateway: usize) -> Result<()> {
        self.world.server.ip(&format!("route replace {CLIENTS} via {}", LAN[gateway]))
    }

    /// Cuts a gateway off from the database: what it sends there and hears from it meets this verdict.
    ///
    /// # Errors
    /// If `nft` refuses.
    pub fn cut(&self, gateway: usize, verdict: &str) -> Result<()> {
        self.hosts[gateway].nft(&format!(
            "table ip cut {{ chain out {{ type filter hook output priority 0; ip daddr {SERVER} tcp dport 5432 {verdict}; }}
             chain in {{ type filter hook input priority 0; ip saddr {SERVER} tcp sport 5432 {verdict}; }}; }}"
        ))
    }

    /// It reaches the database again.
    ///
    /// # Errors
    /// If `nft` refuses.
    pub fn heal(&self, gateway: usize) -> Result<()> {
        self.hosts[gateway].nft("delete table ip cut")
    }

    /// The routes to clients that a gateway has, one a line.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn routes(&self, gateway: usize) -> Result<String> {
        Ok(self.hosts[gateway]
            .sh(&format!("ip route show table all root {CLIENTS} proto {PROTOCOL}"))?
            .trim()
            .to_owned())
    }
}

/// The common name has these addresses for `host`, the first one first.
///
/// # Errors
/// If its file cannot be written.
pub fn names(host: &Host, addresses: &[&str]) -> Result<()> {
    let mut text = "127.0.0.1 localhost\n".to_owned();
    for address in addresses {
        writeln!(text, "{address} {NAME}")?;
    }
    host.etc("hosts", &text)
}

/// A directory for a database of this world, which its user reaches.
#[must_use]
pub fn database_dir(world: &Roaming) -> PathBuf {
    std::env::temp_dir().join(format!("dormouse-cluster-{}", world.gateway.netns()))
}

/// A gateway's name among the others.
#[must_use]
pub fn name(gateway: usize) -> String {
    format!("gw{}", gateway + 1)
}

fn another_gateway(world: &mut Roaming, n: usize) -> Result<Host> {
    let host = world.bed.host(&format!("gateway{}", n + 1))?;
    let (wan, lan) = (OUTER[n], LAN[n]);
    let next = |address: &str| -> Result<String> {
        let (net, last) = address.rsplit_once('.').context("an address")?;
        Ok(format!("{net}.{}", last.parse::<u8>()? + 1))
    };
    let (core, server) = (next(wan)?, next(lan)?);
    let [outer, there] = [wan, &core].map(|a| format!("{a}/30"));
    let outer_v6 = OUTER_V6[n];
    let core_v6 = outer_v6.replace("::1", "::2");
    let [outer6, there6] = [outer_v6, &core_v6].map(|a| format!("{a}/64"));
    let to = format!("to-g{}", n + 1);
    world.bed.link((&host, "wan", &[&outer, &outer6]), (&world.core, &to, &[&there, &there6]))?;
    let [inner, there] = [lan, &server].map(|a| format!("{a}/24"));
    world.bed.link((&host, "lan", &[&inner]), (&world.server, &format!("eth{n}"), &[&there]))?;
    host.sysctl("net.ipv4.ip_forward", "1")?;
    host.ip(&format!("route add default via {core}"))?;
    host.ip(&format!("-6 route add default via {core_v6}"))?;
    host.ip(&format!("route add 10.99.0.0/24 via {server}"))?;
    Ok(host)
}

fn accounts(database: &Postgres, gateways: usize) -> Result<Vec<Account>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let owner = Owner { url: database.owner(DATABASE), password: None, authorities: Vec::new() };
    let made = runtime.block_on(async {
        let mut admin = Admin::connect(&owner).await?;
        admin.init(None).await?;
        let mut accounts = Vec::new();
        for n in 0..gateways {
            accounts.push(admin.add_gateway(&name(n), &mut OsEntropy).await?);
        }
        Ok::<_, dormouse_cluster::Error>(accounts)
    })?;
    Ok(made)
}

/// Gateways and a device on their ground.
#[derive(Debug)]
pub struct Scene {
    /// By their numbers.
    pub gateways: Vec<Dormoused>,
    /// A client of theirs.
    pub device: Dormoused,
    /// What they stand on.
    pub ground: Ground,
}

impl Scene {
    /// So many gateways as `dormouse cluster add` would have them, and a device that is not up yet. `more`: lines of the gateways' section
    /// `[cluster]`.
    ///
    /// # Errors
    /// If something does not come up.
    pub fn new(gateways: usize, more: &str) -> Result<Self> {
        Self::on(Ground::new(gateways)?, more)
    }

    /// The same on this ground.
    ///
    /// # Errors
    /// If something does not come up.
    pub fn on(ground: Ground, more: &str) -> Result<Self> {
        let start = |n: usize| ground.start_gateway(n, &ground.url(n), more, Extra::default());
        let gateways = (0..ground.hosts.len()).map(start).collect::<Result<_>>()?;
        let device = ground.start_client(&ground.world.device, DEVICE)?;
        Ok(Self { gateways, device, ground })
    }

    /// The device logs in at the first gateway and is served; its addresses.
    ///
    /// # Errors
    /// If it is not.
    pub fn connect(&self) -> Result<Vec<IpAddr>> {
        self.ground.back_by(0)?;
        self.device.ok(&["up", "peer"])?;
        self.ping()?;
        inner(&self.device)
    }

    /// The ticket of the device, which has logged in at the first gateway, counts: a login does not wait for that.
    ///
    /// # Errors
    /// If it does not in time.
    pub fn on_record(&self) -> Result<()> {
        let lineages = || self.ground.database.sql(DATABASE, "select gateway from dormouse.lineage");
        until("the session is on record", || Ok(lineages()? == name(0)))
    }

    /// Who is served where, in the words of the gateways that run.
    ///
    /// # Errors
    /// If one does not answer.
    pub fn served(&self) -> Result<Vec<Vec<String>>> {
        self.gateways.iter().map(peers).collect()
    }

    /// Whether an echo of the device's comes back from behind the gateways.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.ground.world.device.sh(&format!("ping -c 1 -W 1 {SERVER}")).is_ok()
    }

    /// An echo of the device's comes back from behind the gateways, soon.
    ///
    /// # Errors
    /// If none does.
    pub fn ping(&self) -> Result<()> {
        let device = &self.ground.world.device;
        device.eventually(&format!("ping -c 1 -W 1 {SERVER}"), PATIENCE).map(drop)
    }

    /// What the device sends brings it to this gateway, which is the one that answers now, by its ticket and with its address.
    ///
    /// # Errors
    /// If it does not come in time, or otherwise.
    pub fn comes_to(&self, gateway: usize, address: &[IpAddr]) -> Result<()> {
        self.ground.back_by(gateway)?;
        until("at this gateway", || {
            let _lost = self.answers();
            Ok(peers(&self.gateways[gateway])? == [DEVICE])
        })?;
        ensure!(rung(&self.device)? == "ticket", "{}", self.logs());
        ensure!(inner(&self.device)? == address);
        self.ping()
    }

    /// Whether a gateway reaches the database, in the last words of its log about that.
    #[must_use]
    pub fn reaches(&self, gateway: usize) -> bool {
        let log = self.gateways[gateway].log();
        let [ready, lost, again] =
            ["daemon: ready", "until the database can be reached", "the database is reached again"]
                .map(|t| log.rfind(t));
        ready.max(again) > lost
    }

    /// Waits until all gateways reach the database and all books agree that the device, and nobody else, is served at one gateway: that has its session and the one route; the
    /// database has one lineage of it, which is that gateway's, and one lease with `address`; and no gateway has anything left to let go of.
    /// Traffic flows both ways then. Returns which gateway it is.
    ///
    /// # Errors
    /// If they do not agree in time; with all of them.
    pub fn balances(&self, address: &[IpAddr]) -> Result<usize> {
        let end = Instant::now() + PATIENCE;
        loop {
            // What it sends shows a device that its gateway has forgotten it.
            let books = self.books(address)?;
            let wrong = match (books, self.answers(), self.reached(address)) {
                (Ok(at), true, true) => return Ok(at),
                (Ok(at), to, from) => {
                    format!("at {}: echoes of the device's: {to}; of the server's: {from}", name(at))
                }
                (Err(wrong), ..) => wrong,
            };
            ensure!(Instant::now() < end, "{wrong}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether an echo from behind the gateways comes back from the device, which has this address.
    fn reached(&self, address: &[IpAddr]) -> bool {
        let Some(own) = address.first() else { return false };
        let echo = format!("ping -I {SERVER} -c 1 -W 1 {own}");
        inner(&self.device).is_ok_and(|a| a == address) && self.ground.world.server.sh(&echo).is_ok()
    }

    /// The ends of the logs of all daemons.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut all = String::new();
        let daemons = self.gateways.iter().enumerate().map(|(n, g)| (name(n), g.log()));
        for (name, log) in std::iter::once(("device".to_owned(), self.device.log())).chain(daemons) {
            let lines: Vec<&str> = log.lines().collect();
            let _never =
                writeln!(all, "---- {name}\n{}", lines[lines.len().saturating_sub(LINES)..].join("\n"));
        }
        all
    }

    /// Where the device is if the books agree, else what is wrong in them.
    fn books(&self, address: &[IpAddr]) -> Result<Result<usize, String>> {
        let served = self.served()?;
        let routes = (0..self.gateways.len()).map(|n| self.ground.routes(n)).collect::<Result<Vec<_>>>()?;
        let sql = |statement: &str| self.ground.database.sql(DATABASE, statement);
        let lineages = sql("select gateway from dormouse.lineage order by gateway")?;
        let leases = sql("select convert_from(id_data, 'utf8'), host(v4) from dormouse.lease order by 1")?;
        let orders = sql("select gateway from dormouse.orders")?;
        let all = format!(
            "served {served:?}, routes {routes:?}, lineages {lineages:?}, leases {leases:?}, orders {orders:?}"
        );
        let at: Vec<usize> = (0..served.len()).filter(|n| !served[*n].is_empty()).collect();
        let &[at] = at.as_slice() else { return Ok(Err(format!("not at one gateway: {all}"))) };
        self.ground.back_by(at)?;
        let own = address.first().map_or_else(String::new, ToString::to_string);
        let routed = |n: usize| match n == at {
            true => routes[n].lines().count() == 1 && routes[n].starts_with(&format!("{own} ")),
            false => routes[n].is_empty(),
        };
        let agree = [
            ((0..served.len()).all(|n| self.reaches(n)), "ways to the database"),
            (served[at] == [DEVICE], "sessions"),
            ((0..routes.len()).all(routed), "routes"),
            (lineages == name(at), "lineages"),
            (leases == format!("{DEVICE}|{own}"), "leases"),
            (orders.is_empty(), "orders"),
        ];
        let wrong: Vec<&str> = agree.iter().filter(|(right, _)| !right).map(|(_, what)| *what).collect();
        Ok(if wrong.is_empty() { Ok(at) } else { Err(format!("{} are wrong: {all}", wrong.join(", "))) })
    }
}

/// Waits until something is done.
///
/// # Errors
/// If it is not in time, or fails.
pub fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !done()? {
        ensure!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
