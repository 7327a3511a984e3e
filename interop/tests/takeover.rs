//! A strongSwan device, which has no tickets, and two gateways. It outlives them (RFC 6311, `cluster.takeover`): each is killed, or killed and started
//! again, and the device goes on with the IKE SA that it has, at the address that it knows. And where it logs in anew, at either gateway, the session
//! that it had at the other one ends.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DATABASE, Ground, NAME, NEEDS, OUTER, name, until};
use dormouse_interop::ends::{SECRET, peers};
use dormouse_interop::strongswan::{self, StrongSwan};
use dormouse_testbed::{Access, Dormoused, Extra, SERVER, require};
use std::path::Path;
use std::time::{Duration, Instant};

/// The gateways' common address, which the network leads to one of them.
const SHARED: &str = "203.0.113.200";
/// The device's identity.
const SWAN: &str = "swan.test";
/// A gateway is silent after 30 seconds, which another one notices at its next heartbeat.
const SILENCE: Duration = Duration::from_secs(50);

/// Two gateways at one address, and a strongSwan.
struct Stage {
    swan: StrongSwan,
    gateways: Vec<Dormoused>,
    ground: Ground,
    /// The device's configuration.
    conf: String,
}

impl Stage {
    /// The device, in this network, is served by the first gateway. `more`: lines of the gateways' section `[cluster]`. `ike` and `esp`: the
    /// device's proposals.
    fn new(network: Access, more: &str, ike: &str, esp: &str) -> Result<Self> {
        let ground = Ground::new(2)?;
        if network != Access::A {
            ground.world.attach(network)?;
            ground.world.detach(Access::A)?;
        }
        for host in &ground.hosts {
            host.ip(&format!("addr add {SHARED}/32 dev lo"))?;
        }
        let gateways = (0..2).map(|n| ground.start_gateway(n, &ground.url(n), more, Extra::default()));
        let gateways = gateways.collect::<Result<Vec<_>>>()?;
        let conf = format!(
            "connections {{ peer {{\n version = 2\n remote_addrs = {SHARED}\n proposals = {ike}\n vips = 0.0.0.0\n local {{\n auth = psk\n id = {SWAN}\n }}\n \
             remote {{\n auth = psk\n id = {NAME}\n }}\n children {{ net {{\n remote_ts = 10.99.0.0/24\n esp_proposals = {esp}\n }} }} }} }}\n\
             secrets {{ ike-1 {{\n id-1 = {SWAN}\n id-2 = {NAME}\n secret = \"{SECRET}\" }} }}\n"
        );
        let swan = StrongSwan::start(&ground.world.device, None::<&Path>, &conf, &[], "")?;
        let stage = Self { swan, gateways, ground, conf };
        stage.leads_to(0)?;
        stage.swan.ctl(&["--initiate", "--child", "net"])?;
        stage.goes_on(Duration::from_secs(10))?;
        Ok(stage)
    }

    /// The network leads the common address, and the way back to clients, to this gateway.
    fn leads_to(&self, gateway: usize) -> Result<()> {
        self.ground.world.core.ip(&format!("route replace {SHARED} via {}", OUTER[gateway]))?;
        self.ground.back_by(gateway)
    }

    /// The device dies with all that it knew, and logs in at this gateway.
    fn comes_anew(&mut self, gateway: usize) -> Result<()> {
        self.swan.process().kill();
        self.leads_to(gateway)?;
        self.swan = StrongSwan::start(&self.ground.world.device, None::<&Path>, &self.conf, &[], "")?;
        self.swan.ctl(&["--initiate", "--child", "net"])?;
        self.goes_on(Duration::from_secs(10))
    }

    /// The device is served by this gateway alone: that has the one route to its address, and it is on record there once.
    fn is_only_at(&self, gateway: usize) -> Result<()> {
        until("the other gateway lets go", || Ok(peers(&self.gateways[1 - gateway])?.is_empty()))
            .with_context(|| self.logs())?;
        let (left, leads) = (self.ground.routes(1 - gateway)?, self.ground.routes(gateway)?);
        ensure!(left.is_empty() && leads.lines().count() == 1, "{left}\n{leads}\n{}", self.logs());
        ensure!(peers(&self.gateways[gateway])? == [SWAN], "{}", self.logs());
        until("it is on record once", || Ok(self.on_record()? == name(gateway)))
    }

    /// The gateways that have the device's session, by the database.
    fn on_record(&self) -> Result<String> {
        self.ground.database.sql(DATABASE, "select gateway from dormouse.lineage")
    }

    /// Whose the device's addresses are, by the database.
    fn leases(&self) -> Result<String> {
        self.ground
            .database
            .sql(DATABASE, "select convert_from(id_data, 'UTF8'), host(v4) from dormouse.lease")
    }

    fn answers(&self) -> bool {
        self.ground.world.device.sh(&format!("ping -c 1 -W 1 {SERVER}")).is_ok()
    }

    /// Echoes of the device's come back within this time.
    fn goes_on(&self, within: Duration) -> Result<()> {
        let end = Instant::now() + within;
        while !self.answers() {
            ensure!(Instant::now() < end, "no echo comes back\n{}", self.logs());
        }
        Ok(())
    }

    /// What gateways have left, as the database has it: whose, how many had it before, and at which address.
    fn left(&self) -> Result<String> {
        self.ground.database.sql(DATABASE, "select gateway, owners, host(local) from dormouse.ike_sa")
    }

    fn is_left(&self, by: usize, owners: usize) -> Result<()> {
        let expected = format!("{}|{owners}|{SHARED}", name(by));
        until("the IKE SA is on record", || Ok(self.left()? == expected))
    }

    /// The device has gone on so often with the IKE SA that it had, each time until its gateway had rekeyed it; has never begun another one; and
    /// is served by this gateway.
    fn is_at(&self, gateway: usize, times: usize) -> Result<()> {
        self.swan
            .wait_log(&format!("IKE_SA peer[{}] rekeyed between", times + 1), Duration::from_secs(10))?;
        let (sas, log) = (self.swan.sas()?, self.swan.log());
        ensure!(sas.contains(&format!("peer: #{}, ESTABLISHED", times + 1)), "{sas}\n{}", self.logs());
        ensure!(log.matches("responder requested MID sync").count() == times, "{}", self.logs());
        ensure!(log.matches("generating IKE_SA_INIT request").count() == 1, "{}", self.logs());
        ensure!(peers(&self.gateways[gateway])? == [SWAN], "{}", self.logs());
        Ok(())
    }

    fn logs(&self) -> String {
        let tail = |log: String| {
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        let gateways: Vec<String> = self.gateways.iter().map(|gateway| tail(gateway.log())).collect();
        format!("{}\n---- {}", self.swan.log_tail(), gateways.join("\n---- "))
    }
}

fn skip(test: &str) -> bool {
    !require(test, &NEEDS) || strongswan::skip(test)
}

#[test]
fn a_strongswan_outlives_one_gateway_after_the_other() -> Result<()> {
    if skip("a strongSwan that outlives its gateways") {
        return Ok(());
    }
    let gcm = "aes128gcm16-prfsha256-x25519";
    let mut stage = Stage::new(Access::A, "takeover = true", gcm, "aes128gcm16-x25519")?;
    stage.is_left(0, 0)?;

    // The first one dies, and its address moves.
    stage.gateways[0].process().kill();
    stage.leads_to(1)?;
    stage.goes_on(SILENCE)?;
    stage.is_at(1, 1)?;
    stage.is_left(1, 1)?;

    // It comes back, and the other one dies.
    stage.gateways[0].restart()?;
    stage.gateways[1].process().kill();
    stage.leads_to(0)?;
    stage.goes_on(SILENCE)?;
    stage.is_at(0, 2)?;
    stage.is_left(0, 2)?;

    // It is killed, and started again at once: nothing has to be silent.
    stage.gateways[0].process().kill();
    stage.gateways[0].restart()?;
    stage.goes_on(Duration::from_secs(15))?;
    stage.is_at(0, 3)?;
    stage.is_left(0, 3)?;

    // The peer rekeys both, and ends it.
    stage.swan.ctl(&["--rekey", "--ike", "peer"])?;
    stage.swan.ctl(&["--rekey", "--child", "net"])?;
    stage.goes_on(Duration::from_secs(10))?;
    stage.swan.ctl(&["--terminate", "--ike", "peer"])?;
    until("nothing is left", || Ok(stage.left()?.is_empty()))
}

#[test]
fn a_gateway_that_was_only_cut_off_drops_what_another_one_has_taken_over() -> Result<()> {
    if skip("a gateway that was cut off") {
        return Ok(());
    }
    // Behind a NAT, and with a cipher whose IVs are chance.
    let stage = Stage::new(Access::B, "takeover = true", "aes128-sha256-x25519", "aes128-sha256")?;
    stage.is_left(0, 0)?;
    stage.ground.cut(0, "drop")?;
    stage.leads_to(1)?;
    stage.goes_on(SILENCE)?;
    stage.is_at(1, 1)?;
    stage.ground.heal(0)?;
    until("the first gateway lets go", || Ok(peers(&stage.gateways[0])?.is_empty()))?;
    // It has said nothing to the device.
    stage.goes_on(Duration::from_secs(5))?;
    stage.is_at(1, 1)?;
    stage.is_left(1, 1)
}

#[test]
fn a_gateway_that_is_not_asked_to_leaves_nothing_and_agrees_to_nothing() -> Result<()> {
    if skip("a gateway without takeover") {
        return Ok(());
    }
    let stage = Stage::new(Access::A, "", "aes128gcm16-prfsha256-x25519", "aes128gcm16")?;
    strongswan::offers_message_ids_alone(&stage.swan.log())?;
    ensure!(stage.left()?.is_empty(), "{}", stage.left()?);
    Ok(())
}

#[test]
fn a_login_at_one_gateway_ends_the_session_at_the_other() -> Result<()> {
    if skip("a client without tickets that logs in at another gateway") {
        return Ok(());
    }
    let mut stage = Stage::new(Access::A, "", "aes128gcm16-prfsha256-x25519", "aes128gcm16")?;
    stage.is_only_at(0)?;
    let lease = stage.leases()?;
    ensure!(lease.starts_with(SWAN) && lease.lines().count() == 1, "{lease}");
    // Nothing else has ended it: not the gateway's own checks, nor a word of the device.
    for (to, times) in [(1, 1), (0, 1), (1, 2)] {
        stage.comes_anew(to)?;
        stage.is_only_at(to)?;
        let told = stage.gateways[1 - to].log().matches("clients are at other gateways now").count();
        ensure!(told == times, "{told} {}", stage.logs());
        ensure!(stage.leases()? == lease, "{}", stage.leases()?);
    }
    // The peer ends it.
    stage.swan.ctl(&["--terminate", "--ike", "peer"])?;
    until("nothing is on record", || Ok(stage.on_record()?.is_empty()))
}

#[test]
fn a_login_ends_a_session_that_another_gateway_has_taken_over() -> Result<()> {
    if skip("a client without tickets that logs in after its session was taken over") {
        return Ok(());
    }
    let mut stage = Stage::new(Access::A, "takeover = true", "aes128gcm16-prfsha256-x25519", "aes128gcm16")?;
    stage.is_left(0, 0)?;
    stage.gateways[0].process().kill();
    stage.leads_to(1)?;
    stage.goes_on(SILENCE)?;
    stage.is_at(1, 1)?;
    until("it is on record where it is", || Ok(stage.on_record()? == name(1)))?;
    stage.gateways[0].restart()?;
    stage.comes_anew(0)?;
    stage.is_only_at(0)?;
    stage.is_left(0, 0)
}
