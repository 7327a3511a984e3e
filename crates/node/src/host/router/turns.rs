//! Packets without keys about which nothing was asked yet, because questions have their pace. Owns whose turn is next: that of a device that has come, one
//! after the other, and that of any other, by turns, so that garbage does not win every question. Must never ask, nor hold more than one packet of a device.

use dormouse_snoop::Unknown;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

/// Devices that have come and wait for their turn; further ones do not.
const MOST: usize = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Of each device that has come: the first packet since its last turn.
    come: BTreeMap<IpAddr, Unknown>,
    /// Of all others: the latest packet.
    other: Option<Unknown>,
    /// The device that had the last turn: the next one is behind it.
    served: Option<IpAddr>,
    /// A device that has come had the last turn.
    others_next: bool,
}

impl Turns {
    /// This packet waits for a turn, of a device that has come or of any other.
    pub(super) fn wait(&mut self, unknown: Unknown, has_come: bool) {
        if !has_come {
            self.other = Some(unknown);
        } else if self.come.len() < MOST {
            self.come.entry(unknown.device).or_insert(unknown);
        }
    }

    /// What has the next turn. Of `n` devices that have come and wait, each has one within `2 n`.
    pub(super) fn next(&mut self) -> Option<Unknown> {
        let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.come.range((after, Bound::Unbounded)).next().or_else(|| self.come.first_key_value());
        let device = next.map(|(device, _)| *device).filter(|_| !self.others_next || self.other.is_none());
        self.others_next = device.is_some();
        match device {
            Some(device) => {
                self.served = Some(device);
                self.come.remove(&device)
            }
            None => self.other.take(),
        }
    }

    /// What is asked about no longer.
    pub(super) fn forget(&mut self, is_over: impl Fn(&Unknown) -> bool) {
        self.come.retain(|_, unknown| !is_over(unknown));
        self.other = self.other.take().filter(|unknown| !is_over(unknown));
    }

    /// Whether something waits.
    pub(super) fn wait_any(&self) -> bool {
        self.other.is_some() || !self.come.is_empty()
    }
}
