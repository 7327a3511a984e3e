//! The exchanges of an established IKE SA, one file each. An exchange is an object: it waits in the queue with its aim, builds
//! its request, is kept with what the answer needs, takes the answer, and says what a successor of the SA does about it. It is
//! never a state of the SA. Owns the common shape; the answers to the peer's requests stand in the same files.

pub(crate) mod addresses;
pub(crate) mod answer_child;
pub(crate) mod child;
pub(crate) mod delete;
pub(crate) mod followup;
mod groups;
pub(crate) mod informational;
pub(crate) mod keys;
pub(crate) mod liveness;
pub(crate) mod mobike;
pub(crate) mod redirect;
pub(crate) mod rekey;
pub(crate) mod routability;
pub(crate) mod sleep;
pub(crate) mod ticket;
pub(crate) mod update;

use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{ExchangeType, Payload};

use crate::payloads::View;
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// A request that is ready to be sealed.
pub(crate) struct Request {
    pub(crate) payloads: Vec<Payload>,
    pub(crate) kind: Kind,
    pub(crate) class: Class,
}

/// The answer to a request.
pub(crate) struct Reply<'a> {
    /// When the request was first sent.
    pub(crate) asked: Instant,
    pub(crate) view: View<'a>,
}

/// What each exchange can do.
pub(crate) trait Run {
    /// Makes the request. `None`: there is no reason for it any more.
    fn build(&mut self, sa: &mut IkeSa, shared: &mut Shared, now: Instant) -> Option<Request>;

    /// Acts on the answer.
    fn take(self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate;

    /// What a successor of the SA does in its place; `begun`: the request is under way on the old SA.
    fn migrate(&self, begun: bool) -> Option<Exchange>;
}

macro_rules! exchanges {
    ($($(#[$doc:meta])* $variant:ident($object:ty) = $path:ty,)*) => {
        /// One of them, waiting or under way.
        #[derive(Debug)]
        pub(crate) enum Exchange {
            $($(#[$doc])* $variant($object),)*
        }

        $(impl From<$path> for Exchange {
            fn from(object: $path) -> Self {
                Self::$variant(object.into())
            }
        })*

        impl Exchange {
            /// See [`Run::take`].
            pub(crate) fn take(
                self,
                sa: &mut IkeSa,
                shared: &mut Shared,
                now: Instant,
                reply: &Reply<'_>,
            ) -> Fate {
                match self {
                    $(Self::$variant(object) => object.take(sa, shared, now, reply),)*
                }
            }

            /// See [`Run::migrate`].
            pub(crate) fn migrate(&self, begun: bool) -> Option<Self> {
                match self {
                    $(Self::$variant(object) => object.migrate(begun),)*
                }
            }

            fn run_build(&mut self, sa: &mut IkeSa, shared: &mut Shared, now: Instant) -> Option<Request> {
                match self {
                    $(Self::$variant(object) => object.build(sa, shared, now),)*
                }
            }
        }
    };
}

exchanges! {
    /// Another CHILD SA, or one in place of another.
    CreateChild(Box<child::CreateChild>) = child::CreateChild,
    RekeyIke(Box<rekey::RekeyIke>) = rekey::RekeyIke,
    DeleteChild(delete::DeleteChild) = delete::DeleteChild,
    DeleteIke(delete::DeleteIke) = delete::DeleteIke,
    Liveness(liveness::Liveness) = liveness::Liveness,
    NatCheck(liveness::NatCheck) = liveness::NatCheck,
    Update(update::Update) = update::Update,
    Routability(routability::Routability) = routability::Routability,
    Addresses(addresses::Addresses) = addresses::Addresses,
    Ticket(ticket::TicketRequest) = ticket::TicketRequest,
    Sleep(sleep::AnnounceSleep) = sleep::AnnounceSleep,
    Keys(crate::mlike::Keys) = crate::mlike::Keys,
    Redirect(redirect::Redirect) = redirect::Redirect,
}

impl Exchange {
    /// See [`Run::build`]. From behind a NAT, a liveness check also asks where the peer sees us; with nothing to compare that with,
    /// the peer had better take the mapping that there is now.
    pub(crate) fn build(&mut self, sa: &mut IkeSa, shared: &mut Shared, now: Instant) -> Option<Request> {
        if let Self::Liveness(check) = self
            && sa.mobility.checks_nat(&sa.core)
        {
            *self = check.with_nat_detection().into();
        }
        if matches!(self, Self::NatCheck(_)) && !sa.mobility.knows_where_it_is_seen() {
            *self = update::Update::new().into();
        }
        self.run_build(sa, shared, now)
    }

    pub(crate) fn exchange_type(&self) -> ExchangeType {
        match self {
            Self::CreateChild(new) if new.is_following() => ExchangeType::IkeFollowupKe,
            Self::RekeyIke(new) if new.is_following() => ExchangeType::IkeFollowupKe,
            Self::CreateChild(_) | Self::RekeyIke(_) => ExchangeType::CreateChildSa,
            _ => ExchangeType::Informational,
        }
    }

    /// Whether both want the same, so that one of them is enough.
    pub(crate) fn has_aim_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::CreateChild(a), Self::CreateChild(b)) => a.aim == b.aim,
            (Self::DeleteChild(a), Self::DeleteChild(b)) => a == b,
            (Self::Keys(a), Self::Keys(b)) => a == b,
            _ => core::mem::discriminant(self) == core::mem::discriminant(other),
        }
    }

    /// Whether it needs the window for itself.
    pub(crate) fn runs_alone(&self) -> bool {
        matches!(self, Self::RekeyIke(_) | Self::DeleteIke(_) | Self::Update(_) | Self::Sleep(_))
    }

    /// Whether it makes or ends a CHILD SA, or ends them all: nothing to do while the IKE SA is being rekeyed.
    pub(crate) fn is_about_children(&self) -> bool {
        matches!(self, Self::CreateChild(_) | Self::DeleteChild(_) | Self::DeleteIke(_))
    }

    /// It is given up: gives back what it held.
    pub(crate) fn abandon(&self, shared: &mut Shared) {
        match self {
            Self::CreateChild(new) => new.abandon(shared),
            Self::RekeyIke(new) => new.abandon(shared),
            Self::Keys(keys) => keys.abandon(shared),
            _ => {}
        }
    }
}
