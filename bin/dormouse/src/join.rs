//! `dormouse join`: a device takes up what `dormouse user add` has made for it. Owns which files come of it; a configuration that is there stays as
//! it is, and gets one connection more. Nothing is written before the daemon's own parser has judged the configuration, and the new connection
//! with its files; what other connections' files hold, and the router, the daemon judges when it takes it up.

mod networkmanager;

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
    /// Make a connection of NetworkManager, for its plug-in dormouse-nm, instead of one of the daemon's; with --renew, in the place of the one that is there
    #[arg(long, conflicts_with = "config")]
    networkmanager: bool,
    /// Print that connection instead of adding it, and write only the certificates and the key that it names, into ~/.cert (root: into
    /// NetworkManager's directory): what `nmcli connection import` has it do
    #[arg(long, requires = "networkmanager", conflicts_with = "renew")]
    print: bool,
    /// NetworkManager's directory
    #[arg(long, value_name = "DIR", default_value = networkmanager::DIRECTORY, hide = true)]
    networkmanager_dir: PathBuf,
    /// The configuration that gets it
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

pub(crate) fn run(args: &JoinArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    if args.networkmanager {
        return networkmanager::run(args, json);
    }
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
        let mut text = joined.said("connection", &args.file);
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

impl Joined {
    /// The same for people, up to what is to be done next.
    fn said(&self, what: &str, file: &Path) -> String {
        let mut text = format!(
            "{what} {}: {} at {}, {}\n",
            self.name,
            names::harmless(&self.id),
            names::harmless(&self.gateway),
            self.until.map_or_else(|| "by password".into(), |until| format!("until {}", day(until)))
        );
        if let Some(signer) = &self.signer {
            let _ = writeln!(
                text,
                "note: signed by {signer}: the signature is right, and its certificate was not checked"
            );
        }
        if self.exposed {
            let _ = writeln!(text, "note: others could read {}", file.display());
        }
        let _ = writeln!(text, "next: rm {}", file.display());
        text
    }
}

/// What was read.
struct Taken {
    /// What the connection is to be called.
    name: String,
    bundle: Bundle,
    signer: Option<String>,
    exposed: bool,
}

/// Reads the file: ours, or the profile of another client.
fn take(args: &JoinArgs, now: UnixTime) -> Result<Taken, Error> {
    let shown = args.file.display().to_string();
    let content =
        place::demand(&args.file, place::read(&args.file)?, "dormouse user add NAME, at the gateway")?;
    let source = args.passphrase_file.clone().map_or(Source::Terminal, Source::File);
    let (bundle, signer) = match str::from_utf8(content.as_bytes()) {
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
    Ok(Taken { name, bundle, signer, exposed: mode & 0o044 != 0 })
}

fn join(args: &JoinArgs, now: UnixTime) -> Result<Joined, Error> {
    let Taken { name, mut bundle, signer, exposed } = take(args, now)?;
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
        exposed,
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
mod tests;
