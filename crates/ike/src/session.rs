//! What full authentication established. Owns these facts; must never judge them.

use dormouse_sansio::UnixTime;
use dormouse_wire::ike::{AuthMethod, Id};

use crate::credential::{Credential, Shown};
use crate::ticket::TicketContent;

/// What full authentication established, for as long as the session lives: through rekeyings and resumptions.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id_i: Id,
    pub(crate) id_r: Id,
    /// How the client authenticated.
    pub(crate) method: AuthMethod,
    /// When both last authenticated fully.
    pub(crate) authenticated: UnixTime,
    /// When the first of the certificates expires that the session rests on: the peer's, with its chain, and a client's own.
    /// `None`: no certificates. Of a user whom a RADIUS server knows: until when that one lets him be there.
    pub(crate) vouched_until: Option<UnixTime>,
    /// What admitted the peer: asked about again at each resumption, and when a list of revoked certificates comes. `None` at a client
    /// whose gateway has a pre-shared key.
    pub(crate) credential: Option<Credential>,
}

impl Session {
    /// Whether the client is a user without a certificate.
    pub(crate) fn is_users(&self) -> bool {
        matches!(self.credential.as_ref().map(|credential| &credential.shown), Some(Shown::Eap(_)))
    }

    pub(crate) fn of_ticket(ticket: &TicketContent) -> Self {
        Self {
            id_i: ticket.id_i.clone(),
            id_r: ticket.id_r.clone(),
            method: ticket.method,
            authenticated: ticket.authenticated,
            vouched_until: ticket.vouched_until,
            credential: Some(ticket.credential.clone()),
        }
    }
}
