//! Devices with the client that they have, at a gateway that `dormouse gateway init` has made: `dormouse user add --as` gives each what it takes.

use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{another, peers};
use dormouse_interop::strongswan::{StrongSwan, skip};
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Need, Roaming, SERVER, binary, require};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn dormouse(host: &Host, arguments: &str) -> Result<String> {
    let out = host.command(binary("dormouse")).args(arguments.split_whitespace()).output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{arguments}: {said}");
    Ok(said)
}

/// A gateway as `init` makes it; its configuration's path.
fn gateway(world: &Roaming) -> Result<(Dormoused, PathBuf)> {
    let host = &world.gateway;
    let config = host.dir().join("made/dormouse.toml");
    let init =
        format!("gateway init --name {GATEWAY} --reach 10.99.0.0/24 --yes --config {}", config.display());
    dormouse(host, &init)?;
    let text = std::fs::read_to_string(&config)?;
    Ok((Dormoused::start(host, "dns = \"off\"", &text)?, config))
}

/// The files of a directory, with the folder that each is in.
fn credentials(dir: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut found = Vec::new();
    for folder in ["x509", "x509ca", "private"] {
        for entry in std::fs::read_dir(dir.join(folder))? {
            found.push((folder, entry?.path()));
        }
    }
    Ok(found)
}

#[test]
fn a_strongswan_device_comes_by_what_user_add_has_made_and_is_out_when_it_is_removed() -> Result<()> {
    if skip("user add --as swanctl") {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let (ours, config) = gateway(&world)?;
    let made = world.bed.dir().join("joe.swanctl");
    let (at, config) = (made.display(), config.display());
    dormouse(&world.gateway, &format!("user add joe --as swanctl --out {at} --config {config}"))?;
    let conf = std::fs::read_to_string(made.join("conf.d/joe.conf"))?;
    let theirs = StrongSwan::start(&world.device, None, &conf, &credentials(&made)?, "")?;
    theirs.ctl(&["--initiate", "--child", "net"]).with_context(|| ours.log())?;
    let ping = format!("ping -c 3 -i 0.2 -W 5 {SERVER}");
    world.device.sh(&ping).with_context(|| format!("{}\n{}", theirs.log_tail(), ours.log()))?;
    assert!(theirs.sas()?.contains("10.99.0.0/24"), "{}", theirs.sas()?);

    let socket = Dormoused::socket_in(&world.gateway);
    let remove = format!("--socket {} user remove joe --config {config}", socket.display());
    let said = dormouse(&world.gateway, &remove)?;
    assert!(said.contains("1 session(s) ended"), "{said}");
    assert!(theirs.ctl(&["--initiate", "--child", "net"]).is_err(), "it may not come again");
    let (joe, ann) = (made.display(), world.bed.dir().join("ann"));
    // Another of the same name is another.
    dormouse(
        &world.gateway,
        &format!("user add joe --as swanctl --out {} --config {config}", ann.display()),
    )?;
    ensure!(ann.join("private/joe.key").exists(), "beside {joe}");
    Ok(())
}

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
/// What a device waits for its session that it is refused: by its exit code, what was refused is who it is.
const REFUSED: i32 = 4;

/// The gateway, and the directory where its users' files go.
struct Users {
    world: Roaming,
    gateway: Dormoused,
    config: PathBuf,
}

impl Users {
    /// `dormouse user` or `gateway` there.
    fn ok(&self, arguments: &str) -> Result<String> {
        let socket = Dormoused::socket_in(&self.world.gateway);
        let line = format!("--socket {} {arguments} --config {}", socket.display(), self.config.display());
        dormouse(&self.world.gateway, &line)
    }

    /// What `user add` or `renew` makes for this user.
    fn file(&self, verb: &str, user: &str, out: &str) -> Result<PathBuf> {
        let out = self.world.bed.dir().join(out);
        self.ok(&format!("user {verb} {user} --out {}", out.display()))?;
        Ok(out)
    }

    /// A device that has joined by this file; the configuration that this made.
    fn join(&self, host: &Host, file: &Path) -> Result<(Dormoused, PathBuf)> {
        let config = host.dir().join("joined/dormouse.toml");
        dormouse(host, &format!("join {} --name vpn --config {}", file.display(), config.display()))?;
        let text = std::fs::read_to_string(&config)?;
        Ok((Dormoused::start(host, "dns = \"off\"", &text)?, config))
    }

    fn comes(&self, device: &Dormoused) -> Result<()> {
        let up = device.ok(&["wait", "vpn", "--timeout", "40"]);
        up.map(drop).with_context(|| format!("device:\n{}\ngateway:\n{}", device.log(), self.gateway.log()))
    }
}

/// The SPIs of a device's one CHILD SA.
fn child(device: &Dormoused) -> Result<String> {
    let status = device.ok(&["status", "--json"])?.json;
    let spi = status.pointer("/result/status/connections/0/children/0/spi").and_then(Value::as_str);
    Ok(spi.context("no CHILD SA")?.to_owned())
}

fn carries(host: &Host) -> Result<()> {
    host.sh(&format!("ping -c 2 -i 0.2 -W 5 {SERVER}")).map(drop)
}

/// What `user add` made for a client: the file to join by, and a file with the secret that it said.
fn exported(world: &Roaming, config: &Path, user: &str, flags: &str) -> Result<(PathBuf, PathBuf)> {
    let out = world.bed.dir().join(user);
    let line =
        format!("--json user add {user} {flags} --out {} --config {}", out.display(), config.display());
    let said = dormouse(&world.gateway, &line)?;
    let said: Value = serde_json::from_str(said.lines().next().context("an answer")?)?;
    let secret = ["passphrase", "password"].iter().find_map(|key| said.get(*key).and_then(Value::as_str));
    let at = world.bed.dir().join(format!("{user}.secret"));
    std::fs::write(&at, secret.unwrap_or("none"))?;
    let file = if flags.contains("networkmanager") { out.join(format!("{user}.nmconnection")) } else { out };
    Ok((file, at))
}

/// A device of ours takes what was made for each of the other clients, by certificate and by password, and comes by it; and so does strongSwan with a
/// password.
#[test]
fn devices_come_by_what_user_add_has_made_for_other_clients() -> Result<()> {
    if !require("users of a gateway", &NEEDS) || skip("user add --as swanctl --password") {
        return Ok(());
    }
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let host = world.gateway.clone();
    let config = host.dir().join("made/dormouse.toml");
    dormouse(
        &host,
        &format!("gateway init --name {GATEWAY} --reach 10.99.0.0/24 --yes --config {}", config.display()),
    )?;
    let text = std::fs::read_to_string(&config)?;
    let line = text.lines().find(|line| line.ends_with(".remote]")).context("its remote")?.to_owned();
    let users = config.with_file_name("eap-users.toml");
    let more = format!("{line}\nauth = \"eap-mschapv2\"\nusers = \"{}\"", users.display());
    let text = text.replace(&line, &more);
    std::fs::write(&config, &text)?;
    let clients = [
        ("android", "--as sswan"),
        ("apple", "--as mobileconfig --sign"),
        ("desktop", "--as networkmanager"),
        ("android-pw", "--as sswan --password"),
        ("apple-pw", "--as mobileconfig --password"),
        ("desktop-pw", "--as networkmanager --password"),
        ("own-pw", "--as dormouse --password"),
    ];
    let made = clients.map(|(user, flags)| exported(&world, &config, user, flags));
    let (swan, _) = exported(&world, &config, "swan", "--as swanctl --password")?;
    let gateway = Dormoused::start(&host, "dns = \"off\"", &text)?;
    let mut expected = Vec::new();
    let mut devices = Vec::new();
    for (n, ((user, _), made)) in clients.into_iter().zip(made).enumerate() {
        let (file, secret) = made?;
        let (device, _) = another(&mut world, &format!("device-{n}"), 2 + u8::try_from(n)?)?;
        let config = device.dir().join("joined/dormouse.toml");
        let (file, secret) = (file.display(), secret.display());
        let join = format!("join {file} --name vpn --passphrase-file {secret} --config {}", config.display());
        let said = dormouse(&device, &join)?;
        ensure!(said.contains("signed by CN=") == (user == "apple"), "{said}");
        let daemon = Dormoused::start(&device, "dns = \"off\"", &std::fs::read_to_string(&config)?)?;
        let up = daemon.ok(&["wait", "vpn", "--timeout", "40"]);
        up.with_context(|| format!("{user}:\n{}\ngateway:\n{}", daemon.log(), gateway.log()))?;
        carries(&device).with_context(|| user.to_owned())?;
        expected.push(format!("{user}.devices.internal"));
        devices.push(daemon);
    }
    let conf = std::fs::read_to_string(swan.join("conf.d/swan.conf"))?;
    let ca = vec![("x509ca", swan.join("x509ca/swan-ca.pem"))];
    let theirs = StrongSwan::start(&world.device, None, &conf, &ca, "")?;
    theirs.ctl(&["--initiate", "--child", "net"]).with_context(|| gateway.log())?;
    carries(&world.device).with_context(|| format!("{}\n{}", theirs.log_tail(), gateway.log()))?;
    expected.push("swan.devices.internal".into());
    expected.sort();
    let mut known = peers(&gateway)?;
    known.sort();
    assert_eq!(known, expected);
    Ok(())
}

/// Both users go on while the gateway gets another certificate, a third one comes by it, and of a user that was renewed and is removed neither certificate
/// counts any more.
#[test]
fn users_outlive_the_gateways_certificate_and_who_is_removed_is_out_with_all_certificates() -> Result<()> {
    if !require("users of a gateway", &NEEDS) {
        return Ok(());
    }
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let mut hosts = Vec::new();
    for (n, name) in ["ann", "eve", "copy", "pinned"].into_iter().enumerate() {
        hosts.push(another(&mut world, name, 2 + u8::try_from(n)?)?.0);
    }
    let [at_ann, at_eve, at_copy, at_pinned] = <[Host; 4]>::try_from(hosts).ok().context("four hosts")?;
    let (gateway, config) = gateway(&world)?;
    let users = Users { world, gateway, config };
    let at_joe = users.world.device.clone();
    let (joe, joe_config) = users.join(&at_joe, &users.file("add", "joe", "joe")?)?;
    let (ann, _) = users.join(&at_ann, &users.file("add", "ann", "ann-1")?)?;
    for (device, host) in [(&joe, &at_joe), (&ann, &at_ann)] {
        users.comes(device)?;
        carries(host)?;
    }
    assert_eq!(peers(&users.gateway)?, ["ann.devices.internal", "joe.devices.internal"]);

    // Another certificate of the gateway: both go on, each with the SA that it has.
    let before = [child(&joe)?, child(&ann)?];
    let old = std::fs::read(users.config.with_file_name("gateway.pem"))?;
    let said = users.ok("gateway renew --days 400")?;
    ensure!(said.contains("the daemon uses it from now on; sessions go on"), "{said}");
    let renewed = std::fs::read(users.config.with_file_name("gateway.pem"))?;
    assert!(old != renewed);
    carries(&at_joe)?;
    carries(&at_ann)?;
    assert_eq!([child(&joe)?, child(&ann)?], before);
    // One that trusts no authority but one certificate of the gateway, the old one or the new one: which one it shows.
    let (pinned, config) = users.join(&at_pinned, &users.file("add", "pinned", "pinned-1")?)?;
    drop(pinned);
    let trusted = config.with_file_name("vpn.ca.pem");
    std::fs::write(&trusted, &old)?;
    let mut pinned = Dormoused::start(&at_pinned, "dns = \"off\"", &std::fs::read_to_string(&config)?)?;
    let answer = pinned.cli(&["wait", "vpn", "--timeout", "40"])?;
    assert_eq!(answer.code, REFUSED, "{}", answer.text);
    pinned.process().stop();
    std::fs::write(&trusted, &renewed)?;
    pinned.restart()?;
    users.comes(&pinned)?;
    pinned.ok(&["down", "vpn"])?;
    pinned.process().stop();
    // Who comes anew, and who comes again in full.
    let (eve, _) = users.join(&at_eve, &users.file("add", "eve", "eve-1")?)?;
    users.comes(&eve)?;
    ann.ok(&["down", "vpn"])?;
    ann.ok(&["up", "vpn"])?;
    users.comes(&ann)?;

    // The former certificate of a user that is renewed counts until it ends: on a device where it still is.
    let file = users.file("renew", "joe", "joe-2")?;
    let copied = at_copy.dir().join("joined");
    std::fs::create_dir_all(&copied)?;
    let of = joe_config.parent().context("a directory")?.display().to_string();
    at_copy.sh(&format!("cp -a {of}/. {}", copied.display()))?;
    let text = std::fs::read_to_string(copied.join("dormouse.toml"))?;
    dormouse(
        &at_joe,
        &format!(
            "--socket {} join {} --name vpn --renew --config {}",
            Dormoused::socket_in(&at_joe).display(),
            file.display(),
            joe_config.display()
        ),
    )?;
    users.comes(&joe)?;
    carries(&at_joe)?;
    let text = text.replace(&of, &copied.display().to_string());
    let copy = Dormoused::start(&at_copy, "dns = \"off\"", &text)?;
    users.comes(&copy)?;
    carries(&at_copy)?;

    // Removed: both certificates are refused, the session is gone, and others go on and come.
    let before = child(&ann)?;
    let said = users.ok("user remove joe")?;
    ensure!(said.contains("2 certificate(s) denied"), "{said}");
    for (device, host) in [(&joe, &at_joe), (&copy, &at_copy)] {
        device.ok(&["down", "vpn"])?;
        for verb in ["up", "wait"] {
            let answer = device.cli(&[verb, "vpn", "--timeout", "40"])?;
            assert_eq!(answer.code, REFUSED, "{}\n{}\n{}", answer.text, device.log(), users.gateway.log());
        }
        assert!(carries(host).is_err(), "nothing passes");
    }
    assert_eq!(peers(&users.gateway)?, ["ann.devices.internal", "eve.devices.internal"]);
    carries(&at_ann)?;
    assert_eq!(child(&ann)?, before);
    eve.ok(&["down", "vpn"])?;
    eve.ok(&["up", "vpn"])?;
    users.comes(&eve)?;
    carries(&at_eve)?;
    Ok(())
}
