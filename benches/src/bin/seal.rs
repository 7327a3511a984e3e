//! ESP sealing and opening, as `dormouse bench` measures them, against the raw AEAD of the library, at three packet sizes. Target: at
//! least 85 % of the raw speed at 1,420 bytes.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Result, anyhow};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use dormouse_benches::{Summary, Target, verdict};
use dormouse_lab::bench::{in_memory, rate};
use dormouse_lab::results::esp::{CPU_THREAD, Direction, Point, What};

const REPETITIONS: u64 = 15;
const TIME: Duration = Duration::from_millis(40);

/// Nanoseconds of CPU for a packet in ESP.
fn esp(direction: Direction, bytes: u32, seed: u64) -> Result<f64> {
    let mut point = Point::new(What::Crypto, "aes128gcm16", bytes, 1);
    point.direction = direction;
    let figures = in_memory(&point, TIME, seed)?;
    Ok(figures.one(CPU_THREAD).unwrap_or(f64::NAN) * f64::from(bytes))
}

/// The same for the cipher alone. Opening costs it what sealing does.
fn raw(key: &LessSafeKey, bytes: u32) -> Result<f64> {
    let (mut packet, mut counter) = (vec![0x5a; usize::try_from(bytes)?], 0u64);
    let rate = rate(packet.len(), TIME, || {
        counter += 1;
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&counter.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from([0; 12]), &mut packet);
        let _ = black_box(tag.map_err(|_| anyhow!("the cipher refuses a packet"))?);
        Ok(())
    })?;
    Ok(1e9 * f64::from(bytes) / rate)
}

fn main() -> Result<()> {
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).map_err(|_| anyhow!("no key of 16 bytes"))?;
    let key = LessSafeKey::new(key);
    println!(
        "AES-128-GCM, one core, nanoseconds for a packet (median of {REPETITIONS}) and share of the raw AEAD's speed"
    );
    println!("{:>6} {:>9} {:>9} {:>7} {:>9} {:>7}", "bytes", "raw", "ESP seal", "share", "ESP open", "share");
    let mut last = [f64::NAN; 2];
    for bytes in [64, 512, 1_420] {
        // The raw cipher, sealing and opening, in turn.
        let mut rows = [const { Vec::new() }; 3];
        for seed in 0..=REPETITIONS {
            let round =
                [raw(&key, bytes)?, esp(Direction::Out, bytes, seed)?, esp(Direction::In, bytes, seed)?];
            if seed > 0 {
                rows.iter_mut().zip(round).for_each(|(row, ns)| row.push(ns));
            }
        }
        last = [1, 2].map(|n| Summary::of_ratios(&rows[0], &rows[n]).median);
        let [raw, seal, open] = rows.map(|row| Summary::of(row).median);
        let [sealed, opened] = last.map(|share| 100.0 * share);
        println!("{bytes:>6} {raw:>9.0} {seal:>9.0} {sealed:>6.0}% {open:>9.0} {opened:>6.0}%");
    }
    for (verb, share) in ["seal", "open"].into_iter().zip(last) {
        let what = format!("ESP {verb} / raw AES-128-GCM, speed at 1,420 bytes");
        verdict(&what, share, Target::AtLeast(0.85));
    }
    Ok(())
}
