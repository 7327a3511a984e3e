//! What the daemon is made from, out of its configuration: the IKE endpoint's settings with what the gateway remembers, and the
//! sockets. Nothing here runs after the set-up.

use crate::store::Store;
use anyhow::{Context, Result};
use dormouse_crypto::cert::Identity;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{HoldPolicy, Ports};
use dormouse_io::batch::Carriers;
use dormouse_io::clock::unix_now;
use dormouse_io::netlink::{MARK, set_mark};
use dormouse_io::rawesp::RawEsp;
use dormouse_io::store::{Holder, OldLease};
use dormouse_io::udp::Udp;
use dormouse_node::config::Resolved;
use dormouse_node::config::file::{self, Role};
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_sansio::Carrier;
use std::net::SocketAddr;

/// What the IKE endpoint needs besides the connections.
pub(crate) fn endpoint(
    settings: &file::Daemon,
    connections: &[Resolved],
    store: &mut Store,
) -> Result<(EndpointConfig, Option<SharedPool>)> {
    let mut config = EndpointConfig {
        ports: Ports { ike: settings.ike_port, natt: settings.nat_t_port },
        max_sas: Some(settings.session_limit),
        half_open: settings.half_open.resolve(),
        hold: HoldPolicy {
            most: settings.sleeper_limit,
            longest: std::time::Duration::from_secs(settings.sleeper_longest.0.into()),
            release_above: settings.release_above.unwrap_or(usize::MAX),
            ..HoldPolicy::default()
        },
        ..EndpointConfig::default()
    };
    let gateways: Vec<&Resolved> = connections.iter().filter(|c| c.role == Role::Gateway).collect();
    let Some(lifetime) = gateways.iter().map(|c| c.ike.resumption.lifetime).max() else {
        return Ok((config, None));
    };
    config.ticket_keys = Some(store.ticket_keys(unix_now(), lifetime)?);
    config.load = store.load_history();
    let mut pool = Pool::new(gateways.iter().flat_map(|c| c.pool.iter().copied()));
    config.admission.fingerprint_key = store.fingerprint_key()?;
    for denial in store.database(&mut pool, &|old| holder_of(&gateways, old))? {
        // Who is denied must not be let in because a denial is not understood.
        let whom = denial.whom.parse().with_context(|| {
            format!("a stored denial cannot be read; delete it (table denial of gateway.db, whom = '{}') and deny again", denial.whom)
        })?;
        config.admission.denials.insert(whom);
    }
    let shared = SharedPool::new(pool);
    config.pool = Some(Box::new(shared.clone()));
    Ok((config, Some(shared)))
}

/// Whose a lease is that an earlier release wrote down by the displayed identity: of the one connection whose pool has its addresses
/// and whose `remote.id` means it.
fn holder_of(gateways: &[&Resolved], old: &OldLease) -> Option<Holder> {
    let identity: Identity = old.identity.parse().ok()?;
    let fits = |c: &&&Resolved| {
        c.ike.remote_id.matches(&identity)
            && old.addresses.iter().all(|address| c.pool.iter().any(|net| net.contains(address)))
    };
    let mut fitting = gateways.iter().filter(fits);
    let only = fitting.next().filter(|_| fitting.next().is_none())?;
    Some(Holder { connection: only.name.clone(), identity: identity.to_ike(), device: 0 })
}

/// Binds both ports on every address; a family that the machine lacks is left out, if it was a wildcard.
pub(crate) fn bind(settings: &file::Daemon) -> Result<Carriers> {
    let mut carriers = Carriers::default();
    for ip in &settings.listen {
        for (port, key, carrier) in [
            (settings.ike_port, "daemon.ike_port", Carrier::Ike),
            (settings.nat_t_port, "daemon.nat_t_port", Carrier::NatT),
        ] {
            match Udp::bind(SocketAddr::new(*ip, port), carrier) {
                Ok(socket) => {
                    set_mark(&socket, MARK).context("marking the daemon's packets")?;
                    carriers.udp.push(socket);
                }
                Err(e)
                    if ip.is_unspecified() && ip.is_ipv6() && e.kind() != std::io::ErrorKind::AddrInUse =>
                {
                    tracing::info!(%e, "IPv6 is left out");
                }
                Err(e) => return Err(e).with_context(|| format!("{key} or daemon.listen")),
            }
        }
        if ip.is_unspecified() {
            match RawEsp::open(ip.is_ipv4()) {
                Ok(socket) => {
                    set_mark(&socket, MARK).context("marking the daemon's packets")?;
                    carriers.raw.push(socket);
                }
                Err(e) => tracing::info!(%e, "ESP without UDP is left out"),
            }
        }
    }
    anyhow::ensure!(!carriers.udp.is_empty(), "daemon.listen: no address could be used");
    Ok(carriers)
}
