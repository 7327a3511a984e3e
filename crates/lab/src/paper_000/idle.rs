//! What of a session decides about policies that look at nothing but past silences: how long it was idle, and when the client itself sent. Owns
//! this record and how it is taken from packets; must never know a policy.

use std::time::Duration;

use dormouse_energy::WakeOn;
use dormouse_energy::schedule::MIN_IDLE;
use dormouse_trace::activity::Moment;
use dormouse_trace::analyse::Watch;

use super::law::Chosen;

/// The idle periods of a session.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Session {
    /// How long each was, in seconds.
    pub(super) periods: Vec<f64>,
    /// For each, the seconds from its beginning until the client sends; where it does not any more, until the session's last packet.
    pub(super) until_sent: Vec<f64>,
    /// For each stretch between two packets that the client sends, if the radio was idle in it: how many periods it has.
    pub(super) stretch_periods: Vec<usize>,
    /// And how many seconds it lasts; 0 of one that begins with the session, before the client has sent.
    pub(super) stretch_seconds: Vec<f64>,
    /// Whether the last stretch ends with the session, and not with a packet that the client sends.
    pub(super) open: bool,
    /// For each of `periods`, what the policy that knows the law chose, with every packet waking and with only what the client sends; see
    /// [`super::law`]. Empty where no law is known.
    pub(super) chosen: [Vec<u16>; 2],
}

/// The sessions of a client.
pub(super) type Sessions = Vec<Session>;

/// Idle periods between two packets that wake a sleeping radio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch<'a> {
    /// How long they are, in seconds.
    pub(super) periods: &'a [f64],
    /// From the beginning of each to the stretch's end, in seconds.
    pub(super) until_end: &'a [f64],
    /// From the stretch's beginning to its end, in seconds.
    pub(super) seconds: f64,
    /// Whether a packet that wakes ended it; else the session was over.
    pub(super) woken: bool,
}

impl Session {
    /// In their order.
    pub(super) fn stretches(&self, wake_on: WakeOn) -> Vec<Stretch<'_>> {
        if wake_on == WakeOn::All {
            let alone = self.periods.chunks(1);
            let alone = alone.zip(&self.periods).map(|(g, seconds)| Stretch {
                periods: g,
                until_end: g,
                seconds: *seconds,
                woken: true,
            });
            return alone.collect();
        }
        let (mut from, last) = (0, self.stretch_periods.len().saturating_sub(1));
        let lasts = self.stretch_periods.iter().zip(&self.stretch_seconds).enumerate();
        let next = |(n, (many, seconds)): (usize, (&usize, &f64))| {
            let range = from..from + many;
            from += many;
            Some(Stretch {
                periods: self.periods.get(range.clone())?,
                until_end: self.until_sent.get(range)?,
                seconds: *seconds,
                woken: !(self.open && n == last),
            })
        };
        lasts.filter_map(next).collect()
    }
}

/// Takes it from packets, session by session, as the accounts do.
#[derive(Default)]
pub(super) struct Idle {
    /// A silence longer than this ends a session.
    longest: Option<Duration>,
    last: Option<u64>,
    number: u32,
    /// When the client sent last in this session, and when the idle periods since then began; in nanoseconds.
    sent: Option<u64>,
    began: Vec<u64>,
    sessions: Sessions,
    /// What was chosen for the periods of all sessions, in their order; empty where nothing was.
    pub(super) chosen: Vec<Chosen>,
}

fn seconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

impl Idle {
    /// A silence longer than `longest` ends a session, if any does.
    pub(super) fn new(longest: Option<Duration>) -> Self {
        Self { longest, ..Self::default() }
    }

    /// A stretch ends, with a packet that the client sends or with the session.
    fn close(&mut self, at: u64, sent: bool) {
        if let Some(session) = self.sessions.last_mut().filter(|_| !self.began.is_empty()) {
            session.until_sent.extend(self.began.iter().map(|began| seconds(*began, at)));
            session.stretch_periods.push(self.began.len());
            session.stretch_seconds.push(self.sent.map_or(0.0, |before| seconds(before, at)));
            session.open = !sent;
        }
        self.began.clear();
        self.sent = sent.then_some(at);
    }

    fn end(&mut self) {
        if let Some(last) = self.last.take() {
            self.close(last, false);
        }
    }

    /// The sessions, once the last packet has passed, with what was chosen for their periods, if anything was.
    pub(super) fn sessions(mut self) -> Sessions {
        let mut left = self.chosen.iter();
        for session in &mut self.sessions {
            for choice in left.by_ref().take(session.periods.len()) {
                session.chosen.iter_mut().zip(choice).for_each(|(of, n)| of.push(*n));
            }
        }
        self.sessions
    }
}

impl Watch for Idle {
    fn moment(&mut self, moment: &Moment, session: u32) {
        let another = core::mem::replace(&mut self.number, session) != session;
        let silence = self.last.map(|last| (last, moment.at.saturating_sub(last)));
        let absent = |silence| self.longest.is_some_and(|longest| Duration::from_nanos(silence) > longest);
        if another || silence.is_none_or(|(_, silence)| absent(silence)) {
            self.end();
            self.sessions.push(Session::default());
        } else if let Some((last, silence)) = silence
            && Duration::from_nanos(silence) >= MIN_IDLE
            && let Some(session) = self.sessions.last_mut()
        {
            session.periods.push(seconds(0, silence));
            self.began.push(last);
        }
        let at = self.last.max(Some(moment.at)).unwrap_or(moment.at);
        self.last = Some(at);
        if moment.info.is_outgoing() {
            self.close(at, true);
        }
    }

    fn finish(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dormouse_energy::account::SESSION;
    use dormouse_energy::{Direction, PacketInfo, WakeOn};
    use dormouse_trace::activity::Moment;
    use dormouse_trace::analyse::Watch as _;

    use super::{Idle, Session};

    /// Sessions of packets at so many seconds; `true`: the client sent it.
    fn of(longest: Option<Duration>, packets: &[(u64, bool)]) -> Vec<Session> {
        let mut idle = Idle::new(longest);
        for (at, sent) in packets {
            let direction = if *sent { Direction::Outgoing } else { Direction::Incoming };
            let info = PacketInfo { direction, ..PacketInfo::default() };
            idle.moment(&Moment { at: at * 1_000_000_000, count: 1, info }, 0);
        }
        idle.finish();
        idle.sessions()
    }

    #[test]
    fn stretches_end_where_the_client_sends() {
        let packets = [
            (10, false),
            (15, true),
            (45, false),
            (46, false),
            (80, true),
            (90, true),
            (100, false),
            // The next session.
            (5_000, true),
            (5_001, true),
        ];
        let sessions = of(Some(SESSION), &packets);
        assert_eq!(sessions.len(), 2);
        assert_eq!(of(None, &packets).len(), 1);
        assert_eq!(of(Some(Duration::from_secs(20)), &packets).len(), 4);
        let [first, second] = [&sessions[0], &sessions[1]];
        assert_eq!(first.periods, [5.0, 30.0, 1.0, 34.0, 10.0, 10.0]);
        assert_eq!(first.until_sent, [5.0, 65.0, 35.0, 34.0, 10.0, 10.0]);
        let stretches = first.stretches(WakeOn::Outgoing);
        let told: Vec<_> = stretches.iter().map(|s| (s.periods.len(), s.seconds, s.woken)).collect();
        assert_eq!(told, [(1, 0.0, true), (3, 65.0, true), (1, 10.0, true), (1, 10.0, false)]);
        assert_eq!(stretches[1].until_end, [65.0, 35.0, 34.0]);
        assert!(first.stretches(WakeOn::All).iter().all(|s| s.woken && s.until_end == s.periods));
        assert_eq!((second.periods.len(), second.open), (1, false));
    }
}
