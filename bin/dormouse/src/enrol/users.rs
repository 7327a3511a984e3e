//! The gateway's users: one small file for each, which says which certificates were issued. Owns that format; it never has a device's key.

use super::{failed, names, place};
use crate::enrol::place::Place;
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::cert::Certificate;
use dormouse_sansio::UnixTime;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// Where they are.
pub(crate) const DIRECTORY: &str = "users";
const VERSION: u32 = 1;
/// A user whose last certificate ends sooner is warned of, in days.
pub(crate) const SOON_DAYS: u64 = 30;

/// A user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    version: u32,
    /// By which it is called here.
    pub(crate) name: String,
    /// The identity that its devices prove.
    pub(crate) id: String,
    /// The connection that it was made for.
    pub(crate) connection: String,
    /// Its devices do not renew their certificates themselves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_renewals: bool,
    /// What was issued, oldest first.
    #[serde(rename = "certificate")]
    pub(crate) certificates: Vec<Known>,
}

/// A certificate that was issued.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    /// `sha256:` and 64 hexadecimal digits, as `dormouse deny` takes it.
    pub(crate) fingerprint: String,
    /// When, in Unix time.
    pub(crate) issued: u64,
    /// Until when it counts, in Unix time.
    pub(crate) until: u64,
    /// SHA-256 of its key, in hexadecimal digits: a key gets one certificate. Of earlier releases it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl Known {
    /// What is kept of a certificate that is issued now.
    pub(crate) fn of(certificate: &Certificate, now: UnixTime) -> Self {
        Self {
            fingerprint: format!("sha256:{}", hex::encode(certificate.fingerprint())),
            issued: now.0,
            until: certificate.not_after().0,
            key: Some(hex::encode(certificate.key_hash())),
        }
    }
}

impl User {
    /// A new one, without certificates.
    pub(crate) fn new(name: &str, id: String, connection: &str) -> Self {
        let (name, connection) = (name.to_owned(), connection.to_owned());
        Self { version: VERSION, name, id, connection, no_renewals: false, certificates: Vec::new() }
    }

    /// Until when the newest certificate counts.
    pub(crate) fn until(&self) -> UnixTime {
        UnixTime(self.certificates.iter().map(|c| c.until).max().unwrap_or(0))
    }

    /// Whole days from `now` until then; `None` if it has ended.
    pub(crate) fn days_left(&self, now: UnixTime) -> Option<u64> {
        (self.until() > now).then(|| self.until().saturating_since(now).as_secs() / 86_400)
    }

    /// What has not ended at `now`: what is to be denied of a user that is removed.
    pub(crate) fn living(&self, now: UnixTime) -> impl Iterator<Item = &Known> {
        self.certificates.iter().filter(move |c| c.until >= now.0)
    }

    /// The file as it is written.
    pub(crate) fn text(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::new(ErrorKind::Other, format!("user {}: {e}", self.name)))
    }
}

/// The file of a user, whose name was checked.
pub(crate) fn path(place: &Place, name: &str) -> PathBuf {
    place.path(DIRECTORY).join(format!("{name}.toml"))
}

/// The user of this name; `None` if there is none.
///
/// # Errors
/// If it can be none's name, or its file cannot be read.
pub(crate) fn find(place: &Place, name: &str) -> Result<Option<User>, Error> {
    names::user(name)?;
    let path = path(place, name);
    let Some(text) = place::read_text(&path)? else { return Ok(None) };
    parse(&text, name, &path.display().to_string()).map(Some)
}

/// The user of this name as he is on record at `from`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(text: &str, name: &str, from: &str) -> Result<User, Error> {
    let bad = |why: String| Err(Error::new(ErrorKind::Other, format!("{from}: {why}")));
    match toml::from_str::<User>(text) {
        Ok(user) if user.version != VERSION => {
            bad(format!("of version {}, this dormouse reads version {VERSION}", user.version))
        }
        Ok(user) if user.name != name => bad(format!("says that it is of {}", names::shown(&user.name))),
        Ok(user) => Ok(user),
        Err(e) => bad(e.message().to_owned()),
    }
}

/// All users, by name.
///
/// # Errors
/// If the directory, or one of them, cannot be read.
pub(crate) fn all(place: &Place) -> Result<Vec<User>, Error> {
    let dir = place.path(DIRECTORY);
    let entries = match fs::read_dir(&dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| failed(&dir, &e))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .filter(|name| names::user(name).is_ok())
        .collect();
    names.sort();
    let mut users = Vec::new();
    for name in names {
        // One that was removed meanwhile is none.
        users.extend(find(place, &name)?);
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_others_are_refused_with_the_file() {
        let dir = std::env::temp_dir().join(format!("dormouse-users-{}", std::process::id()));
        let place = Place::of(&dir.join("dormouse.toml"));
        fs::create_dir_all(dir.join(DIRECTORY)).unwrap();
        assert_eq!(all(&place).unwrap(), []);
        let mut user = User::new("joe", "joe.example.org".into(), "devices");
        assert_eq!(user.days_left(UnixTime(1)), None);
        for (fingerprint, until) in [("sha256:00", 100), ("sha256:01", 86_400 * 3)] {
            user.certificates.push(Known { fingerprint: fingerprint.into(), issued: 1, until, key: None });
        }
        fs::write(path(&place, "joe"), user.text().unwrap()).unwrap();
        fs::write(place.path("users/Not a user.toml"), "").unwrap();
        assert_eq!(all(&place).unwrap(), [user.clone()]);
        assert_eq!((user.days_left(UnixTime(0)), user.living(UnixTime(101)).count()), (Some(3), 1));

        assert_eq!(find(&place, "ann").unwrap(), None);
        assert!(find(&place, "../joe").unwrap_err().message.contains("is no name of a user"));
        for (text, said) in [
            (
                user.text().unwrap().replace("version = 1", "version = 2"),
                "of version 2, this dormouse reads version 1",
            ),
            (user.text().unwrap().replace("name = \"joe\"", "name = \"eve\""), "says that it is of \"eve\""),
            ("nonsense".into(), "users/joe.toml: "),
        ] {
            fs::write(path(&place, "joe"), text).unwrap();
            let error = find(&place, "joe").unwrap_err();
            assert!(error.message.contains(said) && error.message.contains("users/joe.toml"), "{error}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
