//! `dormouse user`: who may come to this gateway. Owns the verbs and what they say; the files are `enrol`'s, and a denial is the daemon's.

mod form;
mod issue;
mod password;
mod qr;

use crate::book::Book;
use crate::client::Client;
use crate::connections::of_connections;
use crate::control_verbs::{Output, unexpected};
use crate::enrol::authority::day;
use crate::enrol::place::{CONFIG, Place};
use crate::enrol::users::{SOON_DAYS, User};
use crate::enrol::{names, wrong};
use clap::{Args, Subcommand};
use dormouse_control::{Check, CheckOutcome, Error, ErrorKind, ExitCode, Reply, Verb};
use dormouse_io::clock::unix_now;
use dormouse_report::Table;
use dormouse_sansio::UnixTime;
pub(crate) use form::uuid_of;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The users of a gateway that `dormouse gateway init` has made
#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    #[command(subcommand)]
    verb: UserVerb,
    /// The gateway's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG, global = true)]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum UserVerb {
    /// Make a key and a certificate for a device, and one file that holds all that it needs; or a password
    Add(IssueArgs),
    /// Make another key and certificate for a user; what it had counts until it ends. Or another password, which counts at once
    Renew(IssueArgs),
    /// Show all users, and until when they may come
    List,
    /// Show what was issued to a user
    Show {
        /// Which
        name: String,
    },
    /// Refuse all that was issued to a user from now on, and forget it; sessions end at once
    Remove {
        /// Which
        name: String,
    },
}

#[derive(Debug, Args)]
struct IssueArgs {
    /// a-z 0-9 -; its identity is this name in the gateway's domain
    name: String,
    /// How long the certificate counts
    #[arg(long, default_value_t = 365)]
    days: u32,
    /// For which client [default: dormouse; with --password none]
    #[arg(long = "as", value_enum)]
    form: Option<form::Form>,
    /// Where it goes; a file also to standard output, `-` [default: NAME.dormouse here, or what the client calls it]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show the file as a QR code too
    #[arg(long)]
    qr: bool,
    /// Of which of the gateway's connections, if there are several
    #[arg(long, value_name = "NAME", add = of_connections())]
    connection: Option<String>,
    /// Make a password instead, for a client that logs in with one (EAP-MSCHAPv2), and show it once
    #[arg(long, conflicts_with_all = ["days", "qr"])]
    password: bool,
    /// With --as mobileconfig: sign it with the gateway's key
    #[arg(long)]
    sign: bool,
    /// With --as mobileconfig: the device connects by itself, and stays connected
    #[arg(long)]
    on_demand: bool,
    /// Its device does not renew the certificate by itself (dormouse renew), so that it ends unless you renew it: for guests
    #[arg(long, conflicts_with = "password")]
    no_renewals: bool,
}

impl IssueArgs {
    /// The client that was named, or our own.
    fn form(&self) -> form::Form {
        self.form.unwrap_or(form::Form::Dormouse)
    }

    /// Demands that what was asked for is something that the client has.
    fn require_fit(&self) -> Result<(), Error> {
        let (form, apple) = (self.form(), form::Form::Mobileconfig);
        for (flag, said) in [("--sign", self.sign), ("--on-demand", self.on_demand)] {
            if said && form != apple {
                return Err(wrong(format!("{flag} is for devices of Apple")).with_change("--as mobileconfig"));
            }
        }
        if self.password && self.form.is_none() && self.out.is_some() {
            return Err(
                wrong("--out needs --as: without a client there is no file").with_change("--as CLIENT")
            );
        }
        Ok(())
    }
}

pub(crate) fn run(args: &UserArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    let place = Place::of(&args.config);
    let out = Output::new(json);
    if let UserVerb::Add(what) | UserVerb::Renew(what) = &args.verb {
        what.require_fit()?;
    }
    match &args.verb {
        UserVerb::Add(what) if what.password => password::run(&place, what, false, socket, &out),
        UserVerb::Renew(what) if what.password => password::run(&place, what, true, socket, &out),
        UserVerb::Add(what) => issue::run(&place, what, false, &out),
        UserVerb::Renew(what) => issue::run(&place, what, true, &out),
        UserVerb::List => list(&place, &out),
        UserVerb::Show { name } => show(&place, name, &out),
        UserVerb::Remove { name } => remove(&place, name, socket, &out),
    }
}

/// A user in JSON.
fn value(user: &User, now: UnixTime) -> Value {
    json!({
        "name": user.name,
        "id": user.id,
        "connection": user.connection,
        "until_unix": user.until().0,
        "days_left": user.days_left(now),
        "certificates": user.certificates,
    })
}

/// How long a user may still come.
fn standing(user: &User, now: UnixTime) -> String {
    match user.days_left(now) {
        None => "expired: dormouse user renew".into(),
        Some(days) if days < SOON_DAYS => format!("ends in {days} days: dormouse user renew"),
        Some(days) => format!("{days} days"),
    }
}

fn list(place: &Place, out: &Output) -> Result<ExitCode, Error> {
    let mut book = Book::open(place)?;
    let (all, passwords, now) = (book.all()?, password::all(place, &mut book)?, unix_now());
    let users: Vec<_> = all.iter().map(|user| value(user, now)).collect();
    let answer = json!({ "version": 1, "users": users, "with_password": passwords });
    out.print(&format!("{answer}\n"), || {
        if all.is_empty() && passwords.is_empty() {
            return "no users: dormouse user add NAME\n".into();
        }
        let mut table = Table::words(["user", "identity", "until", "left"]);
        for user in &all {
            table.row([user.name.clone(), user.id.clone(), day(user.until()), standing(user, now)]);
        }
        for login in &passwords {
            let name = login.split(['.', '@']).next().unwrap_or_default();
            table.row([name.to_owned(), login.clone(), "-".into(), "by password".into()]);
        }
        table.columns("", |head| out.style.strong(head))
    })
}

/// A user has certificates, a password, or both.
fn show(place: &Place, name: &str, out: &Output) -> Result<ExitCode, Error> {
    names::user(name)?;
    let mut book = Book::open(place)?;
    let (now, logins) = (unix_now(), password::of(place, &mut book, name)?);
    let user = if logins.is_empty() { Some(book.get(name)?) } else { book.find(name)? };
    let found = user.as_ref().map(|user| value(user, now));
    let answer = json!({ "version": 1, "user": found, "with_password": logins });
    out.print(&format!("{answer}\n"), || {
        let mut text = user.as_ref().map(|user| shown(user, now)).unwrap_or_default();
        for login in &logins {
            text += &format!("{name} logs in as {login} with a password\n");
        }
        text
    })
}

/// What was issued to a user.
fn shown(user: &User, now: UnixTime) -> String {
    let User { name, id, connection, .. } = user;
    let mut text = format!("{name}  {id}  of connection {connection}: {}\n", standing(user, now));
    for known in &user.certificates {
        let days = [known.issued, known.until].map(|at| day(UnixTime(at)));
        text += &format!("  {} to {}  {}\n", days[0], days[1], known.fingerprint);
    }
    text
}

/// Denies what was issued, by certificate: the name may be given again. The record goes only when all of it is denied.
fn remove(place: &Place, name: &str, socket: &Path, out: &Output) -> Result<ExitCode, Error> {
    names::user(name)?;
    let _lock = place.lock()?;
    let mut book = Book::open(place)?;
    let logins = password::remove(place, &mut book, name, socket)?;
    let user = match book.find(name)? {
        Some(user) => user,
        None if !logins.is_empty() => {
            let answer = json!({ "version": 1, "removed": name, "passwords": logins });
            return out.print(&format!("{answer}\n"), || {
                let of = if book.is_shared() { " at all gateways" } else { "" };
                format!("removed; the password counts no more, and sessions ended{of}\n")
            });
        }
        None => book.get(name)?,
    };
    let mut ended = 0;
    let living: Vec<_> = user.living(unix_now()).collect();
    if !living.is_empty() {
        let mut client = Client::connect(socket).map_err(|mut e| {
            e.message = format!("{name} is not removed, because the daemon is to refuse it: {}", e.message);
            e
        })?;
        for known in &living {
            let (answer, reply) = client.ask(Verb::Deny { whom: Some(known.fingerprint.clone()) })?;
            let Reply::Denied { sessions, .. } = reply else { return Err(unexpected(&answer)) };
            ended += sessions;
        }
    }
    book.remove(name)?;
    let answer = json!({ "version": 1, "removed": name, "denied": living, "sessions_ended": ended });
    out.print(&format!("{answer}\n"), || {
        format!("removed; {} certificate(s) denied, {ended} session(s) ended\n", living.len())
    })
}

/// What a client gets, as `join` reads it: the files, and the passphrase of a key in them.
#[cfg(test)]
pub(crate) fn exported(
    form: &str,
    user: &str,
    parties: &crate::enrol::bundle::Parties,
    ca: &str,
    given: crate::enrol::bundle::Given<'_>,
    gateway: &dormouse_crypto::cert::Certificate,
    sign: Option<&dormouse_crypto::sign::SigningKey>,
) -> Vec<(String, dormouse_crypto::Secret)> {
    let form = <form::Form as clap::ValueEnum>::from_str(form, false).unwrap();
    let (gateway, passphrase) = (Some(gateway), "the passphrase");
    form.files(&form::Content { user, parties, ca, given, gateway, passphrase, sign, on_demand: false })
        .unwrap()
}

/// For `dormouse doctor`: who cannot come any more, or not for long. Where there are no users, nothing.
pub(crate) fn check(config: &Path) -> Option<Check> {
    let (place, now) = (Place::of(config), unix_now());
    let check = |outcome, found: String, change: Option<&str>| {
        Some(Check { name: "users".into(), outcome, found, change: change.map(str::to_owned) })
    };
    let all = match Book::open(&place).and_then(|mut book| book.all()) {
        Ok(all) if all.is_empty() => return None,
        Ok(all) => all,
        Err(e) if e.kind == ErrorKind::Permission => {
            return check(CheckOutcome::Skipped, "only root sees them".into(), None);
        }
        // What is wrong with the shared database is said where that is looked at.
        Err(e)
            if matches!(e.kind, ErrorKind::NotConnected | ErrorKind::Timeout | ErrorKind::Authentication) =>
        {
            return check(CheckOutcome::Skipped, e.message, None);
        }
        Err(e) => return check(CheckOutcome::Failure, e.message, None),
    };
    let soon = |user: &&User| user.days_left(now).is_none_or(|days| days < SOON_DAYS);
    let soon: Vec<String> =
        all.iter().filter(soon).map(|user| format!("{} until {}", user.name, day(user.until()))).collect();
    if soon.is_empty() {
        return check(
            CheckOutcome::Ok,
            format!("{}, none of whom ends within {SOON_DAYS} days", all.len()),
            None,
        );
    }
    let shown = soon.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let more = if soon.len() > 5 { format!(" and {} more", soon.len() - 5) } else { String::new() };
    check(CheckOutcome::Warning, format!("{shown}{more}"), Some("dormouse user renew NAME"))
}
