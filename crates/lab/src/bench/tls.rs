//! TLS 1.2 and 1.3 as `rustls` speaks them, with a certificate made for the occasion. Owns the list of what is compared; must
//! never accept a certificate that was not made here.

use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};

/// A version with a cipher.
#[derive(Debug)]
pub(crate) struct TlsSuite {
    /// Its name in result files.
    pub(crate) name: &'static str,
    /// Bits of the cipher's key.
    pub(crate) key_bits: u32,
    version: &'static SupportedProtocolVersion,
    cipher: CipherSuite,
}

const fn tls13(name: &'static str, key_bits: u32, cipher: CipherSuite) -> TlsSuite {
    TlsSuite { name, key_bits, version: &rustls::version::TLS13, cipher }
}

const fn tls12(name: &'static str, key_bits: u32, cipher: CipherSuite) -> TlsSuite {
    TlsSuite { name, key_bits, version: &rustls::version::TLS12, cipher }
}

/// What is compared with IPsec: the ciphers that both have.
#[rustfmt::skip]
pub(crate) const SUITES: [TlsSuite; 6] = [
    tls13("tls13-aes128gcm",        128, CipherSuite::TLS13_AES_128_GCM_SHA256),
    tls13("tls13-aes256gcm",        256, CipherSuite::TLS13_AES_256_GCM_SHA384),
    tls13("tls13-chacha20poly1305", 256, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    tls12("tls12-aes128gcm",        128, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    tls12("tls12-aes256gcm",        256, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    tls12("tls12-chacha20poly1305", 256, CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
];

const NAME: &str = "sender.bench";

/// Both ends of one suite, or the client's alone.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Option<Arc<ServerConfig>>,
    certificate: CertificateDer<'static>,
}

impl Tls {
    /// The ends of the suite called `name`, with a fresh certificate (ECDSA on P-256).
    ///
    /// # Errors
    /// If there is no such suite, or no certificate can be made.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let suite = find(name)?;
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let client = client(suite, certificate.clone())?;
        let mut server = ServerConfig::builder_with_provider(provider(suite))
            .with_protocol_versions(&[suite.version])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)?;
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Some(Arc::new(server)), certificate })
    }

    /// The client's end of the suite called `name`, for a server with this certificate (DER).
    ///
    /// # Errors
    /// If there is no such suite, or that is no certificate.
    pub(crate) fn trusting(name: &str, certificate: Vec<u8>) -> Result<Self> {
        let certificate = CertificateDer::from(certificate);
        let client = client(find(name)?, certificate.clone())?;
        Ok(Self { client: Arc::new(client), server: None, certificate })
    }

    /// The server's certificate (DER).
    pub(crate) fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The client's end of a connection.
    ///
    /// # Errors
    /// If the session cannot be set up.
    pub(crate) fn client(&self, stream: TcpStream) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let connection = ClientConnection::new(self.client.clone(), ServerName::try_from(NAME)?)?;
        Ok(StreamOwned::new(connection, stream))
    }

    /// The server's.
    ///
    /// # Errors
    /// As [`Tls::client`].
    pub(crate) fn server(&self, stream: TcpStream) -> Result<StreamOwned<ServerConnection, TcpStream>> {
        let server = self.server.clone().context("the server's key is elsewhere")?;
        Ok(StreamOwned::new(ServerConnection::new(server)?, stream))
    }
}

/// The suite called `name`.
///
/// # Errors
/// If there is none.
pub(crate) fn find(name: &str) -> Result<&'static TlsSuite> {
    SUITES.iter().find(|s| s.name == name).with_context(|| format!("no TLS suite {name:?}"))
}

/// What can do this suite and no other.
fn provider(suite: &TlsSuite) -> Arc<CryptoProvider> {
    let default = aws_lc_rs::default_provider();
    let only = default.cipher_suites.iter().filter(|s| s.suite() == suite.cipher).copied().collect();
    Arc::new(CryptoProvider { cipher_suites: only, ..default })
}

fn client(suite: &TlsSuite, certificate: CertificateDer<'static>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut client = ClientConfig::builder_with_provider(provider(suite))
        .with_protocol_versions(&[suite.version])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Every file is a session of its own: what is measured is the whole handshake.
    client.resumption = rustls::client::Resumption::disabled();
    Ok(client)
}
