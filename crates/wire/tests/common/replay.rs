//! Replays a committed fuzz corpus through the body of its target. Shared by the crates that have targets.

use std::fs;
use std::path::Path;

/// Runs `target` over every file of `fuzz/corpus/<name>`; a failure names the file.
#[expect(clippy::disallowed_methods, reason = "a test reads files of the repository")]
#[track_caller]
pub(crate) fn replay(name: &str, target: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{}: the corpus is missing", dir.display());
    for file in files {
        let data = fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("{} breaks {name}", file.display());
        }
    }
}
