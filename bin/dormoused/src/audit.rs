//! Where the gateway's records go ([`dormouse_node::audit`]): the journal, as fields, or a file or standard error, as one line of JSON each.
//! Owns the form of both; must never make a record, nor keep the daemon waiting for a reader.

use anyhow::{Context, Result};
use dormouse_io::clock::unix_now_precise;
use dormouse_io::journal::Journal;
use dormouse_node::audit::Record;
use dormouse_node::config::file;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

#[derive(Debug)]
enum To {
    Nowhere,
    Journal(Journal),
    File(File),
    Stderr,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Auditor {
    to: To,
    /// Records that could not be written, since the last that could.
    lost: u64,
}

impl Auditor {
    /// Opens what the configuration says, as the daemon's user.
    ///
    /// # Errors
    /// Names the key.
    pub(crate) fn new(settings: &file::Audit) -> Result<Self> {
        let key = || format!("audit.to: \"{}\"", settings.to);
        let to = match settings.to.as_str() {
            "off" => To::Nowhere,
            "stderr" => To::Stderr,
            "journal" => To::Journal(Journal::open().with_context(key)?),
            "auto" if std::env::var_os("JOURNAL_STREAM").is_none() => To::Nowhere,
            "auto" => Journal::open().map_or(To::Nowhere, To::Journal),
            path => To::File(open(Path::new(path)).with_context(key)?),
        };
        Ok(Self { to, lost: 0 })
    }

    /// Writes a record down, or counts it as lost.
    pub(crate) fn write(&mut self, record: &Record) {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(record) else { return };
        if self.lost > 0 {
            fields.insert("lost".to_owned(), self.lost.into());
        }
        let written = match &mut self.to {
            To::Nowhere => Ok(()),
            To::Journal(journal) => send(journal, &fields),
            // What could not be written may have been written in part.
            To::File(file) => {
                let begin = if self.lost > 0 { "\n" } else { "" };
                file.write_all((begin.to_owned() + &line(fields)).as_bytes())
            }
            To::Stderr => std::io::stderr().write_all(line(fields).as_bytes()),
        };
        match written {
            Ok(()) => self.lost = 0,
            Err(e) => {
                if self.lost == 0 {
                    tracing::error!(%e, "records are lost (audit.to)");
                }
                self.lost += 1;
            }
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// One write, so that no line is ever another's.
fn line(mut fields: Map<String, Value>) -> String {
    fields.insert("at_unix".to_owned(), unix_now_precise().as_secs_f64().into());
    Value::Object(fields).to_string() + "\n"
}

/// `identity_type` becomes `DORMOUSE_IDENTITY_TYPE`; the journal has the time.
fn send(journal: &Journal, fields: &Map<String, Value>) -> std::io::Result<()> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    };
    let named = fields.iter().map(|(key, value)| (format!("DORMOUSE_{}", key.to_uppercase()), text(value)));
    let named: Vec<(String, String)> = named.collect();
    let of = |key: &str| fields.get(key).map(text).unwrap_or_default();
    let message = format!("{}: {} {}", of("event"), of("identity") + &of("whom"), of("why"));
    let fixed =
        [("MESSAGE", message.trim_end()), ("PRIORITY", "5"), ("SYSLOG_IDENTIFIER", "dormoused-audit")];
    journal.send(fixed.into_iter().chain(named.iter().map(|(name, value)| (name.as_str(), value.as_str()))))
}
