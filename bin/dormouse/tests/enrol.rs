//! `dormouse gateway init`, `user` and `join` as administrators and scripts see them, in directories of their own: no privilege is needed, and nothing of
//! the machine is changed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("dormouse-enrol-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn command(&self, arguments: &str) -> Command {
        // The mask that takes nothing away: what is written must not depend on it.
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_dormouse")]);
        let config = self.0.join("etc/dormouse.toml");
        command.arg("--socket").arg(self.0.join("no-socket")).args(arguments.split_whitespace());
        command.arg("--config").arg(config).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &str) -> (i32, String) {
        let out = self.command(arguments).output().unwrap();
        let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(!text.contains("PRIVATE"), "{arguments}: {text}");
        (out.status.code().unwrap(), text)
    }

    fn ok(&self, arguments: &str) -> String {
        let (code, text) = self.run(arguments);
        assert_eq!(code, 0, "{arguments}: {text}");
        text
    }

    /// Everything below, with its permissions.
    fn files(&self, dir: &str) -> BTreeMap<String, u32> {
        fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, u32>) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
                let name = entry.path().strip_prefix(root).unwrap().display().to_string();
                found.insert(name, mode);
                walk(root, &entry.path(), found);
            }
        }
        let (root, mut found) = (self.0.join(dir), BTreeMap::new());
        walk(&root, &root, &mut found);
        found
    }
}

const INIT: &str = "gateway init --name vpn.example.org --pool 10.231.7.0/24,fd0e:1::/64 --dns none";

#[test]
fn a_gateway_a_user_and_a_device_come_of_three_commands() {
    let gateway = Place::new("whole");
    let said = gateway.ok(INIT);
    for part in [
        "vpn.example.org is a gateway",
        "10.231.7.0/24, fd0e:1::/64",
        "undo: systemctl disable --now dormoused",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let modes = [
        ("ca", 0o700),
        ("ca.pem", 0o644),
        ("ca/ca.key", 0o600),
        ("dormouse.toml", 0o644),
        ("gateway.key", 0o600),
        ("gateway.pem", 0o644),
        // There before the first user: the service that renews may write there alone.
        ("users", 0o700),
    ];
    assert_eq!(gateway.files("etc"), modes.map(|(name, mode)| (name.to_owned(), mode)).into());
    let said = gateway.ok("user add joe");
    assert!(
        said.contains("joe.vpn.example.org may come until") && said.contains("dormouse join joe.dormouse"),
        "{said}"
    );
    assert_eq!(gateway.files("")["joe.dormouse"], 0o600);
    assert!(gateway.ok("user list").contains("joe.vpn.example.org"), "it is listed");
    assert!(gateway.ok("user show joe").contains("sha256:"));
    assert!(gateway.ok("user list --json").starts_with("{\"users\":[{"), "an object with a version");
    let file = fs::read_to_string(gateway.0.join("joe.dormouse")).unwrap();

    let device = Place::new("device");
    fs::write(device.0.join("joe.dormouse"), &file).unwrap();
    let said = device.ok("join joe.dormouse");
    assert!(
        said.contains("connection vpn: joe.vpn.example.org at vpn.example.org") && said.contains("next: rm"),
        "{said}"
    );
    let modes = [("dormouse.toml", 0o644), ("vpn.ca.pem", 0o644), ("vpn.key", 0o600), ("vpn.pem", 0o644)];
    assert_eq!(device.files("etc"), modes.map(|(name, mode)| (name.to_owned(), mode)).into());

    // The daemon is to refuse who is removed, and none runs.
    let (code, said) = gateway.run("user remove joe");
    assert!(
        code == 3 && said.contains("joe is not removed, because the daemon is to refuse it"),
        "{code}: {said}"
    );
    assert!(gateway.ok("user list").contains("joe"));
    for (arguments, part) in [
        ("user add joe", "there is a user joe already"),
        ("user show ann", "no user is called ann"),
        ("user add ../x", "is no name of a user"),
        ("user add bob --as swanctl --qr", "several files are neither one QR code nor one stream"),
        ("user add bob --as swanctl --out -", "several files are neither one QR code nor one stream"),
        ("user add bob --sign", "--sign is for devices of Apple"),
        ("user add bob --as sswan --on-demand", "--on-demand is for devices of Apple"),
        ("user add bob --as windows --out -", "several files are neither one QR code nor one stream"),
        ("join joe.dormouse --name ../x", "is no name of a connection here"),
        ("user add bob --days 900", "1 to 825 are accepted"),
        ("user add bob --connection other", "there is no gateway connection \"other\""),
    ] {
        let (code, said) = gateway.run(arguments);
        assert!(code == 2 && said.contains(part), "{arguments}: {code}: {said}");
    }
}

/// A gateway with an RSA key, which Android's own client needs; a profile for devices of Apple says so, and each client gets its own form of it.
#[test]
fn each_client_gets_its_file_and_no_passphrase_is_in_it() {
    let gateway = Place::new("clients");
    gateway.ok(&format!("{INIT} --key rsa"));
    for (user, form, file) in [
        ("a", "sswan", "a.sswan"),
        ("b", "mobileconfig", "b.mobileconfig"),
        ("c", "windows", "c.windows/c.ps1"),
        ("d", "networkmanager", "d.networkmanager/d.nmconnection"),
        ("e", "swanctl", "e.swanctl/conf.d/e.conf"),
    ] {
        let said = gateway.ok(&format!("--json user add {user} --as {form}"));
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let text = String::from_utf8_lossy(&fs::read(gateway.0.join(file)).unwrap()).into_owned();
        let passphrase = said["passphrase"].as_str();
        let sealed = matches!(form, "sswan" | "mobileconfig" | "windows");
        assert_eq!(passphrase.map(str::len), sealed.then_some(23), "{form}");
        assert!(passphrase.is_none_or(|passphrase| !text.contains(passphrase)), "{form}");
        assert_eq!(text.contains("<string>RSA</string>"), form == "mobileconfig", "{form}");
        assert!(gateway.files("")[file] == 0o600, "{form}");
        // What was made for another client is joined by, with the passphrase from a file.
        if form == "windows" {
            continue;
        }
        let device = Place::new(form);
        fs::write(device.0.join("secret"), passphrase.unwrap_or("none")).unwrap();
        let file = gateway.0.join(file);
        let said = device.ok(&format!("join {} --passphrase-file secret --name x", file.display()));
        assert!(
            said.contains(&format!("connection x: {user}.vpn.example.org at vpn.example.org, until")),
            "{said}"
        );
        let (code, said) = device.run(&format!("join {} --passphrase-file none --name y", file.display()));
        assert!(!sealed || code != 0 && said.contains("none does not exist"), "{said}");
        let (code, said) = device.run(&format!("join {} --name z", file.display()));
        assert!(code == 0 || said.contains("passphrase of the key"), "without a terminal: {said}");
    }
}

#[test]
fn a_user_with_a_password_is_a_line_in_a_file_of_hashes() {
    let gateway = Place::new("password");
    gateway.ok(INIT);
    let (code, said) = gateway.run("user add ann --password");
    assert!(code == 2 && said.contains("no gateway connection here takes users with passwords"), "{said}");
    let config = gateway.0.join("etc/dormouse.toml");
    let users = gateway.0.join("etc/eap-users.toml");
    assert!(said.contains(&format!("users = \"{}\"", users.display())), "{said}");
    let said = gateway.ok(&format!("{INIT} --force --passwords"));
    assert!(said.contains("dormouse user add NAME (--password: one who logs in)"), "{said}");
    assert!(said.contains(&format!("rm {} ", users.display()).trim_end().to_owned()), "{said}");
    assert_eq!(gateway.files("etc")["eap-users.toml"], 0o600);

    let said = gateway.ok("user add ann --password");
    assert!(
        said.contains("ann.vpn.example.org may come with the password") && said.contains("dormouse reload"),
        "{said}"
    );
    let password = |said: &str| said.split_whitespace().find(|word| word.len() == 23).unwrap().to_owned();
    let first = password(&said);
    let kept = fs::read_to_string(&users).unwrap();
    assert!(kept.contains("[\"ann.vpn.example.org\"]\nnt_hash = \"") && !kept.contains(&first), "{kept}");
    assert_eq!(gateway.files("etc")["eap-users.toml"], 0o600);
    let (code, said) = gateway.run("user add ann --password");
    assert!(code == 2 && said.contains("with a password already"), "{said}");
    assert_ne!(password(&gateway.ok("user renew ann --password")), first);
    assert_ne!(fs::read_to_string(&users).unwrap(), kept);
    // Another configuration takes the same users, also if nothing is said of them.
    let before = fs::read_to_string(&users).unwrap();
    gateway.ok(&format!("{INIT} --force"));
    assert_eq!(fs::read_to_string(&users).unwrap(), before);
    assert!(fs::read_to_string(&config).unwrap().contains("auth = \"eap-mschapv2\""));
    assert!(gateway.ok("user add joe --password --json").contains("\"user\":\"joe.vpn.example.org\""));
    // And another one by certificate, who is listed with them.
    gateway.ok("user add bob");
    let listed = gateway.ok("user list");
    assert!(
        listed.contains("ann.vpn.example.org") && listed.contains("by password") && listed.contains("bob"),
        "{listed}"
    );
    assert!(
        gateway
            .ok("user list --json")
            .contains("\"with_password\":[\"ann.vpn.example.org\",\"joe.vpn.example.org\"]")
    );
    for (arguments, code, part) in [
        ("user renew eve --password", 2, "no user eve.vpn.example.org has a password"),
        ("user add eve --password --qr", 2, "cannot be used with"),
        ("user remove ann", 3, "ann is not removed, because the daemon is to refuse it"),
        ("user remove eve", 2, "no user is called eve"),
    ] {
        let (found, said) = gateway.run(arguments);
        assert!(found == code && said.contains(part), "{arguments}: {found}: {said}");
    }
    assert!(fs::read_to_string(&users).unwrap().contains("ann.vpn.example.org"));
    fs::write(&users, "[\"Eve.vpn.example.org\"]\nnt_hash = \"8846f7eaee8fb117ad06bdd830b7586c\"\n").unwrap();
    let (code, said) = gateway.run("user add eve --password");
    assert!(code == 2 && said.contains("would be one identity"), "{code}: {said}");
    let whole = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        whole.replace(&format!("users = \"{}\"", users.display()), "users = \"eap-users.toml\""),
    )
    .unwrap();
    let (code, said) = gateway.run("user add eve --password");
    assert!(code == 2 && said.contains("another file for the daemon"), "{code}: {said}");
    fs::write(&config, whole).unwrap();
    fs::write(&users, "[ann]\nnt_hash = \"8846f7eaee8fb117ad06bdd830b7586\"\n").unwrap();
    let (code, said) = gateway.run("user list");
    assert!(
        code == 1 && said.contains("32 hexadecimal digits") && !said.contains("8846f7"),
        "{code}: {said}"
    );
}

/// While somebody edits the configuration: who was told "removed" would still have his password.
#[test]
fn nobody_is_removed_while_the_configuration_cannot_be_read() {
    let gateway = Place::new("unread");
    gateway.ok(&format!("{INIT} --passwords"));
    gateway.ok("user add ann --password");
    gateway.ok("user add ann");
    let (config, users) = (gateway.0.join("etc/dormouse.toml"), gateway.0.join("etc/eap-users.toml"));
    let (whole, kept) = (fs::read_to_string(&config).unwrap(), fs::read(&users).unwrap());
    fs::write(&config, format!("{whole}\nnonsense\n")).unwrap();
    for arguments in ["user remove ann", "user list", "user show ann"] {
        let (code, said) = gateway.run(arguments);
        assert!(code == 1 && said.contains("etc/dormouse.toml: "), "{arguments}: {code}: {said}");
    }
    assert_eq!(fs::read(&users).unwrap(), kept);
    assert!(gateway.files("etc").contains_key("users/ann.toml"));
}

/// What a device is told must let it find the gateway and believe it, also where a password says who it is; and what cannot be is said.
#[test]
fn a_device_with_a_password_is_told_nothing_that_cannot_work() {
    let (gateway, other) = (Place::new("told"), Place::new("told-other"));
    gateway.ok(&format!("{INIT} --passwords"));
    other.ok(INIT);
    gateway.ok("user add ann --password");
    let (config, users) = (gateway.0.join("etc/dormouse.toml"), gateway.0.join("etc/eap-users.toml"));
    let kept = fs::read(&users).unwrap();
    let refused = |arguments: &str, parts: &[&str]| {
        let (code, said) = gateway.run(arguments);
        assert!(code != 0 && parts.iter().all(|part| said.contains(part)), "{arguments}: {code}: {said}");
        assert_eq!(fs::read(&users).unwrap(), kept, "{arguments}");
    };
    refused(
        "user add eve --password --connection other",
        &["connection \"other\" takes no users with passwords", "acceptable: devices"],
    );
    refused(
        "user add eve --password --as sswan --out -",
        &["with --password the file cannot go to standard output", "--out FILE"],
    );
    refused("user add eve --password --out x", &["--out needs --as: without a client there is no file"]);
    refused("user show eve", &["no user is called eve"]);
    assert_eq!(gateway.ok("user show ann"), "ann logs in as ann.vpn.example.org with a password\n");
    gateway.ok("user add ann");
    let said = gateway.ok("user show ann");
    assert!(said.contains("sha256:") && said.contains("with a password"), "{said}");

    let whole = fs::read_to_string(&config).unwrap();
    let another = whole.replace("id = \"vpn.example.org\"", "id = \"vpn@example.org\"");
    assert_ne!(another, whole);
    fs::write(&config, another).unwrap();
    let part = "devices are told to look for the gateway there";
    refused("user add eve --password --as swanctl", &["connection.devices.local.id: ", part]);
    fs::write(&config, whole).unwrap();
    let (own, others) = (gateway.0.join("etc/ca.pem"), other.0.join("etc/ca.pem"));
    let ca = fs::read(&own).unwrap();
    fs::copy(&others, &own).unwrap();
    let part = "ca.pem does not vouch for connection.devices.local.certificate: ";
    refused("user add eve --password --as swanctl", &[part]);
    fs::write(&own, ca).unwrap();
    gateway.ok("user add eve --password --as swanctl");
}

/// The files are written and the daemon refuses: who joins again would be told that there is such a connection already.
#[test]
fn what_a_daemon_refuses_of_a_joined_connection_is_what_is_left_to_do() {
    use dormouse_control::{Error, ErrorKind, Response, line};
    use std::io::{BufRead as _, BufReader, Write as _};
    let place = Place::new("refused");
    place.ok(INIT);
    place.ok("user add joe");
    let device = Place::new("refused-device");
    fs::rename(place.0.join("joe.dormouse"), device.0.join("joe.dormouse")).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(device.0.join("no-socket")).unwrap();
    let daemon = std::thread::spawn(move || {
        for _ in 0..2 {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut asked = String::new();
            stream.read_line(&mut asked).unwrap();
            assert!(asked.contains("reload"), "{asked}");
            let refused = Error::new(ErrorKind::Authentication, "other.pem does not exist");
            stream.get_mut().write_all(line(&Response::error(refused)).unwrap().as_bytes()).unwrap();
        }
    });
    let expected = i32::from(ErrorKind::Authentication.exit_code().code());
    let (code, said) = device.run("join joe.dormouse");
    assert_eq!(code, expected, "{said}");
    for part in ["connection vpn: joe.vpn.example.org", "dormouse reload", "error: other.pem does not exist"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("dormouse wait"), "{said}");
    assert!(device.0.join("etc/vpn.key").exists());
    let (code, said) = device.run("--json join joe.dormouse --name second");
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &answer["connection"]), (expected, &"second".into()));
    assert_eq!(answer["reload_error"]["message"], "other.pem does not exist");
    daemon.join().unwrap();
}

#[test]
fn what_is_there_is_not_replaced_unless_that_is_said_and_users_stay() {
    let place = Place::new("force");
    place.ok(INIT);
    place.ok("user add joe");
    let before = fs::read(place.0.join("etc/ca/ca.key")).unwrap();
    let (code, said) = place.run(INIT);
    assert!(code == 1 && said.contains("is there already") && said.contains("--force"), "{code}: {said}");
    fs::write(place.0.join("etc/dormouse.toml"), "# mine\n").unwrap();
    let said = place.ok(&format!("{INIT} --force"));
    assert!(said.contains("as it was") && said.contains("dormouse.toml.old"), "{said}");
    assert_eq!(fs::read(place.0.join("etc/ca/ca.key")).unwrap(), before, "users go on");
    assert_eq!(fs::read_to_string(place.0.join("etc/dormouse.toml.old")).unwrap(), "# mine\n");
    place.ok("user renew joe --out second");
    // What was kept before stays, also where something else is called so.
    let etc = |name: &str| fs::read(place.0.join("etc").join(name)).unwrap();
    let first =
        ["dormouse.toml", "gateway.key", "gateway.pem"].map(|name| (name, etc(&format!("{name}.old"))));
    let now = first.each_ref().map(|(name, _)| etc(name));
    let said = place.ok(&format!("{INIT} --force"));
    for ((name, kept), now) in first.iter().zip(&now) {
        assert_eq!((&etc(&format!("{name}.old")), &etc(&format!("{name}.old-2"))), (kept, now), "{name}");
        let path = fs::canonicalize(place.0.join("etc")).unwrap().join(name).display().to_string();
        assert!(said.contains(&format!("mv {path}.old-2 {path}")), "{said}");
    }
    assert_eq!(place.files("etc")["gateway.key.old-2"], 0o600);
    assert!(!place.files("etc").contains_key("ca.pem.old"), "it is the authority's");
    fs::remove_file(place.0.join("etc/ca/ca.key")).unwrap();
    let (code, said) = place.run(&format!("{INIT} --force"));
    assert!(code == 1 && said.contains("and its key") && said.contains("is not"), "{code}: {said}");
}

/// Without a daemon; with one, `interop/tests/readme.rs`.
#[test]
fn a_gateways_certificate_is_renewed_and_nothing_else() {
    let place = Place::new("gateway-renew");
    let said = place.ok(INIT);
    let undo = said.split_once("undo: ").unwrap().1;
    for part in [
        "and so the authority: a later init takes it up",
        "To remove it too, rm -r ",
        "all users are lost for good",
    ] {
        assert!(undo.contains(part), "{part}: {said}");
    }
    place.ok("user add joe");
    let etc = |name: &str| fs::read(place.0.join("etc").join(name)).unwrap();
    let names = ["gateway.key", "gateway.pem", "dormouse.toml", "ca.pem", "ca/ca.key", "users/joe.toml"];
    let before = names.map(etc);
    let said = place.ok("gateway renew --days 700");
    for part in
        ["vpn.example.org has a new key and certificate, until 20", "gateway.key.old", "no daemon runs"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let after = names.map(etc);
    assert!(before[0] != after[0] && before[1] != after[1] && before[2..] == after[2..]);
    assert_eq!((etc("gateway.key.old"), etc("gateway.pem.old")), (before[0].clone(), before[1].clone()));
    let modes = ["gateway.key", "gateway.pem", "gateway.key.old", "gateway.pem.old"]
        .map(|name| place.files("etc")[name]);
    assert_eq!(modes, [0o600, 0o644, 0o600, 0o600]);
    let answer: serde_json::Value = serde_json::from_str(&place.ok("--json gateway renew")).unwrap();
    assert_eq!((&answer["gateway"], &answer["daemon"]), (&"vpn.example.org".into(), &false.into()));
    place.ok("gateway renew --days 20");
    let (_, said) = place.run("--json doctor");
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    let checks = answer.pointer("/result/doctor").unwrap().as_array().unwrap();
    let of = |name: &str| checks.iter().find(|c| c["name"] == name).unwrap();
    assert_eq!(
        (&of("certificate")["outcome"], &of("authority")["outcome"]),
        (&"warning".into(), &"ok".into())
    );
    assert_eq!(of("certificate")["change"], "dormouse gateway renew");
    let (code, said) = Place::new("gateway-renew-none").run("gateway renew");
    assert!(
        code == 1 && said.contains("dormouse.toml does not exist") && said.contains("gateway init"),
        "{said}"
    );
}

/// Everything that a gateway lives on, and not the configuration's file alone.
#[test]
fn no_file_of_a_gateway_is_replaced_unless_that_is_said() {
    for name in ["gateway.key", "gateway.pem"] {
        let place = Place::new("files");
        fs::create_dir_all(place.0.join("etc")).unwrap();
        fs::write(place.0.join("etc").join(name), "another's").unwrap();
        let (code, said) = place.run(INIT);
        assert!(code == 1 && said.contains(&format!("{name} is there already")), "{code}: {said}");
        assert_eq!(place.files("etc").len(), 1, "nothing is made: {said}");
        let said = place.ok(&format!("{INIT} --force"));
        assert_eq!(fs::read(place.0.join(format!("etc/{name}.old"))).unwrap(), b"another's");
        assert!(said.contains(&format!("{name}.old ")) && said.contains("then rm "), "{said}");
    }
    let place = Place::new("files");
    place.ok(INIT);
    let all = |names: &[&str]| -> Vec<_> {
        names.iter().map(|n| fs::read(place.0.join("etc").join(n)).unwrap()).collect()
    };
    let names = ["gateway.key", "gateway.pem", "ca.pem", "dormouse.toml"];
    let before = all(&names);
    let other = format!("{INIT} --config {}", place.0.join("etc/other.toml").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    let out = command.args(other.split_whitespace()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(1) && said.contains("gateway.pem is there already"), "{said}");
    assert_eq!(all(&names), before);
    // The authority's certificate, with another one in its place.
    for name in ["dormouse.toml", "gateway.key", "gateway.pem"] {
        fs::remove_file(place.0.join("etc").join(name)).unwrap();
    }
    fs::write(place.0.join("etc/ca.pem"), "mine\n").unwrap();
    let (code, said) = place.run(INIT);
    assert!(code == 1 && said.contains("ca.pem is there already"), "{code}: {said}");
    place.ok(&format!("{INIT} --force"));
    assert_eq!(all(&["ca.pem.old", "ca.pem"]), [b"mine\n".to_vec(), before[2].clone()]);
}

#[test]
fn a_gateway_is_not_renamed_away_from_its_users() {
    let place = Place::new("renamed");
    place.ok(INIT);
    place.ok("user add joe");
    place.ok("user add ann");
    let before = fs::read(place.0.join("etc/dormouse.toml")).unwrap();
    for name in ["vpn.example.com", "203.0.113.9"] {
        let (code, said) = place.run(&format!("{} --force", INIT.replace("vpn.example.org", name)));
        assert!(
            code == 2 && said.contains("ann (ann.vpn.example.org), joe (joe.vpn.example.org)"),
            "{code}: {said}"
        );
    }
    assert_eq!(fs::read(place.0.join("etc/dormouse.toml")).unwrap(), before);
    place.ok(&format!("{} --force", INIT.replace("vpn.example.org", "VPN.example.org")));

    // Users of an address are called the same whatever the address is, and their devices know the one.
    let place = Place::new("renamed");
    place.ok(&INIT.replace("vpn.example.org", "203.0.113.9"));
    place.ok("user add joe");
    let (code, said) = place.run(&format!("{} --force", INIT.replace("vpn.example.org", "203.0.113.10")));
    assert!(code == 2 && said.contains("joe (joe.devices.internal)"), "{code}: {said}");
    place.ok(&format!("{} --force", INIT.replace("vpn.example.org", "203.0.113.9")));
}

#[test]
fn of_two_at_once_one_makes_a_gateway() {
    let place = Place::new("two");
    let begin = || place.command(INIT).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let both =
        [begin(), begin(), begin()].map(|child| child.wait_with_output().unwrap().status.code().unwrap());
    assert_eq!(both.iter().filter(|code| **code == 0).count(), 1, "{both:?}");
    // The pieces are of one authority.
    place.ok("user add joe");
    assert!(!place.files("etc").keys().any(|name| name.contains(".new-")));
}

#[test]
fn nothing_is_made_where_nothing_is_asked_for_or_nobody_can_be_asked() {
    let place = Place::new("dry");
    let said = place.ok(&format!("{INIT} --dry-run"));
    assert!(said.contains("forward = \"translate\"") && said.contains("would be"), "{said}");
    assert!(!place.0.join("etc").exists());
    let (code, said) = place.run("gateway init");
    assert!(code == 2 && said.contains("there is no terminal to ask on"), "{code}: {said}");
    for (arguments, part) in [
        ("gateway init --yes --name a/b", "\"a/b\" is neither a host name"),
        ("gateway init --yes --name a.b --pool 1.2.3", "is no prefix"),
        ("gateway init --yes --name a.b --dns x", "is no address of a name server"),
        ("gateway init --yes --name a.b --dns none --days 1000", "1 to 825 are accepted"),
    ] {
        let (code, said) = place.run(arguments);
        assert!(code == 2 && said.contains(part), "{arguments}: {code}: {said}");
    }
    let (code, said) = place.run("user add joe");
    assert!(
        code == 1 && said.contains("ca.key does not exist") && said.contains("dormouse gateway init"),
        "{code}: {said}"
    );
    let (code, said) = place.run("join nothing");
    assert!(code == 1 && said.contains("nothing does not exist"), "{code}: {said}");
}

/// On a disk that has room for some of the files: none is there afterwards.
#[test]
fn a_full_disk_leaves_nothing_half() {
    let place = Place::new("full");
    let etc = place.0.join("etc");
    fs::create_dir_all(&etc).unwrap();
    let script = "mount -t tmpfs -o size=12k,mode=755 none \"$1\" || exit 77; d=$1; shift; \"$@\" 2>&1; echo \"ends with $?\"; ls -R \"$d\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&etc).arg(env!("CARGO_BIN_EXE_dormouse"));
    command.args(INIT.split_whitespace()).arg("--config").arg(etc.join("dormouse.toml"));
    let out = command.output().unwrap();
    if !out.status.success() {
        println!("skipped: no mount: {}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("No space left on device") && said.contains("ends with 1\n"), "{said}");
    let left = said.split_once("ends with 1\n").unwrap().1;
    assert!(!left.contains(".pem") && !left.contains(".key") && !left.contains(".toml"), "{said}");
}

#[test]
fn who_may_not_write_there_is_told_so() {
    let place = Place::new("rights");
    // Where it was built others may not go.
    fs::copy(env!("CARGO_BIN_EXE_dormouse"), place.0.join("dormouse")).unwrap();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(place.0.join("dormouse"));
    command.args(INIT.split_whitespace()).arg("--config").arg(place.0.join("etc/dormouse.toml"));
    let Ok(out) = command.output() else {
        println!("skipped: no setpriv");
        return;
    };
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("setpriv:") {
        println!("skipped: {said}");
        return;
    }
    assert!(out.status.code() == Some(7) && said.contains("run it as root"), "{:?}: {said}", out.status);
}
