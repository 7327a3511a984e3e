//! The figures of paper 001, as its text gives them: mean and standard deviation of five repetitions; of packets, their number.

/// A figure without a VPN and with one (3DES and SHA1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pair {
    /// PDU size in bytes, or rate in kbit/s.
    pub(super) x: u32,
    pub(super) without: (f64, f64),
    pub(super) with: (f64, f64),
}

const fn pair(x: u32, without: (f64, f64), with: (f64, f64)) -> Pair {
    Pair { x, without, with }
}

/// Fig. 4: highest reception rate in Mbit/s by PDU size.
pub(super) const MAXIMUM: [Pair; 3] = [
    pair(256, (1.168, 0.039), (0.855, 0.004)),
    pair(512, (2.035, 0.013), (1.342, 0.048)),
    pair(1_024, (3.109, 0.066), (2.079, 0.012)),
];

/// Figs. 5 and 7: energy above idle in joules by rate; eight minutes up to 256 kbit/s, three from 1,000.
pub(super) const ENERGY_BY_RATE: [Pair; 7] = [
    pair(56, (10.2, 23.091), (12.5, 12.261)),
    pair(128, (17.0, 2.646), (25.0, 9.899)),
    pair(256, (20.5, 2.121), (29.0, 11.314)),
    pair(1_000, (37.333, 4.243), (59.333, 0.0)),
    pair(2_000, (55.083, 5.620), (90.333, 0.0)),
    pair(4_000, (94.333, 8.185), (93.333, 0.0)),
    pair(8_000, (97.333, 2.828), (90.833, 0.707)),
];

/// Fig. 6: packets that arrived, in percent, by rate.
pub(super) const RECEIVED_BY_RATE: [Pair; 4] = [
    pair(1_000, (92.729, 9.793), (88.778, 0.050)),
    pair(2_000, (88.867, 0.031), (88.878, 0.003)),
    pair(4_000, (83.558, 0.034), (53.148, 0.276)),
    pair(8_000, (41.047, 0.192), (25.069, 0.004)),
];

/// Packets that arrived in three minutes.
const fn count(x: u32, without: u32, with: u32) -> Pair {
    pair(x, (without as f64, 0.0), (with as f64, 0.0))
}

/// Fig. 6: packets that arrived, by rate.
pub(super) const COUNT_BY_RATE: [Pair; 4] = [
    count(1_000, 20_864, 19_975),
    count(2_000, 39_990, 39_995),
    count(4_000, 75_203, 47_834),
    count(8_000, 73_885, 45_125),
];

/// Fig. 8: packets of a 2 Mbit/s stream that arrived, by PDU size.
pub(super) const COUNT_BY_PDU: [Pair; 4] = [
    count(256, 106_273, 72_514),
    count(512, 71_167, 61_748),
    count(1_024, 39_058, 39_983),
    count(2_048, 867, 324),
];

/// Fig. 8: packets of a 2 Mbit/s stream that arrived, in percent, by PDU size.
pub(super) const RECEIVED_BY_PDU: [Pair; 4] = [
    pair(256, (59.041, 8.630), (40.285, 5.452)),
    pair(512, (79.074, 1.758), (68.609, 2.377)),
    pair(1_024, (86.796, 0.566), (88.850, 0.024)),
    pair(2_048, (3.851, 0.651), (1.440, 0.314)),
];

/// Fig. 9: energy above idle of a 2 Mbit/s stream in joules, by PDU size.
pub(super) const ENERGY_BY_PDU: [Pair; 4] = [
    pair(256, (90.494, 12.021), (93.994, 8.485)),
    pair(512, (74.494, 0.707), (102.994, 1.414)),
    pair(1_024, (49.494, 0.707), (99.438, 0.707)),
    pair(2_048, (30.438, 2.121), (64.938, 1.414)),
];

/// Fig. 10: suites and their energy in joules.
pub(super) const ALGORITHMS: [(&str, (f64, f64)); 4] = [
    ("3des-sha1", (95.605, 6.658)),
    ("3des-md5", (89.438, 2.121)),
    ("des-sha1", (87.938, 0.0)),
    ("des-md5", (86.938, 1.414)),
];
