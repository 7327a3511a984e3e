//! A host: its identities and all its associations, driven by the verbs of [`KeyManager`]. Owns which association a packet belongs to,
//! what becomes of one that is replaced, and the timers of all; must never change what is inside an association.
//!
//! # Timers
//! Each association has one deadline, that of its state: an unanswered packet, the next slice of a puzzle, the end of what is kept for
//! late packets. An established association has none but for what waits in it: an UPDATE, a peer's silence, a registration to be renewed,
//! and what the configuration asks for; and, if its peer is not configured, the end that comes when it is not used. A rendezvous server
//! with which there is no association is tried when its time has come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use core::net::IpAddr;
use core::time::Duration;

use dormouse_keying::{Discard, Event, Owner, SaId, SpiSource};
use dormouse_sansio::{Carrier, Class, Entropy, Instant, Path};
use dormouse_wire::hip::{Hit, Packet, PacketType, ParamType};

use crate::association::{Association, Pair, Session, Stage};
use crate::config::HostConfig;
use crate::exchange::in_udp::InUdp;
use crate::exchange::register::Served;
use crate::exchange::sleep::Dormancy;
use crate::exchange::{
    Around, Fate, Outcome, alive, close, give_up, ice, initiate, keepalive, locate, multihome, notify,
    register, relay as relay_of, respond, unsigned_echoes, update,
};
use crate::hit::{HitSuite, Identity, speak_alike};
use crate::load::{Load, Meter};
use crate::outbox::{MARKER, Outbox};
use crate::peers::Peers;
use crate::protect;
use crate::r1::Pool;
use crate::relay::{Forwards, Seen};
use crate::stats::Stats;

mod description;
mod directory;
mod manager;
mod relay;
mod reload;
mod rendezvous;
mod sleepers;
mod strangers;

pub use description::{ConnectError, Description, Phase, Registration};

/// An identity of ours with its puzzles.
/// "[...] there SHOULD be a separate counter for each Host Identity, if there is more than one local Host Identity." (RFC 7401 section
/// 4.1.4)
#[derive(Debug)]
struct Local {
    identity: Identity,
    pool: Pool,
}

/// Associations whose peer is registered at us.
#[derive(Debug, Default)]
struct Clients {
    /// Until when, and whether at the relay.
    until: BTreeMap<SaId, (Instant, bool)>,
    /// How many are at the rendezvous server, and at the relay.
    at: [usize; 2],
}

/// See the module's text.
pub struct Host {
    config: HostConfig,
    locals: Vec<Local>,
    associations: BTreeMap<SaId, Association>,
    /// By our tag and the peer's.
    by_tags: BTreeMap<(Hit, Hit), SaId>,
    timers: BTreeSet<(Instant, SaId)>,
    load: Load,
    /// What we send on of hosts that are not known, and of clients and the peers that they have permitted: the first cannot use up what the
    /// second may send.
    relays: Option<[Meter; 2]>,
    /// Whose data we pass on.
    forwards: Forwards,
    /// What a relay of ours has told of the packet that is being looked at.
    seen: Option<Seen>,
    peers: Peers,
    /// Associations with peers that are not configured, by [`Association::unused_since`].
    strangers: BTreeSet<(Instant, SaId)>,
    /// When ESP under an unknown SPI last began an exchange with a peer of the directory.
    lost: BTreeMap<Hit, Instant>,
    clients: Clients,
    /// When a rendezvous server of ours is tried next, and how long the wait after that is; by our tag and its.
    tries: BTreeMap<(Hit, Hit), (Instant, Duration)>,
    outbox: Outbox,
    events: VecDeque<Event>,
    stats: Stats,
    spis: Box<dyn SpiSource>,
    entropy: Box<dyn Entropy>,
    next_id: u64,
}

impl Host {
    /// A host with these identities.
    #[must_use]
    pub fn new(
        config: HostConfig,
        identities: Vec<Identity>,
        spis: Box<dyn SpiSource>,
        mut entropy: Box<dyn Entropy>,
    ) -> Self {
        let pool = || Pool::new(config.first_generation);
        let locals = identities.into_iter().map(|identity| Local { identity, pool: pool() }).collect();
        let mut host = Self {
            locals,
            associations: BTreeMap::new(),
            by_tags: BTreeMap::new(),
            timers: BTreeSet::new(),
            load: Load::new(&mut *entropy),
            relays: (config.registrar.is_some() || config.relay_server.is_some())
                .then(|| [(); 2].map(|()| Meter::new(entropy.next_u64()))),
            forwards: Forwards::default(),
            seen: None,
            peers: Peers::default(),
            strangers: BTreeSet::new(),
            lost: BTreeMap::new(),
            clients: Clients::default(),
            tries: BTreeMap::new(),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            stats: Stats::default(),
            spis,
            entropy,
            next_id: 1,
            config,
        };
        host.prepare();
        host
    }

    /// Our tags.
    pub fn tags(&self) -> impl Iterator<Item = Hit> {
        self.locals.iter().map(|l| l.identity.hit())
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Begins an association with the peer that has this tag, by these paths: the first I1 goes by up to three of them, and after that
    /// by one after the other. One that is ending is replaced.
    ///
    /// # Errors
    /// As [`ConnectError`] says; nothing is begun then.
    pub fn connect(
        &mut self,
        now: Instant,
        ours: Hit,
        peer: Hit,
        paths: &[Path],
    ) -> Result<SaId, ConnectError> {
        let local = self.local(ours).ok_or(ConnectError::NotOurs(ours))?;
        if self.local(peer).is_some() {
            return Err(ConnectError::Own(peer));
        }
        if HitSuite::of(peer).is_none() {
            return Err(ConnectError::NotATag(peer));
        }
        if !speak_alike(ours, peer) {
            return Err(ConnectError::OtherVersion(peer));
        }
        if self.config.denied.contains(&peer) {
            return Err(ConnectError::Denied(peer));
        }
        let usable = |p: &&Path| match p.carrier {
            Carrier::HipUdp => true,
            Carrier::RawHip => !p.local.ip().is_unspecified(),
            _ => false,
        };
        let paths: Vec<Path> = paths.iter().filter(usable).copied().collect();
        let first = *paths.first().ok_or(ConnectError::NoPath(peer))?;
        let before = self.by_tags.get(&(ours, peer)).copied();
        if let Some(before) = before {
            match self.associations.get(&before).map(|a| &a.stage) {
                None | Some(Stage::Closing(_) | Stage::Closed(_) | Stage::Failed) => self.forget(before),
                Some(_) => return Err(ConnectError::Exists(peer)),
            }
        }
        if !self.has_room(now, peer) {
            return Err(ConnectError::TooMany(self.associations.len()));
        }
        self.make_room(now, peer);
        let stage = self.with(now, local, |_, _, around| initiate::begin(around, peer, &paths));
        let stage = stage.ok_or(ConnectError::Failed)?;
        let id = self.name();
        self.keep(Association { id, ours, peer, path: first, relay: None, stage });
        Ok(id)
    }

    /// Ends an association; what was not established is given up.
    pub fn close(&mut self, now: Instant, id: SaId) {
        self.end(now, id, "closed here");
    }

    fn end(&mut self, now: Instant, id: SaId, why: &'static str) {
        self.change(now, id, |association, around| {
            Ok(match &association.stage {
                Stage::Closing(_) | Stage::Closed(_) => Fate::Lives,
                _ => close::begin(association, around, why),
            })
        })
        .unwrap_or_default();
    }

    /// Denies a peer: its associations end, and exchanges that either end begins are refused. Returns how many associations ended.
    pub fn deny(&mut self, now: Instant, peer: Hit) -> usize {
        self.config.denied.insert(peer);
        let open =
            |a: &&Association| a.peer == peer && !matches!(a.stage, Stage::Closing(_) | Stage::Closed(_));
        let ends: Vec<SaId> = self.associations.values().filter(open).map(|a| a.id).collect();
        ends.iter().for_each(|id| self.close(now, *id));
        ends.len()
    }

    /// Whether this peer is denied.
    #[must_use]
    pub fn denies(&self, peer: Hit) -> bool {
        self.config.denied.contains(&peer)
    }

    /// Takes a denial back. False if there was none.
    pub fn allow(&mut self, peer: Hit) -> bool {
        self.config.denied.remove(&peer)
    }

    /// Our address towards this peer is another from now on. An association that is not established begins anew from there.
    pub fn moved(&mut self, now: Instant, id: SaId, path: Path) {
        self.change(now, id, |association, around| Ok(locate::moved(association, path, around)))
            .unwrap_or_default();
    }

    /// Asks an established peer whether it is there: if it does not answer, another way is tried, and at last the association ends.
    pub fn check(&mut self, now: Instant, id: SaId) {
        self.change(now, id, |association, around| {
            alive::check(association, false, around);
            Ok(Fate::Lives)
        })
        .unwrap_or_default();
    }

    fn local(&self, tag: Hit) -> Option<usize> {
        self.locals.iter().position(|l| l.identity.hit() == tag)
    }

    fn name(&mut self) -> SaId {
        let id = SaId::new(self.next_id);
        self.next_id += 1;
        id
    }

    /// Lends what an exchange may use.
    fn with<T>(
        &mut self,
        now: Instant,
        local: usize,
        act: impl FnOnce(&mut Pool, &mut Load, &mut Around<'_>) -> Option<T>,
    ) -> Option<T> {
        let clients_left = self.clients_left(now);
        let Local { identity, pool } = self.locals.get_mut(local)?;
        let mut around = Around {
            now,
            config: &self.config,
            identity,
            entropy: &mut *self.entropy,
            spis: &mut *self.spis,
            outbox: &mut self.outbox,
            events: &mut self.events,
            stats: &mut self.stats,
            peers: &self.peers,
            clients_left,
            seen: self.seen,
            forwards: &mut self.forwards,
        };
        act(pool, &mut self.load, &mut around)
    }

    /// Changes an association, and forgets it if it ends.
    fn change(
        &mut self,
        now: Instant,
        id: SaId,
        act: impl FnOnce(&mut Association, &mut Around<'_>) -> Outcome,
    ) -> Result<(), Discard> {
        let none = Discard("no such association");
        let mut association = self.take(id).ok_or(none)?;
        let local = self.local(association.ours).ok_or(none)?;
        self.outbox.set_via(self.seen.map(|seen| seen.relay).or(association.via()));
        let (before, mark) = (association.relay, self.outbox.len());
        let outcome = self.with(now, local, |_, _, around| Some(act(&mut association, around)));
        self.outbox.set_via(self.seen.map(|seen| seen.relay));
        if self.outbox.has_since(mark, association.path)
            && let Stage::Up(session) = &mut association.stage
        {
            session.ways.keepalive.sent = now;
        }
        let behind = association.relay;
        let result = match outcome {
            Some(Ok(Fate::Ends)) => {
                self.by_tags.remove(&(association.ours, association.peer));
                self.forwards.forget(id);
                Ok(())
            }
            Some(Ok(Fate::Lives)) | None => {
                self.keep(association);
                Ok(())
            }
            Some(Err(discard)) => {
                self.keep(association);
                Err(discard)
            }
        };
        if let Some(before) = before.filter(|before| behind.is_none_or(|it| it.server != before.server)) {
            self.permit(now, id, before.server);
        }
        if let Some(behind) = behind {
            self.permit(now, id, behind.server);
        }
        result
    }

    fn take(&mut self, id: SaId) -> Option<Association> {
        let association = self.associations.remove(&id)?;
        if let Some((_, relay)) = self.clients.until.remove(&id) {
            self.clients.at[usize::from(relay)] -= 1;
        }
        if let Some(since) = association.unused_since() {
            self.strangers.remove(&(since, id));
        }
        if let Some(deadline) = association.deadline() {
            self.timers.remove(&(deadline.at, id));
        }
        Some(association)
    }

    fn keep(&mut self, association: Association) {
        let id = association.id;
        if let Some(deadline) = association.deadline() {
            self.timers.insert((deadline.at, id));
        }
        if let Some(since) = association.unused_since().filter(|_| !self.is_configured(association.peer)) {
            self.strangers.insert((since, id));
        }
        if let Stage::Up(session) = &association.stage
            && let Some(until) = session.services.served.end()
        {
            let relay = session.services.served.relays();
            self.clients.at[usize::from(relay)] += 1;
            self.clients.until.insert(id, (until, relay));
        }
        self.by_tags.insert((association.ours, association.peer), id);
        self.associations.insert(id, association);
    }

    fn forget(&mut self, id: SaId) {
        if let Some(association) = self.take(id) {
            self.by_tags.remove(&(association.ours, association.peer));
            self.forwards.forget(id);
        }
    }

    fn receive(&mut self, now: Instant, path: Path, datagram: &[u8]) -> Result<(), Discard> {
        let result = self.look_at(now, path, datagram);
        self.seen = None;
        self.outbox.set_via(None);
        result
    }

    fn look_at(&mut self, now: Instant, path: Path, datagram: &[u8]) -> Result<(), Discard> {
        let bytes = match path.carrier {
            Carrier::HipUdp => datagram.strip_prefix(&MARKER).ok_or(Discard("no marker before HIP"))?,
            Carrier::RawHip => datagram,
            _ => return Err(Discard("not a carrier of HIP")),
        };
        let packet = Packet::parse(bytes).map_err(|_| Discard("not a HIP packet"))?;
        let (sender, receiver) = (packet.header.sender, packet.header.receiver);
        if path.carrier == Carrier::RawHip && !packet.checksum_is_right(path.remote.ip(), path.local.ip()) {
            // "However, an implementation MUST NOT send an ICMP message if the checksum fails; instead, it MUST silently drop the packet."
            // (RFC 7401 section 5.4.2)
            return Err(Discard("a wrong checksum"));
        }
        // An I2's sender learns it once its puzzle was looked at.
        let unknown = packet.unsupported_critical();
        if let Some(kind) =
            unknown.filter(|_| packet.header.kind != PacketType::I2 || self.local(receiver).is_none())
        {
            return Err(self.not_understood(now, &packet, kind));
        }
        // "The Responder MUST check that the Responder's HIT in the received I1 packet is either one of its own HITs or NULL." (RFC 7401
        // section 6.7)
        let opportunistic =
            receiver == Hit::NULL && packet.header.kind == PacketType::I1 && self.config.opportunistic;
        let ours = if opportunistic { self.tag_for_any(sender) } else { Some(receiver) };
        // "The system MUST check that the Responder's HIT corresponds to one of its own HITs and MUST drop the packet otherwise." (RFC 7401
        // section 6.9)
        let Some(local) = ours.and_then(|ours| self.local(ours)) else {
            return match self.relay_on(now, path, &packet) {
                Some(result) => result,
                None => self.relay(now, path, &packet),
            };
        };
        // "The system MUST further check that the Initiator's HIT Suite is supported. The Responder SHOULD silently drop I2 packets with
        // unsupported Initiator HITs." (RFC 7401 section 6.9)
        if !initiate::tags_are_usable(&packet.header) || self.local(sender).is_some() {
            return Err(Discard("from a host without a usable tag"));
        }
        if packet.header.kind == PacketType::I1 && !self.config.speaks_with(sender) {
            return Err(Discard("version 1 of a host with which it is not spoken"));
        }
        let (path, via) = self.origin(now, path, &packet)?;
        match packet.header.kind {
            PacketType::I1 => self.i1(now, (path, via), &packet, local),
            PacketType::I2 => self.i2(now, path, &packet, local),
            kind => {
                // "A system receiving an R1 packet MUST first check to see if it has sent an I1 packet to the originator of the R1 packet"
                // (RFC 7401 section 6.8)
                // "[...] the received Initiator's HIT MUST correspond to the HIT used in the original I1. Also, the Responder's HIT MUST
                // correspond to the one used in the I1" (RFC 7401 section 6.8)
                // "[...] the received R1 packet SHOULD be matched against the associations using only the HITs." (RFC 7401 section 6.8)
                // "The system MUST verify that the HITs in use correspond to the HITs that were received in the R1 packet that caused the
                // transition to the I1-SENT state." (RFC 7401 section 6.10)
                let id = self.by_tags.get(&(receiver, sender)).copied();
                let id = id.ok_or(Discard("no association with its sender"))?;
                self.change(now, id, |a, around| match kind {
                    PacketType::R1 => initiate::r1(a, &packet, path, around),
                    PacketType::R2 => initiate::r2(a, &packet, around),
                    PacketType::Update => update::receive(a, &packet, path, via, around),
                    PacketType::Notify => notify::receive(a, &packet, path, around),
                    PacketType::Close => close::close(a, &packet, path, around),
                    PacketType::CloseAck => close::close_ack(a, &packet, around),
                    // "If a HIP host receives a HIP packet that contains an unrecognized packet type, it MUST drop the packet." (RFC 7401
                    // section 5.1)
                    _ => Err(Discard("an unknown packet type")),
                })?;
                if kind == PacketType::R2 {
                    self.answered(now, (receiver, sender));
                }
                let in_use = self.associations.get(&id).is_some_and(|a| a.path == path);
                if kind == PacketType::R2 || kind == PacketType::Update && in_use {
                    self.permit_all(now, (receiver, sender), path);
                }
                if kind == PacketType::R2 {
                    self.ask_behind(now, (receiver, sender), path);
                }
                Ok(())
            }
        }
    }

    /// A packet has a critical parameter of a type that we do not know.
    fn not_understood(&mut self, now: Instant, packet: &Packet<'_>, kind: ParamType) -> Discard {
        if let Some(id) = self.by_tags.get(&(packet.header.receiver, packet.header.sender)).copied() {
            self.on(now, Owner::Hip(id), |a, around| notify::not_understood(a, packet, kind, around));
        }
        Discard("an unknown critical parameter")
    }

    /// "If the Responder is in I1-SENT state, it MUST make a comparison between the sender's HIT and its own (i.e., the receiver's) HIT."
    /// (RFC 7401 section 6.7)
    /// "If the sender's HIT is smaller than its own HIT, it SHOULD send the R1 packet and stay at I1-SENT." (RFC 7401 section 6.7)
    /// "If the sender's HIT is greater than its own HIT, it should drop the I1 packet and stay at I1-SENT." (RFC 7401 section 6.7)
    fn i1(
        &mut self,
        now: Instant,
        (path, via): (Path, Option<IpAddr>),
        packet: &Packet<'_>,
        local: usize,
    ) -> Result<(), Discard> {
        let (ours, peer) = (self.locals.get(local).map(|l| l.identity.hit()), packet.header.sender);
        let sent = ours.and_then(|ours| self.stage(ours, peer));
        if matches!(sent, Some(Stage::I1Sent(_) | Stage::Solving(_) | Stage::I2Sent(_))) && Some(peer) > ours
        {
            self.call_there_too(now, path, peer, local);
            return Err(Discard("an I1 that crosses ours, of the host with the greater tag"));
        }
        self.with(now, local, |pool, load, around| Some(respond::i1(packet, path, via, pool, load, around)))
            .unwrap_or(Err(Discard("for another host")))
    }

    fn stage(&self, ours: Hit, peer: Hit) -> Option<&Stage> {
        self.associations.get(self.by_tags.get(&(ours, peer))?).map(|a| &a.stage)
    }

    /// An I2: an association, in place of what there was with its sender.
    /// "If the system's state machine is in the I2-SENT state, the system MUST make a comparison between its local and sender's HITs" (RFC
    /// 7401 section 6.9)
    fn i2(&mut self, now: Instant, path: Path, packet: &Packet<'_>, local: usize) -> Result<(), Discard> {
        let (ours, peer) = (packet.header.receiver, packet.header.sender);
        match self.stage(ours, peer) {
            Some(Stage::I2Sent(_)) if ours < peer => {
                return Err(Discard("an I2 that crosses ours, of the host with the greater tag"));
            }
            Some(Stage::Up(session)) => {
                let again = session.life.r2.as_ref().filter(|r2| r2.i2 == respond::fingerprint(packet));
                if let Some(r2) = again.and_then(|r2| protect::append(&r2.r2, &unsigned_echoes(packet))) {
                    // It is its sender's, for it was checked when it came first.
                    self.outbox.push(path, Class::Urgent, &r2);
                    return Ok(());
                }
            }
            None if !self.has_room(now, peer) => {
                return Err(Discard("as many associations as are permitted"));
            }
            _ => {}
        }
        let before = self.by_tags.get(&(ours, peer)).copied();
        self.hide_if_taken(packet, before);
        let was_client =
            before.and_then(|id| self.clients.until.get(&id)).is_some_and(|(until, _)| *until > now);
        let id = self.name();
        let mark = self.outbox.len();
        let made = self.with(now, local, |pool, load, around| {
            Some(respond::i2(packet, path, pool, load, around).and_then(|accepted| {
                let child = around.spis.reserve(around.entropy);
                let asked = accepted.asked.as_ref();
                let mut served = Served::default();
                let registered =
                    asked.map(|asked| register::decide(asked, (peer, path), &served, was_client, around));
                let (mut registered, decided) = registered.unwrap_or_default();
                served.change(&decided);
                registered.extend(relay_of::tell(&served, true, path, around.peers));
                let r2 = respond::r2(&accepted, peer, path, child.spi(), &registered, around);
                let r2 = r2.ok_or_else(|| {
                    around.spis.release(child);
                    Discard("no R2 could be made")
                })?;
                Ok((accepted, child, r2, served))
            }))
        });
        let (accepted, child, r2, served) = made.ok_or(Discard("for another host"))??;
        match before {
            Some(before) => self.replace(now, before),
            None => self.make_room(now, peer),
        }
        self.with(now, local, |_, _, around| {
            let respond::Accepted { agreed, esp_keys, spi_out, theirs, .. } = accepted;
            let pair = Pair { child, spi_out, replaces: None, send_now: true };
            let esp = agreed.esp;
            let mut session = Session::new(around, agreed, child, spi_out, Some(r2));
            session.services.served = served;
            session.dormancy = Dormancy::of(packet);
            session.ways.in_udp = InUdp::of(packet, around);
            let relay = around.seen.map(|seen| seen.relay);
            let relay = relay.filter(|_| !around.config.relays.contains(&peer));
            let stage = Stage::Up(Box::new(session));
            let mut association = Association { id, ours, peer, path, relay, stage };
            initiate::established(&association, packet, around);
            let install = association.install(around, esp, esp_keys, pair);
            around.order(install);
            if let Some((theirs, pacing)) = theirs {
                ice::begin(&mut association, (&theirs, false, pacing), around);
            }
            let named = multihome::named(peer, path, around);
            multihome::established(&mut association, packet, &named, around);
            keepalive::begin(&mut association, around);
            Some(association)
        })
        .map(|association| self.keep(association))
        .ok_or(Discard("for another host"))?;
        if let Some(seen) = self.seen {
            // The relay lets the initiator's data through before the R2 shows it that it may send.
            let since = self.outbox.len();
            self.permit(now, id, seen.relay.server);
            self.outbox.advance(mark, since);
        }
        Ok(())
    }

    /// An association ends because its peer has begun another.
    fn replace(&mut self, now: Instant, id: SaId) {
        self.change(now, id, |association, around| {
            Ok(give_up(association, around, "the peer began another association"))
        })
        .unwrap_or_default();
    }
}

impl core::fmt::Debug for Host {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { associations, stats, .. } = self;
        f.debug_struct("Host")
            .field("associations", associations)
            .field("stats", stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
