//! Tables 2, 6 and 7 from a campaign's results, each with a chart of its own. Owns the paper's figures and the words; measures nothing.

use std::collections::BTreeMap;

use dormouse_report::chart::beside;
use dormouse_report::{Chart, Mark, Table, digits};

use super::exchanges::Exchange;
use super::packets::Step;
use super::{EXPERIMENT, Point};
use crate::experiment::{Exhibit, Report};
use crate::judge::stats::{Bootstrap, Estimate, levels};
use crate::judge::{Claim, Decides, Expect};
use crate::results::format::paired;
use crate::results::{self, Results};

const EXCHANGES: &str = "section 4.6, Table 2";
const PACKETS: &str = "section 5.4.4, Table 6";
const ROUTER: &str = "section 5.4.4, Table 7";

const fn exchange(exchange: Exchange) -> Point {
    Point::Exchange { exchange }
}

const fn zoned(step: Step) -> Point {
    Point::Packet { step, zoned: true }
}

const fn whole(step: Step) -> Point {
    Point::Packet { step, zoned: false }
}

/// A figure at a point.
type Figure = (Point, &'static str);

/// Where in the paper, what is claimed, the paper's figures, ours above ours below, and where their ratio must lie.
type Asked = (&'static str, &'static str, &'static str, [Figure; 2], Expect);

fn asked() -> Vec<Asked> {
    let establish = exchange(Exchange::Zoned);
    let rekey = (exchange(Exchange::Rekey), "all");
    let migrate = (exchange(Exchange::Migrate), "all");
    vec![
        (
            EXCHANGES,
            "establishing a session costs the device, which begins, more than its gateway",
            "66.5 and 42.5 ms",
            [(establish, "device"), (establish, "gateway")],
            Expect::MORE,
        ),
        (
            EXCHANGES,
            "zones cost about nothing when a session is established",
            "no figure",
            [(establish, "all"), (exchange(Exchange::Whole), "all")],
            Expect::within(1.0, 1.25),
        ),
        (
            EXCHANGES,
            "a rekeying costs less than establishing",
            "2.65 and 109 ms",
            [rekey, (establish, "all")],
            Expect::LESS,
        ),
        (
            EXCHANGES,
            "keys for a router cost less than a rekeying",
            "0.6 and 2.65 ms",
            [(exchange(Exchange::Distribute), "all"), rekey],
            Expect::LESS,
        ),
        (
            EXCHANGES,
            "keys from the router before (DKM) cost less than a rekeying",
            "0.6 and 2.65 ms",
            [migrate, rekey],
            Expect::LESS,
        ),
        (
            EXCHANGES,
            "keys by DKM, times those for one neighbour by PKD",
            "0.6 and 0.5 ms: 1.2",
            [migrate, (exchange(Exchange::Proactive), "all")],
            Expect::within(1.2, 1.5),
        ),
        (
            PACKETS,
            "sealing in two zones, times sealing whole: no more than the paper's",
            "104 and 58 µs: 1.79",
            [(zoned(Step::Seal), "packet"), (whole(Step::Seal), "packet")],
            Expect::below(1.79),
        ),
        (
            PACKETS,
            "opening in two zones, times opening whole: no more than the paper's",
            "44 and 38 µs: 1.16",
            [(zoned(Step::Open), "packet"), (whole(Step::Open), "packet")],
            Expect::below(1.16),
        ),
        (
            PACKETS,
            "most of what sealing in zones costs is the cipher",
            "91 of 104 µs",
            [(zoned(Step::Seal), "bare"), (zoned(Step::Seal), "packet")],
            Expect::above(0.5),
        ),
        (
            ROUTER,
            "SNOOP's own work on a packet costs less than opening its first zone",
            "13 and 42 µs",
            [(whole(Step::Snoop), "to_device"), (zoned(Step::Look), "packet")],
            Expect::LESS,
        ),
        (
            ROUTER,
            "reading and keeping a packet, of the time that the radio takes for it: no more than the paper's",
            "55 of 547 µs: 0.10",
            [(zoned(Step::Snoop), "to_device"), (zoned(Step::Snoop), "air")],
            Expect::below(0.1),
        ),
    ]
}

/// Table 2: what its chart calls an exchange, and the paper's milliseconds, if it has any: initiator, responder, and both as it states them.
const fn theirs(of: Exchange) -> (&'static str, Option<[f64; 3]>) {
    match of {
        Exchange::Whole => ("whole", None),
        Exchange::Zoned => ("with zones", Some([66.5, 42.5, 109.02])),
        Exchange::Rekey => ("rekeying", Some([1.3, 1.35, 2.65])),
        Exchange::Update => ("MOBIKE", None),
        Exchange::Distribute => ("router's keys", Some([0.4, 0.2, 0.6])),
        Exchange::Proactive => ("PKD", Some([0.3, 0.2, 0.5])),
        Exchange::Migrate => ("DKM", Some([0.3, 0.2, 0.6])),
    }
}

/// Table 6: a point, and the paper's microseconds, of these in the cipher where it says so.
const PACKET_ROWS: [(Point, f64, Option<f64>); 4] = [
    (whole(Step::Seal), 58.0, None),
    (zoned(Step::Seal), 104.0, Some(91.0)),
    (whole(Step::Open), 38.0, None),
    (zoned(Step::Open), 44.0, Some(12.0)),
];

/// Table 7: in words and as its chart says it, our figure, and the paper's microseconds.
const ROUTER_ROWS: [(&str, &str, Figure, Option<f64>); 8] = [
    ("opening the first zone", "first zone", (zoned(Step::Look), "packet"), Some(42.0)),
    ("of these the bare cipher", "its cipher", (zoned(Step::Look), "bare"), None),
    ("a packet to the device, in clear", "data, clear", (whole(Step::Snoop), "to_device"), Some(13.0)),
    ("an acknowledgement, in clear", "ack, clear", (whole(Step::Snoop), "from_device"), Some(13.0)),
    ("a repetition, in clear", "repeat, clear", (whole(Step::Snoop), "repeat"), None),
    ("a packet to the device, in zones", "data, zones", (zoned(Step::Snoop), "to_device"), Some(55.0)),
    ("an acknowledgement, in zones", "ack, zones", (zoned(Step::Snoop), "from_device"), Some(55.0)),
    ("a repetition, in zones", "repeat, zones", (zoned(Step::Snoop), "repeat"), None),
];

const CAPTION: &str =
    "The paper's Pentium 4 with 3DES, and this machine: medians over rounds with their intervals.";
/// Names and colours of series that several charts have.
const PAPER: (&str, usize) = ("paper", 1);
const OURS: (&str, usize) = ("ours", 0);

/// A chart with a logarithmic axis: the paper's figures and ours lie a thousand times apart.
fn empty(id: &str, title: &str, unit: &str, categories: impl IntoIterator<Item: Into<String>>) -> Chart {
    let mut chart = Chart::new(id, title, "", unit);
    chart.caption = CAPTION.to_owned();
    chart.y_log = true;
    chart.side_by_side(categories);
    chart
}

/// The paper's figures, one for each category that it has one for, as the `n`-th series of `of`.
fn add_theirs(
    chart: &mut Chart,
    (name, colour): (&str, usize),
    (n, of): (usize, usize),
    values: &[Option<f64>],
) {
    let at = |(i, value): (usize, &Option<f64>)| Some((beside(i, n, of), (*value)?));
    chart.add(name, colour, Mark::Points, values.iter().enumerate().filter_map(at).collect());
}

struct Said<'a> {
    results: &'a Results<Point>,
    bootstrap: Bootstrap,
}

impl Said<'_> {
    /// A median; none of what no claim would take: that does not stand in a table, and is not drawn.
    fn told(&self, (point, name): Figure) -> Option<Estimate> {
        let values: Vec<f64> = self.results.at(&point).map(|s| s.all(name).collect()).unwrap_or_default();
        self.bootstrap.median(&values).filter(Estimate::is_enough)
    }

    fn median(&self, figure: Figure) -> String {
        self.told(figure).map_or_else(
            || "–".to_owned(),
            |e| format!("{} [{}, {}]", digits(e.median), digits(e.low), digits(e.high)),
        )
    }

    fn by_round(&self, (point, name): Figure) -> BTreeMap<u32, f64> {
        let rounds = self.results.at(&point).into_iter().flat_map(|s| &s.rounds);
        rounds.filter_map(|r| Some((r.round, r.figures.one(name)?))).collect()
    }

    fn claim(&self, (place, words, paper, [a, b], expect): Asked) -> Claim {
        let compared = self.bootstrap.paired(&paired(&self.by_round(a), &self.by_round(b)));
        let ours = compared.as_ref().map_or_else(
            || "not measured".to_owned(),
            |c| {
                let [median, low, high] = [c.ratio.median, c.ratio.low, c.ratio.high].map(digits);
                format!("{median} [{low}, {high}] times")
            },
        );
        Claim::new(place, words, paper, ours).decided(vec![Decides::ratio(expect, compared.as_ref())])
    }

    fn exchanges(&self) -> Exhibit<Table> {
        let mut table = Table::new([
            "",
            "device, ms",
            "gateway, ms",
            "routers, ms",
            "all, ms",
            "paper: both ends (its total), ms",
        ]);
        table.title = "Processor time of exchanges".to_owned();
        for of in Exchange::ALL {
            let paper =
                theirs(of).1.map_or_else(|| "–".to_owned(), |[a, b, total]| format!("{a} + {b} ({total})"));
            let cells = ["device", "gateway", "routers", "all"].map(|name| self.median((exchange(of), name)));
            table.row([of.words().to_owned()].into_iter().chain(cells).chain([paper]));
        }
        Exhibit::new("Table 2", table)
    }

    /// Our figures, one for each category, times `scale`, as the `n`-th series of `of`.
    fn add(
        &self,
        chart: &mut Chart,
        (name, colour): (&str, usize),
        (n, of): (usize, usize),
        scale: f64,
        figures: &[Figure],
    ) {
        let at = |(i, figure): (usize, &Figure)| {
            let e = self.told(*figure)?;
            Some((beside(i, n, of), [e.median, e.low, e.high].map(|value| value * scale)))
        };
        chart.estimates(name, colour, &figures.iter().enumerate().filter_map(at).collect::<Vec<_>>());
    }

    fn exchange_chart(&self) -> Exhibit<Chart> {
        let shorts = Exchange::ALL.map(|of| theirs(of).0);
        let mut chart = empty("exchanges", "Processor time of exchanges", "µs", shorts);
        let paper = Exchange::ALL.map(|of| theirs(of).1.map(|[.., both]| both * 1e3));
        add_theirs(&mut chart, ("paper, both ends", PAPER.1), (0, 5), &paper);
        let ours = [
            ("ours, all", "all", 0),
            ("ours, device", "device", 2),
            ("ours, gateway", "gateway", 3),
            ("ours, routers", "routers", 4),
        ];
        for (n, (words, name, colour)) in ours.into_iter().enumerate() {
            let figures = Exchange::ALL.map(|of| (exchange(of), name));
            self.add(&mut chart, (words, colour), (n + 1, 5), 1e3, &figures);
        }
        Exhibit::new("Table 2", chart)
    }

    fn packet_chart(&self) -> Exhibit<Chart> {
        let title = "Processor time of a packet of 1,400 bytes";
        let names = PACKET_ROWS.map(|(point, ..)| results::Point::label(&point));
        let mut chart = empty("packets", title, "ns", names);
        add_theirs(&mut chart, PAPER, (0, 4), &PACKET_ROWS.map(|(_, all, _)| Some(all * 1e3)));
        let cipher = PACKET_ROWS.map(|(.., cipher)| cipher.map(|cipher| cipher * 1e3));
        add_theirs(&mut chart, ("paper, the cipher", 5), (1, 4), &cipher);
        self.add(&mut chart, OURS, (2, 4), 1.0, &PACKET_ROWS.map(|(point, ..)| (point, "packet")));
        let bare = PACKET_ROWS.map(|(point, ..)| (point, "bare"));
        self.add(&mut chart, ("ours, the bare cipher", 4), (3, 4), 1.0, &bare);
        Exhibit::new("Table 6", chart)
    }

    fn router_chart(&self) -> Exhibit<Chart> {
        let names = ROUTER_ROWS.map(|(_, short, ..)| short);
        let mut chart = empty("router", "Processor time at the access router", "ns", names);
        let paper = ROUTER_ROWS.map(|(.., paper)| paper.map(|paper| paper * 1e3));
        add_theirs(&mut chart, PAPER, (0, 2), &paper);
        self.add(&mut chart, OURS, (1, 2), 1.0, &ROUTER_ROWS.map(|(_, _, figure, _)| figure));
        Exhibit::new("Table 7", chart)
    }

    fn packets(&self) -> Exhibit<Table> {
        let mut table = Table::new(["", "ns", "of these the bare cipher, ns", "paper, µs"]);
        table.title = "Processor time of a packet of 1,400 bytes".to_owned();
        for (point, paper, cipher) in PACKET_ROWS {
            let cells = ["packet", "bare"].map(|name| self.median((point, name)));
            let paper = cipher.map_or_else(
                || paper.to_string(),
                |cipher| format!("{paper}, of these {cipher} in the cipher"),
            );
            table.row([results::Point::label(&point)].into_iter().chain(cells).chain([paper]));
        }
        Exhibit::new("Table 6", table)
    }

    fn router(&self) -> Exhibit<Table> {
        let mut table = Table::new(["", "ns", "paper, µs"]);
        table.title = "Processor time at the access router".to_owned();
        for (words, _, figure, paper) in ROUTER_ROWS {
            let paper = paper.map_or_else(|| "–".to_owned(), |paper| paper.to_string());
            table.row([words.to_owned(), self.median(figure), paper]);
        }
        Exhibit::new("Table 7", table)
    }
}

pub(super) fn of(results: &Results<Point>) -> Report {
    let said = Said { results, bootstrap: Bootstrap::new(results.seed) };
    let obtained = format!(
        "all machines in one thread and virtual time, datagrams handed over in memory: processor time alone; AES-128-GCM; {} rounds",
        results.rounds
    );
    Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic: false,
        traffic: results.obtained([obtained].into_iter().chain(levels(results))),
        claims: asked().into_iter().map(|asked| said.claim(asked)).collect(),
        tables: vec![said.exchanges(), said.packets(), said.router()],
        figures: vec![said.exchange_chart(), said.packet_chart(), said.router_chart()],
        notes: notes(),
        provenance: results.into(),
    }
}

fn notes() -> Vec<String> {
    [
        "The paper's machines are Pentium 4 with 2.4 GHz and 3DES in software, ours has AES in hardware: its microseconds stand in the tables, \
         and claims are about ratios within one run.",
        "The paper's \"IKE SA establish\" and \"CSA establish\" are IKE_SA_INIT and IKE_AUTH; they are one row here, because an end that has the answer to the first \
         makes the second in the same step. Both ends authenticate by a shared secret; the key exchange is our default one.",
        "The paper's \"Neighbor notification\" (9.3 ms in all) has no row: here routers name their neighbours in the answer to a key distribution (KEY_NEIGHBOURS), which is a row.",
        "The paper's parts of DKM, 0.3 and 0.2 ms, add up to 0.5, and its total is 0.6: all are rounded to tenths of a millisecond. Each stands here as printed there; claims \
         and the chart have the totals.",
        "PKD: the gateway hears that the device is at a router that has keys, and gives them to that one's neighbour. DKM: the new router asks the one before, which gives \
         its keys away; that the gateway hears of it, and makes new ones, is left out: that rekeying is a row of its own.",
        "Where AES is in hardware, opening 40 bytes costs less than keeping a copy of a packet: a router's work is then SNOOP's own.",
        "The paper's sealing whole is what it says of zones less half of the cipher's time (104 - 46 µs; 44 - 6 µs for opening).",
        "The paper sends a packet in 547 µs: what its driver takes, where our column has the time on a radio of 2 Mbit/s.",
    ]
    .map(str::to_owned)
    .into()
}
