//! NetworkManager at the other end of the bus: whether it is still there, and whether it is about to sleep. Owns no decision.

use crate::message::Input;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use zbus::export::futures_core::Stream;
use zbus::message::Type;
use zbus::{Connection, MatchRule, MessageStream, OwnedVariant};

const NAME: &str = "org.freedesktop.NetworkManager";
const PATH: &str = "/org/freedesktop/NetworkManager";
const DBUS: &str = "org.freedesktop.DBus";
/// `NM_STATE_CONNECTED_LOCAL`: with less than this there is no network, or the machine is about to sleep.
const CONNECTED: u32 = 50;

/// Tells when NetworkManager, or the bus, is gone: its connections go with it.
pub(crate) fn watch(bus: Connection, told: Sender<Input>) -> std::io::Result<()> {
    let follow = move || {
        if let Err(error) = zbus::block_on(until_gone(&bus)) {
            tracing::warn!(%error, "NetworkManager cannot be watched");
        }
        let _ = told.send(Input::ManagerGone);
    };
    std::thread::Builder::new().name("manager".into()).spawn(follow).map(drop)
}

async fn until_gone(bus: &Connection) -> zbus::Result<()> {
    let rule = MatchRule::builder()
        .msg_type(Type::Signal)
        .sender(DBUS)
        .interface(DBUS)
        .member("NameOwnerChanged")
        .arg(0, NAME)
        .build()?;
    let mut changes = MessageStream::for_match_rule(rule, bus, None).await?;
    // The end of the stream is the end of the bus.
    while let Some(message) = poll_fn(|context| Pin::new(&mut changes).poll_next(context)).await {
        let message = message?;
        let body = message.body();
        let (_, _, new): (&str, &str, &str) = body.deserialize()?;
        if new.is_empty() {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether there is a network: if not, a connection is taken down because of that, and not because a person wants it.
pub(crate) fn is_connected(bus: &Connection) -> bool {
    let state = async {
        let get = bus.call_method(
            Some(NAME),
            PATH,
            Some("org.freedesktop.DBus.Properties"),
            "Get",
            &(NAME, "State"),
        );
        let value: OwnedVariant = get.await?.body().deserialize()?;
        u32::try_from(value)
    };
    match zbus::block_on(state) {
        Ok(state) => state >= CONNECTED,
        Err(error) => {
            tracing::info!(%error, "the state of NetworkManager");
            true
        }
    }
}
