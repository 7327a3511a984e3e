use super::*;
use crate::enrol::authority::{Holder as Kind, Issued, request};
use crate::enrol::place::Place;
use crate::enrol::users;
use dormouse_crypto::sign::NewKey;
use dormouse_node::config;
use std::fs;
use std::path::PathBuf;

const NOW: UnixTime = UnixTime(1_800_000_000);

/// A gateway with the user joe, who has a certificate of 90 days.
struct Gateway {
    place: Place,
    dir: PathBuf,
    authority: Authority,
    joe: Issued,
    holder: Holder,
    denied: Vec<String>,
    more: &'static str,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn identity(name: &str) -> Identity {
    format!("{name}.vpn.example.org").parse().unwrap()
}

impl Gateway {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("dormouse-judge-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("users")).unwrap();
        let place = Place::of(&dir.join("dormouse.toml"));
        let (authority, _) = Authority::new("A test", NOW).unwrap();
        let joe = authority.issue(Kind::Device, NewKey::EcdsaP256, &identity("joe"), NOW, 90).unwrap();
        let holder = Holder { connection: "devices".into(), identity: identity("joe").to_string() };
        let new = Self { place, dir, authority, joe, holder, denied: Vec::new(), more: "" };
        new.put("joe", |_| {});
        new
    }

    /// The record of a user who has joe's certificate.
    fn put(&self, name: &str, change: impl FnOnce(&mut User)) {
        let mut user = User::new(name, identity(name).to_string(), "devices");
        user.certificates.push(Known::of(&self.joe.certificate, NOW));
        change(&mut user);
        fs::write(users::path(&self.place, name), user.text().unwrap()).unwrap();
    }

    fn record(&self) -> User {
        users::find(&self.place, "joe").unwrap().unwrap()
    }

    fn ask(&self, shown: &Certificate, request: &[u8], now: UnixTime) -> Result<Granted, Refusal> {
        let text = format!(
            "[connection.devices]\nrole = \"gateway\"\n[connection.devices.local]\nid = \"vpn.example.org\"\n\
             [connection.devices.remote]\nid = \"*.vpn.example.org\"\n[connection.devices.renewals]\nat = \"10.9.0.1:1\"\n{}",
            self.more
        );
        let file = config::parse(&text).unwrap();
        let asking = Asking { shown, holder: &self.holder, request, denied: &self.denied, now };
        judge(
            &mut Book::files(&self.place),
            ("devices", &file.connection["devices"]),
            &self.authority,
            &asking,
        )
    }

    /// Joe asks as he should, later.
    fn joe(&self) -> Result<Granted, Refusal> {
        let (_, request) = request(NewKey::EcdsaP256, &identity("joe")).unwrap();
        self.ask(&self.joe.certificate, &request, NOW + DAY * 70)
    }

    #[track_caller]
    fn refused(&self, result: Result<Granted, Refusal>, said: &str) {
        let refusal = result.expect_err(said);
        assert!(refusal.why.contains(said), "{said}: {refusal:?}");
        assert!(refusal.why.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{refusal:?}");
    }
}

#[test]
fn who_has_a_certificate_and_its_address_gets_another_that_is_on_record_first() {
    let gateway = Gateway::new("good");
    let granted = gateway.joe().unwrap();
    assert_eq!(gateway.record().certificates.len(), 1, "nothing is decided before it is written");
    granted.write(&mut Book::files(&gateway.place)).unwrap();
    let known = gateway.record().certificates;
    assert_eq!((known.len(), known[1].clone()), (2, Known::of(&granted.certificate, NOW + DAY * 70)));
    granted.certificate.require(&identity("joe")).unwrap();
    let lasts = granted.certificate.not_after().saturating_since(granted.certificate.not_before());
    assert_eq!(lasts, DAY * 90, "as long as the one before");
    granted.undo(&mut Book::files(&gateway.place)).unwrap();
    assert_eq!(gateway.record().certificates.len(), 1);
    let mut gateway = Gateway::new("days");
    gateway.more = "days = 200\n";
    let made = gateway.joe().unwrap().certificate;
    assert_eq!(made.not_after().saturating_since(made.not_before()), DAY * 200);
}

#[test]
fn who_was_removed_or_denied_or_is_somebody_else_gets_nothing() {
    let mut gateway = Gateway::new("who");
    let (joe, record) = (identity("joe").to_string(), users::path(&gateway.place, "joe"));
    let fingerprint = format!("sha256:{}", hex::encode(gateway.joe.certificate.fingerprint()));
    for denied in [joe.clone(), joe.to_uppercase(), fingerprint] {
        gateway.denied = vec!["eve.vpn.example.org".into(), "not a denial \u{7}".into(), denied];
        gateway.refused(gateway.joe(), "joe.vpn.example.org is denied");
    }
    gateway.denied.clear();
    gateway.put("joe", |user| user.no_renewals = true);
    gateway.refused(gateway.joe(), "does not renew its certificate itself");
    gateway.put("joe", |user| user.certificates.clear());
    gateway.refused(gateway.joe(), "the certificate is not on record here");
    fs::remove_file(&record).unwrap();
    gateway.refused(gateway.joe(), "joe.vpn.example.org is no user of this gateway");
    gateway.put("joe", |user| user.id = "joe.other.example.org".into());
    gateway.refused(gateway.joe(), "is no user of this gateway");
    gateway.put("joe", |_| {});

    // Ann's address and joe's certificate, also where her record had it.
    gateway.holder.identity = identity("ann").to_string();
    gateway.put("ann", |_| {});
    gateway.refused(gateway.joe(), "and the address that asks is ann.vpn.example.org's");
    for odd in ["\u{1b}[31m", "../joe", "joe.vpn.example.com", ""] {
        gateway.holder.identity = odd.into();
        gateway.joe().expect_err(odd);
    }
    gateway.holder.identity = joe;
    gateway.holder.connection = "other".into();
    gateway.refused(gateway.joe(), "connection other renews no certificates");
}

#[test]
fn a_certificate_that_has_ended_or_is_of_another_authority_gets_nothing() {
    let gateway = Gateway::new("certificate");
    let (_, asked) = request(NewKey::EcdsaP256, &identity("joe")).unwrap();
    gateway.refused(
        gateway.ask(&gateway.joe.certificate, &asked, NOW + DAY * 91),
        "the certificate has expired on 2027-",
    );
    let (other, _) = Authority::new("A test", NOW).unwrap();
    let forged = other.issue(Kind::Device, NewKey::EcdsaP256, &identity("joe"), NOW, 90).unwrap();
    gateway.refused(gateway.ask(&forged.certificate, &asked, NOW), "not of this gateway's authority");
    // It would not be longer.
    let mut early = Gateway::new("early");
    early.more = "days = 80\n";
    early.refused(early.ask(&early.joe.certificate, &asked, NOW), "the certificate counts until 2027-");
}

#[test]
fn no_request_is_a_right_to_a_name_or_to_a_weak_or_a_used_key() {
    let gateway = Gateway::new("request");
    let later = NOW + DAY * 70;
    let ask = |request: &[u8]| gateway.ask(&gateway.joe.certificate, request, later);
    let (_, other) = request(NewKey::EcdsaP256, &identity("ann")).unwrap();
    gateway.refused(ask(&other), "the request asks for another name: \"CN=ann.vpn.example.org\"");
    let (_, good) = request(NewKey::EcdsaP256, &identity("joe")).unwrap();
    for at in [0, 3, 40, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(ask(&bad).unwrap_err().status, 400);
        assert_eq!(ask(&good[..at]).unwrap_err().status, 400);
    }
    // Once more, as one who has heard it would send it.
    ask(&good).unwrap().write(&mut Book::files(&gateway.place)).unwrap();
    gateway.refused(ask(&good), "the key of the request has a certificate already");
    let pair = rcgen::KeyPair::from_pem(str::from_utf8(gateway.joe.key.as_bytes()).unwrap()).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let same = params.serialize_request(&pair).unwrap();
    gateway.refused(ask(same.der()), "the key of the request has a certificate already");
    // Names need not be said: they are the certificate's in any case.
    let pair = rcgen::KeyPair::generate().unwrap();
    let silent = params.serialize_request(&pair).unwrap();
    ask(silent.der()).unwrap().certificate.require(&identity("joe")).unwrap();
}

#[test]
fn the_certificates_of_one_user_are_bounded_and_those_that_have_ended_are_forgotten() {
    let gateway = Gateway::new("many");
    let (mut granted, mut first) = (0, None);
    let error = loop {
        match gateway.joe() {
            Ok(one) => {
                one.write(&mut Book::files(&gateway.place)).unwrap();
                first.get_or_insert(one);
                granted += 1;
            }
            Err(e) => break e,
        }
    };
    assert_eq!((granted, error.status), (MOST_LIVING - 1, 403));
    assert!(error.why.contains("16 certificates of this user count already"), "{error:?}");
    gateway.put("joe", |user| {
        user.certificates.extend((0..40).map(|n| Known {
            fingerprint: format!("sha256:{n:064x}"),
            issued: 1,
            until: NOW.0,
            key: None,
        }));
    });
    gateway.joe().unwrap().write(&mut Book::files(&gateway.place)).unwrap();
    assert_eq!(gateway.record().certificates.len(), 2);
}
