//! Whom an administrator has refused, for all gateways. Owns the table `denial`; what a denial means is said where peers are admitted.

use dormouse_sansio::UnixTime;
use tokio_postgres::Row;

use crate::error::{Error, Fault};
use crate::join::Database;
use crate::link::{Link, seconds};
use crate::news::DENIALS;

/// Longest name that can be refused, in bytes; the table has the same bound.
const WHOM_MOST: usize = 2048;

/// One denial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// A name or a fingerprint, in the notation in which it is displayed.
    pub whom: String,
    /// Since when.
    pub since: UnixTime,
}

const READ: &str = "select whom, since from dormouse.denial order by since, whom limit 1000001";
/// More than these are not read, lest some be left out unnoticed.
const MOST: usize = 1_000_000;
const DENY: &str =
    "with new as (insert into dormouse.denial values ($1, $2) on conflict do nothing returning whom)
    select count(pg_notify($3, $4)) from new";
const ALLOW: &str = "with gone as (delete from dormouse.denial where whom = $1 returning whom)
    select count(pg_notify($2, $3)) from gone";

impl Database {
    /// All denials, the oldest first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn denials(&mut self) -> Result<Vec<Denial>, Error> {
        let work = async |link: &mut Link| {
            let rows = link.query(READ, &[]).await?;
            if rows.len() > MOST {
                let (server, what) = (link.server.clone(), format!("more than {MOST} rows"));
                return Err(Error::Content { server, table: "denial", what }.into());
            }
            rows.iter().map(|row| denial(link, row)).collect()
        };
        self.link.within("read denials", work).await
    }

    /// Writes a denial; one that is there stays as it is. True if it is new: then all gateways are told.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn deny(&mut self, denial: &Denial) -> Result<bool, Error> {
        if denial.whom.len() > WHOM_MOST || denial.whom.contains('\0') {
            return Err(Error::Settings(format!("a name of more than {WHOM_MOST} bytes cannot be refused")));
        }
        let work = async |link: &mut Link| {
            let since = seconds(denial.since);
            let rows = link.query(DENY, &[&denial.whom, &since, &DENIALS, &link.gateway.clone()]).await?;
            changed(&rows)
        };
        self.link.within("write a denial", work).await
    }

    /// Takes a denial back. False if there was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn allow(&mut self, whom: &str) -> Result<bool, Error> {
        if whom.contains('\0') {
            return Ok(false);
        }
        let work = async |link: &mut Link| {
            changed(&link.query(ALLOW, &[&whom, &DENIALS, &link.gateway.clone()]).await?)
        };
        self.link.within("delete a denial", work).await
    }
}

fn changed(rows: &[Row]) -> Result<bool, Fault> {
    let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(count > 0)
}

fn denial(link: &Link, row: &Row) -> Result<Denial, Fault> {
    let cells = link.cells("denial", row);
    Ok(Denial { whom: cells.get(0)?, since: cells.time(1, "since")? })
}
