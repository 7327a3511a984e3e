//! Reproductions: the same seed gives the same bytes, raw data lead to the same report, what is tampered with is found, and a directory keeps
//! what is finished.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;
use dormouse_lab::reproduce::{self, Outcome, Reproduction};
use dormouse_lab::{Context, Experiment, Source, Takes, find, verify};

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
    run: |_| bail!("a broken link"),
};

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
    for (_, link) in page
        .match_indices("href=\"")
        .map(|(at, h)| page[at + h.len()..].split_once('"').expect("its end"))
        .map(|(l, r)| (r, l))
    {
        assert!(a.0.join(link).is_file(), "{link}");
    }
    for raw in reproduce::raw_files(&a.0).expect("raw data") {
        let verified = verify::verify(&raw).expect("it can be verified");
        assert_eq!((verified.differences, verified.compared.len()), (Vec::<String>::new(), 3));
    }
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
    for (other, word) in [(context(6), "seed"), (Context { short: false, ..context(5) }, "plan")] {
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
