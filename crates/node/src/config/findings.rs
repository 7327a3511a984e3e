//! What is wrong with a configuration that has the right form: certificates that peers refuse, secrets that protect less than they seem to, what a
//! battery would pay for.
//! Owns the judgement; must never read a clock or a file.

use super::file::{Daemon, Role};
use super::resolve::Resolved;
use dormouse_crypto::cert::Certificate;
use dormouse_ike::config::{Connection, LocalAuth, RemoteAuth};
use dormouse_sansio::UnixTime;
use ipnet::IpNet;
use std::fmt;

/// A pre-shared key of fewer bytes can be guessed by who plays the gateway once: 20 letters and digits have more than 100 bits.
const SECRET_BYTES: usize = 20;
/// 256 bits (RFC 8784, section 6): Grover's search halves them.
const PPK_BYTES: usize = 32;

/// How long before its end a certificate is to be renewed.
const RENEW: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);

/// Something to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The key, as `connection.office.local.certificate`.
    pub key: String,
    /// What is wrong, and what would be right.
    pub problem: String,
    /// No peer that checks can accept it.
    pub fatal: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

/// What is wrong with the daemon's own settings and its connections at the time `now`.
#[must_use]
pub fn findings(daemon: &Daemon, connections: &[Resolved], now: UnixTime) -> Vec<Finding> {
    let mut all: Vec<Finding> = spinning(daemon, connections).into_iter().collect();
    for connection in connections {
        let mut find = |key: &str, fatal: bool, problem: String| {
            all.push(Finding { key: format!("connection.{}.{key}", connection.name), problem, fatal });
        };
        own_certificates(connection, now, &mut find);
        authorities(&connection.ike, now, &mut find);
        secrets(connection, &mut find);
        local_networks(connection, &mut find);
    }
    all
}

/// A client that looks for packets without rest.
fn spinning(daemon: &Daemon, connections: &[Resolved]) -> Option<Finding> {
    daemon.spin.time()?;
    let client = connections.iter().find(|c| c.role == Role::Client)?;
    let problem = format!(
        "a processor is kept busy for {} after each packet, and the battery of a client (\"{}\" is one's connection) pays for that; it is \
         for gateways on mains",
        daemon.spin, client.name
    );
    Some(Finding { key: "daemon.spin".into(), problem, fatal: false })
}

type Find<'a> = dyn FnMut(&str, bool, String) + 'a;

/// What is wrong with the validity of a certificate.
fn validity(certificate: &Certificate, now: UnixTime) -> Option<String> {
    let (subject, from, to) = (certificate.subject(), certificate.not_before(), certificate.not_after());
    let days = |seconds: std::time::Duration| seconds.as_secs() / 86_400;
    if now > to {
        return Some(format!("\"{subject}\" expired {} days ago; renew it", days(now.saturating_since(to))));
    }
    let ahead = from.saturating_since(now);
    (now < from).then(|| format!("\"{subject}\" is valid in {} days only; is the clock right?", days(ahead)))
}

/// A certificate that is to be renewed: within its last 30 days, or the last third of its time if that is less.
fn ends_soon(certificate: &Certificate, now: UnixTime, renew: &str) -> Option<String> {
    let (subject, from, to) = (certificate.subject(), certificate.not_before(), certificate.not_after());
    let left = to.saturating_since(now);
    let soon = left < RENEW.min(to.saturating_since(from) / 3);
    let days = left.as_secs() / 86_400;
    (from <= now && now <= to && soon).then(|| format!("\"{subject}\" ends in {days} days; {renew}"))
}

fn own_certificates(connection: &Resolved, now: UnixTime, find: &mut Find<'_>) {
    let (conn, name) = (&connection.ike, &connection.name);
    let renew = if connection.renews { format!("dormouse renew {name}") } else { "renew it".to_owned() };
    let LocalAuth::Cert { chain, .. } = &conn.local_auth else { return };
    let chain: Vec<Certificate> = chain.iter().filter_map(|der| Certificate::from_der(der).ok()).collect();
    for problem in chain.iter().filter_map(|certificate| validity(certificate, now)) {
        find("local.certificate", true, problem);
    }
    for problem in chain.iter().filter_map(|certificate| ends_soon(certificate, now, &renew)) {
        find("local.certificate", false, problem);
    }
    if let Some(Err(error)) = chain.first().map(|own| own.require(&conn.local_id)) {
        find("local.id", true, error.to_string());
    }
}

fn authorities(conn: &Connection, now: UnixTime, find: &mut Find<'_>) {
    let RemoteAuth::Cert { trust, .. } = &conn.remote_auth else { return };
    for problem in trust.authorities().filter_map(|certificate| validity(certificate, now)) {
        find("remote.ca", false, problem);
    }
}

fn secrets(connection: &Resolved, find: &mut Find<'_>) {
    let Connection { local_auth, remote_auth, remote_id, .. } = &*connection.ike;
    let ours = if let LocalAuth::Psk(psk) = local_auth { Some(psk) } else { None };
    let theirs = if let RemoteAuth::Psk(psk) = remote_auth { Some(psk) } else { None };
    for (key, psk) in [("local.secret", ours), ("remote.secret", theirs.filter(|psk| Some(*psk) != ours))] {
        if let Some(len) = psk.map(|psk| psk.len()).filter(|len| *len < SECRET_BYTES) {
            let problem = format!(
                "{len} bytes can be guessed by who plays the other end once; use {SECRET_BYTES} or more, from `openssl rand -base64 24`"
            );
            find(key, false, problem);
        }
    }
    for ppk in connection.ike.ppk.keys.iter().filter(|ppk| ppk.secret.len() < PPK_BYTES) {
        let (len, id) = (ppk.secret.len(), String::from_utf8_lossy(&ppk.id));
        let problem = format!(
            "the key of \"{id}\" has {len} bytes, which a quantum computer or the other end can guess; use {PPK_BYTES}, from `openssl rand -hex 32`"
        );
        find("ppk.keys", false, problem);
    }
    if theirs.is_some() && remote_id.exact().is_none() && connection.role == Role::Gateway {
        let problem = format!(
            "\"{remote_id}\" with a pre-shared key: each client that knows the key can take the name of any other, and of this gateway; \
             give each client a connection and key of its own, or certificates"
        );
        find("remote.id", false, problem);
    }
}

/// Private addresses, which any network may use: RFC 1918, RFC 6598, RFC 4193.
const PRIVATE: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];

/// A network with the office's own prefix is a local one, which a full tunnel leaves outside.
fn local_networks(connection: &Resolved, find: &mut Find<'_>) {
    let Some(blocking) = connection.blocking.as_ref().filter(|b| b.is_full() && b.local_network) else {
        return;
    };
    let private: Vec<IpNet> = PRIVATE.iter().filter_map(|net| net.parse().ok()).collect();
    if !blocking.exact.iter().any(|net| private.iter().any(|private| private.contains(net))) {
        let problem = "local networks are left out of the tunnel (local_network = true), also one that gives itself the prefix of a network \
                       behind the gateway, to read what is meant for that; name those behind the gateway besides \
                       (remote = [\"0.0.0.0/0\", \"::/0\", \"10.20.0.0/16\"]), or set local_network = false";
        find("child.remote", false, problem.to_owned());
    }
}
