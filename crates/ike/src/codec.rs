//! The canonical bytes behind tickets and their stored forms: big-endian numbers, strings and lists with their length before
//! them. One value has one encoding, and `encode(decode(x)) == x`. Owns the primitives; must never know a ticket.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dormouse_crypto::Secret;
use dormouse_crypto::suites::{Encr, Group, Integ, Prf};
use dormouse_sansio::UnixTime;
use dormouse_wire::codec::Reader;
use dormouse_wire::ike::{Id, IdType};

use crate::limits;
use crate::proposal::{ADDITIONAL_MAX, Additional, EspSuite, IkeSuite};

/// Bytes that are not the encoding of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TicketFormatError {
    /// Cut short, or lengths that do not add up.
    #[error("{0}")]
    Wire(#[from] dormouse_wire::Error),
    /// Another version.
    #[error("format {got} instead of {expect}")]
    Version {
        /// The version found.
        got: u8,
        /// The version understood.
        expect: u8,
    },
    /// A value outside of its range, or an algorithm that is not known (any more).
    #[error("{what} has the impossible value {got}")]
    Value {
        /// The field.
        what: &'static str,
        /// The value.
        got: u64,
    },
    /// A string that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Utf8(&'static str),
}

type Result<T> = core::result::Result<T, TicketFormatError>;

/// Writes; everything that goes in is zeroized with it.
pub(crate) struct Out(zeroize::Zeroizing<Vec<u8>>);

impl Out {
    /// Room for all usual tickets, so that growing does not leave copies of secrets behind.
    pub(crate) fn new() -> Self {
        Self(zeroize::Zeroizing::new(Vec::with_capacity(limits::TICKET_MAX)))
    }

    pub(crate) fn into_secret(mut self) -> Secret {
        Secret::from(core::mem::take(&mut *self.0))
    }

    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        core::mem::take(&mut *self.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }

    pub(crate) fn u16(&mut self, v: u16) {
        self.raw(&v.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.raw(&v.to_be_bytes());
    }

    /// A moment, or none: all ones.
    pub(crate) fn expiry(&mut self, v: Option<UnixTime>) {
        self.u64(v.map_or(u64::MAX, |t| t.0));
    }

    pub(crate) fn raw(&mut self, v: &[u8]) {
        self.0.extend_from_slice(v);
    }

    /// Cut to what the length field can say; no caller has longer ones.
    pub(crate) fn bytes(&mut self, v: &[u8]) {
        let len = u16::try_from(v.len()).unwrap_or(u16::MAX);
        self.u16(len);
        self.raw(v.get(..usize::from(len)).unwrap_or(v));
    }

    pub(crate) fn id(&mut self, id: &Id) {
        self.u8(id.kind.code());
        self.bytes(&id.data);
    }

    pub(crate) fn ip(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => {
                self.u8(4);
                self.raw(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.u8(6);
                self.raw(&ip.octets());
            }
        }
    }

    pub(crate) fn socket(&mut self, address: SocketAddr) {
        self.ip(address.ip());
        self.u16(address.port());
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        let len = u8::try_from(items.len()).unwrap_or(u8::MAX);
        self.u8(len);
        items.iter().take(usize::from(len)).for_each(|item| each(self, item));
    }

    fn encr(&mut self, encr: Encr, integ: Option<Integ>) {
        self.u16(encr.id());
        self.u16(encr.key_length().unwrap_or(0));
        self.u16(integ.map_or(0, Integ::id));
    }

    pub(crate) fn ike_suite(&mut self, suite: &IkeSuite) {
        self.encr(suite.encr, suite.integ);
        self.u16(suite.prf.id());
        self.u16(suite.group.id());
        self.additional(&suite.additional);
    }

    /// A flag for each place, then the methods of those that have one.
    fn additional(&mut self, additional: &Additional) {
        let places = additional.places().iter().enumerate();
        self.u8(places.fold(0, |flags, (place, group)| flags | u8::from(group.is_some()) << place));
        additional.iter().for_each(|group| self.u16(group.id()));
    }

    pub(crate) fn esp_suite(&mut self, suite: &EspSuite) {
        self.encr(suite.encr, suite.integ);
        self.u16(suite.group.map_or(0, Group::id));
        self.additional(&suite.additional);
        self.u8(u8::from(suite.esn));
    }
}

/// Reads.
pub(crate) struct In<'a>(pub(crate) Reader<'a>);

fn value<T>(what: &'static str, got: u16, known: Option<T>) -> Result<T> {
    known.ok_or(TicketFormatError::Value { what, got: got.into() })
}

impl In<'_> {
    pub(crate) fn version(&mut self, expect: u8) -> Result<()> {
        match self.0.u8()? {
            got if got == expect => Ok(()),
            got => Err(TicketFormatError::Version { got, expect }),
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.0.u8()?)
    }

    pub(crate) fn expiry(&mut self) -> Result<Option<UnixTime>> {
        Ok(Some(self.u64()?).filter(|&t| t != u64::MAX).map(UnixTime))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(self.0.u64()?)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.0.array()?)
    }

    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool> {
        match self.0.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            got => Err(TicketFormatError::Value { what, got: got.into() }),
        }
    }

    pub(crate) fn bytes(&mut self, what: &'static str, max: usize) -> Result<Vec<u8>> {
        let len = usize::from(self.0.u16()?);
        if len > max {
            return Err(TicketFormatError::Value { what, got: len as u64 });
        }
        Ok(self.0.take(len)?.to_vec())
    }

    pub(crate) fn secret(&mut self, what: &'static str, len: usize) -> Result<Secret> {
        let got = usize::from(self.0.u16()?);
        if got != len {
            return Err(TicketFormatError::Value { what, got: got as u64 });
        }
        Ok(Secret::from(self.0.take(len)?))
    }

    pub(crate) fn text(&mut self, what: &'static str, max: usize) -> Result<String> {
        String::from_utf8(self.bytes(what, max)?).map_err(|_| TicketFormatError::Utf8(what))
    }

    pub(crate) fn id(&mut self) -> Result<Id> {
        let kind = IdType::from(self.0.u8()?);
        Ok(Id::new(kind, self.bytes("identity", limits::TICKET_IDENTITY_MAX)?))
    }

    pub(crate) fn ip(&mut self) -> Result<IpAddr> {
        match self.0.u8()? {
            4 => Ok(IpAddr::V4(Ipv4Addr::from(self.0.array::<4>()?))),
            6 => Ok(IpAddr::V6(Ipv6Addr::from(self.0.array::<16>()?))),
            got => Err(TicketFormatError::Value { what: "address family", got: got.into() }),
        }
    }

    pub(crate) fn socket(&mut self) -> Result<SocketAddr> {
        Ok(SocketAddr::new(self.ip()?, self.0.u16()?))
    }

    pub(crate) fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let len = self.0.u8()?;
        (0..len).map(|_| each(self)).collect()
    }

    /// A list of one or none.
    pub(crate) fn at_most_one<T>(
        &mut self,
        what: &'static str,
        each: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut list = self.list(each)?;
        match list.len() {
            0 | 1 => Ok(list.pop()),
            got => Err(TicketFormatError::Value { what, got: got as u64 }),
        }
    }

    fn encr(&mut self) -> Result<(Encr, Option<Integ>)> {
        let (id, bits, integ) = (self.0.u16()?, self.0.u16()?, self.0.u16()?);
        let encr = value("cipher", id, Encr::by_id(id, (bits != 0).then_some(bits)))?;
        let integ =
            (integ != 0).then(|| value("integrity algorithm", integ, Integ::by_id(integ))).transpose()?;
        if encr.is_aead() == integ.is_some() {
            return Err(TicketFormatError::Value {
                what: "pair of cipher and integrity algorithm",
                got: id.into(),
            });
        }
        Ok((encr, integ))
    }

    pub(crate) fn ike_suite(&mut self) -> Result<IkeSuite> {
        let (encr, integ) = self.encr()?;
        let (prf, group) = (self.0.u16()?, self.0.u16()?);
        Ok(IkeSuite {
            encr,
            integ,
            prf: value("pseudo-random function", prf, Prf::by_id(prf))?,
            group: value("group", group, Group::by_id(group))?,
            additional: self.additional()?,
        })
    }

    fn additional(&mut self) -> Result<Additional> {
        let flags = self.0.u8()?;
        if usize::from(flags) >> ADDITIONAL_MAX != 0 {
            return Err(TicketFormatError::Value { what: "additional key exchanges", got: flags.into() });
        }
        let mut places = [None; ADDITIONAL_MAX];
        for (_, place) in places.iter_mut().enumerate().filter(|(i, _)| flags >> i & 1 == 1) {
            let id = self.0.u16()?;
            *place = Some(value("additional key exchange", id, Group::by_id(id))?);
        }
        Ok(Additional::from_places(places))
    }

    pub(crate) fn esp_suite(&mut self) -> Result<EspSuite> {
        let (encr, integ) = self.encr()?;
        let group = self.0.u16()?;
        let group = (group != 0).then(|| value("group", group, Group::by_id(group))).transpose()?;
        let additional = self.additional()?;
        Ok(EspSuite { encr, integ, group, additional, esn: self.flag("extended sequence numbers")? })
    }
}
