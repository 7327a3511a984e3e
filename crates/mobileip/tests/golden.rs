//! Every byte of a registration and of the packets after it, against packets that another program made.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dormouse_crypto::Secret;
use dormouse_mobileip::{
    Advertise, AgentConfig, Association, Authenticator, ForeignAgent, ForeignConfig, ForeignEvent, HomeAgent,
    HomeConfig, LinkAddress, Member, MobileConfig, MobileHost, Replay, Reverse, Side, WallClock,
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

const NEXT: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 1);

const MD5: Authenticator = Authenticator::HmacMd5;
const SHA: Authenticator = Authenticator::HmacSha256;

const fn clock() -> WallClock {
    WallClock { at: Instant::ZERO, unix: Duration::from_secs(1_700_000_000) }
}

fn random() -> Box<Seeded> {
    Box::new(Seeded::new(1))
}

fn agent(address: Ipv4Addr) -> AgentConfig {
    AgentConfig { address, advertise: Advertise::default(), reverse: Reverse::Offered, width: 1_500 }
}

/// The foreign agent at this address, by what it shares with the home agent and the host.
fn foreign(address: Ipv4Addr, home_agent: Association, host: Association) -> ForeignAgent {
    let foreign = ForeignConfig {
        agent: agent(address),
        home_agents: BTreeMap::from([(HOME_AGENT, home_agent)]),
        mobiles: BTreeMap::from([(HOME, host)]),
    };
    ForeignAgent::new(Instant::ZERO, foreign, random())
}

fn host() -> MobileHost {
    let host = MobileConfig {
        home: HOME,
        home_agent: HOME_AGENT,
        association: shared(1, MD5),
        replay: Replay::default(),
        foreign: BTreeMap::from([(FOREIGN, shared(3, MD5)), (NEXT, shared(4, SHA))]),
        lifetime: 300,
        reverse: true,
        sent_after: 5,
        width: 1_500,
    };
    MobileHost::new(host, clock(), random())
}

#[test]
fn a_registration_byte_by_byte() {
    let now = Instant::ZERO;
    let home = HomeConfig {
        agent: agent(HOME_AGENT),
        network: "10.50.0.0/24".parse().expect("a network"),
        members: BTreeMap::from([(HOME, Member { association: shared(1, MD5), replay: Replay::default() })]),
        foreign: BTreeMap::from([(FOREIGN, shared(2, SHA))]),
    };
    let mut home = HomeAgent::new(now, home, clock(), random());
    let (mut foreign, mut host) = (foreign(FOREIGN, shared(2, SHA), shared(3, MD5)), host());
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

/// The blocks of hexadecimal digits of `docs/mobile-ip.md`: a request with a notice, and the notice as a message. They are by another program:
///
/// ```python
/// import hmac, struct
/// ip = lambda text: bytes(map(int, text.split(".")))
/// def sign(kind, spi, key, algorithm, length, message):
///     message += struct.pack(">BBI", kind, 4 + length, spi)
///     return message + hmac.digest(key, message, algorithm)
/// home, agent, fa1, fa2 = map(ip, ("10.50.0.2", "10.50.0.1", "10.51.0.1", "10.52.0.1"))
/// notice = b"\xff\x01" + fa1 + home + fa2 + struct.pack(">HII", 5, 0xe8fe6f80, 0)
/// notice = sign(33, 0x103, bytes([3]) * 16, "md5", 16, notice)
/// request = b"\x01\x02" + struct.pack(">H", 300) + home + agent + fa2 + struct.pack(">II", 0xe8fe6f81, 0)
/// request = sign(32, 0x101, bytes([1]) * 16, "md5", 16, request)
/// request += struct.pack(">BB", 255, len(notice) - 1) + notice[1:]
/// request = sign(33, 0x104, bytes([4]) * 16, "sha256", 32, request)
/// ```
fn page() -> [Vec<u8>; 2] {
    let page = include_str!("../../../docs/mobile-ip.md");
    let section = page.split("## Beyond the RFCs\n").nth(1).expect("the section");
    let blocks = section.split("```").skip(1).step_by(2).take(2);
    let read = |block: &str| hex::decode(block.split_whitespace().collect::<String>()).expect("hexadecimal");
    blocks.map(read).collect::<Vec<_>>().try_into().expect("two blocks")
}

/// Behind the headers of IPv4 and UDP.
const MESSAGE: usize = 28;

#[test]
fn the_page_has_the_notice_to_the_agent_before() {
    let (golden, [request, notice]) = (golden(), page());
    let (now, mut host) = (Instant::ZERO, host());
    host.attach(now, None);
    host.handle_packet(now, AGENT, &golden["advertisement"]).expect("taken");
    host.handle_packet(now, AGENT, &golden["relayed reply"]).expect("taken");
    let mut before = foreign(FOREIGN, shared(2, SHA), shared(3, MD5));
    before.handle_packet(now, HOST, &golden["request"]).expect("taken");
    before.handle_packet(now, Side::Routed, &golden["reply"]).expect("taken");

    let (now, mut next) = (now + Duration::from_secs(1), foreign(NEXT, shared(5, SHA), shared(4, SHA)));
    host.detach();
    let mut out = Vec::new();
    while host.poll_transmit(&mut out).is_some() {
        out.clear();
    }
    host.attach(now, None);
    next.handle_packet(now, HOST, &golden["solicitation"]).expect("taken");
    assert!(next.poll_transmit(&mut out).is_some());
    host.handle_packet(now, AGENT, &std::mem::take(&mut out)).expect("taken");
    let mut sent = Vec::new();
    while host.poll_transmit(&mut out).is_some() {
        sent.push(std::mem::take(&mut out));
    }
    let asked = sent.pop().expect("a request");
    assert_eq!(hex::encode(&asked[MESSAGE..]), hex::encode(&request));

    next.handle_packet(now, HOST, &asked).expect("taken");
    let mut passed = Vec::new();
    while next.poll_transmit(&mut out).is_some() {
        passed.push(std::mem::take(&mut out));
    }
    let told = passed.iter().find(|packet| packet[16..20] == FOREIGN.octets()).expect("a notice");
    assert_eq!(hex::encode(&told[MESSAGE..]), hex::encode(&notice));
    while before.poll_event().is_some() {}
    before.handle_packet(now, Side::Routed, told).expect("taken");
    assert_eq!(before.poll_event(), Some(ForeignEvent::MovedOn { home: HOME, care_of: NEXT }));
}
