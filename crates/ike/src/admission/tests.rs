use super::*;
use crate::config::{IdentityPattern, LocalAuth, PeerPolicy, PeerRule, Role};
use dormouse_crypto::cert::TrustStore;

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

fn admission() -> Admission {
    Admission { fingerprint_key: Secret::from([9; 32]), ..Admission::default() }
}

fn by_psk(admission: &Admission, conn: &Connection, who: &Identity) -> Credential {
    admission.credential(conn, who, None, None)
}

#[test]
fn a_changed_key_a_narrowed_pattern_and_another_method_refuse_what_was_admitted() {
    let (admission, joe) = (admission(), id("joe@example.org"));
    let conn = gateway(b"the first secret");
    let shown = by_psk(&admission, &conn, &joe);
    let ask = |conn: &Connection, who: &Identity, shown: &Credential| {
        admission.admits(&Arc::new(conn.clone()), who, shown, NOW).map(|c| c.name.clone())
    };
    assert_eq!(ask(&conn, &joe, &shown), Ok("staff".into()));
    assert_eq!(ask(&conn, &id("ann@example.org"), &shown), Err(Refusal::Psk(id("ann@example.org"))));
    assert_eq!(ask(&gateway(b"the second secret"), &joe, &shown), Err(Refusal::Psk(joe.clone())));
    let renamed = Connection { name: "guests".into(), ..conn.clone() };
    assert_eq!(ask(&renamed, &joe, &shown), Err(Refusal::Psk(joe.clone())), "of another connection");
    let narrowed = Connection { remote_id: IdentityPattern::Exact(id("ann@example.org")), ..conn.clone() };
    assert!(matches!(ask(&narrowed, &joe, &shown), Err(Refusal::Identity { .. })));
    let shown_certificate = Shown::Certificates {
        fingerprint: [1; 32],
        names: Vec::new(),
        chain: Vec::new(),
        anchor: [1; 32],
        lenient: Lenient::default(),
    };
    let by_certificate = Credential { shown: shown_certificate, ppk: None };
    assert!(matches!(ask(&conn, &joe, &by_certificate), Err(Refusal::Method(..))));
    let client = Connection { role: Role::Initiator, ..conn };
    assert_eq!(ask(&client, &joe, &shown), Err(Refusal::Closed("staff".into())));
}

#[test]
fn a_denied_name_or_certificate_is_refused_with_every_proof() {
    let mut admission = admission();
    let (conn, joe) = (Arc::new(gateway(b"the first secret")), id("joe@example.org"));
    let shown = by_psk(&admission, &conn, &joe);
    admission.denials.insert("JOE@EXAMPLE.ORG".replace("JOE", "joe").parse().unwrap());
    assert_eq!(
        admission.admits(&conn, &joe, &shown, NOW).unwrap_err(),
        Refusal::Denied(Denial::Name(joe.clone()))
    );
    assert!(
        admission
            .admits(&conn, &id("ann@example.org"), &by_psk(&admission, &conn, &id("ann@example.org")), NOW)
            .is_ok()
    );
}

#[test]
fn the_first_rule_that_means_a_peer_counts() {
    let admission = admission();
    let mut conn = gateway(b"the first secret");
    let rule = |id, lifetime| {
        let mut theirs = gateway(b"the first secret");
        theirs.answering.policy.sessions = lifetime;
        PeerRule { id, connection: Arc::new(theirs) }
    };
    conn.answering.peers = vec![
        rule(IdentityPattern::Exact(id("joe@example.org")), 2),
        rule(IdentityPattern::Suffix("a.example.org".into()), 3),
    ];
    let sessions = |conn: &Connection, who: &str| {
        let shown = by_psk(&admission, conn, &id(who));
        admission
            .admits(&Arc::new(conn.clone()), &id(who), &shown, NOW)
            .map(|c| c.answering.policy.sessions)
            .map_err(|e| matches!(e, Refusal::NoEntry { .. }))
    };
    assert_eq!(sessions(&conn, "joe@example.org"), Ok(2));
    assert_eq!(sessions(&conn, "x.a.example.org"), Ok(3));
    assert_eq!(sessions(&conn, "ann@example.org"), Ok(PeerPolicy::default().sessions));
    conn.answering.peers_only = true;
    assert_eq!(sessions(&conn, "ann@example.org"), Err(true));
    assert_eq!(sessions(&conn, "joe@example.org"), Ok(2));
}

#[test]
fn what_was_looked_away_from_is_held_against_the_configuration_of_today() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["ca".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    let ca = dormouse_crypto::cert::Certificate::from_der(ca.der()).unwrap();
    let (anchor, trust) = (ca.fingerprint(), Arc::new(TrustStore::new(vec![ca]).unwrap()));
    let usages = [Usage::Ike, Usage::IkeOrServerAuth, Usage::IkeOrClientAuth];
    let each = || usages.into_iter().flat_map(|usage| [false, true].map(|sha1| (usage, sha1)));
    for (today, sha1_today) in each() {
        let remote_auth = RemoteAuth::Cert {
            trust: trust.clone(),
            usage: today,
            accept_rsa_sha1: sha1_today,
            revocation: Arc::default(),
        };
        let conn = Arc::new(Connection { remote_auth, ..gateway(b"a secret") });
        for (usage, sha1) in each() {
            let lenient = Lenient { usage, sha1, unasked: true };
            let (names, chain) = (Vec::new(), Vec::new());
            let shown = Shown::Certificates { fingerprint: [1; 32], names, chain, anchor, lenient };
            let credential = Credential { shown, ppk: None };
            let admitted = admission().admits(&conn, &id("joe@example.org"), &credential, NOW);
            let expected = (usage == Usage::Ike || usage == today) && (!sha1 || sha1_today);
            assert_eq!(admitted.is_ok(), expected, "{lenient:?} {today:?} {sha1_today}: {admitted:?}");
        }
    }
}
