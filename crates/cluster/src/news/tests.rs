use super::*;

fn key(connection: &str, data: &[u8], device: u32) -> LeaseKey {
    LeaseKey { connection: connection.into(), identity: (2, data.to_vec()), device }
}

fn lease(connection: &str, data: &[u8]) -> LeaseNews {
    let (v4, v6) = (Some(Ipv4Addr::new(10, 0, 0, 7)), None);
    LeaseNews::Lease(Lease {
        holder: key(connection, data, 3),
        v4,
        v6,
        used: UnixTime(1_700_000_000),
        gateway: "north".into(),
    })
}

fn everything(inbox: &Inbox) -> Vec<Notice> {
    std::iter::from_fn(|| inbox.take()).collect()
}

#[test]
fn what_is_told_is_heard_by_others_alone() {
    let news = [
        lease("", b""),
        lease("staff ü\n*", &[0, 255, 10, 32]),
        LeaseNews::Evict(key("a b", b"x", u32::MAX)),
    ];
    let (north, south) = (Inbox::new("north"), Inbox::new("south"));
    for payload in payloads("north", &news) {
        [&north, &south].into_iter().for_each(|inbox| inbox.put(LEASES, &payload));
    }
    assert_eq!(everything(&south), news.map(Notice::Lease));
    assert_eq!(everything(&north), []);
}

/// Else a gateway that has just written a lease would go back to what another one had written before.
#[test]
fn what_one_does_oneself_outdates_what_was_not_read_yet() {
    let inbox = Inbox::new("south");
    let say = |from: &str, news: &[LeaseNews]| {
        payloads(from, news).iter().for_each(|payload| inbox.put(LEASES, payload));
    };
    let evict = LeaseNews::Evict(key("staff", b"b", 3));
    say("north", &[lease("staff", b"a"), lease("staff", b"b"), evict.clone(), lease("staff", b"c")]);
    say("south", &[lease("staff", b"a"), evict.clone()]);
    say("north", std::slice::from_ref(&evict));
    assert_eq!(everything(&inbox), [lease("staff", b"c"), evict].map(Notice::Lease));
    say("south", &[LeaseNews::ReadAll]);
    assert_eq!(everything(&inbox), [], "nothing could be outdated");
    say("north", &[lease("staff", b"a")]);
    say("south", &[LeaseNews::ReadAll]);
    assert_eq!(everything(&inbox), [Notice::Lease(LeaseNews::ReadAll)]);
    say("north", &[LeaseNews::ReadAll]);
    say("south", &[lease("staff", b"a")]);
    assert_eq!(everything(&inbox), [Notice::Lease(LeaseNews::ReadAll)], "of the others it says nothing");
}

#[test]
fn payloads_fit_and_what_does_not_asks_to_read_all() {
    let many: Vec<LeaseNews> = (0..500_u32).map(|n| lease("staff", &n.to_be_bytes())).collect();
    let all = payloads("north", &many);
    assert!(all.len() > 1 && all.iter().all(|payload| payload.len() <= PAYLOAD_MOST));
    let inbox = Inbox::new("south");
    all.iter().for_each(|payload| inbox.put(LEASES, payload));
    assert_eq!(everything(&inbox).len(), many.len());
    let large = [lease("staff", b"x"), lease("staff", &[7; 4_000])];
    payloads("north", &large).iter().for_each(|payload| inbox.put(LEASES, payload));
    assert_eq!(everything(&inbox), [Notice::Lease(LeaseNews::ReadAll)]);
}

#[test]
fn hostile_payloads_ask_to_read_all() {
    let inbox = Inbox::new("south");
    let hostile = [
        "",
        "\n",
        "north",
        "north\n",
        "north\n+",
        "north\n- zz 2 _ 0",
        "north\n- _ 256 _ 0",
        "north\n- _ 2 _ -1",
        "north\n+ _ 2 _ 0 10.0.0.1 _",
        "north\n+ _ 2 _ 0 10.0.0.256 _ 1",
        "north\n+ _ 2 _ 0 ::1 _ 1",
        "north\n- ff 2 _ 0",
        "north\n- _ 2 _ 0\n",
        "north\n- _ 2 _ 0 0",
        "north\n- _ 2 _ 4294967296",
        "\u{0}\n\u{fffd}",
        "north\n- _ 2 abc 0",
    ];
    for payload in hostile {
        inbox.put(LEASES, payload);
        assert_eq!(everything(&inbox), [Notice::Lease(LeaseNews::ReadAll)], "{payload:?}");
    }
}

#[test]
fn the_letter_box_is_bound() {
    let inbox = Inbox::new("south");
    let one = payloads("north", &[lease("staff", b"x")]).remove(0);
    for _ in 0..WAITING_MOST + 10 {
        inbox.put(LEASES, &one);
        inbox.put(DENIALS, "north");
        inbox.put("dormouse_orders_south", "north");
    }
    let got = everything(&inbox);
    assert_eq!(got[..3], [Notice::Orders, Notice::Denials, Notice::Lease(LeaseNews::ReadAll)]);
    assert_eq!(got.len(), 3 + 9, "those after the overflow");
}
