//! What a certificate may be used for (RFC 4945, section 5.1.3). Owns the rules on the key-usage extensions alone.

use der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::{KeyUsage, KeyUsages};

/// Which extended key usages make a certificate good for IKE. A certificate without the extension always is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Usage {
    /// Those of RFC 4945, section 5.1.3.12: `ipsecIKE` or `anyExtendedKeyUsage`; and those that came before it and are still
    /// found (`ipsecEndSystem`, `ipsecTunnel`, `ipsecUser`, `iKEIntermediate`).
    #[default]
    Ike,
    /// Also `serverAuth`: for gateways that run on a certificate made for the web.
    IkeOrServerAuth,
    /// Also `clientAuth`: for devices that run on a certificate made for TLS.
    IkeOrClientAuth,
}

const ANY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// The purposes that IPsec was ever given, newest first, with their names.
const IPSEC: [(ObjectIdentifier, &str); 5] = [
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.17"), "ipsecIKE"),
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.5"), "ipsecEndSystem"),
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.6"), "ipsecTunnel"),
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.7"), "ipsecUser"),
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.8.2.2"), "iKEIntermediate"),
];

impl Usage {
    /// Whether a certificate with these extended key usages may be used.
    pub(super) fn admits(self, purposes: Option<&[ObjectIdentifier]>) -> bool {
        let admitted = |purpose: &ObjectIdentifier| {
            *purpose == ANY
                || IPSEC.iter().any(|(oid, _)| oid == purpose)
                || (self == Self::IkeOrServerAuth && *purpose == SERVER_AUTH)
                || (self == Self::IkeOrClientAuth && *purpose == CLIENT_AUTH)
        };
        purposes.is_none_or(|purposes| purposes.iter().any(admitted))
    }

    /// In words, for an error message.
    pub(super) const fn accepted(self) -> &'static str {
        match self {
            Self::Ike => "ipsecIKE or anyExtendedKeyUsage",
            Self::IkeOrServerAuth => "ipsecIKE, anyExtendedKeyUsage or serverAuth",
            Self::IkeOrClientAuth => "ipsecIKE, anyExtendedKeyUsage or clientAuth",
        }
    }
}

/// Names of extended key usages, for an error message.
pub(super) fn describe_purposes(purposes: &[ObjectIdentifier]) -> String {
    let name = |oid: &ObjectIdentifier| match *oid {
        SERVER_AUTH => "serverAuth".to_owned(),
        CLIENT_AUTH => "clientAuth".to_owned(),
        _ => IPSEC
            .iter()
            .find(|(known, _)| known == oid)
            .map_or_else(|| oid.to_string(), |(_, n)| (*n).to_owned()),
    };
    purposes.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// RFC 4945, section 5.1.3.2: the peer's certificate must allow digitalSignature or nonRepudiation, if it says anything.
pub(super) fn may_sign(usage: Option<KeyUsage>) -> bool {
    usage.is_none_or(|usage| {
        usage.0.contains(KeyUsages::DigitalSignature) || usage.0.contains(KeyUsages::NonRepudiation)
    })
}

/// RFC 5280, section 4.2.1.3: a CA's certificate must allow keyCertSign, if it says anything.
pub(super) fn may_certify(usage: Option<KeyUsage>) -> bool {
    usage.is_none_or(|usage| usage.0.contains(KeyUsages::KeyCertSign))
}

/// RFC 5280, section 4.2.1.3: the certificate of who signs CRLs must allow cRLSign, if it says anything.
pub(super) fn may_sign_lists(usage: Option<KeyUsage>) -> bool {
    usage.is_none_or(|usage| usage.0.contains(KeyUsages::CRLSign))
}

/// Names of key usages, for an error message.
pub(super) fn describe_usage(usage: KeyUsage) -> String {
    let names = [
        (KeyUsages::DigitalSignature, "digitalSignature"),
        (KeyUsages::NonRepudiation, "nonRepudiation"),
        (KeyUsages::KeyEncipherment, "keyEncipherment"),
        (KeyUsages::DataEncipherment, "dataEncipherment"),
        (KeyUsages::KeyAgreement, "keyAgreement"),
        (KeyUsages::KeyCertSign, "keyCertSign"),
        (KeyUsages::CRLSign, "cRLSign"),
        (KeyUsages::EncipherOnly, "encipherOnly"),
        (KeyUsages::DecipherOnly, "decipherOnly"),
    ];
    names
        .iter()
        .filter(|(bit, _)| usage.0.contains(*bit))
        .map(|(_, name)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}
