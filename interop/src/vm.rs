//! Stories in a virtual machine: scripts of `vm/`, each of which boots Debian's kernel, says "ok:" for every step, and ends with
//! "PASS". Owns what they need of this machine, and the verdict.

use anyhow::{Result, ensure};
use dormouse_testbed::{Need, binary, require, vm};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vm")
}

/// What every story needs, and `more`.
pub fn needs(more: impl IntoIterator<Item = Need>) -> Vec<Need> {
    let kernel = fetched(&["kernel"], "the virtual machine's kernel (interop/vm/kernel fetch)");
    vm::NEEDS.into_iter().chain([kernel]).chain(more).collect()
}

/// What a script of `vm/` fetches, as something that a test needs: `script` and its arguments find out whether it is there.
#[must_use]
pub fn fetched(script: &[&str], words: &'static str) -> Need {
    vm::fetched(&place(), script, words)
}

/// Plays a story of `vm/strongswan-*.sh`, if Debian's strongSwan and the machine are there.
///
/// # Errors
/// As [`story`].
pub fn strongswan(of: &str) -> Result<()> {
    let programs = ["swanctl", "nft", "perl"].map(Need::Program);
    let needs = needs(programs.into_iter().chain([Need::File("/usr/lib/ipsec/charon")]));
    if !require(&format!("strongSwan with ESP in the kernel, {of}"), &needs) {
        return Ok(());
    }
    story("strongswan", &[of.into(), binary("dormouse"), binary("dormoused")])
}

/// Runs a story and demands that it came to its end.
///
/// # Errors
/// With all that it said, if it did not.
pub fn story<A: AsRef<OsStr>>(name: &str, arguments: &[A]) -> Result<()> {
    let out = Command::new(place().join(name)).args(arguments).output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    let problems = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success() && said.lines().any(|l| l == "PASS"),
        "vm/{name} ended with {}:\n{said}\n{problems}",
        out.status
    );
    for line in said.lines().filter(|l| l.starts_with("ok: ")) {
        println!("{name}: {line}");
    }
    Ok(())
}
