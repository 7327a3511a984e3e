//! Who has copied the device's disk, ticket and secret, and shows the ticket elsewhere. Owns its host, and the demand that it gets nothing by that.

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DEVICE, Ground, OUTER, Scene, names};
use dormouse_interop::ends::{PATIENCE, another, inner};
use dormouse_testbed::{Dormoused, Host};
use std::net::IpAddr;

const TICKET: &str = "ticket-peer";

/// See the module.
pub(crate) struct Thief {
    den: Host,
    from: String,
    /// What it has tried.
    pub(crate) thefts: u32,
}

/// The ticket that a device's daemon has on its disk.
pub(crate) fn ticket(host: &Host) -> Result<Vec<u8>> {
    let file = host.dir().join("state").join(TICKET);
    std::fs::read(&file).with_context(|| file.display().to_string())
}

impl Thief {
    pub(crate) fn new(ground: &mut Ground) -> Result<Self> {
        let (den, from) = another(&mut ground.world, "thief", 2)?;
        // A copied disk has the secrets too, which a full exchange would be made with.
        ground.world.core.nft(&format!(
            "table ip thief {{ chain forward {{ type filter hook forward priority 0; ip saddr {from} udp dport 500 drop;
             ip saddr {from} udp dport 4500 @th,64,32 0 @th,240,8 34 drop; }}; }}"
        ))?;
        Ok(Self { den, from, thefts: 0 })
    }

    /// It shows the ticket at the gateway of two where the device, which has this address, is not, and is refused.
    pub(crate) fn shows(&mut self, scene: &Scene, at: usize, address: &[IpAddr], shown: &[u8]) -> Result<()> {
        let (den, from) = (&self.den, &self.from);
        let there = 1 - at;
        names(den, &[OUTER[there]])?;
        let _earlier = std::fs::remove_file(den.dir().join("dormoused.log"));
        Dormoused::leave_state(den, TICKET, shown)?;
        let mut thief = scene.ground.start_client(den, DEVICE)?;
        thief.ok(&["up", "peer", "--no-wait"])?;
        thief.process().wait_for("refused by the gateway", PATIENCE)?;
        thief.process().kill();
        self.thefts += 1;
        let log = scene.gateways[there].log();
        let refusals =
            log.lines().filter(|l| l.contains("a client was refused") && l.contains(from.as_str()));
        ensure!(refusals.count() > 0, "the gateway says nothing of it:\n{log}");
        ensure!(scene.balances(address)? == at, "the thief has moved the device");
        ensure!(inner(&scene.device)? == address);
        Ok(())
    }
}
