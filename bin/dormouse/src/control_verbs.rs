//! The verbs that drive the daemon.

use crate::client::Client;
use crate::connections::of_connections;
use crate::exit;
use crate::render;
use crate::style::Style;
use clap::{Subcommand, ValueEnum};
use dormouse_control::{
    Connection, ConnectionState, Error, ErrorKind, ExitCode, KeysOf, Reply, Response, SleepMode, Status,
    Verb, line,
};
use std::io::Write;
use std::path::Path;

/// Verbs that drive the daemon
#[derive(Debug, Subcommand)]
pub(crate) enum ControlVerb {
    /// Bring a connection up, and wait until it is
    Up {
        /// Which; may be left out if there is only one
        #[arg(add = of_connections())]
        connection: Option<String>,
        /// Return at once
        #[arg(long)]
        no_wait: bool,
        /// Give up waiting after so many seconds; the daemon goes on
        #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds, conflicts_with = "no_wait")]
        timeout: f64,
    },
    /// Take a connection down: the session is deleted at both ends, its ticket destroyed; at a gateway, remove one of its peers
    Down {
        /// Which; may be left out if there is only one
        #[arg(add = of_connections())]
        connection: Option<String>,
        /// At a gateway: end the session of this peer (the identity that it proved, or an inner address), told to it if it is awake; its
        /// leases are free, its tickets are refused. It may come back by a full exchange for as long as the configuration and
        /// its credentials admit it
        #[arg(long, value_name = "IDENTITY", requires = "connection")]
        peer: Option<String>,
        /// End only this CHILD SA of the peer, named by the gateway's SPI, which `dormouse status` shows first; its session goes on, and a
        /// device that misses the CHILD SA asks for it again
        #[arg(long, value_name = "SPI", requires = "peer", value_parser = spi)]
        child: Option<u32>,
    },
    /// Make new keys at once, for the IKE SA and its CHILD SAs; at a gateway, for those of one peer
    Rekey {
        /// Which; may be left out if there is only one
        #[arg(add = of_connections())]
        connection: Option<String>,
        /// For the IKE SA alone
        #[arg(long, conflicts_with = "child")]
        ike: bool,
        /// For the CHILD SAs alone
        #[arg(long)]
        child: bool,
        /// At a gateway: of this peer (the identity that it proved, or an inner address)
        #[arg(long, value_name = "IDENTITY", requires = "connection")]
        peer: Option<String>,
    },
    /// At a gateway: send its clients to another gateway, which must be one that they may go to (`ike.redirects` of ours; RFC 5685). For maintenance, after
    /// `ike.redirect_to` for those that come
    Redirect {
        /// Whose clients
        connection: String,
        /// The other gateway: its name or address
        #[arg(long, value_name = "GATEWAY")]
        to: String,
        /// This client alone (the identity that it proved, or an inner address)
        #[arg(long, value_name = "IDENTITY")]
        peer: Option<String>,
    },
    /// At a gateway that shares its database with others: give them its clients and the devices that sleep, with what waits for them, and stop the daemon.
    /// Before an upgrade or a restart; docs/cluster.md
    Drain {
        /// So many seconds clients that are awake have to go
        #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=3600))]
        within: u32,
    },
    /// At a gateway: refuse an identity or a certificate from now on. Sessions end at once, tickets and full exchanges are refused, also after a restart
    Deny {
        /// The identity that is proved, as `dormouse status` shows it, or the SHA-256 fingerprint of a certificate
        #[arg(value_name = "NAME|FINGERPRINT", required_unless_present = "list")]
        whom: Option<String>,
        /// Show who is denied, and since when
        #[arg(long, conflicts_with = "whom")]
        list: bool,
    },
    /// At a gateway: take a denial back
    Allow {
        /// As `dormouse deny --list` shows it
        #[arg(value_name = "NAME|FINGERPRINT")]
        whom: String,
    },
    /// At a gateway: no ticket that was given until now counts any more, as is needed after its state was restored from a copy. Sessions go on; each device's next one begins by a full exchange
    ForgetTickets,
    /// Tell a gateway, or an access router, where a device is, whose header keys are to follow it
    Keys {
        /// What is known
        #[command(subcommand)]
        news: KeysNews,
    },
    /// Tell the daemon that the radio is about to be switched off
    Suspend,
    /// Tell the daemon that the radio is back
    Resume,
    /// Say how much the radio may sleep, at once and until the daemon's next start; without a mode, show which it is
    Mode {
        /// energy: as much as it pays; balanced: within bounds on latency and loss; performance: never
        #[arg(value_enum)]
        mode: Option<ModeArg>,
    },
    /// Show connections, sessions, offloads, and what will wake the daemon
    Status {
        /// Only this connection; the exit code says whether it is up
        #[arg(add = of_connections())]
        connection: Option<String>,
    },
    /// Print what happens as it happens
    Watch,
    /// Wait until a connection is in a state, and first for the daemon if it does not run yet
    Wait {
        /// Which; may be left out if there is only one
        #[arg(add = of_connections())]
        connection: Option<String>,
        /// What to wait for
        #[arg(long, value_enum, default_value_t = WaitFor::Up)]
        state: WaitFor,
        /// Give up after so many seconds; 0 asks without waiting [default: wait for ever]
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        timeout: Option<f64>,
    },
    /// Open the way to the local router for some minutes, so that a captive portal can be answered; it closes by itself
    Portal {
        /// Also to these, if the portal is elsewhere; while the connection is down
        addresses: Vec<std::net::IpAddr>,
        /// For so many seconds, 3600 at most; 0 closes it now
        #[arg(long = "for", value_name = "SECONDS", default_value_t = 300)]
        seconds: u32,
    },
    /// Print the daemon's counters
    Stats,
    /// Have the daemon read its configuration again, and the files that it names: all of it counts at once, or nothing if something is wrong
    Reload,
    /// Stop the daemon in good order
    Shutdown,
}

/// What a registration says of a device.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysNews {
    /// At a gateway: the device is behind this router now, which gets its header keys
    At {
        /// The device: the identity that it proved, or an inner address
        peer: String,
        /// The router's identity
        router: String,
    },
    /// At an access router: a device has registered, or with `--from` asks to be registered. On the device's next packet the router asks for its
    /// header keys; if it has them, it reports to the gateway that the device is here, once it has registered
    Here {
        /// Its outer address: with Mobile IP its home address
        device: std::net::IpAddr,
        /// The identity of the router where it says that it was before, which is asked first
        #[arg(long, value_name = "ROUTER")]
        from: Option<String>,
    },
    /// At an access router: a device has left. Packets that still come for it ask for no keys
    Gone {
        /// Its outer address
        device: std::net::IpAddr,
    },
}

impl KeysNews {
    fn verb(&self) -> Verb {
        match self {
            Self::At { peer, router } => Verb::KeysAt { peer: peer.clone(), router: router.clone() },
            Self::Here { device, from } => Verb::KeysHere { device: *device, previous: from.clone() },
            Self::Gone { device } => Verb::KeysGone { device: *device },
        }
    }
}

/// How much the radio may sleep.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ModeArg {
    /// The policy decides
    Energy,
    /// The policy decides, within bounds on added latency and lost packets
    Balanced,
    /// The radio stays on
    Performance,
}

impl From<ModeArg> for SleepMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Energy => Self::Energy,
            ModeArg::Balanced => Self::Balanced,
            ModeArg::Performance => Self::Performance,
        }
    }
}

/// States that can be waited for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WaitFor {
    /// The session is up
    Up,
    /// It is not wanted
    Down,
    /// It is wanted, but there is no network
    Offline,
    /// The radio sleeps
    Asleep,
}

impl From<WaitFor> for ConnectionState {
    fn from(state: WaitFor) -> Self {
        match state {
            WaitFor::Up => Self::Up,
            WaitFor::Down => Self::Down,
            WaitFor::Offline => Self::Offline,
            WaitFor::Asleep => Self::Asleep,
        }
    }
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(t) if (0.0..=1e9).contains(&t) => Ok(t),
        _ => Err("not a number of seconds".into()),
    }
}

/// An SPI as `dormouse status` shows it.
fn spi(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|_| "not an SPI in hexadecimal".into())
}

/// What `dormouse down` asks for.
fn down(connection: &Option<String>, peer: &Option<String>, child: Option<u32>) -> Verb {
    match (connection.clone(), peer.clone(), child) {
        (Some(connection), Some(peer), Some(spi)) => Verb::DownChild { connection, peer, spi },
        (connection, peer, _) => Verb::Down { connection, peer },
    }
}

/// What became of a gateway's devices.
fn drained(gone: usize, left: usize, handed_over: usize, kept: usize) -> String {
    let clients = |n: usize| if n == 1 { "1 client".to_owned() } else { format!("{n} clients") };
    let sleepers =
        |n: usize| if n == 1 { "1 device that sleeps".to_owned() } else { format!("{n} devices that sleep") };
    let mut lines = vec![
        format!("{} went to other gateways", clients(gone)),
        format!("{} handed over", sleepers(handed_over)),
    ];
    if left > 0 {
        lines
            .push(format!("{} did not go where they were sent: they come back by themselves", clients(left)));
    }
    if kept > 0 {
        lines.push(format!("{} could not be handed over: what waited for them is lost", sleepers(kept)));
    }
    lines.push("the daemon stops".to_owned());
    lines.join("\n")
}

/// How many were sent away.
fn redirected(told: usize, deaf: usize) -> String {
    let told = match told {
        0 => "no client was told".to_owned(),
        1 => "1 client was told, and goes if it may".to_owned(),
        n => format!("{n} clients were told, and go if they may"),
    };
    match deaf {
        0 => format!("{told}\n"),
        n => format!("{told}; {n} do not know redirects, and stay\n"),
    }
}

pub(crate) fn run(verb: &ControlVerb, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    let out = Output::new(json);
    let (mut client, left) = match verb {
        ControlVerb::Wait { timeout, .. } => Client::await_daemon(socket, *timeout)?,
        _ => (Client::connect(socket)?, None),
    };
    match verb {
        ControlVerb::Up { connection, no_wait, timeout } => {
            let (answer, _) = client.ask(Verb::Up { connection: connection.clone() })?;
            if *no_wait {
                return out.done(&answer, "on its way");
            }
            wait(&mut client, connection, ConnectionState::Up, Some(*timeout), &out)
        }
        ControlVerb::Down { connection, peer, child } => {
            let (answer, _) = client.ask(down(connection, peer, *child))?;
            out.done(&answer, if peer.is_some() { "removed" } else { "down" })
        }
        ControlVerb::Rekey { connection, ike, child, peer } => {
            let keys = match (ike, child) {
                (true, _) => KeysOf::Ike,
                (_, true) => KeysOf::Child,
                _ => KeysOf::All,
            };
            let (connection, peer) = (connection.clone(), peer.clone());
            let (answer, _) = client.ask(Verb::Rekey { connection, peer, keys })?;
            out.done(&answer, "new keys are being made")
        }
        ControlVerb::Redirect { connection, to, peer } => {
            let (connection, to, peer) = (connection.clone(), to.clone(), peer.clone());
            let (answer, reply) = client.ask(Verb::Redirect { connection, peer, to })?;
            let Reply::Redirected { told, deaf } = reply else { return Err(unexpected(&answer)) };
            out.print(&answer, || redirected(told, deaf))
        }
        ControlVerb::Drain { within } => {
            let (answer, reply) = client.ask(Verb::Drain { within_seconds: *within })?;
            let Reply::Drained { gone, left, handed_over, kept } = reply else {
                return Err(unexpected(&answer));
            };
            out.print(&answer, || drained(gone, left, handed_over, kept))
        }
        ControlVerb::Deny { whom, .. } => {
            let (answer, reply) = client.ask(Verb::Deny { whom: whom.clone() })?;
            match reply {
                Reply::Denied { sessions, known, hit } => {
                    out.print(&answer, || render::denied(sessions, known, hit.as_deref()))
                }
                Reply::Denials(denials) => out.print(&answer, || render::denials(&denials)),
                _ => Err(unexpected(&answer)),
            }
        }
        ControlVerb::Allow { whom } => {
            let (answer, _) = client.ask(Verb::Allow { whom: whom.clone() })?;
            out.done(&answer, "no longer denied")
        }
        ControlVerb::ForgetTickets => {
            let (answer, _) = client.ask(Verb::ForgetTickets)?;
            out.done(&answer, "no ticket of before counts any more")
        }
        ControlVerb::Keys { news } => {
            let verb = news.verb();
            let left = matches!(verb, Verb::KeysGone { .. });
            let (answer, _) = client.ask(verb)?;
            out.done(&answer, if left { "noted: the device has left" } else { "noted: the keys follow" })
        }
        ControlVerb::Suspend => {
            let (answer, _) = client.ask(Verb::Suspend)?;
            out.done(&answer, "asleep: this machine's own sessions send nothing until dormouse resume")
        }
        ControlVerb::Resume => {
            let (answer, _) = client.ask(Verb::Resume)?;
            out.done(&answer, "awake")
        }
        ControlVerb::Mode { mode } => {
            let (answer, reply) = client.ask(Verb::Mode { mode: mode.map(Into::into) })?;
            match (mode, reply) {
                (Some(mode), Reply::Done) => out.done(&answer, SleepMode::from(*mode).name()),
                (None, Reply::Mode(mode)) => out.done(&answer, mode.name()),
                _ => Err(unexpected(&answer)),
            }
        }
        ControlVerb::Status { connection } => status(&mut client, connection.as_deref(), &out),
        ControlVerb::Watch => watch(&mut client, &out),
        ControlVerb::Wait { connection, state, timeout: _ } => {
            wait(&mut client, connection, (*state).into(), left, &out)
        }
        ControlVerb::Portal { addresses, seconds } => {
            let ask = Verb::Portal { addresses: addresses.clone(), seconds: *seconds };
            let (answer, reply) = client.ask(ask)?;
            let Reply::Portal(open) = reply else { return Err(unexpected(&answer)) };
            out.print(&answer, || render::portal(&open, out.style))
        }
        ControlVerb::Stats => {
            let (answer, reply) = client.ask(Verb::Stats)?;
            let Reply::Stats(stats) = reply else { return Err(unexpected(&answer)) };
            out.print(&answer, || render::stats(&stats))
        }
        ControlVerb::Reload => {
            let (answer, reply) = client.ask(Verb::Reload)?;
            let Reply::Reloaded { restart } = reply else { return Err(unexpected(&answer)) };
            out.print(&answer, || render::reloaded(&restart))
        }
        ControlVerb::Shutdown => {
            let (answer, _) = client.ask(Verb::Shutdown)?;
            out.done(&answer, "stopping")
        }
    }
}

/// Waits, then says in a line how the connection stands.
fn wait(
    client: &mut Client,
    connection: &Option<String>,
    state: ConnectionState,
    timeout_seconds: Option<f64>,
    out: &Output,
) -> Result<ExitCode, Error> {
    let (answer, _) = client.ask(Verb::Wait { connection: connection.clone(), state, timeout_seconds })?;
    if out.json {
        return out.print(&answer, String::new);
    }
    let (_, reply) = client.ask(Verb::Status)?;
    let Reply::Status(status) = reply else { return Err(unexpected(&answer)) };
    let wanted: Vec<&Connection> = match connection {
        Some(name) => status.connections.iter().filter(|c| c.name == *name).collect(),
        None => status.connections.iter().collect(),
    };
    out.print(&answer, || wanted.iter().map(|c| render::summary(c, out.style) + "\n").collect())
}

fn status(client: &mut Client, connection: Option<&str>, out: &Output) -> Result<ExitCode, Error> {
    let (answer, reply) = client.ask(Verb::Status)?;
    let Reply::Status(status) = reply else { return Err(unexpected(&answer)) };
    let Some(name) = connection else {
        if out.json {
            return out.print(&with_all_sessions(client, answer, *status)?, String::new);
        }
        return out.print(&answer, || render::status(&status, out.style));
    };
    let Some(one) = status.connections.iter().find(|c| c.name == name) else {
        let known: Vec<String> = status.connections.iter().map(|c| c.name.clone()).collect();
        return Err(Error::new(
            ErrorKind::UnknownConnection,
            format!("there is no client connection '{name}'"),
        )
        .with_offer(Vec::new(), known));
    };
    let up = one.state == ConnectionState::Up;
    // The daemon's own words, but only about this one.
    let only = Status { connections: vec![one.clone()], gateway: None, ..(*status).clone() };
    let answer = line(&Response::ok(Reply::Status(Box::new(only))))?;
    out.print(&answer, || render::connection(one, out.style))?;
    Ok(if up { ExitCode::Ok } else { ExitCode::NotConnected })
}

/// The daemon's status with the sessions that it has left out. One that comes or goes meanwhile may be in it or not.
fn with_all_sessions(client: &mut Client, answer: String, mut status: Status) -> Result<String, Error> {
    let Some(gateway) = status.gateway.as_mut().filter(|gateway| gateway.more.is_some()) else {
        return Ok(answer);
    };
    while let Some(after) = gateway.more {
        let (answer, reply) = client.ask(Verb::Sessions { after })?;
        let Reply::Sessions(next) = reply else { return Err(unexpected(&answer)) };
        gateway.sessions.extend(next.sessions);
        gateway.more = next.more;
    }
    gateway.sessions_total = gateway.sessions.len();
    line(&Response::ok(Reply::Status(Box::new(status))))
}

fn watch(client: &mut Client, out: &Output) -> Result<ExitCode, Error> {
    client.send(Verb::Watch)?;
    loop {
        // Hours may pass without news.
        let (answer, reply) = client.next(None)?;
        let Reply::Event(event) = reply else { continue };
        out.print(&answer, || render::event(&event, out.style) + "\n")?;
        if event.kind == dormouse_control::EventKind::Stopping {
            return Ok(ExitCode::Ok);
        }
    }
}

/// Where answers go.
pub(crate) struct Output {
    json: bool,
    pub(crate) style: Style,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, style: Style::stdout() }
    }

    /// Prints the daemon's line, or the text made of it.
    pub(crate) fn print(&self, answer: &str, text: impl FnOnce() -> String) -> Result<ExitCode, Error> {
        let text = if self.json { answer.to_owned() } else { text() };
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            // The reader has gone (`| head`).
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
            Err(e) => Err(Error::new(ErrorKind::Other, format!("standard output: {e}"))),
            Ok(()) => Ok(ExitCode::Ok),
        }
    }

    pub(crate) fn done(&self, answer: &str, text: &str) -> Result<ExitCode, Error> {
        self.print(answer, || format!("{text}\n"))
    }
}

/// What the daemon says of files that were just written. They stay where it refuses them: `dormouse reload` is left to do then.
pub(crate) struct Reload {
    /// Keys of the configuration that need a restart. `None`: no daemon runs, or it has refused.
    pub(crate) restart: Option<Vec<String>>,
    pub(crate) refused: Option<Error>,
}

impl Reload {
    /// Has the daemon, if one runs, read its configuration again.
    pub(crate) fn ask(socket: &Path) -> Self {
        match Self::asked(socket) {
            Ok(restart) => Self { restart, refused: None },
            Err(e) => Self { restart: None, refused: Some(e) },
        }
    }

    fn asked(socket: &Path) -> Result<Option<Vec<String>>, Error> {
        let mut client = match Client::connect(socket) {
            Err(e) if e.kind == ErrorKind::NoDaemon => return Ok(None),
            client => client?,
        };
        let (answer, reply) = client.ask(Verb::Reload)?;
        let Reply::Reloaded { restart } = reply else { return Err(unexpected(&answer)) };
        Ok(Some(restart))
    }

    /// Whether a daemon runs.
    pub(crate) fn has_daemon(&self) -> bool {
        self.restart.is_some() || self.refused.is_some()
    }

    /// How the program ends. For people, prints why the daemon has refused.
    pub(crate) fn exit_code(&self, json: bool) -> ExitCode {
        let Some(refused) = &self.refused else { return ExitCode::Ok };
        if !json {
            eprint!("{}", exit::render(refused, Style::stderr()));
        }
        refused.kind.exit_code()
    }
}

pub(crate) fn unexpected(answer: &str) -> Error {
    Error::new(ErrorKind::Other, format!("the daemon answers something else: {}", answer.trim_end()))
}
