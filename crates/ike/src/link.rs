//! What an IKE SA has in every state, from the first message to the last: its name, its SPIs, its path and its counters,
//! and the way a message is sealed and sent. Owns headers and the direction of keys; must never decide what to say.

use std::sync::Arc;

use core::time::Duration;

use dormouse_crypto::Secret;
use dormouse_sansio::{Carrier, Class, Instant, Path};
use dormouse_wire::ike::{
    ExchangeType, Flags, Fragment, Header, Message, Payload, PayloadType, Protected, unsupported_critical,
};

use crate::config::Connection;
use crate::error::Discard;
use crate::fragment::{Reassembler, message_limit};
use crate::keys::{self, IkeKeys, Spis};
use crate::proposal::IkeSuite;
use crate::protect::{self, OpenError};
use crate::shared::Shared;
use crate::stats::Stats;
use dormouse_keying::SaId;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: SaId,
    pub(crate) conn: Arc<Connection>,
    /// Whether we are the original initiator of the IKE SA.
    pub(crate) initiator: bool,
    pub(crate) spis: Spis,
    pub(crate) path: Path,
    /// Both ends can fragment (RFC 7383).
    /// "IKE fragmentation MUST NOT be used unless both peers have indicated their support for it." (RFC 7383 section 2.4)
    pub(crate) fragmentation: bool,
    /// As responder: the peer goes where it is sent.
    /// "The gateway MUST keep track of those clients that indicated support for the redirect mechanism and those that didn't." (RFC 5685
    /// section 3)
    pub(crate) redirects: bool,
    pub(crate) stats: Stats,
}

/// The protected channel of an IKE SA: the keys of both directions, and fragments that wait for their siblings.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) suite: IkeSuite,
    pub(crate) sk_d: Secret,
    pub(crate) sk_pi: Secret,
    pub(crate) sk_pr: Secret,
    sealer: protect::Channel,
    opener: protect::Channel,
    /// Fragments of requests and of responses: their ids count separately.
    partial: [Reassembler; 2],
}

/// What was inside a protected message; `Err` if it was authentic but malformed.
pub(crate) type Opened = Result<Vec<Payload>, OpenError>;

impl Channel {
    pub(crate) fn new(keys: IkeKeys, initiator: bool) -> Self {
        let IkeKeys { suite, sk_d, sk_pi, sk_pr, from_initiator, from_responder } = keys;
        let (sealer, opener) =
            if initiator { (from_initiator, from_responder) } else { (from_responder, from_initiator) };
        Self { suite, sk_d, sk_pi, sk_pr, sealer, opener, partial: [Reassembler::new(), Reassembler::new()] }
    }

    /// The keys of what the original initiator sends, and of what the responder does, for who takes the SA over; `initiator`: we are the
    /// former.
    pub(crate) fn keymat(&self, initiator: bool) -> (&Secret, &Secret) {
        let (ours, theirs) = (self.sealer.keymat(), self.opener.keymat());
        if initiator { (ours, theirs) } else { (theirs, ours) }
    }

    /// A protected message, in fragments if both ends can and it would not fit.
    pub(crate) fn seal(
        &mut self,
        link: &Link,
        shared: &mut Shared,
        header: &Header,
        payloads: &[Payload],
    ) -> Vec<Vec<u8>> {
        let limit = match link.fragmentation {
            true => message_limit(link.conn.fragmentation.size, &link.path),
            false => usize::MAX,
        };
        self.seal_within(limit, link, shared, header, payloads)
    }

    /// A protected message that is never fragmented.
    pub(crate) fn seal_whole(
        &mut self,
        link: &Link,
        shared: &mut Shared,
        header: &Header,
        payloads: &[Payload],
    ) -> Vec<Vec<u8>> {
        self.seal_within(usize::MAX, link, shared, header, payloads)
    }

    fn seal_within(
        &mut self,
        limit: usize,
        link: &Link,
        shared: &mut Shared,
        header: &Header,
        payloads: &[Payload],
    ) -> Vec<Vec<u8>> {
        self.sealer.seal_within(limit, header, payloads, &mut shared.entropy).unwrap_or_else(|error| {
            tracing::error!(sa = %link.id, %error, "a message of ours cannot be sealed");
            Vec::new()
        })
    }

    /// Authenticates and decrypts `datagram`; `None` while fragments are missing.
    pub(crate) fn open(&mut self, now: Instant, datagram: &mut [u8]) -> Result<Option<Opened>, Discard> {
        Ok(self.open_recorded(now, datagram)?.map(|(opened, _)| opened))
    }

    /// The same, with what IntAuth covers of the message.
    pub(crate) fn open_recorded(
        &mut self,
        now: Instant,
        datagram: &mut [u8],
    ) -> Result<Option<(Opened, Vec<u8>)>, Discard> {
        let message = Message::parse(datagram).map_err(|_| Discard::Malformed)?;
        if message.protected.is_none() {
            return Err(Discard::Unprotected);
        }
        let [requests, responses] = &mut self.partial;
        let partial = if message.header.flags.response { responses } else { requests };
        match self.opener.receive(now, &message, datagram, partial) {
            Ok(whole) => Ok(whole.map(|whole| {
                let opened = whole.payloads().map(|mut list| {
                    // A payload before the encrypted one is authentic too, and none that we know has its place there.
                    list.extend(message.payloads.into_iter().filter(is_critical));
                    list
                });
                (opened, whole.authenticated())
            })),
            Err(OpenError::Unauthentic) => Err(Discard::NotAuthentic),
            Err(OpenError::Fragment(_)) => Err(Discard::Fragment),
            Err(error) => Ok(Some((Err(error), Vec::new()))),
        }
    }

    /// Bytes of requests whose other fragments are missing.
    pub(crate) fn held(&self) -> usize {
        let [requests, _] = &self.partial;
        requests.held()
    }

    /// SK_d, SK_pi and SK_pr with a post-quantum pre-shared key; the keys that protect messages stay (RFC 8784, section 3).
    /// "It MUST NOT be used when these subkeys are calculated as result of IKE SA rekey, resumption, or other similar operations." (RFC
    /// 8784 section 3)
    pub(crate) fn mix(&mut self, ppk: &Secret) -> Result<(), dormouse_crypto::Error> {
        for key in [&mut self.sk_d, &mut self.sk_pi, &mut self.sk_pr] {
            *key = keys::with_ppk(self.suite.prf, ppk, key)?;
        }
        Ok(())
    }

    /// Whether `datagram`, which has the id of a request that was answered already, is an authentic repetition for which
    /// the answer is due again: a whole message, or the first fragment of one (RFC 7383 section 2.6.1).
    pub(crate) fn is_repetition(&self, datagram: &mut [u8]) -> Result<bool, Discard> {
        let message = Message::parse(datagram).map_err(|_| Discard::Malformed)?;
        let protected = message.protected.ok_or(Discard::Unprotected)?;
        // "MUST only trigger a retransmission of the response message (fragmented or not) if the Fragment Number field in the
        // received fragment is set to 1" (RFC 7383 section 2.6.1)
        if protected.fragment.is_some_and(|f| f.number != 1) {
            return Ok(false);
        }
        match self.opener.open(datagram, &protected) {
            Err(OpenError::Unauthentic) => Err(Discard::NotAuthentic),
            _ => Ok(true),
        }
    }

    /// For fuzzing: any bytes as the content of a message.
    pub(crate) fn fuzz_seal(
        &self,
        shared: &mut Shared,
        header: &Header,
        first: PayloadType,
        fragment: Option<Fragment>,
        plain: &[u8],
    ) -> Option<Vec<u8>> {
        self.sealer.seal_bytes(header, first, fragment, plain, &mut shared.entropy).ok()
    }

    /// For fuzzing: the content of a message that we sealed.
    pub(crate) fn fuzz_reopen(&self, mut datagram: Vec<u8>, protected: &Protected) -> Option<Vec<u8>> {
        self.sealer.open(&mut datagram, protected).ok().map(<[u8]>::to_vec)
    }

    /// Forgets fragments of exchanges that are over, given the oldest ids that may still come.
    pub(crate) fn forget_before(&mut self, request: u32, response: u32) {
        let [requests, responses] = &mut self.partial;
        requests.forget_before(request);
        responses.forget_before(response);
    }
}

fn is_critical(payload: &Payload) -> bool {
    unsupported_critical(core::slice::from_ref(payload)).is_some()
}

impl Link {
    /// Whether this is the head of the answer to our request `id` of the handshake.
    pub(crate) fn awaits(&self, header: &Header, exchange: ExchangeType, id: u32) -> bool {
        header.flags.response
            && !header.flags.initiator
            && header.message_id == id
            && header.exchange == exchange
            && header.spi_r == self.spis.r
    }

    pub(crate) fn local_spi(&self) -> u64 {
        if self.initiator { self.spis.i } else { self.spis.r }
    }

    pub(crate) fn header(&self, exchange: ExchangeType, response: bool, id: u32) -> Header {
        let flags = Flags { initiator: self.initiator, version: false, response };
        Header::new(self.spis.i, self.spis.r, exchange, flags, id)
    }

    /// A message in clear: the first exchange only.
    pub(crate) fn clear(
        &self,
        exchange: ExchangeType,
        response: bool,
        id: u32,
        payloads: &[Payload],
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        if let Err(error) = Message::emit(&self.header(exchange, response, id), payloads, &mut out) {
            tracing::error!(sa = %self.id, %error, "a message of ours is too large");
        }
        out
    }

    /// How long to wait after transmission number `sent` of a request.
    pub(crate) fn wait(&self, shared: &mut Shared, sent: u32) -> Duration {
        self.conn.timing.retransmission.wait(sent, &mut shared.entropy)
    }

    /// How long a request of the handshake is worth repeating: all waits of the policy together.
    pub(crate) fn patience(&self, shared: &mut Shared) -> Duration {
        (1..=self.conn.timing.retransmission.tries).map(|sent| self.wait(shared, sent)).sum()
    }

    /// Queues datagrams towards the peer.
    pub(crate) fn send(&mut self, shared: &mut Shared, class: Class, datagrams: &[Vec<u8>]) {
        self.send_by(shared, self.path, class, datagrams);
    }

    /// Queues datagrams by another path than the SA's: answers go where the request came from.
    pub(crate) fn send_by(&mut self, shared: &mut Shared, path: Path, class: Class, datagrams: &[Vec<u8>]) {
        for datagram in datagrams {
            self.stats.sent(datagram.len());
            shared.stats.sent(datagram.len());
            shared.out.push_of(self.id, path, class, datagram.clone());
        }
    }

    /// Queues a repetition.
    pub(crate) fn send_again(&mut self, shared: &mut Shared, class: Class, datagrams: &[Vec<u8>]) {
        self.stats.retransmissions += datagrams.len() as u64;
        shared.stats.retransmissions += datagrams.len() as u64;
        self.send(shared, class, datagrams);
    }

    /// Queues a NAT keepalive.
    /// "[...] the Source Port and Destination Port MUST be the same as used by UDP-ESP encapsulation" (RFC 3948 section 2.3)
    pub(crate) fn send_keepalive(&mut self, shared: &mut Shared) {
        self.stats.keepalives += 1;
        shared.stats.keepalives += 1;
        shared.out.push_keepalive(self.path);
    }

    /// The same addresses on the NAT-traversal port (RFC 7296 section 2.23).
    pub(crate) fn natt_path(&self, shared: &Shared) -> Path {
        if self.path.carrier == Carrier::NatT {
            return self.path;
        }
        self.path.with_ports(Carrier::NatT, shared.config.ports.natt, self.conn.remote_ports.natt)
    }

    /// How ESP travels, given how IKE does: encapsulated, or natively.
    /// "[...] the Source Port and Destination Port MUST be the same as that used by IKE traffic" (RFC 3948 section 2.1)
    pub(crate) fn esp_path(&self, encapsulated: bool) -> Path {
        if encapsulated { self.path } else { self.path.with_ports(Carrier::RawEsp, 0, 0) }
    }
}
