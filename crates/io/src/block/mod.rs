//! The block: what a tunnel should carry does not leave this machine outside of it. Owns the nftables table [`TABLE`] and nothing else of
//! the packet filter; never decides when something is held.
//!
//! [`Rules`] is the whole table: [`load`] puts it in the place of the one that is there in one transaction, so that no packet passes
//! between two states. The kernel keeps it when the daemon and its guard are killed; [`Guard`] is needed to change it after the daemon has
//! given its privileges away, and to put it back when another program removes it.

mod guard;
mod rules;

pub use guard::{Guard, News, serve};
pub use rules::{Blocked, OnLink, Portal, Rules};

use crate::{nft, state};
use std::io;
use std::path::Path;

/// The table's name, in the family `inet`.
pub const TABLE: &str = "dormouse_block";

/// Puts `rules` in the place of those that are there, in one step; the table goes if nothing is held.
///
/// # Errors
/// If `nft` is missing, refuses, or takes too long, or the tunnel's name does not fit; everything is as it was then.
pub fn load(rules: &Rules) -> io::Result<()> {
    nft::load(&rules.text()?)
}

/// Writes down what `rules` always hold, for a boot at which the configuration cannot be read. As root: no other user may change it.
///
/// # Errors
/// Naming the file.
pub fn keep(path: &Path, rules: &Rules) -> io::Result<()> {
    let always = rules.always();
    if always.held.is_empty() {
        return match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    }
    state::write_atomically(path, &serde_json::to_vec(&always)?, 0o600).map_err(io::Error::other)
}

/// What [`keep`] has written down last; `None` if nothing is always held.
///
/// # Errors
/// If it cannot be read, or another user may change it; names the file.
pub fn kept(path: &Path) -> io::Result<Option<Rules>> {
    let fail = |why: String| io::Error::other(format!("{}: {why}", path.display()));
    match state::read_secret(path, 0) {
        Ok(content) => serde_json::from_slice(content.as_bytes()).map(Some).map_err(|e| fail(e.to_string())),
        Err(state::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io::Error::other(e)),
    }
}

/// The connections for which something is held now, by the table that is there; empty if there is none.
///
/// # Errors
/// If `nft` is missing, refuses, or takes too long.
pub fn held() -> io::Result<Vec<String>> {
    Ok(listing()?.map(|text| rules::held_in(&text)).unwrap_or_default())
}

/// The table as it is; `None` if there is none.
fn listing() -> io::Result<Option<String>> {
    nft::table(TABLE)
}
