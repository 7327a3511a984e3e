//! Whole Ethernet frames of one interface, as a bridge takes and gives them. Owns the packet socket; what the kernel has joined or left open for the
//! interface to do (segmentation, checksums, VLAN tags) it does itself, so that frames come out as they would go over a wire. Must never change a frame
//! in any other way.
//!
//! The kernel sees what comes in too, and answers where it has an address: a bridge's interfaces should have none.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};

use dormouse_sansio::packet::InnerPacket as _;
use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrStorage, bind,
    getsockname, recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::uio::writev;

use crate::capture::{hardware_type, link_address};
use crate::gso::{SuperPacket, complete_checksum};
use crate::tun::{VNET_LEN, Vnet};

/// Beyond the largest frame that segmentation offload hands over, in bytes.
const LARGEST: usize = 1 << 18;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
/// Where a frame's type, or its first tag, stands: behind both addresses.
const TYPE_AT: usize = 12;
/// Bytes of `tpacket_auxdata` (packet(7)).
const AUXDATA: usize = 20;
/// What the kernel may queue until it is read, in bytes.
const QUEUE: usize = 8 << 20;
/// Where SCTP's header has its checksum, which is a CRC and not a sum (RFC 9260, section 6.8).
const SCTP_CHECKSUM: u16 = 8;

/// See the module. Nonblocking.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
    /// Room for a tag, then what was read.
    buffer: Vec<u8>,
    /// A frame that was cut out of it.
    piece: Vec<u8>,
}

crate::as_fd!(FrameSocket, socket);

impl FrameSocket {
    /// Opens it on an interface, which takes frames to any address from now on. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for no such interface, [`io::ErrorKind::Unsupported`] if it has no frames of Ethernet, the kernel's for the rest.
    pub fn open(interface: &str) -> io::Result<Self> {
        let missing = |_| io::Error::new(io::ErrorKind::NotFound, format!("no interface {interface:?} here"));
        let index = if_nametoindex(interface).map_err(missing)?;
        // Without a protocol until it is bound: nothing of other interfaces arrives before.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        let _ = setsockopt(&socket, sockopt::RcvBuf, &QUEUE); // what the system allows of it
        // The first says what the kernel has left open in a frame, the second which tag it has taken out.
        set(&socket, libc::PACKET_VNET_HDR, &1)?;
        set(&socket, libc::PACKET_AUXDATA, &1)?;
        bind(socket.as_raw_fd(), &link_address(index)?)?;
        if hardware_type(&socket)? != libc::ARPHRD_ETHER {
            let kind = format!("{interface:?} has no frames of Ethernet");
            return Err(io::Error::new(io::ErrorKind::Unsupported, kind));
        }
        let promiscuous = libc::packet_mreq {
            mr_ifindex: libc::c_int::try_from(index).map_err(io::Error::other)?,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&socket, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        Ok(Self { socket, buffer: vec![0; LARGEST], piece: Vec::new() })
    }

    /// Reads what came in next, and hands out the frames that it is: one, several that the kernel has joined, or none if this machine has sent it. False
    /// if it is lost, because it cannot be made into frames: packets of a tunnel that the kernel has joined, or of a kind that it does not explain.
    ///
    /// # Errors
    /// The kernel's, among them `WouldBlock`, and `NetworkDown` once when the interface goes down.
    pub fn receive(&mut self, take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
        let mut header = [0; VNET_LEN];
        let mut control = nix::cmsg_space!([u8; AUXDATA]);
        let (length, from, tag) = {
            let room = self.buffer.get_mut(TAG..).unwrap_or_default();
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(room)];
            let read = recvmsg::<LinkAddr>(
                self.socket.as_raw_fd(),
                &mut parts,
                Some(&mut control),
                MsgFlags::empty(),
            );
            let read = match read {
                // A joined packet that has no form in the virtio-net header. It is gone.
                Err(Errno::EINVAL) => return Ok(false),
                other => other?,
            };
            if read.flags.contains(MsgFlags::MSG_TRUNC) {
                return Ok(false);
            }
            (read.bytes, read.address, read.cmsgs()?.find_map(|message| tag(&message)))
        };
        if from.is_some_and(|from| from.pkttype() == libc::PACKET_OUTGOING) {
            return Ok(true);
        }
        let Some(length) = length.checked_sub(VNET_LEN).filter(|length| *length > TYPE_AT) else {
            return Ok(false);
        };
        let mut vnet = Vnet::from_bytes(header);
        let start = match tag {
            None => TAG,
            Some(tag) => {
                put_tag(&mut self.buffer, tag);
                vnet.csum_start = vnet.csum_start.saturating_add(TAG as u16);
                0
            }
        };
        let frame = self.buffer.get_mut(start..TAG + length);
        Ok(frame.is_some_and(|frame| cut(vnet, frame, &mut self.piece, take).is_some()))
    }

    /// The interface's index; `None` once it was deleted, after which nothing comes any more. The kernel then binds the socket to index -1, some
    /// time after [`Self::receive`] has said that the interface is down.
    ///
    /// # Errors
    /// The kernel's.
    pub fn index(&self) -> io::Result<Option<u32>> {
        let bound: SockaddrStorage = getsockname(self.socket.as_raw_fd())?;
        let index = bound.as_link_addr().ok_or(Errno::EAFNOSUPPORT)?.ifindex();
        Ok(i32::try_from(index).ok().and_then(|index| u32::try_from(index).ok()))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The kernel's, among them `WouldBlock`, and `EMSGSIZE` for one that is longer than the interface takes.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // Nothing is left open in it.
        let whole = [0; VNET_LEN];
        Ok(writev(&self.socket, &[IoSlice::new(&whole), IoSlice::new(frame)]).map(drop)?)
    }
}

/// Sets an option of packet sockets (packet(7)).
#[expect(unsafe_code, reason = "no safe wrapper has these options")]
fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `length` bytes from `value`, which has as many, and keeps nothing of it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The VLAN tag that the kernel has taken out of a frame, as it stood there: the last two fields of `tpacket_auxdata`, in the machine's byte order.
fn tag(message: &ControlMessageOwned) -> Option<[u8; TAG]> {
    let ControlMessageOwned::Unknown(message) = message else { return None };
    let data: &[u8; AUXDATA] = message.data_bytes.first_chunk()?;
    let about = (message.cmsg_header.cmsg_level, message.cmsg_header.cmsg_type);
    let status = u32::from_ne_bytes(*data.first_chunk()?);
    if about != (libc::SOL_PACKET, libc::PACKET_AUXDATA) || status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let [.., a, b, c, d] = *data;
    let [information, kind] = [[a, b], [c, d]].map(|field| u16::from_ne_bytes(field).to_be_bytes());
    let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 { [0x81, 0x00] } else { kind };
    Some([kind[0], kind[1], information[0], information[1]])
}

/// Puts a tag back into the frame that begins after the first four bytes; it begins with them then.
fn put_tag(buffer: &mut [u8], tag: [u8; TAG]) {
    buffer.copy_within(TAG..TAG + TYPE_AT, 0);
    for (to, from) in buffer.iter_mut().skip(TYPE_AT).zip(tag) {
        *to = from;
    }
}

/// Hands out the frames that stand in what was read; `None` if the kernel's words about it do not fit.
fn cut(vnet: Vnet, frame: &mut [u8], piece: &mut Vec<u8>, take: &mut impl FnMut(&[u8])) -> Option<()> {
    if vnet.gso_type == Vnet::GSO_NONE {
        if vnet.flags & Vnet::NEEDS_CSUM != 0 {
            let (start, at) = (usize::from(vnet.csum_start), usize::from(vnet.csum_offset));
            if vnet.csum_offset == SCTP_CHECKSUM {
                put_crc(frame.get_mut(start..)?, at)?;
            } else {
                complete_checksum(frame, start, at)?;
            }
        }
        take(frame);
        return Some(());
    }
    let network = network(frame)?;
    let (link, packet) = frame.split_at_mut_checked(network)?;
    let csum_start = usize::from(vnet.csum_start).checked_sub(network)?;
    let vnet = Vnet { csum_start: csum_start as u16, ..vnet };
    // Joined packets of a tunnel have the inner header there: what is between would have to be made anew for each.
    if csum_start != transport(packet)? {
        return None;
    }
    let joined = SuperPacket::new(vnet, packet)?;
    for index in 0..joined.packets() {
        piece.clear();
        piece.extend_from_slice(link);
        piece.resize(network + joined.len_of(index, 0), 0);
        joined.write(index, 0, piece.get_mut(network..)?)?;
        take(piece);
    }
    Some(())
}

/// Where the packet of IP begins, behind any number of VLAN tags.
fn network(frame: &[u8]) -> Option<usize> {
    let mut at = TYPE_AT;
    loop {
        match frame.get(at..)?.first_chunk()? {
            [0x81, 0x00] | [0x88, 0xa8] => at += TAG,
            [0x08, 0x00] | [0x86, 0xdd] => return Some(at + 2),
            _ => return None,
        }
    }
}

/// Where TCP or UDP begins in a packet of IP without extension headers; `None` for what is something else.
fn transport(packet: &[u8]) -> Option<usize> {
    let (protocol_at, end) = match packet.first()? >> 4 {
        4 => (9, usize::from(packet.first()? & 15) * 4),
        6 => (6, 40),
        _ => return None,
    };
    matches!(packet.get(protocol_at)?, 6 | 17).then_some(end)
}

/// Writes SCTP's checksum over what it covers, whose own field counts as zero.
fn put_crc(covered: &mut [u8], at: usize) -> Option<()> {
    covered.get_mut(at..at + 4)?.fill(0);
    let crc = crc32c(covered);
    covered.get_mut(at..at + 4)?.copy_from_slice(&crc.to_le_bytes());
    Some(())
}

/// CRC-32C, bit by bit: few frames are SCTP.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gso::tests::super_packet;
    use dormouse_wire::ip::{Packet, tcp::Tcp, udp::Udp};

    const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn link(v6: bool, tags: &[[u8; 4]]) -> Vec<u8> {
        let kind: [u8; 2] = if v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        [&ADDRESSES[..], &tags.concat(), &kind].concat()
    }

    fn frames(vnet: Vnet, mut frame: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        cut(vnet, &mut frame, &mut Vec::new(), &mut |frame| all.push(frame.to_vec())).map(|()| all)
    }

    #[test]
    fn joined_packets_become_frames_with_the_header_of_their_own_link() {
        let tags = [[0x81, 0x00, 0, 5], [0x88, 0xa8, 0, 9]];
        for (v6, udp, tags) in [(false, false, &tags[..0]), (true, false, &tags), (false, true, &tags[..1])] {
            let (packet, vnet) = super_packet(v6, udp, 3_500, 1_000);
            let link = link(v6, tags);
            let vnet = Vnet { csum_start: vnet.csum_start + link.len() as u16, ..vnet };
            let all = frames(vnet, [&link[..], &packet].concat()).expect("frames");
            assert_eq!(all.len(), 4);
            let mut data = Vec::new();
            for frame in &all {
                let (own, packet) = frame.split_at(link.len());
                assert_eq!(own, link);
                let view = Packet::parse(packet).expect("a packet");
                let inside = view.payload();
                assert_eq!(view.pseudo_header(inside.len()).add_bytes(inside).finish(), 0);
                data.extend_from_slice(if udp {
                    Udp::parse(&view).expect("a datagram").payload
                } else {
                    Tcp::parse(&view).expect("a segment").payload
                });
            }
            assert!(packet.ends_with(&data) && data.len() == 3_500);
        }
    }

    #[test]
    fn a_frame_alone_stays_as_it_is_but_for_its_checksum() {
        let arp = [&ADDRESSES[..], &[0x08, 0x06], &[7; 28]].concat();
        assert_eq!(frames(Vnet::default(), arp.clone()), Some(vec![arp]));
        let (mut packet, vnet) = super_packet(false, true, 100, 0);
        let link = link(false, &[]);
        let whole = SuperPacket::new(Vnet { gso_size: 100, ..vnet }, &mut packet).expect("a packet");
        let (mut open, mut closed) = (Vec::new(), Vec::new());
        assert!(whole.piece(0, &mut open) && whole.piece(0, &mut closed));
        // What the kernel leaves there is the sum of the pseudo-header.
        let pseudo = [&open[12..20], &[0, 17], &open[24..26]].concat();
        let sum = dormouse_wire::ip::checksum::Sum::default().add_bytes(&pseudo).fold();
        open[26..28].copy_from_slice(&sum.to_be_bytes());
        assert_ne!(open, closed);
        let vnet = Vnet { flags: Vnet::NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..Vnet::default() };
        let expected = [&link[..], &closed].concat();
        assert_eq!(frames(vnet, [&link[..], &open].concat()), Some(vec![expected]));
    }

    #[test]
    fn sctp_has_a_crc() {
        // The check value of CRC-32C, as catalogues of CRCs have it.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut frame = [&link(false, &[])[..], &[3; 20], b"12345678\xff\xff\xff\xff9"].concat();
        let vnet = Vnet { flags: Vnet::NEEDS_CSUM, csum_start: 34, csum_offset: 8, ..Vnet::default() };
        let all = frames(vnet, frame.clone());
        frame[42..46].copy_from_slice(&crc32c(b"12345678\0\0\0\x009").to_le_bytes());
        assert_eq!(all, Some(vec![frame]));
    }

    #[test]
    fn what_does_not_fit_is_no_frame() {
        let (packet, vnet) = super_packet(false, false, 3_500, 1_000);
        let frame = [&link(false, &[])[..], &packet].concat();
        let right = vnet.csum_start + 14;
        for csum_start in [0, 13, 14, right + 20, u16::MAX] {
            assert_eq!(frames(Vnet { csum_start, ..vnet }, frame.clone()), None, "{csum_start}");
        }
        for length in 0..60 {
            let vnet = Vnet { csum_start: right, ..vnet };
            assert_eq!(frames(vnet, frame[..length].to_vec()), None, "{length}");
            let alone = Vnet { flags: Vnet::NEEDS_CSUM, csum_start: 40, csum_offset: 19, ..Vnet::default() };
            assert_eq!(frames(alone, frame[..length].to_vec()), None, "{length}");
        }
        let arp = Vnet { csum_start: right, ..vnet };
        assert_eq!(frames(arp, [&ADDRESSES[..], &[0x08, 0x06], &packet].concat()), None);
    }
}
