//! Nothing in clear: what a tunnel should carry does not leave outside of it, with a packet socket on the outer link as the witness
//! (docs/leaks.md). Each test also sees the same packet leave where it may, so that the witness is known to see.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, ensure};
use dormouse_interop::witness::Witness;
use dormouse_testbed::{
    Access, Dormoused, Extra, GATEWAY, GATEWAY_V6, Host, Need, Process, Roaming, SERVER, binary, require,
};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];
/// Hosts in the open Internet.
const FAR: &str = "198.51.100.1:4242";
const FAR_V6: &str = "[2001:db8:1::1]:4242";
/// The router of network A, which is a neighbour.
const ROUTER: &str = "10.1.0.1:4242";
const PATIENCE: Duration = Duration::from_secs(20);

fn end(name: &str, role: &str, lines: &str, ids: [&str; 2], child: &str) -> String {
    let secret = "secret = \"a shared secret of the test\"";
    format!(
        "[connection.{name}]\nrole = \"{role}\"\n{lines}\n[connection.{name}.local]\nid = \"{}\"\n{secret}\n\
         [connection.{name}.remote]\nid = \"{}\"\n{secret}\n[connection.{name}.child]\n{child}\n",
        ids[0], ids[1]
    )
}

/// A client connection, with lines of its own.
fn client(name: &str, lines: &str, child: &str) -> String {
    let lines = if lines.contains("gateway =") {
        lines.to_owned()
    } else {
        format!("gateway = \"{GATEWAY}\"\n{lines}")
    };
    end(name, "client", &lines, [&format!("{name}.test"), "gateway.test"], child)
}

struct Scene {
    device: Dormoused,
    _gateway: Dormoused,
    witness: Witness,
    world: Roaming,
}

impl Scene {
    /// A gateway that gives IPv4 and a name server, and a device with this configuration in network A.
    fn new(device: &str) -> Result<Self> {
        Self::build("nobody", device, |_| Ok(()))
    }

    fn build(user: &str, device: &str, prepare: impl FnOnce(&Roaming) -> Result<()>) -> Result<Self> {
        let world = Roaming::new(60)?;
        world.attach(Access::A)?;
        prepare(&world)?;
        let pool = format!("[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\ndns = [\"{SERVER}\"]");
        let child = format!("local = [\"0.0.0.0/0\"]\n{pool}");
        let gateway = end("peer", "gateway", "", ["gateway.test", "*.test"], &child);
        let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
        let extra = Extra { user: user.to_owned(), ..Extra::default() };
        let device = Dormoused::start_with(&world.device, extra, "dns = \"off\"", device)?;
        let witness = Witness::new(&world.router_a, "lan")?;
        Ok(Self { device, _gateway: gateway, witness, world })
    }

    fn leaks(&self, to: &str) -> Result<bool> {
        self.witness.leaks(&self.world.device, to.parse::<SocketAddr>()?)
    }

    /// Nothing that belongs into the tunnel leaves, in either family.
    fn is_tight(&self, when: &str) -> Result<()> {
        for to in [FAR, FAR_V6] {
            ensure!(!self.leaks(to)?, "to {to} in clear {when}\n{}\n{}", self.rules(), self.device.log());
        }
        Ok(())
    }

    /// What belongs into the tunnel leaves; soon, because `down` is answered before its routes have gone.
    fn is_open(&self, when: &str) -> Result<()> {
        eventually(when, || self.leaks(FAR))
            .map_err(|e| e.context(format!("{}\n{}", self.rules(), self.device.log())))
    }

    fn rules(&self) -> String {
        self.world.device.sh("nft list ruleset").unwrap_or_default()
    }

    fn up(&self) -> Result<()> {
        self.device.ok(&["up", "vpn", "--timeout", "30"]).map(drop)
    }

    fn server_answers(&self) -> Result<()> {
        let ping = format!("ping -c 1 -W 2 {SERVER}");
        self.world.device.eventually(&ping, PATIENCE).map(drop).map_err(|e| e.context(self.device.log()))
    }

    /// Routes that any network may announce (DHCP's option 121), more exact than the tunnel's.
    fn announce_routes(&self) -> Result<()> {
        for half in ["0.0.0.0/1", "128.0.0.0/1"] {
            self.world.device.ip(&format!("route add {half} via 10.1.0.1 dev wlan0"))?;
        }
        for half in ["::/1", "8000::/1"] {
            self.world.device.ip(&format!("-6 route add {half} via fd0a::1 dev wlan0"))?;
        }
        Ok(())
    }

    /// What the daemon says leaves in clear: pairs of what, and whether it is meant to.
    fn in_clear(&self) -> Result<Vec<(String, bool)>> {
        let status = self.device.ok(&["status", "--json"])?.json;
        let list =
            status.pointer("/result/status/in_clear").and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |v: &Value| v["what"].as_str().unwrap_or_default().to_owned();
        Ok(list.iter().map(|v| (text(v), v["intended"].as_bool().unwrap_or_default())).collect())
    }

    fn says_that_all_is_well(&self) -> Result<()> {
        let said = self.in_clear()?;
        ensure!(said.iter().all(|(_, intended)| *intended), "{said:?}");
        let doctor = self.device.cli(&["doctor", "--config", &self.config()])?.text;
        ensure!(doctor.lines().any(|l| l.starts_with("ok") && l.contains("in clear")), "{doctor}");
        Ok(())
    }

    fn shouts(&self) -> Result<()> {
        ensure!(
            self.device.ok(&["status"])?.text.contains("IN CLEAR"),
            "{}",
            self.device.ok(&["status"])?.text
        );
        let doctor = self.device.cli(&["doctor", "--config", &self.config()])?.text;
        ensure!(doctor.lines().any(|l| l.starts_with("warn") && l.contains("in clear")), "{doctor}");
        Ok(())
    }

    fn config(&self) -> String {
        self.world.device.dir().join("dormouse.toml").display().to_string()
    }

    /// `dormoused` with these arguments, which ends by itself.
    fn dormoused(&self, arguments: &[&str]) -> Result<(bool, String)> {
        run(&self.world.device, Path::new(&self.config()), arguments)
    }
}

fn run(host: &Host, config: &Path, arguments: &[&str]) -> Result<(bool, String)> {
    let mut command = host.command("timeout");
    command.arg("20").arg(binary("dormoused")).arg("--config").arg(config).args(arguments);
    let out = command.output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Ok((out.status.success(), said))
}

fn eventually(what: &str, mut check: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !check()? {
        ensure!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn a_full_tunnel_is_tight_against_announced_routes_and_in_the_family_that_it_does_not_carry() -> Result<()> {
    if !require("announced routes", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new(&client("vpn", "", ""))?;
    scene.is_open("before the first connection")?;
    scene.up()?;
    scene.is_tight("while it is up")?;
    scene.server_answers()?;
    scene.announce_routes()?;
    // Nor does it cut anything off, not even by a route to the very network behind the tunnel.
    scene.world.device.ip("route add 10.99.0.0/24 via 10.1.0.1 dev wlan0")?;
    scene.is_tight("with announced routes")?;
    scene.server_answers()?;
    scene.says_that_all_is_well()?;
    // Interfaces are what they are called: a tunnel of another name is no tunnel.
    scene
        .world
        .device
        .sh("ip link set dormouse0 down && ip link set dormouse0 name other0 && ip link set other0 up")?;
    scene.is_tight("with the tunnel interface renamed")?;
    scene.device.ok(&["down", "vpn"])?;
    scene.is_open("after down")?;
    scene.shouts()
}

#[test]
fn two_halves_are_a_full_tunnel_and_the_local_network_stays_outside() -> Result<()> {
    if !require("two halves", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new(&client("vpn", "", "remote = [\"0.0.0.0/1\", \"128.0.0.0/1\"]"))?;
    scene.up()?;
    scene.announce_routes()?;
    scene.world.device.ip("route add 10.99.0.0/24 via 10.1.0.1 dev wlan0")?;
    scene.server_answers()?;
    scene.is_tight("with announced routes")?;
    assert!(scene.leaks(ROUTER)?, "a neighbour is reached\n{}", scene.rules());
    scene.says_that_all_is_well()
}

#[test]
fn what_was_connected_stays_held_through_sleep_another_network_and_a_crash() -> Result<()> {
    if !require("a crash", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(&client("vpn", "", ""))?;
    scene.up()?;
    scene.device.ok(&["suspend"])?;
    scene.is_tight("while the radio sleeps")?;
    scene.device.ok(&["resume"])?;
    // Network B is IPv4 behind a NAT; the way by network A stays for all but the tunnel.
    scene.world.attach(Access::B)?;
    scene.world.device.ip("route replace default via 192.168.7.1 dev wlan1 metric 0")?;
    scene.announce_routes()?;
    scene.is_tight("while the session moves")?;
    // The gateway is gone, and with it the session.
    scene.world.core.nft(&format!(
        "table ip broken {{ chain forward {{ type filter hook forward priority 0;\nip daddr {GATEWAY} drop\n}}\n}}\n"
    ))?;
    scene.is_tight("while the gateway is silent")?;
    scene.device.process().kill();
    scene.is_tight("after kill -9")?;
    scene.device.restart()?;
    scene.is_tight("with a new daemon that is not told to connect")?;
    let status = scene.device.ok(&["status", "--json"])?.json;
    assert_eq!(
        status.pointer("/result/status/connections/0/block/holds"),
        Some(&Value::Bool(true)),
        "{status}"
    );
    scene.device.ok(&["down", "vpn"])?;
    scene.is_open("after down")?;
    scene.world.core.sh("nft delete table ip broken")?;
    scene.up()?;
    scene.is_tight("when it is up again")?;
    scene.device.process().stop();
    scene.is_open("after an orderly stop")
}

/// A name server in the open Internet.
fn name_server(world: &Roaming) -> Result<Process> {
    let mut names = world.core.spawn(
        "dnsmasq",
        "dnsmasq",
        &[
            "--no-daemon",
            "--no-resolv",
            "--no-hosts",
            "--port=53",
            "--log-queries",
            &format!("--address=/vpn.test/{GATEWAY}"),
        ],
    )?;
    names.wait_for("started", PATIENCE)?;
    Ok(names)
}

#[test]
fn always_holds_before_the_first_connection_without_the_daemon_and_at_boot() -> Result<()> {
    let needs =
        [NEEDS.as_slice(), &["dnsmasq", "setpriv"].map(Need::Program), &[Need::File("/usr/bin/python3")]]
            .concat();
    if !require("always", &needs) {
        return Ok(());
    }
    let mut names = None;
    let device = client("vpn", "gateway = \"vpn.test\"\nblock = \"always\"\nlocal_network = false", "");
    let mut scene = Scene::build("nobody", &device, |world| {
        world.device.etc("resolv.conf", "nameserver 198.51.100.1\n")?;
        names = Some(name_server(world)?);
        Ok(())
    })?;
    scene.is_tight("before the first connection")?;
    assert!(!scene.leaks("198.51.100.1:53")?, "names are asked for in clear");
    assert!(!scene.leaks(ROUTER)?, "the local network is not meant to be reached");
    // The daemon's mark is no secret, and a user may have programs that can set it.
    let marked = |user: u32| {
        let send = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(1, 36, 25709); s.sendto(b'%d', ('198.51.100.1', 4242))";
        let send = send.replace("%d", &format!("<user {user}>"));
        let drop =
            format!("setpriv --reuid {user} --clear-groups --inh-caps +net_raw --ambient-caps +net_raw");
        // Refused or not, what counts is what passes.
        let _ = scene.world.device.sh(&format!("{drop} /usr/bin/python3 -c \"{send}\""));
        scene.leaks(FAR).map(|_| scene.witness.saw(format!("<user {user}>").as_bytes()))
    };
    assert!(!marked(1234)?, "a user's packets with the daemon's mark");
    assert!(marked(65534)?, "the daemon's own user");
    // What keeps the network itself running passes, by its ports of the system's own.
    let witness = &scene.witness;
    assert!(witness.leaks_from(&scene.world.device, 68, "255.255.255.255:67".parse()?)?, "DHCP");
    assert!(!witness.leaks_from(&scene.world.device, 0, "255.255.255.255:67".parse()?)?, "not DHCP");
    // Of the daemon's own packets all pass, the question for the gateway's name included.
    scene.up()?;
    scene.server_answers()?;
    let asked = names.map(|n| n.log()).unwrap_or_default();
    assert!(asked.contains("query[A] vpn.test"), "{asked}");
    scene.is_tight("while it is up")?;
    scene.says_that_all_is_well()?;
    scene.device.ok(&["down", "vpn"])?;
    scene.is_tight("after down")?;
    scene.device.process().stop();
    scene.is_tight("after an orderly stop")?;
    // A machine that starts: nothing is left of before.
    scene.world.device.sh("nft flush ruleset")?;
    scene.is_open("without any rules")?;
    let doctor = scene.device.cli(&["doctor", "--config", &scene.config()])?.text;
    ensure!(doctor.lines().any(|l| l.starts_with("FAIL") && l.contains("in clear")), "{doctor}");
    let (good, said) = scene.dormoused(&["--block-only"])?;
    ensure!(good && said.contains("vpn"), "{said}");
    scene.is_tight("at boot")?;
    // A configuration that cannot be read opens nothing: what the last one held is held, and that is an error.
    let good_one = std::fs::read_to_string(scene.config())?;
    for broken in [
        format!("{good_one}\nthis is no TOML"),
        String::new(),
        good_one.replace("[daemon]\n", "[daemon]\ninterface = \"vpn+0\"\n"),
    ] {
        scene.world.device.sh("nft flush ruleset")?;
        std::fs::write(scene.config(), &broken)?;
        let (good, said) = scene.dormoused(&["--block-only"])?;
        ensure!(!good && said.contains("an earlier configuration") && said.contains("vpn"), "{said}");
        scene.is_tight("at boot with a broken configuration")?;
    }
    std::fs::write(scene.config(), good_one)?;
    scene.device.restart()?;
    scene.is_tight("with a new daemon")?;
    let (good, said) = scene.dormoused(&["--unblock"])?;
    ensure!(!good && said.contains(&scene.device.process().pid().to_string()), "{said}");
    scene.device.process().kill();
    scene.is_tight("after kill -9")?;
    let (good, said) = scene.dormoused(&["--unblock"])?;
    ensure!(good, "{said}");
    scene.is_open("after --unblock")
}

#[test]
fn what_the_device_forwards_has_no_exception_for_dhcp() -> Result<()> {
    if !require("a container", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(&client("vpn", "block = \"always\"\nlocal_network = false", ""))?;
    let device = scene.world.device.clone();
    let container = scene.world.bed.host("container")?;
    scene.world.bed.link((&device, "veth0", &["172.20.0.1/24"]), (&container, "eth0", &["172.20.0.2/24"]))?;
    container.ip("route add default via 172.20.0.1")?;
    device.sysctl("net.ipv4.ip_forward", "1")?;
    let passes = |scene: &Scene, text: &'static str| -> Result<bool> {
        let send = move || -> std::io::Result<()> {
            let socket = std::net::UdpSocket::bind("172.20.0.2:68")?;
            socket.send_to(text.as_bytes(), "198.51.100.1:67").map(drop)
        };
        container.within(send)?.join().map_err(|_| anyhow::anyhow!("the sender panicked"))???;
        // What is seen after it would have come after it.
        scene.leaks(FAR)?;
        Ok(scene.witness.saw(text.as_bytes()))
    };
    assert!(!passes(&scene, "<held in a container>")?, "{}", scene.rules());
    assert!(scene.witness.leaks_from(&device, 68, "198.51.100.1:67".parse()?)?, "the device's own");
    scene.device.process().stop();
    let (good, said) = scene.dormoused(&["--unblock"])?;
    ensure!(good, "{said}");
    eventually("open without the rules", || passes(&scene, "<sent by a container>"))
}

#[test]
fn ipv6_neighbours_are_found_while_all_else_is_held() -> Result<()> {
    if !require("neighbour discovery", &NEEDS) {
        return Ok(());
    }
    let lines = format!("gateway = \"{GATEWAY_V6}\"\nblock = \"always\"\nlocal_network = false");
    let scene = Scene::new(&client("vpn", &lines, ""))?;
    scene.world.device.ip("-6 neigh flush all")?;
    scene.up()?;
    scene.server_answers()?;
    scene.is_tight("over IPv6")
}

#[test]
fn rules_that_another_program_removes_are_back_at_once_and_that_is_said() -> Result<()> {
    if !require("nft flush ruleset", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(&client("vpn", "", ""))?;
    scene.up()?;
    scene.announce_routes()?;
    let rules = || scene.world.device.sh("nft list ruleset");
    for (n, harm) in
        ["flush ruleset", "flush chain inet dormouse_block leave", "delete table inet dormouse_block"]
            .iter()
            .enumerate()
    {
        scene.world.device.sh(&format!("nft {harm}"))?;
        eventually(harm, || Ok(rules()?.contains("jump held.vpn")))?;
        scene.is_tight(harm)?;
        eventually("a word about it", || {
            Ok(scene.device.log().matches("removed or changed the rules").count() > n)
        })?;
    }
    // As a firewall's restart does, which flushes twice: also between the guard's loading and its look at what was loaded.
    scene.world.device.sh("for n in $(seq 200); do nft flush ruleset; done")?;
    eventually("after many flushes", || Ok(rules()?.contains("jump held.vpn")))?;
    scene.is_tight("after many flushes")?;
    // The guard says so after its next look at them, a second later at most.
    eventually("all is well", || Ok(scene.says_that_all_is_well().is_ok()))?;
    // While another program owns the table's name the rules cannot be loaded; the kernel says nothing when it lets go.
    let name = "printf 'delete table inet dormouse_block; add table inet dormouse_block { flags owner; }\n'";
    let mut other = scene.world.device.spawn("nft", "sh", &["-c", &format!("({name}; sleep 5) | nft -i")])?;
    eventually("the rules are gone", || Ok(rules()?.contains("flags owner")))?;
    eventually("that is said", || {
        Ok(scene.in_clear()?.iter().any(|(_, intended)| !intended)
            && scene.device.log().contains("tried again"))
    })?;
    let answer = scene.device.cli(&["reload"])?;
    ensure!(answer.code != 0 && answer.text.contains("the configuration stays as it was"), "{}", answer.text);
    ensure!(other.wait(PATIENCE).is_some(), "{}", other.log());
    eventually("when the name is free", || Ok(rules()?.contains("jump held.vpn")))?;
    scene.is_tight("when the name is free")?;
    eventually("all is well again", || Ok(scene.says_that_all_is_well().is_ok()))?;
    // The guard has the right to change networks, and no other; without it the daemon ends, and what is held stays.
    let pids = Command::new("ip").args(["netns", "pids", scene.world.device.netns()]).output()?.stdout;
    let is_guard = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.contains("block-guard"))
    };
    let pids = String::from_utf8(pids)?;
    let guard = pids.split_whitespace().find(is_guard).context("a guard")?;
    let status = std::fs::read_to_string(format!("/proc/{guard}/status"))?;
    for (set, value) in
        [("CapEff", "0000000000001000"), ("CapPrm", "0000000000001000"), ("CapBnd", "0000000000000000")]
    {
        assert!(status.contains(&format!("{set}:\t{value}")), "{status}");
    }
    scene.world.device.sh(&format!("kill -9 {guard}"))?;
    assert!(scene.device.process().wait(PATIENCE).is_some_and(|s| !s.success()), "{}", scene.device.log());
    scene.is_tight("without guard and daemon")?;
    scene.device.restart()?;
    scene.is_tight("with new ones")
}

#[test]
fn the_local_network_is_its_private_neighbours_and_no_name_server() -> Result<()> {
    if !require("the local network", &NEEDS) {
        return Ok(());
    }
    // What only root may read is read again further down.
    let child = "remote = [\"0.0.0.0/0\", \"::/0\", \"10.99.0.0/24\"]";
    let scene = Scene::build("root", &client("vpn", "", child), |_| Ok(()))?;
    scene.up()?;
    assert!(scene.leaks(ROUTER)?, "a neighbour is reached\n{}", scene.rules());
    assert!(!scene.leaks("10.1.0.1:53")?, "the gateway gives a name server: names are not asked for here");
    let said = scene.in_clear()?;
    assert!(
        said.iter().any(|(what, intended)| *intended && what.contains("10.1.0.0/24 over wlan0")),
        "{said:?}"
    );
    // A network may call any address a neighbour's.
    scene.world.device.ip("addr add 198.51.100.77/24 dev wlan0")?;
    scene.world.device.ip("-6 addr add 2001:db8:1::77/64 dev wlan0 nodad")?;
    scene.world.device.ip("route add 198.51.100.1 via 10.1.0.1 dev wlan0")?;
    scene.world.device.ip("-6 route add 2001:db8:1::1 via fd0a::1 dev wlan0")?;
    scene.is_tight("in a network that has the addresses of others")?;
    // What is named is never local.
    scene.world.router_a.ip("addr add 10.99.0.4/24 dev lan")?;
    scene.world.device.ip("addr add 10.99.0.77/24 dev wlan0")?;
    assert!(!scene.leaks("10.99.0.4:4242")?, "named in the configuration");
    // Private addresses are neighbours only where they are.
    scene.world.device.ip("route add 10.2.0.0/16 via 10.1.0.1 dev wlan0")?;
    assert!(!scene.leaks("10.2.0.1:4242")?, "behind the router is not the local network");
    // The owner changes his mind.
    let config = std::fs::read_to_string(scene.config())?;
    std::fs::write(
        scene.config(),
        config.replace("role = \"client\"", "role = \"client\"\nlocal_network = false"),
    )?;
    scene.world.device.sh("kill -HUP $(ss -xlp | sed -n 's/.*@dormoused .*pid=\\([0-9]*\\).*/\\1/p')")?;
    eventually("the local network is closed", || Ok(!scene.leaks(ROUTER)?))
}

#[test]
fn a_portal_opens_the_way_to_the_router_and_closes_without_the_daemon() -> Result<()> {
    if !require("a captive portal", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(&client("vpn", "block = \"always\"\nlocal_network = false", ""))?;
    assert!(!scene.leaks(ROUTER)?);
    let said = scene.device.ok(&["portal", "--for", "600"])?.text;
    assert!(said.contains("open: 10.1.0.1") && said.contains("in clear"), "{said}");
    assert!(scene.leaks(ROUTER)?, "{}", scene.rules());
    scene.is_tight("with an open portal")?;
    let said = scene.in_clear()?;
    assert!(said.iter().any(|(what, intended)| *intended && what.contains("10.1.0.1")), "{said:?}");
    scene.device.ok(&["portal", "198.51.100.1", "--for", "600"])?;
    scene.is_open("to an address that was named")?;
    scene.device.ok(&["portal", "--for", "0"])?;
    scene.is_tight("after it was closed")?;
    assert!(!scene.leaks(ROUTER)?);
    assert_eq!(scene.device.cli(&["portal", "--for", "3601"])?.code, 2);
    scene.device.ok(&["portal", "--for", "3"])?;
    scene.device.process().kill();
    eventually("it closes by itself", || Ok(!scene.leaks(ROUTER)?))?;
    scene.is_tight("after kill -9")
}

#[test]
fn of_two_connections_each_is_held_for_itself() -> Result<()> {
    if !require("two connections", &NEEDS) {
        return Ok(());
    }
    let split = "remote = [\"10.99.0.0/24\"]";
    let both = client("vpn", "local_network = false", "") + &client("office", "block = \"connected\"", split);
    let scene = Scene::new(&both)?;
    let office = format!("{SERVER}:4242");
    scene.device.ok(&["up", "office", "--timeout", "30"])?;
    scene.server_answers()?;
    scene.is_open("by the tunnel of another")?;
    scene.world.device.ip("route add 10.99.0.0/25 via 10.1.0.1 dev wlan0")?;
    assert!(!scene.leaks(&office)?);
    scene.up()?;
    scene.is_tight("with both")?;
    assert!(!scene.leaks(&office)? && !scene.leaks(ROUTER)?);
    scene.device.ok(&["down", "office"])?;
    scene.is_tight("with the full tunnel alone")?;
    assert!(!scene.leaks(&office)?, "the full tunnel holds that too");
    scene.device.ok(&["up", "office", "--timeout", "30"])?;
    scene.device.ok(&["down", "vpn"])?;
    scene.is_open("with the split tunnel alone")?;
    assert!(!scene.leaks(&office)? && scene.leaks(ROUTER)?);
    Ok(())
}

#[test]
fn a_second_daemon_is_refused_by_name_before_it_changes_anything() -> Result<()> {
    if !require("a second daemon", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(&client("vpn", "", ""))?;
    scene.up()?;
    let pid = format!("process {}", scene.device.process().pid());
    let text = std::fs::read_to_string(scene.config())?;
    let second = |text: String| -> Result<PathBuf> {
        let path = scene.world.device.dir().join("second.toml");
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(path)
    };
    let other = text.replace("dormouse.sock", "second.sock").replace("/state", "/state2");
    let other = other
        .replace("[daemon]\n", "[daemon]\ninterface = \"second0\"\nike_port = 1500\nnat_t_port = 5500\n");
    let (good, said) = run(&scene.world.device, &second(other.clone())?, &[])?;
    assert!(!good && said.contains(&pid) && said.contains("network namespace"), "{said}");
    scene.server_answers()?;
    scene.is_tight("after a second daemon tried")?;
    // In a namespace of its own there is room, but not in the same directory.
    let shared = other.replace("/state2", "/state");
    let (good, said) = run(&scene.world.router_b, &second(shared)?, &[])?;
    assert!(!good && said.contains(&pid) && said.contains("daemon.state_dir"), "{said}");
    // The end of the first one, however it ends, makes room.
    scene.device.process().kill();
    scene.device.restart()?;
    scene.up()?;
    scene.server_answers()
}
