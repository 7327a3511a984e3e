//! The body of the fuzz target: a story told by the input instead of a seed, with strangers that talk to either end and inner packets
//! of any kind. Not for use in a program.

use crate::script::{Edit, Step};
use crate::settings::Settings;
use crate::world::{Access, World};
use dormouse_node::Limits;
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::fuzz::with_checksums;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Steps of one story: a bound on the time of a run.
const STEPS: usize = 24;

/// The input that is left.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// A length, and as many bytes as there are.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.byte()?) << 8 | usize::from(self.byte()?);
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        Some(bytes)
    }

    /// From a hundredth of a second to eleven minutes.
    fn time(&mut self) -> Option<Duration> {
        let byte = u64::from(self.byte()?);
        Some(Duration::from_millis(10 * byte * byte))
    }

    fn access(&mut self) -> Option<Access> {
        Some(if self.byte()? & 1 == 0 { Access::A } else { Access::B })
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.byte()? & 1 != 0)
    }

    /// A step as the stories have them; `None` at the end.
    fn step(&mut self, kind: u8) -> Option<Step> {
        Some(match kind {
            0 => Step::Enter(self.access()?),
            1 => Step::Leave,
            2 => Step::Sleep(self.time()?, self.access()?),
            3 => Step::Nap(self.time()?, self.access()?),
            4 => Step::NatForgets,
            5 => {
                let mut share = || Some(f64::from(self.byte()? % 50) / 100.0);
                Step::Weather { loss: share()?, duplication: share()?, reordering: share()? }
            }
            6 => Step::GatewayCrash(self.time()?, self.flag()?),
            7 => Step::DeviceCrash(self.time()?),
            8 => Step::Data(1 + self.byte()? % 8),
            9 => Step::RekeyChild(self.flag()?),
            10 => Step::RekeyIke(self.flag()?),
            11 => Step::DownUp(self.time()?),
            23 => Step::Stop { gateway: self.flag()?, away: self.time()? },
            24 => {
                let edits = [Edit::Nothing, Edit::Pool, Edit::Rekey(60)];
                Step::Reload { gateway: self.flag()?, edit: edits[usize::from(self.byte()?) % edits.len()] }
            }
            _ => Step::Pause(self.time()?),
        })
    }
}

/// A forged datagram: at the gateway, or at the device where it is now; from a stranger, or as if from the other end.
fn intrude(world: &mut World, at: u8, datagram: &[u8]) {
    let (own, other) = (world.device_address(), SocketAddr::from((Ipv4Addr::new(203, 0, 113, 1), 500)));
    let Some(own) = own else { return };
    let (mut local, mut remote) = if at & 1 == 0 { (other, own) } else { (own, other) };
    if at & 2 == 0 {
        remote.set_ip(Ipv4Addr::new(198, 51, 100, 66).into());
    }
    let carrier = [Carrier::Ike, Carrier::NatT, Carrier::NatT, Carrier::RawEsp][usize::from(at >> 2 & 3)];
    let port = match carrier {
        Carrier::Ike => 500,
        Carrier::NatT => 4500,
        Carrier::HipUdp => 10_500,
        Carrier::RawEsp | Carrier::RawHip => 0,
    };
    local.set_port(port);
    remote.set_port(port);
    let (now, path) = (world.now(), Path { local, remote, carrier });
    let host = if at & 1 == 0 { world.gateway_mut() } else { world.device_mut() };
    host.receive(now, path, datagram.to_vec());
}

/// Tells `data` as a story.
///
/// # Panics
/// If an end panics or spins, or the story does not end with a session on which both agree: nothing that a stranger sends may cost
/// more than a moment.
pub fn story(data: &[u8]) {
    let day = Duration::from_secs(86_400);
    let settings = Settings { stand_in: Some((Limits::default(), day)), ..Settings::default() };
    let (mut world, mut input) = (World::new(1, settings), Input(data));
    for _ in 0..STEPS {
        if tell(&mut world, &mut input).is_none() {
            break;
        }
    }
    world.settle_and_check();
}

fn tell(world: &mut World, input: &mut Input<'_>) -> Option<()> {
    let op = input.byte()?;
    match op & 0x1f {
        13..=17 => intrude(world, op >> 5 | input.byte()? << 3, input.bytes()?),
        18..=22 => {
            // Packets through the tunnel: from the device, or to it; mostly with the checksums that they should have.
            let (now, bytes) = (world.now(), input.bytes()?);
            let packet = if op & 0x40 == 0 { with_checksums(bytes) } else { bytes.to_vec() };
            let host = if op & 0x20 == 0 { world.device_mut() } else { world.gateway_mut() };
            host.forward(now, packet);
        }
        kind => world.step(input.step(kind)?),
    }
    if op & 0x80 == 0 {
        world.run(Duration::from_millis(100));
    }
    Some(())
}
