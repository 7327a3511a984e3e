//! Users with certificates (EAP-TLS), and with passwords inside TLS (EAP-TTLS), with strongSwan at the other end: with TLS 1.2, which is what strongSwan 5.9
//! does unless it is told otherwise. Its TLS 1.3 is of before RFC 9190: as a gateway it ends without the protected word of success, and as a client it crashes
//! at ours. (`eap.rs` has TLS 1.3 with wpa_supplicant.)

use anyhow::Result;
use dormouse_interop::scenario::{Auth, PASSWORD, SOON, Scenario, USER};
use dormouse_interop::strongswan::skip;
use dormouse_testbed::{Access, Key};
use std::fs;

fn by_tls(key: Key) -> Scenario {
    Scenario { auth: Auth::Tls(key), ..Scenario::default() }
}

fn strongswan_joins(key: Key) -> Result<()> {
    let mut run = by_tls(key).gateway(Access::B)?;
    run.initiate()?;
    run.data_flows()?;
    let status = run.ours.ok(&["status", "--json"])?.text;
    assert!(status.contains(USER), "{status}");
    let log = run.theirs.log();
    assert!(log.contains("EAP method EAP_TLS succeeded, MSK established"), "{log}");
    // It lives on as any other session does.
    run.theirs.ctl(&["--rekey", "--ike", "peer"])?;
    run.theirs.wait_log("rekeyed between", SOON)?;
    run.world.attach(Access::A)?;
    run.world.detach(Access::B)?;
    run.theirs.wait_log("UPD_SA_ADDR", SOON)?;
    run.data_flows()?;
    let denied = run.ours.ok(&["deny", USER])?.text;
    assert!(denied.contains("its session has ended"), "{denied}");
    run.theirs.wait_log("received DELETE for IKE_SA", SOON)?;
    assert!(run.initiate().is_err(), "denied, with a good certificate");
    assert!(run.ours.log().contains("is denied"), "{}", run.ours.log());
    Ok(())
}

#[test]
fn strongswan_joins_our_gateway_by_eap_tls() -> Result<()> {
    if skip("strongSwan joins by EAP-TLS") {
        return Ok(());
    }
    strongswan_joins(Key::Rsa(2048))
}

#[test]
fn strongswan_joins_our_gateway_by_eap_tls_with_ecdsa_keys() -> Result<()> {
    if skip("strongSwan joins by EAP-TLS with ECDSA") {
        return Ok(());
    }
    strongswan_joins(Key::P256)
}

fn our_device_joins(key: Key) -> Result<()> {
    let scenario = Scenario {
        ours: vec![("ike", "fragment_size = 600".into())],
        their_settings: "fragment_size = 600".into(),
        ..by_tls(key)
    };
    let mut run = scenario.device(Access::B)?;
    run.joins_and_roams_as(USER)
}

#[test]
fn our_device_joins_strongswans_gateway_by_eap_tls() -> Result<()> {
    if skip("we join by EAP-TLS") {
        return Ok(());
    }
    our_device_joins(Key::Rsa(2048))
}

#[test]
fn our_device_joins_strongswans_gateway_by_eap_tls_with_ecdsa_keys() -> Result<()> {
    if skip("we join by EAP-TLS with ECDSA") {
        return Ok(());
    }
    our_device_joins(Key::P256)
}

#[test]
fn strongswan_takes_our_gateway_that_proves_itself_inside_eap_alone() -> Result<()> {
    if skip("EAP alone at our gateway") {
        return Ok(());
    }
    let ours = vec![("remote", "eap_only = true".into())];
    let mut run = Scenario { ours, eap_alone: true, ..by_tls(Key::Rsa(2048)) }.gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()?;
    let log = run.theirs.log();
    assert!(log.contains("allow mutual EAP-only authentication"), "{log}");
    assert!(!log.contains("received end entity cert"), "{log}");
    Ok(())
}

#[test]
fn our_device_takes_a_gateway_that_proves_itself_inside_eap_alone() -> Result<()> {
    if skip("EAP alone at our device") {
        return Ok(());
    }
    let ours = vec![("local", "eap_only = true".into())];
    let mut run = Scenario { ours, eap_alone: true, ..by_tls(Key::Rsa(2048)) }.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    Ok(())
}

#[test]
fn strongswan_joins_our_gateway_by_eap_ttls() -> Result<()> {
    if skip("strongSwan joins by EAP-TTLS") {
        return Ok(());
    }
    let scenario = Scenario { auth: Auth::Ttls(Key::Rsa(2048)), ..Scenario::default() };
    let mut run = scenario.gateway(Access::B)?;
    run.initiate()?;
    run.data_flows()?;
    let status = run.ours.ok(&["status", "--json"])?.text;
    assert!(status.contains(USER), "{status}");
    let log = run.theirs.log();
    assert!(log.contains("EAP method EAP_TTLS succeeded, MSK established"), "{log}");
    assert!(!run.ours.log().contains(PASSWORD), "a password is in the log");
    let users = run.world.bed.dir().join("pki/users.toml");
    let before = fs::read_to_string(&users)?;
    fs::write(&users, before.replace(USER, "somebody.else"))?;
    run.ours.ok(&["reload"])?;
    run.theirs.wait_log("received DELETE for IKE_SA", SOON)?;
    assert!(run.initiate().is_err());
    Ok(())
}
