//! What the access router ([`super::router`]) asks of the key managers and gets from them; and, for the simulator alone, a router whose
//! [`Agent`] sees datagrams that are not the host's own instead of whole packets ([`Host::handle_packet`]): a test looks into headers, changes
//! them and hoards keys by it. Without an agent datagrams go on at once, unchanged.

use super::Host;
use super::router::Router;
use dormouse_crypto::cert::Identity;
use dormouse_keying::{GrantId, HeaderNews, HeaderOrder};
use dormouse_sansio::{Deadline, Instant, Path};
use dormouse_wire::ike::mlike::Excerpt;
use std::collections::VecDeque;
use std::net::IpAddr;

/// What sees the datagrams that a router passes on, by the verbs that every core shares.
pub trait Agent: std::fmt::Debug + Send {
    /// A datagram on its way from `path.local` to `path.remote`. What goes on, now or later, comes out of
    /// [`Agent::poll_transmit`].
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: Vec<u8>);

    /// Acts on what is due.
    fn handle_timeout(&mut self, now: Instant);

    /// The next datagram that goes on, or back.
    fn poll_transmit(&mut self) -> Option<(Path, Vec<u8>)>;

    /// When [`Agent::handle_timeout`] is wanted.
    fn poll_timeout(&self) -> Option<Deadline>;

    /// Every timer that runs, for people; [`Agent::poll_timeout`] is the first of them.
    fn timers(&self) -> Vec<Deadline> {
        self.poll_timeout().into_iter().collect()
    }

    /// Access router: whether it reads headers. If not, the machine takes no keys for it.
    fn reads_headers(&self) -> bool {
        false
    }

    /// Access router: what headers can be read with, from now on or no longer.
    fn obey(&mut self, _order: &HeaderOrder) {}

    /// What the key manager should do about these keys, oldest first.
    fn poll_wish(&mut self) -> Option<Wish> {
        None
    }
}

/// What an agent that reads headers wants of the key manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
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

/// The datagrams in transit.
#[derive(Debug, Default)]
pub(super) struct Transit {
    agent: Option<Box<dyn Agent>>,
    /// Without an agent: what goes on.
    passing: VecDeque<(Path, Vec<u8>)>,
    /// The access router that this machine is.
    pub(super) router: Option<Router>,
}

impl Transit {
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(agent) = &mut self.agent {
            agent.handle_timeout(now);
        }
        if let Some(router) = &mut self.router {
            router.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        let agent = self.agent.as_ref().and_then(|a| a.poll_timeout());
        Deadline::earlier(agent, self.router.as_ref().and_then(Router::poll_timeout))
    }

    pub(super) fn timers(&self) -> impl Iterator<Item = Deadline> {
        let agent = self.agent.iter().flat_map(|agent| agent.timers());
        agent.chain(self.router.iter().flat_map(Router::timers))
    }

    /// False if neither a router nor an agent is there that takes header keys.
    pub(super) fn obey(&mut self, order: &HeaderOrder) -> bool {
        if let Some(agent) = &mut self.agent {
            agent.obey(order);
        }
        if let Some(router) = &mut self.router {
            router.obey(order);
        }
        self.agent.is_some() || self.router.is_some()
    }

    fn poll_wish(&mut self) -> Option<Wish> {
        let agent = self.agent.as_mut().and_then(|agent| agent.poll_wish());
        agent.or_else(|| self.router.as_mut()?.poll_wish())
    }

    pub(super) fn poll_transmit(&mut self) -> Option<(Path, Vec<u8>)> {
        self.passing.pop_front().or_else(|| self.agent.as_mut()?.poll_transmit())
    }
}

impl Host {
    /// From now on datagrams in transit pass `agent`.
    pub fn set_agent(&mut self, agent: Box<dyn Agent>) {
        if agent.reads_headers() {
            self.node.read_headers();
        }
        self.transit.agent = Some(agent);
    }

    /// A datagram came in that is on its way from `path.local` to `path.remote`, neither of which is this host.
    pub fn handle_transit(&mut self, now: Instant, path: Path, datagram: Vec<u8>) {
        match &mut self.transit.agent {
            Some(agent) => agent.handle_datagram(now, path, datagram),
            None => self.transit.passing.push_back((path, datagram)),
        }
        self.grant_wishes(now);
    }

    /// The agent asks for keys: the key manager asks their gateway, if there is a session with it.
    pub(super) fn grant_wishes(&mut self, now: Instant) {
        while let Some(wish) = self.transit.poll_wish() {
            match wish {
                Wish::Other(news) => self.node.header_news(now, news),
                Wish::Missing { gateway, spi, seen, previous, registered } => {
                    let previous = previous.as_ref();
                    if !self.node.ask_for_keys(now, gateway, seen, previous, registered)
                        && let Some(router) = &mut self.transit.router
                    {
                        router.not_asked(gateway, spi);
                    }
                }
                Wish::Came { device, id } => {
                    if self.node.device_came(now, id)
                        && let Some(router) = &mut self.transit.router
                    {
                        router.told(device, id);
                    }
                }
            }
        }
    }
}
