//! What only the person at the device knows: the passphrase of a key, or a password. Owns how it comes in: from a file, or from the terminal, which
//! does not show it. Must never write it anywhere.

use super::{place, wrong};
use dormouse_control::{Error, ErrorKind};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Longest that is taken, in bytes.
const LONGEST: usize = 1024;

/// Where it comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The first line of a file.
    File(PathBuf),
    /// The terminal.
    Terminal,
}

impl Source {
    /// Asks for `what`.
    ///
    /// # Errors
    /// If there is neither.
    pub(crate) fn ask(&self, what: &str) -> Result<Zeroizing<String>, Error> {
        match self {
            Self::File(path) => from_file(path),
            Self::Terminal => from_terminal(what).map_err(|e| {
                let message = format!("{what} is needed, and it cannot be asked for at a terminal: {e}");
                Error::new(ErrorKind::Other, message).with_change("--passphrase-file FILE")
            }),
        }
    }
}

fn from_file(path: &Path) -> Result<Zeroizing<String>, Error> {
    let content = place::demand(path, place::read(path)?, "a file whose first line is the passphrase")?;
    let line = content.as_bytes().split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match str::from_utf8(line) {
        Ok(line) if !line.is_empty() && line.len() <= LONGEST => Ok(Zeroizing::new(line.to_owned())),
        _ => Err(wrong(format!("{}: its first line is no passphrase", path.display()))),
    }
}

/// The terminal as it was, when this is dropped.
struct Silent<'a>(&'a File, rustix::termios::Termios);

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.0, OptionalActions::Flush, &self.1);
    }
}

fn from_terminal(what: &str) -> std::io::Result<Zeroizing<String>> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    write!(terminal, "{what}: ")?;
    let output = terminal.try_clone()?;
    let before = tcgetattr(&output)?;
    let mut silent = before.clone();
    // Keys that would end the program come as characters: it must not end while the terminal is silent.
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
    tcsetattr(&output, OptionalActions::Flush, &silent)?;
    let silent = Silent(&output, before);
    let mut line = Zeroizing::new(Vec::with_capacity(LONGEST));
    let mut byte = [0];
    while line.len() < LONGEST && terminal.read(&mut byte)? == 1 && byte != *b"\n" {
        if matches!(byte, [3 | 28]) {
            drop(silent);
            return Err(std::io::Error::other("interrupted"));
        }
        line.extend(byte);
    }
    drop(silent);
    writeln!(terminal)?;
    match str::from_utf8(&line) {
        Ok(line) => Ok(Zeroizing::new(line.to_owned())),
        Err(_) => Err(std::io::Error::other("not UTF-8")),
    }
}
