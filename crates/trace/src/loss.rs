//! What could not be read, and where. Owns the record of every loss: nothing is dropped without an entry here.

use core::fmt;

/// Entries kept for one input; further ones are only counted.
const KEPT: usize = 20;

/// One stretch of input that could not be used.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Loss {
    /// Which file (or `-`).
    pub file: String,
    /// Byte offset in the (decompressed) input where the loss begins.
    pub offset: u64,
    /// Number of the record or line, counted from 1.
    pub record: u64,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: byte {}, record {}: {}", self.file, self.offset, self.record, self.reason)
    }
}

/// The losses of one input.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Losses {
    kept: Vec<Loss>,
    total: u64,
}

impl Losses {
    /// Notes a loss.
    pub fn push(&mut self, loss: Loss) {
        self.total += 1;
        if self.kept.len() < KEPT {
            self.kept.push(loss);
        }
    }

    /// Takes over another input's losses.
    pub fn extend(&mut self, other: Self) {
        self.total += other.total;
        self.kept.extend(other.kept);
    }

    /// How many there were.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The first ones of each input.
    #[must_use]
    pub fn kept(&self) -> &[Loss] {
        &self.kept
    }
}
