//! Arbitrary bytes, and arbitrary plaintexts of an authentic but hostile peer, never panic the receiver.

use proptest::prelude::*;

proptest! {
    #[test]
    fn arbitrary_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        dormouse_esp::fuzz::open(&data);
    }

    #[test]
    fn trailers_of_every_kind(mut data in prop::collection::vec(any::<u8>(), 2..600), pad: u8, next in prop::sample::select(vec![4_u8, 41, 59, 17])) {
        let n = data.len() / 16 * 16;
        data.truncate(n);
        if let [rest @ .., p, h] = &mut data[..] {
            for (i, byte) in rest.iter_mut().rev().take(usize::from(pad)).enumerate() {
                *byte = pad - i as u8;
            }
            (*p, *h) = (pad, next);
        }
        dormouse_esp::fuzz::open(&data);
    }
}
