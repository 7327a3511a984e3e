//! A day of a device's traffic, drawn from a seed. Owns the odds: sessions of a person with the pauses of reading between them,
//! and programs that call home by the clock, each device with habits of its own. The heavy tails are those of campus networks:
//! lognormal pauses, many short ones and a few of hours.

use dormouse_sansio::{Entropy, Instant, Seeded};
use std::time::Duration;

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// The device sends it; otherwise the server does.
    pub up: bool,
    /// The service.
    pub port: u16,
}

/// A device's day, in order of time.
#[must_use]
pub fn day(seed: u64, length: Duration) -> Vec<Sent> {
    let mut rng = Seeded::new(seed ^ 0x0da1_5ee9_0000_0001);
    let mut packets = Vec::new();
    person(&mut rng, length, &mut packets);
    for (period, port) in [(59, 5222), (301, 443), (721, 8883), (1800, 123)] {
        // Each program runs on some devices only.
        if rng.below(3) == 0 {
            clockwork(&mut rng, length, Duration::from_secs(period), port, &mut packets);
        }
    }
    // The device is called now and then.
    let mut at = 0.0;
    loop {
        at += lognormal(&mut rng, 7.0, 1.5);
        if at >= length.as_secs_f64() {
            break;
        }
        packets.push(Sent { at: instant(at), up: false, port: 22 });
    }
    packets.sort();
    packets
}

/// Bursts of requests, each answered, with the pauses of a person between them.
fn person(rng: &mut Seeded, length: Duration, packets: &mut Vec<Sent>) {
    // Habits: how long this person reads, and how often.
    let (mu, sigma) = (2.5 + uniform(rng) * 2.5, 1.5 + uniform(rng));
    let mut at = 3.0 + uniform(rng) * 60.0;
    while at < length.as_secs_f64() {
        let port = if rng.below(4) == 0 { 53 } else { 443 };
        for _ in 0..1 + rng.below(4) {
            packets.push(Sent { at: instant(at), up: true, port });
            packets.push(Sent { at: instant(at + 0.05 + uniform(rng) * 0.2), up: false, port });
            at += 0.1 + uniform(rng) * 0.8;
        }
        at += lognormal(rng, mu, sigma);
        // Lunch, and the night.
        if rng.below(60) == 0 {
            at += 1800.0 + uniform(rng) * 6.0 * 3600.0;
        }
    }
}

fn clockwork(rng: &mut Seeded, length: Duration, period: Duration, port: u16, packets: &mut Vec<Sent>) {
    let mut at = uniform(rng) * period.as_secs_f64();
    while at < length.as_secs_f64() {
        packets.push(Sent { at: instant(at), up: true, port });
        packets.push(Sent { at: instant(at + 0.05), up: false, port });
        at += period.as_secs_f64() + (uniform(rng) - 0.5) * 0.5;
    }
}

fn instant(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds.max(0.0))
}

#[expect(clippy::cast_precision_loss, reason = "53 bits are plenty")]
fn uniform(rng: &mut Seeded) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A lognormal time in seconds, a day at most (Box and Muller).
fn lognormal(rng: &mut Seeded, mu: f64, sigma: f64) -> f64 {
    let normal = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt() * (std::f64::consts::TAU * uniform(rng)).cos();
    (mu + sigma * normal).exp().min(86_400.0)
}
