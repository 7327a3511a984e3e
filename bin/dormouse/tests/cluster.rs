//! `dormouse cluster` and what `doctor` says of it, against a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use dormouse_cluster::{Database, Load, Settings};
use dormouse_crypto::Secret;
use dormouse_io::clock::unix_now;
use dormouse_sansio::Seeded;
use dormouse_testbed::postgres::{PROGRAMS, Postgres};
use dormouse_testbed::{Host, Need, Testbed, require};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DATABASE: &str = "postgres";
/// In the host of the server.
const ADDRESS: &str = "127.0.0.1";

struct Scene {
    host: Host,
    server: Postgres,
    dir: PathBuf,
    _bed: Testbed,
}

impl Scene {
    fn new(name: &str) -> Self {
        let mut bed = Testbed::new().unwrap();
        let host = bed.host("db").unwrap();
        let dir = std::env::temp_dir().join(format!("dormouse-cluster-{name}-{}", std::process::id()));
        let server = Postgres::start(&host, ADDRESS, &dir).unwrap();
        let dir = host.dir().to_owned();
        Self { host, server, dir, _bed: bed }
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        run_at(&self.host, arguments)
    }

    /// As the owner of the database.
    fn owner(&self, arguments: &str) -> (i32, String, String) {
        let url = self.server.owner(DATABASE);
        let mut all: Vec<&str> = vec!["cluster"];
        all.extend(arguments.split(' '));
        all.extend(["--database", &url]);
        self.run(&all)
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// The configuration of a gateway whose key is in this file.
    fn config(&self, key: &str) -> String {
        let text = format!(
            "[cluster]\ndatabase = \"{}\"\nname = \"gw1\"\nkey_file = \"{key}\"\npassword_file = \"{}\"\nca = \"{}\"\n\
            [connection.a]\nrole = \"gateway\"\n[connection.a.local]\nid = \"gw.test\"\n[connection.a.remote]\nid = \"*\"\n",
            self.server.url("dormouse_gw1", DATABASE),
            self.path("gw1/cluster.password"),
            self.server.authority().display(),
        );
        let path = self.path("gateway.toml");
        fs::write(&path, text).unwrap();
        path
    }

    fn settings(&self, key: &str) -> Settings {
        let digits = fs::read_to_string(key).unwrap();
        let password = fs::read_to_string(self.path("gw1/cluster.password")).unwrap();
        Settings {
            url: self.server.owner(DATABASE),
            password: Some(Secret::from(password.trim_end().as_bytes().to_vec())),
            authorities: Vec::new(),
            gateway: "gw1".into(),
            address: "gw.test".into(),
            key: Secret::from(hex::decode(digits.trim_end()).unwrap()),
        }
    }

    /// What `doctor` finds: name and outcome of each.
    fn doctor(&self, config: &str) -> Vec<(String, String)> {
        let (_, out, _) = self.run(&["--json", "--socket", "/nonexistent", "doctor", "--config", config]);
        let value: Value = serde_json::from_str(&out).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let checks = value["result"]["doctor"].as_array().unwrap_or_else(|| panic!("{out}"));
        checks.iter().map(|check| (text(&check["name"]), text(&check["outcome"]))).collect()
    }
}

fn run_at(host: &Host, arguments: &[&str]) -> (i32, String, String) {
    let output = host.command(env!("CARGO_BIN_EXE_dormouse")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn mode(path: &str) -> u32 {
    fs::metadata(Path::new(path)).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_administrator_makes_a_cluster_looks_at_it_and_takes_a_gateway_out() {
    if !require("dormouse cluster", &[Need::Root, Need::File(PROGRAMS)]) {
        return;
    }
    let scene = Scene::new("verbs");
    let key = scene.path("new/cluster.key");

    // The tables and the key, once.
    let (code, out, err) = scene.owner(&format!("init --key-file {key}"));
    assert!(
        code == 0 && out.contains("version 7, new; room for 4 gateways") && out.contains(", new. Every"),
        "{out}{err}"
    );
    assert_eq!(mode(&key), 0o600);
    let (code, out, _) = scene.owner(&format!("init --key-file {key}"));
    assert!(code == 0 && out.contains("as they were") && out.contains("as it was"), "{out}");

    // A gateway, whose password is shown only if that is asked for.
    let out_dir = scene.path("gw1");
    let (code, out, err) = scene.owner(&format!("add gw1 --out {out_dir} --key-file {key}"));
    let password = fs::read_to_string(scene.path("gw1/cluster.password")).unwrap();
    assert!(
        code == 0 && out.contains("[cluster]\n") && out.contains("postgresql://dormouse_gw1@"),
        "{out}{err}"
    );
    assert!(!out.contains(password.trim()) && mode(&scene.path("gw1/cluster.password")) == 0o600);
    let (code, _, err) = scene.owner(&format!("add gw1 --out {out_dir}"));
    assert!(code == 1 && err.contains("is there already"), "{err}");
    let (code, out, _) = scene.owner(&format!("add gw1 --out {out_dir} --key-file {key} --force --show"));
    let new = fs::read_to_string(scene.path("gw1/cluster.password")).unwrap();
    assert!(code == 0 && new != password && out.contains(new.trim()), "{out}");

    // By its own login; it has not joined, and looking does not make it.
    let config = scene.config(&key);
    let status = |scene: &Scene| {
        let (code, out, err) = scene.run(&["--json", "cluster", "status", "--config", &config]);
        (code, serde_json::from_str::<Value>(&out).unwrap_or_else(|_| panic!("{out}{err}")))
    };
    let (code, value) = status(&scene);
    assert_eq!(
        (code, &value["version"], value["gateways"].as_array().unwrap().len()),
        (0, &1.into(), 0),
        "{value}"
    );
    let found = scene.doctor(&config);
    for name in ["shared database", "its rights", "cluster key", "its clock", "other gateways"] {
        assert!(found.contains(&(name.into(), "ok".into())), "{name}: {found:?}");
    }

    // It joins, is heard, and makes a ticket key, which another cluster key does not open.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let now = unix_now();
    let mut gateway = runtime.block_on(async {
        let settings = Settings { url: scene.server.owner(DATABASE), password: None, ..scene.settings(&key) };
        let mut gateway = Database::join(&settings, 0).await.unwrap().0;
        gateway.ticket_keys(now, Duration::from_secs(86_400), &mut Seeded::new(1)).await.unwrap();
        gateway
    });
    assert_eq!(status(&scene).0, 0, "joining counts");
    scene.server.sql(DATABASE, "update dormouse.gateway set seen = seen - 31").unwrap();
    assert_eq!(status(&scene).0, 1, "it was not heard of late");
    runtime
        .block_on(gateway.beat(now, &Load { sessions: 3, sleepers: 4, spent: 30, ..Load::default() }))
        .unwrap();
    let (code, value) = status(&scene);
    let one = &value["gateways"][0];
    assert_eq!((code, &one["name"], &one["heard"]), (0, &"gw1".into(), &true.into()), "{value}");
    assert_eq!((&one["sessions"], &value["keys"][0]["phase"]), (&3.into(), &"seals".into()), "{value}");
    let other = scene.path("other.key");
    fs::write(&other, "0f".repeat(32)).unwrap();
    let found = scene.doctor(&scene.config(&other));
    assert!(found.contains(&("cluster key".into(), "failure".into())), "{found:?}");
    let (code, out, _) = scene.owner(&format!("init --key-file {}", scene.path("lost.key")));
    assert!(code == 0 && out.contains("not here") && !Path::new(&scene.path("lost.key")).exists(), "{out}");

    // A second gateway is made only with the authority of the others, and needs nothing else by hand.
    let place = scene.path("second");
    fs::create_dir_all(&place).unwrap();
    let init = format!(
        "gateway init --yes --name vpn.example.org --reach 10.1.0.0/16 --dns none --pool 10.77.0.0/16 --config {place}/dormouse.toml"
    );
    let join = format!(
        "{init} --join gw2 --database postgresql://owner:secret@db.example.org/vpn --key-file {key} --password-file {}",
        scene.path("gw1/cluster.password")
    );
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let run = |text: &str| scene.run(&words(text).iter().map(String::as_str).collect::<Vec<_>>());
    let (code, _, err) = run(&join);
    assert!(code == 1 && err.contains("ca/ca.key does not exist"), "{err}");
    let made = |name: &str| Path::new(&place).join(name).exists();
    assert!(!made("dormouse.toml") && !made("ca.pem") && !made("ca/ca.key"), "nothing was made");
    assert_eq!(run(&init).0, 0);
    let (code, out, err) = run(&format!("{join} --force"));
    let text = fs::read_to_string(format!("{place}/dormouse.toml")).unwrap();
    assert!(code == 0 && out.contains("dormouse doctor"), "{out}{err}");
    assert!(
        text.contains("postgresql://dormouse_gw2@db.example.org/vpn") && !text.contains("secret"),
        "{text}"
    );

    // While it runs, neither the number of slots changes nor its password without a word; then it goes.
    let (code, _, err) = scene.owner(&format!("init --gateways 8 --key-file {key}"));
    assert!(code == 2 && err.contains("stop gw1"), "{err}");
    let (code, _, err) = scene.owner(&format!("add gw1 --out {}", scene.path("again")));
    assert!(code == 1 && err.contains("has joined"), "{err}");
    let (code, _, err) = scene.owner("forget gw1");
    assert!(code == 2 && err.contains("--yes"), "{err}");
    let (code, out, _) = scene.owner("forget gw1 --yes");
    assert!(code == 0 && out.contains("is forgotten"), "{out}");
    assert_eq!(scene.owner("forget gw1 --yes").0, 2, "there is none");
    assert_eq!(scene.run(&["cluster", "status", "--config", &config]).0, 4, "its role is gone");
    drop((gateway, runtime));

    let nowhere = "postgresql://x@127.0.0.1:1/vpn";
    let (code, _, err) = scene.run(&["cluster", "status", "--database", nowhere]);
    assert!(code == 3 && err.contains("cannot be reached"), "{err}");
}

/// `gateway init --passwords` for two gateways that share a database; their directories.
fn two_gateways(scene: &Scene) -> [String; 2] {
    let key = scene.path("cluster.key");
    assert_eq!(scene.owner(&format!("init --key-file {key}")).0, 0);
    assert_eq!(scene.owner(&format!("add gw1 --out {} --key-file {key}", scene.path("gw1"))).0, 0);
    let [one, two] = ["one", "two"].map(|name| scene.path(name));
    let init = format!(
        "gateway init --yes --passwords --name vpn.example.org --reach 10.1.0.0/16 --dns none --pool 10.77.0.0/16 --config {one}/dormouse.toml"
    );
    let (code, out, err) = scene.run(&init.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 0, "{out}{err}");
    let text = fs::read_to_string(format!("{one}/dormouse.toml")).unwrap();
    let section = format!(
        "[cluster]\ndatabase = \"{}\"\nname = \"gw1\"\nkey_file = \"{key}\"\npassword_file = \"{}\"\nca = \"{}\"\n",
        scene.server.url("dormouse_gw1", DATABASE),
        scene.path("gw1/cluster.password"),
        scene.server.authority().display(),
    );
    assert!(scene.host.sh(&format!("cp -a {one} {two}")).is_ok());
    for dir in [&one, &two] {
        let text = format!("{section}{}", text.replace(&one, dir));
        fs::write(format!("{dir}/dormouse.toml"), text).unwrap();
    }
    [one, two]
}

#[test]
fn who_is_added_at_one_gateway_is_a_user_of_all_and_removed_at_another_is_one_of_none() {
    if !require("dormouse user in a cluster", &[Need::Root, Need::File(PROGRAMS)]) {
        return;
    }
    let scene = Scene::new("users");
    let host = scene.host.clone();
    let [one, two] = two_gateways(&scene);
    let user = |dir: &str, arguments: &str| {
        let line = format!("--json --socket /nonexistent user {arguments} --config {dir}/dormouse.toml");
        let (code, out, err) = run_at(&host, &line.split(' ').collect::<Vec<_>>());
        // In JSON an error is an answer.
        let said = format!("{err}{out}");
        (code, out, said)
    };
    let ok = |dir: &str, arguments: &str| {
        let (code, out, err) = user(dir, arguments);
        assert_eq!(code, 0, "{arguments}: {out}{err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let known = |dir: &str| {
        let list = ok(dir, "list");
        let names = |list: &Value| list.as_array().unwrap().clone();
        let users: Vec<Value> = names(&list["users"]).iter().map(|user| user["name"].clone()).collect();
        (users, names(&list["with_password"]))
    };
    let domain = "vpn.example.org";
    // One of a time before the database, in the first one's file.
    let file = format!("{one}/eap-users.toml");
    let head = fs::read_to_string(&file).unwrap();
    let old = format!("{head}\n[\"old.{domain}\"]\nnt_hash = \"8846f7eaee8fb117ad06bdd830b7586c\"\n");
    fs::write(&file, &old).unwrap();

    let out = scene.path("joe.dormouse");
    ok(&one, &format!("add joe --out {out}"));
    let password = ok(&one, "add ann --password")["password"].as_str().unwrap().to_owned();
    assert_eq!(known(&two), (vec!["joe".into()], vec![format!("ann.{domain}").into()]));
    assert_eq!(known(&one).1, [format!("ann.{domain}"), format!("old.{domain}")]);
    assert_eq!(fs::read_to_string(&file).unwrap(), old, "the database has it, and not the file");
    assert!(!Path::new(&format!("{one}/users/joe.toml")).exists());
    let dump =
        scene.server.sql(DATABASE, "select string_agg(content::text, ' ') from dormouse.user_entry").unwrap();
    assert!(!dump.contains(&password) && !dump.contains("PRIVATE"), "{dump}");
    // The other one knows whom there is, renews what was issued here, and both see it.
    for (line, said) in [("add joe", "there is a user joe already"), ("add ann --password", "already")] {
        let (code, _, err) = user(&two, line);
        assert!(code == 2 && err.contains(said), "{line}: {err}");
    }
    ok(&two, &format!("renew joe --out {}", scene.path("joe-2.dormouse")));
    assert_eq!(ok(&one, "show joe")["user"]["certificates"].as_array().unwrap().len(), 2);
    assert_ne!(ok(&two, "renew ann --password")["password"], password);

    // Removed there, unknown here; also one of the file of old. What was issued goes only with the daemon's denial.
    ok(&two, "remove ann");
    ok(&one, "remove old");
    assert_eq!(known(&one), (vec!["joe".into()], vec![]));
    assert_eq!(fs::read_to_string(&file).unwrap(), head);
    let (code, _, err) = user(&two, "remove joe");
    assert!(code == 3 && err.contains("is not removed, because the daemon is to refuse it"), "{err}");
    assert_eq!(known(&one).0, ["joe"]);
    // An export that fails leaves the record as it was, at both.
    let (code, _, err) = user(&two, &format!("renew joe --out {out}"));
    assert!(code == 1 && err.contains("is there already"), "{err}");
    assert_eq!(ok(&one, "show joe")["user"]["certificates"].as_array().unwrap().len(), 2);

    // Without the database nothing is looked up and nothing changes.
    scene.server.kill();
    for line in ["list", "add eve --password", "remove joe", "renew ann --password"] {
        let (code, out, err) = user(&one, line);
        assert!(
            code == 3 && err.contains("the database that the gateways share"),
            "{line}: {code} {out}{err}"
        );
    }
    let eve = scene.path("eve.dormouse");
    assert_eq!(user(&one, &format!("add eve --out {eve}")).0, 3);
    assert!(!Path::new(&eve).exists() && fs::read_to_string(&file).unwrap() == head);
}

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";

/// What a program prints, which must succeed.
fn printed(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// A token with an AES key; its configuration, and the URI of the key.
fn token(scene: &Scene, aes: &str) -> (String, String) {
    let (conf, pin) = (scene.path("softhsm2.conf"), scene.path("pin"));
    fs::create_dir(scene.path("tokens")).unwrap();
    fs::write(&conf, format!("directories.tokendir = {}\n", scene.path("tokens"))).unwrap();
    fs::write(&pin, "1234\n").unwrap();
    fs::set_permissions(&pin, fs::Permissions::from_mode(0o600)).unwrap();
    let init = "--init-token --free --label vpn --so-pin 87654321 --pin 1234".to_owned();
    let import = format!("--import {aes} --aes --token vpn --label cluster --id 01 --pin 1234");
    for line in [init, import] {
        printed(Command::new("softhsm2-util").args(line.split(' ')).env("SOFTHSM2_CONF", &conf));
    }
    let uri =
        format!("pkcs11:token=vpn;object=cluster;type=secret-key?pin-source=file:{pin}&module-path={MODULE}");
    (conf, uri)
}

/// The 64 digits that NIST SP 800-108 makes of an AES key in counter mode, as OpenSSL's AES-CMAC has them.
fn derived(scene: &Scene, aes: &[u8]) -> String {
    let block = |number: u8| {
        let input = [&[0, 0, 0, number][..], b"dormouse cluster key", &[0, 0, 0, 1, 0]].concat();
        let file = scene.path("block");
        fs::write(&file, input).unwrap();
        let hexkey = format!("hexkey:{}", hex::encode(aes));
        let line = ["mac", "-cipher", "AES-256-CBC", "-macopt", &hexkey, "-in", &file, "CMAC"];
        printed(Command::new("openssl").args(line)).trim().to_lowercase()
    };
    block(1) + &block(2)
}

#[test]
fn the_cluster_key_may_be_in_a_token_the_environment_or_a_credential() {
    let needs = [
        Need::Root,
        Need::File(PROGRAMS),
        Need::File(MODULE),
        Need::Program("softhsm2-util"),
        Need::Program("openssl"),
    ];
    if !require("the cluster key elsewhere", &needs) {
        return;
    }
    let scene = Scene::new("keys");
    let [one, _] = two_gateways(&scene);
    let (aes, at) = ([0x5c; 32], scene.path("aes"));
    fs::write(&at, aes).unwrap();
    let (conf, uri) = token(&scene, &at);
    let digits = derived(&scene, &aes);
    assert_eq!(digits.len(), 64);
    let credentials = scene.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(format!("{credentials}/cluster.key"), &digits).unwrap();
    let config = format!("{one}/dormouse.toml");
    let text = fs::read_to_string(&config).unwrap();
    let file = format!("\"{}\"", scene.path("cluster.key"));
    let run = |key: &str, environment: &[(&str, &str)], arguments: &str| {
        fs::write(&config, text.replace(&file, &format!("\"{key}\""))).unwrap();
        let mut command = scene.host.command(env!("CARGO_BIN_EXE_dormouse"));
        let line = format!("--json --socket /nonexistent {arguments} --config {config}");
        let out = command.args(line.split(' ')).envs(environment.iter().copied()).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8(out.stdout).unwrap())
    };
    let token = [("SOFTHSM2_CONF", conf.as_str())];
    let (code, out) = run(&uri, &token, "user add ann --password");
    assert_eq!(code, 0, "{out}");
    // What the token has derived is what anybody derives of the same key.
    let outcome = |key: &str, environment: &[(&str, &str)]| {
        let (_, out) = run(key, environment, "doctor");
        let value: Value = serde_json::from_str(&out).unwrap();
        let checks = value["result"]["doctor"].as_array().unwrap_or_else(|| panic!("{out}")).clone();
        checks.into_iter().find(|check| {
            check["name"] == "passwords of users"
                || (check["name"] == "shared database" && check["outcome"] != "ok")
        })
    };
    for (key, environment) in [
        (uri.as_str(), token),
        ("env:CLUSTER_KEY", [("CLUSTER_KEY", digits.as_str())]),
        ("credential:cluster.key", [("CREDENTIALS_DIRECTORY", credentials.as_str())]),
    ] {
        let check = outcome(key, &environment).unwrap();
        assert_eq!(
            (&check["name"], &check["outcome"]),
            (&"passwords of users".into(), &"ok".into()),
            "{key}: {check}"
        );
    }
    let check = outcome(&scene.path("cluster.key"), &[]).unwrap();
    assert_eq!(check["outcome"], "warning", "{check}");
    assert!(check["found"].as_str().unwrap().contains("ann.vpn.example.org"), "{check}");
    for (key, said) in [
        ("env:CLUSTER_KEY", "the environment has no variable CLUSTER_KEY"),
        ("credential:cluster.key", "/run/credentials/dormoused.service/cluster.key"),
        (&uri.replace("object=cluster", "object=other"), "cluster.key_file"),
    ] {
        let check = outcome(key, &token[..usize::from(key.starts_with("pkcs11"))]).unwrap();
        let found = check["found"].as_str().unwrap();
        assert!(check["outcome"] == "failure" && found.contains(said), "{key}: {check}");
    }
    let (code, _, err) = scene.owner("init --key-file env:CLUSTER_KEY");
    assert!(code == 2 && err.contains("the key is made in a file"), "{err}");
}
