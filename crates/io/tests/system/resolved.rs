//! systemd-resolved by D-Bus: against a bus of our own with a resolver that writes its calls down.

#![expect(clippy::disallowed_types, reason = "made by the macro of zbus")]

use crate::common::Directory;
use dormouse_io::resolver::{Method, Options, Resolver, Settings};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A private bus, ended when it is dropped.
struct Bus {
    child: Child,
    address: String,
}

impl Bus {
    fn start(directory: &Directory) -> Option<Self> {
        let socket = directory.join("bus");
        let config = directory.join("bus.conf");
        let text = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context=\"default\"><allow send_destination=\"*\"/><allow own=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>",
            socket.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--print-address"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut address).ok()?;
        Some(Self { child, address: address.trim().into() })
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Manager(Arc<Mutex<Vec<String>>>);

#[zbus::interface(name = "org.freedesktop.resolve1.Manager")]
impl Manager {
    #[zbus(name = "SetLinkDNS")]
    fn set_link_dns(&self, link: i32, servers: Vec<(i32, Vec<u8>)>) {
        self.0.lock().unwrap().push(format!("dns {link} {servers:?}"));
    }
    fn set_link_domains(&self, link: i32, domains: Vec<(String, bool)>) {
        self.0.lock().unwrap().push(format!("domains {link} {domains:?}"));
    }
    fn set_link_default_route(&self, link: i32, enable: bool) {
        self.0.lock().unwrap().push(format!("default {link} {enable}"));
    }
    fn revert_link(&self, link: i32) {
        self.0.lock().unwrap().push(format!("revert {link}"));
    }
}

#[test]
fn resolved_is_told_and_told_to_forget() {
    let directory = Directory::new("resolved");
    let Some(bus) = Bus::start(&directory) else {
        eprintln!("skipped: resolved_is_told_and_told_to_forget needs dbus-daemon");
        return;
    };
    let resolv_conf = directory.join("resolv.conf");
    std::fs::write(&resolv_conf, "nameserver 192.0.2.1\n").unwrap();
    std::fs::write(directory.join("nsswitch.conf"), "hosts: files dns\n").unwrap();
    let options = Options {
        resolv_conf: resolv_conf.clone(),
        nsswitch_conf: directory.join("nsswitch.conf"),
        bus: Some(bus.address.clone()),
        programs: Vec::new(),
    };
    let choice = Resolver::new(options.clone()).unwrap().choose("dormouse0");
    if choice.why.contains("namespace") {
        eprintln!(
            "skipped: resolved_is_told_and_told_to_forget runs in a network namespace, where systemd-resolved is not used"
        );
        return;
    }
    assert_eq!(choice.method, Method::File);
    assert!(choice.why.contains("does not run"), "{choice}");

    let told = Arc::new(Mutex::new(Vec::new()));
    let manager = Manager(Arc::clone(&told));
    let _service = zbus::block_on(async {
        zbus::connection::Builder::address(bus.address.as_str())
            .serve_at("/org/freedesktop/resolve1", manager)
            .name("org.freedesktop.resolve1")
            .build()
            .await
    })
    .unwrap();
    let choice = Resolver::new(options.clone()).unwrap().choose("dormouse0");
    assert!(choice.method == Method::File && choice.why.contains("neither"), "no program asks it: {choice}");

    std::fs::write(&resolv_conf, "nameserver 127.0.0.53\n").unwrap();
    let mut resolver = Resolver::new(options).unwrap();
    let settings = Settings {
        interface: "dormouse0".into(),
        index: 7,
        servers: vec!["10.9.0.1".parse().unwrap(), "fd09::1".parse().unwrap()],
        domains: vec!["corp.example".into()],
        unsearched: Vec::new(),
        exclusive: true,
    };
    let choice = resolver.set(settings).unwrap();
    assert_eq!(choice.method, Method::Resolved, "{choice}");
    drop(resolver);
    let told = told.lock().unwrap().clone();
    assert_eq!(
        told,
        [
            "dns 7 [(2, [10, 9, 0, 1]), (10, [253, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])]",
            "domains 7 [(\"corp.example\", false), (\".\", true)]",
            "default 7 true",
            "revert 7",
        ]
    );
    assert_eq!(std::fs::read_to_string(&resolv_conf).unwrap(), "nameserver 127.0.0.53\n");
}
