//! Identities: who a peer claims to be (RFC 7296, section 3.5) and what a certificate vouches for (RFC 4945, section 3.1).

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use super::{DnError, dn};

/// Bytes of an identity that are accepted: more is no name.
const MAX_LEN: usize = 4096;

/// An identity, with host names in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A host name (ID_FQDN, 2).
    Fqdn(String),
    /// A mail address (ID_RFC822_ADDR, 3), its host part in lower case.
    Email(String),
    /// A distinguished name in DER (ID_DER_ASN1_DN, 9).
    Dn(Vec<u8>),
    /// An address (ID_IPV4_ADDR, 1; ID_IPV6_ADDR, 5).
    Ip(IpAddr),
    /// Opaque bytes (ID_KEY_ID, 11).
    KeyId(Vec<u8>),
}

/// An identity that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Not a name of any kind.
    #[error(
        "\"{text}\" is no identity: expected a host name, user@host, C=.., CN=.., an address, or keyid:HEX ({why})"
    )]
    Text {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A distinguished name that cannot be read.
    #[error(transparent)]
    Dn(#[from] DnError),
    /// An identification type that is not supported.
    #[error(
        "identification type {0} is not supported; 1 (IPv4), 2 (FQDN), 3 (mail), 5 (IPv6), 9 (DN) and 11 (key ID) are"
    )]
    Kind(u8),
    /// Identification data that does not fit its type.
    #[error("identification data of {len} bytes does not fit type {kind}: {why}")]
    Data {
        /// The identification type.
        kind: u8,
        /// Bytes received.
        len: usize,
        /// What is wrong with them.
        why: &'static str,
    },
}

impl Identity {
    /// The identification type and data of an ID payload.
    #[must_use]
    pub fn to_ike(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Ip(IpAddr::V4(v4)) => (1, v4.octets().to_vec()),
            Self::Fqdn(name) => (2, name.clone().into_bytes()),
            Self::Email(mail) => (3, mail.clone().into_bytes()),
            Self::Ip(IpAddr::V6(v6)) => (5, v6.octets().to_vec()),
            Self::Dn(der) => (9, der.clone()),
            Self::KeyId(bytes) => (11, bytes.clone()),
        }
    }

    /// From the identification type and data of an ID payload.
    ///
    /// # Errors
    /// [`IdentityError::Kind`] or [`IdentityError::Data`]. What the AUTH payload covers are the bytes received, not this.
    pub fn from_ike(kind: u8, data: &[u8]) -> Result<Self, IdentityError> {
        let wrong = |why| Err(IdentityError::Data { kind, len: data.len(), why });
        if data.is_empty() || data.len() > MAX_LEN {
            return wrong("1 to 4096 bytes are accepted");
        }
        match kind {
            1 | 5 => match (kind, ip(data)) {
                (1, Some(ip @ IpAddr::V4(_))) | (5, Some(ip @ IpAddr::V6(_))) => Ok(Self::Ip(ip)),
                _ => wrong("an address has 4 or 16 bytes"),
            },
            2 | 3 => {
                let Some(text) =
                    core::str::from_utf8(data).ok().filter(|t| t.bytes().all(|b| b.is_ascii_graphic()))
                else {
                    return wrong("only visible ASCII is accepted");
                };
                let identity = match kind {
                    2 => Self::Fqdn(text.to_ascii_lowercase()),
                    _ => Self::Email(normal_mail(text)),
                };
                // As it is displayed it must mean the same peer: in a denial, in a record, to an operator.
                if identity.to_string().parse().as_ref() != Ok(&identity) {
                    return wrong("written down it would be another identity, or none");
                }
                Ok(identity)
            }
            9 if dn::is_name(data) => Ok(Self::Dn(data.to_vec())),
            9 => wrong("not a distinguished name in DER"),
            11 => Ok(Self::KeyId(data.to_vec())),
            other => Err(IdentityError::Kind(other)),
        }
    }

    /// Whether a certificate that contains `self` vouches for `wanted`.
    pub(super) fn vouches_for(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Dn(own), Self::Dn(wanted)) => dn::same(own, wanted),
            (Self::Fqdn(own), Self::Fqdn(wanted)) => !own.contains('*') && own.eq_ignore_ascii_case(wanted),
            (Self::Email(own), Self::Email(wanted)) => normal_mail(own) == normal_mail(wanted),
            (Self::Ip(own), Self::Ip(wanted)) => own == wanted,
            _ => false,
        }
    }

    /// The same bytes for identities that name the same peer ([`Identity::is_same_as`]), and others for others.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let (kind, data) = match self {
            Self::Dn(der) => (9, dn::canonical(der).unwrap_or_else(|| der.clone())),
            Self::Fqdn(name) => (2, name.to_ascii_lowercase().into_bytes()),
            Self::Email(mail) => (3, normal_mail(mail).into_bytes()),
            Self::Ip(_) | Self::KeyId(_) => self.to_ike(),
        };
        [&[kind][..], &data].concat()
    }

    /// Whether both name the same peer: as `==`, but distinguished names are compared as names, not as bytes.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        self == other || self.vouches_for(other)
    }
}

/// An address of 4 or 16 bytes.
pub(super) fn ip(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(octets) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(octets).ok().map(Into::into)
}

/// The host part in lower case; the local part is the host's affair (RFC 5321, section 2.4).
pub(super) fn normal_mail(mail: &str) -> String {
    match mail.rsplit_once('@') {
        Some((local, host)) => format!("{local}@{}", host.to_ascii_lowercase()),
        None => mail.to_owned(),
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    /// The notation of the configuration: an address; `keyid:` and hexadecimal digits; a distinguished name, which has an
    /// equals sign (`C=CH, CN=joe+UID=7, O=#HEX`); a mail address; or a host name, which may be marked with a leading `@`.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let wrong = |why| IdentityError::Text { text: text.to_owned(), why };
        if text.is_empty() || text.len() > MAX_LEN {
            return Err(wrong("1 to 4096 characters are accepted"));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        if let Some(digits) = text.strip_prefix("keyid:") {
            return dn::unhex(digits)
                .map(Self::KeyId)
                .ok_or_else(|| wrong("keyid: needs pairs of hexadecimal digits"));
        }
        if text.contains('=') {
            return Ok(Self::Dn(dn::parse(text)?));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(wrong("only visible ASCII without spaces is accepted"));
        }
        if text.contains('*') {
            return Err(wrong("wildcards are not accepted"));
        }
        match text.rsplit_once('@') {
            None => Ok(Self::Fqdn(text.to_ascii_lowercase())),
            Some((_, "")) => Err(wrong("nothing follows the @")),
            Some(("", host)) => Ok(Self::Fqdn(host.to_ascii_lowercase())),
            Some(_) => Ok(Self::Email(normal_mail(text))),
        }
    }
}

impl fmt::Display for Identity {
    /// The notation that [`Identity::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fqdn(name) => f.write_str(name),
            Self::Email(mail) => f.write_str(mail),
            Self::Dn(der) => f.write_str(&dn::display(der)),
            Self::Ip(ip) => ip.fmt(f),
            Self::KeyId(bytes) => {
                f.write_str("keyid:")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Fqdn(_) => "Fqdn",
            Self::Email(_) => "Email",
            Self::Dn(_) => "Dn",
            Self::Ip(_) => "Ip",
            Self::KeyId(_) => "KeyId",
        };
        write!(f, "{kind}({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notations_and_payloads_lead_back() {
        for (text, kind) in [
            ("192.0.2.1", 1),
            ("gw.example.org", 2),
            ("User@example.org", 3),
            ("2001:db8::1", 5),
            ("C=CH, O=Example, CN=gw", 9),
            ("keyid:00ff10", 11),
        ] {
            let identity: Identity = text.parse().unwrap();
            assert_eq!(identity.to_string(), text);
            let (got, data) = identity.to_ike();
            assert_eq!(got, kind, "{text}");
            assert_eq!(Identity::from_ike(got, &data), Ok(identity));
        }
    }

    #[test]
    fn hosts_are_lower_case_and_a_leading_at_marks_one() {
        assert_eq!("GW.Example.ORG".parse(), Ok(Identity::Fqdn("gw.example.org".into())));
        assert_eq!("@gw".parse(), Ok(Identity::Fqdn("gw".into())));
        assert_eq!("Bob@Example.ORG".parse(), Ok(Identity::Email("Bob@example.org".into())));
    }

    #[test]
    fn what_is_no_identity_is_refused_with_a_reason() {
        for text in ["", "a b", "*.example.org", "bob@", "keyid:", "keyid:0", "keyid:xx", "Q=1", "gäteway"] {
            let error = text.parse::<Identity>().unwrap_err().to_string();
            assert!(!error.is_empty(), "{text}: {error}");
        }
    }

    #[test]
    fn payloads_that_do_not_fit_are_refused() {
        for (kind, data) in [
            (1, &[1, 2, 3][..]),
            (1, &[0; 16]),
            (5, &[0; 4]),
            (2, b""),
            (2, b"a\nb"),
            (2, b"a\0"),
            (3, "\u{e9}@x".as_bytes()),
            (2, b"alice@example.org"),
            (2, b"CN=alice"),
            (2, b"192.0.2.1"),
            (2, b"2001:db8::1"),
            (2, b"keyid:00"),
            (2, b"*.example.org"),
            (3, b"alice"),
            (3, b"@example.org"),
            (3, b"alice@"),
            (3, b"CN=alice@example.org"),
            (9, b"CN=x"),
            (9, &[0x30, 0x03, 1]),
            (4, b"x"),
            (10, b"x"),
        ] {
            assert!(Identity::from_ike(kind, data).is_err(), "{kind} {data:?}");
        }
        assert!(Identity::from_ike(11, &[0; 4097]).is_err());
    }
}
