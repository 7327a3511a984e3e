//! Where the gateways are: their names, looked up by the driver, and the ways that lead there. Owns what was found and when to ask again; must
//! never ask itself. Addresses that were found stay until a better answer comes.
//!
//! # Timer
//! *a gateway's name*: a name that no server knew is asked for again, after 1 s, doubled to 60 s. Only while there is a network and the host
//! may send; a new network is a reason to ask at once.

use super::Host;
use super::output::Output;
use crate::event::Order;
use dormouse_sansio::{Deadline, Instant, Path};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// Addresses of one name that are used.
const ADDRESSES_MOST: usize = 8;

/// What a look-up of a name found: addresses, the best first; or why there are none.
pub type Answer = Result<Vec<IpAddr>, String>;

/// What is known of one name.
#[derive(Debug, Default)]
struct Gateway {
    addresses: Vec<IpAddr>,
    /// An answer is under way.
    asked: bool,
    /// Why the last look-up found nothing, while there is no address of before.
    trouble: Option<String>,
}

/// The names of the gateways.
#[derive(Debug)]
pub(super) struct Gateways {
    of: BTreeMap<String, Gateway>,
    retry: Option<Instant>,
    pause: Duration,
}

impl Default for Gateways {
    fn default() -> Self {
        Self { of: BTreeMap::new(), retry: None, pause: PAUSE_FIRST }
    }
}

impl Gateways {
    /// Whether the name is to be looked up: not while an answer is under way, and an address only once.
    fn ask(&mut self, name: &str) -> bool {
        let gateway = self.of.entry(name.to_owned()).or_default();
        let settled = !gateway.addresses.is_empty() && name.parse::<IpAddr>().is_ok();
        !settled && !std::mem::replace(&mut gateway.asked, true)
    }

    fn addresses(&self, name: &str) -> &[IpAddr] {
        self.of.get(name).map_or(&[], |gateway| &gateway.addresses)
    }

    fn trouble(&self, name: &str) -> Option<&str> {
        self.of.get(name)?.trouble.as_deref()
    }

    fn in_doubt(&self) -> bool {
        self.of.values().any(|gateway| gateway.trouble.is_some())
    }

    /// Those that were asked for in vain and are to be looked up again.
    fn again(&mut self) -> Vec<String> {
        let unknown = self.of.iter().filter(|(_, gateway)| gateway.trouble.is_some());
        let unknown: Vec<String> = unknown.map(|(name, _)| name.clone()).collect();
        unknown.into_iter().filter(|name| self.ask(name)).collect()
    }

    /// The network has changed: a name that was unknown before may be known in this one. Without one nothing is due.
    fn network(&mut self, online: bool) -> Vec<String> {
        self.retry = None;
        self.pause = PAUSE_FIRST;
        if online { self.again() } else { Vec::new() }
    }

    /// The connection that needs the name is down.
    fn give_up(&mut self, name: &str) {
        if let Some(gateway) = self.of.get_mut(name) {
            gateway.trouble = None;
        }
        if !self.in_doubt() {
            self.retry = None;
        }
    }

    /// Other names than these are not needed any more.
    fn keep(&mut self, needed: &BTreeSet<String>) {
        self.of.retain(|name, _| needed.contains(name));
        if !self.in_doubt() {
            self.retry = None;
        }
    }

    /// An answer has come in; `online`: whether it is worth asking again for what was not found.
    fn found(&mut self, now: Instant, name: &str, answer: Answer, online: bool) {
        if let Some(gateway) = self.of.get_mut(name) {
            gateway.asked = false;
            gateway.take(answer);
        }
        if !online || !self.in_doubt() {
            self.retry = None;
        } else if self.retry.is_none() && !self.of.values().any(|gateway| gateway.asked) {
            self.retry = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MOST);
        }
    }

    fn deadline(&self) -> Option<Deadline> {
        self.retry.map(|at| Deadline { at, slack: PAUSE_FIRST, why: "a gateway's name" })
    }

    fn handle_timeout(&mut self, now: Instant) -> Vec<String> {
        self.retry.take_if(|at| *at <= now).map_or_else(Vec::new, |_| self.again())
    }
}

impl Gateway {
    fn take(&mut self, answer: Answer) {
        match answer {
            Ok(mut found) => {
                self.trouble = None;
                found.truncate(ADDRESSES_MOST);
                // Name servers turn the order of their answers: that is no reason to go elsewhere.
                let set = |list: &[IpAddr]| list.iter().copied().collect::<BTreeSet<_>>();
                if set(&self.addresses) != set(&found) {
                    self.addresses = found;
                }
            }
            // An address from before is better than none.
            Err(_) if !self.addresses.is_empty() => {}
            Err(why) => self.trouble = Some(why),
        }
    }
}

impl Host {
    /// The name of a connection's gateway, or its address.
    fn gateway_of(&self, connection: &str) -> Option<String> {
        self.node.connections.client_named(connection)?.gateway()
    }

    /// The name of a connection's gateway is needed.
    pub(super) fn resolve(&mut self, connection: &str) {
        if let Some(name) = self.gateway_of(connection).filter(|name| self.gateways.ask(name)) {
            self.outputs.push_order(Order::Resolve { name });
        }
    }

    pub(super) fn forget_name(&mut self, connection: &str) {
        if let Some(name) = self.gateway_of(connection) {
            self.gateways.give_up(&name);
        }
    }

    /// The connections are others: only the names of their gateways are needed.
    pub(super) fn keep_names(&mut self) {
        let needed = self.node.connections.clients();
        let needed = needed.flat_map(|c| c.gateway().into_iter().chain(c.config.gateway.clone())).collect();
        self.gateways.keep(&needed);
    }

    fn look_up(&mut self, names: Vec<String>) {
        names.into_iter().for_each(|name| self.outputs.push_order(Order::Resolve { name }));
    }

    /// What became of an [`Order::Resolve`]. `online`: whether there is a network, so that it is worth asking again for what was not found.
    pub fn resolved(&mut self, now: Instant, name: &str, answer: Answer, online: bool) {
        let unknown = answer.is_err();
        self.gateways.found(now, name, answer, online);
        if unknown && online && self.gateways.addresses(name).is_empty() {
            self.node.elsewhere_is_unknown(now, name);
        }
        let looks = |output: &Output| matches!(output, Output::Order(Order::FindWays { .. }));
        if !self.outputs.queue.iter().any(looks) {
            self.outputs.push_order(Order::FindWays { fresh: false });
        }
    }

    /// The network may be another one ([`Order::FindWays`] that is `fresh`): names that were looked up in vain are looked up again, if there is
    /// one.
    pub fn network_is_new(&mut self, online: impl FnOnce() -> bool) {
        if self.gateways.in_doubt() {
            let names = self.gateways.network(online());
            self.look_up(names);
        }
    }

    /// Why the name of a connection's gateway has no address, if it was looked up in vain.
    #[must_use]
    pub fn nameless(&self, connection: &str) -> Option<String> {
        let name = self.gateway_of(connection)?;
        self.gateways.trouble(&name).map(|why| format!("the gateway's name {name} is not known: {why}"))
    }

    /// When a name is asked for again: not while nothing can be sent.
    pub(super) fn names_deadline(&self) -> Option<Deadline> {
        self.gateways.deadline().filter(|_| self.may_send())
    }

    pub(super) fn names_timeout(&mut self, now: Instant) {
        if self.may_send() {
            let names = self.gateways.handle_timeout(now);
            self.look_up(names);
        }
    }

    /// Looks for the ways to a connection's gateway. It has the addresses of its name and those that it announced: the first to which there is
    /// a `way` (the path, and what its link carries, in bytes) is the one that is used, the others are at hand.
    pub fn find_ways(
        &mut self,
        now: Instant,
        connection: &str,
        mut way: impl FnMut(IpAddr) -> Option<(Path, u16)>,
    ) {
        let name = self.gateway_of(connection).unwrap_or_default();
        let named = self.gateways.addresses(&name);
        let announced = self.node.gateway_addresses(connection).filter(|ip| !named.contains(ip));
        let addresses: Vec<IpAddr> = named.iter().copied().chain(announced).collect();
        let mut found = addresses.into_iter().filter_map(&mut way);
        let first = found.next();
        let others = found.map(|(path, _)| path).collect();
        // Where it was sent no way leads, and to its own gateway one does.
        let own = self.node.connections.client_named(connection).and_then(|c| c.config.gateway.clone());
        let own = own.filter(|own| first.is_none() && *own != name);
        if own.is_some_and(|own| self.gateways.addresses(&own).iter().any(|ip| way(*ip).is_some())) {
            self.node.come_back(now, connection);
        }
        if let Some((_, mtu)) = first {
            self.node.set_path_mtu(mtu);
        }
        self.node.set_other_ways(connection, others);
        self.node.set_network(now, connection, first.map(|(path, _)| path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant::ZERO;
    const NAME: &str = "vpn.test";

    fn answer(of: &mut Gateways, now: Instant, online: bool, answer: Answer) {
        of.ask(NAME);
        of.found(now, NAME, answer, online);
    }

    #[test]
    fn an_unknown_name_is_asked_for_again_with_growing_pauses_but_only_in_a_network() {
        let mut of = Gateways::default();
        let unknown = || Err("unknown".to_owned());
        answer(&mut of, T0, false, unknown());
        assert_eq!(of.deadline(), None, "without a network nothing is due");
        assert_eq!(of.trouble(NAME), Some("unknown"));
        let mut now = T0;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            answer(&mut of, now, true, unknown());
            let due = of.deadline().expect("a retry");
            assert_eq!(due.at, now + Duration::from_secs(pause));
            now = due.at;
            assert_eq!(of.handle_timeout(now), [NAME]);
        }
        answer(&mut of, now, true, unknown());
        of.give_up(NAME);
        assert_eq!(of.deadline(), None, "the connection is down");
        answer(&mut of, now, true, unknown());
        assert_eq!(of.network(true), [NAME], "a new network is asked at once");
        assert!(of.network(true).is_empty(), "an answer is under way");
        answer(&mut of, now, true, Ok(vec![[192, 0, 2, 1].into()]));
        assert_eq!((of.deadline(), of.trouble(NAME)), (None, None));
        of.keep(&BTreeSet::new());
        of.found(now, NAME, unknown(), true);
        assert_eq!((of.deadline(), of.addresses(NAME)), (None, &[][..]), "the answer comes too late");
    }

    #[test]
    fn a_turned_answer_changes_nothing_a_new_one_does_and_a_failure_forgets_nothing() {
        let mut of = Gateways::default();
        let (a, b, c) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), [192, 0, 2, 3].into());
        for (given, expected) in [
            (Ok(vec![a, b]), vec![a, b]),
            (Ok(vec![b, a]), vec![a, b]),
            (Err("silence".to_owned()), vec![a, b]),
            (Ok(vec![c, a]), vec![c, a]),
        ] {
            answer(&mut of, T0, true, given);
            assert_eq!(of.addresses(NAME), expected);
            assert_eq!(of.deadline(), None);
        }
    }
}
