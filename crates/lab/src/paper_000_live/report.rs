//! What came out, beside what the paper says. Owns the words and the arithmetic of the comparison; must never show a figure
//! without saying whether it was measured here.

use dormouse_energy::model::{Exchange, Latency, Model};
use dormouse_report::{Chart, Mark, digits};
use dormouse_testbed::crowd::Task;
use dormouse_trace::report::charts;

use super::campaign::{Burst, Outcome, Plan, WAYS};
use super::{EXPERIMENT, PROFILE};
use crate::experiment::{Figure, Report, Table};
use crate::judge::stats::{Bootstrap, Estimate, Mean, median, quantile};
use crate::judge::{Claim, Finding};
use crate::results::format::Machine;

/// The most clients of the paper: beyond, its figures say nothing.
const PAPER_MOST: usize = 20;

fn name(way: Task) -> &'static str {
    match way {
        Task::Full => "full exchange",
        Task::Strict => "ticket, RFC 5723",
        Task::Quick => "ticket, one round trip",
        Task::Update => "MOBIKE",
        Task::Held => "held SA",
    }
}

/// All bursts of one way and size.
struct Cell<'a> {
    bursts: Vec<&'a Burst>,
    bootstrap: Bootstrap,
}

impl Cell<'_> {
    /// The median over bursts of the median over clients, in milliseconds.
    fn estimate(&self, of: impl Fn(&Burst) -> &[f64]) -> Option<Estimate> {
        let medians: Vec<f64> = self.bursts.iter().filter_map(|b| median(of(b))).collect();
        self.bootstrap.median(&medians)
    }

    /// Nineteen of twenty clients had it within so many milliseconds, all bursts together.
    fn most(&self, of: impl Fn(&Burst) -> &[f64]) -> Option<f64> {
        quantile(&self.all(of), 0.95)
    }

    fn mean(&self, of: impl Fn(&Burst) -> &[f64]) -> Option<f64> {
        Mean::of(&self.all(of)).map(|m| m.mean)
    }

    fn all(&self, of: impl Fn(&Burst) -> &[f64]) -> Vec<f64> {
        self.bursts.iter().flat_map(|b| of(b).iter().copied()).collect()
    }

    fn sum(&self, of: impl Fn(&Burst) -> u64) -> u64 {
        self.bursts.iter().map(|b| of(b)).sum()
    }

    fn clients(&self) -> f64 {
        self.bursts.iter().map(|b| b.size as f64).sum()
    }
}

/// The exchange of a burst, as the break-even model wants it.
fn ready(burst: &Burst) -> &[f64] {
    &burst.ready
}

/// The first answer through the tunnel.
fn answered(burst: &Burst) -> &[f64] {
    &burst.answered
}

struct Writer<'a> {
    plan: &'a Plan,
    outcome: &'a Outcome,
    model: &'a Model,
    seed: u64,
}

/// The report.
pub(super) fn of(plan: &Plan, outcome: &Outcome, model: &Model, machine: &Machine, seed: u64) -> Report {
    let writer = Writer { plan, outcome, model, seed };
    let mut obtained = vec![
        format!("{} ({} cores), {}", machine.cpu, machine.cores, machine.kernel),
        "one dormoused in a network namespace with its default configuration, RSA-2048 certificates, AES-GCM and X25519; \
         clients in another, one IKE endpoint and one UDP socket with an address for each"
            .to_owned(),
        format!(
            "{} bursts, {} exchanges and first packets, each of them answered",
            outcome.bursts.len(),
            outcome.bursts.iter().map(|b| b.size).sum::<usize>()
        ),
    ];
    if let Some(hypervisor) = &machine.hypervisor {
        obtained.push(format!("a virtual machine ({hypervisor}): ratios hold, absolute figures may not"));
    }
    Report {
        name: EXPERIMENT.name.to_owned(),
        title: EXPERIMENT.title.to_owned(),
        synthetic: false,
        traffic: obtained,
        claims: writer.claims(),
        tables: vec![
            writer.latencies(
                "Fig. 10",
                "Until the session is back, ms: median [interval], 95th percentile",
                ready,
            ),
            writer.latencies(
                "Fig. 10, to the first packet",
                "Until the first answer came through the tunnel, ms: median [interval], 95th percentile",
                answered,
            ),
            writer.costs(),
            writer.load(),
            writer.break_even_table(),
        ],
        figures: vec![
            Figure { place: "Fig. 4".to_owned(), chart: writer.break_even() },
            Figure { place: "Fig. 10".to_owned(), chart: writer.latency_chart() },
        ],
        notes: writer.notes(),
    }
}

impl Writer<'_> {
    fn cell(&self, way: Task, size: usize) -> Cell<'_> {
        let bursts = self.outcome.bursts.iter().filter(|b| b.way == way && b.size == size).collect();
        Cell { bursts, bootstrap: Bootstrap::new(self.seed) }
    }

    /// The median in milliseconds.
    fn ready(&self, way: Task, size: usize) -> Option<f64> {
        self.cell(way, size).estimate(ready).map(|e| e.median)
    }

    /// Way and exchange of the profile that it stands for; a held SA needs none.
    fn profile(&self, way: Task) -> Exchange {
        let exchanges = &self.model.exchanges;
        match way {
            Task::Full => exchanges.full,
            Task::Strict | Task::Quick => exchanges.ticket,
            Task::Update => exchanges.mobike,
            Task::Held => Exchange::default(),
        }
    }

    /// Eq. 3 with a measured latency in milliseconds, and the profile's energy.
    fn break_even_at(&self, way: Task, millis: f64) -> f64 {
        let time = Latency { alone: millis / 1e3, per_client: 0.0 };
        self.model.break_even_with(Exchange { time, ..self.profile(way) }, 1)
    }

    /// The same with the profile's latency, where the paper has any.
    fn paper_break_even(&self, way: Task, size: usize) -> Option<f64> {
        let load = u32::try_from(size).ok().filter(|_| size <= PAPER_MOST)?;
        Some(self.model.break_even_with(self.profile(way), load))
    }

    fn latencies(&self, place: &str, title: &str, of: fn(&Burst) -> &[f64]) -> Table {
        let mut head = vec!["clients".to_owned()];
        head.extend(WAYS.iter().map(|w| name(*w).to_owned()));
        let cell = |way, size| {
            let cell = self.cell(way, size);
            let (estimate, most) = (cell.estimate(of)?, cell.most(of)?);
            if estimate.median == 0.0 {
                return Some("no exchange".to_owned());
            }
            let [median, low, high, most] = [estimate.median, estimate.low, estimate.high, most].map(digits);
            Some(format!("{median} [{low}, {high}], {most}"))
        };
        let row = |size: &usize| {
            let cells = WAYS.iter().map(|way| cell(*way, *size).unwrap_or_else(|| "–".to_owned()));
            std::iter::once(size.to_string()).chain(cells).collect()
        };
        Table {
            place: place.to_owned(),
            title: title.to_owned(),
            head,
            rows: self.plan.sizes.iter().map(row).collect(),
        }
    }

    /// What each cost both ends, and what was lost.
    fn costs(&self) -> Table {
        let head = [
            "clients",
            "way",
            "round trips",
            "gateway CPU, ms each",
            "clients CPU, ms each",
            "IKE repeated",
            "pings repeated",
        ];
        let row = |size: usize, way: Task| {
            let cell = self.cell(way, size);
            let each = |sum: f64| digits(sum / cell.clients().max(1.0));
            let cpu = |of: fn(&Burst) -> f64| each(cell.bursts.iter().map(|b| of(b)).sum());
            vec![
                size.to_string(),
                name(way).to_owned(),
                each(cell.sum(|b| b.round_trips) as f64),
                cpu(|b| b.gateway_cpu),
                cpu(|b| b.clients_cpu),
                cell.sum(|b| b.losses.repeated).to_string(),
                cell.sum(|b| b.losses.pings).to_string(),
            ]
        };
        let rows = self.plan.sizes.iter().flat_map(|size| WAYS.map(|way| row(*size, way)));
        Table {
            place: "not in the paper".to_owned(),
            title: "What one of them costs, and what was lost on the way".to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    /// The gateway's own estimate beside what the clients saw.
    fn load(&self) -> Table {
        let head = [
            "clients",
            "way",
            "clients saw, mean ms",
            "gateway tells: among as many, ms",
            "alone, ms",
            "each further, ms",
        ];
        let row = |size: usize, way: Task| {
            let told = self.outcome.told.iter().filter(|t| t.way == way && t.size == size);
            let told: Vec<_> = told.map(|t| &t.report).collect();
            let of = |value: fn(&dormouse_ike::LoadReport, f64) -> std::time::Duration| {
                let values: Vec<f64> =
                    told.iter().map(|r| value(r, size as f64).as_secs_f64() * 1e3).collect();
                median(&values).map_or_else(|| "–".to_owned(), digits)
            };
            vec![
                size.to_string(),
                name(way).to_owned(),
                self.cell(way, size).mean(ready).map_or_else(|| "–".to_owned(), digits),
                of(|r, size| r.latency_at(size)),
                of(|r, _| r.alone()),
                of(|r, _| r.per_client()),
            ]
        };
        let ways = [Task::Full, Task::Strict, Task::Quick];
        let rows = self.plan.sizes.iter().flat_map(|size| ways.map(|way| row(*size, way)));
        Table {
            place: "section 3.5, estimating dt_tau".to_owned(),
            title: "The gateway's own estimate (its load report) beside what the clients saw".to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    fn break_even_table(&self) -> Table {
        let head = [
            "clients",
            "way",
            "IPsec_t measured, s",
            "IPsec_t of the profile, s",
            "dt_tau with the measured, s",
            "dt_tau of the profile, s",
        ];
        let row = |size: usize, way: Task| {
            let measured = self.ready(way, size);
            let text = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), digits);
            let load = u32::try_from(size).ok().filter(|_| size <= PAPER_MOST);
            vec![
                size.to_string(),
                name(way).to_owned(),
                text(measured.map(|ms| ms / 1e3)),
                text(load.map(|load| self.profile(way).time.at(load))),
                text(measured.map(|ms| self.break_even_at(way, ms))),
                text(self.paper_break_even(way, size)),
            ]
        };
        let rows = self.plan.sizes.iter().flat_map(|size| WAYS.map(|way| row(*size, way)));
        Table {
            place: "Fig. 4".to_owned(),
            title: "Break-even times (Eq. 3) by clients at the gateway".to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    /// Figure 4 as `paper-000` draws it, and ours.
    fn break_even(&self) -> Chart {
        let mut chart = charts::break_even(self.model);
        chart.caption = format!(
            "How long an idle period must be to be worth a sleep. Dashes: the profile {PROFILE} with its own latencies, up to the paper's \
             20 clients. Lines: the same energy figures with the latencies that were measured here."
        );
        chart.x_log = true;
        chart.x_range = self.range();
        for series in &mut chart.series {
            series.name = format!("{}, profile", series.name);
            series.mark = Mark::Dashes;
        }
        let mut high = chart.y_range.map_or(1.0, |(_, high)| high);
        for (way, colour) in
            [(Task::Held, 0), (Task::Update, 1), (Task::Strict, 2), (Task::Quick, 4), (Task::Full, 3)]
        {
            let at = |size: &usize| Some((*size as f64, self.break_even_at(way, self.ready(way, *size)?)));
            let points: Vec<(f64, f64)> = self.plan.sizes.iter().filter_map(at).collect();
            high = points.iter().map(|p| p.1 * 1.1).fold(high, f64::max);
            chart.add(&format!("{}, measured", name(way)), colour, Mark::Line, points);
        }
        chart.y_range = Some((0.0, high));
        chart
    }

    fn latency_chart(&self) -> Chart {
        let mut chart = Chart::new(
            "live-latency",
            "Latency by clients that come back at once",
            "clients at once",
            "latency, ms",
        );
        chart.caption = "Lines: the median client. Dashes: nineteen of twenty clients are faster. A held SA has no exchange: its line is the \
                         first packet's answer."
            .to_owned();
        (chart.x_log, chart.y_log, chart.x_range) = (true, true, self.range());
        for (colour, way) in WAYS.into_iter().enumerate() {
            let of = if way == Task::Held { answered } else { ready };
            let points = |value: &dyn Fn(&Cell<'_>) -> Option<f64>| -> Vec<(f64, f64)> {
                let at = |size: &usize| Some((*size as f64, value(&self.cell(way, *size))?));
                self.plan.sizes.iter().filter_map(at).collect()
            };
            chart.add(name(way), colour, Mark::Line, points(&|c| c.estimate(of).map(|e| e.median)));
            chart.add(&format!("{}, 95 %", name(way)), colour, Mark::Dashes, points(&|c| c.most(of)));
        }
        chart
    }

    /// A single size would leave a logarithmic axis without extent.
    fn range(&self) -> Option<(f64, f64)> {
        let most = self.plan.sizes.last().copied().unwrap_or(1);
        Some((1.0, most.max(2) as f64))
    }

    fn claims(&self) -> Vec<Claim> {
        let most = self.plan.sizes.last().copied().unwrap_or(1);
        let paper = self.plan.sizes.iter().copied().filter(|n| *n <= PAPER_MOST).max().unwrap_or(1);
        let at = |way, size| self.ready(way, size).unwrap_or(f64::NAN);
        let ms = |way, size| format!("{} ms", digits(at(way, size)));
        let gap = |size| at(Task::Full, size) - at(Task::Strict, size);
        let along = |sizes: &[usize], of: &dyn Fn(usize) -> f64, holds: fn(f64, f64) -> bool| {
            Finding::along(&sizes.iter().map(|n| (*n as f64, of(*n))).collect::<Vec<_>>(), holds)
        };
        let least = |n: &usize| {
            let all = [Task::Update, Task::Strict, Task::Full].map(|way| at(way, *n));
            Finding::whether(all, |[update, ticket, full]| update < ticket.min(full))
        };
        let least: Vec<_> =
            self.plan.sizes.iter().map(least).filter(|f| *f != Finding::NotMeasurable).collect();
        let cost = |way, size| self.break_even_at(way, at(way, size));
        let grows = |way| cost(way, paper) - cost(way, 1);
        let (full, ticket) = (at(Task::Full, 1), at(Task::Strict, 1));
        let alone = self.cell(Task::Strict, 1);
        let cpu =
            |of: fn(&Burst) -> f64| digits(alone.bursts.iter().map(|b| of(b)).sum::<f64>() / alone.clients());
        vec![
            Claim::new(
                "section 4.2, Fig. 10",
                "MOBIKE has the least latency of the three exchanges",
                "at 1 to 20 clients",
                format!(
                    "at {paper} clients {}, against {} by ticket and {} in full",
                    ms(Task::Update, paper),
                    ms(Task::Strict, paper),
                    ms(Task::Full, paper)
                ),
            )
            .found(Finding::of(least.iter().filter(|f| **f == Finding::Confirmed).count(), least.len())),
            Claim {
                why: format!(
                    "of the ticket's time the gateway computes {} ms and the client {} ms",
                    cpu(|b| b.gateway_cpu),
                    cpu(|b| b.clients_cpu)
                ),
                ..Claim::new(
                    "section 4.2, Fig. 10",
                    "With one client a ticket takes about half as long as a full exchange",
                    "almost half",
                    format!(
                        "{} against {}: {:.2} of it",
                        ms(Task::Strict, 1),
                        ms(Task::Full, 1),
                        ticket / full
                    ),
                )
                .found(Finding::whether([ticket, full], |[ticket, full]| ticket < 0.6 * full))
            },
            Claim::new(
                "section 4.2, Fig. 10",
                "The gap between full exchange and ticket grows with the number of clients",
                "up to 20 clients",
                format!(
                    "{} ms alone, {} ms at {paper}, {} ms at {most}",
                    digits(gap(1)),
                    digits(gap(paper)),
                    digits(gap(most))
                ),
            )
            .found(along(&[1, paper, most], &gap, |first, then| then > first)),
            Claim::new(
                "section 4.2, Fig. 10",
                "MOBIKE's latency is constant whatever the number of clients",
                "essentially",
                format!(
                    "{} alone, {} at {paper}, {} at {most}",
                    ms(Task::Update, 1),
                    ms(Task::Update, paper),
                    ms(Task::Update, most)
                ),
            )
            .found(along(&[1, paper], &|n| at(Task::Update, n), |first, then| then < 2.0 * first)),
            Claim::new(
                "section 3.3, Fig. 4",
                "Break-even times grow with the number of clients, but for MOBIKE's",
                "1, 10 and 20 clients",
                format!(
                    "from 1 to {paper} clients: full exchange {:+.3} s, ticket {:+.3} s, MOBIKE {:+.3} s",
                    grows(Task::Full),
                    grows(Task::Strict),
                    grows(Task::Update)
                ),
            )
            .found(along(
                &[1, paper],
                &|n| (cost(Task::Full, n).min(cost(Task::Strict, n))) - cost(Task::Update, n),
                |first, then| then > first,
            )),
            Claim::new(
                "not in the paper",
                "The same ticket in one round trip, against the two of RFC 5723",
                "–",
                format!(
                    "alone {} against {}, at {most} clients {} against {}",
                    ms(Task::Quick, 1),
                    ms(Task::Strict, 1),
                    ms(Task::Quick, most),
                    ms(Task::Strict, most)
                ),
            ),
        ]
    }

    fn notes(&self) -> Vec<String> {
        let sum = |of: fn(&Burst) -> u64| self.outcome.bursts.iter().map(of).sum::<u64>();
        vec![
            "Measured: all latencies, round trips, CPU times and losses. From the profile laptop-000 (the paper's Fig. 3): the energy of the \
             radio's cycle and of each exchange, and the association time. The profile's latencies are estimates: the paper's Fig. 10 is \
             only a drawing. The ticket's energy stands for both of its forms."
                .to_owned(),
            "Clients and gateway share the machine's cores, and all clients share one thread, so that a client also waits for the \
             work of the others; the gateway's CPU time for each says what it alone would need."
                .to_owned(),
            "Latency counts from the moment at which the first messages of all clients, made beforehand, begin to leave. The interval \
             is that of the median over bursts of the median over clients (95 %, bootstrap); the 95th percentile is over all \
             clients of all bursts. There is no delay of a network in it."
                .to_owned(),
            "Full exchanges begin without a session at the gateway; each way of the ticket begins at a gateway that was killed and restarted, \
             and replaces the session of the burst before; sessions are held for devices that announced a sleep. From the gateway's \
             32nd half-open exchange on, newcomers must return a cookie: a third round trip."
                .to_owned(),
            format!(
                "Lost and made good: clients sent {} IKE messages and {} pings again, the gateway {} answers; {} and {} datagrams did \
                 not fit into the sockets of gateway and clients.",
                sum(|b| b.losses.repeated),
                sum(|b| b.losses.pings),
                self.outcome.gateway_repeated,
                self.outcome.overruns.0,
                self.outcome.overruns.1
            ),
            "The gateway's estimate counts from when it reads a client's first message: what that waited in its socket, and the way of the last \
             answer, it cannot see."
                .to_owned(),
        ]
    }
}
