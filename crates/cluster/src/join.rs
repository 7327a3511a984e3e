//! A gateway's place in the cluster: its connection, its slot, its heartbeats, and whether the database is the one that it was. Owns the
//! rows of `gateway` and `cluster`.
//!
//! A database that was restored, or a standby that was promoted, may have forgotten what was committed: a ticket that was used would count
//! again. So all lineages are removed when the server's identity or timeline is another than the recorded one, or when this gateway
//! remembers a later heartbeat than its row has. Tickets then cost a full exchange once. A heartbeat's number has in its upper bits how
//! often that was done, so that the other gateways, who remember later heartbeats too, do not do it again.

use std::time::Duration;

use dormouse_crypto::Secret;
use dormouse_sansio::UnixTime;
use tokio::time::Instant;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use crate::error::{Error, Fault};
use crate::link::{Link, seconds};
use crate::news::{DENIALS, KEYS, LEASES, Notice, ORDERS, USERS};
use crate::server::{Server, check_name, role};

/// Heartbeats of one incarnation: bits of their number.
const BEATS: u32 = 40;
/// Highest incarnation: beyond, what a gateway remembers is damaged.
const INCARNATION_MOST: i64 = 1 << 20;

/// Which database, and who we are there.
#[derive(Clone)]
pub struct Settings {
    /// `postgresql://USER@HOST/DATABASE`, several hosts separated by commas; `host` may be a directory with a Unix socket.
    pub url: String,
    /// The role's password, if the URL has none.
    pub password: Option<Secret>,
    /// Authorities of the server's certificate, in PEM; empty if there are none.
    pub authorities: Vec<u8>,
    /// This gateway's name: 1 to 32 of a-z, 0-9 and `-`.
    pub gateway: String,
    /// The addresses or names at which devices reach it, parted by commas.
    pub address: String,
    /// The 32 bytes that ticket keys are wrapped with, the same at all gateways.
    pub key: Secret,
}

impl core::fmt::Debug for Settings {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Settings").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

/// What a gateway learns when it joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Which addresses are its to give: those whose number is this one modulo `slots`.
    pub slot: u8,
    /// How many gateways share the pool.
    pub slots: u8,
    /// The lineages were removed just now: the database is, or may be, an earlier state of itself.
    pub emptied: bool,
    /// How often the lineages were removed, and one.
    pub incarnation: u64,
    /// Its own heartbeat now. The highest one ([`Database::beat`] too) is kept on the gateway's disk, for the next `join`.
    pub beats: u64,
    /// Seconds that the database's clock is ahead of 1970.
    pub database_time: UnixTime,
}

/// What a gateway has to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Sessions that are awake.
    pub sessions: u64,
    /// Devices that sleep.
    pub sleepers: u64,
    /// It gives its devices away: no other gateway gives it any.
    pub draining: bool,
    /// Tickets that were accepted in the last minute.
    pub spent: u64,
    /// How long a session takes, if that is known.
    pub session_time: Option<Duration>,
}

/// What a gateway learns by its heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// Its number, to be kept for the next [`Database::join`].
    pub number: u64,
    /// To the database and back, without anything to do there.
    pub round_trip: Duration,
    /// Gateways that were heard within the last 30 seconds, this one among them.
    pub heard: u64,
    /// Gateways that have joined.
    pub gateways: u64,
}

/// A gateway's connection to what it shares with others.
pub struct Database {
    pub(crate) link: Link,
    pub(crate) key: Secret,
}

impl core::fmt::Debug for Database {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Database")
            .field("server", &self.link.server)
            .field("gateway", &self.link.gateway)
            .finish_non_exhaustive()
    }
}

const CLUSTER: &str = "select schema, slots, incarnation, system_identifier, timeline from dormouse.cluster";
const LOCK_CLUSTER: &str = "select from dormouse.cluster for update";
/// The timeline that is written now; that of the last checkpoint is an older one for a while after a promotion.
const IDENTITY: &str =
    "select system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint,
    extract(epoch from clock_timestamp())::bigint from pg_control_system()";
const OWN_ROW: &str = "select slot, beats from dormouse.gateway where name = $1";
const FREE_SLOT: &str = "select min(n)::smallint from generate_series(0, $1::integer - 1) n
    where not exists (select from dormouse.gateway where slot = n)";
const NEW_ROW: &str = "insert into dormouse.gateway (name, slot, address, version, beats, seen)
    values ($1, $2, $3, $4, $5, extract(epoch from clock_timestamp())::bigint)";
const RENEW_ROW: &str =
    "update dormouse.gateway set address = $2, version = $3, beats = $4, draining = false,
    seen = extract(epoch from clock_timestamp())::bigint where name = $1";
const RECORD: &str = "update dormouse.cluster set system_identifier = $1, timeline = $2, incarnation = $3";
const SETTINGS: &str = "update dormouse.gateway set settings = $2 where name = $1 and settings <> $2";
const NEW_COUNT: &str = "update dormouse.gateway set beats = $1";
const BEAT: &str = "update dormouse.gateway set beats = beats + 1, sessions = $2, sleepers = $3, spent = $5, round_trip = $6, draining = $7,
    session_time = $8,
    seen = extract(epoch from clock_timestamp())::bigint, clock = $4 - extract(epoch from clock_timestamp())::bigint
    where name = $1 returning beats, (select schema from dormouse.cluster),
    (select count(*) from dormouse.gateway o where o.name = $1 or o.seen >= extract(epoch from clock_timestamp())::bigint - 30),
    (select count(*) from dormouse.gateway)";

impl Database {
    /// Connects and takes the gateway's place. `beats`: the highest own heartbeat that this gateway remembers, 0 if it has none. Read
    /// orders, denials, leases and keys afterwards, in this order, before anything that was queued is written.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::needs_somebody`] says whether to try again.
    pub async fn join(settings: &Settings, beats: u64) -> Result<(Self, Joined), Error> {
        check_name(&settings.gateway)?;
        if settings.key.len() != 32 {
            return Err(Error::Settings(format!("the cluster key has {} bytes, not 32", settings.key.len())));
        }
        if settings.address.len() > 256 || settings.address.contains('\0') {
            return Err(Error::Settings("the address that the gateway announces is too long".into()));
        }
        let server = Server::new(
            &settings.url,
            settings.password.as_ref(),
            &settings.authorities,
            &role(&settings.gateway),
        )?;
        let mut link = Link::connect(&server, &settings.gateway).await?;
        let joined =
            link.at_length("join the cluster", async |link| join(link, settings, beats).await).await?;
        Ok((Self { link, key: settings.key.clone() }, joined))
    }

    /// Says that this gateway is alive, and what it has to do; `now` is its clock.
    ///
    /// # Errors
    /// [`Error::Forgotten`] if the gateway was removed, [`Error::Version`] if the tables are another release's now; else see [`Error`].
    pub async fn beat(&mut self, now: UnixTime, load: &Load) -> Result<Beat, Error> {
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let (sessions, sleepers, now) = (count(load.sessions), count(load.sleepers), seconds(now));
        let spent = count(load.spent);
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let session_time = load.session_time.map(micros);
        let work = async |link: &mut Link| {
            let gateway = link.gateway.clone();
            let begun = Instant::now();
            link.client.batch_execute("").await?;
            let round_trip = begun.elapsed();
            let trip = micros(round_trip);
            let said: [&(dyn ToSql + Sync); 8] =
                [&gateway, &sessions, &sleepers, &now, &spent, &trip, &load.draining, &session_time];
            let rows = link.query(BEAT, &said).await?;
            let Some(row) = rows.first() else {
                return Err(Error::Forgotten { server: link.server.clone(), gateway }.into());
            };
            let cells = link.cells("gateway", row);
            // The tables may have been brought up to a later release meanwhile.
            link.is_version(cells.get(1)?)?;
            let (number, heard) = (cells.number(0, "beats")?, cells.number(2, "the number of those heard")?);
            Ok(Beat { number, round_trip, heard, gateways: cells.number(3, "the number of gateways")? })
        };
        self.link.within("write a heartbeat", work).await
    }

    /// Says how this gateway has what must be the same at all gateways: lines `NAME=VALUE`, 64 KiB at most.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn say_settings(&mut self, lines: &str) -> Result<(), Error> {
        let work = async |link: &mut Link| {
            link.query(SETTINGS, &[&link.gateway.clone(), &lines]).await?;
            Ok(())
        };
        self.link.within("write this gateway's settings", work).await
    }

    /// Waits for the next thing that another gateway does. May be dropped while it waits: nothing is lost. What was done before
    /// [`Database::join`] is not told.
    ///
    /// # Errors
    /// [`Error::Lost`] when the connection is gone.
    pub async fn notice(&mut self) -> Result<Notice, Error> {
        let inbox = &self.link.inbox;
        loop {
            if let Some(notice) = inbox.take() {
                return Ok(notice);
            }
            if let Some(why) = inbox.gone() {
                return Err(Error::Lost { server: self.link.server.clone(), why });
            }
            inbox.bell.notified().await;
        }
    }
}

/// The row of `cluster`.
struct Cluster {
    slots: u8,
    incarnation: i64,
    recorded: (i64, i64),
}

async fn join(link: &mut Link, settings: &Settings, remembered: u64) -> Result<Joined, Fault> {
    link.check_version().await?;
    let listen = format!(
        "listen \"{ORDERS}{}\"; listen {LEASES}; listen {DENIALS}; listen {USERS}; listen {KEYS}",
        settings.gateway
    );
    link.client.batch_execute(&listen).await?;
    let server = link.server.clone();
    let damaged = || {
        Error::Settings(format!(
            "{server}: the heartbeat that this gateway remembers is damaged: {remembered}"
        ))
    };
    let remembered = i64::try_from(remembered).map_err(|_| damaged())?;
    if remembered >> BEATS > INCARNATION_MOST {
        return Err(damaged().into());
    }
    let tx = link.client.transaction().await?;
    // One gateway at a time: each takes the lowest free slot, and only one empties the lineages.
    tx.query_one(LOCK_CLUSTER, &[]).await?;
    let Cluster { slots, incarnation, recorded } = read_cluster(&server, &tx).await?;
    let identity = tx.query_one(IDENTITY, &[]).await?;
    let found: (i64, i64) = (identity.try_get(0)?, identity.try_get(1)?);
    let mut own: Option<(i16, i64)> = None;
    if let Some(row) = tx.query_opt(OWN_ROW, &[&settings.gateway]).await? {
        own = Some((row.try_get(0)?, row.try_get(1)?));
    }
    // No row may mean that it was forgotten, or a backup from before it joined first.
    let went_back = remembered > own.map_or(0, |(_, beats)| beats);
    let emptied = found != recorded || went_back;
    let mut first = incarnation << BEATS;
    if emptied {
        let next = incarnation.max(remembered >> BEATS) + 1;
        first = next << BEATS;
        tx.execute("delete from dormouse.lineage", &[]).await?;
        // An owner that was not counted may have used the IVs of the next one.
        tx.execute("delete from dormouse.ike_sa", &[]).await?;
        tx.execute(RECORD, &[&found.0, &found.1, &next]).await?;
        tx.execute(NEW_COUNT, &[&first]).await?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let (slot, beats) = match own {
        Some((slot, beats)) => {
            // Counted at once: what is confirmed before the first heartbeat is remembered too.
            let beats = if emptied { first + 1 } else { beats + 1 };
            tx.execute(RENEW_ROW, &[&settings.gateway, &settings.address, &version, &beats]).await?;
            (slot, beats)
        }
        None => {
            let slot: Option<i16> = tx.query_one(FREE_SLOT, &[&i32::from(slots)]).await?.try_get(0)?;
            let slot = slot.ok_or_else(|| Error::Full { server: server.clone(), slots })?;
            let beats = first + 1;
            tx.execute(NEW_ROW, &[&settings.gateway, &slot, &settings.address, &version, &beats]).await?;
            (slot, beats)
        }
    };
    tx.commit().await?;
    let wrong = |what: String| Error::Content { server: server.clone(), table: "gateway", what };
    let slot = u8::try_from(slot).ok().filter(|slot| *slot < slots);
    let slot = slot.ok_or_else(|| wrong(format!("the slot of {} is none of {slots}", settings.gateway)))?;
    let beats = u64::try_from(beats).map_err(|_| wrong(format!("beats is {beats}")))?;
    let database_time = UnixTime(u64::try_from(identity.try_get::<_, i64>(2)?).unwrap_or(0));
    Ok(Joined { slot, slots, emptied, incarnation: beats >> BEATS, beats, database_time })
}

async fn read_cluster(server: &str, tx: &Transaction<'_>) -> Result<Cluster, Fault> {
    let row = tx.query_one(CLUSTER, &[]).await?;
    let wrong = |what: &str| Error::Content { server: server.into(), table: "cluster", what: what.into() };
    let slots =
        u8::try_from(row.try_get::<_, i16>(1)?).map_err(|_| wrong("slots is not a number up to 64"))?;
    let incarnation: i64 = row.try_get(2)?;
    if !(1..INCARNATION_MOST).contains(&incarnation) {
        return Err(wrong("incarnation is out of range").into());
    }
    Ok(Cluster { slots, incarnation, recorded: (row.try_get(3)?, row.try_get(4)?) })
}
