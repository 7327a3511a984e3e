//! The charts of a report: one function for each, from an analysis to a [`Chart`]. Owns what is shown.

use super::figures::{BUCKETS, EXTREMES, Figures, LOADS, Ledgers, Questions, THRESHOLDS, bucket_start};
use crate::analyse::{Analysis, ClientResult};
use dormouse_energy::WakeOn;
use dormouse_energy::account::{ClientReport, Totals};
use dormouse_energy::model::{Model, Resumption};
use dormouse_energy::schedule::TIME_OUTS;
use dormouse_report::chart::{Chart, Mark, cdf};

type Results = Analysis<Figures>;

/// All charts, in the order of the page; those without data are left out.
#[must_use]
pub fn all(results: &Results, questions: &Questions) -> Vec<Chart> {
    let mut charts = timelines(results, questions);
    charts.push(idle_periods(results, questions));
    charts.push(policies(results));
    charts.extend(optimum(results, questions));
    charts.push(break_even(&questions.model));
    charts.push(scheduled(results));
    charts.push(cautious(results));
    charts.extend(thresholds(results));
    charts.push(misjudged(results));
    charts.push(missed(results));
    charts.push(lost(results));
    charts.push(scatter(results));
    charts.retain(|c| !c.is_empty());
    charts
}

/// What a policy (its number in the account) saved in percent in a session; `None` for one that was never idle.
#[must_use]
pub fn saved(session: &ClientReport, policy: usize) -> Option<f64> {
    let (_, totals) = session.policies.get(policy)?;
    (session.idle_cost > 0.0).then(|| 100.0 * totals.saved_fraction(session.idle_cost))
}

/// Where a saving stands in a chart: a session that was hardly idle can pay many times what it would have cost, without a bound.
const fn at_least(saved: f64) -> f64 {
    saved.max(-100.0)
}

/// What the captions say of it.
const CUT: &str = "What is below -100 % stands at -100 %.";

/// The sessions of all clients.
pub fn sessions(results: &Results) -> impl Iterator<Item = &ClientReport> + Clone {
    results.clients.iter().flat_map(|c| &c.sessions)
}

/// The fixed time-out that would have saved most, as a mean over the sessions of all clients: its number in [`TIME_OUTS`]. It is known
/// only afterwards.
#[must_use]
pub fn best_time_out(results: &Results) -> usize {
    let mean_of = |n: usize| mean(time_out_of(results, n).into_iter()).unwrap_or(0.0);
    let all = (0..TIME_OUTS.len()).map(|n| (n, mean_of(n)));
    all.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(TIME_OUTS.len() - 1, |best| best.0)
}

/// Each session's saving in percent under a fixed time-out, by its number in [`TIME_OUTS`].
#[must_use]
pub fn time_out_of(results: &Results, n: usize) -> Vec<f64> {
    let of = results.clients.iter().flat_map(|c| c.extra.results.time_outs.first().into_iter().flatten());
    of.filter_map(|session| saved(session, n)).collect()
}

fn count(n: u64) -> f64 {
    n as f64
}

/// The mean; `None` of nothing.
#[must_use]
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0u32), |(s, n), v| (s + v, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// A chart of the part of the sessions that have at most so much.
fn by_session(id: &str, title: &str, x: &str, caption: String) -> Chart {
    let mut chart = Chart::new(id, title, x, "sessions, %");
    (chart.y_range, chart.caption) = (Some((0.0, 102.0)), caption);
    chart
}

const SAVED: &str = "saved, % of the idle energy";

/// Two clients that differ most: that which gains most from sleeping, and that which gains least.
fn timelines(results: &Results, questions: &Questions) -> Vec<Chart> {
    let chosen = extremes(results).into_iter().enumerate();
    chosen.map(|(n, (client, why))| timeline(n, client, why, questions)).collect()
}

/// The clients of the timelines, each with what sets it apart.
#[must_use]
pub fn extremes(results: &Results) -> Vec<(&ClientResult<Figures>, &'static str)> {
    let gain = |c: &&ClientResult<Figures>| {
        let report = c.report();
        report.policy("clairvoyant").map_or(0.0, |t| t.saved_fraction(report.idle_cost))
    };
    // Of those that have something to show: half the idle time of the middle client, at least.
    let mut idle: Vec<f64> = results.clients.iter().map(|c| c.report().idle_seconds).collect();
    idle.sort_by(f64::total_cmp);
    let enough = idle.get(idle.len() / 2).map_or(0.0, |middle| middle / 2.0);
    let lively =
        results.clients.iter().filter(|c| c.report().idle_periods >= 20 && c.report().idle_seconds >= enough);
    let best = lively.clone().max_by(|a, b| gain(a).total_cmp(&gain(b)));
    let worst = lively.min_by(|a, b| gain(a).total_cmp(&gain(b)));
    let mut chosen: Vec<(&ClientResult<Figures>, &'static str)> = Vec::new();
    chosen.extend(best.or_else(|| results.clients.first()).map(|c| (c, "gains most")));
    chosen.extend(worst.filter(|w| Some(&w.client) != best.map(|b| &b.client)).map(|c| (c, "gains least")));
    chosen
}

/// What captions about idle periods say where not every packet ends one.
fn waking(questions: &Questions) -> &'static str {
    match questions.settings.wake_on {
        WakeOn::All => "",
        WakeOn::Outgoing => {
            " Only what the client sends wakes the radio: an idle period is what lies between two packets that it sends."
        }
    }
}

fn timeline(n: usize, client: &ClientResult<Figures>, why: &str, questions: &Questions) -> Chart {
    let line = &client.extra.timeline;
    let id = format!("timeline-{}", n + 1);
    let title = format!("Timeline of {} ({why})", client.client.label);
    let mut chart = Chart::new(&id, &title, "hours since the first packet", "longest idle period, s");
    let hours = |column: usize| count(column as u64 * line.width / 1_000_000_000) / 3600.0;
    let points = line.columns.iter().enumerate();
    let stems: Vec<(f64, f64)> =
        points.filter(|(_, c)| c.1 > 0.0).map(|(at, c)| (hours(at), f64::from(c.1))).collect();
    let end = hours(line.columns.len().max(1));
    let b = questions.settings.cost.break_even();
    chart.y_log = true;
    chart.x_range = Some((0.0, end));
    let longest = stems.iter().map(|p| p.1).fold(b, f64::max);
    chart.y_range = Some((0.1, longest * 1.5));
    chart.caption = format!(
        "The longest idle period that ended in each of {} columns. Where it is above the dashed line, the break-even time of {b:.1} s, \
         sleeping saves energy.",
        line.columns.len()
    );
    chart.caption.push_str(waking(questions));
    chart.add("idle period", 0, Mark::Stems, stems);
    chart.add("break-even", 1, Mark::Dashes, vec![(0.0, b), (end, b)]);
    chart
}

fn idle_periods(results: &Results, questions: &Questions) -> Chart {
    let mut chart = Chart::new(
        "idle-periods",
        "Where the idle time is",
        "length of the idle period, s",
        "part of all, % (cumulative)",
    );
    chart.x_log = true;
    chart.y_range = Some((0.0, 102.0));
    let counts: Vec<f64> = (0..BUCKETS)
        .map(|b| results.clients.iter().filter_map(|c| c.extra.histogram.get(b)).map(|n| f64::from(*n)).sum())
        .collect();
    let middle = |b: usize| bucket_start(b) * 0.125f64.exp2();
    let times: Vec<f64> = counts.iter().enumerate().map(|(b, n)| n * middle(b)).collect();
    let cumulative = |weights: &[f64]| {
        let total: f64 = weights.iter().sum();
        let last = weights.iter().rposition(|w| *w > 0.0).unwrap_or(0);
        let mut sum = 0.0;
        let points = weights.iter().enumerate().take(last + 1).filter(|_| total > 0.0);
        points
            .map(|(b, w)| {
                sum += w;
                (bucket_start(b + 1), 100.0 * sum / total)
            })
            .collect::<Vec<_>>()
    };
    let b = questions.settings.cost.break_even();
    chart.caption = format!(
        "Most idle periods are short, but most of the idle time is in long ones. Only what lies right of the break-even time \
         ({b:.1} s, dashed) can be slept through with profit."
    );
    chart.caption.push_str(waking(questions));
    chart.add("idle periods", 0, Mark::Line, cumulative(&counts));
    chart.add("idle time", 2, Mark::Line, cumulative(&times));
    chart.add("break-even", 1, Mark::Dashes, vec![(b, 0.0), (b, 100.0)]);
    chart
}

fn policies(results: &Results) -> Chart {
    let caption = format!(
        "The part of the sessions that save at most as much. A curve further to the right is better; left of zero a session pays for \
         sleeping. {CUT}"
    );
    let mut chart = by_session("policies", "Saving by policy", SAVED, caption);
    let names: Vec<&str> =
        sessions(results).next().map(|s| s.policies.iter().map(|p| p.0).collect()).unwrap_or_default();
    for (n, name) in names.into_iter().enumerate().filter(|(_, name)| *name != "never") {
        let values = sessions(results).filter_map(|s| saved(s, n)).map(at_least).collect();
        let mark = if name == "clairvoyant" { Mark::Dashes } else { Mark::Line };
        chart.add(name, n, mark, cdf(values));
    }
    let best = best_time_out(results);
    let values = time_out_of(results, best).into_iter().map(at_least).collect();
    let name = format!("best fixed time-out in hindsight ({:.2} s)", TIME_OUTS[best]);
    chart.add(&name, 6, Mark::Dashes, cdf(values));
    chart
}

/// Each session's clairvoyant saving in percent, for number `n` of [`Questions::costs`].
#[must_use]
pub fn optimum_of(results: &Results, n: usize) -> Vec<f64> {
    let of = results.clients.iter().flat_map(|c| c.extra.results.optimum.get(n).into_iter().flatten());
    of.filter_map(|session| saved(session, 0)).collect()
}

fn optimum(results: &Results, questions: &Questions) -> Vec<Chart> {
    LOADS
        .into_iter()
        .map(|load| {
            let id = format!("optimum-load-{load}");
            let title = format!("Clairvoyant saving by protocol, {load} clients at the gateway");
            let title = if load == 1 { title.replace("clients", "client") } else { title };
            let caption = "What is possible at best with each way to resume the session: the radio sleeps at once in every idle period \
                           that is long enough, and is back just in time.";
            let mut chart = by_session(&id, &title, SAVED, caption.to_owned());
            for (n, (resumption, at, _)) in questions.costs().enumerate() {
                if at == load {
                    chart.add(resumption.name(), n / LOADS.len(), Mark::Line, cdf(optimum_of(results, n)));
                }
            }
            chart
        })
        .collect()
}

/// Break-even time by protocol and load.
#[must_use]
pub fn break_even(model: &Model) -> Chart {
    let mut chart =
        Chart::new("break-even", "Break-even time by load", "clients at the gateway", "break-even time, s");
    chart.caption =
        "How long an idle period must be to be worth a sleep, from the device's figures.".to_owned();
    for (n, r) in
        [Resumption::HeldSa, Resumption::Mobike, Resumption::Ticket, Resumption::Full].into_iter().enumerate()
    {
        let points = (1..=20u32).map(|load| (f64::from(load), model.break_even(r, load))).collect();
        chart.add(r.name(), n, Mark::Line, points);
    }
    let high = model.break_even(Resumption::Full, 20);
    chart.x_range = Some((1.0, 20.0));
    chart.y_range = Some((0.0, high * 1.1));
    chart
}

/// Sessions of the clients of the sample in a ledger, if it is one of theirs.
fn sample<'a>(
    results: &'a Results,
    ledger: impl Fn(&'a Ledgers<Vec<ClientReport>>) -> Option<&'a Vec<ClientReport>> + 'a,
) -> impl Iterator<Item = &'a ClientReport> + 'a {
    results.clients.iter().filter_map(move |c| ledger(&c.extra.results)).flatten()
}

/// How many clients are in it.
fn sampled(results: &Results) -> usize {
    results.clients.iter().filter(|c| !c.extra.results.thresholds.is_empty()).count()
}

fn scheduled(results: &Results) -> Chart {
    let caption = format!(
        "As above, but without knowing the future: dormouse's scheduler and the paper's (alpha 0.5, beta 0.8), on a sample of {} clients. {CUT}",
        sampled(results)
    );
    let title = "Saving by protocol under an online scheduler, load 20";
    let mut chart = by_session("scheduled", title, SAVED, caption);
    for (n, r) in Resumption::ALL.into_iter().enumerate().filter(|(_, r)| *r != Resumption::HeldSa) {
        for (policy, name, mark) in [(2, "dormouse", Mark::Line), (1, "paper", Mark::Dashes)] {
            let values = scheduled_of(results, n, policy).into_iter().map(at_least).collect();
            chart.add(&format!("{} {name}", r.name()), n, mark, cdf(values));
        }
    }
    chart
}

/// The saving in percent of each session of a sampled client, at load 20 with a protocol (its number in [`Resumption::ALL`]): policy 0 is `paper` with
/// alpha 0.8 and beta 0.5, 1 with 0.5 and 0.8, 2 `dormouse`.
#[must_use]
pub fn scheduled_of(results: &Results, protocol: usize, policy: usize) -> Vec<f64> {
    sample(results, |r| r.protocols.get(protocol)).filter_map(|s| saved(s, policy)).collect()
}

fn cautious(results: &Results) -> Chart {
    let caption = format!(
        "The paper's scheduler with alpha 0.8 and beta 0.5 at load 20, on a sample of {} clients: it asks much of the client's own history \
         and little of the average user's. Left of zero a session pays for sleeping. {CUT}",
        sampled(results)
    );
    let title = "The same where the average user is trusted too early";
    let mut chart = by_session("scheduled-average", title, SAVED, caption);
    for (n, r) in Resumption::ALL.into_iter().enumerate().filter(|(_, r)| *r != Resumption::HeldSa) {
        let values = scheduled_of(results, n, 0).into_iter().map(at_least).collect();
        chart.add(r.name(), n, Mark::Line, cdf(values));
    }
    chart
}

/// Saving and losses of each session where only what the client sends wakes the radio.
fn scatter(results: &Results) -> Chart {
    let mut chart = Chart::new(
        "sessions",
        "Saving and lost packets, session by session",
        "saved, % of the idle energy",
        "packets lost (none: 0.5)",
    );
    chart.y_log = true;
    chart.caption = format!(
        "One dot for each session of the sample, dormouse's scheduler: to the right is more saving, further down are fewer lost packets; \
         without a proxy, and with the paper's. {CUT}"
    );
    let of = |session: &ClientReport, proxied: bool| {
        let (_, totals) = session.policies.get(1)?;
        let lost = totals.packets_lost + if proxied { 0 } else { totals.packets_proxied };
        Some((at_least(saved(session, 1)?), count(lost).max(0.5)))
    };
    let mut highest = 10f64;
    for (n, (name, proxied)) in [("no proxy", false), ("paper's proxy", true)].into_iter().enumerate() {
        let points: Vec<_> = sample(results, |r| r.loss.first()).filter_map(|s| of(s, proxied)).collect();
        highest = points.iter().map(|p| p.1).fold(highest, f64::max);
        chart.add(name, n, Mark::Points, points);
    }
    chart.y_range = Some((0.4, highest * 1.5));
    chart
}

/// Mean saving in percent on the sample, by protocol of [`EXTREMES`], alpha and beta.
#[must_use]
pub fn threshold_means(results: &Results) -> Vec<(Resumption, f64, f64, f64)> {
    let mut out = Vec::new();
    for (e, r) in EXTREMES.into_iter().enumerate() {
        for (a, alpha) in THRESHOLDS.into_iter().enumerate() {
            for (b, beta) in THRESHOLDS.into_iter().enumerate() {
                let at = a * THRESHOLDS.len() + b;
                let values = sample(results, |r| r.thresholds.get(e)).filter_map(|s| saved(s, at));
                out.extend(mean(values).map(|m| (r, alpha, beta, m)));
            }
        }
    }
    out
}

fn thresholds(results: &Results) -> Option<Chart> {
    let means = threshold_means(results);
    let (low, high) =
        means.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), m| (l.min(m.3), h.max(m.3)));
    let mut chart =
        Chart::new("thresholds", "The paper's thresholds", "beta", "mean saving, % of the idle energy");
    chart.caption = format!(
        "Mean saving of the paper's scheduler at load 20, by alpha (own history) and beta (average user), on a sample of {} clients.",
        sampled(results)
    );
    chart.x_range = Some((0.48, 0.82));
    chart.y_range =
        (high >= low).then_some((low - (high - low) * 0.2 - 0.1, high + (high - low) * 0.2 + 0.1));
    for r in EXTREMES {
        for (n, alpha) in THRESHOLDS.into_iter().enumerate() {
            let points = means.iter().filter(|m| m.0 == r && m.1 == alpha).map(|m| (m.2, m.3)).collect();
            let mark = if r == Resumption::Full { Mark::Dashes } else { Mark::Line };
            chart.add(&format!("{}, alpha {alpha}", r.name()), n, mark, points);
        }
    }
    (!means.is_empty()).then_some(chart)
}

/// Mean saving in percent on the sample, by true and believed load.
#[must_use]
pub fn misjudged_means(results: &Results) -> Vec<(u32, u32, f64)> {
    let mut out = Vec::new();
    for (t, truth) in LOADS.into_iter().enumerate() {
        for (b, believed) in LOADS.into_iter().enumerate() {
            let values = sample(results, |r| r.misjudged.get(t)).filter_map(|s| saved(s, b));
            out.extend(mean(values).map(|m| (truth, believed, m)));
        }
    }
    out
}

fn misjudged(results: &Results) -> Chart {
    let means = misjudged_means(results);
    let mut chart = Chart::new(
        "misjudged",
        "When the client misjudges the gateway's load",
        "load that the client believes",
        "mean saving, %",
    );
    chart.caption = "Mean saving of the paper's scheduler with MOBIKE and tickets, by the true load (line) and the believed one: flat lines \
                     mean that a wrong belief costs little."
        .to_owned();
    chart.categories = LOADS.iter().map(u32::to_string).collect();
    chart.x_range = Some((-0.3, 2.3));
    let (low, high) =
        means.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), m| (l.min(m.2), h.max(m.2)));
    chart.y_range = (high >= low).then_some((low - 2.0, high + 2.0));
    for (n, truth) in LOADS.into_iter().enumerate() {
        let of =
            means.iter().filter(|m| m.0 == truth).zip(0u32..).map(|(m, x)| (f64::from(x), m.2)).collect();
        chart.add(&format!("true load {truth}"), n, Mark::Line, of);
    }
    chart
}

fn missed(results: &Results) -> Chart {
    let caption = "For each session, how often a policy left the radio on although sleeping would have paid.";
    let x = "idle periods above break-even spent awake";
    let mut chart = by_session("missed", "Missed opportunities", x, caption.to_owned());
    for (n, name) in ["break-even", "paper", "dormouse"].into_iter().enumerate() {
        chart.add(name, n, Mark::Line, cdf(missed_of(results, name)));
    }
    chart
}

/// How often a policy missed an opportunity, in each session.
#[must_use]
pub fn missed_of(results: &Results, policy: &str) -> Vec<f64> {
    sessions(results).filter_map(|s| s.policy(policy)).map(|t| count(t.missed_opportunities)).collect()
}

/// Packets lost in each session of the larger sample: policy (0 `paper`, 1 `dormouse`), without a proxy, with the paper's or with today's.
#[must_use]
pub fn losses(results: &Results, policy: usize, proxy: usize) -> Vec<f64> {
    let ledger = usize::from(proxy == 2);
    let of = |(_, t): &(_, Totals)| t.packets_lost + if proxy == 0 { t.packets_proxied } else { 0 };
    sample(results, move |r| r.loss.get(ledger))
        .filter_map(|s| s.policies.get(policy))
        .map(of)
        .map(count)
        .collect()
}

fn lost(results: &Results) -> Chart {
    let sessions = losses(results, 0, 0).len();
    let caption = format!(
        "On a sample of {sessions} sessions. Only what the client sends wakes the radio; what arrives meanwhile is lost unless the gateway answers in its place: \
                     nothing of it (no proxy), what the paper's proxy answers (DHCP, DNS, MICROSOFT-DS), or what one answers that also knows ARP, mDNS, SSDP, LLMNR, NetBIOS, NTP, \
                     IGMP and WS-Discovery. The x axis is logarithmic from 1; zero is drawn at 0.5."
    );
    let mut chart = by_session("lost", "Packets lost while asleep", "packets lost", caption);
    chart.x_log = true;
    let mut highest = 10f64;
    for (policy, name, mark) in [(0, "paper", Mark::Dashes), (1, "dormouse", Mark::Line)] {
        for (proxy, answers) in ["no proxy", "paper's proxy", "today's proxy"].into_iter().enumerate() {
            let values: Vec<f64> = losses(results, policy, proxy).into_iter().map(|v| v.max(0.5)).collect();
            highest = values.iter().copied().fold(highest, f64::max);
            let mut points = vec![(0.5, 0.0)];
            points.extend(cdf(values));
            points.push((f64::INFINITY, 100.0));
            chart.add(&format!("{name}, {answers}"), proxy, mark, points);
        }
    }
    chart.x_range = Some((0.45, highest * 1.2));
    for series in &mut chart.series {
        series.points.iter_mut().for_each(|p| p.0 = p.0.min(highest * 1.2));
    }
    chart
}
