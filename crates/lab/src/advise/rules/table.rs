//! The rules of paper 004, section by section, as data. Owns their wording and the comparisons that test them.

use super::{ANY, Definition, Differ, Mode, NO_GAINS, Pair, Pick, Rule, Test, missing, pairs};
use crate::judge::stats::{Bootstrap, Measured};
use crate::judge::{Decides, Expect, Finding};
use crate::results::Results;
use crate::results::esp::{Encapsulation, Engine, Metric, What};

const SOFT: Pick = Pick { aes: Some(false), ..ANY };
const HARD: Pick = Pick { aes: Some(true), ..ANY };
/// Our ESP.
const OURS: Pick = Pick { engine: Some(Engine::Dormouse), ..ANY };
/// No ESP at all: around nothing, it would still be ESP.
const BARE: Pick = Pick { wrap: Some(Encapsulation::None), ..ANY };
const PATHS: &[What] = &[What::Download, What::Path, What::Crypto];
const WHOLE: &[What] = &[What::Download, What::Path];
const MODES: &str = "AES modes with HMAC-SHA1";

/// TLS and IPsec with AES-GCM.
const LAYERS: [Pick; 2] = [ANY.what(What::Tls), OURS.mode(Mode::Gcm).what(What::Download)];
/// The two claims about TLS, and what of Figure 11 is drawn.
pub(crate) const TLS_FASTER: Test =
    Test::new(LAYERS[0], LAYERS[1], Differ::Layer, Metric::Throughput).files(LARGE).expect(Expect::MORE);
pub(crate) const TLS_CPU: Test =
    Test::new(LAYERS[0], LAYERS[1], Differ::Layer, Metric::Cpu).expect(Expect::MORE);
/// AES-CBC, the cipher of the paper's section 5, in our tunnel mode.
const TUNNEL: Pick = OURS.mode(Mode::Cbc).wrap(Encapsulation::Tunnel);
const ALL: (u32, u32) = (1, 1_500);
/// A download of so many bytes is large: one whose time is not that of the handshake and the first window.
const LARGE: u64 = 1_000_000;

/// Modes against each other.
const fn modes(
    first: Mode,
    second: Mode,
    of: Pick,
    metric: Metric,
    sizes: (u32, u32),
    expect: Expect,
) -> Test {
    Test::new(of.mode(first), of.mode(second), Differ::Suite, metric).at(sizes).expect(expect)
}

const fn wrapped(
    first: Encapsulation,
    second: Encapsulation,
    metric: Metric,
    sizes: (u32, u32),
    expect: Expect,
) -> Test {
    Test::new(OURS.wrap(first), OURS.wrap(second), Differ::Wrap, metric).at(sizes).expect(expect)
}

/// The same on several cores and on one.
const fn cores(of: Pick, metric: Metric, expect: Expect) -> Test {
    Test::new(of.many(true), of.many(false), Differ::Cores, metric).expect(expect)
}

/// A mode by the processor's instructions and without them.
const fn instructions(mode: Mode) -> Test {
    Test::new(HARD.mode(mode), SOFT.mode(mode), Differ::Aes, Metric::Throughput).expect(Expect::MORE)
}

pub(super) const RULES: &[Definition] = &[
    Definition {
        id: "software-small",
        place: "section 4.1, Table 2",
        rule: "AES in software, 180-byte packets: CBC is not slower than CTR",
        paper: "CBC, with no clear advantage over CTR",
        on: PATHS,
        tests: &[modes(Mode::Cbc, Mode::Ctr, SOFT, Metric::Throughput, (1, 199), Expect::NOT_LESS)],
        needs: "CBC and CTR in software at up to 199 bytes",
        words: &["aes instructions", "mask"],
    },
    Definition {
        id: "software-middle",
        place: "section 4.1, Table 2",
        rule: "AES in software, 200 to 1,000 bytes: CTR is faster than CBC",
        paper: "CTR (up to 600 bytes in the text)",
        on: PATHS,
        tests: &[modes(Mode::Ctr, Mode::Cbc, SOFT, Metric::Throughput, (200, 999), Expect::MORE)],
        needs: "CTR and CBC in software at 200 to 999 bytes",
        words: &["aes instructions", "mask"],
    },
    Definition {
        id: "software-large",
        place: "section 4.1, Table 2",
        rule: "AES in software, 1,000 to 1,500 bytes: CBC is faster than CTR",
        paper: "CBC",
        on: PATHS,
        tests: &[modes(Mode::Cbc, Mode::Ctr, SOFT, Metric::Throughput, (1_000, 1_500), Expect::MORE)],
        needs: "CBC and CTR in software at 1,000 to 1,500 bytes",
        words: &["aes instructions", "mask"],
    },
    Definition {
        id: "software-aead",
        place: "section 4.1, Figs. 1a and 2a",
        rule: "AES in software: CCM and GCM take more CPU than CBC and CTR with SHA1",
        paper: "1.2 to 1.4 times",
        on: PATHS,
        tests: &[
            modes(Mode::Ccm, Mode::Cbc, SOFT, Metric::Cpu, ALL, Expect::MORE).by(1.2, 1.4),
            modes(Mode::Gcm, Mode::Cbc, SOFT, Metric::Cpu, ALL, Expect::MORE).by(1.2, 1.4),
            modes(Mode::Ccm, Mode::Ctr, SOFT, Metric::Cpu, ALL, Expect::MORE).by(1.2, 1.4),
            modes(Mode::Gcm, Mode::Ctr, SOFT, Metric::Cpu, ALL, Expect::MORE).by(1.2, 1.4),
        ],
        needs: "the four modes in software",
        words: &["aes instructions", "mask"],
    },
    Definition {
        id: "hardware-small",
        place: "section 4.1, Fig. 1b",
        rule: "AES instructions, 180 to 200 bytes: CBC is faster than CTR, CCM and GCM",
        paper: "2 to 3 times",
        on: PATHS,
        tests: &[
            modes(Mode::Cbc, Mode::Ctr, HARD, Metric::Throughput, (180, 200), Expect::MORE).by(2.0, 3.0),
            modes(Mode::Cbc, Mode::Ccm, HARD, Metric::Throughput, (180, 200), Expect::MORE).by(2.0, 3.0),
            modes(Mode::Cbc, Mode::Gcm, HARD, Metric::Throughput, (180, 200), Expect::MORE).by(2.0, 3.0),
        ],
        needs: MODES,
        words: &["aes instructions"],
    },
    Definition {
        id: "hardware-elapsed",
        place: "section 4.1, Table 2",
        rule: "AES instructions, above 200 bytes: CTR is faster than CBC",
        paper: "CTR for elapsed time",
        on: PATHS,
        tests: &[modes(Mode::Ctr, Mode::Cbc, HARD, Metric::Throughput, (201, 1_500), Expect::MORE)],
        needs: MODES,
        words: &["aes instructions"],
    },
    Definition {
        id: "hardware-cpu",
        place: "section 4.1, Table 2",
        rule: "AES instructions: CBC takes no more CPU than CTR",
        paper: "CBC for CPU time; alike above 800 bytes",
        on: PATHS,
        tests: &[modes(Mode::Cbc, Mode::Ctr, HARD, Metric::Cpu, ALL, Expect::NOT_MORE)],
        needs: MODES,
        words: &["aes instructions"],
    },
    Definition {
        id: "ccm-over-gcm",
        place: "section 4.1",
        rule: "AES instructions: CCM is faster than GCM",
        paper: "CCM clearly, in the Linux kernel of 2015",
        on: PATHS,
        tests: &[modes(Mode::Ccm, Mode::Gcm, HARD, Metric::Throughput, ALL, Expect::MORE)],
        needs: "CCM and GCM with AES instructions",
        words: &["ccm"],
    },
    Definition {
        id: "composed-over-aead",
        place: "section 4.1, conclusions",
        rule: "CBC and CTR with SHA1 are faster than GCM and CCM, with or without AES instructions",
        paper: "recommended over CCM and GCM",
        on: PATHS,
        tests: &[
            modes(Mode::Cbc, Mode::Gcm, ANY, Metric::Throughput, ALL, Expect::MORE),
            modes(Mode::Ctr, Mode::Gcm, ANY, Metric::Throughput, ALL, Expect::MORE),
            modes(Mode::Cbc, Mode::Ccm, ANY, Metric::Throughput, ALL, Expect::MORE),
            modes(Mode::Ctr, Mode::Ccm, ANY, Metric::Throughput, ALL, Expect::MORE),
        ],
        needs: MODES,
        words: &["ccm", "gcm"],
    },
    Definition {
        id: "one-core",
        place: "section 4.2, Figs. 3 and 4",
        rule: "One communication is not faster on several cores; small packets take more CPU there, large ones with CCM or GCM less",
        paper: "1.3 to 1.7 times the time and CPU for small packets, at least 1.1 times the time for large ones; with CCM and GCM 0.85 times the CPU for these",
        on: WHOLE,
        tests: &[
            cores(OURS, Metric::Throughput, Expect::NOT_MORE).at((180, 400)).by(1.0 / 1.7, 1.0 / 1.3),
            cores(OURS, Metric::Cpu, Expect::MORE).at((180, 400)).by(1.3, 1.7),
            cores(OURS, Metric::Throughput, Expect::NOT_MORE).at((401, 1_500)).by(0.0, 1.0 / 1.1),
            cores(OURS.mode(Mode::Ccm), Metric::Cpu, Expect::LESS).at((401, 1_500)).by(0.85, 0.85),
            cores(OURS.mode(Mode::Gcm), Metric::Cpu, Expect::LESS).at((401, 1_500)).by(0.85, 0.85),
        ],
        needs: "the same path on one core and on several",
        words: &["core"],
    },
    Definition {
        id: "aes-instructions",
        place: "section 4.3, Fig. 5",
        rule: "AES instructions make every mode faster and cheaper",
        paper: "above 250 bytes 1.3 times faster with CCM and 1.1 times with CBC, below 3.3 times with CBC; 1.5 times, with half of the CPU, in the conclusions",
        on: PATHS,
        tests: &[
            // Where section 4.3 has no size of a mode, the conclusions' holds, which is of all together.
            instructions(Mode::Ccm).at((1, 250)).by(1.5, 1.5),
            instructions(Mode::Ccm).at((251, 1_500)).by(1.3, 1.3),
            instructions(Mode::Cbc).at((1, 250)).by(3.3, 3.3),
            instructions(Mode::Cbc).at((251, 1_500)).by(1.1, 1.1),
            instructions(Mode::Ctr).by(1.5, 1.5),
            instructions(Mode::Gcm).by(1.5, 1.5),
            Test::new(HARD, SOFT, Differ::Aes, Metric::Cpu).expect(Expect::LESS).by(0.5, 0.5),
        ],
        needs: "a run with the AES instructions masked",
        words: &["aes instructions", "mask"],
    },
    Definition {
        id: "network-overhead",
        place: "section 5.1, Fig. 7",
        rule: "ESP with NULL encryption takes more CPU than no ESP",
        paper: "1.5 times",
        on: WHOLE,
        tests: &[Test::new(ANY.mode(Mode::Null), BARE.mode(Mode::Plain), Differ::Protection, Metric::Cpu)
            .expect(Expect::MORE)
            .by(1.5, 1.5)],
        needs: "NULL with SHA1, and the path without ESP",
        words: &["null", "none"],
    },
    Definition {
        id: "encryption-overhead",
        place: "section 5.1, Fig. 6",
        rule: "AES-CBC takes more CPU than NULL encryption",
        paper: "3.75 times",
        on: PATHS,
        tests: &[modes(Mode::Cbc, Mode::Null, ANY, Metric::Cpu, ALL, Expect::MORE).by(3.75, 3.75)],
        needs: "AES-CBC and NULL, both with SHA1",
        words: &["null"],
    },
    Definition {
        id: "tunnel-large",
        place: "section 5.2, Fig. 8",
        rule: "Above 500 bytes, tunnel mode is not slower than transport mode",
        paper: "no increase on one core",
        on: WHOLE,
        tests: &[wrapped(
            Encapsulation::Tunnel,
            Encapsulation::Transport,
            Metric::Throughput,
            (500, 1_500),
            Expect::NOT_LESS,
        )],
        needs: "tunnel and transport mode",
        words: &["transport", "tunnel"],
    },
    Definition {
        id: "tunnel-small",
        place: "section 5.2, Fig. 8",
        rule: "Below 500 bytes, tunnel mode takes more CPU than transport mode",
        paper: "an overhead below 500 to 700 bytes on one core",
        on: WHOLE,
        tests: &[wrapped(
            Encapsulation::Tunnel,
            Encapsulation::Transport,
            Metric::Cpu,
            (1, 499),
            Expect::MORE,
        )],
        needs: "tunnel and transport mode below 500 bytes",
        words: &["transport", "tunnel"],
    },
    Definition {
        id: "tunnel-cores-software",
        place: "section 5.2",
        rule: "In tunnel mode, AES in software is faster on several cores than on one",
        paper: "several cores recommended",
        on: WHOLE,
        tests: &[cores(Pick { aes: Some(false), ..TUNNEL }, Metric::Throughput, Expect::MORE)],
        needs: "AES-CBC in software in tunnel mode on one core and on several",
        words: &["core", "aes instructions"],
    },
    Definition {
        id: "tunnel-cores-hardware",
        place: "section 5.2",
        rule: "In tunnel mode, AES instructions take more CPU on several cores than on one",
        paper: "one core recommended",
        on: WHOLE,
        tests: &[cores(Pick { aes: Some(true), ..TUNNEL }, Metric::Cpu, Expect::MORE)],
        needs: "AES-CBC by instructions in tunnel mode on one core and on several",
        words: &["core"],
    },
    Definition {
        id: "udp-encapsulation",
        place: "section 5.3, Fig. 9",
        rule: "UDP encapsulation costs what tunnel mode costs, next to nothing for large packets",
        paper: "alike",
        on: WHOLE,
        tests: &[
            wrapped(
                Encapsulation::UdpTransport,
                Encapsulation::Tunnel,
                Metric::Throughput,
                (500, 1_500),
                Expect::TIE,
            ),
            wrapped(
                Encapsulation::UdpTransport,
                Encapsulation::Transport,
                Metric::Throughput,
                (500, 1_500),
                Expect::TIE,
            ),
        ],
        needs: "transport mode with and without UDP, and tunnel mode",
        words: &["udp encapsulation", "raw esp"],
    },
    Definition {
        id: "governor-large",
        place: "section 6, Fig. 10",
        rule: "Large packets: a fixed high frequency is faster than the governor ondemand",
        paper: "ondemand is slower where it switches",
        on: PATHS,
        tests: &[Test::new(
            ANY.governor("performance"),
            ANY.governor("ondemand"),
            Differ::Governor,
            Metric::Throughput,
        )
        .at((500, 1_500))
        .expect(Expect::MORE)],
        needs: "the governors performance and ondemand",
        words: &["governor"],
    },
    Definition {
        id: "governor-conservative",
        place: "section 6, Fig. 10",
        rule: "The governor conservative is no slower than performance",
        paper: "little difference, so conservative is recommended for its power",
        on: PATHS,
        tests: &[Test::new(
            ANY.governor("conservative"),
            ANY.governor("performance"),
            Differ::Governor,
            Metric::Throughput,
        )
        .expect(Expect::NOT_LESS)],
        needs: "the governors conservative and performance",
        words: &["governor"],
    },
    Definition {
        id: "tls-faster",
        place: "section 7, Fig. 11",
        rule: "A large download is faster over TLS than over IPsec",
        paper: "on the PC; IPsec is ahead on the netbook and the single-board computer",
        on: &[What::Tls],
        tests: &[TLS_FASTER],
        needs: "the same large file over TLS and over IPsec",
        words: &["tls"],
    },
    Definition {
        id: "tls-cpu",
        place: "conclusions",
        rule: "TLS takes more CPU than IPsec, so constrained devices should use IPsec",
        paper: "more CPU cycles",
        on: &[What::Tls],
        tests: &[TLS_CPU],
        needs: "the same file over TLS and over IPsec",
        words: &["tls"],
    },
];

/// Section 4.3's last rule compares four gains, not two samples: CCM and CBC are said to gain more from AES instructions than
/// CTR and GCM, each of them. A gain is larger than another if their intervals say so.
pub(super) fn who_gains_most(results: &Results, bootstrap: &Bootstrap) -> Rule {
    let gain = |m: Mode, what: What| {
        let test = Test::new(HARD.mode(m), SOFT.mode(m), Differ::Aes, Metric::Throughput)
            .at((250, 1_500))
            .expect(Expect::MORE);
        // The largest packets, where the cipher counts most.
        pairs(results, bootstrap, &test, Some(what)).pop().filter(|p| p.comparison.ratio.is_enough())
    };
    let rule = |figures: Vec<Decides>, ours| Rule {
        id: "who-gains-most",
        place: "section 4.3, Fig. 5",
        rule: "CCM and CBC gain more from AES instructions than CTR and GCM",
        paper: "CCM 1.3 times, CBC 1.1 times for large packets; CBC 3.3 times below 250 bytes",
        finding: Finding::each(figures.iter().map(Decides::finding)),
        ours,
        figures,
    };
    if results.machine.emulated() {
        return rule(Vec::new(), NO_GAINS.to_owned());
    }
    let all = |what: What| {
        let of = |m| gain(m, what);
        Some([
            ("CBC", of(Mode::Cbc)?),
            ("CCM", of(Mode::Ccm)?),
            ("CTR", of(Mode::Ctr)?),
            ("GCM", of(Mode::Gcm)?),
        ])
    };
    let Some((what, gains)) = PATHS.iter().find_map(|what| Some((*what, all(*what)?))) else {
        let needs = "all four modes with and without AES instructions";
        return rule(Vec::new(), missing(results, needs, &["aes instructions", "mask"]));
    };
    let (said, others) = gains.split_at(2);
    let figures = said.iter().flat_map(|(_, a)| others.iter().map(move |(_, b)| more(results, a, b)));
    let words: Vec<String> = gains
        .iter()
        .map(|(name, pair)| {
            let r = pair.comparison.ratio;
            format!("{name} {:.2} times [{:.2}, {:.2}]", r.median, r.low, r.high)
        })
        .collect();
    rule(figures.collect(), format!("{}: {}", what.words(), words.join(", ")))
}

/// Whether one gain is larger than another. They were not measured side by side: their intervals must lie apart.
fn more(results: &Results, a: &Pair<'_>, b: &Pair<'_>) -> Decides {
    let (one, other) = (a.comparison.ratio, b.comparison.ratio);
    let ours = Measured {
        value: one.median / other.median,
        low: one.low / other.high,
        high: one.high / other.low,
        n: one.n.min(other.n),
        level: one.level.min(other.level),
    };
    let places = results.places(&[a.first, a.second, b.first, b.second]);
    Decides { tie: true, ..Decides::new(Expect::MORE, Some(ours)) }.from(places, Metric::Throughput.name())
}
