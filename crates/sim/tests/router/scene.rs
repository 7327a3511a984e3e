//! A device behind three access routers that ship, each with a radio that loses packets. Owns what happens in such a world, and when; what must be
//! true after it stands in [`crate::laws`].

use crate::air::Air;
use crate::zoned::{
    Configuration, Drawn, Keys, Machines, ROUTERS, SECRET, SERVER, address, numbered, router_file, set_signal,
};
use dormouse_netem::LinkConfig;
use dormouse_node::config::access_router::{Repair, Router};
use dormouse_node::host::{RouterInfo, Side};
use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_sim::{MachineId, Moment, NetworkId, Topology};
use dormouse_wire::ip::{Ipv4Header, protocol, udp};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Time between two packets of one direction.
pub(crate) const PACE: Duration = Duration::from_millis(10);
/// Of the radio, in bits in a second.
const RATE: u32 = 2_000_000;
/// Over the radio.
pub(crate) const RADIO: Duration = Duration::from_millis(2);

pub(crate) fn radio(bit_error_rate: f64) -> LinkConfig {
    LinkConfig { rate: Some(RATE.into()), delay: RADIO, bit_error_rate, ..LinkConfig::default() }
}

/// The longest that a packet is on its way.
pub(crate) const UNDER_WAY: Duration = Duration::from_millis(100);
/// Until the gateway knows where the device is.
const MOVING: Duration = Duration::from_millis(200);

/// Numbered packets of one direction.
#[derive(Default)]
pub(crate) struct Numbered {
    /// When each was sent, by its number.
    pub(crate) sent: Vec<Instant>,
    /// In the order in which they arrived.
    pub(crate) arrived: Vec<(u64, Instant)>,
}

/// See the module.
pub(crate) struct Scene {
    pub(crate) net: Topology,
    pub(crate) device: MachineId,
    pub(crate) gateway: MachineId,
    pub(crate) routers: Vec<MachineId>,
    pub(crate) networks: Vec<NetworkId>,
    pub(crate) air: Arc<Mutex<Air>>,
    pub(crate) to_device: Numbered,
    pub(crate) to_gateway: Numbered,
    /// When something happened that ends a repair: a router died, or came back, the device moved, its signal changed, its router lost keys. These may come and go for
    /// a moment: where keys move, a router says by asking for them that the device is there.
    pub(crate) troubles: Vec<Instant>,
    /// Times in which packets may be lost for other reasons than the radio's errors.
    pub(crate) losses: Vec<(Instant, Instant)>,
    keys: Keys,
    repair: Repair,
    /// Where the device is.
    pub(crate) at: usize,
    /// Since when.
    pub(crate) entered: Instant,
    /// Reports that counted, and packets that were repeated, at processes of routers that have ended.
    past: (u64, u64),
}

impl Scene {
    /// The device is at the first router, and its session is up; ESP is in UDP under every other seed. `asks`: routers ask their gateway for keys.
    pub(crate) fn new(seed: u64, keys: Keys, repair: Repair, bit_errors: f64, asks: bool) -> Self {
        Self::drawn(seed, keys, repair, bit_errors, asks, Drawn::PLAIN)
    }

    /// The same, with other zones.
    pub(crate) fn drawn(
        seed: u64,
        keys: Keys,
        repair: Repair,
        bit_errors: f64,
        asks: bool,
        drawn: Drawn,
    ) -> Self {
        let (reports, bare) = (repair == Repair::EspArq, seed.is_multiple_of(2));
        let configuration = Configuration { keys, most_routers: 8, reports, bare, drawn };
        let Machines { mut net, device, gateway, routers, networks } = Machines::new(seed, &configuration);
        let air = Arc::new(Mutex::new(Air::new(drawn)));
        for end in [device, gateway] {
            let air = air.clone();
            let note = move |path: &Path, datagram: &[u8]| {
                air.lock().expect("no test has panicked").leaves_an_end(path, datagram);
                false
            };
            net.set_astray(end, Some(Box::new(note)));
        }
        for (at, (router, network)) in routers.iter().zip(&networks).enumerate() {
            let air = air.clone();
            let note = move |path: &Path, datagram: &[u8]| {
                air.lock().expect("no test has panicked").leaves_a_router(path, datagram);
                false
            };
            net.set_astray(*router, Some(Box::new(note)));
            net.set_router(*network, *router);
            net.set_radio(*network, radio(0.0));
            net.place(*router, Some((*network, vec![address(at, 1)])));
        }
        let (to_device, to_gateway) = (Numbered::default(), Numbered::default());
        let (troubles, losses, at, past) = (Vec::new(), Vec::new(), 0, (0, 0));
        let entered = Instant::ZERO;
        let mut scene = Self {
            net,
            device,
            gateway,
            routers,
            networks,
            air,
            to_device,
            to_gateway,
            troubles,
            losses,
            keys,
            repair,
            at,
            entered,
            past,
        };
        (0..ROUTERS).for_each(|at| scene.boot(at, asks));
        scene.run(Duration::from_secs(5));
        scene.enter(0);
        scene.net.with(device, |now, host| assert!(host.up(now, "office")));
        scene.run(Duration::from_secs(5));
        scene.set_bit_errors(bit_errors);
        scene
    }

    pub(crate) fn air(&self) -> MutexGuard<'_, Air> {
        self.air.lock().expect("no test has panicked")
    }

    /// The device's signal is weak, or good. Where that chooses the SA, the packets of one end.
    pub(crate) fn set_weak(&mut self, weak: bool) {
        self.troubles.push(self.net.now);
        set_signal(&mut self.net, self.device, weak);
    }

    pub(crate) fn set_bit_errors(&mut self, rate: f64) {
        for network in self.networks.clone() {
            self.net.set_radio(network, radio(rate));
        }
    }

    /// Packets on their way are lost now, and others until so long after.
    pub(crate) fn lose(&mut self, for_time: Duration) {
        let now = self.net.now;
        self.losses.push((now, now + for_time));
    }

    fn boot(&mut self, at: usize, asks: bool) {
        let rate_kbit = RATE / 1_000;
        let section =
            Router { device: "wlan0".into(), network: "eth0".into(), repair: self.repair, rate_kbit };
        let before = (self.keys == Keys::Moved && at > 0).then(|| format!("r{at}"));
        self.net.with(self.routers[at], |now, host| {
            host.set_router(&section);
            if asks {
                assert!(host.up(now, "gw"));
                before.into_iter().for_each(|before| assert!(host.up(now, &before)));
            }
        });
    }

    /// What a router says of itself; nothing while its process is dead.
    pub(crate) fn info(&self, at: usize) -> RouterInfo {
        let host = self.net.machine(self.routers[at]).host();
        host.and_then(|host| host.router_info()).unwrap_or_default()
    }

    /// Reports that counted, and packets that were repeated, at all routers ever.
    pub(crate) fn done(&self) -> (u64, u64) {
        let all = (0..ROUTERS).map(|at| self.info(at));
        all.fold(self.past, |(reports, repeated), of| (reports + of.reports, repeated + of.snoop.repeated))
    }

    /// A router's process dies, and with it keys, copies and queue. Its kernel forwards alone.
    pub(crate) fn kill(&mut self, at: usize) {
        let of = self.info(at);
        self.past = (self.past.0 + of.reports, self.past.1 + of.snoop.repeated);
        self.net.machine_mut(self.routers[at]).crash();
        self.troubles.push(self.net.now);
        self.lose(Duration::ZERO);
    }

    /// It is back.
    pub(crate) fn restart(&mut self, at: usize) {
        let (router, now) = (self.routers[at], self.net.now);
        let host = self.net.host_of(&router_file(at + 1, self.keys));
        self.net.machine_mut(router).restart(now, host);
        self.boot(at, true);
        self.troubles.push(now);
        self.lose(Duration::ZERO);
    }

    /// The device is behind this router from now on; its packets alone say so. Where it was before.
    pub(crate) fn walk(&mut self, at: usize) -> usize {
        self.entered = self.net.now;
        self.troubles.push(self.net.now);
        self.lose(MOVING);
        self.net.place(self.device, Some((self.networks[at], vec![address(at, 10)])));
        std::mem::replace(&mut self.at, at)
    }

    /// The same, and its agent says so, where keys move.
    pub(crate) fn enter(&mut self, at: usize) {
        let (before, device) = (self.walk(at), address(at, 10));
        if self.keys == Keys::Moved && before != at {
            let previous = format!("r{}.sim", before + 1).parse().expect("a name");
            self.net.with(self.routers[before], |now, host| {
                host.device_has_gone(now, address(before, 10));
            });
            self.net.with(self.routers[at], |now, host| {
                host.device_has_come(now, device, Some(previous));
            });
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        let (air, device, gateway) = (self.air.clone(), self.device, self.gateway);
        let (to_device, to_gateway) = (&mut self.to_device.arrived, &mut self.to_gateway.arrived);
        let (router, troubles) = (self.routers[self.at], &mut self.troubles);
        let held =
            |net: &Topology| net.machine(router).host().and_then(|host| host.router_info()).map(|of| of.keys);
        let mut before = held(&self.net);
        self.net.run_until(end, |net, _: Moment| {
            air.lock().expect("no test has panicked").now = net.now;
            let keys = held(net);
            let has = |id| keys.iter().flatten().any(|(held, _)| *held == id);
            if !before.iter().flatten().all(|(id, _)| has(*id)) {
                troubles.push(net.now);
            }
            before = keys;
            for (machine, arrived) in [(device, &mut *to_device), (gateway, &mut *to_gateway)] {
                let received = &net.machine(machine).received[arrived.len()..];
                arrived.extend(received.iter().map(|number| (*number, net.now)));
            }
            false
        });
    }

    /// The device's address inside.
    pub(crate) fn inner(&self) -> IpAddr {
        self.net.machine(self.device).inner.first().copied().expect("an address inside")
    }

    /// Packets go both ways for so long.
    pub(crate) fn talk(&mut self, time: Duration) {
        self.talk_at(PACE, time);
    }

    /// One goes each way whenever this time is over, for so long.
    pub(crate) fn talk_at(&mut self, pace: Duration, time: Duration) {
        let end = self.net.now + time;
        while self.net.now < end {
            let (inner, now) = (self.inner(), self.net.now);
            let number = self.to_gateway.sent.len() as u64;
            self.to_gateway.sent.push(now);
            self.air().now = now;
            self.net.machine_mut(self.device).forward(now, numbered(inner, SERVER, number, SECRET));
            self.net.post();
            self.send_to_device(SECRET);
            self.run(pace);
        }
    }

    /// So many packets of 1,000 bytes go to the device at once.
    pub(crate) fn burst(&mut self, count: usize) {
        for _ in 0..count {
            self.send_to_device(&[7; 1_000]);
        }
    }

    fn send_to_device(&mut self, rest: &[u8]) {
        let (inner, now) = (self.inner(), self.net.now);
        let number = self.to_device.sent.len() as u64;
        self.to_device.sent.push(now);
        self.air().now = now;
        self.air().number = Some(number);
        self.net.machine_mut(self.gateway).forward(now, numbered(SERVER, inner, number, rest));
        self.net.post();
        self.air().number = None;
    }

    /// An ESP packet comes to a router from one of its sides.
    pub(crate) fn come(&mut self, at: usize, from: Side, path: &Path, esp: &[u8]) {
        let packet = whole(path, esp);
        self.net.with(self.routers[at], |now, host| host.handle_packet(now, from, packet));
    }
}

/// The packet that carries ESP this way.
fn whole(path: &Path, esp: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    if path.carrier == Carrier::NatT {
        udp::build(path.local, path.remote, esp, &mut packet).expect("a packet");
        return packet;
    }
    let (IpAddr::V4(from), IpAddr::V4(to)) = (path.local.ip(), path.remote.ip()) else {
        unreachable!("these worlds are of IPv4")
    };
    packet.extend(Ipv4Header::new(from, to, protocol::ESP).to_bytes(esp.len()).expect("a header"));
    packet.extend(esp);
    packet
}
