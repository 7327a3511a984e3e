//! The experiment on a small synthetic population: every figure, every claim with both sides, and its label everywhere.

use std::path::PathBuf;

use dormouse_lab::judge::Finding;
use dormouse_lab::{Context, Report, find};

#[test]
fn paper_000_names_its_traffic_and_compares_every_claim() {
    let context =
        Context { recordings: Vec::new(), threads: 2, clients: Some(100), seed: 11, ..Context::default() };
    let experiment = find("paper-000").expect("it is listed");
    let report = (experiment.run)(&context).expect("it runs");
    assert!(report.synthetic && report.traffic.iter().any(|line| line.contains("seed 500220")));
    for place in
        ["Fig. 2", "Fig. 4", "Fig. 5", "Fig. 7", "Fig. 8a", "Fig. 8b", "Fig. 9", "Fig. 11", "Fig. 12"]
    {
        let figure = report.figures.iter().find(|f| f.place == place);
        assert!(figure.is_some_and(|f| !f.shown.is_empty()), "{place}");
    }
    for stated in [
        "78 %",
        "more than 50 %",
        "3.5 points",
        "over 90 %",
        "less than 15 %",
        "around 2 %",
        "none: around 2 % of users spend less than 10 % more",
        "they decrease",
        "better: ",
        "fairly immune",
        "60 %",
        "70 %",
        "90 %",
    ] {
        assert!(report.claims.iter().any(|c| c.paper.contains(stated)), "{stated}");
    }
    assert!(report.claims.iter().all(|c| c.ours.contains('[') && !c.ours.contains("NaN")));
    assert!(
        report
            .claims
            .iter()
            .filter(|c| c.paper != "–")
            .all(|c| c.finding.is_some() && !c.expected.is_empty())
    );
    // Of Figure 7 the dearest and the best protocol, of Figure 9 every wrong belief.
    for (words, figures) in [("As alpha increases", 2), ("As beta increases", 2), ("fairly immune", 6)] {
        let claim = report.claims.iter().find(|c| c.claim.contains(words)).expect(words);
        assert_eq!(claim.figures.len(), figures, "{words}");
    }
    for table in &report.tables {
        assert!(table.shown.rows.iter().all(|row| row.len() == table.shown.head.len()), "{}", table.place);
        assert!(table.shown.rows.iter().flatten().any(|cell| cell.contains('[')), "{}", table.place);
    }
    // Break-even times follow from the paper's own figures, so they must agree on any traffic.
    let chart = &report.figures.iter().find(|f| f.place == "Fig. 4").expect("the figure").shown;
    let at_one = |name: &str| {
        let series = chart.series.iter().find(|s| s.name == name).expect("the protocol");
        series.points[0].1
    };
    for (name, instant) in
        [("mobike", 46.4 / 2.29 + 2.0), ("ticket", 55.2 / 2.29 + 2.0), ("ikev2", 59.14 / 2.29 + 2.0)]
    {
        assert!(
            (at_one(name) - instant).abs() < 1.0,
            "{name}: {} against {instant} and the exchange",
            at_one(name)
        );
    }
    let text = report.document().text();
    let page = report.document().html().expect("a page");
    assert!(text.contains("SYNTHETIC") && page.contains("Synthetic traffic"));
    assert_eq!(report.json()["synthetic"], true);
    assert!(!page.contains("<script"));
}

/// What a table says in this row and column, without its interval.
fn cell(report: &Report, title: &str, row: &str, column: usize) -> f64 {
    let table = report.tables.iter().find(|t| t.shown.title == title).expect(title);
    let row = table.shown.rows.iter().find(|r| r[0] == row).expect(row);
    row[column].split(' ').next().expect("a figure").parse().expect("a number")
}

/// On recordings of single devices, where they are there: what is said of buckets and of power-save mode holds on real silences too.
#[test]
fn buckets_and_baselines_on_recorded_locks() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("DORMOUSE_TRACES").map_or(root, PathBuf::from);
    // Of the maximum: Eq. 5 and the bucket at least and at most; of all idle energy: dormouse's at least by Eq. 3, at most beside power-save mode.
    for (name, eq5, bucket, by_eq3, beside) in
        [("smart-lock.pcap", 90.0, 50.0, 80.0, 10.0), ("lock-hub.pcap", -5.0, -10.0, 30.0, 1.0)]
    {
        let recordings = vec![folder.join(name)];
        if !recordings[0].exists() {
            eprintln!("skipped: {} is missing (set DORMOUSE_TRACES)", recordings[0].display());
            continue;
        }
        let context = Context { recordings, threads: 2, ..Context::default() };
        let report = (find("paper-000").expect("it is listed").run)(&context).expect("it runs");
        // One client has no interval.
        let ours = report.claims.iter().find(|c| c.claim.starts_with("Sessions that gain")).expect("it");
        assert_eq!((ours.ours.as_str(), ours.finding), ("100.0 %", Some(Finding::NotMeasurable)), "{name}");
        let cells = report.tables.iter().flat_map(|t| t.shown.rows.iter().flatten());
        assert!(cells.clone().count() > 200 && !cells.clone().any(|cell| cell.contains('[')), "{name}");
        for wakes in ["every packet wakes", "only what the client sends wakes"] {
            let title = format!("Eq. 5 and the buckets, {wakes}");
            let of = |row: &str| cell(&report, &title, row, 2);
            let (ours, theirs) = (of("Eq. 5"), of("bucket of all idle periods"));
            assert!(ours > eq5 && theirs < bucket, "{name}, {wakes}: {ours} and {theirs} %");
            let title = format!("What is saved against other baselines than Eq. 3's, {wakes}");
            let of = |row: &str, column| cell(&report, &title, row, column);
            assert!(
                of("always active (Eq. 3)", 8) > by_eq3 && of("in power-save mode", 8) < beside,
                "{name}, {wakes}"
            );
            let [eq3, device, saving] = [
                "always active (Eq. 3)",
                "always active, the device charged while it waits",
                "in power-save mode",
            ]
            .map(|row| of(row, 1));
            assert_eq!([eq3, device, saving], [22.3, 38.2, 243.6], "{name}, {wakes}");
        }
    }
}

#[test]
fn experiments_are_found_by_name_only() {
    assert!(find("paper-999").is_none());
}
