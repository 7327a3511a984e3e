//! ESP sealing and opening against the raw AEAD of the library, at three packet sizes. Target: at least 85 % of the raw speed
//! at 1,420 bytes.

use anyhow::{Result, ensure};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use dormouse_benches::{Case, Target, interleaved, verdict};
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{IPV4_IN_IP, Inbound, Outbound, SaParams};
use dormouse_sansio::Seeded;
use std::time::Duration;

const BATCH: usize = 32;

/// A valid IPv4 header in front of `len - 20` bytes, as tunnel mode demands.
fn packet(len: usize) -> Vec<u8> {
    let mut p = vec![0x5a; len];
    p[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let total = u16::try_from(len).unwrap_or(u16::MAX);
    p[2..4].copy_from_slice(&total.to_be_bytes());
    p
}

fn sa() -> Result<(Outbound, Inbound)> {
    let params = SaParams::new(0x1234_5678, Encr::Aes128Gcm16, None, Secret::from(vec![7; 20]));
    Ok((Outbound::new(&params, &mut Seeded::new(1))?, Inbound::new(&params)?))
}

/// Seals a batch of equal packets in one buffer; returns the stride.
fn seal(out: &mut Outbound, buf: &mut [u8], len: usize) -> Result<usize> {
    let stride = out.sealed_len(len);
    out.seal_batch(buf, stride, &[len; BATCH], IPV4_IN_IP)?;
    Ok(stride)
}

fn main() -> Result<()> {
    println!(
        "AES-128-GCM, one core, nanoseconds for a packet (median of 15) and share of the raw AEAD's speed"
    );
    println!(
        "{:>6} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7}",
        "bytes", "raw seal", "ESP seal", "share", "raw open", "ESP open", "share"
    );
    let mut verdicts = Vec::new();
    for len in [64, 512, 1_420] {
        let plain = packet(len);
        let (mut out, mut inbound) = sa()?;
        let stride = out.sealed_len(len);
        let mut buf = vec![0; stride * BATCH];
        let head = out.head_len();
        let fill = |buf: &mut [u8]| {
            buf.chunks_mut(stride).for_each(|slot| slot[head..head + len].copy_from_slice(&plain))
        };
        // Verified first: what is sealed opens to what went in.
        fill(&mut buf);
        seal(&mut out, &mut buf, len)?;
        for slot in buf.chunks_mut(stride) {
            let opened = inbound.open(slot)?;
            ensure!(slot[opened.inner] == plain[..], "opened to something else");
        }
        let raw = || LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("a 16-byte key"));
        let (raw_seal_key, raw_open_key) = (raw(), raw());
        let mut raw_buf = vec![0x5a; len * BATCH];
        let mut counter = 0u64;
        let mut nonce = move || {
            counter += 1;
            let mut n = [0; 12];
            n[4..].copy_from_slice(&counter.to_be_bytes());
            Nonce::assume_unique_for_key(n)
        };
        let mut sealed = plain.clone();
        let zero = || Nonce::assume_unique_for_key([0; 12]);
        raw_open_key.seal_in_place_append_tag(zero(), Aad::from([0; 12]), &mut sealed).expect("seals");
        let mut open_buf = vec![0; sealed.len() * BATCH];
        // Sealed ahead of time: opening is timed alone, and each batch is fresh to the replay window.
        let (mut ahead_out, mut ahead_in) = sa()?;
        let mut ahead = Vec::new();
        let mut cases = [
            Case {
                name: "raw seal".into(),
                run: Box::new(|| {
                    for chunk in raw_buf.chunks_mut(len) {
                        let tag = raw_seal_key.seal_in_place_separate_tag(nonce(), Aad::from([0; 12]), chunk);
                        _ = std::hint::black_box(tag.expect("seals"));
                    }
                    BATCH as u64
                }),
            },
            Case {
                name: "ESP seal".into(),
                run: Box::new(|| seal(&mut out, &mut buf, len).map_or(0, |_| BATCH as u64)),
            },
            Case {
                name: "copy + raw open".into(),
                run: Box::new(|| {
                    for slot in open_buf.chunks_mut(sealed.len()) {
                        slot.copy_from_slice(&sealed);
                        raw_open_key.open_in_place(zero(), Aad::from([0; 12]), slot).expect("opens");
                    }
                    BATCH as u64
                }),
            },
            Case {
                name: "seal + ESP open".into(),
                run: Box::new(|| {
                    ahead.resize(stride * BATCH, 0);
                    fill(&mut ahead);
                    seal(&mut ahead_out, &mut ahead, len).expect("seals");
                    for slot in ahead.chunks_mut(stride) {
                        ahead_in.open(slot).expect("opens");
                    }
                    BATCH as u64
                }),
            },
        ];
        let times = interleaved(&mut cases, 15, Duration::from_millis(40));
        let [raw_seal, esp_seal, raw_open, both] = times[..] else { unreachable!("four cases") };
        let esp_open = both.median - esp_seal.median;
        println!(
            "{len:>6} {:>9.0} {:>9.0} {:>6.0}% {:>9.0} {:>9.0} {:>6.0}%",
            raw_seal.median,
            esp_seal.median,
            100.0 * raw_seal.median / esp_seal.median,
            raw_open.median,
            esp_open,
            100.0 * raw_open.median / esp_open,
        );
        if len == 1_420 {
            verdicts =
                vec![("seal", raw_seal.median / esp_seal.median), ("open", raw_open.median / esp_open)];
        }
    }
    println!(
        "ESP opening is measured as seal and open together, less sealing; both opens include one copy of the packet."
    );
    for (verb, share) in verdicts {
        verdict(
            &format!("ESP {verb} / raw AES-128-GCM {verb}, speed at 1,420 bytes"),
            share,
            Target::AtLeast(0.85),
        );
    }
    Ok(())
}
