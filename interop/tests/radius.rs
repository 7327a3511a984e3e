//! Users whom Debian's FreeRADIUS knows, at our gateway: with strongSwan's client and with ours.

use anyhow::{Context as _, Result, ensure};
use dormouse_interop::ends::{inner, peers};
use dormouse_interop::freeradius::{FreeRadius, NEEDS};
use dormouse_interop::scenario::{Auth, PASSWORD, Running, Scenario, USER};
use dormouse_interop::strongswan;
use dormouse_testbed::{Access, Dormoused, Host, Key, Pki, Roaming, SERVER, require};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

const SECRET: &str = "shared with FreeRADIUS alone";
/// Where no server is: nothing answers for this address.
const NOWHERE: &str = "10.99.0.77";
/// The exit code of a client that is refused for who it is, and of one that is to come again.
const REFUSED: i32 = 4;

/// FreeRADIUS' users: ours, with this reply.
fn users(reply: &str) -> String {
    format!("\"{USER}\" Cleartext-Password := \"{PASSWORD}\"\n\t{reply}\n")
}

/// A file with a secret, beside the gateway's own.
fn secret(host: &Host, name: &str, secret: &str) -> Result<PathBuf> {
    let path = host.dir().join(name);
    fs::write(&path, format!("{secret}\n"))?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(path)
}

/// `[radius]` with these servers.
fn radius(lines: &str, servers: &[&str], accounting: &[&str], secret: &std::path::Path) -> String {
    let table = |kind: &str, address: &str| {
        format!("[[radius.{kind}]]\naddress = \"{address}\"\nsecret_file = {secret:?}\n")
    };
    let servers = servers.iter().map(|address| table("servers", address));
    let accounting = accounting.iter().map(|address| table("accounting", address));
    format!("[radius]\n{lines}\n{}", servers.chain(accounting).collect::<String>())
}

/// Two of ours.
struct Ours {
    gateway: Dormoused,
    device: Dormoused,
    world: Roaming,
}

impl Ours {
    fn new(world: Roaming, radius: &str) -> Result<Self> {
        let password = secret(&world.device, "password", PASSWORD)?;
        let local = format!("auth = \"eap-mschapv2\"\nuser = \"{USER}\"\npassword_file = {password:?}");
        let pki = Pki::new(&world.bed.dir().join("pki"), Key::P256)?;
        Self::with(world, &pki, radius, &local)
    }

    /// The device proves itself by these lines.
    fn with(world: Roaming, pki: &Pki, radius: &str, local: &str) -> Result<Self> {
        world.attach(Access::A)?;
        pki.issue("gateway.test", Key::P256)?;
        let [ca, certificate, key] =
            ["ca.pem", "gateway.test.pem", "gateway.test.key"].map(|name| pki.path(name));
        let gateway = format!(
            "{radius}[connection.peer]\nrole = \"gateway\"\n[connection.peer.local]\nid = \"gateway.test\"\ncertificate = {certificate:?}\n\
             key = {key:?}\n[connection.peer.remote]\nid = \"*\"\nauth = \"radius\"\n[connection.peer.child]\nlocal = [\"10.99.0.0/24\"]\n\
             remote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]\n"
        );
        let device = format!(
            "[connection.peer]\nrole = \"client\"\ngateway = \"{}\"\n[connection.peer.local]\nid = \"{USER}\"\n{local}\n\
             [connection.peer.remote]\nid = \"gateway.test\"\nca = [{ca:?}]\n\
             [connection.peer.child]\nremote = [\"10.99.0.0/24\"]\n",
            dormouse_testbed::GATEWAY
        );
        let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
        let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
        Ok(Self { gateway, device, world })
    }

    fn logs(&self) -> String {
        format!("device:\n{}\ngateway:\n{}", self.device.log(), self.gateway.log())
    }

    fn comes(&self) -> Result<()> {
        self.device.ok(&["up", "peer", "--timeout", "40"]).map(drop).with_context(|| self.logs())
    }

    fn carries(&self) -> Result<()> {
        let ping = format!("ping -c 3 -i 0.2 -s 1000 -W 5 {SERVER}");
        self.world.device.sh(&ping).map(drop).with_context(|| self.logs())
    }
}

/// strongSwan at our gateway, by this method of EAP, and the server's log.
fn strongswan_joins(method: &'static str) -> Result<(Running, FreeRadius)> {
    let at = std::env::temp_dir().join(format!("dormouse-radius-{method}-{}", std::process::id()));
    fs::write(&at, format!("{SECRET}\n"))?;
    fs::set_permissions(&at, Permissions::from_mode(0o600))?;
    let scenario = Scenario {
        auth: Auth::Radius(Key::Rsa(2048), method),
        ours: vec![("radius", radius("", &[SERVER], &[], &at))],
        ..Scenario::default()
    };
    let run = scenario.gateway(Access::B);
    fs::remove_file(&at)?;
    let mut run: Running = run?;
    let server = if method == "eap-ttls" {
        // strongSwan takes nothing from inside TLS but EAP: no reply.
        let users = format!("\"{USER}\" Cleartext-Password := \"{PASSWORD}\"\n");
        let pki = run.world.bed.dir().join("pki");
        let files = ["ca.pem", "gateway.test.pem", "gateway.test.key"].map(|name| pki.join(name));
        FreeRadius::start_tls(&run.world.server, "radius", SERVER, SECRET, &users, &files)?
    } else {
        let users = users("Reply-Message := \"hello\"");
        FreeRadius::start(&run.world.server, "radius", SERVER, SECRET, &users)?
    };
    run.initiate().with_context(|| format!("{}\n{}", run.ours.log(), server.log()))?;
    run.data_flows()?;
    ensure!(peers(&run.ours)? == [USER], "{:?}", peers(&run.ours)?);
    ensure!(!run.ours.log().contains(SECRET), "the secret is in the log");
    Ok((run, server))
}

#[test]
fn strongswan_joins_as_a_user_whom_freeradius_knows() -> Result<()> {
    let test = "strongSwan joins as a user of FreeRADIUS";
    if !require(test, &NEEDS) || strongswan::skip(test) {
        return Ok(());
    }
    let (run, _server) = strongswan_joins("eap-mschapv2")?;
    let log = run.theirs.log();
    ensure!(log.contains("EAP method EAP_MSCHAPV2 succeeded, MSK established"), "{log}");
    let denied = run.ours.ok(&["deny", USER])?.text;
    ensure!(denied.contains("its session has ended"), "{denied}");
    ensure!(run.initiate().is_err(), "denied, although the server lets him in");
    Ok(())
}

#[test]
fn strongswan_joins_with_a_password_inside_tls_that_ends_at_freeradius() -> Result<()> {
    let test = "strongSwan joins by EAP-TTLS at FreeRADIUS";
    if !require(test, &NEEDS) || strongswan::skip(test) {
        return Ok(());
    }
    let (run, server) = strongswan_joins("eap-ttls")?;
    let log = run.theirs.log();
    ensure!(log.contains("EAP method EAP_TTLS succeeded, MSK established"), "{log}");
    ensure!(server.log().contains("eap_ttls: Session established"), "{}", server.log());
    Ok(())
}

#[test]
fn our_client_comes_with_what_the_server_grants_and_is_accounted_for() -> Result<()> {
    if !require("our client as a user of FreeRADIUS", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    let reply = "Class := 0x7374616666, Session-Timeout := 1800, Framed-IP-Address := 10.55.0.77, Acct-Interim-Interval := 1";
    let mut server = FreeRadius::start(&world.server, "radius", SERVER, SECRET, &users(reply))?;
    let file = secret(&world.gateway, "secret", SECRET)?;
    let mut ours = Ours::new(world, &radius("nas_identifier = \"gw-7\"", &[SERVER], &[SERVER], &file))?;
    ours.comes()?;
    ours.carries()?;
    ensure!(
        inner(&ours.device)? == ["10.55.0.77".parse::<std::net::IpAddr>()?],
        "{:?}",
        inner(&ours.device)?
    );
    ensure!(peers(&ours.gateway)? == [USER], "{:?}", peers(&ours.gateway)?);
    let begun = server.wait_accounting("a start", |told| told.contains("Acct-Status-Type = Start"))?;
    for line in [
        "User-Name = \"device.test\"",
        "NAS-Identifier = \"gw-7\"",
        "Class = 0x7374616666",
        "Framed-IP-Address = 10.55.0.77",
        "Calling-Station-Id = \"10.1.0.2\"",
        "Called-Station-Id = \"203.0.113.1\"",
    ] {
        ensure!(begun.contains(line), "no {line} in\n{begun}");
    }
    // The same session, by its ticket from another network.
    let status = ours.gateway.ok(&["status"])?.text;
    ensure!(status.contains(&format!("{SERVER}:1812: answered")) && status.contains("as gw-7"), "{status}");
    ours.world.attach(Access::B)?;
    ours.world.detach(Access::A)?;
    ours.carries()?;
    ours.device.ok(&["down", "peer"])?;
    let ended = server.wait_accounting("a stop", |told| told.contains("Acct-Status-Type = Stop"))?;
    ensure!(ended.matches("Acct-Status-Type = Start").count() == 1, "{ended}");
    let stop = ended.split("\n\n").find(|record| record.contains("Stop")).unwrap_or_default();
    ensure!(
        stop.contains("Acct-Terminate-Cause = User-Request") && stop.contains("Class = 0x7374616666"),
        "{stop}"
    );
    let octets = |name: &str| -> Option<u64> {
        let line = stop.lines().find(|line| line.trim_start().starts_with(name))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    // Two times three pings of 1,028 bytes each way.
    ensure!(
        octets("Acct-Input-Octets") >= Some(6_000) && octets("Acct-Output-Octets") >= Some(6_000),
        "{stop}"
    );
    ensure!(octets("Acct-Input-Packets") >= Some(6), "{stop}");
    // A daemon that stops says so of the sessions that it has.
    ours.comes()?;
    server.wait_accounting("another start", |told| told.matches("Acct-Status-Type = Start").count() == 2)?;
    let ended = ours.gateway.process().stop();
    ensure!(ended.success(), "{ended}: {}", ours.gateway.log());
    let told = server
        .wait_accounting("another stop", |told| told.matches("Acct-Status-Type = Stop").count() == 2)?;
    ensure!(told.contains("Acct-Terminate-Cause = Admin-Reboot"), "{told}");
    ensure!(!ours.gateway.log().contains(SECRET), "the secret is in the log");
    server.process().stop();
    Ok(())
}

/// The gateway only carries what the two say: messages of many attributes, and certificates of an authority that it does not know.
#[test]
fn our_client_comes_by_certificate_to_the_server_behind_the_gateway() -> Result<()> {
    if !require("our client by EAP-TLS at FreeRADIUS", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    let pki = Pki::new(&world.bed.dir().join("pki"), Key::P256)?;
    pki.issue("radius.test", Key::Rsa(2048))?;
    pki.issue(USER, Key::Rsa(2048))?;
    let files = ["ca.pem", "radius.test.pem", "radius.test.key"].map(|name| pki.path(name));
    let server = FreeRadius::start_tls(&world.server, "radius", SERVER, SECRET, "", &files)?;
    let file = secret(&world.gateway, "secret", SECRET)?;
    let [certificate, key] = [format!("{USER}.pem"), format!("{USER}.key")].map(|name| pki.path(&name));
    let local = format!(
        "auth = \"eap-tls\"\ncertificate = {certificate:?}\nkey = {key:?}\neap_server = \"radius.test\""
    );
    let ours = Ours::with(world, &pki, &radius("", &[SERVER], &[], &file), &local)?;
    ours.comes().with_context(|| server.log())?;
    ours.carries()?;
    ensure!(peers(&ours.gateway)? == [USER], "{:?}", peers(&ours.gateway)?);
    ensure!(server.log().matches("EAP-Message = ").count() > 12, "{}", server.log());
    // Another name than the server's own is not taken.
    ours.device.ok(&["down", "peer"])?;
    let config = config(&ours.world.device);
    let wrong = fs::read_to_string(&config)?.replace("\"radius.test\"", "\"other.test\"");
    fs::write(&config, wrong)?;
    ours.device.ok(&["reload"])?;
    let answer = ours.device.cli(&["up", "peer", "--timeout", "40"])?;
    ensure!(answer.code == REFUSED, "{} {}\n{}", answer.code, answer.text, ours.logs());
    Ok(())
}

#[test]
fn servers_that_are_dead_silent_or_of_another_secret() -> Result<()> {
    if !require("servers that do not answer", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    let server =
        FreeRadius::start(&world.server, "radius", SERVER, SECRET, &users("Reply-Message := \"hello\""))?;
    let file = secret(&world.gateway, "secret", SECRET)?;
    let wrong = secret(&world.gateway, "wrong", "not what FreeRADIUS has")?;
    // Nobody is at the first one's address.
    let lines = "timeout = 1\ntries = 2";
    let ours = Ours::new(world, &radius(lines, &[NOWHERE, SERVER], &[], &file))?;
    ours.comes()?;
    ours.carries()?;
    ensure!(ours.gateway.log().contains(&format!("{NOWHERE}:1812")), "{}", ours.gateway.log());
    let doctor = ours.gateway.cli(&["doctor", "--config", &config(&ours.world.gateway)])?.text;
    ensure!(doctor.contains(&format!("{SERVER}:1812 answers, and shares the secret")), "{doctor}");
    ensure!(doctor.contains(&format!("{NOWHERE}:1812")), "{doctor}");
    ours.device.ok(&["down", "peer"])?;
    // Another secret: FreeRADIUS is silent, and the gateway's log says what it may be.
    let refused = |servers: &[&str], file: &std::path::Path, said: &str| -> Result<()> {
        let path = ours.world.gateway.dir().join("dormouse.toml");
        let text = fs::read_to_string(&path)?;
        let (daemon, rest) = text.split_once("[radius]").context("the servers")?;
        let (_, connection) = rest.split_once("[connection.peer]").context("the connection")?;
        fs::write(
            &path,
            format!("{daemon}{}[connection.peer]{connection}", radius(lines, servers, &[], file)),
        )?;
        ours.gateway.ok(&["reload"])?;
        let answer = ours.device.cli(&["up", "peer", "--timeout", "15"])?;
        ensure!(
            answer.code != 0 && answer.code != REFUSED,
            "{} {}\n{}",
            answer.code,
            answer.text,
            ours.logs()
        );
        ensure!(ours.gateway.log().contains(said), "not said: {said}\n{}", ours.gateway.log());
        ours.device.cli(&["down", "peer"]).map(drop)
    };
    refused(&[SERVER], &wrong, "has another shared secret for it")?;
    refused(&[NOWHERE], &file, &format!("no RADIUS server answers: {NOWHERE}:1812"))?;
    // And one that is there again.
    drop(server);
    Ok(())
}

#[test]
fn a_wrong_password_is_refused_by_the_server() -> Result<()> {
    if !require("a wrong password at FreeRADIUS", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    let _server = FreeRadius::start(
        &world.server,
        "radius",
        SERVER,
        SECRET,
        "\"device.test\" Cleartext-Password := \"another\"\n",
    )?;
    let file = secret(&world.gateway, "secret", SECRET)?;
    let ours = Ours::new(world, &radius("", &[SERVER], &[], &file))?;
    let answer = ours.device.cli(&["up", "peer", "--timeout", "40"])?;
    ensure!(answer.code == REFUSED, "{} {}\n{}", answer.code, answer.text, ours.logs());
    let said = format!("the RADIUS server {SERVER}:1812 does not let the user in");
    ensure!(ours.gateway.log().contains(&said), "{}", ours.gateway.log());
    Ok(())
}

fn config(host: &Host) -> String {
    host.dir().join("dormouse.toml").display().to_string()
}
