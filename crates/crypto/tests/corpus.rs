//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_crypto::fuzz;
use replay::replay;

#[test]
fn crypto_certificate() {
    replay("crypto_certificate", fuzz::certificate);
}

#[test]
fn crypto_key() {
    replay("crypto_key", fuzz::key);
}

#[test]
fn crypto_identity() {
    replay("crypto_identity", fuzz::identity);
}

#[test]
fn crypto_crl() {
    replay("crypto_crl", fuzz::crl);
}

#[test]
fn crypto_ocsp() {
    replay("crypto_ocsp", fuzz::ocsp);
}
