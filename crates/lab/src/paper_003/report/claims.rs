//! What the paper claims of throughput and windows, what else is claimed of the same figures, and what ours say. Owns the claims, their ranges
//! among them, which were stated before anything was measured, but for one: that esp-arq is no slower than SNOOP within MML-IPsec was claimed when a
//! first run had shown it.

use dormouse_report::digits;

use super::{Comparison, ERRORS, Line, Point, Stack, Writer, errors};
use crate::judge::{Claim, Decides, Expect};
use crate::paper_003::campaign::TRACED;

/// A claim about a factor is confirmed if ours is within this factor of the paper's.
const NEAR: f64 = 1.5;
const PLACE: &str = "section 5.4.1, Fig. 14";
const SEQUENCE: &str = "section 5.4.2, Fig. 15";
const WINDOW: &str = "section 5.4.3, Fig. 16";
const OURS: &str = "not in the paper";
/// The least of the paper's error rates: one wrong bit in 8 Mbit.
const LOW: u32 = 8_192;
/// One in 2 Mbit, from which on IPsec and MML-IPsec are alike.
const ALIKE: u32 = 2_048;

/// What stands of a comparison in the column of ours.
pub(super) fn factor(c: Option<Comparison>) -> String {
    c.map_or_else(
        || "not measured".to_owned(),
        |c| format!("{} [{}, {}]", digits(c.ratio.median), digits(c.ratio.low), digits(c.ratio.high)),
    )
}

/// Decided by one comparison.
pub(super) fn one(place: &str, claim: &str, paper: &str, expect: Expect, c: Option<Comparison>) -> Claim {
    Claim::new(place, claim, paper, factor(c)).judged(expect, c.map(|c| c.ratio.into()))
}

impl Writer<'_> {
    /// The ratio of two rates of Reno.
    fn reno(&self, a: (Line, u32), b: (Line, u32)) -> Option<Comparison> {
        let [a, b] = [a, b].map(|(line, kbit)| Point::new(line, Stack::Reno, kbit));
        self.ratio("rate", &a, &b)
    }

    /// The ratio of two mean windows of Reno at the rate of Figure 16.
    fn windows(&self, a: Line, b: Line) -> Option<Comparison> {
        let [a, b] = [a, b].map(|line| Point::new(line, Stack::Reno, TRACED));
        self.ratio("mean_window", &a, &b)
    }

    /// Decided by the ratio of two lines' rates at each of some error rates.
    fn each(&self, claim: Claim, stack: Stack, kbits: &[u32], (a, b): (Line, Line), expect: Expect) -> Claim {
        let ratio = |kbit| self.ratio("rate", &Point::new(a, stack, kbit), &Point::new(b, stack, kbit));
        let ratios: Vec<_> = kbits.iter().map(|kbit| ratio(*kbit)).collect();
        let said = kbits.iter().zip(&ratios).map(|(k, c)| format!("{}: {}", errors(*k), factor(*c)));
        let ours = said.collect::<Vec<_>>().join("; ");
        let figures = ratios.iter().map(|c| Decides::ratio(expect, c.as_ref())).collect();
        Claim { ours, ..claim }.decided(figures)
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        let bad: Vec<u32> = ERRORS.into_iter().filter(|kbit| *kbit > 0).collect();
        let claim = |place: &str, claim: &str, paper: &str| Claim::new(place, claim, paper, String::new());
        let always = claim(PLACE, "SNOOP makes Reno faster at every error rate", "always higher");
        let mut claims = vec![self.each(always, Stack::Reno, &bad, (Line::Snoop, Line::Tcp), Expect::MORE)];
        claims.extend(self.of_snoop_and_ipsec());
        claims.extend(self.of_zones(&bad));
        claims.extend(self.of_windows());
        claims.extend(self.of_esp_arq());
        claims.extend(self.of_shares());
        let today = [Stack::Cubic, Stack::Bbr].into_iter().filter(|stack| self.has(*stack));
        claims.extend(today.flat_map(|stack| {
            let name = stack.words();
            let no_slower = |words: String, rates: &[u32], lines| {
                self.each(claim(OURS, &words, "–"), stack, rates, lines, Expect::NOT_LESS)
            };
            let snoop = format!("SNOOP makes {name} of today, with SACK, no slower at any error rate");
            let arq = format!("by {name} too esp-arq is no slower than SNOOP within MML-IPsec");
            [
                no_slower(snoop, &bad, (Line::Snoop, Line::Tcp)),
                no_slower(arq, &ERRORS, (Line::EspArq, Line::MmlSnoop)),
            ]
        }));
        claims
    }

    fn of_snoop_and_ipsec(&self) -> [Claim; 5] {
        let over = |kbit| self.reno((Line::Snoop, kbit), (Line::Tcp, kbit));
        let left = |kbit| self.reno((Line::Ipsec, kbit), (Line::Ipsec, 0));
        [
            one(
                PLACE,
                "SNOOP at one wrong bit in 64 kbit, times Reno alone",
                "three times",
                Expect::within(3.0, NEAR),
                over(64),
            ),
            one(
                PLACE,
                "SNOOP at one in 8 Mbit, times Reno alone",
                "10 % higher",
                Expect::about(1.1, 0.05),
                over(LOW),
            ),
            one(
                PLACE,
                "IPsec without errors, of Reno in clear",
                "5 % less",
                Expect::about(0.95, 0.03),
                self.reno((Line::Ipsec, 0), (Line::Tcp, 0)),
            ),
            one(
                PLACE,
                "IPsec at one in 2 Mbit, of its rate without errors",
                "27 % less",
                Expect::about(0.73, 0.1),
                left(ALIKE),
            ),
            one(
                PLACE,
                "IPsec at one in 64 kbit, of its rate without errors",
                "62 % less",
                Expect::about(0.38, 0.1),
                left(64),
            ),
        ]
    }

    /// `bad`: all error rates.
    fn of_zones(&self, bad: &[u32]) -> Vec<Claim> {
        let claim = |claim, paper| Claim::new(PLACE, claim, paper, String::new());
        let same = |a, b, kbit| self.reno((a, kbit), (b, kbit));
        let like: Vec<u32> = bad.iter().copied().filter(|kbit| *kbit <= ALIKE).collect();
        let alike = claim(
            "IPsec is as fast as MML-IPsec where one bit in 2 Mbit or more is wrong",
            "almost the same",
        );
        let better =
            claim("SNOOP within MML-IPsec is faster than Reno alone at every error rate", "3 to 108 % more");
        vec![
            one(
                PLACE,
                "MML-IPsec without errors, of Reno in clear",
                "9 % less",
                Expect::about(0.91, 0.03),
                same(Line::Mml, Line::Tcp, 0),
            ),
            self.each(alike, Stack::Reno, &like, (Line::Ipsec, Line::Mml), Expect::about(1.0, 0.1)),
            one(
                PLACE,
                "SNOOP within MML-IPsec at one wrong bit in 64 kbit, times MML-IPsec alone",
                "as much as five times",
                Expect::within(5.0, NEAR),
                same(Line::MmlSnoop, Line::Mml, 64),
            ),
            one(
                PLACE,
                "the same, times IPsec alone",
                "up to five times",
                Expect::within(5.0, NEAR),
                same(Line::MmlSnoop, Line::Ipsec, 64),
            ),
            one(
                PLACE,
                "SNOOP within MML-IPsec at one in 8 Mbit, times MML-IPsec alone",
                "19 % more at low error rates",
                Expect::about(1.19, 0.05),
                same(Line::MmlSnoop, Line::Mml, LOW),
            ),
            one(
                PLACE,
                "SNOOP within MML-IPsec at one in 8 Mbit, times IPsec alone",
                "14 % more at low error rates",
                Expect::about(1.14, 0.05),
                same(Line::MmlSnoop, Line::Ipsec, LOW),
            ),
            self.each(better, Stack::Reno, bad, (Line::MmlSnoop, Line::Tcp), Expect::MORE),
            one(
                PLACE,
                "SNOOP within MML-IPsec at one in 8 Mbit, times Reno alone",
                "3 % more",
                Expect::about(1.03, 0.05),
                same(Line::MmlSnoop, Line::Tcp, LOW),
            ),
            one(
                PLACE,
                "SNOOP within MML-IPsec at one in 64 kbit, times Reno alone",
                "108 % more",
                Expect::within(2.08, NEAR),
                same(Line::MmlSnoop, Line::Tcp, 64),
            ),
            one(
                OURS,
                "MML-IPsec+SNOOP at one wrong bit in 64 kbit, times IPsec: at least five times",
                "–",
                Expect::above(5.0),
                same(Line::MmlSnoop, Line::Ipsec, 64),
            ),
            one(
                OURS,
                "MML-IPsec+SNOOP without errors, of IPsec: at most 3 % less",
                "–",
                Expect::above(0.97),
                same(Line::MmlSnoop, Line::Ipsec, 0),
            ),
        ]
    }

    fn of_windows(&self) -> [Claim; 4] {
        let same = |a, b| self.reno((a, TRACED), (b, TRACED));
        [
            one(
                SEQUENCE,
                "sequence numbers at one in 512 kbit: their growth with SNOOP within MML-IPsec, times that with IPsec",
                "twice",
                Expect::within(2.0, NEAR),
                same(Line::MmlSnoop, Line::Ipsec),
            ),
            one(
                WINDOW,
                "SNOOP within MML-IPsec at one in 512 kbit, times MML-IPsec alone",
                "170 % more",
                Expect::within(2.7, NEAR),
                same(Line::MmlSnoop, Line::Mml),
            ),
            one(
                WINDOW,
                "mean congestion window at one in 512 kbit: with SNOOP, times Reno alone",
                "35 against 6",
                Expect::within(35.0 / 6.0, NEAR),
                self.windows(Line::Snoop, Line::Tcp),
            ),
            one(
                WINDOW,
                "mean congestion window at one in 512 kbit: with SNOOP within MML-IPsec, times MML-IPsec alone",
                "26 against 5",
                Expect::within(26.0 / 5.0, NEAR),
                self.windows(Line::MmlSnoop, Line::Mml),
            ),
        ]
    }

    fn of_esp_arq(&self) -> [Claim; 4] {
        let claim = |claim| Claim::new(OURS, claim, "–", String::new());
        let clear =
            claim("esp-arq, which exposes nothing, is as fast as SNOOP in clear, but for the 5 % of IPsec");
        let zones = claim("esp-arq is no slower than SNOOP within MML-IPsec at any error rate");
        let whole = claim("esp-arq is no slower than SNOOP in clear at any error rate");
        let lines = |other| (Line::EspArq, other);
        [
            self.each(whole, Stack::Reno, &ERRORS, lines(Line::Snoop), Expect::NOT_LESS),
            self.each(clear, Stack::Reno, &ERRORS, lines(Line::Snoop), Expect::above(0.95)),
            self.each(zones, Stack::Reno, &ERRORS, lines(Line::MmlSnoop), Expect::NOT_LESS),
            one(
                OURS,
                "esp-arq at one wrong bit in 64 kbit, times IPsec alone",
                "at least five times",
                Expect::above(5.0),
                self.reno((Line::EspArq, 64), (Line::Ipsec, 64)),
            ),
        ]
    }
}
