//! MACs and signatures of packets (RFC 7401 section 6.4). Owns which bytes go with which key; must never decide what follows.

use core::net::{Ipv6Addr, SocketAddr};

use dormouse_crypto::{PrfKey, ct_eq};
use dormouse_wire::hip::{Draft, Header, Hit, Locator, Packet, PacketType, Param, ParamType, Version};

use crate::hit::{HitSuite, HostIdentity, Identity};
use crate::quirks::{Quirk, Quirks};
use crate::relay;
use crate::stats::Stats;

/// The beginning of a packet of ours, in the version of our tag.
pub(crate) fn draft(kind: PacketType, sender: Hit, receiver: Hit) -> Draft {
    let version = HitSuite::of(sender).map_or(Version::V2, HitSuite::version);
    Draft::new(&Header { kind, version, controls: 0, sender, receiver })
}

/// The HOST_ID parameter of an identity, as it stands in a packet, behind the candidates that are to be encrypted with it.
pub(crate) fn host_id(of: &HostIdentity, locators: Option<Vec<Locator>>) -> Vec<u8> {
    let mut bare = Draft::bare(of.suite().version());
    locators.into_iter().for_each(|locators| bare.add(&Param::LocatorSet(locators)));
    bare.add(&Param::HostId(of.host_id().clone()));
    bare.params().unwrap_or_default()
}

/// Whether HIP_MAC is right.
pub(crate) fn mac_is_right(packet: &Packet<'_>, key: &PrfKey) -> bool {
    check_mac(packet, ParamType::HipMac, key, &[])
}

/// Whether HIP_MAC_2 is right, which covers the responder's HOST_ID as well.
pub(crate) fn mac_2_is_right(packet: &Packet<'_>, key: &PrfKey, responder: &HostIdentity) -> bool {
    check_mac(packet, ParamType::HipMac2, key, &host_id(responder, None))
}

/// Whether RVS_HMAC is right, which a rendezvous server adds behind the address that it names.
pub(crate) fn rvs_mac_is_right(packet: &Packet<'_>, key: &PrfKey) -> bool {
    check_mac(packet, ParamType::RvsHmac, key, &[])
}

/// Whether RELAY_HMAC is right, which a relay adds behind the address that it names, and its client behind the one that it wants.
pub(crate) fn relay_mac_is_right(packet: &Packet<'_>, key: &PrfKey) -> bool {
    check_mac(packet, ParamType::RelayHmac, key, &[])
}

fn check_mac(packet: &Packet<'_>, kind: ParamType, key: &PrfKey, appended: &[u8]) -> bool {
    let (Some(mac), Some(covered)) = (packet.find(kind), packet.covered_by(kind, appended)) else {
        return false;
    };
    ct_eq(key.compute(&[&covered]).as_bytes(), mac.contents)
}

/// Whether a signature is right: HIP_SIGNATURE or HIP_SIGNATURE_2.
pub(crate) fn signature_is_right(
    packet: &Packet<'_>,
    kind: ParamType,
    signer: &HostIdentity,
    stats: &mut Stats,
) -> bool {
    let (Some(Param::Signature(_, signature)), Some(covered)) =
        (packet.read(kind), packet.covered_by(kind, &[]))
    else {
        return false;
    };
    stats.verified += 1;
    signer.verify(&covered, &signature)
}

/// Adds parameters that stand behind the signature to a packet that is whole.
pub(crate) fn append(packet: &[u8], params: &[Param]) -> Option<Vec<u8>> {
    if params.is_empty() {
        return Some(packet.to_vec());
    }
    let mut draft = again(&Packet::parse(packet).ok()?);
    params.iter().for_each(|param| draft.add(param));
    draft.finish().ok()
}

/// A packet as it came, to be added to.
fn again(packet: &Packet<'_>) -> Draft {
    let mut draft = Draft::new(&packet.header);
    for raw in packet.params() {
        draft.add(&Param::Opaque(raw.kind, raw.contents.to_vec()));
    }
    draft
}

/// A packet that is sent on to a client of a rendezvous server: with the address that it came from, under a MAC.
/// "Because this replacement conceals the Initiator's IP address, the RVS MUST append a FROM parameter containing the original source IP
/// address of the packet." (RFC 8004 section 3.3)
/// "This FROM parameter MUST be integrity protected by an RVS_HMAC keyed with the corresponding rendezvous registration integrity key"
/// (RFC 8004 section 3.3)
pub(crate) fn relayed(packet: &Packet<'_>, from: Ipv6Addr, key: &PrfKey) -> Option<Vec<u8>> {
    let mut draft = again(packet);
    draft.add(&Param::Addresses(ParamType::From, vec![from]));
    let mac = key.compute(&[&draft.covered(&[])]);
    draft.add(&Param::Opaque(ParamType::RvsHmac, mac.as_bytes().to_vec()));
    draft.finish().ok()
}

/// A packet of a client that its relay sends on to this address, or of a peer that comes from there to the client, under the MAC of the
/// association between the two.
/// "Similar to RVS_HMAC, RELAY_HMAC is also keyed with the HIP integrity key" (RFC 9028 section 5.8)
pub(crate) fn with_relay(
    packet: &Packet<'_>,
    kind: ParamType,
    at: SocketAddr,
    key: &PrfKey,
) -> Option<Vec<u8>> {
    let mut draft = again(packet);
    draft.add(&Param::Transport(kind, relay::written(at)));
    let mac = key.compute(&[&draft.covered(&[])]);
    draft.add(&Param::Opaque(ParamType::RelayHmac, mac.as_bytes().to_vec()));
    draft.finish().ok()
}

/// A packet of a client as it goes on to its peer, which has no key of the relay's.
pub(crate) fn without_relay_mac(packet: &Packet<'_>) -> Option<Vec<u8>> {
    let mut draft = Draft::new(&packet.header);
    for raw in packet.params().iter().filter(|p| p.kind != ParamType::RelayHmac) {
        draft.add(&Param::Opaque(raw.kind, raw.contents.to_vec()));
    }
    draft.finish().ok()
}

/// Ends a packet with HIP_MAC and HIP_SIGNATURE. `None` if it cannot be signed or is too long.
pub(crate) fn finish(mut draft: Draft, key: &PrfKey, identity: &Identity) -> Option<Vec<u8>> {
    let mac = key.compute(&[&draft.covered(&[])]);
    draft.add(&Param::Opaque(ParamType::HipMac, mac.as_bytes().to_vec()));
    finish_signed(draft, ParamType::HipSignature, identity)
}

/// The type of an R2's signature.
pub(crate) fn signature_of_r2(quirks: Quirks) -> ParamType {
    if quirks.has(Quirk::R2Signature2) { ParamType::HipSignature2 } else { ParamType::HipSignature }
}

/// Ends an R2: HIP_MAC_2 and HIP_SIGNATURE.
pub(crate) fn finish_r2(
    mut draft: Draft,
    key: &PrfKey,
    identity: &Identity,
    quirks: Quirks,
) -> Option<Vec<u8>> {
    let mac = key.compute(&[&draft.covered(&host_id(identity.public(), None))]);
    draft.add(&Param::Opaque(ParamType::HipMac2, mac.as_bytes().to_vec()));
    finish_signed(draft, signature_of_r2(quirks), identity)
}

/// Ends a packet with a signature alone.
pub(crate) fn finish_signed(mut draft: Draft, kind: ParamType, identity: &Identity) -> Option<Vec<u8>> {
    let signature = identity.sign(&draft.covered(&[]))?;
    draft.add(&Param::Signature(kind, signature));
    draft.finish().ok()
}
