//! Whether a test can run here. Owns the rule that a skipped test says so, and that CI skips none.

use std::path::Path;

/// Something that a test needs of the machine.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// Effective user id 0.
    Root,
    /// A program on the `PATH` (or in `/usr/sbin`).
    Program(&'static str),
    /// A file or device.
    File(&'static str),
}

impl Need {
    /// What is missing, in words; `None` if it is there.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!nix::unistd::Uid::effective().is_root()).then(|| "root".into()),
            Self::Program(p) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let found = std::env::split_paths(&path)
                    .chain(["/usr/sbin".into(), "/sbin".into()])
                    .any(|dir| dir.join(p).is_file());
                (!found).then(|| format!("the program {p}"))
            }
            Self::File(f) => (!Path::new(f).exists()).then(|| f.into()),
        }
    }
}

/// True if all of `needs` are there. Otherwise prints that `test` was skipped and why, and returns false.
///
/// # Panics
/// If something is missing and the environment variable `DORMOUSE_REQUIRE` is `all`, as in CI: there nothing may be skipped.
#[must_use]
pub fn require(test: &str, needs: &[Need]) -> bool {
    let missing: Vec<String> = needs.iter().filter_map(|n| n.missing()).collect();
    if missing.is_empty() {
        return true;
    }
    let missing = missing.join(", ");
    assert!(
        std::env::var("DORMOUSE_REQUIRE").as_deref() != Ok("all"),
        "{test} may not be skipped here but lacks {missing}"
    );
    eprintln!("SKIPPED {test}: needs {missing}");
    false
}
