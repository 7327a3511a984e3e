//! Users of gateways that share a PostgreSQL database: who is added at one logs in at the other one, with the database and without it, and who is removed
//! at one is out at both.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, ensure};
use dormouse_cluster::admin::{Account, Admin, Owner};
use dormouse_interop::ends::{PATIENCE, peers};
use dormouse_io::entropy::OsEntropy;
use dormouse_testbed::postgres::{PROGRAMS, Postgres};
use dormouse_testbed::{Access, Dormoused, Extra, Host, Need, Roaming, SERVER, binary, require};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::File(PROGRAMS)];
const NAME: &str = "gateway.test";
const SECOND: &str = "203.0.113.5";
const DATABASE: &str = "postgres";
/// Exit code of a device that is refused: who it is.
const REFUSED: i32 = 4;

fn dormouse(host: &Host, arguments: &str) -> Result<String> {
    let out = host.command(binary("dormouse")).args(arguments.split_whitespace()).output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{arguments}: {said}");
    Ok(said)
}

/// Two gateways of one name and one authority; the device finds the second one.
struct Scene {
    world: Roaming,
    database: Postgres,
    gateways: [Dormoused; 2],
    /// Of the first one.
    config: PathBuf,
}

fn accounts(database: &Postgres) -> Result<[Account; 2]> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let owner = Owner { url: database.owner(DATABASE), password: None, authorities: Vec::new() };
    let made = runtime.block_on(async {
        let mut admin = Admin::connect(&owner).await?;
        admin.init(None).await?;
        Ok::<_, dormouse_cluster::Error>([
            admin.add_gateway("gw1", &mut OsEntropy).await?,
            admin.add_gateway("gw2", &mut OsEntropy).await?,
        ])
    })?;
    Ok(made)
}

/// The section `[cluster]` of a gateway, and its files.
fn section(host: &Host, number: usize, account: &Account, database: &Postgres) -> Result<String> {
    let secret = |name: &str, content: &[u8]| {
        let path = host.dir().join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        anyhow::Ok(path)
    };
    let key = secret("cluster.key", "2b".repeat(32).as_bytes())?;
    let password = secret("cluster.password", account.password.as_bytes())?;
    Ok(format!(
        "[cluster]\ndatabase = \"{}\"\nname = \"gw{number}\"\nkey_file = {key:?}\npassword_file = {password:?}\nca = {:?}\n",
        database.url(&account.user, DATABASE),
        database.authority(),
    ))
}

fn scene() -> Result<Scene> {
    let mut world = Roaming::new(62)?;
    let second = world.bed.host("gateway2")?;
    world.bed.link((&second, "wan", &["203.0.113.5/30"]), (&world.core, "to-g2", &["203.0.113.6/30"]))?;
    world.bed.link((&second, "lan", &["10.98.0.1/24"]), (&world.server, "eth1", &["10.98.0.2/24"]))?;
    second.ip("route add default via 203.0.113.6")?;
    second.ip("route add 10.99.0.0/24 via 10.98.0.2")?;
    world.attach(Access::A)?;
    world.device.etc("hosts", &format!("127.0.0.1 localhost\n{SECOND} {NAME}\n"))?;
    let dir = std::env::temp_dir().join(format!("dormouse-cluster-users-{}", world.gateway.netns()));
    let database = Postgres::start(&world.server, SERVER, &dir)?;
    let accounts = accounts(&database)?;
    let first = world.gateway.dir().join("made");
    let config = first.join("dormouse.toml");
    let init = format!("gateway init --passwords --name {NAME} --reach 10.99.0.0/24 --yes");
    dormouse(&world.gateway, &format!("{init} --config {}", config.display()))?;
    let text = fs::read_to_string(&config)?;
    // The second one has the same files, and no user of its own.
    let other = second.dir().join("made");
    second.sh(&format!("cp -a {} {}", first.display(), other.display()))?;
    let one = section(&world.gateway, 1, &accounts[0], &database)? + &text;
    fs::write(&config, &one)?;
    let moved = text.replace(&first.display().to_string(), &other.display().to_string());
    let two = section(&second, 2, &accounts[1], &database)? + &moved;
    // Its key comes as the service manager gives it.
    let file = format!("key_file = {:?}", second.dir().join("cluster.key"));
    ensure!(two.contains(&file), "{two}");
    let two = two.replace(&file, "key_file = \"credential:cluster.key\"");
    let directory = second.dir().display().to_string();
    let extra = Extra {
        environment: vec![("CREDENTIALS_DIRECTORY".to_owned(), directory)],
        user: "nobody".to_owned(),
        ..Extra::default()
    };
    let shown = format!("dns = \"off\"\nmetrics = {:?}", numbers(&world.gateway));
    let gateways = [
        Dormoused::start(&world.gateway, &shown, &one)?,
        Dormoused::start_with(&second, extra, "dns = \"off\"", &two)?,
    ];
    Ok(Scene { world, database, gateways, config })
}

/// Where a gateway shows its numbers.
fn numbers(host: &Host) -> PathBuf {
    host.dir().join("metrics.sock")
}

/// One of them.
fn number(host: &Host, name: &str) -> Result<Option<f64>> {
    let mut stream = UnixStream::connect(numbers(host))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let found = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(found.map(str::parse).transpose()?)
}

impl Scene {
    /// `dormouse user` at the first gateway.
    fn user(&self, arguments: &str) -> Result<String> {
        let socket = Dormoused::socket_in(&self.world.gateway);
        let config = self.config.display();
        dormouse(
            &self.world.gateway,
            &format!("--socket {} --json user {arguments} --config {config}", socket.display()),
        )
    }

    /// What `user add` or `renew` makes for a device that logs in with a password: the file, and one with the password.
    fn by_password(&self, verb: &str, user: &str, out: &str) -> Result<(PathBuf, PathBuf)> {
        let (file, secret) = (self.world.bed.dir().join(out), self.world.bed.dir().join(format!("{out}.pw")));
        let said = self.user(&format!("{verb} {user} --password --as dormouse --out {}", file.display()))?;
        let said: Value = serde_json::from_str(said.lines().next().context("an answer")?)?;
        fs::write(&secret, said["password"].as_str().context("a password")?)?;
        Ok((file, secret))
    }

    fn join(&self, (file, secret): (&Path, &Path)) -> Result<Dormoused> {
        let host = &self.world.device;
        let config = host.dir().join("joined/dormouse.toml");
        let (file, secret) = (file.display(), secret.display());
        let join = format!("join {file} --name vpn --passphrase-file {secret} --config {}", config.display());
        dormouse(host, &join)?;
        Dormoused::start(host, "dns = \"off\"", &fs::read_to_string(&config)?)
    }

    fn comes(&self, device: &Dormoused) -> Result<()> {
        let up = device.ok(&["wait", "vpn", "--timeout", "40"]);
        up.map(drop)
            .with_context(|| format!("device:\n{}\ngateway:\n{}", device.log(), self.gateways[1].log()))
    }

    /// Whoever is at the second gateway.
    fn until(&self, there: &[&str]) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while peers(&self.gateways[1])? != there {
            ensure!(Instant::now() < end, "not {there:?} in time\n{}", self.gateways[1].log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

#[test]
fn a_user_added_at_one_gateway_logs_in_at_the_other_one_until_he_is_removed() -> Result<()> {
    if !require("users of gateways that share a database", &NEEDS) {
        return Ok(());
    }
    let mut scene = scene()?;
    let (file, secret) = scene.by_password("add", "joe", "joe")?;
    scene.gateways[1].process().wait_for("users were changed", PATIENCE)?;
    let device = scene.join((&file, &secret))?;
    scene.comes(&device)?;
    scene.until(&["joe.gateway.test"])?;
    scene.world.device.sh(&format!("ping -c 2 -i 0.2 -W 5 {SERVER}"))?;

    // What the gateways say of the cluster.
    let at = |name: &str| number(&scene.world.gateway, name);
    let end = Instant::now() + PATIENCE;
    while at("dormouse_cluster_gateways{state=\"heard\"}")? != Some(2.0) {
        ensure!(Instant::now() < end, "two gateways are heard\n{}", scene.gateways[0].log());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(at("dormouse_cluster_gateways{state=\"silent\"}")?, Some(0.0));
    assert!(at("dormouse_cluster_round_trip_seconds")?.is_some_and(|trip| trip > 0.0));
    assert!(at("dormouse_cluster_ticket_key_age_seconds")?.is_some_and(|age| age >= 0.0));
    assert!(at("dormouse_cluster_ticket_keys")?.is_some_and(|keys| keys >= 1.0));

    // It is his also after a start of that gateway, and for one that is cut off from the database.
    device.ok(&["down", "vpn"])?;
    scene.gateways[1].process().kill();
    scene.gateways[1].restart()?;
    device.ok(&["up", "vpn"])?;
    scene.comes(&device)?;
    scene.database.kill();
    scene.gateways[1].process().wait_for("tickets are refused until", PATIENCE)?;
    device.ok(&["down", "vpn"])?;
    device.ok(&["up", "vpn"])?;
    scene.comes(&device)?;
    let refused = scene.user("remove joe").expect_err("nothing changes without it").to_string();
    ensure!(refused.contains("the database that the gateways share"), "{refused}");
    scene.database.go()?;
    for gateway in &mut scene.gateways {
        gateway.process().wait_for("the database is reached again", PATIENCE)?;
    }
    scene.until(&["joe.gateway.test"])?;

    // A reload reads this gateway's own file, in which he is not, and takes nobody away.
    scene.gateways[1].ok(&["reload"])?;
    scene.until(&["joe.gateway.test"])?;

    // Removed at the first one, where he never was.
    scene.user("remove joe")?;
    scene.until(&[])?;
    device.ok(&["down", "vpn"])?;
    let answer = device.cli(&["up", "vpn"])?;
    let answer = if answer.code == 0 { device.cli(&["wait", "vpn", "--timeout", "40"])? } else { answer };
    assert_eq!(answer.code, REFUSED, "{}\n{}\n{}", answer.text, device.log(), scene.gateways[1].log());
    assert!(peers(&scene.gateways[1])?.is_empty());
    Ok(())
}
