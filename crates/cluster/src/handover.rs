//! What one gateway tells another of a device that is, or will be, there: packets that wait for it, and how it sleeps. Owns the table `handover`;
//! what is told is sealed (AES-256-GCM) under a key made of the cluster key, as it holds what people send each other.
//!
//! Where a device is, its lineage says; where that is over, the last one of its holder, which began with a login at another gateway. A parcel for
//! a gateway from which it has moved on follows it. One whose lineage has ended on its way is read with that
//! said ([`Arrived::over`]), so that its reader can send it on.

use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret, aead256_open, aead256_seal};
use dormouse_ike::ticket::lineage::{Name, TicketHolder};
use dormouse_sansio::{Entropy, UnixTime};
use zeroize::Zeroizing;

use crate::error::{Error, Fault};
use crate::join::Database;
use crate::link::{Link, seconds};

const NONCE: usize = 12;
/// Bytes of what is told at most: some times what a stand-in keeps for one device. The table has a bound too, with the seal's bytes.
pub const CONTENT_MOST: usize = 4 << 20;
/// Parcels that are read at a time.
const MOST: i64 = 64;
/// A gateway that was not heard for so many seconds is not given devices.
const SILENT: i64 = 15;

/// What is to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// Whose it is.
    pub lineage: Name,
    /// Whose that lineage was, if it is over by now; `None`: it is dropped then.
    pub holder: Option<TicketHolder>,
    /// The gateway that has the device from now on, if this one has it now; `None`: the one that has it, if it is another.
    pub to: Option<String>,
    /// How long it is worth telling.
    pub lasts: Duration,
    /// What is told.
    pub content: Vec<u8>,
}

/// What was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its number, to be named when it has been read.
    pub seq: i64,
    /// Whose it is.
    pub lineage: Name,
    /// That lineage is over: the device has logged in since, or may not come back.
    pub over: bool,
    /// What is told; `None`: it was not sealed under this cluster's key, or is damaged.
    pub content: Option<Vec<u8>>,
}

/// Another gateway that can take devices over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Other {
    /// Its name.
    pub name: String,
    /// The names and addresses at which devices reach it, parted by commas.
    pub address: String,
    /// Sessions and sleepers that it had at its last heartbeat.
    pub devices: u64,
    /// How long a session took there then, if it knew.
    pub session_time: Option<Duration>,
}

/// As in `lineage`: rows are locked in the order of their names, and their latest version counts.
const SEND: &str = "with asked as (
        select * from unnest($2::bytea[], $3::text[], $4::bigint[], $5::bytea[]) as a (id, target, ends, sealed)
    ), locked as materialized (
        select l.id, l.gateway from dormouse.lineage l where l.id in (select id from asked) order by l.id for update
    ), known as (select name from dormouse.gateway), moved as (
        update dormouse.lineage l set gateway = a.target from asked a, locked k
        where k.id = a.id and l.id = a.id and k.gateway = $1 and a.target in (select name from known)
    ), sent as (
        insert into dormouse.handover (gateway, lineage, ends, sealed)
        select case when k.gateway = $1 then a.target else k.gateway end, a.id, a.ends, a.sealed
        from asked a join locked k on k.id = a.id
        where case when k.gateway = $1 then a.target else k.gateway end in (select name from known)
        returning lineage, gateway
    ), rung as materialized (
        select pg_notify('dormouse_orders_' || t.gateway, $1) from (select distinct gateway from sent) t
    ) select lineage, (select count(rung.*) from rung) from sent";
/// Of lineages that are over, the last ones of their holders at other gateways.
const SUCCESSORS: &str = "select a.id, s.id from unnest($2::bytea[], $3::bytea[]) as a (id, holder)
    cross join lateral (
        select l.id from dormouse.lineage l where l.holder = a.holder and l.gateway <> $1
        order by l.ends desc, l.id desc limit 1
    ) s where not exists (select from dormouse.lineage l where l.id = a.id)";
/// What is too late for anybody, of whichever gateway.
const EXPIRE: &str =
    "delete from dormouse.handover where ends <= extract(epoch from clock_timestamp())::bigint";
const FORWARD: &str = "with gone as (
        update dormouse.handover h set gateway = l.gateway from dormouse.lineage l, dormouse.gateway g
        where h.gateway = $1 and l.id = h.lineage and l.gateway <> $1 and g.name = l.gateway returning h.gateway
    ) select count(pg_notify('dormouse_orders_' || t.gateway, $1)) from (select distinct gateway from gone) t";
const READ: &str = "select h.seq, h.lineage, h.ends, h.sealed, l.id is null from dormouse.handover h
    left join dormouse.lineage l on l.id = h.lineage
    where h.gateway = $1 and (l.id is null or l.gateway = $1) order by h.seq limit $2";
const TAKEN: &str = "delete from dormouse.handover where gateway = $1 and seq = any($2)";
const OTHERS: &str = "select name, address, sessions + sleepers, session_time from dormouse.gateway
    where name <> $1 and not draining and seen >= extract(epoch from clock_timestamp())::bigint - $2 order by name";

impl Database {
    /// Tells other gateways of devices, each of which is named once. True for each that was told: its device is the other gateway's now. Not told is
    /// what no lineage knows, or what is for this gateway. What was of a lineage that is over comes as of the one that [`Arrived::lineage`] names.
    ///
    /// # Errors
    /// See [`Error`]. None was told then; with [`Error::Lost`] and [`Error::Hangs`] all may have been.
    pub async fn hand_over(
        &mut self,
        now: UnixTime,
        parcels: &[Parcel],
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<bool>, Error> {
        let key = sealing_key(&self.key);
        let ends: Vec<i64> = parcels
            .iter()
            .map(|p| seconds(UnixTime(now.0.saturating_add(p.lasts.as_secs().max(1)))))
            .collect();
        let successors = self.successors(parcels).await?;
        let lineage = |p: &Parcel| successors.get(&p.lineage).copied().unwrap_or(p.lineage);
        let lineages: Vec<Name> = parcels.iter().map(lineage).collect();
        let mut sealed = Vec::new();
        for ((parcel, lineage), ends) in parcels.iter().zip(&lineages).zip(&ends) {
            sealed.push(seal(&key, *lineage, &parcel.content, *ends, entropy)?);
        }
        let ids: Vec<&[u8]> = lineages.iter().map(|lineage| &lineage.0[..]).collect();
        let targets: Vec<Option<&str>> = parcels.iter().map(|parcel| parcel.to.as_deref()).collect();
        let work = async |link: &mut Link| {
            let gateway = link.gateway.clone();
            let rows = link.query(SEND, &[&gateway, &ids, &targets, &ends, &sealed]).await?;
            rows.iter().map(|row| link.cells("handover", row).bytes(0, "lineage").map(Name)).collect()
        };
        let told: Vec<Name> = self.link.within("hand devices over", work).await?;
        Ok(lineages.iter().map(|lineage| told.contains(lineage)).collect())
    }

    async fn successors(&mut self, parcels: &[Parcel]) -> Result<BTreeMap<Name, Name>, Error> {
        let of = |parcel: &Parcel| Some((parcel.lineage.0.to_vec(), parcel.holder?.0.to_vec()));
        let (ids, holders): (Vec<Vec<u8>>, Vec<Vec<u8>>) = parcels.iter().filter_map(of).unzip();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let work = async |link: &mut Link| {
            let rows = link.query(SUCCESSORS, &[&link.gateway.clone(), &ids, &holders]).await?;
            let successor = |row| {
                let cells = link.cells("lineage", row);
                Ok((Name(cells.bytes(0, "id")?), Name(cells.bytes(1, "id")?)))
            };
            rows.iter().map(successor).collect()
        };
        self.link.within("look where devices are", work).await
    }

    /// What other gateways have told this one, the oldest first, 64 at most: ask again after [`Database::taken`] of so many.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn handovers(&mut self) -> Result<Vec<Arrived>, Error> {
        let key = sealing_key(&self.key);
        let work = async |link: &mut Link| {
            let gateway = link.gateway.clone();
            link.query(EXPIRE, &[]).await?;
            link.query(FORWARD, &[&gateway]).await?;
            let rows = link.query(READ, &[&gateway, &MOST]).await?;
            let read = |row| -> Result<Arrived, Fault> {
                let cells = link.cells("handover", row);
                let (seq, lineage) = (cells.get(0)?, Name(cells.bytes(1, "lineage")?));
                let content = open(&key, lineage, cells.get(2)?, cells.get(3)?);
                Ok(Arrived { seq, lineage, over: cells.get(4)?, content })
            };
            rows.iter().map(read).collect()
        };
        self.link.within("read handovers", work).await
    }

    /// These have been read.
    ///
    /// # Errors
    /// See [`Error`]; they come again then.
    pub async fn taken(&mut self, numbers: &[i64]) -> Result<(), Error> {
        let work = async |link: &mut Link| {
            link.query(TAKEN, &[&link.gateway.clone(), &numbers]).await?;
            Ok(())
        };
        self.link.within("delete handovers", work).await
    }

    /// The other gateways that were heard lately and are not going themselves, by name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn others(&mut self) -> Result<Vec<Other>, Error> {
        let work = async |link: &mut Link| {
            let gateway = link.gateway.clone();
            let rows = link.query(OTHERS, &[&gateway, &SILENT]).await?;
            let other = |row| {
                let cells = link.cells("gateway", row);
                Ok(Other {
                    name: cells.get(0)?,
                    address: cells.get(1)?,
                    devices: cells.number(2, "the number of devices")?,
                    session_time: cells.micros(3)?,
                })
            };
            rows.iter().map(other).collect()
        };
        self.link.within("read the other gateways", work).await
    }
}

fn sealing_key(cluster: &Secret) -> Zeroizing<[u8; 32]> {
    let made = PrfKey::new(Prf::HmacSha256, cluster.as_bytes()).compute(&[b"dormouse cluster: handovers"]);
    let mut key = Zeroizing::new([0; 32]);
    key.iter_mut().zip(made.as_bytes()).for_each(|(to, from)| *to = *from);
    key
}

/// What is authenticated with the content: whose it is, and how long it counts.
fn about(lineage: Name, ends: i64) -> Vec<u8> {
    [&b"dormouse handover 1"[..], &lineage.0, &ends.to_be_bytes()].concat()
}

fn seal(
    key: &[u8; 32],
    lineage: Name,
    content: &[u8],
    ends: i64,
    entropy: &mut dyn Entropy,
) -> Result<Vec<u8>, Error> {
    let bytes = content.len();
    if bytes > CONTENT_MOST {
        return Err(Error::Settings(format!("a device with {bytes} bytes is too large to be handed over")));
    }
    let mut nonce = [0; NONCE];
    entropy.fill(&mut nonce);
    let mut sealed = content.to_vec();
    aead256_seal(key, &nonce, &about(lineage, ends), &mut sealed)
        .map_err(|e| Error::Settings(format!("a device cannot be handed over: {e}")))?;
    Ok([&nonce[..], &sealed].concat())
}

fn open(key: &[u8; 32], lineage: Name, ends: i64, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let mut content = sealed.to_vec();
    aead256_open(key, nonce, &about(lineage, ends), &mut content).ok()?;
    Some(content)
}
