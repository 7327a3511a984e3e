//! The control socket: lines in, lines out, bounded in every direction.

use crate::common::{Directory, root};
use dormouse_io::control::{ControlEvent, ControlServer, Error, MAX_CLIENTS, MAX_REQUEST, MAX_UNREAD};
use dormouse_io::poller::{Interest, Poller};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How often a test waits for what must come, before it gives up.
const PATIENCE: usize = 30;

/// The next `n` events, and those that came with them. A client's going may take a moment: a program that another test of this
/// process is starting holds a copy of every descriptor until it has replaced itself.
fn requests(server: &mut ControlServer, n: usize) -> Vec<String> {
    let text = |event| match event {
        ControlEvent::Request { line, .. } => String::from_utf8(line).unwrap(),
        ControlEvent::Gone { .. } => "(gone)".into(),
    };
    let poller = Poller::new().unwrap();
    poller.add(&*server, 1, Interest::READ).unwrap();
    let mut all = Vec::new();
    for _ in 0..PATIENCE + 2 * n {
        all.extend(std::iter::from_fn(|| server.next()).map(text));
        if all.len() >= n {
            return all;
        }
        // A signal may end this early.
        poller.wait(&mut Vec::new(), Some(Duration::from_secs(1))).unwrap();
    }
    panic!("{n} events were to come, and only {all:?} did");
}

/// A server at the path of one that was killed. As long as a program that another test is starting holds the dead one's listener,
/// it looks alive.
fn taken_over(path: &Path) -> ControlServer {
    for _ in 1..PATIENCE {
        match ControlServer::bind(path, None) {
            Err(Error::InUse { .. }) => std::thread::sleep(Duration::from_secs(1)),
            other => return other.unwrap(),
        }
    }
    ControlServer::bind(path, None).unwrap()
}

fn closed(stream: &mut UnixStream) -> bool {
    !matches!(stream.read(&mut [0; 64]), Ok(n) if n > 0)
}

#[test]
fn requests_are_lines_however_they_arrive() {
    let directory = Directory::new("control-lines");
    let path = directory.join("run/socket");
    let mut server = ControlServer::bind(&path, None).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let poller = Poller::new().unwrap();
    poller.add(&server, 5, Interest::READ).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"one\ntwo\n\nthr").unwrap();
    let mut ready = Vec::new();
    poller.wait(&mut ready, None).unwrap();
    assert_eq!(ready[0].token, 5, "the whole server is one descriptor");
    assert_eq!(requests(&mut server, 2), ["one", "two"]);
    client.write_all(b"ee\n").unwrap();
    let Some(ControlEvent::Request { client: id, line }) = server.next() else { panic!("no request") };
    assert_eq!(line, b"three");
    assert_eq!(server.peer(id).unwrap().pid, i32::try_from(std::process::id()).unwrap());
    server.send(id, b"answer\n");
    let mut answer = String::new();
    BufReader::new(&client).read_line(&mut answer).unwrap();
    assert_eq!(answer, "answer\n");
    drop(client);
    assert_eq!(requests(&mut server, 1), ["(gone)"]);
    assert_eq!(server.clients(), 0);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_client_may_stop_talking_and_still_listen() {
    let directory = Directory::new("control-half");
    let path = directory.join("socket");
    let mut server = ControlServer::bind(&path, None).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"watch\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut id = None;
    for _ in 0..4 {
        if let Some(ControlEvent::Request { client, .. }) = server.next() {
            id = Some(client);
        }
    }
    server.send(id.unwrap(), b"event\n");
    let mut answer = String::new();
    BufReader::new(&client).read_line(&mut answer).unwrap();
    assert_eq!(answer, "event\n");
}

#[test]
fn endless_requests_and_deaf_clients_are_cut_off() {
    let directory = Directory::new("control-bounds");
    let path = directory.join("socket");
    let mut server = ControlServer::bind(&path, None).unwrap();
    let mut endless = UnixStream::connect(&path).unwrap();
    endless.write_all(&vec![b'x'; MAX_REQUEST + 1]).unwrap();
    assert_eq!(requests(&mut server, 1), ["(gone)"]);
    assert!(closed(&mut endless));

    let mut deaf = UnixStream::connect(&path).unwrap();
    deaf.write_all(b"watch\n").unwrap();
    let mut id = None;
    for _ in 0..4 {
        if let Some(ControlEvent::Request { client, .. }) = server.next() {
            id = Some(client);
        }
    }
    let id = id.unwrap();
    for _ in 0..(3 * MAX_UNREAD / 1024) {
        server.send(id, &[b'e'; 1024]);
    }
    assert_eq!(requests(&mut server, 1), ["(gone)"]);
    server.send(id, b"to nobody\n");
}

#[test]
fn clients_are_counted() {
    let directory = Directory::new("control-count");
    let path = directory.join("socket");
    let mut server = ControlServer::bind(&path, None).unwrap();
    let mut clients = Vec::new();
    for _ in 0..MAX_CLIENTS {
        clients.push(UnixStream::connect(&path).unwrap());
        let _ = server.next();
    }
    let mut one_more = UnixStream::connect(&path).unwrap();
    let _ = server.next();
    assert_eq!(server.clients(), MAX_CLIENTS);
    assert!(closed(&mut one_more));
    drop(clients);
    assert_eq!(requests(&mut server, MAX_CLIENTS).len(), MAX_CLIENTS);
    let mut again = UnixStream::connect(&path).unwrap();
    again.write_all(b"hello\n").unwrap();
    assert_eq!(requests(&mut server, 1), ["hello"]);
}

#[test]
fn a_running_daemon_is_found_and_a_crashed_one_is_cleared_away() {
    let directory = Directory::new("control-stale");
    let path = directory.join("socket");
    let server = ControlServer::bind(&path, None).unwrap();
    let error = ControlServer::bind(&path, None).unwrap_err();
    assert!(
        matches!(error, Error::InUse { pid: Some(pid), .. } if pid == i32::try_from(std::process::id()).unwrap()),
        "{error}"
    );
    assert!(path.exists(), "the running daemon keeps its socket");
    drop(server);
    // What a killed daemon leaves: the file without a listener.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(taken_over(&path));
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(ControlServer::bind(&path, None), Err(Error::NotASocket { .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    let error =
        ControlServer::bind(&directory.join("other"), Some("no-such-group-here")).unwrap_err().to_string();
    assert!(error.contains("no-such-group-here") && error.contains("daemon.group"), "{error}");
}

#[test]
fn a_group_opens_the_socket_to_its_members() {
    if !root("a_group_opens_the_socket_to_its_members") {
        return;
    }
    let directory = Directory::new("control-group");
    let path = directory.join("socket");
    let group = nix::unistd::Group::from_gid(1.into()).unwrap().expect("Linux has a group 1");
    let _server = ControlServer::bind(&path, Some(&group.name)).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o660);
    assert_eq!(std::os::unix::fs::MetadataExt::gid(&meta), 1);
}
