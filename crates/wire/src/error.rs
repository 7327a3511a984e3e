//! Why bytes were refused. Owns the crate's only error type; each variant names the field and both values.

/// A refusal by a parser or an emitter. `what` is the field or structure as the RFC names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The input ends inside a field.
    #[error("{what} is cut short: needs {need} bytes, {have} are left")]
    Truncated {
        /// The field being read.
        what: &'static str,
        /// Bytes it needs.
        need: usize,
        /// Bytes that were left.
        have: usize,
    },
    /// Bytes are left where the structure ends.
    #[error("{extra} bytes are left after the end of {what}")]
    Trailing {
        /// The structure that ended.
        what: &'static str,
        /// Bytes after it.
        extra: usize,
    },
    /// A length field contradicts the structure that it measures.
    #[error("the length of {what} is {got}, expected {expect}")]
    Length {
        /// The structure measured.
        what: &'static str,
        /// The length stated.
        got: usize,
        /// The length, or the bound on it, that would be right.
        expect: usize,
    },
    /// More items than `ike::limits` permits.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The items, in the plural.
        what: &'static str,
        /// How many are permitted.
        limit: usize,
    },
    /// A value that the format forbids.
    #[error("{what} is {got}, expected {expect}")]
    Value {
        /// The field.
        what: &'static str,
        /// Its value.
        got: u64,
        /// What the format asks for.
        expect: &'static str,
    },
    /// A value to be emitted is larger than its length or count field can say.
    #[error("{what} has {got} bytes or items, but the field that counts them ends at {limit}")]
    TooLong {
        /// The value to be emitted.
        what: &'static str,
        /// Its size.
        got: usize,
        /// The largest size that the format can express.
        limit: usize,
    },
}
