//! The radio through NetworkManager: on a bus of the test's own with dbusmock's NetworkManager. The mock keeps properties and notes
//! calls; what NetworkManager does of itself when it lets go of a device or takes it back, the test does.

use anyhow::{Context, Result};
use dormouse_interop::mock::{MOCK, MockBus, NEEDS};
use dormouse_io::radio::{Driver, Guard, Options, Order, Power, Radio, RadioError, Reply, select, survey};
use dormouse_testbed::{Need, Process, Testbed, binary, require};
use std::sync::Arc;
use zbus::{OwnedObjectPath, Variant};

const NAME: &str = "org.freedesktop.NetworkManager";
const MANAGER: &str = "/org/freedesktop/NetworkManager";
const SETTINGS: &str = "/org/freedesktop/NetworkManager/Settings";
const DEVICE: &str = "org.freedesktop.NetworkManager.Device";
const WLAN: &str = "/org/freedesktop/NetworkManager/Devices/wlan";
const UUID: &str = "6d0c3f5e-8a51-4c52-9e77-0f5b1c7f2a10";

/// NetworkManager's device states.
const UNMANAGED: u32 = 10;
const DISCONNECTED: u32 = 30;
const ACTIVATED: u32 = 100;

fn needs() -> Vec<Need> {
    [Need::Root, Need::Program("ip")].into_iter().chain(NEEDS).collect()
}

/// A bus with a NetworkManager that manages `wlan0` and is connected to the network `office`; and a network namespace in which
/// there is a `wlan0`.
struct World {
    bus: Arc<MockBus>,
    service: Process,
    host: dormouse_testbed::Host,
    _testbed: Testbed,
}

impl World {
    fn new(name: &str) -> Result<Self> {
        let mut testbed = Testbed::new()?;
        let host = testbed.host("device")?;
        host.ip("link add wlan0 type veth peer name air0")?;
        host.ip("link set wlan0 up")?;
        let bus = Arc::new(MockBus::start(name)?);
        let service = manager(&bus)?;
        let profile = profile(&bus)?;
        let active: String = bus.call(
            NAME,
            MANAGER,
            MOCK,
            "AddActiveConnection",
            &(vec![WLAN], profile.as_str(), "/", "office", 2u32),
        )?;
        assert!(active.ends_with("office"));
        Ok(Self { bus, service, host, _testbed: testbed })
    }

    fn options(&self) -> Options {
        Options {
            driver: Driver::NetworkManager,
            interface: Some("wlan0".into()),
            bus: Some(self.bus.address().into()),
            ..Options::default()
        }
    }

    /// Runs `work` with a radio inside the namespace, on a thread of its own.
    fn with_radio<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Radio) -> T + Send + 'static,
    ) -> Result<std::thread::JoinHandle<Result<T>>> {
        let options = self.options();
        self.host
            .within(move || select(&options).map(|mut radio| work(&mut *radio)).map_err(anyhow::Error::from))
            .map(|handle| std::thread::spawn(move || handle.join().expect("the radio's thread")?))
    }

    /// A guard as the daemon starts it: a process of its own, in the namespace.
    fn guard(&self, options: &Options) -> Result<Guard> {
        let options = options.clone();
        let start =
            self.host.within(move || Guard::spawn(&binary("dormoused"), &["radio-guard"], &options))?;
        Ok(start.join().expect("the starting thread")??)
    }

    /// The UUID of the profile that is active on the device.
    fn active_profile(&self) -> Option<String> {
        let active = self.active().ok().filter(|a| a != "/")?;
        self.bus.get(NAME, &active, &format!("{NAME}.Connection.Active"), "Uuid").ok()
    }

    fn managed(&self) -> bool {
        self.bus.get(NAME, WLAN, DEVICE, "Managed").unwrap_or(true)
    }

    fn set_state(&self, state: u32) -> Result<()> {
        self.bus.set(NAME, WLAN, DEVICE, "State", Variant::from(state))
    }

    fn active(&self) -> Result<String> {
        let path: OwnedObjectPath = self.bus.get(NAME, WLAN, DEVICE, "ActiveConnection")?;
        Ok(path.to_string())
    }

    /// What NetworkManager does when it lets go of a device.
    fn let_go(&self) -> Result<()> {
        self.bus.until("the device is let go of", || !self.managed())?;
        let nothing = zbus::ObjectPath::try_from("/")?;
        self.bus.set(NAME, WLAN, DEVICE, "ActiveConnection", Variant::from(nothing))?;
        self.set_state(UNMANAGED)?;
        self.host.ip("link set wlan0 down")
    }
}

/// A NetworkManager with one WiFi device and no connection.
fn manager(bus: &MockBus) -> Result<Process> {
    let service = bus.service("networkmanager", NAME)?;
    let path: String =
        bus.call(NAME, MANAGER, MOCK, "AddWiFiDevice", &("wlan", "wlan0", 100i32)).context("the mock")?;
    assert_eq!(path, WLAN);
    Ok(service)
}

/// A connection profile with a UUID of ours; returns its path, which is another in each life of the manager.
fn profile(bus: &MockBus) -> Result<String> {
    use std::collections::BTreeMap;
    let connection = BTreeMap::from([
        ("id", Variant::from("office")),
        ("uuid", Variant::from(UUID)),
        ("type", Variant::from("802-11-wireless")),
    ]);
    let settings = BTreeMap::from([("connection", connection)]);
    let path: OwnedObjectPath =
        bus.call(NAME, SETTINGS, &format!("{NAME}.Settings"), "AddConnection", &settings)?;
    Ok(path.to_string())
}

#[test]
fn the_device_is_let_go_of_and_comes_back_on_the_same_network() -> Result<()> {
    if !require("NetworkManager: off and on", &needs()) {
        return Ok(());
    }
    let world = World::new("nm-off-on")?;
    let before = world.active()?;
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let radio = world.with_radio(move |radio| -> Result<(), RadioError> {
        assert!(radio.why().contains("manages wlan0"), "{}", radio.why());
        let state = radio.state()?;
        assert_eq!((state.power, state.attached), (Power::On, Some(true)));
        assert_eq!(state.network.as_deref(), Some("office"));
        radio.off()?;
        let state = radio.state()?;
        assert_eq!((state.power, state.attached, state.network), (Power::Off, Some(false), None));
        gone.recv().expect("the test goes on");
        radio.on()?;
        assert_eq!(radio.state()?.power, Power::On);
        Ok(())
    })?;
    world.let_go()?;
    assert!(!world.host.sh("ip link show wlan0")?.contains("state UP"));
    go.send(())?;
    world.bus.until("the device is taken back", || world.managed())?;
    // NetworkManager finds the device ready, and does not connect by itself (a profile without autoconnect).
    world.set_state(DISCONNECTED)?;
    world.bus.until("the profile is activated", || world.active().is_ok_and(|a| a != "/" && a != before))?;
    radio.join().expect("the radio's thread")??;
    let uuid: String = world.bus.get(NAME, &world.active()?, &format!("{NAME}.Connection.Active"), "Uuid")?;
    assert_eq!(uuid, UUID);
    Ok(())
}

#[test]
fn a_restart_of_networkmanager_while_the_radio_is_off_loses_nothing() -> Result<()> {
    if !require("NetworkManager: restart", &needs()) {
        return Ok(());
    }
    let mut world = World::new("nm-restart")?;
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel::<String>();
    let radio = world.with_radio(move |radio| -> Result<(), RadioError> {
        radio.off()?;
        gone.recv().expect("the test goes on");
        let problem = radio.on().expect_err("NetworkManager is gone").to_string();
        tell.send(problem).expect("the test goes on");
        gone.recv().expect("the test goes on");
        radio.on()
    })?;
    world.let_go()?;
    world.service.stop();
    go.send(())?;
    let problem = told.recv()?;
    assert!(problem.contains("networkmanager") && problem.contains("wlan0"), "{problem}");

    world.service = manager(&world.bus)?;
    // Another profile first, so that ours has another path than before.
    let _: OwnedObjectPath = {
        let connection = std::collections::BTreeMap::from([("id", Variant::from("other"))]);
        let settings = std::collections::BTreeMap::from([("connection", connection)]);
        world.bus.call(NAME, SETTINGS, &format!("{NAME}.Settings"), "AddConnection", &settings)?
    };
    profile(&world.bus)?;
    world.set_state(DISCONNECTED)?;
    go.send(())?;
    radio.join().expect("the radio's thread")??;
    let uuid: String = world.bus.get(NAME, &world.active()?, &format!("{NAME}.Connection.Active"), "Uuid")?;
    assert_eq!(uuid, UUID);
    Ok(())
}

#[test]
fn what_networkmanager_has_chosen_by_itself_stands() -> Result<()> {
    if !require("NetworkManager: own choice", &needs()) {
        return Ok(());
    }
    let world = World::new("nm-choice")?;
    let radio = world.with_radio(|radio| -> Result<(), RadioError> {
        radio.off()?;
        radio.on()
    })?;
    world.let_go()?;
    // It is quick, and at another place: the state never stops at "disconnected".
    world.bus.until("the device is taken back", || world.managed())?;
    world.set_state(ACTIVATED)?;
    radio.join().expect("the radio's thread")??;
    assert_eq!(world.active()?, "/", "no connection was activated by us");
    Ok(())
}

#[test]
fn a_link_that_stays_up_is_taken_down_and_dropping_the_radio_gives_the_device_back() -> Result<()> {
    if !require("NetworkManager: drop", &needs()) {
        return Ok(());
    }
    let world = World::new("nm-drop")?;
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let radio = world.with_radio(move |radio| -> Result<(), RadioError> {
        radio.off()?;
        gone.recv().expect("the test goes on");
        Ok(())
    })?;
    world.bus.until("the device is let go of", || !world.managed())?;
    // This NetworkManager leaves the link as it is.
    world.bus.until("the link is down", || {
        world.host.sh("ip link show wlan0").is_ok_and(|text| !text.contains(",UP"))
    })?;
    world.set_state(DISCONNECTED)?;
    go.send(())?;
    radio.join().expect("the radio's thread")??;
    assert!(world.managed());
    Ok(())
}

#[test]
fn the_users_own_switch_is_respected_and_other_devices_are_passed_over() -> Result<()> {
    if !require("NetworkManager: passed over", &needs()) {
        return Ok(());
    }
    let mut world = World::new("nm-passed-over")?;
    world.bus.set(NAME, MANAGER, NAME, "WirelessEnabled", Variant::from(false))?;
    let state = world.with_radio(|radio| radio.state())?.join().expect("the radio's thread")??;
    assert_eq!(state.power, Power::Blocked, "switched off in the desktop's menu");

    let why = |options: Options| -> Result<String> {
        let found = world.host.within(move || survey(&options))?.join().expect("a thread")?;
        Ok(found.map_or_else(|e| e.to_string(), |choice| choice.why))
    };
    world.bus.set(NAME, WLAN, DEVICE, "Managed", Variant::from(false))?;
    assert!(why(world.options())?.contains("does not manage wlan0"));
    let auto = Options { driver: Driver::Auto, ..world.options() };
    let reason = why(auto)?;
    assert!(reason.contains("wlan0 is named") && reason.contains("does not manage"), "{reason}");
    world.host.ip("link add eth7 type veth peer name wire7")?;
    assert!(
        why(Options { interface: Some("eth7".into()), ..world.options() })?.contains("does not know eth7")
    );
    world.service.stop();
    let options = world.options();
    let reason = world.host.within(move || survey(&options))?.join().expect("a thread")?;
    assert!(matches!(reason, Err(RadioError::Nowhere(why)) if why.contains("it does not run")));
    Ok(())
}

/// Ends a guard as a crash does.
fn kill(mut guard: Guard) {
    let pid = i32::try_from(guard.pid()).expect("a process id");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
        .expect("our child");
    assert!(guard.wait().is_err(), "its end is seen");
}

#[test]
fn a_guard_that_is_killed_at_any_step_of_a_sleep_is_made_good_by_the_next_one() -> Result<()> {
    if !require("NetworkManager: killed guard", &needs()) {
        return Ok(());
    }
    let world = World::new("nm-killed")?;
    let mark = world.bus.file("mark");
    let options = Options { mark: Some(mark.clone()), ..world.options() };
    for step in ["letting go", "off", "taking back"] {
        let mut guard = world.guard(&options)?;
        assert!(matches!(guard.wait()?, Reply::Selected(Ok(_))), "{step}");
        guard.order(Order::Off)?;
        world.bus.until("the device is let go of", || !world.managed())?;
        if step != "letting go" {
            world.let_go()?;
            assert!(matches!(guard.wait()?, Reply::Done(Order::Off, Ok(_))), "{step}");
        }
        if step == "taking back" {
            guard.order(Order::On)?;
            world.bus.until("the device is taken back", || world.managed())?;
        }
        kill(guard);
        if step == "letting go" {
            world.let_go()?;
        }
        assert_eq!(world.active()?, "/", "{step}: the radio is off");
        let mut next = world.guard(&options)?;
        world.bus.until("the device is taken back", || world.managed())?;
        world.set_state(DISCONNECTED)?;
        world.bus.until("the profile is activated", || world.active_profile().as_deref() == Some(UUID))?;
        let Reply::Selected(Ok(choice)) = next.wait()? else { panic!("{step}: no radio") };
        assert_eq!(choice.driver, "networkmanager", "{step}");
        assert_eq!(std::fs::read_to_string(&mark)?, "", "{step}");
        drop(next);
        world.set_state(ACTIVATED)?;
        world.host.ip("link set wlan0 up")?;
    }
    Ok(())
}

#[test]
fn what_cannot_be_brought_back_yet_is_remembered_beside_what_is_switched_off_next() -> Result<()> {
    if !require("NetworkManager: pending", &needs()) {
        return Ok(());
    }
    let mut world = World::new("nm-pending")?;
    let mark = world.bus.file("mark");
    let options = Options { driver: Driver::Auto, mark: Some(mark.clone()), ..world.options() };
    let mut guard = world.guard(&options)?;
    let Reply::Selected(Ok(choice)) = guard.wait()? else { panic!("no radio") };
    assert_eq!(choice.driver, "networkmanager");
    guard.order(Order::Off)?;
    world.let_go()?;
    assert!(matches!(guard.wait()?, Reply::Done(Order::Off, Ok(_))));
    kill(guard);

    // NetworkManager does not run when the next one starts: the radio is switched by its link meanwhile.
    world.service.stop();
    let drivers = || -> Result<Vec<String>> {
        let read = |line: &str| -> Result<String> {
            let value: serde_json::Value = serde_json::from_str(line)?;
            Ok(value.get("driver").and_then(|d| d.as_str()).unwrap_or_default().to_owned())
        };
        std::fs::read_to_string(&mark)?.lines().map(read).collect()
    };
    world.host.ip("link set wlan0 up")?;
    let mut next = world.guard(&options)?;
    let Reply::Selected(Ok(choice)) = next.wait()? else { panic!("no radio") };
    assert_eq!(choice.driver, "link");
    assert_eq!(drivers()?, ["networkmanager"]);
    for (order, marked) in [(Order::Off, vec!["networkmanager", "link"]), (Order::On, vec!["networkmanager"])]
    {
        next.order(order)?;
        assert!(matches!(next.wait()?, Reply::Done(_, Ok(_))));
        assert_eq!(drivers()?, marked);
    }

    // It is back, and remembers that the device is not its business.
    world.service = manager(&world.bus)?;
    profile(&world.bus)?;
    world.bus.set(NAME, WLAN, DEVICE, "Managed", Variant::from(false))?;
    world.set_state(UNMANAGED)?;
    next.order(Order::On)?;
    world.bus.until("the device is taken back", || world.managed())?;
    world.set_state(DISCONNECTED)?;
    assert!(matches!(next.wait()?, Reply::Done(Order::On, Ok(_))));
    assert_eq!(drivers()?, Vec::<String>::new());
    assert_eq!(world.active_profile().as_deref(), Some(UUID));
    Ok(())
}
