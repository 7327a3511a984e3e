//! What is left of an IKE SA for the gateway that takes it over: the encoding, and its making from an SA. Owns both; what becomes of it is
//! [`crate::endpoint`]'s.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dormouse_crypto::cert::Identity;
use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::{RestingKey, Secret};
use dormouse_sansio::{Carrier, Entropy, Path, UnixTime};
use dormouse_wire::codec::Reader;
use dormouse_wire::ike::AuthMethod;

use crate::auth;
use crate::child::Child;
use crate::codec::{In, Out, TicketFormatError};
use crate::config::Connection;
use crate::config_payload::AssignedConfig;
use crate::credential::Credential;
use crate::keys::{IkeKeys, Spis};
use crate::limits;
use crate::natd::Detection;
use crate::proposal::IkeSuite;
use crate::protect::Channel;
use crate::sa::IkeSa;
use crate::session::Session;
use crate::ticket::TicketChild;
use crate::ticket::lineage::Name;

const VERSION: u8 = 1;

/// Everything about an IKE SA that another gateway needs to go on with it.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) lineage: Name,
    /// How many had it before the gateway that wrote this.
    pub(crate) owners: u16,
    pub(crate) connection: String,
    /// When its keys must not be used any more.
    pub(crate) expires: UnixTime,
    pub(crate) ends: Ends,
    pub(crate) keys: Keys,
    pub(crate) session: Session,
    pub(crate) peer: Identity,
    pub(crate) assigned: AssignedConfig,
    pub(crate) mobike: bool,
    pub(crate) nat: Detection,
    /// Our additional addresses, as the peer was told them.
    pub(crate) told: Vec<IpAddr>,
    /// The next ids of the gateway's requests and of the peer's, as they were then, and the window that the peer has granted.
    pub(crate) next_ids: (u32, u32),
    pub(crate) window: u32,
    pub(crate) children: Vec<LeftChild>,
}

/// Where the SA begins and ends.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) initiator: bool,
    pub(crate) spis: Spis,
    pub(crate) path: Path,
    pub(crate) fragmentation: bool,
    pub(crate) redirects: bool,
}

/// Its keys, the raw ones in the order of [`RestingKey`].
#[derive(Debug)]
pub(crate) struct Keys {
    suite: IkeSuite,
    sk_d: Secret,
    sk_pi: Secret,
    sk_pr: Secret,
    from_initiator: Secret,
    from_responder: Secret,
}

/// A CHILD SA without its keys: enough to have it replaced.
#[derive(Debug)]
pub(crate) struct LeftChild {
    pub(crate) child: TicketChild,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
}

impl Keys {
    pub(crate) fn suite(&self) -> &IkeSuite {
        &self.suite
    }

    /// The keys for the owner who comes after `owners` others, at this end.
    ///
    /// # Errors
    /// If an algorithm refuses its key, which none does that was in use.
    pub(crate) fn wake(
        &self,
        initiator: bool,
        owners: u16,
        entropy: &mut dyn Entropy,
    ) -> Result<IkeKeys, dormouse_crypto::Error> {
        let Self { suite, sk_d, sk_pi, sk_pr, from_initiator, from_responder } = self;
        let key = |keymat: &Secret| RestingKey::new(suite.encr, suite.integ, keymat.as_bytes());
        let (i, r) = (key(from_initiator)?, key(from_responder)?);
        let (from_initiator, from_responder) = match initiator {
            true => (Channel::taken_over(i, owners, entropy), Channel::new(r)),
            false => (Channel::new(i), Channel::taken_over(r, owners, entropy)),
        };
        let (sk_d, sk_pi, sk_pr) = (sk_d.clone(), sk_pi.clone(), sk_pr.clone());
        Ok(IkeKeys { suite: *suite, sk_d, sk_pi, sk_pr, from_initiator, from_responder })
    }
}

/// The bytes that [`Content::decode`] reads, of an SA that has this many owners behind it. `None`: of a kind that is not left, as its CHILD SAs have
/// zones, or are in transport mode.
pub(crate) fn of(sa: &IkeSa, owners: u16, expires: UnixTime) -> Option<Secret> {
    let core = &sa.core;
    let (link, conn) = (&core.link, &core.link.conn);
    let children: Vec<LeftChild> = sa.children.iter().map(|c| left(conn, c)).collect::<Option<_>>()?;
    let mut out = Out::new();
    out.u8(VERSION);
    out.raw(&core.descent.as_ref()?.lineage.0);
    out.u16(owners);
    out.bytes(conn.name.as_bytes());
    out.u64(expires.0);
    out.u8(u8::from(link.initiator));
    out.u64(link.spis.i);
    out.u64(link.spis.r);
    out.socket(link.path.local);
    out.socket(link.path.remote);
    out.u8(match link.path.carrier {
        Carrier::Ike => 0,
        Carrier::NatT => 1,
        Carrier::RawEsp | Carrier::RawHip | Carrier::HipUdp => return None,
    });
    out.u8(u8::from(link.fragmentation));
    out.u8(u8::from(link.redirects));
    let channel = &core.channel;
    out.ike_suite(&channel.suite);
    let (from_initiator, from_responder) = channel.keymat(link.initiator);
    for key in [&channel.sk_d, &channel.sk_pi, &channel.sk_pr, from_initiator, from_responder] {
        out.bytes(key.as_bytes());
    }
    let Session { id_i, id_r, method, authenticated, vouched_until, credential } = &core.session;
    out.id(id_i);
    out.id(id_r);
    out.u8(method.code());
    out.u64(authenticated.0);
    out.expiry(*vouched_until);
    credential.as_ref()?.encode(&mut out);
    out.id(&auth::id_payload(&core.peer));
    out.list(&core.assigned.addresses(), |out, &ip| out.ip(ip));
    out.u8(core.assigned.v6.map_or(0, |(_, bits)| bits));
    let Detection { supported, local, remote } = sa.mobility.nat();
    [sa.mobility.mobike(), supported, local, remote].into_iter().for_each(|flag| out.u8(u8::from(flag)));
    out.list(sa.mobility.told(), |out, &ip| out.ip(ip));
    for number in [core.requests.next_id(), core.answers.oldest(), core.requests.window()] {
        out.u64(number.into());
    }
    out.list(&children, |out, LeftChild { child, spi_in, spi_out }| {
        child.encode(out);
        out.u64((*spi_in).into());
        out.u64((*spi_out).into());
    });
    Some(out.into_secret())
}

fn left(conn: &Connection, child: &Child) -> Option<LeftChild> {
    let config = conn.children.get(child.config)?;
    let tunnel = child.zones.is_none() && child.mode == crate::config::ChildMode::Tunnel;
    tunnel.then(|| LeftChild {
        child: TicketChild {
            name: config.name.clone(),
            suite: child.suite,
            mode: child.mode,
            ts_local: child.ts_local.clone(),
            ts_remote: child.ts_remote.clone(),
        },
        spi_in: child.spi_in,
        spi_out: child.spi_out,
    })
}

impl Content {
    /// # Errors
    /// If these bytes are something else, or of another release.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, TicketFormatError> {
        let mut r = In(Reader::new("what a gateway has left of an IKE SA", bytes));
        r.version(VERSION)?;
        let lineage = Name(r.array()?);
        let owners = u16::from_be_bytes(r.array()?);
        let connection = r.text("connection", limits::TICKET_IDENTITY_MAX)?;
        let expires = UnixTime(r.u64()?);
        let ends = decode_ends(&mut r)?;
        let keys = decode_keys(&mut r)?;
        let session = Session {
            id_i: r.id()?,
            id_r: r.id()?,
            method: AuthMethod::from(r.u8()?),
            authenticated: UnixTime(r.u64()?),
            vouched_until: r.expiry()?,
            credential: Some(Credential::decode(&mut r)?),
        };
        let id = r.id()?;
        let peer = auth::identity(&id)
            .map_err(|_| TicketFormatError::Value { what: "identity", got: id.kind.code().into() })?;
        let assigned = decode_assigned(&mut r)?;
        let mobike = r.flag("MOBIKE")?;
        let nat = Detection { supported: r.flag("NAT")?, local: r.flag("NAT")?, remote: r.flag("NAT")? };
        let told = r.list(In::ip)?;
        let (next_ids, window) = ((number(&mut r)?, number(&mut r)?), number(&mut r)?);
        let children = r.list(|r| {
            let child = TicketChild::decode(r)?;
            Ok(LeftChild { child, spi_in: number(r)?, spi_out: number(r)? })
        })?;
        r.0.all()?;
        Ok(Self {
            lineage,
            owners,
            connection,
            expires,
            ends,
            keys,
            session,
            peer,
            assigned,
            mobike,
            nat,
            told,
            next_ids,
            window,
            children,
        })
    }
}

fn decode_ends(r: &mut In<'_>) -> Result<Ends, TicketFormatError> {
    let initiator = r.flag("initiator")?;
    let spis = Spis { i: r.u64()?, r: r.u64()? };
    let (local, remote): (SocketAddr, SocketAddr) = (r.socket()?, r.socket()?);
    let carrier = if r.flag("carrier")? { Carrier::NatT } else { Carrier::Ike };
    let (fragmentation, redirects) = (r.flag("fragmentation")?, r.flag("redirects")?);
    Ok(Ends { initiator, spis, path: Path { local, remote, carrier }, fragmentation, redirects })
}

fn decode_keys(r: &mut In<'_>) -> Result<Keys, TicketFormatError> {
    let suite = r.ike_suite()?;
    let (prf, packets) = (suite.prf.output_len(), keymat_len(suite.encr, suite.integ));
    let mut secret = |len| r.secret("length of a key", len);
    Ok(Keys {
        sk_d: secret(prf)?,
        sk_pi: secret(prf)?,
        sk_pr: secret(prf)?,
        from_initiator: secret(packets)?,
        from_responder: secret(packets)?,
        suite,
    })
}

fn decode_assigned(r: &mut In<'_>) -> Result<AssignedConfig, TicketFormatError> {
    let (mut v4, mut v6): (Option<Ipv4Addr>, Option<Ipv6Addr>) = (None, None);
    for address in r.list(In::ip)? {
        match address {
            IpAddr::V4(address) => v4 = Some(address),
            IpAddr::V6(address) => v6 = Some(address),
        }
    }
    let bits = r.u8()?;
    let v6 = v6.map(|address| (address, bits.min(128)));
    Ok(AssignedConfig { v4, v6, ..AssignedConfig::default() })
}

/// A number of 32 bits.
fn number(r: &mut In<'_>) -> Result<u32, TicketFormatError> {
    let got = r.u64()?;
    u32::try_from(got).map_err(|_| TicketFormatError::Value { what: "number of 32 bits", got })
}
