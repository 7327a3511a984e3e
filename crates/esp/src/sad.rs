//! The security association database, and the policies that lead to it (RFC 4301 sections 4.4 and 5). Owns every ESP SA of a
//! node; must never negotiate one, nor remove one by itself.
//!
//! Inbound, an SPI names the SA. Outbound, the packet's flow is matched against the selectors of the children that send; of
//! several that match, the one whose remote side holds the fewest addresses wins, and among equals the one activated last. Both
//! lookups remember recent answers: bulk traffic costs one comparison.

use std::collections::BTreeMap;

use dormouse_sansio::Path;
use dormouse_wire::ip::{Flow, LastFlow};

use crate::inbound::{Discard, Inbound, Opened, split_header};
use crate::outbound::Outbound;
use crate::params::Mode;
use crate::pmtu::{Overhead, PathMtu};
use crate::selector::{Selectors, bits};
use crate::transport::Original;

/// Remembered outbound flows; a power of two.
const CACHE: usize = 256;

/// A CHILD SA: a pair of ESP SAs with one policy.
#[derive(Debug)]
pub struct Child {
    /// The name that the owner gave it, unique in the [`Sad`].
    pub id: u64,
    /// What we receive.
    pub inbound: Inbound,
    /// What we send.
    pub outbound: Outbound,
    /// The traffic that belongs to it.
    pub selectors: Selectors,
    /// In transport mode through a NAT: what the selectors' addresses are to the peer.
    pub original: Option<Original>,
    /// How its packets travel now.
    pub path: Path,
    /// What its packets grow by on that path. To be replaced together with `path`.
    pub overhead: Overhead,
    /// What the path carries. To be replaced together with `path`.
    pub pmtu: PathMtu,
}

/// A packet that [`Sad::open`] accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// Which child it came through.
    pub id: u64,
    /// What was inside.
    pub opened: Opened,
    /// Its flow, in tunnel mode; none for a dummy.
    pub flow: Option<Flow>,
}

/// All ESP SAs of a node.
#[derive(Debug, Default)]
pub struct Sad {
    children: BTreeMap<u64, Child>,
    by_spi: BTreeMap<u32, u64>,
    /// Children that send and whose remote side is one address: found by that address.
    hosts: BTreeMap<(bool, u128), Vec<u64>>,
    /// The other children that send, narrowest first.
    nets: Vec<u64>,
    cache: Cache,
    /// The flow accepted last, and through which child: its selectors need no second look.
    accepted: Option<(u64, LastFlow)>,
}

impl Sad {
    /// An empty database.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a child; it receives from now on, and sends once it is [`Self::activate`]d. A child of the same id or inbound SPI
    /// is replaced and returned.
    pub fn insert(&mut self, child: Child) -> Option<Child> {
        let old = self.remove(child.id);
        let spi = child.inbound.spi();
        let other = self.by_spi.get(&spi).copied().and_then(|id| self.remove(id));
        self.by_spi.insert(spi, child.id);
        self.children.insert(child.id, child);
        old.or(other)
    }

    /// Lets a child send: it is preferred over those with equally specific selectors that were activated before. Returns
    /// whether there is such a child.
    /// "Implementations MUST handle this situation, either by disallowing conflicting connections, or by other means." (RFC
    /// 3948 section 5.2)
    pub fn activate(&mut self, id: u64) -> bool {
        self.deactivate(id);
        let Some(child) = self.children.get(&id) else { return false };
        if let Some(host) = single_host(&child.selectors) {
            self.hosts.entry(host).or_default().insert(0, id);
        } else {
            let breadth = child.selectors.breadth();
            let wider =
                |other: &u64| self.children.get(other).is_none_or(|c| c.selectors.breadth() >= breadth);
            let at = self.nets.iter().position(wider).unwrap_or(self.nets.len());
            self.nets.insert(at, id);
        }
        true
    }

    /// Lets a child only receive: another has replaced it.
    /// "[...] a node MUST accept incoming packets through either SA" (RFC 7296 section 2.8.1)
    pub fn deactivate(&mut self, id: u64) {
        self.cache.clear();
        self.nets.retain(|other| *other != id);
        self.hosts.retain(|_, ids| {
            ids.retain(|other| *other != id);
            !ids.is_empty()
        });
    }

    /// Takes a child out.
    pub fn remove(&mut self, id: u64) -> Option<Child> {
        let child = self.children.remove(&id)?;
        self.by_spi.remove(&child.inbound.spi());
        self.deactivate(id);
        self.accepted = None;
        Some(child)
    }

    /// A child by its id.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Child> {
        self.children.get(&id)
    }

    /// A child by its id.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Child> {
        self.children.get_mut(&id)
    }

    /// All children, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Child> {
        self.children.values()
    }

    /// All children, by id.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        self.children.values_mut()
    }

    /// The child with this inbound SPI.
    #[must_use]
    pub fn by_spi(&self, spi: u32) -> Option<u64> {
        self.by_spi.get(&spi).copied()
    }

    /// The child that sends packets of `flow`; `None` if no policy covers them. All segments of one super-packet are one flow:
    /// ask once.
    pub fn route(&mut self, flow: &Flow) -> Option<u64> {
        if let Some(id) = self.cache.get(flow) {
            return Some(id);
        }
        let host = self.hosts.get(&(flow.dst.is_ipv4(), bits(flow.dst)));
        let id = host
            .into_iter()
            .flatten()
            .chain(&self.nets)
            .copied()
            .find(|id| self.children.get(id).is_some_and(|c| c.selectors.match_outbound(flow)))?;
        self.cache.put(*flow, id);
        Some(id)
    }

    /// Another child that sends what `id` would: one with the same selectors.
    #[must_use]
    pub fn twin(&self, id: u64) -> Option<u64> {
        let selectors = &self.children.get(&id)?.selectors;
        let like = match single_host(selectors) {
            Some(host) => self.hosts.get(&host)?,
            None => &self.nets,
        };
        let is_twin = |other: &u64| self.children.get(other).is_some_and(|c| c.selectors == *selectors);
        like.iter().copied().find(|other| *other != id && is_twin(other))
    }

    /// Authenticates and decrypts an ESP packet in place and checks that the inner packet is one that its SA may carry.
    ///
    /// RFC 4301 section 5.2, step 4: "if the packet does not match the selectors of the SA ... the packet MUST be discarded".
    /// In transport mode the addresses are outside: there the caller checks, with [`Selectors::match_inbound`].
    /// "If no valid Security Association exists for this packet, the receiver MUST discard the packet" (RFC 4303 section 3.4.2)
    /// "Depending on local policy, one of the following MUST be done" (RFC 3948 section 3.1.1): the inner source is verified.
    ///
    /// # Errors
    /// The reason why the packet must be dropped and counted.
    pub fn open(&mut self, packet: &mut [u8]) -> Result<Accepted, Discard> {
        let len = packet.len();
        let (spi, _) =
            split_header(packet).ok_or(Discard::Length { len, need: crate::ESP_HEADER_LEN, step: 4 })?;
        let unknown = Discard::UnknownSpi { spi };
        let id = self.by_spi(spi).ok_or(unknown)?;
        let child = self.children.get_mut(&id).ok_or(unknown)?;
        let opened = child.inbound.open(packet)?;
        if child.inbound.mode() == Mode::Transport || opened.is_dummy() {
            return Ok(Accepted { id, opened, flow: None });
        }
        let inner = packet.get(opened.inner.clone()).unwrap_or_default();
        if let Some((child, last)) = &self.accepted
            && *child == id
            && last.is_flow_of(inner)
        {
            return Ok(Accepted { id, opened, flow: Some(last.flow()) });
        }
        let last = LastFlow::new(inner).ok_or(Discard::Inner { len: inner.len() })?;
        if !child.selectors.match_inbound(&last.flow()) {
            return Err(Discard::Selectors);
        }
        self.accepted = Some((id, last));
        Ok(Accepted { id, opened, flow: Some(last.flow()) })
    }
}

/// The one remote address of these selectors, if it is one: what a gateway has for each of its clients.
fn single_host(selectors: &Selectors) -> Option<(bool, u128)> {
    let first = selectors.remote().first()?;
    let single = selectors.remote().iter().all(|ts| ts.start == first.start && ts.end == first.start);
    single.then(|| (first.start.is_ipv4(), bits(first.start)))
}

/// Recent answers of [`Sad::route`], direct-mapped by a fixed hash.
struct Cache(Box<[Option<(Flow, u64)>; CACHE]>);

impl Default for Cache {
    fn default() -> Self {
        Self(Box::new([None; CACHE]))
    }
}

impl Cache {
    fn slot(flow: &Flow) -> usize {
        let ports = u64::from(flow.src_port.unwrap_or(0)) << 16 | u64::from(flow.dst_port.unwrap_or(0));
        let addresses = bits(flow.src).wrapping_mul(3) ^ bits(flow.dst);
        let mixed = (addresses as u64 ^ (addresses >> 64) as u64 ^ ports << 8 ^ u64::from(flow.protocol))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as usize % CACHE
    }

    fn get(&self, flow: &Flow) -> Option<u64> {
        match self.0.get(Self::slot(flow)) {
            Some(Some((known, id))) if known == flow => Some(*id),
            _ => None,
        }
    }

    fn put(&mut self, flow: Flow, id: u64) {
        if let Some(entry) = self.0.get_mut(Self::slot(&flow)) {
            *entry = Some((flow, id));
        }
    }

    fn clear(&mut self) {
        self.0.fill(None);
    }
}

impl core::fmt::Debug for Cache {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Cache({} flows)", self.0.iter().flatten().count())
    }
}
