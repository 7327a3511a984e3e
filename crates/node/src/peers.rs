//! What is known of peers and the ways to them besides the sessions: the addresses at which a gateway can be reached too (RFC 4555
//! section 3.4), and errors that come back from the path. Owns neither the choice
//! of an address (the ladder's) nor the way to it (the driver's).

use crate::event::Order;
use crate::node::Node;
use dormouse_esp::pmtu::TooBig;
use dormouse_ike::work::Done;
use dormouse_keying::{Owner, SaId};
use dormouse_sansio::{Instant, Path};
use std::net::{IpAddr, SocketAddr};

impl Node {
    /// Addresses at which the gateway can be reached that has the session of a connection, or had the last one of this run, whatever its name leads to
    /// now. Of an earlier run it is not known that the configuration named the same gateway.
    pub fn gateway_addresses(&self, connection: &str) -> impl Iterator<Item = IpAddr> + use<'_> {
        let client = self.connections.client_named(connection).filter(|c| c.ladder.last_wake().is_some());
        client.into_iter().flat_map(|c| c.ladder.home().iter().copied())
    }

    /// The ways to these other addresses: before [`Node::set_network`], whenever the network or the addresses have changed.
    pub fn set_other_ways(&mut self, connection: &str, paths: Vec<Path>) {
        if let Some(client) = self.connections.client_named_mut(connection) {
            client.ladder.others(paths);
        }
    }

    /// The addresses at which peers anywhere can reach this machine now: a gateway's IKE announces them
    /// ([`dormouse_ike::Endpoint::set_own_addresses`]).
    pub fn set_own_addresses(&mut self, now: Instant, addresses: &[IpAddr]) {
        self.ike.set_own_addresses(now, addresses);
        self.drain_ike(now);
    }

    /// The addresses from which this machine can send now, the preferred one of each family first: for the key manager beside IKE, whose
    /// sessions go on from there.
    /// While the radio sleeps, the last of them are for when it wakes.
    pub fn set_sources(&mut self, now: Instant, addresses: &[IpAddr]) {
        if self.is_suspended() {
            self.beside.sources = Some(addresses.to_vec());
            return;
        }
        if let Some((_, manager)) = &mut self.manager {
            manager.set_addresses(now, addresses);
        }
        self.drain_manager(now);
    }

    /// What became of [`crate::Order::Work`].
    pub fn done(&mut self, now: Instant, sa: SaId, done: Done) {
        self.ike.done(now, sa, done);
        self.drain_ike(now);
    }

    /// What became of [`crate::Order::Fetch`], or why there is nothing.
    pub fn fetched(&mut self, now: Instant, id: u64, content: Result<Vec<u8>, String>) {
        self.ike.fetched(now, id, content);
        self.drain_ike(now);
    }

    /// What an earlier run has written down of [`crate::Store::Revocations`]. False if it is of no use.
    pub fn restore_revocations(&mut self, now: Instant, content: &[u8]) -> bool {
        self.ike.restore_revocations(now, content)
    }

    /// The path to `destination` does not carry an IKE message of so many bytes, and it was not sent.
    pub fn not_sent(&mut self, destination: SocketAddr, bytes: usize) {
        let ike = &self.ike;
        for client in self.connections.clients_mut() {
            let mut paths = client.attempt.into_iter().chain(client.sa).filter_map(|sa| ike.path(sa));
            if paths.any(|path| path.remote == destination) {
                client.too_big = Some(bytes);
            }
        }
    }

    /// An ICMP error says that what was sent to `destination` must not be larger than `claimed` bytes. It is not authenticated: see
    /// [`dormouse_esp::pmtu`] for what is believed.
    pub fn path_error(&mut self, now: Instant, destination: SocketAddr, claimed: u32) {
        for tunnel in self.sad.iter_mut().filter(|t| t.path.remote == destination) {
            let (spi, sent) = (tunnel.outbound.spi(), tunnel.outbound.sequence());
            if let Some(mtu) = tunnel.pmtu.too_big(now, TooBig { claimed, quoted: None }, spi, sent) {
                tracing::info!(%destination, mtu, "the path carries less");
                tunnel.outbound.set_inner_mtu(tunnel.overhead.inner_mtu(mtu.into()));
            }
        }
    }

    /// This machine's kernel says that the interface towards `destination` takes packets of `mtu` bytes: in place of what was assumed of it.
    pub fn link_mtu(&mut self, now: Instant, destination: IpAddr, mtu: u32) {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        for tunnel in self.sad.iter_mut().filter(|t| t.path.remote.ip() == destination) {
            tunnel.pmtu.set_link(&tunnel.path, mtu);
            tunnel.outbound.set_inner_mtu(tunnel.inner_mtu(now));
        }
    }

    /// A client's own addresses are of no use to its gateway: it is the client who moves.
    pub(crate) fn peer_addresses(&mut self, sa: SaId, addresses: Vec<IpAddr>) {
        tracing::debug!(%sa, ?addresses, "additional addresses of the peer");
        let in_use = self.sessions.get(Owner::Ike(sa)).map(|s| s.path.remote.ip());
        let Some(client) = self.client_of(Owner::Ike(sa)) else { return };
        client.ladder.set_home(addresses.into_iter().chain(in_use).collect());
        self.order(Order::FindWays { fresh: false });
    }
}
