//! Every byte of a registration and of the packets after it, against packets that another program made.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dormouse_crypto::Secret;
use dormouse_mobileip::{
    Advertise, AgentConfig, Association, Authenticator, ForeignAgent, ForeignConfig, HomeAgent, HomeConfig,
    LinkAddress, Member, MobileConfig, MobileHost, Replay, Reverse, Side, WallClock,
};
use dormouse_sansio::{Instant, Seeded};

const HOME: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
const FOREIGN: Ipv4Addr = Ipv4Addr::new(10, 51, 0, 1);
const HOST: Side = Side::Link(LinkAddress([2; 6]));
const AGENT: Side = Side::Link(LinkAddress([4; 6]));

fn golden() -> BTreeMap<&'static str, Vec<u8>> {
    let lines = include_str!("golden.txt").lines().filter(|l| !l.starts_with('#'));
    let pairs = lines.map(|l| l.split_once(": ").expect("a name and bytes"));
    pairs.map(|(name, hex)| (name, hex::decode(hex).expect("hexadecimal"))).collect()
}

fn shared(n: u8, authenticator: Authenticator) -> Association {
    Association { spi: 256 + u32::from(n), key: Secret::from([n; 16]), authenticator }
}

/// What a part sends next.
fn next(poll: impl FnOnce(&mut Vec<u8>) -> Option<Side>) -> (Side, String) {
    let mut packet = Vec::new();
    let side = poll(&mut packet).expect("a packet");
    (side, hex::encode(packet))
}

#[test]
fn a_registration_byte_by_byte() {
    let now = Instant::ZERO;
    let clock = WallClock { at: now, unix: Duration::from_secs(1_700_000_000) };
    let (md5, sha) = (Authenticator::HmacMd5, Authenticator::HmacSha256);
    let random = || Box::new(Seeded::new(1));
    let (advertise, reverse, width) = (Advertise::default(), Reverse::Offered, 1_500);
    let agent = |address| AgentConfig { address, advertise, reverse, width };
    let home = HomeConfig {
        agent: agent(HOME_AGENT),
        network: "10.50.0.0/24".parse().expect("a network"),
        members: BTreeMap::from([(HOME, Member { association: shared(1, md5), replay: Replay::default() })]),
        foreign: BTreeMap::from([(FOREIGN, shared(2, sha))]),
    };
    let foreign = ForeignConfig {
        agent: agent(FOREIGN),
        home_agents: BTreeMap::from([(HOME_AGENT, shared(2, sha))]),
        mobiles: BTreeMap::from([(HOME, shared(3, md5))]),
    };
    let host = MobileConfig {
        home: HOME,
        home_agent: HOME_AGENT,
        association: shared(1, md5),
        replay: Replay::default(),
        foreign: BTreeMap::from([(FOREIGN, shared(3, md5))]),
        lifetime: 300,
        reverse: true,
        sent_after: 5,
        width,
    };
    let mut home = HomeAgent::new(now, home, clock, random());
    let mut foreign = ForeignAgent::new(now, foreign, random());
    let mut host = MobileHost::new(host, clock, random());
    let golden = golden();
    let is = |name: &str, side: Side, got: (Side, String)| {
        assert_eq!(got, (side, hex::encode(&golden[name])), "{name}");
    };
    host.attach(now, None);
    is("solicitation", Side::Link(LinkAddress::BROADCAST), next(|out| host.poll_transmit(out)));
    foreign.handle_packet(now, HOST, &golden["solicitation"]).expect("taken");
    is("advertisement", HOST, next(|out| foreign.poll_transmit(out)));
    host.handle_packet(now, AGENT, &golden["advertisement"]).expect("taken");
    is("request", AGENT, next(|out| host.poll_transmit(out)));
    foreign.handle_packet(now, HOST, &golden["request"]).expect("taken");
    is("relayed request", Side::Routed, next(|out| foreign.poll_transmit(out)));
    home.handle_packet(now, Side::Routed, &golden["relayed request"]).expect("taken");
    is("reply", Side::Routed, next(|out| home.poll_transmit(out)));
    foreign.handle_packet(now, Side::Routed, &golden["reply"]).expect("taken");
    is("relayed reply", HOST, next(|out| foreign.poll_transmit(out)));
    host.handle_packet(now, AGENT, &golden["relayed reply"]).expect("taken");
    assert!(host.current().is_some_and(|c| c.care_of == FOREIGN));
    home.handle_packet(now, Side::Routed, &golden["packet"]).expect("taken");
    is("tunnelled", Side::Routed, next(|out| home.poll_transmit(out)));
    foreign.handle_packet(now, Side::Routed, &golden["tunnelled"]).expect("taken");
    is("delivered", HOST, next(|out| foreign.poll_transmit(out)));
    host.handle_packet(now, Side::Routed, &golden["answer"]).expect("taken");
    is("answer", AGENT, next(|out| host.poll_transmit(out)));
    foreign.handle_packet(now, HOST, &golden["answer"]).expect("taken");
    is("tunnelled back", Side::Routed, next(|out| foreign.poll_transmit(out)));
    home.handle_packet(now, Side::Routed, &golden["tunnelled back"]).expect("taken");
    let (side, packet) = next(|out| home.poll_transmit(out));
    assert_eq!((side, &packet[48..]), (Side::Routed, &hex::encode(&golden["tunnelled back"][20..])[48..]));
}
