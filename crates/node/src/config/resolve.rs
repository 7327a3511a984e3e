//! From what is written to what the cores take: names to algorithms, files to keys and certificates.
//!
//! Every error names the key in the file that is to be changed. Files are read through a function that is handed in, so
//! that this module does no I/O of its own.

use super::block::Blocking;
use super::file::{self, Connection, File, Mode, Request, ResumptionMode, Role, Selector};
use super::forward::Forwarding;
use super::renewals::Renewals;
use super::{choose, eap, routes, validate, zones};
use crate::ladder::Deadlines;
use dormouse_crypto::cert::{Certificate, Crl, Identity, TrustStore, Usage};
use dormouse_crypto::sign::{Signer, SigningKey};
use dormouse_crypto::{Secret, parse_psk};
use dormouse_ike::config as ike;
use ipnet::IpNet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroize;

/// Reads a file that the configuration names. The flag says that it holds a secret, so that a file that others can read
/// must be refused.
pub type ReadFile<'a> = dyn FnMut(&Path, bool) -> Result<Vec<u8>, String> + 'a;

/// Opens the private key that a `pkcs11:` URI names.
pub type OpenToken<'a> = dyn FnMut(&str) -> Result<Box<dyn Signer>, String> + 'a;

/// What is wrong with the configuration, and which key to change.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The key, as `connection.office.local.secret_file`.
    pub key: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

impl ConfigError {
    pub(super) fn new(key: impl Into<String>, problem: impl Display) -> Self {
        Self { key: key.into(), problem: problem.to_string() }
    }
}

/// One connection, ready for use.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Its name.
    pub name: String,
    /// Client or gateway; a connection of HIP is a [`super::ResolvedHip`].
    pub role: Role,
    /// The gateway's name or address. Always there for a client.
    pub gateway: Option<String>,
    /// Connect when the daemon starts.
    pub auto: bool,
    /// For the IKE endpoint.
    pub ike: Arc<ike::Connection>,
    /// For the wake-up ladder.
    pub deadlines: Deadlines,
    /// Packets held while the session comes back.
    pub hold_packets: usize,
    /// Prefixes of the address pool, those of some clients included.
    pub pool: Vec<IpNet>,
    /// Client: what must not leave outside of the tunnel.
    pub blocking: Option<Blocking>,
    /// Gateway: what the machine does for its clients beside the tunnel.
    pub forwarding: Option<Forwarding>,
    /// Client: its certificate is renewed through the tunnel.
    pub renews: bool,
    /// Gateway: where clients' certificates are renewed.
    pub renewals: Option<SocketAddr>,
    /// It carries keys of headers alone, to or from such a peer.
    pub keys: Option<file::KeysPeer>,
    /// Client: access routers are told which packets of some CHILD SA came.
    pub reports: bool,
}

impl Resolved {
    /// Most packets that any of these connections would have held: they wait in one queue.
    pub(crate) fn most_held(connections: &[Self]) -> usize {
        connections.iter().map(|c| c.hold_packets).max().unwrap_or(0)
    }

    /// Whether some of its clients are kept apart from others.
    pub(crate) fn isolates(&self) -> bool {
        let rules = self.ike.answering.peers.iter().map(|rule| &rule.connection.answering.policy);
        rules.chain([&self.ike.answering.policy]).any(|policy| policy.isolate)
    }

    /// Prefixes of our own side that the other side's contain: a branch whose headquarters stand for a wider network.
    #[must_use]
    pub fn own_side(&self) -> Vec<IpNet> {
        let prefix = |s: &ike::SelectorSpec| match s {
            ike::SelectorSpec::Dynamic => None,
            ike::SelectorSpec::Net(net) | ike::SelectorSpec::Narrow { net, .. } => Some(*net),
        };
        let within = |own: &IpNet, other: IpNet| other.contains(own) && other != *own;
        let inside = self.ike.children.iter().flat_map(|child| {
            let own = child.ts_local.iter().filter_map(prefix);
            own.filter(|own| child.ts_remote.iter().filter_map(prefix).any(|other| within(own, other)))
        });
        inside.collect()
    }
}

/// Parses the text of a configuration file.
///
/// # Errors
/// With the line, the column and the key, and without what is written there, which may be a secret.
pub fn parse(text: &str) -> Result<File, String> {
    toml::from_str(text).map_err(|e| super::place::complaint(text, &e))
}

/// Resolves all connections of IKE of a file, in the order of their names. Keys in tokens are refused.
///
/// # Errors
/// The first thing that is wrong.
pub fn resolve(file: &File, read: &mut ReadFile<'_>) -> Result<Vec<Resolved>, ConfigError> {
    resolve_with(file, read, &mut |uri| Err(format!("{uri}: keys in tokens cannot be used here")))
}

/// The same, with keys in tokens.
///
/// # Errors
/// The first thing that is wrong.
pub fn resolve_with(
    file: &File,
    read: &mut ReadFile<'_>,
    token: &mut OpenToken<'_>,
) -> Result<Vec<Resolved>, ConfigError> {
    validate::daemon(&file.daemon)?;
    validate::audit(&file.audit)?;
    routes::validate(file)?;
    super::access_router::validate(file.router.as_ref(), &file.daemon.interface)?;
    let routers = zones::routers(file)?;
    let listen: Vec<_> = file.daemon.listen.iter().copied().filter(|a| !a.is_unspecified()).collect();
    let one = |(name, c): (&String, &Connection)| {
        let mut resolved = connection(name, c, &routers, read, token)?;
        if c.role == Role::Gateway && c.ike.other_addresses.is_empty() {
            Arc::make_mut(&mut resolved.ike).mobility.additional_addresses.clone_from(&listen);
        }
        Ok(resolved)
    };
    for (name, c) in &file.connection {
        validate::connection(name, c)?;
    }
    file.connection.iter().filter(|(_, c)| c.role != Role::Hip).map(one).collect()
}

fn connection(
    name: &str,
    c: &Connection,
    routers: &[ike::RouterRule],
    read: &mut ReadFile<'_>,
    token: &mut OpenToken<'_>,
) -> Result<Resolved, ConfigError> {
    let key = |k: &str| format!("connection.{name}.{k}");
    let local_id = identity(&key("local.id"), &c.local.id)?;
    let local_auth = match eap::login(&key("local"), c, read, token)? {
        Some(login) => login,
        None => local_auth(&key("local"), &c.local, read, token)?,
    };
    let users = eap::policy(name, c, &local_auth, read)?;
    let remote_auth = remote_auth(&key("remote"), c, &local_auth, read)?;
    let mut conn = ike::Connection::new(
        name,
        local_id,
        local_auth,
        pattern(&key("remote.id"), &c.remote.id)?,
        remote_auth,
    );
    conn.answering.eap = users;
    eap::check(name, &conn)?;
    conn.role = match c.role {
        Role::Client => ike::Role::Initiator,
        Role::Gateway | Role::Hip => ike::Role::Responder,
    };
    conn.ppk.keys = ppks(&key("ppk"), &c.ppk.keys, read)?;
    if c.ppk.required == Some(true) && conn.ppk.keys.is_empty() {
        return Err(ConfigError::new(key("ppk.required"), "needs ppk.keys"));
    }
    conn.ppk.required = c.ppk.required.unwrap_or(!conn.ppk.keys.is_empty());
    conn.ppk.intermediate = c.ppk.intermediate;
    ike_part(&mut conn, c, &key)?;
    conn.children.clear();
    if c.keys.is_none() {
        conn.children.push(child(c, &c.child, routers, &key("child"))?);
        conn.request = request(c);
    }
    for (name, further) in &c.children {
        let child = child(c, further, routers, &key(&format!("children.{name}")))?;
        conn.children.push(ike::ChildConfig { name: name.clone(), ..child });
    }
    choose::validate(&conn.children, |child| match child {
        validate::FIRST_CHILD => key("child"),
        further => key(&format!("children.{further}")),
    })?;
    conn.answering.offer =
        ike::OfferedConfig { dns: c.pool.dns.clone(), domains: Vec::new(), subnets: c.pool.routes.clone() };
    super::peers::policies(name, c, &mut conn)?;
    let rules = conn.answering.peers.iter().flat_map(|rule| &rule.connection.answering.policy.pool);
    let mut pool: Vec<IpNet> = rules.chain(&conn.answering.policy.pool).copied().collect();
    pool.sort_unstable();
    pool.dedup();
    Ok(Resolved {
        name: name.into(),
        role: c.role,
        gateway: c.gateway.clone(),
        auto: c.auto,
        ike: Arc::new(conn),
        deadlines: deadlines(&c.wake),
        hold_packets: c.wake.hold_packets,
        pool,
        blocking: Blocking::of(c).filter(|_| c.keys.is_none()),
        forwarding: Forwarding::of(c),
        renews: c.role == Role::Client && c.renewals.is_some(),
        renewals: Renewals::served(c),
        keys: c.keys.as_ref().map(|keys| keys.peer),
        reports: c.role == Role::Client && children_of(c).any(|child| child.zones.reports),
    })
}

fn children_of(c: &Connection) -> impl Iterator<Item = &file::Child> {
    std::iter::once(&c.child).chain(c.children.values())
}

fn ike_part(
    conn: &mut ike::Connection,
    c: &Connection,
    key: &dyn Fn(&str) -> String,
) -> Result<(), ConfigError> {
    let i = &c.ike;
    if !i.proposals.is_empty() {
        conn.ike_proposals = proposals(&key("ike.proposals"), &i.proposals)?;
    }
    conn.mobility.mobike = i.mobike;
    conn.mobility.additional_addresses.clone_from(&i.other_addresses);
    conn.dormancy = i.dormancy;
    if !(576..=9000).contains(&i.fragment_size) {
        return Err(ConfigError::new(
            key("ike.fragment_size"),
            format!("{} is not between 576 and 9000", i.fragment_size),
        ));
    }
    conn.fragmentation = ike::Fragmentation { enabled: i.fragmentation, size: i.fragment_size.into() };
    conn.esp_in_udp = match i.esp_in_udp {
        file::EspInUdp::Auto => ike::EspInUdp::Auto,
        file::EspInUdp::Nat => ike::EspInUdp::Nat,
        file::EspInUdp::Always => ike::EspInUdp::Always,
    };
    super::opening::opening(conn, i, key)?;
    conn.remote_ports = ike::Ports { ike: i.peer_ike_port, natt: i.peer_nat_t_port };
    conn.mobility.no_nats_allowed = i.no_nats_allowed;
    conn.mobility.return_routability = i.return_routability;
    conn.initial_contact = i.initial_contact;
    conn.timing.retransmission.initial = Duration::from_millis(i.retransmit_ms.into());
    conn.timing.retransmission.tries = i.retransmit_tries;
    conn.opening.hardest_puzzle = i.hardest_puzzle;
    conn.timing.keepalive = match i.keepalive {
        file::Keepalive::Auto => ike::Keepalive::Auto,
        file::Keepalive::Off => ike::Keepalive::Off,
        file::Keepalive::Every(s) => ike::Keepalive::Seconds(s),
    };
    conn.timing.liveness = ike::Liveness {
        interval: (i.liveness.0 > 0).then(|| seconds(i.liveness)),
        timeout: seconds(i.liveness_timeout),
    };
    if i.rekey.0 < 30 {
        return Err(ConfigError::new(
            key("ike.rekey"),
            format!("{} s is too short to be useful; 30 is the least", i.rekey.0),
        ));
    }
    conn.timing.lifetime = ike::Lifetime::of_time(seconds(i.rekey));
    conn.timing.reauthenticate = (i.reauth.0 > 0).then(|| seconds(i.reauth));
    conn.resumption.mode = match c.resumption.mode {
        ResumptionMode::Strict => ike::Resumption::Strict,
        ResumptionMode::Libreswan => ike::Resumption::Libreswan,
        ResumptionMode::Off => ike::Resumption::Off,
    };
    conn.resumption.fresh_keys = c.resumption.key_exchange == file::KeyExchange::Fresh;
    conn.resumption.plain = c.resumption.plain;
    conn.resumption.lifetime = seconds(c.resumption.ticket_lifetime);
    Ok(())
}

/// One CHILD SA, whose keys stand below `key`.
fn child(
    c: &Connection,
    ch: &file::Child,
    routers: &[ike::RouterRule],
    section: &str,
) -> Result<ike::ChildConfig, ConfigError> {
    let key = |k: &str| format!("{section}.{k}");
    let mut child = ike::ChildConfig::default();
    if !ch.proposals.is_empty() {
        child.proposals = proposals(&key("proposals"), &ch.proposals)?;
    }
    if ch.protection == zones::Protection::Authenticated {
        if !ch.proposals.is_empty() {
            let problem = "say nothing with protection = \"authenticated\", which is AES-GMAC";
            return Err(ConfigError::new(key("proposals"), problem));
        }
        child.proposals = ike::authenticated_esp_proposals();
    }
    child.zones = zones::policy(section, c.role, ch, &child.proposals, routers)?;
    let selectors = |side: &[Selector]| {
        let spec = |s: &Selector| match s {
            Selector::Net(net) => ike::SelectorSpec::Net(*net),
            Selector::Dynamic => ike::SelectorSpec::Dynamic,
        };
        side.iter().map(spec).collect::<Vec<_>>()
    };
    // A gateway that hands out addresses reaches each client by the one that it got, unless configured otherwise.
    let hands_out = c.role == Role::Gateway && !c.pool.addresses.is_empty();
    let unsaid = ch.remote == file::Child::default().remote;
    let dynamic = vec![Selector::Dynamic];
    let remote = if hands_out && unsaid { &dynamic } else { &ch.remote };
    for (side, list) in [("local", &ch.local), ("remote", remote)] {
        if list.is_empty() {
            return Err(ConfigError::new(key(side), "at least one prefix, or \"dynamic\", is needed"));
        }
    }
    child.ts_local = selectors(&ch.local);
    child.ts_remote = selectors(remote);
    child.mode = match ch.mode {
        Mode::Tunnel => ike::ChildMode::Tunnel,
        Mode::Transport => ike::ChildMode::Transport,
    };
    child.esn = if ch.esn { ike::EsnPolicy::Prefer } else { ike::EsnPolicy::Off };
    if !(1024..=65_536).contains(&ch.replay_window) {
        return Err(ConfigError::new(
            key("replay_window"),
            format!("{} is not between 1024 and 65536", ch.replay_window),
        ));
    }
    child.replay_window = ch.replay_window;
    if ch.rekey.0 < 10 {
        return Err(ConfigError::new(
            key("rekey"),
            format!("{} s is too short to be useful; 10 is the least", ch.rekey.0),
        ));
    }
    child.lifetime.time = Some(seconds(ch.rekey));
    if ch.rekey_bytes > 0 {
        child.lifetime.bytes = Some(ch.rekey_bytes);
    }
    child.pad_to = ch.pad_to;
    child.share = choose::share(&key("choose"), c.role, &ch.choose)?;
    Ok(child)
}

fn request(c: &Connection) -> ike::AddressRequest {
    if c.role == Role::Gateway {
        return ike::AddressRequest::default();
    }
    let mut children = std::iter::once(&c.child).chain(c.children.values());
    let dynamic = children.any(|ch| ch.local.contains(&Selector::Dynamic) && ch.mode == Mode::Tunnel);
    match c.child.request_address {
        Request::Auto => ike::AddressRequest { v4: dynamic, v6: dynamic, dns: dynamic },
        Request::Ipv4 => ike::AddressRequest { v4: true, v6: false, dns: true },
        Request::Ipv6 => ike::AddressRequest { v4: false, v6: true, dns: true },
        Request::None => ike::AddressRequest::default(),
    }
}

fn deadlines(w: &file::Wake) -> Deadlines {
    let ms = |n: u32| Duration::from_millis(n.into());
    Deadlines {
        held: ms(w.held_ms),
        probe: ms(w.probe_ms),
        resume: ms(w.ticket_ms),
        full: ms(w.full_ms),
        gateway_holds: seconds(w.gateway_holds),
    }
}

fn proposals<T: std::str::FromStr<Err: Display>>(key: &str, list: &[String]) -> Result<Vec<T>, ConfigError> {
    let one = |(i, text): (usize, &String)| {
        text.parse().map_err(|e: T::Err| ConfigError::new(format!("{key}[{i}]"), format!("\"{text}\": {e}")))
    };
    list.iter().enumerate().map(one).collect()
}

pub(super) fn identity(key: &str, text: &str) -> Result<Identity, ConfigError> {
    text.parse().map_err(|e| ConfigError::new(key, format!("\"{text}\": {e}")))
}

pub(super) fn pattern(key: &str, text: &str) -> Result<ike::IdentityPattern, ConfigError> {
    if text == "*" {
        return Ok(ike::IdentityPattern::Any);
    }
    match (text.strip_prefix("*."), text.strip_prefix("*@")) {
        (Some(suffix), _) if !suffix.is_empty() => Ok(ike::IdentityPattern::Suffix(suffix.into())),
        (_, Some(host)) if !host.is_empty() => Ok(ike::IdentityPattern::Mail(host.to_ascii_lowercase())),
        _ => identity(key, text).map(ike::IdentityPattern::Exact),
    }
}

pub(super) fn local_auth(
    key: &str,
    a: &file::LocalAuth,
    read: &mut ReadFile<'_>,
    token: &mut OpenToken<'_>,
) -> Result<ike::LocalAuth, ConfigError> {
    let psk = secret(key, a.secret.as_ref(), a.secret_file.as_deref(), read)?;
    match (psk, &a.certificate, &a.key) {
        (Some(psk), None, None) => Ok(ike::LocalAuth::Psk(psk)),
        (None, Some(certificate), Some(private)) => {
            let (ck, kk) = (format!("{key}.certificate"), format!("{key}.key"));
            let chain = certificates(&ck, certificate, read)?;
            let signing = signing_key(&kk, private, chain.first(), read, token)?;
            if let Some(first) = chain.first()
                && first.public_key().ok().as_ref() != Some(signing.public_key())
            {
                let problem = format!(
                    "{} is not the key of the certificate {}",
                    private.display(),
                    certificate.display()
                );
                return Err(ConfigError::new(kk, problem));
            }
            Ok(ike::LocalAuth::Cert {
                key: Arc::new(signing),
                chain: chain.iter().map(|c| c.der().to_vec()).collect(),
            })
        }
        (Some(_), ..) => Err(ConfigError::new(key, "has both a secret and a certificate; keep one of them")),
        (None, Some(_), None) => {
            Err(ConfigError::new(format!("{key}.key"), "the certificate needs its private key"))
        }
        (None, None, Some(_)) => {
            Err(ConfigError::new(format!("{key}.certificate"), "the private key needs its certificate"))
        }
        (None, None, None) => Err(ConfigError::new(key, "needs secret, secret_file, or certificate and key")),
    }
}

fn signing_key(
    key: &str,
    private: &Path,
    certificate: Option<&Certificate>,
    read: &mut ReadFile<'_>,
    token: &mut OpenToken<'_>,
) -> Result<SigningKey, ConfigError> {
    let wrong = |e: &dyn Display| ConfigError::new(key, format!("{}: {e}", private.display()));
    let Some(uri) = private.to_str().filter(|uri| uri.starts_with("pkcs11:")) else {
        let text = file_bytes(key, private, true, read)?;
        return SigningKey::from_file_content(&text).map_err(|e| wrong(&e));
    };
    let signer = token(uri).map_err(|e| ConfigError::new(key, e))?;
    let public = certificate.map(Certificate::public_key).transpose().map_err(|e| wrong(&e))?;
    let public = public.ok_or_else(|| wrong(&"the token's key needs its certificate in a file"))?;
    SigningKey::elsewhere(public, signer).map_err(|e| wrong(&e))
}

fn remote_auth(
    key: &str,
    c: &Connection,
    local: &ike::LocalAuth,
    read: &mut ReadFile<'_>,
) -> Result<ike::RemoteAuth, ConfigError> {
    let r = &c.remote;
    let psk = secret(key, r.secret.as_ref(), r.secret_file.as_deref(), read)?;
    match (psk, r.ca.is_empty(), local) {
        (_, true, ike::LocalAuth::Eap(_)) | (Some(_), _, ike::LocalAuth::Eap(_)) => Err(ConfigError::new(
            format!("{key}.ca"),
            "name the authorities that may vouch for the gateway: nothing is said of the user before it has proved by a certificate who it is",
        )),
        (Some(psk), true, _) => Ok(ike::RemoteAuth::Psk(psk)),
        (Some(_), false, _) => {
            Err(ConfigError::new(key, "has both a secret and authorities; keep one of them"))
        }
        (None, true, _) if r.auth.is_some() => Ok(ike::RemoteAuth::Eap),
        (None, true, ike::LocalAuth::Psk(psk)) => Ok(ike::RemoteAuth::Psk(psk.clone())),
        (None, true, ike::LocalAuth::Cert { .. }) => Err(ConfigError::new(
            format!("{key}.ca"),
            "name the authorities that may vouch for the peer, or a secret",
        )),
        (None, false, _) => {
            let (remote, key) = (key, format!("{key}.ca"));
            let mut authorities = Vec::new();
            for path in &r.ca {
                authorities.extend(certificates(&key, path, read)?);
            }
            let trust = TrustStore::new(authorities).map_err(|e| ConfigError::new(&key, e))?;
            let revocation = revocation(remote, r, read)?;
            let usage = if r.allow_server_auth { Usage::IkeOrServerAuth } else { Usage::Ike };
            Ok(ike::RemoteAuth::Cert {
                trust: Arc::new(trust),
                usage,
                accept_rsa_sha1: r.accept_rsa_sha1,
                revocation: Arc::new(revocation),
            })
        }
    }
}

fn revocation(
    key: &str,
    r: &file::RemoteAuth,
    read: &mut ReadFile<'_>,
) -> Result<ike::RevocationPolicy, ConfigError> {
    let mode = match r.revocation {
        file::Revocation::Off => ike::RevocationMode::Off,
        file::Revocation::Soft => ike::RevocationMode::Soft,
        file::Revocation::Strict => ike::RevocationMode::Strict,
    };
    let mut policy = ike::RevocationPolicy { mode, ..ike::RevocationPolicy::default() };
    for (i, place) in r.crl.iter().enumerate() {
        let key = format!("{key}.crl[{i}]");
        if place.starts_with("http://") {
            policy.urls.push(place.clone());
        } else if place.contains("://") {
            let problem =
                format!("\"{place}\": only files and http:// are read; CRLs are signed, and need no TLS");
            return Err(ConfigError::new(key, problem));
        } else {
            let bytes = file_bytes(&key, Path::new(place), false, read)?;
            let lists =
                Crl::ders_of_file(&bytes).map_err(|e| ConfigError::new(&key, format!("{place}: {e}")))?;
            policy.lists.extend(lists);
        }
    }
    Ok(policy)
}

fn ppks(
    key: &str,
    list: &[file::PpkKey],
    read: &mut ReadFile<'_>,
) -> Result<Vec<Arc<ike::Ppk>>, ConfigError> {
    let mut ppks: Vec<Arc<ike::Ppk>> = Vec::new();
    for (i, k) in list.iter().enumerate() {
        let key = format!("{key}.keys[{i}]");
        // A PPK_ID travels in a notification; strongSwan and libreswan take names of this length.
        if k.id.is_empty() || k.id.len() > 255 {
            return Err(ConfigError::new(format!("{key}.id"), "must have 1 to 255 bytes"));
        }
        if ppks.iter().any(|ppk| ppk.id == k.id.as_bytes()) {
            return Err(ConfigError::new(format!("{key}.id"), format!("\"{}\" stands there twice", k.id)));
        }
        let secret = secret(&key, k.secret.as_ref(), k.secret_file.as_deref(), read)?
            .ok_or_else(|| ConfigError::new(&key, "needs secret or secret_file"))?;
        ppks.push(Arc::new(ike::Ppk { id: k.id.clone().into_bytes(), secret }));
    }
    Ok(ppks)
}

fn certificates(key: &str, path: &Path, read: &mut ReadFile<'_>) -> Result<Vec<Certificate>, ConfigError> {
    let bytes = file_bytes(key, path, false, read)?;
    Certificate::from_file_content(&bytes)
        .map_err(|e| ConfigError::new(key, format!("{}: {e}", path.display())))
}

fn secret(
    key: &str,
    inline: Option<&file::Hidden>,
    file: Option<&Path>,
    read: &mut ReadFile<'_>,
) -> Result<Option<Secret>, ConfigError> {
    let (key, mut bytes) = match (inline, file) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(ConfigError::new(key, "has both secret and secret_file; keep one of them"));
        }
        (Some(text), None) => (format!("{key}.secret"), text.0.clone().into_bytes()),
        (None, Some(path)) => {
            let key = format!("{key}.secret_file");
            let bytes = file_bytes(&key, path, true, read)?;
            (key, bytes)
        }
    };
    let secret = parse_psk(&bytes).map_err(|e| ConfigError::new(&key, e));
    bytes.zeroize();
    let secret = secret?;
    if secret.len() < 8 {
        return Err(ConfigError::new(
            key,
            format!("{} bytes are too easy to guess; use 20 or more, at least 8", secret.len()),
        ));
    }
    Ok(Some(secret))
}

pub(super) fn file_bytes(
    key: &str,
    path: &Path,
    secret: bool,
    read: &mut ReadFile<'_>,
) -> Result<Vec<u8>, ConfigError> {
    read(path, secret).map_err(|e| ConfigError::new(key, e))
}

fn seconds(s: file::Seconds) -> Duration {
    Duration::from_secs(s.0.into())
}
