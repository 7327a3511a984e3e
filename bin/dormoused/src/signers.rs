//! Signing beside the loop with keys that take long: a TPM needs up to half a second for a signature, a gateway's RSA key as long as hundreds of
//! packets. Owns the one thread that signs, which begins with the first order; orders wait for each other, because a token does one thing at a time.

use anyhow::Result;
use dormouse_crypto::sign::SignatureError;
use dormouse_ike::auth::{Authentication, SignOrder};
use dormouse_ike::limits::SIGNING_WAIT;
use dormouse_io::bell::Bell;
use dormouse_io::beside;
use dormouse_io::clock::BootClock;
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};

/// Orders that wait at most. An RSA key of 2,048 bits signs as many before they are too late ([`SIGNING_WAIT`]); a token that takes half a second signs the first
/// sixteen, and the others cost it nothing.
const WAITING: usize = 4_096;

type Outcome = Result<Authentication, SignatureError>;
type Signed = (SaId, Outcome);

struct Order {
    sa: SaId,
    /// The handshake is given up then.
    until: Instant,
    work: Box<dyn FnOnce() -> Outcome + Send>,
}

/// See the module's documentation. Readable when a signature has come.
#[derive(Debug)]
pub(crate) struct Signers {
    orders: Option<SyncSender<Order>>,
    sender: Sender<Signed>,
    receiver: Receiver<Signed>,
    bell: Bell,
}

impl Signers {
    pub(crate) fn new() -> Result<Self> {
        let (sender, receiver) = channel();
        Ok(Self { orders: None, sender, receiver, bell: Bell::new()? })
    }

    /// Has it signed, unless too much is waiting already: then the handshake hears that it is too late.
    pub(crate) fn sign(&mut self, sa: SaId, order: Box<SignOrder>) {
        self.put(Order { sa, until: BootClock::now() + SIGNING_WAIT, work: Box::new(move || order.sign()) });
    }

    fn put(&mut self, order: Order) {
        if self.orders.is_none() {
            match self.begin() {
                Ok(orders) => self.orders = Some(orders),
                Err(e) => {
                    tracing::error!("nothing can be signed: {}", dormouse_io::causes(&*e));
                    return self.too_late(order.sa);
                }
            }
        }
        match self.orders.as_ref().map(|orders| orders.try_send(order)) {
            Some(Err(TrySendError::Full(order))) => {
                tracing::warn!(sa = ?order.sa, "not signed: {WAITING} signatures are waited for already");
                self.too_late(order.sa);
            }
            Some(Err(TrySendError::Disconnected(order))) => {
                tracing::error!("the thread that signs has ended; the next order begins another");
                self.orders = None;
                self.too_late(order.sa);
            }
            Some(Ok(())) | None => {}
        }
    }

    /// The handshake must not wait for what will not come: it keeps the place of a newcomer.
    fn too_late(&self, sa: SaId) {
        // The receiver is ours.
        let _ = self.sender.send((sa, Err(SignatureError::Late)));
        self.bell.ring();
    }

    fn begin(&self) -> Result<SyncSender<Order>> {
        let (orders, waiting) = sync_channel::<Order>(WAITING);
        let (sender, bell) = (self.sender.clone(), self.bell.clone());
        beside::spawn("signer", move || {
            for Order { sa, until, work } in waiting {
                // A token signs for those alone who still wait.
                let signed = if BootClock::now() < until { work() } else { Err(SignatureError::Late) };
                // The loop may have ended meanwhile.
                if sender.send((sa, signed)).is_err() {
                    return;
                }
                bell.ring();
            }
        })?;
        Ok(orders)
    }

    /// The next signature, if one has come. It stays readable until there was none.
    pub(crate) fn next(&mut self) -> Option<Signed> {
        self.receiver.try_recv().ok().or_else(|| {
            self.bell.clear();
            // One may have come before that.
            self.receiver.try_recv().ok()
        })
    }
}

impl AsFd for Signers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_crypto::sign::KeyKind;
    use std::time::Duration;

    fn order(sa: u64, until: Instant, work: impl FnOnce() + Send + 'static) -> Order {
        let failed = || Err(SignatureError::NotRsa { kind: KeyKind::EcdsaP256 });
        let work = move || {
            work();
            failed()
        };
        Order { sa: SaId::new(sa), until, work: Box::new(work) }
    }

    #[test]
    fn what_is_no_longer_waited_for_is_not_signed_and_the_queue_has_an_end() {
        let mut signers = Signers::new().unwrap();
        let (ran, runs) = channel();
        let note = |sa: u64| {
            let ran = ran.clone();
            move || ran.send(sa).unwrap()
        };
        let now = BootClock::now();
        let later = now + Duration::from_secs(3_600);
        signers.put(order(1, now, note(1)));
        signers.put(order(2, later, note(2)));
        assert_eq!(runs.recv(), Ok(2), "the first one came too late");
        // The token hangs for a while.
        let (release, held) = channel();
        signers.put(order(3, later, move || held.recv().unwrap()));
        (0..2 * WAITING as u64).for_each(|sa| signers.put(order(sa, later, note(sa))));
        release.send(()).unwrap();
        signers.orders = None;
        drop(ran);
        let signed = runs.iter().count();
        assert!((WAITING - 1..=WAITING).contains(&signed), "{signed}");
        // Each handshake hears what became of its order.
        let outcomes = signers.receiver.iter().take(3 + 2 * WAITING);
        let late = outcomes.filter(|(_, outcome)| *outcome == Err(SignatureError::Late)).count();
        assert_eq!(late + signed, 1 + 2 * WAITING);
    }
}
