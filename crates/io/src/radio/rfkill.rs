//! The radio's own switch: a soft block through `/dev/rfkill`, of one 802.11 device and no other.
//!
//! Blocking takes every interface of the device down; the kernel does not take them up again afterwards. wpa_supplicant does,
//! for its own; [`Rfkill::on`] does for the interfaces that were up before. Programs that join networks go on doing so by themselves.

use super::interface::{Interface, phy_of};
use super::nl80211::Nl80211;
use super::{Attempt, Options, Power, RadioError, RadioState, Switch, wait_for};
use crate::netlink::Netlink;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) const NAME: &str = "rfkill";

/// One switch, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    soft: bool,
    hard: bool,
}

/// `struct rfkill_event` of `linux/rfkill.h`: index (native order), type, operation, soft, hard. Later kernels append to it what
/// is not needed here.
const EVENT: usize = 8;
const OP_DEL: u8 = 1;
const OP_CHANGE: u8 = 2;
/// `RFKILL_TYPE_ALL`: the index alone says which.
const ANY_TYPE: u8 = 0;

/// All switches of the machine.
#[derive(Debug)]
struct Switches {
    device: File,
    known: BTreeMap<u32, State>,
}

impl Switches {
    fn open(path: &Path) -> io::Result<Self> {
        let device =
            OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
        let mut switches = Self { device, known: BTreeMap::new() };
        switches.refresh()?;
        Ok(switches)
    }

    /// Reads what has happened. The kernel first reports every switch, then changes; one event a read.
    fn refresh(&mut self) -> io::Result<()> {
        loop {
            let mut event = [0; EVENT];
            match self.device.read(&mut event) {
                Ok(EVENT) => note(&mut self.known, event),
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn state(&mut self, index: u32) -> io::Result<State> {
        self.refresh()?;
        self.known.get(&index).copied().ok_or_else(|| io::Error::other(format!("rfkill{index} is gone")))
    }

    fn block(&mut self, index: u32, soft: bool) -> io::Result<()> {
        let [a, b, c, d] = index.to_ne_bytes();
        self.device.write_all(&[a, b, c, d, ANY_TYPE, OP_CHANGE, u8::from(soft), 0])
    }
}

fn note(known: &mut BTreeMap<u32, State>, event: [u8; EVENT]) {
    let [a, b, c, d, _, operation, soft, hard] = event;
    let index = u32::from_ne_bytes([a, b, c, d]);
    if operation == OP_DEL {
        known.remove(&index);
    } else {
        known.insert(index, State { soft: soft != 0, hard: hard != 0 });
    }
}

/// One radio's switch.
#[derive(Debug)]
struct Rfkill {
    switches: Switches,
    sysfs: PathBuf,
    interface: String,
    phy: String,
    /// Interfaces that were up before the block.
    kept: Option<Vec<String>>,
}

pub(super) fn find(options: &Options, interface: &Interface) -> Attempt {
    let Some(phy) = &interface.phy else { return Err(format!("{} is no 802.11 interface", interface.name)) };
    let path = options.rfkill.display();
    let switches = Switches::open(&options.rfkill).map_err(|e| format!("{path}: {e}"))?;
    let mut rfkill = Rfkill {
        switches,
        sysfs: options.sysfs.clone(),
        interface: interface.name.clone(),
        phy: phy.clone(),
        kept: None,
    };
    let index = rfkill.index().map_err(|e| e.to_string())?;
    rfkill.switches.state(index).map_err(|e| e.to_string())?;
    let why = format!("{} is the interface of {phy}, whose switch is rfkill{index}", interface.name);
    Ok((Box::new(rfkill), why))
}

impl Rfkill {
    /// Number of this radio's switch. Looked up each time: a card that was pulled and put back has another one.
    fn index(&self) -> io::Result<u32> {
        let directory = self.sysfs.join("class/ieee80211").join(&self.phy);
        for entry in std::fs::read_dir(&directory)? {
            let name = entry?.file_name();
            if let Some(Ok(index)) = name.to_string_lossy().strip_prefix("rfkill").map(str::parse) {
                return Ok(index);
            }
        }
        Err(io::Error::other(format!("{} has no rfkill switch", self.phy)))
    }

    fn fail(&self, what: &str, e: impl std::fmt::Display) -> RadioError {
        RadioError::step(NAME, format!("{} of {}", what, self.phy), e)
    }

    /// Names of this radio's interfaces that are up.
    fn up(&self, netlink: &mut Netlink) -> Result<Vec<String>, RadioError> {
        let links = netlink.links().map_err(|e| self.fail("interfaces", e))?;
        let ours = |name: &str| phy_of(&self.sysfs, name).as_deref() == Some(self.phy.as_str());
        Ok(links.into_iter().filter(|l| l.up && ours(&l.name)).map(|l| l.name).collect())
    }

    /// Sets the block and waits until the kernel reports it.
    fn switch(&mut self, soft: bool) -> Result<(), RadioError> {
        let what = if soft { "soft block" } else { "unblocking" };
        let index = self.index().map_err(|e| self.fail(what, e))?;
        self.switches.block(index, soft).map_err(|e| self.fail(what, e))?;
        let phy = self.phy.clone();
        let switches = &mut self.switches;
        wait_for(NAME, what, || {
            let state = switches.state(index).map_err(|e| RadioError::step(NAME, phy.clone(), e))?;
            Ok(state.soft == soft)
        })
    }

    fn netlink(&self) -> Result<Netlink, RadioError> {
        Netlink::new().map_err(|e| self.fail("interfaces", e))
    }

    /// Takes up what was up. A radio that is blocked by hand cannot be: its owner will take it up.
    fn take_up(&self, names: &[String]) -> Result<(), RadioError> {
        let mut netlink = self.netlink()?;
        for name in names {
            let result = netlink.link(name).and_then(|l| netlink.set_up(l.index, true));
            if let Err(e) = result {
                tracing::warn!(%e, "the interface stays down");
            }
        }
        Ok(())
    }
}

impl Switch for Rfkill {
    fn name(&self) -> &'static str {
        NAME
    }

    fn off(&mut self) -> Result<(), RadioError> {
        let index = self.index().map_err(|e| self.fail("switch", e))?;
        let before = self.switches.state(index).map_err(|e| self.fail("switch", e))?;
        if before.soft {
            return Ok(());
        }
        let names = self.up(&mut self.netlink()?)?;
        self.kept = Some(names);
        let result = self.switch(true);
        if result.is_err()
            && let Err(e) = self.on()
        {
            tracing::warn!(%e, "rolling back a failed switch-off failed");
        }
        result
    }

    fn on(&mut self) -> Result<(), RadioError> {
        let Some(names) = self.kept.clone() else { return Ok(()) };
        self.switch(false)?;
        self.take_up(&names)?;
        self.kept = None;
        Ok(())
    }

    fn state(&mut self) -> Result<RadioState, RadioError> {
        let index = self.index().map_err(|e| self.fail("switch", e))?;
        let state = self.switches.state(index).map_err(|e| self.fail("switch", e))?;
        let power = match state {
            State { hard: true, .. } => Power::Blocked,
            State { soft: true, .. } if self.holds() => Power::Off,
            State { soft: true, .. } => Power::Blocked,
            State { soft: false, .. } => Power::On,
        };
        if power != Power::On {
            return Ok(RadioState { power, attached: Some(false), network: None });
        }
        let found = Nl80211::new().and_then(|mut nl| nl.association(&self.interface));
        let association = found.map_err(|e| self.fail("association", e))?;
        let attached = Some(association.as_ref().is_some_and(|a| a.authorized));
        Ok(RadioState { power, attached, network: association.and_then(|a| a.network) })
    }

    fn holds(&self) -> bool {
        self.kept.is_some()
    }

    fn adopt(&mut self, _: Option<String>) {
        self.kept.get_or_insert_with(|| vec![self.interface.clone()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_tell_what_each_switch_is_now() {
        let mut known = BTreeMap::new();
        let event = |index: u32, operation: u8, soft: u8, hard: u8| {
            let [a, b, c, d] = index.to_ne_bytes();
            [a, b, c, d, 1, operation, soft, hard]
        };
        note(&mut known, event(3, 0, 0, 0));
        note(&mut known, event(4, 0, 1, 0));
        note(&mut known, event(3, OP_CHANGE, 1, 1));
        note(&mut known, event(4, OP_DEL, 0, 0));
        assert_eq!(known, BTreeMap::from([(3, State { soft: true, hard: true })]));
    }

    #[test]
    fn what_is_no_rfkill_device_is_passed_over_with_its_name() {
        let options = Options { rfkill: "/nonexistent/rfkill".into(), ..Options::default() };
        let interface = Interface { name: "wlan9".into(), index: 9, phy: Some("phy9".into()), named: true };
        let why = find(&options, &interface).map(|_| ()).expect_err("there is none");
        assert!(why.contains("/nonexistent/rfkill"), "{why}");
        let wired = Interface { phy: None, ..interface };
        assert!(find(&options, &wired).map(|_| ()).expect_err("a wire").contains("wlan9"));
    }
}
