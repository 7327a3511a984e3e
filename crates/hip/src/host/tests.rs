//! What only who has the keys of an association can send.

use dormouse_keying::KeyManager;
use dormouse_wire::hip::{EspInfo, Param, ParamType, Registration, set_checksum};

use super::*;
use crate::fuzz::{address, carry, host, path};

/// Two hosts with an association; the second is a rendezvous server.
fn joined() -> [Host; 2] {
    let mut hosts = [host(0, false).unwrap(), host(1, false).unwrap()];
    let (ours, peer) = (hosts[0].tags().next().unwrap(), hosts[1].tags().next().unwrap());
    hosts[0].connect(Instant::ZERO, ours, peer, &[path(0)]).unwrap();
    carry(&mut hosts, Instant::ZERO, usize::MAX);
    hosts
}

/// RFC 8003 section 4.4: several requests in one packet have one answer, with the shortest of their times; if all end something, it says so.
#[test]
fn several_requests_have_one_answer() {
    for (lifetimes, told) in [([120, 110], 110), ([0, 110], 110), ([0, 0], 0)] {
        let (mut hosts, now) = (joined(), Instant::ZERO);
        let association = hosts[0].associations.values().next().unwrap();
        let Stage::Up(session) = &association.stage else { panic!("not established") };
        let mut draft = protect::draft(PacketType::Update, association.ours, association.peer);
        draft.add(&Param::Seq(session.updates.next_id));
        for lifetime in lifetimes {
            let request = Registration { lifetime, types: vec![1] };
            draft.add(&Param::Registration(ParamType::RegRequest, request));
        }
        let identity = &hosts[0].locals[0].identity;
        let mut packet = protect::finish(draft, &session.agreed.keys.mac_out, identity).unwrap();
        set_checksum(&mut packet, Some((address(0).ip(), address(1).ip())));
        hosts[1].handle_datagram(now, path(1), &mut packet).unwrap();
        let mut answer = Vec::new();
        assert!(hosts[1].poll_transmit(now, &mut answer).is_some());
        let answer = Packet::parse(&answer).unwrap();
        let of = |kind| answer.params().iter().filter(|p| p.kind == kind).count();
        assert_eq!((of(ParamType::RegResponse), of(ParamType::RegFailed)), (1, 0), "{lifetimes:?}");
        let Some(Param::Registration(_, response)) = answer.read(ParamType::RegResponse) else { panic!() };
        assert_eq!(response.lifetime, told, "{lifetimes:?}");
    }
}

/// RFC 8046 section 4.3: an UPDATE may have the HOST_ID of its sender, which is that of the association, and then its signature counts.
#[test]
fn an_update_names_the_identity_of_its_association() {
    let (mut hosts, now) = (joined(), Instant::ZERO);
    let (ours, peer) = (hosts[0].tags().next().unwrap(), hosts[1].tags().next().unwrap());
    let update = |hosts: &[Host; 2], named: usize, signer: usize| {
        let association = hosts[0].associations.values().next().unwrap();
        let Stage::Up(session) = &association.stage else { panic!("not established") };
        let identity = |of: usize| &hosts[of].locals[0].identity;
        let mut draft = protect::draft(PacketType::Update, ours, peer);
        draft.add(&Param::Seq(session.updates.next_id));
        draft.add(&Param::HostId(identity(named).public().host_id().clone()));
        let mut packet = protect::finish(draft, &session.agreed.keys.mac_out, identity(signer)).unwrap();
        set_checksum(&mut packet, Some((address(0).ip(), address(1).ip())));
        packet
    };
    for (named, signer, fits) in [(1, 0, false), (0, 1, false), (0, 0, true)] {
        let mut packet = update(&hosts, named, signer);
        let taken = hosts[1].handle_datagram(now, path(1), &mut packet);
        let expected = if fits { Ok(()) } else { Err(Discard("an UPDATE that names another identity")) };
        assert_eq!(taken, expected, "{named} {signer}");
    }
}

/// RFC 8047 section 4.2.2: how many pairs of SAs there are is each host's policy. A peer that asks for a second one keeps the first, and the
/// association.
#[test]
fn a_second_pair_is_not_made_and_costs_nothing() {
    keeps_its_pair(|_| (0, 4_321));
}

/// RFC 8046 section 5.3: the peer deprecates the only pair. It learns that its UPDATE was read, and the pair stays, so that it does not end the
/// association in silence.
#[test]
fn a_pair_that_is_deprecated_stays_and_the_peer_is_answered() {
    keeps_its_pair(|spi| (spi, 0));
}

/// An UPDATE with these two SPIs, made of the one that its sender receives on, is acknowledged and changes nothing.
fn keeps_its_pair(spis: impl Fn(u32) -> (u32, u32)) {
    let (mut hosts, now) = (joined(), Instant::ZERO);
    let association = hosts[0].associations.values().next().unwrap();
    let Stage::Up(session) = &association.stage else { panic!("not established") };
    let mut draft = protect::draft(PacketType::Update, association.ours, association.peer);
    let (old_spi, new_spi) = spis(session.esp.child.spi());
    draft.add(&Param::EspInfo(EspInfo { keymat_index: session.agreed.next, old_spi, new_spi }));
    draft.add(&Param::Seq(session.updates.next_id));
    let (id, before) = (session.updates.next_id, hosts[1].describe().next().unwrap().child);
    let identity = &hosts[0].locals[0].identity;
    let mut packet = protect::finish(draft, &session.agreed.keys.mac_out, identity).unwrap();
    set_checksum(&mut packet, Some((address(0).ip(), address(1).ip())));
    while hosts[1].poll_event().is_some() {}
    hosts[1].handle_datagram(now, path(1), &mut packet).unwrap();
    let mut answer = Vec::new();
    assert!(hosts[1].poll_transmit(now, &mut answer).is_some());
    let answer = Packet::parse(&answer).unwrap();
    assert_eq!(answer.read(ParamType::Ack), Some(Param::Ack(vec![id])));
    assert!(answer.find(ParamType::EspInfo).is_none() && hosts[1].poll_event().is_none());
    assert_eq!(hosts[1].describe().next().unwrap().child, before);
}
