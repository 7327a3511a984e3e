//! Copies of what a client sent while it did not know whether its gateway still has the SA: the packets that find out that it has not
//! are lost with it, and are sent again under the SA that comes next.
//!
//! Owns when a copy is made and when it is dropped. A copy is made only while the peer is silent ([`Ladder::unconfirmed`]) or may still refuse the ticket, of single
//! packets and within the bounds of [`HoldQueue`]; it is dropped by the first authentic sign of life, so that nothing is sent twice to a
//! gateway that has it. It goes out again only when the SA has been declared lost: a gateway that crashed between delivering a
//! packet and answering anything at all is the one case in which an application sees one twice, as on any IP network.
//!
//! [`Ladder::unconfirmed`]: crate::ladder::Ladder::unconfirmed
//! [`HoldQueue`]: crate::hold::HoldQueue

use crate::client::Client;
use crate::connections::ConnectionId;
use crate::event::Event;
use crate::node::Node;
use dormouse_sansio::Instant;

impl Client {
    /// A packet is about to be sealed under the SA that serves this client.
    pub(crate) fn copy_unconfirmed(&mut self, now: Instant, packet: &[u8]) {
        if self.ladder.unconfirmed(now) || self.awaits_verdict() {
            let _full = self.resend.push(now, packet);
        }
    }
}

impl Node {
    /// The SA of this connection was declared lost: what may have been lost with it goes out again.
    pub(crate) fn resend_copies(&mut self, now: Instant, id: ConnectionId) {
        let Some(client) = self.connections.client_mut(id) else { return };
        let packets: Vec<Vec<u8>> = client.resend.take_fresh(now).collect();
        if !packets.is_empty() {
            self.push(Event::Resend { packets });
        }
    }
}
