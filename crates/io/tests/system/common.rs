//! A directory, or a network namespace, for one test: gone afterwards, also after a panic.

use nix::sched::{CloneFlags, unshare};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is removed when it is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dormouse-io-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// True if the test may go on as root; says so if not.
pub(crate) fn root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: {test} needs root");
    }
    root
}

/// Runs `body` on a thread in a network namespace of its own, which the kernel removes with the thread.
pub(crate) fn in_namespace(test: &str, body: impl FnOnce() + Send + 'static) {
    if !root(test) {
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        body();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` in the namespace of the calling thread and returns what it prints.
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes an interface, switched off, whose other end is switched on.
pub(crate) fn link(name: &str) {
    ip(&format!("link add {name} type veth peer name {name}-peer"));
    // Without link-local addresses, which would come some time later.
    for end in [name, &format!("{name}-peer")] {
        ip(&format!("link set {end} addrgenmode none"));
    }
    ip(&format!("link set {name}-peer up"));
}

/// Waits until the kernel has noticed that an interface that is on has a carrier; until then it drops what is sent there.
pub(crate) fn carrier(name: &str) {
    let up = |_| {
        let up = ip(&format!("link show dev {name}")).contains("state UP");
        if !up {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        up
    };
    assert!((0..1000).any(up), "{name} has no carrier");
    // Waits for the lock under which the kernel notices it.
    ip(&format!("link set {name} up"));
}
