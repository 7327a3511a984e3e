//! One connection to the database: statements, prepared once, and what the server announces. Owns the time that an answer may take: a
//! server that hangs is an error in seconds, and its connection is given up.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use dormouse_sansio::UnixTime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::{FromSql, ToSql};
use tokio_postgres::{AsyncMessage, Client, Row, Statement};

use crate::error::{Error, Fault, chain, explain, has_io};
use crate::news::Inbox;
use crate::schema::SCHEMA;
use crate::server::Server;

/// How long all of a method may take. The server gives up a statement before (see [`SESSION`]).
const ANSWER: Duration = Duration::from_secs(5);
/// The same where a whole table is read or emptied ([`Link::at_length`]).
const AT_LENGTH: Duration = Duration::from_secs(60);
/// How long it may take to connect, log in and set the session up.
const LOGIN: Duration = Duration::from_secs(8);
/// Attempts at a transaction that meets another's.
const ATTEMPTS: usize = 5;

/// Plans by index whatever the statistics say: a table that has just been filled has none, and all statements are by key. What commits is
/// on the disk.
const SESSION: &str = "set statement_timeout = '4s'; set lock_timeout = '2s'; set idle_in_transaction_session_timeout = '10s';
    set default_transaction_isolation = 'read committed'; set search_path = ''; set jit = off;
    set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; set plan_cache_mode = force_generic_plan;
    select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'remote_apply' then 'remote_apply' else 'on' end, false)";

/// See the module's documentation.
pub(crate) struct Link {
    pub(crate) client: Client,
    /// For messages.
    pub(crate) server: String,
    /// Who we are among the gateways; empty for an administrator.
    pub(crate) gateway: String,
    pub(crate) inbox: Arc<Inbox>,
    prepared: BTreeMap<&'static str, Statement>,
    driver: JoinHandle<()>,
}

impl Link {
    /// Connects and logs in, within [`LOGIN`].
    pub(crate) async fn connect(server: &Server, gateway: &str) -> Result<Self, Error> {
        let name = server.name.clone();
        let unreachable = |why: String| Error::Unreachable { server: name.clone(), why };
        let connecting = server.config.connect(server.tls.clone());
        let (client, mut connection) = match timeout(LOGIN, connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(e)) => return Err(refused(&name, &e)),
            Err(_) => return Err(unreachable("no answer in time".into())),
        };
        let inbox = Arc::new(Inbox::new(gateway));
        let heard = inbox.clone();
        let driver = tokio::spawn(async move {
            let gone = loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(n))) => heard.put(n.channel(), n.payload()),
                    Some(Ok(_)) => {}
                    Some(Err(e)) => break chain(&e),
                    None => break "the server closed it".into(),
                }
            };
            heard.close(gone);
        });
        let mut link =
            Self { client, server: name, gateway: gateway.into(), inbox, prepared: BTreeMap::new(), driver };
        let set = async |link: &mut Self| Ok(link.client.batch_execute(SESSION).await?);
        link.within("prepare the session", set).await?;
        Ok(link)
    }

    /// Does some work within [`ANSWER`], again if it met another's transaction.
    pub(crate) async fn within<T>(
        &mut self,
        doing: &'static str,
        work: impl AsyncFnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        self.work(doing, ANSWER, work).await
    }

    /// The same for what takes as long as a table is large.
    pub(crate) async fn at_length<T>(
        &mut self,
        doing: &'static str,
        mut work: impl AsyncFnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let patient = async |link: &mut Self| {
            link.client.batch_execute("set statement_timeout = '50s'").await?;
            let done = work(link).await;
            // A connection that failed needs none.
            let reset = link.client.batch_execute("set statement_timeout = '4s'").await;
            let done = done?;
            reset?;
            Ok(done)
        };
        self.work(doing, AT_LENGTH, patient).await
    }

    async fn work<T>(
        &mut self,
        doing: &'static str,
        limit: Duration,
        mut work: impl AsyncFnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let again = async {
            for _ in 1..ATTEMPTS {
                match work(self).await {
                    Err(fault) if fault.is_collision() => {}
                    done => return done,
                }
            }
            work(self).await
        };
        let done = timeout(limit, again).await;
        let server = self.server.clone();
        match done {
            Ok(done) => done.map_err(|fault| self.reason(fault.explain(&server, doing))),
            Err(_) => {
                // Its answers would be taken for those of later statements' at best.
                self.driver.abort();
                self.inbox.close("the server did not answer in time".into());
                Err(Error::Hangs { server, doing })
            }
        }
    }

    /// Who waits for a statement only learns that the connection is closed; who reads it knows why.
    fn reason(&self, error: Error) -> Error {
        match (error, self.inbox.gone()) {
            (Error::Lost { server, .. }, Some(why)) => Error::Lost { server, why },
            (error, _) => error,
        }
    }

    /// A statement, prepared when it is used first.
    pub(crate) async fn prepare(&mut self, sql: &'static str) -> Result<Statement, Fault> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }

    /// One statement: its own transaction.
    pub(crate) async fn query(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        let statement = self.prepare(sql).await?;
        Ok(self.client.query(&statement, parameters).await?)
    }

    /// Before anything else of the tables is touched.
    pub(crate) async fn check_version(&self) -> Result<(), Fault> {
        let row = self.client.query_opt("select schema from dormouse.cluster", &[]).await?;
        let row = row.ok_or_else(|| Error::NoTables { server: self.server.clone() })?;
        self.is_version(row.try_get(0)?)
    }

    /// Whether tables of this version are ours to touch.
    pub(crate) fn is_version(&self, found: i32) -> Result<(), Fault> {
        let server = self.server.clone();
        let advice = match found.cmp(&SCHEMA) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => {
                "run `dormouse cluster init` of this release; gateways of earlier releases stop then"
            }
            Ordering::Greater => "install the release that the tables are of",
        };
        Err(Error::Version { server, found, advice }.into())
    }

    /// A row of a table, to be read.
    pub(crate) fn cells<'a>(&'a self, table: &'static str, row: &'a Row) -> Cells<'a> {
        Cells { server: &self.server, table, row }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.inbox.close("closed".into());
    }
}

/// Why a connection was refused.
fn refused(server: &str, e: &tokio_postgres::Error) -> Error {
    let (name, why) = (server.to_owned(), chain(e));
    if e.as_db_error().is_some() {
        return explain(server, "log in", e);
    }
    if why.contains("does not allow writes") {
        return Error::Standby { server: name };
    }
    // The driver says in its text alone which step it was.
    match (e.to_string().starts_with("error performing TLS handshake"), has_io(e)) {
        (true, _) => Error::Tls { server: name, why },
        (false, true) => Error::Unreachable { server: name, why },
        (false, false) if why.starts_with("authentication error") || why.contains("password") => {
            Error::Password { server: name, why }
        }
        (false, false) => Error::Unreachable { server: name, why },
    }
}

/// What the database says in one row, checked.
pub(crate) struct Cells<'a> {
    pub(crate) server: &'a str,
    pub(crate) table: &'static str,
    pub(crate) row: &'a Row,
}

impl Cells<'_> {
    /// A column that is not what it should be.
    pub(crate) fn wrong(&self, what: impl Into<String>) -> Fault {
        Fault::Told(Error::Content { server: self.server.into(), table: self.table, what: what.into() })
    }

    pub(crate) fn get<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T, Fault> {
        self.row.try_get(at).map_err(|e| self.wrong(chain(&e)))
    }

    /// A number that is not negative, and fits.
    pub(crate) fn number<T: TryFrom<i64>>(&self, at: usize, what: &str) -> Result<T, Fault> {
        let number: i64 = self.get(at)?;
        T::try_from(number).map_err(|_| self.wrong(format!("{what} is {number}")))
    }

    /// Seconds since 1970.
    pub(crate) fn time(&self, at: usize, what: &str) -> Result<UnixTime, Fault> {
        self.number(at, what).map(UnixTime)
    }

    /// So many microseconds, if there are any.
    pub(crate) fn micros(&self, at: usize) -> Result<Option<Duration>, Fault> {
        let micros: Option<i64> = self.get(at)?;
        Ok(micros.and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros))
    }

    /// So many bytes.
    pub(crate) fn bytes<const N: usize>(&self, at: usize, what: &str) -> Result<[u8; N], Fault> {
        let bytes: &[u8] = self.get(at)?;
        bytes.try_into().map_err(|_| self.wrong(format!("{what} has {} bytes, not {N}", bytes.len())))
    }
}

/// As the database has times.
pub(crate) fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
