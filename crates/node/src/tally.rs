//! What a node has counted since it began, by reason; and what it holds and has carried for each connection. Owns numbers that are kept as
//! things happen, so that to read them takes no longer with a hundred thousand sessions than with one; must never influence the protocol.

use dormouse_esp::{Counters as Volume, Total};
use dormouse_ike::NegotiationError;
use std::collections::BTreeMap;

/// What the node has counted since it began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// NAT keepalives received.
    pub keepalives_in: u64,
    /// ESP packets dropped, by reason: [`dormouse_esp::Discard::name`].
    pub esp_discards: BTreeMap<&'static str, u64>,
    /// Datagrams that were neither IKE nor ESP.
    pub malformed: u64,
    /// Gateway: initiators that were refused, by reason; the words of [`refusal`].
    pub refused: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// ESP packets dropped, for any reason.
    #[must_use]
    pub fn esp_discards(&self) -> u64 {
        self.esp_discards.values().sum()
    }

    /// ESP packets dropped because no SA has their SPI.
    #[must_use]
    pub fn unknown_spi(&self) -> u64 {
        self.esp_discards.get("unknown_spi").copied().unwrap_or(0)
    }
}

/// Sessions of one connection that are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Those that are established and known to be wanted.
    pub sessions: usize,
    /// Of these, those whose device has announced that it sleeps.
    pub asleep: usize,
}

/// What the tunnels of one connection have carried since the node began, those that are gone included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) received: Total,
    pub(crate) sent: Total,
}

/// A connection in numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionTally {
    /// Its name in the configuration.
    pub connection: String,
    /// Its sessions.
    pub held: Held,
    /// What came through its tunnels.
    pub received: Volume,
    /// What went through them.
    pub sent: Volume,
}

/// Why an initiator was refused, in a word that is stable.
#[must_use]
pub const fn refusal(error: &NegotiationError) -> &'static str {
    use NegotiationError as E;
    match error {
        E::Authentication(_)
        | E::WrongIdentity { .. }
        | E::RefusedByPeer { .. }
        | E::CannotSign(_)
        | E::Ppk(_) => "authentication",
        E::Eap(_) | E::NoEap { .. } => "eap",
        E::NotAdmitted(_) | E::UserRefused(_) | E::NoConnection { .. } => "not_admitted",
        E::NoProposalChosen { .. }
        | E::ProposalsRefused { .. }
        | E::WrongProposal { .. }
        | E::KeyExchangeGroup { .. } => "proposal",
        E::TrafficSelectors { .. } | E::WrongSelectors(_) => "traffic_selectors",
        E::Addresses(_) | E::AddressHeld(_) => "address",
        E::TicketRejected(_)
        | E::TicketRefused
        | E::TicketExpired
        | E::TicketOutdated
        | E::TicketUntrusted(_)
        | E::TicketSuperseded => "ticket",
        E::Timeout { .. } => "timeout",
        E::Busy => "busy",
        _ => "other",
    }
}
