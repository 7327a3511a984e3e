//! The data path of the daemon: what happens to packets when the TUN or a socket is ready, when held packets may go, and when a
//! device is back.
//!
//! Owns the wires (TUN, sockets, their buffers) and the order of reading and writing them. It decides nothing: the [`Plane`]
//! asks the node about every packet.

use crate::daemon::{Daemon, TUN, UDP};
use crate::plane::{Kept, Plane, Release};
use anyhow::{Context, Result};
use dormouse_control::Offload;
use dormouse_io::batch::{Carriers, RxBatch, TxBatch};
use dormouse_io::poller::Interest;
use dormouse_io::tun::Tun;
use dormouse_io::udp::{PathErrorKind, Sent};
use dormouse_sansio::Instant;
use std::io::IoSlice;

/// The tunnel interface is switched off.
const EIO: i32 = 5;
/// Super-packets taken from the TUN before sockets get their turn.
const BUDGET: usize = 64;
/// Receptions from one socket before the TUN and the timers get their turn.
const ROUNDS: usize = 8;
/// Bytes received from one socket before they do. The acknowledgements of what was just written wait in the TUN: whoever drains
/// the socket of a whole window first lets the sender stand still meanwhile, and then has nothing to do until it has sent the
/// next one.
const SHARE: usize = 256 << 10;

/// What carries packets on both sides.
pub(crate) struct Wires {
    pub(crate) tun: Tun,
    pub(crate) tun_mtu: u16,
    pub(crate) carriers: Carriers,
    tx: TxBatch,
    rx: RxBatch,
    /// A full socket holds the TUN back: its queue is where packets wait.
    blocked: bool,
}

impl Wires {
    pub(crate) fn new(tun: Tun, tun_mtu: u16, carriers: Carriers) -> Self {
        Self { tun, tun_mtu, carriers, tx: TxBatch::new(), rx: RxBatch::new(), blocked: false }
    }

    /// The socket that held the TUN back has room again.
    pub(crate) fn may_go_on(&self) -> bool {
        self.blocked && !self.tx.is_blocked()
    }
}

impl Daemon {
    /// Offloads in use, for `status`.
    pub(crate) fn offloads(&self) -> Vec<Offload> {
        let o = self.wires.tun.offloads();
        let off = |name: &str, active: bool| Offload {
            name: name.into(),
            active,
            why: (!active).then(|| {
                if self.settings.offload {
                    "refused by the kernel".into()
                } else {
                    "daemon.offload = false".into()
                }
            }),
        };
        vec![
            off("tun-tso", o.vnet),
            off("tun-uso", o.uso),
            off("tun-join-tcp", o.join_tcp),
            off("tun-join-udp", o.join_udp),
        ]
    }

    /// The wires, and who decides about what comes over them.
    fn split(&mut self, now: Instant) -> (&mut Wires, Plane<'_>) {
        let plane = Plane {
            node: &mut self.node,
            now,
            held: &mut self.held,
            sleep: self.sleep.as_mut(),
            counters: &mut self.counters,
            early: &mut self.early,
            inner: &self.inner,
        };
        (&mut self.wires, plane)
    }

    /// As [`Self::split`], for packets that the sleeper must not see.
    fn split_unseen(&mut self, now: Instant) -> (&mut Wires, Plane<'_>) {
        let (wires, plane) = self.split(now);
        (wires, Plane { sleep: None, ..plane })
    }

    pub(crate) fn receive(&mut self, now: Instant, index: usize) -> Result<()> {
        let (wires, mut plane) = self.split(now);
        let Some(socket) = wires.carriers.udp.get(index) else { return Ok(()) };
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            let progress = wires.rx.receive(socket, &mut wires.tun, &mut plane)?;
            bytes += progress.bytes;
            if !progress.more || bytes >= SHARE {
                break;
            }
        }
        while let Ok(Some(error)) = socket.next_error() {
            tracing::debug!(?error, "ICMP");
            plane.node.path_error(now, error.destination, too_big(error.kind));
        }
        Ok(())
    }

    pub(crate) fn receive_raw(&mut self, now: Instant, index: usize) -> Result<()> {
        let (wires, mut plane) = self.split(now);
        let Some(socket) = wires.carriers.raw.get(index) else { return Ok(()) };
        wires.rx.receive_raw(socket, &mut wires.tun, &mut plane)?;
        while let Ok(Some(error)) = socket.next_error() {
            plane.node.path_error(now, error.destination, too_big(error.kind));
        }
        Ok(())
    }

    /// From the TUN to the sockets.
    pub(crate) fn forward(&mut self, now: Instant) -> Result<()> {
        let (wires, mut plane) = self.split(now);
        match wires.tx.forward(&mut wires.tun, &mut wires.carriers, &mut plane, BUDGET) {
            Ok(_) => {}
            // The interface was switched off by somebody: what it carried is gone, the daemon is not.
            Err(e) if e.raw_os_error() == Some(EIO) => {}
            Err(e) => return Err(e).context("reading the tunnel interface"),
        }
        let blocked = wires.tx.is_blocked();
        if blocked != wires.blocked {
            wires.blocked = blocked;
            let (tun, udp) =
                if blocked { (Interest::NONE, Interest::BOTH) } else { (Interest::READ, Interest::READ) };
            self.poller.modify(&self.wires.tun, TUN, tun)?;
            for (i, socket) in self.wires.carriers.udp.iter().enumerate() {
                self.poller.modify(socket, UDP + i as u64, udp)?;
            }
        }
        Ok(())
    }

    /// Sends what was held, in order. The sleeper has seen it when it came.
    pub(crate) fn release(&mut self, now: Instant) {
        let mut out = Vec::new();
        for packet in self.held.take() {
            let (wires, mut plane) = self.split_unseen(now);
            let kept = match plane.seal_one(&packet, &mut out) {
                Release::Send(path) => {
                    !matches!(wires.carriers.send(&path, 0, &out, None), Sent::All | Sent::TooBig)
                }
                Release::Hold => true,
                Release::Drop => false,
            };
            if kept {
                self.counters.held_dropped += self.held.push(now, &packet);
            }
        }
    }

    /// What waited for a route or for devices that are back, in order; and what their stand-in has to say to the network on our side.
    pub(crate) fn deliver(&mut self, now: Instant) {
        let mut out = Vec::new();
        while self.node.poll_stand_in(&mut out) {
            // Lost if the TUN's queue is full, as on any network.
            let _lost = self.wires.tun.write(&[IoSlice::new(&out)]);
            out.clear();
        }
        for packet in self.early.drain(..) {
            let _lost = self.wires.tun.write(&[IoSlice::new(&packet)]);
        }
        for mut packet in std::mem::take(&mut self.kept) {
            // What others send to a device is no traffic of ours.
            let (wires, mut plane) = self.split_unseen(now);
            match plane.seal_kept(&mut packet, &mut out) {
                Kept::Send(path) => {
                    let _lost = wires.carriers.send(&path, 0, &out, None);
                }
                Kept::Answer(answer) => {
                    let _lost = wires.tun.write(&[IoSlice::new(&answer)]);
                }
                Kept::Again => {}
                Kept::Lost => self.counters.no_policy += 1,
            }
        }
    }
}

fn too_big(kind: PathErrorKind) -> Option<u32> {
    match kind {
        PathErrorKind::TooBig(mtu) => Some(mtu),
        _ => None,
    }
}
