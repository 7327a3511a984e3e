//! A root directory of its own for each test, removed with it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use dormouse_sansio::Instant;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("dormouse-meter-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.root.join(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
    }

    /// Files of one power supply.
    pub(crate) fn supply(&self, name: &str, files: &[(&str, &str)]) {
        for (file, content) in files {
            self.write(&format!("sys/class/power_supply/{name}/{file}"), format!("{content}\n"));
        }
    }

    /// Files of one RAPL domain.
    pub(crate) fn domain(&self, zone: &str, name: &str, energy: u64, range: u64) {
        for (file, content) in
            [("name", name), ("energy_uj", &energy.to_string()), ("max_energy_range_uj", &range.to_string())]
        {
            self.write(&format!("sys/class/powercap/{zone}/{file}"), format!("{content}\n"));
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

pub(crate) fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}
