//! A model of the database that gateways share, for one clock: each call is a transaction. Owns the tables, what they were a while ago (which a
//! failover goes back to), and who is connected. Which tickets count is [`Memory`]'s to say, which `crates/cluster` is held against; what is
//! here besides are the rules that several gateways add: whose a lineage is, orders, leases, denials, heartbeats. They stand in the
//! statements of `crates/cluster`, which its own tests hold against PostgreSQL.

mod moves;

use self::moves::LeftSa;
use dormouse_crypto::cert::Identity;
use dormouse_ike::ticket::SharedKey;
use dormouse_ike::ticket::counted::{Counted, excess};
use dormouse_ike::ticket::lineage::{Memory, Name, Operation, Outcome, Row, TicketHolder};
use dormouse_node::handover::Handover;
use dormouse_node::pool::{Addresses, Change, Lessee};
use dormouse_node::shared::{Denied, GoneOrder, Joined, Notice, SILENT};
use dormouse_sansio::{Entropy, Instant, Seeded, UnixTime};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// A failover goes back this far at most.
pub(crate) const PAST: Duration = Duration::from_secs(20);
/// Bits of a heartbeat's number below those that count how often all lineages went.
const BEATS: u32 = 40;
/// A ticket key opens as long as these stories last, and longer.
const KEY_LASTS: Duration = Duration::from_secs(30 * 86_400);

/// What is committed.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) lineages: Memory,
    /// At which gateway each lineage is.
    pub(crate) owners: BTreeMap<Name, usize>,
    /// Whose addresses are whose, in the order of their use.
    pub(crate) leases: Vec<(Lessee, Addresses)>,
    pub(crate) denials: Vec<Denied>,
    orders: BTreeMap<i64, (usize, Name)>,
    /// What gateways are told of devices, by the lineages of their sessions.
    handovers: BTreeMap<i64, (usize, Name, Handover)>,
    /// IKE SAs that can be taken over.
    left: BTreeMap<Name, LeftSa>,
    /// Of the next order or handover.
    next_number: i64,
    /// Sessions that are counted, and what is said of each.
    pub(crate) sessions: BTreeMap<Name, Present>,
    /// Of each gateway that has joined, and when it was heard last.
    beats: BTreeMap<usize, u64>,
    heard: BTreeMap<usize, Instant>,
    /// Where devices reach each, and which of them give theirs away.
    addresses: BTreeMap<usize, String>,
    draining: BTreeSet<usize>,
    keys: Vec<SharedKey>,
    incarnation: u64,
    /// Of the server, when a gateway last looked.
    timeline: u64,
}

/// A session that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present {
    /// Its gateway.
    pub(crate) at: usize,
    /// It is one too many.
    pub(crate) surplus: bool,
    pub(crate) session: Counted,
}

/// Something that was done to a lineage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// Which transaction it was done in.
    pub(crate) transaction: u64,
    pub(crate) operation: Operation,
    pub(crate) outcome: Outcome,
}

/// A connection, as the server has it.
#[derive(Debug, Default)]
struct Session {
    number: u64,
    /// What was announced and not read.
    orders: bool,
    denials: bool,
    leases: VecDeque<Notice>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) tables: Tables,
    /// Earlier ones, the latest last.
    past: VecDeque<(Instant, Tables)>,
    /// Of the server that is now.
    timeline: u64,
    slots: u8,
    /// Until then nobody reaches it.
    pub(crate) down: Instant,
    sessions: BTreeMap<usize, Session>,
    connections: u64,
    transactions: u64,
    rng: Seeded,
    /// Everything that was done to lineages, oldest first, whether it is still known or not.
    pub(crate) done: Vec<Done>,
    /// Addresses of leases that a failover has forgotten, or that were taken from their holders.
    pub(crate) lost: BTreeSet<IpAddr>,
    /// How often an IKE SA was given to the gateway that had it before, and to another one.
    pub(crate) taken_over: [usize; 2],
    /// Somebody has something to hear since the last look.
    pub(crate) rung: bool,
}

impl Database {
    pub(crate) fn new(seed: u64, slots: u8) -> Self {
        let tables = Tables {
            lineages: Memory::default(),
            owners: BTreeMap::new(),
            leases: Vec::new(),
            denials: Vec::new(),
            orders: BTreeMap::new(),
            handovers: BTreeMap::new(),
            left: BTreeMap::new(),
            next_number: 1,
            sessions: BTreeMap::new(),
            beats: BTreeMap::new(),
            heard: BTreeMap::new(),
            addresses: BTreeMap::new(),
            draining: BTreeSet::new(),
            keys: Vec::new(),
            incarnation: 1,
            timeline: 1,
        };
        Self {
            tables,
            past: VecDeque::new(),
            timeline: 1,
            slots,
            down: Instant::ZERO,
            sessions: BTreeMap::new(),
            connections: 0,
            transactions: 0,
            rng: Seeded::new(seed ^ 0x0da7_aba5_e000),
            done: Vec::new(),
            lost: BTreeSet::new(),
            taken_over: [0; 2],
            rung: false,
        }
    }

    // ---- connections ----------------------------------------------------------------------------------------------

    /// A connection of this gateway is still there.
    pub(crate) fn has(&self, gateway: usize, connection: u64) -> bool {
        self.sessions.get(&gateway).is_some_and(|session| session.number == connection)
    }

    /// A gateway's connection ends.
    pub(crate) fn part(&mut self, gateway: usize) {
        self.sessions.remove(&gateway);
        self.rung = true;
    }

    /// The server is gone until then, and with it all connections.
    pub(crate) fn fall(&mut self, until: Instant) {
        self.down = self.down.max(until);
        self.sessions.clear();
        self.rung = true;
    }

    /// Another server takes over, which has not what was committed after `since`.
    pub(crate) fn fail_over(&mut self, now: Instant, since: Instant, until: Instant) {
        self.fall(until);
        self.timeline += 1;
        while self.past.back().is_some_and(|(at, _)| *at > since) {
            self.past.pop_back();
        }
        let Some((_, tables)) = self.past.back().cloned() else { return };
        let before = std::mem::replace(&mut self.tables, tables);
        let lost = before.leases.iter().filter(|lease| !self.tables.leases.contains(lease));
        self.lost.extend(lost.flat_map(|(_, addresses)| all(addresses)));
        self.committed(now);
    }

    /// Something was committed.
    fn committed(&mut self, now: Instant) {
        while self.past.get(1).is_some_and(|(at, _)| *at + PAST < now) {
            self.past.pop_front();
        }
        self.past.push_back((now, self.tables.clone()));
    }

    /// What the others have said before of the same lease is not news to who changes it (`crates/cluster/src/news.rs`).
    fn tell(&mut self, from: usize, notice: &Notice) {
        if let Some(holder) = lessee(notice)
            && let Some(session) = self.sessions.get_mut(&from)
        {
            session.leases.retain(|waiting| lessee(waiting) != Some(holder));
        }
        for (gateway, session) in &mut self.sessions {
            if *gateway != from {
                match notice {
                    Notice::Orders => session.orders = true,
                    Notice::Denials => session.denials = true,
                    other => session.leases.push_back(other.clone()),
                }
            }
        }
        self.rung = true;
    }

    /// The next thing that was announced to this gateway: who has been told to end comes first.
    pub(crate) fn notice(&mut self, gateway: usize) -> Option<Notice> {
        let session = self.sessions.get_mut(&gateway)?;
        if std::mem::take(&mut session.orders) {
            return Some(Notice::Orders);
        }
        if std::mem::take(&mut session.denials) {
            return Some(Notice::Denials);
        }
        session.leases.pop_front()
    }

    /// Something was announced to this gateway.
    pub(crate) fn has_notice(&self, gateway: usize) -> bool {
        self.sessions.get(&gateway).is_some_and(|s| s.orders || s.denials || !s.leases.is_empty())
    }

    /// As `crates/cluster/src/join.rs` does it. The connection's number and what the gateway learns.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        gateway: usize,
        address: &str,
        remembered: u64,
    ) -> (u64, Joined) {
        self.connections += 1;
        self.sessions.insert(gateway, Session { number: self.connections, ..Session::default() });
        let tables = &mut self.tables;
        let own = tables.beats.get(&gateway).copied();
        let emptied = tables.timeline != self.timeline || remembered > own.unwrap_or(0);
        let mut first = tables.incarnation << BEATS;
        if emptied {
            tables.incarnation = tables.incarnation.max(remembered >> BEATS) + 1;
            first = tables.incarnation << BEATS;
            tables.timeline = self.timeline;
            tables.lineages.apply(UnixTime(0), &Operation::EndEvery);
            tables.owners.clear();
            tables.left.clear();
            tables.beats.values_mut().for_each(|beats| *beats = first);
        }
        let beats = own.filter(|_| !emptied).unwrap_or(first) + 1;
        tables.beats.insert(gateway, beats);
        tables.heard.insert(gateway, now);
        tables.addresses.insert(gateway, address.to_owned());
        tables.draining.remove(&gateway);
        self.committed(now);
        let slot = u8::try_from(gateway).unwrap_or(0);
        let incarnation = beats >> BEATS;
        (self.connections, Joined { slot, slots: self.slots, emptied, incarnation, beats })
    }

    pub(crate) fn beat(&mut self, now: Instant, gateway: usize, draining: bool) -> u64 {
        let beats = self.tables.beats.entry(gateway).or_default();
        *beats += 1;
        let beats = *beats;
        self.tables.heard.insert(gateway, now);
        match draining {
            true => _ = self.tables.draining.insert(gateway),
            false => _ = self.tables.draining.remove(&gateway),
        }
        self.committed(now);
        beats
    }

    // ---- lineages -------------------------------------------------------------------------------------------------

    pub(crate) fn run(
        &mut self,
        now: Instant,
        unix: UnixTime,
        gateway: usize,
        operations: &[Operation],
    ) -> Vec<Outcome> {
        self.transactions += 1;
        let apply = |operation: &Operation| match operation {
            Operation::Enter { session, .. } => self.enter(now, gateway, session),
            operation => self.apply(unix, gateway, operation),
        };
        let outcomes = operations.iter().map(apply).collect();
        self.committed(now);
        outcomes
    }

    fn apply(&mut self, unix: UnixTime, gateway: usize, operation: &Operation) -> Outcome {
        let tables = &mut self.tables;
        let elsewhere = |tables: &Tables, id: &Name| tables.owners.get(id).is_some_and(|o| *o != gateway);
        if let Operation::End { lineage, .. } = operation
            && elsewhere(tables, lineage)
        {
            return Outcome::Done;
        }
        let ordered = |id: &Name| tables.orders.values().any(|order| *order == (gateway, *id));
        if matches!(operation, Operation::Insert(row) if ordered(&row.id)) {
            return Outcome::Done;
        }
        if let Operation::Insert(row) = operation
            && tables.lineages.has_ended(row)
        {
            self.order(gateway, row.id);
            return Outcome::Done;
        }
        if let Operation::EndFormer { lineage, holder } = operation
            && tables.lineages.rows().all(|row| row.id != *lineage)
            && let Some(present) = tables.sessions.get_mut(lineage)
            && present.session.holder == *holder
            && present.at != gateway
        {
            present.surplus = true;
            let at = present.at;
            self.ring(at);
        }
        let tables = &mut self.tables;
        let outcome = tables.lineages.apply(unix, operation);
        self.done.push(Done { transaction: self.transactions, operation: *operation, outcome });
        let there: BTreeSet<Name> = tables.lineages.rows().map(|row| row.id).collect();
        let mut from = Vec::new();
        match operation {
            Operation::Insert(row) => _ = tables.owners.entry(row.id).or_insert(gateway),
            Operation::Confirm { lineage, .. } if outcome == Outcome::Done => {
                tables.sessions.entry(*lineage).and_modify(|present| present.at = gateway);
                from.extend(tables.owners.insert(*lineage, gateway).map(|former| (former, *lineage)));
            }
            Operation::EndFormer { .. } | Operation::EndAll { .. } => {
                let gone = tables.owners.iter().filter(|(id, _)| !there.contains(id));
                from.extend(gone.map(|(id, owner)| (*owner, *id)));
            }
            Operation::Leave { lineage } => {
                tables.sessions.retain(|id, present| id != lineage || present.at != gateway);
            }
            _ => {}
        }
        tables.owners.retain(|id, _| there.contains(id));
        for (former, lineage) in from.into_iter().filter(|(former, _)| *former != gateway) {
            self.order(former, lineage);
        }
        outcome
    }

    /// A gateway is told to let a session go.
    fn order(&mut self, of: usize, lineage: Name) {
        self.tables.orders.insert(self.tables.next_number, (of, lineage));
        self.tables.next_number += 1;
        self.ring(of);
    }

    fn ring(&mut self, gateway: usize) {
        if let Some(session) = self.sessions.get_mut(&gateway) {
            session.orders = true;
            self.rung = true;
        }
    }

    /// Orders of this gateway; what has come back to it meanwhile is none any more.
    pub(crate) fn orders(&mut self, gateway: usize) -> Vec<GoneOrder> {
        let Tables { orders, owners, .. } = &mut self.tables;
        orders.retain(|_, (of, lineage)| *of != gateway || owners.get(lineage) != Some(&gateway));
        let own = orders.iter().filter(|(_, (of, _))| *of == gateway);
        own.map(|(number, (_, lineage))| GoneOrder { number: *number, lineage: *lineage }).collect()
    }

    pub(crate) fn obeyed(&mut self, now: Instant, gateway: usize, obeyed: &[GoneOrder]) {
        let is = |number: &i64| obeyed.iter().any(|order| order.number == *number);
        self.tables.orders.retain(|number, (of, _)| *of != gateway || !is(number));
        self.committed(now);
    }

    // ---- sessions that are counted, as `crates/cluster/src/counts.rs` does it --------------------------------------

    /// Those of these holders that count: also this gateway's, and those of gateways that were heard lately.
    fn there(&self, now: Instant, gateway: usize, holders: &BTreeSet<TicketHolder>) -> Vec<Counted> {
        let heard = |at: usize| self.tables.heard.get(&at).is_some_and(|heard| *heard + SILENT >= now);
        let counts = |p: &&Present| {
            !p.surplus && holders.contains(&p.session.holder) && (p.at == gateway || heard(p.at))
        };
        self.tables.sessions.values().filter(counts).map(|present| present.session).collect()
    }

    fn enter(&mut self, now: Instant, gateway: usize, session: &Counted) -> Outcome {
        if let Some(present) = self.tables.sessions.get_mut(&session.lineage) {
            (present.at, present.session.from) = (gateway, session.from);
            return Outcome::Done;
        }
        let others = self.there(now, gateway, &BTreeSet::from([session.holder]));
        if !session.has_room(&others) {
            return Outcome::Full;
        }
        let last = others.iter().map(|other| UnixTime(other.began.0 + 1)).max();
        let session = Counted { began: session.began.max(last.unwrap_or(UnixTime(0))), ..*session };
        let present = Present { at: gateway, surplus: false, session };
        self.tables.sessions.insert(session.lineage, present);
        Outcome::Done
    }

    pub(crate) fn count(&mut self, now: Instant, gateway: usize, sessions: &[Counted]) -> Vec<Name> {
        let own: BTreeSet<Name> = sessions.iter().map(|session| session.lineage).collect();
        self.tables.sessions.retain(|id, present| present.at != gateway || own.contains(id));
        for session in sessions {
            let new = Present { at: gateway, surplus: false, session: *session };
            let present = self.tables.sessions.entry(session.lineage).or_insert(new);
            let moved = self.tables.owners.get(&session.lineage).is_some_and(|owner| *owner != gateway);
            if present.at == gateway || !moved {
                (present.at, present.session.from) = (gateway, session.from);
            }
        }
        let holders = sessions.iter().map(|session| session.holder).collect();
        for over in excess(sessions, &self.there(now, gateway, &holders)) {
            if let Some(present) = self.tables.sessions.get_mut(&over) {
                present.surplus = true;
                let at = present.at;
                if at != gateway {
                    self.ring(at);
                }
            }
        }
        self.committed(now);
        self.too_many(gateway)
    }

    pub(crate) fn too_many(&self, gateway: usize) -> Vec<Name> {
        let sessions = self.tables.sessions.iter();
        sessions.filter(|(_, p)| p.at == gateway && p.surplus).map(|(lineage, _)| *lineage).collect()
    }

    /// As `crates/cluster/src/lineage.rs` compares sessions that began while a gateway was cut off.
    pub(crate) fn overtaken(&self, gateway: usize, began: &[Row], former: &[Name]) -> Vec<Name> {
        let elsewhere = |id: &Name| self.tables.owners.get(id).is_some_and(|owner| *owner != gateway);
        let later = |row: &Row, own: &Row| {
            row.holder == own.holder && row.ends > own.ends && elsewhere(&row.id) && !former.contains(&row.id)
        };
        let over = began.iter().filter(|own| {
            self.tables.lineages.rows().any(|row| later(row, own)) || self.tables.lineages.has_ended(own)
        });
        over.map(|row| row.id).collect()
    }

    // ---- the rest -------------------------------------------------------------------------------------------------

    pub(crate) fn write_leases(
        &mut self,
        now: Instant,
        unix: UnixTime,
        gateway: usize,
        changes: &[(Lessee, Change)],
    ) -> Vec<bool> {
        let granted = changes.iter().map(|(_, change)| self.write_lease(unix, gateway, change)).collect();
        self.committed(now);
        granted
    }

    fn write_lease(&mut self, unix: UnixTime, gateway: usize, change: &Change) -> bool {
        let tables = &mut self.tables;
        let notice = match change {
            Change::Lease { holder, addresses } => {
                let wanted: Vec<IpAddr> = all(addresses).collect();
                let others = tables.leases.iter().filter(|(other, _)| other != holder);
                if others.flat_map(|(_, a)| all(a)).any(|address| wanted.contains(&address)) {
                    return false;
                }
                let theirs = tables.leases.iter().filter(|(other, _)| other == holder);
                self.lost.extend(theirs.flat_map(|(_, a)| all(a)).filter(|a| !wanted.contains(a)));
                tables.leases.retain(|(other, _)| other != holder);
                tables.leases.push((holder.clone(), *addresses));
                Notice::Lease(holder.clone(), *addresses)
            }
            Change::Evict { holder } => {
                if let Some(whose) = ticket_holder(holder) {
                    let lives = |id: &Name| tables.owners.get(id).is_some_and(|owner| *owner != gateway);
                    let mut rows =
                        tables.lineages.rows().filter(|row| row.holder == whose && row.ends > unix);
                    if rows.any(|row| lives(&row.id)) {
                        return false;
                    }
                }
                let theirs = tables.leases.iter().filter(|(other, _)| other == holder);
                self.lost.extend(theirs.flat_map(|(_, addresses)| all(addresses)));
                tables.leases.retain(|(other, _)| other != holder);
                Notice::Evicted(holder.clone())
            }
        };
        self.tell(gateway, &notice);
        true
    }

    pub(crate) fn deny(&mut self, now: Instant, gateway: usize, denial: &Denied) {
        if self.tables.denials.iter().all(|other| other.whom != denial.whom) {
            self.tables.denials.push(denial.clone());
            self.tell(gateway, &Notice::Denials);
            self.committed(now);
        }
    }

    pub(crate) fn allow(&mut self, now: Instant, gateway: usize, whom: &str) {
        let before = self.tables.denials.len();
        self.tables.denials.retain(|denial| denial.whom != whom);
        if self.tables.denials.len() < before {
            self.tell(gateway, &Notice::Denials);
            self.committed(now);
        }
    }

    /// One key, which seals and opens as long as the story lasts: who asks first makes it.
    pub(crate) fn keys(&mut self, now: Instant, unix: UnixTime) -> Vec<SharedKey> {
        if self.tables.keys.is_empty() {
            let mut secret = [0; 32];
            self.rng.fill(&mut secret);
            let (id, opens_until) = (self.rng.next_u64(), unix + KEY_LASTS);
            // Clocks that are behind seal too.
            let seals_from = UnixTime(unix.0.saturating_sub(3_600));
            self.tables.keys.push(SharedKey { id, seals_from, opens_until, secret });
            self.committed(now);
        }
        self.tables.keys.clone()
    }
}

/// Whose lease an announcement is about.
fn lessee(notice: &Notice) -> Option<&Lessee> {
    match notice {
        Notice::Lease(holder, _) | Notice::Evicted(holder) => Some(holder),
        _ => None,
    }
}

/// The addresses of a lease.
pub(crate) fn all(addresses: &Addresses) -> impl Iterator<Item = IpAddr> + use<> {
    addresses.v4.map(IpAddr::V4).into_iter().chain(addresses.v6.map(IpAddr::V6))
}

fn ticket_holder(holder: &Lessee) -> Option<TicketHolder> {
    let identity = Identity::from_ike(holder.identity.0, &holder.identity.1).ok()?;
    Some(TicketHolder::of(&holder.connection, &identity))
}
