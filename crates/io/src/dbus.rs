//! Connections to a D-Bus bus, within bounds. Owns how long a bus is waited for; knows no service.

use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;
use zbus::Connection;
use zbus::connection::Builder;

/// Connects to the bus at `address`, `None` being the system's, within `limit`; no call over the connection takes longer either. The
/// library bounds calls but not the handshake, so that happens on a thread of its own, which a bus that hangs keeps.
pub(crate) fn connect(address: Option<&str>, limit: Duration) -> zbus::Result<Connection> {
    let builder = match address {
        Some(address) => Builder::address(address),
        None => Builder::system(),
    };
    let connecting = builder.method_timeout(limit).build();
    let (sender, connected) = channel();
    std::thread::Builder::new().name("dbus".into()).spawn(move || {
        let _ = sender.send(zbus::block_on(connecting));
    })?;
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"));
    connected.recv_timeout(limit).unwrap_or_else(|_| Err(late().into()))
}

/// Whether a service is on the bus.
pub(crate) fn has_owner(bus: &Connection, name: &str) -> zbus::Result<bool> {
    const DBUS: &str = "org.freedesktop.DBus";
    let (path, method) = ("/org/freedesktop/DBus", "NameHasOwner");
    zbus::block_on(bus.call_method(Some(DBUS), path, Some(DBUS), method, &name))?.body().deserialize()
}
