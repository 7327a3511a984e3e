//! What goes first of what has come, and what waits for what.

use super::*;

#[test]
fn a_packet_whose_senders_route_is_only_being_set_waits_for_it() {
    let (mut device, mut gateway) = (device(), gateway());
    // Everything but the gateway's own orders, which its driver has not carried out yet.
    let mut bytes = Vec::new();
    let answer = loop {
        hand_over(drive(&mut device, NOW).datagrams, &mut gateway, NOW);
        gateway.leased(NOW, u64::MAX);
        if gateway.node().is_route_due(FIRST) {
            let sent = gateway.node_mut().poll_transmit(NOW, &mut bytes).expect("an answer");
            break (sent.path, std::mem::take(&mut bytes));
        }
        hand_over(drive(&mut gateway, NOW).datagrams, &mut device, NOW);
    };
    hand_over(vec![answer], &mut device, NOW);
    drive(&mut device, NOW);
    let inner = device.node().inner_addresses()[0];
    for content in [b"first", b"again"] {
        forward(&mut device, NOW, &mut packet(inner, SERVER, content));
    }
    hand_over(drive(&mut device, NOW).datagrams, &mut gateway, NOW);
    let seen = drive(&mut gateway, NOW);
    let expected = [b"first", b"again"].map(|content| (Origin::Tunnel, packet(inner, SERVER, content)));
    assert_eq!(seen.inner, expected, "whole, and in their order");
    assert!(seen.order.find('r') < seen.order.find('i'), "{}", seen.order);
}

/// In a storm of handshakes the route to some newcomer is due all the time.
#[test]
fn packets_of_a_peer_whose_route_is_there_do_not_wait_for_that_of_another() {
    let (mut device, mut gateway) = (device(), gateway_with_unique("never"));
    converse(&mut device, &mut gateway, NOW);
    let inner = device.node().inner_addresses()[0];
    let mut second = device_drawn(5, None);
    // Up to what completes it: the gateway's driver has not carried out yet what follows.
    for _ in 0..9 {
        if (2..=9).any(|last| gateway.node().is_route_due([10, 55, 0, last].into())) {
            break;
        }
        hand_over(drive(&mut gateway, NOW).datagrams, &mut second, NOW);
        hand_over(drive(&mut second, NOW).datagrams, &mut gateway, NOW);
    }
    assert!(!gateway.node().is_route_due(inner));
    forward(&mut device, NOW, &mut packet(inner, SERVER, b"at once"));
    let [(path, mut datagram)] = <[_; 1]>::try_from(drive(&mut device, NOW).datagrams).expect("one");
    let Verdict::Deliver(range) = gateway.open(NOW, &arriving(path), &mut Train::default(), &mut datagram)
    else {
        panic!("it waits")
    };
    assert_eq!(datagram[range], packet(inner, SERVER, b"at once"));
}

/// Hands datagrams in, but gives no message its turn. What ESP carried at once.
fn arrive(sent: Vec<(Path, Vec<u8>)>, to: &mut End) -> usize {
    let verdicts = sent
        .into_iter()
        .map(|(path, mut datagram)| to.open(NOW, &arriving(path), &mut Train::default(), &mut datagram));
    verdicts.filter(|verdict| matches!(verdict, Verdict::Deliver(_))).count()
}

#[test]
fn packets_go_before_messages_that_wait() {
    let (mut session, mut gateway, inner) = connected();
    let newcomers = drive(&mut device(), NOW).datagrams;
    assert_eq!(arrive(newcomers, &mut gateway), 0);
    assert!(gateway.has_arrivals(NOW));
    forward(&mut session, NOW, &mut packet(inner, SERVER, b"at once"));
    assert_eq!(arrive(drive(&mut session, NOW).datagrams, &mut gateway), 1);
    assert_eq!(drive(&mut gateway, NOW).datagrams, [], "the newcomer has not had its turn");
    assert_eq!(gateway.handle_arrival(NOW), Some(Arrival::Newcomer));
    assert_eq!(drive(&mut gateway, NOW).datagrams.len(), 1, "an answer");
    assert!(!gateway.has_arrivals(NOW) && gateway.handle_arrival(NOW).is_none());
}

#[test]
fn a_packet_of_an_sa_that_a_waiting_message_makes_waits_for_it() {
    let (mut device, mut gateway) = (device(), gateway());
    // Up to the last answer, with which the gateway may send.
    let (answer, inner) = loop {
        hand_over(drive(&mut device, NOW).datagrams, &mut gateway, NOW);
        let seen = drive(&mut gateway, NOW);
        let route = seen.orders.iter().find_map(|order| match order {
            Order::PeerRoutes { routes, .. } => routes.first().map(|route| route.addr()),
            _ => None,
        });
        match route {
            Some(inner) => break (seen.datagrams, inner),
            None => hand_over(seen.datagrams, &mut device, NOW),
        }
    };
    let content = packet(SERVER, inner, b"early");
    forward(&mut gateway, NOW, &mut content.clone());
    let early = drive(&mut gateway, NOW).datagrams;
    assert_eq!((arrive(answer, &mut device), arrive(early, &mut device)), (0, 0));
    assert_eq!(device.handle_arrival(NOW), Some(Arrival::Session));
    drive(&mut device, NOW);
    assert_eq!(device.handle_arrival(NOW), Some(Arrival::Packet));
    assert_eq!(drive(&mut device, NOW).inner, [(Origin::Tunnel, content)]);
}
