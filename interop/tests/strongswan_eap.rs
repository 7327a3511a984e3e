//! Users with passwords (EAP-MSCHAPv2), with strongSwan at the other end.

use anyhow::Result;
use dormouse_interop::scenario::{Auth, PASSWORD, SOON, Scenario, USER};
use dormouse_interop::strongswan::skip;
use dormouse_testbed::{Access, Key};
use std::fs;

fn by_password(key: Key) -> Scenario {
    Scenario { auth: Auth::Password(key), ..Scenario::default() }
}

#[test]
fn strongswan_joins_our_gateway_as_a_user() -> Result<()> {
    if skip("strongSwan joins as a user") {
        return Ok(());
    }
    let mut run = by_password(Key::Rsa(2048)).gateway(Access::B)?;
    run.initiate()?;
    run.data_flows()?;
    let status = run.ours.ok(&["status", "--json"])?.text;
    assert!(status.contains(USER) && !status.contains("phone.test"), "{status}");
    let log = run.theirs.log();
    assert!(log.contains("EAP method EAP_MSCHAPV2 succeeded, MSK established"), "{log}");
    // It lives on as any other session does.
    run.theirs.ctl(&["--rekey", "--ike", "peer"])?;
    run.theirs.wait_log("rekeyed between", SOON)?;
    run.world.attach(Access::A)?;
    run.world.detach(Access::B)?;
    run.theirs.wait_log("UPD_SA_ADDR", SOON)?;
    run.data_flows()?;
    // Another password ends it, and does not let it in again.
    let users = run.world.bed.dir().join("pki/users.toml");
    let before = fs::read_to_string(&users)?;
    fs::write(&users, before.replace(USER, "somebody.else"))?;
    run.ours.ok(&["reload"])?;
    run.theirs.wait_log("received DELETE for IKE_SA", SOON)?;
    assert!(run.initiate().is_err());
    assert!(
        run.theirs.log().contains("EAP-MS-CHAPv2 failed with error ERROR_AUTHENTICATION_FAILURE"),
        "{}",
        run.theirs.log_tail()
    );
    fs::write(&users, before)?;
    run.ours.ok(&["reload"])?;
    run.initiate()?;
    run.data_flows()?;
    let denied = run.ours.ok(&["deny", USER])?.text;
    assert!(denied.contains("its session has ended"), "{denied}");
    assert!(run.initiate().is_err(), "denied, with the right password");
    Ok(())
}

#[test]
fn our_device_joins_strongswans_gateway_as_a_user() -> Result<()> {
    if skip("we join as a user") {
        return Ok(());
    }
    let scenario = Scenario {
        ours: vec![("ike", "fragment_size = 600".into())],
        their_settings: "fragment_size = 600".into(),
        ..by_password(Key::Rsa(3072))
    };
    let mut run = scenario.device(Access::B)?;
    run.joins_and_roams_as(USER)?;
    // A wrong password says so.
    let password = run.world.bed.dir().join("pki/password");
    fs::write(&password, "not that one\n")?;
    run.ours.ok(&["reload"])?;
    let answer = run.ours.cli(&["up", "peer"])?;
    assert_eq!(answer.code, 4, "{}", answer.text);
    assert!(answer.text.contains("wrong user name or password"), "{}", answer.text);
    assert!(!run.ours.log().contains(PASSWORD), "a password is in the log");
    fs::write(&password, PASSWORD)?;
    run.ours.ok(&["reload"])?;
    run.up()?;
    run.data_flows()
}

#[test]
fn our_device_joins_a_gateway_with_an_ecdsa_key_as_a_user() -> Result<()> {
    if skip("ecdsa and a user") {
        return Ok(());
    }
    let mut run = by_password(Key::P256).device(Access::A)?;
    run.up()?;
    run.data_flows()
}
