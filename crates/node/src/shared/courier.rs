//! The order in which a gateway speaks with the store that it shares. Owns the heartbeat's number, what is owed, and when a connection is tried
//! again; what the news mean is [`super::Company`]'s.
//!
//! After each connection the news are read before anything is written that waited: first what other gateways have taken over, also of what
//! began here meanwhile, then denials, leases and keys. While there is no connection, who waits for the store is told so at once; what nobody waits for is kept within the queue's
//! bound.

use super::clock::Clock;
use super::handovers::not_run;
use super::{Batch, Changes, Denied, Joined, News, Notice, Office, Report, SharedUser, Store, Waiting};
use crate::pool::{Addresses, Change, Lessee, Share};
use dormouse_crypto::cert::Identity;
use dormouse_ike::ticket::SharedKey;
use dormouse_ike::ticket::counted::Counted;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, TicketHolder};
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A store that could not be reached is tried again after this long.
pub const RETRY: Duration = Duration::from_secs(1);
/// How often the others are told that this gateway is there.
pub const BEAT: Duration = Duration::from_secs(5);
/// A gateway that the others have not heard of for so long is none whose sessions count: theirs are fewer then.
pub const SILENT: Duration = Duration::from_secs(30);
/// How often all sessions are counted, in case that one was not when it began.
const RECOUNT: Duration = Duration::from_secs(5 * 60);
/// How often the number of the last one is kept on the disk: what is accepted between two of them and a restored backup is not noticed.
pub const KEPT: Duration = Duration::from_secs(60);
/// How often ticket keys are asked for: they are published an hour before they are used.
pub const KEYS: Duration = Duration::from_secs(45 * 60);

pub(super) type Error<O> = <<O as Office>::Store as Store>::Error;

/// What a gateway must know before it begins.
#[derive(Debug)]
pub struct Beginning {
    /// Its place.
    pub joined: Joined,
    /// All whom an administrator refuses.
    pub denials: Vec<Denied>,
    /// All leases.
    pub leases: Vec<(Lessee, Addresses)>,
    /// All ticket keys.
    pub keys: Vec<SharedKey>,
    /// All users with passwords.
    pub users: Vec<SharedUser>,
    /// What this gateway, and then others, have learned about latency and load. Written by any of them: it may be anything.
    pub load: Vec<Vec<u8>>,
}

impl Beginning {
    /// The gateway's part of the pool.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { slot: self.joined.slot, slots: self.joined.slots, alone: false }
    }
}

/// The first look at the store.
///
/// # Errors
/// If there is no connection, or the gateway has no place there.
pub async fn begin<O: Office>(office: &mut O) -> Result<Beginning, Error<O>> {
    let (mut store, joined) = office.join(office.beats(), |_| {}).await?;
    office.keep_beats(joined.beats);
    warn_emptied(&joined);
    write_owed(office, &mut store).await?;
    // Those of the process before are over.
    let _none = store.count(&[]).await?;
    Ok(Beginning {
        load: store.load_histories().await?,
        joined,
        denials: store.denials().await?,
        leases: store.leases().await?,
        keys: store.keys().await?,
        users: store.users().await?,
    })
}

/// What an earlier run has given while the store could not be reached, and did not live to write down. Who has a lease in the store by now has
/// come since, here or elsewhere.
async fn write_owed<O: Office>(office: &mut O, store: &mut O::Store) -> Result<(), Error<O>> {
    let mut owed = office.owed();
    if owed.is_empty() {
        return Ok(());
    }
    let there: BTreeSet<Lessee> = store.leases().await?.into_iter().map(|(holder, _)| holder).collect();
    owed.retain(|(holder, _)| !there.contains(holder));
    let lease =
        |(holder, addresses): (Lessee, Addresses)| (holder.clone(), Change::Lease { holder, addresses });
    let owed: Vec<(Lessee, Change)> = owed.into_iter().map(lease).collect();
    if !owed.is_empty() {
        let granted = store.write_leases(&owed).await?;
        let granted = granted.into_iter().filter(|granted| *granted).count();
        tracing::info!(
            leases = owed.len(),
            granted,
            "written now: given before the start, without the database"
        );
    }
    office.keep_owed(Vec::new());
    Ok(())
}

fn warn_emptied(joined: &Joined) {
    if joined.emptied {
        tracing::warn!("the database is an earlier state of itself: all tickets are revoked");
    }
}

/// Why a connection is left.
enum Left<E> {
    /// Everything is written, and nothing more will come.
    Closed,
    Failed(E),
}

impl<E> From<E> for Left<E> {
    fn from(e: E) -> Self {
        Self::Failed(e)
    }
}

/// See the module's documentation.
pub struct Courier<O> {
    pub(super) office: O,
    /// How long the gateway serves without the store.
    alone_for: Duration,
    beats: u64,
    /// When it was last kept on the disk.
    kept: Instant,
    /// Of the last connection.
    incarnation: Option<u64>,
    reachable: bool,
    /// When the others last heard of this gateway, and when its sessions were counted.
    heard: Instant,
    counted: Instant,
    known: Known,
    /// Gateways that have left IKE SAs, as was told.
    pub(super) silent: BTreeSet<String>,
}

/// What is known here of what the store is to have.
#[derive(Debug, Default)]
struct Known {
    /// Leases that could not be written yet, the last change of each holder.
    owed: BTreeMap<Lessee, Change>,
    /// The sessions that are counted over all gateways.
    sessions: BTreeMap<Name, Counted>,
}

impl Known {
    /// No lease is owed of these any more: others have their sessions.
    fn disown(&mut self, theirs: &BTreeSet<TicketHolder>) {
        self.owed.retain(|lessee, _| holder(lessee).is_none_or(|holder| !theirs.contains(&holder)));
    }

    /// A session that is counted has come or gone.
    fn note(&mut self, operation: &Operation) {
        match *operation {
            Operation::Enter { session, .. } => {
                // Of one that has moved, when it began is known, and what it took the place of.
                let same = |was: &mut Counted| was.from = session.from;
                self.sessions.entry(session.lineage).and_modify(same).or_insert(session);
            }
            Operation::Leave { lineage } => _ = self.sessions.remove(&lineage),
            _ => {}
        }
    }
}

/// Without a connection: who waits for the store is told that it says nothing. True if nothing more will come.
fn stand_by(office: &mut impl Office, known: &mut Known) -> bool {
    let Batch { operations, leases, errands, closed, .. } = office.queue(Waiting::take);
    failed(office, known, operations);
    not_run(office, errands);
    owe(office, &mut known.owed, leases);
    closed
}

/// These cannot be carried out now. Logins that ask whether there is room are counted by this gateway alone until the store answers.
fn failed(office: &mut impl Office, known: &mut Known, batch: Vec<Operation>) {
    let ends = batch.iter().filter(|operation| matches!(operation, Operation::End { .. }));
    let mut asked: Vec<SaId> = ends.filter_map(Operation::asked_by).collect();
    let passed = office.queue(|q| q.put_back(batch));
    passed.iter().for_each(|operation| known.note(operation));
    asked.extend(passed.iter().filter_map(Operation::asked_by));
    asked.into_iter().for_each(|sa| office.report(Report::Outcome(sa, Outcome::Failed)));
}

/// The answers that wait for these leases go out; the leases are written when there is a connection.
fn owe(office: &mut impl Office, owed: &mut BTreeMap<Lessee, Change>, changes: Changes) {
    if changes.is_empty() {
        return;
    }
    let (last, changes) = (changes.last(), changes.into_changes());
    tell_unwritten(office, &changes);
    owed.extend(changes);
    keep(office, owed);
    office.report(Report::Leased(last));
}

/// Before clients are told of them: a start would not know of them, and give their addresses to others.
fn keep(office: &mut impl Office, owed: &BTreeMap<Lessee, Change>) {
    let lease = |(holder, change): (&Lessee, &Change)| match change {
        Change::Lease { addresses, .. } => Some((holder.clone(), *addresses)),
        Change::Evict { .. } => None,
    };
    office.keep_owed(owed.iter().filter_map(lease).collect());
}

/// Before the answers that wait for these leases go out: some of them must not.
fn tell_unwritten(office: &mut impl Office, changes: &[(Lessee, Change)]) {
    let given = changes.iter().filter(|(_, change)| matches!(change, Change::Lease { .. }));
    let holders = given.map(|(holder, _)| holder.clone()).collect();
    office.report(Report::News(Box::new(News::Unwritten(holders))));
}

/// Whose tickets are those of who has a lease.
fn holder(Lessee { connection, identity: (kind, data), .. }: &Lessee) -> Option<TicketHolder> {
    Some(TicketHolder::of(connection, &Identity::from_ike(*kind, data).ok()?))
}

impl<O: Office> Courier<O> {
    /// One that has not connected yet. `alone_for`: see [`crate::config::file::Cluster::alone_for`].
    pub fn new(office: O, alone_for: Duration) -> Self {
        let (beats, kept) = (office.beats(), office.now());
        Self {
            office,
            alone_for,
            beats,
            kept,
            incarnation: None,
            reachable: true,
            heard: kept,
            counted: kept,
            known: Known::default(),
            silent: BTreeSet::new(),
        }
    }

    /// Connects and serves, again and again, until nothing more will come.
    pub async fn run(&mut self) {
        let mut lost = self.office.now();
        let mut told = false;
        let mut said = String::new();
        loop {
            match self.connected().await {
                Left::Closed => break,
                Left::Failed(e) => {
                    if self.reachable {
                        lost = self.office.now();
                    }
                    let why = e.to_string();
                    if self.reachable || said != why {
                        tracing::error!("tickets are refused until the database can be reached: {why}");
                        said = why;
                    }
                    self.set_reachable(false);
                }
            }
            if self.alone().await {
                break;
            }
            if !told && self.office.now() - lost >= self.alone_for {
                self.tell(News::TooLongAlone(true));
            }
            told = !self.reachable && self.office.now() - lost >= self.alone_for;
        }
        self.office.keep_beats(self.beats);
    }

    pub(super) fn tell(&mut self, news: News) {
        self.office.report(Report::News(Box::new(news)));
    }

    fn set_reachable(&mut self, reachable: bool) {
        if self.reachable != reachable {
            self.reachable = reachable;
            self.office.report(Report::Reachable(reachable));
        }
    }

    /// Waits a moment without a connection. True if nothing more will come.
    async fn alone(&mut self) -> bool {
        let until = self.office.now() + RETRY;
        loop {
            if stand_by(&mut self.office, &mut self.known) {
                return true;
            }
            if self.office.now() >= until {
                return false;
            }
            self.office.rest(until).await;
        }
    }

    /// Connects. A server that hangs takes its time, for which nobody else waits.
    async fn join(&mut self) -> Result<(O::Store, Joined), Error<O>> {
        let (reachable, known) = (self.reachable, &mut self.known);
        let meanwhile = |office: &mut O| {
            if !reachable {
                stand_by(office, known);
            }
        };
        self.office.join(self.beats, meanwhile).await
    }

    /// What began here while the others could not hear of it, and whose clients have come to one of them since, is theirs.
    async fn yield_overtaken(&mut self, store: &mut O::Store) -> Result<(), Error<O>> {
        let (mut began, former) = self.office.queue(|q| q.logins());
        // Where the first session stays, a later one does not end it.
        began.retain(|row| !self.known.sessions.contains_key(&row.id));
        if began.is_empty() {
            return Ok(());
        }
        let over: BTreeSet<Name> = store.overtaken(&began, &former).await?.into_iter().collect();
        if over.is_empty() {
            return Ok(());
        }
        self.office.queue(|q| q.leave_out(&over));
        self.known.disown(&began.iter().filter(|row| over.contains(&row.id)).map(|row| row.holder).collect());
        keep(&mut self.office, &self.known.owed);
        self.tell(News::Gone(over.into_iter().collect()));
        Ok(())
    }

    /// The sessions that are here are counted. What is too many does not begin on record either, nor end others.
    async fn count(&mut self, store: &mut O::Store) -> Result<(), Error<O>> {
        (self.heard, self.counted) = (self.office.now(), self.office.now());
        let sessions: Vec<Counted> = self.known.sessions.values().copied().collect();
        let over = store.count(&sessions).await?;
        self.too_many(over);
        Ok(())
    }

    fn too_many(&mut self, over: Vec<Name>) {
        if !over.is_empty() {
            // Where the first session stays, its addresses do.
            let first_stays =
                |lineage| self.known.sessions.get(lineage).filter(|s: &&Counted| s.from.is_some());
            let theirs = over.iter().filter_map(first_stays).map(|session| session.holder).collect();
            self.known.disown(&theirs);
            let lineages = over.iter().copied().collect();
            self.office.queue(|q| q.leave_out(&lineages));
            self.tell(News::TooMany(over));
        }
    }

    /// Connects, and serves until the connection fails.
    async fn connected(&mut self) -> Left<Error<O>> {
        match self.serve().await {
            Ok(()) => Left::Closed,
            Err(left) => left,
        }
    }

    async fn serve(&mut self) -> Result<(), Left<Error<O>>> {
        let (mut store, joined) = self.join().await?;
        self.set_beats(joined.beats);
        warn_emptied(&joined);
        let before = self.incarnation.replace(joined.incarnation);
        if before.is_some_and(|before| before != joined.incarnation) {
            self.office.queue(Waiting::forget_logins);
            self.tell(News::Forgotten);
        }
        self.obey(&mut store).await?;
        self.yield_overtaken(&mut store).await?;
        self.count(&mut store).await?;
        let all = store.denials().await?;
        self.tell(News::Denials(all));
        let all = store.users().await?;
        self.tell(News::Users(all));
        // Ours first, or those that are not used would be forgotten here, and be given to others.
        let owed = std::mem::take(&mut self.known.owed);
        if !owed.is_empty() {
            self.write_leases(&mut store, owed.into_iter().collect()).await?;
            self.office.keep_owed(Vec::new());
        }
        let all = store.leases().await?;
        self.tell(News::Leases(all));
        self.read_keys(&mut store).await?;
        // After the leases, which those that come have.
        self.receive(&mut store).await?;
        self.look_for_left(&mut store, before.is_none()).await?;
        if !self.reachable {
            tracing::info!("the database is reached again");
            self.tell(News::TooLongAlone(false));
        }
        self.set_reachable(true);
        let (mut beat, mut keys) = (self.office.now() + BEAT, self.office.now() + KEYS);
        let mut clock = Clock::of(&self.office);
        loop {
            let batch = self.office.queue(Waiting::take);
            let (idle, closed) = (batch.is_empty(), batch.closed);
            self.write(&mut store, batch).await?;
            if idle && closed {
                return Ok(());
            }
            // What has come is heard between two batches; without one it is waited for.
            let until = idle.then(|| beat.min(keys));
            let notice = self.office.notice(&mut store, until).await?;
            if let Some(notice) = notice {
                self.heard(&mut store, notice).await?;
            }
            let now = self.office.now();
            if beat <= now {
                beat = now + BEAT;
                if clock.was_set(&self.office) {
                    // Keys of other days count now, and some may have been given up.
                    self.read_keys(&mut store).await?;
                }
                self.beat(&mut store).await?;
            }
            if keys <= now {
                keys = now + KEYS;
                self.read_keys(&mut store).await?;
            }
        }
    }

    /// A heartbeat; and what was missed of what others say is heard.
    pub(super) async fn beat(&mut self, store: &mut O::Store) -> Result<(), Error<O>> {
        let (beats, others) = store.beat().await?;
        if beats != self.beats + 1 {
            return Err(store.two_of_a_name());
        }
        self.set_beats(beats);
        if let Some(others) = others {
            self.tell(News::Others(others));
        }
        let now = self.office.now();
        // The others may have taken this gateway for one that is gone.
        if now - std::mem::replace(&mut self.heard, now) >= SILENT || now - self.counted >= RECOUNT {
            self.count(store).await?;
        }
        self.look_for_left(store, false).await?;
        self.hear_orders(store).await
    }

    async fn hear_orders(&mut self, store: &mut O::Store) -> Result<(), Error<O>> {
        self.obey(store).await?;
        let over = store.too_many().await?;
        self.too_many(over);
        self.receive(store).await
    }

    fn set_beats(&mut self, beats: u64) {
        let first = self.beats == 0;
        self.beats = beats;
        if first || self.office.now() - self.kept >= KEPT {
            self.kept = self.office.now();
            self.office.keep_beats(beats);
        }
    }

    async fn heard(&mut self, store: &mut O::Store, notice: Notice) -> Result<(), Error<O>> {
        match notice {
            Notice::Orders => self.hear_orders(store).await?,
            Notice::Denials => {
                let all = store.denials().await?;
                self.tell(News::Denials(all));
            }
            Notice::Users => {
                let all = store.users().await?;
                self.tell(News::Users(all));
            }
            Notice::Keys => self.read_keys(store).await?,
            Notice::Leases => {
                let all = store.leases().await?;
                self.tell(News::Leases(all));
            }
            Notice::Evicted(holder) => self.tell(News::Evicted(holder)),
            Notice::Lease(holder, addresses) => self.tell(News::Lease(holder, addresses)),
            Notice::Nothing => {}
        }
        Ok(())
    }

    /// What other gateways have taken over goes from here.
    async fn obey(&mut self, store: &mut O::Store) -> Result<(), Error<O>> {
        loop {
            let orders = store.orders().await?;
            if orders.is_empty() {
                return Ok(());
            }
            let gone: Vec<Name> = orders.iter().map(|order| order.lineage).collect();
            self.office.queue(|q| q.forget(&gone));
            self.tell(News::Gone(gone));
            store.obeyed(&orders).await?;
        }
    }

    async fn read_keys(&mut self, store: &mut O::Store) -> Result<(), Error<O>> {
        let keys = store.keys().await?;
        self.tell(News::Keys(keys));
        Ok(())
    }

    async fn write(&mut self, store: &mut O::Store, batch: Batch) -> Result<(), Error<O>> {
        let Batch { operations, leases, errands, mark, .. } = batch;
        // First: an answer that gives an address waits for it.
        if !leases.is_empty() {
            let last = leases.last();
            if let Err(e) = self.write_leases(store, leases.into_changes()).await {
                self.office.report(Report::Leased(last));
                failed(&mut self.office, &mut self.known, operations);
                not_run(&mut self.office, errands);
                return Err(e);
            }
            self.office.report(Report::Leased(last));
        }
        if !operations.is_empty() {
            match store.run(&operations).await {
                Ok(outcomes) => self.done(&operations, outcomes),
                Err(e) => {
                    failed(&mut self.office, &mut self.known, operations);
                    not_run(&mut self.office, errands);
                    return Err(e);
                }
            }
        }
        self.run_errands(store, errands).await?;
        if let Some(mark) = mark {
            self.office.queue(|q| q.written(mark));
            self.office.report(Report::Written(mark));
        }
        Ok(())
    }

    fn done(&mut self, operations: &[Operation], outcomes: Vec<Outcome>) {
        let mut over = Vec::new();
        for (operation, outcome) in operations.iter().zip(outcomes) {
            match operation {
                Operation::Enter { sa, session } if outcome == Outcome::Full => {
                    over.extend(sa.is_none().then_some(session.lineage));
                }
                operation => self.known.note(operation),
            }
            if let Some(sa) = operation.asked_by() {
                self.office.report(Report::Outcome(sa, outcome));
            }
        }
        self.too_many(over);
    }

    /// What is not granted is told; what could not be written is owed.
    async fn write_leases(
        &mut self,
        store: &mut O::Store,
        changes: Vec<(Lessee, Change)>,
    ) -> Result<(), Error<O>> {
        if changes.is_empty() {
            return Ok(());
        }
        // Evictions first: an address may go from one holder to another.
        let (evicted, given): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(_, change)| matches!(change, Change::Evict { .. }));
        let all: Vec<(Lessee, Change)> = evicted.into_iter().chain(given).collect();
        let granted = match store.write_leases(&all).await {
            Ok(granted) => granted,
            Err(e) => {
                tell_unwritten(&mut self.office, &all);
                self.known.owed.extend(all);
                keep(&mut self.office, &self.known.owed);
                return Err(e);
            }
        };
        let mut kept = false;
        for ((holder, change), granted) in all.into_iter().zip(granted) {
            match (granted, change) {
                (true, _) => {}
                (false, Change::Evict { .. }) => kept = true,
                (false, Change::Lease { .. }) => self.tell(News::Refused(holder)),
            }
        }
        if kept {
            // Who could not be evicted has its addresses still.
            let all = store.leases().await?;
            self.tell(News::Leases(all));
        }
        Ok(())
    }
}
