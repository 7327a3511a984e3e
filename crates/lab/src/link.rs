//! A bad radio link between two network namespaces, for programs that a user runs in them, or in a bridge of two interfaces that the user names. Owns the
//! namespaces, which go with it; must never change the machine's own network.
//!
//! ```text
//!   fixed host ── wire ── access router ── radio ── device
//! ```

use anyhow::{Result, bail};
use dormouse_crypto::Secret;
use dormouse_netem::LinkStats;
use dormouse_snoop::{Repair, arq, tcp};
pub use dormouse_testbed::radio::{ADDRESSES, INTERFACE, Interface, Settings};
use dormouse_testbed::radio::{Hop, Radio};
use dormouse_testbed::{Host, Testbed};
use serde_json::{Value, json};

use crate::needs::missing;

/// The link and its two hosts.
#[derive(Debug)]
pub struct Link {
    radio: Radio,
    /// The host behind the wire.
    pub fixed: Host,
    /// The device.
    pub device: Host,
    // Last: namespaces go after what works in them.
    _bed: Testbed,
}

impl Link {
    /// Makes the namespaces and the link between them.
    ///
    /// # Errors
    /// Without root or what network namespaces need.
    pub fn start(settings: Settings) -> Result<Self> {
        if let Some(what) = missing() {
            bail!("network namespaces need {what}");
        }
        let mut bed = Testbed::new()?;
        let (fixed, device) = (bed.host("fixed")?, bed.host("device")?);
        let radio = Radio::start(settings, &fixed, &device)?;
        Ok(Self { radio, fixed, device, _bed: bed })
    }

    /// Whether it still works.
    #[must_use]
    pub fn works(&self) -> bool {
        self.radio.works()
    }

    /// Takes the link and its hosts away, and says what it did.
    ///
    /// # Errors
    /// What went wrong while it worked.
    pub fn stop(self) -> Result<Report> {
        Ok(Report::of(&self.radio.stop()?))
    }
}

/// The link as a bridge: frames of Ethernet between two interfaces that exist.
#[derive(Debug)]
pub struct Bridge(Radio);

impl Bridge {
    /// Joins the interface towards the fixed host with the one towards the device. The repair, if there is one, is for frames.
    ///
    /// # Errors
    /// If there is no such namespace or interface, it has no frames of Ethernet, or without root.
    pub fn start(settings: Settings, fixed: &Interface, device: &Interface) -> Result<Self> {
        Ok(Self(Radio::bridge(settings, fixed, device)?))
    }

    /// Whether it still works.
    #[must_use]
    pub fn works(&self) -> bool {
        self.0.works()
    }

    /// Parts the interfaces, and says what the link did.
    ///
    /// # Errors
    /// What went wrong while it worked.
    pub fn stop(self) -> Result<Report> {
        Ok(Report::of(&self.0.stop()?))
    }
}

/// Both ends of the repair by the numbers of ESP, under a key that is no secret: for emulated radios alone.
#[must_use]
pub fn esp_arq() -> (Repair, Option<Box<arq::Device>>) {
    let end = |host| ([10, 77, 0, host], arq::PORT).into();
    let (router, device) = arq::pair(&Secret::from([0x77; 32]), arq::Limits::default(), end(2), end(254));
    (Repair::EspArq(Box::new(router)), Some(Box::new(device)))
}

/// What a repair did.
#[derive(Clone, Copy, Debug)]
pub enum Repaired {
    /// SNOOP.
    Snoop(tcp::Stats),
    /// By the numbers of ESP.
    EspArq(arq::Stats),
}

impl Repaired {
    /// Packets that the router sent again.
    #[must_use]
    pub const fn repeated(&self) -> u64 {
        match self {
            Self::Snoop(stats) => stats.repeated,
            Self::EspArq(stats) => stats.repeated,
        }
    }
}

/// What a link did.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The radio towards the device, with the queue before it.
    pub to_device: LinkStats,
    /// The radio from the device.
    pub from_device: LinkStats,
    /// The repair, if there was any.
    pub repair: Option<Repaired>,
}

impl Report {
    fn of(hop: &Hop) -> Self {
        let [to_device, from_device] = hop.stats();
        let repair = match hop.repair() {
            Repair::None => None,
            Repair::Snoop(agent) => Some(Repaired::Snoop(*agent.stats())),
            // No router of these has keys of a daemon's device.
            Repair::Reported(_) => None,
            Repair::EspArq(router) => Some(Repaired::EspArq(*router.stats())),
        };
        Self { to_device, from_device, repair }
    }

    /// In words, a line for each thing.
    #[must_use]
    pub fn text(&self) -> String {
        let direction = |name: &str, s: &LinkStats| {
            format!(
                "{name}: {} packets, {} bytes on the air; {} broken by bit errors, {} lost otherwise, {} not taken by the queue, {} arrived\n",
                s.offered, s.sent_bytes, s.corrupted, s.lost, s.refused_full, s.delivered
            )
        };
        let repair = self.repair.map_or_else(String::new, |repaired| match repaired {
            Repaired::EspArq(s) => {
                format!("esp-arq: {} packets kept, {} repeated, {} reports\n", s.kept, s.repeated, s.reports)
            }
            Repaired::Snoop(s) => format!(
                "snoop: {} packets kept, {} repeated, {} acknowledgements suppressed\n",
                s.kept, s.repeated, s.suppressed
            ),
        });
        direction("to the device", &self.to_device)
            + &direction("from the device", &self.from_device)
            + &repair
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let direction = |s: &LinkStats| {
            json!({
                "packets": s.offered, "bytes_sent": s.sent_bytes, "corrupted": s.corrupted, "lost": s.lost,
                "refused": s.refused_full, "delivered": s.delivered,
            })
        };
        let repair = self.repair.map(|repaired| match repaired {
            Repaired::Snoop(s) => {
                json!({ "how": "snoop", "kept": s.kept, "repeated": s.repeated, "suppressed": s.suppressed })
            }
            Repaired::EspArq(s) => {
                json!({ "how": "esp-arq", "kept": s.kept, "repeated": s.repeated, "reports": s.reports })
            }
        });
        json!({
            "version": 1, "to_device": direction(&self.to_device), "from_device": direction(&self.from_device),
            "repair": repair,
        })
    }
}
