//! What must be true once the faults of a story have stopped. Owns how long that may take; what must be true at every step is `laws`' and
//! `lives`'.

use super::ends::LONGEST;
use super::lives::Life;
use super::script::Edit;
use super::settings::Meeting;
use super::world::World;
use dormouse_hip::{Host as Hip, Phase, Registration};
use dormouse_node::sleeper::Mode;
use dormouse_sansio::Instant;
use dormouse_wire::hip::Hit;
use std::collections::BTreeSet;
use std::time::Duration;

/// Within this time every pair has a packet through if the hosts know where they are. A packet that is not answered raises a question
/// after 4 s, which is given up after 7 s more; an exchange or an UPDATE that was under way is repeated for 31 s at most, and what it ends
/// with begins anew by the next packet.
const FOUND: Duration = Duration::from_secs(60);
/// With a server, which is tried once in an hour at least (`dormouse_hip::limits::LAST_RETRY`), and is asked for 31 s. Once all are registered
/// there, [`FOUND`] counts.
const MET: Duration = Duration::from_secs(3_700);
/// A relay that has started again is asked within this time: every 15 s it is shown that it is in use, each eighth time it is asked, and it is
/// asked for 31 s. A rendezvous server is asked each hour at least, as long as [`MET`] says.
const ASKED_AGAIN: Duration = Duration::from_secs(180);
/// Once a relay has registered its clients again, they ask it to let their peers through.
const LET_THROUGH: Duration = Duration::from_secs(2);
/// A packet is on its way for so long at most, and so is the CLOSE that says that its association is over.
const FLIGHT: Duration = Duration::from_secs(1);
/// Packets are sent again so often where an association ends meanwhile, which none does twice in as many rounds.
const ROUNDS: usize = 4;
/// The end of a sleep that was announced is noticed so late at most: its timer may be a minute late, and the pairs are looked at once in 64 s.
const NOTICED: Duration = Duration::from_secs(130);
/// After this time without a packet a radio is off, also if a peer was asked in vain.
const QUIET: Duration = Duration::from_secs(60);
/// A packet for a host that sleeps, or is awake and known, arrives within this time: a radio needs 2 s, a question 11 s.
const ARRIVES: Duration = Duration::from_secs(20);
/// Where the peer has ended the association while the host slept, and could not say so, a host with several ways asks by every one, 3 s by each and at
/// last 31 s by one. A radio stays on for 8 s of that: the packet waits until it is on for so long.
const SEARCHED: Duration = Duration::from_secs(50);

/// What a sender has of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// An association that the receiver has too.
    Common,
    /// One that the receiver does not have.
    Alone,
    /// None.
    None,
}

/// A packet, and what there was when it was sent.
#[derive(Debug)]
struct Flight {
    from: usize,
    to: usize,
    number: u64,
    at: Instant,
    /// When the association of the two began.
    begun: Instant,
    way: Way,
    /// It goes by a relay.
    relayed: bool,
    /// Whether the server has the sender, and the receiver.
    registered: [bool; 2],
}

impl World {
    /// After any story: with good networks, all hosts at home and configured as they were, every pair of them gets packets through both
    /// ways within a bounded time, by one association on which both ends agree; then radios go off, and the first packet of a host
    /// wakes its own.
    ///
    /// # Panics
    /// With the seed, if something of this is not true.
    pub fn settle_and_check(&mut self) {
        self.weather(0.0, 0.0, 0.0);
        if self.is_alive() {
            self.disarm();
        }
        while !self.is_alive() {
            self.run(Duration::from_secs(1));
        }
        self.server_comes();
        for n in 0..self.hosts() {
            self.reload(n, Edit::Nothing);
            self.go_home(n);
            self.wake(n);
            self.with(n, |now, host| _ = host.set_mode(now, Mode::Performance));
        }
        self.all_meet();
        self.all_flow(&self.pairs());
        self.check_agreement();
        if self.ends.settings.has_server() {
            self.the_server_starts_again();
        }
        self.rest();
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let hosts = self.hosts();
        (0..hosts).flat_map(|a| (a + 1..hosts).map(move |b| (a, b))).collect()
    }

    /// Every pair tries until it has a packet through in each direction, the first by who knows the other.
    ///
    /// Who takes its peer for asleep sends to it in vain until that sleep is over, for [`LONGEST`] at most; then [`FOUND`] counts. It cannot tell a
    /// peer that hears nothing from one that has lost the association meanwhile, because its process died or because it asked in vain after the
    /// sleep; and ESP alone does not show such a peer whom it should call, unless its configuration says who is there.
    fn all_meet(&mut self) {
        const FIRST: Duration = Duration::from_secs(2);
        let mut since = self.net.now;
        let mut longest = if self.ends.settings.has_server() { MET } else { FOUND };
        let mut left = self.pairs();
        let (began, mut between, mut asleep, mut slept) = (since, FIRST, false, false);
        while !left.is_empty() {
            let tried: Vec<_> = left
                .iter()
                .map(|(a, b)| {
                    let (a, b) = if self.ends.settings.knows(*a, *b) { (*a, *b) } else { (*b, *a) };
                    (a, b, self.send(a, b))
                })
                .collect();
            self.run(Duration::from_secs(2));
            let back: Vec<_> = tried.iter().map(|(a, b, _)| self.send(*b, *a)).collect();
            self.run(Duration::from_secs(2));
            left = tried
                .iter()
                .zip(&back)
                .filter(|((a, b, there), back)| !self.has(*b, *there) || !self.has(*a, **back))
                .map(|((a, b, _), _)| (*a.min(b), *a.max(b)))
                .collect();
            let slept_on = asleep && self.net.now - began < LONGEST + NOTICED;
            asleep = !left.is_empty() && left.iter().all(|pair| self.is_taken_for_asleep(*pair));
            if slept_on {
                (since, slept) = (self.net.now, true);
                between = if asleep { between } else { FIRST };
            }
            let (seed, took) = (self.seed, self.net.now - since);
            assert!(
                left.is_empty() || took < longest,
                "hosts did not meet in time; seed {seed}: {left:?} after {took:?}, {}",
                self.state()
            );
            if !left.is_empty() {
                if longest > FOUND && self.all_registered() {
                    (since, longest, between) = (self.net.now, FOUND, FIRST);
                }
                self.run(between);
                between = (between * 2).min(Duration::from_secs(60));
            }
        }
        if slept {
            // What the others had may have ended meanwhile, because it was not used.
            self.all_meet();
        }
    }

    /// Whether one of the two takes the other for asleep, which has no association with it any more and does not know where it is.
    fn is_taken_for_asleep(&self, (a, b): (usize, usize)) -> bool {
        let of = |n: usize, other: usize| {
            let hip = self.machine(n).node().and_then(|node| node.manager::<Hip>());
            hip.and_then(|hip| hip.describe().find(|d| d.peer == self.ends.tags[other]))
        };
        let missed = |n: usize, other: usize| {
            of(n, other).is_some_and(|d| d.peer_sleeps)
                && of(other, n).is_none_or(|d| d.phase != Phase::Established)
                && !self.ends.settings.knows(other, n)
        };
        missed(a, b) || missed(b, a)
    }

    /// Whether each host is registered at the server, as both say.
    fn all_registered(&self) -> bool {
        (0..self.hosts()).all(|n| self.is_registered(n))
    }

    fn is_registered(&self, n: usize) -> bool {
        let stands = |n: usize, other: usize, wanted: Registration| {
            let hip = self.machine(n).node().and_then(|node| node.manager::<Hip>());
            let is =
                |d: dormouse_hip::Description| d.peer == self.ends.tags[other] && d.registration == wanted;
            hip.is_some_and(|hip| hip.describe().any(is))
        };
        let server = self.ends.server();
        self.ends.settings.has_server()
            && stands(n, server, Registration::AtPeer)
            && stands(server, n, Registration::OfPeer)
    }

    /// The server's process dies, and the next one knows no client: all register anew by themselves. What there is between the hosts goes on, and
    /// where it is still there, what they send arrives at once; then all meet as before.
    fn the_server_starts_again(&mut self) {
        let before: Vec<_> = self.pairs().into_iter().map(|pair| (pair, self.common(pair))).collect();
        // Who was not registered tries it as rarely as ever.
        let soon = self.ends.settings.meeting == Meeting::Relay && self.all_registered();
        self.restart_server();
        let (since, longest) = (self.net.now, if soon { ASKED_AGAIN } else { MET });
        while !self.all_registered() {
            let (seed, took) = (self.seed, self.net.now - since);
            assert!(
                took < longest,
                "hosts did not register anew in time; seed {seed}: after {took:?}, {}",
                self.state()
            );
            self.run(Duration::from_secs(1));
        }
        self.run(LET_THROUGH);
        let same = |(pair, common): &(_, BTreeSet<_>)| !self.common(*pair).is_disjoint(common);
        let kept: Vec<_> = before.into_iter().filter(same).map(|(pair, _)| pair).collect();
        self.all_flow(&kept);
        self.all_meet();
        self.all_flow(&self.pairs());
        self.check_agreement();
    }

    /// Packets of these pairs arrive, at once, but for what the end of an association for its lifetime costs ([`Self::is_cut_off`]): then the
    /// pair tries it again.
    fn all_flow(&mut self, pairs: &[(usize, usize)]) {
        let mut left = pairs.to_vec();
        for _ in 0..ROUNDS {
            let both: Vec<_> = left.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect();
            let sent: Vec<_> = both.into_iter().map(|(a, b)| self.sends(a, b)).collect();
            self.run(Duration::from_secs(3));
            let missing = sent.iter().filter(|flight| !self.has(flight.to, flight.number));
            let (cut_off, lost): (Vec<_>, Vec<_>) = missing.partition(|flight| self.is_cut_off(flight));
            let (seed, state) = (self.seed, self.state());
            assert!(
                lost.is_empty(),
                "packets of hosts that have met are lost; seed {seed}: {lost:?}, {state}"
            );
            let is_of =
                |it: &&Flight, pair: (usize, usize)| [(it.from, it.to), (it.to, it.from)].contains(&pair);
            left.retain(|pair| cut_off.iter().any(|it| is_of(it, *pair)));
            let hidden = cut_off.iter().any(|it| self.is_hidden(it));
            if left.is_empty() {
                return;
            }
            if hidden {
                self.all_meet();
            }
        }
        let (seed, state) = (self.seed, self.state());
        panic!("packets of hosts that have met are cut off each time; seed {seed}: {left:?}, {state}");
    }

    fn sends(&mut self, from: usize, to: usize) -> Flight {
        let way = match (self.children(from, to, false).is_empty(), self.common((from, to)).is_empty()) {
            (false, false) => Way::Common,
            (false, true) => Way::Alone,
            (true, _) => Way::None,
        };
        Flight {
            from,
            to,
            at: self.net.now,
            begun: self.life(from, to).begun.max(self.life(to, from).begun),
            way,
            relayed: self.is_relayed(from, to),
            registered: [from, to].map(|n| self.is_registered(n)),
            number: self.send(from, to),
        }
    }

    /// Whether a packet may be lost, because the association that it needed has ended for its lifetime: while it was on its way, or before the
    /// sender could know it; or where the sender has none and does not know where the peer is. Where it went by a relay, or a server had to lead to
    /// the peer, that counts for the associations of the two with the server as well, until they are registered again.
    fn is_cut_off(&self, flight: &Flight) -> bool {
        let Flight { from, to, at, way, .. } = *flight;
        let ended = self.ended(flight);
        let pair = match way {
            Way::Common => ended.is_some_and(|over| over >= at),
            Way::Alone => ended.is_some(),
            // It is held, if there is a way.
            Way::None => ended.is_some() && !self.ends.settings.knows(from, to),
        };
        pair || (flight.relayed || way == Way::None) && self.is_unserved(flight) || self.is_hidden(flight)
    }

    /// Whether a packet needs another association, and the server, which may have been away, does not lead to the peer: then the two meet as at first.
    fn is_hidden(&self, flight: &Flight) -> bool {
        let unknown = flight.registered.contains(&false) && self.ends.settings.has_server();
        flight.way == Way::None && unknown && self.ended(flight).is_some()
    }

    /// When the association that two hosts had when one of them sent something ended for its lifetime, unless that was too late to matter.
    fn ended(&self, flight: &Flight) -> Option<Instant> {
        let Flight { from, to, at, begun, .. } = *flight;
        let over = [self.life(from, to).over, self.life(to, from).over];
        over.into_iter().flatten().filter(|over| *over >= begun && *over <= at + FLIGHT).max()
    }

    fn life(&self, n: usize, other: usize) -> Life {
        self.laws.lives.of(n, self.ends.tags[other])
    }

    /// Whether the server was not there for one of the two, because an association with it has ended.
    fn is_unserved(&self, flight: &Flight) -> bool {
        let server = self.ends.server();
        let of = |(n, registered): (usize, bool)| {
            let over = self.life(n, server).over;
            over.is_some_and(|over| over <= flight.at + FLIGHT)
                && (!registered || self.life(n, server).changed + LET_THROUGH >= flight.at)
        };
        self.ends.settings.has_server() && [flight.from, flight.to].into_iter().zip(flight.registered).any(of)
    }

    fn is_relayed(&self, n: usize, other: usize) -> bool {
        let of = |a: usize, b: usize| {
            let hip = self.machine(a).node().and_then(|node| node.manager::<Hip>());
            hip.is_some_and(|hip| hip.describe().any(|d| d.peer == self.ends.tags[b] && d.relayed))
        };
        of(n, other) || of(other, n)
    }

    /// Both ends of each pair have one association, with a pair of SAs that is the same; or none, if its lifetime is over. Asked a few times: a
    /// rekeying, or a CLOSE, may be under way.
    fn check_agreement(&mut self) {
        for _ in 0..10 {
            if self.disagreement().is_none() {
                return;
            }
            self.run(Duration::from_millis(2_300));
        }
        let (seed, why) = (self.seed, self.disagreement());
        assert!(
            why.is_none(),
            "two ends disagree; seed {seed}: {}, {}",
            why.unwrap_or_default(),
            self.state()
        );
    }

    fn disagreement(&self) -> Option<String> {
        self.pairs().into_iter().find_map(|(a, b)| {
            let (ours, theirs) = (self.children(a, b, false), self.children(b, a, true));
            let agree =
                !ours.is_disjoint(&theirs) || ours.is_empty() && theirs.is_empty() && self.is_over(a, b);
            (!agree).then(|| format!("{a} and {b}: {ours:x?}, {theirs:x?}"))
        })
    }

    /// Whether the last association of two hosts has ended for its lifetime: the next packet begins another.
    fn is_over(&self, a: usize, b: usize) -> bool {
        let (ours, theirs) = (self.life(a, b), self.life(b, a));
        [ours.over, theirs.over].into_iter().flatten().max() >= Some(ours.begun.max(theirs.begun))
    }

    /// The pairs of SAs that both ends have.
    fn common(&self, (a, b): (usize, usize)) -> BTreeSet<(u32, u32)> {
        &self.children(a, b, false) & &self.children(b, a, true)
    }

    /// The SPIs of what host `n` has with another, the inbound one first; or the outbound one.
    fn children(&self, n: usize, other: usize, swap: bool) -> BTreeSet<(u32, u32)> {
        let sessions = self.machine(n).node().map(|node| node.gateway_sessions(self.net.now));
        let of = |peer: &str| peer.parse().ok().map(Hit) == Some(self.ends.tags[other]);
        let sessions: Vec<_> = sessions.into_iter().flatten().filter(|s| of(&s.peer)).collect();
        let children = sessions.iter().flat_map(|s| &s.children);
        children.map(|c| if swap { (c.spi_out, c.id.spi()) } else { (c.id.spi(), c.spi_out) }).collect()
    }

    /// Radios go off and stay off; what a host sends first wakes its own, and arrives.
    fn rest(&mut self) {
        let sleepers: Vec<usize> = (0..self.hosts()).filter(|n| self.ends.has_radio(*n)).collect();
        for n in &sleepers {
            self.with(*n, |now, host| _ = host.set_mode(now, Mode::Energy));
        }
        self.run(QUIET);
        self.check_sleep(&sleepers, "after the last packet");
        for n in sleepers.iter().copied() {
            // A NAT forgets a peer, and then no host can find it again.
            let finds = |other: &usize| !self.ends.has_radio(*other) && self.ends.settings.knows(n, *other);
            let others = (0..self.hosts()).filter(finds);
            for other in others.collect::<Vec<_>>() {
                let searches = self.ends.settings.multihoming
                    && self.is_over(n, other)
                    && !self.children(n, other, false).is_empty();
                let number = self.send(n, other);
                self.run(ARRIVES);
                if searches && !self.has(other, number) {
                    self.with(n, |now, host| _ = host.set_mode(now, Mode::Performance));
                    self.run(SEARCHED);
                    self.with(n, |now, host| _ = host.set_mode(now, Mode::Energy));
                }
                let (seed, state) = (self.seed, self.state());
                assert!(
                    self.has(other, number),
                    "what woke a host was lost; seed {seed}: {n} to {other}, {state}"
                );
            }
        }
        self.run(QUIET);
        self.check_sleep(&sleepers, "after another one");
        // Nothing wakes them.
        self.run(Duration::from_secs(1_000));
        self.check_sleep(&sleepers, "much later");
    }

    /// Whether a host has nothing for which its radio would be switched, because the lifetime of the last of it is over.
    fn is_given_back(&self, n: usize) -> bool {
        let others = (0..self.machines.len()).filter(|other| *other != n);
        self.machine(n).node().is_some_and(|node| !node.wanted())
            && others.into_iter().any(|other| self.is_over(n, other))
    }

    fn check_sleep(&self, sleepers: &[usize], when: &str) {
        for n in sleepers {
            let machine = self.machine(*n);
            let sleeps = machine.is_asleep(self.net.now) && !machine.radio_is_on() || self.is_given_back(*n);
            let (seed, now) = (self.seed, self.net.now);
            assert!(
                sleeps,
                "a radio is not off {when}; seed {seed}: host {n} at {now:?}, {:?}, {}",
                machine.sleep_report(now),
                self.state()
            );
        }
    }

    /// What the hosts say of themselves, for who reads why a story failed.
    fn state(&self) -> String {
        let of = |n: usize| {
            let node = self.machine(n).node();
            let peers: Vec<(usize, Phase, String)> = node
                .and_then(|node| node.manager::<Hip>())
                .map(|hip| {
                    let number =
                        |tag: Hit| self.ends.tags.iter().position(|t| *t == tag).unwrap_or(usize::MAX);
                    let words = |d: &dormouse_hip::Description| format!("{:?} {:?}", d.path, d.registration);
                    hip.describe().map(|d| (number(d.peer), d.phase, words(&d))).collect()
                })
                .unwrap_or_default();
            let changes = &self.machine(n).changes;
            let last = changes.get(changes.len().saturating_sub(4)..).unwrap_or_default();
            format!("\nmachine {n}: {peers:?}, {last:?}")
        };
        (0..self.machines.len()).map(of).collect::<String>()
    }

    /// The clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.net.now
    }
}
