//! The configuration and the files that it names, read: by the daemon at its start, and later by a helper process, which keeps the right
//! to read what is root's after the daemon has given it away. Owns the bounds on what is read and the way of the bytes to the daemon;
//! must never judge a content.
//!
//! The daemon can ask for nothing but "everything that is configured": the helper reads the configuration itself and takes the names out of
//! it, so that a daemon in an attacker's hands gets no file by naming it. The helper becomes the daemon's user and keeps
//! `CAP_DAC_READ_SEARCH` alone, out of effect. It is put into effect for one `open` at a time: of a file that the user may not read, and
//! only if every step of the way there, links included, is out of that user's reach; the configuration's own way first.

use crate::helper::{self, Helper, MAX_MESSAGE};
use crate::privileges::{self, Account, reads_all};
use dormouse_crypto::Secret;
use nix::sys::socket::MsgFlags;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Longest file that is read, in bytes: a CRL of a large authority.
const FILE_MOST: u64 = 16 << 20;
/// Most that is read at once, names included, in bytes.
const ALL_MOST: usize = 64 << 20;
/// Bytes before each file on its way to the daemon.
const HEADER: usize = 24;
/// Links that are followed on the way to one file, as in the kernel.
const LINKS_MOST: usize = 40;

/// The paths that a configuration names, out of its text.
pub type Names<'a> = dyn Fn(&[u8]) -> Vec<PathBuf> + 'a;

/// What a file held when it was read.
#[derive(Clone, Debug)]
pub struct Content {
    /// All of it.
    pub bytes: Secret,
    /// Its permission bits.
    pub mode: u32,
}

/// The configuration and the files that it names, as they were at one moment: each one's content, or why it could not be read.
#[derive(Clone, Debug, Default)]
pub struct Files {
    all: BTreeMap<PathBuf, Result<Content, String>>,
    bytes: usize,
}

impl Files {
    /// What was read of `path`, which must be written as in the configuration.
    ///
    /// # Errors
    /// Why it could not be read, naming it.
    pub fn get(&self, path: &Path) -> Result<&Content, String> {
        match self.all.get(path) {
            Some(Ok(content)) => Ok(content),
            Some(Err(why)) => Err(why.clone()),
            None => {
                Err(format!("{}: was not read, because the configuration does not name it", path.display()))
            }
        }
    }

    fn add(&mut self, path: PathBuf, read: &mut dyn FnMut(&Path) -> io::Result<Content>) {
        let Entry::Vacant(place) = self.all.entry(path) else { return };
        let name = place.key();
        let mut found = read(name).map_err(|e| format!("{}: {e}", name.display()));
        let size = HEADER + name.as_os_str().len() + found.as_ref().map_or(0, |content| content.bytes.len());
        if self.bytes + size > ALL_MOST {
            found = Err(format!("{}: the configured files are more than {ALL_MOST} bytes", name.display()));
        } else {
            self.bytes += size;
        }
        place.insert(found);
    }

    /// For each: the lengths of name and content, its mode, or [`u32::MAX`] for an error, whose words the content is then.
    fn encode(&self) -> Vec<u8> {
        let words =
            self.all.values().filter_map(|found| found.as_ref().err()).map(String::len).sum::<usize>();
        let mut out = Vec::with_capacity(self.bytes + words);
        for (path, found) in &self.all {
            let name = path.as_os_str().as_bytes();
            let (mode, content) = match found {
                Ok(Content { bytes, mode }) => (*mode, bytes.as_bytes()),
                Err(why) => (u32::MAX, why.as_bytes()),
            };
            for number in [name.len() as u64, content.len() as u64, mode.into()] {
                out.extend(number.to_be_bytes());
            }
            out.extend(name);
            out.extend(content);
        }
        out
    }

    fn decode(mut rest: &[u8]) -> Option<Self> {
        let mut files = Self::default();
        while !rest.is_empty() {
            let mut number = || {
                let (first, after) = rest.split_first_chunk()?;
                rest = after;
                Some(u64::from_be_bytes(*first))
            };
            let (name, content, mode) = (number()?, number()?, u32::try_from(number()?).ok()?);
            let (name, after) = rest.split_at_checked(usize::try_from(name).ok()?)?;
            let (content, after) = after.split_at_checked(usize::try_from(content).ok()?)?;
            rest = after;
            let found = match mode {
                u32::MAX => Err(String::from_utf8_lossy(content).into_owned()),
                mode => Ok(Content { bytes: Secret::from(content.to_vec()), mode }),
            };
            files.all.insert(Path::new(OsStr::from_bytes(name)).to_owned(), found);
        }
        Some(files)
    }
}

/// Reads the configuration and the files that it names, with the rights of this process.
#[must_use]
pub fn collect(config: &Path, names: &Names<'_>) -> Files {
    collect_by(config, names, &mut |path| content(open(path)?))
}

fn collect_by(config: &Path, names: &Names<'_>, read: &mut dyn FnMut(&Path) -> io::Result<Content>) -> Files {
    let mut files = Files::default();
    files.add(config.to_owned(), read);
    let named = files.get(config).map(|content| names(content.bytes.as_bytes())).unwrap_or_default();
    named.into_iter().for_each(|path| files.add(path, read));
    files
}

/// A pipe or a device must not hold us up.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY).open(path)
}

fn content(file: File) -> io::Result<Content> {
    let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let meta = file.metadata()?;
    if !meta.is_file() {
        return refuse("is not a file");
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(FILE_MOST)).unwrap_or(0) + 1);
    file.take(FILE_MOST + 1).read_to_end(&mut bytes)?;
    let bytes = Secret::from(bytes);
    if bytes.len() as u64 > FILE_MOST {
        return refuse("is longer than 16 MiB");
    }
    Ok(Content { bytes, mode: meta.mode() & 0o7777 })
}

/// The daemon's end of the helper. Nothing here waits: register it with the [`crate::poller::Poller`] and call [`Reader::next`] when it is
/// readable.
#[derive(Debug)]
pub struct Reader {
    helper: Helper,
    /// What has come of the answer, and how long it will be; 0: none is coming.
    come: Vec<u8>,
    whole: usize,
}

impl Reader {
    /// Starts `program` with `arguments`, which must end up in [`serve`]. Before privileges are dropped.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(program: &Path, arguments: &[&OsStr]) -> io::Result<Self> {
        Ok(Self { helper: Helper::spawn(program, arguments)?.brief(), come: Vec::new(), whole: 0 })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.helper.pid()
    }

    /// Has everything read again. One [`Reader::next`] has it some time later; until then, it must not be asked again.
    ///
    /// # Errors
    /// If the helper is gone.
    pub fn ask(&mut self) -> io::Result<()> {
        self.helper.order(&())
    }

    /// What was read, if all of it has come.
    ///
    /// # Errors
    /// If the helper is gone or talks nonsense: take it out of the poller.
    #[expect(
        clippy::should_implement_trait,
        reason = "the convention of the I/O parts: `next` never blocks and may fail"
    )]
    pub fn next(&mut self) -> io::Result<Option<Files>> {
        let nonsense = || io::Error::from(io::ErrorKind::InvalidData);
        while let Some(packet) = self.helper.next_packet()? {
            if self.whole == 0 {
                let length =
                    packet.try_into().map(u64::from_be_bytes).ok().and_then(|l| usize::try_from(l).ok());
                // Twice as much: the words of errors are not counted.
                self.whole = length.filter(|l| (1..=2 * ALL_MOST).contains(l)).ok_or_else(nonsense)?;
                self.come = Vec::with_capacity(self.whole);
                continue;
            }
            if self.come.len() + packet.len() > self.whole {
                return Err(nonsense());
            }
            self.come.extend_from_slice(packet);
            if self.come.len() == self.whole {
                self.whole = 0;
                let all = Secret::from(std::mem::take(&mut self.come));
                return Files::decode(all.as_bytes()).map(Some).ok_or_else(nonsense);
            }
        }
        Ok(None)
    }
}

crate::as_fd!(Reader, helper);

/// The helper itself: becomes `account`, reads the configuration and what it names as often as it is asked on standard input, and ends with
/// the daemon.
///
/// # Errors
/// If privileges cannot be given up, or the socket fails.
pub fn serve(account: &Account, config: &Path, names: &Names<'_>) -> io::Result<()> {
    let socket = helper::begin()?;
    privileges::keep_reading(account).map_err(io::Error::other)?;
    let user = User { uid: account.uid(), groups: groups()? };
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        match helper::receive(socket.as_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        }
        let trusted = with_all(|| user.cannot_redirect(config)).unwrap_or(false);
        let files = collect_by(config, names, &mut |path| user.read(path, trusted));
        let whole = Secret::from(files.encode());
        let length = (whole.len() as u64).to_be_bytes();
        for packet in std::iter::once(&length[..]).chain(whole.as_bytes().chunks(MAX_MESSAGE)) {
            // A daemon that is gone is the end of this loop too.
            if helper::transmit_packet(socket.as_fd(), packet, MsgFlags::empty()).is_err() {
                return Ok(());
            }
        }
    }
}

fn groups() -> io::Result<Vec<u32>> {
    let groups = nix::unistd::getgroups()?.into_iter().chain([nix::unistd::getegid()]);
    Ok(groups.map(nix::unistd::Gid::as_raw).collect())
}

/// With the right to read everything in effect.
fn with_all<T>(f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    reads_all(true)?;
    let result = f();
    reads_all(false)?;
    result
}

/// Whom the daemon has become.
struct User {
    uid: u32,
    groups: Vec<u32>,
}

impl User {
    /// With the user's own rights if they suffice; with all, if the configuration is root's (`trusted`) and so is the way to the file.
    fn read(&self, path: &Path, trusted: bool) -> io::Result<Content> {
        let denied = match open(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => e,
            other => return content(other?),
        };
        let opened = with_all(|| {
            let may = trusted && self.cannot_redirect(path)?;
            may.then(|| open(path)).transpose()
        });
        match opened {
            Ok(Some(file)) => content(file),
            Ok(None) => Err(io::Error::new(
                denied.kind(),
                format!(
                    "{denied}; it is not read as root would, because the daemon's user could lead there from other files"
                ),
            )),
            // The right was never there.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Err(io::Error::new(e.kind(), format!("{denied}; CAP_DAC_READ_SEARCH is missing")))
            }
            Err(e) => Err(e),
        }
    }

    /// Whether every step of the way to a file is out of the user's hands: what it names is what root has put there.
    fn cannot_redirect(&self, path: &Path) -> io::Result<bool> {
        let mut at = PathBuf::from("/");
        let mut left: Vec<PathBuf> = steps(&std::path::absolute(path)?);
        let mut links = 0;
        while let Some(step) = left.pop() {
            match step.components().next() {
                Some(Component::ParentDir) => drop(at.pop()),
                Some(Component::Normal(name)) => at.push(name),
                _ => at = PathBuf::from("/"),
            }
            let meta = std::fs::symlink_metadata(&at)?;
            if self.can_change(&meta) {
                return Ok(false);
            }
            if meta.is_symlink() {
                links += 1;
                if links > LINKS_MOST {
                    return Err(nix::errno::Errno::ELOOP.into());
                }
                left.extend(steps(&std::fs::read_link(&at)?));
                at.pop();
            }
        }
        Ok(true)
    }

    fn can_change(&self, meta: &std::fs::Metadata) -> bool {
        let mode = meta.mode();
        // In a directory like /tmp, each entry is its owner's.
        let sticky = meta.is_dir() && mode & 0o1000 != 0;
        let group = mode & 0o020 != 0 && self.groups.contains(&meta.gid());
        meta.uid() == self.uid || (!meta.is_symlink() && !sticky && (group || mode & 0o002 != 0))
    }
}

/// The components of a path, the last one first.
fn steps(path: &Path) -> Vec<PathBuf> {
    let mut steps: Vec<PathBuf> = path.components().map(|c| PathBuf::from(c.as_os_str())).collect();
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dormouse-files-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, content).unwrap();
            path
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The names are the lines.
    fn lines(text: &[u8]) -> Vec<PathBuf> {
        text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| OsStr::from_bytes(l).into()).collect()
    }

    #[test]
    fn what_is_named_is_read_and_arrives_as_it_is() {
        let dir = Directory::new("named");
        let key = dir.file("key", b"a key");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o640)).unwrap();
        let missing = dir.0.join("missing");
        let config = dir.file("config", format!("{}\n{}\n", key.display(), missing.display()).as_bytes());
        let files = collect(&config, &lines);
        let come = Files::decode(&files.encode()).expect("it is whole");
        for files in [&files, &come] {
            let content = files.get(&key).unwrap();
            assert_eq!((content.bytes.as_bytes(), content.mode), (&b"a key"[..], 0o640));
            let why = files.get(&missing).unwrap_err();
            assert!(why.contains("missing: No such file"), "{why}");
            assert!(files.get(Path::new("/etc/passwd")).unwrap_err().contains("does not name it"));
        }
        let encoded = files.encode();
        assert!((1..encoded.len()).all(|cut| Files::decode(&encoded[..cut]).is_none_or(|f| f.all.len() < 3)));
    }

    #[test]
    fn what_is_no_file_or_too_long_is_refused_and_does_not_hold_us_up() {
        let dir = Directory::new("odd");
        let pipe = dir.0.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let long = dir.0.join("long");
        File::create(&long).unwrap().set_len(FILE_MOST + 1).unwrap();
        let names = [pipe.clone(), long.clone(), dir.0.clone(), "/dev/zero".into()];
        let config = dir.file("config", b"");
        let files = collect(&config, &|_| names.to_vec());
        for (path, why) in names.iter().zip(["not a file", "longer than", "not a file", "not a file"]) {
            let said = files.get(path).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn all_files_together_are_bounded() {
        let dir = Directory::new("bounds");
        let names: Vec<PathBuf> = (0..6).map(|i| dir.0.join(i.to_string())).collect();
        names.iter().for_each(|name| File::create(name).unwrap().set_len(FILE_MOST).unwrap());
        let files = collect(&dir.file("config", b""), &|_| names.clone());
        let read = names.iter().filter(|name| files.get(name).is_ok()).count();
        assert_eq!(read, 3);
        assert!(files.get(&names[5]).unwrap_err().contains("more than"));
    }

    #[test]
    fn a_way_that_the_user_can_change_is_not_gone_with_more_rights_than_its_own() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let user = User { uid: 12_345, groups: vec![12_345] };
        let dir = Directory::new("ways");
        let secret = dir.file("secret", b"root's");
        assert!(user.cannot_redirect(&secret).unwrap());
        assert!(
            user.cannot_redirect(&dir.0.join("../").join(dir.0.file_name().unwrap()).join("secret")).unwrap()
        );
        let theirs = dir.0.join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::chown(&theirs, Some(12_345), Some(12_345)).unwrap();
        std::fs::write(theirs.join("file"), b"").unwrap();
        symlink(&secret, theirs.join("link")).unwrap();
        symlink(theirs.join("link"), dir.0.join("to-theirs")).unwrap();
        symlink(&secret, dir.0.join("to-root-s")).unwrap();
        symlink("loop", dir.0.join("loop")).unwrap();
        assert!(!user.cannot_redirect(&theirs.join("file")).unwrap(), "its directory");
        assert!(!user.cannot_redirect(&theirs.join("link")).unwrap(), "its link");
        assert!(!user.cannot_redirect(&dir.0.join("to-theirs")).unwrap(), "root's link to its link");
        assert!(user.cannot_redirect(&dir.0.join("to-root-s")).unwrap(), "root's link to root's file");
        assert!(user.cannot_redirect(&dir.0.join("loop")).is_err());
        std::os::unix::fs::chown(&theirs, Some(0), Some(12_345)).unwrap();
        std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o775)).unwrap();
        assert!(!user.cannot_redirect(&theirs.join("file")).unwrap(), "its group's directory");
        std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(user.cannot_redirect(&theirs.join("file")).unwrap());
    }
}
