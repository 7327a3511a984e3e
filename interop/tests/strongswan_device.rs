//! A strongSwan device joins our gateway.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::Result;
use dormouse_interop::scenario::{Auth, SOON, Scenario};
use dormouse_interop::strongswan::skip;
use dormouse_testbed::{Access, Key};
use std::time::Duration;

fn connects(test: &str, scenario: &Scenario, network: Access) -> Result<()> {
    if skip(test) {
        return Ok(());
    }
    let mut run = scenario.gateway(network)?;
    run.initiate()?;
    run.data_flows()
}

#[test]
fn psk_with_gcm() -> Result<()> {
    connects("psk_with_gcm", &Scenario::default(), Access::A)
}

#[test]
fn psk_with_cbc_behind_a_nat() -> Result<()> {
    let s = Scenario { ike: "aes128-sha256-modp3072", esp: "aes128-sha1", ..Scenario::default() };
    connects("psk_with_cbc_behind_a_nat", &s, Access::B)
}

#[test]
fn rsa_certificates_in_fragments() -> Result<()> {
    let s = Scenario {
        auth: Auth::Certificates(Key::Rsa(2048)),
        ours: vec![("ike", "fragment_size = 600".into())],
        their_settings: "fragment_size = 600".into(),
        ..Scenario::default()
    };
    connects("rsa_certificates_in_fragments", &s, Access::A)
}

#[test]
fn ecdsa_certificates() -> Result<()> {
    connects("ecdsa", &Scenario { auth: Auth::Certificates(Key::P384), ..Scenario::default() }, Access::A)
}

#[test]
fn strongswan_rekeys_child_and_ike() -> Result<()> {
    if skip("strongswan_rekeys") {
        return Ok(());
    }
    let s = Scenario { esp: "aes256gcm16-ecp256", ..Scenario::default() };
    let mut run = s.gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()?;
    run.theirs.ctl(&["--rekey", "--child", "net"])?;
    run.theirs.wait_log("CHILD_SA net{2} established", SOON)?;
    run.data_flows()?;
    run.theirs.ctl(&["--rekey", "--ike", "peer"])?;
    run.theirs.wait_log("rekeyed between", SOON)?;
    run.data_flows()
}

#[test]
fn we_rekey() -> Result<()> {
    if skip("we_rekey") {
        return Ok(());
    }
    let s = Scenario {
        ours: vec![("child", "rekey = 10".into()), ("ike", "rekey = 30".into())],
        ..Scenario::default()
    };
    let mut run = s.gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()?;
    run.theirs.wait_log("CHILD_SA net{2} established", SOON)?;
    run.data_flows()?;
    run.theirs.wait_log("rekeyed between", Duration::from_secs(40))?;
    run.data_flows()
}

#[test]
fn strongswan_moves_by_mobike() -> Result<()> {
    if skip("mobike") {
        return Ok(());
    }
    let mut run = Scenario::default().gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()?;
    run.world.attach(Access::B)?;
    run.world.detach(Access::A)?;
    run.theirs.wait_log("UPD_SA_ADDR", SOON)?;
    run.data_flows()
}

#[test]
fn strongswan_deletes() -> Result<()> {
    if skip("delete") {
        return Ok(());
    }
    let mut run = Scenario::default().gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()?;
    run.theirs.ctl(&["--terminate", "--ike", "peer"])?;
    run.theirs.wait_log("IKE_SA deleted", SOON)?;
    run.data_stops()
}

#[test]
fn a_silent_strongswan_is_given_up() -> Result<()> {
    if skip("liveness") {
        return Ok(());
    }
    let s =
        Scenario { ours: vec![("ike", "liveness = 2\nliveness_timeout = 5".into())], ..Scenario::default() };
    let mut run = s.gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()?;
    run.theirs.process().kill();
    let until = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        let status = run.ours.ok(&["status", "--json"])?;
        if !status.text.contains("device.test") {
            return Ok(());
        }
        assert!(std::time::Instant::now() < until, "the dead peer is still held: {}", status.text);
        std::thread::sleep(Duration::from_millis(200));
    }
}
