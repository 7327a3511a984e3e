//! IKE_INTERMEDIATE (RFC 9242), between the first exchange and IKE_AUTH: additional key exchanges (RFC 9370) and post-quantum
//! pre-shared keys (RFC 9867). Owns what both ends keep until IKE_AUTH: which exchanges are due, IntAuth, and the keys' updates; must
//! never authenticate a peer. How many exchanges take place is agreed on in the first one, which AUTH covers like all of them, so
//! that the removal of one is noticed.
//!
//! "The IKE SA MUST NOT be considered as established until the IKE_AUTH exchange is successfully completed." (RFC 9242 section 3.2)
//! "Implementations MUST ignore non-empty Notification Data if they don't understand its purpose." (RFC 9242 section 3.1)

pub(crate) mod initiator;
pub(crate) mod ppk;
pub(crate) mod responder;

use std::collections::VecDeque;
use std::sync::Arc;

use dormouse_crypto::suites::Group;
use dormouse_crypto::{Error, PrfKey, Secret};
use dormouse_wire::ike::{NotifyType, Payload};

use crate::config::{Connection, Ppk};
use crate::keys::{self, IkeKeys, Nonces, Spis};
use crate::link::Channel;
use crate::payloads::{View, notify};
use crate::proposal::Additional;

/// Longest confirmation of a PPK, in bytes: prf(PPK, ...) is cut to it (RFC 9867, section 3.1).
const CONFIRMATION: usize = 8;
/// PPK_IDENTITY_KEY notifications of one message that are looked at.
const PPKS_MAX: usize = 8;

/// How a post-quantum pre-shared key enters the keys.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum PpkUse {
    #[default]
    No,
    /// In IKE_AUTH (RFC 8784): the IKE SA's first messages stay without it.
    Auth,
    /// In the last IKE_INTERMEDIATE (RFC 9867).
    Intermediate,
}

impl PpkUse {
    /// What the notifications of a first message, or of its answer, agree to, if one of these connections has a PPK.
    /// "[...] it MUST return either a USE_PPK_INT or a USE_PPK notification in the response but not both" (RFC 9867 section 3.1)
    pub(crate) fn of<'a>(
        view: View<'_>,
        mut conns: impl Iterator<Item = &'a Arc<Connection>> + Clone,
    ) -> Self {
        let have = conns.clone().any(|c| !c.ppk.keys.is_empty());
        let intermediate = view.has(NotifyType::IntermediateExchangeSupported)
            && conns.any(|c| !c.ppk.keys.is_empty() && c.ppk.intermediate);
        match () {
            () if !have => Self::No,
            () if intermediate && view.has(NotifyType::UsePpkInt) => Self::Intermediate,
            () if view.has(NotifyType::UsePpk) => Self::Auth,
            () => Self::No,
        }
    }
}

/// What an initiator offers beside its proposals.
/// "If the initiator includes any ADDKE Transform Types into the SA payload in the IKE_SA_INIT exchange request message, then it MUST
/// also negotiate the use of the IKE_INTERMEDIATE exchange" (RFC 9370 section 2.2.1)
pub(crate) fn offered(conn: &Connection) -> Vec<Payload> {
    let (additional, ppk) =
        (conn.ike_proposals.iter().any(|p| !p.additional.is_empty()), !conn.ppk.keys.is_empty());
    let mut list = Vec::new();
    let before_auth = ppk && conn.ppk.intermediate;
    if additional || before_auth {
        list.push(notify(NotifyType::IntermediateExchangeSupported, []));
    }
    if before_auth {
        list.push(notify(NotifyType::UsePpkInt, []));
    }
    if ppk {
        list.push(notify(NotifyType::UsePpk, []));
    }
    list
}

/// The exchanges between the first one and IKE_AUTH.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Additional key exchanges that are still due.
    due: VecDeque<Group>,
    pub(crate) ppk: PpkUse,
    /// The initiator has named its PPKs.
    named: bool,
    /// The PPK that the keys hold already.
    mixed: Option<Arc<Ppk>>,
    /// Exchanges that took place, and IntAuth_i and IntAuth_r of them.
    done: u32,
    int_auth: [Vec<u8>; 2],
}

impl Rounds {
    pub(crate) fn new(additional: &Additional, ppk: PpkUse) -> Self {
        Self { due: additional.iter().collect(), ppk, ..Self::default() }
    }

    /// The notifications of the first answer.
    /// "If the responder agrees to use additional key exchanges while establishing an initial IKE SA, it MUST also return this
    /// notification" (RFC 9370 section 2.2.1): and otherwise not, for some peers' AUTH fails when it was agreed on and not used.
    pub(crate) fn answered(&self) -> Vec<Payload> {
        let intermediate = !self.due.is_empty() || self.ppk == PpkUse::Intermediate;
        let ppk = match self.ppk {
            PpkUse::No => None,
            PpkUse::Auth => Some(NotifyType::UsePpk),
            PpkUse::Intermediate => Some(NotifyType::UsePpkInt),
        };
        let kinds = intermediate.then_some(NotifyType::IntermediateExchangeSupported).into_iter().chain(ppk);
        kinds.map(|kind| notify(kind, [])).collect()
    }

    /// The message id of the next exchange: 1 without any of ours.
    /// "Implementations MUST verify that Message IDs in the IKE_INTERMEDIATE messages they receive actually follow this rule." (RFC 9242
    /// section 3.2)
    pub(crate) const fn next_id(&self) -> u32 {
        1 + self.done
    }

    /// Whether the PPKs belong into the exchange that is next: the last one.
    /// "If a series of the IKE_INTERMEDIATE exchanges takes place, the PPK_IDENTITY_KEY notification(s) MUST be sent in the last one"
    /// (RFC 9867 section 3.1)
    fn names_ppk(&self) -> bool {
        self.ppk == PpkUse::Intermediate && !self.named && self.due.len() <= 1
    }

    /// Whether IKE_AUTH may come: all key exchanges are complete.
    /// "[...] these exchanges MUST be sequential and MUST all be completed before the IKE_AUTH exchange is initiated" (RFC 9242 section
    /// 3.2)
    pub(crate) fn may_authenticate(&self) -> bool {
        self.due.is_empty()
    }

    /// Whether another IKE_INTERMEDIATE may come, and not only IKE_AUTH: each was agreed on.
    /// "Specifications utilizing the Intermediate Exchange MUST NOT allow an unlimited number of these exchanges to take place at the
    /// initiator's discretion." (RFC 9242 section 5)
    pub(crate) fn may_go_on(&self) -> bool {
        !self.due.is_empty() || self.names_ppk()
    }

    /// The PPK that the keys hold already.
    pub(crate) fn mixed(&self) -> Option<&Ppk> {
        self.mixed.as_deref()
    }

    /// `IntAuth_iN | IntAuth_rN | IKE_AUTH_MID`, the message id of IKE_AUTH being the next; empty if no exchange took place (RFC 9242,
    /// section 3.3.2).
    pub(crate) fn int_auth(&self) -> Vec<u8> {
        if self.done == 0 {
            return Vec::new();
        }
        let [i, r] = &self.int_auth;
        [i.as_slice(), r, &self.next_id().to_be_bytes()].concat()
    }

    /// An exchange is complete: IntAuth goes on under the keys that protected it. Returns the keys that follow, if they change.
    /// "The prf calculations MUST be applied to whole messages only, before possible IKE fragmentation." (RFC 9242 section 3.3.2)
    fn complete(
        &mut self,
        channel: &Channel,
        place: &Place<'_>,
        (request, response): (&[u8], &[u8]),
        secret: Option<&Secret>,
        ppk: Option<Arc<Ppk>>,
    ) -> Result<Option<Channel>, Error> {
        let prf = channel.suite.prf;
        let covered = [(&channel.sk_pi, request), (&channel.sk_pr, response)];
        for (chain, (key, message)) in self.int_auth.iter_mut().zip(covered) {
            *chain = PrfKey::new(prf, key.as_bytes()).compute(&[chain, message]).as_bytes().to_vec();
        }
        self.done += 1;
        self.due.pop_front();
        let mut keys = None;
        if let Some(secret) = secret {
            let seed =
                keys::skeyseed_rekeyed(prf, &channel.sk_d, place.nonces, core::slice::from_ref(secret));
            keys = Some(IkeKeys::derive(channel.suite, &seed, place.nonces, place.spis)?);
        }
        if let Some(ppk) = &ppk {
            // "[...] applying the PPK MUST be done after all of them" (RFC 9867 section 3.1.1)
            let sk_d = keys.as_ref().map_or(&channel.sk_d, |keys| &keys.sk_d);
            let seed = keys::with_ppk(prf, &ppk.secret, sk_d)?;
            keys = Some(IkeKeys::derive(channel.suite, &seed, place.nonces, place.spis)?);
        }
        self.mixed = ppk;
        Ok(keys.map(|keys| Channel::new(keys, place.initiator)))
    }
}

/// What stays the same in all exchanges before IKE_AUTH.
#[derive(Clone, Copy)]
struct Place<'a> {
    nonces: Nonces<'a>,
    spis: Spis,
    initiator: bool,
}

const PPK_ID_FIXED: u8 = 2;

/// PPK_ID of a fixed PPK: its type and its name (RFC 8784, section 5.1).
pub(crate) fn ppk_id(ppk: &Ppk) -> Vec<u8> {
    [&[PPK_ID_FIXED], ppk.id.as_slice()].concat()
}

/// Whether `id` is this PPK's PPK_ID.
fn names(id: &[u8], ppk: &Ppk) -> bool {
    id.split_first() == Some((&PPK_ID_FIXED, ppk.id.as_slice()))
}
