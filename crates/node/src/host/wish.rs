//! What the access router ([`super::router`]) asks of the key managers, and gets from them. Owns the form of these questions; must never decide who gets keys.

use super::Host;
use dormouse_crypto::cert::Identity;
use dormouse_keying::{GrantId, HeaderNews};
use dormouse_sansio::Instant;
use dormouse_wire::ike::mlike::Excerpt;
use std::net::IpAddr;

/// What an access router wants of the key manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// Other keys in the place of those that it has.
    Other(HeaderNews),
    /// Keys for an SA between this gateway and a device, of which it has none. Better not for each packet.
    Missing {
        /// The gateway's outer address.
        gateway: IpAddr,
        /// The SPI of either direction.
        spi: u32,
        /// What is shown of a packet with this SPI: the router before may not have seen it.
        seen: Excerpt,
        /// The router where the device was before, if that is known.
        previous: Option<Identity>,
        /// The device is registered here: the gateway may be asked also if that router says that the device has not left it.
        registered: bool,
    },
    /// A device has come whose keys were here before: the gateway is to know.
    Came {
        /// The device's outer address.
        device: IpAddr,
        /// The keys.
        id: GrantId,
    },
}

impl Host {
    /// The access router asks for keys: the key manager asks their gateway, if there is a session with it.
    pub(super) fn grant_wishes(&mut self, now: Instant) {
        let Some(router) = &mut self.router else { return };
        while let Some(wish) = router.poll_wish() {
            match wish {
                Wish::Other(news) => self.node.header_news(now, news),
                Wish::Missing { gateway, spi, seen, previous, registered } => {
                    if !self.node.ask_for_keys(now, gateway, seen, previous.as_ref(), registered) {
                        router.not_asked(gateway, spi);
                    }
                }
                Wish::Came { device, id } => {
                    if self.node.device_came(now, id) {
                        router.told(device, id);
                    }
                }
            }
        }
    }
}
