//! The rungs of the wake-up ladder, as status and events name them. Owns the words; must never say which is tried.

use serde::{Deserialize, Serialize};

/// One way of getting a session back, cheapest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeRung {
    /// The SA was still held at both ends: no exchange.
    Held,
    /// The SA moved to a new address (MOBIKE).
    Mobike,
    /// Resumption by ticket.
    Ticket,
    /// A full exchange.
    Full,
}

impl WakeRung {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Mobike => "mobike",
            Self::Ticket => "ticket",
            Self::Full => "full",
        }
    }
}
