//! A router between the end points of composite SAs, which was given the keys of the first zones. Owns these keys and the nonces that it makes
//! under them; must never touch another zone, send what it could not open in any other form than it came, or drop a packet.
//!
//! It is no end point: it has no replay window, and a packet that comes twice goes on twice. A packet that is only looked at is not written to. One
//! whose header is changed is sealed again under a nonce of this router's own number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dormouse_crypto::{Encr, Error as CryptoError, PacketKey};
use dormouse_keying::{GrantId, HeaderGrant, HeaderNews, HeaderOrder, HeaderSa, Opened, Reached, ZoneMap};
use thiserror::Error;

use super::{COUNT_BITS, IV, LAST, Parts, ZoneAad, blank, first_iv};
use crate::layout::split_header;
use crate::replay::{DEFAULT_WINDOW, ReplayWindow};
use crate::sequence::{Counter, reconstruct};

/// Most grants at once.
const GRANTS_MOST: usize = 4_096;
/// Most grants whose packets have one SPI: each is tried for a packet. Receivers choose SPIs, and an
/// honest one does so at random.
const GRANTS_OF_SPI: usize = 8;
/// Packets in a row that do not open, after which the key counts as stale.
const STALE_AFTER: u32 = 3;
/// News that wait to be read; the oldest goes first.
const NEWS_MOST: usize = 64;

/// Why keys were not taken.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum GrantError {
    /// There are as many as the router holds.
    #[error("this router holds the header keys of {GRANTS_MOST} SAs already")]
    Full,
    /// There are as many with one of its SPIs as are tried for a packet.
    #[error("this router holds {GRANTS_OF_SPI} header keys of the same SPI already")]
    Alike,
    /// No zone has such a cipher.
    #[error("{0} seals no zones: they take an AEAD with an ICV of 16 bytes")]
    Cipher(Encr),
    /// Cipher and keying material do not fit each other.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// Why a header was not changed. The packet is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ChangeError {
    /// More was changed than a router may: the end points would take none of it.
    #[error(
        "a router may change congestion marks, time to live, window and checksums of a header, and nothing else"
    )]
    Pinned,
    /// Every nonce of this router's number is used: [`HeaderNews::Exhausted`].
    #[error("all 2^{COUNT_BITS} nonces of this router are used: it needs keys with a new number")]
    Exhausted,
}

/// Which SA of a grant a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Direction {
    ToDevice,
    FromDevice,
}

/// An SPI, whose it is, and which way it goes. Receivers choose SPIs, so two may choose the same.
type Name = (u32, GrantId, Direction);

/// What a router sees of an ESP packet.
#[derive(Debug)]
pub enum Look {
    /// No key of an SA with this SPI is here.
    NoKey,
    /// A key is, and does not open it.
    Closed,
    /// Its first zone.
    Header(Header),
}

/// An opened first zone.
#[derive(Clone, Debug)]
pub struct Header {
    bytes: [u8; ZoneMap::FIRST_MOST],
    len: usize,
    seq: u64,
    name: Name,
}

impl Header {
    /// The start of the inner packet.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Full sequence number of the packet.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// What was given to the router that opens it.
    #[must_use]
    pub const fn grant(&self) -> GrantId {
        self.name.1
    }

    /// Whether it is on its way to the device.
    #[must_use]
    pub fn is_to_device(&self) -> bool {
        self.name.2 == Direction::ToDevice
    }
}

/// The first zone of one direction of an SA.
#[derive(Debug)]
struct HeaderZone {
    key: PacketKey,
    zones: usize,
    esn: bool,
    /// Places the numbers on the wire; it refuses none.
    window: ReplayWindow,
    reached: Reached,
    node: u32,
    /// Of the nonces made here.
    counter: Counter,
    /// Packets that did not open since one did.
    closed: u32,
}

impl HeaderZone {
    /// Numbers are placed by `at` at first.
    fn new(grant: &HeaderGrant, sa: &HeaderSa, at: u64, before: Option<&Self>) -> Result<Self, CryptoError> {
        let node = grant.nodes.own();
        // The same number again, also with other keys: its nonces go on where they were.
        let counter = before.filter(|before| before.node == node).map(|before| before.counter.clone());
        let mut window = ReplayWindow::new(DEFAULT_WINDOW);
        window.start_at(at);
        Ok(Self {
            key: PacketKey::new(grant.encr, None, sa.keymat.as_bytes())?,
            zones: grant.map.zones(),
            esn: grant.esn,
            window,
            reached: sa.reached.clone(),
            node,
            counter: counter.unwrap_or_else(|| Counter::new(true).at_most(LAST)),
            closed: 0,
        })
    }

    /// What the first zone is authenticated with.
    fn aad(&self, esp: &[u8], parts: &Parts, spi: u32, seq: u64) -> ZoneAad {
        let head = esp.get(parts.head.clone()).unwrap_or_default();
        ZoneAad::new(spi, seq, self.zones, parts.body, head)
    }

    /// Its first zone, if this key opens it.
    fn opened(&self, esp: &[u8], name: Name) -> Option<Header> {
        let parts = Parts::of(esp, self.zones)?;
        let seq = if self.esn { reconstruct(&self.window, parts.low)? } else { parts.low.into() };
        let (iv, icv) = (esp.get(parts.head.clone())?.get(..IV)?, esp.get(parts.icv.clone())?);
        let first = esp.get(parts.first.clone())?;
        let mut header = Header { bytes: [0; ZoneMap::FIRST_MOST], len: first.len(), seq, name };
        let zone = header.bytes.get_mut(..first.len())?;
        zone.copy_from_slice(first);
        self.key.open(self.aad(esp, &parts, name.0, seq).first(), iv, zone, &[], icv).ok()?;
        Some(header)
    }

    /// The same, of a packet that passes.
    fn open(&mut self, esp: &[u8], name: Name) -> Option<Header> {
        let header = self.opened(esp, name)?;
        // It moves the window on; that a packet comes twice is the end point's to judge.
        let _seen = self.window.accept(header.seq);
        self.reached.raise(header.seq);
        Some(header)
    }

    /// Seals `header` in place of what is there.
    fn seal(&mut self, esp: &mut [u8], header: &Header) -> Result<(), ChangeError> {
        let parts = Parts::of(esp, self.zones).ok_or(ChangeError::Pinned)?;
        let count = self.counter.take(1).map_err(|_| ChangeError::Exhausted)?;
        let iv = first_iv(self.node, count);
        let aad = self.aad(esp, &parts, header.name.0, header.seq);
        let (mut zone, mut icv) = (header.bytes, [0; super::ICV]);
        let zone = zone.get_mut(..header.len).unwrap_or_default();
        self.key.seal(aad.first(), &iv, zone, &[], &mut icv).map_err(|_| ChangeError::Pinned)?;
        for (at, bytes) in
            [(parts.head.start..parts.head.start + IV, &iv[..]), (parts.first, zone), (parts.icv, &icv)]
        {
            if let Some(to) = esp.get_mut(at) {
                to.copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}

/// What a router has done so far, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterStats {
    /// Whose first zone was opened.
    pub opened: u64,
    /// Which no key here opened.
    pub closed: u64,
    /// Whose header was changed.
    pub changed: u64,
}

/// Whether the keys of an SA do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// They do, as far as packets have shown.
    Fit,
    /// The latest packets did not open: [`HeaderNews::Stale`].
    Stale,
    /// They read, and change nothing more: [`HeaderNews::Exhausted`].
    Exhausted,
}

/// All first zones of which a router has the keys.
#[derive(Debug, Default)]
pub struct HeaderZones {
    zones: BTreeMap<Name, HeaderZone>,
    /// Grants of which [`HeaderNews::Stale`], or [`HeaderNews::Exhausted`], was told.
    stale: BTreeSet<GrantId>,
    exhausted: BTreeSet<GrantId>,
    news: VecDeque<HeaderNews>,
    stats: RouterStats,
}

impl HeaderZones {
    /// A router without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Carries out what a key manager orders. Keys in place of others of the same name: with the same number in nonces their count goes on, so
    /// that an order that comes twice does not make a nonce come twice.
    ///
    /// # Errors
    /// If the keys cannot be used, or are one too many; what was held before stays.
    pub fn apply(&mut self, order: &HeaderOrder) -> Result<(), GrantError> {
        let grant = match order {
            HeaderOrder::Grant(grant) => grant,
            HeaderOrder::Revoke(id) => {
                for name in names(*id) {
                    self.zones.remove(&name);
                }
                self.stale.remove(id);
                self.exhausted.remove(id);
                return Ok(());
            }
        };
        if !grant.encr.suits_zones() {
            return Err(GrantError::Cipher(grant.encr));
        }
        let id = grant.id();
        let [to, from] = names(id);
        if !self.zones.contains_key(&to) && self.zones.len() >= 2 * GRANTS_MOST {
            return Err(GrantError::Full);
        }
        if !self.zones.contains_key(&to) && [to, from].iter().any(|name| self.alike(name.0) >= GRANTS_OF_SPI)
        {
            return Err(GrantError::Alike);
        }
        let new = |sa: &HeaderSa, before| HeaderZone::new(grant, sa, sa.reached.first(), before);
        let to_device = new(&grant.to_device, self.zones.get(&to))?;
        let from_device = new(&grant.from_device, self.zones.get(&from))?;
        self.zones.insert(to, to_device);
        self.zones.insert(from, from_device);
        self.stale.remove(&id);
        self.exhausted.remove(&id);
        Ok(())
    }

    /// How many SAs have this SPI.
    fn alike(&self, spi: u32) -> usize {
        self.zones.range(first_of(spi)..).take_while(|(name, _)| name.0 == spi).count()
    }

    /// Opens the first zone of an ESP packet (from its SPI on), which is not written to.
    pub fn look(&mut self, esp: &[u8]) -> Look {
        let Some((spi, _)) = split_header(esp) else { return Look::NoKey };
        let from = first_of(spi);
        let mut look = Look::NoKey;
        for (name, zone) in self.zones.range_mut(from..).take_while(|(name, _)| name.0 == spi) {
            if let Some(header) = zone.open(esp, *name) {
                zone.closed = 0;
                self.stale.remove(&name.1);
                self.stats.opened += 1;
                return Look::Header(header);
            }
            look = Look::Closed;
        }
        if matches!(look, Look::Closed) {
            self.stats.closed += 1;
            self.count_closed(spi, from);
        }
        look
    }

    /// A packet was opened by none of the keys under its SPI.
    fn count_closed(&mut self, spi: u32, from: Name) {
        for (name, zone) in self.zones.range_mut(from..).take_while(|(name, _)| name.0 == spi) {
            zone.closed = zone.closed.saturating_add(1);
            if zone.closed >= STALE_AFTER && self.stale.insert(name.1) {
                tell(&mut self.news, HeaderNews::Stale(name.1));
            }
        }
    }

    /// Has `edit` change the header of an ESP packet, and seals it again if it did. Returns whether it did: not, if no key opens the packet.
    ///
    /// # Errors
    /// If `edit` changed what is not a router's to change, or no nonce is left.
    pub fn change(&mut self, esp: &mut [u8], edit: impl FnOnce(&mut [u8])) -> Result<bool, ChangeError> {
        let Look::Header(mut header) = self.look(esp) else { return Ok(false) };
        let before = header.bytes;
        let len = header.len;
        edit(header.bytes.get_mut(..len).unwrap_or_default());
        if header.bytes == before {
            return Ok(false);
        }
        let pinned = |mut bytes: [u8; ZoneMap::FIRST_MOST]| {
            blank(bytes.get_mut(..len).unwrap_or_default());
            bytes
        };
        if pinned(header.bytes) != pinned(before) {
            return Err(ChangeError::Pinned);
        }
        let Some(zone) = self.zones.get_mut(&header.name) else { return Ok(false) };
        zone.seal(esp, &header).inspect_err(|error| {
            if *error == ChangeError::Exhausted && self.exhausted.insert(header.grant()) {
                tell(&mut self.news, HeaderNews::Exhausted(header.grant()));
            }
        })?;
        self.stats.changed += 1;
        Ok(true)
    }

    /// What it has keys of, by name, and whether they do.
    pub fn held(&self) -> impl Iterator<Item = (GrantId, Keys)> {
        let ids = self.zones.keys().filter(|name| name.2 == Direction::ToDevice).map(|name| name.1);
        let ids: BTreeSet<GrantId> = ids.collect();
        ids.into_iter().map(|id| (id, self.keys(id)))
    }

    fn keys(&self, id: GrantId) -> Keys {
        if self.stale.contains(&id) {
            Keys::Stale
        } else if self.exhausted.contains(&id) {
            Keys::Exhausted
        } else {
            Keys::Fit
        }
    }

    /// Keys that the key manager was told do not do ([`HeaderNews`]), and still do not.
    pub fn unfit(&self) -> impl Iterator<Item = HeaderNews> {
        let stale = self.stale.iter().copied().map(HeaderNews::Stale);
        stale.chain(self.exhausted.iter().copied().map(HeaderNews::Exhausted))
    }

    /// What the key manager should know, oldest first.
    pub fn poll_news(&mut self) -> Option<HeaderNews> {
        self.news.pop_front()
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> &RouterStats {
        &self.stats
    }

    #[cfg(test)]
    pub(crate) fn use_nonces(&mut self, count: u64) {
        self.zones.values_mut().for_each(|zone| zone.counter.start_at(count));
    }
}

/// Opens the first zone of a packet that has not passed here ([`dormouse_keying::OpenFirstZone`]): nothing is kept of it.
#[must_use]
pub fn open_first_zone(grant: &HeaderGrant, esp: &[u8]) -> Option<Opened> {
    let (spi, _) = split_header(esp)?;
    let names = names(grant.id()).into_iter().zip([&grant.to_device, &grant.from_device]);
    names.filter(|(name, _)| name.0 == spi).find_map(|(name, sa)| {
        let header = HeaderZone::new(grant, sa, sa.reached.highest(), None).ok()?.opened(esp, name)?;
        Some(Opened { to_device: header.is_to_device(), seq: header.seq })
    })
}

/// The two SAs of a grant.
const fn names(id: GrantId) -> [Name; 2] {
    [(id.to_device, id, Direction::ToDevice), (id.from_device, id, Direction::FromDevice)]
}

/// The name before all others of this SPI.
const fn first_of(spi: u32) -> Name {
    (spi, GrantId { to_device: 0, from_device: 0 }, Direction::ToDevice)
}

fn tell(news: &mut VecDeque<HeaderNews>, new: HeaderNews) {
    if news.len() >= NEWS_MOST {
        news.pop_front();
    }
    news.push_back(new);
}
