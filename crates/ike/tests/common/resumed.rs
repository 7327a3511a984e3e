//! A client that slept and comes back by its ticket. Owns these steps; must never assert more than that a step was possible.

use dormouse_ike::EndpointConfig;
use dormouse_ike::Event;
use dormouse_ike::config::Connection;
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::Operation;
use dormouse_keying::SaId;

use super::{Pair, client_psk, gateway_config, gateway_psk};

/// A client whose SA is still at the gateway, and its ticket.
pub fn slept_with(client: Connection, gateway: EndpointConfig, seed: u64) -> (Pair, ClientTicket, SaId) {
    let mut pair = Pair::with_configs(client, EndpointConfig::default(), gateway, seed);
    let (a, b) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    pair.flush();
    pair.log.clear();
    pair.client.closed.clear();
    (pair, ticket, b)
}

pub fn slept(seed: u64) -> (Pair, ClientTicket, SaId) {
    slept_with(client_psk(), gateway_config(gateway_psk(), seed), seed)
}

pub fn resume(pair: &mut Pair, ticket: &ClientTicket) -> SaId {
    let path = pair.default_path();
    let sa = pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket.clone(), path);
    pair.flush();
    sa
}

pub fn confirmed(pair: &mut Pair) -> Option<SaId> {
    pair.gateway.take(|e| match e {
        Event::Confirmed { sa } => Some(*sa),
        _ => None,
    })
}

/// Whether the store was asked about a ticket.
pub fn spent(pair: &mut Pair) -> bool {
    pair.gateway.take(|e| matches!(e, Event::Store(Operation::Confirm { .. })).then_some(())).is_some()
}
