//! What a device knows of a packet without looking into it. Owns the side information; must never hold addresses or payload.

/// Which way a packet went, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Direction {
    /// The client sent it: a reason to wake the radio.
    Outgoing,
    /// The client received it: lost, delayed or answered by a proxy if the radio is off.
    Incoming,
    /// The recording does not say. Counted as outgoing, because losing a packet must not look free.
    #[default]
    Unknown,
}

/// Which packets wake a sleeping radio.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WakeOn {
    /// Every packet, as if a second radio announced those that arrive. Nothing is ever lost.
    #[default]
    All,
    /// Only packets that the client sends. Those that arrive meanwhile are lost, or answered by proxy.
    Outgoing,
}

/// Side information about one packet. `PacketInfo::default()` is a packet of which only the time is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketInfo {
    /// Which way it went.
    pub direction: Direction,
    /// IP protocol number (0 to 255); for other frames the ethertype (from 0x600 on); 0 if unknown.
    pub protocol: u16,
    /// Port of the client's own end; 0 if there is none or it is unknown.
    pub local_port: u16,
    /// Port of the other end; 0 if there is none or it is unknown.
    pub remote_port: u16,
    /// Bytes on the wire; 0 if unknown.
    pub size: u32,
    /// Seconds since local midnight (0 to 86,399), where the device knows the time of day.
    pub time_of_day: Option<u32>,
}

impl PacketInfo {
    /// The port that names the service: the lower of the two known ports, 0 if neither is known.
    #[must_use]
    pub fn service_port(&self) -> u16 {
        match (self.local_port, self.remote_port) {
            (0, p) | (p, 0) => p,
            (a, b) => a.min(b),
        }
    }

    /// A small number for "packets of this kind": direction, protocol, service and order of magnitude of the size.
    /// Equal kinds give equal numbers; different kinds collide with probability 2^-16.
    #[must_use]
    pub fn class(&self) -> u16 {
        let size = u64::from(u32::BITS - self.size.leading_zeros());
        let direction = match self.direction {
            Direction::Incoming => 1,
            Direction::Outgoing | Direction::Unknown => 0,
        };
        let key =
            u64::from(self.protocol) << 32 | u64::from(self.service_port()) << 16 | size << 1 | direction;
        u16::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48).unwrap_or(0)
    }

    /// Whether this packet must wake a sleeping radio under [`WakeOn::Outgoing`].
    #[must_use]
    pub fn is_outgoing(&self) -> bool {
        self.direction != Direction::Incoming
    }
}
