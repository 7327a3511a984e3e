//! UPDATE (RFC 7401 sections 5.3.5, 6.11 and 6.12): its sequence, acknowledgement and retransmission. Owns which parts one has, rekeying
//! ([`super::rekey`]) and addresses ([`super::locate`]); must never have two of ours on their way.
//!
//! One UPDATE of ours is outstanding at a time. When there is more to say, a new one with all that is not acknowledged takes its
//! place: "a host MUST NOT generate new UPDATEs while it has an outstanding ESP SA update request, unless it is restarting the update
//! process" (RFC 7402 section 6.8).

use dormouse_keying::Discard;
use dormouse_sansio::{Class, Path};
use dormouse_wire::hip::{DhValue, EspInfo, Packet, PacketType, Param, ParamType};

use crate::association::{Association, Outstanding, Retry, Session, Stage};
use crate::exchange::{Around, Fate, Outcome, close, locate, rekey};
use crate::limits::{MAX_ECHO, SILENCE};
use crate::protect;

/// Acts on what is due in an established association.
pub(crate) fn handle_timeout(association: &mut Association, around: &mut Around<'_>) -> Fate {
    let (now, owner) = (around.now, association.owner());
    let Stage::Up(session) = &mut association.stage else { return Fate::Lives };
    session.r2.take_if(|r2| r2.until <= now);
    if let Some((old, _)) = session.retiring.take_if(|(_, at)| *at <= now) {
        around.remove(owner, old);
    }
    if session.silent.take_if(|since| *since + SILENCE <= now).is_some() && session.outstanding.is_none() {
        ask(association, around);
        return Fate::Lives;
    }
    let Some(outstanding) = session.outstanding.as_mut().filter(|o| o.retry.at <= now) else {
        return Fate::Lives;
    };
    if outstanding.retry.again(now) {
        around.outbox.push(outstanding.to, outstanding.retry.class, &outstanding.retry.packet);
        return Fate::Lives;
    }
    if session.candidate.take().is_some() && session.rekey.is_none() && !session.announcing {
        // The peer is not where it said: where it was before still counts.
        session.outstanding = None;
        return Fate::Lives;
    }
    // "If no acknowledgment is received from the peer after UPDATE_RETRY_MAX times, the HIP association is considered to be broken"
    // (RFC 7401 section 6.11)
    close::begin(association, around, "the peer does not answer")
}

/// An UPDATE that says nothing new: the peer acknowledges it if it still has the association.
fn ask(association: &mut Association, around: &mut Around<'_>) {
    send(association, None, None, around);
    if let Stage::Up(session) = &mut association.stage {
        session.outstanding = session.outstanding.take().map(|o| Outstanding { retry: o.retry.hasty(), ..o });
    }
}

/// An UPDATE of the peer, which came by `path`.
/// "The system MUST verify the HIP_MAC in the UPDATE packet. If the verification fails, the packet MUST be dropped." (RFC 7401
/// section 6.12.1) The signature is for middleboxes: "The system MAY verify the SIGNATURE in the UPDATE packet."
pub(crate) fn receive(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    around: &mut Around<'_>,
) -> Outcome {
    let Stage::Up(session) = &mut association.stage else {
        return Err(Discard("an UPDATE without an association"));
    };
    if !protect::mac_is_right(packet, &session.agreed.keys.mac_in) {
        around.stats.bad_macs += 1;
        return Err(Discard("an UPDATE with a wrong MAC"));
    }
    let seq = match packet.read(ParamType::Seq) {
        Some(Param::Seq(id)) => Some(id),
        _ => None,
    };
    let acks = match packet.read(ParamType::Ack) {
        Some(Param::Ack(ids)) => ids,
        _ => Vec::new(),
    };
    // The peer is established: its I2 will not come again.
    session.r2 = None;
    let acked = session.outstanding.as_ref().is_some_and(|o| acks.contains(&o.id));
    // "If no match is found or if the ACK does not acknowledge a new UPDATE, then either the packet MUST be dropped if no SEQ parameter is
    // present" (RFC 7401 section 6.12.2)
    if seq.is_none() && !acked {
        return Err(Discard("an UPDATE that acknowledges nothing"));
    }
    if acked {
        session.outstanding = None;
        session.announcing = false;
        if let Some(rekey) = &mut session.rekey {
            rekey.acked = true;
        }
        locate::verified(association, packet, around);
        rekey::advance(association, around);
    }
    match seq {
        Some(id) => sequenced(association, packet, path, id, around),
        None => Ok(Fate::Lives),
    }
}

/// The part of an UPDATE that wants an answer.
fn sequenced(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    id: u32,
    around: &mut Around<'_>,
) -> Outcome {
    let to = association.path;
    let Stage::Up(session) = &mut association.stage else { return Ok(Fate::Lives) };
    if let Some((last, reply)) = session.reply.as_ref().filter(|(last, _)| *last == id) {
        // "The system MUST acknowledge, again, such (apparent) UPDATE message retransmissions" (RFC 7401 section 6.12.1)
        debug_assert!(*last == id);
        let to = session.candidate.as_ref().map_or(to, |c| c.path);
        around.outbox.push(to, Class::Timely, reply);
        return Ok(Fate::Lives);
    }
    // Ids are compared "with respect to a circular sequence number space" (RFC 7401 section 6.12).
    let ahead = id.wrapping_sub(session.expected);
    if ahead > u32::MAX / 2 {
        return Err(Discard("an UPDATE that was processed before"));
    }
    let (rekeyed, moved) = (rekey::read(packet, session)?, locate::read(packet, path, association.path));
    session.expected = id.wrapping_add(1);
    if let Some((info, public)) = rekeyed {
        rekey::take(association, info, public, around);
    }
    if let Some(candidate) = moved {
        locate::take(association, candidate, around);
    }
    let echo = packet.find(ParamType::EchoRequestSigned).map(|p| p.contents);
    answer(association, id, echo.filter(|e| e.len() <= MAX_ECHO), around);
    rekey::advance(association, around);
    Ok(Fate::Lives)
}

/// Acknowledges an UPDATE: with what we have to say ourselves, or alone.
fn answer(association: &mut Association, id: u32, echo: Option<&[u8]>, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    let unsent = session.outstanding.is_none();
    let more = unsent && (session.wants_rekey() || session.candidate.is_some() || session.announcing);
    if more {
        send(association, Some(id), echo, around);
        return;
    }
    let mut draft = protect::draft(PacketType::Update, association.ours, association.peer);
    draft.add(&Param::Ack(vec![id]));
    if let Some(echo) = echo {
        draft.add(&Param::Opaque(ParamType::EchoResponseSigned, echo.to_vec()));
    }
    let Some(packet) = protect::finish(draft, &session.agreed.keys.mac_out, around.identity) else { return };
    around.outbox.push(association.path, Class::Urgent, &packet);
    session.reply = Some((id, packet));
}

impl Session {
    /// Our half of a rekeying is to be sent, or sent again.
    pub(crate) fn wants_rekey(&self) -> bool {
        self.rekey.as_ref().is_some_and(|r| !r.acked)
    }
}

/// Sends an UPDATE with all that the peer has not acknowledged, in place of the outstanding one. `ack`: the peer's, which it
/// acknowledges.
pub(crate) fn send(
    association: &mut Association,
    ack: Option<u32>,
    echo: Option<&[u8]>,
    around: &mut Around<'_>,
) {
    let (ours, peer, path) = (association.ours, association.peer, association.path);
    let Stage::Up(session) = &mut association.stage else { return };
    let id = session.next_id;
    session.next_id = id.wrapping_add(1);
    let rekey = session.rekey.as_ref().filter(|r| !r.acked);
    let spi = session.child.spi();
    let unchanged = EspInfo { keymat_index: session.agreed.next, old_spi: spi, new_spi: spi };
    let mut draft = protect::draft(PacketType::Update, ours, peer);
    draft.add(&Param::EspInfo(rekey.map_or(unchanged, |r| r.ours)));
    if session.announcing {
        draft.add(&Param::LocatorSet(locate::ours(path, rekey.map_or(spi, |r| r.ours.new_spi))));
    }
    draft.add(&Param::Seq(id));
    if let Some(ack) = ack {
        draft.add(&Param::Ack(vec![ack]));
    }
    if let Some(key) = rekey.and_then(|r| r.key.as_ref()) {
        let value = DhValue { group: key.group().id(), public: key.public_value().to_vec() };
        draft.add(&Param::DiffieHellman(vec![value]));
    }
    if let Some(candidate) = &session.candidate {
        draft.add(&Param::Opaque(ParamType::EchoRequestSigned, candidate.nonce.to_vec()));
    }
    if let Some(echo) = echo {
        draft.add(&Param::Opaque(ParamType::EchoResponseSigned, echo.to_vec()));
    }
    let Some(packet) = protect::finish(draft, &session.agreed.keys.mac_out, around.identity) else { return };
    let urgent = session.announcing || session.candidate.is_some() || ack.is_some();
    let class = if urgent { Class::Urgent } else { Class::Upkeep };
    let to = session.candidate.as_ref().map_or(path, |c| c.path);
    around.outbox.push(to, class, &packet);
    if let Some(ack) = ack {
        session.reply = Some((ack, packet.clone()));
    }
    let retry = Retry::new(packet, class, around.now, &around.config.timing);
    session.outstanding = Some(Outstanding { id, retry, to });
}
