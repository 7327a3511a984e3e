//! Which identities a configuration means. Owns the patterns; must never prove one.

use core::fmt;

use dormouse_crypto::cert::Identity;

/// Which identities a peer may prove.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentityPattern {
    /// Any identity that [`RemoteAuth`] vouches for: with certificates, any that our authorities have certified.
    Any,
    /// This one.
    Exact(Identity),
    /// Mail addresses at exactly this host, in lower case.
    Mail(String),
    /// FQDN and mail identities that end in this text at a label boundary: `example.org` takes `example.org`,
    /// `a.example.org` and `joe@example.org`, but not `badexample.org`. ASCII case is ignored.
    Suffix(String),
}

impl IdentityPattern {
    /// Whether `identity` is one of those meant.
    #[must_use]
    pub fn matches(&self, identity: &Identity) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(wanted) => wanted.is_same_as(identity),
            Self::Mail(host) => matches!(identity, Identity::Email(address)
                if address.rsplit_once('@').is_some_and(|(_, at)| at.eq_ignore_ascii_case(host))),
            Self::Suffix(suffix) => match identity {
                Identity::Fqdn(name) => ends_at_label(name, suffix, b"."),
                Identity::Email(address) => ends_at_label(address, suffix, b".@"),
                _ => false,
            },
        }
    }

    /// The identity to name in the optional IDr of the initiator's IKE_AUTH request, if exactly one is meant.
    #[must_use]
    pub const fn exact(&self) -> Option<&Identity> {
        match self {
            Self::Exact(identity) => Some(identity),
            Self::Any | Self::Mail(_) | Self::Suffix(_) => None,
        }
    }
}

impl fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Exact(identity) => write!(f, "{identity}"),
            Self::Mail(host) => write!(f, "*@{host}"),
            Self::Suffix(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

fn ends_at_label(name: &str, suffix: &str, boundaries: &[u8]) -> bool {
    let (name, suffix) = (name.as_bytes(), suffix.trim_start_matches(['.', '@']).as_bytes());
    let Some(cut) = name.len().checked_sub(suffix.len()) else { return false };
    let Some((head, tail)) = name.split_at_checked(cut) else { return false };
    !suffix.is_empty()
        && tail.eq_ignore_ascii_case(suffix)
        && head.last().is_none_or(|last| boundaries.contains(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_end_at_labels() {
        let pattern = IdentityPattern::Suffix("example.org".to_owned());
        for good in ["example.org", "a.Example.ORG", "joe@example.org", "joe@mail.example.org"] {
            assert!(pattern.matches(&good.parse().unwrap()), "{good}");
        }
        for bad in ["badexample.org", "example.org.evil.net", "joe@badexample.org", "192.0.2.1"] {
            assert!(!pattern.matches(&bad.parse().unwrap()), "{bad}");
        }
        assert!(!IdentityPattern::Suffix(String::new()).matches(&"a.example.org".parse().unwrap()));
        assert!(IdentityPattern::Any.matches(&"a.example.org".parse().unwrap()));
    }

    #[test]
    fn mail_addresses_are_of_one_host() {
        let pattern = IdentityPattern::Mail("example.org".to_owned());
        for good in ["joe@example.org", "Joe@Example.ORG"] {
            assert!(pattern.matches(&good.parse().unwrap()), "{good}");
        }
        for bad in ["joe@mail.example.org", "example.org", "joe.example.org", "joe@badexample.org"] {
            assert!(!pattern.matches(&bad.parse().unwrap()), "{bad}");
        }
        assert_eq!(pattern.to_string(), "*@example.org");
    }
}
