//! Direct ways between two hosts behind NATs (RFC 9028 sections 4.2 to 4.6): each looks for the other at all addresses at which it may be
//! reached, with UPDATE packets that the other answers, until one way works in both directions. Owns the candidates, the checks and
//! the choice of the initiator; must never move data to a way on which the peer has not just answered a question of ours.
//!
//! Until then, and when no direct way works, HIP and ESP go through the relay, where the base exchange has shown that both ends are reached.
//! A check is an UPDATE with a nonce; unlike others, several wait at the same time, and their ids are not in order. So a check of the peer
//! is answered whenever it comes, once for each packet and so often in a second; it changes nothing by itself.

use core::net::SocketAddr;
use core::time::Duration;

use dormouse_keying::{ChildSa, Discard};
use dormouse_sansio::{Carrier, Class, Deadline, Instant, Path};
use dormouse_wire::hip::{Hit, Locator, Packet, PacketType, Param, ParamType};

use crate::association::{Association, Session, Stage};
use crate::exchange::candidates::{HOST, REFLEXIVE, RELAYED, candidate, opened, ours, priority, sealed};
use crate::exchange::{Around, Fate, Outcome, keepalive, update};
use crate::limits::{
    CHECK_TRIES, CHECK_WAIT, MAX_CHECKS_A_SECOND, MAX_ECHO, MAX_PAIRS, MAX_SEARCHES_A_MINUTE,
};
use crate::peers::Peers;
use crate::{protect, relay};

/// The search for a direct way.
#[derive(Debug)]
pub(crate) struct Ice {
    /// We began the base exchange, and choose.
    /// "The Initiator MUST take the role of controlling host, and the Responder acts as the controlled host." (RFC 9028 section 4.6)
    controlling: bool,
    /// The way through the relay.
    pub(crate) relay: Path,
    /// Where the peer said that it may be reached, with what that is worth.
    theirs: Vec<(SocketAddr, u32)>,
    /// The best first.
    pairs: Vec<Pair>,
    pacing: Duration,
    /// When the next pair may be tried.
    next: Instant,
    /// A way is looked for.
    runs: bool,
    /// When the first pair worked while better ones are tried.
    works_since: Option<Instant>,
    /// Checks of the peer that were answered in this second.
    answered: (u64, u32),
    /// Searches that began in this minute.
    searches: (u64, u32),
    /// Where we may be reached, which the peer is to learn.
    untold: Option<Vec<Locator>>,
}

#[derive(Debug)]
struct Pair {
    path: Path,
    priority: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It is to be tried; first of all, if the peer has just tried it.
    Waiting {
        triggered: bool,
    },
    Asked(Question),
    Works,
    Fails,
}

/// A check under way.
#[derive(Debug)]
struct Question {
    id: u32,
    nonce: [u8; 16],
    packet: Vec<u8>,
    at: Instant,
    left: u32,
    /// With its answer the pair is chosen.
    nominates: bool,
}

/// The answer to a check of the peer, which came by `path`.
struct Answer<'a> {
    id: u32,
    echo: &'a [u8],
    from: SocketAddr,
}

// ---- checks -------------------------------------------------------------------------------------------------------------------

/// Begins the search: the base exchange went through a relay, and the peer has named its candidates.
/// "When NAT traversal mode with ICE-HIP-UDP was successfully negotiated and selected, the Initiator and Responder MUST start the
/// connectivity checks" (RFC 9028 section 4.6)
pub(crate) fn begin(
    association: &mut Association,
    (theirs, controlling, pacing): (&[Locator], bool, Duration),
    around: &mut Around<'_>,
) {
    let relay = association.path;
    let Stage::Up(session) = &mut association.stage else { return };
    let mut ice = Ice {
        controlling,
        relay,
        theirs: Vec::new(),
        pairs: Vec::new(),
        pacing,
        next: around.now,
        runs: false,
        works_since: None,
        answered: (0, 0),
        searches: (0, 0),
        untold: None,
    };
    ice.theirs = ice.of_peer(theirs);
    ice.restart(association.relay.map(|r| r.to), around);
    session.ways.ice = Some(Box::new(ice));
}

/// The way is that through the relay again, because an end has moved: the search begins anew. If we are behind it, the peer learns where we
/// are now; where it is, the relay says.
pub(crate) fn again(association: &mut Association, around: &mut Around<'_>) {
    let (path, seen) = (association.path, association.relay.map(|r| r.to));
    let Stage::Up(session) = &mut association.stage else { return };
    let Some(ice) = session.ways.ice.as_mut().filter(|ice| ice.relay.remote == path.remote) else { return };
    ice.relay = path;
    ice.untold = seen.map(|_| ours(None, session.esp.child.spi(), around));
    ice.restart(seen, around);
    if seen.is_some() {
        update::send(association, None, around);
    }
}

/// What an UPDATE of ours says of where we are.
pub(crate) fn told(session: &Session, around: &mut Around<'_>) -> Option<Param> {
    let untold = session.ways.ice.as_ref()?.untold.clone()?;
    sealed(untold, &session.agreed.keys, around)
}

/// The peer has acknowledged what we said.
pub(crate) fn acknowledged(ice: &mut Ice) {
    ice.untold = None;
}

/// An UPDATE of the peer says where it is now.
pub(crate) fn learn(association: &mut Association, packet: &Packet<'_>, around: &Around<'_>) {
    let (path, seen) = (association.path, association.relay.map(|r| r.to));
    let Stage::Up(session) = &mut association.stage else { return };
    let Some(ice) = &mut session.ways.ice else { return };
    let Some(theirs) = opened(packet, &session.agreed) else { return };
    ice.theirs = ice.of_peer(&theirs);
    if ice.is_relayed(path) {
        ice.restart(seen, around);
    }
}

impl Ice {
    /// Whether this is the way through the relay.
    pub(crate) fn is_relayed(&self, path: Path) -> bool {
        self.relay.remote == path.remote
    }

    /// The way through the relay, from where we are now.
    pub(crate) fn through_relay(&self, peers: &Peers) -> Option<Path> {
        from_here(self.relay, peers)
    }

    /// What the peer names, but for relays.
    fn of_peer(&self, locators: &[Locator]) -> Vec<(SocketAddr, u32)> {
        let direct = |(at, _, kind): &(SocketAddr, u32, u8)| *kind != RELAYED && *at != self.relay.remote;
        let theirs = locators.iter().filter_map(candidate).filter(direct);
        theirs.map(|(at, priority, _)| (at, priority)).take(MAX_PAIRS / 2).collect()
    }

    /// All pairs are to be tried; `seen`: where the peer was seen by our relay. A peer does not cause it without end.
    fn restart(&mut self, seen: Option<SocketAddr>, around: &Around<'_>) {
        let minute = around.now.as_nanos() / 60_000_000_000;
        if self.searches.0 != minute {
            self.searches = (minute, 0);
        }
        self.searches.1 += 1;
        if self.searches.1 > MAX_SEARCHES_A_MINUTE {
            return;
        }
        self.pairs.clear();
        (self.runs, self.next, self.works_since) = (true, around.now, None);
        let theirs = self.theirs.clone();
        for (at, priority) in theirs {
            self.add(at, priority, None, around);
        }
        if let Some(seen) = seen {
            self.add(seen, priority(REFLEXIVE, 0), None, around);
        }
    }

    /// A pair with this address of the peer, if it can be one; where it stands among all.
    fn add(&mut self, at: SocketAddr, theirs: u32, path: Option<Path>, around: &Around<'_>) -> Option<usize> {
        let same = |p: &Pair| p.path.remote == at;
        if let Some(there) = self.pairs.iter().position(same) {
            return Some(there);
        }
        let local = SocketAddr::new(around.peers.ours_to(at.ip())?, around.config.udp_port);
        let path = path.unwrap_or(Path { local, remote: at, carrier: Carrier::HipUdp });
        if self.pairs.len() >= MAX_PAIRS || at == self.relay.remote || around.peers.ours().contains(&at.ip())
        {
            return None;
        }
        let ours = priority(HOST, 0);
        let (g, d) = if self.controlling { (ours, theirs) } else { (theirs, ours) };
        // RFC 8445 section 6.1.2.3.
        let priority = u64::from(g.min(d)) << 32 | u64::from(g.max(d)) << 1 | u64::from(g > d);
        let place = self.pairs.partition_point(|p| p.priority >= priority);
        self.pairs.insert(place, Pair { path, priority, state: State::Waiting { triggered: false } });
        Some(place)
    }

    /// When there is something to do.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        let at = |p: &Pair| match &p.state {
            State::Waiting { .. } => Some(self.next),
            State::Asked(question) => Some(question.at),
            State::Works | State::Fails => None,
        };
        let choice = self.works_since.filter(|_| self.best().is_some()).map(|at| at + CHECK_WAIT);
        let due = self.pairs.iter().filter_map(at).chain(choice).min();
        due.filter(|_| self.runs).map(|at| Deadline::strict(at, "HIP: a direct way"))
    }

    /// Whether another check of the peer is answered in this second.
    fn may_answer(&mut self, now: Instant) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if self.answered.0 != second {
            self.answered = (second, 0);
        }
        self.answered.1 += 1;
        self.answered.1 <= MAX_CHECKS_A_SECOND
    }

    /// The best pair that works, if it is ours to choose one and none was chosen.
    fn best(&self) -> Option<usize> {
        let nominates = |p: &Pair| matches!(&p.state, State::Asked(question) if question.nominates);
        let open = self.controlling && self.runs && !self.pairs.iter().any(nominates);
        self.pairs.iter().position(|p| matches!(p.state, State::Works)).filter(|_| open)
    }

    /// The pair that is to be chosen: the best that works, if no better one may still work.
    /// "To conclude the connectivity checks, it SHOULD nominate the pair with the highest priority." (RFC 9028 section 4.6.3)
    fn chosen(&mut self, now: Instant) -> Option<usize> {
        let best = self.best()?;
        let since = *self.works_since.get_or_insert(now);
        let open = |p: &Pair| matches!(p.state, State::Waiting { .. } | State::Asked(_));
        let better = self.pairs.get(..best).unwrap_or_default().iter().any(open);
        (!better || since + CHECK_WAIT <= now).then_some(best)
    }
}

/// The way through a relay, from where we are now.
pub(crate) fn from_here(relay: Path, peers: &Peers) -> Option<Path> {
    let local = SocketAddr::new(peers.ours_to(relay.remote.ip())?, relay.local.port());
    Some(Path { local, ..relay })
}

/// Does what is due: checks that wait for their answer, the next one, the choice.
pub(crate) fn handle_timeout(association: &mut Association, around: &mut Around<'_>) {
    let (hits, now) = ((association.ours, association.peer), around.now);
    let Stage::Up(session) = &mut association.stage else { return };
    let Some(ice) = session.ways.ice.as_mut().filter(|ice| ice.runs) else { return };
    for pair in &mut ice.pairs {
        let State::Asked(question) = &mut pair.state else { continue };
        if question.at > now {
            continue;
        }
        match question.left.checked_sub(1) {
            Some(left) => {
                // "In ICE-HIP-UDP mode, a retransmission of a connectivity check SHOULD be sent with the same sequence identifier in the SEQ
                // parameter." (RFC 9028 section 4.6.2)
                (question.left, question.at) = (left, now + CHECK_WAIT);
                around.outbox.push(pair.path, Class::Timely, &question.packet);
            }
            None => pair.state = State::Fails,
        }
    }
    // "The connectivity check messages MUST be paced by the Ta value negotiated during the base exchange" (RFC 9028 section 4.6.2)
    if ice.next <= now {
        let waits =
            |p: &Pair, first: bool| matches!(p.state, State::Waiting { triggered } if triggered || !first);
        let next =
            ice.pairs.iter().position(|p| waits(p, true)).or(ice.pairs.iter().position(|p| waits(p, false)));
        if let Some(next) = next {
            ice.next = now + ice.pacing;
            ask(session, hits, (next, false), None, around);
        }
    }
    choose(session, hits, around);
    let Some(ice) = &mut session.ways.ice else { return };
    ice.runs &= ice.pairs.iter().any(|p| !matches!(p.state, State::Fails));
}

/// Nominates a pair, if there is one to be chosen.
fn choose(session: &mut Session, hits: (Hit, Hit), around: &mut Around<'_>) {
    if let Some(best) = session.ways.ice.as_mut().and_then(|ice| ice.chosen(around.now)) {
        ask(session, hits, (best, true), None, around);
    }
}

/// Sends a check on a pair, with the answer to one of the peer's if there is one.
/// "Each connectivity check request packet MUST contain a CANDIDATE_PRIORITY parameter" (RFC 9028 section 4.6.2)
/// "Each connectivity check sent by a host MUST include a SEQ parameter and ECHO_REQUEST_SIGNED parameter" (RFC 9028 section 4.6.2)
fn ask(
    session: &mut Session,
    hits: (Hit, Hit),
    (at, nominates): (usize, bool),
    answer: Option<&Answer<'_>>,
    around: &mut Around<'_>,
) {
    let Some(pair) = session.ways.ice.as_mut().and_then(|ice| ice.pairs.get_mut(at)) else { return };
    let said = answer.map(|a| (a.id, a.echo));
    let (mut draft, id, nonce) = update::question(&mut session.updates.next_id, hits, said, around);
    answer
        .iter()
        .for_each(|a| draft.add(&Param::Transport(ParamType::MappedAddress, relay::written(a.from))));
    draft.add(&Param::Number(ParamType::CandidatePriority, priority(2, 0)));
    if nominates {
        draft.add(&Param::Opaque(ParamType::Nominate, vec![0; 4]));
    }
    let packet = protect::finish(draft, &session.agreed.keys.mac_out, around.identity);
    let Some(packet) = packet else { return pair.state = State::Fails };
    around.outbox.push(pair.path, Class::Timely, &packet);
    let (at, left) = (around.now + CHECK_WAIT, CHECK_TRIES - 1);
    pair.state = State::Asked(Question { id, nonce, packet, at, left, nominates });
}

/// An UPDATE of the peer, whose MAC is right: `None` if it is neither a check nor the answer to one of ours.
/// "Both hosts MUST continue to respond to any connectivity checks despite an address pair having been nominated." (RFC 9028 section 4.6.3)
pub(crate) fn receive(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    (seq, acks): (Option<u32>, &[u32]),
    around: &mut Around<'_>,
) -> Option<Outcome> {
    let hits = (association.ours, association.peer);
    let Stage::Up(session) = &mut association.stage else { return None };
    let ice = session.ways.ice.as_mut()?;
    if session.updates.outstanding.as_ref().is_some_and(|o| acks.contains(&o.id)) {
        return None;
    }
    let check = packet.find(ParamType::CandidatePriority).or(packet.find(ParamType::Nominate));
    let check = seq.filter(|_| check.is_some());
    let nominated = match ice.answer_came(packet, path, acks) {
        None if check.is_none() => return None,
        Some(Err(discard)) if check.is_none() => return Some(Err(discard)),
        answer => answer.and_then(Result::ok),
    };
    if nominated == Some(true) {
        conclude(association, path, around);
    }
    let Stage::Up(session) = &mut association.stage else { return None };
    if nominated == Some(false) {
        choose(session, hits, around);
    }
    Some(match check {
        Some(id) => answer(session, hits, (packet, path, id), around),
        None => Ok(Fate::Lives),
    })
}

impl Ice {
    /// The answer to a check of ours: whether that chose the pair. `None` if it is none.
    /// "The host sending a connectivity check MUST validate that the response uses the same pair of UDP ports, and drop the packet if this is
    /// not the case." (RFC 9028 section 4.6.2)
    fn answer_came(
        &mut self,
        packet: &Packet<'_>,
        path: Path,
        acks: &[u32],
    ) -> Option<Result<bool, Discard>> {
        let echo = packet.find(ParamType::EchoResponseSigned).map(|p| p.contents);
        let (pair, nonce, nominates) = self.pairs.iter_mut().find_map(|pair| match &pair.state {
            State::Asked(q) if acks.contains(&q.id) => {
                let (nonce, nominates) = (q.nonce, q.nominates);
                Some((pair, nonce, nominates))
            }
            _ => None,
        })?;
        if pair.path.remote != path.remote || pair.path.local.port() != path.local.port() {
            return Some(Err(Discard("the answer to a connectivity check from another path")));
        }
        if echo != Some(&nonce[..]) {
            return Some(Err(Discard("the answer to a check without its echo")));
        }
        (pair.path, pair.state) = (path, State::Works);
        Some(Ok(nominates))
    }
}

/// Answers a check, and tries the way that it came by if that has not been done.
/// "An UPDATE packet that acknowledges a connectivity check request MUST be sent from the same address that received the check and delivered
/// to the same address where the check was received from." (RFC 9028 section 4.6.2)
/// "Each acknowledgment UPDATE packet MUST contain a MAPPED_ADDRESS parameter with the port, protocol, and IP address of the address where
/// the connectivity check request was received from." (RFC 9028 section 4.6.2)
fn answer(
    session: &mut Session,
    hits: (Hit, Hit),
    (packet, path, id): (&Packet<'_>, Path, u32),
    around: &mut Around<'_>,
) -> Outcome {
    let Some(ice) = &mut session.ways.ice else { return Ok(Fate::Lives) };
    let echo = packet.find(ParamType::EchoRequestSigned).map(|p| p.contents).filter(|e| e.len() <= MAX_ECHO);
    let echo = echo.ok_or(Discard("a check without ECHO_REQUEST_SIGNED"))?;
    if !ice.may_answer(around.now) {
        return Err(Discard("more checks than are answered"));
    }
    let from = around.seen.map_or(path.remote, |seen| seen.relay.to);
    let reply = Answer { id, echo, from };
    let worth = match packet.read(ParamType::CandidatePriority) {
        Some(Param::Number(_, worth)) => worth,
        _ => 0,
    };
    let pair = if ice.is_relayed(path) { None } else { ice.add(path.remote, worth, Some(path), around) };
    let nominated = packet.find(ParamType::Nominate).is_some() && !ice.controlling;
    if let Some((at, pair)) = pair.and_then(|at| Some((at, ice.pairs.get_mut(at)?))) {
        match &mut pair.state {
            // "The response message MUST include a SEQ parameter with a new sequence identifier, acknowledgment of the sequence from the
            // controlling host in an ACK parameter, a new ECHO_REQUEST_SIGNED parameter, an ECHO_RESPONSE_SIGNED parameter corresponding to the
            // ECHO_REQUEST_SIGNED parameter from the controlling host, and the NOMINATE parameter." (RFC 9028 section 4.6.3)
            State::Asked(question) if nominated && question.nominates => {
                around.outbox.push(path, Class::Timely, &question.packet);
                return Ok(Fate::Lives);
            }
            _ if nominated => {
                ice.runs = true;
                ask(session, hits, (at, true), Some(&reply), around);
                return Ok(Fate::Lives);
            }
            state @ (State::Waiting { .. } | State::Fails) if ice.runs => {
                *state = State::Waiting { triggered: true };
            }
            _ => {}
        }
    }
    let mut draft = protect::draft(PacketType::Update, hits.0, hits.1);
    draft.add(&Param::Ack(vec![id]));
    draft.add(&Param::Opaque(ParamType::EchoResponseSigned, echo.to_vec()));
    draft.add(&Param::Transport(ParamType::MappedAddress, relay::written(from)));
    let packet = protect::finish(draft, &session.agreed.keys.mac_out, around.identity);
    packet.into_iter().for_each(|packet| around.outbox.push(path, Class::Urgent, &packet));
    Ok(Fate::Lives)
}

/// Both ends have just answered each other by this way: data goes there, and no more checks are sent.
/// "A host MUST NOT select a candidate pair until it has verified the pair using a connectivity check" (RFC 9028 section 4.6.2)
fn conclude(association: &mut Association, path: Path, around: &mut Around<'_>) {
    let owner = association.owner();
    let Stage::Up(session) = &mut association.stage else { return };
    let Some(ice) = &mut session.ways.ice else { return };
    (ice.runs, ice.works_since) = (false, None);
    ice.pairs.retain(|p| p.path.remote == path.remote);
    session.place.candidate = None;
    let stays = session.place.esp_stays.take().is_some();
    if association.path != path {
        association.path = path;
        around.stats.direct += 1;
    } else if !stays {
        return;
    }
    around.order(ChildSa::Remap { owner, path });
    keepalive::begin(association, around);
}
