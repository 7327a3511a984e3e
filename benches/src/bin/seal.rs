//! ESP sealing and opening, as `dormouse bench` measures them, against the raw AEAD of the library, at three packet sizes. Target: at
//! least 85 % of the raw speed at 1,420 bytes. And packets in two zones against whole ones, at both ends and at a router.

use std::hint::black_box;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use dormouse_benches::{
    CIPHER_TIME as TIME, Measured, Summary, Target, Work, arguments, bare_cipher, ratio, verdict,
};
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{HeaderZones, IPV4_IN_IP, Inbound, Look, Outbound, SaParams, ZoneParams};
use dormouse_keying::{HeaderGrant, HeaderOrder, HeaderSa, Nodes, ZoneMap};
use dormouse_lab::bench::{in_memory, rate};
use dormouse_lab::results::Figures;
use dormouse_lab::results::esp::{CPU_THREAD, Direction, Point, What};
use dormouse_report::Table;
use dormouse_sansio::Seeded;

const REPETITIONS: u32 = 15;

/// What sealing and opening a packet in ESP costs beside the cipher alone.
#[derive(Parser)]
struct Arguments {
    /// Keep raw data and provenance in this file, as docs/results.md describes it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Bytes of a packet.
const SIZES: [u32; 3] = [64, 512, 1_420];
/// Bytes of an inner packet, whole and in zones.
const ZONED: [u32; 2] = [64, 1_400];

/// Nanoseconds of CPU for a packet in ESP.
fn esp(direction: Direction, bytes: u32, seed: u64) -> Result<f64> {
    let mut point = Point::new(What::Crypto, "aes128gcm16", bytes, 1);
    point.direction = direction;
    let figures = in_memory(&point, TIME, seed)?;
    Ok(figures.one(CPU_THREAD).unwrap_or(f64::NAN) * f64::from(bytes))
}

/// An SA of AES-128-GCM, in two zones or whole.
fn sa(zoned: bool) -> SaParams {
    let encr = Encr::Aes128Gcm16;
    let further = vec![(encr, Secret::from([2; 20]))];
    let zones = zoned.then(|| ZoneParams { map: ZoneMap::default(), further });
    SaParams { zones, ..SaParams::new(1_000, encr, None, Secret::from([1; 20])) }
}

/// The headers of a TCP packet of so many bytes in all, as far as they are looked at.
fn header(bytes: u32) -> Result<[u8; 52]> {
    let mut header = [0; 52];
    let total = u16::try_from(bytes)?.to_be_bytes();
    (header[0], header[2], header[3], header[9], header[32]) = (0x45, total[0], total[1], 6, 0x80);
    Ok(header)
}

/// Nanoseconds of CPU for a TCP packet of so many bytes: sealed, and opened again if `both`.
fn ends(zoned: bool, bytes: u32, both: bool) -> Result<f64> {
    let (params, len) = (sa(zoned), usize::try_from(bytes)?);
    let (mut out, mut inbound) = (Outbound::new(&params, &mut Seeded::new(1))?, Inbound::new(&params)?);
    let header = header(bytes)?;
    let (mut slot, head) = (vec![0x5a; out.sealed_len(len)], out.head_len());
    let rate = rate(len, TIME, || {
        slot[head..head + header.len()].copy_from_slice(&header);
        let sealed = out.seal(black_box(&mut slot), len, IPV4_IN_IP)?;
        if both {
            let opened = inbound.open(black_box(&mut slot[..sealed]))?;
            anyhow::ensure!(opened.inner.len() == len, "{opened:?}");
        }
        Ok(())
    })?;
    Ok(1e9 * f64::from(bytes) / rate)
}

/// Nanoseconds of CPU for a look at the first zone of such a packet; or for one whose time to live is lowered.
fn router(bytes: u32, changes: bool) -> Result<f64> {
    let (params, len) = (sa(true), usize::try_from(bytes)?);
    let mut out = Outbound::new(&params, &mut Seeded::new(1))?;
    let sa = |spi| HeaderSa { spi, keymat: params.keymat.clone(), reached: 0.into() };
    let (map, nodes) = (ZoneMap::default(), Nodes::ALL);
    let (to_device, from_device) = (sa(1_000), sa(1_001));
    let grant = HeaderGrant { map, encr: params.encr, esn: true, to_device, from_device, nodes };
    let mut zones = HeaderZones::new();
    zones.apply(&HeaderOrder::Grant(Box::new(grant)))?;
    let (mut slot, head) = (vec![0x5a; out.sealed_len(len)], out.head_len());
    let header = header(bytes)?;
    slot[head..head + header.len()].copy_from_slice(&header);
    let sealed = out.seal(&mut slot, len, IPV4_IN_IP)?;
    let rate = rate(len, TIME, || {
        let packet = black_box(&mut slot[..sealed]);
        let done = if changes {
            zones.change(packet, |header| header[8] = header[8].wrapping_add(1))?
        } else {
            matches!(zones.look(packet), Look::Header(_))
        };
        anyhow::ensure!(done, "the packet was not opened");
        Ok(())
    })?;
    Ok(1e9 * f64::from(bytes) / rate)
}

/// The rows of packets in two zones, and of whole ones.
fn zoned_rows() -> Vec<(String, Work<'static>)> {
    let mut rows: Vec<(String, Work<'_>)> = Vec::new();
    for bytes in ZONED {
        let packet = |nanos| Figures::default().with("packet", nanos);
        for (zoned, kind) in [(false, "whole"), (true, "zoned")] {
            for (both, what) in [(false, "seal"), (true, "both")] {
                let work = move || Ok(packet(ends(zoned, bytes, both)?));
                rows.push((format!("{what} {kind} {bytes}"), Box::new(work)));
            }
        }
        for (changes, what) in [(false, "look"), (true, "change")] {
            rows.push((format!("{what} {bytes}"), Box::new(move || Ok(packet(router(bytes, changes)?)))));
        }
    }
    rows
}

/// Packets in two zones against whole ones: no target, the paper's 4 points of throughput are of another machine's 3DES.
fn zones(measured: &Measured) {
    println!(
        "\nAES-128-GCM, one core, nanoseconds for a packet (median of {REPETITIONS}), whole and in two zones"
    );
    let mut table = Table::new([
        "bytes",
        "seal",
        "in zones",
        "ratio",
        "seal and open",
        "in zones",
        "ratio",
        "router looks",
        "router changes",
    ]);
    for bytes in ZONED {
        let of = |row: String| measured.figure(&row, "packet");
        let nanos = |row: String| format!("{:.0}", Summary::of(of(row).into_values()).median);
        let pair = |what| {
            let [whole, zoned] = ["whole", "zoned"].map(|kind| format!("{what} {kind} {bytes}"));
            let times = ratio(&of(zoned.clone()), &of(whole.clone()));
            [nanos(whole), nanos(zoned), format!("{times:.2}")]
        };
        let router = ["look", "change"].map(|what| nanos(format!("{what} {bytes}")));
        table.row([bytes.to_string()].into_iter().chain(pair("seal")).chain(pair("both")).chain(router));
    }
    print!("{}", table.text(""));
}

fn main() -> Result<()> {
    let Arguments { out } = arguments();
    let mut rows: Vec<(String, Work<'_>)> = Vec::new();
    for bytes in SIZES {
        let mut seed = 0;
        let mut esp = move |direction| {
            seed += 1;
            esp(direction, bytes, seed)
        };
        let packet = |nanos| Figures::default().with("packet", nanos);
        rows.push((format!("raw {bytes}"), Box::new(move || Ok(packet(bare_cipher(bytes)?)))));
        rows.push((format!("seal {bytes}"), Box::new(move || Ok(packet(esp(Direction::Out)?)))));
        rows.push((format!("open {bytes}"), Box::new(move || Ok(packet(esp(Direction::In)?)))));
    }
    rows.extend(zoned_rows());
    let settings = serde_json::json!({ "repetition_seconds": TIME.as_secs_f64() });
    let measured = Measured::of(rows, REPETITIONS, settings, out.as_deref())?;
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
    zones(&measured);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{ZONED, header};

    #[test]
    fn a_packet_is_as_long_as_its_header_says() {
        for bytes in ZONED {
            let header = header(bytes).expect("a packet");
            assert_eq!(u32::from(u16::from_be_bytes([header[2], header[3]])), bytes);
        }
    }
}
