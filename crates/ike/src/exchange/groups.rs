//! The group of a CREATE_CHILD_SA's key exchange, which the peer may want to be another one. Owns what was tried: no group is sent twice.

use dormouse_crypto::suites::Group;
use dormouse_wire::ike::{Notify, Proposal};

use crate::proposal;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Groups {
    asked: Option<Group>,
    tried: Vec<Group>,
}

impl Groups {
    /// The one to send a key of: what the peer has asked for, or else `ours`.
    pub(super) fn choose(&mut self, ours: Option<Group>) -> Option<Group> {
        let group = self.asked.or(ours);
        self.tried.extend(group);
        group
    }

    /// INVALID_KE_PAYLOAD.
    ///
    /// # Errors
    /// The group that the peer wants, if it is none that was `offered` and not tried yet.
    pub(super) fn retry(&mut self, error: &Notify, offered: &[Proposal]) -> Result<(), u16> {
        let wanted = <[u8; 2]>::try_from(error.data.as_slice()).map_or(0, u16::from_be_bytes);
        self.asked = proposal::retry_group(wanted, offered, &self.tried);
        self.asked.map(|_| ()).ok_or(wanted)
    }
}
