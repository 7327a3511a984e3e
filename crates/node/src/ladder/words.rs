//! The vocabulary of the ladder: its rungs and their deadlines, states, orders and outcomes. Owns names only.

use dormouse_sansio::{Instant, Path};
use std::time::Duration;

/// One way of getting the session back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// The SA is still held at both ends and the address is the same: no exchange.
    Held,
    /// The SA moves to a new address (IKE: RFC 4555).
    #[serde(rename = "mobike")]
    Move,
    /// Keys of an earlier session bring it back (IKE: by ticket, RFC 5723).
    #[serde(rename = "ticket")]
    Resume,
    /// A full exchange.
    Full,
}

impl Rung {
    /// Name as shown to people: that of IKE, the one key manager with a ladder.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Move => "mobike",
            Self::Resume => "ticket",
            Self::Full => "full",
        }
    }
}

/// How long each rung is tried.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Data unanswered before the gateway is probed.
    pub held: Duration,
    /// A probe or an address update.
    pub probe: Duration,
    /// A resumption.
    pub resume: Duration,
    /// A full exchange.
    pub full: Duration,
    /// A sleep longer than this makes the gateway's SA doubtful from the start.
    pub gateway_holds: Duration,
}

/// What the ladder wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Move the held SA to this path, and have it confirmed.
    Update(Path),
    /// Ask the gateway whether it still holds the SA; give up after the time.
    Probe(Duration),
    /// Resume the last session over this path.
    Resume(Path),
    /// Start a full exchange over this path.
    Connect(Path),
    /// Forget the SA, or the attempt that runs, without telling the gateway.
    Abandon,
}

/// Why an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No answer in time.
    Timeout,
    /// The gateway does not take the ticket.
    TicketRefused,
    /// The gateway no longer has the SA.
    Lost,
    /// The gateway cannot say in time whether the ticket counts: it is kept, and shown again when the session is lost the next time.
    Undecided,
    /// Authentication, proposal or configuration: trying again at once cannot help.
    Refused,
    /// The gateway has no time now. The number spreads those that it has told so: of 256 parts of a pause.
    Busy(u8),
}

/// What the gateway said it would do with the SA during an announced sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granted {
    /// Hold it until then.
    Hold(Instant),
    /// Let it go to the ticket.
    Release,
}

/// What the ladder is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not wanted.
    Down,
    /// Wanted, but nothing can be sent: there is no network, or the node may not send.
    Offline,
    /// A rung is being tried.
    Climbing(Rung),
    /// A full exchange failed; the next one waits.
    Backoff,
    /// Established.
    Up,
}

/// How the session came back the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// When: two successes are never the same.
    pub at: Instant,
    /// The rung that succeeded.
    pub rung: Rung,
    /// From the wake, or the first attempt, to success.
    pub took: Duration,
}
