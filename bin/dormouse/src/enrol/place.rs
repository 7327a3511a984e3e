//! The directory of the configuration: who may change it, one at a time, and how files in it are read and written. Owns the lock and the
//! bounds on what is read.

use super::{failed, names, not_written};
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::Secret;
use dormouse_io::state;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The configuration, where nothing else is said.
pub(crate) const CONFIG: &str = "/etc/dormouse/dormouse.toml";
/// The users with passwords, beside the configuration.
pub(crate) const PASSWORDS: &str = "eap-users.toml";
/// What that file begins with.
pub(crate) const PASSWORDS_HEAD: &str = "# Users with passwords. Whoever reads a hash can log in with it. `dormouse user add NAME --password`, `dormouse user remove NAME`.\n";
/// Largest file that is read, in bytes: a bundle has some 2,000, a configuration with thousands of peers below a million.
const MOST: u64 = 4 << 20;
/// `O_NONBLOCK`: opening a pipe without a writer must not wait.
const NONBLOCK: i32 = 0o4000;

/// A file, its content and its permissions.
pub(crate) type Write<'a> = (PathBuf, &'a [u8], u32);

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The configuration's own file.
    pub(crate) config: PathBuf,
    dir: PathBuf,
}

/// The lock of the directory: other runs that change it wait until it is dropped.
pub(crate) type Lock = dormouse_io::ownership::Changing;

impl Place {
    /// The directory of this configuration. A link is followed, so that the file itself is replaced; the path is made absolute, as the names of
    /// files in the configuration must mean the same wherever the daemon runs.
    pub(crate) fn of(config: &Path) -> Self {
        let there = fs::canonicalize(config).or_else(|_| std::path::absolute(config));
        let config = there.unwrap_or_else(|_| config.to_owned());
        let dir = config.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self { dir: dir.to_owned(), config }
    }

    /// A file or directory of it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Takes the lock, which may wait for another run, and clears away what an interrupted run has left. Makes it if it is missing.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        make(&self.dir, 0o755)?;
        let lock = Lock::wait(&self.dir).map_err(|e| failed(&self.dir, &e))?;
        let config = self.config.file_name().unwrap_or_default().to_string_lossy();
        for dir in [".", "ca", "users"] {
            for entry in fs::read_dir(self.path(dir)).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if is_left(&name, (dir == ".").then_some(&*config)) {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
        Ok(lock)
    }

    /// Makes a directory of it that only root may look into.
    pub(crate) fn make_private(&self, name: &str) -> Result<(), Error> {
        make(&self.path(name), 0o700)
    }
}

/// Whether a file is one that an interrupted run has not moved into its place. Among others', where `config` is, those of a gateway, of the
/// configuration and of connections that were joined count alone.
fn is_left(name: &str, config: Option<&str>) -> bool {
    let Some((place, process)) = name.rsplit_once(".new-") else { return false };
    if process.is_empty() || !process.bytes().all(|c| c.is_ascii_digit()) {
        return false;
    }
    let Some(config) = config else { return true };
    let joined = |end: &&str| place.strip_suffix(*end).is_some_and(|name| names::connection(name).is_ok());
    ["ca.pem", "gateway.", PASSWORDS, config].iter().any(|ours| place.starts_with(ours))
        || [".ca.pem", ".pem", ".key", ".password", ".pem.old", ".key.old"].iter().any(joined)
}

/// Makes a directory with exactly this mode, independent of the umask; one that is there stays as it is.
fn make(dir: &Path, mode: u32) -> Result<(), Error> {
    if dir.is_dir() {
        return Ok(());
    }
    let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
    made.and_then(|()| fs::set_permissions(dir, Permissions::from_mode(mode))).map_err(|e| failed(dir, &e))
}

/// Writes all of these or none.
pub(crate) fn write(files: &[Write<'_>]) -> Result<(), Error> {
    state::write_together(files).map_err(not_written)
}

/// Makes a file for its owner alone, and leaves alone what is there, links included. It may be on a stick whose file system knows no links, so
/// it is made in its place; what cannot be written whole is taken away again.
pub(crate) fn create(path: &Path, content: &[u8]) -> Result<(), Error> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::new(ErrorKind::Other, format!("{} is there already", path.display())));
        }
        opened => opened.map_err(|e| failed(path, &e))?,
    };
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.map_err(|e| {
        let _ = fs::remove_file(path);
        failed(path, &e)
    })
}

/// Makes a file, or a directory of files where these have names, as [`create`] does.
pub(crate) fn create_all(path: &Path, files: &[(String, Secret)]) -> Result<(), Error> {
    if let [(name, content)] = files
        && name.is_empty()
    {
        return create(path, content.as_bytes());
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::new(ErrorKind::Other, format!("{} is there already", path.display())));
        }
        made => made.map_err(|e| failed(path, &e))?,
    }
    let one = |(name, content): &(String, Secret)| {
        let file = path.join(name);
        make(file.parent().unwrap_or(path), 0o700)?;
        create(&file, content.as_bytes())
    };
    let made = files.iter().try_for_each(one);
    if made.is_err() {
        remove_all(path);
    }
    made
}

/// Takes away what [`create_all`] has made.
pub(crate) fn remove_all(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

/// Reads a file that may be anybody's, within bounds; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Secret>, Error> {
    let file = match OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| failed(path, &e))?,
    };
    content(path, &file).map(Some)
}

/// Reads a file, and follows no link: root reads here from a directory of another user, whose links could lead to any file.
pub(crate) fn read_unlinked(path: &Path) -> Result<Option<Secret>, Error> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let file = state::open_here(path, OpenOptions::new().read(true)).map_err(not_written)?;
    content(path, &file).map(Some)
}

/// What an open file holds, within bounds.
fn content(path: &Path, file: &fs::File) -> Result<Secret, Error> {
    let meta = file.metadata().map_err(|e| failed(path, &e))?;
    let unfit = |what: String| Err(Error::new(ErrorKind::Other, format!("{}: {what}", path.display())));
    if !meta.is_file() {
        return unfit("not an ordinary file".into());
    }
    if meta.len() > MOST {
        return unfit(format!("larger than {MOST} bytes"));
    }
    // All at once: a buffer that grows leaves pieces of a key in memory that is free.
    let mut content = Secret::zeroed(usize::try_from(meta.len()).unwrap_or(0));
    file.take(MOST).read_exact(content.as_mut_bytes()).map_err(|e| failed(path, &e))?;
    Ok(content)
}

/// The same as text.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, Error> {
    let text = read(path)?.map(|content| String::from_utf8(content.as_bytes().to_vec()));
    text.transpose().map_err(|_| Error::new(ErrorKind::Other, format!("{}: not UTF-8", path.display())))
}

/// Demands a file.
pub(crate) fn demand<T>(path: &Path, found: Option<T>, advice: &str) -> Result<T, Error> {
    found.ok_or_else(|| {
        Error::new(ErrorKind::Other, format!("{} does not exist", path.display())).with_change(advice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("dormouse-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Place::of(&dir.join("dormouse.toml"))
    }

    #[test]
    fn what_is_not_a_file_of_a_sane_size_is_not_read() {
        let place = place("read");
        let _lock = place.lock().unwrap();
        let path = place.path("x");
        assert!(read(&path).unwrap().is_none());
        assert!(read(place.path("").as_path()).unwrap_err().message.contains("not an ordinary file"));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(read(&path).unwrap_err().message.contains("not an ordinary file"), "and it does not wait");
        fs::remove_file(&path).unwrap();
        fs::File::create(&path).unwrap().set_len(MOST + 1).unwrap();
        assert!(read(&path).unwrap_err().message.contains("larger than 4194304 bytes"));
        fs::write(&path, b"\xff").unwrap();
        assert!(read_text(&path).unwrap_err().message.contains("not UTF-8"));
        fs::remove_dir_all(place.path("")).unwrap();
    }

    #[test]
    fn files_are_written_together_or_not_at_all() {
        let place = place("write");
        let _lock = place.lock().unwrap();
        let (a, b) = (place.path("a"), place.path("missing/b"));
        fs::write(&a, "old").unwrap();
        let error = write(&[(a.clone(), b"new", 0o600), (b, b"new", 0o600)]).unwrap_err();
        assert!(error.message.contains("missing/b"), "{error}");
        assert_eq!(fs::read(&a).unwrap(), b"old");
        assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 1, "nothing is left beside");
        write(&[(a.clone(), b"new", 0o640)]).unwrap();
        assert_eq!(
            (fs::read(&a).unwrap(), fs::metadata(&a).unwrap().permissions().mode() & 0o777),
            (b"new".to_vec(), 0o640)
        );
        fs::remove_dir_all(place.path("")).unwrap();
    }

    #[test]
    fn what_an_interrupted_run_has_left_is_cleared_away_and_nothing_of_others() {
        let place = place("clear");
        drop(place.lock().unwrap());
        place.make_private("ca").unwrap();
        let left = [
            "gateway.key.new-7",
            "gateway.pem.old-2.new-7",
            "ca.pem.new-7",
            "dormouse.toml.new-7",
            "ca/ca.key.new-7",
            "office.key.new-71",
            "office.pem.new-71",
            "office.ca.pem.new-71",
            "eap-users.toml.new-7",
        ];
        let others = [
            "dormouse.held.new-7",
            "mine.new-year",
            "office.key.new-",
            "office.key.new-7b",
            "office.key",
            "a b.key.new-7",
            "office.key.old",
        ];
        left.iter().chain(&others).for_each(|name| fs::write(place.path(name), "half").unwrap());
        drop(place.lock().unwrap());
        assert_eq!(left.map(|name| place.path(name).exists()), [false; 9]);
        assert_eq!(others.map(|name| place.path(name).exists()), [true; 7]);
        fs::remove_dir_all(place.path("")).unwrap();
    }
}
