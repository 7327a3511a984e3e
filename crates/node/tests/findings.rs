//! What `--check` and `doctor` find before it does harm, and what `remote.revocation` and `remote.crl` mean.

use dormouse_ike::config::{RemoteAuth, RevocationMode, RevocationPolicy};
use dormouse_node::config::file::Daemon;
use dormouse_node::config::{ConfigError, Resolved, findings, parse, resolve};
use dormouse_sansio::UnixTime;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, SerialNumber, date_time_ymd,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const DAY: u64 = 86_400;

type Files = BTreeMap<&'static str, Vec<u8>>;

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    params.not_before = date_time_ymd(2026, 5, 1);
    params.not_after = date_time_ymd(2026, 7, 1);
    params
}

fn files() -> Files {
    let mut ca = params("ca.test");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.not_after = date_time_ymd(2027, 1, 1);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().expect("a key")).expect("a CA");
    let key = KeyPair::generate().expect("a key");
    let own = params("gw.test").signed_by(&key, &ca).expect("a certificate");
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2026, 5, 1),
        next_update: date_time_ymd(2026, 7, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&ca).expect("a list");
    let text = |text: String| text.into_bytes();
    BTreeMap::from([
        ("ca", text(ca.pem())),
        ("own", text(own.pem())),
        ("key", text(key.serialize_pem())),
        ("crl", list.der().to_vec()),
    ])
}

fn read(files: &Files, toml: &str) -> Result<Vec<Resolved>, ConfigError> {
    let mut read = |path: &Path, _: bool| {
        let name = path.to_str().unwrap_or_default();
        files.get(name).cloned().ok_or_else(|| format!("{name}: not there"))
    };
    resolve(&parse(toml).expect("TOML"), &mut read)
}

fn certified(id: &str, remote: &str) -> String {
    format!(
        "[connection.a]\nrole = \"gateway\"\n[connection.a.local]\nid = \"{id}\"\ncertificate = \"own\"\nkey = \"key\"\n\
         [connection.a.remote]\nid = \"*\"\nca = [\"ca\"]\n{remote}\n"
    )
}

fn secret(role: &str, id: &str, secret: &str) -> String {
    let gateway = if role == "client" { "gateway = \"192.0.2.1\"" } else { "" };
    format!(
        "[connection.a]\nrole = \"{role}\"\n{gateway}\n[connection.a.local]\nid = \"gw.test\"\nsecret = \"{secret}\"\n\
         [connection.a.remote]\nid = \"{id}\"\n"
    )
}

#[test]
fn each_thing_is_found_at_its_key_and_nothing_is_found_where_all_is_well() {
    let files = files();
    let (long, short) = ("correct horse battery staple", "swordfish");
    let halves = "[connection.a.child]\nremote = [\"0.0.0.0/1\", \"128.0.0.0/1\", \"8000::/1\"]\n";
    let split = "[connection.a.child]\nremote = [\"8.8.8.0/24\"]\n";
    for (toml, at, expected) in [
        (certified("gw.test", ""), NOW, &[][..]),
        (certified("gw.test", ""), NOW + 20 * DAY, &[("local.certificate", false)]),
        (certified("gw.test", ""), NOW + 60 * DAY, &[("local.certificate", true)]),
        (certified("gw.test", ""), NOW - 60 * DAY, &[("local.certificate", true), ("remote.ca", false)]),
        (certified("gw.test", ""), NOW + 300 * DAY, &[("local.certificate", true), ("remote.ca", false)]),
        (certified("other.test", ""), NOW, &[("local.id", true)]),
        (secret("client", "gw.test", long), NOW, &[("child.remote", false)]),
        (secret("client", "gw.test", long) + halves, NOW, &[("child.remote", false)]),
        (secret("client", "gw.test", long) + &halves.replace("8000::/1", "10.20.0.0/16"), NOW, &[]),
        (secret("client", "gw.test", long).replace("role", "local_network = false\nrole"), NOW, &[]),
        (secret("client", "gw.test", short) + split, NOW, &[("local.secret", false)]),
        (secret("gateway", "joe.test", long), NOW, &[]),
        (secret("gateway", "*", long), NOW, &[("remote.id", false)]),
        (secret("gateway", "*.test", short), NOW, &[("local.secret", false), ("remote.id", false)]),
    ] {
        let connections = read(&files, &toml).expect("usable");
        let found = findings(&Daemon::default(), &connections, UnixTime(at));
        let keys: Vec<(&str, bool)> = found
            .iter()
            .map(|f| (f.key.strip_prefix("connection.a.").expect("the connection's"), f.fatal))
            .collect();
        assert_eq!(keys, expected, "{toml}{found:?}");
        assert!(found.iter().all(|f| !f.to_string().contains(short)), "no secret in words: {found:?}");
    }
}

#[test]
fn looking_for_packets_without_rest_is_warned_of_where_a_battery_may_pay_for_it() {
    let files = files();
    let long = "correct horse battery staple";
    for (role, spin, warned) in [
        ("client", "0", false),
        ("client", "\"50us\"", true),
        ("client", "50", true),
        ("gateway", "\"50us\"", false),
    ] {
        let split = "[connection.a.child]\nremote = [\"8.8.8.0/24\"]\n";
        let toml = format!("[daemon]\nspin = {spin}\n{}{split}", secret(role, "joe.test", long));
        let connections = read(&files, &toml).expect("usable");
        let daemon = parse(&toml).expect("usable").daemon;
        let found = findings(&daemon, &connections, UnixTime(NOW));
        let keys: Vec<(&str, bool)> = found.iter().map(|f| (&*f.key, f.fatal)).collect();
        let expected: &[(&str, bool)] = if warned { &[("daemon.spin", false)] } else { &[] };
        assert_eq!(keys, expected, "{toml}");
        assert!(found.iter().all(|f| f.to_string().contains("50us")), "{found:?}");
    }
}

#[test]
fn revocation_is_soft_unless_it_is_said_and_lists_are_files_or_http() {
    let files = files();
    let policy = |remote: &str| -> Result<Arc<RevocationPolicy>, ConfigError> {
        let resolved = read(&files, &certified("gw.test", remote))?;
        match &resolved.first().expect("one connection").ike.remote_auth {
            RemoteAuth::Cert { revocation, .. } => Ok(revocation.clone()),
            RemoteAuth::Psk(_) | RemoteAuth::Eap => panic!("certificates"),
        }
    };
    assert_eq!(policy("").map(|p| p.mode), Ok(RevocationMode::Soft));
    assert_eq!(policy("revocation = \"off\"").map(|p| p.mode), Ok(RevocationMode::Off));
    let both = policy("revocation = \"strict\"\ncrl = [\"crl\", \"http://ca.test/ca.crl\"]").expect("good");
    assert_eq!((both.mode, both.lists.len()), (RevocationMode::Strict, 1));
    assert_eq!(both.urls, ["http://ca.test/ca.crl"]);
    for (crl, why) in [
        ("ca", "holds CERTIFICATE"),
        ("nowhere", "not there"),
        ("https://ca.test/ca.crl", "no TLS"),
        ("ldap://ca.test/x", "only files and http"),
    ] {
        let error = policy(&format!("crl = [\"{crl}\"]")).expect_err(crl);
        assert_eq!(error.key, "connection.a.remote.crl[0]");
        assert!(error.problem.contains(why), "{error}");
    }
    let token = certified("gw.test", "").replace("key = \"key\"", "key = \"pkcs11:object=a\"");
    assert_eq!(read(&files, &token).expect_err("no tokens here").key, "connection.a.local.key");
}
