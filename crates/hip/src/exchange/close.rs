//! The end of an association (RFC 7401 sections 5.3.7, 5.3.8, 6.14 and 6.15). Owns CLOSE and CLOSE_ACK.

use dormouse_keying::Discard;
use dormouse_sansio::{Class, Path};
use dormouse_wire::hip::{Hit, Packet, PacketType, Param, ParamType};

use crate::association::{Agreed, Association, Closed, Closing, Retry, Stage};
use crate::exchange::{Around, Fate, Outcome, end_esp, give_up, ice, unsigned_echoes};
use crate::limits::{CLOSED_FOR, MAX_ECHO};
use crate::protect;
use crate::quirks::Quirk;

/// Why an association ends that has lasted for as long as the configuration permits.
pub(crate) const OVER: &str = "its lifetime is over";

/// Ends an association: its ESP stops at once, and the peer gets a CLOSE.
/// "The sender MUST include an ECHO_REQUEST_SIGNED used to validate CLOSE_ACK received in response, and both a HIP_MAC and a signature"
/// (RFC 7401 section 5.3.7)
pub(crate) fn begin(association: &mut Association, around: &mut Around<'_>, why: &'static str) -> Fate {
    let session = match core::mem::replace(&mut association.stage, Stage::Failed) {
        Stage::Up(session) => session,
        before => {
            association.stage = before;
            return give_up(association, around, why);
        }
    };
    end_esp(association, &session, around, why);
    let relay = session
        .ways
        .ice
        .as_ref()
        .map(|ice| ice.relay)
        .filter(|relay| relay.remote != association.path.remote);
    let agreed = session.agreed;
    let mut nonce = [0; 16];
    around.entropy.fill(&mut nonce);
    let (ours, peer) = (association.ours, association.peer);
    let Some(packet) =
        echo(PacketType::Close, ParamType::EchoRequestSigned, (ours, peer), &nonce, &agreed, around)
    else {
        return Fate::Ends;
    };
    around.outbox.push(association.path, Class::Timely, &packet);
    if around.peers.quirks(peer).has(Quirk::CloseAckIgnored) {
        return Fate::Ends;
    }
    let retry = Retry::new(packet, Class::Timely, around.now, &around.config.timing);
    association.stage = Stage::Closing(Box::new(Closing { retry, agreed, nonce, relay }));
    Fate::Lives
}

/// A CLOSE that is not answered by a direct way is sent again by the peer's relay as well.
/// "[...] a host SHOULD resend the packet through the associated Data Relay Server of the peer" (RFC 9028 section 4.8)
pub(crate) fn again(closing: &Closing, around: &mut Around<'_>) {
    let way = closing.relay.and_then(|relay| ice::from_here(relay, around.peers));
    way.into_iter().for_each(|way| around.outbox.push(way, closing.retry.class, &closing.retry.packet));
}

fn echo(
    kind: PacketType,
    param: ParamType,
    (ours, peer): (Hit, Hit),
    data: &[u8],
    agreed: &Agreed,
    around: &Around<'_>,
) -> Option<Vec<u8>> {
    let mut draft = protect::draft(kind, ours, peer);
    draft.add(&Param::Opaque(param, data.to_vec()));
    protect::finish(draft, &agreed.keys.mac_out, around.identity)
}

/// Whether a packet is the peer's.
/// "The authenticity of the CLOSE message is verified using both HIP_MAC and SIGNATURE." (RFC 7401 section 6.14)
fn is_authentic(packet: &Packet<'_>, agreed: &Agreed, around: &mut Around<'_>) -> Result<(), Discard> {
    if !protect::mac_is_right(packet, &agreed.keys.mac_in) {
        around.stats.bad_macs += 1;
        return Err(Discard("a wrong MAC"));
    }
    if !protect::signature_is_right(packet, ParamType::HipSignature, &agreed.identity, around.stats) {
        return Err(Discard("a wrong signature"));
    }
    Ok(())
}

/// A CLOSE: answered in every state that has keys.
/// "The receiver peer MUST reply with a CLOSE_ACK containing an ECHO_RESPONSE_SIGNED corresponding to the received ECHO_REQUEST_SIGNED."
/// (RFC 7401 section 5.3.7)
/// "The sender MUST include both an HMAC and signature" (RFC 7401 section 5.3.8)
/// "This processing applies whether or not the HIP association state is CLOSING, in order to handle simultaneous CLOSE messages from
/// both ends that cross in flight." (RFC 7401 section 6.14)
/// What came by the relay is answered by it: the direct way may be gone.
pub(crate) fn close(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    around: &mut Around<'_>,
) -> Outcome {
    let (agreed, relay) = match &association.stage {
        Stage::Up(session) => (&session.agreed, session.ways.ice.as_ref().map(|ice| ice.relay)),
        Stage::Closing(closing) => (&closing.agreed, closing.relay),
        Stage::Closed(closed) => (&closed.agreed, closed.relay),
        _ => return Err(Discard("a CLOSE before the association is established")),
    };
    let nonce = packet.find(ParamType::EchoRequestSigned).map_or(&[][..], |p| p.contents);
    if nonce.len() > MAX_ECHO {
        return Err(Discard("an echo that is too long"));
    }
    is_authentic(packet, agreed, around)?;
    let hits = (association.ours, association.peer);
    let ack = echo(PacketType::CloseAck, ParamType::EchoResponseSigned, hits, nonce, agreed, around);
    if let Some(ack) = ack.and_then(|ack| protect::append(&ack, &unsigned_echoes(packet))) {
        let relayed = relay.is_some_and(|relay| relay.remote == path.remote);
        around.outbox.push(if relayed { path } else { association.path }, Class::Timely, &ack);
    }
    let until = around.now + CLOSED_FOR;
    let agreed = match core::mem::replace(&mut association.stage, Stage::Failed) {
        Stage::Up(session) => {
            end_esp(association, &session, around, "the peer closed the association");
            session.agreed
        }
        Stage::Closing(closing) => closing.agreed,
        Stage::Closed(closed) => {
            // It ends when it would have ended.
            association.stage = Stage::Closed(closed);
            return Ok(Fate::Lives);
        }
        _ => return Ok(Fate::Ends),
    };
    association.stage = Stage::Closed(Box::new(Closed { agreed, until, relay }));
    Ok(Fate::Lives)
}

/// A CLOSE_ACK: the association is forgotten.
/// "The receiver peer MUST validate the ECHO_RESPONSE_SIGNED and validate both the HIP_MAC and the signature if the receiver has state for
/// a HIP association." (RFC 7401 section 5.3.8)
pub(crate) fn close_ack(
    association: &mut Association,
    packet: &Packet<'_>,
    around: &mut Around<'_>,
) -> Outcome {
    let Stage::Closing(closing) = &association.stage else {
        return Err(Discard("a CLOSE_ACK that is not waited for"));
    };
    let echoed = packet.find(ParamType::EchoResponseSigned).is_some_and(|p| p.contents == closing.nonce);
    if !echoed {
        return Err(Discard("a CLOSE_ACK to another CLOSE"));
    }
    is_authentic(packet, &closing.agreed, around)?;
    Ok(Fate::Ends)
}
