//! What the daemon is made from, out of its configuration: the IKE endpoint's settings with what the gateway remembers, and the
//! sockets. Nothing here runs after the set-up.

use crate::joining::Joining;
use crate::store::Store;
use anyhow::{Context, Result};
use dormouse_crypto::DhPrivate;
use dormouse_crypto::cert::Identity;
use dormouse_crypto::suites::Group;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{HoldPolicy, Ports};
use dormouse_ike::load::LoadHistory;
use dormouse_ike::ticket::TicketKeys;
use dormouse_ike::work::Beside;
use dormouse_io::batch::Carriers;
use dormouse_io::clock::unix_now;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::netlink::{MARK, set_mark};
use dormouse_io::raw::Raw;
use dormouse_io::store::{OldLease, StoredLessee};
use dormouse_io::udp::Udp;
use dormouse_node::config::file::{self, HipCarrier, Role};
use dormouse_node::config::{Resolved, ResolvedHip};
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_sansio::Carrier;
use std::net::SocketAddr;

/// What the IKE endpoint needs besides the connections.
pub(crate) fn endpoint(
    settings: &file::Daemon,
    connections: &[Resolved],
    hip: bool,
    store: &mut Store,
    joining: Option<&Joining>,
) -> Result<(EndpointConfig, Option<SharedPool>)> {
    let mut config = EndpointConfig {
        ports: Ports { ike: settings.ike_port, natt: settings.nat_t_port },
        window: settings.ike_window,
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
    if !gateways.is_empty() {
        config.beside = Beside::slow();
    }
    if gateways.is_empty() && !hip {
        return Ok((config, None));
    }
    let mut pool = Pool::new(gateways.iter().flat_map(|c| c.pool.iter().copied()));
    // Leases of a time before this gateway shared them with others do not count.
    let mut unshared = Pool::default();
    let restored = if joining.is_some() { &mut unshared } else { &mut pool };
    let own = store.database(restored, &|old| holder_of(&gateways, old))?;
    let shared = joining.map_or(&[][..], |joining| &joining.beginning.denials);
    let denied = own.iter().map(|d| &d.whom).chain(shared.iter().map(|d| &d.whom));
    for denied in denied {
        // Who is denied must not be let in because a denial is not understood.
        let whom = denied.parse().with_context(|| {
            format!("a stored denial cannot be read; delete it (table denial of gateway.db or of the shared database, whom = '{}') and deny again", denied)
        })?;
        config.admission.denials.insert(whom);
    }
    let Some(lifetime) = gateways.iter().map(|c| c.ike.resumption.lifetime).max() else {
        return Ok((config, None));
    };
    let shared = joining.map_or(&[][..], |joining| &joining.beginning.load);
    config.load = store.load_history().or_else(|| learned_before(shared)).unwrap_or_default();
    if let Some(Joining { beginning, balance, fingerprint_key, member, .. }) = joining {
        config.takeover = member.takes_over();
        config.spread = Some(Box::new(balance.clone()));
        config.ticket_keys = Some(TicketKeys::shared(beginning.keys.clone()));
        config.admission.fingerprint_key = fingerprint_key.clone();
        config.counts_together = true;
        pool.set_share(beginning.share());
        // There are no sessions yet.
        let _none = pool.learn_all(beginning.leases.clone());
    } else {
        config.ticket_keys = Some(store.ticket_keys(unix_now(), lifetime)?);
        config.admission.fingerprint_key = store.fingerprint_key()?;
    }
    let shared = SharedPool::new(pool);
    config.pool = Some(Box::new(shared.clone()));
    Ok((config, Some(shared)))
}

/// What this gateway had learned about load before it lost its own file, or else another one: the first that can be read.
fn learned_before(shared: &[Vec<u8>]) -> Option<LoadHistory> {
    let learned = shared.iter().find_map(|bytes| LoadHistory::import(bytes))?;
    tracing::info!("what was learned about load is taken from the database");
    Some(learned)
}

/// Whose a lease is that an earlier release wrote down by the displayed identity: of the one connection whose pool has its addresses
/// and whose `remote.id` means it.
fn holder_of(gateways: &[&Resolved], old: &OldLease) -> Option<StoredLessee> {
    let identity: Identity = old.identity.parse().ok()?;
    let fits = |c: &&&Resolved| {
        c.ike.remote_id.matches(&identity)
            && old.addresses.iter().all(|address| c.pool.iter().any(|net| net.contains(address)))
    };
    let mut fitting = gateways.iter().filter(fits);
    let only = fitting.next().filter(|_| fitting.next().is_none())?;
    Some(StoredLessee { connection: only.name.clone(), identity: identity.to_ike(), device: 0 })
}

/// The cryptographic library has a generator of its own in each thread, for ML-KEM and signatures, and seeds it when something is drawn for the first time: from the jitter of
/// the processor's clock, which takes some 30 ms. The loop does it before the first client comes: packets would wait for it.
pub(crate) fn seed_library() {
    if let Err(e) = DhPrivate::generate(Group::MlKem768, &mut OsEntropy) {
        tracing::warn!("the cryptographic library: {e}");
    }
}

/// Opens what the configured roles need on every address; a family that the machine lacks is left out, if it was a wildcard.
/// `shared_as`: workers of this user will have sockets of peers beside those of NAT traversal.
pub(crate) fn bind(
    settings: &file::Daemon,
    ike: bool,
    hip: Option<&ResolvedHip>,
    shared_as: Option<Option<u32>>,
) -> Result<Carriers> {
    let mut carriers = Carriers::default();
    let by_ip = hip.is_some_and(|hip| hip.carriers.contains(&HipCarrier::Ip));
    let by_udp = hip.filter(|hip| hip.carriers.contains(&HipCarrier::Udp));
    let mut ports = Vec::new();
    if ike {
        ports.push((settings.ike_port, "daemon.ike_port".to_owned(), Carrier::Ike));
        ports.push((settings.nat_t_port, "daemon.nat_t_port".to_owned(), Carrier::NatT));
    }
    ports.extend(
        by_udp.map(|hip| {
            (hip.config.udp_port, format!("connection.{}.hip.udp_port", hip.name), Carrier::HipUdp)
        }),
    );
    for ip in &settings.listen {
        for (port, key, carrier) in &ports {
            let at = SocketAddr::new(*ip, *port);
            let bound = match carrier {
                // Nothing but messages comes there.
                Carrier::Ike => Udp::bind(at, *carrier).map(|socket| (socket, None)),
                _ => Udp::bind_apart(at, *carrier),
            };
            match bound {
                Ok((socket, messages)) => {
                    for socket in [Some(&socket), messages.as_ref()].into_iter().flatten() {
                        if let Some(uid) = shared_as.flatten().filter(|_| *carrier == Carrier::NatT) {
                            socket.give_to(uid).context("giving a socket to daemon.user")?;
                        }
                        set_mark(socket, MARK).context("marking the daemon's packets")?;
                    }
                    carriers.udp.push(socket);
                    carriers.messages.extend(messages);
                }
                Err(e)
                    if ip.is_unspecified() && ip.is_ipv6() && e.kind() != std::io::ErrorKind::AddrInUse =>
                {
                    tracing::info!(%e, "IPv6 is left out");
                }
                Err(e) => return Err(e).with_context(|| format!("{key} or daemon.listen")),
            }
        }
        let raw = if ip.is_unspecified() {
            [(ike || by_ip).then_some(Carrier::RawEsp), by_ip.then_some(Carrier::RawHip)]
        } else {
            [None; 2]
        };
        for carrier in raw.into_iter().flatten() {
            match Raw::open(carrier, ip.is_ipv4()) {
                Ok(socket) => {
                    set_mark(&socket, MARK).context("marking the daemon's packets")?;
                    carriers.raw.push(socket);
                }
                Err(e) if by_ip && e.kind() == std::io::ErrorKind::PermissionDenied => {
                    return Err(e).context("role \"hip\" needs CAP_NET_RAW, or hip.carriers = [\"udp\"]");
                }
                Err(e) => tracing::info!(%e, "a carrier without UDP is left out"),
            }
        }
    }
    let unheard = by_ip && carriers.raw.iter().all(|socket| socket.carrier() != Carrier::RawHip);
    anyhow::ensure!(!unheard, "daemon.listen: HIP without UDP needs a wildcard: \"0.0.0.0\" or \"::\"");
    // An access router alone speaks with no peer.
    let speaks = ike || hip.is_some();
    anyhow::ensure!(
        !(speaks && carriers.udp.is_empty() && carriers.raw.is_empty()),
        "daemon.listen: no address could be used"
    );
    Ok(carriers)
}
