//! IKE SAs that outlive their gateway (RFC 6311): what a gateway leaves behind of those whose peers let their message ids be set anew, and how
//! another one that has the same address by then goes on with them. Owns the form of what is left ([`content`]), which of it has been told
//! ([`keeping`]) and what others have left ([`orphans`]); the exchange is [`crate::sa::syncing`]'s. Must never speak to a store, nor use ESP keys of
//! another gateway: they are not even left.
//!
//! "The peer's capabilities with regard to this extension are part of the IKEv2 SA state, and thus MUST be shared between the cluster
//! members." (RFC 6311 section 5): nothing is left of an SA whose peer has not offered it.
//!
//! What is done about counters that the new owner cannot know:
//! - message ids are set anew by the exchange, far above what the former owner can have used;
//! - IVs of IKE messages have a space for each owner ([`crate::protect`]);
//! - CHILD SAs are replaced at once. Their keys are not left, so nothing is sent with one (no IV and no sequence number comes again), and nothing
//!   that comes is accepted (no replay window is needed). The peer drops the old ones when it is told.

pub(crate) mod content;
pub(crate) mod keeping;
pub(crate) mod orphans;

use core::net::IpAddr;

use dormouse_crypto::Secret;
use dormouse_sansio::UnixTime;

use self::keeping::Keeping;
use self::orphans::Orphans;
use crate::ticket::lineage::Name;

/// Of one endpoint: what it leaves, and what others have left.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    pub(crate) keeping: Keeping,
    pub(crate) orphans: Orphans,
}

/// What the store of several gateways is to do about an IKE SA that can be taken over, in the order of these events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Takeover {
    /// Keep this, instead of what was kept of the same lineage, unless another gateway has taken that over.
    Keep(Box<Record>),
    /// The SA is over.
    Forget(Name),
    /// Give this one to this gateway, if the one that has it is silent: [`crate::Endpoint::take_over`].
    Claim(Name),
}

/// What a gateway leaves behind of an IKE SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// By what it is found when its peer sends something.
    pub left: Left,
    /// How many gateways have had it before this one.
    pub owners: u16,
    /// When it ends in any case.
    pub ends: UnixTime,
    /// Keys and everything else: to be sealed before it leaves this machine.
    pub content: Secret,
}

/// By what an IKE SA is found that another gateway has left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// Its session.
    pub lineage: Name,
    /// The gateway's SPI of the IKE SA.
    pub spi: u64,
    /// The gateway's SPIs of its CHILD SAs.
    pub esp: Vec<u32>,
    /// The gateway's address: it must have come here.
    pub local: IpAddr,
}
