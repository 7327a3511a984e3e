//! Several identities in one daemon: each is an address of the machine, has peers of its own, and is what they know of it.

use super::*;

/// The address from which a host would send to another.
fn source(host: &Host, to: &str) -> Result<String> {
    let route = host.sh(&format!("ip -6 route get {to}"))?;
    let mut words = route.split_whitespace().skip_while(|word| *word != "src");
    Ok(words.nth(1).context("a route without a source")?.to_owned())
}

/// The pairs of HITs, its own first, between which a daemon has associations.
fn associations(daemon: &Dormoused) -> Result<BTreeSet<(String, String)>> {
    let peers = of(daemon, "hip/peers")?;
    let field =
        |peer: &Value, key: &str| peer.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let up = peers.as_array().context("no peers")?.iter().filter(|peer| field(peer, "state") == "up");
    Ok(up.map(|peer| (field(peer, "identity"), field(peer, "hit"))).collect())
}

#[test]
fn each_identity_speaks_for_itself() -> Result<()> {
    if !require("several identities of HIP", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let (device, server) = (&world.device, &world.gateway);
    let [main, other] = [keygen(device, "ecdsa-p256")?, keygen_to(device, "other.key", "ecdsa-p384")?];
    let [office, shop] = [keygen(server, "ecdsa-p256")?, keygen_to(server, "shop.key", "ecdsa-p256")?];
    let more = |host: &Host, name: &str| {
        let key = host.dir().join(format!("{name}.key"));
        format!("identities = [{{ name = \"{name}\", key = {key:?} }}]")
    };
    let peers: [Listed<'_>; 2] = [(&main, "device", &[]), (&other, "guest", &[])];
    let of_server = end(server, &more(server, "shop"), &peers);
    let peers: [Listed<'_>; 2] = [(&office, "office", &[GATEWAY]), (&shop, "shop", &[GATEWAY])];
    let of_device = end(device, &more(device, "other"), &peers);
    let chosen = format!("{of_device}identity = \"other\"\n");
    let (server_daemon, device_daemon) = (start(server, &of_server)?, start(device, &chosen)?);
    let logs = || format!("{}\n{}", server_daemon.log(), device_daemon.log());
    for (daemon, ours, name) in
        [(&device_daemon, [&main, &other], "other"), (&server_daemon, [&office, &shop], "shop")]
    {
        let identities = of(daemon, "hip/identities")?;
        let hit = |at: usize| identities.pointer(&format!("/{at}/hit")).and_then(Value::as_str);
        assert_eq!([hit(0), hit(1)], ours.map(|hit| Some(hit.as_str())), "{identities}");
        assert_eq!(identities.pointer("/1/name").and_then(Value::as_str), Some(name), "{identities}");
    }
    // The kernel knows by which address it sends to whom.
    assert_eq!([source(device, &office)?, source(device, &shop)?], [main.clone(), other.clone()]);
    let ping = |from: &Host, options: &str, to: &str| {
        from.sh(&format!("ping -c 2 -i 0.2 -W 5 {options} {to}")).with_context(logs)
    };
    let pair = |ours: &String, peer: &String| (ours.clone(), peer.clone());
    ping(device, "", &shop)?;
    assert_eq!(associations(&device_daemon)?, BTreeSet::from([pair(&other, &shop)]), "{}", logs());
    assert_eq!(
        associations(&server_daemon)?,
        BTreeSet::from([pair(&shop, &other)]),
        "the other was not shown"
    );
    ping(device, "", &office)?;
    // A program that binds to an identity uses that, with any peer.
    ping(device, &format!("-I {other}"), &office)?;
    let all = [pair(&main, &office), pair(&other, &office), pair(&other, &shop)];
    assert_eq!(associations(&device_daemon)?, BTreeSet::from(all), "{}", logs());
    // The server answers, and calls, by the identity that is meant there.
    ping(server, &format!("-I {shop}"), &other)?;
    let text = device_daemon.ok(&["hip", "status"])?.text;
    assert!(text.contains("shop (as other)") && text.contains(&format!("{other}  other")), "{text}");
    let text = device_daemon.ok(&["hip", "peers"])?.text;
    assert!(text.contains("shop (as other)"), "{text}");
    let hosts = device_daemon.ok(&["hip", "peers", "--hosts"])?.text;
    assert_eq!(hosts.matches("office").count(), 1, "{hosts}");

    // Another choice counts at once, for what begins.
    device_daemon.ok(&["hip", "down", "shop"])?;
    rewrite(device, &of_device)?;
    device_daemon.ok(&["reload"])?;
    assert_eq!(source(device, &shop)?, main);
    device_daemon.ok(&["hip", "up", "shop"])?;
    assert!(associations(&device_daemon)?.contains(&pair(&main, &shop)), "{}", logs());
    ping(device, "", &shop)?;
    Ok(())
}
