//! What a gateway hears of the others with which it shares a store. Owns no state; see [`dormouse_ike::Endpoint::gone_elsewhere`].

use super::Node;
use crate::event::Order;
use crate::pool::Addresses;
use crate::tally::Held;
use dormouse_ike::takeover::{Given, Left};
use dormouse_ike::ticket::TicketKeys;
use dormouse_ike::ticket::lineage::{Name, Row};
use dormouse_keying::{Owner, SaId};
use dormouse_sansio::Instant;
use std::net::IpAddr;

impl Node {
    /// Gateway: another gateway has the client of this lineage now, or has ended its session. What there is of it here goes without a word:
    /// its SAs and its routes. What waited for its device follows it. True if there was anything.
    pub fn gone_elsewhere(&mut self, now: Instant, lineage: Name) -> bool {
        let asleep = |node: &Self| node.devices.as_ref().map_or(0, |d| d.absent_count());
        let before = asleep(self);
        self.send_after(now, lineage);
        self.with_devices(|d, around| d.gone_elsewhere(lineage, around));
        let sas = self.ike.gone_elsewhere(now, lineage);
        self.drain_ike(now);
        sas > 0 || asleep(self) < before
    }

    /// Gateway: see [`dormouse_ike::Endpoint::sessions_on_record`].
    pub fn sessions_on_record(&mut self, now: Instant) -> Vec<(Row, bool)> {
        let connections = &self.connections;
        let absent =
            self.devices.as_ref().map(|d| d.absent_on_record(now, |id| connections.name(id).to_owned()));
        self.ike.sessions_on_record(now, &absent.unwrap_or_default())
    }

    /// Gateway: see [`dormouse_ike::Endpoint::set_left`].
    pub fn set_left(&mut self, gateway: &str, left: Vec<Left>) {
        if !left.is_empty() {
            let sessions = left.len();
            tracing::info!(gateway, sessions, "IKE SAs of a gateway that is gone can be taken over");
        }
        self.ike.set_left(gateway, left);
    }

    /// Gateway: the IKE SA of this lineage, which another gateway has left, is ours from now on; or it is not given to us.
    pub fn given(&mut self, now: Instant, lineage: Name, given: Option<Given>) {
        match given {
            None => self.ike.not_given(lineage),
            Some(Given { owners, content }) => {
                if let Err(why) = self.ike.take_over(now, lineage, owners, content.as_bytes()) {
                    tracing::warn!(%why, "an IKE SA of another gateway is over: its client logs in again");
                }
                self.drain_ike(now);
            }
        }
    }

    /// Gateway: see [`dormouse_ike::Endpoint::leave_again`].
    pub fn leave_again(&mut self, now: Instant) {
        self.ike.leave_again(now);
        self.drain_ike(now);
    }

    /// Gateway: see [`dormouse_ike::Endpoint::too_many`].
    pub fn too_many(&mut self, now: Instant, lineage: Name) -> usize {
        let sas = self.ike.too_many(now, lineage);
        self.drain_ike(now);
        sas
    }

    /// Gateway: the ticket keys that gateways share, as the store has them now.
    pub fn set_ticket_keys(&mut self, keys: TicketKeys) {
        self.ike.set_ticket_keys(keys);
    }

    /// Gateway: see [`dormouse_ike::Endpoint::serve_nobody`].
    pub fn serve_nobody(&mut self, now: Instant, nobody: bool) {
        self.ike.serve_nobody(now, nobody);
        self.drain_ike(now);
    }

    /// The sessions of all who came to us, those that sleep among them.
    #[must_use]
    pub fn held_by_gateways(&self) -> Held {
        let theirs = self.sessions.all_held().filter(|(id, _)| self.connections.client(*id).is_none());
        theirs.fold(Held::default(), |sum, (_, held)| Held {
            sessions: sum.sessions + held.sessions,
            asleep: sum.asleep + held.asleep,
        })
    }

    /// Gateway: these addresses are another's: the sessions that have one of them end, and their clients may come back for others. Nothing leads to
    /// them from now on, also if their clients sleep or have not heard yet. Returns their number.
    pub fn end_sessions_at(&mut self, now: Instant, addresses: Addresses) -> usize {
        let meant: Vec<IpAddr> =
            addresses.v4.map(IpAddr::V4).into_iter().chain(addresses.v6.map(IpAddr::V6)).collect();
        let has = |owner: Owner| {
            let session = self.sessions.get(owner)?;
            let served = self.connections.client(session.connection).is_none();
            served.then(|| session.assigned.addresses()).filter(|a| a.iter().any(|a| meant.contains(a)))
        };
        let sas: Vec<SaId> =
            self.sessions.ike_sas().into_iter().filter(|sa| has(Owner::Ike(*sa)).is_some()).collect();
        self.with_devices(|devices, around| devices.lose_addresses(&meant, around));
        let mut gone = Vec::new();
        for sa in &sas {
            gone.extend(self.sessions.take_routes(Owner::Ike(*sa)));
            self.ike.lose_lease(now, *sa);
        }
        if !gone.is_empty() {
            self.order(Order::PeerGone { routes: gone });
        }
        self.drain_ike(now);
        sas.len()
    }
}
