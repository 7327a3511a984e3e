//! What a host says of itself, for people and tests. Owns the shapes and their words; must never change anything.

use dormouse_keying::{ChildId, SaId};
use dormouse_sansio::Path;
use dormouse_wire::hip::Hit;

use super::Host;
use crate::association::{Association, Refusal, Registering, Stage};
use crate::hit::Identity;

/// Why an association cannot be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No identity of ours has this tag.
    #[error("{0} is not one of our tags")]
    NotOurs(Hit),
    /// The peer's tag is ours.
    #[error("{0} is a tag of this host itself")]
    Own(Hit),
    /// The peer's tag is none, or is of a suite that is not supported.
    #[error("{0} is not the tag of a peer: 2001:21::/32 (RSA) and 2001:22::/32 (ECDSA) are supported")]
    NotATag(Hit),
    /// None of our identities speaks the peer's version of the protocol.
    #[error("no identity of this host has the version of HIP that {0} has")]
    OtherVersion(Hit),
    /// There is one already.
    #[error("there is an association with {0}")]
    Exists(Hit),
    /// No path was given, or one without a local address where the checksum needs it.
    #[error("no usable path to {0}: HIP without UDP needs the local address")]
    NoPath(Hit),
    /// An operator has denied it.
    #[error("{0} is denied")]
    Denied(Hit),
    /// Too many associations.
    #[error("there are {0} associations, as many as are permitted")]
    TooMany(usize),
    /// The library failed.
    #[error("no I1 could be made")]
    Failed,
}

/// How far an association is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// A base exchange is under way.
    Connecting,
    /// ESP flows.
    Established,
    /// It is ending.
    Closing,
}

/// One association, for people and tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// Its name.
    pub id: SaId,
    /// Our tag.
    pub ours: Hit,
    /// The peer's.
    pub peer: Hit,
    /// Where its packets go.
    pub path: Path,
    /// How ESP goes there.
    pub esp_path: Path,
    /// That is a relay, by which the peer is reached.
    pub relayed: bool,
    /// The peer has announced that it sleeps, and was not heard since.
    pub peer_sleeps: bool,
    /// How far it is.
    pub phase: Phase,
    /// The pair of ESP SAs that sends.
    pub child: Option<ChildId>,
    /// While it is connecting: why the peer says that it refuses.
    pub refusal: Option<Refusal>,
    /// Whether one serves the other.
    pub registration: Registration,
}

/// Whether one end of an association is a rendezvous server or a relay of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registration {
    /// Neither.
    None,
    /// We are registered at the peer.
    AtPeer,
    /// The peer has refused to register us, for this reason (RFC 8003 section 4.5).
    Refused(u8),
    /// The peer has registered at us; whether its time is over is looked at when a packet comes for it.
    OfPeer,
}

impl Host {
    /// All associations.
    pub fn describe(&self) -> impl Iterator<Item = Description> {
        self.associations.values().map(|a| {
            let (phase, child) = match &a.stage {
                Stage::I1Sent(_) | Stage::Solving(_) | Stage::I2Sent(_) => (Phase::Connecting, None),
                Stage::Up(session) => (Phase::Established, Some(session.esp.child)),
                Stage::Closing(_) | Stage::Closed(_) | Stage::Failed => (Phase::Closing, None),
            };
            let registration = match &a.stage {
                Stage::Up(session) => match session.services.registration {
                    Registering::Granted(_) | Registering::Asked => Registration::AtPeer,
                    Registering::Refused(why) => Registration::Refused(why),
                    Registering::No if session.services.served.end().is_some() => Registration::OfPeer,
                    Registering::No => Registration::None,
                },
                _ => Registration::None,
            };
            let refusal = match &a.stage {
                Stage::I1Sent(sent) => sent.refusal,
                Stage::I2Sent(sent) => sent.notified,
                _ => None,
            };
            let up = if let Stage::Up(session) = &a.stage { Some(session) } else { None };
            let relayed =
                up.and_then(|session| session.ways.ice.as_ref()).is_some_and(|ice| ice.is_relayed(a.path));
            let peer_sleeps = up.is_some_and(|session| session.dormancy.peer_sleeps());
            let (id, ours, peer, path) = (a.id, a.ours, a.peer, a.path);
            let esp_path = a.esp_by(path, self.config.udp_port, self.peers.quirks(peer));
            Description {
                id,
                ours,
                peer,
                path,
                esp_path,
                relayed,
                peer_sleeps,
                phase,
                child,
                refusal,
                registration,
            }
        })
    }

    /// Our first identity and the first association of which this is so: who tests us seals packets as we would.
    pub(crate) fn sealing(&self, of: impl Fn(&Association) -> bool) -> Option<(&Identity, &Association)> {
        Some((&self.locals.first()?.identity, self.associations.values().find(|a| of(a))?))
    }
}
