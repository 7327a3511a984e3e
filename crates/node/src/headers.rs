//! Keys of headers (`docs/wire/mlike.md`), as far as the machine beside IKE has a part in them: where devices are, and what a router's data
//! plane says, and that none are taken where nothing uses them. Owns no state; who may have which keys is decided by [`dormouse_ike`].

use crate::client::Client;
use crate::event::{Event, Order};
use crate::node::Node;
use dormouse_crypto::cert::Identity;
use dormouse_keying::{GrantId, HeaderNews, SaId};
use dormouse_sansio::Instant;
use dormouse_wire::ike::mlike::Excerpt;
use std::net::IpAddr;

impl Node {
    /// Gateway: the device of this session is behind this router now, as a registration of Mobile IP says. `false` if the router may not have
    /// its keys.
    pub fn device_is_at(&mut self, now: Instant, sa: SaId, router: &Identity) -> bool {
        let permitted = self.ike.device_is_at(now, sa, router);
        self.drain_ike(now);
        permitted
    }

    /// Access router: header keys are accepted from now on, because something here uses them. A router that repairs nothing refuses them: it
    /// could leak them, and its status would not show them.
    pub fn read_headers(&mut self) {
        self.reads_headers = true;
        self.appoint_router();
    }

    /// What the connections say of this machine as an access router counts if there is something that uses header keys.
    pub(crate) fn appoint_router(&mut self) {
        self.ike.set_router(self.router.clone().filter(|_| self.reads_headers));
    }

    /// Access router: the keys that it has do not do.
    pub(crate) fn header_news(&mut self, now: Instant, news: HeaderNews) {
        self.ike.header_news(now, news);
        self.drain_ike(now);
    }

    /// Access router: it has none for an SA between this gateway and a device, of which the packet that was `seen` has passed. The router where the device was before is
    /// asked first, if that is known: it is the only neighbour, or else a registration named it. Its word that the device has not left it is final, unless the
    /// device is `registered` here. `false` if there is no session to ask by.
    pub fn ask_for_keys(
        &mut self,
        now: Instant,
        gateway: IpAddr,
        seen: Excerpt,
        previous: Option<&Identity>,
        registered: bool,
    ) -> bool {
        // A device may name any router, and must not choose by it who decides.
        let previous = self.ike.only_neighbour().or(previous).cloned();
        let spi = seen.spi();
        let fetched =
            previous.is_some_and(|previous| self.ike.fetch_keys(now, &previous, gateway, seen, registered));
        let asked = fetched || self.ike.ask_for_keys(now, gateway, spi);
        self.drain_ike(now);
        asked
    }

    /// Access router: a device has come here whose keys are here. `false` if its gateway could not be told.
    pub(crate) fn device_came(&mut self, now: Instant, id: GrantId) -> bool {
        let told = self.ike.device_came(now, id);
        self.drain_ike(now);
        told
    }

    /// There are keys to exchange with this peer, and there is no session with it: a connection that is for keys, and for this peer alone, comes
    /// up, unless it was taken down by request.
    pub(crate) fn link_wanted(&mut self, now: Instant, peer: &Identity) {
        let is_for = |client: &&mut Client| {
            let ike = &client.config.ike;
            client.on_demand
                && ike.is_childless()
                && ike.remote_id.exact().is_some_and(|id| id.is_same_as(peer))
        };
        let Some(client) = self.connections.clients_mut().find(is_for) else {
            tracing::debug!(%peer, "no session to exchange keys on, and no connection to make one");
            return;
        };
        if !client.is_wanted() {
            let connection = client.config.name.clone();
            tracing::info!(%peer, connection, "comes up, to exchange header keys");
            self.push(Event::NameNeeded { connection: connection.clone() });
            self.up(now, &connection);
            self.order(Order::FindWays { fresh: false });
        }
    }
}
