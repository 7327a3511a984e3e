//! The bodies of the fuzz targets: the configuration, what the sleeper has learned, and what programs of IPv4 say to peers of HIP; and what a peer
//! does that is none of ours. Not for use in a program.

use std::collections::BTreeSet;

use dormouse_sansio::Instant;

use crate::Node;
use crate::config::directory::version;
use crate::config::file::{File, Role};
use crate::config::{ResolvedHip, parse, resolve, resolve_hip, resolve_sleep};

/// Any bytes as a configuration file, resolved as far as it goes. Files that it names hold what the bytes after a zero byte say; of those of HIP, keys
/// hold what stands before a second zero byte, and the mapping file what stands behind it.
///
/// # Panics
/// If the parser panics, or a value that was read cannot be written.
pub fn config(data: &[u8]) {
    let (text, named) = data.iter().position(|b| *b == 0).map_or((data, &[][..]), |at| data.split_at(at));
    let Ok(text) = core::str::from_utf8(text) else { return };
    let Ok(file) = parse(text) else { return };
    let mut read = |_: &std::path::Path, _: bool| Ok(named.get(1..).unwrap_or_default().to_vec());
    if let Ok(all) = resolve(&file, &mut read) {
        // HIP is another key manager's.
        assert_eq!(all.len(), file.connection.values().filter(|c| c.role != Role::Hip).count());
        for connection in &all {
            let _ = connection.own_side();
            assert!(!format!("{connection:?}").is_empty());
        }
    }
    if let Some(resolved) = hip_of(&file, named.get(1..).unwrap_or_default()) {
        hip(&resolved);
    }
    let _ = resolve_sleep(&file.sleep, &mut read);
    let written = toml::to_string(&file).unwrap_or_else(|e| panic!("it cannot be written: {e}"));
    let again = parse(&written).unwrap_or_else(|e| panic!("what was written is refused: {e}\n{written}"));
    assert_eq!(toml::to_string(&again).as_ref(), Ok(&written));
}

impl Node {
    /// See [`dormouse_ike::Endpoint::answer_sync`].
    #[doc(hidden)]
    pub fn answer_sync(&mut self, now: Instant, datagram: &[u8]) -> Option<Vec<Vec<u8>>> {
        let answer = self.ike.answer_sync(now, datagram);
        self.drain_ike(now);
        answer
    }
}

/// The connection of HIP, if it can be used.
fn hip_of(file: &File, named: &[u8]) -> Option<ResolvedHip> {
    let end = named.iter().position(|b| *b == 0);
    let (keys, hosts) = end.map_or((named, named), |at| (&named[..at], &named[at + 1..]));
    resolve_hip(file, &mut |_, secret| Ok(if secret { keys } else { hosts }.to_vec())).ok().flatten()
}

/// What must hold of every directory of HIP: each peer is found by its tag and by each of its names, none is this host itself, and no two share a
/// local-scope identifier.
fn hip(resolved: &ResolvedHip) {
    let ours: BTreeSet<_> = resolved.identities.iter().map(dormouse_hip::Identity::hit).collect();
    assert_eq!(ours.len(), resolved.identities.len());
    let mut lsis: BTreeSet<_> = resolved.lsi.iter().map(|lsi| lsi.ours).collect();
    for known in resolved.peers.iter() {
        assert!(!ours.contains(&known.hit), "{known:?}");
        assert_eq!(resolved.peers.get(known.hit), Some(known));
        assert!(known.names.iter().all(|name| resolved.peers.named(name) == Some(known)), "{known:?}");
        assert!(known.identity.is_none_or(|by| ours.contains(&by) && version(by) == version(known.hit)));
        let inside = |lsi| resolved.lsi.as_ref().is_some_and(|all| all.prefix.contains(&lsi));
        assert!(known.lsi.is_none_or(|lsi| inside(lsi) && lsis.insert(lsi)), "{known:?}");
    }
}

/// Any bytes as a history of the sleeper, as they are and under a right checksum: one that is taken is lived on with.
///
/// # Panics
/// If a property does not hold.
pub fn history(data: &[u8]) {
    crate::sleeper::fuzz(data);
}

/// Any bytes as packets of programs that know IPv4 only and of the peers of HIP that they speak with: translated, put together, answered with
/// names.
///
/// # Panics
/// If a property does not hold.
pub fn lsi(data: &[u8]) {
    crate::host::lsi_fuzz::fuzz(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that is refused at its first line would leave all of this untried.
    #[test]
    fn the_seeds_of_hip_are_configurations_that_can_be_used() {
        let seeds: [(&[u8], usize); 4] = [
            (include_bytes!("../../../fuzz/corpus/node_config/hip"), 4),
            (include_bytes!("../../../fuzz/corpus/node_config/hip_relays_beside_ike"), 2),
            (include_bytes!("../../../fuzz/corpus/node_config/hip_version_1"), 2),
            (include_bytes!("../../../fuzz/corpus/node_config/hip_both_versions"), 1),
        ];
        for (seed, peers) in seeds {
            let (text, named) = seed.split_at(seed.iter().position(|b| *b == 0).expect("files behind it"));
            let text = core::str::from_utf8(text).expect("text");
            let file = parse(text).expect("a configuration");
            assert_eq!(hip_of(&file, &named[1..]).map(|it| it.peers.len()), Some(peers), "{text}");
        }
    }
}
