//! The meters of a device as files that its daemon and its command line read instead of `/sys`: a battery that drains as the link is
//! up or down, and a processor's counter. Owns the files and the thread that writes them.

use anyhow::{Context, Result, bail};
use dormouse_io::netlink::{Monitor, Netlink, NetworkChange};
use dormouse_testbed::Host;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the device draws with its link down, in watts.
pub const BASELINE: f64 = 6.0;
/// What the link adds, in watts.
pub const LINK: f64 = 3.0;
/// What it costs to bring it up, in joules.
pub const CYCLE: f64 = 8.0;
/// The gauge's step, in µWh: 0.036 J.
const STEP: u64 = 10;

/// The meters' files, and a thread that drains the battery. Gone when dropped.
#[derive(Debug)]
pub struct Meters {
    root: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Meters {
    /// Meters of a device whose radio is `wlan0`.
    ///
    /// # Errors
    /// If the files cannot be made, or the namespace not be entered.
    pub fn new(device: &Host) -> Result<Self> {
        let root = device.dir().join("root");
        let battery = root.join("sys/class/power_supply/BAT0");
        let package = root.join("sys/class/powercap/intel-rapl:0");
        for directory in [&battery, &package] {
            fs::create_dir_all(directory)?;
        }
        fs::write(battery.join("type"), "Battery\n")?;
        fs::write(battery.join("status"), "Discharging\n")?;
        fs::write(battery.join("energy_now"), "50000000\n")?;
        fs::write(package.join("name"), "package-0\n")?;
        fs::write(package.join("max_energy_range_uj"), "262143328850\n")?;
        fs::write(package.join("energy_uj"), "0\n")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (gauge, ended) = (battery.join("energy_now"), Arc::clone(&stop));
        let thread = device.within(move || drain(&gauge, &package.join("energy_uj"), &ended))?;
        Ok(Self { root, stop, thread: Some(thread_of(thread)?) })
    }

    /// The directory in which `sys` lies.
    ///
    /// # Errors
    /// If its path is no text.
    pub fn root(&self) -> Result<&str> {
        self.root.to_str().context("a path that is no text")
    }

    /// Changes a file under the root.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set(&self, file: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.root.join(file), text)?)
    }
}

/// The thread of `Host::within`, its two results made one.
fn thread_of(thread: JoinHandle<Result<Result<()>>>) -> Result<JoinHandle<Result<()>>> {
    Ok(std::thread::Builder::new().spawn(move || match thread.join() {
        Ok(result) => result.and_then(|inner| inner),
        Err(_) => bail!("the battery's thread panicked"),
    })?)
}

impl Drop for Meters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(e))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the battery: {e:#}");
        }
    }
}

/// The battery of a device in whose namespace this thread stands; and its processor, which draws a third of the baseline.
fn drain(gauge: &Path, package: &Path, stop: &AtomicBool) -> Result<()> {
    let put = |file: &Path, value: u64| -> Result<()> {
        // At once: a reader must not see half a number.
        let new = file.with_extension("new");
        fs::write(&new, format!("{value}\n"))?;
        Ok(fs::rename(new, file)?)
    };
    // Every change counts, however short: the link may be up for a moment only.
    let mut monitor = Monitor::new()?;
    let mut up = Netlink::new()?.link("wlan0")?.up;
    let (mut used, mut at) = (0.0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        used += seconds * (BASELINE + if up { LINK } else { 0.0 });
        while let Some(change) = monitor.next()? {
            let NetworkChange::Link(link) = change else { continue };
            if link.name == "wlan0" && up != link.up {
                up = link.up;
                used += if up { CYCLE } else { 0.0 };
            }
        }
        let micro_watt_hours = (used / 3.6e-3) as u64;
        put(gauge, 50_000_000 - micro_watt_hours / STEP * STEP)?;
        put(package, (used * 1e6 / 3.0) as u64)?;
    }
    Ok(())
}
