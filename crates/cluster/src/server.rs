//! Which server a URL means, and how it is reached: over a Unix socket, or over TCP with TLS whose certificate is checked. Owns that rule;
//! must never send a password or a ticket's name in clear over a network unless the URL says so.

use std::net::IpAddr;
use std::time::Duration;

use dormouse_crypto::Secret;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::error::Error;
use crate::tls::Tls;

/// How long to wait for a connection, and for a peer that has gone silent.
const CONNECT: Duration = Duration::from_secs(5);
const SILENT: Duration = Duration::from_secs(10);
/// Where Debian's PostgreSQL has its socket.
const SOCKETS: &str = "/var/run/postgresql";
const DATABASE: &str = "dormouse";

/// The role of a gateway.
#[must_use]
pub fn role(gateway: &str) -> String {
    format!("dormouse_{gateway}")
}

/// A gateway's name: 1 to 32 of a-z, 0-9 and `-`.
///
/// # Errors
/// [`Error::Settings`].
pub fn check_name(gateway: &str) -> Result<(), Error> {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    match (1..=32).contains(&gateway.len()) && gateway.bytes().all(fits) {
        true => Ok(()),
        false => {
            Err(Error::Settings(format!("{gateway:?} is no name of a gateway: 1 to 32 of a-z, 0-9 and -")))
        }
    }
}

/// A server, and what is needed to talk to it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
    /// For messages: hosts and database, no password.
    pub(crate) name: String,
}

/// What the URL says of TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Unsaid,
    Disable,
    VerifyFull,
}

impl Server {
    /// `authorities` is PEM, or empty. `user` is who logs in if the URL does not say.
    ///
    /// # Errors
    /// [`Error::Settings`], which shows no password.
    pub(crate) fn new(
        url: &str,
        password: Option<&Secret>,
        authorities: &[u8],
        user: &str,
    ) -> Result<Self, Error> {
        let wrong = |why: String| Error::Settings(format!("the URL of the database: {why}"));
        if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(wrong("it must begin with postgresql://".into()));
        }
        let (url, mode) = take_mode(url).map_err(wrong)?;
        let mut config: Config = url.parse().map_err(|e| wrong(crate::error::chain(&e)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host_path(SOCKETS);
        }
        if config.get_dbname().is_none() {
            config.dbname(DATABASE);
        }
        if !names_user(&url) {
            config.user(user);
        }
        if let Some(password) = password {
            config.password(password.as_bytes());
        }
        let name = display(&config);
        let tls = Tls::new(authorities)
            .map_err(|why| Error::Settings(format!("the authority of the database's certificate {why}")))?;
        config.ssl_mode(ssl_mode(&config, mode, !authorities.is_empty()).map_err(wrong)?);
        config.connect_timeout(CONNECT).tcp_user_timeout(SILENT);
        config.keepalives(true).keepalives_idle(SILENT).keepalives_interval(SILENT / 4).keepalives_retries(3);
        // Of several servers in the URL the one that takes writes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite).application_name("dormouse");
        Ok(Self { config, tls, name })
    }
}

/// Takes `sslmode` out, of which `tokio-postgres` knows other values.
fn take_mode(url: &str) -> Result<(String, Mode), String> {
    let Some((front, query)) = url.split_once('?') else { return Ok((url.to_owned(), Mode::Unsaid)) };
    let (mut mode, mut kept) = (Mode::Unsaid, Vec::new());
    for parameter in query.split('&') {
        match parameter.strip_prefix("sslmode=") {
            None => kept.push(parameter),
            Some("disable") => mode = Mode::Disable,
            Some("verify-full") => mode = Mode::VerifyFull,
            Some(other) => {
                return Err(format!(
                    "sslmode={other} does not check whose certificate it is: write verify-full, or disable"
                ));
            }
        }
    }
    let query = kept.join("&");
    Ok((if query.is_empty() { front.to_owned() } else { format!("{front}?{query}") }, mode))
}

/// Whether the URL says who logs in; the driver would take the name of the process's user.
fn names_user(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user.split(':').next().unwrap_or_default());
    user.is_some_and(|user| !user.is_empty())
        || rest.split(['?', '&']).skip(1).any(|parameter| parameter.starts_with("user="))
}

fn ssl_mode(config: &Config, mode: Mode, has_authorities: bool) -> Result<SslMode, String> {
    let is_loopback =
        |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let tcp = config.get_hosts().iter().filter_map(|host| match host {
        Host::Tcp(host) => Some(is_loopback(host)),
        Host::Unix(_) => None,
    });
    let loopbacks: Vec<bool> =
        tcp.chain(config.get_hostaddrs().iter().map(|address| address.is_loopback())).collect();
    if loopbacks.is_empty() {
        return Ok(SslMode::Disable);
    }
    let is_local = loopbacks.iter().all(|is_loopback| *is_loopback);
    match mode {
        Mode::Disable => Ok(SslMode::Disable),
        Mode::Unsaid if is_local && !has_authorities => Ok(SslMode::Disable),
        _ if has_authorities => Ok(SslMode::Require),
        _ => Err("the server is on a network, and no file is configured with the authority that its certificate is of \
            (sslmode=disable in the URL goes without TLS: everybody on the way can then read and change what gateways share)"
            .into()),
    }
}

fn display(config: &Config) -> String {
    let ports = config.get_ports();
    let host = |(n, host): (usize, &Host)| {
        let port = ports.get(n).or_else(|| ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(host) => format!("{host}:{port}"),
            Host::Unix(path) => format!("{}/.s.PGSQL.{port}", path.display()),
        }
    };
    let mut hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    if hosts.is_empty() {
        hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
    }
    format!("database {} at {}", config.get_dbname().unwrap_or(DATABASE), hosts.join(", "))
}
