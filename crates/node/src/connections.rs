//! The connections of a node and the handles on them. Owns the names, and the clients behind them; must never know a session.

use crate::client::Client;

/// A connection of this node, for as long as the node lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ConnectionId(usize);

/// What the configuration calls a connection; its role, and what its role needs.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) name: String,
    /// In the role of a client.
    pub(crate) client: Option<Client>,
}

/// All connections; found by handle where packets pass, and by name where people ask.
#[derive(Debug, Default)]
pub(crate) struct Connections(Vec<Connection>);

impl Connections {
    pub(crate) fn add(&mut self, connection: Connection) -> ConnectionId {
        self.0.push(connection);
        ConnectionId(self.0.len() - 1)
    }

    pub(crate) fn id(&self, name: &str) -> Option<ConnectionId> {
        self.0.iter().position(|c| c.name == name).map(ConnectionId)
    }

    pub(crate) fn name(&self, id: ConnectionId) -> &str {
        self.0.get(id.0).map_or("", |c| c.name.as_str())
    }

    pub(crate) fn client(&self, id: ConnectionId) -> Option<&Client> {
        self.0.get(id.0)?.client.as_ref()
    }

    pub(crate) fn client_mut(&mut self, id: ConnectionId) -> Option<&mut Client> {
        self.0.get_mut(id.0)?.client.as_mut()
    }

    pub(crate) fn client_named(&self, name: &str) -> Option<&Client> {
        self.clients().find(|c| c.config.name == name)
    }

    pub(crate) fn client_named_mut(&mut self, name: &str) -> Option<&mut Client> {
        self.clients_mut().find(|c| c.config.name == name)
    }

    pub(crate) fn clients(&self) -> impl Iterator<Item = &Client> {
        self.0.iter().filter_map(|c| c.client.as_ref())
    }

    pub(crate) fn clients_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.0.iter_mut().filter_map(|c| c.client.as_mut())
    }

    /// The handles of the clients.
    pub(crate) fn client_ids(&self) -> impl Iterator<Item = ConnectionId> + use<> {
        let ids: Vec<_> =
            (0..self.0.len()).map(ConnectionId).filter(|id| self.client(*id).is_some()).collect();
        ids.into_iter()
    }
}
