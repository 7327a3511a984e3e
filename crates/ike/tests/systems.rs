//! The clients that systems have themselves, at a gateway with the default configuration: the proposals that each sends, as they were recorded or stand
//! in its makers' source, byte for byte in an initiator's first message. Which connect, which are refused, and with which hint for the
//! administrator (`docs/clients.md`).

mod common;

use common::eap::{Authority, connections};
use common::{GATEWAY, Pair, fqdn, path};
use dormouse_crypto::Secret;
use dormouse_ike::config::{Connection, EsnPolicy, IdentityPattern, LocalAuth};
use dormouse_ike::proposal::{
    KeyExchange, default_esp_proposals, default_ike_proposals, select_esp, select_ike,
};
use dormouse_sansio::{Entropy as _, Seeded};
use dormouse_wire::ike::{
    ExchangeType, Flags, Header, Message, NotifyType, Payload, Proposal, ProtocolId, Transform, TransformType,
};

/// A client: its proposals in the words of strongSwan's log, one a line, and the group of its first key.
struct System {
    name: &'static str,
    ike: &'static str,
    esp: &'static str,
    /// The group, and how long its values are.
    first: (u16, usize),
}

/// iOS 16.5 as set up by hand: <https://docs.strongswan.org/docs/latest/interop/ios.html>, "Default IKE/ESP proposals sent by iOS/macOS".
const IOS: System = System {
    name: "iOS 16.5",
    ike: "IKE:AES_CBC_256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_2048
          IKE:AES_CBC_256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/ECP_256
          IKE:AES_CBC_256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_1536
          IKE:AES_CBC_128/HMAC_SHA1_96/PRF_HMAC_SHA1/MODP_1024
          IKE:3DES_CBC/HMAC_SHA1_96/PRF_HMAC_SHA1/MODP_1024",
    esp: "ESP:AES_CBC_256/HMAC_SHA2_256_128/NO_EXT_SEQ
          ESP:AES_CBC_256/HMAC_SHA2_256_128/NO_EXT_SEQ
          ESP:AES_CBC_256/HMAC_SHA2_256_128/NO_EXT_SEQ
          ESP:AES_CBC_128/HMAC_SHA1_96/NO_EXT_SEQ
          ESP:3DES_CBC/HMAC_SHA1_96/NO_EXT_SEQ",
    first: (14, 256),
};

/// Android 11 and later: `getIkeSaProposals` and `getChildSaProposals` of VpnIkev2Utils.java in frameworks/base of its source (commit
/// 13629c130c63414e1f3cae1bc0171acbbbecfc41), with all algorithms that a profile may allow. The key of the first message is of the first group.
const ANDROID: System = System {
    name: "Android",
    ike: "IKE:AES_CTR_256/AES_CBC_256/AES_CTR_192/AES_CBC_192/AES_CTR_128/AES_CBC_128/HMAC_SHA2_512_256/HMAC_SHA2_384_192/HMAC_SHA2_256_128/AES_XCBC_96/AES_CMAC_96/PRF_HMAC_SHA2_512/PRF_HMAC_SHA2_384/PRF_HMAC_SHA2_256/PRF_AES128_XCBC/PRF_AES128_CMAC/PRF_HMAC_SHA1/MODP_4096/CURVE_25519/MODP_3072/MODP_2048
          IKE:CHACHA20_POLY1305/AES_GCM_16_256/AES_GCM_12_256/AES_GCM_8_256/AES_GCM_16_192/AES_GCM_12_192/AES_GCM_8_192/AES_GCM_16_128/AES_GCM_12_128/AES_GCM_8_128/PRF_HMAC_SHA2_512/PRF_HMAC_SHA2_384/PRF_HMAC_SHA2_256/PRF_AES128_XCBC/PRF_AES128_CMAC/PRF_HMAC_SHA1/MODP_4096/CURVE_25519/MODP_3072/MODP_2048",
    esp: "ESP:AES_CTR_256/AES_CBC_256/AES_CTR_192/AES_CBC_192/AES_CTR_128/AES_CBC_128/HMAC_SHA2_512_256/HMAC_SHA2_384_192/HMAC_SHA2_256_128/AES_XCBC_96/AES_CMAC_96/NO_EXT_SEQ
          ESP:CHACHA20_POLY1305/AES_GCM_16_256/AES_GCM_12_256/AES_GCM_8_256/AES_GCM_16_192/AES_GCM_12_192/AES_GCM_8_192/AES_GCM_16_128/AES_GCM_12_128/AES_GCM_8_128/NO_EXT_SEQ",
    first: (16, 512),
};

/// Windows 11 as set up by hand: <https://docs.strongswan.org/docs/6.0/interop/windowsClients.html>, "Enable Strong Key Exchange": one
/// combination a proposal; its ESP is on the same page.
const WINDOWS: System = System {
    name: "Windows 11",
    ike: "IKE:3DES_CBC/HMAC_SHA1_96/PRF_HMAC_SHA1/MODP_1024
          IKE:AES_CBC_256/HMAC_SHA1_96/PRF_HMAC_SHA1/MODP_1024
          IKE:3DES_CBC/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_1024
          IKE:AES_CBC_256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_1024
          IKE:AES_CBC_256/HMAC_SHA2_384_192/PRF_HMAC_SHA2_384/MODP_1024
          IKE:AES_GCM_16_128/PRF_HMAC_SHA2_256/MODP_1024
          IKE:AES_GCM_16_256/PRF_HMAC_SHA2_384/MODP_1024",
    esp: WINDOWS_ESP,
    first: (2, 128),
};
const WINDOWS_ESP: &str = "ESP:AES_CBC_256/HMAC_SHA1_96/NO_EXT_SEQ
          ESP:AES_CBC_128/HMAC_SHA1_96/NO_EXT_SEQ
          ESP:3DES_CBC/HMAC_SHA1_96/NO_EXT_SEQ
          ESP:DES_CBC/HMAC_SHA1_96/NO_EXT_SEQ
          ESP:NULL/HMAC_SHA1_96/NO_EXT_SEQ";

/// The same with NegotiateDH2048_AES256 = 2 in its registry: the same page.
const WINDOWS_REGISTRY: System = System {
    name: "Windows 11, NegotiateDH2048_AES256 = 2",
    ike: "IKE:AES_CBC_256/HMAC_SHA1_96/PRF_HMAC_SHA1/MODP_2048
          IKE:AES_CBC_256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_2048
          IKE:AES_CBC_256/HMAC_SHA2_384_192/PRF_HMAC_SHA2_384/MODP_2048",
    esp: WINDOWS_ESP,
    first: (14, 256),
};

/// Windows 11 after Set-VpnConnectionIPsecConfiguration with AES256, SHA256 and Group14, which is what `user add --as windows` says:
/// <https://github.com/hwdsl2/setup-ipsec-vpn/issues/1511>, a log of 29 December 2023. Its ESP there is AES-GCM; 256 bits is what the script says.
const WINDOWS_SCRIPT: System = System {
    name: "Windows 11, with the script",
    ike: "IKE:AES_CBC_256/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/MODP_2048",
    esp: "ESP:AES_GCM_16_256/NO_EXT_SEQ",
    first: (14, 256),
};

/// Windows 10 after the same with AES128, SHA384 and ECP256: <https://github.com/trailofbits/algo/issues/760>, a log of 24 December 2017.
const WINDOWS_10_ECP: System = System {
    name: "Windows 10, with ECP256",
    ike: "IKE:AES_CBC_128/HMAC_SHA2_384_192/PRF_HMAC_SHA2_384/ECP_256",
    esp: "ESP:AES_GCM_16_128/NO_EXT_SEQ",
    first: (19, 64),
};

/// A transform in the words of strongSwan's log, with its number in the registry of IANA.
fn transform(word: &str) -> Transform {
    use TransformType::{Encryption, ExtendedSequenceNumbers, Integrity, KeyExchange, Prf};
    let sized = |id, bits| Transform::new(Encryption, id).with_key_length(bits);
    let bits = || word.rsplit('_').next().expect("bits").parse().expect("a number");
    match word {
        "DES_CBC" => Transform::new(Encryption, 2),
        "3DES_CBC" => Transform::new(Encryption, 3),
        "NULL" => Transform::new(Encryption, 11),
        "CHACHA20_POLY1305" => Transform::new(Encryption, 28),
        _ if word.starts_with("AES_CBC_") => sized(12, bits()),
        _ if word.starts_with("AES_CTR_") => sized(13, bits()),
        _ if word.starts_with("AES_GCM_8_") => sized(18, bits()),
        _ if word.starts_with("AES_GCM_12_") => sized(19, bits()),
        _ if word.starts_with("AES_GCM_16_") => sized(20, bits()),
        "HMAC_SHA1_96" => Transform::new(Integrity, 2),
        "AES_XCBC_96" => Transform::new(Integrity, 5),
        "AES_CMAC_96" => Transform::new(Integrity, 8),
        "HMAC_SHA2_256_128" => Transform::new(Integrity, 12),
        "HMAC_SHA2_384_192" => Transform::new(Integrity, 13),
        "HMAC_SHA2_512_256" => Transform::new(Integrity, 14),
        "PRF_HMAC_SHA1" => Transform::new(Prf, 2),
        "PRF_AES128_XCBC" => Transform::new(Prf, 4),
        "PRF_HMAC_SHA2_256" => Transform::new(Prf, 5),
        "PRF_HMAC_SHA2_384" => Transform::new(Prf, 6),
        "PRF_HMAC_SHA2_512" => Transform::new(Prf, 7),
        "PRF_AES128_CMAC" => Transform::new(Prf, 8),
        "MODP_1024" => Transform::new(KeyExchange, 2),
        "MODP_1536" => Transform::new(KeyExchange, 5),
        "MODP_2048" => Transform::new(KeyExchange, 14),
        "MODP_3072" => Transform::new(KeyExchange, 15),
        "MODP_4096" => Transform::new(KeyExchange, 16),
        "ECP_256" => Transform::new(KeyExchange, 19),
        "CURVE_25519" => Transform::new(KeyExchange, 31),
        "NO_EXT_SEQ" => Transform::new(ExtendedSequenceNumbers, 0),
        other => panic!("{other}"),
    }
}

fn offer(lines: &str) -> Vec<Proposal> {
    let proposal = |(number, line): (usize, &str)| {
        let (protocol, words) = line.trim().split_once(':').expect("a protocol");
        let ike = protocol == "IKE";
        Proposal {
            number: u8::try_from(number + 1).expect("few"),
            protocol: if ike { ProtocolId::Ike } else { ProtocolId::Esp },
            spi: if ike { Vec::new() } else { vec![1, 2, 3, 4] },
            transforms: words.split('/').map(transform).collect(),
        }
    };
    lines.lines().enumerate().map(proposal).collect()
}

/// A gateway with the default proposals, and what it answers to such a first message.
fn first_answer(system: &System, gateway: impl FnOnce(&mut Connection)) -> (Vec<Payload>, Option<String>) {
    let ca = Authority::new("CA");
    let (client, mut conn) = connections(&ca);
    assert_eq!(conn.ike_proposals, default_ike_proposals(), "the default configuration");
    gateway(&mut conn);
    let mut pair = Pair::new(client, conn, 1);
    let mut random = Seeded::new(7);
    let mut bytes = |len| {
        let mut bytes = vec![0; len];
        random.fill(&mut bytes);
        bytes
    };
    let payloads = [
        Payload::Sa(offer(system.ike)),
        Payload::Ke { group: system.first.0, data: bytes(system.first.1) },
        Payload::Nonce(bytes(48)),
    ];
    let mut message = Vec::new();
    let flags = Flags { initiator: true, version: false, response: false };
    let header = Header::new(0x1234_5678_9abc_def0, 0, ExchangeType::IkeSaInit, flags, 0);
    Message::emit(&header, &payloads, &mut message).expect("a message");
    let from = path(GATEWAY, common::CLIENT);
    let _ = pair.gateway.endpoint.handle_datagram(pair.now, from, &mut message);
    pair.flush();
    let (_, answer) = pair.wire.pop_first().expect("an answer");
    let answer = Message::parse(&answer.bytes).expect("an answer that is read").payloads;
    (answer, pair.gateway.peer_failure().map(|why| why.to_string()))
}

fn notified(answer: &[Payload], kind: NotifyType) -> Option<&[u8]> {
    answer.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == kind => Some(notify.data.as_slice()),
        _ => None,
    })
}

fn chosen(answer: &[Payload]) -> Option<&Proposal> {
    answer.iter().find_map(|payload| if let Payload::Sa(sa) = payload { sa.first() } else { None })
}

fn suite(system: &System) -> String {
    let choice = select_ike(&offer(system.ike), &default_ike_proposals(), Some(system.first.0));
    let choice = choice.unwrap_or_else(|why| panic!("{}: {why}", system.name));
    choice.suite.to_string()
}

fn esp(system: &System) -> Result<String, String> {
    let esp = &default_esp_proposals();
    let choice = select_esp(&offer(system.esp), esp, EsnPolicy::Prefer, KeyExchange::Never, None);
    choice.map(|choice| choice.suite.to_string()).map_err(|why| why.to_string())
}

#[test]
fn apple_android_and_windows_with_the_script_agree_with_the_default_gateway() {
    for (system, ike, packets) in [
        (&IOS, "aes256-sha256-prfsha256-modp2048", "aes256-sha256"),
        (&WINDOWS_SCRIPT, "aes256-sha256-prfsha256-modp2048", "aes256gcm16"),
        (&WINDOWS_10_ECP, "aes128-sha384-prfsha384-ecp256", "aes128gcm16"),
    ] {
        let (answer, why) = first_answer(system, |_| {});
        assert!(chosen(&answer).is_some() && why.is_none(), "{}: {why:?} {answer:?}", system.name);
        assert_eq!(suite(system), ike, "{}", system.name);
        assert_eq!(esp(system).as_deref(), Ok(packets), "{}", system.name);
    }
    // The key of Android's first message is of a group that is not here: it is asked for another one that it has offered.
    let (answer, _) = first_answer(&ANDROID, |_| {});
    assert_eq!(notified(&answer, NotifyType::InvalidKePayload), Some(&[0, 31][..]), "{answer:?}");
    let again = System { first: (31, 32), ..ANDROID };
    let (answer, why) = first_answer(&again, |_| {});
    assert!(chosen(&answer).is_some(), "{why:?} {answer:?}");
    assert_eq!(suite(&again), "aes256gcm16-prfsha256-x25519");
    assert_eq!(esp(&ANDROID).as_deref(), Ok("aes128gcm16"));
}

/// What Windows offers by itself has one group, which nobody should use any more and which no configuration can name here.
#[test]
fn windows_as_it_comes_is_refused_and_the_log_says_in_what_they_differ() {
    let (answer, why) = first_answer(&WINDOWS, |_| {});
    assert!(notified(&answer, NotifyType::NoProposalChosen).is_some(), "{answer:?}");
    let why = why.expect("the log knows");
    assert!(why.contains("they differ in key-exchange group (offered modp1024(unsupported);"), "{why}");
    assert!(why.contains("the peer must offer one of the acceptable ones"), "{why}");
    assert!("aes256-sha1-modp1024".parse::<dormouse_ike::config::IkeProposal>().is_err());
}

/// With a value in its registry the IKE SA comes, and packets would have SHA-1 alone: that is the administrator's to take, by name.
#[test]
fn windows_with_its_registry_value_needs_a_line_that_the_log_names() {
    let (answer, why) = first_answer(&WINDOWS_REGISTRY, |_| {});
    assert!(chosen(&answer).is_some() && why.is_none(), "{why:?}");
    assert_eq!(suite(&WINDOWS_REGISTRY), "aes256-sha256-prfsha256-modp2048");
    let why = esp(&WINDOWS_REGISTRY).expect_err("no SHA-1 by default");
    assert!(why.contains("add \"aes256-sha1\" to `child.proposals`"), "{why}");
    let mut taken = default_esp_proposals();
    taken.push("aes256-sha1".parse().expect("a proposal"));
    let choice = select_esp(&offer(WINDOWS_ESP), &taken, EsnPolicy::Prefer, KeyExchange::Never, None)
        .expect("taken now");
    assert_eq!(choice.suite.to_string(), "aes256-sha1");
}

/// Whole sessions with the suites that come of it, by our own initiator: of users with passwords, and rekeyed with and without a fresh exchange.
#[test]
fn sessions_with_these_suites_stand_and_are_rekeyed() {
    for (seed, (ike, esp)) in [
        ("aes256-sha256-modp2048", "aes256-sha256"),
        ("aes256gcm16-prfsha256-x25519", "aes128gcm16"),
        ("aes256-sha256-modp2048", "aes256gcm16-modp2048"),
        ("aes128-sha384-ecp256", "aes128gcm16-ecp256"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut pair = common::eap::pair_of(seed as u64, |_, client, _| {
            client.ike_proposals = vec![ike.parse().expect("a proposal")];
            client.children[0].proposals = vec![esp.parse().expect("a proposal")];
        });
        pair.connect();
        pair.settle();
        let up = pair.client.established().unwrap_or_else(|| panic!("{ike}: {:?}", pair.client.failure()));
        assert!(pair.client.endpoint.rekey_ike(pair.now, up.sa), "{ike}");
        let child = *pair.client.children.keys().next().expect("one");
        assert!(pair.client.endpoint.rekey_child(pair.now, child), "{esp}");
        pair.run_for(std::time::Duration::from_secs(10));
        assert_eq!((pair.client.endpoint.len(), pair.client.children.len()), (1, 1), "{ike} {esp}");
        pair.assert_agree();
    }
}

/// Windows says the subject of its certificate, and nothing else, of who it is.
#[test]
fn a_certificates_subject_is_taken_for_its_one_name_that_the_gateway_takes() {
    let ca = Authority::new("CA");
    for (names, pattern, expected) in [
        (&["joe.example.org"][..], "example.org", Some("joe.example.org")),
        (&["joe.example.org", "joe.example.com"], "example.org", Some("joe.example.org")),
        (&["joe.example.org", "ann.example.org"], "example.org", None),
        (&["joe.example.com"], "example.org", None),
    ] {
        let (mut client, mut gateway) = (common::client_psk(), common::gateway_psk());
        (client.remote_auth, gateway.remote_auth) = (ca.trusted(), ca.trusted());
        gateway.local_auth = ca.issue("gw.example.org", &rcgen::PKCS_ECDSA_P256_SHA256);
        gateway.remote_id = IdentityPattern::Suffix(pattern.into());
        let (auth, subject) = ca.issue_named("CN=joe", names);
        client.local_auth = auth;
        client.local_id = subject;
        let mut pair = Pair::new(client, gateway, 11);
        pair.connect();
        pair.settle();
        let up = pair.gateway.established().map(|up| up.peer);
        assert_eq!(up, expected.map(fqdn), "{names:?}: {:?}", pair.gateway.peer_failure());
    }
    // Another's subject is not believed for one's own names.
    let (mut client, mut gateway) = (common::client_psk(), common::gateway_psk());
    (client.remote_auth, gateway.remote_auth) = (ca.trusted(), ca.trusted());
    gateway.local_auth = ca.issue("gw.example.org", &rcgen::PKCS_ECDSA_P256_SHA256);
    let (_, ann) = ca.issue_named("CN=ann", &["ann.example.org"]);
    client.local_auth = ca.issue_named("CN=joe", &["joe.example.org"]).0;
    client.local_id = ann;
    let mut pair = Pair::new(client, gateway, 12);
    pair.connect();
    pair.settle();
    assert!(pair.gateway.established().is_none() && pair.gateway.peer_failure().is_some());
}

/// Nothing that is said here is said of pre-shared keys.
#[test]
fn a_subject_with_a_shared_secret_is_nobody() {
    let (mut client, mut gateway) = (common::client_psk(), common::gateway_psk());
    client.local_id = "CN=joe".parse().expect("a name");
    client.local_auth = LocalAuth::Psk(Secret::from(&b"correct horse battery staple"[..]));
    gateway.remote_id = IdentityPattern::Suffix("example.org".into());
    let mut pair = Pair::new(client, gateway, 13);
    pair.connect();
    pair.settle();
    assert!(pair.gateway.established().is_none());
}
