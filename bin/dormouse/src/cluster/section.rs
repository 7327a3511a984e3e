//! The section `[cluster]` of a gateway's configuration, as it is written for it.

use super::access;
use crate::enrol::bundle::quoted;
use dormouse_cluster::admin::role;
use dormouse_io::key_source::KeySource;
use std::fmt::Write as _;
use std::path::Path;

/// What it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'a> {
    /// The database, for whichever role.
    pub(crate) database: &'a str,
    /// What the gateway is called.
    pub(crate) name: &'a str,
    pub(crate) key_file: &'a Path,
    pub(crate) password_file: &'a Path,
    pub(crate) ca: Option<&'a Path>,
}

impl Section<'_> {
    /// In TOML, with this gateway's role in the URL.
    pub(crate) fn text(&self) -> String {
        let file = |path: &Path| {
            // What is in no file stays as it is written.
            let elsewhere = KeySource::parse(path) != Ok(KeySource::File(path.to_owned()));
            let absolute = std::path::absolute(path).ok().filter(|_| !elsewhere);
            let path = absolute.unwrap_or_else(|| path.to_owned());
            quoted(&path.display().to_string())
        };
        let mut out = format!(
            "[cluster]\ndatabase = {}\nname = {}\nkey_file = {}\npassword_file = {}\n",
            quoted(&access::url_of(self.database, &role(self.name))),
            quoted(self.name),
            file(self.key_file),
            file(self.password_file),
        );
        if let Some(ca) = self.ca {
            let _ = writeln!(out, "ca = {}", file(ca));
        }
        out
    }
}
