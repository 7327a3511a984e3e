//! Users who prove who they are by EAP (RFC 7296, section 2.16): who they are to the gateway, what is shown to whom before whom is believed,
//! and what becomes of those who are not let in.

mod common;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use common::eap::{Authority, USERS, comes_through, connections, login, pair_of, users};
use common::resumed::resume;
use common::{Datagram, Pair, fqdn, gateway_config, seeds};
use dormouse_crypto::Secret;
use dormouse_ike::admission::{Denial, Shown};
use dormouse_ike::config::{
    Connection, Fragmentation, IdentityPattern, PeerPolicy, PeerRule, Ppk, RemoteAuth,
};
use dormouse_ike::work::Beside;
use dormouse_ike::{CloseReason, EndpointConfig, Event, Kind, NegotiationError};
use dormouse_sansio::Carrier;
use dormouse_wire::ike::{AuthMethod, NotifyType, Payload};

const ALICE: &str = USERS[0].0;

/// What becomes of a gateway's configuration.
type Change = fn(&mut Connection);

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

fn connect(pair: &mut Pair) -> Option<NegotiationError> {
    pair.connect();
    pair.run_for(Duration::from_secs(40));
    pair.client.failure()
}

fn refused(pair: &mut Pair) -> (String, String) {
    let ours = connect(pair).expect("it must fail").to_string();
    assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty());
    assert!(pair.client.endpoint.is_empty() && pair.gateway.established().is_none());
    let theirs = pair.gateway.peer_failure().expect("it is on record").to_string();
    assert!(pair.gateway.peer_failure().is_none(), "once");
    (ours, theirs)
}

#[test]
fn a_user_is_who_the_password_proves_and_not_what_the_first_request_says() {
    let mut pair = pair_of(1, |_, _, _| {});
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    let up = pair.gateway.established().unwrap_or_else(|| panic!("{:?}", pair.client.failure()));
    assert_eq!((up.peer.to_string().as_str(), up.initiator), (ALICE, false));
    assert!(matches!(up.credential.map(|c| c.shown), Some(Shown::Eap(_))));
    let ours = pair.client.established().expect("both are up");
    assert_eq!(ours.peer, fqdn("gw.example.org"));
    assert!(ours.mobike && ours.dormancy && up.mobike && up.dormancy);
    assert_eq!(ours.configuration.v4, up.configuration.v4);
    assert!(ours.configuration.v4.is_some());
    pair.assert_agree();
    // IKE_SA_INIT, ML-KEM, and IKE_AUTH five times: identity, challenge, success request, success, AUTH.
    let stats = pair.client.endpoint.sa_stats(ours.sa).expect("it is there");
    assert_eq!((stats.round_trips, stats.begun.get(&Kind::Intermediate)), (7, Some(&1)));
    // The ids that follow are in step.
    assert!(pair.client.endpoint.rekey_ike(pair.now, ours.sa));
    pair.run_for(Duration::from_secs(5));
    assert!(
        pair.client.closed.is_empty()
            && pair.gateway.closed.iter().all(|(_, why)| *why == CloseReason::Replaced)
    );
    assert_eq!(pair.client.endpoint.len(), 1);
}

#[test]
fn nothing_of_the_password_is_said_to_a_gateway_that_is_not_believed() {
    let other = Authority::new("Other CA");
    for trusted in [false, true] {
        let mut pair = pair_of(2, |_, client, _| match trusted {
            false => client.remote_auth = other.trusted(),
            // Without a name in the request, which the gateway would refuse.
            true => client.remote_id = IdentityPattern::Suffix("elsewhere.example".into()),
        });
        let error = connect(&mut pair).expect("it fails");
        assert!(matches!(error, NegotiationError::Authentication(_)), "{error}");
        assert_eq!(trusted, error.to_string().contains("the peer is gw.example.org"), "{error}");
        assert_eq!(auths(&pair, true).len(), 1, "no EAP was answered: {error}");
        assert!(pair.gateway.established().is_none());
    }
    let mut pair = pair_of(3, |_, client, _| client.remote_auth = RemoteAuth::Psk(common::psk()));
    let error = connect(&mut pair).expect("it fails").to_string();
    assert!(error.contains("a certificate"), "{error}");
    assert_eq!(auths(&pair, true), [] as [usize; 0], "a gateway that has no certificate is not asked");
}

#[test]
fn who_is_not_let_in_sees_what_a_wrong_password_shows() {
    let (ca, mut seen) = (Authority::new("CA"), Vec::new());
    let (client, mut gateway) = connections(&ca);
    // Its signatures have one length.
    gateway.local_auth = ca.issue("gw.example.org", &rcgen::PKCS_ED25519);
    let cases: [(&str, &str, &str); 5] = [
        ("wrong password", "guess", "wrong user name or password"),
        ("unknown", "clientPass", "there is no such user"),
        ("denied", "clientPass", "is denied"),
        ("another pattern", "clientPass", "the configuration takes"),
        ("no entry", "clientPass", "no peers entry"),
    ];
    for (what, password, why) in cases {
        let (mut client, mut gateway) = (client.clone(), gateway.clone());
        client.local_auth = login(ALICE, password);
        match what {
            "unknown" => gateway.answering.eap = users(&USERS[1..]),
            "another pattern" => gateway.remote_id = IdentityPattern::Mail("example.com".into()),
            "no entry" => gateway.answering.peers_only = true,
            _ => {}
        }
        let mut pair = Pair::new(client, gateway, 4);
        if what == "denied" {
            pair.gateway.endpoint.deny(pair.now, Denial::Name(ALICE.parse().expect("a name")));
        }
        let claimed = |pair: &mut Pair| {
            pair.gateway.events.iter().find_map(|e| match e {
                Event::PeerFailed { claimed, .. } => claimed.clone(),
                _ => None,
            })
        };
        pair.connect();
        pair.run_for(Duration::from_secs(3));
        assert_eq!(claimed(&mut pair).map(|id| id.to_string()).as_deref(), Some(ALICE), "{what}");
        pair.run_for(Duration::from_secs(37));
        let ours = pair.client.failure().expect("it fails");
        assert_eq!(ours.to_string(), "EAP failed: wrong user name or password", "{what}");
        let theirs = pair.gateway.peer_failure().expect("it is on record").to_string();
        assert!(theirs.contains(why), "{what}: {theirs}");
        assert!(pair.gateway.peer_failure().is_none(), "{what}: once");
        assert!(pair.gateway.established().is_none() && pair.gateway.endpoint.is_empty(), "{what}");
        seen.push((auths(&pair, true), auths(&pair, false)));
    }
    assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
}

#[test]
fn users_are_told_apart_for_pools_and_rules() {
    let ca = Authority::new("CA");
    let (_, mut gateway) = connections(&ca);
    let policy = PeerPolicy { isolate: true, ..gateway.answering.policy.clone() };
    let mut connection = gateway.clone();
    connection.answering.policy = policy;
    let id = IdentityPattern::Exact(fqdn("bob"));
    gateway.answering.peers = vec![PeerRule { id, connection: Arc::new(connection) }];
    let [alice, bob] = USERS;
    // Windows may send a domain, which is the gateway's affair if it has a user of that name, and otherwise none.
    gateway.answering.eap = users(&[alice, bob, ("CORP\\carl", "of the domain"), ("carl", "another carl")]);
    for (user, password, who, isolated) in [
        (alice.0, alice.1, alice.0, false),
        (bob.0, bob.1, "bob", true),
        ("CORP\\bob", bob.1, "bob", true),
        ("CORP\\carl", "of the domain", "corp\\carl", false),
        ("OTHER\\carl", "another carl", "carl", false),
    ] {
        let (mut client, _) = connections(&ca);
        client.local_auth = login(user, password);
        Pair::new(client, gateway.clone(), 5).up_with(who, isolated);
    }
}

impl Pair {
    fn up_with(&mut self, user: &str, isolated: bool) {
        self.connect();
        self.run_for(Duration::from_secs(5));
        let up = self.gateway.established().unwrap_or_else(|| panic!("{user}: {:?}", self.client.failure()));
        assert_eq!((up.peer.to_string().as_str(), up.isolate), (user, isolated));
    }
}

#[test]
fn certificates_are_taken_beside_users_and_only_where_they_are_configured() {
    let key = |ca: &Authority, client: &mut Connection| {
        client.local_id = fqdn("client.example.org");
        client.local_auth = ca.issue("client.example.org", &rcgen::PKCS_ECDSA_P256_SHA256);
    };
    let mut pair = pair_of(6, |ca, client, gateway| {
        key(ca, client);
        gateway.remote_auth = ca.trusted();
    });
    pair.up_with("client.example.org", false);
    let mut pair = pair_of(6, |ca, _, gateway| gateway.remote_auth = ca.trusted());
    pair.up_with(ALICE, false);
    // By EAP alone.
    let mut pair = pair_of(7, |ca, client, _| key(ca, client));
    let (ours, theirs) = refused(&mut pair);
    assert!(ours.contains("or it wants EAP"), "{ours}");
    assert!(
        theirs.contains("authenticating by a certificate; who may be meant is taken by EAP alone"),
        "{theirs}"
    );
    // No users at all.
    let mut pair = pair_of(8, |ca, _, gateway| {
        (gateway.answering.eap, gateway.remote_auth) = (None, ca.trusted());
    });
    let (ours, theirs) = refused(&mut pair);
    assert!(ours.contains("before it asked for a proof of alice@example.org"), "{ours}");
    assert!(theirs.contains("authenticating by EAP"), "{theirs}");
}

#[test]
fn messages_that_are_lost_repeated_or_late_do_no_harm() {
    for seed in seeds(60) {
        let mut pair = pair_of(seed, |_, client, gateway| {
            for conn in [client, gateway] {
                conn.fragmentation = Fragmentation { enabled: seed % 2 == 0, size: 576 };
            }
        });
        comes_through(&mut pair, seed, 20);
    }
}

#[test]
fn a_repeated_request_gets_the_same_answer_and_nothing_else() {
    let mut pair = pair_of(9, |_, client, gateway| {
        (client.fragmentation.enabled, gateway.fragmentation.enabled) = (false, false);
    });
    let kept: Rc<RefCell<Vec<Datagram>>> = Rc::default();
    let keep = kept.clone();
    // Each answer of the gateway is lost once.
    let mut lost = std::collections::BTreeSet::new();
    pair.filter = Some(Box::new(move |datagram| {
        let answer = !datagram.to_gateway && message(datagram)[18] == 35;
        if answer {
            keep.borrow_mut().push(datagram.clone());
        }
        !answer || !lost.insert(datagram.bytes.clone())
    }));
    assert!(connect(&mut pair).is_none());
    assert!(pair.client.established().is_some());
    let kept = kept.borrow();
    assert_eq!(kept.len(), 10);
    assert!(kept.chunks(2).all(|two| two[0].bytes == two[1].bytes));
}

#[test]
fn what_a_stranger_repeats_from_another_address_is_not_answered_there() {
    let mut pair = pair_of(18, |_, client, gateway| {
        (client.fragmentation.enabled, gateway.fragmentation.enabled) = (false, false);
    });
    let first: Rc<RefCell<Option<Datagram>>> = Rc::default();
    let keep = first.clone();
    // After the gateway's first answer the client is silent.
    pair.filter = Some(Box::new(move |datagram| {
        let message = message(datagram);
        let (auth, id) = (datagram.to_gateway && message[18] == 35, message[23]);
        if auth && id == 2 {
            keep.borrow_mut().get_or_insert_with(|| datagram.clone());
        }
        !auth || id == 2
    }));
    pair.connect();
    pair.run_for(Duration::from_millis(200));
    let request = first.borrow().clone().expect("the client has asked");
    let answers = |pair: &mut Pair, from: SocketAddr| {
        let before = auths(pair, false).len();
        pair.deliver(Datagram { from, ..request.clone() });
        pair.flush();
        auths(pair, false).len() - before
    };
    assert_eq!(auths(&pair, false).len(), 1);
    let other = SocketAddr::new([203, 0, 113, 9].into(), request.from.port());
    let other_port = SocketAddr::new(request.from.ip(), 61_234);
    assert_eq!([request.from, other, other_port].map(|from| answers(&mut pair, from)), [1, 0, 1]);
}

#[test]
fn post_quantum_keys_enter_with_the_last_request() {
    let with = |conn: &mut Connection, keys: &[(&str, &str)], required| {
        let ppk = |(id, secret): &(&str, &str)| {
            Arc::new(Ppk { id: id.as_bytes().to_vec(), secret: Secret::from(secret.as_bytes()) })
        };
        conn.ppk.keys = keys.iter().map(ppk).collect();
        (conn.ppk.required, conn.ppk.intermediate) = (required, false);
    };
    let (ours, other) = ([("a", "the first secret of both")], [("b", "another secret")]);
    // What the client and the gateway have, whether each requires it, and whether that goes.
    for (client_has, requires, gateway_has, demands, up) in [
        (&ours[..], true, &ours[..], true, true),
        (&ours[..], false, &ours[..], false, true),
        (&ours[..], false, &other[..], false, true),
        (&ours[..], true, &other[..], false, false),
        (&ours[..], false, &other[..], true, false),
        (&[][..], false, &ours[..], true, false),
        (&[][..], false, &ours[..], false, true),
    ] {
        for intermediate in [false, true] {
            let mut pair = pair_of(10, |_, client, gateway| {
                with(client, client_has, requires);
                with(gateway, gateway_has, demands);
                (client.ppk.intermediate, gateway.ppk.intermediate) = (intermediate, intermediate);
            });
            pair.connect();
            pair.run_for(Duration::from_secs(40));
            let what = format!("{client_has:?} {requires} {gateway_has:?} {demands} {intermediate}");
            let (failure, theirs) = (pair.client.failure(), pair.gateway.peer_failure());
            assert_eq!(pair.client.established().is_some(), up, "{what}: {failure:?} {theirs:?}");
            match up {
                true => pair.assert_agree(),
                false => {
                    assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty(), "{what}")
                }
            }
        }
    }
    // Keys that have the same name and are not the same.
    let mut pair = pair_of(11, |_, client, gateway| {
        with(client, &ours, true);
        with(gateway, &[("a", "not the same")], true);
    });
    let (ours, theirs) = refused(&mut pair);
    assert!(theirs.contains("does not match"), "{theirs}");
    assert!(ours.contains("or another PPK") && !ours.contains("password"), "{ours}");
}

#[test]
fn a_ticket_is_the_users_and_ends_with_the_password() {
    let ca = Authority::new("CA");
    let (client, gateway) = connections(&ca);
    let changes: [(&str, Change); 4] = [
        ("as it was", |_| {}),
        ("another password", |conn| conn.answering.eap = users(&[(ALICE, "changed"), USERS[1]])),
        ("removed", |conn| conn.answering.eap = users(&USERS[1..])),
        ("no users", |conn| conn.answering.eap = None),
    ];
    for (what, change) in changes {
        let mut pair = Pair::new(client.clone(), gateway.clone(), 12);
        let (a, _) = pair.up();
        let ticket = pair.client.ticket.take().expect("the gateway gave one");
        let mut then = gateway.clone();
        change(&mut then);
        // A session that runs.
        pair.gateway.endpoint.reconfigure(pair.now, vec![Arc::new(then)], &[]);
        pair.flush();
        pair.run_for(Duration::from_secs(2));
        let ended = pair.gateway.closed.iter().any(|(_, why)| *why == CloseReason::NotAdmitted);
        assert_eq!(ended, what != "as it was", "{what}");
        pair.client.endpoint.forget(pair.now, a);
        pair.client.events.clear();
        pair.gateway.events.clear();
        // And its ticket.
        resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(5));
        let up = pair.client.established();
        assert_eq!(up.is_some(), what == "as it was", "{what}: {:?}", pair.client.failure());
        if what == "as it was" {
            let theirs = pair.gateway.established().expect("both");
            assert_eq!((theirs.peer.to_string().as_str(), theirs.resumed), (ALICE, true));
            assert!(up.is_some_and(|up| up.resumed));
        }
    }
}

#[test]
fn a_denial_ends_a_users_session_and_a_new_password_makes_the_client_begin_anew() {
    let mut pair = pair_of(13, |_, _, _| {});
    let (_, b) = pair.up();
    assert_eq!(pair.gateway.endpoint.deny(pair.now, Denial::Name(ALICE.parse().expect("a name"))), 1);
    pair.flush();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.gateway.closed.contains(&(b, CloseReason::NotAdmitted)));
    let ca = Authority::new("CA");
    let (one, _) = connections(&ca);
    let two = Connection { local_auth: login(ALICE, "another"), ..one.clone() };
    assert!(one.has_secrets_of(&one) && !one.has_secrets_of(&two));
}

#[test]
fn a_slow_key_signs_first_for_a_caller_who_has_proved_nothing() {
    let ca = Authority::new("CA");
    let (client, mut gateway) = connections(&ca);
    gateway.local_auth = ca.issue("gw.example.org", &rcgen::PKCS_RSA_SHA256);
    let config = EndpointConfig { beside: Beside::slow(), ..gateway_config(gateway, 1) };
    let mut pair = Pair::with_configs(client, EndpointConfig::default(), config, 14);
    pair.connect();
    pair.run_for(Duration::from_secs(3));
    let (sa, signing) = pair.gateway.order().expect("something to sign");
    assert!(pair.gateway.order().is_none(), "repeated requests are signed for once");
    assert!(pair.client.established().is_none());
    pair.gateway.endpoint.done(pair.now, sa, signing.carry_out());
    pair.flush();
    pair.run_for(Duration::from_secs(3));
    assert!(pair.gateway.order().is_none(), "the last proof needs no key");
    assert!(pair.client.established().is_some(), "{:?}", pair.client.failure());
    pair.assert_agree();
}

/// The client's connection is under way; what `craft` makes comes to the gateway in the place of its request after the first answer.
fn crafted(seed: u64, craft: impl Fn(&mut Pair, u32) -> Vec<Payload>, times: u32) -> Pair {
    let mut pair = pair_of(seed, |_, client, gateway| {
        for conn in [client, gateway] {
            conn.ike_proposals = vec!["aes256gcm16-prfsha256-x25519".parse().expect("a proposal")];
            conn.fragmentation.enabled = false;
        }
    });
    let asked: Rc<RefCell<Option<Datagram>>> = Rc::default();
    let keep = asked.clone();
    pair.filter = Some(Box::new(move |datagram| {
        let message = message(datagram);
        let second = datagram.to_gateway && message[18] == 35 && message[23] > 1;
        if second {
            *keep.borrow_mut() = Some(datagram.clone());
        }
        !second
    }));
    pair.connect();
    pair.run_for(Duration::from_millis(200));
    let mut template = asked.borrow().clone().expect("the client has answered");
    pair.filter = None;
    for id in 2..2 + times {
        let payloads = craft(&mut pair, id);
        let sealed = pair.client.endpoint.craft_auth(id, &payloads);
        let marker = if template.carrier == Carrier::NatT { 4 } else { 0 };
        template.bytes.truncate(marker);
        template.bytes.extend(&sealed[0]);
        pair.deliver(template.clone());
        pair.flush();
    }
    pair
}

#[test]
fn a_caller_cannot_talk_without_end_or_skip_the_conversation() {
    // Without EAP, and with an AUTH payload that nothing was agreed for.
    let auth = || Payload::Auth { method: AuthMethod::SharedKeyMic, data: vec![7; 32] };
    for payloads in
        [vec![auth()], vec![], vec![Payload::Eap(vec![])], vec![Payload::Eap(vec![3, 1, 0, 4]), auth()]]
    {
        let mut pair = crafted(15, |_, _| payloads.clone(), 1);
        assert!(pair.gateway.peer_failure().is_some(), "{payloads:?}");
        assert!(pair.gateway.established().is_none(), "{payloads:?}");
        pair.run_for(Duration::from_secs(60));
        assert!(pair.gateway.endpoint.is_empty(), "{payloads:?}");
    }
    // Nak after Nak, or what is no answer to what was asked.
    let mut pair =
        crafted(16, |_, id| vec![Payload::Eap(vec![2, u8::try_from(id).expect("few"), 0, 6, 3, 99])], 60);
    let theirs = pair.gateway.peer_failure().expect("it is on record").to_string();
    assert!(pair.gateway.peer_failure().is_none(), "{theirs}");
    assert_eq!(pair.gateway.endpoint.half_open(), 1);
    pair.run_for(Duration::from_secs(60));
    assert!(pair.gateway.endpoint.is_empty());
    // Many bytes.
    let mut pair = crafted(17, |_, _| vec![Payload::Eap(vec![2; 60_000])], 2);
    assert!(pair.gateway.peer_failure().is_some() && pair.gateway.established().is_none());
}

#[test]
fn a_gateway_that_has_proved_who_it_is_must_prove_that_it_knows_the_password() {
    // What it says instead of its second EAP request, and what comes of that.
    let success = || Payload::Eap(vec![3, 9, 0, 4]);
    let auth = || Payload::Auth { method: AuthMethod::SharedKeyMic, data: vec![7; 32] };
    let failed = || Payload::Notify(dormouse_wire::ike::Notify::new(NotifyType::AuthenticationFailed, []));
    for (payloads, why) in [
        (vec![success()], "before it has proved who it is"),
        (vec![success(), auth()], "before it has proved who it is"),
        (vec![auth()], "no EAP payload"),
        (vec![failed()], "refused"),
        (vec![Payload::Eap(vec![4, 9, 0, 4])], "refused"),
    ] {
        let mut pair = pair_of(18, |_, client, gateway| {
            for conn in [client, gateway] {
                conn.ike_proposals = vec!["aes256gcm16-prfsha256-x25519".parse().expect("a proposal")];
                conn.fragmentation.enabled = false;
            }
        });
        let answers: Rc<RefCell<Option<Datagram>>> = Rc::default();
        let keep = answers.clone();
        pair.filter = Some(Box::new(move |datagram| {
            let message = message(datagram);
            let second = !datagram.to_gateway && message[18] == 35 && message[23] == 2;
            if second {
                *keep.borrow_mut() = Some(datagram.clone());
            }
            !second
        }));
        pair.connect();
        pair.run_for(Duration::from_millis(200));
        let mut template = answers.borrow().clone().expect("the gateway has answered");
        pair.filter = None;
        let sealed = pair.gateway.endpoint.craft_auth(2, &payloads);
        let marker = if template.carrier == Carrier::NatT { 4 } else { 0 };
        template.bytes.truncate(marker);
        template.bytes.extend(&sealed[0]);
        pair.deliver(template);
        pair.flush();
        let error = pair.client.failure().unwrap_or_else(|| panic!("{payloads:?}")).to_string();
        assert!(error.contains(why), "{payloads:?}: {error}");
        assert!(pair.client.endpoint.is_empty() && pair.client.children.is_empty());
    }
}

#[test]
fn a_message_that_is_changed_on_the_way_changes_nothing() {
    for (to_gateway, id) in [(true, 2), (false, 2), (true, 3), (false, 3), (true, 5), (false, 5)] {
        let mut pair = pair_of(19, |_, client, gateway| {
            for conn in [client, gateway] {
                conn.ike_proposals = vec!["aes256gcm16-prfsha256-x25519".parse().expect("a proposal")];
                conn.fragmentation.enabled = false;
            }
        });
        let mut once = true;
        pair.filter = Some(Box::new(move |datagram| {
            let marker = if datagram.carrier == Carrier::NatT { 4 } else { 0 };
            let meant = datagram.to_gateway == to_gateway && message(datagram)[18] == 35;
            if meant && message(datagram)[23] == id && std::mem::take(&mut once) {
                datagram.bytes[marker + 60] ^= 1;
            }
            true
        }));
        assert!(connect(&mut pair).is_none(), "{to_gateway} {id}");
        assert!(pair.client.established().is_some(), "{to_gateway} {id}");
        pair.assert_agree();
    }
}

#[test]
fn a_client_that_falls_silent_leaves_nothing_behind_and_is_on_record_if_it_was_wrong() {
    for (password, recorded) in [("guess", true), ("clientPass", false)] {
        let mut pair = pair_of(20, |_, client, _| client.local_auth = login(ALICE, password));
        // Nothing gets through after the answer to the challenge.
        let mut answers = 0;
        pair.filter = Some(Box::new(move |datagram| {
            answers += usize::from(datagram.to_gateway && message(datagram)[18] == 35);
            !datagram.to_gateway || answers <= 3
        }));
        pair.connect();
        pair.run_for(Duration::from_secs(90));
        assert_eq!(pair.gateway.peer_failure().is_some(), recorded, "{password}");
        assert!(pair.gateway.endpoint.is_empty() && pair.gateway.established().is_none());
        let ours = pair.client.failure().expect("it gives up").to_string();
        assert_eq!(ours.contains("wrong user name or password"), recorded, "{ours}");
    }
}

#[test]
fn a_full_login_ends_the_users_former_session() {
    let mut pair = pair_of(21, |_, _, _| {});
    let (a, _) = pair.up();
    pair.client.endpoint.forget(pair.now, a);
    pair.client.events.clear();
    pair.gateway.events.clear();
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    assert!(pair.client.established().is_some());
    assert_eq!(pair.gateway.endpoint.len(), 1, "INITIAL_CONTACT stands in the first request");
    assert!(pair.gateway.closed.iter().any(|(_, why)| *why == CloseReason::Replaced));
}
