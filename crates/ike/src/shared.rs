//! What all SAs of an endpoint share: configuration, randomness, clocks, names, SPIs, and the queues towards the driver.
//! Owns everything that outlives an SA; must never know which states an SA passes through.

mod revocation;

use std::collections::{BTreeMap, VecDeque};

use core::net::IpAddr;

use dormouse_crypto::cert::{Identity, KnownPaths};
use dormouse_sansio::{Class, Entropy, Instant, Path, UnixTime};

use crate::action::Action;
use crate::callers::Callers;
use crate::config::{Connection, Unique};
use crate::config_payload::{AssignedConfig, Lease, LeaseRequest};
use crate::cookie::CookieJar;
use crate::endpoint_config::EndpointConfig;
use crate::event::Event;
use crate::half_opens::HalfOpens;
use crate::limits;
use crate::load::LoadHistory;
use crate::mlike::HeaderKeys;
use crate::outbox::Outbox;
use crate::sleepers::Sleepers;
use crate::stats::Stats;
use crate::ticket::counted::Counted;
use crate::ticket::lineage::{Name, TicketHolder};
use crate::work::Works;
use dormouse_keying::SaId;

/// Client: what the next session of a connection says of what was before it.
#[derive(Default)]
pub(crate) struct Former {
    /// The lineage of the last session that is over, to be named at the next full login.
    pub(crate) lineages: BTreeMap<String, Name>,
    /// The gateway that has sent it to the one that it goes to.
    pub(crate) redirected_from: BTreeMap<String, IpAddr>,
    /// Other addresses of its gateway's name, at which it logs in if it is sent there; none for a connection that is not here.
    pub(crate) same_name: BTreeMap<String, Vec<IpAddr>>,
}

/// See the module's text.
pub(crate) struct Shared {
    pub(crate) config: EndpointConfig,
    pub(crate) entropy: Box<dyn Entropy>,
    wall: Option<(Instant, UnixTime)>,
    pub(crate) cookies: CookieJar,
    pub(crate) by_spi: BTreeMap<u64, SaId>,
    pub(crate) out: Outbox,
    pub(crate) events: VecDeque<Event>,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) stats: Stats,
    pub(crate) callers: Callers,
    /// SAs held for devices that sleep.
    pub(crate) sleepers: Sleepers,
    /// Sessions that callers have begun and not yet established.
    pub(crate) half_open: HalfOpens,
    /// Public-key operations that are ordered.
    pub(crate) works: Works,
    pub(crate) load: LoadHistory,
    pub(crate) former: Former,
    pub(crate) header: HeaderKeys,
    /// Certificates of peers whose signatures need no second verification.
    pub(crate) known_paths: KnownPaths,
    /// Gateway: the store of lineages is known to be out of reach.
    pub(crate) store_away: bool,
    /// The addresses at which this machine can be reached, as the driver last said.
    pub(crate) own_addresses: Vec<IpAddr>,
    pub(crate) next_name: u64,
}

impl Shared {
    pub(crate) fn new(mut config: EndpointConfig, entropy: Box<dyn Entropy>) -> Self {
        let load = std::mem::take(&mut config.load);
        Self {
            load,
            former: Former::default(),
            header: HeaderKeys::default(),
            known_paths: KnownPaths::default(),
            store_away: false,
            callers: Callers::default(),
            sleepers: Sleepers::default(),
            half_open: HalfOpens::new(&config.half_open),
            works: Works::default(),
            config,
            entropy,
            wall: None,
            cookies: CookieJar::new(),
            by_spi: BTreeMap::new(),
            out: Outbox::default(),
            events: VecDeque::new(),
            actions: VecDeque::new(),
            stats: Stats::default(),
            own_addresses: Vec::new(),
            next_name: 0,
        }
    }

    /// True if it was not known before.
    pub(crate) fn set_wall_clock(&mut self, at: Instant, unix: UnixTime) -> bool {
        self.wall.replace((at, unix)).is_none()
    }

    /// Wall-clock time at `now`; the epoch as long as it is not known (then every certificate and ticket is refused, and says so).
    pub(crate) fn unix(&self, now: Instant) -> UnixTime {
        self.wall.map_or(UnixTime(0), |(at, unix)| unix + (now - at))
    }

    /// The addresses that are announced to a client of this connection, but for the one that it uses.
    pub(crate) fn addresses_of<'a>(&'a self, conn: &'a Connection) -> &'a [IpAddr] {
        match conn.mobility.additional_addresses.as_slice() {
            [] => &self.own_addresses,
            configured => configured,
        }
    }

    /// A session of this identity, if it is one that gateways count together. Those of `unique = "replace"` are not: they end each other.
    pub(crate) fn counted(
        &self,
        now: Instant,
        conn: &Connection,
        peer: &Identity,
        from: IpAddr,
        lineage: Name,
    ) -> Option<Counted> {
        let policy = &conn.answering.policy;
        let from = match policy.unique {
            Unique::Replace => return None,
            Unique::Keep => Some(from),
            Unique::Never => None,
        };
        self.config.counts_together.then(|| Counted {
            lineage,
            holder: TicketHolder::of(&conn.name, peer),
            from,
            most: u32::try_from(policy.sessions).unwrap_or(u32::MAX),
            login: false,
            former: None,
            began: self.unix(now),
        })
    }

    /// A session that was assigned these addresses is gone.
    pub(crate) fn give_back(&mut self, assigned: &AssignedConfig) {
        let lease = Lease { v4: assigned.v4, v6: assigned.v6 };
        if let Some(pool) = self.config.pool.as_deref_mut().filter(|_| lease != Lease::default()) {
            pool.release(&lease);
        }
    }

    /// `sa` is about to tell its client of these addresses: what it says waits until they are on the disk.
    pub(crate) fn await_lease(&mut self, sa: SaId, assigned: &AssignedConfig) {
        let lease = Lease { v4: assigned.v4, v6: assigned.v6 };
        if self.config.pool.as_deref().is_some_and(|pool| pool.is_unwritten(&lease)) {
            self.out.withhold(sa, lease);
        }
    }

    /// The client of a tentative session that was assigned these addresses is there. False if it cannot have them any more.
    pub(crate) fn lease_again(
        &mut self,
        conn: &Connection,
        peer: &Identity,
        assigned: &AssignedConfig,
    ) -> bool {
        let then = Lease { v4: assigned.v4, v6: assigned.v6 };
        if then == Lease::default() {
            return true;
        }
        let Some(pool) = self.config.pool.as_deref_mut() else { return false };
        let (v4, v6, kept) = (then.v4.is_some(), then.v6.is_some(), assigned.addresses());
        let now = pool.lease(conn, peer, &LeaseRequest { v4, v6, kept, ..LeaseRequest::default() });
        if now != then && now != Lease::default() {
            pool.release(&now);
        }
        now == then
    }

    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        let mut nonce = vec![0; limits::NONCE_LEN];
        self.entropy.fill(&mut nonce);
        nonce
    }

    /// Queues an answer that belongs to no SA.
    pub(crate) fn send_stateless(&mut self, path: Path, class: Class, datagram: Vec<u8>) {
        self.stats.sent(datagram.len());
        self.out.push(path, class, datagram);
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
