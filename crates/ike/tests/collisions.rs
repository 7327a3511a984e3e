//! Both ends act at once (RFC 7296 sections 2.8.1, 2.8.2 and 2.25), decided by chosen nonces.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use common::{Pair, client_psk, gateway_config, gateway_psk};
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::Connection;
use dormouse_ike::{Event, SleepFlags, SleepVerdict, Sleeping};
use dormouse_keying::{ChildId, SaId};
use dormouse_sansio::{Entropy, Seeded};

/// Entropy whose nonces begin with a chosen byte. Nonces are the only draws of 32 bytes when the key exchange is P-384.
struct Chosen {
    seed: Seeded,
    first: Arc<AtomicU16>,
}

const FREE: u16 = 0x100;

impl Entropy for Chosen {
    fn fill(&mut self, out: &mut [u8]) {
        self.seed.fill(out);
        if let (32, Ok(byte)) = (out.len(), u8::try_from(self.first.load(Ordering::Relaxed))) {
            out[0] = byte;
        }
    }
}

struct Duel {
    pair: Pair,
    a: SaId,
    b: SaId,
    nonce_a: Arc<AtomicU16>,
    nonce_b: Arc<AtomicU16>,
}

fn p384(mut conn: Connection) -> Connection {
    conn.ike_proposals = vec!["aes128gcm16-prfsha256-ecp384".parse().expect("a proposal")];
    conn.children[0].proposals = vec!["aes128gcm16".parse().expect("a proposal")];
    conn
}

/// The same with additional key exchanges, which draw nothing from our entropy.
fn hybrid(mut conn: Connection) -> Connection {
    conn.ike_proposals = vec!["aes128gcm16-prfsha256-ecp384-ke1_mlkem512".parse().expect("a proposal")];
    conn.children[0].proposals = vec!["aes128gcm16-ecp384-ke1_mlkem768".parse().expect("a proposal")];
    conn
}

fn duel(seed: u64) -> Duel {
    duel_of(seed, p384)
}

fn duel_of(seed: u64, p384: fn(Connection) -> Connection) -> Duel {
    let config = gateway_config(p384(gateway_psk()), seed);
    let mut pair = Pair::with_configs(p384(client_psk()), EndpointConfig::default(), config, seed);
    let (nonce_a, nonce_b) = (Arc::new(AtomicU16::new(FREE)), Arc::new(AtomicU16::new(FREE)));
    let entropy =
        |seed, first: &Arc<AtomicU16>| Box::new(Chosen { seed: Seeded::new(seed), first: first.clone() });
    pair.client = common::Side::new(EndpointConfig::default(), entropy(seed, &nonce_a));
    let config = gateway_config(p384(gateway_psk()), seed);
    pair.gateway = common::Side::new(config, entropy(seed + 1_000, &nonce_b));
    let (a, b) = pair.up();
    Duel { pair, a, b, nonce_a, nonce_b }
}

impl Duel {
    fn children(&self) -> (ChildId, ChildId) {
        let first = |side: &common::Side| *side.children.keys().next().expect("one");
        (first(&self.pair.client), first(&self.pair.gateway))
    }

    /// The next exchange of each end begins with a nonce of this first byte, and answers with 0xff.
    fn rekey_children(&mut self, nonce_a: u16, nonce_b: u16) {
        let (child_a, child_b) = self.children();
        self.nonce_a.store(nonce_a, Ordering::Relaxed);
        self.nonce_b.store(nonce_b, Ordering::Relaxed);
        self.pair.client.endpoint.rekey_child(self.pair.now, child_a);
        self.pair.gateway.endpoint.rekey_child(self.pair.now, child_b);
        self.answer_high();
    }

    fn rekey_ike(&mut self, nonce_a: u16, nonce_b: u16) {
        self.nonce_a.store(nonce_a, Ordering::Relaxed);
        self.nonce_b.store(nonce_b, Ordering::Relaxed);
        self.pair.client.endpoint.rekey_ike(self.pair.now, self.a);
        self.pair.gateway.endpoint.rekey_ike(self.pair.now, self.b);
        self.answer_high();
    }

    fn answer_high(&self) {
        self.nonce_a.store(0xff, Ordering::Relaxed);
        self.nonce_b.store(0xff, Ordering::Relaxed);
    }

    fn lives_with_one_child(&mut self) {
        self.pair.run_for(Duration::from_secs(60));
        assert!(self.pair.client.closed.is_empty() && self.pair.gateway.closed.is_empty());
        assert_eq!((self.pair.client.endpoint.len(), self.pair.gateway.endpoint.len()), (1, 1), "IKE SAs");
        assert_eq!(self.pair.client.children.len(), 1);
        self.pair.assert_agree();
        // And the SA still works, from both ends.
        let (child_a, _) = self.children();
        self.pair.client.endpoint.rekey_child(self.pair.now, child_a);
        self.pair.settle();
        let (_, child_b) = self.children();
        self.pair.gateway.endpoint.rekey_child(self.pair.now, child_b);
        self.pair.settle();
        self.pair.gateway.endpoint.rekey_ike(self.pair.now, self.b);
        self.pair.settle();
        assert_eq!(self.pair.client.children.len(), 1);
        self.pair.assert_agree();
    }

    /// Whether the surviving CHILD SA was made by the client's exchange.
    fn by_client(&self) -> bool {
        self.pair.client.children.values().next().expect("one").send_now
    }
}

#[test]
fn children_rekeyed_at_once_the_lowest_nonce_loses() {
    for (nonce_a, nonce_b, client_survives) in [(1, 2, false), (2, 1, true)] {
        let mut duel = duel(1);
        let old = duel.children();
        duel.rekey_children(nonce_a, nonce_b);
        duel.pair.run_for(Duration::from_secs(60));
        assert_eq!(duel.pair.client.children.len(), 1, "{nonce_a} {nonce_b}");
        assert_eq!(duel.by_client(), client_survives);
        assert!(!duel.pair.client.children.contains_key(&old.0));
        duel.lives_with_one_child();
    }
}

/// One of the four messages of the collision is lost once; the end is the same.
#[test]
fn children_rekeyed_at_once_with_a_lost_message() {
    for lost in 0..4 {
        for (nonce_a, nonce_b, client_survives) in [(1, 2, false), (2, 1, true)] {
            let mut duel = duel(2);
            let mut count = 0;
            duel.pair.filter = Some(Box::new(move |_| {
                count += 1;
                count != lost + 1
            }));
            duel.rekey_children(nonce_a, nonce_b);
            duel.pair.run_for(Duration::from_secs(60));
            duel.pair.filter = None;
            assert_eq!(duel.pair.client.children.len(), 1, "lost {lost}, nonces {nonce_a} {nonce_b}");
            // If a request is lost, the other exchange may be over before it comes, and there is no collision.
            if lost >= 2 {
                assert_eq!(duel.by_client(), client_survives, "lost {lost}, nonces {nonce_a} {nonce_b}");
            }
            duel.lives_with_one_child();
        }
    }
}

#[test]
fn ike_sas_rekeyed_at_once() {
    for (nonce_a, nonce_b) in [(1, 2), (2, 1)] {
        let mut duel = duel(3);
        duel.rekey_ike(nonce_a, nonce_b);
        duel.lives_with_one_child();
    }
}

#[test]
fn ike_sas_rekeyed_at_once_with_a_lost_message() {
    for lost in 0..6 {
        for (nonce_a, nonce_b) in [(1, 2), (2, 1)] {
            let mut duel = duel(4);
            let mut count = 0;
            duel.pair.filter = Some(Box::new(move |_| {
                count += 1;
                count != lost + 1
            }));
            duel.rekey_ike(nonce_a, nonce_b);
            duel.pair.run_for(Duration::from_secs(60));
            duel.pair.filter = None;
            duel.lives_with_one_child();
        }
    }
}

#[test]
fn a_child_rekeyed_here_while_it_is_deleted_there() {
    let mut duel = duel(5);
    let (child_a, child_b) = duel.children();
    duel.pair.client.endpoint.rekey_child(duel.pair.now, child_a);
    duel.pair.gateway.endpoint.delete_child(duel.pair.now, child_b);
    duel.pair.run_for(Duration::from_secs(8));
    // The rekeying met TEMPORARY_FAILURE, and then there was nothing left to rekey.
    assert!(duel.pair.client.children.is_empty() && duel.pair.gateway.children.is_empty());
    assert!(duel.pair.client.closed.is_empty() && duel.pair.gateway.closed.is_empty());
    // The client asks again ten seconds after the peer's delete.
    duel.pair.run_for(Duration::from_secs(60));
    duel.lives_with_one_child();
}

/// A refused rekeying does not take the deletion back that was ordered meanwhile.
#[test]
fn a_child_deleted_while_its_rekeying_is_refused() {
    for seed in 0..20 {
        let mut duel = duel(seed);
        let (child_a, child_b) = duel.children();
        let now = duel.pair.now;
        duel.pair.client.endpoint.rekey_ike(now, duel.a);
        duel.pair.client.endpoint.rekey_child(now, child_a);
        duel.pair.gateway.endpoint.rekey_child(now, child_b);
        duel.pair.gateway.endpoint.delete_child(now, child_b);
        duel.pair.run_for(Duration::from_secs(8));
        assert!(!duel.pair.gateway.children.contains_key(&child_b), "seed {seed}");
        duel.pair.run_for(Duration::from_secs(60));
        duel.lives_with_one_child();
    }
}

#[test]
fn a_child_rekeyed_here_while_the_ike_sa_is_rekeyed_there() {
    for client_rekeys_child in [true, false] {
        let mut duel = duel(6);
        let (child_a, child_b) = duel.children();
        let now = duel.pair.now;
        if client_rekeys_child {
            duel.pair.client.endpoint.rekey_child(now, child_a);
            duel.pair.gateway.endpoint.rekey_ike(now, duel.b);
        } else {
            duel.pair.gateway.endpoint.rekey_child(now, child_b);
            duel.pair.client.endpoint.rekey_ike(now, duel.a);
        }
        duel.pair.run_for(Duration::from_secs(60));
        assert_ne!(duel.children().0, child_a, "both were retried after TEMPORARY_FAILURE");
        let stats = duel.pair.client.endpoint.stats();
        assert!(stats.begun.len() > 2, "{stats:?}");
        duel.lives_with_one_child();
    }
}

#[test]
fn an_ike_sa_rekeyed_here_while_it_is_closed_there() {
    let mut duel = duel(7);
    duel.pair.client.endpoint.rekey_ike(duel.pair.now, duel.a);
    duel.pair.gateway.endpoint.close(duel.pair.now, duel.b);
    duel.pair.run_for(Duration::from_secs(60));
    assert!(duel.pair.client.endpoint.is_empty() && duel.pair.gateway.endpoint.is_empty());
    assert!(duel.pair.client.children.is_empty() && duel.pair.gateway.children.is_empty());
}

#[test]
fn a_child_that_the_peer_does_not_have_is_made_anew() {
    let mut duel = duel(8);
    let (child_a, child_b) = duel.children();
    // The gateway loses the child; its Delete never arrives.
    duel.pair.filter = Some(Box::new(|d| d.to_gateway));
    duel.pair.gateway.endpoint.delete_child(duel.pair.now, child_b);
    duel.pair.flush();
    duel.pair.gateway.endpoint.probe(duel.pair.now, duel.b, Duration::from_secs(1));
    duel.pair.flush();
    duel.pair.filter = None;
    duel.pair.client.endpoint.rekey_child(duel.pair.now, child_a);
    duel.pair.run_for(Duration::from_secs(30));
    assert!(duel.pair.client.closed.is_empty());
    duel.pair.assert_agree();
}

/// What a collision leaves to be deleted waits until the device is awake.
#[test]
fn a_sleeping_device_is_not_told_of_what_a_collision_left_over() {
    // The exchange with the lowest nonce loses: once the gateway's own successor is left over, once the old SA, which the gateway
    // deletes as the winner.
    for (nonce_a, nonce_b) in [(2, 1), (1, 2)] {
        const HOUR: Duration = Duration::from_secs(3_600);
        let mut duel = duel(9);
        // None of the gateway's own INFORMATIONAL requests arrives: 37, without the flag of a response, behind the marker.
        duel.pair.filter = Some(Box::new(|d| d.to_gateway || d.bytes[22] != 37 || d.bytes[23] & 0x20 != 0));
        duel.rekey_ike(nonce_a, nonce_b);
        duel.pair.run_for(Duration::from_secs(1));
        assert!(duel.pair.gateway.endpoint.len() > 1, "nothing is left over: {nonce_a} {nonce_b}");
        let said = Sleeping { flags: SleepFlags::default(), expect: Some(HOUR), marks: Vec::new() };
        assert!(duel.pair.client.endpoint.announce_sleep(
            duel.pair.now,
            duel.a,
            said,
            None,
            Duration::from_secs(2)
        ));
        duel.pair.run_for(Duration::from_secs(3));
        let answer = |e: &Event| match e {
            Event::SleepAnswered { verdict, .. } => Some(*verdict),
            _ => None,
        };
        assert!(matches!(duel.pair.client.take(answer), Some(SleepVerdict::Held { .. })));
        duel.pair.filter = None;

        let (sent, until) = (duel.pair.log.len(), duel.pair.now + HOUR);
        while let Some(due) = duel.pair.gateway.endpoint.poll_timeout().filter(|d| d.at <= until) {
            duel.pair.now = duel.pair.now.max(due.at);
            duel.pair.gateway.endpoint.handle_timeout(duel.pair.now);
            duel.pair.flush();
        }
        assert_eq!(duel.pair.log.len(), sent, "a sleeping device was disturbed: {nonce_a} {nonce_b}");
        duel.pair.now = until;
        duel.pair.client.endpoint.woke(duel.pair.now, duel.a);
        duel.pair.client.endpoint.probe(duel.pair.now, duel.a, Duration::from_secs(2));
        duel.pair.settle();
        duel.lives_with_one_child();
    }
}

/// RFC 9370, section 2.2.4: with additional key exchanges the end with the lowest nonce just stops.
#[test]
fn with_additional_key_exchanges_the_lowest_nonce_stops() {
    for (nonce_a, nonce_b, client_survives) in [(1, 2, false), (2, 1, true)] {
        let mut duel = duel_of(1, hybrid);
        duel.rekey_children(nonce_a, nonce_b);
        duel.pair.run_for(Duration::from_secs(60));
        assert_eq!(duel.pair.client.children.len(), 1, "{nonce_a} {nonce_b}");
        assert_eq!(duel.by_client(), client_survives);
        duel.lives_with_one_child();

        let mut duel = duel_of(2, hybrid);
        duel.rekey_ike(nonce_a, nonce_b);
        duel.pair.run_for(Duration::from_secs(60));
        let begun =
            |side: &common::Side| side.endpoint.stats().begun.get(&dormouse_ike::Kind::FollowUp).copied();
        assert_eq!(
            (begun(&duel.pair.client), begun(&duel.pair.gateway)),
            if client_survives { (Some(1), None) } else { (None, Some(1)) }
        );
        duel.lives_with_one_child();
    }
}
