//! A device with addresses of its own between two access routers, without header keys at them, and with those that come before it (PKD) or
//! from the router before (DKM). Owns that world and what is timed in it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dormouse_io::clock::unix_now_precise;
use dormouse_testbed::routers::{Mode, Routers, SERVER};
use dormouse_testbed::{Dormoused, EchoServer, Prober};

use super::{LIMIT, PROBES, Phase};
use crate::results::Figures;

/// What a router's log says when it has keys, and when it has them no more.
const CAME: &str = "header keys came";
const WENT: &str = "header keys were taken back";
const DAY: f64 = 86_400.0;

/// The world of one mode, and where its device is.
pub(super) struct World {
    world: Routers,
    mode: Mode,
    echo: EchoServer,
    prober: Prober,
    at: Option<usize>,
    up: bool,
}

impl World {
    pub(super) fn build(mode: Mode) -> Result<Self> {
        let world = Routers::start(mode)?;
        let server = SocketAddr::new(SERVER.parse()?, 7);
        let echo = EchoServer::start(&world.fixed, server)?;
        let prober = Prober::new(&world.mobile, server)?;
        Ok(Self { world, mode, echo, prober, at: None, up: false })
    }

    /// The device begins at a router, or goes from one to the other.
    pub(super) fn measure(&mut self, phase: Phase) -> Result<Figures> {
        let to = if self.at == Some(0) { 1 } else { 0 };
        if phase == Phase::Initialization {
            if self.up {
                self.world.device.ok(&["down", "office"])?;
                self.up = false;
            }
            // While it can still tell its gateway, which tells the routers.
            for at in 0..2 {
                self.world.has_keys(at, false)?;
            }
            self.world.go(None)?;
        } else {
            if !self.up {
                self.world.go(Some(1 - to))?;
                self.begin()?;
            }
            // A router that is not told where devices are asks when it sees their packets.
            let ping = format!("ping -c 1 -W 1 {SERVER}");
            self.world.mobile.eventually(&ping, LIMIT)?;
            if self.mode != Mode::Whole {
                self.world.has_keys(1 - to, true)?;
            }
        }
        let (begin, unix) = (Instant::now(), unix_now_precise().as_secs_f64());
        self.world.go(Some(to))?;
        self.at = Some(to);
        if phase == Phase::Initialization {
            self.begin()?;
        }
        let burst = self.prober.burst(&self.echo, begin, PROBES, 20, LIMIT)?;
        let pause = burst.first_echo.context("nothing came back")?.as_secs_f64() * 1e3;
        let mut figures = Figures::default().with("pause", pause);
        if phase == Phase::Handoff {
            figures = figures.with("lost", burst.lost as f64);
        }
        if self.mode != Mode::Whole {
            let router = self.world.routers.get(to).context("no such router")?;
            figures = figures.with("keys", until_keys(router, unix)? * 1e3);
        }
        Ok(figures)
    }

    fn begin(&mut self) -> Result<()> {
        self.world.device.ok(&["up", "office", "--timeout", "20"])?;
        self.up = true;
        Ok(())
    }
}

/// Seconds from `begin`, a time since 1970, until the router had keys; 0: it had them before.
pub(super) fn until_keys(router: &Dormoused, begin: f64) -> Result<f64> {
    let limit = Instant::now() + LIMIT;
    loop {
        let log = router.log();
        if let Some(seconds) = keys_came(&log, begin) {
            return Ok(seconds);
        }
        if Instant::now() > limit {
            bail!("the router got no keys:\n{log}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Seconds from `begin`, a time since 1970, until a router had keys of some SA, by its log; 0 if it had some already.
fn keys_came(log: &str, begin: f64) -> Option<f64> {
    let mut held = 0_i32;
    for line in log.lines() {
        let change = match () {
            () if line.contains(CAME) => 1,
            () if line.contains(WENT) => -1,
            () => continue,
        };
        // Of the day: a log is of hours at most.
        let Some(time) = line.get(11..26).and_then(time_of_day) else { continue };
        let since = (time - begin.rem_euclid(DAY)).rem_euclid(DAY);
        let after = since < DAY / 2.0;
        if after && held > 0 {
            return Some(0.0);
        }
        if after && change > 0 {
            return Some(since);
        }
        held = (held + change).max(0);
    }
    (held > 0).then_some(0.0)
}

/// Seconds since midnight, of `HH:MM:SS.ffffff`.
fn time_of_day(text: &str) -> Option<f64> {
    let mut parts = text.splitn(3, ':');
    let mut next = || parts.next()?.parse::<f64>().ok();
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    Some((hours * 60.0 + minutes) * 60.0 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_timed_by_the_log_also_over_midnight() {
        let line = |time: &str, what: &str| {
            format!("2026-11-23T{time}Z  INFO dormouse_node::host::router: {what} sa=x\n")
        };
        let begin: f64 = 1_795_392_000.0 - 0.5;
        assert_eq!(begin.rem_euclid(DAY), DAY - 0.5);
        let came = line("00:00:00.250000", CAME);
        assert_eq!(keys_came("", begin), None);
        assert!((keys_came(&came, begin).unwrap() - 0.75).abs() < 1e-6);
        let before = line("23:59:58.000000", CAME);
        assert_eq!(keys_came(&before, begin), Some(0.0));
        assert_eq!(keys_came(&(before.clone() + &came), begin), Some(0.0));
        let back = before + &line("23:59:59.000000", WENT);
        assert_eq!(keys_came(&back, begin), None);
        assert!((keys_came(&(back + &came), begin).unwrap() - 0.75).abs() < 1e-6);
    }
}
