//! Two gateways that share a PostgreSQL database, as installed: a device comes back at the other one by its ticket when its own has died, with
//! its address; what one gateway does to a session, the other one knows; and the database's absence costs full exchanges, and nothing else.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, ensure};
use dormouse_cluster::admin::{Admin, Owner};
use dormouse_interop::ends::{NET, PATIENCE, POOL, SECRET, by_secret, inner, peers, rung};
use dormouse_io::entropy::OsEntropy;
use dormouse_testbed::postgres::{PROGRAMS, Postgres};
use dormouse_testbed::{Access, Dormoused, Extra, GATEWAY, Host, Need, Roaming, SERVER, require};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::File(PROGRAMS)];
const SECOND: &str = "203.0.113.5";
const DATABASE: &str = "postgres";
const PORT: u16 = 7_070;

/// The world with a second gateway beside the first, and the database on the server behind both.
struct Scene {
    world: Roaming,
    second: Host,
    database: Postgres,
    gateways: [Dormoused; 2],
    device: Dormoused,
}

fn scene(more: &str) -> Result<Scene> {
    let mut world = Roaming::new(61)?;
    let second = world.bed.host("gateway2")?;
    world.bed.link((&second, "wan", &["203.0.113.5/30"]), (&world.core, "to-g2", &["203.0.113.6/30"]))?;
    world.bed.link((&second, "lan", &["10.98.0.1/24"]), (&world.server, "eth1", &["10.98.0.2/24"]))?;
    second.sysctl("net.ipv4.ip_forward", "1")?;
    second.ip("route add default via 203.0.113.6")?;
    second.ip("route add 10.99.0.0/24 via 10.98.0.2")?;
    world.attach(Access::A)?;
    let dir = std::env::temp_dir().join(format!("dormouse-cluster-{}", world.gateway.netns()));
    let database = Postgres::start(&world.server, SERVER, &dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let owner = Owner { url: database.owner(DATABASE), password: None, authorities: Vec::new() };
    let accounts = runtime.block_on(async {
        let mut admin = Admin::connect(&owner).await?;
        admin.init(None).await?;
        Ok::<_, dormouse_cluster::Error>([
            admin.add_gateway("gw1", &mut OsEntropy).await?,
            admin.add_gateway("gw2", &mut OsEntropy).await?,
        ])
    })?;
    let start = |host: &Host, n: usize| {
        let secret = |name: &str, content: &[u8]| {
            let path = host.dir().join(name);
            fs::write(&path, content)?;
            fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
            anyhow::Ok(path)
        };
        let key = secret("cluster.key", "2b".repeat(32).as_bytes())?;
        let password = secret("cluster.password", accounts[n].password.as_bytes())?;
        let section = format!(
            "[cluster]\ndatabase = \"{}\"\nname = \"gw{}\"\nkey_file = {key:?}\npassword_file = {password:?}\nca = {:?}\n{more}\n",
            database.url(&accounts[n].user, DATABASE),
            n + 1,
            database.authority(),
        );
        let own = by_secret("gateway", "gateway.test", "*.test", SECRET, POOL) + "[standin]\n";
        let extra = Extra { user: "nobody".to_owned(), ..Extra::default() };
        Dormoused::start_with(host, extra, "dns = \"off\"", &format!("{section}{own}"))
    };
    let gateways = [start(&world.gateway, 0)?, start(&second, 1)?];
    // Both behind one name, the first one first.
    world
        .device
        .etc("hosts", &format!("127.0.0.1 localhost\n{GATEWAY} gateway.test\n{SECOND} gateway.test\n"))?;
    let client =
        by_secret("client", "device.test", "gateway.test", SECRET, NET) + "[sleep]\nradio = \"none\"\n";
    let client = client.replace(&format!("gateway = \"{GATEWAY}\""), "gateway = \"gateway.test\"");
    let device = Dormoused::start(&world.device, "dns = \"off\"", &client)?;
    Ok(Scene { world, second, database, gateways, device })
}

impl Scene {
    /// The way back to clients leads by this gateway.
    fn back_by(&self, gateway: usize) -> Result<()> {
        let via = ["10.99.0.1", "10.98.0.1"][gateway];
        self.world.server.ip(&format!("route replace 10.55.0.0/24 via {via}"))
    }

    /// The device logs in at the first gateway and is served; its addresses.
    fn connect(&self) -> Result<Vec<IpAddr>> {
        self.back_by(0)?;
        self.device.ok(&["up", "peer"])?;
        self.ping()?;
        inner(&self.device)
    }

    /// What the device sends brings it to this gateway, which is the one that answers now, by its ticket.
    fn comes_to(&self, gateway: usize, address: &[IpAddr]) -> Result<()> {
        self.back_by(gateway)?;
        until("at this gateway", || {
            let _lost = self.world.device.sh(&format!("ping -c 1 -W 1 {SERVER}"));
            Ok(peers(&self.gateways[gateway])? == ["device.test"])
        })?;
        ensure!(rung(&self.device)? == "ticket", "{}\n{}", self.device.log(), self.gateways[gateway].log());
        ensure!(inner(&self.device)? == address);
        self.ping()
    }

    /// Its ticket counts: a login does not wait for that.
    fn is_on_record_at(&self, gateway: &str) -> Result<()> {
        let on_record =
            || Ok(self.database.sql(DATABASE, "select gateway from dormouse.lineage")? == gateway);
        until("the session is on record", on_record)
    }

    /// Packets that wait at a gateway for devices that sleep.
    fn waiting(&self, gateway: usize) -> Result<u64> {
        let stats = self.gateways[gateway].ok(&["stats", "--json"])?;
        let waiting = stats.json.pointer("/result/stats/counters/standin.waiting_packets");
        waiting.and_then(serde_json::Value::as_u64).context(stats.text)
    }

    fn ping(&self) -> Result<()> {
        self.world.device.eventually(&format!("ping -c 1 -W 1 {SERVER}"), PATIENCE).map(drop)
    }
}

fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !done()? {
        ensure!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn a_device_comes_back_at_the_other_gateway_by_its_ticket_with_its_address() -> Result<()> {
    if !require("gateways that share a database", &NEEDS) {
        return Ok(());
    }
    let mut scene = scene("")?;
    let address = scene.connect()?;
    ensure!(peers(&scene.gateways[0])? == ["device.test"], "{}", scene.gateways[0].log());
    scene.is_on_record_at("gw1")?;

    // Its gateway dies.
    scene.gateways[0].process().kill();
    scene.comes_to(1, &address)?;

    // The first one is there again, and knows nothing of the session; then the device moves back, and the second one lets it go.
    scene.gateways[0].restart()?;
    ensure!(peers(&scene.gateways[0])?.is_empty());
    scene.gateways[1].process().signal(nix::sys::signal::Signal::SIGSTOP);
    scene.comes_to(0, &address)?;
    scene.gateways[1].process().signal(nix::sys::signal::Signal::SIGCONT);
    scene.gateways[1].process().wait_for("clients are at other gateways now", PATIENCE)?;
    ensure!(peers(&scene.gateways[1])?.is_empty());
    let route = scene.second.sh("ip route show 10.55.0.0/16")?;
    ensure!(route.is_empty(), "{route}");
    scene.ping()?;

    // Who is denied at one is denied at both, and has no session anywhere.
    scene.gateways[1].ok(&["deny", "device.test"])?;
    scene.gateways[0].process().wait_for("denied at another gateway", PATIENCE)?;
    ensure!(peers(&scene.gateways[0])?.is_empty());
    let list = scene.gateways[0].ok(&["deny", "--list"])?.text;
    ensure!(list.contains("device.test"), "{list}");
    scene.gateways[0].ok(&["allow", "device.test"])?;
    scene.gateways[1].process().wait_for("no longer denied", PATIENCE)?;
    Ok(())
}

#[test]
fn without_the_database_sessions_go_on_and_new_ones_begin_by_full_exchanges() -> Result<()> {
    if !require("gateways without their database", &NEEDS) {
        return Ok(());
    }
    let mut scene = scene("")?;
    let address = scene.connect()?;
    scene.database.kill();
    for gateway in &mut scene.gateways {
        gateway.process().wait_for("tickets are refused until the database can be reached", PATIENCE)?;
    }
    scene.ping().context("a session goes on")?;

    // Its ticket cannot be looked up, so it logs in; it keeps its address.
    scene.device.process().kill();
    scene.device.restart()?;
    scene.device.ok(&["up", "peer"])?;
    ensure!(rung(&scene.device)? == "full", "{}", scene.device.log());
    ensure!(inner(&scene.device)? == address);
    scene.ping()?;
    let refused = scene.gateways[0].cli(&["allow", "nobody.test"])?;
    ensure!(refused.code != 0 && refused.text.contains("cannot be reached"), "{}", refused.text);
    scene.gateways[0].ok(&["deny", "thief.test"])?;

    // What could not be written is written when it is back: the session is one that can be resumed, elsewhere too.
    scene.database.go()?;
    scene.gateways[0].process().wait_for("the database is reached again", PATIENCE)?;
    scene.gateways[1].process().wait_for("denied at another gateway", PATIENCE)?;
    scene.is_on_record_at("gw1")?;
    scene.gateways[0].process().kill();
    scene.comes_to(1, &address)
}

#[test]
fn a_gateway_that_is_drained_gives_its_devices_and_what_waits_for_them_to_the_other_one() -> Result<()> {
    if !require("a gateway that is drained", &NEEDS) {
        return Ok(());
    }
    let mut scene = scene("")?;
    let address = scene.connect()?;
    scene.is_on_record_at("gw1")?;

    // Awake: it goes with its ticket, and the daemon ends.
    let drained = scene.gateways[0].ok(&["drain"])?.text;
    ensure!(
        drained.contains("1 client went to other gateways\n0 devices that sleep handed over\n"),
        "{drained}"
    );
    let ended = scene.gateways[0].process().wait(PATIENCE);
    ensure!(ended.is_some_and(|status| status.success()), "{ended:?} {}", scene.gateways[0].log());
    ensure!(
        peers(&scene.gateways[1])? == ["device.test"] && rung(&scene.device)? == "ticket",
        "{}",
        scene.device.log()
    );
    ensure!(inner(&scene.device)? == address);
    scene.back_by(1)?;
    scene.ping()?;

    // Alone it stays.
    let alone = scene.gateways[1].cli(&["drain"])?;
    ensure!(alone.code != 0 && alone.text.contains("no other gateway was heard"), "{}", alone.text);
    scene.ping()?;

    // Asleep: what waits for it goes along, and what comes for it later waits there.
    scene.gateways[0].restart()?;
    scene.device.ok(&["suspend"])?;
    until("the gateway knows", || {
        Ok(scene.gateways[1].ok(&["status", "--json"])?.text.contains("\"asleep\":{"))
    })?;
    scene.world.detach(Access::A)?;
    let inner_address = *address.first().context("an address")?;
    let send = |what: &str| {
        let text = what.to_owned();
        scene.world.server.within(move || {
            let socket = std::net::UdpSocket::bind((SERVER, 0))?;
            socket.send_to(text.as_bytes(), (inner_address, PORT)).map(drop)
        })
    };
    send("before")?.join().map_err(|_| anyhow::anyhow!("the thread panicked"))???;
    until("it waits", || Ok(scene.waiting(1)? == 1))?;
    let drained = scene.gateways[1].ok(&["drain"])?.text;
    ensure!(
        drained.contains("0 clients went to other gateways\n1 device that sleeps handed over\n"),
        "{drained}"
    );
    scene.gateways[1].process().wait(PATIENCE).context("it ends")?;
    scene.back_by(0)?;
    until("it waits at the other one", || Ok(scene.waiting(0)? == 1))?;
    send("after")?.join().map_err(|_| anyhow::anyhow!("the thread panicked"))???;
    until("both wait", || Ok(scene.waiting(0)? == 2))?;
    let receiver = scene.world.device.within(move || std::net::UdpSocket::bind((inner_address, PORT)))?;
    let receiver = receiver.join().map_err(|_| anyhow::anyhow!("the thread panicked"))???;
    receiver.set_read_timeout(Some(PATIENCE))?;
    scene.world.attach(Access::A)?;
    scene.device.ok(&["resume"])?;
    let mut received = Vec::new();
    while received.len() < 2 {
        let mut text = [0; 64];
        let len =
            receiver.recv(&mut text).with_context(|| format!("{received:?}\n{}", scene.gateways[0].log()))?;
        received.push(String::from_utf8_lossy(&text[..len]).into_owned());
    }
    ensure!(received == ["before", "after"], "{received:?}");
    ensure!(rung(&scene.device)? == "ticket" && inner(&scene.device)? == address, "{}", scene.device.log());
    scene.ping()
}
