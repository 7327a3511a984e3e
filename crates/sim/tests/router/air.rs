//! What is in the air: every datagram that leaves a machine of the world. Owns the ledger of nonces, and what routers have passed on; says no to
//! anything in clear that was not chosen for it, to a nonce that comes twice, and to a router that changes a packet or makes one of its own.

use crate::zoned::{Drawn, GATEWAY, shows};
use dormouse_sansio::{Carrier, Instant, Path};
use std::collections::BTreeMap;

/// SPI and explicit nonce of a packet.
type Nonce = (u32, [u8; 8]);

/// A packet that an end has sealed.
#[derive(Debug)]
pub(crate) struct Sealed {
    at: Instant,
    path: Path,
    bytes: Vec<u8>,
    /// The number of the packet inside, of one for the device that was sealed as soon as it was sent.
    number: Option<u64>,
}

/// What has become of a numbered packet.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The SA that carries it.
    pub(crate) spi: u32,
    /// When routers sent it to the device.
    pub(crate) passed: Vec<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Air {
    drawn: Drawn,
    /// Packets that an end has sent in clear, as both ends' configuration has it.
    pub(crate) shown: usize,
    pub(crate) now: Instant,
    /// What the gateway is about to seal.
    pub(crate) number: Option<u64>,
    sealed: BTreeMap<Nonce, Sealed>,
    pub(crate) ways: BTreeMap<u64, Way>,
    /// Reports of the device.
    pub(crate) reports: Vec<(Instant, Path, Vec<u8>)>,
    /// Answers of routers: when, and by the SPI of what the device receives.
    pub(crate) answers: Vec<(Instant, u32)>,
}

/// The ESP packet in a datagram.
fn esp<'a>(path: &Path, datagram: &'a [u8]) -> Option<&'a [u8]> {
    let esp = match path.carrier {
        Carrier::RawEsp => true,
        Carrier::NatT => datagram.len() > 8 && datagram[..4] != [0; 4],
        Carrier::Ike | Carrier::RawHip | Carrier::HipUdp => false,
    };
    esp.then_some(datagram)
}

fn spi(esp: &[u8]) -> u32 {
    u32::from_be_bytes(*esp.first_chunk().expect("an SPI"))
}

/// A report or an answer: its number is none that a packet has.
fn is_message(esp: &[u8]) -> bool {
    esp[4..8] == [0; 4]
}

fn nonce(esp: &[u8]) -> Nonce {
    (spi(esp), *esp[8..].first_chunk().expect("an IV"))
}

impl Air {
    pub(crate) const fn new(drawn: Drawn) -> Self {
        Self {
            drawn,
            shown: 0,
            now: Instant::ZERO,
            number: None,
            sealed: BTreeMap::new(),
            ways: BTreeMap::new(),
            reports: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// A datagram leaves the device or its gateway.
    pub(crate) fn leaves_an_end(&mut self, path: &Path, datagram: &[u8]) {
        self.shown += usize::from(shows(path, datagram, self.drawn));
        let Some(esp) = esp(path, datagram) else { return };
        if is_message(esp) {
            self.reports.push((self.now, *path, esp.to_vec()));
            return;
        }
        let number = self.number;
        if let Some(number) = number {
            self.ways.insert(number, Way { spi: spi(esp), passed: Vec::new() });
        }
        let sealed = Sealed { at: self.now, path: *path, bytes: esp.to_vec(), number };
        let twice = self.sealed.insert(nonce(esp), sealed);
        assert!(twice.is_none(), "a nonce of {:08x} comes twice", spi(esp));
    }

    /// A datagram leaves a router: its own, or on its way.
    pub(crate) fn leaves_a_router(&mut self, path: &Path, datagram: &[u8]) {
        shows(path, datagram, self.drawn);
        let Some(esp) = esp(path, datagram) else { return };
        if is_message(esp) {
            if esp.get(8..12) == Some(b"ARQ2") {
                self.answers.push((self.now, spi(esp)));
            } else {
                assert!(self.reports.iter().any(|(_, _, report)| report == esp), "a router made a report");
            }
            return;
        }
        // A packet that no end has sealed is an attacker's, which tests send on purpose.
        let Some(sealed) = self.sealed.get(&nonce(esp)) else { return };
        assert_eq!(sealed.bytes, esp, "a router has changed a packet");
        let way = sealed.number.and_then(|number| self.ways.get_mut(&number));
        if let Some(way) = way {
            way.passed.push(self.now);
        }
    }

    /// Reports that have left the device since a router first answered one after this.
    pub(crate) fn reports_since_answered(&self, after: Instant) -> Vec<(Path, Vec<u8>)> {
        let Some((since, _)) = self.answers.iter().find(|(at, _)| *at > after) else { return Vec::new() };
        let reports = self.reports.iter().filter(|(at, ..)| at > since);
        reports.map(|(_, path, report)| (*path, report.clone())).collect()
    }

    /// The last packets that the device, or else its gateway, has sealed.
    pub(crate) fn last_of(&self, device: bool, count: usize) -> Vec<(Path, Vec<u8>)> {
        let of_it = |sealed: &&Sealed| (sealed.path.remote.ip() == GATEWAY) == device;
        let mut all: Vec<_> = self.sealed.values().filter(of_it).collect();
        all.sort_by_key(|sealed| (sealed.at, sealed.bytes[8..16].to_vec()));
        all.iter().rev().take(count).rev().map(|sealed| (sealed.path, sealed.bytes.clone())).collect()
    }

    /// The last packet that was sealed for the device.
    pub(crate) fn last_for_device(&self) -> (Path, Vec<u8>) {
        let (number, _) = self.ways.last_key_value().expect("a packet");
        let of = self.sealed.values().find(|sealed| sealed.number == Some(*number));
        let of = of.expect("its bytes");
        (of.path, of.bytes.clone())
    }
}
