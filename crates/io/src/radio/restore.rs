//! The promise that the radio comes back: [`Restoring`] makes a [`Radio`] of any way to switch one, and puts it back on when it is
//! dropped; a [`Mark`] on disk lets a later run do so after a crash.

use super::{Driver, Options, Radio, RadioError, RadioState, Switch, choose};
use nix::unistd::{Uid, geteuid, seteuid};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Longest mark that is read, in bytes.
const MAX: u64 = 4096;

/// What was switched off, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Left {
    driver: Driver,
    interface: Option<String>,
}

/// The file that remembers. Opened once: the directory may be out of reach after privileges are given up.
///
/// It is not synchronised to the disk: it changes with every sleep of the radio, and each would wake the disk. The kernel
/// writes it within half a minute, along with systemd's own record of a soft block.
#[derive(Debug)]
pub(super) struct Mark(Option<File>);

impl Mark {
    /// Opens it, and returns what an earlier run left. A path of `None` remembers nothing.
    ///
    /// In a directory of somebody else's it is opened as that user: root without `CAP_DAC_OVERRIDE` may not look into it, and
    /// must not be led elsewhere by a link. That concerns the whole process, which has one thread then.
    pub(super) fn open(path: Option<&Path>) -> io::Result<(Self, Option<Left>)> {
        let Some(path) = path else { return Ok((Self(None), None)) };
        let owner = std::fs::metadata(path.parent().unwrap_or(Path::new("/")))?.uid();
        let foreign = geteuid().is_root() && owner != 0;
        if foreign {
            seteuid(Uid::from_raw(owner))?;
        }
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(path);
        if foreign {
            seteuid(Uid::from_raw(0))?;
        }
        let mut file = opened?;
        let mut text = String::new();
        (&mut file).take(MAX).read_to_string(&mut text)?;
        let left = match text.trim() {
            "" => None,
            text => match serde_json::from_str(text) {
                Ok(left) => Some(left),
                // A crash cut it off: that there is one says that the radio was off.
                Err(error) => {
                    tracing::warn!(%error, "{}", path.display());
                    Some(Left { driver: Driver::Auto, interface: None })
                }
            },
        };
        Ok((Self(Some(file)), left))
    }

    fn write(&mut self, left: Option<&Left>) -> io::Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let text = match left {
            Some(left) => serde_json::to_string(left)? + "\n",
            None => String::new(),
        };
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    }
}

/// A radio that puts itself back on.
#[derive(Debug)]
pub(super) struct Restoring {
    switch: Box<dyn Switch>,
    why: String,
    mark: Mark,
    left: Left,
}

impl Restoring {
    /// See [`super::select`].
    pub(super) fn select(options: &Options) -> Result<Self, RadioError> {
        let (mark, left) = open_mark(options);
        Self::select_with(options, mark, left)
    }

    /// The same with a mark that was opened before.
    pub(super) fn select_with(
        options: &Options,
        mut mark: Mark,
        left: Option<Left>,
    ) -> Result<Self, RadioError> {
        if let Some(left) = left {
            match bring_back(options, &left) {
                Ok(()) => {
                    tracing::info!(driver = left.driver.name(), "the radio is back on after an earlier run");
                    forget(&mut mark);
                }
                // The mark stays: the next start tries again.
                Err(e) => tracing::warn!(%e, "an earlier run left the radio off"),
            }
        }
        let found = choose(options)?;
        let left = Left { driver: by_name(found.switch.name()), interface: found.interface };
        Ok(Self { switch: found.switch, why: found.why, mark, left })
    }
}

/// Without a mark there is still a radio: what is lost is said.
pub(super) fn open_mark(options: &Options) -> (Mark, Option<Left>) {
    Mark::open(options.mark.as_deref()).unwrap_or_else(|error| {
        let path = options.mark.as_deref().unwrap_or(Path::new("")).display();
        tracing::warn!(%error, %path, "a crash while the radio is off will not be noticed");
        (Mark(None), None)
    })
}

fn bring_back(options: &Options, left: &Left) -> Result<(), RadioError> {
    let interface = left.interface.clone().or_else(|| options.interface.clone());
    let mut switch = choose(&Options { driver: left.driver, interface, ..options.clone() })?.switch;
    switch.adopt();
    switch.on()
}

fn by_name(name: &str) -> Driver {
    [Driver::NetworkManager, Driver::Rfkill, Driver::Link, Driver::Command]
        .into_iter()
        .find(|d| d.name() == name)
        .unwrap_or_default()
}

fn forget(mark: &mut Mark) {
    if let Err(error) = mark.write(None) {
        tracing::warn!(%error, "the mark of a radio that is off cannot be removed");
    }
}

impl Radio for Restoring {
    fn name(&self) -> &'static str {
        self.switch.name()
    }

    fn why(&self) -> &str {
        &self.why
    }

    fn off(&mut self) -> Result<(), RadioError> {
        // Before it is off, or a crash in between would go unnoticed. A disk that is full must not keep the radio on.
        if let Err(error) = self.mark.write(Some(&self.left)) {
            tracing::warn!(%error, "a crash while the radio is off will not be noticed");
        }
        let result = self.switch.off();
        if !self.switch.holds() {
            forget(&mut self.mark);
        }
        result
    }

    fn on(&mut self) -> Result<(), RadioError> {
        self.switch.on()?;
        forget(&mut self.mark);
        Ok(())
    }

    fn state(&mut self) -> Result<RadioState, RadioError> {
        self.switch.state()
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        if !self.switch.holds() {
            return;
        }
        match self.on() {
            Ok(()) => tracing::info!(driver = self.name(), "the radio is back on"),
            Err(e) => tracing::error!(%e, "the radio stays off"),
        }
    }
}
