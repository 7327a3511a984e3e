//! What `dormouse` asks, answered. Owns the clients that wait or watch; every answer is read off the node.

use crate::daemon::Daemon;
use crate::forward::Forward;
use crate::keeper::Keeper;
use crate::tally::Tally;
use crate::{kernel, workers};
use crate::{removal, status};
use dormouse_control as control;
use dormouse_control::{ConnectionState, Error, ErrorKind, EventKind, Reply, Request, Response, Verb};
use dormouse_ike::limits::STORE_PATIENCE;
use dormouse_io::clock::{unix_now, unix_now_precise};
use dormouse_io::control::{ClientId, ControlEvent, ControlServer};
use dormouse_node::config::file::Role;
use dormouse_node::ladder::{Rung, State};
use dormouse_node::sleeper::{Cause, Reason};
use dormouse_node::{Change, ClientInfo, FailureKind, Offer};
use dormouse_sansio::{Deadline, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The name of the timer of a client that waits.
pub(crate) const WAIT_ENDS: &str = "control: a wait ends";

/// A client that waits for a connection to reach a state.
#[derive(Debug)]
struct Waiting {
    connection: String,
    state: ConnectionState,
    until: Option<Instant>,
    /// Failures of full exchanges before the wait began do not end it.
    failures: u64,
}

/// See [`Verbs::voiding`].
#[derive(Debug)]
struct Voiding {
    until: Instant,
    /// As [`crate::keeper::Keeper::mark`] has it, once it was handed over.
    mark: Option<u64>,
    /// The answer to its order if that is not on the disk in time.
    late: &'static str,
}

/// Of tickets that are void.
const VOID: &str = "in force until the daemon ends, but not on the disk yet, which fails or is slow (see the log): \
                    after a restart the tickets could count again";
/// Of a denial that gateways share.
const STILL_DENIED: &str = "not on record yet: the database that the gateways share has not answered (see the log). It is tried again until \
                            the daemon ends; until then the denial may be in force again: see `dormouse deny --list`";

/// How a connection has failed.
#[derive(Debug)]
struct Failures {
    /// How often a rung failed.
    count: u64,
    /// The last time: which rung,
    rung: Rung,
    /// and why, in words.
    why: String,
    kind: FailureKind,
    offer: Offer,
}

/// The clients of the control socket.
#[derive(Debug)]
pub(crate) struct Verbs {
    pub(crate) server: ControlServer,
    waiting: BTreeMap<ClientId, Waiting>,
    watching: BTreeSet<ClientId>,
    /// Clients that wait for the device to be asleep.
    suspending: Vec<ClientId>,
    /// Clients that wait for what they have asked to be on the disk too: tickets that are void, a denial that is taken back.
    voiding: BTreeMap<ClientId, Voiding>,
    /// By connection.
    failures: BTreeMap<String, Failures>,
    /// What was announced, in numbers.
    pub(crate) tally: Tally,
}

impl Verbs {
    pub(crate) fn new(server: ControlServer) -> Self {
        Self {
            server,
            waiting: BTreeMap::new(),
            watching: BTreeSet::new(),
            suspending: Vec::new(),
            voiding: BTreeMap::new(),
            failures: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// The requests that came in, and the clients that are gone; malformed requests are answered here.
    pub(crate) fn requests(&mut self) -> (Vec<(ClientId, Request)>, Vec<ClientId>) {
        let (mut requests, mut gone) = (Vec::new(), Vec::new());
        while let Some(event) = self.server.next() {
            match event {
                ControlEvent::Request { client, line } => match Request::parse(&line) {
                    Ok(request) => requests.push((client, request)),
                    Err(e) => self.reply(client, Err(e)),
                },
                ControlEvent::Gone { client } => {
                    self.waiting.remove(&client);
                    self.watching.remove(&client);
                    self.suspending.retain(|c| *c != client);
                    self.voiding.remove(&client);
                    gone.push(client);
                }
            }
        }
        (requests, gone)
    }

    /// Takes out those who wait no longer for what they have asked to be on the disk; and the answer for each if it is not.
    fn void(&mut self, over: impl Fn(&Voiding) -> bool) -> Vec<(ClientId, &'static str)> {
        let over_now = self.voiding.iter().filter(|(_, v)| over(v));
        let clients = over_now.map(|(client, v)| (*client, v.late)).collect();
        self.voiding.retain(|_, v| !over(v));
        clients
    }

    pub(crate) fn reply(&mut self, client: ClientId, result: Result<Reply, Error>) {
        if let Ok(line) = control::line(&Response::from(result)) {
            self.server.send(client, line.as_bytes());
        }
    }

    /// Tells the clients that watch.
    pub(crate) fn announce(&mut self, change: Change) {
        self.tally.note(&change);
        if let Change::RungFailed { connection, rung, why, kind, offer } = &change {
            let count = self.failures.get(connection).map_or(0, |f| f.count) + 1;
            let failures =
                Failures { count, rung: *rung, why: why.clone(), kind: *kind, offer: offer.clone() };
            self.failures.insert(connection.clone(), failures);
        }
        if self.watching.is_empty() {
            return;
        }
        let (connection, kind) = event(change);
        self.tell(Some(connection).filter(|c| !c.is_empty()), kind);
    }

    pub(crate) fn tell(&mut self, connection: Option<String>, kind: EventKind) {
        let event = control::Event { at_unix: unix_now_precise().as_secs_f64(), connection, kind };
        for client in self.watching.clone() {
            self.reply(client, Ok(Reply::Event(Box::new(event.clone()))));
        }
    }

    fn outcome(
        &self,
        waiting: &Waiting,
        info: &ClientInfo,
        now: Instant,
        trouble: impl Fn(&str) -> Option<String>,
    ) -> Option<Result<Reply, Error>> {
        if status::state(info) == waiting.state {
            return Some(Ok(Reply::Done));
        }
        // A refusal for good will not mend itself: say so at once instead of waiting for a timeout that hides the reason.
        if waiting.state == ConnectionState::Up
            && info.state == State::Backoff
            && let Some(last) = self.failures.get(&info.name)
            && last.count > waiting.failures
            && !matches!(last.kind, FailureKind::Timeout | FailureKind::AnswersLost | FailureKind::Busy)
        {
            return Some(Err(status::error(&info.name, &last.why, last.kind, &last.offer)));
        }
        if waiting.until.is_some_and(|until| until <= now) {
            let state = status::state(info);
            let (name, wanted) = (&info.name, waiting.state.name());
            let mut kind = ErrorKind::Timeout;
            let mut message = format!("{name} is {}, not {wanted}, and the time is over", state.name());
            if let Some(trouble) = trouble(name) {
                message = format!("{message}; {trouble}");
            } else if state == ConnectionState::Offline {
                (kind, message) =
                    (ErrorKind::NotConnected, format!("{message}; no network leads to the gateway"));
            } else if let Some(last) = self.failures.get(name).filter(|f| f.count > waiting.failures) {
                message = format!("{message}; last failure ({}): {}", last.rung.name(), last.why);
                kind = if last.kind == FailureKind::AnswersLost { ErrorKind::AnswersLost } else { kind };
            }
            return Some(Err(Error::new(kind, message)));
        }
        None
    }

    /// The moments at which clients' waits are over.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        let waits = self.waiting.values().filter_map(|w| w.until);
        waits.chain(self.voiding.values().map(|v| v.until)).map(|at| Deadline::strict(at, WAIT_ENDS))
    }

    /// The device is asleep: answers the clients that asked for it.
    pub(crate) fn fell_asleep(&mut self) {
        for client in std::mem::take(&mut self.suspending) {
            self.reply(client, Ok(Reply::Done));
        }
    }

    pub(crate) fn goodbye(&mut self) {
        self.tell(None, EventKind::Stopping);
    }
}

impl Daemon {
    /// What `client` has asked is done, and outlives a power cut: it hears so then; or `late` if the store does not say so in time.
    fn answer_when_written(&mut self, now: Instant, client: ClientId, late: &'static str) {
        self.verbs.voiding.insert(client, Voiding { until: now + STORE_PATIENCE, mark: None, late });
    }

    /// What the host has ordered is handed over to the store: answers those for whom nothing was, or in vain.
    fn look_at_voiding(&mut self, now: Instant) {
        for voiding in self.verbs.voiding.values_mut().filter(|v| v.mark.is_none()) {
            // Without a store there are no tickets.
            voiding.mark = Some(self.helpers.keeper.as_ref().map_or(0, Keeper::mark));
        }
        if self.helpers.keeper.is_none() {
            self.written(0);
        }
        for (client, late) in self.verbs.void(|v| v.until <= now) {
            self.verbs.reply(client, Err(Error::new(ErrorKind::Other, late)));
        }
    }

    /// Everything before this mark is on the disk.
    pub(crate) fn written(&mut self, mark: u64) {
        for (client, _) in self.verbs.void(|v| v.mark.is_some_and(|m| m <= mark)) {
            self.verbs.reply(client, Ok(Reply::Done));
        }
    }

    /// Answers those whose wait is over.
    pub(crate) fn answer_waiting(&mut self, now: Instant) {
        self.look_at_voiding(now);
        if self.verbs.waiting.is_empty() {
            return;
        }
        let infos = self.host.node().client_infos(now);
        let mut answers = Vec::new();
        for (client, waiting) in &self.verbs.waiting {
            let Some(info) = infos.iter().find(|i| i.name == waiting.connection) else {
                let gone = format!("the configuration does not have {} any more", waiting.connection);
                answers.push((*client, Err(Error::new(ErrorKind::UnknownConnection, gone))));
                continue;
            };
            if let Some(answer) = self.verbs.outcome(waiting, info, now, |name| self.host.nameless(name)) {
                answers.push((*client, answer));
            }
        }
        for (client, answer) in answers {
            self.verbs.waiting.remove(&client);
            self.verbs.reply(client, answer);
        }
    }

    /// Answers one request.
    pub(crate) fn answer(&mut self, now: Instant, client: ClientId, request: Request) {
        let result = match request.verb {
            Verb::Up { connection } => self.named(connection).map(|name| {
                self.host.up(now, &name);
                Reply::Done
            }),
            Verb::Down { connection: Some(connection), peer: Some(peer) } => {
                match self.remove(now, &connection, &peer) {
                    Ok(()) => return self.answer_when_written(now, client, VOID),
                    Err(e) => Err(e),
                }
            }
            Verb::Down { connection, .. } => self.named(connection).map(|name| {
                self.host.down(now, &name);
                self.block.down(&name);
                Reply::Done
            }),
            Verb::DownChild { connection, peer, spi } => {
                self.remove_child(now, &connection, &peer, spi).map(|()| Reply::Done)
            }
            Verb::Rekey { connection, peer, keys } => {
                self.rekey(now, connection, peer.as_deref(), keys).map(|()| Reply::Done)
            }
            Verb::Drain { within_seconds } => match self.drain(now, client, within_seconds) {
                Ok(()) => return,
                Err(e) => Err(e),
            },
            Verb::Redirect { connection, peer, to } => self.redirect(now, &connection, peer.as_deref(), &to),
            Verb::Deny { whom: None } => self.denials(),
            Verb::Deny { whom: Some(whom) } => self.deny(now, client, &whom),
            // One gateway alone has written it down by then.
            Verb::Allow { whom } => match self.allow(now, client, &whom) {
                Ok(()) if self.helpers.cluster.is_some() => {
                    return self.answer_when_written(now, client, STILL_DENIED);
                }
                done => done.map(|()| Reply::Done),
            },
            Verb::ForgetTickets => match self.forget_tickets(now) {
                Ok(()) => return self.answer_when_written(now, client, VOID),
                Err(e) => Err(e),
            },
            Verb::Holder { address } => Ok(self.holder(address)),
            Verb::Renewal { connection, identity, from, outcome } => self
                .record_renewal(now, client, &connection, identity.as_deref(), from, outcome)
                .map(|()| Reply::Done),
            Verb::HipUp { peer, timeout_seconds } => {
                match self.hip_up(now, client, &peer, timeout_seconds) {
                    Some(result) => result,
                    // Answered when it is known what has become of it.
                    None => return,
                }
            }
            Verb::HipDown { peer } => self.hip_down(now, &peer),
            Verb::KeysAt { peer, router } => self.device_is_at(now, &peer, &router),
            Verb::KeysHere { device, previous } => self.device_has_come(now, device, previous.as_deref()),
            Verb::KeysGone { device } => self.device_has_gone(now, device),
            Verb::Suspend if self.is_gateway_alone() => Err(Error::new(
                ErrorKind::Request,
                "this machine is a gateway alone: it has no session to leave asleep, and goes on forwarding",
            )),
            Verb::Suspend => {
                if self.host.suspend(now, Reason::User) {
                    // Answered when the gateway knows, or has had its time: the radio may go off then.
                    self.verbs.suspending.push(client);
                    return;
                }
                Ok(Reply::Done)
            }
            Verb::Resume => {
                self.host.resume(now, Cause::User);
                Ok(Reply::Done)
            }
            Verb::Exercise { connection, rung } => {
                self.named(connection).and_then(|name| self.exercise(now, &name, rung))
            }
            Verb::Mode { mode: None } => Ok(Reply::Mode(self.mode())),
            Verb::Mode { mode: Some(mode) } => self.set_mode(now, mode).map(|()| Reply::Done),
            Verb::Status => Ok(Reply::Status(Box::new(self.status(now)))),
            Verb::Sessions { after } => Ok(Reply::Sessions(status::sessions(
                self.host.node(),
                Some(dormouse_keying::SaId::new(after)),
                now,
            ))),
            Verb::Portal { addresses, seconds } => {
                let time = Duration::from_secs(seconds.into());
                self.block.open_portal(now, addresses, time).map(Reply::Portal)
            }
            Verb::Stats => Ok(Reply::Stats(Box::new(self.stats()))),
            Verb::Doctor => Ok(Reply::Doctor(self.doctor(now))),
            Verb::Watch => {
                self.watch_from_now(now, client);
                return;
            }
            Verb::Wait { connection, state, timeout_seconds } => match self.named(connection) {
                Ok(connection) => {
                    let until = timeout_seconds
                        .map(|s| now + Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX));
                    // What has failed already is an answer too, if the connection rests after it.
                    let failures =
                        self.verbs.failures.get(&connection).map_or(0, |f| f.count).saturating_sub(1);
                    self.verbs.waiting.insert(client, Waiting { connection, state, until, failures });
                    return;
                }
                Err(e) => Err(e),
            },
            Verb::Reload => {
                self.reload(now, Some(client));
                return;
            }
            Verb::Shutdown => {
                self.stopping = true;
                Ok(Reply::Done)
            }
        };
        self.verbs.reply(client, result);
    }

    fn exercise(&mut self, now: Instant, name: &str, rung: control::WakeRung) -> Result<Reply, Error> {
        let rung = match rung {
            control::WakeRung::Held => Rung::Held,
            control::WakeRung::Mobike => Rung::Move,
            control::WakeRung::Ticket => Rung::Resume,
            control::WakeRung::Full => Rung::Full,
        };
        if self.host.node_mut().exercise(now, name, rung) {
            return Ok(Reply::Done);
        }
        let why = match rung {
            Rung::Resume => "is not up and at rest, or holds no ticket",
            _ => "is not up and at rest",
        };
        Err(Error::new(ErrorKind::NotConnected, format!("{name} {why}")))
    }

    /// The client connection that is meant.
    pub(crate) fn named(&self, name: Option<String>) -> Result<String, Error> {
        let clients: Vec<&str> =
            self.connections.iter().filter(|c| c.role == Role::Client).map(|c| c.name.as_str()).collect();
        let known = || if clients.is_empty() { "none".to_owned() } else { clients.join(", ") };
        match (name, clients.as_slice()) {
            (Some(name), _) if clients.contains(&name.as_str()) => Ok(name),
            (Some(name), _) if self.is_gateway(&name) => Err(removal::open_to_all(&name)),
            (Some(name), _) => {
                let message =
                    format!("there is no client connection '{name}'; client connections: {}", known());
                Err(Error::new(ErrorKind::UnknownConnection, message)
                    .with_change(format!("add [connection.{name}] to {}", self.args.config.display())))
            }
            (None, [only]) => Ok((*only).to_owned()),
            (None, _) => Err(Error::new(
                ErrorKind::UnknownConnection,
                format!("name a client connection: {}", known()),
            )),
        }
    }

    fn watch_from_now(&mut self, now: Instant, client: ClientId) {
        self.verbs.watching.insert(client);
        for info in self.host.node().client_infos(now) {
            let kind = EventKind::Snapshot { state: status::state(&info) };
            let event = control::Event {
                at_unix: unix_now_precise().as_secs_f64(),
                connection: Some(info.name),
                kind,
            };
            self.verbs.reply(client, Ok(Reply::Event(Box::new(event))));
        }
    }

    fn status(&mut self, now: Instant) -> control::Status {
        let sleep = self.sleep_status(now);
        if self.host.node().chooses_by_signal() {
            self.read_signal();
        }
        let connection = |info: &ClientInfo| {
            let routes = self.machine.routes(&info.name).iter().map(ToString::to_string).collect();
            let block = self.block.status(&info.name);
            let domains = self.machine.domains(&info.name);
            control::Connection { block, domains, ..status::connection(info, routes, unix_now(), now) }
        };
        let connections = self.host.node().client_infos(now).iter().map(connection).collect();
        let mut deadlines: Vec<_> = self.host.deadlines();
        deadlines.extend(self.waits());
        deadlines.sort_by_key(|d| d.at);
        let more_deadlines = deadlines.len().saturating_sub(control::MOST);
        control::Status {
            daemon: control::DaemonStatus {
                release: env!("CARGO_PKG_VERSION").into(),
                pid: std::process::id(),
                uptime_seconds: (now - self.started).as_secs_f64(),
                interface: self.wires.tun.name().into(),
                mtu: self.wires.tun_mtu,
                listen: self.wires.carriers.udp.iter().map(|s| s.local_addr().to_string()).collect(),
                resolver: self.machine.resolver_in_use.clone(),
                config: self.args.config.display().to_string(),
                suspended: self.host.node().is_suspended(),
            },
            connections,
            in_clear: self.in_clear(now),
            portal: self.block.portal(now),
            sleep,
            gateway: status::gateway(self.host.node(), &self.connections, now),
            hip: self.hip_status(now),
            router: self.router_status(now),
            offloads: self.offloads(),
            deadlines: deadlines.iter().take(control::MOST).map(|d| status::deadline(d, now)).collect(),
            more_deadlines,
        }
    }

    /// What leaves outside of the tunnels now.
    fn in_clear(&mut self, now: Instant) -> Vec<control::InClear> {
        let infos = self.host.node().client_infos(now);
        let machine = &self.machine;
        // What is routed into the tunnel does not leave outside of it, in any state of the session.
        self.block.in_clear(now, |name| {
            let routes = machine.routes(name);
            let up = infos.iter().any(|i| i.name == name && i.state == State::Up);
            (up || !routes.is_empty()).then_some(routes)
        })
    }

    fn doctor(&mut self, now: Instant) -> Vec<control::Check> {
        self.block.look();
        let in_clear = self.in_clear(now);
        let leaks = self.block.check(&in_clear);
        let check = |name: &str, found: String| control::Check {
            name: name.into(),
            outcome: control::CheckOutcome::Ok,
            found,
            change: None,
        };
        let mut checks = vec![
            check("daemon", format!("release {}, process {}", env!("CARGO_PKG_VERSION"), std::process::id())),
            check("tunnel interface", format!("{}, MTU {}", self.wires.tun.name(), self.wires.tun_mtu)),
            check("name servers", self.machine.resolver_in_use.clone()),
        ];
        checks.push(leaks);
        checks.extend(self.machine.forward.as_ref().and_then(Forward::check));
        checks.extend(self.radio_check());
        checks.extend(self.hip_check());
        checks.push(self.wires.engine.check());
        for offload in
            self.offloads().into_iter().filter(|o| o.name != kernel::OFFLOAD && o.name != workers::OFFLOAD)
        {
            checks.push(control::Check {
                name: offload.name,
                outcome: if offload.active {
                    control::CheckOutcome::Ok
                } else {
                    control::CheckOutcome::Warning
                },
                found: if offload.active { "in use".into() } else { offload.why.unwrap_or_default() },
                change: None,
            });
        }
        checks
    }
}

fn event(change: Change) -> (String, EventKind) {
    match change {
        Change::Up { connection, rung, took_ms } => {
            (connection, EventKind::Up { rung: status::rung(rung), took_ms })
        }
        Change::RungFailed { connection, rung, why, kind, offer } => {
            let error = status::error(&connection, &why, kind, &offer);
            (connection, EventKind::RungFailed { rung: status::rung(rung), error })
        }
        Change::Down { connection, why } => (connection, EventKind::Down { why }),
        Change::PeerUp { connection, peer, resumed } => (connection, EventKind::PeerUp { peer, resumed }),
        Change::PeerDown { connection, peer, why } => (connection, EventKind::PeerDown { peer, why }),
        Change::PeerFailed { connection, peer, kind, why } => {
            let error = status::error(&connection, &why, kind, &Offer::default());
            (connection, EventKind::PeerFailed { peer, error })
        }
        Change::PeerRefused { from, claimed, why } => {
            (String::new(), EventKind::PeerRefused { from: from.to_string(), claimed, why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn every_wait_of_every_client_is_a_timer() {
        let path = std::env::temp_dir().join(format!("dormoused-verbs-{}", std::process::id()));
        let mut verbs = Verbs::new(ControlServer::bind(&path, None).unwrap());
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let _clients: Vec<_> = (0..3)
            .map(|_| {
                let mut client = UnixStream::connect(&path).unwrap();
                std::io::Write::write_all(&mut client, b"{}\n").unwrap();
                client
            })
            .collect();
        let mut ids = Vec::new();
        while ids.len() < 3 {
            if let Some(ControlEvent::Request { client, .. }) = verbs.server.next() {
                ids.push(client);
            }
        }
        for (id, until) in ids.iter().zip([Some(at(2)), Some(at(1)), None]) {
            let (connection, state) = ("office".to_owned(), ConnectionState::Up);
            verbs.waiting.insert(*id, Waiting { connection, state, until, failures: 0 });
        }
        verbs.voiding.insert(ids[2], Voiding { until: at(3), mark: None, late: VOID });
        let mut ends: Vec<_> = verbs.timers().map(|timer| (timer.at, timer.why)).collect();
        ends.sort_unstable();
        assert_eq!(ends, [1, 2, 3].map(|s| (at(s), WAIT_ENDS)));
        drop(verbs);
        let _gone = std::fs::remove_file(path);
    }
}
