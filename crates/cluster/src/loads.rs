//! What gateways have learned about latency and load, each its own, for one that has lost it. Owns the table `load_history`; must never look into what
//! it holds.

use crate::error::Error;
use crate::join::Database;
use crate::link::Link;

/// Bytes of one at most; the table has the same bound.
pub const HISTORY_MOST: usize = 4_096;
/// So many are read: one of them will do.
const MOST: i64 = 8;

const KEEP: &str = "insert into dormouse.load_history (gateway, written, content)
    values ($1, extract(epoch from clock_timestamp())::bigint, $2)
    on conflict (gateway) do update set written = excluded.written, content = excluded.content";
const READ: &str =
    "select content from dormouse.load_history order by gateway = $1 desc, written desc, gateway limit $2";

impl Database {
    /// Keeps what this gateway has learned in the place of what it had before.
    ///
    /// # Errors
    /// [`Error::Settings`] if it is longer than [`HISTORY_MOST`]; else see [`Error`].
    pub async fn keep_load(&mut self, history: &[u8]) -> Result<(), Error> {
        let bytes = history.len();
        if bytes > HISTORY_MOST {
            return Err(Error::Settings(format!("{bytes} bytes are too many for what was learned of load")));
        }
        let work = async |link: &mut Link| {
            link.query(KEEP, &[&link.gateway.clone(), &history]).await?;
            Ok(())
        };
        self.link.within("keep what was learned of load", work).await
    }

    /// What gateways have learned: this one, then the others, the newest first; 8 at most.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn load_histories(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let work = async |link: &mut Link| {
            let rows = link.query(READ, &[&link.gateway.clone(), &MOST]).await?;
            rows.iter().map(|row| link.cells("load_history", row).get(0)).collect()
        };
        self.link.within("read what was learned of load", work).await
    }
}
