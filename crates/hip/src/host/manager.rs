//! A host as its node drives it. Owns which of its parts a verb is for.

use core::net::IpAddr;
use core::time::Duration;

use dormouse_keying::{ChildId, Discard, Event, KeyManager, Owner, SaId};
use dormouse_sansio::{Carrier, Deadline, Instant, Path, Transmit};
use dormouse_wire::hip::{Header, Hit, Packet, PacketType};
use dormouse_wire::sleep::Sleeping;

use super::{Host, relay};
use crate::association::{Association, Stage};
use crate::exchange::{Fate, alive, handle_timeout, initiate, locate, multihome, rekey, sleep};
use crate::limits::FIRST_RETRY;
use crate::outbox::MARKER;

/// R1 packets are made ahead when there is nothing else to do.
const AHEAD: Duration = Duration::from_secs(10);

impl KeyManager for Host {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &mut [u8]) -> Result<(), Discard> {
        self.receive(now, path, datagram).inspect_err(|_| self.stats.dropped += 1)
    }

    fn knows(&self, path: Path, datagram: &[u8]) -> bool {
        let marker = if path.carrier == Carrier::HipUdp { MARKER.len() } else { 0 };
        let kind = datagram.get(marker..).and_then(Header::kind_of);
        !matches!(kind, None | Some(PacketType::I1 | PacketType::I2))
    }

    fn handle_timeout(&mut self, now: Instant) {
        // An association whose new deadline is due as well, a puzzle, waits for the next call: so each call ends.
        let due: Vec<SaId> = self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        for id in due {
            self.change(now, id, |association, around| Ok(handle_timeout(association, around)))
                .unwrap_or_default();
        }
        self.register(now);
        self.end_unused(now);
        for local in 0..self.locals.len() {
            self.with(now, local, |pool, _, around| {
                pool.make_ahead(around);
                Some(())
            });
        }
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let Self { outbox, associations, by_tags, config, .. } = self;
        outbox.pop(out, |packet, path, to| {
            // Each identity of ours is a client of its own.
            let ours = Packet::parse(packet).ok()?.header.sender;
            config.relays.iter().find_map(|relay| {
                relay::to_be_relayed(associations.get(by_tags.get(&(ours, *relay))?)?, packet, path, to)
            })
        })
    }

    fn pass_on(&mut self, now: Instant, path: Path, datagram: &[u8]) -> bool {
        self.pass_data(now, path, datagram)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let association = self.timers.first().and_then(|(_, id)| self.associations.get(id)?.deadline());
        self.others()
            .chain(self.unused().next())
            .fold(association, |first, next| Deadline::earlier(first, Some(next)))
    }

    fn timers(&self) -> Vec<Deadline> {
        let of_associations = self.associations.values().flat_map(Association::timers).flatten();
        of_associations.chain(self.others()).chain(self.unused()).collect()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn rekey_child(&mut self, now: Instant, child: ChildId) {
        let of = |a: &&Association| matches!(&a.stage, Stage::Up(s) if s.esp.child == child);
        let Some(id) = self.associations.values().find(of).map(|a| a.id) else { return };
        self.change(now, id, |association, around| Ok(rekey::begin(association, around))).unwrap_or_default();
    }

    fn want_tunnel(&mut self, now: Instant, (from, to): (IpAddr, IpAddr), send: bool) -> bool {
        match to {
            IpAddr::V6(address) if send => self.want(now, from, Hit(address)),
            IpAddr::V6(address) => self.peers.has(Hit(address)),
            IpAddr::V4(_) => false,
        }
    }

    fn observed_path(&mut self, now: Instant, owner: Owner, path: Path) {
        let Owner::Hip(id) = owner else { return };
        self.change(now, id, |association, around| {
            locate::observed(association, path, around);
            Ok(Fate::Lives)
        })
        .unwrap_or_default();
    }

    fn traffic(&mut self, now: Instant, owner: Owner, heard: bool) {
        let Owner::Hip(id) = owner else { return };
        self.change(now, id, |association, around| {
            if heard {
                alive::heard(association, around);
            }
            if let Stage::Up(session) = &mut association.stage {
                session.life.used = now;
                if !heard {
                    session.ways.keepalive.sent = now;
                    alive::unanswered(session, now);
                    sleep::awaited(association, around);
                }
            }
            Ok(Fate::Lives)
        })
        .unwrap_or_default();
    }

    fn unknown_spi(&mut self, now: Instant, path: Path) {
        self.find_lost(now, path.remote.ip());
    }

    fn set_addresses(&mut self, now: Instant, addresses: &[IpAddr]) {
        let changed = self.config.multihoming && self.peers.ours() != addresses;
        self.peers.set_ours(addresses);
        let instead = |a: &Association| {
            let path = self.peers.instead_of(a.path, a.peer, self.config.udp_port)?;
            Some((a.id, path))
        };
        let moved: Vec<_> = self.associations.values().filter_map(instead).collect();
        let others = self.associations.keys().copied().filter(|id| moved.iter().all(|(m, _)| m != id));
        let others: Vec<SaId> = others.filter(|_| changed).collect();
        moved.into_iter().for_each(|(id, path)| self.moved(now, id, path));
        self.revive(now);
        for id in others {
            self.change(now, id, |association, around| {
                multihome::announce(association, around);
                Ok(Fate::Lives)
            })
            .unwrap_or_default();
        }
    }

    fn announce_sleep(&mut self, now: Instant, owner: Owner, sleeping: &Sleeping) -> bool {
        self.on(now, owner, |a, around| sleep::announce(a, sleeping, around)).unwrap_or(false)
    }

    fn radio_on(&mut self, now: Instant) {
        self.all(now, |association, around| {
            sleep::over(association);
            initiate::slept(association, around);
        });
    }

    fn woke(&mut self, now: Instant, owner: Owner) -> bool {
        self.on(now, owner, sleep::woke).unwrap_or(true)
    }

    fn ask(&mut self, now: Instant, owner: Owner) {
        self.on(now, owner, sleep::ask);
    }

    fn peer_awake(&mut self, now: Instant, owner: Owner) {
        self.on(now, owner, sleep::heard);
    }

    fn waits(&mut self, now: Instant, owner: Owner) {
        self.on(now, owner, sleep::awaited);
    }
}

impl Host {
    /// The timers that are of no association.
    fn others(&self) -> impl Iterator<Item = Deadline> {
        let ahead = self.locals.iter().filter_map(|local| local.pool.wanted());
        let ahead = ahead.map(|at| Deadline { at, slack: AHEAD, why: "HIP: R1 packets ahead" });
        let tries = self.tries().map(|(at, _)| Deadline { at, slack: FIRST_RETRY, why: "HIP: a server" });
        ahead.chain(tries)
    }
}
