//! Keep-alives for NATs on the way (RFC 9028 section 4.10). Owns when one is due; must never send one beside other packets, nor where HIP is not in
//! UDP, for no NAT passes that.
//!
//! Without them, a host that has called from behind a NAT is not reached any more once the NAT has forgotten it: what its peer sends ends there. A
//! radio would not sleep for them, so by default there are none where that of either end may, unless a relay is in play: who registers at one is to be
//! reached at any time.

use core::time::Duration;

use dormouse_sansio::{Carrier, Class, Deadline, Instant};
use dormouse_wire::hip::NotifyType;

use crate::association::{Association, Session, Stage};
use crate::config::Keepalive;
use crate::exchange::{Around, alive, notify};
use crate::limits::{KEEPALIVE, KEEPALIVES_TO_ASK};

/// What NATs on the way are shown.
#[derive(Debug)]
pub(crate) struct Shown {
    /// When it is looked again whether something is to be sent; `None`: nothing is.
    due: Option<Instant>,
    /// When the peer was last sent anything.
    pub(crate) sent: Instant,
    /// Keep-alives that were sent.
    count: u32,
    /// Ours, once it was needed: all are the same, and so one signature serves for all.
    packet: Option<Vec<u8>>,
}

impl Shown {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { due: None, sent: now, count: 0, packet: None }
    }

    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.due.map(|at| Deadline { at, slack: Duration::from_secs(2), why: "HIP: NATs on the way" })
    }
}

/// How long the way may be silent; `None`: as long as it likes.
/// "Other values MAY be used, but a Tr value smaller than 15 seconds MUST NOT be used." (RFC 9028 section 4.10)
fn interval(association: &Association, session: &Session, around: &Around<'_>) -> Option<Duration> {
    let every = match around.config.keepalive {
        Keepalive::Off => None,
        Keepalive::Every(time) => Some(time.max(KEEPALIVE)),
        Keepalive::Auto => {
            let relay = around.config.relays.contains(&association.peer) || session.ways.ice.is_some();
            let may_sleep = around.config.may_sleep || session.dormancy.peer_may_sleep();
            (relay || !may_sleep).then_some(KEEPALIVE)
        }
    };
    every.filter(|_| association.path.carrier == Carrier::HipUdp)
}

/// The association is established, or what decides whether keep-alives are sent is another.
pub(crate) fn begin(association: &mut Association, around: &Around<'_>) {
    let Stage::Up(session) = &association.stage else { return };
    let every = interval(association, session, around);
    if let Stage::Up(session) = &mut association.stage {
        session.ways.keepalive.due = every.map(|every| session.ways.keepalive.sent + every);
    }
}

/// Sends one, if its time has come and nothing else was sent meanwhile.
/// "[...] the hosts MUST employ NAT keepalives as defined in Section 4.10." (RFC 9028 section 4.7.1)
/// "To prevent NAT states from expiring, communicating hosts MUST send periodic keepalives to other hosts with which they have
/// established a HIP association every 15 seconds (the so-called Tr value in ICE)." (RFC 9028 section 4.10)
/// "[...] SHOULD send HIP NOTIFY packets unless they have exchanged some other traffic over the used UDP ports." (RFC 9028 section 4.10)
/// "[...] the sending of such a HIP NOTIFY message SHOULD be omitted if the host is sending some other traffic (HIP or ESP) to the peer host
/// over the related UDP tunnel during the Tr period." (RFC 9028 section 5.3)
pub(crate) fn handle_timeout(association: &mut Association, around: &mut Around<'_>) {
    let (peer, path, now) = (association.peer, association.path, around.now);
    let Stage::Up(session) = &association.stage else { return };
    if session.ways.keepalive.due.is_none_or(|at| at > now) || session.dormancy.peer_sleeps() {
        return;
    }
    let every = interval(association, session, around);
    let Stage::Up(session) = &mut association.stage else { return };
    let shown = &mut session.ways.keepalive;
    let next = every.map(|every| shown.sent + every);
    if next.is_none_or(|at| at > now) {
        shown.due = next;
        return;
    }
    shown.due = every.map(|every| now + every);
    shown.count = shown.count.wrapping_add(1);
    // "However, the Data Relay Client and Data Relay Server MUST employ only HIP NOTIFY packets in order to keep the server-reflexive candidates
    // alive." (RFC 9028 section 4.10)
    if around.config.relays.contains(&peer) && shown.count.is_multiple_of(KEEPALIVES_TO_ASK) {
        // It may have started anew, or our NAT. The question keeps the way open too.
        return alive::check(association, false, around);
    }
    if shown.packet.is_none() {
        shown.packet = notify::bare(peer, NotifyType::NatKeepalive, around.identity);
    }
    if let Some(packet) = &shown.packet {
        around.outbox.push(path, Class::Timely, packet);
    }
}
