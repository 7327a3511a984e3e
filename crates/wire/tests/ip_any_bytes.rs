//! Any bytes that arrive as an IP packet keep the properties that the fuzz target checks.

use dormouse_wire::fuzz;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn random_bytes(mut bytes in vec(any::<u8>(), 0..1600), v6 in any::<bool>()) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x45 };
        }
        let len = bytes.len() as u16;
        // A length that fits, so that more than the length check is reached.
        match (bytes.get_mut(2..6), v6) {
            (Some([a, b, _, _]), false) => [*a, *b] = len.to_be_bytes(),
            (Some([_, _, a, b]), true) => [*a, *b] = len.saturating_sub(40).to_be_bytes(),
            _ => {}
        }
        fuzz::ip(&bytes);
    }

    #[test]
    fn syn_segments_with_any_options(options in vec(any::<u8>(), 0..=10), v6 in any::<bool>(), flags in any::<u8>()) {
        let (src, dst) = if v6 { ("[::1]:1", "[::2]:2") } else { ("10.0.0.1:1", "10.0.0.2:2") };
        let options: Vec<u8> = options.into_iter().flat_map(|o| [o & 3, 4, o, 9]).collect();
        let segment = dormouse_wire::ip::tcp::Segment {
            src: src.parse().expect("address"),
            dst: dst.parse().expect("address"),
            sequence: 1,
            acknowledgement: 2,
            flags,
            window: 3,
            options: &options,
        };
        let mut packet = Vec::new();
        segment.build(&[], &mut packet)?;
        fuzz::ip(&packet);
    }
}
