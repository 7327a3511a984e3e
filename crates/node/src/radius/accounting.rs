//! What servers are told of sessions (RFC 2866). Owns reports until a server has taken them, each session's in their order; must never keep a session, whose state is
//! its [`Account`].
//!
//! Reports are kept in memory: what no server has taken when the process ends is lost.

use super::asking::Memory;
use super::flight::Flight;
use super::limits::{REPORT_AGAIN, REPORT_NO_LONGER, REPORTED_AT_ONCE, REPORTS_WAITING};
use super::servers::Servers;
use super::{Out, Patience, SocketOrder, Work};
use crate::record::Traffic;
use dormouse_eap::radius::{self, Connection, Event};
use dormouse_keying::Owner;
use dormouse_sansio::{Deadline, Entropy, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Interim reports may come this much later, together.
const SLACK: Duration = Duration::from_secs(10);

/// Whose session it is.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) connection: String,
    pub(crate) user: String,
    /// Our address, and the user's.
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) inner: Option<Ipv4Addr>,
}

#[derive(Debug)]
struct Details {
    /// Acct-Session-Id.
    session: String,
    about: About,
    class: Vec<Vec<u8>>,
}

/// A session that is reported on. It may go on as another SA.
#[derive(Debug)]
pub(crate) struct Account {
    details: Arc<Details>,
    pub(crate) began: Instant,
    interim: Option<Duration>,
    /// What former SAs of it have carried.
    pub(crate) before: Traffic,
}

impl Account {
    pub(super) fn new(
        now: Instant,
        entropy: &mut dyn Entropy,
        mut about: About,
        memory: Memory,
        interim: Option<Duration>,
    ) -> Self {
        if !memory.name.is_empty() {
            about.user = memory.name;
        }
        let session = format!("{:016x}", entropy.next_u64());
        let details = Arc::new(Details { session, about, class: memory.grants.class });
        Self { details, began: now, interim, before: Traffic::default() }
    }
}

#[derive(Debug)]
struct Report {
    details: Arc<Details>,
    event: Event,
    since: Instant,
    tried: Vec<usize>,
}

#[derive(Debug)]
struct Sent {
    report: Report,
    account: radius::Account,
    flight: Flight,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Accounting {
    pub(super) servers: Servers,
    name: String,
    patience: Patience,
    waiting: VecDeque<Report>,
    flights: BTreeMap<u64, Sent>,
    /// Sessions of which a report is on its way.
    busy: BTreeSet<String>,
    /// No server took the last one.
    again_at: Option<Instant>,
    interims: BTreeSet<(Instant, Owner)>,
    pub(super) lost: u64,
}

impl Accounting {
    pub(super) const fn new(servers: Servers, name: String, patience: Patience) -> Self {
        Self {
            servers,
            name,
            patience,
            waiting: VecDeque::new(),
            flights: BTreeMap::new(),
            busy: BTreeSet::new(),
            again_at: None,
            interims: BTreeSet::new(),
            lost: 0,
        }
    }

    /// Reports this, as soon as may be.
    pub(super) fn report(&mut self, now: Instant, account: &Account, event: Event) {
        if self.servers.is_empty() {
            return;
        }
        let details = account.details.clone();
        if matches!(event, Event::Interim(_)) {
            // A newer one says all that an older one does.
            let old =
                |r: &Report| matches!(r.event, Event::Interim(_)) && r.details.session == details.session;
            self.waiting.retain(|report| !old(report));
        }
        if self.waiting.len() >= REPORTS_WAITING {
            self.waiting.pop_front();
            self.lose("too many wait");
        }
        self.waiting.push_back(Report { details, event, since: now, tried: Vec::new() });
    }

    fn lose(&mut self, why: &str) {
        self.lost += 1;
        if self.lost.is_power_of_two() {
            tracing::warn!(lost = self.lost, why, "a report to the RADIUS accounting servers is lost");
        }
    }

    /// Sends what waits, as far as may be.
    pub(super) fn go_on(&mut self, work: &mut Work<'_>) {
        if self.again_at.is_some_and(|at| at > work.now) {
            return;
        }
        self.again_at = None;
        // No server may be left after one of them.
        while self.flights.len() < REPORTED_AT_ONCE && self.again_at.is_none() {
            let free = self.waiting.iter().position(|report| !self.busy.contains(&report.details.session));
            let Some(report) = free.and_then(|at| self.waiting.remove(at)) else { return };
            if report.since + REPORT_NO_LONGER <= work.now {
                self.lose("no server took it for a day");
                continue;
            }
            self.send(report, work);
        }
    }

    fn send(&mut self, mut report: Report, work: &mut Work<'_>) {
        let About { user, local, remote, inner, .. } = &report.details.about;
        let chosen = self.servers.choose(work.now, &report.tried);
        let server = chosen.and_then(|server| {
            Some((server, self.servers.address(server)?, self.servers.client(server, &self.name, *local)?))
        });
        let Some((server, to, client)) = server else {
            // No server is left: later, from the first on.
            report.tried.clear();
            self.again_at = Some(work.now + REPORT_AGAIN);
            if matches!(report.event, Event::Interim(_)) {
                return self.lose("no server takes it");
            }
            return self.waiting.push_front(report);
        };
        let connection = Connection { client, from: remote.to_string() };
        let (session, class) = (report.details.session.clone(), report.details.class.clone());
        let mut account = radius::Account::new(connection, user.clone(), session.clone(), *inner, class);
        let mut identifier = [0];
        work.entropy.fill(&mut identifier);
        match account.report(identifier[0], report.event, work.now - report.since) {
            Ok(bytes) => {
                let (socket, flight) =
                    (work.socket(), Flight::new(work.now, server, to, bytes, self.patience));
                work.out.order(flight.order(socket));
                self.busy.insert(session);
                self.flights.insert(socket, Sent { report, account, flight });
            }
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// See [`super::asking::Asking::came`].
    pub(super) fn came(&mut self, socket: u64, datagram: &[u8], work: &mut Work<'_>) -> bool {
        let Some(sent) = self.flights.get_mut(&socket) else { return false };
        let server = sent.flight.server;
        match sent.account.answer(datagram) {
            Err(why) => {
                sent.flight.heard = Some(why);
                self.servers.discarded(server, why);
            }
            Ok(()) => {
                self.end(socket, work.out);
                self.servers.answered(work.now, server);
            }
        }
        true
    }

    /// A request is not on its way any more.
    fn end(&mut self, socket: u64, out: &mut Out) -> Option<Sent> {
        let sent = self.flights.remove(&socket)?;
        self.busy.remove(&sent.report.details.session);
        out.order(SocketOrder::Close { socket });
        Some(sent)
    }

    /// See [`super::asking::Asking::unreachable`].
    pub(super) fn unreachable(&mut self, socket: u64, why: &str, work: &mut Work<'_>) -> bool {
        let Some(Sent { mut report, flight, .. }) = self.end(socket, work.out) else { return false };
        self.servers.failed(work.now, flight.since, flight.server, why);
        report.tried.push(flight.server);
        self.send(report, work);
        true
    }

    pub(super) fn handle_timeout(&mut self, work: &mut Work<'_>) {
        let due = |(socket, sent): (&u64, &Sent)| (sent.flight.due <= work.now).then_some(*socket);
        for socket in self.flights.iter().filter_map(due).collect::<Vec<_>>() {
            let Some(sent) = self.flights.get_mut(&socket) else { continue };
            match sent.flight.overdue(work.now, socket, self.patience) {
                Ok(again) => work.out.order(again),
                Err(why) => _ = self.unreachable(socket, &why, work),
            }
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let again = self.again_at.filter(|_| !self.waiting.is_empty());
        self.flights.values().map(|sent| sent.flight.due).chain(again).min()
    }

    /// When the first interim report is due.
    pub(super) fn interim_deadline(&self) -> Option<Deadline> {
        let (at, _) = self.interims.first()?;
        Some(Deadline { at: *at, slack: SLACK, why: "RADIUS interim report" })
    }

    pub(super) fn schedule(&mut self, now: Instant, owner: Owner, account: &Account) {
        self.interims.extend(account.interim.map(|interim| (now + interim, owner)));
    }

    pub(super) fn due_interim(&mut self, now: Instant) -> Option<Owner> {
        let first = *self.interims.first().filter(|(at, _)| *at <= now)?;
        self.interims.remove(&first);
        Some(first.1)
    }

    /// Other servers are told from now on.
    pub(super) fn hand_over(&mut self, to: &mut Self, out: &mut Out) {
        let sockets: Vec<u64> = self.flights.keys().copied().collect();
        let flown: Vec<Report> = sockets.iter().filter_map(|s| Some(self.end(*s, out)?.report)).collect();
        to.waiting = flown.into_iter().chain(self.waiting.drain(..)).collect();
        to.waiting.iter_mut().for_each(|report| report.tried.clear());
        to.interims = std::mem::take(&mut self.interims);
        to.lost = self.lost;
    }

    /// How many reports no server has taken yet.
    pub(super) fn pending(&self) -> usize {
        self.flights.len() + self.waiting.len()
    }
}
