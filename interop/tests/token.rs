//! Private keys in tokens (SoftHSM): with real daemons that have given their privileges away, at both ends.

use anyhow::{Context, Result};
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::{
    Access, Dormoused, Extra, GATEWAY, Key, Need, Pki, Roaming, Testbed, binary, require,
};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const NEEDS: [Need; 5] = [
    Need::Root,
    Need::File("/dev/net/tun"),
    Need::Program("openssl"),
    Need::Program("softhsm2-util"),
    Need::File(MODULE),
];
const USER: &str = "nobody";

fn softhsm(dir: &Path, args: &[&str]) -> Result<()> {
    let conf = dir.join("softhsm2.conf");
    let out = Command::new("softhsm2-util").args(args).env("SOFTHSM2_CONF", conf).output()?;
    anyhow::ensure!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// The key of `own` goes into a token, and its file away; `owner` may read the token.
fn into_token(pki: &Pki, dir: &Path, own: &str) -> Result<()> {
    let key = pki.path(&format!("{own}.key"));
    let path = key.to_str().context("a path")?;
    softhsm(dir, &["--import", path, "--token", "vpn", "--label", own, "--id", "01", "--pin", "1234"])?;
    Ok(std::fs::remove_file(&key)?)
}

#[test]
fn both_ends_sign_with_tokens_after_they_have_given_their_privileges_away() -> Result<()> {
    if !require("keys in tokens", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let pki = Pki::new(&world.bed.dir().join("ca"), Key::P256)?;
    let start = |host, own: &str, key: Key, role: &str, peer: &str, rest: &str| -> Result<Dormoused> {
        pki.issue(own, key)?;
        let dir = world.bed.dir().join(format!("token-{own}"));
        std::fs::create_dir_all(dir.join("tokens"))?;
        std::fs::write(
            dir.join("softhsm2.conf"),
            format!("directories.tokendir = {}/tokens\n", dir.display()),
        )?;
        softhsm(
            &dir,
            &["--init-token", "--free", "--label", "vpn", "--so-pin", "87654321", "--pin", "1234"],
        )?;
        into_token(&pki, &dir, own)?;
        std::fs::write(dir.join("pin"), "1234\n")?;
        std::fs::set_permissions(dir.join("pin"), PermissionsExt::from_mode(0o600))?;
        let owned = Command::new("chown").args(["-R", USER]).arg(dir.join("tokens")).status()?;
        assert!(owned.success());
        let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
        let toml = format!(
            "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\ncertificate = {:?}\n\
             key = \"pkcs11:token=vpn;object={own}?pin-source=file:{}/pin&module-path={MODULE}\"\n\
             [connection.peer.remote]\nid = \"{peer}\"\nca = [{:?}]\n[connection.peer.child]\n{rest}\n",
            pki.path(&format!("{own}.pem")),
            dir.display(),
            pki.path("ca.pem"),
        );
        let conf = dir.join("softhsm2.conf").display().to_string();
        let environment = vec![("SOFTHSM2_CONF".to_owned(), conf)];
        let extra = Extra { environment, user: USER.to_owned(), ..Extra::default() };
        Dormoused::start_with(host, extra, "dns = \"off\"", &toml)
    };
    let local = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]";
    let mut gateway = start(&world.gateway, "gateway.test", Key::Rsa(2048), "gateway", "*.test", local)?;
    let remote = "remote = [\"10.99.0.0/24\"]";
    let device = start(&world.device, "device.test", Key::P256, "client", "gateway.test", remote)?;
    device.ok(&["up", "peer"]).map_err(|e| e.context(gateway.log()))?;
    device.ok(&["down", "peer"])?;
    // The PIN is root's: the process that reads it at a reload has kept the right to.
    gateway.process().signal(Signal::SIGHUP);
    gateway.process().wait_for("the configuration was read again and is in force", PATIENCE)?;
    device.ok(&["up", "peer"]).map_err(|e| e.context(gateway.log()))?;
    Ok(())
}

#[test]
fn a_wrong_pin_costs_one_try_however_often_the_daemon_is_started() -> Result<()> {
    if !require("a wrong PIN", &NEEDS) {
        return Ok(());
    }
    let bed = Testbed::new()?;
    let dir = bed.dir();
    let pki = Pki::new(&dir.join("ca"), Key::P256)?;
    pki.issue("device.test", Key::P256)?;
    std::fs::create_dir_all(dir.join("tokens"))?;
    let conf = dir.join("softhsm2.conf");
    std::fs::write(&conf, format!("directories.tokendir = {}/tokens\n", dir.display()))?;
    softhsm(dir, &["--init-token", "--free", "--label", "vpn", "--so-pin", "87654321", "--pin", "1234"])?;
    let key = pki.path("device.test.key");
    let import = |id: &str| {
        let path = key.to_str().context("a path")?;
        softhsm(dir, &["--import", path, "--token", "vpn", "--label", id, "--id", id, "--pin", "1234"])
    };
    import("01")?;
    let toml = dir.join("dormouse.toml");
    let text = format!(
        "[connection.peer]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n[connection.peer.local]\nid = \"device.test\"\ncertificate = {:?}\n\
         key = \"pkcs11:token=vpn;id=%01?pin-source=file:{}/pin&module-path={MODULE}\"\n\
         [connection.peer.remote]\nid = \"gateway.test\"\nca = [{:?}]\n",
        pki.path("device.test.pem"),
        dir.display(),
        pki.path("ca.pem"),
    );
    std::fs::write(&toml, text)?;
    let check = |pin: &str| -> Result<(Option<i32>, String)> {
        std::fs::write(dir.join("pin"), pin)?;
        std::fs::set_permissions(dir.join("pin"), PermissionsExt::from_mode(0o600))?;
        let mut command = Command::new(binary("dormoused"));
        command.arg("--config").arg(&toml).arg("--check").env("SOFTHSM2_CONF", &conf);
        let out = command.output()?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        Ok((out.status.code(), said))
    };
    assert_eq!(check("1234")?.0, Some(0), "{}", check("1234")?.1);
    let (code, said) = check("4321")?;
    assert!(code == Some(10) && said.contains("refuses this PIN"), "{code:?} {said}");
    // The unit's RestartPreventExitStatus; and a person may start it all the same.
    let unit = include_str!("../../packaging/dormoused.service");
    assert!(unit.lines().any(|line| line == "RestartPreventExitStatus=10"));
    for pin in ["4321", "1234"] {
        let (code, said) = check(pin)?;
        assert!(code == Some(10) && said.contains("was wrong"), "{code:?} {said}");
    }
    import("02")?;
    assert_eq!(check("1234")?.0, Some(0), "after a person has logged in");
    Ok(())
}
