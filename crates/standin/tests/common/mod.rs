//! A device, its peer, and the packets between them.
#![expect(dead_code, reason = "every test file uses some of it")]

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use dormouse_sansio::Instant;
use dormouse_standin::{DeviceId, Limits, Service, StandIn, Verdict};
use dormouse_wire::ip::icmp::Echo;
use dormouse_wire::ip::tcp::{ACK, Segment, Tcp};
use dormouse_wire::ip::{Packet, udp};

pub(crate) const DEVICE: DeviceId = DeviceId(7);
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 55, 0, 7));
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));

pub(crate) fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A host on the device's own link.
pub(crate) const NEIGHBOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 55, 0, 9));

/// A stand-in with one device that is awake, in 10.55.0.0/16.
pub(crate) fn enrolled(limits: Limits) -> StandIn {
    let mut standin = StandIn::new(limits);
    standin.set_links(vec!["10.55.0.0/16".parse().expect("a prefix")]);
    assert!(standin.enrol(Instant::ZERO, DEVICE, &[ADDRESS]));
    standin
}

/// A ping, or the answer to one.
pub(crate) fn ping(src: IpAddr, dst: IpAddr, reply: bool) -> Vec<u8> {
    let mut out = Vec::new();
    Echo { src, dst, reply, id: 9, sequence: 3, payload: b"are you there" }.build(&mut out).expect("echo");
    out
}

/// A device answers a ping, and is seen to.
pub(crate) fn pong(standin: &mut StandIn, device: DeviceId, address: IpAddr) {
    let asker = if address.is_ipv4() { PEER } else { "fd99::2".parse().expect("an address") };
    standin.observe_inbound(Instant::ZERO, device, &ping(address, asker, true));
}

/// The device sleeps for an hour from `now` on.
pub(crate) fn sleep(standin: &mut StandIn, now: Instant) {
    assert!(standin.sleeps(now, DEVICE, Service::FULL, now + Duration::from_secs(3600)));
}

/// A packet comes for the sleeping device: the verdict and the answer.
pub(crate) fn give(standin: &mut StandIn, now: Instant, packet: &[u8]) -> (Verdict, Vec<u8>) {
    let mut out = Vec::new();
    let verdict = standin.handle(now, DEVICE, packet, &mut out).expect("it sleeps");
    (verdict, out)
}

/// All packets that the stand-in sends on its own.
pub(crate) fn own(standin: &mut StandIn) -> Vec<Vec<u8>> {
    let mut list = Vec::new();
    let mut out = Vec::new();
    while standin.poll_transmit(&mut out) {
        list.push(core::mem::take(&mut out));
    }
    list
}

/// A UDP packet.
pub(crate) fn datagram(from: (IpAddr, u16), to: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    udp::build(SocketAddr::from(from), SocketAddr::from(to), payload, &mut out).expect("one family");
    out
}

/// Port 9000 of the peer to port 9000 of the device.
pub(crate) fn plain(payload: &[u8]) -> Vec<u8> {
    datagram((PEER, 9000), (ADDRESS, 9000), payload)
}

/// The UDP payload of an answer that goes from and to these places.
#[track_caller]
pub(crate) fn payload(answer: &[u8], from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<u8> {
    let packet = Packet::parse(answer).expect("an answer");
    let datagram = udp::Udp::parse(&packet).expect("UDP with a right checksum");
    assert_eq!(((packet.src(), datagram.src_port), (packet.dst(), datagram.dst_port)), (from, to));
    datagram.payload.to_vec()
}

/// One end of a TCP connection.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) here: (IpAddr, u16),
    pub(crate) there: (IpAddr, u16),
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) window: u16,
    /// The clock and its echo.
    pub(crate) time: Option<(u32, u32)>,
}

impl End {
    pub(crate) fn segment(&self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let options = self.time.map(|(value, echo)| dormouse_wire::ip::tcp::timestamps_option(value, echo));
        let mut out = Vec::new();
        Segment {
            src: self.here.into(),
            dst: self.there.into(),
            sequence: self.sequence,
            acknowledgement: self.acknowledgement,
            flags,
            window: self.window,
            options: options.as_ref().map_or(&[], |o| o.as_slice()),
        }
        .build(payload, &mut out)
        .expect("a segment");
        out
    }

    pub(crate) fn at(self, sequence: u32) -> Self {
        Self { sequence, ..self }
    }
}

/// Device and peer of a connection in which the device has sent up to 5,000 and received up to 90,000.
pub(crate) fn connection() -> (End, End) {
    let device = End {
        here: (ADDRESS, 40_000),
        there: (PEER, 445),
        sequence: 5_000,
        acknowledgement: 90_000,
        window: 501,
        time: None,
    };
    let peer = End {
        here: device.there,
        there: device.here,
        sequence: 90_000,
        acknowledgement: 5_000,
        window: 800,
        time: None,
    };
    (device, peer)
}

/// A stand-in that has seen `device` acknowledge, and puts it to sleep at one second.
pub(crate) fn asleep_with(device: &End) -> StandIn {
    let mut standin = enrolled(Limits::default());
    standin.observe_inbound(at(0), DEVICE, &device.segment(ACK, b""));
    sleep(&mut standin, at(1_000));
    standin
}

/// Flags, sequence, acknowledgement, window and timestamps of an answer, which carries no data.
#[track_caller]
pub(crate) fn told(answer: &[u8]) -> (u8, u32, u32, u16, Option<(u32, u32)>) {
    let packet = Packet::parse(answer).expect("an answer");
    let sum = packet.pseudo_header(packet.payload().len()).add_bytes(packet.payload()).finish();
    assert_eq!(sum, 0, "checksum");
    let tcp = Tcp::parse(&packet).expect("TCP");
    assert!(tcp.payload.is_empty());
    (tcp.flags, tcp.sequence, tcp.acknowledgement, tcp.window, tcp.timestamps())
}
