//! From pcap to idle periods, measured beside tshark writing the same client and time columns, in one run.
//!
//! `cargo run --release -p dormouse-trace --example speed [PACKETS] [CLIENTS] [no-tshark]`; `DORMOUSE_SPEED_DIR` says where the capture is put.
//! Figures are packets per second of processor time, which a busy machine does not distort, and by the clock on the wall. One core: one thread reads, finds the clients, and reduces to idle periods; survey and
//! reduction are also shown apart. The file has been written just before, so it comes from the page cache for both.

mod clocks;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use clocks::{Clocks, Took};
use dormouse_trace::analyse::{stream, survey_all};
use dormouse_trace::clients::Directory;
use dormouse_trace::flow::Spread;
use dormouse_trace::input::Input;
use dormouse_trace::periods::Collector;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse::<u32>().ok());
    let packets = arguments.next().unwrap_or(10_000_000);
    let clients = arguments.next().unwrap_or(3000).clamp(1, 60_000);
    let directory = std::env::var_os("DORMOUSE_SPEED_DIR").map_or_else(std::env::temp_dir, Into::into);
    let path = directory.join(format!("dormouse-speed-{}.pcap", std::process::id()));
    write_capture(&path, packets, clients)?;
    let outcome = measure(&path, packets);
    std::fs::remove_file(&path)?;
    outcome
}

/// TCP packets of `clients` devices in bursts of eight, headers only, as a gateway's interface would see them.
fn write_capture(path: &Path, packets: u32, clients: u32) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    out.write_all(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0])?;
    let mut frame = [0u8; 16 + 54];
    frame[8] = 54;
    frame[12..14].copy_from_slice(&1200u16.to_le_bytes());
    frame[16 + 12..16 + 20].copy_from_slice(&[8, 0, 0x45, 0, 4, 0x90, 0, 0]);
    frame[16 + 22..16 + 24].copy_from_slice(&[64, 6]);
    let mut random = 88_172_645_463_325_252u64;
    let mut client = 0;
    for n in 0..u64::from(packets) {
        if n % 8 == 0 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            client = u32::try_from(random % u64::from(clients)).unwrap_or(0) + 1;
        }
        let micros = n * 86_400_000_000 / u64::from(packets);
        frame[..4]
            .copy_from_slice(&(1_600_000_000 + u32::try_from(micros / 1_000_000).unwrap_or(0)).to_le_bytes());
        frame[4..8].copy_from_slice(&u32::try_from(micros % 1_000_000).unwrap_or(0).to_le_bytes());
        let c = client.to_be_bytes();
        let (mac, ip) = ([2, 0, 0, c[1], c[2], c[3]], [10, c[1], c[2], c[3]]);
        let (gateway, server) = ([2, 1, 0, 0, 0, 1], [93, 184, 216, (random % 50) as u8 + 1]);
        let out_going = n % 2 == 0;
        let (dm, sm, si, di) =
            if out_going { (gateway, mac, ip, server) } else { (mac, gateway, server, ip) };
        frame[16..22].copy_from_slice(&dm);
        frame[22..28].copy_from_slice(&sm);
        frame[16 + 26..16 + 30].copy_from_slice(&si);
        frame[16 + 30..16 + 34].copy_from_slice(&di);
        let (client_port, server_port) = (50_000u16.to_be_bytes(), 443u16.to_be_bytes());
        let (sp, dp) = if out_going { (client_port, server_port) } else { (server_port, client_port) };
        frame[16 + 34..16 + 36].copy_from_slice(&sp);
        frame[16 + 36..16 + 38].copy_from_slice(&dp);
        frame[12..16].copy_from_slice(&1200u32.to_le_bytes());
        out.write_all(&frame)?;
    }
    out.flush()
}

fn measure(path: &Path, packets: u32) -> std::io::Result<()> {
    let million = f64::from(packets) / 1e6;
    let inputs = [Input::file(path)];
    let begin = Clocks::now();
    let survey = survey_all(&inputs, None, 1, &|_, _| ());
    let (directory, _) = Directory::find(&survey.facts, &[]);
    let surveyed = begin.elapsed();
    let (mut periods, mut idle) = (0u64, 0u64);
    let mut collector = Collector::new(250_000_000);
    let mut row = |p: &dormouse_trace::periods::Period| {
        periods += u64::from(p.idle > 0);
        idle += p.idle;
    };
    stream(&inputs, &survey, &directory, Spread::Even, &|_, _| (), &mut |event| {
        collector.packet(&event, &mut row)
    });
    collector.finish(&mut row);
    let both = begin.elapsed();
    println!(
        "packets {packets}, clients {}, idle periods {periods}, idle {:.0} s",
        directory.clients().len(),
        idle as f64 / 1e9
    );
    let line = |what: &str, took: Took| {
        println!(
            "{what:<34}{:>9.2} M packets/s of one core{:>9.2} by the clock",
            million / took.cpu,
            million / took.wall
        );
    };
    line("survey (who is a client)", surveyed);
    line("reduction to idle periods", Took { cpu: both.cpu - surveyed.cpu, wall: both.wall - surveyed.wall });
    line("both", both);
    if std::env::args().any(|a| a == "no-tshark") {
        return Ok(());
    }
    let columns = ["-n", "-T", "fields", "-e", "frame.time_epoch", "-e", "eth.src", "-e", "eth.dst", "-r"];
    let begin = Clocks::now();
    match Command::new("tshark").args(columns).arg(path).stdout(Stdio::null()).stderr(Stdio::null()).status()
    {
        Ok(status) if status.success() => {
            let tshark = begin.elapsed();
            line("tshark, the same columns", tshark);
            println!(
                "times faster than tshark: {:.0} by processor time, {:.0} by the clock",
                tshark.cpu / both.cpu,
                tshark.wall / both.wall
            );
        }
        _ => println!("tshark is not installed: not compared"),
    }
    Ok(())
}
