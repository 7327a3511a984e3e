//! What a node has as a gateway beside its sessions. Owns nothing that a session has.

use crate::radius::Radius;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Some connection keeps some of its clients apart.
    pub(crate) isolating: bool,
    /// It ends all sessions, as the daemon stops.
    pub(crate) leaving: bool,
    /// The servers that are asked about users, and told of sessions.
    pub(crate) radius: Option<Radius>,
}
