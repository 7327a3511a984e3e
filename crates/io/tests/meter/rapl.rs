//! RAPL domains as powercap shows them.

use crate::tree::{Tree, at};
use dormouse_io::meter::{Choice, Kind, open};

const RANGE: u64 = 262_143_328_850;

fn server() -> Tree {
    let tree = Tree::new();
    tree.domain("intel-rapl:0", "package-0", RANGE - 1_000_000, RANGE);
    tree.domain("intel-rapl:0:0", "core", 5, RANGE);
    tree.domain("intel-rapl:0:1", "dram", 7_000_000, RANGE);
    tree.domain("intel-rapl:1", "package-1", 0, RANGE);
    tree.domain("intel-rapl-mmio:0", "package-0", 0, RANGE);
    tree.write("sys/class/powercap/intel-rapl/enabled", "1");
    tree
}

#[test]
fn packages_and_memory_add_up_across_a_wrap_without_counting_twice() {
    let tree = server();
    let mut meter = open(tree.root(), &Choice::Kind(Kind::Package), at(0)).unwrap().meter;
    assert_eq!(meter.source().to_string(), "package package-0, dram, package-1");
    tree.domain("intel-rapl:0", "package-0", 2_000_000, RANGE); // 3 J
    tree.domain("intel-rapl:0:0", "core", 2_000_000, RANGE); // part of it
    tree.domain("intel-rapl:0:1", "dram", 7_500_000, RANGE); // 0.5 J
    tree.domain("intel-rapl:1", "package-1", 1_500_000, RANGE); // 1.5 J
    tree.domain("intel-rapl-mmio:0", "package-0", 9_000_000, RANGE); // the same package
    let reading = meter.read(at(2)).unwrap();
    assert!((reading.joules - 5.0).abs() < 1e-9 && reading.watts == Some(2.5), "{reading:?}");
    assert!(meter.notes().iter().any(|n| n.contains("does not see the WiFi card")), "{:?}", meter.notes());
}

#[test]
fn the_platform_domain_stands_alone() {
    let tree = server();
    assert!(open(tree.root(), &Choice::Kind(Kind::Platform), at(0)).is_err());
    tree.domain("intel-rapl:2", "psys", 0, RANGE);
    let mut meter = open(tree.root(), &Choice::Kind(Kind::Platform), at(0)).unwrap().meter;
    tree.domain("intel-rapl:2", "psys", 30_000_000, RANGE);
    assert!((meter.read(at(2)).unwrap().joules - 30.0).abs() < 1e-9);
    assert!(meter.source().kind.sees_radio());
}

#[test]
fn a_counter_that_may_not_be_read_says_what_helps() {
    use std::os::unix::fs::PermissionsExt;
    let tree = server();
    let file = tree.root().join("sys/class/powercap/intel-rapl:0/energy_uj");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&file).is_ok() {
        return; // root reads everything
    }
    let said = open(tree.root(), &Choice::Kind(Kind::Package), at(0)).unwrap_err().to_string();
    assert!(said.contains("energy_uj") && said.contains("root"), "{said}");
}

#[test]
fn a_domain_that_disappears_is_an_error_and_the_next_reading_is_whole() {
    let tree = server();
    let mut meter = open(tree.root(), &Choice::Kind(Kind::Package), at(0)).unwrap().meter;
    tree.remove("sys/class/powercap/intel-rapl:1/energy_uj");
    assert!(meter.read(at(1)).unwrap_err().to_string().contains("intel-rapl:1/energy_uj"));
    tree.domain("intel-rapl:1", "package-1", 4_000_000, RANGE);
    assert!((meter.read(at(2)).unwrap().joules - 4.0).abs() < 1e-9, "a counter forgets nothing");
}
