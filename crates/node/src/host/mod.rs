//! The host: everything that one machine's IPsec does, without its system calls. It owns the [`Node`] (IKE, ESP, ladders), the
//! sleeper with the policy's clock, every queue of packets that wait (for the session, for a route, for a device that slept), and
//! the packet path. `dormoused` drives it in the world, `dormouse-sim` in virtual time: it is the same code.
//!
//! Must never read a clock, open a socket or touch the machine: it hands back [`Output`]s.
//!
//! # Driving contract
//! - Hand in what happens: datagrams ([`Host::open`]), ways to the gateways ([`Host::find_ways`]), time ([`Host::handle_timeout`]),
//!   answers of the radio, commands.
//! - Then packets of the inner side ([`Host::plan`], [`Host::seal`]), but what is ordered comes before them: [`forward`].
//! - Then one message of key management that has come ([`Host::handle_arrival`]). While more wait ([`Host::has_arrivals`]), the next turn begins
//!   at once, with what has come meanwhile.
//! - After each of these, or after a batch of them: [`Host::poll`] until `None`, carrying out each [`Output`] before asking for the
//!   next one ([`carry_out_all`]). Outputs come in the order in which they must be carried out: what must be durable before an answer leaves
//!   comes before that answer, a route before the packets that need it.
//! - Then wait until something happens, until [`Host::poll_timeout`] at the latest.

mod arrivals;
mod device;
mod drive;
mod gateways;
mod leases;
mod lend;
mod lsi;
pub(crate) mod lsi_fuzz;
mod output;
mod path;
mod reassembly;
mod resolver;
mod router;
mod unconfirmed;
mod wish;
pub mod worker;

pub use crate::data::Arrival;
pub use crate::event::{Lend, Order, Radio, Store};
pub use crate::lending::{Engine, InUdp};
pub use dormouse_esp::{Loan, Returned, Seen, Usage};
pub use dormouse_snoop::{Ends, Followed};
pub use drive::{Driver, carry_out_all, forward};
pub use gateways::Answer;
pub use lsi::Lsis;
pub use output::{Datagram, News, Origin, Output};
pub use path::{NotSent, PathCounters};
pub use resolver::{Found, PeerNames, REVERSE};
pub use router::{Name, RouterCounters, RouterInfo, Side};

use crate::config::Resolved;
use crate::event::{Event, Kept};
use crate::hold::HoldQueue;
use crate::node::{Node, Route};
use crate::pool::SharedPool;
use crate::removal::Met;
use arrivals::Arrivals;
use device::Device;
use dormouse_ike::admission::Denial;
use dormouse_ike::ticket::lineage::Outcome;
use dormouse_keying::{ChildId, SaId};
use dormouse_sansio::packet::{Geometry, Plan};
use dormouse_sansio::{Deadline, Instant, Transmit, UnixTime};
use dormouse_standin::DeviceId;
pub use dormouse_standin::Observer;
use dormouse_wire::ip;
use gateways::Gateways;
use lsi::Translator;
use router::Router;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use unconfirmed::Unconfirmed;

/// Histories are stored no more often than this: each time wakes the disk, and a crash costs some minutes of them.
const SAVE_EVERY: Duration = Duration::from_secs(600);
const DAY: u64 = 86_400;

/// Outputs that were not asked for yet, and what waits until they are carried out.
#[derive(Debug, Default)]
struct Outputs {
    queue: VecDeque<Output>,
    /// The session wakes once the ways to the gateways were looked for; `ask`: the gateways are to be told.
    wake: Option<bool>,
    /// Packets that waited for the session may go now.
    flowing: bool,
    /// For one of them another session was asked for: what asks for it is to be sent.
    asked: bool,
}

impl Outputs {
    fn push_order(&mut self, order: Order) {
        self.queue.push_back(Output::Order(order));
    }

    fn push_news(&mut self, news: News) {
        self.queue.push_back(Output::News(news));
    }

    fn wakes(&self) -> bool {
        self.wake.is_some()
    }
}

/// What the last datagram was, kept until it is known to be sent.
#[derive(Debug)]
enum LastSent {
    /// Key management, of so many bytes.
    Control { destination: SocketAddr, bytes: usize },
    /// A packet that was sealed from a queue; `held`: it waited for the session, and may wait again.
    Sealed { child: ChildId, packet: Vec<u8>, held: bool },
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Host {
    node: Node,
    device: Option<Device>,
    pool: Option<SharedPool>,
    /// The access router that this machine is.
    router: Option<Router>,
    lsis: Translator,
    names: Option<PeerNames>,
    gateways: Gateways,
    arrivals: Arrivals,
    /// Packets that wait for their session.
    held: HoldQueue,
    /// Packets that waited for their session or had to be translated, while they are sealed one by one.
    released: VecDeque<Vec<u8>>,
    /// Packets of peers whose route is only just being set: what answers them would find no way back yet.
    awaiting_route: VecDeque<Vec<u8>>,
    unconfirmed: Unconfirmed,
    /// Packets that were kept for devices that are back, until what brings their sessions back is out.
    returned: VecDeque<Kept>,
    /// Packets for our own side that were made here, of packets that had waited.
    answers: VecDeque<(Origin, Vec<u8>)>,
    last_sent: Option<LastSent>,
    /// Our own inner addresses, by connection.
    inner: Vec<IpAddr>,
    counters: PathCounters,
    /// When the signal of the radio was asked for.
    signal_asked: Option<Instant>,
    outputs: Outputs,
    /// Sessions in the load history when it was last stored, and when that was.
    load_stored: (u64, Instant),
}

impl Host {
    /// A host around `node`, which has its key manager beside IKE already, if it is to have one. `pool`: the one that the node's endpoint
    /// assigns from, whose changes are to be stored.
    #[must_use]
    pub fn new(now: Instant, node: Node, pool: Option<SharedPool>) -> Self {
        let held = HoldQueue::new(node.held_most());
        Self {
            node,
            device: None,
            pool,
            router: None,
            lsis: Translator::default(),
            names: None,
            gateways: Gateways::default(),
            arrivals: Arrivals::default(),
            held,
            released: VecDeque::new(),
            awaiting_route: VecDeque::new(),
            unconfirmed: Unconfirmed::default(),
            returned: VecDeque::new(),
            answers: VecDeque::new(),
            last_sent: None,
            inner: Vec::new(),
            counters: PathCounters::default(),
            signal_asked: None,
            outputs: Outputs::default(),
            load_stored: (0, now),
        }
    }

    /// The node, to look at.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node, for its commands.
    pub fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    /// What the packet path has counted.
    #[must_use]
    pub fn counters(&self) -> PathCounters {
        self.counters
    }

    /// Packets that wait for their session.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len() + self.released.len()
    }

    /// By which IPv4 addresses programs reach the peers of HIP.
    pub fn set_lsis(&mut self, lsis: Lsis) {
        self.lsis.set(lsis);
    }

    /// By which names programs here find the peers of HIP.
    pub fn set_names(&mut self, names: Option<PeerNames>) {
        self.names = names;
    }

    // ---- commands -------------------------------------------------------------------------------------------------

    /// Brings a client connection up. False if there is none of this name.
    pub fn up(&mut self, now: Instant, connection: &str) -> bool {
        self.resolve(connection);
        let known = self.node.up(now, connection);
        self.outputs.push_order(Order::FindWays { fresh: false });
        known
    }

    /// The client connection is not wanted any more. False if there is none of this name.
    pub fn down(&mut self, now: Instant, connection: &str) -> bool {
        self.forget_name(connection);
        self.node.down(now, connection)
    }

    /// Gateway: the addresses that it gives.
    #[must_use]
    pub fn pool(&self) -> Option<&SharedPool> {
        self.pool.as_ref()
    }

    /// Gateway: see [`Node::deny`]. Those who have a lease are known as well.
    pub fn deny(&mut self, now: Instant, denial: Denial) -> Met {
        let leases = self.pool.as_ref().is_some_and(|pool| pool.any(|holder| denial.means(holder, None)));
        let met = self.node.deny(now, denial);
        Met { known: met.known || leases, ..met }
    }

    /// The configuration was read again: see [`Node::reconfigure`].
    pub fn reconfigure(&mut self, now: Instant, connections: &[Resolved], anew: &BTreeSet<String>) {
        if let Some(pool) = &self.pool {
            pool.reconfigure(connections.iter().flat_map(|c| c.pool.iter().copied()));
        }
        self.node.reconfigure(now, connections, anew);
        self.keep_names();
        self.held.set_most(self.node.held_most());
    }

    /// Tells the wall-clock time, for certificates, tickets and the hours of a policy: at the start and with each time-out.
    pub fn set_wall_clock(&mut self, now: Instant, unix: UnixTime) {
        self.node.set_wall_clock(now, unix);
        self.time_of_day(now, u32::try_from(unix.0 % DAY).unwrap_or(0));
    }

    /// Gateway: what became of an [`Order::Lineage`] that `sa` waits for.
    pub fn stored(&mut self, now: Instant, sa: SaId, outcome: Outcome) {
        self.node.stored(now, sa, outcome);
    }

    /// Something is ordered that may have to be done before anything else is sent: see [`forward`].
    #[must_use]
    pub fn has_orders(&self) -> bool {
        !self.outputs.queue.is_empty() || self.node.has_events()
    }

    /// The driver may send something of its own, as the question for a name: the radio does not sleep.
    #[must_use]
    pub fn may_send(&self) -> bool {
        !self.node.is_suspended()
    }

    /// The process ends: sessions that a ticket brings back are closed, and what was learned is stored.
    pub fn stop(&mut self, now: Instant) {
        self.node.leave(now);
        self.store_history();
        self.store_load(now, true);
    }

    // ---- the verbs ------------------------------------------------------------------------------------------------

    fn sealed(
        &mut self,
        now: Instant,
        geometry: &Geometry,
        packet: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Datagram> {
        let sealed = self.seal_one(now, geometry, packet, out)?;
        Some(Datagram { path: sealed.path, ecn: geometry.ecn, segment: None, fragmentable: false })
    }

    /// Acts on what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        self.device_timeout(now);
        self.names_timeout(now);
        if let Some(router) = &mut self.router {
            router.handle_timeout(now);
        }
        self.grant_wishes(now);
    }

    /// When [`Host::handle_timeout`] is wanted.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let own = Deadline::earlier(self.node.poll_timeout(), self.sleep_deadline());
        let own =
            Deadline::earliest([own, self.names_deadline(), self.arrivals_deadline()].into_iter().flatten());
        Deadline::earlier(own, self.router.as_ref().and_then(Router::poll_timeout))
    }

    /// Every timer that is running, with its reason.
    #[must_use]
    pub fn deadlines(&self) -> Vec<Deadline> {
        let mut all = self.node.deadlines();
        all.extend(self.sleep_timers());
        all.extend(self.names_deadline());
        all.extend(self.arrivals_deadline());
        all.extend(self.router.iter().flat_map(Router::timers));
        all
    }

    /// The next thing to do; `out` holds its bytes, if it has any. See the driving contract.
    pub fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Output> {
        out.clear();
        self.last_sent = None;
        loop {
            self.turn(now);
            if let Some(output) = self.outputs.queue.pop_front() {
                return Some(output);
            }
            // Every order has been carried out.
            if let Some(ask) = self.outputs.wake.take() {
                self.node.resume(now);
                if ask {
                    self.node.ask(now);
                }
                // What must wait longer is put back.
                self.outputs.flowing = true;
                continue;
            }
            let output = self.poll_packets(now, out);
            if output.is_some() || !std::mem::take(&mut self.outputs.asked) {
                return output;
            }
        }
    }

    /// Key management first: it may be what brings the session back that the packets belong to.
    fn poll_packets(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Output> {
        if let Some(transmit) = self.node.poll_transmit(now, out) {
            let Transmit { path, segment, fragmentable, .. } = transmit;
            self.last_sent =
                Some(LastSent::Control { destination: path.remote, bytes: segment.unwrap_or(out.len()) });
            return Some(Output::Datagram(Datagram { path, ecn: 0, segment, fragmentable }));
        }
        if let Some(output) = self.poll_transit_packet(out) {
            return Some(output);
        }
        if self.node.poll_stand_in(out) {
            self.lsis.answer(now, out);
            return Some(Output::Inner(Origin::StandIn));
        }
        if let Some(packet) = self.awaiting_route.pop_front() {
            *out = packet;
            return Some(Output::Inner(Origin::Tunnel));
        }
        if let Some(packet) = self.node.poll_reordered() {
            *out = packet;
            return Some(Output::Inner(Origin::Tunnel));
        }
        if let Some(path) = self.node.poll_report(now, out) {
            return Some(Output::Datagram(Datagram { path, ecn: 0, segment: None, fragmentable: false }));
        }
        if std::mem::take(&mut self.outputs.flowing) {
            self.released.extend(self.held.take());
        }
        while let Some(packet) = self.released.pop_front() {
            if let Some(datagram) = self.release(now, packet, out) {
                return Some(Output::Datagram(datagram));
            }
        }
        while let Some(kept) = self.returned.pop_front() {
            if let Some(datagram) = self.give_back(now, kept, out) {
                return Some(Output::Datagram(datagram));
            }
        }
        let (origin, answer) = self.answers.pop_front()?;
        *out = answer;
        Some(Output::Inner(origin))
    }

    /// A packet has waited for its session. The sleeper has seen it when it came.
    fn release(&mut self, now: Instant, mut packet: Vec<u8>, out: &mut Vec<u8>) -> Option<Datagram> {
        let flow = ip::flow(&packet)?;
        match self.node.route(&flow) {
            Route::Send(child) => self.send_waiting(now, child, &mut packet, true, out),
            // The session is not back after all.
            Route::Hold => {
                self.counters.held_dropped += self.held.push(now, &packet);
                None
            }
            // Another's is: what this one waits for is still to come.
            Route::None if self.node.want_tunnel(now, (flow.src, flow.dst)) => {
                self.outputs.asked = true;
                self.counters.held_dropped += self.held.push(now, &packet);
                None
            }
            // It was translated, or its peer has fallen asleep meanwhile.
            Route::StandIn(device) => {
                if self.stand_in_later(now, device, &packet) {
                    return None;
                }
                // The promised end of its sleep has just passed.
                self.node.handle_timeout(now);
                if let Route::Send(child) = self.node.route(&flow) {
                    return self.send_waiting(now, child, &mut packet, true, out);
                }
                self.counters.no_policy += 1;
                None
            }
            Route::None => {
                self.counters.no_policy += 1;
                None
            }
        }
    }

    /// A packet that has waited is for a device that sleeps. False if its stand-in no longer stands in.
    fn stand_in_later(&mut self, now: Instant, device: DeviceId, packet: &[u8]) -> bool {
        match self.stand_in(now, device, packet) {
            Some(Plan::Answer(mut answer)) => {
                self.lsis.answer(now, &mut answer);
                self.answers.push_back((Origin::StandIn, answer));
                true
            }
            Some(_) => true,
            None => false,
        }
    }

    /// A packet was kept for a device that is back.
    fn give_back(&mut self, now: Instant, kept: Kept, out: &mut Vec<u8>) -> Option<Datagram> {
        let Kept { device: owner, mut packet } = kept;
        let flow = ip::flow(&packet)?;
        match self.node.route(&flow) {
            Route::Send(child) if self.node.belongs_to(child, owner) => {
                self.send_waiting(now, child, &mut packet, false, out)
            }
            // What woke the device was the announcement of its next sleep: its stand-in has the packet back.
            Route::StandIn(device) if device == owner => {
                if !self.stand_in_later(now, device, &packet) {
                    self.counters.no_policy += 1;
                }
                None
            }
            // Its address is another's now, or it is gone again.
            Route::Send(_) | Route::StandIn(_) | Route::Hold | Route::None => {
                self.counters.no_policy += 1;
                None
            }
        }
    }

    fn send_waiting(
        &mut self,
        now: Instant,
        child: ChildId,
        packet: &mut [u8],
        held: bool,
        out: &mut Vec<u8>,
    ) -> Option<Datagram> {
        let whole = packet.to_vec();
        let child = self.among(now, child, packet)?;
        match self.plan_on(now, child, packet)? {
            Plan::Seal(geometry) => {
                let datagram = self.sealed(now, &geometry, packet, out);
                self.last_sent = Some(LastSent::Sealed { child, packet: whole, held });
                datagram
            }
            plan => {
                self.answer(plan);
                None
            }
        }
    }

    /// The sender of a packet that has waited hears what became of it.
    fn answer(&mut self, plan: Plan) {
        if let Plan::Answer(answer) = plan {
            self.answers.push_back((Origin::Error, answer));
        }
    }

    /// The datagram that [`Host::poll`] gave last could not be sent. Key management repeats itself, and says what was too big if its attempt fails; a packet that has waited for its
    /// session waits again, or its sender is asked for smaller ones.
    pub fn not_sent(&mut self, now: Instant, why: NotSent) {
        let (child, mut packet, held) = match self.last_sent.take() {
            Some(LastSent::Sealed { child, packet, held }) => (child, packet, held),
            Some(LastSent::Control { destination, bytes }) if why == NotSent::TooBig => {
                tracing::warn!(%destination, bytes, "a message of key management is too big for the path");
                return self.node.not_sent(destination, bytes);
            }
            _ => return,
        };
        self.batch_not_sent(now, child.spi(), why);
        match why {
            NotSent::TooBig => {
                if let Some(plan) = self.plan_on(now, child, packet.as_mut_slice()) {
                    self.answer(plan);
                }
            }
            NotSent::Failed if held => self.counters.held_dropped += self.held.push(now, &packet),
            NotSent::Failed => {}
        }
    }

    // ---- inside ---------------------------------------------------------------------------------------------------

    /// Lets node and sleeper tell each other their news, and turns it into outputs.
    fn turn(&mut self, now: Instant) {
        while !self.outputs.wakes() {
            self.lending_turn(now);
            while let Some(event) = self.node.poll_event() {
                self.apply(now, event);
            }
            if !self.sleeper_turn(now) {
                break;
            }
        }
        self.order_leases();
        self.store_load(now, false);
    }

    /// The session wakes, once the ways to the gateways were looked for: the network may be another one.
    fn wake_session(&mut self, ask: bool) {
        self.outputs.push_order(Order::FindWays { fresh: true });
        self.outputs.wake = Some(ask);
    }

    fn apply(&mut self, now: Instant, event: Event) {
        self.sleeper_learns(now, &event);
        match event {
            // Keys that cannot be used are news for their gateway.
            Event::Order(Order::Header(order)) if self.router.is_some() => {
                self.router.iter_mut().for_each(|router| router.obey(&order));
                self.grant_wishes(now);
            }
            Event::NameNeeded { connection } => self.resolve(&connection),
            Event::Order(order) => {
                if matches!(order, Order::Configure { .. } | Order::Unconfigure { .. }) {
                    self.inner = self.node.inner_addresses();
                }
                self.outputs.push_order(order);
            }
            Event::Judged { sa, granted } => {
                let packets = self.unconfirmed.take(sa);
                self.awaiting_route.extend(packets.filter(|_| granted));
            }
            Event::Resend { packets } => {
                self.outputs.push_news(News::Resending { packets: packets.len() });
                self.counters.held_dropped += self.held.push_first(now, packets);
            }
            Event::Flowing => self.outputs.flowing = true,
            Event::Ended { peer } => self.counters.held_dropped += self.held.drop_for(peer),
            Event::Deliver { packets } => self.returned.extend(packets),
            Event::SleepReady { connection, verdict } => {
                self.announced(now, &connection);
                self.outputs.push_news(News::Announced { connection, verdict });
            }
            Event::Missed { connection, packets } => {
                self.outputs.push_news(News::Missed { connection, packets });
            }
            Event::LoadReport(_) => {}
            Event::Record(record) => self.outputs.push_news(News::Record(record)),
            Event::Changed(change) => {
                let unanswered = change.unanswered_full_exchange().map(ToOwned::to_owned);
                self.outputs.push_news(News::Changed(change));
                if let Some(connection) = unanswered {
                    // The gateway may have moved.
                    self.resolve(&connection);
                }
            }
        }
    }

    /// What was learned about load is stored when sessions have come up, but not more often than [`SAVE_EVERY`].
    fn store_load(&mut self, now: Instant, at_once: bool) {
        let (recorded, at) = self.load_stored;
        let history = self.node.ike().load_history();
        if history.recorded() != recorded && (at_once || now - at >= SAVE_EVERY) {
            self.load_stored = (history.recorded(), now);
            let bytes = history.export();
            self.outputs.push_order(Order::Store(Store::LoadHistory(bytes)));
        }
    }
}
