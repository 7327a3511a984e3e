//! A gateway that shares its database with others: what the daemon does about the news of `keeper/shared.rs`. Owns nothing: what it knows of the
//! others is a [`Cluster`](crate::joining::Cluster). Must never wait for the database.
//!
//! A denial of this gateway's is written into its own database first, and goes from there when the shared one has it: so none is lost that
//! could not be sent, and what was denied before the gateway joined holds for all.

use crate::daemon::Daemon;
use crate::joining::ticket_keys;
use crate::keeper::shared::{Errand, News};
use dormouse_cluster::UserEntry;
use dormouse_control::{Error, ErrorKind};
use dormouse_ike::admission::Denial;
use dormouse_io::store::StoredDenial;
use dormouse_sansio::Instant;
use std::collections::BTreeSet;

impl Daemon {
    /// Denials that only this gateway knows go to all.
    pub(crate) fn send_denials(&mut self) {
        let (Some(_), Some(keeper)) = (&self.helpers.cluster, &self.helpers.keeper) else { return };
        match self.store.denials() {
            Ok(unsent) => unsent.into_iter().for_each(|denial| keeper.run(Errand::Deny(denial))),
            Err(e) => tracing::error!(
                "denials of this gateway do not reach the others: {}",
                dormouse_io::causes(&*e)
            ),
        }
    }

    /// What the other gateways are told of this one.
    pub(crate) fn count_for_others(&self) {
        if let Some(cluster) = &self.helpers.cluster {
            let node = self.host.node();
            let held = node.held_by_gateways();
            cluster.counts.set(held.sessions - held.asleep, held.asleep + node.absent_count());
        }
    }

    /// Whether the shared database can be asked: if not, this gateway takes no address from anybody.
    pub(crate) fn share_reached(&mut self, reachable: bool) {
        if let (Some(cluster), Some(pool)) = (&mut self.helpers.cluster, self.host.pool()) {
            cluster.share.alone = !reachable;
            pool.set_share(cluster.share);
        }
    }

    /// Acts on what the other gateways have done.
    pub(crate) fn cluster_news(&mut self, now: Instant, news: News) {
        match news {
            News::Gone(lineages) => {
                let gone = lineages.iter().filter(|l| self.host.node_mut().gone_elsewhere(now, **l)).count();
                if gone > 0 {
                    tracing::info!(sessions = gone, "clients are at other gateways now");
                }
            }
            News::Denials(all) => self.take_denials(now, all),
            News::Denied(whom) => {
                // The database has it now.
                if let Err(e) = self.store.allow(&whom) {
                    tracing::warn!("{}", dormouse_io::causes(&*e));
                }
            }
            News::Users(entries) => self.take_users(now, entries),
            News::Keys(keys) => {
                if let Some(cluster) = &mut self.helpers.cluster {
                    cluster.keys = keys.iter().map(|key| key.seal_from).collect();
                }
                self.host.node_mut().set_ticket_keys(ticket_keys(&keys));
            }
            News::TooLongAlone(alone) => self.end_alone(now, alone),
            News::Leases(_) | News::Lease(..) | News::Evicted(_) | News::Refused(_) => {
                self.lease_news(now, news)
            }
        }
    }

    fn lease_news(&mut self, now: Instant, news: News) {
        let Some(pool) = self.host.pool() else { return };
        match news {
            News::Leases(all) => pool.learn_all(all),
            News::Lease(holder, addresses) => pool.learn(holder, addresses),
            News::Evicted(holder) => pool.unlearn(&holder),
            News::Refused(holder) => {
                if let Some(addresses) = pool.refused(&holder) {
                    let sessions = self.host.node_mut().end_sessions_at(now, addresses);
                    tracing::warn!(?addresses, sessions, "these addresses are another's: their sessions end");
                }
            }
            _ => {}
        }
    }

    /// Who is refused now was not before, or the other way round. One of our own that is not on record yet stays.
    fn take_denials(&mut self, now: Instant, all: Vec<StoredDenial>) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        let before = std::mem::replace(&mut cluster.denials, all.clone());
        let unsent = self.store.denials().unwrap_or_default();
        let in_list = |list: &[StoredDenial], whom: &str| list.iter().any(|d| d.whom == whom);
        for denial in all.iter().filter(|d| !in_list(&before, &d.whom)) {
            match denial.whom.parse::<Denial>() {
                Ok(meant) => {
                    self.deny_hit(now, &meant);
                    let sessions = self.host.deny(now, meant).sessions;
                    tracing::warn!(whom = %denial.whom, sessions, "denied at another gateway");
                }
                Err(e) => {
                    tracing::error!(whom = %denial.whom, %e, "a denial of another gateway is not understood, and not in force here")
                }
            }
        }
        for denial in before.iter().filter(|d| !in_list(&all, &d.whom) && !in_list(&unsent, &d.whom)) {
            if let Ok(meant) = denial.whom.parse::<Denial>() {
                self.allow_hit(now, &meant);
                if self.host.node_mut().allow(&meant) {
                    tracing::warn!(whom = %denial.whom, "no longer denied, at another gateway's word");
                }
            }
        }
    }

    /// Users have changed: sessions of those who were removed or have another password end.
    fn take_users(&mut self, now: Instant, entries: Vec<UserEntry>) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        if !cluster.users.set(entries) {
            return;
        }
        cluster.users.apply(&mut self.connections);
        self.host.reconfigure(now, &self.connections, &BTreeSet::new());
        tracing::info!("users were changed by dormouse user, here or at another gateway, and are in force");
    }

    /// A gateway that has been cut off for long may not know who is denied: it ends its sessions, and lets nobody in.
    fn end_alone(&mut self, now: Instant, alone: bool) {
        if alone {
            tracing::error!(
                "the database has been out of reach for too long (cluster.alone_for): no session goes on here"
            );
        }
        self.host.node_mut().serve_nobody(now, alone);
    }

    /// Of `dormouse allow`: the others must hear of it, or it would be denied again.
    ///
    /// # Errors
    /// If they cannot.
    pub(crate) fn may_allow(&self) -> Result<(), Error> {
        match &self.helpers.cluster {
            Some(cluster) if cluster.share.alone => {
                let message = "the database that the gateways share cannot be reached: nothing has changed";
                Err(Error::new(ErrorKind::Other, message))
            }
            _ => Ok(()),
        }
    }

    /// Takes a denial back for all gateways. True if there was one.
    pub(crate) fn allow_everywhere(&mut self, whom: &str) -> bool {
        let (Some(cluster), Some(keeper)) = (&mut self.helpers.cluster, &self.helpers.keeper) else {
            return false;
        };
        keeper.run(Errand::Allow(whom.to_owned()));
        let count = cluster.denials.len();
        cluster.denials.retain(|denial| denial.whom != whom);
        cluster.denials.len() < count
    }

    /// A denial of ours goes to all.
    pub(crate) fn deny_everywhere(&mut self, denial: &StoredDenial) {
        if let (Some(_), Some(keeper)) = (&self.helpers.cluster, &self.helpers.keeper) {
            keeper.run(Errand::Deny(denial.clone()));
        }
    }

    /// Denials that the database has.
    pub(crate) fn shared_denials(&self) -> &[StoredDenial] {
        self.helpers.cluster.as_ref().map_or(&[], |cluster| &cluster.denials)
    }
}
