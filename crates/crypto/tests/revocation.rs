//! CRLs and OCSP answers: what is believed of a certificate, from whom, and for how long.

use core::time::Duration;

use dormouse_crypto::cert::{
    Certificate, Crl, Issued, KnownPaths, NONCE_LEN, OcspAnswer, OcspRequest, Reason, RevocationError,
    Revocations, Status, TrustStore, Usage,
};
use dormouse_sansio::UnixTime;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    CrlDistributionPoint, CrlIssuingDistributionPoint, CrlScope, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason,
    RevokedCertParams, SerialNumber, SigningKey, date_time_ymd,
};

/// 2026-06-01, inside of the validity of everything here.
const NOW: UnixTime = UnixTime(1_780_272_000);
const DAY: Duration = Duration::from_secs(86_400);
const URL: &str = "http://ca.example.org/part1.crl";

type Ca = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2027, 1, 1);
    params
}

fn ca(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Ca {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a root")
}

fn parse(der: &[u8]) -> Certificate {
    Certificate::from_der(der).expect("rcgen writes certificates")
}

fn leaf(ca: &Ca, serial: &[u8], change: impl FnOnce(&mut CertificateParams)) -> Certificate {
    let mut params = params("device");
    params.serial_number = Some(SerialNumber::from_slice(serial));
    change(&mut params);
    parse(params.signed_by(&KeyPair::generate().expect("a key"), ca).expect("a certificate").der())
}

/// The chain of a certificate, and the certificate of its issuer.
fn issued(ca: &Ca, leaf: &Certificate) -> (Vec<Issued>, Certificate) {
    let trust = TrustStore::new(vec![parse(ca.der())]).expect("a store");
    let verified = trust.verify(leaf, &[], NOW, Usage::Ike, &KnownPaths::default()).expect("trusted");
    (verified.chain, verified.issuers[0].clone())
}

struct List {
    revoked: Vec<(Vec<u8>, Option<RevocationReason>)>,
    /// Days from 2026-05-25 on.
    made: u32,
    days: u32,
    part: Option<CrlIssuingDistributionPoint>,
}

impl List {
    fn of(serials: &[&[u8]]) -> Self {
        Self { revoked: serials.iter().map(|s| (s.to_vec(), None)).collect(), made: 0, days: 30, part: None }
    }

    fn part(mut self, uri: Option<&str>, scope: Option<CrlScope>) -> Self {
        let uris = uri.into_iter().map(str::to_owned).collect();
        self.part =
            Some(CrlIssuingDistributionPoint { distribution_point: CrlDistributionPoint { uris }, scope });
        self
    }

    fn der(self, ca: &Ca) -> Vec<u8> {
        let this_update = date_time_ymd(2026, 5, 25) + DAY * self.made;
        let revoked = |(serial, reason_code): (Vec<u8>, _)| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial),
            revocation_time: date_time_ymd(2026, 5, 1),
            reason_code,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update,
            next_update: this_update + DAY * self.days,
            crl_number: SerialNumber::from(u64::from(self.made)),
            issuing_distribution_point: self.part,
            revoked_certs: self.revoked.into_iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(ca).expect("a list").der().to_vec()
    }
}

#[test]
fn a_list_tells_the_revoked_from_the_good_and_says_why() {
    let ca = ca("CA", |_| {});
    let serials: Vec<[u8; 3]> = (0..600u16).map(|n| [0x91, n.to_be_bytes()[0], n.to_be_bytes()[1]]).collect();
    let mut list = List::of(&serials.iter().map(|s| &s[..]).collect::<Vec<_>>());
    list.revoked.push((vec![7], Some(RevocationReason::KeyCompromise)));
    let (good, bad, compromised) =
        (leaf(&ca, &[0x91, 9, 9], |_| {}), leaf(&ca, &serials[300], |_| {}), leaf(&ca, &[7], |_| {}));
    let mut book = Revocations::default();
    let (chain, issuer) = issued(&ca, &good);
    assert_eq!(book.status(&chain, NOW), Status::Unknown, "nothing is known yet");
    let list = Crl::verify(&list.der(&ca), &issuer, NOW).expect("the CA's");
    assert_eq!(list.len(), 601);
    assert!(book.add_list(list, NOW));
    assert_eq!(book.status(&chain, NOW), Status::Good);
    assert_eq!(book.status(&issued(&ca, &bad).0, NOW), Status::Revoked(Reason(0)));
    assert_eq!(book.status(&issued(&ca, &compromised).0, NOW), Status::Revoked(Reason(1)));
    // Stale: no certificate is good any more, and a revoked one still is revoked.
    let later = NOW + DAY * 60;
    assert_eq!(book.status(&chain, later), Status::Unknown);
    assert_eq!(book.status(&issued(&ca, &bad).0, later), Status::Revoked(Reason(0)));
}

#[test]
fn a_list_of_another_issuer_is_refused_before_its_entries_are_read() {
    let (ca, other) = (ca("CA", |_| {}), parse(ca("another CA", |_| {}).der()));
    let mut list = List::of(&[&[0x51, 0x52, 0x53, 0x54]]).der(&ca);
    let at = list.windows(4).position(|w| w == [0x51, 0x52, 0x53, 0x54]).expect("the entry");
    // The serial number is no INTEGER any more.
    list[at - 2] = 0x05;
    assert!(matches!(Crl::verify(&list, &other, NOW), Err(RevocationError::Issuer { .. })));
    assert!(Crl::verify(&list, &parse(ca.der()), NOW).is_err());
}

#[test]
fn a_hold_ends_with_the_list_and_a_later_list_replaces_it_but_an_earlier_one_does_not() {
    let ca = ca("CA", |_| {});
    let device = leaf(&ca, &[5], |_| {});
    let (chain, issuer) = issued(&ca, &device);
    let mut held = List::of(&[]);
    held.revoked.push((vec![5], Some(RevocationReason::CertificateHold)));
    held.made = 1;
    let mut book = Revocations::default();
    assert!(book.add_list(Crl::verify(&held.der(&ca), &issuer, NOW).expect("good"), NOW));
    assert!(
        !book.add_list(Crl::verify(&List::of(&[]).der(&ca), &issuer, NOW).expect("good"), NOW),
        "replayed"
    );
    assert_eq!(book.status(&chain, NOW), Status::Revoked(Reason(6)));
    assert_eq!(book.status(&chain, NOW + DAY * 60), Status::Unknown, "the hold may be over");
    let free = List { made: 2, ..List::of(&[]) };
    assert!(book.add_list(Crl::verify(&free.der(&ca), &issuer, NOW).expect("good"), NOW));
    assert_eq!(book.status(&chain, NOW), Status::Good);
}

#[test]
fn a_list_for_a_part_of_the_certificates_says_nothing_of_the_others() {
    let ca = ca("CA", |_| {});
    let point = |p: &mut CertificateParams| {
        p.crl_distribution_points = vec![CrlDistributionPoint { uris: vec![URL.to_owned()] }];
    };
    let (with, without) = (leaf(&ca, &[1], point), leaf(&ca, &[2], |_| {}));
    assert_eq!(with.crl_urls(), [URL]);
    let (chain, issuer) = issued(&ca, &with);
    for (list, good, good_without, good_by_name) in [
        (List::of(&[&[9]]).part(Some(URL), None), true, false, false),
        (List::of(&[&[9]]).part(Some(URL), Some(CrlScope::UserCertsOnly)), true, false, false),
        (List::of(&[&[9]]).part(Some(URL), Some(CrlScope::CaCertsOnly)), false, false, false),
        (List::of(&[&[9]]).part(Some("http://ca.example.org/part2.crl"), None), false, false, false),
        (List::of(&[&[9]]), true, true, true),
    ] {
        let mut book = Revocations::default();
        assert!(book.add_list(Crl::verify(&list.der(&ca), &issuer, NOW).expect("the CA's"), NOW));
        assert_eq!(book.status(&chain, NOW) == Status::Good, good_by_name);
        book.learn(&chain[0], &with);
        assert_eq!(book.status(&chain, NOW) == Status::Good, good);
        let chain = issued(&ca, &without).0;
        book.learn(&chain[0], &without);
        assert_eq!(book.status(&chain, NOW) == Status::Good, good_without);
        let revoked = leaf(&ca, &[9], |_| {});
        assert_eq!(book.status(&issued(&ca, &revoked).0, NOW), Status::Revoked(Reason(0)));
    }
}

#[test]
fn a_list_of_another_issuer_or_by_another_key_or_changed_is_refused() {
    let (ours, impostor, theirs) = (ca("CA", |_| {}), ca("CA", |_| {}), ca("other", |_| {}));
    let no_lists = ca("CA", |p| p.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
    let (_, issuer) = issued(&ours, &leaf(&ours, &[1], |_| {}));
    let der = List::of(&[&[1]]).der(&ours);
    let verify = |der: &[u8], issuer: &Certificate| Crl::verify(der, issuer, NOW).map(|_| ());
    assert_eq!(verify(&der, &issuer), Ok(()));
    let other = RevocationError::Issuer { found: "CN=other".into(), wanted: "CN=CA".into() };
    assert_eq!(verify(&List::of(&[]).der(&theirs), &issuer), Err(other));
    let forged = Err(RevocationError::Signature("CN=CA".into()));
    assert_eq!(verify(&List::of(&[]).der(&impostor), &issuer), forged);
    assert_eq!(verify(&der, &parse(no_lists.der())), Err(RevocationError::MayNotSign("CN=CA".into())));
    let early = UnixTime(1_779_000_000);
    assert!(matches!(Crl::verify(&der, &issuer, early), Err(RevocationError::NotYetValid { .. })));
    for at in 0..der.len() {
        let mut changed = der.clone();
        changed[at] ^= 1;
        assert!(verify(&changed, &issuer).is_err(), "byte {at}");
        assert!(verify(&der[..at], &issuer).is_err(), "cut at {at}");
    }
}

#[test]
fn files_hold_lists_in_pem_or_der_and_the_error_says_what_else() {
    let ca = ca("CA", |_| {});
    let der = List::of(&[&[1]]).der(&ca);
    assert_eq!(Crl::ders_of_file(&der), Ok(vec![der.clone()]));
    let wrong = Crl::ders_of_file(ca.pem().as_bytes()).expect_err("a certificate").to_string();
    assert!(wrong.contains("holds CERTIFICATE"), "{wrong}");
    assert!(Crl::ders_of_file(parse(ca.der()).der()).is_err());
    assert!(Crl::ders_of_file(b"").is_err());
}

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let len = u16::try_from(content.len()).expect("short").to_be_bytes();
    [&[tag, 0x82], &len[..], &content].concat().into_iter().collect::<Vec<u8>>().minimal()
}

trait Minimal {
    fn minimal(self) -> Vec<u8>;
}

impl Minimal for Vec<u8> {
    /// Lengths in DER are as short as they can be.
    fn minimal(mut self) -> Vec<u8> {
        match (self[2], self[3]) {
            (0, 0..0x80) => drop(self.drain(1..3)),
            (0, _) => {
                self[1] = 0x81;
                self.remove(2);
            }
            _ => {}
        }
        self
    }
}

const ECDSA_SHA256: [u8; 12] = [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// The parts of the answer that a responder is to give.
struct Answer<'a> {
    /// `tlv` of a CertStatus.
    status: Vec<u8>,
    this_update: &'a str,
    next_update: Option<&'a str>,
    nonce: Option<[u8; NONCE_LEN]>,
}

impl Answer<'_> {
    fn good() -> Self {
        Self {
            status: vec![0x80, 0],
            this_update: "20260531000000Z",
            next_update: Some("20260605000000Z"),
            nonce: None,
        }
    }

    /// The answer to a question: signed with `key`, by the responder of this name.
    fn der(&self, question: &[u8], name: &[u8], key: &KeyPair, certificates: &[&[u8]]) -> Vec<u8> {
        // OCSPRequest, TBSRequest, requestList, Request, CertID: each a SEQUENCE with short lengths of one or two bytes.
        let mut id = question;
        for _ in 0..4 {
            id = &id[if id[1] < 0x80 { 2 } else { 3 }..];
        }
        let id = &id[..2 + usize::from(id[1])];
        let next = self.next_update.map(|t| tlv(0xa0, &[&tlv(0x18, &[t.as_bytes()])])).unwrap_or_default();
        let single = tlv(0x30, &[id, &self.status, &tlv(0x18, &[self.this_update.as_bytes()]), &next]);
        let nonce = self.nonce.map(|nonce| {
            let oid = [0x06, 0x09, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x02];
            let value = tlv(0x04, &[&tlv(0x04, &[&nonce])]);
            tlv(0xa1, &[&tlv(0x30, &[&tlv(0x30, &[&oid, &value])])])
        });
        let data = tlv(
            0x30,
            &[
                &tlv(0xa1, &[name]),
                &tlv(0x18, &[b"20260531000000Z"]),
                &tlv(0x30, &[&single]),
                &nonce.unwrap_or_default(),
            ],
        );
        let signature = key.sign(&data).expect("a signature");
        let certificates =
            if certificates.is_empty() { Vec::new() } else { tlv(0xa0, &[&tlv(0x30, certificates)]) };
        let basic = tlv(0x30, &[&data, &ECDSA_SHA256, &tlv(0x03, &[&[0], &signature]), &certificates]);
        let oid = [0x06, 0x09, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
        let bytes = tlv(0xa0, &[&tlv(0x30, &[&oid, &tlv(0x04, &[&basic])])]);
        tlv(0x30, &[&[0x0a, 1, 0], &bytes])
    }
}

/// The name in a certificate with one common name, in DER.
fn name(common: &str) -> Vec<u8> {
    let value = tlv(0x0c, &[common.as_bytes()]);
    tlv(0x30, &[&tlv(0x31, &[&tlv(0x30, &[&[0x06, 3, 0x55, 4, 3], &value])])])
}

struct Setting {
    ca: Ca,
    chain: Vec<Issued>,
    issuer: Certificate,
    request: OcspRequest,
}

fn setting() -> Setting {
    let ca = ca("CA", |_| {});
    let (chain, issuer) = issued(&ca, &leaf(&ca, &[0x91, 5], |_| {}));
    let request = OcspRequest::new(&chain[0], &issuer, [7; NONCE_LEN]);
    Setting { ca, chain, issuer, request }
}

impl Setting {
    fn verify(&self, answer: &[u8]) -> Result<OcspAnswer, RevocationError> {
        OcspAnswer::verify(answer, &self.request, &self.issuer, NOW)
    }

    fn by_ca(&self, answer: &Answer<'_>) -> Result<OcspAnswer, RevocationError> {
        self.verify(&answer.der(&self.request.to_der(), &name("CA"), self.ca.key(), &[]))
    }
}

#[test]
fn an_answer_of_the_issuer_says_good_or_revoked_as_long_as_it_is_fresh() {
    let s = setting();
    let mut book = Revocations::default();
    assert!(book.add_answer(s.by_ca(&Answer::good()).expect("good"), NOW));
    assert_eq!(book.status(&s.chain, NOW), Status::Good);
    assert_eq!(book.status(&s.chain, NOW + DAY * 10), Status::Unknown);
    let reason = tlv(0xa0, &[&[0x0a, 1, 1]]);
    let revoked =
        Answer { status: tlv(0xa1, &[&tlv(0x18, &[b"20260530000000Z"]), &reason]), ..Answer::good() };
    assert!(book.add_answer(s.by_ca(&revoked).expect("an answer"), NOW));
    assert_eq!(book.status(&s.chain, NOW), Status::Revoked(Reason(1)));
    assert_eq!(book.status(&s.chain, NOW + DAY * 10), Status::Revoked(Reason(1)));
    let unknown = Answer { status: vec![0x82, 0], ..Answer::good() };
    assert!(matches!(s.by_ca(&unknown), Err(RevocationError::Responder(_))));
    let stale = Answer { next_update: Some("20260531120000Z"), ..Answer::good() };
    assert!(matches!(s.by_ca(&stale), Err(RevocationError::Expired { .. })));
    let early = Answer { this_update: "20260701000000Z", ..Answer::good() };
    assert!(matches!(s.by_ca(&early), Err(RevocationError::NotYetValid { .. })));
    let without_end = Answer { this_update: "20260531235900Z", next_update: None, ..Answer::good() };
    let mut book = Revocations::default();
    assert!(book.add_answer(s.by_ca(&without_end).expect("good"), NOW));
    assert_eq!(book.status(&s.chain, NOW), Status::Good);
    assert_eq!(book.status(&s.chain, NOW + Duration::from_secs(3600)), Status::Unknown);
}

#[test]
fn an_answer_to_another_question_is_refused() {
    let s = setting();
    assert!(s.by_ca(&Answer { nonce: Some([7; NONCE_LEN]), ..Answer::good() }).is_ok());
    let replayed = s.by_ca(&Answer { nonce: Some([8; NONCE_LEN]), ..Answer::good() });
    assert_eq!(replayed, Err(RevocationError::OtherQuestion("another nonce")));
    let (other, _) = issued(&s.ca, &leaf(&s.ca, &[6], |_| {}));
    let question = OcspRequest::new(&other[0], &s.issuer, [7; NONCE_LEN]).to_der();
    let answer = Answer::good().der(&question, &name("CA"), s.ca.key(), &[]);
    assert!(matches!(s.verify(&answer), Err(RevocationError::OtherQuestion(_))));
    assert!(matches!(s.verify(&[0x30, 3, 0x0a, 1, 3]), Err(RevocationError::Responder("try later"))));
    let answer = Answer::good().der(&s.request.to_der(), &name("CA"), s.ca.key(), &[]);
    for at in 0..answer.len() {
        let mut changed = answer.clone();
        changed[at] ^= 1;
        assert!(s.verify(&changed).is_err(), "byte {at}");
        assert!(s.verify(&answer[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn only_the_issuer_and_those_whom_it_has_appointed_answer_for_it() {
    let s = setting();
    let (impostor, theirs) = (ca("CA", |_| {}), ca("other", |_| {}));
    let signing = |p: &mut CertificateParams| {
        p.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
        p.custom_extensions
            .push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 48, 1, 5], vec![5, 0]));
    };
    let old = |p: &mut CertificateParams| {
        signing(p);
        p.not_after = date_time_ymd(2026, 2, 1);
    };
    let appointed = |by: &Ca, change: &dyn Fn(&mut CertificateParams)| {
        let (key, mut params) = (KeyPair::generate().expect("a key"), params("responder"));
        change(&mut params);
        let der = params.signed_by(&key, by).expect("a certificate").der().to_vec();
        s.verify(&Answer::good().der(&s.request.to_der(), &name("responder"), &key, &[&der])).map(|_| ())
    };
    let may_not = Err(RevocationError::MayNotSign("CN=responder".into()));
    assert_eq!(appointed(&s.ca, &signing), Ok(()));
    assert_eq!(appointed(&s.ca, &|_| {}), may_not, "not made for it");
    assert_eq!(appointed(&s.ca, &old), may_not, "expired");
    assert_eq!(appointed(&theirs, &signing), may_not, "by another CA");
    assert_eq!(appointed(&impostor, &signing), may_not, "by another key");
    let forged = Answer::good().der(&s.request.to_der(), &name("CA"), impostor.key(), &[]);
    assert_eq!(s.verify(&forged), Err(RevocationError::Signature("CN=CA".into())));
    let stranger = Answer::good().der(&s.request.to_der(), &name("device"), impostor.key(), &[]);
    assert_eq!(s.verify(&stranger), Err(RevocationError::MayNotSign("an unknown responder".into())));
}
