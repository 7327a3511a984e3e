//! A configuration of the Host Identity Protocol that was read again. Owns what counts at once, and what only a new start can change.

use super::{know, of_machine};
use crate::daemon::Daemon;
use dormouse_hip::{Accept, Host as Hip, Identity, Quirks};
use dormouse_node::config::ResolvedHip;
use dormouse_node::config::block::Blocking;
use dormouse_node::config::directory::version;
use dormouse_sansio::Instant;
use dormouse_wire::hip::Hit;
use std::collections::{BTreeMap, BTreeSet};

impl Daemon {
    /// What is held for HIP with this configuration: what was, while only a new start can change the role, the identity or the prefix of
    /// local-scope identifiers, or begin to hold.
    pub(crate) fn blocking_of_hip(&self, new: Option<&ResolvedHip>) -> Option<(String, Blocking)> {
        let hip = self.hip.as_ref()?;
        let name = hip.connection.clone();
        let same = |new: &&ResolvedHip| hip.is_same_host(new) && of_machine(&hip.lsi) == of_machine(&new.lsi);
        let new = new.filter(same).and_then(|new| new.blocking.clone());
        let blocking = new.filter(|new| self.block.can_hold(new)).or_else(|| self.block.of(&name))?;
        Some((name, blocking))
    }

    /// The configuration was read again. Returns the keys that only a new start can change.
    pub(crate) fn reconfigure_hip(
        &mut self,
        now: Instant,
        new: Option<ResolvedHip>,
        kept: &BTreeSet<String>,
    ) -> Vec<String> {
        let Some(hip) = self.hip.as_mut().filter(|hip| !kept.contains(&hip.connection)) else {
            return Vec::new();
        };
        let Some(mut new) = new.filter(|new| new.name == hip.connection) else {
            return vec![format!("connection.{}", hip.connection)];
        };
        let mut restart = Vec::new();
        if new.blocking.as_ref().is_some_and(|blocking| !self.block.can_hold(blocking)) {
            restart.push(format!("connection.{}.block", new.name));
        }
        let (was, is) = (&hip.config, &new.config);
        let of_key = |tags: &[Hit], v: u8| tags.iter().copied().find(|hit| version(*hit) == v);
        let versions = |tags: &[Hit], named: &BTreeMap<Hit, String>| -> Vec<u8> {
            tags.iter().filter(|hit| !named.contains_key(hit)).map(|hit| version(*hit)).collect()
        };
        let ours: Vec<Hit> = new.identities.iter().map(Identity::hit).collect();
        for (key, same) in [
            (
                "key",
                [1, 2].into_iter().all(|v| match (of_key(&hip.ours, v), of_key(&ours, v)) {
                    (Some(before), Some(new)) => before == new,
                    _ => true,
                }),
            ),
            ("version", versions(&hip.ours, &hip.named) == versions(&ours, &new.named)),
            ("identities", hip.named == new.named),
            ("carriers", hip.carriers == new.carriers),
            ("udp_port", was.udp_port == is.udp_port),
            ("esp_in_udp", was.esp_in_udp == is.esp_in_udp || hip.carriers != new.carriers),
            ("esp", was.esp_suites == is.esp_suites),
            ("ciphers", was.ciphers == is.ciphers),
            ("groups", was.groups == is.groups),
            ("puzzle", was.difficulty == is.difficulty),
            ("lsi", of_machine(&hip.lsi) == of_machine(&new.lsi)),
            ("rendezvous_server", was.registrar == is.registrar),
            ("relay_server", was.relay_server == is.relay_server),
        ] {
            if !same {
                restart.push(format!("connection.{}.hip.{key}", new.name));
            }
        }
        if !hip.is_same_host(&new) {
            // Its peers, and who may come, are those of another host.
            return restart;
        }
        let gone: Vec<Hit> =
            hip.peers.iter().map(|p| p.hit).filter(|h| new.peers.get(*h).is_none()).collect();
        hip.failures.retain(|hit, _| !gone.contains(hit));
        if of_machine(&hip.lsi) == of_machine(&new.lsi) {
            hip.lsi.clone_from(&new.lsi);
        } else {
            new.peers.keep_lsis(&hip.peers);
        }
        let config = &mut hip.config;
        config.accept.clone_from(&new.config.accept);
        config.accept_v1.clone_from(&new.config.accept_v1);
        config.rendezvous.clone_from(&new.config.rendezvous);
        config.relays.clone_from(&new.config.relays);
        (config.multihoming, config.liveness) = (new.config.multihoming, new.config.liveness);
        config.keepalive = new.config.keepalive;
        config.registration = new.config.registration;
        hip.peers.clone_from(&new.peers);
        hip.domain.clone_from(&new.domain);
        self.host.set_lsis(hip.lsis());
        if matches!(new.config.accept, Accept::Listed(_)) {
            gone.iter().for_each(|hit| self.host.node_mut().dismiss_beside(&hit.to_string()));
        }
        self.host.node_mut().with_manager(now, |hip: &mut Hip| {
            for hit in gone {
                hip.set_peer(hit, None);
                hip.set_rendezvous_of(hit, None);
                hip.set_relays_of(hit, Vec::new());
                hip.set_quirks(hit, Quirks::NONE);
                hip.set_identity_for(hit, None);
                hip.set_lifetime_of(hit, None);
            }
            new.peers.iter().for_each(|known| know(hip, known));
            hip.set_accept(now, new.config.accept, new.config.accept_v1);
            hip.set_opportunistic(new.config.opportunistic);
            hip.set_servers(now, (new.config.rendezvous, new.config.relays), new.config.registration);
            hip.set_multihoming(now, new.config.multihoming);
            hip.set_liveness(now, new.config.liveness);
            hip.set_keepalive(now, new.config.keepalive);
        });
        if let Some(hip) = &self.hip {
            self.machine.lead(&hip.connection, &hip.led());
        }
        self.serve_names();
        self.look_at_sources(now);
        restart
    }
}
