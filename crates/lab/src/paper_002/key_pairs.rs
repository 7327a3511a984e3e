//! Key pairs of the lengths of paper 002, and how long each takes to make. Owns the arguments of OpenSSL's program; must never keep a key.
//!
//! An RSA pair is made by that program. It makes no DSA pair of 512 bits any more, but the parameters of one: these, which are nearly all
//! of the work, come from it by the procedure of FIPS 186-2, the one that programs of the paper's time had, with a group of 160 bits at
//! each length; the pair with them is made here.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use dormouse_crypto::measure::dsa_pair;
use serde::{Deserialize, Serialize};

use super::campaign::millis;
use crate::campaign::cpu;
use crate::results::Figures;

/// Pairs of a round: their times scatter widely.
const PAIRS: usize = 40;
/// The same beyond [`SHORT`] bits.
const FEW: usize = 20;
const SHORT: u32 = 1_024;
/// How often the program starts for next to nothing: a key pair that is drawn and not searched for.
const STARTS: usize = 10;
const NOTHING: [&str; 3] = ["genpkey", "-algorithm", "X25519"];

/// What the paper creates key pairs of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Algorithm {
    Dsa,
    Rsa,
}

/// Processor time of key pairs, each by itself, and of starts of the program.
///
/// # Errors
/// If the program is not there, or makes no such key.
pub(super) fn measure(algorithm: Algorithm, bits: u32, once: bool) -> Result<Figures> {
    let (starts, pairs) = match bits {
        _ if once => (1, 1),
        ..=SHORT => (STARTS, PAIRS),
        _ => (STARTS, FEW),
    };
    let start = || Ok(openssl(&NOTHING)?.1);
    let started = (0..starts).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let created = (0..pairs).map(|_| pair(algorithm, bits)).collect::<Result<Vec<_>>>()?;
    Ok(Figures::default().with_all("started", started).with_all("created", created))
}

fn pair(algorithm: Algorithm, bits: u32) -> Result<f64> {
    match algorithm {
        Algorithm::Rsa => {
            let (key, took) = openssl(&["genrsa", &bits.to_string()])?;
            ensure!(String::from_utf8_lossy(&key).contains("PRIVATE KEY"), "openssl makes no RSA key");
            Ok(took)
        }
        Algorithm::Dsa => {
            let length = format!("dsa_paramgen_bits:{bits}");
            let how = ["dsa_paramgen_q_bits:160", "type:fips186_2", length.as_str()];
            let options = how.iter().flat_map(|option| ["-pkeyopt", option]);
            let arguments: Vec<&str> =
                ["genpkey", "-genparam", "-algorithm", "DSA"].into_iter().chain(options).collect();
            let (parameters, took) = openssl(&arguments)?;
            let before = cpu::thread();
            dsa_pair(&parameters)?;
            Ok(took + millis(cpu::thread() - before))
        }
    }
}

/// Runs the program: what it prints, and milliseconds that it took of the processors.
fn openssl(arguments: &[&str]) -> Result<(Vec<u8>, f64)> {
    let before = cpu::children();
    let output = Command::new("openssl").args(arguments).output().context("openssl")?;
    let took = cpu::children() - before;
    ensure!(output.status.success(), "openssl {arguments:?}: {}", output.status);
    Ok((output.stdout, millis(took)))
}
