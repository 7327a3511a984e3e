//! Signing with keys that are held in tokens, beside the loop: a TPM takes up to half a second for a signature. Owns the one thread that
//! signs, which begins with the first order; orders wait for each other, because a token does one thing at a time.

use anyhow::Result;
use dormouse_io::bell::Bell;
use dormouse_crypto::sign::SignatureError;
use dormouse_ike::auth::{Authentication, SignOrder};
use dormouse_keying::SaId;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

type Signed = (SaId, Result<Authentication, SignatureError>);

/// See the module's documentation. Readable when a signature has come.
#[derive(Debug)]
pub(crate) struct Signers {
    orders: Option<Sender<(SaId, Box<SignOrder>)>>,
    sender: Sender<Signed>,
    receiver: Receiver<Signed>,
    bell: Bell,
}

impl Signers {
    pub(crate) fn new() -> Result<Self> {
        let (sender, receiver) = channel();
        Ok(Self { orders: None, sender, receiver, bell: Bell::new()? })
    }

    /// Has it signed. Where that cannot even begin, the handshake fails by its own time.
    pub(crate) fn sign(&mut self, sa: SaId, order: Box<SignOrder>) {
        if self.orders.is_none() {
            match self.begin() {
                Ok(orders) => self.orders = Some(orders),
                Err(e) => return tracing::error!("nothing can be signed: {e:#}"),
            }
        }
        if self.orders.as_ref().is_some_and(|orders| orders.send((sa, order)).is_err()) {
            tracing::error!("the thread that signs has ended; the next order begins another");
            self.orders = None;
        }
    }

    fn begin(&self) -> Result<Sender<(SaId, Box<SignOrder>)>> {
        let (orders, waiting) = channel::<(SaId, Box<SignOrder>)>();
        let (sender, bell) = (self.sender.clone(), self.bell.clone());
        std::thread::Builder::new().name("signer".to_owned()).spawn(move || {
            for (sa, order) in waiting {
                // The loop may have ended meanwhile.
                if sender.send((sa, order.sign())).is_err() {
                    return;
                }
                bell.ring();
            }
        })?;
        Ok(orders)
    }

    /// The next signature, if one has come.
    pub(crate) fn next(&mut self) -> Option<Signed> {
        self.bell.clear();
        self.receiver.try_recv().ok()
    }
}

impl AsFd for Signers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
