//! Puzzles (RFC 8019) between one client and one gateway: given, solved, left, forged, and used twice.

mod common;

use std::time::Duration;

use common::{Datagram, GATEWAY, Pair, client_psk, gateway_config, gateway_psk, path};
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::HalfOpen;
use dormouse_ike::{Discard, NegotiationError, Stats};
use dormouse_wire::ike::{ExchangeType, Flags, Header, Message, Notify, NotifyType, Payload, Puzzle};

/// A gateway that gives a puzzle to everybody.
fn pair(seed: u64, hardest_puzzle: u8, half_open: HalfOpen) -> Pair {
    let mut client = client_psk();
    client.opening.hardest_puzzle = hardest_puzzle;
    let always = HalfOpen { cookie_threshold: 0, per_prefix: 0, ..half_open };
    let gateway = EndpointConfig { half_open: always, ..gateway_config(gateway_psk(), seed) };
    Pair::with_configs(client, EndpointConfig::default(), gateway, seed)
}

fn stats(pair: &Pair) -> &Stats {
    pair.gateway.endpoint.stats()
}

/// The first messages of the client that have a solution.
fn solutions(pair: &Pair) -> Vec<Datagram> {
    let has = |d: &&Datagram| {
        let message = Message::parse(&d.bytes);
        message.is_ok_and(|m| m.payloads.iter().any(|p| matches!(p, Payload::PuzzleSolution(_))))
    };
    pair.log.iter().filter(|d| d.to_gateway).filter(has).cloned().collect()
}

#[test]
fn a_puzzle_is_solved_in_slices_and_costs_no_round_trip_more_than_its_cookie() {
    for (seed, difficulty) in [(1, 16), (2, 0)] {
        let half_open = HalfOpen { puzzle_difficulty: difficulty, ..HalfOpen::default() };
        let mut pair = pair(seed, 18, half_open);
        let (a, _) = pair.up();
        // The cookie, IKE_SA_INIT, IKE_INTERMEDIATE, IKE_AUTH.
        assert_eq!(pair.client.endpoint.sa_stats(a).expect("it is there").round_trips, 4);
        assert_eq!((stats(&pair).puzzles_given, stats(&pair).puzzles_solved), (1, 1), "{difficulty}");
        let [solution] = solutions(&pair).try_into().expect("one");
        let message = Message::parse(&solution.bytes).expect("a message");
        let first = message.payloads.first().expect("a payload");
        assert!(matches!(first, Payload::Notify(n) if n.kind == NotifyType::Cookie), "{first:?}");
        // Each slice is a call of its own.
        assert!(pair.client.wakes.contains_key("puzzle"), "{:?}", pair.client.wakes);
    }
}

#[test]
fn what_is_too_hard_is_left_and_the_client_served_by_lot() {
    let mut pair = pair(3, 9, HalfOpen::default());
    pair.up();
    assert_eq!((stats(&pair).puzzles_given, stats(&pair).puzzles_solved), (1, 0));
    assert!(solutions(&pair).is_empty() && !pair.client.wakes.contains_key("puzzle"));
}

/// A solution is bound to its cookie, and the cookie to a request: neither another one nor the same one twice counts.
#[test]
fn a_solution_counts_once() {
    let mut pair = pair(4, 18, HalfOpen::default());
    pair.filter = Some(Box::new(|d| d.bytes.get(18) != Some(&35) && d.bytes.get(4 + 18) != Some(&35)));
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    assert_eq!((stats(&pair).puzzles_solved, pair.gateway.endpoint.half_open()), (1, 1));
    let [solved] = solutions(&pair).try_into().expect("one");
    let again = |pair: &mut Pair, bytes: &[u8]| {
        pair.gateway.endpoint.handle_datagram(pair.now, path(GATEWAY, common::CLIENT), &mut bytes.to_vec())
    };
    assert_eq!(again(&mut pair, &solved.bytes), Ok(()), "a repetition");
    pair.run_for(Duration::from_secs(40));
    assert_eq!(pair.gateway.endpoint.half_open(), 0);
    assert_eq!(again(&mut pair, &solved.bytes), Err(Discard::NoPuzzle));
    assert_eq!((stats(&pair).puzzles_given, stats(&pair).puzzles_solved), (2, 1));
}

/// A key is changed on the way: the request is one without a solution, and goes by lot.
#[test]
fn a_wrong_solution_is_worth_nothing() {
    let mut pair = pair(5, 18, HalfOpen::default());
    pair.filter = Some(Box::new(|d| {
        if let Ok(Message { payloads, .. }) = Message::parse(&d.bytes)
            && let Some(keys) = payloads.iter().find_map(|p| match p {
                Payload::PuzzleSolution(keys) => Some(keys.clone()),
                _ => None,
            })
        {
            let at = d.bytes.windows(keys.len()).position(|w| w == keys).expect("it is there");
            d.bytes[at] ^= 1;
        }
        true
    }));
    pair.connect();
    pair.settle();
    assert_eq!(stats(&pair).puzzles_solved, 0);
}

/// The answer of a gateway to the client's first message, made up.
fn forged(pair: &Pair, list: &[Payload]) -> Vec<u8> {
    let first = pair.log.first().expect("the first message");
    let spi_i = Header::parse(&first.bytes).expect("a header").spi_i;
    let flags = Flags { initiator: false, version: false, response: true };
    let mut bytes = Vec::new();
    Message::emit(&Header::new(spi_i, 0, ExchangeType::IkeSaInit, flags, 0), list, &mut bytes)
        .expect("short");
    bytes
}

/// An observer of the request can answer it: with a puzzle that is too hard or malformed, or with a row of them.
#[test]
fn forged_puzzles_cost_no_more_than_the_client_allows() {
    let mut client = client_psk();
    client.opening.hardest_puzzle = 12;
    let mut pair = Pair::new(client, gateway_psk(), 6);
    pair.connect();
    let hear = |pair: &mut Pair, list: &[Payload]| {
        let mut bytes = forged(pair, list);
        let result =
            pair.client.endpoint.handle_datagram(pair.now, path(common::CLIENT, GATEWAY), &mut bytes);
        pair.flush();
        result
    };
    let puzzle = |prf, difficulty| Payload::Notify(Puzzle { prf, difficulty }.notify());
    let cookie = || Payload::Notify(Notify::new(NotifyType::Cookie, [7; 32]));
    let sent = |pair: &Pair| pair.log.iter().filter(|d| d.to_gateway).count();
    assert_eq!(hear(&mut pair, &[puzzle(5, 10)]), Err(Discard::Malformed), "a puzzle without a cookie");
    assert_eq!(sent(&pair), 1);
    // Too hard, or of a PRF that was not offered: the cookie goes back alone.
    assert_eq!(hear(&mut pair, &[cookie(), puzzle(5, 13)]), Ok(()));
    assert_eq!(hear(&mut pair, &[cookie(), puzzle(1, 10)]), Ok(()));
    assert_eq!((sent(&pair), solutions(&pair).len()), (3, 0));
    // While it works nothing goes out, and it takes no other puzzle.
    assert_eq!(hear(&mut pair, &[cookie(), puzzle(5, 12)]), Ok(()));
    assert_eq!(hear(&mut pair, &[cookie(), puzzle(5, 10)]), Err(Discard::UnexpectedResponse));
    assert_eq!(sent(&pair), 3);
    pair.run_for(Duration::ZERO);
    assert_eq!((sent(&pair), solutions(&pair).len()), (4, 1));
    assert!(
        pair.client.wakes["puzzle"] <= 16,
        "slices of a quarter of what 12 bits take: {:?}",
        pair.client.wakes
    );
    // A fourth one is one too many.
    assert_eq!(hear(&mut pair, &[cookie(), puzzle(5, 12)]), Ok(()));
    assert!(matches!(pair.client.failure(), Some(NegotiationError::Cookies(4))));
}
