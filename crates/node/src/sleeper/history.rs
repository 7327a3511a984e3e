//! What the policy has learned, as a file: an envelope around the scheduler's own bytes. Owns the format; must accept nothing
//! that was cut short, altered, or written for another policy.
//!
//! ```text
//! magic "dmsl" | version u16 | length of the policy's name u8 | name | mean log of sleeps f64 | sleeps u64
//!            | length of the state u32 | state | FNV-1a 64 of all before
//! ```
//! Little endian. The checksum finds damage, not malice: the file belongs to the daemon alone.

use super::Sleeper;
use dormouse_energy::schedule::{Scheduler, StateError};

const MAGIC: [u8; 4] = *b"dmsl";
const VERSION: u16 = 1;
/// Longest file that is believed, in bytes; a scheduler's state is far shorter.
const MOST: usize = 1 << 20;

/// Why a history was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HistoryError {
    /// Cut short, altered, or no history at all.
    #[error("the history is damaged: {0}")]
    Damaged(&'static str),
    /// Written by another release.
    #[error("the history is of version {found}, this release reads version {VERSION}")]
    Version {
        /// The version found.
        found: u16,
    },
    /// Learned by another policy: nothing is wrong with it, but it is of no use.
    #[error("the history is that of policy {found:?}, in use is {expected:?}")]
    Policy {
        /// The policy in use.
        expected: &'static str,
        /// The policy found.
        found: String,
    },
    /// The policy does not take it: damaged, or of another version of the policy.
    #[error("the history is of no use: {0}")]
    State(#[from] StateError),
}

/// What the sleeper itself has learned.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Learned {
    /// Mean of the logarithm of the seconds slept.
    pub(super) log_sleep: f64,
    /// Sleeps that it rests on.
    pub(super) sleeps: u64,
}

impl Sleeper {
    /// Appends what was learned, so that it survives a restart: at most 512 bytes more than the policy's
    /// [`Scheduler::state_bytes`].
    pub fn save(&self, out: &mut Vec<u8>) {
        save(&*self.scheduler, self.learned, out);
    }

    /// Takes back what [`Sleeper::save`] wrote. On error nothing has changed.
    ///
    /// # Errors
    /// [`HistoryError`] if the bytes are damaged, or of another version or policy.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), HistoryError> {
        self.learned = restore(&mut *self.scheduler, bytes)?;
        Ok(())
    }
}

fn save(scheduler: &dyn Scheduler, learned: Learned, out: &mut Vec<u8>) {
    let start = out.len();
    let name = scheduler.name().as_bytes();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.extend(&name[..name.len().min(usize::from(u8::MAX))]);
    out.extend(learned.log_sleep.to_le_bytes());
    out.extend(learned.sleeps.to_le_bytes());
    let length_at = out.len();
    out.extend([0; 4]);
    scheduler.save(out);
    let length = u32::try_from(out.len() - length_at - 4).unwrap_or(u32::MAX);
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&out[start..]);
    out.extend(sum.to_le_bytes());
}

fn restore(scheduler: &mut dyn Scheduler, bytes: &[u8]) -> Result<Learned, HistoryError> {
    if bytes.len() > MOST {
        return Err(HistoryError::Damaged("it is too long"));
    }
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or(HistoryError::Damaged("it is too short"))?;
    let mut fields = Fields(body);
    if fields.take()? != MAGIC {
        return Err(HistoryError::Damaged("it does not begin as a history does"));
    }
    let found = u16::from_le_bytes(fields.take()?);
    if found != VERSION {
        return Err(HistoryError::Version { found });
    }
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err(HistoryError::Damaged("its checksum is wrong"));
    }
    let [length] = fields.take()?;
    let name = fields.bytes(length.into())?;
    if name != scheduler.name().as_bytes() {
        let found = String::from_utf8_lossy(name).into_owned();
        return Err(HistoryError::Policy { expected: scheduler.name(), found });
    }
    let learned =
        Learned { log_sleep: f64::from_le_bytes(fields.take()?), sleeps: u64::from_le_bytes(fields.take()?) };
    if !learned.log_sleep.is_finite() {
        return Err(HistoryError::Damaged("the mean sleep is no number"));
    }
    let length = u32::from_le_bytes(fields.take()?);
    let state = fields.bytes(usize::try_from(length).unwrap_or(usize::MAX))?;
    if !fields.0.is_empty() {
        return Err(HistoryError::Damaged("something follows its end"));
    }
    scheduler.restore(state)?;
    Ok(learned)
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], HistoryError> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(HistoryError::Damaged("it is cut short"))?;
        self.0 = rest;
        Ok(head)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], HistoryError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(HistoryError::Damaged("it is cut short"))?;
        self.0 = rest;
        Ok(*head)
    }
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// The body of a fuzz target: any bytes, and the same under a right checksum. A history that is taken is lived on with, and saved
/// again.
pub(crate) fn fuzz(data: &[u8]) {
    use dormouse_energy::schedule::Policy;
    let summed = [data, &checksum(data).to_le_bytes()].concat();
    for (bytes, policy) in
        [data, &summed].into_iter().flat_map(|b| [(b, Policy::Dormouse), (b, Policy::PAPER)])
    {
        let mut scheduler = policy.scheduler(20.0);
        let Ok(learned) = restore(&mut *scheduler, bytes) else { continue };
        dormouse_energy::fuzz::live(&mut *scheduler);
        let mut saved = Vec::new();
        save(&*scheduler, learned, &mut saved);
        assert_eq!(restore(&mut *policy.scheduler(20.0), &saved), Ok(learned), "what was saved is refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_energy::schedule::Policy;
    use std::time::Duration;

    fn learned_scheduler() -> Box<dyn Scheduler> {
        let mut scheduler = Policy::Dormouse.scheduler(20.0);
        for n in 1..50 {
            scheduler.learn(Duration::from_secs(n * 7 % 90));
        }
        scheduler
    }

    fn written() -> Vec<u8> {
        let scheduler = learned_scheduler();
        let mut out = Vec::new();
        save(&*scheduler, Learned { log_sleep: 4.0, sleeps: 3 }, &mut out);
        out
    }

    #[test]
    fn what_was_saved_is_restored() {
        let bytes = written();
        let mut fresh = Policy::Dormouse.scheduler(20.0);
        assert_eq!(restore(&mut *fresh, &bytes), Ok(Learned { log_sleep: 4.0, sleeps: 3 }));
        assert_eq!(fresh.decide(), learned_scheduler().decide());
    }

    #[test]
    fn nothing_cut_short_or_altered_is_taken() {
        let bytes = written();
        for cut in 0..bytes.len() {
            assert!(restore(&mut *Policy::Dormouse.scheduler(20.0), &bytes[..cut]).is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 0x10;
            assert!(restore(&mut *Policy::Dormouse.scheduler(20.0), &altered).is_err(), "{at}");
        }
        let other = restore(&mut *Policy::PAPER.scheduler(20.0), &bytes);
        assert!(matches!(other, Err(HistoryError::Policy { .. })), "{other:?}");
    }
}
