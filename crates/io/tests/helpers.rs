//! The helper processes, as processes: each is killed at each of its steps, and the next one restores what it left; each outlives
//! SIGTERM, and restores when the daemon ends. A program without test harness, because it is the helpers' program too.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use dormouse_io::files::{self, Files};
use dormouse_io::netlink::Neighbour;
use dormouse_io::{block, neighbours, privileges, radio, resolver};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use radio::{Commands, Driver, Order, Reply};
use resolver::{GuardReply, Method, Settings};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ORIGINAL: &str = "nameserver 192.0.2.1\n";

type Test = (&'static str, fn(&Path));
/// Gives an order to the DNS guard.
type Give = fn(&mut resolver::Guard) -> Result<(), resolver::Error>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["dns-guard", directory] => {
            return resolver::serve(dns_options(Path::new(directory))).unwrap_or_else(|e| eprintln!("{e}"));
        }
        ["radio-guard"] => return radio::serve().unwrap(),
        ["neighbour-guard"] => return neighbours::serve().unwrap(),
        ["block-guard", file] => return block::serve(Path::new(file)).unwrap(),
        ["file-reader", directory] => return read_files(Path::new(directory)),
        _ => {}
    }
    let tests: [Test; 8] = [
        ("DNS: obeys, outlives SIGTERM, restores at the end", dns_restores_at_the_end),
        ("DNS: killed at each step, by its file", |d| dns_killed(d, Method::File)),
        ("DNS: killed at each step, by resolvconf", |d| dns_killed(d, Method::Resolvconf)),
        ("DNS: a resolvconf and a bus that hang", dns_that_hangs),
        ("radio: killed at each step", radio_killed),
        ("neighbours: killed at each step", neighbours_killed),
        ("block: killed at each step", block_killed),
        ("configuration: killed at each step", reader_killed),
    ];
    for (name, test) in tests {
        let directory = std::env::temp_dir().join(format!("dormouse-io-helpers-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let outcome = std::panic::catch_unwind(|| test(&directory));
        let _ = std::fs::remove_dir_all(&directory);
        assert!(outcome.is_ok(), "{name}: see above");
        println!("ok: {name}");
    }
}

fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap())
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program that notes in `directory` that it began, waits while there is a file `hold` there, does `work`, and notes that it ended.
fn script(directory: &Path, path: &Path, work: &str) -> String {
    let d = directory.display();
    let text = format!(
        "#!/bin/sh\necho began >> {d}/began\nwhile [ -e {d}/hold ]; do sleep 0.02; done\n{work}\necho ended >> {d}/ended\n"
    );
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn lines(path: PathBuf) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Lets programs that began end, also those whose helper was killed.
fn let_go(directory: &Path) {
    let _ = std::fs::remove_file(directory.join("hold"));
    until("every program has ended", || lines(directory.join("began")) == lines(directory.join("ended")));
}

/// Waits until one more program than `before` has begun, and is held.
fn begun(directory: &Path, before: usize) {
    until("the program begins", || lines(directory.join("began")) > before);
}

fn dns_options(directory: &Path) -> resolver::Options {
    resolver::Options {
        resolv_conf: directory.join("resolv.conf"),
        nsswitch_conf: directory.join("nsswitch.conf"),
        bus: Some(format!("unix:path={}/bus", directory.display())),
        programs: vec![directory.join("bin")],
    }
}

fn dns_guard(directory: &Path) -> resolver::Guard {
    resolver::Guard::spawn(&program(), &["dns-guard", &directory.display().to_string()]).unwrap()
}

fn settings() -> Settings {
    Settings {
        interface: "dm0".into(),
        index: 7,
        servers: vec!["10.9.0.1".parse().unwrap()],
        domains: Vec::new(),
        unsearched: Vec::new(),
        exclusive: true,
    }
}

/// A `resolvconf` that keeps its records as files.
fn resolvconf(directory: &Path) {
    for name in ["bin", "records"] {
        std::fs::create_dir_all(directory.join(name)).unwrap();
    }
    let work = format!(
        "cd {}/records; case $1 in -a) cat > \"$2\" ;; -d) rm -f \"$2\" ;; esac",
        directory.display()
    );
    script(directory, &directory.join("bin/resolvconf"), &work);
}

fn records(directory: &Path) -> usize {
    std::fs::read_dir(directory.join("records")).map_or(0, Iterator::count)
}

fn dns_restores_at_the_end(directory: &Path) {
    let path = directory.join("resolv.conf");
    std::fs::write(&path, ORIGINAL).unwrap();
    let content = || std::fs::read_to_string(&path).unwrap();
    let mut guard = dns_guard(directory);
    guard.choose("dm0").unwrap();
    let GuardReply::Done(choice) = guard.wait().unwrap() else { panic!("refused") };
    assert_eq!(choice.method, Method::File, "{choice}");
    guard.set(settings()).unwrap();
    assert!(matches!(guard.wait().unwrap(), GuardReply::Done(_)));
    assert!(content().contains("nameserver 10.9.0.1\n"));
    guard.revert().unwrap();
    assert_eq!(guard.wait().unwrap(), GuardReply::Reverted);
    assert_eq!(content(), ORIGINAL);

    guard.set(settings()).unwrap();
    assert!(matches!(guard.wait().unwrap(), GuardReply::Done(_)));
    assert_eq!(guard.next().unwrap(), None, "there is nothing more, and asking does not wait");
    kill(pid(guard.pid()), Signal::SIGTERM).unwrap();
    guard.choose("dm0").unwrap();
    assert!(matches!(guard.wait().unwrap(), GuardReply::Done(_)), "it goes on after SIGTERM");
    // The last answer lies unread: such an end resets the connection.
    guard.choose("dm0").unwrap();
    drop(guard);
    assert_eq!(content(), ORIGINAL);
}

/// Orders of one run; the guard is killed after `k` of them, in the middle of the last one or after it.
fn dns_killed(directory: &Path, method: Method) {
    let path = directory.join("resolv.conf");
    std::fs::write(&path, ORIGINAL).unwrap();
    if method == Method::Resolvconf {
        resolvconf(directory);
        if resolver::choose(&dns_options(directory)).method != Method::Resolvconf {
            return println!("skipped: resolvconf is not used in a network namespace");
        }
    }
    let orders: [Give; 4] = [
        |guard| guard.choose("dm0"),
        |guard| guard.set(settings()),
        resolver::Guard::revert,
        |guard| guard.set(settings()),
    ];
    for last in 0..=orders.len() {
        for in_the_middle in [false, true] {
            let mut guard = dns_guard(directory);
            for (i, order) in orders.iter().take(last).enumerate() {
                let middle = in_the_middle && i + 1 == last;
                let before = lines(directory.join("began"));
                if middle {
                    std::fs::write(directory.join("hold"), "").unwrap();
                }
                order(&mut guard).unwrap();
                if !middle {
                    assert!(!matches!(guard.wait().unwrap(), GuardReply::Failed(_)));
                } else if method == Method::Resolvconf {
                    begun(directory, before);
                }
            }
            kill(pid(guard.pid()), Signal::SIGKILL).unwrap();
            until("its end is seen", || guard.next().is_err());
            assert!(guard.set(settings()).is_err(), "and orders fail");
            drop(guard);
            let_go(directory);

            let mut next = dns_guard(directory);
            next.choose("dm0").unwrap();
            assert!(matches!(next.wait().unwrap(), GuardReply::Done(_)));
            let found = (std::fs::read_to_string(&path).unwrap(), records(directory));
            assert_eq!(
                found,
                (ORIGINAL.to_owned(), 0),
                "after {last} orders, in the middle: {in_the_middle}"
            );
            drop(next);
        }
    }
}

fn dns_that_hangs(directory: &Path) {
    std::fs::write(directory.join("resolv.conf"), ORIGINAL).unwrap();
    resolvconf(directory);
    // A bus that takes the connection and says nothing.
    let _bus = std::os::unix::net::UnixListener::bind(directory.join("bus")).unwrap();
    let mut guard = dns_guard(directory);
    guard.choose("dm0").unwrap();
    let GuardReply::Done(choice) = guard.wait().unwrap() else { panic!("refused") };
    if choice.method != Method::Resolvconf {
        return println!("skipped: {choice}");
    }
    guard.set(settings()).unwrap();
    assert!(matches!(guard.wait().unwrap(), GuardReply::Done(_)));
    std::fs::write(directory.join("hold"), "").unwrap();
    let (before, helper) = (lines(directory.join("began")), pid(guard.pid()));
    drop(guard);
    assert!(kill(helper, None).is_err(), "the helper has ended");
    assert_eq!(lines(directory.join("began")), before + 1, "resolvconf was started once");
    std::fs::remove_file(directory.join("hold")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lines(directory.join("ended")), before, "and was killed");
}

fn radio_killed(directory: &Path) {
    let state = directory.join("state");
    let switch =
        |to: &str| vec![script(directory, &directory.join(to), &format!("echo {to} > {}", state.display()))];
    let mark = directory.join("mark");
    let options = radio::Options {
        driver: Driver::Command,
        commands: Some(Commands {
            off: switch("off"),
            on: switch("on"),
            state: Vec::new(),
            timeout: Duration::from_secs(20),
        }),
        mark: Some(mark.clone()),
        bus: Some(format!("unix:path={}/bus", directory.display())),
        ..radio::Options::default()
    };
    std::fs::write(&state, "on\n").unwrap();
    let start = || radio::Guard::spawn(&program(), &["radio-guard"], &options).unwrap();
    let orders = [Order::Off, Order::State, Order::On, Order::Off];
    for last in 0..=orders.len() {
        for in_the_middle in [false, true] {
            let mut guard = start();
            if last > 0 || !in_the_middle {
                assert!(matches!(guard.wait().unwrap(), Reply::Selected(Ok(_))));
            }
            for (i, order) in orders.iter().take(last).enumerate() {
                let middle = in_the_middle && i + 1 == last;
                let before = lines(directory.join("began"));
                if middle {
                    std::fs::write(directory.join("hold"), "").unwrap();
                }
                guard.order(*order).unwrap();
                if !middle {
                    assert!(matches!(guard.wait().unwrap(), Reply::Done(_, Ok(_))));
                } else if *order != Order::State {
                    begun(directory, before);
                }
            }
            kill(pid(guard.pid()), Signal::SIGKILL).unwrap();
            until("its end is seen", || guard.next().is_err());
            drop(guard);
            let_go(directory);

            let mut next = start();
            assert!(matches!(next.wait().unwrap(), Reply::Selected(Ok(_))));
            let found = [&state, &mark].map(|path| std::fs::read_to_string(path).unwrap());
            assert_eq!(found, ["on\n", ""], "after {last} orders, in the middle: {in_the_middle}");
            drop(next);
        }
    }
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn neighbours_killed(_: &Path) {
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: the neighbours' guard needs root");
    }
    // A namespace of its own for this thread and for what it starts; the kernel removes it with them.
    std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        ip("link add lan0 type veth peer name lan1");
        let index = nix::net::if_::if_nametoindex("lan0").unwrap();
        let four = Neighbour { index, address: [192, 0, 2, 7].into() };
        let six = Neighbour { index, address: "2001:db8::7".parse().unwrap() };
        let entries = || ip("neigh show proxy").lines().count();
        let start = || neighbours::Guard::spawn(&program(), &["neighbour-guard"]).unwrap();
        let orders = [(four, true), (six, true), (four, false)];
        for last in 0..=orders.len() {
            for answered in [false, true] {
                let mut guard = start();
                for (neighbour, there) in orders.iter().take(last) {
                    guard.set(*neighbour, *there).unwrap();
                    until("it answers", || !answered || guard.next().unwrap().is_some());
                }
                let found = entries();
                assert!(!answered || found == [0, 1, 2, 1][last], "{found} after {last} orders");
                kill(pid(guard.pid()), Signal::SIGKILL).unwrap();
                until("its end is seen", || guard.next().is_err());
                drop(guard);
                let next = start();
                until("the next one has removed what was left", || entries() == 0);
                drop(next);
            }
        }
        let mut guard = start();
        guard.set(six, true).unwrap();
        until("the kernel answers", || entries() == 1);
        drop(guard);
        assert_eq!(entries(), 0, "its end removes what it made");
    })
    .join()
    .unwrap();
}

/// What holds is never taken away by the guard's end: the rules are those before the order or after it, and the next guard takes them over.
fn block_killed(directory: &Path) {
    if !nix::unistd::geteuid().is_root() || Command::new("nft").arg("-v").output().is_err() {
        return println!("skipped: the block's guard needs root and nft");
    }
    let kept = directory.join("kept");
    std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let rules = |names: &[&str]| {
            let held = |name: &&str| block::Blocked {
                connection: (*name).to_owned(),
                carried: vec!["10.99.0.0/24".parse().unwrap()],
                exact: Vec::new(),
                own: Vec::new(),
                local_network: false,
                local_names: false,
                always: *name == "a",
                inward: false,
            };
            let held = names.iter().map(held).collect();
            block::Rules { tunnel: "tunnel0".into(), held, ..block::Rules::default() }
        };
        let start = || block::Guard::spawn(&program(), &["block-guard", kept.to_str().unwrap()]).unwrap();
        let orders: [&[&str]; 5] = [&["a"], &["a", "b"], &["b"], &[], &["a"]];
        for last in 0..=orders.len() {
            for answered in [false, true] {
                let mut guard = start();
                guard.begin().unwrap();
                for (i, names) in orders.iter().take(last).enumerate() {
                    guard.hold(&rules(names)).unwrap();
                    if answered || i + 1 < last {
                        guard.settle(|news| assert_eq!(news, block::News::Held)).unwrap();
                    }
                }
                kill(pid(guard.pid()), Signal::SIGKILL).unwrap();
                until("its end is seen", || guard.next().is_err());
                drop(guard);

                let at = |n: usize| n.checked_sub(1).map_or(Vec::new(), |n| orders[n].to_vec());
                let mut next = start();
                let mut found = next.begin().unwrap();
                found.sort();
                let after = found == at(last);
                assert!(
                    after || !answered && last > 0 && found == at(last - 1),
                    "{found:?} after {last} orders"
                );
                assert!(block::kept(&kept).is_ok(), "what is always held is read back whole");
                // The next one is obeyed, and a program that the killed one left running does not undo it.
                next.hold(&rules(&["b"])).unwrap();
                next.settle(|_| {}).unwrap();
                until("the next one holds", || block::held().unwrap() == ["b"]);
                next.hold(&rules(&[])).unwrap();
                next.settle(|_| {}).unwrap();
                until("and lets go", || block::held().unwrap().is_empty());
                drop(next);
            }
        }
    })
    .join()
    .unwrap();
}

/// Whom the reader of the configuration becomes.
const READER: &str = "nobody";

/// The reader's own program: like the programs of [`script`] it says in `directory` that it has begun with a configuration, and waits.
fn read_files(directory: &Path) {
    let account = privileges::find_user(READER).unwrap().unwrap();
    let note = |what: &str| {
        let mut file = std::fs::OpenOptions::new().append(true).open(directory.join(what)).unwrap();
        std::io::Write::write_all(&mut file, b"here\n").unwrap();
    };
    let names = |text: &[u8]| {
        note("began");
        while directory.join("hold").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        note("ended");
        String::from_utf8_lossy(text).lines().map(PathBuf::from).collect()
    };
    files::serve(&account, &directory.join("config"), &names).unwrap();
}

/// Where the reader is when it is killed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Reads {
    Nothing,
    /// It has the configuration, and not yet what that names.
    Configuration,
    /// It has sent a part of its answer, and waits for room.
    Answer,
    /// Its answer has come.
    Done,
}

/// It writes nothing, so that there is nothing to restore. At each step the daemon sees its end and takes no part of an answer for
/// the whole; the next one reads everything, and no reader outlives its daemon.
fn reader_killed(directory: &Path) {
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: the reader of the configuration needs root");
    }
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    for note in ["began", "ended"] {
        std::fs::write(directory.join(note), "").unwrap();
        std::fs::set_permissions(directory.join(note), PermissionsExt::from_mode(0o666)).unwrap();
    }
    // Root's own, and more than a socket holds.
    let large = directory.join("large");
    std::fs::write(&large, vec![7; 8 << 20]).unwrap();
    std::fs::set_permissions(&large, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(directory.join("config"), large.display().to_string()).unwrap();
    let start =
        || files::Reader::spawn(&program(), &["file-reader".as_ref(), directory.as_os_str()]).unwrap();
    let whole = |files: &Files| files.get(&large).unwrap().bytes.as_bytes().len() == 8 << 20;
    let answer = |reader: &mut files::Reader| {
        let mut come = None;
        until("it answers", || {
            come = reader.next().unwrap();
            come.is_some()
        });
        come.unwrap()
    };
    let readable = |reader: &files::Reader| {
        let watched = nix::poll::PollFd::new(reader.as_fd(), nix::poll::PollFlags::POLLIN);
        nix::poll::poll(&mut [watched], 0_u8).unwrap() > 0
    };
    let all = [Reads::Nothing, Reads::Configuration, Reads::Answer, Reads::Done];
    for (reads, is_killed) in all.into_iter().flat_map(|reads| [(reads, true), (reads, false)]) {
        let mut reader = start();
        let before = lines(directory.join("began"));
        match reads {
            Reads::Nothing => {}
            Reads::Configuration => {
                std::fs::write(directory.join("hold"), "").unwrap();
                reader.ask().unwrap();
                begun(directory, before);
            }
            Reads::Answer => {
                reader.ask().unwrap();
                until("a part has come", || readable(&reader));
            }
            Reads::Done => {
                reader.ask().unwrap();
                assert!(whole(&answer(&mut reader)));
            }
        }
        let process = pid(reader.pid());
        if is_killed {
            kill(process, Signal::SIGKILL).unwrap();
            until("its end is seen", || match reader.next() {
                Ok(None) => false,
                Ok(Some(_)) => panic!("{reads:?}: a part of an answer is no answer"),
                Err(_) => true,
            });
            assert!(reader.ask().is_err(), "{reads:?}: and orders fail");
        } else {
            // With the daemon, also while it waits for it.
            let _ = std::fs::remove_file(directory.join("hold"));
        }
        drop(reader);
        // Gone, or dead and not yet waited for.
        let stat = || std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        until("it has ended", || !stat().contains(')') || stat().contains(") Z "));
        let _ = std::fs::remove_file(directory.join("hold"));

        let mut next = start();
        next.ask().unwrap();
        assert!(whole(&answer(&mut next)), "{reads:?}");
        kill(pid(next.pid()), Signal::SIGTERM).unwrap();
        next.ask().unwrap();
        assert!(whole(&answer(&mut next)), "{reads:?}: it goes on after SIGTERM");
    }
}
