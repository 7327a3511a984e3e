//! Parameters that are critical and of no type that we know.

use std::time::Duration;

use dormouse_keying::Discard;
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Draft, Header, Hit, NotifyType, Packet, PacketType, Param, ParamType, Version};

use crate::world::{World, config, mirrored, whole};

const SOON: Duration = Duration::from_secs(1);

/// A packet with a critical parameter of an unknown type changes nothing. An established peer learns it, once in a second; who has not the keys
/// learns nothing, and who has solved no puzzle either.
#[test]
fn unknown_critical_parameters_are_named_to_who_has_proved_himself() {
    let unknown = ParamType::from(32_771);
    let mut world = World::new(21, Carrier::RawHip, vec![("known p256", config()), ("p256", config())]);
    let notified = |world: &World| {
        let of = |(_, bytes): &(Path, Vec<u8>)| match Packet::parse(bytes)
            .unwrap()
            .read(ParamType::Notification)
        {
            Some(Param::Notification(n)) => Some((n.kind, n.data)),
            _ => None,
        };
        world.seen.iter().filter_map(of).collect::<Vec<_>>()
    };
    world.connect(0, 1);
    while world.count(PacketType::I2) == 0 {
        let end = world.now + SOON;
        world.step(end);
    }
    let (path, i2) = world.last(PacketType::I2);
    // The I2 with it, whose solution is right; and with another solution.
    let with_type = |unknown: ParamType, bytes: &[u8], break_it: bool| {
        let packet = Packet::parse(bytes).unwrap();
        let mut draft = Draft::new(&packet.header);
        let mut params: Vec<Param> =
            packet.params().iter().map(|p| Param::Opaque(p.kind, p.contents.to_vec())).collect();
        params.push(Param::Opaque(unknown, vec![7; 4]));
        params.sort_by_key(|p| p.kind().code());
        for param in &mut params {
            if let Param::Opaque(ParamType::Solution, contents) = param
                && break_it
            {
                contents[20] ^= 0xff;
            }
        }
        params.iter().for_each(|p| draft.add(p));
        whole(draft.finish().unwrap(), path)
    };
    let with = |bytes: &[u8], break_it: bool| with_type(unknown, bytes, break_it);
    assert!(world.hand(1, mirrored(path), &with(&i2, true)).is_err());
    assert!(notified(&world).is_empty(), "no puzzle, no word");
    let refused = Err(Discard("an unknown critical parameter"));
    assert_eq!(world.hand(1, mirrored(path), &with(&i2, false)), refused);
    let wanted = (NotifyType::UnsupportedCriticalParameterType, 32_771_u16.to_be_bytes().to_vec());
    assert_eq!(notified(&world), std::slice::from_ref(&wanted));
    world.run(SOON * 5);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    // A solution that has led to an association is worth no word any more.
    for _ in 0..100 {
        assert!(world.hand(1, mirrored(path), &with(&i2, false)).is_err());
    }
    assert_eq!(notified(&world).len(), 1);
    world.seen.clear();
    let id = world.nodes[0].host.describe().next().unwrap().id;
    world.act(0, |host, now| host.check(now, id));
    let (path, update) = world.last(PacketType::Update);
    // A stranger on the path adds it: the MAC, which stands behind it, is wrong.
    for _ in 0..100 {
        assert_eq!(world.hand(1, mirrored(path), &with(&update, false)), refused);
    }
    assert!(notified(&world).is_empty());
    // Behind the MAC it does not count for it: the packet is the peer's, and the peer hears of it where it is known to be.
    for n in 1..=2 {
        let elsewhere = Path { remote: "203.0.113.5:0".parse().unwrap(), ..mirrored(path) };
        let moved = whole(with_type(ParamType::from(64_513), &update, false), mirrored(elsewhere));
        for _ in 0..100 {
            assert_eq!(world.hand(1, elsewhere, &moved), refused);
        }
        assert_eq!(notified(&world).len(), n);
        assert_eq!(world.last(PacketType::Notify).0.remote, world.nodes[0].address);
        world.run(SOON);
    }
    let told = notified(&world).len();
    // Nor does an I1 of anyone.
    let mut octets = world.nodes[0].tag.octets();
    octets[15] ^= 1;
    let stranger = Hit(octets.into());
    let header = Header {
        kind: PacketType::I1,
        version: Version::V2,
        controls: 0,
        sender: stranger,
        receiver: world.nodes[1].tag,
    };
    let mut draft = Draft::new(&header);
    draft.add(&Param::Opaque(unknown, vec![7; 4]));
    let i1 = whole(draft.finish().unwrap(), path);
    assert_eq!(world.hand(1, mirrored(path), &i1), refused);
    assert_eq!(notified(&world).len(), told);
    world.run(SOON);
    assert!(world.joined(0, 1));
}
