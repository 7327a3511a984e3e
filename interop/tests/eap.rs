//! EAP with others' implementations at the other end, which say what key they have: wpa_supplicant as client of our authenticator, on Ethernet; and hostapd as RADIUS server
//! and authenticator for our peer.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::{Certificate, TrustStore};
use dormouse_crypto::sign::SigningKey;
use dormouse_eap::authenticator::{self, Authenticator, Config, Users};
use dormouse_eap::peer::{self, Credentials, Peer};
use dormouse_eap::radius::{Access, Account, Answer, Client, Connection, Event, Usage};
use dormouse_eap::tls::{ClientConfig, Clock, Own, ServerConfig, TunnelConfig};
use dormouse_eap::{Error, NtHash};
use dormouse_io::clock::unix_now;
use dormouse_io::frames::FrameSocket;
use dormouse_sansio::Seeded;
use dormouse_testbed::{Host, Key, Need, Pki, Process, Testbed, require};

const PASSWORD: &str = "correct horse ü";
/// Of EAP over LAN: where it is sent to, by whom, and its number.
const ETHERNET: [u8; 14] = [1, 0x80, 0xc2, 0, 0, 3, 2, 0, 0, 0, 0, 1, 0x88, 0x8e];

struct Alice;

impl Users for Alice {
    fn mschapv2(&self, user: &str) -> Option<NtHash> {
        if user == "alice" { NtHash::of_password(PASSWORD) } else { None }
    }
}

fn pki(testbed: &Testbed) -> Result<Pki> {
    let pki = Pki::new(&testbed.dir().join("pki"), Key::P256)?;
    for name in ["vpn.test", "alice.test"] {
        pki.issue(name, Key::Rsa(2048))?;
    }
    Ok(pki)
}

fn own(pki: &Pki, name: &str) -> Result<Own> {
    let chain = Certificate::from_file_content(&std::fs::read(pki.path(&format!("{name}.pem")))?)?;
    let key = SigningKey::from_file_content(&std::fs::read(pki.path(&format!("{name}.key")))?)?;
    Ok(Own::new(&chain, Arc::new(key))?)
}

fn trust(pki: &Pki) -> Result<TrustStore> {
    Ok(TrustStore::new(Certificate::from_file_content(&std::fs::read(pki.path("ca.pem"))?)?)?)
}

/// The last key that a daemon says it has derived, 32 or 64 bytes; two zeros for each byte that it has fewer than we.
fn derived(log: &str) -> Option<String> {
    let line = log.lines().rfind(|line| line.contains("Derived key - hexdump(len="))?;
    let digits: String = line.rsplit_once(':')?.1.split_whitespace().collect();
    Some(format!("{digits:0<128}"))
}

fn digits(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Answers a client on Ethernet until the conversation ends: the user and the key, or why not.
fn serve(
    socket: &mut FrameSocket,
    config: &Arc<Config>,
    seed: u64,
) -> Result<Result<(String, String), Error>> {
    let mut random = Seeded::new(seed);
    let (mut gateway, first) = Authenticator::begin(config, None, &mut random);
    let send = |socket: &FrameSocket, eap: &[u8]| -> Result<()> {
        let len = u16::try_from(eap.len())?.to_be_bytes();
        Ok(socket.send(&[&ETHERNET[..], &[2, 0], &len, eap].concat())?)
    };
    for _ in 0..4_000 {
        let mut frames = Vec::new();
        match socket.receive(&mut |frame| frames.push(frame.to_vec())) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            other => _ = other?,
        }
        for frame in frames {
            let (kind, body) = match frame.get(12..) {
                Some([0x88, 0x8e, _, kind, high, low, rest @ ..]) => {
                    (*kind, rest.get(..usize::from(u16::from_be_bytes([*high, *low]))).unwrap_or_default())
                }
                _ => continue,
            };
            // The client's start (1) is answered by the first request, an EAP packet (0) by what follows.
            if kind == 1 {
                send(socket, &first)?;
            } else if kind == 0 {
                match gateway.receive(body, &Alice, &mut random) {
                    authenticator::Step::Send(request) => send(socket, &request)?,
                    authenticator::Step::Succeeded { packet, identity, msk } => {
                        send(socket, &packet)?;
                        return Ok(Ok((identity, digits(msk.as_bytes()))));
                    }
                    authenticator::Step::Failed { packet, why } => {
                        send(socket, &packet)?;
                        return Ok(Err(why));
                    }
                    authenticator::Step::Ignore => {}
                }
            }
        }
    }
    bail!("the client did not come to an end")
}

/// wpa_supplicant with one network of these settings.
fn supplicant(device: &Host, name: &str, settings: &str) -> Result<Process> {
    let (file, control) = (device.dir().join(format!("{name}.conf")), device.dir().join("control"));
    let network = format!("network={{\nkey_mgmt=IEEE8021X\neapol_flags=0\n{settings}\n}}\n");
    std::fs::write(&file, format!("ctrl_interface={}\nap_scan=0\n{network}", control.display()))?;
    let file = file.to_str().context("a path that is text")?;
    device.spawn(name, "wpa_supplicant", &["-D", "wired", "-i", "eap1", "-c", file, "-K", "-dd"])
}

#[test]
fn clients_of_wpa_supplicant() -> Result<()> {
    if !require("EAP with wpa_supplicant", &[Need::Root, Need::Program("wpa_supplicant")]) {
        return Ok(());
    }
    let mut testbed = Testbed::new()?;
    let (gateway, device) = (testbed.host("gateway")?, testbed.host("device")?);
    testbed.link((&gateway, "eap0", &[]), (&device, "eap1", &[]))?;
    let mut socket = gateway.run(|| FrameSocket::open("eap0"))??;
    let pki = pki(&testbed)?;
    let (server, clock) = (own(&pki, "vpn.test")?, Clock::new(unix_now));
    let tls = authenticator::Method::Tls(ServerConfig::new(&server, trust(&pki)?, clock.clone())?);
    let ttls = authenticator::Method::Ttls(TunnelConfig::new(&server, clock)?);
    let plain = authenticator::Method::MsChapV2;
    let file = |name: &str| pki.path(name).display().to_string();
    let ca = format!("ca_cert=\"{}\"\ndomain_match=\"vpn.test\"", file("ca.pem"));
    let secret = |user: &str, password: &str| format!("identity=\"{user}\"\npassword=\"{password}\"");
    let alice = secret("alice", PASSWORD);
    let (certificate, key) = (file("alice.test.pem"), file("alice.test.key"));
    let with_tls = |version: &str| {
        format!(
            "eap=TLS\nidentity=\"alice.test\"\n{ca}\nclient_cert=\"{certificate}\"\nprivate_key=\"{key}\"\n\
             phase1=\"tls_disable_tlsv1_3={version}\""
        )
    };
    let with_ttls = |inner: &str, version: &str| {
        format!(
            "eap=TTLS\nanonymous_identity=\"anonymous\"\n{alice}\n{ca}\nphase2=\"{inner}\"\n\
             phase1=\"tls_disable_tlsv1_3={version}\""
        )
    };
    let mut cases = vec![
        ("mschapv2", &plain, format!("eap=MSCHAPV2\n{alice}"), Ok("alice")),
        ("domain", &plain, format!("eap=MSCHAPV2\n{}", secret("EXAMPLE\\alice", PASSWORD)), Ok("alice")),
        ("wrong", &plain, format!("eap=MSCHAPV2\n{}", secret("alice", "wrong")), Err(Error::WrongPassword)),
        ("unknown", &plain, format!("eap=MSCHAPV2\n{}", secret("carol", PASSWORD)), Err(Error::UnknownUser)),
    ];
    for version in ["1", "0"] {
        cases.push(("tls", &tls, with_tls(version), Ok("alice.test")));
        for inner in ["auth=PAP", "auth=MSCHAPV2", "autheap=MSCHAPV2"] {
            cases.push(("ttls", &ttls, with_ttls(inner, version), Ok("alice")));
        }
    }
    for (number, (name, method, settings, expected)) in cases.into_iter().enumerate() {
        let config = Config::new(method.clone(), Vec::new(), "gateway", &mut Seeded::new(number as u64));
        let mut client = supplicant(&device, &format!("{name}{number}"), &settings)?;
        let ended = serve(&mut socket, &Arc::new(config), number as u64)
            .with_context(|| format!("{name} {settings}\n{}", client.log()))?;
        match (ended, expected) {
            (Ok((user, key)), Ok(expected)) => {
                client.wait_for("CTRL-EVENT-EAP-SUCCESS", Duration::from_secs(10))?;
                assert_eq!((user.as_str(), Some(key)), (expected, derived(&client.log())), "{settings}");
            }
            (Err(why), Err(expected)) => {
                client.wait_for("CTRL-EVENT-EAP-FAILURE", Duration::from_secs(10))?;
                assert_eq!(why, expected);
            }
            other => panic!("{name} {settings}: {other:?}\n{}", client.log()),
        }
        client.stop();
    }
    Ok(())
}

/// hostapd as RADIUS server alone, which has alice with a password and with a certificate.
fn radius_server(host: &Host, pki: &Pki) -> Result<Process> {
    let file = |name: &str| host.dir().join(name).display().to_string();
    std::fs::write(file("users"), format!("\"alice\" MSCHAPV2 \"{PASSWORD}\"\n\"alice.test\" TLS\n"))?;
    std::fs::write(file("clients"), "127.0.0.1/32 shared secret\n")?;
    let path = |name: &str| pki.path(name).display().to_string();
    let settings = format!(
        "interface=lo\ndriver=none\neap_server=1\neap_user_file={}\nca_cert={}\nserver_cert={}\nprivate_key={}\n\
         tls_flags=[ENABLE-TLSv1.3]\nradius_server_clients={}\nradius_server_auth_port=1812\nradius_server_acct_port=1813\n",
        file("users"),
        path("ca.pem"),
        path("vpn.test.pem"),
        path("vpn.test.key"),
        file("clients")
    );
    std::fs::write(file("hostapd.conf"), settings)?;
    let mut server = host.spawn("hostapd", "hostapd", &["-K", "-dd", &file("hostapd.conf")])?;
    server.wait_for("AP-ENABLED", Duration::from_secs(10))?;
    Ok(server)
}

/// A request and what comes back, if it comes.
fn exchange(socket: &UdpSocket, port: u16, request: &[u8]) -> Result<Vec<u8>> {
    let mut buffer = [0; 4_096];
    socket.send_to(request, ("127.0.0.1", port))?;
    let len = socket.recv(&mut buffer)?;
    Ok(buffer[..len].to_vec())
}

/// One conversation of our peer through our client: the user and the key that the server gives, which is the peer's, or why not.
fn through_radius(
    socket: &UdpSocket,
    connection: &Connection,
    who: Credentials,
) -> Result<Result<(String, String), Error>> {
    let mut random = Seeded::new(5);
    let mut peer = Peer::new(who);
    let mut access = Access::new(connection.clone());
    let mut packet = Access::question(0)?;
    for identifier in 0..100 {
        let response = match peer.receive(&packet, &mut random) {
            peer::Step::Send(response) => response,
            other => bail!("the peer does not answer: {other:?}"),
        };
        let request = access.ask(identifier, &response, &mut random)?;
        packet = match access.answer(&exchange(socket, 1812, &request)?)? {
            Answer::Continue { eap } => eap,
            Answer::Accepted { eap, identity, msk, .. } => {
                assert_eq!(peer.receive(&eap, &mut random), peer::Step::Succeeded(Some(msk.clone())));
                return Ok(Ok((identity, digits(msk.as_bytes()))));
            }
            Answer::Rejected { eap, .. } => match peer.receive(&eap, &mut random) {
                peer::Step::Failed(why) => return Ok(Err(why)),
                other => bail!("the peer does not fail: {other:?}"),
            },
            Answer::Broken { why, .. } => bail!(why),
        };
    }
    bail!("the server did not come to an end")
}

#[test]
fn a_radius_server_of_hostapd() -> Result<()> {
    if !require("EAP with hostapd", &[Need::Root, Need::Program("hostapd")]) {
        return Ok(());
    }
    let mut testbed = Testbed::new()?;
    let host = testbed.host("radius")?;
    let pki = pki(&testbed)?;
    let server = radius_server(&host, &pki)?;
    let socket = host.run(|| UdpSocket::bind("127.0.0.1:0"))??;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let connection = |secret: &str| -> Result<Connection> {
        let secret = Secret::from(secret.as_bytes());
        let client = Client { secret, name: "gateway".to_owned(), address: "192.0.2.1".parse()? };
        Ok(Connection { client: Arc::new(client), from: "198.51.100.7".to_owned() })
    };
    let ours = connection("shared secret")?;
    let password = |password: &str| Credentials {
        identity: "alice".to_owned(),
        method: peer::Method::MsChapV2 { password: Secret::from(password.as_bytes()) },
    };
    let certificate = |make: fn(&Own, TrustStore, _, _) -> _| -> Result<Credentials> {
        let config: ClientConfig =
            make(&own(&pki, "alice.test")?, trust(&pki)?, "vpn.test".parse()?, Clock::new(unix_now))?;
        Ok(Credentials { identity: "alice.test".to_owned(), method: peer::Method::Tls(config) })
    };
    for (who, name) in [
        (password(PASSWORD), "alice"),
        (certificate(ClientConfig::version_12)?, "alice.test"),
        (certificate(ClientConfig::new)?, "alice.test"),
    ] {
        let ended = through_radius(&socket, &ours, who).with_context(|| server.log())?;
        let Ok((user, key)) = ended else { panic!("{ended:?}\n{}", server.log()) };
        assert_eq!((user.as_str(), Some(key)), (name, derived(&server.log())));
    }
    assert_eq!(through_radius(&socket, &ours, password("wrong"))?, Err(Error::WrongPassword));

    let mut account = Account::new(ours, "alice".to_owned(), "1".to_owned(), None, Vec::new());
    let usage = Usage { time: Duration::from_secs(61), received: 5 << 32, ..Usage::default() };
    for (identifier, event) in (0..).zip([Event::Start, Event::Interim(usage), Event::Stop(usage, 1)]) {
        let report = account.report(identifier, event, Duration::ZERO)?;
        account.answer(&exchange(&socket, 1813, &report)?)?;
    }
    // To who has another secret the server says nothing.
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    assert!(through_radius(&socket, &connection("another")?, password(PASSWORD)).is_err());
    Ok(())
}
