//! Sleep, at both ends: a client announces it before its radio goes off, and a gateway leaves sleeping clients in peace. Owns
//! what the two ends' sessions remember of it; the exchange is IKE's, and when to sleep is the driver's.

use crate::connections::ConnectionId;
use crate::event::{Change, Event};
use crate::ladder::Granted;
use crate::lending::Prepared;
use crate::node::Node;
use crate::record::How;
use crate::sessions::Presence;
use dormouse_ike::LoadReport;
use dormouse_keying::{ChildId, Mark, Owner, SaId, SleepFlags, SleepVerdict, Sleeping};
use dormouse_sansio::{Instant, Path};
use std::time::Duration;

/// The gateway's answer to an announced sleep is awaited so long. It is the price of the announcement where nothing comes
/// back, so it is short; the session does not depend on it.
pub const ANNOUNCE: Duration = Duration::from_secs(2);

impl Node {
    /// The radio of this connection is to go off, for `expect` at most (`None`: not known), `probably` for so long (`None`: for
    /// that long). Upkeep that would fall due meanwhile is done now; the announcement to the gateway says the former, and asks for
    /// what it should do for the device. [`Event::SleepReady`]
    /// follows, after [`ANNOUNCE`] at the latest; then the driver calls [`Node::suspend`], or thinks better of it: what is
    /// sent afterwards tells the gateway that the device is awake. False if there is no such connection.
    pub fn prepare_sleep(
        &mut self,
        now: Instant,
        connection: &str,
        expect: Option<Duration>,
        probably: Option<Duration>,
        flags: SleepFlags,
    ) -> bool {
        let Some(id) = self.connections.id(connection) else { return false };
        if self.manager.as_ref().is_some_and(|(beside, _)| *beside == id) {
            self.announce_beside(now, expect, flags);
            return true;
        }
        let Some(client) = self.connections.client_mut(id) else { return false };
        client.preparing = true;
        client.ladder.granted(None);
        let prepared = Prepared { connection: id, expect, probably, flags };
        // The announcement says how far ESP has come, and it must not come further then.
        if !self.recalled_before(&prepared) {
            self.announce(now, &prepared);
        }
        true
    }

    /// Announces the sleep of a client connection.
    pub(crate) fn announce(&mut self, now: Instant, prepared: &Prepared) {
        let Prepared { connection: id, expect, probably, flags } = *prepared;
        let Some(client) = self.connections.client_mut(id).filter(|client| client.preparing) else { return };
        let sa = client.sa.filter(|_| client.ladder.data_flows());
        let announced = sa.is_some_and(|sa| {
            let marks = self.marks(Owner::Ike(sa));
            self.ike.announce_sleep(now, sa, Sleeping { flags, expect, marks }, probably, ANNOUNCE)
        });
        if !announced {
            self.sleep_ready(id, SleepVerdict::Unsupported);
        }
        self.drain_ike(now);
    }

    /// How far the ESP that an SA sends has come.
    pub(crate) fn marks(&self, owner: Owner) -> Vec<Mark> {
        let mark = |id: &ChildId| {
            let outbound = &self.sad.get(*id)?.outbound;
            Some(Mark { spi: outbound.spi(), sequence: outbound.sequence() })
        };
        self.sad.of(owner).iter().filter_map(mark).collect()
    }

    /// The preparation for a sleep is over, if one was under way.
    fn sleep_ready(&mut self, id: ConnectionId, verdict: SleepVerdict) {
        let Some(client) = self.connections.client_mut(id) else { return };
        if !std::mem::take(&mut client.preparing) {
            return;
        }
        client.ladder.granted(match verdict {
            SleepVerdict::Held { until, .. } => Some(Granted::Hold(until)),
            SleepVerdict::Released => Some(Granted::Release),
            SleepVerdict::Unanswered | SleepVerdict::Unsupported => None,
        });
        let connection = client.config.name.clone();
        self.push(Event::SleepReady { connection, verdict });
    }

    pub(crate) fn sleep_answered(&mut self, sa: SaId, verdict: SleepVerdict) {
        let owner = Owner::Ike(sa);
        if self.client_of(owner).is_none() {
            return;
        }
        let Some(id) = self.sessions.get(owner).map(|s| s.connection) else { return };
        self.sleep_ready(id, verdict);
    }

    /// The session on which a sleep was being announced is gone.
    pub(crate) fn announcement_lost(&mut self, id: ConnectionId) {
        self.sleep_ready(id, SleepVerdict::Unanswered);
    }

    pub(crate) fn load_report(&mut self, sa: SaId, report: LoadReport) {
        if self.client_of(Owner::Ike(sa)).is_some() {
            self.push(Event::LoadReport(report));
        }
    }

    // ---- the gateway ----------------------------------------------------------------------------------------------

    pub(crate) fn peer_sleeps(&mut self, owner: Owner, marks: Vec<Mark>) {
        self.sessions.change(owner, |session| {
            tracing::debug!(%owner, peer = session.peer, "sleeps");
            session.falls_asleep(marks);
        });
        self.sad.rest(owner);
    }

    pub(crate) fn peer_awake(&mut self, owner: Owner) {
        self.sessions.change(owner, |session| {
            tracing::debug!(%owner, peer = session.peer, "is awake");
            session.wakes();
        });
    }

    /// The client of a session that was resumed at once has sent the first ESP packet. False if the session came too late.
    pub(crate) fn confirm(&mut self, now: Instant, owner: Owner, path: Path) {
        let Some(sa) = owner.ike() else { return };
        self.ike.confirm(now, sa, path);
        self.drain_ike(now);
    }

    /// The client of a session that was resumed at once is there.
    pub(crate) fn confirmed(&mut self, now: Instant, sa: SaId) {
        let owner = Owner::Ike(sa);
        self.sessions.change(owner, |session| session.presence = Presence::Awake);
        let Some(session) = self.sessions.get_mut(owner) else { return };
        (session.established, session.contact.heard) = (now, Some(now));
        let (connection, peer, resumed) = (session.connection, session.peer.clone(), session.resumed);
        let connection = self.connections.name(connection).to_owned();
        self.changed(Change::PeerUp { connection, peer, resumed });
        self.account_begin(now, owner);
        self.record_begin(owner, How::AtOnce);
        self.tunnels_may_send(now, owner);
        self.push(Event::Judged { sa, granted: true });
    }
}
