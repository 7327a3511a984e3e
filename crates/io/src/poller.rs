//! Readiness: a thin, level-triggered wrapper of epoll. Owns the epoll descriptor; never the descriptors that it watches.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// What a descriptor is watched for. Errors and hang-ups are always reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest(EpollFlags);

impl Interest {
    /// Until it can be read.
    pub const READ: Self = Self(EpollFlags::EPOLLIN);
    /// Until it can be written.
    pub const WRITE: Self = Self(EpollFlags::EPOLLOUT);
    /// Either.
    pub const BOTH: Self = Self(EpollFlags::EPOLLIN.union(EpollFlags::EPOLLOUT));
    /// Neither: errors and hang-ups only.
    pub const NONE: Self = Self(EpollFlags::empty());
}

/// A descriptor that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The token that it was registered with.
    pub token: u64,
    /// Reading it will not block (it may give an error or the end).
    pub readable: bool,
    /// Writing it will not block (it may give an error).
    pub writable: bool,
    /// The other side hung up, or the descriptor is in error.
    pub closed: bool,
}

/// The set of watched descriptors. Being a descriptor itself, it can be watched by another one.
#[derive(Debug)]
pub struct Poller(Epoll);

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// The kernel's, when file descriptors or memory run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Watches `fd`. Closing the last copy of a descriptor removes it by itself.
    ///
    /// # Errors
    /// The kernel's: `EEXIST` if it is watched already, `EPERM` for an ordinary file.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(self.0.add(fd, EpollEvent::new(interest.0, token))?)
    }

    /// Watches `fd` for something else.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` if it is not watched.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(self.0.modify(fd, &mut EpollEvent::new(interest.0, token))?)
    }

    /// Watches `fd` no longer.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` if it is not watched.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(self.0.delete(fd)?)
    }

    /// Waits until a descriptor is ready or `timeout` is over (`None`: for ever), and replaces the content of `ready`. A signal
    /// handler that runs ends the wait with nothing ready. Times below a millisecond are rounded up.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = match timeout {
            None => EpollTimeout::NONE,
            Some(t) => {
                let ms = t.as_nanos().div_ceil(1_000_000);
                EpollTimeout::try_from(i32::try_from(ms).unwrap_or(i32::MAX)).unwrap_or(EpollTimeout::MAX)
            }
        };
        let mut events = [EpollEvent::empty(); 64];
        ready.clear();
        let n = match self.0.wait(&mut events, timeout) {
            Ok(n) => n,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        ready.extend(events.iter().take(n).map(|event| {
            let flags = event.events();
            let closed = flags.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
            Ready {
                token: event.data(),
                readable: closed || flags.contains(EpollFlags::EPOLLIN),
                writable: flags.contains(EpollFlags::EPOLLOUT),
                closed,
            }
        }));
        Ok(())
    }

    /// As [`Self::wait`] without an end, but as long as `restless` says so it looks again and again and does not sleep: what comes meanwhile is there sooner,
    /// as no processor has to be woken for it, and this one is kept busy. `restless` is asked before each look.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn wait_restlessly(
        &self,
        ready: &mut Vec<Ready>,
        mut restless: impl FnMut() -> bool,
    ) -> io::Result<()> {
        while restless() {
            self.wait(ready, Some(Duration::ZERO))?;
            if !ready.is_empty() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.wait(ready, None)
    }
}

crate::as_fd!(Poller, 0 0);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_nested_set_is_ready_when_one_of_its_own_is() {
        let (outer, inner) = (Poller::new().unwrap(), Poller::new().unwrap());
        let (a, mut b) = UnixStream::pair().unwrap();
        inner.add(&a, 1, Interest::READ).unwrap();
        outer.add(&inner, 2, Interest::READ).unwrap();
        let mut ready = Vec::new();
        outer.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
        b.write_all(b"x").unwrap();
        outer.wait(&mut ready, None).unwrap();
        assert_eq!(ready.len(), 1);
        assert!(ready[0].token == 2 && ready[0].readable && !ready[0].closed);
    }

    #[test]
    fn without_rest_it_looks_as_long_as_it_may_and_then_sleeps() {
        let poller = Poller::new().unwrap();
        let (a, mut b) = UnixStream::pair().unwrap();
        poller.add(&a, 3, Interest::READ).unwrap();
        let mut ready = Vec::new();
        let mut looks = 0;
        let mut third_brings_it = || {
            looks += 1;
            if looks == 3 {
                b.write_all(b"x").unwrap();
            }
            true
        };
        poller.wait_restlessly(&mut ready, &mut third_brings_it).unwrap();
        assert_eq!((looks, ready.len()), (3, 1), "no look is one too many");

        let (a, b) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&a, 4, Interest::READ).unwrap();
        let (mut looks, mut b) = (0, Some(b));
        let mut twice = || {
            looks += 1;
            if looks > 2 {
                // It would look in vain for ever; asleep, it is woken by the other end.
                let mut b = b.take().unwrap();
                std::thread::spawn(move || b.write_all(b"x").unwrap());
            }
            looks <= 2
        };
        poller.wait_restlessly(&mut ready, &mut twice).unwrap();
        assert_eq!((looks, ready[0].token), (3, 4), "asked once more, and not again");

        let mut never = || false;
        poller.wait_restlessly(&mut ready, &mut never).unwrap();
        assert!(ready[0].readable, "what is there already is found at once");
    }

    #[test]
    fn a_hang_up_is_reported_even_without_interest() {
        let poller = Poller::new().unwrap();
        let (a, b) = UnixStream::pair().unwrap();
        poller.add(&a, 9, Interest::NONE).unwrap();
        drop(b);
        let mut ready = Vec::new();
        poller.wait(&mut ready, None).unwrap();
        assert!(ready[0].closed && ready[0].readable);
    }
}
