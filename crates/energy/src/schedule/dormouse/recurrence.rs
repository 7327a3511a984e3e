//! Recurring packets: for each kind of packet its usual interval, and from that the time until the next one is due. Bounded;
//! must never decide.

use super::Tuning;

/// What is taken for the interval of a kind that has none yet, or a short one, when its place is asked for; in seconds.
const SHORTEST_KEPT: f64 = 60.0;

/// One kind of packet.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Kind {
    pub(super) class: u16,
    /// How often the interval was confirmed, less the misses.
    pub(super) trust: u8,
    /// Its last event, in seconds on the client's clock.
    pub(super) last: f64,
    /// The usual interval in seconds.
    pub(super) interval: f32,
}

/// The recurring packets of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct Recurrences {
    /// Never more than [`Tuning::kinds`].
    pub(super) kinds: Vec<Kind>,
}

/// What is expected next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Expected {
    /// Seconds from now; not negative.
    pub(super) within: f32,
    /// Which kind of packet.
    pub(super) class: u16,
}

impl Recurrences {
    pub(super) fn new(tuning: &Tuning) -> Self {
        Self { kinds: vec![Kind::default(); tuning.kinds] }
    }

    /// A packet of `class` at `now`. Whether it belongs to a recurring kind.
    pub(super) fn observe(&mut self, class: u16, now: f64, tuning: &Tuning) -> bool {
        let Some(kind) = self.kinds.iter_mut().find(|k| k.class == class && k.last > 0.0) else {
            self.adopt(class, now, tuning);
            return false;
        };
        let since = super::grid::narrow(now - kind.last);
        if since < tuning.same_event {
            return kind.trust >= tuning.trusted;
        }
        kind.last = now;
        if (since - kind.interval).abs() <= tuning.tolerance * kind.interval {
            kind.interval += tuning.follow * (since - kind.interval);
            kind.trust = (kind.trust + 1).min(tuning.certain);
        } else if kind.trust > 1 {
            kind.trust -= 1;
        } else {
            (kind.interval, kind.trust) = (since, 1);
        }
        kind.trust >= tuning.trusted
    }

    /// Gives the place of the kind that is trusted least, and among those was silent longest, to a new one.
    fn adopt(&mut self, class: u16, now: f64, tuning: &Tuning) {
        let stale = |k: &Kind| now - k.last > tuning.stale * f64::from(k.interval).max(SHORTEST_KEPT);
        let rank = |k: &Kind| if stale(k) { 0 } else { k.trust };
        let weakest =
            self.kinds.iter_mut().min_by(|a, b| rank(a).cmp(&rank(b)).then(a.last.total_cmp(&b.last)));
        if let Some(place) = weakest {
            *place = Kind { class, last: now, trust: 0, interval: 0.0 };
        }
    }

    /// The next packet that is due at `now`.
    pub(super) fn next(&self, now: f64, tuning: &Tuning) -> Option<Expected> {
        let mut next: Option<Expected> = None;
        for kind in self.kinds.iter().filter(|k| k.trust >= tuning.trusted) {
            let interval = f64::from(kind.interval);
            let since = now - kind.last;
            if since > tuning.stopped * interval {
                continue; // it has stopped
            }
            // One that is a little late is still due; one that was left out is due an interval later.
            let late = since - (since / interval).floor() * interval;
            let missed = since > interval && late > tuning.lateness * interval;
            let within = if since <= interval {
                interval - since
            } else if missed {
                interval - late
            } else {
                0.0
            };
            let within = super::grid::narrow(within);
            if next.is_none_or(|n| within < n.within) {
                next = Some(Expected { within, class: kind.class });
            }
        }
        next
    }
}
