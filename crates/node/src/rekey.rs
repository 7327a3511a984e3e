//! New keys before they are due, on request. Owns whose SAs are meant; how keys are made, and when by themselves, is IKE's.

use crate::ladder::State;
use crate::node::Node;
use crate::removal::NotDone;
use dormouse_keying::{Owner, SaId};
use dormouse_sansio::Instant;

/// Which SAs of a session get new keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rekey {
    /// The IKE SA, then its CHILD SAs: the new keys of these come from its new ones (RFC 7296 section 2.17).
    All,
    /// The IKE SA alone.
    Ike,
    /// The CHILD SAs alone.
    Children,
}

impl Node {
    /// New keys for the session of a client connection; the exchanges are only begun. False, and nothing done, if it has none, or
    /// nothing can be sent on it now.
    pub fn rekey(&mut self, now: Instant, connection: &str, which: Rekey) -> bool {
        let client = self.connections.client_named(connection);
        let reached = client.filter(|c| self.sending.is_allowed() && c.ladder.state() != State::Offline);
        let Some(sa) = reached.and_then(|c| c.sa) else { return false };
        self.rekey_sa(now, sa, which);
        true
    }

    /// Gateway: new keys for every session of the peers of `connection` that `peer` means, as in [`Node::remove_peer`]; the
    /// exchanges are only begun.
    ///
    /// # Errors
    /// [`NotDone::Unknown`], [`NotDone::Away`].
    pub fn rekey_peer(
        &mut self,
        now: Instant,
        connection: &str,
        peer: &str,
        which: Rekey,
    ) -> Result<(), NotDone> {
        for sa in self.sas_called(connection, peer)? {
            self.rekey_sa(now, sa, which);
        }
        Ok(())
    }

    fn rekey_sa(&mut self, now: Instant, sa: SaId, which: Rekey) {
        if which != Rekey::Children {
            self.ike.rekey_ike(now, sa);
        }
        if which != Rekey::Ike {
            for child in self.sad.of(Owner::Ike(sa)) {
                self.ike.rekey_child(now, *child);
            }
        }
        self.drain_ike(now);
    }
}
