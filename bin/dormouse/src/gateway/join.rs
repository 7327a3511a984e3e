//! `dormouse gateway init --join`: a gateway that shares a database with others from its start. Owns what must be there before: the others' authority,
//! their key, and the password that `dormouse cluster add` has made.

use crate::cluster::Section;
use crate::enrol::place::{self, Place};
use clap::Args;
use dormouse_cluster::admin::check_name;
use dormouse_control::{Error, ErrorKind};
use dormouse_node::config::file::File;
use dormouse_node::config::resolve_cluster;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct JoinArgs {
    /// Share a database with other gateways, as NAME (docs/cluster.md). `--name`, `--reach` and `--pool` are theirs, and their authority is in ca/
    #[arg(long, value_name = "NAME", requires_all = ["name", "pool", "database"])]
    join: Option<String>,
    /// With --join: the database
    #[arg(long, value_name = "URL", requires = "join")]
    database: Option<String>,
    /// With --join: the cluster's key [default: cluster.key beside the configuration]
    #[arg(long, value_name = "FILE", requires = "join")]
    key_file: Option<PathBuf>,
    /// With --join: the password that `dormouse cluster add` has made [default: cluster.password beside the configuration]
    #[arg(long, value_name = "FILE", requires = "join")]
    password_file: Option<PathBuf>,
    /// With --join: PEM file with the authorities of the database's certificate
    #[arg(long, value_name = "FILE", requires = "join")]
    ca: Option<PathBuf>,
}

impl JoinArgs {
    /// What the configuration gets besides; nothing for a gateway alone.
    pub(super) fn section(&self, place: &Place) -> Result<String, Error> {
        let (Some(name), Some(database)) = (&self.join, &self.database) else { return Ok(String::new()) };
        check_name(name).map_err(|e| Error::new(ErrorKind::Request, e.to_string()))?;
        let key_file = self.key_file.clone().unwrap_or_else(|| place.path("cluster.key"));
        let password_file = self.password_file.clone().unwrap_or_else(|| place.path("cluster.password"));
        // A new authority would be one that no device of the others knows.
        for (path, advice) in [
            (place.path("ca/ca.key"), "copy ca.pem and ca/ca.key from a gateway that is there"),
            (key_file.clone(), "copy it from a gateway that is there, or make it: dormouse cluster init"),
            (password_file.clone(), "dormouse cluster add NAME --out DIR, and carry it here"),
        ] {
            place::demand(&path, place::read(&path)?, advice)?;
        }
        let (key_file, password_file, ca) = (key_file.as_path(), password_file.as_path(), self.ca.as_deref());
        Ok(format!("\n{}", Section { database, name, key_file, password_file, ca }.text()))
    }

    pub(super) const fn joins(&self) -> bool {
        self.join.is_some()
    }
}

/// Demands that the section is one that the daemon takes.
pub(super) fn require_sound(file: &File) -> Result<(), Error> {
    let mut read =
        |path: &Path, _secret: bool| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    resolve_cluster(file, &mut read).map(drop).map_err(|e| Error::new(ErrorKind::Other, e.to_string()))
}
