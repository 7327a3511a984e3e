//! New ESP keys (RFC 7402 sections 6.8 to 6.10). Owns the two halves of a rekeying, which either end may begin, and when a pair takes
//! the place of another.
//!
//! When both halves are known the new pair is installed. It sends at once if the peer has acknowledged our half, and so has the keys;
//! otherwise when the peer's first packet on it shows that, or its acknowledgement comes. The old pair receives until the peer cannot
//! use it any more.

use dormouse_crypto::hip::DhKey;
use dormouse_keying::{ChildId, Discard};
use dormouse_wire::hip::{DhValue, EspInfo, Hit, Packet, Param, ParamType};

use crate::association::{Association, Esp, Pair, Rekey, Session, Stage};
use crate::exchange::{Around, Fate, close, update};
use crate::keymat::{self, Keymat};
use crate::quirks::{Quirk, Quirks};

/// Begins a rekeying, unless one is under way.
pub(crate) fn begin(association: &mut Association, around: &mut Around<'_>) -> Fate {
    let Stage::Up(session) = &mut association.stage else { return Fate::Lives };
    if around.peers.quirks(association.peer).has(Quirk::KnownParametersOnly) {
        return close::begin(association, around, "its keys are used up, and the peer takes no others");
    }
    // A peer that has acknowledged our half and never sent its own is asked anew.
    // "The system MUST NOT keep an outstanding ESP SA update request for an indefinite time." (RFC 7402 section 6.8)
    let end = around.now;
    let patience = around.config.timing.patience();
    let halfway = |r: &mut Rekey| r.acked && r.theirs.is_none() && end >= r.since + patience;
    if let Some(given_up) = session.rekey.take_if(halfway) {
        around.spis.release(ChildId::new(given_up.ours.new_spi));
    }
    if session.rekey.is_some() {
        return Fate::Lives;
    }
    let agreed = &session.agreed;
    // "If that amount is exceeded, the packet MUST contain a new Diffie-Hellman key." (RFC 7402 section 5.1.1)
    let fresh = around.config.rekey_with_dh || !agreed.keymat.suffices(agreed.next, agreed.esp);
    session.rekey = offer(session, fresh, agreed.next, around);
    if session.rekey.is_some() {
        update::send(association, None, around);
    }
    Fate::Lives
}

/// Our half.
/// "Additionally, when a host rekeys, the SPI MUST be changed." (RFC 7402 section 3.2.1)
/// "In the latter case, the system MUST generate a new Diffie-Hellman public key." (RFC 7402 section 6.8)
/// "If the UPDATE does not contain DIFFIE_HELLMAN, the ESP_INFO KEYMAT Index MUST be greater than or equal to the index of the next byte to
/// be drawn from the current KEYMAT." (RFC 7402 section 6.8)
/// "If the UPDATE contains the DIFFIE_HELLMAN parameter, the KEYMAT Index in the ESP_INFO parameter MUST be zero" (RFC 7402 section
/// 6.8)
fn offer(session: &Session, fresh: bool, index: u16, around: &mut Around<'_>) -> Option<Rekey> {
    let key = if fresh { Some(DhKey::generate(session.agreed.group, around.entropy)?) } else { None };
    let new = around.spis.reserve(around.entropy);
    let ours = EspInfo {
        keymat_index: if fresh { 0 } else { index },
        old_spi: session.esp.child.spi(),
        new_spi: new.spi(),
    };
    let since = around.now;
    Some(Rekey { ours, key, theirs: None, acked: false, since, installed: None })
}

/// The peer's half in an UPDATE, if it has one: new SPI and, with new key material, its public value.
pub(crate) type Half = (EspInfo, Option<Vec<u8>>);

/// Reads the peer's half.
///
/// # Errors
/// If it does not fit the association: the UPDATE is not acknowledged then.
pub(crate) fn read(packet: &Packet<'_>, session: &Session) -> Result<Option<Half>, Discard> {
    let Some(Param::EspInfo(info)) = packet.read(ParamType::EspInfo) else { return Ok(None) };
    if info.old_spi == info.new_spi || info.new_spi == session.esp.spi_out {
        return Ok(None);
    }
    // A second pair of SAs is asked for, as for sharing load among ways: "the receiving host must create a new SA and respond with an UPDATE
    // ACK." (RFC 8047 section 5.2) One pair goes with all addresses here, and how many there are is each host's policy (section 4.2.2). That
    // is acknowledged, with the addresses beside it: a peer without the acknowledgement would end the association.
    if info.old_spi == 0 {
        return Ok(None);
    }
    // The pair in use is deprecated and none takes its place (RFC 8046 section 5.3). One pair goes with all addresses here, and without it nothing
    // would be left to send on, so it stays until the peer ends the association. That is acknowledged too, for the same reason.
    if info.old_spi == session.esp.spi_out && info.new_spi == 0 {
        return Ok(None);
    }
    if info.old_spi != session.esp.spi_out || info.new_spi < 256 {
        return Err(Discard("an UPDATE that replaces an SPI that is not in use"));
    }
    let public = match packet.read(ParamType::DiffieHellman) {
        Some(Param::DiffieHellman(values)) => match values.as_slice() {
            [DhValue { group, public }] if *group == session.agreed.group.id() => Some(public.clone()),
            _ => return Err(Discard("an UPDATE with another Diffie-Hellman group")),
        },
        _ => None,
    };
    // "[...] the received KEYMAT Index MUST be zero and the Group ID must match the Group ID in use on the association." (RFC 7402
    // section 6.9)
    let fits = match public {
        // Ours has crossed it, without a new value: our old private key is gone, and the peer's attempt ends in a new base exchange.
        Some(_) if session.rekey.as_ref().is_some_and(|r| r.key.is_none()) => false,
        Some(_) => info.keymat_index == 0,
        None => {
            info.keymat_index >= session.agreed.next
                || session.rekey.as_ref().is_some_and(|r| r.key.is_some())
        }
    };
    if fits { Ok(Some((info, public))) } else { Err(Discard("an UPDATE that draws keys once more")) }
}

/// Takes the peer's half; if we have none, ours is made, and goes with the acknowledgement.
/// "The host receiving the UPDATE message requesting update of an existing ESP SA MUST reply with an UPDATE message." (RFC 7402 section
/// 4.1.3)
/// "If the incoming UPDATE contained a DIFFIE_HELLMAN parameter, the reply packet MUST also contain a DIFFIE_HELLMAN parameter." (RFC 7402
/// section 4.1.3)
/// "Otherwise, the ESP_INFO KEYMAT Index MUST be greater than or equal to the index of the next byte to be drawn from the current KEYMAT.
/// In this case, it is RECOMMENDED that the host use the KEYMAT Index requested by the peer in the received ESP_INFO." (RFC 7402 section
/// 6.9.1)
/// "If there is an outstanding rekeying request, the UPDATE MUST be acknowledged" (RFC 7402 section 6.9)
pub(crate) fn take(
    association: &mut Association,
    info: EspInfo,
    public: Option<Vec<u8>>,
    around: &mut Around<'_>,
) {
    let Stage::Up(session) = &mut association.stage else { return };
    if session.rekey.is_none() {
        let index = info.keymat_index.max(session.agreed.next);
        session.rekey = offer(session, public.is_some(), index, around);
    }
    if let Some(rekey) = session.rekey.as_mut().filter(|r| r.installed.is_none()) {
        rekey.theirs = Some(info);
        if let Some(public) = public {
            session.agreed.peer_public = public;
        }
    }
}

/// Installs the new pair when both halves are known, and ends the old one when the peer has ours.
/// "The system MUST NOT replace its keying material until the rekeying packet exchange successfully completes." (RFC 7402 section 6.8)
/// "The system MUST NOT delete its existing SAs, but continue using them if its policy still allows." (RFC 7402 section 6.8)
pub(crate) fn advance(association: &mut Association, around: &mut Around<'_>) {
    install(association, around);
    let owner = association.owner();
    let Stage::Up(session) = &mut association.stage else { return };
    let Some(rekey) = session.rekey.take_if(|r| r.acked && r.installed.is_some()) else { return };
    let Some((old, sends)) = rekey.installed else { return };
    if sends {
        // The peer may send on the old pair until it has our acknowledgement.
        if let Some((older, _)) = session.esp.retiring.take() {
            around.remove(owner, older);
        }
        session.esp.retiring = Some((old, around.now + around.config.timing.patience()));
    } else {
        around.remove(owner, old);
    }
}

fn install(association: &mut Association, around: &mut Around<'_>) {
    let (ours, peer) = (association.ours, association.peer);
    let Stage::Up(session) = &mut association.stage else { return };
    let Some(rekey) = session.rekey.as_ref().filter(|r| r.installed.is_none()) else { return };
    let Some(theirs) = rekey.theirs else { return };
    let (acked, new) = (rekey.acked, ChildId::new(rekey.ours.new_spi));
    let index = match refresh(session, (ours, peer), around.peers.quirks(peer)) {
        Err(()) => {
            // The peer's public value is none: the old pair stays.
            around.spis.release(new);
            session.rekey = None;
            session.updates.outstanding = None;
            return;
        }
        Ok(true) => 0,
        // "If the system did not generate a new KEYMAT, it uses the greater KEYMAT Index of the two" (RFC 7402 section 6.10)
        Ok(false) => rekey_index(session, theirs),
    };
    let esp = session.agreed.esp;
    let Some(keys) = session.agreed.keymat.esp_keys(index, esp, ours, peer) else {
        around.spis.release(new);
        session.rekey = None;
        return;
    };
    session.agreed.next = keys.next;
    let Esp { child: old, spi_out: _, retiring } = session.esp;
    session.esp = Esp { child: new, spi_out: theirs.new_spi, retiring };
    if let Some(rekey) = &mut session.rekey {
        rekey.installed = Some((old, acked));
    }
    let pair = Pair { child: new, spi_out: theirs.new_spi, replaces: Some(old), send_now: acked };
    let install = association.install(around, esp, keys, pair);
    around.order(install);
}

fn rekey_index(session: &Session, theirs: EspInfo) -> u16 {
    session.rekey.as_ref().map_or(theirs.keymat_index, |r| r.ours.keymat_index.max(theirs.keymat_index))
}

/// New key material, if one end has a new public value. "If there is only one new Diffie-Hellman key, the old existing key is used as
/// the other key." (RFC 7402 section 6.10) It can only be the peer's that is old: we make a new one whenever it does.
fn refresh(session: &mut Session, hits: (Hit, Hit), quirks: Quirks) -> Result<bool, ()> {
    let Some(key) = session.rekey.as_ref().and_then(|r| r.key.as_ref()) else { return Ok(false) };
    let agreed = &session.agreed;
    let kij = keymat::agree(key, &agreed.peer_public, quirks).ok_or(())?;
    let keymat = Keymat::new(agreed.suite, &kij, (&agreed.i, &agreed.j), [hits.0, hits.1], quirks);
    session.agreed.keymat = keymat;
    Ok(true)
}
