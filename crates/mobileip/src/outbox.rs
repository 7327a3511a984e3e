//! Packets that wait to be sent, and who was told something lately. Owns both bounds.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use dormouse_sansio::Instant;
use dormouse_wire::ip::icmp::Echo;
use dormouse_wire::ip::{set_hop_limit, udp};

use crate::limits::{MAX_OUTBOX, MAX_PACED, PACE};
use crate::{Discard, Side};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox(VecDeque<(Side, Vec<u8>)>);

impl Outbox {
    pub(crate) fn push(&mut self, to: Side, packet: Vec<u8>) {
        if self.0.len() < MAX_OUTBOX {
            self.0.push_back((to, packet));
        }
    }

    /// A registration message in a packet of its own.
    pub(crate) fn message(&mut self, side: Side, ttl: u8, from: SocketAddr, to: SocketAddr, message: &[u8]) {
        let mut packet = Vec::new();
        // Messages are far shorter than a packet, and both addresses are IPv4.
        if udp::build(from, to, message, &mut packet).is_ok() {
            set_hop_limit(&mut packet, ttl);
            self.push(side, packet);
        }
    }

    /// The answer to a ping, if the packet is one to this address.
    pub(crate) fn pong(&mut self, side: Side, own: Ipv4Addr, packet: &[u8]) -> Result<(), Discard> {
        let asked = Echo::parse(packet).filter(|echo| !echo.reply && echo.dst == own);
        let mut answer = Vec::new();
        asked.ok_or(Discard::NotForUs)?.answer().build(&mut answer)?;
        self.push(side, answer);
        Ok(())
    }

    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<Side> {
        let (side, packet) = self.0.pop_front()?;
        out.extend_from_slice(&packet);
        Some(side)
    }

    /// What was for the link is for another link.
    pub(crate) fn forget_link(&mut self) {
        self.0.retain(|(side, _)| *side == Side::Routed);
    }
}

/// At most one of something a second to each host.
#[derive(Debug, Default)]
pub(crate) struct Pace(BTreeMap<Ipv4Addr, Instant>);

impl Pace {
    /// Whether it may be done to this host now; if so, it is.
    pub(crate) fn admits(&mut self, now: Instant, host: Ipv4Addr) -> bool {
        self.0.retain(|_, at| now < *at + PACE);
        let admits = self.0.len() < MAX_PACED && !self.0.contains_key(&host);
        if admits {
            self.0.insert(host, now);
        }
        admits
    }
}
