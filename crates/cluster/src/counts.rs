//! How many sessions an identity has over all gateways. Owns the table `session` and the statements on it; the rule by which one has room, or is
//! too many, is `dormouse_ike::ticket::counted`'s. One holder's sessions are counted in one transaction at a time.
//!
//! Sessions of gateways that were not heard lately do not count: what these have let in meanwhile is counted when they are back
//! ([`Database::count`]), and what is too many then is marked, and ended by its gateway.

use std::collections::BTreeSet;
use std::net::IpAddr;

use dormouse_ike::ticket::counted::{Counted, excess};
use dormouse_ike::ticket::lineage::{Name, Outcome, TicketHolder};
use dormouse_sansio::UnixTime;
use tokio_postgres::{Row, Statement, Transaction};

use crate::error::{Error, Fault};
use crate::join::Database;
use crate::link::{Link, seconds};

/// One holder's rows come and go in one transaction at a time, where what is not there yet matters. In the order of the keys.
pub(crate) const HOLD: &str = "select pg_advisory_xact_lock(k) from unnest($1::bigint[]) k";
/// Those of these holders that count.
const THERE: &str = "select s.lineage, s.holder, host(s.came), s.began from dormouse.session s
    join dormouse.gateway g on g.name = s.gateway
    where s.holder = any($2) and not s.surplus
        and (s.gateway = $1 or g.seen >= extract(epoch from clock_timestamp())::bigint - 30)";
const MOVE: &str = "update dormouse.session set gateway = $1, came = $3 where lineage = $2";
const ENTER: &str =
    "insert into dormouse.session (lineage, holder, gateway, came, began) values ($2, $3, $1, $4, $5)";
const LEAVE: &str = "delete from dormouse.session where gateway = $1 and lineage = any($2)";
const ALL_ELSE: &str = "delete from dormouse.session where gateway = $1 and lineage <> all ($2)";
/// What has moved to another gateway meanwhile is there; not if the database has gone back, and knows nothing of it.
const ALL: &str = "insert into dormouse.session (lineage, holder, gateway, came, began)
    select a.lineage, a.holder, $1, a.came, a.began
    from unnest($2::bytea[], $3::bytea[], $4::inet[], $5::bigint[]) as a (lineage, holder, came, began)
    order by a.lineage on conflict (lineage) do update
    set came = excluded.came, gateway = $1 where session.gateway = $1
        or not exists (select from dormouse.lineage l where l.id = session.lineage and l.gateway <> $1)";
const MARK: &str = "with marked as (
        update dormouse.session set surplus = true where lineage = any($2) returning gateway
    ) select count(pg_notify('dormouse_orders_' || t.gateway, $1))
    from (select distinct gateway from marked where gateway <> $1) t";
const TOO_MANY: &str = "select lineage from dormouse.session where gateway = $1 and surplus order by lineage";

impl Database {
    /// These are all sessions of this gateway that are counted. Those of them that are too many; other gateways are told of theirs.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn count(&mut self, sessions: &[Counted]) -> Result<Vec<Name>, Error> {
        self.link.at_length("count sessions", async |link| count(link, sessions).await).await
    }

    /// Those of this gateway that are too many, as a gateway has found that has counted.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn too_many(&mut self) -> Result<Vec<Name>, Error> {
        let work = async |link: &mut Link| {
            let rows = link.query(TOO_MANY, &[&link.gateway.clone()]).await?;
            rows.iter().map(|row| Ok(Name(link.cells("session", row).bytes(0, "lineage")?))).collect()
        };
        self.link.within("read sessions that are too many", work).await
    }
}

/// The statements of a batch, prepared.
pub(crate) struct Counts {
    there: Statement,
    shift: Statement,
    enter: Statement,
    leave: Statement,
}

impl Counts {
    pub(crate) async fn new(link: &mut Link) -> Result<Self, Fault> {
        Ok(Self {
            there: link.prepare(THERE).await?,
            shift: link.prepare(MOVE).await?,
            enter: link.prepare(ENTER).await?,
            leave: link.prepare(LEAVE).await?,
        })
    }
}

/// A session of this gateway is counted, if it was or there is room for it.
pub(crate) async fn enter(
    tx: &Transaction<'_>,
    counts: &Counts,
    gateway: &str,
    session: &Counted,
) -> Result<Outcome, Fault> {
    let (lineage, holder) = (&session.lineage.0[..], &session.holder.0[..]);
    if tx.execute(&counts.shift, &[&gateway, &lineage, &session.from]).await? > 0 {
        return Ok(Outcome::Done);
    }
    let others = there(tx, &counts.there, gateway, &[holder]).await?;
    if !session.has_room(&others) {
        return Ok(Outcome::Full);
    }
    // The clocks of gateways differ.
    let last = others.iter().map(|other| seconds(other.began).saturating_add(1)).max().unwrap_or(0);
    let began = last.max(seconds(session.began));
    tx.execute(&counts.enter, &[&gateway, &lineage, &holder, &session.from, &began]).await?;
    Ok(Outcome::Done)
}

pub(crate) async fn leave(
    tx: &Transaction<'_>,
    counts: &Counts,
    gateway: &str,
    gone: &[Name],
) -> Result<(), Fault> {
    let gone: Vec<&[u8]> = gone.iter().map(|lineage| &lineage.0[..]).collect();
    tx.execute(&counts.leave, &[&gateway, &gone]).await?;
    Ok(())
}

/// The keys of what is held while one holder's rows come and go, in their order.
pub(crate) fn keys(holders: impl IntoIterator<Item = TicketHolder>) -> Vec<i64> {
    let key = |TicketHolder([a, b, c, d, e, f, g, h, ..]): TicketHolder| {
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    };
    let all: BTreeSet<i64> = holders.into_iter().map(key).collect();
    all.into_iter().collect()
}

async fn there(
    tx: &Transaction<'_>,
    statement: &Statement,
    gateway: &str,
    holders: &[&[u8]],
) -> Result<Vec<Counted>, Fault> {
    let rows = tx.query(statement, &[&gateway, &holders]).await?;
    Ok(rows.iter().filter_map(counted).collect())
}

/// A row as the rule takes it: what is its gateway's alone says nothing.
fn counted(row: &Row) -> Option<Counted> {
    let bytes = |at: usize| row.try_get::<_, &[u8]>(at).ok();
    let from: Option<&str> = row.try_get(2).ok()?;
    Some(Counted {
        lineage: Name(bytes(0)?.try_into().ok()?),
        holder: TicketHolder(bytes(1)?.try_into().ok()?),
        from: from.and_then(|from| from.parse::<IpAddr>().ok()),
        most: u32::MAX,
        login: true,
        former: None,
        began: UnixTime(u64::try_from(row.try_get::<_, i64>(3).ok()?).ok()?),
    })
}

async fn count(link: &mut Link, sessions: &[Counted]) -> Result<Vec<Name>, Fault> {
    let (hold, all_else, all) =
        (link.prepare(HOLD).await?, link.prepare(ALL_ELSE).await?, link.prepare(ALL).await?);
    let (by_holder, mark, too_many) =
        (link.prepare(THERE).await?, link.prepare(MARK).await?, link.prepare(TOO_MANY).await?);
    let gateway = link.gateway.clone();
    let lineages: Vec<&[u8]> = sessions.iter().map(|one| &one.lineage.0[..]).collect();
    let holders: Vec<&[u8]> = sessions.iter().map(|one| &one.holder.0[..]).collect();
    let from: Vec<Option<IpAddr>> = sessions.iter().map(|one| one.from).collect();
    let began: Vec<i64> = sessions.iter().map(|one| seconds(one.began)).collect();
    let tx = link.client.transaction().await?;
    tx.query(&hold, &[&keys(sessions.iter().map(|one| one.holder))]).await?;
    tx.execute(&all_else, &[&gateway, &lineages]).await?;
    tx.execute(&all, &[&gateway, &lineages, &holders, &from, &began]).await?;
    let found = there(&tx, &by_holder, &gateway, &holders).await?;
    let over = excess(sessions, &found);
    let over: Vec<&[u8]> = over.iter().map(|lineage| &lineage.0[..]).collect();
    if !over.is_empty() {
        tx.query(&mark, &[&gateway, &over]).await?;
    }
    let rows = tx.query(&too_many, &[&gateway]).await?;
    tx.commit().await?;
    rows.iter().map(|row| Ok(Name(link.cells("session", row).bytes(0, "lineage")?))).collect()
}
