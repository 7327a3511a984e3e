//! IKE SAs that another gateway can take over (RFC 6311): what a gateway leaves of them, and which one has each. Owns the table `ike_sa`; what is
//! left is sealed (AES-256-GCM) under a key made of the cluster key, as it holds session keys.
//!
//! One statement gives an SA to another gateway, so that only one gets it, and tells the one that had it, which drops it when it hears of that. It is given only while
//! the one that has it was not heard for 30 seconds, or to itself after a start. How many have had it is counted with that: the IVs and message ids
//! of each are others.

use std::net::IpAddr;

use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret, aead256_open, aead256_seal};
use dormouse_ike::limits::ORPHANS_MOST;
use dormouse_ike::takeover::{Left, Record};
use dormouse_ike::ticket::lineage::Name;
use dormouse_sansio::Entropy;
use zeroize::Zeroizing;

use crate::error::{Error, Fault};
use crate::join::Database;
use crate::link::{Link, seconds};

const NONCE: usize = 12;

const KEEP: &str = "insert into dormouse.ike_sa (lineage, gateway, owners, spi, esp, local, ends, sealed)
    select a.lineage, $1, a.owners, a.spi, a.esp, a.local, a.ends, a.sealed
    from unnest($2::bytea[], $3::integer[], $4::bytea[], $5::bytea[], $6::inet[], $7::bigint[], $8::bytea[])
        as a (lineage, owners, spi, esp, local, ends, sealed)
    order by a.lineage on conflict (lineage) do update
    set owners = excluded.owners, spi = excluded.spi, esp = excluded.esp, local = excluded.local, ends = excluded.ends,
        sealed = excluded.sealed where ike_sa.gateway = $1";
const FORGET: &str = "delete from dormouse.ike_sa where gateway = $1 and lineage = any($2)";
const EXPIRE: &str =
    "delete from dormouse.ike_sa where ends <= extract(epoch from clock_timestamp())::bigint";
/// As [`crate::counts`] has it of those whose sessions do not count.
const SILENT: &str = "select g.name from dormouse.gateway g
    where g.name <> $1 and g.seen < extract(epoch from clock_timestamp())::bigint - 30
        and exists (select from dormouse.ike_sa s where s.gateway = g.name) order by g.name";
const LEFT: &str =
    "select lineage, spi, esp, host(local) from dormouse.ike_sa where gateway = $1 order by lineage limit $2";
/// An order for this gateway to let go of it is void: it comes back. The session is on record as the former gateway's: who has it now writes that
/// anew.
const CLAIM: &str = "with claimed as (
        update dormouse.ike_sa s set gateway = $1, owners = s.owners + 1 from dormouse.gateway g
        where s.lineage = $2 and g.name = s.gateway and s.owners < 65535
            and s.ends > extract(epoch from clock_timestamp())::bigint
            and (g.name = $1 or g.seen < extract(epoch from clock_timestamp())::bigint - 30)
        returning s.owners, s.sealed, g.name as former
    ), ended as (
        delete from dormouse.lineage where id = $2 and exists (select from claimed)
    ), void as (
        delete from dormouse.orders where gateway = $1 and lineage = $2 and exists (select from claimed)
    ), told as (
        insert into dormouse.orders (gateway, lineage) select former, $2 from claimed where former <> $1 returning gateway
    ), rung as materialized (
        select pg_notify('dormouse_orders_' || gateway, $1) from told
    ) select owners::bigint, sealed, (select count(rung.*) from rung) from claimed";

/// What is given to a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// How many gateways have had it before.
    pub owners: u16,
    /// What the last one has left; `None`: it was not sealed under this cluster's key, or is damaged.
    pub content: Option<Secret>,
}

impl Database {
    /// This gateway leaves these, instead of what it has left of the same sessions, each once; and nothing any more of those that are `over`. What
    /// another gateway has taken over stays that one's.
    ///
    /// # Errors
    /// See [`Error`]. Nothing was written then; with [`Error::Lost`] and [`Error::Hangs`] all may have been.
    pub async fn leave(
        &mut self,
        records: &[&Record],
        over: &[Name],
        entropy: &mut dyn Entropy,
    ) -> Result<(), Error> {
        let key = sealing_key(&self.key);
        let seal = |record: &&Record| seal(&key, record, entropy);
        let sealed: Vec<Vec<u8>> = records.iter().map(seal).collect::<Result<_, _>>()?;
        let lineages: Vec<&[u8]> = records.iter().map(|r| &r.left.lineage.0[..]).collect();
        let owners: Vec<i32> = records.iter().map(|r| r.owners.into()).collect();
        let spis: Vec<Vec<u8>> = records.iter().map(|r| r.left.spi.to_be_bytes().to_vec()).collect();
        let esp = |r: &&Record| r.left.esp.iter().flat_map(|spi| spi.to_be_bytes()).collect();
        let esp: Vec<Vec<u8>> = records.iter().map(esp).collect();
        let local: Vec<IpAddr> = records.iter().map(|r| r.left.local).collect();
        let ends: Vec<i64> = records.iter().map(|r| seconds(r.ends)).collect();
        let over: Vec<&[u8]> = over.iter().map(|lineage| &lineage.0[..]).collect();
        let work = async |link: &mut Link| {
            let gateway = link.gateway.clone();
            if !lineages.is_empty() {
                link.query(KEEP, &[&gateway, &lineages, &owners, &spis, &esp, &local, &ends, &sealed])
                    .await?;
            }
            if !over.is_empty() {
                link.query(FORGET, &[&gateway, &over]).await?;
            }
            Ok(())
        };
        self.link.within("write down IKE SAs", work).await
    }

    /// The other gateways that have left something, and were not heard for 30 seconds.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn silent(&mut self) -> Result<Vec<String>, Error> {
        let work = async |link: &mut Link| {
            let rows = link.query(SILENT, &[&link.gateway.clone()]).await?;
            rows.iter().map(|row| link.cells("gateway", row).get(0)).collect()
        };
        self.link.within("look for silent gateways", work).await
    }

    /// What this gateway has left, or `None`: what this one itself has, in an earlier run. Of very many some.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn left_by(&mut self, gateway: Option<&str>) -> Result<Vec<Left>, Error> {
        let most = i64::try_from(ORPHANS_MOST).unwrap_or(i64::MAX);
        let work = async |link: &mut Link| {
            let gateway = gateway.map_or_else(|| link.gateway.clone(), str::to_owned);
            link.query(EXPIRE, &[]).await?;
            let rows = link.query(LEFT, &[&gateway, &most]).await?;
            rows.iter().map(|row| left(link, row)).collect()
        };
        self.link.at_length("read the IKE SAs of a gateway", work).await
    }

    /// Gives this SA to this gateway, if the one that has it is silent or this one itself, in an earlier run. `None`: it is not given.
    ///
    /// # Errors
    /// See [`Error`]; with [`Error::Lost`] and [`Error::Hangs`] it may have been given: then it is over.
    pub async fn claim(&mut self, lineage: Name) -> Result<Option<Given>, Error> {
        let key = sealing_key(&self.key);
        let work = async |link: &mut Link| {
            let rows = link.query(CLAIM, &[&link.gateway.clone(), &&lineage.0[..]]).await?;
            let given = |row| {
                let cells = link.cells("ike_sa", row);
                let owners = cells.number::<i64>(0, "the number of owners")?;
                let owners = u16::try_from(owners).map_err(|_| cells.wrong("too many owners"))?;
                Ok(Given { owners, content: open(&key, lineage, cells.get(1)?) })
            };
            rows.first().map(given).transpose()
        };
        self.link.within("take an IKE SA over", work).await
    }
}

fn left(link: &Link, row: &tokio_postgres::Row) -> Result<Left, Fault> {
    let cells = link.cells("ike_sa", row);
    let esp: &[u8] = cells.get(2)?;
    let (spis, []) = esp.as_chunks() else { return Err(cells.wrong("SPIs of ESP have 4 bytes each")) };
    let local: &str = cells.get(3)?;
    Ok(Left {
        lineage: Name(cells.bytes(0, "lineage")?),
        spi: u64::from_be_bytes(cells.bytes(1, "SPI")?),
        esp: spis.iter().map(|spi| u32::from_be_bytes(*spi)).collect(),
        local: local.parse().map_err(|_| cells.wrong(format!("{local} is no address")))?,
    })
}

fn sealing_key(cluster: &Secret) -> Zeroizing<[u8; 32]> {
    let made = PrfKey::new(Prf::HmacSha256, cluster.as_bytes()).compute(&[b"dormouse cluster: IKE SAs"]);
    let mut key = Zeroizing::new([0; 32]);
    key.iter_mut().zip(made.as_bytes()).for_each(|(to, from)| *to = *from);
    key
}

/// What is authenticated with the content: whose it is.
fn about(lineage: Name) -> Vec<u8> {
    [&b"dormouse IKE SA 1"[..], &lineage.0].concat()
}

fn seal(key: &[u8; 32], record: &Record, entropy: &mut dyn Entropy) -> Result<Vec<u8>, Error> {
    let mut nonce = [0; NONCE];
    entropy.fill(&mut nonce);
    let mut sealed = record.content.as_bytes().to_vec();
    aead256_seal(key, &nonce, &about(record.left.lineage), &mut sealed)
        .map_err(|e| Error::Settings(format!("an IKE SA cannot be written down: {e}")))?;
    Ok([&nonce[..], &sealed].concat())
}

fn open(key: &[u8; 32], lineage: Name, sealed: &[u8]) -> Option<Secret> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let mut content = Zeroizing::new(sealed.to_vec());
    aead256_open(key, nonce, &about(lineage), &mut content).ok()?;
    Some(Secret::from(content.as_slice()))
}
