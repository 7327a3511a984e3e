//! A report that cannot be written whole leaves what was there: for each verb that writes one, on a disk that is full after a kilobyte.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../../crates/lab/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const OLD: &str = "of yesterday";

struct Scene(PathBuf);

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the verb where no file may grow beyond a kilobyte; a write beyond that is an error, and no signal.
fn run(dir: &Path, arguments: &str) -> (bool, String) {
    let shell = "trap '' XFSZ; ulimit -f 2; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", shell, "sh", env!("CARGO_BIN_EXE_dormouse")]).args(arguments.split(' '));
    let output = command.current_dir(dir).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
    let scene = Scene(std::env::temp_dir().join(format!("dormouse-whole-verbs-{}", std::process::id())));
    fs::create_dir_all(&scene.0).unwrap();
    let at = |name: &str| scene.0.join(name);
    common::campaign().write(&at("bench.json")).unwrap();
    fs::write(at("talk.csv"), "client,time,bytes,direction\na,1,60,out\na,90,60,out\n").unwrap();
    let inputs = 2;
    for (arguments, file) in [
        ("trace talk.csv --html old.html", "old.html"),
        ("trace talk.csv --periods old.parquet", "old.parquet"),
        ("trace generate old.csv --clients 2", "old.csv"),
        ("trace generate old.csv.zst --clients 20", "old.csv.zst"),
        ("trace generate old.arrow --clients 20", "old.arrow"),
        ("advise bench.json --html old.html", "old.html"),
        ("lab run paper-001 --results bench.json --html old.html", "old.html"),
    ] {
        fs::write(at(file), OLD).unwrap();
        let (done, said) = run(&scene.0, arguments);
        assert!(!done && said.contains("File too large"), "{arguments}: {said}");
        assert_eq!(fs::read_to_string(at(file)).unwrap(), OLD, "{arguments}");
        fs::remove_file(at(file)).unwrap();
        assert_eq!(fs::read_dir(&scene.0).unwrap().count(), inputs, "{arguments}");
    }
}
