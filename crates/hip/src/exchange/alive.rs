//! Whether a peer is there. Owns when it is asked, by an UPDATE that says nothing new, which it acknowledges if it still has the
//! association; what becomes of one that does not answer is in [`super::update`].

use core::time::Duration;

use dormouse_sansio::{Deadline, Instant};

use crate::association::{Association, Outstanding, Session, Stage};
use crate::exchange::{Around, in_udp, update};
use crate::limits::{SILENCE, SILENCE_TRIES};

/// When a peer is asked, if nothing comes from it before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    at: Instant,
    /// User data waits for the answer: it is given up sooner.
    data_waits: bool,
}

impl Check {
    pub(crate) fn deadline(self) -> Deadline {
        let slack = Duration::from_secs(if self.data_waits { 1 } else { 10 });
        Deadline { at: self.at, slack, why: "HIP: is the peer there" }
    }
}

/// The peer was there just now. With liveness checks, the end with the greater tag waits longer, so that one asks.
pub(crate) fn heard(association: &mut Association, around: &Around<'_>) {
    let ours_greater = association.ours > association.peer;
    if let Stage::Up(session) = &mut association.stage {
        let wait = around.config.liveness.map(|every| if ours_greater { every + every / 4 } else { every });
        session.life.check = wait.map(|wait| Check { at: around.now + wait, data_waits: false });
    }
}

/// The peer is sent ESP, and sends none: of one that sleeps, nothing else is expected.
pub(crate) fn unanswered(session: &mut Session, now: Instant) {
    if session.dormancy.peer_sleeps() {
        return;
    }
    let at = session.life.check.map_or(Instant::FAR_FUTURE, |check| check.at).min(now + SILENCE);
    session.life.check = Some(Check { at, data_waits: true });
}

/// Asks if the time has come.
pub(crate) fn check_if_due(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    if let Some(due) = session.life.check.take_if(|check| check.at <= around.now) {
        if due.data_waits {
            in_udp::doubt(association, around);
        }
        check(association, due.data_waits, around);
    }
}

/// Asks the peer, unless something waits for its answer already; that is given up sooner if user data waits.
pub(crate) fn check(association: &mut Association, data_waits: bool, around: &mut Around<'_>) {
    heard(association, around);
    let Stage::Up(session) = &mut association.stage else { return };
    if session.updates.outstanding.is_none() {
        update::send(association, None, around);
    }
    if let (true, Stage::Up(session)) = (data_waits, &mut association.stage) {
        session.updates.outstanding = session
            .updates
            .outstanding
            .take()
            .map(|o| Outstanding { retry: o.retry.at_most(SILENCE_TRIES), ..o });
    }
}

/// Asks a peer that is awake at once, also what it was asked in vain: the way to it is open again.
pub(crate) fn ask_again(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    match &mut session.updates.outstanding {
        Some(outstanding) => outstanding.retry.renew(around.now, &around.config.timing),
        None if session.dormancy.peer_sleeps() => {}
        None => check(association, false, around),
    }
}
