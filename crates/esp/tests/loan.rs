//! A pair of SAs lent to another engine and taken back: no number is sent or accepted twice, none that was sent is refused, and an engine that has lost its
//! numbers ends the SA.

use dormouse_crypto::{Encr, Secret};
use dormouse_esp::loan::{Ivs, LOANS, PACKETS, RESERVE};
use dormouse_esp::{Discard, Life, Loan, Replay, Returned, Seen, Tunnel, Unfit, Usage};
use dormouse_keying::{ChildId, Install, Mode, Owner, Protection, SaId, Share, SoftBounds};
use dormouse_sansio::{Carrier, Entropy, Instant, Path};
use dormouse_wire::ike::TsRange;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug)]
struct Zeros;

impl Entropy for Zeros {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(0);
    }
}

fn install(carrier: Carrier, esn: bool) -> Install {
    let key = |byte: u8| Secret::from([byte; 20]);
    Install {
        owner: Owner::Ike(SaId::new(1)),
        child: ChildId::new(0x1001),
        spi_out: 0x1001,
        keymat_in: key(1),
        keymat_out: key(1),
        encr: Encr::Aes128Gcm16,
        integ: None,
        esn,
        mode: Mode::Tunnel,
        protection: Protection::Whole,
        pad_to: 0,
        ts_local: vec![TsRange::any_v4()],
        ts_remote: vec![TsRange::any_v4()],
        original: None,
        path: Path { local: ([192, 0, 2, 1], 4_500).into(), remote: ([192, 0, 2, 2], 4_500).into(), carrier },
        replaces: None,
        send_now: true,
        replay_window: 1_024,
        soft: SoftBounds::NONE,
        share: Share::Rest,
    }
}

/// Its peer is itself: one key for both directions.
fn tunnel(carrier: Carrier) -> Tunnel {
    let install = install(carrier, true);
    Tunnel::new(&install, 1_500, &mut Zeros).expect("a tunnel").keeping_keys(&install)
}

const PACKET: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

fn seal(tunnel: &mut Tunnel) -> Option<Vec<u8>> {
    let mut slot = vec![0; 200];
    let head = tunnel.outbound.head_len();
    slot[head..head + PACKET.len()].copy_from_slice(&PACKET);
    let len = tunnel.outbound.seal(&mut slot, PACKET.len(), 4).ok()?;
    slot.truncate(len);
    Some(slot)
}

fn number(datagram: &[u8]) -> u64 {
    u64::from(u32::from_be_bytes(datagram[4..8].try_into().expect("four bytes")))
}

/// Another engine of the same kind.
struct Engine {
    tunnel: Tunnel,
}

impl Engine {
    fn new(loan: &Loan) -> Self {
        Self { tunnel: loan.tunnel(Owner::Ike(SaId::new(2)), &mut Zeros).expect("a tunnel") }
    }
}

fn returned(loan: &Loan) -> Returned {
    Returned { sent: loan.sent, seen: loan.seen.clone(), usage: Usage::default() }
}

#[test]
fn no_number_is_sent_twice_and_what_waits_here_still_goes() {
    let mut ours = tunnel(Carrier::RawEsp);
    let mut sent = BTreeSet::new();
    let mut send = |tunnel: &mut Tunnel| seal(tunnel).is_some_and(|d| assert_new(&mut sent, number(&d)));
    assert!(send(&mut ours));
    for round in 0..u64::from(LOANS) {
        let loan = ours.lend(1_400, Ivs::Random).unwrap();
        assert!(ours.is_lent() && ours.lend(1_400, Ivs::Random).is_none(), "it is lent once");
        // Some of what stays here, or all of it.
        let here = if round % 2 == 0 { 3 } else { RESERVE };
        for _ in 0..here {
            assert!(send(&mut ours));
        }
        assert_eq!(send(&mut ours), round % 2 == 0, "the reserve has an end");
        let mut engine = Engine::new(&loan).tunnel;
        for _ in 0..10 {
            assert!(send(&mut engine));
        }
        let back = engine.returned();
        assert_eq!((back.sent, back.usage.sent.packets), (loan.sent + 10, 10));
        assert!(ours.give_back(Some(&back)));
        assert!(send(&mut ours));
        assert_eq!(ours.outbound.sequence(), back.sent + 1);
    }
    assert_eq!(
        ours.is_fit(Ivs::Random),
        Err(Unfit::Keys),
        "so often, and no more: it stays here, and its keys are forgotten"
    );
    assert!(send(&mut ours) && ours.outbound.life() == Life::Fresh, "and goes on");
}

fn assert_new(sent: &mut BTreeSet<u64>, number: u64) -> bool {
    assert!(sent.insert(number), "{number} was sent twice");
    true
}

#[test]
fn each_packet_is_accepted_by_one_engine_and_once() {
    for (carrier, overlap) in [(Carrier::RawEsp, true), (Carrier::NatT, false)] {
        let mut peer = tunnel(carrier);
        let packets: Vec<Vec<u8>> = (0..3_200).map(|_| seal(&mut peer).unwrap()).collect();
        let mut ours = tunnel(carrier);
        let open = |tunnel: &mut Tunnel, index: usize| tunnel.inbound.open(&mut packets[index].clone());
        // 3 and 40 are missing when it is lent.
        for index in (0..50).filter(|index| ![3, 40].contains(index)) {
            open(&mut ours, index).unwrap();
        }
        let loan = ours.lend(1_400, Ivs::Random).unwrap();
        let mut engine = Engine::new(&loan);
        let mut taken = vec![0; packets.len()];
        for index in (0..3_000).chain(30..60) {
            let here = open(&mut ours, index).is_ok();
            let there = open(&mut engine.tunnel, index).is_ok();
            taken[index] += usize::from(here) + usize::from(there);
        }
        let before = |index: usize| usize::from(index < 50 && ![3, 40].contains(&index));
        for (index, times) in taken.iter().enumerate().take(3_000) {
            assert_eq!(times + before(index), 1, "packet {index}, overlap {overlap}");
        }
        assert!(ours.give_back(Some(&engine.tunnel.returned())));
        for index in (0..3_000).rev() {
            assert!(open(&mut ours, index).is_err(), "packet {index} again");
        }
        for index in 3_000..3_200 {
            open(&mut ours, index).unwrap();
        }
        assert_eq!(engine.tunnel.is_fit(Ivs::Random), Err(Unfit::Keys), "what is lent is not lent on");
    }
}

#[test]
fn what_no_engine_has_taken_is_still_taken() {
    let mut peer = tunnel(Carrier::RawEsp);
    let packets: Vec<Vec<u8>> = (0..2_200).map(|_| seal(&mut peer).unwrap()).collect();
    let mut ours = tunnel(Carrier::RawEsp);
    let loan = ours.lend(1_400, Ivs::Random).unwrap();
    assert!(ours.give_back(Some(&returned(&loan))), "it was not used");
    for packet in &packets[..5] {
        ours.inbound.open(&mut packet.clone()).unwrap();
    }
    let loan = ours.lend(1_400, Ivs::Random).unwrap();
    let mut engine = Engine::new(&loan);
    engine.tunnel.inbound.open(&mut packets[2_189].clone()).unwrap();
    assert!(ours.give_back(Some(&engine.tunnel.returned())));
    let again = |tunnel: &mut Tunnel, at: u64| tunnel.inbound.open(&mut packets[at as usize - 1].clone());
    for seq in (2_000..=2_200).filter(|seq| *seq != 2_190) {
        again(&mut ours, seq).unwrap();
    }
    assert_eq!(again(&mut ours, 2_190), Err(Discard::Replay(Replay::Seen { seq: 2_190 })));
}

#[test]
fn an_engine_that_cannot_say_how_far_it_has_come_ends_the_sa() {
    let lies: [fn(&Loan) -> Option<Returned>; 4] = [
        |_| None,
        |loan| Some(Returned { sent: loan.sent - 1, ..returned(loan) }),
        |loan| Some(Returned { sent: loan.last + 1, ..returned(loan) }),
        |loan| Some(Returned { seen: Seen { top: 0, bits: vec![0; 16] }, ..returned(loan) }),
    ];
    for (index, lie) in lies.into_iter().enumerate() {
        let (mut peer, mut ours) = (tunnel(Carrier::RawEsp), tunnel(Carrier::RawEsp));
        let packets: Vec<Vec<u8>> = (0..1_000).map(|_| seal(&mut peer).unwrap()).collect();
        ours.inbound.open(&mut packets[0].clone()).unwrap();
        let loan = ours.lend(1_400, Ivs::Random).unwrap();
        while seal(&mut ours).is_some() {}
        assert!(!ours.give_back(lie(&loan).as_ref()), "lie {index}");
        assert!(seal(&mut ours).is_none(), "lie {index}: nothing is sent");
        let refused = ours.inbound.open(&mut packets[900].clone());
        assert!(refused.is_err(), "lie {index}: nothing is received, {refused:?}");
        assert_eq!(ours.is_fit(Ivs::Random), Err(Unfit::Spent));
    }
}

#[test]
fn numbers_and_nonces_have_bounds() {
    let mut ours = tunnel(Carrier::RawEsp);
    let loan = ours.lend(1_400, Ivs::Random).unwrap();
    assert_eq!(loan.last, PACKETS);
    assert!(u64::from(LOANS) * PACKETS <= 1 << 29, "see the module's text");
    let mut back = returned(&loan);
    back.sent = PACKETS - 2;
    assert!(ours.give_back(Some(&back)));
    assert!(seal(&mut ours).is_some() && seal(&mut ours).is_some());
    assert!(seal(&mut ours).is_none(), "an SA that was lent has an earlier end");
    assert_eq!(ours.is_fit(Ivs::Random), Err(Unfit::Spent));
}

#[test]
fn an_engine_whose_nonces_are_the_numbers_has_an_sa_as_often_and_as_long_as_it_is_busy() {
    let mut ours = tunnel(Carrier::RawEsp);
    let mut sent = BTreeSet::new();
    for _ in 0..3 * LOANS {
        let loan = ours.lend(1_400, Ivs::Numbers).unwrap();
        assert!(loan.last > u64::from(LOANS) * PACKETS, "the SA's own end");
        let mut engine = Engine::new(&loan).tunnel;
        for tunnel in [&mut ours, &mut engine] {
            // The IV follows the header.
            let datagram = seal(tunnel).unwrap();
            let iv = u64::from_be_bytes(datagram[8..16].try_into().unwrap());
            assert!(sent.insert(iv) && iv & 0xffff_ffff == number(&datagram), "{iv}");
        }
        assert!(ours.give_back(Some(&engine.returned())));
    }
    assert_eq!(ours.is_fit(Ivs::Random), Ok(()), "none of these counts");
}

#[test]
fn one_that_pauses_is_not_busy() {
    let mut ours = tunnel(Carrier::RawEsp);
    let at = |millis| Instant::ZERO + core::time::Duration::from_millis(millis);
    assert!(ours.is_busy(at(1), 0));
    ours.pause(at(500));
    assert!(!ours.is_busy(at(499), 0));
    assert!(ours.is_busy(at(500), 0));
}

#[test]
fn what_another_engine_cannot_carry_stays_here() {
    type Change = fn(&mut Install);
    let cases: [(Change, Unfit); 4] = [
        (|i| i.mode = Mode::Transport, Unfit::Mode),
        (|i| i.pad_to = 64, Unfit::Padding),
        (|i| i.share = Share::AsPeer, Unfit::Share),
        (|i| i.ts_remote = vec![TsRange { protocol: 6, ..TsRange::any_v4() }], Unfit::Selectors),
    ];
    for (change, why) in cases {
        let mut order = install(Carrier::RawEsp, true);
        change(&mut order);
        let mut made = Tunnel::new(&order, 1_500, &mut Zeros).unwrap().keeping_keys(&order);
        assert_eq!(made.is_fit(Ivs::Random), Err(why));
        assert!(made.lend(1_400, Ivs::Random).is_none() && !made.is_lent());
    }
    let kept = Tunnel::new(&install(Carrier::RawEsp, true), 1_500, &mut Zeros).unwrap();
    assert_eq!(kept.is_fit(Ivs::Random), Err(Unfit::Keys));
}

#[test]
fn load_is_so_many_packets_within_a_second() {
    let mut ours = tunnel(Carrier::RawEsp);
    let at = |ms| Instant::ZERO + Duration::from_secs(10) + Duration::from_millis(ms);
    assert!(!ours.is_busy(at(0), 10));
    for _ in 0..9 {
        seal(&mut ours).unwrap();
    }
    assert!(!ours.is_busy(at(900), 10));
    seal(&mut ours).unwrap();
    assert!(ours.is_busy(at(1_000), 10));
    for _ in 0..10 {
        seal(&mut ours).unwrap();
    }
    assert!(!ours.is_busy(at(2_100), 10), "they took longer");
}
