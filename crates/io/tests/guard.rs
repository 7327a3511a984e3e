//! The DNS guard as a process: it obeys, it outlives SIGTERM, and the end of the daemon makes it restore DNS. A program without
//! test harness, because it is the guard's program too.

use dormouse_io::resolver::{Guard, GuardReply, Method, Options, Settings, serve};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};

fn options(directory: &Path) -> Options {
    Options {
        resolv_conf: directory.join("resolv.conf"),
        nsswitch_conf: directory.join("nsswitch.conf"),
        bus: Some(format!("unix:path={}/nobody", directory.display())),
        programs: Vec::new(),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let (Some("dns-guard"), Some(directory)) = (arguments.next().as_deref(), arguments.next()) {
        serve(options(Path::new(&directory))).expect("the guard serves");
        return;
    }
    let directory: PathBuf = std::env::temp_dir().join(format!("dormouse-io-guard-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let outcome = std::panic::catch_unwind(|| obeys_and_restores(&directory));
    let _ = std::fs::remove_dir_all(&directory);
    outcome.expect("see above");
    println!("ok: the guard obeys, outlives SIGTERM, and restores DNS after the daemon");
}

fn obeys_and_restores(directory: &Path) {
    let path = directory.join("resolv.conf");
    std::fs::write(&path, "nameserver 192.0.2.1\n").expect("a file");
    let program = std::env::current_exe().expect("a program");
    let mut guard =
        Guard::spawn(&program, &["dns-guard", &directory.display().to_string()]).expect("a process");
    guard.choose().expect("an order");
    let GuardReply::Done(choice) = guard.wait().expect("an answer") else { panic!("refused") };
    assert_eq!(choice.method, Method::File, "{choice}");
    let settings = Settings {
        interface: "dm0".into(),
        index: 7,
        servers: vec!["10.9.0.1".parse().expect("an address")],
        domains: Vec::new(),
        exclusive: true,
    };
    guard.set(settings.clone()).expect("an order");
    assert!(matches!(guard.wait().expect("an answer"), GuardReply::Done(_)));
    let content = || std::fs::read_to_string(&path).expect("a file");
    assert!(content().contains("nameserver 10.9.0.1\n"));
    guard.revert().expect("an order");
    assert_eq!(guard.wait().expect("an answer"), GuardReply::Reverted);
    assert_eq!(content(), "nameserver 192.0.2.1\n");

    guard.set(settings).expect("an order");
    assert!(matches!(guard.wait().expect("an answer"), GuardReply::Done(_)));
    assert_eq!(guard.next().expect("no error"), None, "there is nothing more, and asking does not wait");
    let pid = Pid::from_raw(i32::try_from(guard.pid()).expect("a process id"));
    kill(pid, Signal::SIGTERM).expect("our own child");
    guard.choose().expect("an order");
    assert!(matches!(guard.wait().expect("it goes on"), GuardReply::Done(_)));
    drop(guard);
    assert_eq!(content(), "nameserver 192.0.2.1\n");
}
