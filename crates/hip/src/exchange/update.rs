//! UPDATE (RFC 7401 sections 5.3.5, 6.11 and 6.12): its sequence, acknowledgement and retransmission. Owns which parts one has, rekeying
//! ([`super::rekey`]) and addresses ([`super::locate`]); must never have two of ours on their way.
//!
//! "Therefore, any new UPDATEs that depend on a previous outstanding UPDATE being successfully received and acknowledged MUST be postponed
//! until reception of the necessary ACK(s) occurs." (RFC 7401 section 6.11)
//! One UPDATE of ours is outstanding at a time. When there is more to say, a new one with all that is not acknowledged takes its
//! place: "a host MUST NOT generate new UPDATEs while it has an outstanding ESP SA update request, unless it is restarting the update
//! process" (RFC 7402 section 6.8).

use core::net::IpAddr;

use dormouse_keying::Discard;
use dormouse_sansio::{Carrier, Class, Path};
use dormouse_wire::hip::{DhValue, Draft, EspInfo, Hit, Packet, PacketType, Param, ParamType};

use crate::association::{Association, OurAddress, Outstanding, Registering, Retry, Session, Stage};
use crate::exchange::sleep::Told;
use crate::exchange::{
    Around, Fate, Outcome, alive, close, ice, in_udp, keepalive, locate, multihome, register, rekey, relay,
    sleep, unsigned_echoes,
};
use crate::limits::{MAX_ECHO, REKEY_BURST, REKEY_EVERY};
use crate::protect;
use crate::quirks::Quirk;

/// Acts on what is due in an established association.
pub(crate) fn handle_timeout(association: &mut Association, around: &mut Around<'_>) -> Fate {
    let (now, owner) = (around.now, association.owner());
    let Stage::Up(session) = &mut association.stage else { return Fate::Lives };
    session.life.r2.take_if(|r2| r2.until <= now);
    if let Some((old, _)) = session.esp.retiring.take_if(|(_, at)| *at <= now) {
        around.remove(owner, old);
    }
    if sleep::goes_on(association, around) {
        return Fate::Lives;
    }
    ice::handle_timeout(association, around);
    in_udp::handle_timeout(association, around);
    keepalive::handle_timeout(association, around);
    relay::renew(association, around);
    register::renew(association, around);
    alive::check_if_due(association, around);
    let Stage::Up(session) = &mut association.stage else { return Fate::Lives };
    let Some(outstanding) = session.updates.outstanding.as_mut().filter(|o| o.retry.at <= now) else {
        return Fate::Lives;
    };
    if outstanding.retry.again(now) {
        let (class, packet) = (outstanding.retry.class, &outstanding.retry.packet);
        around.outbox.push(outstanding.to, class, packet);
        if let Some(ice) = session.ways.ice.as_ref().filter(|ice| !ice.is_relayed(outstanding.to)) {
            // "[...] a host SHOULD resend the packet through the associated Data Relay Server of the peer" (RFC 9028 section 4.8) Who of the
            // two is behind the relay finds the other there as well.
            ice.through_relay(around.peers)
                .into_iter()
                .for_each(|way| around.outbox.push(way, class, packet));
        }
        if !session.place.ours.is_acknowledged() {
            // "The mobile host sending an UPDATE to the peer, and not receiving an ACK, MAY resend the UPDATE to an RVS of the peer, if
            // such a server is known." (RFC 8046 section 3.2.3) It may have moved too.
            for way in around.peers.servers(association.peer, around.config.udp_port) {
                around.outbox.push(way, class, packet);
            }
        }
        return Fate::Lives;
    }
    if !session.place.ours.is_searched() && session.place.candidate.take().is_some() {
        // The peer is not where it said: where it was before still counts, and gets what else there was to say.
        session.updates.outstanding = None;
        sleep::asks_on(association, around);
        sleep::end_of_peers(association, around);
        say_the_rest(association, around);
        if matches!(&association.stage, Stage::Up(session) if session.place.esp_stays.is_some()) {
            // ESP waits for an answer by the way in use.
            alive::check(association, false, around);
        }
        return Fate::Lives;
    }
    if multihome::next(association, around) {
        return Fate::Lives;
    }
    // "[...] the state machine SHOULD move from state ESTABLISHED to state CLOSING as depicted in Section 4.4.4." (RFC 7401 section 6.11)
    // "If no acknowledgment is received from the peer after UPDATE_RETRY_MAX times, the HIP association is considered to be broken"
    // (RFC 7401 section 6.11)
    close::begin(association, around, "the peer does not answer")
}

/// An UPDATE of the peer, which came by `path` or, through a rendezvous server, from there `via` the server.
/// "The system MUST verify the HIP_MAC in the UPDATE packet. If the verification fails, the packet MUST be dropped." (RFC 7401
/// section 6.12.1) The signature is for middleboxes: "The system MAY verify the SIGNATURE in the UPDATE packet."
/// "The HIP_MAC verification (next step) MUST NOT be skipped." (RFC 7401 section 6.12.1)
pub(crate) fn receive(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    via: Option<IpAddr>,
    around: &mut Around<'_>,
) -> Outcome {
    let Stage::Up(session) = &mut association.stage else {
        return Err(Discard("an UPDATE without an association"));
    };
    if !protect::mac_is_right(packet, &session.agreed.keys.mac_in) {
        around.stats.bad_macs += 1;
        return Err(Discard("an UPDATE with a wrong MAC"));
    }
    if let Some(Param::HostId(named)) = packet.read(ParamType::HostId) {
        // "If the UPDATE includes the HOST_ID parameter, the receiving host MUST verify that the HOST_ID corresponds to the HOST_ID that was used
        // to establish the HIP association, and the HIP_SIGNATURE MUST verify with the public key associated with this HOST_ID parameter."
        // (RFC 8046 section 4.3)
        let peer = &session.agreed.identity;
        let same = (named.algorithm, &named.key) == (peer.host_id().algorithm, &peer.host_id().key);
        if !same || !protect::signature_is_right(packet, ParamType::HipSignature, peer, around.stats) {
            return Err(Discard("an UPDATE that names another identity"));
        }
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
    session.life.r2 = None;
    if let Some(outcome) = ice::receive(association, packet, path, (seq, &acks), around) {
        return outcome;
    }
    if let Some(outcome) = in_udp::receive(association, packet, path, (seq, &acks), around) {
        return outcome;
    }
    let Stage::Up(session) = &mut association.stage else { return Ok(Fate::Lives) };
    // "Hosts MUST implement the processing of ACK parameters with multiple SEQ sequence numbers even if they do not implement sending ACK
    // parameters with multiple SEQ sequence numbers." (RFC 7401 section 5.3.5)
    let acked = session.updates.outstanding.as_ref().is_some_and(|o| acks.contains(&o.id));
    // "If no match is found or if the ACK does not acknowledge a new UPDATE, then either the packet MUST be dropped if no SEQ parameter is
    // present" (RFC 7401 section 6.12.2)
    if seq.is_none() && !acked {
        return Err(Discard("an UPDATE that acknowledges nothing"));
    }
    // Anyone can repeat an old one.
    let is_new = seq.is_some_and(|id| is_ahead(session, id));
    if acked || is_new {
        alive::heard(association, around);
    }
    let Stage::Up(session) = &mut association.stage else { return Ok(Fate::Lives) };
    if acked {
        let said = session.updates.outstanding.take();
        let (sleep, rekeys) = said.map_or((false, false), |o| (o.sleep, o.rekey));
        let moved = !core::mem::take(&mut session.place.ours).is_acknowledged();
        // One that was begun by the peer while this UPDATE was under way is not in it.
        if let Some(rekey) = session.rekey.as_mut().filter(|_| rekeys) {
            rekey.acked = true;
        }
        register::answer_came(session, packet, true, around);
        session.services.relay.acknowledged(around.now);
        session.ways.ice.as_deref_mut().into_iter().for_each(ice::acknowledged);
        if around.config.relays.contains(&association.peer) {
            relay::learn(session, packet, path, around);
        }
        locate::verified(association, packet, around);
        rekey::advance(association, around);
        sleep::acknowledged(association, packet, Told { moved, sleep }, around);
        if moved {
            in_udp::begin(association, around);
        }
    }
    // "[...] and itself MUST NOT be acknowledged by a separate ACK parameter." (RFC 7401 section 5.3.5)
    let outcome = match seq {
        Some(id) => sequenced(association, packet, (path, via), id, around),
        None => Ok(Fate::Lives),
    };
    if acked {
        sleep::answered(association, packet, path, around);
    }
    sleep::end_of_peers(association, around);
    if acked {
        locate::answered(association, path, around);
        say_the_rest(association, around);
    }
    outcome
}

/// Nothing of ours is under way any more: what had to wait for that is said.
fn say_the_rest(association: &mut Association, around: &mut Around<'_>) {
    if matches!(&association.stage, Stage::Up(session) if session.updates.outstanding.is_none() && session.has_more())
    {
        send(association, None, around);
    }
}

/// "Hence, a wraparound after 2^32 updates has to be expected and MUST be handled accordingly." (RFC 7401 section 6.12)
/// Whether an UPDATE with this id was not processed before. Ids are compared "with respect to a circular sequence number space" (RFC 7401
/// section 6.12).
fn is_ahead(session: &Session, id: u32) -> bool {
    id.wrapping_sub(session.updates.expected) <= u32::MAX / 2
}

/// The part of an UPDATE that wants an answer.
/// "The presence of a SEQ parameter indicates that the receiver MUST acknowledge the UPDATE." (RFC 7401 section 5.3.5)
/// "[...] the receiver MUST keep track of which UPDATEs were previously processed, so that duplicates or retransmissions are ACKed and not
/// reprocessed." (RFC 7401 section 6.12)
fn sequenced(
    association: &mut Association,
    packet: &Packet<'_>,
    (path, via): (Path, Option<IpAddr>),
    id: u32,
    around: &mut Around<'_>,
) -> Outcome {
    let (to, owner, hits) = (association.path, association.owner(), (association.ours, association.peer));
    let Stage::Up(session) = &mut association.stage else { return Ok(Fate::Lives) };
    if let Some((last, reply)) = session.updates.reply.as_ref().filter(|(last, _)| *last == id) {
        // "[...] the host receiving the LOCATOR_SET MUST be prepared to handle the possibility of duplicate LOCATOR_SETs sent to more than
        // one of the host's addresses." (RFC 8046 section 5.3)
        // "As a result, the host MUST detect and avoid reprocessing a LOCATOR_SET parameter that is redundant with a LOCATOR_SET parameter
        // that has been recently received and processed." (RFC 8046 section 5.3)
        // "The system MUST acknowledge, again, such (apparent) UPDATE message retransmissions" (RFC 7401 section 6.12.1)
        debug_assert!(*last == id);
        let to = session.place.candidate.as_ref().filter(|_| path != to).map_or(to, |c| c.path);
        around.outbox.push(to, Class::Timely, reply);
        return Ok(Fate::Lives);
    }
    if !is_ahead(session, id) {
        return Err(Discard("an UPDATE that was processed before"));
    }
    let bare = around.peers.quirks(association.peer).has(Quirk::KnownParametersOnly);
    // "A host SHOULD first process the ESP_INFO before the LOCATOR_SET" (RFC 8046 section 5.3)
    let rekeyed = if bare { None } else { rekey::read(packet, session)? };
    let permitted = relay::asked(session, packet, around.now)?;
    // What is not answered now comes again, and finds all as it is.
    let begins = rekeyed.is_some() && session.rekey.is_none();
    if begins && !session.caused.rekeyed.allows(around.now, REKEY_EVERY, REKEY_BURST) {
        return Err(Discard("more new ESP keys than are made"));
    }
    session.caused.answers(around.now)?;
    around.stats.updates += 1;
    if session.life.is_spent(around.now) && sleep::announces(packet) {
        // It would last for as long as the peer goes to sleep again and again.
        return Ok(close::begin(association, around, close::OVER));
    }
    if begins {
        session.caused.rekeyed.may(around.now, REKEY_EVERY, REKEY_BURST);
        around.stats.rekeyed += 1;
    }
    let moved = locate::read(packet, path, association.path);
    // Its NAT may have changed what it cannot see: an answer where it was would be lost.
    let rebound = around.seen.is_none() && path != association.path && path.carrier == Carrier::HipUdp;
    // What is relayed for a relay itself is none of its ways.
    let relay = around.seen.map(|seen| seen.relay);
    let relay = relay.filter(|_| !around.config.relays.contains(&association.peer));
    let behind = relay.is_some() && relay != association.relay;
    let moved = moved.or((rebound || behind).then_some(path));
    let echo = packet.find(ParamType::EchoRequestSigned).map(|p| p.contents);
    let echo = echo.filter(|e| e.len() <= MAX_ECHO);
    let here = path == association.path;
    let is_back =
        moved.is_none() && (locate::is_back(session, packet, here) || locate::refutes(session, here));
    let crosses = echo.is_some() && locate::waits_for_its_answer(session, hits, around);
    let asked_at = (is_back && crosses).then_some(path);
    if is_back && !crosses {
        // What waits was for there, and is said with the answer, or after it.
        (session.place.candidate, session.updates.outstanding) = (None, None);
    }
    // A client of ours is not where another relay is: each could be made to send to the other for ever.
    let moved =
        moved.filter(|_| !session.services.served.relays() || packet.find(ParamType::RelayTo).is_none());
    let asked = register::asked(packet);
    let is_client = session.services.served.end().is_some_and(|at| at > around.now);
    register::answer_came(session, packet, false, around);
    multihome::learn(session, packet, moved.unwrap_or(association.path));
    // "The system MUST record the Update ID in the received SEQ parameter, for replay protection." (RFC 7401 section 6.12.1)
    session.updates.expected = id.wrapping_add(1);
    session.updates.outstanding.iter_mut().for_each(|o| o.retry.renew(around.now, &around.config.timing));
    sleep::is_there(session, owner, around);
    if let Some((info, public)) = rekeyed {
        rekey::take(association, info, public, around);
    }
    ice::learn(association, packet, around);
    if let (Some(candidate), Stage::Up(session)) = (moved, &association.stage)
        && !(echo.is_some() && locate::waits_for_its_answer(session, hits, around))
    {
        locate::take(association, candidate, relay, around);
    }
    let mut said = Vec::new();
    if let Stage::Up(session) = &mut association.stage {
        if let Some(asked) = &asked {
            let decided = register::decide(
                asked,
                (association.peer, path),
                &session.services.served,
                is_client,
                around,
            );
            session.services.served.change(&decided.1);
            said = decided.0;
        }
        said.extend(relay::tell(&session.services.served, asked.is_some(), path, around.peers));
        for wanted in &permitted {
            // Data for this host itself comes by its own associations.
            let here = around.peers.ours().contains(&wanted.peer_address.to_canonical());
            if here || !around.forwards.permit(around.now, association.id, wanted) {
                tracing::debug!(?wanted, "a permission for which there is no room, or of what is another's");
            }
        }
    }
    let held = sleep::asked(association, packet, around);
    said.extend(echo.map(|echo| Param::Opaque(ParamType::EchoResponseSigned, echo.to_vec())));
    said.extend(held);
    answer(association, &Answer { id, said, echoes: unsigned_echoes(packet), via, asked_at }, around);
    rekey::advance(association, around);
    Ok(Fate::Lives)
}

/// What the acknowledgement of an UPDATE has.
pub(crate) struct Answer {
    /// The peer's.
    id: u32,
    /// What answers its question, REG_RESPONSE, REG_FAILED, REG_FROM, RELAYED_ADDRESS, DORMANCY_HELD.
    said: Vec<Param>,
    /// What it wants back without a signature.
    echoes: Vec<Param>,
    /// The rendezvous server through which it came.
    via: Option<IpAddr>,
    /// The way by which it asked where we are, if we ask by another one at the same time.
    asked_at: Option<Path>,
}

impl Answer {
    /// Whether it answers an announced sleep.
    fn holds(&self) -> bool {
        self.said.iter().any(|param| param.kind() == ParamType::DormancyHeld)
    }

    /// Adds what stands behind the signature.
    /// "A host receiving an UPDATE packet MUST be prepared to process the FROM and RVS_HMAC parameters and MUST include a VIA_RVS parameter
    /// in the UPDATE reply that contains the ACK of the UPDATE SEQ." (RFC 8046 section 3.2.3)
    fn unsigned(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let via = self.via.map(locate::via_rvs);
        protect::append(packet, &self.echoes.iter().cloned().chain(via).collect::<Vec<_>>())
    }
}

/// Adds parameters in the order of their types.
fn add_sorted(draft: &mut Draft, params: impl IntoIterator<Item = Param>) {
    let mut params: Vec<Param> = params.into_iter().collect();
    params.sort_by_key(|param| param.kind().code());
    params.iter().for_each(|param| draft.add(param));
}

/// Acknowledges an UPDATE: with what we have to say ourselves, or alone.
/// "In general, UPDATEs carrying SEQ SHOULD be ACKed upon completion of the processing of the UPDATE." (RFC 7401 section 5.3.5)
fn answer(association: &mut Association, answer: &Answer, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    if session.updates.outstanding.is_none() && (session.has_more() || session.place.candidate.is_some()) {
        send(association, Some(answer), around);
        return;
    }
    let mut draft = protect::draft(PacketType::Update, association.ours, association.peer);
    add_sorted(&mut draft, [Param::Ack(vec![answer.id])].into_iter().chain(answer.said.iter().cloned()));
    let packet = protect::finish(draft, &session.agreed.keys.mac_out, around.identity);
    let Some(packet) = packet.and_then(|p| answer.unsigned(&p)) else { return };
    let to = answer.asked_at.unwrap_or(session.place.candidate.as_ref().map_or(association.path, |c| c.path));
    around.outbox.push(to, Class::Urgent, &packet);
    session.updates.reply = Some((answer.id, packet));
}

impl Session {
    /// Our half of a rekeying is to be sent, or sent again.
    pub(crate) fn wants_rekey(&self) -> bool {
        self.rekey.as_ref().is_some_and(|r| !r.acked)
    }

    /// Something is to be said that the peer has not acknowledged, or asked after a sleep of ours; a question where it is stands in its candidate.
    fn has_more(&self) -> bool {
        let asks = self.services.registration == Registering::Asked
            || self.services.relay.wants()
            || self.dormancy.revives();
        asks || !self.place.ours.is_acknowledged() || self.wants_rekey()
    }
}

/// The beginning of an UPDATE that stands beside the ordered ones and asks for an answer by the way that it takes, with the answer to a question
/// of the peer's (its id and what it asks to have back); its own id, and what it asks to have back.
pub(crate) fn question(
    next_id: &mut u32,
    (ours, peer): (Hit, Hit),
    answer: Option<(u32, &[u8])>,
    around: &mut Around<'_>,
) -> (Draft, u32, [u8; 16]) {
    let mut nonce = [0; 16];
    around.entropy.fill(&mut nonce);
    let id = *next_id;
    *next_id = id.wrapping_add(1);
    let mut draft = protect::draft(PacketType::Update, ours, peer);
    draft.add(&Param::Seq(id));
    answer.iter().for_each(|(id, _)| draft.add(&Param::Ack(vec![*id])));
    draft.add(&Param::Opaque(ParamType::EchoRequestSigned, nonce.to_vec()));
    answer
        .iter()
        .for_each(|(_, echo)| draft.add(&Param::Opaque(ParamType::EchoResponseSigned, echo.to_vec())));
    (draft, id, nonce)
}

/// Sends an UPDATE with all that the peer has not acknowledged, in place of the outstanding one, and with the answer to the peer's.
/// "The UPDATE packet MUST carry an ESP_INFO and MAY carry a DIFFIE_HELLMAN parameter." (RFC 7402 section 5.3.1)
/// "The acknowledgment UPDATE packet MUST carry an ESP_INFO and MAY carry a DIFFIE_HELLMAN parameter." (RFC 7402 section 5.3.2)
pub(crate) fn send(association: &mut Association, answer: Option<&Answer>, around: &mut Around<'_>) {
    let (ours, peer, path) = (association.ours, association.peer, association.path);
    let Stage::Up(session) = &mut association.stage else { return };
    let to = session.place.candidate.as_ref().map_or(path, |c| c.path);
    let id = session.updates.next_id;
    session.updates.next_id = id.wrapping_add(1);
    let rekey = session.rekey.as_ref().filter(|r| !r.acked);
    let rekeys = rekey.is_some();
    let spi = session.esp.child.spi();
    let unchanged = EspInfo { keymat_index: session.agreed.next, old_spi: spi, new_spi: spi };
    let mut said = vec![Param::Seq(id)];
    if !around.peers.quirks(peer).has(Quirk::KnownParametersOnly) {
        said.push(Param::EspInfo(rekey.map_or(unchanged, |r| r.ours)));
    }
    if !session.place.ours.is_acknowledged() {
        said.push(Param::LocatorSet(locate::ours(to, rekey.map_or(spi, |r| r.ours.new_spi), around)));
    }
    if let Some(key) = rekey.and_then(|r| r.key.as_ref()) {
        let value = DhValue { group: key.group().id(), public: key.public_value().to_vec() };
        said.push(Param::DiffieHellman(vec![value]));
    }
    if let Some(candidate) = &session.place.candidate {
        said.push(Param::Opaque(ParamType::EchoRequestSigned, candidate.nonce.to_vec()));
    }
    if session.services.registration == Registering::Asked {
        said.push(register::request(around.config, register::wanted(around.config, peer)));
    }
    said.extend(session.services.relay.ask());
    said.extend(ice::told(session, around));
    if let Some(answer) = answer {
        said.push(Param::Ack(vec![answer.id]));
        said.extend_from_slice(&answer.said);
    }
    // With the answer to a sleep of the peer's, ours is announced by the next one.
    let sleeping = session.dormancy.said().filter(|_| answer.is_none_or(|a| !a.holds()));
    let sleep = sleeping.is_some();
    said.extend(sleeping);
    let mut draft = protect::draft(PacketType::Update, ours, peer);
    add_sorted(&mut draft, said);
    let mut packet = protect::finish(draft, &session.agreed.keys.mac_out, around.identity);
    if let Some(answer) = answer {
        packet = packet.and_then(|p| answer.unsigned(&p));
    }
    let Some(packet) = packet else { return };
    let urgent =
        !session.place.ours.is_acknowledged() || session.place.candidate.is_some() || answer.is_some();
    let class = if urgent { Class::Urgent } else { Class::Upkeep };
    // What a peer that sleeps has not asked for waits until it is awake.
    if answer.is_some() || !session.dormancy.peer_sleeps() {
        around.outbox.push(to, class, &packet);
    }
    if let Some(answer) = answer {
        session.updates.reply = Some((answer.id, packet.clone()));
    }
    let others = match &session.place.ours {
        OurAddress::Acknowledged | OurAddress::Announced => {
            !multihome::ways(session, path, around).is_empty()
        }
        OurAddress::Searched(_) => true,
        OurAddress::LastTried => false,
    };
    let retry = Retry::new(packet, class, around.now, &around.config.timing);
    let retry = if others { retry.at_most(multihome::TRIES) } else { retry };
    session.updates.outstanding = Some(Outstanding { id, retry, to, sleep, rekey: rekeys });
}
