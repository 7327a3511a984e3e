//! EAP-TLS (RFC 5216 with TLS 1.2, RFC 9190 with TLS 1.3): both sides prove themselves by certificates.
//!
//! Owns the conversation of both ends, fragments and the key. TLS itself is rustls, certificates are judged by the same
//! [`TrustStore`](dormouse_crypto::cert::TrustStore) as those of IKE: one set of rules and of errors for both.
//!
//! **This is the one part of the crate that is not a function of its inputs**: rustls draws its random values, key shares and signatures from the cryptographic
//! library, so that no two conversations are alike. Time is handed in all the same ([`Clock`]), for the validity of certificates. It keeps out of the
//! simulated worlds: nothing there is configured for it.
//!
//! Sessions are not resumed: a reconnect has IKE's own tickets for that, and each conversation proves both certificates anew. SNI is not sent; who
//! the client expects is in its configuration, and it accepts no other.

mod config;
mod fragments;
mod peer;
mod server;
mod verify;

use std::io::Read as _;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::{CertError, Certificate};
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Connection, ProtocolVersion};

use crate::error::Error;
use crate::keys::Msk;
use crate::kind::Type;

pub use config::{ClientConfig, Clock, ConfigError, Own, ServerConfig, TunnelConfig};
pub(crate) use fragments::{Arrived, Fragments, START, nothing};
pub(crate) use peer::Client;
pub(crate) use server::Server;

/// Takes what the other side has sent.
pub(crate) fn feed(tls: &mut Connection, mut message: &[u8]) -> Result<(), Error> {
    while !message.is_empty() {
        let taken = tls.read_tls(&mut message).map_err(|e| Error::Tls(e.to_string()))?;
        tls.process_new_packets().map_err(|why| explain(&why))?;
        if taken == 0 {
            return Err(Error::Tls("the other side has closed it".to_owned()));
        }
    }
    Ok(())
}

/// What is to be sent: a whole flight, or an alert.
pub(crate) fn drain(tls: &mut Connection) -> Result<Vec<u8>, Error> {
    let mut flight = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut flight).map_err(|e| Error::Tls(e.to_string()))?;
    }
    Ok(flight)
}

/// The key of EAP-TLS.
fn key(tls: &Connection) -> Result<Msk, Error> {
    // RFC 5216 section 2.3.
    export(tls, Type::TLS, b"client EAP encryption")
}

/// Application data that has arrived; nothing honest sends more than one byte.
fn received(tls: &mut Connection) -> Vec<u8> {
    let mut data = [0; 16];
    let len = tls.reader().read(&mut data).unwrap_or(0);
    data[..len].to_vec()
}

/// The key of RFC 9190 section 2.3 (for other methods RFC 9427 section 2.1) with TLS 1.3, and the one of `label_12` with TLS 1.2.
pub(crate) fn export(tls: &Connection, kind: Type, label_12: &[u8]) -> Result<Msk, Error> {
    let (label, context) = match is_version_13(tls) {
        true => (&b"EXPORTER_EAP_TLS_Key_Material"[..], Some(&[kind.0][..])),
        false => (label_12, None),
    };
    // The second half is the EMSK, which IKEv2 has no use for. All of it, because the exporter of TLS 1.3 depends on the length.
    let mut material = Secret::zeroed(128);
    tls.export_keying_material(material.as_mut_bytes(), label, context)
        .map_err(|e| Error::Tls(e.to_string()))?;
    Ok(Msk::of(&[&material.as_bytes()[..Msk::LEN]]))
}

pub(crate) fn is_version_13(tls: &Connection) -> bool {
    tls.protocol_version() == Some(ProtocolVersion::TLSv1_3)
}

/// The error in our own words where it is ours.
fn explain(why: &rustls::Error) -> Error {
    match why {
        rustls::Error::InvalidCertificate(CertificateError::Other(inner)) => match inner.0.downcast_ref() {
            Some(ours) => Error::Certificate(CertError::clone(ours)),
            None => Error::Tls(why.to_string()),
        },
        rustls::Error::AlertReceived(alert) => Error::Tls(format!("the other side broke it off ({alert:?})")),
        rustls::Error::NoCertificatesPresented => {
            Error::Tls("the client has shown no certificate".to_owned())
        }
        _ => Error::Tls(why.to_string()),
    }
}

/// The other side's certificate, and those that came with it.
fn parse(der: &[CertificateDer<'_>]) -> Result<(Certificate, Vec<Certificate>), Error> {
    let mut parsed = der
        .iter()
        .map(|der| Certificate::from_der(der).map_err(|e| Error::Tls(e.to_string())))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter();
    let first = parsed.next().ok_or_else(|| Error::Tls("no certificate".to_owned()))?;
    Ok((first, parsed.collect()))
}
