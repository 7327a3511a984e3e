//! Who may come, and what both ends say of it; keys; privileges.

use super::{NEEDS, Pair, end, keygen};
use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{PATIENCE, rewrite};
use dormouse_testbed::{Dormoused, Extra, GATEWAY, Need, Testbed, binary, require};
use std::net::Ipv6Addr;

/// Runs `dormouse hip <args>`: its exit code, and that it says this.
fn says(daemon: &Dormoused, args: &[&str], code: i32, words: &[&str]) -> Result<()> {
    let answer = daemon.cli(&[&["hip"], args].concat())?;
    ensure!(answer.code == code, "{args:?}: {} instead of {code}: {}", answer.code, answer.text);
    for word in words {
        ensure!(answer.text.contains(word), "{args:?}: {word} in {}", answer.text);
    }
    Ok(())
}

#[test]
fn whoever_is_not_admitted_is_refused_and_both_ends_say_it() -> Result<()> {
    if !require("HIP policy", &NEEDS) {
        return Ok(());
    }
    let mut pair = Pair::new(["ecdsa-p256"; 2], "", &[GATEWAY])?;
    let [device, server] = pair.hits.clone();
    says(&pair.device, &["up", "nobody"], 2, &["no peer is called 'nobody'", "acceptable: server"])?;
    says(&pair.device, &["up", "2001:db8::1"], 2, &["no HIT"])?;
    says(&pair.server, &["up", "device"], 3, &["no address of it is known", "addresses"])?;
    says(&pair.device, &["down", "server"], 3, &["no association"])?;
    says(&pair.device, &["status", "server"], 3, &["down"])?;
    says(&pair.device, &["up", "SERVER"], 0, &["up"])?;
    // A HIT is an address, and may be written in each way that one is.
    let written = server.parse::<Ipv6Addr>()?.segments().map(|s| format!("{s:04X}")).join(":");
    for called in ["server", &server, &written] {
        says(&pair.device, &["status", called], 0, &[GATEWAY])?;
    }

    // Denied by name: at once, after a restart too, and taken back.
    let denied = pair.server.ok(&["deny", "device"])?.text;
    assert!(denied.contains("its session has ended"), "{denied}");
    let world = &pair.world;
    world.device.eventually(&format!("! ping -c 1 -W 1 {server}"), PATIENCE)?;
    says(&pair.device, &["up", "server"], 4, &["BLOCKED_BY_POLICY", &device])?;
    pair.server.restart()?;
    says(&pair.device, &["up", "server"], 4, &["BLOCKED_BY_POLICY"])?;
    says(&pair.server, &["up", "device"], 4, &["denied", "dormouse allow"])?;
    // An exchange that begins anew has not failed yet, also where the one before it has.
    pair.server.process().kill();
    says(&pair.device, &["up", "server", "--no-wait"], 0, &[])?;
    let status = pair.device.cli(&["hip", "status", "server"])?;
    assert!(status.text.contains("connecting") && !status.text.contains("BLOCKED"), "{}", status.text);
    pair.device.ok(&["hip", "down", "server"])?;
    pair.server.restart()?;
    pair.server.ok(&["allow", &device])?;
    assert_eq!(pair.server.cli(&["allow", &device])?.code, 3);
    says(&pair.device, &["up", "server", "--timeout", "40"], 0, &[])?;

    // Only whom a name or a HIT can mean is denied; a HIT that is in no list may be in one tomorrow.
    let wrong = pair.server.cli(&["deny", "devise"])?;
    assert!(wrong.code == 2 && wrong.text.contains("no peer is called 'devise'"), "{}", wrong.text);
    assert_eq!(pair.server.cli(&["deny", "2001:db8::1"])?.code, 2);
    let long = pair.server.cli(&["deny", &"x".repeat(5_000)])?;
    assert!(long.code == 2 && long.text.contains("at most 4096 bytes"), "{}", long.text);
    let unlisted = pair.server.ok(&["deny", "2001:22::1"])?.text;
    assert!(unlisted.contains("none who is meant is known here"), "{unlisted}");
    pair.server.ok(&["allow", "2001:22::1"])?;

    // The other way round, and an identity that is not there.
    pair.device.ok(&["deny", &server])?;
    says(&pair.device, &["up", "server"], 4, &["is denied", "dormouse allow"])?;
    pair.device.ok(&["allow", "server"])?;
    let stranger = keygen(&pair.world.core, "ecdsa-p256")?;
    rewrite(&pair.world.device, &end(&pair.world.device, "", &[(&stranger, "server", &[GATEWAY])]))?;
    pair.device.ok(&["reload"])?;
    says(&pair.device, &["up", "server", "--timeout", "2"], 6, &["no answer", "is it the HIT of the host"])?;

    // A server that has never heard of the device.
    rewrite(&pair.world.device, &end(&pair.world.device, "", &[(&server, "server", &[GATEWAY])]))?;
    rewrite(&pair.world.gateway, &end(&pair.world.gateway, "", &[(&stranger, "other", &[])]))?;
    pair.server.ok(&["reload"])?;
    pair.device.ok(&["reload"])?;
    says(&pair.device, &["up", "server"], 4, &["BLOCKED_BY_POLICY"])?;

    let records = pair.records()?;
    for event in ["login", "end", "denial", "refusal", "allowance"] {
        assert!(records.iter().any(|(e, who)| e == event && *who == device), "{event}: {records:?}");
    }
    Ok(())
}

#[test]
fn a_key_is_its_owners_and_never_lost() -> Result<()> {
    if !require("dormouse hip keygen", &[Need::Root, Need::Program("setpriv")]) {
        return Ok(());
    }
    let world = Testbed::new().and_then(|mut bed| Ok((bed.host("maker")?, bed)))?;
    let (host, key) = (&world.0, world.0.dir().join("hip.key"));
    let dormouse = binary("dormouse").display().to_string();
    let run = |line: &str| -> Result<(i32, String)> {
        let out = host.command("sh").args(["-c", line]).output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        Ok((out.status.code().unwrap_or(-1), text))
    };
    let make = |more: &str| run(&format!("{dormouse} hip keygen {} {more}", key.display()));
    let (code, hit) = make("")?;
    assert!(code == 0 && hit.starts_with("2001:22:"), "{hit}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&key)?.permissions());
    let content = std::fs::read(&key)?;
    assert_eq!(mode & 0o777, 0o600);
    let (code, said) = make("")?;
    assert!(code == 1 && said.contains("is there already") && said.contains(hit.trim()), "{said}");
    assert_eq!(std::fs::read(&key)?, content);
    let (code, said) = run(&format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups {dormouse} hip keygen --force {}",
        key.display()
    ))?;
    assert_eq!(code, 7, "{said}");
    // A full disk, in a mount of this one shell: what was there stays, and nothing else is left.
    let full = host.dir().join("full");
    std::fs::create_dir(&full)?;
    let (code, said) = run(&format!(
        "mount -t tmpfs -o size=8k none {0} && cd {0} && cp {1} k && {{ head -c 100000 /dev/zero > fill; true; }} 2> /dev/null; \
         {dormouse} hip keygen --force {0}/k; echo \"code $?\"; cmp k {1} && ls {0}",
        full.display(),
        key.display()
    ))?;
    assert!(code == 0 && said.contains("code 1") && said.contains("No space left"), "{said}");
    assert!(said.contains("code 1\nfill\nk\n"), "{said}");
    for (wrong, why) in [
        ("--kind dsa", "has no DSA"),
        ("--kind rsa --bits 1024", "too short for version 2"),
        ("--for-version 1", "has no ECDSA"),
        ("--for-version 3", "--for-version"),
        ("--frobnicate", "--frobnicate"),
    ] {
        let (code, said) = make(&format!("--force {wrong}"))?;
        assert!(code == 2 && said.contains(why), "{wrong}: {said}");
    }
    assert_eq!(std::fs::read(&key)?, content);
    for old in ["--kind dsa", "--kind rsa", "--kind rsa --bits 1024"] {
        let (code, hit) = make(&format!("--force --for-version 1 {old}"))?;
        let is_old =
            hit.starts_with("2001:1") && hit.trim().ends_with("in version 1") && hit.lines().count() == 1;
        assert!(code == 0 && is_old, "{old}: {hit}");
    }
    let (code, other) = make("--force --kind ecdsa-p384")?;
    assert!(code == 0 && other != hit, "{other}");
    Ok(())
}

#[test]
fn without_the_privilege_the_daemon_says_which_one() -> Result<()> {
    if !require("HIP without privileges", &[Need::Root, Need::File("/dev/net/tun"), Need::Program("setpriv")])
    {
        return Ok(());
    }
    let mut bed = Testbed::new()?;
    let host = bed.host("poor")?;
    keygen(&host, "ecdsa-p256")?;
    let confined = |more: &str| {
        let by = ["setpriv", "--inh-caps=-net_raw", "--bounding-set=-net_raw"].map(str::to_owned).to_vec();
        let extra = Extra { confined_by: by, ..Extra::default() };
        Dormoused::start_with(&host, extra, "dns = \"off\"", &end(&host, more, &[]))
    };
    let error = format!("{:#}", confined("").err().context("it started")?);
    assert!(error.contains("CAP_NET_RAW") && error.contains("carriers = [\"udp\"]"), "{error}");
    confined("carriers = [\"udp\"]")?.ok(&["hip", "status"])?;
    Ok(())
}
