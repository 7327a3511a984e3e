//! Public-key operations that take long: an [`Order`] leaves the core, is carried out beside the loop, and comes back as [`Done`]. Owns what is
//! ordered, in which turn it is handed out, and what becomes of it when its SA ends; must never do it itself.
//!
//! # Whose turn it is
//! An SA has one order at most, and SAs that no caller has authenticated are bounded ([`crate::config::HalfOpen`]); so orders are. Of these [`AT_ONCE`]
//! are handed out at a time. The others wait here, where it can still be chosen which one is next: those of callers who have proved who they are, or show a
//! ticket, before those of strangers, and of each kind one of every prefix ([`crate::prefix`]) in turn. So a crowd of strangers delays a known caller by the few
//! operations that are under way, and a crowd behind one address delays the others by its one turn among theirs.
//!
//! # When an SA ends
//! What waits here is dropped with its secrets, which are wiped; what is handed out is wanted no longer ([`Order::is_wanted`]).

use core::fmt;
use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use dormouse_crypto::sign::{SignatureError, SigningKey};
use dormouse_crypto::suites::Group;
use dormouse_crypto::{DhPrivate, Drawn, Error, Secret};
use dormouse_keying::SaId;
use ipnet::IpNet;

use crate::auth::{Authentication, SignOrder};
use crate::prefix::prefix_of;

/// Orders that are handed out at a time: so many that who carries them out has the next one when one is done, and no more.
pub const AT_ONCE: usize = 8;

/// What is ordered, and what is done at once because the way out and back would cost more.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// As responder: with which keys our signatures are ordered, beside those in tokens.
    pub sign: fn(&SigningKey) -> bool,
    /// As responder: in which groups keys are agreed on by order.
    pub agree: fn(Group) -> bool,
}

impl Default for Beside {
    /// Only what a token signs.
    fn default() -> Self {
        Self { sign: |_| false, agree: |_| false }
    }
}

impl Beside {
    /// What takes as long as sealing hundreds of packets (`docs/benchmarks.md`, "handshake").
    #[must_use]
    pub fn slow() -> Self {
        Self { sign: SigningKey::is_slow, agree: Group::is_slow }
    }
}

/// One operation. Each order is answered once, by [`crate::Endpoint::done`]: with what [`Order::carry_out`] says, or with [`Done::late`].
#[derive(Debug)]
pub struct Order {
    task: Task,
    wanted: Weak<()>,
}

#[derive(Debug)]
pub(crate) enum Task {
    /// Our proof.
    Sign(Box<SignOrder>),
    /// The public value of a private key.
    Complete(Box<Drawn>),
    /// The secret of our private key and this public value of the peer.
    Agree(Box<DhPrivate>, Vec<u8>),
    /// Both at once.
    Respond(Box<Drawn>, Vec<u8>),
}

/// What became of an [`Order`].
pub struct Done(pub(crate) Outcome);

pub(crate) enum Outcome {
    Signed(Result<Authentication, SignatureError>),
    Completed(Result<DhPrivate, Error>),
    Agreed(Result<Secret, Error>),
    Responded(Result<(Vec<u8>, Secret), Error>),
    Late,
}

impl Order {
    /// Whether its SA still waits for it. If not, carrying it out is of no use.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }

    /// Does it; it may run in another thread. Its secrets are wiped. If it is not wanted any more, it is late.
    #[must_use]
    pub fn carry_out(self) -> Done {
        if !self.is_wanted() {
            return Done::late();
        }
        Done(match self.task {
            Task::Sign(order) => Outcome::Signed(order.sign()),
            Task::Complete(drawn) => Outcome::Completed(drawn.complete()),
            Task::Agree(ours, theirs) => Outcome::Agreed(ours.agree(&theirs)),
            Task::Respond(drawn, theirs) => Outcome::Responded(drawn.respond(&theirs)),
        })
    }
}

impl Done {
    /// It was not done in time, or not wanted any more.
    #[must_use]
    pub const fn late() -> Self {
        Self(Outcome::Late)
    }

    /// What became of our proof.
    pub(crate) fn signed(self) -> Result<Authentication, SignatureError> {
        match self.0 {
            Outcome::Signed(result) => result,
            _ => Err(SignatureError::Late),
        }
    }

    /// Whether it is [`Done::late`].
    #[must_use]
    pub const fn is_late(&self) -> bool {
        matches!(self.0, Outcome::Late)
    }
}

impl fmt::Debug for Done {
    /// Without what it is: that may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Outcome::Signed(Ok(_)) => "Signed",
            Outcome::Completed(Ok(_)) => "Completed",
            Outcome::Agreed(Ok(_)) => "Agreed",
            Outcome::Responded(Ok(_)) => "Responded",
            Outcome::Late => "Late",
            _ => "Failed",
        })
    }
}

/// Who an order is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rank {
    /// A caller who has proved who it is or shows a ticket; or ourselves, as initiator.
    Known,
    /// Any other.
    Stranger,
}

/// Orders of one rank that wait, by where their callers are.
#[derive(Debug, Default)]
struct Waiting {
    by_prefix: BTreeMap<IpNet, VecDeque<(SaId, Task)>>,
    /// Whose turn it was last.
    last: Option<IpNet>,
}

impl Waiting {
    fn next(&mut self) -> Option<(SaId, Task)> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.by_prefix.range((after, Bound::Unbounded));
        let prefix = *later.next().or_else(|| self.by_prefix.first_key_value())?.0;
        self.last = Some(prefix);
        let queue = self.by_prefix.get_mut(&prefix)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.by_prefix.remove(&prefix);
        }
        next
    }

    fn drop(&mut self, prefix: IpNet, sa: SaId) {
        let Some(queue) = self.by_prefix.get_mut(&prefix) else { return };
        queue.retain(|(other, _)| *other != sa);
        if queue.is_empty() {
            self.by_prefix.remove(&prefix);
        }
    }
}

/// The orders of an endpoint. See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Works {
    known: Waiting,
    strangers: Waiting,
    /// Where each order waits.
    places: BTreeMap<SaId, (Rank, IpNet)>,
    /// What is handed out; nothing, where the SA has ended meanwhile.
    out: BTreeMap<SaId, Option<Arc<()>>>,
}

impl Works {
    fn of(&mut self, rank: Rank) -> &mut Waiting {
        match rank {
            Rank::Known => &mut self.known,
            Rank::Stranger => &mut self.strangers,
        }
    }

    /// Orders something for an SA that has no other order, whose caller is there.
    pub(crate) fn order(&mut self, sa: SaId, rank: Rank, caller: IpAddr, task: Task) {
        let prefix = prefix_of(caller);
        self.places.insert(sa, (rank, prefix));
        self.of(rank).by_prefix.entry(prefix).or_default().push_back((sa, task));
    }

    /// The next one that is to be handed out now.
    pub(crate) fn hand_out(&mut self) -> Option<(SaId, Box<Order>)> {
        if self.out.len() >= AT_ONCE {
            return None;
        }
        let (sa, task) = self.known.next().or_else(|| self.strangers.next())?;
        self.places.remove(&sa);
        let mark = Arc::new(());
        let order = Box::new(Order { task, wanted: Arc::downgrade(&mark) });
        self.out.insert(sa, Some(mark));
        Some((sa, order))
    }

    /// What was handed out for an SA has come back. False if nothing was, or its SA has ended.
    pub(crate) fn came_back(&mut self, sa: SaId) -> bool {
        self.out.remove(&sa).flatten().is_some()
    }

    /// An SA has ended, or waits for nothing any more. Does nothing if it has no order.
    pub(crate) fn forget(&mut self, sa: SaId) {
        if let Some((rank, prefix)) = self.places.remove(&sa) {
            self.of(rank).drop(prefix, sa);
        }
        if let Some(out) = self.out.get_mut(&sa) {
            *out = None;
        }
    }
}

#[cfg(test)]
mod tests;
