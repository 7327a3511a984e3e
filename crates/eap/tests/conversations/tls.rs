//! Conversations of EAP-TLS between both ends, in both versions of TLS.

use std::sync::Arc;

use crate::common::{Outcome, Table, flip_everything, mschapv2_config, password, talk};
use dormouse_crypto::cert::{CertError, Certificate, Identity, TrustStore, Verified};
use dormouse_crypto::sign::SigningKey;
use dormouse_eap::authenticator::{self, Config, Users};
use dormouse_eap::packet::Type;
use dormouse_eap::peer::{self, Credentials};
use dormouse_eap::tls::{ClientConfig, Clock, ConfigError, Own, ServerConfig};
use dormouse_eap::{Error, NtHash, limits};
use dormouse_sansio::{Seeded, UnixTime};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
    PKCS_RSA_SHA256, SanType, SignatureAlgorithm, date_time_ymd,
};

/// 2026-06-01, inside of the validity of every certificate here.
const NOW: u64 = 1_780_272_000;

type Ca = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2027, 1, 1));
    params
}

fn authority(name: &str) -> Ca {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a root")
}

fn store(ca: &Ca) -> TrustStore {
    TrustStore::new(vec![Certificate::from_der(ca.der()).expect("a certificate")]).expect("a store")
}

/// Certificate and key of who has this alternative name.
fn issue(
    params: CertificateParams,
    alg: &'static SignatureAlgorithm,
    ca: &Ca,
) -> (Certificate, Arc<SigningKey>) {
    let key = KeyPair::generate_for(alg).expect("a key");
    let certificate = params.signed_by(&key, ca).expect("a certificate");
    let key = SigningKey::from_der(key.serialized_der()).expect("a key of ours");
    (Certificate::from_der(certificate.der()).expect("a certificate"), Arc::new(key))
}

fn named(san: SanType) -> CertificateParams {
    let mut params = params("somebody");
    params.subject_alt_names = vec![san];
    params
}

fn mail(address: &str) -> SanType {
    SanType::Rfc822Name(address.try_into().expect("ASCII"))
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("ASCII"))
}

fn clock() -> Clock {
    Clock::new(|| UnixTime(NOW))
}

fn own((certificate, key): &(Certificate, Arc<SigningKey>)) -> Own {
    Own::new(std::slice::from_ref(certificate), Arc::clone(key)).expect("they belong together")
}

/// An authority, and what both sides have of it.
struct Pki {
    ca: Ca,
    gateway: (Certificate, Arc<SigningKey>),
    alice: (Certificate, Arc<SigningKey>),
}

impl Pki {
    fn new(alg: &'static SignatureAlgorithm) -> Self {
        let ca = authority("authority");
        let mut gateway = named(dns("vpn.example.com"));
        gateway.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut alice = named(mail("alice@example.com"));
        alice.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Self { gateway: issue(gateway, alg, &ca), alice: issue(alice, alg, &ca), ca }
    }

    fn server(&self) -> Arc<Config> {
        self.server_that_trusts(store(&self.ca))
    }

    fn server_that_trusts(&self, clients: TrustStore) -> Arc<Config> {
        let tls = ServerConfig::new(&own(&self.gateway), clients, clock()).expect("a configuration");
        Arc::new(Config::new(authenticator::Method::Tls(tls), Vec::new(), "gateway", &mut Seeded::new(1)))
    }

    fn client(&self) -> Credentials {
        self.client_with(&self.alice, store(&self.ca), "vpn.example.com", false)
    }

    fn client_with(
        &self,
        who: &(Certificate, Arc<SigningKey>),
        servers: TrustStore,
        server: &str,
        old: bool,
    ) -> Credentials {
        let make = if old { ClientConfig::version_12 } else { ClientConfig::new };
        let server: Identity = server.parse().expect("a name");
        let tls = make(&own(who), servers, server, clock()).expect("a configuration");
        Credentials { identity: "alice@example.com".to_owned(), method: peer::Method::Tls(tls) }
    }

    fn old_client(&self) -> Credentials {
        self.client_with(&self.alice, store(&self.ca), "vpn.example.com", true)
    }
}

fn nobody() -> Table {
    Table::new(&[])
}

fn run(client: Credentials, server: &Arc<Config>) -> Outcome {
    talk(client, server, None, &nobody(), |_, _| ())
}

#[test]
fn both_come_to_one_key_in_both_versions() {
    for alg in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519, &PKCS_RSA_SHA256] {
        let pki = Pki::new(alg);
        for client in [pki.client(), pki.old_client()] {
            assert!(client.method.suits_eap_only());
            let outcome = run(client, &pki.server());
            let Some(Ok(Some(msk))) = &outcome.client else { panic!("{outcome:?}") };
            assert_eq!(outcome.gateway, Some(Ok(("alice@example.com".to_owned(), msk.clone()))));
            assert_ne!(msk.as_bytes()[..32], [0; 32]);
            assert_ne!(msk.as_bytes()[32..], [0; 32]);
            assert_eq!(outcome.kinds()[..2], [Type::IDENTITY; 2]);
            assert_eq!(outcome.kinds()[2..], vec![Type::TLS; outcome.sent.len() - 3]);
        }
        let keys: Vec<_> = (0..2).map(|_| run(pki.client(), &pki.server()).client).collect();
        assert_ne!(keys[0], keys[1], "each conversation has its own");
    }
}

/// The user's name is in the certificate, whatever was claimed.
#[test]
fn the_name_is_the_certificates() {
    let pki = Pki::new(&PKCS_ED25519);
    let mut two = named(dns("phone.example.com"));
    two.subject_alt_names.push(mail("bob@example.com"));
    let plain = params("carol");
    for (params, claimed, name) in [
        (two.clone(), "bob@example.com", "bob@example.com"),
        (two.clone(), "alice@example.com", "phone.example.com"),
        (two, "\u{1}\u{2}", "phone.example.com"),
        (plain, "mallory", "CN=carol"),
    ] {
        let who = issue(params, &PKCS_ED25519, &pki.ca);
        let mut client = pki.client_with(&who, store(&pki.ca), "vpn.example.com", false);
        client.identity = claimed.to_owned();
        let outcome = run(client, &pki.server());
        assert!(matches!(&outcome.gateway, Some(Ok((proved, _))) if proved == name), "{outcome:?}");
    }
}

#[test]
fn clients_that_are_not_trusted() {
    let pki = Pki::new(&PKCS_ECDSA_P256_SHA256);
    let stranger = authority("stranger");
    let mut late = named(mail("alice@example.com"));
    late.not_after = date_time_ymd(2026, 2, 1);
    let mut server_only = named(mail("alice@example.com"));
    server_only.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let alg = &PKCS_ECDSA_P256_SHA256;
    for (who, text) in [
        (issue(named(mail("alice@example.com")), alg, &stranger), "which is not trusted"),
        (issue(late, alg, &pki.ca), "expired at 2026-02-01"),
        (issue(server_only, alg, &pki.ca), "serverAuth"),
    ] {
        for old in [false, true] {
            let client = pki.client_with(&who, store(&pki.ca), "vpn.example.com", old);
            let outcome = run(client, &pki.server());
            let Some(Err(Error::Certificate(why))) = &outcome.gateway else { panic!("{outcome:?}") };
            assert!(why.to_string().contains(text), "{why}");
            let Some(Err(Error::Tls(why))) = &outcome.client else { panic!("{outcome:?}") };
            assert!(why.contains("the other side broke it off"), "{why}");
        }
    }
}

#[test]
fn servers_that_are_not_trusted() {
    let pki = Pki::new(&PKCS_ECDSA_P256_SHA256);
    let stranger = authority("stranger");
    for old in [false, true] {
        let client = pki.client_with(&pki.alice, store(&stranger), "vpn.example.com", old);
        let outcome = run(client, &pki.server());
        assert!(
            matches!(&outcome.client, Some(Err(Error::Certificate(CertError::UnknownIssuer { .. })))),
            "{outcome:?}"
        );
        assert!(matches!(&outcome.gateway, Some(Err(Error::Tls(_)))), "{outcome:?}");
        // The authority vouches for others as well: another gateway, or a user who plays one.
        let client = pki.client_with(&pki.alice, store(&pki.ca), "other.example.com", old);
        let outcome = run(client, &pki.server());
        assert!(
            matches!(&outcome.client, Some(Err(Error::Certificate(CertError::Identity { .. })))),
            "{outcome:?}"
        );
        let tls = ServerConfig::new(&own(&pki.alice), store(&pki.ca), clock()).expect("a configuration");
        let config = Config::new(authenticator::Method::Tls(tls), Vec::new(), "x", &mut Seeded::new(1));
        let client = pki.client_with(&pki.alice, store(&pki.ca), "alice@example.com", old);
        let outcome = run(client, &Arc::new(config));
        assert!(
            matches!(&outcome.client, Some(Err(Error::Certificate(CertError::ExtendedKeyUsage { .. })))),
            "{outcome:?}"
        );
    }
}

/// Who is revoked or denied has a good certificate all the same.
#[test]
fn a_user_who_may_not_come_in() {
    struct Denies(Certificate);
    impl Users for Denies {
        fn mschapv2(&self, _user: &str) -> Option<NtHash> {
            None
        }
        fn admits(
            &self,
            certificate: &Certificate,
            verified: &Verified,
            claimed: Option<&str>,
        ) -> Result<String, String> {
            assert_eq!(verified.chain[0].serial, certificate.serial());
            if *certificate == self.0 {
                return Err("revoked".to_owned());
            }
            Ok(claimed.expect("it has said who it is").to_owned())
        }
    }
    let pki = Pki::new(&PKCS_ED25519);
    for client in [pki.client(), pki.old_client()] {
        let outcome = talk(client, &pki.server(), None, &Denies(pki.alice.0.clone()), |_, _| ());
        assert_eq!(outcome.gateway, Some(Err(Error::NotAdmitted("revoked".to_owned()))));
        assert_eq!(outcome.client, Some(Err(Error::Refused(None))));
    }
    let other = Denies(pki.gateway.0.clone());
    assert!(matches!(talk(pki.client(), &pki.server(), None, &other, |_, _| ()).client, Some(Ok(Some(_)))));
}

#[test]
fn a_certificate_that_is_trusted_as_it_is() {
    let pki = Pki::new(&PKCS_ED25519);
    let stranger = authority("stranger");
    let who = issue(named(mail("alice@example.com")), &PKCS_ED25519, &stranger);
    let pinned = TrustStore::new(vec![who.0.clone()]).expect("a store");
    let client = pki.client_with(&who, store(&pki.ca), "vpn.example.com", false);
    assert!(matches!(run(client, &pki.server_that_trusts(pinned)).client, Some(Ok(Some(_)))));
}

/// A certificate of many kilobytes crosses in fragments that fit a packet each.
#[test]
fn long_certificates_come_in_fragments() {
    let mut pki = Pki::new(&PKCS_ED25519);
    let long = |san| {
        let mut params = named(san);
        let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![4; 9_000]);
        params.custom_extensions.push(extension);
        params
    };
    pki.gateway = issue(long(dns("vpn.example.com")), &PKCS_ED25519, &pki.ca);
    pki.alice = issue(long(mail("alice@example.com")), &PKCS_ED25519, &pki.ca);
    for client in [pki.client(), pki.old_client()] {
        let outcome = run(client, &pki.server());
        assert!(matches!(outcome.client, Some(Ok(Some(_)))), "{outcome:?}");
        assert!((40..60).contains(&outcome.sent.len()), "{}", outcome.sent.len());
        assert!(outcome.sent.iter().all(|packet| packet.len() <= limits::TLS_FRAGMENT + 10));
    }
}

#[test]
fn every_flipped_byte() {
    let pki = Pki::new(&PKCS_ED25519);
    let server = pki.server();
    for old in [false, true] {
        let fine = flip_everything(&[0x11], |way| {
            let client = if old { pki.old_client() } else { pki.client() };
            talk(client, &server, None, &nobody(), |n, packet| way(n, packet))
        });
        // What the client claims to be, versions in headers of records, bits of flags that mean nothing.
        assert!((1..100).contains(&fine.len()), "{fine:?}");
    }
}

/// Success that is claimed before the server has accepted us, or before it has proved itself.
#[test]
fn success_that_comes_too_early() {
    let pki = Pki::new(&PKCS_ED25519);
    let whole = run(pki.client(), &pki.server()).sent.len();
    for turn in (0..whole - 1).step_by(2) {
        let outcome = talk(pki.client(), &pki.server(), None, &nobody(), |n, packet| {
            if n == turn {
                *packet = vec![3, packet[1], 0, 4];
            }
        });
        assert_eq!(outcome.client, Some(Err(Error::EarlySuccess)), "{turn}");
    }
}

/// Packets of EAP-TLS at the wrong time.
#[test]
fn out_of_turn() {
    let pki = Pki::new(&PKCS_ED25519);
    let replaced = |turn: usize, data: &[u8]| {
        talk(pki.client(), &pki.server(), None, &nobody(), |n, packet| {
            if n == turn {
                packet.truncate(5);
                packet.extend(data);
                let len = u16::try_from(packet.len()).expect("short").to_be_bytes();
                packet[2..4].copy_from_slice(&len);
            }
        })
    };
    // No start; a second one; nothing where the server's flight is due.
    assert!(matches!(replaced(2, &[0]).client, Some(Err(Error::Unexpected(_)))));
    assert!(matches!(replaced(4, &[0x20]).client, Some(Err(Error::Unexpected(_)))));
    assert!(matches!(replaced(4, &[0]).client, Some(Err(Error::Unexpected(_)))));
    // Something where the client has nothing to say.
    assert!(matches!(replaced(7, b"\0GET / HTTP/1.1\r\n").gateway, Some(Err(Error::Tls(_)))));
    // Nothing where the client's flight is due; bytes that are no TLS.
    assert_eq!(replaced(3, &[0]).gateway, Some(Err(Error::PeerRefused)));
    assert!(matches!(replaced(3, b"\0GET / HTTP/1.1\r\n").gateway, Some(Err(Error::Tls(_)))));
}

#[test]
fn the_peer_names_the_method_that_it_has() {
    let pki = Pki::new(&PKCS_ED25519);
    let tls = || ServerConfig::new(&own(&pki.gateway), store(&pki.ca), clock()).expect("a configuration");
    let (first, second) = (authenticator::Method::MsChapV2, authenticator::Method::Tls(tls()));
    let users = Table::new(&[("alice", "correct horse")]);
    for (methods, naks) in [([first.clone(), second.clone()], [1, 0]), ([second, first], [0, 1])] {
        let [one, other] = methods;
        let config = Arc::new(Config::new(one, vec![other], "gateway", &mut Seeded::new(1)));
        for (client, naks) in [pki.client(), password("alice", "correct horse")].into_iter().zip(naks) {
            let outcome = talk(client, &config, None, &users, |_, _| ());
            assert!(matches!(outcome.client, Some(Ok(Some(_)))), "{outcome:?}");
            assert_eq!(outcome.kinds().iter().filter(|kind| **kind == Type::NAK).count(), naks);
        }
    }
    // Neither side has what the other wants.
    let outcome = talk(pki.client(), &mschapv2_config(), None, &users, |_, _| ());
    assert_eq!(outcome.gateway, Some(Err(Error::NoCommonMethod(vec![Type::TLS]))));
    let why = Error::OtherMethod { offered: Type::MSCHAPV2, wanted: Type::TLS };
    assert_eq!(outcome.client, Some(Err(why)));
}

#[test]
fn a_key_of_another_certificate() {
    let pki = Pki::new(&PKCS_ED25519);
    let wrong = Own::new(std::slice::from_ref(&pki.alice.0), Arc::clone(&pki.gateway.1));
    assert_eq!(wrong.err(), Some(ConfigError::OtherKey("CN=somebody".to_owned())));
    assert_eq!(Own::new(&[], Arc::clone(&pki.gateway.1)).err(), Some(ConfigError::NoCertificate));
    // Nothing of a key is shown.
    assert!(!format!("{:?}", own(&pki.alice)).contains("PRIVATE"));
}
