//! The device's daemon with the parts of a laptop: NetworkManager (dbusmock) switches the radio, a battery measures what sleeping
//! saves.

use anyhow::{Context, Result};
use dormouse_interop::ends::{self, until};
use dormouse_interop::meters::Meters;
use dormouse_interop::mock::{self, MOCK, MockBus};
use dormouse_testbed::{Access, Dormoused, Extra, Need, Roaming, SERVER, require};
use zbus::Variant;

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ping")];
const NAME: &str = "org.freedesktop.NetworkManager";
const MANAGER: &str = "/org/freedesktop/NetworkManager";
const DEVICE: &str = "org.freedesktop.NetworkManager.Device";
const WLAN: &str = "/org/freedesktop/NetworkManager/Devices/wlan";
/// NetworkManager's device states.
const UNMANAGED: u32 = 10;
const ACTIVATED: u32 = 100;

/// A device and its gateway, not connected yet.
fn daemons(world: &Roaming, extra: Extra, sleep: &str) -> Result<(Dormoused, Dormoused)> {
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &ends::gateway("\"10.55.0.0/24\"", ""))?;
    let device = Dormoused::start_with(&world.device, extra, "dns = \"off\"", &ends::device(sleep))?;
    Ok((device, gateway))
}

#[test]
fn where_networkmanager_runs_it_switches_the_radio() -> Result<()> {
    let needs: Vec<Need> = NEEDS.into_iter().chain(mock::NEEDS).collect();
    if !require("a radio of NetworkManager's", &needs) {
        return Ok(());
    }
    let bus = MockBus::start("laptop")?;
    let _manager = bus.service("networkmanager", NAME)?;
    let path: String = bus.call(NAME, MANAGER, MOCK, "AddWiFiDevice", &("wlan", "wlan0", 100_i32))?;
    assert_eq!(path, WLAN);
    let managed = || bus.get(NAME, WLAN, DEVICE, "Managed").unwrap_or(true);
    let state = |state: u32| bus.set(NAME, WLAN, DEVICE, "State", Variant::from(state));
    state(ACTIVATED)?;

    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let (device, _gateway) = daemons(&world, bus.extra(), "mode = \"energy\"\npolicy = 0.5")?;
    let sleep = until(&device, "a radio", |s| s["radio"]["driver"] == "networkmanager")?;
    assert!(sleep["radio"]["why"].as_str().is_some_and(|w| w.contains("manages wlan0")), "{sleep:#}");
    let doctor = device.cli(&["doctor"])?.text;
    assert!(doctor.contains("networkmanager: "), "{doctor}");
    device.ok(&["up", "peer"])?;

    // Silence: the device is let go of, and NetworkManager takes the link down.
    bus.until("the device is let go of", || !managed())?;
    world.detach(Access::A)?;
    state(UNMANAGED)?;
    until(&device, "asleep", |s| s["state"] == "asleep")?;

    // A packet: it is taken back, and joins its network. The packet is not lost.
    let mut ping = world.device.spawn("ping", "ping", &["-c", "1", "-W", "30", SERVER])?;
    bus.until("the device is taken back", managed)?;
    world.attach(Access::A)?;
    state(ACTIVATED)?;
    let ended = ping.wait(ends::PATIENCE).context("the ping never ends")?;
    assert!(ended.success(), "{}\n{}", ping.log(), device.log());
    let sleep = until(&device, "a wake by traffic", |s| s["wakes_by_cause"]["traffic"] == 1)?;
    assert_eq!(sleep["radio_failures"], 0, "{sleep:#}");
    Ok(())
}

#[test]
fn joules_come_from_the_battery_where_there_is_one_and_from_the_profile_where_not() -> Result<()> {
    if !require("a battery", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let meters = Meters::new(&world.device)?;
    let arguments = vec!["--meter-root".to_owned(), meters.root()?.to_owned()];
    let extra = Extra { arguments, ..Extra::default() };
    let sleep = "mode = \"energy\"\npolicy = 0.5\nradio = \"link\"\ninterface = \"wlan0\"";
    let (mut device, _gateway) = daemons(&world, extra, sleep)?;
    device.ok(&["up", "peer"])?;
    let first = until(&device, "asleep", |s| s["state"] == "asleep")?;
    assert_eq!(first["energy"]["source"], "meter battery BAT0 (energy_now)", "{first:#}");
    assert!(first["energy"]["uncertainty_joules"].as_f64() > Some(0.0), "{first:#}");
    let used = first["energy"]["used_joules"].as_f64();
    let later = until(&device, "joules counted", |s| s["energy"]["used_joules"].as_f64() > used)?;
    assert!(later["energy"]["saved_joules"].is_number(), "{later:#}");
    let text = device.ok(&["status"])?.text;
    assert!(text.contains(" ± ") && text.contains("[meter battery BAT0 (energy_now)]"), "{text}");

    // On mains the battery measures nothing, and the processor's counter does not see the radio.
    meters.set("sys/class/power_supply/BAT0/status", "Charging\n")?;
    device.restart()?;
    device.process().wait_for("it does not see the radio: joules follow the profile", ends::PATIENCE)?;
    device.ok(&["up", "peer"])?;
    let sleep = until(&device, "asleep", |s| s["state"] == "asleep")?;
    assert_eq!(sleep["energy"]["source"], "profile laptop-000", "{sleep:#}");
    Ok(())
}
