//! `dormouse gateway renew`: the gateway gets a new key and certificate of the authority that `init` has made, before its old one ends. Owns what
//! is demanded of the files that it replaces; the configuration and the authority stay as they are, and so do users and sessions.

use super::{Keys, unused};
use crate::connections::of_connections;
use crate::control_verbs::{Output, Reload};
use crate::enrol::authority::{Authority, Holder, Issued, MOST_DAYS, day};
use crate::enrol::gateway::{connection_of, require_trusted};
use crate::enrol::place::{self, CONFIG, Place};
use crate::enrol::users::SOON_DAYS;
use crate::enrol::{names, wrong};
use clap::Args;
use dormouse_control::{Check, CheckOutcome, Error, ErrorKind, ExitCode};
use dormouse_crypto::cert::{Certificate, Identity};
use dormouse_crypto::sign::{KeyKind, NewKey};
use dormouse_io::clock::unix_now;
use dormouse_io::token::Uri;
use dormouse_node::config::file::{Connection, File, Role};
use dormouse_node::config::{self, findings};
use dormouse_sansio::UnixTime;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// An authority that ends sooner is warned of, in days: what it issues ends with it, and each device needs another one by then.
const AUTHORITY_SOON_DAYS: u64 = 365;

#[derive(Debug, Args)]
pub(super) struct RenewArgs {
    /// How long the new certificate counts; devices of Apple take 825 days at most
    #[arg(long, value_name = "DAYS", default_value_t = MOST_DAYS)]
    days: u32,
    /// The kind of its key: `rsa` for the client that Android has itself, which knows nothing else [default: as the old one]
    #[arg(long, value_enum)]
    key: Option<Keys>,
    /// Of which of the gateway's connections, if there are several
    #[arg(long, value_name = "NAME", add = of_connections())]
    connection: Option<String>,
    /// The gateway's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

pub(super) fn run(args: &RenewArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    let renewed = renew(args, unix_now())?;
    let reload = Reload::ask(socket);
    let answer = json!({
        "version": 1,
        "connection": renewed.connection,
        "gateway": renewed.id,
        "certificate_until_unix": renewed.until.0,
        "files": renewed.files,
        "kept": renewed.kept,
        "daemon": reload.has_daemon(),
        "restart": reload.restart.clone().unwrap_or_default(),
        "reload_error": reload.refused,
    });
    Output::new(json).print(&format!("{answer}\n"), || {
        let mut text =
            format!("{} has a new key and certificate, until {}\n", renewed.id, day(renewed.until));
        for (path, kept) in renewed.files.iter().zip(&renewed.kept) {
            let _ = writeln!(text, "  {}, the old one in {}", path.display(), kept.display());
        }
        text.push_str(match &reload.restart {
            Some(_) => "the daemon uses it from now on; sessions go on, and users need nothing new\n",
            None if reload.refused.is_some() => {
                "next: dormouse reload, once what the daemon refused is mended\n"
            }
            None => "no daemon runs: it counts from the next start on\n",
        });
        for key in reload.restart.iter().flatten() {
            let _ = writeln!(text, "note: {key} has changed before and needs a restart");
        }
        text
    })?;
    Ok(reload.exit_code(json))
}

/// What came of it.
#[derive(Debug)]
struct Renewed {
    connection: String,
    id: String,
    until: UnixTime,
    /// Key and certificate.
    files: [PathBuf; 2],
    /// Where the old ones are kept, in the same order.
    kept: [PathBuf; 2],
}

fn renew(args: &RenewArgs, now: UnixTime) -> Result<Renewed, Error> {
    let place = Place::of(&args.config);
    let no_gateway = "dormouse gateway init";
    // Before the lock makes a directory: a machine that is no gateway stays as it is.
    place::demand(&place.config, place::read(&place.config)?, no_gateway)?;
    let _lock = place.lock()?;
    let text = place::demand(&place.config, place::read_text(&place.config)?, no_gateway)?;
    let file = config::parse(&text)
        .map_err(|e| Error::new(ErrorKind::Other, format!("{}: {}", place.config.display(), e.trim_end())))?;
    let (name, c) = connection_of(&file, args.connection.as_ref())?;
    let [key, certificate] = own_files(name, c)?;
    let ca = place.path("ca/ca.key");
    let advice =
        "put the authority's key back there; a certificate of another authority is renewed by that one";
    let authority = Authority::load(&place::demand(&ca, place::read(&ca)?, advice)?)?;
    require_trusted(name, c, &authority)?;
    let (old_key, old_certificate) = (read(&key)?, read(&certificate)?);
    require_issued(&certificate, &old_certificate, &authority)?;
    let id: Identity = c.local.id.parse().map_err(|e| wrong(format!("connection.{name}.local.id: {e}")))?;
    let kind = args.key.map_or_else(|| kind_of(&old_certificate), Keys::kind);
    let issued = authority.issue(Holder::Gateway, kind, &id, now, args.days)?;
    require_sound(&file, [&key, &certificate], &issued, now)?;

    // A link is followed: the file itself is replaced.
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (key, certificate) = (real(&key), real(&certificate));
    let kept = [unused(&key)?, unused(&certificate)?];
    place::write(&[
        // Its file may hold a key too.
        (kept[0].clone(), old_key.as_bytes(), 0o600),
        (kept[1].clone(), old_certificate.as_bytes(), 0o600),
        (key.clone(), issued.key.as_bytes(), 0o600),
        (certificate.clone(), issued.pem.as_bytes(), 0o644),
    ])?;
    Ok(Renewed {
        connection: name.to_owned(),
        id: id.to_string(),
        until: issued.certificate.not_after(),
        files: [key, certificate],
        kept,
    })
}

fn read(path: &Path) -> Result<dormouse_crypto::Secret, Error> {
    place::demand(path, place::read(path)?, "dormouse gateway init --force makes it anew")
}

/// The kind of key that a certificate is of.
fn kind_of(certificate: &dormouse_crypto::Secret) -> NewKey {
    let key = Certificate::from_pem(certificate.as_bytes()).ok().and_then(|own| own.public_key().ok());
    match key.map(|key| key.kind()) {
        Some(KeyKind::Rsa { .. }) => Keys::Rsa.kind(),
        _ => Keys::P256.kind(),
    }
}

/// Key and certificate of the connection, if these are files.
fn own_files(name: &str, c: &Connection) -> Result<[PathBuf; 2], Error> {
    let (Some(key), Some(certificate)) = (&c.local.key, &c.local.certificate) else {
        let message =
            format!("connection.{name}.local has no certificate: the gateway proves itself otherwise");
        return Err(wrong(message));
    };
    if key.to_str().is_some_and(Uri::is_one) {
        let message = format!("connection.{name}.local.key is in hardware: it is renewed where it was made");
        return Err(wrong(message));
    }
    Ok([key.clone(), certificate.clone()])
}

/// Demands that the certificate to be replaced is one of this authority: devices that know the gateway by another one would refuse the new one.
fn require_issued(path: &Path, old: &dormouse_crypto::Secret, authority: &Authority) -> Result<(), Error> {
    let shown = path.display();
    let chain = Certificate::from_file_content(old.as_bytes())
        .map_err(|e| Error::new(ErrorKind::Other, format!("{shown}: {e}")))?;
    match chain.first() {
        Some(own) if authority.has_issued(own) => Ok(()),
        other => {
            let issuer = other.map(|own| names::shown(&own.issuer())).unwrap_or_default();
            let message = format!(
                "{shown} is not of the authority in ca/ca.key, but of {issuer}: devices would not believe a new one"
            );
            Err(Error::new(ErrorKind::Other, message)
                .with_change("renew it at that authority, then dormouse reload"))
        }
    }
}

/// What the daemon would say of all connections that use these two files. Others are left to the daemon, which has read them before.
fn require_sound(
    file: &File,
    [key, certificate]: [&PathBuf; 2],
    issued: &Issued,
    now: UnixTime,
) -> Result<(), Error> {
    let fail = |e: String| Error::new(ErrorKind::Other, format!("the daemon would not take it: {e}"));
    let mut read = |path: &Path, _secret: bool| match path {
        path if path == key => Ok(issued.key.as_bytes().to_vec()),
        path if path == certificate => Ok(issued.pem.as_bytes().to_vec()),
        other => match place::read(other) {
            Ok(Some(content)) => Ok(content.as_bytes().to_vec()),
            Ok(None) => Err(format!("{} does not exist", other.display())),
            Err(e) => Err(e.message),
        },
    };
    let mut only = file.clone();
    only.connection.retain(|_, c| {
        let uses = c.local.key.as_ref() == Some(key) || c.local.certificate.as_ref() == Some(certificate);
        // Access routers are named by others.
        uses || c.keys.is_some()
    });
    only.router = None;
    let resolved = config::resolve(&only, &mut read).map_err(|e| fail(e.to_string()))?;
    match findings(&only.daemon, &resolved, now).into_iter().find(|finding| finding.fatal) {
        Some(finding) => Err(fail(finding.to_string())),
        None => Ok(()),
    }
}

/// How a certificate stands: the outcome, and in words.
fn standing(certificate: &Certificate, soon_days: u64, now: UnixTime) -> (CheckOutcome, String) {
    let until = certificate.not_after();
    let left = until.saturating_since(now).as_secs() / 86_400;
    match now {
        now if now > until => (CheckOutcome::Failure, format!("ended on {}", day(until))),
        _ if left < soon_days => (CheckOutcome::Warning, format!("ends on {}, in {left} days", day(until))),
        _ => (CheckOutcome::Ok, format!("until {}", day(until))),
    }
}

/// See [`super::checks`]. What cannot be read is the business of the check of the configuration.
pub(super) fn checks(config: &Path, file: &File, now: UnixTime) -> Vec<Check> {
    let place = Place::of(config);
    let read = |path: &Path| {
        let content = place::read(path).ok().flatten()?;
        Certificate::from_file_content(content.as_bytes()).ok()?.into_iter().next()
    };
    let gateways: Vec<(&String, &Connection)> =
        file.connection.iter().filter(|(_, c)| c.role == Role::Gateway).collect();
    let authority = read(&place.path("ca.pem")).filter(|_| !gateways.is_empty());
    let of_ours = |own: &Certificate| authority.as_ref().is_some_and(|ca| own.issuer() == ca.subject());
    let mut found = Vec::new();
    for (name, c) in &gateways {
        let Some(own) = c.local.certificate.as_deref().and_then(read) else { continue };
        let (outcome, words) = standing(&own, SOON_DAYS, now);
        let change = match (of_ours(&own), gateways.len()) {
            (true, 1) => "dormouse gateway renew".to_owned(),
            (true, _) => format!("dormouse gateway renew --connection {name}"),
            (false, _) => "renew it at its authority, then dormouse reload".to_owned(),
        };
        let change = (outcome != CheckOutcome::Ok).then_some(change);
        let several = if gateways.len() > 1 { format!(" of {name}") } else { String::new() };
        found.push(Check { name: format!("certificate{several}"), outcome, found: words, change });
    }
    if let Some(ca) = &authority {
        let (outcome, words) = standing(ca, AUTHORITY_SOON_DAYS, now);
        let change = "docs/administrator.md, \"When the authority ends\": each user needs a new file by then";
        let change = (outcome != CheckOutcome::Ok).then(|| change.to_owned());
        found.push(Check { name: "authority".into(), outcome, found: words, change });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrol::authority::Authority;

    const NOW: UnixTime = UnixTime(1_800_000_000);
    const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);

    /// A gateway as `init` makes it.
    struct Gateway {
        dir: PathBuf,
        authority: Authority,
    }

    impl Drop for Gateway {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    impl Gateway {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("dormouse-renew-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(dir.join("ca")).unwrap();
            let (authority, file) = Authority::new("A test", NOW).unwrap();
            let new = Self { dir, authority };
            new.write("ca/ca.key", file.as_bytes());
            new.write("ca.pem", new.authority.pem().as_bytes());
            new.certificate(&new.authority, "vpn.example.org");
            new.write("dormouse.toml", new.connection("devices", "vpn.example.org").as_bytes());
            new
        }

        fn write(&self, name: &str, content: &[u8]) {
            fs::write(self.dir.join(name), content).unwrap();
        }

        fn read(&self, name: &str) -> Vec<u8> {
            fs::read(self.dir.join(name)).unwrap()
        }

        fn certificate(&self, authority: &Authority, id: &str) {
            let issued =
                authority.issue(Holder::Gateway, NewKey::EcdsaP256, &id.parse().unwrap(), NOW, 90).unwrap();
            self.write("gateway.key", issued.key.as_bytes());
            self.write("gateway.pem", issued.pem.as_bytes());
        }

        fn connection(&self, name: &str, id: &str) -> String {
            let dir = self.dir.display();
            format!(
                "[connection.{name}]\nrole = \"gateway\"\n[connection.{name}.local]\nid = \"{id}\"\n\
                 certificate = \"{dir}/gateway.pem\"\nkey = \"{dir}/gateway.key\"\n\
                 [connection.{name}.remote]\nid = \"*.{id}\"\nca = [\"{dir}/ca.pem\"]\n\
                 [connection.{name}.child]\nlocal = [\"0.0.0.0/0\"]\n\
                 [connection.{name}.pool]\naddresses = [\"10.10.0.0/24\"]\n"
            )
        }

        fn renew(&self, connection: Option<&str>, days: u32, now: UnixTime) -> Result<Renewed, Error> {
            let connection = connection.map(str::to_owned);
            renew(&RenewArgs { days, key: None, connection, config: self.dir.join("dormouse.toml") }, now)
        }

        fn checks(&self, now: UnixTime) -> Vec<(String, CheckOutcome, Option<String>)> {
            let config = self.dir.join("dormouse.toml");
            let file = config::parse(&fs::read_to_string(&config).unwrap()).unwrap();
            checks(&config, &file, now).into_iter().map(|c| (c.name, c.outcome, c.change)).collect()
        }
    }

    #[test]
    fn a_gateway_gets_another_key_and_certificate_and_the_old_ones_stay_beside() {
        let gateway = Gateway::new("again");
        let names = ["gateway.key", "gateway.pem"];
        let before = names.map(|name| gateway.read(name));
        let others = ["ca.pem", "ca/ca.key", "dormouse.toml"].map(|name| gateway.read(name));
        // Also when the old one has ended.
        let late = NOW + DAY * 200;
        let renewed = gateway.renew(None, 100, late).unwrap();
        assert_eq!((renewed.connection.as_str(), renewed.id.as_str()), ("devices", "vpn.example.org"));
        let now = names.map(|name| gateway.read(name));
        assert!(now[0] != before[0] && now[1] != before[1]);
        assert_eq!(names.map(|name| gateway.read(&format!("{name}.old"))), before);
        assert_eq!(["ca.pem", "ca/ca.key", "dormouse.toml"].map(|name| gateway.read(name)), others);
        let own = Certificate::from_pem(&now[1]).unwrap();
        own.require(&"vpn.example.org".parse().unwrap()).unwrap();
        assert!(gateway.authority.has_issued(&own) && own.not_after() > late + DAY * 99);
        gateway.renew(Some("devices"), 100, late).unwrap();
        assert_eq!(names.map(|name| gateway.read(&format!("{name}.old"))), before, "what was kept stays");
        assert_eq!(names.map(|name| gateway.read(&format!("{name}.old-2"))), now);
    }

    #[test]
    fn where_there_is_nothing_to_renew_it_is_said_why_and_nothing_is_written() {
        let gateway = Gateway::new("refused");
        let refused = |connection: Option<&str>, days: u32, said: &str| {
            let before: Vec<_> =
                ["gateway.key", "gateway.pem"].map(|n| fs::read(gateway.dir.join(n)).ok()).into();
            let error = gateway.renew(connection, days, NOW).expect_err(said);
            assert!(error.message.contains(said), "{said}: {error}");
            let after: Vec<_> =
                ["gateway.key", "gateway.pem"].map(|n| fs::read(gateway.dir.join(n)).ok()).into();
            assert_eq!(before, after);
            assert!(!gateway.dir.join("gateway.pem.old").exists());
        };
        let sound = gateway.connection("devices", "vpn.example.org");
        refused(None, 826, "1 to 825 are accepted");
        refused(Some("other"), 9, "there is no gateway connection \"other\"");
        gateway.write("dormouse.toml", format!("{sound}[connection.b]\nrole = \"gateway\"\n").as_bytes());
        refused(None, 9, "there are several gateway connections");
        refused(Some("b"), 9, "connection.b.local has no certificate");
        // The same files, for another name: the new certificate would not have it.
        gateway
            .write("dormouse.toml", (sound.clone() + &gateway.connection("b", "b.example.org")).as_bytes());
        refused(Some("devices"), 9, "the daemon would not take it: connection.b.local.id");
        gateway.write(
            "dormouse.toml",
            sound.replace("gateway.key", "x?object=y").replace("key = \"/", "key = \"pkcs11:/").as_bytes(),
        );
        refused(None, 9, "connection.devices.local.key is in hardware");
        gateway.write("dormouse.toml", b"[daemon]\n");
        refused(None, 9, "this machine is no gateway");
        gateway.write("dormouse.toml", sound.as_bytes());

        gateway.certificate(&Authority::new("Another", NOW).unwrap().0, "vpn.example.org");
        refused(None, 9, "gateway.pem is not of the authority in ca/ca.key, but of \"CN=Another\"");
        // Of the same name, which says nothing.
        gateway.certificate(&Authority::new("A test", NOW).unwrap().0, "vpn.example.org");
        refused(None, 9, "gateway.pem is not of the authority in ca/ca.key");
        gateway.certificate(&gateway.authority, "vpn.example.org");
        fs::remove_file(gateway.dir.join("gateway.pem")).unwrap();
        refused(None, 9, "gateway.pem does not exist");
        gateway.certificate(&gateway.authority, "vpn.example.org");
        gateway.write("ca.pem", Authority::new("Another", NOW).unwrap().0.pem().as_bytes());
        refused(None, 9, "connection.devices.remote.ca does not name the authority of ca/ca.key");
        fs::remove_file(gateway.dir.join("ca/ca.key")).unwrap();
        refused(None, 9, "ca/ca.key does not exist");
        fs::remove_file(gateway.dir.join("dormouse.toml")).unwrap();
        refused(None, 9, "dormouse.toml does not exist");
    }

    #[test]
    fn what_ends_soon_is_warned_of_with_the_verb_that_helps() {
        use CheckOutcome::{Failure, Ok, Warning};
        let gateway = Gateway::new("checks");
        let found = |days: u32| {
            let found = gateway.checks(NOW + DAY * days);
            let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
            assert_eq!(names, ["certificate", "authority"]);
            (found[0].clone(), found[1].clone())
        };
        let (own, ca) = found(0);
        assert_eq!([(own.1, own.2), (ca.1, ca.2)], [(Ok, None), (Ok, None)]);
        for (days, outcome) in [(70, Warning), (91, Failure)] {
            let (own, ca) = found(days);
            assert_eq!((own.1, own.2.as_deref(), ca.1), (outcome, Some("dormouse gateway renew"), Ok));
        }
        assert_eq!(found(3300).1.1, Warning);
        assert_eq!(found(3660).1.1, Failure);
        gateway.certificate(&Authority::new("Another", NOW).unwrap().0, "vpn.example.org");
        assert!(found(80).0.2.unwrap().starts_with("renew it at its authority"));
        gateway.write("dormouse.toml", b"[daemon]\n");
        assert_eq!(gateway.checks(NOW), [], "a device has none of it");
    }
}
