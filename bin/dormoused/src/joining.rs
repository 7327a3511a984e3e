//! How a gateway joins others: what it must know of their database before its loop begins. Owns the first look at it, which the start waits for.

use crate::keeper::Member;
use crate::keeper::counts::Counts;
use crate::users::SharedUsers;
use anyhow::{Context, Result};
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret};
use dormouse_io::control::ClientId;
use dormouse_node::config::{Resolved, ResolvedCluster, Same};
use dormouse_node::shared::{Balance, Beginning, Company, Drain, SharedBalance};
use dormouse_sansio::UnixTime;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A start waits so long for a database that may come: less than a service manager waits, and so long that it does not give up on a gateway that
/// is up before its database.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a gateway knows of the others.
pub(crate) struct Cluster {
    pub(crate) counts: Arc<Counts>,
    pub(crate) company: Company,
    /// Which gateway a device goes to, which the endpoint asks too.
    pub(crate) balance: SharedBalance,
    pub(crate) users: SharedUsers,
    /// When tickets were first sealed with each key, or will be.
    pub(crate) keys: Vec<UnixTime>,
    /// It gives its devices away, and ends then; and who has asked for that.
    pub(crate) drain: Option<(ClientId, Drain)>,
}

/// A gateway before its loop begins.
pub(crate) struct Joining {
    pub(crate) member: Member,
    counts: Arc<Counts>,
    pub(crate) beginning: Beginning,
    pub(crate) balance: SharedBalance,
    /// Of pre-shared keys and passwords, for all gateways.
    pub(crate) fingerprint_key: Secret,
    pub(crate) users: SharedUsers,
}

impl Joining {
    /// Takes the gateway's place in the database, and waits for it. The connections get the users that all gateways have.
    ///
    /// # Errors
    /// If the database cannot be reached, or this gateway has no place there: it does not know then who is denied.
    pub(crate) fn new(
        cluster: ResolvedCluster,
        same: Same,
        state: &Path,
        connections: &mut [Resolved],
    ) -> Result<Self> {
        let label: &[u8] = b"dormouse cluster: fingerprints of secrets";
        let fingerprint_key = PrfKey::new(Prf::HmacSha256, cluster.key.as_bytes()).compute(&[label]);
        let lifetime = connections.iter().map(|c| c.ike.resumption.lifetime).max().unwrap_or_default();
        let balance = SharedBalance::new(Balance::new(cluster.spread, &cluster.address));
        let counts = Arc::new(Counts::default());
        counts.begin(same);
        let member = Member::new(cluster, state, lifetime, counts.clone())?;
        let mut beginning = member.begin_soon(PATIENCE).context("cluster.database")?;
        let mut users = SharedUsers::new(std::mem::take(&mut beginning.users));
        users.read(connections, &BTreeSet::new());
        users.apply(connections);
        Ok(Self { member, counts, beginning, balance, fingerprint_key, users })
    }

    /// What the daemon keeps, and what its thread gets.
    pub(crate) fn split(self) -> (Cluster, Member) {
        let Self { member, counts, beginning, balance, users, .. } = self;
        let share = beginning.share();
        let Beginning { denials, keys, .. } = beginning;
        let keys = keys.iter().map(|key| key.seals_from).collect();
        let company = Company { share, denials };
        (Cluster { counts, company, balance, users, keys, drain: None }, member)
    }
}
