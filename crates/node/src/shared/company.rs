//! What a gateway does about the news of the others with which it shares a store. Owns its part of the pool and the denials that the store has;
//! must never wait for the store.

use super::{Denied, News, Other, SharedUser};
use crate::handover::{Handover, Taken};
use crate::host::Host;
use crate::pool::{Addresses, Share};
use dormouse_ike::admission::Denial;
use dormouse_ike::ticket::TicketKeys;
use dormouse_ike::ticket::lineage::{Name, Row};
use dormouse_sansio::Instant;

/// See the module's documentation.
#[derive(Debug)]
pub struct Company {
    /// Its part of the pool.
    pub share: Share,
    /// All denials that the store has.
    pub denials: Vec<Denied>,
}

/// What has happened at this gateway because of the news, for who does more about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// This one is refused now.
    Denied(Denial),
    /// This one is not any more.
    Allowed(Denial),
    /// A denial of ours is on record for all.
    OnRecord(String),
    /// The device of this lineage is the other gateway's to which it was to go; or it is still here.
    HandedOver(Name, bool),
    /// The store has forgotten our sessions, which are these: [`Errand::Again`](super::Errand::Again).
    Forgotten(Vec<(Row, bool)>),
    /// Gateways that devices can go to.
    Others(Vec<Other>),
    /// All users with passwords whom gateways share.
    Users(Vec<SharedUser>),
}

impl Company {
    /// Whether the store can be asked: if not, this gateway accepts no ticket and takes no address from anybody.
    pub fn reached(&mut self, host: &mut Host, reachable: bool) {
        host.node_mut().set_store(reachable);
        self.share.alone = !reachable;
        if let Some(pool) = host.pool() {
            pool.set_share(self.share);
        }
    }

    /// Acts on what the other gateways have done. `unsent`: denials of our own, of which some may not be on record yet.
    pub fn hear(&mut self, host: &mut Host, now: Instant, news: News, unsent: &[Denied]) -> Vec<Heard> {
        match news {
            News::Gone(lineages) => {
                let gone = lineages.iter().filter(|l| host.node_mut().gone_elsewhere(now, **l)).count();
                if gone > 0 {
                    tracing::info!(sessions = gone, "clients are at other gateways now");
                }
            }
            News::TooMany(lineages) => {
                let sessions: usize = lineages.iter().map(|l| host.node_mut().too_many(now, *l)).sum();
                if sessions > 0 {
                    tracing::warn!(
                        sessions,
                        "ended: their identities have more at all gateways than they may have (sessions, unique)"
                    );
                }
            }
            News::Denials(all) => return self.take_denials(host, now, all, unsent),
            News::OnRecord(denied) => {
                // Another gateway may take it back before all denials are read again. We have not.
                let in_list = |list: &[Denied]| list.iter().any(|other| other.whom == denied.whom);
                if in_list(unsent) && !in_list(&self.denials) {
                    self.denials.push(denied.clone());
                }
                return vec![Heard::OnRecord(denied.whom)];
            }
            News::Keys(keys) => host.node_mut().set_ticket_keys(TicketKeys::shared(keys)),
            News::TooLongAlone(alone) => end_alone(host, now, alone),
            News::Arrived(all) => all.into_iter().for_each(|handover| take_over(host, now, handover)),
            News::Left(gateway, left) => host.node_mut().set_left(&gateway, left),
            News::Given(lineage, given) => host.node_mut().given(now, lineage, given),
            News::Forgotten => {
                host.node_mut().leave_again(now);
                return vec![Heard::Forgotten(host.node_mut().sessions_on_record(now))];
            }
            News::HandedOver(lineage, done) => {
                // Packets that came for it since the parcel was made are sent after it. A device that has woken here since is redirected, and served until it has gone.
                if done && !host.node().is_awake(lineage) {
                    host.node_mut().gone_elsewhere(now, lineage);
                }
                return vec![Heard::HandedOver(lineage, done)];
            }
            News::Others(others) => return vec![Heard::Others(others)],
            News::Users(users) => return vec![Heard::Users(users)],
            News::Leases(_) | News::Lease(..) | News::Evicted(_) | News::Refused(_) | News::Unwritten(_) => {
                lease_news(host, now, news);
            }
        }
        Vec::new()
    }

    /// Who is refused now was not before, or the other way round. One of our own that is not on record yet stays.
    fn take_denials(
        &mut self,
        host: &mut Host,
        now: Instant,
        all: Vec<Denied>,
        unsent: &[Denied],
    ) -> Vec<Heard> {
        let mut heard = Vec::new();
        let before = std::mem::replace(&mut self.denials, all.clone());
        let in_list = |list: &[Denied], whom: &str| list.iter().any(|d| d.whom == whom);
        for denial in all.iter().filter(|d| !in_list(&before, &d.whom)) {
            match denial.whom.parse::<Denial>() {
                Ok(meant) => {
                    heard.push(Heard::Denied(meant.clone()));
                    let sessions = host.deny(now, meant).sessions;
                    tracing::warn!(whom = %denial.whom, sessions, "denied at another gateway");
                }
                Err(e) => {
                    tracing::error!(whom = %denial.whom, %e, "a denial of another gateway is not understood, and not in force here")
                }
            }
        }
        for denial in before.iter().filter(|d| !in_list(&all, &d.whom) && !in_list(unsent, &d.whom)) {
            if let Ok(meant) = denial.whom.parse::<Denial>() {
                if host.node_mut().allow(&meant) {
                    tracing::warn!(whom = %denial.whom, "no longer denied, at another gateway's word");
                }
                heard.push(Heard::Allowed(meant));
            }
        }
        heard
    }
}

fn take_over(host: &mut Host, now: Instant, handover: Handover) {
    let (packets, peer) =
        (handover.waiting.len(), handover.sleeper.as_ref().map(|sleeper| sleeper.peer.clone()));
    match host.node_mut().take_over(now, handover) {
        Taken::Unknown => {
            tracing::debug!(packets, "packets of another gateway wait for a device that is not here")
        }
        taken => tracing::info!(packets, peer, ?taken, "a device of another gateway"),
    }
}

fn lease_news(host: &mut Host, now: Instant, news: News) {
    let Some(pool) = host.pool() else { return };
    let (ended, why): (Vec<Addresses>, _) = match news {
        News::Leases(all) => (pool.learn_all(all), "their client has others, from another gateway"),
        News::Lease(holder, addresses) => (
            pool.learn(holder, addresses).into_iter().collect(),
            "their client has others, from another gateway",
        ),
        News::Refused(holder) => (pool.refused(&holder).into_iter().collect(), "they are another's"),
        News::Unwritten(holders) => {
            let doubtful = holders.iter().filter_map(|holder| pool.unwritten(holder));
            (doubtful.collect(), "another gateway may give them")
        }
        News::Evicted(holder) => {
            pool.unlearn(&holder);
            return;
        }
        _ => return,
    };
    for addresses in ended {
        let sessions = host.node_mut().end_sessions_at(now, addresses);
        tracing::warn!(?addresses, sessions, "sessions with these addresses end: {why}");
    }
}

/// A gateway that has been cut off for long may not know who is denied: it ends its sessions, and lets nobody in.
fn end_alone(host: &mut Host, now: Instant, alone: bool) {
    if alone {
        tracing::error!(
            "the database has been out of reach for too long (cluster.alone_for): no session goes on here"
        );
    }
    host.node_mut().serve_nobody(now, alone);
}
