//! The configuration is read again while sessions run. Owns what becomes of connections that are new, gone or changed; who is admitted by
//! them is decided by IKE ([`dormouse_ike::Endpoint::reconfigure`]). Sessions that still are what the configuration wants are not touched:
//! addresses, SAs, devices that sleep and what waits for them.

use crate::client::Client;
use crate::config::Resolved;
use crate::config::file::Role;
use crate::connections::{Connection, ConnectionId};
use crate::event::{Event, Order};
use crate::ladder::State;
use crate::node::Node;
use dormouse_crypto::cert::Identity;
use dormouse_ike::admission::Credential;
use dormouse_keying::Owner;
use dormouse_sansio::Instant;
use std::collections::BTreeSet;

impl Node {
    /// `connections` are all that there are from now on; none may have changed its role. Client connections that are gone are taken down,
    /// as by [`Node::down`]; those in `anew` too, and those whose session rests on a pre-shared key or an authority that their files hold no longer; they come up
    /// again if they were wanted. Others go on with the session that they have.
    /// Clients of a gateway stay if today's configuration admits them and gives them what they have.
    pub fn reconfigure(&mut self, now: Instant, connections: &[Resolved], anew: &BTreeSet<String>) {
        self.served.isolating = connections.iter().any(Resolved::isolates);
        self.hold_packets = Resolved::most_held(connections);
        let beside = self.manager.as_ref().map(|(id, _)| *id);
        let gone = |c: &Connection| connections.iter().all(|r| r.name != c.name);
        let known = self.connections.iter().filter(|(id, c)| gone(c) && Some(*id) != beside);
        let gone: Vec<(ConnectionId, String)> = known.map(|(id, c)| (id, c.name.clone())).collect();
        for (id, name) in gone {
            self.take_down(now, &name, "the configuration does not have it any more");
            self.connections.remove(id);
        }
        let mut answering = Vec::new();
        let mut calling = Vec::new();
        for config in connections {
            match config.role {
                Role::Gateway => answering.push(config.ike.clone()),
                Role::Client => calling.push(config.ike.clone()),
                Role::Hip => {}
            }
            match self.connections.id(&config.name) {
                None => {
                    let client = (config.role == Role::Client).then(|| Client::new(config.clone()));
                    self.connections.add(config.name.clone(), client);
                }
                Some(_) if config.role == Role::Client => self.change_client(now, config, anew),
                Some(_) => {}
            }
        }
        self.router = crate::config::router(connections);
        self.appoint_router();
        self.ike.reconfigure(now, answering, &calling);
        self.note_links();
        self.drain_ike(now);
        self.isolate_anew();
        self.dismiss_strangers();
        self.climb(now);
    }

    fn change_client(&mut self, now: Instant, config: &Resolved, anew: &BTreeSet<String>) {
        let Some(client) = self.connections.client_named(&config.name) else { return };
        let wanted = client.is_wanted();
        let mut sas = client.sa.into_iter().chain(client.attempt);
        let restart = anew.contains(&config.name)
            || !config.ike.has_secrets_of(&client.config.ike)
            || !sas.all(|sa| self.ike.would_believe(sa, &config.ike));
        if restart {
            self.take_down(now, &config.name, "the configuration of the connection has changed");
        }
        let Some(client) = self.connections.client_named_mut(&config.name) else { return };
        if restart {
            *client = Client::new(config.clone());
        } else {
            client.config = config.clone();
            if client.ladder.state() == State::Backoff {
                // What it was refused for may have been mended.
                client.ladder.down();
                client.ladder.up(now, self.sending.is_allowed());
            }
        }
        if restart && wanted {
            client.ladder.up(now, self.sending.is_allowed());
            self.push(Event::NameNeeded { connection: config.name.clone() });
            self.order(Order::FindWays { fresh: false });
        }
    }

    /// Whether clients of a gateway reach each other follows the configuration of now.
    fn isolate_anew(&mut self) {
        for (owner, session) in self.sessions.iter_mut() {
            let Owner::Ike(sa) = owner else { continue };
            if self.connections.client(session.connection).is_none() {
                session.isolate = self.ike.isolates(sa);
                self.devices.iter_mut().for_each(|devices| devices.isolate(session));
            }
        }
    }

    /// Nothing is done any more for devices that sleep without a session and whose peer the configuration no longer takes.
    fn dismiss_strangers(&mut self) {
        let with_session: BTreeSet<_> =
            self.sessions.iter().map(|(_, s)| (s.connection, (*s.who).clone())).collect();
        let (ike, connections) = (&self.ike, &self.connections);
        // Whom the key manager beside IKE takes is not known here.
        let beside = self.manager.as_ref().map(|(id, _)| *id);
        let Some(devices) = &mut self.devices else { return };
        let mut around = crate::devices::Around { sessions: &mut self.sessions, events: &mut self.events };
        let stranger = |c: ConnectionId, who: &crate::sessions::Who, _: Option<&Credential>| {
            let known = Identity::from_ike(who.identity.0, &who.identity.1)
                .is_ok_and(|identity| ike.knows(connections.name(c), &identity));
            !known && Some(c) != beside && !with_session.contains(&(c, who.clone()))
        };
        devices.dismiss(stranger, &mut around);
        self.pin_leases();
    }
}
