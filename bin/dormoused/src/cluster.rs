//! A gateway that shares its database with others: what the daemon does about the news of its keeper beside what follows for the core
//! ([`dormouse_node::shared::Company`]). Owns nothing: what it knows of the others is a [`Cluster`](crate::joining::Cluster). Must never wait for the database.
//!
//! A denial of this gateway's is written into its own database first, and goes from there when the shared one has it: so none is lost that
//! could not be sent, and what was denied before the gateway joined holds for all.

use crate::daemon::Daemon;
use dormouse_control::{Error, ErrorKind};
use dormouse_ike::takeover::Takeover;
use dormouse_io::store::StoredDenial;
use dormouse_node::shared::{Denied, Errand, Heard, News, SharedUser};
use dormouse_sansio::Instant;
use std::collections::BTreeSet;

impl Daemon {
    /// Denials that only this gateway knows go to all.
    pub(crate) fn send_denials(&mut self) {
        let (Some(_), Some(keeper)) = (&self.helpers.cluster, &self.helpers.keeper) else { return };
        match self.store.denials() {
            Ok(unsent) => unsent.into_iter().for_each(|denial| keeper.run(Errand::Deny(denied(denial)))),
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
            let (awake, asleep) = (held.sessions - held.asleep, held.asleep + node.absent_count());
            let session_time = node.ike().load_history().session_time();
            cluster.counts.set(awake, asleep, session_time);
            cluster.balance.lock().count((awake + asleep) as u64, session_time);
        }
    }

    /// Keeps what was learned about load, in the database too, for the day when this gateway's disk is another one.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn keep_load(&self, history: Vec<u8>) -> anyhow::Result<()> {
        let kept = self.store.set_load_history(&history);
        if let (Some(_), Some(keeper)) = (&self.helpers.cluster, &self.helpers.keeper) {
            keeper.run(Errand::KeepLoad(history));
        }
        kept
    }

    /// What the database is to have of an IKE SA that can outlive this gateway, or give to it.
    pub(crate) fn leave(&self, what: Takeover) {
        if let (Some(_), Some(keeper)) = (&self.helpers.cluster, &self.helpers.keeper) {
            keeper.run(Errand::Takeover(what));
        }
    }

    /// Whether the store can be asked: if not, no ticket counts, and this gateway takes no address from anybody.
    pub(crate) fn store_reached(&mut self, reachable: bool) {
        match &mut self.helpers.cluster {
            Some(cluster) => {
                if !reachable {
                    // What they last said gets old: who comes stays.
                    cluster.balance.lock().heard(Vec::new());
                }
                cluster.company.reached(&mut self.host, reachable);
            }
            None => self.host.node_mut().set_store(reachable),
        }
    }

    /// Acts on what the other gateways have done.
    pub(crate) fn cluster_news(&mut self, now: Instant, news: News) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        if let News::Keys(keys) = &news {
            cluster.keys = keys.iter().map(|key| key.seals_from).collect();
        }
        let unsent: Vec<Denied> = self.store.denials().unwrap_or_default().into_iter().map(denied).collect();
        for heard in cluster.company.hear(&mut self.host, now, news, &unsent) {
            match heard {
                Heard::Denied(denial) => _ = self.deny_hit(now, &denial),
                Heard::Allowed(denial) => _ = self.allow_hit(now, &denial),
                Heard::OnRecord(whom) => {
                    // The database has it now.
                    if let Err(e) = self.store.allow(&whom) {
                        tracing::warn!("{}", dormouse_io::causes(&*e));
                    }
                }
                Heard::Forgotten(sessions) => {
                    if let Some(keeper) = &self.helpers.keeper {
                        keeper.run(Errand::Again(sessions));
                    }
                }
                Heard::HandedOver(lineage, done) => self.handed_over(now, lineage, done),
                Heard::Others(others) => self.others_are(now, others),
                Heard::Users(users) => self.take_users(now, users),
            }
        }
    }

    /// Users have changed: sessions of those who were removed or have another password end.
    fn take_users(&mut self, now: Instant, entries: Vec<SharedUser>) {
        let Some(cluster) = &mut self.helpers.cluster else { return };
        if !cluster.users.set(entries) {
            return;
        }
        cluster.users.apply(&mut self.connections);
        self.host.reconfigure(now, &self.connections, &BTreeSet::new());
        tracing::info!("users were changed by dormouse user, here or at another gateway, and are in force");
    }

    /// Of `dormouse allow`: the others must hear of it, or it would be denied again.
    ///
    /// # Errors
    /// If they cannot.
    pub(crate) fn may_allow(&self) -> Result<(), Error> {
        match &self.helpers.cluster {
            Some(cluster) if cluster.company.share.alone => {
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
        let count = cluster.company.denials.len();
        cluster.company.denials.retain(|denial| denial.whom != whom);
        cluster.company.denials.len() < count
    }

    /// A denial of ours goes to all.
    pub(crate) fn deny_everywhere(&mut self, denial: &StoredDenial) {
        if let (Some(_), Some(keeper)) = (&self.helpers.cluster, &self.helpers.keeper) {
            keeper.run(Errand::Deny(denied(denial.clone())));
        }
    }

    /// Denials that the database has.
    pub(crate) fn shared_denials(&self) -> &[Denied] {
        self.helpers.cluster.as_ref().map_or(&[], |cluster| &cluster.company.denials)
    }
}

fn denied(StoredDenial { whom, since }: StoredDenial) -> Denied {
    Denied { whom, since }
}
