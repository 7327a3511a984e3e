//! `dormouse redirect`: a gateway sends its clients to another one (RFC 5685). Owns the errors of a wrong request; who goes is the client's affair.

use crate::daemon::Daemon;
use dormouse_control::{Error, ErrorKind, Reply};
use dormouse_node::Gateway;
use dormouse_sansio::Instant;

impl Daemon {
    /// Tells the clients of a gateway's connection, or the one that `peer` means.
    pub(crate) fn redirect(
        &mut self,
        now: Instant,
        connection: &str,
        peer: Option<&str>,
        to: &str,
    ) -> Result<Reply, Error> {
        let to: Gateway = to.parse().map_err(|e| {
            Error::new(ErrorKind::Request, format!("'{to}' is {e}"))
                .with_change("--to gw2.example.org, or its address")
        })?;
        let mut sent = dormouse_node::Sent::default();
        self.at_peer("redirect", connection, peer.unwrap_or_default(), |node| {
            sent = node.redirect(now, connection, peer, &to)?;
            Ok(())
        })?;
        tracing::info!(%connection, peer, %to, told = sent.told, deaf = sent.deaf, "clients are sent to another gateway on request");
        Ok(Reply::Redirected { told: sent.told, deaf: sent.deaf })
    }
}
