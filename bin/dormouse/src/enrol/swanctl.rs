//! A connection of strongSwan's `swanctl.conf`, as a device there has it, for one that is to be joined with us. Owns the reading of the common keys;
//! what it does not know of authentication is refused, and everything else is left out.
//!
//! Files are looked for beside the configuration as swanctl does (`x509`, `x509ca`, `private`), by plain names alone: a path in the
//! configuration is refused, as it could make a key of another program a part of the connection. For the same reason links are not followed,
//! and certificates and key are encoded anew from what was parsed. Otherwise the owner of the directory could have root copy a secret of another
//! file into one that everybody can read.

use super::bundle::{Bundle, Parties, Proof};
use super::names::{self, harmless, shown};
use super::place;
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::Certificate;
use dormouse_crypto::sign::SigningKey;
use dormouse_node::config::file::Hidden;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Sections within sections.
const DEEPEST: usize = 8;
/// Most settings, and most files that are looked at for a key.
const MOST: usize = 4096;
/// Most files that an error names.
const OFFERED: usize = 16;
/// Where swanctl keeps private keys.
const KEYS: [&str; 4] = ["private", "pkcs8", "ecdsa", "rsa"];

/// A setting: the sections that it is in, its name and its value.
type Setting = (Vec<String>, String, String);

/// Sections that such a file begins with.
const SECTIONS: [&str; 5] = ["connections", "secrets", "pools", "authorities", "include"];

/// Whether this is such a file: no TOML, as a bundle is, and with a line that begins one of swanctl's sections, wherever it stands.
pub(crate) fn is_one(text: &str) -> bool {
    let begins = |line: &str| {
        let name = line.split(|c: char| c.is_whitespace() || c == '{').next().unwrap_or_default();
        let after = line.get(name.len()..).unwrap_or_default().trim_start();
        let included = name == "include" && !after.is_empty();
        SECTIONS.contains(&name) && (included || after.is_empty() || after.starts_with('{'))
    };
    toml::from_str::<toml::Table>(text).is_err() && text.lines().map(str::trim).any(begins)
}

/// Reads the file at `path`, whose content is `text`: its only connection, or the one that is `wanted`.
///
/// # Errors
/// What is missing or is not done by us, and where.
pub(crate) fn connection(path: &Path, text: &str, wanted: Option<&str>) -> Result<Bundle, Error> {
    let file = path.display().to_string();
    // Names of files, sections and certificates may be in it.
    let fail = |what: String| Error::new(ErrorKind::Other, format!("{file}: {}", harmless(&what)));
    let settings = settings(text).map_err(fail)?;
    let mut names: Vec<&String> = settings
        .iter()
        .filter(|(at, ..)| at.first().is_some_and(|first| first == "connections"))
        .filter_map(|(at, ..)| at.get(1))
        .collect();
    names.dedup();
    let name = match (wanted.and_then(|w| names.iter().find(|n| **n == w)), names.as_slice()) {
        (Some(name), _) | (None, [name]) => (*name).clone(),
        (None, []) => return Err(elsewhere(path, text, fail("there is no connection in it".into()))),
        (None, several) => {
            let several = several.iter().map(|name| called(name)).collect();
            return Err(fail("there are several connections in it".into())
                .with_offer(Vec::new(), several)
                .with_change("--name CONNECTION"));
        }
    };
    let of = Of { settings: &settings, name: &name };
    of.bundle(path).map_err(|what| fail(format!("connections.{}: {what}", called(&name))))
}

/// A section's name for people: as it is where it is one of ours.
fn called(name: &str) -> String {
    if names::connection(name).is_ok() { name.to_owned() } else { shown(name) }
}

/// The same error with the files that the connection may be in: what is included is not looked through, as it may be anybody's.
fn elsewhere(path: &Path, text: &str, error: Error) -> Error {
    let included = |line: &str| {
        let (word, files) = line.trim().split_once(char::is_whitespace)?;
        (word == "include").then(|| files.trim().to_owned())
    };
    let included: Vec<String> = text.lines().filter_map(included).take(OFFERED).collect();
    if included.is_empty() {
        return error;
    }
    let place = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let snippets = if included.iter().any(|files| files == "conf.d/*.conf") {
        listed(&place.join("conf.d"))
    } else {
        Vec::new()
    };
    let snippets = snippets.iter().filter(|path| path.extension().is_some_and(|end| end == "conf"));
    let files: Vec<String> =
        snippets.take(OFFERED).map(|path| harmless(&path.display().to_string())).collect();
    let includes = included.iter().map(|files| shown(files)).collect::<Vec<_>>().join(", ");
    let mut error = error.with_change("dormouse join FILE, with the one that the connection is in");
    error.message = format!("{}, but it includes {includes}", error.message);
    error.with_offer(Vec::new(), files)
}

/// The settings of one connection.
struct Of<'a> {
    settings: &'a [Setting],
    name: &'a str,
}

impl Of<'_> {
    /// The value of a key in a section of the connection, of which `at` is how its name begins.
    fn get(&self, at: &str, key: &str) -> Option<&str> {
        self.all(at, key).next()
    }

    fn all(&self, section: &str, key: &str) -> impl Iterator<Item = &str> {
        let (section, key) = (section.to_owned(), key.to_owned());
        self.settings.iter().filter_map(move |(at, name, value)| {
            let here = match at.as_slice() {
                [first, second] => section.is_empty() && first == "connections" && second == self.name,
                [first, second, third, ..] => {
                    !section.is_empty()
                        && first == "connections"
                        && second == self.name
                        && third.starts_with(&section)
                }
                _ => false,
            };
            (here && *name == key).then_some(value.as_str())
        })
    }

    fn bundle(&self, path: &Path) -> Result<Bundle, String> {
        if let Some(version) = self.get("", "version").filter(|v| *v != "2") {
            return Err(format!("version = {}: only IKEv2 is spoken", shown(version)));
        }
        let auth = |side: &str| self.get(side, "auth").unwrap_or("pubkey");
        let by_password = auth("local") == "eap-mschapv2";
        for (side, also) in [("local", " and eap-mschapv2"), ("remote", "")] {
            if auth(side) != "pubkey" && !(side == "local" && by_password) {
                return Err(format!("{side}.auth = {}: only pubkey{also} is taken over", shown(auth(side))));
            }
        }
        let gateway = self.get("", "remote_addrs").map(first).filter(|a| !a.is_empty() && !a.contains('%'));
        let gateway = gateway.ok_or("remote_addrs does not say where the gateway is")?;
        names::gateway(gateway).map_err(|e| format!("remote_addrs: {}", e.message))?;
        let place = place_of(path);
        let ca = match self.get("remote", "cacerts") {
            Some(names) => one_pem(&place, "x509ca", names)?,
            None => every_pem(&place.join("x509ca"))?,
        };
        let (proof, own) = if by_password { self.login()? } else { self.certified(&place)? };
        let id = self.get("local", "id").map_or(own, marked);
        let gateway_id = self.get("remote", "id").map_or_else(|| gateway.to_owned(), marked);
        let mut remote = Vec::new();
        for list in self.all("children", "remote_ts") {
            remote.extend(prefixes(list)?);
        }
        if remote.is_empty() {
            return Err("children: no remote_ts says what the tunnel carries".into());
        }
        // All of one family: the other one is not to leave in clear.
        if remote.iter().any(|net| net.prefix_len() == 0) {
            remote.extend([IpNet::from(Ipv4Net::default()), Ipv6Net::default().into()]);
        }
        remote.sort_unstable();
        remote.dedup();
        let proposals = |section: &str, key: &str| {
            let list = self.get(section, key).unwrap_or_default().split(',');
            list.map(str::trim).filter(|p| !p.is_empty() && *p != "default").map(str::to_owned).collect()
        };
        let parties = Parties {
            name: self.name.into(),
            gateway: gateway.into(),
            gateway_id,
            id,
            remote,
            ike_proposals: proposals("", "proposals"),
            esp_proposals: proposals("children", "esp_proposals"),
            renewals: None,
        };
        Ok(Bundle::of(parties, ca, proof))
    }

    /// A certificate and its key, and its subject.
    fn certified(&self, place: &Path) -> Result<(Proof, String), String> {
        let certificate = self.get("local", "certs").ok_or("local.certs names no certificate")?;
        let certificate = one_pem(place, "x509", certificate)?;
        let own = Certificate::from_pem(certificate.as_bytes()).map_err(|e| e.to_string())?;
        let key = key_of(place, &own)?;
        Ok((Proof::Certificate { certificate, key }, own.subject()))
    }

    /// A user and the password that `secrets` has for it, and the user again.
    fn login(&self) -> Result<(Proof, String), String> {
        let user = self.get("local", "eap_id").or_else(|| self.get("local", "id"));
        let user = marked(user.ok_or("local.eap_id does not say who logs in")?);
        let eap = |at: &[String]| {
            at.len() == 2 && at.first().is_some_and(|first| first == "secrets") && at[1].starts_with("eap")
        };
        let of = |key: &'static str| {
            let all = self.settings.iter().filter(move |(at, name, _)| eap(at) && name.starts_with(key));
            all.map(|(at, _, value)| (at, value))
        };
        let section = of("id").find(|(_, id)| marked(id) == user).map(|(at, _)| at);
        let secret = section.and_then(|section| of("secret").find(|(at, _)| *at == section));
        let (_, password) = secret.ok_or_else(|| format!("secrets has none for {}", shown(&user)))?;
        // In base64 and in hexadecimal digits: what they stand for need not be text.
        if ["0s", "0x"].iter().any(|mark| password.starts_with(mark)) {
            let user = shown(&user);
            return Err(format!("the secret for {user}: only a password as text is taken over"));
        }
        Ok((Proof::Password { user: user.clone(), password: Hidden(password.clone()) }, user))
    }
}

/// The directory that swanctl's folders are in.
fn place_of(path: &Path) -> PathBuf {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if dir.file_name().is_some_and(|name| name == "conf.d") { dir.join("..") } else { dir.to_owned() }
}

fn first(list: &str) -> &str {
    list.split(',').next().unwrap_or_default().trim()
}

/// An identity without strongSwan's marks of its kind.
fn marked(id: &str) -> String {
    ["fqdn:", "email:", "@"].iter().find_map(|mark| id.strip_prefix(mark)).unwrap_or(id).to_owned()
}

fn prefixes(list: &str) -> Result<Vec<IpNet>, String> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let one = |word: &str| {
        let single = || word.parse::<IpAddr>().map(IpNet::from);
        let net = word.parse::<IpNet>().or_else(|_| single());
        net.map(|net| net.trunc()).map_err(|_| format!("remote_ts: {} is no prefix", shown(word)))
    };
    words.map(one).collect()
}

/// The certificates of the one file of a folder that is named.
fn one_pem(place: &Path, folder: &str, names: &str) -> Result<String, String> {
    let plain = |name: &str| !name.contains('/') && !name.starts_with('.') && !name.is_empty();
    match names.split(',').map(str::trim).collect::<Vec<_>>()[..] {
        [name] if plain(name) => {
            let folder = place.join(folder);
            let path = folder.join(name);
            let found = if is_folder(&folder) { read(&path)? } else { None };
            certificates(&path, &found.ok_or_else(|| format!("{} does not exist", path.display()))?)
        }
        [name] => Err(format!("{} is not a plain name of a file in {folder}", shown(name))),
        _ => Err(format!("several files of {folder}: only one is taken over")),
    }
}

fn read(path: &Path) -> Result<Option<Secret>, String> {
    place::read_unlinked(path).map_err(|e| e.message)
}

/// The certificates of a file, encoded anew as PEM, without any other content of the file.
fn certificates(path: &Path, content: &Secret) -> Result<String, String> {
    let all = Certificate::from_file_content(content.as_bytes());
    let pem = all.and_then(|all| all.iter().map(Certificate::to_pem).collect::<Result<String, _>>());
    pem.map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether this is a directory, and not a link to one.
fn is_folder(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir())
}

/// The ordinary files of a folder; links are passed over.
fn listed(dir: &Path) -> Vec<PathBuf> {
    let entries = is_folder(dir).then(|| fs::read_dir(dir)).into_iter().flatten().flatten().flatten();
    let ordinary = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    let mut paths: Vec<PathBuf> = entries.filter(ordinary).map(|entry| entry.path()).take(MOST).collect();
    paths.sort();
    paths
}

/// All certificates of a folder.
fn every_pem(dir: &Path) -> Result<String, String> {
    let mut all = String::new();
    for path in listed(dir) {
        if let Some(content) = read(&path)? {
            all += &certificates(&path, &content)?;
        }
    }
    if all.is_empty() { Err(format!("{}: no certificate of an authority", dir.display())) } else { Ok(all) }
}

/// The private key that belongs to a certificate.
fn key_of(place: &Path, certificate: &Certificate) -> Result<Hidden, String> {
    let wanted = certificate.public_key().map_err(|e| e.to_string())?;
    let fits =
        |content: &[u8]| SigningKey::from_file_content(content).is_ok_and(|key| *key.public_key() == wanted);
    for path in KEYS.iter().flat_map(|folder| listed(&place.join(folder))) {
        let Ok(Some(content)) = read(&path) else { continue };
        if fits(content.as_bytes()) {
            let section = str::from_utf8(content.as_bytes()).ok().and_then(key_section);
            let section = section.filter(|section| fits(section.as_bytes()));
            let section = section.ok_or_else(|| format!("{}: only PEM is taken over", path.display()))?;
            return Ok(Hidden(format!("{section}\n")));
        }
    }
    Err(format!("no key of {} in {}", certificate.subject(), place.join(KEYS[0]).display()))
}

/// The first private key of a PEM file, without what stands around it.
pub(super) fn key_section(text: &str) -> Option<&str> {
    const BEGIN: &str = "-----BEGIN ";
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let at = from + rest.find(BEGIN)?;
        let label = text.get(at + BEGIN.len()..)?.split_once("-----")?.0;
        if label.ends_with("PRIVATE KEY") {
            let end = format!("-----END {label}-----");
            let length = text.get(at..)?.find(&end)? + end.len();
            return text.get(at..at + length);
        }
        from = at + BEGIN.len();
    }
}

/// A value, and what comes behind it. In quotes it holds `#` and `}` too. What strongSwan would make of it in another way is refused: a password that
/// is another one than there would be told as a wrong one by the gateway alone.
fn value_of(text: &str) -> Result<(&str, &str), &'static str> {
    fn rest(from: &str) -> (&str, &str) {
        let end = from.find(['\n', '}', '#']).unwrap_or(from.len());
        from.split_at(end)
    }
    let line = text.split('\n').next().unwrap_or_default();
    let Some(inside) = line.trim_start().strip_prefix('"') else {
        let (value, after) = rest(text);
        if value.contains('"') {
            return Err("a value with a \" that does not begin with one");
        }
        return Ok((value.trim(), after));
    };
    let (value, _) = inside.split_once('"').ok_or("a \" without another one in its line")?;
    if value.contains('\\') {
        return Err("a \\ within quotes is not taken over");
    }
    let start = line.len() - inside.len() + value.len() + 1;
    let (blank, after) = rest(text.get(start..).unwrap_or_default());
    if blank.trim().is_empty() { Ok((value, after)) } else { Err("something behind a value in quotes") }
}

/// All settings of a file.
fn settings(text: &str) -> Result<Vec<Setting>, String> {
    let mut rest = text;
    let mut at: Vec<String> = Vec::new();
    let mut found = Vec::new();
    let line = |rest: &str| text.len().saturating_sub(rest.len());
    let wrong = |rest: &str, what: &str| {
        let lines = text.get(..line(rest)).unwrap_or_default().matches('\n').count();
        Err(format!("line {}: {what}", lines + 1))
    };
    loop {
        rest = rest.trim_start();
        let Some(next) = rest.chars().next() else { break };
        match next {
            '#' => rest = rest.split_once('\n').map_or("", |(_, rest)| rest),
            '}' => {
                if at.pop().is_none() {
                    return wrong(rest, "a } without its {");
                }
                rest = rest.get(1..).unwrap_or_default();
            }
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || "{}=#".contains(c)).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                let after = after.trim_start();
                if name == "include" {
                    // What is elsewhere is not looked for.
                    rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
                } else if let Some(inside) = after.strip_prefix('{') {
                    at.push(name.to_owned());
                    if at.len() > DEEPEST {
                        return wrong(rest, "sections too deep");
                    }
                    rest = inside;
                } else if let Some(value) = after.strip_prefix('=') {
                    let (value, after) = match value_of(value) {
                        Ok(found) => found,
                        Err(what) => return wrong(rest, what),
                    };
                    found.push((at.clone(), name.to_owned(), value.to_owned()));
                    if found.len() > MOST {
                        return wrong(rest, "too many settings");
                    }
                    rest = after;
                } else {
                    return wrong(rest, "neither a section nor a setting");
                }
            }
        }
    }
    if at.is_empty() { Ok(found) } else { wrong("", "a { without its }") }
}

#[cfg(test)]
mod tests;
