//! An association with ESP, in the parts that own its state: the pair of ESP SAs, the UPDATE packets of both ends, where the two are, how long it
//! lasts, what servers do for either end, and the ways between them. Must never send anything: `exchange` does.

use core::time::Duration;

use dormouse_crypto::hip::DhKey;
use dormouse_keying::{ChildId, Discard};
use dormouse_sansio::{Deadline, Instant, Pace, Path};
use dormouse_wire::hip::EspInfo;

use super::{Agreed, Retry};
use crate::exchange::alive::Check;
use crate::exchange::ice::Ice;
use crate::exchange::in_udp::InUdp;
use crate::exchange::keepalive::Shown;
use crate::exchange::multihome::Multihome;
use crate::exchange::register::Served;
use crate::exchange::sleep::Dormancy;
use crate::exchange::{Around, relay};
use crate::limits::{UPDATE_BURST, UPDATE_EVERY};
use crate::quirks::Quirk;
use crate::relay::RelayTo;

/// An association with ESP.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) agreed: Agreed,
    pub(crate) esp: Esp,
    pub(crate) rekey: Option<Rekey>,
    pub(crate) updates: Updates,
    pub(crate) place: Place,
    pub(crate) life: Life,
    pub(crate) services: Services,
    pub(crate) ways: Ways,
    pub(crate) dormancy: Dormancy,
    pub(crate) caused: Caused,
}

/// The pair of ESP SAs in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Esp {
    pub(crate) child: ChildId,
    pub(crate) spi_out: u32,
    /// A replaced pair that still receives, and until when.
    pub(crate) retiring: Option<(ChildId, Instant)>,
}

/// UPDATE packets, which each end numbers and the other acknowledges.
#[derive(Debug)]
pub(crate) struct Updates {
    /// The id of our next.
    pub(crate) next_id: u32,
    /// The id of the peer's next.
    pub(crate) expected: u32,
    /// Our answer to its last, by its id.
    pub(crate) reply: Option<(u32, Vec<u8>)>,
    pub(crate) outstanding: Option<Outstanding>,
}

/// Where the two ends are, as far as each knows it of the other.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) ours: OurAddress,
    pub(crate) candidate: Option<Candidate>,
    /// The way that ESP keeps until the peer has answered by the way in use, to an address at which it was not before.
    pub(crate) esp_stays: Option<Path>,
}

/// Whether the peer knows from where we send, and how far the search for a way that answers is.
#[derive(Debug, Default)]
pub(crate) enum OurAddress {
    /// It has acknowledged that.
    #[default]
    Acknowledged,
    /// Our addresses have changed, which it has not acknowledged.
    Announced,
    /// The way in use did not answer, and we send from another, or to another: one is being tried; then these, the last first.
    Searched(Vec<Path>),
    /// All were tried, and the first is tried once more.
    LastTried,
}

impl OurAddress {
    /// The peer has nothing to learn.
    pub(crate) const fn is_acknowledged(&self) -> bool {
        matches!(self, Self::Acknowledged)
    }

    /// Another way is being tried.
    pub(crate) const fn is_searched(&self) -> bool {
        matches!(self, Self::Searched(_) | Self::LastTried)
    }

    /// The peer is to learn our addresses; a search goes on.
    pub(crate) fn announce(&mut self) {
        if self.is_acknowledged() {
            *self = Self::Announced;
        }
    }
}

/// How long the association lasts, and whether both ends are known to have it.
#[derive(Debug)]
pub(crate) struct Life {
    /// It ends then, and must be begun anew.
    pub(crate) until: Option<Instant>,
    /// But not before this time: the peer has just come back from a sleep.
    pub(crate) parting: Instant,
    /// State R2-SENT.
    pub(crate) r2: Option<R2Sent>,
    /// When the peer is asked whether it is there.
    pub(crate) check: Option<Check>,
    /// When the node last told of user data, in either direction.
    pub(crate) used: Instant,
}

/// What one end does for the other as a server.
#[derive(Debug)]
pub(crate) struct Services {
    /// Of us at the peer, which is a rendezvous server or a relay.
    pub(crate) registration: Registering,
    /// What is done for the peer as our client.
    pub(crate) served: Served,
    /// What we know as a client of the peer.
    pub(crate) relay: relay::Client,
}

/// The ways between the two ends, and what keeps them open.
#[derive(Debug)]
pub(crate) struct Ways {
    /// The search for a way that needs no relay.
    pub(crate) ice: Option<Box<Ice>>,
    pub(crate) keepalive: Shown,
    pub(crate) multihome: Multihome,
    pub(crate) in_udp: InUdp,
}

/// How our registration at a server stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Registering {
    /// We have not asked.
    No,
    /// Asked for in an UPDATE that is not acknowledged.
    Asked,
    /// It is to be renewed at this time.
    Granted(Instant),
    /// With the failure type.
    Refused(u8),
}

/// The R2 that we sent, for an I2 that comes again.
#[derive(Debug)]
pub(crate) struct R2Sent {
    /// Hash of the I2.
    pub(crate) i2: Vec<u8>,
    pub(crate) r2: Vec<u8>,
    pub(crate) until: Instant,
}

/// An UPDATE that is not acknowledged.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) id: u32,
    pub(crate) retry: Retry,
    pub(crate) to: Path,
    /// It says that we sleep.
    pub(crate) sleep: bool,
    /// It has our half of a rekeying.
    pub(crate) rekey: bool,
}

/// A rekeying under way.
#[derive(Debug)]
pub(crate) struct Rekey {
    pub(crate) ours: EspInfo,
    pub(crate) key: Option<DhKey>,
    /// The peer's half.
    pub(crate) theirs: Option<EspInfo>,
    /// The peer has acknowledged ours.
    pub(crate) acked: bool,
    /// When it was begun.
    pub(crate) since: Instant,
    /// The pair that was replaced, once the new one is installed, and whether the new one sends.
    pub(crate) installed: Option<(ChildId, bool)>,
}

/// An address that the peer says it has, until it has answered from there.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) path: Path,
    /// If it is behind a relay of ours: where the relay sees it.
    pub(crate) relay: Option<RelayTo>,
    pub(crate) nonce: [u8; 16],
    /// A packet that may be a replay came from there: the peer itself has not said so.
    pub(crate) hinted: bool,
}

/// How often of late the peer, or who forges its packets, has caused what costs us public-key work.
#[derive(Debug, Default)]
pub(crate) struct Caused {
    /// The peer was told that we do not understand it.
    pub(crate) notified: Pace,
    /// A keep-alive from elsewhere was verified.
    pub(crate) looked: Pace,
    /// The peer has begun new ESP keys.
    pub(crate) rekeyed: Pace,
    /// A new UPDATE of the peer was answered.
    pub(crate) answered: Pace,
}

impl Caused {
    /// Whether a new UPDATE of the peer is answered now; if so, it counts. One that an attacker repeats must not come here.
    ///
    /// # Errors
    /// If too many came of late: it is as lost, and the peer sends it again.
    pub(crate) fn answers(&mut self, now: Instant) -> Result<(), Discard> {
        let may = self.answered.may(now, UPDATE_EVERY, UPDATE_BURST);
        may.then_some(()).ok_or(Discard("more UPDATE packets than are answered"))
    }
}

impl Life {
    fn ends(&self) -> Option<Instant> {
        self.until.map(|until| until.max(self.parting))
    }

    /// Whether its lifetime is over, also while it stays for a peer that has just come back ([`Life::parting`]).
    pub(crate) fn is_spent(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Session {
    pub(crate) fn new(
        around: &Around<'_>,
        agreed: Agreed,
        child: ChildId,
        spi_out: u32,
        r2: Option<R2Sent>,
    ) -> Self {
        let peer = agreed.identity.hit();
        let next_id = u32::from(around.peers.quirks(peer).has(Quirk::UpdateIdsFromOne));
        let until = around.peers.lifetime(peer).map(|lifetime| around.now + lifetime);
        Self {
            agreed,
            esp: Esp { child, spi_out, retiring: None },
            rekey: None,
            updates: Updates { next_id, expected: 0, reply: None, outstanding: None },
            place: Place::default(),
            life: Life { until, parting: Instant::ZERO, r2, check: None, used: around.now },
            services: Services {
                registration: Registering::No,
                served: Served::default(),
                relay: relay::Client::default(),
            },
            ways: Ways {
                ice: None,
                keepalive: Shown::new(around.now),
                multihome: Multihome::default(),
                in_udp: InUdp::default(),
            },
            dormancy: Dormancy::default(),
            caused: Caused::default(),
        }
    }

    /// Pairs of ESP SAs that the data plane has, and the SPI that is only reserved.
    pub(crate) fn children(&self) -> (Vec<ChildId>, Option<ChildId>) {
        let replaced = self.rekey.as_ref().and_then(|r| r.installed).map(|(old, _)| old);
        let mut installed = vec![self.esp.child];
        installed.extend(replaced);
        installed.extend(self.esp.retiring.map(|(old, _)| old));
        let reserved = self.rekey.as_ref().filter(|r| r.installed.is_none());
        (installed, reserved.map(|r| ChildId::new(r.ours.new_spi)))
    }

    /// Whether it ends now, having lasted for as long as it may. That of a peer that sleeps ends after its sleep, so that the peer learns it.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.life.ends().is_some_and(|at| at <= now) && self.dormancy.peer_sleeps_until().is_none()
    }

    /// As [`super::Association::timers`]. What is to be sent to a peer that sleeps has none until its sleep is over.
    pub(crate) fn timers(&self) -> [Option<Deadline>; 10] {
        let slack = Duration::from_secs(10);
        let after = |at, why| Deadline { at, slack, why };
        let at_relay =
            |at| Deadline { at, slack: Duration::from_secs(2), why: "HIP: permissions at a relay" };
        let r2 = self.life.r2.as_ref().map(|r2| after(r2.until, "HIP: R2 kept"));
        let retiring = self.esp.retiring.map(|(_, at)| after(at, "HIP: late packets"));
        if let Some(sleep) = self.dormancy.peer_sleeps_until() {
            return [Some(sleep), r2, retiring, None, None, None, None, None, None, None];
        }
        let outstanding = self.updates.outstanding.as_ref();
        let renewal = match self.services.registration {
            Registering::Granted(at) => Some(after(at, "HIP: registration")),
            _ => None,
        };
        [
            outstanding.map(|o| Deadline::strict(o.retry.at, "HIP: UPDATE unacknowledged")),
            self.life.check.map(Check::deadline),
            renewal,
            self.services.relay.due().map(at_relay),
            self.ways.keepalive.deadline(),
            self.ways.ice.as_ref().and_then(|ice| ice.deadline()),
            self.ways.in_udp.deadline(),
            self.life.ends().map(|at| after(at, "HIP: lifetime")),
            r2,
            retiring,
        ]
    }
}
