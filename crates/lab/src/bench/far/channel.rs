//! The connection between the two machines: TCP, a line that says who serves, TLS 1.3, and the proofs of the secret. Owns
//! times and handshake; must never hand over a connection whose other side has not proved that it knows the secret.

use std::cell::Cell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::{SockRef, TcpKeepalive};

use super::message::{self, Hello, PROTOCOL, Welcome};
use super::secret::{Pass, Side};
use crate::bench::cpu;

/// All that comes before the first order takes no longer.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);
/// A client waits for the greeting while the server waits for another one to show who it is.
const TURN: Duration = Duration::from_secs(15);
/// A machine that is silent for so long, even to the kernel's probes, is gone.
const GONE: Duration = Duration::from_secs(20);
const NAME: &str = "far.bench";
const EXPORTER: &[u8] = b"EXPERIMENTAL dormouse bench";
const GREETING: &str = "dormouse-bench";
/// Bytes of the first line, at most.
const LINE: usize = 64;

/// Prepares the TCP connection: no delays, and a peer that vanished is noticed.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    socket.set_tcp_keepalive(&probes)?;
    Ok(socket.set_tcp_user_timeout(Some(GONE))?)
}

/// Whether a server takes the client that it greets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Greeting {
    /// It does.
    Ready,
    /// It has another one.
    Busy,
}

/// Writes the line with which a server begins.
///
/// # Errors
/// If the client does not take it.
pub(super) fn greet(stream: &mut TcpStream, greeting: Greeting) -> Result<()> {
    stream.set_write_timeout(Some(HANDSHAKE))?;
    let word = if greeting == Greeting::Ready { "ready" } else { "busy" };
    let line = format!("{GREETING} {PROTOCOL} {} {word}\n", env!("CARGO_PKG_VERSION"));
    Ok(stream.write_all(line.as_bytes())?)
}

/// Reads that line.
///
/// # Errors
/// If this is another program, another version, or busy.
pub(super) fn greeted(stream: &mut impl Read) -> Result<()> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE {
        let n = stream.read(&mut byte).context("it says nothing")?;
        if n == 0 || byte == *b"\n" {
            break;
        }
        line.extend(byte);
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let words: Vec<&str> = line.split(' ').collect();
    let [GREETING, protocol, version, word] = words[..] else {
        bail!("this is no dormouse bench --serve: it says {line:?}");
    };
    let ours = (PROTOCOL.to_string(), env!("CARGO_PKG_VERSION"));
    ensure!(
        (protocol, version) == (ours.0.as_str(), ours.1),
        "the other machine has dormouse {version} (protocol {protocol}) and this one {} ({}): both must have the same",
        ours.1,
        ours.0
    );
    match word {
        "ready" => Ok(()),
        "busy" => bail!("it is busy with another client"),
        _ => bail!("this is no dormouse bench --serve: it says {line:?}"),
    }
}

/// A TCP stream whose reads and writes end at one point in time, however many there are.
#[derive(Debug)]
pub(super) struct Limited {
    stream: TcpStream,
    until: Rc<Cell<Instant>>,
}

impl Limited {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.get().saturating_duration_since(cpu::wall());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// The kernel calls a time that is over "try again", which would not be right here.
fn timed(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer).map_err(timed)
    }
}

impl Write for Limited {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buffer).map_err(timed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// One side of the connection.
pub(super) struct Channel<T> {
    tls: T,
    until: Rc<Cell<Instant>>,
}

/// The device's side.
pub(super) type ClientChannel = Channel<StreamOwned<ClientConnection, Limited>>;
/// The far machine's.
pub(super) type ServerChannel = Channel<StreamOwned<ServerConnection, Limited>>;

impl<T> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel")
    }
}

impl<T: Read + Write> Channel<T> {
    /// Says something, within `patience`.
    ///
    /// # Errors
    /// As [`message::write`].
    pub(super) fn say(&mut self, what: &impl Serialize, patience: Duration) -> Result<()> {
        self.until.set(cpu::wall() + patience);
        message::write(&mut self.tls, what)
    }

    /// Hears something, within `patience`.
    ///
    /// # Errors
    /// As [`message::read`].
    pub(super) fn hear<M: DeserializeOwned>(&mut self, patience: Duration) -> Result<Option<M>> {
        self.until.set(cpu::wall() + patience);
        message::read(&mut self.tls)
    }
}

/// What a server needs: its certificate, made when it starts, and the secret that goes with it.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    config: Arc<ServerConfig>,
    pub(super) pass: Pass,
}

impl Identity {
    /// A fresh one.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub(super) fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
        let certificate = made.cert.der().clone();
        let pass = Pass::new(&certificate);
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), pass })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn limited(stream: TcpStream) -> (Limited, Rc<Cell<Instant>>) {
    let until = Rc::new(Cell::new(cpu::wall() + HANDSHAKE));
    (Limited { stream, until: until.clone() }, until)
}

/// The far machine's side of a connection that was greeted: the handshake, and the client's proof. The answer to it is left to
/// the caller: it comes with what this function returns beside the channel.
///
/// # Errors
/// For anybody who does not know the secret, and for nonsense.
pub(super) fn accept(stream: TcpStream, identity: &Identity) -> Result<(ServerChannel, Hello, String)> {
    let (mut stream, until) = limited(stream);
    let mut connection = ServerConnection::new(identity.config.clone())?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).context("the handshake")?;
    }
    let exporter = connection.export_keying_material([0; 32], EXPORTER, None)?;
    let mut channel = Channel { tls: StreamOwned::new(connection, stream), until };
    let hello: Hello = channel.hear(HANDSHAKE)?.context("it left without a word")?;
    if !identity.pass.holds(Side::Client, &exporter, &hello.proof) {
        channel.say(&Welcome::Refused("the secret is wrong".into()), HANDSHAKE)?;
        bail!("it does not know the secret");
    }
    let proof = hex::encode(identity.pass.proof(Side::Server, &exporter).as_bytes());
    Ok((channel, hello, proof))
}

/// The device's side: greeting, handshake, both proofs.
///
/// # Errors
/// For a server that is another program or version, busy, or not the one that the secret is of; and what it has against us.
pub(super) fn connect(mut stream: TcpStream, pass: &Pass) -> Result<(ClientChannel, Welcome)> {
    let (from, to) = ends(&stream)?;
    stream.set_read_timeout(Some(TURN))?;
    greeted(&mut stream)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned(pass.clone())))
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), ServerName::try_from(NAME)?)?;
    let (mut stream, until) = limited(stream);
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|error| {
            let refused = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
            match refused {
                Some(rustls::Error::InvalidCertificate(_)) => anyhow::anyhow!(
                    "the secret is of another server: it was started anew since, or somebody is in between"
                ),
                _ => anyhow::Error::new(error).context("the handshake"),
            }
        })?;
    }
    let exporter = connection.export_keying_material([0; 32], EXPORTER, None)?;
    let mut channel = Channel { tls: StreamOwned::new(connection, stream), until };
    let proof = hex::encode(pass.proof(Side::Client, &exporter).as_bytes());
    channel.say(&Hello { proof, from, to }, HANDSHAKE)?;
    // The far machine looks at itself for a moment before it answers.
    let welcome = channel.hear(HANDSHAKE * 2)?.context("it left without a word")?;
    if let Welcome::Granted { proof, .. } = &welcome {
        ensure!(pass.holds(Side::Server, &exporter, proof), "the other machine does not know the secret");
    }
    Ok((channel, welcome))
}

/// Our end of a connection and the other one. An IPv4 address is one, also on a socket for both families.
///
/// # Errors
/// If it is gone.
pub(super) fn ends(stream: &TcpStream) -> Result<(SocketAddr, SocketAddr)> {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (ours, theirs) = (plain(stream.local_addr()?), plain(stream.peer_addr()?));
    if let IpAddr::V6(address) = theirs.ip() {
        ensure!(
            !address.is_unicast_link_local(),
            "{address} holds on one link alone: another address is needed"
        );
    }
    Ok((ours, theirs))
}

/// Accepts the one certificate that the secret is of.
#[derive(Debug)]
struct Pinned(Pass);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.0.is_of(certificate) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
