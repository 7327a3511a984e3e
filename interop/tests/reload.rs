//! SIGHUP: certificates that were replaced on disk come into force while a session runs.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::{
    Access, Dormoused, EchoServer, GATEWAY, Key, LongLived, Need, Pki, Roaming, SERVER, require,
};
use nix::sys::signal::Signal;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
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
    daemon.process().signal(Signal::SIGHUP);
    daemon.process().wait_for("the configuration was read again and is in force", PATIENCE)
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

    // The gateway's own is for who comes next: a device that believes nothing else gets in.
    certify(&new, &dir, "gateway.test")?;
    reload(&mut gateway)?;
    trust(&[&new], &dir, "device.test")?;
    reload(&mut device)?;
    device.ok(&["down", "peer"])?;
    device.ok(&["up", "peer"]).map_err(|e| e.context(gateway.log()))?;
    drop(echo);
    Ok(())
}
