//! What can be read of ESP packets in transit. Owns the keys of first zones, which SAs have none here, and which devices are awaited; must never keep
//! a packet, but for one of each SA without keys until that is asked about.

use core::net::IpAddr;
use std::collections::{BTreeSet, VecDeque};

use dormouse_esp::{Header, HeaderZones, Look};
use dormouse_keying::GrantId;
use dormouse_wire::ike::mlike::Excerpt;
use dormouse_wire::ip::Packet;

use crate::Way;
use crate::outer::{self, Layer};

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
    /// The first of these packets, from its SPI on, as far as it is to be shown.
    pub seen: Excerpt,
}

/// What was read of a packet when it arrived. It belongs to that packet, and to the keys that were here then.
#[derive(Clone, Debug, Default)]
pub enum FirstZone {
    /// Nothing: it is no ESP, or none of its keys are here.
    #[default]
    Unread,
    /// Keys of its SPI are here, and do not open it.
    Closed,
    /// Its first zone.
    Open(Header),
}

impl FirstZone {
    /// What was opened.
    #[must_use]
    pub const fn header(&self) -> Option<&Header> {
        match self {
            Self::Open(header) => Some(header),
            Self::Unread | Self::Closed => None,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Reader {
    layer: Layer,
    zones: HeaderZones,
    unknown: VecDeque<Unknown>,
    awaited: BTreeSet<IpAddr>,
    arrivals: VecDeque<(IpAddr, GrantId)>,
}

impl Reader {
    /// One that knows no keys, and reads what passes in this layer.
    pub(crate) fn of(layer: Layer) -> Self {
        Self { layer, ..Self::default() }
    }

    /// What stands around the packets that it reads.
    pub(crate) const fn layer(&self) -> Layer {
        self.layer
    }

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

    /// Opens the first zone of a packet that goes this way, if it is ESP.
    pub(crate) fn open(&mut self, packet: &[u8], way: Way) -> FirstZone {
        let Some(view) = self.layer.whole(packet).and_then(outer::tunnelled) else {
            return FirstZone::Unread;
        };
        outer::esp(&view).map_or(FirstZone::Unread, |esp| self.look(&view, esp, way))
    }

    /// The same for the device, once more, because other keys are here now: one whose keys are still missing is not reported again.
    pub(crate) fn open_again(&mut self, packet: &[u8]) -> FirstZone {
        let Some(view) = self.layer.whole(packet).and_then(outer::tunnelled) else {
            return FirstZone::Unread;
        };
        match outer::esp(&view).map(|esp| self.zones.look(esp)) {
            None | Some(Look::NoKey) => FirstZone::Unread,
            Some(Look::Header(header)) if header.is_to_device() => FirstZone::Open(header),
            Some(Look::Header(_) | Look::Closed) => FirstZone::Closed,
        }
    }

    /// The first zone of an ESP packet that goes this way; `view` is what carries it.
    pub(crate) fn look(&mut self, view: &Packet<'_>, esp: &[u8], way: Way) -> FirstZone {
        let header = match self.zones.look(esp) {
            Look::Header(header) => header,
            Look::Closed => return FirstZone::Closed,
            Look::NoKey => {
                self.note_unknown(view, esp, way);
                return FirstZone::Unread;
            }
        };
        if header.is_to_device() != (way == Way::ToDevice) {
            return FirstZone::Closed;
        }
        if way == Way::FromDevice && self.awaited.contains(&view.src()) {
            let arrival = (view.src(), header.grant());
            if !self.arrivals.contains(&arrival) && self.arrivals.len() < NEWS_MOST {
                self.arrivals.push_back(arrival);
            }
        }
        FirstZone::Open(header)
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
            let (to_device, seen) = (way == Way::ToDevice, Excerpt::of(esp));
            self.unknown.extend(seen.map(|seen| Unknown { gateway, device, spi, to_device, seen }));
        }
    }
}
