//! Damaged input: what is whole is read, what is lost is said with its place, and nothing panics.

mod common;

use common::{Temporary, options, pcap, report, talk_on_ethernet};
use dormouse_trace::fuzz;
use proptest::prelude::*;

#[test]
fn a_capture_cut_anywhere_is_read_up_to_the_cut() {
    let whole = pcap(1, &talk_on_ethernet());
    let record = (whole.len() - 24) / 8;
    for cut in 0..whole.len() {
        let file = Temporary::with("cut.pcap", &whole[..cut]);
        let report = report(&[file.input()], &options());
        if cut < 24 {
            assert_eq!(report.lost_total, 1, "cut at {cut}");
            continue;
        }
        let (records, rest) = ((cut - 24) / record, (cut - 24) % record);
        assert_eq!(report.total.packets, records as u64, "cut at {cut}");
        assert_eq!(report.lost_total, u64::from(rest > 0), "cut at {cut}");
        if rest > 0 {
            let lost = &report.lost[0];
            assert_eq!(
                (lost.offset, lost.record),
                ((24 + records * record) as u64, records as u64 + 1),
                "cut at {cut}"
            );
        }
    }
}

#[test]
fn an_impossible_length_ends_the_file_with_a_word() {
    let mut data = pcap(1, &talk_on_ethernet());
    let record = (data.len() - 24) / 8;
    data[24 + 3 * record + 8..][..4].copy_from_slice(&[0xff; 4]);
    let file = Temporary::with("length.pcap", &data);
    let report = report(&[file.input()], &options());
    assert_eq!((report.total.packets, report.lost_total), (3, 1));
    assert_eq!(report.lost[0].offset, (24 + 3 * record) as u64);
    assert!(report.lost[0].reason.contains("4294967295"), "{:?}", report.lost);
}

#[test]
fn bad_lines_are_lost_one_by_one() {
    let text =
        "client,time,bytes,direction\na,1,60,out\na,later,60,out\na,2,sixty,in\na,3,60,sideways\na,4,60,in\n";
    let file = Temporary::with("lines.csv", text.as_bytes());
    let report = report(&[file.input()], &options());
    assert_eq!((report.total.packets, report.lost_total), (2, 3));
    let places: Vec<(u64, u64)> = report.lost.iter().map(|l| (l.record, l.offset)).collect();
    assert_eq!(places, [(3, 39), (4, 54), (5, 67)]);
}

#[test]
fn what_is_no_recording_is_named_with_what_was_found() {
    let file = Temporary::with("nonsense.pcap", b"\x7fELF\x02\x01\x01\x00");
    let report = report(&[file.input()], &options());
    assert_eq!(report.lost_total, 1);
    assert!(report.lost[0].reason.contains("7f 45 4c 46"), "{:?}", report.lost);
}

#[test]
fn a_damaged_compressed_file_yields_what_came_before() {
    use std::io::Write as _;
    let mut csv = String::from("client,time,bytes,direction\n");
    let mut noise = 1u64;
    for n in 0..20_000u32 {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        csv += &format!("a,{n}.{:06},{},out\n", noise % 1_000_000, noise >> 44);
    }
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(csv.as_bytes()).expect("memory");
    let whole = gz.finish().expect("memory");
    let file = Temporary::with("cut.csv.gz", &whole[..whole.len() / 2]);
    let report = report(&[file.input()], &options());
    assert!(report.lost_total >= 1);
    assert!((5000..15_000).contains(&report.total.packets), "{}", report.total.packets);
    assert!(report.lost.iter().any(|l| l.reason.contains("ends early")), "{:?}", report.lost);
}

/// The seeds of the fuzz targets, and what they found, replayed.
#[test]
fn the_corpus_is_replayed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("a seed");
        fuzz::any(&data);
        files += 1;
    }
    assert!(files >= 12, "{files} seeds");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_a_parser_panic(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz::any(&data);
    }

    #[test]
    fn no_change_to_a_seed_makes_a_parser_panic(seed in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bytes in any::<[u8; 4]>(), cut in any::<prop::sample::Index>()) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace");
        let mut paths: Vec<_> = std::fs::read_dir(folder).expect("the corpus").map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        let mut data = std::fs::read(seed.get(&paths)).expect("a seed");
        let at = at.index(data.len().saturating_sub(4).max(1));
        if data.len() > 4 {
            data[at..at + 4].copy_from_slice(&bytes);
        }
        fuzz::any(&data);
        data.truncate(cut.index(data.len() + 1));
        fuzz::any(&data);
    }
}
