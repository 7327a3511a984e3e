//! A device renews its certificate through the tunnel, at a gateway that `dormouse gateway init` has made, and whose daemon is no root: what the shipped units
//! start is started here with the rights that they leave.

use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::another;
use dormouse_testbed::{
    Access, Dormoused, Extra, GATEWAY, Host, Need, Process, Roaming, SERVER, binary, require,
};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NEEDS: [Need; 5] = [
    Need::Root,
    Need::File("/dev/net/tun"),
    Need::Program("nft"),
    Need::Program("openssl"),
    Need::Program("setpriv"),
];
/// Where the gateway renews: what `init` chooses.
const AT: &str = "10.10.0.1:4510";
const PATIENCE: Duration = Duration::from_secs(20);

fn dormouse(host: &Host, arguments: &str) -> Result<(i32, String)> {
    let out = host.command(binary("dormouse")).args(arguments.split_whitespace()).output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    Ok((out.status.code().context("it was killed")?, said))
}

fn ok(host: &Host, arguments: &str) -> Result<String> {
    let (code, said) = dormouse(host, arguments)?;
    ensure!(code == 0, "{arguments}: {said}");
    Ok(said)
}

/// The gateway and what runs there.
struct Gateway {
    world: Roaming,
    daemon: Dormoused,
    config: PathBuf,
    records: PathBuf,
}

impl Gateway {
    fn new() -> Result<Self> {
        let world = Roaming::new(60)?;
        world.attach(Access::A)?;
        let host = &world.gateway;
        let config = host.dir().join("made/dormouse.toml");
        let init = format!(
            "gateway init --name {GATEWAY} --reach 10.99.0.0/24 --pool 10.10.0.0/24 --dns none --yes"
        );
        let said = ok(host, &format!("{init} --config {}", config.display()))?;
        ensure!(
            said.contains(&format!("renew their certificates at {AT}, inside the tunnel alone")),
            "{said}"
        );
        let records = PathBuf::from(format!("/tmp/dormouse-renewal-{}.records", std::process::id()));
        let audit = format!("[audit]\nto = {records:?}\n");
        let extra = Extra { user: "nobody".to_owned(), ..Extra::default() };
        fs::write(&records, "")?;
        std::os::unix::fs::chown(&records, Some(65534), Some(65534))?;
        let text = fs::read_to_string(&config)?;
        let daemon = Dormoused::start_with(host, extra, "dns = \"off\"", &format!("{audit}{text}"))?;
        Ok(Self { world, daemon, config, records })
    }

    fn socket(&self) -> String {
        Dormoused::socket_in(&self.world.gateway).display().to_string()
    }

    /// `dormouse user` there.
    fn user(&self, arguments: &str) -> Result<String> {
        let line = format!("--socket {} user {arguments} --config {}", self.socket(), self.config.display());
        ok(&self.world.gateway, &line)
    }

    /// What dormouse-renewals.service starts: root without a capability.
    fn service(&self) -> Result<Process> {
        let mut command = self.world.gateway.command("setpriv");
        command.args(["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]).arg(binary("dormouse"));
        command.args(["--socket", &self.socket(), "gateway", "renewals", "--config"]).arg(&self.config);
        let log = self.world.gateway.dir().join("renewals.log");
        let mut process = Process::spawn("renewals", &mut command, &log)?;
        process.wait_for(&format!("certificates are renewed at {AT}"), PATIENCE)?;
        Ok(process)
    }

    fn device(&self, host: &Host, name: &str) -> Result<Device> {
        let file = self.world.bed.dir().join(format!("{name}.dormouse"));
        self.user(&format!("add {name} --days 30 --out {}", file.display()))?;
        let config = host.dir().join("joined/dormouse.toml");
        ok(host, &format!("join {} --name vpn --config {}", file.display(), config.display()))?;
        let text = fs::read_to_string(&config)?;
        ensure!(text.contains(&format!("[connection.vpn.renewals]\nat = \"{AT}\"\n")), "{text}");
        let daemon = Dormoused::start(host, "dns = \"off\"", &text)?;
        let up = daemon.ok(&["wait", "vpn", "--timeout", "40"]);
        up.with_context(|| format!("{}\n{}", daemon.log(), self.daemon.log()))?;
        Ok(Device { host: host.clone(), daemon, dir: config.with_file_name("") })
    }

    /// The records of this event, oldest first.
    fn records(&self, event: &str) -> Result<Vec<Value>> {
        let all = fs::read_to_string(&self.records)?;
        let all: Vec<Value> = all.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(all.into_iter().filter(|r| r.get("event").and_then(Value::as_str) == Some(event)).collect())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.records);
    }
}

struct Device {
    host: Host,
    daemon: Dormoused,
    dir: PathBuf,
}

impl Device {
    fn renew(&self, more: &str) -> Result<(i32, String)> {
        let socket = Dormoused::socket_in(&self.host);
        let config = self.dir.join("dormouse.toml");
        dormouse(
            &self.host,
            &format!("--socket {} renew {more} --config {}", socket.display(), config.display()),
        )
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.dir.join(name);
        fs::read(&path).with_context(|| path.display().to_string())
    }

    /// Key and certificate.
    fn pair(&self) -> Result<[Vec<u8>; 2]> {
        Ok([self.read("vpn.key")?, self.read("vpn.pem")?])
    }

    /// What the gateway answers to a request of another client of EST (openssl), which shows the key and certificate in `of`.
    fn other_client(&self, of: &Path, request: &str) -> Result<String> {
        let place = of.display();
        let script = format!(
            "set -e; cd {dir}; openssl ecparam -genkey -name prime256v1 -out other.key 2>/dev/null; \
             openssl req -new -key other.key {request} -outform DER | openssl base64 > other.req; \
             {{ printf 'POST /.well-known/est/simplereenroll HTTP/1.1\\r\\nHost: gw\\r\\nContent-Type: application/pkcs10\\r\\n\
             Content-Length: %s\\r\\n\\r\\n' $(wc -c < other.req); cat other.req; sleep 3; }} | \
             timeout 20 openssl s_client -quiet -tls1_3 -connect {AT} -cert {place}/vpn.pem -key {place}/vpn.key \
             -CAfile {dir}/vpn.ca.pem -verify_return_error 2>/dev/null || true",
            dir = self.dir.display()
        );
        self.host.sh(&script)
    }
}

fn fingerprint(pem: &Path, host: &Host) -> Result<String> {
    let said = host.sh(&format!("openssl x509 -in {} -noout -fingerprint -sha256", pem.display()))?;
    let (_, digits) = said.trim().split_once('=').context("a fingerprint")?;
    Ok(digits.replace(':', "").to_ascii_lowercase())
}

#[test]
fn a_device_renews_its_certificate_through_the_tunnel_and_nobody_else_gets_one() -> Result<()> {
    if !require("renewal through the tunnel", &NEEDS) {
        return Ok(());
    }
    let mut gateway = Gateway::new()?;
    let (at_ann, _) = another(&mut gateway.world, "ann", 2)?;
    let mut service = gateway.service()?;
    let joe = gateway.device(&gateway.world.device.clone(), "joe")?;
    let log = |gateway: &Gateway, service: &Process| format!("{}\n{}", service.log(), gateway.daemon.log());

    let (code, said) = joe.renew("--if-due")?;
    ensure!(code == 0 && said.contains("vpn: not due, until "), "{said}");
    let before = joe.pair()?;
    let (code, said) = joe.renew("")?;
    ensure!(code == 0, "{said}{}\n{}", log(&gateway, &service), joe.daemon.log());
    let after = joe.pair()?;
    ensure!(before[0] != after[0] && before[1] != after[1], "a new key and a new certificate");
    assert_eq!([joe.read("vpn.key.old")?, joe.read("vpn.pem.old")?], before);
    for name in ["vpn.key", "vpn.key.old"] {
        assert_eq!(fs::metadata(joe.dir.join(name))?.permissions().mode() & 0o777, 0o600);
    }
    let own = fingerprint(&joe.dir.join("vpn.pem"), &joe.host)?;
    let shown = gateway.user("show joe")?;
    ensure!(shown.contains(&own) && shown.matches("sha256:").count() == 2, "{shown}");
    let renewed = gateway.records("renewal")?;
    let of = |key: &str| renewed.first().and_then(|r| r.get(key)?.as_str()).unwrap_or_default().to_owned();
    assert_eq!((of("fingerprint"), of("identity")), (own.clone(), "joe.devices.internal".into()));
    ensure!(of("from").starts_with("10.10.0."), "{renewed:?}");

    // It goes on, and comes again by the new one.
    joe.host.sh(&format!("ping -c 2 -i 0.2 -W 5 {SERVER}"))?;
    joe.daemon.ok(&["down", "vpn"])?;
    joe.daemon.ok(&["up", "vpn"])?;
    joe.daemon.ok(&["wait", "vpn", "--timeout", "40"]).with_context(|| joe.daemon.log())?;
    let logins = gateway.records("login")?;
    let last = logins.last().and_then(|r| r.get("fingerprint")?.as_str()).unwrap_or_default();
    assert_eq!(last, own, "the login after it shows the new certificate");

    // Another client of EST, which names nothing; and one that would be somebody else.
    let answer = joe.other_client(&joe.dir, "-subj /")?;
    ensure!(
        answer.contains("200 OK") && answer.contains("smime-type=certs-only"),
        "{answer}\n{}",
        service.log()
    );
    let (_, body) = answer.split_once("\n\r\n").or_else(|| answer.split_once("\n\n")).context("a body")?;
    fs::write(joe.dir.join("other.p7"), body)?;
    let read = "openssl base64 -d -in other.p7 | openssl pkcs7 -inform DER -print_certs -text -noout";
    let text = joe.host.sh(&format!("cd {}; {read}", joe.dir.display()))?;
    ensure!(text.contains("DNS:joe.devices.internal"), "{text}");
    let answer = joe.other_client(&joe.dir, "-subj /CN=ann.devices.internal")?;
    ensure!(answer.contains("403 Forbidden") && answer.contains("another name"), "{answer}");
    // Joe's certificate and key from ann's address.
    let ann = gateway.device(&at_ann, "ann")?;
    let answer = ann.other_client(&joe.dir, "-subj /")?;
    ensure!(answer.contains("and the address that asks is ann.devices.internal's"), "{answer}");
    let refusals = gateway.records("refusal")?;
    ensure!(
        refusals.iter().any(|r| r.to_string().contains("renewal: the certificate is for")),
        "{refusals:?}"
    );

    // Outside the tunnel nobody answers, though the neighbour knows the way to the address.
    let connect = |host: &Host| host.sh(&format!("timeout 3 bash -c '</dev/tcp/{}'", AT.replace(':', "/")));
    connect(&ann.host)?;
    gateway.world.core.ip(&format!("route add 10.10.0.1 via {GATEWAY}"))?;
    ensure!(connect(&gateway.world.core).is_err(), "a stranger was let in");

    // Nobody there: everything stays as it was.
    service.stop();
    let before = joe.pair()?;
    let (code, said) = joe.renew("vpn")?;
    ensure!(code == 1 && said.contains("systemctl status dormouse-renewals"), "{code}: {said}");
    assert_eq!(joe.pair()?, before);
    let _service = gateway.service()?;

    // Removed: no session, no renewal, and nothing that was issued counts.
    let said = gateway.user("remove joe")?;
    ensure!(said.contains("3 certificate(s) denied"), "{said}");
    let (code, said) = joe.renew("")?;
    ensure!(code != 0, "{said}");
    assert_eq!(joe.pair()?, before);
    joe.daemon.ok(&["down", "vpn"])?;
    assert_eq!(joe.daemon.cli(&["up", "vpn", "--timeout", "40"])?.code, 4, "{}", joe.daemon.log());
    let (code, said) = ann.renew("")?;
    ensure!(code == 0, "{said}");
    Ok(())
}
