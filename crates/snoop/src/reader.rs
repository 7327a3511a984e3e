//! What can be read of ESP packets in transit. Owns the keys of first zones, which SAs have none here, and which devices are awaited; must never keep
//! a packet, but for one of each SA without keys until that is asked about.

use core::net::IpAddr;
use std::collections::{BTreeSet, VecDeque};

use dormouse_esp::{Header, HeaderZones, Look};
use dormouse_keying::GrantId;
use dormouse_wire::ip::Packet;

use crate::Way;

/// SPIs without keys, or devices that have come, that wait to be read; the oldest goes first.
const NEWS_MOST: usize = 16;
/// Devices that are awaited.
const AWAITED_MOST: usize = 1_024;

/// An SA between a gateway and a device of which packets have passed, and none of whose keys are here. Its packets may not be in zones at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The gateway's outer address.
    pub gateway: IpAddr,
    /// The device's.
    pub device: IpAddr,
    /// The SPI, of either direction.
    pub spi: u32,
    /// Which it is: of what goes to the device.
    pub to_device: bool,
    /// The first of these packets, from its SPI on.
    pub packet: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Reader {
    zones: HeaderZones,
    unknown: VecDeque<Unknown>,
    awaited: BTreeSet<IpAddr>,
    arrivals: VecDeque<(IpAddr, GrantId)>,
}

impl Reader {
    /// The first zones that it can read: their keys come from a key manager, which finds here what it should know.
    pub const fn zones(&mut self) -> &mut HeaderZones {
        &mut self.zones
    }

    /// The same, to look at.
    #[must_use]
    pub const fn readable(&self) -> &HeaderZones {
        &self.zones
    }

    /// An SA of which a packet has passed unread, for want of keys; oldest first. Each packet tells it anew.
    pub fn poll_unknown(&mut self) -> Option<Unknown> {
        self.unknown.pop_front()
    }

    /// From now on [`Self::poll_arrival`] reports when a packet of the device with this outer address was opened: then the device is here.
    pub fn await_device(&mut self, device: IpAddr) {
        if self.awaited.len() >= AWAITED_MOST {
            self.awaited.pop_first();
        }
        self.awaited.insert(device);
    }

    /// It is awaited no longer.
    pub fn forget_device(&mut self, device: IpAddr) {
        self.awaited.remove(&device);
        self.arrivals.retain(|(of, _)| *of != device);
    }

    /// An awaited device, and the keys that opened a packet of it. Each packet tells it anew, until [`Self::forget_device`].
    pub fn poll_arrival(&mut self) -> Option<(IpAddr, GrantId)> {
        self.arrivals.pop_front()
    }

    /// The first zone of an ESP packet that goes this way; `view` is what carries it.
    pub(crate) fn look(&mut self, view: &Packet<'_>, esp: &[u8], way: Way) -> Option<Header> {
        let header = match self.zones.look(esp) {
            Look::Header(header) => header,
            Look::Closed => return None,
            Look::NoKey => {
                self.note_unknown(view, esp, way);
                return None;
            }
        };
        if header.is_to_device() != (way == Way::ToDevice) {
            return None;
        }
        if way == Way::FromDevice && self.awaited.contains(&view.src()) {
            let arrival = (view.src(), header.grant());
            if !self.arrivals.contains(&arrival) && self.arrivals.len() < NEWS_MOST {
                self.arrivals.push_back(arrival);
            }
        }
        Some(header)
    }

    fn note_unknown(&mut self, view: &Packet<'_>, esp: &[u8], way: Way) {
        let (gateway, device) = match way {
            Way::ToDevice => (view.src(), view.dst()),
            Way::FromDevice => (view.dst(), view.src()),
        };
        // What has no number is a report or an answer of esp-arq: no key of a first zone opens it.
        let Some((spi, _)) = esp.split_first_chunk().filter(|(_, rest)| !rest.starts_with(&[0; 4])) else {
            return;
        };
        let spi = u32::from_be_bytes(*spi);
        if !self.unknown.iter().any(|of| (of.gateway, of.device, of.spi) == (gateway, device, spi)) {
            if self.unknown.len() >= NEWS_MOST {
                self.unknown.pop_front();
            }
            let to_device = way == Way::ToDevice;
            self.unknown.push_back(Unknown { gateway, device, spi, to_device, packet: esp.to_vec() });
        }
    }
}
