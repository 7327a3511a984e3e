//! Sleep, at both ends: a client announces it before its radio goes off, and a gateway leaves sleeping clients in peace. Owns
//! what the two ends' sessions remember of it; the exchange is IKE's, and when to sleep is the driver's.

use crate::event::{Change, Event, SleepVerdict};
use crate::ladder::Granted;
use crate::node::{Node, Session};
use dormouse_ike::{LoadReport, Mark, SleepFlags, SleepVerdict as Ike, Sleeping};
use dormouse_keying::SaId;
use dormouse_sansio::{Instant, Path};
use ipnet::IpNet;
use std::time::Duration;

/// The gateway's answer to an announced sleep is awaited so long. It is the price of the announcement where nothing comes
/// back, so it is short; the session does not depend on it.
pub const ANNOUNCE: Duration = Duration::from_secs(2);

impl Node {
    /// The radio of this connection is to go off, for `expect` at most (`None`: nobody knows), `probably` for so long (`None`: for
    /// that long). Upkeep that would fall due meanwhile is done now, the gateway is told the former, and what it should do for the device is asked for. [`Event::SleepReady`]
    /// follows, after [`ANNOUNCE`] at the latest; then the driver calls [`Node::suspend`], or thinks better of it: whatever is
    /// sent afterwards tells the gateway that the device is awake. False if there is no such connection.
    pub fn prepare_sleep(
        &mut self,
        now: Instant,
        connection: &str,
        expect: Option<Duration>,
        probably: Option<Duration>,
        flags: SleepFlags,
    ) -> bool {
        let Some(client) = self.clients.get_mut(connection) else { return false };
        client.preparing = true;
        client.ladder.granted(None);
        let sa = client.sa.filter(|_| client.ladder.data_flows());
        let announced = sa.is_some_and(|sa| {
            let marks = self.marks(sa);
            self.ike.announce_sleep(now, sa, Sleeping { flags, expect, marks }, probably, ANNOUNCE)
        });
        if !announced {
            self.sleep_ready(connection.to_owned(), SleepVerdict::Unsupported);
        }
        self.drain_ike(now);
        true
    }

    /// How far the ESP that an SA sends has come.
    fn marks(&self, sa: SaId) -> Vec<Mark> {
        let children = self.sessions.get(&sa).map(|s| s.children.as_slice()).unwrap_or_default();
        let mark = |id: &u64| {
            let outbound = &self.sad.get(*id)?.outbound;
            Some(Mark { spi: outbound.spi(), sequence: outbound.sequence() })
        };
        children.iter().filter_map(mark).collect()
    }

    /// The preparation for a sleep is over, if one was under way.
    fn sleep_ready(&mut self, connection: String, verdict: SleepVerdict) {
        let Some(client) = self.clients.get_mut(&connection) else { return };
        if !std::mem::take(&mut client.preparing) {
            return;
        }
        client.ladder.granted(match verdict {
            SleepVerdict::Held { until, .. } => Some(Granted::Hold(until)),
            SleepVerdict::Released => Some(Granted::Release),
            SleepVerdict::Unanswered | SleepVerdict::Unsupported => None,
        });
        self.push(Event::SleepReady { connection, verdict });
    }

    pub(crate) fn sleep_answered(&mut self, sa: SaId, verdict: Ike) {
        let Some(connection) = self.client_of(sa).map(|c| c.config.name.clone()) else { return };
        let verdict = match verdict {
            Ike::Held { until, flags } => SleepVerdict::Held { until, flags },
            Ike::Released => SleepVerdict::Released,
            Ike::Unanswered => SleepVerdict::Unanswered,
            Ike::Unsupported => SleepVerdict::Unsupported,
        };
        self.sleep_ready(connection, verdict);
    }

    /// The session on which a sleep was being announced is gone.
    pub(crate) fn announcement_lost(&mut self, connection: &str) {
        self.sleep_ready(connection.to_owned(), SleepVerdict::Unanswered);
    }

    pub(crate) fn load_report(&mut self, sa: SaId, report: LoadReport) {
        let Some(connection) = self.client_of(sa).map(|c| c.config.name.clone()) else { return };
        self.push(Event::LoadReport { connection, report });
    }

    // ---- the gateway ----------------------------------------------------------------------------------------------

    pub(crate) fn peer_sleeps(
        &mut self,
        sa: SaId,
        until: Instant,
        held: bool,
        flags: SleepFlags,
        expect: Option<Duration>,
        marks: Vec<Mark>,
    ) {
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        session.asleep = Some(marks);
        let (peer, routes) = (session.peer.clone(), session.routes.clone());
        self.push(Event::PeerSleeps { sa, peer, routes, until, held, flags, expect });
    }

    pub(crate) fn peer_awake(&mut self, sa: SaId) {
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        if session.asleep.take().is_some() {
            let (peer, routes) = (session.peer.clone(), session.routes.clone());
            self.push(Event::PeerAwake { sa, peer, routes });
        }
    }

    /// The client of a session that was resumed at once has sent the first ESP packet, on child `id`. False if the session came
    /// too late.
    pub(crate) fn confirm(&mut self, now: Instant, id: u64, path: Path) -> bool {
        let Some(sa) = self.known.get(&id).map(|k| k.sa) else { return false };
        self.ike.confirm(now, sa, path);
        self.drain_ike(now);
        self.sessions_of(id).is_some_and(|s| !s.tentative)
    }

    /// The client of a session that was resumed at once is there.
    pub(crate) fn confirmed(&mut self, now: Instant, sa: SaId) {
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        session.tentative = false;
        session.established = now;
        let (connection, peer, resumed) = (session.connection.clone(), session.peer.clone(), session.resumed);
        let children = session.children.clone();
        self.changed(Change::PeerUp { connection, peer, resumed });
        for id in children {
            self.sad.activate(id);
            self.child_installed(now, sa, id);
        }
    }

    pub(crate) fn sessions_of(&self, child: u64) -> Option<&Session> {
        self.known.get(&child).and_then(|k| self.sessions.get(&k.sa))
    }

    /// An authentic ESP packet came on child `id`: whether it was sent after its sender announced a sleep.
    pub(crate) fn ends_sleep(&self, sa: SaId, spi: u32, sequence: u64) -> bool {
        let marks = self.sessions.get(&sa).and_then(|s| s.asleep.as_ref());
        marks.is_some_and(|marks| marks.iter().find(|m| m.spi == spi).is_none_or(|m| sequence > m.sequence))
    }

    /// Gateway: whether the device at the other end of a child has announced that it sleeps. What is sealed for it now is
    /// lost, unless somebody keeps it until [`Event::PeerAwake`].
    #[must_use]
    pub fn is_peer_asleep(&self, child: u64) -> bool {
        self.sessions_of(child).is_some_and(|s| s.asleep.is_some())
    }

    /// Gateway: the session that a child belongs to, with who is at its other end and the prefixes that lead there.
    #[must_use]
    pub fn session_of(&self, child: u64) -> Option<(SaId, &str, &[IpNet])> {
        let sa = self.known.get(&child)?.sa;
        self.sessions.get(&sa).map(|s| (sa, s.peer.as_str(), s.routes.as_slice()))
    }
}
