//! The client's end of the control socket. Owns the connection; the words are those of `dormouse-control`.

use dormouse_control::{Error, ErrorKind, MAX_LINE, MAX_REQUEST, Reply, Request, Response, Verb, line};
use dormouse_io::clock::BootClock;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A daemon that has not answered after so long hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// After so long a daemon that is not there yet is looked for again.
const AGAIN: Duration = Duration::from_millis(100);

/// A connection to the daemon.
#[derive(Debug)]
pub(crate) struct Client {
    reader: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`ErrorKind::NoDaemon`] or [`ErrorKind::Permission`], each with what to do about it.
    pub(crate) fn connect(path: &Path) -> Result<Self, Error> {
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Self { reader: BufReader::new(stream), path: path.into() }),
            Err(e) => Err(explain(path, &e)),
        }
    }

    /// Connects, and waits for a daemon that is only starting: for so long at most, and what is left of that is returned; `None`: for ever.
    ///
    /// # Errors
    /// As [`Self::connect`]. That no daemon answers, only when the time is over.
    pub(crate) fn await_daemon(path: &Path, timeout: Option<f64>) -> Result<(Self, Option<f64>), Error> {
        let began = BootClock::now();
        loop {
            let spent = (BootClock::now() - began).as_secs_f64();
            match Self::connect(path) {
                Err(e) if e.kind == ErrorKind::NoDaemon && timeout.is_none_or(|t| spent < t) => {
                    std::thread::sleep(AGAIN);
                }
                client => return Ok((client?, timeout.map(|t| (t - spent).max(0.0)))),
            }
        }
    }

    /// Asks and waits for the answer: the line as it came, and what it says.
    ///
    /// # Errors
    /// What the daemon reports, or that it does not answer.
    pub(crate) fn ask(&mut self, verb: Verb) -> Result<(String, Reply), Error> {
        // The daemon itself says when a wait is over.
        let patience = match &verb {
            Verb::Wait { timeout_seconds: None, .. } => None,
            Verb::Wait { timeout_seconds: Some(t), .. } | Verb::HipUp { timeout_seconds: Some(t), .. } => {
                Some(PATIENCE + Duration::try_from_secs_f64(*t).unwrap_or(Duration::MAX / 2))
            }
            // Clients have their time, sleepers half a minute more.
            Verb::Drain { within_seconds } => {
                Some(PATIENCE * 2 + Duration::from_secs(30) + Duration::from_secs((*within_seconds).into()))
            }
            // It reads every file that is configured.
            Verb::Reload => Some(PATIENCE * 6),
            _ => Some(PATIENCE),
        };
        self.send(verb)?;
        self.next(patience)
    }

    /// Sends a request without waiting for an answer.
    ///
    /// # Errors
    /// If the daemon is gone, or would not take a request of this length.
    pub(crate) fn send(&mut self, verb: Verb) -> Result<(), Error> {
        let text = line(&Request::new(verb))?;
        if text.len() > MAX_REQUEST {
            let message =
                format!("the daemon takes requests of at most {MAX_REQUEST} bytes, this has {}", text.len());
            return Err(Error::new(ErrorKind::Request, message).with_change("shorten what is given"));
        }
        self.reader.get_mut().write_all(text.as_bytes()).map_err(|e| self.lost(&e))
    }

    /// The next line, waited for so long at most.
    ///
    /// # Errors
    /// What the daemon reports, or that it is gone or hangs.
    pub(crate) fn next(&mut self, patience: Option<Duration>) -> Result<(String, Reply), Error> {
        self.reader.get_ref().set_read_timeout(patience).map_err(|e| self.lost(&e))?;
        let mut text = String::new();
        let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        let read = (&mut self.reader).take(limit).read_line(&mut text);
        match read {
            Ok(0) => Err(self.lost(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Response::parse(text.as_bytes()).map(|reply| (text, reply)),
            Err(e) => Err(self.lost(&e)),
        }
    }

    fn lost(&self, error: &io::Error) -> Error {
        let path = self.path.display();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Error::new(ErrorKind::Timeout, format!("the daemon at {path} does not answer"))
                    .with_change("systemctl status dormoused")
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                Error::new(ErrorKind::NoDaemon, format!("the daemon at {path} is gone"))
            }
            _ => Error::new(ErrorKind::Other, format!("{path}: {error}")),
        }
    }
}

fn explain(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Error::new(ErrorKind::NoDaemon, format!("no daemon answers at {shown}"))
                .with_change("systemctl start dormoused, or --socket PATH if it listens elsewhere")
        }
        io::ErrorKind::PermissionDenied => {
            let error = Error::new(ErrorKind::Permission, format!("you may not use {shown}{}", owner(path)));
            error.with_change(
                "run it as root, or set daemon.group in /etc/dormouse/dormouse.toml to a group of yours and restart the daemon",
            )
        }
        _ => Error::new(ErrorKind::Other, format!("{shown}: {error}")),
    }
}

/// Who may use the socket, as far as it can be seen.
fn owner(path: &Path) -> String {
    std::fs::metadata(path).map_or_else(
        |_| String::new(),
        |meta| {
            let mode = meta.permissions().mode() & 0o777;
            format!(" (user {}, group {}, mode {mode:04o})", meta.uid(), meta.gid())
        },
    )
}
