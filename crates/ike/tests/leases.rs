//! Leases of the gateway's pool are returned as often as they were given, however a resumption ends.

mod common;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Pair, client_psk, gateway_config, gateway_psk};
use dormouse_crypto::cert::Identity;
use dormouse_ike::Discard;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, HalfOpen};
use dormouse_ike::config_payload::{AddressPool, Lease, LeaseRequest};
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::Memory;

/// What a pool has given and got back.
#[derive(Default)]
struct Books {
    given: u32,
    returned: u32,
    /// The last byte of the address that is given next.
    next: u8,
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
    fn lease(&mut self, _: &Connection, _: &Identity, _: &LeaseRequest) -> Lease {
        self.books(|books| {
            books.given += 1;
            Lease { v4: Some(Ipv4Addr::new(10, 9, 0, books.next)), v6: None }
        })
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
fn a_resumption_that_no_client_confirms_returns_its_lease() {
    let (mut pair, ticket, pool) = slept(1);
    pair.filter = Some(Box::new(|d| d.to_gateway));
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(1));
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (2, 1));
    pair.run_for(Duration::from_secs(40));
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (1, 0));
}

#[test]
fn a_resumption_whose_ticket_does_not_count_returns_its_lease() {
    let (mut pair, ticket, pool) = slept(2);
    // The row of its lineage is another one's by now.
    pair.gateway.store = Memory::default();
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pool.books(|books| books.given), 2, "it was resumed, and then refused");
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (1, 0));
}

#[test]
fn a_resumption_that_cannot_have_its_address_returns_the_other_one() {
    let (mut pair, ticket, pool) = slept(3);
    // The pool gives another address than the ticket's: it cannot be done at once, and the client does not go on.
    pool.books(|books| books.next = 7);
    pair.filter = Some(Box::new(|d| d.to_gateway));
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(1));
    assert_eq!((pool.books(|books| books.given), pool.out()), (2, 1));
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
fn a_resumption_that_gives_way_under_load_returns_its_lease() {
    let (mut pair, ticket, pool) =
        slept_with(HalfOpen { cookie_threshold: 0, max: 1, ..HalfOpen::default() }, 4);
    // The client returns its cookie, and says no word after the answer.
    pair.filter = Some(Box::new(|d| !d.to_gateway || d.bytes.get(4 + 18) != Some(&37)));
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(5));
    assert_eq!((pool.out(), pair.gateway.endpoint.half_open()), (2, 1));
    let mut other = Pair::psk(5);
    other.connect();
    let (_, mut first) = other.wire.pop_first().expect("the first message");
    let from = common::path(common::GATEWAY, "203.0.113.7:500");
    let result = pair.gateway.endpoint.handle_datagram(pair.now, from, &mut first.bytes);
    assert_eq!(result, Err(Discard::NoCookie));
    pair.flush();
    assert_eq!((pool.out(), pair.gateway.endpoint.stats().half_open_displaced), (1, 1));
}
