//! A device with an address of its own in each of two networks, which keeps its session by MOBIKE. Owns that world and what is timed in it.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use dormouse_testbed::{Access, Dormoused, EchoServer, GATEWAY, Prober, Roaming, SERVER};

use super::{LIMIT, PROBES, Phase};
use crate::results::Figures;

/// The world, and where its device is.
pub(super) struct World {
    device: Dormoused,
    _gateway: Dormoused,
    echo: EchoServer,
    prober: Prober,
    world: Roaming,
    /// In which network it is, and whether it has its session.
    at: Access,
    up: bool,
}

impl World {
    /// The device in no network, both daemons running.
    pub(super) fn build() -> Result<Self> {
        let world = Roaming::new(120)?;
        let end = |role: &str, own: &str, peer: &str| {
            let secret = "secret = \"table 3, which everyone may read\"";
            let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
            format!(
                "[connection.t3]\nrole = \"{role}\"\n{gateway}\n[connection.t3.local]\nid = \"{own}\"\n{secret}\n\
                 [connection.t3.remote]\nid = \"{peer}\"\n{secret}\n"
            )
        };
        let gateway = end("gateway", "gateway.test", "*.test")
            + "[connection.t3.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n\
               [connection.t3.pool]\naddresses = [\"10.55.0.0/24\"]\n";
        let device = end("client", "device.test", "gateway.test")
            + "[connection.t3.child]\nremote = [\"10.99.0.0/24\"]\n";
        let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
        let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
        let server = SocketAddr::new(SERVER.parse()?, 7);
        let echo = EchoServer::start(&world.server, server)?;
        let prober = Prober::new(&world.device, server)?;
        Ok(Self { device, _gateway: gateway, echo, prober, world, at: Access::B, up: false })
    }

    pub(super) fn measure(&mut self, phase: Phase) -> Result<Figures> {
        let to = if self.at == Access::A { Access::B } else { Access::A };
        if phase == Phase::Initialization {
            // No ticket is left: the paper's client begins with nothing.
            if self.up {
                self.device.ok(&["down", "t3"])?;
            }
            self.world.detach(self.at)?;
            let begin = Instant::now();
            self.world.attach(to)?;
            self.device.ok(&["up", "t3"])?;
            let burst = self.prober.burst(&self.echo, begin, PROBES, 20, LIMIT)?;
            (self.at, self.up) = (to, true);
            let pause = burst.first_echo.context("nothing came back")?.as_secs_f64() * 1e3;
            return Ok(Figures::default().with("pause", pause));
        }
        if !self.up {
            self.world.attach(self.at)?;
            self.device.ok(&["up", "t3"])?;
            self.up = true;
        }
        self.world.detach(self.at)?;
        let begin = Instant::now();
        self.world.attach(to)?;
        let burst = self.prober.burst(&self.echo, begin, PROBES, 20, LIMIT)?;
        self.at = to;
        let pause = burst.first_echo.context("nothing came back")?.as_secs_f64() * 1e3;
        Ok(Figures::default().with("pause", pause).with("lost", burst.lost as f64))
    }
}
