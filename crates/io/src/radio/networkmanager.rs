//! The radio through NetworkManager (D-Bus). Keeps no connection to the bus: it is used a few times an hour, and a connection that
//! outlives a restart of the bus would be one more thing to mend.
//!
//! # Which of NetworkManager's switches
//! - `WirelessEnabled` blocks every 802.11 radio of the machine, and is written to disk: after a crash or a reboot the user's
//!   WiFi would be off. It is also the user's own switch, in every desktop's menu.
//! - `Device.Disconnect` leaves the radio powered: the interface stays up and NetworkManager goes on scanning.
//! - A soft block of one radio's rfkill switch behind its back makes NetworkManager take *all* of them for blocked.
//! - `Device.Managed = false` concerns this device alone and is forgotten at the next boot. NetworkManager disconnects, lets go of
//!   wpa_supplicant, and takes the link down; an 802.11 device whose last interface is down has no power. So this is used, and
//!   [`Device::off`] sees to it that the link is really down.
//!
//! Coming back, the connection profile that was active is activated by its UUID, which outlives a restart of NetworkManager and
//! works for profiles that do not connect by themselves; the access point is left to NetworkManager, for the device may
//! have moved. If it has chosen a network by itself meanwhile, that choice stands.

use super::interface::Interface;
use super::{Attempt, Options, PATIENCE, Power, Purpose, RadioError, RadioState, Switch, wait_for};
use crate::dbus;
use crate::netlink::Netlink;
use serde::Serialize;
use zbus::wire::{DynamicDeserialize, DynamicType};
use zbus::{Connection, Message, OwnedObjectPath, OwnedVariant, Variant};

pub(super) const NAME: &str = "networkmanager";

const BUS_NAME: &str = "org.freedesktop.NetworkManager";
const MANAGER_PATH: &str = "/org/freedesktop/NetworkManager";
const SETTINGS_PATH: &str = "/org/freedesktop/NetworkManager/Settings";
const SETTINGS: &str = "org.freedesktop.NetworkManager.Settings";
const DEVICE: &str = "org.freedesktop.NetworkManager.Device";
const ACTIVE: &str = "org.freedesktop.NetworkManager.Connection.Active";

/// `NM_DEVICE_TYPE_WIFI`.
const WIFI: u32 = 2;
/// `NM_DEVICE_STATE_DISCONNECTED`: ready, and doing nothing.
const DISCONNECTED: u32 = 30;
/// `NM_DEVICE_STATE_ACTIVATED`.
const ACTIVATED: u32 = 100;

/// One WiFi device of NetworkManager.
#[derive(Debug)]
struct Device {
    bus: Option<String>,
    interface: String,
    kept: Option<Kept>,
}

/// What is to be undone.
#[derive(Debug)]
struct Kept {
    /// UUID of the connection profile that was active.
    profile: Option<String>,
}

pub(super) fn find(options: &Options, interface: &Interface, purpose: Purpose) -> Attempt {
    let device = Device { bus: options.bus.clone(), interface: interface.name.clone(), kept: None };
    let why = device.usable(purpose)?;
    Ok((Box::new(device), why))
}

impl Device {
    /// Why NetworkManager is to be used, or why not.
    fn usable(&self, purpose: Purpose) -> Result<String, String> {
        let bus = Bus::connect(self.bus.as_deref()).map_err(|error| {
            tracing::debug!(%error, "D-Bus");
            "there is no D-Bus".to_owned()
        })?;
        if !dbus::has_owner(&bus.0, BUS_NAME).map_err(|e| format!("D-Bus does not answer: {e}"))? {
            return Err("it does not run".into());
        }
        let interface = &self.interface;
        let device = bus.device(interface).map_err(|_| format!("it does not know {interface}"))?;
        let kind: u32 = bus.get(&device, DEVICE, "DeviceType").map_err(|e| e.to_string())?;
        if kind != WIFI {
            return Err(format!("{interface} is not WiFi to it"));
        }
        if purpose == Purpose::Switch
            && !bus.get::<bool>(&device, DEVICE, "Managed").map_err(|e| e.to_string())?
        {
            return Err(format!("it does not manage {interface}"));
        }
        let version: String = bus.get(MANAGER_PATH, BUS_NAME, "Version").unwrap_or_default();
        Ok(format!("it runs (version {version}) and manages {interface}"))
    }

    fn fail(&self, what: &str) -> impl Fn(zbus::Error) -> RadioError + use<> {
        let what = format!("{}: {what}", self.interface);
        move |e| RadioError::step(NAME, what.clone(), e)
    }

    fn open(&self) -> Result<(Bus, OwnedObjectPath), RadioError> {
        let bus = Bus::connect(self.bus.as_deref()).map_err(self.fail("D-Bus"))?;
        let device = bus.device(&self.interface).map_err(self.fail("asking for the device"))?;
        Ok((bus, device))
    }

    /// UUID of the profile that is active on the device.
    fn active_profile(bus: &Bus, device: &str) -> zbus::Result<Option<String>> {
        let active: OwnedObjectPath = bus.get(device, DEVICE, "ActiveConnection")?;
        if active.as_str() == "/" {
            return Ok(None);
        }
        bus.get(active.as_str(), ACTIVE, "Uuid").map(Some)
    }

    /// Waits until the link is down, and takes it down where NetworkManager leaves it up.
    fn link_down(&self) -> Result<(), RadioError> {
        let mut netlink = Netlink::new().map_err(|e| RadioError::step(NAME, &self.interface, e))?;
        // A device without a link here (a test's) needs nothing.
        let Ok(link) = netlink.link(&self.interface) else { return Ok(()) };
        let down = wait_for(NAME, "the link going down", || {
            Ok(netlink.link(&self.interface).map_or(true, |l| !l.up))
        });
        if down.is_err() {
            netlink.set_up(link.index, false).map_err(|e| RadioError::step(NAME, &self.interface, e))?;
        }
        Ok(())
    }

    /// Activates the profile that was active, unless NetworkManager is connecting by itself already.
    fn reconnect(&self, bus: &Bus, device: &OwnedObjectPath, kept: &Kept) -> Result<(), RadioError> {
        let mut state = 0;
        let ready = wait_for(NAME, "the device becoming ready", || {
            state = bus.get(device, DEVICE, "State").map_err(self.fail("reading its state"))?;
            Ok(state >= DISCONNECTED)
        });
        match ready {
            // The user may have switched WiFi off meanwhile, or the driver is slow: NetworkManager goes on from here alone.
            Err(e @ RadioError::Timeout { .. }) => tracing::info!(%e, "left to NetworkManager"),
            other => other?,
        }
        let Some(profile) = kept.profile.as_ref().filter(|_| state == DISCONNECTED) else { return Ok(()) };
        let activate = || -> zbus::Result<()> {
            let settings: OwnedObjectPath =
                bus.call(SETTINGS_PATH, SETTINGS, "GetConnectionByUuid", profile)?;
            let any = OwnedObjectPath::try_from("/")?;
            bus.send(MANAGER_PATH, BUS_NAME, "ActivateConnection", &(settings, device, any)).map(drop)
        };
        // The profile may have been deleted, or NetworkManager be quicker: it knows other networks too.
        if let Err(error) = activate() {
            tracing::info!(%error, "the network of before is not joined by us; NetworkManager chooses");
        }
        Ok(())
    }
}

impl Switch for Device {
    fn name(&self) -> &'static str {
        NAME
    }

    fn off(&mut self) -> Result<(), RadioError> {
        let (bus, device) = self.open()?;
        if !bus.get::<bool>(&device, DEVICE, "Managed").map_err(self.fail("reading Managed"))? {
            return Ok(());
        }
        let profile = Self::active_profile(&bus, &device).unwrap_or_default();
        bus.set(&device, DEVICE, "Managed", false).map_err(self.fail("letting go of the device"))?;
        self.kept = Some(Kept { profile });
        let done = self.link_down();
        if done.is_err()
            && let Err(e) = self.on()
        {
            tracing::warn!(%e, "rolling back a failed switch-off failed");
        }
        done
    }

    fn on(&mut self) -> Result<(), RadioError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let (bus, device) = self.open()?;
        bus.set(&device, DEVICE, "Managed", true).map_err(self.fail("taking the device back"))?;
        self.reconnect(&bus, &device, kept)?;
        self.kept = None;
        Ok(())
    }

    fn state(&mut self) -> Result<RadioState, RadioError> {
        let (bus, device) = self.open()?;
        let managed: bool = bus.get(&device, DEVICE, "Managed").map_err(self.fail("reading Managed"))?;
        let state: u32 = bus.get(&device, DEVICE, "State").map_err(self.fail("reading its state"))?;
        let enabled: bool = bus.get(MANAGER_PATH, BUS_NAME, "WirelessEnabled").unwrap_or(true);
        let power = match (managed, self.holds()) {
            (true, _) if enabled => Power::On,
            (false, true) => Power::Off,
            _ => Power::Blocked,
        };
        let network = Self::active_name(&bus, &device).filter(|_| state == ACTIVATED);
        Ok(RadioState { power, attached: Some(state == ACTIVATED), network })
    }

    fn holds(&self) -> bool {
        self.kept.is_some()
    }

    fn network(&mut self) -> Option<String> {
        let (bus, device) = self.open().ok()?;
        Self::active_profile(&bus, &device).unwrap_or_default()
    }

    fn adopt(&mut self, network: Option<String>) {
        self.kept.get_or_insert(Kept { profile: network });
    }
}

impl Device {
    fn active_name(bus: &Bus, device: &str) -> Option<String> {
        let active: OwnedObjectPath = bus.get(device, DEVICE, "ActiveConnection").ok()?;
        (active.as_str() != "/").then(|| bus.get(active.as_str(), ACTIVE, "Id").ok())?
    }
}

/// A connection to the bus, with NetworkManager at the other end.
struct Bus(Connection);

impl Bus {
    fn connect(address: Option<&str>) -> zbus::Result<Self> {
        dbus::connect(address, PATIENCE).map(Self)
    }

    fn send<B>(&self, path: &str, interface: &str, method: &str, body: &B) -> zbus::Result<Message>
    where
        B: Serialize + DynamicType,
    {
        zbus::block_on(self.0.call_method(Some(BUS_NAME), path, Some(interface), method, body))
    }

    fn call<B, R>(&self, path: &str, interface: &str, method: &str, body: &B) -> zbus::Result<R>
    where
        B: Serialize + DynamicType,
        R: for<'d> DynamicDeserialize<'d>,
    {
        self.send(path, interface, method, body)?.body().deserialize()
    }

    fn get<T>(&self, path: &str, interface: &str, property: &str) -> zbus::Result<T>
    where
        T: TryFrom<OwnedVariant>,
        T::Error: Into<zbus::Error>,
    {
        let value: OwnedVariant =
            self.call(path, "org.freedesktop.DBus.Properties", "Get", &(interface, property))?;
        T::try_from(value).map_err(Into::into)
    }

    fn set(&self, path: &str, interface: &str, property: &str, value: bool) -> zbus::Result<()> {
        let body = (interface, property, Variant::from(value));
        self.send(path, "org.freedesktop.DBus.Properties", "Set", &body).map(drop)
    }

    fn device(&self, interface: &str) -> zbus::Result<OwnedObjectPath> {
        self.call(MANAGER_PATH, BUS_NAME, "GetDeviceByIpIface", &interface)
    }
}
