//! SIGHUP and `dormouse reload`: certificates that were replaced on disk, and connections, peers and secrets that come, change and go, come
//! into force while sessions run; under the rights of the shipped unit, with secrets that are root's.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_interop::ends::{PATIENCE, another, inner, rewrite};
use dormouse_interop::shipped::{confined, reload_command};
use dormouse_testbed::{
    Access, Dormoused, EchoServer, Extra, GATEWAY, Host, Key, LongLived, Need, Pki, Roaming, SERVER, require,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("openssl")];

/// The configuration of an end whose certificate, key and trusted authority are files in `dir` that change.
fn end(dir: &Path, role: &str, own: &str, peer: &str, child: &str) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    let file = |name: &str| dir.join(format!("{own}-{name}.pem"));
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\ncertificate = {:?}\nkey = {:?}\n\
         [connection.peer.remote]\nid = \"{peer}\"\nca = [{:?}]\n[connection.peer.child]\n{child}\n",
        file("certificate"),
        file("key"),
        file("ca")
    )
}

/// Puts the certificate of `own` from one authority in its place.
fn certify(pki: &Pki, dir: &Path, own: &str) -> Result<()> {
    for (from, to) in [("pem", "certificate"), ("key", "key")] {
        fs::copy(pki.path(&format!("{own}.{from}")), dir.join(format!("{own}-{to}.pem")))?;
    }
    Ok(())
}

/// `own` trusts these authorities and no other.
fn trust(pkis: &[&Pki], dir: &Path, own: &str) -> Result<()> {
    let read = |pki: &&Pki| fs::read_to_string(pki.path("ca.pem"));
    fs::write(dir.join(format!("{own}-ca.pem")), pkis.iter().map(read).collect::<Result<String, _>>()?)?;
    Ok(())
}

fn reload(daemon: &mut Dormoused) -> Result<()> {
    let done =
        |daemon: &Dormoused| daemon.log().matches("the configuration was read again and is in force").count();
    let before = done(daemon);
    daemon.process().signal(Signal::SIGHUP);
    until("a reload", || Ok(done(daemon) > before)).with_context(|| daemon.log())
}

/// What names the device's IKE SA; `None` while there is none.
fn sa(device: &Dormoused) -> Result<Option<String>> {
    let status = device.ok(&["status", "--json"])?.json;
    let spi = status.pointer("/result/status/connections/0/ike/spi").and_then(|spi| spi.as_str());
    Ok(spi.map(str::to_owned))
}

#[test]
fn a_renewed_certificate_is_used_after_sighup_by_the_client_at_once_and_by_the_gateway_for_the_next_session()
-> Result<()> {
    if !require("certificates renewed", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let dir = world.bed.dir().join("credentials");
    let authority = |name: &str| -> Result<Pki> {
        let pki = Pki::new(&dir.join(name), Key::P256)?;
        pki.issue("gateway.test", Key::P256)?;
        pki.issue("device.test", Key::P256)?;
        Ok(pki)
    };
    let (old, new) = (authority("old")?, authority("new")?);
    for own in ["gateway.test", "device.test"] {
        certify(&old, &dir, own)?;
        trust(&[&old], &dir, own)?;
    }
    let local = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]";
    let gateway = end(&dir, "gateway", "gateway.test", "*.test", local);
    let device = end(&dir, "client", "device.test", "gateway.test", "remote = [\"10.99.0.0/24\"]");
    let mut gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let mut device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
    let server = SocketAddr::new(SERVER.parse()?, 7777);
    let echo = EchoServer::start(&world.server, server)?;
    device.ok(&["up", "peer"])?;
    let first = sa(&device)?.context("it is up")?;
    let tcp = LongLived::connect(&world.device, server)?;

    // The gateway believes the new authority too. The session that runs is none the worse for it.
    trust(&[&old, &new], &dir, "gateway.test")?;
    reload(&mut gateway)?;
    tcp.lives(PATIENCE)?;
    assert_eq!(sa(&device)?.as_deref(), Some(first.as_str()));

    // The device's new certificate takes effect at once, or it would be refused here.
    certify(&new, &dir, "device.test")?;
    reload(&mut device)?;
    let end = Instant::now() + PATIENCE;
    while sa(&device)?.is_none_or(|spi| spi == first) {
        if Instant::now() > end {
            bail!("the device did not authenticate anew:\n{}\n{}", device.log(), gateway.log());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    tcp.lives(PATIENCE)?;

    // The session rests on the new authority now, and does without the old one.
    let second = sa(&device)?;
    trust(&[&new], &dir, "gateway.test")?;
    reload(&mut gateway)?;
    tcp.lives(PATIENCE)?;
    assert_eq!(sa(&device)?, second);
    assert!(tcp.finish()? > 0);

    // One that rests on an authority that is trusted no longer ends.
    trust(&[&old], &dir, "gateway.test")?;
    reload(&mut gateway)?;
    gateway.process().wait_for("a client went", PATIENCE)?;
    trust(&[&new], &dir, "gateway.test")?;
    reload(&mut gateway)?;

    // The gateway's own is for who comes next. A device that believes the new authority besides the old one goes on as it is; one that
    // believes nothing else does not go on with a gateway that it believed by the old one, and gets in anew.
    // It may have been refused meanwhile, and would try again in half a minute.
    device.ok(&["down", "peer"])?;
    device.ok(&["up", "peer"]).map_err(|e| e.context(gateway.log()))?;
    certify(&new, &dir, "gateway.test")?;
    reload(&mut gateway)?;
    let third = sa(&device)?.context("it is up")?;
    trust(&[&old, &new], &dir, "device.test")?;
    reload(&mut device)?;
    assert_eq!(sa(&device)?.as_ref(), Some(&third));
    trust(&[&new], &dir, "device.test")?;
    reload(&mut device)?;
    assert_ne!(sa(&device)?.as_ref(), Some(&third), "{}", device.log());
    device.ok(&["wait", "peer", "--timeout", "30"]).map_err(|e| e.context(gateway.log()))?;
    assert_ne!(sa(&device)?.context("it is up")?, third);
    drop(echo);
    Ok(())
}

const SHIPPED: [Need; 5] = [
    Need::Root,
    Need::File("/dev/net/tun"),
    Need::Program("setpriv"),
    Need::Program("unshare"),
    Need::Program("mount"),
];

/// A gateway as it ships, whose secrets are root's, with a network behind it, and a second place for a client besides the device's.
struct Shipped {
    gateway: Dormoused,
    _disk: Option<Disk>,
    world: Roaming,
    other: Host,
    toml: String,
}

/// A small disk of its own for a directory.
struct Disk(PathBuf);

impl Disk {
    fn mount(dir: &Path, option: &str) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", option, "tmpfs"]).arg(dir).status()?;
        anyhow::ensure!(done.success(), "mount -o {option}");
        Ok(Self(dir.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// One connection of the gateway, for one client with a secret of its own.
fn connection(dir: &Path, name: &str, pool: &str, more: &str) -> String {
    format!(
        "[connection.{name}]\nrole = \"gateway\"\n{more}\n[connection.{name}.local]\nid = \"gateway.test\"\nsecret_file = {:?}\n\
         [connection.{name}.remote]\nid = \"{name}.test\"\n[connection.{name}.child]\nlocal = [\"10.99.0.0/24\"]\n\
         [connection.{name}.pool]\naddresses = [\"{pool}\"]\n",
        dir.join(format!("{name}.psk"))
    )
}

/// The same at the client.
fn client_of(dir: &Path, name: &str, reaches: &str) -> String {
    format!(
        "[connection.{name}]\nrole = \"client\"\nauto = true\ngateway = \"{GATEWAY}\"\n[connection.{name}.local]\nid = \"{name}.test\"\n\
         secret_file = {:?}\n[connection.{name}.remote]\nid = \"gateway.test\"\n[connection.{name}.child]\nremote = [\"{reaches}\"]\n",
        dir.join(format!("{name}.psk"))
    )
}

fn secret(host: &Host, name: &str, text: &str) -> Result<()> {
    let path = host.dir().join(format!("{name}.psk"));
    fs::write(&path, text)?;
    Ok(fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?)
}

impl Shipped {
    fn start(daemon: &str) -> Result<Self> {
        Self::start_on(daemon, None)
    }

    /// With connections for alice and for bob. `disk`: what the state directory is on, as an option of tmpfs.
    fn start_on(daemon: &str, disk: Option<&str>) -> Result<Self> {
        let mut world = Roaming::new(60)?;
        world.attach(Access::A)?;
        let (other, _) = another(&mut world, "other", 2)?;
        for (name, host) in [("alice", &world.device), ("bob", &other)] {
            for end in [host, &world.gateway] {
                secret(end, name, &format!("the secret that only {name} knows"))?;
            }
        }
        let dir = world.gateway.dir();
        let disk = disk.map(|option| Disk::mount(&dir.join("state"), option)).transpose()?;
        let toml = connection(dir, "alice", "10.55.1.0/24", "") + &connection(dir, "bob", "10.55.2.0/24", "");
        let extra = Extra { user: "nobody".to_owned(), confined_by: confined(dir)?, ..Extra::default() };
        let gateway = Dormoused::start_with(&world.gateway, extra, daemon, &toml)?;
        Ok(Self { gateway, _disk: disk, world, other, toml })
    }

    fn client(&self, host: &Host, name: &str) -> Result<Dormoused> {
        let toml = format!("[sleep]\nradio = \"none\"\n{}", client_of(host.dir(), name, "10.99.0.0/24"));
        let client = Dormoused::start(host, "dns = \"off\"", &toml)?;
        client.ok(&["up", name])?;
        Ok(client)
    }

    /// Another configuration of the gateway comes into force, as by `systemctl reload`: by what the unit runs, with the unit's rights.
    fn reload(&mut self, toml: &str) -> Result<String> {
        rewrite(&self.world.gateway, toml)?;
        let dir = self.world.gateway.dir();
        let by = confined(dir)?;
        let command = reload_command()?;
        let (program, arguments) = command.split_first().context("a program")?;
        let mut reload = self.world.gateway.command(by.first().context("a program")?);
        reload.args(by.iter().skip(1)).arg(dormouse_testbed::binary(program));
        reload.arg("--socket").arg(dir.join("dormouse.sock")).args(arguments);
        let out = reload.output()?;
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        if !out.status.success() {
            bail!("{said}");
        }
        self.toml = toml.to_owned();
        Ok(said)
    }

    fn sessions(&self) -> Result<Vec<String>> {
        let status = self.gateway.ok(&["status", "--json"])?.json;
        let all = status.pointer("/result/status/gateway/sessions").and_then(Value::as_array);
        let peer = |s: &Value| s.get("peer").and_then(Value::as_str).map(str::to_owned);
        let mut peers: Vec<String> = all.into_iter().flatten().filter_map(peer).collect();
        peers.sort_unstable();
        Ok(peers)
    }

    fn has(&self, peers: &[&str]) -> Result<()> {
        until(&format!("sessions of {peers:?}"), || Ok(self.sessions()? == peers))
            .with_context(|| format!("{:?}\n{}", self.sessions(), self.gateway.log()))
    }
}

fn until(what: &str, so: impl Fn() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !so()? {
        if Instant::now() > end {
            bail!("not in time: {what}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The processes that `pid` has started, with what the kernel says of each: command line and status.
fn children(pid: u32) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // Processes end while we look.
        let Ok(status) = fs::read_to_string(path.join("status")) else { continue };
        if status.lines().any(|l| l.split_whitespace().collect::<Vec<_>>() == ["PPid:", &pid.to_string()]) {
            let command = fs::read(path.join("cmdline")).unwrap_or_default();
            found.push((String::from_utf8_lossy(&command).replace('\0', " "), status));
        }
    }
    Ok(found)
}

fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    status
        .lines()
        .find_map(|l| l.strip_prefix(name))
        .map(|l| l.split_whitespace().collect())
        .unwrap_or_default()
}

#[test]
fn as_it_ships_a_gateway_takes_up_what_changes_and_touches_no_other_session() -> Result<()> {
    if !require("a gateway's reload under the unit's rights", &SHIPPED) {
        return Ok(());
    }
    let mut it = Shipped::start("dns = \"off\"")?;
    let (device, other, dir) = (it.world.device.clone(), it.other.clone(), it.world.gateway.dir().to_owned());
    let server = SocketAddr::new(SERVER.parse()?, 7777);
    let echo = EchoServer::start(&it.world.server, server)?;
    let alice = it.client(&device, "alice")?;
    let bob = it.client(&other, "bob")?;
    let (session, address) = (sa(&alice)?, inner(&alice)?);
    let tcp = LongLived::connect(&device, server)?;
    let untouched = || -> Result<()> {
        tcp.lives(PATIENCE)?;
        assert_eq!((sa(&alice)?, inner(&alice)?), (session.clone(), address.clone()));
        Ok(())
    };

    // Nobody but the helper may read what is root's, and it may do nothing else.
    let pid = it.gateway.process().pid();
    let own = fs::read_to_string(format!("/proc/{pid}/status"))?;
    assert_eq!(field(&own, "CapPrm:"), ["0000000000001000"], "CAP_NET_ADMIN");
    let reader = children(pid)?.into_iter().find(|(line, _)| line.contains("configuration-reader"));
    let (_, reader) = reader.context("no process that reads")?;
    assert_eq!(field(&reader, "CapPrm:"), ["0000000000000004"], "CAP_DAC_READ_SEARCH");
    for (what, value) in
        [("CapEff:", "0000000000000000"), ("CapBnd:", "0000000000000000"), ("NoNewPrivs:", "1")]
    {
        assert_eq!(field(&reader, what), [value], "{what}");
    }
    assert_eq!(field(&reader, "Uid:"), field(&own, "Uid:"));
    assert!(!field(&reader, "Uid:").contains(&"0"));

    // Nothing has changed, and nothing happens.
    let toml = it.toml.clone();
    let (bobs, first) = (sa(&bob)?, toml.clone());
    assert_eq!(it.reload(&toml)?.trim(), "in force");
    untouched()?;
    assert_eq!(sa(&bob)?, bobs);

    // A new connection, at the gateway and at a client that has one already.
    secret(&it.world.gateway, "carol", "carol's secret, and nobody else's")?;
    secret(&other, "carol", "carol's secret, and nobody else's")?;
    it.reload(&(first.clone() + &connection(&dir, "carol", "10.55.3.0/24", "")))?;
    rewrite(
        &other,
        &(client_of(other.dir(), "bob", "10.99.0.0/24") + &client_of(other.dir(), "carol", "10.99.0.0/25")),
    )?;
    bob.ok(&["reload"])?;
    it.has(&["alice.test", "bob.test", "carol.test"])?;
    assert_eq!(sa(&bob)?, bobs, "his session goes on");
    untouched()?;

    // Carol's connection goes again, at the gateway first.
    it.reload(&first)?;
    it.has(&["alice.test", "bob.test"])?;
    rewrite(&other, &client_of(other.dir(), "bob", "10.99.0.0/24"))?;
    bob.ok(&["reload"])?;
    assert_eq!(sa(&bob)?, bobs);
    let names = bob.ok(&["status", "--json"])?.json;
    assert_eq!(names.pointer("/result/status/connections").and_then(Value::as_array).map(Vec::len), Some(1));

    // An entry of his own gives bob another address: he is back with it.
    let with = |more: &str| {
        connection(&dir, "alice", "10.55.1.0/24", "") + &connection(&dir, "bob", "10.55.2.0/24", more)
    };
    it.reload(&with("peers = [{ id = \"bob.test\", addresses = [\"10.55.2.77\"] }]"))?;
    until("bob has the address of his entry", || {
        Ok(inner(&bob).is_ok_and(|all| all == [IpAddr::from([10, 55, 2, 77])]))
    })?;
    assert!(
        it.gateway.log().contains("the configuration gives its peer something else now"),
        "{}",
        it.gateway.log()
    );
    untouched()?;

    // His entry goes, and only those with one are taken.
    let only_carol = "peers_only = true\npeers = [{ id = \"carol.test\" }]";
    assert!(it.reload(&with(only_carol)).is_err(), "carol.test is not within bob's remote.id");
    it.reload(&with("peers_only = true\npeers = [{ id = \"bob.test\" }]"))?;
    it.has(&["alice.test", "bob.test"])?;
    let wide = |more: &str| with(more).replace("id = \"bob.test\"\n", "id = \"*.test\"\n");
    it.reload(&wide(only_carol))?;
    it.has(&["alice.test"])?;
    assert!(
        it.gateway.log().contains("no peers entry of the connection bob means bob.test"),
        "{}",
        it.gateway.log()
    );
    untouched()?;
    it.reload(&first)?;
    it.has(&["alice.test", "bob.test"])?;

    // Another secret, which is root's as well: bob is out until he has it too.
    secret(&it.world.gateway, "bob", "the new secret, which bob gets later")?;
    it.reload(&first)?;
    it.has(&["alice.test"])?;
    untouched()?;
    secret(&other, "bob", "the new secret, which bob gets later")?;
    bob.ok(&["reload"])?;
    bob.ok(&["up", "bob"]).map_err(|e| e.context(it.gateway.log()))?;
    it.has(&["alice.test", "bob.test"])?;

    // What only a start can change is named, and the rest is in force.
    let path = dir.join("dormouse.toml");
    fs::write(
        &path,
        fs::read_to_string(&path)?.replace("dns = \"off\"", "dns = \"off\"\nmtu = 1300\nsession_limit = 9"),
    )?;
    let said = it.reload(&first.replace("10.55.2.0/24", "10.55.4.0/24"))?;
    assert!(said.contains("needs a restart: daemon.mtu, daemon.session_limit"), "{said}");
    until("bob has an address of the other pool", || {
        Ok(inner(&bob).is_ok_and(|all| all.iter().all(|a| a.to_string().starts_with("10.55.4."))))
    })?;
    untouched()?;
    assert!(tcp.finish()? > 0);

    // Alice's own secret is another one now, in the same file: she does not go on with what rests on the old one.
    secret(&device, "alice", "another secret, which the gateway does not know")?;
    alice.ok(&["reload"])?;
    it.has(&["bob.test"])?;
    drop(echo);
    Ok(())
}

#[test]
fn a_device_that_sleeps_through_a_reload_has_its_session_and_its_packets() -> Result<()> {
    if !require("a reload while a device sleeps", &SHIPPED) {
        return Ok(());
    }
    let mut it = Shipped::start("dns = \"off\"")?;
    let (device, other) = (it.world.device.clone(), it.other.clone());
    let alice = it.client(&device, "alice")?;
    let _bob = it.client(&other, "bob")?;
    let (session, address) = (sa(&alice)?, *inner(&alice)?.first().context("an address")?);
    let socket = |host: &Host, address: IpAddr, port: u16| -> Result<UdpSocket> {
        let bound = host.within(move || UdpSocket::bind((address, port)))?.join();
        Ok(bound.map_err(|_| anyhow::anyhow!("the thread panicked"))???)
    };
    let receiver = socket(&device, address, 7_777)?;
    let sender = socket(&it.world.server, SERVER.parse()?, 0)?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    alice.ok(&["suspend"])?;
    it.world.detach(Access::A)?;
    sender.send_to(b"kept", (address, 7_777))?;
    let toml = it.toml.replace("10.55.2.0/24", "10.55.4.0/24");
    it.reload(&toml)?;
    until("bob is back with another address", || {
        let status = it.gateway.ok(&["status"])?.text;
        Ok(status.contains("10.55.4."))
    })?;
    it.world.attach(Access::A)?;
    alice.ok(&["resume"])?;
    alice.ok(&["wait", "alice", "--timeout", "30"])?;
    let mut buffer = [0; 64];
    let len = receiver.recv(&mut buffer).with_context(|| it.gateway.log())?;
    assert_eq!(buffer.get(..len), Some(&b"kept"[..]));
    assert_eq!(sa(&alice)?, session, "the session that she had");
    Ok(())
}

#[test]
fn a_reload_that_cannot_be_changes_nothing_and_names_the_line() -> Result<()> {
    if !require("reloads that are refused", &SHIPPED) {
        return Ok(());
    }
    let mut it = Shipped::start_on("dns = \"off\"", Some("size=2m,mode=700"))?;
    let (device, other, dir) = (it.world.device.clone(), it.other.clone(), it.world.gateway.dir().to_owned());
    let alice = it.client(&device, "alice")?;
    let bob = it.client(&other, "bob")?;
    let before = (sa(&alice)?, sa(&bob)?);
    let toml = it.toml.clone();
    let carol = connection(&dir, "carol", "10.55.3.0/24", "");
    fs::write(dir.join("open.psk"), "everybody may read this secret")?;
    fs::set_permissions(dir.join("open.psk"), PermissionsExt::from_mode(0o644))?;
    let cut = |end: usize| toml.get(..toml.len() - end).unwrap_or_default().to_owned();
    // Each would also take bob's connection away.
    let without_bob = |more: &str| connection(&dir, "alice", "10.55.1.0/24", "") + more;
    let own = fs::read_to_string(dir.join("dormouse.toml"))?;
    let own = own.split("[connection.").next().unwrap_or_default().to_owned();
    let line =
        (own + &without_bob(&carol)).lines().position(|l| l.contains("carol.psk")).context("a line")? + 1;
    for (what, text, said) in [
        ("a syntax error", without_bob("[connection.bob\n"), "line "),
        ("an unknown key", without_bob("[connection.bob]\nrolle = 1\n"), "rolle"),
        (
            "a missing secret",
            without_bob(&carol),
            &format!("line {line}: connection.carol.local.secret_file"),
        ),
        ("a secret that is open", without_bob(&carol.replace("carol.psk", "open.psk")), "chmod 600"),
        ("what a full disk leaves", cut(40), "line"),
        ("nothing at all", String::new(), "no connection is configured"),
    ] {
        let error = format!("{:?}", it.reload(&text).expect_err(what));
        assert!(
            error.contains("the configuration stays as it was") && error.contains(said),
            "{what}: {error}"
        );
        assert_eq!((sa(&alice)?, sa(&bob)?), before, "{what}");
        assert!(it.gateway.log().contains("the configuration stays as it was"), "{what}");
    }
    // The old one is still in force, for those who come now too.
    bob.ok(&["down", "bob"])?;
    bob.ok(&["up", "bob"]).map_err(|e| e.context(it.gateway.log()))?;
    assert_eq!(sa(&alice)?, before.0);

    // It needs no disk: with one that is full it is in force as a whole.
    let filler = fs::write(dir.join("state/filler"), vec![0; 8 << 20]).expect_err("2 MiB");
    assert_eq!(filler.raw_os_error(), Some(nix::errno::Errno::ENOSPC as i32));
    it.reload(&toml.replace("10.55.2.0/24", "10.55.4.0/24"))?;
    let moved = || Ok(inner(&bob).is_ok_and(|all| all.iter().all(|a| a.to_string().starts_with("10.55.4."))));
    until("bob has an address of the other pool", moved)?;
    assert_eq!(sa(&alice)?, before.0);
    // A denial that cannot be written is in force, and listed.
    let denied = it.gateway.cli(&["deny", "dave.test"])?;
    assert_eq!(denied.code, 1, "{}", denied.text);
    let listed =
        || -> Result<usize> { Ok(it.gateway.ok(&["deny", "--list"])?.text.matches("dave.test").count()) };
    assert_eq!(listed()?, 1);
    fs::remove_file(dir.join("state/filler"))?;
    it.gateway.ok(&["deny", "dave.test"])?;
    assert_eq!(listed()?, 1, "written now, and not twice");
    it.gateway.ok(&["allow", "dave.test"])?;
    assert_eq!(listed()?, 0);

    // Without the helper it is refused, and that is all.
    let pid = it.gateway.process().pid();
    let reader = children(pid)?.into_iter().find(|(line, _)| line.contains("configuration-reader"));
    let (_, reader) = reader.context("no process that reads")?;
    let reader: i32 = field(&reader, "Pid:").first().context("a process id")?.parse()?;
    kill(Pid::from_raw(reader), Signal::SIGKILL)?;
    it.gateway.process().wait_for("a reload needs a restart from now on", PATIENCE)?;
    let error = it.reload(&toml).expect_err("nobody reads it").to_string();
    assert!(error.contains("restart the daemon"), "{error}");
    assert_eq!(sa(&alice)?, before.0);
    Ok(())
}

#[test]
fn keys_of_the_daemons_user_are_read_and_its_configuration_names_no_file_of_roots() -> Result<()> {
    if !require("a configuration of the daemon's user", &SHIPPED) {
        return Ok(());
    }
    let mut it = Shipped::start("dns = \"off\"")?;
    let dir = it.world.gateway.dir().to_owned();
    let all =
        ["dormouse.toml", "alice.psk", "bob.psk"].map(|name| dir.join(name).display().to_string()).join(" ");
    it.world.gateway.sh(&format!("chown nobody {all}"))?;
    // Root without CAP_DAC_OVERRIDE, as the unit starts it, reads them, and so does the helper.
    it.gateway.process().stop();
    // As systemd does with the state directory before it starts the daemon.
    it.world.gateway.sh(&format!("chown -R root:root {}", dir.join("state").display()))?;
    it.gateway.restart().context("the start")?;
    let toml = it.toml.clone();
    it.reload(&toml)?;
    // Who can write the configuration does not get root's files by naming them.
    fs::write(dir.join("root.psk"), "a secret of root's own")?;
    fs::set_permissions(dir.join("root.psk"), PermissionsExt::from_mode(0o600))?;
    let error = it.reload(&toml.replace("bob.psk", "root.psk")).expect_err("root's file").to_string();
    assert!(error.contains("root.psk") && error.contains("the daemon's user"), "{error}");
    // Root's configuration does.
    it.world.gateway.sh(&format!("chown root {}", dir.join("dormouse.toml").display()))?;
    it.reload(&toml.replace("bob.psk", "root.psk"))?;
    Ok(())
}
