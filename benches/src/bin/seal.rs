//! ESP sealing and opening, as `dormouse bench` measures them, against the raw AEAD of the library, at three packet sizes. Target: at
//! least 85 % of the raw speed at 1,420 bytes.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Result, anyhow};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use dormouse_benches::{Measured, Summary, Target, Work, ratio, verdict};
use dormouse_lab::bench::{in_memory, rate};
use dormouse_lab::results::Figures;
use dormouse_lab::results::esp::{CPU_THREAD, Direction, Point, What};
use dormouse_report::Table;

const REPETITIONS: u32 = 15;
/// Bytes of a packet.
const SIZES: [u32; 3] = [64, 512, 1_420];
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
    let key = &LessSafeKey::new(key);
    let mut rows: Vec<(String, Work<'_>)> = Vec::new();
    for bytes in SIZES {
        let mut seed = 0;
        let mut esp = move |direction| {
            seed += 1;
            esp(direction, bytes, seed)
        };
        let packet = |nanos| Figures::default().with("packet", nanos);
        rows.push((format!("raw {bytes}"), Box::new(move || Ok(packet(raw(key, bytes)?)))));
        rows.push((format!("seal {bytes}"), Box::new(move || Ok(packet(esp(Direction::Out)?)))));
        rows.push((format!("open {bytes}"), Box::new(move || Ok(packet(esp(Direction::In)?)))));
    }
    let measured = Measured::of(rows, REPETITIONS)?;
    let of = |what: &str, bytes: u32| measured.figure(&format!("{what} {bytes}"), "packet");
    let share = |verb, bytes| ratio(&of("raw", bytes), &of(verb, bytes));
    println!(
        "AES-128-GCM, one core, nanoseconds for a packet (median of {REPETITIONS}) and share of the raw AEAD's speed"
    );
    let mut table = Table::new(["bytes", "raw", "ESP seal", "share", "ESP open", "share"]);
    for bytes in SIZES {
        let nanos = |what| format!("{:.0}", Summary::of(of(what, bytes).into_values()).median);
        let percent = |verb| format!("{:.0}%", 100.0 * share(verb, bytes));
        let cells = [nanos("raw"), nanos("seal"), percent("seal"), nanos("open"), percent("open")];
        table.row([bytes.to_string()].into_iter().chain(cells));
    }
    print!("{}", table.text(""));
    let [.., largest] = SIZES;
    for verb in ["seal", "open"] {
        let what = format!("ESP {verb} / raw AES-128-GCM, speed at 1,420 bytes");
        verdict(&what, share(verb, largest), Target::AtLeast(0.85));
    }
    Ok(())
}
