//! Which tickets count, for all gateways. Owns the table `lineage` and the statements on it, each a rule of
//! `dormouse_ike::ticket::lineage`; and that an order is written, and its gateway's bell rung, in the same transaction for each row that
//! is moved from another gateway, or removed because its session is over, while another has it. Rows that have expired, that are more than
//! a holder may have, or that go with all others are removed without: no ticket of theirs counts, and their sessions go on.
//!
//! A batch is one transaction. Operations of one kind that stand in a row, each on a lineage of its own, are one statement. Rows are locked
//! in the order of their names, so that two gateways cannot wait for each other; should they, one of them is told so and tries again.

use std::collections::BTreeSet;

use dormouse_ike::limits::{ENDED_KEPT, LINEAGES_PER_HOLDER};
use dormouse_ike::ticket::counted::Counted;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, Row, TicketHolder};
use dormouse_sansio::UnixTime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement, Transaction};

use crate::counts::{self, Counts, HOLD, keys};
use crate::error::{Error, Fault};
use crate::join::Database;
use crate::link::{Link, seconds};

/// Appended to statements that give rows `from_other (id, gateway)`: orders, and the bells of those that they are for. `$1` is this gateway.
macro_rules! with_orders {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            ", told as (
                insert into dormouse.orders (gateway, lineage)
                select f.gateway, f.id from from_other f
                where f.gateway <> $1 and exists (select from dormouse.gateway g where g.name = f.gateway)
                returning gateway
            ), rung as materialized (
                select pg_notify('dormouse_orders_' || t.gateway, $1) from (select distinct gateway from told) t
            ) ",
            $after
        )
    };
}

/// All rows that a batch touches, in their order: what comes after waits for nobody.
const LOCK: &str = "select from dormouse.lineage where id in (
        select unnest($1::bytea[]) union select id from dormouse.lineage where holder = any($2::bytea[])
    ) order by id for update";

const MOVE: &str = with_orders!(
    "with asked as (
        select * from unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bigint[], $7::boolean[])
            with ordinality as a (id, own, before, next, ends, claims, n)
    ), locked as materialized (
        select a.*, l.gateway as former from asked a join dormouse.lineage l on l.id = a.id
        where l.tip in (a.own, a.before) order by l.id for update of l
    ), moved as (
        update dormouse.lineage l
        set tip = k.next, ends = greatest(l.ends, k.ends), gateway = case when k.claims then $1 else l.gateway end
        from locked k where l.id = k.id and l.tip in (k.own, k.before)
        returning k.n, k.id, k.former, k.claims
    ), counted as (
        update dormouse.session s set gateway = $1 from moved m where m.claims and s.lineage = m.id and s.gateway <> $1
    ), from_other as (select id, former as gateway from moved where claims)",
    "select n, (select count(rung.*) from rung) from moved"
);

/// Rows that another locks just now are left for later; what counts by the database's clock too, in case that this gateway's is ahead.
const EXPIRE: &str = "delete from dormouse.lineage where id in (
        select id from dormouse.lineage where ends <= $1 and ends <= extract(epoch from clock_timestamp())::bigint + 3600
        order by id limit 4096 for update skip locked)";
/// Not one that was there, and that another gateway has ended before this one heard that it was.
/// Nor one that had ended before; of that this gateway hears at once, as if another had told it.
const INSERT: &str = "with asked as (
        select * from unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[]) as a (id, holder, tip, ends)
        where not exists (select from dormouse.orders o where o.gateway = $1 and o.lineage = a.id)
    ), late as materialized (
        select a.id from asked a join dormouse.ended e on e.holder = a.holder and e.lineage = a.id
    ), told as (
        insert into dormouse.orders (gateway, lineage) select $1, id from late
    ), rung as materialized (
        select pg_notify('dormouse_orders_' || $1, '') from (select from late limit 1) one
    )
    insert into dormouse.lineage (id, holder, tip, gateway, ends)
    select a.id, a.holder, a.tip, $1, a.ends from asked a
    where a.id not in (select id from late) and (select count(*) from rung) >= 0
    order by a.id on conflict (id) do nothing";
/// What is not there yet, or any more, and has ended all the same. If its session is one that is counted, its gateway ends it.
const REMEMBER: &str = "with late as materialized (
        select distinct a.holder, a.id from unnest($2::bytea[], $3::bytea[]) as a (id, holder)
        where not exists (select from dormouse.lineage l where l.id = a.id)
    ), marked as (
        update dormouse.session s set surplus = true from late a
        where s.lineage = a.id and s.holder = a.holder and s.gateway <> $1 returning s.gateway
    ), rung as materialized (
        select pg_notify('dormouse_orders_' || t.gateway, $1) from (select distinct gateway from marked) t
    )
    insert into dormouse.ended (holder, lineage, until) select a.holder, a.id, $4::bigint from late a
    where (select count(*) from rung) >= 0 on conflict do nothing";
/// Of each holder those stay that are remembered longest.
const FORGET: &str = "with ranked as (
        select e.holder, e.lineage, row_number() over (partition by e.holder order by e.until desc, e.lineage desc) as n
        from dormouse.ended e where e.holder = any($1)
    )
    delete from dormouse.ended e using ranked r where e.holder = r.holder and e.lineage = r.lineage
        and (r.n > $2 or e.until <= $3)";
/// Of each holder the new row stays, and of the others those that end last.
const SURPLUS: &str = "with ranked as (
        select l.id, row_number() over (partition by l.holder order by l.id = any($1) desc, l.ends desc, l.id desc) as n
        from dormouse.lineage l where l.holder = any($2)
    )
    delete from dormouse.lineage l using ranked r where l.id = r.id and r.n > $3";
const CROWDED: &str =
    "select from dormouse.lineage where holder = any($1) group by holder having count(*) > $2";

const END: &str = with_orders!(
    "with from_other as (
        delete from dormouse.lineage l using unnest($2::bytea[], $3::bytea[], $4::boolean[]) as a (id, holder, anywhere)
        where l.id = a.id and l.holder = a.holder and (a.anywhere or l.gateway = $1) returning l.id, l.gateway
    )",
    "select count(rung.*) from rung"
);
const END_ALL: &str = with_orders!(
    "with from_other as (delete from dormouse.lineage l where l.holder = any($2) returning l.id, l.gateway)",
    "select count(rung.*) from rung"
);
const END_EVERY: &str = "delete from dormouse.lineage";
const OVERTAKEN: &str =
    "select a.id from unnest($2::bytea[], $3::bytea[], $4::bigint[]) as a (id, holder, ends)
    where exists (select from dormouse.lineage l
        where l.holder = a.holder and l.gateway <> $1 and l.ends > a.ends and l.id <> all ($5::bytea[]))
    or exists (select from dormouse.ended e where e.holder = a.holder and e.lineage = a.id)";

impl Database {
    /// Carries out operations in their order, in one transaction; `now` decides which rows may go. One outcome for each,
    /// [`Outcome::Done`], [`Outcome::Superseded`] or [`Outcome::Full`], durable.
    ///
    /// # Errors
    /// See [`Error`]. None of them was carried out then; with [`Error::Lost`] and [`Error::Hangs`] all may have been.
    pub async fn run(&mut self, now: UnixTime, operations: &[Operation]) -> Result<Vec<Outcome>, Error> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let runs = runs(now, operations);
        let work = async |link: &mut Link| run(link, seconds(now), &runs).await;
        match runs.iter().any(|run| matches!(run, Run::EndEvery)) {
            true => self.link.at_length("end all sessions", work).await,
            false => self.link.within("write lineages", work).await,
        }
    }
}

impl Database {
    /// Of sessions that began here while the database could not be reached, each instead of all others of its holder: which are over,
    /// because their holder has come to another gateway since, or has named them there as its former ones. `ends` says which session is the later one: it is counted from when its last
    /// ticket was given. `former`: lineages that these sessions took the place of, by the word of who has them.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn overtaken(&mut self, began: &[Row], former: &[Name]) -> Result<Vec<Name>, Error> {
        let ids: Vec<&[u8]> = began.iter().map(|row| &row.id.0[..]).collect();
        let holders: Vec<&[u8]> = began.iter().map(|row| &row.holder.0[..]).collect();
        let ends: Vec<i64> = began.iter().map(|row| seconds(row.ends)).collect();
        let former: Vec<&[u8]> = former.iter().map(|name| &name.0[..]).collect();
        let work = async |link: &mut Link| {
            let rows =
                link.query(OVERTAKEN, &[&link.gateway.clone(), &ids, &holders, &ends, &former]).await?;
            rows.iter().map(|row| Ok(Name(link.cells("lineage", row).bytes(0, "id")?))).collect()
        };
        self.link.within("compare sessions", work).await
    }
}

/// Operations that are one statement.
#[derive(Debug)]
enum Run {
    Move(Vec<Shift>),
    Insert(Vec<Row>),
    End(Vec<End>),
    EndAll(Vec<TicketHolder>),
    EndEvery,
    Enter(Counted),
    Leave(Vec<Name>),
}

/// A row that goes.
#[derive(Clone, Copy, Debug)]
struct End {
    lineage: Name,
    holder: TicketHolder,
    /// Also if another gateway has its last session.
    anywhere: bool,
}

/// A tip that moves.
#[derive(Clone, Copy, Debug)]
struct Shift {
    lineage: Name,
    from: [Name; 2],
    to: Name,
    ends: UnixTime,
    /// A confirmation: the lineage is this gateway's from now on, and somebody waits for the outcome.
    claims: bool,
}

/// Puts together what may be done at once.
fn runs(now: UnixTime, operations: &[Operation]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    // Lineages and holders of the last run, each of which may be there once.
    let (mut lineages, mut holders) = (BTreeSet::new(), BTreeSet::new());
    for operation in operations {
        let last = runs.last_mut();
        let new = match (*operation, last) {
            (Operation::Confirm { .. } | Operation::Advance { .. }, last) => {
                let Some(shift) = shift(operation) else { continue };
                match last {
                    Some(Run::Move(shifts)) if lineages.insert(shift.lineage) => {
                        shifts.push(shift);
                        continue;
                    }
                    _ => Run::Move(vec![shift]),
                }
            }
            // The next insertion removes what has expired, a row of this batch too.
            (Operation::Insert(row), Some(Run::Insert(rows)))
                if rows.last().is_none_or(|last| last.ends > now)
                    && !lineages.contains(&row.id)
                    && holders.insert(row.holder) =>
            {
                lineages.insert(row.id);
                rows.push(row);
                continue;
            }
            (Operation::Insert(row), _) => Run::Insert(vec![row]),
            (Operation::End { .. } | Operation::EndFormer { .. }, last) => {
                let Some(end) = end(operation) else { continue };
                match last {
                    // Whether a lineage is there when it ends matters.
                    Some(Run::End(ends)) if lineages.insert(end.lineage) => {
                        ends.push(end);
                        continue;
                    }
                    _ => Run::End(vec![end]),
                }
            }
            (Operation::EndAll { holder }, Some(Run::EndAll(all))) => {
                all.push(holder);
                continue;
            }
            (Operation::EndAll { holder }, _) => Run::EndAll(vec![holder]),
            (Operation::EndEvery, _) => Run::EndEvery,
            (Operation::Enter { session, .. }, _) => Run::Enter(session),
            (Operation::Leave { lineage }, Some(Run::Leave(gone))) => {
                gone.push(lineage);
                continue;
            }
            (Operation::Leave { lineage }, _) => Run::Leave(vec![lineage]),
        };
        lineages.clear();
        holders.clear();
        match &new {
            Run::Move(shifts) => lineages.extend(shifts.iter().map(|shift| shift.lineage)),
            Run::Insert(rows) => {
                lineages.extend(rows.iter().map(|row| row.id));
                holders.extend(rows.iter().map(|row| row.holder));
            }
            Run::End(ends) => lineages.extend(ends.iter().map(|end| end.lineage)),
            Run::EndAll(_) | Run::EndEvery | Run::Enter(_) | Run::Leave(_) => {}
        }
        runs.push(new);
    }
    runs
}

fn shift(operation: &Operation) -> Option<Shift> {
    match *operation {
        Operation::Confirm { lineage, own, before, next, ends, .. } => {
            Some(Shift { lineage, from: [own, before], to: next, ends, claims: true })
        }
        Operation::Advance { lineage, from, to, ends } => {
            Some(Shift { lineage, from: [from; 2], to, ends, claims: false })
        }
        _ => None,
    }
}

fn end(operation: &Operation) -> Option<End> {
    match *operation {
        Operation::End { lineage, holder, .. } => Some(End { lineage, holder, anywhere: false }),
        Operation::EndFormer { lineage, holder } => Some(End { lineage, holder, anywhere: true }),
        _ => None,
    }
}

/// The statements, prepared.
struct Statements {
    hold: Statement,
    lock: Statement,
    remember: Statement,
    forget: Statement,
    counts: Counts,
    shift: Statement,
    expire: Statement,
    insert: Statement,
    crowded: Statement,
    surplus: Statement,
    end: Statement,
    end_all: Statement,
    end_every: Statement,
}

impl Statements {
    async fn new(link: &mut Link) -> Result<Self, Fault> {
        Ok(Self {
            hold: link.prepare(HOLD).await?,
            lock: link.prepare(LOCK).await?,
            remember: link.prepare(REMEMBER).await?,
            forget: link.prepare(FORGET).await?,
            counts: Counts::new(link).await?,
            shift: link.prepare(MOVE).await?,
            expire: link.prepare(EXPIRE).await?,
            insert: link.prepare(INSERT).await?,
            crowded: link.prepare(CROWDED).await?,
            surplus: link.prepare(SURPLUS).await?,
            end: link.prepare(END).await?,
            end_all: link.prepare(END_ALL).await?,
            end_every: link.prepare(END_EVERY).await?,
        })
    }
}

async fn run(link: &mut Link, now: i64, runs: &[Run]) -> Result<Vec<Outcome>, Fault> {
    let statements = Statements::new(link).await?;
    let gateway = link.gateway.clone();
    // A lone statement is a transaction: one round trip instead of three.
    if let [Run::Move(shifts)] = runs {
        return shift_all(&link.client, &statements, &gateway, shifts).await;
    }
    let tx = link.client.transaction().await?;
    lock(&tx, &statements, runs).await?;
    let mut outcomes = Vec::new();
    for run in runs {
        outcomes.extend(run_one(&tx, &statements, &gateway, now, run).await?);
    }
    tx.commit().await?;
    Ok(outcomes)
}

async fn lock(tx: &Transaction<'_>, statements: &Statements, runs: &[Run]) -> Result<(), Fault> {
    let (mut ids, mut holders): (Vec<&[u8]>, Vec<&[u8]>) = Default::default();
    let held = keys(runs.iter().flat_map(held));
    for run in runs {
        match run {
            Run::Move(shifts) => ids.extend(shifts.iter().map(|shift| &shift.lineage.0[..])),
            Run::Insert(rows) => holders.extend(rows.iter().map(|row| &row.holder.0[..])),
            Run::End(ends) => ids.extend(ends.iter().map(|end| &end.lineage.0[..])),
            Run::EndAll(all) => holders.extend(all.iter().map(|holder| &holder.0[..])),
            Run::Enter(session) => ids.push(&session.lineage.0[..]),
            Run::Leave(gone) => ids.extend(gone.iter().map(|lineage| &lineage.0[..])),
            Run::EndEvery => {}
        }
    }
    let (first, then): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 2]) = ([&held], [&ids, &holders]);
    // Both are on their way at once, and carried out in this order.
    let (held, locked) = tokio::join!(tx.query(&statements.hold, &first), tx.query(&statements.lock, &then));
    held.and(locked)?;
    Ok(())
}

/// Holders for which what is not there yet matters.
fn held(run: &Run) -> Vec<TicketHolder> {
    match run {
        Run::Insert(rows) => rows.iter().map(|row| row.holder).collect(),
        Run::End(ends) => ends.iter().filter(|end| end.anywhere).map(|end| end.holder).collect(),
        Run::Enter(session) => vec![session.holder],
        Run::Move(_) | Run::EndAll(_) | Run::EndEvery | Run::Leave(_) => Vec::new(),
    }
}

async fn run_one(
    tx: &Transaction<'_>,
    statements: &Statements,
    gateway: &str,
    now: i64,
    run: &Run,
) -> Result<Vec<Outcome>, Fault> {
    let done = match run {
        Run::Move(shifts) => return shift_all(tx.client(), statements, gateway, shifts).await,
        Run::Insert(rows) => {
            tx.execute(&statements.expire, &[&now]).await?;
            insert(tx, statements, gateway, rows).await?;
            rows.len()
        }
        Run::End(ends) => {
            let ids: Vec<&[u8]> = ends.iter().map(|end| &end.lineage.0[..]).collect();
            let holders: Vec<&[u8]> = ends.iter().map(|end| &end.holder.0[..]).collect();
            let anywhere: Vec<bool> = ends.iter().map(|end| end.anywhere).collect();
            remember(tx, statements, gateway, now, ends).await?;
            tx.query(&statements.end, &[&gateway, &ids, &holders, &anywhere]).await?;
            ends.len()
        }
        Run::EndAll(all) => {
            let holders: Vec<&[u8]> = all.iter().map(|holder| &holder.0[..]).collect();
            tx.query(&statements.end_all, &[&gateway, &holders]).await?;
            all.len()
        }
        Run::EndEvery => {
            tx.execute(&statements.end_every, &[]).await?;
            1
        }
        Run::Enter(session) => {
            return Ok(vec![counts::enter(tx, &statements.counts, gateway, session).await?]);
        }
        Run::Leave(gone) => {
            counts::leave(tx, &statements.counts, gateway, gone).await?;
            gone.len()
        }
    };
    Ok(vec![Outcome::Done; done])
}

/// What a client names as its former lineage has ended, also if its gateway writes it down later.
async fn remember(
    tx: &Transaction<'_>,
    statements: &Statements,
    gateway: &str,
    now: i64,
    ends: &[End],
) -> Result<(), Fault> {
    let (ids, holders): (Vec<&[u8]>, Vec<&[u8]>) =
        ends.iter().filter(|end| end.anywhere).map(|end| (&end.lineage.0[..], &end.holder.0[..])).unzip();
    if ids.is_empty() {
        return Ok(());
    }
    let until = now.saturating_add(i64::try_from(ENDED_KEPT.as_secs()).unwrap_or(i64::MAX));
    if tx.execute(&statements.remember, &[&gateway, &ids, &holders, &until]).await? > 0 {
        let most = i64::try_from(LINEAGES_PER_HOLDER).unwrap_or(i64::MAX);
        tx.execute(&statements.forget, &[&holders, &most, &now]).await?;
    }
    Ok(())
}

async fn shift_all(
    client: &Client,
    statements: &Statements,
    gateway: &str,
    shifts: &[Shift],
) -> Result<Vec<Outcome>, Fault> {
    let names = |of: fn(&Shift) -> &Name| -> Vec<&[u8]> { shifts.iter().map(|s| &of(s).0[..]).collect() };
    let (ids, next) = (names(|s| &s.lineage), names(|s| &s.to));
    let (own, before) = (names(|s| &s.from[0]), names(|s| &s.from[1]));
    let ends: Vec<i64> = shifts.iter().map(|s| seconds(s.ends)).collect();
    let claims: Vec<bool> = shifts.iter().map(|s| s.claims).collect();
    let parameters: [&(dyn ToSql + Sync); 7] = [&gateway, &ids, &own, &before, &next, &ends, &claims];
    let mut moved = vec![false; shifts.len()];
    for row in client.query(&statements.shift, &parameters).await? {
        let at = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
        if let Some(moved) = at.checked_sub(1).and_then(|at| moved.get_mut(at)) {
            *moved = true;
        }
    }
    let outcome = |(shift, moved): (&Shift, bool)| match moved || !shift.claims {
        true => Outcome::Done,
        false => Outcome::Superseded,
    };
    Ok(shifts.iter().zip(moved).map(outcome).collect())
}

async fn insert(
    tx: &Transaction<'_>,
    statements: &Statements,
    gateway: &str,
    rows: &[Row],
) -> Result<(), Fault> {
    let ids: Vec<&[u8]> = rows.iter().map(|row| &row.id.0[..]).collect();
    let holders: Vec<&[u8]> = rows.iter().map(|row| &row.holder.0[..]).collect();
    let tips: Vec<&[u8]> = rows.iter().map(|row| &row.tip.0[..]).collect();
    let ends: Vec<i64> = rows.iter().map(|row| seconds(row.ends)).collect();
    tx.execute(&statements.insert, &[&gateway, &ids, &holders, &tips, &ends]).await?;
    let most = i64::try_from(LINEAGES_PER_HOLDER).unwrap_or(i64::MAX);
    if !tx.query(&statements.crowded, &[&holders, &most]).await?.is_empty() {
        tx.execute(&statements.surplus, &[&ids, &holders, &most]).await?;
    }
    Ok(())
}
