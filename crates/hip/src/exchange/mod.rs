//! The exchanges, one module each. Owns what moves an association from one state to the next; must never choose which association a
//! packet belongs to.

pub(crate) mod alive;
pub(crate) mod candidates;
pub(crate) mod close;
pub(crate) mod ice;
pub(crate) mod in_udp;
pub(crate) mod initiate;
pub(crate) mod keepalive;
pub(crate) mod locate;
pub(crate) mod multihome;
pub(crate) mod notify;
pub(crate) mod register;
pub(crate) mod rekey;
pub(crate) mod relay;
pub(crate) mod respond;
pub(crate) mod sleep;
pub(crate) mod update;

use std::collections::VecDeque;

use dormouse_keying::{ChildId, ChildSa, Discard, Event, Failure, Owner, SpiSource};
use dormouse_sansio::{Entropy, Instant, Path};
use dormouse_wire::hip::{Packet, Param, ParamType};

use crate::association::{Association, Retry, Session, Stage};
use crate::config::HostConfig;
use crate::hit::Identity;
use crate::limits::{MAX_ECHO, MAX_ECHOES};
use crate::outbox::Outbox;
use crate::peers::Peers;
use crate::relay::{Forwards, Seen};
use crate::stats::Stats;

/// What an exchange may use of its host.
pub(crate) struct Around<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a HostConfig,
    /// Ours.
    pub(crate) identity: &'a Identity,
    pub(crate) entropy: &'a mut dyn Entropy,
    pub(crate) spis: &'a mut dyn SpiSource,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) stats: &'a mut Stats,
    pub(crate) peers: &'a Peers,
    /// How many clients a rendezvous server, and a relay, may still take.
    pub(crate) clients_left: [usize; 2],
    /// What a relay of ours has told of the packet that is being looked at.
    pub(crate) seen: Option<Seen>,
    /// Whose data is passed on.
    pub(crate) forwards: &'a mut Forwards,
}

impl Around<'_> {
    pub(crate) fn order(&mut self, change: ChildSa) {
        self.events.push_back(Event::Child(change));
    }

    pub(crate) fn remove(&mut self, owner: Owner, child: ChildId) {
        self.order(ChildSa::Remove { owner, child });
    }
}

/// Whether an association goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Lives,
    /// It is to be forgotten; its events have been told.
    Ends,
}

/// A packet was dropped, or what became of the association.
pub(crate) type Outcome = Result<Fate, Discard>;

/// The answers to what a packet, or anyone on its way, wants back without a signature.
/// "The ECHO_REQUEST_UNSIGNED parameter MUST be responded to with an ECHO_RESPONSE_UNSIGNED parameter." (RFC 7401 section 5.2.21)
pub(crate) fn unsigned_echoes(packet: &Packet<'_>) -> Vec<Param> {
    let asked = packet.params().iter().filter(|p| p.kind == ParamType::EchoRequestUnsigned);
    let asked = asked.filter(|p| p.contents.len() <= MAX_ECHO).take(MAX_ECHOES);
    asked.map(|p| Param::Opaque(ParamType::EchoResponseUnsigned, p.contents.to_vec())).collect()
}

/// ESP ends: the pairs are removed, what is reserved goes back, and the SA is over for the node.
/// "When the system drops a HIP association, [...] the associated ESP SAs MUST also be dropped." (RFC 7402 section 6.7)
pub(crate) fn end_esp(
    association: &Association,
    session: &Session,
    around: &mut Around<'_>,
    why: &'static str,
) {
    let (installed, reserved) = session.children();
    let owner = association.owner();
    installed.into_iter().for_each(|child| around.remove(owner, child));
    reserved.into_iter().for_each(|spi| around.spis.release(spi));
    around.events.push_back(Event::Closed { owner, why });
}

/// Gives an association up, in any state: one event to the node.
pub(crate) fn give_up(association: &Association, around: &mut Around<'_>, why: &'static str) -> Fate {
    match &association.stage {
        Stage::Up(session) => end_esp(association, session, around, why),
        Stage::I2Sent(sent) => {
            around.spis.release(sent.child);
            failed(association, around, sent.notified.map_or(Failure::Timeout, |n| n.kind), why);
        }
        Stage::I1Sent(sent) => {
            let (kind, why) = sent.refusal.map_or((Failure::Timeout, why), |r| (r.kind, r.why));
            failed(association, around, kind, why);
        }
        Stage::Solving(_) => failed(association, around, Failure::Other, why),
        // It was told when ESP ended.
        Stage::Closing(_) | Stage::Closed(_) | Stage::Failed => {}
    }
    Fate::Ends
}

fn failed(association: &Association, around: &mut Around<'_>, kind: Failure, why: &'static str) {
    let (owner, peer) = (association.owner(), association.peer.to_string());
    around.events.push_back(Event::Failed { owner, peer, kind, why });
}

/// Acts on what is due.
pub(crate) fn handle_timeout(association: &mut Association, around: &mut Around<'_>) -> Fate {
    let (now, path) = (around.now, association.path);
    let due = |retry: &mut Retry, path: Path, outbox: &mut Outbox| {
        if retry.at > now {
            return true;
        }
        let again = retry.again(now);
        if again {
            outbox.push(path, retry.class, &retry.packet);
        }
        again
    };
    match &mut association.stage {
        Stage::I1Sent(sent) => {
            // "Furthermore, upon timeout, the implementation MUST refrain from sending the same I1 packet to multiple addresses." (RFC 7401
            // section 6.6.1)
            // "Upon timeout, the sender SHOULD retransmit the I1 packet and restart the timer, up to a maximum of I1_RETRIES_MAX tries."
            // (RFC 7401 section 6.6)
            if sent.retry.at <= now {
                sent.paths.rotate_left(1);
                association.path = sent.paths.first().copied().unwrap_or(path);
            }
            if !due(&mut sent.retry, association.path, around.outbox) {
                return give_up(association, around, "no answer to the I1");
            }
        }
        Stage::Solving(_) => return initiate::solve(association, around),
        Stage::I2Sent(sent) => {
            // "The sender SHOULD retransmit the I2 packet upon a timeout and restart the timer, up to a maximum of I2_RETRIES_MAX tries."
            // (RFC 7401 section 6.8)
            if !due(&mut sent.retry, path, around.outbox) {
                let why = sent.notified.map_or("no answer to the I2", |n| n.why);
                return give_up(association, around, why);
            }
        }
        Stage::Closing(closing) => {
            let is_due = closing.retry.at <= now;
            if !due(&mut closing.retry, path, around.outbox) {
                return Fate::Ends;
            }
            if is_due {
                close::again(closing, around);
            }
        }
        Stage::Closed(closed) => {
            if closed.until <= now {
                return Fate::Ends;
            }
        }
        Stage::Up(session) if session.is_over(now) => {
            return close::begin(association, around, close::OVER);
        }
        Stage::Up(_) => return update::handle_timeout(association, around),
        Stage::Failed => return Fate::Ends,
    }
    Fate::Lives
}
