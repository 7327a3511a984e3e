//! Devices with the client that they have, at a gateway that `dormouse gateway init` has made: `dormouse user add --as` gives each what it takes.

use anyhow::{Context, Result, ensure};
use dormouse_interop::strongswan::{StrongSwan, skip};
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Roaming, SERVER, binary};
use std::path::{Path, PathBuf};

fn dormouse(host: &Host, arguments: &str) -> Result<String> {
    let out = host.command(binary("dormouse")).args(arguments.split_whitespace()).output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{arguments}: {said}");
    Ok(said)
}

/// A gateway as `init` makes it; its configuration's path.
fn gateway(world: &Roaming) -> Result<(Dormoused, PathBuf)> {
    let host = &world.gateway;
    let config = host.dir().join("made/dormouse.toml");
    let init =
        format!("gateway init --name {GATEWAY} --reach 10.99.0.0/24 --yes --config {}", config.display());
    dormouse(host, &init)?;
    let text = std::fs::read_to_string(&config)?;
    Ok((Dormoused::start(host, "dns = \"off\"", &text)?, config))
}

/// The files of a directory, with the folder that each is in.
fn credentials(dir: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut found = Vec::new();
    for folder in ["x509", "x509ca", "private"] {
        for entry in std::fs::read_dir(dir.join(folder))? {
            found.push((folder, entry?.path()));
        }
    }
    Ok(found)
}

#[test]
fn a_strongswan_device_comes_by_what_user_add_has_made_and_is_out_when_it_is_removed() -> Result<()> {
    if skip("user add --as swanctl") {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let (ours, config) = gateway(&world)?;
    let made = world.bed.dir().join("joe.swanctl");
    let (at, config) = (made.display(), config.display());
    dormouse(&world.gateway, &format!("user add joe --as swanctl --out {at} --config {config}"))?;
    let conf = std::fs::read_to_string(made.join("conf.d/joe.conf"))?;
    let theirs = StrongSwan::start(&world.device, None, &conf, &credentials(&made)?, "")?;
    theirs.ctl(&["--initiate", "--child", "net"]).with_context(|| ours.log())?;
    let ping = format!("ping -c 3 -i 0.2 -W 5 {SERVER}");
    world.device.sh(&ping).with_context(|| format!("{}\n{}", theirs.log_tail(), ours.log()))?;
    assert!(theirs.sas()?.contains("10.99.0.0/24"), "{}", theirs.sas()?);

    let socket = Dormoused::socket_in(&world.gateway);
    let remove = format!("--socket {} user remove joe --config {config}", socket.display());
    let said = dormouse(&world.gateway, &remove)?;
    assert!(said.contains("1 session(s) ended"), "{said}");
    assert!(theirs.ctl(&["--initiate", "--child", "net"]).is_err(), "it may not come again");
    let (joe, ann) = (made.display(), world.bed.dir().join("ann"));
    // Another of the same name is another.
    dormouse(
        &world.gateway,
        &format!("user add joe --as swanctl --out {} --config {config}", ann.display()),
    )?;
    ensure!(ann.join("private/joe.key").exists(), "beside {joe}");
    Ok(())
}
