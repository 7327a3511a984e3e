//! An access router: whole packets between its two sides, the device's, where the radio is, and the network's. It stands where
//! `dormouse-snoop` wants to: packets for the device are opened when they come, wait here until the radio is free, and the repair keeps each when the radio takes it.
//!
//! Owns the queue in front of the radio, and what is asked of key managers and when again; what is kept, repeated and hidden is the
//! repair's. Must never change a packet, make one but for answers to devices' reports, or hold one back for want of keys: what it cannot read goes on as it came.

mod turns;
mod visits;

use super::wish::Wish;
use super::{Host, Output};
use crate::config::access_router::{Repair as Kind, Router as Settings};
use dormouse_crypto::cert::Identity;
use dormouse_esp::{HeaderZones, Keys, RouterStats};
use dormouse_keying::{GrantId, HeaderNews, HeaderOrder};
use dormouse_sansio::{Deadline, Instant};
use dormouse_snoop::arq::Stats as ArqStats;
use dormouse_snoop::tcp::Stats;
use dormouse_snoop::{FirstZone, Followed, Reader, Repair, Unknown, Verdict};
use dormouse_wire::ip;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;
use turns::Turns;
use visits::Visits;

/// What waits for a radio of a known rate is at most what it carries in this time, and [`WAITING_LEAST`] at least.
const WAITING_TIME: Duration = Duration::from_millis(250);
/// In bytes.
const WAITING_LEAST: usize = 32 << 10;
/// A driver that comes this late lets the radio catch up.
const CATCH_UP: Duration = Duration::from_millis(2);
/// The first pause before keys are asked for again; each further one is twice as long, up to [`ASK_LONGEST`].
const ASK_AGAIN: Duration = Duration::from_secs(2);
const ASK_LONGEST: Duration = Duration::from_secs(600);
/// The same for keys that are missing: a stranger who repeats packets of a device here makes the pause long, and the device may come.
const MISSING_LONGEST: Duration = Duration::from_secs(60);
/// Between any two questions: gateways take ten a second from a router.
const ASK_PACE: Duration = Duration::from_millis(200);
/// SAs about which was asked. One that has not been asked about for longest gives way.
const ASKED_MOST: usize = 256;
/// Keys that were taken back, and are remembered by name; the oldest is forgotten first.
const TAKEN_BACK_MOST: usize = 256;

/// Flows that [`RouterInfo::flows`] lists: the status of a router with a thousand stays short.
const FLOWS_LISTED: usize = 16;

/// A side of an access router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Where devices are.
    Device,
    /// Where their gateways are.
    Network,
}

/// What an access router has counted, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterCounters {
    /// Sent to devices, repetitions included.
    pub to_device: u64,
    /// Sent to the network.
    pub to_network: u64,
    /// Dropped because too many waited for the radio.
    pub dropped: u64,
    /// Not counted in packets: questions for keys.
    pub asked: u64,
}

/// How an access router stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RouterInfo {
    /// What it has counted.
    pub counters: RouterCounters,
    /// Packets that wait for the radio.
    pub waiting: usize,
    /// What the repair has done.
    pub snoop: Stats,
    /// With esp-arq: reports of devices that were taken.
    pub reports: u64,
    /// Connections (with esp-arq: SAs), copies and their bytes that are held now.
    pub held: (usize, usize, usize),
    /// These connections or SAs, those with the latest packet first; no more than 16 of them.
    pub flows: Vec<Followed>,
    /// What was opened with header keys.
    pub zones: RouterStats,
    /// The header keys, and whether they do.
    pub keys: Vec<(GrantId, Keys)>,
}

/// What a gateway, or the router before, is asked or told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Question {
    /// For keys of the SA at this gateway with this SPI. Whose address its packets have as the device's does not count: who forges them has many.
    Missing(IpAddr, u32),
    /// This device has come, and its keys were here.
    Came(IpAddr, GrantId),
    Stale(GrantId),
    Exhausted(GrantId),
}

impl Question {
    /// What is asked because of this news; nothing, of keys that are gone.
    const fn because(news: HeaderNews) -> Option<Self> {
        match news {
            HeaderNews::Stale(id) => Some(Self::Stale(id)),
            HeaderNews::Exhausted(id) => Some(Self::Exhausted(id)),
            HeaderNews::Unusable(_) => None,
        }
    }

    const fn missing(of: &Unknown) -> Self {
        Self::Missing(of.gateway, of.spi)
    }

    fn is_about(self, id: GrantId) -> bool {
        match self {
            Self::Missing(_, spi) => [id.to_device, id.from_device].contains(&spi),
            Self::Came(_, of) | Self::Stale(of) | Self::Exhausted(of) => of == id,
        }
    }
}

/// When something was asked, and how long it is not asked again.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    pause: Duration,
    /// The device, whose being here the question says to the gateway.
    device: Option<IpAddr>,
}

/// A packet for a device that waits for the radio, and what was read of it when it came.
#[derive(Debug)]
struct Waiting {
    packet: Vec<u8>,
    first: FirstZone,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Router {
    repair: Repair,
    /// Bits in a second; 0: the radio is always free.
    rate: u64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    waiting_most: usize,
    /// The radio takes nothing before.
    idle_at: Instant,
    ready: VecDeque<(Side, Vec<u8>)>,
    visits: Visits,
    /// The names of keys that were here and are gone.
    taken_back: VecDeque<GrantId>,
    asked: BTreeMap<Question, Asked>,
    ask_next: Instant,
    turns: Turns,
    wishes: VecDeque<Wish>,
    counters: RouterCounters,
}

impl Router {
    fn new(settings: &Settings) -> Self {
        let rate = u64::from(settings.rate_kbit) * 1_000;
        let most = u128::from(rate) * WAITING_TIME.as_millis() / 8_000;
        Self {
            repair: match settings.repair {
                Kind::None => Repair::None,
                Kind::Snoop => Repair::Snoop(Box::default()),
                Kind::EspArq => Repair::Reported(Box::default()),
            },
            rate,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_most: usize::try_from(most).unwrap_or(usize::MAX).max(WAITING_LEAST),
            idle_at: Instant::ZERO,
            ready: VecDeque::new(),
            visits: Visits::default(),
            taken_back: VecDeque::new(),
            asked: BTreeMap::new(),
            ask_next: Instant::ZERO,
            turns: Turns::default(),
            wishes: VecDeque::new(),
            counters: RouterCounters::default(),
        }
    }

    fn handle_packet(&mut self, now: Instant, from: Side, packet: Vec<u8>) {
        // What the kernel itself sends on the interfaces that lead here (link-local, multicast) is not to be forwarded.
        if ip::flow(&packet).is_none_or(|flow| flow.dst.is_multicast() || flow.src.is_unspecified()) {
            return;
        }
        match from {
            Side::Network => {
                // From now on it has passed here, also if it is dropped: who shows it elsewhere shows nothing new.
                let first = self.repair.arrive(&packet);
                if packet.len() > self.waiting_most.saturating_sub(self.waiting_bytes) {
                    self.counters.dropped += 1;
                } else {
                    self.waiting_bytes += packet.len();
                    self.waiting.push_back(Waiting { packet, first });
                }
            }
            Side::Device => {
                if self.repair.from_device(now, &packet) == Verdict::Forward {
                    self.counters.to_network += 1;
                    self.ready.push_back((Side::Network, packet));
                }
            }
        }
        self.pump(now);
        self.ask(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.repair.handle_timeout(now);
        self.pump(now);
        self.ask(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        Deadline::earliest(self.repair.poll_timeout().into_iter().chain(self.own_timers()))
    }

    pub(super) fn timers(&self) -> impl Iterator<Item = Deadline> + use<> {
        self.repair.timers().into_iter().chain(self.own_timers())
    }

    fn own_timers(&self) -> impl Iterator<Item = Deadline> + use<> {
        let waits = !self.waiting.is_empty() || self.repair.is_due();
        let turn = waits.then(|| Deadline::strict(self.idle_at, "the radio is free for the next packet"));
        let question = || Deadline::strict(self.ask_next, "the next question for header keys");
        turn.into_iter().chain(self.turns.wait_any().then(question))
    }

    pub(super) fn poll_packet(&mut self) -> Option<(Side, Vec<u8>)> {
        self.ready.pop_front()
    }

    pub(super) fn poll_wish(&mut self) -> Option<Wish> {
        self.wishes.pop_front()
    }

    /// There is no session by which these keys could be asked for: they are asked for as soon again as for the first time.
    pub(super) fn not_asked(&mut self, gateway: IpAddr, spi: u32) {
        if let Some(asked) = self.asked.get_mut(&Question::Missing(gateway, spi)) {
            (asked.pause, asked.device) = (ASK_AGAIN, None);
            self.counters.asked -= 1;
        }
    }

    /// The gateway has been told that a device has come.
    pub(super) fn told(&mut self, device: IpAddr, id: GrantId) {
        self.asked.remove(&Question::Came(device, id));
        if let Some(reader) = self.repair.reader() {
            reader.forget_device(device);
        }
    }

    fn device_has_come(&mut self, now: Instant, device: IpAddr, previous: Option<Identity>) {
        // Who only asks to be registered may repeat what the device has said elsewhere: it says whom to ask, and the gateway hears nothing.
        let registered = previous.is_none();
        self.visits.come(now, device, previous);
        if let Some(reader) = self.repair.reader().filter(|_| registered) {
            reader.await_device(device);
        }
    }

    fn device_has_gone(&mut self, now: Instant, device: IpAddr) {
        self.visits.go(now, device);
        self.turns.forget(|unknown| unknown.device == device);
        if let Some(reader) = self.repair.reader() {
            reader.forget_device(device);
        }
    }

    /// Takes keys, or forgets them.
    pub(super) fn obey(&mut self, order: &HeaderOrder) {
        let id = match order {
            HeaderOrder::Grant(grant) => grant.id(),
            HeaderOrder::Revoke(id) => *id,
        };
        if self.repair.reader().is_none() {
            return;
        }
        match (self.repair.obey(order), order) {
            (Ok(()), HeaderOrder::Grant(_)) => {
                self.read_waiting();
                self.taken_back.retain(|of| *of != id);
                self.turns.forget(|unknown| Question::missing(unknown).is_about(id));
                self.forget_answered(id);
                // Keys that look stale again after they were replaced may be due to forged packets: ask with growing intervals.
                let stale = Question::Stale(id);
                self.asked.retain(|question, _| !question.is_about(id) || *question == stale);
                tracing::info!(sa = %Name(id), "header keys came");
            }
            (Ok(()), HeaderOrder::Revoke(_)) => {
                self.forget_waiting(id);
                self.note_taken_back(id);
                tracing::info!(sa = %Name(id), "header keys were taken back");
            }
            (Err(error), _) => {
                tracing::warn!(sa = %Name(id), %error, "header keys cannot be used");
                // Nor any of the same name that were here before: the gateway hears that there are none.
                let _gone = self.repair.obey(&HeaderOrder::Revoke(id));
                self.forget_waiting(id);
                self.wishes.push_back(Wish::Other(HeaderNews::Unusable(id)));
            }
        }
    }

    /// Keys have come: packets that came before them and wait count as passed too.
    fn read_waiting(&mut self) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.first.header().is_none()) {
            waiting.first = self.repair.arrive_again(&waiting.packet);
        }
    }

    /// Keys have gone: what was read with them is not used any more.
    fn forget_waiting(&mut self, id: GrantId) {
        for waiting in &mut self.waiting {
            if waiting.first.header().is_some_and(|header| header.grant() == id) {
                waiting.first = FirstZone::Unread;
            }
        }
    }

    /// These keys were asked for, and have come: by the question the gateway knows where the device is.
    fn forget_answered(&mut self, id: GrantId) {
        let Some(reader) = self.repair.reader() else { return };
        let answered = self.asked.iter().filter(|(question, _)| question.is_about(id));
        answered.filter_map(|(_, asked)| asked.device).for_each(|device| reader.forget_device(device));
    }

    fn note_taken_back(&mut self, id: GrantId) {
        self.taken_back.retain(|of| *of != id);
        if self.taken_back.len() >= TAKEN_BACK_MOST {
            self.taken_back.pop_front();
        }
        self.taken_back.push_back(id);
    }

    fn info(&self) -> RouterInfo {
        let mut info =
            RouterInfo { counters: self.counters, waiting: self.waiting.len(), ..RouterInfo::default() };
        match &self.repair {
            Repair::None | Repair::EspArq(_) => {}
            Repair::Snoop(agent) => {
                (info.snoop, info.held) = (*agent.stats(), agent.held());
                info.flows = agent.followed(FLOWS_LISTED);
            }
            Repair::Reported(agent) => {
                let &ArqStats { kept, repeated, reports } = agent.stats();
                info.snoop = Stats { kept, repeated, ..Stats::default() };
                (info.reports, info.held) = (reports, agent.held());
                info.flows = agent.followed(FLOWS_LISTED);
            }
        }
        if let Some(readable) = self.repair.readable() {
            info.zones = *readable.stats();
            info.keys = readable.held().collect();
        }
        info
    }

    /// The radio takes what is next, as long as it is free.
    fn pump(&mut self, now: Instant) {
        while self.idle_at <= now {
            let mut packet = Vec::new();
            if !self.repair.poll_transmit(now, &mut packet) {
                let Some(next) = self.waiting.pop_front() else { break };
                self.waiting_bytes -= next.packet.len();
                self.repair.radio_takes(now, &next.packet, &next.first);
                packet = next.packet;
            }
            if self.rate > 0 {
                let nanos = packet.len() as u128 * 8_000_000_000 / u128::from(self.rate);
                let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
                let late = (now - self.idle_at).saturating_sub(CATCH_UP);
                self.idle_at = self.idle_at + late + takes;
            }
            self.counters.to_device += 1;
            self.ready.push_back((Side::Device, packet));
        }
    }

    /// Asks for what is missing or does not do, as often as is decent.
    fn ask(&mut self, now: Instant) {
        let Some(reader) = self.repair.reader() else { return };
        // Told by [`dormouse_esp::HeaderZones::unfit`] as long as it is so.
        while reader.zones().poll_news().is_some() {}
        while let Some(unknown) = self.repair.reader().and_then(Reader::poll_unknown) {
            if self.is_to_be_asked(now, &unknown) {
                let has_come = self.visits.has_come(now, unknown.device);
                self.turns.wait(unknown, has_come);
            }
        }
        if now < self.ask_next {
            return;
        }
        self.ask_for_others(now);
        self.report_arrivals(now);
        while now >= self.ask_next
            && let Some(unknown) = self.turns.next()
        {
            self.ask_for_missing(now, unknown);
        }
    }

    /// In the place of keys that do not do.
    fn ask_for_others(&mut self, now: Instant) {
        let unfit: Vec<HeaderNews> =
            self.repair.readable().into_iter().flat_map(HeaderZones::unfit).collect();
        for news in unfit {
            if Question::because(news).is_none_or(|question| !self.may_ask(now, question, ASK_LONGEST)) {
                continue;
            }
            if let HeaderNews::Stale(id) = news {
                tracing::warn!(sa = %Name(id), "header keys are stale: packets go on unread, and others are asked for");
            } else {
                tracing::info!(?news, "header keys are used up: others are asked for");
            }
            self.wishes.push_back(Wish::Other(news));
        }
    }

    fn report_arrivals(&mut self, now: Instant) {
        while let Some((device, id)) = self.repair.reader().and_then(Reader::poll_arrival) {
            if self.may_ask(now, Question::Came(device, id), ASK_LONGEST) {
                tracing::debug!(%device, sa = %Name(id), "a device has come, whose header keys were here");
                self.wishes.push_back(Wish::Came { device, id });
            }
        }
    }

    /// Whether it is to be asked about the SA of this packet, when it is its turn.
    fn is_to_be_asked(&self, now: Instant, unknown: &Unknown) -> bool {
        let &Unknown { gateway, device, spi, to_device, .. } = unknown;
        // Where the device is registered and its keys were, those are its own, too.
        let own =
            self.visits.is_registered(now, device) && self.taken_back.iter().any(|id| id.to_device == spi);
        // What is sent after a device that has gone on comes by here in both directions. The router before has seen it, and the device's own packets follow.
        let after = [device, gateway].iter().any(|of| self.visits.has_gone(now, *of))
            || to_device && !own && self.visits.is_sent_after(now, device);
        !after && self.has_paused(now, Question::missing(unknown), self.longest(now, device))
    }

    /// One that has just registered does not wait because others have sent its packets here before.
    fn longest(&self, now: Instant, device: IpAddr) -> Duration {
        if self.visits.has_come(now, device) { ASK_AGAIN } else { MISSING_LONGEST }
    }

    fn ask_for_missing(&mut self, now: Instant, unknown: Unknown) {
        let longest = self.longest(now, unknown.device);
        if !self.is_to_be_asked(now, &unknown) || !self.may_ask(now, Question::missing(&unknown), longest) {
            return;
        }
        let Unknown { gateway, device, spi, seen, .. } = unknown;
        if let Some(asked) = self.asked.get_mut(&Question::Missing(gateway, spi)) {
            asked.device = Some(device);
        }
        tracing::debug!(%gateway, spi = format_args!("{spi:08x}"), "no header keys: packets go on unread");
        let previous = self.visits.previous(now, device).cloned();
        let registered = self.visits.is_registered(now, device);
        self.wishes.push_back(Wish::Missing { gateway, spi, seen, previous, registered });
    }

    /// Whether the pause after this was asked last is over.
    fn has_paused(&self, now: Instant, question: Question, longest: Duration) -> bool {
        self.asked.get(&question).is_none_or(|asked| now >= asked.at + asked.pause.min(longest))
    }

    /// Whether this is asked now: after a pause that doubles each time, and is no longer than `longest`.
    fn may_ask(&mut self, now: Instant, question: Question, longest: Duration) -> bool {
        if now < self.ask_next || !self.has_paused(now, question, longest) {
            return false;
        }
        let before = self.asked.get(&question);
        let pause = before.map_or(ASK_AGAIN, |asked| (asked.pause * 2).min(ASK_LONGEST));
        if before.is_none() && self.asked.len() >= ASKED_MOST {
            let oldest = self.asked.iter().min_by_key(|(_, asked)| asked.at).map(|(of, _)| *of);
            oldest.map(|of| self.asked.remove(&of));
        }
        self.asked.insert(question, Asked { at: now, pause, device: None });
        self.ask_next = now + ASK_PACE;
        self.counters.asked += 1;
        true
    }
}

/// Header keys as they are named in logs and in the status: the SPI of what goes to the device, and of what comes from it.
#[derive(Clone, Copy, Debug)]
pub struct Name(pub GrantId);

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x} {:08x}", self.0.to_device, self.0.from_device)
    }
}

impl Host {
    /// This machine is an access router from now on. Packets between its two sides come by [`Host::handle_packet`], and go on by
    /// [`Output::Transit`]. It takes header keys if it repairs anything.
    pub fn set_router(&mut self, settings: &Settings) {
        if settings.repair != Kind::None {
            self.node.read_headers();
        }
        self.router = Some(Router::new(settings));
    }

    /// A whole packet came from one side that is on its way to the other. Lost if this machine is no access router.
    pub fn handle_packet(&mut self, now: Instant, from: Side, packet: Vec<u8>) {
        if let Some(router) = &mut self.router {
            router.handle_packet(now, from, packet);
            self.grant_wishes(now);
        }
    }

    /// The device with this outer address has come to this access router: it has registered, or with `previous` it asks to be registered, and says that it was
    /// behind that router. Its next packet names its SA. If this router has no header keys for it, it shows the packet to `previous`, which gives them
    /// if it has not seen the packet, and asks the gateway if `previous` has none, or has registered the device and `previous` gives none. If it has them, it reports to the gateway that the device is here, once that has registered.
    /// `false` if this machine is no access router.
    pub fn device_has_come(&mut self, now: Instant, device: IpAddr, previous: Option<Identity>) -> bool {
        let router = self.router.as_mut();
        router.map(|router| router.device_has_come(now, device, previous)).is_some()
    }

    /// The device with this outer address has left this access router: packets that still come for it ask for no keys. `false` if this machine is no
    /// access router.
    pub fn device_has_gone(&mut self, now: Instant, device: IpAddr) -> bool {
        self.router.as_mut().map(|router| router.device_has_gone(now, device)).is_some()
    }

    /// How the access router stands; `None` if this machine is none.
    #[must_use]
    pub fn router_info(&self) -> Option<RouterInfo> {
        self.router.as_ref().map(Router::info)
    }

    pub(super) fn poll_transit_packet(&mut self, out: &mut Vec<u8>) -> Option<Output> {
        let (to, packet) = self.router.as_mut()?.poll_packet()?;
        *out = packet;
        Some(Output::Transit(to))
    }
}

#[cfg(test)]
mod tests;
