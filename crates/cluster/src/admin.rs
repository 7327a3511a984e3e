//! What an administrator does to the cluster, as the owner of the database: tables, and a role for each gateway. Owns the names of roles;
//! a role may read and write the tables of Dormouse, and nothing else.

use dormouse_crypto::Secret;
use dormouse_sansio::Entropy;
use tokio_postgres::Transaction;
use zeroize::Zeroizing;

use crate::error::{Error, Fault};
use crate::link::Link;
use crate::schema::{GRANTS, GROUP, MIGRATIONS, SCHEMA, SLOTS_MOST};
use crate::server::Server;
pub use crate::server::{check_name, role};
use crate::status::{self, Status};

/// Bytes of a password, before they are written in hexadecimal.
const PASSWORD: usize = 24;

/// The database, and how its owner gets in.
#[derive(Clone)]
pub struct Owner {
    /// As [`crate::Settings::url`].
    pub url: String,
    /// The password, if the URL has none.
    pub password: Option<Secret>,
    /// As [`crate::Settings::authorities`].
    pub authorities: Vec<u8>,
}

/// How a gateway gets in.
#[derive(Clone, Debug)]
pub struct Account {
    /// The role: what the URL has before `@`.
    pub user: String,
    /// Its password, in ASCII. It is nowhere else: the database has a value to check it by.
    pub password: Secret,
}

/// The owner's connection.
pub struct Admin(Link);

impl core::fmt::Debug for Admin {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Admin").field(&self.0.server).finish()
    }
}

const FOUND: &str = "select schema from dormouse.cluster";
const FIRST: &str = "insert into dormouse.cluster (schema, slots, system_identifier, timeline, incarnation)
    select $1, $2, system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint, 1 from pg_control_system()";
const HAS_TABLES: &str = "select to_regclass('dormouse.cluster') is not null";
const HAS_ROLE: &str = "select exists (select from pg_catalog.pg_roles where rolname = $1)";
const SLOTS: &str = "select slots from dormouse.cluster for update";
/// A gateway that was not heard for so many seconds does not run, or is cut off.
const REST: i64 = 60;
/// One that has just joined was not heard yet, but is connected.
const RUNNING: &str = "select g.name from dormouse.gateway g
    where g.seen > extract(epoch from clock_timestamp())::bigint - $1
        or exists (select from pg_catalog.pg_stat_activity a where a.usename = 'dormouse_' || g.name and a.datname = current_database())
    order by g.name";
/// Two administrators at a time would stand in each other's way.
const ALONE: &str = "select pg_advisory_xact_lock(7237117975334838644)";
const ADVICE: &str = "log in as the owner of the database, with the right to make roles (`create role NAME login createrole`), or as a superuser";

impl Admin {
    /// Connects and logs in.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn connect(owner: &Owner) -> Result<Self, Error> {
        let server = Server::new(&owner.url, owner.password.as_ref(), &owner.authorities, "postgres")?;
        Ok(Self(Link::connect(&server, "").await?))
    }

    /// Makes the tables and the gateways' common role, or brings them up to this release. `slots`: how many gateways may share
    /// the pool; `None` leaves it, or takes four.
    ///
    /// # Errors
    /// [`Error::Version`] if the tables are of a later release; [`Error::Settings`] if a gateway has a slot beyond `slots`, or if another
    /// number was in force and a gateway runs; else see [`Error`]. Nothing has changed then.
    pub async fn init(&mut self, slots: Option<u8>) -> Result<(), Error> {
        if slots.is_some_and(|slots| !(1..=SLOTS_MOST).contains(&slots)) {
            return Err(Error::Settings(format!("a cluster has 1 to {SLOTS_MOST} slots")));
        }
        let work = async |link: &mut Link| init(link, slots).await;
        self.0.at_length("make the tables", work).await.map_err(owner_rights)
    }

    /// Makes a gateway's role, with a password that is drawn here; a role that is there gets a new password.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn add_gateway(&mut self, gateway: &str, entropy: &mut dyn Entropy) -> Result<Account, Error> {
        check_name(gateway)?;
        let mut bytes = Zeroizing::new([0; PASSWORD]);
        entropy.fill(&mut *bytes);
        let password = Secret::from(hex::encode(*bytes).into_bytes());
        let user = role(gateway);
        // The server never sees it, nor does its log.
        let verifier = Zeroizing::new(postgres_protocol::password::scram_sha_256(password.as_bytes()));
        let work = async |link: &mut Link| {
            link.check_version().await?;
            let tx = link.client.transaction().await?;
            tx.query(ALONE, &[]).await?;
            let there: bool = tx.query_one(HAS_ROLE, &[&user]).await?.try_get(0)?;
            let verb = if there { "alter" } else { "create" };
            let sql = Zeroizing::new(format!(
                "{verb} role \"{user}\" login password '{}';
                grant {GROUP} to \"{user}\"",
                *verifier
            ));
            tx.batch_execute(&sql).await?;
            tx.commit().await?;
            Ok(())
        };
        self.0.within("make a gateway's role", work).await.map_err(owner_rights)?;
        Ok(Account { user, password })
    }

    /// Removes a gateway: its slot is free, its role is gone, and it is disconnected. Its leases and lineages stay, so that its devices
    /// come back at others. False if there was none of this name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn forget_gateway(&mut self, gateway: &str) -> Result<bool, Error> {
        check_name(gateway)?;
        let user = role(gateway);
        let work = async |link: &mut Link| {
            link.check_version().await?;
            let tx = link.client.transaction().await?;
            tx.query(ALONE, &[]).await?;
            let rows = tx.execute("delete from dormouse.gateway where name = $1", &[&gateway]).await?;
            let there: bool = tx.query_one(HAS_ROLE, &[&user]).await?.try_get(0)?;
            if there {
                // Who may make roles may end their sessions only as a member.
                tx.batch_execute(&format!("grant \"{user}\" to current_user")).await?;
                tx.execute(
                    "select pg_terminate_backend(pid) from pg_catalog.pg_stat_activity where usename = $1",
                    &[&user],
                )
                .await?;
                tx.batch_execute(&format!("drop role \"{user}\"")).await?;
            }
            tx.commit().await?;
            Ok(rows > 0 || there)
        };
        self.0.within("remove a gateway", work).await.map_err(owner_rights)
    }

    /// The version of the tables; `None` if there are none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn version(&mut self) -> Result<Option<i32>, Error> {
        self.0.within("read the version of the tables", async |link| found(link).await).await
    }

    /// As [`crate::Database::status`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&mut self) -> Result<Status, Error> {
        let work = async |link: &mut Link| {
            link.check_version().await?;
            status::status(link).await
        };
        self.0.at_length("read the cluster's state", work).await
    }
}

async fn found(link: &Link) -> Result<Option<i32>, Fault> {
    let there: bool = link.client.query_one(HAS_TABLES, &[]).await?.try_get(0)?;
    if !there {
        return Ok(None);
    }
    let row = link.client.query_opt(FOUND, &[]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

async fn init(link: &mut Link, slots: Option<u8>) -> Result<(), Fault> {
    let server = link.server.clone();
    let tx = link.client.transaction().await?;
    tx.query(ALONE, &[]).await?;
    let there: bool = tx.query_one(HAS_TABLES, &[]).await?.try_get(0)?;
    let found: i32 = if there { tx.query_one(FOUND, &[]).await?.try_get(0)? } else { 0 };
    let missing = usize::try_from(found).ok().and_then(|found| MIGRATIONS.get(found..));
    let missing = missing.ok_or(Error::Version {
        server,
        found,
        advice: "install the release that the tables are of",
    })?;
    for migration in missing {
        tx.batch_execute(migration).await?;
    }
    if there {
        tx.execute("update dormouse.cluster set schema = $1", &[&SCHEMA]).await?;
    } else {
        tx.execute(FIRST, &[&SCHEMA, &i16::from(slots.unwrap_or(4))]).await?;
    }
    if let Some(slots) = slots {
        require_rest(&tx, slots).await?;
        let beyond = tx
            .query("select name from dormouse.gateway where slot >= $1 order by name", &[&i16::from(slots)])
            .await?;
        let names: Vec<String> = beyond.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if !names.is_empty() {
            let names = names.join(", ");
            return Err(Error::Settings(format!("with {slots} slots there is none left for {names}: remove gateways first, those with the highest slots")).into());
        }
        tx.execute("update dormouse.cluster set slots = $1", &[&i16::from(slots)]).await?;
    }
    let has_role: bool = tx.query_one(HAS_ROLE, &[&GROUP]).await?.try_get(0)?;
    if !has_role {
        // Roles are the server's: those of another database's tables may be made at the same time.
        let made = format!(
            "do $$ begin create role {GROUP} nologin; exception when duplicate_object or unique_violation then null; end $$"
        );
        tx.batch_execute(&made).await?;
    }
    tx.batch_execute(GRANTS).await?;
    tx.commit().await?;
    Ok(())
}

/// A gateway gives the addresses that the number of slots makes its own, by the number that it read when it joined: one that goes on with
/// another number than the next would give that one's addresses.
async fn require_rest(tx: &Transaction<'_>, slots: u8) -> Result<(), Fault> {
    // Nobody joins meanwhile.
    let now: i16 = tx.query_one(SLOTS, &[]).await?.try_get(0)?;
    if now == i16::from(slots) {
        return Ok(());
    }
    let rows = tx.query(RUNNING, &[&REST]).await?;
    let names: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    match names.is_empty() {
        true => Ok(()),
        false => Err(Error::Settings(format!(
            "the number of slots ({now}) changes only while no gateway runs, or two could give one address: stop {}, and wait for {REST} seconds",
            names.join(", ")
        ))
        .into()),
    }
}

/// What the owner lacks is not what a gateway lacks.
fn owner_rights(error: Error) -> Error {
    match error {
        Error::Rights { server, doing, why, .. } => Error::Rights { server, doing, why, advice: ADVICE },
        error => error,
    }
}
