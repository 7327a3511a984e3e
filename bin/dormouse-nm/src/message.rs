//! What the parts of the plug-in tell the session. Owns the words between them, and nothing else.

use crate::profile::Profile;
use dormouse_control::{Error, EventKind};
use zeroize::Zeroizing;

/// A connection that is to come up.
pub(crate) struct Order {
    pub(crate) profile: Profile,
    pub(crate) password: Option<Zeroizing<String>>,
    /// The user can be asked.
    pub(crate) interactive: bool,
}

/// What the session learns.
pub(crate) enum Input {
    /// NetworkManager orders.
    Connect(Box<Order>),
    /// The user has answered, or not.
    Secrets(Option<Zeroizing<String>>),
    Disconnect,
    /// NetworkManager is gone.
    ManagerGone,
    /// The daemon takes orders.
    Ready,
    /// What it tells.
    Event(EventKind),
    /// The session is up, or could not come up.
    Came(Result<(), Error>),
    /// The daemon's process has ended.
    Ended(String),
}
