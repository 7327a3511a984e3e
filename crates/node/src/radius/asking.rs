//! Whether users are let in: conversations that are passed on to RADIUS servers. Owns who is asked what, in which order, and how long an answer is waited for;
//! must never let anybody in itself.
//!
//! A conversation that has begun at a server cannot go on at another one, which knows nothing of it: if the server falls silent then, the caller comes again.

use super::flight::Flight;
use super::limits::{
    ASK_NO_LONGER, ASKED_AT_ONCE, ASKED_AT_ONCE_BY_ONE, CALLERS_PATIENCE, CONVERSATIONS, QUESTIONS_WAITING,
    REMEMBERED,
};
use super::servers::Servers;
use super::{Out, Patience, SocketOrder, Work};
use dormouse_crypto::Secret;
use dormouse_eap::packet::{Packet, Type};
use dormouse_eap::radius::{Access, Answer, Connection, Grants};
use dormouse_ike::config::eap_identity;
use dormouse_ike::elsewhere::{Accepted, Granted, Question, Verdict};
use dormouse_ike::prefix::prefix_of;
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use ipnet::IpNet;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

#[derive(Debug)]
struct Conversation {
    access: Access,
    server: usize,
    connection: String,
    /// Our address, and the caller's.
    between: (IpAddr, IpAddr),
    /// The caller's first packet, until a server has answered it: others can be asked.
    first: Option<Vec<u8>>,
    /// Servers that did not answer, and why.
    tried: Vec<(usize, String)>,
    asked: Instant,
}

/// A connection, and one of its users as [`Identity::canonical`](dormouse_crypto::cert::Identity::canonical) has him: by the case of letters two mail addresses
/// can differ, and two host names not.
type Who = (String, Vec<u8>);

/// `None`: IKE takes nobody of this name.
fn who(connection: String, user: &str) -> Option<Who> {
    Some((connection, eap_identity(user)?.canonical()))
}

/// What a user was granted last, for accounting.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) name: String,
    pub(super) grants: Grants,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) servers: Servers,
    name: String,
    patience: Patience,
    flights: BTreeMap<u64, (SaId, Flight)>,
    conversations: BTreeMap<SaId, Conversation>,
    waiting: VecDeque<(Instant, Question)>,
    /// By connection and user.
    remembered: BTreeMap<Who, Memory>,
    in_order: VecDeque<Who>,
}

impl Asking {
    pub(super) const fn new(servers: Servers, name: String, patience: Patience) -> Self {
        Self {
            servers,
            name,
            patience,
            flights: BTreeMap::new(),
            conversations: BTreeMap::new(),
            waiting: VecDeque::new(),
            remembered: BTreeMap::new(),
            in_order: VecDeque::new(),
        }
    }

    pub(super) fn ask(&mut self, question: Question, work: &mut Work<'_>) {
        if self.flights.len() < ASKED_AT_ONCE && has_room(&self.flying(), question.from) {
            return self.begin(question, work);
        }
        if self.waiting.len() >= QUESTIONS_WAITING {
            let why = format!("{QUESTIONS_WAITING} callers wait for an answer already");
            return work.out.verdict(question.sa, Verdict::Unanswered(why));
        }
        self.waiting.push_back((work.now, question));
    }

    /// How many requests are on their way of each prefix.
    fn flying(&self) -> BTreeMap<IpNet, usize> {
        let mut flying = BTreeMap::new();
        for conversation in self.flights.values().filter_map(|(sa, _)| self.conversations.get(sa)) {
            *flying.entry(prefix_of(conversation.between.1)).or_default() += 1;
        }
        flying
    }

    fn begin(&mut self, question: Question, work: &mut Work<'_>) {
        let now = work.now;
        let Question { sa, connection, local, from, response } = question;
        if let Some(conversation) = self.conversations.get_mut(&sa) {
            conversation.asked = now;
            return self.send(sa, &response, work);
        }
        let begins =
            !matches!(Packet::parse(&response), Ok(Packet::Response { kind, .. }) if kind != Type::IDENTITY);
        if !begins {
            let why =
                "its conversation is not known any more: the configuration has changed, or it was too slow";
            return work.out.verdict(sa, Verdict::Unanswered(why.to_owned()));
        }
        if !self.make_room(now) {
            let why = format!("{CONVERSATIONS} callers are being asked already");
            return work.out.verdict(sa, Verdict::Unanswered(why));
        }
        let chosen = self.servers.choose(now, &[]);
        let between = (local, from);
        let Some((server, access)) = chosen.and_then(|server| Some((server, self.access(server, between)?)))
        else {
            return work.out.verdict(sa, Verdict::Unanswered("none is configured".to_owned()));
        };
        let (first, tried) = (Some(response.clone()), Vec::new());
        self.conversations
            .insert(sa, Conversation { access, server, connection, between, first, tried, asked: now });
        self.send(sa, &response, work);
    }

    /// Forgets callers who have not come back.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.conversations.len() >= CONVERSATIONS / 2 {
            let flies = |sa: &SaId| self.flights.values().any(|(of, _)| of == sa);
            let gone = |(sa, c): &(&SaId, &Conversation)| c.asked + CALLERS_PATIENCE <= now && !flies(sa);
            let gone: Vec<SaId> = self.conversations.iter().filter(gone).map(|(sa, _)| *sa).collect();
            gone.iter().for_each(|sa| _ = self.conversations.remove(sa));
        }
        self.conversations.len() < CONVERSATIONS
    }

    fn access(&self, server: usize, (local, from): (IpAddr, IpAddr)) -> Option<Access> {
        let client = self.servers.client(server, &self.name, local)?;
        Some(Access::new(Connection { client, from: from.to_string() }))
    }

    fn send(&mut self, sa: SaId, response: &[u8], work: &mut Work<'_>) {
        let Some(conversation) = self.conversations.get_mut(&sa) else { return };
        let mut identifier = [0];
        work.entropy.fill(&mut identifier);
        let asked = conversation.access.ask(identifier[0], response, work.entropy);
        match (asked, self.servers.address(conversation.server)) {
            (Ok(bytes), Some(to)) => {
                let socket = work.socket();
                let flight = Flight::new(work.now, conversation.server, to, bytes, self.patience);
                work.out.order(flight.order(socket));
                self.flights.insert(socket, (sa, flight));
            }
            (asked, _) => {
                self.conversations.remove(&sa);
                let why = asked.map_or_else(|e| e.to_string(), |_| "none is there".to_owned());
                let packet = failure(response.get(1).copied().unwrap_or_default());
                work.out.verdict(sa, Verdict::Refused { packet, why: format!("is not asked: {why}") });
            }
        }
    }

    /// Something came to a socket of ours. False if it is not.
    pub(super) fn came(&mut self, socket: u64, datagram: &[u8], work: &mut Work<'_>) -> bool {
        let Some((sa, flight)) = self.flights.get_mut(&socket) else { return false };
        let (sa, server) = (*sa, flight.server);
        let answer = match self.conversations.get_mut(&sa).map(|c| c.access.answer(datagram)) {
            Some(Ok(answer)) => answer,
            Some(Err(why)) => {
                flight.heard = Some(why);
                self.servers.discarded(server, why);
                return true;
            }
            None => return true,
        };
        self.flights.remove(&socket);
        work.out.order(SocketOrder::Close { socket });
        self.servers.answered(work.now, server);
        let verdict = self.judge(work.now, sa, server, answer);
        work.out.verdict(sa, verdict);
        true
    }

    fn judge(&mut self, now: Instant, sa: SaId, server: usize, answer: Answer) -> Verdict {
        let address = self.servers.address(server).map(|a| a.to_string()).unwrap_or_default();
        if let (Answer::Continue { eap }, Some(conversation)) = (&answer, self.conversations.get_mut(&sa)) {
            (conversation.first, conversation.asked) = (None, now);
            return Verdict::Continue(eap.clone());
        }
        let conversation = self.conversations.remove(&sa);
        match answer {
            Answer::Continue { eap } => Verdict::Continue(eap),
            Answer::Accepted { eap, identity, msk, grants } => {
                let granted = Granted { lasts: grants.lasts, address: grants.address };
                if let Some(conversation) = conversation {
                    self.remember(conversation.connection, &identity, grants);
                }
                let key = Secret::from(msk.as_bytes());
                Verdict::Accepted(Box::new(Accepted { packet: eap, user: identity, key, granted }))
            }
            Answer::Rejected { eap, message } => {
                let message = message.map(|m| format!(": {m:?}")).unwrap_or_default();
                Verdict::Refused { packet: eap, why: format!("{address} does not let the user in{message}") }
            }
            Answer::Broken { eap, why } => {
                let why = why.to_string().replacen("the RADIUS server", &address, 1);
                Verdict::Refused { packet: eap, why }
            }
        }
    }

    pub(super) fn remember(&mut self, connection: String, user: &str, grants: Grants) {
        let Some(key) = who(connection, user) else { return };
        let memory = Memory { name: user.to_owned(), grants };
        if self.remembered.insert(key.clone(), memory).is_none() {
            self.in_order.push_back(key);
        }
        if self.remembered.len() > REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.remembered.remove(&oldest);
        }
    }

    /// What this user was granted last.
    pub(super) fn granted(&self, connection: &str, user: &str) -> Option<&Memory> {
        self.remembered.get(&who(connection.to_owned(), user)?)
    }

    /// Nothing can be heard at this socket. False if it is not ours.
    pub(super) fn unreachable(&mut self, socket: u64, why: &str, work: &mut Work<'_>) -> bool {
        let Some((sa, flight)) = self.flights.remove(&socket) else { return false };
        work.out.order(SocketOrder::Close { socket });
        self.failed(sa, &flight, why, work);
        true
    }

    fn failed(&mut self, sa: SaId, flight: &Flight, why: &str, work: &mut Work<'_>) {
        let (now, server) = (work.now, flight.server);
        self.servers.failed(now, flight.since, server, why);
        let Some(conversation) = self.conversations.get_mut(&sa) else { return };
        conversation.tried.push((server, why.to_owned()));
        let tried: Vec<usize> = conversation.tried.iter().map(|(server, _)| *server).collect();
        let (between, asked) = (conversation.between, conversation.asked);
        let first = conversation.first.clone().filter(|_| now < asked + ASK_NO_LONGER);
        let other =
            self.servers.choose(now, &tried).and_then(|server| Some((server, self.access(server, between)?)));
        if let (Some(first), Some((server, access))) = (first, other)
            && let Some(conversation) = self.conversations.get_mut(&sa)
        {
            (conversation.server, conversation.access) = (server, access);
            return self.send(sa, &first, work);
        }
        let Some(conversation) = self.conversations.remove(&sa) else { return };
        let in_the_middle = conversation.first.is_none();
        let text = |(server, why): &(usize, String)| {
            let address = self.servers.address(*server).map(|a| a.to_string()).unwrap_or_default();
            let middle = if in_the_middle { ", in the middle of a conversation" } else { "" };
            format!("{address} ({why}{middle})")
        };
        let tried: Vec<String> = conversation.tried.iter().map(text).collect();
        work.out.verdict(sa, Verdict::Unanswered(tried.join(", ")));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.flights.values().map(|(_, flight)| flight.due).min()
    }

    pub(super) fn handle_timeout(&mut self, work: &mut Work<'_>) {
        let now = work.now;
        let due = |(socket, (_, flight)): (&u64, &(SaId, Flight))| (flight.due <= now).then_some(*socket);
        for socket in self.flights.iter().filter_map(due).collect::<Vec<_>>() {
            let Some((_, flight)) = self.flights.get_mut(&socket) else { continue };
            match flight.overdue(now, socket, self.patience) {
                Ok(again) => work.out.order(again),
                Err(why) => _ = self.unreachable(socket, &why, work),
            }
        }
    }

    /// Asks what had to wait, as far as there is room now: the first of a prefix that has not its share already.
    pub(super) fn go_on(&mut self, work: &mut Work<'_>) {
        // Their callers are not there any more.
        while self.waiting.front().is_some_and(|(since, _)| *since + CALLERS_PATIENCE <= work.now) {
            self.waiting.pop_front();
        }
        while self.flights.len() < ASKED_AT_ONCE && !self.waiting.is_empty() {
            let flying = self.flying();
            let first = self.waiting.iter().position(|(_, question)| has_room(&flying, question.from));
            let Some((_, question)) = first.and_then(|first| self.waiting.remove(first)) else { return };
            self.begin(question, work);
        }
    }

    /// The servers are others from now on: who waits for an answer may come again.
    pub(super) fn give_up(&mut self, out: &mut Out) {
        let flying =
            std::mem::take(&mut self.flights).into_iter().map(|(socket, (sa, _))| (Some(socket), sa));
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(_, question)| (None, question.sa));
        for (socket, sa) in flying.chain(waiting) {
            if let Some(socket) = socket {
                out.order(SocketOrder::Close { socket });
            }
            out.verdict(sa, Verdict::Unanswered("the configuration has changed meanwhile".to_owned()));
        }
        self.conversations.clear();
    }

    /// What users were granted is remembered.
    pub(super) fn inherit(&mut self, old: &mut Self) {
        self.remembered = std::mem::take(&mut old.remembered);
        self.in_order = std::mem::take(&mut old.in_order);
    }

    /// How many wait for an answer.
    pub(super) fn pending(&self) -> usize {
        self.flights.len() + self.waiting.len()
    }
}

/// Whether a caller's prefix has not its share of requests on their way already.
fn has_room(flying: &BTreeMap<IpNet, usize>, from: IpAddr) -> bool {
    flying.get(&prefix_of(from)).is_none_or(|theirs| *theirs < ASKED_AT_ONCE_BY_ONE)
}

fn failure(identifier: u8) -> Vec<u8> {
    Packet::Failure { identifier }.emit().unwrap_or_default()
}
