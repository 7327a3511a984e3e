//! The Debian packages of the programs that are built here (`scripts/deb`): installed, upgraded, removed and purged by dpkg in a copy of this machine
//! of which nothing is kept (`scripts/try-packages`). Under systemd, in a new Debian, they are tried before a release (`scripts/test long`).

use anyhow::{Context, Result, ensure};
use dormouse_testbed::{Need, binary, require};
use std::path::{Path, PathBuf};
use std::process::Command;

const NEEDS: [Need; 7] = [
    Need::Root,
    Need::File("/dev/net/tun"),
    Need::Program("nft"),
    Need::Program("dpkg-deb"),
    Need::Program("dpkg-shlibdeps"),
    Need::Program("strip"),
    Need::Program("unshare"),
];

/// A directory, removed with it.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?}"))?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(out.status.success(), "{command:?}: {text}");
    Ok(text)
}

#[test]
fn packages_are_installed_upgraded_and_purged() -> Result<()> {
    if !require("packages", &NEEDS) {
        return Ok(());
    }
    let place = Directory(std::env::temp_dir().join(format!("dormouse-deb-{}", std::process::id())));
    let (programs, scripts) =
        (place.0.join("programs"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts"));
    std::fs::create_dir_all(&programs)?;
    // These have the lab in both places; without symbols they are packed in seconds.
    for program in ["dormouse", "dormouse-nm"] {
        run(Command::new("strip").arg("-o").arg(programs.join(program)).arg(binary(program)))?;
    }
    std::fs::hard_link(programs.join("dormouse"), programs.join("dormouse-lab"))?;
    for (name, version) in [("old", "0.1.0~1-1"), ("new", "0.1.0-1")] {
        let mut make = Command::new(scripts.join("deb"));
        make.env("BIN", &programs).env("VERSION", version).env("COMPRESS", "none").arg(place.0.join(name));
        run(&mut make)?;
    }
    let tried =
        run(Command::new(scripts.join("try-packages")).args([place.0.join("old"), place.0.join("new")]))?;
    ensure!(tried.contains("try-packages: nothing is left\n"), "{tried}");
    println!("{tried}");
    Ok(())
}
