//! Debian 13's libreswan 5.2 in both roles, in a virtual machine whose kernel has the ESP that it needs. The stories are
//! `vm/libreswan-gateway.sh`, `vm/libreswan-device.sh`, `vm/libreswan-nat.sh` and `vm/libreswan-lent.sh`; here is the verdict.

use anyhow::Result;
use dormouse_interop::vm;
use dormouse_testbed::{Key, Need, Pki, binary, require};

fn tells(story: &str) -> Result<()> {
    let needs = vm::needs([
        vm::fetched(&["libreswan", "check"], "the virtual machine's libreswan (interop/vm/libreswan fetch)"),
        Need::Program("openssl"),
        Need::Program("nft"),
    ]);
    if !require(&format!("libreswan: {story}"), &needs) {
        return Ok(());
    }
    let dir = std::env::temp_dir().join(format!("dormouse-libreswan-{}-{story}", std::process::id()));
    let told = || -> Result<()> {
        let pki = Pki::new(&dir, Key::Rsa(2048))?;
        pki.issue("device.test", Key::Rsa(2048))?;
        pki.issue("gateway.test", Key::Rsa(2048))?;
        vm::story("libreswan", &[story.into(), binary("dormouse"), binary("dormoused"), dir.clone()])
    };
    let told = told();
    let _gone = std::fs::remove_dir_all(&dir);
    told
}

#[test]
fn our_device_joins_a_libreswan_gateway_and_resumes() -> Result<()> {
    tells("gateway")
}

#[test]
fn a_libreswan_device_joins_our_gateway_and_resumes() -> Result<()> {
    tells("device")
}

#[test]
fn our_device_behind_a_nat_comes_back_to_a_libreswan_gateway() -> Result<()> {
    tells("nat")
}

#[test]
fn our_device_lends_its_esp_to_the_kernel_at_a_libreswan_gateway() -> Result<()> {
    tells("lent")
}
