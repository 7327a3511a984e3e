//! Small questions put to a list of payloads. Owns the look-ups that every exchange needs; must never act on an answer.

use core::net::IpAddr;

use dormouse_sansio::Path;
use dormouse_wire::ike::dormancy::{self, Refused};
use dormouse_wire::ike::mlike;
use dormouse_wire::ike::{Config, Id, Notify, NotifyType, Payload, PayloadType, Proposal, TrafficSelector};

use crate::auth::Authentication;
use crate::keys::Spis;
use crate::natd;
use crate::ticket::lineage::Name;

/// A status or error notification as a payload.
pub(crate) fn notify(kind: NotifyType, data: impl Into<Vec<u8>>) -> Payload {
    Payload::Notify(Notify::new(kind, data))
}

/// A payload list, borrowed, with the questions that exchanges ask of it.
/// "implementations MUST NOT reject as invalid a message with those payloads in any other order" (RFC 7296 section 2.5)
#[derive(Clone, Copy)]
pub(crate) struct View<'a>(pub(crate) &'a [Payload]);

impl<'a> View<'a> {
    pub(crate) fn notifies(self) -> impl Iterator<Item = &'a Notify> {
        self.0.iter().filter_map(|p| match p {
            Payload::Notify(n) => Some(n),
            _ => None,
        })
    }

    pub(crate) fn notify(self, kind: NotifyType) -> Option<&'a Notify> {
        self.notifies().find(|n| n.kind == kind)
    }

    pub(crate) fn has(self, kind: NotifyType) -> bool {
        self.notify(kind).is_some()
    }

    /// The version of the dormancy extension that both ends speak; 0 if the message has not its vendor id.
    /// "Unfamiliar Vendor IDs MUST be ignored." (RFC 7296 section 3.12)
    pub(crate) fn dormancy(self) -> u8 {
        dormancy::version_of(self.0).unwrap_or(0)
    }

    /// Whether the message has the vendor id of multi-layered IPsec.
    pub(crate) fn mlike(self) -> bool {
        mlike::opened(self.0).is_some()
    }

    /// The bodies of payloads of this private type: of use only where both ends have sent its vendor id.
    pub(crate) fn private(self, wanted: PayloadType) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter_map(move |payload| match payload {
            Payload::Unknown { kind, body, .. } if *kind == wanted => Some(body.as_slice()),
            _ => None,
        })
    }

    /// What DORMANCY_LINEAGE names.
    pub(crate) fn lineage(self) -> Option<Name> {
        self.notify(NotifyType::DormancyLineage)?.data.first_chunk().copied().map(Name)
    }

    /// What DORMANCY_REFUSED says.
    pub(crate) fn refused(self) -> Option<Refused> {
        Refused::parse(&self.notify(NotifyType::DormancyRefused)?.data)
    }

    /// The first error notification.
    pub(crate) fn error(self) -> Option<&'a Notify> {
        self.notifies().find(|n| n.kind.is_error())
    }

    pub(crate) fn sa(self) -> Option<&'a [Proposal]> {
        self.0.iter().find_map(|p| match p {
            Payload::Sa(proposals) => Some(proposals.as_slice()),
            _ => None,
        })
    }

    /// Group and public value.
    pub(crate) fn ke(self) -> Option<(u16, &'a [u8])> {
        self.0.iter().find_map(|p| match p {
            Payload::Ke { group, data } => Some((*group, data.as_slice())),
            _ => None,
        })
    }

    /// The nonce, whose length the parser has checked.
    pub(crate) fn nonce(self) -> Option<&'a [u8]> {
        self.0.iter().find_map(|p| match p {
            Payload::Nonce(n) => Some(n.as_slice()),
            _ => None,
        })
    }

    /// The data of a Puzzle Solution payload.
    pub(crate) fn puzzle_solution(self) -> Option<&'a [u8]> {
        self.0.iter().find_map(|p| match p {
            Payload::PuzzleSolution(data) => Some(data.as_slice()),
            _ => None,
        })
    }

    pub(crate) fn cp(self) -> Option<&'a Config> {
        self.0.iter().find_map(|p| match p {
            Payload::Cp(config) => Some(config),
            _ => None,
        })
    }

    pub(crate) fn id_i(self) -> Option<&'a Id> {
        self.0.iter().find_map(|p| match p {
            Payload::IdI(id) => Some(id),
            _ => None,
        })
    }

    pub(crate) fn id_r(self) -> Option<&'a Id> {
        self.0.iter().find_map(|p| match p {
            Payload::IdR(id) => Some(id),
            _ => None,
        })
    }

    pub(crate) fn auth(self) -> Option<Authentication> {
        self.0.iter().find_map(|p| match p {
            Payload::Auth { method, data } => Some(Authentication { method: *method, data: data.clone() }),
            _ => None,
        })
    }

    /// The packet of an EAP payload.
    pub(crate) fn eap(self) -> Option<&'a [u8]> {
        self.0.iter().find_map(|p| match p {
            Payload::Eap(packet) => Some(packet.as_slice()),
            _ => None,
        })
    }

    pub(crate) fn ts_i(self) -> Option<&'a [TrafficSelector]> {
        self.0.iter().find_map(|p| match p {
            Payload::TsI(ts) => Some(ts.as_slice()),
            _ => None,
        })
    }

    pub(crate) fn ts_r(self) -> Option<&'a [TrafficSelector]> {
        self.0.iter().find_map(|p| match p {
            Payload::TsR(ts) => Some(ts.as_slice()),
            _ => None,
        })
    }

    /// What the NAT detection notifications say about a message that came over `path`.
    pub(crate) fn nat(self, spis: Spis, path: &Path) -> natd::Detection {
        let sources =
            self.notifies().filter(|n| n.kind == NotifyType::NatDetectionSourceIp).map(|n| n.data.as_slice());
        let destination = self.notify(NotifyType::NatDetectionDestinationIp).map(|n| n.data.as_slice());
        natd::detect(spis, path, sources, destination)
    }

    /// The addresses of ADDITIONAL_*_ADDRESS notifications, if the message carries a list at all (possibly empty:
    /// NO_ADDITIONAL_ADDRESSES). RFC 4555 section 3.6.
    pub(crate) fn additional_addresses(self) -> Option<Vec<IpAddr>> {
        let mut list = self.has(NotifyType::NoAdditionalAddresses).then(Vec::new);
        for n in self.notifies() {
            let address = match n.kind {
                NotifyType::AdditionalIp4Address => {
                    <[u8; 4]>::try_from(n.data.as_slice()).ok().map(IpAddr::from)
                }
                NotifyType::AdditionalIp6Address => {
                    <[u8; 16]>::try_from(n.data.as_slice()).ok().map(IpAddr::from)
                }
                _ => continue,
            };
            let list = list.get_or_insert_with(Vec::new);
            if let Some(address) = address.filter(|_| list.len() < MAX_ADDITIONAL_ADDRESSES) {
                list.push(address);
            }
        }
        list
    }
}

/// Most additional addresses of a peer that are kept.
const MAX_ADDITIONAL_ADDRESSES: usize = 16;

/// Both NAT detection notifications for a message that leaves by `path`. With `forced` the source is one that matches no
/// address, so that the peer finds a NAT and encapsulates.
pub(crate) fn nat_detection(spis: Spis, path: &Path, forced: bool) -> [Payload; 2] {
    let source = if forced { natd::forced(spis) } else { natd::digest(spis, path.local) };
    [
        notify(NotifyType::NatDetectionSourceIp, source),
        notify(NotifyType::NatDetectionDestinationIp, natd::digest(spis, path.remote)),
    ]
}

/// Addresses of ours but the one in use.
pub(crate) fn other_addresses(ours: &[IpAddr], in_use: &Path) -> Vec<IpAddr> {
    ours.iter().copied().filter(|a| *a != in_use.local.ip()).collect()
}

/// The notifications of IKE_AUTH that tell our additional addresses; none says nothing (RFC 4555 section
/// 3.4: NO_ADDITIONAL_ADDRESSES is for taking back).
pub(crate) fn told_addresses(others: &[IpAddr]) -> Vec<Payload> {
    if others.is_empty() { Vec::new() } else { additional_addresses(others) }
}

/// The notifications that tell our additional addresses (RFC 4555 section 3.6).
pub(crate) fn additional_addresses(list: &[IpAddr]) -> Vec<Payload> {
    if list.is_empty() {
        return vec![notify(NotifyType::NoAdditionalAddresses, [])];
    }
    list.iter()
        .take(MAX_ADDITIONAL_ADDRESSES)
        .map(|a| match a {
            IpAddr::V4(a) => notify(NotifyType::AdditionalIp4Address, a.octets()),
            IpAddr::V6(a) => notify(NotifyType::AdditionalIp6Address, a.octets()),
        })
        .collect()
}
