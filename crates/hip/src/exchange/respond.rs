//! The base exchange as its responder (RFC 7401 sections 6.7 and 6.9). Owns what an I2 must bring; must never keep anything of it
//! before its puzzle, its MAC and its signature are right.

use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::hip::DhGroup;
use dormouse_crypto::{HashAlg, Secret, hash};
use dormouse_keying::{Discard, Event};
use dormouse_sansio::{Class, Path};
use dormouse_wire::hip::{
    DhValue, EspInfo, Hit, Locator, NotifyType, Packet, PacketType, Param, ParamType, Version, parse_params,
};

use crate::association::{Agreed, R2Sent};
use crate::config::EspSuite;
use crate::exchange::register::Asked;
use crate::exchange::{
    Around, candidates, in_udp, initiate, locate, multihome, notify, register, sleep, unsigned_echoes,
};
use crate::hit::HostIdentity;
use crate::keymat::{self, EspKeys, Keymat};
use crate::load::Load;
use crate::protect;
use crate::quirks::Quirk;
use crate::r1::{BadSolution, Pool};
use crate::version;

/// The groups that one kind of peer can have offered.
const ONE_OF: [DhGroup; 2] = [DhGroup::Ecp256, DhGroup::Ecp384];

/// Answers an I1, which came by `path` or, through a rendezvous server, from there `via` the server; nothing is kept of it.
/// "An implementation SHOULD reply to an I1 with an R1 packet, unless the implementation is unable or unwilling to set up a HIP
/// association." (RFC 7401 section 6.7)
/// "If an implementation receives a malformed I1 packet, it SHOULD NOT respond with a NOTIFY message, as such a practice could open up a
/// potential denial-of-service threat." (RFC 7401 section 6.7.2)
/// "It is RECOMMENDED that the HIP state machine does not transition upon sending an R1 packet." (RFC 7401 section 6.7)
pub(crate) fn i1(
    packet: &Packet<'_>,
    path: Path,
    via: Option<IpAddr>,
    pool: &mut Pool,
    load: &mut Load,
    around: &mut Around<'_>,
) -> Result<(), Discard> {
    around.stats.i1 += 1;
    let version = packet.header.version;
    let theirs = match packet.read(ParamType::DhGroupList) {
        Some(Param::DhGroupList(theirs)) if version == Version::V2 => Some(theirs),
        _ if version == Version::V1 => None,
        _ => return Err(Discard("an I1 without DH_GROUP_LIST")),
    };
    // "[...] the Responder MUST select the first DH Group ID in its DH_GROUP_LIST in the R1 packet that is compatible with one of the
    // Suite IDs in the Initiator's DH_GROUP_LIST in the I1 packet." (RFC 7401 section 5.2.6)
    let one = around.peers.quirks(packet.header.sender).has(Quirk::OneGroup);
    // In version 1 the responder offers, and the initiator takes what it has.
    let fits = |g: &DhGroup| {
        theirs.as_ref().is_none_or(|theirs| theirs.contains(&g.id()) && (!one || ONE_OF.contains(g)))
    };
    // "If no suitable DH Group ID was contained in the DH_GROUP_LIST in the I1 packet, it sends an R1 with any suitable DH public key." (RFC
    // 7401 section 6.7) So its sender learns what we have.
    let groups = version::groups(version, around.config);
    let group = groups.iter().find(|g| fits(g)).or(groups.first().filter(|_| !one)).copied();
    let group = group.ok_or(Discard("an I1 without a group that we have"))?;
    let k = load
        .i1(around.now, caller(path, around), &around.config.difficulty)
        .ok_or(Discard("more I1 packets than are answered"))?;
    let r1 =
        pool.answer(around, (packet.header.sender, path), group, k).ok_or(Discard("no R1 could be made"))?;
    // "When a Responder replies to an I1 relayed via an RVS, it MUST append to the regular R1 header a VIA_RVS parameter containing the
    // IP addresses of the traversed RVSs." (RFC 8004 section 4.3.3)
    let r1 = match via {
        Some(via) => protect::append(&r1, &[locate::via_rvs(via)]).ok_or(Discard("no R1 could be made"))?,
        None => r1,
    };
    around.stats.r1 += 1;
    around.outbox.push(path, Class::Urgent, &r1);
    Ok(())
}

/// What a valid I2 leads to.
pub(crate) struct Accepted {
    pub(crate) agreed: Agreed,
    pub(crate) esp_keys: EspKeys,
    /// Where ESP keys begin: for the R2.
    index: u16,
    pub(crate) spi_out: u32,
    /// Hash of the I2.
    i2: Vec<u8>,
    /// What it asks for.
    pub(crate) asked: Option<Asked>,
    /// What it wants back without a signature.
    echoes: Vec<Param>,
    /// Its sender's candidates, and how fast they may be tried, if it came through our relay.
    pub(crate) theirs: Option<(Vec<Locator>, Duration)>,
}

/// The hash by which an I2 that comes again is known, of what its sender has signed: a middlebox may add another question to each.
pub(crate) fn fingerprint(packet: &Packet<'_>) -> Vec<u8> {
    let signed = packet.covered_by(ParamType::HipSignature, &[]);
    hash(HashAlg::Sha256, &[signed.as_deref().unwrap_or(packet.as_bytes())])
}

/// Checks an I2 in the order of what the checks cost.
pub(crate) fn i2(
    packet: &Packet<'_>,
    path: Path,
    pool: &mut Pool,
    load: &mut Load,
    around: &mut Around<'_>,
) -> Result<Accepted, Discard> {
    let sender = packet.header.sender;
    let quirks = around.peers.quirks(sender);
    let version = packet.header.version;
    let counter = match packet.read(version::counter(version)) {
        Some(Param::R1Counter(_, counter)) => Some(counter.generation),
        _ => None,
    };
    // "[...] if present in the R1, it MAY be echoed" (RFC 5201 section 5.2.3)
    let may_lack = version == Version::V1 || quirks.has(Quirk::Bare);
    let solution = match packet.read(ParamType::Solution) {
        Some(Param::Solution(solution)) if counter.is_some() || may_lack => solution,
        _ => {
            around.stats.bad_solutions += 1;
            return Err(Discard("an I2 without SOLUTION and R1_COUNTER"));
        }
    };
    let Some(Param::DiffieHellman(values)) = packet.read(ParamType::DiffieHellman) else {
        return Err(Discard("an I2 without DIFFIE_HELLMAN"));
    };
    let (now, difficulty) = (around.now, &around.config.difficulty);
    let least = load.least(now, difficulty);
    let judged = pool.judge(around, (sender, path), counter, &solution, least);
    let generation = match judged {
        Ok(generation) => generation,
        Err(BadSolution::Wrong) => {
            around.stats.bad_solutions += 1;
            return Err(Discard("an I2 with a wrong solution"));
        }
        Err(BadSolution::Used) => {
            around.stats.replayed_solutions += 1;
            return Err(Discard("an I2 with a solution that was used"));
        }
        Err(BadSolution::Easy) => {
            around.stats.i2_dropped += 1;
            return Err(Discard("an I2 with an easier puzzle than the load permits"));
        }
    };
    if !load.i2(now, caller(path, around), difficulty) {
        around.stats.i2_dropped += 1;
        return Err(Discard("more I2 packets than there is time for"));
    }
    generation.spend(sender, &solution);
    if let Some(kind) = packet.unsupported_critical() {
        around.stats.i2_refused += 1;
        notify::send_unknown(sender, path, around, kind);
        return Err(Discard("an unknown critical parameter"));
    }
    around.stats.i2_computed += 1;
    // "[...] the Responder SHOULD reply with a NOTIFY packet with type NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER and abort the base exchange."
    // (RFC 9028 section 4.3)
    if around.seen.is_some() && !candidates::is_in(packet) {
        around.stats.i2_refused += 1;
        notify::reject(sender, path, packet, around, NotifyType::NoValidNatTraversalMode);
        return Err(Discard("an I2 through a relay, without a mode for it"));
    }
    let [DhValue { group, public }] = values.as_slice() else {
        return refuse(packet, path, around, NotifyType::InvalidSyntax);
    };
    let Some(key) = generation.key(*group) else {
        return refuse(packet, path, around, NotifyType::InvalidDhChosen);
    };
    // "[...] the Responder SHOULD validate the Initiator's DH public key as described in [RFC2785], Section 3.1." (RFC 7401 section 5.3.2)
    // "If the validation fails, the Responder MUST NOT generate a DH shared key and MUST silently abort the HIP BEX." (RFC 7401 section
    // 5.3.2)
    let Some(kij) = keymat::agree(key, public, quirks) else {
        around.stats.i2_refused += 1;
        return Err(Discard("an I2 whose public value is not in the group"));
    };
    let group = key.group();
    let agreed = match authenticate(packet, &kij, (&solution.i, &solution.j), around) {
        Ok(authentic) => authentic,
        Err(kind) => return refuse(packet, path, around, kind),
    };
    generation.use_up(sender, &solution);
    let Authentic { identity, keymat, keys, index, esp, esp_keys, spi_out, locators } = agreed;
    let suite = around.identity.public().suite();
    let next = esp_keys.next;
    let (i, j, peer_public) = (solution.i, solution.j, public.clone());
    let agreed = Agreed { identity, keys, keymat, suite, i, j, esp, next, group, peer_public };
    let asked = register::asked(packet);
    let theirs = around.seen.map(|_| (locators.unwrap_or_default(), candidates::pacing(packet)));
    let (i2, echoes) = (fingerprint(packet), unsigned_echoes(packet));
    Ok(Accepted { agreed, esp_keys, index, spi_out, i2, asked, echoes, theirs })
}

/// Who calls, for what is limited by address: not the relay of ours through which it does.
fn caller(path: Path, around: &Around<'_>) -> IpAddr {
    around.seen.map_or(path.remote, |seen| seen.relay.to).ip()
}

/// An I2 whose solution was right, but not the rest of it: its sender has worked and learns why.
/// "If the puzzle solution in the message has already been checked, the implementation SHOULD report the error by responding with a
/// NOTIFY packet." (RFC 7401 section 6.9.1)
fn refuse<T>(
    packet: &Packet<'_>,
    path: Path,
    around: &mut Around<'_>,
    kind: NotifyType,
) -> Result<T, Discard> {
    around.stats.i2_refused += 1;
    if kind == NotifyType::BlockedByPolicy {
        let (peer, why) = (packet.header.sender.to_string(), "its identity is not admitted");
        let named = around.config.denied.contains(&packet.header.sender);
        around.events.push_back(Event::Refused { path, peer, named, why });
    }
    notify::send(packet.header.sender, path, around, kind);
    Err(Discard("an I2 that was refused"))
}

struct Authentic {
    identity: HostIdentity,
    keymat: Keymat,
    keys: crate::keymat::HipKeys,
    index: u16,
    esp: EspSuite,
    esp_keys: EspKeys,
    spi_out: u32,
    /// What was encrypted beside the identity.
    locators: Option<Vec<Locator>>,
}

/// Keys, MAC, identity and signature of an I2.
///
/// # Errors
/// The NOTIFY for its sender.
fn authenticate(
    packet: &Packet<'_>,
    kij: &Secret,
    (i, j): (&[u8], &[u8]),
    around: &mut Around<'_>,
) -> Result<Authentic, NotifyType> {
    let (peer, ours) = (packet.header.sender, packet.header.receiver);
    let suite = around.identity.public().suite();
    let (cipher, esp) = initiate::only_choice(packet, around).ok_or(NotifyType::InvalidHipCipherChosen)?;
    let quirks = around.peers.quirks(peer);
    let keymat = Keymat::new(suite, kij, (i, j), [ours, peer], quirks);
    let (keys, index) = keymat.hip_keys(cipher, ours, peer).ok_or(NotifyType::InvalidSyntax)?;
    // "The system MUST verify the HIP_MAC according to the procedures in Section 5.2.12." (RFC 7401 section 6.9)
    // "The Responder MUST validate the HIP_MAC." (RFC 7401 section 5.3.3)
    if !protect::mac_is_right(packet, keys.of_exchange(quirks).1) {
        around.stats.bad_macs += 1;
        return Err(NotifyType::HipMacFailed);
    }
    let mut locators = None;
    let host_id = match packet.read(ParamType::Encrypted) {
        Some(Param::Encrypted(sealed)) => {
            let opened = cipher.decrypt(keys.encrypt_in.as_bytes(), &sealed);
            let opened = opened.map_err(|_| NotifyType::EncryptionFailed)?;
            locators = candidates::locators(&opened);
            let params = parse_params(&opened, 0).map_err(|_| NotifyType::InvalidSyntax)?;
            params
                .iter()
                .find(|p| p.kind == ParamType::HostId)
                .and_then(|p| p.read(packet.header.version).ok())
        }
        _ => packet.read(ParamType::HostId),
    };
    let Some(Param::HostId(host_id)) = host_id else { return Err(NotifyType::InvalidSyntax) };
    // "The implementation SHOULD also verify that the Initiator's HIT in the I2 packet corresponds to the Host Identity sent in the I2
    // packet." (RFC 7401 section 6.9)
    let identity = HostIdentity::of(peer, host_id, packet.header.version)
        .map_err(|_| NotifyType::UnsupportedHitSuite)?
        .ok_or(NotifyType::InvalidHit)?;
    // "The system MUST verify the HIP_SIGNATURE according to Sections 5.2.14 and 5.3.3." (RFC 7401 section 6.9)
    // "The Responder MUST validate this signature." (RFC 7401 section 5.3.3)
    if !protect::signature_is_right(packet, ParamType::HipSignature, &identity, around.stats) {
        return Err(NotifyType::AuthenticationFailed);
    }
    if !around.config.admits(peer) {
        return Err(NotifyType::BlockedByPolicy);
    }
    let Some(Param::EspInfo(info)) = packet.read(ParamType::EspInfo) else {
        return Err(NotifyType::InvalidSyntax);
    };
    // "The KEYMAT Index field MUST contain the index value to the KEYMAT from where the ESP SA keys are drawn." (RFC 7402 section 6.5)
    // "For this initial ESP SA establishment, the old SPI value MUST be zero." (RFC 7402 section 6.5)
    if info.old_spi != 0 || info.new_spi < 256 || info.keymat_index != index {
        return Err(NotifyType::InvalidSyntax);
    }
    let esp_keys = keymat.esp_keys(index, esp, ours, peer).ok_or(NotifyType::InvalidSyntax)?;
    Ok(Authentic { identity, keymat, keys, index, esp, esp_keys, spi_out: info.new_spi, locators })
}

/// The R2 to an I2 that was accepted; sent, and kept, without answers to middleboxes, for as long as the I2 may come again.
/// "Even if the I2 packet contains LOCATOR_SET parameters, the Responder MUST still send the R2 packet to the source address of the I2." (RFC
/// 8047 section 4.2.8)
pub(crate) fn r2(
    accepted: &Accepted,
    peer: Hit,
    path: Path,
    spi: u32,
    registered: &[Param],
    around: &mut Around<'_>,
) -> Option<R2Sent> {
    let mut draft = protect::draft(PacketType::R2, around.identity.hit(), peer);
    draft.add(&Param::EspInfo(EspInfo { keymat_index: accepted.index, old_spi: 0, new_spi: spi }));
    multihome::shows(peer, path, spi, around).iter().for_each(|param| draft.add(param));
    if accepted.theirs.is_some() {
        let ours = candidates::ours(None, spi, around);
        draft.add(&candidates::sealed(ours, &accepted.agreed.keys, around)?);
    }
    registered.iter().for_each(|param| draft.add(param));
    sleep::shows(peer, around).iter().for_each(|param| draft.add(param));
    in_udp::shows(peer, around).iter().for_each(|param| draft.add(param));
    let quirks = around.peers.quirks(peer);
    let key = accepted.agreed.keys.of_exchange(quirks).0;
    let r2 = protect::finish_r2(draft, key, around.identity, quirks)?;
    around.outbox.push(path, Class::Urgent, &protect::append(&r2, &accepted.echoes)?);
    let until = around.now + around.config.timing.patience();
    Some(R2Sent { i2: accepted.i2.clone(), r2, until })
}
