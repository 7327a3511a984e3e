//! Proof of the harness: OpenSSL's own library, called as `openssl speed` calls it but timed by the code that times our
//! primitives, against `openssl speed` itself. Where the two agree, what `dormouse bench --openssl` finds between the libraries
//! is the libraries' and not the measurement's. Then the same library called as packets need it, an IV for each, against ours.
//!
//! Owns the calls; must never be linked into the product.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_benches::{Summary, Target, verdict};
use dormouse_crypto::measure::Primitive;
use dormouse_lab::bench;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::hash::{Hasher, MessageDigest};
use openssl::md::Md;
use openssl::md_ctx::MdCtx;

const BLOCKS: [usize; 2] = [1_424, 16_384];
const TIME: Duration = Duration::from_millis(400);
const ROUNDS: usize = 3;
/// OpenSSL's CBC wants room for one more block.
const MORE: usize = 16;
/// What `openssl speed -aead` authenticates beside the data.
const AAD: [u8; 13] = [0xcc; 13];
/// Bytes of a combined mode's IV there.
const IV: usize = 12;

/// Bytes a second: `openssl speed`'s, its library's in our harness, the same with an IV for each call, and ours.
#[derive(Clone, Copy)]
struct Round {
    speed: f64,
    harness: f64,
    packets: f64,
    ours: f64,
}

fn main() -> Result<()> {
    let mut measured: Vec<(Primitive, usize, Vec<Round>)> =
        Primitive::all().flat_map(|p| BLOCKS.map(|block| (p, block, Vec::new()))).collect();
    for round in 1..=ROUNDS {
        for (primitive, block, rounds) in &mut measured {
            eprintln!("round {round} of {ROUNDS}: {} {block} B", primitive.name());
            let (library, theirs) = (Library::of(*primitive)?, (*primitive, *block));
            let mut keyed = primitive.keyed()?;
            let mut data = vec![0x5a; *block];
            rounds.push(Round {
                speed: bench::speed(theirs.0, theirs.1, None)?,
                harness: library.rate(*block, Calls::Speed)?,
                packets: library.rate(*block, Calls::Packet)?,
                ours: bench::rate(*block, TIME, || Ok(keyed.run(&mut data)?))?,
            });
        }
    }
    println!(
        "openssl speed, and the same calls of {} timed by our harness, less what the Rust wrapper asks besides; MB/s of CPU time, median of {ROUNDS} rounds",
        openssl::version::version()
    );
    println!(
        "packets: OpenSSL's library with what a packet needs for each block (an IV, authenticated data, a tag); ours: aws-lc with the same"
    );
    println!(
        "{:<18} {:>6} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7}",
        "", "block", "speed", "harness", "ratio", "packets", "ours", "ratio"
    );
    for (primitive, block, rounds) in &measured {
        let of = |f: fn(&Round) -> f64| Summary::of(rounds.iter().map(f).collect()).median;
        println!(
            "{:<18} {block:>6} {:>9.0} {:>9.0} {:>7.2} {:>9.0} {:>9.0} {:>7.2}",
            primitive.name(),
            of(|r| r.speed) / 1e6,
            of(|r| r.harness) / 1e6,
            of(|r| r.harness / r.speed),
            of(|r| r.packets) / 1e6,
            of(|r| r.ours) / 1e6,
            of(|r| r.ours / r.packets),
        );
    }
    for block in BLOCKS {
        let of_block = measured.iter().filter(|(_, b, _)| *b == block);
        let worst = of_block
            .map(|(_, _, rounds)| Summary::of(rounds.iter().map(|r| r.harness / r.speed).collect()).median)
            .map(|ratio| ratio.max(1.0 / ratio))
            .fold(1.0, f64::max);
        verdict(
            &format!("our harness / openssl speed, {block} B, farthest of all"),
            worst,
            Target::AtMost(1.1),
        );
    }
    Ok(())
}

/// What `openssl speed` does with a primitive.
enum Library {
    Cipher { name: &'static str, kind: Kind },
    Digest(&'static str),
    Hmac(MessageDigest),
}

/// How a cipher's blocks become messages.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// They do not: one stream goes on and on.
    Stream,
    /// With an IV, authenticated data and a tag each.
    Aead,
    /// The same, for a mode that must know the length beforehand.
    Ccm,
}

/// What is done anew for each block.
#[derive(Clone, Copy, PartialEq)]
enum Calls {
    /// What `openssl speed` does: for GCM and CCM everything, the key included; for the others nothing, not even for
    /// ChaCha20-Poly1305.
    Speed,
    /// What a packet needs: an IV, and for combined modes its authenticated data and its tag.
    Packet,
}

impl Library {
    /// By the arguments of `openssl speed`, which are the last word on what it measures.
    fn of(primitive: Primitive) -> Result<Self> {
        let name = *primitive.openssl().last().context("no arguments")?;
        let digest = || MessageDigest::from_name(name).with_context(|| format!("no digest {name}"));
        Ok(match primitive.openssl() {
            ["-hmac", _] => Self::Hmac(digest()?),
            ["-evp", md] if md.starts_with("sha") => Self::Digest(name),
            ["-aead", "-evp", _] if name.ends_with("ccm") => Self::Cipher { name, kind: Kind::Ccm },
            ["-aead", "-evp", _] => Self::Cipher { name, kind: Kind::Aead },
            ["-evp", _] => Self::Cipher { name, kind: Kind::Stream },
            other => bail!("openssl speed {other:?} is not known here"),
        })
    }

    /// Bytes a second of blocks of this size.
    fn rate(&self, block: usize, calls: Calls) -> Result<f64> {
        match self {
            Self::Cipher { name, kind: Kind::Aead, .. }
                if calls == Calls::Speed && name.starts_with("chacha") =>
            {
                cipher(name, Kind::Stream, block, calls)
            }
            Self::Cipher { name, kind } => cipher(name, *kind, block, calls),
            Self::Digest(name) => digest(name, block),
            Self::Hmac(digest) => hmac(*digest, block),
        }
    }
}

fn cipher(name: &str, kind: Kind, block: usize, calls: Calls) -> Result<f64> {
    let cipher = Cipher::fetch(None, name, None)?;
    let key = vec![0x5a; cipher.key_length()];
    let mut iv = [7; 16];
    let mut context = CipherCtx::new()?;
    context.encrypt_init(Some(&cipher), None, None)?;
    if kind != Kind::Stream {
        context.set_iv_length(IV)?;
    }
    context.encrypt_init(None, Some(&key), Some(&iv))?;
    // OpenSSL tells its cipher so again whenever it is begun anew, and that takes time.
    context.set_padding(calls == Calls::Packet);
    let (mut data, mut tail) = (vec![0x5a; block + MORE], [0; 32]);
    let asides = asides(&context, calls, kind)?;
    let mut counter = 0u64;
    let rate = bench::rate(block, TIME, || {
        counter += 1;
        if let Some(first) = iv.first_chunk_mut::<8>() {
            *first = counter.to_be_bytes();
        }
        match (calls, kind) {
            (Calls::Speed, Kind::Stream) => {}
            (Calls::Packet, Kind::Stream | Kind::Aead) => context.encrypt_init(None, None, Some(&iv))?,
            (Calls::Packet, Kind::Ccm) => {
                context.encrypt_init(None, None, Some(&iv))?;
                context.set_data_len(block)?;
            }
            (Calls::Speed, Kind::Aead) => {
                context.set_iv_length(IV)?;
                context.encrypt_init(None, Some(&key), Some(&iv))?;
            }
            (Calls::Speed, Kind::Ccm) => {
                context.set_iv_length(IV)?;
                context.set_tag_length(16)?;
                context.encrypt_init(None, Some(&key), Some(&iv))?;
                context.set_data_len(block)?;
            }
        }
        if kind != Kind::Stream {
            context.cipher_update(&AAD, None)?;
        }
        let done = context.cipher_update_inplace(&mut data, block)?;
        if kind == Kind::Aead {
            context.cipher_final(&mut tail)?;
        }
        ensure!(done == block, "{name}: {done} of {block} bytes");
        Ok(())
    })?;
    Ok(block as f64 / (block as f64 / rate - asides))
}

/// Seconds that the Rust wrapper spends on a block with questions to the library whose answers we know, and which `openssl speed`
/// does not ask: lengths when it begins, two of the block's length (or one as cheap) for each update, one for the end.
fn asides(context: &CipherCtx, calls: Calls, kind: Kind) -> Result<f64> {
    let begins = (calls, kind) != (Calls::Speed, Kind::Stream);
    let small = match kind {
        Kind::Stream => 2,
        Kind::Ccm => 4,
        Kind::Aead => 5,
    };
    let rate = bench::rate(1, TIME / 10, || {
        if begins && calls == Calls::Speed {
            std::hint::black_box(context.key_length());
        }
        if begins {
            std::hint::black_box(context.iv_length());
        }
        for _ in 0..small {
            std::hint::black_box(context.block_size());
        }
        Ok(())
    })?;
    Ok(1.0 / rate)
}

/// A digest with a context of its own for each block, as `EVP_Digest` has it.
fn digest(name: &str, block: usize) -> Result<f64> {
    let digest = Md::fetch(None, name, None)?;
    let (data, mut out) = (vec![0x5a; block], [0; 64]);
    bench::rate(block, TIME, || {
        let mut context = MdCtx::new()?;
        context.digest_init(&digest)?;
        context.digest_update(&data)?;
        context.digest_final(&mut out)?;
        Ok(())
    })
}

/// HMAC as OpenSSL's own does it: a copy of the inner state, the data, and a copy of the outer state.
fn hmac(digest: MessageDigest, block: usize) -> Result<f64> {
    let keyed = |pad: u8| -> Result<Hasher> {
        let mut key = vec![pad; digest.block_size()];
        key.iter_mut().take(32).for_each(|byte| *byte ^= 0x5a);
        let mut hasher = Hasher::new(digest)?;
        hasher.update(&key)?;
        Ok(hasher)
    };
    let (inner, outer, data) = (keyed(0x36)?, keyed(0x5c)?, vec![0x5a; block]);
    bench::rate(block, TIME, || {
        let mut first = inner.clone();
        first.update(&data)?;
        let mut second = outer.clone();
        second.update(&first.finish()?)?;
        std::hint::black_box(second.finish()?);
        Ok(())
    })
}
