//! An established IKE SA, made of parts that own their fields, their deadlines and what a successor inherits. Owns the parts'
//! making, inheritance and end; the exchanges that run on it are in [`crate::exchange`]. It must never touch another SA: it asks
//! for that with an [`Action`].
//!
//! - [`core`]: keys, peers, the window of messages;
//! - [`syncing`]: what it is until its peer has agreed that another gateway has it now;
//! - [`stage`]: which part of its life it is in, with what belongs to that part alone;
//! - [`tasks`]: exchanges that wait for their turn;
//! - [`crate::child`]: its CHILD SAs;
//! - [`mobility`]: paths, NATs and the addresses of either end;
//! - [`upkeep`]: authentication, tickets and the question whether the peer is there;
//! - [`dormancy`]: the sleep of either end;
//! - [`rekeying`]: its lifetime and its successors;
//! - [`crate::exchange::followup`]: key exchanges of the peer's that are not complete.
//!
//! Messages go through [`messages`], timers through [`timers`].

pub(crate) mod core;
pub(crate) mod dormancy;
pub(crate) mod install;
mod messages;
pub(crate) mod mobility;
pub(crate) mod rekeying;
pub(crate) mod resumed;
pub(crate) mod stage;
pub(crate) mod syncing;
pub(crate) mod tasks;
mod timers;
pub(crate) mod upkeep;

use dormouse_crypto::cert::Identity;
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::dormancy::Refused;

use crate::action::Action;
use crate::callers::{Caller, hosts};
use crate::child::{Children, Dynamic, dynamic};
use crate::config::ChildMode;
use crate::config_payload::AssignedConfig;
use crate::event::{CloseReason, Event};
use crate::exchange::Exchange;
use crate::exchange::delete::DeleteIke;
use crate::exchange::followup::FollowUps;
use crate::exchange::liveness::Liveness;
use crate::exchange::ticket::TicketRequest;
use crate::link::{Channel, Link};
use crate::session::Session;
use crate::shared::Shared;
use crate::ticket::lineage::{Descent, Operation};
use crate::transport::Ends;
use dormouse_keying::{ChildId, ChildSa, Owner, SaId};

use self::core::Core;
use dormancy::Dormancy;
use mobility::Mobility;
use rekeying::Rekeying;
use stage::{CLOSE_FOR, LINGER, Stage, Standing};
use tasks::Tasks;
use upkeep::Upkeep;

pub(crate) use messages::{Answer, Fate};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct IkeSa {
    pub(crate) core: Core,
    stage: Stage,
    pub(crate) tasks: Tasks,
    pub(crate) children: Children,
    pub(crate) mobility: Mobility,
    pub(crate) upkeep: Upkeep,
    pub(crate) dormancy: Dormancy,
    pub(crate) rekeying: Rekeying,
    pub(crate) followups: FollowUps,
    /// Both ends know zones and their keys.
    pub(crate) mlike: bool,
    /// At a gateway: how many others have had this session before; `None`: none can take it over, as its peer does not let message ids be set
    /// anew (RFC 6311).
    pub(crate) owners: Option<u16>,
}

/// What a new established SA is made from.
pub(crate) struct Birth {
    pub(crate) session: Session,
    pub(crate) link: Link,
    pub(crate) channel: Channel,
    pub(crate) peer: Identity,
    pub(crate) client: bool,
    pub(crate) assigned: AssignedConfig,
    pub(crate) mobility: Mobility,
    /// The version of the dormancy extension that both ends speak, or 0.
    pub(crate) dormancy: u8,
    /// Both ends have sent the vendor id of multi-layered IPsec.
    pub(crate) mlike: bool,
    /// See [`IkeSa::owners`].
    pub(crate) owners: Option<u16>,
    /// At a gateway: where it stands in its lineage.
    pub(crate) descent: Option<Descent>,
    /// The next ids of our requests and of the peer's.
    pub(crate) next_ids: (u32, u32),
}

impl IkeSa {
    pub(crate) fn new(shared: &mut Shared, now: Instant, birth: Birth) -> Self {
        let Birth {
            session,
            link,
            channel,
            peer,
            client,
            assigned,
            mobility,
            dormancy,
            mlike,
            owners,
            descent,
            next_ids,
        } = birth;
        let rekeying = Rekeying::new(&mut shared.entropy, now, &link.conn.timing.lifetime, client);
        let window = shared.config.window;
        let core = Core::new(now, link, channel, session, peer, client, assigned, descent, next_ids, window);
        let mut sa = Self {
            stage: Stage::Live(Standing::Heard),
            tasks: Tasks::default(),
            children: Children::default(),
            mobility,
            upkeep: Upkeep::default(),
            dormancy: Dormancy::new(dormancy),
            rekeying,
            followups: FollowUps::default(),
            mlike,
            owners,
            core,
        };
        if sa.dormancy.is_open() {
            sa.mobility.between_our_own(&sa.core.link.conn);
        }
        sa.schedule_authentication(shared, now);
        sa
    }

    /// Whether exchanges run on it.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live(_))
    }

    /// Whether commands are obeyed: it lives, or will when its client has confirmed it.
    pub(crate) fn takes_commands(&self) -> bool {
        self.is_live() || self.is_tentative()
    }

    /// Whether the peer's rekeying made it, and which successor inherits is not decided yet.
    pub(crate) fn is_heir(&self) -> bool {
        matches!(self.stage, Stage::Heir)
    }

    /// Which successor inherits is to be decided.
    pub(crate) fn wait_as_heir(&mut self) {
        self.stage = Stage::Heir;
    }

    /// Why it is over, if it is: the endpoint takes it down.
    pub(crate) fn is_over(&self) -> Option<CloseReason> {
        match self.stage {
            Stage::Over { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Why it goes: as was decided, or for this reason.
    pub(crate) fn reason_or(&self, other: CloseReason) -> CloseReason {
        self.stage.reason_or(other)
    }

    /// Who opened it, if the other end did.
    pub(crate) fn caller(&self) -> Option<Caller> {
        let core = &self.core;
        (!core.client).then(|| Caller::of(&core.link.conn.name, &core.peer))
    }

    /// See [`Upkeep::schedule_authentication`].
    pub(crate) fn schedule_authentication(&mut self, shared: &Shared, now: Instant) {
        self.upkeep.schedule_authentication(&self.core, shared.unix(now), now);
    }

    /// What Dynamic selectors stand for on this SA.
    pub(crate) fn dynamic(&self) -> Dynamic {
        dynamic(&self.core.assigned, self.core.client, &self.core.link.path)
    }

    /// Where transport mode begins and ends on this SA.
    pub(crate) fn ends(&self) -> Ends {
        Ends::of(&self.core.link.path, self.mobility.nat())
    }

    /// How ESP of this SA travels.
    pub(crate) fn esp_path(&self) -> Path {
        self.mobility.esp_path(&self.core.link)
    }

    /// Ends the SA on request: its traffic stops at once, and the peer gets a Delete.
    /// "an IKE endpoint SHOULD send a Delete payload indicating that it has closed the IKE SA" (RFC 7296 section 2.4)
    pub(crate) fn close(&mut self, shared: &mut Shared, now: Instant, reason: CloseReason) {
        let until = now + CLOSE_FOR;
        self.stage = match self.stage {
            Stage::Closing { .. } | Stage::Leaving(_) | Stage::Over { .. } => return,
            // Nothing may be sent before the client is there: it is over at once.
            Stage::Tentative(_) => return self.over(reason),
            // Nothing can be said before message ids are agreed on.
            Stage::Syncing(_) => return self.over(reason),
            Stage::Superseded { .. } | Stage::Heir => Stage::Superseded { until: Some(until) },
            Stage::Live(_) => {
                self.end_lineage(shared, None);
                Stage::Closing { reason, until }
            }
        };
        self.remove_children(shared);
        // A rival must not take over either; the peer may use it already.
        shared.actions.extend(self.rekeying.take_heir().map(Action::Delete));
        self.tasks.abandon(shared);
        self.tasks.add_first(DeleteIke(None), now);
        self.pump(shared, now);
    }

    /// Ends a session that was resumed with a ticket that does not count, and says so; or one whose peer is not admitted (`None`). Nothing
    /// else ends: an attacker can hold an honest confirmation back until the device has resumed elsewhere.
    pub(crate) fn refuse(&mut self, shared: &mut Shared, now: Instant, told: Option<Refused>) {
        let reason = told.map_or(CloseReason::NotAdmitted, |_| CloseReason::Unconfirmed);
        self.stage = Stage::Closing { reason, until: now + CLOSE_FOR };
        self.remove_children(shared);
        self.tasks.add_first(DeleteIke(told), now);
        self.pump(shared, now);
    }

    /// Gateway: no ticket of this session counts any more. True if the store was asked to record it, and `sa` will hear of the outcome.
    pub(crate) fn end_lineage(&self, shared: &mut Shared, sa: Option<SaId>) -> bool {
        let Some(descent) = self.core.descent.as_ref().filter(|descent| descent.recorded) else {
            return false;
        };
        let (lineage, holder) = (descent.lineage, self.core.holder());
        shared.event(Event::Store(Operation::End { sa, lineage, holder }));
        true
    }

    /// The peer has deleted the SA, and that is on record, or the store has not answered in time: the peer gets its answer, and the SA is over.
    pub(crate) fn end_recorded(&mut self, shared: &mut Shared) {
        let Stage::Leaving(leaving) = &mut self.stage else { return };
        let (path, answer, reason) = (leaving.path, std::mem::take(&mut leaving.answer), leaving.reason);
        self.core.link.send_by(shared, path, Class::Timely, &answer);
        self.over(reason);
    }

    /// Closes an SA whose establishment failed: it has been reported as failed, and its end is reported to the peer alone.
    pub(crate) fn dismiss(&mut self, shared: &mut Shared, now: Instant) {
        self.give_up_name();
        self.close(shared, now, CloseReason::Requested);
    }

    /// The driver hears no more of it; its deletion is under way, or will be.
    pub(crate) fn give_up_name(&mut self) {
        self.stage = Stage::Superseded { until: None };
    }

    /// Waits for the peer's Delete, now that a successor has taken over.
    pub(crate) fn supersede(&mut self, now: Instant) {
        self.stage = Stage::Superseded { until: Some(now + LINGER) };
    }

    /// A message or a timer has ended the SA: the endpoint takes it down.
    pub(crate) fn over(&mut self, reason: CloseReason) {
        let named = self.stage.bears_name();
        self.stage = Stage::Over { reason, named };
    }

    /// The successor that should have taken over is gone: the name ends with the SA that still bears it.
    pub(crate) fn regain_name(&mut self) {
        match &mut self.stage {
            Stage::Over { named, .. } => *named = true,
            stage => *stage = Stage::Live(Standing::Heard),
        }
    }

    pub(crate) fn remove_child(&mut self, shared: &mut Shared, id: ChildId) {
        if let Some(child) = self.children.remove(id) {
            if let Some(caller) =
                self.caller().filter(|_| self.core.claims && child.mode == ChildMode::Tunnel)
            {
                shared.callers.disclaim(&caller, hosts(&child.ts_remote));
            }
            shared.header.distribution.remove(id);
            if child.installed {
                let owner = Owner::Ike(self.core.id());
                shared.event(Event::Child(ChildSa::Remove { owner, child: id }));
            } else {
                shared.free_esp_spi(child.spi_in);
            }
        }
    }

    pub(crate) fn remove_children(&mut self, shared: &mut Shared) {
        for id in self.children.ids() {
            self.remove_child(shared, id);
        }
    }

    /// The SA is over: tells the driver and gives back what it held. A superseded SA goes silently.
    pub(crate) fn end(mut self: Box<Self>, shared: &mut Shared, reason: CloseReason) {
        self.remove_children(shared);
        let named = self.stage.bears_name();
        // Requests for keys go on with a successor.
        let over = |exchange: &&Exchange| named || !matches!(exchange, Exchange::Keys(_));
        let flights = self.core.requests.flights().map(|flight| &flight.exchange);
        flights.filter(over).for_each(|exchange| exchange.abandon(shared));
        self.tasks.abandon(shared);
        shared.by_spi.remove(&self.core.link.local_spi());
        shared.sleepers.remove(self.core.link.id);
        // Our own rekeying dies with the SA; the peer's survives (RFC 7296 section 2.25.2).
        shared.actions.extend(self.rekeying.take_heir().map(Action::Delete));
        self.followups.clear(shared);
        if !self.stage.bears_name() {
            return;
        }
        if let Some(caller) = self.caller().filter(|_| self.core.claims) {
            shared.callers.disclaim(&caller, self.core.assigned.addresses());
            shared.give_back(&self.core.assigned);
        }
        if let Some(lineage) = self.upkeep.lineage() {
            shared.former.lineages.insert(self.core.link.conn.name.clone(), lineage);
        }
        match reason {
            CloseReason::Unconfirmed => tracing::debug!(sa = %self.core.link.id, %reason, "IKE SA closed"),
            _ => tracing::info!(sa = %self.core.link.id, %reason, "IKE SA closed"),
        }
        shared.event(Event::Closed { sa: self.core.link.id, reason });
    }

    /// Takes over what belongs to the session from the SA that this one replaces. Each part says what that is; its fields are named
    /// one by one, so that a new one is not forgotten.
    pub(crate) fn inherit(&mut self, old: &mut Self, now: Instant) {
        let Self {
            core,
            stage: _,
            tasks,
            children,
            mobility,
            upkeep,
            dormancy,
            rekeying: _,
            followups: _,
            mlike: _,
            owners: _,
        } = old;
        let standing = if self.core.link.initiator { Standing::Heard } else { Standing::Unheard };
        self.stage = Stage::Live(standing);
        self.core.inherit(core);
        self.children.inherit(children);
        self.mobility.inherit(mobility);
        self.upkeep.inherit(upkeep);
        self.dormancy.inherit(dormancy);
        self.tasks.inherit(tasks, core.requests.flights().map(|flight| &flight.exchange), now);
        if self.upkeep.is_probing() {
            self.tasks.add_first(Liveness::urgent(), now);
        }
        if self.renews_tickets() {
            // "When the IKE SA is rekeyed, the ticket is invalidated, and the client SHOULD request a new ticket." (RFC 5723
            // section 6.2)
            self.tasks.add(TicketRequest, now);
        }
    }

    /// Puts an exchange into the queue, unless one with the same aim waits already.
    pub(crate) fn enqueue(&mut self, exchange: impl Into<Exchange>, now: Instant) {
        self.tasks.add(exchange, now);
    }
}
