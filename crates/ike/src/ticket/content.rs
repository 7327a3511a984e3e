//! What a gateway writes into a ticket: everything that RFC 5723, section 5, takes "from the ticket". Owns the canonical encoding
//! of the content; must never seal it (that is `keys`).

use core::fmt;
use core::net::IpAddr;

use dormouse_crypto::{HashAlg, Secret, hash};
use dormouse_sansio::{Entropy, UnixTime};
use dormouse_wire::codec::Reader;
use dormouse_wire::ike::{AuthMethod, Id, TrafficSelector, TsRange};

use super::codec::{In, Out, TicketFormatError};
use crate::config::ChildMode;
use crate::limits;
use crate::proposal::{EspSuite, IkeSuite};

const VERSION: u8 = 3;
/// Content is padded to a multiple of this, so that the length of a ticket says little about the identities in it.
/// "leakage of information, such as the identities of an IKEv2 initiator and a responder, MUST be avoided" (RFC 5723 section
/// 9.10)
const PAD_TO: usize = 64;

/// Names one ticket, unguessably; what the memory of spent tickets remembers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TicketId(pub(super) [u8; 16]);

impl TicketId {
    /// A fresh name.
    pub fn draw(entropy: &mut dyn Entropy) -> Self {
        let mut id = [0; 16];
        entropy.fill(&mut id);
        Self(id)
    }
}

impl fmt::Debug for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Stands for the peer of a connection, in as few bytes as a record has room for. That two share one costs the other a full
/// exchange at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder(pub(super) [u8; 8]);

impl Holder {
    /// The holder that the connection `connection` knows as `peer`, in the notation of its identity.
    pub(crate) fn of(connection: &str, peer: &str) -> Self {
        let length = (connection.len() as u64).to_be_bytes();
        let parts: [&[u8]; 4] = [b"dormouse ticket holder", &length, connection.as_bytes(), peer.as_bytes()];
        let digest = hash(HashAlg::Sha256, &parts);
        let mut short = [0; 8];
        short.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        Self(short)
    }
}

/// A CHILD_SA as it was. RFC 5723 negotiates children anew; resumption in one round trip (`docs/wire/dormancy.md`) brings this
/// one back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TicketChild {
    /// Name in the configuration.
    pub name: String,
    /// Algorithms.
    pub suite: EspSuite,
    /// Tunnel or transport.
    pub mode: ChildMode,
    /// Our side of the traffic: the gateway's in its sealed content, the client's in [`super::ClientTicket`].
    pub ts_local: Vec<TsRange>,
    /// The other side.
    pub ts_remote: Vec<TsRange>,
}

/// The gateway's state inside a ticket.
/// "When the state is passed by value, the ticket MUST encode all state information marked 'from the ticket'" (RFC 5723 section
/// 6.1)
#[derive(Clone, PartialEq, Eq)]
pub struct TicketContent {
    /// Its name.
    pub id: TicketId,
    /// When it was made.
    pub issued: UnixTime,
    /// When it ends. "MUST include a protected expiration time, which is an absolute time value" (RFC 5723, section 6.1).
    pub expires: UnixTime,
    /// When the peers last authenticated fully, however many resumptions ago.
    pub authenticated: UnixTime,
    /// When the first of the certificates expires that the session rests on; `None`: it rests on none.
    pub vouched_until: Option<UnixTime>,
    /// IDi: must come again in IKE_AUTH.
    pub id_i: Id,
    /// IDr: must come again in IKE_AUTH.
    pub id_r: Id,
    /// How the client authenticated then.
    pub method: AuthMethod,
    /// The IKE SA's algorithms (SAr).
    pub suite: IkeSuite,
    /// SK_d of the IKE SA.
    pub sk_d: Secret,
    /// SPIs of the IKE SA: to find it if it still exists, and drop it. "These values MUST NOT be used
    /// for the resumed SA." (RFC 5723 section 5, note 4)
    pub spi_i: u64,
    /// See `spi_i`.
    pub spi_r: u64,
    /// Name of the connection that admitted the client; the configuration may have changed since.
    pub connection: String,
    /// Inner addresses that the client had (note 5).
    pub addresses: Vec<IpAddr>,
    /// The CHILD_SAs.
    pub children: Vec<TicketChild>,
}

impl TicketContent {
    /// Whose it is.
    pub(super) fn holder(&self) -> Holder {
        let peer = crate::auth::identity(&self.id_i).map(|id| id.to_string()).unwrap_or_default();
        Holder::of(&self.connection, &peer)
    }

    /// The canonical encoding, padded.
    pub(super) fn encode(&self) -> Out {
        let mut out = Out::new();
        out.u8(VERSION);
        out.raw(&self.id.0);
        out.u64(self.issued.0);
        out.u64(self.expires.0);
        out.u64(self.authenticated.0);
        out.expiry(self.vouched_until);
        out.id(&self.id_i);
        out.id(&self.id_r);
        out.u8(self.method.code());
        out.ike_suite(&self.suite);
        out.bytes(self.sk_d.as_bytes());
        out.u64(self.spi_i);
        out.u64(self.spi_r);
        out.bytes(self.connection.as_bytes());
        out.list(&self.addresses, |out, &ip| out.ip(ip));
        out.list(&self.children, |out, child| child.encode(out));
        let padded = (out.len() + 1).next_multiple_of(PAD_TO);
        out.u8(1);
        while out.len() < padded {
            out.u8(0);
        }
        out
    }

    /// For fuzzing: the encoding is otherwise seen sealed only.
    pub(crate) fn fuzz_encode(&self) -> Vec<u8> {
        self.encode().into_vec()
    }

    /// See `fuzz_encode`.
    pub(crate) fn fuzz_decode(bytes: &[u8]) -> Result<Self, TicketFormatError> {
        Self::decode(bytes)
    }

    /// # Errors
    /// If it is not the encoding of a content.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, TicketFormatError> {
        let mut r = In(Reader::new("ticket content", bytes));
        r.version(VERSION)?;
        let id = TicketId(r.array()?);
        let (issued, expires, authenticated) = (UnixTime(r.u64()?), UnixTime(r.u64()?), UnixTime(r.u64()?));
        let vouched_until = r.expiry()?;
        let (id_i, id_r) = (r.id()?, r.id()?);
        let method = AuthMethod::from(r.u8()?);
        let suite = r.ike_suite()?;
        let sk_d = r.secret("length of SK_d", suite.prf.output_len())?;
        let (spi_i, spi_r) = (r.u64()?, r.u64()?);
        let connection = r.text("connection", limits::TICKET_IDENTITY_MAX)?;
        let addresses = r.list(In::ip)?;
        let children = r.list(TicketChild::decode)?;
        let pad = r.0.rest();
        let well_padded = pad.len() <= PAD_TO
            && pad.split_first().is_some_and(|(&one, zeros)| one == 1 && zeros.iter().all(|&b| b == 0));
        if !well_padded || !bytes.len().is_multiple_of(PAD_TO) {
            return Err(TicketFormatError::Value { what: "padding", got: pad.len() as u64 });
        }
        Ok(Self {
            id,
            issued,
            expires,
            authenticated,
            vouched_until,
            id_i,
            id_r,
            method,
            suite,
            sk_d,
            spi_i,
            spi_r,
            connection,
            addresses,
            children,
        })
    }
}

impl TicketChild {
    pub(super) fn encode(&self, out: &mut Out) {
        out.bytes(self.name.as_bytes());
        out.esp_suite(&self.suite);
        out.u8(u8::from(self.mode == ChildMode::Transport));
        for side in [&self.ts_local, &self.ts_remote] {
            out.list(side, |out, ts| {
                out.u8(ts.protocol);
                out.u16(ts.start_port);
                out.u16(ts.end_port);
                out.ip(ts.start);
                out.ip(ts.end);
            });
        }
    }

    pub(super) fn decode(r: &mut In<'_>) -> Result<Self, TicketFormatError> {
        let name = r.text("name of a child", limits::TICKET_IDENTITY_MAX)?;
        let suite = r.esp_suite()?;
        let mode = if r.flag("mode of a child")? { ChildMode::Transport } else { ChildMode::Tunnel };
        let side = |r: &mut In<'_>| {
            r.list(|r| {
                let protocol = r.u8()?;
                let (start_port, end_port) = (u16::from_be_bytes(r.array()?), u16::from_be_bytes(r.array()?));
                Ok(TsRange { protocol, start_port, end_port, start: r.ip()?, end: r.ip()? })
            })
        };
        let (ts_local, ts_remote) = (side(r)?, side(r)?);
        Ok(Self { name, suite, mode, ts_local, ts_remote })
    }

    /// The ranges among selectors, which are all that can be stored.
    #[must_use]
    pub fn ranges(selectors: &[TrafficSelector]) -> Vec<TsRange> {
        selectors
            .iter()
            .filter_map(|selector| match selector {
                TrafficSelector::Range(range) => Some(*range),
                TrafficSelector::Unknown { .. } => None,
            })
            .collect()
    }
}

impl fmt::Debug for TicketContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketContent")
            .field("id", &self.id)
            .field("connection", &self.connection)
            .field("suite", &self.suite)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
