//! The standard world works without any VPN, and leaves nothing behind.

use dormouse_testbed::{Access, GATEWAY, Need, Roaming, require};

#[test]
fn the_device_reaches_the_gateway_from_both_networks_and_everything_is_removed() {
    if !require("roaming world", &[Need::Root, Need::Program("nft"), Need::Program("ping")]) {
        return;
    }
    let world = Roaming::new(30).expect("the world is built");
    for network in [Access::A, Access::B] {
        world.attach(network).expect("attach");
        world.device.sh(&format!("ping -c 1 -W 2 {GATEWAY}")).expect("the gateway answers");
        world.detach(network).expect("detach");
    }
    assert!(world.device.sh(&format!("ping -c 1 -W 1 {GATEWAY}")).is_err(), "no network, no answer");
    let (netns, dir) = (world.device.netns().to_owned(), world.bed.dir().to_owned());
    drop(world);
    assert!(!std::path::Path::new("/run/netns").join(netns).exists());
    assert!(!dir.exists());
}
