//! What a gateway puts on record: every kind of record is made by real daemons, none holds a secret, and no identity can look like another
//! record.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_crypto::Secret;
use dormouse_crypto::suites::Prf;
use dormouse_ike::Endpoint;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, IdentityPattern, LocalAuth, RemoteAuth};
use dormouse_interop::ends::{PATIENCE, inner};
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_testbed::{Access, Dormoused, Extra, GATEWAY, Host, Need, Roaming, SERVER, require};
use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
const SECRET: &str = "the secret that opens everything";

/// A gateway that writes its records into a file, as a user without privileges.
struct Recorded {
    gateway: Dormoused,
    world: Roaming,
    file: PathBuf,
}

impl Recorded {
    fn start(daemon: &str) -> Result<Self> {
        let world = Roaming::new(60)?;
        world.attach(Access::A)?;
        let file = world.gateway.dir().join("state/records.jsonl");
        let toml = format!(
            "[audit]\nto = {file:?}\n[connection.staff]\nrole = \"gateway\"\n[connection.staff.local]\nid = \"gateway.test\"\nsecret = \"{SECRET}\"\n\
             [connection.staff.remote]\nid = \"*\"\n[connection.staff.child]\nlocal = [\"10.99.0.0/24\"]\n\
             [connection.staff.pool]\naddresses = [\"10.55.0.0/24\"]\n"
        );
        let extra = Extra { user: "nobody".to_owned(), ..Extra::default() };
        let gateway =
            Dormoused::start_with(&world.gateway, extra, &format!("dns = \"off\"\n{daemon}"), &toml)?;
        Ok(Self { gateway, world, file })
    }

    fn client(&self, host: &Host, id: &str, secret: &str) -> Result<Dormoused> {
        // TOML understands the escapes of JSON.
        let id = Value::from(id).to_string();
        let toml = format!(
            "[sleep]\nradio = \"none\"\n[connection.staff]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n[connection.staff.local]\nid = {id}\n\
             secret = \"{secret}\"\n[connection.staff.remote]\nid = \"gateway.test\"\n[connection.staff.child]\nremote = [\"10.99.0.0/24\"]\n"
        );
        Dormoused::start(host, "dns = \"off\"", &toml)
    }

    fn all(&self) -> Result<Vec<Value>> {
        let text = match std::fs::read_to_string(&self.file) {
            // There is no file before the first record.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }

    /// The first record of an event that was not there among the first `after`, and how many there are with it.
    fn next(&self, event: &str, after: usize) -> Result<(Value, usize)> {
        let end = Instant::now() + PATIENCE;
        loop {
            let all = self.all()?;
            if let Some((i, found)) = all.iter().enumerate().skip(after).find(|(_, r)| r["event"] == event) {
                return Ok((found.clone(), i + 1));
            }
            if Instant::now() > end {
                bail!("no record of a {event} among {:#?}\n{}", all.get(after..), self.gateway.log());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[test]
fn each_kind_of_record_is_made_and_none_holds_a_secret() -> Result<()> {
    if !require("records of a gateway", &NEEDS) {
        return Ok(());
    }
    // A device that sleeps is left to its ticket.
    let it = Recorded::start("sleeper_limit = 0")?;
    let alice = it.client(&it.world.device, "alice.test", SECRET)?;
    alice.ok(&["up", "staff"])?;
    let (login, at) = it.next("login", 0)?;
    let address = inner(&alice)?.first().context("an address")?.to_string();
    for (field, value) in [
        ("connection", "staff"),
        ("identity", "alice.test"),
        ("identity_type", "fqdn"),
        ("method", "psk"),
        ("how", "full"),
    ] {
        assert_eq!(text(&login, field), value, "{login}");
    }
    assert_eq!(login["addresses"], serde_json::json!([address]), "{login}");
    assert!(text(&login, "from").starts_with("10.1.0.2:"), "{login}");
    assert!(login["at_unix"].as_f64().is_some_and(|at| at > 1.7e9), "{login}");

    let answer = it.gateway.cli(&["suspend"])?;
    assert!(answer.code == 2 && answer.text.contains("a gateway alone"), "{}: {}", answer.code, answer.text);
    it.world.device.sh(&format!("ping -c 3 -i 0.2 -W 2 {SERVER}"))?;
    it.world.attach(Access::B)?;
    it.world.detach(Access::A)?;
    let (moved, at) = it.next("address", at)?;
    assert!(
        text(&moved, "was").starts_with("10.1.0.2:") && text(&moved, "from").starts_with("198.51.100.6:"),
        "{moved}"
    );
    assert_eq!(text(&moved, "identity"), "alice.test");

    it.world.device.sh(&format!("ping -c 3 -i 0.2 -W 2 {SERVER}"))?;
    alice.ok(&["suspend"])?;
    let (end, at) = it.next("end", at)?;
    assert!(text(&end, "why").contains("comes back by ticket"), "{end}");
    for counter in ["packets_in", "packets_out"] {
        assert!(end[counter].as_u64().is_some_and(|n| n >= 6), "{end}");
    }
    assert!(end["bytes_in"].as_u64().is_some_and(|n| n >= 6 * 84) && end["seconds"].is_u64(), "{end}");
    alice.ok(&["resume"])?;
    it.world.device.sh(&format!("ping -c 3 -i 0.2 -W 2 {SERVER}"))?;
    let (resumption, at) = it.next("resumption", at)?;
    assert_eq!(
        (text(&resumption, "identity"), text(&resumption, "how")),
        ("alice.test", "quick"),
        "{resumption}"
    );
    assert_eq!(resumption["addresses"], serde_json::json!([address]));

    // Its ticket of now is none any more.
    it.gateway.ok(&["forget-tickets"])?;
    alice.ok(&["suspend"])?;
    let (_, at) = it.next("end", at)?;
    alice.ok(&["resume"])?;
    it.world.device.sh(&format!("ping -c 3 -i 0.2 -W 2 {SERVER}"))?;
    let (login, at) = it.next("login", at)?;
    assert_eq!(text(&login, "identity"), "alice.test", "{login}");

    it.gateway.ok(&["deny", "alice.test"])?;
    let (denial, _) = it.next("denial", at)?;
    assert_eq!((text(&denial, "whom"), denial["by_uid"].as_u64()), ("alice.test", Some(0)), "{denial}");
    let (end, _) = it.next("end", at)?;
    assert_eq!(text(&end, "why"), "its peer is no longer admitted", "{end}");
    let (refusal, _) = it.next("refusal", at)?;
    assert!(text(&refusal, "why").contains("alice.test is denied"), "{refusal}");
    it.gateway.ok(&["allow", "alice.test"])?;
    let (allowance, at) = it.next("allowance", at)?;
    assert_eq!((text(&allowance, "whom"), allowance["by_uid"].as_u64()), ("alice.test", Some(0)));

    let mut alice = alice;
    alice.ok(&["down", "staff"])?;
    alice.process().stop();
    let mallory = it.client(&it.world.device, "mallory.test", "a secret that somebody has guessed")?;
    assert_ne!(mallory.cli(&["up", "staff", "--timeout", "5"])?.code, 0);
    let (refusal, _) = it.next("refusal", at)?;
    assert_eq!(
        (text(&refusal, "identity"), text(&refusal, "identity_type")),
        ("mallory.test", "fqdn"),
        "{refusal}"
    );
    assert!(text(&refusal, "from").starts_with("198.51.100.6:"), "{refusal}");

    let written = std::fs::read_to_string(&it.file)?;
    for secret in [SECRET, "guessed"] {
        let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
        assert!(!written.contains(secret) && !written.contains(&hex), "{written}");
    }
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata(&it.file)?.mode() & 0o777, 0o600);
    // A file that was moved away is opened anew.
    let moved = it.file.with_extension("old");
    std::fs::rename(&it.file, &moved)?;
    it.gateway.ok(&["reload"])?;
    it.gateway.ok(&["deny", "mallory.test"])?;
    it.next("denial", 0)?;
    assert_eq!(it.all()?.len(), 1);
    Ok(())
}

#[test]
fn a_hostile_identity_makes_one_record_and_a_flood_of_refusals_is_counted() -> Result<()> {
    if !require("hostile identities on record", &NEEDS) {
        return Ok(());
    }
    let it = Recorded::start("")?;
    let forged = "\"},{\"event\":\"login\",\"identity\":\"root";
    for (id, said) in [
        (format!("evil{}", forged.replace(' ', "")), "evil"),
        ("CN=evil\n{\"event\":\"login\"}\u{1b}[31m".to_owned(), "CN="),
        (format!("keyid:{}", "0a".repeat(2_000)), "keyid:"),
    ] {
        let before = it.all()?.len();
        let mut evil = it.client(&it.world.device, &id, SECRET)?;
        evil.ok(&["up", "staff"]).map_err(|e| e.context(it.gateway.log()))?;
        let (login, _) = it.next("login", before)?;
        let name = text(&login, "identity");
        assert!(
            name.starts_with(said) && name.chars().count() <= 513 && !name.contains(char::is_control),
            "{login}"
        );
        evil.ok(&["down", "staff"])?;
        evil.process().stop();
        it.next("end", before)?;
        assert_eq!(it.all()?.len(), before + 2, "{:#?}", it.all()?);
    }
    // Refusals beyond the bound are counted by the next record.
    let before = it.all()?.len();
    let guess = it.client(&it.world.device, "guess.test", "a secret that somebody has guessed")?;
    for _ in 0..40 {
        let _ = guess.cli(&["up", "staff", "--timeout", "5"])?;
        guess.ok(&["down", "staff"])?;
    }
    it.gateway.ok(&["deny", "guess.test"])?;
    it.next("denial", before)?;
    let all = it.all()?;
    let new = all.get(before..).unwrap_or_default();
    let refusals = new.iter().filter(|r| r["event"] == "refusal").count();
    let suppressed: u64 = new.iter().filter_map(|r| r["suppressed"].as_u64()).sum();
    assert!(refusals as u64 + suppressed >= 40, "{refusals} and {suppressed}");
    assert!(suppressed > 0, "{refusals} refusals");
    Ok(())
}

/// A first message without a proposal that the gateway takes: it keeps no state for it, and so asks for no cookie.
fn unacceptable(path: Path) -> Result<Vec<u8>> {
    let secret = || Secret::from(&b"whatever it is"[..]);
    let (own, theirs) = (LocalAuth::Psk(secret()), RemoteAuth::Psk(secret()));
    let mut conn = Connection::new("flood", "flood.test".parse()?, own, IdentityPattern::Any, theirs);
    conn.ike_proposals.iter_mut().for_each(|proposal| proposal.prf = vec![Prf::HmacSha1]);
    let mut endpoint = Endpoint::new(EndpointConfig::default(), Box::new(Seeded::new(1)));
    endpoint.connect(dormouse_sansio::Instant::ZERO, Arc::new(conn), path);
    let mut bytes = Vec::new();
    endpoint.poll_transmit(dormouse_sansio::Instant::ZERO, &mut bytes).context("a first message")?;
    Ok(bytes)
}

#[test]
fn a_flood_of_refused_handshakes_neither_fills_the_log_nor_hides_who_is_known() -> Result<()> {
    if !require("a flood of refused handshakes", &NEEDS) {
        return Ok(());
    }
    let it = Recorded::start("")?;
    let alice = it.client(&it.world.device, "alice.test", SECRET)?;
    alice.ok(&["up", "staff"])?;
    let path = Path {
        local: "10.1.0.2:5500".parse()?,
        remote: SocketAddr::new(GATEWAY.parse()?, 500),
        carrier: Carrier::Ike,
    };
    let (first, lines) = (unacceptable(path)?, it.gateway.log().lines().count());
    let sent = it.world.device.within(move || -> Result<u32> {
        let socket = UdpSocket::bind(path.local)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut answers = 0;
        for _ in 0..2_000 {
            socket.send_to(&first, path.remote)?;
            answers += u32::from(socket.recv(&mut [0; 512])? > 0);
        }
        Ok(answers)
    })?;
    assert_eq!(sent.join().map_err(|_| anyhow::anyhow!("the thread panicked"))???, 2_000);
    let all = it.all()?;
    let refusals = |all: &[Value]| all.iter().filter(|r| r["event"] == "refusal").count();
    let strangers = refusals(&all);
    let said = it.gateway.log().lines().count() - lines;
    assert!((1..200).contains(&strangers) && said < 200, "{strangers} records, {said} lines");
    // Who has proved to be alice, and is denied, is on record all the same, and the login of before too.
    it.gateway.ok(&["deny", "alice.test"])?;
    let (refusal, _) = it.next("refusal", all.len())?;
    assert!(text(&refusal, "why").contains("alice.test is denied"), "{refusal}");
    let suppressed: u64 = it.all()?.iter().filter_map(|r| r["suppressed"].as_u64()).sum();
    assert!(strangers as u64 + suppressed >= 2_000, "{strangers} and {suppressed}");
    assert!(it.all()?.iter().any(|r| r["event"] == "login" && r["identity"] == "alice.test"));
    Ok(())
}
