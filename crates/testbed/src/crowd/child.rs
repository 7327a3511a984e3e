//! One client's CHILD SA, as far as a crowd needs it: pings through the tunnel and their answers. Owns both directions of ESP; a
//! ping that is answered shows that both ends have the same keys in both directions.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use dormouse_esp::{IPV4_IN_IP, Inbound, Outbound, SaParams};
use dormouse_ike::Mark;
use dormouse_keying::Install;
use dormouse_sansio::Entropy;
use dormouse_wire::ip::icmp::Echo;

/// Room for trailer and ICV of any suite.
const ROOM: usize = 128;

/// Both directions of ESP of one client.
pub(super) struct Child {
    inbound: Inbound,
    outbound: Outbound,
}

impl Child {
    pub(super) fn new(install: &Install, entropy: &mut dyn Entropy) -> Result<Self> {
        let params = |spi, keymat: &dormouse_crypto::Secret| SaParams {
            esn: install.esn,
            ..SaParams::new(spi, install.encr, install.integ, keymat.clone())
        };
        let inbound = Inbound::new(&params(install.child.spi(), &install.keymat_in))?;
        let outbound = Outbound::new(&params(install.spi_out, &install.keymat_out), entropy)?;
        Ok(Self { inbound, outbound })
    }

    /// Seals a ping.
    pub(super) fn ping(&mut self, from: Ipv4Addr, to: Ipv4Addr, id: u16, sequence: u16) -> Result<Vec<u8>> {
        let mut packet = Vec::new();
        let (src, dst) = (IpAddr::V4(from), IpAddr::V4(to));
        Echo { src, dst, reply: false, id, sequence, payload: &[0x64; 56] }.build(&mut packet)?;
        let head = self.outbound.head_len();
        let mut slot = vec![0; head + packet.len() + ROOM];
        slot.get_mut(head..head + packet.len()).context("no room")?.copy_from_slice(&packet);
        let length = self.outbound.seal(&mut slot, packet.len(), IPV4_IN_IP)?;
        slot.truncate(length);
        Ok(slot)
    }

    /// Opens an ESP packet; id and sequence number of the ping that it answers, if it does.
    pub(super) fn answer(&mut self, datagram: &mut [u8]) -> Option<(u16, u16)> {
        let opened = self.inbound.open(datagram).ok()?;
        let echo = Echo::parse(datagram.get(opened.inner)?)?;
        echo.reply.then_some((echo.id, echo.sequence))
    }

    /// How far what is sent has come.
    pub(super) fn mark(&self) -> Mark {
        Mark { spi: self.outbound.spi(), sequence: self.outbound.sequence() }
    }
}
