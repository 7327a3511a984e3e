//! Messages of the kernel's IPsec (`linux/xfrm.h`) as bytes: what is asked, and what of the answers matters. Owns the layouts; never speaks to the
//! kernel. Where the structures have holes, these are zero.

use super::{Cipher, Counted, Direction, IF_ID, Policy, Replay, Sa, Seen, State};
use crate::netlink::MARK;
use dormouse_crypto::Secret;
use ipnet::IpNet;
use std::net::IpAddr;

pub(super) const NEWSA: u16 = 0x10;
pub(super) const DELSA: u16 = 0x11;
pub(super) const GETSA: u16 = 0x12;
pub(super) const NEWPOLICY: u16 = 0x13;
pub(super) const DELPOLICY: u16 = 0x14;
pub(super) const GETPOLICY: u16 = 0x15;

const ATTR_ENCAP: u16 = 4;
const ATTR_TMPL: u16 = 5;
const ATTR_SA: u16 = 6;
const ATTR_LASTUSED: u16 = 15;
const ATTR_ALG_AEAD: u16 = 18;
const ATTR_REPLAY_ESN: u16 = 23;
const ATTR_EXTRA_FLAGS: u16 = 24;
const ATTR_SET_MARK: u16 = 29;
const ATTR_IF_ID: u16 = 31;

const IPPROTO_ESP: u8 = 50;
const MODE_TUNNEL: u8 = 1;
/// Packets of either family inside, whatever the outer one is.
const FLAG_AF_UNSPEC: u8 = 32;
const FLAG_ESN: u8 = 128;
/// The outer header does not show the differentiated services of the inner one: as our own ESP does not.
const EXTRA_DONT_ENCAP_DSCP: u32 = 1;
const UDP_ENCAP_ESPINUDP: u16 = 2;
/// The kernel's bound on a window, in packets.
const WINDOW_MOST: u64 = 4_096;

/// `sizeof(struct xfrm_usersa_info)`.
const SA_INFO: usize = 224;
/// More than a whole message has.
const SA_ROOM: usize = 2_048;
/// `sizeof(struct xfrm_userpolicy_info)`.
const POLICY_INFO: usize = 168;
/// `sizeof(struct xfrm_selector)`.
const SELECTOR: usize = 56;

/// Bytes that grow, in the machine's byte order unless said otherwise.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    fn zeros(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// `xfrm_address_t`: 16 bytes, of which IPv4 fills the first four.
    fn address(&mut self, address: IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(a) => self.bytes(&a.octets()).zeros(12),
            IpAddr::V6(a) => self.bytes(&a.octets()),
        }
    }

    fn attribute(&mut self, kind: u16, content: &[u8]) -> &mut Self {
        let len = u16::try_from(4 + content.len()).unwrap_or(u16::MAX);
        self.u16(len).u16(kind).bytes(content);
        let pad = self.0.len().next_multiple_of(4) - self.0.len();
        self.zeros(pad)
    }

    /// `struct xfrm_id`.
    fn id(&mut self, destination: IpAddr, spi: u32) -> &mut Self {
        self.address(destination).bytes(&spi.to_be_bytes()).u8(IPPROTO_ESP).zeros(3)
    }

    /// `struct xfrm_lifetime_cfg`: no bound but one on packets.
    fn lifetime(&mut self, packets: u64) -> &mut Self {
        self.u64(u64::MAX).u64(u64::MAX).u64(u64::MAX).u64(packets).zeros(32)
    }

    /// `struct xfrm_selector`.
    fn selector(&mut self, source: IpNet, destination: IpNet) -> &mut Self {
        self.address(destination.network()).address(source.network()).zeros(8);
        self.u16(family(destination.addr())).u8(destination.prefix_len()).u8(source.prefix_len());
        self.u8(0).zeros(3).u32(0).u32(0)
    }
}

fn family(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => nix::libc::AF_INET as u16,
        IpAddr::V6(_) => nix::libc::AF_INET6 as u16,
    }
}

/// The content of [`NEWSA`].
pub(super) fn new_sa(sa: &Sa<'_>) -> Secret {
    // Room for all of it, so that no copy of a key is left behind.
    let mut out = Out(Vec::with_capacity(SA_ROOM));
    let outbound = sa.direction == Direction::Out;
    let flags = FLAG_AF_UNSPEC | if sa.esn { FLAG_ESN } else { 0 };
    // A state without a selector takes what a policy leads to it.
    out.zeros(SELECTOR).id(sa.destination, sa.spi).address(sa.source);
    out.lifetime(sa.packets).zeros(32 + 12).u32(0).u32(IF_ID);
    out.u16(family(sa.destination)).u8(MODE_TUNNEL).u8(0).u8(flags);
    let hole = SA_INFO - out.0.len();
    out.zeros(hole);
    let (name, icv_bits) = match sa.cipher {
        Cipher::AesGcm => ("rfc4106(gcm(aes))", 128),
        Cipher::ChaCha20Poly1305 => ("rfc7539esp(chacha20,poly1305)", 128),
    };
    let mut aead = Out(Vec::with_capacity(SA_ROOM));
    let bits = u32::try_from(sa.key.len() * 8).unwrap_or(0);
    aead.bytes(name.as_bytes()).zeros(64 - name.len()).u32(bits).u32(icv_bits).bytes(sa.key);
    let aead = Secret::from(aead.0);
    out.attribute(ATTR_ALG_AEAD, aead.as_bytes());
    out.attribute(ATTR_REPLAY_ESN, &replay(&sa.replay));
    if let Some((from, to)) = sa.udp {
        let mut encap = Out::default();
        encap.u16(UDP_ENCAP_ESPINUDP).bytes(&from.to_be_bytes()).bytes(&to.to_be_bytes()).zeros(2 + 16);
        out.attribute(ATTR_ENCAP, &encap.0);
    }
    if outbound {
        out.attribute(ATTR_SET_MARK, &MARK.to_ne_bytes());
        out.attribute(ATTR_EXTRA_FLAGS, &EXTRA_DONT_ENCAP_DSCP.to_ne_bytes());
    }
    out.attribute(ATTR_IF_ID, &IF_ID.to_ne_bytes());
    Secret::from(out.0)
}

/// `struct xfrm_replay_state_esn`. The kernel keeps number `n` as bit `(n - 1) mod window`; with a power of two that is so also behind 2^32 packets.
pub(super) fn replay(state: &Replay) -> Vec<u8> {
    let window = (state.seen.bits.len() as u64 * 64).clamp(32, WINDOW_MOST);
    let window = 1 << window.ilog2();
    let mut words = vec![0u32; (window / 32) as usize];
    for seq in state.seen.top.saturating_sub(window - 1).max(1)..=state.seen.top {
        let at = (seq - 1) % window;
        if let Some(word) = words.get_mut((at / 32) as usize).filter(|_| state.seen.has(seq)) {
            *word |= 1 << (at % 32);
        }
    }
    let mut out = Out::default();
    let [sent, top] = [state.sent, state.seen.top];
    out.u32(words.len() as u32).u32(sent as u32).u32(top as u32);
    out.u32((sent >> 32) as u32).u32((top >> 32) as u32).u32(window as u32);
    words.iter().for_each(|word| _ = out.u32(*word));
    out.0
}

/// The content of [`DELSA`] and [`GETSA`]: `struct xfrm_usersa_id`.
pub(super) fn sa_id(destination: IpAddr, spi: u32) -> Vec<u8> {
    let mut out = Out::default();
    out.address(destination).bytes(&spi.to_be_bytes()).u16(family(destination)).u8(IPPROTO_ESP).u8(0);
    out.0
}

/// The content of [`NEWPOLICY`].
pub(super) fn new_policy(policy: &Policy) -> Vec<u8> {
    let mut out = Out::default();
    // The narrower, the sooner.
    let priority = 1_000 - u32::from(policy.source.prefix_len()) - u32::from(policy.destination.prefix_len());
    out.selector(policy.source, policy.destination).lifetime(u64::MAX).zeros(32);
    out.u32(priority).u32(0).u8(policy.direction as u8).zeros(POLICY_INFO - 161);
    let (source, destination) = policy.outer;
    let mut template = Out::default();
    template.id(destination, policy.spi).u16(family(destination)).zeros(2).address(source);
    template.u32(IF_ID).u8(MODE_TUNNEL).u8(0).u8(0).zeros(1).u32(u32::MAX).u32(u32::MAX).u32(u32::MAX);
    out.attribute(ATTR_TMPL, &template.0).attribute(ATTR_IF_ID, &IF_ID.to_ne_bytes());
    out.0
}

/// The content of [`DELPOLICY`]: `struct xfrm_userpolicy_id`.
pub(super) fn policy_id(direction: u8, source: IpNet, destination: IpNet) -> Vec<u8> {
    let mut out = Out::default();
    out.selector(source, destination).u32(0).u8(direction).zeros(3);
    out.attribute(ATTR_IF_ID, &IF_ID.to_ne_bytes());
    out.0
}

// ---- answers ------------------------------------------------------------------------------------------------------------

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn address_at(bytes: &[u8], at: usize, family: u16) -> Option<IpAddr> {
    let bytes: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
    let [a, b, c, d, ..] = bytes;
    match i32::from(family) {
        nix::libc::AF_INET => Some(IpAddr::from([a, b, c, d])),
        nix::libc::AF_INET6 => Some(IpAddr::from(bytes)),
        _ => None,
    }
}

/// The attributes behind `start` bytes, as far as they are whole.
fn attributes(bytes: &[u8], start: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes.get(start..).unwrap_or_default();
    std::iter::from_fn(move || {
        let [a, b, c, d, ..] = *rest.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let content = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        // The two highest bits are flags.
        Some((u16::from_ne_bytes([c, d]) & 0x3fff, content))
    })
}

/// What an answer to [`GETSA`] (a [`NEWSA`]), or the notification of a [`DELSA`], says of a state; `None` if it is not whole.
pub(super) fn state(kind: u16, content: &[u8]) -> Option<State> {
    let (info, start) = match kind {
        NEWSA => (content.get(..SA_INFO)?, SA_INFO),
        // `struct xfrm_usersa_id` stands before the attributes.
        DELSA => (attributes(content, 24).find(|(kind, _)| *kind == ATTR_SA)?.1, 24),
        _ => return None,
    };
    let family = u16::from_ne_bytes(*info.get(212..)?.first_chunk()?);
    let mut state = State {
        spi: u32::from_be_bytes(*info.get(72..)?.first_chunk()?),
        destination: address_at(info, 56, family)?,
        source: address_at(info, 80, family)?,
        if_id: 0,
        counted: Counted { bytes: u64_at(info, 160)?, packets: u64_at(info, 168)? },
        replay: None,
        last_used: None,
    };
    for (kind, content) in attributes(content, start) {
        match kind {
            ATTR_IF_ID => state.if_id = u32_at(content, 0)?,
            ATTR_LASTUSED => state.last_used = u64_at(content, 0),
            ATTR_REPLAY_ESN => state.replay = Some(replay_of(content)?),
            _ => {}
        }
    }
    Some(state)
}

pub(super) fn replay_of(content: &[u8]) -> Option<Replay> {
    let [words, sent, top, sent_high, top_high, window] =
        [0, 4, 8, 12, 16, 20].map(|at| u32_at(content, at).map(u64::from));
    let (words, window) = (words?, window?);
    let [sent, top] = [(sent_high?, sent?), (top_high?, top?)].map(|(high, low)| high << 32 | low);
    let whole = content.len() as u64 >= 24 + words * 4;
    if !whole || window == 0 || window > words * 32 || !window.is_power_of_two() {
        return None;
    }
    let bit = |seq: u64| {
        let at = (seq - 1) % window;
        Some(u32_at(content, 24 + (at / 32) as usize * 4)? >> (at % 32) & 1 == 1)
    };
    let mut bits = vec![0; window.div_ceil(64) as usize];
    for age in 0..window {
        let taken = match top.checked_sub(age) {
            Some(seq) if seq > 0 => bit(seq)?,
            _ => true,
        };
        let word = bits.get_mut((age / 64) as usize)?;
        *word |= u64::from(taken) << (age % 64);
    }
    Some(Replay { sent, seen: Seen { top, bits } })
}

/// What an answer to [`GETPOLICY`] (a [`NEWPOLICY`]) says: the interface, the direction, and the two sides; `None` if it is not whole, or of no family.
pub(super) fn policy(content: &[u8]) -> Option<(u32, u8, IpNet, IpNet)> {
    let info = content.get(..POLICY_INFO)?;
    let family = u16::from_ne_bytes(*info.get(40..)?.first_chunk()?);
    let (destination, source) = (address_at(info, 0, family)?, address_at(info, 16, family)?);
    let destination = IpNet::new(destination, *info.get(42)?).ok()?;
    let source = IpNet::new(source, *info.get(43)?).ok()?;
    let if_id = attributes(content, POLICY_INFO).find(|(kind, _)| *kind == ATTR_IF_ID);
    Some((if_id.and_then(|(_, id)| u32_at(id, 0)).unwrap_or(0), *info.get(160)?, source, destination))
}
