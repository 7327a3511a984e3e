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
/// A device counts as registered for so long after that was last said, unless it has gone: an agent may forget to say so.
const REGISTERED: Duration = Duration::from_secs(1_800);
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
    /// `registered`: when it was last said that it has been registered here, not only that it asks for that.
    Here {
        previous: Option<Identity>,
        registered: Option<Instant>,
    },
    Gone,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Visits(BTreeMap<IpAddr, Visit>);

impl Visits {
    /// The device with this outer address has come, or is still here. Without `previous` it has been registered.
    pub(super) fn come(&mut self, now: Instant, device: IpAddr, previous: Option<Identity>) {
        let is_registered = previous.is_none();
        let mut registered = is_registered.then_some(now);
        if let Some(Visit { state: State::Here { registered: before, .. }, .. }) = self.0.get_mut(&device) {
            if is_registered {
                *before = registered;
                return;
            }
            // Who asks once more, or repeats what a device has asked, does not end its registration.
            registered = *before;
        }
        self.put(device, Visit { at: now, state: State::Here { previous, registered } });
    }

    /// Whether it has been registered here, and has not gone.
    pub(super) fn is_registered(&self, now: Instant, device: IpAddr) -> bool {
        match self.0.get(&device).map(|visit| &visit.state) {
            Some(State::Here { registered: Some(at), .. }) => now < *at + REGISTERED,
            _ => false,
        }
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
            Visit { at, state: State::Here { previous, .. } } if now < *at + FETCH => previous.as_ref(),
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
            matches!(visit.state, State::Here { previous: Some(_), .. }) && now < visit.at + AFTER
        };
        self.0.get(&device).is_some_and(after)
    }

    /// Whether it has just gone.
    pub(super) fn has_gone(&self, now: Instant, device: IpAddr) -> bool {
        self.0.get(&device).is_some_and(|visit| matches!(visit.state, State::Gone) && now < visit.at + GONE)
    }
}
