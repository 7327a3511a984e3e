//! The client's half of a ticket: the gateway's opaque bytes, and what the client must remember to use them. Owns the stored form;
//! must never write it anywhere (the driver does, readable by its owner alone).

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use dormouse_crypto::Secret;
use dormouse_sansio::UnixTime;
use dormouse_wire::codec::Reader;
use dormouse_wire::ike::Id;

use super::codec::{In, Out, TicketFormatError};
use super::content::TicketChild;
use crate::config::Resumption;
use crate::limits;
use crate::proposal::IkeSuite;

/// "DMT" and the version.
const MAGIC: [u8; 3] = *b"DMT";
const VERSION: u8 = 4;

/// Everything a client needs to resume. Zeroized when dropped; `Debug` shows no secret.
///
/// The rules of RFC 5723, section 6.2: delete it when the IKE SA is deleted by either side or the user logs out; ask for a new one
/// when the SA is rekeyed.
/// "[...] the local storage MUST also include all items marked as 'from the ticket'" (RFC 5723 section 4.2); the method of our
/// own authentication is that of the connection it names.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientTicket {
    /// What is sent in TICKET_OPAQUE. Its meaning is the gateway's business.
    pub opaque: Secret,
    /// When it ends, by our clock: arrival plus the lifetime that TICKET_LT_OPAQUE gave.
    pub expires: UnixTime,
    /// When the peers last authenticated fully.
    pub authenticated: UnixTime,
    /// When the first of the certificates expires that the session rests on; `None`: it rests on none.
    pub vouched_until: Option<UnixTime>,
    /// SK_d of the IKE SA.
    pub sk_d: Secret,
    /// Algorithms of the IKE SA.
    pub suite: IkeSuite,
    /// IDi: sent again, unchanged.
    pub id_i: Id,
    /// IDr: expected again, unchanged.
    pub id_r: Id,
    /// SPIs of the IKE SA (initiator's, responder's), which the resumed one replaces.
    pub spis: (u64, u64),
    /// Name of the connection.
    pub connection: String,
    /// Where the gateway was, IKE port.
    pub gateway: SocketAddr,
    /// Inner addresses to ask for again.
    pub addresses: Vec<IpAddr>,
    /// The dialect in which the gateway gave it.
    pub dialect: Resumption,
    /// The CHILD SA that the gateway can bring back within the first exchange (`docs/wire/dormancy.md`), as it was here;
    /// `None`: it does not know how.
    pub child: Option<TicketChild>,
}

impl ClientTicket {
    /// Whether it is still worth sending.
    #[must_use]
    pub fn is_valid(&self, now: UnixTime) -> bool {
        now < self.expires && self.dialect != Resumption::Off
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Secret {
        let mut out = Out::new();
        out.raw(&MAGIC);
        out.u8(VERSION);
        out.bytes(self.opaque.as_bytes());
        out.u64(self.expires.0);
        out.u64(self.authenticated.0);
        out.expiry(self.vouched_until);
        out.ike_suite(&self.suite);
        out.bytes(self.sk_d.as_bytes());
        out.id(&self.id_i);
        out.id(&self.id_r);
        out.u64(self.spis.0);
        out.u64(self.spis.1);
        out.bytes(self.connection.as_bytes());
        out.socket(self.gateway);
        out.list(&self.addresses, |out, &ip| out.ip(ip));
        out.u8(match self.dialect {
            Resumption::Off => 0,
            Resumption::Strict => 1,
            Resumption::Libreswan => 2,
        });
        out.list(self.child.as_slice(), |out, child| child.encode(out));
        out.into_secret()
    }

    /// From the stored form.
    ///
    /// # Errors
    /// [`TicketFormatError`]: delete the file and connect anew.
    pub fn decode(bytes: &[u8]) -> Result<Self, TicketFormatError> {
        let mut r = In(Reader::new("stored ticket", bytes));
        let magic: [u8; 3] = r.array()?;
        if magic != MAGIC {
            return Err(TicketFormatError::Value { what: "magic number", got: u64::from(magic[0]) });
        }
        r.version(VERSION)?;
        let opaque = Secret::from(r.bytes("length of the ticket", limits::TICKET_MAX)?);
        let (expires, authenticated) = (UnixTime(r.u64()?), UnixTime(r.u64()?));
        let vouched_until = r.expiry()?;
        let suite = r.ike_suite()?;
        let sk_d = r.secret("length of SK_d", suite.prf.output_len())?;
        let (id_i, id_r) = (r.id()?, r.id()?);
        let spis = (r.u64()?, r.u64()?);
        let connection = r.text("connection", limits::TICKET_IDENTITY_MAX)?;
        let gateway = r.socket()?;
        let addresses = r.list(In::ip)?;
        let dialect = match r.u8()? {
            0 => Resumption::Off,
            1 => Resumption::Strict,
            2 => Resumption::Libreswan,
            got => return Err(TicketFormatError::Value { what: "dialect", got: got.into() }),
        };
        let mut children = r.list(TicketChild::decode)?;
        if children.len() > 1 {
            let got = children.len() as u64;
            return Err(TicketFormatError::Value { what: "number of children", got });
        }
        r.0.all()?;
        Ok(Self {
            child: children.pop(),
            opaque,
            expires,
            authenticated,
            vouched_until,
            sk_d,
            suite,
            id_i,
            id_r,
            spis,
            connection,
            gateway,
            addresses,
            dialect,
        })
    }
}

impl fmt::Debug for ClientTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTicket")
            .field("connection", &self.connection)
            .field("gateway", &self.gateway)
            .field("expires", &self.expires)
            .field("suite", &self.suite)
            .field("opaque", &self.opaque)
            .finish_non_exhaustive()
    }
}
