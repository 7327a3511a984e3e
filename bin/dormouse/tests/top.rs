//! `dormouse top` on a pseudo terminal, with a daemon that only answers: it pages through a gateway's sessions, and leaves the terminal as it was when a signal ends it.

#![cfg(feature = "top")]
#![expect(clippy::disallowed_methods, reason = "drives a real process by the real clock")]

use dormouse_control::{
    DaemonStatus, Gateway, Reply, Request, Response, SaStatus, Session, Sessions, Status, Verb, line,
};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::tcgetattr;
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(40);
const PAGE: usize = 1_000;
const ALL: usize = 2_500;

fn session(n: usize) -> Session {
    Session {
        connection: "staff".into(),
        peer: format!("user{n:06}.test"),
        ike: SaStatus { spi: format!("{n:016x}"), ..SaStatus::default() },
        ..Session::default()
    }
}

fn page(after: usize) -> Sessions {
    let end = (after + PAGE).min(ALL);
    Sessions { sessions: (after..end).map(session).collect(), more: (end < ALL).then_some(end as u64) }
}

fn answer(stream: UnixStream) {
    let mut out = stream.try_clone().expect("a descriptor");
    for request in BufReader::new(stream).lines().map_while(Result::ok) {
        let reply = match Request::parse(request.as_bytes()).expect("a request").verb {
            Verb::Status => {
                let Sessions { sessions, more } = page(0);
                let gateway = Gateway { sessions_total: ALL, sessions, more, ..Gateway::default() };
                let daemon = DaemonStatus { release: "0".into(), ..DaemonStatus::default() };
                Reply::Status(Box::new(Status { daemon, gateway: Some(gateway), ..Status::default() }))
            }
            Verb::Sessions { after } => Reply::Sessions(page(after as usize)),
            other => panic!("{other:?}"),
        };
        if out.write_all(line(&Response::ok(reply)).expect("JSON").as_bytes()).is_err() {
            return;
        }
    }
}

/// A daemon that answers, until the file is gone.
struct Daemon(PathBuf);

impl Daemon {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dormouse-top-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a socket");
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|s| drop(std::thread::spawn(|| answer(s))))
        });
        Self(path)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// `top`, and its terminal.
struct Top {
    process: Child,
    keys: File,
    come: Receiver<Vec<u8>>,
    shown: String,
    /// Keeps the terminal, to look at it afterwards.
    slave: File,
}

impl Top {
    fn new(socket: &Path, arguments: &[&str]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a pseudo terminal");
        let slave = File::from(pty.slave);
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let process = Command::new(env!("CARGO_BIN_EXE_dormouse"))
            .arg("--socket")
            .arg(socket)
            .arg("top")
            .args(arguments)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("the program");
        let keys = File::from(pty.master);
        let mut screen = keys.try_clone().expect("a descriptor");
        let (sender, come) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut chunk) {
                if sender.send(chunk.get(..n).unwrap_or_default().to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { process, keys, come, shown: String::new(), slave }
    }

    fn is_raw(&self) -> bool {
        use nix::sys::termios::LocalFlags;
        let now = tcgetattr(self.slave.as_fd()).expect("a terminal").local_flags;
        !now.intersects(LocalFlags::ICANON | LocalFlags::ECHO)
    }

    /// Waits until this was shown, and forgets what was shown before.
    fn until(&mut self, what: &str) {
        while !self.shown.contains(what) {
            match self.come.recv_timeout(PATIENCE) {
                Ok(more) => self.shown += &String::from_utf8_lossy(&more),
                Err(e) => panic!("{what}: {e}\n{}", self.shown),
            }
        }
        self.shown.clear();
    }

    /// Has the window drawn anew until its last line has this: of a picture that is there, only what changes is drawn.
    fn redraw_until(&mut self, what: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.shown.clear();
            self.press("\u{c}");
            while let Ok(more) = self.come.recv_timeout(Duration::from_millis(300)) {
                self.shown += &String::from_utf8_lossy(&more);
            }
            if self.shown.contains(what) {
                return self.shown.clear();
            }
            assert!(Instant::now() < end, "{what}: {}", self.shown);
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// It has ended well, and the terminal is as it was.
    fn ended(mut self) {
        let status = self.process.wait().expect("a process");
        assert!(status.success(), "{status}");
        self.until("\u{1b}[?1049l");
        assert!(!self.is_raw(), "the terminal is still raw");
    }
}

#[test]
fn it_pages_through_all_sessions_and_a_key_ends_it() {
    let daemon = Daemon::new("pages");
    let mut top = Top::new(&daemon.0, &["--sort", "who"]);
    top.redraw_until("1-19 of 2500  q quit");
    assert!(top.is_raw());
    // The last one came with the third page.
    top.press("/user002499\r");
    top.redraw_until("1-1 of 1 (of 2500, filter \"user002499\")");
    top.press("q");
    top.ended();
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let daemon = Daemon::new("signal");
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut top = Top::new(&daemon.0, &[]);
        top.until("user000000.test");
        assert!(top.is_raw());
        kill(Pid::from_raw(top.process.id() as i32), signal).expect("a process");
        top.ended();
    }
}

#[test]
fn a_daemon_that_is_not_there_is_said_before_the_window_is_taken() {
    let mut top = Top::new(Path::new("/nonexistent/dormouse.sock"), &[]);
    let status = top.process.wait().expect("a process");
    assert_eq!(status.code(), Some(3));
    top.until("no daemon answers");
    assert!(!top.is_raw());
}
