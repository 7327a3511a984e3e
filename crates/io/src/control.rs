//! The control socket: a Unix stream socket with one line for each request and each answer.
//!
//! Owns the listener, its clients and their buffers; knows nothing of what the lines say. The whole server is one file
//! descriptor for the daemon's loop: an epoll set of its own inside. Everything is bounded: clients, the length of a request,
//! and what a client may leave unread.

use crate::poller::{Interest, Poller, Ready};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Clients at once.
pub const MAX_CLIENTS: usize = 64;
/// Longest request, in bytes, line break included.
pub const MAX_REQUEST: usize = 4096;
/// What a client may leave unread before it is cut off, in bytes. One answer may be longer.
pub const MAX_UNREAD: usize = 1 << 20;

const LISTENER: u64 = 0;

/// Why the socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A daemon is listening there.
    #[error("{}: another dormoused listens there already{}; stop it, or set {key} to another path", path.display(), by(*pid))]
    InUse {
        /// The path.
        path: PathBuf,
        /// The key of the configuration that names it.
        key: &'static str,
        /// The other daemon's process id, if it is known.
        pid: Option<i32>,
    },
    /// Something that is not a socket is there.
    #[error("{}: there is something that is not a socket; set {key} to another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
        /// The key of the configuration that names it.
        key: &'static str,
    },
    /// The group does not exist.
    #[error("group '{group}' does not exist; create it, or change {key}")]
    NoGroup {
        /// The key of the configuration that names it.
        key: &'static str,
        /// Its name.
        group: String,
    },
    /// A system call failed.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

fn by(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// One client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientId(u64);

/// Who is at the other end, as the kernel saw it connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// User.
    pub uid: u32,
    /// Process.
    pub pid: i32,
}

/// What came in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlEvent {
    /// A request.
    Request {
        /// From whom.
        client: ClientId,
        /// The line, without its end.
        line: Vec<u8>,
    },
    /// A client is gone; its id does not come again.
    Gone {
        /// Which.
        client: ClientId,
    },
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    peer: Peer,
    input: Vec<u8>,
    output: VecDeque<u8>,
    /// What it sent is no longer read: it said all it has to say, but may wait for answers.
    finished: bool,
    interest: Interest,
}

/// The server. Register it with the [`Poller`] for reading and call [`ControlServer::next`] until it returns `None`.
/// The socket file is removed when it is dropped.
#[derive(Debug)]
pub struct ControlServer {
    listener: UnixListener,
    poller: Poller,
    clients: BTreeMap<u64, Client>,
    last: u64,
    events: VecDeque<ControlEvent>,
    ready: Vec<Ready>,
    path: PathBuf,
    /// A group may connect; otherwise only root and our own user.
    shared: bool,
    /// A descriptor in reserve: to accept and turn away a client when descriptors run out.
    reserve: Option<File>,
}

impl ControlServer {
    /// Listens at `path`, with mode 0660 and `group`, or 0600 without. What a crashed daemon left there is removed.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, Error> {
        let fail =
            |doing: &'static str| move |source: io::Error| Error::Io { path: path.into(), doing, source };
        let listener = open(path, group, ("daemon.socket", "daemon.group"))?;
        let poller = Poller::new().map_err(fail("watch"))?;
        poller.add(&listener, LISTENER, Interest::READ).map_err(fail("watch"))?;
        Ok(Self {
            listener,
            poller,
            clients: BTreeMap::new(),
            last: LISTENER,
            events: VecDeque::new(),
            ready: Vec::new(),
            path: path.into(),
            shared: group.is_some(),
            reserve: File::open("/dev/null").ok(),
        })
    }

    /// The next thing that came in. Never waits.
    #[expect(clippy::should_implement_trait, reason = "the convention of the I/O parts: `next` never blocks")]
    pub fn next(&mut self) -> Option<ControlEvent> {
        if self.events.is_empty() {
            let mut ready = std::mem::take(&mut self.ready);
            if let Err(error) = self.poller.wait(&mut ready, Some(Duration::ZERO)) {
                tracing::error!(%error, "control socket");
            }
            for one in &ready {
                if one.token == LISTENER {
                    self.accept();
                } else {
                    self.serve(one);
                }
            }
            self.ready = ready;
        }
        self.events.pop_front()
    }

    /// Sends a line, which must end with a line break, as soon as the client takes it. A client that has left too much unread is cut
    /// off; one that is gone is no error.
    pub fn send(&mut self, client: ClientId, line: &[u8]) {
        let Some(it) = self.clients.get_mut(&client.0) else { return };
        if it.output.len() > MAX_UNREAD {
            tracing::warn!(uid = it.peer.uid, pid = it.peer.pid, "a control client does not read; cut off");
            self.drop_client(client.0);
            return;
        }
        it.output.extend(line);
        self.flush(client.0);
    }

    /// Who the client is.
    #[must_use]
    pub fn peer(&self, client: ClientId) -> Option<Peer> {
        self.clients.get(&client.0).map(|c| c.peer)
    }

    /// Cuts a client off, after what was sent to it.
    pub fn close(&mut self, client: ClientId) {
        if let Some(it) = self.clients.get_mut(&client.0) {
            it.finished = true;
            self.flush(client.0);
        }
    }

    /// Clients at the moment.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e)
                    if e.kind() == io::ErrorKind::Interrupted
                        || e.kind() == io::ErrorKind::ConnectionAborted =>
                {
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "a control client is turned away");
                    // The listener would be ready for ever: give the client the descriptor in reserve, and close it.
                    self.reserve = None;
                    drop(self.listener.accept());
                    self.reserve = File::open("/dev/null").ok();
                    return;
                }
            };
            if let Err(why) = self.admit(stream) {
                tracing::warn!(%why, "a control client is turned away");
            }
        }
    }

    fn admit(&mut self, stream: UnixStream) -> io::Result<()> {
        let credentials = getsockopt(&stream, PeerCredentials)?;
        let peer = Peer { uid: credentials.uid(), pid: credentials.pid() };
        // With a group, the file's mode has already decided.
        if !self.shared && peer.uid != 0 && peer.uid != nix::unistd::geteuid().as_raw() {
            return Err(io::Error::other(format!("user {} (process {}) may not", peer.uid, peer.pid)));
        }
        if self.clients.len() >= MAX_CLIENTS {
            return Err(io::Error::other(format!("{MAX_CLIENTS} are there already")));
        }
        stream.set_nonblocking(true)?;
        self.last += 1;
        self.poller.add(&stream, self.last, Interest::READ)?;
        let client = Client {
            stream,
            peer,
            input: Vec::new(),
            output: VecDeque::new(),
            finished: false,
            interest: Interest::READ,
        };
        self.clients.insert(self.last, client);
        Ok(())
    }

    fn serve(&mut self, ready: &Ready) {
        if ready.writable {
            self.flush(ready.token);
        }
        if ready.readable {
            self.read(ready.token, ready.closed);
        }
    }

    /// Reads what is there. `gone`: the client listens no longer either, so the end of its requests is the end of it.
    fn read(&mut self, token: u64, gone: bool) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let mut chunk = [0; MAX_REQUEST];
        match client.stream.read(&mut chunk) {
            Ok(0) if gone => return self.drop_client(token),
            // The end of its requests; it still waits for an answer.
            Ok(0) => {
                client.finished = true;
                self.flush(token);
                return;
            }
            Ok(n) => client.input.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => return self.drop_client(token),
        }
        while let Some(end) = client.input.iter().position(|b| *b == b'\n') {
            let mut line: Vec<u8> = client.input.drain(..=end).collect();
            line.pop();
            if !line.is_empty() {
                self.events.push_back(ControlEvent::Request { client: ClientId(token), line });
            }
        }
        if client.input.len() >= MAX_REQUEST {
            tracing::warn!(
                uid = client.peer.uid,
                pid = client.peer.pid,
                "a control request is too long; cut off"
            );
            self.drop_client(token);
        }
    }

    /// Writes what the client takes, and watches it for what is needed next.
    fn flush(&mut self, token: u64) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        while !client.output.is_empty() {
            match client.stream.write(client.output.as_slices().0) {
                Ok(n) => {
                    client.output.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.drop_client(token),
            }
        }
        // While answers lie unread, no more requests are taken. A client that has finished is watched for its going.
        let interest = match (client.output.is_empty(), client.finished) {
            (false, _) => Interest::WRITE,
            (true, false) => Interest::READ,
            (true, true) => Interest::NONE,
        };
        if interest != client.interest {
            client.interest = interest;
            if self.poller.modify(&client.stream, token, interest).is_err() {
                self.drop_client(token);
            }
        }
    }

    fn drop_client(&mut self, token: u64) {
        if self.clients.remove(&token).is_some() {
            self.events.push_back(ControlEvent::Gone { client: ClientId(token) });
        }
    }
}

/// Listens at `path`, with mode 0660 and `group`, or 0600 without, and never waits. What a crashed daemon left there is removed. `keys`: of the
/// configuration, for the path and the group.
pub(crate) fn open(
    path: &Path,
    group: Option<&str>,
    keys: (&'static str, &'static str),
) -> Result<UnixListener, Error> {
    let fail = |doing: &'static str| move |source: io::Error| Error::Io { path: path.into(), doing, source };
    let gid = match group {
        None => None,
        Some(name) => match nix::unistd::Group::from_name(name) {
            Ok(Some(group)) => Some(group.gid.as_raw()),
            _ => return Err(Error::NoGroup { key: keys.1, group: name.into() }),
        },
    };
    if let Some(directory) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(fail("create its directory"))?;
    }
    clear_stale(path, keys.0)?;
    let listener = listen(path).map_err(fail("listen"))?;
    let mode = if let Some(gid) = gid {
        std::os::unix::fs::chown(path, None, Some(gid)).map_err(fail("change its group"))?;
        0o660
    } else {
        0o600
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(fail("change its mode"))?;
    listener.set_nonblocking(true).map_err(fail("listen"))?;
    Ok(listener)
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file gets the permissions of the socket (less the umask): it is never open to more people than meant, not even
    // for a moment.
    fchmod(&socket, Mode::from_bits_truncate(0o600))?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(i32::try_from(MAX_CLIENTS).unwrap_or(i32::MAX))?;
    Ok(UnixListener::from(std::os::fd::OwnedFd::from(socket)))
}

/// Removes a socket without a listener.
fn clear_stale(path: &Path, key: &'static str) -> Result<(), Error> {
    let fail = |doing: &'static str| move |source: io::Error| Error::Io { path: path.into(), doing, source };
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(fail("look at it")(e)),
    };
    if !meta.file_type().is_socket() {
        return Err(Error::NotASocket { path: path.into(), key });
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let pid = getsockopt(&stream, PeerCredentials).ok().map(|c| c.pid());
            Err(Error::InUse { path: path.into(), key, pid })
        }
        Err(e) if e.raw_os_error() == Some(Errno::ECONNREFUSED as i32) => {
            std::fs::remove_file(path).map_err(fail("remove what a crashed daemon left"))
        }
        Err(e) => Err(fail("see whether a daemon listens")(e)),
    }
}

crate::as_fd!(ControlServer, poller);

impl Drop for ControlServer {
    fn drop(&mut self) {
        // Fails if the directory belongs to root and we no longer are: the next start removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}
