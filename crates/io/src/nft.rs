//! nftables, by its own program `nft`: the kernel's interface to it is a compiler's output, and the well-kept libraries need C code. Owns how
//! the program is run and what its listing is; knows none of our tables.

use crate::program;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::process::Stdio;
use std::time::Duration;

/// The longest that `nft` may run. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest listing that is looked at, in bytes: a part of one says nothing of the rest.
const LISTING: u64 = 1 << 20;

/// Carries out what `text` says in one transaction.
///
/// # Errors
/// If `nft` is missing, refuses, or takes too long; everything is as it was then.
pub(crate) fn load(text: &str) -> io::Result<()> {
    run(&["-f", "-"], text, Stdio::null())
}

/// A table of the family `inet` as it is; `None` if there is none.
///
/// # Errors
/// If `nft` is missing, refuses, or takes too long.
pub(crate) fn table(name: &str) -> io::Result<Option<String>> {
    // Of all tables by name first: an error about one that is not there cannot be told from any other.
    let line = format!("table inet {name}");
    if !listing(&["list", "tables", "inet"])?.lines().any(|l| l.trim() == line) {
        return Ok(None);
    }
    listing(&["-s", "list", "table", "inet", name]).map(Some)
}

/// What `nft` prints.
///
/// # Errors
/// As [`table`].
pub(crate) fn listing(arguments: &[&str]) -> io::Result<String> {
    let mut out = File::from(memfd_create(c"dormouse-nft", MFdFlags::MFD_CLOEXEC)?);
    run(arguments, "", out.try_clone()?.into())?;
    let mut text = String::new();
    out.rewind()?;
    out.take(LISTING + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LISTING {
        return Err(io::Error::other(format!("nft: lists more than {LISTING} bytes")));
    }
    Ok(text)
}

fn run(arguments: &[&str], input: &str, output: Stdio) -> io::Result<()> {
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
