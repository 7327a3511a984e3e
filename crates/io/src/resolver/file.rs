//! `/etc/resolv.conf` itself, for machines where nothing manages it.
//!
//! The file as it was travels inside the new one, as comments: there is no second file that could be lost, left behind or
//! mixed up between namespaces, and any later run can restore after a crash. If another program rewrites the file meanwhile, our
//! marks are gone with it, and it is left alone.
//!
//! ```text
//! # dormouse0: name servers of the VPN. Lines after "#|" are this file as it was; they come back when the tunnel goes down.
//! #dormouse: file 644
//! nameserver 10.9.0.1
//! #|nameserver 192.168.1.1
//! ```
//!
//! The new file is moved into place in one step where that is possible, and otherwise (a bind mount, a read-only directory)
//! written by a single call.

use super::Settings;
use crate::state::write_atomically;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const MARK: &str = "#dormouse: ";
/// A line of the original; one that had no line break at the end.
const LINE: &str = "#|";
const LAST: &str = "#!";
/// The C library reads three servers and no more.
const MAX_SERVERS: usize = 3;
/// Longest file that is read, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Why the file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct Error {
    /// Which file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// What the file was.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Original {
    /// There was none.
    Absent,
    /// A symbolic link, and what it pointed to.
    Link(PathBuf),
    /// A file with these permission bits and this content.
    File(u32, Vec<u8>),
}

/// One `resolv.conf`.
#[derive(Clone, Debug)]
pub struct ResolvConf {
    path: PathBuf,
}

impl ResolvConf {
    /// The one at `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// Installs the name servers of `settings`.
    ///
    /// # Errors
    /// Naming the file; it is unchanged then, unless the write itself was cut short.
    pub fn set(&self, settings: &Settings) -> Result<(), Error> {
        let original = self.original()?;
        let before = match &original {
            Original::File(_, content) => content.clone(),
            // What the link leads to is still what programs read now.
            Original::Link(_) | Original::Absent => self.read_through()?.unwrap_or_default(),
        };
        let before = if parse(&before).is_some() { Vec::new() } else { before };
        let text = compose(settings, &original, &String::from_utf8_lossy(&before));
        self.replace(text.as_bytes(), 0o644)
    }

    /// Puts the original back. True if there was something to put back.
    ///
    /// # Errors
    /// Naming the file.
    pub fn restore(&self) -> Result<bool, Error> {
        let Some(original) = self.read_own()?.as_deref().and_then(parse) else { return Ok(false) };
        match original {
            Original::Absent => std::fs::remove_file(&self.path).map_err(|e| self.error(e))?,
            Original::File(mode, content) => self.replace(&content, mode)?,
            Original::Link(target) => {
                let fresh = self.path.with_extension(format!("new-{}", std::process::id()));
                let _ = std::fs::remove_file(&fresh);
                std::os::unix::fs::symlink(&target, &fresh)
                    .and_then(|()| std::fs::rename(&fresh, &self.path))
                    .inspect_err(|_| {
                        let _ = std::fs::remove_file(&fresh);
                    })
                    .map_err(|e| self.error(e))?;
            }
        }
        Ok(true)
    }

    /// The name servers without the tunnel's: those that the file names, or named before us.
    ///
    /// # Errors
    /// Naming the file.
    pub fn servers_outside(&self) -> Result<Vec<IpAddr>, Error> {
        let content = match self.original()? {
            Original::File(_, content) => content,
            // A link of before that we replaced: what it leads to.
            Original::Link(target) => {
                let directory = self.path.parent().unwrap_or(Path::new("/"));
                Self::new(&directory.join(target)).read_through()?.unwrap_or_default()
            }
            Original::Absent => Vec::new(),
        };
        let text = String::from_utf8_lossy(&content);
        let server = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse().ok();
        Ok(text.lines().filter_map(server).take(MAX_SERVERS).collect())
    }

    /// What the file was before us, also if we are in it already.
    fn original(&self) -> Result<Original, Error> {
        if let Ok(target) = std::fs::read_link(&self.path) {
            // A link whose target cannot be replaced but written (a bind mount leads through it) is treated as the file.
            return Ok(if self.replaceable() { Original::Link(target) } else { self.file_as_it_is()? });
        }
        self.file_as_it_is()
    }

    fn file_as_it_is(&self) -> Result<Original, Error> {
        let Some(content) = self.read_through()? else { return Ok(Original::Absent) };
        if let Some(original) = parse(&content) {
            return Ok(original);
        }
        let mode = std::fs::metadata(&self.path).map_err(|e| self.error(e))?.permissions().mode() & 0o7777;
        Ok(Original::File(mode, content))
    }

    /// True if the name can be made to lead to another file.
    fn replaceable(&self) -> bool {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        !super::namespace::is_mount_point(&self.path)
            && nix::unistd::access(directory, nix::unistd::AccessFlags::W_OK).is_ok()
    }

    fn replace(&self, content: &[u8], mode: u32) -> Result<(), Error> {
        if self.replaceable() {
            return write_atomically(&self.path, content, mode)
                .map_err(|e| self.error(io::Error::other(e.to_string())));
        }
        std::fs::write(&self.path, content).map_err(|e| self.error(e))
    }

    /// The content, if the name itself is a file: our own marks are never behind a link that we would replace.
    fn read_own(&self) -> Result<Option<Vec<u8>>, Error> {
        if std::fs::read_link(&self.path).is_ok() && self.replaceable() {
            return Ok(None);
        }
        self.read_through()
    }

    fn read_through(&self) -> Result<Option<Vec<u8>>, Error> {
        use std::io::Read;
        let file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.error(e)),
        };
        let mut content = Vec::new();
        file.take(MAX_SIZE).read_to_end(&mut content).map_err(|e| self.error(e))?;
        Ok(Some(content))
    }

    fn error(&self, source: io::Error) -> Error {
        Error { path: self.path.clone(), source }
    }
}

/// Our file: the servers of the tunnel, the original as comments.
fn compose(settings: &Settings, original: &Original, before: &str) -> String {
    let mut out = format!(
        "# {}: name servers of the VPN. Lines after \"#|\" are this file as it was; they come back when the tunnel goes down.\n",
        settings.interface
    );
    let _ = match original {
        Original::Absent => writeln!(out, "{MARK}absent"),
        Original::Link(target) => writeln!(out, "{MARK}link {}", target.display()),
        Original::File(mode, _) => writeln!(out, "{MARK}file {mode:o}"),
    };
    let mut servers: Vec<IpAddr> = settings.servers.clone();
    let field =
        |name: &'static str| before.lines().filter_map(move |l| l.trim().strip_prefix(name)).map(str::trim);
    let mut search = settings.domains.clone();
    if !settings.exclusive {
        // The file cannot say which server knows which domain: the old ones are the fallback.
        servers.extend(field("nameserver").filter_map(|s| s.parse::<IpAddr>().ok()));
        search.extend(field("search").flat_map(str::split_whitespace).map(str::to_owned));
    }
    let search: Vec<&str> = search.iter().map(String::as_str).filter(|d| super::is_domain(d)).collect();
    if !search.is_empty() {
        let _ = writeln!(out, "search {}", search.join(" "));
    }
    for server in servers.iter().take(MAX_SERVERS) {
        let _ = writeln!(out, "nameserver {server}");
    }
    for options in field("options") {
        let _ = writeln!(out, "options {options}");
    }
    if let Original::File(_, content) = original {
        for line in String::from_utf8_lossy(content).split_inclusive('\n') {
            let _ = match line.strip_suffix('\n') {
                Some(line) => writeln!(out, "{LINE}{line}"),
                None => writeln!(out, "{LAST}{line}"),
            };
        }
    }
    out
}

/// The original inside our file; `None` if the file is not ours.
fn parse(content: &[u8]) -> Option<Original> {
    let text = std::str::from_utf8(content).ok()?;
    let mark = text.lines().nth(1)?.strip_prefix(MARK)?;
    if mark == "absent" {
        return Some(Original::Absent);
    }
    if let Some(target) = mark.strip_prefix("link ") {
        return Some(Original::Link(target.into()));
    }
    let mode = u32::from_str_radix(mark.strip_prefix("file ")?, 8).ok()? & 0o7777;
    let mut original = String::new();
    // Line breaks as they are: a carriage return belongs to the line.
    for line in text.split_inclusive('\n').skip(2) {
        if let Some(line) = line.strip_prefix(LINE) {
            original.push_str(line);
        } else if let Some(line) = line.strip_prefix(LAST) {
            original.push_str(line.strip_suffix('\n').unwrap_or(line));
        }
    }
    Some(Original::File(mode, original.into_bytes()))
}
