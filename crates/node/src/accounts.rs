//! Users whom RADIUS servers know: what IKE asks of the servers, and what they are told of sessions. Owns no state ([`crate::radius`] does, and sessions their
//! accounts).

use crate::event::Order;
use crate::node::Node;
use crate::radius::{About, Account, Do, Health, Policy, Radius};
use crate::record::Traffic;
use crate::sessions::Session;
use dormouse_eap::radius::Usage;
use dormouse_ike::CloseReason;
use dormouse_ike::elsewhere::{Question, Verdict};
use dormouse_keying::Owner;
use dormouse_sansio::{Deadline, Instant};
use std::net::IpAddr;

/// What people may want to know of the servers.
#[derive(Clone, Debug)]
pub struct RadiusState {
    /// The configuration.
    pub policy: Policy,
    /// Those who know users.
    pub servers: Vec<Health>,
    /// Those who are told of sessions.
    pub accounting: Vec<Health>,
    /// Questions that wait for an answer now.
    pub questions: usize,
    /// Reports that wait for one.
    pub reports: usize,
    /// Reports that were lost.
    pub lost: u64,
}

impl Node {
    /// Gateway: whom to ask about users; `None`: nobody. Again when the configuration was read again.
    pub fn set_radius(&mut self, now: Instant, policy: Option<Policy>) {
        match (&mut self.served.radius, policy) {
            (Some(radius), Some(policy)) if *radius.policy() == policy => {}
            (Some(radius), Some(policy)) => radius.reconfigure(policy),
            (Some(radius), None) => {
                radius.end_all();
                self.radius_turn(now);
                self.served.radius = None;
            }
            (slot @ None, policy) => *slot = policy.map(Radius::new),
        }
        self.radius_turn(now);
    }

    /// Something came to a socket of [`crate::radius::SocketOrder`], from the server that it hears.
    pub fn radius_came(&mut self, now: Instant, socket: u64, datagram: &[u8]) {
        if let Some(radius) = &mut self.served.radius {
            radius.came(now, self.entropy.as_mut(), socket, datagram);
            self.radius_turn(now);
        }
    }

    /// Nothing can be sent from such a socket, or heard: the system's word why.
    pub fn radius_unreachable(&mut self, now: Instant, socket: u64, why: &str) {
        if let Some(radius) = &mut self.served.radius {
            radius.unreachable(now, self.entropy.as_mut(), socket, why);
            self.radius_turn(now);
        }
    }

    /// How the servers do, if there are any.
    #[must_use]
    pub fn radius_state(&self) -> Option<RadiusState> {
        let radius = self.served.radius.as_ref()?;
        let [servers, accounting] = radius.health();
        let (questions, reports) = radius.pending();
        let (policy, lost) = (radius.policy().clone(), radius.lost());
        Some(RadiusState { policy, servers, accounting, questions, reports, lost })
    }

    /// Reports that no server has taken yet: a daemon that ends waits for these a little.
    #[must_use]
    pub fn reports_pending(&self) -> usize {
        self.served.radius.as_ref().map_or(0, |radius| radius.pending().1)
    }

    pub(crate) fn ask_elsewhere(&mut self, now: Instant, question: Question) {
        match &mut self.served.radius {
            Some(radius) => radius.ask(now, self.entropy.as_mut(), question),
            None => {
                let verdict = Verdict::Unanswered("none is configured".to_owned());
                self.ike.told_elsewhere(now, question.sa, verdict);
            }
        }
        self.radius_turn(now);
    }

    pub(crate) fn radius_timeout(&mut self, now: Instant) {
        let Some(radius) = &mut self.served.radius else { return };
        if radius.timers().all(|timer| timer.at > now) {
            return;
        }
        radius.handle_timeout(now, self.entropy.as_mut());
        while let Some(owner) = self.served.radius.as_mut().and_then(|radius| radius.due_interim(now)) {
            let Some(usage) = self.usage(now, owner) else { continue };
            let account = self.sessions.get(owner).and_then(|session| session.account.as_deref());
            if let (Some(radius), Some(account)) = (&mut self.served.radius, account) {
                radius.interim(now, self.entropy.as_mut(), owner, account, usage);
            }
        }
        self.radius_turn(now);
    }

    pub(crate) fn radius_timers(&self) -> impl Iterator<Item = Deadline> {
        self.served.radius.iter().flat_map(Radius::timers)
    }

    /// Passes on what the servers say, and what is to be sent to them.
    fn radius_turn(&mut self, now: Instant) {
        while let Some(what) = self.served.radius.as_mut().and_then(Radius::poll) {
            match what {
                Do::Socket(order) => self.order(Order::Radius(order)),
                Do::Tell(sa, verdict) => {
                    if !self.ike.told_elsewhere(now, sa, verdict) {
                        tracing::debug!(%sa, "a RADIUS server has answered for a caller who is not there any more");
                    }
                    self.drain_ike(now);
                }
            }
        }
    }

    /// A client's session has begun. One that goes on as another SA, by its ticket or a new login, stays the same session to the servers.
    pub(crate) fn account_begin(&mut self, now: Instant, owner: Owner) {
        let Some(session) = self.sessions.get(owner) else { return };
        let name = self.connections.name(session.connection);
        if session.method != "eap" || !self.ike.asks_elsewhere(name) {
            return;
        }
        let about = About {
            connection: name.to_owned(),
            user: session.peer.clone(),
            local: session.path.local.ip(),
            remote: session.path.remote.ip(),
            inner: session.assigned.addresses().into_iter().find_map(|address| match address {
                IpAddr::V4(v4) => Some(v4),
                IpAddr::V6(_) => None,
            }),
        };
        let theirs: Vec<Owner> = self.sessions.owners_of_peer(session).collect();
        let told = |former: &Owner| self.sessions.get(*former).is_some_and(|s| s.account.is_some());
        let former = theirs.into_iter().find(told);
        let former = former.and_then(|former| {
            let carried = self.carried(former);
            let mut account = self.sessions.get_mut(former)?.account.take()?;
            account.before.add_all(carried);
            Some(account)
        });
        let Some(radius) = &mut self.served.radius else { return };
        let account = match former {
            Some(account) => {
                radius.moved(now, owner, &account);
                Some(account)
            }
            None => radius.begin(now, self.entropy.as_mut(), owner, about),
        };
        if let Some(session) = self.sessions.get_mut(owner) {
            session.account = account;
        }
        self.radius_turn(now);
    }

    /// A client's session is over; its tunnels are gone.
    pub(crate) fn account_end(&mut self, now: Instant, session: &Session, why: Option<CloseReason>) {
        let (Some(account), Some(radius)) = (session.account.as_deref(), &mut self.served.radius) else {
            return;
        };
        let usage = used(now, account, session.carried);
        radius.end(now, self.entropy.as_mut(), account, usage, cause(why, self.served.leaving));
        self.radius_turn(now);
    }

    fn carried(&self, owner: Owner) -> Traffic {
        let mut carried = self.sessions.get(owner).map(|session| session.carried).unwrap_or_default();
        let tunnels = self.sad.of(owner).iter().filter_map(|id| self.sad.get(*id));
        tunnels.for_each(|tunnel| carried.add(tunnel));
        carried
    }

    fn usage(&self, now: Instant, owner: Owner) -> Option<Usage> {
        let account = self.sessions.get(owner)?.account.as_deref()?;
        Some(used(now, account, self.carried(owner)))
    }
}

fn used(now: Instant, account: &Account, carried: Traffic) -> Usage {
    let mut all = account.before;
    all.add_all(carried);
    // RFC 2866 counts packets in 32 bits, and octets in 64.
    let packets = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Usage {
        time: now - account.began,
        received: all.bytes_in,
        sent: all.bytes_out,
        packets_received: packets(all.packets_in),
        packets_sent: packets(all.packets_out),
    }
}

/// Acct-Terminate-Cause (RFC 2866 section 5.10).
fn cause(why: Option<CloseReason>, leaving: bool) -> u32 {
    use CloseReason as R;
    match why {
        // Admin Reboot: "Administrator is ending service on the NAS".
        _ if leaving => 7,
        Some(R::ByPeer) => 1,
        // Lost Carrier: "DCD was dropped on the port".
        Some(R::TimedOut | R::Unconfirmed) => 2,
        Some(R::Released) => 4,
        Some(R::Expired | R::CertificateExpired | R::LifetimeOver) => 5,
        Some(R::Requested | R::NotAdmitted | R::Revoked | R::Reconfigured) => 6,
        Some(R::ProtocolError | R::Refused(_)) => 9,
        // Port Preempted: "NAS ended session in order to allocate the port to a higher priority use": the same identity's, elsewhere.
        Some(R::Elsewhere | R::TooMany) => 13,
        // NAS Request: "NAS ended session for a non-error reason not otherwise listed".
        Some(R::Replaced) | None => 10,
    }
}
