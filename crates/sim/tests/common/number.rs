//! What the environment asks for.

/// A number that the environment may give.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}
