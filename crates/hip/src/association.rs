//! What is kept of a peer (RFC 7401 section 4.4.2). Owns the states with their data and what a pair of ESP SAs is made of; what moves
//! an association from one to the next is in `exchange`.
//!
//! | RFC 7401 | here |
//! |---|---|
//! | UNASSOCIATED | no association |
//! | E-FAILED | [`Stage::Failed`] |
//! | I1-SENT | [`Stage::I1Sent`], [`Stage::Solving`] |
//! | I2-SENT | [`Stage::I2Sent`] |
//! | R2-SENT | [`Stage::Up`] with [`session::Life::r2`] |
//! | ESTABLISHED | [`Stage::Up`] |
//! | CLOSING | [`Stage::Closing`] |
//! | CLOSED | [`Stage::Closed`] |

mod session;

use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::hip::DhGroup;
use dormouse_keying::{
    Beet, ChildId, ChildSa, Failure, Install, Mode, Owner, Protection, SaId, Share, SoftBounds,
};
use dormouse_sansio::{Carrier, Class, Deadline, Instant, Path};
use dormouse_wire::hip::{Hit, Param, R1Counter, Solution};
use dormouse_wire::ike::TsRange;

use crate::config::{EspSuite, Timing};
use crate::exchange::{Around, candidates};
use crate::hit::HostIdentity;
use crate::keymat::{EspKeys, HipKeys, Keymat};
use crate::puzzle::Solver;
use crate::quirks::{Quirk, Quirks};
use crate::relay::RelayTo;

pub(crate) use session::{Candidate, Esp, OurAddress, Outstanding, R2Sent, Registering, Rekey, Session};

/// One peer, as one identity of ours knows it.
#[derive(Debug)]
pub(crate) struct Association {
    pub(crate) id: SaId,
    pub(crate) ours: Hit,
    pub(crate) peer: Hit,
    /// Where packets go.
    pub(crate) path: Path,
    /// If the peer was reached through a relay of ours: where the relay sees it.
    pub(crate) relay: Option<RelayTo>,
    pub(crate) stage: Stage,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// An I1 is out.
    I1Sent(I1Sent),
    /// The R1 is here; its puzzle is being solved.
    Solving(Box<Solving>),
    /// An I2 is out.
    I2Sent(Box<I2Sent>),
    /// ESP flows.
    Up(Box<Session>),
    /// A CLOSE is out; ESP has ended.
    Closing(Box<Closing>),
    /// The peer's CLOSE was answered.
    Closed(Box<Closed>),
    /// Nothing is left of it: it is forgotten at once.
    Failed,
}

/// A packet that is sent until it is answered.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) packet: Vec<u8>,
    pub(crate) class: Class,
    left: u32,
    wait: Duration,
    pub(crate) at: Instant,
}

impl Retry {
    pub(crate) fn new(packet: Vec<u8>, class: Class, now: Instant, timing: &Timing) -> Self {
        let wait = timing.first_wait;
        Self { packet, class, left: timing.tries.saturating_sub(1), wait, at: now + wait }
    }

    /// Tried so often at most.
    pub(crate) fn at_most(mut self, tries: u32) -> Self {
        self.left = self.left.min(tries.saturating_sub(1));
        self
    }

    /// Whether it was sent again already.
    pub(crate) fn is_repeated(&self, timing: &Timing) -> bool {
        self.wait > timing.first_wait
    }

    /// The peer is there after all: what it has not answered is sent again at once, and waited for as at first.
    pub(crate) fn renew(&mut self, now: Instant, timing: &Timing) {
        if self.is_repeated(timing) {
            (self.left, self.wait, self.at) = (timing.tries, timing.first_wait / 2, now);
        }
    }

    /// Whether it is to be sent once more, its time having come; false: there was no answer.
    pub(crate) fn again(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.wait = self.wait.saturating_mul(2);
        self.at = now + self.wait;
        true
    }
}

#[derive(Debug)]
pub(crate) struct I1Sent {
    pub(crate) retry: Retry,
    /// Ways to the peer, at least one; the first is the next to be tried.
    pub(crate) paths: Vec<Path>,
    /// Why the peer's last R1 leads to nothing.
    pub(crate) refusal: Option<Refusal>,
}

/// What an R1 offers and we chose from it.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) responder: HostIdentity,
    /// It is a server at which we are to register, and offers that.
    pub(crate) register: bool,
    /// It came through the peer's relay.
    pub(crate) ice: Option<candidates::Offered>,
    /// It offers to go on in UDP, where it came from.
    pub(crate) in_udp: bool,
    pub(crate) counter: Option<R1Counter>,
    /// The puzzle's numbers; J is empty until it is solved.
    pub(crate) solution: Solution,
    pub(crate) group: DhGroup,
    pub(crate) public: Vec<u8>,
    pub(crate) cipher: dormouse_crypto::hip::HipCipher,
    pub(crate) esp: EspSuite,
    /// Where else the responder says that it is.
    pub(crate) others: Vec<IpAddr>,
    /// Sent back under the signature.
    pub(crate) echo_signed: Option<Vec<u8>>,
    /// Sent back behind it.
    pub(crate) echoes: Vec<Param>,
    /// Verifications that packets of others may still cost.
    pub(crate) looks_left: u32,
}

#[derive(Debug)]
pub(crate) struct Solving {
    pub(crate) offer: Offer,
    pub(crate) solver: Solver,
    /// The responder does not accept a solution later.
    pub(crate) until: Instant,
    /// When the next slice is due: at once.
    pub(crate) next: Instant,
}

#[derive(Debug)]
pub(crate) struct I2Sent {
    pub(crate) retry: Retry,
    pub(crate) agreed: Agreed,
    pub(crate) child: ChildId,
    pub(crate) esp_keys: EspKeys,
    /// That of the R1.
    pub(crate) counter: Option<R1Counter>,
    /// That of the R1.
    pub(crate) ice: Option<candidates::Offered>,
    /// Those of the R1.
    pub(crate) others: Vec<IpAddr>,
    /// Our addresses that the I2 names besides the one that it was sent from.
    pub(crate) named: Vec<IpAddr>,
    /// Verifications that packets of others may still cost.
    pub(crate) looks_left: u32,
    /// What the responder said last, if the exchange fails.
    pub(crate) notified: Option<Refusal>,
}

/// Why the exchange fails, if it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Which kind of failure.
    pub kind: Failure,
    /// In the words of the protocol.
    pub why: &'static str,
}

/// What a base exchange has led to.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) identity: HostIdentity,
    pub(crate) keys: HipKeys,
    pub(crate) keymat: Keymat,
    /// The suite of the responder's tag, the puzzle's numbers: for key material made later.
    pub(crate) suite: crate::hit::HitSuite,
    pub(crate) i: Vec<u8>,
    pub(crate) j: Vec<u8>,
    pub(crate) esp: EspSuite,
    /// Where in the key material the next ESP keys are drawn.
    pub(crate) next: u16,
    pub(crate) group: DhGroup,
    /// The peer's newest public value.
    pub(crate) peer_public: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) retry: Retry,
    pub(crate) agreed: Agreed,
    pub(crate) nonce: [u8; 16],
    /// The peer's relay, or ours, if the way to the peer is a direct one.
    pub(crate) relay: Option<Path>,
}

#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) agreed: Agreed,
    pub(crate) until: Instant,
    pub(crate) relay: Option<Path>,
}

impl Association {
    /// Behind which relay of ours packets to the peer go: where it says that it is, while it is asked there.
    pub(crate) fn via(&self) -> Option<RelayTo> {
        let asked = match &self.stage {
            Stage::Up(session) => session.place.candidate.as_ref().and_then(|c| c.relay),
            _ => None,
        };
        asked.or(self.relay)
    }

    pub(crate) const fn owner(&self) -> Owner {
        Owner::Hip(self.id)
    }

    /// How ESP travels where packets go: by protocol 50, or in the same UDP.
    pub(crate) fn esp_path(&self, path: Path, around: &Around<'_>) -> Path {
        self.esp_by(path, around.config.udp_port, around.peers.quirks(self.peer))
    }

    /// Where ESP goes now.
    pub(crate) fn esp_in_use(&self, around: &Around<'_>) -> Path {
        let stays = match &self.stage {
            Stage::Up(session) => session.place.esp_stays,
            _ => None,
        };
        stays.unwrap_or_else(|| self.esp_path(self.path, around))
    }

    /// The same with this UDP port and this peer's quirks.
    pub(crate) fn esp_by(&self, path: Path, port: u16, quirks: Quirks) -> Path {
        match path.carrier {
            Carrier::RawHip if quirks.has(Quirk::EspInUdp) => path.with_ports(Carrier::HipUdp, port, port),
            Carrier::RawHip => {
                let in_udp = match &self.stage {
                    Stage::Up(session) => session.ways.in_udp.esp_path(path),
                    _ => None,
                };
                in_udp.unwrap_or(path.with_ports(Carrier::RawEsp, 0, 0))
            }
            _ => path,
        }
    }

    /// The order that installs a pair of ESP SAs between the two tags.
    /// "Anti-replay protection MUST be used in an ESP SA established with HIP." (RFC 7402 section 3.3.6)
    /// "This means that each host MUST rekey before its sequence number reaches 2^64." (RFC 7402 section 3.3.6)
    /// "It MUST initiate a rekey if its incoming ESP sequence counter is about to overflow." (RFC 7402 section 6.8)
    /// "The rekeying procedure SHOULD be initiated early enough to make sure that the SA replay counters do not overflow." (RFC 7402
    /// section 6.8)
    /// "When ESP is used with HIP, a 64-bit sequence number MUST be used." (RFC 7402 section 3.3.6)
    pub(crate) fn install(&self, around: &Around<'_>, esp: EspSuite, keys: EspKeys, pair: Pair) -> ChildSa {
        let (local, remote) = (self.ours.0.into(), self.peer.0.into());
        let (config, quirks) = (around.config, around.peers.quirks(self.peer));
        let (encr, integ) = esp.algorithms_with(quirks);
        let esn = !quirks.has(Quirk::EspIcv32) && !quirks.has(Quirk::EspSequence32);
        ChildSa::Install(Box::new(Install {
            owner: self.owner(),
            child: pair.child,
            spi_out: pair.spi_out,
            keymat_in: keys.keymat_in,
            keymat_out: keys.keymat_out,
            encr,
            integ,
            esn,
            mode: Mode::Beet(Beet { local, remote }),
            protection: Protection::Whole,
            pad_to: 0,
            ts_local: vec![TsRange::addresses(local, local)],
            ts_remote: vec![TsRange::addresses(remote, remote)],
            original: None,
            path: self.esp_in_use(around),
            replaces: pair.replaces,
            send_now: pair.send_now,
            replay_window: config.replay_window,
            // Its sequence numbers end, and it is rekeyed or ended before.
            soft: SoftBounds {
                packets: if esn { config.soft_packets } else { config.soft_packets.min(1 << 31) },
                bytes: config.soft_bytes,
            },
            share: Share::Rest,
        }))
    }

    /// Since when it is unused; one that is ending, since ever. `None` while it is being established.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        match &self.stage {
            Stage::I1Sent(_) | Stage::Solving(_) | Stage::I2Sent(_) => None,
            // A client of ours may be called at any time.
            Stage::Up(session) => {
                let used = session.life.used.max(Instant::from_nanos(1));
                Some(session.services.served.end().map_or(used, |until| until.max(used)))
            }
            Stage::Closing(_) | Stage::Closed(_) | Stage::Failed => Some(Instant::ZERO),
        }
    }

    /// When [`crate::exchange::handle_timeout`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.timers().into_iter().fold(None, Deadline::earlier)
    }

    /// Everything that it has to do at a time, of two at the same time the weightier one first.
    pub(crate) fn timers(&self) -> [Option<Deadline>; 10] {
        let strict = |at, why| Some(Deadline::strict(at, why));
        let one = match &self.stage {
            Stage::I1Sent(sent) => strict(sent.retry.at, "HIP: no R1"),
            Stage::Solving(solving) => strict(solving.next, "HIP: puzzle"),
            Stage::I2Sent(sent) => strict(sent.retry.at, "HIP: no R2"),
            Stage::Closing(closing) => strict(closing.retry.at, "HIP: no CLOSE_ACK"),
            Stage::Failed => None,
            Stage::Closed(closed) => {
                Some(Deadline { at: closed.until, slack: Duration::from_secs(60), why: "HIP: closed" })
            }
            Stage::Up(session) => return session.timers(),
        };
        [one, None, None, None, None, None, None, None, None, None]
    }
}

/// Which SPIs a new pair has, and what becomes of the old.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) child: ChildId,
    pub(crate) spi_out: u32,
    pub(crate) replaces: Option<ChildId>,
    pub(crate) send_now: bool,
}
