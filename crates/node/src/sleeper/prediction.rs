//! What the next sleep will probably be, and what it must save to be worth it: from the gateway's load, from how the session came
//! back lately, and from how long earlier sleeps were. Owns the break-even time; decides nothing with it.

use super::{Cause, Mode, Sleeper, Woke, limits};
use crate::ladder::Rung;
use dormouse_energy::model::{Latency, Resumption};
use dormouse_ike::LoadReport;
use std::time::Duration;

impl Sleeper {
    /// The gateway says how many clients it will serve at once when this device probably comes back, and how long an exchange
    /// with it takes: the break-even time follows.
    pub fn load(&mut self, report: &LoadReport) {
        let clients = report.clients_in(self.expected_sleep());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is at least 1"
        )]
        let clients = clients.round() as u32;
        self.load = clients.max(1);
        if report.alone() > Duration::ZERO {
            let time = Latency {
                alone: report.alone().as_secs_f64(),
                per_client: report.per_client().as_secs_f64(),
            };
            // An address update is no handshake: its time stays the profile's.
            self.settings.model.exchanges.ticket.time = time;
            self.settings.model.exchanges.full.time = time;
        }
        self.reckon();
    }
    /// What a sleep that ended says about the next ones.
    pub(super) fn judge(&mut self, woke: &Woke, took: Duration) {
        if woke.cause == Cause::Refused {
            return;
        }
        let seconds = woke.slept.as_secs_f64().max(0.1);
        self.learned.sleeps = self.learned.sleeps.saturating_add(1);
        #[expect(clippy::cast_precision_loss, reason = "at most 32")]
        let share = 1.0 / self.learned.sleeps.min(32) as f64;
        self.learned.log_sleep += (seconds.ln() - self.learned.log_sleep) * share;
        if self.mode == Mode::Balanced && woke.cause == Cause::Traffic {
            self.backoff.slept(seconds < self.break_even || took > self.settings.latency);
        }
    }

    /// How long a sleep probably is.
    pub(super) fn expected_sleep(&self) -> Duration {
        let seconds =
            if self.learned.sleeps == 0 { 2.0 * self.break_even } else { self.learned.log_sleep.exp() };
        Duration::try_from_secs_f64(seconds).unwrap_or(limits::LONGEST).min(limits::LONGEST)
    }

    /// The break-even time under the present load, with the session coming back as it mostly did lately.
    pub(super) fn reckon(&mut self) {
        let count = |rung| self.rungs.iter().filter(|r| **r == rung).count();
        // The costlier one on a tie.
        let usual = [Rung::Full, Rung::Resume, Rung::Move, Rung::Held]
            .into_iter()
            .reduce(|best, rung| if count(rung) > count(best) { rung } else { best });
        let resumption = match usual.filter(|_| !self.rungs.is_empty()) {
            None => self.settings.resumption,
            Some(Rung::Held) => Resumption::HeldSa,
            Some(Rung::Move) => Resumption::Mobike,
            Some(Rung::Resume) => Resumption::Ticket,
            Some(Rung::Full) => Resumption::Full,
        };
        let break_even = self.settings.model.break_even(resumption, self.load);
        if (break_even - self.break_even).abs() > 0.01 * self.break_even {
            self.break_even = break_even;
            self.scheduler.set_break_even(break_even);
        }
    }
}
