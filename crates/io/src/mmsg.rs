//! Several packets in one system call (recvmmsg(2), sendmmsg(2)), for raw sockets, with the address at this end of each. Owns what the kernel reads and
//! writes beside the packets. It must hand out only what the kernel says that it has written.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;
use socket2::SockAddr;

/// Room for one address in ancillary data: a header of 16 bytes and 20 for IPv6.
const CONTROL: usize = 64;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// A packet that was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Its bytes, from the beginning of its place on. Those beyond the place are lost.
    pub(crate) len: usize,
    /// The address that it was sent to, if the kernel says.
    pub(crate) local: Option<IpAddr>,
    /// Who sent it.
    pub(crate) remote: Option<IpAddr>,
}

/// Sends what stands in `contents`, `segment` bytes in each packet but the last, and returns how many packets were taken: one at least. An unspecified
/// `source` lets the kernel choose.
///
/// # Errors
/// The kernel's, about the first packet.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    to: &SockAddr,
    source: IpAddr,
    contents: &[u8],
    segment: usize,
) -> io::Result<usize> {
    let mut control = Control([0; CONTROL]);
    let control_len = put_source(&mut control, source);
    let mut slices: Vec<_> =
        contents.chunks(segment).map(|packet| slice(packet.as_ptr(), packet.len())).collect();
    let mut headers: Vec<_> = slices
        .iter_mut()
        .map(|slice| {
            let mut header = header(slice, &mut control, control_len);
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.len();
            header
        })
        .collect();
    let count = u32::try_from(headers.len()).unwrap_or(u32::MAX);
    #[expect(unsafe_code, reason = "no safe wrapper sends addresses beside several packets")]
    // SAFETY: `headers` has `count` elements; what they point to (`contents`, `slices`, `control`, `to`) lives until the end of this function, and the kernel
    // only reads it.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives packets, one into every `each` bytes of `buf` at most.
///
/// # Errors
/// The kernel's; nothing was received then.
pub(crate) fn receive(socket: BorrowedFd<'_>, buf: &mut [u8], each: usize) -> io::Result<Vec<Taken>> {
    let places = buf.len() / each;
    let mut controls = vec![Control([0; CONTROL]); places];
    let mut names = vec![Control([0; CONTROL]); places];
    let mut slices: Vec<_> =
        buf.chunks_exact_mut(each).map(|chunk| slice(chunk.as_mut_ptr(), chunk.len())).collect();
    let mut headers: Vec<_> = slices
        .iter_mut()
        .zip(controls.iter_mut().zip(&mut names))
        .map(|(slice, (control, name))| {
            let mut header = header(slice, control, CONTROL);
            header.msg_hdr.msg_name = name.0.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = CONTROL as libc::socklen_t;
            header
        })
        .collect();
    let count = u32::try_from(headers.len()).unwrap_or(u32::MAX);
    #[expect(unsafe_code, reason = "no safe wrapper gives addresses beside several packets")]
    // SAFETY: `headers` has `count` elements; each points to a chunk of `buf`, an element of `controls` and one of `names`, no two to the same, with their true
    // lengths, and all of them live until the end of this function.
    let taken =
        unsafe { libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, 0, std::ptr::null_mut()) };
    let taken = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
    Ok(headers.iter().take(taken).zip(controls.iter().zip(&names)).map(read).collect())
}

fn read((header, (control, name)): (&libc::mmsghdr, (&Control, &Control))) -> Taken {
    let within = |len: usize, bytes: &[u8; CONTROL]| bytes.get(..len.min(CONTROL)).map(<[u8]>::to_vec);
    let name = within(header.msg_hdr.msg_namelen as usize, &name.0).unwrap_or_default();
    #[cfg_attr(target_env = "gnu", expect(clippy::unnecessary_cast, reason = "it is 32 bits wide in musl"))]
    let control = within(header.msg_hdr.msg_controllen as usize, &control.0).unwrap_or_default();
    Taken { len: header.msg_len as usize, local: destination(&control), remote: sender(&name) }
}

/// The address in a `sockaddr_in` or `sockaddr_in6`.
fn sender(name: &[u8]) -> Option<IpAddr> {
    let family = u16::from_ne_bytes(*name.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::from(*name.get(4..)?.first_chunk::<4>()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(*name.get(8..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// The address in the first control message that has one: `cmsghdr` (length as a word, level, type), then `in_pktinfo` or `in6_pktinfo`.
fn destination(mut control: &[u8]) -> Option<IpAddr> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    loop {
        let len = usize::from_ne_bytes(*control.first_chunk()?);
        let level = i32::from_ne_bytes(*control.get(size_of::<usize>()..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*control.get(size_of::<usize>() + 4..)?.first_chunk()?);
        let data = control.get(HEADER..len)?;
        match (level, kind) {
            // Where it was sent to comes last: before it the interface, and the address that is answered from.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                return Some(Ipv4Addr::from(*data.get(8..)?.first_chunk::<4>()?).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                return Some(Ipv6Addr::from(*data.first_chunk::<16>()?).into());
            }
            _ => control = control.get(len.next_multiple_of(size_of::<usize>())..)?,
        }
    }
}

/// Writes the control message that says where packets come from; its length, with the padding.
fn put_source(control: &mut Control, source: IpAddr) -> usize {
    let (level, kind, info): (i32, i32, Vec<u8>) = match source {
        IpAddr::V4(source) => {
            (libc::IPPROTO_IP, libc::IP_PKTINFO, [&[0; 4][..], &source.octets(), &[0; 4]].concat())
        }
        IpAddr::V6(source) => {
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, [&source.octets()[..], &[0; 4]].concat())
        }
    };
    let len = size_of::<libc::cmsghdr>() + info.len();
    let message = [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), &info].concat();
    for (to, from) in control.0.iter_mut().zip(message) {
        *to = from;
    }
    len.next_multiple_of(size_of::<usize>())
}

const fn slice(at: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast_mut().cast(), iov_len: len }
}

fn header(slice: &mut libc::iovec, control: &mut Control, control_len: usize) -> libc::mmsghdr {
    #[expect(unsafe_code, reason = "the structure has padding that some C libraries name")]
    // SAFETY: all zeroes is a value of this structure of integers and pointers.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_iov = slice;
    header.msg_hdr.msg_iovlen = 1;
    header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
    header.msg_hdr.msg_controllen = control_len as _;
    header
}
