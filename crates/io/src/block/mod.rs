//! The block: what a tunnel should carry does not leave this machine outside of it. Owns the nftables table [`TABLE`] and nothing else of
//! the packet filter; never decides when something is held.
//!
//! [`Rules`] is the whole table: [`load`] puts it in the place of the one that is there in one transaction, so that no packet passes
//! between two states. The kernel keeps it when the daemon and its guard are killed; [`Guard`] is needed to change it after the daemon has
//! given its privileges away, and to put it back when another program removes it.
//!
//! nftables' own program `nft` is run: the kernel's interface to it is a compiler's output, and the well-kept libraries need C code.

mod guard;
mod rules;

pub use guard::{Guard, News, serve};
pub use rules::{Blocked, OnLink, Portal, Rules};

use crate::{program, state};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// The table's name, in the family `inet`.
pub const TABLE: &str = "dormouse_block";

/// The longest that `nft` may run. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// A longer listing of the table is not ours, in bytes.
const LISTING: u64 = 1 << 20;

/// Puts `rules` in the place of those that are there, in one step; the table goes if nothing is held.
///
/// # Errors
/// If `nft` is missing, refuses, or takes too long, or the tunnel's name does not fit; everything is as it was then.
pub fn load(rules: &Rules) -> io::Result<()> {
    nft(&["-f", "-"], &rules.text()?, Stdio::null())
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
    let mut out = File::from(memfd_create(c"dormouse-nft", MFdFlags::MFD_CLOEXEC)?);
    // Of all tables by name first: an error about one that is not there cannot be told from any other.
    nft(&["list", "tables", "inet"], "", out.try_clone()?.into())?;
    let line = format!("table inet {TABLE}");
    if !read(&mut out)?.lines().any(|l| l.trim() == line) {
        return Ok(None);
    }
    out.set_len(0)?;
    out.rewind()?;
    nft(&["-s", "list", "table", "inet", TABLE], "", out.try_clone()?.into())?;
    read(&mut out).map(Some)
}

fn read(out: &mut File) -> io::Result<String> {
    let mut text = String::new();
    out.rewind()?;
    out.take(LISTING).read_to_string(&mut text)?;
    Ok(text)
}

fn nft(arguments: &[&str], input: &str, output: Stdio) -> io::Result<()> {
    let Some(program) = program::find("nft") else {
        let what = "the program nft is missing: install the package nftables";
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    };
    match program::run_into(program, arguments, input.as_bytes(), output, PATIENCE)? {
        Some(outcome) if outcome.status.success() => Ok(()),
        Some(outcome) => Err(io::Error::other(format!("nft: {}", outcome.describe()))),
        None => Err(io::Error::new(io::ErrorKind::TimedOut, format!("nft: not within {PATIENCE:?}"))),
    }
}
