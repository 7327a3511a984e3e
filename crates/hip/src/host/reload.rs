//! A configuration that was read again, while associations are there. Owns what each change means for them.

use core::time::Duration;
use std::collections::BTreeSet;

use dormouse_keying::{Owner, SaId};
use dormouse_sansio::Instant;
use dormouse_wire::hip::Hit;

use super::{Host, Local};
use crate::config::{Accept, Keepalive};
use crate::exchange::{alive, keepalive, multihome, register};

impl Host {
    /// Who may begin an association, and who of them in version 1, is another from now on. What there is with others ends.
    pub fn set_accept(&mut self, now: Instant, accept: Accept, v1: Accept) {
        (self.config.accept, self.config.accept_v1) = (accept, v1);
        let out: Vec<SaId> =
            self.associations.values().filter(|a| !self.config.admits(a.peer)).map(|a| a.id).collect();
        out.into_iter().for_each(|id| self.close(now, id));
        self.sort_again(None);
        self.prepare();
    }

    /// Whether an I1 that names no receiver is answered from now on. Exchanges that are under way go on.
    pub const fn set_opportunistic(&mut self, on: bool) {
        self.config.opportunistic = on;
    }

    /// The identities by which someone may call have their R1 packets made ahead.
    pub(super) fn prepare(&mut self) {
        let Self { config, locals, .. } = self;
        let called = |l: &&mut Local| config.may_be_called(l.identity.public().suite().version());
        locals.iter_mut().filter(called).for_each(|local| local.pool.begin());
    }

    /// The rendezvous servers and the relays at which we register, and for how long, are others from now on. Registrations at those that are
    /// gone end by themselves; one that stays is asked anew if the time is another; an association with a new one begins anew, because it
    /// offers to register in that exchange alone.
    pub fn set_servers(
        &mut self,
        now: Instant,
        (rendezvous, relays): (BTreeSet<Hit>, BTreeSet<Hit>),
        registration: Duration,
    ) {
        let peers: Vec<(SaId, Hit)> = self.associations.values().map(|a| (a.id, a.peer)).collect();
        let before: Vec<&[u8]> =
            peers.iter().map(|(_, peer)| register::wanted(&self.config, *peer)).collect();
        let config = &mut self.config;
        (config.rendezvous, config.relays) = (rendezvous, relays);
        let lasts = core::mem::replace(&mut config.registration, registration) == registration;
        let tries = core::mem::take(&mut self.tries).into_iter();
        self.tries =
            tries.filter(|((_, server), _)| !register::wanted(&self.config, *server).is_empty()).collect();
        self.locals.iter_mut().for_each(|local| local.pool.sign_again());
        for ((id, peer), before) in peers.into_iter().zip(before) {
            match register::wanted(&self.config, peer) {
                wanted if wanted == before && (lasts || wanted.is_empty()) => {}
                wanted if wanted == before => drop(self.on(now, Owner::Hip(id), register::ask_again)),
                [] => drop(self.on(now, Owner::Hip(id), |a, around| register::forget(a, around))),
                _ => self.end(now, id, "to register at the peer"),
            }
        }
        self.sort_again(None);
    }

    /// Whether peers are told from now on, in an exchange, that this host's radio may sleep; there are other keep-alives then.
    pub fn set_may_sleep(&mut self, now: Instant, on: bool) {
        if core::mem::replace(&mut self.config.may_sleep, on) != on {
            self.all(now, |association, around| keepalive::begin(association, around));
        }
    }

    /// After how long without another packet NATs on the way are shown from now on that it is in use.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Keepalive) {
        if core::mem::replace(&mut self.config.keepalive, keepalive) != keepalive {
            self.all(now, |association, around| keepalive::begin(association, around));
        }
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
