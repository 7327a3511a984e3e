//! What a foreign agent is configured with, and what it says. Owns these types alone.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use dormouse_wire::mobileip::Code;

use crate::AgentConfig;
use crate::association::Association;

/// What a foreign agent is.
#[derive(Clone, Debug)]
pub struct ForeignConfig {
    /// What every agent is; its address is the care-of address, its tunnels go to home agents.
    pub agent: AgentConfig,
    /// Home agents with which it shares an association.
    pub home_agents: BTreeMap<Ipv4Addr, Association>,
    /// Mobile hosts with which it shares one.
    pub mobiles: BTreeMap<Ipv4Addr, Association>,
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForeignEvent {
    /// A mobile host asks to be registered: its request has been relayed.
    Asked {
        /// The host.
        home: Ipv4Addr,
        /// Its home agent.
        home_agent: Ipv4Addr,
        /// The foreign agent that served it before, as it says itself.
        previous: Option<Ipv4Addr>,
    },
    /// It is registered.
    Visiting {
        /// The host.
        home: Ipv4Addr,
        /// For so many seconds.
        lifetime: u16,
    },
    /// It has moved on, and packets are sent after it for a while.
    MovedOn {
        /// The host.
        home: Ipv4Addr,
        /// Where to.
        care_of: Ipv4Addr,
    },
    /// It is served no longer.
    Gone {
        /// The host.
        home: Ipv4Addr,
    },
    /// A request was refused here.
    Refused {
        /// The host that it names.
        home: Ipv4Addr,
        /// Why.
        code: Code,
    },
}

/// What the access router beside a foreign agent, which may read headers, should know of mobile hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouterNews {
    /// The host has come, or is still here.
    Here {
        /// The host.
        home: Ipv4Addr,
        /// It only asks to be registered, and was with this agent before; otherwise it has been registered.
        previous: Option<Ipv4Addr>,
    },
    /// It has left.
    Gone {
        /// The host.
        home: Ipv4Addr,
    },
}

impl ForeignEvent {
    /// What follows from it for an access router beside the agent, if anything does.
    #[must_use]
    pub const fn for_router(&self) -> Option<RouterNews> {
        match *self {
            // The agent has found this host to be authentic: it says whom to ask, before its home agent has answered. Its request may be a repeated one: it counts
            // as registered when that has.
            Self::Asked { home, previous: Some(agent), .. } => {
                Some(RouterNews::Here { home, previous: Some(agent) })
            }
            Self::Visiting { home, .. } => Some(RouterNews::Here { home, previous: None }),
            Self::MovedOn { home, .. } | Self::Gone { home } => Some(RouterNews::Gone { home }),
            Self::Asked { previous: None, .. } | Self::Refused { .. } => None,
        }
    }
}

/// What a foreign agent has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForeignStats {
    /// Requests relayed.
    pub relayed: u64,
    /// Requests refused here.
    pub refused: u64,
    /// Messages that were not authentic.
    pub forged: u64,
    /// Packets handed to mobile hosts.
    pub delivered: u64,
    /// Packets tunnelled back.
    pub returned: u64,
    /// Packets sent after hosts that have moved on.
    pub sent_after: u64,
}
