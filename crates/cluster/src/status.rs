//! What the cluster looks like, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_sansio::UnixTime;

use crate::error::{Error, Fault};
use crate::join::Database;
use crate::link::{Cells, Link};

/// One gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayStatus {
    /// Its name.
    pub name: String,
    /// Which addresses are its to give.
    pub slot: u8,
    /// What it announces.
    pub address: String,
    /// Its release.
    pub version: String,
    /// Its last heartbeat, by the clock of the database; `None` if there was none.
    pub seen: Option<UnixTime>,
    /// Seconds that its clock was ahead of the database's then.
    pub clock: i64,
    /// Sessions that were awake.
    pub sessions: u64,
    /// Devices that slept.
    pub sleepers: u64,
    /// It gives its devices away.
    pub draining: bool,
    /// Tickets that it took in the minute before.
    pub spent: u64,
    /// From it to the database and back, as it measured them then; `None` if it has not yet.
    pub round_trip: Option<Duration>,
    /// How long a session took there then; `None` if it did not know yet.
    pub session_time: Option<Duration>,
    /// Lineages that it has.
    pub lineages: u64,
    /// Orders that it has not obeyed yet.
    pub orders: u64,
    /// What must be the same at all gateways, as it has it: names and values. None of an earlier release.
    pub settings: BTreeMap<String, String>,
}

/// One ticket key, without its secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyStatus {
    /// Its name in tickets.
    pub id: u64,
    /// Days since 1970.
    pub day: u32,
    /// When tickets may be sealed with it.
    pub seal_from: UnixTime,
    /// From when on no ticket is.
    pub seal_until: UnixTime,
    /// From when on none is opened with it.
    pub open_until: UnixTime,
}

/// A server that follows the database's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandbyStatus {
    /// What it calls itself.
    pub name: String,
    /// In PostgreSQL's word: `streaming`, `catchup`, ...
    pub state: String,
    /// Whether commits wait for it: `sync` or `quorum` if they do, `async` or `potential` if not.
    pub sync: String,
    /// Bytes of the log that it has not applied yet; of one that applies nothing, that it does not have.
    pub behind: u64,
    /// How long it takes until it has applied what was committed; `None` while there is nothing to apply.
    pub lag: Option<Duration>,
}

/// The cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Where: hosts and database.
    pub server: String,
    /// The clock of the database.
    pub now: UnixTime,
    /// Version of the tables.
    pub schema: i32,
    /// How many gateways may share the pool.
    pub slots: u8,
    /// How often the lineages were emptied, and one.
    pub incarnation: u64,
    /// The gateways, by name.
    pub gateways: Vec<GatewayStatus>,
    /// Sessions that can be resumed, and those of clients without tickets.
    pub lineages: u64,
    /// Leases.
    pub leases: u64,
    /// Denials.
    pub denials: u64,
    /// Ticket keys, the oldest first.
    pub keys: Vec<KeyStatus>,
    /// Servers that follow, by name; `None` if this role may not see them.
    pub standbys: Option<Vec<StandbyStatus>>,
    /// Users with passwords, and records of users.
    pub users: [u64; 2],
    /// What the server's settings make unsafe, in words.
    pub warnings: Vec<String>,
}

const CLUSTER: &str = "select schema::bigint, slots::bigint, incarnation, extract(epoch from clock_timestamp())::bigint,
    (select count(*) from dormouse.lineage), (select count(*) from dormouse.lease), (select count(*) from dormouse.denial),
    current_setting('fsync'), current_setting('full_page_writes'),
    (select count(*) from dormouse.user_entry where kind = 'password' and content is not null),
    (select count(*) from dormouse.user_entry where kind = 'record' and content is not null) from dormouse.cluster";
const GATEWAYS: &str = "select g.name, g.slot::bigint, g.address, g.version, g.seen, g.clock, g.sessions, g.sleepers, g.spent, g.round_trip,
    coalesce(l.n, 0), (select count(*) from dormouse.orders o where o.gateway = g.name), g.draining, g.session_time, g.settings
    from dormouse.gateway g left join (select gateway, count(*) as n from dormouse.lineage group by gateway) l on l.gateway = g.name
    order by g.name";
const KEYS: &str =
    "select id, day::bigint, seal_from, seal_until, open_until from dormouse.ticket_key order by day";
/// Other roles than a member of `pg_read_all_stats` see that there is one, and nothing of it.
const STANDBYS: &str = "select application_name, state, sync_state,
    coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(replay_lsn, flush_lsn, write_lsn, sent_lsn)), 0)::bigint,
    (extract(epoch from replay_lag) * 1000000)::bigint
    from pg_catalog.pg_stat_replication order by application_name, pid";

impl Database {
    /// What the cluster looks like.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&mut self) -> Result<Status, Error> {
        self.link.at_length("read the cluster's state", async |link| status(link).await).await
    }
}

pub(crate) async fn status(link: &mut Link) -> Result<Status, Fault> {
    let rows = link.query(GATEWAYS, &[]).await?;
    let gateways = rows.iter().map(|row| gateway(&link.cells("gateway", row))).collect::<Result<_, _>>()?;
    let rows = link.query(KEYS, &[]).await?;
    let keys = rows.iter().map(|row| key(&link.cells("ticket_key", row))).collect::<Result<_, _>>()?;
    let rows = link.query(STANDBYS, &[]).await?;
    let standbys = rows.iter().map(|row| standby(&link.cells("pg_stat_replication", row)));
    // One that may not be seen makes the list none.
    let standbys = standbys.collect::<Result<Option<Vec<_>>, _>>()?;
    let rows = link.query(CLUSTER, &[]).await?;
    let row = rows.first().ok_or_else(|| Error::NoTables { server: link.server.clone() })?;
    let cells = link.cells("cluster", row);
    let mut warnings = Vec::new();
    if cells.get::<&str>(7)? != "on" {
        warnings.push(
            "the server has fsync = off: after a crash of its machine a used ticket may count again".into(),
        );
    }
    if cells.get::<&str>(8)? != "on" {
        warnings
            .push("the server has full_page_writes = off: a crash of its machine may damage tables".into());
    }
    Ok(Status {
        server: link.server.clone(),
        now: cells.time(3, "the clock")?,
        schema: cells.number(0, "schema")?,
        slots: cells.number(1, "slots")?,
        incarnation: cells.number(2, "incarnation")?,
        gateways,
        lineages: cells.number(4, "the number of lineages")?,
        leases: cells.number(5, "the number of leases")?,
        denials: cells.number(6, "the number of denials")?,
        keys,
        standbys,
        users: [cells.number(9, "the number of users")?, cells.number(10, "the number of records")?],
        warnings,
    })
}

fn gateway(cells: &Cells<'_>) -> Result<GatewayStatus, Fault> {
    let seen = cells.time(4, "seen")?;
    Ok(GatewayStatus {
        name: cells.get(0)?,
        slot: cells.number(1, "slot")?,
        address: cells.get(2)?,
        version: cells.get(3)?,
        seen: Some(seen).filter(|seen| seen.0 > 0),
        clock: cells.get(5)?,
        sessions: cells.number(6, "sessions")?,
        sleepers: cells.number(7, "sleepers")?,
        draining: cells.get(12)?,
        spent: cells.number(8, "spent")?,
        round_trip: cells.micros(9)?,
        session_time: cells.micros(13)?,
        lineages: cells.number(10, "the number of lineages")?,
        orders: cells.number(11, "the number of orders")?,
        settings: settings(cells.get(14)?),
    })
}

/// Lines without a value are passed over.
fn settings(lines: &str) -> BTreeMap<String, String> {
    let parted = lines.lines().filter_map(|line| line.split_once('='));
    parted.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn standby(cells: &Cells<'_>) -> Result<Option<StandbyStatus>, Fault> {
    let (Some(state), Some(sync)) = (cells.get(1)?, cells.get(2)?) else { return Ok(None) };
    let behind = u64::try_from(cells.get::<i64>(3)?).unwrap_or(0);
    Ok(Some(StandbyStatus { name: cells.get(0)?, state, sync, behind, lag: cells.micros(4)? }))
}

fn key(cells: &Cells<'_>) -> Result<KeyStatus, Fault> {
    Ok(KeyStatus {
        id: u64::from_be_bytes(cells.bytes(0, "id")?),
        day: cells.number(1, "day")?,
        seal_from: cells.time(2, "seal_from")?,
        seal_until: cells.time(3, "seal_until")?,
        open_until: cells.time(4, "open_until")?,
    })
}
