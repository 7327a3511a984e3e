//! Synthetic traffic to files: CSV, pcapng or a table of activities. Owns the label in each.

use std::io::{self, Write};

use super::Population;
use crate::activity::Activity;
use crate::clients::Client;
use crate::fold::{Fold, Sessions};
use crate::periods::Collector;
use crate::seen::ClientPacket;
use crate::sort::Sorter;
use crate::table_file::{ActivityWriter, Layout};
use dormouse_energy::Direction;
use dormouse_energy::account::SESSION;

/// Where synthetic clients live.
const SITE: &str = "synthetic";

/// The name of a synthetic client.
#[must_use]
pub fn name(client: u32) -> String {
    format!("synthetic-{client:05}")
}

/// Writes the plain CSV; the first line is the label. Returns the number of packets.
///
/// # Errors
/// When the output cannot be written.
pub fn csv(population: Population, out: &mut dyn Write) -> io::Result<u64> {
    writeln!(out, "# {}", population.recipe().label())?;
    writeln!(out, "client,time,bytes,direction,protocol,local_port,remote_port")?;
    let mut packets = 0;
    for ClientPacket { client, at, info } in population {
        let direction = if info.direction == Direction::Incoming { "in" } else { "out" };
        let (seconds, micros) = (at / 1_000_000_000, at / 1000 % 1_000_000);
        writeln!(
            out,
            "synthetic-{client:05},{seconds}.{micros:06},{},{direction},{},{},{}",
            info.size, info.protocol, info.local_port, info.remote_port
        )?;
        packets += 1;
    }
    Ok(packets)
}

/// Writes pcapng with Ethernet frames of headers only; the section's comment is the label. Returns the number of packets.
///
/// # Errors
/// When the output cannot be written.
pub fn pcapng(population: Population, out: &mut dyn Write) -> io::Result<u64> {
    let label = population.recipe().label();
    let mut body = Vec::new();
    body.extend(0x1a2b_3c4du32.to_le_bytes());
    body.extend([1, 0, 0, 0]);
    body.extend(u64::MAX.to_le_bytes());
    option(&mut body, 1, label.as_bytes());
    option(&mut body, 0, &[]);
    block(out, 0x0a0d_0d0a, &body)?;
    body.clear();
    body.extend([1, 0, 0, 0, 0, 0, 4, 0]);
    option(&mut body, 9, &[9]); // nanoseconds
    option(&mut body, 0, &[]);
    block(out, 1, &body)?;
    let mut packets = 0;
    let mut data = Vec::with_capacity(128);
    for made in population {
        let frame = frame(&made);
        data.clear();
        data.extend(0u32.to_le_bytes());
        let (high, low) = (made.at >> 32, made.at & 0xffff_ffff);
        data.extend(u32::try_from(high).unwrap_or(0).to_le_bytes());
        data.extend(u32::try_from(low).unwrap_or(0).to_le_bytes());
        data.extend(u32::try_from(frame.len()).unwrap_or(0).to_le_bytes());
        data.extend(made.info.size.max(60).to_le_bytes());
        data.extend(&frame);
        block(out, 6, &data)?;
        packets += 1;
    }
    Ok(packets)
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn block(out: &mut dyn Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let padded = body.len().next_multiple_of(4);
    let length = u32::try_from(padded + 12).unwrap_or(u32::MAX).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length)?;
    out.write_all(body)?;
    out.write_all(&[0; 3][..padded - body.len()])?;
    out.write_all(&length)
}

/// An Ethernet frame with IPv4 and the ports (or ARP): a device of 10/8 behind one gateway.
fn frame(made: &ClientPacket) -> Vec<u8> {
    let id = (made.client + 2).to_be_bytes();
    let (device, gateway) = ([2, 0, 0, id[1], id[2], id[3]], [2, 0xff, 0, 0, 0, 1]);
    let (own, other) = ([10, id[1], id[2], id[3]], [198, 51, 100, 7]);
    let incoming = made.info.direction == Direction::Incoming;
    let (dm, sm) = if incoming { (device, gateway) } else { (gateway, device) };
    let mut f = Vec::with_capacity(64);
    f.extend(dm);
    f.extend(sm);
    if made.info.protocol == 0x806 {
        f.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        f.extend(sm);
        f.extend(if incoming { [10, 255, 255, 254] } else { own });
        f.extend([0; 6]);
        f.extend(own);
        return f;
    }
    let (si, di) = if incoming { (other, own) } else { (own, other) };
    let (local, remote) = (made.info.local_port.to_be_bytes(), made.info.remote_port.to_be_bytes());
    let (sp, dp) = if incoming { (remote, local) } else { (local, remote) };
    let total = u16::try_from(made.info.size.clamp(60, 1514) - 14).unwrap_or(46).to_be_bytes();
    f.extend([8, 0, 0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, made.info.protocol.to_be_bytes()[1], 0, 0]);
    f.extend(si);
    f.extend(di);
    f.extend(sp);
    f.extend(dp);
    f.extend([0; 16]);
    f
}

/// Writes activities; the label is in the metadata. Returns the number of packets.
///
/// # Errors
/// When the output or a temporary file cannot be written.
pub fn activities<W: Write + Send>(
    population: Population,
    out: W,
    layout: Layout,
    min_idle: u64,
) -> io::Result<u64> {
    let label = population.recipe().label();
    let mut writer = ActivityWriter::new(out, layout, min_idle, Some(&label))?;
    let (mut packets, mut failed) = (0, Ok(()));
    let who = |id: u32| Some(Client { site: SITE.to_owned(), ..Client::named(&name(id)) });
    let mut row = |a: &Activity| {
        if failed.is_ok() {
            failed = writer.push(a, &who);
        }
    };
    let mut sorter = Sorter::default();
    for packet in population {
        sorter.push(Activity::packet(&packet))?;
        packets += 1;
    }
    let longest = u64::try_from(SESSION.as_nanos()).ok();
    let (mut fold, mut collector) =
        (Fold::new(min_idle, longest, Sessions::Silence), Collector::new(min_idle));
    for activity in sorter.sorted()? {
        fold.push(activity?, &mut |piece| collector.piece(&piece.activity, &mut row));
    }
    fold.finish(&mut |piece| collector.piece(&piece.activity, &mut row));
    collector.finish(&mut row);
    failed?;
    writer.finish(&who).map(|_| packets)
}
