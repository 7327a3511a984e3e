//! The key manager beside IKE: what the node tells it, and what becomes of its reports. Owns nothing of its own; must never know which
//! protocol it speaks.

use super::Node;
use crate::connections::ConnectionId;
use crate::event::{Change, Event};
use crate::ladder::Rung;
use crate::record::How;
use crate::sessions::{Session, Who};
use dormouse_keying::{self as keying, KeyManager, Owner};
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ip::Flow;
use std::any::Any;
use std::collections::VecDeque;
use std::net::IpAddr;

impl Node {
    /// Drives a key manager beside IKE from now on: its messages are those of the HIP carriers, and its sessions belong to a
    /// connection of this name. It reserves its SPIs from [`Node::spis`].
    pub fn set_key_manager(&mut self, connection: &str, manager: Box<dyn KeyManager>) {
        let known = self.connections.id(connection);
        let id = known.unwrap_or_else(|| self.connections.add(connection.to_owned(), None));
        self.manager = Some((id, manager));
    }

    /// The key manager beside IKE, if it is of this kind, to look at.
    #[must_use]
    pub fn manager<M: KeyManager>(&self) -> Option<&M> {
        let (_, manager) = self.manager.as_ref()?;
        (&**manager as &dyn Any).downcast_ref()
    }

    /// Lends the key manager beside IKE, if it is of this kind, for commands of its own, and carries out what it orders.
    pub fn with_manager<M: KeyManager, T>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut M) -> T,
    ) -> Option<T> {
        let (_, manager) = self.manager.as_mut()?;
        let result = act((&mut **manager as &mut dyn Any).downcast_mut()?);
        self.drain(now, Ended::Here);
        Some(result)
    }

    /// A packet goes from the first of these inner addresses to the second, and no tunnel carries it: whether the other key manager makes one
    /// now. Then the packet is to be held until [`Event::Flowing`].
    pub fn want_tunnel(&mut self, now: Instant, between: (IpAddr, IpAddr)) -> bool {
        let coming = self.ask_for_tunnel(now, between);
        self.drain_manager(now);
        coming
    }

    /// A packet was for a peer that sleeps, and was kept or answered. A peer of the other key manager that cannot come back by its session, or
    /// has none any more, is called.
    pub(crate) fn peer_awaited(&mut self, now: Instant, flow: &Flow) {
        if self.is_suspended() {
            return;
        }
        let owner = self.sad.route(flow).and_then(|id| self.sad.get(id)).map(|tunnel| tunnel.owner);
        match (owner, &mut self.manager) {
            (Some(owner @ Owner::Hip(_)), Some((_, manager))) => manager.waits(now, owner),
            (None, Some(_)) => _ = self.ask_for_tunnel(now, (flow.src, flow.dst)),
            _ => return,
        }
        self.drain_manager(now);
    }

    pub(crate) fn ask_for_tunnel(&mut self, now: Instant, between: (IpAddr, IpAddr)) -> bool {
        let send = self.sending.is_allowed();
        let coming =
            self.manager.as_mut().is_some_and(|(_, manager)| manager.want_tunnel(now, between, send));
        self.awaited |= coming && send;
        coming
    }

    /// The other key manager has nothing to do while nothing can be sent.
    pub(super) fn manager_deadline(&self) -> Option<Deadline> {
        self.manager.as_ref().filter(|_| self.sending.is_allowed()).and_then(|(_, m)| m.poll_timeout())
    }

    /// All timers of the other key manager, with the same exception.
    pub(super) fn manager_timers(&self) -> Vec<Deadline> {
        self.manager.as_ref().filter(|_| self.sending.is_allowed()).map_or_else(Vec::new, |(_, m)| m.timers())
    }

    /// Whether IKE is spoken here: with a connection that is not the other key manager's.
    pub(crate) fn serves_ike(&self) -> bool {
        let of_manager = self.manager.as_ref().map(|(id, _)| *id);
        self.connections.iter().any(|(id, _)| Some(id) != of_manager)
    }

    /// Handles everything that the other key manager reports.
    pub(crate) fn drain_manager(&mut self, now: Instant) {
        self.drain(now, Ended::Lost);
    }

    /// `ended`: why sessions end that end now.
    fn drain(&mut self, now: Instant, ended: Ended) {
        // Others begin when all is known that has ended.
        let mut anew = VecDeque::new();
        loop {
            while let Some((connection, event)) =
                self.manager.as_mut().and_then(|(id, manager)| Some((*id, manager.poll_event()?)))
            {
                match event {
                    keying::Event::Closed { owner, why } => {
                        match ended {
                            Ended::Lost => anew.extend(self.revival_lost(now, owner)),
                            Ended::Here => self.revival_ended(now, owner),
                        }
                        self.session_ended(now, owner, why, None);
                    }
                    event => self.manager_reports(now, connection, event),
                }
            }
            let Some(between) = anew.pop_front() else { return };
            self.revive_anew(now, between);
        }
    }

    fn manager_reports(&mut self, now: Instant, connection: ConnectionId, event: keying::Event) {
        match event {
            keying::Event::Established { owner, peer, path, may_sleep } => {
                let identity = (0, peer.clone().into_bytes());
                let who = Who { identity, addresses: Vec::new() };
                let session = Session::new(now, connection, peer.clone(), who, path);
                self.sessions.insert(owner, Session { dormancy: may_sleep, ..session });
                let connection = self.connections.name(connection).to_owned();
                self.changed(Change::PeerUp { connection, peer, resumed: false });
                self.record_begin(owner, How::Full);
            }
            keying::Event::Child(change) => self.manager_orders(now, change),
            keying::Event::Closed { .. } => {}
            keying::Event::SleepAnswered { owner, verdict } => self.peer_answered(owner, verdict),
            keying::Event::Revived { owner, moved } => {
                self.revived(now, owner, if moved { Rung::Move } else { Rung::Held });
            }
            keying::Event::PeerSleeps { owner, until, flags, expect, marks } => {
                self.beside.heard(owner);
                self.peer_sleeps(owner, marks);
                if let Some(session) = self.sessions.get_mut(owner) {
                    session.dormancy = true;
                }
                // It did not say before that it may.
                self.with_devices(|d, around| d.session_installed(now, owner, around));
                self.stand_in_begins(now, owner, until, flags, expect);
            }
            keying::Event::PeerAwake { owner, there } => {
                self.peer_awake(owner);
                if there {
                    self.with_devices(|d, around| d.session_awake(now, owner, around));
                }
            }
            keying::Event::Failed { peer, kind, why, .. } => {
                self.revival_failed(now, &peer);
                let connection = self.connections.name(connection).to_owned();
                self.changed(Change::PeerFailed { connection, peer, kind: kind.into(), why: why.into() });
            }
            keying::Event::Refused { path, peer, named, why } => {
                if self.record_hit_refusal(now, path.remote, &peer, named, why) {
                    let (from, claimed) = (path.remote.ip(), Some(peer));
                    self.changed(Change::PeerRefused { from, claimed, why: why.into() });
                }
            }
        }
    }

    /// A change of the ESP side.
    fn manager_orders(&mut self, now: Instant, change: keying::ChildSa) {
        let installed = match &change {
            keying::ChildSa::Install(install) => Some(install.owner),
            _ => None,
        };
        if let keying::ChildSa::Install(install) = &change
            && let keying::Mode::Beet(beet) = install.mode
            && let Some(session) = self.sessions.get_mut(install.owner)
        {
            session.from = Some(beet.local);
        }
        if let keying::ChildSa::Remap { owner, path } = &change
            && let Some(session) = self.sessions.get_mut(*owner)
        {
            let was = std::mem::replace(&mut session.path, *path).remote;
            self.record_move(now, *owner, was);
        }
        self.change_tunnels(now, change);
        if installed.is_some() && std::mem::take(&mut self.awaited) {
            self.push(Event::Flowing);
        }
        if let Some(owner) = installed {
            self.revived(now, owner, Rung::Full);
        }
    }
}

/// Why a session of the key manager beside IKE has ended.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// By a command.
    Here,
    /// By anything else: its peer may not know it.
    Lost,
}
