//! `dormouse user add --password`: users who prove themselves by a password (EAP-MSCHAPv2), as the clients of phones and of Windows do. Owns
//! what such a password looks like; it is shown once, and its hash alone is kept.

use super::IssueArgs;
use super::form::{Content, Form};
use super::issue::{Own, file, parties};
use crate::book::{Book, Of};
use crate::client::Client;
use crate::control_verbs::{Output, unexpected};
use crate::enrol::bundle::Given;
use crate::enrol::gateway::{require_named, require_vouched};
use crate::enrol::names::{self, Domain};
use crate::enrol::place::{self, PASSWORDS, Place};
use crate::enrol::wrong;
use dormouse_control::{Error, ErrorKind, ExitCode, Reply, Verb};
use dormouse_io::clock::unix_now;
use dormouse_io::entropy::OsEntropy;
use dormouse_node::config::file::{Connection, File, Role};
use dormouse_node::config::{self, NtHash};
use dormouse_sansio::Entropy as _;
use serde_json::json;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Letters and digits that are not taken for each other: five bits each.
const ALPHABET: [u8; 32] = *b"abcdefghijkmnpqrstuvwxyz23456789";
/// Characters of a password, in groups of [`GROUP`]: 100 bits.
const LENGTH: usize = 20;
const GROUP: usize = 5;

/// A connection whose users have passwords.
struct Users<'f> {
    connection: &'f str,
    c: &'f Connection,
    path: &'f PathBuf,
}

impl Users<'_> {
    /// The name that this user logs in with: an identity that the connection takes.
    fn login(&self, name: &str) -> Result<String, Error> {
        if self.c.remote.id == "*" {
            return Ok(name.to_owned());
        }
        let domain = Domain::of(&self.c.remote.id, &format!("connection.{}.remote.id", self.connection))?;
        Ok(domain.identity(name)?.to_string())
    }

    /// As the book has them.
    fn of(&self) -> Of<'_> {
        Of { connection: self.connection, path: self.path }
    }
}

/// The configuration; `None` where there is no file. One that does not parse is an error: the users that it names are there all the same.
fn found(place: &Place) -> Result<Option<File>, Error> {
    let wrong = |e: String| format!("{}: {}", place.config.display(), e.trim_end());
    let parse = |text: String| config::parse(&text).map_err(|e| Error::new(ErrorKind::Other, wrong(e)));
    place::read_text(&place.config)?.map(parse).transpose()
}

fn configuration(place: &Place) -> Result<File, Error> {
    place::demand(&place.config, found(place)?, "dormouse gateway init")
}

/// The connections whose users have passwords.
fn with_passwords(file: &File) -> Vec<Users<'_>> {
    let gateways = file.connection.iter().filter(|(_, c)| c.role == Role::Gateway && c.remote.auth.is_some());
    gateways
        .filter_map(|(name, c)| Some(Users { connection: name, c, path: c.remote.users.as_ref()? }))
        .collect()
}

/// Makes a password for a user, or, with `renew`, another one.
pub(super) fn run(
    place: &Place,
    args: &IssueArgs,
    renew: bool,
    socket: &Path,
    out: &Output,
) -> Result<ExitCode, Error> {
    names::user(&args.name)?;
    let file = configuration(place)?;
    let all = with_passwords(&file);
    let wanted = |users: &&Users<'_>| args.connection.as_deref().is_none_or(|name| name == users.connection);
    let users = match all.iter().filter(wanted).collect::<Vec<_>>().as_slice() {
        [one] => *one,
        [] if !all.is_empty() => {
            let asked = names::shown(args.connection.as_deref().unwrap_or_default());
            return Err(wrong(format!("connection {asked} takes no users with passwords"))
                .with_offer(Vec::new(), all.iter().map(|users| users.connection.to_owned()).collect()));
        }
        [] => {
            let change = format!(
                "auth = \"eap-mschapv2\" and users = \"{}\" below [connection.NAME.remote]",
                place.path(PASSWORDS).display()
            );
            return Err(wrong("no gateway connection here takes users with passwords").with_change(change));
        }
        _ => {
            return Err(
                wrong("several connections take users with passwords").with_change("--connection NAME")
            );
        }
    };
    if users.path.is_relative() {
        let (key, found) = (format!("connection.{}.remote.users", users.connection), users.path.display());
        return Err(wrong(format!("{key} is {found}, which is another file for the daemon than here"))
            .with_change(format!("users = \"{}\"", place.path(&found.to_string()).display())));
    }
    let _lock = place.lock()?;
    let mut book = Book::of(place, &file)?;
    let (login, known) = (users.login(&args.name)?, book.passwords(users.of())?);
    match (known.contains_key(&login), renew) {
        (true, false) => {
            let change =
                format!("dormouse user renew {0} --password, or dormouse user remove {0}", args.name);
            return Err(wrong(format!("there is a user {login} with a password already")).with_change(change));
        }
        (false, true) => {
            return Err(wrong(format!("no user {login} has a password"))
                .with_offer(Vec::new(), known.into_keys().collect()));
        }
        _ => {}
    }
    if let Some(other) = known.keys().find(|other| **other != login && other.eq_ignore_ascii_case(&login)) {
        return Err(wrong(format!(
            "{}: its \"{other}\" and {login} would be one identity, and no gateway takes such a file",
            users.path.display()
        )));
    }
    let password = generate();
    let made = args.form.map(|form| device(place, args, form, users, &login, &password)).transpose()?;
    let hash = NtHash::of_password(&password).ok_or_else(|| wrong("a password that is too long"))?;
    book.set_password(users.of(), &login, hash, known).inspect_err(|_| {
        // The password counts nowhere.
        if let Some(path) = &made {
            place::remove_all(path);
        }
    })?;
    let counts = if book.is_shared() {
        // The database tells all gateways.
        "it counts at all gateways now".into()
    } else {
        let told = Client::connect(socket).and_then(|mut client| reload(&mut client));
        told.map_or_else(
            |e| format!("it counts from the next dormouse reload on: {}", e.message),
            |()| "it counts now".into(),
        )
    };
    let file = made;
    let answer = json!({
        "version": 1,
        "user": login,
        "password": password.as_str(),
        "gateway": users.c.local.id,
        "file": file,
    });
    out.print(&format!("{answer}\n"), || {
        let first = format!(
            "{login} may come with the password  {}  which is shown this once; {counts}\n",
            password.as_str()
        );
        let Some((form, path)) = args.form.zip(file) else {
            return format!(
                "{first}at the device: IKEv2 with user name and password (EAP-MSCHAPv2), gateway {}, and the gateway's authority among its trusted ones\n",
                users.c.local.id
            );
        };
        let shown = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let holds = if form.has_password() { "has it too: bring it there confidentially" } else { "has no secret" };
        format!("{first}{} {holds}; at the device: {}\n", path.display(), form.advice(&shown, &args.name))
    })
}

/// The file for a client, or the directory. It is made before the password counts: one that cannot be made leaves nothing.
fn device(
    place: &Place,
    args: &IssueArgs,
    form: Form,
    users: &Users<'_>,
    login: &str,
    password: &str,
) -> Result<PathBuf, Error> {
    require_named(users.connection, users.c)?;
    let pem = place.path("ca.pem");
    let advice = "the certificate of the authority that vouches for the gateway";
    let ca = place::demand(&pem, place::read_text(&pem)?, advice)?;
    require_vouched(users.connection, users.c, &ca, unix_now())?;
    let own = Own::of(users.c, args.sign)?;
    let files = form.files(&Content {
        user: &args.name,
        parties: &parties(users.c, login.to_owned()),
        ca: &ca,
        given: Given::Password { user: login, password },
        gateway: own.certificate.as_ref(),
        passphrase: "",
        sign: own.key.as_ref(),
        on_demand: args.on_demand,
    })?;
    let path = file(args).ok_or_else(|| {
        wrong("with --password the file cannot go to standard output").with_change("--out FILE")
    })?;
    place::create_all(&path, &files).map_err(|e| e.with_change("another --out"))?;
    Ok(path)
}

/// Also for keys that a device gets under a passphrase.
pub(super) fn generate() -> Zeroizing<String> {
    let mut random = Zeroizing::new([0; LENGTH]);
    OsEntropy.fill(&mut *random);
    let mut password = Zeroizing::new(String::with_capacity(LENGTH + LENGTH / GROUP));
    for (i, byte) in random.iter().enumerate() {
        if i > 0 && i % GROUP == 0 {
            password.push('-');
        }
        let character = ALPHABET.get(usize::from(*byte % 32)).copied().unwrap_or(b'a');
        password.push(character.into());
    }
    password
}

fn reload(client: &mut Client) -> Result<(), Error> {
    let (answer, reply) = client.ask(Verb::Reload)?;
    match reply {
        Reply::Reloaded { .. } => Ok(()),
        _ => Err(unexpected(&answer)),
    }
}

/// The names that users with passwords log in with. Where there is no configuration there are none.
pub(super) fn all(place: &Place, book: &mut Book<'_>) -> Result<Vec<String>, Error> {
    let Some(file) = found(place)? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for users in with_passwords(&file) {
        all.extend(book.passwords(users.of())?.into_keys());
    }
    Ok(all)
}

/// The names that this user logs in with.
pub(super) fn of(place: &Place, book: &mut Book<'_>, name: &str) -> Result<Vec<String>, Error> {
    let Some(file) = found(place)? else { return Ok(Vec::new()) };
    let mut logins = Vec::new();
    for users in with_passwords(&file) {
        let Ok(login) = users.login(name) else { continue };
        if book.passwords(users.of())?.contains_key(&login) {
            logins.push(login);
        }
    }
    Ok(logins)
}

/// Takes a user's passwords away, under the lock of the directory; the daemon, or each of those that share the book, ends his sessions. Returns the names
/// that he logged in with.
pub(super) fn remove(
    place: &Place,
    book: &mut Book<'_>,
    name: &str,
    socket: &Path,
) -> Result<Vec<String>, Error> {
    let Some(file) = found(place)? else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    for users in with_passwords(&file) {
        let Ok(login) = users.login(name) else { continue };
        if !book.passwords(users.of())?.contains_key(&login) {
            continue;
        }
        if book.is_shared() {
            book.remove_password(users.of(), &login)?;
            removed.push(login);
            continue;
        }
        // Before anything is changed: the daemon is to refuse him at once.
        let mut client = Client::connect(socket).map_err(|mut e| {
            e.message = format!("{name} is not removed, because the daemon is to refuse it: {}", e.message);
            e
        })?;
        book.remove_password(users.of(), &login)?;
        reload(&mut client).map_err(|mut e| {
            let path = users.path.display();
            e.message =
                format!("{login} is gone from {path}, but the daemon has not taken that up: {}", e.message);
            e
        })?;
        removed.push(login);
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_long_and_another_one_each_time() {
        let (one, two) = (generate(), generate());
        assert_eq!(one.len(), LENGTH + LENGTH / GROUP - 1);
        assert!(
            one.split('-').all(|group| group.len() == GROUP && group.bytes().all(|c| ALPHABET.contains(&c)))
        );
        assert_ne!(one.as_str(), two.as_str());
        let distinct: std::collections::BTreeSet<u8> = ALPHABET.into_iter().collect();
        assert_eq!(distinct.len(), 32);
    }
}
