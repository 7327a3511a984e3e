//! The shipped unit's sandbox without systemd, for daemons that tests start: what it takes away is taken away here by the same means of the
//! kernel. Owns the reading of `packaging/dormoused.service`.

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// What takes away what the unit takes away: every capability but those of its bounding set, the gain of new ones, and writing anywhere but
/// in `writable`. A program and its arguments follow.
///
/// # Errors
/// If the unit does not say what this does.
pub fn confined(writable: &Path) -> Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/dormoused.service");
    let unit = std::fs::read_to_string(path)?;
    let says = |key: &str| unit.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    for (key, value) in [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectKernelTunables", "yes"),
        ("UMask", "0077"),
    ] {
        ensure!(says(key) == Some(value), "{key}={:?} in the unit", says(key));
    }
    let kept = says("CapabilityBoundingSet").context("CapabilityBoundingSet")?;
    let kept: Vec<String> =
        kept.split_whitespace().map(|c| c.trim_start_matches("CAP_").to_lowercase()).collect();
    // What may be written of the kernel's settings all the same, as systemd has it: mounts below the one that is read-only.
    let paths =
        unit.lines().filter_map(|l| l.strip_prefix("ReadWritePaths=")).flat_map(str::split_whitespace);
    let kernel = paths.map(|path| path.trim_start_matches('-')).filter(|path| path.starts_with("/proc/sys/"));
    let kernel: Vec<&str> = kernel.collect();
    let script = format!(
        "set -e; mount --rbind \"$1\" \"$1\"; mount --rbind /proc/sys /proc/sys; \
         for p in {}; do mount --bind $p $p; done; mount -o remount,bind,ro /proc/sys; \
         mount -o remount,bind,ro /; umask 0077; shift; \
         exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+{} \"$@\"",
        kernel.join(" "),
        kept.join(",+")
    );
    let dir = writable.display().to_string();
    Ok(["unshare", "--mount", "sh", "-c", &script, "sh", &dir].map(str::to_owned).to_vec())
}

/// What the unit runs to reload the daemon, from the name of the program on.
///
/// # Errors
/// If it runs nothing.
pub fn reload_command() -> Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/dormoused.service");
    let unit = std::fs::read_to_string(path)?;
    let line = unit.lines().find_map(|l| l.strip_prefix("ExecReload=/usr/bin/")).context("ExecReload")?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
}
