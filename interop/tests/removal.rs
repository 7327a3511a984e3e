//! `dormouse down CONNECTION --peer IDENTITY` at a gateway of two clients: one goes, the other lives on.

use anyhow::Result;
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::{
    Access, Dormoused, EchoServer, GATEWAY, Host, LongLived, Need, Roaming, SERVER, require,
};
use serde_json::Value;
use std::net::SocketAddr;

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];

fn end(role: &str, own: &str, peer: &str, child: &str) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    let secret = "secret = \"a shared secret of the test\"";
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\n{secret}\n\
         [connection.peer.remote]\nid = \"{peer}\"\n{secret}\n[connection.peer.child]\n{child}\n"
    )
}

fn client(host: &Host, name: &str) -> Result<Dormoused> {
    let toml = end("client", name, "gateway.test", "remote = [\"10.99.0.0/24\"]");
    let daemon = Dormoused::start(host, "dns = \"off\"", &toml)?;
    daemon.ok(&["up", "peer"])?;
    Ok(daemon)
}

/// The peers that a gateway has sessions with.
fn peers(gateway: &Dormoused) -> Result<Vec<String>> {
    let status = gateway.ok(&["status", "--json"])?.json;
    let sessions = status.pointer("/result/status/gateway/sessions").and_then(Value::as_array);
    let mut names: Vec<String> = sessions
        .into_iter()
        .flatten()
        .filter_map(|s| s.get("peer").and_then(Value::as_str).map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

/// The first inner address of a client.
fn inner(client: &Dormoused) -> Result<String> {
    let status = client.ok(&["status", "--json"])?.json;
    let address = status.pointer("/result/status/connections/0/addresses/0").and_then(Value::as_str);
    Ok(address.and_then(|a| a.split('/').next()).unwrap_or_default().to_owned())
}

#[test]
fn one_of_two_clients_is_removed_and_the_other_lives_on() -> Result<()> {
    if !require("a peer is removed", &NEEDS) {
        return Ok(());
    }
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let other = world.bed.host("other")?;
    world.bed.link((&other, "eth0", &["198.51.100.10/30"]), (&world.core, "to-o", &["198.51.100.9/30"]))?;
    other.ip("route add default via 198.51.100.9")?;
    let pool = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]";
    let gateway =
        Dormoused::start(&world.gateway, "dns = \"off\"", &end("gateway", "gateway.test", "*.test", pool))?;
    let server = SocketAddr::new(SERVER.parse()?, 7777);
    let echo = EchoServer::start(&world.server, server)?;
    let stays = client(&other, "stays.test")?;
    let mut goes = client(&world.device, "goes.test")?;
    assert_eq!(peers(&gateway)?, ["goes.test", "stays.test"]);
    let tcp = LongLived::connect(&other, server)?;
    let address = inner(&goes)?;

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
    refused(&gateway, &["down", "--peer", "goes.test"], 2, &["CONNECTION"])?;
    refused(
        &goes,
        &["down", "peer", "--peer", "gateway.test"],
        2,
        &["client connection", "dormouse down peer"],
    )?;
    assert_eq!(peers(&gateway)?.len(), 2);

    // It learns of it, and comes back in full: only its credentials are left to it.
    let answer = gateway.ok(&["down", "peer", "--peer", "goes.test", "--json"])?;
    assert_eq!(answer.json.pointer("/result").and_then(Value::as_str), Some("done"), "{}", answer.text);
    goes.process().wait_for("deleted by the peer", PATIENCE)?;
    goes.ok(&["wait", "peer", "--timeout", "40"])?;
    let status = goes.ok(&["status", "--json"])?.json;
    let rung = status.pointer("/result/status/connections/0/last_wake/rung").and_then(Value::as_str);
    assert_eq!(rung, Some("full"), "{status:#}");
    assert_eq!(inner(&goes)?, address, "its lease was free for it");

    // Removed by its address while it cannot hear: its ticket does not bring it back either.
    goes.process().kill();
    let answer = gateway.ok(&["down", "peer", "--peer", &address])?;
    assert_eq!(answer.text.trim(), "removed");
    world.gateway.eventually(&format!("[ -z \"$(ip route show table all {address})\" ]"), PATIENCE)?;
    goes.restart()?;
    goes.ok(&["up", "peer"])?;
    goes.process().wait_for("refused by the gateway", PATIENCE)?;
    goes.ok(&["wait", "peer", "--timeout", "40"])?;
    let status = goes.ok(&["status", "--json"])?.json;
    let rung = status.pointer("/result/status/connections/0/last_wake/rung").and_then(Value::as_str);
    assert_eq!(rung, Some("full"), "{status:#}\n{}", gateway.log());
    assert!(gateway.log().contains("the session has ended"), "{}", gateway.log());

    tcp.lives(PATIENCE)?;
    assert!(tcp.finish()? > 0);
    let stayed = !stays.log().contains("deleted by the peer");
    assert!(stayed, "{}", stays.log());
    drop(echo);
    Ok(())
}
