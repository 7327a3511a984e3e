//! Wakes the loop from a thread beside it, or from the loop itself. Owns the descriptor; never blocks, and carries nothing: to be rung once
//! or often is the same.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::sync::Arc;

/// See the module's documentation. Readable from the first [`Bell::ring`] on until [`Bell::clear`]; clones are the same bell.
#[derive(Clone, Debug)]
pub struct Bell(Arc<EventFd>);

impl Bell {
    /// # Errors
    /// If there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let fd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self(Arc::new(fd)))
    }

    /// Wakes who waits for it: after what it is rung for has been put in its place.
    pub fn ring(&self) {
        // It fails only when it has rung 2^64 - 2 times.
        let _rings_already = self.0.write(1);
    }

    /// It no longer rings: before a look at everything that has come, so that what comes meanwhile rings again.
    pub fn clear(&self) {
        let _silent_already = self.0.read();
    }
}

crate::as_fd!(Bell, 0);
