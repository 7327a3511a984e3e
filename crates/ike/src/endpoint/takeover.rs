//! IKE SAs that outlive their gateway, as one gateway sees it: the store hears of its own, and it takes over those of others. Owns the order of the
//! checks before an SA is used; must never send before the store has given the SA to this gateway.

pub(super) mod content;
pub(super) mod keeping;
pub(super) mod orphans;

use std::collections::BTreeSet;
use std::sync::Arc;

use core::net::IpAddr;

use dormouse_keying::{ChildId, SaId};
use dormouse_sansio::{Instant, Path};

use self::content::{Content, Ends, LeftChild};
use self::keeping::{Keeping, Print};
use self::orphans::{Found, Orphans, Spi};
use super::Endpoint;
use crate::callers::hosts;
use crate::child::{Busy, Child, dynamic, policy};
use crate::config::Connection;
use crate::config_payload::AssignedConfig;
use crate::event::Event;
use crate::handshake::Slot;
use crate::handshake::authenticating::announce;
use crate::keys::IkeKeys;
use crate::limits::LEFT_FOR;
use crate::link::{Channel, Link};
use crate::proposal;
use crate::sa::mobility::Mobility;
use crate::sa::syncing::{REPLACED_WITHIN, next_request};
use crate::sa::{Birth, IkeSa};
use crate::selectors;
use crate::stats::Stats;
use crate::takeover::{Left, Record, Takeover};
use crate::ticket::lineage::{Descent, Name};

/// What this endpoint leaves, and what others have left.
#[derive(Debug, Default)]
pub(super) struct Takeovers {
    keeping: Keeping,
    orphans: Orphans,
}

impl Endpoint {
    /// Gateway: all that the gateway of this name has left behind, which is silent now; nothing, once it is heard again. A message for one of
    /// them that comes to its address makes this endpoint ask for it ([`Takeover::Claim`]).
    pub fn set_left(&mut self, gateway: &str, left: Vec<Left>) {
        if self.shared.config.takeover {
            self.takeovers.orphans.set(gateway, left);
        }
    }

    /// Gateway: the store does not give this one to us ([`Takeover::Claim`]): another gateway has it, or it is over.
    pub fn not_given(&mut self, lineage: Name) {
        self.takeovers.orphans.remove(lineage);
    }

    /// Gateway: the store has forgotten all that was left, and hears of it again.
    pub fn leave_again(&mut self, now: Instant) {
        self.touched.extend(self.takeovers.keeping.forget());
        self.apply_effects(now);
    }

    /// Gateway: the store has given this SA to us, before whom `owners` others have had it. It sets message ids anew with its peer (RFC 6311), and its CHILD SAs are replaced. As
    /// no other gateway goes on with it, one that cannot be used any more is over.
    ///
    /// # Errors
    /// Why it cannot, in words.
    pub fn take_over(
        &mut self,
        now: Instant,
        lineage: Name,
        owners: u16,
        content: &[u8],
    ) -> Result<SaId, String> {
        let taken = self.take(now, lineage, owners, content);
        match &taken {
            Ok(sa) => {
                self.takeovers.orphans.taken(lineage);
                self.touched.insert(*sa);
            }
            Err(_) => {
                self.takeovers.orphans.remove(lineage);
                self.shared.event(Event::Takeover(Takeover::Forget(lineage)));
            }
        }
        self.apply_effects(now);
        taken
    }

    fn take(&mut self, now: Instant, lineage: Name, owners: u16, content: &[u8]) -> Result<SaId, String> {
        let content = Content::decode(content).map_err(|e| e.to_string())?;
        let since = owners.checked_sub(content.owners).filter(|since| *since > 0);
        let Some(since) = since.filter(|_| content.lineage == lineage) else {
            return Err("it is another SA's".to_owned());
        };
        let conn = self.may_have(now, &content)?;
        let keys = content.keys.wake(content.ends.initiator, owners, &mut self.shared.entropy);
        match keys.map_err(|e| e.to_string()).and_then(|k| self.claim_spis(&content.children).map(|()| k)) {
            Ok(keys) => Ok(self.revive(now, conn, keys, content, (owners, since))),
            Err(why) => {
                self.shared.give_back(&content.assigned);
                Err(why)
            }
        }
    }

    /// The SA is here, and message ids are set anew with its peer. `owners`: how many others have had it, and how many of these since `content` was written, with us.
    fn revive(
        &mut self,
        now: Instant,
        conn: Arc<Connection>,
        keys: IkeKeys,
        content: Content,
        (owners, since): (u16, u16),
    ) -> SaId {
        let Content { lineage, expires, ends, session, peer, assigned, mobike, nat, told, .. } = content;
        let Ends { initiator, spis, path, fragmentation, redirects } = ends;
        let (id, mobility) = (self.shared.new_sa(), Mobility::new(&conn, mobike, nat, None, told));
        let stats = Stats::default();
        let link = Link { id, conn, initiator, spis, path, fragmentation, redirects, stats };
        self.shared.by_spi.insert(link.local_spi(), id);
        let ids = (next_request(content.next_ids.0, since), content.next_ids.1);
        let birth = Birth {
            channel: Channel::new(keys, initiator),
            session,
            peer,
            client: false,
            assigned,
            mobility,
            dormancy: 0,
            mlike: false,
            owners: Some(owners),
            descent: Some(Descent::goes_on(&mut self.shared.entropy, lineage)),
            next_ids: ids,
            link,
        };
        let mut sa = Box::new(IkeSa::new(&mut self.shared, now, birth));
        sa.core.requests.set_window(content.window);
        sa.rekeying.end_by(now, now + expires.saturating_since(self.shared.unix(now)));
        content.children.iter().for_each(|left| hold(now, &mut sa, left));
        sa.claim_hosts(&mut self.shared);
        sa.begin_sync(&mut self.shared, now, ids);
        sa.record_session(&mut self.shared, now);
        announce(&mut self.shared, &sa, false, None);
        // The store has what was left, until the peer has agreed.
        self.takeovers.keeping.tell(lineage, Print::of(&sa));
        self.slots.insert(id, Slot::Established(sa));
        id
    }

    /// Whether its peer may be here, with what it had, by what is known and configured now. As for one who comes back by ticket.
    fn may_have(&mut self, now: Instant, content: &Content) -> Result<Arc<Connection>, String> {
        let Content { connection, session, peer, assigned, lineage, keys, ends, children, .. } = content;
        let shared = &mut self.shared;
        let full = shared.config.max_sas.is_some_and(|most| self.slots.len() >= most);
        if full || shared.config.serves_nobody || !shared.config.takeover {
            return Err("no SA is taken over now".to_owned());
        }
        let spi = if ends.initiator { ends.spis.i } else { ends.spis.r };
        if spi == 0 || shared.by_spi.contains_key(&spi) {
            return Err("its SPI is in use here".to_owned());
        }
        let known = shared.config.named(connection).map_err(|e| e.to_string())?.clone();
        if !proposal::permits(&known.ike_proposals, keys.suite()) {
            return Err("the configuration does not allow its algorithms any more".to_owned());
        }
        let credential = session.credential.as_ref().ok_or_else(|| "it rests on nothing".to_owned())?;
        let admission = &shared.config.admission;
        let conn = admission.admits(&known, peer, credential, shared.unix(now)).map_err(|e| e.to_string())?;
        shared.callers.room(&conn, peer, None, Some(*lineage)).map_err(|e| e.to_string())?;
        let reached = children.iter().flat_map(|left| hosts(&left.child.ts_remote));
        let all: Vec<IpAddr> = assigned.addresses().into_iter().chain(reached).collect();
        if let Some(host) = shared.callers.held_by_another(&conn, peer, Some(*lineage), all) {
            return Err(format!("{host} is another's by now"));
        }
        if !children.iter().all(|left| as_then(&conn, assigned, &ends.path, left).is_some()) {
            return Err("the configuration makes other CHILD SAs of it now".to_owned());
        }
        if !shared.lease_again(&conn, peer, assigned) {
            return Err("its addresses are another's by now".to_owned());
        }
        shared.rests_on(now, &conn, credential.chain());
        Ok(conn)
    }

    /// The SPIs of its CHILD SAs are ours from now on, until these are replaced. Gateways draw their SPIs by themselves, and may have drawn the
    /// same: then the SA is not taken over.
    /// "Cluster members must not generate multiple inbound SAs with the same SPI." (RFC 6311 section 3.3)
    fn claim_spis(&mut self, children: &[LeftChild]) -> Result<(), String> {
        for (at, left) in children.iter().enumerate() {
            let id = ChildId::new(left.spi_in);
            if left.spi_in < 256 || !self.shared.config.spis.claim(id) {
                children.iter().take(at).for_each(|left| self.shared.free_esp_spi(left.spi_in));
                return Err("the SPI of one of its CHILD SAs is in use here".to_owned());
            }
        }
        Ok(())
    }

    /// A message has come to `local` for an SA that is not here. True if another gateway has left that one: nothing is said about it, and the store
    /// is asked for it.
    pub(super) fn is_left(&mut self, now: Instant, spi: Spi, local: IpAddr) -> bool {
        if self.shared.config.serves_nobody {
            return false;
        }
        let found = self.takeovers.orphans.find(now, spi, local);
        if let Found::Ask(lineage) = found {
            self.shared.event(Event::Takeover(Takeover::Claim(lineage)));
        }
        found != Found::Nothing
    }

    /// The store hears of SAs that have come, changed or gone, so that another gateway can go on with them.
    pub(super) fn tell_left(&mut self, now: Instant, touched: &BTreeSet<SaId>) {
        if !self.shared.config.takeover {
            return;
        }
        let mut lineages = BTreeSet::new();
        for id in touched {
            let lineage = match self.slots.get(id) {
                Some(Slot::Established(ike)) if ike.owners.is_some() => {
                    ike.core.descent.as_ref().map(|descent| descent.lineage)
                }
                _ => None,
            };
            lineages.extend(self.takeovers.keeping.note(*id, lineage));
        }
        for lineage in lineages {
            self.tell_left_of(now, lineage);
        }
    }

    fn tell_left_of(&mut self, now: Instant, lineage: Name) {
        let sas = self.shared.callers.of_lineage(lineage);
        let all: Vec<&IkeSa> = sas.filter_map(|id| established(self.slots.get(&id)?)).collect();
        if all.iter().any(|ike| ike.is_syncing()) {
            return;
        }
        let live = all.into_iter().find(|ike| ike.is_live());
        let left = live.and_then(|ike| Some((Print::of(ike)?, ike)));
        let keeping = &mut self.takeovers.keeping;
        if !keeping.changes(lineage, left.as_ref().map(|(print, _)| print)) {
            return;
        }
        let record = left.and_then(|(print, ike)| {
            let left_for = ike.rekeying.expire_at().filter(|at| *at > now).map_or(LEFT_FOR, |at| at - now);
            let ends = self.shared.unix(now) + left_for.min(LEFT_FOR);
            let content = content::of(ike, print.owners(), ends)?;
            let link = &ike.core.link;
            let esp = ike.children.iter().map(|child| child.spi_in).collect();
            let left = Left { lineage, spi: link.local_spi(), esp, local: link.path.local.ip() };
            Some((Record { left, owners: print.owners(), ends, content }, print))
        });
        match record {
            Some((record, print)) => {
                keeping.tell(lineage, Some(print));
                self.shared.event(Event::Takeover(Takeover::Keep(Box::new(record))));
            }
            None if keeping.knows(lineage) => {
                keeping.tell(lineage, None);
                self.shared.event(Event::Takeover(Takeover::Forget(lineage)));
            }
            None => {}
        }
    }
}

/// A CHILD SA of the former owner, which is to be replaced.
fn hold(now: Instant, sa: &mut IkeSa, left: &LeftChild) {
    let core = &sa.core;
    let Some(config) = as_then(&core.link.conn, &core.assigned, &core.link.path, left) else { return };
    let child = Child {
        id: ChildId::new(left.spi_in),
        config,
        spi_in: left.spi_in,
        spi_out: left.spi_out,
        ts_local: left.child.ts_local.clone(),
        ts_remote: left.child.ts_remote.clone(),
        suite: left.child.suite,
        mode: left.child.mode,
        zones: None,
        busy: Busy::No,
        installed: false,
        rekey_at: None,
        expire_at: Some(now + REPLACED_WITHIN),
    };
    sa.children.insert(child, None);
}

fn established(slot: &Slot) -> Option<&IkeSa> {
    match slot {
        Slot::Established(ike) => Some(ike),
        _ => None,
    }
}

/// Which CHILD SA of the connection this is, if the configuration makes the same of it now.
fn as_then(conn: &Connection, assigned: &AssignedConfig, path: &Path, left: &LeftChild) -> Option<usize> {
    let child = &left.child;
    let config = conn.children.iter().position(|c| c.name == child.name && c.mode == child.mode)?;
    let now = conn.children.get(config)?;
    let (ours, theirs) = policy(conn, config, &dynamic(assigned, false, path))?;
    let same = |was: &[_], now: &[_]| selectors::narrow(&selectors::to_wire(was), now) == was;
    let permitted = proposal::permits_esp(&now.proposals, now.esn, &child.suite) && now.zones.is_none();
    (permitted && same(&child.ts_local, &ours) && same(&child.ts_remote, &theirs)).then_some(config)
}
