//! What stands on the ways between a device, its gateways and their database, and stops the world at one message: it kills a party just before
//! that message is said, or just after it was heard. Owns the sockets and threads; must never change a message.
//!
//! "Before" means that the message is never said or never heard, if who dies is one of its two ends. "After" means that it was heard and acted
//! on, and that whatever the dead one has said since is lost. A third one that dies changes nothing about the message itself.

use anyhow::{Context, Result, anyhow};
use dormouse_interop::cluster::OUTER;
use dormouse_testbed::Host;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Who may die.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Party {
    Device,
    Gateway(usize),
    Database,
}

/// On which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Leg {
    /// Between the device and a gateway: datagrams.
    Air(usize),
    /// Between a gateway and the database: requests up to where the server is asked to answer, and whole answers.
    Database(usize),
}

/// Where the world stops.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Trap {
    pub(crate) leg: Leg,
    /// Which message of this leg since the trap was set: from 1.
    pub(crate) step: usize,
    pub(crate) victim: Party,
    pub(crate) after: bool,
}

/// What a party that has heard something needs to act on it.
const ACTS: Duration = Duration::from_millis(30);
/// Between two looks at whether the test has ended.
const TURN: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    trap: Option<(Trap, u32)>,
    /// Messages since the last trap was set, or the counting began.
    said: Vec<(Leg, String)>,
    /// The message at which it closed.
    closed: Option<String>,
    dead: Option<Party>,
}

/// What all relays of a test ask about each message, one at a time.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<State>>, Arc<AtomicBool>);

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts anew from now on; the process `pid` dies when the trap closes.
    pub(crate) fn set(&self, trap: Option<(Trap, u32)>) {
        *self.lock() = State { trap, ..State::default() };
    }

    /// What was said at which the trap closed, if it did.
    pub(crate) fn closed(&self) -> Option<String> {
        self.lock().closed.clone()
    }

    /// Takes the trap away if it is there still.
    pub(crate) fn clear(&self) {
        self.lock().trap = None;
    }

    /// Who is dead is started again: what comes from it is heard.
    pub(crate) fn revive(&self) {
        self.lock().dead = None;
    }

    /// What was said since counting began.
    pub(crate) fn said(&self) -> Vec<(Leg, String)> {
        self.lock().said.clone()
    }

    /// Ends the relays' threads.
    pub(crate) fn end(&self) {
        self.1.store(true, Ordering::Relaxed);
    }

    fn ended(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    /// Hands a message on by `deliver`, unless it is lost; nothing else is said meanwhile.
    fn pass(&self, leg: Leg, [from, to]: [Party; 2], what: &str, deliver: impl FnOnce()) {
        let mut state = self.lock();
        if state.dead == Some(from) || state.dead == Some(to) {
            return;
        }
        // Statements are prepared once on each connection: what a step is does not depend on how old that is.
        if what.starts_with("P<") || what.starts_with('1') {
            return deliver();
        }
        state.said.push((leg, what.to_owned()));
        let now = state.said.iter().filter(|(l, _)| *l == leg).count();
        let Some((trap, pid)) = state.trap.filter(|(t, _)| t.leg == leg && t.step == now) else {
            return deliver();
        };
        state.trap = None;
        state.closed = Some(what.to_owned());
        state.dead = Some(trap.victim);
        let die = || {
            let _gone = i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
        };
        if trap.after {
            deliver();
            std::thread::sleep(ACTS);
            die();
        } else {
            die();
            if ![from, to].contains(&trap.victim) {
                deliver();
            }
        }
    }
}

/// Stands for a gateway at `address`, which is given to `core`: datagrams of the one device go to the gateway and back.
pub(crate) fn air(watch: &Watch, core: &Host, gateway: usize, address: &str) -> Result<()> {
    core.ip(&format!("addr add {address}/32 dev lo"))?;
    for port in [500, 4500] {
        let near = SocketAddr::new(address.parse()?, port);
        let far = SocketAddr::new(OUTER[gateway].parse()?, port);
        let (near, far) = core.run(move || -> Result<(UdpSocket, UdpSocket)> {
            let sockets = (UdpSocket::bind(near)?, UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?);
            sockets.1.connect(far)?;
            Ok(sockets)
        })??;
        near.set_read_timeout(Some(TURN))?;
        far.set_read_timeout(Some(TURN))?;
        let device = Arc::new(Mutex::new(None::<SocketAddr>));
        let (leg, there) = (Leg::Air(gateway), Party::Gateway(gateway));
        let (a, b, seen, w) = (near.try_clone()?, far.try_clone()?, device.clone(), watch.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !w.ended() {
                let Ok((n, from)) = a.recv_from(&mut buffer) else { continue };
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
                let text = datagram(port, &buffer[..n]);
                // A gateway that is down refuses, which is what the device is to notice by itself.
                w.pass(leg, [Party::Device, there], &text, || _ = b.send(&buffer[..n]));
            }
        });
        let w = watch.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !w.ended() {
                let Ok(n) = far.recv(&mut buffer) else { continue };
                let to = *device.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(to) = to else { continue };
                let text = datagram(port, &buffer[..n]);
                w.pass(leg, [there, Party::Device], &text, || _ = near.send_to(&buffer[..n], to));
            }
        });
    }
    Ok(())
}

/// What a datagram is, for people.
fn datagram(port: u16, bytes: &[u8]) -> String {
    let ike = match (port, bytes) {
        (500, all) => all.get(18).copied(),
        (_, [0, 0, 0, 0, ike @ ..]) => ike.get(18).copied(),
        _ => None,
    };
    ike.map_or_else(|| "ESP".into(), |exchange| format!("IKE {exchange}"))
}

/// Listens in a gateway for its daemon, and speaks to the server's Unix socket. Returns the port.
pub(crate) fn database(watch: &Watch, host: &Host, gateway: usize, socket: &Path) -> Result<u16> {
    let listener = host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let (watch, socket) = (watch.clone(), PathBuf::from(socket));
    std::thread::spawn(move || {
        while !watch.ended() {
            match listener.accept() {
                // A server that is down: the connection ends at once.
                Ok((client, _)) => _ = serve(&watch, gateway, client, &socket),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    });
    Ok(port)
}

fn serve(watch: &Watch, gateway: usize, client: TcpStream, socket: &Path) -> Result<()> {
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    let server = UnixStream::connect(socket).context("the server")?;
    let (leg, own) = (Leg::Database(gateway), Party::Gateway(gateway));
    let (mut from, mut to, w) = (client.try_clone()?, server.try_clone()?, watch.clone());
    std::thread::spawn(move || {
        let mut first = true;
        let _ended = pump(&mut from, Side::Client, |what, bytes| {
            let what = if std::mem::take(&mut first) { "startup" } else { what };
            w.pass(leg, [own, Party::Database], what, || _ = to.write_all(bytes));
        });
        let _closed = to.shutdown(std::net::Shutdown::Both);
    });
    let (mut from, mut to, w) = (server, client, watch.clone());
    std::thread::spawn(move || {
        let _ended = pump(&mut from, Side::Server, |what, bytes| {
            w.pass(leg, [Party::Database, own], what, || _ = to.write_all(bytes));
        });
        let _closed = to.shutdown(std::net::Shutdown::Both);
    });
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Reads messages of PostgreSQL's protocol 3 and hands them on in groups: a client's up to where it waits for an answer, a server's up to where
/// that is whole.
fn pump(from: &mut impl Read, side: Side, mut hand: impl FnMut(&str, &[u8])) -> Result<()> {
    let (mut group, mut kinds) = (Vec::new(), String::new());
    if side == Side::Client {
        // The first message has no type.
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let mut start = vec![0; usize::try_from(u32::from_be_bytes(length))?.saturating_sub(4)];
        from.read_exact(&mut start)?;
        hand("startup", &[&length[..], &start].concat());
    }
    loop {
        let mut head = [0; 5];
        if let Err(e) = from.read_exact(&mut head) {
            if !group.is_empty() {
                hand(&kinds, &group);
            }
            return Err(anyhow!(e));
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; usize::try_from(length)?.saturating_sub(4)];
        from.read_exact(&mut body)?;
        let kind = char::from(head[0]);
        kinds.push(kind);
        if kind == 'P' || kind == 'Q' {
            let text: String = String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).collect();
            kinds.push_str(&format!("<{}>", text.trim().chars().take(60).collect::<String>()));
        }
        group.extend_from_slice(&head);
        group.extend_from_slice(&body);
        let whole = match side {
            Side::Client => "SQHXp".contains(kind),
            Side::Server => "ZAR".contains(kind),
        };
        if whole {
            hand(&kinds, &group);
            group.clear();
            kinds.clear();
        }
    }
}
