//! Programs that know IPv4 only: what they send to a peer that sleeps is kept and answered like anything else, and what is too big for the
//! tunnel is said in their family.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dormouse_node::host::Lsis;
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
