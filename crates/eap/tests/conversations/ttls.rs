//! Conversations of EAP-TTLS with a client that is made here, of rustls alone: our own does not have this method.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use crate::common::{Table, password};
use dormouse_crypto::cert::Certificate;
use dormouse_crypto::sign::SigningKey;
use dormouse_eap::authenticator::{Authenticator, Config, Method, Step, Users};
use dormouse_eap::packet::{Packet, Type};
use dormouse_eap::peer::{self, Peer};
use dormouse_eap::tls::{Clock, Own, TunnelConfig};
use dormouse_eap::{Error, NtHash, limits};
use dormouse_sansio::{Seeded, UnixTime};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, date_time_ymd};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// 2026-06-01, inside of the validity of the certificate here.
const NOW: u64 = 1_780_272_000;

#[derive(Debug)]
struct June;

impl TimeProvider for June {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        Some(rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW)))
    }
}

/// A gateway, and the certificate of its authority.
struct Gateway {
    config: Arc<Config>,
    authority: CertificateDer<'static>,
}

impl Gateway {
    fn new() -> Self {
        let mut ca = CertificateParams::default();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca =
            rcgen::CertifiedIssuer::self_signed(ca, KeyPair::generate().expect("a key")).expect("a root");
        let mut params = CertificateParams::new(vec!["vpn.example.com".to_owned()]).expect("a name");
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2027, 1, 1));
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let certificate = params.signed_by(&key, &ca).expect("a certificate");
        let certificate = Certificate::from_der(certificate.der()).expect("a certificate");
        let key = SigningKey::from_der(key.serialized_der()).expect("a key of ours");
        let own = Own::new(&[certificate], Arc::new(key)).expect("they belong together");
        let tunnel = TunnelConfig::new(&own, Clock::new(|| UnixTime(NOW))).expect("a configuration");
        let config = Config::new(Method::Ttls(tunnel), Vec::new(), "gateway", &mut Seeded::new(1));
        Self { config: Arc::new(config), authority: ca.der().clone() }
    }
}

/// A client with a tunnel, once it has one.
struct Client {
    tls: ClientConnection,
}

impl Client {
    fn new(gateway: &Gateway, is_13: bool) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(gateway.authority.clone()).expect("an authority");
        let version = if is_13 { &rustls::version::TLS13 } else { &rustls::version::TLS12 };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(June))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from("vpn.example.com").expect("a name");
        Self { tls: ClientConnection::new(Arc::new(config), name).expect("a connection") }
    }

    fn export(&self, len: usize, label: &str, context: Option<&[u8]>) -> Vec<u8> {
        self.tls.export_keying_material(vec![0; len], label.as_bytes(), context).expect("a key")
    }

    fn key(&self, is_13: bool) -> Vec<u8> {
        let key = match is_13 {
            true => self.export(128, "EXPORTER_EAP_TLS_Key_Material", Some(&[21])),
            false => self.export(128, "ttls keying material", None),
        };
        key[..64].to_vec()
    }

    fn challenge(&self) -> Vec<u8> {
        self.export(17, "ttls challenge", None)
    }
}

fn avp(vendor: u32, code: u32, value: &[u8]) -> Vec<u8> {
    let (flags, vendor) = if vendor == 0 { (0x40, vec![]) } else { (0xc0, vendor.to_be_bytes().to_vec()) };
    let len = u32::try_from(8 + vendor.len() + value.len()).expect("short").to_be_bytes();
    let mut avp = [&code.to_be_bytes()[..], &[flags], &len[1..], &vendor, value].concat();
    avp.resize(avp.len().next_multiple_of(4), 0);
    avp
}

/// How a conversation ended at the gateway, and the key that the client has.
#[derive(Debug)]
struct Outcome {
    gateway: Result<(String, Vec<u8>), Error>,
    client: Vec<u8>,
    /// Requests of EAP-TTLS.
    requests: usize,
}

/// Lets them talk. `inside` is given what has come through the tunnel (nothing at first), and says what goes back, or nothing.
fn talk(
    gateway: &Gateway,
    users: &dyn Users,
    is_13: bool,
    inside: &mut dyn FnMut(&Client, &[u8]) -> Vec<u8>,
    on_the_way: &mut dyn FnMut(usize, &mut Vec<u8>),
) -> Option<Outcome> {
    let mut random = Seeded::new(2);
    let mut client = Client::new(gateway, is_13);
    let (mut server, mut request) =
        Authenticator::begin(&gateway.config, Some("anonymous".to_owned()), &mut random);
    let (mut is_open, mut flight) = (false, Vec::new());
    for requests in 1..40 {
        on_the_way(2 * requests, &mut request);
        let Ok(Packet::Request { identifier, kind: Type::TTLS, data }) = Packet::parse(&request) else {
            return None;
        };
        let flags = *data.first()?;
        let body = if flags & 0x80 == 0 { &data[1..] } else { data.get(5..)? };
        flight.extend_from_slice(body);
        let mut answer = vec![0];
        // A fragment is acknowledged.
        if flags & 0x40 == 0 {
            let mut all = std::mem::take(&mut flight);
            let mut rest = &all[..];
            while !rest.is_empty() {
                client.tls.read_tls(&mut rest).ok()?;
                client.tls.process_new_packets().ok()?;
            }
            all.clear();
            let _ = client.tls.reader().read_to_end(&mut all);
            if !client.tls.is_handshaking() && (!is_open || !all.is_empty()) {
                is_open = true;
                let said = inside(&client, &all);
                client.tls.writer().write_all(&said).ok()?;
            }
            while client.tls.wants_write() {
                client.tls.write_tls(&mut answer).ok()?;
            }
        }
        let mut response = Packet::Response { identifier, kind: Type::TTLS, data: &answer }.emit().ok()?;
        on_the_way(2 * requests + 1, &mut response);
        let key = |client: &Client| if is_open { client.key(is_13) } else { Vec::new() };
        request = match server.receive(&response, users, &mut random) {
            Step::Send(request) => request,
            Step::Succeeded { identity, msk, packet } => {
                assert_eq!(packet[0], 3);
                let gateway = Ok((identity, msk.as_bytes().to_vec()));
                return Some(Outcome { gateway, client: key(&client), requests });
            }
            Step::Failed { why, packet } => {
                assert_eq!(packet[0], 4);
                return Some(Outcome { gateway: Err(why), client: key(&client), requests });
            }
            Step::Ignore => return None,
        };
    }
    panic!("no end");
}

fn users() -> Table {
    Table::new(&[("alice", "correct horse"), ("bob@example.com", "naïve 🐭")])
}

fn pap(name: &str, password: &str) -> Vec<u8> {
    let mut padded = password.as_bytes().to_vec();
    padded.resize(padded.len().next_multiple_of(16), 0);
    [avp(0, 1, name.as_bytes()), avp(0, 2, &padded)].concat()
}

fn run(is_13: bool, users: &dyn Users, inside: &mut dyn FnMut(&Client, &[u8]) -> Vec<u8>) -> Outcome {
    talk(&Gateway::new(), users, is_13, inside, &mut |_, _| ()).expect("an end")
}

fn with_pap(is_13: bool, name: &str, password: &str) -> Outcome {
    run(is_13, &users(), &mut |_, _| pap(name, password))
}

#[test]
fn passwords_in_the_clear() {
    for is_13 in [false, true] {
        for (name, password, user) in [
            ("alice", "correct horse", "alice"),
            ("EXAMPLE\\alice", "correct horse", "alice"),
            ("bob@example.com", "naïve 🐭", "bob@example.com"),
        ] {
            let outcome = with_pap(is_13, name, password);
            assert_eq!(outcome.gateway, Ok((user.to_owned(), outcome.client.clone())), "{is_13}");
            // With TLS 1.3 the password comes with the end of the handshake.
            assert_eq!(outcome.requests, if is_13 { 2 } else { 3 });
        }
        for (name, password) in [("alice", "wrong"), ("alice", ""), ("carol", "correct horse"), ("", "")] {
            assert_eq!(with_pap(is_13, name, password).gateway, Err(Error::WrongPassword));
        }
    }
}

/// A gateway that keeps a better hash than NT's is asked for the password alone.
#[test]
fn passwords_that_the_gateway_judges() {
    struct Better;
    impl Users for Better {
        fn mschapv2(&self, _user: &str) -> Option<NtHash> {
            panic!("it has none")
        }
        fn password(&self, user: &str, password: &str) -> bool {
            user == "alice" && password == "correct horse"
        }
    }
    let outcome = run(true, &Better, &mut |_, _| pap("alice", "correct horse"));
    assert_eq!(outcome.gateway, Ok(("alice".to_owned(), outcome.client)));
    let outcome = run(true, &Better, &mut |_, _| pap("alice", "wrong"));
    assert_eq!(outcome.gateway, Err(Error::WrongPassword));
}

/// EAP-MSCHAPv2 by our own peer, as EAP inside.
fn eap_inside(client: &mut Peer, said: &[u8]) -> Vec<u8> {
    let random = &mut Seeded::new(3);
    let packet = match said {
        [] => b"\x01\x00\x00\x05\x01".to_vec(),
        [0, 0, 0, 79, 0x40, 0, high, low, ..] => {
            said[8..usize::from(u16::from_be_bytes([*high, *low]))].to_vec()
        }
        other => panic!("{other:02x?}"),
    };
    match client.receive(&packet, random) {
        peer::Step::Send(answer) => avp(0, 79, &answer),
        other => panic!("{other:?}"),
    }
}

#[test]
fn eap_in_the_tunnel() {
    for is_13 in [false, true] {
        let mut alice = Peer::new(password("EXAMPLE\\alice", "correct horse"));
        let outcome = run(is_13, &users(), &mut |_, said| eap_inside(&mut alice, said));
        assert_eq!(outcome.gateway, Ok(("alice".to_owned(), outcome.client)));
        let mut wrong = Peer::new(password("alice", "wrong"));
        let outcome = run(is_13, &users(), &mut |_, said| eap_inside(&mut wrong, said));
        assert_eq!(outcome.gateway, Err(Error::WrongPassword));
        let mut unknown = Peer::new(password("carol", "wrong"));
        let outcome = run(is_13, &users(), &mut |_, said| eap_inside(&mut unknown, said));
        assert_eq!(outcome.gateway, Err(Error::UnknownUser));
    }
    // A Nak, another identifier, a request, and bytes that are no EAP.
    for packet in
        [&b"\x02\x01\x00\x06\x03\x04"[..], b"\x02\x09\x00\x06\x1a\x03", b"\x01\x01\x00\x05\x01", b"\x02"]
    {
        let mut turn = 0;
        let outcome = run(true, &users(), &mut |_, _| {
            turn += 1;
            avp(0, 79, if turn == 1 { b"\x02\x00\x00\x0a\x01alice" } else { packet })
        });
        assert!(outcome.gateway.is_err(), "{packet:02x?}");
    }
}

/// A response of MS-CHAPv2 to this challenge, by our own peer; and what it expects of the gateway.
fn ms_chap(name: &str, secret: &str, challenge: &[u8]) -> Vec<u8> {
    let mut client = Peer::new(password(name, secret));
    let data = [&[1, challenge[16], 0, 21, 16][..], &challenge[..16]].concat();
    let request = Packet::Request { identifier: 1, kind: Type::MSCHAPV2, data: &data }.emit().expect("short");
    let peer::Step::Send(response) = client.receive(&request, &mut Seeded::new(9)) else {
        panic!("no response")
    };
    // Behind EAP's header, the method's and a length: 49 bytes, with the flags last.
    let value = &response[10..59];
    let response = [&[challenge[16], 0][..], &value[..48]].concat();
    [avp(0, 1, name.as_bytes()), avp(311, 11, &challenge[..16]), avp(311, 25, &response)].concat()
}

#[test]
fn ms_chap_in_the_tunnel() {
    for is_13 in [false, true] {
        let mut proof = Vec::new();
        let outcome = run(is_13, &users(), &mut |client, said| match said {
            [] => ms_chap("alice", "correct horse", &client.challenge()),
            said => {
                proof = said.to_vec();
                Vec::new()
            }
        });
        assert_eq!(outcome.gateway, Ok(("alice".to_owned(), outcome.client)));
        assert_eq!(proof[..12], *b"\0\0\0\x1a\xc0\0\0\x37\0\0\x01\x37");
        assert_eq!((proof.len(), &proof[13..15]), (56, &b"S="[..]));
        for (name, secret, why) in
            [("alice", "wrong", Error::WrongPassword), ("carol", "correct horse", Error::UnknownUser)]
        {
            let outcome = run(is_13, &users(), &mut |client, _| ms_chap(name, secret, &client.challenge()));
            assert_eq!(outcome.gateway, Err(why));
        }
        // Who says more instead of taking our proof.
        let outcome =
            run(is_13, &users(), &mut |client, _| ms_chap("alice", "correct horse", &client.challenge()));
        assert!(matches!(outcome.gateway, Err(Error::Unexpected(_))));
        // A challenge of the client's choice, for which it may have seen a response elsewhere.
        for changed in [0..16, 16..17] {
            let outcome = run(is_13, &users(), &mut |client, said| {
                if !said.is_empty() {
                    return Vec::new();
                }
                let mut challenge = client.challenge();
                challenge[changed.clone()].iter_mut().for_each(|byte| *byte ^= 1);
                ms_chap("alice", "correct horse", &challenge)
            });
            assert!(matches!(outcome.gateway, Err(Error::Unexpected(_))), "{changed:?}");
        }
    }
}

#[test]
fn what_is_none_of_these() {
    let name = avp(0, 1, b"alice");
    for inside in [
        name.clone(),
        avp(0, 2, b"correct horse\0\0\0"),
        [name.clone(), avp(0, 3, &[1; 17]), avp(0, 60, &[2; 16])].concat(),
        [pap("alice", "correct horse"), avp(311, 25, &[0; 50])].concat(),
        [name.clone(), avp(311, 11, &[0; 16]), avp(311, 25, &[0; 49])].concat(),
        [name.clone(), avp(0, 2, b"\xff")].concat(),
        vec![0; 7],
        [name, vec![0; limits::MAX_TUNNELLED]].concat(),
    ] {
        for is_13 in [false, true] {
            let outcome = run(is_13, &users(), &mut |_, _| inside.clone());
            assert!(outcome.gateway.is_err(), "{inside:02x?}");
        }
    }
    // What is mandatory and unknown spoils the rest; what is not mandatory is passed over.
    let mut more = avp(0, 4_000, b"?");
    let outcome = run(true, &users(), &mut |_, _| [more.clone(), pap("alice", "correct horse")].concat());
    assert!(matches!(outcome.gateway, Err(Error::Unexpected(_))), "{outcome:?}");
    more[4] = 0;
    let outcome = run(true, &users(), &mut |_, _| [more.clone(), pap("alice", "correct horse")].concat());
    assert!(outcome.gateway.is_ok(), "{outcome:?}");
    // Nothing where something is due.
    let outcome = run(true, &users(), &mut |_, _| Vec::new());
    assert_eq!(outcome.gateway, Err(Error::PeerRefused));
}

#[test]
fn every_flipped_byte() {
    let (gateway, users) = (Gateway::new(), users());
    for is_13 in [false, true] {
        let once = |way: &mut dyn FnMut(usize, &mut Vec<u8>)| {
            talk(&gateway, &users, is_13, &mut |_, _| pap("alice", "correct horse"), way)
        };
        let mut lengths = Vec::new();
        assert!(once(&mut |n, packet| lengths.push((n, packet.len()))).is_some_and(|o| o.gateway.is_ok()));
        let mut fine = 0;
        for (number, len) in lengths {
            for at in 0..len {
                let outcome = once(&mut |n, packet| {
                    if n == number
                        && let Some(byte) = packet.get_mut(at)
                    {
                        *byte ^= 0x11;
                    }
                });
                if let Some(Outcome { gateway: Ok((user, key)), client, .. }) = outcome {
                    assert_eq!((user.as_str(), key), ("alice", client), "packet {number} byte {at}");
                    fine += 1;
                }
            }
        }
        // Bits of flags that mean nothing, versions in headers of records.
        assert!(fine < 60, "{fine}");
    }
}
