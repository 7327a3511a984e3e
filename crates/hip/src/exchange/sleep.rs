//! The sleep of either end's radio (`docs/wire/dormancy.md`), which is said in UPDATE packets by private parameters that others ignore.
//! Owns what is known of both sleeps; when to sleep is the node's. Must never send to a peer that sleeps what it has not asked for, but,
//! once, that a sleep of ours which it was told of is over: the two may have been announced at the same time; and, when something is for it,
//! where we are, if we have moved meanwhile.
//!
//! # Ours
//! [`announce`] says it to a peer that has shown that it holds; the acknowledgement says whether it does. Until the radio is on again
//! ([`over`]), each UPDATE of ours says it too, as one that did not would end what the peer holds. Then ([`woke`])
//! the first packet of ESP tells a peer that still holds it that we are there. Any other is asked by an UPDATE, and user data
//! waits until it has answered by the way that data takes ([`answered`]); one that does not answer has lost the association. A peer that
//! sleeps itself is not asked.
//!
//! # The peer's
//! It begins with [`asked`], and ends with a new UPDATE of the peer, with ESP that it sent afterwards ([`heard`]), or when its time is
//! over ([`goes_on`]). Where we have moved meanwhile, the peer looks for us in vain when it wakes: user data for it ends its sleep too
//! ([`awaited`]). The node learns that the peer is there once it is known where it is: what was kept goes there.

use core::time::Duration;

use dormouse_keying::{Event, Owner, SleepVerdict};
use dormouse_sansio::{Carrier, Deadline, Instant, Path};
use dormouse_wire::hip::{Hit, Packet, Param, ParamType, Version};
use dormouse_wire::sleep::{HoldGrant, Sleeping};

use crate::association::{Association, Session, Stage};
use crate::exchange::{Around, alive, locate, update};
use crate::hit::HitSuite;
use crate::limits::{MAX_QUESTIONS, PARTING, SLEEP_GRACE};
use crate::peers::is_configured;
use crate::quirks::Quirk;

/// The version of this extension.
const VERSION: u8 = 1;
/// DORMANCY: the sender's radio may sleep.
const MAY_SLEEP: u8 = 1;
/// DORMANCY: the sender holds associations for peers that sleep.
const HOLDS: u8 = 2;
/// The most slack of the end of a sleep.
const SLACK_MAX: Duration = Duration::from_secs(60);

/// What an association knows of sleep.
#[derive(Debug, Default)]
pub(crate) struct Dormancy {
    ours: Ours,
    theirs: Option<Theirs>,
    /// The peer has shown that it holds, and has not acknowledged an announcement as if it said nothing.
    holds: bool,
    /// The radio of the peer may sleep, as it has shown.
    may_sleep: bool,
}

/// How far our sleep is.
#[derive(Debug, Default)]
enum Ours {
    /// We are awake.
    #[default]
    Awake,
    /// We are about to sleep, have said so first at this time, and have no answer.
    Announced { said: Sleeping, since: Instant },
    /// The peer keeps the association until then.
    Held { said: Sleeping, until: Instant },
    /// The radio is on again; `held`: until when the peer keeps the association, if it has said so.
    Over { held: Option<Instant> },
    /// We woke, and rely on what the peer promised: it has not been asked.
    Relied,
    /// We woke, and the peer has not answered by the way that data takes. `moved`: it has been told a new address; `left`: how many more answers
    /// may lead to another question.
    Reviving { moved: bool, left: u8 },
}

/// The peer sleeps.
#[derive(Debug)]
struct Theirs {
    until: Instant,
    slack: Duration,
    /// It was heard, and is being asked where it is.
    heard: bool,
}

impl Dormancy {
    /// What the I2 or R2 of a peer shows.
    pub(crate) fn of(packet: &Packet<'_>) -> Self {
        Self { holds: shown(packet) & HOLDS != 0, may_sleep: may_sleep(packet), ..Self::default() }
    }

    /// Whether the peer's radio may sleep.
    pub(crate) const fn peer_may_sleep(&self) -> bool {
        self.may_sleep
    }

    /// Whether the peer hears nothing.
    pub(crate) fn peer_sleeps(&self) -> bool {
        self.theirs.as_ref().is_some_and(|t| !t.heard)
    }

    /// When the sleep of a peer that hears nothing is over.
    pub(crate) fn peer_sleeps_until(&self) -> Option<Deadline> {
        let theirs = self.theirs.as_ref().filter(|t| !t.heard)?;
        Some(Deadline { at: theirs.until, slack: theirs.slack, why: "HIP: a peer's sleep is over" })
    }

    /// What an UPDATE of ours says of our sleep.
    pub(crate) fn said(&self) -> Option<Param> {
        let (Ours::Announced { said, .. } | Ours::Held { said, .. }) = &self.ours else { return None };
        Some(Param::Opaque(ParamType::DormancySleeping, said.emit()))
    }

    /// Whether the peer has still to answer after our sleep.
    pub(crate) fn revives(&self) -> bool {
        matches!(self.ours, Ours::Reviving { .. })
    }
}

/// What our I2 or R2 says of us.
pub(crate) fn shows(peer: Hit, around: &Around<'_>) -> Option<Param> {
    let of = |is: bool, flag: u8| if is { flag } else { 0 };
    let flags = of(around.config.may_sleep, MAY_SLEEP) | of(around.config.hold.is_some(), HOLDS);
    let says = flags != 0 && is_told(peer, around);
    says.then(|| Param::Opaque(ParamType::Dormancy, vec![VERSION, flags]))
}

/// The flags of a peer's I2 or R2.
fn shown(packet: &Packet<'_>) -> u8 {
    match packet.find(ParamType::Dormancy).map(|param| param.contents) {
        Some([VERSION, flags, ..]) => *flags,
        _ => 0,
    }
}

/// Whether a peer's I2 or R2 says that its radio may sleep.
pub(crate) fn may_sleep(packet: &Packet<'_>) -> bool {
    shown(packet) & MAY_SLEEP != 0
}

fn is_named(peer: Hit, around: &Around<'_>) -> bool {
    is_configured(around.config, around.peers, peer)
}

/// Whether a peer can be sent parameters that it may not know. Those of version 1 are old programs.
pub(crate) fn is_told(peer: Hit, around: &Around<'_>) -> bool {
    let is_old = HitSuite::of(peer).is_none_or(|suite| suite.version() == Version::V1);
    !is_old && !around.peers.quirks(peer).has(Quirk::KnownParametersOnly)
}

// ---- our sleep ----------------------------------------------------------------------------------------------------------------

/// We are about to sleep. True if an answer follows.
pub(crate) fn announce(association: &mut Association, said: &Sleeping, around: &mut Around<'_>) -> bool {
    let told = is_told(association.peer, around);
    let Stage::Up(session) = &mut association.stage else { return false };
    let it = &mut session.dormancy;
    if !told || !it.holds || it.peer_sleeps() {
        return false;
    }
    it.ours = Ours::Announced { said: said.clone(), since: around.now };
    update::send(association, None, around);
    true
}

/// What an UPDATE of ours that the peer has acknowledged told it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// A new address.
    pub(crate) moved: bool,
    /// That we sleep.
    pub(crate) sleep: bool,
}

/// The peer has acknowledged our UPDATE.
pub(crate) fn acknowledged(
    association: &mut Association,
    packet: &Packet<'_>,
    told: Told,
    around: &mut Around<'_>,
) {
    let owner = association.owner();
    let Stage::Up(session) = &mut association.stage else { return };
    let it = &mut session.dormancy;
    match core::mem::take(&mut it.ours) {
        Ours::Announced { said, since } if told.sleep => {
            let grant = packet.find(ParamType::DormancyHeld);
            let grant = grant.and_then(|held| HoldGrant::parse(held.contents).ok());
            it.holds = grant.is_some();
            let verdict = grant.map_or(SleepVerdict::Unsupported, |grant| {
                // The peer counts from later.
                let until = since + grant.hold;
                let flags = grant.flags.and(said.flags);
                it.ours = Ours::Held { said, until };
                SleepVerdict::Held { until, flags }
            });
            around.events.push_back(Event::SleepAnswered { owner, verdict });
        }
        Ours::Announced { .. } if it.peer_sleeps() => {
            let verdict = SleepVerdict::Unsupported;
            around.events.push_back(Event::SleepAnswered { owner, verdict });
        }
        // The UPDATE answered a sleep of the peer's, which is over.
        before @ Ours::Announced { .. } => {
            it.ours = before;
            update::send(association, None, around);
        }
        Ours::Relied => around.events.push_back(Event::Revived { owner, moved: told.moved }),
        Ours::Reviving { moved, left } => {
            it.ours = Ours::Reviving { moved: moved || told.moved, left };
        }
        before @ (Ours::Awake | Ours::Held { .. } | Ours::Over { .. }) => it.ours = before,
    }
}

/// A new UPDATE of the peer: if we have relied on its holding the association while we slept, it does.
pub(crate) fn is_there(session: &mut Session, owner: Owner, around: &mut Around<'_>) {
    if matches!(session.dormancy.ours, Ours::Relied) {
        session.dormancy.ours = Ours::Awake;
        around.events.push_back(Event::Revived { owner, moved: false });
    }
}

/// The peer has acknowledged, by `path`, what we asked it after a sleep, and its packet has been dealt with: user data may go, unless the answer
/// came by another way than data would go, which a NAT may have forgotten, or data goes by a relay, and the peer asks us where we are: it lets
/// us through there when it knows. Then it goes when another UPDATE of ours is acknowledged.
/// "To avoid packet dropping of ESP packets, the Control Relay Client SHOULD send the PEER_PERMISSION parameter before connectivity checks
/// both in the case of base exchange and a mobility handover." (RFC 9028 section 4.12.1)
pub(crate) fn answered(
    association: &mut Association,
    packet: &Packet<'_>,
    path: Path,
    around: &mut Around<'_>,
) {
    let (owner, in_use) = (association.owner(), association.path);
    let Stage::Up(session) = &mut association.stage else { return };
    let Ours::Reviving { moved, left } = session.dormancy.ours else { return };
    let elsewhere = path != in_use && path.carrier == Carrier::HipUdp;
    let relayed = session.ways.ice.as_ref().is_some_and(|ice| ice.is_relayed(in_use));
    let asks = relayed && packet.find(ParamType::EchoRequestSigned).is_some();
    let Some(left) = left.checked_sub(1).filter(|_| elsewhere || asks || session.place.candidate.is_some())
    else {
        session.dormancy.ours = Ours::Awake;
        around.events.push_back(Event::Revived { owner, moved });
        return;
    };
    session.dormancy.ours = Ours::Reviving { moved, left };
    if elsewhere && session.place.candidate.is_none() {
        locate::take(association, path, around.seen.map(|seen| seen.relay), around);
    }
    alive::check(association, true, around);
}

/// The peer was asked in vain where its answer came from: what we ask after a sleep is asked where it was before.
pub(crate) fn asks_on(association: &mut Association, around: &mut Around<'_>) {
    if matches!(&association.stage, Stage::Up(session) if session.dormancy.revives()) {
        revive(association, around);
    }
}

/// The radio is on: what was said of its sleep is no longer so.
pub(crate) fn over(association: &mut Association) {
    let Stage::Up(session) = &mut association.stage else { return };
    let it = &mut session.dormancy;
    it.ours = match core::mem::take(&mut it.ours) {
        Ours::Announced { .. } => Ours::Over { held: None },
        Ours::Held { until, .. } => Ours::Over { held: Some(until) },
        before => before,
    };
}

/// The radio is on, and our addresses are known. Whether user data may go at once. If it was said before that it has to wait, it need not any more.
pub(crate) fn woke(association: &mut Association, around: &mut Around<'_>) -> bool {
    let waited = matches!(&association.stage, Stage::Up(session) if session.dormancy.revives());
    let flows = data_may_go(association, around);
    if waited && flows {
        let owner = association.owner();
        around.events.push_back(Event::Revived { owner, moved: false });
    }
    flows
}

fn data_may_go(association: &mut Association, around: &mut Around<'_>) -> bool {
    over(association);
    let now = around.now;
    let has_address = has_address(association, around);
    let Stage::Up(session) = &mut association.stage else { return true };
    let before = core::mem::take(&mut session.dormancy.ours);
    if session.dormancy.peer_sleeps() {
        if matches!(before, Ours::Over { .. }) {
            take_back(association, around);
        }
        return true;
    }
    if !matches!(before, Ours::Over { .. }) && !is_named(association.peer, around) {
        // There may be very many of those: silence shows which of them is lost.
        return true;
    }
    // What the peer was asked before the sleep had no chance of an answer.
    session.updates.outstanding.take_if(|o| matches!(before, Ours::Over { held: None }) || o.retry.at <= now);
    let held = matches!(before, Ours::Over { held: Some(until) } if until > now);
    // During the sleep a NAT of the peer's may have forgotten the direct way, or a relay us: data that relied on it would be lost.
    let may_be_closed = session.ways.ice.is_some();
    if held && !may_be_closed && has_address && session.updates.outstanding.is_none() {
        session.dormancy.ours = Ours::Relied;
        alive::heard(association, around);
        return true;
    }
    session.dormancy.ours = Ours::Reviving { moved: false, left: MAX_QUESTIONS };
    revive(association, around);
    false
}

/// Sends an UPDATE without DORMANCY_SLEEPING to a peer that sleeps and takes us for asleep: it counts if the peer has woken meanwhile. Otherwise the
/// peer learns it from our answer to the UPDATE with which it wakes.
fn take_back(association: &mut Association, around: &mut Around<'_>) {
    update::send(association, None, around);
    if let Stage::Up(session) = &association.stage
        && let Some(outstanding) = &session.updates.outstanding
        && has_address(association, around)
    {
        around.outbox.push(outstanding.to, outstanding.retry.class, &outstanding.retry.packet);
    }
}

/// Whether the address that we send from is there.
fn has_address(association: &Association, around: &Around<'_>) -> bool {
    let local = association.path.local.ip();
    local.is_unspecified() || around.peers.ours().contains(&local)
}

/// The peer is to learn that we listen, unless it neither knows of a sleep of ours nor is named by the configuration.
pub(crate) fn ask(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &association.stage else { return };
    if session.dormancy.holds || is_named(association.peer, around) {
        alive::check(association, false, around);
    }
}

/// Asks the peer whether it has the association still, if there is an address to ask from: a base exchange follows if it has not.
pub(crate) fn revive(association: &mut Association, around: &mut Around<'_>) {
    if has_address(association, around) {
        alive::check(association, true, around);
        // The relay leads to a peer whose NAT has forgotten the direct way.
        if let Stage::Up(session) = &association.stage
            && let (Some(ice), Some(outstanding)) = (&session.ways.ice, &session.updates.outstanding)
            && !ice.is_relayed(outstanding.to)
            && let Some(way) = ice.through_relay(around.peers)
        {
            around.outbox.push(way, outstanding.retry.class, &outstanding.retry.packet);
        }
    } else if let Stage::Up(session) = &mut association.stage {
        session.life.check = None;
    }
}

// ---- the peer's ---------------------------------------------------------------------------------------------------------------

/// A new UPDATE of the peer: it is awake, unless this one announces its sleep. Our answer to that.
pub(crate) fn asked(
    association: &mut Association,
    packet: &Packet<'_>,
    around: &mut Around<'_>,
) -> Option<Param> {
    let (now, owner, peer) = (around.now, association.owner(), association.peer);
    let Stage::Up(session) = &mut association.stage else { return None };
    let said = packet.find(ParamType::DormancySleeping);
    let said = said.and_then(|said| Sleeping::parse(said.contents).ok());
    let Some((Sleeping { flags, expect, marks }, hold)) = said.zip(around.config.hold) else {
        wake(session, now);
        return None;
    };
    // One that the configuration does not name holds its place no longer than if it were silent.
    let longest = if is_named(peer, around) { hold.longest } else { hold.longest.min(around.config.unused) };
    let wanted = expect.map_or(longest, |e| e.saturating_add(e / 10).saturating_add(SLEEP_GRACE));
    let stay = wanted.min(longest);
    let (until, slack, flags) = (now + stay, (stay / 16).min(SLACK_MAX), flags.and(hold.services));
    session.dormancy.theirs = Some(Theirs { until, slack, heard: false });
    (session.life.check, session.life.used) = (None, now);
    around.events.push_back(Event::PeerSleeps { owner, until, flags, expect, marks });
    Some(Param::Opaque(ParamType::DormancyHeld, HoldGrant { flags, hold: stay }.emit()))
}

/// ESP of the peer shows that it is awake.
pub(crate) fn heard(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    // It could not be asked while it slept whether it is where its ESP comes from.
    let asks = session.dormancy.peer_sleeps() && session.place.candidate.is_some();
    wake(session, around.now);
    if asks {
        update::send(association, None, around);
    }
    end_of_peers(association, around);
}

/// User data is for the peer, which sleeps. If the peer has not acknowledged our present address, an UPDATE with it is sent, and sent again as
/// any UPDATE; without an answer the association ends, as the peer could not come back by it, and another one may be begun.
pub(crate) fn awaited(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    if !session.place.ours.is_acknowledged() && session.dormancy.peer_sleeps() {
        wake(session, around.now);
        update::send(association, None, around);
    }
}

fn wake(session: &mut Session, now: Instant) {
    if let Some(theirs) = session.dormancy.theirs.as_mut().filter(|theirs| !theirs.heard) {
        theirs.heard = true;
        session.life.parting = now + PARTING;
    }
}

/// Whether an UPDATE announces a sleep of the peer.
pub(crate) fn announces(packet: &Packet<'_>) -> bool {
    packet.find(ParamType::DormancySleeping).is_some()
}

/// The peer has slept, and was heard: once it is known where it is, it gets what has waited.
pub(crate) fn end_of_peers(association: &mut Association, around: &mut Around<'_>) {
    let owner = association.owner();
    let Stage::Up(session) = &mut association.stage else { return };
    if session.place.candidate.is_some() || session.dormancy.theirs.take_if(|t| t.heard).is_none() {
        return;
    }
    around.events.push_back(Event::PeerAwake { owner, there: true });
    let waits = session.updates.outstanding.take().is_some();
    alive::heard(association, around);
    if waits {
        update::send(association, None, around);
    }
}

/// Whether the peer sleeps: then nothing is due but the end of that.
pub(crate) fn goes_on(association: &mut Association, around: &mut Around<'_>) -> bool {
    let owner = association.owner();
    let Stage::Up(session) = &mut association.stage else { return false };
    if session.dormancy.theirs.take_if(|t| !t.heard && t.until <= around.now).is_some() {
        around.events.push_back(Event::PeerAwake { owner, there: false });
    }
    session.dormancy.peer_sleeps()
}
