//! Advice of papers 001 and 004 that is unsafe or discouraged today: what they found, what it costs here, and what is allowed
//! now. Owns the list; must never show such advice without what the standards say about it.

use serde::Serialize;

use super::candidates::Candidate;
use super::choice::Comparer;
use super::levels::{Judgement, Level};
use crate::judge::stats::Comparison;
use crate::results::esp::Metric;

/// A paper's advice, and what is allowed now.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PaperAdvice {
    /// Which paper, and where.
    pub place: &'static str,
    /// What it found, in our words.
    pub paper: &'static str,
    /// The suite it leads to.
    pub suite: &'static str,
    /// The level of that suite.
    pub level: Option<Level>,
    /// What the standards say.
    pub standard: String,
    /// What is allowed now: the recommendation.
    pub allowed: String,
    /// What following the paper would gain over the recommendation, if both were measured: the paper's over the
    /// recommended one's. [`PaperAdvice::words`] say under which circumstances, if not under those that decide.
    pub gain: Vec<(Metric, Comparison)>,
    /// The same in words.
    pub words: String,
}

const ADVICE: [(&str, &str, &str); 4] = [
    (
        "paper 001, Fig. 10 and conclusions",
        "DES with MD5 takes the least energy on the PDA: 86.9 J against 95.6 J with 3DES and SHA1",
        "des-md5",
    ),
    ("paper 001, Fig. 10", "3DES with SHA1, the common setting of its time, takes the most", "3des-sha1"),
    (
        "paper 004, section 4.1",
        "AES-CBC with HMAC-SHA1-96 is preferred to CCM and GCM, with or without AES instructions",
        "aes128-sha1",
    ),
    ("paper 004, section 4.1", "AES-CTR with HMAC-SHA1-96 is preferred for small packets", "aes128ctr-sha1"),
];

/// All of it.
pub(super) fn advice(comparer: &Comparer<'_>, candidates: &[Candidate], chosen: &str) -> Vec<PaperAdvice> {
    let of = |suite: &str| candidates.iter().find(|c| c.suite == suite);
    ADVICE
        .into_iter()
        .map(|(place, paper, suite)| {
            let judgement = Judgement::of(suite);
            let pair = of(suite).zip(of(chosen));
            let here: Option<Vec<(Metric, Comparison)>> = pair.map(|(theirs, ours)| {
                [Metric::Throughput, Metric::Cpu, Metric::Energy]
                    .into_iter()
                    .filter_map(|m| Some((m, comparer.compare(theirs, ours, m)?)))
                    .collect()
            });
            let told = |gain: &[(Metric, Comparison)]| {
                let all: Vec<String> = gain.iter().map(|(m, c)| super::words::compared(*m, c)).collect();
                format!("{suite} against {chosen}: {}", all.join("; "))
            };
            let (gain, words) = if suite == chosen {
                (
                    Vec::new(),
                    format!("{suite} is what is recommended, since discouraged suites were asked for"),
                )
            } else if let Some(gain) = here.filter(|gain| !gain.is_empty()) {
                let words = told(&gain);
                (gain, words)
            } else if let Some((basis, gain)) = comparer.elsewhere(suite, chosen).filter(|e| !e.1.is_empty())
            {
                let words = format!("{} ({})", told(&gain), basis.words());
                (gain, words)
            } else {
                (Vec::new(), format!("{suite} was not measured here beside {chosen}"))
            };
            PaperAdvice {
                place,
                paper,
                suite,
                level: judgement.as_ref().map(|j| j.level),
                standard: judgement.map(|j| j.reason()).unwrap_or_default(),
                allowed: chosen.to_owned(),
                gain,
                words,
            }
        })
        .collect()
}
