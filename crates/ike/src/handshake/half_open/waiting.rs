//! A responder that waits before it answers IKE_AUTH: for the status of its caller's certificates, or for its own signature. Owns going on
//! afterwards: the request is judged again from its beginning. Repetitions of the request are dropped meanwhile.

use dormouse_crypto::sign::SignatureError;
use dormouse_sansio::Instant;

use super::HalfOpen;
use crate::auth::Authentication;
use crate::handshake::{Slot, Step};
use crate::payloads::View;
use crate::shared::Shared;

/// See [`HalfOpen::signature`].
#[derive(Debug)]
pub(crate) enum Signature {
    NotYet,
    Ordered,
    Came(Result<Authentication, SignatureError>),
}

impl HalfOpen {
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        let waits = self.waiting.is_some() && !matches!(self.signature, Signature::Ordered);
        waits.then_some(self.wait_until).flatten()
    }

    /// Whether its caller waits for us, and has proved who it is: one that proposes EAP has not.
    pub(in crate::handshake) fn waits_proven(&self) -> Option<bool> {
        self.waiting.as_ref().map(|(_, payloads)| View(payloads).auth().is_some())
    }

    /// Our key has signed, or cannot.
    pub(crate) fn signed(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        result: Result<Authentication, SignatureError>,
    ) -> Step {
        self.signature = Signature::Came(result);
        self.go_on(shared, now)
    }

    /// The status of a certificate may be known now, or the time for it is over.
    pub(crate) fn go_on(mut self: Box<Self>, shared: &mut Shared, now: Instant) -> Step {
        if matches!(self.signature, Signature::Ordered) {
            return Step::to(Slot::HalfOpen(self));
        }
        match self.waiting.take() {
            Some((path, payloads)) => self.authenticate(shared, now, path, &payloads),
            None => Step::to(Slot::HalfOpen(self)),
        }
    }
}
