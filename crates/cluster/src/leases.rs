//! Which identity has which inner addresses, for all gateways. Owns the table `lease`; an address is one holder's at most, which the table
//! itself sees to.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dormouse_crypto::cert::Identity;
use dormouse_ike::ticket::lineage::TicketHolder;
use dormouse_sansio::UnixTime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Statement, Transaction};

use crate::error::{Error, Fault};
use crate::join::Database;
use crate::link::{Cells, Link, seconds};
use crate::news::{self, Lease, LeaseKey, LeaseNews};

/// Something to write down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseChange {
    /// `holder` has these addresses, and uses them at this gateway now. What it had before is replaced.
    Lease {
        /// Whose they are.
        holder: LeaseKey,
        /// Its IPv4 address.
        v4: Option<Ipv4Addr>,
        /// Its IPv6 address.
        v6: Option<Ipv6Addr>,
    },
    /// `holder` loses its addresses.
    Evict {
        /// Whose they were.
        holder: LeaseKey,
    },
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It is done, and durable.
    Done,
    /// Nothing has changed: an address is another holder's; or, of an eviction, the holder has a session at another gateway; or the
    /// holder is no identity, or one of more than two thousand bytes.
    Refused,
}

const READ: &str =
    "select connection, id_type, id_data, device, host(v4), host(v6), used, gateway from dormouse.lease
    order by used desc, connection, id_type, id_data, device limit 1048576";
/// Bytes of a connection's name and an identity at most: an index of PostgreSQL takes no more than 2,704 of a row.
const KEY_MOST: usize = 2_048;

impl Database {
    /// All leases, the longest unused first; of more than a million those that were used last.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn leases(&mut self) -> Result<Vec<Lease>, Error> {
        let work = async |link: &mut Link| {
            let rows = link.query(READ, &[]).await?;
            rows.iter().rev().map(|row| lease(&link.cells("lease", row))).collect()
        };
        self.link.at_length("read leases", work).await
    }

    /// Writes changes in their order, in one transaction, and tells the other gateways. One outcome for each.
    ///
    /// # Errors
    /// See [`Error`]. None of them was written then; with [`Error::Lost`] and [`Error::Hangs`] all may have been.
    pub async fn write_leases(
        &mut self,
        now: UnixTime,
        changes: &[LeaseChange],
    ) -> Result<Vec<Written>, Error> {
        self.link.within("write leases", async |link| write(link, now, changes).await).await
    }
}

fn lease(cells: &Cells<'_>) -> Result<Lease, Fault> {
    let address = |at: usize| cells.get::<Option<&str>>(at);
    let parse = |what: &str| cells.wrong(format!("{what} is no address"));
    let v4 = address(4)?.map(str::parse::<Ipv4Addr>).transpose().map_err(|_| parse("v4"))?;
    let v6 = address(5)?.map(str::parse::<Ipv6Addr>).transpose().map_err(|_| parse("v6"))?;
    let kind: i16 = cells.get(1)?;
    let kind = u8::try_from(kind).map_err(|_| cells.wrong(format!("id_type is {kind}")))?;
    let holder = LeaseKey {
        connection: cells.get(0)?,
        identity: (kind, cells.get(2)?),
        device: cells.number(3, "device")?,
    };
    Ok(Lease { holder, v4, v6, used: cells.time(6, "used")?, gateway: cells.get(7)? })
}

/// A change, as the table has it.
struct Line<'a> {
    key: &'a LeaseKey,
    /// `None` if it is evicted.
    addresses: Option<(Option<Ipv4Addr>, Option<Ipv6Addr>)>,
    kind: i16,
    device: i64,
    holder: [u8; 32],
}

impl<'a> Line<'a> {
    /// `None` if it is no identity, or one that the table cannot hold.
    fn new(change: &'a LeaseChange) -> Option<Self> {
        let (key, addresses) = match change {
            LeaseChange::Lease { holder, v4, v6 } => (holder, Some((*v4, *v6))),
            LeaseChange::Evict { holder } => (holder, None),
        };
        if key.connection.len() + key.identity.1.len() > KEY_MOST || key.connection.contains('\0') {
            return None;
        }
        let identity = Identity::from_ike(key.identity.0, &key.identity.1).ok()?;
        let holder = TicketHolder::of(&key.connection, &identity).0;
        let kind = i16::from(key.identity.0);
        Some(Self { key, addresses, kind, device: key.device.into(), holder })
    }
}

/// Rows of these holders, in the order of their keys, so that two gateways cannot wait for each other.
const LOCK: &str = "select from dormouse.lease where (connection, id_type, id_data, device) in
    (select * from unnest($1::text[], $2::smallint[], $3::bytea[], $4::bigint[]))
    order by connection, id_type, id_data, device for update";
/// How many of these addresses are another holder's than the one that wants it.
const TAKEN: &str = "select count(*) from unnest($1::text[], $2::smallint[], $3::bytea[], $4::bigint[], $5::inet[], $6::inet[])
        as a (connection, id_type, id_data, device, v4, v6)
    where exists (select from dormouse.lease l where l.v4 = a.v4 and
            (l.connection, l.id_type, l.id_data, l.device) <> (a.connection, a.id_type, a.id_data, a.device))
        or exists (select from dormouse.lease l where l.v6 = a.v6 and
            (l.connection, l.id_type, l.id_data, l.device) <> (a.connection, a.id_type, a.id_data, a.device))";
const LEASE: &str = "insert into dormouse.lease (connection, id_type, id_data, device, v4, v6, holder, used, gateway)
    select a.*, $8, $9 from unnest($1::text[], $2::smallint[], $3::bytea[], $4::bigint[], $5::inet[], $6::inet[], $7::bytea[])
        as a (connection, id_type, id_data, device, v4, v6, holder) order by a.v4, a.v6
    on conflict (connection, id_type, id_data, device) do update set
        v4 = excluded.v4, v6 = excluded.v6, holder = excluded.holder, used = excluded.used, gateway = excluded.gateway";
const LIVES_ELSEWHERE: &str =
    "select from dormouse.lineage where holder = $1 and gateway <> $2 and ends > $3 limit 1";
const EVICT: &str =
    "delete from dormouse.lease where connection = $1 and id_type = $2 and id_data = $3 and device = $4";
const TELL: &str = "select pg_notify($1, payload) from unnest($2::text[]) payload";

async fn write(link: &mut Link, now: UnixTime, changes: &[LeaseChange]) -> Result<Vec<Written>, Fault> {
    let lines: Vec<Option<Line<'_>>> = changes.iter().map(Line::new).collect();
    let statements = Statements {
        lock: link.prepare(LOCK).await?,
        taken: link.prepare(TAKEN).await?,
        lease: link.prepare(LEASE).await?,
        lives: link.prepare(LIVES_ELSEWHERE).await?,
        evict: link.prepare(EVICT).await?,
    };
    let tell = link.prepare(TELL).await?;
    let gateway = link.gateway.clone();
    let tx = link.client.transaction().await?;
    let known: Vec<&Line<'_>> = lines.iter().flatten().collect();
    let Columns { connections, kinds, data, devices, .. } = Columns::new(&known);
    tx.query(&statements.lock, &[&connections, &kinds, &data, &devices]).await?;
    let writer = Writer { tx: &tx, statements: &statements, gateway: &gateway, now: seconds(now) };
    let mut written = Vec::with_capacity(lines.len());
    let mut rest = lines.as_slice();
    while let [first, ..] = rest {
        let run = together(rest);
        let (now, later) = rest.split_at(run.len().max(1));
        if run.len() > 1 && writer.lease(&run).await? == Written::Done {
            written.extend(vec![Written::Done; run.len()]);
        } else if run.is_empty() {
            written.push(match first {
                Some(line) => writer.evict(line).await?,
                None => Written::Refused,
            });
        } else {
            // One of them is refused, which one depends on their order.
            for line in now.iter().flatten() {
                written.push(writer.lease(&[line]).await?);
            }
        }
        rest = later;
    }
    let done = lines.iter().zip(&written).filter(|(_, written)| **written == Written::Done);
    let news: Vec<LeaseNews> =
        done.filter_map(|(line, _)| line.as_ref()).map(|line| tell_of(line, now)).collect();
    if !news.is_empty() {
        tx.query(&tell, &[&news::LEASES, &news::payloads(&gateway, &news)]).await?;
    }
    tx.commit().await?;
    Ok(written)
}

fn tell_of(line: &Line<'_>, used: UnixTime) -> LeaseNews {
    match line.addresses {
        None => LeaseNews::Evict(line.key.clone()),
        Some((v4, v6)) => {
            LeaseNews::Lease(Lease { holder: line.key.clone(), v4, v6, used, gateway: String::new() })
        }
    }
}

/// Leases at the beginning that can be one statement: of different holders, with different addresses.
fn together<'a>(lines: &'a [Option<Line<'a>>]) -> Vec<&'a Line<'a>> {
    let (mut keys, mut taken) = (BTreeSet::new(), BTreeSet::new());
    let mut run = Vec::new();
    for line in lines {
        let Some((line, (v4, v6))) = line.as_ref().and_then(|line| Some((line, line.addresses?))) else {
            break;
        };
        let mut addresses = v4.map(IpAddr::V4).into_iter().chain(v6.map(IpAddr::V6));
        if !keys.insert(line.key) || !addresses.all(|address| taken.insert(address)) {
            break;
        }
        run.push(line);
    }
    run
}

/// The statements, prepared.
struct Statements {
    lock: Statement,
    taken: Statement,
    lease: Statement,
    lives: Statement,
    evict: Statement,
}

/// Lines by column, as `unnest` takes them.
struct Columns<'a> {
    connections: Vec<&'a str>,
    kinds: Vec<i16>,
    data: Vec<&'a [u8]>,
    devices: Vec<i64>,
    v4: Vec<Option<IpAddr>>,
    v6: Vec<Option<IpAddr>>,
    holders: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn new(lines: &[&'a Line<'a>]) -> Self {
        let addresses = |line: &Line<'_>| line.addresses.unwrap_or_default();
        Self {
            connections: lines.iter().map(|line| line.key.connection.as_str()).collect(),
            kinds: lines.iter().map(|line| line.kind).collect(),
            data: lines.iter().map(|line| line.key.identity.1.as_slice()).collect(),
            devices: lines.iter().map(|line| line.device).collect(),
            v4: lines.iter().map(|line| addresses(line).0.map(IpAddr::V4)).collect(),
            v6: lines.iter().map(|line| addresses(line).1.map(IpAddr::V6)).collect(),
            holders: lines.iter().map(|line| &line.holder[..]).collect(),
        }
    }
}

/// In one transaction.
struct Writer<'a> {
    tx: &'a Transaction<'a>,
    statements: &'a Statements,
    gateway: &'a str,
    now: i64,
}

impl Writer<'_> {
    /// All of these, or none.
    async fn lease(&self, lines: &[&Line<'_>]) -> Result<Written, Fault> {
        let Columns { connections, kinds, data, devices, v4, v6, holders } = Columns::new(lines);
        let wanted: [&(dyn ToSql + Sync); 6] = [&connections, &kinds, &data, &devices, &v4, &v6];
        let taken: i64 = self.tx.query_one(&self.statements.taken, &wanted).await?.try_get(0)?;
        if taken > 0 {
            return Ok(Written::Refused);
        }
        let (now, gateway) = (self.now, self.gateway);
        let row: [&(dyn ToSql + Sync); 9] =
            [&connections, &kinds, &data, &devices, &v4, &v6, &holders, &now, &gateway];
        self.tx.execute(&self.statements.lease, &row).await?;
        Ok(Written::Done)
    }

    async fn evict(&self, line: &Line<'_>) -> Result<Written, Fault> {
        let holder = &line.holder[..];
        let lives = self.tx.query(&self.statements.lives, &[&holder, &self.gateway, &self.now]).await?;
        if !lives.is_empty() {
            return Ok(Written::Refused);
        }
        let LeaseKey { connection, identity: (_, data), .. } = line.key;
        self.tx.execute(&self.statements.evict, &[connection, &line.kind, data, &line.device]).await?;
        Ok(Written::Done)
    }
}
