//! What `scripts/install` puts into a system, and that it takes all of it away again. In a directory of its own: nothing of the machine
//! is touched, and no privilege is needed.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Every file below `dir`, with its permissions.
fn files(dir: &Path) -> Result<BTreeMap<PathBuf, u32>> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            } else {
                let name = Path::new("/").join(entry.path().strip_prefix(dir)?);
                found.insert(name, entry.metadata()?.permissions().mode() & 0o777);
            }
        }
    }
    Ok(found)
}

fn install(root: &Path, prefix: &str, arguments: &[&str]) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install");
    let built = dormouse_testbed::binary("dormouse");
    let out = Command::new(script)
        .args(arguments)
        .env("DESTDIR", root)
        .env("PREFIX", prefix)
        .env("BIN", built.parent().context("programs lie in a directory")?)
        .output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

#[test]
fn what_is_installed_is_complete_and_can_be_removed() -> Result<()> {
    let root = Directory(std::env::temp_dir().join(format!("dormouse-install-{}", std::process::id())));
    for (prefix, users) in [("/usr/local", "/etc/sysusers.d"), ("/usr", "/usr/lib/sysusers.d")] {
        std::fs::create_dir_all(&root.0)?;
        install(&root.0, prefix, &[])?;
        let found = files(&root.0)?;
        let mode = |name: &str| found.get(Path::new(name)).copied();
        for program in ["dormouse", "dormoused"] {
            assert_eq!(mode(&format!("{prefix}/bin/{program}")), Some(0o755), "{found:?}");
        }
        for page in ["dormouse", "dormouse-up", "dormouse-lab-run"] {
            assert_eq!(mode(&format!("{prefix}/share/man/man1/{page}.1")), Some(0o644), "{found:?}");
        }
        for page in ["man5/dormouse.toml.5", "man8/dormoused.8"] {
            assert_eq!(mode(&format!("{prefix}/share/man/{page}")), Some(0o644), "{found:?}");
        }
        assert_eq!(mode(&format!("{users}/dormouse.conf")), Some(0o644), "{found:?}");
        let board = format!("{prefix}/share/dormouse/grafana-dashboard.json");
        assert_eq!(mode(&board), Some(0o644), "{found:?}");
        for unit in ["dormoused", "dormouse-block"] {
            let unit = format!("{prefix}/lib/systemd/system/{unit}.service");
            let text = std::fs::read_to_string(root.0.join(unit.trim_start_matches('/')))?;
            let starts = format!("ExecStart={prefix}/bin/dormoused ");
            assert!(text.lines().any(|line| line.starts_with(&starts)), "{text}");
        }
        for (unit, command) in [
            ("dormouse-renewals.service", "dormouse gateway renewals"),
            ("dormouse-renew.service", "dormouse renew --if-due"),
        ] {
            let text = std::fs::read_to_string(
                root.0.join(format!("{}/lib/systemd/system/{unit}", prefix.trim_start_matches('/'))),
            )?;
            let starts = format!("ExecStart={prefix}/bin/{command}");
            assert!(text.lines().any(|line| line == starts), "{text}");
        }
        assert_eq!(mode(&format!("{prefix}/lib/systemd/system/dormouse-renew.timer")), Some(0o644));

        install(&root.0, prefix, &["--remove"])?;
        assert_eq!(files(&root.0)?, BTreeMap::new());
    }
    Ok(())
}
