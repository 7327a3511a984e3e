//! `dormouse rekey CONNECTION --peer IDENTITY` and `down CONNECTION --peer IDENTITY` at a gateway of two clients: one gets new keys, and
//! goes; the other lives on as it was.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Result, bail};
use dormouse_interop::ends::{NET, PATIENCE, POOL, SECRET, another, by_secret, inner, peers, rung};
use dormouse_testbed::{Access, Dormoused, EchoServer, Host, LongLived, Need, Roaming, SERVER, require};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];

fn client(host: &Host, name: &str) -> Result<Dormoused> {
    let toml = by_secret("client", name, "gateway.test", SECRET, NET);
    let daemon = Dormoused::start(host, "dns = \"off\"", &toml)?;
    daemon.ok(&["up", "peer"])?;
    Ok(daemon)
}

/// The SPIs of a client's one CHILD SA, its own first; empty while it has none, or two.
fn child(client: &Dormoused) -> Result<String> {
    let status = client.ok(&["status", "--json"])?.json;
    let children = status.pointer("/result/status/connections/0/children").and_then(Value::as_array);
    let spis: Vec<&str> = children.into_iter().flatten().filter_map(|c| c.get("spi")?.as_str()).collect();
    Ok(if let [one] = spis[..] { one.to_owned() } else { String::new() })
}

/// Waits until it has another CHILD SA than that.
fn until_another(client: &Dormoused, before: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = child(client)?;
        if !now.is_empty() && now != before {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("still '{now}', after '{before}': {}", client.log());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn counter(daemon: &Dormoused, name: &str) -> Result<u64> {
    let stats = daemon.ok(&["stats", "--json"])?.json;
    Ok(stats.pointer("/result/stats/counters").and_then(|c| c.get(name)?.as_u64()).unwrap_or(0))
}

#[test]
fn one_of_two_clients_is_removed_and_the_other_lives_on() -> Result<()> {
    if !require("a peer is removed", &NEEDS) {
        return Ok(());
    }
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let (other, _) = another(&mut world, "other", 2)?;
    let gateway = by_secret("gateway", "gateway.test", "*.test", SECRET, POOL);
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let server = SocketAddr::new(SERVER.parse()?, 7777);
    let echo = EchoServer::start(&world.server, server)?;
    let stays = client(&other, "stays.test")?;
    let mut goes = client(&world.device, "goes.test")?;
    assert_eq!(peers(&gateway)?, ["goes.test", "stays.test"]);
    let tcp = LongLived::connect(&other, server)?;
    let address = inner(&goes)?;
    let its = address.first().map(ToString::to_string).unwrap_or_default();

    // A name that fits no peer, or several, is an error, and nothing happens.
    let refused = |daemon: &Dormoused, args: &[&str], code: i32, words: &[&str]| -> Result<()> {
        let answer = daemon.cli(args)?;
        assert_eq!(answer.code, code, "{args:?}: {}", answer.text);
        words
            .iter()
            .for_each(|w| assert!(answer.text.contains(w), "{args:?}: '{w}' is missing: {}", answer.text));
        Ok(())
    };
    refused(
        &gateway,
        &["down", "peer", "--peer", "nobody.test"],
        3,
        &["nobody.test", "goes.test, stays.test"],
    )?;
    refused(&gateway, &["down", "peer", "--peer", "10.55.0.250"], 3, &["10.55.0.250", "stays.test"])?;
    refused(&gateway, &["down", "elsewhere", "--peer", "goes.test"], 2, &["elsewhere", "peer"])?;
    refused(&gateway, &["down", "peer"], 2, &["gateway connection", "--peer"])?;
    refused(&gateway, &["up", "peer"], 2, &["gateway connection"])?;
    refused(&gateway, &["rekey", "peer"], 2, &["gateway connection", "rekey peer --peer"])?;
    refused(&gateway, &["rekey", "peer", "--peer", "stranger.test"], 3, &["goes.test, stays.test"])?;
    let no_child = ["down", "peer", "--peer", "goes.test", "--child", "00000001"];
    refused(&gateway, &no_child, 3, &["goes.test", "no CHILD SA"])?;
    refused(&goes, &["rekey", "elsewhere"], 2, &["elsewhere", "peer"])?;
    refused(&gateway, &["down", "--peer", "goes.test"], 2, &["CONNECTION"])?;
    refused(
        &goes,
        &["down", "peer", "--peer", "gateway.test"],
        2,
        &["client connection", "dormouse down peer"],
    )?;
    assert_eq!(peers(&gateway)?.len(), 2);

    // New keys for one, of either end's own accord; and one CHILD SA goes, which it asks for again.
    for (daemon, args) in [
        (&goes, &["rekey"][..]),
        (&gateway, &["rekey", "peer", "--peer", "goes.test"]),
        (&gateway, &["rekey", "peer", "--peer", "goes.test", "--child"]),
    ] {
        let before = [child(&goes)?, child(&stays)?];
        daemon.ok(args)?;
        until_another(&goes, &before[0])?;
        assert_eq!(child(&stays)?, before[1]);
    }
    assert_eq!(counter(&goes, "ike.begun.rekey_ike")? + counter(&gateway, "ike.begun.rekey_ike")?, 2);
    let before = child(&goes)?;
    let of_gateway = before.split(' ').nth(1).unwrap_or_default();
    gateway.ok(&["down", "peer", "--peer", "goes.test", "--child", of_gateway])?;
    until_another(&goes, &before)?;
    assert_eq!(peers(&gateway)?.len(), 2);

    // It learns of it, and comes back in full: only its credentials are left to it.
    let answer = gateway.ok(&["down", "peer", "--peer", "goes.test", "--json"])?;
    assert_eq!(answer.json.pointer("/result").and_then(Value::as_str), Some("done"), "{}", answer.text);
    goes.process().wait_for("deleted by the peer", PATIENCE)?;
    goes.ok(&["wait", "peer", "--timeout", "40"])?;
    assert_eq!(rung(&goes)?, "full", "{}", goes.log());
    assert_eq!(inner(&goes)?, address, "its lease was free for it");

    // Removed by its address while it cannot hear: its ticket does not bring it back either.
    goes.process().kill();
    let answer = gateway.ok(&["down", "peer", "--peer", &its])?;
    assert_eq!(answer.text.trim(), "removed");
    world.gateway.eventually(&format!("[ -z \"$(ip route show table all {its})\" ]"), PATIENCE)?;
    goes.restart()?;
    goes.ok(&["up", "peer"])?;
    goes.process().wait_for("refused by the gateway", PATIENCE)?;
    goes.ok(&["wait", "peer", "--timeout", "40"])?;
    assert_eq!(rung(&goes)?, "full", "{}\n{}", goes.log(), gateway.log());
    assert!(gateway.log().contains("the session has ended"), "{}", gateway.log());

    tcp.lives(PATIENCE)?;
    assert!(tcp.finish()? > 0);
    let stayed = !stays.log().contains("deleted by the peer");
    assert!(stayed, "{}", stays.log());
    drop(echo);
    Ok(())
}
