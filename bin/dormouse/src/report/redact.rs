//! What of a configuration may be shown to strangers. Owns the decision, which is made by the configuration's own schema: what is a number, a switch, one of
//! a key's own words or an address stays; of texts only those whose keys stand in [`PLAIN`]. All else goes, keys that are not known included, and
//! so does each key that will be added and is not looked at here. What goes is remembered, and taken out of every other text too.

use super::secrets::Secrets;
use dormouse_node::config::file::File;
use ipnet::IpNet;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Texts that stay: names, algorithms, and what the program itself ships. Tables that are named by the user have `*` in the place of the name, and lists
/// are what is in them.
const PLAIN: [&str; 27] = [
    "daemon.interface",
    "daemon.user",
    "daemon.group",
    "daemon.log",
    "daemon.spin",
    "sleep.policy",
    "sleep.profile",
    "sleep.interface",
    "router.device",
    "router.network",
    "connection.*.gateway",
    "connection.*.local.id",
    "connection.*.remote.id",
    "connection.*.peers.id",
    "connection.*.ppk.keys.id",
    "connection.*.ike.proposals",
    "connection.*.ike.keepalive",
    "connection.*.child.proposals",
    "connection.*.child.local",
    "connection.*.child.remote",
    "connection.*.child.zones.ends",
    "connection.*.child.zones.routers",
    "connection.*.children.*.proposals",
    "connection.*.children.*.local",
    "connection.*.children.*.remote",
    "connection.*.children.*.zones.ends",
    "connection.*.children.*.zones.routers",
];
/// Keys whose texts are secrets, whatever these look like: an address, too.
const HIDDEN: [&str; 2] = ["secret", "password"];
/// How files' names may end that are shown; all else of a name goes.
const ENDS: [&str; 8] = ["pem", "der", "key", "crt", "crl", "toml", "json", "hosts"];
/// Whether this is a number with a unit.
fn is_time(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (1..=8).contains(&text.len()) && ["s", "m", "h", "d", "ms", "us"].contains(&unit)
}

/// Deepest table.
const DEEPEST: usize = 16;

/// A configuration without what is secret, and what that was.
pub(super) fn configuration(text: &str, secrets: &mut Secrets) -> String {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(e) => {
            // What a line is meant to be is not known: all of it goes, wherever it is.
            secrets.all_of(text);
            let line =
                e.span().map_or(0, |span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
            return format!("# left out: it is no TOML, at line {line}\n");
        }
    };
    let schema = schemars::schema_for!(File).to_value();
    let mut walk = Walk { root: &schema, secrets };
    let kept = walk.table(&table, &schema, &mut Vec::new());
    toml::to_string(&kept).unwrap_or_else(|_| "# left out: it could not be written again\n".into())
}

/// The files that a configuration names which is TOML and not one of ours, as far as their names show that they are some.
pub(super) fn names(text: &str) -> Vec<PathBuf> {
    let mut waiting: Vec<toml::Value> = toml::from_str(text).map(toml::Value::Table).into_iter().collect();
    let mut names = Vec::new();
    while let Some(value) = waiting.pop() {
        match value {
            toml::Value::String(text) if text.starts_with('/') || text.starts_with("pkcs11:") => {
                names.push(text.into());
            }
            toml::Value::Array(items) => waiting.extend(items),
            toml::Value::Table(table) => waiting.extend(table.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    names
}

struct Walk<'a> {
    root: &'a Value,
    secrets: &'a mut Secrets,
}

impl Walk<'_> {
    fn table(&mut self, table: &toml::Table, schema: &Value, path: &mut Vec<String>) -> toml::Table {
        let mut kept = toml::Table::new();
        for (key, value) in table {
            let property = self.property(schema, key);
            let Some((property, own)) = property.filter(|_| path.len() < DEEPEST) else {
                self.forget(value);
                self.secrets.add(key);
                kept.insert(
                    format!("unknown_{}", kept.len()),
                    toml::Value::String("(removed: no such key)".into()),
                );
                continue;
            };
            if !own {
                self.secrets.show(key);
            }
            path.push(if own { key.clone() } else { "*".into() });
            let value = self.value(value, &property, path);
            path.pop();
            kept.insert(key.clone(), value);
        }
        kept
    }

    /// What a key of a table may be, and whether it is one of the program's own words, rather than a name that the user gave.
    fn property(&self, schema: &Value, key: &str) -> Option<(Value, bool)> {
        self.branches(schema).into_iter().find_map(|branch| {
            let named =
                branch.get("properties").and_then(|all| all.get(key)).map(|found| (found.clone(), true));
            let any = || {
                branch
                    .get("additionalProperties")
                    .filter(|any| any.is_object())
                    .map(|any| (any.clone(), false))
            };
            named.or_else(any)
        })
    }

    /// The forms that a value may have: references are followed.
    fn branches<'s>(&'s self, schema: &'s Value) -> Vec<&'s Value> {
        let (mut found, mut waiting) = (Vec::new(), vec![schema]);
        while let Some(schema) = waiting.pop() {
            if found.len() > 64 {
                break;
            }
            let target = schema.get("$ref").and_then(Value::as_str);
            waiting.extend(target.and_then(|path| self.root.pointer(path.trim_start_matches('#'))));
            for of in ["anyOf", "oneOf", "allOf"] {
                waiting.extend(schema.get(of).and_then(Value::as_array).into_iter().flatten());
            }
            found.push(schema);
        }
        found
    }

    fn value(&mut self, value: &toml::Value, schema: &Value, path: &mut Vec<String>) -> toml::Value {
        match value {
            toml::Value::Boolean(_) | toml::Value::Integer(_) | toml::Value::Float(_) => {
                // A number where a text belongs may be one that somebody has forgotten to quote.
                if self.may_be_other_than_text(schema) {
                    value.clone()
                } else {
                    self.removed(&value.to_string(), "a number")
                }
            }
            toml::Value::Datetime(_) => self.removed(&value.to_string(), "a date"),
            toml::Value::String(text) => self.text(text, schema, path),
            toml::Value::Array(items) => {
                let item = self.branches(schema).into_iter().find_map(|branch| branch.get("items")).cloned();
                let item = item.unwrap_or(Value::Null);
                toml::Value::Array(items.iter().map(|one| self.value(one, &item, path)).collect())
            }
            toml::Value::Table(table) => toml::Value::Table(self.table(table, schema, path)),
        }
    }

    fn may_be_other_than_text(&self, schema: &Value) -> bool {
        let is = |kind: &str| ["integer", "number", "boolean"].contains(&kind);
        self.branches(schema).into_iter().any(|branch| match branch.get("type") {
            Some(Value::String(kind)) => is(kind),
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).any(is),
            _ => false,
        })
    }

    fn text(&mut self, text: &str, schema: &Value, path: &[String]) -> toml::Value {
        let ours = self.branches(schema).into_iter().any(|branch| {
            let list = branch.get("enum").and_then(Value::as_array);
            branch.get("const").and_then(Value::as_str) == Some(text)
                || list.is_some_and(|words| words.iter().any(|word| word.as_str() == Some(text)))
        });
        let address = text.parse::<IpAddr>().is_ok()
            || text.parse::<IpNet>().is_ok()
            || text.parse::<SocketAddr>().is_ok();
        let plain = PLAIN.contains(&path.join(".").as_str()) && !text.starts_with('/');
        // A time, as 15m, where a number would do.
        let time = self.may_be_other_than_text(schema) && is_time(text);
        let hidden = path.last().is_some_and(|key| HIDDEN.contains(&key.as_str()));
        if !hidden && (ours || address || plain || time) {
            self.secrets.show(text);
            return toml::Value::String(text.into());
        }
        let file = Path::new(text);
        if text.starts_with('/') {
            self.secrets.add_file(file);
            let end = file.extension().and_then(|end| end.to_str()).filter(|end| ENDS.contains(end));
            return self.removed(text, &end.map_or("a file".into(), |end| format!("a file, .{end}")));
        }
        credentials(text).into_iter().for_each(|part| self.secrets.add(part));
        self.removed(text, "a text")
    }

    fn removed(&mut self, text: &str, what: &str) -> toml::Value {
        self.secrets.add(text);
        toml::Value::String(format!("(removed: {what})"))
    }

    /// All that is below a key that is not known.
    fn forget(&mut self, value: &toml::Value) {
        match value {
            toml::Value::String(text) => self.secrets.add(text),
            toml::Value::Array(items) => items.iter().for_each(|item| self.forget(item)),
            toml::Value::Table(table) => table.iter().for_each(|(key, value)| {
                self.secrets.add(key);
                self.forget(value);
            }),
            other => self.secrets.add(&other.to_string()),
        }
    }
}

/// What of a URI is secret by itself: the PIN of a token's, the password of a URL.
fn credentials(text: &str) -> Vec<&str> {
    let pin =
        text.split_once("pin-value=").map(|(_, rest)| rest.split(['&', ';']).next().unwrap_or_default());
    let user = text.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.rsplit_once('@'));
    pin.into_iter().chain(user.and_then(|(user, _)| user.rsplit(':').next())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::Value as Toml;

    const SECRET: &str = "hunter2-hunter2";

    /// A table with all keys that a schema has, each text the same; and the paths of the texts.
    fn everything(
        walk: &Walk<'_>,
        schema: &Value,
        path: &str,
        texts: &mut Vec<String>,
        depth: usize,
    ) -> Option<Toml> {
        assert!(depth < DEEPEST, "{path}");
        let branches = walk.branches(schema);
        let get = |key: &str| branches.iter().find_map(|branch| branch.get(key));
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if let Some(properties) = get("properties").and_then(Value::as_object) {
            let mut table = toml::Table::new();
            for (key, property) in properties {
                table.extend(
                    everything(walk, property, &below(key), texts, depth + 1)
                        .map(|value| (key.clone(), value)),
                );
            }
            return Some(Toml::Table(table));
        }
        if let Some(any) = get("additionalProperties").filter(|any| any.is_object()) {
            let one = everything(walk, any, &below("*"), texts, depth + 1)?;
            return Some(Toml::Table([("some".to_owned(), one)].into_iter().collect()));
        }
        if let Some(items) = get("items") {
            return Some(Toml::Array(vec![everything(walk, items, path, texts, depth + 1)?]));
        }
        let is_text = branches.iter().any(|branch| {
            let kind = branch.get("type");
            kind.and_then(Value::as_str) == Some("string")
                || kind
                    .and_then(Value::as_array)
                    .is_some_and(|kinds| kinds.iter().any(|kind| kind == "string"))
        });
        is_text.then(|| {
            texts.push(path.to_owned());
            let plain = PLAIN.contains(&path);
            Toml::String(if plain { "plain".into() } else { SECRET.into() })
        })
    }

    /// By the schema: also what was added since this was written.
    #[test]
    fn no_text_of_any_key_stays_but_what_is_on_the_list() {
        let schema = schemars::schema_for!(File).to_value();
        let mut secrets = Secrets::default();
        let walk = Walk { root: &schema, secrets: &mut secrets };
        let mut texts = Vec::new();
        let all = everything(&walk, &schema, "", &mut texts, 0).unwrap();
        let text = toml::to_string(&all).unwrap();
        for key in [
            "connection.*.local.secret",
            "connection.*.remote.secret_file",
            "connection.*.ppk.keys.secret",
            "connection.*.hip.key",
            "sleep.command_off",
        ] {
            assert!(texts.iter().any(|text| text == key), "{key} is looked at: {texts:?}");
        }
        for plain in PLAIN {
            assert!(texts.iter().any(|text| text == plain), "{plain} is no text of the schema: {texts:?}");
        }
        assert!(text.matches(SECRET).count() > 20, "{text}");
        let shown = configuration(&text, &mut secrets);
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.matches("plain").count() >= PLAIN.len(), "{shown}");
        assert_eq!(secrets.taken_out_of(SECRET), "(removed)");
    }

    #[test]
    fn what_helps_stays_and_what_is_not_known_goes() {
        let text = "[daemon]\nmtu = 1380\nlog = \"debug\"\nlisten = [\"192.0.2.1\"]\nstate_dir = \"/srv/hunter2/state\"\n\
            passwort = \"hunter2\"\nhunter3 = [1, { hunter4 = \"hunter5\" }]\n[sleep]\nwake_every = \"15m\"\nradio = \"command\"\n[connection.office]\nrole = \"client\"\ngateway = \"vpn.example.org\"\n\
            [connection.office.local]\nid = \"me.example.org\"\nsecret = 12345678\ncertificate = \"/etc/dormouse/office.pem\"\n\
            key = \"pkcs11:token=a;object=b?pin-value=hunter6\"\n[connection.office.remote]\nid = \"vpn.example.org\"\n\
            crl = [\"http://hunter7:x@example.org/a.crl\"]\n[connection.office.child]\nremote = [\"10.0.0.0/8\"]\n";
        let mut secrets = Secrets::default();
        let shown = configuration(text, &mut secrets);
        for part in [
            "wake_every = \"15m\"",
            "radio = \"command\"",
            "mtu = 1380",
            "log = \"debug\"",
            "192.0.2.1",
            "[connection.office]",
            "role = \"client\"",
            "gateway = \"vpn.example.org\"",
            "remote = [\"10.0.0.0/8\"]",
            "certificate = \"(removed: a file, .pem)\"",
            "secret = \"(removed: a number)\"",
            "(removed: no such key)",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(
            !shown.contains("hunter") && !shown.contains("12345678") && !shown.contains("passwort"),
            "{shown}"
        );
        let told = secrets
            .taken_out_of("hunter2 hunter3 hunter4 hunter5 hunter6 12345678 office me.example.org client");
        assert!(
            told.ends_with("(removed) office me.example.org client") && !told.contains("hunter"),
            "{told}"
        );
        toml::from_str::<toml::Table>(&shown).unwrap();
    }

    #[test]
    fn a_secret_in_any_form_of_toml_goes() {
        for text in [
            "connection.a.local.secret = 'hunter2'",
            "connection = { \"a\" = { local = { \"secret\" = \"hunter2\" } } }",
            "[connection.\"a\"]\nlocal.\"secret\" = \"\"\"\nhunter2 \\\n   hunter3\"\"\"",
            "[connection.a.local]\nsecret = [\"hunter2\", { hunter3 = 'hunter4' }] # hunter5",
            "[[connection.a.ppk.keys]]\nsecret = '''\nhunter2'''\nid = \"\"",
            "[connection.a.local]\npassword = \"\\u0068unter2\"",
        ] {
            let shown = configuration(text, &mut Secrets::default());
            assert!(!shown.contains("unter") && shown.contains("(removed"), "{text}: {shown}");
        }
        // What looks like something that is shown elsewhere.
        for secret in ["192.0.2.77", "2001:db8::77", "10.0.0.0/8", "[::1]:77"] {
            for key in ["local.secret", "local.password", "remote.secret"] {
                let mut secrets = Secrets::default();
                let shown = configuration(&format!("connection.a.{key} = \"{secret}\""), &mut secrets);
                assert!(!shown.contains(secret), "{shown}");
                assert_eq!(secrets.taken_out_of(secret), "(removed)");
            }
        }
    }

    #[test]
    fn of_what_is_no_toml_nothing_is_shown() {
        let text = "[daemon]\nmtu = 1380\n[connection.office.local]\nsecret = \"hunter2\n";
        let mut secrets = Secrets::default();
        let shown = configuration(text, &mut secrets);
        assert!(shown.starts_with("# left out: it is no TOML, at line 4"), "{shown}");
        let snippet = secrets.taken_out_of("4 | secret = \"hunter2\n  | ^ hunter2");
        assert!(!snippet.contains("hunter2"), "{snippet}");
    }
}
