//! The `dormoused` of a connection: its process and its control socket. Owns both; must never leave the process behind.

use crate::config::{self, Places};
use crate::credentials;
use crate::message::Input;
use crate::profile::Profile;
use anyhow::{Context, Result, bail};
use dormouse_control::{
    ConnectionState, Error, ErrorKind, MAX_LINE, Reply, Request, Response, Status, Verb, line,
};
use dormouse_io::clock::BootClock;
use dormouse_io::ownership::Changing;
use nix::unistd::User;
use std::fs::DirBuilder;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Where the daemon's program is, from this one's directory; and whom it becomes (`daemon.user`).
const PROGRAM: &str = "../bin/dormoused";
const USER: &str = "dormouse";
/// A directory for each connection: in memory, of root; and on disk, of the daemon's user.
const RUN: &str = "/run/dormouse-nm";
const STATE: &str = "/var/lib/dormouse-nm";

/// A daemon that does not answer in this time hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at something that another process does.
const AGAIN: Duration = Duration::from_millis(50);

/// A connection to the control socket.
struct Control(BufReader<UnixStream>);

impl Control {
    fn open(socket: &Path) -> io::Result<Self> {
        UnixStream::connect(socket).map(|stream| Self(BufReader::new(stream)))
    }

    fn ask(&mut self, verb: Verb, patience: Option<Duration>) -> Result<Reply, Error> {
        let lost = |e: io::Error| Error::new(ErrorKind::NoDaemon, format!("the daemon does not answer: {e}"));
        self.0.get_ref().set_read_timeout(patience).map_err(lost)?;
        self.0.get_mut().write_all(line(&Request::new(verb))?.as_bytes()).map_err(lost)?;
        self.next()
    }

    fn next(&mut self) -> Result<Reply, Error> {
        let (mut text, limit) = (Vec::new(), u64::try_from(MAX_LINE).unwrap_or(u64::MAX));
        let lost =
            |what: &str| Error::new(ErrorKind::NoDaemon, format!("the daemon does not answer: {what}"));
        match self.0.by_ref().take(limit).read_until(b'\n', &mut text) {
            Ok(0) => Err(lost("it is gone")),
            Ok(_) => Response::parse(&text),
            Err(e) => Err(lost(&e.to_string())),
        }
    }
}

/// One that runs.
pub(crate) struct Daemon {
    child: Arc<Mutex<Child>>,
    places: Places,
    /// While it is held, no other plug-in changes what is in [`Places::run`].
    _turn: Changing,
}

impl Daemon {
    /// Starts the daemon of a connection; `told` learns how it fares.
    ///
    /// # Errors
    /// What is missing on this machine, or the file that cannot be read.
    pub(crate) fn start(profile: &Profile, password: Option<&str>, told: &Sender<Input>) -> Result<Self> {
        let run = Path::new(RUN).join(&profile.uuid);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&run)
            .with_context(|| run.display().to_string())?;
        // The plug-in of before may be about to end; one that was killed has left its daemon.
        let turn = Changing::wait(&run).with_context(|| run.display().to_string())?;
        end_orphan(&run.join(config::SOCKET))?;
        let places = Places { state: state(&profile.uuid)?, ports: free_ports()?, run };
        let id = credentials::copy(profile, password, &places.run)?;
        let file = places.run.join(config::CONFIGURATION);
        credentials::write(
            &places.run,
            config::CONFIGURATION,
            config::text(profile, &id, &places).as_bytes(),
        )?;
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        let child = Command::new(&program).arg("--config").arg(&file).spawn();
        let child = Arc::new(Mutex::new(child.with_context(|| program.display().to_string())?));
        let daemon = Self { child: Arc::clone(&child), places, _turn: turn };
        let (socket, told) = (daemon.socket(), told.clone());
        thread::Builder::new().name("events".into()).spawn(move || follow(&child, &socket, &told))?;
        Ok(daemon)
    }

    fn socket(&self) -> PathBuf {
        self.places.run.join(config::SOCKET)
    }

    /// Has the session come up; `told` learns whether it does.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub(crate) fn up(&self, told: &Sender<Input>) -> Result<()> {
        // It has read them, and what is secret need not lie about.
        credentials::clear(&self.places.run, &[config::SOCKET]);
        let mut control = Control::open(&self.socket())?;
        control.ask(Verb::Up { connection: None }, Some(PATIENCE))?;
        let told = told.clone();
        let wait = move || {
            let verb = Verb::Wait { connection: None, state: ConnectionState::Up, timeout_seconds: None };
            let came = control.ask(verb, None);
            let _ = told.send(Input::Came(came.map(drop)));
        };
        thread::Builder::new().name("wait".into()).spawn(wait).map(drop)?;
        Ok(())
    }

    /// # Errors
    /// If the daemon does not answer.
    pub(crate) fn status(&self) -> Result<Status> {
        match Control::open(&self.socket())?.ask(Verb::Status, Some(PATIENCE))? {
            Reply::Status(status) => Ok(*status),
            other => bail!("no status, but {other:?}"),
        }
    }

    /// Ends it. A session that is `finished` leaves no ticket; otherwise the next one comes back by it.
    pub(crate) fn stop(self, finished: bool) {
        let ask = || -> Result<()> {
            let mut control = Control::open(&self.socket())?;
            if finished {
                control.ask(Verb::Down { connection: None, peer: None }, Some(PATIENCE))?;
            }
            control.ask(Verb::Shutdown, Some(PATIENCE))?;
            Ok(())
        };
        let asked = ask();
        let began = BootClock::now();
        while asked.is_ok() && BootClock::now() - began < PATIENCE {
            if ended(&self.child).is_some() {
                break;
            }
            thread::sleep(AGAIN);
        }
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(child.try_wait(), Ok(None)) {
            tracing::warn!("the daemon does not end, and is killed");
            let _ = child.kill();
            let _ = child.wait();
        }
        credentials::clear(&self.places.run, &[]);
    }
}

/// How it ended, if it did.
fn ended(child: &Mutex<Child>) -> Option<String> {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    child.try_wait().ok().flatten().map(|status| status.to_string())
}

/// Waits for the daemon, and then for what it says, until it is gone.
fn follow(child: &Mutex<Child>, socket: &Path, told: &Sender<Input>) {
    let mut watching = None;
    while watching.is_none() {
        if let Some(how) = ended(child) {
            let _ = told.send(Input::Ended(how));
            return;
        }
        thread::sleep(AGAIN);
        watching = Control::open(socket).ok();
    }
    let Some(mut control) = watching else { return };
    // The first answer is an event already: what stands as the watch begins.
    let mut answer = control.ask(Verb::Watch, None);
    let _ = told.send(Input::Ready);
    while let Ok(Reply::Event(event)) = answer {
        let _ = told.send(Input::Event(event.kind));
        answer = control.next();
    }
    let how = loop {
        match ended(child) {
            Some(how) => break how,
            None => thread::sleep(AGAIN),
        }
    };
    let _ = told.send(Input::Ended(how));
}

/// A daemon whose plug-in was killed still has its tunnel, and the state directory.
fn end_orphan(socket: &Path) -> Result<()> {
    let Ok(mut control) = Control::open(socket) else { return Ok(()) };
    tracing::info!("a daemon of before is ended");
    control.ask(Verb::Shutdown, Some(PATIENCE)).context("a daemon of before")?;
    let began = BootClock::now();
    while Control::open(socket).is_ok() {
        if BootClock::now() - began > PATIENCE {
            bail!("a daemon of before does not end");
        }
        thread::sleep(AGAIN);
    }
    Ok(())
}

/// Makes the directory for what outlives the daemon, in the name of its user: NetworkManager's unit lets nothing give files away.
fn state(uuid: &str) -> Result<PathBuf> {
    let directory = Path::new(STATE).join(uuid);
    let user = User::from_name(USER)?
        .with_context(|| format!("there is no user {USER}; install the package dormouse"))?;
    if std::fs::symlink_metadata(&directory)
        .is_ok_and(|meta| meta.uid() == user.uid.as_raw() && meta.is_dir())
    {
        return Ok(directory);
    }
    let made = Command::new("mkdir")
        .args(["-m", "700", "--"])
        .arg(&directory)
        .uid(user.uid.as_raw())
        .gid(user.gid.as_raw())
        .status()
        .context("mkdir")?;
    if !made.success() {
        bail!("{STATE} must be there and belong to {USER}; run: systemd-tmpfiles --create dormouse-nm.conf");
    }
    Ok(directory)
}

/// Two UDP ports that nothing has: 500 and 4500 may be another daemon's.
fn free_ports() -> Result<[u16; 2]> {
    let any = || {
        let both = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
        both.or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
    };
    let (first, second) = (any()?, any()?);
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}
