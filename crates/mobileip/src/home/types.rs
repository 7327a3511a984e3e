//! What a home agent is configured with, and what it says. Owns these types alone.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use dormouse_wire::mobileip::Code;
use ipnet::Ipv4Net;

use crate::AgentConfig;
use crate::association::{Association, Replay};

/// A mobile host of the home network.
#[derive(Clone, Debug)]
pub struct Member {
    /// What it shares with the home agent.
    pub association: Association,
    /// How its requests are known to be new.
    pub replay: Replay,
}

/// What a home agent is.
#[derive(Clone, Debug)]
pub struct HomeConfig {
    /// What every agent is; its address is in the home network, its tunnels go to care-of addresses.
    pub agent: AgentConfig,
    /// The home network.
    pub network: Ipv4Net,
    /// Its mobile hosts by their home addresses.
    pub members: BTreeMap<Ipv4Addr, Member>,
    /// Foreign agents with which it shares an association.
    pub foreign: BTreeMap<Ipv4Addr, Association>,
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HomeEvent {
    /// Packets for a host go there from now on.
    Bound {
        /// The host.
        home: Ipv4Addr,
        /// Where it is.
        care_of: Ipv4Addr,
        /// For so many seconds.
        lifetime: u16,
    },
    /// A host has no binding any more: it is at home, or has not renewed it.
    Unbound {
        /// The host.
        home: Ipv4Addr,
    },
    /// A request was refused.
    Refused {
        /// The host that it names.
        home: Ipv4Addr,
        /// Why.
        code: Code,
    },
}

/// What a home agent has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HomeStats {
    /// Requests that were accepted.
    pub accepted: u64,
    /// Requests that were refused with a reply.
    pub refused: u64,
    /// Messages that were not authentic.
    pub forged: u64,
    /// Packets sent to care-of addresses.
    pub tunnelled: u64,
    /// Packets taken out of tunnels.
    pub returned: u64,
}
