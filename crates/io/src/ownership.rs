//! What there is once: the tunnel's share of a network namespace, and a state directory. Owns the locks that keep two daemons from
//! destroying each other's, and the words that name the owner.
//!
//! Table, policy rules, mark and block have fixed names, so a network namespace has room for one daemon. Its lock is a Unix socket with an
//! abstract name, which exists once in each network namespace and ends with its process, however that ends.

use crate::state;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

/// The name of the network namespace's lock, as `ss -xl` shows it behind an `@`.
const NAME: &str = "dormoused";
/// The file that is locked in a state directory; it holds its owner's process id.
const FILE: &str = "lock";

/// Why something could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network namespace has a daemon.
    #[error(
        "another dormoused{} has the tunnels of this network namespace, and the two would destroy each other's routes, policy rules and block; \
         put both configurations' connections into one daemon, stop the other, or start this one in a network namespace of its own",
        by(*pid)
    )]
    Namespace {
        /// The owner, if it can be seen from here.
        pid: Option<i32>,
    },
    /// The state directory has a daemon.
    #[error("{}: another dormoused{} keeps its state there; stop it, or set daemon.state_dir to another directory", path.display(), by(*pid))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The owner, if it has said so.
        pid: Option<i32>,
    },
    /// The file that is locked is no file of a daemon's.
    #[error(transparent)]
    File(#[from] state::Error),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was to be locked.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

fn by(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// A network namespace that is ours until this is dropped.
#[derive(Debug)]
pub struct Namespace {
    /// `None` where a stranger holds the name.
    _listener: Option<UnixListener>,
}

impl Namespace {
    /// Takes the namespace of the calling thread, as root.
    ///
    /// The name is free for anyone, so a program that did not start as root may hold it. That one cannot be a daemon and does not keep
    /// one from starting; it is named in the log.
    ///
    /// # Errors
    /// [`Error::Namespace`] if another daemon has it; the kernel's.
    pub fn take() -> Result<Self, Error> {
        let fail = |source| Error::Io { what: format!("the lock @{NAME} of the network namespace"), source };
        let name = SocketAddr::from_abstract_name(NAME).map_err(fail)?;
        match UnixListener::bind_addr(&name) {
            Ok(listener) => return Ok(Self { _listener: Some(listener) }),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            Err(e) => return Err(fail(e)),
        }
        match owner() {
            Some((pid, uid)) if uid != 0 => {
                tracing::warn!(
                    pid,
                    uid,
                    "a program that is no daemon holds the name @{NAME}: a second daemon would not be noticed"
                );
                Ok(Self { _listener: None })
            }
            owner => Err(Error::Namespace { pid: owner.map(|(pid, _)| pid).filter(|pid| *pid > 0) }),
        }
    }

    /// The daemon that has the namespace of the calling thread, by its process id.
    #[must_use]
    pub fn owner() -> Option<i32> {
        owner().filter(|(_, uid)| *uid == 0).map(|(pid, _)| pid)
    }
}

/// Process and user of the one that holds the name. Never waits.
fn owner() -> Option<(i32, u32)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).ok()?;
    socket.connect(&SockAddr::unix(format!("\0{NAME}")).ok()?).ok()?;
    let peer = getsockopt(&socket, PeerCredentials).ok()?;
    Some((peer.pid(), peer.uid()))
}

/// A directory that is ours until this is dropped.
#[derive(Debug)]
pub struct Directory {
    _file: Flock<File>,
}

impl Directory {
    /// Takes the state directory `path`, which is there.
    ///
    /// # Errors
    /// [`Error::Directory`] if another daemon has it; the system's, naming the file, which must not be a link.
    pub fn take(path: &Path) -> Result<Self, Error> {
        let name = path.join(FILE);
        let fail = |source| Error::Io { what: name.display().to_string(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        match Flock::lock(state::open_here(&name, &mut options)?, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                let written = file.set_len(0).and_then(|()| file.rewind());
                written.and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
                Ok(Self { _file: file })
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                Err(Error::Directory { path: path.into(), pid })
            }
            Err((_, e)) => Err(fail(e.into())),
        }
    }
}

/// Nobody else who asks changes what is in a directory, until it is dropped or its process ends.
#[derive(Debug)]
pub struct Changing(#[expect(dead_code, reason = "the lock ends with it")] Flock<File>);

impl Changing {
    /// Waits until nobody else does.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn wait(directory: &Path) -> io::Result<Self> {
        let lock = Flock::lock(File::open(directory)?, FlockArg::LockExclusive);
        lock.map(Self).map_err(|(_, e)| e.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_who_is_named_and_leaves_it_with_its_end() {
        let path = std::env::temp_dir().join(format!("dormouse-owner-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let first = Directory::take(&path).unwrap();
        let refused = Directory::take(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(refused.contains("daemon.state_dir"), "{refused}");
        drop(first);
        Directory::take(&path).unwrap();
        // The daemon's user may put a link in its place, which root must not follow.
        type Link = fn(PathBuf, PathBuf) -> io::Result<()>;
        for link in [std::os::unix::fs::symlink as Link, std::fs::hard_link as Link] {
            std::fs::write(path.join("precious"), "content").unwrap();
            std::fs::remove_file(path.join(FILE)).unwrap();
            link(path.join("precious"), path.join(FILE)).unwrap();
            let refused = Directory::take(&path).unwrap_err().to_string();
            assert!(refused.contains("link"), "{refused}");
            assert_eq!(std::fs::read_to_string(path.join("precious")).unwrap(), "content");
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
}
