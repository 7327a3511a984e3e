//! Ticket keys for all gateways: one a day, made by the gateway that sees first that it is missing. Owns the table `ticket_key`; a key is
//! there only wrapped (AES-256-GCM) under the cluster key, which the database never has. Its name, its day and its times are authenticated
//! with it, so that who can write to the database can remove keys, but not make one, nor let one live longer.

use core::time::Duration;

use dormouse_crypto::{Secret, aead256_open, aead256_seal};
use dormouse_sansio::{Entropy, UnixTime};
use tokio_postgres::Transaction;
use zeroize::Zeroizing;

use crate::error::{Error, Fault};
use crate::join::Database;
use crate::link::{Cells, Link, seconds};
use crate::news::KEYS;

const DAY: u64 = 86_400;
/// Every gateway knows a key so long before the first ticket is sealed with it.
const AHEAD: u64 = 600;
/// The next day's key is made so long before: gateways that ask for keys at least every [`PUBLISH`] - [`AHEAD`] seconds are in time.
const PUBLISH: u64 = 3_600;
const NONCE: usize = 12;
const SECRET: usize = 32;
const TAG: usize = 16;
const WRAPPED: usize = NONCE + SECRET + TAG;

/// A key that tickets are sealed with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TicketKey {
    /// Its name in tickets.
    pub id: u64,
    /// Days since 1970: there is one key of each.
    pub day: u32,
    /// From when on tickets are sealed with it, unless a later day's key may be taken.
    pub seal_from: UnixTime,
    /// From when on no ticket is: a day later, and ten minutes more, in which the next day's key may be late.
    pub seal_until: UnixTime,
    /// From when on none is opened with it: the longest ticket later.
    pub open_until: UnixTime,
    /// 32 bytes.
    pub secret: Secret,
}

impl TicketKey {
    /// Whether tickets may be sealed with it. Of several keys the last one is taken.
    #[must_use]
    pub fn seals(&self, now: UnixTime) -> bool {
        (self.seal_from..self.seal_until).contains(&now)
    }

    /// What is authenticated with the secret.
    fn about(&self) -> Vec<u8> {
        let mut about = b"dormouse ticket key 1".to_vec();
        about.extend_from_slice(&self.id.to_be_bytes());
        about.extend_from_slice(&self.day.to_be_bytes());
        for time in [self.seal_from, self.seal_until, self.open_until] {
            about.extend_from_slice(&time.0.to_be_bytes());
        }
        about
    }

    fn wrap(&self, key: &[u8; 32], entropy: &mut dyn Entropy) -> Result<Vec<u8>, Error> {
        let mut nonce = [0; NONCE];
        entropy.fill(&mut nonce);
        // Encrypted in place: the secret does not outlive this line.
        let mut sealed = Vec::with_capacity(SECRET + TAG);
        sealed.extend_from_slice(self.secret.as_bytes());
        aead256_seal(key, &nonce, &self.about(), &mut sealed)
            .map_err(|e| Error::Settings(format!("a ticket key cannot be wrapped: {e}")))?;
        Ok([&nonce[..], &sealed].concat())
    }
}

/// What counts by the database's clock stays, in case that this gateway's is ahead.
const EXPIRE: &str = "delete from dormouse.ticket_key where open_until <= $1
    and open_until <= extract(epoch from clock_timestamp())::bigint + 3600";
pub(crate) const READ: &str =
    "select day::bigint, id, seal_from, seal_until, open_until, wrapped from dormouse.ticket_key
    order by day desc limit 4096";
const NEW: &str = "with new as (
        insert into dormouse.ticket_key (day, id, seal_from, seal_until, open_until, wrapped)
        values ($1, $2, $3, $4, $5, $6) on conflict do nothing returning day
    ) select count(pg_notify($7, $8)) from new";
/// Only if it is still as it was read.
const AMEND: &str = "with new as (
        update dormouse.ticket_key set seal_from = $3, open_until = $4, wrapped = $5
        where day = $1 and id = $2 and seal_from = $6 and open_until = $7 returning day
    ) select count(pg_notify($8, $9)) from new";

impl Database {
    /// All keys that open tickets, the oldest first. Keys that nobody needs any more are removed, and missing ones made: today's, and
    /// tomorrow's in the last hour of the day. `lifetime` is that of the longest ticket. To be called when a day begins to end, at
    /// [`crate::Notice::Keys`], and at least every 50 minutes.
    ///
    /// # Errors
    /// [`Error::ClusterKey`] if a key was wrapped under another cluster key than this gateway's: none is made then. Else see [`Error`].
    pub async fn ticket_keys(
        &mut self,
        now: UnixTime,
        lifetime: Duration,
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<TicketKey>, Error> {
        let wrong = || Error::Settings("the cluster key has not 32 bytes".into());
        let key: Zeroizing<[u8; 32]> = Zeroizing::new(self.key.as_bytes().try_into().map_err(|_| wrong())?);
        let work = async |link: &mut Link| keys(link, &key, now, lifetime, entropy).await;
        self.link.within("read and make ticket keys", work).await
    }
}

async fn keys(
    link: &mut Link,
    key: &[u8; 32],
    now: UnixTime,
    lifetime: Duration,
    entropy: &mut dyn Entropy,
) -> Result<Vec<TicketKey>, Fault> {
    let (server, gateway) = (link.server.clone(), link.gateway.clone());
    let tx = link.client.transaction().await?;
    tx.execute(EXPIRE, &[&seconds(now)]).await?;
    let found = read(&tx, &server, key).await?;
    let day = now.0 / DAY;
    let mut made = false;
    for day in (day..).take(if now.0 % DAY + PUBLISH >= DAY { 2 } else { 1 }) {
        let Ok(day) = i32::try_from(day) else { continue };
        let theirs = found.iter().find(|key| i64::from(key.day) == i64::from(day));
        let wanted = wanted(&found, day, now, lifetime, entropy);
        match theirs {
            None => {
                let wrapped = wanted.wrap(key, entropy)?;
                let id = wanted.id.to_be_bytes();
                let (from, until) = (seconds(wanted.seal_from), seconds(wanted.seal_until));
                let open = seconds(wanted.open_until);
                tx.query(NEW, &[&day, &&id[..], &from, &until, &open, &wrapped, &KEYS, &gateway]).await?;
                made = true;
            }
            Some(theirs) => made |= amend(&tx, &gateway, key, (theirs, &wanted), entropy).await?,
        }
    }
    let mut keys = if made { read(&tx, &server, key).await? } else { found };
    tx.commit().await?;
    keys.retain(|key| key.open_until > now);
    Ok(keys)
}

/// A key of this day as it would be made now.
fn wanted(
    found: &[TicketKey],
    day: i32,
    now: UnixTime,
    lifetime: Duration,
    entropy: &mut dyn Entropy,
) -> TicketKey {
    let day = u32::try_from(day).unwrap_or(0);
    let begins = u64::from(day) * DAY;
    // Others learn of it first; but somebody must be able to seal.
    let covered =
        found.iter().filter(|key| key.day != day && key.seals(now)).map(|key| key.seal_until.0).max();
    let earliest = covered.map_or(now.0, |covered| covered.min(now.0.saturating_add(AHEAD)));
    let seal_until = begins + DAY + AHEAD;
    let open_until = seal_until.saturating_add(lifetime.as_secs()).min(i64::MAX as u64);
    let mut secret = Secret::zeroed(SECRET);
    entropy.fill(secret.as_mut_bytes());
    TicketKey {
        id: entropy.next_u64(),
        day,
        seal_from: UnixTime(begins.max(earliest).min(seal_until)),
        seal_until: UnixTime(seal_until),
        open_until: UnixTime(open_until),
        secret,
    }
}

/// A key that is there opens longer if a gateway gives longer tickets, and seals at once if none else does. True if it changed.
async fn amend(
    tx: &Transaction<'_>,
    gateway: &str,
    key: &[u8; 32],
    (theirs, wanted): (&TicketKey, &TicketKey),
    entropy: &mut dyn Entropy,
) -> Result<bool, Fault> {
    let seal_from = theirs.seal_from.min(wanted.seal_from.max(UnixTime(u64::from(theirs.day) * DAY)));
    let open_until = theirs.open_until.max(wanted.open_until);
    if (seal_from, open_until) == (theirs.seal_from, theirs.open_until) {
        return Ok(false);
    }
    let new = TicketKey { seal_from, open_until, ..theirs.clone() };
    let (wrapped, id) = (new.wrap(key, entropy)?, new.id.to_be_bytes());
    let (day, from, open) = (i32::try_from(new.day).unwrap_or(0), seconds(seal_from), seconds(open_until));
    let (old_from, old_open) = (seconds(theirs.seal_from), seconds(theirs.open_until));
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
        [&day, &&id[..], &from, &open, &wrapped, &old_from, &old_open, &KEYS, &gateway];
    tx.query(AMEND, &parameters).await?;
    Ok(true)
}

async fn read(tx: &Transaction<'_>, server: &str, key: &[u8; 32]) -> Result<Vec<TicketKey>, Fault> {
    let rows = tx.query(READ, &[]).await?;
    rows.iter().rev().map(|row| open(&Cells { server, table: "ticket_key", row }, server, key)).collect()
}

pub(crate) fn open(cells: &Cells<'_>, server: &str, key: &[u8; 32]) -> Result<TicketKey, Fault> {
    let day: u32 = cells.number(0, "day")?;
    let mut found = TicketKey {
        id: u64::from_be_bytes(cells.bytes(1, "id")?),
        day,
        seal_from: cells.time(2, "seal_from")?,
        seal_until: cells.time(3, "seal_until")?,
        open_until: cells.time(4, "open_until")?,
        secret: Secret::default(),
    };
    let wrapped: [u8; WRAPPED] = cells.bytes(5, "wrapped")?;
    let (nonce, sealed) =
        wrapped.split_first_chunk::<NONCE>().ok_or_else(|| cells.wrong("wrapped is short"))?;
    let mut secret = sealed.to_vec();
    let opened = aead256_open(key, nonce, &found.about(), &mut secret);
    opened.map_err(|_| Error::ClusterKey { server: server.into(), day })?;
    found.secret = Secret::from(secret);
    Ok(found)
}
