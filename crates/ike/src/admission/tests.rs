use dormouse_crypto::Secret;
use dormouse_wire::codec::Reader;

use super::*;
use crate::config::{IdentityPattern, LocalAuth, PeerPolicy, PeerRule, Role};

const NOW: UnixTime = UnixTime(1_800_000_000);

fn id(name: &str) -> Identity {
    name.parse().unwrap()
}

fn gateway(secret: &[u8]) -> Connection {
    let psk = Secret::from(secret);
    let mut conn = Connection::new(
        "staff",
        id("gw.example.org"),
        LocalAuth::Psk(psk.clone()),
        IdentityPattern::Suffix("example.org".into()),
        RemoteAuth::Psk(psk),
    );
    conn.role = Role::Responder;
    conn
}

fn config() -> EndpointConfig {
    let admission = Admission { fingerprint_key: Secret::from([9; 32]), ..Admission::default() };
    EndpointConfig { admission, ..EndpointConfig::default() }
}

fn certified(serial: u8) -> Credential {
    let issued = |serial| Issued { issuer_key: [7; 32], serial: vec![serial] };
    let shown = Shown::Certificates {
        fingerprint: [serial; 32],
        names: vec![name(&id("joe@example.org")), name(&id("CN=Joe"))],
        chain: vec![issued(serial), issued(200)],
        anchor: [1; 32],
    };
    Credential { shown, ppk: None }
}

fn by_psk(config: &EndpointConfig, conn: &Connection, who: &Identity) -> Credential {
    config.credential(conn, who, None, None)
}

#[test]
fn a_credential_has_one_encoding() {
    let psk = Credential { shown: Shown::Psk([5; 16]), ppk: Some([6; 16]) };
    for credential in [psk, certified(3)] {
        let mut out = Out::new();
        credential.encode(&mut out);
        let bytes = out.into_vec();
        let mut r = In(Reader::new("credential", &bytes));
        assert_eq!(Credential::decode(&mut r).unwrap(), credential);
        r.0.all().unwrap();
        for cut in 0..bytes.len() {
            assert!(Credential::decode(&mut In(Reader::new("credential", &bytes[..cut]))).is_err(), "{cut}");
        }
    }
}

#[test]
fn a_changed_key_a_narrowed_pattern_and_another_method_refuse_what_was_admitted() {
    let (config, joe) = (config(), id("joe@example.org"));
    let conn = gateway(b"the first secret");
    let shown = by_psk(&config, &conn, &joe);
    let ask = |conn: &Connection, who: &Identity, shown: &Credential| {
        admits(&config, &Arc::new(conn.clone()), who, shown, NOW).map(|c| c.name.clone())
    };
    assert_eq!(ask(&conn, &joe, &shown), Ok("staff".into()));
    assert_eq!(ask(&conn, &id("ann@example.org"), &shown), Err(Refusal::Psk(id("ann@example.org"))));
    assert_eq!(ask(&gateway(b"the second secret"), &joe, &shown), Err(Refusal::Psk(joe.clone())));
    let renamed = Connection { name: "guests".into(), ..conn.clone() };
    assert_eq!(ask(&renamed, &joe, &shown), Err(Refusal::Psk(joe.clone())), "of another connection");
    let narrowed = Connection { remote_id: IdentityPattern::Exact(id("ann@example.org")), ..conn.clone() };
    assert!(matches!(ask(&narrowed, &joe, &shown), Err(Refusal::Identity { .. })));
    assert!(matches!(ask(&conn, &joe, &certified(1)), Err(Refusal::Method(..))));
    let client = Connection { role: Role::Initiator, ..conn };
    assert_eq!(ask(&client, &joe, &shown), Err(Refusal::Closed("staff".into())));
}

#[test]
fn a_denied_name_or_certificate_is_refused_whatever_proves_it() {
    let mut config = config();
    let (conn, joe) = (Arc::new(gateway(b"the first secret")), id("joe@example.org"));
    let shown = by_psk(&config, &conn, &joe);
    config.admission.denials.insert("JOE@EXAMPLE.ORG".replace("JOE", "joe").parse().unwrap());
    assert_eq!(
        admits(&config, &conn, &joe, &shown, NOW).unwrap_err(),
        Refusal::Denied(Denial::Name(joe.clone()))
    );
    assert!(
        admits(&config, &conn, &id("ann@example.org"), &by_psk(&config, &conn, &id("ann@example.org")), NOW)
            .is_ok()
    );
    assert!(Denial::Certificate([3; 32]).means(&joe, Some(&certified(3))));
    assert!(!Denial::Certificate([3; 32]).means(&joe, Some(&certified(4))));
    assert!(!Denial::Certificate([3; 32]).means(&joe, Some(&shown)));
    let named = |text| Denial::Name(id(text)).means(&id("laptop.example.org"), Some(&certified(3)));
    assert!(named("joe@example.org") && named("cn=JOE"), "another name of the same certificate");
    assert!(!named("ann@example.org"));
}

#[test]
fn fingerprints_are_read_in_every_common_notation() {
    let hex = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
    let colons: Vec<&str> = (0..32).map(|i| &hex[i * 2..i * 2 + 2]).collect();
    let written = Denial::from_str(hex).unwrap();
    let Denial::Certificate(bytes) = &written else { panic!("{written}") };
    assert_eq!((bytes[1], bytes[31]), (0x11, 0xff));
    for text in [
        colons.join(":"),
        colons.join(" "),
        format!("sha256:{hex}"),
        format!("SHA256 Fingerprint={}", colons.join(":")),
        format!("sha256 Fingerprint={}", colons.join(":")),
        written.to_string(),
    ] {
        assert_eq!(text.parse(), Ok(written.clone()), "{text}");
    }
    assert_eq!("abcdef.example.org".parse(), Ok(Denial::Name(id("abcdef.example.org"))));
    let address = "2001:0db8:85a3:0000:0000:8a2e:0370:7334";
    assert_eq!(address.parse(), Ok(Denial::Name(id(address))));
    for text in [
        hex[..62].to_owned(),
        format!("{hex}0"),
        hex[..40].to_owned(),
        colons[..31].join(":"),
        format!("sha256:{}", &hex[..8]),
        format!("SHA256 Fingerprint={}x", &hex[..63]),
        "sha256:joe.example.org".to_owned(),
    ] {
        let error = text.parse::<Denial>().expect_err("no name either").to_string();
        assert!(error.contains("64 hexadecimal digits"), "{error}");
    }
}

#[test]
fn the_first_rule_that_means_a_peer_counts() {
    let config = config();
    let mut conn = gateway(b"the first secret");
    let rule = |id, lifetime| {
        let policy = PeerPolicy { sessions: lifetime, ..PeerPolicy::default() };
        PeerRule { id, connection: Arc::new(Connection { policy, ..gateway(b"the first secret") }) }
    };
    conn.peers = vec![
        rule(IdentityPattern::Exact(id("joe@example.org")), 2),
        rule(IdentityPattern::Suffix("a.example.org".into()), 3),
    ];
    let sessions = |conn: &Connection, who: &str| {
        let shown = by_psk(&config, conn, &id(who));
        admits(&config, &Arc::new(conn.clone()), &id(who), &shown, NOW)
            .map(|c| c.policy.sessions)
            .map_err(|e| matches!(e, Refusal::NoEntry { .. }))
    };
    assert_eq!(sessions(&conn, "joe@example.org"), Ok(2));
    assert_eq!(sessions(&conn, "x.a.example.org"), Ok(3));
    assert_eq!(sessions(&conn, "ann@example.org"), Ok(PeerPolicy::default().sessions));
    conn.peers_only = true;
    assert_eq!(sessions(&conn, "ann@example.org"), Err(true));
    assert_eq!(sessions(&conn, "joe@example.org"), Ok(2));
}
