//! From pcapng to idle periods, measured beside tshark writing the same client and time columns, in one run.
//!
//! `cargo run --release -p dormouse-trace --example speed [CLIENTS] [no-tshark]`; `DORMOUSE_SPEED_DIR` says where the capture is put.
//! Figures are packets per second of processor time, which a busy machine does not distort, and by the clock on the wall. One core: one thread reads, finds the clients, and reduces to idle periods; survey and
//! reduction are also shown apart. The file has been written just before, so it comes from the page cache for both.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use dormouse_trace::activity::Activity;
use dormouse_trace::analyse::{gather, survey_all};
use dormouse_trace::clients::Directory;
use dormouse_trace::facts::Limits;
use dormouse_trace::flow::Spread;
use dormouse_trace::fold::{Fold, Sessions};
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::input::Input;
use dormouse_trace::periods::Collector;
use dormouse_trace::sort::Sorter;

/// Processor time of this process and its finished children, and the clock on the wall.
struct Clocks(f64, Instant);

#[derive(Clone, Copy)]
struct Took {
    cpu: f64,
    wall: f64,
}

impl Clocks {
    fn now() -> Self {
        Self(processor_seconds(), Instant::now())
    }

    fn elapsed(&self) -> Took {
        Took { cpu: processor_seconds() - self.0, wall: self.1.elapsed().as_secs_f64() }
    }
}

/// utime, stime, cutime and cstime of /proc/self/stat, in ticks of a hundredth of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit(") ").next().unwrap_or_default();
    behind.split(' ').skip(11).take(4).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() -> std::io::Result<()> {
    let clients = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(3000);
    let directory = std::env::var_os("DORMOUSE_SPEED_DIR").map_or_else(std::env::temp_dir, Into::into);
    let path = directory.join(format!("dormouse-speed-{}.pcapng", std::process::id()));
    let day = Population::new(Recipe { clients, days: 1, seed: 1, start: 1_700_006_400 });
    let written = write::pcapng(day, &mut std::io::BufWriter::with_capacity(1 << 20, File::create(&path)?));
    let outcome = written.and_then(|packets| measure(&path, packets));
    std::fs::remove_file(&path)?;
    outcome
}

fn measure(path: &Path, packets: u64) -> std::io::Result<()> {
    let million = packets as f64 / 1e6;
    let inputs = [Input::file(path)];
    let begin = Clocks::now();
    let survey = survey_all(&inputs, None, Limits::default(), 1, &|_, _| ());
    let (directory, _) = Directory::find(&survey.sites, &[]);
    let surveyed = begin.elapsed();
    let (mut periods, mut idle) = (0u64, 0u64);
    let mut collector = Collector::new(250_000_000);
    let mut row = |row: &Activity| {
        let silence = row.silence.filter(|silence| *silence >= 250_000_000);
        periods += u64::from(silence.is_some());
        idle += silence.unwrap_or(0);
    };
    let mut sorter = Sorter::default();
    gather(&inputs, &survey, &directory, Spread::Even, &|_, _| (), &mut |a| sorter.push(a))?;
    let mut fold = Fold::new(250_000_000, None, Sessions::Silence);
    for activity in sorter.sorted()? {
        fold.push(activity?, &mut |piece| collector.piece(&piece.activity, &mut row));
    }
    fold.finish(&mut |piece| collector.piece(&piece.activity, &mut row));
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
