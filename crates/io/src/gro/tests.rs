use super::*;
use crate::gso::SuperPacket;
use crate::tun::VNET_LEN;
use dormouse_sansio::packet::InnerPacket;

/// A TUN device that remembers what was written to it.
struct Memory {
    offloads: Offloads,
    refuse: bool,
    written: Vec<(Vnet, Vec<u8>)>,
}

impl Memory {
    fn new() -> Self {
        let offloads = Offloads { vnet: true, uso: true, join_tcp: true, join_udp: true };
        Self { offloads, refuse: false, written: vec![] }
    }
}

impl Sink for Memory {
    fn offloads(&self) -> Offloads {
        self.offloads
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let packet = parts.iter().flat_map(|p| p.iter().copied()).collect();
        self.written.push((Vnet::default(), packet));
        Ok(())
    }

    fn write_joined(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        if self.refuse {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
        let (vnet, packet) = bytes.split_first_chunk::<VNET_LEN>().unwrap();
        self.written.push((Vnet::from_bytes(*vnet), packet.to_vec()));
        Ok(())
    }

    fn give_up_joining(&mut self, udp: bool) {
        if udp { self.offloads.join_udp = false } else { self.offloads.join_tcp = false }
    }
}

fn segments(v6: bool, udp: bool, payload: usize, size: usize) -> Vec<Vec<u8>> {
    let (mut bytes, vnet) = crate::gso::tests::super_packet(v6, udp, payload, size);
    let packet = SuperPacket::new(vnet, &mut bytes).unwrap();
    (0..packet.packets())
        .map(|i| {
            let mut out = vec![0; packet.len_of(i, 0)];
            packet.write(i, 0, &mut out).unwrap();
            out
        })
        .collect()
}

/// Joins packets in one buffer, and then again with their IP headers elsewhere, which must give the same; but for IPv4's
/// identification where joining is refused: headers that are made anew have none.
fn join(tun: &mut Memory, packets: &[Vec<u8>]) {
    if tun.refuse && packets[0][0] >> 4 == 4 {
        return join_from(tun, packets, false);
    }
    let mut apart = Memory { offloads: tun.offloads, refuse: tun.refuse, written: tun.written.clone() };
    join_from(tun, packets, false);
    join_from(&mut apart, packets, true);
    assert_eq!((&apart.written, apart.offloads), (&tun.written, tun.offloads));
}

fn join_from(tun: &mut Memory, packets: &[Vec<u8>], apart: bool) {
    // With gaps between packets, as headers and trailers of ESP leave them.
    let mut buf = vec![];
    let pushed: Vec<_> = packets
        .iter()
        .map(|p| {
            buf.extend_from_slice(&[0xee; 24]);
            let (start, ip) = (buf.len(), if p[0] >> 4 == 6 { 40 } else { 20 });
            let (header, rest) = p.split_at(if apart { ip } else { 0 });
            buf.extend_from_slice(rest);
            (header, start..buf.len())
        })
        .collect();
    let mut joiner = Joiner::default();
    for (header, range) in pushed {
        joiner.push(tun, &buf, header, range);
    }
    joiner.flush(tun, &buf);
    assert_eq!(joiner.lost, 0);
}

/// Cuts everything that was written to single packets again: what an observer behind the kernel sees.
fn observed(tun: &Memory) -> Vec<Vec<u8>> {
    tun.written
        .iter()
        .flat_map(|(vnet, bytes)| {
            let mut bytes = bytes.clone();
            let packet = SuperPacket::new(*vnet, &mut bytes).unwrap();
            (0..packet.packets())
                .map(|i| {
                    let mut out = vec![0; packet.len_of(i, 0)];
                    packet.write(i, 0, &mut out).unwrap();
                    out
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn what_was_cut_is_joined_to_the_same_packets() {
    for v6 in [false, true] {
        for udp in [false, true] {
            for (payload, size) in [(20_000, 1_300), (2_600, 1_300), (1_301, 1_300), (3_000, 1_001)] {
                let packets = segments(v6, udp, payload, size);
                let mut tun = Memory::new();
                join(&mut tun, &packets);
                assert_eq!(tun.written.len(), 1, "v6 {v6} udp {udp} {payload}/{size}");
                assert_eq!(tun.written[0].0.gso_size as usize, size);
                assert_eq!(observed(&tun), packets);
            }
        }
    }
}

#[test]
fn flows_are_joined_apart_and_keep_their_order() {
    let a = segments(false, false, 6_000, 1_000);
    let b: Vec<_> = segments(true, false, 6_000, 1_000);
    let c: Vec<_> = segments(false, true, 6_000, 1_000);
    let mixed: Vec<_> =
        a.iter().zip(&b).zip(&c).flat_map(|((a, b), c)| [a.clone(), b.clone(), c.clone()]).collect();
    let mut tun = Memory::new();
    join(&mut tun, &mixed);
    assert_eq!(tun.written.len(), 3);
    assert_eq!(observed(&tun), [a, b, c].concat());
}

#[test]
fn a_flow_keeps_its_order_when_more_super_packets_wait_than_can() {
    let a = segments(false, false, 60_000, 1_000);
    let b = segments(true, false, 60_000, 1_000);
    // Gaps: super-packets of two packets each, of both flows in turn.
    let gaps = |packets: &[Vec<u8>]| -> Vec<Vec<u8>> {
        packets.chunks(3).flat_map(|three| three[..2].to_vec()).collect()
    };
    let (a, b) = (gaps(&a), gaps(&b));
    let mixed: Vec<_> = a.iter().zip(&b).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let mut tun = Memory::new();
    join(&mut tun, &mixed);
    assert_eq!(tun.written.len(), 40);
    let (v6, v4): (Vec<_>, Vec<_>) = observed(&tun).into_iter().partition(|p| p[0] >> 4 == 6);
    assert_eq!((v4, v6), (a, b));
}

#[test]
fn a_gap_a_change_and_a_reset_end_a_super_packet() {
    let packets = segments(false, false, 6_000, 1_000);
    let check = |packets: &[Vec<u8>], writes: usize| {
        let mut tun = Memory::new();
        join(&mut tun, packets);
        assert_eq!(tun.written.len(), writes);
        assert_eq!(observed(&tun), packets);
    };
    let mut gap = packets.clone();
    gap.remove(3);
    check(&gap, 2);
    let mut swapped = packets.clone();
    swapped.swap(1, 2);
    check(&swapped, 4);
    for (at, value) in [(1, 0x02), (8, 63), (20 + 8, 9), (20 + 14, 9)] {
        let mut changed = packets.clone();
        changed[3][at] = value;
        repair(&mut changed[3]);
        check(&changed, 3);
    }
    let mut reset = packets.clone();
    reset[3][20 + 13] = 0x14;
    repair(&mut reset[3]);
    check(&reset, 3);
}

#[test]
fn a_damaged_packet_is_passed_as_it_is() {
    for at in [3, 12, 20 + 5, 20 + 16, 800] {
        let mut packets = segments(false, false, 6_000, 1_000);
        packets[2][at] ^= 0x40;
        let mut tun = Memory::new();
        join(&mut tun, &packets);
        assert!(observed(&tun).contains(&packets[2]), "byte {at}");
    }
}

#[test]
fn a_kernel_that_refuses_gets_every_packet_singly() {
    for (v6, udp) in [(false, false), (false, true), (true, false), (true, true)] {
        let packets = segments(v6, udp, 5_900, 1_000);
        let mut tun = Memory::new();
        tun.refuse = true;
        join(&mut tun, &packets);
        assert_eq!(observed(&tun), packets);
        assert_eq!((tun.offloads.join_tcp, tun.offloads.join_udp), (udp, !udp));
        join(&mut tun, &packets);
        assert_eq!(tun.written.len(), 12);
    }
}

/// Makes the checksums of an IPv4 TCP packet right again.
fn repair(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = Sum::default().add_bytes(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet[36..38].fill(0);
    let len = packet.len() as u16 - 20;
    let pseudo = Sum::default().add_bytes(&packet[12..20]).add_u16(6).add_u16(len);
    let checksum = pseudo.add_bytes(&packet[20..]).finish();
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
}
