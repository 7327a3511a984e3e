//! Paper 000: "Saving Energy on WiFi with Required IPsec" (Shin, Myers, Gupta): Figures 2, 4, 5, 7, 8, 9, 11, 12 and the
//! headline claims. Its 3,098 recordings are not public: ours is other traffic, named in the report.

use anyhow::Context as _;
use dormouse_energy::account::{SESSION, Settings};
use dormouse_energy::model::Resumption;
use dormouse_energy::profile::Profile;
use dormouse_report::{Chart, Mark};
use dormouse_trace::analyse::{Analysis, Options, account, survey_all};
use dormouse_trace::clients::{Client, Directory};
use dormouse_trace::flow::Spread;
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::input::Input;
use dormouse_trace::report::charts;
use dormouse_trace::report::figures::{Figures, LOADS, Questions};

use crate::experiment::{Context, Exhibit, Experiment, Report};
use crate::judge::Claim;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-000",
    title: "Paper 000: what a sleeping radio saves under a VPN (Figures 2, 4, 5, 7, 8, 9, 11, 12)",
    needs: None,
    root: false,
    run,
};

/// The load of the paper's headline figures.
const LOAD: u32 = 20;
/// Synthetic clients, unless told otherwise: about as many as the paper's day has.
const CLIENTS: u32 = 3_000;
/// The protocol that the paper recommends.
const PROTOCOL: Resumption = Resumption::MobikeThenTicket;

type Results = Analysis<Figures>;

fn run(context: &Context) -> anyhow::Result<Report> {
    let made = if context.recordings.is_empty() { Some(Made::new(context)?) } else { None };
    let inputs: Vec<Input> = match &made {
        Some(made) => vec![Input::file(&made.path)],
        None => context.recordings.iter().map(|p| Input::file(p)).collect(),
    };
    let model =
        Profile::shipped("laptop-000").context("the laptop of paper 000 ships with the program")?.model()?;
    let settings = Settings { session: Some(SESSION), ..Settings::new(model.sleep_cost(PROTOCOL, LOAD)) };
    let threads = context.threads.max(1);
    let policies = Options::policies(60.0);
    let options =
        Options { wanted: Vec::new(), format: None, spread: Spread::Even, settings, policies, threads };
    let survey = survey_all(&inputs, None, threads, &|_, _| ());
    let (directory, rule) = Directory::find(&survey.facts, &[]);
    let questions = Questions::new(settings, model, directory.clients());
    let watch = |client: &Client| Figures::new(&questions, client);
    let results = account(&inputs, survey, &directory, rule, &options, &|_, _| (), &watch, &mut |_| ())?;
    let synthetic = results.files.iter().any(|f| f.synthetic.is_some());
    let losses: u64 = results.files.iter().map(|f| f.losses.total()).sum();
    let mut notes = vec![
        "The paper's figures are not in its text as data: what is given here as the paper's are the numbers that its text states.".to_owned(),
        "The paper counts only what the client sends as a wake; here every packet wakes, except in Figure 11.".to_owned(),
        "The average user's history is the one that ships with the program, not one made from this traffic.".to_owned(),
        "The paper's recordings are not public: ours are other clients. A session ends where a client is silent for more than an hour; what its device has learned lives on.".to_owned(),
        "Today's background protocols are ARP, mDNS, SSDP, LLMNR, NetBIOS, NTP, IGMP and WS-Discovery.".to_owned(),
    ];
    if synthetic {
        notes.push("The synthetic background is made of just these protocols: how many clients lose nothing where the gateway answers them says nothing about real networks.".to_owned());
    }
    if losses > 0 {
        notes.push(format!("{losses} stretches of the recordings could not be read: see dormouse trace"));
    }
    Ok(Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic,
        traffic: traffic(&results),
        claims: claims(&results, &questions),
        tables: Vec::new(),
        figures: figures(&results, &questions),
        notes,
    })
}

/// A synthetic population in a temporary file that goes when the experiment ends.
struct Made {
    path: std::path::PathBuf,
}

impl Made {
    fn new(context: &Context) -> anyhow::Result<Self> {
        let name = format!("dormouse-lab-{}-{}.csv", std::process::id(), context.seed);
        let made = Self { path: std::env::temp_dir().join(name) };
        // Never through a link or over a file that is there already.
        let file = std::fs::File::create_new(&made.path);
        let file = file.with_context(|| made.path.display().to_string())?;
        let clients = context.clients.unwrap_or(CLIENTS);
        let recipe = Recipe { clients, days: 1, seed: context.seed, start: 1_700_006_400 };
        let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
        write::csv(Population::new(recipe), &mut out)?;
        std::io::Write::flush(&mut out)?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn traffic(results: &Results) -> Vec<String> {
    let of = |f: &dormouse_trace::survey::FileSurvey| match &f.synthetic {
        Some(words) => words.clone(),
        None => format!("{}: {} records, recorded", f.name, f.records),
    };
    let mut lines: Vec<String> = results.files.iter().map(of).collect();
    let (sessions, packets) =
        charts::sessions(results).fold((0u64, 0u64), |(n, packets), s| (n + 1, packets + s.packets));
    lines.push(format!(
        "{} clients in {sessions} sessions with {packets} packets ({})",
        results.clients.len(),
        results.rule
    ));
    lines.push(
        "The paper: one day of 3,098 connections to the wireless network of Indiana University, as NetFlow"
            .to_owned(),
    );
    lines
}

fn percent_of(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

fn share(values: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    percent_of(values.iter().filter(|v| holds(**v)).count(), values.len())
}

/// Each session's saving in percent under a policy of the report.
fn saved_by(results: &Results, policy: &str) -> Vec<f64> {
    let idle = charts::sessions(results).filter(|s| s.idle_cost > 0.0);
    idle.filter_map(|s| Some(100.0 * s.policy(policy)?.saved_fraction(s.idle_cost))).collect()
}

fn claims(results: &Results, questions: &Questions) -> Vec<Claim> {
    let at = questions.costs().position(|(r, load, _)| r == PROTOCOL && load == LOAD).unwrap_or(0);
    let optimum = charts::optimum_of(results, at);
    let (paper, ours) = (saved_by(results, "paper"), saved_by(results, "dormouse"));
    let mean = |v: &[f64]| charts::mean(v.iter().copied()).unwrap_or(0.0);
    let of_maximum = |v: &[f64]| 100.0 * mean(v) / mean(&optimum).max(f64::MIN_POSITIVE);
    let mut claims = vec![
        Claim::new(
            "section 3.4",
            "Connections that gain at all, clairvoyant, 20 clients at the gateway",
            "78 %",
            format!("{:.1} %", share(&optimum, |v| v > 0.0)),
        ),
        Claim::new(
            "sections 3.5 and 6",
            "Connections that save 20 % or more of their idle energy with an online scheduler",
            "more than 50 %",
            format!(
                "{:.1} % with the paper's scheduler, {:.1} % with dormouse's",
                share(&paper, |v| v >= 20.0),
                share(&ours, |v| v >= 20.0)
            ),
        ),
    ];
    claims.extend(best_thresholds(results).map(|(alpha, beta, best, theirs)| {
        Claim::new(
            "section 3.5",
            "Best thresholds",
            "alpha 0.5, beta 0.8",
            format!("alpha {alpha}, beta {beta} (mean saving {best:.2} %; 0.5 and 0.8 give {theirs:.2} %)"),
        )
    }));
    claims.push(Claim::new(
        "section 3.5",
        "Distance of the online scheduler from the optimum",
        "within 3.5 points, over 90 % of the maximum",
        format!(
            "paper's scheduler {:.1} points, {:.1} % of the maximum; dormouse's {:.1} points, {:.1} %",
            mean(&optimum) - mean(&paper),
            of_maximum(&paper),
            mean(&optimum) - mean(&ours),
            of_maximum(&ours)
        ),
    ));
    for (proxy, place, what, theirs) in [
        (
            0,
            "section 3.5, Fig. 11",
            "Clients without a lost packet, where the gateway does not answer for them",
            "60 %",
        ),
        (
            1,
            "section 3.5, Fig. 11",
            "Clients without a lost packet, gateway answering DHCP, DNS and MICROSOFT-DS",
            "70 %",
        ),
    ] {
        let free = |policy: usize| share(&charts::losses(results, policy, proxy), |lost| lost < 0.5);
        let ours = format!("{:.1} % with the paper's scheduler, {:.1} % with dormouse's", free(0), free(1));
        claims.push(Claim::new(place, what, theirs, ours));
    }
    claims.extend(penalties(results));
    let modern = share(&charts::losses(results, 1, 2), |lost| lost < 0.5);
    claims.push(Claim::new(
        "not in the paper",
        "The same with a gateway that knows today's background protocols",
        "–",
        format!("{modern:.1} % with dormouse's scheduler"),
    ));
    let missed = charts::missed_of(results, "paper");
    claims.push(Claim::new(
        "section 3.5, Fig. 12",
        "Sessions with fewer than ten missed opportunities",
        "90 %",
        format!("{:.1} %", share(&missed, |m| m < 10.0)),
    ));
    claims
}

/// Who pays for sleeping (Fig. 8).
fn penalties(results: &Results) -> Vec<Claim> {
    let loses = |protocol: Resumption, policy: usize| {
        let number = Resumption::ALL.iter().position(|r| *r == protocol).unwrap_or(0);
        share(&charts::scheduled_of(results, number, policy), |v| v < 0.0)
    };
    let claim = |place: &str, what: &str, paper: &str, policy: usize| {
        let ours = format!(
            "{:.1} % with full IKEv2, {:.1} % with MOBIKE and tickets (dormouse's scheduler {:.1} % and {:.1} %)",
            loses(Resumption::Full, policy),
            loses(PROTOCOL, policy),
            loses(Resumption::Full, 2),
            loses(PROTOCOL, 2)
        );
        Claim::new(place, what, paper, ours)
    };
    vec![
        claim(
            "section 3.5, Fig. 8a",
            "Clients that pay for sleeping at alpha 0.8, beta 0.5",
            "less than 15 %",
            0,
        ),
        claim("section 3.5, Fig. 8b", "The same at alpha 0.5, beta 0.8", "around 2 %, with IKEv2", 1),
    ]
}

/// The best pair of thresholds for the recommended protocol, its mean saving, and that of the paper's pair.
fn best_thresholds(results: &Results) -> Option<(f64, f64, f64, f64)> {
    let means = charts::threshold_means(results);
    let of = || means.iter().filter(|m| m.0 == PROTOCOL);
    let best = of().max_by(|a, b| a.3.total_cmp(&b.3))?;
    let theirs = of().find(|m| (m.1 - 0.5).abs() < 1e-9 && (m.2 - 0.8).abs() < 1e-9)?;
    Some((best.1, best.2, best.3, theirs.3))
}

fn figures(results: &Results, questions: &Questions) -> Vec<Exhibit<Chart>> {
    // The page's charts by name, under the paper's numbers.
    let places = [
        ("timeline-1", "Fig. 2"),
        ("timeline-2", "Fig. 2"),
        ("break-even", "Fig. 4"),
        ("optimum-load-20", "Fig. 5"),
        ("thresholds", "Fig. 7"),
        ("scheduled-average", "Fig. 8a"),
        ("scheduled", "Fig. 8b"),
        ("misjudged", "Fig. 9"),
        ("sessions", "Fig. 11"),
        ("lost", "Fig. 11, as a distribution"),
        ("missed", "Fig. 12"),
    ];
    let all = charts::all(results, questions);
    let named = |id: &str| all.iter().find(|c| c.id == id).cloned();
    let mut figures: Vec<Exhibit<Chart>> =
        places.iter().filter_map(|(id, place)| Some(Exhibit::new(place, named(id)?))).collect();
    let at = figures.iter().position(|f| f.place == "Fig. 7").unwrap_or(figures.len());
    figures.insert(at, Exhibit::new("Fig. 5, claim", gaining(results, questions)));
    figures
}

/// How many clients gain at all, by protocol and load: the headline claim, with its paper value.
fn gaining(results: &Results, questions: &Questions) -> Chart {
    let mut chart = Chart::new("gaining", "Clients that gain at all", "clients at the gateway", "clients, %");
    chart.caption = "By protocol and load, clairvoyant; the paper states 78 % at load 20.".to_owned();
    chart.x_range = Some((0.0, 21.0));
    chart.y_range = Some((0.0, 102.0));
    for (n, r) in Resumption::ALL.into_iter().enumerate() {
        let of = |load: u32| questions.costs().position(|(q, l, _)| q == r && l == load).unwrap_or(0);
        let points = LOADS
            .into_iter()
            .map(|load| (f64::from(load), share(&charts::optimum_of(results, of(load)), |v| v > 0.0)))
            .collect();
        chart.add(r.name(), n, Mark::Line, points);
    }
    chart.add("paper (stated)", 6, Mark::Stems, vec![(20.0, 78.0)]);
    chart
}
