//! An IKE SA that outlives its gateway (RFC 6311): what is left of it, who may have it, and the exchange by which its peer hears of that. The peer is an
//! endpoint of ours, which says what no exchange of ours would.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use common::{Datagram, Pair, Side, client_psk, gateway_config, gateway_psk};
use dormouse_crypto::Secret;
use dormouse_ike::config::{Connection, RemoteAuth};
use dormouse_ike::takeover::{Record, Takeover};
use dormouse_ike::{CloseReason, EndpointConfig, Event};
use dormouse_keying::SaId;
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_wire::ike::{ExchangeType, Header, Notify, NotifyType, Payload};

/// One owner after the other begins so many message ids higher.
const IDS: u32 = 1 << 20;

fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind, data))
}

/// A message without the marker of port 4500.
fn message(datagram: &Datagram) -> &[u8] {
    let marker = if datagram.carrier == Carrier::NatT { 4 } else { 0 };
    &datagram.bytes[marker..]
}

fn header(datagram: &Datagram) -> Header {
    Header::parse(message(datagram)).expect("an IKE message")
}

fn gateway_of(conn: Connection, takeover: bool, seed: u64) -> EndpointConfig {
    EndpointConfig { takeover, ..gateway_config(conn, seed) }
}

fn another(conn: Connection, seed: u64) -> Side {
    Side::new(gateway_of(conn, true, 1), Box::new(Seeded::new(seed)))
}

/// Takes the datagrams off the wire that `pick` wants.
fn taken(pair: &mut Pair, pick: fn(&Datagram) -> bool) -> Rc<RefCell<Vec<Datagram>>> {
    let taken: Rc<RefCell<Vec<Datagram>>> = Rc::default();
    let keep = taken.clone();
    pair.filter = Some(Box::new(move |datagram| {
        let wanted = pick(datagram);
        if wanted {
            keep.borrow_mut().push(datagram.clone());
        }
        !wanted
    }));
    taken
}

/// A client without the dormancy extension is established that offers in IKE_AUTH that its message ids may be set anew. The SA's names at both ends.
fn up(gateway: EndpointConfig, seed: u64) -> (Pair, SaId, SaId) {
    let mut client = client_psk();
    client.dormancy = false;
    client.fragmentation.enabled = false;
    client.ike_proposals = vec!["aes256gcm16-prfsha256-x25519".parse().expect("a proposal")];
    let mut pair = Pair::with_configs(client, EndpointConfig::default(), gateway, seed);
    let asked = taken(&mut pair, |d| d.to_gateway && message(d)[18] == 35);
    pair.connect();
    pair.run_for(Duration::from_millis(100));
    pair.filter = None;
    let request = asked.borrow().first().cloned().expect("IKE_AUTH");
    // The gateway makes its keys when something comes for them.
    let mut damaged = request.clone();
    *damaged.bytes.last_mut().expect("a message") ^= 1;
    pair.deliver(damaged);
    let payloads = pair.gateway.endpoint.peek_auth(pair.now, message(&request));
    let mut payloads = payloads.expect("it is the client's");
    payloads.push(notify(NotifyType::Ikev2MessageIdSyncSupported, &[]));
    let sealed = pair.client.endpoint.craft_auth(1, &payloads);
    let mut offering = request.clone();
    let marker = request.bytes.len() - message(&request).len();
    offering.bytes.truncate(marker);
    offering.bytes.extend(&sealed[0]);
    pair.deliver(offering);
    pair.settle();
    pair.assert_agree();
    let a = pair.client.established().expect("it is up").sa;
    let b = pair.gateway.established().expect("it is up").sa;
    (pair, a, b)
}

/// What the gateway has last told its store to keep.
fn kept(side: &mut Side) -> Option<Record> {
    let mut last = None;
    while let Some(record) = side.take(|e| match e {
        Event::Takeover(Takeover::Keep(record)) => Some((**record).clone()),
        _ => None,
    }) {
        last = Some(record);
    }
    last
}

/// The gateway is gone, and another one has its address and hears that it has left this.
fn dies(pair: &mut Pair, left: &Record, seed: u64) {
    pair.gateway = another(gateway_psk(), seed);
    pair.gateway.endpoint.set_left("gw1", vec![left.left.clone()]);
}

fn claimed(side: &mut Side) -> Option<dormouse_ike::ticket::lineage::Name> {
    side.take(|e| match e {
        Event::Takeover(Takeover::Claim(lineage)) => Some(*lineage),
        _ => None,
    })
}

fn forgotten(side: &mut Side) -> bool {
    side.take(|e| matches!(e, Event::Takeover(Takeover::Forget(_))).then_some(())).is_some()
}

/// The data of the exchange's notification.
fn ids(payloads: &[Payload]) -> ([u8; 4], u32, u32) {
    let [Payload::Notify(n)] = payloads else { panic!("one notification alone: {payloads:?}") };
    assert_eq!(n.kind, NotifyType::Ikev2MessageIdSync);
    let number = |at: usize| u32::from_be_bytes(n.data[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(n.data.len(), 12);
    (n.data[..4].try_into().expect("four bytes"), number(4), number(8))
}

fn sync(nonce: [u8; 4], send: u32, receive: u32) -> Payload {
    notify(NotifyType::Ikev2MessageIdSync, &[nonce, send.to_be_bytes(), receive.to_be_bytes()].concat())
}

/// The client's answer to the request with message id 0.
fn answer(pair: &mut Pair, a: SaId, id: u32, payloads: &[Payload]) {
    let path = pair.client.endpoint.path(a).expect("the SA is there");
    let seen = Path { local: path.remote, remote: path.local, carrier: path.carrier };
    let sealed = pair.client.endpoint.craft_answer(a, ExchangeType::Informational, id, payloads);
    for mut datagram in sealed.expect("the SA is there") {
        let _ = pair.gateway.endpoint.handle_datagram(pair.now, seen, &mut datagram);
    }
    pair.flush();
}

/// Another gateway is given the SA, and its request to the client is here.
fn takes_over(pair: &mut Pair, record: &Record, owners: u16) -> (Datagram, SaId) {
    let asks = taken(pair, |d| !d.to_gateway && header(d).message_id == 0 && !header(d).flags.response);
    let content = record.content.as_bytes();
    let sa = pair.gateway.endpoint.take_over(pair.now, record.left.lineage, owners, content);
    let sa = sa.expect("it can be taken over");
    pair.flush();
    let asked = asks.borrow().first().cloned().expect("a request with message id 0");
    (asked, sa)
}

/// The whole of it, with a client that agrees. The ids that were agreed on: the gateway's and the client's.
fn goes_on(pair: &mut Pair, a: SaId, record: &Record, owners: u16) -> (u32, u32) {
    let (request, _) = takes_over(pair, record, owners);
    let said = pair.client.endpoint.peek(pair.now, a, message(&request)).expect("it is authentic");
    let (nonce, m1, p1) = ids(&said);
    // The client has sent requests that were not answered.
    let p2 = p1 + 3;
    pair.filter = None;
    pair.client.endpoint.agree_on_ids(pair.now, a, (p2, m1));
    answer(pair, a, 0, &[sync(nonce, p2, m1)]);
    pair.run_for(Duration::from_secs(5));
    pair.assert_agree();
    (m1, p2)
}

#[test]
fn an_sa_goes_on_at_another_gateway_with_ids_ivs_and_child_sas_of_its_own() {
    let (mut pair, a, _) = up(gateway_of(gateway_psk(), true, 1), 1);
    let first = kept(&mut pair.gateway).expect("it can be taken over");
    let old: Vec<u32> = pair.gateway.children.keys().map(|child| child.spi()).collect();
    assert_eq!((first.owners, &first.left.esp), (0, &old));
    dies(&mut pair, &first, 7);

    // The client asks, and gets no answer, nor a complaint; the store is asked once.
    pair.client.endpoint.probe(pair.now, a, Duration::from_secs(60));
    pair.run_for(Duration::from_millis(900));
    assert_eq!(claimed(&mut pair.gateway), Some(first.left.lineage));
    assert_eq!(claimed(&mut pair.gateway), None);
    assert!(pair.client.take(|e| matches!(e, Event::PeerLostSa { .. }).then_some(())).is_none());
    let (m1, _) = goes_on(&mut pair, a, &first, 1);
    assert!((IDS..IDS + 16).contains(&m1), "{m1}");
    let taken_over = pair.gateway.established().expect("the driver is told");
    assert!(taken_over.taken_over && !taken_over.resumed && !taken_over.initiator);

    // Its CHILD SA is another one, and what the store has is, too.
    let second = kept(&mut pair.gateway).expect("it is told");
    let new: Vec<u32> = pair.gateway.children.keys().map(|child| child.spi()).collect();
    assert!(new.len() == 1 && new != old);
    assert_eq!((second.owners, &second.left.esp), (1, &new));
    assert_ne!(second.left.spi, first.left.spi, "so is the IKE SA: what was left is of no use any more");
    let b = taken_over.sa;
    pair.gateway.endpoint.probe(pair.now, b, Duration::from_secs(1));
    pair.settle();
    assert!(pair.gateway.take(|e| matches!(e, Event::ProbeAnswered { .. }).then_some(())).is_some());
    assert!(kept(&mut pair.gateway).is_none(), "a message that changes nothing is not written");

    // One that dies before the client has agreed, and the one after it; what was written last is still good.
    dies(&mut pair, &second, 8);
    let (lost, _) = takes_over(&mut pair, &second, 2);
    pair.log.push(lost);
    pair.filter = None;
    dies(&mut pair, &second, 9);
    let (m4, _) = goes_on(&mut pair, a, &second, 3);
    assert!(m4 > 2 * IDS, "{m4}");

    // Of all that the gateways sealed under one key no IV has come twice, but in the same message.
    let mut owners: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
    let mut seen: BTreeMap<(Vec<u8>, u64), Vec<u8>> = BTreeMap::new();
    for datagram in pair.log.iter().filter(|d| !d.to_gateway && (35..38).contains(&message(d)[18])) {
        let message = message(datagram);
        let (spis, iv) = (message[..16].to_vec(), message[32..40].try_into().expect("eight bytes"));
        let iv = u64::from_be_bytes(iv);
        owners.entry(spis.clone()).or_default().insert(iv >> 48);
        let before = seen.insert((spis, iv), message.to_vec());
        assert!(before.is_none_or(|before| before == message), "{iv:x} twice");
    }
    let owners: BTreeSet<Vec<u64>> =
        owners.into_values().map(|owners| owners.into_iter().collect()).collect();
    assert_eq!(owners, BTreeSet::from([vec![0], vec![0, 1], vec![0, 2, 3]]));
}

#[test]
fn what_is_no_answer_to_the_request_is_dropped_and_the_request_comes_again() {
    let (mut pair, a, _) = up(gateway_of(gateway_psk(), true, 2), 2);
    let record = kept(&mut pair.gateway).expect("it can be taken over");
    dies(&mut pair, &record, 7);
    let (request, b) = takes_over(&mut pair, &record, 1);
    let said = pair.client.endpoint.peek(pair.now, a, message(&request)).expect("it is authentic");
    let (nonce, m1, p1) = ids(&said);
    let other = [nonce[0] ^ 1, nonce[1], nonce[2], nonce[3]];
    let cookie = notify(NotifyType::Cookie2, &[0; 12]);
    let wrong: [(u32, &[Payload]); 7] = [
        (0, &[sync(other, p1, m1)]),
        (0, &[sync(nonce, p1, m1 - 1)]),
        (0, &[sync(nonce, p1 - 1, m1)]),
        (0, &[sync(nonce, p1, m1), cookie.clone()]),
        (0, &[cookie]),
        (0, &[]),
        (m1, &[sync(nonce, p1, m1)]),
    ];
    for (id, payloads) in wrong {
        answer(&mut pair, a, id, payloads);
        let goes_on = pair.log.iter().any(|d| !d.to_gateway && message(d)[18] == 36);
        assert!(!goes_on, "{id} {payloads:?}");
    }
    // Requests of the client are not heard before, not even by a complaint.
    let before = pair.log.len();
    let asks = pair.client.endpoint.craft_request(a, ExchangeType::Informational, &[]);
    let path = pair.client.endpoint.path(a).expect("the SA is there");
    let seen = Path { local: path.remote, remote: path.local, carrier: path.carrier };
    for mut datagram in asks.expect("the SA is there") {
        let refused = pair.gateway.endpoint.handle_datagram(pair.now, seen, &mut datagram);
        assert_eq!(refused, Err(dormouse_ike::Discard::OutsideWindow));
    }
    pair.flush();
    assert_eq!(pair.log.len(), before);

    // The very request again, and in the end the SA is given up without a word.
    let again = taken(&mut pair, |d| !d.to_gateway);
    pair.run_for(Duration::from_secs(200));
    let repeated: Vec<Datagram> = again.borrow().clone();
    assert!(repeated.len() > 1 && repeated.iter().all(|d| d.bytes == request.bytes), "{}", repeated.len());
    assert_eq!(pair.gateway.closed, [(b, CloseReason::TimedOut)]);
    assert!(forgotten(&mut pair.gateway) && pair.gateway.endpoint.is_empty());
}

#[test]
fn what_cannot_be_used_any_more_is_over() {
    let (mut pair, _, _) = up(gateway_of(gateway_psk(), true, 3), 3);
    let record = kept(&mut pair.gateway).expect("it can be taken over");
    let try_it = |mut side: Side, owners: u16, content: &[u8]| {
        let now = pair.now;
        let refused = side.endpoint.take_over(now, record.left.lineage, owners, content);
        side.take_events(now);
        let mut sent = Vec::new();
        assert!(side.endpoint.poll_transmit(now, &mut sent).is_none());
        assert!(forgotten(&mut side) && side.endpoint.is_empty());
        refused.expect_err("it is over")
    };
    let good = record.content.as_bytes();
    // Its peer has another secret now, or may have no such CHILD SA; or the connection is gone.
    let mut conn = gateway_psk();
    conn.remote_auth = RemoteAuth::Psk(Secret::from(&b"another"[..]));
    let why = try_it(another(conn, 5), 1, good);
    assert!(why.contains("pre-shared key"), "{why}");
    let mut conn = gateway_psk();
    conn.children[0].ts_local =
        vec![dormouse_ike::config::SelectorSpec::Net("10.1.0.0/16".parse().expect("a prefix"))];
    let why = try_it(another(conn, 5), 1, good);
    assert!(why.contains("CHILD"), "{why}");
    let mut conn = gateway_psk();
    conn.name = "others".to_owned();
    try_it(another(conn, 5), 1, good);
    // It cannot be told apart from what the one before has done.
    let why = try_it(another(gateway_psk(), 5), 0, good);
    assert!(why.contains("another"), "{why}");
    // Any damage: the seal would have shown it.
    for len in 0..good.len() {
        try_it(another(gateway_psk(), 5), 1, &good[..len]);
    }
    try_it(another(gateway_psk(), 5), 1, &[good, &[0]].concat());
    // A gateway that takes none over.
    let side = Side::new(gateway_of(gateway_psk(), false, 1), Box::new(Seeded::new(5)));
    try_it(side, 1, good);
}

#[test]
fn nothing_is_left_of_who_does_not_offer_it_nor_by_a_gateway_that_does_not_agree() {
    for (takeover, offers) in [(false, true), (true, false)] {
        let config = gateway_of(gateway_psk(), takeover, 4);
        let mut pair = if offers {
            up(config, 4).0
        } else {
            let mut client = client_psk();
            client.dormancy = false;
            let mut pair = Pair::with_configs(client, EndpointConfig::default(), config, 4);
            pair.up();
            pair
        };
        assert!(kept(&mut pair.gateway).is_none(), "{takeover} {offers}");
    }
}

#[test]
fn the_store_hears_of_each_change_and_of_the_end() {
    let (mut pair, a, b) = up(gateway_of(gateway_psk(), true, 5), 5);
    let first = kept(&mut pair.gateway).expect("it can be taken over");
    pair.client.endpoint.rekey_ike(pair.now, a);
    pair.settle();
    let second = kept(&mut pair.gateway).expect("the IKE SA is another one");
    assert_eq!((second.left.lineage, &second.left.esp), (first.left.lineage, &first.left.esp));
    assert_ne!(second.left.spi, first.left.spi);
    let child = *pair.gateway.children.keys().next().expect("there is one");
    pair.gateway.endpoint.rekey_child(pair.now, child);
    pair.settle();
    let third = kept(&mut pair.gateway).expect("the CHILD SA is another one");
    assert_eq!((third.left.spi, third.left.esp.len()), (second.left.spi, 1));
    assert_ne!(third.left.esp, second.left.esp);
    // The store has lost everything.
    pair.gateway.endpoint.leave_again(pair.now);
    pair.flush();
    assert_eq!(kept(&mut pair.gateway).map(|record| record.left), Some(third.left.clone()));
    // Another gateway has it: it goes without a word.
    let before = pair.log.len();
    assert_eq!(pair.gateway.endpoint.gone_elsewhere(pair.now, first.left.lineage), 1);
    pair.flush();
    assert_eq!(pair.log.len(), before);
    assert_eq!(pair.gateway.closed, [(b, CloseReason::Elsewhere)]);
    assert!(forgotten(&mut pair.gateway));
}
