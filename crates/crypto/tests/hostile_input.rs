//! Damaged certificates, keys and identities through the fuzzing entry points: nothing may panic. The seed is printed on
//! failure by the name of the case.

use dormouse_crypto::fuzz;
use dormouse_sansio::{Entropy, Seeded};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

const FILES: [&[u8]; 8] = [
    include_bytes!("data/rsa1024.crt"),
    include_bytes!("data/rsa2048.pkcs1.pem"),
    include_bytes!("data/rsa2048.pkcs8.pem"),
    include_bytes!("data/p256.sec1.pem"),
    include_bytes!("data/p384.pkcs8.pem"),
    include_bytes!("data/ed25519.pkcs8.pem"),
    include_bytes!("data/encrypted.pkcs1.pem"),
    b"0x00112233",
];

fn everything(data: &[u8]) {
    fuzz::certificate(data);
    fuzz::key(data);
    fuzz::identity(data);
}

#[test]
fn mutations_of_good_files() {
    let certificate = CertificateDer::from_pem_slice(FILES[0]).expect("a certificate");
    let der = certificate.as_ref();
    for seed in 0..400 {
        println!("seed {seed}");
        let mut random = Seeded::new(seed);
        let base =
            if seed % 2 == 0 { der } else { FILES[usize::try_from(seed / 2).expect("small") % FILES.len()] };
        let mut data = base.to_vec();
        for _ in 0..=random.below(4) {
            let at = usize::try_from(random.below(data.len() as u64)).expect("an index");
            match random.below(4) {
                0 => data[at] ^= 1 << random.below(8),
                1 => data[at] = random.next_u64().to_le_bytes()[0],
                2 => data.truncate(at.max(1)),
                _ => data.insert(at, 0x30),
            }
        }
        everything(&data);
    }
}

#[test]
fn every_prefix() {
    let certificate = CertificateDer::from_pem_slice(FILES[0]).expect("a certificate");
    for end in 0..certificate.len() {
        everything(&certificate[..end]);
    }
}

/// Nested structures must not be followed to any depth: a stack is finite.
#[test]
fn deep_nesting() {
    let mut nested = vec![0x30, 0x80];
    for depth in 0..20_000u32 {
        let len = nested.len() + 3;
        let mut outer = vec![0x30, 0x83];
        outer.extend_from_slice(&u32::try_from(len).expect("short").to_be_bytes()[1..]);
        outer.extend_from_slice(&[0x02, 0x01, 0x00]);
        if depth % 100 != 0 {
            // Grow cheaply: only some levels carry a version, as key files do.
            outer.truncate(5);
            outer[2..5].copy_from_slice(&u32::try_from(nested.len()).expect("short").to_be_bytes()[1..]);
        }
        outer.append(&mut nested);
        nested = outer;
    }
    everything(&nested);
}
