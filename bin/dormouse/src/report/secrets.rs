//! What must not be in a report, wherever it might stand. Owns the texts, in memory that is wiped; never prints one.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use zeroize::Zeroizing;

/// Shorter texts are in anything, and no secret.
const SHORTEST: usize = 4;
/// What stands in the place of a text that is taken out.
pub(super) const GONE: &str = "(removed)";
/// Parts of files' names that are everywhere, and say nothing.
const COMMON: [&str; 18] = [
    "etc",
    "run",
    "var",
    "lib",
    "usr",
    "tmp",
    "dev",
    "home",
    "root",
    "ssl",
    "private",
    "gateway",
    "gateway.pem",
    "gateway.key",
    "ca.pem",
    "dormouse",
    "dormouse.toml",
    "dormouse.sock",
];

/// See the module's text.
#[derive(Default)]
pub(super) struct Secrets {
    texts: Vec<Zeroizing<String>>,
    /// Parts of files' names: secret unless they are shown all the same, as a connection's name is that its files are called by.
    names: Vec<Zeroizing<String>>,
    shown: BTreeSet<String>,
}

impl Secrets {
    pub(super) fn add(&mut self, text: &str) {
        let text = text.trim();
        if text.len() >= SHORTEST && !self.texts.iter().any(|known| known.as_str() == text) {
            self.texts.push(Zeroizing::new(text.to_owned()));
        }
    }

    /// What a file holds that the configuration names for a secret: the whole, each line, and what a line has in quotation marks behind a sign of
    /// equality. Certificates are no secret.
    pub(super) fn add_content(&mut self, text: &str) {
        let pem = text.contains("-----BEGIN");
        if pem && !text.contains("PRIVATE KEY-----") {
            return;
        }
        self.add(text);
        for line in text.lines().filter(|line| !line.contains("-----")) {
            self.add(line);
            let value = line.split_once('=').map_or("", |(_, value)| value.trim());
            if value.starts_with(['"', '\'']) {
                self.add(value.trim_matches(['"', '\'']));
            }
        }
    }

    /// Each line, as a parser shows the one that it stumbles over.
    pub(super) fn add_lines(&mut self, text: &str) {
        text.lines().for_each(|line| self.add(line));
    }

    /// What a report shows on purpose.
    pub(super) fn show(&mut self, text: &str) {
        self.shown.insert(text.to_owned());
    }

    /// Each part of a file's name, and what it is without its end.
    pub(super) fn add_file(&mut self, file: &Path) {
        for part in file.iter().filter_map(|part| part.to_str()) {
            let stem = part.rsplit_once('.').map_or(part, |(stem, _)| stem);
            let fit = |text: &&str| text.len() >= SHORTEST && !COMMON.contains(text);
            self.names
                .extend([part, stem].into_iter().filter(fit).map(|text| Zeroizing::new(text.to_owned())));
        }
    }

    /// Everything in a text of unknown form: its lines, what stands behind a sign of equality, and what stands in quotation marks.
    pub(super) fn all_of(&mut self, text: &str) {
        for line in text.lines() {
            self.add(line);
            let value = line.split_once('=').map_or("", |(_, value)| value.trim());
            self.add(value);
            self.add(value.trim_matches(['"', '\'']));
            line.split(['"', '\'']).for_each(|part| self.add(part));
        }
    }

    /// The text without any of them, as it is or as JSON and Rust write it, and without private keys. Names of files go where they are whole words.
    pub(super) fn taken_out_of(&self, text: &str) -> String {
        let mut text = without_keys(text);
        // What contains another one goes first.
        let names = self.names.iter().filter(|name| !self.shown.contains(name.as_str()));
        let mut all: Vec<(&str, bool)> = self.texts.iter().map(|text| (text.as_str(), false)).collect();
        all.extend(names.map(|name| (name.as_str(), true)));
        all.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        for (secret, word) in all {
            if word {
                text = without_word(&text, secret);
                continue;
            }
            text = text.replace(secret, GONE);
            for quoted in [serde_json::to_string(secret).unwrap_or_default(), format!("{secret:?}")] {
                let quoted = Zeroizing::new(quoted);
                let quoted = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
                if quoted != secret && !quoted.is_empty() {
                    text = text.replace(quoted, GONE);
                }
            }
        }
        text
    }

    /// The same for JSON, which stays JSON: its own words, and the keys of its tables but for secrets, are no texts.
    pub(super) fn taken_out_of_json(&self, text: &str) -> String {
        match serde_json::from_str::<Value>(text) {
            Ok(mut value) => {
                self.clean(&mut value);
                format!("{value}\n")
            }
            Err(_) => self.taken_out_of(text),
        }
    }

    fn clean(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.taken_out_of(text),
            Value::Number(number) => {
                let text = number.to_string();
                if self.texts.iter().any(|secret| secret.as_str() == text) {
                    *value = GONE.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean(item)),
            Value::Object(table) => {
                for (mut key, mut value) in std::mem::take(table) {
                    self.clean(&mut value);
                    for secret in &self.texts {
                        key = key.replace(secret.as_str(), GONE);
                    }
                    table.insert(key, value);
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }
}

/// The text without a word: where it is not a part of a longer one.
fn without_word(text: &str, word: &str) -> String {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        out.push_str(before);
        let part = inside(out.chars().next_back()) || inside(after.chars().next());
        out.push_str(if part { word } else { GONE });
        rest = after;
    }
    out + rest
}

/// Without what stands between the lines that begin and end a private key, whoever has put it there.
fn without_keys(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        let key = line.contains("PRIVATE KEY-----");
        if key && line.contains("-----BEGIN") {
            inside = !line.contains("-----END");
            out.push_str(GONE);
            out.push('\n');
        } else if key && line.contains("-----END") {
            inside = false;
        } else if !inside {
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_taken_out_in_every_form() {
        let mut secrets = Secrets::default();
        for text in ["tiger", "tigerlily", "with \"marks\" \\ and", "abc", "bell\u{7}bell"] {
            secrets.add(text);
        }
        assert_eq!(secrets.taken_out_of("\"bell\\u{7}bell\" bell\\u0007bell"), "\"(removed)\" (removed)");
        let text = secrets.taken_out_of(
            "tigerlily tiger {\"a\":\"with \\\"marks\\\" \\\\ and\"} with \"marks\" \\ and abc",
        );
        assert_eq!(text, "(removed) (removed) {\"a\":\"(removed)\"} (removed) abc");
        let key = "before\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nafter\n";
        assert_eq!(secrets.taken_out_of(key), "before\n(removed)\nafter\n");
        let key = "x -----BEGIN PRIVATE KEY-----\nMHc\n";
        assert_eq!(secrets.taken_out_of(key), "(removed)\n", "one that does not end");
    }

    #[test]
    fn each_secret_of_a_file_goes_also_where_it_stands_alone() {
        let mut secrets = Secrets::default();
        secrets.add_content("# users\n[\"ann.example.org\"]\nnt_hash = \"8846f7eaee8fb117\"\n");
        secrets.add_content("-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----\n");
        secrets.add_content("-----BEGIN CERTIFICATE-----\nMIIBhTCC\n-----END CERTIFICATE-----\n");
        let text = secrets.taken_out_of("ann.example.org: 8846f7eaee8fb117, MC4CAQAwBQYDK2Vw, MIIBhTCC");
        assert_eq!(text, "ann.example.org: (removed), (removed), MIIBhTCC");
    }

    #[test]
    fn json_stays_json() {
        let mut secrets = Secrets::default();
        ["true", "12345678", "tiger"].into_iter().for_each(|text| secrets.add(text));
        secrets.add_file(Path::new("/srv/state"));
        let text = secrets
            .taken_out_of_json("{\"state\":true,\"a\":[12345678,7,\"a tiger, /srv/state\"],\"tiger\":null}");
        let expected =
            serde_json::json!({ "state": true, "a": [GONE, 7, "a (removed), /srv/(removed)"], GONE: null });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }

    #[test]
    fn parts_of_names_go_unless_they_are_everywhere_or_shown_all_the_same() {
        let mut secrets = Secrets::default();
        let file = "/etc/dormouse/anna-karenina.key";
        secrets.add_file(Path::new(file));
        assert_eq!(secrets.taken_out_of(file), "/etc/dormouse/(removed)");
        assert_eq!(secrets.taken_out_of("of anna-karenina, anna-kareninas"), "of (removed), anna-kareninas");
        secrets.show("anna-karenina");
        assert_eq!(secrets.taken_out_of("of anna-karenina"), "of anna-karenina");
        secrets.add("anna-karenina");
        assert_eq!(secrets.taken_out_of("of anna-karenina"), "of (removed)", "a secret is one for all that");
    }
}
