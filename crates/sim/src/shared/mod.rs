//! A gateway's part of a store that several share, in virtual time: the shipped conversation ([`dormouse_node::shared`]) with a model of the
//! database ([`model`]) over a link that is slow, breaks and is cut ([`desk`]). Owns what a gateway's process has of it beside its core.

mod desk;
mod model;

pub(crate) use desk::{Desk, Line};
pub(crate) use model::{Database, all};

use dormouse_ike::takeover::Takeover;
use dormouse_ike::ticket::lineage::Operation;
use dormouse_node::handover::Handover;
use dormouse_node::host::Host;
use dormouse_node::pool::{Addresses, Change, Lessee};
use dormouse_node::shared::{
    Beginning, Company, Courier, Denied, Drain, DrainEnd, Errand, Heard, News, Parcel, Report, SharedBalance,
    begin,
};
use dormouse_sansio::{Instant, UnixTime};
use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What happens at one moment at most before something spins.
const SPIN: usize = 10_000;

/// What of a gateway's part outlives its process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// The last heartbeat.
    pub(crate) beats: u64,
    /// Denials of its own that are not on record yet.
    pub(crate) denials: Vec<Denied>,
    /// Leases that it gave without the store.
    pub(crate) owed: Vec<(Lessee, Addresses)>,
}

/// The part of a process that lives.
pub(crate) struct Member {
    pub(crate) line: Rc<RefCell<Line>>,
    company: Company,
    work: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Which gateway a device goes to, which the endpoint asks too.
    balance: SharedBalance,
    /// It gives its devices away; and how that was over, for who stops the process then.
    drain: Option<Drain>,
    pub(crate) drained: Option<DrainEnd>,
}

/// Runs what waits for nothing but the moment. `None` if it waits for more.
fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

impl Member {
    /// The first look at the store, which a start waits for; `None` while it cannot be reached.
    pub(crate) fn begin(line: &Rc<RefCell<Line>>, now: Instant) -> Option<Beginning> {
        line.borrow_mut().hurry(now, true);
        let begun = at_once(begin(&mut Desk::new(line.clone())));
        line.borrow_mut().hurry(now, false);
        begun?.ok()
    }

    /// The process begins. What it has denied and could not tell is told first.
    pub(crate) fn new(
        line: Rc<RefCell<Line>>,
        beginning: Beginning,
        alone_for: Duration,
        balance: SharedBalance,
    ) -> Self {
        let share = beginning.share();
        let company = Company { share, denials: beginning.denials };
        let mut courier = Courier::new(Desk::new(line.clone()), alone_for);
        let unsent = line.borrow().kept.denials.clone();
        unsent.into_iter().for_each(|denial| line.borrow_mut().queue.run(Errand::Deny(denial)));
        let work: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move { courier.run().await });
        Self { line, company, work: Some(work), balance, drain: None, drained: None }
    }

    /// When it has something to do or to say.
    pub(crate) fn due(&self) -> Option<Instant> {
        let drain = self.drain.as_ref().map(|drain| drain.due().at);
        self.line.borrow().due().into_iter().chain(drain).min()
    }

    /// An operation is handed over.
    pub(crate) fn put(&self, operation: Operation) {
        let mut line = self.line.borrow_mut();
        line.queue.put(operation);
        line.ring();
    }

    /// A change of a lease is handed over.
    pub(crate) fn lease(&self, unix: UnixTime, number: u64, change: Change) {
        let mut line = self.line.borrow_mut();
        line.queue.lease(unix, number, change);
        line.ring();
    }

    /// What waits for a device follows it.
    pub(crate) fn hand_over(&self, handover: Handover) {
        let mut line = self.line.borrow_mut();
        line.queue.run(Errand::HandOver(Box::new(Parcel { handover, to: None })));
        line.ring();
    }

    /// Something is to be done about an IKE SA that outlives its gateway.
    pub(crate) fn take_over(&self, what: Takeover) {
        let mut line = self.line.borrow_mut();
        line.queue.run(Errand::Takeover(what));
        line.ring();
    }

    /// An administrator drains the gateway, as `dormoused` begins it: not while it is at it, or cannot reach the store.
    pub(crate) fn drain(&mut self, now: Instant, within: Duration) {
        if self.drain.is_some() || self.company.share.alone {
            return;
        }
        self.balance.lock().leave(true);
        self.drain = Some(Drain::new(now, within));
        let mut line = self.line.borrow_mut();
        line.draining = true;
        line.queue.run(Errand::Others);
        line.ring();
    }

    /// It does what is due of that.
    pub(crate) fn drain_on(&mut self, now: Instant, host: &mut Host) {
        let Some(drain) = &mut self.drain else { return };
        let (parcels, end) = drain.go_on(now, host, &self.balance, self.company.share.alone);
        if !parcels.is_empty() {
            let mut line = self.line.borrow_mut();
            parcels.into_iter().for_each(|parcel| line.queue.run(Errand::HandOver(Box::new(parcel))));
            line.ring();
        }
        self.drain_ends(end);
    }

    fn drain_ends(&mut self, end: Option<DrainEnd>) {
        let Some(end) = end else { return };
        let goes = matches!(end, DrainEnd::Drained { .. });
        self.line.borrow_mut().draining = goes;
        self.balance.lock().leave(goes);
        (self.drain, self.drained) = (None, Some(end));
    }

    /// An administrator refuses somebody here.
    pub(crate) fn deny(&mut self, denial: Denied) {
        let mut line = self.line.borrow_mut();
        line.kept.denials.retain(|other| other.whom != denial.whom);
        line.kept.denials.push(denial.clone());
        line.queue.run(Errand::Deny(denial));
        line.ring();
    }

    /// An administrator takes a denial back here. False if the others cannot be told.
    pub(crate) fn allow(&mut self, whom: &str) -> bool {
        if self.company.share.alone {
            return false;
        }
        self.company.denials.retain(|denial| denial.whom != whom);
        let mut line = self.line.borrow_mut();
        line.kept.denials.retain(|denial| denial.whom != whom);
        line.queue.run(Errand::Allow(whom.to_owned()));
        line.ring();
        true
    }

    /// Whom this gateway refuses.
    pub(crate) fn denied(&self) -> Vec<String> {
        let line = self.line.borrow();
        let own = line.kept.denials.iter().chain(&self.company.denials);
        own.map(|denial| denial.whom.clone()).collect()
    }

    /// Its thread runs as far as it comes now.
    fn work(&mut self, now: Instant) {
        self.line.borrow_mut().now = now;
        for _ in 0..SPIN {
            let Some(work) = &mut self.work else { return };
            if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                self.work = None;
                return;
            }
            if !self.line.borrow().is_ready() {
                return;
            }
        }
        panic!("the keeper spins at {now:?}");
    }

    /// What the thread has to say now, oldest first.
    pub(crate) fn reports(&mut self, now: Instant) -> Vec<Report> {
        self.work(now);
        std::mem::take(&mut self.line.borrow_mut().reports)
    }

    /// The loop hears one report.
    pub(crate) fn hear(&mut self, host: &mut Host, now: Instant, report: Report) {
        match report {
            Report::Outcome(sa, outcome) => host.stored(now, sa, outcome),
            Report::Reachable(reachable) => self.company.reached(host, reachable),
            Report::Leased(number) => host.leased(now, number),
            Report::Written(_) => {}
            Report::News(news) => {
                let gone = if let News::Gone(lineages) = &*news { lineages.clone() } else { Vec::new() };
                let unsent = self.line.borrow().kept.denials.clone();
                for heard in self.company.hear(host, now, *news, &unsent) {
                    match heard {
                        Heard::OnRecord(whom) => {
                            self.line.borrow_mut().kept.denials.retain(|denial| denial.whom != whom);
                        }
                        Heard::Forgotten(sessions) => {
                            let mut line = self.line.borrow_mut();
                            line.queue.run(Errand::Again(sessions));
                            line.ring();
                        }
                        Heard::Others(others) => {
                            let end = self.drain.as_mut().and_then(|drain| drain.others(now, &others));
                            self.balance.lock().heard(others);
                            self.drain_ends(end);
                        }
                        Heard::HandedOver(lineage, done) => {
                            if let Some(drain) = &mut self.drain {
                                drain.handed_over(now, lineage, done);
                            }
                        }
                        _ => {}
                    }
                }
                // To let go of it once more would find something.
                let left = gone.iter().find(|lineage| host.node_mut().gone_elsewhere(now, **lineage));
                assert!(
                    left.is_none(),
                    "a session that another gateway has is still here; {left:?} at {now:?}"
                );
            }
        }
    }

    /// The process ends in order, and waits until what was asked is done.
    pub(crate) fn finish(&mut self, now: Instant) -> Vec<Report> {
        {
            let mut line = self.line.borrow_mut();
            line.queue.close();
            line.hurry(now, true);
        }
        self.work(now);
        self.line.borrow_mut().hurry(now, false);
        std::mem::take(&mut self.line.borrow_mut().reports)
    }
}
