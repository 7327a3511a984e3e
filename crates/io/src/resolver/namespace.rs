//! Where are we: in the machine's own network, or in a namespace beside it? Only looks.

use std::path::Path;

/// True if an ancestor of this process lives in another network namespace: the machine's services then do not see
/// our interfaces. Ancestors that may not be looked at do not count.
pub(super) fn separate_network() -> bool {
    let Some(ours) = network_of("self") else { return false };
    let mut pid = std::os::unix::process::parent_id();
    // A process tree is no deeper than this; the bound is against a loop through reused ids.
    for _ in 0..64 {
        if pid == 0 {
            break;
        }
        if network_of(&pid.to_string()).is_some_and(|theirs| theirs != ours) {
            return true;
        }
        pid = parent_of(pid);
    }
    network_of("1").is_some_and(|theirs| theirs != ours)
}

fn network_of(pid: &str) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// True if something is mounted right there: `ip netns exec` does that to `resolv.conf`, container engines and
/// systemd's `ReadWritePaths=` too. Such a file can be written but not replaced.
pub(super) fn is_mount_point(path: &Path) -> bool {
    let Ok(path) = std::fs::canonicalize(path) else { return false };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The fifth field is the mount point; spaces in it are written \040.
    let wanted = path.to_string_lossy().replace(' ', "\\040");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(wanted.as_str()))
}
