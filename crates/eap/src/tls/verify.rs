//! Certificates of the other side, judged by our own trust store. Owns no rule: it asks `dormouse_crypto::cert`, and hands signatures to rustls' library.

use std::sync::Arc;

use dormouse_crypto::cert::{Certificate, Identity, KnownPaths, TrustStore, Usage, Verified};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme};

use super::config::Clock;
use super::parse;
use crate::error::Error;

/// Whom a gateway believes.
#[derive(Debug)]
pub(super) struct Clients {
    trust: TrustStore,
    clock: Clock,
    /// The names of the authorities, for clients that have several certificates.
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Clients {
    pub(super) fn new(trust: TrustStore, clock: Clock, algorithms: WebPkiSupportedAlgorithms) -> Self {
        let subject = |ca: &Certificate| match ca.identities().into_iter().next() {
            Some(Identity::Dn(der)) => Some(DistinguishedName::from(der)),
            _ => None,
        };
        // Who issued a certificate that is trusted as it is does not stand there: then nothing is said.
        let pinned = trust.pinned().next().is_some();
        let hints = if pinned { Vec::new() } else { trust.authorities().filter_map(subject).collect() };
        Self { trust, clock, hints, algorithms }
    }

    /// The client's certificate and how it is trusted; without the proof of its key, which is TLS'.
    pub(super) fn judge(&self, chain: &[CertificateDer<'_>]) -> Result<(Certificate, Verified), Error> {
        judge(&self.trust, &self.clock, chain, Usage::IkeOrClientAuth)
    }
}

/// Whom a client believes.
#[derive(Debug)]
pub(super) struct Servers {
    trust: TrustStore,
    wanted: Identity,
    clock: Clock,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Servers {
    pub(super) const fn new(
        trust: TrustStore,
        wanted: Identity,
        clock: Clock,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self { trust, wanted, clock, algorithms }
    }

    /// The server's certificate and how it is trusted, if it is who it must be; without the proof of its key, which is TLS'.
    pub(super) fn judge(&self, chain: &[CertificateDer<'_>]) -> Result<(Certificate, Verified), Error> {
        let (certificate, verified) = judge(&self.trust, &self.clock, chain, Usage::IkeOrServerAuth)?;
        certificate.require(&self.wanted)?;
        Ok((certificate, verified))
    }
}

fn judge(
    trust: &TrustStore,
    clock: &Clock,
    chain: &[CertificateDer<'_>],
    usage: Usage,
) -> Result<(Certificate, Verified), Error> {
    let (certificate, others) = parse(chain)?;
    let verified = trust.verify(&certificate, &others, clock.now(), usage, &KnownPaths::default())?;
    Ok((certificate, verified))
}

/// For the log here; the other side gets an alert that says little.
fn refuse(why: Error) -> rustls::Error {
    match why {
        Error::Certificate(why) => CertificateError::Other(OtherError(Arc::new(why))).into(),
        why => rustls::Error::General(why.to_string()),
    }
}

fn whole<'a>(end_entity: &CertificateDer<'a>, others: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
    [&[end_entity.clone()][..], others].concat()
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.judge(&whole(end_entity, intermediates)).map_err(refuse)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.judge(&whole(end_entity, intermediates)).map_err(refuse)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
