//! A router in transit: datagrams that are not the host's own pass an [`Agent`], which may look at them, delay, repeat or drop them,
//! and go on. Owns the seam; what an agent does is its own affair (a TCP agent beside a bad radio link, a foreign agent of Mobile IP).
//! Without an agent everything goes on at once, unchanged.

use super::Host;
use dormouse_sansio::{Deadline, Instant, Path};
use std::collections::VecDeque;

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
}

/// The datagrams in transit.
#[derive(Debug, Default)]
pub(super) struct Transit {
    agent: Option<Box<dyn Agent>>,
    /// Without an agent: what goes on.
    passing: VecDeque<(Path, Vec<u8>)>,
}

impl Transit {
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(agent) = &mut self.agent {
            agent.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        self.agent.as_ref().and_then(|a| a.poll_timeout())
    }

    pub(super) fn poll_transmit(&mut self) -> Option<(Path, Vec<u8>)> {
        self.passing.pop_front().or_else(|| self.agent.as_mut()?.poll_transmit())
    }
}

impl Host {
    /// From now on datagrams in transit pass `agent`.
    pub fn set_agent(&mut self, agent: Box<dyn Agent>) {
        self.transit.agent = Some(agent);
    }

    /// A datagram came in that is on its way from `path.local` to `path.remote`, neither of which is this host.
    pub fn handle_transit(&mut self, now: Instant, path: Path, datagram: Vec<u8>) {
        match &mut self.transit.agent {
            Some(agent) => agent.handle_datagram(now, path, datagram),
            None => self.transit.passing.push_back((path, datagram)),
        }
    }
}
