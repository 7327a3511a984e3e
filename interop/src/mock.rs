//! A private D-Bus bus with python-dbusmock's services on it: NetworkManager and logind as far as their interfaces go. Owns the bus,
//! its directory and its services, and removes all of them when dropped. The machine's own bus is never touched.

use anyhow::{Context, Result, bail};
use dormouse_testbed::{Extra, Need, Process};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use zbus::wire::{DynamicDeserialize, DynamicType};
use zbus::{Connection, OwnedVariant, Variant};

/// What a test on this bus needs.
pub const NEEDS: [Need; 3] = [
    Need::Program("dbus-daemon"),
    Need::File("/usr/bin/python3"),
    Need::File("/usr/lib/python3/dist-packages/dbusmock/__init__.py"),
];

/// Interface by which dbusmock itself is controlled.
pub const MOCK: &str = "org.freedesktop.DBus.Mock";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// Python takes its time to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The bus.
#[derive(Debug)]
pub struct MockBus {
    directory: PathBuf,
    daemon: Option<Process>,
    address: String,
}

impl MockBus {
    /// Starts a bus; `name` tells it from those of other tests of this process.
    ///
    /// # Errors
    /// If the bus does not come up.
    pub fn start(name: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("dormouse-bus-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let address = format!("unix:path={}/bus", directory.display());
        let config = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"\n \
             \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n\
             <busconfig><listen>{address}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
             <allow send_destination=\"*\"/><allow own=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>"
        );
        fs::write(directory.join("bus.conf"), config)?;
        let mut bus = Self { directory, daemon: None, address };
        bus.resume()?;
        Ok(bus)
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What makes a daemon take this bus for the machine's own.
    #[must_use]
    pub fn extra(&self) -> Extra {
        let address = ("DBUS_SYSTEM_BUS_ADDRESS".to_owned(), self.address.clone());
        Extra { environment: vec![address], ..Extra::default() }
    }

    /// A file in the bus's own directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Ends the bus: every connection to it breaks.
    pub fn end(&mut self) {
        self.daemon = None;
        let _ = fs::remove_file(self.directory.join("bus"));
    }

    /// Starts it again at the same address.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn resume(&mut self) -> Result<()> {
        let mut command = Command::new("dbus-daemon");
        command.arg("--nofork").arg(format!("--config-file={}", self.directory.join("bus.conf").display()));
        self.daemon = Some(Process::spawn("dbus-daemon", &mut command, &self.directory.join("bus.log"))?);
        self.until("the bus", || self.connect().is_ok())
    }

    /// Starts dbusmock's service `template`, which owns `name` on the bus.
    ///
    /// # Errors
    /// If it does not come up; the error holds the end of its log.
    pub fn service(&self, template: &str, name: &str) -> Result<Process> {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-m", "dbusmock", "--system", "--template", template]);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", &self.address);
        let log = self.directory.join(format!("{template}.log"));
        let process = Process::spawn(template, &mut command, &log)?;
        let owned = || {
            let dbus = "org.freedesktop.DBus";
            let answer = self.call(dbus, "/org/freedesktop/DBus", dbus, "NameHasOwner", &name);
            answer.unwrap_or(false)
        };
        self.until(name, owned).with_context(|| process.log())?;
        Ok(process)
    }

    /// Calls a method and reads its answer.
    ///
    /// # Errors
    /// The callee's, or the bus's.
    pub fn call<B, R>(&self, name: &str, path: &str, interface: &str, method: &str, body: &B) -> Result<R>
    where
        B: serde::Serialize + DynamicType,
        R: for<'d> DynamicDeserialize<'d>,
    {
        let bus = self.connect()?;
        let answer = zbus::block_on(bus.call_method(Some(name), path, Some(interface), method, body))
            .with_context(|| format!("{interface}.{method} of {path}"))?;
        Ok(answer.body().deserialize()?)
    }

    /// Reads a property.
    ///
    /// # Errors
    /// The callee's, or if it is of another type.
    pub fn get<T: TryFrom<OwnedVariant>>(
        &self,
        name: &str,
        path: &str,
        interface: &str,
        property: &str,
    ) -> Result<T> {
        let value: OwnedVariant = self.call(name, path, PROPERTIES, "Get", &(interface, property))?;
        T::try_from(value).map_err(|_| anyhow::anyhow!("{property} of {path} is of another type"))
    }

    /// Changes a property and announces it.
    ///
    /// # Errors
    /// The callee's.
    pub fn set(
        &self,
        name: &str,
        path: &str,
        interface: &str,
        property: &str,
        value: Variant<'_>,
    ) -> Result<()> {
        self.call(name, path, PROPERTIES, "Set", &(interface, property, value))
    }

    /// Waits until `done` says so.
    ///
    /// # Errors
    /// If it never does.
    pub fn until(&self, what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !done() {
            if Instant::now() > end {
                bail!("{what}: not within {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn connect(&self) -> Result<Connection> {
        let builder = zbus::connection::Builder::address(self.address.as_str()).method_timeout(PATIENCE);
        Ok(zbus::block_on(builder.build())?)
    }
}

impl Drop for MockBus {
    fn drop(&mut self) {
        self.daemon = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}
