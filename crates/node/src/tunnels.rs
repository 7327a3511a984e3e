//! What key managers order of the ESP side, carried out on the SAD. Owns neither: it only joins sessions and tunnels.

use crate::node::Node;
use crate::sessions::Session;
use dormouse_keying::{ChildSa, Install, Owner};
use dormouse_sansio::Instant;

impl Node {
    /// Carries out a change of the ESP side.
    pub(crate) fn change_tunnels(&mut self, now: Instant, change: ChildSa) {
        match change {
            ChildSa::Install(install) => self.install(now, &install),
            ChildSa::Remap { owner, path } => {
                for id in self.sad.of(owner).to_vec() {
                    if let Some(tunnel) = self.sad.get_mut(id) {
                        tunnel.remap(path, self.path_mtu);
                        self.repairs.leave(now, id);
                    }
                }
                if let Some(client) = self.client_of(owner) {
                    client.ladder.moved(path);
                }
            }
            ChildSa::Remove { child, owner } => {
                self.repairs.remove(now, child);
                if let Some((session, tunnel)) = self.sessions.get_mut(owner).zip(self.sad.get(child)) {
                    session.carried.add(tunnel);
                }
                let old = self.sessions.get(owner);
                // No radio, no late packets.
                let awake = |s: &Session| {
                    self.sending.is_allowed() || self.connections.client(s.connection).is_none()
                };
                let is_heir = |heir| {
                    let heir = self.sessions.get(heir);
                    old.zip(heir).is_some_and(|(old, heir)| old.is_of_peer(heir) && awake(heir))
                };
                self.sad.retire(now, child, is_heir);
            }
        }
    }

    fn install(&mut self, now: Instant, install: &Install) {
        let owner = install.owner;
        if self.sessions.get(owner).is_none() {
            tracing::error!(%owner, "a CHILD SA of no session");
            return self.sad.refuse(install.child);
        }
        match self.sad.install(install, self.path_mtu, &mut *self.entropy) {
            Ok(()) => {
                let connection = self.sessions.get(owner).map(|session| session.connection);
                if let Some(carried) = connection.and_then(|id| self.connections.carried(id))
                    && let Some(tunnel) = self.sad.get_mut(install.child)
                {
                    tunnel.join(&carried.received, &carried.sent);
                }
                self.report_from(now, install);
                // Otherwise its peer does not have the keys yet, or is not known to be there ([`Node::tunnels_may_send`]).
                if install.send_now || install.replaces.is_some() {
                    self.tunnel_installed(now, owner, install.child);
                }
            }
            Err(error) => {
                tracing::error!(%owner, child = %install.child, %error, "a CHILD SA could not be installed")
            }
        }
    }

    /// The peer of this session is there, or has been answered: what was to receive alone may send.
    pub(crate) fn tunnels_may_send(&mut self, now: Instant, owner: Owner) {
        for id in self.sad.of(owner).to_vec() {
            self.sad.activate(id);
            self.tunnel_installed(now, owner, id);
        }
    }
}
