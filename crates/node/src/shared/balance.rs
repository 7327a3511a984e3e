//! Which of several gateways a device goes to: the least loaded one. Owns what the others have said of themselves at their heartbeats, what was sent to
//! each since, and the rule; must never send anything, nor ask for the time.
//!
//! The *load* of a gateway is its devices, awake and asleep, times how long a session takes there, so that a gateway of half the speed gets half
//! of them. Times are compared within a factor of [`FACTOR`], and not at all where one is not known: what the store says is no reason to send
//! everybody to one place.
//!
//! A caller that logs in stays unless this gateway would have, with it, more than a tenth of its load and more than [`MARGIN`] devices above the least
//! loaded other one with it. What was sent to a gateway counts there until the gateway counts it itself, or has not done so at its second heartbeat
//! from then: so a storm is shared out, and not all sent to one.

use super::Other;
use dormouse_ike::{Gateway, Spread};
use dormouse_sansio::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A gateway counts as faster or slower than this one by so much at most.
pub const FACTOR: u32 = 4;
/// Devices that a gateway has more than another one before it sends any there.
pub const MARGIN: u64 = 2;
/// Or this part of what it has, if that is more.
const TENTH: u64 = 10;

/// Another gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Candidate {
    other: Other,
    /// Where devices reach it, as it says.
    places: Vec<Gateway>,
    /// Devices that were sent there before the last heartbeat, and after it, and that it does not count yet.
    sent: [u64; 2],
}

impl Candidate {
    /// With those that are on their way.
    fn devices(&self) -> u64 {
        self.sent.iter().fold(self.other.devices, |sum, sent| sum.saturating_add(*sent))
    }

    /// Where a peer reaches it whose own address is of this family.
    fn place(&self, v6: bool) -> Option<&Gateway> {
        self.places.iter().find(|place| match place {
            Gateway::Address(address) => address.is_ipv6() == v6,
            Gateway::Name(_) => true,
        })
    }
}

/// Where a device goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The gateway's name.
    pub name: String,
    /// Where the device reaches it, if that is said.
    pub place: Option<Gateway>,
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Balance {
    /// Callers that log in are sent away by load.
    spreads: bool,
    /// All of them are: the gateway gives its devices away.
    leaves: bool,
    /// What this gateway says of where it is.
    places: Vec<Gateway>,
    devices: u64,
    session: Option<Duration>,
    others: Vec<Candidate>,
    sent: u64,
}

/// What a gateway says of where it is: names or addresses, parted by commas. What is neither is passed over.
fn places(address: &str) -> Vec<Gateway> {
    address.split(',').filter_map(|place| place.trim().parse().ok()).collect()
}

impl Balance {
    /// Of a gateway at this `address`, which knows of no others yet.
    #[must_use]
    pub fn new(spreads: bool, address: &str) -> Self {
        Self { spreads, places: places(address), ..Self::default() }
    }

    /// This gateway has so many devices, awake and asleep, and a session takes so long here, if that is known.
    pub fn count(&mut self, devices: u64, session: Option<Duration>) {
        (self.devices, self.session) = (devices, session);
    }

    /// The gateway gives its devices away, or no longer.
    pub fn leave(&mut self, leaves: bool) {
        self.leaves = leaves;
    }

    /// A heartbeat: these gateways can be gone to. None while the store cannot be reached.
    pub fn heard(&mut self, others: Vec<Other>) {
        let before = std::mem::take(&mut self.others);
        self.others = others
            .into_iter()
            .map(|other| {
                let was = before.iter().find(|candidate| candidate.other.name == other.name);
                // What is new there are those that were sent, the longest ago first.
                let sent = was.map_or(0, |was| {
                    let new = other.devices.saturating_sub(was.other.devices);
                    was.sent[1].saturating_sub(new.saturating_sub(was.sent[0]))
                });
                Candidate { places: places(&other.address), other, sent: [sent, 0] }
            })
            .collect();
    }

    /// Devices that were sent to other gateways when they logged in.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// How long a session takes here, if that is known.
    #[must_use]
    pub fn session_time(&self) -> Option<Duration> {
        self.session
    }

    /// The load of this gateway: its devices times how long a session takes here; zero while that is not known.
    #[must_use]
    pub fn own_load(&self) -> Duration {
        let devices = u32::try_from(self.devices).unwrap_or(u32::MAX);
        self.session.unwrap_or_default().saturating_mul(devices)
    }

    /// How heavy one device is there, in units of its own.
    fn weight(&self, session: Option<Duration>) -> u128 {
        let Some(own) = self.session else { return 1 };
        let own = own.as_micros().max(1);
        let factor = u128::from(FACTOR);
        session.map_or(own, |there| there.as_micros().clamp(own.div_ceil(factor), own * factor))
    }

    /// The load of a gateway with one device more.
    fn load(&self, candidate: &Candidate) -> u128 {
        (u128::from(candidate.devices()) + 1) * self.weight(candidate.other.session)
    }

    fn least(&mut self, fits: impl Fn(&Candidate) -> bool) -> Option<usize> {
        let fitting = (0..self.others.len()).filter(|n| fits(&self.others[*n]));
        fitting.min_by_key(|n| self.load(&self.others[*n]))
    }

    fn send(&mut self, to: usize) -> &Candidate {
        self.others[to].sent[1] += 1;
        &self.others[to]
    }

    /// The least loaded gateway gets one more, from this one, which is going. `v6`: whether its peer is reached by IPv6.
    pub fn next(&mut self, v6: bool) -> Option<Destination> {
        let to = self.least(|_| true)?;
        let chosen = self.send(to);
        Some(Destination { name: chosen.other.name.clone(), place: chosen.place(v6).cloned() })
    }

    /// Where a caller goes that logs in and follows; `None`: it stays. `under_way`: callers that have begun here and are not counted yet.
    pub fn elsewhere(&mut self, v6: bool, under_way: u64) -> Option<Gateway> {
        if !self.spreads && !self.leaves {
            return None;
        }
        // Where all say the same of where they are, it is the name of all of them.
        let own = self.places.clone();
        let to = self.least(|candidate| candidate.place(v6).is_some_and(|place| !own.contains(place)))?;
        let here = self.devices.saturating_add(under_way);
        let (weight, margin) = (self.weight(self.session), MARGIN.max(here / TENTH));
        let (stays, goes) = ((u128::from(here) + 1) * weight, self.load(&self.others[to]));
        if !self.leaves && stays <= goes + u128::from(margin) * weight {
            return None;
        }
        self.sent += 1;
        self.send(to).place(v6).cloned()
    }
}

/// A balance that the IKE endpoint asks while the gateway's loop keeps it.
#[derive(Clone, Debug, Default)]
pub struct SharedBalance(Arc<Mutex<Balance>>);

impl SharedBalance {
    /// Shares `balance`.
    #[must_use]
    pub fn new(balance: Balance) -> Self {
        Self(Arc::new(Mutex::new(balance)))
    }

    /// The balance; not to be kept.
    pub fn lock(&self) -> MutexGuard<'_, Balance> {
        // A panic elsewhere cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spread for SharedBalance {
    fn elsewhere(&mut self, path: &Path, under_way: usize) -> Option<Gateway> {
        self.lock().elsewhere(path.remote.is_ipv6(), under_way as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(name: &str, address: &str, devices: u64, millis: Option<u64>) -> Other {
        let session = millis.map(Duration::from_millis);
        Other { name: name.into(), address: address.into(), devices, session }
    }

    fn balance(others: Vec<Other>) -> Balance {
        let mut balance = Balance::new(true, "192.0.2.1");
        balance.heard(others);
        balance
    }

    /// So many callers come one after the other: how many stay, and how many go where.
    fn come(balance: &mut Balance, callers: u64, session: Option<Duration>) -> (u64, Vec<u64>) {
        let mut here = balance.devices;
        for _ in 0..callers {
            balance.count(here, session);
            here += u64::from(balance.elsewhere(false, 0).is_none());
        }
        (here, balance.others.iter().map(Candidate::devices).collect())
    }

    #[test]
    fn who_comes_to_one_gateway_is_shared_out_among_all() {
        let three = || vec![other("b", "192.0.2.2", 0, None), other("c", "192.0.2.3", 0, None)];
        assert_eq!(come(&mut balance(three()), 10, None), (5, vec![3, 2]));
        let (here, there) = come(&mut balance(three()), 3_000, None);
        // A tenth above the others, and no more.
        assert!(here.abs_diff(1_071) <= 2 && there[0].abs_diff(there[1]) <= 1, "{here} {there:?}");
        assert_eq!(here + there.iter().sum::<u64>(), 3_000);
        // Nothing goes to who has more already, nor within the margin.
        assert_eq!(come(&mut balance(vec![other("b", "192.0.2.2", 50, None)]), 40, None), (40, vec![50]));
    }

    #[test]
    fn a_gateway_of_half_the_speed_gets_half_the_devices() {
        let fast = Some(Duration::from_millis(20));
        let others = || vec![other("b", "192.0.2.2", 0, Some(40)), other("c", "192.0.2.3", 0, Some(20))];
        let mut from_fast = balance(others());
        let (_, there) = come(&mut from_fast, 5_000, fast);
        assert!((there[0] * 2).abs_diff(there[1]) <= 2, "{there:?}");
        // What is absurd counts as four times as fast, or as slow; what is not known, as this gateway itself.
        for (said, counted) in [(Some(0), 4_000), (Some(86_400_000), 250), (None, 1_000)] {
            let mut balance =
                balance(vec![other("b", "192.0.2.2", 0, said), other("c", "192.0.2.3", 0, Some(20))]);
            balance.leave(true);
            let (_, there) = come(&mut balance, 100_000, fast);
            let ratio = there[0] * 1_000 / there[1];
            assert!(ratio.abs_diff(counted) <= counted / 100, "{said:?}: {there:?}");
        }
    }

    #[test]
    fn what_was_sent_counts_until_the_gateway_counts_it_itself() {
        let gateway = |devices| vec![other("b", "192.0.2.2", devices, None)];
        let mut balance = balance(gateway(0));
        balance.count(100, None);
        let go = |balance: &mut Balance| (0..1_000).filter(|_| balance.elsewhere(false, 0).is_some()).count();
        assert_eq!(go(&mut balance), 90, "until both have as many, but for the tenth");
        // Its heartbeat was before some of them came.
        balance.heard(gateway(10));
        assert_eq!(go(&mut balance), 0);
        balance.heard(gateway(90));
        assert_eq!(go(&mut balance), 0);
        balance.heard(gateway(40));
        assert_eq!(go(&mut balance), 50, "what has not come there is gone after two");
        // Callers that have begun count too.
        assert!(balance.elsewhere(false, 50).is_some());
        assert_eq!(balance.sent(), 141);
    }

    #[test]
    fn where_a_caller_cannot_go_it_is_not_sent() {
        for (address, v6, to) in [
            ("192.0.2.2", false, Some("192.0.2.2")),
            ("192.0.2.2", true, None),
            ("192.0.2.2, 2001:db8::2", true, Some("2001:db8::2")),
            ("gw2.example.org", true, Some("gw2.example.org")),
            ("", false, None),
            ("no gateway, 192.0.2", false, None),
            // The name of all of them.
            ("192.0.2.1", false, None),
        ] {
            let mut balance = balance(vec![other("b", address, 0, None)]);
            balance.count(100, None);
            let sent = balance.elsewhere(v6, 0);
            assert_eq!(sent.map(|to| to.to_string()).as_deref(), to, "{address}");
        }
        let mut balance = balance(Vec::new());
        balance.count(100, None);
        assert_eq!((balance.elsewhere(false, 0), balance.next(false)), (None, None));
    }

    #[test]
    fn without_spread_all_stay_but_at_a_gateway_that_goes() {
        let mut balance = Balance::new(false, "192.0.2.1");
        balance.heard(vec![other("b", "192.0.2.2", 500, None)]);
        balance.count(1_000, None);
        assert_eq!(balance.elsewhere(false, 0), None);
        balance.leave(true);
        balance.count(1, None);
        assert_eq!(balance.elsewhere(false, 0), "192.0.2.2".parse().ok());
        // Devices that it gives away go where the fewest are, whether they find the way themselves or not.
        balance.heard(vec![other("b", "192.0.2.2", 1, None), other("c", "", 0, None)]);
        let next: Vec<Destination> = (0..4).filter_map(|_| balance.next(false)).collect();
        let names: Vec<&str> = next.iter().map(|to| to.name.as_str()).collect();
        // One is on its way to b.
        assert_eq!((names, next[0].place.clone()), (vec!["c", "c", "b", "c"], None));
    }
}
