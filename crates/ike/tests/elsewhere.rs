//! Users whom RADIUS servers know: what IKE does while others are asked, and what it believes of the answer. The server of these tests is our own authenticator.

mod common;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use common::eap::{Authority, USERS, pair_of, users};
use common::resumed::resume;
use common::{Datagram, EPOCH, Faults, Pair, seeds};
use dormouse_crypto::Secret;
use dormouse_eap::authenticator::{Authenticator, Config, Method, Step, Users};
use dormouse_eap::packet::{Packet, Type};
use dormouse_eap::{Msk, NtHash};
use dormouse_ike::admission::{Denial, Shown};
use dormouse_ike::config::{Connection, EapPolicy, IdentityPattern, PeerPolicy};
use dormouse_ike::elsewhere::{Accepted, Granted, Question, Verdict};
use dormouse_ike::{CloseReason, Event, NegotiationError};
use dormouse_keying::SaId;
use dormouse_sansio::{Carrier, Seeded};

const ALICE: &str = USERS[0].0;
const PASSWORD: &str = USERS[0].1;

struct Alice;

impl Users for Alice {
    fn mschapv2(&self, user: &str) -> Option<NtHash> {
        if user == ALICE { NtHash::of_password(PASSWORD) } else { None }
    }
}

/// A server, and how it behaves.
struct Server {
    random: Seeded,
    talk: Option<Authenticator>,
    /// It answers so late.
    after: Duration,
    /// It says that this is who has come, with this key and these grants.
    name: Option<&'static str>,
    key: Option<[u8; 64]>,
    granted: Granted,
    asked: usize,
}

impl Server {
    fn new() -> Self {
        let (random, granted) = (Seeded::new(77), Granted::default());
        Self { random, talk: None, after: Duration::ZERO, name: None, key: None, granted, asked: 0 }
    }

    fn verdict(&mut self, question: &Question) -> Verdict {
        self.asked += 1;
        let step = match (Packet::parse(&question.response), &mut self.talk) {
            (Ok(Packet::Response { kind: Type::IDENTITY, data, .. }), _) => {
                let name = String::from_utf8(data.to_vec()).expect("a name");
                let config = Arc::new(Config::new(Method::MsChapV2, Vec::new(), "server", &mut self.random));
                let (talk, first) = Authenticator::begin(&config, Some(name), &mut self.random);
                self.talk = Some(talk);
                Step::Send(first)
            }
            (_, Some(talk)) => talk.receive(&question.response, &Alice, &mut self.random),
            (packet, None) => panic!("{packet:?}"),
        };
        match step {
            Step::Send(packet) => Verdict::Continue(packet),
            Step::Succeeded { packet, identity, msk } => {
                let user = self.name.map_or(identity, str::to_owned);
                let msk = self.key.map_or(msk, |key| Msk::of(&[&key]));
                let key = Secret::from(msk.as_bytes());
                Verdict::Accepted(Box::new(Accepted { packet, user, key, granted: self.granted }))
            }
            Step::Failed { packet, why } => Verdict::Refused { packet, why: format!("10.0.0.1:1812: {why}") },
            Step::Ignore => panic!("ignored"),
        }
    }

    /// Both ends for so long, with this server at the gateway.
    fn run_for(&mut self, pair: &mut Pair, time: Duration) {
        let (until, mut late) = (pair.now + time, Vec::new());
        while pair.now < until {
            pair.run_for(Duration::from_millis(50));
            while let Some(question) = question(pair) {
                late.push((pair.now + self.after, question));
            }
            while late.first().is_some_and(|(at, _)| *at <= pair.now) {
                let (_, question) = late.remove(0);
                let verdict = self.verdict(&question);
                pair.gateway.endpoint.told_elsewhere(pair.now, question.sa, verdict);
                pair.flush();
            }
        }
    }
}

/// What the gateway asks.
fn question(pair: &mut Pair) -> Option<Question> {
    let at = pair.gateway.events.iter().position(|e| matches!(e, Event::AskElsewhere(_)))?;
    match pair.gateway.events.remove(at) {
        Some(Event::AskElsewhere(question)) => Some(*question),
        _ => None,
    }
}

fn pair(seed: u64, change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    pair_of(seed, |_: &Authority, client, gateway| {
        gateway.answering.eap = Some(Arc::new(EapPolicy::radius()));
        change(client, gateway);
    })
}

#[test]
fn a_server_hears_where_the_caller_began_and_not_what_a_packet_claims() {
    let mut pair = pair(10, |_, _| {});
    let requests: Rc<RefCell<Vec<Datagram>>> = Rc::default();
    let keep = requests.clone();
    pair.filter = Some(Box::new(move |datagram| {
        let marker = if datagram.carrier == Carrier::NatT { 4 } else { 0 };
        let message = &datagram.bytes[marker..];
        let held = datagram.to_gateway && message[18] == 35 && message[23] > 2;
        if held {
            keep.borrow_mut().push(datagram.clone());
        }
        !held
    }));
    pair.connect();
    pair.run_for(Duration::from_millis(200));
    pair.filter = None;
    let held = requests.borrow().clone();
    assert!(!held.is_empty());
    for datagram in held {
        let from = SocketAddr::new([203, 0, 113, 9].into(), datagram.from.port());
        pair.deliver(Datagram { from, ..datagram });
        pair.flush();
    }
    let asked = question(&mut pair).expect("it asks");
    assert_eq!(asked.from, pair.default_path().local.ip());
}

fn failures(pair: &mut Pair) -> (String, String) {
    assert!(pair.gateway.established().is_none() && pair.client.established().is_none());
    let ours = pair.client.failure().expect("the client is refused").to_string();
    let theirs = pair.gateway.peer_failure().expect("it is on record").to_string();
    assert!(pair.gateway.peer_failure().is_none(), "once");
    (ours, theirs)
}

#[test]
fn a_user_whom_a_server_knows_comes_in() {
    let (mut pair, mut server) = (pair(1, |_, _| {}), Server::new());
    pair.connect();
    server.run_for(&mut pair, Duration::from_secs(3));
    let up = pair.gateway.established().unwrap_or_else(|| panic!("{:?}", pair.client.failure()));
    assert_eq!((up.peer.to_string().as_str(), up.eap), (ALICE, true));
    assert!(matches!(up.credential.map(|c| c.shown), Some(Shown::Eap(_))));
    assert_eq!(server.asked, 3, "its name, and the method's two responses");
    let ours = pair.client.established().expect("both are up");
    assert_eq!(ours.configuration.v4, up.configuration.v4);
    pair.assert_agree();
}

#[test]
fn an_answer_may_be_late_and_messages_lost() {
    for seed in seeds(20) {
        let (mut pair, mut server) = (pair(seed, |_, _| {}), Server::new());
        server.after = Duration::from_millis(100 * (seed % 40));
        pair.faults = Some(Faults { seed: Seeded::new(seed), lost: 10, doubled: 20, late: 20 });
        pair.connect();
        server.run_for(&mut pair, Duration::from_secs(60));
        let failure = pair.client.failure();
        assert!(pair.client.established().is_some(), "seed {seed}: {failure:?}");
        assert_eq!(server.asked, 3, "seed {seed}: what is repeated is not asked again");
        pair.faults = None;
        server.run_for(&mut pair, Duration::from_secs(40));
        assert_eq!(pair.gateway.endpoint.len(), 1, "seed {seed}");
        pair.assert_agree();
    }
}

#[test]
fn what_comes_when_nobody_waits_changes_nothing() {
    let mut pair = pair(2, |_, _| {});
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    let asked = question(&mut pair).expect("it asks");
    assert_eq!(asked.response[5..], *ALICE.as_bytes());
    assert_eq!(asked.from, pair.default_path().local.ip());
    // Of an SA that there is not, and of one that does not wait.
    assert!(!pair.gateway.endpoint.told_elsewhere(
        pair.now,
        SaId::new(999),
        Verdict::Unanswered(String::new())
    ));
    let request = Verdict::Continue(vec![1, 9, 0, 5, 1]);
    assert!(pair.gateway.endpoint.told_elsewhere(pair.now, asked.sa, request));
    let twice = Verdict::Refused { packet: vec![4, 9, 0, 4], why: String::new() };
    assert!(pair.gateway.endpoint.told_elsewhere(pair.now, asked.sa, twice));
    assert!(pair.gateway.peer_failure().is_none(), "it was answered already");
    // The half-open SA ends, and its answer comes too late.
    pair.client.endpoint.forget(pair.now, SaId::new(1));
    pair.run_for(Duration::from_secs(60));
    assert!(pair.gateway.endpoint.is_empty());
    assert!(!pair.gateway.endpoint.told_elsewhere(pair.now, asked.sa, Verdict::Continue(Vec::new())));
}

#[test]
fn who_is_refused_and_who_could_not_be_asked_about_hear_different_things() {
    let mut server = Server::new();
    let mut wrong = pair(3, |client, _| client.local_auth = common::eap::login(ALICE, "guess"));
    wrong.connect();
    server.run_for(&mut wrong, Duration::from_secs(40));
    let (ours, theirs) = {
        let ours = wrong.client.failure().expect("it fails").to_string();
        (ours, wrong.gateway.peer_failure().map(|e| e.to_string()))
    };
    assert!(ours.contains("wrong user name or password"), "{ours}");
    // A server that says so by the method's own word hears no more of the client.
    assert!(theirs.is_none_or(|theirs| theirs.contains("10.0.0.1:1812")));

    let mut refused = pair(4, |_, _| {});
    refused.connect();
    refused.run_for(Duration::from_secs(1));
    let asked = question(&mut refused).expect("it asks");
    let verdict = Verdict::Refused {
        packet: vec![4, asked.response[1], 0, 4],
        why: "10.0.0.1:1812 does not let the user in".into(),
    };
    refused.gateway.endpoint.told_elsewhere(refused.now, asked.sa, verdict);
    refused.run_for(Duration::from_secs(5));
    let (_, theirs) = failures(&mut refused);
    assert_eq!(theirs, "the RADIUS server 10.0.0.1:1812 does not let the user in");

    let mut silent = pair(5, |_, _| {});
    silent.connect();
    silent.run_for(Duration::from_secs(1));
    let asked = question(&mut silent).expect("it asks");
    silent.gateway.endpoint.told_elsewhere(
        silent.now,
        asked.sa,
        Verdict::Unanswered("10.0.0.1:1812 (no answer in 6 s)".into()),
    );
    silent.run_for(Duration::from_secs(5));
    let (ours, theirs) = failures(&mut silent);
    assert_eq!(ours, NegotiationError::Busy.to_string(), "it may come again");
    assert_eq!(theirs, "no RADIUS server answers: 10.0.0.1:1812 (no answer in 6 s)");
}

#[test]
fn a_server_cannot_let_in_whom_the_gateway_does_not_take() {
    type Change = fn(&mut Pair, &mut Server);
    let cases: [(&str, Change, &str); 4] = [
        (
            "denied",
            |pair, _| _ = pair.gateway.endpoint.deny(pair.now, Denial::Name(ALICE.parse().expect("a name"))),
            "is denied",
        ),
        (
            "another name that is denied",
            |pair, server| {
                server.name = Some("mallory");
                pair.gateway.endpoint.deny(pair.now, Denial::Name("mallory".parse().expect("a name")));
            },
            "is denied",
        ),
        ("no name", |_, server| server.name = Some("CN=alice"), "no name of a user"),
        ("another key", |_, server| server.key = Some([7; 64]), "authentication failed"),
    ];
    for (what, change, why) in cases {
        let (mut pair, mut server) = (pair(6, |_, _| {}), Server::new());
        change(&mut pair, &mut server);
        pair.connect();
        server.run_for(&mut pair, Duration::from_secs(40));
        let (_, theirs) = failures(&mut pair);
        assert!(theirs.contains(why), "{what}: {theirs}");
    }
    let (mut pair, mut server) = (
        pair(7, |_, gateway| gateway.remote_id = IdentityPattern::Mail("example.com".into())),
        Server::new(),
    );
    pair.connect();
    server.run_for(&mut pair, Duration::from_secs(40));
    let (_, theirs) = failures(&mut pair);
    assert!(theirs.contains("the configuration takes"), "{theirs}");
}

#[test]
fn a_server_says_how_long_a_session_may_last_with_its_resumptions() {
    let policy = |gateway: &mut Connection| {
        gateway.answering.policy =
            PeerPolicy { lifetime: Some(Duration::from_secs(3_600)), ..gateway.answering.policy.clone() };
    };
    let (mut pair, mut server) = (pair(8, |_, gateway| policy(gateway)), Server::new());
    server.granted.lasts = Some(Duration::from_secs(300));
    pair.connect();
    server.run_for(&mut pair, Duration::from_secs(3));
    let ours = pair.client.established().expect("up");
    let ticket = pair.client.ticket.take().expect("it gets a ticket");
    assert!(ticket.expires <= EPOCH + Duration::from_secs(303), "{ticket:?}");
    // Nobody is asked for a ticket.
    pair.client.endpoint.forget(pair.now, ours.sa);
    pair.flush();
    let asked = server.asked;
    resume(&mut pair, &ticket);
    server.run_for(&mut pair, Duration::from_secs(3));
    assert!(pair.client.established().is_some(), "{:?}", pair.client.failure());
    assert_eq!(server.asked, asked);
    pair.gateway.closed.clear();
    server.after = Duration::from_secs(600);
    server.run_for(&mut pair, Duration::from_secs(310));
    assert!(
        pair.gateway.closed.iter().any(|(_, why)| *why == CloseReason::LifetimeOver),
        "{:?}",
        pair.gateway.closed
    );
}

#[test]
fn a_ticket_of_a_server_s_user_counts_only_where_servers_are_asked() {
    let mut then = None;
    let mut pair = pair(9, |_, gateway| then = Some(gateway.clone()));
    let mut server = Server::new();
    pair.connect();
    server.run_for(&mut pair, Duration::from_secs(3));
    let ours = pair.client.established().expect("up");
    let ticket = pair.client.ticket.take().expect("it gets a ticket");
    pair.client.endpoint.forget(pair.now, ours.sa);
    let mut gateway = then.expect("the gateway's connection");
    gateway.answering.eap = users(&USERS);
    pair.gateway.endpoint.reconfigure(pair.now, vec![Arc::new(gateway)], &[]);
    pair.flush();
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(5));
    let theirs = pair.gateway.peer_failure().expect("refused").to_string();
    assert!(theirs.contains("is not the one that admitted it"), "{theirs}");
}
