//! One working hour of one client of the synthetic population, as a plan to replay, and the night and morning before it. Owns the
//! choice of the client and the mapping of its packets; must never leave a packet out.

use anyhow::{Context, Result};
use dormouse_energy::Direction;
use dormouse_testbed::replay::{Kind, Planned, REPLIES_WITHIN};
use dormouse_trace::generate::{Population, Recipe};
use dormouse_trace::seen::ClientPacket;
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds in the hour.
pub(super) const HOUR: u64 = 3600;
/// The hour that is taken starts at ten, when most people work (see `dormouse_trace::generate::HOURS`).
const FROM: u64 = 10 * HOUR;
const CLIENTS: u32 = 200;
/// A client with less traffic shows nothing, one with more does not fit the compressed hour.
const PACKETS: std::ops::RangeInclusive<usize> = 150..=1500;
/// A packet that comes in so soon after one that went out by the same ports answers it.
const ANSWERS_WITHIN: u64 = 5_000_000_000;

/// What is replayed.
#[derive(Clone, Debug)]
pub(super) struct Hour {
    /// Says that it is synthetic, and from which seed.
    pub(super) label: String,
    /// In order of time; times are those of the hour itself, not compressed.
    pub(super) plan: Vec<Planned>,
    /// What the device has lived through before, from midnight on.
    pub(super) before: Vec<Planned>,
}

/// The hour of the client with the median number of packets, among those with a fair number of them.
pub(super) fn pick(seed: u64) -> Result<Hour> {
    let recipe = Recipe { clients: CLIENTS, days: 1, seed, start: 1_700_006_400 };
    let mut clients: BTreeMap<u32, Vec<ClientPacket>> = BTreeMap::new();
    let (from, until) = ((recipe.start + FROM) * 1_000_000_000, (recipe.start + FROM + HOUR) * 1_000_000_000);
    for made in Population::new(recipe).take_while(|m| m.at < until) {
        clients.entry(made.client).or_default().push(made);
    }
    let mut earlier = BTreeMap::new();
    for (client, packets) in &mut clients {
        let hour = packets.split_off(packets.partition_point(|m| m.at < from));
        earlier.insert(*client, std::mem::replace(packets, hour));
    }
    // Present for most of the hour.
    let spans = |p: &[ClientPacket]| {
        p.last().zip(p.first()).is_some_and(|(b, a)| b.at - a.at > (until - from) * 3 / 4)
    };
    clients.retain(|_, packets| PACKETS.contains(&packets.len()) && spans(packets));
    let mut by_size: Vec<(u32, Vec<ClientPacket>)> = clients.into_iter().collect();
    by_size.sort_by_key(|(id, packets)| (packets.len(), *id));
    let middle = by_size.len() / 2;
    let (client, packets) = by_size
        .into_iter()
        .nth(middle)
        .with_context(|| format!("no client of seed {seed} is busy enough for a demonstration"))?;
    let label = format!("{}; client {client}, from ten to eleven", recipe.label());
    let before = earlier.remove(&client).unwrap_or_default();
    let midnight = recipe.start * 1_000_000_000;
    Ok(Hour { label, plan: plan(&packets, from), before: plan(&before, midnight) })
}

fn plan(packets: &[ClientPacket], from: u64) -> Vec<Planned> {
    let mut last_sent: BTreeMap<(u16, u16), (usize, u64)> = BTreeMap::new();
    let mut plan = Vec::with_capacity(packets.len());
    for (index, made) in packets.iter().enumerate() {
        let ports = (made.info.local_port, made.info.remote_port);
        let kind = match made.info.direction {
            Direction::Outgoing | Direction::Unknown => {
                last_sent.insert(ports, (index, made.at));
                Kind::Outgoing
            }
            Direction::Incoming => match last_sent.get(&ports) {
                Some((asked, at)) if made.at - at < ANSWERS_WITHIN && index - asked < REPLIES_WITHIN => {
                    Kind::Reply(*asked)
                }
                // ARP, NetBIOS and SMB ask whether the device is there.
                _ if made.info.protocol == 0x806 || matches!(ports.1, 137 | 445) => Kind::Ping,
                _ => Kind::Incoming,
            },
        };
        let at = Duration::from_nanos(made.at.saturating_sub(from));
        plan.push(Planned { at, kind, bytes: made.info.size as usize });
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_has_traffic_of_every_kind_in_order() {
        let hour = pick(1).unwrap();
        assert!(PACKETS.contains(&hour.plan.len()));
        assert!(hour.plan.windows(2).all(|w| w[0].at <= w[1].at));
        assert!(hour.plan.iter().all(|p| p.at < Duration::from_secs(HOUR)));
        let has = |kind: fn(&Kind) -> bool| hour.plan.iter().any(|p| kind(&p.kind));
        assert!(has(|k| *k == Kind::Outgoing) && has(|k| matches!(k, Kind::Reply(_))));
        assert!(has(|k| *k == Kind::Ping) && has(|k| *k == Kind::Incoming));
        for (n, planned) in hour.plan.iter().enumerate() {
            if let Kind::Reply(to) = planned.kind {
                assert!(to < n && hour.plan[to].kind == Kind::Outgoing, "{n} answers {to}");
            }
        }
        assert!(hour.label.contains(dormouse_trace::SYNTHETIC_MARK), "{}", hour.label);
    }
}
