//! What the other gateways have done, as the database announces it (`NOTIFY`). Owns the channels, the form of what is said on them, and a
//! letter box: what is announced while nobody reads is kept once of each kind, and leases up to a bound, beyond which all must be read again.
//! A payload is input from whoever may write to the database: what is not understood asks for all to be read again, too.

use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dormouse_sansio::UnixTime;
use tokio::sync::Notify;

/// Channels. That of orders is followed by the gateway's name.
pub(crate) const ORDERS: &str = "dormouse_orders_";
pub(crate) const LEASES: &str = "dormouse_leases";
pub(crate) const DENIALS: &str = "dormouse_denials";
pub(crate) const KEYS: &str = "dormouse_keys";
pub(crate) const USERS: &str = "dormouse_users";

/// Leases in the letter box at most.
const WAITING_MOST: usize = 8_192;
/// Bytes of a payload at most; the server refuses 8,000.
const PAYLOAD_MOST: usize = 7_900;
/// Stands for all leases.
const ALL: &str = "*";

/// Whose a lease is: an identity as one connection knows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeaseKey {
    /// Name of the connection.
    pub connection: String,
    /// The identification type of RFC 7296, section 3.5, and its data.
    pub identity: (u8, Vec<u8>),
    /// Which of the devices that share the identity; 0 if it is one's alone.
    pub device: u32,
}

/// One lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Whose.
    pub holder: LeaseKey,
    /// Its IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// When it was last in use.
    pub used: UnixTime,
    /// The gateway that wrote it.
    pub gateway: String,
}

/// Something that another gateway has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// There are orders for us: [`crate::Database::orders`].
    Orders,
    /// A lease has changed.
    Lease(LeaseNews),
    /// Denials have changed: [`crate::Database::denials`].
    Denials,
    /// Users have changed: [`crate::Database::passwords`].
    Users,
    /// There is a new ticket key: [`crate::Database::ticket_keys`].
    Keys,
}

/// What became of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseNews {
    /// It is new, has other addresses, or was used.
    Lease(Lease),
    /// It is gone.
    Evict(LeaseKey),
    /// More than could be said: [`crate::Database::leases`].
    ReadAll,
}

impl LeaseNews {
    fn holder(&self) -> Option<&LeaseKey> {
        match self {
            Self::Lease(lease) => Some(&lease.holder),
            Self::Evict(holder) => Some(holder),
            Self::ReadAll => None,
        }
    }
}

/// What has come and was not read yet.
#[derive(Debug, Default)]
struct Held {
    orders: bool,
    denials: bool,
    keys: bool,
    users: bool,
    leases: VecDeque<LeaseNews>,
    gone: Option<String>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Inbox {
    gateway: String,
    held: Mutex<Held>,
    /// Rung when there is something to take, or nothing will come any more.
    pub(crate) bell: Notify,
}

impl Inbox {
    /// For the gateway of this name, which does not hear of what it does itself.
    pub(crate) fn new(gateway: &str) -> Self {
        Self { gateway: gateway.into(), held: Mutex::default(), bell: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was announced.
    pub(crate) fn put(&self, channel: &str, payload: &str) {
        let (from, text) = payload.split_once('\n').unwrap_or((payload, ""));
        let mut held = self.lock();
        if from == self.gateway {
            if channel == LEASES {
                outdate(&mut held.leases, from, text);
            }
            return;
        }
        match channel {
            LEASES => put_leases(&mut held.leases, from, text),
            DENIALS => held.denials = true,
            KEYS => held.keys = true,
            USERS => held.users = true,
            _ => held.orders = true,
        }
        drop(held);
        self.bell.notify_one();
    }

    /// The connection is gone. The first reason stays.
    pub(crate) fn close(&self, why: String) {
        self.lock().gone.get_or_insert(why);
        self.bell.notify_one();
    }

    /// Why the connection is gone, if it is.
    pub(crate) fn gone(&self) -> Option<String> {
        self.lock().gone.clone()
    }

    /// Who has been told to end comes first.
    pub(crate) fn take(&self) -> Option<Notice> {
        let mut held = self.lock();
        if std::mem::take(&mut held.orders) {
            return Some(Notice::Orders);
        }
        if std::mem::take(&mut held.denials) {
            return Some(Notice::Denials);
        }
        if std::mem::take(&mut held.users) {
            return Some(Notice::Users);
        }
        if std::mem::take(&mut held.keys) {
            return Some(Notice::Keys);
        }
        held.leases.pop_front().map(Notice::Lease)
    }
}

fn put_leases(waiting: &mut VecDeque<LeaseNews>, from: &str, text: &str) {
    let news = read_all(from, text);
    match news {
        Some(news) if waiting.len() + news.len() <= WAITING_MOST => waiting.extend(news),
        _ => {
            waiting.clear();
            waiting.push_back(LeaseNews::ReadAll);
        }
    }
}

/// What this gateway has done itself is announced to it in the order of the commits, and before the answer: what others have done to these leases
/// and was not read yet, they did before.
fn outdate(waiting: &mut VecDeque<LeaseNews>, from: &str, text: &str) {
    let news = read_all(from, text).unwrap_or_else(|| vec![LeaseNews::ReadAll]);
    let own: BTreeSet<&LeaseKey> = news.iter().filter_map(LeaseNews::holder).collect();
    if own.len() < news.len() && !waiting.is_empty() {
        waiting.clear();
        waiting.push_back(LeaseNews::ReadAll);
    }
    waiting.retain(|one| one.holder().is_none_or(|holder| !own.contains(holder)));
}

/// Payloads that tell of these changes, each within the server's bound.
pub(crate) fn payloads(gateway: &str, news: &[LeaseNews]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for one in news {
        let line = write_line(one);
        if gateway.len() + 1 + line.len() > PAYLOAD_MOST {
            return vec![format!("{gateway}\n{ALL}")];
        }
        match all.last_mut().filter(|last| last.len() + 1 + line.len() <= PAYLOAD_MOST) {
            Some(last) => {
                last.push('\n');
                last.push_str(&line);
            }
            None => all.push(format!("{gateway}\n{line}")),
        }
    }
    all
}

/// `+ CONNECTION ID-TYPE ID-DATA DEVICE IPv4 IPv6 USED`, or `-` and the first four: text in hexadecimal, `_` for what is empty.
fn write_line(news: &LeaseNews) -> String {
    let text = |bytes: &[u8]| if bytes.is_empty() { "_".into() } else { hex::encode(bytes) };
    let key = |k: &LeaseKey| {
        format!("{} {} {} {}", text(k.connection.as_bytes()), k.identity.0, text(&k.identity.1), k.device)
    };
    match news {
        LeaseNews::ReadAll => ALL.into(),
        LeaseNews::Evict(holder) => format!("- {}", key(holder)),
        LeaseNews::Lease(Lease { holder, v4, v6, used, .. }) => {
            let v4 = v4.map_or_else(|| "_".into(), |a| a.to_string());
            let v6 = v6.map_or_else(|| "_".into(), |a| a.to_string());
            format!("+ {} {v4} {v6} {}", key(holder), used.0)
        }
    }
}

fn read_all(from: &str, text: &str) -> Option<Vec<LeaseNews>> {
    text.split('\n').map(|line| read_line(from, line)).collect()
}

fn read_line(from: &str, line: &str) -> Option<LeaseNews> {
    let words: Vec<&str> = line.split(' ').collect();
    let bytes = |word: &str| if word == "_" { Some(Vec::new()) } else { hex::decode(word).ok() };
    let key = |connection: &str, kind: &str, data: &str, device: &str| {
        let connection = String::from_utf8(bytes(connection)?).ok()?;
        let identity = (kind.parse().ok()?, bytes(data)?);
        Some(LeaseKey { connection, identity, device: device.parse().ok()? })
    };
    match *words.as_slice() {
        [ALL] => Some(LeaseNews::ReadAll),
        ["-", connection, kind, data, device] => key(connection, kind, data, device).map(LeaseNews::Evict),
        ["+", connection, kind, data, device, v4, v6, used] => {
            let holder = key(connection, kind, data, device)?;
            let v4: Option<Ipv4Addr> = if v4 == "_" { None } else { Some(v4.parse().ok()?) };
            let v6: Option<Ipv6Addr> = if v6 == "_" { None } else { Some(v6.parse().ok()?) };
            let used = UnixTime(used.parse().ok()?);
            Some(LeaseNews::Lease(Lease { holder, v4, v6, used, gateway: from.into() }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
