//! The Host Identity Protocol in the daemon: the directory of peers, and the control verbs about them. Owns the names of peers and why one
//! was not reached; associations are the key manager's ([`dormouse_hip::Host`]).

use crate::daemon::Daemon;
use crate::status;
use crate::verbs::WAIT_ENDS;
use dormouse_control::{Error, ErrorKind, HipRegistration, Reply};
use dormouse_hip::{
    ConnectError, Description, Hold, Host as Hip, HostConfig, Identity, Phase, Refusal, Registration,
};
use dormouse_ike::admission::Denial;
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_io::clock::unix_now;
use dormouse_io::control::ClientId;
use dormouse_io::entropy::OsEntropy;
use dormouse_keying::{Failure, SleepFlags};
use dormouse_node::config::ResolvedHip;
use dormouse_node::config::directory::{Known, Lsi, Peers, resolver, tag, tags, version};
use dormouse_node::config::file::HipCarrier;
use dormouse_node::host::{Lsis, PeerNames};
use dormouse_node::sleeper::Mode;
use dormouse_node::{Change, FailureKind, Node, Offer};
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::hip::Hit;
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

mod reload;
mod show;

/// Routes that are looked up for the addresses of peers, at most: all go by one way out, or few.
const ROUTES_MOST: usize = 64;

/// Who waits for an association.
#[derive(Debug)]
struct Waiting {
    client: ClientId,
    peer: Hit,
    until: Instant,
}

/// When each wait ends.
fn ends(waiting: &[Waiting]) -> impl Iterator<Item = Deadline> {
    waiting.iter().map(|w| Deadline::strict(w.until, WAIT_ENDS))
}

/// The role, if the daemon has it.
#[derive(Debug)]
pub(crate) struct Directory {
    connection: String,
    /// Our tags: one of each version that we speak, that of peers that do not say another first; then the others.
    ours: Vec<Hit>,
    /// What the others are called.
    named: BTreeMap<Hit, String>,
    auto: bool,
    carriers: Vec<HipCarrier>,
    /// What the key manager began with, and what a reload has changed of it.
    config: HostConfig,
    peers: Peers,
    lsi: Option<Lsi>,
    /// Behind the names of peers, for programs; empty: they have none.
    domain: String,
    /// Why a peer was not reached the last time: counts while nothing is under way with it.
    failures: BTreeMap<Hit, (FailureKind, String)>,
    waiting: Vec<Waiting>,
}

impl Directory {
    /// Gives `node` its key manager for this connection, if there is one. `may_sleep`: peers are told that this host's radio may; `hold`: how long, and
    /// what is done for those that sleep.
    pub(crate) fn of(
        resolved: Option<ResolvedHip>,
        denials: &BTreeSet<Denial>,
        may_sleep: bool,
        (longest, services): (Duration, SleepFlags),
        node: &mut Node,
    ) -> Option<Self> {
        let ResolvedHip {
            name,
            auto,
            blocking: _,
            identities,
            named,
            mut config,
            carriers,
            peers,
            lsi,
            domain,
        } = resolved?;
        config.first_generation = unix_now().0;
        (config.may_sleep, config.hold) = (may_sleep, Some(Hold { longest, services }));
        config.denied = denials.iter().filter_map(|denial| tag(&denial.to_string()).ok()).collect();
        let directory = Self {
            connection: name,
            ours: identities.iter().map(Identity::hit).collect(),
            named,
            auto,
            carriers,
            config: config.clone(),
            peers,
            lsi,
            domain,
            failures: BTreeMap::new(),
            waiting: Vec::new(),
        };
        let mut hip = Hip::new(config, identities, Box::new(node.spis()), Box::new(OsEntropy));
        directory.peers.iter().for_each(|known| know(&mut hip, known));
        node.set_key_manager(&directory.connection, Box::new(hip));
        Some(directory)
    }

    /// When the wait of each client ends.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        ends(&self.waiting)
    }

    /// What has become of a peer, for those who ask later.
    pub(crate) fn note(&mut self, change: &Change) {
        let of = |peer: &str| tag(peer).ok();
        match change {
            Change::PeerFailed { peer, kind, why, .. } => {
                let (Some(hit), why) = (of(peer), why.clone()) else { return };
                // Of those who are not configured, none is called.
                if self.known(hit).is_some() {
                    self.failures.insert(hit, (*kind, why));
                }
            }
            Change::PeerUp { peer, .. } => drop(of(peer).and_then(|hit| self.failures.remove(&hit))),
            _ => {}
        }
    }

    /// A client of the control socket is gone.
    pub(crate) fn gone(&mut self, client: ClientId) {
        self.waiting.retain(|w| w.client != client);
    }

    /// By which IPv4 addresses programs reach the peers.
    fn lsis(&self) -> Lsis {
        let Some(lsi) = &self.lsi else { return Lsis::default() };
        let of = |known: &Known| Some((known.lsi?, (known.hit.0, self.ours_to(known.hit)?.0)));
        Lsis::new(lsi.ours, self.peers.iter().filter_map(of), lsi.services.clone())
    }

    /// What programs here are told when they ask for the name of a peer.
    fn names(&self) -> Option<PeerNames> {
        let server = resolver(version(*self.ours.first()?));
        let of = |known: &Known| (known.hit.0, known.lsi.filter(|_| self.lsi.is_some()));
        let names = self.peers.iter().flat_map(|p| p.names.iter().map(move |name| (name.as_str(), of(p))));
        PeerNames::new(server, self.ours.iter().map(|hit| hit.0), &self.domain, names)
    }

    /// By which tag of ours this peer is called.
    fn ours_to(&self, peer: Hit) -> Option<Hit> {
        let chosen = self.known(peer).and_then(|known| known.identity);
        chosen.or_else(|| self.ours.iter().copied().find(|ours| version(*ours) == version(peer)))
    }

    /// The peers that are called by another tag than the first of their version, with that.
    fn led(&self) -> Vec<(IpNet, IpAddr)> {
        let to = |known: &Known| Some((IpNet::from(IpAddr::V6(known.hit.0)), known.identity?.0.into()));
        self.peers.iter().filter_map(to).collect()
    }

    /// Whether a configuration that was read again is of the same host: else nothing of it counts before a new start.
    fn is_same_host(&self, new: &ResolvedHip) -> bool {
        let ours = new.identities.iter().map(Identity::hit).filter(|hit| !new.named.contains_key(hit));
        let before = self.ours.iter().copied().filter(|hit| !self.named.contains_key(hit));
        new.name == self.connection && new.named == self.named && ours.eq(before)
    }

    fn known(&self, hit: Hit) -> Option<&Known> {
        self.peers.get(hit)
    }

    /// How a peer is called in a message.
    fn called(&self, hit: Hit) -> String {
        let name = self.known(hit).and_then(|known| known.names.first());
        name.map_or_else(|| hit.to_string(), |name| format!("{name} ({hit})"))
    }

    /// The peer that is called so.
    pub(crate) fn named(&self, text: &str) -> Option<Hit> {
        self.peers.named(text).map(|known| known.hit)
    }

    /// Whom a name or a HIT means.
    pub(crate) fn meant(&self, text: &str) -> Result<Hit, Error> {
        if let Some(known) = self.peers.named(text) {
            return Ok(known.hit);
        }
        let unknown = |message: String| {
            let first =
                self.peers.iter().take(8).map(|p| p.names.first().cloned().unwrap_or(p.hit.to_string()));
            let error = Error::new(ErrorKind::UnknownConnection, message);
            error.with_offer(Vec::new(), first.collect())
        };
        if text.parse::<Ipv6Addr>().is_err() {
            return Err(unknown(format!("no peer is called '{text}'")).with_change(format!(
                "give a HIT, or add [[connection.{}.hip.peers]] with this name",
                self.connection
            )));
        }
        tag(text).map_err(unknown)
    }

    fn error(&self, hit: Hit, kind: FailureKind, why: &str) -> Error {
        let message = format!("{}: {why}", self.called(hit));
        let error = status::error(&self.connection, &message, kind, &Offer::default());
        Error { change: self.advice(hit, kind), ..error }
    }

    fn refused(&self, hit: Hit, refusal: Refusal) -> Error {
        let what = match refusal.kind {
            Failure::Proposal => "the two have nothing in common",
            _ => "it refuses this host",
        };
        self.error(hit, refusal.kind.into(), &format!("{what}: {}", refusal.why))
    }

    fn advice(&self, peer: Hit, kind: FailureKind) -> Option<String> {
        match kind {
            FailureKind::Authentication => Some(format!(
                "admit {} at the peer: [[connection.NAME.hip.peers]], or dormouse allow",
                self.ours_to(peer)?
            )),
            FailureKind::Timeout => {
                let by = match self.known(peer) {
                    Some(known) if known.peer.udp => format!("UDP {}", self.config.udp_port),
                    Some(_) => "IP protocols 139 and 50".to_owned(),
                    None => format!("IP protocols 139 and 50, or UDP {},", self.config.udp_port),
                };
                Some(format!(
                    "is it the HIT of the host that is there (dormouse hip status says it), and do hip.carriers there and the network pass {by}?"
                ))
            }
            FailureKind::Proposal => Some(format!(
                "connection.{}.hip.esp, hip.ciphers or hip.groups, here or at the peer",
                self.connection
            )),
            _ => None,
        }
    }
}

/// What the directory has of a peer, for the key manager.
fn know(hip: &mut Hip, known: &Known) {
    hip.set_peer(known.hit, Some(known.peer.clone()));
    hip.set_rendezvous_of(known.hit, known.servers());
    hip.set_relays_of(known.hit, known.relays.clone());
    hip.set_quirks(known.hit, known.quirks);
    hip.set_lifetime_of(known.hit, known.lifetime);
    hip.set_identity_for(known.hit, known.identity);
}

/// What of the local-scope identifiers the machine was set up with.
fn of_machine(lsi: &Option<Lsi>) -> Option<(Ipv4Net, Ipv4Addr)> {
    lsi.as_ref().map(|lsi| (lsi.prefix, lsi.ours))
}

/// How registration stands with a peer, for people.
fn registration(registration: Registration) -> Option<HipRegistration> {
    match registration {
        Registration::None => None,
        Registration::AtPeer => Some(HipRegistration::AtPeer),
        Registration::OfPeer => Some(HipRegistration::OfPeer),
        Registration::Refused(why) => Some(HipRegistration::Refused {
            why: match why {
                0 => "it does not register this host".to_owned(),
                1 => "it does not serve".to_owned(),
                2 => "it has too many clients".to_owned(),
                other => format!("failure type {other}"),
            },
        }),
    }
}

impl Daemon {
    /// The role begins: the tunnel interface has our tags, and leads from each to all others of its version.
    pub(crate) fn begin_hip(&mut self, now: Instant) {
        let Some(hip) = &self.hip else { return };
        let v4 = hip.lsi.as_ref().map(|lsi| lsi.ours);
        let mut ours = hip.ours.iter();
        let first = ours.next();
        let assigned = AssignedConfig { v6: first.map(|hit| (hit.0, 128)), v4, ..AssignedConfig::default() };
        let all = |hit: &Hit| IpNet::V6(tags(version(*hit)));
        let routes: Vec<IpNet> =
            first.map(all).into_iter().chain(hip.lsi.as_ref().map(|lsi| IpNet::V4(lsi.prefix))).collect();
        self.host.set_lsis(hip.lsis());
        let (source, auto) = (first.map(|hit| IpAddr::V6(hit.0)), hip.auto);
        // First nothing leaves outside, then something goes in.
        self.block.connected(&hip.connection, &assigned);
        let _of_tags = self.machine.configure(&hip.connection, assigned, &routes, (source, &[]));
        let mut led: BTreeSet<u8> = first.map(|hit| version(*hit)).into_iter().collect();
        for hit in ours {
            // Each is an address of ours; to the peers of a version leads the first of that.
            let net = led.insert(version(*hit)).then(|| all(hit));
            self.machine.add(&hip.connection, hit.0.into(), net);
        }
        self.machine.lead(&hip.connection, &hip.led());
        self.serve_names();
        self.look_at_sources(now);
        if auto {
            self.call_all(now);
        }
    }

    /// Programs here find the peers by their names.
    fn serve_names(&mut self) {
        let Some(hip) = &self.hip else { return };
        let names = hip.names();
        self.machine.serve_names(names.as_ref().map(|names| (names.server(), hip.domain.clone())));
        self.host.set_names(names);
    }

    fn call_all(&mut self, now: Instant) {
        let Some(hip) = &self.hip else { return };
        let peers: Vec<Hit> = hip.peers.iter().filter(|p| p.is_reachable()).map(|p| p.hit).collect();
        for peer in peers {
            if let Err(error) = self.call(now, peer) {
                tracing::warn!(%error, "a peer is not called");
            }
        }
    }

    /// The addresses from which peers can be reached, those that lead to one first.
    pub(crate) fn look_at_sources(&mut self, now: Instant) {
        let Some(hip) = &self.hip else { return };
        let in_use = self.descriptions().into_iter().map(|d| d.path.remote.ip());
        let servers = |p: &Known| [&p.rendezvous[..], &p.relays[..]].concat();
        let known = hip.peers.iter().flat_map(|p| p.peer.addresses.iter().copied().chain(servers(p)));
        let mut remotes: Vec<IpAddr> = in_use.chain(known).collect();
        remotes.dedup();
        remotes.truncate(ROUTES_MOST);
        let sources = self.machine.sources(&remotes);
        tracing::debug!(?sources, "addresses for HIP");
        self.host.node_mut().set_sources(now, &sources);
    }

    fn descriptions(&self) -> Vec<Description> {
        self.host.node().manager::<Hip>().map(|hip| hip.describe().collect()).unwrap_or_default()
    }

    fn role_of_hip(&mut self) -> Result<&mut Directory, Error> {
        let message = "this daemon has no connection of role \"hip\"";
        let error = Error::new(ErrorKind::UnknownConnection, message).with_change(format!(
            "add [connection.NAME] with role = \"hip\" to {}",
            self.args.config.display()
        ));
        self.hip.as_mut().ok_or(error)
    }

    /// Calls a peer; the error is for people.
    fn call(&mut self, now: Instant, peer: Hit) -> Result<(), Error> {
        let begun = self.host.node_mut().with_manager(now, |hip: &mut Hip| hip.call(now, peer));
        let hip = self.role_of_hip()?;
        let error = |kind, message: String| Err(Error::new(kind, message));
        match begun.unwrap_or(Err(ConnectError::Failed)) {
            Ok(true) => drop(hip.failures.remove(&peer)),
            Ok(false) => {}
            Err(ConnectError::NoPath(_)) => {
                let (called, connection) = (hip.called(peer), hip.connection.clone());
                let known = hip.known(peer).is_some_and(Known::is_reachable);
                return if known {
                    error(ErrorKind::NotConnected, format!("{called}: there is no network that leads to it"))
                } else {
                    let none =
                        Error::new(ErrorKind::NotConnected, format!("{called}: no address of it is known"));
                    Err(none.with_change(format!(
                        "[[connection.{connection}.hip.peers]] addresses, rendezvous or relays"
                    )))
                };
            }
            Err(ConnectError::Denied(_)) => {
                let denied = Error::new(ErrorKind::Authentication, format!("{} is denied", hip.called(peer)));
                return Err(denied.with_change(format!("dormouse allow {peer}")));
            }
            Err(
                e @ (ConnectError::Own(_)
                | ConnectError::NotATag(_)
                | ConnectError::OtherVersion(_)
                | ConnectError::NotOurs(_)),
            ) => {
                return error(ErrorKind::UnknownConnection, e.to_string());
            }
            Err(e) => return error(ErrorKind::Other, e.to_string()),
        }
        Ok(())
    }

    /// `dormouse hip up`: the reply, unless the client is to wait for it.
    pub(crate) fn hip_up(
        &mut self,
        now: Instant,
        client: ClientId,
        peer: &str,
        wait: Option<f64>,
    ) -> Option<Result<Reply, Error>> {
        let meant = self.role_of_hip().and_then(|hip| hip.meant(peer));
        let peer = match meant.and_then(|peer| self.call(now, peer).map(|()| peer)) {
            Ok(peer) => peer,
            Err(error) => return Some(Err(error)),
        };
        let Some(seconds) = wait else { return Some(Ok(Reply::Done)) };
        let until = now + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let waiting = &mut self.hip.as_mut()?.waiting;
        // A client has one question at a time.
        waiting.retain(|w| w.client != client);
        waiting.push(Waiting { client, peer, until });
        None
    }

    /// `dormouse hip down`.
    pub(crate) fn hip_down(&mut self, now: Instant, peer: &str) -> Result<Reply, Error> {
        let peer = self.role_of_hip()?.meant(peer)?;
        let open = |d: &Description| d.peer == peer && d.phase != Phase::Closing;
        let there: Vec<_> = self.descriptions().into_iter().filter(open).map(|d| d.id).collect();
        if there.is_empty() {
            let message = format!("there is no association with {}", self.role_of_hip()?.called(peer));
            return Err(Error::new(ErrorKind::NotConnected, message));
        }
        self.host.node_mut().with_manager(now, |hip: &mut Hip| {
            there.into_iter().for_each(|id| hip.close(now, id));
        });
        Ok(Reply::Done)
    }

    /// Answers those who wait for an association, as far as they can be.
    pub(crate) fn answer_hip(&mut self, now: Instant) {
        if self.hip.as_ref().is_none_or(|hip| hip.waiting.is_empty()) {
            return;
        }
        let there = self.descriptions();
        let Some(hip) = &mut self.hip else { return };
        let mut answers = Vec::new();
        for Waiting { client, peer, until } in std::mem::take(&mut hip.waiting) {
            let ours = hip.ours_to(peer);
            let is_it =
                |d: &&Description| d.peer == peer && Some(d.ours) == ours && d.phase != Phase::Closing;
            let open = there.iter().find(is_it);
            let answer = match open {
                Some(d) if d.phase == Phase::Established => Ok(Reply::Done),
                Some(Description { refusal: Some(refusal), .. }) => {
                    // It is not taken for the end of the exchange, as someone may have sent it again; but a person need not wait.
                    Err(hip.refused(peer, *refusal))
                }
                Some(_) if until <= now => {
                    Err(hip.error(peer, FailureKind::Timeout, "no answer yet, and the time is over"))
                }
                Some(_) => {
                    hip.waiting.push(Waiting { client, peer, until });
                    continue;
                }
                None => {
                    let failure = hip.failures.get(&peer).cloned();
                    let (kind, why) = failure.unwrap_or((FailureKind::Other, "it has ended".into()));
                    Err(hip.error(peer, kind, &why))
                }
            };
            answers.push((client, answer));
        }
        for (client, answer) in answers {
            self.verbs.reply(client, answer);
        }
    }

    /// Ends the associations of the peer that is denied. Returns how many ended, and whether the configuration names the peer.
    pub(crate) fn deny_hit(&mut self, now: Instant, denial: &Denial) -> Option<(usize, bool)> {
        let (hip, peer) = (self.hip.as_ref()?, tag(&denial.to_string()).ok()?);
        let named = hip.known(peer).is_some();
        let ended = self.host.node_mut().with_manager(now, |hip: &mut Hip| hip.deny(now, peer));
        self.host.node_mut().dismiss_beside(&peer.to_string());
        Some((ended.unwrap_or(0), named))
    }

    /// Takes a denial back. False if there was none.
    pub(crate) fn allow_hit(&mut self, now: Instant, denial: &Denial) -> bool {
        let Ok(peer) = tag(&denial.to_string()) else { return false };
        self.host.node_mut().with_manager(now, |hip: &mut Hip| hip.allow(peer)).unwrap_or(false)
    }

    /// The process ends: peers learn it, so that they begin anew.
    pub(crate) fn end_hip(&mut self, now: Instant) {
        let all: Vec<_> = self.descriptions().into_iter().map(|d| d.id).collect();
        self.host.node_mut().with_manager(now, |hip: &mut Hip| {
            all.into_iter().for_each(|id| hip.close(now, id));
        });
    }

    /// The radio may sleep from now on, or may not: peers learn it in the next exchange.
    pub(crate) fn tell_hip_of_mode(&mut self, now: Instant) {
        let may_sleep = self.host.mode().is_some_and(|mode| mode != Mode::Performance);
        self.host.node_mut().with_manager(now, |hip: &mut Hip| hip.set_may_sleep(now, may_sleep));
    }
}
