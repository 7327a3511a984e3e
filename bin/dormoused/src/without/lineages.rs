//! The lineages of a program without the feature `sqlite`: as long as the daemon runs. A ticket of before counts no more then, which costs a full exchange.

use dormouse_ike::ticket::lineage::Memory;
use std::convert::Infallible;
use std::path::Path;

pub(crate) type Own = Memory;

/// None yet.
///
/// # Errors
/// None.
pub(crate) fn open(_: &Path) -> Result<Own, Infallible> {
    let without = crate::features::without("sqlite");
    tracing::warn!("{without}: addresses, denials and tickets that it has given are forgotten when it ends");
    Ok(Memory::default())
}
