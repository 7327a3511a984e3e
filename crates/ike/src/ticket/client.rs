//! The client's half of a ticket: the gateway's opaque bytes, and what the client must remember to use them. Owns the stored form;
//! must never write it anywhere (the driver does, readable by its owner alone).

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use dormouse_crypto::{HashAlg, Secret, hash};
use dormouse_sansio::UnixTime;
use dormouse_wire::codec::Reader;
use dormouse_wire::ike::Id;

use super::content::{Form, TicketChild};
use super::lineage::Name;
use crate::codec::{In, Out, TicketFormatError};
use crate::config::{Connection, LocalAuth, RemoteAuth, Resumption};
use crate::credential::Credential;
use crate::limits;
use crate::proposal::IkeSuite;

/// "DMT" and the version.
const MAGIC: [u8; 3] = *b"DMT";
const VERSION: u8 = 6;

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
    /// The certificates by which the gateway was believed; `None`: it has a pre-shared key.
    pub credential: Option<Credential>,
    /// What it is for.
    pub form: Form,
    /// RS, or SK_d of the IKE SA: see [`Form`]. Empty once the gateway has refused the ticket: then only the name of its lineage
    /// is of use.
    pub secret: Secret,
    /// The lineage, if the gateway told it.
    pub lineage: Option<Name>,
    /// How many sessions in a row, up to the one that brought this ticket, were resumed and heard nothing from the gateway under
    /// their keys.
    pub unheard: u8,
    /// The configuration of the connection by which it was given, as far as it says who may be at either end ([`fingerprint`]).
    pub fingerprint: [u8; 16],
    /// Algorithms of the IKE SA.
    pub suite: IkeSuite,
    /// IDi: sent again, unchanged.
    pub id_i: Id,
    /// IDr: expected again, unchanged.
    pub id_r: Id,
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
        now < self.expires && self.is_usable()
    }

    /// The same, but for its time.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.dialect != Resumption::Off && !self.secret.is_empty() && self.unheard < limits::UNHEARD_MOST
    }

    /// The gateway has refused it in a message that only the gateway can have made: what is left is the lineage's name, to be told
    /// at the next full login.
    pub fn refused(&mut self) {
        (self.secret, self.opaque) = (Secret::zeroed(0), Secret::zeroed(0));
    }

    /// Whether it was given under the configuration of `conn`, as far as that says who may be at either end.
    #[must_use]
    pub fn is_of(&self, conn: &Connection) -> bool {
        self.fingerprint == fingerprint(conn)
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
        out.list(self.credential.as_slice(), |out, credential| credential.encode(out));
        out.ike_suite(&self.suite);
        self.form.encode(&mut out);
        out.bytes(self.secret.as_bytes());
        out.list(self.lineage.as_slice(), |out, name| out.raw(&name.0));
        out.u8(self.unheard);
        out.raw(&self.fingerprint);
        out.id(&self.id_i);
        out.id(&self.id_r);
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
        let credential = r.at_most_one("number of credentials", Credential::decode)?;
        let suite = r.ike_suite()?;
        let form = Form::decode(&mut r)?;
        // One that was refused has none.
        let secret =
            r.secret("length of the secret", if opaque.is_empty() { 0 } else { suite.prf.output_len() })?;
        let lineage = r.at_most_one("number of lineages", |r| Ok(Name(r.array()?)))?;
        let (unheard, fingerprint) = (r.u8()?, r.array()?);
        let (id_i, id_r) = (r.id()?, r.id()?);
        let connection = r.text("connection", limits::TICKET_IDENTITY_MAX)?;
        let gateway = r.socket()?;
        let addresses = r.list(In::ip)?;
        let dialect = match r.u8()? {
            0 => Resumption::Off,
            1 => Resumption::Strict,
            2 => Resumption::Libreswan,
            got => return Err(TicketFormatError::Value { what: "dialect", got: got.into() }),
        };
        let child = r.at_most_one("number of children", TicketChild::decode)?;
        r.0.all()?;
        Ok(Self {
            child,
            opaque,
            expires,
            authenticated,
            vouched_until,
            credential,
            form,
            secret,
            lineage,
            unheard,
            fingerprint,
            suite,
            id_i,
            id_r,
            connection,
            gateway,
            addresses,
            dialect,
        })
    }
}

/// Who may be at either end, and how each proves it, by a client's own configuration: 15 bytes of all that is no secret, and one of the
/// pre-shared keys. A thief of the file could otherwise try guesses at these on it; as it is, one wrong guess of 256 still stands, and the
/// gateway must be asked. A changed key that leaves the byte as it was is noticed by the gateway, which compares a keyed tag of its own.
pub(crate) fn fingerprint(conn: &Connection) -> [u8; 16] {
    let (mut out, mut secrets) = (Out::new(), Out::new());
    out.bytes(conn.name.as_bytes());
    out.bytes(conn.local_id.to_string().as_bytes());
    out.bytes(conn.remote_id.to_string().as_bytes());
    match &conn.local_auth {
        LocalAuth::Psk(psk) => secrets.bytes(psk.as_bytes()),
        LocalAuth::Cert { chain, .. } => out.list(chain, |out, der| out.bytes(der)),
        LocalAuth::Eap(login) => {
            out.bytes(login.user.as_bytes());
            out.list(login.chain(), |out, der| out.bytes(der));
            if let Some(password) = login.password() {
                secrets.bytes(password.as_bytes());
            }
        }
    }
    match &conn.remote_auth {
        RemoteAuth::Psk(psk) => secrets.bytes(psk.as_bytes()),
        RemoteAuth::Eap => {}
        RemoteAuth::Cert { trust, usage, accept_rsa_sha1, revocation: _ } => {
            out.bytes(&trust.certreq());
            trust.pinned().for_each(|fingerprint| out.bytes(&fingerprint));
            out.bytes(format!("{usage:?} {accept_rsa_sha1}").as_bytes());
        }
    }
    out.u8(u8::from(conn.ppk.required));
    out.list(&conn.ppk.keys, |out, ppk| out.bytes(&ppk.id));
    secrets.list(&conn.ppk.keys, |secrets, ppk| secrets.bytes(ppk.secret.as_bytes()));
    let digest =
        |out: Out| hash(HashAlg::Sha256, &[b"dormouse client configuration", out.into_secret().as_bytes()]);
    let mut fingerprint = [0; 16];
    let parts = digest(out).into_iter().take(15).chain(digest(secrets).into_iter().take(1));
    fingerprint.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    fingerprint
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use dormouse_crypto::cert::{Certificate, TrustStore, Usage};

    use super::*;
    use crate::config::IdentityPattern;

    fn connection(psk: &str, name: &str) -> Connection {
        let psk = Secret::from(psk.as_bytes());
        let id = |text: &str| text.parse().unwrap();
        let remote = IdentityPattern::Exact(id("gw.example.org"));
        Connection::new(
            name,
            id("joe.example.org"),
            LocalAuth::Psk(psk.clone()),
            remote,
            RemoteAuth::Psk(psk),
        )
    }

    /// A certificate that is trusted as itself alone is in no CERTREQ.
    #[test]
    fn the_fingerprint_changes_with_a_pinned_certificate() {
        let pinning = || {
            let made = rcgen::generate_simple_self_signed(vec!["gw.example.org".to_owned()]).unwrap();
            let pinned = Certificate::from_der(made.cert.der()).unwrap();
            let trust = Arc::new(TrustStore::new(vec![pinned]).unwrap());
            assert!(trust.certreq().is_empty());
            let remote_auth = RemoteAuth::Cert {
                trust,
                usage: Usage::Ike,
                accept_rsa_sha1: false,
                revocation: Arc::default(),
            };
            Connection { remote_auth, ..connection("secret", "home") }
        };
        let (before, after) = (pinning(), pinning());
        assert_eq!(fingerprint(&before), fingerprint(&before));
        assert_ne!(fingerprint(&before), fingerprint(&after));
    }

    #[test]
    fn the_fingerprint_is_of_no_use_for_guessing_the_pre_shared_key() {
        let right = fingerprint(&connection("right", "home"));
        let guesses = (0..4_096).map(|n| fingerprint(&connection(&format!("guess {n}"), "home")));
        let fitting = guesses.clone().filter(|guess| *guess == right).count();
        assert!((4..64).contains(&fitting), "{fitting} of 4096 wrong guesses stand");
        let rest: BTreeSet<_> = guesses.map(|guess| guess[..15].to_vec()).collect();
        assert_eq!(rest.len(), 1, "one byte alone depends on the key");
        assert_ne!(fingerprint(&connection("right", "work"))[..15], right[..15]);
        let mut required = connection("right", "home");
        required.ppk.required = true;
        assert_ne!(fingerprint(&required)[..15], right[..15]);
    }
}
