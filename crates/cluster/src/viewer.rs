//! A look at the cluster with a gateway's own login, for people: it takes no place among the gateways, and writes nothing.

use dormouse_crypto::Secret;
use zeroize::Zeroizing;

use crate::error::{Error, Fault};
use crate::join::Settings;
use crate::keys;
use crate::link::Link;
use crate::server::{Server, check_name, role};
use crate::status::{self, Status};
use crate::users::{self, Content, UserKind};

/// A connection that only reads.
pub struct Viewer {
    link: Link,
    key: Secret,
}

impl core::fmt::Debug for Viewer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Viewer").field(&self.link.server).finish()
    }
}

/// What a gateway needs, by table; as `GRANTS` of the schema gives it.
const LACKING: &str = "select t || ': ' || p from (values
        ('cluster', 'select'), ('gateway', 'select'), ('gateway', 'insert'), ('gateway', 'update'),
        ('lineage', 'select'), ('lineage', 'insert'), ('lineage', 'update'), ('lineage', 'delete'),
        ('lease', 'select'), ('lease', 'insert'), ('lease', 'update'), ('lease', 'delete'),
        ('ticket_key', 'select'), ('ticket_key', 'insert'), ('ticket_key', 'update'), ('ticket_key', 'delete'),
        ('user_entry', 'select'), ('user_entry', 'insert'), ('user_entry', 'update'),
        ('load_history', 'select'), ('load_history', 'insert'), ('load_history', 'update'),
        ('session', 'select'), ('session', 'insert'), ('session', 'update'), ('session', 'delete'),
        ('ended', 'select'), ('ended', 'insert'), ('ended', 'delete'),
        ('denial', 'select'), ('denial', 'insert'), ('denial', 'delete'),
        ('orders', 'select'), ('orders', 'insert'), ('orders', 'delete')) as needed (t, p)
    where not pg_catalog.has_table_privilege('dormouse.' || t, p) order by t, p";
const READ_ONLY: &str = "set default_transaction_read_only = on";

impl Viewer {
    /// Connects, logs in as the gateway of `settings`, and demands tables of this release.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn connect(settings: &Settings) -> Result<Self, Error> {
        check_name(&settings.gateway)?;
        let user = role(&settings.gateway);
        let server = Server::new(&settings.url, settings.password.as_ref(), &settings.authorities, &user)?;
        let mut link = Link::connect(&server, "").await?;
        let prepare = async |link: &mut Link| {
            link.client.batch_execute(READ_ONLY).await?;
            link.check_version().await
        };
        link.within("read the version of the tables", prepare).await?;
        Ok(Self { link, key: settings.key.clone() })
    }

    /// As [`crate::Database::status`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&mut self) -> Result<Status, Error> {
        self.link.at_length("read the cluster's state", async |link| status::status(link).await).await
    }

    /// What this gateway's role may not do, and must: each a table and a right.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn lacking(&mut self) -> Result<Vec<String>, Error> {
        let work = async |link: &mut Link| {
            let rows = link.query(LACKING, &[]).await?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_, Fault>>()
        };
        self.link.within("read the rights of this gateway's role", work).await
    }

    /// How many ticket keys open under this gateway's cluster key: all that there are.
    ///
    /// # Errors
    /// [`Error::ClusterKey`] if one does not; else see [`Error`].
    pub async fn check_key(&mut self) -> Result<usize, Error> {
        let wrong = || Error::Settings("the cluster key has not 32 bytes".into());
        let key: Zeroizing<[u8; 32]> = Zeroizing::new(self.key.as_bytes().try_into().map_err(|_| wrong())?);
        let work = async |link: &mut Link| {
            let rows = link.query(keys::READ, &[]).await?;
            for row in &rows {
                keys::open(&link.cells("ticket_key", row), &link.server, &key)?;
            }
            Ok(rows.len())
        };
        self.link.within("read ticket keys", work).await
    }

    /// Users whose passwords do not open under this gateway's cluster key, and how many do.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn check_users(&mut self) -> Result<(Vec<String>, usize), Error> {
        let all = users::read(&mut self.link, UserKind::Password, &self.key).await?;
        let closed = all.iter().filter(|entry| entry.content == Content::Unreadable);
        let open = all.iter().filter(|entry| matches!(entry.content, Content::Here(_)));
        Ok((closed.map(|entry| entry.key.name.clone()).collect(), open.count()))
    }
}
