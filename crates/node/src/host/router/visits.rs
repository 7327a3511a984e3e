//! What registrations of Mobile IP say to an access router: which devices have come, from which router, and which have gone on. Owns that, for as
//! long as it counts; must never decide who has which keys.

use dormouse_crypto::cert::Identity;
use dormouse_sansio::Instant;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Devices of which something is remembered; what is oldest gives way.
const MOST: usize = 1_024;
/// For so long the router before is asked for the keys of a device that has come: then it has them no more.
const FETCH: Duration = Duration::from_secs(30);
/// For so long the agent of Mobile IP where a device was before may send packets after it.
const AFTER: Duration = Duration::from_secs(10);
/// For so long nothing is asked about packets of a device that has gone on: they may be sent after it.
const GONE: Duration = Duration::from_secs(30);

/// The last that was said of a device.
#[derive(Debug)]
struct Visit {
    at: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    Here { previous: Option<Identity> },
    Gone,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Visits(BTreeMap<IpAddr, Visit>);

impl Visits {
    /// The device with this outer address has come, or is still here.
    pub(super) fn come(&mut self, now: Instant, device: IpAddr, previous: Option<Identity>) {
        if previous.is_none() && matches!(self.0.get(&device), Some(Visit { state: State::Here { .. }, .. }))
        {
            return;
        }
        self.put(device, Visit { at: now, state: State::Here { previous } });
    }

    /// It has gone.
    pub(super) fn go(&mut self, now: Instant, device: IpAddr) {
        self.put(device, Visit { at: now, state: State::Gone });
    }

    fn put(&mut self, device: IpAddr, visit: Visit) {
        if self.0.len() >= MOST && !self.0.contains_key(&device) {
            let oldest = self.0.iter().min_by_key(|(_, visit)| visit.at).map(|(of, _)| *of);
            oldest.map(|of| self.0.remove(&of));
        }
        self.0.insert(device, visit);
    }

    /// The router where it was before, as long as that has its keys.
    pub(super) fn previous(&self, now: Instant, device: IpAddr) -> Option<&Identity> {
        match self.0.get(&device)? {
            Visit { at, state: State::Here { previous } } if now < *at + FETCH => previous.as_ref(),
            _ => None,
        }
    }

    /// Whether it has just come.
    pub(super) fn has_come(&self, now: Instant, device: IpAddr) -> bool {
        let come = |visit: &Visit| matches!(visit.state, State::Here { .. }) && now < visit.at + FETCH;
        self.0.get(&device).is_some_and(come)
    }

    /// Whether packets for it may come by way of the router before: these show nothing to that one.
    pub(super) fn is_sent_after(&self, now: Instant, device: IpAddr) -> bool {
        let after = |visit: &Visit| {
            matches!(visit.state, State::Here { previous: Some(_) }) && now < visit.at + AFTER
        };
        self.0.get(&device).is_some_and(after)
    }

    /// Whether it has just gone.
    pub(super) fn has_gone(&self, now: Instant, device: IpAddr) -> bool {
        self.0.get(&device).is_some_and(|visit| matches!(visit.state, State::Gone) && now < visit.at + GONE)
    }
}
