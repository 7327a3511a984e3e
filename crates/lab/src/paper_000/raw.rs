//! The raw data of the experiment: each client a sample, each of its sessions a round, with its idle periods and what each policy paid for
//! them. Owns how traffic that was followed becomes a results file and comes back; must never follow a packet.
//!
//! Round 0 of a client is its whole recording as one session, in which absence counts as idle time. `periods` are the silences of a session
//! in their order. `cost.WHICH` has one block for each account of that kind: what a radio that never sleeps pays, what each policy pays,
//! what the clairvoyant pays. The policies' names stand in `settings`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use dormouse_energy::WakeOn;
use dormouse_energy::account::{ClientReport, Settings, Totals};
use dormouse_energy::model::{Model, Resumption};
use dormouse_energy::profile::Profile;
use dormouse_energy::schedule::{MIN_IDLE, TIME_OUTS};
use dormouse_report::duration;
use dormouse_trace::analyse::{Analysis, ClientResult};
use dormouse_trace::clients::{Client, Rule};
use dormouse_trace::fold::Sessions as Ends;
use dormouse_trace::report::charts;
use dormouse_trace::report::figures::{EXTREMES, Figures, LOADS, Ledgers, Questions, THRESHOLDS, Timeline};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::baselines::{ByOther, OTHERS, others};
use super::idle::{Session, Sessions};
use super::law;
use super::shares::{OfClient, Results as Followed};
use super::traffic::{Traffic, policies};
use super::{EXPERIMENT, LOAD, PROFILE, PROTOCOL};
use crate::campaign;
use crate::experiment::Context;
use crate::results::file::{MAX_BYTES, WriteError};
use crate::results::format::MAX_ROUNDS;
use crate::results::{self, ReadError, Results, Round, Sample};

/// A client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    client: String,
}

impl results::Point for Point {
    const EXPERIMENT: &'static str = EXPERIMENT.name;
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        ("packets", "count"),
        ("periods", "s"),
        // When the client sends; see `idle`.
        ("until_sent", "s"),
        ("stretch_periods", "count"),
        ("stretch_seconds", "s"),
        ("stretch_open", "count"),
        // By the policy that knows the law, as numbers of `settings.ages`; see `law`.
        ("chosen", "count"),
        // In seconds of idle radio; see the module.
        ("cost", "s"),
        // Idle periods above break-even in which the radio stayed on, by policy.
        ("missed", "count"),
        // What arrived while the radio was off and was not answered, and what the gateway answered: by proxy, then by policy.
        ("lost", "count"),
        ("proxied", "count"),
        // Of the two clients of Figure 2: the longest idle period of each column, and a column's width.
        ("timeline", "s"),
    ];

    fn label(&self) -> String {
        self.client.clone()
    }
}

/// How costs are counted.
pub(super) fn settings(model: Model, wake_on: WakeOn, session: Option<Duration>) -> Settings {
    Settings { session, wake_on, ..Settings::new(model.sleep_cost(PROTOCOL, LOAD)) }
}

/// The raw data of traffic that was followed.
pub(super) fn of(traffic: &Traffic, profile: Profile, context: &Context) -> Result<Results<Point>> {
    let cost = |r: Resumption, load| traffic.questions.model.break_even(r, load);
    let points = traffic.all.clients.iter().map(|c| Point { client: c.client.label.clone() });
    let mut raw = campaign::begun(campaign::Plan {
        name: context.plan().to_owned(),
        points: points.collect(),
        rounds: 0,
        seed: context.seed,
        settings: json!({
            "synthetic": traffic.synthetic,
            "traffic": traffic.words,
            "liveness_timeout": traffic.questions.model.liveness_timeout,
            "break_even": cost(PROTOCOL, LOAD),
            "shortest_idle": MIN_IDLE.as_secs_f64(),
            "session_ends_after": context.reading.silence(),
            "session_by": context.reading.session_by.name(),
            "reading": if context.recordings.is_empty() { json!({}) } else { context.reading.json() },
            "policies": policies().iter().map(|p| p.name()).collect::<Vec<_>>(),
            "time_outs": TIME_OUTS.map(|t| if t.is_finite() { json!(t) } else { json!("never") }),
            "optimum": traffic.questions.costs().map(|(r, load, _)| json!([r.name(), load, cost(r, load)])).collect::<Vec<_>>(),
            "thresholds": THRESHOLDS,
            "protocols_of_thresholds": EXTREMES.map(Resumption::name),
            "protocols": Resumption::ALL.map(|r| json!([r.name(), cost(r, LOAD)])),
            "loads": LOADS,
            "ages": if traffic.knows() { law::ages() } else { Vec::new() },
            "others": traffic.others.map(|o| json!([o.name, o.cost.break_even()])),
        }),
        skipped: Vec::new(),
    });
    raw.profiles.insert(profile.name.clone(), profile);
    let drawn: Vec<&Client> = charts::extremes(&traffic.all).iter().map(|(c, _)| &c.client).collect();
    for (n, (sample, all)) in raw.samples.iter_mut().zip(&traffic.all.clients).enumerate() {
        let outgoing = traffic.outgoing.clients.get(n).context("a client without packets")?;
        ensure!(outgoing.client == all.client, "{} and {}", outgoing.client.label, all.client.label);
        let idle = traffic.idle.get(n).map_or(&[][..], Vec::as_slice);
        sample.verified = true;
        fill(sample, all, outgoing, drawn.contains(&&all.client));
        let beside = [0, 1].map(|which: usize| traffic.beside[which].get(n).map_or(&[][..], Vec::as_slice));
        sample
            .rounds
            .iter_mut()
            .skip(1)
            .enumerate()
            .for_each(|(s, round)| more(round, idle.get(s), beside, s));
    }
    Ok(raw)
}

/// Writes them.
///
/// # Errors
/// When the file system refuses; when there are more sessions than a file can hold, with what helps.
pub(super) fn keep(raw: &Results<Point>, path: &Path) -> Result<()> {
    let helps = "without --out, by a longer --session, or in several recordings";
    let mut all = 0;
    for sample in &raw.samples {
        let sessions = sample.rounds.len().saturating_sub(1);
        all += sessions;
        ensure!(
            sessions < MAX_ROUNDS,
            "{} has {sessions} sessions, and raw data hold at most {} of a client: {helps}",
            sample.client,
            MAX_ROUNDS - 1
        );
    }
    raw.write(path).map_err(|error| match error {
        WriteError::Invalid(ReadError::TooLarge { bytes }) => anyhow!(
            "{}: {all} sessions make {bytes} bytes of raw data, and a file holds at most {MAX_BYTES}: {helps}",
            path.display()
        ),
        error => error.into(),
    })
}

fn fill(sample: &mut Sample<Point>, all: &OfClient, outgoing: &OfClient, drawn: bool) {
    let days = |c: &OfClient| costs([&c.days]);
    let mut whole =
        results::Figures::default().with_all("cost.all", days(all)).with_all("cost.outgoing", days(outgoing));
    if drawn {
        let line = &all.extra.timeline;
        whole = whole
            .with("timeline.width", std::time::Duration::from_nanos(line.width).as_secs_f64())
            .with_all("timeline", line.columns.iter().map(|(_, longest)| f64::from(*longest)));
    }
    sample.push(0, whole);
    let Ledgers { time_outs, optimum, .. } = &all.extra.results;
    let theirs = &outgoing.extra.results;
    for (s, session) in all.sessions.iter().enumerate() {
        let of = |ledgers: &[Vec<ClientReport>]| costs(ledgers.iter().filter_map(|l| l.get(s)));
        let missed =
            |o: &ClientReport| o.policies.iter().map(|(_, t)| t.missed_opportunities as f64).collect();
        let count = |number: fn(&Totals) -> u64| {
            let sessions = theirs.loss.iter().filter_map(|l| l.get(s)).flat_map(|o| &o.policies);
            sessions.map(|(_, t)| number(t) as f64).collect::<Vec<_>>()
        };
        let figures = [
            ("cost.all", costs([session])),
            ("cost.all.time-outs", of(time_outs)),
            ("cost.all.optimum", of(optimum)),
            ("cost.outgoing", costs(outgoing.sessions.get(s))),
            ("missed.outgoing", outgoing.sessions.get(s).map(missed).unwrap_or_default()),
            ("cost.outgoing.time-outs", of(&theirs.time_outs)),
            ("cost.outgoing.thresholds", of(&theirs.thresholds)),
            ("cost.outgoing.protocols", of(&theirs.protocols)),
            ("cost.outgoing.misjudged", of(&theirs.misjudged)),
            ("cost.outgoing.proxies", of(&theirs.loss)),
            ("lost", count(|t| t.packets_lost)),
            ("proxied", count(|t| t.packets_proxied)),
        ];
        let figures = figures.into_iter().filter(|(_, values)| !values.is_empty());
        let figures = figures.fold(results::Figures::default(), |f, (name, values)| f.with_all(name, values));
        sample
            .push(u32::try_from(s + 1).unwrap_or(u32::MAX), figures.with("packets", session.packets as f64));
    }
}

/// What a session has beside its accounts: its idle periods, and dormouse's scheduler against other baselines.
fn more(round: &mut Round, idle: Option<&Session>, beside: [&[Vec<ClientReport>]; 2], s: usize) {
    let Session { periods, until_sent, stretch_periods, stretch_seconds, open, chosen } =
        idle.cloned().unwrap_or_default();
    let [chosen_all, chosen_outgoing] = chosen.map(|of| of.into_iter().map(f64::from).collect());
    let [all, outgoing] = beside.map(|others| costs(others.iter().filter_map(|sessions| sessions.get(s))));
    let figures = [
        ("periods", periods),
        ("until_sent", until_sent),
        ("stretch_periods", stretch_periods.into_iter().map(|n| n as f64).collect()),
        ("stretch_seconds", stretch_seconds),
        ("stretch_open", open.then_some(1.0).into_iter().collect()),
        ("chosen.all", chosen_all),
        ("chosen.outgoing", chosen_outgoing),
        ("cost.all.others", all),
        ("cost.outgoing.others", outgoing),
    ];
    let figures = figures.into_iter().filter(|(_, values)| !values.is_empty());
    round.figures =
        figures.fold(core::mem::take(&mut round.figures), |f, (name, values)| f.with_all(name, values));
}

/// What [`more`] kept of a session's idle periods.
///
/// # Errors
/// If they do not fit together, as in a file of an earlier version.
fn idle(round: &Round) -> Result<Session> {
    let all = |name: &str| round.figures.all(name).to_vec();
    let (periods, until_sent, stretches) = (all("periods"), all("until_sent"), all("stretch_periods"));
    let stretch_seconds = all("stretch_seconds");
    ensure!(
        until_sent.len() == periods.len()
            && stretch_seconds.len() == stretches.len()
            && stretches.iter().all(|many| *many >= 1.0)
            && (stretches.iter().sum::<f64>() - periods.len() as f64).abs() < 0.5,
        "round {}: until_sent, stretch_periods and stretch_seconds are not those of its periods",
        round.round
    );
    let chosen = ["chosen.all", "chosen.outgoing"].map(|name| all(name).iter().map(|n| *n as u16).collect());
    let fit = |chosen: &Vec<u16>| chosen.is_empty() || chosen.len() == periods.len();
    ensure!(chosen.iter().all(fit), "round {}: chosen is not of its periods", round.round);
    let stretch_periods = stretches.into_iter().map(|many| many as usize).collect();
    let open = round.figures.one("stretch_open").is_some();
    Ok(Session { periods, until_sent, stretch_periods, stretch_seconds, open, chosen })
}

/// And of dormouse's scheduler against other baselines.
fn beside(sample: &Sample<Point>, which: &str) -> ByOther {
    let mut followed: ByOther = vec![Vec::new(); OTHERS];
    for round in sessions(sample) {
        let all = round.figures.all(&format!("cost.{which}.others"));
        followed.iter_mut().zip(all.chunks(3)).for_each(|(of, block)| of.push(account(block)));
    }
    followed
}

/// The blocks of accounts, one after the other.
fn costs<'a>(sessions: impl IntoIterator<Item = &'a ClientReport>) -> Vec<f64> {
    let block =
        |s: &'a ClientReport| std::iter::once(s.idle_cost).chain(s.policies.iter().map(|(_, t)| t.cost));
    sessions.into_iter().flat_map(block).collect()
}

/// The traffic of raw data, as it was followed.
///
/// # Errors
/// If the file lacks what the report needs.
pub(super) fn traffic(raw: &Results<Point>) -> Result<Traffic> {
    let profile = raw.profiles.get(PROFILE);
    let profile = profile.with_context(|| format!("the file does not have the profile {PROFILE}"))?;
    let model = profile.model()?;
    let words = |key: &str| -> Result<Vec<String>> {
        serde_json::from_value(raw.settings[key].clone()).with_context(|| format!("settings.{key}"))
    };
    let names: Vec<&'static str> = policies().iter().map(|p| p.name()).collect();
    ensure!(words("policies")? == names, "the file is of other policies than {}", names.join(", "));
    let clients: Vec<Client> = raw.samples.iter().map(client).collect();
    let (silence, _) = sessions_of(raw)?;
    let questions = Questions::new(settings(model, WakeOn::All, silence), model, &clients);
    let followed = |which: &str| -> Followed {
        let clients = raw.samples.iter().map(|sample| of_client(sample, which, &questions)).collect();
        let (rule, files, handed) = (Rule::Named.to_string(), Vec::new(), Vec::new());
        Analysis { clients, rule, files, packets: 0, unattributed: 0, late: 0, handed }
    };
    let idle = |s: &Sample<Point>| -> Result<Sessions> {
        sessions(s).map(idle).collect::<Result<_>>().with_context(|| s.client.clone())
    };
    Ok(Traffic {
        all: followed("all"),
        outgoing: followed("outgoing"),
        idle: raw.samples.iter().map(idle).collect::<Result<_>>()?,
        beside: ["all", "outgoing"].map(|which| raw.samples.iter().map(|s| beside(s, which)).collect()),
        others: others(profile)?,
        synthetic: raw.settings["synthetic"] == Value::Bool(true),
        words: words("traffic")?,
        questions,
    })
}

/// What ended a session: a silence longer than this, if any did, and what else.
///
/// # Errors
/// If the file has something else there.
fn sessions_of(raw: &Results<Point>) -> Result<(Option<Duration>, Ends)> {
    let silence = &raw.settings["session_ends_after"];
    let silence = match silence.as_str() {
        Some("never") => None,
        _ => {
            let seconds = silence.as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok());
            Some(seconds.with_context(|| format!("settings.session_ends_after: {silence}"))?)
        }
    };
    // Files of earlier versions do not say it: they knew nothing else.
    let by = raw.settings["session_by"].as_str().map_or(Ok(Ends::Silence), str::parse);
    Ok((silence, by.map_err(anyhow::Error::msg).context("settings.session_by")?))
}

/// The same in words.
///
/// # Errors
/// As [`sessions_of`].
pub(super) fn unit(raw: &Results<Point>) -> Result<String> {
    let (silence, by) = sessions_of(raw)?;
    let of = match by {
        Ends::Silence | Ends::Association => "a client's traffic",
        Ends::Connection => {
            "each connection that the input names (Zeek's uid, Suricata's flow_id), apart from the client's other traffic at the time"
        }
    };
    let silence = silence.map(|s| format!("a silence of more than {}", duration(s.as_secs_f64())));
    let joins = (by == Ends::Association)
        .then(|| "joining the network anew (802.11, or DHCP without an address)".to_owned());
    let ends: Vec<String> = silence.into_iter().chain(joins).collect();
    let ends = if ends.is_empty() { String::new() } else { format!(", ended by {}", ends.join(" or ")) };
    let ours = format!("{of}{ends}");
    Ok(format!(
        "The unit is the session: the paper's is a connection to the wireless network, ours {ours}, which is our choice. What the device \
         has learned lives on from one session to the next. In client-days, absence counts as idle time, and every policy saves it."
    ))
}

fn client(sample: &Sample<Point>) -> Client {
    Client::named(&sample.client)
}

fn sessions(sample: &Sample<Point>) -> impl Iterator<Item = &Round> {
    sample.rounds.iter().filter(|r| r.round > 0)
}

fn of_client(sample: &Sample<Point>, which: &str, questions: &Questions) -> OfClient {
    let mut ledgers = Ledgers::<Vec<ClientReport>>::default();
    let Ledgers { optimum, time_outs, loss, thresholds, protocols, misjudged } = &mut ledgers;
    let name = format!("cost.{which}");
    let mut kept = Vec::new();
    for round in sessions(sample) {
        kept.push(accounted(round, &name, which));
        let pairs = THRESHOLDS.len() * THRESHOLDS.len();
        for (into, kind, policies) in [
            (&mut *optimum, "optimum", 0),
            (time_outs, "time-outs", TIME_OUTS.len()),
            (thresholds, "thresholds", pairs),
            (protocols, "protocols", 3),
            (misjudged, "misjudged", LOADS.len()),
            (loss, "proxies", 2),
        ] {
            let all = round.figures.all(&format!("{name}.{kind}"));
            for (n, block) in all.chunks(policies + 2).enumerate() {
                if into.len() <= n {
                    into.push(Vec::new());
                }
                let mut session = account(block);
                if kind == "proxies" {
                    lost(&mut session, round, n * (policies + 1));
                }
                into.get_mut(n).into_iter().for_each(|ledger| ledger.push(session.clone()));
            }
        }
    }
    let whole = sample.rounds.iter().find(|r| r.round == 0).cloned().unwrap_or_default();
    let days = account(whole.figures.all(&name));
    let extra = Figures::of(questions, timeline(&whole), ledgers);
    ClientResult { client: client(sample), first: 0, last: 0, sessions: kept, days, extra }
}

/// A session under the policies of every report, with their names.
fn accounted(round: &Round, name: &str, which: &str) -> ClientReport {
    let mut session = account(round.figures.all(name));
    let names = policies().into_iter().map(|p| p.name()).chain(["clairvoyant"]);
    session.policies.iter_mut().zip(names).for_each(|(policy, name)| policy.0 = name);
    let missed = round.figures.all(&format!("missed.{which}"));
    let each = session.policies.iter_mut().zip(missed);
    each.for_each(|((_, totals), missed)| totals.missed_opportunities = *missed as u64);
    let periods = round.figures.all("periods");
    session.packets = round.figures.one("packets").unwrap_or_default() as u64;
    (session.idle_periods, session.idle_seconds) = (periods.len() as u64, periods.iter().sum());
    session
}

fn account(block: &[f64]) -> ClientReport {
    let (idle_cost, costs) = block.split_first().map_or((0.0, &[][..]), |(idle, costs)| (*idle, costs));
    let policies = costs.iter().map(|cost| ("", Totals { cost: *cost, ..Totals::default() })).collect();
    ClientReport { idle_cost, policies, ..ClientReport::default() }
}

/// What the policies of an account lost, from a place of the lists on.
fn lost(session: &mut ClientReport, round: &Round, from: usize) {
    for (n, (_, totals)) in session.policies.iter_mut().enumerate() {
        let at = |name: &str| round.figures.all(name).get(from + n).copied().unwrap_or_default() as u64;
        (totals.packets_lost, totals.packets_proxied) = (at("lost"), at("proxied"));
    }
}

fn timeline(whole: &Round) -> Timeline {
    let width = whole.figures.one("timeline.width").unwrap_or(1.0);
    let width = std::time::Duration::from_secs_f64(width).as_nanos();
    let columns = whole.figures.all("timeline").iter().map(|longest| (0, *longest as f32)).collect();
    Timeline { origin: 0, width: u64::try_from(width).unwrap_or(u64::MAX), columns }
}
