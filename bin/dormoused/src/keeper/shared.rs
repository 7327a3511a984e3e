//! The same for gateways that share a PostgreSQL database (`dormouse_cluster`): a thread that writes what the host orders and hears what the
//! other gateways do. Owns the connection, and when it is tried again; what the news mean is the host's affair.
//!
//! After each connection the news are read before anything is written that waited: first what other gateways have taken over, then denials,
//! leases and keys. While there is no connection, who waits for the store is told so at once; what nobody waits for is kept within the queue's
//! bound.

use super::counts::{Counts, Spent};
use super::{Batch, Queue, Report, Reports};
use crate::leases::Changes;
use dormouse_cluster as cluster;
use dormouse_cluster::{
    Database, LeaseChange, LeaseKey, LeaseNews, Notice, Settings, TicketKey, UserEntry, Written,
};
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome};
use dormouse_io::clock::unix_now;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::state::StateDir;
use dormouse_io::store::StoredDenial;
use dormouse_node::pool::{Addresses, Change, Lessee};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A database that could not be reached is tried again after this long.
const RETRY: Duration = Duration::from_secs(1);
/// How often the others are told that this gateway is there.
const BEAT: Duration = Duration::from_secs(5);
/// How often the number of the last one is kept on the disk: what is accepted between two of them and a restored backup is not noticed.
const KEPT: Duration = Duration::from_secs(60);
/// How often ticket keys are asked for: they are published an hour before they are used.
const KEYS: Duration = Duration::from_secs(45 * 60);
/// The file with the number of the last heartbeat.
const BEATS: &str = "cluster-beats";

/// What other gateways have done, or the database says.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The sessions of these lineages are not ours any more.
    Gone(Vec<Name>),
    /// All whom an administrator refuses.
    Denials(Vec<StoredDenial>),
    /// A denial of ours is on record for all.
    Denied(String),
    /// All users with passwords that gateways share.
    Users(Vec<UserEntry>),
    /// All leases there are.
    Leases(Vec<(Lessee, Addresses)>),
    /// A lease of another gateway's.
    Lease(Lessee, Addresses),
    /// An eviction of another gateway's.
    Evicted(Lessee),
    /// A lease of ours is not granted.
    Refused(Lessee),
    /// All ticket keys.
    Keys(Vec<TicketKey>),
    /// The database has been out of reach for as long as it may be, or is back.
    TooLongAlone(bool),
}

/// Something for the database besides lineages and leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    Deny(StoredDenial),
    Allow(String),
}

/// What the thread has from its daemon.
pub(crate) struct Member {
    pub(crate) settings: Settings,
    pub(crate) state: StateDir,
    /// See [`dormouse_node::config::file::Cluster::alone_for`].
    pub(crate) alone_for: Duration,
    /// Longest lifetime of a ticket.
    pub(crate) lifetime: Duration,
    pub(crate) counts: Arc<Counts>,
}

/// What a gateway must know before it begins.
pub(crate) struct Beginning {
    pub(crate) slot: u8,
    pub(crate) slots: u8,
    pub(crate) denials: Vec<StoredDenial>,
    pub(crate) leases: Vec<(Lessee, Addresses)>,
    pub(crate) keys: Vec<TicketKey>,
    pub(crate) users: Vec<UserEntry>,
}

impl Member {
    /// The first look at the database, which the caller waits for, also for one that may come within `patience`. Its thread, if it needs one for a name, has ended when this returns.
    ///
    /// # Errors
    /// If there is no connection in time, or the gateway has no place there.
    pub(crate) fn begin_soon(&self, patience: Duration) -> anyhow::Result<Beginning> {
        runtime()?.block_on(async {
            let until = Instant::now() + patience;
            loop {
                match self.begin().await {
                    Err(e) if !e.needs_somebody() && Instant::now() < until => {
                        tracing::warn!("waiting for the database: {e}");
                        tokio::time::sleep(RETRY).await;
                    }
                    done => return Ok(done?),
                }
            }
        })
    }

    async fn begin(&self) -> Result<Beginning, cluster::Error> {
        let (mut database, joined) = Database::join(&self.settings, self.beats()).await?;
        self.keep(joined.beats);
        if joined.emptied {
            tracing::warn!("the database is an earlier state of itself: all tickets are revoked");
        }
        Ok(Beginning {
            slot: joined.slot,
            slots: joined.slots,
            denials: denials(&mut database).await?,
            leases: leases(&mut database).await?,
            keys: database.ticket_keys(unix_now(), self.lifetime, &mut OsEntropy).await?,
            users: database.passwords().await?,
        })
    }

    /// The last heartbeat that is remembered. A file that cannot be read counts as none.
    fn beats(&self) -> u64 {
        let content = self.state.read(BEATS).ok().flatten();
        let number = content.and_then(|bytes| str::from_utf8(bytes.as_bytes()).ok()?.trim().parse().ok());
        number.unwrap_or(0)
    }

    fn keep(&self, beats: u64) {
        if let Err(e) = self.state.write(BEATS, format!("{beats}\n").as_bytes()) {
            tracing::warn!(%e, "a database that is restored may not be noticed");
        }
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn denials(database: &mut Database) -> Result<Vec<StoredDenial>, cluster::Error> {
    let stored = |cluster::Denial { whom, since }| StoredDenial { whom, since };
    Ok(database.denials().await?.into_iter().map(stored).collect())
}

async fn leases(database: &mut Database) -> Result<Vec<(Lessee, Addresses)>, cluster::Error> {
    let all = database.leases().await?;
    Ok(all.into_iter().filter_map(|l| Some((lessee(l.holder)?, Addresses { v4: l.v4, v6: l.v6 }))).collect())
}

fn lessee(LeaseKey { connection, identity, device }: LeaseKey) -> Option<Lessee> {
    Lessee::new(connection, identity, device)
}

fn key(Lessee { connection, identity, device, .. }: Lessee) -> LeaseKey {
    LeaseKey { connection, identity, device }
}

pub(super) fn serve(member: Member, queue: &Queue, reports: &Reports) {
    match runtime() {
        Ok(runtime) => {
            let mut keeper = Worker {
                member,
                queue,
                reports,
                beats: 0,
                kept: Instant::now(),
                reachable: true,
                owed: BTreeMap::new(),
                spent: Spent::default(),
            };
            runtime.block_on(keeper.run());
        }
        Err(e) => tracing::error!("tickets are refused from now on: {e}"),
    }
}

/// Why a connection is left.
enum Left {
    /// Everything is written, and nothing more will come.
    Closed,
    Failed(cluster::Error),
}

impl From<cluster::Error> for Left {
    fn from(e: cluster::Error) -> Self {
        Self::Failed(e)
    }
}

struct Worker<'a> {
    member: Member,
    queue: &'a Queue,
    reports: &'a Reports,
    beats: u64,
    /// When it was last kept on the disk.
    kept: Instant,
    reachable: bool,
    /// Leases that could not be written yet, the last change of each holder.
    owed: BTreeMap<Lessee, Change>,
    /// Tickets that were taken.
    spent: Spent,
}

impl Worker<'_> {
    async fn run(&mut self) {
        self.beats = self.member.beats();
        let mut lost = Instant::now();
        let mut told = false;
        let mut said = String::new();
        loop {
            match self.connected().await {
                Left::Closed => break,
                Left::Failed(e) => {
                    if self.reachable {
                        lost = Instant::now();
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
            if !told && lost.elapsed() >= self.member.alone_for {
                self.tell(News::TooLongAlone(true));
            }
            told = !self.reachable && lost.elapsed() >= self.member.alone_for;
        }
        self.member.keep(self.beats);
    }

    fn tell(&self, news: News) {
        self.reports.send(Report::News(Box::new(news)));
    }

    fn set_reachable(&mut self, reachable: bool) {
        if self.reachable != reachable {
            self.reachable = reachable;
            self.reports.send(Report::Reachable(reachable));
        }
    }

    /// Waits a moment without a connection. Who waits for the store is told that it says nothing. True if nothing more will come.
    async fn alone(&mut self) -> bool {
        let until = Instant::now() + RETRY;
        loop {
            let Batch { operations, leases, errands, closed, .. } = self.queue.take();
            self.failed(operations);
            self.queue.put_back_errands(errands);
            self.owe(leases);
            if closed {
                return true;
            }
            tokio::select! {
                () = sleep_until(until) => return false,
                () = self.queue.bell.notified() => {}
            }
        }
    }

    /// These cannot be carried out now.
    fn failed(&self, batch: Vec<Operation>) {
        for sa in batch.iter().filter_map(Operation::asked_by) {
            self.reports.send(Report::Outcome(sa, Outcome::Failed));
        }
        self.queue.put_back(batch);
    }

    /// The answers that wait for these leases go out; the leases are written when there is a connection.
    fn owe(&mut self, changes: Changes) {
        if changes.is_empty() {
            return;
        }
        let last = changes.last();
        self.owed.extend(changes.into_changes());
        self.reports.send(Report::Leased(last));
    }

    /// Connects, and serves until the connection fails.
    async fn connected(&mut self) -> Left {
        match self.serve().await {
            Ok(()) => Left::Closed,
            Err(left) => left,
        }
    }

    async fn serve(&mut self) -> Result<(), Left> {
        let (mut database, joined) = Database::join(&self.member.settings, self.beats).await?;
        self.set_beats(joined.beats);
        if joined.emptied {
            tracing::warn!("the database is an earlier state of itself: all tickets are revoked");
        }
        self.obey(&mut database).await?;
        self.tell(News::Denials(denials(&mut database).await?));
        self.tell(News::Users(database.passwords().await?));
        // Ours first, or those that are not used would be forgotten here, and be given to others.
        let owed = std::mem::take(&mut self.owed);
        self.write_leases(&mut database, owed.into_iter().collect()).await?;
        self.tell(News::Leases(leases(&mut database).await?));
        self.read_keys(&mut database).await?;
        if !self.reachable {
            tracing::info!("the database is reached again");
            self.tell(News::TooLongAlone(false));
        }
        self.set_reachable(true);
        let (mut beat, mut keys) = (Instant::now() + BEAT, Instant::now() + KEYS);
        loop {
            let batch = self.queue.take();
            let (idle, closed) = (batch.is_empty(), batch.closed);
            self.write(&mut database, batch).await?;
            if idle && closed {
                return Ok(());
            }
            // What has come is heard between two batches; without one it is waited for.
            let notice = tokio::select! {
                biased;
                notice = database.notice() => Some(notice?),
                () = std::future::ready(()), if !idle => None,
                () = self.queue.bell.notified() => None,
                () = sleep_until(beat) => None,
                () = sleep_until(keys) => None,
            };
            if let Some(notice) = notice {
                self.heard(&mut database, notice).await?;
            }
            let now = Instant::now();
            if beat <= now {
                beat = now + BEAT;
                let spent = self.spent.in_a_minute(now);
                let beats = database.beat(unix_now(), &self.member.counts.load(spent)).await?;
                self.member.counts.beat(&beats);
                if beats.number != self.beats + 1 {
                    return Err(Left::Failed(self.two_of_a_name()));
                }
                self.set_beats(beats.number);
                self.obey(&mut database).await?;
            }
            if keys <= now {
                keys = now + KEYS;
                self.read_keys(&mut database).await?;
            }
        }
    }

    /// Somebody else counts our heartbeats: both would give the same addresses.
    fn two_of_a_name(&self) -> cluster::Error {
        let name = &self.member.settings.gateway;
        cluster::Error::Settings(format!(
            "another gateway joins as \"{name}\": give each a name of its own (cluster.name)"
        ))
    }

    fn set_beats(&mut self, beats: u64) {
        let first = self.beats == 0;
        self.beats = beats;
        if first || self.kept.elapsed() >= KEPT {
            self.kept = Instant::now();
            self.member.keep(beats);
        }
    }

    async fn heard(&self, database: &mut Database, notice: Notice) -> Result<(), cluster::Error> {
        match notice {
            Notice::Orders => self.obey(database).await?,
            Notice::Denials => self.tell(News::Denials(denials(database).await?)),
            Notice::Users => self.tell(News::Users(database.passwords().await?)),
            Notice::Keys => self.read_keys(database).await?,
            Notice::Lease(LeaseNews::ReadAll) => self.tell(News::Leases(leases(database).await?)),
            Notice::Lease(LeaseNews::Evict(holder)) => {
                lessee(holder).into_iter().for_each(|holder| self.tell(News::Evicted(holder)));
            }
            Notice::Lease(LeaseNews::Lease(cluster::Lease { holder, v4, v6, .. })) => {
                lessee(holder).into_iter().for_each(|h| self.tell(News::Lease(h, Addresses { v4, v6 })));
            }
        }
        Ok(())
    }

    /// What other gateways have taken over goes from here.
    async fn obey(&self, database: &mut Database) -> Result<(), cluster::Error> {
        loop {
            let orders = database.orders().await?;
            if orders.is_empty() {
                return Ok(());
            }
            self.tell(News::Gone(orders.iter().map(|order| order.lineage).collect()));
            database.obeyed(&orders).await?;
        }
    }

    async fn read_keys(&self, database: &mut Database) -> Result<(), cluster::Error> {
        let keys = database.ticket_keys(unix_now(), self.member.lifetime, &mut OsEntropy).await?;
        self.tell(News::Keys(keys));
        Ok(())
    }

    async fn write(&mut self, database: &mut Database, batch: Batch) -> Result<(), cluster::Error> {
        let Batch { operations, leases, errands, mark, .. } = batch;
        // First: an answer that gives an address waits for it.
        if !leases.is_empty() {
            let last = leases.last();
            if let Err(e) = self.write_leases(database, leases.into_changes()).await {
                self.reports.send(Report::Leased(last));
                self.failed(operations);
                self.queue.put_back_errands(errands);
                return Err(e);
            }
            self.reports.send(Report::Leased(last));
        }
        if !operations.is_empty() {
            match database.run(unix_now(), &operations).await {
                Ok(outcomes) => {
                    let is_taken = |(operation, outcome): &(&Operation, &Outcome)| {
                        matches!(operation, Operation::Confirm { .. }) && **outcome == Outcome::Done
                    };
                    self.spent.add(operations.iter().zip(&outcomes).filter(is_taken).count());
                    for (operation, outcome) in operations.iter().zip(outcomes) {
                        if let Some(sa) = operation.asked_by() {
                            self.reports.send(Report::Outcome(sa, outcome));
                        }
                    }
                }
                Err(e) => {
                    self.failed(operations);
                    self.queue.put_back_errands(errands);
                    return Err(e);
                }
            }
        }
        let mut errands = errands.into_iter();
        while let Some(errand) = errands.next() {
            if let Err(e) = self.run_errand(database, &errand).await {
                self.queue.put_back_errands(std::iter::once(errand).chain(errands).collect());
                return Err(e);
            }
        }
        if let Some(mark) = mark {
            self.queue.written(mark);
            self.reports.send(Report::Written(mark));
        }
        Ok(())
    }

    async fn run_errand(&self, database: &mut Database, errand: &Errand) -> Result<(), cluster::Error> {
        match errand {
            Errand::Deny(StoredDenial { whom, since }) => {
                match database.deny(&cluster::Denial { whom: whom.clone(), since: *since }).await {
                    Ok(_new) => self.tell(News::Denied(whom.clone())),
                    // It would fail again.
                    Err(e @ cluster::Error::Settings(_)) => {
                        tracing::error!(%whom, "denied at this gateway only: {e}");
                    }
                    Err(e) => return Err(e),
                }
            }
            Errand::Allow(whom) => _ = database.allow(whom).await?,
        }
        // Others are told by the database, this gateway is not.
        self.tell(News::Denials(denials(database).await?));
        Ok(())
    }

    /// What is not granted is told; what could not be written is owed.
    async fn write_leases(
        &mut self,
        database: &mut Database,
        changes: Vec<(Lessee, Change)>,
    ) -> Result<(), cluster::Error> {
        if changes.is_empty() {
            return Ok(());
        }
        // Evictions first: an address may go from one holder to another.
        let (evicted, given): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(_, change)| matches!(change, Change::Evict { .. }));
        let all: Vec<(Lessee, Change)> = evicted.into_iter().chain(given).collect();
        let change = |(holder, change): &(Lessee, Change)| match change {
            Change::Lease { addresses: Addresses { v4, v6 }, .. } => {
                LeaseChange::Lease { holder: key(holder.clone()), v4: *v4, v6: *v6 }
            }
            Change::Evict { .. } => LeaseChange::Evict { holder: key(holder.clone()) },
        };
        let written =
            match database.write_leases(unix_now(), &all.iter().map(change).collect::<Vec<_>>()).await {
                Ok(written) => written,
                Err(e) => {
                    self.owed.extend(all);
                    return Err(e);
                }
            };
        let mut kept = false;
        for ((holder, change), written) in all.into_iter().zip(written) {
            match (written, change) {
                (Written::Done, _) => {}
                (Written::Refused, Change::Evict { .. }) => kept = true,
                (Written::Refused, Change::Lease { .. }) => self.tell(News::Refused(holder)),
            }
        }
        if kept {
            // Who could not be evicted has its addresses still.
            self.tell(News::Leases(leases(database).await?));
        }
        Ok(())
    }
}
