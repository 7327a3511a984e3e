//! The radio's drivers that need no service: the link in a network namespace of its own, and the user's programs.

use crate::common::{Directory, in_namespace, ip, link};
use dormouse_io::radio::{Commands, Driver, Options, Power, RadioError, select, survey};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Nothing of this machine but its network namespace.
fn nowhere(directory: &Path) -> Options {
    Options {
        bus: Some(format!("unix:path={}/nobody", directory.display())),
        sysfs: directory.join("sys"),
        rfkill: directory.join("rfkill"),
        ..Options::default()
    }
}

fn named(directory: &Path, interface: &str) -> Options {
    Options { interface: Some(interface.into()), ..nowhere(directory) }
}

#[test]
fn a_named_wire_goes_down_and_comes_back_with_its_routes_and_addresses() {
    in_namespace("radio: link", || {
        let directory = Directory::new("radio-link");
        link("wire0");
        ip("addr add 192.0.2.1/24 dev wire0");
        ip("addr add 2001:db8::1/64 dev wire0 nodad");
        ip("link set wire0 up");
        ip("route add 198.51.100.0/24 via 192.0.2.9 proto static");
        ip("route add default via 192.0.2.9 metric 50");
        let routes = || ip("route show");
        let before = routes();
        let mut radio = select(&named(directory.path(), "wire0")).unwrap();
        assert_eq!(radio.name(), "link");
        for words in ["wire0 is named", "networkmanager (there is no D-Bus)", "rfkill (wire0 is no 802.11"] {
            assert!(radio.why().contains(words), "'{words}' is missing in: {}", radio.why());
        }
        let state = radio.state().unwrap();
        assert_eq!((state.power, state.attached), (Power::On, Some(true)));
        radio.on().unwrap();
        assert_eq!(routes(), before, "nothing to undo");

        radio.off().unwrap();
        radio.off().unwrap();
        assert_eq!(radio.state().unwrap().power, Power::Off);
        assert_eq!(routes(), "");
        radio.on().unwrap();
        assert_eq!(radio.state().unwrap().power, Power::On);
        assert_eq!(routes(), before);
        assert!(ip("-6 addr show dev wire0").contains("2001:db8::1/64"), "the kernel kept the address");
        let keep = std::fs::read_to_string("/proc/sys/net/ipv6/conf/wire0/keep_addr_on_down").unwrap();
        assert_eq!(keep.trim(), "0", "as it was");

        radio.off().unwrap();
        drop(radio);
        assert_eq!(routes(), before, "dropping it puts it back on");

        ip("link set wire0 down");
        let mut radio = select(&named(directory.path(), "wire0")).unwrap();
        radio.off().unwrap();
        assert_eq!(radio.state().unwrap().power, Power::Blocked, "another program took it down");
        drop(radio);
        assert!(!ip("link show wire0").contains("state UP"), "and it stays down");
    });
}

#[test]
fn a_wire_that_is_not_named_is_left_alone() {
    in_namespace("radio: unnamed wire", || {
        let directory = Directory::new("radio-unnamed");
        let why = survey(&nowhere(directory.path())).unwrap_err().to_string();
        assert!(why.contains("no default route") && why.contains("command (none is configured)"), "{why}");
        link("wire0");
        ip("addr add 192.0.2.1/24 dev wire0");
        ip("link set wire0 up");
        ip("route add default via 192.0.2.9");
        let why = survey(&nowhere(directory.path())).unwrap_err().to_string();
        assert!(why.contains("wire0 is no radio; it is used only where it is named"), "{why}");
        let why = survey(&named(directory.path(), "gone0")).unwrap_err().to_string();
        assert!(why.contains("there is no interface gone0"), "{why}");
    });
}

#[test]
fn a_crash_while_the_radio_is_off_is_made_good_by_the_next_start() {
    in_namespace("radio: mark", || {
        let directory = Directory::new("radio-mark");
        link("wire0");
        ip("link set wire0 up");
        let mark = directory.join("radio.off");
        let options = Options { mark: Some(mark.clone()), ..named(directory.path(), "wire0") };
        let mut radio = select(&options).unwrap();
        radio.off().unwrap();
        let written = std::fs::read_to_string(&mark).unwrap();
        assert!(written.contains("link") && written.contains("wire0"), "{written}");
        std::mem::forget(radio);
        assert!(!ip("link show wire0").contains("state UP"));
        let mut radio = select(&options).unwrap();
        assert!(ip("link show wire0").contains("state UP"), "back on after the crash");
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "");
        radio.off().unwrap();
        radio.on().unwrap();
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "");

        radio.off().unwrap();
        std::mem::forget(radio);
        std::fs::write(&mark, "{\"driv").unwrap();
        drop(select(&options).unwrap());
        assert!(ip("link show wire0").contains("state UP"), "a mark that was cut off is a mark");
    });
}

/// Options for programs that note in a file what they did.
fn programs(directory: &Directory, off: &str, state: &str) -> (Options, PathBuf) {
    let log = directory.join("log");
    let shell = |line: &str| {
        let line = line.replace("LOG", &log.display().to_string());
        ["/bin/sh", "-c", line.as_str()].map(String::from).to_vec()
    };
    let commands = Commands {
        off: shell(off),
        on: shell("echo on >> LOG"),
        state: if state.is_empty() { Vec::new() } else { shell(state) },
        timeout: Duration::from_secs(20),
    };
    let options = Options { driver: Driver::Command, commands: Some(commands), ..nowhere(directory.path()) };
    (options, log)
}

#[test]
fn the_users_programs_are_run_and_undone() {
    let directory = Directory::new("radio-command");
    let (options, log) = programs(&directory, "echo off >> LOG", "tail -n 1 LOG | grep -q on");
    let mut radio = select(&options).unwrap();
    assert_eq!((radio.name(), radio.why()), ("command", "/bin/sh is configured"));
    radio.off().unwrap();
    assert_eq!(radio.state().unwrap().power, Power::Off);
    radio.on().unwrap();
    radio.on().unwrap();
    assert_eq!(radio.state().unwrap().power, Power::On);
    radio.off().unwrap();
    drop(radio);
    assert_eq!(std::fs::read_to_string(log).unwrap(), "off\non\noff\non\n");
}

#[test]
fn a_program_that_fails_is_reported_with_its_exit_code_and_undone() {
    let directory = Directory::new("radio-failing");
    let (options, log) =
        programs(&directory, "echo half >> LOG; echo the modem is on fire >&2; exit 3", "exit 7");
    let mut radio = select(&options).unwrap();
    let problem = radio.off().unwrap_err().to_string();
    assert!(problem.contains("exit code 3: the modem is on fire"), "{problem}");
    let problem = radio.state().unwrap_err().to_string();
    assert!(problem.contains("exit code 7"), "{problem}");
    drop(radio);
    assert_eq!(std::fs::read_to_string(log).unwrap(), "half\non\n");

    let (mut options, _) = programs(&directory, "", "");
    let commands = options.commands.as_mut().unwrap();
    commands.off = vec!["/nonexistent/program".into()];
    let problem = select(&options).unwrap().off().unwrap_err().to_string();
    assert!(problem.contains("/nonexistent/program"), "{problem}");
    options.commands = None;
    assert!(matches!(select(&options), Err(RadioError::Nowhere(why)) if why.contains("none is configured")));
}

#[test]
fn a_program_that_hangs_is_killed_with_all_that_it_started() {
    let directory = Directory::new("radio-hanging");
    // The second process keeps standard error open, and would go on after the first.
    let (mut options, log) = programs(&directory, "sleep 600 & echo $! >> LOG; wait", "");
    options.commands.as_mut().unwrap().timeout = Duration::from_millis(300);
    let problem = select(&options).unwrap().off().unwrap_err();
    assert!(matches!(problem, RadioError::Timeout { driver: "command", .. }), "{problem}");
    let text = std::fs::read_to_string(log).unwrap();
    let started = text.lines().next().unwrap();
    let gone = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let stat = std::fs::read_to_string(format!("/proc/{started}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
    assert!(gone, "process {started} is still there");
    assert!(text.ends_with("on\n"), "and what it may have done is undone: {text}");
}

#[test]
fn a_program_that_talks_too_much_or_leaves_something_running_is_not_waited_for() {
    let directory = Directory::new("radio-talking");
    let (options, log) =
        programs(&directory, "head -c 300000 /dev/zero >&2; sleep 5 & echo $! >> LOG; exit 0", "");
    let mut radio = select(&options).unwrap();
    radio.off().unwrap();
    let text = std::fs::read_to_string(log).unwrap();
    let pid = text.trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL)
        .expect("it still runs: it was not waited for");
}
