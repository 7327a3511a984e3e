//! What is left after the drop of privileges. A program without test harness: the drop wants a single thread, and there is no way back.

use dormouse_io::netlink::Netlink;
use dormouse_io::privileges::{drop_to, find_user};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// The word for a process that begins with less than root has.
const LIMITED: &str = "limited";

fn main() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: the drop of privileges needs root");
        return;
    }
    if std::env::args().nth(1).as_deref() == Some(LIMITED) {
        // As a child of NetworkManager's unit.
        let kept = |set: CapabilitySet| set - CapabilitySet::SETPCAP - CapabilitySet::CHOWN;
        let now = capabilities(None).expect("our own");
        let less = CapabilitySets { effective: kept(now.effective), permitted: kept(now.permitted), ..now };
        set_capabilities(None, less).expect("less is always allowed");
        return drop_and_look(true);
    }
    let myself = std::env::current_exe().expect("a test program");
    let limited = std::process::Command::new(myself).arg(LIMITED).status().expect("it runs");
    assert!(limited.success(), "without CAP_SETPCAP");
    drop_and_look(false);
}

/// `limited`: without the right to change the bounding set, which counts for nothing once no privileges can be gained.
fn drop_and_look(limited: bool) {
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
        if !(limited && empty == "CapBnd:") {
            assert_eq!(field(empty), ["0000000000000000"], "{empty}");
        }
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
    // A program that is run has no more than this process: /bin/sh says what it may do.
    let shell = std::process::Command::new("/bin/sh").args(["-c", "cat /proc/self/status"]).output();
    let status = String::from_utf8(shell.expect("a shell").stdout).expect("text");
    for none in ["CapEff:", "CapPrm:"] {
        let line =
            status.lines().find(|l| l.starts_with(none)).unwrap_or_else(|| panic!("{none} in {status}"));
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
    println!("ok: after the drop only the network is left");
}
