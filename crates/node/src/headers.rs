//! Keys of headers (`docs/wire/mlike.md`), as far as the machine beside IKE has a part in them: where devices are, and what a router's data
//! plane says. Owns no state; who may have which keys is decided by [`dormouse_ike`].

use crate::node::Node;
use dormouse_crypto::cert::Identity;
use dormouse_keying::{HeaderNews, SaId};
use dormouse_sansio::Instant;
use std::net::IpAddr;

impl Node {
    /// Gateway: the device of this session is behind this router now, as a registration of Mobile IP says. `false` if the router may not have
    /// its keys.
    pub fn device_is_at(&mut self, now: Instant, sa: SaId, router: &Identity) -> bool {
        let permitted = self.ike.device_is_at(now, sa, router);
        self.drain_ike(now);
        permitted
    }

    /// Access router: a device has come here from the router `previous`: its keys are asked for there, and of its gateway otherwise. `false`
    /// if there is no session with that router now.
    pub fn fetch_keys(&mut self, now: Instant, previous: &Identity, gateway: IpAddr, spi: u32) -> bool {
        let asked = self.ike.fetch_keys(now, previous, gateway, spi);
        self.drain_ike(now);
        asked
    }

    /// Access router: the keys that it has do not do.
    pub(crate) fn header_news(&mut self, now: Instant, news: HeaderNews) {
        self.ike.header_news(now, news);
        self.drain_ike(now);
    }

    /// Access router: it has none for an SA between this gateway and a device. A router with one neighbour asks there first; one with several
    /// cannot know where the device was before. `false` if there is no session to ask by.
    pub(crate) fn ask_for_keys(&mut self, now: Instant, gateway: IpAddr, spi: u32) -> bool {
        let asked = match self.ike.only_neighbour().cloned() {
            Some(previous) => self.ike.fetch_keys(now, &previous, gateway, spi),
            None => self.ike.ask_for_keys(now, gateway, spi),
        };
        self.drain_ike(now);
        asked
    }
}
