//! The fuzz entries of the whole endpoint, on bytes from a seed and on mutated messages: no panic.

use dormouse_ike::fuzz_endpoint::{authenticated, intermediate, responder};
use dormouse_sansio::{Entropy, Seeded};

#[test]
fn random_chunks() {
    let mut seed = Seeded::new(7);
    for _ in 0..300 {
        let len = usize::try_from(seed.below(3_000)).expect("small");
        let mut data = vec![0; len];
        seed.fill(&mut data);
        // Short chunks reach further: most long ones fail in the first payload.
        for i in (0..data.len()).step_by(40) {
            data[i] = 0;
        }
        responder(&data);
        authenticated(&data);
        intermediate(&data);
    }
}

/// Chunks with payload chains that are well formed as chains: generic headers with plausible lengths and next types.
#[test]
fn plausible_chains() {
    let mut seed = Seeded::new(8);
    for _ in 0..500 {
        let mut data = Vec::new();
        for _ in 0..1 + seed.below(6) {
            let mut chunk = vec![u8::try_from(seed.below(256)).expect("a byte")];
            for _ in 0..seed.below(5) {
                let body = usize::try_from(seed.below(48)).expect("small");
                let next = 33 + u8::try_from(seed.below(17)).expect("small");
                let len = u16::try_from(body + 4).expect("small").to_be_bytes();
                chunk.extend([next, 0, len[0], len[1]]);
                let mut bytes = vec![0; body];
                seed.fill(&mut bytes);
                for b in bytes.iter_mut().step_by(2) {
                    *b &= 0x03;
                }
                chunk.extend(bytes);
            }
            data.extend(u16::try_from(chunk.len()).expect("small").to_be_bytes());
            data.extend(chunk);
        }
        authenticated(&data);
        intermediate(&data);
    }
}
