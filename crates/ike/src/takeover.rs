//! IKE SAs that outlive their gateway (RFC 6311): what a gateway leaves behind of those whose peers let their message ids be set anew, and how
//! another one that has the same address by then goes on with them. Owns the words of that; what is done is the endpoint's (`endpoint::takeover`),
//! and the exchange `sa::syncing`'s. Must never hold an ESP key: none is left.
//!
//! "The peer's capabilities with regard to this extension are part of the IKEv2 SA state, and thus MUST be shared between the cluster
//! members." (RFC 6311 section 5): nothing is left of an SA whose peer has not offered it.
//!
//! What is done about counters that the new owner cannot know:
//! - message ids are set anew by the exchange, far above what the former owner can have used;
//! - IVs of IKE messages have a space for each owner ([`crate::protect`]), and the IKE SA is rekeyed;
//! - CHILD SAs are replaced at once. Their keys are not left, so nothing is sent with one (no IV and no sequence number comes again), and nothing
//!   that comes is accepted (no replay window is needed). The peer drops the old ones when it hears of the new message ids.

use core::net::IpAddr;

use dormouse_crypto::Secret;
use dormouse_sansio::UnixTime;

use crate::ticket::lineage::Name;

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

/// An IKE SA that is this gateway's from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// How many gateways have had it before.
    pub owners: u16,
    /// What the last one has left.
    pub content: Secret,
}
