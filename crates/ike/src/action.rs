//! What one SA asks for another. Owns the names of these changes; the endpoint carries them out, because the set of SAs is its own.

use core::net::IpAddr;

use dormouse_crypto::cert::Identity;
use dormouse_wire::ike::dormancy::Refused;
use dormouse_wire::ike::mlike::Request;

use crate::ticket::lineage::Name;
use dormouse_keying::SaId;

/// A change to the set of SAs that a handler asks for.
#[derive(Debug)]
pub(crate) enum Action {
    /// A rekeying of this SA made new ones, under internal names of their own.
    Adopt(SaId),
    /// `to`, made by rekeying `from`, takes over `from`'s name, CHILD SAs, queue and timers.
    Inherit {
        /// The old IKE SA.
        from: SaId,
        /// Its successor.
        to: SaId,
    },
    /// The peer uses this successor, which its rekeying made while ours was under way: it has decided.
    HeirChosen(SaId),
    /// Lost against another successor of the same SA: the peer, who made it, deletes it.
    Abandon(SaId),
    /// Ask the peer to delete this SA (a redundant one left by colliding rekeyings).
    Delete(SaId),
    /// A caller has authenticated fully: its other SAs end, if the configuration wants that.
    FullyAuthenticated {
        /// The new SA.
        by: SaId,
        /// It says that it has no other one.
        alone: bool,
    },
    /// `by` was resumed: drop what there still is of its lineage, silently.
    Resumed {
        /// The new SA.
        by: SaId,
    },
    /// Resumed with a ticket that does not count, or by a peer that is not admitted any more: delete it, unless its device sleeps by
    /// another SA.
    Refuse {
        /// The SA.
        sa: SaId,
        /// The notification that the device gets about its ticket.
        told: Option<Refused>,
    },
    /// The client of `by` has logged in fully, and names this lineage as its former one: drop what there still is of it.
    Former {
        /// The new SA.
        by: SaId,
        /// The lineage.
        lineage: Name,
    },
    /// The client of `by` has logged in fully, and no ticket of its identity counts any more.
    FormerTickets {
        /// The new SA.
        by: SaId,
    },
    /// The client's authentication is due anew: open a second SA beside this one, which then replaces it.
    Reauthenticate(SaId),
    /// Router: the gateway is asked for keys, or told something about them.
    Ask {
        /// Who.
        gateway: Identity,
        /// What.
        asked: Request,
    },
    /// The same, of a gateway whose address alone is known.
    AskAt {
        /// Where it is.
        gateway: IpAddr,
        /// What.
        asked: Request,
    },
    /// Router: tells the gateway that the header keys of the SA with this SPI went to another router.
    Gave {
        /// Who gave them first.
        gateway: Identity,
        /// Whose they are.
        spi: u32,
        /// Who has them now.
        to: Identity,
    },
    /// A reauthenticated SA is up: delete the one that it replaces.
    Close(SaId),
    /// Its device sleeps, and another one needs its place.
    Release(SaId),
    /// The device of this SA sleeps: what rekeying and closing have left of its other SAs goes, because no deletion is worth disturbing
    /// it for.
    Sleeps(SaId),
}
