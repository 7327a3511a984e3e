//! Users that all gateways have: hashes of passwords, and the records of which certificates were issued to whom. Owns the table `user_entry`; what a
//! record says, and who may come, is said elsewhere.
//!
//! A hash is as good as its password, so it is there only wrapped (AES-256-GCM) under a key that is made of the cluster key. Whose it is, and its
//! version, are authenticated with it: who can write to the database can take a user out, but make none, and give none another's password. A record
//! holds no secret. A user that was removed stays as an entry without content, so that a gateway's own file does not bring it back.

use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret, aead256_open, aead256_seal};
use dormouse_sansio::Entropy;
use tokio_postgres::Row;
use zeroize::Zeroizing;

use crate::error::{Error, Fault};
use crate::join::{Database, Settings};
use crate::link::{Cells, Link};
use crate::news::USERS;
use crate::server::{Server, check_name, role};

const LABEL: &[u8] = b"dormouse cluster: passwords of users";
const NONCE: usize = 12;
const TAG: usize = 16;
/// Bounds of the table.
const CONNECTION_MOST: usize = 256;
const NAME_MOST: usize = 1_024;
const CONTENT_MOST: usize = 65_536 - NONCE - TAG;
/// More than these are not read, lest some be left out unnoticed.
const MOST: usize = 1_000_000;

/// What an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UserKind {
    /// The hash of a password.
    Password,
    /// Which certificates were issued to a user.
    Record,
}

impl UserKind {
    const fn text(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Record => "record",
        }
    }
}

/// Whose an entry is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UserKey {
    /// What it is about.
    pub kind: UserKind,
    /// The connection that the password is for; empty of a record.
    pub connection: String,
    /// The name that the user logs in with; of a record, that by which he is called.
    pub name: String,
}

/// What an entry says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// The user was removed.
    Removed,
    /// The hash does not open: it was wrapped under another cluster key, or changed by somebody who has none.
    Unreadable,
    /// The hash, or the text of the record.
    Here(Secret),
}

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserEntry {
    /// Whose.
    pub key: UserKey,
    /// How often it was changed, 1 at least.
    pub version: u64,
    /// What it says.
    pub content: Content,
}

const READ: &str = "select kind, connection, name, version, content from dormouse.user_entry
    where kind = $1 order by kind, connection, name limit 1000001";
const FIND: &str = "select kind, connection, name, version, content from dormouse.user_entry
    where kind = $1 and connection = $2 and name = $3";
/// Only if it is still as it was read.
const PUT: &str = "with new as (
        insert into dormouse.user_entry as e (kind, connection, name, version, changed, content)
        values ($1, $2, $3, $4, extract(epoch from clock_timestamp())::bigint, $5)
        on conflict (kind, connection, name) do update
            set version = excluded.version, changed = excluded.changed, content = excluded.content
            where e.version = excluded.version - 1
        returning e.version
    ) select count(pg_notify($6, $7)) from new";

/// The key that passwords are wrapped under.
fn wrapping_key(cluster_key: &Secret) -> Result<Zeroizing<[u8; 32]>, Error> {
    let derived = PrfKey::new(Prf::HmacSha256, cluster_key.as_bytes()).compute(&[LABEL]);
    let bytes = derived.as_bytes().try_into();
    bytes.map(Zeroizing::new).map_err(|_| Error::Settings("the cluster key makes no key for users".into()))
}

impl UserKey {
    fn check(&self) -> Result<(), Error> {
        let fits = self.connection.len() <= CONNECTION_MOST
            && (1..=NAME_MOST).contains(&self.name.len())
            && !self.connection.contains('\0')
            && !self.name.contains('\0');
        match fits {
            true => Ok(()),
            false => Err(Error::Settings(format!("a user's name has 1 to {NAME_MOST} bytes"))),
        }
    }

    /// What is authenticated with a password.
    fn about(&self, version: u64) -> Vec<u8> {
        let mut about = b"dormouse user entry 1".to_vec();
        for text in [self.kind.text(), &self.connection, &self.name] {
            about.extend_from_slice(&(text.len() as u64).to_be_bytes());
            about.extend_from_slice(text.as_bytes());
        }
        about.extend_from_slice(&version.to_be_bytes());
        about
    }
}

fn wrap(
    key: &UserKey,
    version: u64,
    content: &Secret,
    cluster_key: &Secret,
    entropy: &mut dyn Entropy,
) -> Result<Vec<u8>, Error> {
    if key.kind == UserKind::Record {
        return Ok(content.as_bytes().to_vec());
    }
    let mut nonce = [0; NONCE];
    entropy.fill(&mut nonce);
    // Encrypted in place: the hash does not outlive this.
    let mut sealed = Vec::with_capacity(content.len() + TAG);
    sealed.extend_from_slice(content.as_bytes());
    let wrapping = wrapping_key(cluster_key)?;
    aead256_seal(&wrapping, &nonce, &key.about(version), &mut sealed)
        .map_err(|e| Error::Settings(format!("a password cannot be wrapped: {e}")))?;
    Ok([&nonce[..], &sealed].concat())
}

fn open(key: &UserKey, version: u64, stored: &[u8], wrapping: &[u8; 32]) -> Content {
    if key.kind == UserKind::Record {
        return Content::Here(Secret::from(stored));
    }
    let Some((nonce, sealed)) = stored.split_first_chunk::<NONCE>() else { return Content::Unreadable };
    let mut hash = sealed.to_vec();
    match aead256_open(wrapping, nonce, &key.about(version), &mut hash) {
        Ok(()) => Content::Here(Secret::from(hash)),
        Err(_) => Content::Unreadable,
    }
}

fn entry(cells: &Cells<'_>, wrapping: &[u8; 32]) -> Result<UserEntry, Fault> {
    let kind = match cells.get::<&str>(0)? {
        "password" => UserKind::Password,
        "record" => UserKind::Record,
        _ => return Err(cells.wrong("kind is neither password nor record")),
    };
    let key = UserKey { kind, connection: cells.get(1)?, name: cells.get(2)? };
    let version = cells.number(3, "version")?;
    let stored: Option<&[u8]> = cells.get(4)?;
    let content = stored.map_or(Content::Removed, |stored| open(&key, version, stored, wrapping));
    Ok(UserEntry { key, version, content })
}

fn entries(link: &Link, rows: &[Row], wrapping: &[u8; 32]) -> Result<Vec<UserEntry>, Fault> {
    if rows.len() > MOST {
        let (server, what) = (link.server.clone(), format!("more than {MOST} rows"));
        return Err(Error::Content { server, table: "user_entry", what }.into());
    }
    rows.iter().map(|row| entry(&link.cells("user_entry", row), wrapping)).collect()
}

pub(crate) async fn read(
    link: &mut Link,
    kind: UserKind,
    cluster_key: &Secret,
) -> Result<Vec<UserEntry>, Error> {
    let wrapping = wrapping_key(cluster_key)?;
    let work = async |link: &mut Link| {
        let rows = link.query(READ, &[&kind.text()]).await?;
        entries(link, &rows, &wrapping)
    };
    link.at_length("read users", work).await
}

impl Database {
    /// All users with passwords, also those that were removed.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn passwords(&mut self) -> Result<Vec<UserEntry>, Error> {
        read(&mut self.link, UserKind::Password, &self.key).await
    }
}

/// A connection, with a gateway's own login, of a program that looks at users and changes them: it takes no place among the gateways, whom the
/// database tells of each change.
pub struct Users {
    link: Link,
    key: Secret,
}

impl core::fmt::Debug for Users {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Users").field(&self.link.server).finish()
    }
}

impl Users {
    /// Connects, logs in as the gateway of `settings`, and demands tables of this release.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn connect(settings: &Settings) -> Result<Self, Error> {
        check_name(&settings.gateway)?;
        let user = role(&settings.gateway);
        let server = Server::new(&settings.url, settings.password.as_ref(), &settings.authorities, &user)?;
        let mut link = Link::connect(&server, "").await?;
        link.within("read the version of the tables", async |link| link.check_version().await).await?;
        Ok(Self { link, key: settings.key.clone() })
    }

    /// Where: hosts and database.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.link.server
    }

    /// All entries of a kind, also of users that were removed.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn all(&mut self, kind: UserKind) -> Result<Vec<UserEntry>, Error> {
        read(&mut self.link, kind, &self.key).await
    }

    /// One entry; `None` if there is none and was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn find(&mut self, key: &UserKey) -> Result<Option<UserEntry>, Error> {
        key.check()?;
        let wrapping = wrapping_key(&self.key)?;
        let work = async |link: &mut Link| {
            let rows = link.query(FIND, &[&key.kind.text(), &key.connection, &key.name]).await?;
            Ok(entries(link, &rows, &wrapping)?.pop())
        };
        self.link.within("read a user", work).await
    }

    /// Writes an entry, or with `None` removes the user, and tells all gateways. `seen` is the version that was read, 0 if there was none. Returns
    /// the new version.
    ///
    /// # Errors
    /// [`Error::UserChanged`] if it has another version by now; else see [`Error`].
    pub async fn put(
        &mut self,
        key: &UserKey,
        seen: u64,
        content: Option<&Secret>,
        entropy: &mut dyn Entropy,
    ) -> Result<u64, Error> {
        key.check()?;
        if content.is_some_and(|content| content.len() > CONTENT_MOST) {
            return Err(Error::Settings(format!("what is kept of {} is too long", key.name)));
        }
        let version = seen.saturating_add(1);
        let number =
            i64::try_from(version).map_err(|_| Error::Settings("a version is out of range".into()))?;
        let content = content.map(|content| wrap(key, version, content, &self.key, entropy)).transpose()?;
        let work = async |link: &mut Link| {
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
                &key.kind.text(),
                &key.connection,
                &key.name,
                &number,
                &content,
                &USERS,
                &link.gateway.clone(),
            ];
            let rows = link.query(PUT, &parameters).await?;
            let written: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
            match written {
                0 => {
                    let (server, name) = (link.server.clone(), key.name.clone());
                    Err(Error::UserChanged { server, name }.into())
                }
                _ => Ok(version),
            }
        };
        self.link.within("write a user", work).await
    }
}
