//! What a mobile host is configured with, and what it says. Owns these types alone.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_sansio::Instant;
use dormouse_wire::mobileip::Code;

use crate::LinkAddress;
use crate::association::{Association, Replay};

/// What a mobile host is.
#[derive(Clone, Debug)]
pub struct MobileConfig {
    /// Its address, wherever it is.
    pub home: Ipv4Addr,
    /// Its home agent.
    pub home_agent: Ipv4Addr,
    /// What it shares with the home agent.
    pub association: Association,
    /// How the home agent knows that its requests are new.
    pub replay: Replay,
    /// Foreign agents with which it shares an association.
    pub foreign: BTreeMap<Ipv4Addr, Association>,
    /// For how many seconds it registers, at most.
    pub lifetime: u16,
    /// Whether its packets go back through a tunnel, so that they pass networks that look at source addresses (RFC 3024).
    pub reverse: bool,
    /// For how many seconds the foreign agent before shall send packets after it; 0: not at all. It needs an association with both.
    pub sent_after: u16,
    /// What the way to the home agent takes, in bytes, where the host is the end of its tunnel itself.
    pub width: u16,
}

/// An address of its own in the network where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoLocated {
    /// The address.
    pub address: Ipv4Addr,
    /// The router of that network.
    pub router: LinkAddress,
}

/// A registration that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Current {
    /// By which agent.
    pub agent: Ipv4Addr,
    /// The end of the tunnel; its home address at home.
    pub care_of: Ipv4Addr,
    /// Until when; `None`: without end.
    pub until: Option<Instant>,
    pub(super) link: LinkAddress,
    pub(super) renew: Option<Instant>,
    pub(super) id: u64,
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MobileEvent {
    /// A request was sent for the first time.
    Asked {
        /// By this agent.
        agent: Ipv4Addr,
        /// For this care-of address.
        care_of: Ipv4Addr,
    },
    /// The host is registered.
    Registered {
        /// By this agent.
        agent: Ipv4Addr,
        /// At this address; its home address at home.
        care_of: Ipv4Addr,
        /// For so many seconds.
        lifetime: u16,
        /// Since the first request of the series.
        took: Duration,
    },
    /// An agent refused.
    Refused {
        /// The agent that was asked.
        agent: Ipv4Addr,
        /// Why.
        code: Code,
    },
    /// The agent is out of reach, or the registration is over.
    Lost {
        /// The agent.
        agent: Ipv4Addr,
    },
}

/// What a mobile host has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MobileStats {
    /// Requests sent, repetitions included.
    pub asked: u64,
    /// Registrations that were accepted, renewals included.
    pub registered: u64,
    /// Refusals.
    pub refused: u64,
    /// Messages that were not authentic.
    pub forged: u64,
    /// Packets that it could not send, being registered nowhere.
    pub unsent: u64,
    /// Packets handed to its programs.
    pub received: u64,
}
