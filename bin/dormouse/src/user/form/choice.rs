//! One choice of algorithms for a client that is told a single one, out of what the gateway takes. Owns the order of preference; a client is given
//! nothing that its gateway would refuse.

use crate::enrol::bundle::Parties;
use crate::enrol::wrong;
use dormouse_control::Error;
use dormouse_crypto::suites::{Encr, Group, Integ, Prf};
use dormouse_ike::proposal::{EspProposal, IkeProposal, default_esp_proposals, default_ike_proposals};

/// A cipher with its integrity algorithm (`None` where the cipher brings it), the PRF and the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ike {
    pub(super) encr: Encr,
    pub(super) hash: Hash,
    pub(super) group: Group,
}

/// The same for packets; `group` where the gateway takes a fresh key exchange at rekeying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Esp {
    pub(super) encr: Encr,
    pub(super) hash: Hash,
    pub(super) group: Option<Group>,
}

/// By what clients call integrity: the hash of the HMAC and of the PRF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    const fn integ(self) -> Integ {
        match self {
            Self::Sha256 => Integ::HmacSha256_128,
            Self::Sha384 => Integ::HmacSha384_192,
        }
    }

    const fn prf(self) -> Prf {
        match self {
            Self::Sha256 => Prf::HmacSha256,
            Self::Sha384 => Prf::HmacSha384,
        }
    }
}

/// What a client has, best first.
pub(super) struct Abilities {
    /// Whose they are, for an error.
    pub(super) client: &'static str,
    pub(super) ike: &'static [Encr],
    pub(super) esp: &'static [Encr],
    /// For the IKE SA.
    pub(super) hashes: &'static [Hash],
    /// For packets, where the cipher does not bring integrity.
    pub(super) esp_hashes: &'static [Hash],
    pub(super) groups: &'static [Group],
}

/// The configured proposals, or those that a gateway has without.
fn proposals<T: std::str::FromStr<Err: std::fmt::Display>>(
    all: &[String],
    default: fn() -> Vec<T>,
) -> Result<Vec<T>, Error> {
    if all.is_empty() {
        return Ok(default());
    }
    all.iter().map(|one| one.parse().map_err(|e| wrong(format!("{one}: {e}")))).collect()
}

fn integrity_fits(encr: Encr, hash: Hash, integ: &[Integ]) -> bool {
    encr.is_aead() && integ.is_empty() || !encr.is_aead() && integ.contains(&hash.integ())
}

/// Chooses for the IKE SA and for packets.
///
/// # Errors
/// If the gateway takes nothing that the client has.
pub(super) fn choose(parties: &Parties, can: &Abilities) -> Result<(Ike, Esp), Error> {
    let none = |what: &str, key: &str| {
        let Abilities { client, .. } = can;
        wrong(format!("{client} has no algorithms that the gateway's {what} would take"))
            .with_change(format!("add one to {key}, for example aes256-sha256-modp2048"))
    };
    let ike = proposals(&parties.ike_proposals, default_ike_proposals)?;
    let mut wanted = Vec::new();
    for group in can.groups {
        for encr in can.ike {
            wanted.extend(can.hashes.iter().map(|hash| (*encr, *hash, *group)));
        }
    }
    let fits = |(encr, hash, group): &(Encr, Hash, Group)| {
        ike.iter().any(|p: &IkeProposal| {
            let additional = p.additional.iter().all(|additional| additional.optional);
            additional
                && p.encr.contains(encr)
                && integrity_fits(*encr, *hash, &p.integ)
                && p.prf.contains(&hash.prf())
                && p.groups.contains(group)
        })
    };
    let found = wanted.into_iter().find(fits).ok_or_else(|| none("ike.proposals", "ike.proposals"))?;
    let ike = Ike { encr: found.0, hash: found.1, group: found.2 };

    let esp = proposals(&parties.esp_proposals, default_esp_proposals)?;
    let mut wanted = can.esp.iter().flat_map(|encr| can.esp_hashes.iter().map(move |hash| (*encr, *hash)));
    let fit = |encr: Encr, hash: Hash, p: &EspProposal| {
        p.encr.contains(&encr)
            && integrity_fits(encr, hash, &p.integ)
            && (p.groups.is_empty() || p.group_optional || p.groups.contains(&ike.group))
            && p.additional.is_empty()
    };
    let found = wanted.find_map(|(encr, hash)| {
        let p = esp.iter().find(|p| fit(encr, hash, p))?;
        Some(Esp { encr, hash, group: p.groups.contains(&ike.group).then_some(ike.group) })
    });
    Ok((ike, found.ok_or_else(|| none("child.proposals", "child.proposals"))?))
}
