//! DNS: installs the name servers that the gateway assigns, and puts back what was there before.
//!
//! Owns the choice of the way and the promise to restore. Three ways, the first that works here:
//!
//! 1. [`Method::Resolved`]: systemd-resolved by D-Bus, if it runs, programs really ask it, and it sees our interface (not from
//!    inside a network namespace).
//! 2. [`Method::Resolvconf`]: the `resolvconf` program, if there is one that is not resolvectl in disguise.
//! 3. [`Method::File`]: `/etc/resolv.conf` itself. The file as it was is kept inside the new one as comments, so that it comes
//!    back after any crash (see [`file`]).
//!
//! All three need root, which the daemon gives up. So [`Guard`] runs a [`Resolver`] in a small process of its own, without
//! capabilities, which restores DNS also when the daemon is killed. A daemon that stays root can use a [`Resolver`] directly.

pub mod file;
mod guard;
mod namespace;
mod resolvconf;
#[cfg(feature = "dbus")]
mod resolved;
#[cfg(not(feature = "dbus"))]
#[path = "../without/resolved.rs"]
mod resolved;

pub use guard::{Guard, GuardReply, serve};

use file::ResolvConf;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// What is to be installed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Name of the tunnel interface.
    pub interface: String,
    /// Its index.
    pub index: u32,
    /// Name servers in the tunnel, in order of preference.
    pub servers: Vec<IpAddr>,
    /// Domains to search, and to ask those servers about.
    pub domains: Vec<String>,
    /// Domains to ask those servers about and not to search, as of reverse look-ups, as far as the method can tell them apart.
    pub unsearched: Vec<String>,
    /// All names are asked in the tunnel; otherwise those of `domains`, as far as the method can tell them apart.
    pub exclusive: bool,
}

/// Where things are. Paths can be moved for tests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Options {
    /// `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// `/etc/nsswitch.conf`.
    pub nsswitch_conf: PathBuf,
    /// D-Bus address of the bus that has systemd-resolved; `None`: the system bus.
    pub bus: Option<String>,
    /// Directories that may hold `resolvconf`.
    pub programs: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            resolv_conf: "/etc/resolv.conf".into(),
            nsswitch_conf: "/etc/nsswitch.conf".into(),
            bus: None,
            programs: crate::program::DIRECTORIES.map(PathBuf::from).into(),
        }
    }
}

/// How name servers are installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// systemd-resolved.
    Resolved,
    /// The `resolvconf` program.
    Resolvconf,
    /// `/etc/resolv.conf` itself.
    File,
    /// Not at all.
    None,
}

/// A method and why it was chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// The method.
    pub method: Method,
    /// Why this one and not those before it.
    pub why: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.method {
            Method::Resolved => "systemd-resolved",
            Method::Resolvconf => "resolvconf",
            Method::File => "resolv.conf",
            Method::None => "none",
        };
        write!(f, "{name} ({})", self.why)
    }
}

/// Why DNS could not be installed or restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// systemd-resolved refused or did not answer.
    #[error("systemd-resolved: {0}")]
    Resolved(String),
    /// `resolvconf` failed.
    #[error("{program}: {problem}")]
    Resolvconf {
        /// Which program.
        program: String,
        /// Its exit status and what it said.
        problem: String,
    },
    /// `/etc/resolv.conf` could not be read or written.
    #[error(transparent)]
    File(#[from] file::Error),
    /// There is no way here.
    #[error("name servers cannot be installed: {0}")]
    Nowhere(String),
    /// The guard process is gone.
    #[error("the DNS guard process: {0}")]
    Guard(std::io::Error),
}

/// Installs and restores. Restores also when dropped.
#[derive(Debug)]
pub struct Resolver {
    options: Options,
    installed: Option<(Choice, Settings)>,
}

impl Resolver {
    /// A resolver that has installed nothing. Puts back first what a run that crashed may have left.
    ///
    /// # Errors
    /// If something was left and cannot be put back; names the file.
    pub fn new(options: Options) -> Result<Self, Error> {
        let file = ResolvConf::new(&options.resolv_conf);
        if file.restore()? {
            tracing::info!(file = %options.resolv_conf.display(), "restored after an earlier run");
        }
        Ok(Self { options, installed: None })
    }

    /// Which method would be used now, and why. What a run that was killed left to `resolvconf` for this interface is removed:
    /// unlike the other methods' settings it goes neither with the interface nor with [`Resolver::new`].
    pub fn choose(&mut self, interface: &str) -> Choice {
        let choice = choose(&self.options);
        if choice.method == Method::Resolvconf && self.installed.is_none() {
            // Some versions of the program report as an error that there is none.
            if let Err(error) = resolvconf::revert(&self.options.programs, interface) {
                tracing::debug!(%error, "no record of an earlier run");
            }
        }
        choice
    }

    /// Installs `settings` in place of what is installed. Without servers this is [`Resolver::revert`].
    ///
    /// # Errors
    /// What went wrong; then nothing is installed.
    pub fn set(&mut self, mut settings: Settings) -> Result<Choice, Error> {
        // The gateway says these; a line break in one would be a line of its own in the machine's configuration.
        settings.domains.retain(|domain| is_domain(domain));
        settings.unsearched.retain(|domain| is_domain(domain));
        if settings.servers.is_empty() {
            self.revert()?;
            return Ok(Choice { method: Method::None, why: "the gateway assigned no name servers".into() });
        }
        let choice = match &self.installed {
            Some((choice, old)) if old.interface == settings.interface => choice.clone(),
            _ => {
                self.revert()?;
                choose(&self.options)
            }
        };
        match choice.method {
            Method::Resolved => resolved::set(self.options.bus.as_deref(), &settings)?,
            Method::Resolvconf => resolvconf::set(&self.options.programs, &settings)?,
            Method::File => ResolvConf::new(&self.options.resolv_conf).set(&settings)?,
            Method::None => return Err(Error::Nowhere(choice.why)),
        }
        self.installed = Some((choice.clone(), settings));
        Ok(choice)
    }

    /// Puts back what was there.
    ///
    /// # Errors
    /// What went wrong; it is tried again by the next call.
    pub fn revert(&mut self) -> Result<(), Error> {
        let Some((choice, settings)) = &self.installed else { return Ok(()) };
        match choice.method {
            Method::Resolved => resolved::revert(self.options.bus.as_deref(), settings.index)?,
            Method::Resolvconf => resolvconf::revert(&self.options.programs, &settings.interface)?,
            Method::File => {
                ResolvConf::new(&self.options.resolv_conf).restore()?;
            }
            Method::None => {}
        }
        self.installed = None;
        Ok(())
    }

    /// Puts back what was there, once: what fails is left to the next run.
    fn end(mut self) -> Result<(), Error> {
        let restored = self.revert();
        self.installed = None;
        restored
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        if let Err(error) = self.revert() {
            tracing::error!(%error, "DNS is not restored");
        }
    }
}

/// True for what can be the name of a domain.
fn is_domain(text: &str) -> bool {
    (1..=253).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

/// Which method would be used with these options, and why. Changes nothing.
#[must_use]
pub fn choose(options: &Options) -> Choice {
    let separate = namespace::separate_network();
    let own_file = namespace::is_mount_point(&options.resolv_conf);
    if separate {
        // systemd-resolved and resolvconf belong to the machine's own network: they would take our interface for another.
        return if own_file || options.resolv_conf != Options::default().resolv_conf {
            Choice {
                method: Method::File,
                why: "in a network namespace with a resolv.conf of its own".into(),
            }
        } else {
            let why = "in a network namespace that shares the machine's /etc/resolv.conf; give it one of its own, such as /etc/netns/NAME/resolv.conf";
            Choice { method: Method::None, why: why.into() }
        };
    }
    let not_resolved = match resolved::usable(options) {
        Ok(why) => return Choice { method: Method::Resolved, why },
        Err(why) => why,
    };
    match resolvconf::find(&options.programs) {
        Ok(program) => Choice {
            method: Method::Resolvconf,
            why: format!("{not_resolved}; {} is there", program.display()),
        },
        Err(why) => Choice { method: Method::File, why: format!("{not_resolved}; {why}") },
    }
}
