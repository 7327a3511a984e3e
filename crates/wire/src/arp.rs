//! ARP for IPv4 over Ethernet (RFC 826), and the reply that stands in for another host.
//!
//! Owns the format. Frames never reach a tunnel (a TUN interface has no link layer): where the pool of inner addresses is a part
//! of the gateway's LAN, the kernel's own proxy ARP answers. This is for drivers that see frames themselves. Must never keep a
//! table.

use core::net::Ipv4Addr;

/// Bytes of the frame: Ethernet header and ARP packet, without padding.
pub const FRAME_LEN: usize = 42;

const ETHERTYPE: [u8; 2] = [0x08, 0x06];
/// Ethernet, IPv4, lengths 6 and 4.
const SPACES: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// An ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// Asks for the link address of `target_ip`, rather than telling that of `sender_ip`.
    pub request: bool,
    /// Who sends.
    pub sender: ([u8; 6], Ipv4Addr),
    /// The host it concerns; the link address is unknown in a request.
    pub target: ([u8; 6], Ipv4Addr),
}

impl Arp {
    /// Reads an Ethernet frame. `None` for anything but ARP of IPv4 over Ethernet.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let frame = frame.first_chunk::<FRAME_LEN>()?;
        let (ethernet, packet) = frame.split_at(14);
        let (spaces, packet) = packet.split_at(6);
        let [0, op @ 1..=2, packet @ ..] = packet else { return None };
        if !ethernet.ends_with(&ETHERTYPE) || spaces != SPACES {
            return None;
        }
        let host = |at: usize| -> Option<([u8; 6], Ipv4Addr)> {
            let (link, rest) = packet.get(at..)?.split_first_chunk::<6>()?;
            Some((*link, Ipv4Addr::from(*rest.first_chunk::<4>()?)))
        };
        Some(Self { request: *op == 1, sender: host(0)?, target: host(10)? })
    }

    /// Appends the reply that says that `link` has the address asked for: to the asker alone. Returns whether there is one: not
    /// for a reply, nor for an announcement (a host that asks for its own address). A probe (sender 0.0.0.0, RFC 5227) is
    /// answered: it learns that the address is taken.
    pub fn reply(&self, link: [u8; 6], out: &mut Vec<u8>) -> bool {
        if !self.request || self.sender.1 == self.target.1 {
            return false;
        }
        out.extend_from_slice(&self.sender.0);
        out.extend_from_slice(&link);
        out.extend_from_slice(&ETHERTYPE);
        out.extend_from_slice(&SPACES);
        out.extend_from_slice(&[0, 2]);
        out.extend_from_slice(&link);
        out.extend_from_slice(&self.target.1.octets());
        out.extend_from_slice(&self.sender.0);
        out.extend_from_slice(&self.sender.1.octets());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn request(sender: [u8; 4]) -> Vec<u8> {
        let mut frame =
            [&[0xff; 6][..], &ASKER, &ETHERTYPE, &SPACES, &[0, 1], &ASKER, &sender, &[0; 6], &[10, 0, 0, 7]]
                .concat();
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn a_request_is_answered_to_the_asker_alone() {
        let asked = Arp::parse(&request([10, 0, 0, 2])).expect("ARP");
        assert_eq!(asked.target.1, Ipv4Addr::new(10, 0, 0, 7));
        let mut out = Vec::new();
        assert!(asked.reply(GATEWAY, &mut out));
        let told = Arp::parse(&out).expect("ARP");
        assert_eq!((told.request, told.sender), (false, (GATEWAY, Ipv4Addr::new(10, 0, 0, 7))));
        assert_eq!((&out[..6], told.target.0), (&ASKER[..], ASKER));
        assert!(!told.reply(GATEWAY, &mut out), "a reply is not answered");
    }

    #[test]
    fn a_probe_learns_that_the_address_is_taken_and_an_announcement_nothing() {
        let mut out = Vec::new();
        assert!(Arp::parse(&request([0, 0, 0, 0])).expect("ARP").reply(GATEWAY, &mut out));
        assert!(!Arp::parse(&request([10, 0, 0, 7])).expect("ARP").reply(GATEWAY, &mut out));
    }

    #[test]
    fn other_frames_are_none() {
        let good = request([10, 0, 0, 2]);
        assert!(Arp::parse(&good[..41]).is_none());
        for at in [12, 14, 16, 18, 20] {
            let mut frame = good.clone();
            frame[at] ^= 0x40;
            assert!(Arp::parse(&frame).is_none(), "byte {at}");
        }
    }
}
