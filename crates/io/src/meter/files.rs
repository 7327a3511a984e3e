//! Small files of the kernel: words and numbers, bounded, with the file named in every error.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use dormouse_energy::meter::MeterError;

/// The kernel writes a page at most into such a file; what is longer is something else.
const MAX_LENGTH: u64 = 4096;

/// What is in a file, without the blanks around it.
pub(super) fn text(path: &Path) -> Result<String, MeterError> {
    let metadata = std::fs::metadata(path).map_err(|e| failed(path, &e))?;
    // A pipe under this name would block: sysfs has none, another tree may.
    if !metadata.is_file() {
        return Err(MeterError::Unreadable { file: shown(path), why: "not a regular file".into() });
    }
    let file = File::open(path).map_err(|e| failed(path, &e))?;
    let mut bytes = Vec::new();
    file.take(MAX_LENGTH).read_to_end(&mut bytes).map_err(|e| failed(path, &e))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The words of a file that may be missing.
pub(super) fn optional_text(path: &Path) -> Option<String> {
    text(path).ok().filter(|t| !t.is_empty())
}

/// A number that is not negative.
pub(super) fn unsigned(path: &Path) -> Result<u64, MeterError> {
    let found = text(path)?;
    found.parse().map_err(|_| content(path, &found, "a whole number, not negative"))
}

/// A number of either sign, as drivers give currents.
pub(super) fn signed(path: &Path) -> Result<i64, MeterError> {
    let found = text(path)?;
    found.parse().map_err(|_| content(path, &found, "a whole number"))
}

pub(super) fn content(path: &Path, found: &str, expected: &'static str) -> MeterError {
    MeterError::Content { file: shown(path), found: found.chars().take(40).collect(), expected }
}

pub(super) fn failed(path: &Path, error: &io::Error) -> MeterError {
    let file = shown(path);
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            MeterError::Permission { file, advice: "run as root, or let a group read it by a udev rule" }
        }
        _ => MeterError::Unreadable { file, why: error.to_string() },
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The names in a directory, sorted; none if it does not exist.
pub(super) fn entries(path: &Path) -> Vec<PathBuf> {
    let Ok(read) = std::fs::read_dir(path) else { return Vec::new() };
    // More than a machine has; a bound against a tree that is no sysfs.
    let mut found: Vec<PathBuf> = read.take(256).filter_map(Result::ok).map(|e| e.path()).collect();
    found.sort();
    found
}

/// A path's last part.
pub(super) fn name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
