//! Entries for fuzz targets that run a whole endpoint: any bytes, no panic, and bounded state. Owns the cutting of bytes
//! into datagrams; must never be used outside of tests.

use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_eap::NtHash;
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};
use dormouse_wire::ike::{ExchangeType, Fragment, Header, NotifyType, Payload, PayloadType};

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use crate::Endpoint;
use crate::config::{
    Connection, EapMethod, EapPolicy, EapUsers, IdentityPattern, LocalAuth, RemoteAuth, Role, SelectorSpec,
};
use crate::endpoint_config::EndpointConfig;
use crate::handshake::Slot;
use crate::payloads::notify;
use crate::sa::syncing::{data, read};
use crate::ticket::TicketKeys;
use crate::window::{Incoming, Outgoing};
use dormouse_keying::SaId;

pub(crate) const START: UnixTime = UnixTime(1_800_000_000);

pub(crate) fn connection(name: &str, role: Role) -> Connection {
    let psk = || Secret::from(&b"fuzz"[..]);
    let id = Identity::Fqdn(name.to_owned());
    let mut conn = Connection::new(
        "fuzz",
        id,
        LocalAuth::Psk(psk()),
        IdentityPattern::Suffix("example".to_owned()),
        RemoteAuth::Psk(psk()),
    );
    conn.role = role;
    // Some slices of work, and no more.
    conn.opening.hardest_puzzle = 12;
    for child in &mut conn.children {
        child.ts_local = vec![SelectorSpec::Dynamic];
        child.ts_remote = vec![SelectorSpec::Dynamic];
    }
    conn
}

fn endpoint(name: &str, seed: u64) -> Endpoint {
    let day = Duration::from_secs(86_400);
    let mut conn = connection(name, Role::Both);
    // Also who proves nothing in its first request is answered.
    let users = [("fuzz".to_owned(), NtHash::from([7; NtHash::LEN]))];
    let users = EapUsers::new(users).ok();
    conn.answering.eap = users.map(|users| Arc::new(EapPolicy::here(vec![EapMethod::MsChapV2], users)));
    let config = EndpointConfig {
        connections: vec![Arc::new(conn)],
        ticket_keys: Some(TicketKeys::generate(START, day, day, &mut Seeded::new(seed))),
        window: 3,
        ..EndpointConfig::default()
    };
    let mut endpoint = Endpoint::new(config, Box::new(Seeded::new(seed)));
    endpoint.set_wall_clock(Instant::ZERO, START);
    endpoint
}

pub(crate) fn path(local: u8, remote: u8, carrier: Carrier) -> Path {
    let port = if carrier == Carrier::Ike { 500 } else { 4500 };
    let address = |host| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), port);
    Path { local: address(local), remote: address(remote), carrier }
}

/// Cuts `data` into chunks: a two-byte length, and as many bytes as there are.
fn chunks(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (&[high, low], rest) = data.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_be_bytes([high & 0x0f, low])).min(rest.len());
        let (chunk, rest) = rest.split_at(len);
        data = rest;
        Some(chunk)
    })
}

fn drain(endpoint: &mut Endpoint, now: Instant) -> Vec<(Path, Vec<u8>)> {
    while endpoint.poll_event().is_some() {}
    let mut sent = Vec::new();
    let mut bytes = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(now, &mut bytes) {
        let mut datagram = core::mem::take(&mut bytes);
        if transmit.path.carrier == Carrier::NatT && datagram.len() > 4 {
            datagram.drain(..4);
        }
        sent.push((transmit.path, datagram));
    }
    sent
}

/// A fresh responder, and datagrams cut from `data`. Returns how many SAs were half-open at most.
///
/// # Panics
/// If they are more than there may be.
pub fn responder(data: &[u8]) -> usize {
    let mut endpoint = endpoint("gw.example", 1);
    let mut now = Instant::ZERO;
    let mut most = 0;
    for (i, chunk) in (0..=u8::MAX).cycle().zip(chunks(data)) {
        now += Duration::from_millis(50);
        let _ = endpoint.handle_datagram(now, path(1, i | 2, Carrier::Ike), &mut chunk.to_vec());
        drain(&mut endpoint, now);
        most = most.max(endpoint.half_open());
        if let Some(deadline) = endpoint.poll_timeout() {
            now = now.max(deadline.at);
            endpoint.handle_timeout(now);
        }
    }
    assert!(most <= 4_096, "half-open SAs are bounded");
    most
}

/// Two endpoints with an established SA; one of them sends chunks of `data` as the plaintext of protected requests, so that
/// everything behind authentication is reached. The first byte of a chunk chooses exchange type and first payload.
pub fn authenticated(data: &[u8]) {
    let (mut client, mut gateway) = (endpoint("client.example", 1), endpoint("gw.example", 2));
    let now = Instant::ZERO;
    let conn = Arc::new(connection("client.example", Role::Both));
    let sa = client.connect(now, conn, path(2, 1, Carrier::Ike));
    exchange(&mut client, &mut gateway, now);
    for (at, chunk) in (1u64..).zip(chunks(data)) {
        let now = now + Duration::from_millis(at * 10);
        let Some(mut datagram) = client.fuzz_seal(sa, chunk) else { return };
        let _ = gateway.handle_datagram(now, path(1, 2, Carrier::NatT), &mut datagram);
        gateway.handle_timeout(now);
        for (_, mut answer) in drain(&mut gateway, now) {
            let _ = client.handle_datagram(now, path(2, 1, Carrier::NatT), &mut answer);
        }
        drain(&mut client, now);
    }
}

/// Two endpoints between IKE_SA_INIT and IKE_AUTH, of which either may send anything under their keys: each chunk cut from `data` is a
/// message, by its first bytes a request or an answer, of which exchange and message id, whole or a fragment. What a responder keeps
/// for a caller that has proved nothing is bounded, and no caller is authenticated.
///
/// # Panics
/// If an SA is established, or if too much is kept.
pub fn intermediate(data: &[u8]) {
    let (mut client, mut gateway) = (endpoint("a.example", 1), endpoint("gw.example", 2));
    let now = Instant::ZERO;
    let sa = client.connect(now, Arc::new(connection("a.example", Role::Both)), path(2, 1, Carrier::Ike));
    for (sent, mut datagram) in drain(&mut client, now) {
        let _ = gateway.handle_datagram(now, path(1, 2, sent.carrier), &mut datagram);
    }
    for (sent, mut datagram) in drain(&mut gateway, now) {
        let _ = client.handle_datagram(now, path(2, 1, sent.carrier), &mut datagram);
    }
    let own = drain(&mut client, now);
    if let Some((sent, datagram)) = own.first() {
        // One fragment of an honest request, or all of it: it makes the gateway derive its keys.
        let _ = gateway.handle_datagram(now, path(1, 2, sent.carrier), &mut datagram.clone());
    }
    for chunk in chunks(data) {
        let Some((&[what, id, piece], plain)) = chunk.split_first_chunk::<3>() else { continue };
        let answer = what & 1 == 1;
        let from = if answer { &mut gateway } else { &mut client };
        let sealed = from.fuzz_before_auth(what, id, piece, plain);
        let to = if answer { &mut client } else { &mut gateway };
        for mut datagram in sealed {
            let ends = if answer { path(2, 1, Carrier::NatT) } else { path(1, 2, Carrier::NatT) };
            let _ = to.handle_datagram(now, ends, &mut datagram);
        }
        for slot in gateway.slots.values() {
            assert!(!matches!(slot, Slot::Established(_)), "nothing was proved");
            if let Slot::HalfOpen(half) = slot {
                let held = half.channel.as_ref().map_or(0, crate::link::Channel::held);
                assert!(held <= crate::limits::MESSAGE_MAX, "{held} bytes");
            }
        }
        drain(&mut gateway, now);
        drain(&mut client, now);
    }
    let _ = sa;
}

/// Delivers everything both ways until nothing is sent any more.
fn exchange(client: &mut Endpoint, gateway: &mut Endpoint, now: Instant) {
    for _ in 0..8 {
        for (sent, mut datagram) in drain(client, now) {
            let _ = gateway.handle_datagram(now, path(1, 2, sent.carrier), &mut datagram);
        }
        for (sent, mut datagram) in drain(gateway, now) {
            let _ = client.handle_datagram(now, path(2, 1, sent.carrier), &mut datagram);
        }
    }
}

/// Messages that no exchange of ours would send, for tests of what a peer may do to us. `None`: there is no such SA.
impl Endpoint {
    /// The next request of an established SA, with any content.
    #[doc(hidden)]
    pub fn craft_request(
        &mut self,
        sa: SaId,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) -> Option<Vec<Vec<u8>>> {
        let Some(Slot::Established(ike)) = self.slots.get_mut(&sa) else { return None };
        let header = ike.core.link.header(exchange, false, ike.core.requests.next_id());
        ike.core.requests.skip_id();
        Some(ike.core.channel.seal(&ike.core.link, &mut self.shared, &header, payloads))
    }

    /// An answer to the peer's request `id`, with any content.
    #[doc(hidden)]
    pub fn craft_answer(
        &mut self,
        sa: SaId,
        exchange: ExchangeType,
        id: u32,
        payloads: &[Payload],
    ) -> Option<Vec<Vec<u8>>> {
        let Some(Slot::Established(ike)) = self.slots.get_mut(&sa) else { return None };
        let header = ike.core.link.header(exchange, true, id);
        Some(ike.core.channel.seal(&ike.core.link, &mut self.shared, &header, payloads))
    }

    /// What the peer's message to an established SA says; nothing comes of it.
    #[doc(hidden)]
    pub fn peek(&mut self, now: Instant, sa: SaId, datagram: &[u8]) -> Option<Vec<Payload>> {
        let Some(Slot::Established(ike)) = self.slots.get_mut(&sa) else { return None };
        ike.core.channel.open(now, &mut datagram.to_vec()).ok()??.ok()
    }

    /// Message ids are agreed on as a peer does that lets them be set anew (RFC 6311): the next of our requests, and of the peer's.
    #[doc(hidden)]
    pub fn agree_on_ids(&mut self, now: Instant, sa: SaId, (ours, theirs): (u32, u32)) {
        if let Some(Slot::Established(ike)) = self.slots.get_mut(&sa) {
            let window = ike.core.requests.window();
            let before = core::mem::replace(&mut ike.core.requests, Outgoing::begin(ours, window));
            ike.core.answers = Incoming::new(theirs, 1);
            // What was under way is asked again.
            for flight in before.flights() {
                flight.exchange.abandon(&mut self.shared);
                flight.exchange.migrate(false).into_iter().for_each(|again| ike.enqueue(again, now));
            }
            ike.pump(&mut self.shared, now);
        }
        self.touch(sa);
        self.apply_effects(now);
    }

    /// Answers a gateway that has taken an SA of this end's over, as a peer does that lets its message ids be set anew (RFC 6311 section 5.1). `None`:
    /// this is no such request.
    #[doc(hidden)]
    pub fn answer_sync(&mut self, now: Instant, datagram: &[u8]) -> Option<Vec<Vec<u8>>> {
        let header = Header::parse(datagram).ok()?;
        let asks = header.exchange == ExchangeType::Informational && header.message_id == 0;
        let own = if header.flags.initiator { header.spi_r } else { header.spi_i };
        let sa = *self.shared.by_spi.get(&own).filter(|_| asks && !header.flags.response)?;
        let (nonce, m1, p1) = read(&self.peek(now, sa, datagram)?)?;
        let Some(Slot::Established(ike)) = self.slots.get(&sa) else { return None };
        let ids = (p1.max(ike.core.requests.next_id()), m1.max(ike.core.answers.oldest()));
        let answer = [notify(NotifyType::Ikev2MessageIdSync, data(nonce, ids))];
        let sealed = self.craft_answer(sa, ExchangeType::Informational, 0, &answer);
        self.agree_on_ids(now, sa, ids);
        sealed
    }

    /// IKE_AUTH messages `id` with any content, of the SAs whose IKE_AUTH is under way.
    #[doc(hidden)]
    pub fn craft_auth(&mut self, id: u32, payloads: &[Payload]) -> Vec<Vec<u8>> {
        let mut sealed = Vec::new();
        for slot in self.slots.values_mut() {
            let (link, channel) = match slot {
                Slot::Authenticating(waiting) => (&waiting.link, Some(&mut waiting.channel)),
                Slot::HalfOpen(half) => (&half.link, half.channel.as_mut()),
                _ => continue,
            };
            let header = link.header(ExchangeType::IkeAuth, !link.initiator, id);
            sealed.extend(channel.map(|c| c.seal(link, &mut self.shared, &header, payloads)));
        }
        sealed.into_iter().flatten().collect()
    }

    /// What a message to an SA says whose IKE_AUTH is under way; nothing comes of it.
    #[doc(hidden)]
    pub fn peek_auth(&mut self, now: Instant, datagram: &[u8]) -> Option<Vec<Payload>> {
        self.slots.values_mut().find_map(|slot| {
            let channel = match slot {
                Slot::Authenticating(waiting) => &mut waiting.channel,
                Slot::HalfOpen(half) => half.channel.as_mut()?,
                _ => return None,
            };
            channel.open(now, &mut datagram.to_vec()).ok()??.ok()
        })
    }

    /// `plain` sealed by every SA that is between the first exchange and IKE_AUTH.
    fn fuzz_before_auth(&mut self, what: u8, id: u8, piece: u8, plain: &[u8]) -> Vec<Vec<u8>> {
        let exchange = match what >> 1 & 3 {
            0 => ExchangeType::IkeAuth,
            1 => ExchangeType::IkeFollowupKe,
            _ => ExchangeType::IkeIntermediate,
        };
        let first = PayloadType::from(33 + (what >> 3) % 17);
        let total = piece >> 4;
        let fragment =
            (total > 0).then(|| Fragment { number: u16::from(piece & 0x0f), total: u16::from(total) });
        let mut sealed = Vec::new();
        for slot in self.slots.values() {
            let (link, channel) = match slot {
                Slot::Intermediate(waiting) => (&waiting.first.link, &waiting.first.channel),
                Slot::Authenticating(waiting) => (&waiting.link, &waiting.channel),
                Slot::HalfOpen(half) => match &half.channel {
                    Some(channel) => (&half.link, channel),
                    None => continue,
                },
                _ => continue,
            };
            let header = link.header(exchange, !link.initiator, u32::from(id % 4));
            sealed.extend(channel.fuzz_seal(&mut self.shared, &header, first, fragment, plain));
        }
        sealed
    }

    /// `plain` sealed as the next request of an established SA.
    fn fuzz_seal(&mut self, sa: SaId, plain: &[u8]) -> Option<Vec<u8>> {
        let Some(Slot::Established(ike)) = self.slots.get_mut(&sa) else { return None };
        let (&choice, plain) = plain.split_first()?;
        let exchange =
            if choice & 1 == 0 { ExchangeType::Informational } else { ExchangeType::CreateChildSa };
        let first = PayloadType::from(33 + (choice >> 1) % 17);
        let core = &mut ike.core;
        let header = core.link.header(exchange, false, core.requests.next_id());
        core.requests.skip_id();
        core.channel.fuzz_seal(&mut self.shared, &header, first, None, plain)
    }
}
