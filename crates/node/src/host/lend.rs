//! What the host says to another engine, and hears from it: the node's lending ([`crate::lending`]), and that nothing sleeps before every SA is back. Owns
//! nothing.

use super::Host;
use crate::lending::Engine;
use crate::sleeper::Mode;
use dormouse_esp::{Loan, Returned, Usage};
use dormouse_keying::ChildId;
use dormouse_sansio::Instant;
use dormouse_standin::Observer;

impl Host {
    /// There is another engine, which takes [`super::Order::Lend`], [`super::Order::ReadLoan`] and [`super::Order::Recall`], each of which is answered
    /// before the next output is asked for.
    pub fn set_engine(&mut self, engine: Engine) {
        self.node.set_engine(engine);
    }

    /// The engine could not take a loan, and has not touched the SA.
    pub fn not_lent(&mut self, now: Instant, loan: &Loan, why: &str) {
        tracing::info!(child = %loan.child, why, "stays in user space");
        let returned = Returned { sent: loan.sent, seen: loan.seen.clone(), usage: Usage::default() };
        self.node.loan_refused(now, loan.child, &returned);
    }

    /// Who is to see the packets of a loan that an engine takes which can show them ([`Engine::ours`]); once for a loan. `None`: they need not be seen.
    pub fn observer_of(&mut self, child: ChildId) -> Option<Observer> {
        self.node.observer_of(child)
    }

    /// What the engine has carried of a loan; `None` if it cannot say.
    pub fn loan_read(&mut self, now: Instant, child: ChildId, usage: Option<Usage>) {
        self.node.loan_read(now, child, usage);
    }

    /// The engine does not touch the SA any more; `None`: it does not know how far it has come, or who has seen the packets.
    pub fn returned(
        &mut self,
        now: Instant,
        child: ChildId,
        returned: Option<&Returned>,
        observer: Option<Observer>,
    ) {
        if let Some(observer) = observer {
            self.node.take_observer_back(now, child, observer);
        }
        self.node.loan_returned(now, child, returned);
    }

    /// The policy of the radio looks at every packet: where it may switch the radio off, nothing is lent.
    pub(super) fn lending_turn(&mut self, now: Instant) {
        let device = self.device.as_ref();
        let stopped = device.is_some_and(super::device::Device::may_sleep);
        self.node.stop_lending(stopped);
        self.node.lending_turn(now);
    }
}

impl super::device::Device {
    fn may_sleep(&self) -> bool {
        self.sleeper.has_radio() && self.sleeper.mode() != Mode::Performance
    }
}
