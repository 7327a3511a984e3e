//! `dormouse gateway renewals`: answers devices that renew their certificates, inside the tunnel alone. Owns the listener, who may be connected at once, and
//! for how long; the configuration is read for each connection, so that a change counts from the next one on.
//!
//! It is a process of its own, because it has the authority's key, which the daemon never reads. Who asks is known three times before a byte of his request
//! is read: the daemon has given his inner address to an identity, TLS has proved his certificate, and its authority is ours.

use super::http::{self, Asked, Refusal};
use super::judge::{self, Asking, broken};
use super::stream::{self, Timed};
use crate::book::Book;
use crate::client::Client;
use crate::control_verbs::unexpected;
use crate::enrol::authority::Authority;
use crate::enrol::names::harmless;
use crate::enrol::place::{self, CONFIG, Place};
use clap::Args;
use dormouse_control::{Error, ErrorKind, ExitCode, Holder, Renewal, Reply, Verb};
use dormouse_crypto::cert::{Certificate, TrustStore};
use dormouse_crypto::cms;
use dormouse_crypto::sign::SigningKey;
use dormouse_eap::tls::{Clock, Own, ServerConfig};
use dormouse_io::clock::unix_now;
use dormouse_io::tcp;
use dormouse_node::config;
use dormouse_node::config::file::{Connection, File};
use dormouse_node::config::renewals::Renewals;
use rustls::{ServerConnection, StreamOwned};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Devices at once, and connections of one.
const MOST: usize = 16;
const MOST_OF_ONE: usize = 2;
/// A conversation is over after this, from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(15);
/// A place is free again so long after it was left: it bounds what one who comes again and again can have computed.
const REST: Duration = Duration::from_millis(500);

type Tls = StreamOwned<ServerConnection, Timed>;

#[derive(Debug, Args)]
pub(crate) struct RenewalsArgs {
    /// The gateway's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

pub(crate) fn run(args: &RenewalsArgs, socket: &Path) -> Result<ExitCode, Error> {
    let place = Place::of(&args.config);
    let all: BTreeSet<SocketAddr> = read(&place)?.connection.values().filter_map(Renewals::served).collect();
    if all.is_empty() {
        println!("no connection of this gateway renews certificates ([connection.NAME.renewals])");
        return Ok(ExitCode::Ok);
    }
    // Before it listens: what is missing is said at once.
    authority(&place)?;
    let service = Arc::new(Service { place, socket: socket.to_owned(), busy: Mutex::default() });
    let listen = |at: SocketAddr| match tcp::listen(at) {
        Ok(listener) => Ok((listener, at)),
        Err(e) => Err(Error::new(ErrorKind::Other, format!("{at}: {e}"))),
    };
    let listeners = all.into_iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    let serve = |(listener, at): (TcpListener, SocketAddr)| {
        println!("certificates are renewed at {at}");
        let service = Arc::clone(&service);
        std::thread::spawn(move || service.accept(&listener))
    };
    let threads: Vec<_> = listeners.into_iter().map(serve).collect();
    for thread in threads {
        let _ = thread.join();
    }
    Err(Error::new(ErrorKind::Other, "no connection is accepted any more"))
}

/// The configuration.
fn read(place: &Place) -> Result<File, Error> {
    let text = place::demand(&place.config, place::read_text(&place.config)?, "dormouse gateway init")?;
    config::parse(&text)
        .map_err(|e| Error::new(ErrorKind::Other, format!("{}: {}", place.config.display(), e.trim_end())))
}

fn authority(place: &Place) -> Result<Authority, Error> {
    let key = place.path("ca/ca.key");
    Authority::load(&place::demand(&key, place::read(&key)?, "dormouse gateway init")?)
}

/// See the module's text.
struct Service {
    place: Place,
    socket: PathBuf,
    /// Whose connections are open.
    busy: Mutex<Vec<IpAddr>>,
}

/// A place among those that are open.
struct Seat(Arc<Service>, IpAddr);

impl Drop for Seat {
    fn drop(&mut self) {
        let mut busy = self.0.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = busy.iter().position(|ip| *ip == self.1) {
            busy.swap_remove(at);
        }
    }
}

impl Service {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            match listener.accept() {
                // This machine itself, which looks whether somebody is here.
                Ok((_, from)) if listener.local_addr().is_ok_and(|at| at.ip() == from.ip()) => {}
                Ok((stream, from)) => {
                    let Some(seat) = self.seat(from.ip()) else { continue };
                    // Without a thread the seat is free again at once.
                    let _ = std::thread::Builder::new().spawn(move || {
                        seat.0.answer(stream, from);
                        std::thread::sleep(REST);
                    });
                }
                // Descriptors have run out, or the other end is gone already.
                Err(_) => std::thread::sleep(REST),
            }
        }
    }

    fn seat(self: &Arc<Self>, ip: IpAddr) -> Option<Seat> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let room = busy.len() < MOST && busy.iter().filter(|one| **one == ip).count() < MOST_OF_ONE;
        room.then(|| {
            busy.push(ip);
            Seat(Arc::clone(self), ip)
        })
    }

    fn answer(&self, stream: TcpStream, from: SocketAddr) {
        let holder = match self.ask(Verb::Holder { address: from.ip() }) {
            Ok(Reply::Holder(Some(holder))) => holder,
            // A stranger gets no answer, not even one of TLS.
            Ok(_) => {
                return self.record(from, None, &Refusal::new(403, "nobody has this address in the tunnel"));
            }
            Err(e) => return eprintln!("{from}: {}", e.message),
        };
        if let Err(refusal) = self.converse(stream, from, &holder) {
            println!("{from}, {}: refused: {}", harmless(&holder.identity), harmless(&refusal.why));
            self.record(from, Some(&holder), &refusal);
        }
    }

    /// Speaks with one that is somebody in the tunnel.
    fn converse(&self, stream: TcpStream, from: SocketAddr, holder: &Holder) -> Result<(), Refusal> {
        let authority = authority(&self.place).map_err(|e| broken(&e))?;
        let file = read(&self.place).map_err(|e| broken(&e))?;
        let found = file.connection.get_key_value(&holder.connection);
        let (name, c) = found.ok_or_else(|| Refusal::new(403, "its connection is not there any more"))?;
        let mut tls = self.tls(stream, c, &authority).map_err(|e| broken(&e))?;
        // Until TLS has proved the certificate nothing of a request is read.
        let refused = |e: std::io::Error| Refusal::new(400, format!("TLS: {e}"));
        let ended = |_| Refusal::new(400, "TLS: the other end has closed it");
        while tls.conn.is_handshaking() {
            let done = tls.conn.complete_io(&mut tls.sock);
            if let Err(e) = done {
                // What is still to be sent says why.
                let _ = tls.conn.write_tls(&mut tls.sock);
                return Err(if e.kind() == std::io::ErrorKind::UnexpectedEof {
                    ended(e)
                } else {
                    refused(e)
                });
            }
        }
        let shown = tls.conn.peer_certificates().and_then(|chain| chain.first());
        let shown = shown.and_then(|der| Certificate::from_der(der).ok());
        let shown = shown.ok_or_else(|| Refusal::new(403, "TLS: no certificate was shown"))?;
        let asked = match stream::read(&mut tls, http::MOST_REQUEST, http::asked).map_err(refused)? {
            None => return Err(Refusal::new(400, "it has closed the connection before it had asked")),
            Some(asked) => asked,
        };
        let result = asked.and_then(|asked| match asked {
            Asked::Authorities => {
                let ca = Certificate::from_pem(authority.pem().as_bytes());
                let ca = ca.map_err(|e| Refusal::new(503, e.to_string()))?;
                Ok(cms::certificates_only(&[&ca]))
            }
            Asked::Renewal(request) => {
                let renewed = self.renew((name, c), &authority, from, (&shown, holder, &request))?;
                Ok(cms::certificates_only(&[&renewed]))
            }
        });
        let answer = result.as_ref().map_or_else(http::refused, |message| http::certificates(message));
        let sent = tls.write_all(&answer).and_then(|()| {
            tls.conn.send_close_notify();
            tls.flush()
        });
        if let (Ok(_), Err(e)) = (&result, sent) {
            println!("{from}, {}: the answer was not taken: {e}", harmless(&holder.identity));
        }
        result.map(drop)
    }

    /// The gateway proves itself as in IKE.
    fn tls(&self, stream: TcpStream, c: &Connection, authority: &Authority) -> Result<Tls, Error> {
        let fail = |e: String| Error::new(ErrorKind::Other, e);
        let content = |path: &Option<PathBuf>| -> Result<_, Error> {
            let path =
                path.as_ref().ok_or_else(|| fail("local has no certificate and key in files".into()))?;
            place::demand(path, place::read(path)?, "dormouse gateway renew")
        };
        let chain = Certificate::from_file_content(content(&c.local.certificate)?.as_bytes());
        let chain = chain.map_err(|e| fail(e.to_string()))?;
        let key = SigningKey::from_file_content(content(&c.local.key)?.as_bytes());
        let key = key.map_err(|e| fail(e.to_string()))?;
        let own = Own::new(&chain, Arc::new(key)).map_err(|e| fail(e.to_string()))?;
        let ca = Certificate::from_pem(authority.pem().as_bytes()).map_err(|e| fail(e.to_string()))?;
        let clients = TrustStore::new(vec![ca]).map_err(|e| fail(e.to_string()))?;
        let settings = ServerConfig::by_tcp(&own, clients, Clock::new(unix_now));
        let settings = settings.map_err(|e| fail(e.to_string()))?;
        let conn = ServerConnection::new(settings).map_err(|e| fail(e.to_string()))?;
        Ok(StreamOwned::new(conn, Timed::new(stream, PATIENCE)))
    }

    /// Decides, writes down what is given out, has it put on record, and only then gives it out.
    fn renew(
        &self,
        connection: (&str, &Connection),
        authority: &Authority,
        from: SocketAddr,
        (shown, holder, request): (&Certificate, &Holder, &[u8]),
    ) -> Result<Certificate, Refusal> {
        let _lock = self.place.lock().map_err(|e| broken(&e))?;
        let denied = match self.ask(Verb::Deny { whom: None }).map_err(|e| broken(&e))? {
            Reply::Denials(all) => all.into_iter().map(|denied| denied.whom).collect::<Vec<_>>(),
            _ => return Err(Refusal::new(503, "the daemon does not say who is denied")),
        };
        let asking = Asking { shown, holder, request, denied: &denied, now: unix_now() };
        let mut book = Book::open(&self.place).map_err(|e| broken(&e))?;
        let granted = judge::judge(&mut book, connection, authority, &asking)?;
        granted.write(&mut book).map_err(|e| broken(&e))?;
        let certificate = &granted.certificate;
        let fingerprint = format!("sha256:{}", hex::encode(certificate.fingerprint()));
        let recorded = self.ask(Verb::Renewal {
            connection: connection.0.to_owned(),
            identity: Some(granted.identity.to_string()),
            from,
            outcome: Renewal::Issued { fingerprint, until_unix: certificate.not_after().0 },
        });
        if let Err(e) = recorded {
            granted.undo(&mut book).map_err(|e| broken(&e))?;
            return Err(broken(&e));
        }
        println!("{from}: {} has a new certificate", granted.identity);
        Ok(granted.certificate)
    }

    fn record(&self, from: SocketAddr, holder: Option<&Holder>, refusal: &Refusal) {
        let said = self.ask(Verb::Renewal {
            connection: holder.map(|h| h.connection.clone()).unwrap_or_default(),
            identity: holder.map(|h| h.identity.clone()),
            from,
            outcome: Renewal::Refused { why: refusal.why.clone() },
        });
        if let Err(e) = said {
            eprintln!("{from}: not on record: {}", e.message);
        }
    }

    fn ask(&self, verb: Verb) -> Result<Reply, Error> {
        let recorded = matches!(verb, Verb::Renewal { .. });
        let (answer, reply) = Client::connect(&self.socket)?.ask(verb)?;
        match reply {
            Reply::Done if recorded => Ok(Reply::Done),
            Reply::Holder(_) | Reply::Denials(_) if !recorded => Ok(reply),
            _ => Err(unexpected(&answer)),
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
