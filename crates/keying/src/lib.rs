//! What a key manager (IKE, HIP) and the data plane (ESP, the node) say to each other.
//!
//! Owns the names of SAs, the changes that a key manager orders ([`ChildSa`], and [`HeaderOrder`] at an access router), and the two interfaces between the sides:
//! [`SpiSource`], by which a key manager gets the SPIs that the data plane alone gives out, and [`KeyManager`], by which the
//! node drives a manager that it does not know. Must never keep state or decide anything.

mod manager;
mod name;
mod share;
mod sleep;
mod spi;
mod zone;

use core::net::IpAddr;

use dormouse_crypto::Secret;
use dormouse_crypto::suites::{Encr, Integ};
use dormouse_sansio::Path;
use dormouse_wire::ike::TsRange;

pub use manager::{Discard, Event, Failure, KeyManager};
pub use name::{ChildId, Owner, SaId};
pub use share::{Marks, Share, Weak};
pub use sleep::{Mark, SleepFlags, SleepVerdict, Sleeping};
pub use spi::SpiSource;
pub use zone::{
    GrantId, HeaderGrant, HeaderNews, HeaderOrder, HeaderSa, Nodes, OpenFirstZone, Opened, Reached, ZoneEnd,
    ZoneKeys, ZoneMap, Zones,
};

/// A change of the ESP side, ordered by a key manager. Changes are applied in the order in which they come.
#[derive(Debug)]
pub enum ChildSa {
    /// Install a pair of ESP SAs.
    Install(Box<Install>),
    /// All CHILD SAs of this owner are reached another way from now on: send to, and accept from, `path`.
    Remap {
        /// Whose children move.
        owner: Owner,
        /// The new path of ESP; its carrier says whether ESP is encapsulated.
        path: Path,
    },
    /// Remove the pair, which gives its SPI back.
    Remove {
        /// Whose it was.
        owner: Owner,
        /// The CHILD SA.
        child: ChildId,
    },
}

/// A pair of ESP SAs: what was agreed, and what this end's configuration says of it.
#[derive(Debug)]
pub struct Install {
    /// The SA of the key manager that it belongs to.
    pub owner: Owner,
    /// Its name, which is the SPI of what we receive: one that [`SpiSource::reserve`] gave.
    pub child: ChildId,
    /// SPI of what we send.
    pub spi_out: u32,
    /// Keying material of what we receive, in the order of RFC 7296 section 2.17.
    pub keymat_in: Secret,
    /// Keying material of what we send.
    pub keymat_out: Secret,
    /// The cipher.
    pub encr: Encr,
    /// The integrity algorithm; none with an AEAD.
    pub integ: Option<Integ>,
    /// Whether sequence numbers have 64 bits.
    pub esn: bool,
    /// Which part of a packet is carried.
    pub mode: Mode,
    /// Which keys protect which part of what is carried.
    pub protection: Protection,
    /// Inner packets are padded to a multiple of this many bytes (RFC 4303 section 2.7); 0: no more than the cipher needs, as always
    /// if the peer cannot strip it.
    pub pad_to: u16,
    /// Our side of the traffic.
    pub ts_local: Vec<TsRange>,
    /// The peer's side.
    pub ts_remote: Vec<TsRange>,
    /// In transport mode through a NAT: the addresses in the selectors as the peer knows them (RFC 7296 section 2.23.1). The
    /// checksums of what it sends are over those.
    pub original: Option<Original>,
    /// How ESP travels.
    pub path: Path,
    /// The CHILD SA that this one replaces. It receives until its own [`ChildSa::Remove`].
    pub replaces: Option<ChildId>,
    /// Whether the peer is known to have installed its half already. If not (we answered its rekeying and the answer
    /// may be lost, RFC 7296 section 2.8), keep sending on the replaced SA until something arrives on the new one or the
    /// old one is removed. Without a replaced SA: send nothing until the key manager says that the peer is there, or has been
    /// answered.
    pub send_now: bool,
    /// Replay window in packets.
    pub replay_window: u32,
    /// After so much in one direction a replacement is asked for.
    pub soft: SoftBounds,
    /// What it sends where others of this owner have the same selectors.
    pub share: Share,
}

/// How much one direction of a CHILD SA carries before a replacement is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SoftBounds {
    /// Packets; `u64::MAX`: as many as there are.
    pub packets: u64,
    /// Bytes of inner packets; `u64::MAX`: as many as there are.
    pub bytes: u64,
}

impl SoftBounds {
    /// Never.
    pub const NONE: Self = Self { packets: u64::MAX, bytes: u64::MAX };
}

/// Which part of a packet ESP carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// A whole IP packet (RFC 4301 section 4.1).
    #[default]
    Tunnel,
    /// What follows the IP header, between the outer addresses.
    Transport,
    /// What follows the IP header, between fixed inner addresses that are not carried (RFC 7402 appendix B).
    Beet(Beet),
}

/// The inner addresses of BEET mode, of one family: what a packet has before it is sealed and after it is opened, on any
/// outer path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beet {
    /// Ours.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

/// Which keys protect which part of what is carried.
#[derive(Clone, Debug, Default)]
pub enum Protection {
    /// One pair of keys protects all of it, from end to end.
    #[default]
    Whole,
    /// Each zone has keys of its own, so that a router in transit that holds the keys of one zone reads and changes no other
    /// (multi-layered IPsec). In tunnel mode alone.
    Zoned(Box<Zones>),
}

/// The two addresses between which the peer sends in transport mode, as the peer knows them: a NAT on the way makes them others
/// than ours, and the peer's checksums are over its own (RFC 7296 section 2.23.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Original {
    /// What the peer knows us by.
    pub local: IpAddr,
    /// What the peer has itself.
    pub remote: IpAddr,
}
