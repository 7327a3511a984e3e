//! The base exchange as its initiator (RFC 7401 sections 6.6, 6.8 and 6.10): I1, the puzzle of the R1, I2, R2. Owns what an R1 must
//! say before any work is done for it.

use dormouse_crypto::hip::{DhGroup, DhKey, HipCipher};
use dormouse_keying::{Discard, Event, Failure};
use dormouse_sansio::{Carrier, Class, Path};
use dormouse_wire::hip::{
    DhValue, EspInfo, Header, Hit, Packet, PacketType, Param, ParamType, R1Counter, Solution, Version, limits,
};

use crate::association::{
    Agreed, Association, I1Sent, I2Sent, Offer, Pair, Refusal, Retry, Session, Solving, Stage,
};
use crate::config::{EspSuite, HostConfig};
use crate::exchange::in_udp::InUdp;
use crate::exchange::multihome::Multihome;
use crate::exchange::sleep::Dormancy;
use crate::exchange::{
    Around, Fate, Outcome, candidates, give_up, ice, in_udp, keepalive, multihome, register, relay, sleep,
    unsigned_echoes,
};
use crate::hit::{HitSuite, HostIdentity};
use crate::keymat::{self, Keymat};
use crate::limits::{MAX_ECHO, MAX_LOOKS};
use crate::protect;
use crate::puzzle::{Puzzle, Search, Solver};
use crate::quirks::Quirk;
use crate::version;

/// Sends an I1 on each of these paths, as far as that is permitted at once; after that on one after the other.
pub(crate) fn begin(around: &mut Around<'_>, peer: Hit, paths: &[Path]) -> Option<Stage> {
    let mut draft = protect::draft(PacketType::I1, around.identity.hit(), peer);
    if around.identity.public().suite().version() == Version::V2 {
        draft.add(&Param::DhGroupList(around.config.groups.iter().map(|g| g.id()).collect()));
    }
    let packet = draft.finish().ok()?;
    for path in paths.iter().take(crate::limits::MAX_PARALLEL_I1) {
        around.outbox.push(*path, Class::Urgent, &packet);
    }
    let retry = Retry::new(packet, Class::Urgent, around.now, &around.config.timing);
    Some(Stage::I1Sent(I1Sent { retry, paths: paths.to_vec(), refusal: None }))
}

/// Begins an exchange anew, by another path and then by the other ways that are known: what was computed was for the old address.
pub(crate) fn again(association: &mut Association, around: &mut Around<'_>) {
    if let Stage::I2Sent(sent) = &association.stage {
        around.spis.release(sent.child);
    }
    let mut paths = around.peers.ways(association.peer, around.config.udp_port);
    paths.retain(|way| *way != association.path);
    paths.insert(0, association.path);
    if let Some(stage) = begin(around, association.peer, &paths) {
        association.stage = stage;
    }
}

/// The radio was off during an exchange: a NAT may have given us another port than the one to which the R1 came. The peer, which keeps nothing of
/// that, would send data to a port that it has never heard of before our I2: so the exchange begins anew.
pub(crate) fn slept(association: &mut Association, around: &mut Around<'_>) {
    let through_nat = association.path.carrier == Carrier::HipUdp;
    if through_nat && matches!(association.stage, Stage::Solving(_) | Stage::I2Sent(_)) {
        again(association, around);
    }
}

/// How many verifications this R1 and those after it may cost: none if it is not waited for.
/// "If the system is in state I2-SENT, it MAY respond to the R1 packet if the R1 packet has a larger R1 generation counter; if so, it
/// should drop its state due to processing the previous R1 packet and start over from state I1-SENT." (RFC 7401 section 6.8) Otherwise
/// an old R1, sent again by another, would end an exchange.
/// "The system MUST store the received R1 generation counter for future reference." (RFC 7401 section 6.8)
fn looks(stage: &mut Stage, packet: &Packet<'_>) -> u32 {
    let (before, left) = match stage {
        Stage::I1Sent(_) => return MAX_LOOKS + 1,
        Stage::Solving(solving) => (solving.offer.counter, &mut solving.offer.looks_left),
        Stage::I2Sent(sent) => (sent.counter, &mut sent.looks_left),
        _ => return 0,
    };
    let generation = |counter: Option<R1Counter>| counter.map_or(0, |c| c.generation);
    match packet.read(version::counter(packet.header.version)) {
        Some(Param::R1Counter(_, counter)) if counter.generation > generation(before) => {
            let looks = *left;
            *left = left.saturating_sub(1);
            looks
        }
        _ => 0,
    }
}

/// An R1: checked, and its puzzle begun.
/// "If an implementation receives a malformed R1 message, it MUST silently drop the packet." (RFC 7401 section 6.8.1)
/// "The system SHOULD wait for an acceptable time span to allow further R1 packets with higher R1 generation counters or different HIT and
/// HIT Suites to arrive before restarting or aborting the BEX." (RFC 7401 section 6.8)
/// "The Initiator SHOULD then select the initial preferred destination address using the source address of the selected received R1" (RFC
/// 7401 section 6.6.1)
pub(crate) fn r1(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    around: &mut Around<'_>,
) -> Outcome {
    let looks_left = looks(&mut association.stage, packet)
        .checked_sub(1)
        .ok_or(Discard("an R1 that is not waited for"))?;
    let offer = read_r1(packet, around).inspect_err(|discard| {
        if let (true, Stage::I1Sent(sent)) = (NOTHING_IN_COMMON.contains(discard), &mut association.stage) {
            sent.refusal = Some(Refusal { kind: Failure::Proposal, why: discard.0 });
        }
    })?;
    let ice = candidates::offered(packet, path, around);
    let in_udp = ice.is_none() && candidates::encapsulates(packet, path);
    let path = multihome::preferred(packet, path, around).unwrap_or(path);
    let others = multihome::others(packet, path).unwrap_or_default();
    let offer = Offer { looks_left, ice, in_udp, others, ..offer };
    let suite = offer.responder.suite();
    let puzzle = Puzzle {
        hash: suite.hash(),
        k: offer.solution.k,
        i: offer.solution.i.clone(),
        initiator: association.ours,
        responder: association.peer,
    };
    let puzzle = puzzle.with(around.peers.quirks(association.peer));
    let lifetime = packet.read(ParamType::Puzzle).map_or(0, |p| match p {
        Param::Puzzle(p) => p.lifetime,
        _ => 0,
    });
    let solver = Solver::new(puzzle, around.config.difficulty.solve, around.entropy)
        .ok_or(Discard("a puzzle that is harder than configured"))?;
    let seconds = 2f64.powi(i32::from(lifetime) - 32);
    let life = core::time::Duration::try_from_secs_f64(seconds).unwrap_or(core::time::Duration::MAX);
    if let Stage::I2Sent(sent) = &association.stage {
        around.spis.release(sent.child);
    }
    association.path = path;
    let solving = Solving { offer, solver, until: around.now + life, next: around.now };
    association.stage = Stage::Solving(Box::new(solving));
    Ok(Fate::Lives)
}

/// Why an R1 of the peer itself leads to nothing.
const NOTHING_IN_COMMON: [Discard; 4] = [NO_GROUP, NO_CIPHER, NO_IDENTITY, NO_ESP];
const NO_GROUP: Discard = Discard("the peer offers no Diffie-Hellman group that we have");
const NO_CIPHER: Discard = Discard("the peer offers no HIP cipher that we have");
const NO_IDENTITY: Discard = Discard("the peer does not support our HIT suite");
const NO_ESP: Discard = Discard("the peer offers no ESP suite that we have");

/// What an R1 must have (RFC 7401 section 6.8), the cheap checks first. That there is nothing in common counts only if the peer has signed it:
/// "However, the Initiator MUST verify the signature of the R1 packet before restarting or aborting the handshake. It MUST silently ignore the
/// R1 packet if the signature is not valid." (RFC 7401 section 4.1.3)
fn read_r1(packet: &Packet<'_>, around: &mut Around<'_>) -> Result<Offer, Discard> {
    let Some(Param::HostId(host_id)) = packet.read(ParamType::HostId) else {
        return Err(Discard("an R1 without HOST_ID"));
    };
    // "It MUST check that the Responder's HI matches with the one expected, if any." (RFC 7401 section 5.3.2)
    // "The system SHOULD attempt to validate the HIT against the received Host Identity by using the received Host Identity to construct a
    // HIT and verify that it matches the Sender's HIT." (RFC 7401 section 6.8)
    let responder = HostIdentity::of(packet.header.sender, host_id, packet.header.version)
        .map_err(|_| Discard("an R1 with an unusable identity"))?
        .ok_or(Discard("an R1 whose tag is not that of its identity"))?;
    let offer = choose(packet, responder.clone(), around);
    if let Err(discard) = offer
        && !NOTHING_IN_COMMON.contains(&discard)
    {
        return Err(discard);
    }
    // "The system SHOULD validate the R1 signature before applying further packet processing, according to Section 5.2.15." (RFC 7401
    // section 6.8)
    if !protect::signature_is_right(packet, ParamType::HipSignature2, &responder, around.stats) {
        return Err(Discard("an R1 with a wrong signature"));
    }
    offer
}

/// "Conversely, a recipient MUST be prepared to handle received transform parameters that contain more than six Suite IDs." (RFC 7402
/// section 5.1.2)
fn numbers(packet: &Packet<'_>, kind: ParamType) -> Vec<u16> {
    match packet.read(kind) {
        Some(Param::Numbers(_, mut n) | Param::Suites(_, mut n)) => {
            n.truncate(limits::MAX_SUITES);
            n
        }
        _ => Vec::new(),
    }
}

fn choose(packet: &Packet<'_>, responder: HostIdentity, around: &Around<'_>) -> Result<Offer, Discard> {
    let config = around.config;
    let Some(Param::Puzzle(puzzle)) = packet.read(ParamType::Puzzle) else {
        return Err(Discard("an R1 without PUZZLE"));
    };
    if puzzle.i.len() != responder.suite().puzzle_len() {
        return Err(Discard("a puzzle of another length"));
    }
    let version = packet.header.version;
    let (group, public) = choose_group(packet, config)?;
    let ciphers = version::ciphers(version, config);
    // "The Initiator MUST choose only one of the corresponding Cipher IDs." (RFC 7401 section 5.2.8)
    // "The chosen cipher MUST correspond to one of the ciphers offered by the Responder in the R1." (RFC 7401 section 5.3.3)
    let cipher = numbers(packet, version::ciphers_kind(version))
        .into_iter()
        .find_map(|id| ciphers.iter().copied().find(|c| version::cipher_id(version, *c) == Some(id)))
        .ok_or(NO_CIPHER)?;
    let suites = match packet.read(ParamType::HitSuiteList) {
        Some(Param::HitSuiteList(suites)) => suites,
        _ => Vec::new(),
    };
    // "The system MUST check that the Initiator's HIT Suite is contained in the HIT_SUITE_LIST parameter in the R1 packet" (RFC 7401
    // section 6.8)
    if version == Version::V2 && !suites.contains(&(around.identity.public().suite().id() << 4)) {
        return Err(NO_IDENTITY);
    }
    let known = version::esp_suites(version, config);
    // "The receiver MUST ignore the TF type in the TRANSPORT_FORMAT_LIST if no matching transport format parameter is present in the
    // packet." (RFC 7401 section 5.2.11)
    // "The chosen type MUST correspond to one of the types offered by the Responder in the R1." (RFC 7401 section 5.3.3)
    let esp = numbers(packet, ParamType::EspTransform)
        .into_iter()
        .find_map(|id| known.iter().copied().find(|s| s.id() == id))
        .filter(|_| has_esp(packet))
        .ok_or(NO_ESP)?;
    let counter = match packet.read(version::counter(version)) {
        Some(Param::R1Counter(_, counter)) => Some(counter),
        _ => None,
    };
    let echo = packet.find(ParamType::EchoRequestSigned).map(|p| p.contents);
    let quirks = around.peers.quirks(responder.hit());
    let register = register::is_offered(packet, register::wanted(config, responder.hit()))
        && !quirks.has(Quirk::KnownParametersOnly);
    Ok(Offer {
        responder,
        register,
        ice: None,
        in_udp: false,
        others: Vec::new(),
        counter,
        solution: Solution { k: puzzle.k, reserved: 0, opaque: puzzle.opaque, i: puzzle.i, j: Vec::new() },
        group,
        public,
        cipher,
        esp,
        echo_signed: echo.filter(|echo| echo.len() <= MAX_ECHO).map(<[u8]>::to_vec),
        echoes: unsigned_echoes(packet),
        looks_left: 0,
    })
}

/// The group of an R1, and its public value in it.
fn choose_group(packet: &Packet<'_>, config: &HostConfig) -> Result<(DhGroup, Vec<u8>), Discard> {
    let Some(Param::DiffieHellman(mut values)) = packet.read(ParamType::DiffieHellman) else {
        return Err(Discard("an R1 without a Diffie-Hellman value"));
    };
    if packet.header.version == Version::V1 {
        // "It is RECOMMENDED that the Initiator, receiving more than one public value, selects the stronger one, if it supports it." (RFC
        // 5201 section 5.2.6) Which is stronger, the order in which they are configured says.
        let groups = version::groups(Version::V1, config);
        let of = |g: &DhGroup| values.iter().take(2).position(|v| v.group == g.id()).map(|at| (*g, at));
        let (group, at) = groups.iter().find_map(of).ok_or(Discard("an R1 without a group that we have"))?;
        return Ok((group, values.swap_remove(at).public));
    }
    let Some(Param::DhGroupList(theirs)) = packet.read(ParamType::DhGroupList) else {
        return Err(Discard("an R1 without a Diffie-Hellman value"));
    };
    let (Some(DhValue { group, public }), true) = (values.pop(), values.is_empty()) else {
        return Err(Discard("an R1 with more than one Diffie-Hellman value"));
    };
    // "The Responder MUST NOT select any other DH Group ID that is contained in both lists, because then a downgrade attack cannot be
    // detected." (RFC 7401 section 5.2.6)
    let best = theirs.iter().find_map(|id| config.groups.iter().copied().find(|g| g.id() == *id));
    let best = best.ok_or(NO_GROUP)?;
    // "The system MUST check that the DH Group ID in the DIFFIE_HELLMAN parameter in the R1 matches the first DH Group ID in the
    // Responder's DH_GROUP_LIST in the R1 packet, and also that this Group ID corresponds to a value that was included in the Initiator's
    // DH_GROUP_LIST in the I1 packet." (RFC 7401 section 6.8)
    // "Otherwise, the communication is subject to a downgrade attack, and the Initiator MUST either restart the base exchange with a new I1
    // packet or abort the base exchange." (RFC 7401 section 4.1.3)
    if best.id() != group {
        return Err(Discard("an R1 with another group than the best"));
    }
    Ok((best, public))
}

/// Whether ESP is among the formats of a packet; version 1 has no other.
fn has_esp(packet: &Packet<'_>) -> bool {
    packet.header.version == Version::V1
        || numbers(packet, ParamType::TransportFormatList).contains(&ParamType::EspTransform.code())
}

/// The next slice of the search; with a solution, the I2.
/// "The system MUST terminate the search after exceeding the remaining lifetime of the puzzle." (RFC 7401 section 6.8)
/// "The Initiator SHOULD give up after exceeding the puzzle Lifetime in the PUZZLE parameter" (RFC 7401 section 4.1.2)
pub(crate) fn solve(association: &mut Association, around: &mut Around<'_>) -> Fate {
    let Stage::Solving(solving) = &mut association.stage else { return Fate::Lives };
    let j = match solving.solver.advance() {
        _ if solving.until <= around.now => {
            return give_up(association, around, "the puzzle ended before its solution");
        }
        Search::GoesOn => {
            solving.next = around.now;
            return Fate::Lives;
        }
        Search::GivenUp => return give_up(association, around, "no solution of the puzzle was found"),
        Search::Solved(j) => j,
    };
    solving.offer.solution.j = j;
    match i2(association, around) {
        Some(stage) => {
            association.stage = stage;
            Fate::Lives
        }
        None => give_up(association, around, "no I2 could be made"),
    }
}

/// Makes the I2 and sends it.
fn i2(association: &Association, around: &mut Around<'_>) -> Option<Stage> {
    let Stage::Solving(solving) = &association.stage else { return None };
    let offer = &solving.offer;
    let key = DhKey::generate(offer.group, around.entropy)?;
    let kij = keymat::agree(&key, &offer.public, around.peers.quirks(association.peer))?;
    let (ours, peer, suite) = (association.ours, association.peer, offer.responder.suite());
    let (i, j) = (offer.solution.i.clone(), offer.solution.j.clone());
    let quirks = around.peers.quirks(peer);
    let keymat = Keymat::new(suite, &kij, (&i, &j), [ours, peer], quirks);
    let (keys, index) = keymat.hip_keys(offer.cipher, ours, peer)?;
    let esp_keys = keymat.esp_keys(index, offer.esp, ours, peer)?;
    let identity = around.identity.public();
    let early = offer.ice.map(|offered| (offered, around.spis.reserve(around.entropy)));
    let host_id = if quirks.has(Quirk::Bare) {
        Some(Param::HostId(identity.host_id().clone()))
    } else {
        let locators = early.map(|(offered, child)| candidates::ours(Some(offered), child.spi(), around));
        let plain = protect::host_id(identity, locators);
        keys.cipher.encrypt(keys.encrypt_out.as_bytes(), &plain, around.entropy).map(Param::Encrypted)
    };
    let Some(host_id) = host_id else {
        early.into_iter().for_each(|(_, child)| around.spis.release(child));
        return None;
    };
    let child = early.map_or_else(|| around.spis.reserve(around.entropy), |(_, child)| child);
    let locators = multihome::shows(peer, association.path, child.spi(), around);
    let named = multihome::named(peer, association.path, around);
    let chosen = Chosen { index, spi: child.spi(), locators, public: key.public_value(), host_id };
    let Some(packet) = write_i2(offer, chosen, keys.of_exchange(quirks).0, ours, peer, around) else {
        around.spis.release(child);
        return None;
    };
    around.outbox.push(association.path, Class::Urgent, &packet);
    let agreed = Agreed {
        identity: offer.responder.clone(),
        keys,
        keymat,
        suite,
        i,
        j,
        esp: offer.esp,
        next: esp_keys.next,
        group: offer.group,
        peer_public: offer.public.clone(),
    };
    let retry = Retry::new(packet, Class::Urgent, around.now, &around.config.timing);
    let (counter, ice, others, looks_left) =
        (offer.counter, offer.ice, offer.others.clone(), offer.looks_left);
    let sent =
        I2Sent { retry, agreed, child, esp_keys, counter, ice, others, named, looks_left, notified: None };
    Some(Stage::I2Sent(Box::new(sent)))
}

/// What the I2 says besides what the R1 asked for.
struct Chosen<'a> {
    index: u16,
    spi: u32,
    /// LOCATOR_SET.
    locators: Option<Param>,
    public: &'a [u8],
    /// In the clear or encrypted.
    host_id: Param,
}

/// ESP_INFO, [R1_COUNTER,] [LOCATOR_SET,] SOLUTION, DIFFIE_HELLMAN, HIP_CIPHER, [NAT_TRAVERSAL_MODE, TRANSACTION_PACING,] ENCRYPTED { [LOCATOR_SET,]
/// HOST_ID }, [REG_REQUEST,] [ECHO_RESPONSE_SIGNED,]
/// TRANSPORT_FORMAT_LIST, ESP_TRANSFORM, [DORMANCY,] [ESP_IN_UDP,] HIP_MAC, HIP_SIGNATURE [, ECHO_RESPONSE_UNSIGNED] (RFC 7401 section 5.3.3, RFC
/// 7402 section 5.2.1.2).
fn write_i2(
    offer: &Offer,
    chosen: Chosen<'_>,
    mac: &dormouse_crypto::PrfKey,
    ours: Hit,
    peer: Hit,
    around: &Around<'_>,
) -> Option<Vec<u8>> {
    let version = offer.responder.suite().version();
    let mut draft = protect::draft(PacketType::I2, ours, peer);
    let info = EspInfo { keymat_index: chosen.index, old_spi: 0, new_spi: chosen.spi };
    draft.add(&Param::EspInfo(info));
    // "[...] if present in the R1, it MUST be echoed (including the Reserved field verbatim) by the Initiator in the I2 packet" (RFC 7401
    // section 5.2.3)
    if let Some(R1Counter { reserved, generation }) = offer.counter {
        draft.add(&Param::R1Counter(version::counter(version), R1Counter { reserved, generation }));
    }
    chosen.locators.iter().for_each(|param| draft.add(param));
    // "In the I2 packet, the Initiator MUST display the solution to the received puzzle." (RFC 7401 section 4.1)
    draft.add(&Param::Solution(offer.solution.clone()));
    let value = DhValue { group: offer.group.id(), public: chosen.public.to_vec() };
    draft.add(&Param::DiffieHellman(vec![value]));
    let cipher = version::cipher_id(version, offer.cipher)?;
    draft.add(&Param::Numbers(version::ciphers_kind(version), vec![cipher]));
    offer.ice.map(candidates::chosen).iter().flatten().for_each(|param| draft.add(param));
    offer.in_udp.then(candidates::encapsulation).iter().for_each(|param| draft.add(param));
    draft.add(&chosen.host_id);
    if offer.register {
        draft.add(&register::request(around.config, register::wanted(around.config, peer)));
    }
    // "[...] can include some data in R1 that the Initiator MUST copy unmodified in the corresponding I2 packet." (RFC 7401 section 4.1.2)
    if let Some(echo) = &offer.echo_signed {
        draft.add(&Param::Opaque(ParamType::EchoResponseSigned, echo.clone()));
    }
    if version == Version::V2 {
        draft.add(&Param::Numbers(ParamType::TransportFormatList, vec![ParamType::EspTransform.code()]));
    }
    draft.add(&Param::Suites(ParamType::EspTransform, vec![offer.esp.id()]));
    sleep::shows(peer, around).iter().for_each(|param| draft.add(param));
    in_udp::shows(peer, around).iter().for_each(|param| draft.add(param));
    protect::append(&protect::finish(draft, mac, around.identity)?, &offer.echoes)
}

/// An R2: the association is established.
/// "The Initiator MUST validate both the HIP_MAC and the signature." (RFC 7401 section 5.3.4)
/// "The system MUST verify the HIP signature according to the procedures in Section 5.2.14." (RFC 7401 section 6.10)
/// "If an R2 packet is received in state I2-SENT, it MUST be processed." (RFC 7401 section 6.10)
/// "The system MUST verify the HIP_MAC_2 according to the procedures in Section 5.2.13." (RFC 7401 section 6.10)
pub(crate) fn r2(association: &mut Association, packet: &Packet<'_>, around: &mut Around<'_>) -> Outcome {
    let Stage::I2Sent(sent) = &association.stage else { return Err(Discard("an R2 that is not waited for")) };
    let agreed = &sent.agreed;
    let quirks = around.peers.quirks(association.peer);
    if !protect::mac_2_is_right(packet, agreed.keys.of_exchange(quirks).1, &agreed.identity) {
        around.stats.bad_macs += 1;
        return Err(Discard("an R2 with a wrong MAC"));
    }
    let kind = protect::signature_of_r2(quirks);
    if !protect::signature_is_right(packet, kind, &agreed.identity, around.stats) {
        return Err(Discard("an R2 with a wrong signature"));
    }
    let Some(Param::EspInfo(info)) = packet.read(ParamType::EspInfo) else {
        return Err(Discard("an R2 without ESP_INFO"));
    };
    if info.new_spi < 256 {
        return Err(Discard("an R2 with a reserved SPI"));
    }
    let Stage::I2Sent(sent) = core::mem::replace(&mut association.stage, Stage::Failed) else {
        return Err(Discard("an R2 that is not waited for"));
    };
    let theirs =
        sent.ice.map(|offered| (offered, candidates::opened(packet, &sent.agreed).unwrap_or_default()));
    if theirs.as_ref().is_some_and(|(_, theirs)| !candidates::takes_data(theirs, association.path)) {
        association.stage = Stage::I2Sent(sent);
        return Ok(give_up(association, around, "the peer's relay takes no data for it"));
    }
    let I2Sent { agreed, child, esp_keys, others, named, .. } = *sent;
    let pair = Pair { child, spi_out: info.new_spi, replaces: None, send_now: true };
    let install = association.install(around, agreed.esp, esp_keys, pair);
    established(association, packet, around);
    around.order(install);
    let mut session = Session::new(around, agreed, child, info.new_spi, None);
    session.dormancy = Dormancy::of(packet);
    session.ways.in_udp = InUdp::of(packet, around);
    session.ways.multihome = Multihome::with(others);
    let wanted = register::wanted(around.config, association.peer);
    session.services.registration = register::answered(packet, wanted, around.now);
    if around.config.relays.contains(&association.peer) {
        relay::learn(&mut session, packet, association.path, around);
    }
    association.stage = Stage::Up(Box::new(session));
    if let Some((offered, theirs)) = theirs {
        ice::begin(association, (&theirs, true, offered.pacing), around);
    }
    keepalive::begin(association, around);
    multihome::established(association, packet, &named, around);
    in_udp::begin(association, around);
    Ok(Fate::Lives)
}

/// Tells the node of a peer that has proved its identity, by this I2 or R2.
pub(crate) fn established(association: &Association, packet: &Packet<'_>, around: &mut Around<'_>) {
    around.stats.established += 1;
    let (owner, peer, path) = (association.owner(), association.peer.to_string(), association.path);
    let may_sleep = sleep::may_sleep(packet);
    around.events.push_back(Event::Established { owner, peer, path, may_sleep });
}

/// The suites that the configuration and a packet's only choice have in common.
/// "The ESP_TRANSFORM parameter is verified, and it MUST contain a single value in the parameter; and it MUST match one of the values
/// offered in the initialization packet." (RFC 7402 section 6.5)
/// "The I2 packet MUST have a single value in the HIP_CIPHER parameter, which MUST match one of the values offered to the Initiator in the
/// R1 packet." (RFC 7401 section 6.9)
/// "The system MUST process the TRANSPORT_FORMAT_LIST parameter." (RFC 7401 section 6.9)
pub(crate) fn only_choice(packet: &Packet<'_>, around: &Around<'_>) -> Option<(HipCipher, EspSuite)> {
    let single = |kind| match *numbers(packet, kind) {
        [n] => Some(n),
        _ => None,
    };
    let (version, config) = (packet.header.version, around.config);
    let cipher = single(version::ciphers_kind(version));
    let esp = single(ParamType::EspTransform).filter(|_| has_esp(packet))?;
    let ciphers = version::ciphers(version, config);
    Some((
        ciphers.into_iter().find(|c| cipher.is_some() && version::cipher_id(version, *c) == cipher)?,
        version::esp_suites(version, config).into_iter().find(|s| s.id() == esp)?,
    ))
}

/// Whether both ends of a packet have tags that we can use, of its version.
pub(crate) fn tags_are_usable(header: &Header) -> bool {
    let Header { sender, receiver, version, .. } = *header;
    let fits = |tag| HitSuite::of(tag).is_some_and(|suite| suite.version() == version);
    fits(sender) && sender != receiver && (receiver == Hit::NULL || fits(receiver))
}
