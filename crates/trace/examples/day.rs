//! A day of generated clients from file to full report: table, JSON and the HTML page with all its figures.
//!
//! `cargo run --release -p dormouse-trace --example day [CLIENTS]`; `DORMOUSE_SPEED_DIR` says where the files are put. Each
//! format is written first, so that it comes from the page cache. Beside the clock on the wall stands the processor time by the
//! number of cores: what it takes where nothing else runs and both share the work evenly.

mod clocks;

use std::path::{Path, PathBuf};

use clocks::Clocks;
use dormouse_energy::account::Settings;
use dormouse_energy::model::Resumption;
use dormouse_energy::profile::Profile;
use dormouse_trace::analyse::{Options, account, survey_all};
use dormouse_trace::clients::{Client, Directory};
use dormouse_trace::flow::Spread;
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::input::Input;
use dormouse_trace::report::figures::{Figures, Questions};
use dormouse_trace::report::page::{ON_PAGE, ON_TERMINAL, document};
use dormouse_trace::report::{charts, json};

type Failure = Box<dyn std::error::Error>;

/// Removed when dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn main() -> Result<(), Failure> {
    let clients = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(3000);
    let directory = std::env::var_os("DORMOUSE_SPEED_DIR").map_or_else(std::env::temp_dir, Into::into);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for format in ["csv", "pcapng", "parquet"] {
        let file = Temporary(directory.join(format!("dormouse-day-{}.{format}", std::process::id())));
        let packets = make(&file.0, format, clients)?;
        let begin = Clocks::now();
        let (table, page) = report(&file.0, cores)?;
        let took = begin.elapsed();
        println!(
            "{format:<8} {clients} clients, {packets} packets: {:.2} s by the clock, {:.2} s of processor time on {cores} core(s): {:.2} s each; \
             table of {} bytes, page of {}",
            took.wall,
            took.cpu,
            took.cpu / cores as f64,
            table.len(),
            page.len()
        );
    }
    Ok(())
}

fn make(path: &Path, format: &str, clients: u32) -> Result<u64, Failure> {
    let population = Population::new(Recipe { clients, days: 1, seed: 1, start: 1_700_006_400 });
    let file = std::fs::File::create(path)?;
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    let packets = match format {
        "csv" => write::csv(population, &mut out)?,
        "pcapng" => write::pcapng(population, &mut out)?,
        _ => write::periods(population, out.get_ref().try_clone()?, 250_000_000)?,
    };
    std::io::Write::flush(&mut out)?;
    Ok(packets)
}

fn report(path: &Path, threads: usize) -> Result<(String, String), Failure> {
    let inputs = [Input::file(path)];
    let model = Profile::shipped("laptop-000").ok_or("the laptop ships with the program")?.model()?;
    let settings = Settings::new(model.sleep_cost(Resumption::MobikeThenTicket, 1));
    let policies = Options::policies(60.0);
    let options =
        Options { wanted: Vec::new(), format: None, spread: Spread::Even, settings, policies, threads };
    let survey = survey_all(&inputs, None, threads, &|_, _| ());
    let (directory, rule) = Directory::find(&survey.facts, &[]);
    let questions = Questions::new(settings, model, directory.clients());
    let watch = |client: &Client| Figures::new(&questions, client);
    let analysis = account(&inputs, survey, &directory, rule, &options, &|_, _| (), &watch, &mut |_| ())?;
    let accounting =
        json::Accounting { break_even: settings.cost.break_even(), min_idle: 0.25, wake_on: "all" };
    let report = json::Report::new(&analysis, accounting);
    let page = document(&report, charts::all(&analysis, &questions), "benchmark", ON_PAGE).html()?;
    let text = document(&report, Vec::new(), "benchmark", ON_TERMINAL).text();
    Ok((text + &serde_json::to_string(&report)?, page))
}
