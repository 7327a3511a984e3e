//! The experiment on a small synthetic population: every figure, every claim with both sides, and its label everywhere.

use dormouse_lab::{Context, find};

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

#[test]
fn experiments_are_found_by_name_only() {
    assert!(find("paper-999").is_none());
}
