//! Which callers are there: the established SAs that others have opened, by connection and proved identity, and the inner hosts that
//! each reaches by them. Owns these two indexes; must never end an SA.

use std::collections::{BTreeMap, BTreeSet};

use core::net::IpAddr;

use dormouse_crypto::cert::Identity;
use dormouse_keying::SaId;
use dormouse_wire::ike::TsRange;

use crate::admission::Refusal;
use crate::config::{Connection, Unique};

/// An identity as one connection knows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Caller {
    pub(crate) connection: String,
    pub(crate) peer: Identity,
}

/// What is known of one SA of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Present {
    pub(crate) caller: Caller,
    /// Exchanges run on it; the others are what rekeying and closing leave.
    pub(crate) live: bool,
    /// Where it comes from.
    pub(crate) from: IpAddr,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    sas: BTreeMap<Caller, BTreeSet<SaId>>,
    present: BTreeMap<SaId, Present>,
    /// Inner hosts by who is reached there, and how many CHILD SAs lead to it.
    hosts: BTreeMap<IpAddr, (Caller, usize)>,
}

impl Callers {
    /// What is to be known of an SA from now on; `None`: it is gone, or none of a caller's.
    pub(crate) fn note(&mut self, id: SaId, now: Option<Present>) {
        if self.present.get(&id) == now.as_ref() {
            return;
        }
        if let Some(old) = self.present.remove(&id) {
            let left = self.sas.get_mut(&old.caller).is_some_and(|ids| {
                ids.remove(&id);
                !ids.is_empty()
            });
            if !left {
                self.sas.remove(&old.caller);
            }
        }
        if let Some(present) = now {
            self.sas.entry(present.caller.clone()).or_default().insert(id);
            self.present.insert(id, present);
        }
    }

    /// SAs of a caller: those that are live, or those that rekeying and closing have left.
    pub(crate) fn of(&self, caller: &Caller, live: bool) -> impl Iterator<Item = (SaId, &Present)> {
        let all = self.sas.get(caller).into_iter().flatten();
        all.filter_map(move |id| Some((*id, self.present.get(id)?))).filter(move |(_, p)| p.live == live)
    }

    /// Whether there is room for another session of an identity, which comes from `from` and takes the place of `replaces`. `conn` is
    /// the connection as the identity has it; `full`: it has just authenticated fully.
    ///
    /// # Errors
    /// [`Refusal::Sessions`].
    pub(crate) fn room(
        &self,
        conn: &Connection,
        peer: &Identity,
        from: IpAddr,
        replaces: Option<SaId>,
        full: bool,
    ) -> Result<(), Refusal> {
        let caller = Caller { connection: conn.name.clone(), peer: peer.clone() };
        let others = || self.of(&caller, true).filter(|(id, _)| Some(*id) != replaces);
        let sessions = match conn.policy.unique {
            Unique::Replace => return Ok(()),
            // From the same address it is the same device, which authenticates anew or has lost its state.
            Unique::Keep if full => others().filter(|(_, p)| p.from != from).count(),
            Unique::Keep => others().count(),
            Unique::Never => others().count().saturating_sub(conn.policy.sessions.saturating_sub(1)),
        };
        if sessions == 0 {
            return Ok(());
        }
        Err(Refusal::Sessions { identity: peer.clone(), sessions: others().count() })
    }

    /// The first of the inner hosts that another caller is reached at already.
    pub(crate) fn held_by_another(&self, caller: &Caller, ranges: &[TsRange]) -> Option<IpAddr> {
        let held = |host: &IpAddr| self.hosts.get(host).is_some_and(|(holder, _)| holder != caller);
        hosts(ranges).find(held)
    }

    /// A CHILD SA leads to these hosts.
    pub(crate) fn claim(&mut self, caller: &Caller, ranges: &[TsRange]) {
        for host in hosts(ranges) {
            let (holder, claims) = self.hosts.entry(host).or_insert_with(|| (caller.clone(), 0));
            if holder == caller {
                *claims += 1;
            }
        }
    }

    /// It no longer does.
    pub(crate) fn disclaim(&mut self, caller: &Caller, ranges: &[TsRange]) {
        for host in hosts(ranges) {
            let left = self.hosts.get_mut(&host).filter(|(holder, _)| holder == caller).map(|(_, claims)| {
                *claims = claims.saturating_sub(1);
                *claims
            });
            if left == Some(0) {
                self.hosts.remove(&host);
            }
        }
    }
}

/// Ranges of one address. Wider ones are sites, and give way to the hosts in them.
fn hosts(ranges: &[TsRange]) -> impl Iterator<Item = IpAddr> {
    let hosts: BTreeSet<IpAddr> = ranges.iter().filter(|r| r.start == r.end).map(|r| r.start).collect();
    hosts.into_iter()
}
