//! Many clients of a gateway, or of several, that do something at once: full exchanges, resumptions, address updates, or nothing but their
//! first packet. All of them are SAs of one IKE endpoint in one thread, over one UDP socket that has an address for each; what
//! they talk to is a gateway over real sockets, in this process or another.
//!
//! Owns the clients and their clock. Every result is checked: a session counts once its exchange is over, and with a server to
//! ping once that has answered through the tunnel as well. Nothing is left out because it took long: a crowd that is stuck is an
//! error, and so is a client that fails, unless its caller counts those ([`Crowd::release`]).

mod child;
mod drive;
mod pki;
mod site;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use child::Child;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, EspInUdp, Keepalive, Retransmission};
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::{Endpoint, LoadReport, SleepFlags, Sleeping};
use dormouse_io::clock::{BootClock, unix_now};
use dormouse_io::entropy::OsEntropy;
use dormouse_io::udp::Udp;
use dormouse_keying::{ChildId, SaId};
use dormouse_sansio::{Carrier, Instant, Path};
pub use pki::{Certificates, DOMAIN, GATEWAY_NAME, Pki, Proof, device};
pub use site::{NETWORKS, SERVER, Site};

/// Nothing takes this long: something is stuck.
const STUCK: Duration = Duration::from_secs(60);
/// A ping that is not answered in this time is lost, and sent again.
const PING_AGAIN: Duration = Duration::from_secs(1);
/// How long the crowd waits at a time: it looks at its own clock and at the interruption so often.
const LOOK: Duration = Duration::from_millis(100);
/// The gateway's answer to an announced sleep is awaited so long.
const ANNOUNCE: Duration = Duration::from_secs(10);
/// The non-ESP marker (RFC 3948 section 2.2).
const MARKER: usize = 4;

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A full exchange: IKE_SA_INIT and IKE_AUTH.
    Full,
    /// Resumption as RFC 5723 has it: two round trips.
    Strict,
    /// Resumption in one round trip (`docs/wire/dormancy.md`).
    Quick,
    /// It appears at its other address and says so (MOBIKE); its first packet does not wait for the answer.
    Update,
    /// Nothing: the session is still there, and the first packet goes out at once.
    Held,
}

/// Who they are and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many.
    pub count: usize,
    /// The NAT-traversal port of the gateway that all of them talk to, unless they turn to another ([`Crowd::turn_to`]).
    pub gateway: SocketAddr,
    /// Two ranges of addresses that the socket may send from. Each client has an address of each, and moves between the two.
    pub homes: [Ipv4Addr; 2],
    /// Over so many networks of 256 addresses the clients are spread in turn, and at most 254 in each; with one, their addresses follow each other. A
    /// gateway under load asks clients of one network for work.
    pub networks: usize,
    /// Pinged through the tunnel as soon as a session is there.
    pub server: Ipv4Addr,
    /// How often and for how long a client repeats a request.
    pub retransmission: Retransmission,
    /// Set when the crowd is to stop.
    pub interrupted: Arc<AtomicBool>,
}

/// A client is done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The number of the client.
    pub client: usize,
    /// From the moment at which it began until its exchange was over.
    pub ready: Duration,
    /// Until the server's first answer came through the tunnel.
    pub answered: Duration,
    /// Answers of the gateway to its requests: cookies count.
    pub round_trips: u64,
}

/// What became of clients that began at one moment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When they began.
    pub released: Instant,
    /// Those that are done, in the order in which they were.
    pub done: Vec<Done>,
    /// Those whose exchange failed, and why.
    pub failed: Vec<(usize, String)>,
}

/// What went wrong on the way, since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// IKE messages that the clients sent again.
    pub repeated: u64,
    /// Pings that were not answered within a second, and sent again.
    pub pings: u64,
    /// Datagrams of the gateway that no client took: answers to what was repeated, mostly.
    pub discarded: u64,
}

impl Losses {
    /// Those since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            repeated: self.repeated - before.repeated,
            pings: self.pings - before.pings,
            discarded: self.discarded - before.discarded,
        }
    }
}

/// What a client is doing.
#[derive(Clone, Copy, Debug)]
struct Doing {
    task: Task,
    began: Instant,
    /// Round trips of the SA before.
    trips: u64,
    ready: Option<Duration>,
    pinged: Option<Instant>,
    answered: Option<Duration>,
}

struct Client {
    connection: Arc<Connection>,
    gateway: SocketAddr,
    home: usize,
    sa: Option<SaId>,
    child: Option<ChildId>,
    inner: Option<Ipv4Addr>,
    ticket: Option<ClientTicket>,
    doing: Option<Doing>,
    pings: u16,
}

impl Client {
    /// The gateway was heard on the present session: it counts the ticket that came with it.
    fn heard(&mut self) {
        if let Some(ticket) = &mut self.ticket {
            ticket.unheard = 0;
        }
    }
}

/// Many clients of one gateway, on one socket.
pub struct Crowd {
    settings: Settings,
    endpoint: Endpoint,
    socket: Udp,
    clients: Vec<Client>,
    by_sa: BTreeMap<SaId, usize>,
    children: BTreeMap<ChildId, Child>,
    /// Pings that are to be sent.
    outgoing: Vec<(Path, Vec<u8>)>,
    done: Vec<Done>,
    failed: Vec<(usize, String)>,
    /// Sessions that are being closed, and announcements and questions that wait for an answer.
    open: usize,
    report: Option<LoadReport>,
    losses: Losses,
    looked: Instant,
    buffer: Vec<u8>,
}

impl Crowd {
    /// Clients of `pki` that have no session yet, on `socket`, which must be bound to no address or to all of them.
    ///
    /// # Errors
    /// If a certificate cannot be issued.
    pub fn new(pki: &Pki, socket: Udp, settings: Settings) -> Result<Self> {
        let client = |number| -> Result<Client> {
            let mut connection = pki.client(number)?;
            // All of it goes through one socket, and nothing is sent but what is asked for.
            connection.esp_in_udp = EspInUdp::Always;
            connection.timing.keepalive = Keepalive::Off;
            connection.timing.retransmission = settings.retransmission;
            let connection = Arc::new(connection);
            Ok(Client {
                connection,
                gateway: settings.gateway,
                home: 0,
                sa: None,
                child: None,
                inner: None,
                ticket: None,
                doing: None,
                pings: 0,
            })
        };
        let clients = (0..settings.count).map(client).collect::<Result<_>>()?;
        let mut endpoint = Endpoint::new(EndpointConfig::default(), Box::new(OsEntropy));
        let now = BootClock::now();
        endpoint.set_wall_clock(now, unix_now());
        Ok(Self {
            settings,
            endpoint,
            socket,
            clients,
            by_sa: BTreeMap::new(),
            children: BTreeMap::new(),
            outgoing: Vec::new(),
            done: Vec::new(),
            failed: Vec::new(),
            open: 0,
            report: None,
            losses: Losses::default(),
            looked: now,
            buffer: vec![0; 65_536],
        })
    }

    /// The first `count` clients do `task`, all at once: what they have to say first is made beforehand and sent in one go, and
    /// their clocks start when that begins. Returns what each of them needed.
    ///
    /// # Errors
    /// If an exchange fails, one of them is stuck, or the crowd is interrupted.
    pub fn run(&mut self, count: usize, task: Task) -> Result<Vec<Done>> {
        let tasks: Vec<(usize, Task)> = (0..count).map(|number| (number, task)).collect();
        let outcome = self.release(&tasks, || ())?;
        if let Some((number, why)) = outcome.failed.first() {
            bail!("client {number}: {why}");
        }
        Ok(outcome.done)
    }

    /// Clients, by their numbers, do each its task, all at once as in [`Crowd::run`], and in this order. One whose exchange fails costs no
    /// other its own. `begins` is called before the first message goes out.
    ///
    /// # Errors
    /// If one of them is stuck or cannot begin, or the crowd is interrupted.
    pub fn release(&mut self, tasks: &[(usize, Task)], begins: impl FnOnce()) -> Result<Outcome> {
        let start = BootClock::now();
        (self.done, self.failed) = (Vec::new(), Vec::new());
        for &(number, task) in tasks {
            self.begin(number, task)?;
        }
        begins();
        let released = BootClock::now();
        for &(number, _) in tasks {
            if let Some(doing) = &mut self.client(number)?.doing {
                doing.began = released;
                doing.pinged = doing.pinged.map(|_| released);
            }
        }
        self.flush()?;
        while self.done.len() + self.failed.len() < tasks.len() {
            let (done, failed) = (self.done.len(), self.failed.len());
            self.turn(start, || format!("{done} of {} clients are done, {failed} failed", tasks.len()))?;
            self.flush()?;
        }
        let (done, failed) = (std::mem::take(&mut self.done), std::mem::take(&mut self.failed));
        Ok(Outcome { released, done, failed })
    }

    /// What client `number` begins from now on goes to this gateway: its NAT-traversal port.
    ///
    /// # Errors
    /// If there is no such client.
    pub fn turn_to(&mut self, number: usize, gateway: SocketAddr) -> Result<()> {
        self.client(number)?.gateway = gateway;
        Ok(())
    }

    /// Client `thief` has what client `owner` has on its disk: its name and its ticket, of which both have a copy now. It stays where it is.
    ///
    /// # Errors
    /// If the owner has no ticket.
    pub fn copy_ticket(&mut self, owner: usize, thief: usize) -> Result<()> {
        let Client { connection, ticket, .. } = self.client(owner)?;
        let ticket = ticket.clone().with_context(|| format!("client {owner} has no ticket"))?;
        let connection = connection.clone();
        let thief = self.client(thief)?;
        (thief.connection, thief.ticket) = (connection, Some(ticket));
        Ok(())
    }

    /// The inner address of client `number`'s last session.
    #[must_use]
    pub fn inner(&self, number: usize) -> Option<Ipv4Addr> {
        self.clients.get(number).and_then(|client| client.inner)
    }

    /// Whether client `number` has a ticket to resume with.
    #[must_use]
    pub fn has_ticket(&self, number: usize) -> bool {
        self.clients.get(number).is_some_and(|client| client.ticket.is_some())
    }

    /// The first `count` clients close their sessions, and the gateway confirms it.
    ///
    /// # Errors
    /// As [`Crowd::run`].
    pub fn close(&mut self, count: usize) -> Result<()> {
        let now = BootClock::now();
        for client in self.clients.iter().take(count) {
            self.open += usize::from(client.sa.is_some_and(|sa| self.endpoint.close(now, sa)));
        }
        self.until_settled("closing")
    }

    /// All clients drop sessions and tickets without a message: their gateway has lost both.
    ///
    /// # Errors
    /// If the endpoint is not what it should be.
    pub fn forget(&mut self) -> Result<()> {
        let now = BootClock::now();
        for (sa, number) in std::mem::take(&mut self.by_sa) {
            self.endpoint.forget(now, sa);
            let client = self.client(number)?;
            (client.sa, client.child, client.ticket) = (None, None, None);
        }
        self.events()
    }

    /// The first `count` clients announce that they sleep, for `expect` at most, and the gateway promises to hold their sessions.
    ///
    /// # Errors
    /// If it does not, and as [`Crowd::run`].
    pub fn sleep(&mut self, count: usize, expect: Duration) -> Result<()> {
        let first: Vec<usize> = (0..count).collect();
        self.sleep_these(&first, expect)
    }

    /// The same of these clients.
    ///
    /// # Errors
    /// As [`Crowd::sleep`].
    pub fn sleep_these(&mut self, numbers: &[usize], expect: Duration) -> Result<()> {
        for number in numbers {
            self.announce(*number, expect)?;
        }
        self.until_settled("announcing a sleep")
    }

    /// The gateway's present estimate of how long sessions take to come back, as it tells its devices. The first client asks, by
    /// announcing a sleep and calling it off.
    ///
    /// # Errors
    /// If that has no session, and as [`Crowd::run`].
    pub fn ask_load(&mut self) -> Result<LoadReport> {
        self.report = None;
        self.announce(0, Duration::from_secs(60))?;
        self.until_settled("asking for the load")?;
        let now = BootClock::now();
        let sa = self.clients.first().and_then(|c| c.sa).context("the first client has no session")?;
        self.endpoint.woke(now, sa);
        self.endpoint.probe(now, sa, ANNOUNCE);
        self.open += 1;
        self.until_settled("waking")?;
        self.report.take().context("the gateway did not tell its load")
    }

    /// Losses since the beginning.
    #[must_use]
    pub fn losses(&self) -> Losses {
        Losses { repeated: self.endpoint.stats().retransmissions, ..self.losses }
    }

    /// Where the first `count` clients are now.
    pub fn addresses(&self, count: usize) -> impl Iterator<Item = Ipv4Addr> {
        (0..count.min(self.clients.len())).map(|number| self.address(number))
    }

    fn announce(&mut self, number: usize, expect: Duration) -> Result<()> {
        let client = self.client(number)?;
        let sa = client.sa.with_context(|| format!("client {number} has no session"))?;
        let marks = client.child.and_then(|id| self.children.get(&id)).map(Child::mark).into_iter().collect();
        let said = Sleeping { flags: SleepFlags::default(), expect: Some(expect), marks };
        ensure!(
            self.endpoint.announce_sleep(BootClock::now(), sa, said, None, ANNOUNCE),
            "client {number} is gone"
        );
        self.open += 1;
        Ok(())
    }

    fn until_settled(&mut self, what: &str) -> Result<()> {
        let start = BootClock::now();
        self.flush()?;
        while self.open > 0 {
            let open = self.open;
            self.turn(start, || format!("{what}: {open} clients have no answer"))?;
            self.flush()?;
        }
        Ok(())
    }

    fn client(&mut self, number: usize) -> Result<&mut Client> {
        self.clients.get_mut(number).with_context(|| format!("there is no client {number}"))
    }

    fn address(&self, number: usize) -> Ipv4Addr {
        let home = self.clients.get(number).map_or(0, |c| c.home);
        let base = self.settings.homes.get(home).copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let place = place(number, self.settings.networks);
        Ipv4Addr::from_bits(base.to_bits().wrapping_add(u32::try_from(place).unwrap_or(0)))
    }

    fn number_at(&self, address: IpAddr) -> Option<usize> {
        let IpAddr::V4(address) = address else { return None };
        let of = |base: &Ipv4Addr| address.to_bits().checked_sub(base.to_bits());
        let places = self.settings.homes.iter().filter_map(of).filter_map(|n| usize::try_from(n).ok());
        let numbers = places.filter_map(|place| number(place, self.settings.networks));
        numbers.filter(|n| *n < self.clients.len()).min()
    }

    fn path(&self, number: usize) -> Path {
        let local = SocketAddr::new(self.address(number).into(), self.socket.local_addr().port());
        let remote = self.clients.get(number).map_or(self.settings.gateway, |client| client.gateway);
        Path { local, remote, carrier: Carrier::NatT }
    }

    /// Makes the first message of client `number`.
    fn begin(&mut self, number: usize, task: Task) -> Result<()> {
        let now = BootClock::now();
        let client = self.client(number)?;
        let doing = Doing { task, began: now, trips: 0, ready: None, pinged: None, answered: None };
        client.doing = Some(doing);
        let (connection, old) = (client.connection.clone(), client.sa);
        let ticket = match task {
            Task::Strict | Task::Quick => {
                let mut ticket =
                    client.ticket.take().with_context(|| format!("client {number} has no ticket"))?;
                // What the client remembers of its CHILD SA is what it takes to ask for one round trip.
                match task {
                    Task::Strict => ticket.child = None,
                    _ => ensure!(ticket.child.is_some(), "the gateway does not resume in one round trip"),
                }
                Some(ticket)
            }
            _ => None,
        };
        match task {
            Task::Full | Task::Strict | Task::Quick => {
                if let Some(old) = client.sa.take() {
                    client.child = None;
                    self.by_sa.remove(&old);
                    self.endpoint.forget(now, old);
                }
                let path = self.path(number);
                let sa = match ticket {
                    Some(ticket) => self.endpoint.resume(now, connection, ticket, path),
                    None => self.endpoint.connect(now, connection, path),
                };
                self.by_sa.insert(sa, number);
                self.client(number)?.sa = Some(sa);
            }
            Task::Update => {
                let sa = old.with_context(|| format!("client {number} has no session to move"))?;
                client.home = 1 - client.home;
                let trips = self.endpoint.sa_stats(sa).map_or(0, |s| s.round_trips);
                let path = self.path(number);
                ensure!(self.endpoint.set_path(now, sa, path), "client {number} has lost its session");
                if let Some(doing) = &mut self.client(number)?.doing {
                    doing.trips = trips;
                }
                self.ping(number)?;
            }
            Task::Held => {
                let sa = old.with_context(|| format!("client {number} has no session that is held"))?;
                self.endpoint.woke(now, sa);
                let trips = self.endpoint.sa_stats(sa).map_or(0, |s| s.round_trips);
                if let Some(doing) = &mut self.client(number)?.doing {
                    (doing.ready, doing.trips) = (Some(Duration::ZERO), trips);
                }
                self.ping(number)?;
            }
        }
        Ok(())
    }

    /// Makes client `number` ping the server.
    fn ping(&mut self, number: usize) -> Result<()> {
        let (server, path) = (self.settings.server, self.path(number));
        let client = self.client(number)?;
        let (inner, id) = (client.inner.context("no inner address")?, client.child.context("no CHILD SA")?);
        client.pings = client.pings.wrapping_add(1);
        let sequence = client.pings;
        if let Some(doing) = &mut client.doing {
            doing.pinged = Some(BootClock::now());
        }
        let child = self.children.get_mut(&id).context("no CHILD SA")?;
        let sealed = child.ping(inner, server, u16::try_from(number)?, sequence)?;
        self.outgoing.push((path, sealed));
        Ok(())
    }
}

/// Which address of a range client `number` has.
const fn place(number: usize, networks: usize) -> usize {
    match networks {
        0 | 1 => number + 1,
        networks => (number % networks) * 256 + number / networks + 1,
    }
}

/// Which client has this address of a range.
fn number(place: usize, networks: usize) -> Option<usize> {
    match networks {
        0 | 1 => place.checked_sub(1),
        networks => Some((place % 256).checked_sub(1)? * networks + place / 256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_a_place_of_its_own() {
        for networks in [1, 512] {
            let places: std::collections::BTreeSet<usize> =
                (0..100_000).map(|n| place(n, networks)).collect();
            assert_eq!(places.len(), 100_000);
            assert!((0..100_000).all(|n| number(place(n, networks), networks) == Some(n)), "{networks}");
        }
        assert_eq!((place(0, 512), place(1, 512), place(512, 512)), (1, 257, 2));
        assert!(place(99_999, 512) < 512 * 256);
    }
}
