//! Authentication by certificate (RFC 7427): chains, identities, and what is not believed.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::{Pair, client_psk, fqdn, gateway_config, gateway_psk};
use dormouse_crypto::cert::{Certificate, Identity, TrustStore, Usage};
use dormouse_crypto::sign::{Scheme, Signer, SigningKey};
use dormouse_ike::admission::Denial;
use dormouse_ike::config::{Connection, IdentityPattern, LocalAuth, RemoteAuth, Resumption, Unique};
use dormouse_ike::work::{Beside, Done};
use dormouse_ike::{CloseReason, EndpointConfig, NegotiationError};
use dormouse_sansio::Instant;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SignatureAlgorithm};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

/// Days before (negative) or after the origin of the tests: [`common::EPOCH`] is in the morning of 2027-01-15.
fn validity(from: i64, to: i64) -> impl Fn(&mut CertificateParams) {
    move |params| {
        let origin = rcgen::date_time_ymd(2027, 1, 15);
        let days = |n: i64| Duration::from_secs(n.unsigned_abs() * 86_400);
        let at = |n: i64| if n < 0 { origin - days(n) } else { origin + days(n) };
        (params.not_before, params.not_after) = (at(from), at(to));
    }
}

fn authority(name: &str) -> Authority {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    validity(-10, 1_000)(&mut params);
    let certificate = params.self_signed(&key).expect("a certificate");
    let certificate = Certificate::from_der(certificate.der()).expect("readable");
    Authority { issuer: Issuer::new(params, key), certificate }
}

fn leaf(ca: &Authority, name: &str, algorithm: &'static SignatureAlgorithm, days: (i64, i64)) -> LocalAuth {
    let key = KeyPair::generate_for(algorithm).expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    validity(days.0, days.1)(&mut params);
    let certificate = params.signed_by(&key, &ca.issuer).expect("a certificate");
    LocalAuth::Cert {
        key: Arc::new(SigningKey::from_der(&key.serialize_der()).expect("a key")),
        chain: vec![certificate.der().to_vec()],
    }
}

fn trust(ca: &Authority) -> RemoteAuth {
    RemoteAuth::Cert {
        trust: Arc::new(TrustStore::new(vec![ca.certificate.clone()]).expect("a store")),
        usage: Usage::Ike,
        accept_rsa_sha1: false,
        revocation: Default::default(),
    }
}

fn pair_of(
    ca: &Authority,
    algorithm: &'static SignatureAlgorithm,
    change: impl FnOnce(&mut Connection, &mut Connection),
) -> Pair {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.local_auth = leaf(ca, "client.example.org", algorithm, (-1, 300));
    gateway.local_auth = leaf(ca, "gw.example.org", algorithm, (-1, 300));
    client.remote_auth = trust(ca);
    gateway.remote_auth = trust(ca);
    gateway.remote_id = IdentityPattern::Any;
    change(&mut client, &mut gateway);
    Pair::new(client, gateway, 1)
}

#[test]
fn every_kind_of_key() {
    let ca = authority("CA");
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
    ] {
        let mut pair = pair_of(&ca, algorithm, |_, _| {});
        pair.connect();
        pair.settle();
        let failure = pair
            .client
            .failure()
            .map(|e| e.to_string())
            .or(pair.gateway.peer_failure().map(|e| e.to_string()));
        let up = pair.gateway.established().unwrap_or_else(|| panic!("{algorithm:?}: {failure:?}"));
        assert_eq!(up.peer, fqdn("client.example.org"));
        pair.assert_agree();
    }
}

#[test]
fn a_psk_on_one_side_and_a_certificate_on_the_other() {
    let ca = authority("CA");
    let mut pair = pair_of(&ca, &rcgen::PKCS_ECDSA_P256_SHA256, |client, gateway| {
        client.local_auth = LocalAuth::Psk(common::psk());
        gateway.remote_auth = RemoteAuth::Psk(common::psk());
    });
    pair.up();
}

fn fails(name: &str, gateway_finds: bool, why: &str, change: impl FnOnce(&mut Connection, &mut Connection)) {
    let ca = authority("CA");
    let mut pair = pair_of(&ca, &rcgen::PKCS_ECDSA_P256_SHA256, change);
    pair.connect();
    pair.run_for(std::time::Duration::from_secs(10));
    let ours = pair.client.failure().unwrap_or_else(|| panic!("{name}: it must fail"));
    let text = if gateway_finds {
        assert!(matches!(ours, NegotiationError::RefusedByPeer { .. }), "{name}: {ours}");
        pair.gateway.peer_failure().expect("the log knows").to_string()
    } else {
        ours.to_string()
    };
    assert!(text.contains(why), "{name}: {text}");
    assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty(), "{name}");
    assert!(pair.client.endpoint.is_empty(), "{name}");
    assert!(pair.gateway.established().is_none() || !gateway_finds, "{name}");
}

#[test]
fn what_is_not_believed_says_why() {
    let other = authority("Other CA");
    let algorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
    fails("foreign client", true, "", |client, _| {
        client.local_auth = leaf(&other, "client.example.org", algorithm, (-1, 300));
    });
    fails("foreign gateway", false, "", |_, gateway| {
        gateway.local_auth = leaf(&other, "gw.example.org", algorithm, (-1, 300));
    });
    let ca = authority("CA");
    fails("identity not in the certificate", true, "client.example.org", |client, gateway| {
        client.local_auth = leaf(&ca, "somebody.example.org", algorithm, (-1, 300));
        gateway.remote_auth = trust(&ca);
    });
    fails("expired", true, "", |client, gateway| {
        client.local_auth = leaf(&ca, "client.example.org", algorithm, (-9, -1));
        gateway.remote_auth = trust(&ca);
    });
    fails("not configured", true, "client.example.org", |_, gateway| {
        gateway.remote_id = IdentityPattern::Exact(Identity::Fqdn("else.example.org".to_owned()));
    });
}

#[test]
fn a_disbelieved_gateway_is_told_and_drops_the_sa() {
    let other = authority("Other CA");
    let ca = authority("CA");
    let mut pair = pair_of(&ca, &rcgen::PKCS_ECDSA_P256_SHA256, |_, gateway| {
        gateway.local_auth = leaf(&other, "gw.example.org", &rcgen::PKCS_ECDSA_P256_SHA256, (-1, 300));
    });
    pair.connect();
    pair.settle();
    assert!(pair.client.failure().is_some());
    assert!(pair.gateway.endpoint.is_empty() && pair.gateway.children.is_empty());
}

const DAY: Duration = Duration::from_secs(86_400);

/// [`common::EPOCH`] is 28,800 s into its day; certificates end at midnight.
const TO_MIDNIGHT: Duration = Duration::from_secs(86_400 - 28_800);

/// A pair whose certificates last for these days after the first midnight. Its SAs are rekeyed meanwhile.
fn expiring(client_days: i64, gateway_days: i64) -> (Authority, Pair) {
    let ca = authority("CA");
    let algorithm = &rcgen::PKCS_ED25519;
    let pair = pair_of(&ca, algorithm, |client, gateway| {
        client.local_auth = leaf(&ca, "client.example.org", algorithm, (-1, client_days));
        gateway.local_auth = leaf(&ca, "gw.example.org", algorithm, (-1, gateway_days));
        client.resumption.mode = Resumption::Off;
    });
    (ca, pair)
}

#[test]
fn a_session_ends_with_the_certificate_of_its_peer() {
    for (client_days, gateway_days) in [(3, 300), (300, 3)] {
        let (_ca, mut pair) = expiring(client_days, gateway_days);
        pair.up();
        let end = DAY * 2 + TO_MIDNIGHT;
        pair.run_for(end - Duration::from_secs(1) - (pair.now - Instant::ZERO));
        assert_eq!(
            (pair.client.closed.len(), pair.client.children.len()),
            (1, 1),
            "renewed once, and not over yet"
        );
        assert_eq!(pair.client.closed[0].1, CloseReason::Replaced, "the client had tried to get a newer one");
        pair.assert_agree();
        let next = pair.client.endpoint.poll_timeout().expect("the end");
        assert_eq!(next.why, "certificate expiry");
        pair.run_for(Duration::from_secs(10));
        let reasons: Vec<CloseReason> = [&pair.client, &pair.gateway].map(|s| s.closed[1].1).into();
        assert!(reasons.contains(&CloseReason::CertificateExpired), "{reasons:?}");
        assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty());
        assert!(pair.client.endpoint.is_empty() && pair.gateway.endpoint.is_empty());
        // Whose certificate it was is what a new attempt says.
        pair.connect();
        pair.run_for(Duration::from_secs(10));
        assert!(pair.client.failure().is_some());
    }
}

#[test]
fn a_ticket_does_not_outlive_the_certificates_nor_does_what_it_brings_back() {
    let (_ca, mut pair) = expiring(3, 300);
    Arc::make_mut(&mut pair.conn).resumption.mode = Resumption::Strict;
    let (a, _) = pair.up();
    pair.run_for(DAY * 2);
    let ticket = pair.client.ticket.clone().expect("a ticket");
    assert!(ticket.expires <= ticket.vouched_until.expect("certificates"), "{ticket:?}");
    // The client comes back with nothing but the ticket.
    pair.client.endpoint.forget(pair.now, a);
    let path = pair.default_path();
    pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket, path);
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.gateway.children.len(), 1);
    pair.run_for(DAY);
    assert!(
        pair.client.children.is_empty() && pair.gateway.children.is_empty(),
        "it ends with the certificate all the same"
    );
}

#[test]
fn a_clock_that_is_set_moves_the_end() {
    let (_ca, mut pair) = expiring(300, 300);
    pair.up();
    let (now, later) = (pair.now, common::EPOCH + DAY * 299);
    for side in [&mut pair.client, &mut pair.gateway] {
        side.endpoint.set_wall_clock(now, later);
    }
    pair.run_for(DAY * 2);
    assert!(pair.client.endpoint.is_empty() && pair.gateway.endpoint.is_empty());
}

#[test]
fn a_renewed_certificate_is_used_at_once_beside_the_session_that_runs() {
    let (ca, mut pair) = expiring(3, 300);
    let (a, _) = pair.up();
    let mut renewed = pair.conn.as_ref().clone();
    renewed.local_auth = leaf(&ca, "client.example.org", &rcgen::PKCS_ED25519, (-1, 30));
    pair.client.endpoint.reconfigure(pair.now, Vec::new(), &[pair.conn.clone()]);
    pair.settle();
    assert_eq!(pair.client.closed, [], "nothing is new");
    pair.client.endpoint.reconfigure(pair.now, Vec::new(), &[Arc::new(renewed)]);
    pair.settle();
    let new = pair.client.established().expect("a second one");
    assert_eq!((new.replaced, pair.client.closed.as_slice()), (Some(a), &[(a, CloseReason::Replaced)][..]));
    pair.run_for(DAY * 20);
    assert!(
        !pair.client.children.is_empty() && !pair.gateway.children.is_empty(),
        "it outlives the old certificate"
    );
    pair.assert_agree();
}

/// A token that holds a key.
struct Token(SigningKey);

impl Signer for Token {
    fn sign(&self, scheme: Scheme, message: &[u8]) -> Option<Vec<u8>> {
        self.0.sign_fixed(scheme, message).or_else(|_| self.0.sign(scheme, message)).ok()
    }
}

/// Credentials with the key in a token.
fn in_token(auth: &mut LocalAuth, algorithm: &'static SignatureAlgorithm, ca: &Authority, name: &str) {
    let der = KeyPair::generate_for(algorithm).expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    validity(-1, 300)(&mut params);
    let certificate = params.signed_by(&der, &ca.issuer).expect("a certificate");
    let key = SigningKey::from_der(&der.serialize_der()).expect("a key");
    let public = key.public_key().clone();
    let key = SigningKey::elsewhere(public, Box::new(Token(key))).expect("they belong together");
    *auth = LocalAuth::Cert { key: Arc::new(key), chain: vec![certificate.der().to_vec()] };
}

/// Whether there was something to sign; signs it, or says that it took too long.
fn sign(pair: &mut Pair, client: bool, good: bool) -> bool {
    let side = if client { &mut pair.client } else { &mut pair.gateway };
    let Some((sa, order)) = side.order() else { return false };
    let done = if good { order.carry_out() } else { Done::late() };
    side.endpoint.done(pair.now, sa, done);
    pair.flush();
    pair.run_for(Duration::from_secs(1));
    true
}

#[test]
fn a_key_in_a_token_signs_while_the_exchange_waits() {
    let ca = authority("CA");
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256]
    {
        let mut pair = pair_of(&ca, algorithm, |client, gateway| {
            in_token(&mut client.local_auth, algorithm, &ca, "client.example.org");
            in_token(&mut gateway.local_auth, algorithm, &ca, "gw.example.org");
        });
        pair.connect();
        pair.run_for(Duration::from_secs(2));
        assert!(pair.log.iter().all(|d| d.bytes[18] != 35), "no IKE_AUTH without a signature");
        assert!(sign(&mut pair, true, true));
        pair.run_for(Duration::from_secs(3));
        assert!(pair.client.established().is_none(), "the gateway's token is slow too");
        assert!(sign(&mut pair, false, true));
        assert!(!sign(&mut pair, false, true), "repeated requests are signed for once");
        assert!(pair.client.established().is_some(), "{algorithm:?}: {:?}", pair.client.failure());
        pair.assert_agree();
    }
}

#[test]
fn a_gateway_has_its_slow_key_sign_beside_the_loop() {
    let ca = authority("CA");
    for (algorithm, slow) in [(&rcgen::PKCS_RSA_SHA256, true), (&rcgen::PKCS_ECDSA_P256_SHA256, false)] {
        let mut gateway = gateway_psk();
        gateway.local_auth = leaf(&ca, "gw.example.org", algorithm, (-1, 300));
        let mut client = client_psk();
        client.remote_auth = trust(&ca);
        let config = EndpointConfig { beside: Beside::slow(), ..gateway_config(gateway, 1) };
        let mut pair = Pair::with_configs(client, EndpointConfig::default(), config, 1);
        pair.connect();
        pair.run_for(Duration::from_secs(2));
        let early = pair.client.established();
        assert_eq!(early.is_none(), slow, "{algorithm:?}");
        assert_eq!(sign(&mut pair, false, true), slow, "{algorithm:?}");
        assert!(early.or_else(|| pair.client.established()).is_some(), "{:?}", pair.client.failure());
        pair.assert_agree();
    }
}

#[test]
fn a_token_that_does_not_sign_ends_the_exchange_with_that_reason() {
    let ca = authority("CA");
    let algorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
    for client in [true, false] {
        for answers in [true, false] {
            let mut pair = pair_of(&ca, algorithm, |device, gateway| {
                let (auth, name) = if client {
                    (&mut device.local_auth, "client.example.org")
                } else {
                    (&mut gateway.local_auth, "gw.example.org")
                };
                in_token(auth, algorithm, &ca, name);
            });
            pair.connect();
            pair.run_for(Duration::from_secs(1));
            if answers {
                assert!(sign(&mut pair, client, false));
            }
            pair.run_for(Duration::from_secs(60));
            let ours = pair.client.failure().expect("it fails");
            if client {
                assert!(matches!(ours, NegotiationError::CannotSign(_)), "{ours}");
            } else if answers {
                let why = pair.gateway.peer_failure().expect("the log knows").to_string();
                assert!(why.contains("in time"), "{why}");
            }
            assert!(pair.client.endpoint.is_empty() && pair.gateway.endpoint.is_empty());
        }
    }
}

/// One distinguished name: as the certificate has it, in other letters, and as another type of string.
fn spellings() -> [Identity; 3] {
    let name: Identity = "CN=client.example.org".parse().expect("a name");
    let Identity::Dn(mut der) = name.clone() else { panic!("{name}") };
    let tag = der.len() - "client.example.org".len() - 2;
    assert_eq!(std::mem::replace(&mut der[tag], 0x13), 0x0c, "a PrintableString in place of a UTF8String");
    [name, "CN=Client.EXAMPLE.org".parse().expect("a name"), Identity::Dn(der)]
}

#[test]
fn the_spellings_of_a_name_are_one_identity() {
    let ca = authority("CA");
    let [name, ..] = spellings();
    for psk in [false, true] {
        let mut pair = pair_of(&ca, &rcgen::PKCS_ED25519, |client, gateway| {
            client.initial_contact = false;
            gateway.answering.policy.unique = Unique::Never;
            gateway.answering.policy.sessions = 1;
            if psk {
                client.local_auth = LocalAuth::Psk(common::psk());
                gateway.remote_auth = RemoteAuth::Psk(common::psk());
                gateway.remote_id = IdentityPattern::Exact(name.clone());
            }
        });
        let (mut leases, mut holders) = (BTreeSet::new(), BTreeSet::new());
        for spelling in spellings() {
            pair.conn = Arc::new(Connection { local_id: spelling.clone(), ..(*pair.conn).clone() });
            let (a, b) = pair.up();
            for other in spellings() {
                let conn = Connection { local_id: other, ..(*pair.conn).clone() };
                let path = pair.default_path();
                pair.client.endpoint.connect(pair.now, Arc::new(conn), path);
                pair.settle();
                assert!(matches!(pair.gateway.peer_failure(), Some(NegotiationError::NotAdmitted(_))));
            }
            pair.client.events.clear();
            pair.gateway.events.clear();
            let ticket = pair.client.ticket.take().expect("a ticket");
            pair.client.endpoint.forget(pair.now, a);
            pair.gateway.endpoint.forget(pair.now, b);
            pair.flush();
            common::resumed::resume(&mut pair, &ticket);
            pair.run_for(Duration::from_secs(2));
            let back = pair.gateway.established().expect("resumed");
            assert_eq!(back.peer, name, "{spelling:?}");
            leases.insert(back.configuration.v4);
            holders.extend(pair.gateway.store.rows().map(|row| row.holder));
            let denial = Denial::Name(spelling);
            pair.gateway.endpoint.deny(pair.now, denial.clone());
            pair.settle();
            // What was refused is kept for repetitions.
            let endpoint = &pair.gateway.endpoint;
            assert_eq!((endpoint.len(), pair.gateway.store.rows().count()), (endpoint.half_open(), 0));
            pair.gateway.endpoint.allow(&denial);
            pair.client.events.clear();
        }
        assert_eq!((leases.len(), holders.len()), (1, 1), "psk {psk}");
    }
}

/// The certificate vouches for a host name and a distinguished name.
#[test]
fn the_denial_of_a_name_means_its_certificate_under_each_of_its_names() {
    let ca = authority("CA");
    for away in [false, true] {
        let mut pair = pair_of(&ca, &rcgen::PKCS_ED25519, |_, _| {});
        let (a, b) = pair.up();
        let ticket = pair.client.ticket.take().expect("a ticket");
        if away {
            pair.client.endpoint.forget(pair.now, a);
            pair.gateway.endpoint.forget(pair.now, b);
            pair.flush();
            pair.gateway.closed.clear();
        }
        let denial = Denial::Name("CN=Client.EXAMPLE.org".parse().expect("a name"));
        pair.gateway.endpoint.deny(pair.now, denial);
        pair.settle();
        let ended: &[_] = if away { &[] } else { &[(b, CloseReason::NotAdmitted)] };
        assert_eq!(pair.gateway.closed, ended);
        common::resumed::resume(&mut pair, &ticket);
        pair.settle();
        assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketRefused)));
        pair.connect();
        pair.settle();
        assert!(matches!(pair.client.failure(), Some(NegotiationError::RefusedByPeer { .. })));
    }
}
