//! The ways to get a protected session back after a sleep, and what each costs a device. Owns their names; must never know a radio.

use core::fmt;
use core::str::FromStr;

/// The time of an exchange as the client sees it, by the number of clients that the gateway serves at once.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Latency {
    /// With one client, in seconds.
    pub alone: f64,
    /// For each further one, in seconds.
    pub per_client: f64,
}

impl Latency {
    /// With `load` clients at once; no client counts as one.
    #[must_use]
    pub fn at(&self, load: u32) -> f64 {
        self.alone + self.per_client * f64::from(load.saturating_sub(1))
    }
}

/// One way to get the protected session back.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Exchange {
    /// For closing and reopening (IPsec_C + IPsec_D), in joules.
    pub energy: f64,
    /// Time until packets flow (IPsec_t).
    pub time: Latency,
}

/// The exchanges that a device was measured with. A held SA needs none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exchanges {
    /// A complete IKEv2 handshake (RFC 7296).
    pub full: Exchange,
    /// Resumption with a ticket (RFC 5723; IPsec Gateway Failover, IGF, in the paper).
    pub ticket: Exchange,
    /// An address update (MOBIKE, RFC 4555).
    pub mobike: Exchange,
}

impl Exchanges {
    /// The exchange after a sleep within the gateway's liveness timeout, and after a longer one.
    #[must_use]
    pub fn of(&self, resumption: Resumption) -> (Exchange, Exchange) {
        let Self { full, ticket, mobike } = *self;
        match resumption {
            Resumption::HeldSa => (Exchange::default(), Exchange::default()),
            Resumption::Mobike => (mobike, mobike),
            Resumption::Ticket => (ticket, ticket),
            Resumption::Full => (full, full),
            Resumption::MobikeThenTicket => (mobike, ticket),
            Resumption::MobikeThenFull => (mobike, full),
        }
    }
}

/// How a session is resumed after a sleep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resumption {
    /// Same address, SA still there on both sides: no exchange at all.
    HeldSa,
    /// MOBIKE, with a gateway that never forgets a client.
    Mobike,
    /// A ticket, always.
    Ticket,
    /// A full IKEv2 handshake, always.
    Full,
    /// MOBIKE within the gateway's liveness timeout, a ticket after it.
    MobikeThenTicket,
    /// MOBIKE within the gateway's liveness timeout, full IKEv2 after it.
    MobikeThenFull,
}

impl Resumption {
    /// All of them, cheapest first for long sleeps.
    pub const ALL: [Self; 6] =
        [Self::HeldSa, Self::Mobike, Self::MobikeThenTicket, Self::Ticket, Self::MobikeThenFull, Self::Full];

    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HeldSa => "held",
            Self::Mobike => "mobike",
            Self::Ticket => "ticket",
            Self::Full => "ikev2",
            Self::MobikeThenTicket => "mobike+ticket",
            Self::MobikeThenFull => "mobike+ikev2",
        }
    }
}

impl fmt::Display for Resumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No such way to resume.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown resumption {found:?}, expected one of held, mobike, ticket, ikev2, mobike+ticket, mobike+ikev2"
)]
pub struct UnknownResumption {
    found: String,
}

impl FromStr for Resumption {
    type Err = UnknownResumption;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|r| r.name() == s).ok_or_else(|| UnknownResumption { found: s.to_owned() })
    }
}
