//! Announced sleeps (`docs/wire/dormancy.md`): what the gateway holds, what it releases, and that nothing disturbs the
//! sleeper.

mod common;

use std::time::Duration;

use common::{Pair, client_psk, gateway_config, gateway_psk};
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, HoldPolicy};
use dormouse_ike::{CloseReason, Event, Kind, LoadReport, Mark, SleepFlags, SleepVerdict, Sleeping};
use dormouse_keying::SaId;
use dormouse_sansio::Instant;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const SERVICES: SleepFlags = SleepFlags { stand_in: true, buffering: true };

fn world(client: Connection, gateway: Connection, hold: HoldPolicy, seed: u64) -> Pair {
    let config = EndpointConfig { hold, ..gateway_config(gateway, seed) };
    Pair::with_configs(client, EndpointConfig::default(), config, seed)
}

fn pair(seed: u64) -> Pair {
    world(client_psk(), gateway_psk(), HoldPolicy::default(), seed)
}

/// A gateway that asks silent peers.
fn asking() -> Connection {
    let mut conn = gateway_psk();
    conn.timing.liveness.interval = Some(Duration::from_secs(20));
    conn
}

fn announce(pair: &mut Pair, sa: SaId, expect: Option<Duration>) -> Option<SleepVerdict> {
    announce_probably(pair, sa, expect, None)
}

fn announce_probably(
    pair: &mut Pair,
    sa: SaId,
    expect: Option<Duration>,
    probably: Option<Duration>,
) -> Option<SleepVerdict> {
    let said = Sleeping { flags: SERVICES, expect, marks: vec![Mark { spi: 7_000, sequence: 9 }] };
    assert!(pair.client.endpoint.announce_sleep(pair.now, sa, said, probably, Duration::from_secs(2)));
    pair.run_for(Duration::from_secs(3));
    let mut verdicts = std::iter::from_fn(|| {
        pair.client.take(|e| match e {
            Event::SleepAnswered { verdict, .. } => Some(*verdict),
            _ => None,
        })
    });
    let verdict = verdicts.next();
    assert!(verdicts.next().is_none(), "told once");
    verdict
}

fn sleeps(pair: &mut Pair) -> Option<(Instant, bool, SleepFlags, Vec<Mark>)> {
    pair.gateway.take(|e| match e {
        Event::PeerSleeps { until, held, flags, marks, .. } => Some((*until, *held, *flags, marks.clone())),
        _ => None,
    })
}

fn awakes(pair: &mut Pair) -> usize {
    std::iter::from_fn(|| pair.gateway.take(|e| matches!(e, Event::PeerAwake { .. }).then_some(()))).count()
}

/// The device's radio is off: nothing of it is sent and nothing reaches it, and nothing may try.
fn night(pair: &mut Pair, time: Duration) {
    let (sent, woken) = (pair.log.len(), pair.gateway.wakes.clone());
    pair.gateway.wakes.clear();
    let until = pair.now + time;
    while let Some(due) = pair.gateway.endpoint.poll_timeout().filter(|d| d.at <= until) {
        assert_eq!(due.why, "sleep over", "the only reason to run for a sleeping device");
        pair.now = pair.now.max(due.at);
        pair.gateway.endpoint.handle_timeout(pair.now);
        pair.flush();
    }
    pair.now = until;
    assert_eq!(pair.log.len(), sent, "something was sent to a sleeping device");
    pair.gateway.wakes = woken;
}

#[test]
fn a_held_sa_outlives_every_liveness_check_and_is_there_at_once() {
    let hold =
        HoldPolicy { services: SleepFlags { stand_in: true, buffering: false }, ..HoldPolicy::default() };
    let mut pair = world(client_psk(), asking(), hold, 1);
    let (a, _) = pair.up();
    let Some(SleepVerdict::Held { until, flags }) = announce(&mut pair, a, Some(HOUR)) else {
        panic!("not held")
    };
    assert_eq!(flags, hold.services, "what both want");
    let (at, held, granted, marks) = sleeps(&mut pair).expect("an event reports it to the gateway's driver");
    assert!(held && granted == flags && at >= until, "{at:?} {until:?}");
    assert_eq!(marks, [Mark { spi: 7_000, sequence: 9 }]);
    assert_eq!(pair.gateway.endpoint.held(), 1);
    night(&mut pair, HOUR);
    pair.client.endpoint.woke(pair.now, a);
    pair.client.endpoint.probe(pair.now, a, Duration::from_secs(2));
    pair.settle();
    assert!(pair.client.take(|e| matches!(e, Event::ProbeAnswered { .. }).then_some(())).is_some());
    assert_eq!((awakes(&mut pair), pair.gateway.endpoint.held()), (1, 0));
    assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty());
    pair.assert_agree();
    let next = pair.gateway.endpoint.poll_timeout().expect("liveness goes on");
    assert_eq!(next.why, "liveness");
}

#[test]
fn esp_ends_the_sleep_as_well() {
    let mut pair = pair(2);
    let (a, b) = pair.up();
    announce(&mut pair, a, None);
    night(&mut pair, MINUTE);
    assert!(pair.gateway.endpoint.peer_awake(pair.now, b));
    pair.flush();
    assert_eq!(awakes(&mut pair), 1);
    pair.gateway.endpoint.peer_awake(pair.now, b);
    pair.flush();
    assert_eq!(awakes(&mut pair), 0, "told once");
}

#[test]
fn a_hold_ends_silently_and_the_ticket_stays_good() {
    let hold = HoldPolicy { longest: 10 * MINUTE, ..HoldPolicy::default() };
    let mut pair = world(client_psk(), asking(), hold, 3);
    let (a, b) = pair.up();
    let Some(SleepVerdict::Held { until, .. }) = announce(&mut pair, a, Some(5 * HOUR)) else {
        panic!("not held")
    };
    assert!(until <= pair.now + 10 * MINUTE);
    night(&mut pair, 5 * HOUR);
    assert_eq!(pair.gateway.closed, [(b, CloseReason::Released)]);
    assert!(pair.gateway.children.is_empty() && pair.gateway.endpoint.is_empty());
    let ticket = pair.client.ticket.take().expect("given");
    pair.client.endpoint.forget(pair.now, a);
    let path = pair.default_path();
    pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket, path);
    pair.settle();
    assert!(pair.client.established().expect("by ticket").resumed);
    pair.assert_agree();
}

#[test]
fn a_gateway_that_is_full_releases_the_longest_sleeper_and_one_without_beds_everybody() {
    let hold = HoldPolicy { most: 2, ..HoldPolicy::default() };
    let mut pair = world(client_psk(), gateway_psk(), hold, 4);
    let path = pair.default_path();
    let sas: Vec<(SaId, SaId)> = (0..3)
        .map(|n| {
            let mut conn = client_psk();
            conn.local_id = common::fqdn(&format!("client{n}.example.org"));
            pair.client.endpoint.connect(pair.now, conn.into(), path);
            pair.settle();
            let a = pair.client.established().expect("up").sa;
            (a, pair.gateway.established().expect("up").sa)
        })
        .collect();
    for (a, _) in &sas {
        assert!(matches!(announce(&mut pair, *a, None), Some(SleepVerdict::Held { .. })));
    }
    assert_eq!(pair.gateway.closed, [(sas[0].1, CloseReason::Released)]);
    assert_eq!(pair.gateway.endpoint.held(), 2);

    for hold in [
        HoldPolicy { most: 0, ..HoldPolicy::default() },
        HoldPolicy { memory: 100, ..HoldPolicy::default() },
        HoldPolicy { release_above: 0, ..HoldPolicy::default() },
    ] {
        let mut pair = world(client_psk(), asking(), hold, 5);
        let (a, b) = pair.up();
        assert_eq!(announce(&mut pair, a, Some(HOUR)), Some(SleepVerdict::Released), "{hold:?}");
        assert!(sleeps(&mut pair).is_some_and(|(_, held, ..)| !held));
        night(&mut pair, MINUTE);
        assert_eq!(pair.gateway.closed, [(b, CloseReason::Released)]);
    }
}

#[test]
fn without_an_answer_the_device_sleeps_anyway_and_sets_things_right_when_it_wakes() {
    // The request arrives, the answers do not.
    let mut pair = pair(6);
    let (a, b) = pair.up();
    pair.filter = Some(Box::new(|d| d.to_gateway));
    assert_eq!(announce(&mut pair, a, Some(HOUR)), Some(SleepVerdict::Unanswered));
    assert!(sleeps(&mut pair).is_some(), "the gateway believes it");
    pair.wire.clear();
    night(&mut pair, HOUR);
    pair.filter = None;
    pair.client.endpoint.woke(pair.now, a);
    pair.settle();
    assert!(awakes(&mut pair) > 0, "an idle device that is awake says so");
    assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty());
    assert_eq!(pair.gateway.endpoint.held(), 0);
    assert_eq!(pair.gateway.endpoint.sa_stats(b).map(|s| s.answered[&Kind::Sleep]), Some(1));
}

#[test]
fn a_repeated_announcement_neither_wakes_nor_counts_twice() {
    let mut pair = pair(7);
    let (a, _) = pair.up();
    let mut dropped = 0;
    pair.filter = Some(Box::new(move |d| {
        dropped += u32::from(!d.to_gateway);
        d.to_gateway || dropped > 1
    }));
    assert!(matches!(announce(&mut pair, a, None), Some(SleepVerdict::Held { .. })), "after a repetition");
    assert!(sleeps(&mut pair).is_some() && sleeps(&mut pair).is_none());
    assert_eq!(awakes(&mut pair), 0);
    // The holder of a copy cannot wake the gateway either.
    let copy = pair.log.iter().rev().find(|d| d.to_gateway).cloned().expect("sent");
    pair.deliver(copy);
    assert_eq!((awakes(&mut pair), pair.gateway.endpoint.held()), (0, 1));
}

#[test]
fn what_falls_due_during_the_sleep_is_done_before() {
    let mut pair = pair(8);
    let (a, _) = pair.up();
    pair.run_for(2 * HOUR);
    pair.client.ticket = None;
    let before: Vec<u32> = pair.client.children.values().map(|c| c.child.spi()).collect();
    let Some(SleepVerdict::Held { until, .. }) = announce(&mut pair, a, Some(2 * HOUR)) else {
        panic!("not held")
    };
    assert!(until >= pair.now + (2 * HOUR - MINUTE), "the successor lives long enough");
    assert!(pair.client.children.values().all(|c| !before.contains(&c.child.spi())), "rekeyed");
    night(&mut pair, 2 * HOUR);
    pair.client.endpoint.woke(pair.now, a);
    let due = pair.client.endpoint.poll_timeout().expect("some upkeep, some day");
    assert!(due.at > pair.now, "nothing was missed: {due:?}");
    pair.assert_agree();
}

#[test]
fn upkeep_looks_as_far_ahead_as_the_sleep_is_likely_and_the_hold_as_far_as_it_may_be() {
    // The CHILD SA is rekeyed after some three and a half hours; two of them are over.
    for (probably, rekeyed) in [(MINUTE, false), (HOUR, true)] {
        let mut pair = pair(20);
        let (a, _) = pair.up();
        pair.run_for(2 * HOUR);
        pair.client.ticket = None;
        let verdict = announce_probably(&mut pair, a, Some(24 * HOUR), Some(probably));
        let Some(SleepVerdict::Held { until, .. }) = verdict else { panic!("{probably:?}: not held") };
        assert!(until > pair.now + HOUR, "{probably:?}: held for what it may be");
        let begun = &pair.client.endpoint.sa_stats(a).expect("it is there").begun;
        assert_eq!(begun.contains_key(&Kind::RekeyChild), rekeyed, "{probably:?}");
        assert_eq!(begun.get(&Kind::Informational), None, "no ticket is renewed before its time");
    }
}

#[test]
fn the_ike_sa_is_rekeyed_before_the_sleep_and_the_announcement_follows_on_its_successor() {
    let mut client = client_psk();
    client.timing.lifetime.time = Some(3 * HOUR);
    let mut pair = world(client, gateway_psk(), HoldPolicy::default(), 9);
    let (a, _) = pair.up();
    pair.run_for(2 * HOUR);
    let old = pair.client.ticket.take().expect("given");
    assert!(matches!(announce(&mut pair, a, Some(2 * HOUR)), Some(SleepVerdict::Held { .. })));
    let stats = pair.client.endpoint.sa_stats(a).expect("it is there");
    assert_eq!((stats.begun.get(&Kind::RekeyIke), stats.begun[&Kind::Sleep]), (Some(&1), 1));
    assert!(pair.client.ticket.take().expect("a new one").secret != old.secret);
    assert_eq!(pair.gateway.endpoint.held(), 1);
    night(&mut pair, HOUR);
}

#[test]
fn neither_end_says_a_word_to_a_peer_that_does_not_know_the_extension() {
    for (ours, theirs) in [(true, false), (false, true), (false, false)] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        (client.dormancy, gateway.dormancy) = (ours, theirs);
        let mut pair = world(client, gateway, HoldPolicy::default(), 10);
        pair.connect();
        pair.run_for(Duration::from_secs(2));
        assert!(!pair.client.established().expect("up").dormancy);
        let sa = pair.gateway.established().expect("up");
        assert!(!sa.dormancy);
        let a = dormouse_sa(&mut pair);
        let sent = pair.log.len();
        assert_eq!(announce(&mut pair, a, Some(HOUR)), Some(SleepVerdict::Unsupported));
        assert_eq!(pair.log.len(), sent, "{ours} {theirs}: something was said");
        let heard = pair.client.take(|e| matches!(e, Event::LoadReport { .. }).then_some(()));
        assert!(heard.is_none() && sleeps(&mut pair).is_none());
    }
}

/// The client's only SA.
fn dormouse_sa(pair: &mut Pair) -> SaId {
    pair.client.children.values().next().and_then(|c| c.owner.ike()).expect("one CHILD SA")
}

#[test]
fn a_device_that_wakes_after_a_gateway_request_finds_it_waiting() {
    // The gateway is rekeying when the device goes: its request waits for the wake.
    let mut pair = pair(11);
    let (a, b) = pair.up();
    pair.filter = Some(Box::new(|d| d.to_gateway || d.bytes.get(22) != Some(&36)));
    let child = *pair.gateway.children.keys().next().expect("one");
    pair.gateway.endpoint.rekey_child(pair.now, child);
    assert!(matches!(announce(&mut pair, a, None), Some(SleepVerdict::Held { .. })));
    pair.wire.clear();
    night(&mut pair, HOUR);
    pair.filter = None;
    pair.client.endpoint.woke(pair.now, a);
    pair.client.endpoint.probe(pair.now, a, Duration::from_secs(2));
    pair.run_for(MINUTE);
    assert!(pair.gateway.closed.is_empty() && pair.client.closed.is_empty());
    assert_eq!(pair.gateway.endpoint.sa_stats(b).map(|s| s.begun[&Kind::RekeyChild]), Some(1));
    pair.assert_agree();
}

/// A device may also think better of its sleep, and send on at once.
#[test]
fn a_device_whose_session_has_ended_meanwhile_hears_of_it_when_it_wakes() {
    let mut pair = pair(15);
    let (a, b) = pair.up();
    announce(&mut pair, a, Some(HOUR));
    pair.client.closed.clear();
    assert!(pair.gateway.endpoint.close(pair.now, b));
    pair.flush();
    night(&mut pair, MINUTE);
    pair.client.endpoint.woke(pair.now, a);
    pair.client.endpoint.probe(pair.now, a, Duration::from_secs(2));
    pair.settle();
    assert_eq!(pair.client.closed, [(a, CloseReason::ByPeer)]);
    assert_eq!((awakes(&mut pair), pair.gateway.endpoint.held(), pair.gateway.endpoint.len()), (0, 0, 0));
}

#[test]
fn load_reports_come_with_the_session_and_with_each_sleep() {
    let mut pair = pair(12);
    let (a, _) = pair.up();
    let report = |pair: &mut Pair| -> Option<LoadReport> {
        pair.client.take(|e| match e {
            Event::LoadReport { report, .. } => Some((**report).clone()),
            _ => None,
        })
    };
    let first = report(&mut pair).expect("with the session");
    assert_eq!(first.forecast.len(), 48);
    assert_eq!(first.alone_us, 0, "no session had begun before");
    announce(&mut pair, a, None);
    let second = report(&mut pair).expect("with the sleep");
    assert_eq!(second.alone(), common::LATENCY * 4, "the first message to IKE_AUTH");
    assert!(report(&mut pair).is_none());
}

/// What the gateway has left to be deleted, a session that it closes included, goes when the device comes with another one: it would
/// be repeated while that sleeps.
#[test]
fn a_deletion_that_is_not_answered_disturbs_no_later_sleep() {
    let mut pair = pair(21);
    let (a, b) = pair.up();
    // None of the gateway's own INFORMATIONAL requests arrives: 37, without the flag of a response, behind the marker.
    pair.filter = Some(Box::new(|d| d.to_gateway || d.bytes[22] != 37 || d.bytes[23] & 0x20 != 0));
    pair.gateway.endpoint.close(pair.now, b);
    pair.client.endpoint.forget(pair.now, a);
    pair.run_for(Duration::from_millis(100));
    let (a, _) = pair.up();
    assert!(matches!(announce(&mut pair, a, Some(HOUR)), Some(SleepVerdict::Held { .. })));
    assert_eq!(pair.gateway.endpoint.len(), 1, "the SA that was closed is gone");
    night(&mut pair, HOUR);
}
