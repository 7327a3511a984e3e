use dormouse_wire::codec::Reader;

use super::*;

fn id(name: &str) -> Identity {
    name.parse().unwrap()
}

fn certified(serial: u8) -> Credential {
    let issued = |serial| Issued { issuer_key: [7; 32], serial: vec![serial] };
    let shown = Shown::Certificates {
        fingerprint: [serial; 32],
        names: vec![name(&id("joe@example.org")), name(&id("CN=Joe"))],
        chain: vec![issued(serial), issued(200)],
        anchor: [1; 32],
        lenient: Lenient { usage: Usage::IkeOrClientAuth, sha1: serial == 3, unasked: serial != 3 },
    };
    Credential { shown, ppk: None }
}

#[test]
fn a_credential_has_one_encoding() {
    let psk = Credential { shown: Shown::Psk([5; 16]), ppk: Some([6; 16]) };
    for credential in [psk, certified(3)] {
        let mut out = Out::new();
        credential.encode(&mut out);
        let bytes = out.into_vec();
        let mut r = In(Reader::new("credential", &bytes));
        assert_eq!(Credential::decode(&mut r).unwrap(), credential);
        r.0.all().unwrap();
        for cut in 0..bytes.len() {
            assert!(Credential::decode(&mut In(Reader::new("credential", &bytes[..cut]))).is_err(), "{cut}");
        }
    }
}

#[test]
fn a_denial_means_a_certificate_and_every_name_that_it_vouches_for() {
    let (joe, by_psk) = (id("joe@example.org"), Credential { shown: Shown::Psk([5; 16]), ppk: None });
    assert!(Denial::Certificate([3; 32]).means(&joe, Some(&certified(3))));
    assert!(!Denial::Certificate([3; 32]).means(&joe, Some(&certified(4))));
    assert!(!Denial::Certificate([3; 32]).means(&joe, Some(&by_psk)));
    let named = |text| Denial::Name(id(text)).means(&id("laptop.example.org"), Some(&certified(3)));
    assert!(named("joe@example.org") && named("cn=JOE"), "another name of the same certificate");
    assert!(!named("ann@example.org"));
}

#[test]
fn fingerprints_are_read_in_every_common_notation() {
    let hex = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
    let colons: Vec<&str> = (0..32).map(|i| &hex[i * 2..i * 2 + 2]).collect();
    let written = Denial::from_str(hex).unwrap();
    let Denial::Certificate(bytes) = &written else { panic!("{written}") };
    assert_eq!((bytes[1], bytes[31]), (0x11, 0xff));
    for text in [
        colons.join(":"),
        colons.join(" "),
        format!("sha256:{hex}"),
        format!("SHA256 Fingerprint={}", colons.join(":")),
        format!("sha256 Fingerprint={}", colons.join(":")),
        written.to_string(),
    ] {
        assert_eq!(text.parse(), Ok(written.clone()), "{text}");
    }
    assert_eq!("abcdef.example.org".parse(), Ok(Denial::Name(id("abcdef.example.org"))));
    let address = "2001:0db8:85a3:0000:0000:8a2e:0370:7334";
    assert_eq!(address.parse(), Ok(Denial::Name(id(address))));
    for text in [
        hex[..62].to_owned(),
        format!("{hex}0"),
        hex[..40].to_owned(),
        colons[..31].join(":"),
        format!("sha256:{}", &hex[..8]),
        format!("SHA256 Fingerprint={}x", &hex[..63]),
        "sha256:joe.example.org".to_owned(),
    ] {
        let error = text.parse::<Denial>().expect_err("no name either").to_string();
        assert!(error.contains("64 hexadecimal digits"), "{error}");
    }
}

#[test]
fn a_denial_that_was_written_down_means_the_same() {
    let fingerprint = "ab".repeat(32);
    let digits = (1..=100).map(|n| format!("@{}", "a".repeat(n)));
    let names = [
        "alice@example.org",
        "CN=alice",
        "C=CH, CN=sha256:x",
        "keyid:abcd",
        "10.0.0.1",
        "2001:db8::1",
        "@host.example.org",
        "@sha256:x",
        "@SHA-256:ab",
        "@keyid:abcd",
        "@10.0.0.1",
        "@2001:db8::1",
        "sha256:alice@example.org",
    ];
    for text in names.into_iter().map(str::to_owned).chain(digits).chain([fingerprint.clone()]) {
        let denial: Denial = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(denial.to_string().parse(), Ok(denial.clone()), "{text}");
        assert_eq!(matches!(denial, Denial::Certificate(_)), text == fingerprint, "{text}");
        assert_eq!(text.starts_with('@'), matches!(denial, Denial::Name(Identity::Fqdn(_))), "{text}");
    }
}
