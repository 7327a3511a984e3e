//! What a gateway lets one peer do: the policy of a connection, and of the identities that it names apart. Owns the words; who is
//! meant is decided by [`crate::admission::Admission::admits`].

use core::time::Duration;
use std::sync::Arc;

use dormouse_crypto::cert::Identity;
use ipnet::IpNet;

use super::{Connection, IdentityPattern, SelectorSpec};

/// What becomes of the sessions that an identity has when it begins another one by full authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unique {
    /// They end.
    #[default]
    Replace,
    /// They stay, and the new one is refused, unless it comes from the same address.
    Keep,
    /// They stay beside it: several devices share the identity, and each has inner addresses of its own.
    Never,
}

/// What a gateway lets a peer do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerPolicy {
    /// Prefixes that its inner addresses come from; empty: it gets none.
    pub pool: Vec<IpNet>,
    /// Whether other clients are out of its reach, and it out of theirs.
    pub isolate: bool,
    /// See [`Unique`].
    pub unique: Unique,
    /// Sessions that the identity may have at once.
    pub sessions: usize,
    /// CHILD SAs that one session may have at once, those that are being replaced included.
    pub child_sas: usize,
    /// How long a full authentication is good (RFC 4478): announced to the peer, and then the session ends.
    pub lifetime: Option<Duration>,
}

impl Default for PeerPolicy {
    fn default() -> Self {
        Self {
            pool: Vec::new(),
            isolate: false,
            unique: Unique::default(),
            sessions: 16,
            child_sas: 32,
            lifetime: None,
        }
    }
}

/// The connection as some peers have it.
#[derive(Clone, Debug)]
pub struct PeerRule {
    /// Who is meant.
    pub id: IdentityPattern,
    /// What they have: of the same name, with a policy and children of its own, and without rules.
    pub connection: Arc<Connection>,
}

impl Connection {
    /// The same identity, in the spelling of the configuration if that names it.
    pub(crate) fn as_configured(&self, identity: Identity) -> Identity {
        self.named(&identity).cloned().unwrap_or(identity)
    }

    /// The identity as the configuration spells it, if that names it and not only a pattern that holds it.
    #[must_use]
    pub fn named(&self, identity: &Identity) -> Option<&Identity> {
        let patterns =
            core::iter::once(&self.remote_id).chain(self.answering.peers.iter().map(|rule| &rule.id));
        patterns.filter_map(IdentityPattern::exact).find(|named| named.is_same_as(identity))
    }

    /// Narrows what the peer reaches on our side to `reach`. Children of which nothing is left go; false if none is left.
    #[must_use]
    pub fn narrow(&mut self, reach: &[IpNet]) -> bool {
        for child in &mut self.children {
            let narrowed =
                child.ts_local.iter().flat_map(|spec| reach.iter().filter_map(|to| within(*spec, *to)));
            child.ts_local = narrowed.collect();
        }
        self.children.retain(|child| !child.ts_local.is_empty());
        !self.children.is_empty()
    }
}

/// What of a selector lies within a prefix. Our own address, which is not known here, does not count.
fn within(spec: SelectorSpec, reach: IpNet) -> Option<SelectorSpec> {
    let both = |net: IpNet| {
        if reach.contains(&net) { Some(net) } else { net.contains(&reach).then_some(reach) }
    };
    match spec {
        SelectorSpec::Dynamic => None,
        SelectorSpec::Net(net) => both(net).map(SelectorSpec::Net),
        SelectorSpec::Narrow { net, protocol, ports } => {
            both(net).map(|net| SelectorSpec::Narrow { net, protocol, ports })
        }
    }
}
