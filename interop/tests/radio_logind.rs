//! The machine's sleep as logind announces it: on a bus of the test's own with dbusmock's logind.

use anyhow::{Result, bail};
use dormouse_interop::mock::{MOCK, MockBus, NEEDS};
use dormouse_io::logind::{Event, Watch};
use dormouse_io::poller::{Interest, Poller};
use dormouse_testbed::require;
use std::time::Duration;
use zbus::Variant;

const NAME: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";

/// What, who, why, how, user, process.
type Inhibitor = (String, String, String, String, u32, u32);

/// The next event, waited for as the daemon does: by the descriptor.
fn wait(watch: &mut Watch) -> Result<Event> {
    let poller = Poller::new()?;
    poller.add(&*watch, 1, Interest::READ)?;
    let mut ready = Vec::new();
    for _ in 0..3 {
        if let Some(event) = watch.next() {
            return Ok(event);
        }
        poller.wait(&mut ready, Some(Duration::from_secs(30)))?;
    }
    bail!("no event")
}

fn inhibitors(bus: &MockBus) -> Vec<Inhibitor> {
    bus.call(NAME, PATH, MANAGER, "ListInhibitors", &()).unwrap_or_default()
}

fn prepare_for_sleep(bus: &MockBus, before: bool) -> Result<()> {
    let body = (MANAGER, "PrepareForSleep", "b", vec![Variant::from(before)]);
    bus.call(NAME, PATH, MOCK, "EmitSignal", &body)
}

#[test]
fn the_machine_waits_until_the_hold_is_dropped_and_the_next_sleep_is_held_again() -> Result<()> {
    if !require("logind: sleep", &NEEDS) {
        return Ok(());
    }
    let bus = MockBus::start("logind-sleep")?;
    let _logind = bus.service("logind", NAME)?;
    let mut watch = Watch::new(Some(bus.address()))?;
    assert!(matches!(wait(&mut watch)?, Event::Watching(Ok(()))));
    let held = inhibitors(&bus);
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!((held[0].0.as_str(), held[0].1.as_str(), held[0].3.as_str()), ("sleep", "Dormouse", "delay"));

    for round in 0..2 {
        prepare_for_sleep(&bus, true)?;
        let Event::AboutToSleep(Some(hold)) = wait(&mut watch)? else { bail!("round {round}: no hold") };
        assert_eq!(inhibitors(&bus).len(), 1, "the machine waits");
        drop(hold);
        bus.until("the inhibitor is released", || inhibitors(&bus).is_empty())?;
        prepare_for_sleep(&bus, false)?;
        assert!(matches!(wait(&mut watch)?, Event::Resumed));
        bus.until("the inhibitor is taken again", || inhibitors(&bus).len() == 1)?;
    }
    assert!(watch.next().is_none());
    drop(watch);
    bus.until("the end releases the inhibitor", || inhibitors(&bus).is_empty())
}

#[test]
fn logind_may_come_late_and_may_be_restarted() -> Result<()> {
    if !require("logind: restart", &NEEDS) {
        return Ok(());
    }
    let bus = MockBus::start("logind-restart")?;
    let mut watch = Watch::new(Some(bus.address()))?;
    match wait(&mut watch)? {
        Event::Unavailable(why) => assert!(why.contains("does not run"), "{why}"),
        other => bail!("{other:?}"),
    }
    for _ in 0..2 {
        let logind = bus.service("logind", NAME)?;
        assert!(matches!(wait(&mut watch)?, Event::Watching(Ok(()))));
        assert_eq!(inhibitors(&bus).len(), 1);
        drop(logind);
        assert!(matches!(wait(&mut watch)?, Event::Unavailable(_)));
    }
    Ok(())
}

#[test]
fn a_bus_that_goes_away_is_looked_for_and_one_that_never_was_is_not() -> Result<()> {
    if !require("logind: bus", &NEEDS) {
        return Ok(());
    }
    let mut bus = MockBus::start("logind-bus")?;
    let logind = bus.service("logind", NAME)?;
    let mut watch = Watch::new(Some(bus.address()))?;
    assert!(matches!(wait(&mut watch)?, Event::Watching(Ok(()))));
    bus.end();
    drop(logind);
    // The bus may first report the end of logind: either order is the truth.
    while !matches!(&wait(&mut watch)?, Event::Unavailable(why) if why.contains("bus is lost")) {}
    bus.resume()?;
    let _logind = bus.service("logind", NAME)?;
    while !matches!(wait(&mut watch)?, Event::Watching(Ok(()))) {}
    drop(watch);

    let nowhere = format!("unix:path={}", bus.file("nobody").display());
    let mut watch = Watch::new(Some(&nowhere))?;
    match wait(&mut watch)? {
        Event::Unavailable(why) => assert!(why.contains("no D-Bus"), "{why}"),
        other => bail!("{other:?}"),
    }
    Ok(())
}
