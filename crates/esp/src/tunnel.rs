//! A pair of ESP SAs with one policy: a CHILD SA as the data plane has it. Owns how it is made of what a key manager ordered, how
//! a packet is carried in each mode, and whether it sends. Must never negotiate, nor end by itself.

use core::net::IpAddr;

use dormouse_crypto::{Encr, Error as CryptoError, Integ, Secret};
use dormouse_keying::{Beet, ChildId, Install, Mode, Original, Owner, Protection, Share, Zones};
use dormouse_sansio::packet::{Geometry, InnerPacket};
use dormouse_sansio::{Entropy, Instant, Path};
use dormouse_wire::ike::TsRange;
use dormouse_wire::ip::{self, Ecn, Flow, Ipv6};
use thiserror::Error;

use crate::beet::{self, PseudoHeader};
use crate::discard::Discard;
use crate::engine::{Engine, Keys};
use crate::inbound::Inbound;
use crate::lifetime::{Limits, Total, Volume};
use crate::outbound::Outbound;
use crate::params::SaParams;
use crate::pmtu::{Overhead, PathMtu};
use crate::selector::Selectors;
use crate::share::Turn;
use crate::transport::{self, Header, LastRebuilt};
use crate::zones::ZoneParams;
use crate::{IPV4_IN_IP, IPV6_IN_IP, ecn, pmtu};

/// Why a tunnel was not installed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum InstallError {
    /// Its SPI is that of another tunnel, which stays.
    #[error("SPI {:#010x} is in use", .0.spi())]
    SpiInUse(ChildId),
    /// Its zones cannot be protected as ordered.
    #[error(
        "{zones} zones with {keys} keys behind the first in {mode:?} mode: there must be a key for each, an AEAD with an ICV of 16 bytes in all \
         (here {fit} of them), and tunnel mode"
    )]
    Zones {
        /// How many zones.
        zones: usize,
        /// Keys for zones behind the first.
        keys: usize,
        /// Zones with a cipher that suits.
        fit: usize,
        /// The mode.
        mode: Mode,
    },
    /// In BEET mode, the selectors or the inner addresses are not one address of one family on each side.
    #[error("BEET mode between {} and {}: the selectors must be these addresses, of one family", .0.local, .0.remote)]
    Beet(Beet),
    /// Cipher, integrity algorithm and keying material do not fit each other.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// Whether a tunnel sends. Every tunnel receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It does not send yet: [`crate::Sad::activate`].
    Standby {
        /// The tunnel that sends until something arrives on this one, or until both ends have deleted it. `None`: nothing is sent
        /// until the key manager says so.
        replaces: Option<ChildId>,
    },
    /// It sends.
    Active,
    /// Its successor sends, until both ends have deleted it.
    Replaced,
    /// Both ends have deleted it. What its peer sent before may still arrive; it proves nothing about the peer of now.
    Draining {
        /// Then it ends.
        until: Instant,
    },
}

/// See the module's text.
#[derive(Debug)]
pub struct Tunnel {
    /// The SA of the key manager that it belongs to.
    pub owner: Owner,
    /// What we receive.
    pub inbound: Inbound,
    /// What we send.
    pub outbound: Outbound,
    /// The traffic that belongs to it.
    pub selectors: Selectors,
    /// In transport mode through a NAT: what the selectors' addresses are to the peer.
    pub original: Option<Original>,
    /// The cipher and the integrity algorithm, as negotiated.
    pub suite: (Encr, Option<Integ>),
    /// How its packets travel now.
    pub path: Path,
    /// What its packets grow by on that path.
    pub overhead: Overhead,
    /// What the path carries.
    pub pmtu: PathMtu,
    pub(crate) state: State,
    pub(crate) turn: Turn,
    pub(crate) engine: Engine,
    /// In BEET mode.
    last: Option<LastRebuilt>,
}

/// Whether a packet can be sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// So.
    Seal(Geometry),
    /// Its sender must be told to send smaller ones.
    TooBig,
    /// It cannot be carried in this mode ([`Tunnel::strip`]).
    Never,
}

/// TCP's maximum segment size, if this packet names one, is at most what a packet of `inner_mtu` bytes holds, in bytes.
pub fn clamp_mss(packet: &mut [u8], inner_mtu: usize) {
    ip::tcp::clamp_mss(packet, pmtu::mss_v4(inner_mtu), pmtu::mss_v6(inner_mtu));
}

/// What of a packet ESP carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripped {
    /// Bytes at its start that are left off.
    pub len: usize,
    /// ESP's next header.
    pub next_header: u8,
}

/// What is put before that which ESP carried.
#[derive(Clone, Copy, Debug)]
pub struct Rebuilt {
    /// The IP header that was not carried; `None` in tunnel mode.
    pub header: Option<Header>,
    /// Bytes at the start of what was carried that are not part of the packet.
    pub skip: usize,
    /// The packet's flow.
    pub flow: Flow,
}

/// The outer header of an ESP packet, as far as it matters inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// The peer's address.
    pub source: IpAddr,
    /// Ours.
    pub destination: IpAddr,
    /// Its congestion mark.
    pub ecn: Ecn,
}

impl Tunnel {
    /// The tunnel that a key manager orders, on standby.
    ///
    /// # Errors
    /// All of [`InstallError`] but [`InstallError::SpiInUse`].
    pub fn new(install: &Install, link_mtu: u16, entropy: &mut dyn Entropy) -> Result<Self, InstallError> {
        let (zones_in, zones_out) = check_zones(install)?.map(ZoneParams::pair).unzip();
        if let Mode::Beet(inner) = install.mode {
            let only =
                |list: &[TsRange], address| list.iter().all(|ts| ts.start == address && ts.end == address);
            let bound = only(&install.ts_local, inner.local) && only(&install.ts_remote, inner.remote);
            if !bound || inner.local.is_ipv4() != inner.remote.is_ipv4() {
                return Err(InstallError::Beet(inner));
            }
        }
        let soft = Volume { packets: install.soft.packets, bytes: install.soft.bytes };
        let params = |spi, keymat: &Secret, zones| SaParams {
            spi,
            encr: install.encr,
            integ: install.integ,
            keymat: keymat.clone(),
            esn: install.esn,
            mode: install.mode,
            replay_window: install.replay_window,
            pad_to: install.pad_to,
            limits: Limits { soft, hard: Volume::UNLIMITED },
            zones,
        };
        let zones = zones_in.as_ref().map_or(1, |zones| zones.map.zones());
        let mut tunnel = Self {
            owner: install.owner,
            inbound: Inbound::new(&params(install.child.spi(), &install.keymat_in, zones_in))?,
            outbound: Outbound::new(&params(install.spi_out, &install.keymat_out, zones_out), entropy)?,
            selectors: Selectors::new(install.ts_local.clone(), install.ts_remote.clone()),
            original: install.original,
            suite: (install.encr, install.integ),
            path: install.path,
            overhead: Overhead::new(install.encr, install.integ, install.mode, &install.path).zoned(zones),
            pmtu: PathMtu::new(&install.path, link_mtu),
            state: State::Standby { replaces: install.replaces },
            turn: Turn::new(install.share),
            engine: Engine::Ours,
            last: None,
        };
        tunnel.outbound.set_inner_mtu(tunnel.overhead.inner_mtu(link_mtu.into()));
        Ok(tunnel)
    }

    /// A tunnel of two halves whose keys come from elsewhere, on standby: for measurements under static keys.
    #[must_use]
    pub fn of_halves(
        owner: Owner,
        halves: (Inbound, Outbound),
        selectors: Selectors,
        overhead: Overhead,
        path: Path,
        link_mtu: u16,
    ) -> Self {
        Self {
            owner,
            inbound: halves.0,
            outbound: halves.1,
            selectors,
            original: None,
            suite: (Encr::Aes128Gcm16, None),
            path,
            overhead,
            pmtu: PathMtu::new(&path, link_mtu),
            state: State::Standby { replaces: None },
            turn: Turn::default(),
            engine: Engine::Ours,
            last: None,
        }
    }

    /// The same, whose keys are kept so that it can be lent ([`Self::lend`]).
    #[must_use]
    pub fn keeping_keys(self, install: &Install) -> Self {
        Self { engine: Engine::Here(Keys::new(&install.keymat_in, &install.keymat_out)), ..self }
    }

    /// The same with this share.
    #[must_use]
    pub fn sharing(self, share: Share) -> Self {
        Self { turn: Turn::new(share), ..self }
    }

    /// What it receives and sends is a part of these sums from now on, with what it has carried already.
    pub fn join(&mut self, received: &Total, sent: &Total) {
        self.inbound.join(received);
        self.outbound.join(sent);
    }

    /// What it sends where others of its owner have the same selectors: [`crate::Sad::among`].
    #[must_use]
    pub const fn share(&self) -> Share {
        self.turn.share()
    }

    /// Whether all on the way can read what it carries.
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        !self.suite.0.encrypts()
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> ChildId {
        ChildId::new(self.inbound.spi())
    }

    /// Which part of a packet is carried.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.inbound.mode()
    }

    /// Whether it sends.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The largest inner packet that fits its path, in bytes.
    #[must_use]
    pub fn inner_mtu(&self, now: Instant) -> usize {
        self.overhead.inner_mtu(self.pmtu.get(now).into())
    }

    /// Sends over another path from now on, behind a link of `link_mtu` bytes. Between the same addresses, what was learned of the path's MTU
    /// still counts.
    pub fn remap(&mut self, path: Path, link_mtu: u16) {
        let addresses = |path: &Path| (path.local.ip(), path.remote.ip());
        if addresses(&path) != addresses(&self.path) {
            self.pmtu = PathMtu::new(&path, link_mtu);
        }
        self.overhead = self.overhead.on(&path);
        self.path = path;
        self.outbound.set_inner_mtu(self.inner_mtu(Instant::ZERO));
    }

    /// What of an IP packet is carried. In BEET mode, IPv4 options are made into a pseudo header where they lie, over the
    /// addresses. `None` if it cannot be carried: a fragment where the IP header stays outside, but for one of IPv6 in BEET mode, whose
    /// fragment header is carried; IPv4 options in transport mode (they would have to move to the outer header); and what is no IP packet.
    #[must_use]
    pub fn strip(&self, packet: &mut [u8]) -> Option<Stripped> {
        if self.mode() == Mode::Tunnel {
            let next_header = if packet.first()? >> 4 == 6 { IPV6_IN_IP } else { IPV4_IN_IP };
            return Some(Stripped { len: 0, next_header });
        }
        let (len, next_header) = match self.mode() {
            // All that is behind the inner header is carried, so a fragment is too, as in tunnel mode (RFC 4303 section 3.3.4).
            Mode::Beet(_) if packet.first()? >> 4 == 6 => {
                (Ipv6::HEADER, Ipv6::parse(packet).ok()?.next_header())
            }
            _ => transport::header(packet)?,
        };
        match self.mode() {
            _ if len == 20 || packet.first()? >> 4 == 6 => Some(Stripped { len, next_header }),
            Mode::Beet(_) => {
                let len = beet::options_to_pseudo_header(packet, len)?;
                Some(Stripped { len, next_header: beet::PSEUDO_HEADER })
            }
            Mode::Tunnel | Mode::Transport => None,
        }
    }

    /// How a packet is to be sealed with this tunnel, where one of `inner_mtu` bytes fits. Clamps the MSS in place.
    pub fn plan<P: InnerPacket + ?Sized>(&self, packet: &mut P, inner_mtu: usize) -> Fit {
        clamp_mss(packet.bytes_mut(), inner_mtu);
        if !packet.fits(inner_mtu) {
            return Fit::TooBig;
        }
        let packet_len = packet.packet_len().min(inner_mtu);
        let mark = ecn::of_packet(packet.bytes()) as u8;
        let Some(stripped) = self.strip(packet.bytes_mut()) else { return Fit::Never };
        Fit::Seal(Geometry {
            route: self.id().spi(),
            head: self.outbound.head_len(),
            strip: stripped.len,
            max_inner: inner_mtu,
            stride: self.outbound.sealed_len(packet_len - stripped.len),
            packet_len,
            next_header: stripped.next_header,
            ecn: mark,
        })
    }

    /// Makes what this tunnel carried (`inner`, of this next header) the packet that it was before [`Self::strip`] at the other end:
    /// its IP header, its congestion mark, and its checksum if a NAT has changed the addresses. `flow` is what
    /// [`crate::Accepted`] says.
    ///
    /// Not carried, and so not restored: identification, DSCP and time to live of an inner header in transport and BEET mode. Its
    /// congestion mark is the outer one.
    ///
    /// # Errors
    /// Why the packet must be dropped and counted.
    pub fn rebuild(
        &mut self,
        next_header: u8,
        flow: Option<Flow>,
        inner: &mut [u8],
        outer: Outer,
    ) -> Result<Rebuilt, Discard> {
        let malformed = Discard::Inner { len: inner.len() };
        let (ends, pseudo) = match self.mode() {
            Mode::Tunnel => {
                let flow = flow.ok_or(malformed)?;
                if outer.ecn != Ecn::NotEct && !ecn::decapsulate(inner, outer.ecn) {
                    return Err(Discard::Congestion);
                }
                return Ok(Rebuilt { header: None, skip: 0, flow });
            }
            Mode::Transport => {
                let single =
                    |list: &[TsRange]| list.first().filter(|ts| ts.start == ts.end).map(|ts| ts.start);
                let (src, dst) = (single(self.selectors.remote()), single(self.selectors.local()));
                ((src.unwrap_or(outer.source), dst.unwrap_or(outer.destination)), None)
            }
            Mode::Beet(_)
                if let Some((header, flow)) =
                    self.last.and_then(|last| last.again(next_header, inner, outer.ecn)) =>
            {
                return Ok(Rebuilt { header: Some(header), skip: 0, flow });
            }
            Mode::Beet(at) if next_header == beet::PSEUDO_HEADER => {
                ((at.remote, at.local), Some(PseudoHeader::parse(inner).ok_or(malformed)?))
            }
            Mode::Beet(at) => ((at.remote, at.local), None),
        };
        let skip = pseudo.map_or(0, |p| p.len);
        let protocol = pseudo.map_or(next_header, |p| p.next_header);
        let options = pseudo.map_or(&[][..], |p| p.options);
        let header = Header::new(ends, protocol, options, inner.len() - skip, outer.ecn).ok_or(malformed)?;
        let payload = inner.get_mut(skip..).ok_or(malformed)?;
        let flow = ip::flow_behind(ends.0, ends.1, protocol, payload).ok_or(malformed)?;
        if !self.selectors.match_inbound(&flow) {
            return Err(Discard::Selectors);
        }
        if let Some(original) = self.original {
            transport::correct_checksum(payload, protocol, original, ends);
        }
        if matches!(self.mode(), Mode::Beet(_)) && skip == 0 && self.original.is_none() {
            self.last = LastRebuilt::new(next_header, payload, outer.ecn, header, flow);
        }
        Ok(Rebuilt { header: Some(header), skip, flow })
    }
}

/// The zones of an order, if it has any, and they can be protected.
fn check_zones(install: &Install) -> Result<Option<&Zones>, InstallError> {
    let Protection::Zoned(inner) = &install.protection else { return Ok(None) };
    let Zones { map, further } = &**inner;
    let ciphers = further.iter().map(|keys| keys.encr).chain([install.encr]);
    let fit = ciphers.filter(|encr| encr.suits_zones()).count();
    let (zones, keys, mode) = (map.zones(), further.len(), install.mode);
    let right = fit == zones && keys + 1 == zones && install.integ.is_none() && mode == Mode::Tunnel;
    if right { Ok(Some(inner)) } else { Err(InstallError::Zones { zones, keys, fit, mode }) }
}
