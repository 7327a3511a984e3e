//! The servers of one kind. Owns which of them answered last and which is asked next; must never hold a question.

use super::limits::REST;
use dormouse_crypto::Secret;
use dormouse_eap::radius::{Client, Discard};
use dormouse_sansio::Instant;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A server as it is configured.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Shared with it.
    pub secret: Secret,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.address)
    }
}

/// What is known of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Where it listens.
    pub address: SocketAddr,
    /// Requests that it answered.
    pub answered: u64,
    /// Requests that it did not, however often they were sent.
    pub unanswered: u64,
    /// Datagrams from there that were no answers.
    pub discarded: u64,
    /// When it last answered.
    pub last_answer: Option<Instant>,
    /// Until when it is asked last, and what was wrong.
    pub rests: Option<(Instant, String)>,
}

#[derive(Debug)]
struct Entry {
    server: Server,
    health: Health,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Servers(Vec<Entry>);

impl Servers {
    pub(super) fn new(servers: Vec<Server>) -> Self {
        let entry = |server: Server| {
            let health = Health {
                address: server.address,
                answered: 0,
                unanswered: 0,
                discarded: 0,
                last_answer: None,
                rests: None,
            };
            Entry { server, health }
        };
        Self(servers.into_iter().map(entry).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next to be asked of those that were not: the first that does not rest, or the one whose rest ends first.
    pub(super) fn choose(&self, now: Instant, tried: &[usize]) -> Option<usize> {
        let rest = |i: &usize| {
            self.0[*i].health.rests.as_ref().map(|(until, _)| *until).filter(|until| *until > now)
        };
        (0..self.0.len()).filter(|i| !tried.contains(i)).min_by_key(|i| (rest(i), *i))
    }

    pub(super) fn address(&self, which: usize) -> Option<SocketAddr> {
        self.0.get(which).map(|entry| entry.server.address)
    }

    /// What is said of the gateway to this server.
    pub(super) fn client(&self, which: usize, name: &str, address: IpAddr) -> Option<Arc<Client>> {
        let secret = self.0.get(which)?.server.secret.clone();
        Some(Arc::new(Client { secret, name: name.to_owned(), address }))
    }

    pub(super) fn answered(&mut self, now: Instant, which: usize) {
        let Some(Entry { health, .. }) = self.0.get_mut(which) else { return };
        health.answered += 1;
        health.last_answer = Some(now);
        if health.rests.take().is_some() {
            tracing::info!(server = %health.address, "the RADIUS server answers again");
        }
    }

    pub(super) fn discarded(&mut self, which: usize, why: Discard) {
        let Some(Entry { health, .. }) = self.0.get_mut(which) else { return };
        health.discarded += 1;
        tracing::debug!(server = %health.address, %why, "a datagram is no answer");
    }

    /// A request that was first sent at `since` was not answered. A server that has answered others meanwhile does not rest: what it drops is this one, which a
    /// stranger may have made for that.
    pub(super) fn failed(&mut self, now: Instant, since: Instant, which: usize, why: &str) {
        let Some(Entry { health, .. }) = self.0.get_mut(which) else { return };
        health.unanswered += 1;
        if health.last_answer.is_some_and(|last| last > since) {
            tracing::debug!(server = %health.address, why, "the RADIUS server answers others");
            return;
        }
        if health.rests.as_ref().is_none_or(|(until, _)| *until <= now) {
            tracing::warn!(server = %health.address, why, "the RADIUS server does not answer, and is asked last for a minute");
        }
        health.rests = Some((now + REST, why.to_owned()));
    }

    pub(super) fn health(&self) -> impl Iterator<Item = &Health> {
        self.0.iter().map(|entry| &entry.health)
    }
}
