//! How a gateway joins others: what it must know of their database before its loop begins. Owns the first look at it, which the start waits for.

use crate::keeper::counts::Counts;
use crate::keeper::shared::{Beginning, Member};
use crate::users::SharedUsers;
use anyhow::{Context, Result};
use dormouse_cluster::Settings;
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret};
use dormouse_ike::ticket::{SharedKey, TicketKeys};
use dormouse_io::state::StateDir;
use dormouse_io::store::StoredDenial;
use dormouse_node::config::{Resolved, ResolvedCluster};
use dormouse_node::pool::Share;
use dormouse_sansio::UnixTime;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroize;

/// A start waits so long for a database that may come: less than a service manager waits, and so long that it does not give up on a gateway that
/// is up before its database.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a gateway knows of the others.
pub(crate) struct Cluster {
    pub(crate) counts: Arc<Counts>,
    pub(crate) share: Share,
    /// All that the database has.
    pub(crate) denials: Vec<StoredDenial>,
    pub(crate) users: SharedUsers,
    /// When tickets were first sealed with each key, or will be.
    pub(crate) keys: Vec<UnixTime>,
}

/// A gateway before its loop begins.
pub(crate) struct Joining {
    pub(crate) member: Member,
    pub(crate) beginning: Beginning,
    /// Of pre-shared keys and passwords, for all gateways.
    pub(crate) fingerprint_key: Secret,
    pub(crate) users: SharedUsers,
}

impl Joining {
    /// Takes the gateway's place in the database, and waits for it. The connections get the users that all gateways have.
    ///
    /// # Errors
    /// If the database cannot be reached, or this gateway has no place there: it does not know then who is denied.
    pub(crate) fn new(cluster: ResolvedCluster, state: &Path, connections: &mut [Resolved]) -> Result<Self> {
        let label: &[u8] = b"dormouse cluster: fingerprints of secrets";
        let fingerprint_key = PrfKey::new(Prf::HmacSha256, cluster.key.as_bytes()).compute(&[label]);
        let lifetime = connections.iter().map(|c| c.ike.resumption.lifetime).max().unwrap_or_default();
        let settings = Settings {
            url: cluster.database,
            password: cluster.password,
            authorities: cluster.authorities,
            gateway: cluster.name,
            address: cluster.address,
            key: cluster.key,
        };
        let state = StateDir::open(state).context("daemon.state_dir")?;
        let counts = Arc::new(Counts::default());
        let member = Member { settings, state, alone_for: cluster.alone_for, lifetime, counts };
        let mut beginning = member.begin_soon(PATIENCE).context("cluster.database")?;
        let mut users = SharedUsers::new(std::mem::take(&mut beginning.users));
        users.read(connections, &BTreeSet::new());
        users.apply(connections);
        Ok(Self { member, beginning, fingerprint_key, users })
    }

    /// What the daemon keeps, and what its thread gets.
    pub(crate) fn split(self) -> (Cluster, Member) {
        let Self { member, beginning: Beginning { slot, slots, denials, keys, .. }, users, .. } = self;
        let keys = keys.iter().map(|key| key.seal_from).collect();
        let share = Share { slot, slots, alone: false };
        (Cluster { counts: member.counts.clone(), share, denials, users, keys }, member)
    }
}

/// The keys as the endpoint takes them.
pub(crate) fn ticket_keys(keys: &[dormouse_cluster::TicketKey]) -> TicketKeys {
    let shared = |key: &dormouse_cluster::TicketKey| {
        let mut secret: [u8; 32] = key.secret.as_bytes().try_into().ok()?;
        let (id, seals_from, opens_until) = (key.id, key.seal_from, key.open_until);
        let shared = SharedKey { id, seals_from, opens_until, secret };
        secret.zeroize();
        Some(shared)
    };
    TicketKeys::shared(keys.iter().filter_map(shared).collect())
}
