//! Public-key operations beside the loop, where they take long: a TPM needs up to half a second for a signature, a gateway's RSA key, or an agreement in a MODP
//! group, as long as hundreds of packets. Owns the one thread that carries orders out, which begins with the first; orders wait for each other, because a token
//! does one thing at a time. Which one is next is the core's decision, which hands out a few at a time.

use anyhow::Result;
use dormouse_ike::limits::SIGNING_WAIT;
use dormouse_ike::work::{AT_ONCE, Done, Order};
use dormouse_io::bell::Bell;
use dormouse_io::beside;
use dormouse_io::clock::BootClock;
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};

/// Orders that wait at most: more are never handed out.
const WAITING: usize = AT_ONCE;

type Finished = (SaId, Done);

struct Job {
    sa: SaId,
    /// The handshake is given up then.
    until: Instant,
    work: Box<dyn FnOnce() -> Done + Send>,
}

/// See the module's documentation. Readable when something is done.
#[derive(Debug)]
pub(crate) struct PublicKeys {
    jobs: Option<SyncSender<Job>>,
    sender: Sender<Finished>,
    receiver: Receiver<Finished>,
    bell: Bell,
}

impl PublicKeys {
    pub(crate) fn new() -> Result<Self> {
        let (sender, receiver) = channel();
        Ok(Self { jobs: None, sender, receiver, bell: Bell::new()? })
    }

    /// Has it carried out; what has no room any more is late.
    pub(crate) fn carry_out(&mut self, sa: SaId, order: Box<Order>) {
        let until = BootClock::now() + SIGNING_WAIT;
        self.put(Job { sa, until, work: Box::new(move || order.carry_out()) });
    }

    fn put(&mut self, job: Job) {
        if self.jobs.is_none() {
            match self.begin() {
                Ok(jobs) => self.jobs = Some(jobs),
                Err(e) => {
                    tracing::error!("no public-key operation is possible: {}", dormouse_io::causes(&*e));
                    return self.too_late(job.sa);
                }
            }
        }
        match self.jobs.as_ref().map(|jobs| jobs.try_send(job)) {
            Some(Err(TrySendError::Full(job))) => {
                tracing::warn!(sa = ?job.sa, "{WAITING} public-key operations are waited for already");
                self.too_late(job.sa);
            }
            Some(Err(TrySendError::Disconnected(job))) => {
                tracing::error!(
                    "the thread of public-key operations has ended; the next order begins another"
                );
                self.jobs = None;
                self.too_late(job.sa);
            }
            Some(Ok(())) | None => {}
        }
    }

    /// The handshake must not wait for what will not come: it keeps the place of a newcomer.
    fn too_late(&self, sa: SaId) {
        // The receiver is ours.
        let _ = self.sender.send((sa, Done::late()));
        self.bell.ring();
    }

    fn begin(&self) -> Result<SyncSender<Job>> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING);
        let (sender, bell) = (self.sender.clone(), self.bell.clone());
        beside::spawn("worker", move || {
            for Job { sa, until, work } in waiting {
                // A token signs for those alone who still wait.
                let done = if BootClock::now() < until { work() } else { Done::late() };
                // The loop may have ended meanwhile.
                if sender.send((sa, done)).is_err() {
                    return;
                }
                bell.ring();
            }
        })?;
        Ok(jobs)
    }

    /// The next thing that is done. It stays readable until there was none.
    pub(crate) fn next(&mut self) -> Option<Finished> {
        self.receiver.try_recv().ok().or_else(|| {
            self.bell.clear();
            // One may have come before that.
            self.receiver.try_recv().ok()
        })
    }
}

impl AsFd for PublicKeys {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn job(sa: u64, until: Instant, work: impl FnOnce() + Send + 'static) -> Job {
        let work = move || {
            work();
            Done::late()
        };
        Job { sa: SaId::new(sa), until, work: Box::new(work) }
    }

    #[test]
    fn what_is_no_longer_waited_for_is_not_done_and_the_queue_has_an_end() {
        let mut public_keys = PublicKeys::new().unwrap();
        let (ran, runs) = channel();
        let note = |sa: u64| {
            let ran = ran.clone();
            move || ran.send(sa).unwrap()
        };
        let now = BootClock::now();
        let later = now + Duration::from_secs(3_600);
        public_keys.put(job(1, now, note(1)));
        public_keys.put(job(2, later, note(2)));
        assert_eq!(runs.recv(), Ok(2), "the first one came too late");
        // The token hangs for a while.
        let (release, held) = channel();
        public_keys.put(job(3, later, move || held.recv().unwrap()));
        (0..2 * WAITING as u64).for_each(|sa| public_keys.put(job(10 + sa, later, note(10 + sa))));
        release.send(()).unwrap();
        public_keys.jobs = None;
        drop(ran);
        let did: Vec<u64> = runs.iter().collect();
        assert!((WAITING - 1..=WAITING).contains(&did.len()), "{did:?}");
        // Each handshake hears what became of its order, once.
        let mut heard: Vec<SaId> =
            public_keys.receiver.iter().take(3 + 2 * WAITING).map(|(sa, _)| sa).collect();
        heard.sort_unstable();
        let all = (1..=3).chain((0..2 * WAITING as u64).map(|n| 10 + n)).map(SaId::new);
        assert_eq!(heard, all.collect::<Vec<_>>());
    }
}
