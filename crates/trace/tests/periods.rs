//! Damaged tables of activities: an error with its reason, never a panic, for every byte that is wrong.

mod common;

use common::{Temporary, options, report};
use dormouse_sansio::{Entropy as _, Seeded};
use dormouse_trace::fuzz;
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::table_file::{Layout, TableWriter};

fn whole(layout: Layout) -> Vec<u8> {
    let recipe = Recipe { clients: 3, days: 1, seed: 5, start: 1_700_006_400 };
    let file = Temporary::new("whole.parquet");
    let out = std::fs::File::create(&file.0).expect("a temporary file");
    write::activities(Population::new(recipe), out, layout, 250_000_000).expect("written");
    std::fs::read(&file.0).expect("what was written")
}

#[test]
fn no_wrong_byte_makes_the_reader_panic() {
    for layout in [Layout::Parquet, Layout::Arrow] {
        wrong_bytes(&whole(layout), layout);
    }
}

fn wrong_bytes(whole: &[u8], layout: Layout) {
    let mut random = Seeded::new(11);
    let mut refused = 0;
    for round in 0..400 {
        let mut data = whole.to_vec();
        // Half of the changes in the metadata at the end, where they hurt most.
        let from = if round % 2 == 0 { 0 } else { data.len().saturating_sub(4000) };
        for _ in 0..=random.below(3) {
            let at = from + usize::try_from(random.below((data.len() - from) as u64)).expect("a place");
            data[at] ^= 1 << random.below(8);
        }
        refused += u32::from(fuzz::table(&data).is_err());
    }
    // Nothing guards the values of an Arrow file: only its frame can be found damaged.
    let least = if layout == Layout::Parquet { 80 } else { 20 };
    assert!(refused > least, "{layout:?}: {refused} of 400 were found damaged");
}

#[test]
fn a_file_cut_anywhere_is_refused_with_a_word() {
    let whole = whole(Layout::Parquet);
    for length in [4, 5, 8, 100, whole.len() / 2, whole.len() - 1] {
        let file = Temporary::with("cut.parquet", &whole[..length]);
        let report = report(&[file.input()], &options());
        assert_eq!((report.lost_total, report.clients.len()), (1, 0), "{length}");
        assert!(report.lost[0].reason.contains("Parquet"), "{:?}", report.lost);
    }
}

#[test]
fn a_damaged_group_is_lost_and_named() {
    let whole = whole(Layout::Parquet);
    let clean = Temporary::with("clean.parquet", &whole);
    assert_eq!(report(&[clean.input()], &options()).lost_total, 0);
    let mut data = whole;
    // Pages begin behind the magic number: their headers and contents become nonsense.
    data[4..400].fill(0xa5);
    let file = Temporary::with("group.parquet", &data);
    let report = report(&[file.input()], &options());
    assert_eq!(report.lost_total, 1);
    assert!(report.lost[0].reason.contains("row group 0"), "{:?}", report.lost);
}

/// The seeds of the fuzz target, and what it found, replayed.
#[test]
fn the_corpus_is_replayed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace_periods");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read(entry.expect("an entry").path()).expect("a seed")
    };
    let rows: Vec<_> =
        std::fs::read_dir(folder).expect("the corpus").map(|e| fuzz::table(&read(e))).collect();
    assert!(rows.iter().any(|r| r.as_ref().is_ok_and(|n| *n > 0)), "{rows:?}");
}

#[test]
fn a_table_takes_its_name_when_it_is_whole() {
    let folder = Temporary::new("whole");
    std::fs::create_dir(&folder.0).expect("a folder");
    let names = || {
        let entries =
            std::fs::read_dir(&folder.0).expect("a folder").map(|e| e.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let file = folder.0.join("old.parquet");
    std::fs::write(&file, "what was there").expect("written");
    let writer = TableWriter::create(&file, 250_000_000, None).expect("a writer");
    assert_eq!(std::fs::read(&file).expect("the file"), b"what was there");
    drop(writer);
    assert_eq!(names(), ["old.parquet"], "nothing is left of one that was given up");
    assert_eq!(std::fs::read(&file).expect("the file"), b"what was there");
    let writer = TableWriter::create(&file, 250_000_000, None).expect("a writer");
    writer.finish(&|_| None).expect("written");
    assert!(std::fs::read(&file).expect("the file").starts_with(b"PAR1"));
    assert_eq!(names(), ["old.parquet"]);
    std::fs::remove_file(&file).expect("removed");
    let parts = TableWriter::create(&folder.0, 250_000_000, None).expect("a writer");
    parts.finish(&|_| None).expect("written");
    assert!(names().len() == 8 && names().iter().all(|name| name.starts_with("part-0000")), "{:?}", names());
    std::fs::remove_dir_all(&folder.0).expect("removed");
}
