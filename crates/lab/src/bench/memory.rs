//! Cryptography alone: ESP packets sealed and opened in memory, by the code that the data path runs (`dormouse-esp`), on one
//! thread or several. Owns the batches; must never time a suite that does not know its answers.

use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use dormouse_crypto::measure::{Suite, verify};
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{IPV4_IN_IP, Inbound, Outbound, SaParams};
use dormouse_sansio::{Entropy as _, Seeded};

use crate::campaign::cpu;
use crate::results::Figures;
use crate::results::esp::{CPU_THREAD, Direction, ELAPSED, Point, THROUGHPUT};

/// Packets between two readings of the clocks: what the readings cost disappears in it, and the packets stay in the cache
/// that a network stack's would be in.
const BATCH: usize = 64;

/// One thread's share.
struct Share {
    bytes: u64,
    elapsed: Duration,
    cpu: Duration,
}

/// Measures one point for `time`, on as many threads as it says.
///
/// # Errors
/// If the suite is unknown, or gives wrong answers.
pub fn in_memory(sample: &Point, time: Duration, seed: u64) -> Result<Figures> {
    let suite: Suite = sample.suite.parse()?;
    verify(suite)?;
    let len = usize::try_from(sample.packet_bytes)?;
    let threads = usize::try_from(sample.cores)?;
    let start = Barrier::new(threads);
    let shares: Result<Vec<Share>> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads)
            .map(|n| {
                let start = &start;
                scope.spawn(move || {
                    let work = Work::new(suite, len, seed ^ n as u64);
                    // Also of a thread that failed: the others wait for it.
                    start.wait();
                    match sample.direction {
                        Direction::In => work?.open(time),
                        Direction::Out | Direction::Both => work?.seal(time),
                    }
                })
            })
            .collect();
        spawned.into_iter().map(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    });
    let shares = shares?;
    let bytes: u64 = shares.iter().map(|s| s.bytes).sum();
    let cpu: Duration = shares.iter().map(|s| s.cpu).sum();
    let elapsed = shares.iter().map(|s| s.elapsed).max().unwrap_or_default().as_secs_f64();
    let throughput: f64 = shares.iter().map(|s| s.bytes as f64 / s.elapsed.as_secs_f64()).sum();
    Ok(Figures::default()
        .with(ELAPSED, elapsed)
        .with(THROUGHPUT, throughput)
        .with(CPU_THREAD, cpu.as_nanos() as f64 / bytes.max(1) as f64))
}

/// Both halves of an SA and packets for them.
struct Work {
    out: Outbound,
    inbound: Inbound,
    buffer: Vec<u8>,
    stride: usize,
    plain: Vec<u8>,
}

impl Work {
    fn new(suite: Suite, len: usize, seed: u64) -> Result<Self> {
        let mut random = Seeded::new(seed);
        let mut keymat = vec![0; suite.keymat_len()];
        random.fill(&mut keymat);
        let params = SaParams::new(0x1000, Encr::Aes128Gcm16, None, Secret::default());
        let out = Outbound::with_key(&params, suite.key(&keymat)?, &mut random);
        let inbound = Inbound::with_key(&params, suite.key(&keymat)?);
        let stride = out.sealed_len(len);
        let mut work =
            Self { out, inbound, buffer: vec![0; stride * BATCH], stride, plain: packet(len, &mut random)? };
        // What is sealed opens to what went in, at this very size.
        work.fill();
        work.seal_batch()?;
        for slot in work.buffer.chunks_mut(stride) {
            let opened = work.inbound.open(slot).with_context(|| format!("{suite}"))?;
            ensure!(slot.get(opened.inner) == Some(&work.plain[..]), "{suite} opens to something else");
        }
        Ok(work)
    }

    fn fill(&mut self) {
        let head = self.out.head_len();
        for slot in self.buffer.chunks_mut(self.stride) {
            slot[head..head + self.plain.len()].copy_from_slice(&self.plain);
        }
    }

    fn seal_batch(&mut self) -> Result<()> {
        let sizes = [self.plain.len(); BATCH];
        self.out.seal_batch(&mut self.buffer, self.stride, &sizes, IPV4_IN_IP)?;
        Ok(())
    }

    /// Bytes of inner packets in a batch.
    fn batch_bytes(&self) -> u64 {
        (self.plain.len() * BATCH) as u64
    }

    fn seal(mut self, time: Duration) -> Result<Share> {
        let (start, cpu, mut bytes) = (cpu::wall(), cpu::thread(), 0);
        // One batch at least, also where others had the processor for all of the time: of nothing, no byte has a cost.
        loop {
            self.seal_batch()?;
            bytes += self.batch_bytes();
            let elapsed = start.elapsed();
            if elapsed >= time {
                return Ok(Share { bytes, elapsed, cpu: cpu::thread() - cpu });
            }
        }
    }

    /// Each batch is sealed ahead, off the clock: it must be fresh to the replay window.
    fn open(mut self, time: Duration) -> Result<Share> {
        let mut share = Share { bytes: 0, elapsed: Duration::ZERO, cpu: Duration::ZERO };
        while share.bytes == 0 || share.elapsed < time {
            self.fill();
            self.seal_batch()?;
            let (start, cpu) = (cpu::wall(), cpu::thread());
            for slot in self.buffer.chunks_mut(self.stride) {
                self.inbound.open(slot)?;
            }
            share.elapsed += start.elapsed();
            share.cpu += cpu::thread() - cpu;
            share.bytes += self.batch_bytes();
        }
        Ok(share)
    }
}

/// An IPv4 packet of `len` bytes: a header that ESP's tunnel mode accepts, and noise.
fn packet(len: usize, random: &mut Seeded) -> Result<Vec<u8>> {
    ensure!((28..=usize::from(u16::MAX)).contains(&len), "no packet has {len} bytes");
    let mut packet = vec![0; len];
    random.fill(&mut packet);
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet[2..4].copy_from_slice(&u16::try_from(len)?.to_be_bytes());
    Ok(packet)
}

/// Bytes a second of `once`, which works on `block` bytes, by the CPU time of this thread.
///
/// # Errors
/// Those of `once`.
pub fn rate(block: usize, time: Duration, mut once: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut batch = || (0..BATCH).try_for_each(|_| once());
    batch()?;
    let (start, mut batches) = (cpu::thread(), 0u64);
    loop {
        batch()?;
        batches += 1;
        let spent = cpu::thread().saturating_sub(start);
        if spent >= time {
            return Ok((batches * (BATCH * block) as u64) as f64 / spent.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::esp::{CPU_SYSTEM, What};

    #[test]
    fn sealing_and_opening_are_measured_on_any_number_of_threads() {
        for direction in [Direction::Out, Direction::In] {
            let mut sample = Point::new(What::Crypto, "aes128ctr-sha256", 180, 2);
            sample.direction = direction;
            let round = in_memory(&sample, Duration::from_millis(2), 1).unwrap();
            assert!(round.one(THROUGHPUT) > Some(0.0) && round.one(CPU_THREAD) > Some(0.0), "{round:?}");
            assert_eq!(round.one(CPU_SYSTEM), None, "nothing leaves the thread");
        }
    }

    #[test]
    fn something_is_measured_even_if_the_time_is_over_before_it_begins() {
        for direction in [Direction::Out, Direction::In] {
            let mut sample = Point::new(What::Crypto, "aes128gcm16", 180, 1);
            sample.direction = direction;
            let round = in_memory(&sample, Duration::ZERO, 1).unwrap();
            assert!(round.one(THROUGHPUT) > Some(0.0), "{direction:?}: {round:?}");
        }
    }

    #[test]
    fn a_size_that_no_packet_has_is_refused() {
        let sample = Point::new(What::Crypto, "none", 27, 1);
        assert!(
            in_memory(&sample, Duration::from_millis(1), 1).unwrap_err().to_string().contains("27 bytes")
        );
        let sample = Point::new(What::Crypto, "rot13", 1_000, 1);
        assert!(
            in_memory(&sample, Duration::from_millis(1), 1).unwrap_err().to_string().contains("known are")
        );
    }
}
