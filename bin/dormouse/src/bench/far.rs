//! `dormouse bench --serve` and `--peer`: two machines. Owns the way of the secret from one to the other, which is never in a
//! command line, where everybody on the machine could read it.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use dormouse_lab::bench::{Peer, Service};

const VARIABLE: &str = "DORMOUSE_BENCH_SECRET";
/// Bytes of a secret's file, at most.
const MOST: u64 = 1_024;

/// Serves until it is interrupted. The secret goes to standard output, or into a file that was not there before.
///
/// # Errors
/// Without privileges, without the port, or if the file cannot be made.
pub(super) fn serve(address: &str, file: Option<&Path>, interrupted: &AtomicBool) -> Result<()> {
    let service = Service::open(address)?;
    let address = service.address()?;
    let kept = file.map(|path| SecretFile::new(path, &service.secret())).transpose()?;
    match &kept {
        Some(kept) => eprintln!("secret in {}, until this ends", kept.0.display()),
        None => println!("secret: {}", service.secret()),
    }
    let from_there = if address.ip().is_unspecified() {
        format!("ADDRESS:{}", address.port())
    } else {
        address.to_string()
    };
    eprintln!("serving at {address}; on the device: dormouse bench --peer {from_there} --secret FILE");
    service.run(interrupted, &mut |event| eprintln!("{event}"))
}

/// Connects to the far machine, with the secret out of `file`, of standard input, or of the environment.
///
/// # Errors
/// Without a secret, and as [`Peer::connect`].
pub(super) fn connect(address: &str, file: Option<&Path>) -> Result<Peer> {
    let mut text = String::new();
    match file {
        Some(path) if path == Path::new("-") => {
            std::io::stdin().lock().take(MOST).read_to_string(&mut text).context("standard input")?;
        }
        Some(path) => {
            let file = std::fs::File::open(path);
            let read = file.and_then(|file| file.take(MOST).read_to_string(&mut text));
            read.with_context(|| path.display().to_string())?;
        }
        None => {
            text = std::env::var(VARIABLE).with_context(|| {
                format!("--peer needs the secret that --serve printed: --secret FILE, or in {VARIABLE}")
            })?;
        }
    }
    Peer::connect(address, text.trim().trim_start_matches("secret:"))
}

/// A file that only its owner reads; gone when dropped.
struct SecretFile(PathBuf);

impl SecretFile {
    fn new(path: &Path, secret: &str) -> Result<Self> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = made.with_context(|| path.display().to_string())?;
        let kept = Self(path.to_owned());
        writeln!(file, "{secret}").with_context(|| path.display().to_string())?;
        Ok(kept)
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        // Of a service that has ended it is worth nothing.
        let _ = std::fs::remove_file(&self.0);
    }
}
