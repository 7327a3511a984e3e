//! A key manager as the node drives it beside IKE. Owns the interface; must never know a protocol.

use core::any::Any;
use core::net::IpAddr;
use core::time::Duration;

use dormouse_sansio::{Deadline, Instant, Path, Transmit};

use crate::{ChildId, ChildSa, Mark, Owner, SleepFlags, SleepVerdict, Sleeping};

/// Negotiates keys by messages of its own: the five verbs of `dormouse_sansio`, and one command.
///
/// It is driven by the contract of [`dormouse_sansio`].
pub trait KeyManager: Any + Send + core::fmt::Debug {
    /// A message came in over `path`. On a UDP carrier it still has its marker of four zero bytes (RFC 5770 section 5.1).
    ///
    /// # Errors
    /// The reason why it was dropped.
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &mut [u8]) -> Result<(), Discard>;

    /// Whether a message is of an association, or an exchange that has begun: not one of a newcomer, who may have to wait for those. What is
    /// looked at is not proved.
    fn knows(&self, _path: Path, _datagram: &[u8]) -> bool {
        true
    }

    /// Acts on all that is due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// The next message to send; its bytes are appended to `out`.
    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit>;

    /// When [`Self::handle_timeout`] is to be called.
    fn poll_timeout(&self) -> Option<Deadline>;

    /// Every timer that runs, for people; [`Self::poll_timeout`] is the first of them.
    fn timers(&self) -> Vec<Deadline> {
        self.poll_timeout().into_iter().collect()
    }

    /// The next event, oldest first.
    fn poll_event(&mut self) -> Option<Event>;

    /// A CHILD SA of this manager has reached a soft limit of its lifetime: it is to be replaced.
    fn rekey_child(&mut self, now: Instant, child: ChildId);

    /// A packet goes from the first of these inner addresses to the second, and no tunnel carries it. Whether one is on its way now: the packet
    /// is held for it. `send` is false while the radio is off: then, whether one can be asked for once it is on.
    fn want_tunnel(&mut self, _now: Instant, _between: (IpAddr, IpAddr), _send: bool) -> bool {
        false
    }

    /// An authentic packet of ESP came by another path than its tunnel's: the peer, or a NAT before it, may have moved. It proves that the
    /// peer sent the packet, not that it is there.
    fn observed_path(&mut self, _now: Instant, _owner: Owner, _path: Path) {}

    /// ESP of this SA is in use: some was sent, and none of the peer has come since; or (`heard`) some of the peer has come. Told when one
    /// follows the other, and again after a while.
    fn traffic(&mut self, _now: Instant, _owner: Owner, _heard: bool) {}

    /// ESP came by this path under an SPI that no SA has: its sender may have an SA that this node has lost. Anyone can send it.
    fn unknown_spi(&mut self, _now: Instant, _path: Path) {}

    /// ESP in UDP came by this path under an SPI that no SA has: whether it is for a host for which this node relays. It goes on, as it is, by
    /// [`Self::poll_transmit`].
    fn pass_on(&mut self, _now: Instant, _path: Path, _datagram: &[u8]) -> bool {
        false
    }

    /// These are the outer addresses of the node from now on, the preferred one of each family first.
    fn set_addresses(&mut self, _now: Instant, _addresses: &[IpAddr]) {}

    /// This node's radio is to go off: the peer of this SA learns it. True if [`Event::SleepAnswered`] follows, unless the SA ends or the
    /// radio goes off before.
    fn announce_sleep(&mut self, _now: Instant, _owner: Owner, _sleeping: &Sleeping) -> bool {
        false
    }

    /// The radio is on again, or stays on although a sleep was announced: nothing more is said of it. [`Self::set_addresses`], if they have
    /// changed, and [`Self::woke`] for each SA follow.
    fn radio_on(&mut self, _now: Instant) {}

    /// The radio is on again, or stays on although a sleep was announced. Whether user data may go at once; if not, [`Event::Revived`]
    /// follows when the peer has answered, or the SA ends.
    fn woke(&mut self, _now: Instant, _owner: Owner) -> bool {
        true
    }

    /// The peer of this SA is to learn that this node listens, although nothing else is sent to it.
    fn ask(&mut self, _now: Instant, _owner: Owner) {}

    /// Authentic ESP of a peer that had announced its sleep, sent since it woke.
    fn peer_awake(&mut self, _now: Instant, _owner: Owner) {}

    /// A packet is kept for the peer of this SA, which sleeps.
    fn waits(&mut self, _now: Instant, _owner: Owner) {}
}

/// What a key manager tells the node.
#[derive(Debug)]
pub enum Event {
    /// The peer is authenticated. Its CHILD SAs follow.
    Established {
        /// The SA.
        owner: Owner,
        /// Who the peer proved to be, for people.
        peer: String,
        /// Where the manager's messages go.
        path: Path,
        /// The peer has said that its radio may sleep.
        may_sleep: bool,
    },
    /// A change of the ESP side.
    Child(ChildSa),
    /// The SA is gone; its CHILD SAs were removed before.
    Closed {
        /// The SA.
        owner: Owner,
        /// Why, for people.
        why: &'static str,
    },
    /// Nothing was established with a peer that we called.
    Failed {
        /// The SA that was to be.
        owner: Owner,
        /// The peer that was called, for people.
        peer: String,
        /// Which kind of failure.
        kind: Failure,
        /// Why, for people.
        why: &'static str,
    },
    /// What became of [`KeyManager::announce_sleep`].
    SleepAnswered {
        /// The SA.
        owner: Owner,
        /// What the peer does.
        verdict: SleepVerdict,
    },
    /// After a sleep of this node, the peer has answered: it has the SA, and user data may go.
    Revived {
        /// The SA.
        owner: Owner,
        /// It was told a new address.
        moved: bool,
    },
    /// The peer has announced that its radio goes off.
    PeerSleeps {
        /// The SA.
        owner: Owner,
        /// The SA is kept until then, whether or not anything is heard of it.
        until: Instant,
        /// What it was granted.
        flags: SleepFlags,
        /// How long it may sleep at most; `None`: it does not know.
        expect: Option<Duration>,
        /// How far its ESP had come.
        marks: Vec<Mark>,
    },
    /// The peer sleeps no longer.
    PeerAwake {
        /// The SA.
        owner: Owner,
        /// It was heard, and is reached; if not, its time is over.
        there: bool,
    },
    /// A peer that called us proved who it is and was refused.
    Refused {
        /// Where it called from.
        path: Path,
        /// Who it is, for people.
        peer: String,
        /// It was refused by a deny entry. The identity of another one proves nothing, since hosts generate identities themselves.
        named: bool,
        /// Why, for people.
        why: &'static str,
    },
}

/// Which kind of failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// One end does not take the other for who it is, or does not want it.
    Authentication,
    /// The two have no algorithms in common.
    Proposal,
    /// No answer.
    Timeout,
    /// Anything else.
    Other,
}

/// Why a key manager dropped a message, in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discard(pub &'static str);

impl core::fmt::Display for Discard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for Discard {}
