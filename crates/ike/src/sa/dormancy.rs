//! The sleep of either end, as the SA knows it (`docs/wire/dormancy.md`). Owns the state and its deadlines; must never know why
//! a device sleeps, nor switch anything off. The announcement is [`crate::exchange::sleep`]'s.
//!
//! # Timers
//! - Device, `sleep announcement`: the driver's own deadline. The driver hears by then what becomes of the SA
//!   ([`Event::SleepAnswered`]) and may sleep; nothing is repeated while it does.
//! - Gateway, `sleep over`: the end of a hold. It is the only timer of an SA whose device sleeps.

use core::time::Duration;

use dormouse_keying::SleepVerdict;
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ike::NotifyType;
use dormouse_wire::ike::dormancy::LoadReport;
use dormouse_wire::sleep::Sleeping;

use super::IkeSa;
use super::stage::{CLOSE_FOR, Stage};
use crate::event::Event;
use crate::exchange::sleep::AnnounceSleep;
use crate::payloads::View;
use crate::shared::Shared;

/// The most slack of the end of a hold.
const SLACK_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum State {
    /// Both ends are awake, as far as is known.
    Awake,
    /// This device is about to sleep, and says so until at most.
    Announcing { said: Sleeping, until: Instant },
    /// The peer sleeps: nothing is sent to it, and no timer but this one runs.
    Asleep { until: Instant, slack: Duration },
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Dormancy {
    /// The version of the extension that both ends speak; 0: one of them does not.
    version: u8,
    state: State,
}

impl Dormancy {
    pub(super) fn new(version: u8) -> Self {
        Self { version, state: State::Awake }
    }

    /// A sleep, or its announcement, goes on.
    pub(super) fn inherit(&mut self, old: &mut Self) {
        let Self { version: _, state } = old;
        self.state = std::mem::replace(state, State::Awake);
    }

    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    /// This device is about to sleep; the driver waits for an answer until then.
    pub(crate) fn announce(&mut self, said: Sleeping, until: Instant) {
        self.state = State::Announcing { said, until };
    }

    /// The peer sleeps, for so long at most.
    pub(crate) fn peer_sleeps(&mut self, now: Instant, stay: Duration) {
        self.state = State::Asleep { until: now + stay, slack: (stay / 16).min(SLACK_MAX) };
    }

    pub(crate) fn is_open(&self) -> bool {
        self.version > 0
    }

    /// Whether the peer sleeps.
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.state, State::Asleep { .. })
    }

    pub(super) fn sleep_over(&self) -> Option<Deadline> {
        match self.state {
            State::Asleep { until, slack } => Some(Deadline { at: until, slack, why: "sleep over" }),
            State::Awake | State::Announcing { .. } => None,
        }
    }

    pub(super) fn announcement_deadline(&self) -> Option<Deadline> {
        match self.state {
            State::Announcing { until, .. } => Some(Deadline::strict(until, "sleep announcement")),
            State::Awake | State::Asleep { .. } => None,
        }
    }

    /// What this device is about to announce.
    pub(crate) fn announcement(&self) -> Option<&Sleeping> {
        match &self.state {
            State::Announcing { said, .. } => Some(said),
            State::Awake | State::Asleep { .. } => None,
        }
    }

    /// Whether the peer slept until now.
    fn wake_peer(&mut self) -> bool {
        let slept = self.is_asleep();
        if slept {
            self.state = State::Awake;
        }
        slept
    }
}

impl IkeSa {
    /// The driver hears what became of its announcement.
    pub(crate) fn sleep_settled(&mut self, shared: &mut Shared, verdict: SleepVerdict) {
        self.end_announcement();
        shared.event(Event::SleepAnswered { sa: self.core.id(), verdict });
    }

    fn end_announcement(&mut self) {
        if self.dormancy.announcement().is_some() {
            self.dormancy.state = State::Awake;
        }
        self.tasks.drop_like(&AnnounceSleep.into());
    }

    /// The announcement has taken too long: the device sleeps without an answer.
    pub(super) fn sleep_timeout(&mut self, shared: &mut Shared, now: Instant) {
        if self.dormancy.announcement_deadline().is_some_and(|d| d.at <= now) {
            self.sleep_settled(shared, SleepVerdict::Unanswered);
        }
    }

    /// See [`crate::Endpoint::woke`]. Requests that were under way when the radio went off have not been given up by the peer:
    /// they get their patience anew, and go out with the next [`crate::Endpoint::handle_timeout`].
    pub(crate) fn woke(&mut self, now: Instant) {
        self.end_announcement();
        self.reachable(now);
        self.core.last_in = self.core.last_in.max(now);
    }

    /// The gateway's estimate, if the message carries one.
    pub(crate) fn take_load(&mut self, shared: &mut Shared, view: View<'_>) {
        let said = view.notify(NotifyType::DormancyLoad);
        let Some(said) = said.filter(|_| self.dormancy.is_open() && self.core.client) else { return };
        let sa = self.core.id();
        match LoadReport::parse(&said.data) {
            Ok(report) => shared.event(Event::LoadReport { sa, report: Box::new(report) }),
            Err(error) => tracing::debug!(%sa, %error, "load report not understood"),
        }
    }

    /// Something came that the device has sent after its announcement.
    pub(crate) fn awake(&mut self, shared: &mut Shared, now: Instant) {
        // For an SA that was replaced it is what its successor knows of the device that counts: what comes here was under way.
        if !matches!(self.stage, Stage::Live(_) | Stage::Closing { .. }) || !self.dormancy.wake_peer() {
            return;
        }
        shared.sleepers.remove(self.core.id());
        self.core.last_in = now;
        self.core.requests.begin_anew(now);
        match &mut self.stage {
            // It was over before its device woke, which hears that now.
            Stage::Closing { until, .. } => {
                *until = now + CLOSE_FOR;
                self.pump(shared, now);
            }
            _ => shared.event(Event::PeerAwake { sa: self.core.id() }),
        }
    }
}
