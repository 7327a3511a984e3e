use super::*;
use std::time::Duration;

fn bound(ip: &str) -> Udp {
    Udp::bind(SocketAddr::new(ip.parse().unwrap(), 0), Carrier::NatT).unwrap()
}

fn path(local: &str, to: &Udp, ip: &str) -> Path {
    let remote = SocketAddr::new(ip.parse().unwrap(), to.local_addr().port());
    Path { local: SocketAddr::new(local.parse().unwrap(), 0), remote, carrier: Carrier::NatT }
}

/// Receives until `bytes` have arrived; each datagram with its path and ECN bits.
fn receive(socket: &Udp, bytes: usize) -> Vec<(Vec<u8>, Path, u8)> {
    let mut got = vec![];
    let mut buf = vec![0; 65_536];
    for _ in 0..500 {
        let mut meta = [RecvMeta::default()];
        match socket.recv(&mut [IoSliceMut::new(&mut buf)], &mut meta) {
            Ok(_) => {
                let ecn = meta[0].ecn.map_or(0, |e| e as u8);
                let datagrams = buf[..meta[0].len].chunks(meta[0].stride);
                got.extend(datagrams.map(|d| (d.to_vec(), socket.path_of(&meta[0]), ecn)));
                if got.iter().map(|(d, ..)| d.len()).sum::<usize>() >= bytes {
                    break;
                }
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    got
}

fn train(count: usize, size: usize, last: usize) -> Vec<u8> {
    (0..count * size + last).map(|i| (i * 5 % 251) as u8).collect()
}

#[test]
fn a_train_arrives_datagram_by_datagram_with_its_mark_and_addresses() {
    for (any, own, from) in [("0.0.0.0", "127.0.0.2", "127.0.0.3"), ("::", "::1", "::1")] {
        let (mut a, b) = (bound(any), bound(any));
        let data = train(20, 1_400, 300);
        assert!(matches!(a.send(&path(from, &b, own), 2, &data, Some(1_400)), Sent::All));
        let got = receive(&b, data.len());
        assert_eq!(
            got.iter().map(|(d, ..)| d.len()).collect::<Vec<_>>(),
            [vec![1_400; 20], vec![300]].concat()
        );
        assert_eq!(got.iter().flat_map(|(d, ..)| d.clone()).collect::<Vec<_>>(), data);
        for (_, path, ecn) in &got {
            assert_eq!(path.local.ip(), own.parse::<IpAddr>().unwrap(), "where it was sent to");
            assert_eq!(path.remote, SocketAddr::new(from.parse().unwrap(), a.local_addr().port()));
            assert_eq!(*ecn, 2);
        }
    }
}

#[test]
fn what_segmentation_offload_refuses_is_sent_all_the_same() {
    let (mut a, b) = (bound("127.0.0.1"), bound("127.0.0.1"));
    // More segments than any kernel takes at once.
    let data = train(300, 10, 4);
    assert!(matches!(a.send(&path("127.0.0.1", &b, "127.0.0.1"), 1, &data, Some(10)), Sent::All));
    assert!(!a.gso, "given up");
    let got = receive(&b, data.len());
    assert_eq!(got.len(), 301);
    assert_eq!(got.iter().flat_map(|(d, ..)| d.clone()).collect::<Vec<_>>(), data);
    assert!(got.iter().all(|(.., ecn)| *ecn == 1), "marks are not given up with it");
    assert!(matches!(a.send(&path("127.0.0.1", &b, "127.0.0.1"), 0, &data[..30], Some(10)), Sent::All));
    assert_eq!(receive(&b, 30).len(), 3);
}

#[test]
fn errors_are_reported_with_their_destination_and_do_not_stop_the_socket() {
    let (mut a, b) = (bound("127.0.0.1"), bound("127.0.0.1"));
    let closed = bound("127.0.0.1");
    let nowhere = path("127.0.0.1", &closed, "127.0.0.1");
    drop(closed);
    assert!(matches!(a.send(&nowhere, 0, b"anyone?", None), Sent::All));
    assert!(matches!(a.send(&path("127.0.0.1", &b, "127.0.0.1"), 0, b"hello", None), Sent::All));
    assert_eq!(receive(&b, 5)[0].0, b"hello");
    let error = a.next_error().unwrap().unwrap();
    assert_eq!(error, PathError { destination: nowhere.remote, kind: PathErrorKind::Unreachable });
    assert_eq!(a.next_error().unwrap(), None);
}

#[test]
fn datagrams_are_received_one_by_one_without_a_tun() {
    let (mut a, b) = (bound("0.0.0.0"), bound("0.0.0.0"));
    let (mut buffer, mut datagrams) = (vec![0; 65_536], Vec::new());
    b.receive(&mut buffer, &mut datagrams).unwrap();
    assert!(datagrams.is_empty());
    assert!(matches!(
        a.send(&path("127.0.0.3", &b, "127.0.0.2"), 0, &train(2, 900, 7), Some(900)),
        Sent::All
    ));
    let mut got = Vec::new();
    for _ in 0..500 {
        b.receive(&mut buffer, &mut datagrams).unwrap();
        got.extend(datagrams.drain(..).map(|(path, at)| (path.local.ip(), path.remote.ip(), at.len())));
        if got.len() == 3 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let ends: (IpAddr, IpAddr) = ("127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap());
    assert_eq!(got, [900, 900, 7].map(|len| (ends.0, ends.1, len)));
}

#[test]
fn a_peer_has_a_socket_of_its_own_beside_one_that_shares_its_port() {
    for any in ["127.0.0.1", "0.0.0.0", "::"] {
        let ip = if any == "::" { "::1" } else { "127.0.0.1" };
        let at = SocketAddr::new(any.parse().unwrap(), 0);
        let (ordinary, _messages) = Udp::bind_apart(at, Carrier::NatT).unwrap();
        let (mut peer, mut stranger) = (bound(any), bound(any));
        let from = |udp: &Udp| SocketAddr::new(ip.parse().unwrap(), udp.local_addr().port());
        let to = path(ip, &ordinary, ip);
        let say = |udp: &mut Udp, what: &[u8]| assert!(matches!(udp.send(&to, 0, what, None), Sent::All));
        say(&mut peer, b"before");
        let path = Path { local: from(&ordinary), remote: from(&peer), carrier: Carrier::NatT };
        let own = Udp::of_peer(&path).unwrap();
        say(&mut peer, b"beside");
        say(&mut stranger, b"anybody");
        let got = |udp: &Udp, bytes| {
            let got = receive(udp, bytes);
            let all = got.into_iter().map(|(d, path, _)| (String::from_utf8(d).unwrap(), path.remote));
            all.collect::<Vec<_>>()
        };
        assert_eq!(got(&own, 6), [("beside".into(), from(&peer))], "{any}");
        assert_eq!(got(&ordinary, 13), [("before".into(), from(&peer)), ("anybody".into(), from(&stranger))]);
        say(&mut peer, b"late");
        // It is there before the socket is left.
        std::thread::sleep(Duration::from_millis(20));
        own.leave_peer().unwrap();
        say(&mut peer, b"again");
        assert_eq!(got(&ordinary, 5), [("again".into(), from(&peer))], "{any}");
        assert_eq!(got(&own, 4), [("late".into(), from(&peer))], "{any}: nothing is lost");
    }
}

#[test]
fn who_does_not_share_its_port_keeps_it() {
    let alone = bound("127.0.0.1");
    let path = path("127.0.0.1", &bound("127.0.0.1"), "127.0.0.1");
    let path = Path { local: alone.local_addr(), ..path };
    assert_eq!(Udp::of_peer(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

/// What the error queue says of the interface's MTU, once each.
fn link_mtus(socket: &Udp) -> Vec<u32> {
    let mut all: Vec<u32> = std::iter::from_fn(|| socket.next_error().unwrap())
        .map(|error| match error.kind {
            PathErrorKind::LinkMtu(mtu) => mtu,
            other => panic!("{other:?}"),
        })
        .collect();
    all.dedup();
    all
}

#[test]
fn only_what_may_be_fragmented_is_sent_where_the_mtu_is_too_small_for_it() {
    use std::process::Command;
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: a small MTU needs root, and a network namespace");
        return;
    }
    // On a thread in a network namespace of its own.
    std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let status = Command::new("ip").args(["link", "set", "lo", "up", "mtu", "1280"]).status().unwrap();
        assert!(status.success());
        for (any, ip) in [("0.0.0.0", "127.0.0.1"), ("::", "::1")] {
            let (mut a, b) = (bound(any), bound(any));
            let to = path(ip, &b, ip);
            let data = train(1, 3_000, 0);
            for _ in 0..2 {
                assert!(matches!(a.send(&to, 0, &data, None), Sent::TooBig), "ESP is never fragmented");
                assert_eq!(link_mtus(&a), [1_280], "over {ip}");
                let sent = a.send_fragmentable(&to, &data, None);
                assert!(matches!(sent, Sent::All), "over {ip}: {sent:?}");
                let got = receive(&b, data.len());
                assert_eq!(got.iter().map(|(d, ..)| d).collect::<Vec<_>>(), [&data], "over {ip}");
            }
            let several = train(3, 1_900, 200);
            assert!(matches!(a.send(&to, 0, &several, Some(1_900)), Sent::TooBig));
            assert_eq!(link_mtus(&a), [1_280], "over {ip}");
            assert!(matches!(a.send_fragmentable(&to, &several, Some(1_900)), Sent::All));
            let got = receive(&b, several.len());
            assert_eq!(got.iter().map(|(d, ..)| d.len()).collect::<Vec<_>>(), [1_900, 1_900, 1_900, 200]);
            assert!(a.gso, "segmentation offload stays on for ESP");
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_port_in_use_is_named() {
    let a = bound("127.0.0.1");
    let error = Udp::bind(a.local_addr(), Carrier::NatT).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let (place, us) = (a.local_addr().to_string(), format!("(process {})", std::process::id()));
    assert!(error.to_string().contains(&place) && error.to_string().contains(&us), "{error}");
}
