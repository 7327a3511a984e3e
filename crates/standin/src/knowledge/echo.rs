//! Whether a device answers pings, as it was seen to do. Owns that for each family; must never take one family's manners for the
//! other's.

use dormouse_wire::ip::icmp::Echo;

use crate::limits::PINGS_UNANSWERED;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Pinged {
    v4: Manner,
    v6: Manner,
}

#[derive(Clone, Copy, Debug, Default)]
enum Manner {
    #[default]
    NeverSeen,
    /// It has answered, and since then not answered so many.
    Answers { missed: u8 },
}

impl Pinged {
    /// A packet of the device.
    pub(crate) fn observe_inbound(&mut self, packet: &[u8]) {
        if let Some(echo) = Echo::parse(packet).filter(|echo| echo.reply) {
            *self.of(echo.src.is_ipv6()) = Manner::Answers { missed: 0 };
        }
    }

    /// A packet to the device, which is awake: it may have become silent.
    pub(crate) fn observe_outbound(&mut self, packet: &[u8]) {
        let Some(echo) = Echo::parse(packet).filter(|echo| !echo.reply) else { return };
        let manner = self.of(echo.dst.is_ipv6());
        *manner = match *manner {
            Manner::Answers { missed } if missed < PINGS_UNANSWERED => Manner::Answers { missed: missed + 1 },
            Manner::Answers { .. } | Manner::NeverSeen => Manner::NeverSeen,
        };
    }

    fn of(&mut self, v6: bool) -> &mut Manner {
        if v6 { &mut self.v6 } else { &mut self.v4 }
    }

    pub(crate) fn answers(&self, v6: bool) -> bool {
        matches!(if v6 { self.v6 } else { self.v4 }, Manner::Answers { .. })
    }
}
