//! Asking whether certificates are revoked: what an endpoint's SAs need of [`crate::revocation`], and the events that ask for it. Owns
//! nothing; must never decide what a status means.

use dormouse_crypto::cert::{Identity, Issued};
use dormouse_keying::SaId;
use dormouse_sansio::Instant;

use super::Shared;
use crate::auth::Certified;
use crate::config::{Connection, RevocationMode};
use crate::credential::{Credential, Refusal};
use crate::event::Event;
use crate::revocation::{Judgement, Question, mode};
use crate::ticket::ClientTicket;

impl Shared {
    /// What the certificates of an authenticated peer mean to `connection`. `until`: when the handshake has waited long enough, if it has
    /// waited. `identities`: those that a denial of the peer may name.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        (connection, sa): (&Connection, SaId),
        (shown, identities): (&Certified, &[Identity]),
        until: Option<Instant>,
    ) -> Judgement {
        let asks = mode(connection) != RevocationMode::Off;
        let credential = Credential::certificates(shown, identities, asks);
        if !asks || credential.chain().is_empty() {
            return Judgement::Admitted(credential);
        }
        let (time, Certified { own, verified, .. }) = ((now, self.unix(now)), shown);
        let asked = self.config.admission.revocation.look_up(time, (connection, sa), (own, verified));
        self.ask(now);
        let revocation = &mut self.config.admission.revocation;
        revocation.judge(time, (connection, sa), credential, asked, until)
    }

    /// A session is resumed that rests on these certificates.
    pub(crate) fn rests_on(&mut self, now: Instant, connection: &Connection, chain: &[Issued]) {
        if mode(connection) != RevocationMode::Off {
            self.config.admission.revocation.touch(now, chain);
            self.ask(now);
        }
    }

    /// Whether what is known of revoked certificates lets the gateway of a ticket be believed today.
    pub(crate) fn believes(
        &mut self,
        now: Instant,
        ticket: &ClientTicket,
        conn: &Connection,
    ) -> Result<(), Refusal> {
        let Some(credential) = &ticket.credential else { return Ok(()) };
        self.rests_on(now, conn, credential.chain());
        self.config.admission.revocation.refuses(conn, credential, self.unix(now))
    }

    /// Asks every source that is due.
    pub(crate) fn ask(&mut self, now: Instant) {
        let time = (now, self.unix(now));
        for question in self.config.admission.revocation.ask(time, &mut self.entropy) {
            let Question { id, url, body, store } = question;
            self.events.extend(store.map(|(name, content)| Event::Revocations { name, content }));
            self.event(Event::Fetch { id, url, body });
        }
    }

    /// The lists and URLs that a connection is configured with.
    pub(crate) fn configure_revocation(&mut self, now: Instant, connection: &Connection) {
        let unix = self.unix(now);
        self.config.admission.revocation.configure(now, unix, connection);
    }
}
