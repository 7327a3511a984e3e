//! A resumption that is under way: whether the owner of the ticket may use it today, which is asked at each step. Owns this decision; the
//! proofs are [`crate::handshake`]'s, and what makes a ticket count is [`crate::ticket::lineage`]'s.

use std::sync::Arc;

use dormouse_crypto::cert::Identity;
use dormouse_sansio::Instant;

use crate::callers::Begin;
use crate::config::{Connection, Resumption};
use crate::credential::Credential;
use crate::proposal::{self, IkeSuite};
use crate::shared::Shared;
use crate::ticket::lineage::Name;
use crate::ticket::{Form, TicketContent};

/// What a resumption rests on.
pub(crate) struct Claim<'a> {
    pub(crate) connection: &'a str,
    pub(crate) suite: &'a IkeSuite,
    pub(crate) form: Form,
    pub(crate) peer: &'a Identity,
    pub(crate) credential: &'a Credential,
    pub(crate) lineage: Name,
}

impl Claim<'_> {
    /// The connection that the owner of the ticket may use now, beside the sessions that it has. These, the configuration, denials and
    /// revocations may change between the steps of a resumption: it is asked when the ticket comes, when its owner has proved to be there, and when the store has answered.
    /// "when credentials associated with the IKE SA are invalidated (e.g., when a user logs out), the ticket MUST be deleted" (RFC
    /// 5723 section 6.2): a gateway that has changed its mind about them takes no ticket that rests on them.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn admitted(&self, shared: &Shared, now: Instant) -> Result<Arc<Connection>, String> {
        let mut known = shared.config.connections.iter();
        let conn = known.find(|c| {
            c.name == self.connection
                && c.resumption.mode != Resumption::Off
                && proposal::permits(&c.ike_proposals, self.suite)
        });
        let conn = conn.ok_or_else(|| format!("connection {} does not take it any more", self.connection))?;
        if self.form == Form::Plain && !conn.resumption.plain {
            return Err("resumption.plain is off".to_owned());
        }
        let admitted = shared.config.admission.admits(conn, self.peer, self.credential, shared.unix(now));
        let conn = admitted.map_err(|e| e.to_string())?;
        let room = shared.callers.room(&conn, self.peer, None, Some(self.lineage));
        let how = Begin::Resumption(self.lineage);
        room.and_then(|()| shared.callers.may_begin(&conn, self.peer, how, now))
            .map_err(|e| e.to_string())?;
        Ok(conn)
    }
}

impl Claim<'_> {
    /// The same, when the store has said that the ticket counts: the session begins.
    ///
    /// # Errors
    /// As [`Claim::admitted`].
    pub(crate) fn begins(&self, shared: &mut Shared, now: Instant) -> Result<Arc<Connection>, String> {
        let conn = self.admitted(shared, now)?;
        let how = Begin::Resumption(self.lineage);
        shared.callers.begin(&conn, self.peer, how, now).map_err(|e| e.to_string())?;
        Ok(conn)
    }
}

impl TicketContent {
    /// What it rests on.
    pub(crate) fn claim(&self) -> Claim<'_> {
        let Self { connection, suite, form, peer, credential, lineage, .. } = self;
        Claim { connection, suite, form: *form, peer, credential, lineage: *lineage }
    }
}
