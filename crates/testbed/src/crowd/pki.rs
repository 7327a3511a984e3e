//! Throw-away certificates in memory, and connections that use them. Owns the keys of crowds and benchmarks; every run makes its
//! own.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::{Certificate, Identity, TrustStore, Usage};
use dormouse_crypto::sign::SigningKey;
use dormouse_ike::config::{Connection, IdentityPattern, LocalAuth, RemoteAuth, Role};
use dormouse_io::state::write_atomically;
use rcgen::KeyPair;

use crate::pki::{Authority, Key};

/// How both ends prove who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// A pre-shared key.
    Psk,
    /// Certificates with RSA-2048 keys, issued by an authority with one.
    Rsa2048,
    /// Certificates with ECDSA P-256 keys, issued by an authority with one.
    EcdsaP256,
}

/// The name that every gateway has.
pub const GATEWAY_NAME: &str = "gateway.test";
/// Clients are named below this domain.
pub const DOMAIN: &str = "clients.test";

/// The name of client `number`.
#[must_use]
pub fn device(number: usize) -> String {
    format!("device{number}.{DOMAIN}")
}

/// Identities of a gateway and its clients.
pub enum Pki {
    /// One key for all clients and the gateway.
    Psk(Secret),
    /// An authority, with one key for the gateway and one that all clients share (making 100 RSA keys takes long, and the
    /// time of a handshake does not depend on whose key it is).
    Certificates(Box<Certificates>),
}

/// See [`Pki::Certificates`].
pub struct Certificates {
    ca: Authority,
    gateway: KeyPair,
    clients: KeyPair,
    trust: Arc<TrustStore>,
}

impl Pki {
    /// Fresh keys.
    ///
    /// # Errors
    /// If the library refuses to make them.
    pub fn new(proof: Proof) -> Result<Self> {
        let key = match proof {
            Proof::Psk => return Ok(Self::Psk(Secret::from(&b"throw-away-pre-shared-key-0123456789"[..]))),
            Proof::Rsa2048 => Key::Rsa(2048),
            Proof::EcdsaP256 => Key::P256,
        };
        let ca = Authority::new(key)?;
        let trust = Arc::new(TrustStore::new(vec![Certificate::from_der(ca.own().der())?])?);
        let (gateway, clients) = (key.generate()?, key.generate()?);
        Ok(Self::Certificates(Box::new(Certificates { ca, gateway, clients, trust })))
    }

    /// The gateway's connection: it answers every client of this PKI and gives each an inner address.
    ///
    /// # Errors
    /// If the certificate cannot be issued.
    pub fn gateway(&self) -> Result<Connection> {
        let clients = IdentityPattern::Suffix(DOMAIN.to_owned());
        let mut conn = self.connection("clients", GATEWAY_NAME, clients, |c| &c.gateway)?;
        conn.role = Role::Responder;
        conn.answering.policy.pool =
            ["0.0.0.0/0", "::/0"].iter().filter_map(|net| net.parse().ok()).collect();
        for child in &mut conn.children {
            std::mem::swap(&mut child.ts_local, &mut child.ts_remote);
        }
        Ok(conn)
    }

    /// The connection of client `number`; it asks for an inner address.
    ///
    /// # Errors
    /// If the certificate cannot be issued.
    pub fn client(&self, number: usize) -> Result<Connection> {
        let name = device(number);
        let gateway = IdentityPattern::Exact(Identity::Fqdn(GATEWAY_NAME.to_owned()));
        let mut conn = self.connection("home", &name, gateway, |c| &c.clients)?;
        conn.request.v4 = true;
        Ok(conn)
    }

    /// Writes what a gateway in a process of its own needs into `dir`: `ca.pem`, `gateway.pem` and `gateway.key`.
    ///
    /// # Errors
    /// If this is no PKI with certificates, or a file cannot be written.
    pub fn write_gateway(&self, dir: &Path) -> Result<()> {
        let Self::Certificates(c) = self else { bail!("a pre-shared key needs no files") };
        std::fs::create_dir_all(dir)?;
        let write = |name: &str, pem: String| {
            let path = dir.join(name);
            write_atomically(&path, pem.as_bytes(), 0o600).with_context(|| path.display().to_string())
        };
        write("ca.pem", c.ca.own().pem())?;
        write("gateway.pem", c.ca.issue(GATEWAY_NAME, &c.gateway)?.pem())?;
        write("gateway.key", c.gateway.serialize_pem())
    }

    fn connection(
        &self,
        name: &str,
        own: &str,
        peer: IdentityPattern,
        key: impl Fn(&Certificates) -> &KeyPair,
    ) -> Result<Connection> {
        let (local, remote) = match self {
            Self::Psk(secret) => (LocalAuth::Psk(secret.clone()), RemoteAuth::Psk(secret.clone())),
            Self::Certificates(c) => {
                let (key, trust) = (key(c), c.trust.clone());
                let remote = RemoteAuth::Cert {
                    trust,
                    usage: Usage::Ike,
                    accept_rsa_sha1: false,
                    revocation: Default::default(),
                };
                (c.issue(own, key)?, remote)
            }
        };
        Ok(Connection::new(name, Identity::Fqdn(own.to_owned()), local, peer, remote))
    }
}

impl Certificates {
    fn issue(&self, name: &str, key: &KeyPair) -> Result<LocalAuth> {
        let chain = vec![self.ca.issue(name, key)?.der().to_vec()];
        let key = SigningKey::from_der(key.serialized_der()).context("the key that rcgen made")?;
        Ok(LocalAuth::Cert { key: Arc::new(key), chain })
    }
}
