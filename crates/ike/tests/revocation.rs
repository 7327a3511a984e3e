//! Revoked certificates: who is refused by which policy, who waits, and which sessions end.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Pair, Side, client_psk, gateway_psk};
use dormouse_crypto::cert::{Certificate, TrustStore, Usage};
use dormouse_crypto::sign::SigningKey;
use dormouse_ike::config::{
    Connection, IdentityPattern, LocalAuth, PeerRule, RemoteAuth, RevocationMode, RevocationPolicy, Role,
    Unique,
};
use dormouse_ike::limits::HANDSHAKES_WAITING;
use dormouse_ike::{CloseReason, Event, NegotiationError};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CrlDistributionPoint,
    CustomExtension, IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, SignatureAlgorithm,
};

const URL: &str = "http://ca.example.org/ca.crl";
const CLIENT: u64 = 5;
const GATEWAY: u64 = 6;
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    trust: Arc<TrustStore>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2027, 1, 1);
    params.not_after = rcgen::date_time_ymd(2028, 1, 1);
    params
}

fn authority() -> Authority {
    let (key, mut params) = (KeyPair::generate().expect("a key"), params("CA"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("a certificate");
    let certificate = Certificate::from_der(certificate.der()).expect("readable");
    let trust = Arc::new(TrustStore::new(vec![certificate]).expect("a store"));
    Authority { issuer: Issuer::new(params, key), trust }
}

impl Authority {
    fn leaf(&self, name: &str, serial: u64, url: bool, algorithm: &'static SignatureAlgorithm) -> LocalAuth {
        self.leaf_with(name, serial, algorithm, |params| {
            if url {
                params.crl_distribution_points = vec![CrlDistributionPoint { uris: vec![URL.to_owned()] }];
            }
        })
    }

    fn leaf_with(
        &self,
        name: &str,
        serial: u64,
        algorithm: &'static SignatureAlgorithm,
        change: impl FnOnce(&mut CertificateParams),
    ) -> LocalAuth {
        let (key, mut params) = (KeyPair::generate_for(algorithm).expect("a key"), params(name));
        params.serial_number = Some(SerialNumber::from(serial));
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        LocalAuth::Cert {
            key: Arc::new(SigningKey::from_der(&key.serialize_der()).expect("a key")),
            chain: vec![certificate.der().to_vec()],
        }
    }

    /// A list that was made `at` after the origin of the tests and is good for a day.
    fn list(&self, serials: &[u64], at: Duration) -> Vec<u8> {
        let this_update = rcgen::date_time_ymd(2027, 1, 15) + 8 * HOUR + at;
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update,
            next_update: this_update + DAY,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("a list").der().to_vec()
    }

    fn remote(&self, mode: RevocationMode, lists: Vec<Vec<u8>>) -> RemoteAuth {
        let policy = RevocationPolicy { mode, lists, urls: Vec::new() };
        let trust = self.trust.clone();
        RemoteAuth::Cert { trust, usage: Usage::Ike, accept_rsa_sha1: false, revocation: Arc::new(policy) }
    }

    /// Both ends have certificates with a distribution point; `change` has the last word.
    fn pair(&self, change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        let algorithm = &rcgen::PKCS_ED25519;
        client.local_auth = self.leaf("client.example.org", CLIENT, true, algorithm);
        gateway.local_auth = self.leaf("gw.example.org", GATEWAY, true, algorithm);
        client.remote_auth = self.remote(RevocationMode::Off, Vec::new());
        gateway.remote_auth = self.remote(RevocationMode::Off, Vec::new());
        gateway.remote_id = IdentityPattern::Any;
        change(&mut client, &mut gateway);
        Pair::new(client, gateway, 1)
    }

    fn gateway_asks(&self, mode: RevocationMode) -> Pair {
        self.pair(|_, gateway| gateway.remote_auth = self.remote(mode, Vec::new()))
    }
}

/// The extension by which a certificate names its OCSP responder (RFC 5280, section 4.2.2.1).
fn responder(url: &str) -> CustomExtension {
    let tlv = |tag: u8, content: &[u8]| {
        let len = u8::try_from(content.len()).expect("short");
        [&[tag, len][..], content].concat()
    };
    let ocsp = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
    let access = tlv(0x30, &[&ocsp[..], &tlv(0x86, url.as_bytes())].concat());
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], tlv(0x30, &access))
}

/// Whether a side wants to have an OCSP responder asked, and which.
fn ask(side: &mut Side) -> Option<u64> {
    side.take(|event| match event {
        Event::Fetch { id, body: Some(_), .. } => Some(*id),
        _ => None,
    })
}

/// What a side wants to have fetched.
fn fetch(side: &mut Side) -> Option<(u64, String)> {
    side.take(|event| match event {
        Event::Fetch { id, url, body: None } => Some((*id, url.clone())),
        _ => None,
    })
}

fn answer(pair: &mut Pair, client: bool, content: Result<Vec<u8>, String>) {
    let side = if client { &mut pair.client } else { &mut pair.gateway };
    let (id, url) = fetch(side).expect("it asks");
    assert_eq!(url, URL);
    side.endpoint.fetched(pair.now, id, content);
    pair.flush();
    pair.run_for(Duration::from_secs(1));
}

fn is_up(pair: &Pair) -> bool {
    pair.assert_agree();
    !pair.client.children.is_empty()
}

/// Whether another session comes up.
fn comes_up(pair: &mut Pair) -> bool {
    while pair.client.established().is_some() {}
    pair.connect();
    pair.run_for(Duration::from_secs(6));
    pair.client.established().is_some()
}

#[test]
fn a_gateway_waits_for_the_list_and_refuses_who_stands_in_it() {
    let ca = authority();
    for mode in [RevocationMode::Soft, RevocationMode::Strict] {
        for (serials, good) in [(&[GATEWAY][..], true), (&[CLIENT], false)] {
            let mut pair = ca.gateway_asks(mode);
            pair.connect();
            pair.run_for(Duration::from_secs(3));
            assert!(pair.client.established().is_none() && pair.client.failure().is_none(), "it waits");
            answer(&mut pair, false, Ok(ca.list(serials, Duration::ZERO)));
            assert_eq!(is_up(&pair), good, "{mode:?}");
            if !good {
                assert!(matches!(pair.client.failure(), Some(NegotiationError::RefusedByPeer { .. })));
                let why = pair.gateway.peer_failure().expect("the log knows").to_string();
                assert!(why.contains("revoked"), "{why}");
            }
            // What is known needs not be asked again.
            assert_eq!(comes_up(&mut pair), good);
            assert!(fetch(&mut pair.gateway).is_none());
        }
    }
}

/// Of those that wait for the status of their certificates only few are of one identity; of one that several devices share, as many as it may
/// have sessions, by its entry in `peers`.
#[test]
fn devices_that_share_an_identity_all_wait_for_the_status_of_their_certificates() {
    let ca = authority();
    for (unique, waiting) in [(Unique::Replace, HANDSHAKES_WAITING), (Unique::Never, 10)] {
        let mut pair = ca.pair(|client, gateway| {
            client.initial_contact = false;
            gateway.remote_auth = ca.remote(RevocationMode::Strict, Vec::new());
            let mut theirs = gateway.clone();
            theirs.answering.policy.unique = unique;
            theirs.answering.policy.sessions = 20;
            let id = IdentityPattern::Exact(client.local_id.clone());
            gateway.answering.peers = vec![PeerRule { id, connection: Arc::new(theirs) }];
        });
        for n in 0..10 {
            let there = common::path(&format!("192.0.2.{}:500", 20 + n), common::GATEWAY);
            pair.client.endpoint.connect(pair.now, pair.conn.clone(), there);
            pair.flush();
        }
        pair.run_for(Duration::from_secs(2));
        let refused = core::iter::from_fn(|| pair.client.failure());
        let busy = refused.filter(|why| matches!(why, NegotiationError::Busy)).count();
        assert_eq!(busy, 10 - waiting, "{unique:?}");
        answer(&mut pair, false, Ok(ca.list(&[GATEWAY], Duration::ZERO)));
        let came = core::iter::from_fn(|| pair.client.established()).count();
        assert_eq!(came, waiting, "{unique:?}");
    }
}

#[test]
fn without_an_answer_soft_goes_on_and_strict_does_not() {
    let ca = authority();
    for (mode, good) in [(RevocationMode::Soft, true), (RevocationMode::Strict, false)] {
        // The server is away, answers nothing in time, gives something else, or a list that has ended.
        let stale = ca.list(&[], Duration::ZERO);
        for content in [Some(Err("away".to_owned())), None, Some(Ok(vec![0x30, 0])), Some(Ok(stale))] {
            let mut pair = ca.gateway_asks(mode);
            if content.as_ref().is_some_and(|c| c.as_ref().is_ok_and(|c| c.len() > 2)) {
                pair.run_for(DAY * 2);
            }
            pair.connect();
            pair.run_for(Duration::from_secs(1));
            match content {
                Some(content) => answer(&mut pair, false, content),
                None => {
                    fetch(&mut pair.gateway).expect("it asks");
                    pair.run_for(Duration::from_secs(5));
                }
            }
            assert_eq!(is_up(&pair), good, "{mode:?}");
            // A failure is not repeated at once, and no handshake waits for it.
            assert_eq!(comes_up(&mut pair), good, "{mode:?}");
            assert!(fetch(&mut pair.gateway).is_none());
        }
    }
}

#[test]
fn a_fresh_list_ends_sessions_that_run() {
    let ca = authority();
    let mut pair = ca.gateway_asks(RevocationMode::Soft);
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    answer(&mut pair, false, Ok(ca.list(&[], Duration::ZERO)));
    assert!(is_up(&pair));
    pair.run_for(HOUR);
    let again = ca.list(&[], HOUR / 2);
    answer(&mut pair, false, Ok(again));
    assert!(is_up(&pair), "asked again within the hour, and still good");
    pair.run_for(HOUR);
    answer(&mut pair, false, Ok(ca.list(&[CLIENT], HOUR)));
    assert!(!is_up(&pair));
    assert!(
        matches!(pair.gateway.closed.as_slice(), [(_, CloseReason::Revoked)]),
        "{:?}",
        pair.gateway.closed
    );
    assert!(matches!(pair.client.closed.as_slice(), [(_, CloseReason::ByPeer)]), "{:?}", pair.client.closed);
}

#[test]
fn a_client_insists_only_if_it_is_strict_but_ends_the_session_with_a_revoked_gateway() {
    let ca = authority();
    let asks = |mode| ca.pair(|client, _| client.remote_auth = ca.remote(mode, Vec::new()));
    let mut pair = asks(RevocationMode::Soft);
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    assert!(is_up(&pair), "the list may be behind the tunnel");
    answer(&mut pair, true, Ok(ca.list(&[GATEWAY], Duration::ZERO)));
    assert!(!is_up(&pair));
    assert!(matches!(pair.client.closed.as_slice(), [(_, CloseReason::Revoked)]));
    for (serials, good) in [(&[][..], true), (&[GATEWAY], false)] {
        let mut pair = asks(RevocationMode::Strict);
        pair.connect();
        pair.run_for(Duration::from_secs(1));
        assert!(pair.client.established().is_none() && pair.client.failure().is_none(), "it waits");
        answer(&mut pair, true, Ok(ca.list(serials, Duration::ZERO)));
        assert_eq!(is_up(&pair), good);
        if !good {
            let why = pair.client.failure().expect("refused").to_string();
            assert!(why.contains("revoked"), "{why}");
            assert!(pair.gateway.endpoint.is_empty(), "the gateway was told");
        }
    }
}

#[test]
fn a_configured_list_needs_no_server_and_a_stored_one_outlives_the_process() {
    let ca = authority();
    let bare = |name, serial| ca.leaf(name, serial, false, &rcgen::PKCS_ED25519);
    for (serials, good) in [(&[][..], true), (&[CLIENT], false)] {
        let mut pair = ca.pair(|client, gateway| {
            client.local_auth = bare("client.example.org", CLIENT);
            let lists = vec![ca.list(serials, Duration::ZERO)];
            gateway.remote_auth = ca.remote(RevocationMode::Strict, lists);
        });
        pair.connect();
        pair.run_for(Duration::from_secs(1));
        assert_eq!(is_up(&pair), good);
    }
    let mut first = ca.gateway_asks(RevocationMode::Strict);
    first.connect();
    first.run_for(Duration::from_secs(1));
    answer(&mut first, false, Ok(ca.list(&[CLIENT], Duration::ZERO)));
    let stored = first.gateway.take(|event| match event {
        Event::Revocations { content, .. } => Some(content.clone()),
        _ => None,
    });
    let stored = stored.expect("to be stored");
    let mut second = ca.gateway_asks(RevocationMode::Soft);
    for cut in 0..stored.len() {
        assert!(!second.gateway.endpoint.restore_revocations(second.now, &stored[..cut]), "cut at {cut}");
    }
    assert!(second.gateway.endpoint.restore_revocations(second.now, &stored));
    second.connect();
    second.run_for(Duration::from_secs(1));
    assert!(!is_up(&second) && fetch(&mut second.gateway).is_none(), "known from the run before");
}

#[test]
fn nothing_is_fetched_for_who_has_not_proved_to_hold_a_certificate_of_ours() {
    let (ca, other) = (authority(), authority());
    let mut pair = ca.pair(|client, gateway| {
        client.local_auth = other.leaf("client.example.org", CLIENT, true, &rcgen::PKCS_ED25519);
        gateway.remote_auth = ca.remote(RevocationMode::Strict, Vec::new());
    });
    pair.connect();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.failure().is_some() && fetch(&mut pair.gateway).is_none());
}

#[test]
fn a_connection_that_asks_nothing_fetches_nothing() {
    let ca = authority();
    let mut pair = ca.gateway_asks(RevocationMode::Off);
    pair.connect();
    pair.run_for(Duration::from_secs(2));
    assert!(is_up(&pair) && fetch(&mut pair.gateway).is_none() && fetch(&mut pair.client).is_none());
}

/// RFC 7427 says nothing of a peer without SIGNATURE_HASH_ALGORITHMS, and Ed25519 has no older method.
#[test]
fn an_initiator_that_cannot_sign_stops_before_it_shows_who_it_is() {
    let ca = authority();
    let mut pair = ca.pair(|_, gateway| gateway.role = Role::Responder);
    pair.filter = Some(Box::new(|datagram| {
        // The notification without protocol and SPI.
        let hashes = [0, 0, 0x40, 0x2f];
        let at = datagram.bytes.windows(4).position(|w| w == hashes).filter(|_| !datagram.to_gateway);
        if let Some(at) = at {
            datagram.bytes[at + 2..at + 4].copy_from_slice(&[0x9f, 0xff]);
        }
        true
    }));
    pair.connect();
    pair.run_for(Duration::from_secs(10));
    let why = pair.client.failure().expect("it fails");
    assert!(matches!(why, NegotiationError::CannotSign(_)), "{why}");
    assert!(why.to_string().contains("local.key"), "{why}");
    assert!(pair.client.endpoint.is_empty());
    let exchange = |d: &common::Datagram| d.bytes[18];
    assert!(pair.log.iter().all(|d| exchange(d) != 35), "no IKE_AUTH was sent");
    assert!(pair.gateway.established().is_none());
}

/// A connection that has a list with these serial numbers, for `reconfigure`.
fn with_list(pair: &Pair, remote: RemoteAuth) -> Connection {
    Connection { remote_auth: remote, ..(*pair.conn).clone() }
}

#[test]
fn a_device_resumes_with_no_gateway_that_is_revoked_and_ends_the_session_that_it_has_resumed() {
    let ca = authority();
    for (quick, late) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut pair = ca.pair(|client, gateway| {
            client.remote_auth = ca.remote(RevocationMode::Soft, Vec::new());
            (client.dormancy, gateway.dormancy) = (quick, quick);
        });
        let (a, _) = pair.up();
        let ticket = pair.client.ticket.take().expect("a ticket");
        pair.client.endpoint.forget(pair.now, a);
        pair.flush();
        (pair.client.closed, pair.log) = (Vec::new(), Vec::new());
        let list = vec![ca.list(&[GATEWAY], Duration::ZERO)];
        let told = with_list(&pair, ca.remote(RevocationMode::Soft, list));
        if !late {
            pair.client.endpoint.reconfigure(pair.now, Vec::new(), &[told.clone().into()]);
        }
        let sa = common::resumed::resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        assert_eq!(pair.client.established().is_some(), late, "quick {quick}");
        if late {
            pair.client.endpoint.reconfigure(pair.now, Vec::new(), &[told.clone().into()]);
            pair.run_for(Duration::from_secs(1));
            assert_eq!(pair.client.closed, [(sa, CloseReason::Revoked)], "quick {quick}");
        } else {
            let why = pair.client.failure().expect("refused").to_string();
            assert!(why.contains("revoked") && pair.log.is_empty(), "quick {quick}: {why}");
        }
        assert!(pair.client.children.is_empty());
    }
}

#[test]
fn a_list_is_asked_for_as_long_as_a_session_rests_on_it() {
    let ca = authority();
    let mut pair = ca.gateway_asks(RevocationMode::Soft);
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    let begun = pair.now;
    // A ticket, and what is known for its sake, lives eight days at most.
    while pair.now < begun + DAY * 10 {
        let at = pair.now - begun;
        answer(&mut pair, false, Ok(ca.list(&[], at)));
        assert!(is_up(&pair), "{at:?}");
        pair.run_for(HOUR + Duration::from_secs(60));
    }
    let at = pair.now - begun;
    answer(&mut pair, false, Ok(ca.list(&[CLIENT], at)));
    assert!(!is_up(&pair), "and it ends when it is revoked");
}

#[test]
fn a_responder_is_asked_again_when_its_certificates_session_comes_back() {
    let ca = authority();
    for (quick, retries) in [(true, 1), (false, 3)] {
        let mut pair = ca.pair(|client, gateway| {
            let url = responder("http://ca.example.org/ocsp");
            client.local_auth = ca.leaf_with("client.example.org", CLIENT, &rcgen::PKCS_ED25519, |p| {
                p.custom_extensions.push(url)
            });
            gateway.remote_auth = ca.remote(RevocationMode::Soft, Vec::new());
            (client.dormancy, gateway.dormancy) = (quick, quick);
        });
        pair.connect();
        pair.run_for(Duration::from_secs(1));
        let id = ask(&mut pair.gateway).expect("it asks");
        pair.gateway.endpoint.fetched(pair.now, id, Err("away".to_owned()));
        pair.flush();
        pair.run_for(Duration::from_secs(1));
        let (a, b) = (pair.client.established().expect("up").sa, pair.gateway.established().expect("up").sa);
        let ticket = pair.client.ticket.take().expect("a ticket");
        pair.client.endpoint.forget(pair.now, a);
        pair.gateway.endpoint.forget(pair.now, b);
        pair.flush();
        pair.run_for(HOUR * retries);
        assert!(ask(&mut pair.gateway).is_none(), "no session is left");
        common::resumed::resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        assert!(is_up(&pair) && ask(&mut pair.gateway).is_some(), "quick {quick}");
    }
}

/// By a ticket nothing says where the status of its certificate is found: a gateway that was started anew has it on record.
#[test]
fn a_gateway_that_was_started_anew_asks_the_responder_when_a_session_comes_back() {
    let ca = authority();
    let start = || {
        ca.pair(|client, gateway| {
            let url = responder("http://ca.example.org/ocsp");
            client.local_auth = ca.leaf_with("client.example.org", CLIENT, &rcgen::PKCS_ED25519, |p| {
                p.custom_extensions.push(url)
            });
            gateway.remote_auth = ca.remote(RevocationMode::Soft, Vec::new());
        })
    };
    let mut pair = start();
    pair.connect();
    pair.run_for(Duration::from_secs(8));
    let stored = pair.gateway.take(|event| match event {
        Event::Revocations { content, .. } => Some(content.clone()),
        _ => None,
    });
    let stored = stored.expect("to be stored");
    let (a, ticket) =
        (pair.client.established().expect("up").sa, pair.client.ticket.take().expect("a ticket"));
    pair.client.endpoint.forget(pair.now, a);
    pair.flush();
    pair.replace_gateway(start().gateway);
    assert!(pair.gateway.endpoint.restore_revocations(pair.now, &stored));
    pair.run_for(HOUR);
    assert!(ask(&mut pair.gateway).is_none(), "no session rests on it");
    common::resumed::resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(2));
    assert!(is_up(&pair) && ask(&mut pair.gateway).is_some());
    pair.run_for(DAY * 90);
    assert!(!pair.gateway.endpoint.restore_revocations(pair.now, &stored), "forgotten at last");
}

/// The gateway's configuration is read again, and its client comes back by ticket and then in full. What becomes of the session and of the
/// ticket.
fn after_reload(ca: &Authority, leaf: LocalAuth, then: RemoteAuth, now: RemoteAuth) -> (Pair, CloseReason) {
    let mut conn = None;
    let mut pair = ca.pair(|client, gateway| {
        client.local_auth = leaf;
        gateway.remote_auth = then;
        conn = Some(gateway.clone());
    });
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("a ticket");
    let conn = Connection { remote_auth: now, ..conn.expect("a gateway") };
    pair.client.endpoint.forget(pair.now, a);
    pair.gateway.endpoint.reconfigure(pair.now, vec![conn.into()], &[]);
    pair.flush();
    pair.run_for(Duration::from_secs(8));
    let [(_, reason)] = pair.gateway.closed[..] else { panic!("{:?}", pair.gateway.closed) };
    pair.client.events.clear();
    common::resumed::resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(2));
    assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketRefused)));
    (pair, reason)
}

#[test]
fn who_came_before_revocation_was_asked_about_shows_its_certificates_anew() {
    let ca = authority();
    for mode in [RevocationMode::Soft, RevocationMode::Strict] {
        let leaf = ca.leaf("client.example.org", CLIENT, true, &rcgen::PKCS_ED25519);
        let off = ca.remote(RevocationMode::Off, Vec::new());
        let (mut pair, reason) = after_reload(&ca, leaf, off, ca.remote(mode, Vec::new()));
        assert_eq!(reason, CloseReason::Reconfigured, "{mode:?}: it may come back");
        pair.connect();
        pair.run_for(Duration::from_secs(1));
        answer(&mut pair, false, Ok(ca.list(&[CLIENT], Duration::ZERO)));
        assert!(pair.client.established().is_none(), "{mode:?}: it is revoked");
    }
}

#[test]
fn who_is_known_to_be_good_stays_when_revocation_is_switched_on() {
    let (ca, mut conn) = (authority(), None);
    let mut pair = ca.pair(|_, gateway| conn = Some(gateway.clone()));
    pair.up();
    let remote_auth = ca.remote(RevocationMode::Strict, vec![ca.list(&[GATEWAY], Duration::ZERO)]);
    let conn = Connection { remote_auth, ..conn.expect("a gateway") };
    pair.gateway.endpoint.reconfigure(pair.now, vec![conn.into()], &[]);
    pair.flush();
    pair.run_for(Duration::from_secs(8));
    assert_eq!(pair.gateway.closed, []);
}

#[test]
fn a_certificate_made_for_the_web_is_out_when_those_are_not_taken_any_more() {
    let ca = authority();
    let leaf = ca.leaf_with("client.example.org", CLIENT, &rcgen::PKCS_ED25519, |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    let ike = ca.remote(RevocationMode::Off, Vec::new());
    let RemoteAuth::Cert { trust, revocation, .. } = ike.clone() else { panic!("{ike:?}") };
    let web = RemoteAuth::Cert { trust, usage: Usage::IkeOrServerAuth, accept_rsa_sha1: false, revocation };
    let (mut pair, reason) = after_reload(&ca, leaf, web, ike);
    assert_eq!(reason, CloseReason::NotAdmitted);
    assert!(!comes_up(&mut pair));
}
