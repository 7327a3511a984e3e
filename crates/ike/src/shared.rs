//! What all SAs of an endpoint share: configuration, randomness, clocks, names, SPIs, and the queues towards the driver.
//! Owns everything that outlives an SA; must never know which states an SA passes through.

use std::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use dormouse_crypto::cert::Identity;
use dormouse_sansio::{Class, Entropy, Instant, Path, UnixTime};

use crate::config::EndpointConfig;
use crate::cookie::CookieJar;
use crate::event::Event;
use crate::limits;
use crate::load::LoadHistory;
use crate::sa::IkeSa;
use crate::sleepers::Sleepers;
use crate::stats::Stats;
use dormouse_keying::{ChildId, SaId};

/// A datagram waiting for `poll_transmit`.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) path: Path,
    pub(crate) class: Class,
    pub(crate) datagram: Vec<u8>,
    /// A one-byte NAT keepalive: no marker goes before it.
    pub(crate) keepalive: bool,
}

/// A change to the set of SAs that a handler asks for: it holds one SA, the set is the endpoint's.
#[derive(Debug)]
pub(crate) enum Action {
    /// A rekeying made a new IKE SA, under an internal name of its own.
    Spawn(Box<IkeSa>),
    /// `to`, made by rekeying `from`, takes over `from`'s name, CHILD SAs, queue and timers.
    Inherit {
        /// The old IKE SA.
        from: SaId,
        /// Its successor.
        to: SaId,
    },
    /// The peer uses this successor, which its rekeying made while ours was under way: it has decided.
    HeirChosen(SaId),
    /// Lost against another successor of the same SA: the peer, who made it, deletes it.
    Abandon(SaId),
    /// Ask the peer to delete this SA (a redundant one left by colliding rekeyings).
    Delete(SaId),
    /// `by` has authenticated as `peer` and says that it has no other SA: close the others, without messages.
    InitialContact {
        /// The new SA.
        by: SaId,
        /// The authenticated peer.
        peer: Identity,
        /// Name of the connection.
        connection: String,
    },
    /// `by` resumed the SA that had this SPI of ours: drop the old one silently.
    Resumed {
        /// The new SA.
        by: SaId,
        /// The responder's SPI of the old one, which was ours unless the client answered a rekeying.
        old_spi: u64,
        /// The initiator's.
        other_spi: u64,
    },
    /// The client's authentication is due anew: open a second SA beside this one, which then replaces it.
    Reauthenticate(SaId),
    /// A reauthenticated SA is up: delete the one that it replaces.
    Close(SaId),
    /// Its device sleeps, and another one needs its place.
    Release(SaId),
    /// The device of this SA sleeps: what rekeying and closing have left of its other SAs goes, because no deletion is worth disturbing
    /// it for.
    Sleeps(SaId),
}

/// See the module's text.
pub(crate) struct Shared {
    pub(crate) config: EndpointConfig,
    pub(crate) entropy: Box<dyn Entropy>,
    wall: Option<(Instant, UnixTime)>,
    pub(crate) cookies: CookieJar,
    pub(crate) by_spi: BTreeMap<u64, SaId>,
    pub(crate) out: VecDeque<Queued>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) stats: Stats,
    /// SAs held for devices that sleep.
    pub(crate) sleepers: Sleepers,
    /// Sessions that callers have begun and not yet established.
    pub(crate) half_open: usize,
    pub(crate) load: LoadHistory,
    next_name: u64,
}

impl Shared {
    pub(crate) fn new(mut config: EndpointConfig, entropy: Box<dyn Entropy>) -> Self {
        let load = std::mem::take(&mut config.load);
        Self {
            load,
            sleepers: Sleepers::default(),
            half_open: 0,
            config,
            entropy,
            wall: None,
            cookies: CookieJar::new(),
            by_spi: BTreeMap::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            actions: VecDeque::new(),
            stats: Stats::default(),
            next_name: 0,
        }
    }

    pub(crate) fn set_wall_clock(&mut self, at: Instant, unix: UnixTime) {
        self.wall = Some((at, unix));
    }

    /// Wall-clock time at `now`; the epoch if nobody told (then every certificate and ticket is refused, and says so).
    pub(crate) fn unix(&self, now: Instant) -> UnixTime {
        self.wall.map_or(UnixTime(0), |(at, unix)| unix + (now - at))
    }

    fn name(&mut self) -> u64 {
        self.next_name += 1;
        self.next_name
    }

    pub(crate) fn new_sa(&mut self) -> SaId {
        SaId::new(self.name())
    }

    /// A fresh IKE SPI of ours, registered for `id`.
    /// "[...] MUST choose them so as to be unique identifiers of an IKE SA" (RFC 7296 section 2.6)
    pub(crate) fn new_spi(&mut self, id: SaId) -> u64 {
        loop {
            let spi = self.entropy.next_u64();
            if spi != 0 && !self.by_spi.contains_key(&spi) {
                self.by_spi.insert(spi, id);
                return spi;
            }
        }
    }

    /// An inbound ESP SPI for a CHILD SA to be: installed, or released.
    pub(crate) fn new_esp_spi(&mut self) -> u32 {
        self.config.spis.reserve(&mut self.entropy).spi()
    }

    /// Nothing came of the CHILD SA that was to have this SPI.
    pub(crate) fn free_esp_spi(&mut self, spi: u32) {
        self.config.spis.release(ChildId::new(spi));
    }

    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        let mut nonce = vec![0; limits::NONCE_LEN];
        self.entropy.fill(&mut nonce);
        nonce
    }

    /// How long to wait after transmission number `sent` of a request.
    pub(crate) fn wait(&mut self, sent: u32) -> Duration {
        self.config.retransmission.wait(sent, &mut self.entropy)
    }

    /// Queues an answer that belongs to no SA.
    pub(crate) fn send_stateless(&mut self, path: Path, class: Class, datagram: Vec<u8>) {
        self.stats.sent(datagram.len());
        self.out.push_back(Queued { path, class, datagram, keepalive: false });
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .field("sas", &self.by_spi.len())
            .finish_non_exhaustive()
    }
}
