//! What a gateway writes into a ticket: everything that RFC 5723, section 5, takes "from the ticket". Owns the canonical encoding
//! of the content; must never seal it (that is `keys`).

use core::fmt;
use core::net::IpAddr;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_sansio::UnixTime;
use dormouse_wire::codec::Reader;
use dormouse_wire::ike::{AuthMethod, Id, TsRange};

use super::lineage::Name;
use crate::auth;
use crate::codec::{In, Out, TicketFormatError};
use crate::config::ChildMode;
use crate::credential::Credential;
use crate::limits;
use crate::proposal::{EspSuite, IkeSuite};

const VERSION: u8 = 5;
/// Content is padded to a multiple of this, so that the length of a ticket says little about the identities in it.
/// "leakage of information, such as the identities of an IKEv2 initiator and a responder, MUST be avoided" (RFC 5723 section
/// 9.10)
const PAD_TO: usize = 64;

/// Which form of resumption a ticket is for. Neither takes the other's tickets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Version 2 of `docs/wire/dormancy.md`, in one round trip or two; the ticket holds RS.
    Dormouse,
    /// RFC 5723; the ticket holds SK_d.
    Plain,
}

impl Form {
    pub(super) fn encode(self, out: &mut Out) {
        out.u8(match self {
            Self::Dormouse => 2,
            Self::Plain => 0,
        });
    }

    pub(super) fn decode(r: &mut In<'_>) -> Result<Self, TicketFormatError> {
        match r.u8()? {
            2 => Ok(Self::Dormouse),
            0 => Ok(Self::Plain),
            got => Err(TicketFormatError::Value { what: "form", got: got.into() }),
        }
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
    /// The lineage of the session.
    pub lineage: Name,
    /// The IKE SA that issued it.
    pub own: Name,
    /// The one before that; the same if there was none.
    pub before: Name,
    /// What it is for.
    pub form: Form,
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
    /// Who that is: see [`crate::auth::Believed::identity`].
    pub peer: Identity,
    /// IDr: must come again in IKE_AUTH.
    pub id_r: Id,
    /// How the client authenticated then.
    pub method: AuthMethod,
    /// With what: it must still be good today.
    pub credential: Credential,
    /// The IKE SA's algorithms (SAr).
    pub suite: IkeSuite,
    /// RS, or SK_d of the IKE SA: see [`Form`].
    pub secret: Secret,
    /// Name of the connection that admitted the client; the configuration may have changed since.
    pub connection: String,
    /// Inner addresses that the client had (note 5).
    pub addresses: Vec<IpAddr>,
    /// The CHILD_SAs.
    pub children: Vec<TicketChild>,
}

impl TicketContent {
    /// The canonical encoding, padded.
    pub(super) fn encode(&self) -> Out {
        let mut out = Out::new();
        out.u8(VERSION);
        for name in [self.lineage, self.own, self.before] {
            out.raw(&name.0);
        }
        self.form.encode(&mut out);
        out.u64(self.issued.0);
        out.u64(self.expires.0);
        out.u64(self.authenticated.0);
        out.expiry(self.vouched_until);
        out.id(&self.id_i);
        let other = Some(&self.peer).filter(|peer| !is_in(peer, &self.id_i)).map(auth::id_payload);
        out.list(other.as_slice(), Out::id);
        out.id(&self.id_r);
        out.u8(self.method.code());
        self.credential.encode(&mut out);
        out.ike_suite(&self.suite);
        out.bytes(self.secret.as_bytes());
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
        let (lineage, own, before) = (Name(r.array()?), Name(r.array()?), Name(r.array()?));
        let form = Form::decode(&mut r)?;
        let (issued, expires, authenticated) = (UnixTime(r.u64()?), UnixTime(r.u64()?), UnixTime(r.u64()?));
        let vouched_until = r.expiry()?;
        let id_i = r.id()?;
        let impossible = || TicketFormatError::Value { what: "identity", got: id_i.kind.code().into() };
        let peer = match r.at_most_one("number of identities", In::id)? {
            None => auth::identity(&id_i).map_err(|_| impossible())?,
            Some(other) => {
                let peer = auth::identity(&other).map_err(|_| impossible())?;
                Some(peer).filter(|peer| !is_in(peer, &id_i) && is_in(peer, &other)).ok_or_else(impossible)?
            }
        };
        let id_r = r.id()?;
        let method = AuthMethod::from(r.u8()?);
        let credential = Credential::decode(&mut r)?;
        let suite = r.ike_suite()?;
        let secret = r.secret("length of the secret", suite.prf.output_len())?;
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
            lineage,
            own,
            before,
            form,
            issued,
            expires,
            authenticated,
            vouched_until,
            id_i,
            peer,
            id_r,
            method,
            credential,
            suite,
            secret,
            connection,
            addresses,
            children,
        })
    }
}

/// Whether the ID payload has this very identity.
fn is_in(identity: &Identity, id: &Id) -> bool {
    auth::identity(id).is_ok_and(|sent| sent == *identity)
}

impl TicketChild {
    pub(crate) fn encode(&self, out: &mut Out) {
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

    pub(crate) fn decode(r: &mut In<'_>) -> Result<Self, TicketFormatError> {
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
}

impl fmt::Debug for TicketContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketContent")
            .field("lineage", &self.lineage)
            .field("connection", &self.connection)
            .field("suite", &self.suite)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
