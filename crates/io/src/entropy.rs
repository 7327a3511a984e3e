//! The operating system's randomness. Owns nothing: every byte comes from the kernel, none is kept.

use dormouse_sansio::Entropy;
use rustix::rand::{GetRandomFlags, getrandom};

/// The kernel's generator (`getrandom(2)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    /// # Panics
    /// If the kernel has no `getrandom` (before Linux 3.17): without randomness there are no keys, and nothing may go on.
    fn fill(&mut self, out: &mut [u8]) {
        let mut rest = out;
        while !rest.is_empty() {
            match getrandom(&mut *rest, GetRandomFlags::empty()) {
                Ok(n) => rest = rest.get_mut(n..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => panic!("the kernel gives no randomness: {e}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_large_buffers_to_the_end() {
        // More than 256 bytes, which is what one call gives without being interrupted.
        let mut a = vec![0; 70_000];
        OsEntropy.fill(&mut a);
        for part in a.chunks(64) {
            assert!(part.iter().any(|&b| b != 0), "64 zero bytes in a row");
        }
    }
}
