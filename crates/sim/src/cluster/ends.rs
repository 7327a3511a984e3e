//! The machines of a world of several gateways: their cores, made from the text of a configuration. Owns that text, and where the machines are.

use super::settings::Settings;
use crate::ends::CONNECTION;
use crate::machine;
use crate::settings::LIVENESS;
use dormouse_crypto::Secret;
use dormouse_ike::EndpointConfig;
use dormouse_ike::admission::Denial;
use dormouse_ike::config::HoldPolicy;
use dormouse_ike::ticket::TicketKeys;
use dormouse_node::host::Host;
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_node::shared::{Beginning, SharedBalance};
use dormouse_node::{Limits, SleepFlags};
use dormouse_sansio::{Instant, Seeded, UnixTime};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A server behind all gateways.
pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));
const SECRET: &str = "secret = \"a secret of the simulation\"";

/// Where a gateway is.
pub(crate) fn gateway_address(n: usize) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, 1 + u8::try_from(n).unwrap_or(0)).into()
}

/// Where the gateway is that the common address is led to.
pub(crate) const COMMON: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 200));

/// A device's identity.
pub(crate) fn identity(n: usize) -> String {
    format!("device{n}.sim")
}

fn head(role: &str, gateway: &str, own: &str, peer: &str) -> String {
    format!(
        "[connection.{CONNECTION}]\nrole = \"{role}\"\n{gateway}\n[connection.{CONNECTION}.local]\nid = \"{own}\"\n{SECRET}\n\
         [connection.{CONNECTION}.remote]\nid = \"{peer}\"\n{SECRET}\n"
    )
}

/// The core of a device.
pub(crate) fn device(settings: &Settings, n: usize, rng: &mut Seeded, now: Instant, unix: UnixTime) -> Host {
    let offers_ids = settings.offers_ids(n);
    // One that asks now and then, and is patient, as a strongSwan is.
    let (asks, waits) = match offers_ids {
        true => ("liveness = 10\nliveness_timeout = 100\nretransmit_tries = 14\n", "probe_ms = 60000\n"),
        false => ("", ""),
    };
    let toml = head("client", "gateway = \"vpn.sim\"", &identity(n), "gateway.sim")
        + &format!(
            "[connection.{CONNECTION}.wake]\n{waits}\
             [connection.{CONNECTION}.ike]\nrekey = {}\n{asks}{}[connection.{CONNECTION}.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\n",
            settings.rekey_s,
            match settings.has_tickets(n) {
                true => String::new(),
                false => format!("dormancy = false\n[connection.{CONNECTION}.resumption]\nmode = \"off\"\n"),
            }
        );
    let endpoint = EndpointConfig { offers_ids, ..EndpointConfig::default() };
    machine::host(now, machine::connections(&toml), endpoint, None, rng, unix)
}

/// The core of a gateway that begins with what the store says.
pub(crate) fn gateway(
    settings: &Settings,
    beginning: &Beginning,
    balance: SharedBalance,
    own_denials: &[String],
    rng: &mut Seeded,
    now: Instant,
    unix: UnixTime,
) -> Host {
    let pool = match settings.small_pool {
        // Each login of an identity of several devices may take another address, and the lease of one that is gone stays for a while.
        true if settings.limit > 0 && !settings.keep => "10.55.0.0/27",
        true => "10.55.0.0/29",
        false => "10.55.0.0/16",
    };
    let unique = match (settings.limit, settings.keep) {
        (0, _) => String::new(),
        (limit, true) => format!("unique = \"keep\"\nsessions = {limit}"),
        (limit, false) => format!("unique = \"never\"\nsessions = {limit}"),
    };
    let toml = head("gateway", &unique, "gateway.sim", "*.sim")
        + &format!(
            "[connection.{CONNECTION}.ike]\nliveness = {}\nliveness_timeout = {}\n\
             [connection.{CONNECTION}.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n\
             [connection.{CONNECTION}.pool]\naddresses = [\"{pool}\"]\n",
            LIVENESS.0, LIVENESS.1
        );
    let connections = machine::connections(&toml);
    let mut pool = Pool::new(connections.iter().flat_map(|c| c.pool.iter().copied()));
    pool.set_share(beginning.share());
    let _none = pool.learn_all(beginning.leases.clone());
    let services = if settings.stand_in {
        SleepFlags { stand_in: true, buffering: true }
    } else {
        SleepFlags::default()
    };
    let hold =
        HoldPolicy { longest: Duration::from_secs(settings.hold_s), services, ..HoldPolicy::default() };
    let mut endpoint = EndpointConfig {
        ticket_keys: Some(TicketKeys::shared(beginning.keys.clone())),
        hold,
        counts_together: true,
        takeover: settings.takeover,
        spread: Some(Box::new(balance)),
        ..EndpointConfig::default()
    };
    endpoint.admission.fingerprint_key = Secret::from(vec![7; 32]);
    let denied = beginning.denials.iter().map(|denied| &denied.whom).chain(own_denials);
    let denials = denied.filter_map(|whom| whom.parse::<Denial>().ok());
    endpoint.admission.denials.extend(denials);
    let mut host = machine::host(now, connections, endpoint, Some(SharedPool::new(pool)), rng, unix);
    if settings.stand_in {
        host.node_mut().stand_in_for_sleepers(Limits::default(), Duration::from_secs(settings.hold_s));
    }
    host
}
