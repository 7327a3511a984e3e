use std::sync::Arc;

use dormouse_crypto::cert::{TrustStore, Usage};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};

use super::*;

/// [`super::verify`] without remembered paths.
fn verify(
    proof: &Proof<'_>,
    connection: &Connection,
    auth: &Authentication,
    certificates: &[Certificate],
    at: UnixTime,
) -> Result<Believed, AuthError> {
    super::verify(proof, connection, auth, certificates, at, &mut KnownPaths::default())
}

fn prove(proof: &Proof<'_>, local: &LocalAuth, hashes: Option<&[u16]>) -> Result<Authentication, AuthError> {
    match authenticate(proof, local, hashes, |_| false)? {
        Proving::Done(authentication) => Ok(authentication),
        Proving::Sign(order) => Ok(order.sign()?),
    }
}
use crate::config::IdentityPattern;

/// In the year 2026, within the validity that rcgen gives.
const NOW: UnixTime = UnixTime(1_780_000_000);
const HASHES: [u16; 4] = Scheme::HASH_IDS;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    trust: Arc<TrustStore>,
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = params.self_signed(&key).unwrap();
    let trusted = Certificate::from_der(certificate.der()).unwrap();
    Authority { issuer: Issuer::new(params, key), trust: Arc::new(TrustStore::new(vec![trusted]).unwrap()) }
}

impl Authority {
    fn certify(&self, name: &str, key: KeyPair) -> LocalAuth {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        LocalAuth::Cert {
            key: Arc::new(SigningKey::from_der(&key.serialize_der()).unwrap()),
            chain: vec![certificate.der().to_vec()],
        }
    }
}

fn key(algorithm: &'static rcgen::SignatureAlgorithm) -> KeyPair {
    KeyPair::generate_for(algorithm).unwrap()
}

fn identity_of(name: &str) -> Identity {
    name.parse().unwrap()
}

fn connection(remote: &str, remote_auth: RemoteAuth) -> Connection {
    let psk = LocalAuth::Psk(Secret::from([1; 16]));
    let pattern = IdentityPattern::Exact(identity_of(remote));
    Connection::new("c", identity_of("here.example"), psk, pattern, remote_auth)
}

fn by_cert(authority: &Authority) -> RemoteAuth {
    RemoteAuth::Cert {
        trust: authority.trust.clone(),
        usage: Usage::Ike,
        accept_rsa_sha1: false,
        revocation: Default::default(),
    }
}

fn chain_of(local: &LocalAuth) -> Vec<Certificate> {
    certificates(&cert_payloads(local)).unwrap()
}

struct Scene {
    sk_p: Secret,
    id: Id,
}

impl Scene {
    fn new(name: &str) -> Self {
        Self { sk_p: Secret::from([3; 32]), id: id_payload(&identity_of(name)) }
    }

    fn proof(&self) -> Proof<'_> {
        Proof {
            prf: Prf::HmacSha256,
            sk_p: &self.sk_p,
            message: b"the first message",
            nonce: &[9; 32],
            id: &self.id,
            int_auth: &[],
        }
    }
}

#[test]
fn the_signed_octets_are_message_nonce_and_maced_identity() {
    let scene = Scene::new("gateway.example");
    let body = [&[2, 0, 0, 0][..], b"gateway.example"].concat();
    let maced = PrfKey::new(Prf::HmacSha256, &[3; 32]).compute(&[&body]);
    let expected = [&b"the first message"[..], &[9; 32], maced.as_bytes()].concat();
    assert_eq!(scene.proof().octets(), expected);
}

#[test]
fn the_reserved_bytes_of_a_received_identity_count() {
    let scene = Scene::new("gateway.example");
    let odd = Id { reserved: [0, 1, 0], ..scene.id.clone() };
    assert_ne!(Proof { id: &odd, ..scene.proof() }.octets(), scene.proof().octets());
}

#[test]
fn a_shared_key_proves_itself_and_every_difference_shows() {
    let scene = Scene::new("gateway.example");
    let psk = Secret::from(*b"correct horse battery staple");
    let auth = prove(&scene.proof(), &LocalAuth::Psk(psk.clone()), Some(&HASHES)).unwrap();
    assert_eq!(auth.method, AuthMethod::SharedKeyMic);
    let connection = connection("gateway.example", RemoteAuth::Psk(psk));
    let verify = |proof: Proof<'_>, auth: &Authentication| verify(&proof, &connection, auth, &[], NOW);
    assert_eq!(verify(scene.proof(), &auth).unwrap().identity, identity_of("gateway.example"));

    let refused = Err(AuthError::Psk(identity_of("gateway.example")));
    assert_eq!(verify(Proof { message: b"another", ..scene.proof() }, &auth), refused);
    assert_eq!(verify(Proof { nonce: &[8; 32], ..scene.proof() }, &auth), refused);
    assert_eq!(verify(Proof { sk_p: &Secret::from([4; 32]), ..scene.proof() }, &auth), refused);
    for i in 0..auth.data.len() {
        let mut bad = auth.clone();
        bad.data[i] ^= 1;
        assert_eq!(verify(scene.proof(), &bad), refused, "byte {i}");
        bad.data.truncate(i);
        assert_eq!(verify(scene.proof(), &bad), refused, "cut to {i}");
    }
}

#[test]
fn every_kind_of_key_proves_itself_by_rfc_7427() {
    let authority = authority();
    for (algorithm, prefix) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "0c300a06082a8648ce3d040302"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "0c300a06082a8648ce3d040303"),
        (&rcgen::PKCS_ED25519, "07300506032b6570"),
    ] {
        let local = authority.certify("gateway.example", key(algorithm));
        let scene = Scene::new("gateway.example");
        let auth = prove(&scene.proof(), &local, Some(&HASHES)).unwrap();
        assert_eq!(auth.method, AuthMethod::DigitalSignature);
        let prefix = ::hex::decode(prefix).unwrap();
        assert_eq!(auth.data[..prefix.len()], prefix, "RFC 7427, appendix A; RFC 8420");
        let connection = connection("gateway.example", by_cert(&authority));
        let check = |auth: &Authentication| verify(&scene.proof(), &connection, auth, &chain_of(&local), NOW);
        assert!(check(&auth).unwrap().expires.is_some());
        for i in 0..auth.data.len() {
            let mut bad = auth.clone();
            bad.data[i] ^= 1;
            assert!(check(&bad).is_err(), "byte {i}");
        }
        assert!(check(&Authentication { data: Vec::new(), ..auth }).is_err());
    }
}

#[test]
fn rsa_signs_with_pss_where_it_may_and_pkcs1_for_the_old_method() {
    let authority = authority();
    let local = authority.certify("gateway.example", key(&rcgen::PKCS_RSA_SHA256));
    let scene = Scene::new("gateway.example");
    let connection = connection("gateway.example", by_cert(&authority));
    let new = prove(&scene.proof(), &local, Some(&HASHES)).unwrap();
    assert_eq!(new.data[1..][..usize::from(new.data[0])], *algorithm_identifier(Scheme::RsaPssSha256));
    let old = prove(&scene.proof(), &local, None).unwrap();
    assert_eq!((old.method, old.data.len()), (AuthMethod::RsaDigitalSignature, 256));
    for auth in [new, old] {
        assert!(
            verify(&scene.proof(), &connection, &auth, &chain_of(&local), NOW).is_ok(),
            "{:?}",
            auth.method
        );
    }
    let only_sha512 = prove(&scene.proof(), &local, Some(&[4])).unwrap();
    assert_eq!(
        only_sha512.data[1..][..usize::from(only_sha512.data[0])],
        *algorithm_identifier(Scheme::RsaPssSha512)
    );
}

#[test]
fn ecdsa_without_rfc_7427_uses_methods_9_to_11() {
    let authority = authority();
    for (algorithm, method, len) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, AuthMethod::Ecdsa256, 64),
        (&rcgen::PKCS_ECDSA_P384_SHA384, AuthMethod::Ecdsa384, 96),
        (&rcgen::PKCS_ECDSA_P521_SHA512, AuthMethod::Ecdsa521, 132),
    ] {
        let local = authority.certify("gateway.example", key(algorithm));
        let scene = Scene::new("gateway.example");
        let auth = prove(&scene.proof(), &local, None).unwrap();
        assert_eq!((auth.method, auth.data.len()), (method, len));
        let connection = connection("gateway.example", by_cert(&authority));
        assert!(verify(&scene.proof(), &connection, &auth, &chain_of(&local), NOW).is_ok());
    }
}

#[test]
fn a_key_that_the_peer_cannot_verify_says_so() {
    let local = authority().certify("gateway.example", key(&rcgen::PKCS_ED25519));
    let scene = Scene::new("gateway.example");
    for theirs in [None, Some(&[2, 3][..])] {
        let error = prove(&scene.proof(), &local, theirs).unwrap_err();
        assert!(matches!(error, AuthError::NoCommonScheme { .. }));
        assert!(error.to_string().contains("ed25519"), "{error}");
    }
}

#[test]
fn the_identity_must_be_in_the_certificate_and_in_the_configuration() {
    let authority = authority();
    let local = authority.certify("gateway.example", key(&rcgen::PKCS_ED25519));
    let liar = Scene::new("other.example");
    let auth = prove(&liar.proof(), &local, Some(&HASHES)).unwrap();
    let naive = connection("other.example", by_cert(&authority));
    let result = verify(&liar.proof(), &naive, &auth, &chain_of(&local), NOW);
    assert!(matches!(result, Err(AuthError::Untrusted(CertError::Identity { .. }))), "{result:?}");

    let honest = Scene::new("gateway.example");
    let auth = prove(&honest.proof(), &local, Some(&HASHES)).unwrap();
    let result = verify(&honest.proof(), &naive, &auth, &chain_of(&local), NOW);
    assert!(matches!(result, Err(AuthError::Identity { .. })), "{result:?}");
}

#[test]
fn strangers_missing_certificates_and_other_methods_are_refused() {
    let (ours, theirs) = (authority(), authority());
    let local = theirs.certify("gateway.example", key(&rcgen::PKCS_ED25519));
    let scene = Scene::new("gateway.example");
    let auth = prove(&scene.proof(), &local, Some(&HASHES)).unwrap();
    let by_cert = connection("gateway.example", by_cert(&ours));
    let check = |connection: &Connection, auth: &Authentication, chain: &[Certificate]| {
        verify(&scene.proof(), connection, auth, chain, NOW).unwrap_err()
    };
    assert!(matches!(check(&by_cert, &auth, &chain_of(&local)), AuthError::Untrusted(_)));
    assert_eq!(check(&by_cert, &auth, &[]), AuthError::NoCertificate);

    let psk = Secret::from([1; 16]);
    let by_psk = connection("gateway.example", RemoteAuth::Psk(psk.clone()));
    assert!(matches!(check(&by_psk, &auth, &chain_of(&local)), AuthError::Method { .. }));
    let mac = prove(&scene.proof(), &LocalAuth::Psk(psk), None).unwrap();
    assert!(matches!(check(&by_cert, &mac, &chain_of(&local)), AuthError::Method { .. }));
    let null = Authentication { method: AuthMethod::Null, data: mac.data };
    assert!(
        matches!(check(&by_psk, &null, &[]), AuthError::Method { .. }),
        "NULL authentication proves nothing"
    );
}

#[test]
fn resumption_has_two_dialects_that_do_not_understand_each_other() {
    let scene = Scene::new("gateway.example");
    let mac = |key: &Secret, data: &[u8]| PrfKey::new(Prf::HmacSha256, key.as_bytes()).compute(&[data]);
    let (strict, libreswan) = (Resumption::Strict, Resumption::Libreswan);
    assert_eq!(scene.proof().resumption(strict), mac(&scene.sk_p, &scene.proof().octets()));
    assert_eq!(scene.proof().resumption(libreswan), mac(&scene.sk_p, b"the first message"));
    for (made, checked) in
        [(strict, strict), (libreswan, libreswan), (strict, libreswan), (libreswan, strict)]
    {
        let auth = authenticate_resumption(&scene.proof(), made);
        assert_eq!(verify_resumption(&scene.proof(), checked, &auth).is_ok(), made == checked);
    }
    let signature = Authentication { method: AuthMethod::DigitalSignature, data: Vec::new() };
    assert!(matches!(verify_resumption(&scene.proof(), strict, &signature), Err(AuthError::Method { .. })));
}

#[test]
fn hash_announcements_come_back() {
    assert_eq!(parse_hash_algorithms(&hash_algorithms()), HASHES);
    assert_eq!(parse_hash_algorithms(&[0, 2, 0]), [2]);
    assert!(parse_hash_algorithms(&[]).is_empty());
}

#[test]
fn certificate_payloads_keep_their_order_and_foreign_ones_are_passed_over() {
    let authority = authority();
    let local = authority.certify("gateway.example", key(&rcgen::PKCS_ED25519));
    let mut payloads = cert_payloads(&local);
    payloads.insert(0, Payload::Cert { encoding: CertEncoding::Crl, data: vec![1] });
    payloads.push(Payload::Cert { encoding: CertEncoding::X509Signature, data: vec![0x30, 1] });
    let read = certificates(&payloads).unwrap();
    assert_eq!(read.len(), 1);
    assert!(read[0].matches(&identity_of("gateway.example")));
    let broken = Payload::Cert { encoding: CertEncoding::X509Signature, data: vec![0x30, 1] };
    assert!(matches!(certificates(&[broken]), Err(AuthError::Certificate(_))));
    let Some(Payload::CertReq { data, .. }) = certreq_payload(&by_cert(&authority)) else {
        panic!("no CERTREQ")
    };
    assert_eq!(data.len(), 20);
    assert_eq!(certreq_payload(&RemoteAuth::Psk(Secret::default())), None);
}
