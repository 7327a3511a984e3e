//! A responder that waits for what it has ordered ([`crate::work`]), or for the status of its caller's certificates. Owns what it keeps meanwhile,
//! and going on afterwards: a request that was waiting is judged again from its beginning. Repetitions are dropped meanwhile.

use dormouse_crypto::sign::SignatureError;
use dormouse_crypto::{Error, Secret};
use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::{Header, Message, Payload};

use super::{HalfOpen, How};
use crate::auth::Authentication;
use crate::error::Discard;
use crate::handshake::{Slot, Step};
use crate::limits::EARLY_MAX;
use crate::link::Channel;
use crate::payloads::View;
use crate::shared::Shared;
use crate::work::{Done, Outcome, Rank, Task};

/// See [`HalfOpen::work`].
#[derive(Debug)]
pub(crate) enum Working {
    /// Nothing is ordered.
    Not,
    /// Our public value. The first message is answered when it is there, with these payloads before the nonce.
    Beginning(Vec<Payload>),
    /// The first secret, for what has come first under its keys.
    Agreeing(Early),
    /// An additional key exchange, for this request.
    Responding(Box<Request>),
    /// Our proof.
    Signing,
    /// Nothing any more: it has signed, or cannot.
    Signed(Result<Authentication, SignatureError>),
}

/// An IKE_INTERMEDIATE request that waits for its secret, and what IntAuth covers of it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) path: Path,
    pub(crate) payloads: Vec<Payload>,
    pub(crate) octets: Vec<u8>,
}

/// Datagrams that have come before there are keys to open them. No peer has proved to have sent them.
#[derive(Debug, Default)]
pub(crate) struct Early {
    datagrams: Vec<(Path, Vec<u8>)>,
    bytes: usize,
}

impl Early {
    /// Keeps one; not twice, and not more than [`EARLY_MAX`] bytes: the caller repeats what is lost.
    fn keep(&mut self, path: Path, datagram: &[u8]) -> Result<(), Discard> {
        if self.datagrams.iter().any(|(_, kept)| kept == datagram) {
            return Ok(());
        }
        if self.bytes + datagram.len() > EARLY_MAX {
            return Err(Discard::Fragment);
        }
        self.bytes += datagram.len();
        self.datagrams.push((path, datagram.to_vec()));
        Ok(())
    }
}

impl Working {
    /// Whether something is ordered.
    pub(crate) const fn is_under_way(&self) -> bool {
        !matches!(self, Self::Not | Self::Signed(_))
    }
}

impl HalfOpen {
    /// Orders something for the caller.
    pub(crate) fn order(&mut self, shared: &mut Shared, task: Task, work: Working) {
        let known = matches!(self.how, How::Resume { .. }) || self.waits_proven() == Some(true);
        let rank = if known { Rank::Known } else { Rank::Stranger };
        shared.works.order(self.link.id, rank, self.link.path.remote.ip(), task);
        self.work = work;
    }

    pub(crate) fn waits_until(&self) -> Option<Instant> {
        let waits = self.waiting.is_some() && !self.work.is_under_way();
        waits.then_some(self.wait_until).flatten()
    }

    /// Whether its caller waits for us, and has proved who it is: one that proposes EAP has not.
    pub(in crate::handshake) fn waits_proven(&self) -> Option<bool> {
        self.waiting.as_ref().map(|(_, payloads)| View(payloads).auth().is_some())
    }

    /// A message has come while something is ordered. There are no keys to open it, or it repeats what is being answered.
    pub(super) fn wait(mut self: Box<Self>, path: Path, datagram: &[u8]) -> Step {
        let result = match &mut self.work {
            Working::Agreeing(early) => early.keep(path, datagram),
            _ => Ok(()),
        };
        Step { next: Some(Slot::HalfOpen(self)), result }
    }

    /// What was ordered has come back.
    pub(crate) fn done(mut self: Box<Self>, shared: &mut Shared, now: Instant, done: Done) -> Step {
        match (std::mem::replace(&mut self.work, Working::Not), done.0) {
            (Working::Beginning(before_nonce), Outcome::Completed(Ok(ours))) => {
                self.how.set_ours(ours);
                let request = self.request.clone();
                match Message::parse(&request) {
                    Ok(first) => self.answer_first(shared, View(&first.payloads), before_nonce),
                    Err(_) => return self.fail(shared, "it is no message"),
                }
                Step::to(Slot::HalfOpen(self))
            }
            (Working::Agreeing(early), Outcome::Agreed(secret)) => {
                match secret.and_then(|secret| self.derive(Some(&secret))) {
                    Ok(channel) => self.channel = Some(channel),
                    Err(error) => return self.fail(shared, &error.to_string()),
                }
                self.take_early(shared, now, early)
            }
            (Working::Responding(request), Outcome::Responded(exchanged)) => {
                self.answer_exchange(shared, *request, exchanged)
            }
            (Working::Signing, outcome) => {
                self.work = Working::Signed(Done(outcome).signed());
                self.go_on(shared, now)
            }
            (Working::Beginning(_) | Working::Agreeing(_) | Working::Responding(_), _) => {
                self.fail(shared, "not in time")
            }
            (work @ (Working::Not | Working::Signed(_)), _) => {
                self.work = work;
                Step::to(Slot::HalfOpen(self))
            }
        }
    }

    /// There are no keys, and never will be.
    pub(super) fn fail(self: Box<Self>, shared: &mut Shared, why: &str) -> Step {
        tracing::debug!(path = %self.link.path, why, "no keys");
        self.expire(shared);
        Step { next: None, result: Err(Discard::Malformed) }
    }

    /// The keys are there for what has come.
    fn take_early(self: Box<Self>, shared: &mut Shared, now: Instant, early: Early) -> Step {
        let mut slot = Slot::HalfOpen(self);
        for (path, mut datagram) in early.datagrams {
            let Ok(header) = Header::parse(&datagram) else { continue };
            let step = match slot {
                // It was counted when it came.
                Slot::HalfOpen(half) => half.take(shared, now, path, &header, &mut datagram),
                slot => slot.handle(shared, now, path, &header, &mut datagram),
            };
            match step.next {
                Some(next) => slot = next,
                None => return Step::gone(),
            }
        }
        Step::to(slot)
    }

    /// The keys of the first messages, where no secret has to be agreed on or that can be done at once; else it is ordered.
    pub(super) fn begin_keys(&mut self, shared: &mut Shared) -> Result<Option<Channel>, Error> {
        let agreed: Option<Secret> = match self.how.take_exchange() {
            None => None,
            Some((ours, theirs)) if (shared.config.beside.agree)(ours.group()) => {
                let early = Working::Agreeing(Early::default());
                self.order(shared, Task::Agree(Box::new(ours), theirs), early);
                return Ok(None);
            }
            Some((ours, theirs)) => Some(ours.agree(&theirs)?),
        };
        self.derive(agreed.as_ref()).map(Some)
    }

    /// The status of a certificate may be known now, or the time for it is over.
    pub(crate) fn go_on(mut self: Box<Self>, shared: &mut Shared, now: Instant) -> Step {
        if self.work.is_under_way() {
            return Step::to(Slot::HalfOpen(self));
        }
        match self.waiting.take() {
            Some((path, payloads)) => self.authenticate(shared, now, path, &payloads),
            None => Step::to(Slot::HalfOpen(self)),
        }
    }
}
