//! Leases of the gateway's pool are returned as often as they were given, however a resumption ends.

mod common;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Pair, client_psk, gateway_config, gateway_psk};
use dormouse_crypto::cert::Identity;
use dormouse_ike::config::{Connection, HalfOpen, PeerPolicy, SelectorSpec, Unique};
use dormouse_ike::config_payload::{AddressPool, Lease, LeaseRequest};
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::Memory;
use dormouse_ike::{Discard, EndpointConfig, Event};

/// What a pool has given and got back.
#[derive(Default)]
struct Books {
    given: u32,
    returned: u32,
    /// The last byte of the address that is given next.
    next: u8,
    /// What was given is not on the disk.
    unwritten: bool,
}

#[derive(Clone, Default)]
struct Counting(Arc<Mutex<Books>>);

impl Counting {
    fn books<T>(&self, look: impl FnOnce(&mut Books) -> T) -> T {
        look(&mut self.0.lock().expect("one thread"))
    }

    fn out(&self) -> u32 {
        self.books(|books| books.given - books.returned)
    }
}

impl AddressPool for Counting {
    fn lease(&mut self, _: &Connection, _: &Identity, request: &LeaseRequest) -> Lease {
        self.books(|books| {
            books.given += u32::from(!request.tentative);
            Lease { v4: Some(Ipv4Addr::new(10, 9, 0, books.next)), v6: None }
        })
    }

    fn is_unwritten(&self, _: &Lease) -> bool {
        self.books(|books| books.unwritten)
    }

    fn release(&mut self, _: &Lease) {
        self.books(|books| books.returned += 1);
    }
}

/// A client that has left without a word, with a ticket; its session is still at the gateway, and has the one lease.
fn slept(seed: u64) -> (Pair, ClientTicket, Counting) {
    slept_with(HalfOpen::default(), seed)
}

fn slept_with(half_open: HalfOpen, seed: u64) -> (Pair, ClientTicket, Counting) {
    let pool = Counting::default();
    let config = EndpointConfig {
        pool: Some(Box::new(pool.clone())),
        half_open,
        ..gateway_config(gateway_psk(), seed)
    };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, seed);
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    pair.flush();
    assert_eq!(pool.out(), 1);
    (pair, ticket, pool)
}

fn resume(pair: &mut Pair, ticket: &ClientTicket) {
    let path = pair.default_path();
    pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket.clone(), path);
    pair.flush();
}

#[test]
fn a_resumption_that_no_client_confirms_has_no_lease() {
    let (mut pair, ticket, pool) = slept(1);
    pair.filter = Some(Box::new(|d| d.to_gateway));
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(1));
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (1, 1));
    pair.run_for(Duration::from_secs(40));
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (1, 0));
}

#[test]
fn a_resumption_whose_ticket_does_not_count_has_no_lease() {
    let (mut pair, ticket, pool) = slept(2);
    // The row of its lineage is another one's by now.
    pair.gateway.store = Memory::default();
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(10));
    assert!(pair.client.established().is_some(), "it was resumed, and then refused");
    assert_eq!((pool.books(|books| books.given), pool.out()), (1, 1));
    assert_eq!(pair.gateway.endpoint.half_open(), 0);
}

#[test]
fn a_resumption_whose_address_has_gone_to_another_until_it_is_confirmed_is_refused() {
    let (mut pair, ticket, pool) = slept(6);
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_millis(50));
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (1, 1));
    pool.books(|books| books.next = 7);
    pair.run_for(Duration::from_secs(10));
    let why = pair.gateway.peer_failure().map(|why| why.to_string());
    assert!(why.as_ref().is_some_and(|why| why.contains("another's by now")), "{why:?}");
    assert!(common::resumed::confirmed(&mut pair).is_none());
    assert_eq!((pool.books(|books| books.given), pool.out()), (2, 1), "the other one is returned");
}

#[test]
fn a_resumption_that_cannot_have_its_address_has_no_other_one_before_it_is_confirmed() {
    let (mut pair, ticket, pool) = slept(3);
    // The pool gives another address than the ticket's: it cannot be done at once, and the client does not go on.
    pool.books(|books| books.next = 7);
    pair.filter = Some(Box::new(|d| d.to_gateway));
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(1));
    assert_eq!((pool.books(|books| books.given), pool.out()), (1, 1));
    pair.run_for(Duration::from_secs(40));
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (1, 0));
    // When it does, it has one lease like any other.
    pair.filter = None;
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(10));
    assert!(pair.client.established().is_some());
    assert_eq!((pool.out(), pair.gateway.endpoint.len()), (1, 1), "the old session's is returned");
}

#[test]
fn a_resumption_that_gives_way_under_load_leaves_no_lease() {
    let (mut pair, ticket, pool) =
        slept_with(HalfOpen { cookie_threshold: 0, max: 1, ..HalfOpen::default() }, 4);
    // The client returns its cookie, and says no word after the answer.
    pair.filter = Some(Box::new(|d| !d.to_gateway || d.bytes.get(4 + 18) != Some(&37)));
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(5));
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (1, 1));
    let mut other = Pair::psk(5);
    other.connect();
    let (_, mut first) = other.wire.pop_first().expect("the first message");
    let from = common::path(common::GATEWAY, "203.0.113.7:500");
    let result = pair.gateway.endpoint.handle_datagram(pair.now, from, &mut first.bytes);
    assert_eq!(result, Err(Discard::NoCookie));
    pair.flush();
    assert_eq!((pool.out(), pair.gateway.endpoint.stats().half_open_displaced), (1, 1));
}

/// A pool that gives a device what its ticket names, else the first address that no session has.
#[derive(Clone, Default)]
struct Apart(Arc<Mutex<Vec<u32>>>);

impl AddressPool for Apart {
    fn lease(&mut self, _: &Connection, _: &Identity, request: &LeaseRequest) -> Lease {
        let mut users = self.0.lock().expect("one thread");
        let address = |host: usize| Ipv4Addr::new(10, 9, 0, u8::try_from(host + 2).expect("few"));
        let kept = (0..users.len()).find(|host| request.kept.contains(&address(*host).into()));
        let host = kept.or_else(|| users.iter().position(|users| *users == 0)).unwrap_or(users.len());
        if host == users.len() {
            users.push(0);
        }
        users[host] += u32::from(!request.tentative);
        Lease { v4: Some(address(host)), v6: None }
    }

    fn release(&mut self, lease: &Lease) {
        let host = usize::from(lease.v4.expect("it had one").octets()[3]) - 2;
        self.0.lock().expect("one thread")[host] -= 1;
    }
}

/// The second device comes while the first is away, and has no CHILD SA yet: the address is its own nevertheless.
#[test]
fn a_device_that_comes_back_does_not_get_the_address_of_another_that_has_no_child_sa() {
    for (seed, dormancy) in [(20, true), (21, false)] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        client.initial_contact = false;
        (client.dormancy, gateway.dormancy) = (dormancy, dormancy);
        gateway.children[0].ts_local = vec![SelectorSpec::Net("198.18.0.0/15".parse().expect("a prefix"))];
        gateway.answering.policy =
            PeerPolicy { unique: Unique::Never, sessions: 2, ..gateway.answering.policy };
        let pool = Box::new(Apart::default());
        let config = EndpointConfig { pool: Some(pool), ..gateway_config(gateway, seed) };
        let (mut pair, ticket, old) = common::resumed::slept_with(client, config, seed);
        pair.gateway.endpoint.forget(pair.now, old);
        pair.flush();
        // It offers what the gateway does not take for a CHILD SA, and its word that it leaves is lost.
        let ours = pair.conn.clone();
        let mut other = Connection { name: "other".to_owned(), ..(*ours).clone() };
        pair.filter = Some(Box::new(|d| {
            let informational = [d.bytes.get(18), d.bytes.get(4 + 18)].contains(&Some(&37));
            !(d.to_gateway && informational && d.from.ip() == common::addr("192.0.2.66:500").ip())
        }));
        other.children[0].ts_remote = vec![SelectorSpec::Net("203.0.113.0/24".parse().expect("a prefix"))];
        pair.conn = Arc::new(other);
        let there = common::path("192.0.2.66:500", common::GATEWAY);
        pair.client.endpoint.connect(pair.now, pair.conn.clone(), there);
        pair.flush();
        pair.run_for(Duration::from_secs(1));
        let second = pair.gateway.established().expect("it logs in");
        let (id, second) = (second.sa, second.configuration);
        assert!(pair.gateway.children.is_empty() && second.addresses() == ticket.addresses, "{seed}");
        pair.client.events.clear();
        pair.conn = ours;
        resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(5));
        let first = pair.gateway.established().expect("it comes back").configuration;
        assert!(pair.gateway.endpoint.path(id).is_some(), "{seed}: the other is there still");
        assert_ne!(first.addresses(), second.addresses(), "{seed}");
        let ends: Vec<_> = pair.gateway.children.values().map(|c| c.ts_remote[0].start).collect();
        assert_eq!(ends, first.addresses(), "{seed}: and its CHILD SA leads there");
    }
}

/// A crash of the gateway would give the address to another.
#[test]
fn the_answer_that_gives_an_address_waits_until_it_is_on_the_disk_and_no_other_does() {
    let pool = Counting::default();
    pool.books(|books| books.unwritten = true);
    let config = EndpointConfig { pool: Some(Box::new(pool.clone())), ..gateway_config(gateway_psk(), 8) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 8);
    pair.connect();
    // The client repeats its request meanwhile.
    pair.run_for(Duration::from_secs(3));
    assert!(pair.client.established().is_none() && pair.gateway.established().is_some());
    let repeated = pair.client.endpoint.stats().retransmissions;
    assert!(repeated > 0 && pool.books(|books| books.given) == 1);
    pair.gateway.endpoint.leases_written();
    pair.flush();
    pair.run_for(Duration::from_millis(100));
    assert!(pair.client.established().is_none(), "it is not written yet");
    let answered = |pair: &Pair| pair.gateway.events.iter().any(|e| matches!(e, Event::Answered { .. }));
    assert!(pair.gateway.children.values().all(|child| !child.send_now), "the client does not have the keys");
    assert!(!answered(&pair));
    pool.books(|books| books.unwritten = false);
    pair.gateway.endpoint.leases_written();
    pair.flush();
    assert!(answered(&pair));
    pair.run_for(Duration::from_millis(500));
    assert!(pair.client.established().is_some());
    assert_eq!(pair.client.endpoint.stats().retransmissions, repeated);
    // Nothing of it waits any more, and nothing of one whose lease is there already.
    pair.run_for(Duration::from_secs(5));
    pair.assert_agree();
}
