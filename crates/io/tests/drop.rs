//! What is left after the drop of privileges. A program without test harness: the drop wants a single thread, and there is no way back.

use dormouse_io::netlink::Netlink;
use dormouse_io::privileges::{drop_to, find_user};

fn main() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: the drop of privileges needs root");
        return;
    }
    let account = find_user("nobody").expect("every system has nobody").expect("nobody is not root");
    // A namespace of our own, so that what CAP_NET_ADMIN still allows can be tried.
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("root may");
    let held = drop_to(&account).expect("root may");
    assert_eq!(held.capabilities, ["CAP_NET_ADMIN"]);
    assert_ne!(held.uid, 0);

    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let field = |name: &str| {
        let line =
            status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {status}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // CAP_NET_ADMIN is number 12.
    assert_eq!(field("CapEff:"), ["0000000000001000"]);
    assert_eq!(field("CapPrm:"), ["0000000000001000"]);
    for empty in ["CapInh:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(empty), ["0000000000000000"], "{empty}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    for ids in ["Uid:", "Gid:"] {
        assert!(field(ids).iter().all(|id| id != "0"), "{ids} {:?}", field(ids));
    }
    assert!(!field("Groups:").contains(&"0".to_owned()));

    assert!(std::fs::File::open("/etc/shadow").is_err(), "root's files are closed");
    assert!(nix::unistd::setuid(nix::unistd::ROOT).is_err(), "there is no way back");
    let mut netlink = Netlink::new().expect("a socket");
    let lo = netlink.link("lo").expect("every namespace has one");
    netlink.set_up(lo.index, true).expect("CAP_NET_ADMIN is left");
    println!("ok: after the drop only the network is left");
}
