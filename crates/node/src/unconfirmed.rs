//! Copies of what a client sent while it did not know whether its gateway still has the SA: the packets that find out that it has not
//! are lost with it, and are sent again under the SA that comes next.
//!
//! Owns when a copy is made and when it is dropped. A copy is made only while the peer is silent ([`Ladder::unconfirmed`]), of single
//! packets and within the bounds of [`Held`]; it is dropped by the first authentic sign of life, so that nothing is sent twice to a
//! gateway that has it. It goes out again only when the SA has been declared lost: a gateway that crashed between delivering a
//! packet and answering anything at all is the one case in which an application sees one twice, as on any IP network.
//!
//! [`Ladder::unconfirmed`]: crate::ladder::Ladder::unconfirmed

use crate::event::Event;
use crate::node::Node;
use dormouse_keying::SaId;
use dormouse_sansio::Instant;

impl Node {
    /// A packet is about to be sealed with child `id`.
    pub(crate) fn copy_unconfirmed(&mut self, now: Instant, id: u64, packet: &[u8]) {
        // A train of segments is its sender's to repeat: it has a session already.
        if packet.len() > usize::from(self.path_mtu) {
            return;
        }
        let Some(sa) = self.known.get(&id).map(|k| k.sa) else { return };
        if let Some(client) = self.client_of(sa)
            && client.ladder.unconfirmed(now)
        {
            let _full = client.unconfirmed.push(now, packet);
        }
    }

    /// The peer of `sa` was heard.
    pub(crate) fn confirm_copies(&mut self, sa: SaId) {
        if let Some(client) = self.client_of(sa) {
            client.unconfirmed.clear();
        }
    }

    /// The SA of this connection was declared lost: what may have been lost with it goes out again.
    pub(crate) fn resend_copies(&mut self, now: Instant, connection: &str) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        let packets: Vec<Vec<u8>> = client.unconfirmed.take_fresh(now).collect();
        if !packets.is_empty() {
            self.push(Event::Resend { packets });
        }
    }
}
