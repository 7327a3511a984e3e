//! NOTIFY (RFC 7401 sections 5.3.6 and 6.13). Owns its two directions; must never let one change a state: it may be a replay.

use dormouse_keying::{Discard, Failure};
use dormouse_sansio::{Carrier, Class, Path};
use dormouse_wire::hip::{Hit, Notification, NotifyType, Packet, PacketType, Param, ParamType};

use crate::association::{Association, Refusal, Stage};
use crate::exchange::{Around, Fate, Outcome, locate};
use crate::hit::Identity;
use crate::limits::{MAX_LOOKS, NOTIFY_AGAIN};
use crate::protect;

/// Length of the header of HIP (RFC 7401 section 5.1).
const HEADER_LEN: usize = 40;

/// Tells a peer why its packet was refused. Only to one whose puzzle was solved.
/// "To avoid certain types of attacks, a Responder SHOULD avoid sending a NOTIFICATION to any host with which it has not successfully
/// verified a puzzle solution." (RFC 7401 section 5.2.19)
pub(crate) fn send(peer: Hit, path: Path, around: &mut Around<'_>, kind: NotifyType) {
    send_with(peer, path, around, Notification { kind, data: Vec::new() });
}

/// The same about NATs and relays, to a host that is known.
/// "The Notification Data field for the error notifications SHOULD contain the HIP header of the rejected packet" (RFC 9028 section 5.10)
pub(crate) fn reject(peer: Hit, path: Path, packet: &Packet<'_>, around: &mut Around<'_>, kind: NotifyType) {
    let data = packet.as_bytes().get(..HEADER_LEN).unwrap_or_default().to_vec();
    send_with(peer, path, around, Notification { kind, data });
}

fn send_with(peer: Hit, path: Path, around: &mut Around<'_>, what: Notification) {
    if let Some(packet) = written(peer, what, around.identity) {
        around.outbox.push(path, Class::Timely, &packet);
    }
}

/// A NOTIFY that says nothing but its kind.
pub(crate) fn bare(peer: Hit, kind: NotifyType, identity: &Identity) -> Option<Vec<u8>> {
    written(peer, Notification { kind, data: Vec::new() }, identity)
}

fn written(peer: Hit, what: Notification, identity: &Identity) -> Option<Vec<u8>> {
    let mut draft = protect::draft(PacketType::Notify, identity.hit(), peer);
    draft.add(&Param::Notification(what));
    protect::finish_signed(draft, ParamType::HipSignature, identity)
}

/// A packet has a critical parameter that we do not know: an authentic sender learns it where it is known to be, once in a while.
/// "In general, if a HIP association exists between the sender and receiver of a packet causing an error condition, the receiver SHOULD
/// respond with a NOTIFY packet." (RFC 7401 section 4.3)
pub(crate) fn not_understood(
    association: &mut Association,
    packet: &Packet<'_>,
    kind: ParamType,
    around: &mut Around<'_>,
) {
    let (peer, path, now) = (association.peer, association.path, around.now);
    let Stage::Up(session) = &mut association.stage else { return };
    if session.caused.notified.allows(now, NOTIFY_AGAIN, 1)
        && protect::mac_is_right(packet, &session.agreed.keys.mac_in)
        && session.caused.notified.may(now, NOTIFY_AGAIN, 1)
    {
        send_unknown(peer, path, around, kind);
    }
}

/// Names a critical parameter that we do not know.
/// "Notification Data contains the 2-octet parameter type." (RFC 7401 section 5.2.19)
pub(crate) fn send_unknown(peer: Hit, path: Path, around: &mut Around<'_>, kind: ParamType) {
    let data = kind.code().to_be_bytes().to_vec();
    send_with(peer, path, around, Notification { kind: NotifyType::UnsupportedCriticalParameterType, data });
}

/// A keep-alive of a client of our relay that comes from elsewhere: its NAT has given it another port, and packets relayed to the old one are lost. An
/// UPDATE with ECHO_REQUEST_SIGNED goes to the new port. The packet may be a replay: the address changes only with the answer (RFC 8046 section
/// 5.4), and one such UPDATE waits at a time. It may be forged, and is looked at once in a while: where forged ones leave no room for a client's own,
/// its next UPDATE shows where it is.
fn kept_alive(association: &mut Association, packet: &Packet<'_>, path: Path, around: &mut Around<'_>) {
    let elsewhere = path != association.path && path.carrier == Carrier::HipUdp && around.seen.is_none();
    let Stage::Up(session) = &mut association.stage else { return };
    let asks = elsewhere && session.services.served.relays() && session.updates.outstanding.is_none();
    if asks
        && session.caused.looked.may(around.now, NOTIFY_AGAIN, MAX_LOOKS)
        && protect::signature_is_right(
            packet,
            ParamType::HipSignature,
            &session.agreed.identity,
            around.stats,
        )
    {
        locate::observed(association, path, around);
    }
}

const fn failure(kind: NotifyType) -> Failure {
    match kind {
        NotifyType::AuthenticationFailed
        | NotifyType::BlockedByPolicy
        | NotifyType::InvalidHit
        | NotifyType::HipMacFailed
        | NotifyType::EncryptionFailed => Failure::Authentication,
        NotifyType::NoDhProposalChosen
        | NotifyType::InvalidDhChosen
        | NotifyType::NoHipProposalChosen
        | NotifyType::InvalidHipCipherChosen
        | NotifyType::NoEspProposalChosen
        | NotifyType::InvalidEspTransformChosen
        | NotifyType::UnsupportedHitSuite => Failure::Proposal,
        _ => Failure::Other,
    }
}

/// "Unrecognized error types MUST be ignored, except that they SHOULD be logged." (RFC 7401 section 5.2.19)
/// "Notification Data in NOTIFICATION parameters where the Notify Message Type is in the status range MUST be ignored if not recognized."
/// (RFC 7401 section 5.2.19)
/// "If processed, any errors in a received NOTIFICATION parameter SHOULD be logged." (RFC 7401 section 6.13)
/// What a NOTIFY says is remembered while an I2 is unanswered: it is the reason that the user sees, if the exchange fails.
/// "Received errors MUST be considered only as informational, and the receiver SHOULD NOT change its HIP state [...] purely based on
/// the received NOTIFY message." (RFC 7401 section 6.13)
pub(crate) fn receive(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    around: &mut Around<'_>,
) -> Outcome {
    if matches!(packet.read(ParamType::Notification), Some(Param::Notification(n)) if !n.kind.is_error()) {
        // A keep-alive was for NATs on its way, and that an I2 has come changes nothing: it is sent again until the R2 comes.
        kept_alive(association, packet, path, around);
        return Ok(Fate::Lives);
    }
    let Stage::I2Sent(sent) = &mut association.stage else {
        return Err(Discard("a NOTIFY without an I2 that waits"));
    };
    let Some(Param::Notification(notification)) = packet.read(ParamType::Notification) else {
        return Err(Discard("a NOTIFY without NOTIFICATION"));
    };
    sent.looks_left = sent.looks_left.checked_sub(1).ok_or(Discard("too many NOTIFY packets"))?;
    if !protect::signature_is_right(packet, ParamType::HipSignature, &sent.agreed.identity, around.stats) {
        return Err(Discard("a NOTIFY with a wrong signature"));
    }
    let why = notification.kind.label().unwrap_or("the peer refused with an unknown notification");
    sent.notified = Some(Refusal { kind: failure(notification.kind), why });
    Ok(Fate::Lives)
}
