//! Files of instruments, growing and finished.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::tree::{Tree, at};
use dormouse_energy::meter::csv::Columns;
use dormouse_io::meter::{Choice, Meter, analyse, open};
use std::io::Write as _;

fn columns(names: &str) -> Columns {
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    Columns::new(&names, &[]).unwrap()
}

fn follow(tree: &Tree, names: &str) -> Box<dyn Meter> {
    let choice = Choice::External { path: tree.root().join("log.csv"), columns: columns(names) };
    open(tree.root(), &choice, at(100)).unwrap().meter
}

fn append(tree: &Tree, text: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(tree.root().join("log.csv")).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_growing_file_is_followed_from_the_opening_on() {
    let tree = Tree::new();
    tree.write("log.csv", "t,U,I\n0,5,1\n10,5,1\n");
    let mut meter = follow(&tree, "t,U,I");
    assert_eq!(meter.read(at(100)).unwrap().joules, 0.0, "what was there before is not counted");
    append(&tree, "11,5,1\n12,5,3\n13,5");
    let reading = meter.read(at(103)).unwrap();
    assert_eq!(
        (reading.joules, reading.watts, reading.at),
        (5.0 + 10.0, Some(15.0), at(102)),
        "half a row is not a row"
    );
    append(&tree, ",3\n");
    assert_eq!(meter.read(at(103)).unwrap().joules, 30.0);
}

#[test]
fn malformed_rows_are_counted_and_named_while_it_goes_on() {
    let tree = Tree::new();
    tree.write("log.csv", "0,1\n");
    let mut meter = follow(&tree, "1,2");
    append(&tree, "1,1\noverload\n2,1\n");
    assert_eq!(meter.read(at(102)).unwrap().joules, 2.0);
    assert!(meter.notes().iter().any(|n| n.contains("line 3")), "{:?}", meter.notes());
}

#[test]
fn an_instrument_that_begins_anew_is_noticed() {
    let tree = Tree::new();
    tree.write("log.csv", "t,P\n0,1\n1,1\n");
    let mut meter = follow(&tree, "t,P");
    append(&tree, "2,1\n");
    assert_eq!(meter.read(at(101)).unwrap().joules, 1.0);
    tree.write("log.csv", "t,P\n0,1\n");
    meter.read(at(105)).unwrap();
    append(&tree, "3,1\n");
    let reading = meter.read(at(108)).unwrap();
    assert_eq!((reading.joules, reading.at), (4.0, at(108)));
    assert!(meter.notes().iter().any(|n| n.contains("began anew")), "{:?}", meter.notes());
}

#[test]
fn a_recording_is_integrated_as_a_whole() {
    let tree = Tree::new();
    let path = tree.write("oscilloscope.csv", "time;u;i\n0;3,7;0,1\n1;3,7;0,3\nx;1;1\n2;3,7;0,1");
    let found = analyse(&path, columns("time,u,i")).unwrap();
    assert!((found.joules - 3.7 * 0.4).abs() < 1e-12 && found.seconds == 2.0 && found.rows == 3, "{found:?}");
    assert!((found.mean_watts().unwrap() - 0.74).abs() < 1e-12);
    assert_eq!(
        (found.malformed, found.mistakes),
        (1, vec!["line 4: time is \"x\", expected a number".to_owned()])
    );
}

#[test]
fn a_file_without_line_breaks_is_bounded() {
    let tree = Tree::new();
    let path = tree.write("log.csv", vec![b'7'; 3 << 20]);
    let found = analyse(&path, columns("1,2")).unwrap();
    assert!(found.rows == 0 && found.malformed > 0);
    let mut meter = follow(&tree, "1,2");
    assert_eq!(meter.read(at(101)).unwrap().joules, 0.0);
}
