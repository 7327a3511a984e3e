//! `/etc/resolv.conf` is changed and comes back, also after a crash or a change in between.

use crate::common::Directory;
use dormouse_io::resolver::file::ResolvConf;
use dormouse_io::resolver::{Method, Options, Resolver, Settings};
use std::os::unix::fs::PermissionsExt;

fn settings(exclusive: bool) -> Settings {
    Settings {
        interface: "dormouse0".into(),
        index: 9,
        servers: vec!["10.9.0.1".parse().unwrap(), "fd09::1".parse().unwrap()],
        domains: vec!["corp.example".into(), "evil\nnameserver 6.6.6.6".into()],
        unsearched: Vec::new(),
        exclusive,
    }
}

fn options(directory: &Directory) -> Options {
    Options {
        resolv_conf: directory.join("resolv.conf"),
        nsswitch_conf: directory.join("nsswitch.conf"),
        bus: Some(format!("unix:path={}", directory.join("no-bus").display())),
        programs: vec![directory.path().into()],
    }
}

fn servers(text: &str) -> Vec<&str> {
    text.lines().filter_map(|l| l.strip_prefix("nameserver ")).collect()
}

#[test]
fn every_original_comes_back_to_the_byte() {
    let directory = Directory::new("resolv-bytes");
    let path = directory.join("resolv.conf");
    for original in [
        "nameserver 192.0.2.1\n",
        "nameserver 192.0.2.1",
        "",
        "\n\n# hand-made\r\nsearch a\n\n",
        "#| not ours\n#! either\n",
    ] {
        std::fs::write(&path, original).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let file = ResolvConf::new(&path);
        file.set(&settings(true)).unwrap();
        file.set(&settings(false)).unwrap();
        assert_ne!(std::fs::read_to_string(&path).unwrap(), original);
        assert!(file.restore().unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), original);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!file.restore().unwrap(), "there is nothing more to restore");
    }
}

#[test]
fn a_full_tunnel_asks_its_own_servers_only_and_a_split_one_keeps_the_others() {
    let directory = Directory::new("resolv-split");
    let path = directory.join("resolv.conf");
    std::fs::write(&path, "search home\nnameserver 192.0.2.1\noptions edns0\n").unwrap();
    let file = ResolvConf::new(&path);
    file.set(&settings(true)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(servers(&text), ["10.9.0.1", "fd09::1"]);
    assert!(text.contains("\nsearch corp.example\n") && text.contains("\noptions edns0\n"), "{text}");
    file.restore().unwrap();
    file.set(&settings(false)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(servers(&text), ["10.9.0.1", "fd09::1", "192.0.2.1"]);
    assert!(text.contains("\nsearch corp.example home\n"), "{text}");
}

#[test]
fn a_link_and_an_absent_file_come_back_as_such() {
    let directory = Directory::new("resolv-link");
    let path = directory.join("resolv.conf");
    let file = ResolvConf::new(&path);
    file.set(&settings(true)).unwrap();
    assert!(file.restore().unwrap());
    assert!(!path.exists());

    std::fs::write(directory.join("stub"), "nameserver 127.0.0.53\n").unwrap();
    std::os::unix::fs::symlink("stub", &path).unwrap();
    file.set(&settings(true)).unwrap();
    assert!(std::fs::read_link(&path).is_err(), "the link gave way to a file");
    assert_eq!(std::fs::read_to_string(directory.join("stub")).unwrap(), "nameserver 127.0.0.53\n");
    assert!(file.restore().unwrap());
    assert_eq!(std::fs::read_link(&path).unwrap().to_str(), Some("stub"));
}

#[test]
fn a_crash_is_mended_by_the_next_run_and_a_rewrite_by_others_is_respected() {
    let directory = Directory::new("resolv-crash");
    let path = directory.join("resolv.conf");
    std::fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
    let mut crashed = Resolver::new(options(&directory)).unwrap();
    let choice = crashed.set(settings(true)).unwrap();
    assert_eq!(choice.method, Method::File, "{choice}");
    std::mem::forget(crashed);
    let mut next = Resolver::new(options(&directory)).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "nameserver 192.0.2.1\n");
    next.set(settings(true)).unwrap();
    std::fs::write(&path, "nameserver 198.51.100.1\n").unwrap();
    drop(next);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "nameserver 198.51.100.1\n");
}

#[test]
fn resolvconf_is_used_where_it_is() {
    let directory = Directory::new("resolv-conf-program");
    let program = directory.join("resolvconf");
    let log = directory.join("log");
    std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {0}\ncat >> {0}\n", log.display())).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut resolver = Resolver::new(options(&directory)).unwrap();
    let choice = resolver.choose("dormouse0");
    if choice.method == Method::File && choice.why.contains("namespace") {
        eprintln!(
            "skipped: resolvconf_is_used_where_it_is runs in a network namespace, where resolvconf is not used"
        );
        return;
    }
    assert_eq!(resolver.set(settings(true)).unwrap().method, Method::Resolvconf, "{choice}");
    drop(resolver);
    let said = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..2],
        ["-d tun.dormouse0", "-a tun.dormouse0 -m 0 -x"],
        "what was left, then ours: {said}"
    );
    assert_eq!(servers(&said), ["10.9.0.1", "fd09::1"]);
    assert_eq!(lines.last(), Some(&"-d tun.dormouse0"), "{said}");
    std::fs::write(&program, "#!/bin/sh\necho no such luck >&2\nexit 3\n").unwrap();
    let mut resolver = Resolver::new(options(&directory)).unwrap();
    let error = resolver.set(settings(true)).unwrap_err().to_string();
    assert!(error.contains("resolvconf") && error.contains("no such luck"), "{error}");
}

#[test]
fn the_servers_outside_of_the_tunnel_are_those_of_before() {
    let directory = Directory::new("resolv-outside");
    let path = directory.join("resolv.conf");
    let file = ResolvConf::new(&path);
    let outside = || file.servers_outside().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(outside().is_empty());
    let text =
        "nameserver 192.0.2.1\n nameserver\tfe80::1%eth0\nnameserver 2001:db8::1\n# nameserver 192.0.2.9\n";
    std::fs::write(&path, text).unwrap();
    assert_eq!(outside(), ["192.0.2.1", "2001:db8::1"]);
    file.set(&settings(true)).unwrap();
    assert_eq!(outside(), ["192.0.2.1", "2001:db8::1"]);
    file.restore().unwrap();
    std::fs::rename(&path, directory.join("target")).unwrap();
    std::os::unix::fs::symlink("target", &path).unwrap();
    assert_eq!(outside(), ["192.0.2.1", "2001:db8::1"]);
    file.set(&settings(true)).unwrap();
    assert_eq!(outside(), ["192.0.2.1", "2001:db8::1"], "what the link led to");
}
