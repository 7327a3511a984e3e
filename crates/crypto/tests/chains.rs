//! Chains of certificates: which are trusted, and what the errors say about the others.

use core::time::Duration;

use dormouse_crypto::cert::{CertError, Certificate, Identity, KnownPaths, TrustStore, Usage};
use dormouse_crypto::sign::{KeyKind, PublicKeyError};
use dormouse_sansio::UnixTime;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

/// 2026-06-01, inside of the validity of every certificate here.
const NOW: UnixTime = UnixTime(1_780_272_000);

type Ca = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CountryName, "CH");
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2027, 1, 1);
    params
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn root(params: CertificateParams) -> Ca {
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a root")
}

fn intermediate(params: CertificateParams, issuer: &Ca) -> Ca {
    CertifiedIssuer::signed_by(params, KeyPair::generate().expect("a key"), issuer).expect("an intermediate")
}

fn leaf(params: CertificateParams, issuer: &Ca) -> Certificate {
    let key = KeyPair::generate().expect("a key");
    parse(params.signed_by(&key, issuer).expect("a certificate").der())
}

fn parse(der: &[u8]) -> Certificate {
    Certificate::from_der(der).expect("rcgen writes certificates")
}

fn store(ca: &Ca) -> TrustStore {
    TrustStore::new(vec![parse(ca.der())]).expect("a trust store")
}

fn verify(store: &TrustStore, leaf: &Certificate) -> Result<(), CertError> {
    store.verify(leaf, &[], NOW, Usage::Ike, &KnownPaths::default()).map(|_| ())
}

#[test]
fn a_good_chain_is_trusted_and_its_first_end_is_reported() {
    let ca = root(ca_params("root"));
    let mut short = ca_params("intermediate");
    short.not_after = date_time_ymd(2026, 7, 1);
    let middle = intermediate(short, &ca);
    let leaf = leaf(params("gateway"), &middle);
    let noise = parse(root(ca_params("unrelated")).der());
    let others = [noise, parse(middle.der())];
    let verified =
        store(&ca).verify(&leaf, &others, NOW, Usage::Ike, &KnownPaths::default()).expect("trusted");
    assert_eq!(verified.public_key.kind(), KeyKind::EcdsaP256);
    assert_eq!(verified.issuers.last().unwrap().subject(), "C=CH, CN=root");
    assert_eq!(verified.expires, others[1].not_after(), "the intermediate expires first");
}

#[test]
fn validity_is_checked_at_the_time_that_is_handed_in() {
    let ca = root(ca_params("root"));
    let leaf = leaf(params("gateway"), &ca);
    let store = store(&ca);
    let (not_before, not_after) = (leaf.not_before(), leaf.not_after());
    let at = |now| store.verify(&leaf, &[], now, Usage::Ike, &KnownPaths::default()).map(|_| ());
    assert_eq!(at(not_before), Ok(()));
    assert_eq!(at(not_after), Ok(()));
    let subject = "C=CH, CN=gateway".to_owned();
    let now = UnixTime(not_before.0 - 1);
    assert_eq!(at(now), Err(CertError::NotYetValid { subject: subject.clone(), not_before, now }));
    let now = not_after + Duration::from_secs(1);
    assert_eq!(at(now), Err(CertError::Expired { subject, not_after, now }));
    let named = CertError::Expired {
        subject: "CN=old".to_owned(),
        not_after: UnixTime(1_772_323_200),
        now: UnixTime(1_795_412_400),
    };
    assert_eq!(
        named.to_string(),
        "the certificate of \"CN=old\" expired at 2026-03-01T00:00:00Z, and it is 2026-11-23T05:40:00Z here"
    );
}

#[test]
fn an_expired_ca_is_named() {
    for anchor_expires in [true, false] {
        let (mut top, mut middle) = (ca_params("root"), ca_params("intermediate"));
        let short = if anchor_expires { &mut top } else { &mut middle };
        short.not_after = date_time_ymd(2026, 3, 1);
        let ca = root(top);
        let middle = intermediate(middle, &ca);
        let leaf = leaf(params("gateway"), &middle);
        let error = store(&ca)
            .verify(&leaf, &[parse(middle.der())], NOW, Usage::Ike, &KnownPaths::default())
            .expect_err("refused");
        let expected = if anchor_expires { "C=CH, CN=root" } else { "C=CH, CN=intermediate" };
        assert!(matches!(&error, CertError::Expired { subject, .. } if subject == expected), "{error}");
    }
}

#[test]
fn another_ca_is_not_trusted_and_the_error_lists_those_that_are() {
    let (ours, theirs) = (root(ca_params("ours")), root(ca_params("theirs")));
    assert_eq!(
        verify(&store(&ours), &leaf(params("gateway"), &theirs)),
        Err(CertError::UnknownIssuer {
            subject: "C=CH, CN=gateway".into(),
            issuer: "C=CH, CN=theirs".into(),
            trusted: "C=CH, CN=ours".into(),
        })
    );
    // The same name with another key: a signature that does not verify.
    let impostor = root(ca_params("ours"));
    let error = verify(&store(&ours), &leaf(params("gateway"), &impostor));
    assert_eq!(error, Err(CertError::Signature { subject: "C=CH, CN=gateway".into() }));
}

#[test]
fn a_missing_intermediate_is_the_one_that_the_error_names() {
    let ca = root(ca_params("root"));
    let middle = intermediate(ca_params("intermediate"), &ca);
    let error = verify(&store(&ca), &leaf(params("gateway"), &middle)).expect_err("refused");
    assert!(
        matches!(&error, CertError::UnknownIssuer { issuer, .. } if issuer == "C=CH, CN=intermediate"),
        "{error}"
    );
}

#[test]
fn key_usage_must_allow_signatures() {
    use KeyUsagePurpose::{ContentCommitment, DigitalSignature, KeyAgreement, KeyEncipherment};
    let ca = root(ca_params("root"));
    for (usages, accepted) in [
        (vec![DigitalSignature], true),
        (vec![ContentCommitment], true),
        (vec![KeyEncipherment, DigitalSignature], true),
        (vec![KeyEncipherment, KeyAgreement], false),
    ] {
        let mut params = params("gateway");
        params.key_usages.clone_from(&usages);
        let result = verify(&store(&ca), &leaf(params, &ca));
        if accepted {
            assert_eq!(result, Ok(()), "{usages:?}");
        } else {
            let subject = "C=CH, CN=gateway".to_owned();
            let found = "keyEncipherment, keyAgreement".to_owned();
            let needed = "digitalSignature or nonRepudiation";
            assert_eq!(result, Err(CertError::KeyUsage { subject, found, needed }));
        }
    }
}

#[test]
fn a_ca_that_may_not_certify_is_refused() {
    for anchor in [true, false] {
        let (mut top, mut middle) = (ca_params("root"), ca_params("intermediate"));
        let limited = if anchor { &mut top } else { &mut middle };
        limited.key_usages = vec![KeyUsagePurpose::CrlSign];
        let ca = root(top);
        let middle = intermediate(middle, &ca);
        let leaf = leaf(params("gateway"), &middle);
        let error = store(&ca)
            .verify(&leaf, &[parse(middle.der())], NOW, Usage::Ike, &KnownPaths::default())
            .expect_err("refused");
        assert!(matches!(&error, CertError::KeyUsage { needed: "keyCertSign", .. }), "{error}");
    }
}

#[test]
fn extended_key_usage_must_be_ipsec_or_any_or_absent() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, EmailProtection, Other, ServerAuth};
    let ipsec = |arc: u64| Other(vec![1, 3, 6, 1, 5, 5, 7, 3, arc]);
    let ca = root(ca_params("root"));
    let store = store(&ca);
    for (purposes, ike, server, client) in [
        (vec![], true, true, true),
        (vec![ipsec(17)], true, true, true),
        (vec![EmailProtection, Any], true, true, true),
        (vec![ipsec(5)], true, true, true),
        (vec![ipsec(6)], true, true, true),
        (vec![ipsec(7)], true, true, true),
        (vec![Other(vec![1, 3, 6, 1, 5, 5, 8, 2, 2])], true, true, true),
        (vec![ServerAuth], false, true, false),
        (vec![ClientAuth], false, false, true),
        (vec![EmailProtection], false, false, false),
    ] {
        let mut params = params("gateway");
        params.extended_key_usages.clone_from(&purposes);
        let leaf = leaf(params, &ca);
        for (usage, accepted) in
            [(Usage::Ike, ike), (Usage::IkeOrServerAuth, server), (Usage::IkeOrClientAuth, client)]
        {
            let result = store.verify(&leaf, &[], NOW, usage, &KnownPaths::default());
            assert_eq!(result.is_ok(), accepted, "{purposes:?} {usage:?}");
            if let Err(error) = result {
                assert!(matches!(error, CertError::ExtendedKeyUsage { .. }), "{error}");
            }
        }
    }
}

#[test]
fn a_ca_cannot_stand_for_a_peer_nor_a_peer_for_a_ca() {
    let ca = root(ca_params("root"));
    let middle = intermediate(ca_params("intermediate"), &ca);
    let error = verify(&store(&ca), &parse(middle.der()));
    assert_eq!(error, Err(CertError::CaAsEndEntity { subject: "C=CH, CN=intermediate".into() }));

    let peer = intermediate(params("peer"), &ca);
    let leaf = leaf(params("gateway"), &peer);
    let error =
        store(&ca).verify(&leaf, &[parse(peer.der())], NOW, Usage::Ike, &KnownPaths::default()).map(|_| ());
    assert_eq!(error, Err(CertError::IssuerIsNoCa { subject: "C=CH, CN=gateway".into() }));
}

#[test]
fn a_pinned_peer_is_trusted_as_itself_alone() {
    let peer = root(params("peer"));
    let certificate = parse(peer.der());
    let subject = "C=CH, CN=peer".to_owned();
    let other = store(&root(ca_params("root")));
    assert_eq!(verify(&other, &certificate), Err(CertError::SelfSigned { subject: subject.clone() }));
    let pinned = store(&peer);
    assert_eq!(verify(&pinned, &certificate), Ok(()));
    // It does not vouch for others, though it signed them.
    let error = verify(&pinned, &leaf(params("gateway"), &peer)).expect_err("refused");
    assert!(matches!(error, CertError::UnknownIssuer { .. }), "{error}");
    let now = certificate.not_after() + Duration::from_secs(1);
    assert!(matches!(
        pinned.verify(&certificate, &[], now, Usage::Ike, &KnownPaths::default()),
        Err(CertError::Expired { .. })
    ));
}

#[test]
fn rsa_of_1024_bits_is_refused_with_its_size() {
    let weak = Certificate::from_pem(include_bytes!("data/rsa1024.crt")).expect("a certificate");
    let pinned = TrustStore::new(vec![weak.clone()]).expect("a trust store");
    let error = pinned.verify(&weak, &[], weak.not_before(), Usage::Ike, &KnownPaths::default());
    let subject = "CN=weak".to_owned();
    assert_eq!(error, Err(CertError::Key { subject, error: PublicKeyError::RsaSize { bits: 1024 } }));
}

#[test]
fn a_path_length_is_obeyed() {
    let mut top = ca_params("root");
    top.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = root(top);
    let mut limited = ca_params("limited");
    limited.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let limited = intermediate(limited, &ca);
    let below = intermediate(ca_params("below"), &limited);
    let leaf = leaf(params("gateway"), &below);
    let others = [parse(limited.der()), parse(below.der())];
    let error =
        store(&ca).verify(&leaf, &others, NOW, Usage::Ike, &KnownPaths::default()).expect_err("refused");
    assert!(matches!(&error, CertError::Chain { reason, .. } if reason.contains("PathLen")), "{error}");
}

#[test]
fn a_flood_of_certificates_is_refused_before_any_is_looked_at() {
    let ca = root(ca_params("root"));
    let leaf = leaf(params("gateway"), &ca);
    let flood = vec![parse(ca.der()); 17];
    let error =
        store(&ca).verify(&leaf, &flood, NOW, Usage::Ike, &KnownPaths::default()).expect_err("refused");
    assert_eq!(error, CertError::TooMany { got: 17, limit: 16 });
}

#[test]
fn an_unknown_critical_extension_is_refused() {
    let ca = root(ca_params("root"));
    let mut params = params("gateway");
    let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
    let error = verify(&store(&ca), &leaf(params, &ca)).expect_err("refused");
    assert!(matches!(&error, CertError::Chain { .. }), "{error}");
}

#[test]
fn identities_match_their_own_kind_exactly() {
    let ca = root(ca_params("root"));
    let mut params = params("gw.example.org");
    let name = |text: &str| text.try_into().expect("ASCII");
    params.subject_alt_names = vec![
        SanType::DnsName(name("VPN.example.org")),
        SanType::DnsName(name("*.wild.example.org")),
        SanType::Rfc822Name(name("Bob@Example.org")),
        SanType::IpAddress("192.0.2.7".parse().expect("an address")),
        SanType::IpAddress("2001:db8::7".parse().expect("an address")),
    ];
    let leaf = leaf(params, &ca);
    for (text, matches) in [
        ("vpn.example.org", true),
        ("Vpn.Example.Org", true),
        ("example.org", false),
        ("x.vpn.example.org", false),
        ("gw.example.org", false), // a common name is no host name
        ("a.wild.example.org", false),
        ("Bob@example.ORG", true),
        ("bob@example.org", false), // the local part is the host's affair
        ("@vpn.example.org", true),
        ("192.0.2.7", true),
        ("192.0.2.8", false),
        ("2001:db8::7", true),
        ("2001:db8::8", false),
        ("C=CH, CN=gw.example.org", true),
        ("C=ch, CN=GW.example.org", true),
        ("CN=gw.example.org, C=CH", false),
        ("CN=gw.example.org", false),
        ("C=CH, CN=other", false),
        ("keyid:76706e2e6578616d706c652e6f7267", false),
    ] {
        let wanted: Identity = text.parse().expect("an identity");
        assert_eq!(leaf.matches(&wanted), matches, "{text}");
    }
    // What a peer may send that no configuration can say.
    assert!(!leaf.matches(&Identity::Fqdn("*.wild.example.org".into())));
    let error =
        leaf.require(&"other.example.org".parse().expect("an identity")).expect_err("refused").to_string();
    assert_eq!(
        error,
        "the certificate is not for other.example.org; it is for: C=CH, CN=gw.example.org, vpn.example.org, \
         *.wild.example.org, Bob@example.org, 192.0.2.7, 2001:db8::7"
    );
}

#[test]
fn a_certificate_request_names_each_ca_by_its_key() {
    let (a, b) = (root(ca_params("a")), root(ca_params("b")));
    let store = TrustStore::new(vec![parse(a.der()), parse(b.der())]).expect("a trust store");
    let expected = [parse(a.der()).spki_sha1(), parse(b.der()).spki_sha1()].concat();
    assert_eq!(store.certreq(), expected);
    // Made with: openssl x509 -pubkey -noout -in rsa1024.crt | openssl pkey -pubin -outform DER | sha1sum
    let known = Certificate::from_pem(include_bytes!("data/rsa1024.crt")).expect("a certificate");
    assert_eq!(hex::encode(known.spki_sha1()), include_str!("data/rsa1024.spki.sha1").trim());
}

/// A certificate whose signature does not verify, for a path that is known all the same: what is accepted then was not verified again.
#[test]
fn a_known_path_is_not_verified_again_and_everything_else_is() {
    let ca = root(ca_params("root"));
    let middle = parse(intermediate(ca_params("intermediate"), &ca).der());
    let (store, stranger) = (store(&ca), root(ca_params("root")));
    let forged = leaf(params("gateway"), &stranger);
    let refused = verify(&store, &forged).expect_err("another's signature");
    assert!(matches!(refused, CertError::Signature { .. } | CertError::UnknownIssuer { .. }), "{refused}");

    let mut known = KnownPaths::default();
    let good = leaf(params("gateway"), &ca);
    let verified = store.verify(&good, &[], NOW, Usage::Ike, &known).expect("trusted");
    known.remember(&store, &forged, &[], &verified);
    let accepted = store.verify(&forged, &[], NOW, Usage::Ike, &known).expect("known");
    assert_eq!(accepted.anchor_fingerprint, verified.anchor_fingerprint);
    assert_eq!(accepted.chain[0].serial, forged.serial());

    let late = forged.not_after() + Duration::from_secs(1);
    assert!(matches!(store.verify(&forged, &[], late, Usage::Ike, &known), Err(CertError::Expired { .. })));
    assert!(store.verify(&forged, &[middle], NOW, Usage::Ike, &known).is_err(), "with other certificates");
    let other =
        TrustStore::new(vec![parse(ca.der()), parse(root(ca_params("other")).der())]).expect("a store");
    assert!(other.verify(&forged, &[], NOW, Usage::Ike, &known).is_err(), "with other authorities");
}

/// The path that is remembered may end before another that leads to the same CA.
#[test]
fn a_known_path_that_expires_gives_way_to_another() {
    let ca = root(ca_params("root"));
    let key = KeyPair::generate().expect("a key");
    let mut short = ca_params("intermediate");
    short.not_after = date_time_ymd(2026, 7, 1);
    let pem = key.serialize_pem();
    let again = || KeyPair::from_pem(&pem).expect("the key");
    let early = CertifiedIssuer::signed_by(short, again(), &ca).expect("an intermediate");
    let late = CertifiedIssuer::signed_by(ca_params("intermediate"), again(), &ca).expect("an intermediate");
    let leaf = leaf(params("gateway"), &late);
    let (store, others) = (store(&ca), [parse(early.der()), parse(late.der())]);
    let mut known = KnownPaths::default();
    let first = store.verify(&leaf, &others, NOW, Usage::Ike, &known).expect("trusted");
    known.remember(&store, &leaf, &others, &first);
    let after = others[0].not_after() + Duration::from_secs(1);
    let then = store.verify(&leaf, &others, after, Usage::Ike, &known).expect("by the other");
    assert_eq!(then.issuers[0], others[1]);
}

#[test]
fn the_oldest_known_path_is_forgotten_first() {
    let ca = root(ca_params("root"));
    let (store, good, forged) =
        (store(&ca), leaf(params("gateway"), &ca), leaf(params("gateway"), &root(ca_params("root"))));
    let noise: Vec<_> = (0..13).map(|n| parse(root(ca_params(&format!("noise {n}"))).der())).collect();
    let mut known = KnownPaths::default();
    let verified = store.verify(&good, &[], NOW, Usage::Ike, &known).expect("trusted");
    let some = |set: usize| -> Vec<_> {
        noise.iter().enumerate().filter(|(n, _)| set & (1 << n) != 0).map(|(_, c)| c.clone()).collect()
    };
    for set in 0..4097 {
        known.remember(&store, &forged, &some(set), &verified);
        known.remember(&store, &forged, &some(set), &verified);
    }
    let accepted = |set| store.verify(&forged, &some(set), NOW, Usage::Ike, &known).is_ok();
    assert_eq!([0, 1, 4096].map(accepted), [false, true, true]);
}
