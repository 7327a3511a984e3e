//! `dormouse join`: a device takes up what `dormouse user add` has made for it. Owns which files come of it; a configuration that is there stays as
//! it is, and gets one connection more. Nothing is written before the daemon's own parser has judged the configuration, and the new connection
//! with its files; what other connections' files hold, and the router, the daemon judges when it takes it up.

use crate::control_verbs::{Output, Reload};
use crate::enrol::authority::day;
use crate::enrol::bundle::{Bundle, Proof, list, quoted};
use crate::enrol::names;
use crate::enrol::passphrase::Source;
use crate::enrol::place::{self, CONFIG, Place};
use crate::enrol::{foreign, swanctl, wrong};
use clap::Args;
use dormouse_control::{Error, ErrorKind, ExitCode};
use dormouse_crypto::cert::{Certificate, KnownPaths, TrustStore, Usage};
use dormouse_io::clock::unix_now;
use dormouse_node::config::file::{Connection, File, Role, Selector};
use dormouse_node::config::{self, findings};
use dormouse_sansio::UnixTime;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Join a gateway by the file that `dormouse user add` has made there, or by another client's
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The file; or what another client is given: a swanctl.conf with certificates, which are looked for beside it as swanctl does; a profile
    /// of strongSwan's app (.sswan), of Apple's devices (.mobileconfig), or of NetworkManager
    file: PathBuf,
    /// A file whose first line is the passphrase of the key, or the password of the user; otherwise it is asked for
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// What the connection is to be called [default: as the file says]
    #[arg(long, value_name = "CONNECTION")]
    name: Option<String>,
    /// The connection is there: take only its new certificate and key
    #[arg(long)]
    renew: bool,
    /// The configuration that gets it
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

pub(crate) fn run(args: &JoinArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    let joined = join(args, unix_now())?;
    let reload = Reload::ask(socket);
    let answer = json!({
        "version": 1,
        "connection": joined.name,
        "id": joined.id,
        "gateway": joined.gateway,
        "files": joined.files,
        "until_unix": joined.until.map(|until| until.0),
        "signer": joined.signer,
        "daemon": reload.has_daemon(),
        "restart": reload.restart.clone().unwrap_or_default(),
        "reload_error": reload.refused,
    });
    Output::new(json).print(&format!("{answer}\n"), || {
        let mut text = format!(
            "connection {}: {} at {}, {}\n",
            joined.name,
            names::harmless(&joined.id),
            names::harmless(&joined.gateway),
            joined.until.map_or_else(|| "by password".into(), |until| format!("until {}", day(until)))
        );
        if let Some(signer) = &joined.signer {
            let _ = writeln!(text, "note: signed by {signer}, whoever that is: the signature is right, and its certificate was not looked at");
        }
        if joined.exposed {
            let _ = writeln!(text, "note: others could read {}", args.file.display());
        }
        let _ = writeln!(text, "next: rm {}", args.file.display());
        match &reload.restart {
            None if reload.refused.is_some() => {
                text.push_str("      dormouse reload, once what it refused is mended\n")
            }
            None => text.push_str("      systemctl enable --now dormoused\n"),
            Some(keys) if !keys.is_empty() => {
                let _ = writeln!(text, "      systemctl restart dormoused ({})", keys.join(", "));
            }
            Some(_) => {
                let _ = writeln!(text, "      dormouse wait {}", joined.name);
            }
        }
        text
    })?;
    Ok(reload.exit_code(json))
}

/// What came of it.
#[derive(Debug)]
struct Joined {
    name: String,
    id: String,
    gateway: String,
    files: Vec<PathBuf>,
    /// Until when its certificate counts; `None` of a password.
    until: Option<UnixTime>,
    /// Who has signed the file.
    signer: Option<String>,
    /// Others could read the file.
    exposed: bool,
}

fn join(args: &JoinArgs, now: UnixTime) -> Result<Joined, Error> {
    let shown = args.file.display().to_string();
    let content =
        place::demand(&args.file, place::read(&args.file)?, "dormouse user add NAME, at the gateway")?;
    let source = args.passphrase_file.clone().map_or(Source::Terminal, Source::File);
    let (mut bundle, signer) = match str::from_utf8(content.as_bytes()) {
        Ok(text) if swanctl::is_one(text) => {
            (swanctl::connection(&args.file, text, args.name.as_deref())?, None)
        }
        _ => match foreign::profile(&args.file, &content, &source)? {
            Some(profile) => (profile.bundle, profile.signer),
            None => (Bundle::read(&content, &shown)?, None),
        },
    };
    bundle.require_valid(now, &shown)?;
    let name = args.name.clone().unwrap_or_else(|| bundle.name.clone());
    names::connection(&name)?;
    let mode = fs::metadata(&args.file).map(|meta| meta.permissions().mode()).unwrap_or_default();

    let place = Place::of(&args.config);
    let _lock = place.lock()?;
    let old = place::read_text(&place.config)?;
    let parse = |text: &str| {
        config::parse(text).map_err(|e| {
            Error::new(ErrorKind::Other, format!("{}: {}", place.config.display(), e.trim_end()))
        })
    };
    let before = parse(old.as_deref().unwrap_or_default())?;
    let paths = Paths::of(&place, &name, &bundle.proof);
    let text = match (before.connection.get(&name), args.renew) {
        (None, false) => {
            free(&paths)?;
            Some(appended(old.as_deref().unwrap_or_default(), &written(&name, &bundle, &paths)))
        }
        (Some(c), true) => {
            same(&name, c, &bundle, &paths)?;
            require_vouched(&name, c, &bundle, now)?;
            // Not the file's word but what is there stays, and is judged with the rest.
            bundle.ca = place::read_text(&paths.ca)?.unwrap_or_default();
            renewed(&name, c, &bundle).map(|section| appended(old.as_deref().unwrap_or_default(), &section))
        }
        (Some(_), false) => {
            let message = format!("there is a connection {name} already");
            return Err(wrong(message).with_change("--name OTHER; or --renew, if it is the same one"));
        }
        (None, true) => {
            let names = before.connection.keys().cloned().collect();
            let message = format!("there is no connection {name} to renew");
            return Err(Error::new(ErrorKind::UnknownConnection, message).with_offer(Vec::new(), names));
        }
    };
    let after = parse(text.as_deref().or(old.as_deref()).unwrap_or_default())?;
    require_sound(&after, &name, &bundle, &paths, now)?;

    let mut files: Vec<place::Write<'_>> = match &bundle.proof {
        Proof::Certificate { certificate, key } => vec![
            (paths.secret, key.0.as_bytes(), 0o600),
            (paths.certificate.unwrap_or_default(), certificate.as_bytes(), 0o644),
        ],
        Proof::Password { password, .. } => vec![(paths.secret, password.0.as_bytes(), 0o600)],
    };
    // A renewal leaves alone whom this device trusts, and everything that is configured.
    if !args.renew {
        files.push((paths.ca, bundle.ca.as_bytes(), 0o644));
    }
    if let Some(text) = &text {
        // It may hold secrets of others.
        let kept = fs::metadata(&place.config).map(|meta| meta.permissions().mode() & 0o777);
        files.push((place.config.clone(), text.as_bytes(), kept.unwrap_or(0o644)));
    }
    place::write(&files)?;
    Ok(Joined {
        name,
        id: bundle.id.clone(),
        gateway: bundle.gateway.clone(),
        files: files.into_iter().map(|(path, ..)| path).collect(),
        until: bundle.certificate()?.map(|own| own.not_after()),
        signer,
        exposed: mode & 0o044 != 0,
    })
}

/// Where the files of a connection go.
struct Paths {
    ca: PathBuf,
    /// Of a device with a certificate.
    certificate: Option<PathBuf>,
    /// The certificate's key, or the password.
    secret: PathBuf,
}

impl Paths {
    fn of(place: &Place, name: &str, proof: &Proof) -> Self {
        let path = |end: &str| place.path(&format!("{name}.{end}"));
        let (certificate, secret) = match proof {
            Proof::Certificate { .. } => (Some(path("pem")), path("key")),
            Proof::Password { .. } => (None, path("password")),
        };
        Self { ca: path("ca.pem"), certificate, secret }
    }
}

/// Where the next certificate is renewed, as it is written: `None` if the connection says so already, or its tunnel does not lead there.
fn renewed(name: &str, c: &Connection, bundle: &Bundle) -> Option<String> {
    let at = bundle.renewals.filter(|_| c.renewals.is_none())?;
    let mut nets = std::iter::once(&c.child).chain(c.children.values()).flat_map(|child| &child.remote);
    let leads = |s: &Selector| matches!(s, Selector::Net(net) if net.contains(&at.ip()));
    nets.any(leads).then(|| format!("[connection.{name}.renewals]\nat = {}\n", quoted(&at.to_string())))
}

/// Demands that the files to be made are not there yet.
fn free(paths: &Paths) -> Result<(), Error> {
    let mut all = [Some(&paths.ca), paths.certificate.as_ref(), Some(&paths.secret)].into_iter().flatten();
    match all.find(|path| fs::symlink_metadata(path).is_ok()) {
        None => Ok(()),
        Some(path) => {
            let message = format!("{} is there already, and no connection says whose it is", path.display());
            Err(Error::new(ErrorKind::Other, message).with_change("--name OTHER, or move it away"))
        }
    }
}

/// Demands that a connection is that of the file, and has its files where they are written.
fn same(name: &str, c: &Connection, bundle: &Bundle, paths: &Paths) -> Result<(), Error> {
    let differs = |what: &str, has: &str, gets: &str| {
        let message =
            format!("connection.{name}.{what} is {}, the file has {}", names::shown(has), names::shown(gets));
        Err(wrong(message).with_change("--name OTHER, without --renew"))
    };
    if c.role != Role::Client || c.gateway.as_ref() != Some(&bundle.gateway) {
        return differs("gateway", c.gateway.as_deref().unwrap_or_default(), &bundle.gateway);
    }
    if c.local.id != bundle.id {
        return differs("local.id", &c.local.id, &bundle.id);
    }
    if c.remote.id != bundle.gateway_id {
        return differs("remote.id", &c.remote.id, &bundle.gateway_id);
    }
    let secret = match &bundle.proof {
        Proof::Certificate { .. } => &c.local.key,
        Proof::Password { user, .. } => {
            if c.local.user.as_ref() != Some(user) {
                return differs("local.user", c.local.user.as_deref().unwrap_or_default(), user);
            }
            &c.local.password_file
        }
    };
    let ours = c.local.certificate == paths.certificate
        && secret.as_ref() == Some(&paths.secret)
        && c.remote.ca.contains(&paths.ca);
    if ours {
        return Ok(());
    }
    let message = match &paths.certificate {
        Some(path) => {
            format!("connection.{name} has its certificate, key or ca elsewhere than {}", path.display())
        }
        None => format!("connection.{name} has its password or ca elsewhere than {}", paths.secret.display()),
    };
    Err(wrong(message).with_change("--name OTHER, without --renew"))
}

/// Demands that an authority that the connection trusts already vouches for the new certificate: a forged file must not
/// tell this device whom to trust.
fn require_vouched(name: &str, c: &Connection, bundle: &Bundle, now: UnixTime) -> Result<(), Error> {
    let fail = |why: String| {
        let message = format!("connection.{name}.remote.ca does not vouch for the new certificate: {why}");
        let other = "--name OTHER, without --renew, if the gateway has another authority now";
        Error::new(ErrorKind::Authentication, message).with_change(other)
    };
    // A password is believed by the gateway alone, which proves itself by the authority that was joined.
    let Proof::Certificate { certificate, .. } = &bundle.proof else { return Ok(()) };
    let mut trusted = Vec::new();
    for path in &c.remote.ca {
        let advice = format!("connection.{name}.remote.ca as it was joined");
        let content = place::demand(path, place::read(path)?, &advice)?;
        let all = Certificate::from_file_content(content.as_bytes());
        trusted.extend(all.map_err(|e| fail(format!("{}: {e}", path.display())))?);
    }
    let trust = TrustStore::new(trusted).map_err(|e| fail(e.to_string()))?;
    let sent = Certificate::from_file_content(certificate.as_bytes());
    let sent = sent.map_err(|e| fail(e.to_string()))?;
    let (own, between) = sent.split_first().ok_or_else(|| fail("there is none".into()))?;
    let believed = trust.verify(own, between, now, Usage::Ike, &KnownPaths::default());
    believed.map(|_| ()).map_err(|e| fail(e.to_string()))
}

/// The connection as it is written.
fn written(name: &str, bundle: &Bundle, paths: &Paths) -> String {
    let path = |path: &Path| quoted(&path.display().to_string());
    let proposals = |before: &str, all: &[String], after: &str| {
        if all.is_empty() { String::new() } else { format!("{before}proposals = {}\n{after}", list(all)) }
    };
    let proof = match &bundle.proof {
        Proof::Certificate { .. } => format!(
            "certificate = {}\nkey = {}",
            path(paths.certificate.as_deref().unwrap_or(Path::new(""))),
            path(&paths.secret)
        ),
        Proof::Password { user, .. } => format!(
            "auth = \"eap-mschapv2\"\nuser = {}\npassword_file = {}",
            quoted(user),
            path(&paths.secret)
        ),
    };
    let at = |at: SocketAddr| format!("\n[connection.{name}.renewals]\nat = {}\n", quoted(&at.to_string()));
    let renewals = bundle.renewals.map(at).unwrap_or_default();
    format!(
        "[connection.{name}]\nrole = \"client\"\ngateway = {}\nauto = true\n\n\
         [connection.{name}.local]\nid = {}\n{proof}\n\n\
         [connection.{name}.remote]\nid = {}\nca = [{}]\n\n\
         {}[connection.{name}.child]\nremote = {}\n{}{renewals}",
        quoted(&bundle.gateway),
        quoted(&bundle.id),
        quoted(&bundle.gateway_id),
        path(&paths.ca),
        proposals(&format!("[connection.{name}.ike]\n"), &bundle.ike_proposals, "\n"),
        list(&bundle.remote),
        proposals("", &bundle.esp_proposals, ""),
    )
}

/// A section at the end of a document: nothing before it changes its meaning.
fn appended(old: &str, section: &str) -> String {
    match old.trim_end() {
        "" => format!("# All keys: docs/configuration.md.\n{section}"),
        old => format!("{old}\n\n{section}"),
    }
}

/// What the daemon would say of this one connection, its files and its own settings. The other connections and the router are left to the
/// daemon, which has read them before or reads them next: their files may be out of our reach, and this is not theirs to mend.
fn require_sound(
    after: &File,
    name: &str,
    bundle: &Bundle,
    paths: &Paths,
    now: UnixTime,
) -> Result<(), Error> {
    let fail = |e: String| Error::new(ErrorKind::Other, format!("the daemon would not take it: {e}"));
    let (certificate, secret) = match &bundle.proof {
        Proof::Certificate { certificate, key } => (certificate.as_str(), key),
        Proof::Password { password, .. } => ("", password),
    };
    let authorities = after.connection.get(name).map(|c| c.remote.ca.clone()).unwrap_or_default();
    let mut read = |path: &Path, _secret: bool| match path {
        path if path == paths.ca => Ok(bundle.ca.as_bytes().to_vec()),
        path if Some(path) == paths.certificate.as_deref() => Ok(certificate.as_bytes().to_vec()),
        path if path == paths.secret => Ok(secret.0.as_bytes().to_vec()),
        // A connection that is renewed may have more authorities than the one that was joined.
        other if authorities.iter().any(|path| path == other) => match place::read(other) {
            Ok(Some(content)) => Ok(content.as_bytes().to_vec()),
            Ok(None) => Err(format!("{} does not exist", other.display())),
            Err(e) => Err(e.message),
        },
        other => Err(format!("{} is none of its files", other.display())),
    };
    let mut only = after.clone();
    only.connection.retain(|other, _| other == name);
    only.router = None;
    let resolved = config::resolve(&only, &mut read).map_err(|e| fail(e.to_string()))?;
    match findings(&only.daemon, &resolved, now).into_iter().find(|finding| finding.fatal) {
        Some(finding) => Err(fail(finding.to_string())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrol::authority::Authority;
    use crate::enrol::bundle::tests::{NOW, sample, sample_of};

    struct Device(PathBuf);

    impl Drop for Device {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Device {
        fn new(name: &str, text: Option<&str>) -> Self {
            let dir = std::env::temp_dir().join(format!("dormouse-join-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(dir.join("etc")).unwrap();
            let dir = fs::canonicalize(dir).unwrap();
            if let Some(text) = text {
                fs::write(dir.join("etc/dormouse.toml"), text).unwrap();
            }
            Self(dir)
        }

        fn file(&self, content: &[u8]) {
            fs::write(self.0.join("joe.dormouse"), content).unwrap();
            self.mode(0o600);
        }

        fn mode(&self, mode: u32) {
            fs::set_permissions(self.0.join("joe.dormouse"), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn join(&self, name: Option<&str>, renew: bool) -> Result<Joined, Error> {
            let (file, config) = (self.0.join("joe.dormouse"), self.0.join("etc/dormouse.toml"));
            join(&JoinArgs { file, passphrase_file: None, name: name.map(str::to_owned), renew, config }, NOW)
        }

        fn text(&self) -> String {
            fs::read_to_string(self.0.join("etc/dormouse.toml")).unwrap_or_default()
        }

        fn file_text(&self) -> String {
            fs::read_to_string(self.0.join("joe.dormouse")).unwrap()
        }

        /// What the files hold, in the order of [`Self::names`].
        fn contents(&self) -> Vec<Vec<u8>> {
            self.names().iter().map(|name| fs::read(self.0.join("etc").join(name)).unwrap()).collect()
        }

        fn names(&self) -> Vec<String> {
            let all = fs::read_dir(self.0.join("etc")).unwrap().flatten();
            let mut all: Vec<String> = all.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            all.sort();
            all
        }
    }

    #[test]
    fn a_file_becomes_a_connection_with_files_of_its_own() {
        let device = Device::new("new", None);
        device.file(sample("office", "joe.example.org").as_bytes());
        let joined = device.join(None, false).unwrap();
        assert_eq!((joined.name.as_str(), joined.id.as_str()), ("office", "joe.example.org"));
        assert_eq!(device.names(), ["dormouse.toml", "office.ca.pem", "office.key", "office.pem"]);
        let mode =
            |name: &str| fs::metadata(device.0.join("etc").join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("office.key"), mode("office.pem"), mode("dormouse.toml")), (0o600, 0o644, 0o644));
        let file = config::parse(&device.text()).unwrap();
        let c = &file.connection["office"];
        assert!(c.auto && c.gateway.as_deref() == Some("vpn.example.org"));
        let mut read = |path: &Path, _| fs::read(path).map_err(|e| e.to_string());
        config::resolve(&file, &mut read).unwrap();
        assert!(!joined.exposed, "for its owner alone");
        for mode in [0o640, 0o604] {
            device.mode(mode);
            assert!(device.join(Some(&format!("more-{mode:o}")), false).unwrap().exposed, "{mode:o}");
        }
    }

    #[test]
    fn what_is_configured_stays_and_a_second_one_of_the_same_name_is_refused() {
        let old = "# mine\n[daemon]\nlog = \"warn\" # quiet";
        let device = Device::new("add", Some(old));
        fs::set_permissions(device.0.join("etc/dormouse.toml"), fs::Permissions::from_mode(0o600)).unwrap();
        device.file(sample("office", "joe.example.org").as_bytes());
        device.join(None, false).unwrap();
        let text = device.text();
        assert!(text.starts_with(old) && text.contains("\n\n[connection.office]\n"), "{text}");
        assert_eq!(
            fs::metadata(device.0.join("etc/dormouse.toml")).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let error = device.join(None, false).unwrap_err();
        assert_eq!(error.message, "there is a connection office already");
        assert_eq!(device.text(), text);
        device.join(Some("second"), false).unwrap();
        assert_eq!(config::parse(&device.text()).unwrap().connection.len(), 2);
    }

    #[test]
    fn a_renewal_replaces_certificate_and_key_of_the_same_connection_alone() {
        let device = Device::new("renew", None);
        let (authority, _) = Authority::new("A test", NOW).unwrap();
        let sample = |id: &str| sample_of(&authority, "office", id);
        device.file(sample("joe.example.org").as_bytes());
        device.join(None, false).unwrap();
        let (text, before) = (device.text(), device.contents());
        device.file(sample("joe.example.org").as_bytes());
        let renewed = device.join(None, true).unwrap();
        assert_eq!(renewed.files, ["office.key", "office.pem"].map(|name| device.0.join("etc").join(name)));
        assert_eq!(device.text(), text);
        let changed: Vec<bool> = before.iter().zip(device.contents()).map(|(a, b)| *a != b).collect();
        assert_eq!(changed, [false, false, true, true], "{:?}", device.names());
        // A connection of before says from now on where the next one is had.
        let section = "\n[connection.office.renewals]\nat = \"10.10.0.1:4510\"\n";
        fs::write(device.0.join("etc/dormouse.toml"), text.replace(section, "")).unwrap();
        device.file(sample("joe.example.org").as_bytes());
        device.join(None, true).unwrap();
        assert_eq!(device.text(), text);
        device.file(sample("ann.example.org").as_bytes());
        let error = device.join(None, true).unwrap_err();
        assert_eq!(
            error.message,
            "connection.office.local.id is \"joe.example.org\", the file has \"ann.example.org\""
        );
        assert!(
            device
                .join(Some("other"), true)
                .unwrap_err()
                .message
                .contains("there is no connection other to renew")
        );
        device.file(sample("joe.example.org").as_bytes());
        fs::write(device.0.join("etc/dormouse.toml"), text.replace("office.key", "elsewhere.key")).unwrap();
        assert!(
            device.join(None, true).unwrap_err().message.contains("has its certificate, key or ca elsewhere")
        );
        fs::write(device.0.join("etc/dormouse.toml"), text.replace("vpn.example.org", "vpn.example.com"))
            .unwrap();
        assert!(device.join(None, true).unwrap_err().message.starts_with("connection.office.gateway is"));
    }

    /// The same names under another key: whoever made it must not become whom this device trusts.
    #[test]
    fn a_renewal_by_another_authority_is_refused_and_leaves_all_as_it_was() {
        let device = Device::new("forged", None);
        device.file(sample("office", "joe.example.org").as_bytes());
        device.join(None, false).unwrap();
        let before = device.contents();
        let (other, _) = Authority::new("A test", NOW).unwrap();
        let forged = sample_of(&other, "office", "joe.example.org");
        device.file(forged.as_bytes());
        let error = device.join(None, true).unwrap_err();
        let said = "connection.office.remote.ca does not vouch for the new certificate: ";
        assert!(error.message.starts_with(said), "{error}");
        assert_eq!((error.kind, device.contents()), (ErrorKind::Authentication, before.clone()));
        // Nor does it help to name the known authority in it.
        let forged = Bundle::read(&forged, "x").unwrap();
        let known = fs::read_to_string(device.0.join("etc/office.ca.pem")).unwrap();
        device.file(device.file_text().replace(&forged.ca, &known).as_bytes());
        assert!(device.join(None, true).unwrap_err().message.starts_with(said));
        assert_eq!(device.contents(), before);
        fs::remove_file(device.0.join("etc/office.ca.pem")).unwrap();
        assert!(device.join(None, true).unwrap_err().message.ends_with("office.ca.pem does not exist"));
    }

    #[test]
    fn nothing_is_written_where_something_is_wrong() {
        let good = String::from_utf8(sample("office", "joe.example.org").as_bytes().to_vec()).unwrap();
        let other = String::from_utf8(sample("office", "joe.example.org").as_bytes().to_vec()).unwrap();
        let key = |text: &str| text[text.find("key = ").unwrap()..].to_owned();
        for (file, old, name, said) in [
            (good.clone(), "", Some("../x"), "is no name of a connection here"),
            (
                good.replace("name = \"office\"", "name = \"a/../b\""),
                "",
                None,
                "\"a/../b\" is no name of a connection here",
            ),
            (good.clone(), "[daemon\n", None, "dormouse.toml: "),
            (good.clone(), "connection = {}\n", None, "dormouse.toml: "),
            (
                good.replace("id = \"joe.example.org\"", "id = \"ann.example.org\""),
                "",
                None,
                "the daemon would not take it: connection.office.local.id",
            ),
            (good.replace(&key(&good), &key(&other)), "", None, "is not the key of the certificate"),
            (
                good.replace("version = 1", "version = 9"),
                "",
                None,
                "is of version 9, this dormouse reads version 1",
            ),
        ] {
            let device = Device::new("wrong", Some(old));
            device.file(file.as_bytes());
            let error = device.join(name, false).expect_err(said);
            assert!(error.message.contains(said), "{said}: {error}");
            assert!(!error.to_string().contains("MIG"), "{error}");
            assert_eq!((device.names(), device.text()), (vec!["dormouse.toml".to_owned()], old.to_owned()));
        }
        let device = Device::new("taken", None);
        let error = device.join(None, false).unwrap_err();
        assert!(error.message.ends_with("joe.dormouse does not exist"), "{error}");
        device.file(good.as_bytes());
        std::os::unix::fs::symlink("/etc/passwd", device.0.join("etc/office.pem")).unwrap();
        let error = device.join(None, false).unwrap_err();
        assert!(error.message.contains("is there already, and no connection says whose it is"), "{error}");
    }
}
