//! Our device joins a strongSwan gateway.

use anyhow::Result;
use dormouse_interop::scenario::{Auth, SOON, Scenario};
use dormouse_interop::strongswan::skip;
use dormouse_interop::witness::Witness;
use dormouse_testbed::{Access, Key};
use std::time::Duration;

fn connects(test: &str, scenario: &Scenario, network: Access) -> Result<()> {
    if skip(test) {
        return Ok(());
    }
    let mut run = scenario.device(network)?;
    run.up()?;
    run.data_flows()?;
    assert!(run.theirs.sas()?.contains("ESTABLISHED"));
    Ok(())
}

#[test]
fn psk_with_gcm() -> Result<()> {
    connects("psk_with_gcm", &Scenario::default(), Access::A)
}

#[test]
fn psk_with_cbc_and_sha2() -> Result<()> {
    let s = Scenario { ike: "aes256-sha256-ecp256", esp: "aes256-sha256", ..Scenario::default() };
    connects("psk_with_cbc_and_sha2", &s, Access::A)
}

#[test]
fn psk_with_ctr_and_modp() -> Result<()> {
    let s = Scenario { ike: "aes128-sha1-modp2048", esp: "aes128ctr-sha512", ..Scenario::default() };
    connects("psk_with_ctr_and_modp", &s, Access::A)
}

#[test]
fn psk_with_chacha_and_ecp384() -> Result<()> {
    let s =
        Scenario { ike: "chacha20poly1305-prfsha384-ecp384", esp: "chacha20poly1305", ..Scenario::default() };
    connects("psk_with_chacha_and_ecp384", &s, Access::A)
}

#[test]
fn rsa_certificates_behind_a_nat() -> Result<()> {
    let s = Scenario { auth: Auth::Certificates(Key::Rsa(2048)), esp: "aes256gcm16", ..Scenario::default() };
    connects("rsa_certificates_behind_a_nat", &s, Access::B)
}

#[test]
fn rsa_3072_certificates_in_fragments() -> Result<()> {
    if skip("rsa_3072_certificates_in_fragments") {
        return Ok(());
    }
    let s = Scenario {
        auth: Auth::Certificates(Key::Rsa(3072)),
        ours: vec![("ike", "fragment_size = 600".into())],
        their_settings: "fragment_size = 600".into(),
        ..Scenario::default()
    };
    let mut run = s.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    let log = run.theirs.log();
    assert!(log.contains("received fragment #"), "ours sent no fragments: {log}");
    assert!(log.contains("splitting IKE message"), "theirs sent no fragments: {log}");
    Ok(())
}

#[test]
fn ecdsa_p256_certificates() -> Result<()> {
    connects(
        "ecdsa_p256",
        &Scenario { auth: Auth::Certificates(Key::P256), ..Scenario::default() },
        Access::A,
    )
}

#[test]
fn ecdsa_p384_certificates() -> Result<()> {
    connects(
        "ecdsa_p384",
        &Scenario { auth: Auth::Certificates(Key::P384), ..Scenario::default() },
        Access::A,
    )
}

#[test]
fn ed25519_certificates() -> Result<()> {
    connects(
        "ed25519",
        &Scenario { auth: Auth::Certificates(Key::Ed25519), ..Scenario::default() },
        Access::A,
    )
}

/// A gateway that does not know RFC 7427 takes ECDSA with P-256 and SHA-256, and there is no way to sign with Ed25519. An IKE_AUTH without AUTH
/// would show it who we are.
#[test]
fn a_device_that_cannot_sign_for_its_gateway_sends_no_ike_auth() -> Result<()> {
    if skip("a device that cannot sign") {
        return Ok(());
    }
    // Next payload, version, exchange type, and the flag of the initiator.
    let (init, auth) = ([33, 0x20, 34, 8], [46, 0x20, 35, 8]);
    for (key, can) in [(Key::P256, true), (Key::Ed25519, false)] {
        let scenario = Scenario {
            auth: Auth::Certificates(key),
            their_settings: "signature_authentication = no".into(),
            ..Scenario::default()
        };
        let run = scenario.device(Access::A)?;
        let witness = Witness::new(&run.world.router_a, "lan")?;
        let answer = run.ours.cli(&["up", "peer"])?;
        witness.sees(&init)?;
        assert_eq!(answer.code == 0, can, "{}", answer.text);
        let seen = if can { witness.sees(&auth).is_ok() } else { witness.saw(&auth) };
        assert_eq!(seen, can, "{key:?}: {}", run.ours.log());
        assert!(can || answer.text.contains("we cannot authenticate to this peer"), "{}", answer.text);
    }
    Ok(())
}

#[test]
fn the_configuration_payload_gives_an_address_and_dns() -> Result<()> {
    if skip("configuration payload") {
        return Ok(());
    }
    let run = Scenario::default().device(Access::A)?;
    run.up()?;
    let addresses = run.world.device.sh("ip addr show dev dormouse0")?;
    assert!(addresses.contains("inet 10.55.0.1"), "{addresses}");
    let status = run.ours.ok(&["status", "--json"])?.text;
    assert!(status.contains("10.99.0.2"), "the DNS server is missing: {status}");
    run.ours.ok(&["down", "peer"])?;
    let addresses = run.world.device.sh("ip addr show dev dormouse0 2>/dev/null || true")?;
    assert!(!addresses.contains("10.55.0.1"), "the address stayed: {addresses}");
    Ok(())
}

#[test]
fn strongswan_rekeys_child_and_ike() -> Result<()> {
    if skip("strongswan_rekeys") {
        return Ok(());
    }
    let s = Scenario { esp: "aes128gcm16-x25519", ..Scenario::default() };
    let mut run = s.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    run.theirs.ctl(&["--rekey", "--child", "net"])?;
    run.theirs.wait_log("inbound CHILD_SA net{2} established", SOON)?;
    run.data_flows()?;
    run.theirs.ctl(&["--rekey", "--ike", "peer"])?;
    run.theirs.wait_log("rekeyed between", SOON)?;
    run.data_flows()?;
    run.theirs.ctl(&["--rekey", "--child", "net"])?;
    run.theirs.wait_log("inbound CHILD_SA net{3} established", SOON)?;
    run.data_flows()
}

#[test]
fn we_rekey_on_request_and_strongswan_deletes_a_child() -> Result<()> {
    if skip("we rekey on request") {
        return Ok(());
    }
    let s = Scenario { esp: "aes128gcm16-x25519", ..Scenario::default() };
    let mut run = s.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    run.ours.ok(&["rekey", "peer"])?;
    run.theirs.wait_log("rekeyed between", SOON)?;
    run.theirs.wait_log("CHILD_SA net{2} established", SOON)?;
    run.data_flows()?;
    // What it deletes we miss, and ask for again.
    run.theirs.ctl(&["--terminate", "--child", "net"])?;
    run.theirs.wait_log("CHILD_SA net{3} established", SOON)?;
    run.data_flows()
}

#[test]
fn we_rekey_child_and_ike() -> Result<()> {
    if skip("we_rekey") {
        return Ok(());
    }
    let s = Scenario {
        ours: vec![("child", "rekey = 10".into()), ("ike", "rekey = 30".into())],
        ..Scenario::default()
    };
    let mut run = s.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    run.theirs.wait_log("CHILD_SA net{2} established", SOON)?;
    run.data_flows()?;
    run.theirs.wait_log("rekeyed between", Duration::from_secs(40))?;
    run.data_flows()
}

#[test]
fn mobike_moves_the_session_into_a_nat_and_back() -> Result<()> {
    if skip("mobike") {
        return Ok(());
    }
    let mut run = Scenario::default().device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    run.world.detach(Access::A)?;
    run.world.attach(Access::B)?;
    run.data_flows()?;
    run.theirs.wait_log("UPD_SA_ADDR", SOON)?;
    assert_eq!(run.theirs.sas()?.matches("ESTABLISHED").count(), 1, "a new SA instead of an update");
    run.world.detach(Access::B)?;
    run.world.attach(Access::A)?;
    run.data_flows()?;
    assert_eq!(run.theirs.sas()?.matches("ESTABLISHED").count(), 1);
    Ok(())
}

#[test]
fn without_mobike_the_session_lives_where_the_gateway_follows_and_is_replaced_elsewhere() -> Result<()> {
    if skip("without mobike") {
        return Ok(());
    }
    let s = Scenario { ours: vec![("ike", "mobike = false".into())], ..Scenario::default() };
    let mut run = s.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    // It has not seen a NAT, and would send to the old address for ever.
    run.world.detach(Access::A)?;
    run.world.attach(Access::B)?;
    run.data_flows()?;
    assert!(run.ours.ok(&["status", "--json"])?.text.contains("\"rung\":\"full\""));
    // Now it has.
    run.world.detach(Access::B)?;
    run.world.attach(Access::A)?;
    run.data_flows()?;
    assert!(run.ours.ok(&["status", "--json"])?.text.contains("\"rung\":\"mobike\""));
    assert_eq!(run.theirs.sas()?.matches("ESTABLISHED").count(), 1);
    Ok(())
}

#[test]
fn each_side_may_delete() -> Result<()> {
    if skip("delete") {
        return Ok(());
    }
    let mut run = Scenario::default().device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    run.ours.ok(&["down", "peer"])?;
    run.theirs.wait_log("received DELETE for IKE_SA", SOON)?;
    run.data_stops()?;
    run.up()?;
    run.data_flows()?;
    // A client that is wanted comes back after the gateway's delete.
    run.theirs.ctl(&["--terminate", "--ike", "peer"])?;
    run.theirs.wait_log("IKE_SA deleted", SOON)?;
    run.data_flows()
}

#[test]
fn a_gateway_that_lost_its_state_is_noticed_and_reconnected() -> Result<()> {
    if skip("lost state") {
        return Ok(());
    }
    let mut run = Scenario::default().device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    // strongSwan forgets the SA without telling: its next answer to anything is INVALID_IKE_SPI, or none.
    run.theirs.ctl(&["--terminate", "--ike", "peer", "--force", "--timeout", "-1"])?;
    run.data_flows()
}

#[test]
fn strongswans_liveness_check_is_answered() -> Result<()> {
    if skip("liveness") {
        return Ok(());
    }
    let s = Scenario { theirs: "dpd_delay = 2s".into(), ..Scenario::default() };
    let mut run = s.device(Access::A)?;
    run.up()?;
    run.theirs.wait_log("sending DPD request", SOON)?;
    std::thread::sleep(Duration::from_secs(3));
    assert!(!run.theirs.log().contains("retransmit 1 of request"), "a liveness check went unanswered");
    run.data_flows()
}

#[test]
fn a_wrong_secret_and_wrong_proposals_say_what_to_change() -> Result<()> {
    if skip("errors") {
        return Ok(());
    }
    let s = Scenario { theirs: "proposals = aes256-sha512-modp3072".into(), ..Scenario::default() };
    let run = s.device(Access::A)?;
    let answer = run.ours.cli(&["up", "peer"])?;
    assert_eq!(answer.code, 5, "{}", answer.text);
    assert!(answer.text.contains("aes128gcm16"), "what was offered is missing: {}", answer.text);
    assert!(answer.text.contains("ike.proposals"), "the line to change is missing: {}", answer.text);
    Ok(())
}
