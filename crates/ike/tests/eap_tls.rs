//! Users who prove themselves by certificates inside EAP (EAP-TLS), and gateways that prove themselves there alone (RFC 5998): who is who, what is
//! refused, and what becomes of it under loss.

mod common;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use common::eap::{Authority, USERS, comes_through, connections, login, login_tls, methods};
use common::resumed::resume;
use common::{Datagram, Nat, Pair, fqdn, seeds};
use dormouse_ike::CloseReason;
use dormouse_ike::NegotiationError;
use dormouse_ike::admission::{Denial, Shown};
use dormouse_ike::config::{
    Connection, EapMethod, Fragmentation, IdentityPattern, LocalAuth, PeerRule, RemoteAuth, RevocationMode,
    RevocationPolicy,
};
use dormouse_sansio::Carrier;
use dormouse_wire::ike::{NotifyType, Payload};
use rcgen::{ExtendedKeyUsagePurpose, PKCS_ED25519};

const ALICE: &str = USERS[0].0;

/// What becomes of both ends' configuration.
type Change<'a> = &'a dyn Fn(&Authority, &mut Connection, &mut Connection);

/// Alice's device with a certificate, and a gateway that takes users by EAP-TLS.
fn pair_of(seed: u64, change: impl FnOnce(&Authority, &mut Connection, &mut Connection)) -> Pair {
    let ca = Authority::new("CA");
    let (mut client, mut gateway) = by_tls(&ca);
    change(&ca, &mut client, &mut gateway);
    Pair::new(client, gateway, seed)
}

fn by_tls(ca: &Authority) -> (Connection, Connection) {
    let (mut client, mut gateway) = connections(ca);
    client.local_auth = login_tls(ALICE, ca.issue(ALICE, &PKCS_ED25519), false);
    gateway.remote_auth = ca.trusted();
    gateway.answering.eap = methods(&[EapMethod::Tls], false);
    (client, gateway)
}

fn connect(pair: &mut Pair) -> Option<NegotiationError> {
    pair.connect();
    pair.run_for(Duration::from_secs(40));
    pair.client.failure()
}

fn refused(pair: &mut Pair) -> (String, String) {
    let ours = connect(pair).expect("it must fail").to_string();
    assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty());
    assert!(pair.client.endpoint.is_empty() && pair.gateway.established().is_none());
    let theirs = pair.gateway.peer_failure().map_or_else(String::new, |e| e.to_string());
    assert!(pair.gateway.peer_failure().is_none(), "once");
    (ours, theirs)
}

fn up_as(pair: &mut Pair, who: &str) {
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    let up = pair.gateway.established();
    let up =
        up.unwrap_or_else(|| panic!("{who}: {:?} {:?}", pair.client.failure(), pair.gateway.peer_failure()));
    assert_eq!((up.peer.to_string().as_str(), up.eap), (who, true));
    let ours = pair.client.established().expect("both are up");
    assert_eq!((ours.peer, ours.eap), (fqdn("gw.example.org"), true));
    pair.assert_agree();
}

/// The bytes of the message in a datagram.
fn message(datagram: &Datagram) -> &[u8] {
    let marker = if datagram.carrier == Carrier::NatT { 4 } else { 0 };
    &datagram.bytes[marker..]
}

/// IKE_AUTH datagrams of one direction: their lengths.
fn auths(pair: &Pair, to_gateway: bool) -> Vec<usize> {
    let of = pair.log.iter().filter(|d| d.to_gateway == to_gateway).map(message);
    of.filter(|m| m[18] == 35).map(<[u8]>::len).collect()
}

#[test]
fn a_user_is_who_the_certificate_says() {
    let mut pair = pair_of(1, |_, _, _| {});
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    let up = pair.gateway.established().unwrap_or_else(|| panic!("{:?}", pair.client.failure()));
    assert_eq!((up.peer.to_string().as_str(), up.initiator, up.eap), (ALICE, false, true));
    assert!(matches!(up.credential.map(|c| c.shown), Some(Shown::Certificates { .. })));
    let (a, b) = (pair.client.established().expect("both are up").sa, up.sa);
    pair.assert_agree();
    // A ticket of the session is one of the same user.
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(5));
    let again = pair.gateway.established().expect("resumed");
    assert_eq!((again.peer.to_string().as_str(), again.resumed, again.eap), (ALICE, true, true));
    assert!(pair.gateway.closed.iter().any(|(sa, why)| *sa == b && *why == CloseReason::Replaced));
    // A denial of the certificate ends it, and the ticket with it.
    let LocalAuth::Eap(login) = &pair.conn.local_auth else { panic!("EAP") };
    let dormouse_ike::config::EapProof::Certificate { chain, .. } = &login.proof else { panic!("TLS") };
    let fingerprint =
        dormouse_crypto::cert::Certificate::from_der(&chain[0]).expect("readable").fingerprint();
    assert_eq!(pair.gateway.endpoint.deny(pair.now, Denial::Certificate(fingerprint)), 1);
    pair.run_for(Duration::from_secs(2));
    let (_, theirs) = refused(&mut pair);
    assert!(theirs.contains("is denied"), "{theirs}");
}

#[test]
fn of_the_names_in_a_certificate_the_user_goes_by_one_that_is_taken() {
    let names = ["laptop7.example.org", ALICE, "alice@elsewhere.example"];
    for (says, takes, who) in [
        (ALICE, IdentityPattern::Any, Some(ALICE)),
        ("laptop7.example.org", IdentityPattern::Any, Some("laptop7.example.org")),
        ("somebody.else", IdentityPattern::Any, Some("laptop7.example.org")),
        ("laptop7.example.org", IdentityPattern::Mail("example.org".into()), Some(ALICE)),
        (ALICE, IdentityPattern::Mail("elsewhere.example".into()), Some("alice@elsewhere.example")),
        (ALICE, IdentityPattern::Mail("nowhere.example".into()), None),
    ] {
        let mut pair = pair_of(2, |ca, client, gateway| {
            client.local_auth = login_tls(says, ca.issue_with(&names, &PKCS_ED25519, |_| {}), false);
            gateway.remote_id = takes.clone();
        });
        match who {
            Some(who) => up_as(&mut pair, who),
            None => {
                let (ours, theirs) = refused(&mut pair);
                assert!(theirs.contains("the configuration takes"), "{theirs}");
                assert!(ours.contains("refused"), "{ours}");
            }
        }
    }
    // Its rules are his.
    let mut pair = pair_of(3, |_, _, gateway| {
        let mut connection = gateway.clone();
        connection.answering.policy.isolate = true;
        let id = IdentityPattern::Exact(ALICE.parse().expect("a name"));
        gateway.answering.peers = vec![PeerRule { id, connection: Arc::new(connection) }];
        gateway.answering.peers_only = true;
    });
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    assert!(pair.gateway.established().expect("up").isolate);
}

#[test]
fn a_certificate_of_another_authority_or_for_nothing_of_this_is_refused() {
    let other = Authority::new("Other CA");
    let not_yet =
        |params: &mut rcgen::CertificateParams| params.not_before = rcgen::date_time_ymd(2028, 1, 1);
    let signs_code = |params: &mut rcgen::CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    };
    let cases: [(&str, Change<'_>, &str); 4] = [
        (
            "another authority",
            &|_, client, _| client.local_auth = login_tls(ALICE, other.issue(ALICE, &PKCS_ED25519), false),
            "",
        ),
        (
            "not yet valid",
            &|ca, client, _| {
                let own = ca.issue_with(&[ALICE], &PKCS_ED25519, not_yet);
                client.local_auth = login_tls(ALICE, own, false);
            },
            "",
        ),
        (
            "another purpose",
            &|ca, client, _| {
                let own = ca.issue_with(&[ALICE], &PKCS_ED25519, signs_code);
                client.local_auth = login_tls(ALICE, own, false);
            },
            "extended key usage",
        ),
        ("no entry", &|_, _, gateway| gateway.answering.peers_only = true, "no peers entry"),
    ];
    for (what, change, why) in cases {
        let mut pair = pair_of(4, change);
        let (ours, theirs) = refused(&mut pair);
        assert!(theirs.contains(why) && !theirs.is_empty(), "{what}: {theirs}");
        assert!(ours.starts_with("EAP failed"), "{what}: {ours}");
    }
    // One of clients of TLS is good for this alone.
    let for_clients = |params: &mut rcgen::CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let mut pair = pair_of(5, |ca, client, _| {
        let own = ca.issue_with(&[ALICE], &PKCS_ED25519, for_clients);
        client.local_auth = login_tls(ALICE, own, false);
    });
    up_as(&mut pair, ALICE);
    let mut pair = pair_of(5, |ca, client, _| {
        client.local_id = ALICE.parse().expect("a name");
        client.local_auth = ca.issue_with(&[ALICE], &PKCS_ED25519, for_clients);
    });
    assert!(refused(&mut pair).1.contains("extended key usage"));
}

#[test]
fn a_client_gets_the_method_that_it_names_and_no_other() {
    let (tls, password) = (EapMethod::Tls, EapMethod::MsChapV2);
    for (offered, by_password, up) in [
        (&[tls, password][..], true, true),
        (&[tls, password], false, true),
        (&[password, tls], true, true),
        (&[password, tls], false, true),
        (&[password], false, false),
        (&[tls], true, false),
    ] {
        let mut pair = pair_of(6, |_, client, gateway| {
            if by_password {
                client.local_auth = login(ALICE, USERS[0].1);
            }
            gateway.answering.eap = methods(offered, false);
        });
        match up {
            true => up_as(&mut pair, ALICE),
            false => {
                let (ours, theirs) = refused(&mut pair);
                assert!(theirs.contains("refuses the EAP methods"), "{theirs}");
                assert!(ours.contains("is configured here"), "{ours}");
            }
        }
    }
}

#[test]
fn connections_with_other_authorities_take_their_own_users() {
    let guests_ca = Authority::new("Guests' CA");
    for (mine, pool) in [(true, "staff"), (false, "guests")] {
        let ca = Authority::new("CA");
        let (mut client, staff) = by_tls(&ca);
        let mut guests = staff.clone();
        guests.name = "guests".to_owned();
        guests.remote_auth = guests_ca.trusted();
        if !mine {
            client.local_auth = login_tls(ALICE, guests_ca.issue(ALICE, &PKCS_ED25519), false);
        }
        let staff = Connection { name: "staff".to_owned(), ..staff };
        let mut config = common::gateway_config(staff, 7);
        config.connections.push(Arc::new(guests));
        let mut pair = Pair::with_configs(client, Default::default(), config, 7);
        pair.connect();
        pair.run_for(Duration::from_secs(5));
        let up = pair.gateway.established().unwrap_or_else(|| panic!("{:?}", pair.client.failure()));
        assert_eq!(up.connection, pool);
    }
}

#[test]
fn a_user_is_let_in_by_the_methods_of_his_own_connection_alone() {
    for (mine, up) in [(EapMethod::MsChapV2, true), (EapMethod::Ttls, false)] {
        let ca = Authority::new("CA");
        let (client, mut theirs) = connections(&ca);
        theirs.answering.eap = common::eap::users(&[("somebody.else", "a password")]);
        let mut own = theirs.clone();
        own.name = "own".to_owned();
        own.answering.eap = methods(&[mine], false);
        let mut config = common::gateway_config(theirs, 15);
        config.connections.push(Arc::new(own));
        let mut pair = Pair::with_configs(client, Default::default(), config, 15);
        pair.connect();
        pair.run_for(Duration::from_secs(5));
        let connection = pair.gateway.established().map(|up| up.connection);
        assert_eq!(connection.as_deref(), up.then_some("own"), "{mine:?}");
    }
}

#[test]
fn long_chains_travel_in_pieces_and_losses_do_no_harm() {
    for seed in seeds(40) {
        let mut pair = pair_of(seed, |ca, client, gateway| {
            // Many names make it long.
            let names: Vec<String> =
                (0..150).map(|n| format!("name{n}.of.a.long.certificate.example")).collect();
            let names: Vec<&str> = std::iter::once(ALICE).chain(names.iter().map(String::as_str)).collect();
            client.local_auth = login_tls(ALICE, ca.issue_with(&names, &PKCS_ED25519, |_| {}), seed % 3 == 0);
            gateway.answering.eap = methods(&[EapMethod::MsChapV2, EapMethod::Tls], seed % 2 == 0);
            for conn in [client, gateway] {
                conn.fragmentation = Fragmentation { enabled: seed % 2 == 0, size: 576 };
            }
        });
        comes_through(&mut pair, seed, 5);
    }
}

#[test]
fn a_revoked_certificate_is_refused_and_ends_the_session() {
    let ca = Authority::new("CA");
    let serial = |params: &mut rcgen::CertificateParams| {
        params.serial_number = Some(rcgen::SerialNumber::from(77));
    };
    let own = ca.issue_with(&[ALICE], &PKCS_ED25519, serial);
    let with = |lists: Vec<Vec<u8>>, mode| {
        let (mut client, mut gateway) = by_tls(&ca);
        client.local_auth = login_tls(ALICE, own.clone(), false);
        if let RemoteAuth::Cert { revocation, .. } = &mut gateway.remote_auth {
            *revocation = Arc::new(RevocationPolicy { mode, lists, urls: Vec::new() });
        }
        (client, gateway)
    };
    for (serials, mode, up) in [
        (&[5][..], RevocationMode::Strict, true),
        (&[77], RevocationMode::Strict, false),
        (&[77], RevocationMode::Soft, false),
        (&[77], RevocationMode::Off, true),
    ] {
        let (client, gateway) = with(vec![ca.list(serials, 1)], mode);
        let mut pair = Pair::new(client, gateway, 8);
        match up {
            true => up_as(&mut pair, ALICE),
            false => assert!(refused(&mut pair).1.contains("revoked"), "{serials:?} {mode:?}"),
        }
    }
    // No list at all.
    let (client, gateway) = with(Vec::new(), RevocationMode::Strict);
    assert!(refused(&mut Pair::new(client, gateway, 8)).1.contains("not known"));
    let (client, gateway) = with(vec![ca.list(&[5], 1)], RevocationMode::Soft);
    let mut pair = Pair::new(client, gateway, 9);
    up_as(&mut pair, ALICE);
    let (_, then) = with(vec![ca.list(&[77], 2)], RevocationMode::Soft);
    pair.gateway.endpoint.reconfigure(pair.now, vec![Arc::new(then)], &[]);
    pair.flush();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.gateway.closed.iter().any(|(_, why)| *why == CloseReason::Revoked));
}

#[test]
fn a_session_ends_when_its_certificate_or_its_authority_does() {
    let other = Authority::new("Other CA");
    let mut pair = pair_of(10, |_, _, _| {});
    up_as(&mut pair, ALICE);
    let mut then = (*pair.conn).clone();
    then.remote_auth = other.trusted();
    let ca = Authority::new("Third CA");
    let (_, mut gateway) = by_tls(&ca);
    gateway.remote_auth = other.trusted();
    pair.gateway.endpoint.reconfigure(pair.now, vec![Arc::new(gateway)], &[]);
    pair.flush();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.gateway.closed.iter().any(|(_, why)| *why == CloseReason::NotAdmitted));
}

#[test]
fn a_gateway_proves_itself_inside_eap_alone_where_both_want_that() {
    for (asks, grants) in [(true, true), (true, false), (false, true)] {
        let mut pair = pair_of(11, |ca, client, gateway| {
            client.local_auth = login_tls(ALICE, ca.issue(ALICE, &PKCS_ED25519), asks);
            client.fragmentation.enabled = false;
            gateway.answering.eap = methods(&[EapMethod::MsChapV2, EapMethod::Tls], grants);
        });
        pair.connect();
        pair.run_for(Duration::from_secs(5));
        let up = pair.client.established().unwrap_or_else(|| panic!("{:?}", pair.client.failure()));
        assert!(matches!(up.credential.map(|c| c.shown), Some(Shown::Certificates { .. })));
        assert_eq!(up.peer, fqdn("gw.example.org"));
        assert_eq!(pair.gateway.established().map(|up| up.peer.to_string()).as_deref(), Some(ALICE));
        pair.assert_agree();
        // Neither certificate nor signature are in its first answer.
        assert_eq!(
            auths(&pair, false)[0] < 300,
            asks && grants,
            "{asks} {grants}: {:?}",
            auths(&pair, false)
        );
        let a = up.sa;
        let ticket = pair.client.ticket.take().expect("the gateway gave one");
        pair.client.endpoint.forget(pair.now, a);
        pair.client.events.clear();
        resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(5));
        assert!(pair.client.established().is_some_and(|up| up.resumed));
    }
}

#[test]
fn a_gateway_proves_itself_by_a_certificate_to_users_of_a_connection_that_wants_it() {
    for alone in [false, true] {
        let (ca, guests_ca) = (Authority::new("CA"), Authority::new("Guests' CA"));
        let (mut client, mut staff) = by_tls(&ca);
        let guests =
            Connection { name: "guests".to_owned(), remote_auth: guests_ca.trusted(), ..staff.clone() };
        staff.answering.eap = methods(&[EapMethod::Tls], true);
        client.local_auth = login_tls(ALICE, guests_ca.issue(ALICE, &PKCS_ED25519), alone);
        let mut config = common::gateway_config(staff, 17);
        config.connections.push(Arc::new(guests));
        let mut pair = Pair::with_configs(client, Default::default(), config, 17);
        pair.connect();
        pair.run_for(Duration::from_secs(5));
        let up = pair.gateway.established().map(|up| up.connection);
        assert_eq!(up.as_deref(), (!alone).then_some("guests"));
    }
}

#[test]
fn a_gateway_is_not_believed_inside_eap_that_is_not_who_it_must_be() {
    let other = Authority::new("Other CA");
    let cases: [(&str, Change<'_>, &str); 4] = [
        ("another authority", &|_, client, _| client.remote_auth = other.trusted(), "certificate"),
        (
            "another name in the certificate",
            &|ca, _, gateway| gateway.local_auth = ca.issue("mail.example.org", &PKCS_ED25519),
            "the certificate is not for gw.example.org",
        ),
        (
            "another name",
            &|_, client, _| client.remote_id = IdentityPattern::Suffix("elsewhere.example".into()),
            "the configuration takes",
        ),
        (
            "a user's certificate",
            &|ca, _, gateway| {
                let for_clients = |params: &mut rcgen::CertificateParams| {
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                };
                gateway.local_auth = ca.issue_with(&["gw.example.org"], &PKCS_ED25519, for_clients);
            },
            "extended key usage",
        ),
    ];
    for (what, change, why) in cases {
        let mut pair = pair_of(12, |ca, client, gateway| {
            client.local_auth = login_tls(ALICE, ca.issue(ALICE, &PKCS_ED25519), true);
            gateway.answering.eap = methods(&[EapMethod::Tls], true);
            change(ca, client, gateway);
        });
        let error = connect(&mut pair).unwrap_or_else(|| panic!("{what}")).to_string();
        assert!(error.contains(why), "{what}: {error}");
        assert!(pair.client.children.is_empty() && pair.client.endpoint.is_empty(), "{what}");
        pair.run_for(Duration::from_secs(60));
        assert!(pair.gateway.established().is_none() && pair.gateway.endpoint.is_empty(), "{what}");
    }
}

/// What the gateway says instead of its first answer to a client that offers EAP alone, or does not.
fn instead_of_the_first_answer(alone: bool, payloads: &[Payload]) -> String {
    let mut pair = pair_of(13, |ca, client, gateway| {
        client.local_auth = login_tls(ALICE, ca.issue(ALICE, &PKCS_ED25519), alone);
        for conn in [client, gateway] {
            conn.ike_proposals = vec!["aes256gcm16-prfsha256-x25519".parse().expect("a proposal")];
            conn.fragmentation.enabled = false;
        }
    });
    let answers: Rc<RefCell<Option<Datagram>>> = Rc::default();
    let keep = answers.clone();
    pair.filter = Some(Box::new(move |datagram| {
        let first = !datagram.to_gateway && message(datagram)[18] == 35;
        if first {
            *keep.borrow_mut() = Some(datagram.clone());
        }
        !first
    }));
    pair.connect();
    pair.run_for(Duration::from_millis(200));
    let mut template = answers.borrow().clone().expect("the gateway has answered");
    pair.filter = None;
    let sealed = pair.gateway.endpoint.craft_auth(1, payloads);
    let marker = if template.carrier == Carrier::NatT { 4 } else { 0 };
    template.bytes.truncate(marker);
    template.bytes.extend(&sealed[0]);
    let before = auths(&pair, true).len();
    pair.deliver(template);
    pair.flush();
    match pair.client.failure() {
        Some(error) => error.to_string(),
        None => format!("{} requests more", auths(&pair, true).len() - before),
    }
}

#[test]
fn a_client_that_does_not_offer_eap_alone_does_not_take_it() {
    let id_r = Payload::IdR(dormouse_ike::auth::id_payload(&fqdn("gw.example.org")));
    let identity = Payload::Eap(vec![1, 7, 0, 5, 1]);
    let both = [id_r, identity.clone()];
    assert!(instead_of_the_first_answer(false, &both).contains("neither a proof of identity nor an error"));
    assert_eq!(instead_of_the_first_answer(true, &both), "1 requests more");
    assert!(instead_of_the_first_answer(true, &[identity]).contains("no IDr"));
    let success = [both[0].clone(), Payload::Eap(vec![3, 7, 0, 4])];
    assert!(instead_of_the_first_answer(true, &success).contains("before it has proved who it is"));
    // A method for which a password would do is not begun.
    let mschapv2 =
        [both[0].clone(), Payload::Eap([&[1, 7, 0, 26, 26, 1, 7, 0, 21, 16][..], &[9; 16]].concat())];
    assert_eq!(instead_of_the_first_answer(true, &mschapv2), "1 requests more");
    let failed = dormouse_wire::ike::Notify::new(NotifyType::AuthenticationFailed, []);
    assert!(instead_of_the_first_answer(true, &[Payload::Notify(failed)]).contains("refused"));
}

#[test]
fn guesses_are_slowed_down_where_they_come_from() {
    let ca = Authority::new("CA");
    let (client, mut gateway) = connections(&ca);
    gateway.remote_auth = ca.trusted();
    gateway.answering.eap = methods(&[EapMethod::MsChapV2], false);
    let mut pair = Pair::new(client.clone(), gateway.clone(), 14);
    let attempt = |pair: &mut Pair, password: &str| {
        let conn = Connection { local_auth: login(ALICE, password), ..client.clone() };
        pair.conn = Arc::new(conn);
        pair.connect();
        pair.run_for(Duration::from_secs(2));
        let failure = pair.client.failure().map(|e| e.to_string());
        let theirs = pair.gateway.peer_failure().map(|e| e.to_string());
        assert!(pair.gateway.peer_failure().is_none(), "once");
        (failure, theirs)
    };
    let mut looked_at = 0;
    for n in 0..30 {
        let (ours, theirs) = attempt(&mut pair, &format!("guess {n}"));
        assert_eq!(ours.as_deref(), Some("EAP failed: wrong user name or password"));
        looked_at += u32::from(theirs.as_deref() == Some("EAP failed: wrong user name or password"));
    }
    assert!((6..15).contains(&looked_at), "{looked_at}");
    // The right one is not looked at either, and whoever tries cannot tell.
    let (ours, theirs) = attempt(&mut pair, USERS[0].1);
    assert_eq!(ours.as_deref(), Some("EAP failed: wrong user name or password"));
    assert!(theirs.expect("on record").contains("came too fast"));
    // Another user is not concerned.
    pair.conn = Arc::new(Connection { local_auth: login(USERS[1].0, USERS[1].1), ..client.clone() });
    pair.connect();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().is_some());
    pair.run_for(Duration::from_secs(64));
    assert_eq!(attempt(&mut pair, USERS[0].1), (None, None));
    assert!(pair.client.established().is_some());
    // A wrong password in the place of a session that is there does not end it.
    pair.run_for(Duration::from_secs(60));
    let sessions = pair.gateway.endpoint.len();
    attempt(&mut pair, "guess");
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.gateway.endpoint.len(), sessions);
}

#[test]
fn guesses_count_where_they_began_and_not_at_a_source_that_a_packet_claims() {
    let (client, gateway) = connections(&Authority::new("CA"));
    let mut pair = Pair::new(client.clone(), gateway, 16);
    let victims = Nat::new("203.0.113.9", Duration::from_secs(3_600));
    let responses: Rc<RefCell<Vec<Datagram>>> = Rc::default();
    let mut verdicts = Vec::new();
    for n in 0..9 {
        pair.conn =
            Arc::new(Connection { local_auth: login(ALICE, &format!("guess {n}")), ..client.clone() });
        let keep = responses.clone();
        // The client's name goes with id 3, and what the password makes with the next.
        pair.filter = Some(Box::new(move |datagram| {
            let held = datagram.to_gateway && message(datagram)[18] == 35 && message(datagram)[23] > 3;
            if held {
                keep.borrow_mut().push(datagram.clone());
            }
            !held
        }));
        let sa = pair.connect();
        pair.run_for(Duration::from_millis(200));
        pair.filter = None;
        for datagram in responses.take() {
            let from = SocketAddr::new(victims.public, datagram.from.port());
            pair.deliver(Datagram { from, ..datagram });
        }
        pair.client.endpoint.forget(pair.now, sa);
        pair.flush();
        verdicts.extend(pair.gateway.peer_failure().map(|e| e.to_string()));
    }
    assert_eq!(verdicts.len(), 9);
    let too_fast = |verdicts: &[String]| verdicts.iter().any(|why| why.contains("came too fast"));
    assert!(!too_fast(&verdicts[..5]) && too_fast(&verdicts[5..]), "where they began: {verdicts:?}");
    pair.client.events.clear();
    (pair.nat, pair.conn) = (Some(victims), Arc::new(client));
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    assert!(pair.client.established().is_some(), "the victim: {:?}", pair.gateway.peer_failure());
}
