//! What each side brings: its certificate and key, whom it trusts, and the time. Owns the settings of rustls.

use core::fmt;
use std::sync::Arc;

use dormouse_crypto::cert::{Certificate, Identity, TrustStore};
use dormouse_crypto::sign::{Scheme, SigningKey};
use dormouse_sansio::UnixTime;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{self, CertificateDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, Signer, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::verify::{Clients, Servers};

/// What o'clock it is: the driver's answer.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> UnixTime + Send + Sync>);

impl Clock {
    /// A clock that is asked once or twice in each conversation.
    pub fn new(now: impl Fn() -> UnixTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(super) fn now(&self) -> UnixTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<pki_types::UnixTime> {
        Some(pki_types::UnixTime::since_unix_epoch(core::time::Duration::from_secs(self.now().0)))
    }
}

/// A certificate and key that do not serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is none.
    #[error("EAP-TLS needs a certificate")]
    NoCertificate,
    /// They do not belong together.
    #[error("the key is not the one of the certificate \"{0}\"")]
    OtherKey(String),
    /// The library refuses it.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// A certificate of our own, those that lead to its authority, and its key, which may be in a token.
#[derive(Clone, Debug)]
pub struct Own(Arc<CertifiedKey>);

impl Own {
    /// `chain` has our own certificate first.
    ///
    /// # Errors
    /// [`ConfigError::NoCertificate`], [`ConfigError::OtherKey`].
    pub fn new(chain: &[Certificate], key: Arc<SigningKey>) -> Result<Self, ConfigError> {
        let own = chain.first().ok_or(ConfigError::NoCertificate)?;
        if own.public_key().ok().as_ref() != Some(key.public_key()) {
            return Err(ConfigError::OtherKey(own.subject()));
        }
        let chain = chain.iter().map(|c| CertificateDer::from(c.der().to_vec())).collect();
        Ok(Self(Arc::new(CertifiedKey::new(chain, Arc::new(Key(key))))))
    }

    fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.0)))
    }
}

/// The gateway's settings, cheap to copy.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(super) tls: Arc<rustls::ServerConfig>,
    pub(super) clients: Arc<Clients>,
}

impl ServerConfig {
    /// `clients` has the authorities that clients' certificates may come from, which are told to them, and certificates that are trusted as they are.
    ///
    /// # Errors
    /// [`ConfigError::Tls`].
    pub fn new(own: &Own, clients: TrustStore, clock: Clock) -> Result<Self, ConfigError> {
        Self::with_versions(own, clients, clock, &[&TLS13, &TLS12])
    }

    /// The settings of a server of TLS 1.3 by TCP, which believes the same clients by the same rules.
    ///
    /// # Errors
    /// [`ConfigError::Tls`].
    pub fn by_tcp(
        own: &Own,
        clients: TrustStore,
        clock: Clock,
    ) -> Result<Arc<rustls::ServerConfig>, ConfigError> {
        Self::with_versions(own, clients, clock, &[&TLS13]).map(|made| made.tls)
    }

    fn with_versions(
        own: &Own,
        clients: TrustStore,
        clock: Clock,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Result<Self, ConfigError> {
        let provider = provider();
        let clients =
            Arc::new(Clients::new(clients, clock.clone(), provider.signature_verification_algorithms));
        let mut tls = rustls::ServerConfig::builder_with_details(provider, Arc::new(clock))
            .with_protocol_versions(versions)
            .map_err(|e| ConfigError::Tls(e.to_string()))?
            .with_client_cert_verifier(Arc::clone(&clients) as _)
            .with_cert_resolver(own.resolver());
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        Ok(Self { tls: Arc::new(tls), clients })
    }
}

/// The settings of a gateway that proves itself by its certificate and takes clients without one, who prove themselves inside
/// (EAP-TTLS). Cheap to copy.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    pub(crate) tls: Arc<rustls::ServerConfig>,
}

impl TunnelConfig {
    /// The gateway's certificate must be one that clients expect of this method, which may be another than in IKE.
    ///
    /// # Errors
    /// [`ConfigError::Tls`].
    pub fn new(own: &Own, clock: Clock) -> Result<Self, ConfigError> {
        let mut tls = rustls::ServerConfig::builder_with_details(provider(), Arc::new(clock))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|e| ConfigError::Tls(e.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(own.resolver());
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        Ok(Self { tls: Arc::new(tls) })
    }
}

/// The client's settings, cheap to copy.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(super) tls: Arc<rustls::ClientConfig>,
    pub(super) servers: Arc<Servers>,
}

impl ClientConfig {
    /// `servers` has the authorities that the server's certificate may come from, and `server` the name that it must have, because authorities vouch for
    /// others, too.
    ///
    /// # Errors
    /// [`ConfigError::Tls`].
    pub fn new(own: &Own, servers: TrustStore, server: Identity, clock: Clock) -> Result<Self, ConfigError> {
        Self::with_versions(own, servers, server, clock, &[&TLS13, &TLS12])
    }

    /// The settings of a client of TLS 1.3 by TCP, which believes the same servers by the same rules.
    ///
    /// # Errors
    /// [`ConfigError::Tls`].
    pub fn by_tcp(
        own: &Own,
        servers: TrustStore,
        server: Identity,
        clock: Clock,
    ) -> Result<Arc<rustls::ClientConfig>, ConfigError> {
        Self::with_versions(own, servers, server, clock, &[&TLS13]).map(|made| made.tls)
    }

    /// With TLS 1.2 alone: what many clients still are, for tests of a server.
    ///
    /// # Errors
    /// [`ConfigError::Tls`].
    pub fn version_12(
        own: &Own,
        servers: TrustStore,
        server: Identity,
        clock: Clock,
    ) -> Result<Self, ConfigError> {
        Self::with_versions(own, servers, server, clock, &[&TLS12])
    }

    fn with_versions(
        own: &Own,
        servers: TrustStore,
        server: Identity,
        clock: Clock,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Result<Self, ConfigError> {
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let servers = Arc::new(Servers::new(servers, server, clock.clone(), algorithms));
        let mut tls = rustls::ClientConfig::builder_with_details(provider, Arc::new(clock))
            .with_protocol_versions(versions)
            .map_err(|e| ConfigError::Tls(e.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&servers) as _)
            .with_client_cert_resolver(own.resolver());
        tls.resumption = Resumption::disabled();
        tls.enable_sni = false;
        Ok(Self { tls: Arc::new(tls), servers })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Our key, as rustls sees it.
#[derive(Clone)]
struct Key(Arc<SigningKey>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.0.public_key().kind())
    }
}

/// The numbers of TLS for our schemes.
const fn number(scheme: Scheme) -> Option<SignatureScheme> {
    match scheme {
        Scheme::RsaPkcs1Sha256 => Some(SignatureScheme::RSA_PKCS1_SHA256),
        Scheme::RsaPkcs1Sha384 => Some(SignatureScheme::RSA_PKCS1_SHA384),
        Scheme::RsaPkcs1Sha512 => Some(SignatureScheme::RSA_PKCS1_SHA512),
        Scheme::RsaPssSha256 => Some(SignatureScheme::RSA_PSS_SHA256),
        Scheme::RsaPssSha384 => Some(SignatureScheme::RSA_PSS_SHA384),
        Scheme::RsaPssSha512 => Some(SignatureScheme::RSA_PSS_SHA512),
        // A key of ours signs with the one hash that its curve has in TLS.
        Scheme::EcdsaSha256 => Some(SignatureScheme::ECDSA_NISTP256_SHA256),
        Scheme::EcdsaSha384 => Some(SignatureScheme::ECDSA_NISTP384_SHA384),
        Scheme::EcdsaSha512 => Some(SignatureScheme::ECDSA_NISTP521_SHA512),
        Scheme::Ed25519 => Some(SignatureScheme::ED25519),
    }
}

impl rustls::sign::SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let usable = |ours: &Scheme| Some((*ours, number(*ours).filter(|number| offered.contains(number))?));
        let (ours, number) = self.0.schemes().iter().find_map(usable)?;
        Some(Box::new(WithScheme { key: self.clone(), ours, number }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.0.schemes().first() {
            Some(Scheme::Ed25519) => SignatureAlgorithm::ED25519,
            Some(Scheme::EcdsaSha256 | Scheme::EcdsaSha384 | Scheme::EcdsaSha512) => {
                SignatureAlgorithm::ECDSA
            }
            _ => SignatureAlgorithm::RSA,
        }
    }
}

#[derive(Debug)]
struct WithScheme {
    key: Key,
    ours: Scheme,
    number: SignatureScheme,
}

impl Signer for WithScheme {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.key.0.sign(self.ours, message).map_err(|e| rustls::Error::General(e.to_string()))
    }

    fn scheme(&self) -> SignatureScheme {
        self.number
    }
}
