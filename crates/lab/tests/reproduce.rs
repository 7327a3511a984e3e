//! Reproductions: the same seed gives the same bytes, raw data lead to the same report, what is tampered with is found, and a directory keeps
//! what is finished.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use dormouse_lab::campaign::{Campaign, Plan};
use dormouse_lab::kept;
use dormouse_lab::reproduce::{self, Outcome, Reproduction};
use dormouse_lab::results::Results;
use dormouse_lab::results::esp::{Point, What};
use dormouse_lab::results::format::Skipped;
use dormouse_lab::{Context, Experiment, Source, Takes, find, paper_001, verify};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("dormouse-reproduce-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn context(seed: u64) -> Context {
    Context { threads: 2, clients: Some(20), seed, short: true, ..Context::default() }
}

const FAILS: Experiment = Experiment {
    name: "paper-fails",
    title: "An experiment that fails",
    source: Source::Traffic,
    takes: [Takes::measured(1), Takes::estimated(1)],
    lacks: || None,
    run: |_| bail!("a broken link"),
};

static ROOT: AtomicBool = AtomicBool::new(false);

/// An experiment a part of which needs something; it goes on with what there is.
const IN_PART: Experiment = Experiment {
    name: "paper-001",
    title: "An experiment that runs in part",
    source: Source::Campaign { root: false },
    takes: [Takes::measured(1), Takes::estimated(1)],
    lacks: || (!ROOT.load(Ordering::Relaxed)).then(|| "root".to_owned()),
    run: |context| {
        let mut campaign = match &context.resume {
            Some(path) => Campaign::<Point>::resume(path)?,
            None => Campaign::new(plan(context), context.out.clone())?,
        };
        campaign.results.finished.get_or_insert(1);
        campaign.save()?;
        Ok(paper_001::report(&campaign.results))
    },
};

fn plan(context: &Context) -> Plan<Point> {
    let skipped = (IN_PART.lacks)().map(|what| Skipped::new("daemons", what));
    Plan {
        name: context.plan().to_owned(),
        points: vec![Point::new(What::Crypto, "aes128gcm16", 1_024, 1)],
        rounds: 5,
        seed: context.seed,
        settings: serde_json::Value::Null,
        skipped: skipped.into_iter().collect(),
    }
}

/// All files below a directory.
fn files(dir: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>, root: &Path) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, into, root);
        } else {
            into.insert(path.strip_prefix(root).expect("below").to_owned(), fs::read(&path).expect("a file"));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_raw_data_the_same_report() {
    let experiment = *find("paper-000").expect("it is listed");
    let [a, b, c] = ["a", "b", "c"].map(Scratch::new);
    let mut all = Vec::new();
    for (scratch, seed) in [(&a, 5), (&b, 5), (&c, 6)] {
        let mut reproduction = Reproduction::new(&scratch.0, context(seed)).expect("a directory");
        let outcomes = reproduction.run(&[FAILS, experiment]).expect("it is written");
        assert_eq!(outcomes[0], (FAILS.name, Outcome::Failed("a broken link".to_owned())));
        assert!(matches!(outcomes[1], ("paper-000", Outcome::Ran(_))), "{outcomes:?}");
        let mut found = BTreeMap::new();
        files(&scratch.0, &mut found, &scratch.0);
        // How long it took.
        found.remove(Path::new("reproduction.json"));
        found.remove(Path::new("index.html"));
        all.push(found);
    }
    assert!(all[0].len() > 30 && all[0] == all[1], "{:?}", all[0].keys());
    assert_ne!(all[0][Path::new("paper-000.json")], all[2][Path::new("paper-000.json")]);
    let page = fs::read_to_string(a.0.join(reproduce::PAGE)).expect("the page");
    assert!(page.contains("contradicted") && page.contains("a broken link"));
    let _ = dormouse_testbed::browser::validate("the page of reproduce", &page);
    for (_, link) in page
        .match_indices("href=\"")
        .map(|(at, h)| page[at + h.len()..].split_once('"').expect("its end"))
        .map(|(l, r)| (r, l))
    {
        assert!(a.0.join(link).is_file(), "{link}");
    }
    let verified = verify::directory(&a.0).expect("it can be verified");
    assert!(verified.iter().all(verify::Verified::holds), "{verified:?}");
    let compared: usize = verified.iter().map(|v| v.compared.len()).sum();
    assert_eq!(compared, all[0].len(), "all but the raw data and the state, and the page");
}

#[test]
fn what_was_tampered_with_is_found_and_named() {
    let scratch = Scratch::new("tampered");
    let mut reproduction = Reproduction::new(&scratch.0, context(5)).expect("a directory");
    reproduction.run(&[*find("paper-000").expect("it is listed")]).expect("it is written");
    let raw = scratch.0.join("paper-000.json");
    let text = fs::read_to_string(&raw).expect("raw data");
    // One policy's cost in one session: more than any saving could be.
    let at = text.find("\"cost.all\":[").expect("a cost") + "\"cost.all\":[".len();
    fs::write(&raw, format!("{}9{}", &text[..at], &text[at..])).expect("written");
    let verified = verify::verify(&raw).expect("it can be read");
    assert!(
        verified.differences.iter().any(|d| d.contains("paper-000.report.json: tables[0]")),
        "{:?}",
        verified.differences
    );
    fs::write(&raw, &text).expect("written");
    assert_eq!(verify::verify(&raw).expect("as before").differences, Vec::<String>::new());
    // One more time until the client sends than idle periods.
    fs::write(&raw, text.replacen("\"until_sent\":[", "\"until_sent\":[1.0,", 1)).expect("written");
    assert!(format!("{:#}", verify::verify(&raw).expect_err("no such times")).contains("until_sent"));
    fs::write(&raw, text.replacen("\"paper\"", "\"other\"", 1)).expect("written");
    assert!(format!("{:#}", verify::verify(&raw).expect_err("other policies")).contains("other policies"));
}

#[test]
fn a_directory_keeps_what_is_finished_and_is_of_one_plan_seed_and_build() {
    let scratch = Scratch::new("kept");
    let experiment = *find("paper-000").expect("it is listed");
    Reproduction::new(&scratch.0, context(5)).expect("a directory").run(&[experiment]).expect("it runs");
    let before =
        fs::metadata(scratch.0.join("paper-000.json")).expect("raw data").modified().expect("a time");
    Reproduction::new(&scratch.0, context(5)).expect("the same").run(&[experiment]).expect("kept");
    assert_eq!(
        fs::metadata(scratch.0.join("paper-000.json")).expect("raw data").modified().expect("a time"),
        before
    );
    for (other, word) in [(context(6), "seed"), (Context { clients: None, ..context(5) }, "plan")] {
        let error = Reproduction::new(&scratch.0, other).expect_err("another").to_string();
        assert!(error.contains(&format!("another {word}")), "{error}");
    }
    // An interruption leaves a note, and the next call begins where it came.
    let context = Context { seed: 7, ..context(5) };
    let other = Scratch::new("interrupted");
    context.interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
    let outcomes =
        Reproduction::new(&other.0, context.clone()).expect("a directory").run(&[FAILS, experiment]);
    assert!(matches!(outcomes.expect("noted")[..], [(_, Outcome::Interrupted(_))]));
    context.interrupted.store(false, std::sync::atomic::Ordering::Relaxed);
    let outcomes = Reproduction::new(&other.0, context).expect("the same").run(&[FAILS, experiment]);
    assert!(matches!(outcomes.expect("it runs")[..], [(_, Outcome::Failed(_)), (_, Outcome::Ran(_))]));
}

#[test]
fn what_is_missing_or_does_not_follow_in_a_directory_is_a_difference() {
    let scratch = Scratch::new("whole");
    let mut reproduction = Reproduction::new(&scratch.0, context(5)).expect("a directory");
    reproduction.run(&[*find("paper-000").expect("it is listed")]).expect("it is written");
    let differences = || -> Vec<String> {
        verify::directory(&scratch.0).expect("readable").into_iter().flat_map(|v| v.differences).collect()
    };
    assert_eq!(differences(), Vec::<String>::new());
    let folder = scratch.0.join("paper-000");
    let table = fs::read_dir(&folder).expect("tables").flatten().map(|e| e.path());
    let table = table.filter(|p| p.extension().is_some_and(|e| e == "csv")).min().expect("a table");
    for path in [table, scratch.0.join(reproduce::PAGE), scratch.0.join("paper-000.txt")] {
        let text = fs::read_to_string(&path).expect("it is there");
        for other in [Some(text.replacen('e', "E", 1)), None] {
            match &other {
                Some(other) => fs::write(&path, other).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let found = differences();
            assert!(found.iter().any(|d| d.contains(&path.display().to_string())), "{other:?}: {found:?}");
            fs::write(&path, &text).expect("written");
        }
    }
    fs::write(folder.join("table-99-invented.csv"), "a\n").expect("written");
    assert!(differences().iter().any(|d| d.contains("nothing of the kind follows")));
    fs::remove_file(folder.join("table-99-invented.csv")).expect("removed");
    // What cannot be read is no file that is missing.
    fs::remove_file(scratch.0.join("paper-000.txt")).expect("removed");
    fs::create_dir(scratch.0.join("paper-000.txt")).expect("a directory");
    let found = differences();
    assert!(found.iter().any(|d| d.contains("paper-000.txt")), "{found:?}");
    fs::remove_dir(scratch.0.join("paper-000.txt")).expect("removed");
    // Of a file alone, what is not there is not compared; without anything nothing is shown.
    let alone = verify::verify(&scratch.0.join("paper-000.json")).expect("readable");
    assert!(alone.holds(), "{:?}", alone.differences);
    let raw = scratch.0.join("alone.json");
    fs::copy(scratch.0.join("paper-000.json"), &raw).expect("copied");
    assert!(!verify::verify(&raw).expect("readable").holds(), "nothing was compared");
    fs::remove_file(scratch.0.join("paper-000.json")).expect("removed");
    assert!(differences().iter().any(|d| d.contains("paper-000.json")));
}

#[test]
fn a_directory_of_something_else_or_in_use_is_refused() {
    let scratch = Scratch::new("foreign");
    fs::create_dir_all(&scratch.0).expect("a directory");
    fs::write(scratch.0.join("paper-001.json"), "{}").expect("written");
    let refused = |context| format!("{:#}", Reproduction::new(&scratch.0, context).expect_err("refused"));
    assert!(refused(context(5)).contains("not empty"), "{}", refused(context(5)));
    fs::remove_file(scratch.0.join("paper-001.json")).expect("removed");
    let first = Reproduction::new(&scratch.0, context(5)).expect("an empty directory");
    assert!(refused(context(5)).contains("another reproduction works in it"));
    drop(first);
    Reproduction::new(&scratch.0, context(5)).expect("free again");
}

#[test]
fn what_ran_in_part_runs_again_once_what_was_missing_is_there() {
    let scratch = Scratch::new("part");
    let run = || {
        let mut reproduction = Reproduction::new(&scratch.0, context(5)).expect("the same");
        reproduction.run(&[IN_PART]).expect("noted").remove(0).1
    };
    let raw = || Results::<Point>::read(&scratch.0.join("paper-001.json")).expect("raw data");
    let Outcome::RanInPart { skipped, .. } = run() else { panic!("it ran whole") };
    assert_eq!(skipped, ["daemons: root"]);
    let page = fs::read_to_string(scratch.0.join(reproduce::PAGE)).expect("the page");
    assert!(page.contains("ran in part") && page.contains("paper-001.html"));
    let begun = raw();
    assert!(matches!(run(), Outcome::RanInPart { .. }), "nothing has changed");
    assert_eq!(raw(), begun);
    // A point that failed is no lack of this machine's, and the whole has not succeeded.
    assert!(!run().has_failed());
    let mut failed = begun.clone();
    failed.skipped.push(Skipped::failed("a point", "no answer"));
    failed.write(&scratch.0.join("paper-001.json")).expect("written");
    fs::remove_file(scratch.0.join("paper-001.report.json")).expect("removed");
    let outcome = run();
    assert!(outcome.has_failed(), "{outcome:?}");
    assert!(
        outcome
            .words()
            .ends_with("here: daemons: root; incomplete: not measured: a point: it failed: no answer"),
        "{}",
        outcome.words()
    );
    ROOT.store(true, Ordering::Relaxed);
    assert!(matches!(run(), Outcome::Ran(_)), "it is begun anew, with what was left out");
    assert!(raw().skipped.is_empty());

    // Raw data of another plan or machine are not gone on with, and it is said what to do.
    let mut state: serde_json::Value =
        serde_json::from_slice(&fs::read(scratch.0.join("reproduction.json")).expect("the state"))
            .expect("JSON");
    state["experiments"]["paper-001"] = serde_json::json!({ "interrupted": 3 });
    type Spoil = fn(&mut Results<Point>);
    let spoils: [(Spoil, &str); 3] = [
        (|r| r.plan = "full".to_owned(), "another plan: full, and this is chosen"),
        (|r| r.seed = 6, "another seed: 6, and this is 5"),
        (|r| r.machine.kernel = "Linux 0.01".to_owned(), "another kernel: Linux 0.01"),
    ];
    for (spoil, stated) in spoils {
        let mut other = raw();
        spoil(&mut other);
        other.write(&scratch.0.join("paper-001.json")).expect("written");
        fs::write(scratch.0.join("reproduction.json"), state.to_string()).expect("written");
        let Outcome::Failed(why) = run() else { panic!("gone on with: {stated}") };
        assert!(why.contains(stated) && why.ends_with("choose another directory"), "{why}");
        begun.write(&scratch.0.join("paper-001.json")).expect("written");
    }
}

#[test]
fn one_report_that_is_missing_does_not_stop_the_others() {
    let scratch = Scratch::new("lost");
    let experiment = *find("paper-000").expect("it is listed");
    Reproduction::new(&scratch.0, context(5)).expect("a directory").run(&[experiment]).expect("it runs");
    fs::write(scratch.0.join("paper-000.report.json"), "half of").expect("written");
    let outcomes = Reproduction::new(&scratch.0, context(5)).expect("the same").run(&[experiment, FAILS]);
    assert_eq!(outcomes.expect("it goes on").len(), 2);
    let page = fs::read_to_string(scratch.0.join(reproduce::PAGE)).expect("the page");
    assert!(page.contains("its report cannot be read") && page.contains("a broken link"));
    assert_eq!(kept::in_directory(&scratch.0).expect("readable").len(), 1);
}
