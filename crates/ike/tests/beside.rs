//! Key exchanges that a gateway orders (`dormouse_ike::work`): what waits for them, what comes meanwhile, and what becomes of an order whose SA has ended.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use common::{Pair, client_psk, fqdn, gateway_config, gateway_psk};
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, SelectorSpec};
use dormouse_ike::work::{AT_ONCE, Beside, Done, Order};
use dormouse_keying::SaId;
use dormouse_wire::ike::{Message, Payload};

const SECOND: Duration = Duration::from_secs(1);

fn pair_of(proposal: &str, edit: impl Fn(&mut Connection, &mut EndpointConfig)) -> Pair {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    for conn in [&mut client, &mut gateway] {
        conn.ike_proposals = vec![proposal.parse().expect("a proposal")];
    }
    let mut config = gateway_config(gateway, 1);
    config.beside = Beside { sign: |_| true, agree: |_| true };
    edit(&mut client, &mut config);
    Pair::with_configs(client, EndpointConfig::default(), config, 1)
}

/// What the gateway has ordered.
fn orders(pair: &mut Pair) -> Vec<(SaId, Box<Order>)> {
    std::iter::from_fn(|| pair.gateway.order()).collect()
}

/// The one order that there is.
fn order(pair: &mut Pair) -> (SaId, Box<Order>) {
    let mut all = orders(pair);
    assert_eq!(all.len(), 1, "orders");
    all.remove(0)
}

/// An order has come back.
fn done(pair: &mut Pair, (sa, order): (SaId, Box<Order>)) {
    pair.gateway.endpoint.done(pair.now, sa, order.carry_out());
    pair.flush();
}

/// Datagrams of the gateway until now.
fn said(pair: &Pair) -> usize {
    pair.log.iter().filter(|datagram| !datagram.to_gateway).count()
}

/// Each answer waits for its order, however often the client repeats itself, and is then given once.
#[test]
fn every_key_exchange_waits_for_its_order_and_is_ordered_once() {
    for (proposal, exchanges) in [
        ("aes256gcm16-prfsha256-x25519", 2),
        ("aes256gcm16-prfsha256-modp2048", 2),
        ("aes256gcm16-prfsha384-ecp384", 2),
        ("aes256gcm16-prfsha256-x25519-ke1_mlkem768", 2),
        ("aes256gcm16-prfsha256-x25519-ke1_ecp256", 3),
    ] {
        let mut pair = pair_of(proposal, |_, _| {});
        pair.connect();
        for exchange in 0..exchanges {
            let (before, sent) = (said(&pair), pair.log.len());
            pair.run_for(4 * SECOND);
            assert!(pair.log.len() > sent, "{proposal}: the client repeats its request");
            // Of an additional exchange there is none before the second key agreement is ordered.
            assert_eq!(said(&pair), before, "{proposal}, exchange {exchange}");
            let order = order(&mut pair);
            done(&mut pair, order);
            pair.run_for(SECOND);
        }
        assert!(orders(&mut pair).is_empty());
        let failure = pair.client.failure();
        assert!(pair.client.established().is_some(), "{proposal}: {failure:?}");
        pair.assert_agree();
    }
}

/// A request in fragments that has come before the keys is answered without being repeated.
#[test]
fn fragments_that_come_before_the_keys_are_kept() {
    let silent = Rc::new(Cell::new(false));
    let mut pair = pair_of("aes256gcm16-prfsha256-modp2048", |client, _| {
        client.fragmentation.size = 600;
        client.children[0].ts_remote = (0..60u16)
            .map(|i| SelectorSpec::Net(format!("2001:db8:{i:x}::/48").parse().expect("a prefix")))
            .chain(client.children[0].ts_remote.clone())
            .collect();
    });
    let muted = silent.clone();
    pair.filter = Some(Box::new(move |datagram| !(datagram.to_gateway && muted.get())));
    pair.connect();
    pair.run_for(SECOND / 5);
    let first = order(&mut pair);
    done(&mut pair, first);
    pair.run_for(SECOND / 5);
    let fragments = pair.log.iter().filter(|d| d.to_gateway && d.bytes.get(4 + 18) == Some(&35)).count();
    assert!(fragments >= 3, "{fragments} fragments");
    silent.set(true);
    let agreement = order(&mut pair);
    done(&mut pair, agreement);
    pair.run_for(SECOND);
    assert!(pair.client.established().is_some(), "{:?}", pair.client.failure());
    pair.assert_agree();
}

/// What no peer has proved to have sent does not grow without end, and keeps the request that is meant from its answer no longer than until it is repeated.
#[test]
fn rubbish_that_comes_before_the_keys_is_bounded() {
    let mut pair = pair_of("aes256gcm16-prfsha256-modp2048", |_, _| {});
    pair.connect();
    pair.run_for(SECOND / 5);
    let first = order(&mut pair);
    done(&mut pair, first);
    // The first request is lost in rubbish that looks like it.
    let rubbish: Rc<Cell<u32>> = Rc::default();
    let came = rubbish.clone();
    pair.filter = Some(Box::new(move |datagram| {
        if datagram.to_gateway && came.get() == 0 {
            came.set(1);
            datagram.bytes.truncate(4 + 28);
            datagram.bytes.resize(4 + 1_200, 0xa5);
            datagram.bytes[4 + 24..4 + 28].copy_from_slice(&1_200u32.to_be_bytes());
        }
        true
    }));
    pair.run_for(SECOND / 5);
    assert_eq!(rubbish.get(), 1);
    let model = pair.log.last().cloned().expect("the rubbish");
    for n in 0..200u32 {
        let mut more = model.clone();
        more.bytes[4 + 40..4 + 44].copy_from_slice(&n.to_be_bytes());
        pair.deliver(more);
    }
    let agreement = order(&mut pair);
    done(&mut pair, agreement);
    let discards: u64 = pair.gateway.endpoint.stats().discards.values().sum();
    assert!(discards >= 180, "{discards}: most of it was not kept");
    pair.run_for(10 * SECOND);
    assert!(pair.client.established().is_some(), "{:?}", pair.client.failure());
    pair.assert_agree();
}

/// A client under way whose gateway has had so many orders carried out.
fn after(steps: usize) -> Pair {
    let mut pair = pair_of("aes256gcm16-prfsha256-modp2048", |_, _| {});
    pair.connect();
    pair.run_for(SECOND / 5);
    for _ in 0..steps {
        let order = order(&mut pair);
        done(&mut pair, order);
        pair.run_for(SECOND / 5);
    }
    pair
}

/// Of a caller that has left nothing is kept, and its order is wanted no more.
#[test]
fn an_order_ends_with_its_sa() {
    for steps in 0..2 {
        let mut pair = after(steps);
        let (sa, order) = order(&mut pair);
        assert!(order.is_wanted());
        pair.run_for(120 * SECOND);
        assert!(pair.client.failure().is_some() && pair.gateway.endpoint.is_empty());
        assert!(!order.is_wanted());
        let (before, late) = (said(&pair), order.carry_out());
        assert!(late.is_late());
        pair.gateway.endpoint.done(pair.now, sa, late);
        pair.flush();
        assert_eq!((said(&pair), pair.gateway.endpoint.len()), (before, 0));
    }
}

/// Who carries orders out may give one up, and the client finds its way from the beginning.
#[test]
fn an_order_that_is_given_up_ends_the_attempt() {
    for steps in 0..2 {
        let mut pair = after(steps);
        let (sa, _) = order(&mut pair);
        pair.gateway.endpoint.done(pair.now, sa, Done::late());
        pair.flush();
        assert!(pair.gateway.endpoint.is_empty());
        if steps == 0 {
            // The repeated first message begins anew.
            pair.run_for(5 * SECOND);
            let again = order(&mut pair);
            done(&mut pair, again);
            pair.run_for(5 * SECOND);
            let agreement = order(&mut pair);
            done(&mut pair, agreement);
            pair.run_for(SECOND);
            assert!(pair.client.established().is_some(), "{:?}", pair.client.failure());
        }
    }
}

#[test]
fn a_public_value_that_is_none_ends_the_attempt() {
    let mut pair = pair_of("aes256gcm16-prfsha256-x25519", |_, _| {});
    pair.filter = Some(Box::new(|datagram| {
        if datagram.to_gateway && datagram.bytes[18] == 34 {
            let parsed = Message::parse(&datagram.bytes).expect("a first message");
            let mut payloads = parsed.payloads;
            let data = payloads
                .iter_mut()
                .find_map(|p| if let Payload::Ke { data, .. } = p { Some(data) } else { None });
            data.expect("a public value").fill(0);
            datagram.bytes.clear();
            Message::emit(&parsed.header, &payloads, &mut datagram.bytes).expect("it is written");
        }
        true
    }));
    pair.connect();
    pair.run_for(SECOND / 5);
    let first = order(&mut pair);
    done(&mut pair, first);
    pair.run_for(SECOND / 5);
    let agreement = order(&mut pair);
    done(&mut pair, agreement);
    assert!(pair.gateway.endpoint.is_empty(), "the secret would be zero");
}

/// However many callers come, few orders are out at once, and all callers are answered.
#[test]
fn few_orders_are_out_at_once() {
    let callers = 50;
    let mut pair = pair_of("aes256gcm16-prfsha256-x25519", |_, config| {
        config.half_open.cookie_threshold = 1_000;
        config.half_open.per_prefix = 1_000;
    });
    for n in 0..callers {
        let name = fqdn(&format!("client{n}.example.org"));
        let conn = Connection { local_id: name, ..(*pair.conn).clone() };
        let path = pair.default_path();
        pair.client.endpoint.connect(pair.now, Arc::new(conn), path);
    }
    pair.run_for(SECOND / 5);
    let (mut out, mut carried_out) = (orders(&mut pair), 0);
    while !out.is_empty() {
        assert!(out.len() <= AT_ONCE, "{}", out.len());
        done(&mut pair, out.remove(0));
        carried_out += 1;
        pair.run_for(SECOND / 10);
        out.extend(orders(&mut pair));
    }
    let up = std::iter::from_fn(|| pair.client.established()).count();
    assert_eq!((up, carried_out), (callers, 2 * callers), "{:?}", pair.client.failure());
}
