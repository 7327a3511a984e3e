//! The security association database, and the policies that lead to it (RFC 4301 sections 4.4 and 5). Owns every ESP SA of a
//! node, which of them sends, and the inbound SPIs; must never negotiate.
//!
//! Inbound, an SPI names the SA. Outbound, the packet's flow is matched against the selectors of the tunnels that send; of
//! several that match, the one whose remote side holds the fewest addresses wins, and among equals the one activated last. Both
//! lookups remember recent answers: bulk traffic costs one comparison. Where tunnels of one owner with the same selectors share the traffic by
//! policy ([`Sad::among`]), each packet is asked about; all of them receive.
//!
//! # Timers
//! *late packets*: a tunnel that both ends have deleted drains for [`DRAIN`] where another carries its traffic: what its peer sent
//! before the deletion may arrive after it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dormouse_keying::{ChildId, Install, Mode, Owner, Share};
use dormouse_sansio::{Deadline, Entropy, Instant};
use dormouse_wire::ip::{Flow, LastFlow};

use crate::discard::Discard;
use crate::inbound::Opened;
use crate::layout::split_header;
use crate::selector::{Selectors, bits};
use crate::spis::Spis;
use crate::tunnel::{InstallError, State, Tunnel};

/// Remembered outbound flows; a power of two.
const CACHE: usize = 256;
/// How long after its deletion a tunnel drains: more than any network keeps a packet back without losing it.
pub const DRAIN: Duration = Duration::from_secs(5);
/// Nothing waits for the end of a drained tunnel but the memory of its keys.
const DRAIN_SLACK: Duration = Duration::from_secs(60);
/// Most tunnels that drain at once; the oldest ends first.
const DRAINING_MOST: usize = 4_096;

/// A packet that [`Sad::open`] accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// Which tunnel it came through.
    pub id: ChildId,
    /// What was inside.
    pub opened: Opened,
    /// Its flow, in tunnel mode; none for a dummy.
    pub flow: Option<Flow>,
}

/// All ESP SAs of a node.
#[derive(Debug, Default)]
pub struct Sad {
    /// Boxed: the map's nodes are half empty.
    tunnels: BTreeMap<ChildId, Box<Tunnel>>,
    spis: Spis,
    /// The tunnels of each owner that do not drain, in the order of their installation.
    by_owner: BTreeMap<Owner, Vec<ChildId>>,
    /// The tunnels that drain, in the order in which they end.
    draining: VecDeque<ChildId>,
    /// Tunnels that send and whose remote side is one address: found by that address.
    hosts: BTreeMap<(bool, u128), Vec<ChildId>>,
    /// The other tunnels that send, narrowest first.
    nets: Vec<ChildId>,
    cache: Cache,
    /// The flow accepted last, and through which tunnel: its selectors need no second look.
    accepted: Option<(ChildId, LastFlow)>,
    /// Tunnels with a share of their own. None: [`Self::among`] has nothing to choose from.
    sharing: usize,
    /// Of these, those whose share depends on the signal.
    by_signal: usize,
    /// The signal of the radio in dBm, as it was told last.
    signal: Option<i8>,
    /// Packets that came, but for dummies.
    came: u64,
    /// Tunnels can be lent: their keys are kept.
    lends: bool,
    /// How often a tunnel began to send.
    begun: u64,
}

impl Sad {
    /// An empty database.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The SPIs of this database, for a key manager.
    #[must_use]
    pub fn spis(&self) -> Spis {
        self.spis.clone()
    }

    /// Installs what a key manager orders. It receives from now on; it sends at once, in place of the one that it replaces, if the
    /// peer is known to have its half.
    ///
    /// # Errors
    /// If it cannot be made or its SPI is in use; an SPI that was only reserved is given back.
    pub fn install(
        &mut self,
        install: &Install,
        link_mtu: u16,
        entropy: &mut dyn Entropy,
    ) -> Result<(), InstallError> {
        let id = install.child;
        if self.tunnels.contains_key(&id) {
            return Err(InstallError::SpiInUse(id));
        }
        let mut tunnel = Tunnel::new(install, link_mtu, entropy).inspect_err(|_| self.refuse(id))?;
        if self.lends {
            tunnel = tunnel.keeping_keys(install);
        }
        self.insert(tunnel)?;
        if install.send_now {
            self.activate(id);
        }
        Ok(())
    }

    /// The tunnels of from now on can be lent ([`Tunnel::lend`]).
    pub const fn let_lend(&mut self) {
        self.lends = true;
    }

    /// Gives the SPI of an order back that is not carried out.
    pub fn refuse(&mut self, id: ChildId) {
        if !self.tunnels.contains_key(&id) {
            self.spis.give_back(id);
        }
    }

    /// Adds a tunnel on standby: it receives from now on, and sends once it is [`Self::activate`]d.
    ///
    /// # Errors
    /// If its SPI is that of another tunnel, which stays.
    pub fn insert(&mut self, mut tunnel: Tunnel) -> Result<(), InstallError> {
        let id = tunnel.id();
        if self.tunnels.contains_key(&id) {
            return Err(InstallError::SpiInUse(id));
        }
        if let State::Standby { replaces: Some(old) } = tunnel.state
            && let Some(old) = self.tunnels.get(&old)
        {
            tunnel.turn.succeed(&old.turn);
        }
        tunnel.turn.hear_signal(self.signal);
        self.by_signal += usize::from(matches!(tunnel.share(), Share::Signal(_)));
        self.spis.take(id);
        self.by_owner.entry(tunnel.owner).or_default().push(id);
        self.sharing += usize::from(!tunnel.share().is_rest());
        self.tunnels.insert(id, Box::new(tunnel));
        Ok(())
    }

    /// Lets a tunnel on standby send: it is preferred over those with equally specific selectors that were activated before, and
    /// the one that it replaces sends no more. Returns whether it was on standby.
    /// "Implementations MUST handle this situation, either by disallowing conflicting connections, or by other means." (RFC
    /// 3948 section 5.2)
    pub fn activate(&mut self, id: ChildId) -> bool {
        let Some(tunnel) = self.tunnels.get_mut(&id) else { return false };
        let State::Standby { replaces } = tunnel.state else { return false };
        tunnel.state = State::Active;
        let (host, breadth) = (single_host(&tunnel.selectors), tunnel.selectors.breadth());
        if let Some(host) = host {
            self.hosts.entry(host).or_default().insert(0, id);
        } else {
            let wider =
                |other: &ChildId| self.tunnels.get(other).is_none_or(|t| t.selectors.breadth() >= breadth);
            let at = self.nets.iter().position(wider).unwrap_or(self.nets.len());
            self.nets.insert(at, id);
        }
        self.begun += 1;
        self.cache.clear();
        let mut old = replaces;
        while let Some(tunnel) = old.and_then(|old| self.tunnels.get_mut(&old)) {
            let id = tunnel.id();
            old = match std::mem::replace(&mut tunnel.state, State::Replaced) {
                State::Standby { replaces } => replaces,
                State::Active | State::Replaced => None,
                draining @ State::Draining { .. } => {
                    tunnel.state = draining;
                    None
                }
            };
            self.stop_sending(id);
        }
        true
    }

    /// A tunnel only receives from now on.
    /// "[...] a node MUST accept incoming packets through either SA" (RFC 7296 section 2.8.1)
    fn stop_sending(&mut self, id: ChildId) {
        self.cache.clear();
        let host = self.tunnels.get(&id).and_then(|t| single_host(&t.selectors));
        match host {
            None => self.nets.retain(|other| *other != id),
            Some(host) => {
                if let Some(ids) = self.hosts.get_mut(&host) {
                    ids.retain(|other| *other != id);
                    if ids.is_empty() {
                        self.hosts.remove(&host);
                    }
                }
            }
        }
    }

    /// Takes a tunnel out, and gives its SPI back.
    pub fn remove(&mut self, id: ChildId) -> Option<Box<Tunnel>> {
        self.stop_sending(id);
        let tunnel = self.tunnels.remove(&id)?;
        self.leave_owner(tunnel.owner, id);
        self.sharing -= usize::from(!tunnel.share().is_rest());
        self.by_signal -= usize::from(matches!(tunnel.share(), Share::Signal(_)));
        if matches!(tunnel.state, State::Draining { .. }) {
            self.draining.retain(|other| *other != id);
        }
        self.spis.give_back(id);
        self.accepted = None;
        Some(tunnel)
    }

    fn leave_owner(&mut self, owner: Owner, id: ChildId) {
        if let Some(ids) = self.by_owner.get_mut(&owner) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    /// Both ends have deleted a tunnel. Those that were to replace it send from now on. Where another tunnel has the same
    /// selectors, and `is_heir` says that its owner has the same peer, this one belongs to that owner now, and drains until
    /// [`DRAIN`] is over or that owner is gone; elsewhere it ends at once.
    pub fn retire(&mut self, now: Instant, id: ChildId, is_heir: impl FnOnce(Owner) -> bool) {
        let Some(owner) = self.tunnels.get(&id).map(|t| t.owner) else { return };
        // The peer has deleted the old one, so it has the new one.
        let next = |other: &&ChildId| {
            self.tunnels.get(other).is_some_and(|t| t.state == State::Standby { replaces: Some(id) })
        };
        let successors: Vec<ChildId> = self.of(owner).iter().filter(next).copied().collect();
        successors.into_iter().for_each(|successor| _ = self.activate(successor));
        let heir = self.twin(id).and_then(|twin| self.tunnels.get(&twin)).map(|t| t.owner);
        let Some(heir) = heir.filter(|heir| is_heir(*heir)) else {
            self.remove(id);
            return;
        };
        self.stop_sending(id);
        self.leave_owner(owner, id);
        if let Some(tunnel) = self.tunnels.get_mut(&id) {
            tunnel.owner = heir;
            tunnel.state = State::Draining { until: now + DRAIN };
            self.draining.push_back(id);
        }
        if self.draining.len() > DRAINING_MOST {
            self.draining.front().copied().and_then(|oldest| self.remove(oldest));
        }
    }

    /// Whether tunnels drain for this owner.
    #[must_use]
    pub fn drains_for(&self, owner: Owner) -> bool {
        self.draining.iter().any(|id| self.tunnels.get(id).is_some_and(|t| t.owner == owner))
    }

    /// The tunnels that drain for an owner end at once.
    pub fn end_draining_of(&mut self, owner: Owner) {
        let of_owner = |id: &&ChildId| self.tunnels.get(id).is_some_and(|t| t.owner == owner);
        let over: Vec<ChildId> = self.draining.iter().filter(of_owner).copied().collect();
        over.into_iter().for_each(|id| _ = self.remove(id));
    }

    fn drained(&self) -> Option<(Instant, ChildId)> {
        let id = *self.draining.front()?;
        match self.tunnels.get(&id)?.state {
            State::Draining { until } => Some((until, id)),
            _ => None,
        }
    }

    /// Ends the tunnels that have drained.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, id)) = self.drained().filter(|(until, _)| *until <= now) {
            self.remove(id);
        }
    }

    /// When the first of the draining tunnels ends.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.timers().next()
    }

    /// When each of the draining tunnels ends, the first one first.
    pub fn timers(&self) -> impl Iterator<Item = Deadline> {
        let ends = self.draining.iter().filter_map(|id| match self.tunnels.get(id)?.state {
            State::Draining { until } => Some(until),
            _ => None,
        });
        ends.map(|at| Deadline { at, slack: DRAIN_SLACK, why: "late packets" })
    }

    /// A tunnel by its name.
    #[must_use]
    pub fn get(&self, id: ChildId) -> Option<&Tunnel> {
        self.tunnels.get(&id).map(AsRef::as_ref)
    }

    /// A tunnel by its name.
    pub fn get_mut(&mut self, id: ChildId) -> Option<&mut Tunnel> {
        self.tunnels.get_mut(&id).map(AsMut::as_mut)
    }

    /// Little is expected from or to the peer of `owner` for a while: memory is given back that the next packet takes again.
    pub fn rest(&mut self, owner: Owner) {
        for id in self.by_owner.get(&owner).into_iter().flatten() {
            if let Some(tunnel) = self.tunnels.get_mut(id) {
                tunnel.inbound.rest();
                tunnel.outbound.rest();
            }
        }
    }

    /// All tunnels, by name.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Tunnel> {
        self.tunnels.values_mut().map(AsMut::as_mut)
    }

    /// The tunnels of an owner that do not drain, in the order of their installation.
    #[must_use]
    pub fn of(&self, owner: Owner) -> &[ChildId] {
        self.by_owner.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// The tunnel that sends packets of `flow`; `None` if no policy covers them. All segments of one super-packet are one flow:
    /// ask once.
    pub fn route(&mut self, flow: &Flow) -> Option<ChildId> {
        if let Some(id) = self.cache.get(flow) {
            return Some(id);
        }
        let host = self.hosts.get(&(flow.dst.is_ipv4(), bits(flow.dst)));
        let id = host
            .into_iter()
            .flatten()
            .chain(&self.nets)
            .copied()
            .find(|id| self.tunnels.get(id).is_some_and(|t| t.selectors.match_outbound(flow)))?;
        self.cache.put(*flow, id);
        Some(id)
    }

    /// How often a tunnel began to send: while this is the same, so is an answer "no" of [`Self::meets_another`].
    #[must_use]
    pub const fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether a tunnel of another owner sends to some address to which this one sends, from which of ours ever. Ranges with an end before their beginning,
    /// or of another family, hold no address.
    #[must_use]
    pub fn meets_another(&self, id: ChildId) -> bool {
        let Some(tunnel) = self.tunnels.get(&id) else { return false };
        let others = |other: &ChildId| self.tunnels.get(other).filter(|t| t.owner != tunnel.owner);
        let remote = tunnel.selectors.remote();
        let keys = remote.iter().map(|ts| [ts.start, ts.end].map(|at| (at.is_ipv4(), bits(at))));
        let mut hosts = keys
            .filter(|[start, end]| start.0 == end.0 && start <= end)
            .flat_map(|[start, end]| self.hosts.range(start..=end))
            .flat_map(|(_, ids)| ids);
        hosts.any(|other| others(other).is_some())
            || self.nets.iter().any(|net| others(net).is_some_and(|t| t.selectors.meets(&tunnel.selectors)))
    }

    /// The signal of the radio is so many dBm; `None`: there is none, or it is not known.
    pub fn set_signal(&mut self, signal: Option<i8>) {
        self.signal = signal;
        self.tunnels.values_mut().for_each(|tunnel| tunnel.turn.hear_signal(signal));
    }

    /// The signal, as it was told last.
    #[must_use]
    pub const fn signal(&self) -> Option<i8> {
        self.signal
    }

    /// Whether [`Self::among`] depends on the signal.
    #[must_use]
    pub const fn chooses_by_signal(&self) -> bool {
        self.by_signal > 0
    }

    /// Whether a tunnel whose share is all packets for a time takes them now; `None` for one with another share.
    #[must_use]
    pub fn takes_all(&self, id: ChildId) -> Option<bool> {
        let tunnel = self.tunnels.get(&id)?;
        match tunnel.share() {
            Share::Signal(_) => Some(tunnel.turn.is_for_weak()),
            Share::AsPeer => Some(self.latest(tunnel.owner, id) == Some(id)),
            Share::Rest | Share::Every(_) | Share::Marked(_) => None,
        }
    }

    /// Of the tunnels of this owner with the selectors of `id`, the one by which the last packet came.
    fn latest(&self, owner: Owner, id: ChildId) -> Option<ChildId> {
        let (latest, tunnel) = self.alike(owner, id).max_by_key(|(_, like)| like.turn.came())?;
        (tunnel.turn.came() > 0).then_some(latest)
    }

    /// The tunnel that takes this packet independently of turns: one that takes its mark; or else one that takes all now.
    fn takes(&self, owner: Owner, id: ChildId, packet: &[u8]) -> Option<ChildId> {
        let first = |takes: &dyn Fn(&Tunnel) -> bool| {
            self.alike(owner, id).find(|(_, like)| takes(like)).map(|(like, _)| like)
        };
        let as_peer = || {
            let latest = self.latest(owner, id).and_then(|latest| self.get(latest));
            latest.filter(|latest| latest.share() == Share::AsPeer).map(Tunnel::id)
        };
        let marked = first(&|like| like.turn.takes_mark(packet));
        marked.or_else(|| first(&|like| like.turn.is_for_weak())).or_else(as_peer)
    }

    /// Which tunnel sends this packet, or these `packets` in one piece, of those of the same owner with the same selectors as `id`, which
    /// [`Self::route`] found: one that takes its mark; or else one that takes all because the signal is weak, or because the peer's come by it; or
    /// else one whose turn it is; or else one that takes the rest; or else `id` or another. Each call counts as packets sent. `None`: only tunnels are
    /// there that do not encrypt and whose share it is not, and it must not be sent.
    pub fn among(&mut self, id: ChildId, packet: &[u8], packets: usize) -> Option<ChildId> {
        if self.sharing == 0 {
            return Some(id);
        }
        let Some(tunnel) = self.tunnels.get(&id) else { return Some(id) };
        let owner = tunnel.owner;
        if let Some(takes) = self.takes(owner, id, packet) {
            return Some(takes);
        }
        // The packet counts for the turns of all, whichever takes it: each has its own share.
        let mut first = None;
        for index in 0..self.of(owner).len() {
            let like = self.of(owner).get(index).copied().filter(|like| self.is_alike(*like, id));
            let Some(like) = like else { continue };
            if self.tunnels.get_mut(&like).is_some_and(|tunnel| tunnel.turn.comes(packets)) {
                first = first.or(Some(like));
            }
        }
        if let Some(turn) = first {
            self.tunnels.get_mut(&turn).into_iter().for_each(|tunnel| tunnel.turn.takes(packets));
            return Some(turn);
        }
        // It goes by one that was not chosen for it, but never in clear by one that was chosen for others. HIP may have been told to encrypt nothing.
        let sealed = |of: &Tunnel| !of.is_readable() || matches!(owner, Owner::Hip(_));
        let rest = |like: &Tunnel| like.share().is_rest() && sealed(like);
        if let Some((rest, _)) = self.alike(owner, id).filter(|(_, like)| rest(like)).last() {
            return Some(rest);
        }
        let other = || self.alike(owner, id).filter(|(_, like)| sealed(like)).last().map(|(other, _)| other);
        self.get(id).filter(|tunnel| sealed(tunnel)).map(Tunnel::id).or_else(other)
    }

    /// The largest inner packet, in bytes, that fits the path of this tunnel, whose own is `own`, and of every other that [`Self::among`] may choose
    /// for it: a connection that was told a larger size on one would be too large for another.
    #[must_use]
    pub fn narrowest(&self, now: Instant, id: ChildId, own: usize) -> usize {
        if self.sharing == 0 {
            return own;
        }
        let Some(tunnel) = self.tunnels.get(&id) else { return own };
        self.alike(tunnel.owner, id).fold(own, |least, (_, like)| least.min(like.inner_mtu(now)))
    }

    /// The tunnels of this owner that send, with the selectors of `id`, itself included; in the order of their installation.
    fn alike(&self, owner: Owner, id: ChildId) -> impl Iterator<Item = (ChildId, &Tunnel)> {
        let alike = self.of(owner).iter().copied().filter(move |like| self.is_alike(*like, id));
        alike.filter_map(|id| Some((id, self.get(id)?)))
    }

    fn is_alike(&self, like: ChildId, id: ChildId) -> bool {
        let [Some(like), Some(tunnel)] = [like, id].map(|id| self.tunnels.get(&id)) else { return false };
        like.state == State::Active && like.selectors == tunnel.selectors
    }

    /// Another tunnel that sends what this one would: one with the same selectors.
    fn twin(&self, id: ChildId) -> Option<ChildId> {
        let selectors = &self.tunnels.get(&id)?.selectors;
        let like = match single_host(selectors) {
            Some(host) => self.hosts.get(&host)?,
            None => &self.nets,
        };
        let is_twin = |other: &ChildId| self.tunnels.get(other).is_some_and(|t| t.selectors == *selectors);
        like.iter().copied().find(|other| *other != id && is_twin(other))
    }

    /// Authenticates and decrypts an ESP packet in place and checks that the inner packet is one that its SA may carry.
    ///
    /// RFC 4301 section 5.2, step 4: "if the packet does not match the selectors of the SA ... the packet MUST be discarded".
    /// Where the IP header is not carried, [`Tunnel::rebuild`] makes it and checks it.
    /// "If no valid Security Association exists for this packet, the receiver MUST discard the packet" (RFC 4303 section 3.4.2)
    /// "Depending on local policy, one of the following MUST be done" (RFC 3948 section 3.1.1): the inner source is verified.
    ///
    /// # Errors
    /// The reason why the packet must be dropped and counted.
    pub fn open(&mut self, packet: &mut [u8]) -> Result<Accepted, Discard> {
        let len = packet.len();
        let (spi, _) =
            split_header(packet).ok_or(Discard::Length { len, need: crate::ESP_HEADER_LEN, step: 4 })?;
        let id = ChildId::new(spi);
        let tunnel = self.tunnels.get_mut(&id).ok_or(Discard::UnknownSpi { spi })?;
        let opened = tunnel.inbound.open(packet)?;
        if !opened.is_dummy() {
            self.came += 1;
            tunnel.turn.note(self.came);
        }
        if tunnel.mode() != Mode::Tunnel || opened.is_dummy() {
            return Ok(Accepted { id, opened, flow: None });
        }
        let inner = packet.get(opened.inner.clone()).unwrap_or_default();
        if let Some((tunnel, last)) = &self.accepted
            && *tunnel == id
            && last.is_flow_of(inner)
        {
            return Ok(Accepted { id, opened, flow: Some(last.flow()) });
        }
        let last = LastFlow::new(inner).ok_or(Discard::Inner { len: inner.len() })?;
        if !tunnel.selectors.match_inbound(&last.flow()) {
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
struct Cache(Box<[Option<(Flow, ChildId)>; CACHE]>);

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

    fn get(&self, flow: &Flow) -> Option<ChildId> {
        match self.0.get(Self::slot(flow)) {
            Some(Some((known, id))) if known == flow => Some(*id),
            _ => None,
        }
    }

    fn put(&mut self, flow: Flow, id: ChildId) {
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
