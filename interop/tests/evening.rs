//! An evening's work: from installed programs to ten users of five kinds with traffic, by the commands that docs/administrator.md gives. `scripts/evening`
//! runs it and shows the table.

use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{another, peers};
use dormouse_interop::strongswan::{StrongSwan, skip};
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Roaming, SERVER, binary};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// What a user has at the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Our client, with the file of `user add`.
    OurFile,
    /// Our client, with a password.
    OurPassword,
    /// strongSwan, with the directory of `user add --as swanctl`.
    Swanctl,
    /// strongSwan, with a password.
    TheirPassword,
    /// Our client, with the profile of another one, of this form of `user add --as`.
    Profile(&'static str),
}

impl Kind {
    const fn what(self) -> &'static str {
        match self {
            Self::OurFile => "dormouse join FILE",
            Self::OurPassword => "dormouse, password",
            Self::Swanctl => "strongSwan, certificate",
            Self::TheirPassword => "strongSwan, password",
            Self::Profile(_) => "dormouse join, of a profile",
        }
    }
}

const USERS: [(&str, Kind); 10] = [
    ("ann", Kind::OurFile),
    ("bob", Kind::OurPassword),
    ("cem", Kind::Swanctl),
    ("dan", Kind::TheirPassword),
    ("eva", Kind::Profile("sswan")),
    ("fay", Kind::OurPassword),
    ("gus", Kind::Swanctl),
    ("hal", Kind::TheirPassword),
    ("ida", Kind::Profile("mobileconfig")),
    ("jon", Kind::Swanctl),
];

/// Pings of each user, all users at once.
const PINGS: u32 = 10;

/// The daemon of a user's device.
enum Client {
    Ours(Dormoused),
    Theirs(StrongSwan),
}

impl Client {
    fn log(&self) -> String {
        match self {
            Self::Ours(daemon) => daemon.log(),
            Self::Theirs(charon) => charon.log_tail(),
        }
    }

    /// Connects, or says why it cannot.
    fn connect(&self) -> Result<()> {
        match self {
            Self::Ours(daemon) => daemon.ok(&["up", "vpn"]).map(drop),
            Self::Theirs(charon) => charon.ctl(&["--initiate", "--child", "net"]).map(drop),
        }
    }
}

struct User {
    name: &'static str,
    kind: Kind,
    host: Host,
    client: Client,
}

/// The gateway of the evening, and where files for users are put.
struct Evening {
    world: Roaming,
    config: PathBuf,
}

impl Evening {
    /// `dormouse` with these arguments at the gateway, and with its configuration and daemon.
    fn administrator(&self, arguments: &str) -> Result<String> {
        let socket = Dormoused::socket_in(&self.world.gateway);
        let line = format!("--socket {} {arguments} --config {}", socket.display(), self.config.display());
        dormouse(&self.world.gateway, &line)
    }

    /// Where a file for a user goes.
    fn file(&self, name: &str) -> PathBuf {
        self.world.bed.dir().join(name)
    }

    /// What it answers as JSON.
    fn answer(&self, arguments: &str) -> Result<Value> {
        let said = self.administrator(&format!("--json {arguments}"))?;
        Ok(serde_json::from_str(said.lines().next().context("an answer")?)?)
    }

    /// A user with a password, and the password.
    fn password(&self, name: &str) -> Result<(String, String)> {
        let said = self.answer(&format!("user add {name} --password"))?;
        let of = |key: &str| said.get(key).and_then(Value::as_str).map(str::to_owned).context("no such key");
        Ok((of("user")?, of("password")?))
    }

    /// What the administrator makes for a user, and what the user does with it.
    fn client(&self, host: &Host, name: &str, kind: Kind) -> Result<Client> {
        let made = self.file(name);
        let out = made.display();
        let ca = self.config.with_file_name("ca.pem");
        match kind {
            Kind::OurFile => {
                self.administrator(&format!("user add {name} --out {out}"))?;
                let config = host.dir().join("joined/dormouse.toml");
                dormouse(host, &format!("join {out} --name vpn --config {}", config.display()))?;
                ours(host, &fs::read_to_string(config)?)
            }
            Kind::Profile(form) => {
                let said = self.answer(&format!("user add {name} --as {form} --out {out}"))?;
                let passphrase = said.get("passphrase").and_then(Value::as_str).context("a passphrase")?;
                let kept = host.dir().join("passphrase");
                secret_file(&kept, passphrase)?;
                let (config, kept) = (host.dir().join("joined/dormouse.toml"), kept.display());
                let join = format!("join {out} --name vpn --passphrase-file {kept}");
                dormouse(host, &format!("{join} --config {}", config.display()))?;
                ours(host, &fs::read_to_string(config)?)
            }
            Kind::OurPassword => {
                let (user, password) = self.password(name)?;
                let file = host.dir().join("password");
                secret_file(&file, &password)?;
                ours(
                    host,
                    &format!(
                        "[connection.vpn]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n\
                         [connection.vpn.local]\nid = \"{user}\"\nauth = \"eap-mschapv2\"\nuser = \"{user}\"\npassword_file = {file:?}\n\
                         [connection.vpn.remote]\nid = \"{GATEWAY}\"\nca = [{ca:?}]\n\
                         [connection.vpn.child]\nremote = [\"10.99.0.0/24\"]\n"
                    ),
                )
            }
            Kind::Swanctl => {
                self.administrator(&format!("user add {name} --as swanctl --out {out}"))?;
                let conf = fs::read_to_string(made.join(format!("conf.d/{name}.conf")))?;
                theirs(host, &conf, &credentials(&made)?)
            }
            Kind::TheirPassword => {
                let (user, password) = self.password(name)?;
                let conf = format!(
                    "connections {{ vpn {{ version = 2\n remote_addrs = {GATEWAY}\n vips = 0.0.0.0\n\
                     local {{ auth = eap-mschapv2\n eap_id = {user} }}\n remote {{ auth = pubkey\n id = {GATEWAY} }}\n\
                     children {{ net {{ remote_ts = 10.99.0.0/24 }} }} }} }}\n\
                     secrets {{ eap-1 {{ id = {user}\n secret = \"{password}\" }} }}\n"
                );
                theirs(host, &conf, &[("x509ca", ca)])
            }
        }
    }
}

fn dormouse(host: &Host, arguments: &str) -> Result<String> {
    let out = host.command(binary("dormouse")).args(arguments.split_whitespace()).output()?;
    let (said, refused) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(out.status.success(), "{arguments}: {said}{refused}");
    Ok(said.into_owned())
}

fn secret_file(path: &Path, content: &str) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(std::io::Write::write_all(&mut file, content.as_bytes())?)
}

fn ours(host: &Host, toml: &str) -> Result<Client> {
    Ok(Client::Ours(Dormoused::start(host, "dns = \"off\"", toml)?))
}

fn theirs(host: &Host, conf: &str, files: &[(&str, PathBuf)]) -> Result<Client> {
    Ok(Client::Theirs(StrongSwan::start(host, None, conf, files, "")?))
}

/// The files of a directory that `--as swanctl` has made, with the folder that each is in.
fn credentials(dir: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut found = Vec::new();
    for folder in ["x509", "x509ca", "private"] {
        for entry in fs::read_dir(dir.join(folder))? {
            found.push((folder, entry?.path()));
        }
    }
    Ok(found)
}

/// Starts a user's pings.
fn pings(host: &Host) -> Result<Child> {
    let line = format!("-c {PINGS} -i 0.2 -W 5 {SERVER}");
    Ok(host.command("ping").args(line.split(' ')).stdout(Stdio::piped()).spawn()?)
}

/// How many pings were answered.
fn answered(child: Child) -> Result<u32> {
    let out = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let received = said.split(", ").find_map(|part| part.strip_suffix(" received"));
    received.and_then(|n| n.parse().ok()).with_context(|| said.clone())
}

/// All users ping at once; how many answers each got.
fn traffic(users: &[User]) -> Result<Vec<u32>> {
    let running: Vec<Child> = users.iter().map(|user| pings(&user.host)).collect::<Result<_>>()?;
    running.into_iter().map(answered).collect()
}

#[test]
fn ten_users_of_five_kinds_are_in_the_vpn_by_the_commands_of_the_administrators_page() -> Result<()> {
    if skip("an evening's work") {
        return Ok(());
    }
    let mut world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let mut hosts = vec![world.device.clone()];
    for n in 1..USERS.len() {
        hosts.push(another(&mut world, &format!("device{n}"), 1 + u8::try_from(n)?)?.0);
    }
    let config = world.gateway.dir().join("made/dormouse.toml");
    let evening = Evening { world, config };
    let init = format!("gateway init --name {GATEWAY} --reach 10.99.0.0/24 --passwords --yes");
    evening.administrator(&init)?;
    let gateway =
        Dormoused::start(&evening.world.gateway, "dns = \"off\"", &fs::read_to_string(&evening.config)?)?;

    let mut users = Vec::new();
    for ((name, kind), host) in USERS.into_iter().zip(hosts) {
        let client = evening.client(&host, name, kind).with_context(|| format!("{name}, {kind:?}"))?;
        let user = User { name, kind, host, client };
        user.client
            .connect()
            .with_context(|| format!("{name}, {kind:?}\n{}\n{}", user.client.log(), gateway.log()))?;
        users.push(user);
    }
    println!("{} users are in; each sends {PINGS} pings, all at once:", users.len());
    let counts = traffic(&users)?;
    for (user, count) in users.iter().zip(&counts) {
        println!("  {:4} {:28} {count} answers", user.name, user.kind.what());
    }
    assert_eq!(counts, vec![PINGS; users.len()], "{}", gateway.log());
    assert_eq!(peers(&gateway)?.len(), users.len());

    // One of each kind leaves: at once and for good, and nobody else notices.
    let leavers: Vec<usize> = (0..5).collect();
    for user in leavers.iter().filter_map(|n| users.get(*n)) {
        evening.administrator(&format!("user remove {}", user.name))?;
    }
    let counts = traffic(&users)?;
    let expected: Vec<u32> = (0..users.len()).map(|n| if leavers.contains(&n) { 0 } else { PINGS }).collect();
    assert_eq!(counts, expected, "{}", gateway.log());
    for user in leavers.iter().filter_map(|n| users.get(*n)) {
        ensure!(user.client.connect().is_err(), "{} is in again", user.name);
    }
    println!("removed: {} of them, whom nothing lets in again; the others went on", leavers.len());
    Ok(())
}
