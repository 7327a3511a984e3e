//! `dormouse renew`: a device makes a new key and has its gateway give it another certificate, through the tunnel. The key never leaves the device. Owns what
//! must be true of the new certificate, and that a failure at any step leaves everything as it was.
//!
//! ```text
//! device                                        gateway
//! dormouse renew ── TLS 1.3, EST (RFC 7030) ──► dormouse gateway renewals ──► daemon: who has this inner address?
//!   new key, PKCS #10                             ca/ca.key, users/NAME.toml
//! ```

mod ask;
mod files;
mod http;
mod judge;
pub(crate) mod serve;
mod stream;

use crate::client::Client;
use crate::connections::of_connections;
use crate::control_verbs::{Output, Reload, unexpected};
use crate::enrol::authority::{self, day};
use crate::enrol::place::{self, CONFIG, Place};
use crate::enrol::{names, wrong};
use ask::Ends;
use clap::Args;
use dormouse_control::{Check, CheckOutcome, ConnectionState, Error, ErrorKind, ExitCode, Reply, Verb};
use dormouse_crypto::cert::{Certificate, Identity, KnownPaths, TrustStore, Usage};
use dormouse_crypto::sign::{NewKey, SigningKey};
use dormouse_io::clock::unix_now;
use dormouse_io::forward;
use dormouse_io::token::Uri;
use dormouse_node::config::file::{Connection, File, Role};
use dormouse_node::config::renewals::Renewals;
use dormouse_node::config::{self, findings};
use dormouse_sansio::UnixTime;
use files::Pair;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a look at the service may take.
const LOOK: Duration = Duration::from_secs(1);

/// Renew this device's certificate at its gateway, through the tunnel: with a new key, which never leaves the device. The old ones stay as FILE.old
#[derive(Debug, Args)]
pub(crate) struct RenewArgs {
    /// Which connection, if several have a certificate that is renewed so
    #[arg(add = of_connections())]
    connection: Option<String>,
    /// Only if less than a third of the certificate's time is left; with several connections, each of which that is so. This is what
    /// dormouse-renew.timer does every day
    #[arg(long)]
    if_due: bool,
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

pub(crate) fn run(args: &RenewArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    let place = Place::of(&args.config);
    let file = read(&place)?;
    let out = Output::new(json);
    let mut worst = None;
    let (mut renewed, mut others) = (Vec::new(), Vec::new());
    for (name, c) in meant(&file, args)? {
        let mut device = Device { place: &place, file: &file, name, c, socket };
        match device.renew(args.if_due, unix_now()) {
            Ok(Outcome::Renewed { id, until }) => renewed.push((name.clone(), id, until)),
            Ok(Outcome::NotDue { until }) => others.push((name.clone(), until)),
            // The others are not to wait for this one.
            Err(e) => worst = worst.or(Some(e)),
        }
    }
    let value = |name: &str, until: &UnixTime| json!({ "connection": name, "until_unix": until.0 });
    let answer = json!({
        "version": 1,
        "renewed": renewed.iter().map(|(name, _, until)| value(name, until)).collect::<Vec<Value>>(),
        "not_due": others.iter().map(|(name, until)| value(name, until)).collect::<Vec<Value>>(),
    });
    if worst.is_none() || !renewed.is_empty() {
        out.print(&format!("{answer}\n"), || {
            let new = renewed.iter().map(|(name, id, until)| {
                format!(
                    "{name}: {} until {}, with a new key; the next login uses it\n",
                    names::harmless(id),
                    day(*until)
                )
            });
            let old = others.iter().map(|(name, until)| format!("{name}: not due, until {}\n", day(*until)));
            new.chain(old).collect()
        })?;
    }
    worst.map_or(Ok(ExitCode::Ok), Err)
}

fn read(place: &Place) -> Result<File, Error> {
    let text = place::demand(&place.config, place::read_text(&place.config)?, "dormouse join FILE")?;
    config::parse(&text)
        .map_err(|e| Error::new(ErrorKind::Other, format!("{}: {}", place.config.display(), e.trim_end())))
}

/// Which connections: the one that is named; the only one that can be; with `--if-due` all that can be, and there may be none.
fn meant<'f>(file: &'f File, args: &RenewArgs) -> Result<Vec<(&'f String, &'f Connection)>, Error> {
    let clients = || file.connection.iter().filter(|(_, c)| c.role == Role::Client);
    let able: Vec<_> = clients().filter(|(_, c)| c.renewals.is_some()).collect();
    let known = |all: &[(&String, &Connection)]| all.iter().map(|(name, _)| (*name).clone()).collect();
    match (&args.connection, able.as_slice()) {
        (Some(wanted), _) => match clients().find(|(name, _)| *name == wanted) {
            Some(found) if found.1.renewals.is_some() => Ok(vec![found]),
            // One that has nothing to renew is never due.
            Some(_) if args.if_due => Ok(Vec::new()),
            Some((name, c)) => Err(unable(name, c)),
            None => {
                let message = format!("there is no client connection {}", names::shown(wanted));
                Err(Error::new(ErrorKind::UnknownConnection, message).with_offer(Vec::new(), known(&able)))
            }
        },
        // A key in hardware is renewed where it was made.
        (None, _) if args.if_due => Ok(able.into_iter().filter(|(_, c)| !in_hardware(c)).collect()),
        (None, [one]) => Ok(vec![*one]),
        (None, []) => Err(match clients().next() {
            Some((name, c)) => unable(name, c),
            None => wrong("this machine is no client of a gateway")
                .with_change("at a gateway: dormouse gateway renew"),
        }),
        (None, _) => Err(wrong("there are several connections that renew their certificates")
            .with_offer(Vec::new(), known(&able))
            .with_change("dormouse renew CONNECTION")),
    }
}

/// Whether the key is none of a file's.
fn in_hardware(c: &Connection) -> bool {
    c.local.key.as_ref().and_then(|key| key.to_str()).is_some_and(Uri::is_one)
}

/// Why a connection renews nothing.
fn unable(name: &str, c: &Connection) -> Error {
    if c.local.certificate.is_none() {
        return wrong(format!(
            "connection {name} has no certificate: who logs in otherwise has nothing to renew"
        ));
    }
    let message = format!("connection.{name}.renewals does not say where its gateway renews certificates");
    wrong(message)
        .with_change("dormouse user renew NAME, at the gateway, and here dormouse join FILE --renew")
}

/// For `dormouse doctor`, at a gateway: whether devices that renew their certificates are answered, and let in.
pub(crate) fn checks(file: &File) -> Vec<Check> {
    let tunnel = &file.daemon.interface;
    let check = |outcome, found: String, change: Option<String>| {
        let name = "renewals".to_owned();
        Check { name, outcome, found, change }
    };
    let one = |at: SocketAddr| {
        let port = at.port().to_string();
        let closed = forward::closed("input", &[&port]).unwrap_or_default();
        if let Some(chain) = closed.first() {
            let found = format!("{} drop devices that renew their certificates", closed.join(", "));
            let change = format!(
                "nft insert rule {chain} iifname {tunnel} tcp dport {port} accept; and where the firewall is configured"
            );
            return check(CheckOutcome::Warning, found, Some(change));
        }
        match TcpStream::connect_timeout(&at, LOOK) {
            Ok(_) => check(CheckOutcome::Ok, format!("devices renew their certificates at {at}"), None),
            Err(e) => {
                let found = format!("no answer at {at}, where devices renew their certificates: {e}");
                check(CheckOutcome::Warning, found, Some("systemctl status dormouse-renewals".into()))
            }
        }
    };
    let all: BTreeSet<SocketAddr> = file.connection.values().filter_map(Renewals::served).collect();
    all.into_iter().map(one).collect()
}

/// What became of one.
enum Outcome {
    Renewed { id: String, until: UnixTime },
    NotDue { until: UnixTime },
}

/// Whether less than a third of a certificate's time is left.
fn is_due(certificate: &Certificate, now: UnixTime) -> bool {
    let whole = certificate.not_after().saturating_since(certificate.not_before());
    certificate.not_after().saturating_since(now) * 3 < whole
}

/// One connection of this device.
struct Device<'d> {
    place: &'d Place,
    file: &'d File,
    name: &'d String,
    c: &'d Connection,
    socket: &'d Path,
}

impl Device<'_> {
    fn renew(&mut self, if_due: bool, now: UnixTime) -> Result<Outcome, Error> {
        let (name, c) = (self.name, self.c);
        let at = c.renewals.as_ref().map(|renewals| renewals.at).ok_or_else(|| unable(name, c))?;
        let (Some(certificate), Some(key)) = (&c.local.certificate, &c.local.key) else {
            return Err(unable(name, c));
        };
        if in_hardware(c) {
            let message =
                format!("connection.{name}.local.key is in hardware: it is renewed where it was made");
            return Err(wrong(message));
        }
        // Others who change these files wait, and so does a second one of this.
        let lock = self.place.lock()?;
        let mut pair = Pair::read(key, certificate)?;
        if pair.mend()? {
            let _ = Reload::ask(self.socket);
        }
        let chain = pair.chain()?;
        let own = chain.first().ok_or_else(|| wrong(format!("{}: no certificate", certificate.display())))?;
        if if_due && !is_due(own, now) {
            return Ok(Outcome::NotDue { until: own.not_after() });
        }
        if now > own.not_after() {
            let message = format!(
                "the certificate of {name} has expired on {}: it proves nothing any more",
                day(own.not_after())
            );
            return Err(Error::new(ErrorKind::Authentication, message).with_change(
                "dormouse user renew NAME, at the gateway, and here dormouse join FILE --renew",
            ));
        }
        let id = c.local.id.parse::<Identity>().map_err(|e| wrong(e.to_string()))?;
        let (from, gateway) = self.session(at)?;
        let trust = self.trust()?;
        let (new_key, request) = authority::request(NewKey::EcdsaP256, &id)?;
        let ends =
            Ends { chain: chain.clone(), key: pair.signing_key()?, trust: trust.clone(), gateway, from, at };
        // The lock is not held while the network is waited for.
        drop(lock);
        let answered = ask::ask(&ends, &request)?;
        let new = self.checked(&answered, own, &id, &new_key, &trust, now)?;

        let _lock = self.place.lock()?;
        pair.require_same()?;
        let pem = new.to_pem().map_err(|e| wrong(e.to_string()))?;
        self.require_sound(&pair, &new_key, &pem, now)?;
        pair.replace(&new_key, pem.as_bytes())?;
        if let Some(refused) = Reload::ask(self.socket).refused {
            pair.restore()?;
            let _ = Reload::ask(self.socket);
            return Err(refused);
        }
        Ok(Outcome::Renewed { id: c.local.id.clone(), until: new.not_after() })
    }

    /// This device's address in the tunnel, and who the gateway has proved to be.
    fn session(&self, at: SocketAddr) -> Result<(IpAddr, Identity), Error> {
        let (answer, reply) = Client::connect(self.socket)?.ask(Verb::Status)?;
        let Reply::Status(status) = reply else { return Err(unexpected(&answer)) };
        let found = status.connections.iter().find(|c| c.name == *self.name);
        let found = found.filter(|c| matches!(c.state, ConnectionState::Up | ConnectionState::Asleep));
        let same = |ip: &IpAddr| ip.is_ipv4() == at.is_ipv4();
        let address = |c: &dormouse_control::Connection| {
            let addresses = c.addresses.iter().filter_map(|a| a.split('/').next()?.parse::<IpAddr>().ok());
            addresses.into_iter().find(same)
        };
        let gateway = |c: &dormouse_control::Connection| c.peer.as_deref()?.parse::<Identity>().ok();
        found.and_then(|c| Some((address(c)?, gateway(c)?))).ok_or_else(|| {
            let message =
                format!("connection {} is not up: its certificate is renewed through the tunnel", self.name);
            Error::new(ErrorKind::NotConnected, message).with_change(format!("dormouse up {}", self.name))
        })
    }

    /// Whom this device trusts for this connection.
    fn trust(&self) -> Result<TrustStore, Error> {
        let key = format!("connection.{}.remote.ca", self.name);
        let mut trusted = Vec::new();
        for path in &self.c.remote.ca {
            let content = place::demand(path, place::read(path)?, &key)?;
            let all = Certificate::from_file_content(content.as_bytes());
            trusted.extend(all.map_err(|e| wrong(format!("{}: {e}", path.display())))?);
        }
        if trusted.is_empty() {
            return Err(wrong(format!("{key} names no authority that could vouch for a new certificate")));
        }
        TrustStore::new(trusted).map_err(|e| wrong(e.to_string()))
    }

    /// The new certificate, if it is what it must be: of an authority that is trusted, for the same name and the new key, and better than the old one.
    fn checked(
        &self,
        answered: &[Certificate],
        old: &Certificate,
        id: &Identity,
        key: &dormouse_crypto::Secret,
        trust: &TrustStore,
        now: UnixTime,
    ) -> Result<Certificate, Error> {
        let fail = |why: String| {
            Error::new(ErrorKind::Authentication, format!("the gateway's answer is not taken: {why}"))
        };
        let signing = SigningKey::from_pem(key.as_bytes()).map_err(|e| fail(e.to_string()))?;
        let is_ours = |c: &&Certificate| c.public_key().ok().as_ref() == Some(signing.public_key());
        let new =
            answered.iter().find(is_ours).ok_or_else(|| fail("no certificate for the new key".into()))?;
        let others: Vec<Certificate> = answered.iter().filter(|c| *c != new).cloned().collect();
        let believed = trust.verify(new, &others, now, Usage::Ike, &KnownPaths::default());
        believed.map_err(|e| fail(e.to_string()))?;
        new.require(id).map_err(|e| fail(e.to_string()))?;
        if new.not_after() < old.not_after() {
            let (has, gets) = (day(old.not_after()), day(new.not_after()));
            return Err(fail(format!("it counts until {gets}, the old certificate until {has}")));
        }
        Ok(new.clone())
    }

    /// What the daemon would say of the connection with the new files. Others are left to the daemon, which has read them before.
    fn require_sound(
        &self,
        pair: &Pair,
        key: &dormouse_crypto::Secret,
        pem: &str,
        now: UnixTime,
    ) -> Result<(), Error> {
        let fail = |e: String| Error::new(ErrorKind::Other, format!("the daemon would not take it: {e}"));
        let mut read = |path: &Path, _secret: bool| match path {
            path if path == pair.key => Ok(key.as_bytes().to_vec()),
            path if path == pair.certificate => Ok(pem.as_bytes().to_vec()),
            other => match place::read(other) {
                Ok(Some(content)) => Ok(content.as_bytes().to_vec()),
                Ok(None) => Err(format!("{} does not exist", other.display())),
                Err(e) => Err(e.message),
            },
        };
        let mut only = self.file.clone();
        only.connection.retain(|other, _| other == self.name);
        only.router = None;
        let resolved = config::resolve(&only, &mut read).map_err(|e| fail(e.to_string()))?;
        match findings(&only.daemon, &resolved, now).into_iter().find(|finding| finding.fatal) {
            Some(finding) => Err(fail(finding.to_string())),
            None => Ok(()),
        }
    }
}
