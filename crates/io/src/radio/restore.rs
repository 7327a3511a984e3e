//! The promise that the radio comes back: [`Restoring`] makes a [`Radio`] of any way to switch one, and puts it back on when it is
//! dropped; a [`Mark`] on disk lets a later run do so after a crash. What a run cannot bring back stays in the mark.

use super::{Driver, Options, Purpose, Radio, RadioError, RadioState, Switch, choose};
use nix::unistd::{Uid, geteuid, seteuid};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Longest mark that is read, in bytes.
const MAX: u64 = 4096;
/// Radios that are remembered at most: one for each way to switch them.
const MAX_LEFT: usize = 4;

/// What was switched off, and how. A line of the mark.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Left {
    driver: Driver,
    interface: Option<String>,
    /// See [`Switch::network`].
    #[serde(default)]
    network: Option<String>,
}

/// The file that remembers. Opened once: the directory may be out of reach after privileges are given up.
///
/// It is not synchronised to the disk: it changes with every sleep of the radio, and each would wake the disk. The kernel
/// writes it within half a minute, along with systemd's own record of a soft block.
#[derive(Debug)]
pub(super) struct Mark(Option<File>);

impl Mark {
    /// Opens it, and returns what earlier runs left. A path of `None` remembers nothing.
    ///
    /// In a directory of another user's it is opened as that user: root without `CAP_DAC_OVERRIDE` may not look into it, and
    /// must not be led elsewhere by a link. That concerns the whole process, which has one thread then.
    pub(super) fn open(path: Option<&Path>) -> io::Result<(Self, Vec<Left>)> {
        let Some(path) = path else { return Ok((Self(None), Vec::new())) };
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
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let read = |line| {
            serde_json::from_str(line).unwrap_or_else(|error| {
                // A crash cut it off: that there is one says that the radio was off.
                tracing::warn!(%error, "{}", path.display());
                Left { driver: Driver::Auto, interface: None, network: None }
            })
        };
        let left = lines.take(MAX_LEFT).map(read).collect();
        Ok((Self(Some(file)), left))
    }

    fn write<'a>(&mut self, left: impl Iterator<Item = &'a Left>) -> io::Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let mut text = String::new();
        for one in left {
            text += &(serde_json::to_string(one)? + "\n");
        }
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
    options: Options,
    mark: Mark,
    /// What is written to the mark while this radio is off.
    own: Left,
    /// What earlier runs left off and could not be brought back yet.
    pending: Vec<Left>,
}

impl Restoring {
    /// See [`super::select`].
    pub(super) fn select(options: &Options) -> Result<Self, RadioError> {
        let (mark, left) = open_mark(options);
        Self::select_with(options, mark, left)
    }

    /// The same with a mark that was opened before, and what it says.
    pub(super) fn select_with(
        options: &Options,
        mut mark: Mark,
        mut pending: Vec<Left>,
    ) -> Result<Self, RadioError> {
        if !pending.is_empty() {
            bring_back(options, &mut pending);
            note(&mut mark, pending.iter());
        }
        let found = choose(options, Purpose::Switch)?;
        let driver = by_name(found.switch.name());
        let own = Left { driver, interface: found.interface, network: None };
        Ok(Self { switch: found.switch, why: found.why, options: options.clone(), mark, own, pending })
    }
}

/// Without a mark there is still a radio: what is lost is said.
pub(super) fn open_mark(options: &Options) -> (Mark, Vec<Left>) {
    Mark::open(options.mark.as_deref()).unwrap_or_else(|error| {
        let path = options.mark.as_deref().unwrap_or(Path::new("")).display();
        tracing::warn!(%error, %path, "a crash while the radio is off will not be noticed");
        (Mark(None), Vec::new())
    })
}

/// Switches on what earlier runs left off. What cannot be stays in the list.
fn bring_back(options: &Options, pending: &mut Vec<Left>) {
    pending.retain(|left| {
        let interface = left.interface.clone().or_else(|| options.interface.clone());
        let one = Options { driver: left.driver, interface, ..options.clone() };
        let done = choose(&one, Purpose::BringBack).and_then(|mut found| {
            found.switch.adopt(left.network.clone());
            found.switch.on()
        });
        match &done {
            Ok(()) => {
                tracing::info!(driver = left.driver.name(), "the radio is back on after an earlier run")
            }
            Err(e) => tracing::warn!(%e, "an earlier run left the radio off; tried again later"),
        }
        done.is_err()
    });
}

/// A disk that is full must not keep the radio from being switched.
fn note<'a>(mark: &mut Mark, left: impl Iterator<Item = &'a Left>) {
    if let Err(error) = mark.write(left) {
        tracing::warn!(%error, "the mark of a radio that is off cannot be written: a crash may go unnoticed");
    }
}

fn by_name(name: &str) -> Driver {
    [Driver::NetworkManager, Driver::Rfkill, Driver::Link, Driver::Command]
        .into_iter()
        .find(|d| d.name() == name)
        .unwrap_or_default()
}

impl Radio for Restoring {
    fn name(&self) -> &'static str {
        self.switch.name()
    }

    fn why(&self) -> &str {
        &self.why
    }

    fn off(&mut self) -> Result<(), RadioError> {
        if !self.switch.holds() {
            self.own.network = self.switch.network();
        }
        // Before it is off, or a crash in between would go unnoticed.
        note(&mut self.mark, self.pending.iter().chain([&self.own]));
        let result = self.switch.off();
        if !self.switch.holds() {
            note(&mut self.mark, self.pending.iter());
        }
        result
    }

    fn on(&mut self) -> Result<(), RadioError> {
        self.switch.on()?;
        bring_back(&self.options, &mut self.pending);
        note(&mut self.mark, self.pending.iter());
        Ok(())
    }

    fn state(&mut self) -> Result<RadioState, RadioError> {
        self.switch.state()
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        if !self.switch.holds() && self.pending.is_empty() {
            return;
        }
        match self.on() {
            Ok(()) => tracing::info!(driver = self.name(), "the radio is back on"),
            Err(e) => tracing::error!(%e, "the radio stays off"),
        }
    }
}
