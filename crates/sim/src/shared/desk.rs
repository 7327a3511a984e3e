//! A gateway's link to the store, as its courier finds it: each statement takes its time there and back, and may be lost before it is committed
//! or after. Owns that time, and what the process has handed over and was told; what a statement does is [`Database`]'s.

use super::{Database, Kept};
use dormouse_ike::takeover::{Given, Left, Record};
use dormouse_ike::ticket::SharedKey;
use dormouse_ike::ticket::counted::Counted;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, Row};
use dormouse_node::pool::{Addresses, Change, Lessee};
use dormouse_node::shared::{
    ArrivedParcel, Denied, GoneOrder, Joined, Notice, Office, Other, Parcel, Report, SharedUser, Store,
    Waiting,
};
use dormouse_sansio::{Entropy, Instant, Seeded, UnixTime};
use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// What the connection of `crates/cluster` waits for a statement, and for a login.
const ANSWER: Duration = Duration::from_secs(5);
const LOGIN: Duration = Duration::from_secs(8);

/// What befalls the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// The longest that a statement takes, there and back.
    pub(crate) slow: Duration,
    /// Of so many in a hundred statements the connection breaks.
    pub(crate) flaky: u64,
    /// Until then nothing passes.
    pub(crate) cut: Instant,
}

/// What a process and its courier have in common, and the link.
pub(crate) struct Line {
    pub(crate) gateway: usize,
    pub(crate) database: Rc<RefCell<Database>>,
    pub(crate) link: Link,
    pub(crate) kept: Kept,
    /// Where devices reach the gateway, as it says.
    pub(crate) address: String,
    /// It gives its devices away, as it says with its heartbeats.
    pub(crate) draining: bool,
    /// It takes IKE SAs over.
    pub(crate) takeover: bool,
    pub(crate) queue: Waiting,
    pub(super) reports: Vec<Report>,
    pub(super) now: Instant,
    /// How far the gateway's wall clock is ahead of that of these stories, in seconds, and what that says at [`Instant::ZERO`].
    pub(crate) clock: (i64, UnixTime),
    /// Nothing takes time: the process waits for all that it has asked.
    hurry: bool,
    /// What the courier waits for: a time, and whether also for what is handed over or announced.
    wake: Option<(Instant, bool)>,
    rung: bool,
    /// Its connection's number.
    connection: Option<u64>,
    rng: Seeded,
}

impl Line {
    pub(crate) fn new(seed: u64, gateway: usize, address: String, database: Rc<RefCell<Database>>) -> Self {
        Self {
            gateway,
            database,
            link: Link { slow: Duration::from_millis(10), flaky: 0, cut: Instant::ZERO },
            kept: Kept::default(),
            address,
            draining: false,
            takeover: false,
            queue: Waiting::default(),
            reports: Vec::new(),
            now: Instant::ZERO,
            clock: (0, UnixTime(0)),
            hurry: false,
            wake: None,
            rung: false,
            connection: None,
            rng: Seeded::new(seed ^ 0x11e0_0000 ^ gateway as u64),
        }
    }

    /// Something was handed over.
    pub(super) fn ring(&mut self) {
        self.rung = true;
    }

    pub(super) fn hurry(&mut self, now: Instant, hurry: bool) {
        (self.now, self.hurry) = (now, hurry);
    }

    /// The process has died: what it had handed over and not written is lost.
    pub(crate) fn clear(&mut self) {
        (self.queue, self.reports, self.wake, self.rung) = (Waiting::default(), Vec::new(), None, false);
        self.draining = false;
        self.database.borrow_mut().part(self.gateway);
    }

    fn heeds(&self) -> bool {
        self.rung || self.connection_is_news()
    }

    /// Something was announced, or the connection is gone, which who waits notices.
    fn connection_is_news(&self) -> bool {
        let database = self.database.borrow();
        self.connection.is_some_and(|number| !database.has(self.gateway, number))
            || !self.is_cut() && database.has_notice(self.gateway)
    }

    /// What the courier waits for has come.
    pub(super) fn is_ready(&self) -> bool {
        self.wake.is_none_or(|(at, heeds)| self.hurry || at <= self.now || heeds && self.heeds())
    }

    pub(super) fn due(&self) -> Option<Instant> {
        if !self.reports.is_empty() {
            return Some(Instant::ZERO);
        }
        match self.wake {
            // It has not begun.
            None => Some(Instant::ZERO),
            Some((_, true)) if self.heeds() => Some(Instant::ZERO),
            Some((at, _)) => Some(at),
        }
    }

    fn unix(&self) -> UnixTime {
        let (ahead, zero) = self.clock;
        UnixTime((zero + (self.now - Instant::ZERO)).0.saturating_add_signed(ahead))
    }

    /// Nothing gets through.
    fn is_cut(&self) -> bool {
        self.now < self.link.cut
    }

    /// How long a statement takes one way.
    fn takes(&mut self) -> Duration {
        let micros = u64::try_from(self.link.slow.as_micros()).unwrap_or(u64::MAX) / 2;
        Duration::from_micros(self.rng.below(micros.max(1)))
    }

    /// The connection breaks now.
    fn breaks(&mut self) -> bool {
        let flaky = self.link.flaky;
        flaky > 0 && self.rng.below(200) < flaky
    }
}

/// The store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Away(&'static str);

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Until this moment; with `heeds`, or until something is handed over or announced.
async fn until(line: &Rc<RefCell<Line>>, at: Instant, heeds: bool) {
    poll_fn(|_| {
        let mut line = line.borrow_mut();
        line.wake = Some((at, heeds));
        if line.is_ready() {
            line.wake = None;
            if heeds {
                line.rung = false;
            }
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// What a courier has besides a connection.
pub(crate) struct Desk(Rc<RefCell<Line>>);

impl Desk {
    pub(crate) fn new(line: Rc<RefCell<Line>>) -> Self {
        Self(line)
    }
}

impl Office for Desk {
    type Store = Connection;

    async fn join(
        &mut self,
        beats: u64,
        mut meanwhile: impl FnMut(&mut Self),
    ) -> Result<(Connection, Joined), Away> {
        let line = self.0.clone();
        if line.borrow().now < line.borrow().database.borrow().down {
            return Err(Away("the server is not there"));
        }
        let joined = {
            let mut joining = pin!(ask(&line, None, LOGIN, |line| {
                let (now, gateway) = (line.now, line.gateway);
                line.database.borrow_mut().join(now, gateway, &line.address, beats)
            }));
            poll_fn(|cx| {
                if std::mem::take(&mut line.borrow_mut().rung) {
                    meanwhile(self);
                }
                joining.as_mut().poll(cx)
            })
            .await
        };
        let (connection, joined) = joined?;
        line.borrow_mut().connection = Some(connection);
        Ok((Connection { line: line.clone(), connection }, joined))
    }

    fn now(&self) -> Instant {
        self.0.borrow().now
    }

    fn unix(&self) -> UnixTime {
        self.0.borrow().unix()
    }

    fn queue<T>(&mut self, act: impl FnOnce(&mut Waiting) -> T) -> T {
        act(&mut self.0.borrow_mut().queue)
    }

    fn report(&mut self, report: Report) {
        self.0.borrow_mut().reports.push(report);
    }

    fn beats(&self) -> u64 {
        self.0.borrow().kept.beats
    }

    fn keep_beats(&mut self, beats: u64) {
        self.0.borrow_mut().kept.beats = beats;
    }

    fn owed(&self) -> Vec<(Lessee, Addresses)> {
        self.0.borrow().kept.owed.clone()
    }

    fn keep_owed(&mut self, owed: Vec<(Lessee, Addresses)>) {
        self.0.borrow_mut().kept.owed = owed;
    }

    async fn rest(&mut self, at: Instant) {
        until(&self.0, at, true).await;
    }

    async fn notice(&mut self, store: &mut Connection, at: Option<Instant>) -> Result<Option<Notice>, Away> {
        if let Some(at) = at {
            until(&self.0, at, true).await;
            // What is announced has its way too.
            let arrives = {
                let mut line = self.0.borrow_mut();
                line.connection_is_news().then(|| line.now + line.takes())
            };
            if let Some(arrives) = arrives {
                until(&self.0, arrives, false).await;
            }
        }
        let line = self.0.borrow();
        let mut database = line.database.borrow_mut();
        match database.has(line.gateway, store.connection) {
            false => Err(Away("the connection is gone")),
            true if line.is_cut() => Ok(None),
            true => Ok(database.notice(line.gateway)),
        }
    }
}

/// A connection to the model.
pub(crate) struct Connection {
    line: Rc<RefCell<Line>>,
    connection: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut line = self.line.borrow_mut();
        line.connection = None;
        let there = line.database.borrow().has(line.gateway, self.connection);
        if there {
            line.database.borrow_mut().part(line.gateway);
        }
    }
}

/// One statement: what `act` does is committed when it has come there, whether its answer comes back or not.
async fn ask<T>(
    line: &Rc<RefCell<Line>>,
    connection: Option<u64>,
    patience: Duration,
    act: impl FnOnce(&Line) -> T,
) -> Result<T, Away> {
    let (begun, there, back, broken) = {
        let mut line = line.borrow_mut();
        let (there, back) = (line.takes(), line.takes());
        // Before it is committed, or after.
        let broken = [line.breaks(), line.breaks()];
        (line.now, there, back, broken)
    };
    let passes = |line: &Line| {
        let database = line.database.borrow();
        line.now >= database.down && connection.is_none_or(|number| database.has(line.gateway, number))
    };
    let mut act = Some(act);
    let mut done = None;
    for (way, broken) in [there, back].into_iter().zip(broken) {
        let at = line.borrow().now + way;
        until(line, at, false).await;
        if line.borrow().is_cut() {
            // Nothing is heard of it.
            until(line, begun + patience, false).await;
            line.borrow().database.borrow_mut().part(line.borrow().gateway);
            return Err(Away("it did not answer in time"));
        }
        if broken {
            line.borrow().database.borrow_mut().part(line.borrow().gateway);
        }
        if broken || !passes(&line.borrow()) && (act.is_some() || connection.is_some()) {
            return Err(Away("the connection broke"));
        }
        if let Some(act) = act.take() {
            done = Some(act(&line.borrow()));
        }
    }
    done.ok_or(Away("nothing was asked"))
}

impl Connection {
    async fn ask<T>(
        &self,
        act: impl FnOnce(Instant, UnixTime, usize, &mut Database) -> T,
    ) -> Result<T, Away> {
        let act = |line: &Line| act(line.now, line.unix(), line.gateway, &mut line.database.borrow_mut());
        ask(&self.line, Some(self.connection), ANSWER, act).await
    }
}

impl Store for Connection {
    type Error = Away;

    async fn run(&mut self, operations: &[Operation]) -> Result<Vec<Outcome>, Away> {
        self.ask(|now, unix, gateway, database| database.run(now, unix, gateway, operations)).await
    }

    async fn count(&mut self, sessions: &[Counted]) -> Result<Vec<Name>, Away> {
        self.ask(|now, _, gateway, database| database.count(now, gateway, sessions)).await
    }

    async fn too_many(&mut self) -> Result<Vec<Name>, Away> {
        self.ask(|_, _, gateway, database| database.too_many(gateway)).await
    }

    async fn overtaken(&mut self, began: &[Row], former: &[Name]) -> Result<Vec<Name>, Away> {
        self.ask(|_, _, gateway, database| database.overtaken(gateway, began, former)).await
    }

    async fn write_leases(&mut self, changes: &[(Lessee, Change)]) -> Result<Vec<bool>, Away> {
        self.ask(|now, unix, gateway, database| database.write_leases(now, unix, gateway, changes)).await
    }

    async fn leases(&mut self) -> Result<Vec<(Lessee, Addresses)>, Away> {
        self.ask(|_, _, _, database| database.tables.leases.clone()).await
    }

    async fn orders(&mut self) -> Result<Vec<GoneOrder>, Away> {
        self.ask(|_, _, gateway, database| database.orders(gateway)).await
    }

    async fn obeyed(&mut self, orders: &[GoneOrder]) -> Result<(), Away> {
        self.ask(|now, _, gateway, database| database.obeyed(now, gateway, orders)).await
    }

    async fn denials(&mut self) -> Result<Vec<Denied>, Away> {
        self.ask(|_, _, _, database| database.tables.denials.clone()).await
    }

    async fn deny(&mut self, denial: &Denied) -> Result<Option<String>, Away> {
        self.ask(|now, _, gateway, database| database.deny(now, gateway, denial)).await.map(|()| None)
    }

    async fn allow(&mut self, whom: &str) -> Result<(), Away> {
        self.ask(|now, _, gateway, database| database.allow(now, gateway, whom)).await
    }

    async fn keys(&mut self) -> Result<Vec<SharedKey>, Away> {
        self.ask(|now, unix, _, database| database.keys(now, unix)).await
    }

    /// Nobody in these stories has a password.
    async fn users(&mut self) -> Result<Vec<SharedUser>, Away> {
        self.ask(|_, _, _, _| Vec::new()).await
    }

    async fn hand_over(&mut self, parcels: &[Parcel]) -> Result<Vec<bool>, Away> {
        self.ask(|now, _, gateway, database| database.hand_over(now, gateway, parcels)).await
    }

    async fn handovers(&mut self) -> Result<Vec<ArrivedParcel>, Away> {
        self.ask(|_, _, gateway, database| database.handovers(gateway)).await
    }

    async fn taken(&mut self, numbers: &[i64]) -> Result<(), Away> {
        self.ask(|now, _, gateway, database| database.taken(now, gateway, numbers)).await
    }

    async fn others(&mut self) -> Result<Vec<Other>, Away> {
        self.ask(|now, _, gateway, database| database.others(now, gateway)).await
    }

    async fn beat(&mut self) -> Result<(u64, Option<Vec<Other>>), Away> {
        let act = |line: &Line| line.database.borrow_mut().beat(line.now, line.gateway, line.draining);
        ask(&self.line, Some(self.connection), ANSWER, act).await.map(|beats| (beats, None))
    }

    async fn leave(&mut self, records: &[&Record], over: &[Name]) -> Result<(), Away> {
        self.ask(|now, _, gateway, database| database.leave(now, gateway, records, over)).await
    }

    async fn silent(&mut self) -> Result<Vec<String>, Away> {
        if !self.line.borrow().takeover {
            return Ok(Vec::new());
        }
        self.ask(|now, _, gateway, database| database.silent(now, gateway)).await
    }

    async fn left_by(&mut self, of: Option<&str>) -> Result<Vec<Left>, Away> {
        if !self.line.borrow().takeover {
            return Ok(Vec::new());
        }
        self.ask(|_, _, gateway, database| database.left_by(gateway, of)).await
    }

    async fn claim(&mut self, lineage: Name) -> Result<Option<Given>, Away> {
        self.ask(|now, _, gateway, database| database.claim(now, gateway, lineage)).await
    }

    /// No forecast is read in these stories.
    async fn keep_load(&mut self, _: &[u8]) -> Result<(), Away> {
        Ok(())
    }

    async fn load_histories(&mut self) -> Result<Vec<Vec<u8>>, Away> {
        Ok(Vec::new())
    }

    fn two_of_a_name(&self) -> Away {
        Away("somebody else counts our heartbeats")
    }
}
