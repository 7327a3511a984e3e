//! What must be the same at all gateways that share a database, in a form in which they compare it there. Owns which settings these are, and that
//! none can be read from the form that is secret or long: such a value is a fingerprint under a key made of the cluster key.

use super::file::{Connection, File, Role};
use super::resolve::ReadFile;
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Value;

/// What the fingerprints' key is made for.
const LABEL: &[u8] = b"dormouse cluster: settings";
/// Bytes of a fingerprint that are compared.
const COMPARED: usize = 8;
/// Bytes of all lines at most; beyond, each connection has one line.
const MOST: usize = 32 * 1024;
/// Of a connection what may differ: who the gateway is, and whether it has the authority's key; and what is a client's alone.
const OWN: [&str; 4] = ["local", "renewals", "auto", "wake"];

/// Lines `NAME=VALUE`, where two gateways with the same setting have the same line. Values that are neither on or off nor a number are fingerprints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Same {
    /// What another value of takes effect with the next start.
    pub with_start: String,
    /// What another value of takes effect when the configuration is read again.
    pub with_reload: String,
}

struct Lines<'k> {
    key: &'k PrfKey,
    lines: BTreeMap<String, String>,
}

impl Same {
    /// Of this configuration; `cluster`: the cluster key. A file that cannot be read has no content here: it is an error elsewhere.
    #[must_use]
    pub fn of(file: &File, cluster: &Secret, read: &mut ReadFile<'_>) -> Self {
        let key = PrfKey::new(Prf::HmacSha256, cluster.as_bytes()).compute(&[LABEL]);
        let key = PrfKey::new(Prf::HmacSha256, key.as_bytes());
        let lines = || Lines { key: &key, lines: BTreeMap::new() };
        let mut with_start = lines();
        let takeover = file.cluster.as_ref().is_some_and(|cluster| cluster.takeover);
        with_start.put("cluster.takeover", &Value::Boolean(takeover));
        with_start.put_all("standin", Value::try_from(&file.standin).ok());
        let mut with_reload = lines();
        for (name, connection) in file.connection.iter().filter(|(_, c)| c.role == Role::Gateway) {
            let mut of_one = lines();
            of_one.connection(&format!("connection.{name}"), connection, read);
            with_reload.lines.extend(of_one.lines);
        }
        let (with_start, mut short) = (with_start.text(), with_reload.text());
        if short.len() > MOST {
            let mut by_connection = lines();
            for name in file.connection.keys() {
                let prefix = format!("connection.{name}.");
                let theirs = with_reload.lines.iter().filter(|(line, _)| line.starts_with(&prefix));
                let all: Vec<u8> =
                    theirs.flat_map(|(line, value)| [line, value]).flat_map(|s| s.bytes()).collect();
                by_connection.fingerprint(&format!("connection.{name}"), &[&all]);
            }
            short = by_connection.text();
        }
        Self { with_start, with_reload: short }
    }

    /// All lines.
    #[must_use]
    pub fn text(&self) -> String {
        self.with_start.clone() + &self.with_reload
    }
}

impl Lines<'_> {
    fn connection(&mut self, name: &str, connection: &Connection, read: &mut ReadFile<'_>) {
        let written = Value::try_from(connection).ok();
        let Some(Value::Table(mut written)) = written else { return };
        OWN.into_iter().for_each(|own| _ = written.remove(own));
        // Where a secret stands is each gateway's own affair; what it is, is below.
        if let Some(Value::Table(remote)) = written.get_mut("remote") {
            ["secret", "secret_file", "users"].into_iter().for_each(|key| _ = remote.remove(key));
        }
        self.put_all(name, Some(Value::Table(written)));
        let remote = &connection.remote;
        let mut content = |path: &Path, secret: bool| read(path, secret).unwrap_or_default();
        let ca: Vec<Vec<u8>> = remote.ca.iter().map(|path| content(path, false)).collect();
        self.contents(&format!("{name}.remote.ca"), &ca);
        let crl = remote.crl.iter().map(|place| match place.contains("://") {
            true => place.clone().into_bytes(),
            false => content(Path::new(place), false),
        });
        let crl: Vec<Vec<u8>> = crl.collect();
        self.contents(&format!("{name}.remote.crl"), &crl);
        let local = &connection.local;
        // The local secret is the peer's too where the peer has neither its own nor a certificate.
        let own = remote.secret.is_none() && remote.secret_file.is_none() && remote.ca.is_empty();
        let (inline, file) = match own {
            true => (&local.secret, &local.secret_file),
            false => (&remote.secret, &remote.secret_file),
        };
        let inline = inline.as_ref().map(|secret| secret.0.clone().into_bytes());
        let secret = inline.or_else(|| file.as_ref().map(|path| content(path, true)));
        self.contents(&format!("{name}.remote.secret"), &secret.into_iter().collect::<Vec<_>>());
        let ppk = connection.ppk.keys.iter().map(|key| {
            let inline = key.secret.as_ref().map(|secret| secret.0.clone().into_bytes());
            inline.or_else(|| key.secret_file.as_ref().map(|path| content(path, true))).unwrap_or_default()
        });
        let ppk: Vec<Vec<u8>> = ppk.collect();
        self.contents(&format!("{name}.ppk.keys.secret"), &ppk);
    }

    /// What files hold, or secrets are; nothing if there is none.
    fn contents(&mut self, name: &str, contents: &[Vec<u8>]) {
        if !contents.is_empty() {
            let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            self.fingerprint(name, &parts);
        }
    }

    fn put_all(&mut self, name: &str, value: Option<Value>) {
        match value {
            Some(Value::Table(table)) => {
                table
                    .into_iter()
                    .for_each(|(key, value)| self.put_all(&format!("{name}.{key}"), Some(value)));
            }
            Some(value) => self.put(name, &value),
            None => {}
        }
    }

    fn put(&mut self, name: &str, value: &Value) {
        match value {
            Value::Boolean(value) => self.line(name, if *value { "on" } else { "off" }.into()),
            Value::Integer(value) => self.line(name, value.to_string()),
            other => self.fingerprint(name, &[other.to_string().as_bytes()]),
        }
    }

    fn fingerprint(&mut self, name: &str, parts: &[&[u8]]) {
        let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
        let mut all: Vec<&[u8]> = vec![name.as_bytes(), &[0]];
        parts.iter().zip(&lengths).for_each(|(part, length)| all.extend([&length[..], part]));
        let made = self.key.compute(&all);
        self.line(name, hex::encode(made.as_bytes().get(..COMPARED).unwrap_or_default()));
    }

    fn line(&mut self, name: &str, value: String) {
        let name = name.replace(|c: char| c.is_control() || c == '=', "_");
        self.lines.insert(name, value);
    }

    fn text(&self) -> String {
        self.lines.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const TEXT: &str = "[cluster]\ndatabase = \"postgresql://a@db/d\"\nname = \"gw1\"\nkey_file = \"k\"\n\
        [connection.office]\nrole = \"gateway\"\nsessions = 3\n[connection.office.local]\nid = \"gw1.test\"\n\
        [connection.office.remote]\nid = \"*\"\nca = [\"ca.pem\"]\n[connection.office.pool]\naddresses = [\"10.1.0.0/16\"]\n\
        [connection.home]\nrole = \"client\"\ngateway = \"gw.test\"\n";

    fn same(text: &str, ca: &[u8], key: u8) -> Same {
        let file = parse(text).unwrap();
        let mut read = |path: &Path, _: bool| match path.to_str() {
            Some("ca.pem") => Ok(ca.to_vec()),
            Some("psk") => Ok(b"hunter2".to_vec()),
            _ => Err("no such file".to_owned()),
        };
        Same::of(&file, &Secret::from([key; 32]), &mut read)
    }

    /// Names of lines that differ.
    fn differ(a: &Same, b: &Same) -> Vec<String> {
        let lines =
            |of: &Same| of.text().lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
        let (a, b) = (lines(a), lines(b));
        let mut names: Vec<String> =
            a.symmetric_difference(&b).filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
        names.dedup();
        names
    }

    #[test]
    fn gateways_that_differ_in_what_is_theirs_alone_have_the_same_lines() {
        let one = same(TEXT, b"PEM", 1);
        let other =
            TEXT.replace("gw1.test", "gw2.test").replace("\"gw1\"", "\"gw2\"").replace("gw.test", "x.test");
        assert_eq!(one, same(&other, b"PEM", 1));
        assert!(one.with_start.starts_with("cluster.takeover=off\n"), "{}", one.with_start);
        assert!(one.with_reload.contains("connection.office.sessions=3\n"), "{}", one.with_reload);
        assert!(!one.with_reload.contains("connection.home"), "{}", one.with_reload);
    }

    #[test]
    fn each_setting_that_differs_is_named_and_so_are_files_and_secrets() {
        let one = same(TEXT, b"PEM", 1);
        for (from, to, name) in [
            ("key_file = \"k\"", "key_file = \"k\"\ntakeover = true", "cluster.takeover"),
            ("sessions = 3", "sessions = 4", "connection.office.sessions"),
            ("10.1.0.0/16", "10.1.0.0/17", "connection.office.pool.addresses"),
            ("[cluster]", "[standin]\nenabled = false\n[cluster]", "standin.enabled"),
        ] {
            assert_eq!(differ(&one, &same(&TEXT.replace(from, to), b"PEM", 1)), [name]);
        }
        assert_eq!(differ(&one, &same(TEXT, b"other", 1)), ["connection.office.remote.ca"]);
        let psk = TEXT
            .replace("id = \"gw1.test\"", "id = \"gw1.test\"\nsecret = \"hunter2\"")
            .replace("ca = [\"ca.pem\"]", "");
        let one = same(&psk, b"", 1);
        assert!(!one.text().contains("hunter2"));
        assert_eq!(
            differ(&one, &same(&psk.replace("hunter2", "hunter3"), b"", 1)),
            ["connection.office.remote.secret"]
        );
        let by_file = psk.replace("secret = \"hunter2\"", "secret_file = \"psk\"");
        assert_eq!(one, same(&by_file, b"", 1), "where a secret stands is each gateway's own");
        // Who has no cluster key cannot tell what is behind a fingerprint.
        assert!(differ(&one, &same(&psk, b"", 2)).contains(&"connection.office.remote.secret".to_owned()));
    }

    #[test]
    fn very_many_settings_have_a_line_for_each_connection() {
        let one = |n: usize, net: &str| {
            format!(
                "[connection.c{n}]\nrole = \"gateway\"\n[connection.c{n}.remote]\nid = \"*\"\n[connection.c{n}.pool]\naddresses = [\"{net}\"]\n"
            )
        };
        let text =
            |net: &str| (0..40).map(|n| one(n, if n == 7 { net } else { "10.1.0.0/16" })).collect::<String>();
        let (a, b) = (same(&text("10.2.0.0/16"), b"", 1), same(&text("10.3.0.0/16"), b"", 1));
        assert!(a.text().len() <= MOST);
        assert_eq!(differ(&a, &b), ["connection.c7"]);
    }
}
