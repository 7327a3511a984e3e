//! HIP's exchanges between two hosts in one thread, each with the processor time of either end. Owns what is held against what.

use std::time::Duration;

use anyhow::{Context, Result};
use aws_lc_rs::agreement::{self, ECDH_P384, PrivateKey, UnparsedPublicKey};
use dormouse_benches::endpoints::Cost;
use dormouse_benches::{Measured, Summary, Target, Work, ratio, sum, verdict};
use dormouse_crypto::hip::DhGroup;
use dormouse_lab::paper_002::pair::{Key, Pair, Setup};

use crate::{exchange, raw};

/// Group and difficulty of the puzzle: our own defaults without load...
const OURS: (DhGroup, u8) = (DhGroup::Ecp384, 4);
/// ...and what the paper's programs had.
const PAPER: (DhGroup, u8) = (DhGroup::Modp1536, 10);
/// Seconds that the paper's phone took for the shortest of its base exchanges (paper 002, HIPL, standby, with a server).
const PHONE: f64 = 1.677;
/// Milliseconds of CPU that an UPDATE may cost an end.
const UPDATE: f64 = 0.15;

const AGREEMENT: &str = "raw ECDH P-384, agreement";
const AS_THE_PAPER: &str = "HIPv1 base exchange, RSA-1024, 1,536 bits, K = 10";

/// What is measured, but for the signatures, which are IKEv2's too.
pub(crate) fn rows<'a>(wanted: &str) -> Result<Vec<(String, Work<'a>)>> {
    let mut rows = Vec::new();
    if AGREEMENT.contains(wanted) {
        let own = PrivateKey::generate(&ECDH_P384)?;
        let peer = PrivateKey::generate(&ECDH_P384)?.compute_public_key()?;
        rows.push(raw(AGREEMENT, move || {
            let failed = aws_lc_rs::error::Unspecified;
            Ok(agreement::agree(&own, UnparsedPublicKey::new(&ECDH_P384, &peer), failed, |s| {
                std::hint::black_box(s);
                Ok(())
            })?)
        }));
    }
    for (name, key, with) in [
        ("HIP base exchange, RSA-2048", Key::Rsa2048, OURS),
        ("HIP base exchange, ECDSA P-256", Key::P256, OURS),
        (AS_THE_PAPER, Key::Rsa1024V1, PAPER),
        ("HIP base exchange, RSA-2048, 1,536 bits, K = 10", Key::Rsa2048, PAPER),
    ] {
        if name.contains(wanted) {
            let mut pair = pair(key, with).with_context(|| name)?;
            rows.push(exchange(name, move || {
                let [i1, r1, t2, t3, t4] = pair.base_exchange()?;
                Ok(cost(&pair, [i1 + t2 + t4, r1 + t3]))
            }));
        }
    }
    for (name, key) in [("HIP UPDATE, RSA-2048", Key::Rsa2048), ("HIP UPDATE, ECDSA P-256", Key::P256)] {
        if name.contains(wanted) {
            let mut pair = pair(key, OURS).with_context(|| name)?;
            rows.push(exchange(name, move || {
                let ends = pair.update()?;
                Ok(cost(&pair, ends))
            }));
        }
    }
    Ok(rows)
}

/// Two hosts with an association, which has made the responder's group key and signed its R1, as a daemon has them ahead.
fn pair(key: Key, (group, k): (DhGroup, u8)) -> Result<Pair> {
    let [a, b] = [key.generate()?, key.generate()?];
    let mut pair = Pair::new(Setup { key: &a, group, k }, Setup { key: &b, group, k }, 1)?;
    pair.base_exchange()?;
    Ok(pair)
}

fn cost(pair: &Pair, [client, gateway]: [Duration; 2]) -> Cost {
    let [messages, bytes] = pair.traffic();
    Cost { client, gateway, messages, bytes, round_trips: messages / 2 }
}

/// The ratios.
pub(crate) fn conclude(measured: &Measured) {
    let of = |name: &str| measured.figure(name, "gateway");
    for algorithm in ["RSA-2048", "ECDSA P-256"] {
        let raw = |operation: &str| of(&format!("raw {algorithm} {operation}"));
        let operations = sum(&sum(&raw("signature"), &raw("verification")), &of(AGREEMENT));
        verdict(
            &format!("HIP base exchanges of a responder / what its operations allow, {algorithm}"),
            ratio(&operations, &of(&format!("HIP base exchange, {algorithm}"))),
            Target::AtLeast(0.85),
        );
    }
    let both = sum(&measured.figure(AS_THE_PAPER, "client"), &of(AS_THE_PAPER));
    let both = Summary::of(both.into_values()).median;
    verdict(
        "time of the paper's phone / HIPv1 base exchange, RSA-1024, CPU of both ends",
        PHONE * 1e6 / both,
        Target::AtLeast(1_000.0),
    );
    // Each end signs once and verifies once: an RSA signature alone may cost more than the bound.
    for algorithm in ["ECDSA P-256", "RSA-2048"] {
        let name = format!("HIP UPDATE, {algorithm}");
        let update = |end| Summary::of(measured.figure(&name, end).into_values()).median;
        verdict(
            &format!("ms of CPU of a HIP UPDATE at the dearer end, {algorithm}"),
            update("client").max(update("gateway")) / 1e3,
            Target::AtMost(UPDATE),
        );
    }
}
