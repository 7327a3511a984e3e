//! What the exchanges of IKEv2 and HIP cost each end: full handshakes, resumption, address updates, liveness checks and rekeying,
//! between two endpoints in one thread, in CPU time of the role that spent it. No sockets, no waiting: what is left is what a
//! battery and a gateway's core pay. The public-key operations of the library, alone, are measured in between.
//!
//! Targets: a full handshake (RSA-2048, X25519) costs the gateway at most 1.25 times the public-key operations themselves; a resumption
//! without a key exchange at least 10 times less than that handshake, and one with a key exchange little more than that exchange too; for
//! HIP see [`hip`].
//!
//! `handshake [--out FILE] [ROW]`: raw data and provenance in FILE; only the rows whose name contains ROW, for a profiler.

mod hip;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{self, EcdsaKeyPair, KeyPair as _};
use clap::Parser;
use dormouse_benches::endpoints::{Cost, Pair};
use dormouse_benches::{
    ByRound, Measured, Summary, Target, Work, arguments, ratio, sum, thread_cpu, verdict,
};
use dormouse_ike::config::Connection;
use dormouse_lab::results::Figures;
use dormouse_report::Table;
use dormouse_testbed::crowd::{Pki, Proof};

/// What the exchanges of IKEv2 and HIP cost each end, in CPU time.
#[derive(Parser)]
struct Arguments {
    /// Keep raw data and provenance in this file, as docs/results.md describes it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only the rows whose name contains this.
    #[arg(value_name = "ROW", default_value = "")]
    row: String,
}

const REPETITIONS: u32 = 15;
/// CPU time of each repetition of each row.
const TIME: Duration = Duration::from_millis(30);
/// Sessions that the loaded gateway holds.
const CROWD: usize = 10_000;
/// What is signed: as long as the octets of RFC 7296 section 2.15 are with this peer, roughly.
const SIGNED: [u8; 500] = [0x5a; 500];

/// One repetition of an exchange: means over as many runs as fit.
fn exchange<'a>(name: &str, mut run: impl FnMut() -> Result<Cost> + 'a) -> (String, Work<'a>) {
    let work = move || {
        let (start, mut runs, mut sum) = (thread_cpu(), 0u32, Cost::default());
        while thread_cpu() - start < TIME {
            let cost = run()?;
            (sum.client, sum.gateway) = (sum.client + cost.client, sum.gateway + cost.gateway);
            sum = Cost { client: sum.client, gateway: sum.gateway, ..cost };
            runs += 1;
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(runs);
        let count = |n: u64| (sum.messages > 0).then_some(n as f64);
        Ok(Figures::default()
            .with("client", micros(sum.client))
            .with("gateway", micros(sum.gateway))
            .with("messages", count(sum.messages))
            .with("trips", count(sum.round_trips))
            .with("bytes", count(sum.bytes)))
    };
    (name.to_owned(), Box::new(work))
}

/// A computation that no message belongs to.
fn raw<'a>(name: &str, mut operation: impl FnMut() -> Result<()> + 'a) -> (String, Work<'a>) {
    exchange(name, move || {
        let start = thread_cpu();
        operation()?;
        Ok(Cost { gateway: thread_cpu() - start, ..Cost::default() })
    })
}

/// The public-key operations of the library, without anything of ours around them.
fn raw_rows<'a>() -> Result<Vec<(String, Work<'a>)>> {
    let rsa = signature::RsaKeyPair::generate(rsa::KeySize::Rsa2048)?;
    let ecdsa = EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING)?;
    let mut signed = vec![0; rsa.public_modulus_len()];
    rsa.sign(&signature::RSA_PSS_SHA256, &SystemRandom::new(), &SIGNED, &mut signed)?;
    let rsa_public = rsa.public_key().as_ref().to_vec();
    let ecdsa_signed = ecdsa.sign(&SystemRandom::new(), &SIGNED)?;
    let ecdsa_public = ecdsa.public_key().as_ref().to_vec();
    let mut out = vec![0; signed.len()];
    let peer = PrivateKey::generate(&X25519)?.compute_public_key()?;
    Ok(vec![
        raw("raw RSA-2048 signature", move || {
            Ok(rsa.sign(&signature::RSA_PSS_SHA256, &SystemRandom::new(), &SIGNED, &mut out)?)
        }),
        raw("raw RSA-2048 verification", move || {
            let key = signature::UnparsedPublicKey::new(&signature::RSA_PSS_2048_8192_SHA256, &rsa_public);
            Ok(key.verify(&SIGNED, &signed)?)
        }),
        raw("raw X25519, key pair and agreement", move || {
            let own = PrivateKey::generate(&X25519)?;
            std::hint::black_box(own.compute_public_key()?);
            let failed = aws_lc_rs::error::Unspecified;
            Ok(agreement::agree(&own, UnparsedPublicKey::new(&X25519, &peer), failed, |s| {
                std::hint::black_box(s);
                Ok(())
            })?)
        }),
        raw("raw ECDSA P-256 signature", move || {
            std::hint::black_box(ecdsa.sign(&SystemRandom::new(), &SIGNED)?);
            Ok(())
        }),
        raw("raw ECDSA P-256 verification", move || {
            let key = signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_ASN1, &ecdsa_public);
            Ok(key.verify(&SIGNED, ecdsa_signed.as_ref())?)
        }),
    ])
}

/// The client's connection without additional key exchanges: what they cost is a row of its own.
fn classical(mut connection: Connection) -> Arc<Connection> {
    connection.ike_proposals.retain(|proposal| proposal.additional.is_empty());
    Arc::new(connection)
}

/// A pair of ends with an SA between them, and the client's connection.
fn established(proof: Proof) -> Result<(Pair, Arc<Connection>)> {
    between(proof, classical)
}

/// The same as configured by default, with ML-KEM-768.
fn hybrid(proof: Proof) -> Result<(Pair, Arc<Connection>)> {
    between(proof, Arc::new)
}

/// Ends that leave the key exchange out of resumptions, which then have no forward secrecy.
fn without_fresh_keys() -> Result<(Pair, Arc<Connection>)> {
    let pki = Pki::new(Proof::Rsa2048)?;
    let (mut gateway, mut client) = (pki.gateway()?, pki.client(0)?);
    (gateway.resumption.fresh_keys, client.resumption.fresh_keys) = (false, false);
    let mut pair = Pair::new(gateway);
    let connection = classical(client);
    pair.connect(&connection)?;
    Ok((pair, connection))
}

fn between(proof: Proof, client: fn(Connection) -> Arc<Connection>) -> Result<(Pair, Arc<Connection>)> {
    let pki = Pki::new(proof)?;
    let mut pair = Pair::new(pki.gateway()?);
    let connection = client(pki.client(0)?);
    pair.connect(&connection)?;
    Ok((pair, connection))
}

/// The same with a gateway that holds [`CROWD`] other sessions.
fn crowded() -> Result<(Pair, Arc<Connection>)> {
    let pki = Pki::new(Proof::Psk)?;
    let mut pair = Pair::new(pki.gateway()?);
    for number in 1..=CROWD {
        pair.connect_beside(&classical(pki.client(number)?))?;
        pair.leave();
    }
    let connection = classical(pki.client(0)?);
    pair.connect(&connection)?;
    Ok((pair, connection))
}

fn rows<'a>(wanted: &str) -> Result<Vec<(String, Work<'a>)>> {
    type Step = fn(&mut Pair, &Arc<Connection>) -> Result<Cost>;
    type Setup = fn() -> Result<(Pair, Arc<Connection>)>;
    let psk: Setup = || established(Proof::Psk);
    let rsa: Setup = || established(Proof::Rsa2048);
    let exchanges: [(&'static str, Setup, Step); 16] = [
        ("full handshake, PSK", psk, |pair, conn| pair.connect(conn)),
        ("full handshake, RSA-2048", rsa, |pair, conn| pair.connect(conn)),
        ("full handshake, ECDSA P-256", || established(Proof::EcdsaP256), |pair, conn| pair.connect(conn)),
        ("full handshake, PSK, ML-KEM-768", || hybrid(Proof::Psk), |pair, conn| pair.connect(conn)),
        ("full handshake, RSA, ML-KEM-768", || hybrid(Proof::Rsa2048), |pair, conn| pair.connect(conn)),
        ("resumption", rsa, |pair, conn| pair.resume(conn)),
        ("resumption, no key exchange", without_fresh_keys, |pair, conn| pair.resume(conn)),
        ("MOBIKE update", rsa, |pair, _| pair.update()),
        ("liveness check", rsa, |pair, _| pair.probe()),
        ("rekeying of the CHILD SA", rsa, |pair, _| pair.rekey_child()),
        ("rekeying of the IKE SA", rsa, |pair, _| pair.rekey_ike()),
        ("rekeying of the IKE SA, ML-KEM-768", || hybrid(Proof::Psk), |pair, _| pair.rekey_ike()),
        ("full handshake, PSK, crowd", crowded, |pair, conn| pair.connect(conn)),
        ("resumption, crowd", crowded, |pair, conn| pair.resume(conn)),
        ("MOBIKE update, crowd", crowded, |pair, _| pair.update()),
        ("timers, nothing due, crowd", crowded, |pair, _| pair.gateway_timers()),
    ];
    let mut rows = raw_rows()?;
    rows.retain(|(name, _)| name.contains(wanted));
    for (name, setup, step) in exchanges {
        if name.contains(wanted) {
            let (mut pair, connection) = setup().with_context(|| name)?;
            rows.push(exchange(name, move || step(&mut pair, &connection)));
        }
    }
    rows.extend(strangers(wanted)?);
    rows.extend(hip::rows(wanted)?);
    Ok(rows)
}

/// A full handshake between ends that have not met: each verifies the other's certificate up to its authority, which later handshakes do not repeat.
fn strangers<'a>(wanted: &str) -> Result<Option<(String, Work<'a>)>> {
    let name = "full handshake, RSA-2048, strangers";
    if !name.contains(wanted) {
        return Ok(None);
    }
    let pki = Pki::new(Proof::Rsa2048)?;
    let (gateway, client) = (pki.gateway()?, classical(pki.client(0)?));
    Ok(Some(exchange(name, move || Pair::new(gateway.clone()).connect(&client))))
}

fn main() -> Result<()> {
    let Arguments { out, row } = arguments();
    let settings = serde_json::json!({ "repetition_seconds": TIME.as_secs_f64(), "crowd": CROWD });
    let measured = Measured::of(rows(&row)?, REPETITIONS, settings, out.as_deref())?;
    println!(
        "CPU time of an exchange, with X25519 (resumptions too, unless they say otherwise): medians of {REPETITIONS} interleaved repetitions. In a crowd:"
    );
    println!(
        "the gateway holds {CROWD} other sessions. Bytes are those of the UDP payloads, both ways. HIP, with P-384 unless it says"
    );
    println!(
        "otherwise: the client is the initiator, who solves the puzzle, or the end that moves; bytes are those of the IP payloads."
    );
    let head = ["", "client us", "gateway us", "spread", "per second", "messages", "trips", "bytes"];
    let mut table = Table::new(head);
    for row in measured.rows() {
        let of = |name| Summary::of(measured.figure(row, name).into_values());
        let (gateway, both) = (of("gateway"), !of("messages").median.is_nan());
        let shown = |text: String| if both { text } else { String::new() };
        table.row([
            row.to_owned(),
            shown(format!("{:.1}", of("client").median)),
            format!("{:.1}", gateway.median),
            format!("{:.0}%", gateway.percent()),
            format!("{:.0}", 1e6 / gateway.median),
            shown(of("messages").median.to_string()),
            shown(of("trips").median.to_string()),
            shown(of("bytes").median.to_string()),
        ]);
    }
    print!("{}", table.text(""));
    conclude(&measured);
    hip::conclude(&measured);
    Ok(())
}

/// The ratios, from the gateway's samples by row.
fn conclude(measured: &Measured) {
    let of = |name: &str| measured.figure(name, "gateway");
    let agree = of("raw X25519, key pair and agreement");
    let operations = |algorithm: &str| {
        let (sign, verify) = (format!("raw {algorithm} signature"), format!("raw {algorithm} verification"));
        sum(&sum(&of(&sign), &of(&verify)), &agree)
    };
    let crowd = |name: &str| ratio(&of(&format!("{name}, crowd")), &of(name));
    let (rsa, raw) = (of("full handshake, RSA-2048"), operations("RSA-2048"));
    let raw_ecdsa = operations("ECDSA P-256");
    let median = |figures: &ByRound| Summary::of(figures.values().copied()).median;
    println!(
        "A responder's own public-key operations: {:.1} us with RSA-2048; {:.1} us with ECDSA P-256, where the whole costs {:.2} times that.",
        median(&raw),
        median(&raw_ecdsa),
        ratio(&of("full handshake, ECDSA P-256"), &raw_ecdsa),
    );
    println!(
        "A crowd makes it dearer for the gateway: full handshake {:.2} times, resumption {:.2} times, MOBIKE update {:.2} times.",
        crowd("full handshake, PSK"),
        crowd("resumption"),
        crowd("MOBIKE update"),
    );
    println!(
        "A first handshake between strangers costs the gateway {:.2} times its public-key operations.",
        ratio(&of("full handshake, RSA-2048, strangers"), &raw),
    );
    let what = "full handshake at the gateway / its public-key operations";
    verdict(what, ratio(&rsa, &raw), Target::AtMost(1.25));
    let (fresh, plain) = (of("resumption"), of("resumption, no key exchange"));
    verdict(
        "resumption / (resumption without a key exchange + X25519) at the gateway",
        ratio(&fresh, &sum(&plain, &agree)),
        Target::AtMost(1.1),
    );
    verdict(
        "full handshake / resumption without a key exchange at the gateway",
        ratio(&rsa, &plain),
        Target::AtLeast(10.0),
    );
}
