//! The network's NAT.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dormouse_sansio::Instant;

/// A NAT before the client: hides every address of the client behind one, and forgets.
pub struct Nat {
    pub public: IpAddr,
    pub lifetime: Duration,
    next_port: u16,
    /// Inside address, outside port, last used.
    bindings: Vec<(SocketAddr, u16, Instant)>,
}

impl Nat {
    pub fn new(public: &str, lifetime: Duration) -> Self {
        let public = public.parse().expect("an address");
        Self { public, lifetime, next_port: 20_000, bindings: Vec::new() }
    }

    /// Forgets all bindings, as a reboot does.
    pub fn reboot(&mut self) {
        self.bindings.clear();
    }

    pub fn outward(&mut self, now: Instant, from: SocketAddr) -> SocketAddr {
        let lifetime = self.lifetime;
        self.bindings.retain(|(_, _, used)| now - *used < lifetime);
        if let Some(binding) = self.bindings.iter_mut().find(|(inside, _, _)| *inside == from) {
            binding.2 = now;
            return SocketAddr::new(self.public, binding.1);
        }
        self.next_port += 1;
        self.bindings.push((from, self.next_port, now));
        SocketAddr::new(self.public, self.next_port)
    }

    pub fn inward(&mut self, now: Instant, to: SocketAddr) -> Option<SocketAddr> {
        let lifetime = self.lifetime;
        let binding = self
            .bindings
            .iter_mut()
            .find(|(_, port, used)| *port == to.port() && to.ip() == self.public && now - *used < lifetime)?;
        binding.2 = now;
        Some(binding.0)
    }
}
