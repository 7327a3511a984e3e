//! Our own daemons at both ends: roaming across families, dropped privileges, and what they say when something is wrong.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::Result;
use dormouse_interop::ends::{NET, PATIENCE, by_certificate, rewrite};
use dormouse_interop::witness::Witness;
use dormouse_testbed::{
    Access, Dormoused, EchoServer, Extra, GATEWAY, GATEWAY_V6, Key, LongLived, Need, Pki, Prober, Roaming,
    SERVER, binary, require,
};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];

fn ends(gateway: &str, secret: &str) -> (String, String) {
    let end = |role: &str, own: &str, peer: &str, secret: &str| {
        format!(
            "[connection.peer]\nrole = \"{role}\"\n{}\n[connection.peer.local]\nid = \"{own}\"\nsecret = \"{secret}\"\n\
             [connection.peer.remote]\nid = \"{peer}\"\nsecret = \"{secret}\"\n",
            if role == "client" { format!("gateway = \"{gateway}\"") } else { String::new() }
        )
    };
    let gateway = end("gateway", "gateway.test", "*.test", "a shared secret of the test")
        + "[connection.peer.child]\nlocal = [\"10.99.0.0/24\", \"fd99::/64\"]\n\
           [connection.peer.pool]\naddresses = [\"10.55.0.0/24\", \"fd55::/64\"]\n";
    let device = end("client", "device.test", "gateway.test", secret)
        + "[connection.peer.child]\nremote = [\"10.99.0.0/24\", \"fd99::/64\"]\n";
    (gateway, device)
}

struct Pair {
    device: Dormoused,
    gateway: Dormoused,
    echo: EchoServer,
    world: Roaming,
}

fn pair(gateway_address: &str, secret: &str, daemon: &str) -> Result<Pair> {
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let (gateway, device) = ends(gateway_address, secret);
    let daemon = format!("dns = \"off\"\n{daemon}");
    let gateway = Dormoused::start(&world.gateway, &daemon, &gateway)?;
    let device = Dormoused::start(&world.device, &daemon, &device)?;
    let echo = EchoServer::start(&world.server, server())?;
    Ok(Pair { device, gateway, echo, world })
}

fn server() -> SocketAddr {
    SocketAddr::new(SERVER.parse().expect("an address"), 7777)
}

fn data_flows(pair: &Pair) -> Result<()> {
    let mut prober = Prober::new(&pair.world.device, server())?;
    let burst =
        prober.burst(&pair.echo, Instant::now(), Duration::from_millis(10), 20, Duration::from_secs(15))?;
    assert!(burst.first_echo.is_some(), "nothing passes\n{}\n{}", pair.device.log(), pair.gateway.log());
    Ok(())
}

#[test]
fn a_session_over_ipv6_carries_both_families() -> Result<()> {
    if !require("IPv6 outside, both inside", &NEEDS) {
        return Ok(());
    }
    let pair = pair(GATEWAY_V6, "a shared secret of the test", "")?;
    pair.device.ok(&["up", "peer"])?;
    data_flows(&pair)?;
    pair.world.device.sh("ping -c 2 -i 0.2 -W 3 fd99::2")?;
    let status = pair.device.ok(&["status", "--json"])?.text;
    assert!(status.contains(GATEWAY_V6) && status.contains("fd55::"), "{status}");
    Ok(())
}

#[test]
fn a_gateway_on_other_ports_is_reached_and_followed_behind_a_nat() -> Result<()> {
    if !require("ports of one's own", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let (gateway, device) = ends(GATEWAY, "a shared secret of the test");
    let device = device.replace(
        "[connection.peer.local]",
        "[connection.peer.ike]\npeer_ike_port = 1500\npeer_nat_t_port = 5500\n[connection.peer.local]",
    );
    let ports = |ike, natt| format!("dns = \"off\"\nike_port = {ike}\nnat_t_port = {natt}");
    let gateway = Dormoused::start(&world.gateway, &ports(1500, 5500), &gateway)?;
    let device = Dormoused::start(&world.device, &ports(1501, 5501), &device)?;
    device.ok(&["up", "peer"])?;
    let ping = || world.device.sh(&format!("ping -c 2 -i 0.2 -W 5 {SERVER}"));
    ping().map_err(|e| e.context(device.log()))?;
    world.attach(Access::B)?;
    ping().map_err(|e| e.context(gateway.log()))?;
    Ok(())
}

#[test]
fn two_sites_reach_each_other_by_their_own_addresses() -> Result<()> {
    if !require("site to site", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    world.device.ip("addr add 10.88.1.1/32 dev lo")?;
    let fixed = |toml: &str, local: &str, remote: &str| {
        let end = toml.find("[connection.peer.child]").unwrap_or(toml.len());
        format!(
            "{}[connection.peer.child]\nlocal = [\"{local}\"]\nremote = [\"{remote}\"]\n",
            toml.get(..end).unwrap_or(toml)
        )
    };
    let (gateway, device) = ends(GATEWAY, "a shared secret of the test");
    let gateway = fixed(&gateway, "10.99.0.0/24", "10.88.1.0/24");
    let device = fixed(&device, "10.88.1.0/24", "10.99.0.0/24");
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
    device.ok(&["up", "peer"])?;
    let ping = |host: &dormouse_testbed::Host, to: &str| host.sh(&format!("ping -c 2 -i 0.2 -W 3 {to}"));
    ping(&world.device, SERVER).map_err(|e| e.context(device.log()))?;
    ping(&world.server, "10.88.1.1").map_err(|e| e.context(gateway.log()))?;
    Ok(())
}

#[test]
fn transport_mode_protects_what_two_hosts_say_to_each_other() -> Result<()> {
    if !require("transport mode", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let hosts = |toml: &str, local: &str, remote: &str| {
        let end = toml.find("[connection.peer.child]").unwrap_or(toml.len());
        format!(
            "{}[connection.peer.ike]\nesp_in_udp = \"nat\"\n[connection.peer.child]\nmode = \"transport\"\nlocal = [\"{local}/32\"]\nremote = [\"{remote}/32\"]\n",
            toml.get(..end).unwrap_or(toml)
        )
    };
    let device_address = Access::A.device_address().to_string();
    let (gateway, device) = ends(GATEWAY, "a shared secret of the test");
    let gateway =
        Dormoused::start(&world.gateway, "dns = \"off\"", &hosts(&gateway, GATEWAY, &device_address))?;
    let device = Dormoused::start(&world.device, "dns = \"off\"", &hosts(&device, &device_address, GATEWAY))?;
    device.ok(&["up", "peer"])?;
    // What passes between them, by what it looks like on the way.
    world.core.nft(
        "table ip seen { chain forward { type filter hook forward priority 0;\n\
         ip protocol icmp counter\n ip protocol tcp counter\n ip protocol esp counter\n }\n }\n",
    )?;
    let echo = EchoServer::start(&world.gateway, SocketAddr::new(GATEWAY.parse()?, 7777))?;
    world
        .device
        .sh(&format!("ping -c 3 -i 0.2 -W 3 {GATEWAY}"))
        .map_err(|e| e.context(format!("{}\n{}", device.log(), gateway.log())))?;
    let tcp = LongLived::connect(&world.device, SocketAddr::new(GATEWAY.parse()?, 7777))?;
    tcp.lives(Duration::from_secs(10))?;
    tcp.finish()?;
    drop(echo);
    let seen = world.core.sh("nft list table ip seen")?;
    let packets = |protocol: &str| {
        let line = seen.lines().find(|l| l.contains(protocol)).unwrap_or_default();
        line.split_whitespace().skip_while(|w| *w != "packets").nth(1).and_then(|n| n.parse::<u64>().ok())
    };
    assert_eq!((packets("protocol icmp"), packets("protocol tcp")), (Some(0), Some(0)), "{seen}");
    assert!(packets("protocol esp") > Some(10), "{seen}");
    Ok(())
}

#[test]
fn daemons_without_privileges_go_on_roaming() -> Result<()> {
    if !require("dropped privileges", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    // A directory that the user may enter: the scratch directory itself is root's.
    let (gateway_toml, device_toml) = ends(GATEWAY, "a shared secret of the test");
    let as_nobody = || Extra { user: "nobody".to_owned(), ..Extra::default() };
    let gateway = Dormoused::start_with(&world.gateway, as_nobody(), "dns = \"off\"", &gateway_toml)?;
    let device = Dormoused::start_with(&world.device, as_nobody(), "dns = \"off\"", &device_toml)?;
    let echo = EchoServer::start(&world.server, server())?;
    let pair = Pair { device, gateway, echo, world };
    pair.device.ok(&["up", "peer"])?;
    let tcp = LongLived::connect(&pair.world.device, server())?;
    pair.world.detach(Access::A)?;
    pair.world.attach(Access::B)?;
    data_flows(&pair)?;
    tcp.lives(Duration::from_secs(20))?;
    let uid = pair.world.device.sh("ps -o user= -C dormoused | sort -u")?;
    assert!(uid.contains("nobody"), "{uid}");
    assert!(tcp.finish()? > 0);
    Ok(())
}

#[test]
fn a_gateway_that_falls_silent_at_one_address_is_reached_at_another() -> Result<()> {
    if !require("additional addresses", &NEEDS) {
        return Ok(());
    }
    const OTHER: &str = "203.0.113.77";
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    world.gateway.ip(&format!("addr add {OTHER}/32 dev lo"))?;
    world.core.ip(&format!("route add {OTHER} via {GATEWAY}"))?;
    let (gateway, device) = ends(GATEWAY, "a shared secret of the test");
    let gateway = format!("{gateway}[connection.peer.ike]\nother_addresses = [\"{OTHER}\"]\n");
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
    let echo = EchoServer::start(&world.server, server())?;
    let pair = Pair { device, gateway, echo, world };
    pair.device.ok(&["up", "peer"])?;
    data_flows(&pair)?;
    let tcp = LongLived::connect(&pair.world.device, server())?;
    pair.world.core.nft(&format!(
        "table ip broken {{ chain forward {{ type filter hook forward priority 0;\nip daddr {GATEWAY} drop\nip saddr {GATEWAY} drop\n}}\n}}\n"
    ))?;
    // Silence is noticed by what is sent.
    data_flows(&pair)?;
    tcp.lives(Duration::from_secs(20))?;
    assert!(tcp.finish()? > 0);
    let status = pair.device.ok(&["status", "--json"])?.text;
    assert!(status.contains(&format!("-> {OTHER}:")) && status.contains("\"rung\":\"mobike\""), "{status}");
    Ok(())
}

#[test]
fn a_wrong_secret_is_an_authentication_error() -> Result<()> {
    if !require("wrong secret", &NEEDS) {
        return Ok(());
    }
    let pair = pair(GATEWAY, "another secret altogether", "")?;
    let answer = pair.device.cli(&["up", "peer"])?;
    assert_eq!(answer.code, 4, "{}", answer.text);
    assert!(answer.text.contains("secret"), "the line to change is missing: {}", answer.text);
    assert!(
        !answer.text.contains("another secret altogether") && !pair.device.log().contains("another secret"),
        "a secret is shown"
    );
    Ok(())
}

#[test]
fn a_ppk_is_agreed_on_before_a_client_says_who_it_is() -> Result<()> {
    if !require("a PPK in IKE_INTERMEDIATE", &NEEDS) {
        return Ok(());
    }
    // Without an additional key exchange, which has IKE_INTERMEDIATE of its own.
    let with = |end: &str, key: &str, lines: &str| {
        format!(
            "{end}[connection.peer.ike]\nproposals = [\"aes256gcm16-prfsha256-x25519\"]\n[connection.peer.ppk]\n{lines}\n\
             keys = [{{ id = \"laptop\", secret = \"0x{}\" }}]\n",
            key.repeat(32)
        )
    };
    let (gateway_toml, device_toml) = ends(GATEWAY, "a shared secret of the test");
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let start = |host, end: &str| Dormoused::start(host, "dns = \"off\"", &with(end, "5a", ""));
    let (gateway, device) = (start(&world.gateway, &gateway_toml)?, start(&world.device, &device_toml)?);
    let echo = EchoServer::start(&world.server, server())?;
    let mut pair = Pair { device, gateway, echo, world };
    let witness = Witness::new(&pair.world.router_a, "lan")?;
    pair.device.ok(&["up", "peer"])?;
    data_flows(&pair)?;
    // Next payload (encrypted), version, IKE_INTERMEDIATE, the flag of the initiator.
    witness.sees(&[46, 0x20, 43, 8])?;
    pair.device.ok(&["down", "peer"])?;

    // With another key under the same name it does not come to identities; without IKE_INTERMEDIATE (RFC 8784) it does.
    for (lines, why, is_named) in [
        ("", "why=no common post-quantum pre-shared key", false),
        ("intermediate = false", "why=the peer's authentication failed", true),
    ] {
        rewrite(&pair.world.device, &with(&device_toml, "a5", lines))?;
        pair.device.restart()?;
        let answer = pair.device.cli(&["up", "peer", "--timeout", "10"])?;
        assert_eq!(answer.code, 4, "{}\n{}", answer.text, pair.gateway.log());
        pair.gateway.process().wait_for(why, PATIENCE)?;
        let log = pair.gateway.log();
        let refusal = log.lines().find(|l| l.contains(why));
        assert!(refusal.is_some_and(|l| l.contains("device.test") == is_named), "{log}");
    }
    Ok(())
}

#[test]
fn a_port_in_use_and_an_interface_in_use_are_named() -> Result<()> {
    if !require("port in use", &NEEDS) {
        return Ok(());
    }
    let pair = pair(GATEWAY, "a shared secret of the test", "")?;
    let dir = pair.world.gateway.dir();
    let second = dir.join("second.toml");
    let text = fs::read_to_string(dir.join("dormouse.toml"))?
        .replace("dormouse.sock", "second.sock")
        .replace("/state", "/state2");
    fs::write(&second, text)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&second, mode)?;
    let out = pair.world.gateway.command(binary("dormoused")).arg("--config").arg(&second).output()?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success());
    assert!(said.contains("daemon.ike_port") && said.contains("500"), "{said}");
    Ok(())
}

#[test]
fn a_full_disk_is_named() -> Result<()> {
    if !require("full disk", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    let (gateway, _) = ends(GATEWAY, "a shared secret of the test");
    let dir = world.gateway.dir().to_owned();
    let small = dir.join("small");
    fs::create_dir_all(&small)?;
    // Inside the private mount namespace of `ip netns exec`: gone with the process.
    let config = dir.join("full.toml");
    let text = format!(
        "[daemon]\nstate_dir = {:?}\nsocket = {:?}\nuser = \"root\"\ndns = \"off\"\n{gateway}",
        small.join("state"),
        dir.join("full.sock")
    );
    fs::write(&config, text)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&config, mode)?;
    let script = format!(
        "mount -t tmpfs -o size=64k,mode=700 none {0} && head -c 64k /dev/zero > {0}/filler 2>/dev/null; exec {1} --config {2}",
        small.display(),
        binary("dormoused").display(),
        config.display()
    );
    let out = world.gateway.command("timeout").args(["10", "sh", "-c", &script]).output()?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("small/state") && said.to_lowercase().contains("space"), "{said}");
    Ok(())
}

/// Runs `dormoused --check` on a configuration and returns the exit code and what it said.
fn check(name: &str, text: &str, mode: u32) -> Result<(Option<i32>, String)> {
    let dir = std::env::temp_dir().join(format!("dormouse-check-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let file = dir.join("dormouse.toml");
    fs::write(&file, text.replace("DIR", &dir.display().to_string()))?;
    fs::write(dir.join("open.key"), "not a key")?;
    fs::set_permissions(dir.join("open.key"), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    let out = Command::new(binary("dormoused")).arg("--config").arg(&file).arg("--check").output();
    fs::remove_dir_all(&dir)?;
    let out = out?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Ok((out.status.code(), said))
}

#[test]
fn a_broken_configuration_says_which_line_or_key_to_change() -> Result<()> {
    let (_, good) = ends(GATEWAY, "a shared secret of the test");
    assert_eq!(check("good", &good, 0o600)?.0, Some(0));
    let cases: [(&str, String, u32, &[&str]); 6] = [
        ("unknown-key", good.replace("gateway = ", "gatway = "), 0o600, &["gatway", "line"]),
        ("readable", good.clone(), 0o644, &["chmod 600"]),
        (
            "proposal",
            format!("{good}[connection.peer.ike]\nproposals = [\"3des-md5-modp768\"]\n"),
            0o600,
            &["connection.peer.ike.proposals[0]", "3des"],
        ),
        (
            "no-gateway",
            good.replace(&format!("gateway = \"{GATEWAY}\""), ""),
            0o600,
            &["connection.peer.gateway"],
        ),
        (
            "open-key",
            good.replacen("secret = \"a shared secret of the test\"", "secret_file = \"DIR/open.key\"", 1),
            0o600,
            &["connection.peer.local.secret_file", "open.key", "chmod 600"],
        ),
        ("empty", String::new(), 0o600, &["no connection"]),
    ];
    for (name, text, mode, expected) in cases {
        let (code, said) = check(name, &text, mode)?;
        assert_eq!(code, Some(1), "{name}: {said}");
        for words in expected {
            assert!(said.contains(words), "{name}: '{words}' is missing in: {said}");
        }
        assert!(!said.contains("a shared secret"), "{name}: a secret is shown: {said}");
    }
    Ok(())
}

#[test]
fn an_own_certificate_that_has_expired_is_named_before_it_is_used() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("dormouse-expired-{}", std::process::id()));
    let pki = Pki::new(&dir, Key::P256)?;
    pki.issue("good.test", Key::P256)?;
    pki.issue_for("old.test", &[], Some(2_020), Key::P256)?;
    let of = |name: &str| check(name, &by_certificate(&pki, "client", name, "gateway.test", NET), 0o600);
    let (good, old) = (of("good.test"), of("old.test"));
    fs::remove_dir_all(&dir)?;
    let (good, old) = (good?, old?);
    assert_eq!(good.0, Some(0), "{}", good.1);
    assert_eq!(old.0, Some(1), "{}", old.1);
    for words in ["connection.peer.local.certificate", "old.test", "expired"] {
        assert!(old.1.contains(words), "'{words}' is missing in: {}", old.1);
    }
    Ok(())
}

#[test]
fn without_privileges_the_daemon_says_what_it_lacks() -> Result<()> {
    if !require("missing privileges", &[Need::Root, Need::Program("setpriv")]) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    let (_, device) = ends(GATEWAY, "a shared secret of the test");
    let dir = std::env::temp_dir().join(format!("dormouse-plain-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let config = dir.join("dormouse.toml");
    let text = format!(
        "[daemon]\nstate_dir = {:?}\nsocket = {:?}\nuser = \"root\"\n{device}",
        dir.join("s"),
        dir.join("c")
    );
    fs::write(&config, text)?;
    for path in [&dir, &config] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534))?;
    }
    fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let out = world
        .device
        .command("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(binary("dormoused"))
        .arg("--config")
        .arg(&config)
        .output();
    fs::remove_dir_all(&dir)?;
    let out = out?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(7), "{said}");
    assert!(said.contains("CAP_NET_ADMIN"), "{said}");
    Ok(())
}
