//! A configuration that was read again, while associations are there. Owns what each change means for them; who may begin one is
//! [`Host::set_accept`]'s.

use core::time::Duration;
use std::collections::BTreeSet;

use dormouse_keying::{Owner, SaId};
use dormouse_sansio::Instant;
use dormouse_wire::hip::Hit;

use super::Host;
use crate::exchange::{alive, multihome, register};

impl Host {
    /// The rendezvous servers at which we register, and for how long, are others from now on. Registrations at those that are gone end by
    /// themselves; one that stays is asked anew if the time is another; an association with a new one begins anew, because it offers to
    /// register in that exchange alone.
    pub fn set_rendezvous(&mut self, now: Instant, servers: BTreeSet<Hit>, registration: Duration) {
        let lasts = core::mem::replace(&mut self.config.registration, registration) == registration;
        let before = core::mem::replace(&mut self.config.rendezvous, servers);
        self.tries.retain(|(_, server), _| self.config.rendezvous.contains(server));
        let ids: Vec<(SaId, Hit)> = self.associations.values().map(|a| (a.id, a.peer)).collect();
        for (id, peer) in ids {
            match (before.contains(&peer), self.config.rendezvous.contains(&peer)) {
                (false, true) => self.end(now, id, "to register at the peer"),
                (true, false) => {
                    self.on(now, Owner::Hip(id), |a, _| register::forget(a));
                }
                (true, true) if !lasts => {
                    self.on(now, Owner::Hip(id), register::ask_again);
                }
                _ => {}
            }
        }
        self.sort_again(None);
    }

    /// Whether peers are told from now on, in an exchange, that this host's radio may sleep.
    pub const fn set_may_sleep(&mut self, on: bool) {
        self.config.may_sleep = on;
    }

    /// Whether peers learn all our addresses from now on: those that know them are told.
    pub fn set_multihoming(&mut self, now: Instant, on: bool) {
        if core::mem::replace(&mut self.config.multihoming, on) != on {
            self.all(now, multihome::announce);
        }
    }

    /// After so long a peer is asked from now on whether it is there.
    pub fn set_liveness(&mut self, now: Instant, every: Option<Duration>) {
        if core::mem::replace(&mut self.config.liveness, every) != every {
            self.all(now, |association, around| alive::heard(association, around));
        }
    }
}
