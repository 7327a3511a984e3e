//! Messages of rtnetlink, as far as they are used here: of links, addresses, routes, rules and neighbours. Those of links are read and written here, all others by
//! the library: its reader of links knows each kind of interface that there is, which is a twentieth of the small daemon, and refuses the whole message if one
//! attribute is not as it expects. Here a link's attributes stay bytes, of which [`LinkMessage::name`] and its like read one each.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, ErrorContext, NLA_HEADER_SIZE, NetlinkDeserializable, NetlinkHeader,
    NetlinkSerializable, Nla, NlaBuffer, NlasIterator, Parseable, parse_string, parse_u32,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkHeader;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;

/// Attributes of a link (`IFLA_*` of `linux/if_link.h`), and what is nested in them.
pub(super) const NAME: u16 = 3;
pub(super) const MTU: u16 = 4;
pub(super) const INFO: u16 = 18;
pub(super) const INFO_KIND: u16 = 1;
pub(super) const INFO_DATA: u16 = 2;
pub(super) const FAMILIES: u16 = 26;
/// In [`INFO_DATA`] of an interface of the kind [`XFRM`].
pub(super) const XFRM_LINK: u16 = 1;
pub(super) const XFRM_IF_ID: u16 = 2;
/// The kind of interface whose packets the kernel's IPsec protects.
pub(super) const XFRM: &str = "xfrm";
/// In [`FAMILIES`]: `AF_INET6`, and therein how the kernel makes addresses; this mode is "not at all".
pub(super) const INET6: u16 = 10;
pub(super) const ADDRESS_MODE: u16 = 8;
pub(super) const ADDRESS_MODE_NONE: u8 = 1;

/// What a message does, as it is counted within each group of `RTM_*` (`linux/rtnetlink.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    /// Makes or changes something; in answers, that it is there.
    New = 0,
    Delete = 1,
    Get = 2,
    Set = 3,
}

/// What it is about.
#[derive(Clone, Debug)]
pub(super) enum About {
    Link(LinkMessage),
    Address(AddressMessage),
    Route(RouteMessage),
    Neighbour(NeighbourMessage),
    Rule(RuleMessage),
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) verb: Verb,
    pub(super) about: About,
}

impl Message {
    pub(super) fn new(about: impl Into<About>) -> Self {
        Self { verb: Verb::New, about: about.into() }
    }

    pub(super) fn delete(about: impl Into<About>) -> Self {
        Self { verb: Verb::Delete, about: about.into() }
    }

    pub(super) fn get(about: impl Into<About>) -> Self {
        Self { verb: Verb::Get, about: about.into() }
    }

    pub(super) fn set(about: impl Into<About>) -> Self {
        Self { verb: Verb::Set, about: about.into() }
    }
}

macro_rules! about {
    ($($kind:ident($message:ident) = $group:literal),+) => {
        $(impl From<$message> for About {
            fn from(message: $message) -> Self {
                Self::$kind(message)
            }
        })+

        impl About {
            /// The first number of its group of `RTM_*`.
            fn group(&self) -> u16 {
                match self {
                    $(Self::$kind(_) => $group),+
                }
            }

            fn emitable(&self) -> &dyn Emitable {
                match self {
                    $(Self::$kind(message) => message),+
                }
            }

            fn parse(group: u16, payload: &[u8]) -> Result<Self, DecodeError> {
                match group {
                    $($group => $message::parse(payload).map(Self::$kind),)+
                    other => Err(format!("rtnetlink's messages from {other} on are not read").into()),
                }
            }
        }
    };
}

about! {
    Link(LinkMessage) = 16, Address(AddressMessage) = 20, Route(RouteMessage) = 24, Neighbour(NeighbourMessage) = 28,
    Rule(RuleMessage) = 32
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.about.group() + self.verb as u16
    }

    fn buffer_len(&self) -> usize {
        self.about.emitable().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        self.about.emitable().emit(buffer);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let kind = header.message_type;
        let verb = [Verb::New, Verb::Delete, Verb::Get, Verb::Set][usize::from(kind % 4)];
        Ok(Self { verb, about: About::parse(kind - kind % 4, payload)? })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct LinkMessage {
    pub(super) header: LinkHeader,
    pub(super) attributes: Vec<DefaultNla>,
}

impl LinkMessage {
    /// About the interface with this number.
    pub(super) fn of(index: u32) -> Self {
        Self { header: LinkHeader { index, ..LinkHeader::default() }, attributes: Vec::new() }
    }

    pub(super) fn name(&self) -> Option<String> {
        parse_string(&self.value(NAME)?).ok()
    }

    /// In bytes.
    pub(super) fn mtu(&self) -> Option<u32> {
        parse_u32(&self.value(MTU)?).ok()
    }

    /// The `if_id` of an interface whose packets the kernel's IPsec protects.
    pub(super) fn if_id(&self) -> Option<u32> {
        let info = self.value(INFO)?;
        let kind = parse_string(within(&info, INFO_KIND)?).ok()?;
        parse_u32(within(within(&info, INFO_DATA).filter(|_| kind == XFRM)?, XFRM_IF_ID)?).ok()
    }

    fn value(&self, kind: u16) -> Option<Vec<u8>> {
        let attribute = self.attributes.iter().find(|attribute| attribute.kind() == kind)?;
        let mut value = vec![0; attribute.value_len()];
        attribute.emit_value(&mut value);
        Some(value)
    }
}

/// The value of the first attribute of this kind, of those that are written one after the other.
fn within(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let found = |attribute: &NlaBuffer<&[u8]>| attribute.kind() == kind;
    let attribute = NlasIterator::new(attributes).map_while(Result::ok).find(found)?;
    let end = usize::from(attribute.length());
    attribute.into_inner().get(NLA_HEADER_SIZE..end)
}

/// An attribute that consists of others.
pub(super) fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut value = vec![0; attributes.buffer_len()];
    attributes.emit(&mut value);
    DefaultNla::new(kind, value)
}

impl Emitable for LinkMessage {
    fn buffer_len(&self) -> usize {
        self.header.buffer_len() + self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        let (header, attributes) = buffer.split_at_mut(self.header.buffer_len());
        self.header.emit(header);
        self.attributes.as_slice().emit(attributes);
    }
}

impl Parseable<[u8]> for LinkMessage {
    fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let header = LinkHeader::parse(payload)?;
        let attributes = payload.get(header.buffer_len()..).unwrap_or_default();
        let read = |attribute: Result<NlaBuffer<_>, _>| DefaultNla::parse(&attribute?);
        let attributes = NlasIterator::new(attributes).map(read).collect::<Result<_, _>>();
        Ok(Self { header, attributes: attributes.context("a link's attributes")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xfrm() -> Vec<u8> {
        let number = |kind, value: u32| DefaultNla::new(kind, value.to_ne_bytes().to_vec());
        let mut link = LinkMessage::of(7);
        link.attributes = vec![
            DefaultNla::new(NAME, b"ipsec0\0".to_vec()),
            DefaultNla::new(9999, vec![1; 3]),
            number(MTU, 1_438),
            nested(
                INFO,
                &[
                    DefaultNla::new(INFO_KIND, b"xfrm\0".to_vec()),
                    nested(INFO_DATA, &[number(XFRM_IF_ID, 42)]),
                ],
            ),
        ];
        let mut bytes = vec![0; link.buffer_len()];
        link.emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_link_is_read_as_it_is_written() {
        let link = LinkMessage::parse(&xfrm()).unwrap();
        assert_eq!((link.header.index, link.name().as_deref(), link.mtu()), (7, Some("ipsec0"), Some(1_438)));
        assert_eq!((link.if_id(), link.attributes.len()), (Some(42), 4));
        let bare = LinkMessage::default();
        assert_eq!((bare.name(), bare.mtu(), bare.if_id()), (None, None, None));
    }

    #[test]
    fn a_number_within_another_kind_of_link_is_no_if_id() {
        let mut bytes = xfrm();
        let at = bytes.windows(4).position(|four| four == b"xfrm").unwrap();
        bytes[at..at + 4].copy_from_slice(b"vlan");
        assert_eq!(LinkMessage::parse(&bytes).unwrap().if_id(), None);
    }

    #[test]
    fn what_is_cut_off_or_too_short_is_no_panic() {
        let bytes = xfrm();
        for cut in 0..bytes.len() {
            let _link = LinkMessage::parse(&bytes[..cut]).map(|link| (link.name(), link.mtu(), link.if_id()));
            // A value that is too short for what it should be.
            let attributes =
                [NAME, MTU, INFO].map(|kind| DefaultNla::new(kind, bytes[..cut].to_vec())).into();
            let link = LinkMessage { attributes, ..LinkMessage::default() };
            let _read = (link.name(), link.mtu(), link.if_id());
        }
        assert!(LinkMessage::parse(&bytes[..15]).is_err());
    }

    #[test]
    fn a_message_of_another_group_is_an_error() {
        let read = |kind| {
            let mut header = NetlinkHeader::default();
            header.message_type = kind;
            Message::deserialize(&header, &xfrm())
        };
        assert_eq!(read(17).map(|m| (m.verb, m.message_type())).unwrap(), (Verb::Delete, 17));
        assert!(read(36).is_err() && read(u16::MAX).is_err() && read(0).is_err());
    }
}
