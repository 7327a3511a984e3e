//! Messages against those that a C compiler makes of the kernel's own header, byte for byte.

use super::message;
use super::*;

/// The bytes of a message of `golden.txt`.
fn golden(name: &str) -> Vec<u8> {
    let line = include_str!("golden.txt").lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let (len, hex) = line.and_then(|line| line.split_once(' ')).expect("a message of this name");
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    assert_eq!(bytes.len().to_string(), len);
    bytes
}

/// Accepted up to `top`, but not these.
fn seen(top: u64, words: usize, missing: &[u64]) -> Seen {
    let mut bits = vec![u64::MAX; words];
    for age in missing.iter().map(|seq| top - seq) {
        bits[(age / 64) as usize] &= !(1 << (age % 64));
    }
    Seen { top, bits }
}

fn policy() -> Policy {
    Policy {
        direction: Direction::Out,
        source: "10.55.0.1/32".parse().unwrap(),
        destination: "10.99.0.0/24".parse().unwrap(),
        outer: ("192.0.2.1".parse().unwrap(), "198.51.100.2".parse().unwrap()),
        spi: 0x1122_3344,
    }
}

#[test]
fn a_state_is_made_as_the_header_has_it() {
    let key: Vec<u8> = (0..20).collect();
    let sa = Sa {
        direction: Direction::Out,
        spi: 0x1122_3344,
        source: "192.0.2.1".parse().unwrap(),
        destination: "198.51.100.2".parse().unwrap(),
        cipher: Cipher::AesGcm,
        key: &key,
        esn: true,
        replay: Replay { sent: (1 << 32) + 7, seen: seen(130, 2, &[100]) },
        packets: 1_000,
        udp: Some((4_500, 1_025)),
    };
    assert_eq!(message::new_sa(&sa).as_bytes(), golden("sa"));
    assert!(!format!("{sa:?}").contains("key"), "no key is shown");
}

#[test]
fn a_state_is_named_and_read_as_the_header_has_it() {
    let (ours, peers): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    assert_eq!(message::sa_id(ours, 0x1001), golden("id"));
    let mut expected = State {
        spi: 0x1001,
        source: peers,
        destination: ours,
        if_id: IF_ID,
        counted: Counted { packets: 789, bytes: 123_456 },
        replay: Some(Replay { sent: 0, seen: seen(70, 1, &[68]) }),
        last_used: Some(1_764_262_800),
    };
    assert_eq!(message::state(NEWSA, &golden("state")), Some(expected.clone()));
    expected.last_used = None;
    assert_eq!(message::state(DELSA, &golden("deleted")), Some(expected));
}

#[test]
fn a_policy_is_made_named_and_read_as_the_header_has_it() {
    let one = policy();
    assert_eq!(message::new_policy(&one), golden("policy"));
    assert_eq!(message::policy_id(1, one.source, one.destination), golden("policyid"));
    assert_eq!(message::policy(&golden("policy")), Some((IF_ID, 1, one.source, one.destination)));
}

#[test]
fn a_window_comes_back_as_it_went() {
    let mut states = Vec::new();
    for (top, words) in [(1u64, 1), (63, 1), (64, 1), (65, 2), (4_000, 16), (5_000, 64), ((1 << 32) + 3, 64)]
    {
        let missing: Vec<u64> = [0, 1, 2, 17, 63, 64, 100, 600]
            .iter()
            .filter_map(|age| top.checked_sub(*age))
            .filter(|s| *s > 0)
            .collect();
        let inside = |seq: &u64| top - seq < words as u64 * 64;
        let missing: Vec<u64> = missing.into_iter().filter(inside).collect();
        states.push(Replay { sent: top * 3, seen: seen(top, words, &missing) });
    }
    for replay in states {
        let content = message::replay(&replay);
        assert_eq!(message::replay_of(&content), Some(replay.clone()), "{replay:?}");
        for cut in 0..content.len() {
            assert_eq!(message::replay_of(&content[..cut]), None, "cut at {cut}");
        }
    }
    let most = Replay { sent: 0, seen: seen(100_000, 1_024, &[99_990, 90_000]) };
    let back = message::replay_of(&message::replay(&most)).unwrap();
    assert_eq!(
        back.seen,
        seen(100_000, 64, &[99_990]),
        "the kernel's window is narrower, and forgets nothing"
    );
}

#[test]
fn what_is_cut_off_is_not_read() {
    for name in ["state", "deleted", "policy"] {
        let whole = golden(name);
        for cut in 0..whole.len() {
            let part = &whole[..cut];
            let _any = (message::state(NEWSA, part), message::state(DELSA, part), message::policy(part));
        }
    }
    assert_eq!(message::state(NEWSA, &golden("state")[..223]), None);
    assert_eq!(message::policy(&golden("policy")[..167]), None);
    let mut buffer = vec![0; 20];
    buffer[..4].copy_from_slice(&20u32.to_ne_bytes());
    assert_eq!(parts(&buffer).count(), 1);
    for length in [0u32, 15, 21, u32::MAX] {
        buffer[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(parts(&buffer).count(), 0, "{length}");
    }
}
