//! What came out, beside what the paper says. Owns the words and the arithmetic of the comparison; must never show a figure
//! without saying whether it was measured here.

use std::collections::BTreeMap;

use dormouse_energy::model::{Exchange, Latency, Model};
use dormouse_report::{Chart, Mark, Table, digits};
use dormouse_testbed::crowd::Task;
use dormouse_trace::report::charts;

use super::campaign::{PAPER_MOST, Point, WAYS, name};
use super::{EXPERIMENT, PROFILE};
use crate::experiment::{Exhibit, Report};
use crate::judge::stats::{Bootstrap, Mean, Measured, levels, median, quantile};
use crate::judge::{Claim, Expect, ends};
use crate::results::{Figures, Results, Sample};

/// Seconds by which a break-even time has grown: less, a part in a thousand of it, is none.
const GROWTH: f64 = 0.02;
/// The exchange, as the break-even model wants it.
const READY: &str = "ready";
/// The first answer through the tunnel.
const ANSWERED: &str = "answered";

/// All bursts of one way and size.
#[derive(Clone, Copy)]
struct Cell<'a> {
    sample: Option<&'a Sample<Point>>,
    bootstrap: Bootstrap,
}

impl Cell<'_> {
    fn all(&self, name: &str) -> Vec<f64> {
        self.sample.map(|s| s.all(name).collect()).unwrap_or_default()
    }

    fn sum(&self, name: &str) -> f64 {
        self.all(name).iter().fold(0.0, |sum, n| sum + n)
    }

    /// The same for each client.
    fn each(&self, name: &str) -> f64 {
        self.sum(name) / self.all(READY).len() as f64
    }

    /// The medians over clients of the bursts of each round, in milliseconds.
    fn bursts(&self, name: &str) -> BTreeMap<u32, Vec<f64>> {
        let Some(sample) = self.sample else { return BTreeMap::new() };
        let of = |figures: &Figures| -> Vec<f64> {
            figures.all(name).chunks(sample.clients.max(1)).filter_map(median).collect()
        };
        let rounds = sample.rounds.iter().map(|r| (r.round, of(&r.figures)));
        rounds.filter(|(_, bursts)| !bursts.is_empty()).collect()
    }

    /// The same, if it may decide anything: what no claim would take is not drawn either.
    fn told(&self, name: &str) -> Option<f64> {
        self.estimate(name).filter(Measured::is_told).map(|e| e.value)
    }

    /// The median over bursts of the median over clients; bursts of a round are alike, so that rounds are what was measured independently.
    fn estimate(&self, name: &str) -> Option<Measured> {
        let rounds = self.bursts(name).into_values().collect();
        self.bootstrap.rounds(&[rounds], |bursts| bursts.first().and_then(|b| median(b)).unwrap_or(f64::NAN))
    }

    /// Nineteen of twenty clients had it within so many milliseconds, all bursts together.
    fn most(&self, name: &str) -> Option<f64> {
        quantile(&self.all(name), 0.95)
    }
}

fn shown(value: Option<f64>) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| "–".to_owned(), digits)
}

struct Writer<'a> {
    results: &'a Results<Point>,
    /// Sizes of the crowd, in their order.
    sizes: Vec<usize>,
    model: &'a Model,
}

/// The report.
pub(super) fn of(results: &Results<Point>, model: &Model) -> Report {
    let mut sizes: Vec<usize> = results.samples.iter().map(|s| s.clients).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let writer = Writer { results, sizes, model };
    let count = |name| results.samples.iter().map(|s| s.all(name).count()).sum::<usize>();
    let obtained = [
        "one dormoused in a network namespace with its default configuration, RSA-2048 certificates, AES-GCM and X25519; \
         clients in another, one IKE endpoint and one UDP socket with an address for each"
            .to_owned(),
        format!(
            "{} bursts, {} exchanges and first packets, each of them answered",
            count("round_trips"),
            count(READY)
        ),
    ];
    let obtained = results.obtained(obtained.into_iter().chain(levels(results)));
    Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic: false,
        traffic: obtained,
        claims: writer.claims(),
        tables: vec![
            writer.latencies(
                "Fig. 10",
                "Until the session is back, ms: median [interval], mean, 95th percentile",
                READY,
            ),
            writer.latencies(
                "Fig. 10, to the first packet",
                "Until the first answer came through the tunnel, ms: median [interval], mean, 95th percentile",
                ANSWERED,
            ),
            writer.costs(),
            writer.load(),
            writer.break_even_table(),
        ],
        figures: vec![
            Exhibit::new("Fig. 4", writer.break_even()),
            Exhibit::new("Fig. 10", writer.latency_chart()),
        ],
        notes: writer.notes(),
        provenance: results.into(),
    }
}

impl Writer<'_> {
    fn cell(&self, way: Task, clients: usize) -> Cell<'_> {
        let sample = self.results.at(&Point { way, clients });
        Cell { sample, bootstrap: Bootstrap::new(self.results.seed) }
    }

    /// The median in milliseconds.
    fn ready(&self, way: Task, size: usize) -> Option<f64> {
        self.cell(way, size).estimate(READY).map(|e| e.value)
    }

    /// A table with a row for each size and way.
    fn table(
        &self,
        place: &str,
        title: &str,
        head: &[&str],
        ways: &[Task],
        row: impl Fn(usize, Task) -> Vec<String>,
    ) -> Exhibit<Table> {
        let begun = |size: usize, way: Task| vec![size.to_string(), name(way).to_owned()];
        let each = self.sizes.iter().flat_map(|size| ways.iter().map(|way| (*size, *way)));
        let head = ["clients", "way"].iter().chain(head).copied();
        let rows = each.map(|(size, way)| [begun(size, way), row(size, way)].concat());
        Exhibit::new(place, Table::titled(title, head, rows))
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

    fn latencies(&self, place: &str, title: &str, of: &str) -> Exhibit<Table> {
        let cell = |way, size| {
            let cell = self.cell(way, size);
            let (estimate, most) = (cell.estimate(of)?, cell.most(of)?);
            let mean = Mean::of(&cell.all(of))?.mean;
            if estimate.value == 0.0 {
                return Some("no exchange".to_owned());
            }
            let [median, low, high] = [estimate.value, estimate.low, estimate.high].map(digits);
            Some(format!("{median} [{low}, {high}], {}, {}", digits(mean), digits(most)))
        };
        let row = |size: &usize| {
            let cells = WAYS.iter().map(|way| cell(*way, *size).unwrap_or_else(|| "–".to_owned()));
            std::iter::once(size.to_string()).chain(cells).collect()
        };
        let head = ["clients"].into_iter().chain(WAYS.map(name));
        Exhibit::new(place, Table::titled(title, head, self.sizes.iter().map(row)))
    }

    /// What each cost both ends, and what was lost.
    fn costs(&self) -> Exhibit<Table> {
        let head =
            ["round trips", "gateway CPU, ms each", "clients CPU, ms each", "IKE repeated", "pings repeated"];
        let title = "What one of them costs, and what was lost on the way";
        self.table("not in the paper", title, &head, &WAYS, |size, way| {
            let cell = self.cell(way, size);
            let each = ["round_trips", "gateway_cpu", "clients_cpu"].map(|name| shown(Some(cell.each(name))));
            let sums = ["repeated", "pings"].map(|name| cell.sum(name).to_string());
            each.into_iter().chain(sums).collect()
        })
    }

    /// The gateway's own estimate beside what the clients saw.
    fn load(&self) -> Exhibit<Table> {
        let head =
            ["clients saw, mean ms", "gateway tells: among as many, ms", "alone, ms", "each further, ms"];
        let title = "The gateway's own estimate (its load report) beside what the clients saw";
        let ways = [Task::Full, Task::Strict, Task::Quick];
        self.table("section 3.5, estimating dt_tau", title, &head, &ways, |size, way| {
            let cell = self.cell(way, size);
            let told = ["told_among", "told_alone", "told_each"].map(|name| shown(median(&cell.all(name))));
            [shown(Mean::of(&cell.all(READY)).map(|m| m.mean))].into_iter().chain(told).collect()
        })
    }

    fn break_even_table(&self) -> Exhibit<Table> {
        let head = [
            "IPsec_t measured, s",
            "IPsec_t of the profile, s",
            "dt_tau with the measured, s",
            "dt_tau of the profile, s",
        ];
        let title = "Break-even times (Eq. 3) by clients at the gateway";
        self.table("Fig. 4", title, &head, &WAYS, |size, way| {
            let measured = self.ready(way, size);
            let load = u32::try_from(size).ok().filter(|_| size <= PAPER_MOST);
            vec![
                shown(measured.map(|ms| ms / 1e3)),
                shown(load.map(|load| self.profile(way).time.at(load))),
                shown(measured.map(|ms| self.break_even_at(way, ms))),
                shown(self.paper_break_even(way, size)),
            ]
        })
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
            let at = |size: &usize| {
                Some((*size as f64, self.break_even_at(way, self.cell(way, *size).told(READY)?)))
            };
            let points: Vec<(f64, f64)> = self.sizes.iter().filter_map(at).collect();
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
            let of = if way == Task::Held { ANSWERED } else { READY };
            let points = |value: &dyn Fn(&Cell<'_>) -> Option<f64>| -> Vec<(f64, f64)> {
                let at = |size: &usize| Some((*size as f64, value(&self.cell(way, *size))?));
                self.sizes.iter().filter_map(at).collect()
            };
            chart.add(name(way), colour, Mark::Line, points(&|c| c.told(of)));
            chart.add(
                &format!("{}, 95 %", name(way)),
                colour,
                Mark::Dashes,
                points(&|c| c.told(of).and_then(|_| c.most(of))),
            );
        }
        chart
    }

    /// A single size would leave a logarithmic axis without extent.
    fn range(&self) -> Option<(f64, f64)> {
        let most = self.sizes.last().copied().unwrap_or(1);
        Some((1.0, most.max(2) as f64))
    }

    /// What follows from the medians of several bursts, in the rounds that have all of them: `of` gets one median for each way and size.
    fn joint(&self, of: &[(Task, usize)], statistic: impl Fn(&[f64]) -> f64) -> Option<Measured> {
        let mut samples: Vec<BTreeMap<u32, Vec<f64>>> =
            of.iter().map(|(way, size)| self.cell(*way, *size).bursts(READY)).collect();
        let mut rounds: Vec<u32> = samples.first()?.keys().copied().collect();
        rounds.retain(|round| samples.iter().all(|s| s.contains_key(round)));
        samples.iter_mut().for_each(|s| s.retain(|round, _| rounds.contains(round)));
        let samples: Vec<Vec<Vec<f64>>> = samples.into_iter().map(|s| s.into_values().collect()).collect();
        Bootstrap::new(self.results.seed).rounds(&samples, |drawn| {
            statistic(&drawn.iter().map(|b| median(b).unwrap_or(f64::NAN)).collect::<Vec<_>>())
        })
    }

    fn claims(&self) -> Vec<Claim> {
        let sizes = || self.sizes.iter().copied().filter(|n| *n <= PAPER_MOST);
        let paper = sizes().max().unwrap_or(1);
        let grown = ends(sizes()).map(|[_, most]| most);
        let ms = |m: Option<Measured>| {
            m.map_or_else(|| "not measured".to_owned(), |m| format!("{} ms", m.words(2)))
        };
        let ready = |way, size| self.joint(&[(way, size)], |m| m[0]);
        let over = |a: (Task, usize), b: (Task, usize)| self.joint(&[a, b], |m| m[0] / m[1]);
        let (full, ticket, update) = (Task::Full, Task::Strict, Task::Update);
        let place = "section 4.2, Fig. 10";
        let least: Vec<(Expect, Option<Measured>)> = sizes()
            .flat_map(|n| [full, ticket].map(|other| (Expect::LESS, over((update, n), (other, n)))))
            .collect();
        let gap = |n| self.joint(&[(full, n), (ticket, n)], |m| m[0] - m[1]);
        let growth = |n| {
            self.joint(&[(full, n), (ticket, n), (full, 1), (ticket, 1)], |m| m[0] - m[1] - (m[2] - m[3]))
        };
        let dearer = |way, n| {
            self.joint(&[(way, n), (way, 1)], |m| {
                self.break_even_at(way, m[0]) - self.break_even_at(way, m[1])
            })
        };
        let seconds = |m: Option<Measured>| {
            m.map_or_else(|| "not measured".to_owned(), |m| format!("{} s", m.words(3)))
        };
        let alone = self.cell(ticket, 1);
        let half = over((ticket, 1), (full, 1));
        let quick = over((Task::Quick, 1), (ticket, 1));
        vec![
            Claim::new(
                place,
                "MOBIKE has the least latency of the three exchanges",
                "at 1 to 20 clients",
                format!(
                    "at {paper} clients {}, against {} by ticket and {} in full",
                    ms(ready(update, paper)),
                    ms(ready(ticket, paper)),
                    ms(ready(full, paper))
                ),
            )
            .judged_all(&least),
            Claim {
                why: format!(
                    "of the ticket's time the gateway computes {} ms and the client {} ms",
                    digits(alone.each("gateway_cpu")),
                    digits(alone.each("clients_cpu"))
                ),
                ..Claim::new(
                    place,
                    "With one client a ticket takes about half as long as a full exchange",
                    "almost half",
                    format!(
                        "{} against {}: {} of it",
                        ms(ready(ticket, 1)),
                        ms(ready(full, 1)),
                        half.map_or_else(|| "–".to_owned(), |m| m.words(2))
                    ),
                )
                // On an emulated processor each part takes what its emulation costs: no size.
                .judged(Expect::about(0.5, 0.1), half.filter(|_| !self.results.machine.emulated()))
            },
            Claim::new(
                place,
                "A full exchange takes longer than a ticket, and the gap grows with the number of clients",
                "up to 20 clients",
                format!(
                    "{} alone, {} at {paper}: grows by {}",
                    ms(gap(1)),
                    ms(grown.and_then(gap)),
                    ms(grown.and_then(growth))
                ),
            )
            .judged_all(
                &[gap(1), grown.and_then(gap), grown.and_then(growth)].map(|m| (Expect::above(0.0), m)),
            ),
            Claim::new(
                place,
                "MOBIKE's latency is constant for any number of clients",
                "essentially",
                format!("{} alone, {} at {paper}", ms(ready(update, 1)), ms(ready(update, paper))),
            )
            .judged(Expect::about(1.0, 0.25), grown.and_then(|n| over((update, n), (update, 1)))),
            Claim::new(
                "section 3.3, Fig. 4",
                "Break-even times grow with the number of clients, but for MOBIKE's",
                "1, 10 and 20 clients",
                format!(
                    "from 1 to {paper} clients: full exchange {}, ticket {}, MOBIKE {}",
                    seconds(grown.and_then(|n| dearer(full, n))),
                    seconds(grown.and_then(|n| dearer(ticket, n))),
                    seconds(grown.and_then(|n| dearer(update, n)))
                ),
            )
            .judged_all(&[
                (Expect::above(GROWTH), grown.and_then(|n| dearer(full, n))),
                (Expect::above(GROWTH), grown.and_then(|n| dearer(ticket, n))),
                (Expect::about(0.0, GROWTH), grown.and_then(|n| dearer(update, n))),
            ]),
            Claim::new(
                "not in the paper",
                "The same ticket in one round trip is faster than in the two of RFC 5723",
                "–",
                format!(
                    "alone {} of it, at {paper} clients {}",
                    quick.map_or_else(|| "–".to_owned(), |m| m.words(2)),
                    over((Task::Quick, paper), (ticket, paper))
                        .map_or_else(|| "–".to_owned(), |m| m.words(2))
                ),
            )
            .judged(Expect::LESS, quick),
        ]
    }

    fn notes(&self) -> Vec<String> {
        let sum = |name: &str| self.results.samples.iter().flat_map(|s| s.all(name)).sum::<f64>();
        vec![
            "Measured: all latencies, round trips, CPU times and losses. From the profile laptop-000 (the paper's Fig. 3): the energy of the \
             radio's cycle and of each exchange, and the association time. The profile's latencies are estimates: the paper's Fig. 10 is \
             only a drawing. The ticket's energy stands for both of its forms."
                .to_owned(),
            "Clients and gateway share the machine's cores, and all clients share one thread, so that a client also waits for the \
             work of the others; the gateway's CPU time for each says what it alone would need."
                .to_owned(),
            "Latency counts from the moment at which the first messages of all clients, made beforehand, begin to leave. The interval \
             is that of the median over bursts of the median over clients (bootstrap of whole rounds, for bursts of one round are alike); the 95th \
             percentile is over all clients of all bursts. There is no delay of a network in it."
                .to_owned(),
            "The first burst after each start of the gateway does not count. Full exchanges begin without a session at the gateway; each way of the \
             ticket begins at a gateway that was killed and restarted, and replaces the session of the burst before; sessions are held for devices that announced a sleep. From the gateway's \
             32nd half-open exchange on, newcomers must return a cookie: a third round trip."
                .to_owned(),
            format!(
                "Lost and made good: clients sent {} IKE messages and {} pings again, the gateway {} answers; {} and {} datagrams did \
                 not fit into the sockets of gateway and clients.",
                sum("repeated"),
                sum("pings"),
                sum("gateway_repeated"),
                sum("gateway_overruns"),
                sum("clients_overruns")
            ),
            "The gateway's estimate counts from when it reads a client's first message: what that waited in its socket, and the way of the last \
             answer, it cannot see."
                .to_owned(),
        ]
    }
}
