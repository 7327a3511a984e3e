//! strongSwan 6 in both roles, which has what comes after quantum computers: ML-KEM in IKE_INTERMEDIATE and IKE_FOLLOWUP_KE, and
//! post-quantum pre-shared keys (RFC 8784). The machine's own strongSwan 5.9, which knows none of it, is for the fall-back.

use anyhow::{Context, Result};
use dormouse_interop::scenario::{SOON, Scenario};
use dormouse_interop::strongswan::{NEEDS, offers_message_ids_alone};
use dormouse_interop::vm;
use dormouse_testbed::{Access, require};

const HYBRID: &str = "aes256gcm16-prfsha256-x25519-ke1_mlkem768";

/// The scenario with strongSwan 6, if it is here.
fn six(test: &str, scenario: Scenario) -> Result<Option<Scenario>> {
    let fetched = vm::fetched(&["strongswan6", "check"], "strongSwan 6 (interop/vm/strongswan6 fetch)");
    if !require(test, &NEEDS) || !require(test, &[fetched]) {
        return Ok(None);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/vm/strongswan6");
    let out = std::process::Command::new(script).arg("place").output().context("its place")?;
    let root = Some(String::from_utf8(out.stdout)?.trim().into());
    Ok(Some(Scenario { root, ..scenario }))
}

fn hybrid(esp: &'static str) -> Scenario {
    Scenario { ike: HYBRID, esp, ..Scenario::default() }
}

#[test]
fn our_device_joins_with_ml_kem_and_rekeys() -> Result<()> {
    let Some(scenario) = six("our device, ML-KEM", hybrid("aes128gcm16-x25519-ke1_mlkem768"))? else {
        return Ok(());
    };
    let mut run = scenario.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    run.theirs.wait_log("/KE1_ML_KEM_768", SOON)?;
    let before = run.theirs.log().matches("IKE_FOLLOWUP_KE").count();
    run.theirs.ctl(&["--rekey", "--child", "net"])?;
    run.theirs.wait_log("IKE_FOLLOWUP_KE response", SOON)?;
    run.data_flows()?;
    run.theirs.ctl(&["--rekey", "--ike", "peer"])?;
    run.theirs.wait_log("rekeyed between", SOON)?;
    assert!(run.theirs.log().matches("IKE_FOLLOWUP_KE").count() > before);
    run.data_flows()
}

#[test]
fn our_gateway_takes_ml_kem_and_rekeys() -> Result<()> {
    let esp = "aes128gcm16-x25519-ke1_mlkem768";
    let scenario = Scenario { ike: "aes128-sha256-x25519-ke1_mlkem512-ke2_mlkem1024", ..hybrid(esp) };
    let Some(scenario) = six("our gateway, ML-KEM", scenario)? else { return Ok(()) };
    let mut run = scenario.gateway(Access::B)?;
    run.initiate()?;
    run.data_flows()?;
    // As strongSwan 5.9 does.
    offers_message_ids_alone(&run.theirs.log())?;
    run.theirs.ctl(&["--rekey", "--child", "net"])?;
    run.theirs.wait_log("IKE_FOLLOWUP_KE response", SOON)?;
    run.data_flows()
}

/// The machine's strongSwan passes the hybrid proposal over and takes the classical one of the same request.
#[test]
fn a_peer_without_ml_kem_takes_the_classical_proposal_at_once() -> Result<()> {
    if !require("fall-back", &NEEDS) {
        return Ok(());
    }
    let both = "\"aes256gcm16-prfsha256-x25519-ke1_mlkem768\", \"aes256gcm16-prfsha256-x25519\"";
    let scenario =
        Scenario { ike: "aes256gcm16-prfsha256-x25519", our_ike: Some(both), ..Scenario::default() };
    let mut run = scenario.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    assert_eq!(
        run.theirs.log().matches("parsed IKE_SA_INIT request").count(),
        1,
        "{}",
        run.theirs.log_tail()
    );
    drop(run);
    let mut run = scenario.gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()
}

#[test]
fn a_ppk_with_strongswan_in_both_roles() -> Result<()> {
    let scenario = Scenario {
        ours: vec![(
            "ppk",
            "keys = [{ id = \"laptop\", secret = \"0x00112233445566778899aabbccddeeff\" }]".into(),
        )],
        theirs: "ppk_id = laptop\n ppk_required = yes".into(),
        their_secrets: "ppk-1 { id = laptop\n secret = 0x00112233445566778899aabbccddeeff }".into(),
        ..hybrid("aes128gcm16")
    };
    let Some(scenario) = six("PPK", scenario)? else { return Ok(()) };
    let mut run = scenario.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    assert!(run.theirs.log().contains("PPK"), "{}", run.theirs.log_tail());
    drop(run);
    let mut run = scenario.gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()
}
