//! Where things stand: the files that a configuration names, the line of a key, and what a parser stumbles over. Owns no meaning; must never
//! repeat a value: it may be a secret, and more people read the log than the file.

use super::file::{Connection, File};
use super::resolve::ConfigError;
use dormouse_energy::profile::Profile;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

impl File {
    /// Every file that has to be read to resolve the connections and `[sleep]`, and every `pkcs11:` URI, as they are written.
    pub fn names(&self) -> impl Iterator<Item = &Path> {
        let profile = Some(self.sleep.profile.as_str())
            .filter(|p| p.contains('/') && Profile::shipped(p).is_none())
            .map(Path::new);
        let radius = self.radius.iter().flat_map(|radius| radius.servers.iter().chain(&radius.accounting));
        let radius = radius.map(|server| server.secret_file.as_path());
        let cluster = self.cluster.iter().flat_map(|cluster| {
            std::iter::once(&cluster.key_file).chain(&cluster.password_file).chain(&cluster.ca)
        });
        let cluster = cluster.map(AsRef::as_ref);
        profile
            .into_iter()
            .chain(radius)
            .chain(cluster)
            .chain(self.connection.values().flat_map(of_connection))
    }
}

fn of_connection(c: &Connection) -> impl Iterator<Item = &Path> {
    let (local, remote) = (&c.local, &c.remote);
    let single = [&local.secret_file, &local.certificate, &local.key, &remote.secret_file];
    let users = local.password_file.iter().chain(&remote.users).map(AsRef::as_ref);
    let keys = c.ppk.keys.iter().filter_map(|key| key.secret_file.as_deref());
    let lists = remote.crl.iter().map(Path::new).filter(|place| !place.to_string_lossy().contains("://"));
    let hip = c
        .hip
        .iter()
        .flat_map(|h| {
            let others = h.identities.iter().map(|other| &other.key);
            std::iter::once(&h.key).chain(&h.key_v1).chain(others).chain(&h.hosts)
        })
        .map(AsRef::as_ref);
    single
        .into_iter()
        .flatten()
        .chain(&remote.ca)
        .map(AsRef::as_ref)
        .chain(keys)
        .chain(lists)
        .chain(hip)
        .chain(users)
}

impl ConfigError {
    /// With the line of `text`, the configuration, where the key stands, or what should hold it.
    #[must_use]
    pub fn in_text(&self, text: &str) -> String {
        let line = line_of(text, &self.key);
        line.map_or_else(|| self.to_string(), |line| format!("line {line}: {self}"))
    }
}

/// What the parser says of `text`, with the place and the key, and without what is written there.
pub(super) fn complaint(text: &str, error: &toml::de::Error) -> String {
    let what = without_value(error.message());
    let Some(span) = error.span() else { return what };
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let key = key_at(text, &span).map_or_else(String::new, |key| format!("{key}: "));
    format!("line {line}, column {column}: {key}{what}")
}

/// A message of the parser without the value that it quotes: `invalid type: string "abc", expected u16`, ``unknown variant `abc`, expected ...``.
fn without_value(message: &str) -> String {
    let message = message.trim_end();
    let quoting = ["invalid type: ", "invalid value: ", "unknown variant "];
    let Some(kind) = quoting.into_iter().find(|kind| message.starts_with(kind)) else {
        // Our own, which quote what cannot be read between '...'.
        return match (message.find('\''), message.rfind('\'')) {
            (Some(from), Some(to)) if from < to => format!("what is there{}", &message[to + 1..]),
            _ => message.replace('\n', "; "),
        };
    };
    let expected = message.rfind(", expected ").map_or("", |at| &message[at..]);
    match message[kind.len()..].split(['"', '`']).next().map(str::trim) {
        Some(found) if !found.is_empty() && kind != "unknown variant " => format!("{kind}{found}{expected}"),
        _ => format!("unknown word{expected}"),
    }
}

/// The key whose value, or which itself, stands at `span`, behind the name of its section.
fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let name = |text: &str| {
        let text = text.trim();
        let whole = !text.is_empty() && text.len() <= 64 && text.chars().all(is_of_key);
        (whole && text.starts_with(|c: char| c.is_ascii_lowercase())).then(|| text.to_owned())
    };
    let before = text.get(..span.start)?;
    let (above, line) = before.rsplit_once('\n').unwrap_or(("", before));
    let own = match line.trim_end().strip_suffix('=') {
        Some(left) => name(left.rsplit(|c: char| !is_of_key(c) && c != ' ').next()?),
        None => {
            let follows = text.get(span.end..)?.trim_start().starts_with('=');
            let itself = text.get(span.clone()).filter(|_| follows).and_then(name);
            itself.or_else(|| name(line.split_once('=')?.0))
        }
    };
    let header = |line: &str| {
        let inner = line.trim().trim_start_matches('[').split(']').next()?.trim();
        let known = |c: char| is_of_key(c) || c == '"' || c == ' ' || c == '@';
        (line.trim_start().starts_with('[') && inner.chars().all(known)).then(|| inner.to_owned())
    };
    match (above.lines().rev().find_map(header), own) {
        (Some(section), Some(own)) => Some(format!("{section}.{own}")),
        (section, own) => own.or(section),
    }
}

/// The line of a key such as `connection.office.peers[0].id`; of the innermost part that is written.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let (mut table, mut rest, mut at) = (document.get_ref(), key, None);
    loop {
        let names = table.iter().filter_map(|(name, value)| {
            let after = rest.strip_prefix(name.get_ref().as_ref())?;
            let whole = after.is_empty() || after.starts_with(['.', '[']);
            whole.then_some((name, value, after))
        });
        let Some((name, value, after)) = names.max_by_key(|(name, ..)| name.get_ref().len()) else { break };
        at = Some(name.span().start);
        let (value, after) = element(value, after, &mut at);
        rest = after.strip_prefix('.').unwrap_or_default();
        match value.get_ref() {
            DeValue::Table(inner) if !rest.is_empty() => table = inner,
            _ => break,
        }
    }
    let before = text.get(..at?)?;
    Some(before.matches('\n').count() + 1)
}

/// The element of an array that `rest` begins with the index of.
fn element<'v, 'i, 'r>(
    value: &'v Spanned<DeValue<'i>>,
    rest: &'r str,
    at: &mut Option<usize>,
) -> (&'v Spanned<DeValue<'i>>, &'r str) {
    let indexed = || {
        let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
        let one = value.get_ref().as_array()?.get(index.parse::<usize>().ok()?)?;
        Some((one, after))
    };
    let Some((one, after)) = indexed() else { return (value, rest) };
    *at = Some(one.span().start);
    (one, after)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const TEXT: &str = "[daemon]\nmtu = 1400\n\n[connection.\"a.b\"]\nrole = \"gateway\"\npeers = [\n  { id = \"x\" },\n  { id = \"y\" },\n]\n\
        [connection.\"a.b\".local]\nid = \"gw\"\nsecret_file = \"/etc/psk\"\n[connection.a]\nrole = \"client\"\n[connection.a.local]\nid = \"me\"\n\
        certificate = \"c.pem\"\nkey = \"pkcs11:object=me\"\n[connection.a.remote]\nid = \"gw\"\nca = [\"ca.pem\"]\ncrl = [\"http://x/y\", \"crl.pem\"]\n\
        [[connection.a.peers]]\nid = \"z\"\n";

    #[test]
    fn a_key_is_found_on_its_line_or_what_should_hold_it() {
        for (key, line) in [
            ("daemon.mtu", 2),
            ("connection.a.b.peers[1].id", 8),
            ("connection.a.b.local.secret_file", 12),
            ("connection.a.local.key", 18),
            ("connection.a.remote.ca", 21),
            ("connection.a.remote.crl[1]", 22),
            ("connection.a.peers[0].id", 24),
            ("connection.a.remote.secret", 19),
            ("connection.a.gateway", 13),
        ] {
            assert_eq!(line_of(TEXT, key), Some(line), "{key}");
        }
        assert_eq!(line_of(TEXT, "sleep.profile"), None);
        let error = ConfigError::new("daemon.mtu", "is odd");
        assert_eq!(error.in_text(TEXT), "line 2: daemon.mtu: is odd");
    }

    /// What stands in a wrong place may be a secret.
    #[test]
    fn a_parsers_complaint_names_the_key_and_repeats_no_value() {
        let head = "[daemon]\nike_port = 500\n[connection.office.local]\nid = \"a\"\n";
        for (lines, expected) in [
            ("secret = hunter2\n", "line 5, column 10: connection.office.local.secret: "),
            ("secret = \"hunter2\n", "line 5, column "),
            (
                "secret = 77777777\n",
                "line 5, column 10: connection.office.local.secret: invalid type: integer, expected",
            ),
            (
                "secret = [\"hunter2\"]\n",
                "line 5, column 10: connection.office.local.secret: invalid type: sequence",
            ),
            ("hunter2\n", "line 5, column "),
            (
                "auth = \"hunter2\"\n",
                "line 5, column 8: connection.office.local.auth: unknown word, expected ",
            ),
            (
                "[connection.office.ppk]\nkeys = [{ id = \"k\", secret = 77777777 }]\n",
                "line 6, column 30: connection.office.ppk.secret: ",
            ),
            (
                "secrets = \"x\"\n",
                "line 5, column 1: connection.office.local.secrets: unknown field `secrets`, expected ",
            ),
            (
                "[connection.office.ike]\nrekey = \"hunter2\"\n",
                "line 6, column 9: connection.office.ike.rekey: invalid type: string, expected u32",
            ),
            ("[connection.office.child]\nlocal = [\"hunter2\"]\n", "line 6, column "),
        ] {
            let error = parse(&format!("{head}{lines}")).unwrap_err();
            assert!(error.starts_with(expected), "{lines}: {error}");
            let told = error.contains("hunter2") || error.contains("77777777");
            assert!(!told && !error.contains('\n'), "{lines}: {error}");
        }
    }

    #[test]
    fn every_file_is_named() {
        let file = parse(
            &(TEXT.to_owned()
                + "[connection.\"a.b\".remote]\nid = \"x\"\nusers = \"users.toml\"\n[connection.a.ppk]\nkeys = [{ id = \"k\", secret_file = \"k.ppk\" }]\n[connection.h]\nrole = \"hip\"\n[connection.h.hip]\nkey = \"hip.key\"\nkey_v1 = \"hip-v1.key\"\nhosts = \"hosts\"\nidentities = [{ name = \"i\", key = \"other.key\" }]\n[sleep]\nprofile = \"/etc/profile.toml\"\n[cluster]\ndatabase = \"postgresql://db\"\nname = \"g\"\nkey_file = \"cluster.key\"\nca = \"db.pem\"\n"),
        )
        .unwrap();
        let names: Vec<&str> = file.names().filter_map(Path::to_str).collect();
        let expected = [
            "/etc/profile.toml",
            "cluster.key",
            "db.pem",
            "c.pem",
            "pkcs11:object=me",
            "ca.pem",
            "k.ppk",
            "crl.pem",
            "/etc/psk",
            "users.toml",
            "hip.key",
            "hip-v1.key",
            "other.key",
            "hosts",
        ];
        assert_eq!(names, expected);
    }
}
