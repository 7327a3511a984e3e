//! Sessions that go to another gateway (RFC 5685): a client's, whose gateway sends it there, and at a gateway those of its peers. Owns where a
//! client goes instead, how often it is sent, and the way back; whether it may go there at all is decided by IKE.
//!
//! "the client SHOULD be configured to not accept more than a certain number of redirects (MAX_REDIRECTS) within a short time period
//! (REDIRECT_LOOP_DETECT_PERIOD) for a particular IKEv2 SA setup. The default value for the MAX_REDIRECTS configuration variable is 5. The
//! default value for the REDIRECT_LOOP_DETECT_PERIOD configuration variable is 300 seconds." (RFC 5685 section 7)
//!
//! Without any configuration a client that logs in lets itself be sent to another address of its gateway's name, where it would go by itself if
//! this one were silent: who forges that answer could as well have dropped the question. If it is not taken there, it comes back, and does not say
//! for a while that it follows.
//!
//! A gateway that does not take the client sends it back to the one that is configured: only what is configured is tried for ever.
//! "Receiving a redirect notification MUST NOT result in the modification of any PAD or SPD entries." (RFC 5685 section 3)
//! "The redirect mechanism MUST NOT update any state on the client apart from the VPN gateway information." (RFC 5685 section 11)

use crate::client::{Client, Elsewhere};
use crate::event::{Event, Order};
use crate::ladder::{Failure, State};
use crate::node::Node;
use crate::removal::NotDone;
use crate::sessions::Session;
use dormouse_ike::ticket::lineage::Name;
use dormouse_ike::{Gateway, NegotiationError};
use dormouse_keying::{Owner, SaId};
use dormouse_sansio::Instant;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Of the peers that were to be sent away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Sessions that were told.
    pub told: usize,
    /// Those whose peers have not said that they follow.
    pub deaf: usize,
}

impl Client {
    /// The gateway sends it where it does not go, and only because it said that it goes to other addresses of the name. True: it does not say so when it
    /// tries again, and that is soon.
    pub(crate) fn declines(&mut self, now: Instant, error: &NegotiationError) -> bool {
        let away = matches!(error, NegotiationError::Redirected(_) | NegotiationError::RedirectRefused(_));
        let declines = away && self.config.ike.opening.redirects.is_empty();
        if declines {
            self.elsewhere.decline(now);
        }
        declines
    }
}

impl Node {
    /// The attempt of a client has ended in another gateway's name. `false`: it does not go there, as it was sent too often.
    pub(crate) fn attempt_redirected(&mut self, now: Instant, sa: SaId, to: &Gateway) -> bool {
        let Some(client) = self.connections.clients_mut().find(|c| c.attempt == Some(sa)) else {
            return false;
        };
        let from = client.ladder.gateway_address();
        if !client.elsewhere.admits(now) {
            return false;
        }
        let connection = client.config.name.clone();
        // The other addresses of the name stay at hand.
        if let Gateway::Address(address) = to
            && client.elsewhere.to.is_none()
            && client.ladder.send_on(now, *address)
        {
            tracing::info!(connection, %to, "sent to another address of the gateway's name");
            (client.attempt, client.elsewhere.sent_by) = (None, from);
            self.ike.set_redirected_from(&connection, from);
            return true;
        }
        let configured = client.config.ike.opening.redirects.iter().any(|target| target.means(to));
        if configured {
            client.attempt = None;
            self.go(now, &connection, from, Some(to.clone()));
        }
        configured
    }

    /// The gateway of a session sends it to another one.
    pub(crate) fn session_redirected(&mut self, now: Instant, sa: SaId, to: Gateway) {
        let Some(client) = self.client_of(Owner::Ike(sa)) else { return };
        let from = client.ladder.gateway_address();
        let connection = client.config.name.clone();
        if !client.elsewhere.admits(now) {
            return tracing::warn!(%connection, %to, "the gateway sends us on and on: the session stays where it is");
        }
        client.sa = None;
        // "[...] it SHOULD delete the existing security associations with the old gateway by sending an INFORMATIONAL message with a DELETE
        // payload." (RFC 5685 section 5): and its ticket with them.
        client.spend_ticket();
        self.ike.close(now, sa);
        self.go(now, &connection, from, Some(to));
    }

    /// The gateway of a session goes, and another one of its name takes the ticket.
    pub(crate) fn session_leaves(&mut self, now: Instant, sa: SaId, to: Option<IpAddr>) {
        let Some(client) = self.client_of(Owner::Ike(sa)) else { return };
        let connection = client.config.name.clone();
        if !client.elsewhere.admits(now) {
            return tracing::warn!(%connection, ?to, "the gateway sends us on and on: the session stays where it is");
        }
        if client.ladder.leave(now, to) {
            tracing::info!(%connection, ?to, "the gateway goes: with the ticket to another one of its name");
            self.climb(now);
        } else {
            tracing::info!(%connection, ?to, "the gateway goes, and no other address of its name is known to us");
        }
    }

    /// Gateway: sessions of clients that hear, in the order of their SAs.
    #[must_use]
    pub fn awake_clients(&self) -> Vec<SaId> {
        self.clients_that(Session::hears)
    }

    /// Gateway: of these lineages those whose clients are awake and have not been heard for `silent`.
    #[must_use]
    pub fn silent_clients(&self, now: Instant, of: &BTreeSet<Name>, silent: Duration) -> Vec<Name> {
        let is_silent = |s: &Session| s.contact.heard.is_none_or(|heard| heard + silent <= now);
        let awake = self.sessions.iter().map(|(_, s)| s).filter(|s| s.hears() && is_silent(s));
        awake.filter_map(|s| s.lineage).filter(|lineage| of.contains(lineage)).collect()
    }

    /// Gateway: sessions of clients whose devices sleep, in the order of their SAs.
    #[must_use]
    pub fn sleeping_clients(&self) -> Vec<SaId> {
        self.clients_that(Session::is_asleep)
    }

    /// Gateway: clients that come by ticket at this moment: their sessions are not confirmed, nor known to be no copies.
    #[must_use]
    pub fn coming_clients(&self) -> usize {
        self.clients_that(Session::is_tentative).len()
    }

    fn clients_that(&self, are: fn(&Session) -> bool) -> Vec<SaId> {
        let theirs =
            self.sessions.iter().filter(|(_, s)| are(s) && self.connections.client(s.connection).is_none());
        theirs.filter_map(|(owner, _)| owner.ike()).collect()
    }

    /// Gateway: sends one of [`Node::awake_clients`] to a gateway that shares its tickets. False if it does not go where it is sent.
    pub fn send_away(&mut self, now: Instant, sa: SaId, to: &Gateway) -> bool {
        let told = self.ike.send_away(now, sa, to);
        let lineage = self.sessions.get(Owner::Ike(sa)).and_then(|session| session.lineage);
        if let (true, Some(devices), Some(lineage)) = (told, &mut self.devices, lineage) {
            devices.goes(lineage);
        }
        self.drain_ike(now);
        told
    }

    /// What a client was sent to does not take it, or cannot be found: its own gateway is tried again. `false`: it was not sent.
    pub(crate) fn come_back(&mut self, now: Instant, connection: &str) -> bool {
        let sent = |c: &&mut Client| c.elsewhere.to.is_some() || c.elsewhere.sent_by.is_some();
        let Some(client) = self.connections.client_named_mut(connection).filter(sent) else { return false };
        if let Some(from) = client.elsewhere.sent_by {
            tracing::info!(
                connection,
                gateway = %from,
                "the address that we were sent to does not take us: back to where we were, to stay"
            );
            client.elsewhere.decline(now);
            let _unknown = client.ladder.turn_to(from);
            self.ike.set_redirected_from(connection, None);
            return true;
        }
        let gateway = client.gateway().unwrap_or_default();
        tracing::info!(
            connection,
            gateway,
            "the gateway that we were sent to does not take us: back to our own"
        );
        self.go(now, connection, None, None);
        true
    }

    /// Names look-ups that came to nothing: of those that lead a client elsewhere.
    pub(crate) fn elsewhere_is_unknown(&mut self, now: Instant, name: &str) {
        let sent = |c: &&Client| c.elsewhere.to.as_ref().is_some_and(|to| to.to_string() == name);
        let sent = self.connections.clients().filter(sent);
        let names: Vec<String> = sent.map(|c| c.config.name.clone()).collect();
        for connection in names {
            self.come_back(now, &connection);
        }
    }

    /// Its gateway is another one from now on. The ladder begins again as soon as the way there is known.
    fn go(&mut self, now: Instant, connection: &str, from: Option<IpAddr>, to: Option<Gateway>) {
        let may_send = self.sending.is_allowed();
        let Some(client) = self.connections.client_named_mut(connection) else { return };
        if let Some(to) = &to {
            tracing::info!(connection, %to, "sent to another gateway");
        }
        client.elsewhere.to = to;
        client.ladder.set_home(BTreeSet::new());
        client.ladder.network(now, None, may_send);
        client.ladder.others(Vec::new());
        client.ladder.failed(now, Failure::Lost);
        let wanted = client.ladder.state() != State::Down;
        self.ike.set_redirected_from(connection, from);
        if wanted {
            self.push(Event::NameNeeded { connection: connection.to_owned() });
            self.order(Order::FindWays { fresh: false });
        }
    }

    /// The connection is taken down: it begins at its own gateway, and as if it had not been sent anywhere.
    pub(crate) fn forget_redirect(&mut self, connection: &str) {
        if let Some(client) = self.connections.client_named_mut(connection) {
            client.elsewhere = Elsewhere::default();
            client.ladder.set_home(BTreeSet::new());
        }
        self.ike.set_redirected_from(connection, None);
    }

    /// Gateway: sends the peers of `connection` to another gateway: those that `peer` means, as in [`Node::remove_peer`], or all that hear. Those
    /// that follow end their sessions here by themselves.
    ///
    /// # Errors
    /// [`NotDone::Unknown`], [`NotDone::Away`], of one peer.
    pub fn redirect(
        &mut self,
        now: Instant,
        connection: &str,
        peer: Option<&str>,
        to: &Gateway,
    ) -> Result<Sent, NotDone> {
        let sas = match peer {
            Some(peer) => self.sas_called(connection, peer)?,
            None => {
                let id = self.connections.id(connection);
                let theirs = self.sessions.iter().filter(|(_, s)| Some(s.connection) == id && s.hears());
                theirs.filter_map(|(owner, _)| owner.ike()).collect()
            }
        };
        let mut sent = Sent::default();
        for sa in sas {
            match self.ike.redirect(now, sa, to) {
                true => sent.told += 1,
                false => sent.deaf += 1,
            }
        }
        self.drain_ike(now);
        Ok(sent)
    }
}
