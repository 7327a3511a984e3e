//! Which callers are there: the established SAs that others have opened, by connection and proved identity, the inner hosts that
//! each reaches by them, and what each may do at once or in the long run. Owns these indexes; must never end an SA.

use std::collections::{BTreeMap, BTreeSet};

use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::cert::Identity;
use dormouse_keying::SaId;
use dormouse_sansio::{Instant, Pace};
use dormouse_wire::ike::TsRange;

use crate::config::{Connection, Unique};
use crate::credential::Refusal;
use crate::guesses::Guesses;
use crate::limits::{
    BEGIN_BURST, BEGIN_EVERY, CREATE_CHILD_BURST, CREATE_CHILD_EVERY, HANDSHAKES_WAITING, PACES_SWEPT_AT,
};
use crate::ticket::counted::Counting;
use crate::ticket::lineage::Name;

/// An identity as one connection knows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Caller {
    connection: String,
    /// Its canonical form: it is one however it is spelled.
    peer: Vec<u8>,
}

impl Caller {
    pub(crate) fn of(connection: &str, peer: &Identity) -> Self {
        Self { connection: connection.to_owned(), peer: peer.canonical() }
    }
}

/// What is known of one SA of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Present {
    pub(crate) caller: Caller,
    /// Exchanges run on it; the others are what rekeying and closing leave.
    pub(crate) live: bool,
    /// Where it comes from.
    pub(crate) from: IpAddr,
    /// The lineage of its session.
    pub(crate) lineage: Option<Name>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    sas: BTreeMap<Caller, BTreeSet<SaId>>,
    present: BTreeMap<SaId, Present>,
    /// The same by lineage.
    of_lineage: BTreeMap<Name, BTreeSet<SaId>>,
    /// Inner hosts by who is reached there.
    hosts: BTreeMap<IpAddr, Reached>,
    /// How often each has done what it may do at a pace. They go on when its sessions come and go.
    paces: BTreeMap<(Caller, Paced), Pace>,
    /// Those that make no difference any more go when there are so many.
    swept_at: usize,
    /// Handshakes of callers who have authenticated, and wait for us; and whether they wait for the store, as resumptions do.
    waiting: BTreeMap<SaId, (Caller, bool)>,
    /// Handshakes of callers who have proved nothing, and wait for our signature.
    strangers: BTreeSet<SaId>,
    /// Passwords that they try.
    pub(crate) guesses: Guesses,
    /// What the store knows of their sessions, where several gateways count them.
    pub(crate) counting: Counting,
}

/// What a caller may do at a pace. Full logins have one of their own, so that a thief with a copied ticket does not keep its owner from
/// ending its session that way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Paced {
    /// Having requests to make or rekey an SA answered.
    Create,
    Login,
    /// Of a lineage where several devices share the identity. Elsewhere of all of the identity: each full login begins another lineage.
    Resumption(Option<Name>),
}

/// How a session begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    /// By a full login.
    Login,
    /// By a ticket of this lineage.
    Resumption(Name),
}

impl Begin {
    /// Its pace for an identity, and how many there may be at once.
    fn paced(self, conn: &Connection, peer: &Identity) -> ((Caller, Paced), u32) {
        let shared = conn.answering.policy.unique == Unique::Never;
        let (paced, burst) = match self {
            Self::Login => (Paced::Login, of_identity(BEGIN_BURST, conn)),
            Self::Resumption(lineage) => {
                (Paced::Resumption(shared.then_some(lineage)), of_device(BEGIN_BURST))
            }
        };
        ((Caller::of(&conn.name, peer), paced), burst)
    }
}

/// Who is reached at an inner host.
#[derive(Debug)]
struct Reached {
    by: Caller,
    /// The lineage of the last session that it was assigned to, if it was.
    lineage: Option<Name>,
    /// How many CHILD SAs lead there, and sessions it is assigned to.
    claims: usize,
}

/// How many at once of what one device may do `one` of at once: several devices may share the identity.
fn of_identity(one: usize, conn: &Connection) -> u32 {
    let policy = &conn.answering.policy;
    let devices = if policy.unique == Unique::Never { policy.sessions } else { 1 };
    of_device(one.max(devices))
}

fn of_device(many: usize) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX).min(1 << 16)
}

impl Callers {
    /// What is to be known of an SA from now on; `None`: it is gone, or none of a caller's.
    pub(crate) fn note(&mut self, id: SaId, now: Option<Present>) {
        if self.present.get(&id) == now.as_ref() {
            return;
        }
        if let Some(Present { caller, lineage, .. }) = self.present.remove(&id) {
            take_out(&mut self.sas, &caller, id);
            lineage.iter().for_each(|lineage| take_out(&mut self.of_lineage, lineage, id));
            lineage.iter().for_each(|lineage| self.counting.changed(*lineage));
        }
        if let Some(present) = now {
            self.sas.entry(present.caller.clone()).or_default().insert(id);
            if let Some(lineage) = present.lineage {
                self.of_lineage.entry(lineage).or_default().insert(id);
                self.counting.changed(lineage);
            }
            self.present.insert(id, present);
        }
    }

    /// The SAs of a lineage, those included that rekeying and closing have left.
    pub(crate) fn of_lineage(&self, lineage: Name) -> impl Iterator<Item = SaId> {
        self.of_lineage.get(&lineage).into_iter().flatten().copied()
    }

    /// The live SA of a lineage, if there is one.
    pub(crate) fn live_of_lineage(&self, lineage: Name) -> Option<SaId> {
        self.of_lineage(lineage).find(|id| self.present.get(id).is_some_and(|present| present.live))
    }

    /// SAs of a caller: those that are live, or those that rekeying and closing have left.
    pub(crate) fn of(&self, caller: &Caller, live: bool) -> impl Iterator<Item = (SaId, &Present)> {
        let all = self.sas.get(caller).into_iter().flatten();
        all.filter_map(move |id| Some((*id, self.present.get(id)?))).filter(move |(_, p)| p.live == live)
    }

    /// Whether there is room for another session of an identity, which takes the place of those of the lineage `former`. `conn` is the
    /// connection as the identity has it; `login`: where it has just authenticated fully from.
    /// "Server implementations SHOULD limit the number of IP addresses allocated to any particular client." (RFC 8019 section 5): to
    /// those of its sessions.
    ///
    /// # Errors
    /// [`Refusal::Sessions`].
    pub(crate) fn room(
        &self,
        conn: &Connection,
        peer: &Identity,
        login: Option<IpAddr>,
        former: Option<Name>,
    ) -> Result<(), Refusal> {
        let caller = Caller::of(&conn.name, peer);
        let others = || self.of(&caller, true).filter(|(_, p)| former.is_none() || p.lineage != former);
        let policy = &conn.answering.policy;
        let full = match policy.unique {
            // Those that are replaced stay for a moment, and are bounded as well.
            Unique::Replace => others().count() >= policy.sessions.max(2),
            // From the same address it is the same device, which authenticates anew or has lost its state; or one behind the same NAT.
            Unique::Keep => {
                others().any(|(_, p)| Some(p.from) != login) || others().count() >= policy.sessions.max(2)
            }
            Unique::Never => others().count() >= policy.sessions.max(1),
        };
        match full {
            true => Err(Refusal::Sessions { identity: peer.clone(), sessions: others().count() }),
            false => Ok(()),
        }
    }

    /// Whether a request of a caller to make or rekey an SA is answered, or comes too soon after many others of its.
    pub(crate) fn may_create(&mut self, caller: &Caller, now: Instant) -> bool {
        self.may(now, (caller.clone(), Paced::Create), CREATE_CHILD_EVERY, CREATE_CHILD_BURST)
    }

    fn may(&mut self, now: Instant, what: (Caller, Paced), every: Duration, burst: u32) -> bool {
        if self.paces.len() >= self.swept_at.max(PACES_SWEPT_AT) {
            self.paces.retain(|_, pace| !pace.is_over(now));
            self.swept_at = 2 * self.paces.len();
        }
        self.paces.entry(what).or_default().may(now, every, burst)
    }

    /// Whether an identity may begin another session in this way now, or has begun too many of late.
    ///
    /// # Errors
    /// [`Refusal::TooOften`].
    pub(crate) fn may_begin(
        &self,
        conn: &Connection,
        peer: &Identity,
        how: Begin,
        now: Instant,
    ) -> Result<(), Refusal> {
        let (what, burst) = how.paced(conn, peer);
        let allowed = self.paces.get(&what).copied().unwrap_or_default().allows(now, BEGIN_EVERY, burst);
        allowed.then_some(()).ok_or_else(|| Refusal::TooOften(peer.clone()))
    }

    /// The same; if so, it begins.
    ///
    /// # Errors
    /// [`Refusal::TooOften`].
    pub(crate) fn begin(
        &mut self,
        conn: &Connection,
        peer: &Identity,
        how: Begin,
        now: Instant,
    ) -> Result<(), Refusal> {
        let (what, burst) = how.paced(conn, peer);
        let allowed = self.may(now, what, BEGIN_EVERY, burst);
        allowed.then_some(()).ok_or_else(|| Refusal::TooOften(peer.clone()))
    }

    /// A handshake of an identity that has authenticated waits for us: it gives way to no stranger meanwhile, so there may be few. Those
    /// that wait for the store, as resumptions do, leave room for full logins.
    ///
    /// # Errors
    /// [`Refusal::Waiting`].
    pub(crate) fn wait(
        &mut self,
        id: SaId,
        conn: &Connection,
        peer: &Identity,
        for_store: bool,
    ) -> Result<(), Refusal> {
        let whose = (Caller::of(&conn.name, peer), for_store);
        let others = self.waiting.iter().filter(|(other, by)| **other != id && **by == whose).count();
        if others >= of_identity(HANDSHAKES_WAITING, conn) as usize {
            return Err(Refusal::Waiting(peer.clone()));
        }
        self.waiting.insert(id, whose);
        Ok(())
    }

    /// It waits no longer, or is gone. Does nothing if it did not.
    pub(crate) fn wait_no_longer(&mut self, id: SaId) {
        self.waiting.remove(&id);
    }

    /// Whether our key signs for a caller that has proved nothing: not for more than `most` at once.
    pub(crate) fn sign_for_stranger(&mut self, id: SaId, most: usize) -> bool {
        let may = self.strangers.len() < most;
        may && self.strangers.insert(id)
    }

    /// It has signed, or needs not any more. Does nothing if it was not asked to.
    pub(crate) fn signed_for_stranger(&mut self, id: SaId) {
        self.strangers.remove(&id);
    }

    /// The first of these inner hosts that another caller is reached at already, or that is assigned to another device which shares the
    /// identity with the one of `lineage`.
    pub(crate) fn held_by_another(
        &self,
        conn: &Connection,
        peer: &Identity,
        lineage: Option<Name>,
        hosts: impl IntoIterator<Item = IpAddr>,
    ) -> Option<IpAddr> {
        let caller = Caller::of(&conn.name, peer);
        let apart = conn.answering.policy.unique == Unique::Never;
        let another = |r: &Reached| r.by != caller || apart && r.lineage.is_some() && r.lineage != lineage;
        hosts.into_iter().find(|host| self.hosts.get(host).is_some_and(another))
    }

    /// A CHILD SA of a caller leads to these hosts, or they are assigned to its session of this lineage.
    pub(crate) fn claim(
        &mut self,
        caller: &Caller,
        hosts: impl IntoIterator<Item = IpAddr>,
        assigned_to: Option<Name>,
    ) {
        for host in hosts {
            let unclaimed = || Reached { by: caller.clone(), lineage: None, claims: 0 };
            let reached = self.hosts.entry(host).or_insert_with(unclaimed);
            if reached.by == *caller {
                reached.claims += 1;
                reached.lineage = assigned_to.or(reached.lineage);
            }
        }
    }

    /// It no longer does.
    pub(crate) fn disclaim(&mut self, caller: &Caller, hosts: impl IntoIterator<Item = IpAddr>) {
        for host in hosts {
            let left = self.hosts.get_mut(&host).filter(|reached| reached.by == *caller).map(|reached| {
                reached.claims = reached.claims.saturating_sub(1);
                reached.claims
            });
            if left == Some(0) {
                self.hosts.remove(&host);
            }
        }
    }
}

/// An SA goes out of an index, and its entry with the last one.
fn take_out<K: Ord>(index: &mut BTreeMap<K, BTreeSet<SaId>>, key: &K, id: SaId) {
    let Some(ids) = index.get_mut(key) else { return };
    ids.remove(&id);
    if ids.is_empty() {
        index.remove(key);
    }
}

/// Ranges of one address. Wider ones are sites, and give way to the hosts in them.
pub(crate) fn hosts(ranges: &[TsRange]) -> impl Iterator<Item = IpAddr> {
    let hosts: BTreeSet<IpAddr> = ranges.iter().filter(|r| r.start == r.end).map(|r| r.start).collect();
    hosts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{IdentityPattern, LocalAuth, RemoteAuth};
    use dormouse_crypto::Secret;

    fn who(name: &str) -> Identity {
        name.parse().unwrap()
    }

    fn caller(name: &str) -> Caller {
        Caller::of("office", &who(name))
    }

    #[test]
    fn no_more_strangers_are_signed_for_at_once_than_may_be() {
        let mut callers = Callers::default();
        let [a, b, c] = [1, 2, 3].map(SaId::new);
        assert!(callers.sign_for_stranger(a, 2) && callers.sign_for_stranger(b, 2));
        assert!(!callers.sign_for_stranger(c, 2) && callers.sign_for_stranger(c, 3));
        callers.signed_for_stranger(a);
        assert!(callers.sign_for_stranger(a, 3));
    }

    #[test]
    fn one_callers_requests_are_answered_at_a_pace_and_do_not_slow_another() {
        let (mut callers, mut now) = (Callers::default(), Instant::ZERO);
        let (a, b) = (caller("a"), caller("b"));
        let at_once = (0..1_000).filter(|_| callers.may_create(&a, now)).count();
        assert_eq!(at_once, CREATE_CHILD_BURST as usize);
        assert!(callers.may_create(&b, now));
        // Its sessions come and go, and it has no more for that.
        let (id, from) = (SaId::new(1), IpAddr::from([192, 0, 2, 1]));
        callers.note(id, Some(Present { caller: a.clone(), live: true, from, lineage: None }));
        callers.note(id, None);
        assert!(!callers.may_create(&a, now));
        now += CREATE_CHILD_EVERY * 3;
        assert_eq!((0..1_000).filter(|_| callers.may_create(&a, now)).count(), 3);
    }

    fn connection(unique: Unique, sessions: usize) -> Connection {
        let psk = || Secret::from([1; 32]);
        let us = "gateway".parse().unwrap();
        let (local, remote) = (LocalAuth::Psk(psk()), RemoteAuth::Psk(psk()));
        let mut conn = Connection::new("office", us, local, IdentityPattern::Any, remote);
        (conn.answering.policy.unique, conn.answering.policy.sessions) = (unique, sessions);
        conn
    }

    #[test]
    fn one_identitys_sessions_begin_at_a_pace() {
        let many = BEGIN_BURST + 100;
        let (thiefs, owners) = (Begin::Resumption(Name([1; 16])), Begin::Resumption(Name([2; 16])));
        for (unique, how, at_once) in [
            (Unique::Replace, Begin::Login, BEGIN_BURST),
            (Unique::Keep, Begin::Login, BEGIN_BURST),
            (Unique::Never, Begin::Login, many),
            (Unique::Replace, thiefs, BEGIN_BURST),
            (Unique::Keep, thiefs, BEGIN_BURST),
            (Unique::Never, thiefs, BEGIN_BURST),
        ] {
            let (mut callers, mut now, conn) = (Callers::default(), Instant::ZERO, connection(unique, many));
            let (a, b) = (who("a"), who("b"));
            assert_eq!((0..1_000).filter(|_| callers.begin(&conn, &a, how, now).is_ok()).count(), at_once);
            let may = |callers: &Callers, who, how| callers.may_begin(&conn, who, how, now).is_ok();
            assert!(!may(&callers, &a, how) && may(&callers, &b, how));
            assert_eq!(may(&callers, &a, Begin::Login), how != Begin::Login);
            let apart = how == Begin::Login || unique == Unique::Never;
            assert_eq!(may(&callers, &a, owners), apart, "{unique:?}: a thief with another device's ticket");
            now += BEGIN_EVERY * 3;
            assert_eq!((0..1_000).filter(|_| callers.begin(&conn, &a, how, now).is_ok()).count(), 3);
            // Asking alone costs nothing.
            assert!((0..1_000).all(|_| callers.may_begin(&conn, &b, how, now).is_ok()));
        }
    }

    #[test]
    fn of_lineages_that_come_and_go_no_more_is_remembered_than_makes_a_difference() {
        let (mut callers, mut now, conn) = (Callers::default(), Instant::ZERO, connection(Unique::Never, 1));
        let peer = who("a");
        for n in 0..10_000_u32 {
            let mut lineage = [0; 16];
            lineage[..4].copy_from_slice(&n.to_be_bytes());
            assert_eq!(callers.begin(&conn, &peer, Begin::Resumption(Name(lineage)), now), Ok(()));
            now += BEGIN_EVERY / 10;
        }
        assert!(callers.paces.len() <= PACES_SWEPT_AT, "{}", callers.paces.len());
    }

    #[test]
    fn one_identitys_handshakes_do_not_fill_the_places_of_those_that_wait() {
        let (mut callers, conn) = (Callers::default(), connection(Unique::Replace, 100));
        let (a, b) = (who("a"), who("b"));
        let waits = |callers: &mut Callers, n, who| callers.wait(SaId::new(n), &conn, who, false).is_ok();
        let waiting = (0..1_000).filter(|n| waits(&mut callers, *n, &a)).count();
        assert_eq!(waiting, HANDSHAKES_WAITING);
        assert!(waits(&mut callers, 0, &a), "the same one, for something else");
        assert!(waits(&mut callers, 1_000, &b));
        assert_eq!(callers.wait(SaId::new(1_003), &conn, &a, true), Ok(()), "for the store");
        callers.wait_no_longer(SaId::new(1));
        assert!(waits(&mut callers, 1_001, &a) && !waits(&mut callers, 1_002, &a));
    }

    #[test]
    fn sessions_that_are_kept_are_counted_wherever_they_come_from() {
        let (mut callers, conn) = (Callers::default(), connection(Unique::Keep, 3));
        let (peer, from) = (who("CN=a"), IpAddr::from([192, 0, 2, 1]));
        // Its certificate was renewed by an authority that writes names in another case.
        let renewed = who("CN=A");
        assert_ne!(peer, renewed);
        for n in 0..3 {
            assert_eq!(callers.room(&conn, &renewed, Some(from), None), Ok(()), "{n}");
            let lineage = Some(Name([u8::try_from(n).unwrap(); 16]));
            callers.note(
                SaId::new(n),
                Some(Present { caller: Caller::of("office", &peer), live: true, from, lineage }),
            );
        }
        assert!(callers.room(&conn, &renewed, Some(from), None).is_err());
        assert!(callers.room(&conn, &renewed, Some(IpAddr::from([192, 0, 2, 2])), None).is_err());
    }

    #[test]
    fn a_host_is_one_callers_until_its_last_tunnel_is_gone() {
        let host = |last: u8| TsRange {
            protocol: 0,
            start_port: 0,
            end_port: u16::MAX,
            start: IpAddr::from([10, 0, 0, last]),
            end: IpAddr::from([10, 0, 0, last]),
        };
        let wide = TsRange { end: IpAddr::from([10, 0, 0, 9]), ..host(1) };
        let (mut callers, conn) = (Callers::default(), connection(Unique::Replace, 1));
        let guests = Connection { name: "guests".into(), ..connection(Unique::Replace, 1) };
        let (a, named_a, b) = (caller("a"), who("a"), who("b"));
        let held = |callers: &Callers, conn, peer, ranges: &[TsRange]| {
            callers.held_by_another(conn, peer, None, hosts(ranges))
        };
        callers.claim(&a, hosts(&[host(2)]), None);
        callers.claim(&a, hosts(&[host(2), wide]), None);
        assert_eq!(held(&callers, &conn, &b, &[host(3), host(2)]), Some(host(2).start));
        assert_eq!(held(&callers, &conn, &named_a, &[host(2)]), None);
        assert_eq!(held(&callers, &conn, &b, &[wide]), None, "a site gives way to the hosts in it");
        callers.disclaim(&a, hosts(&[host(2)]));
        assert!(held(&callers, &conn, &b, &[host(2)]).is_some());
        callers.disclaim(&a, hosts(&[host(2), wide]));
        assert_eq!(held(&callers, &conn, &b, &[host(2)]), None);
        callers.claim(&a, hosts(&[host(2)]), None);
        let elsewhere = held(&callers, &guests, &named_a, &[host(2)]);
        assert!(elsewhere.is_some(), "the same name in another connection");
    }
}
