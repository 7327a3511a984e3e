//! Programs that know IPv4 only: what they send to a peer that sleeps is kept and answered like anything else, what is too big for the
//! tunnel is said in their family, and so is what the peer's kernel says; large datagrams arrive. And names of peers, for all programs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dormouse_node::host::{Lsis, PeerNames};
use dormouse_sansio::packet::Plan;
use dormouse_wire::dns::{AAAA, Header, IN, Name, Question};
use dormouse_wire::ip::icmp::Echo;
use dormouse_wire::ip::udp;

use super::sleep::{HOUR, asleep};
use super::{SECOND, Story, tag};

const OURS: Ipv4Addr = Ipv4Addr::new(1, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(1, 0, 0, 2);

/// Machine `n` reaches the other one by [`PEER`].
fn give_lsis(story: &mut Story, n: usize) {
    let lsis = Lsis::new(OURS, [(PEER, (tag(1 - n).0, tag(n).0))], std::collections::BTreeSet::new());
    story.net.with(story.machines[n], |_, host| host.set_lsis(lsis));
}

/// A program of machine `n` sends this; what is answered here.
fn say(story: &mut Story, n: usize, mut packet: Vec<u8>) -> Vec<Vec<u8>> {
    let machine = story.machines[n];
    let before = story.net.machine(machine).answers.len();
    story.net.with(machine, |now, host| {
        host.plan(now, packet.as_mut_slice());
    });
    story.net.machine(machine).answers[before..].to_vec()
}

fn ping(sequence: u16) -> Echo<'static> {
    Echo { src: OURS.into(), dst: PEER.into(), reply: false, id: 7, sequence, payload: b"ping" }
}

/// The server pings the device; what is answered at once.
fn answered(story: &mut Story, sequence: u16) -> Vec<Vec<u8>> {
    let mut packet = Vec::new();
    ping(sequence).build(&mut packet).expect("it fits");
    say(story, 1, packet)
}

#[test]
fn what_goes_by_lsi_to_a_sleeping_peer_is_kept_and_answered() {
    let mut story = asleep(30, false, true);
    give_lsis(&mut story, 0);
    give_lsis(&mut story, 1);
    story.run(HOUR);
    story.number += 1;
    let (server, now, number) = (story.machines[1], story.net.now, story.number);
    let to = SocketAddr::new(PEER.into(), 9);
    story.net.machine_mut(server).send_to(now, OURS.into(), to, number);
    assert_eq!(answered(&mut story, 1), Vec::<Vec<u8>>::new(), "it was never seen to answer");
    story.run(SECOND * 20);
    assert!(story.net.machine(story.machines[0]).is_asleep(story.net.now) && !story.has(0, number));
    story.send(0);
    story.run(SECOND * 3);
    assert!(story.has(0, number));
    // The device answers a ping, and is answered for when it sleeps again.
    answered(&mut story, 2);
    story.run(SECOND);
    let mut answer = Vec::new();
    // By an identifier there as well: what is translated is sealed at once.
    Echo { reply: true, ..ping(2) }.build(&mut answer).expect("it fits");
    say(&mut story, 0, answer);
    story.run(SECOND * 30);
    let answers = answered(&mut story, 3);
    assert_eq!(answers.iter().map(|a| Echo::parse(a)).collect::<Vec<_>>(), [Some(ping(3).answer())]);
}

#[test]
fn what_is_too_big_for_the_tunnel_is_said_in_ipv4() {
    let mut story = Story::new(31, false, 0.0);
    give_lsis(&mut story, 0);
    story.send(0);
    story.run(SECOND);
    let of = |len: usize| {
        let (from, to) = ((IpAddr::from(OURS), 9).into(), (IpAddr::from(PEER), 9).into());
        let mut packet = Vec::new();
        udp::build(from, to, &vec![0; len - 28], &mut packet).expect("it fits");
        packet
    };
    let answers = say(&mut story, 0, of(1_500));
    assert_eq!(answers.len(), 1, "{answers:?}");
    let [0x45, .., 3, 4, _, _, 0, 0, m0, m1] = &answers[0][..28] else { panic!("{answers:?}") };
    assert_eq!(&answers[0][12..20], [PEER.octets(), OURS.octets()].concat());
    let mtu = usize::from(u16::from_be_bytes([*m0, *m1]));
    assert_eq!(say(&mut story, 0, of(mtu + 1)).len(), 1);
    assert_eq!(say(&mut story, 0, of(mtu)), Vec::<Vec<u8>>::new(), "what was said passes");
}

/// An IPv4 datagram of the program of machine `n` with this number, in pieces as its kernel makes them.
fn in_pieces(story: &mut Story, len: usize, id: u16) -> (u64, Vec<Vec<u8>>) {
    story.number += 1;
    let mut data = story.number.to_be_bytes().to_vec();
    data.resize(len, 0);
    let mut whole = Vec::new();
    udp::build((IpAddr::from(OURS), 9).into(), (IpAddr::from(PEER), 9).into(), &data, &mut whole)
        .expect("it fits");
    let (header, payload) = whole.split_at(20);
    let pieces = payload.chunks(1_376).enumerate().map(|(at, data)| {
        let mut piece = [header, data].concat();
        let more = if (at + 1) * 1_376 < payload.len() { 0x2000 } else { 0 };
        let (total, place) = (piece.len() as u16, (at * 1_376 / 8) as u16 | more);
        piece[2..4].copy_from_slice(&total.to_be_bytes());
        piece[4..6].copy_from_slice(&id.to_be_bytes());
        piece[6..8].copy_from_slice(&place.to_be_bytes());
        piece
    });
    (story.number, pieces.collect())
}

/// A datagram that does not fit one packet arrives whole at a program of the other family and of the same; one of which a piece is missing
/// does not, and keeps none of the next ones away.
#[test]
fn datagrams_in_pieces_arrive_whole() {
    for udp in [false, true] {
        let mut story = Story::new(32, udp, 0.0);
        give_lsis(&mut story, 0);
        give_lsis(&mut story, 1);
        let (first, pieces) = in_pieces(&mut story, 3_000, 1);
        for piece in pieces {
            assert_eq!(say(&mut story, 0, piece), Vec::<Vec<u8>>::new());
        }
        story.run(SECOND);
        assert!(story.has(1, first), "what waited for the association too: UDP {udp}");
        // The answer, from a program of the server that knows IPv4 only.
        let (second, pieces) = in_pieces(&mut story, 9_000, 2);
        for piece in pieces.into_iter().rev() {
            say(&mut story, 1, piece);
        }
        story.run(SECOND);
        assert!(story.has(0, second), "UDP {udp}");
        for id in 10..30 {
            let (lost, mut pieces) = in_pieces(&mut story, 3_000, id);
            pieces.remove(1);
            for piece in pieces {
                say(&mut story, 0, piece);
            }
            story.run(SECOND);
            assert!(!story.has(1, lost));
        }
        let (last, pieces) = in_pieces(&mut story, 60_000, 30);
        for piece in pieces {
            say(&mut story, 0, piece);
        }
        story.run(SECOND);
        assert!(story.has(1, last), "UDP {udp}");
    }
}

/// The kernel of the server refuses what came by LSI: the program that sent it gets the ICMP error in IPv4, and a program of IPv6 in IPv6.
#[test]
fn refusals_come_back_in_the_family_of_the_program() {
    let mut story = Story::new(33, false, 0.0);
    give_lsis(&mut story, 0);
    let (device, hits) = (story.machines[0], [0, 1].map(|n| IpAddr::from(tag(n).0)));
    let programs = [(80, 0x45, [OURS.into(), PEER.into()]), (81, 0x60, hits)];
    for (number, (port, first_byte, [from, to])) in (1..).zip(programs) {
        let now = story.net.now;
        story.net.machine_mut(device).send_to(now, from, SocketAddr::new(to, port), number);
        story.run(SECOND);
        assert!(story.has(1, number));
        let mut arrived = Vec::new();
        udp::build((hits[0], 9).into(), (hits[1], port).into(), &1_u64.to_be_bytes(), &mut arrived)
            .expect("it fits");
        let mut refusal = Vec::new();
        assert!(dormouse_wire::ip::icmp::port_unreachable(&arrived, &mut refusal));
        let before = story.net.machine(device).received.len();
        let (now, server) = (story.net.now, story.machines[1]);
        story.net.machine_mut(server).forward(now, refusal);
        story.run(SECOND);
        // Where a numbered packet has its number, an error has the packet that it is about.
        let quoted = &story.net.machine(device).received[before..];
        assert!(matches!(quoted, [it] if it >> 56 == first_byte), "{port}: {quoted:x?}");
    }
}

/// Names are answered by the host itself, so that asking for one wakes no radio; and by no other machine.
#[test]
fn a_name_is_found_while_the_radio_sleeps() {
    let mut story = asleep(34, false, true);
    let (ours, peer) = (tag(0).0, tag(1).0);
    let server = dormouse_node::config::directory::resolver(2);
    let names = PeerNames::new(server, [ours], "hip", [("server", (peer, Some(PEER)))]);
    story.net.with(story.machines[0], |_, host| host.set_names(names));
    let wakes = |story: &Story| {
        story.net.machine(story.machines[0]).sleep_report(story.net.now).map(|r| r.wakes.len())
    };
    let before = wakes(&story);
    let mut question = Vec::new();
    Header { id: 5, questions: 1, ..Header::default() }.emit(&mut question);
    let name = Name::from_labels(["server", "hip"]).expect("a name");
    Question { name, kind: AAAA, class: IN }.emit(&mut question);
    for (from, answered) in [(ours, true), (peer, false)] {
        let mut packet = Vec::new();
        udp::build((from, 4_000).into(), (server, 53).into(), &question, &mut packet).expect("it fits");
        let mut plan = Plan::Drop;
        story.net.with(story.machines[0], |now, host| plan = host.plan(now, packet.as_mut_slice()));
        let Plan::Answer(answer) = plan else {
            assert!(!answered && plan == Plan::Drop);
            continue;
        };
        assert!(answered && answer.ends_with(&peer.octets()));
    }
    story.run(SECOND * 60);
    assert!(story.net.machine(story.machines[0]).is_asleep(story.net.now));
    assert_eq!(wakes(&story), before);
}
