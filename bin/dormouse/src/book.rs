//! Where users are on record: in this gateway's files, or, where gateways share a database, there. Owns which of the two counts: what the database says
//! goes before the files, in which users of a time before it may still be, and a change by a command that has seen an older state of a user is refused.

use crate::cluster::access;
use crate::enrol::place::{self, PASSWORDS_HEAD, Place};
use crate::enrol::users::{self, User};
use crate::enrol::{failed, names, not_written, wrong};
use dormouse_cluster::{self as cluster, Content, UserEntry, UserKey, UserKind, Users};
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::Secret;
use dormouse_eap::NtHash;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::state::create_atomically;
use dormouse_node::config;
use dormouse_node::config::file::File;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Book<'p> {
    place: &'p Place,
    shared: Option<Shared>,
}

/// The database, and what was seen there.
#[derive(Debug)]
struct Shared {
    runtime: Runtime,
    users: Users,
    seen: BTreeMap<UserKey, u64>,
}

/// A connection's users with passwords: its name and its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of<'a> {
    pub(crate) connection: &'a str,
    pub(crate) path: &'a Path,
}

fn record(name: &str) -> UserKey {
    UserKey { kind: UserKind::Record, connection: String::new(), name: name.to_owned() }
}

fn password(connection: &str, login: &str) -> UserKey {
    UserKey { kind: UserKind::Password, connection: connection.to_owned(), name: login.to_owned() }
}

impl Shared {
    fn ask<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Users) -> Result<T, cluster::Error>,
    ) -> Result<T, Error> {
        let Self { runtime, users, .. } = self;
        runtime.block_on(work(users)).map_err(access::told)
    }

    fn all(&mut self, kind: UserKind) -> Result<Vec<UserEntry>, Error> {
        let all = self.ask(async |users| users.all(kind).await)?;
        self.seen.extend(all.iter().map(|entry| (entry.key.clone(), entry.version)));
        Ok(all)
    }

    fn find(&mut self, key: &UserKey) -> Result<Option<Content>, Error> {
        let found = self.ask(async |users| users.find(key).await)?;
        self.seen.insert(key.clone(), found.as_ref().map_or(0, |entry| entry.version));
        Ok(found.map(|entry| entry.content))
    }

    /// Over what was seen last.
    fn put(&mut self, key: UserKey, content: Option<&Secret>) -> Result<(), Error> {
        let seen = self.seen.get(&key).copied().unwrap_or(0);
        let version = self.ask(async |users| users.put(&key, seen, content, &mut OsEntropy).await)?;
        self.seen.insert(key, version);
        Ok(())
    }
}

impl<'p> Book<'p> {
    /// That of a gateway, as its configuration says; where there is none, its files.
    ///
    /// # Errors
    /// If the database that it shares cannot be asked: nothing is looked up or changed without it.
    pub(crate) fn open(place: &'p Place) -> Result<Self, Error> {
        let Some(text) = place::read_text(&place.config)? else { return Ok(Self::files(place)) };
        let wrong = |e: String| format!("{}: {}", place.config.display(), e.trim_end());
        let file = config::parse(&text).map_err(|e| Error::new(ErrorKind::Other, wrong(e)))?;
        Self::of(place, &file)
    }

    /// The same of a configuration that was read.
    pub(crate) fn of(place: &'p Place, file: &File) -> Result<Self, Error> {
        let Some(settings) = access::settings(file)? else { return Ok(Self::files(place)) };
        let runtime = access::runtime()?;
        let users = runtime.block_on(Users::connect(&settings)).map_err(|e| {
            let mut e = access::told(e);
            e.message = format!("users are in the database that the gateways share: {}", e.message);
            e
        })?;
        Ok(Self { place, shared: Some(Shared { runtime, users, seen: BTreeMap::new() }) })
    }

    /// The files alone.
    pub(crate) const fn files(place: &'p Place) -> Self {
        Self { place, shared: None }
    }

    /// Whether other gateways have it too.
    pub(crate) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The user of this name, by certificate; `None` if there is none.
    ///
    /// # Errors
    /// If it can be none's name, or what is on record cannot be read.
    pub(crate) fn find(&mut self, name: &str) -> Result<Option<User>, Error> {
        names::user(name)?;
        match &mut self.shared {
            Some(shared) => match shared.find(&record(name))? {
                Some(content) => read(name, &content),
                None => users::find(self.place, name),
            },
            None => users::find(self.place, name),
        }
    }

    /// Demands the user of this name.
    ///
    /// # Errors
    /// As [`Self::find`]; with the names that are known, if there is no such user.
    pub(crate) fn get(&mut self, name: &str) -> Result<User, Error> {
        if let Some(user) = self.find(name)? {
            return Ok(user);
        }
        let known = self.all()?.into_iter().map(|user| user.name).collect();
        Err(wrong(format!("no user is called {name}")).with_offer(Vec::new(), known))
    }

    /// All users by certificate, by name.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub(crate) fn all(&mut self) -> Result<Vec<User>, Error> {
        let own = users::all(self.place)?;
        let Some(shared) = &mut self.shared else { return Ok(own) };
        let mut all: BTreeMap<String, User> = own.into_iter().map(|user| (user.name.clone(), user)).collect();
        for UserEntry { key, content, .. } in shared.all(UserKind::Record)? {
            // One that this program would not have written is left out.
            if names::user(&key.name).is_err() {
                continue;
            }
            match read(&key.name, &content)? {
                Some(user) => drop(all.insert(key.name, user)),
                None => drop(all.remove(&key.name)),
            }
        }
        Ok(all.into_values().collect())
    }

    /// Writes down a user's certificates: over `before`, or as a new user.
    ///
    /// # Errors
    /// If they cannot be written, or are others than `before` by now.
    pub(crate) fn put(&mut self, before: Option<&User>, user: &User) -> Result<(), Error> {
        let text = user.text()?;
        if let Some(shared) = &mut self.shared {
            return shared.put(record(&user.name), Some(&Secret::from(text.into_bytes())));
        }
        let path = users::path(self.place, &user.name);
        if before.is_some() {
            return place::write(&[(path, text.as_bytes(), 0o600)]);
        }
        self.place.make_private(users::DIRECTORY)?;
        create_atomically(&path, text.as_bytes(), 0o600).map_err(not_written)
    }

    /// Forgets a user's certificates, here and at all gateways.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Error> {
        let path = users::path(self.place, name);
        if let Some(shared) = &mut self.shared {
            shared.put(record(name), None)?;
        }
        match fs::remove_file(&path) {
            Err(e) if self.shared.is_some() && e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(|e| failed(&path, &e)),
        }
    }

    /// A connection's users with passwords, by the names that they log in with.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn passwords(&mut self, of: Of<'_>) -> Result<BTreeMap<String, NtHash>, Error> {
        let mut known = read_passwords(of.path)?;
        let Some(shared) = &mut self.shared else { return Ok(known) };
        for UserEntry { key, content, .. } in shared.all(UserKind::Password)? {
            if key.connection != of.connection {
                continue;
            }
            // As the daemon has it: by identity, in which case does not count.
            known.retain(|name, _| !name.eq_ignore_ascii_case(&key.name));
            if let Content::Here(hash) = &content
                && let Ok(hash) = <[u8; NtHash::LEN]>::try_from(hash.as_bytes())
            {
                known.insert(key.name, NtHash::from(hash));
            }
        }
        Ok(known)
    }

    /// Gives a user a password, for all gateways. `known`: whom [`Self::passwords`] said.
    ///
    /// # Errors
    /// If it cannot be written; nothing has changed then.
    pub(crate) fn set_password(
        &mut self,
        of: Of<'_>,
        login: &str,
        hash: NtHash,
        mut known: BTreeMap<String, NtHash>,
    ) -> Result<(), Error> {
        if let Some(shared) = &mut self.shared {
            return shared.put(password(of.connection, login), Some(&Secret::from(hash.as_bytes())));
        }
        known.insert(login.to_owned(), hash);
        write_passwords(of.path, &known)
    }

    /// Takes a user's password away, for all gateways.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(crate) fn remove_password(&mut self, of: Of<'_>, login: &str) -> Result<(), Error> {
        if let Some(shared) = &mut self.shared {
            shared.put(password(of.connection, login), None)?;
        }
        // Also from the file: it would count again without the database.
        let mut own = read_passwords(of.path)?;
        match own.remove(login) {
            Some(_) => write_passwords(of.path, &own),
            None => Ok(()),
        }
    }
}

/// What the database has of a user; `None` if he was removed.
fn read(name: &str, content: &Content) -> Result<Option<User>, Error> {
    let place = format!("the shared database, user {name}");
    match content {
        Content::Here(text) => {
            let text = std::str::from_utf8(text.as_bytes());
            let text = text.map_err(|_| Error::new(ErrorKind::Other, format!("{place}: not UTF-8")))?;
            users::parse(text, name, &place).map(Some)
        }
        Content::Removed | Content::Unreadable => Ok(None),
    }
}

fn read_passwords(path: &Path) -> Result<BTreeMap<String, NtHash>, Error> {
    let Some(content) = place::read(path)? else { return Ok(BTreeMap::new()) };
    let wrong = |e| Error::new(ErrorKind::Other, format!("{}: {e}", path.display()));
    config::users(content.as_bytes()).map_err(wrong)
}

fn write_passwords(path: &Path, users: &BTreeMap<String, NtHash>) -> Result<(), Error> {
    let mut text = Zeroizing::new(String::with_capacity(PASSWORDS_HEAD.len() + 512 * users.len()));
    text.push_str(PASSWORDS_HEAD);
    for (name, hash) in users {
        // A string in double quotes of TOML: names of users have nothing to be escaped but these.
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(text, "\n[\"{name}\"]\nnt_hash = \"{}\"\n", Zeroizing::new(hash.to_hex()).as_str());
    }
    place::write(&[(path.to_owned(), text.as_bytes(), 0o600)])
}
