//! A device that keeps its address by Mobile IP between two foreign agents: alone, with a session of IPsec to the correspondent, and with access routers at the
//! agents that get the keys of its headers. Owns that world and what is timed in it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dormouse_io::clock::{BootClock, unix_now_precise};
use dormouse_testbed::mobile::protected::{CONNECTION, Protection};
use dormouse_testbed::mobile::{CORRESPONDENT, MobileIp, Place, Program};
use dormouse_testbed::{EchoServer, Prober};

use super::routers::until_keys;
use super::{LIMIT, PROBES, Phase};
use crate::results::Figures;

/// The world of one protection.
pub(super) struct World {
    world: MobileIp,
    protection: Protection,
    echo: EchoServer,
    prober: Prober,
    up: bool,
}

impl World {
    pub(super) fn build(protection: Protection) -> Result<Self> {
        let world = MobileIp::start(protection)?;
        let server = SocketAddr::new(CORRESPONDENT.into(), 7);
        let echo = EchoServer::start(&world.correspondent, server)?;
        let prober = Prober::new(&world.device, server)?;
        Ok(Self { world, protection, echo, prober, up: false })
    }

    /// The device enters a foreign network, from nowhere or from the other one.
    pub(super) fn measure(&mut self, phase: Phase, round: u32) -> Result<Figures> {
        let (from, to) = if round.is_multiple_of(2) { (0, 1) } else { (1, 0) };
        match phase {
            Phase::Initialization => self.away()?,
            Phase::Handoff => self.settled(from)?,
        }
        let (begin, boot, unix) = (Instant::now(), BootClock::now(), unix_now_precise().as_secs_f64());
        self.world.go(Some(Place::Foreign(to)))?;
        if phase == Phase::Initialization && self.protection != Protection::None {
            self.registered(to)?;
            self.begin()?;
        }
        let burst = self.prober.burst(&self.echo, begin, PROBES, 20, LIMIT)?;
        self.world.arrives(Place::Foreign(to))?;
        let state = self.world.state(Program::Device)?;
        let list = state["registrations"].as_array();
        let last = list.and_then(|list| list.last()).context("no registration")?;
        ensure!(last["care_of"] == Place::Foreign(to).care_of().to_string(), "registered elsewhere: {last}");
        let (at, took) =
            (last["at"].as_u64().context("no time")?, last["nanoseconds"].as_u64().context("no time")?);
        // From the commands to the first request.
        let asked = at.saturating_sub(took).saturating_sub(boot.as_nanos()) as f64 / 1e6;
        let pause = burst.first_echo.context("nothing came back")?.as_secs_f64() * 1e3;
        let flow = pause - asked;
        let mut figures = Figures::default().with("pause", pause).with("exchange", took as f64 / 1e6);
        if phase == Phase::Handoff {
            figures = figures.with("lost", burst.lost as f64);
        }
        let keys = match &self.world.daemons {
            Some(daemons) if self.protection.has_keys() => {
                let seconds =
                    until_keys(daemons.routers.get(to).context("no such router")?, unix + asked / 1e3)?;
                figures = figures.with("keys", seconds * 1e3);
                seconds * 1e3
            }
            _ => 0.0,
        };
        let rtt = self.prober.burst(&self.echo, Instant::now(), PROBES, 5, LIMIT)?;
        let rtt = rtt.first_echo.context("nothing came back")?.as_secs_f64() * 1e3;
        Ok(figures.with("ready", flow.max(keys)).with("rtt", rtt))
    }

    /// The device is in no network and has no session; no router has keys.
    fn away(&mut self) -> Result<()> {
        if let Some(daemons) = self.world.daemons.as_ref().filter(|_| self.up) {
            // While it can still tell its gateway, which tells the routers.
            daemons.device.ok(&["down", CONNECTION])?;
            for at in 0..2 {
                daemons.has_keys_if(self.protection, at, false)?;
            }
            self.up = false;
        }
        self.world.go(Some(Place::Home))?;
        self.world.arrives(Place::Home)?;
        self.world.go(None)
    }

    /// The device is with a foreign agent, and has been for a while.
    fn settled(&mut self, at: usize) -> Result<()> {
        self.world.go(Some(Place::Foreign(at)))?;
        self.world.arrives(Place::Foreign(at))?;
        if self.protection != Protection::None && !self.up {
            self.begin()?;
        }
        let ping = format!("ping -c 1 -W 1 {CORRESPONDENT}");
        self.world.device.eventually(&ping, LIMIT)?;
        match &self.world.daemons {
            Some(daemons) => daemons.has_keys_if(self.protection, at, true),
            None => Ok(()),
        }
    }

    fn begin(&mut self) -> Result<()> {
        let daemons = self.world.daemons.as_ref().context("no daemons")?;
        daemons.device.ok(&["up", CONNECTION, "--timeout", "20"])?;
        self.up = true;
        Ok(())
    }

    /// As [`MobileIp::arrives`], looked at more often.
    fn registered(&self, at: usize) -> Result<()> {
        let until = Instant::now() + LIMIT;
        while !self.world.is_at(&self.world.state(Program::Device)?, Place::Foreign(at)) {
            if Instant::now() > until {
                bail!("the device does not register");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
