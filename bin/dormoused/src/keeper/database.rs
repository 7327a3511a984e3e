//! The PostgreSQL database that gateways share (`dormouse_cluster`), as [`Courier`] asks it: the thread's part of the conversation. Owns the
//! connection, the files with the last heartbeat and with leases that it does not have yet ([`owed`]), and what the others are told of this gateway; in which order things are said and done is the
//! courier's.

use super::counts::Counts;
use super::owed;
use super::{Queue, Report, Reports};
use anyhow::Context as _;
use dormouse_cluster as cluster;
use dormouse_cluster::{Content, Database, LeaseChange, LeaseKey, LeaseNews, Settings, UserEntry, Written};
use dormouse_ike::takeover::{Given, Left, Record};
use dormouse_ike::ticket::SharedKey;
use dormouse_ike::ticket::counted::Counted;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, Row};
use dormouse_io::clock::{BootClock, unix_now};
use dormouse_io::entropy::OsEntropy;
use dormouse_io::state::StateDir;
use dormouse_node::config::ResolvedCluster;
use dormouse_node::handover::Handover;
use dormouse_node::pool::{Addresses, Change, Lessee};
use dormouse_node::shared::{
    ArrivedParcel, Beginning, Courier, Denied, GoneOrder, Joined, Notice, Office, Other, Parcel, RETRY,
    SharedPassword, SharedUser, Store, Waiting, begin,
};
use dormouse_sansio::{Instant, UnixTime};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroize;

/// The file with the number of the last heartbeat.
const BEATS: &str = "cluster-beats";
/// Nothing that waits for a device is worth more without it.
const WORTH: Duration = Duration::from_secs(15 * 60);

/// What the thread has from its daemon.
pub(crate) struct Member {
    settings: Settings,
    state: StateDir,
    /// See [`dormouse_node::config::file::Cluster::alone_for`].
    alone_for: Duration,
    /// See [`dormouse_node::config::cluster::Cluster::takeover`].
    takeover: bool,
    /// Longest lifetime of a ticket.
    lifetime: Duration,
    counts: Arc<Counts>,
}

impl Member {
    /// As the configuration has it. `state`: where it keeps its files.
    ///
    /// # Errors
    /// If that directory cannot be used.
    pub(crate) fn new(
        cluster: ResolvedCluster,
        state: &Path,
        lifetime: Duration,
        counts: Arc<Counts>,
    ) -> anyhow::Result<Self> {
        let ResolvedCluster { alone_for, takeover, .. } = cluster;
        let settings = Settings {
            url: cluster.database,
            password: cluster.password,
            authorities: cluster.authorities,
            gateway: cluster.name,
            address: cluster.address,
            key: cluster.key,
        };
        let state = StateDir::open(state).context("daemon.state_dir")?;
        Ok(Self { settings, state, alone_for, takeover, lifetime, counts })
    }

    /// See [`dormouse_node::config::cluster::Cluster::takeover`].
    pub(crate) fn takes_over(&self) -> bool {
        self.takeover
    }

    /// The first look at the database, which the caller waits for, also for one that may come within `patience`. Its thread, if it needs one for a name, has ended when this returns.
    ///
    /// # Errors
    /// If there is no connection in time, or the gateway has no place there.
    pub(crate) fn begin_soon(&self, patience: Duration) -> anyhow::Result<Beginning> {
        let (queue, reports) = (Queue::default(), None);
        let mut desk = Desk { member: self, queue: &queue, reports };
        runtime()?.block_on(async {
            let until = BootClock::now() + patience;
            loop {
                match begin(&mut desk).await {
                    Err(e) if !e.needs_somebody() && BootClock::now() < until => {
                        tracing::warn!("waiting for the database: {e}");
                        tokio::time::sleep(RETRY).await;
                    }
                    done => return Ok(done?),
                }
            }
        })
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

pub(super) fn serve(member: &Member, queue: &Queue, reports: &Reports) {
    match runtime() {
        Ok(runtime) => {
            let desk = Desk { member, queue, reports: Some(reports) };
            runtime.block_on(Courier::new(desk, member.alone_for).run());
        }
        Err(e) => tracing::error!("tickets are refused from now on: {e}"),
    }
}

/// Where the courier has its queue and whom it tells.
struct Desk<'a> {
    member: &'a Member,
    queue: &'a Queue,
    /// `None` before the loop begins.
    reports: Option<&'a Reports>,
}

impl<'a> Office for Desk<'a> {
    type Store = Connection<'a>;

    async fn join(
        &mut self,
        beats: u64,
        mut meanwhile: impl FnMut(&mut Self),
    ) -> Result<(Connection<'a>, Joined), cluster::Error> {
        let (member, queue) = (self.member, self.queue);
        let mut joining = pin!(Database::join(&member.settings, beats));
        let (database, joined) = loop {
            tokio::select! {
                joined = &mut joining => break joined?,
                () = queue.bell.notified() => meanwhile(self),
            }
        };
        let cluster::Joined { slot, slots, emptied, incarnation, beats, database_time: _ } = joined;
        let mut connection = Connection { database, member, said: None };
        connection.say_settings().await?;
        Ok((connection, Joined { slot, slots, emptied, incarnation, beats }))
    }

    fn now(&self) -> Instant {
        BootClock::now()
    }

    fn unix(&self) -> UnixTime {
        unix_now()
    }

    fn queue<T>(&mut self, act: impl FnOnce(&mut Waiting) -> T) -> T {
        act(&mut self.queue.lock())
    }

    fn report(&mut self, report: Report) {
        if let Some(reports) = self.reports {
            reports.send(report);
        }
    }

    /// A file that cannot be read counts as none.
    fn beats(&self) -> u64 {
        let content = self.member.state.read(BEATS).ok().flatten();
        let number = content.and_then(|bytes| str::from_utf8(bytes.as_bytes()).ok()?.trim().parse().ok());
        number.unwrap_or(0)
    }

    fn keep_beats(&mut self, beats: u64) {
        if let Err(e) = self.member.state.write(BEATS, format!("{beats}\n").as_bytes()) {
            tracing::warn!(%e, "a database that is restored may not be noticed");
        }
    }

    fn owed(&self) -> Vec<(Lessee, Addresses)> {
        owed::read(&self.member.state)
    }

    fn keep_owed(&mut self, owed: Vec<(Lessee, Addresses)>) {
        owed::write(&self.member.state, &owed);
    }

    async fn rest(&mut self, until: Instant) {
        tokio::select! {
            () = tokio::time::sleep(until - BootClock::now()) => {}
            () = self.queue.bell.notified() => {}
        }
    }

    async fn notice(
        &mut self,
        store: &mut Connection<'a>,
        until: Option<Instant>,
    ) -> Result<Option<Notice>, cluster::Error> {
        let patience = until.map_or(Duration::ZERO, |until| until - BootClock::now());
        tokio::select! {
            biased;
            notice = store.database.notice() => notice.map(|notice| Some(understood(notice))),
            () = std::future::ready(()), if until.is_none() => Ok(None),
            () = self.queue.bell.notified() => Ok(None),
            () = tokio::time::sleep(patience) => Ok(None),
        }
    }
}

fn understood(notice: cluster::Notice) -> Notice {
    match notice {
        cluster::Notice::Orders => Notice::Orders,
        cluster::Notice::Denials => Notice::Denials,
        cluster::Notice::Users => Notice::Users,
        cluster::Notice::Keys => Notice::Keys,
        cluster::Notice::Lease(LeaseNews::ReadAll) => Notice::Leases,
        cluster::Notice::Lease(LeaseNews::Evict(holder)) => {
            lessee(holder).map_or(Notice::Nothing, Notice::Evicted)
        }
        cluster::Notice::Lease(LeaseNews::Lease(cluster::Lease { holder, v4, v6, .. })) => {
            lessee(holder).map_or(Notice::Nothing, |holder| Notice::Lease(holder, Addresses { v4, v6 }))
        }
    }
}

/// A connection, with the clock and the randomness that its statements need.
struct Connection<'a> {
    database: Database,
    member: &'a Member,
    /// What was said last of this gateway's settings.
    said: Option<String>,
}

impl Connection<'_> {
    /// Says how what must be the same at all gateways is here, if that has not been said.
    async fn say_settings(&mut self) -> Result<(), cluster::Error> {
        let settings = self.member.counts.settings_text();
        if self.said.as_ref() != Some(&settings) {
            self.database.say_settings(&settings).await?;
            self.said = Some(settings);
        }
        Ok(())
    }
}

impl Store for Connection<'_> {
    type Error = cluster::Error;

    async fn run(&mut self, operations: &[Operation]) -> Result<Vec<Outcome>, cluster::Error> {
        let outcomes = self.database.run(unix_now(), operations).await?;
        let confirms = operations.iter().map(|operation| matches!(operation, Operation::Confirm { .. }));
        let taken =
            confirms.zip(&outcomes).filter(|(confirms, outcome)| *confirms && **outcome == Outcome::Done);
        self.member.counts.took(taken.count());
        Ok(outcomes)
    }

    async fn count(&mut self, sessions: &[Counted]) -> Result<Vec<Name>, cluster::Error> {
        self.database.count(sessions).await
    }

    async fn too_many(&mut self) -> Result<Vec<Name>, cluster::Error> {
        self.database.too_many().await
    }

    async fn overtaken(&mut self, began: &[Row], former: &[Name]) -> Result<Vec<Name>, cluster::Error> {
        self.database.overtaken(began, former).await
    }

    async fn write_leases(&mut self, changes: &[(Lessee, Change)]) -> Result<Vec<bool>, cluster::Error> {
        let change = |(holder, change): &(Lessee, Change)| match change {
            Change::Lease { addresses: Addresses { v4, v6 }, .. } => {
                LeaseChange::Lease { holder: key(holder.clone()), v4: *v4, v6: *v6 }
            }
            Change::Evict { .. } => LeaseChange::Evict { holder: key(holder.clone()) },
        };
        let changes: Vec<LeaseChange> = changes.iter().map(change).collect();
        let written = self.database.write_leases(unix_now(), &changes).await?;
        Ok(written.into_iter().map(|written| written == Written::Done).collect())
    }

    async fn leases(&mut self) -> Result<Vec<(Lessee, Addresses)>, cluster::Error> {
        let all = self.database.leases().await?;
        Ok(all
            .into_iter()
            .filter_map(|l| Some((lessee(l.holder)?, Addresses { v4: l.v4, v6: l.v6 })))
            .collect())
    }

    async fn orders(&mut self) -> Result<Vec<GoneOrder>, cluster::Error> {
        let orders = self.database.orders().await?;
        Ok(orders.iter().map(|order| GoneOrder { number: order.seq, lineage: order.lineage }).collect())
    }

    async fn obeyed(&mut self, orders: &[GoneOrder]) -> Result<(), cluster::Error> {
        let orders: Vec<cluster::Order> =
            orders.iter().map(|order| cluster::Order { seq: order.number, lineage: order.lineage }).collect();
        self.database.obeyed(&orders).await
    }

    async fn denials(&mut self) -> Result<Vec<Denied>, cluster::Error> {
        let denied = |cluster::Denial { whom, since }| Denied { whom, since };
        Ok(self.database.denials().await?.into_iter().map(denied).collect())
    }

    async fn deny(&mut self, denial: &Denied) -> Result<Option<String>, cluster::Error> {
        let Denied { whom, since } = denial.clone();
        match self.database.deny(&cluster::Denial { whom, since }).await {
            Ok(_new) => Ok(None),
            Err(e @ cluster::Error::Settings(_)) => Ok(Some(e.to_string())),
            Err(e) => Err(e),
        }
    }

    async fn allow(&mut self, whom: &str) -> Result<(), cluster::Error> {
        self.database.allow(whom).await.map(drop)
    }

    async fn users(&mut self) -> Result<Vec<SharedUser>, cluster::Error> {
        Ok(self.database.passwords().await?.into_iter().map(user).collect())
    }

    async fn keys(&mut self) -> Result<Vec<SharedKey>, cluster::Error> {
        let keys = self.database.ticket_keys(unix_now(), self.member.lifetime, &mut OsEntropy).await?;
        Ok(keys.iter().filter_map(shared).collect())
    }

    async fn hand_over(&mut self, parcels: &[Parcel]) -> Result<Vec<bool>, cluster::Error> {
        let mut told = vec![false; parcels.len()];
        let (at, sealed): (Vec<usize>, Vec<cluster::Parcel>) =
            parcels.iter().enumerate().filter_map(|(at, parcel)| Some((at, encoded(parcel)?))).unzip();
        let done = self.database.hand_over(unix_now(), &sealed, &mut OsEntropy).await?;
        at.into_iter().zip(done).for_each(|(at, done)| told[at] = done);
        Ok(told)
    }

    async fn handovers(&mut self) -> Result<Vec<ArrivedParcel>, cluster::Error> {
        let arrived = self.database.handovers().await?.into_iter();
        let parcel = |cluster::Arrived { seq: number, lineage, over, content }| ArrivedParcel {
            number,
            lineage,
            over,
            handover: decoded(content),
        };
        Ok(arrived.map(parcel).collect())
    }

    async fn taken(&mut self, numbers: &[i64]) -> Result<(), cluster::Error> {
        self.database.taken(numbers).await
    }

    async fn others(&mut self) -> Result<Vec<Other>, cluster::Error> {
        let other = |cluster::Other { name, address, devices, session_time: session }| Other {
            name,
            address,
            devices,
            session,
        };
        Ok(self.database.others().await?.into_iter().map(other).collect())
    }

    async fn leave(&mut self, records: &[&Record], over: &[Name]) -> Result<(), cluster::Error> {
        self.database.leave(records, over, &mut OsEntropy).await
    }

    async fn silent(&mut self) -> Result<Vec<String>, cluster::Error> {
        if self.member.takeover { self.database.silent().await } else { Ok(Vec::new()) }
    }

    async fn left_by(&mut self, gateway: Option<&str>) -> Result<Vec<Left>, cluster::Error> {
        if self.member.takeover { self.database.left_by(gateway).await } else { Ok(Vec::new()) }
    }

    async fn claim(&mut self, lineage: Name) -> Result<Option<Given>, cluster::Error> {
        let Some(cluster::Given { owners, content }) = self.database.claim(lineage).await? else {
            return Ok(None);
        };
        if content.is_none() {
            tracing::warn!("an IKE SA of another gateway is not sealed under our cluster key");
        }
        Ok(content.map(|content| Given { owners, content }))
    }

    async fn beat(&mut self) -> Result<(u64, Option<Vec<Other>>), cluster::Error> {
        let counts = &self.member.counts;
        let beat = self.database.beat(unix_now(), &counts.load(BootClock::now())).await?;
        counts.beat(&beat);
        self.say_settings().await?;
        Ok((beat.number, Some(self.others().await?)))
    }

    async fn keep_load(&mut self, history: &[u8]) -> Result<(), cluster::Error> {
        self.database.keep_load(history).await
    }

    async fn load_histories(&mut self) -> Result<Vec<Vec<u8>>, cluster::Error> {
        self.database.load_histories().await
    }

    fn two_of_a_name(&self) -> cluster::Error {
        let name = &self.member.settings.gateway;
        cluster::Error::Settings(format!(
            "another gateway joins as \"{name}\": give each a name of its own (cluster.name)"
        ))
    }
}

/// As the database has it; `None` if it cannot be said.
fn encoded(Parcel { handover, to }: &Parcel) -> Option<cluster::Parcel> {
    let longest = handover.waiting.iter().map(|waiting| waiting.left).max().unwrap_or_default();
    let lasts = handover.sleeper.as_ref().map_or(longest.min(WORTH), |sleeper| sleeper.slept.left);
    let content = handover.encode().map_err(|e| tracing::error!(%e, "a device is not handed over")).ok()?;
    if content.len() > cluster::CONTENT_MOST {
        tracing::error!(bytes = content.len(), "a device is too large to be handed over");
        return None;
    }
    let (lineage, holder) = (handover.lineage, handover.whose.holder());
    Some(cluster::Parcel { lineage, holder, to: to.clone(), lasts, content })
}

fn decoded(content: Option<Vec<u8>>) -> Option<Handover> {
    let Some(content) = content else {
        tracing::warn!("what another gateway tells of a device is not sealed under our cluster key");
        return None;
    };
    Handover::decode(&content)
        .map_err(|e| tracing::warn!(%e, "what another gateway tells of a device is of another release"))
        .ok()
}

fn user(UserEntry { key, content, version: _ }: UserEntry) -> SharedUser {
    let password = match content {
        Content::Here(hash) => SharedPassword::Hash(hash),
        Content::Removed => SharedPassword::Removed,
        Content::Unreadable => SharedPassword::Unreadable,
    };
    SharedUser { connection: key.connection, name: key.name, password }
}

fn lessee(LeaseKey { connection, identity, device }: LeaseKey) -> Option<Lessee> {
    Lessee::new(connection, identity, device)
}

fn key(Lessee { connection, identity, device, .. }: Lessee) -> LeaseKey {
    LeaseKey { connection, identity, device }
}

/// A key as the endpoint takes it.
fn shared(key: &cluster::TicketKey) -> Option<SharedKey> {
    let mut secret: [u8; 32] = key.secret.as_bytes().try_into().ok()?;
    let shared = SharedKey { id: key.id, seals_from: key.seal_from, opens_until: key.open_until, secret };
    secret.zeroize();
    Some(shared)
}
