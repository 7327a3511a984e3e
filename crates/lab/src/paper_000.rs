//! Paper 000: "Saving Energy on WiFi with Required IPsec" (Shin, Myers, Gupta): Figures 2, 4, 5, 7, 8, 9, 11, 12 and the
//! headline claims. Its 3,098 recordings are not public: ours is other traffic, named in the report.

mod baselines;
mod buckets;
mod claims;
mod idle;
mod law;
mod raw;
mod recordings;
mod shares;
mod tables;
mod traffic;

use anyhow::{Context as _, ensure};
use dormouse_energy::WakeOn;
use dormouse_energy::model::Resumption;
use dormouse_energy::profile::Profile;
use dormouse_report::{Chart, Mark};
use dormouse_trace::report::charts;
use dormouse_trace::report::figures::{LOADS, Questions};

use crate::experiment::{Context, Exhibit, Experiment, Report, Source, Takes};
use crate::judge::stats::{Bootstrap, MIN_ROUNDS};
use crate::results::Results;
use raw::Point;
use recordings::Recordings;
use shares::{Results as Followed, Shares};
use traffic::Traffic;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-000",
    title: "Paper 000: what a sleeping radio saves under a VPN (Figures 2, 4, 5, 7, 8, 9, 11, 12)",
    source: Source::Traffic,
    takes: [Takes::measured(7), Takes::measured(50)],
    lacks: || None,
    run,
};

/// The load of the paper's headline figures.
const LOAD: u32 = 20;
/// The protocol that the paper recommends.
const PROTOCOL: Resumption = Resumption::MobikeThenTicket;

/// Whose figures the paper has.
const PROFILE: &str = "laptop-000";

fn run(context: &Context) -> anyhow::Result<Report> {
    let raw = context.results(made)?;
    report(&raw)
}

/// Follows the traffic.
fn made(context: &Context) -> anyhow::Result<Results<Point>> {
    ensure!(
        context.resume.is_none(),
        "{} measures nothing that could be resumed: it takes a minute or two",
        EXPERIMENT.name
    );
    let profile = Profile::shipped(PROFILE).context("the laptop of paper 000 ships with the program")?;
    let recordings = Recordings::new(&context.recordings);
    let traffic = Traffic::new(context, &profile)?;
    let mut raw = raw::of(&traffic, profile, context)?;
    raw.inputs = recordings.were_read(&traffic.all.files)?;
    if let Some(path) = &context.out {
        raw::keep(&raw, path)?;
    }
    Ok(raw)
}

fn report(raw: &Results<Point>) -> anyhow::Result<Report> {
    let traffic = raw::traffic(raw)?;
    let shares = Shares(Bootstrap::new(raw.seed));
    let rules = [WakeOn::All, WakeOn::Outgoing];
    let first_ages = rules.map(|wake_on| tables::FirstAges::new(&traffic, wake_on, shares));
    let splits = rules.map(|wake_on| tables::Splits::new(&traffic, wake_on, shares, raw.seed));
    let mut notes = [
        "The paper's recordings are not public: ours is the traffic named above.",
        "The paper's figures are not in its text as data: what is given here as the paper's are the numbers that its text states.",
        "Shares are of the sessions that were idle at all; the paper counts all connections. Its Figures 7 and 8 rest on 100 connections, ours on 100 clients with all their sessions.",
        "Of the maximum: the mean saving over sessions, over the clairvoyant's mean; the paper's \"over 90 %\" is one of these. Share of the clairvoyant: the energy saved in all sessions over what the clairvoyant saves; long sessions count for more.",
        "Intervals hold 95 %: a bootstrap of clients with all their sessions, the same clients for every policy. Figures of fewer than five clients have none.",
        "The constants of Dormouse's scheduler were chosen on synthetic populations of other seeds (docs/policy.md).",
        "The paper wakes the radio only for what the client sends, so that the scheduler is judged under that rule; a clairvoyant that is back for every packet stands beside.",
        "Today's background protocols are ARP, mDNS, SSDP, LLMNR, NetBIOS, NTP, IGMP and WS-Discovery.",
    ]
    .map(str::to_owned)
    .to_vec();
    notes.insert(2, raw::unit(raw)?);
    notes.push(buckets::note());
    notes.extend(baselines::notes(&traffic));
    if traffic.synthetic {
        notes.push("The synthetic background is made of just these protocols: how many sessions lose nothing where the gateway answers them says nothing about real networks.".to_owned());
    }
    let mut tables = tables::policies(&traffic, shares);
    tables.extend(first_ages.iter().map(tables::FirstAges::table));
    tables.push(tables::thresholds(&traffic, shares));
    tables.extend(splits.iter().map(tables::Splits::table));
    tables.extend(buckets::tables(&traffic, shares));
    tables.extend(baselines::tables(&traffic, shares));
    Ok(Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic: traffic.synthetic,
        traffic: traffic.words.clone(),
        claims: claims::all(&traffic, shares, &first_ages, &splits),
        tables,
        figures: figures(&traffic),
        notes,
        provenance: raw.into(),
    })
}

fn figures(traffic: &Traffic) -> Vec<Exhibit<Chart>> {
    // The page's charts by name, under the paper's numbers; whether online, where only what the client sends wakes.
    let places = [
        ("timeline-1", "Fig. 2", false),
        ("timeline-2", "Fig. 2", false),
        ("break-even", "Fig. 4", false),
        ("optimum-load-20", "Fig. 5", false),
        ("thresholds", "Fig. 7", true),
        ("scheduled-average", "Fig. 8a", true),
        ("scheduled", "Fig. 8b", true),
        ("misjudged", "Fig. 9", true),
        ("sessions", "Fig. 11", true),
        ("lost", "Fig. 11, as a distribution", true),
        ("missed", "Fig. 12", true),
    ];
    let [all, outgoing] =
        [&traffic.all, &traffic.outgoing].map(|results| charts::all(results, &traffic.questions));
    let named = |id: &str, online: bool| {
        let mut chart = (if online { &outgoing } else { &all }).iter().find(|c| c.id == id)?.clone();
        if online {
            chart.caption.push_str(" Only what the client sends wakes the radio.");
        }
        Some(chart)
    };
    let mut figures: Vec<Exhibit<Chart>> = places
        .iter()
        .filter_map(|(id, place, online)| Some(Exhibit::new(place, named(id, *online)?)))
        .collect();
    let at = figures.iter().position(|f| f.place == "Fig. 7").unwrap_or(figures.len());
    figures.insert(at, Exhibit::new("Fig. 5, claim", gaining(&traffic.all, &traffic.questions)));
    if !is_told(&traffic.outgoing) {
        figures.iter_mut().filter(|f| !OF_NO_SAMPLE.contains(&f.place.as_str())).for_each(|f| {
            f.shown.series.retain(|series| series.name == STATED);
            f.shown
                .caption
                .push_str(" Ours is not drawn: it is of too few clients to say anything of others.");
        });
    }
    figures
}

/// Figures that say nothing of clients in general: what two of them did, and break-even times, which follow from the device's own figures.
const OF_NO_SAMPLE: [&str; 2] = ["Fig. 2", "Fig. 4"];
/// The series of what the paper's text states.
const STATED: &str = "paper (stated)";

/// Whether there are clients enough for a claim: intervals are of clients with all their sessions.
fn is_told(results: &Followed) -> bool {
    let idle = results.clients.iter().filter(|c| c.sessions.iter().any(|s| s.idle_cost > 0.0));
    idle.count() >= MIN_ROUNDS
}

fn share(values: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    100.0 * values.iter().filter(|v| holds(**v)).count() as f64 / values.len().max(1) as f64
}

/// How many sessions gain at all, by protocol and load: the headline claim, with its paper value.
fn gaining(results: &Followed, questions: &Questions) -> Chart {
    let mut chart =
        Chart::new("gaining", "Sessions that gain at all", "clients at the gateway", "sessions, %");
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
    chart.add(STATED, 6, Mark::Stems, vec![(20.0, 78.0)]);
    chart
}
