//! What one gateway tells another of a device that sleeps, or woke up, there: how it sleeps, and what waits for it. Owns the form; where it goes, and
//! that nobody else reads it, is the driver's affair.
//!
//! The other gateway is trusted as this one is, and its word is checked all the same: it is read with the bounds of a stand-in, and packets are
//! parsed as if they came from a network.

use dormouse_crypto::cert::Identity;
use dormouse_ike::admission::Credential;
use dormouse_ike::ticket::lineage::{Name, TicketHolder};
use dormouse_standin::{Heard, Service, Slept, Waiting};
use dormouse_wire::codec::{Reader, Writer};
use ipnet::IpNet;
use std::net::IpAddr;
use std::time::Duration;

/// Of the form below.
const VERSION: u8 = 2;

/// What one gateway tells another about a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handover {
    /// Of its last session at the gateway that tells.
    pub lineage: Name,
    /// Which device it is, also after a login that began another lineage.
    pub whose: Whose,
    /// How it sleeps: it is the other gateway's from now on; `None`: it is there already.
    pub sleeper: Option<Box<Sleeper>>,
    /// What waits for it, in the order in which it came.
    pub waiting: Vec<Waiting>,
}

/// By what all gateways know a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whose {
    /// The connection that it came in by, which all gateways call the same.
    pub connection: String,
    /// The type and data of RFC 7296, section 3.5.
    pub identity: (u8, Vec<u8>),
    /// Inner addresses that it was assigned: those of devices that share the identity differ.
    pub assigned: Vec<IpAddr>,
}

/// A device that sleeps, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sleeper {
    /// Its identity, as displayed.
    pub peer: String,
    /// Where it is reached.
    pub addresses: Vec<IpAddr>,
    /// Prefixes that lead to it.
    pub routes: Vec<IpNet>,
    /// What admitted it.
    pub credential: Option<Credential>,
    /// Other clients do not reach it.
    pub isolate: bool,
    /// How it sleeps.
    pub slept: Slept,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The device is awake here: its packets are on their way.
    Delivered,
    /// It sleeps here, and its packets wait.
    Kept,
    /// It is not known here: its packets wait until it comes, for a while.
    Unknown,
}

impl Handover {
    /// The bytes that [`Handover::decode`] reads.
    ///
    /// # Errors
    /// If something is longer than can be said, which no device's is.
    pub fn encode(&self) -> Result<Vec<u8>, dormouse_wire::Error> {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        w.u8(VERSION);
        w.bytes(&self.lineage.0);
        self.whose.encode(&mut w);
        w.u8(u8::from(self.sleeper.is_some()));
        if let Some(sleeper) = &self.sleeper {
            sleeper.encode(&mut w);
        }
        w.count_u16("packets", self.waiting.len());
        for Waiting { left, packet } in &self.waiting {
            w.u64(millis(*left));
            long(&mut w, packet);
        }
        w.finish()?;
        Ok(bytes)
    }

    /// Reads what another gateway has written.
    ///
    /// # Errors
    /// If these bytes are something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, dormouse_wire::Error> {
        let mut r = Reader::new("handover", bytes);
        let version = r.u8()?;
        if version != VERSION {
            return Err(wrong("version of a handover", version, "2"));
        }
        let lineage = Name(r.array()?);
        let whose = Whose::decode(&mut r)?;
        let sleeper = flag(&mut r)?.then(|| Sleeper::decode(&mut r)).transpose()?.map(Box::new);
        let waiting = list(&mut r, |r| {
            Ok(Waiting { left: Duration::from_millis(r.u64()?), packet: read_long(r)?.into_boxed_slice() })
        })?;
        r.all()?;
        Ok(Self { lineage, whose, sleeper, waiting })
    }
}

impl Whose {
    /// Whose tickets are the device's. `None` if its identity is none that can be told.
    #[must_use]
    pub fn holder(&self) -> Option<TicketHolder> {
        let (kind, data) = &self.identity;
        Some(TicketHolder::of(&self.connection, &Identity::from_ike(*kind, data).ok()?))
    }

    fn encode(&self, w: &mut Writer<'_>) {
        let Self { connection, identity, assigned } = self;
        long(w, connection.as_bytes());
        w.u8(identity.0);
        long(w, &identity.1);
        w.count_u16("addresses", assigned.len());
        assigned.iter().for_each(|address| ip(w, *address));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, dormouse_wire::Error> {
        let connection = read_text(r)?;
        let identity = (r.u8()?, read_long(r)?);
        Ok(Self { connection, identity, assigned: list(r, read_ip)? })
    }
}

impl Sleeper {
    fn encode(&self, w: &mut Writer<'_>) {
        let Self { peer, addresses, routes, credential, isolate, slept } = self;
        long(w, peer.as_bytes());
        w.count_u16("addresses", addresses.len());
        addresses.iter().for_each(|address| ip(w, *address));
        w.count_u16("routes", routes.len());
        for route in routes {
            ip(w, route.addr());
            w.u8(route.prefix_len());
        }
        w.u8(u8::from(credential.is_some()));
        if let Some(credential) = credential {
            long(w, &credential.to_bytes());
        }
        let Slept { service: Service { answer, keep }, left, heard } = slept;
        [*isolate, *answer, *keep].into_iter().for_each(|flag| w.u8(u8::from(flag)));
        w.u64(millis(*left));
        w.count_u16("packets", heard.len());
        for Heard { packet, held } in heard {
            w.u8(u8::from(held.is_some()));
            held.iter().for_each(|time| w.u32(*time));
            long(w, packet);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, dormouse_wire::Error> {
        let peer = read_text(r)?;
        let addresses = list(r, read_ip)?;
        let routes = list(r, |r| {
            let address = read_ip(r)?;
            let bits = r.u8()?;
            IpNet::new(address, bits)
                .map_err(|_| wrong("prefix length", bits, "no more than the address has"))
        })?;
        let read = |bytes: Vec<u8>| {
            let credential = Credential::from_bytes(&bytes);
            credential.map_err(|_| wrong("form of a credential", 0, "one of this release"))
        };
        let credential = flag(r)?.then(|| read_long(r)).transpose()?.map(read).transpose()?;
        let (isolate, answer, keep) = (flag(r)?, flag(r)?, flag(r)?);
        let left = Duration::from_millis(r.u64()?);
        let heard = list(r, |r| {
            let held = flag(r)?.then(|| r.u32()).transpose()?;
            Ok(Heard { packet: read_long(r)?, held })
        })?;
        let slept = Slept { service: Service { answer, keep }, left, heard };
        Ok(Self { peer, addresses, routes, credential, isolate, slept })
    }
}

/// Packets that are kept as long as the device sleeps have all the time that can be said.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn wrong(what: &'static str, got: u8, expect: &'static str) -> dormouse_wire::Error {
    dormouse_wire::Error::Value { what, got: got.into(), expect }
}

fn flag(r: &mut Reader<'_>) -> Result<bool, dormouse_wire::Error> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        got => Err(wrong("flag", got, "0 or 1")),
    }
}

fn long(w: &mut Writer<'_>, bytes: &[u8]) {
    w.count_u16("bytes", bytes.len());
    w.bytes(bytes);
}

fn read_long(r: &mut Reader<'_>) -> Result<Vec<u8>, dormouse_wire::Error> {
    let len = r.u16()?;
    Ok(r.take(len.into())?.to_vec())
}

fn read_text(r: &mut Reader<'_>) -> Result<String, dormouse_wire::Error> {
    String::from_utf8(read_long(r)?).map_err(|_| wrong("text", 0, "UTF-8"))
}

fn ip(w: &mut Writer<'_>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            w.u8(4);
            w.bytes(&address.octets());
        }
        IpAddr::V6(address) => {
            w.u8(6);
            w.bytes(&address.octets());
        }
    }
}

fn read_ip(r: &mut Reader<'_>) -> Result<IpAddr, dormouse_wire::Error> {
    match r.u8()? {
        4 => Ok(IpAddr::from(r.array::<4>()?)),
        6 => Ok(IpAddr::from(r.array::<16>()?)),
        got => Err(wrong("address family", got, "4 or 6")),
    }
}

/// A list with its length before it; an item takes one byte at least, so the length is bounded by what there is.
fn list<T>(
    r: &mut Reader<'_>,
    mut each: impl FnMut(&mut Reader<'_>) -> Result<T, dormouse_wire::Error>,
) -> Result<Vec<T>, dormouse_wire::Error> {
    let len = r.u16()?;
    (0..len).map(|_| each(r)).collect()
}
