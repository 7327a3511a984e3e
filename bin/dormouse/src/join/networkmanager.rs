//! `dormouse join --networkmanager`: a connection for NetworkManager's plug-in `dormouse-nm`, instead of one of the daemon's. Owns the form of its key
//! file, and where its files go.
//!
//! `nmcli connection import` loads a library of the plug-in's (`bin/dormouse-nm/library/plugin.c`), which has this program read the file and print the connection.

use super::{JoinArgs, Joined, Taken, take};
use crate::control_verbs::Output;
use crate::enrol::bundle::{Bundle, Proof};
use crate::enrol::{names, place, wrong};
use crate::user::uuid_of;
use dormouse_control::{Error, ErrorKind, ExitCode};
use dormouse_io::clock::unix_now;
use dormouse_sansio::UnixTime;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use zeroize::Zeroizing;

/// Where NetworkManager has its connections, and others put the files that these name.
pub(super) const DIRECTORY: &str = "/etc/NetworkManager";

pub(super) fn run(args: &JoinArgs, json: bool) -> Result<ExitCode, Error> {
    if args.print {
        let home = if rustix::process::geteuid().is_root() {
            None
        } else {
            let home = std::env::home_dir().filter(|home| home.is_absolute());
            Some(home.ok_or_else(|| wrong("where your files are is not known: HOME"))?)
        };
        let text = print(args, home.as_deref(), unix_now())?;
        // The connection is what is asked for, for people and programs.
        Output::new(false).print("", || text.to_string())?;
        return Ok(ExitCode::Ok);
    }
    let made = make(args, unix_now())?;
    let file = made.files.last().map(|path| path.display().to_string()).unwrap_or_default();
    let loaded = load(&file);
    let answer = json!({
        "version": 1,
        "connection": made.name,
        "id": made.id,
        "gateway": made.gateway,
        "files": made.files,
        "until_unix": made.until.map(|until| until.0),
        "signer": made.signer,
        "load_error": loaded.as_ref().err(),
    });
    Output::new(json).print(&format!("{answer}\n"), || {
        let mut text = made.said("connection of NetworkManager", &args.file);
        if let Err(why) = &loaded {
            let _ = writeln!(text, "      nmcli connection load {file}  ({why})");
        }
        let _ = writeln!(text, "      nmcli connection up {}", made.name);
        text
    })?;
    Ok(if loaded.is_ok() { ExitCode::Ok } else { ExitCode::Failure })
}

/// Has NetworkManager read the connection.
fn load(file: &str) -> Result<(), String> {
    let done = Command::new("nmcli").args(["connection", "load", file]).output();
    let done = done.map_err(|e| format!("nmcli: {e}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(names::harmless(String::from_utf8_lossy(&done.stderr).trim()))
    }
}

/// Where the files go that a connection names: authority, certificate, key.
struct Named([PathBuf; 3]);

impl Named {
    fn of(certs: &Path, name: &str) -> Self {
        Self(["-ca.pem", ".pem", ".key"].map(|end| certs.join(format!("{name}{end}"))))
    }

    /// What they hold, and for whom.
    fn files<'a>(&self, bundle: &'a Bundle) -> Vec<place::Write<'a>> {
        let [ca, certificate, key] = self.0.clone();
        let mut files: Vec<place::Write<'a>> = vec![(ca, bundle.ca.as_bytes(), 0o644)];
        if let Proof::Certificate { certificate: own, key: secret } = &bundle.proof {
            files.push((certificate, own.as_bytes(), 0o644));
            files.push((key, secret.0.as_bytes(), 0o600));
        }
        files
    }
}

/// Writes the files of the connection, which is the last of them.
fn make(args: &JoinArgs, now: UnixTime) -> Result<Joined, Error> {
    let Taken { name, bundle, signer, exposed } = take(args, now)?;
    let directory = &args.networkmanager_dir;
    let connections = directory.join("system-connections");
    if !connections.is_dir() {
        let message = format!("{} does not exist: there is no NetworkManager here", connections.display());
        return Err(Error::new(ErrorKind::Other, message));
    }
    let certs = directory.join("certs");
    fs::create_dir_all(&certs).map_err(|e| wrong(format!("{}: {e}", certs.display())))?;
    let named = Named::of(&certs, &name);
    let connection = connections.join(format!("{name}.nmconnection"));
    let text = text(&name, &bundle, &named);
    let mut files = named.files(&bundle);
    files.push((connection, text.as_bytes(), 0o600));
    let there = |path: &&PathBuf| fs::symlink_metadata(path).is_ok();
    if let Some(path) = files.iter().map(|(path, ..)| path).find(there).filter(|_| !args.renew) {
        let message = format!("{} is there already", path.display());
        return Err(wrong(message).with_change("--name OTHER; or --renew, if it is the same one"));
    }
    place::write(&files)?;
    Ok(Joined {
        files: files.into_iter().map(|(path, ..)| path).collect(),
        until: bundle.certificate()?.map(|own| own.not_after()),
        id: bundle.id.clone(),
        gateway: bundle.gateway.clone(),
        name,
        signer,
        exposed,
    })
}

/// What is printed is called as its file is, as NetworkManager names what it imports: two gateways' files may hold one name.
fn name_of(args: &JoinArgs, taken: String) -> String {
    let stem = args.file.file_stem().and_then(|stem| stem.to_str());
    let stem = stem.filter(|stem| args.name.is_none() && names::connection(stem).is_ok());
    stem.map_or(taken, str::to_owned)
}

/// Writes the files that the connection names, and returns the connection: to `~/.cert` of whom `home` is, or for all. Files that an earlier one has left must be the same: the
/// connection may be imported again, and what another one uses stays.
fn print(args: &JoinArgs, home: Option<&Path>, now: UnixTime) -> Result<Zeroizing<String>, Error> {
    let Taken { name, bundle, signer, .. } = take(args, now)?;
    let name = name_of(args, name);
    let certs = home.map_or_else(|| args.networkmanager_dir.join("certs"), |home| home.join(".cert"));
    let named = Named::of(&certs, &name);
    let mut missing = Vec::new();
    for file in named.files(&bundle) {
        match place::read(&file.0)? {
            None => missing.push(file),
            Some(there) if there.as_bytes() == file.1 => {}
            Some(_) => {
                let message = format!("{} is there already, with other content", file.0.display());
                return Err(wrong(message).with_change("--name OTHER, or remove it if nothing uses it"));
            }
        }
    }
    let made =
        fs::DirBuilder::new().recursive(true).mode(if home.is_none() { 0o755 } else { 0o700 }).create(&certs);
    made.map_err(|e| wrong(format!("{}: {e}", certs.display())))?;
    place::write(&missing)?;
    if let Some(signer) = signer {
        eprintln!("note: signed by {signer}: the signature is right, and its certificate was not checked");
    }
    Ok(text(&name, &bundle, &named))
}

/// A value of a key file: what would end the line or be left out is escaped, so that no value becomes a key.
fn value(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let spaces = text.len() - text.trim_start_matches(' ').len();
    for (at, c) in text.char_indices() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' ' if at < spaces => out.push_str("\\s"),
            c => out.push(c),
        }
    }
    out
}

/// The connection as NetworkManager keeps it. Its UUID is made of authority and identity: the tickets of one that is made anew are still its own.
fn text(name: &str, bundle: &Bundle, Named([ca, certificate, key]): &Named) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(4096));
    let mut line = |key: &str, of: &str| _ = writeln!(text, "{key}={}", value(of));
    let path = |path: &Path| path.display().to_string();
    line("[connection]\nid", name);
    line("uuid", &uuid_of(&bundle.ca, &bundle.id, "dormouse-nm"));
    line("type", "vpn");
    line("autoconnect", "false");
    line("\n[vpn]\nservice-type", "org.freedesktop.NetworkManager.dormouse");
    // Sessions outlive networks and sleep: it is not taken down for them.
    line("persistent", "true");
    line("address", &bundle.gateway);
    line("remote-identity", &bundle.gateway_id);
    line("local-identity", &bundle.id);
    line("certificate", &path(ca));
    let nets: Vec<String> = bundle.remote.iter().map(ToString::to_string).collect();
    line("remote-ts", &nets.join(","));
    for (key, proposals) in [("ike", &bundle.ike_proposals), ("esp", &bundle.esp_proposals)] {
        if !proposals.is_empty() {
            line(key, &proposals.join(","));
        }
    }
    if !(bundle.ike_proposals.is_empty() && bundle.esp_proposals.is_empty()) {
        line("proposal", "yes");
    }
    match &bundle.proof {
        Proof::Certificate { .. } => {
            line("method", "key");
            line("usercert", &path(certificate));
            line("userkey", &path(key));
        }
        Proof::Password { user, password } => {
            line("method", "eap");
            line("user", user);
            line("password-flags", "0");
            line("\n[vpn-secrets]\npassword", &password.0);
        }
    }
    line("\n[ipv4]\nmethod", "auto");
    line("\n[ipv6]\nmethod", "auto");
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::args;
    use super::*;
    use crate::enrol::bundle::tests::{NOW, sample};
    use dormouse_node::config::file::Hidden;
    use std::os::unix::fs::PermissionsExt as _;

    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn join(place: &Place, renew: bool) -> Result<Joined, Error> {
        let file = place.0.join("joe.dormouse");
        make(&args(file, None, renew, place.0.clone()), NOW)
    }

    #[test]
    fn a_file_becomes_a_connection_of_networkmanager_with_files_of_its_own() {
        let place = Place(std::env::temp_dir().join(format!("dormouse-join-nm-{}", std::process::id())));
        let _ = fs::remove_dir_all(&place.0);
        fs::create_dir_all(&place.0).unwrap();
        fs::write(place.0.join("joe.dormouse"), sample("office", "joe.example.org").as_bytes()).unwrap();
        let missing = join(&place, false).unwrap_err();
        assert!(missing.message.ends_with("there is no NetworkManager here"), "{missing}");
        fs::create_dir_all(place.0.join("system-connections")).unwrap();
        let made = join(&place, false).unwrap();
        let names: Vec<_> =
            made.files.iter().map(|f| f.strip_prefix(&place.0).unwrap().display().to_string()).collect();
        let own = [
            "certs/office-ca.pem",
            "certs/office.pem",
            "certs/office.key",
            "system-connections/office.nmconnection",
        ];
        assert_eq!((made.name.as_str(), names), ("office", own.map(str::to_owned).to_vec()));
        let mode = |n: usize| fs::metadata(&made.files[n]).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(0), mode(2), mode(3)), (0o644, 0o600, 0o600));
        let text = fs::read_to_string(&made.files[3]).unwrap();
        for line in ["type=vpn", "address=vpn.example.org", "method=key", "persistent=true"] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        let again = join(&place, false).unwrap_err();
        assert!(again.message.ends_with("is there already"), "{again}");
        join(&place, true).unwrap();
        assert_eq!(fs::read_to_string(&made.files[3]).unwrap(), text, "the same UUID");
    }

    #[test]
    fn a_connection_is_printed_with_files_in_the_users_home() {
        let place =
            Place(std::env::temp_dir().join(format!("dormouse-join-nm-print-{}", std::process::id())));
        let _ = fs::remove_dir_all(&place.0);
        fs::create_dir_all(&place.0).unwrap();
        let file = place.0.join("joe.dormouse");
        fs::write(&file, sample("office", "joe.example.org").as_bytes()).unwrap();
        let printed = || print(&args(file.clone(), None, false, place.0.join("etc")), Some(&place.0), NOW);
        let text = printed().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let named = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).map(PathBuf::from).unwrap();
        let key = named("userkey=");
        assert_eq!((&key, mode(&key)), (&place.0.join(".cert/joe.key"), 0o600));
        assert_eq!(mode(&place.0.join(".cert")), 0o700);
        assert!(text.contains("\nid=joe\n"), "as the file is called");
        assert!(fs::read_to_string(named("usercert=")).unwrap().starts_with("-----BEGIN CERTIFICATE"));
        assert!(!place.0.join("etc").exists(), "the machine's own connections are left alone");
        assert_eq!(*printed().unwrap(), *text, "the same once more");
        fs::write(&key, "another").unwrap();
        let refused = printed().unwrap_err();
        assert!(refused.message.contains("joe.key is there already, with other content"), "{refused}");
        assert_eq!(fs::read_to_string(&key).unwrap(), "another");
    }

    #[test]
    fn no_value_becomes_a_key() {
        let sample = Bundle::read(&sample("office", "joe.example.org"), "x").unwrap();
        let password = Hidden(" a\\b\nservice-type=other".to_owned());
        let proof = Proof::Password { user: "joe\n[vpn-secrets]".to_owned(), password };
        let text = text("office", &Bundle { proof, ..sample }, &Named::of(Path::new("/c"), "office"));
        assert_eq!(text.lines().filter(|l| l.starts_with("service-type=")).count(), 1, "{}", *text);
        assert!(text.contains("\npassword=\\sa\\\\b\\nservice-type=other\n"));
        assert!(text.contains("\nuser=joe\\n[vpn-secrets]\n"));
    }
}
