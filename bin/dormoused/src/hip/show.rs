//! What the daemon says of the Host Identity Protocol: `status`, `stats` and `doctor`. Owns which words stand for which state; must never
//! change anything.

use std::collections::{BTreeMap, BTreeSet};

use super::registration;
use crate::daemon::Daemon;
use crate::status;
use dormouse_control as control;
use dormouse_control::{HipIdentity, HipNames, HipPeer, HipState, HipStatus};
use dormouse_hip::{Accept, Description, Host as Hip, Phase};
use dormouse_keying::Owner;
use dormouse_node::SessionInfo;
use dormouse_node::config::directory::version;
use dormouse_node::config::file::HipCarrier;
use dormouse_sansio::{Carrier, Instant};
use dormouse_wire::hip::Hit;

impl Daemon {
    /// For `status`.
    pub(crate) fn hip_status(&self, now: Instant) -> Option<HipStatus> {
        let (hip, manager) = (self.hip.as_ref()?, self.host.node().manager::<Hip>()?);
        let mut there: BTreeMap<Hit, Vec<Description>> = BTreeMap::new();
        manager.describe().for_each(|d| there.entry(d.peer).or_default().push(d));
        there.values_mut().for_each(|all| all.sort_by_key(|d| d.phase != Phase::Established));
        let sessions: BTreeMap<Owner, SessionInfo> =
            self.host.node().gateway_sessions(now).into_iter().map(|s| (s.owner, s)).collect();
        let strangers = there.keys().copied().filter(|hit| hip.known(*hit).is_none());
        let all = hip.peers.iter().map(|known| known.hit).chain(strangers);
        // Each of our identities may have an association with it.
        let all = all.flat_map(|hit| {
            let open = there.get(&hit).map(Vec::as_slice).unwrap_or_default();
            let none = open.is_empty().then_some((hit, None));
            open.iter().map(move |d| (hit, Some(d))).chain(none)
        });
        let peer = |(hit, open): (Hit, Option<&Description>)| {
            let known = hip.known(hit);
            let session = open.and_then(|d| sessions.get(&Owner::Hip(d.id)));
            let sending = |d: &Description| session?.children.iter().find(|c| Some(c.id) == d.child);
            HipPeer {
                hit: hit.to_string(),
                version: version(hit),
                names: known.map(|k| k.names.clone()).unwrap_or_default(),
                identity: open
                    .map(|d| d.ours)
                    .or_else(|| hip.ours_to(hit))
                    .map(|it| it.to_string())
                    .unwrap_or_default(),
                addresses: known
                    .map(|k| k.peer.addresses.iter().map(ToString::to_string).collect())
                    .unwrap_or_default(),
                rendezvous: known
                    .map(|k| k.rendezvous.iter().map(ToString::to_string).collect())
                    .unwrap_or_default(),
                relays: known.map(|k| k.relays.iter().map(ToString::to_string).collect()).unwrap_or_default(),
                lsi: hip.lsi.as_ref().and(known).and_then(|k| k.lsi).map(|lsi| lsi.to_string()),
                registration: open.and_then(|d| registration(d.registration)),
                state: open.map_or(HipState::Down, |d| match d.phase {
                    Phase::Connecting => HipState::Connecting,
                    Phase::Established => HipState::Up,
                    Phase::Closing => HipState::Closing,
                }),
                relayed: open.is_some_and(|d| d.relayed),
                path: open.filter(|d| d.phase != Phase::Closing).map(|d| d.path.to_string()),
                esp_in_udp: open
                    .is_some_and(|d| d.phase == Phase::Established && d.esp_path.carrier == Carrier::HipUdp),
                esp: open.and_then(sending).zip(session).map(|(c, s)| status::child(s, c, now)),
                quiet_seconds: session.map(|s| s.quiet.as_secs_f64()),
                traffic: session.map(status::traffic).unwrap_or_default(),
                asleep: session.is_some_and(|s| s.asleep),
                stand_in: session.and_then(|s| s.stand_in.as_ref()).map(|it| status::stand_in(it, now)),
                denied: manager.denies(hit),
                last_error: match open {
                    Some(d) => d.refusal.map(|refusal| hip.refused(hit, refusal)),
                    None => hip.failures.get(&hit).map(|(kind, why)| hip.error(hit, *kind, why)),
                },
            }
        };
        Some(HipStatus {
            connection: hip.connection.clone(),
            hit: hip.ours.first().map(ToString::to_string).unwrap_or_default(),
            identities: hip
                .ours
                .iter()
                .map(|hit| {
                    let name = hip.named.get(hit).cloned();
                    HipIdentity { hit: hit.to_string(), version: version(*hit), name }
                })
                .collect(),
            lsi: hip.lsi.as_ref().map(|lsi| lsi.ours.to_string()),
            names: self.machine.names().map(|(server, domain, asked)| HipNames {
                domain: domain.to_owned(),
                server: server.to_string(),
                asked,
            }),
            carriers: hip
                .carriers
                .iter()
                .map(|c| match c {
                    HipCarrier::Ip => "IP protocol 139".to_owned(),
                    HipCarrier::Udp => format!("UDP {}", hip.config.udp_port),
                })
                .collect(),
            accepts_any: hip.config.accept == Accept::Any,
            rendezvous_server: hip.config.registrar.is_some(),
            relay_server: hip.config.relay_server.is_some(),
            block: self.block.status(&hip.connection),
            peers: all.map(peer).collect(),
        })
    }

    /// Counters of the key manager, by name.
    pub(crate) fn hip_counters(&self) -> Vec<(&'static str, u64)> {
        let Some(stats) = self.host.node().manager::<Hip>().map(Hip::stats) else { return Vec::new() };
        vec![
            ("hip.i1", stats.i1),
            ("hip.r1", stats.r1),
            ("hip.r1_signed", stats.r1_signed),
            ("hip.bad_solutions", stats.bad_solutions),
            ("hip.replayed_solutions", stats.replayed_solutions),
            ("hip.i2_computed", stats.i2_computed),
            ("hip.i2_refused", stats.i2_refused),
            ("hip.i2_dropped", stats.i2_dropped),
            ("hip.established", stats.established),
            ("hip.verified", stats.verified),
            ("hip.updates", stats.updates),
            ("hip.rekeyed", stats.rekeyed),
            ("hip.bad_macs", stats.bad_macs),
            ("hip.relayed", stats.relayed),
            ("hip.relayed_control", stats.relayed_control),
            ("hip.relayed_data", stats.relayed_data),
            ("hip.direct", stats.direct),
            ("hip.esp_in_udp", stats.esp_in_udp),
            ("hip.dropped", stats.dropped),
        ]
    }

    /// For `doctor`.
    pub(crate) fn hip_check(&self) -> Option<control::Check> {
        let (hip, there) = (self.hip.as_ref()?, self.descriptions());
        let up = there.iter().filter(|d| d.phase == Phase::Established).count();
        let under_way: BTreeSet<Hit> = there.iter().map(|d| d.peer).collect();
        let failed = hip.failures.iter().filter(|(hit, _)| !under_way.contains(hit));
        let failed: Vec<String> =
            failed.map(|(hit, (_, why))| format!("{}: {why}", hip.called(*hit))).collect();
        let ours: Vec<String> = hip.ours.iter().map(ToString::to_string).collect();
        let found = format!("{}; {up} of {} peers associated", ours.join(", "), hip.peers.len());
        let holds = self.block.status(&hip.connection).is_some_and(|block| block.holds);
        let (found, change) = if !holds {
            let open = format!("{found}; packets in clear that pretend to be of a peer are taken");
            (open, Some(format!("connection.{}.block = \"connected\" (docs/hip.md)", hip.connection)))
        } else if failed.is_empty() {
            (found, None)
        } else {
            (format!("{found}; {}", failed.join("; ")), Some("dormouse hip status".to_owned()))
        };
        let outcome = change.as_ref().map_or(control::CheckOutcome::Ok, |_| control::CheckOutcome::Warning);
        Some(control::Check { name: "HIP".into(), outcome, found, change })
    }
}
