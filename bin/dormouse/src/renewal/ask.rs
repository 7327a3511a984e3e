//! A device's conversation with the gateway that renews its certificate (EST, RFC 7030). Owns how it is led; what is done with the answer is decided elsewhere.

use super::http::{self, Refusal};
use super::stream::{self, Timed};
use crate::enrol::names;
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::cert::{Certificate, Identity, TrustStore};
use dormouse_crypto::cms;
use dormouse_crypto::sign::SigningKey;
use dormouse_eap::tls::{ClientConfig, Clock, Own};
use dormouse_io::clock::unix_now;
use dormouse_io::tcp;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long the connection may take, for which the radio may have to wake; and then the conversation.
const PATIENCE: Duration = Duration::from_secs(30);

/// Both ends, as the connection of IKE knows them.
pub(super) struct Ends {
    pub(super) chain: Vec<Certificate>,
    pub(super) key: Arc<SigningKey>,
    pub(super) trust: TrustStore,
    pub(super) gateway: Identity,
    /// The inner address that the gateway gave.
    pub(super) from: IpAddr,
    pub(super) at: SocketAddr,
}

fn failed(at: SocketAddr, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Other, format!("{at}: {why}"))
}

/// Asks for a certificate for this request.
///
/// # Errors
/// Why there is none, in the gateway's words if it has any.
pub(super) fn ask(ends: &Ends, request: &[u8]) -> Result<Vec<Certificate>, Error> {
    let at = ends.at;
    let fail = |e: &dyn std::fmt::Display| failed(at, e);
    let own = Own::new(&ends.chain, Arc::clone(&ends.key)).map_err(|e| fail(&e))?;
    let settings = ClientConfig::by_tcp(&own, ends.trust.clone(), ends.gateway.clone(), Clock::new(unix_now));
    let settings = settings.map_err(|e| fail(&e))?;
    let conn = ClientConnection::new(settings, ServerName::from(at.ip())).map_err(|e| fail(&e))?;
    let stream = tcp::connect(ends.from, at, PATIENCE).map_err(|e| unreached(at, &e))?;
    let mut tls = StreamOwned::new(conn, Timed::new(stream, PATIENCE));
    let talked = tls.write_all(&http::request(&at.to_string(), request)).and_then(|()| tls.flush());
    talked.map_err(|e| broken_off(at, &e))?;
    let answer = stream::read(&mut tls, http::MOST_ANSWER, http::answered).map_err(|e| broken_off(at, &e))?;
    let answer =
        answer.ok_or_else(|| failed(at, "the gateway has closed the connection without an answer"))?;
    match answer.map_err(|why| failed(at, why))? {
        Ok(message) => cms::certificates_of(&message).map_err(|e| fail(&e)),
        Err(refusal) => Err(refused(&refusal)),
    }
}

/// The gateway's words, of which no terminal may obey one.
fn refused(Refusal { status, why }: &Refusal) -> Error {
    let why: String = names::harmless(why.lines().next().unwrap_or_default()).chars().take(300).collect();
    let kind = if *status == 403 { ErrorKind::Authentication } else { ErrorKind::Other };
    let error = Error::new(kind, format!("the gateway refuses: {why}"));
    if *status == 403 { error.with_change("dormouse user renew NAME, at the gateway") } else { error }
}

fn unreached(at: SocketAddr, e: &io::Error) -> Error {
    let message = format!("the gateway does not renew certificates at {at}: {e}");
    Error::new(ErrorKind::Other, message).with_change("at the gateway: systemctl status dormouse-renewals")
}

/// A conversation that has ended too soon. TLS says which certificate it does not like.
fn broken_off(at: SocketAddr, e: &io::Error) -> Error {
    let tls = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::AlertReceived(alert)) => {
            let message = format!("the gateway does not take this device's certificate ({alert:?})");
            Error::new(ErrorKind::Authentication, message)
                .with_change("dormouse user renew NAME, at the gateway")
        }
        Some(rustls::Error::InvalidCertificate(why)) => {
            Error::new(ErrorKind::Authentication, format!("who answers at {at} is not the gateway: {why}"))
        }
        _ if e.kind() == io::ErrorKind::TimedOut => {
            Error::new(ErrorKind::Timeout, format!("{at}: the gateway does not answer in time"))
        }
        _ => failed(at, e),
    }
}
