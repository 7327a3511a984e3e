//! How the daemon does what its host wants, in the order that [`dormouse_node::host::carry_out_all`] and [`dormouse_node::host::forward`] keep. Owns nothing.

use crate::daemon::Daemon;
use anyhow::Result;
use dormouse_node::host::{Driver, Host, Output};
use dormouse_sansio::Instant;
use std::io::IoSlice;

impl Driver for Daemon {
    type Error = anyhow::Error;

    fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    fn carry_out(&mut self, now: Instant, output: Output, bytes: &mut Vec<u8>) {
        match output {
            Output::Datagram(datagram) => {
                if let Err(why) = self.wires.send(&datagram, bytes) {
                    self.host.not_sent(now, why);
                }
            }
            Output::Inner(_) => {
                // Lost if the TUN's queue is full, as on any network.
                let _lost = self.wires.tun.write(&[IoSlice::new(bytes)]);
            }
            Output::Transit(to) => {
                if let Some(transit) = &self.transit {
                    transit.send(to, bytes);
                }
            }
            Output::Order(order) => self.obey(now, order),
            Output::News(news) => self.tell(news),
        }
    }

    fn forward(&mut self, now: Instant) -> Result<()> {
        self.forward_packets(now)
    }

    fn is_beginning(&self) -> bool {
        self.wires.engine.is_beginning()
    }

    fn drain(&mut self, now: Instant) {
        self.drain_wires(now);
    }

    fn begin(&mut self, _now: Instant) {
        self.wires.engine.begin_loans();
    }
}
