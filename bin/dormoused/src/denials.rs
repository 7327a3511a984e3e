//! `dormouse deny`, `allow` and `forget-tickets`: a gateway's operator refuses an identity or a certificate, takes it back, or lets no
//! ticket count any more. A host of HIP refuses a HIT. Owns the replies to these verbs; [`dormouse_ike::admission`] decides whom a denial means, and the store keeps it.

use crate::daemon::Daemon;
use dormouse_control::{Denied, Error, ErrorKind, Reply};
use dormouse_ike::admission::Denial;
use dormouse_io::clock::unix_now;
use dormouse_io::control::ClientId;
use dormouse_io::store::StoredDenial;
use dormouse_node::Met;
use dormouse_node::audit::What;
use dormouse_node::config::file::Role;
use dormouse_sansio::Instant;

impl Daemon {
    /// Whom `whom` means is not admitted from now on. `client` has ordered it.
    pub(crate) fn deny(&mut self, now: Instant, client: ClientId, whom: &str) -> Result<Reply, Error> {
        let denial = self.meant(whom)?;
        let stored = StoredDenial { whom: denial.to_string(), since: unix_now() };
        if stored.whom.parse().as_ref() != Ok(&denial) {
            // It would keep the daemon from its next start.
            let message =
                format!("{whom} cannot be written down so that it means the same; deny the certificate");
            return Err(Error::new(ErrorKind::Request, message));
        }
        let kept = self.store.deny(&stored);
        let named = self.is_named(&denial);
        self.record(client, |by_uid| What::Denial { whom: stored.whom.as_str().into(), by_uid });
        // In force whether it could be kept or not.
        let (associations, listed) = self.deny_hit(now, &denial).unwrap_or_default();
        let Met { sessions, known } = self.host.deny(now, denial);
        let (sessions, known) = (sessions + associations, known || listed || associations > 0);
        tracing::warn!(whom = %stored.whom, sessions, "denied on request");
        kept.map(|_| Reply::Denied { sessions, known: known || named }).map_err(|e| {
            Error::new(
                ErrorKind::Other,
                format!("{whom} is denied until the daemon's next start only: {e:#}"),
            )
        })
    }

    /// Takes a denial back. `client` has ordered it.
    pub(crate) fn allow(&mut self, now: Instant, client: ClientId, whom: &str) -> Result<(), Error> {
        let denial = self.meant(whom);
        let whom = denial.as_ref().map_or_else(|_| whom.to_owned(), ToString::to_string);
        let stored = self
            .store
            .allow(&whom)
            .map_err(|e| Error::new(ErrorKind::Other, format!("{whom} is still denied: {e:#}")))?;
        let was = match denial {
            Ok(denial) => self.allow_hit(now, &denial) | self.host.node_mut().allow(&denial) | stored,
            // One of an earlier release may have been kept that is not understood any more.
            Err(_) if stored => true,
            Err(error) => return Err(error),
        };
        if !was {
            return Err(Error::new(ErrorKind::NotConnected, format!("'{whom}' is not denied"))
                .with_change("dormouse deny --list"));
        }
        self.record(client, |by_uid| What::Allowance { whom: whom.as_str().into(), by_uid });
        tracing::warn!(%whom, "no longer denied, on request");
        Ok(())
    }

    fn record(&mut self, client: ClientId, what: impl FnOnce(Option<u32>) -> What) {
        let by_uid = self.verbs.server.peer(client).map(|peer| peer.uid);
        self.host.node_mut().record(what(by_uid));
    }

    /// Whether the configuration names an identity itself, and not only a pattern that holds it.
    fn is_named(&self, denial: &Denial) -> bool {
        let Denial::Name(identity) = denial else { return false };
        let mut gateways = self.connections.iter().filter(|c| c.role == Role::Gateway);
        gateways.any(|c| c.ike.named(identity).is_some())
    }

    /// No ticket counts any more that was given until now.
    pub(crate) fn forget_tickets(&mut self, now: Instant) -> Result<(), Error> {
        self.is_for_clients()?;
        self.host.node_mut().forget_tickets(now);
        tracing::warn!("all tickets are forgotten, on request");
        Ok(())
    }

    /// Who is denied.
    pub(crate) fn denials(&self) -> Result<Reply, Error> {
        let stored = self.store.denials().map_err(|e| Error::new(ErrorKind::Other, format!("{e:#}")))?;
        let denied = |StoredDenial { whom, since }| Denied { whom, since_unix: since.0 };
        Ok(Reply::Denials(stored.into_iter().map(denied).collect()))
    }

    fn is_for_clients(&self) -> Result<(), Error> {
        if self.connections.iter().any(|c| c.role == Role::Gateway) {
            return Ok(());
        }
        let message = "this daemon has no gateway connection, so it has no clients to decide about";
        Err(Error::new(ErrorKind::Request, message))
    }

    fn meant(&self, whom: &str) -> Result<Denial, Error> {
        let hit = match (&self.hip, self.is_for_clients()) {
            (None, refused) => refused.map(|()| None)?,
            // A gateway's clients have names of their own.
            (Some(_), Ok(())) => None,
            (Some(hip), Err(_)) => Some(hip.meant(whom)?.to_string()),
        };
        hit.as_deref().unwrap_or(whom).parse().map_err(|e| Error::new(ErrorKind::Request, format!("{e}")))
    }
}
