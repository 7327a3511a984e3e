//! Files that must survive a crash whole: tickets, ticket keys, what was learned.
//!
//! A file is written beside its place, flushed, moved into place in one step, and the directory flushed: after a crash there
//! is the old content or the new one, never a mixture. Everything here is for the owner's eyes only (0600, directory 0700).
//! Nothing is ever logged but names.

use dormouse_crypto::Secret;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes.
const MAX_FILE: usize = 64 << 20;

/// What went wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Others can read or write a secret.
    #[error("{}: others may access it (mode {mode:04o}); run: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A secret belongs to another user.
    #[error("{}: belongs to user {owner}, neither root nor user {us}; run: chown {us} {}", path.display(), path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Not an ordinary file, or too large to be what it should be.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, doing, source }
}

/// Opens a file in a directory that another user may write to, perhaps as root: that user must not lead us elsewhere by a link, nor have
/// us wait for a pipe.
///
/// # Errors
/// If it cannot be opened, is a link, is no ordinary file, or has another name.
pub fn open_here(path: &Path, options: &mut OpenOptions) -> Result<File, Error> {
    let unfit = |what: &str| Err(Error::Unfit { path: path.into(), what: what.into() });
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = match options.custom_flags(flags).open(path) {
        Err(e) if e.raw_os_error() == Some(nix::libc::ELOOP) => return unfit("a symbolic link; remove it"),
        opened => opened.map_err(failed(path, "open"))?,
    };
    // Of the open file, not of the name, which may change meanwhile.
    let meta = file.metadata().map_err(failed(path, "stat"))?;
    match (meta.is_file(), meta.nlink()) {
        (false, _) => unfit("not an ordinary file"),
        (true, 2..) => unfit("a file with another name elsewhere (a hard link); remove it"),
        _ => Ok(file),
    }
}

/// Reads a secret of root's, ours or `other`'s.
///
/// # Errors
/// If it cannot be read, if group or others may access it, or if it belongs to anyone else.
pub(crate) fn read_secret(path: &Path, other: u32) -> Result<Secret, Error> {
    let file = open_here(path, OpenOptions::new().read(true))?;
    let meta = file.metadata().map_err(failed(path, "stat"))?;
    let (mode, owner, us) = (meta.permissions().mode() & 0o7777, meta.uid(), nix::unistd::geteuid().as_raw());
    if mode & 0o077 != 0 {
        return Err(Error::Exposed { path: path.into(), mode });
    }
    if ![0, us, other].contains(&owner) {
        return Err(Error::Foreign { path: path.into(), owner, us });
    }
    let length = usize::try_from(meta.len()).unwrap_or(usize::MAX);
    if length > MAX_FILE {
        return Err(Error::Unfit { path: path.into(), what: format!("larger than {MAX_FILE} bytes") });
    }
    // All at once: a buffer that grows leaves pieces of the secret in memory that is free.
    let mut content = Secret::zeroed(length);
    (&file).read_exact(content.as_mut_bytes()).map_err(failed(path, "read"))?;
    Ok(content)
}

/// Replaces the content of `path` in one step. `mode` is the file's; the umask does not count.
///
/// # Errors
/// Naming the file and the step; the old content is still there then.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    put(path, content, mode, |fresh| std::fs::rename(fresh, path).map_err(failed(path, "rename into place")))
}

/// Makes `path` in one step, and leaves alone what is there. `mode` as in [`write_atomically`].
///
/// # Errors
/// Naming the file and the step; nothing is changed then, also if there is a file already.
pub fn create_atomically(path: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    put(path, content, mode, |fresh| {
        std::fs::hard_link(fresh, path).map_err(failed(path, "create"))?;
        std::fs::remove_file(fresh).map_err(failed(fresh, "remove"))
    })
}

/// Makes or replaces several files, in their order, once all of them are written and flushed beside their places: a full disk, or an end in
/// the middle of writing, changes none. Each has its mode, and the directories are there.
///
/// # Errors
/// Naming the file and the step. If a file cannot be moved into its place, those before it are in theirs.
pub fn write_together(files: &[(PathBuf, &[u8], u32)]) -> Result<(), Error> {
    let placed = files.iter().map(|(path, content, mode)| Placed { path, content, mode: *mode, owner: None });
    place_together(&placed.collect::<Vec<_>>())
}

/// A file that is to be.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Where.
    pub path: &'a Path,
    /// What is in it.
    pub content: &'a [u8],
    /// Its permissions; the umask does not count.
    pub mode: u32,
    /// Whose it is, user and group; `None`: ours.
    pub owner: Option<(u32, u32)>,
}

/// The same, and each file is whose it is to be before it is there.
///
/// # Errors
/// As [`write_together`].
pub fn place_together(files: &[Placed<'_>]) -> Result<(), Error> {
    let fresh = |path: &Path| {
        let mut name = path.file_name().map(std::ffi::OsString::from).unwrap_or_default();
        name.push(format!(".new-{}", std::process::id()));
        path.with_file_name(name)
    };
    let place = || {
        for Placed { path, content, mode, owner } in files {
            let fresh = fresh(path);
            write_flushed(&fresh, content, *mode)?;
            give(&fresh, *owner).map_err(failed(path, "chown"))?;
        }
        for Placed { path, .. } in files {
            std::fs::rename(fresh(path), path).map_err(failed(path, "rename into place"))?;
        }
        for directory in files.iter().filter_map(|file| file.path.parent()) {
            File::open(directory).and_then(|d| d.sync_all()).map_err(failed(directory, "flush directory"))?;
        }
        Ok(())
    };
    let result = place();
    if result.is_err() {
        for Placed { path, .. } in files {
            let _ = std::fs::remove_file(fresh(path));
        }
    }
    result
}

/// Gives a file that was just made to whom it is to belong.
fn give(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    let ours = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    match owner.filter(|owner| *owner != ours) {
        Some((user, group)) => std::os::unix::fs::lchown(path, Some(user), Some(group)),
        None => Ok(()),
    }
}

fn put(
    path: &Path,
    content: &[u8],
    mode: u32,
    place: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = path.file_name().map(std::ffi::OsString::from).unwrap_or_default();
    name.push(format!(".new-{}", std::process::id()));
    let fresh = directory.join(name);
    let result = write_flushed(&fresh, content, mode).and_then(|()| place(&fresh));
    if result.is_err() {
        let _ = std::fs::remove_file(&fresh);
        return result;
    }
    File::open(directory).and_then(|d| d.sync_all()).map_err(failed(directory, "flush directory"))
}

fn write_flushed(path: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    // A crashed run with the same process id may have left one behind.
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(failed(path, "create"))?;
    file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(failed(path, "chmod"))?;
    file.write_all(content).map_err(failed(path, "write"))?;
    file.sync_all().map_err(failed(path, "flush"))
}

/// The daemon's state directory.
#[derive(Clone, Debug)]
pub struct StateDir {
    path: PathBuf,
    /// Whose it is. Opened as root, it may be the user's that the daemon becomes.
    owner: u32,
}

impl StateDir {
    /// Opens it, made if it is missing (0700), and clears away what an interrupted write left behind.
    ///
    /// # Errors
    /// If it cannot be made or others may write into it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed(path, "create directory"))?;
        let meta = std::fs::metadata(path).map_err(failed(path, "stat"))?;
        let mode = meta.permissions().mode() & 0o7777;
        if mode & 0o022 != 0 {
            let what =
                format!("others may write into it (mode {mode:04o}); run: chmod 700 {}", path.display());
            return Err(Error::Unfit { path: path.into(), what });
        }
        for entry in std::fs::read_dir(path).map_err(failed(path, "list"))?.flatten() {
            if entry.file_name().to_string_lossy().contains(".new-") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(Self { path: path.into(), owner: meta.uid() })
    }

    /// Where `name` is kept.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(file_name(name))
    }

    /// The content of `name`, wiped when it is dropped; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, if group or others may access it, or if it belongs neither to root, nor to us, nor to the directory's owner.
    pub fn read(&self, name: &str) -> Result<Option<Secret>, Error> {
        match read_secret(&self.path(name), self.owner) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map(Some),
        }
    }

    /// The names that begin with `prefix`, of what is there.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let entries = std::fs::read_dir(&self.path).map_err(failed(&self.path, "list"))?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| name.starts_with(prefix)).collect())
    }

    /// Replaces the content of `name` in one step.
    ///
    /// # Errors
    /// As [`write_atomically`].
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        write_atomically(&self.path(name), content, 0o600)
    }

    /// Removes `name`, durably. It is no error if it is not there.
    ///
    /// # Errors
    /// Naming the file.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        match std::fs::remove_file(&path) {
            Ok(()) => File::open(&self.path)
                .and_then(|d| d.sync_all())
                .map_err(failed(&self.path, "flush directory")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(failed(&path, "remove")(e)),
        }
    }
}

/// Connection names go into file names: characters that could lead out of the directory or hide the file are written as `%XX`.
fn file_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (i, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && i > 0);
        if plain {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    out
}
