//! `dormouse deny` and `dormouse allow`: a gateway's operator refuses an identity or a certificate, or takes it back. Owns the replies to
//! these verbs; [`dormouse_ike::admission`] decides whom a denial means, and the store keeps it.

use crate::daemon::Daemon;
use dormouse_control::{Denied, Error, ErrorKind, Reply};
use dormouse_ike::admission::Denial;
use dormouse_io::clock::unix_now;
use dormouse_io::store::StoredDenial;
use dormouse_node::config::file::Role;
use dormouse_sansio::Instant;

impl Daemon {
    /// Whom `whom` means is not admitted from now on.
    pub(crate) fn deny(&mut self, now: Instant, whom: &str) -> Result<(), Error> {
        let denial = self.meant(whom)?;
        let stored = StoredDenial { whom: denial.to_string(), since: unix_now() };
        let kept = self.store.deny(&stored);
        // In force whether it could be kept or not.
        self.host.node_mut().deny(now, denial);
        tracing::warn!(whom = %stored.whom, "denied on request");
        kept.map(drop).map_err(|e| {
            Error::new(
                ErrorKind::Other,
                format!("{whom} is denied until the daemon's next start only: {e:#}"),
            )
        })
    }

    /// Takes a denial back.
    pub(crate) fn allow(&mut self, whom: &str) -> Result<(), Error> {
        let failed =
            |e: anyhow::Error| Error::new(ErrorKind::Other, format!("{whom} is still denied: {e:#}"));
        let denial = match self.meant(whom) {
            Ok(denial) => denial,
            // One of an earlier release may have been kept that is not understood any more.
            Err(_) if self.store.allow(whom).map_err(failed)? => return Ok(()),
            Err(error) => return Err(error),
        };
        let stored = self.store.allow(&denial.to_string()).map_err(failed)?;
        if !self.host.node_mut().allow(&denial) && !stored {
            return Err(Error::new(ErrorKind::NotConnected, format!("'{denial}' is not denied"))
                .with_change("dormouse deny --list"));
        }
        tracing::warn!(whom = %denial, "no longer denied, on request");
        Ok(())
    }

    /// Who is denied.
    pub(crate) fn denials(&self) -> Result<Reply, Error> {
        let stored = self.store.denials().map_err(|e| Error::new(ErrorKind::Other, format!("{e:#}")))?;
        let denied = |StoredDenial { whom, since }| Denied { whom, since_unix: since.0 };
        Ok(Reply::Denials(stored.into_iter().map(denied).collect()))
    }

    fn meant(&self, whom: &str) -> Result<Denial, Error> {
        if !self.connections.iter().any(|c| c.role == Role::Gateway) {
            let message = "this daemon has no gateway connection, so there are no clients to deny";
            return Err(Error::new(ErrorKind::Request, message));
        }
        whom.parse().map_err(|e| Error::new(ErrorKind::Request, format!("{e}")))
    }
}
