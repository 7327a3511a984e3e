//! Remembers the paths of certificates whose signatures have been verified, so that a peer that comes back does not cost these verifications again.
//! Must never decide on trust: validity, purposes, key usage, revocation and identity are judged at each authentication.

use std::collections::{BTreeMap, VecDeque};

use super::{Certificate, TrustStore, Verified, sha256};

/// Paths that are remembered, the oldest is forgotten first: some 400 kB at most.
const MAX_PATHS: usize = 4096;

/// Names a path: SHA-256 of the trust store, the peer's certificate and the intermediates that came with it, in their order.
type Key = [u8; 32];

/// See the module's text.
#[derive(Debug, Default)]
pub struct KnownPaths {
    paths: BTreeMap<Key, KnownPath>,
    /// From the oldest to the newest.
    order: VecDeque<Key>,
}

/// The certificates of a path, by their places in the lists that it was found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownPath {
    /// Among the intermediates that the peer sent, from its own certificate upwards.
    pub(super) intermediates: Vec<usize>,
    /// Among the authorities of the trust store.
    pub(super) anchor: usize,
}

impl KnownPaths {
    /// Remembers the path that [`TrustStore::verify`] has found. To be called only once the peer has proved that it holds the certificate's key: otherwise
    /// strangers with certificates that they have seen could displace those of peers.
    pub fn remember(
        &mut self,
        trust: &TrustStore,
        end_entity: &Certificate,
        intermediates: &[Certificate],
        verified: &Verified,
    ) {
        let Some((anchor, path)) = verified.issuers.split_last() else { return };
        let key = key(trust, end_entity, intermediates);
        let place = |wanted: &Certificate| intermediates.iter().position(|c| c == wanted);
        let (Some(intermediates), Some(anchor)) =
            (path.iter().map(place).collect(), trust.authorities().position(|c| c == anchor))
        else {
            return;
        };
        if self.paths.insert(key, KnownPath { intermediates, anchor }).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MAX_PATHS
            && let Some(oldest) = self.order.pop_front()
        {
            self.paths.remove(&oldest);
        }
    }

    /// The path that was found with the same trust store and the same certificates.
    pub(super) fn find(
        &self,
        trust: &TrustStore,
        end_entity: &Certificate,
        intermediates: &[Certificate],
    ) -> Option<&KnownPath> {
        if self.paths.is_empty() {
            return None;
        }
        self.paths.get(&key(trust, end_entity, intermediates))
    }
}

fn key(trust: &TrustStore, end_entity: &Certificate, intermediates: &[Certificate]) -> Key {
    let mut named = Vec::with_capacity(32 * (2 + intermediates.len()));
    named.extend(trust.fingerprint());
    named.extend(end_entity.fingerprint());
    named.extend(intermediates.iter().flat_map(Certificate::fingerprint));
    sha256(&named)
}
