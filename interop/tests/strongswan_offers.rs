//! What other IKEv2 peers offer beside the usual, with strongSwan in both roles: large groups, keys on P-521, sessions that begin without a CHILD
//! SA, redirection; AES-CCM.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Result, ensure};
use dormouse_interop::scenario::{Auth, SOON, Scenario};
use dormouse_interop::strongswan::{offers_message_ids_alone, skip};
use dormouse_testbed::{Access, Key};
use std::time::{Duration, Instant};

/// Connects in both roles.
fn both(test: &str, scenario: &Scenario) -> Result<()> {
    if skip(test) {
        return Ok(());
    }
    let mut run = scenario.device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    drop(run);
    let mut run = scenario.gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()
}

#[test]
fn group_16_and_group_21() -> Result<()> {
    for (ike, esp) in [
        ("aes256-sha512-modp4096", "aes256gcm16-modp4096"),
        ("aes256gcm16-prfsha512-ecp521", "aes256gcm16-ecp521"),
    ] {
        let scenario = Scenario { ike, esp, ..Scenario::default() };
        both("groups 16 and 21", &scenario)?;
        if skip("groups 16 and 21, rekeyed") {
            return Ok(());
        }
        let mut run = scenario.device(Access::A)?;
        run.up()?;
        run.theirs.ctl(&["--rekey", "--child", "net"])?;
        run.theirs.wait_log("inbound CHILD_SA net{2} established", SOON)?;
        run.theirs.ctl(&["--rekey", "--ike", "peer"])?;
        run.theirs.wait_log("rekeyed between", SOON)?;
        run.data_flows()?;
    }
    Ok(())
}

/// All three lengths of the ICV, for IKE's own messages (RFC 5282) and for ESP (RFC 4309).
#[test]
fn aes_ccm() -> Result<()> {
    for (ike, esp) in [
        ("aes128ccm16-prfsha256-x25519", "aes256ccm8-x25519"),
        ("aes256ccm12-prfsha256-x25519", "aes128ccm12-x25519"),
        ("aes256ccm8-prfsha256-x25519", "aes256ccm16-x25519"),
    ] {
        both("AES-CCM", &Scenario { ike, esp, ..Scenario::default() })?;
    }
    Ok(())
}

/// Neither is taken where it is not configured: the defaults do not have them.
#[test]
fn group_21_is_refused_by_the_defaults() -> Result<()> {
    if skip("group 21 and the defaults") {
        return Ok(());
    }
    let scenario = Scenario { our_ike: Some(""), ike: "aes256-sha512-ecp521", ..Scenario::default() };
    let run = scenario.gateway(Access::A)?;
    ensure!(run.initiate().is_err(), "it was taken");
    run.theirs.wait_log("NO_PROPOSAL_CHOSEN", SOON)?;
    Ok(())
}

#[test]
fn keys_on_p_521() -> Result<()> {
    let scenario = Scenario { auth: Auth::Certificates(Key::P521), ..Scenario::default() };
    both("keys on P-521", &scenario)?;
    // Method 11 of RFC 4754, for who does not know RFC 7427.
    let old = Scenario { their_settings: "signature_authentication = no".into(), ..scenario };
    both("keys on P-521, method 11", &old)
}

#[test]
fn a_session_begins_without_a_child_sa() -> Result<()> {
    let scenario = |ours: &str, theirs: &str| Scenario {
        ours: vec![("ike", format!("childless = \"{ours}\""))],
        theirs: format!("childless = {theirs}"),
        ..Scenario::default()
    };
    for (ours, theirs) in [("force", "force"), ("prefer", "allow"), ("prefer", "force"), ("never", "allow")] {
        let test = format!("childless: ours {ours}, theirs {theirs}");
        both(&test, &scenario(ours, theirs))?;
    }
    if skip("childless, rekeyed and refused") {
        return Ok(());
    }
    let mut run = scenario("force", "force").device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    ensure!(run.theirs.log().contains("CREATE_CHILD_SA request 2"), "{}", run.theirs.log_tail());
    run.theirs.ctl(&["--rekey", "--child", "net"])?;
    run.theirs.wait_log("inbound CHILD_SA net{2} established", SOON)?;
    run.data_flows()?;
    drop(run);
    // What does not go together is told, with the key to change.
    let run = scenario("force", "never").device(Access::A)?;
    let answer = run.ours.cli(&["up", "peer"])?;
    ensure!(answer.code != 0 && answer.text.contains("ike.childless"), "{}", answer.text);
    drop(run);
    let run = scenario("force", "never").gateway(Access::A)?;
    ensure!(run.initiate().is_err(), "it was taken");
    ensure!(run.ours.log().contains("ike.childless"), "{}", run.ours.log());
    Ok(())
}

/// A CHILD SA that is refused after the IKE SA: the attempt has failed, and says why.
#[test]
fn a_child_sa_that_is_refused_afterwards_is_an_error_of_up() -> Result<()> {
    if skip("childless, the child refused") {
        return Ok(());
    }
    let scenario = Scenario {
        ours: vec![("ike", "childless = \"force\"".into())],
        their_child: "esp_proposals = aes256-sha512".into(),
        ..Scenario::default()
    };
    let run = scenario.device(Access::A)?;
    let answer = run.ours.cli(&["up", "peer"])?;
    ensure!(answer.code == 5 && answer.text.contains("child.proposals"), "{}: {}", answer.code, answer.text);
    Ok(())
}

/// Until `done`, or an error with the log.
fn until(what: &str, mut done: impl FnMut() -> Result<bool>, log: impl Fn() -> String) -> Result<()> {
    let limit = Instant::now() + SOON;
    while !done()? {
        ensure!(Instant::now() < limit, "{what}: never\n{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// strongSwan follows ours where it is told to go in each of the three ways; it goes to the same gateway by its other name here, which is enough to see
/// that it goes.
#[test]
fn strongswan_is_sent_elsewhere_by_our_gateway() -> Result<()> {
    if skip("redirecting strongSwan") {
        return Ok(());
    }
    let mut run = Scenario::default().gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()?;
    let before = run.theirs.log().matches("initiating IKE_SA").count();
    let told = run.ours.ok(&["redirect", "peer", "--to", dormouse_testbed::GATEWAY])?;
    ensure!(told.text.contains("1 client was told"), "{}", told.text);
    run.theirs.wait_log("redirected to", SOON)?;
    until(
        "a new session",
        || Ok(run.theirs.log().matches("initiating IKE_SA").count() > before),
        || run.theirs.log_tail(),
    )?;
    run.theirs.wait_log("N(REDIR_FROM)", SOON)?;
    run.data_flows()?;
    drop(run);
    // In the first answer: it goes on and on, as the gateway sends it to itself, and gives up.
    let ours = vec![("ike", format!("redirect_to = \"{}\"", dormouse_testbed::GATEWAY))];
    let run = Scenario { ours, ..Scenario::default() }.gateway(Access::A)?;
    ensure!(run.initiate().is_err(), "it was served");
    ensure!(run.theirs.log().contains("N(REDIR)"), "{}", run.theirs.log_tail());
    Ok(())
}

/// Ours follows strongSwan, where it may.
#[test]
fn our_device_follows_a_redirect_of_strongswan() -> Result<()> {
    if skip("a redirect of strongSwan") {
        return Ok(());
    }
    let with = |redirects: &str| Scenario {
        ours: vec![("ike", format!("redirects = [{redirects}]"))],
        ..Scenario::default()
    };
    let to = dormouse_testbed::GATEWAY;
    let mut run = with(&format!("\"{to}\"")).device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    run.theirs.ctl(&["--redirect", "--ike", "peer", "--gateway", to])?;
    run.theirs.wait_log("N(REDIR_FROM)", SOON)?;
    run.data_flows()?;
    ensure!(run.theirs.sas()?.matches("ESTABLISHED").count() == 1, "{}", run.theirs.sas()?);
    drop(run);
    let mut run = with("\"gw9.example.org\"").device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    run.theirs.ctl(&["--redirect", "--ike", "peer", "--gateway", to])?;
    until(
        "a word in the log",
        || Ok(run.ours.log().contains("which ike.redirects does not name")),
        || run.ours.log(),
    )?;
    ensure!(!run.theirs.log().contains("N(REDIR_FROM)"), "it went all the same");
    run.data_flows()
}

/// What docs/cluster.md says of RFC 6311 and strongSwan: as a device it offers that a gateway may set the message ids of an IKE SA anew
/// (IKEV2_MESSAGE_ID_SYNC_SUPPORTED), in its first IKE_AUTH, and replay counters it does not; ours leaves the offer alone.
#[test]
fn message_ids_are_offered_to_be_synchronised_and_counters_are_not() -> Result<()> {
    if skip("RFC 6311") {
        return Ok(());
    }
    let mut run = Scenario::default().gateway(Access::A)?;
    run.initiate()?;
    run.data_flows()?;
    let log = run.theirs.log();
    offers_message_ids_alone(&log)?;
    drop(run);
    // As a gateway it answers what it is offered, which ours does not do.
    let mut run = Scenario::default().device(Access::A)?;
    run.up()?;
    run.data_flows()?;
    ensure!(!run.theirs.log().contains("_SYN"), "{}", run.theirs.log_tail());
    Ok(())
}
