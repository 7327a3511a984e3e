//! Who gets which address, and whose traffic: clients of two connections, one identity claimed by another, packets kept for a device
//! that is away, peers with a policy of their own, denials, and authentications that end.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_interop::ends::{NET, PATIENCE, POOL, another, by_certificate, inner, peers};
use dormouse_testbed::{
    Access, Dormoused, EchoServer, GATEWAY, Host, Key, LongLived, Need, Pki, Roaming, SERVER, require,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Instant;

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
const PORT: u16 = 7_777;

/// One connection, at either end.
struct Ends<'a> {
    name: &'a str,
    /// The secret that both know.
    secret: &'a str,
}

const STAFF: Ends<'static> = Ends { name: "staff", secret: "the secret of the staff" };
const GUESTS: Ends<'static> = Ends { name: "guests", secret: "the secret of the guests" };

impl Ends<'_> {
    /// The gateway's end. `peers`: whom it takes; `own`: lines of the connection itself.
    fn gateway(&self, peers: &str, pool: &str, own: &str) -> String {
        let Self { name, secret } = self;
        format!(
            "[connection.{name}]\nrole = \"gateway\"\n{own}\n[connection.{name}.local]\nid = \"gateway.test\"\nsecret = \"{secret}\"\n\
             [connection.{name}.remote]\nid = \"{peers}\"\nsecret = \"{secret}\"\n[connection.{name}.child]\nlocal = [\"10.99.0.0/24\", \"10.55.0.0/16\"]\n\
             [connection.{name}.pool]\naddresses = [\"{pool}\"]\n"
        )
    }

    /// A client of this identity, not connected yet.
    fn client(&self, host: &Host, id: &str, more: &str) -> Result<Dormoused> {
        let Self { name, secret } = self;
        let toml = format!(
            "[sleep]\nradio = \"none\"\n[connection.{name}]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n[connection.{name}.local]\nid = \"{id}\"\n\
             secret = \"{secret}\"\n[connection.{name}.remote]\nid = \"gateway.test\"\nsecret = \"{secret}\"\n\
             [connection.{name}.child]\nremote = [\"10.99.0.0/24\", \"10.55.0.0/16\"]\n{more}\n"
        );
        Dormoused::start(host, "dns = \"off\"", &toml)
    }

    fn up(&self, host: &Host, id: &str) -> Result<Dormoused> {
        let client = self.client(host, id, "")?;
        client.ok(&["up", self.name])?;
        Ok(client)
    }
}

/// A gateway with its network, and a second place for a client besides the device's.
fn world() -> Result<(Roaming, Host)> {
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let (other, _) = another(&mut world, "other", 2)?;
    Ok((world, other))
}

/// Waits until something is so.
fn until(what: &str, so: impl Fn() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !so()? {
        if Instant::now() > end {
            bail!("not in time: {what}");
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Ok(())
}

fn within(net: &str, address: IpAddr) -> bool {
    address.to_string().starts_with(net)
}

fn socket(host: &Host, address: SocketAddr) -> Result<UdpSocket> {
    let bound = host.within(move || UdpSocket::bind(address))?.join();
    Ok(bound.map_err(|_| anyhow::anyhow!("the thread panicked"))???)
}

#[test]
fn a_guests_secret_gives_neither_an_address_of_the_staff_nor_another_ones_traffic() -> Result<()> {
    if !require("two connections with pools of their own", &NEEDS) {
        return Ok(());
    }
    let (world, other) = world()?;
    // The names sort so that the guests' pool is the first of all.
    let toml = STAFF.gateway("*.test", "10.55.1.0/24", "") + &GUESTS.gateway("*", "10.55.2.0/24", "");
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &toml)?;
    let server = SocketAddr::new(SERVER.parse()?, PORT);
    let echo = EchoServer::start(&world.server, server)?;
    let alice = STAFF.up(&other, "alice.test")?;
    let hers = inner(&alice)?;
    assert!(hers.iter().all(|a| within("10.55.1.", *a)), "an address of the guests' pool: {hers:?}");
    let tcp = LongLived::connect(&other, server)?;
    // A client that knows the guests' secret claims alice's name.
    let mallory = GUESTS.up(&world.device, "alice.test")?;
    let his = inner(&mallory)?;
    assert!(his.iter().all(|a| within("10.55.2.", *a)), "{hers:?} went to {his:?}\n{}", gateway.log());
    tcp.lives(PATIENCE)?;
    assert!(tcp.finish()? > 0);
    assert_eq!(peers(&gateway)?.len(), 2, "the staff's session is not his to replace");
    // She leaves, and he comes back asking for what was hers: it is still hers.
    alice.ok(&["down", "staff"])?;
    mallory.ok(&["down", "guests"])?;
    mallory.ok(&["up", "guests"])?;
    assert!(inner(&mallory)?.iter().all(|a| within("10.55.2.", *a)));
    alice.ok(&["up", "staff"])?;
    assert_eq!(inner(&alice)?, hers);
    drop(echo);
    Ok(())
}

#[test]
fn what_is_kept_for_a_device_reaches_no_other_and_its_lease_waits_for_it() -> Result<()> {
    if !require("packets kept for a device that is away", &NEEDS) {
        return Ok(());
    }
    let (world, other) = world()?;
    // One address for two clients; a device that sleeps is left to its ticket at once.
    let toml = STAFF.gateway("*.test", "10.55.1.0/30", "");
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"\nsleeper_limit = 0", &toml)?;
    let alice = STAFF.up(&world.device, "alice.test")?;
    let address = SocketAddr::new(*inner(&alice)?.first().context("an address")?, PORT);
    let receiver = socket(&world.device, address)?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let sender = socket(&world.server, SocketAddr::new(SERVER.parse()?, 0))?;
    alice.ok(&["suspend"])?;
    until("she is away", || Ok(peers(&gateway)?.is_empty()))?;
    world.detach(Access::A)?;
    sender.send_to(b"SECRET-FOR-ALICE", address)?;
    // Bob comes meanwhile. He may get any address; her packet is not for him.
    let bob = STAFF.client(&other, "bob.test", "")?;
    let answer = bob.cli(&["up", "staff", "--timeout", "5"])?;
    assert_ne!(answer.code, 0, "he was given her lease: {}\n{}", answer.text, gateway.log());
    world.attach(Access::A)?;
    alice.ok(&["resume"])?;
    let mut buf = [0; 64];
    let len = receiver.recv(&mut buf).with_context(|| gateway.log())?;
    assert_eq!(buf.get(..len), Some(&b"SECRET-FOR-ALICE"[..]));
    // Once she has left for good, her lease is the next one's.
    alice.ok(&["down", "staff"])?;
    // Her farewell may still be on its way.
    until("he is given her lease", || {
        bob.ok(&["down", "staff"])?;
        Ok(bob.cli(&["up", "staff", "--timeout", "5"])?.code == 0)
    })?;
    assert_eq!(inner(&bob)?, [address.ip()]);
    Ok(())
}

#[test]
fn peers_have_what_their_entry_says() -> Result<()> {
    if !require("peers with a policy of their own", &NEEDS) {
        return Ok(());
    }
    let (world, other) = world()?;
    let own = "peers_only = true\npeers = [\
               { id = \"boss.test\", addresses = [\"10.55.1.77\"] },\
               { id = \"*.narrow.test\", local = [\"10.99.0.1/32\", \"10.55.0.0/16\"], isolate = true }]";
    let toml = STAFF.gateway("*.test", "10.55.1.0/24", own);
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &toml)?;
    let boss = STAFF.up(&other, "boss.test")?;
    let address = *inner(&boss)?.first().context("an address")?;
    assert_eq!(address.to_string(), "10.55.1.77");
    let mut joe = STAFF.up(&world.device, "joe.narrow.test")?;
    assert_ne!(inner(&joe)?, [address]);
    // What the entry leaves out is not reached, and neither is another client, nor does that one reach him.
    let server = format!("ping -c 3 -i 0.2 -W 1 {SERVER}");
    other.sh(&server)?;
    assert!(world.device.sh(&server).is_err(), "{SERVER} is not in his entry");
    assert!(world.device.sh(&format!("ping -c 3 -i 0.2 -W 1 {address}")).is_err(), "clients are kept apart");
    let his = *inner(&joe)?.first().context("an address")?;
    assert!(other.sh(&format!("ping -c 3 -i 0.2 -W 1 {his}")).is_err(), "in both directions");
    let stats = gateway.ok(&["stats"])?.text;
    assert!(stats.lines().any(|l| l.starts_with("plane.isolated") && !l.ends_with(" 0")), "{stats}");
    // Whom no entry means is refused.
    // Without his ticket, which the next client of this machine would find.
    joe.ok(&["down", "staff"])?;
    joe.process().stop();
    let ann = STAFF.client(&world.device, "ann.test", "")?;
    assert_ne!(ann.cli(&["up", "staff", "--timeout", "5"])?.code, 0);
    assert!(gateway.log().contains("no peers entry"), "{}", gateway.log());
    Ok(())
}

#[test]
fn who_is_denied_loses_the_session_and_the_ticket_until_allowed_again() -> Result<()> {
    if !require("a denial", &NEEDS) {
        return Ok(());
    }
    let (world, other) = world()?;
    let toml = STAFF.gateway("*.test", "10.55.1.0/24", "");
    let mut gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &toml)?;
    let stays = STAFF.up(&other, "stays.test")?;
    let mut goes = STAFF.up(&world.device, "goes.test")?;
    assert_eq!(gateway.ok(&["deny", "--list"])?.text.trim(), "no peer is denied");
    gateway.ok(&["deny", "goes.test"])?;
    goes.process().wait_for("deleted by the peer", PATIENCE)?;
    until("only one is left", || Ok(peers(&gateway)? == ["stays.test"]))?;
    let refused = |goes: &Dormoused, gateway: &Dormoused| -> Result<()> {
        let answer = goes.cli(&["wait", "staff", "--timeout", "8"])?;
        assert_ne!(answer.code, 0, "{}\n{}", answer.text, gateway.log());
        assert!(!peers(gateway)?.contains(&"goes.test".to_owned()));
        assert!(gateway.log().contains("goes.test is denied"), "{}", gateway.log());
        Ok(())
    };
    refused(&goes, &gateway)?;
    // It is denied after a restart of the gateway, too.
    gateway.restart()?;
    let list = gateway.ok(&["deny", "--list", "--json"])?.json;
    assert_eq!(list.pointer("/result/denials/0/whom").and_then(Value::as_str), Some("goes.test"), "{list}");
    refused(&goes, &gateway)?;
    stays.ok(&["wait", "staff", "--timeout", "60"])?;
    gateway.ok(&["allow", "goes.test"])?;
    assert_eq!(gateway.cli(&["allow", "goes.test"])?.code, 3, "it is not denied");
    goes.ok(&["down", "staff"])?;
    goes.ok(&["up", "staff"])?;
    // A ticket of then does not help: this one was kept by a client that did not hear of it.
    goes.process().kill();
    gateway.ok(&["deny", "goes.test"])?;
    goes.restart()?;
    let answer = goes.cli(&["up", "staff", "--timeout", "8"])?;
    assert_ne!(answer.code, 0, "by ticket: {}\n{}", answer.text, gateway.log());
    Ok(())
}

#[test]
fn a_certificate_is_denied_by_its_other_name_or_its_fingerprint_with_its_ticket() -> Result<()> {
    if !require("a denial of a certificate", &NEEDS) {
        return Ok(());
    }
    let (world, other) = world()?;
    let pki = Pki::new(&world.bed.dir().join("pki"), Key::P256)?;
    pki.issue("gateway.test", Key::P256)?;
    pki.issue("stays.test", Key::P256)?;
    pki.issue_for("goes.test", &["alias.test"], None, Key::P256)?;
    let gateway = by_certificate(&pki, "gateway", "gateway.test", "*.test", POOL);
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let client = |host: &Host, name: &str| -> Result<Dormoused> {
        let toml = by_certificate(&pki, "client", name, "gateway.test", NET);
        let client = Dormoused::start(host, "dns = \"off\"", &toml)?;
        client.ok(&["up", "peer"])?;
        Ok(client)
    };
    let _stays = client(&other, "stays.test")?;
    let mut goes = client(&world.device, "goes.test")?;
    let print = ["x509", "-noout", "-fingerprint", "-sha256", "-in"];
    let print = Command::new("openssl").args(print).arg(pki.path("goes.test.pem")).output()?;
    let fingerprint = String::from_utf8(print.stdout)?;
    for whom in ["alias.test", fingerprint.trim()] {
        // The session ends, and a full exchange is refused.
        gateway.ok(&["deny", whom])?;
        goes.process().wait_for("deleted by the peer", PATIENCE)?;
        let answer = goes.cli(&["wait", "peer", "--timeout", "5"])?;
        assert_ne!(answer.code, 0, "{whom}: {}\n{}", answer.text, gateway.log());
        assert_eq!(peers(&gateway)?, ["stays.test"], "{whom}");
        gateway.ok(&["allow", whom])?;
        goes.ok(&["down", "peer"])?;
        goes.ok(&["up", "peer"])?;
    }
    Ok(())
}

#[test]
fn an_authentication_ends_in_time_and_the_gateway_does_not_call() -> Result<()> {
    if !require("authentication lifetime", &NEEDS) {
        return Ok(());
    }
    let (world, other) = world()?;
    let toml = STAFF.gateway("*.test", "10.55.1.0/24", "") + "[connection.staff.ike]\nreauth = 6\n";
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &toml)?;
    let server = SocketAddr::new(SERVER.parse()?, PORT);
    let echo = EchoServer::start(&world.server, server)?;
    let client = STAFF.up(&other, "client.test")?;
    let mut frozen = STAFF.up(&world.device, "frozen.test")?;
    let tcp = LongLived::connect(&other, server)?;
    // One is stopped, and cannot authenticate anew: its session ends, whether it answers or not.
    frozen.process().signal(Signal::SIGSTOP);
    until("the frozen client's session is over", || Ok(!peers(&gateway)?.contains(&"frozen.test".into())))?;
    assert!(gateway.log().contains("lifetime"), "{}", gateway.log());
    // The other one does, beside the session that runs: nothing of its traffic is lost.
    let came = |log: &str| log.matches("a client came").count();
    until("it has authenticated twice more", || Ok(came(&gateway.log()) >= 4))?;
    tcp.lives(PATIENCE)?;
    assert!(tcp.finish()? > 0);
    assert!(!client.log().contains("a rung of the ladder failed"), "{}", client.log());
    assert!(peers(&gateway)?.contains(&"client.test".to_owned()), "{}", gateway.log());
    let stats = gateway.ok(&["stats"])?.text;
    assert!(!stats.contains("ike.begun.init"), "the gateway called a client: {stats}");
    assert!(stats.contains("ike.answered.init"), "{stats}");
    frozen.process().signal(Signal::SIGCONT);
    drop(echo);
    Ok(())
}

#[test]
fn a_denial_says_whom_it_met() -> Result<()> {
    if !require("a denial of a mistyped name", &NEEDS) {
        return Ok(());
    }
    let (world, _other) = world()?;
    let entry = "peers = [{ id = \"named.test\" }]";
    let gateway =
        Dormoused::start(&world.gateway, "dns = \"off\"", &STAFF.gateway("*", "10.55.1.0/24", entry))?;
    let bob = STAFF.up(&world.device, "Bob@mail.test")?;
    let deny = |whom: &str| -> Result<(Option<u64>, Option<bool>)> {
        let json = gateway.ok(&["deny", whom, "--json"])?.json;
        let met = json.pointer("/result/denied").with_context(|| json.to_string())?;
        Ok((met["sessions"].as_u64(), met["known"].as_bool()))
    };
    for mistyped in ["bob@mail.test", "Bob", "CN=Bob", &"ab".repeat(32)] {
        assert_eq!(deny(mistyped)?, (Some(0), Some(false)), "{mistyped}");
        assert!(gateway.ok(&["deny", mistyped])?.text.contains("none who is meant is known here"));
    }
    assert_eq!(peers(&gateway)?, ["Bob@mail.test"], "still in");
    assert_eq!(deny("named.test")?, (Some(0), Some(true)), "the configuration names it");
    assert_eq!(deny("Bob@mail.test")?, (Some(1), Some(true)));
    until("he is out", || Ok(peers(&gateway)?.is_empty()))?;
    assert_eq!(deny("Bob@mail.test")?, (Some(0), Some(true)), "he has a lease");
    drop(bob);
    Ok(())
}
