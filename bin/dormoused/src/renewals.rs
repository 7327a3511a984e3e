//! What the daemon does for the renewal of clients' certificates: it says who has an inner address, and puts on record what the program that renews has done.
//! Owns these two answers; the addresses in the tunnel and the firewall are the machine's, and no key of an authority is ever read here.

use crate::daemon::Daemon;
use dormouse_control::{Error, ErrorKind, Holder, Renewal, Reply};
use dormouse_crypto::cert::Identity;
use dormouse_ike::admission::Denial;
use dormouse_io::control::ClientId;
use dormouse_node::config::Resolved;
use dormouse_sansio::{Instant, UnixTime};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The addresses inside the tunnel that connections have for it.
pub(crate) fn addresses(connections: &[Resolved]) -> BTreeSet<IpAddr> {
    connections.iter().filter_map(|c| c.renewals).map(|at| at.ip()).collect()
}

impl Daemon {
    /// Who has a session with this inner address.
    pub(crate) fn holder(&self, address: IpAddr) -> Reply {
        let found = self.host.node().holder_of(address);
        Reply::Holder(found.map(|(connection, identity)| Holder {
            connection: connection.to_owned(),
            identity: identity.to_owned(),
        }))
    }

    /// Puts a renewal on record, for root alone: others who may use the socket could forge one.
    pub(crate) fn record_renewal(
        &mut self,
        now: Instant,
        client: ClientId,
        connection: &str,
        identity: Option<&str>,
        from: SocketAddr,
        outcome: Renewal,
    ) -> Result<(), Error> {
        if self.verbs.server.peer(client).is_none_or(|peer| peer.uid != 0) {
            return Err(Error::new(ErrorKind::Permission, "renewals are put on record by root alone"));
        }
        let wrong = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Request, e.to_string());
        let identity = identity.map(str::parse::<Identity>).transpose().map_err(|e| wrong(&e))?;
        match (outcome, identity) {
            (Renewal::Issued { fingerprint, until_unix }, Some(identity)) => {
                let Ok(Denial::Certificate(bytes)) = fingerprint.parse::<Denial>() else {
                    return Err(wrong(&"no fingerprint of a certificate"));
                };
                tracing::info!(%identity, %from, "a certificate was renewed");
                let (fingerprint, until) =
                    (bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(), UnixTime(until_unix));
                self.host.node_mut().record_renewal(connection, &identity, fingerprint, from, until);
            }
            (Renewal::Issued { .. }, None) => return Err(wrong(&"a renewal of nobody")),
            (Renewal::Refused { why }, identity) => {
                let node = self.host.node_mut();
                if node.record_renewal_refusal(now, from, identity.as_ref(), &why) {
                    tracing::warn!(%from, why = ?why, "a certificate was not renewed");
                }
            }
        }
        Ok(())
    }
}
