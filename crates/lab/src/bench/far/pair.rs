//! The two machines as the device sees them: what stands between them, and the measurements over it. Owns the order in which
//! each gets the orders for its part; must never put the far machine's CPU time where the device's belongs.
//!
//! What is reported is the device's: its CPU time is in `cpu_thread` and `cpu_system`, the far machine's in `far_cpu_thread` and
//! `far_cpu_system`. Packets are counted where they arrive.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_io::entropy::OsEntropy;
use dormouse_sansio::Entropy as _;

use super::Far;
use super::side::{Answer, Arrived, Order, Sending, Sent, Side, Tunnel};
use crate::bench::link::Key;
use crate::bench::tls::Tls;
use crate::bench::traffic::{self, Pace, Received};
use crate::bench::transfer::{self, Wanted};
use crate::bench::worker::unexpected;
use crate::campaign::cpu::Cost;
use crate::results::Figures;
use crate::results::esp::{
    Direction, Encapsulation, Engine, FAR_CPU_SYSTEM, FAR_CPU_THREAD, PACKETS_RECEIVED, Point, What,
};

/// The device and the far machine.
#[derive(Debug)]
pub(in crate::bench) struct Pair {
    near: Side,
    far: Far,
}

impl Pair {
    /// This machine and that one.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub(in crate::bench) fn new(far: Far) -> Result<Self> {
        let (own, other) = far.addresses();
        Ok(Self { near: Side::new(0, own, other)?, far })
    }

    /// Takes away what stands on this machine; the far machine's part goes with the next order, or with the connection.
    pub(in crate::bench) fn clear(&mut self) {
        self.near.clear();
    }

    /// Sets up what `key` says between the two, and proves that bytes pass it unchanged both ways.
    ///
    /// # Errors
    /// If one of the machines cannot, or what arrives is not what was sent.
    pub(in crate::bench) fn lay(&mut self, key: &Key) -> Result<()> {
        let tunnel = match key.engine {
            Engine::Plain | Engine::Rustls => None,
            Engine::Dormouse => {
                let mut run = [0; 32];
                OsEntropy.fill(&mut run);
                Some(Tunnel { suite: key.suite.clone(), encapsulation: key.encapsulation, run })
            }
            other => bail!("{other:?} is not measured between two machines"),
        };
        self.near.clear();
        self.far.tell(Order::Lay(tunnel.clone()))?;
        self.near.lay(tunnel.as_ref(), key.hidden).context("on this machine")?;
        let hint = || match (&tunnel, key.encapsulation) {
            (None, _) => "the link passes no bytes: both must let TCP and UDP to ports 7001 and 7002 in",
            (_, Encapsulation::Tunnel | Encapsulation::Transport) => {
                "the tunnel passes no bytes: both must let IP protocol 50 in, and TCP and UDP from dmbench0"
            }
            _ => {
                "the tunnel passes no bytes: both must let UDP to port 4500 in, and TCP and UDP from dmbench0"
            }
        };
        self.near.serve(None)?;
        let far_saw = self.far.tell(Order::Check);
        self.near.close_files();
        far_saw.with_context(hint)?;
        self.serve(None)?;
        self.near.check().with_context(hint)
    }

    /// Lets the far machine serve files; gives what a client needs to know.
    fn serve(&mut self, tls: Option<&str>) -> Result<Option<Tls>> {
        let order = Order::Serve(tls.map(str::to_owned));
        match (self.far.ask(order, Duration::ZERO)?, tls) {
            (Answer::Serving(None), None) => Ok(None),
            (Answer::Serving(Some(certificate)), Some(name)) => Ok(Some(Tls::trusting(name, certificate)?)),
            _ => Err(unexpected()),
        }
    }

    /// One round of the point, over what stands. Where time decides, it takes `time`.
    ///
    /// # Errors
    /// If it fails on either machine; [`super::Lost`] if the far one is gone.
    pub(in crate::bench) fn measure(&mut self, sample: &Point, time: Duration) -> Result<Figures> {
        match sample.what {
            What::Path => {
                let round = self.packets(sample, time, Pace::Window)?;
                // That nothing of a stream arrives is a result; that nothing passes a path is a fault.
                ensure!(round.one(PACKETS_RECEIVED) > Some(0.0), "none of the packets arrived");
                Ok(round)
            }
            What::Stream => self.packets(sample, time, sample.offered.map_or(Pace::Free, Pace::Rate)),
            What::Download | What::Tls => self.files(sample),
            What::Crypto => bail!("cryptography alone needs no link"),
        }
    }

    /// UDP one way: from the device where the sample's direction is out, else to it.
    fn packets(&mut self, sample: &Point, time: Duration, pace: Pace) -> Result<Figures> {
        let run = u32::try_from(traffic::next_run())?;
        let bytes = u32::try_from(traffic::payload_len(sample, self.near.addresses().1)?)?;
        let sending = Sending { run, bytes, pace, time };
        let acknowledge = pace == Pace::Window;
        let inbound = sample.direction == Direction::In;
        let (sent, arrived) = if inbound {
            self.near.receive(run, bytes, acknowledge)?;
            let Answer::Sent(sent) = self.far.ask(Order::Send(sending), time)? else {
                return Err(unexpected());
            };
            (sent, self.near.received(sent.packets)?)
        } else {
            self.far.tell(Order::Receive { run, bytes, acknowledge })?;
            let sent = self.near.send(&sending, &AtomicBool::new(false))?;
            let Answer::Arrived(arrived) = self.far.ask(Order::Received(sent.packets), Duration::ZERO)?
            else {
                return Err(unexpected());
            };
            (sent, arrived)
        };
        one_way(sample, &sent, &arrived, inbound)
    }

    fn files(&mut self, sample: &Point) -> Result<Figures> {
        let file = sample.file_bytes.context("a download without a file")?;
        let in_tls = sample.what == What::Tls;
        let tls = self.serve(in_tls.then_some(sample.suite.as_str()))?;
        let packets = (!in_tls).then_some(sample.packet_bytes);
        let own = Some(self.near.addresses().0);
        let wanted = Wanted { from: self.near.peer_files(), own, file, tls, packets };
        wanted.warm_up()?;
        self.far.tell(Order::Open)?;
        let account = self.near.account()?;
        let files = wanted.fetch_for_a_round()?;
        let cost = self.near.spent(&account)?;
        let Answer::Spent(far) = self.far.ask(Order::Close, Duration::ZERO)? else {
            return Err(unexpected());
        };
        let round = transfer::round(&cost, file, files);
        Ok(with_far(round, &far, file as f64 * f64::from(files)))
    }
}

/// The figures of packets that went one way. The machines' clocks have nothing to do with each other: what takes time is the
/// longer of sending and of arriving, each by its own clock.
fn one_way(sample: &Point, sent: &Sent, arrived: &Arrived, inbound: bool) -> Result<Figures> {
    let (device, far) = if inbound { (&arrived.cost, &sent.cost) } else { (&sent.cost, &arrived.cost) };
    let elapsed = Duration::try_from_secs_f64(sent.span.max(arrived.span)).context("how long it took")?;
    let received = Received { packets: arrived.packets, jitter: arrived.jitter, ..Received::default() };
    let round = traffic::round(sample, elapsed, device, sent.packets, received);
    let bytes = arrived.packets.min(sent.packets) as f64 * f64::from(sample.packet_bytes);
    Ok(with_far(round, far, bytes))
}

/// The round with the far machine's CPU time for each byte.
fn with_far(round: Figures, cost: &Cost, bytes: f64) -> Figures {
    let per_byte = |seconds: f64| (bytes > 0.0).then_some(seconds * 1e9 / bytes);
    round.with(FAR_CPU_THREAD, per_byte(cost.threads)).with(FAR_CPU_SYSTEM, cost.system.and_then(per_byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::esp::{CPU_SYSTEM, CPU_THREAD, ELAPSED, JITTER, LOSS, THROUGHPUT};

    #[test]
    fn the_device_s_cpu_time_is_kept_apart_from_the_far_machine_s() {
        let cost = |threads, system| Cost { elapsed: 2.0, threads, system };
        let sent = Sent { packets: 100, span: 1.0, cost: cost(0.2, Some(0.1)) };
        let arrived = Arrived { packets: 50, jitter: 0.001, span: 2.0, cost: cost(0.4, None) };
        let sample = Point::new(What::Path, "none", 1_000, 1);
        let out = one_way(&sample, &sent, &arrived, false).unwrap();
        assert_eq!((out.one(CPU_THREAD), out.one(CPU_SYSTEM)), (Some(4_000.0), Some(2_000.0)));
        assert_eq!((out.one(FAR_CPU_THREAD), out.one(FAR_CPU_SYSTEM)), (Some(8_000.0), None));
        assert_eq!((out.one(ELAPSED), out.one(LOSS), out.one(JITTER)), (Some(2.0), Some(0.5), Some(0.001)));
        assert_eq!(out.one(THROUGHPUT), Some(25_000.0));
        let inbound = one_way(&sample, &sent, &arrived, true).unwrap();
        assert_eq!((inbound.one(CPU_THREAD), inbound.one(FAR_CPU_THREAD)), (Some(8_000.0), Some(4_000.0)));
    }

    #[test]
    fn nonsense_from_the_far_machine_is_no_figure() {
        let cost = Cost { elapsed: 1.0, threads: 0.0, system: None };
        let sent = Sent { packets: 1, span: f64::NAN, cost };
        let arrived = Arrived { packets: 9, jitter: 0.0, span: -1.0, cost };
        let sample = Point::new(What::Path, "none", 1_000, 1);
        assert!(one_way(&sample, &sent, &arrived, false).is_err());
        let more = one_way(&sample, &Sent { span: 1.0, ..sent }, &arrived, false).unwrap();
        assert_eq!(more.one(PACKETS_RECEIVED), Some(1.0), "no more arrive than were sent");
    }
}
