//! The connections of a node and the handles on them. Owns the names, and the clients behind them; must never know a session.

use crate::client::Client;
use crate::tally::Carried;

/// A connection of this node, for as long as the node lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ConnectionId(pub(super) usize);

/// What the configuration calls a connection; its role, and what its role needs.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) name: String,
    /// In the role of a client.
    pub(crate) client: Option<Client>,
    pub(crate) carried: Carried,
    /// The configuration does not have it any more. Sessions that are still ending have its handle.
    gone: bool,
}

/// All connections; found by handle where packets pass, and by name where people ask.
#[derive(Debug, Default)]
pub(crate) struct Connections(Vec<Connection>);

impl Connections {
    pub(crate) fn add(&mut self, name: String, client: Option<Client>) -> ConnectionId {
        let new = Connection { name, client, carried: Carried::default(), gone: false };
        let was = |c: &Connection| c.gone && c.name == new.name && c.client.is_some() == new.client.is_some();
        match self.0.iter_mut().enumerate().find(|(_, c)| was(c)) {
            Some((at, place)) => {
                // What it has carried is not forgotten: its last sessions may still be ending.
                *place = Connection { carried: place.carried.clone(), ..new };
                ConnectionId(at)
            }
            None => {
                self.0.push(new);
                ConnectionId(self.0.len() - 1)
            }
        }
    }

    /// The configuration does not have it any more.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.0.get_mut(id.0).into_iter().for_each(|c| c.gone = true);
    }

    /// Those that the configuration has.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.0.iter().enumerate().filter(|(_, c)| !c.gone).map(|(i, c)| (ConnectionId(i), c))
    }

    pub(crate) fn id(&self, name: &str) -> Option<ConnectionId> {
        self.iter().find(|(_, c)| c.name == name).map(|(id, _)| id)
    }

    pub(crate) fn name(&self, id: ConnectionId) -> &str {
        self.0.get(id.0).map_or("", |c| c.name.as_str())
    }

    /// What its tunnels carry is counted here.
    pub(crate) fn carried(&self, id: ConnectionId) -> Option<&Carried> {
        self.0.get(id.0).map(|c| &c.carried)
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
        self.iter().filter_map(|(_, c)| c.client.as_ref())
    }

    /// The clients beside this connection: their routes may be there without a session.
    pub(crate) fn others(&self, than: ConnectionId) -> impl Iterator<Item = &Client> {
        self.iter().filter(move |(id, _)| *id != than).filter_map(|(_, c)| c.client.as_ref())
    }

    pub(crate) fn clients_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.0.iter_mut().filter(|c| !c.gone).filter_map(|c| c.client.as_mut())
    }

    /// The handles of the clients.
    pub(crate) fn client_ids(&self) -> impl Iterator<Item = ConnectionId> + use<> {
        let ids: Vec<_> = self.iter().filter(|(_, c)| c.client.is_some()).map(|(id, _)| id).collect();
        ids.into_iter()
    }
}
