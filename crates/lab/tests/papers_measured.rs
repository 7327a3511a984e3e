//! The experiments on measurements, on invented files where the direction of every finding is known: every table and figure is
//! there, findings follow the numbers, and what was not measured is said.

mod common;
#[path = "common/streams.rs"]
mod made;

use common::{campaign, sample};
use dormouse_energy::profile::Profile;
use dormouse_lab::judge::{Claim, Finding};
use dormouse_lab::results::esp::{Encapsulation, Engine, What};
use dormouse_lab::results::format::{Discarded, Input, Machine, Skipped};
use dormouse_lab::{Report, paper_001, paper_004};
use made::streams;

fn claim<'a>(report: &'a Report, words: &str) -> &'a Claim {
    report.claims.iter().find(|c| c.claim.contains(words)).unwrap_or_else(|| panic!("no claim about {words}"))
}

#[test]
fn paper_001_checks_the_direction_and_the_size_of_every_finding() {
    let (theirs, modern) = (paper_001::report(&streams(false)), paper_001::report(&streams(true)));
    for (words, there, here) in [
        ("lowers the highest reception rate", Finding::Confirmed, Finding::Contradicted),
        ("Larger PDUs raise", Finding::Confirmed, Finding::Contradicted),
        ("more energy with IPsec", Finding::Confirmed, Finding::Contradicted),
        ("grows with the rate", Finding::Confirmed, Finding::Contradicted),
        ("halves the highest rate", Finding::Confirmed, Finding::NotMeasurable),
        ("collapses reception", Finding::Confirmed, Finding::Contradicted),
        ("3DES with SHA1 is dearest", Finding::Confirmed, Finding::Confirmed),
    ] {
        assert_eq!(claim(&theirs, words).finding, Some(there), "{words}: {}", claim(&theirs, words).ours);
        assert_eq!(claim(&modern, words).finding, Some(here), "{words}: {}", claim(&modern, words).ours);
    }
    let third = &claim(&theirs, "lowers the highest").ours;
    assert!(
        third.contains("28 % [28, 28] at 256 B") && third.contains("aes128gcm16: 0.0 % [0.0, 0.0]"),
        "{third}"
    );
    // At five of its seven rates, direction and size of each: above, its device loses packets instead.
    assert_eq!(claim(&theirs, "more energy with IPsec").figures.len(), 10);
    let advice = claim(&theirs, "3DES with SHA1 is dearest");
    assert!(
        advice.ours.contains("allowed today: aes128gcm16") && advice.why.contains("MUST NOT"),
        "{advice:?}"
    );
}

/// A direction alone confirms no size, and an emulated processor has none.
#[test]
fn paper_001_sizes_are_judged_beside_directions() {
    let mut twice = streams(false);
    for sample in twice.samples.iter_mut().filter(|s| s.what == What::Stream) {
        // Twice the energy with the paper's suite, much more of the largest packets, and fewer fragments still.
        let (dear, large) =
            (sample.suite == "3des-sha1", sample.packet_bytes == 1_024 && sample.offered.is_none());
        let fragments = sample.packet_bytes == 2_048 && sample.offered.is_some();
        for round in &mut sample.rounds {
            let f = std::mem::take(&mut round.figures);
            let [joules, rate, lost] =
                ["joules", "throughput", "loss"].map(|name| f.one(name).expect("it is there"));
            round.figures = f
                .with("joules", if dear { 2.0 * joules } else { joules })
                .with("throughput", if large { 2.0 * rate } else { rate })
                .with("loss", if fragments { 1.0 - (1.0 - lost) / 10.0 } else { lost });
        }
    }
    let mut emulated = streams(false);
    emulated.machine.cpu = "QEMU TCG CPU version 2.5+".to_owned();
    for results in [&twice, &emulated] {
        let report = paper_001::report(results);
        for words in ["Larger PDUs raise", "more energy with IPsec", "collapses reception"] {
            let claim = claim(&report, words);
            assert_eq!(claim.finding, Some(Finding::Partly), "{words}: {}", claim.ours);
        }
    }
    let sizes = |results| {
        let report = paper_001::report(results);
        let claim = claim(&report, "lowers the highest reception rate");
        claim.figures.iter().filter(|f| f.ours.is_some()).count()
    };
    assert_eq!((sizes(&twice), sizes(&emulated)), (3, 0));
}

#[test]
fn paper_001_has_every_figure_and_the_papers_own_numbers() {
    let report = paper_001::report(&streams(false));
    for place in ["Fig. 4", "Figs. 5 and 7", "Fig. 6", "Fig. 8", "Fig. 9", "Fig. 10"] {
        let figure = report.figures.iter().find(|f| f.place == place).expect(place);
        assert!(
            figure.shown.series.iter().any(|s| s.name.starts_with("ours") && !s.points.is_empty()),
            "{place}"
        );
        let table = report.tables.iter().find(|t| t.place == place).expect(place);
        assert!(table.shown.rows.iter().all(|r| r.len() == table.shown.head.len()), "{place}");
        assert!(
            table.shown.rows.iter().flatten().all(|cell| !cell.contains("not measured")),
            "{place}: {table:?}"
        );
    }
    for (place, row, theirs) in [
        ("Fig. 6, packets", 0, ["1000", "20864", "19975", "-4 %"]),
        ("Fig. 8, packets", 3, ["2048", "867", "324", "-63 %"]),
    ] {
        let table = report.tables.iter().find(|t| t.place == place).expect(place);
        assert_eq!(table.shown.rows[row][..4], theirs.map(str::to_owned), "{place}");
        assert!(table.shown.rows.iter().all(|r| r.len() == table.shown.head.len()), "{place}: {table:?}");
        assert!(table.shown.rows.iter().flatten().all(|cell| cell != "not measured"), "{place}: {table:?}");
    }
    let table = &report.tables[0];
    assert_eq!(table.shown.rows[2][1..4], ["3.11 ± 0.07", "2.08 ± 0.01", "-33 %"].map(str::to_owned));
    let text = report.document().text();
    assert!(text.contains("finding   confirmed") && text.contains("3.11 ± 0.07"), "{text}");
    let page = report.document().html().expect("a page");
    assert!(page.contains(">confirmed</td>") && !page.contains("NaN") && !page.contains("<script"));
    assert_eq!(report.json()["tables"][0]["place"], "Fig. 4");
}

/// A number of packets stands beside the length of its stream, which is another in each plan.
#[test]
fn paper_001_counts_packets_in_streams_of_stated_length() {
    for (seconds, words) in [
        (180.004, "in streams of 180 s, the paper's and ours"),
        (1.001, "paper's streams of 180 s and in ours of 1.00 s"),
    ] {
        let mut results = streams(false);
        for round in results.samples.iter_mut().flat_map(|s| &mut s.rounds) {
            round.figures = std::mem::take(&mut round.figures).with("elapsed", seconds);
        }
        let report = paper_001::report(&results);
        for place in ["Fig. 6, packets", "Fig. 8, packets"] {
            let title = &report.tables.iter().find(|t| t.place == place).expect(place).shown.title;
            assert!(title.contains(words), "{title}");
        }
    }
    let nothing = paper_001::report(&campaign());
    let table = nothing.tables.iter().find(|t| t.place == "Fig. 6, packets").expect("it");
    assert!(table.shown.title.ends_with("in the paper's streams of 180 s"), "{}", table.shown.title);
}

#[test]
fn paper_001_shows_no_figure_whose_interval_is_wider_than_itself() {
    let mut results = streams(false);
    let unsteady =
        results.samples.iter_mut().find(|s| s.suite == "3des-sha1" && s.offered.is_some_and(|o| o < 60e3));
    let unsteady = unsteady.expect("the slowest stream");
    for (round, times) in unsteady.rounds.iter_mut().zip([0.1, 8.0, 0.3, 5.0, 1.0]) {
        let joules = round.figures.one("joules").expect("metered");
        round.figures = std::mem::take(&mut round.figures).with("joules", joules * times);
    }
    let report = paper_001::report(&results);
    let words = &claim(&report, "more energy with IPsec").ours;
    assert!(
        words.starts_with("not resolved (") && words.contains("+60 % [+60, +60] at 128 kbit/s"),
        "{words}"
    );
    let table = &report.tables.iter().find(|t| t.place == "Figs. 5 and 7").expect("it").shown;
    assert!(
        table.rows[0][6].starts_with("not resolved (") && table.rows[1][6].starts_with("+60 % ["),
        "{table:?}"
    );
    let chart = &report.figures.iter().find(|f| f.place == "Figs. 5 and 7").expect("it").shown;
    let ours = &chart.series.iter().find(|s| s.name == "ours, 3DES-SHA1").expect("it").points;
    let drawn: Vec<f64> = ours.iter().map(|(x, _)| *x).collect();
    assert_eq!(drawn, [128.0, 256.0, 1_000.0, 2_000.0, 4_000.0, 8_000.0]);
}

#[test]
fn paper_001_without_streams_says_so() {
    let report = paper_001::report(&campaign());
    assert!(report.claims.iter().all(|c| c.finding != Some(Finding::Confirmed) || c.place == "Fig. 10"));
    assert!(claim(&report, "collapses").ours.contains("not measured"));
    assert!(
        report
            .figures
            .iter()
            .filter(|f| f.place != "Fig. 10")
            .all(|f| f.shown.caption.contains("not measured"))
    );
}

#[test]
fn paper_004_has_every_rule_table_and_figure() {
    let mut results = campaign();
    for bytes in [180u32, 1_420] {
        for (suite, each) in
            [("aes128-sha1", 2.0), ("aes128ctr-sha1", 1.5), ("aes128gcm16", 4.0), ("aes128ccm16", 5.0)]
        {
            let mut s = sample(What::Path, suite, bytes, 600.0 + each * f64::from(bytes));
            s.aes_instructions = Some(false);
            results.samples.push(s);
        }
    }
    let mut tls = sample(What::Tls, "tls13-aes128gcm", 1_500, 800.0);
    (tls.engine, tls.encapsulation, tls.file_bytes) = (Engine::Rustls, Encapsulation::None, Some(1 << 20));
    let mut download = sample(What::Download, "aes128gcm16", 1_400, 1_600.0);
    download.file_bytes = tls.file_bytes;
    results.samples.extend([tls, download]);
    let report = paper_004::report(&results);
    let places: Vec<&str> = report.figures.iter().map(|f| f.place.as_str()).collect();
    for place in ["1a", "1b", "2a", "2b", "3", "4", "5", "6", "7", "8", "9", "10", "11"] {
        assert!(places.contains(&format!("Fig. {place}").as_str()), "{place}: {places:?}");
    }
    for (place, series) in [
        ("Fig. 1a", "ours, GCM"),
        ("Fig. 5", "ours, CBC"),
        ("Fig. 7", "ours, CPU"),
        ("Fig. 11", "ours, time"),
    ] {
        let chart = &report.figures.iter().find(|f| f.place == place).expect(place).shown;
        assert!(chart.series.iter().any(|s| s.name == series && !s.points.is_empty()), "{place}: {chart:?}");
    }
    // The dashed lines are the sizes that the rules are judged by.
    for (place, name, points) in [
        ("Fig. 1a", "paper, 180 to 1500 B, least", [(180.0, 1.2), (1_500.0, 1.2)]),
        ("Fig. 1b", "paper, 180 to 200 B, most", [(180.0, 3.0), (200.0, 3.0)]),
        ("Fig. 3", "paper, 180 to 400 B, most", [(180.0, 1.7), (400.0, 1.7)]),
        ("Fig. 3", "paper, 401 to 1500 B, least", [(401.0, 1.1), (1_500.0, 1.1)]),
        ("Fig. 4", "paper, 180 to 400 B, least", [(180.0, 1.3), (400.0, 1.3)]),
        ("Fig. 4", "paper, GCM, 401 to 1500 B", [(401.0, 0.85), (1_500.0, 0.85)]),
        ("Fig. 5", "paper, CBC, 180 to 250 B", [(180.0, 3.3), (250.0, 3.3)]),
        ("Fig. 5", "paper, GCM, 180 to 1500 B", [(180.0, 1.5), (1_500.0, 1.5)]),
        ("Fig. 6", "paper, CPU, 180 to 1500 B", [(180.0, 3.75), (1_500.0, 3.75)]),
        ("Fig. 7", "paper, CPU, 180 to 1500 B", [(180.0, 1.5), (1_500.0, 1.5)]),
    ] {
        let chart = &report.figures.iter().find(|f| f.place == place).expect(place).shown;
        let series =
            chart.series.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{place}: {chart:?}"));
        let near = |(a, b): (&(f64, f64), &(f64, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9;
        assert!(series.points.iter().zip(&points).all(near), "{place} {name}: {:?}", series.points);
    }
    let governors = &report.figures.iter().find(|f| f.place == "Fig. 10").expect("it").shown;
    assert!(governors.caption.contains("not measured"));
    for (words, finding) in [
        ("CCM and GCM take more CPU", Finding::Partly),
        ("CCM is faster than GCM", Finding::Contradicted),
        ("AES instructions make every mode faster", Finding::Partly),
        ("faster over TLS", Finding::Confirmed),
        ("a fixed high frequency", Finding::NotMeasurable),
    ] {
        assert_eq!(claim(&report, words).finding, Some(finding), "{words}: {}", claim(&report, words).ours);
    }
    let best = &report.tables.iter().find(|t| t.place == "Table 2").expect("it").shown.rows;
    let of = |what: &str, packets: &str| {
        best.iter().find(|r| r[0] == what && r[1] == packets).expect("a row")[3].clone()
    };
    assert!(of("AES in software, time", "180 B").starts_with("CTR"), "{best:?}");
    assert!(of("AES instructions, CPU", "1,000 to 1,500 B").starts_with("GCM"), "{best:?}");
    let page = report.document().html().expect("a page");
    assert!(!page.contains("NaN") && page.matches("<svg").count() == report.figures.len());
}

#[test]
fn each_plan_asks_for_enough_and_the_full_one_for_streams_as_long_as_the_papers() {
    for (name, needs) in
        [("paper-001", paper_001::needs as fn(bool, u64) -> _), ("paper-004", paper_004::needs)]
    {
        for short in [true, false] {
            let needs: dormouse_lab::bench::Request = needs(short, 7);
            let cores = needs.cores.iter().copied().max().unwrap_or(1);
            let plan = needs.plan(&Machine { cores, ..Machine::default() }, false).expect("a plan");
            assert!(plan.points.len() > 40 && plan.rounds >= 5, "{name}: {}", plan.points.len());
            assert_eq!((needs.seed, plan.seed), (7, 7));
        }
    }
    assert!(paper_001::needs(false, 1).stream_seconds >= 180.0);
}

/// A report on a file is of that file, says all that the file says about its origin, and is refused without one.
#[test]
fn reports_have_the_provenance_of_their_file() {
    let mut results = streams(true);
    results.machine.congestion_control = Some("westwood".to_owned());
    results.machine.governor = Some("ondemand".to_owned());
    results.versions.insert("commit".to_owned(), "0123abc".to_owned());
    for (subject, reason) in [("a suite", "a reason"), ("a path", "another"), ("its twin", "a reason")] {
        results.skipped.push(Skipped::new(subject, reason));
    }
    let (subject, reason) = ("a point".to_owned(), "a broken link".to_owned());
    results.discarded.push(Discarded { round: 2, subject, reason });
    for round in 1..=3 {
        let (subject, reason) = ("another point".to_owned(), format!("reason {round}"));
        results.discarded.push(Discarded { round, subject, reason });
    }
    results.skipped.push(Skipped::failed("a third point", "no answer"));
    let profile = Profile::shipped("pda-001").expect("it ships");
    results.profiles.insert(profile.name.clone(), profile);
    let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned();
    results.inputs.push(Input { file: "day.pcap".to_owned(), bytes: 0, sha256: sha256.clone(), lost: 0 });
    let report = paper_001::report(&results);
    assert!(report.traffic.iter().any(|l| l.contains("An invented processor")));
    let text = report.document().text();
    for word in [
        "westwood",
        "ondemand",
        "0123abc",
        "a suite: a reason",
        "round 2 of a point: a broken link",
        "pda-001 ",
        &sha256,
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // What is missing stands before all else, on the page too.
    let page = report.document().html().expect("a page");
    for (form, whole, next) in [("text", &text, "Obtained on"), ("page", &page, ">Obtained on<")] {
        let (first, _) = whole.split_once(next).expect(form);
        for line in [
            "not measured: a suite and 1 more: a reason",
            "not measured: a path: another",
            "discarded: round 2 of a point: a broken link",
            "discarded: 3 rounds of another point, the last one: reason 3",
            "not measured: a third point: it failed: no answer",
        ] {
            assert!(first.contains(line), "{form}: {line}: {first}");
        }
    }
    assert_eq!(report.provenance.failures(), ["not measured: a third point: it failed: no answer"]);
    let json = report.json();
    assert_eq!(json["provenance"]["machine"]["congestion_control"], "westwood");
    assert_eq!(json["provenance"]["inputs"][0]["sha256"], sha256.as_str());
    assert!(json["provenance"]["profiles"]["pda-001"]["figures"].is_object());
    let empty = std::env::temp_dir().join(format!("dormouse-input-{}", std::process::id()));
    std::fs::write(&empty, "").expect("a file");
    assert_eq!(Input::of(&empty).expect("it is there").sha256, sha256);
    std::fs::remove_file(&empty).expect("removed");
}
