//! A synthetic population of wireless clients. Owns the model; everything made here calls itself synthetic.
//!
//! | quantity | law | source |
//! |---|---|---|
//! | sessions of a client in a day | 1 + Poisson(1.2 × the client's activity) | assumed |
//! | session starts | weights by hour of day ([`HOURS`]), a time-varying Poisson process given their number | shape: UNC campus WLAN |
//! | flows of a session | BiPareto(0.06, 1.72, 284.8, 1), capped at [`MAX_FLOWS`] | UNC campus WLAN |
//! | time between flows | lognormal(-1.367, 2.785) s × the client's pace, capped at an hour | UNC campus WLAN |
//! | bytes of a flow | BiPareto(0, 0.91, 5.20, 179), capped at [`MAX_FLOW_PACKETS`] packets | UNC campus WLAN |
//! | time between a flow's packets | lognormal(ln 0.02, 1) s | assumed |
//! | the client's activity and pace | lognormal(0, 0.8) and lognormal(0, 0.5), drawn once for each client | assumed: users differ |
//! | stay behind the last flow | lognormal(ln 600, 1) s, capped at 4 h | assumed: lids stay open |
//! | background, while present | timers of 59, 301 and 721 s and of 30 min (DHCP), jitter 1 %, each client with some of them | periods seen in real devices |
//! | unasked arrivals, while present | Poisson, mean 20 to 600 s apart by client: mDNS, SSDP, NetBIOS, SMB, ARP | assumed |
//!
//! A renewal process would flatter any scheduler: hence users that differ, hours that differ, and timers.
//! The figures of the campus WLAN are those of Hernández-Campos et al. (UNC, 2006) as commonly quoted.

mod standing;
pub mod write;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::seen::ClientPacket;
use crate::seen::time_of_day;
use dormouse_energy::{Direction, PacketInfo};
use dormouse_sansio::{Entropy, Seeded};

use crate::index::mix;
pub use standing::{Standing, Timer};

/// Relative number of session starts by hour of day (UTC, as the recording's clock).
pub const HOURS: [f64; 24] = [
    0.5, 0.3, 0.2, 0.1, 0.1, 0.2, 0.5, 1.2, 3.0, 4.5, 5.5, 6.0, 5.5, 6.0, 6.0, 5.5, 5.0, 4.0, 3.0, 2.8, 2.8,
    2.5, 1.8, 1.0,
];
/// Flows of one session.
pub const MAX_FLOWS: f64 = 3000.0;
/// Packets of one flow.
pub const MAX_FLOW_PACKETS: u32 = 48;
/// Between two flows of a client whose pace is 1: the logarithm's mean and deviation, of seconds.
pub const FLOW_GAP: (f64, f64) = (-1.367, 2.785);
/// No more than so many seconds are between two flows of a session.
pub const LONGEST_GAP: f64 = 3600.0;
/// Deviation of a timer's periods, in parts of one.
pub const TIMER_JITTER: f64 = 0.01;
/// The timers in the background: period in seconds, protocol, port.
const TIMERS: [(f64, u16, u16); 4] = [(59.0, 6, 5222), (301.0, 6, 5228), (721.0, 17, 123), (1800.0, 17, 67)];

/// What to make.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Recipe {
    /// Clients.
    pub clients: u32,
    /// Days, each of 24 hours.
    pub days: u32,
    /// The same seed makes the same traffic.
    pub seed: u64,
    /// The first midnight, in seconds since 1970.
    pub start: u64,
}

impl Recipe {
    /// The words that stand in every file made from it.
    #[must_use]
    pub fn label(&self) -> String {
        format!(
            "{}: made by dormouse trace generate, model 1, seed {}, {} clients, {} days; not recorded from any device",
            crate::SYNTHETIC_MARK,
            self.seed,
            self.clients,
            self.days
        )
    }
}

/// All packets of a population in order of time. Memory grows with the clients that are present at once.
pub struct Population {
    recipe: Recipe,
    users: Vec<User>,
    next: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Population {
    /// The population of a recipe.
    #[must_use]
    pub fn new(recipe: Recipe) -> Self {
        let users: Vec<User> = (0..recipe.clients).map(|id| User::new(&recipe, id)).collect();
        let mut next = BinaryHeap::new();
        for (id, user) in (0u32..).zip(&users) {
            next.extend(user.starts.back().map(|start| Reverse((*start, id))));
        }
        Self { recipe, users, next }
    }

    /// How a client stands at its last packet; `None` before it had one.
    #[must_use]
    pub fn standing(&self, client: u32) -> Option<Standing> {
        Standing::of(self.users.get(client as usize)?)
    }

    /// Whether another packet of the client follows its last one within so many nanoseconds: where no silence begins, nothing has to be decided.
    #[must_use]
    pub fn follows(&self, client: u32, within: u64) -> bool {
        let user = self.users.get(client as usize);
        let next = user.and_then(|user| Some((user.packets.front()?.at, user.last?)));
        next.is_some_and(|(next, last)| next - last < within)
    }

    /// What it was made from.
    #[must_use]
    pub const fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}

impl Iterator for Population {
    type Item = ClientPacket;

    fn next(&mut self) -> Option<ClientPacket> {
        loop {
            let Reverse((_, client)) = self.next.pop()?;
            let user = self.users.get_mut(client as usize)?;
            let made = user.packet().map(|(at, info)| ClientPacket { client, at, info });
            if made.is_none() {
                user.session();
            }
            let at = user.packets.front().map(|p| p.at).or_else(|| user.starts.back().copied());
            self.next.extend(at.map(|at| Reverse((at, client))));
            if made.is_some() {
                return made;
            }
        }
    }
}

/// One user: what sets him apart, and his current session.
struct User {
    random: Seeded,
    pace: f64,
    noise: f64,
    timers: [bool; 4],
    /// Session starts, the next one last.
    starts: VecDeque<u64>,
    /// The rest of the current session.
    packets: VecDeque<Packet>,
    /// When the last packet came, in nanoseconds since 1970, and in seconds of the session, as all that follows.
    last: Option<u64>,
    now: f64,
    /// When this session's further flows begin, and when the last one has.
    flows: VecDeque<f64>,
    began: f64,
    /// When each timer has fired last.
    fired: [Option<f64>; 4],
    /// How long the client stays.
    stay: f64,
    /// The end of the last session: sessions of a user do not overlap.
    busy_until: u64,
    end: u64,
}

/// A packet of a session.
struct Packet {
    /// In nanoseconds since 1970.
    at: u64,
    /// In seconds of the session.
    after: f64,
    info: PacketInfo,
    /// When that began which it belongs to, in seconds of the session; infinite if it begins with this packet and is drawn for itself.
    began: f64,
    /// The timer that fires with it.
    timer: Option<usize>,
}

impl Packet {
    /// Of something that began then, or else at any time.
    const fn new(after: f64, began: f64, info: PacketInfo) -> Self {
        Self { at: 0, after, info, began, timer: None }
    }
}

const SECOND: f64 = 1e9;

impl User {
    fn new(recipe: &Recipe, id: u32) -> Self {
        let mut random = Seeded::new(mix(recipe.seed ^ mix(u64::from(id) + 1)));
        let activity = lognormal(&mut random, 0.0, 0.8);
        let pace = lognormal(&mut random, 0.0, 0.5);
        let noise = 20.0 * 30f64.powf(unit(&mut random));
        let timers = [0.5, 0.4, 0.3, 1.0].map(|share| unit(&mut random) < share);
        let mut starts = Vec::new();
        for day in 0..recipe.days {
            let sessions = 1 + poisson(&mut random, 1.2 * activity);
            for _ in 0..sessions {
                let second = u64::from(day) * 86_400 + start_of_session(&mut random);
                starts.push((recipe.start + second) * 1_000_000_000 + random.below(1_000_000_000));
            }
        }
        starts.sort_unstable_by(|a, b| b.cmp(a));
        let end = (recipe.start + u64::from(recipe.days) * 86_400) * 1_000_000_000;
        let starts = starts.into();
        let (packets, flows, fired) = (VecDeque::new(), VecDeque::new(), [None; 4]);
        Self {
            random,
            pace,
            noise,
            timers,
            starts,
            packets,
            last: None,
            now: 0.0,
            flows,
            began: 0.0,
            fired,
            stay: 0.0,
            busy_until: 0,
            end,
        }
    }

    /// The next packet of the current session.
    fn packet(&mut self) -> Option<(u64, PacketInfo)> {
        let Packet { at, after, info, timer, .. } = self.packets.pop_front()?;
        (self.last, self.now) = (Some(at), after);
        while self.flows.front().is_some_and(|began| *began <= after) {
            self.began = self.flows.pop_front().unwrap_or(after);
        }
        if let Some(fired) = timer.and_then(|timer| self.fired.get_mut(timer)) {
            *fired = Some(after);
        }
        Some((at, info))
    }

    /// Makes the next session.
    fn session(&mut self) {
        let Some(start) = self.starts.pop_back() else { return };
        let start = start.max(self.busy_until);
        let mut packets = Vec::new();
        self.flows.clear();
        (self.began, self.fired) = (0.0, [None; 4]);
        let random = &mut self.random;
        let flows = bipareto(random, 0.06, 1.72, 284.8, 1.0).min(MAX_FLOWS);
        let mut at = 0.0;
        let mut flow = 0.0;
        while flow < flows {
            at += (lognormal(random, FLOW_GAP.0, FLOW_GAP.1) * self.pace).min(LONGEST_GAP);
            self.flows.push_back(at);
            one_flow(random, at, &mut packets);
            flow += 1.0;
        }
        let stay = at + lognormal(random, 600f64.ln(), 1.0).min(14_400.0);
        background(random, stay, self.timers, self.noise, &mut packets);
        self.stay = stay;
        let end = self.end;
        let mut packets: Vec<Packet> = packets
            .into_iter()
            .map(|packet: Packet| {
                let after = (packet.after.max(0.0) * SECOND) as u64;
                let at = start + after / 1000 * 1000;
                Packet { at, info: PacketInfo { time_of_day: time_of_day(at), ..packet.info }, ..packet }
            })
            .filter(|packet| packet.at < end)
            .collect();
        packets.sort_by_key(|p| p.at);
        self.busy_until = packets.last().map_or(start, |p| p.at);
        self.packets = packets.into();
    }
}

fn packet(direction: Direction, protocol: u16, ports: (u16, u16), size: u32) -> PacketInfo {
    PacketInfo { direction, protocol, local_port: ports.0, remote_port: ports.1, size, time_of_day: None }
}

/// One flow, with a DNS exchange before half of them.
fn one_flow(random: &mut Seeded, mut at: f64, out: &mut Vec<Packet>) {
    let began = at;
    let local = 49_152 + u16::try_from(random.below(16_000)).unwrap_or(0);
    if random.below(2) == 0 {
        out.push(Packet::new(at, began, packet(Direction::Outgoing, 17, (local, 53), 70)));
        at += lognormal(random, 0.02f64.ln(), 1.0).min(5.0);
        out.push(Packet::new(at, began, packet(Direction::Incoming, 17, (local, 53), 130)));
    }
    let (protocol, remote) = match random.below(10) {
        0..6 => (6, 443),
        6 | 7 => (17, 443),
        8 => (6, 80),
        _ => (6, 993),
    };
    let bytes = bipareto(random, 0.0, 0.91, 5.20, 179.0);
    let packets = 2 + ((bytes / 1200.0).min(f64::from(MAX_FLOW_PACKETS - 2)) as u32);
    for n in 0..packets {
        at += lognormal(random, 0.02f64.ln(), 1.0).min(5.0);
        let outgoing = n % 2 == 0;
        let direction = if outgoing { Direction::Outgoing } else { Direction::Incoming };
        let size = if outgoing { 80 } else { 1200 };
        out.push(Packet::new(at, began, packet(direction, protocol, (local, remote), size)));
    }
}

/// Timers and unasked arrivals for as long as the client is present.
fn background(random: &mut Seeded, stay: f64, timers: [bool; 4], noise: f64, out: &mut Vec<Packet>) {
    let on = TIMERS.into_iter().enumerate().zip(timers).filter(|(_, on)| *on);
    for ((timer, (period, protocol, port)), _) in on {
        let local = if port == 67 { 68 } else { 40_000 + port % 1000 };
        let mut at = unit(random) * period;
        while at < stay {
            let [asks, answers] = [Direction::Outgoing, Direction::Incoming]
                .map(|direction| packet(direction, protocol, (local, port), 90));
            out.push(Packet { timer: Some(timer), ..Packet::new(at, f64::INFINITY, asks) });
            out.push(Packet::new(at + 0.03, at, answers));
            at += period * (1.0 + TIMER_JITTER * normal(random));
        }
    }
    let kinds = [(17, 5353), (17, 1900), (17, 137), (6, 445), (0x806, 0), (17, 5355)];
    let mut at = 0.0;
    loop {
        at -= noise * unit(random).ln();
        if at >= stay {
            return;
        }
        let (protocol, port) = kinds.get(random.below(6) as usize).copied().unwrap_or((17, 5353));
        out.push(Packet::new(at, f64::INFINITY, packet(Direction::Incoming, protocol, (port, port), 120)));
    }
}

/// Uniform in (0, 1].
fn unit(random: &mut Seeded) -> f64 {
    let value = ((random.next_u64() >> 11) + 1) as f64;
    value / 9_007_199_254_740_992.0
}

/// Standard normal, by Box and Muller.
fn normal(random: &mut Seeded) -> f64 {
    let (a, b) = (unit(random), unit(random));
    (-2.0 * a.ln()).sqrt() * (2.0 * core::f64::consts::PI * b).cos()
}

fn lognormal(random: &mut Seeded, mu: f64, sigma: f64) -> f64 {
    (mu + sigma * normal(random)).exp()
}

fn poisson(random: &mut Seeded, mean: f64) -> u32 {
    let (limit, mut product, mut count) = ((-mean.min(30.0)).exp(), unit(random), 0);
    while product > limit {
        product *= unit(random);
        count += 1;
    }
    count
}

/// P(X > x) = (x/k)^-a ((x/k + c)/(1 + c))^(a - b) for x >= k, inverted by bisection of ln(x/k).
fn bipareto(random: &mut Seeded, a: f64, b: f64, c: f64, k: f64) -> f64 {
    let wanted = unit(random).ln();
    let survival = |y: f64| -a * y + (a - b) * ((y.exp() + c) / (1.0 + c)).ln();
    let (mut low, mut high) = (0.0, 60.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if survival(middle) > wanted { low = middle } else { high = middle }
    }
    k * low.exp()
}

fn start_of_session(random: &mut Seeded) -> u64 {
    let total: f64 = HOURS.iter().sum();
    let mut left = unit(random) * total;
    let mut hour = 0;
    for (h, weight) in (0u64..).zip(HOURS) {
        hour = h;
        left -= weight;
        if left <= 0.0 {
            break;
        }
    }
    hour * 3600 + random.below(3600)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: Recipe = Recipe { clients: 40, days: 1, seed: 7, start: 1_700_006_400 };

    #[test]
    fn equal_seeds_make_equal_traffic_in_order_of_time() {
        let a: Vec<ClientPacket> = Population::new(RECIPE).collect();
        let b: Vec<ClientPacket> = Population::new(RECIPE).collect();
        assert!(a == b, "seed {}", RECIPE.seed);
        assert!(a.windows(2).all(|w| w[0].at <= w[1].at));
        let c: Vec<ClientPacket> = Population::new(Recipe { seed: 8, ..RECIPE }).collect();
        assert!(a != c);
        assert!(a.len() > 1000 && a.iter().all(|m| m.client < 40));
        assert!(a.iter().all(|m| m.info.time_of_day.map(u64::from) == Some(m.at / 1_000_000_000 % 86_400)));
    }

    #[test]
    fn the_laws_have_their_medians() {
        let mut random = Seeded::new(3);
        let mut gaps: Vec<f64> = (0..4001).map(|_| lognormal(&mut random, -1.367, 2.785)).collect();
        gaps.sort_by(f64::total_cmp);
        let median = gaps[2000].ln();
        assert!((median + 1.367).abs() < 0.2, "{median}");
        let mut sizes: Vec<f64> = (0..4001).map(|_| bipareto(&mut random, 0.0, 0.91, 5.2, 179.0)).collect();
        sizes.sort_by(f64::total_cmp);
        // S(x) = ((x/k + c)/(1 + c))^-b = 1/2 at x = k ((1 + c) 2^(1/b) - c)
        let expected = 179.0 * (6.2 * 2f64.powf(1.0 / 0.91) - 5.2);
        assert!((sizes[2000] / expected - 1.0).abs() < 0.1, "{} against {expected}", sizes[2000]);
    }
}
