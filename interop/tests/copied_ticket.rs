//! Tickets that must bring nothing back: a file that was copied from a device's disk and is used on another machine, once the device has
//! come back by it or has logged out and in again; one of an SA that a thief began and never confirmed; and a device's own, after what
//! the configuration of an end says of who may be there has changed.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result};
use dormouse_ike::ticket::ClientTicket;
use dormouse_interop::ends::{
    NET, PATIENCE, POOL, SECRET, another, by_certificate, by_secret, peers, rewrite, rung,
};
use dormouse_testbed::{Access, Answer, Dormoused, Host, Key, Need, Pki, Roaming, SERVER, require};
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
/// Where a client keeps the ticket of the connection `peer`.
const TICKET: &str = "ticket-peer";
const AUTHENTICATION: i32 = 4;

fn gateway(world: &Roaming, toml: &str) -> Result<Dormoused> {
    Dormoused::start(&world.gateway, "dns = \"off\"", toml)
}

/// The gateway's configuration for peers who know the secret.
fn takes(peer: &str, secret: &str) -> String {
    by_secret("gateway", "gateway.test", peer, secret, POOL)
}

/// The device's own configuration: a thief has that too, so that it could do no better.
fn device() -> String {
    by_secret("client", "device.test", "gateway.test", SECRET, NET)
}

/// A device that is up, and the machines of thieves, each with the address that it is seen by: two, because the logs of one would run into
/// each other.
struct Scene {
    world: Roaming,
    dens: [(Host, String); 2],
    gateway: Dormoused,
    owner: Dormoused,
}

impl Scene {
    fn new() -> Result<Self> {
        let mut world = Roaming::new(61)?;
        world.attach(Access::A)?;
        let dens = [another(&mut world, "den0", 2)?, another(&mut world, "den1", 3)?];
        let gateway = gateway(&world, &takes("*.test", SECRET))?;
        let owner = Dormoused::start(&world.device, "dns = \"off\"", &device())?;
        owner.ok(&["up", "peer"])?;
        Ok(Self { world, dens, gateway, owner })
    }
}

fn ticket(host: &Host) -> Result<Vec<u8>> {
    let file = host.dir().join("state").join(TICKET);
    std::fs::read(&file).with_context(|| file.display().to_string())
}

/// The copy is used elsewhere: it brings nothing back, and the gateway says where it came from.
fn is_refused(gateway: &Dormoused, (den, from): &(Host, String), copied: &[u8]) -> Result<()> {
    Dormoused::leave_state(den, TICKET, copied)?;
    let mut thief = Dormoused::start(den, "dns = \"off\"", &device())?;
    thief.ok(&["up", "peer"])?;
    // The gateway answers it like any other, and asks its store when the thief has shown that it is there.
    thief.process().wait_for("refused by the gateway", PATIENCE)?;
    thief.ok(&["wait", "peer", "--timeout", "40"])?;
    assert_eq!(rung(&thief)?, "full", "{}\n{}", thief.log(), gateway.log());
    let refusals = gateway.log();
    let refusal = refusals.lines().find(|l| l.contains("a client was refused") && l.contains(from.as_str()));
    assert!(refusal.is_some_and(|l| l.contains("was used, or the session has ended")), "{refusals}");
    thief.ok(&["down", "peer"])?;
    thief.process().stop();
    Ok(())
}

#[test]
fn a_copied_ticket_file_brings_nothing_back_once_its_owner_has_used_it_or_logged_out() -> Result<()> {
    if !require("a copied ticket", &NEEDS) {
        return Ok(());
    }
    let Scene { world, dens, mut gateway, mut owner } = Scene::new()?;

    // Its owner comes back by it.
    let copied = ticket(&world.device)?;
    owner.process().kill();
    owner.restart()?;
    owner.ok(&["up", "peer"])?;
    assert_eq!(rung(&owner)?, "ticket", "{}\n{}", owner.log(), gateway.log());
    gateway.process().wait_for("resumed=true", PATIENCE)?;
    is_refused(&gateway, &dens[0], &copied)?;

    // Its owner logs out without having used it, and in again.
    owner.ok(&["down", "peer"])?;
    owner.ok(&["up", "peer"])?;
    let copied = ticket(&world.device)?;
    owner.ok(&["down", "peer"])?;
    owner.ok(&["up", "peer"])?;
    is_refused(&gateway, &dens[1], &copied)
}

/// The first message of a full exchange (IKE_SA_INIT, exchange type 34) and of a resumption (IKE_SESSION_RESUME, 38), for a packet filter:
/// behind the non-ESP marker, which is zero.
const FULL: &str = "udp dport 4500 @th,64,32 0 @th,240,8 34";
const RESUMPTION: &str = "udp dport 4500 @th,64,32 0 @th,240,8 38";

/// The core forwards by these rules.
fn filter(world: &Roaming, rules: &str) -> Result<()> {
    world.core.nft(&format!(
        "table ip thief {{ chain forward {{ type filter hook forward priority 0;\n{rules}\n}}\n}}\n"
    ))
}

#[test]
fn a_resumption_that_is_refused_gives_its_address_back() -> Result<()> {
    if !require("the address of a refused resumption", &NEEDS) {
        return Ok(());
    }
    let mut world = Roaming::new(61)?;
    world.attach(Access::A)?;
    let (den, from) = another(&mut world, "den0", 2)?;
    // One address for all.
    let narrow = takes("*.test", SECRET).replace("10.55.0.0/24", "10.55.0.0/30");
    let gateway = gateway(&world, &narrow)?;
    let mut owner = Dormoused::start(&world.device, "dns = \"off\"", &device())?;
    owner.ok(&["up", "peer"])?;
    let copied = ticket(&world.device)?;
    owner.ok(&["down", "peer"])?;
    owner.process().stop();

    filter(&world, &format!("ip saddr {from} udp dport 500 drop\nip saddr {from} {FULL} drop"))?;
    Dormoused::leave_state(&den, TICKET, &copied)?;
    let mut thief = Dormoused::start(&den, "dns = \"off\"", &device())?;
    thief.ok(&["up", "peer", "--no-wait"])?;
    thief.process().wait_for("refused by the gateway", PATIENCE)?;

    let other = by_secret("client", "other.test", "gateway.test", SECRET, NET);
    let other = Dormoused::start(&world.device, "dns = \"off\"", &other)?;
    other.ok(&["up", "peer"]).with_context(|| gateway.log())?;
    Ok(())
}

#[test]
fn a_thief_who_never_confirms_has_nothing_once_the_owner_has_come_back() -> Result<()> {
    if !require("a fork of a ticket", &NEEDS) {
        return Ok(());
    }
    let Scene { world, dens, mut gateway, mut owner } = Scene::new()?;
    owner.process().kill();
    let copied = ticket(&world.device)?;

    // The gateway answers the thief, who writes down the ticket that the answer brings. Confirmations are lost, whether by IKE or by ESP.
    filter(&world, &format!("ip saddr {0} {RESUMPTION} accept\nip saddr {0} drop", dens[0].1))?;
    Dormoused::leave_state(&dens[0].0, TICKET, &copied)?;
    let mut thief = Dormoused::start(&dens[0].0, "dns = \"off\"", &device())?;
    thief.ok(&["up", "peer", "--no-wait"])?;
    let end = Instant::now() + PATIENCE;
    while ticket(&dens[0].0)? == copied {
        anyhow::ensure!(Instant::now() < end, "no new ticket\n{}\n{}", thief.log(), gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    thief.process().kill();
    let forked = ticket(&dens[0].0)?;
    world.core.sh("nft delete table ip thief")?;

    // The owner is none the worse for it, and its return ends what the thief has.
    owner.restart()?;
    owner.ok(&["up", "peer"])?;
    assert_eq!(rung(&owner)?, "ticket", "{}\n{}", owner.log(), gateway.log());
    gateway.process().wait_for("resumed=true", PATIENCE)?;
    is_refused(&gateway, &dens[1], &forked)
}

/// A gateway and a device that has been there, and left without a word.
struct Left {
    gateway: Dormoused,
    device: Dormoused,
    world: Roaming,
}

impl Left {
    fn new(world: Roaming, of_gateway: &str, of_device: &str) -> Result<Self> {
        world.attach(Access::A)?;
        let gateway = gateway(&world, of_gateway)?;
        let mut device = Dormoused::start(&world.device, "dns = \"off\"", of_device)?;
        device.ok(&["up", "peer"])?;
        device.process().kill();
        Ok(Self { gateway, device, world })
    }

    /// Both ends start again, with these configurations, and the device tries to come back.
    fn returns(&mut self, of_gateway: &str, of_device: &str) -> Result<Answer> {
        self.device.process().kill();
        rewrite(&self.world.gateway, of_gateway)?;
        rewrite(&self.world.device, of_device)?;
        self.gateway.restart()?;
        self.device.restart()?;
        self.device.cli(&["up", "peer", "--timeout", "10"])
    }

    /// It comes back, by ticket.
    fn is_taken(&mut self, of_gateway: &str, of_device: &str) -> Result<()> {
        let answer = self.returns(of_gateway, of_device)?;
        assert_eq!(answer.code, 0, "{}\n{}", answer.text, self.gateway.log());
        assert_eq!(rung(&self.device)?, "ticket", "{}\n{}", self.device.log(), self.gateway.log());
        // A ticket on its disk that has brought it back twice, unheard, is used no more: it is written anew when the gateway was heard.
        self.world.device.eventually(&format!("ping -c 1 -W 1 {SERVER}"), PATIENCE)?;
        let end = Instant::now() + PATIENCE;
        while !ClientTicket::decode(&ticket(&self.world.device)?)?.is_usable() {
            anyhow::ensure!(Instant::now() < end, "it heard nothing\n{}", self.device.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// It does not.
    fn fails(&mut self, of_gateway: &str, of_device: &str) -> Result<()> {
        let answer = self.returns(of_gateway, of_device)?;
        assert_eq!(answer.code, AUTHENTICATION, "{}\n{}", answer.text, self.gateway.log());
        assert_eq!(peers(&self.gateway)?, [""; 0], "{}", self.gateway.log());
        Ok(())
    }

    /// The gateway, with this configuration, does not take the ticket, and its log says why.
    fn is_refused(&mut self, of_gateway: &str, of_device: &str, why: &str) -> Result<()> {
        self.fails(of_gateway, of_device)?;
        self.gateway.process().wait_for(&format!("ticket not accepted: {why}"), PATIENCE)
    }
}

#[test]
fn a_ticket_is_no_better_than_a_full_exchange_under_the_configuration_of_today() -> Result<()> {
    if !require("a ticket under another configuration", &NEEDS) {
        return Ok(());
    }
    let (then, device) = (takes("*.test", SECRET), device());
    let mut left = Left::new(Roaming::new(61)?, &then, &device)?;
    // Each time the ticket is as good as before where the configuration is.
    left.is_taken(&then, &device)?;
    left.is_refused(&takes("*.else.test", SECRET), &device, "the peer is device.test")?;
    left.is_taken(&then, &device)?;
    let changed = "a secret that the device has not been given";
    left.is_refused(&takes("*.test", changed), &device, "the pre-shared key of device.test")?;
    left.is_taken(&then, &device)?;
    // A device believes the gateway by its own secret of today, too.
    left.fails(&then, &by_secret("client", "device.test", "gateway.test", changed, NET))?;

    // The authority that has vouched for the device is replaced.
    let world = Roaming::new(61)?;
    let authority = |name: &str| -> Result<Pki> {
        let pki = Pki::new(&world.bed.dir().join(name), Key::P256)?;
        pki.issue("gateway.test", Key::P256)?;
        pki.issue("device.test", Key::P256)?;
        Ok(pki)
    };
    let (old, new) = (authority("old")?, authority("new")?);
    let gateway = by_certificate(&old, "gateway", "gateway.test", "*.test", POOL);
    let device = by_certificate(&old, "client", "device.test", "gateway.test", NET);
    let ca = |pki: &Pki| format!("{:?}", pki.path("ca.pem"));
    let trusts_new = gateway.replace(&ca(&old), &ca(&new));
    let mut left = Left::new(world, &gateway, &device)?;
    left.is_taken(&gateway, &device)?;
    left.is_refused(&trusts_new, &device, "the authority that vouched for device.test")
}
