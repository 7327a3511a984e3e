//! In the place of EAP-TLS, in a program without the feature `tls`: certificate and key serve for nothing, so that no configuration of it is ever made, nor
//! of EAP-TTLS.

use std::sync::Arc;

use dormouse_crypto::cert::{Certificate, Identity, TrustStore, Verified};
use dormouse_crypto::sign::SigningKey;
use dormouse_sansio::UnixTime;

use crate::error::Error;
use crate::keys::Msk;
use crate::method::Turn;
use crate::users::Users;

/// It is asked by nothing.
#[derive(Clone, Debug)]
pub struct Clock;

impl Clock {
    /// A clock.
    pub fn new(_: impl Fn() -> UnixTime + Send + Sync + 'static) -> Self {
        Self
    }
}

/// Why there is no configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no certificate.
    #[error("EAP-TLS needs a certificate")]
    NoCertificate,
    /// TLS is not there.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// What there is none of.
#[derive(Clone, Debug)]
enum Never {}

/// A certificate and key. There is none.
#[derive(Clone, Debug)]
pub struct Own(Never);

impl Own {
    /// # Errors
    /// Always.
    pub fn new(_: &[Certificate], _: Arc<SigningKey>) -> Result<Self, ConfigError> {
        Err(ConfigError::Tls("this program was built without it".to_owned()))
    }
}

/// The gateway's settings. There are none.
#[derive(Clone, Debug)]
pub struct ServerConfig(Never);

impl ServerConfig {
    /// # Errors
    /// None: there is no `own`.
    pub fn new(own: &Own, _: TrustStore, _: Clock) -> Result<Self, ConfigError> {
        match own.0 {}
    }
}

/// The gateway's settings for EAP-TTLS. There are none.
#[derive(Clone, Debug)]
pub struct TunnelConfig(Never);

impl TunnelConfig {
    pub(crate) const fn never(&self) -> ! {
        match self.0 {}
    }

    /// # Errors
    /// None: there is no `own`.
    pub fn new(own: &Own, _: Clock) -> Result<Self, ConfigError> {
        match own.0 {}
    }
}

/// The client's settings. There are none.
#[derive(Clone, Debug)]
pub struct ClientConfig(Never);

impl ClientConfig {
    /// # Errors
    /// None: there is no `own`.
    pub fn new(own: &Own, _: TrustStore, _: Identity, _: Clock) -> Result<Self, ConfigError> {
        match own.0 {}
    }
}

/// The client's part.
#[derive(Debug)]
pub(crate) struct Client(Never);

impl Client {
    pub(crate) fn new(config: ClientConfig) -> Self {
        match config.0 {}
    }

    pub(crate) const fn has_begun(&self) -> bool {
        match self.0 {}
    }

    pub(crate) const fn msk(&self) -> Option<&Msk> {
        match self.0 {}
    }

    pub(crate) fn server(&self) -> Option<(Certificate, Verified)> {
        match self.0 {}
    }

    pub(crate) const fn refusal(&self) -> Option<&Error> {
        match self.0 {}
    }

    pub(crate) fn receive(&mut self, _: &[u8]) -> Result<Vec<u8>, Error> {
        match self.0 {}
    }
}

/// The gateway's part.
#[derive(Debug)]
pub(crate) struct Server(Never);

impl Server {
    pub(crate) fn start(config: &ServerConfig) -> Result<(Self, Vec<u8>), Error> {
        match config.0 {}
    }

    pub(crate) const fn refusal(&self) -> Option<&Error> {
        match self.0 {}
    }

    pub(crate) fn receive(&mut self, _: &[u8], _: Option<&str>, _: &dyn Users) -> Turn {
        match self.0 {}
    }
}
