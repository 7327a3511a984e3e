//! `dormouse rekey`: new keys before they are due, for a client's session or at a gateway for one peer. Owns the errors of a wrong
//! request; the keys are the node's.

use crate::daemon::Daemon;
use crate::status;
use dormouse_control::{Error, ErrorKind, KeysOf};
use dormouse_node::Rekey;
use dormouse_sansio::Instant;

impl Daemon {
    /// Begins to make new keys for the client connection that is meant, or for the peers of a gateway's connection that `peer` means.
    pub(crate) fn rekey(
        &mut self,
        now: Instant,
        connection: Option<String>,
        peer: Option<&str>,
        keys: KeysOf,
    ) -> Result<(), Error> {
        let which = match keys {
            KeysOf::All => Rekey::All,
            KeysOf::Ike => Rekey::Ike,
            KeysOf::Child => Rekey::Children,
        };
        if let Some(peer) = peer {
            let connection = connection.unwrap_or_default();
            return self
                .at_peer("rekey", &connection, peer, |node| node.rekey_peer(now, &connection, peer, which));
        }
        if let Some(gateway) = connection.as_deref().filter(|name| self.is_gateway(name)) {
            let message = format!("'{gateway}' is a gateway connection: say which of its peers is meant");
            return Err(Error::new(ErrorKind::Request, message)
                .with_change(format!("dormouse rekey {gateway} --peer IDENTITY")));
        }
        let name = self.named(connection)?;
        if self.host.node_mut().rekey(now, &name, which) {
            return Ok(());
        }
        let infos = self.host.node().client_infos(now);
        let state =
            infos.iter().find(|info| info.name == name).map_or("down", |info| status::state(info).name());
        Err(Error::new(
            ErrorKind::NotConnected,
            format!("{name} is {state}: no session can get new keys now"),
        ))
    }
}
