//! The report from a campaign's results: claims, tables, a figure and notes. Owns the words; must never give the size of a difference that an
//! emulated processor shows.

use std::collections::BTreeMap;

use dormouse_report::{Chart, Mark, Table, digits};

use super::{EXPERIMENT, Point, SIZES, Way, world};
use crate::campaign::machine::has_aes;
use crate::experiment::{Exhibit, Report};
use crate::judge::stats::{Bootstrap, Comparison, Estimate, Measured, levels};
use crate::judge::{Claim, Decides, Expect};
use crate::measured::{in_times, percent_less};
use crate::paper_001::data::MAXIMUM;
use crate::paper_001::{A_THIRD_LESS, LARGER};
use crate::results::Results;
use crate::results::format::paired;

/// Claims that the paper's stack suggests and the paper does not make.
const NOT_IN_PAPER: &str = "not in the paper";
/// Bytes that L2TP in transport mode has beyond tunnel mode. Both carry a second IP header; L2TP has UDP (8), its own (6) and PPP (4) besides, and ESP's
/// padding to four bytes may make it 2 more or less.
const HEADERS: Expect = Expect::between(15.5, 20.5);
/// Behind the title of what an emulated processor takes its time for.
const EMULATED: &str = " (an emulated processor: which of two is more, and nothing else)";

struct Writer<'a> {
    results: &'a Results<Point>,
    bootstrap: Bootstrap,
    emulated: bool,
}

/// The report.
pub(super) fn of(results: &Results<Point>) -> Report {
    let emulated = results.machine.emulated();
    let writer = Writer { results, bootstrap: Bootstrap::new(results.seed), emulated };
    let seconds = results.settings["stream_seconds"].as_f64().unwrap_or_default();
    let how = format!(
        "a device and a gateway in network namespaces, joined by a cable; IKEv2 by a shared secret, ESP with {}; streams of {} s; {} rounds",
        suite(results),
        digits(seconds),
        results.rounds
    );
    Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic: false,
        traffic: results.obtained([how].into_iter().chain(levels(results))),
        claims: writer.claims(),
        tables: vec![writer.set_up(), writer.bytes(), writer.rates()],
        // What it would draw are sizes.
        figures: if emulated { Vec::new() } else { vec![writer.figure()] },
        notes: notes(emulated),
        provenance: results.into(),
    }
}

/// What protected the packets, as the file has it.
fn suite(results: &Results<Point>) -> &str {
    results.settings["suite"].as_str().unwrap_or(world::SUITE)
}

/// In what this device is not the paper's, as far as the file tells: the processor, the cipher, and who computes it.
fn what_differs(results: &Results<Point>) -> String {
    let (machine, suite) = (&results.machine, suite(results));
    let cpu = if machine.cpu.is_empty() { "another" } else { machine.cpu.as_str() };
    let mut words = format!("the processor is {cpu}, the paper's a PDA's of 400 MHz");
    if !suite.starts_with("3des") {
        words += &format!("; the cipher is that of {suite}, the paper's 3DES");
    }
    // A file without any flags does not tell.
    if suite.starts_with("aes") && !machine.flags.is_empty() {
        let has = has_aes(machine);
        let how = if has { "has instructions for AES" } else { "has no instructions for AES" };
        words += &format!("; this processor {how}");
    }
    words
}

fn set_up(way: Way) -> Point {
    Point::SetUp { way }
}

fn packet(way: Way, bytes: u32) -> Point {
    Point::Packet { way, bytes }
}

fn stream(way: Way, bytes: u32) -> Point {
    Point::Stream { way, bytes }
}

impl Writer<'_> {
    fn by_round(&self, point: &Point, name: &str) -> BTreeMap<u32, f64> {
        let rounds = self.results.at(point).into_iter().flat_map(|s| &s.rounds);
        rounds.filter_map(|r| Some((r.round, r.figures.one(name)?))).collect()
    }

    /// A quantity of the first point over that of the second, round by round.
    fn ratio(&self, name: &str, a: &Point, b: &Point) -> Option<Comparison> {
        self.bootstrap.paired(&paired(&self.by_round(a, name), &self.by_round(b, name)))
    }

    fn rates_over(&self, way: Way, other: Way, bytes: u32) -> Option<Comparison> {
        self.ratio("rate", &stream(way, bytes), &stream(other, bytes))
    }

    /// Bytes that a packet has more than by the other way, round by round.
    fn more(&self, way: Way, other: Way, bytes: u32) -> Option<Estimate> {
        let of = |way| self.by_round(&packet(way, bytes), "on_cable");
        let differences: Vec<f64> = paired(&of(way), &of(other)).iter().map(|(a, b)| a - b).collect();
        self.bootstrap.median(&differences)
    }

    fn median(&self, point: &Point, name: &str, scale: f64) -> String {
        let values: Vec<f64> = self.by_round(point, name).into_values().map(|v| v * scale).collect();
        let told = self.bootstrap.median(&values).filter(Estimate::is_enough);
        told.map_or_else(none, |e| Measured::from(e).resolved(digits, ""))
    }

    /// In words: how much it is, or of an emulated processor only where it lies beside 1.
    fn told(&self, compared: &Comparison) -> String {
        let ratio = Measured::from(compared.ratio);
        match (self.emulated, ratio.is_told()) {
            (_, false) => "too few rounds".to_owned(),
            (false, true) => in_times(ratio),
            (true, true) if ratio.low > 1.0 => "more".to_owned(),
            (true, true) if ratio.high < 1.0 => "less".to_owned(),
            (true, true) => "either".to_owned(),
        }
    }

    fn claims(&self) -> Vec<Claim> {
        vec![
            self.rate_falls(),
            self.by_a_third(),
            self.larger_is_faster(),
            self.own_address_is_faster(),
            self.call_takes_longer(),
            self.headers(),
        ]
    }

    /// Of each size, with what is said of it.
    fn each_size<T>(&self, of: impl Fn(u32) -> Option<T>, words: impl Fn(&T) -> String) -> (Vec<T>, String) {
        let found: Vec<(u32, T)> = SIZES.into_iter().filter_map(|bytes| Some((bytes, of(bytes)?))).collect();
        let words: Vec<String> =
            found.iter().map(|(bytes, of)| format!("{} at {bytes} B", words(of))).collect();
        let words = if words.is_empty() { "not measured".to_owned() } else { words.join(", ") };
        (found.into_iter().map(|(_, of)| of).collect(), words)
    }

    fn rate_falls(&self) -> Claim {
        let (found, ours) =
            self.each_size(|bytes| self.rates_over(Way::L2tp, Way::Plain, bytes), |c| self.told(c));
        Claim::new(
            "Fig. 4",
            "L2TP/IPsec lowers the highest reception rate",
            "27 % at 256 B, 34 % at 512 B, 33 % at 1,024 B",
            ours,
        )
        .decided(found.iter().map(|c| Decides::ratio(Expect::LESS, Some(c))).collect())
    }

    fn by_a_third(&self) -> Claim {
        let less = |c: &Comparison| percent_less(c.ratio);
        let compared = |bytes| self.rates_over(Way::L2tp, Way::Plain, bytes).filter(|_| !self.emulated);
        let (found, ours) = self.each_size(compared, less);
        let ours = if self.emulated { "no size, for the processor is emulated".to_owned() } else { ours };
        let size = |c: Option<&Comparison>| Decides::new(A_THIRD_LESS, c.map(|c| c.ratio.into()));
        let figures =
            if self.emulated { vec![size(None)] } else { found.iter().map(|c| size(Some(c))).collect() };
        Claim::new(
            "Fig. 4",
            "L2TP/IPsec lowers the highest reception rate by about a third",
            "27 % at 256 B, 34 % at 512 B, 33 % at 1,024 B",
            ours,
        )
        .decided(figures)
        .because(what_differs(self.results))
    }

    fn larger_is_faster(&self) -> Claim {
        let [small, .., large] = SIZES;
        let compared = [Way::Plain, Way::L2tp]
            .map(|way| (way, self.ratio("rate", &stream(way, large), &stream(way, small))));
        let words = compared
            .iter()
            .filter_map(|(way, c)| Some(format!("{} {}", self.told(c.as_ref()?), way.words())));
        let words: Vec<String> = words.collect();
        let directions = compared.iter().map(|(_, c)| Decides::ratio(Expect::MORE, c.as_ref()));
        let told = |c: &Option<Comparison>| c.filter(|_| !self.emulated).map(|c| c.ratio.into());
        let sizes = compared.iter().zip(LARGER).map(|((_, c), size)| Decides::new(size, told(c)));
        Claim::new(
            "Fig. 4",
            "Larger PDUs raise the reception rate, without a VPN and by L2TP/IPsec (1,024 B over 256 B)",
            "2.66 times without a VPN, 2.43 times with it",
            if words.is_empty() { "not measured".to_owned() } else { words.join(", ") },
        )
        .decided(directions.chain(sizes).collect())
    }

    fn own_address_is_faster(&self) -> Claim {
        let (found, ours) =
            self.each_size(|bytes| self.rates_over(Way::Ikev2, Way::L2tp, bytes), |c| self.told(c));
        let words = "With IKEv2's own inner address the highest reception rate is above that of L2TP/IPsec";
        Claim::new(NOT_IN_PAPER, words, "–", ours)
            .decided(found.iter().map(|c| Decides::ratio(Expect::MORE, Some(c))).collect())
    }

    fn call_takes_longer(&self) -> Claim {
        let compared = self.ratio("set_up", &set_up(Way::L2tp), &set_up(Way::Ikev2));
        let ours = compared.as_ref().map_or_else(|| "not measured".to_owned(), |c| self.told(c));
        let words = "By L2TP/IPsec it takes longer until a packet inside is answered than with IKEv2's own inner address";
        Claim::new(NOT_IN_PAPER, words, "–", ours)
            .decided(vec![Decides::ratio(Expect::MORE, compared.as_ref())])
    }

    fn headers(&self) -> Claim {
        let shown = |e: &Estimate| Measured::from(*e).resolved(|bytes| format!("{bytes:.0}"), " B");
        let (found, ours) = self.each_size(|bytes| self.more(Way::L2tp, Way::Ikev2, bytes), shown);
        let words = "A packet of L2TP/IPsec in transport mode has as many bytes more than with IKEv2's own inner address as UDP, L2TP and PPP have";
        Claim::new(NOT_IN_PAPER, words, "–", ours)
            .decided(found.into_iter().map(|e| Decides::new(HEADERS, Some(e.into()))).collect())
    }

    /// Behind the title of a table of times and rates.
    const fn remark(&self) -> &'static str {
        if self.emulated { EMULATED } else { "" }
    }

    fn set_up(&self) -> Exhibit<Table> {
        let mut table = Table::new([
            "",
            "session, s",
            "a packet inside is answered, s",
            "times IKEv2's own inner address",
        ]);
        table.title = format!("Set-up, medians over rounds{}", self.remark());
        for way in Way::PROTECTED {
            let over = self.ratio("set_up", &set_up(way), &set_up(Way::Ikev2)).filter(|_| way != Way::Ikev2);
            table.row([
                way.words().to_owned(),
                self.median(&set_up(way), "session", 1.0),
                self.median(&set_up(way), "set_up", 1.0),
                over.as_ref().map_or_else(none, |c| self.told(c)),
            ]);
        }
        Exhibit::new("section 4", table)
    }

    fn bytes(&self) -> Exhibit<Table> {
        let head = ["bytes of UDP", "", "on the cable, B", "more than without a VPN, B"];
        let mut table = Table::new(head);
        table.title = "Bytes on the cable, Ethernet's header among them, medians over rounds".to_owned();
        for bytes in SIZES {
            for way in Way::ALL {
                let more = self.more(way, Way::Plain, bytes).filter(|e| way != Way::Plain && e.is_enough());
                table.row([
                    bytes.to_string(),
                    way.words().to_owned(),
                    self.median(&packet(way, bytes), "on_cable", 1.0),
                    more.map_or_else(none, |e| Measured::from(e).resolved(digits, "")),
                ]);
            }
        }
        Exhibit::new("section 4", table)
    }

    fn rates(&self) -> Exhibit<Table> {
        let head = ["PDU, B", "", "Mbit/s", "times the rate without a VPN", "paper, Mbit/s", "paper, times"];
        let mut table = Table::new(head);
        table.title = format!("Highest reception rate, medians over rounds{}", self.remark());
        for theirs in MAXIMUM {
            for way in Way::ALL {
                let over = self.rates_over(way, Way::Plain, theirs.x).filter(|_| way != Way::Plain);
                let [rate, part] = match way {
                    Way::Plain => [digits(theirs.without.0), none()],
                    Way::Ikev2 => [none(), none()],
                    Way::L2tp => [digits(theirs.with.0), digits(theirs.with.0 / theirs.without.0)],
                };
                table.row([
                    theirs.x.to_string(),
                    way.words().to_owned(),
                    self.median(&stream(way, theirs.x), "rate", 1e-6),
                    over.as_ref().map_or_else(none, |c| self.told(c)),
                    rate,
                    part,
                ]);
            }
        }
        Exhibit::new("Fig. 4", table)
    }

    fn figure(&self) -> Exhibit<Chart> {
        let mut chart = Chart::new("l2tp", "Highest reception rate of that without a VPN", "PDU", "ratio");
        chart.categories = MAXIMUM.iter().map(|m| format!("{} B", m.x)).collect();
        chart.caption = "Medians over rounds; 1 is no difference.".to_owned();
        for (colour, way) in Way::PROTECTED.into_iter().enumerate() {
            let told = |bytes| self.rates_over(way, Way::Plain, bytes).map(|c| Measured::from(c.ratio));
            let points = MAXIMUM.iter().enumerate().filter_map(|(i, m)| {
                told(m.x).filter(Measured::is_resolved).map(|ratio| (i as f64, ratio.value))
            });
            let points: Vec<_> = points.collect();
            if !points.is_empty() {
                chart.add(way.words(), colour, Mark::Line, points);
            }
        }
        let paper = MAXIMUM.iter().enumerate().map(|(i, m)| (i as f64, m.with.0 / m.without.0));
        chart.add("the paper's", 4, Mark::Dashes, paper.collect());
        Exhibit::new("Fig. 4", chart)
    }
}

fn none() -> String {
    "–".to_owned()
}

fn notes(emulated: bool) -> Vec<String> {
    let machine = "Measured in a virtual machine whose processor is emulated by software: bytes are what they are anywhere; of times and rates only which of two is more means something, \
                   for a step of the processor costs what its emulation costs. On a machine with PPP in its kernel and with Debian's xl2tpd and ppp, as root, the same command measures that machine.";
    let all = [
        "The paper's device has a virtual address of the inner network by L2TP, above IPsec with a pre-shared key. Its IPsec is in tunnel mode, as a worst case, and uses 3DES; ours is in transport mode, as RFC 3193 has it, \
         and negotiates no 3DES. Tunnel mode would add another IP header of 20 bytes to each packet.",
        "L2TP and PPP are Debian's xl2tpd and pppd, L2TP's data go by the kernel. Neither end proves who it is by PPP, for IKE has done that, and nothing is compressed.",
        "Set-up begins with the command that begins a session, a process of its own, with nothing of an earlier session left; by L2TP the call follows as soon as the session is there. \
         The paper gives no times and no bytes.",
        "A round is not counted unless the session is in the mode that its way has, the kernel carries L2TP's data, and a recording of the cable has the device's packets as ESP and no byte of them in clear.",
        "As in the paper the gateway sends as fast as it can, and what reaches the device counts. Here both are one machine: the gateway's work takes processor time from the device's.",
    ];
    emulated.then_some(machine).into_iter().chain(all).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Finding;
    use crate::results::format::Machine;
    use crate::results::{Figures, Sample};

    /// A campaign in which each way and size has what `figures` says, give or take some percent.
    fn campaign(cpu: &str, figures: impl Fn(&Point) -> Figures) -> Results<Point> {
        let mut results = Results::new(Machine { cpu: cpu.to_owned(), ..Machine::default() });
        (results.rounds, results.seed) = (5, 1);
        for point in Point::all() {
            let mut sample = Sample::from(point);
            sample.verified = true;
            (1..=5).for_each(|round| sample.push(round, figures(&sample.point)));
            results.samples.push(sample);
        }
        results
    }

    /// As the paper has it: a third less by L2TP, and larger packets faster by as much.
    fn as_claimed(point: &Point) -> Figures {
        // Of what arrives of the largest packets.
        let part = |way, bytes| match (way, bytes) {
            (Way::L2tp, 256) => 1.0 / 2.43,
            (_, 256) => 1.0 / 2.66,
            (_, 512) => 0.65,
            _ => 1.0,
        };
        let slower = |way| match way {
            Way::Plain => 1.0,
            Way::Ikev2 => 0.8,
            Way::L2tp => 0.69,
        };
        match *point {
            Point::SetUp { way } => {
                let set_up = if way == Way::L2tp { 1.9 } else { 0.4 };
                Figures::default().with("set_up", set_up).with("session", 0.3)
            }
            Point::Packet { way, bytes } => {
                let more = [0, 56, 72][Way::ALL.iter().position(|w| *w == way).unwrap()];
                Figures::default().with("on_cable", f64::from(42 + bytes + more))
            }
            Point::Stream { way, bytes } => {
                Figures::default().with("rate", 1e7 * part(way, bytes) * slower(way))
            }
        }
    }

    fn findings(results: &Results<Point>) -> Vec<Finding> {
        let report = of(results);
        let _ = dormouse_testbed::browser::validate(report.name, &report.document().html().unwrap());
        report.claims.iter().map(|claim| claim.finding.unwrap()).collect()
    }

    #[test]
    fn what_is_as_claimed_is_confirmed_and_what_is_not_contradicted() {
        use Finding::{Confirmed, Contradicted};
        assert_eq!(findings(&campaign("a processor", as_claimed)), [Confirmed; 6]);
        // Everything the other way round.
        let other = |point: &Point| match as_claimed(point) {
            f if matches!(point, Point::Packet { way: Way::L2tp, .. }) => f.with("on_cable", 2_000.0),
            f if matches!(point, Point::Packet { .. }) => f,
            f => {
                let [set_up, rate] = ["set_up", "rate"].map(|name| f.one(name).map(|v| 1e9 / v));
                f.with("set_up", set_up).with("rate", rate)
            }
        };
        assert_eq!(findings(&campaign("a processor", other)), [Contradicted; 6]);
    }

    #[test]
    fn the_reason_for_another_size_is_what_the_file_tells_of_processor_and_cipher() {
        // Nothing is lost: not by a third.
        let same = |point: &Point| match *point {
            Point::Stream { bytes, .. } => Figures::default().with("rate", 1e4 * f64::from(bytes)),
            _ => as_claimed(point),
        };
        let why = |suite: &str, flags: &[&str]| {
            let mut results = campaign("a processor", same);
            results.settings = serde_json::json!({ "suite": suite });
            results.machine.flags = flags.iter().map(|f| (*f).to_owned()).collect();
            of(&results).claims[1].why.clone()
        };
        let [with, without, unknown] =
            [&["ssse3", "aes"][..], &["ssse3"], &[]].map(|flags| why("aes128gcm16", flags));
        assert!(
            with.starts_with("the processor is a processor, ")
                && with.contains("aes128gcm16, the paper's 3DES"),
            "{with}"
        );
        assert!(with.ends_with("has instructions for AES"), "{with}");
        assert!(without.ends_with("has no instructions for AES"), "{without}");
        assert!(!unknown.contains("instructions"), "{unknown}");
        let theirs = why("3des-sha1", &["aes"]);
        assert!(theirs.ends_with("400 MHz"), "the same cipher is no reason: {theirs}");
    }

    #[test]
    fn an_emulated_processor_tells_which_is_more_and_no_size() {
        use Finding::{Confirmed, NotMeasurable, Partly};
        let results = campaign("QEMU TCG CPU version 2.5+", as_claimed);
        let found = findings(&results);
        // A third is a size, and by how much larger packets are faster is one beside a direction.
        assert_eq!(found, [Confirmed, NotMeasurable, Partly, Confirmed, Confirmed, Confirmed]);
        let report = of(&results);
        assert!(report.figures.is_empty());
        for claim in report.claims.iter().filter(|claim| !claim.claim.starts_with("A packet")) {
            assert!(!claim.ours.contains("times") && !claim.ours.contains('%'), "{}", claim.ours);
        }
        let told: Vec<&str> = report.tables[0].shown.rows.iter().map(|row| row[3].as_str()).collect();
        assert_eq!(told, ["–", "more"]);
        assert!(
            report.tables[0].shown.title.contains("emulated")
                && report.tables[2].shown.title.contains("emulated")
        );
        assert!(!report.tables[1].shown.title.contains("emulated"), "bytes are counts");
    }
}
