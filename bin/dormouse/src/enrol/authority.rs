//! A small certification authority: one key, one certificate, and what it issues. Owns what stands in the certificates, so that the clients
//! that systems ship accept them; never writes a file.
//!
//! Its own key is on P-256, which every client can verify. Theirs are on P-256, or RSA for the clients that know nothing else. The authority may issue end certificates alone (path length 0). A gateway's certificate
//! has its name or address as a subject alternative name, `serverAuth` (Apple, Windows) and `iKEIntermediate` (Apple's older systems), and
//! `ipsecIKE` (RFC 4945), and counts for 825 days at most, which is Apple's bound.

use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::{Certificate, Identity, KnownPaths, TrustStore, Usage};
use dormouse_crypto::sign::{KeyKind, NewKey, PublicKey};
use dormouse_sansio::UnixTime;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SignatureAlgorithm,
};
use std::time::Duration;
use time::OffsetDateTime;
use zeroize::Zeroize as _;

/// The longest that a certificate of a gateway or a user counts, in days.
pub(crate) const MOST_DAYS: u32 = 825;
/// How long the authority's own counts, in days.
const AUTHORITY_DAYS: u32 = 3650;
const DAY: Duration = Duration::from_secs(86_400);
/// A certificate counts from so long before now: clocks of others are slow.
const SLOW: Duration = Duration::from_secs(3600);

/// `iKEIntermediate`.
const IKE_INTERMEDIATE: [u64; 9] = [1, 3, 6, 1, 5, 5, 8, 2, 2];
/// `ipsecIKE` (RFC 4945, section 5.1.3.12).
const IPSEC_IKE: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 17];

/// For whom a certificate is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// The gateway.
    Gateway,
    /// A user's device.
    Device,
}

/// A key and its certificate, as PEM.
pub(crate) struct Issued {
    /// The private key.
    pub(crate) key: Secret,
    /// The certificate.
    pub(crate) pem: String,
    /// The same, read.
    pub(crate) certificate: Certificate,
}

/// See the module's text. Its key is wiped when it is dropped.
pub(crate) struct Authority {
    name: String,
    key: KeyPair,
    pem: String,
    certificate: Certificate,
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Other, format!("{what}: {error}"))
}

fn at(time: UnixTime) -> Result<OffsetDateTime, Error> {
    let seconds = i64::try_from(time.0).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|e| failed("the clock", e))
}

/// A day as people write it.
pub(crate) fn day(time: UnixTime) -> String {
    at(time)
        .map_or_else(|_| "?".into(), |t| format!("{:04}-{:02}-{:02}", t.year(), u8::from(t.month()), t.day()))
}

fn new_key(kind: NewKey) -> Result<(Secret, KeyPair), Error> {
    let secret = kind.pem().ok_or_else(|| failed("a new key", "the library made none"))?;
    let pair = key_pair(&secret)?;
    Ok((secret, pair))
}

fn key_pair(pem: &Secret) -> Result<KeyPair, Error> {
    let text = str::from_utf8(pem.as_bytes()).map_err(|e| failed("the key", e))?;
    KeyPair::from_pem(text).map_err(|e| failed("the key", e))
}

impl Authority {
    /// A new one, and what [`Authority::load`] reads.
    pub(crate) fn new(name: &str, now: UnixTime) -> Result<(Self, Secret), Error> {
        let (secret, key) = new_key(NewKey::EcdsaP256)?;
        let mut params = Self::params(name);
        params.not_before = at(UnixTime(now.0.saturating_sub(SLOW.as_secs())))?;
        params.not_after = at(now + DAY * AUTHORITY_DAYS)?;
        let made = params.self_signed(&key).map_err(|e| failed("the authority's certificate", e))?;
        let both = Secret::concat(&[secret.as_bytes(), made.pem().as_bytes()]);
        Ok((Self::of(made.pem(), key)?, both))
    }

    /// The one that this file is of: its key, then its certificate, as PEM. One file, so that neither is there without the other.
    pub(crate) fn load(file: &Secret) -> Result<Self, Error> {
        const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
        let text = str::from_utf8(file.as_bytes()).map_err(|e| failed("the authority's file", e))?;
        let at =
            text.find(BEGIN).ok_or_else(|| failed("the authority's file", "no certificate after the key"))?;
        let (key, pem) = text.split_at(at);
        Self::of(pem.to_owned(), key_pair(&Secret::from(key.as_bytes()))?)
    }

    fn of(pem: String, key: KeyPair) -> Result<Self, Error> {
        let certificate = Certificate::from_pem(pem.as_bytes()).map_err(|e| failed("ca.pem", e))?;
        // What is issued names its issuer as this writes it; a name of another form would not be the same.
        let name = certificate.subject().strip_prefix("CN=").map(str::to_owned);
        let name =
            name.ok_or_else(|| failed("ca.pem", "its name has more than a CN: not made by dormouse"))?;
        Ok(Self { name, key, pem, certificate })
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// Its own certificate, as PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Until when it counts.
    pub(crate) fn not_after(&self) -> UnixTime {
        self.certificate.not_after()
    }

    /// A new key of a kind for `identity`, and its certificate for so many days.
    ///
    /// # Errors
    /// If these are none or too many, if the authority itself ends before, or if the result would not be believed.
    pub(crate) fn issue(
        &self,
        holder: Holder,
        kind: NewKey,
        identity: &Identity,
        now: UnixTime,
        days: u32,
    ) -> Result<Issued, Error> {
        if !(1..=MOST_DAYS).contains(&days) {
            let message =
                format!("{days} days: 1 to {MOST_DAYS} are accepted, which is what Apple's devices take");
            return Err(Error::new(ErrorKind::Request, message));
        }
        let (from, until) = lasts(now, DAY * days);
        if until > self.not_after() {
            let message = format!("the authority itself ends on {}", day(self.not_after()));
            let left = self.not_after().saturating_since(now).as_secs() / DAY.as_secs();
            let change = match left {
                0 => "docs/administrator.md, \"When the authority ends\"".to_owned(),
                left => format!("--days {left}"),
            };
            return Err(Error::new(ErrorKind::Other, message).with_change(change));
        }
        let (secret, mut key) = new_key(kind)?;
        let made = self.certify(holder, &key, identity, (from, until));
        key.zeroize();
        let (pem, certificate) = made?;
        self.vouch(&certificate, now)?;
        Ok(Issued { key: secret, pem, certificate })
    }

    /// Another certificate of a device for a key that it has made itself: for `lasts`, or as long as the authority itself counts.
    ///
    /// # Errors
    /// If the result would not be believed.
    pub(crate) fn reissue(
        &self,
        key: &PublicKey,
        identity: &Identity,
        now: UnixTime,
        lasts_for: Duration,
    ) -> Result<Certificate, Error> {
        let (from, until) = lasts(now, lasts_for.min(DAY * MOST_DAYS));
        let until = until.min(self.not_after());
        let (_, certificate) = self.certify(Holder::Device, &OfDevice(key), identity, (from, until))?;
        self.vouch(&certificate, now)?;
        Ok(certificate)
    }

    /// What the certificates say that this authority issues.
    fn certify(
        &self,
        holder: Holder,
        key: &impl PublicKeyData,
        identity: &Identity,
        (from, until): (UnixTime, UnixTime),
    ) -> Result<(String, Certificate), Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, identity.to_string());
        params.subject_alt_names = vec![alternative_name(identity)?];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let other = |oid: &[u64]| ExtendedKeyUsagePurpose::Other(oid.to_vec());
        params.extended_key_usages = match holder {
            Holder::Gateway => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, other(&IKE_INTERMEDIATE), other(&IPSEC_IKE)]
            }
            Holder::Device => vec![ExtendedKeyUsagePurpose::ClientAuth, other(&IPSEC_IKE)],
        };
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (at(from)?, at(until)?);
        let issuer = Issuer::new(Self::params(&self.name), &self.key);
        let made = params.signed_by(key, &issuer).map_err(|e| failed("the certificate", e))?;
        let pem = made.pem();
        let certificate = Certificate::from_pem(pem.as_bytes()).map_err(|e| failed("the certificate", e))?;
        Ok((pem, certificate))
    }

    /// Whether this certificate is one that this authority has issued, also if it has ended.
    pub(crate) fn has_issued(&self, certificate: &Certificate) -> bool {
        self.vouch(certificate, certificate.not_after()).is_ok()
    }

    /// Whether who trusts `ca.pem` believes this certificate: not if the key is another certificate's.
    fn vouch(&self, certificate: &Certificate, now: UnixTime) -> Result<(), Error> {
        let trust = TrustStore::new(vec![self.certificate.clone()]).map_err(|e| failed("ca.pem", e))?;
        let believed = trust.verify(certificate, &[], now, Usage::Ike, &KnownPaths::default());
        believed
            .map(|_| ())
            .map_err(|e| failed("what ca/ca.key signs is not believed by who trusts ca.pem", e))
    }
}

/// From when to when something counts that counts for so long: from when on belongs to it.
fn lasts(now: UnixTime, lasts: Duration) -> (UnixTime, UnixTime) {
    let from = UnixTime(now.0.saturating_sub(SLOW.as_secs()));
    (from, from + lasts)
}

/// A device's key, as the library takes it.
struct OfDevice<'k>(&'k PublicKey);

impl PublicKeyData for OfDevice<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.bits()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        // Of these, what a SubjectPublicKeyInfo says: the hash does not stand there.
        match self.0.kind() {
            KeyKind::Rsa { .. } => &rcgen::PKCS_RSA_SHA256,
            KeyKind::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyKind::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            KeyKind::EcdsaP521 => &rcgen::PKCS_ECDSA_P521_SHA512,
            KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
        }
    }
}

/// A new key, as PEM, and a request in DER for a certificate of it with these names (PKCS #10). The request is no secret.
pub(crate) fn request(kind: NewKey, identity: &Identity) -> Result<(Secret, Vec<u8>), Error> {
    let (secret, mut key) = new_key(kind)?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, identity.to_string());
    params.subject_alt_names = vec![alternative_name(identity)?];
    let made = params.serialize_request(&key).map_err(|e| failed("the request", e));
    key.zeroize();
    Ok((secret, made?.der().to_vec()))
}

fn alternative_name(identity: &Identity) -> Result<SanType, Error> {
    let text = |text: &str| text.to_owned().try_into().map_err(|e| failed("the name", e));
    match identity {
        Identity::Fqdn(name) => Ok(SanType::DnsName(text(name)?)),
        Identity::Email(name) => Ok(SanType::Rfc822Name(text(name)?)),
        Identity::Ip(ip) => Ok(SanType::IpAddress(*ip)),
        other => {
            Err(failed("the name", format!("{other} cannot stand in a certificate's alternative names")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn authority() -> Authority {
        Authority::new("A test", NOW).unwrap().0
    }

    #[test]
    fn what_is_issued_names_its_holder_and_is_believed() {
        let ca = authority();
        for (holder, name) in [
            (Holder::Gateway, "vpn.example.org"),
            (Holder::Gateway, "2001:db8::1"),
            (Holder::Device, "joe.vpn.example.org"),
            (Holder::Device, "joe@example.org"),
        ] {
            let identity: Identity = name.parse().unwrap();
            let issued = ca.issue(holder, NewKey::EcdsaP256, &identity, NOW, MOST_DAYS).unwrap();
            issued.certificate.require(&identity).unwrap();
            let lasts = issued.certificate.not_after().saturating_since(issued.certificate.not_before());
            assert!(lasts <= DAY * 825, "Apple's bound: {lasts:?}");
            assert!(!issued.certificate.is_ca());
        }
    }

    /// What the makers of clients demand of a gateway's certificate, in its bytes (docs/clients.md): Apple a subject alternative name, `serverAuth`,
    /// SHA-2 and at most 825 days; Windows `serverAuth`, and recommended `iKEIntermediate`; Android a key of RSA, where that was asked for.
    #[test]
    fn a_gateways_certificate_has_in_der_what_the_makers_of_clients_demand() {
        use dormouse_crypto::sign::KeyKind;
        let ca = authority();
        let has = |der: &[u8], bytes: &[u8]| der.windows(bytes.len()).any(|w| w == bytes);
        let ecdsa_sha256 = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
        for (kind, wanted) in
            [(NewKey::EcdsaP256, KeyKind::EcdsaP256), (NewKey::Rsa3072, KeyKind::Rsa { bits: 3072 })]
        {
            for (name, san) in [
                ("vpn.example.org", &b"\x82\x0fvpn.example.org"[..]),
                ("192.0.2.1", &[0x87, 4, 192, 0, 2, 1]),
            ] {
                let issued = ca.issue(Holder::Gateway, kind, &name.parse().unwrap(), NOW, MOST_DAYS).unwrap();
                let der = issued.certificate.der();
                // subjectAltName, the key usage digitalSignature, and no CA.
                assert!(has(der, &[6, 3, 0x55, 0x1d, 0x11]) && has(der, san), "{name}");
                assert!(has(der, &[6, 3, 0x55, 0x1d, 0x0f, 1, 1, 0xff, 4, 4, 3, 2, 7, 0x80]), "{name}");
                assert!(!issued.certificate.is_ca(), "{name}");
                // extendedKeyUsage: serverAuth, iKEIntermediate, ipsecIKE.
                assert!(has(der, &[6, 3, 0x55, 0x1d, 0x25]), "{name}");
                for usage in [
                    &[6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1][..],
                    &[6, 8, 0x2b, 6, 1, 5, 5, 8, 2, 2],
                    &[6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 17],
                ] {
                    assert!(has(der, usage), "{name}: {usage:x?}");
                }
                assert!(has(der, &ecdsa_sha256), "signed with SHA-2");
                assert_eq!(issued.certificate.public_key().unwrap().kind(), wanted, "{name}");
                let lasts = issued.certificate.not_after().saturating_since(issued.certificate.not_before());
                assert!(lasts <= DAY * 825, "{name}: {lasts:?}");
            }
        }
        let der = ca.certificate.der().to_vec();
        // basicConstraints, critical: a CA whose path has no other below it; keyCertSign and cRLSign.
        assert!(has(&der, &[6, 3, 0x55, 0x1d, 0x13, 1, 1, 0xff, 4, 8, 0x30, 6, 1, 1, 0xff, 2, 1, 0]));
        assert!(has(&der, &[6, 3, 0x55, 0x1d, 0x0f, 1, 1, 0xff, 4, 4, 3, 2, 1, 6]));
        assert!(has(&der, &[6, 3, 0x55, 0x1d, 0x0e]), "a subject key identifier");
    }

    #[test]
    fn an_authority_that_is_loaded_issues_as_before_and_a_wrong_key_is_noticed() {
        let (ca, key) = Authority::new("A test", NOW).unwrap();
        let identity: Identity = "joe.example.org".parse().unwrap();
        let again = Authority::load(&key).unwrap();
        let issued = again.issue(Holder::Device, NewKey::EcdsaP256, &identity, NOW, 1).unwrap();
        ca.vouch(&issued.certificate, NOW).unwrap();
        let (_, other) = Authority::new("A test", NOW).unwrap();
        let file = |key: &[u8], pem: &str| {
            let text = String::from_utf8(key.to_vec()).unwrap();
            let key = text.split("-----BEGIN CERT").next().unwrap();
            Authority::load(&Secret::from(format!("{key}{pem}").as_bytes()))
        };
        let strange = file(other.as_bytes(), ca.pem()).unwrap();
        let error = strange.issue(Holder::Device, NewKey::EcdsaP256, &identity, NOW, 1).err().unwrap();
        assert!(error.message.contains("is not believed by who trusts ca.pem"), "{error}");
        for (key, pem, said) in [
            (key.as_bytes(), "-----BEGIN CERTIFICATE-----\nnonsense", "ca.pem: "),
            (b"nonsense\n", ca.pem(), "the key: "),
            (key.as_bytes(), "", "the authority's file: no certificate after the key"),
        ] {
            let error = file(key, pem).err().unwrap();
            assert!(error.message.starts_with(said), "{error}");
        }
    }

    #[test]
    fn lifetimes_have_bounds() {
        let (ca, joe) = (authority(), "joe.example.org".parse::<Identity>().unwrap());
        for days in [0, 826] {
            let error = ca.issue(Holder::Device, NewKey::EcdsaP256, &joe, NOW, days).err().unwrap();
            assert!(error.message.contains("1 to 825 are accepted"), "{error}");
        }
        let late = NOW + DAY * (AUTHORITY_DAYS - 10);
        let error = ca.issue(Holder::Device, NewKey::EcdsaP256, &joe, late, 100).err().unwrap();
        assert!(error.message.starts_with("the authority itself ends on 20"), "{error}");
        assert_eq!(error.change.as_deref(), Some("--days 10"));
        ca.issue(Holder::Device, NewKey::EcdsaP256, &joe, late, 10).unwrap();
        for days in [AUTHORITY_DAYS, AUTHORITY_DAYS + 400] {
            let error = ca.issue(Holder::Device, NewKey::EcdsaP256, &joe, NOW + DAY * days, 1).err().unwrap();
            assert!(error.change.unwrap().contains("When the authority ends"));
        }
    }

    #[test]
    fn a_device_that_has_made_its_key_itself_gets_a_certificate_of_it() {
        use dormouse_crypto::cert::Request;
        let ca = authority();
        let joe: Identity = "joe.example.org".parse().unwrap();
        for kind in [NewKey::EcdsaP256, NewKey::EcdsaP384, NewKey::Rsa2048] {
            let (secret, der) = request(kind, &joe).unwrap();
            let asked = Request::from_der(&der).unwrap();
            let made = ca.reissue(asked.key(), &joe, NOW, DAY * 90).unwrap();
            let own = dormouse_crypto::sign::SigningKey::from_pem(secret.as_bytes()).unwrap();
            assert_eq!(made.public_key().unwrap(), *own.public_key());
            assert_eq!((made.require(&joe).unwrap(), made.key_hash()), (joe.clone(), asked.key_hash()));
            let names: Vec<String> = asked.names().iter().map(ToString::to_string).collect();
            assert_eq!(names, ["CN=joe.example.org", "joe.example.org"]);
            assert!(
                made.identities().iter().all(|own| asked.names().iter().any(|name| name.is_same_as(own)))
            );
            assert!(ca.has_issued(&made) && made.not_after() > NOW + DAY * 89);
        }
        let (_, der) = request(NewKey::EcdsaP256, &joe).unwrap();
        let key = Request::from_der(&der).unwrap();
        let late = NOW + DAY * (AUTHORITY_DAYS - 10);
        let made = ca.reissue(key.key(), &joe, late, DAY * 365).unwrap();
        assert_eq!(made.not_after(), ca.not_after(), "nothing outlives the authority");
        assert!(ca.reissue(key.key(), &joe, NOW, DAY * 9999).unwrap().not_after() < NOW + DAY * 826);
        assert!(ca.reissue(key.key(), &joe, ca.not_after() + DAY, DAY).is_err());
    }

    /// What other programs read in them: OpenSSL's words.
    #[test]
    fn others_find_in_the_certificates_what_their_clients_ask_for() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let ca = authority();
        let gateway = ca
            .issue(Holder::Gateway, NewKey::EcdsaP256, &"vpn.example.org".parse().unwrap(), NOW, 825)
            .unwrap();
        let words = |pem: &str| -> Option<String> {
            let mut openssl = Command::new("openssl")
                .args(["x509", "-noout", "-text"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .ok()?;
            openssl.stdin.take()?.write_all(pem.as_bytes()).ok()?;
            let out = openssl.wait_with_output().ok()?;
            Some(String::from_utf8_lossy(&out.stdout).into_owned())
        };
        let Some(text) = words(ca.pem()) else {
            println!("skipped: no openssl");
            return;
        };
        assert!(text.contains("CA:TRUE, pathlen:0") && text.contains("Certificate Sign, CRL Sign"), "{text}");
        let text = words(&gateway.pem).unwrap();
        for part in [
            "DNS:vpn.example.org",
            "TLS Web Server Authentication, 1.3.6.1.5.5.8.2.2, ipsec Internet Key Exchange",
            "CA:FALSE",
            "Digital Signature",
            "prime256v1",
            "Authority Key Identifier",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
