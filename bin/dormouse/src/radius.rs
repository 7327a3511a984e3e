//! What `dormouse doctor` finds out about RADIUS servers: each is asked whether it is there (Status-Server, RFC 5997). Owns the judgement. It is asked from this machine, as the
//! daemon would, and nothing of any user is said.

use dormouse_control::{Check, CheckOutcome};
use dormouse_eap::radius::{Client, Status};
use dormouse_io::clock::BootClock;
use dormouse_io::entropy::OsEntropy;
use dormouse_node::config::file::File;
use dormouse_node::config::resolve_radius;
use dormouse_node::radius::{Policy, Server};
use dormouse_sansio::Entropy as _;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A server has this long, in tries of a third of it.
const PATIENCE: Duration = Duration::from_secs(3);
const LARGEST: usize = 4_096;

/// What is found of each server; nothing where there is none.
pub(crate) fn checks(file: &File) -> Vec<Check> {
    let mut denied = false;
    let mut read = |path: &Path, _secret: bool| {
        std::fs::read(path).map_err(|e| {
            denied |= e.kind() == ErrorKind::PermissionDenied;
            format!("{}: {e}", path.display())
        })
    };
    let policy = match resolve_radius(file, &mut read) {
        Ok(None) => return Vec::new(),
        Ok(Some(policy)) => policy,
        // The check of the configuration says so too, where it may read all.
        Err(e) => {
            let outcome = if denied { CheckOutcome::Skipped } else { CheckOutcome::Failure };
            return vec![check("RADIUS", outcome, e.to_string())];
        }
    };
    let servers = policy.servers.iter().map(|server| ("RADIUS", server));
    let all = servers.chain(policy.accounting.iter().map(|server| ("accounting", server)));
    std::thread::scope(|scope| {
        let asked: Vec<_> = all.map(|(name, server)| scope.spawn(|| judge(name, server, &policy))).collect();
        asked.into_iter().filter_map(|one| one.join().ok()).collect()
    })
}

fn check(name: &str, outcome: CheckOutcome, found: String) -> Check {
    Check { name: name.into(), outcome, found, change: None }
}

/// What became of the question.
enum Found {
    Answers,
    /// Something came that was no answer, and why.
    Discarded(String),
    Refused,
    Silent,
}

fn judge(name: &str, server: &Server, policy: &Policy) -> Check {
    let at = server.address;
    let (outcome, found, change) = match ask(server, policy) {
        Ok(Found::Answers) => (CheckOutcome::Ok, format!("{at} answers, and shares the secret"), None),
        Ok(Found::Discarded(why)) => (
            CheckOutcome::Failure,
            format!("{at} answers, but {why}"),
            Some("compare the secret there with secret_file"),
        ),
        Ok(Found::Refused) => (
            CheckOutcome::Failure,
            format!("{at}: nothing listens there"),
            Some("start the server; or correct address and port"),
        ),
        Ok(Found::Silent) => (
            CheckOutcome::Warning,
            format!(
                "{at} does not answer a Status-Server (RFC 5997): it is away, does not know this gateway, has another secret for it, or answers no such question"
            ),
            Some("look at the server's log; whether users were answered: dormouse status"),
        ),
        Err(e) => (CheckOutcome::Failure, format!("{at} cannot be asked: {e}"), None),
    };
    Check { change: change.map(str::to_owned), ..check(name, outcome, found) }
}

fn ask(server: &Server, policy: &Policy) -> std::io::Result<Found> {
    let any: IpAddr =
        if server.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server.address)?;
    let address = socket.local_addr()?.ip();
    let client = Arc::new(Client { secret: server.secret.clone(), name: policy.name.clone(), address });
    let mut identifier = [0];
    OsEntropy.fill(&mut identifier);
    let (status, packet) =
        Status::ask(client, identifier[0], &mut OsEntropy).map_err(std::io::Error::other)?;
    let (begun, mut heard, mut buffer) = (BootClock::now(), None, [0; LARGEST]);
    for turn in 1..=3 {
        if let Err(e) = socket.send(&packet) {
            // Of what was sent before.
            return if e.kind() == ErrorKind::ConnectionRefused { Ok(Found::Refused) } else { Err(e) };
        }
        loop {
            let left = (PATIENCE / 3 * turn).saturating_sub(BootClock::now() - begun);
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut buffer) {
                Ok(len) => match status.answer(&buffer[..len]) {
                    Ok(()) => return Ok(Found::Answers),
                    Err(why) => heard = Some(why),
                },
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => return Ok(Found::Refused),
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(heard.map_or(Found::Silent, |why| Found::Discarded(why.to_string())))
}
