//! `org.freedesktop.NetworkManager.VPN.Plugin`: the calls that NetworkManager makes, and the signals that it gets. Owns words and numbers of that interface; every call is
//! checked here, and handed to the session, which alone acts.
//!
//! `SetConfig`, `SetIp4Config`, `SetIp6Config` and `SetFailure` are not there: by them the helper of a plug-in speaks with it, and ours has none.

#![expect(clippy::disallowed_types, reason = "what `zbus::interface` makes has properties in a HashMap")]

use crate::handover::Words;
use crate::message::{Input, Order};
use crate::profile::{Profile, Settings, password};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;
use zbus::Connection;
use zbus::DBusError;

const PATH: &str = "/org/freedesktop/NetworkManager/VPN/Plugin";
const INTERFACE: &str = "org.freedesktop.NetworkManager.VPN.Plugin";

/// NetworkManager answers at once, or is busy with its own end.
const PATIENCE: Duration = Duration::from_secs(5);

/// `NMVpnServiceState`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum State {
    Init = 1,
    Starting = 3,
    Started = 4,
    Stopping = 5,
    Stopped = 6,
}

/// `NMVpnPluginFailure`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Failure {
    Login = 0,
    Connect = 1,
    Addresses = 2,
}

/// What a call is refused with.
#[derive(Debug, DBusError)]
#[zbus(prefix = "org.freedesktop.NetworkManager.VPN.Error")]
pub(crate) enum Refused {
    #[zbus(error)]
    ZBus(zbus::Error),
    StartingInProgress(String),
    AlreadyStopped(String),
    BadArguments(String),
    NoSecretsRequired(String),
}

/// The object on the bus.
struct Plugin {
    state: Arc<AtomicU32>,
    orders: Sender<Input>,
}

impl Plugin {
    fn is(&self, state: State) -> bool {
        self.state.load(Ordering::Relaxed) == state as u32
    }

    fn order(&self, input: Input) {
        // The session may be over: then this program is, too.
        let _ = self.orders.send(input);
    }

    fn begin(&self, settings: &Settings, interactive: bool) -> Result<(), Refused> {
        if !self.is(State::Init) {
            return Err(Refused::StartingInProgress("this plug-in serves a connection already".into()));
        }
        let profile = Profile::read(settings).map_err(|e| Refused::BadArguments(e.to_string()))?;
        let password = password(settings);
        if profile.needs_password() && password.is_none() && !interactive {
            return Err(Refused::BadArguments("the password is missing".into()));
        }
        // Before the answer: a second call must find it so.
        self.state.store(State::Starting as u32, Ordering::Relaxed);
        self.order(Input::Connect(Box::new(Order { profile, password, interactive })));
        Ok(())
    }
}

#[zbus::interface(name = "org.freedesktop.NetworkManager.VPN.Plugin", introspection_docs = false)]
impl Plugin {
    fn connect(&self, connection: Settings) -> Result<(), Refused> {
        self.begin(&connection, false)
    }

    fn connect_interactive(&self, connection: Settings, _details: Words) -> Result<(), Refused> {
        self.begin(&connection, true)
    }

    /// The group in which a secret is missing; empty: none is.
    fn need_secrets(&self, settings: Settings) -> Result<String, Refused> {
        let profile = Profile::read(&settings).map_err(|e| Refused::BadArguments(e.to_string()))?;
        let missing = profile.needs_password() && password(&settings).is_none();
        Ok(if missing { "vpn".to_owned() } else { String::new() })
    }

    fn new_secrets(&self, connection: Settings) -> Result<(), Refused> {
        if !self.is(State::Starting) {
            return Err(Refused::NoSecretsRequired("none was asked for".into()));
        }
        self.order(Input::Secrets(password(&connection)));
        Ok(())
    }

    fn disconnect(&self) -> Result<(), Refused> {
        if self.is(State::Stopping) || self.is(State::Stopped) {
            return Err(Refused::AlreadyStopped("it is being taken down".into()));
        }
        self.order(Input::Disconnect);
        Ok(())
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn state(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    // For those who look at the interface: [`Teller`] sends them.
    #[zbus(signal)]
    async fn state_changed(emitter: &zbus::object_server::SignalEmitter<'_>, state: u32) -> zbus::Result<()>;
    #[zbus(signal)]
    async fn secrets_required(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        message: &str,
        secrets: Vec<&str>,
    ) -> zbus::Result<()>;
    #[zbus(signal)]
    async fn config(emitter: &zbus::object_server::SignalEmitter<'_>, config: &Words) -> zbus::Result<()>;
    #[zbus(signal, name = "Ip4Config")]
    async fn v4_config(emitter: &zbus::object_server::SignalEmitter<'_>, config: &Words) -> zbus::Result<()>;
    #[zbus(signal, name = "Ip6Config")]
    async fn v6_config(emitter: &zbus::object_server::SignalEmitter<'_>, config: &Words) -> zbus::Result<()>;
    #[zbus(signal)]
    async fn login_banner(emitter: &zbus::object_server::SignalEmitter<'_>, banner: &str)
    -> zbus::Result<()>;
    #[zbus(signal)]
    async fn failure(emitter: &zbus::object_server::SignalEmitter<'_>, reason: u32) -> zbus::Result<()>;
}

/// Sends NetworkManager its signals.
pub(crate) struct Teller {
    pub(crate) bus: Connection,
    state: Arc<AtomicU32>,
}

/// Puts the plug-in on the system's bus under `name`.
///
/// # Errors
/// The bus's: it may not be allowed to have the name.
pub(crate) fn offer(name: &str, orders: Sender<Input>) -> zbus::Result<Teller> {
    let state = Arc::new(AtomicU32::new(State::Init as u32));
    let plugin = Plugin { state: Arc::clone(&state), orders };
    let builder = zbus::connection::Builder::system().method_timeout(PATIENCE);
    let bus = zbus::block_on(builder.serve_at(PATH, plugin).name(name.to_owned()).build())?;
    Ok(Teller { bus, state })
}

impl Teller {
    fn tell<B: serde::Serialize + zbus::wire::DynamicType>(&self, signal: &str, body: &B) {
        let sent = self.bus.emit_signal(None::<&str>, PATH, INTERFACE, signal, body);
        if let Err(error) = zbus::block_on(sent) {
            tracing::warn!(%error, signal, "NetworkManager is not told");
        }
    }

    pub(crate) fn state(&self, state: State) {
        self.state.store(state as u32, Ordering::Relaxed);
        self.tell("StateChanged", &(state as u32));
    }

    /// What is said to the user, who is asked for the password.
    pub(crate) fn secrets_required(&self, message: &str) {
        self.tell("SecretsRequired", &(message, vec![crate::profile::PASSWORD]));
    }

    pub(crate) fn config(&self, config: &Words) {
        self.tell("Config", config);
    }

    pub(crate) fn v4_config(&self, config: &Words) {
        self.tell("Ip4Config", config);
    }

    pub(crate) fn v6_config(&self, config: &Words) {
        self.tell("Ip6Config", config);
    }

    pub(crate) fn failure(&self, reason: Failure) {
        self.tell("Failure", &(reason as u32));
    }
}
