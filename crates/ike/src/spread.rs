//! What a gateway asks about others that serve the same clients. Owns the question; which gateway a caller goes to is decided by who answers.

use dormouse_sansio::Path;
use dormouse_wire::ike::Gateway;

/// Knows of other gateways, and how loaded they are.
pub trait Spread {
    /// Where a caller on this `path` is served instead of here, who logs in, follows and was not sent by another gateway; it is on its way there then.
    /// `under_way`: callers who have begun here and are not established. Nothing of the caller is authenticated, nor said to be new.
    fn elsewhere(&mut self, path: &Path, under_way: usize) -> Option<Gateway>;
}
