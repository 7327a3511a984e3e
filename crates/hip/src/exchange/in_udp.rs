//! ESP in the UDP of HIP between two ends of ours (`docs/wire/hip-udp.md`). HIP itself stays protocol 139. The kernel takes many datagrams of UDP
//! at once, but packets of protocol 50 one by one. Owns what both ends have shown, and the question that verifies the way; must never put ESP in
//! UDP where the peer has not answered a question of ours by the same way in both directions.
//!
//! An end asks in UDP: the initiator when the association is established, who has moved when the peer knows it, and an end that is asked and has
//! no answer of its own. Until the answer is there, and where none comes, ESP is protocol 50. When data in UDP stays unanswered, it
//! is asked again; ESP is protocol 50 again if the first question has no answer. Questions that are sent again go by protocol 139
//! too: the peer then asks as well, which opens a firewall on its side that lets in only what has gone out.
//!
//! A question is an UPDATE that stands beside the ordered ones, as a connectivity check of [`super::ice`] does: it changes nothing but that the end
//! that gets it asks too, and is answered whenever it comes. Protocol 139 passes no NAT, so there is none to be kept open.

use dormouse_keying::{ChildSa, Discard};
use dormouse_sansio::{Carrier, Class, Deadline, Path};
use dormouse_wire::hip::{Hit, Packet, PacketType, Param, ParamType};

use crate::association::{Association, Retry, Session, Stage};
use crate::exchange::{Around, Fate, Outcome, sleep, update};
use crate::limits::MAX_ECHO;
use crate::protect;
use crate::quirks::Quirk;

/// The version of this extension.
const VERSION: u8 = 1;

/// What an association knows of ESP in UDP.
#[derive(Debug, Default)]
pub(crate) struct InUdp {
    /// Our port and the peer's; `None`: one of the two has not shown that it takes ESP there.
    ports: Option<(u16, u16)>,
    way: Way,
    /// Our answer to the newest question that came in UDP, by its id.
    answered: Option<(u32, Vec<u8>)>,
    /// The newest question that came by protocol 139.
    prompted: Option<u32>,
}

/// How far the question is, for one path of HIP.
#[derive(Debug, Default)]
enum Way {
    /// It was not asked, or there was no answer.
    #[default]
    Untried,
    Asked(Box<Question>),
    Passes(Path),
}

#[derive(Debug)]
struct Question {
    /// Of HIP.
    path: Path,
    id: u32,
    nonce: [u8; 16],
    retry: Retry,
    /// ESP is in UDP meanwhile.
    in_use: bool,
}

/// A question of the peer.
struct Asked<'a> {
    id: u32,
    echo: &'a [u8],
}

impl InUdp {
    /// What the I2 or R2 of a peer shows.
    pub(crate) fn of(packet: &Packet<'_>, around: &Around<'_>) -> Self {
        let peer = packet.header.sender;
        let ours = is_told(peer, around).then_some(around.config.udp_port);
        Self { ports: ours.zip(shown(packet)), ..Self::default() }
    }

    /// How ESP goes where HIP takes this path: `None` is protocol 50.
    pub(crate) fn esp_path(&self, path: Path) -> Option<Path> {
        let (ours, theirs) = self.ports?;
        let passes = match &self.way {
            Way::Passes(of) => *of == path,
            Way::Asked(question) => question.in_use && question.path == path,
            Way::Untried => false,
        };
        passes.then(|| path.with_ports(Carrier::HipUdp, ours, theirs))
    }

    /// Whether ESP of the peer may come in UDP.
    pub(crate) const fn may_come(&self) -> bool {
        self.ports.is_some()
    }

    /// The addresses are others: what was found out does not count there.
    pub(crate) fn leave(&mut self) {
        self.way = Way::Untried;
    }

    /// When the question is sent again.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        let Way::Asked(question) = &self.way else { return None };
        Some(Deadline::strict(question.retry.at, "HIP: ESP in UDP"))
    }

    /// Whether there is nothing to ask for this path: it is being asked, or was answered.
    fn is_settled(&self, path: Path) -> bool {
        match &self.way {
            Way::Passes(of) => *of == path,
            Way::Asked(question) => question.path == path,
            Way::Untried => false,
        }
    }

    /// The path of HIP between the addresses by which a packet came in UDP.
    fn path_of(&self, path: Path) -> Option<Path> {
        let fits =
            path.carrier == Carrier::HipUdp && self.ports == Some((path.local.port(), path.remote.port()));
        fits.then(|| path.with_ports(Carrier::RawHip, 0, 0))
    }
}

/// Whether our I2 or R2 to this peer says that we take ESP in UDP.
fn is_told(peer: Hit, around: &Around<'_>) -> bool {
    around.config.esp_in_udp
        && sleep::is_told(peer, around)
        && !around.peers.quirks(peer).has(Quirk::EspInUdp)
        && !around.peers.quirks(peer).has(Quirk::Bare)
}

fn param(port: u16) -> Param {
    let [high, low] = port.to_be_bytes();
    Param::Opaque(ParamType::EspInUdp, vec![VERSION, 0, high, low])
}

/// What our I2 or R2 says of us.
pub(crate) fn shows(peer: Hit, around: &Around<'_>) -> Option<Param> {
    is_told(peer, around).then(|| param(around.config.udp_port))
}

/// The peer's port.
fn shown(packet: &Packet<'_>) -> Option<u16> {
    match packet.find(ParamType::EspInUdp)?.contents {
        [VERSION, _, high, low, ..] => Some(u16::from_be_bytes([*high, *low])).filter(|port| *port > 0),
        _ => None,
    }
}

// ---- questions ----------------------------------------------------------------------------------------------------------------

/// Asks the peer in UDP, unless that was done for this path, or the peer sleeps.
pub(crate) fn begin(association: &mut Association, around: &mut Around<'_>) {
    let path = association.path;
    let Stage::Up(session) = &association.stage else { return };
    if path.carrier == Carrier::RawHip
        && session.ways.in_udp.may_come()
        && !session.ways.in_udp.is_settled(path)
        && !session.dormancy.peer_sleeps()
    {
        ask(association, None, around);
    }
}

/// Data stays unanswered: if it goes in UDP, that is asked again.
pub(crate) fn doubt(association: &mut Association, around: &mut Around<'_>) {
    if let Stage::Up(session) = &association.stage
        && matches!(session.ways.in_udp.way, Way::Passes(of) if of == association.path)
    {
        ask(association, None, around);
    }
}

/// Sends a question in UDP, with the answer to one of the peer's if there is one.
fn ask(association: &mut Association, answer: Option<&Asked<'_>>, around: &mut Around<'_>) {
    let (ours, peer, path) = (association.ours, association.peer, association.path);
    let Stage::Up(session) = &mut association.stage else { return };
    let Some((local, remote)) = session.ways.in_udp.ports else { return };
    let in_use = session.ways.in_udp.esp_path(path).is_some();
    let said = answer.map(|a| (a.id, a.echo));
    let (mut draft, id, nonce) = update::question(&mut session.updates.next_id, (ours, peer), said, around);
    draft.add(&param(local));
    let packet = protect::finish(draft, &session.agreed.keys.mac_out, around.identity);
    let Some(packet) = packet else { return };
    around.outbox.push(path.with_ports(Carrier::HipUdp, local, remote), Class::Timely, &packet);
    if let Some(answer) = answer {
        session.ways.in_udp.answered = Some((answer.id, packet.clone()));
    }
    let retry = Retry::new(packet, Class::Timely, around.now, &around.config.timing);
    session.ways.in_udp.way = Way::Asked(Box::new(Question { path, id, nonce, retry, in_use }));
}

/// A question that has no answer is sent again, or given up.
pub(crate) fn handle_timeout(association: &mut Association, around: &mut Around<'_>) {
    let (owner, path) = (association.owner(), association.path);
    let Stage::Up(session) = &mut association.stage else { return };
    let InUdp { ports: Some((local, remote)), way, .. } = &mut session.ways.in_udp else { return };
    let Way::Asked(question) = way else { return };
    if question.path != path {
        *way = Way::Untried;
        return;
    }
    if question.retry.at > around.now {
        return;
    }
    let was_in_use = core::mem::take(&mut question.in_use);
    if question.retry.again(around.now) {
        let (class, packet) = (question.retry.class, &question.retry.packet);
        around.outbox.push(path.with_ports(Carrier::HipUdp, *local, *remote), class, packet);
        around.outbox.push(path, class, packet);
    } else {
        *way = Way::Untried;
    }
    if was_in_use {
        let path = association.esp_path(path, around);
        around.order(ChildSa::Remap { owner, path });
    }
}

/// An UPDATE of the peer, whose MAC is right: `None` if it is neither a question nor an answer of this kind.
pub(crate) fn receive(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    (seq, acks): (Option<u32>, &[u32]),
    around: &mut Around<'_>,
) -> Option<Outcome> {
    let Stage::Up(session) = &association.stage else { return None };
    packet.find(ParamType::EspInUdp).filter(|_| session.ways.in_udp.may_come())?;
    let answer = answer_came(association, packet, path, acks, around);
    Some(match seq {
        Some(id) => question_came(association, packet, path, id, around),
        None => answer,
    })
}

/// The answer to a question of ours, by the way that was asked about: ESP goes there.
fn answer_came(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    acks: &[u32],
    around: &mut Around<'_>,
) -> Outcome {
    let (owner, in_use) = (association.owner(), association.path);
    let Stage::Up(session) = &mut association.stage else { return Ok(Fate::Lives) };
    let way = session.ways.in_udp.path_of(path);
    let Way::Asked(question) = &session.ways.in_udp.way else {
        return Err(Discard("an answer to no request about ESP in UDP"));
    };
    let echo = packet.find(ParamType::EchoResponseSigned).map(|p| p.contents);
    if !acks.contains(&question.id) || echo != Some(&question.nonce[..]) {
        return Err(Discard("an answer to another request about ESP in UDP"));
    }
    if way != Some(question.path) || question.path != in_use {
        return Err(Discard("an answer about ESP in UDP from another path"));
    }
    let before = question.in_use;
    // It says nothing of ESP: what is unanswered still is.
    session.ways.in_udp.way = Way::Passes(in_use);
    session.place.esp_stays = None;
    if !before {
        around.stats.esp_in_udp += 1;
        let path = association.esp_path(in_use, around);
        around.order(ChildSa::Remap { owner, path });
    }
    Ok(Fate::Lives)
}

/// A question of the peer. What came in UDP is answered there, from where it is known or being asked to be. What came by protocol 139 has not
/// come in UDP, and the peer asks us to try from here.
fn question_came(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    id: u32,
    around: &mut Around<'_>,
) -> Outcome {
    let in_use = association.path;
    let Stage::Up(session) = &mut association.stage else { return Ok(Fate::Lives) };
    let is_newer =
        |than: Option<u32>| than.is_none_or(|than| id.wrapping_sub(than).wrapping_sub(1) < u32::MAX / 2);
    let Some(way) = session.ways.in_udp.path_of(path) else {
        if path != in_use || !is_newer(session.ways.in_udp.prompted) {
            return Err(Discard("a question about UDP from elsewhere, or an old one"));
        }
        session.ways.in_udp.prompted = Some(id);
        doubt(association, around);
        begin(association, around);
        return Ok(Fate::Lives);
    };
    let candidate = session.place.candidate.as_ref().is_some_and(|c| c.path == way);
    if way != in_use && !candidate {
        return Err(Discard("a question about UDP from where the peer is not known to be"));
    }
    if let Some((_, reply)) = session.ways.in_udp.answered.as_ref().filter(|(last, _)| *last == id) {
        around.outbox.push(path, Class::Urgent, reply);
        return Ok(Fate::Lives);
    }
    if !is_newer(session.ways.in_udp.answered.as_ref().map(|(last, _)| *last)) {
        return Err(Discard("an old question about UDP"));
    }
    let echo = packet.find(ParamType::EchoRequestSigned).map(|p| p.contents).filter(|e| e.len() <= MAX_ECHO);
    let echo = echo.ok_or(Discard("a question about UDP without ECHO_REQUEST_SIGNED"))?;
    session.caused.answers(around.now)?;
    around.stats.updates += 1;
    let asked = Asked { id, echo };
    if way == in_use && !session.ways.in_udp.is_settled(way) {
        ask(association, Some(&asked), around);
    } else {
        answer(session, (association.ours, association.peer), &asked, path, around);
    }
    Ok(Fate::Lives)
}

/// Answers a question where it came from.
fn answer(session: &mut Session, hits: (Hit, Hit), asked: &Asked<'_>, path: Path, around: &mut Around<'_>) {
    let mut draft = protect::draft(PacketType::Update, hits.0, hits.1);
    draft.add(&Param::Ack(vec![asked.id]));
    draft.add(&Param::Opaque(ParamType::EchoResponseSigned, asked.echo.to_vec()));
    draft.add(&param(around.config.udp_port));
    let packet = protect::finish(draft, &session.agreed.keys.mac_out, around.identity);
    let Some(packet) = packet else { return };
    around.outbox.push(path, Class::Urgent, &packet);
    session.ways.in_udp.answered = Some((asked.id, packet));
}
