//! Which SA a packet belongs to, in both directions.

use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::common::{SUITES, ipv4, params, seal};
use dormouse_crypto::Encr;
use dormouse_esp::{
    Discard, IPV4_IN_IP, Inbound, InstallError, Outbound, Overhead, Sad, Selectors, State, Tunnel,
};
use dormouse_keying::{ChildId, Install, Marks, Mode, Owner, Protection, SaId, Share, SoftBounds, Weak};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::ike::TsRange;
use dormouse_wire::ip::{Flow, flow};

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

fn range(a: &str, b: &str) -> TsRange {
    TsRange::addresses(ip(a), ip(b))
}

fn name(n: u32) -> ChildId {
    ChildId::new(0x100 + n)
}

fn owner(n: u64) -> Owner {
    Owner::Ike(SaId::new(n))
}

fn tunnel(n: u32, remote: TsRange) -> Tunnel {
    let mut p = params(SUITES[0].0, None);
    p.spi = name(n).spi();
    let path = Path {
        local: "192.0.2.1:4500".parse().unwrap(),
        remote: "192.0.2.2:4500".parse().unwrap(),
        carrier: Carrier::NatT,
    };
    let halves = (Inbound::new(&p).unwrap(), Outbound::new(&p, &mut Seeded::new(n.into())).unwrap());
    let selectors = Selectors::new(vec![range("10.0.0.0", "10.0.0.255")], vec![remote]);
    let overhead = Overhead::new(Encr::Aes128Gcm16, None, Mode::Tunnel, &path);
    Tunnel::of_halves(owner(1), halves, selectors, overhead, path, 1_500)
}

fn to(dst: &str) -> Flow {
    Flow { src: ip("10.0.0.1"), dst: ip(dst), protocol: 17, src_port: Some(1), dst_port: Some(2) }
}

#[test]
fn the_narrowest_policy_wins_and_the_cache_forgets() {
    let mut sad = Sad::new();
    for (id, remote) in [
        (1, range("0.0.0.0", "255.255.255.255")),
        (2, range("10.9.0.0", "10.9.255.255")),
        (3, range("10.9.0.7", "10.9.0.7")),
    ] {
        sad.insert(tunnel(id, remote)).unwrap();
        assert!(sad.activate(name(id)));
    }
    for _ in 0..2 {
        assert_eq!(sad.route(&to("8.8.8.8")), Some(name(1)));
        assert_eq!(sad.route(&to("10.9.3.3")), Some(name(2)));
        assert_eq!(sad.route(&to("10.9.0.7")), Some(name(3)));
        assert_eq!(sad.route(&to("2001:db8::1")), None);
    }
    sad.remove(name(3)).unwrap();
    assert_eq!(sad.route(&to("10.9.0.7")), Some(name(2)));
    sad.remove(name(2)).unwrap();
    assert_eq!(sad.route(&to("10.9.0.7")), Some(name(1)));
    let outside = Flow { src: ip("10.1.0.1"), ..to("8.8.8.8") };
    assert_eq!(sad.route(&outside), None, "our side is checked too");
}

/// Another engine takes what routes lead to: whose addresses lie within a tunnel's is asked by address alone.
#[test]
fn a_tunnel_meets_those_of_other_owners_that_send_to_its_addresses() {
    let of = |n: u32, owned: u64, remote: TsRange| {
        let mut tunnel = tunnel(n, remote);
        tunnel.owner = owner(owned);
        tunnel
    };
    let backwards = TsRange { start: ip("10.9.0.7"), end: ip("10.9.0.1"), ..range("10.9.0.1", "10.9.0.7") };
    let mixed = TsRange { start: ip("2001:db8::1"), ..range("0.0.0.0", "255.255.255.255") };
    for (one, other, meets) in [
        (range("10.9.0.7", "10.9.0.7"), range("10.9.0.8", "10.9.0.8"), false),
        (range("10.9.0.7", "10.9.0.7"), range("10.9.0.7", "10.9.0.7"), true),
        (range("10.9.0.7", "10.9.0.7"), range("10.9.0.0", "10.9.0.7"), true),
        (range("10.9.0.0", "10.9.0.255"), range("10.9.0.255", "10.9.1.3"), true),
        (range("10.9.0.0", "10.9.0.255"), range("10.9.1.0", "10.9.1.255"), false),
        (range("0.0.0.0", "255.255.255.255"), range("::", "ffff::"), false),
        (range("0.0.0.0", "255.255.255.255"), range("::7", "::7"), false),
        (range("10.0.0.0", "10.255.255.255"), backwards, false),
        (mixed, range("10.9.0.7", "10.9.0.7"), false),
    ] {
        let mut sad = Sad::new();
        sad.insert(of(1, 1, one)).unwrap();
        sad.insert(of(2, 1, one)).unwrap();
        sad.insert(of(3, 2, other)).unwrap();
        for n in [1, 2] {
            assert!(sad.activate(name(n)));
            assert!(
                !sad.meets_another(name(n)),
                "its own, and one that does not send yet: {one:?}, {other:?}"
            );
        }
        let before = sad.begun();
        assert!(sad.activate(name(3)));
        assert_ne!(sad.begun(), before, "the answer may be another one now");
        for n in [1, 3] {
            assert_eq!(sad.meets_another(name(n)), meets, "{n}: {one:?}, {other:?}");
        }
        sad.remove(name(3)).unwrap();
        assert!(!sad.meets_another(name(1)) && !sad.meets_another(name(3)));
    }
}

#[test]
fn a_replacement_takes_over_when_it_is_activated() {
    for remote in [range("10.9.0.0", "10.9.255.255"), range("10.9.0.7", "10.9.0.7")] {
        let mut sad = Sad::new();
        sad.insert(tunnel(1, remote)).unwrap();
        sad.activate(name(1));
        sad.insert(tunnel(2, remote)).unwrap();
        assert_eq!(sad.route(&to("10.9.0.7")), Some(name(1)), "installed for receiving only");
        sad.activate(name(2));
        assert_eq!(sad.route(&to("10.9.0.7")), Some(name(2)));
        sad.remove(name(1));
        assert_eq!(sad.route(&to("10.9.0.7")), Some(name(2)));
    }
}

#[test]
fn a_deleted_tunnel_drains_where_another_has_its_traffic_and_ends_at_once_elsewhere() {
    let mut sad = Sad::new();
    let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
    for (n, dst) in [(1, "10.9.0.7"), (2, "10.9.0.7"), (3, "10.9.0.8")] {
        let mut tunnel = tunnel(n, range(dst, dst));
        tunnel.owner = owner(n.into());
        sad.insert(tunnel).unwrap();
        sad.activate(name(n));
    }
    sad.retire(at(0), name(3), |_| true);
    assert!(sad.get(name(3)).is_none(), "no other tunnel has its selectors");
    sad.retire(at(0), name(1), |heir| heir == owner(2));
    let draining = sad.get(name(1)).unwrap();
    assert_eq!((draining.owner, draining.state()), (owner(2), State::Draining { until: at(5) }));
    assert_eq!((sad.of(owner(1)).len(), sad.of(owner(2))), (0, &[name(2)][..]));
    assert!(!sad.activate(name(1)));
    let late = &mut sealed(1);
    assert_eq!(sad.open(late).unwrap().id, name(1), "it still receives");
    assert_eq!(sad.poll_timeout().map(|d| d.at), Some(at(5)));
    sad.handle_timeout(at(4));
    assert_eq!(sad.spis().in_use(), 2);
    sad.handle_timeout(at(5));
    assert_eq!((sad.spis().in_use(), sad.poll_timeout()), (1, None));
    let mut next = tunnel(4, range("10.9.0.7", "10.9.0.7"));
    next.owner = owner(4);
    sad.insert(next).unwrap();
    sad.activate(name(4));
    sad.retire(at(6), name(2), |_| true);
    sad.end_draining_of(owner(4));
    assert_eq!(
        sad.iter_mut().map(|tunnel| tunnel.id()).collect::<Vec<_>>(),
        [name(4)],
        "its new owner is gone"
    );
}

#[test]
fn an_spi_in_use_is_refused_and_nothing_is_evicted() {
    let mut sad = Sad::new();
    sad.insert(tunnel(1, range("10.9.0.7", "10.9.0.7"))).unwrap();
    sad.activate(name(1));
    let again = sad.insert(tunnel(1, range("10.9.0.8", "10.9.0.8")));
    assert_eq!(again.unwrap_err(), InstallError::SpiInUse(name(1)));
    assert_eq!((sad.route(&to("10.9.0.7")), sad.route(&to("10.9.0.8"))), (Some(name(1)), None));
}

fn sealed(n: u32) -> Vec<u8> {
    let mut p = params(SUITES[0].0, None);
    p.spi = name(n).spi();
    let mut packet = ipv4(60);
    packet[12..16].copy_from_slice(&[10, 9, 0, 7]);
    packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
    seal(&mut Outbound::new(&p, &mut Seeded::new(0)).unwrap(), &packet, IPV4_IN_IP)
}

#[test]
fn ports_protocols_and_opaque() {
    let https =
        TsRange { protocol: 6, start_port: 443, end_port: 443, start: ip("10.9.0.0"), end: ip("10.9.0.255") };
    let any = vec![range("0.0.0.0", "255.255.255.255")];
    let only = Selectors::new(any.clone(), vec![https]);
    let f = |protocol, dst_port| Flow { protocol, dst_port, ..to("10.9.0.5") };
    assert!(only.match_outbound(&f(6, Some(443))));
    assert!(!only.match_outbound(&f(6, Some(80))));
    assert!(!only.match_outbound(&f(17, Some(443))));
    assert!(!only.match_outbound(&f(6, None)), "a later fragment has no port to match");
    let opaque = TsRange { start_port: u16::MAX, end_port: 0, ..https };
    let opaque = Selectors::new(any, vec![opaque]);
    assert!(opaque.match_outbound(&f(6, None)));
    assert!(!opaque.match_outbound(&f(6, Some(443))));
    assert!(only.match_inbound(&f(6, Some(443)).reversed()));
    assert!(!only.match_inbound(&f(6, Some(443))));
}

#[test]
fn what_comes_out_of_a_tunnel_must_belong_in_it() {
    // Packets of 10.0.0.1 -> 10.0.0.2; the receiver's side is 10.0.0.0/24.
    let mut sad = Sad::new();
    sad.insert(tunnel(1, range("10.0.0.1", "10.0.0.1"))).unwrap();
    sad.insert(tunnel(2, range("10.0.0.99", "10.0.0.99"))).unwrap();
    let sender = |id: u32| {
        let mut p = params(SUITES[0].0, None);
        p.spi = 0x100 + id;
        let mut out = Outbound::new(&p, &mut Seeded::new(0)).unwrap();
        seal(&mut out, &ipv4(60), IPV4_IN_IP)
    };
    let mut packet = sender(1);
    let accepted = sad.open(&mut packet).unwrap();
    assert_eq!(accepted.id, name(1));
    assert_eq!(flow(&packet[accepted.opened.inner]).unwrap().dst_port, Some(2_000));
    assert_eq!(sad.open(&mut sender(2)), Err(Discard::Selectors));
    assert_eq!(sad.open(&mut sender(3)), Err(Discard::UnknownSpi { spi: 0x103 }));
    assert!(matches!(sad.open(&mut [1, 2, 3]), Err(Discard::Length { .. })));
}

#[test]
fn the_end_of_every_draining_tunnel_is_a_timer() {
    let mut sad = Sad::new();
    let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
    for n in 1..=3 {
        let mut tunnel = tunnel(n, range("10.9.0.7", "10.9.0.7"));
        tunnel.owner = owner(n.into());
        sad.insert(tunnel).unwrap();
        sad.activate(name(n));
    }
    sad.retire(at(0), name(1), |_| true);
    sad.retire(at(1), name(2), |_| true);
    assert_eq!(sad.timers().map(|timer| timer.at).collect::<Vec<_>>(), [at(5), at(6)]);
    assert_eq!(sad.poll_timeout(), sad.timers().next());
}

/// A packet to 10.9.0.7 with this mark.
fn marked(mark: u8) -> Vec<u8> {
    let mut packet = ipv4(100);
    packet[1] = mark << 2;
    packet
}

#[test]
fn tunnels_with_the_same_selectors_share_the_traffic_by_policy() {
    let every = Share::Every(NonZeroU32::new(3).unwrap());
    let marks = Share::Marked(Marks::new(&[46]).unwrap());
    for remote in [range("10.9.0.0", "10.9.255.255"), range("10.9.0.7", "10.9.0.7")] {
        let mut sad = Sad::new();
        // Of another owner with the same selectors, and of the same with others: they are no part of it.
        let mut others = tunnel(5, remote).sharing(Share::Every(NonZeroU32::MIN));
        others.owner = owner(2);
        sad.insert(others).unwrap();
        sad.activate(name(5));
        sad.insert(tunnel(4, range("10.8.0.0", "10.8.0.255")).sharing(every)).unwrap();
        sad.activate(name(4));
        for (n, share) in [(1, every), (2, Share::Rest), (3, marks)] {
            sad.insert(tunnel(n, remote).sharing(share)).unwrap();
            sad.activate(name(n));
        }
        let routed = sad.route(&to("10.9.0.7")).unwrap();
        let sent = |sad: &mut Sad, mark, packets| sad.among(routed, &marked(mark), packets).unwrap();
        let took: Vec<_> = (0..6).map(|_| sent(&mut sad, 0, 1)).collect();
        assert_eq!(took, [2, 2, 1, 2, 2, 1].map(name));
        // What a mark decides counts for no turn; 30 packets in one piece count for 30 turns.
        assert!((0..9).all(|_| sent(&mut sad, 46, 1) == name(3)));
        assert_eq!([30, 30, 30, 30].map(|n| sent(&mut sad, 0, n)), [1, 2, 2, 1].map(name));

        // One on standby takes nothing.
        sad.insert(tunnel(6, remote)).unwrap();
        assert_eq!([0, 0].map(|mark| sent(&mut sad, mark, 1)), [name(2); 2]);
        sad.activate(name(6));
        sad.remove(name(2));
        assert_eq!([0, 46].map(|mark| sad.among(name(6), &marked(mark), 1)), [6, 3].map(|n| Some(name(n))));
        // Without one for its mark, or for the rest, a packet goes by those that are there.
        sad.remove(name(3));
        assert_eq!(sad.among(name(6), &marked(46), 1), Some(name(6)));
        sad.remove(name(6));
        sad.remove(name(5));
        let last = sad.route(&to("10.9.0.7")).unwrap();
        assert!((0..4).all(|_| sad.among(last, &marked(46), 1) == Some(name(1))), "never dropped");
    }
}

#[test]
fn each_of_several_has_its_own_share() {
    let remote = range("10.9.0.7", "10.9.0.7");
    let mut sad = Sad::new();
    for (n, of) in [(1, 2), (2, 4)] {
        sad.insert(tunnel(n, remote).sharing(Share::Every(NonZeroU32::new(of).unwrap()))).unwrap();
        sad.activate(name(n));
    }
    sad.insert(tunnel(3, remote)).unwrap();
    sad.activate(name(3));
    let mut took = [0_u32; 4];
    for _ in 0..4_000 {
        took[sad.among(name(3), &marked(0), 1).unwrap().spi() as usize - 0x100] += 1;
    }
    assert!(took[1] == 2_000 && took[2].abs_diff(1_000) <= 1 && took[2] + took[3] == 2_000, "{took:?}");
}

#[test]
fn what_shares_traffic_fits_the_narrowest() {
    let remote = range("10.9.0.0", "10.9.255.255");
    let now = Instant::ZERO;
    let mut sad = Sad::new();
    let mut low = tunnel(1, remote).sharing(Share::Every(NonZeroU32::MIN));
    low.pmtu.lower(now, 1_300);
    sad.insert(low).unwrap();
    sad.insert(tunnel(2, remote)).unwrap();
    let [low, high] = [1, 2].map(|n| sad.get(name(n)).unwrap().inner_mtu(now));
    assert!(low < high);
    assert_eq!(sad.narrowest(now, name(2), high), high, "the other does not send");
    sad.activate(name(1));
    sad.activate(name(2));
    assert_eq!(
        [(1, low), (2, high), (3, high)].map(|(n, own)| sad.narrowest(now, name(n), own)),
        [low, low, high]
    );
}

/// The order of a tunnel in place of another, with the same selectors.
fn heir(n: u32, remote: TsRange, replaces: ChildId, share: Share) -> Install {
    Install { replaces: Some(replaces), ..order(n, remote, SUITES[0].0, share) }
}

/// The order of a tunnel with this cipher.
fn order(n: u32, remote: TsRange, encr: Encr, share: Share) -> Install {
    let like = tunnel(n, remote);
    Install {
        owner: like.owner,
        child: name(n),
        spi_out: name(n).spi(),
        keymat_in: params(encr, None).keymat,
        keymat_out: params(encr, None).keymat,
        encr,
        integ: None,
        esn: false,
        mode: Mode::Tunnel,
        protection: Protection::Whole,
        pad_to: 0,
        ts_local: like.selectors.local().to_vec(),
        ts_remote: vec![remote],
        original: None,
        path: like.path,
        replaces: None,
        send_now: true,
        replay_window: 1_024,
        soft: SoftBounds::NONE,
        share,
    }
}

#[test]
fn all_packets_go_by_one_while_the_signal_is_weak() {
    let weak = Share::Signal(Weak { below: -75, until: -69 });
    let remote = range("10.9.0.7", "10.9.0.7");
    let mut sad = Sad::new();
    sad.insert(tunnel(1, remote)).unwrap();
    assert!(!sad.chooses_by_signal());
    sad.insert(tunnel(2, remote).sharing(weak)).unwrap();
    sad.insert(tunnel(3, remote).sharing(Share::Marked(Marks::new(&[46]).unwrap()))).unwrap();
    sad.insert(tunnel(4, remote).sharing(Share::Every(NonZeroU32::MIN))).unwrap();
    (1..=3).for_each(|n| assert!(sad.activate(name(n))));
    assert!(sad.chooses_by_signal());
    let by = |sad: &mut Sad, mark| sad.among(name(1), &marked(mark), 1).unwrap();
    for (dbm, its) in
        [(None, 1), (Some(-60), 1), (Some(-76), 2), (Some(-70), 2), (Some(-69), 1), (Some(-90), 2)]
    {
        sad.set_signal(dbm);
        assert_eq!((sad.signal(), by(&mut sad, 0)), (dbm, name(its)), "{dbm:?}");
        assert_eq!(sad.takes_all(name(2)), Some(its == 2));
        assert_eq!(by(&mut sad, 46), name(3), "a mark says more");
    }
    assert_eq!(sad.takes_all(name(1)), None);
    // It comes before turns.
    sad.activate(name(4));
    assert_eq!(by(&mut sad, 0), name(2));
    // New ones know the signal; the heir of one for which it was weak, that it was.
    sad.set_signal(Some(-70));
    sad.remove(name(4));
    sad.install(&heir(5, remote, name(2), weak), 1_500, &mut Seeded::new(5)).unwrap();
    assert_eq!(by(&mut sad, 0), name(5));
    sad.remove(name(2));
    sad.remove(name(5));
    assert!(!sad.chooses_by_signal());
    sad.insert(tunnel(6, remote).sharing(weak)).unwrap();
    sad.activate(name(6));
    assert_eq!(by(&mut sad, 0), name(1), "between the bounds, and never weak before");
}

#[test]
fn all_packets_go_by_the_one_by_which_the_last_one_came() {
    let remote = range("10.9.0.7", "10.9.0.7");
    let mut sad = Sad::new();
    sad.insert(tunnel(1, remote)).unwrap();
    sad.insert(tunnel(2, remote).sharing(Share::AsPeer)).unwrap();
    assert!(sad.activate(name(1)) && sad.activate(name(2)));
    let mut peer = [1, 2].map(|n| {
        let mut p = params(SUITES[0].0, None);
        p.spi = name(n).spi();
        Outbound::new(&p, &mut Seeded::new(n.into())).unwrap()
    });
    let mut packet = ipv4(60);
    packet[12..16].copy_from_slice(&[10, 9, 0, 7]);
    let mut comes = |n: usize| seal(&mut peer[n - 1], &packet, IPV4_IN_IP);
    let by = |sad: &mut Sad| sad.among(name(1), &marked(0), 1).unwrap();
    assert_eq!(by(&mut sad), name(1), "nothing has come");
    let again = comes(2);
    for (n, mut datagram) in [(1, comes(1)), (2, again.clone()), (2, comes(2)), (1, comes(1))] {
        sad.open(&mut datagram).unwrap();
        assert_eq!((by(&mut sad), sad.takes_all(name(2))), (name(n as u32), Some(n == 2)));
    }
    // What is repeated or forged says nothing.
    assert!(sad.open(&mut again.clone()).is_err());
    let mut forged = comes(2);
    *forged.last_mut().unwrap() ^= 1;
    assert!(sad.open(&mut forged).is_err());
    assert_eq!(by(&mut sad), name(1));
}

#[test]
fn nothing_goes_in_clear_but_what_was_chosen_for_it() {
    for remote in [range("10.9.0.0", "10.9.255.255"), range("10.9.0.7", "10.9.0.7")] {
        let mut sad = Sad::new();
        let share = Share::Marked(Marks::new(&[46]).unwrap());
        let add = |sad: &mut Sad, order: Install| sad.install(&order, 1_500, &mut Seeded::new(1)).unwrap();
        add(&mut sad, order(1, remote, Encr::Aes128Gmac, share));
        assert!(sad.get(name(1)).unwrap().is_readable());
        let by = |sad: &mut Sad, mark| {
            let routed = sad.route(&to("10.9.0.7")).unwrap();
            sad.among(routed, &marked(mark), 1)
        };
        assert_eq!([0, 46].map(|mark| by(&mut sad, mark)), [None, Some(name(1))], "alone");
        add(&mut sad, order(2, remote, Encr::Aes128Gcm16, Share::Rest));
        // Whichever came last, which is the one that the route leads to.
        add(&mut sad, Install { replaces: Some(name(1)), ..order(3, remote, Encr::Aes128Gmac, share) });
        assert_eq!([0, 46].map(|mark| by(&mut sad, mark)), [Some(name(2)), Some(name(3))]);
        // Without one for the rest, by another that encrypts.
        add(&mut sad, order(4, remote, Encr::Aes128Gcm16, Share::Every(NonZeroU32::new(9).unwrap())));
        sad.remove(name(2));
        assert_eq!([0, 46].map(|mark| by(&mut sad, mark)), [Some(name(4)), Some(name(3))]);
        sad.remove(name(4));
        assert_eq!([0, 46].map(|mark| by(&mut sad, mark)), [None, Some(name(3))], "never by fall-back");
    }
}
