//! What the paper says of exchanges, keys, puzzles, groups and updates, held against what was measured in one process. Owns the margins,
//! each of which is stated before anything is measured.

use super::{
    ALIKE, EXCHANGES, KEY_PAIRS, NEAR, SAVED, STANDBY, TABLETS, UPDATE, Writer, YARDSTICK, doubling, judged,
    shown,
};
use crate::judge::{Claim, Expect};
use crate::paper_002::campaign::{PAPER, Point};
use crate::paper_002::pair::Key;

const STAGES: &str = "Duration of the base exchange";
const PAIRS: &str = "Key pair creation";
/// Lengths of the pairs that every plan makes.
const SHORT: u32 = 1_024;

/// A claim about what is not here, and why not.
pub(super) fn not_here(place: &str, claim: &str, paper: &str, expect: Expect, why: &str) -> Claim {
    let claim = Claim::new(place, claim, paper, "not measured".to_owned());
    Claim { why: why.to_owned(), ..claim.judged(expect, None) }
}

/// Seconds of the paper's phone with OpenHIP in standby.
fn standby(scenario: usize) -> f64 {
    EXCHANGES.get(scenario).and_then(|(_, all)| all.get(STANDBY)).map_or(f64::NAN, |(mean, _)| *mean)
}

impl Writer<'_> {
    pub(super) fn claims(&self) -> Vec<Claim> {
        let mut claims = self.of_exchanges();
        claims.extend(self.of_key_pairs());
        claims.extend(self.of_stages());
        claims
    }

    fn of_exchanges(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> = (0..EXCHANGES.len())
            .filter_map(|n| {
                let (name, papers) = EXCHANGES.get(n)?;
                let of = |better: fn(f64, f64) -> f64| {
                    papers.iter().map(|p| p.0).reduce(better).unwrap_or(f64::NAN)
                };
                let (least, most) = (of(f64::min), of(f64::max));
                let claim = judged(
                    STAGES,
                    &format!("{name}: as long as on the phone"),
                    format!("{least} to {most} s"),
                    "s scaled",
                    Expect::between(least / NEAR, most * NEAR),
                    self.by_round(|r| r.scenarios().get(n).copied().unwrap_or(f64::NAN)),
                );
                Some(claim.because(self.makeup()))
            })
            .collect();
        let (reversed, two) = (standby(1) / standby(0), standby(2) / standby(0));
        let tablets = TABLETS[1] / TABLETS[0];
        claims.push(
            judged(
                STAGES,
                "it makes no difference whether phone or server begins",
                format!("{reversed:.2} times (server over phone)"),
                "times",
                Expect::within(1.0, ALIKE),
                self.by_round(|round| {
                    let [to_server, from_server, _] = round.scenarios();
                    from_server / to_server
                }),
            )
            .because(self.makeup()),
        );
        claims.push(
            judged(
                STAGES,
                "between two phones, or tablets, it takes about twice what it takes with a server",
                format!("{two:.2} times; tablets {tablets:.2}"),
                "times",
                Expect::within(two, NEAR),
                self.by_round(|round| {
                    let [to_server, _, two] = round.scenarios();
                    two / to_server
                }),
            )
            .because(self.makeup()),
        );
        claims.push(not_here(
            STAGES,
            "an active phone takes longer than one in standby",
            "1.2 to 1.9 times",
            Expect::MORE,
            "no phone, and so no standby of one, is here",
        ));
        claims.push(not_here(
            STAGES,
            "OpenHIP is a little faster than HIPL",
            "0.67 to 1.13 times",
            Expect::LESS,
            "neither of the two programs is measured, but one of our own",
        ));
        claims
    }

    /// Where the time of the paper's exchange goes here.
    fn makeup(&self) -> String {
        let stages = self.exchange(Key::Rsa1024V1, PAPER);
        let (initiator, responder) = (stages.initiator(), stages.responder());
        let short = self.exchange(Key::Rsa1024V1, (2, PAPER.1));
        let saved = initiator + responder - short.initiator() - short.responder();
        format!(
            "of the exchange here, {} ms are the initiator's and {} ms the responder's; half as long a prime as group 3's saves {} ms of both",
            shown(initiator),
            shown(responder),
            shown(saved)
        )
    }

    /// Milliseconds of both ends for an UPDATE.
    fn moves(&self, key: Key) -> f64 {
        self.value(Point::Update { key }, "mover") + self.value(Point::Update { key }, "peer")
    }

    fn of_key_pairs(&self) -> Vec<Claim> {
        let (algorithm, bits, seconds) = YARDSTICK;
        let beside = KEY_PAIRS.into_iter().filter(|pair| (pair.0, pair.1) != (algorithm, bits));
        let mut claims: Vec<Claim> = beside
            .map(|(other, length, mean, _)| {
                let times = mean / seconds;
                judged(
                    PAIRS,
                    &format!("{other:?}-{length}, times as long as {algorithm:?}-{bits}"),
                    format!("{times:.2} times"),
                    "times",
                    Expect::within(times, NEAR),
                    self.by_round(|r| r.created(other, length) / r.created(algorithm, bits)),
                )
            })
            .collect();
        for (words, long) in [("512 and 1024", false), ("2048", true)] {
            let of = KEY_PAIRS.into_iter().filter(|pair| (pair.1 > SHORT) == long);
            let figures: Vec<_> = of
                .map(|(algorithm, bits, mean, deviation)| {
                    let ours = self.by_round(|r| r.scatter(algorithm, bits));
                    (format!("{algorithm:?}-{bits}"), deviation / mean, ours)
                })
                .collect();
            let paper: Vec<String> =
                figures.iter().map(|(name, paper, _)| format!("{name} {paper:.2}")).collect();
            let ours: Vec<String> = figures
                .iter()
                .map(|(name, _, ours)| {
                    let ours = ours.filter(|m| m.is_told()).map_or_else(|| "–".to_owned(), |m| m.words(2));
                    format!("{name} {ours}")
                })
                .collect();
            let judged: Vec<_> =
                figures.iter().map(|(_, paper, ours)| (Expect::within(*paper, NEAR), *ours)).collect();
            let claim = format!(
                "times of pairs of {words} bits scatter as widely as on the phone (deviation over mean)"
            );
            claims.push(Claim::new(PAIRS, &claim, &paper.join(", "), ours.join(", ")).judged_all(&judged));
        }
        claims
    }

    fn of_stages(&self) -> Vec<Claim> {
        let [tablet, laptop] = UPDATE;
        let update = tablet / TABLETS[0];
        vec![
            judged(
                "Puzzle difficulty",
                "T2 grows exponentially with K: from K = 12 on it doubles with each bit",
                "a curve without figures".to_owned(),
                "doublings for each bit",
                Expect::about(1.0, 0.2),
                self.by_round(|round| doubling(&round.t2())),
            ),
            judged(
                "Influence of the group",
                "the 768-bit group saves something of a phone's exchange with a server, up to a third of a second",
                format!("up to {SAVED} s"),
                "s scaled",
                Expect::between(0.0, SAVED * NEAR),
                self.by_round(|round| {
                    round.with_server(Key::Rsa1024V1, PAPER.0) - round.with_server(Key::Rsa1024V1, 2)
                }),
            ),
            judged(
                "Duration of the mobility update",
                "an UPDATE takes a small part of a base exchange",
                format!("{update:.2} of it (tablet)"),
                "of it",
                Expect::below(update * NEAR),
                self.by_round(|r| r.update(Key::Rsa1024V1) / r.with_server(Key::Rsa1024V1, PAPER.0)),
            )
            .because(format!(
                "an UPDATE is mostly signatures: both ends take {} ms for it with RSA-1024, {} ms with ECDSA P-256; {}",
                shown(self.moves(Key::Rsa1024V1)),
                shown(self.moves(Key::P256)),
                self.makeup()
            )),
            judged(
                "Duration of the mobility update",
                "on the laptop it takes a tenth of a second",
                format!("{} ms, elapsed", laptop * 1e3),
                "ms, elapsed, until the daemons' packets pass again",
                Expect::within(laptop * 1e3, NEAR),
                self.by_round(|r| r.value(Point::Daemon { key: Key::Rsa2048 }, "moved")),
            )
            .because(format!(
                "no radio lies between here, and both ends' processors take {} ms for an UPDATE",
                shown(self.moves(Key::Rsa2048))
            )),
        ]
    }
}
