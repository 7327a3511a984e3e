//! Files that are there whole or not at all. Owns the other name under which a file is written until it is whole; must never let a write that
//! fails touch what was there before.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is being written: under another name beside its own until it is [placed](Unfinished::place), and removed if it never is.
/// What is no regular file (a pipe, a device) is written to at once; a link is followed.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    names: Option<Names>,
}

/// The other name and its own.
#[derive(Debug)]
struct Names {
    other: PathBuf,
    own: PathBuf,
}

impl Drop for Names {
    fn drop(&mut self) {
        // Nothing has this name any more once the file is in its place.
        let _ = fs::remove_file(&self.other);
    }
}

impl Unfinished {
    /// Begins a file.
    ///
    /// # Errors
    /// The file system's; what was there before is there still.
    pub fn create(path: &Path) -> io::Result<Self> {
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Ok(Self { file: File::options().write(true).open(path)?, names: None });
        }
        let own = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = own.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let other = own.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
        // A crashed run with the same process id may have left one behind; and no symbolic link is followed.
        let _ = fs::remove_file(&other);
        let file = File::options().write(true).create_new(true).open(&other)?;
        Ok(Self { file, names: Some(Names { other, own }) })
    }

    /// Puts the file into its place, once all of it is on the disk.
    ///
    /// # Errors
    /// The file system's; what was there before is there still.
    pub fn place(self) -> io::Result<()> {
        if let Some(Names { other, own }) = &self.names {
            self.file.sync_all()?;
            fs::rename(other, own)?;
        }
        Ok(())
    }
}

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file: whole, or not at all, as [`Unfinished`] is.
///
/// # Errors
/// The file system's; what was there before is there still.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = Unfinished::create(path)?;
    file.write_all(content)?;
    file.place()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finished_leaves_what_was_there_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("dormouse-whole-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("report.html");
        let (old, link) = ("of yesterday, and longer", dir.join("link"));
        write_whole(&path, old.as_bytes()).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let names = || fs::read_dir(&dir).unwrap().count();
        let mut begun = Unfinished::create(&path).unwrap();
        begun.write_all(b"half of").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap(), names()), (old.to_owned(), 3));
        drop(begun);
        assert_eq!((fs::read_to_string(&path).unwrap(), names()), (old.to_owned(), 2));
        write_whole(&link, b"of today").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "a link is followed");
        assert_eq!((fs::read_to_string(&path).unwrap(), names()), ("of today".to_owned(), 2));
        assert!(write_whole(&dir, b"no file").is_err());
        assert!(write_whole(Path::new("/dev/full"), b"no room").is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
