use super::*;
use dormouse_sansio::{Entropy as _, Seeded};

const OFFICE: [&str; 1] = ["10.0.0.0/24"];

fn nets(prefixes: &[&str]) -> Vec<IpNet> {
    prefixes.iter().map(|p| p.parse().expect("a prefix")).collect()
}

/// One connection's tenants in a pool.
struct Fixture {
    pool: Pool,
    connection: &'static str,
    from: Vec<IpNet>,
    several: bool,
}

impl Fixture {
    fn new(prefixes: &[&str]) -> Self {
        Self { pool: Pool::new(nets(prefixes)), connection: "office", from: nets(prefixes), several: false }
    }

    fn ask(&mut self, who: &str, request: &LeaseRequest) -> Addresses {
        let identity: Identity = who.parse().expect("an identity");
        let Self { connection, from, several, .. } = &*self;
        let tenant = Tenant { connection, identity: &identity, from: &from.clone(), several: *several };
        self.pool.acquire(&tenant, request)
    }

    fn acquire(&mut self, who: &str) -> Addresses {
        self.ask(who, &both(&[]))
    }
}

fn both(wanted: &[IpAddr]) -> LeaseRequest {
    LeaseRequest { v4: true, v6: true, wanted: wanted.to_vec(), ..LeaseRequest::default() }
}

fn v4(a: Addresses) -> Ipv4Addr {
    a.v4.expect("an IPv4 address")
}

fn holder(connection: &str, who: &str, device: u32) -> Lessee {
    let identity: Identity = who.parse().expect("an identity");
    Lessee::new(connection.into(), identity.to_ike(), device).expect("an identity")
}

#[test]
fn an_identity_keeps_its_addresses_and_shares_them_with_no_other() {
    let mut f = Fixture::new(&["10.0.0.0/24", "fd00::/64"]);
    let (a, b) = (f.acquire("a"), f.acquire("b"));
    assert_eq!(a.v4, Some([10, 0, 0, 2].into()));
    assert_ne!(a, b);
    f.pool.release(a);
    let _ = f.acquire("c");
    assert_eq!(f.acquire("a"), a);
}

#[test]
fn a_wanted_address_is_given_only_if_it_is_free_and_ours() {
    let mut f = Fixture::new(&OFFICE);
    let want = |last| both(&[IpAddr::from([10, 0, 0, last])]);
    assert_eq!(f.ask("a", &want(77)).v4, Some([10, 0, 0, 77].into()));
    assert_ne!(f.ask("b", &want(77)).v4, Some([10, 0, 0, 77].into()));
    assert_ne!(f.ask("c", &want(255)).v4, Some([10, 0, 0, 255].into()));
    assert_eq!(v4(f.ask("d", &both(&[IpAddr::from([8, 8, 8, 8])]))).octets()[0], 10);
}

#[test]
fn a_full_pool_takes_the_longest_unused_lease_but_never_one_in_use() {
    let mut p = Fixture::new(&["10.0.0.0/30"]);
    let a = p.acquire("a");
    assert_eq!(a.v4, Some([10, 0, 0, 2].into()));
    assert_eq!(p.acquire("b"), Addresses::default(), "a uses the only one");
    p.pool.release(a);
    assert_eq!(p.acquire("b").v4, Some([10, 0, 0, 2].into()));
    let mut q = Fixture::new(&["10.0.0.0/29"]);
    let given: Vec<Addresses> = ["a", "b", "c", "d", "e"].iter().map(|id| q.acquire(id)).collect();
    q.pool.release(given[2]);
    q.pool.release(given[1]);
    while q.pool.poll_change().is_some() {}
    assert!(q.acquire("f").v4.is_some_and(|a| Some(a) != given[1].v4));
    let change = q.pool.poll_change().map(|(_, change)| change);
    assert_eq!(change, Some(Change::Evict { holder: holder("office", "c", 0) }));
}

#[test]
fn a_lease_is_in_use_until_its_last_session_is_gone() {
    let mut f = Fixture::new(&["10.0.0.0/30"]);
    let first = f.acquire("a");
    assert_eq!(f.acquire("a"), first, "the same, beside the first session");
    f.pool.release(first);
    assert_eq!(f.acquire("b"), Addresses::default());
    assert!(f.pool.pin(IpAddr::V4(v4(first))) && !f.pool.pin(IpAddr::from([8, 8, 8, 8])));
    f.pool.release(first);
    assert_eq!(f.acquire("b"), Addresses::default(), "packets wait for it");
    f.pool.release(first);
    assert_eq!(f.acquire("b"), first);
}

#[test]
fn the_same_name_in_another_connection_or_of_another_type_is_another_identity() {
    let mut f = Fixture::new(&OFFICE);
    let alice = f.acquire("alice@example.org");
    f.pool.release(alice);
    f.connection = "guests";
    assert_ne!(f.acquire("alice@example.org"), alice);
    f.connection = "office";
    let from = f.from.clone();
    let fqdn = Identity::Fqdn("alice@example.org".into());
    let tenant = Tenant { connection: "office", identity: &fqdn, from: &from, several: false };
    assert_ne!(f.pool.acquire(&tenant, &both(&[])), alice);
    assert_eq!(f.acquire("alice@example.org"), alice);
}

#[test]
fn an_identity_has_one_lease_however_it_is_spelled() {
    let mut f = Fixture::new(&OFFICE);
    let a = f.acquire("O=Example, CN=alice");
    assert_eq!(f.acquire("O=EXAMPLE, CN=Alice"), a);
    assert_ne!(f.acquire("O=Example, CN=bob"), a);
    let kept = LeaseRequest { tentative: true, kept: vec![IpAddr::V4(v4(a))], ..both(&[]) };
    assert_eq!(f.ask("O=EXAMPLE, CN=alice", &kept), a);
    // What an earlier run wrote down of a certificate that was renewed since.
    let mut f = Fixture::new(&OFFICE);
    f.pool.restore(holder("office", "O=Example, CN=alice", 0), a);
    assert_eq!(f.acquire("O=EXAMPLE, CN=Alice"), a);
}

#[test]
fn connections_have_their_own_prefixes_and_the_narrowest_that_holds_an_address_owns_it() {
    let mut f = Fixture::new(&["10.0.0.0/28", "10.1.0.0/28", "10.0.0.4/30", "10.0.0.9/32"]);
    f.from = nets(&["10.0.0.0/28"]);
    let given: BTreeSet<u8> =
        (0..20).filter_map(|n| f.acquire(&format!("p{n}")).v4).map(|a| a.octets()[3]).collect();
    assert_eq!(given, BTreeSet::from([2, 3, 8, 10, 11, 12, 13, 14]));
    f.from = nets(&["10.0.0.9/32"]);
    assert_eq!(f.acquire("boss").v4, Some([10, 0, 0, 9].into()));
    f.from = nets(&["10.1.0.0/28"]);
    assert!(v4(f.acquire("guest")).octets().starts_with(&[10, 1]));
    // An identity whose addresses come from elsewhere today gets one there; what its session has stays that session's.
    f.pool.release(Addresses { v4: Some([10, 0, 0, 9].into()), v6: None });
    f.from = nets(&["10.0.0.9/32"]);
    assert_eq!(f.acquire("p0").v4, Some([10, 0, 0, 9].into()));
}

#[test]
fn devices_that_share_an_identity_have_addresses_of_their_own() {
    let mut f = Fixture::new(&OFFICE);
    f.several = true;
    let (one, two) = (f.acquire("fleet"), f.acquire("fleet"));
    assert_ne!(one, two);
    // The second comes back by its ticket while its old session still stands.
    let kept = LeaseRequest { kept: vec![IpAddr::V4(v4(two))], ..both(&[]) };
    assert_eq!(f.ask("fleet", &kept), two);
    f.pool.release(one);
    assert_eq!(f.acquire("fleet"), one);
}

#[test]
fn a_tentative_session_has_what_its_identity_has_and_changes_nothing() {
    let mut f = Fixture::new(&["10.0.0.0/30"]);
    let a = f.acquire("a");
    f.pool.release(a);
    while f.pool.poll_change().is_some() {}
    let tentative = LeaseRequest { tentative: true, kept: vec![IpAddr::V4(v4(a))], ..both(&[]) };
    assert_eq!(f.ask("b", &tentative), Addresses::default(), "a has it");
    for _ in 0..1_000 {
        assert_eq!(f.ask("a", &tentative), a);
    }
    assert_eq!(f.pool.poll_change(), None);
    // It keeps the lease from no other identity: its sender may be absent, and the request a copy.
    assert_eq!((f.ask("a", &tentative), f.acquire("b")), (a, a));
    assert_eq!(f.ask("a", &tentative), Addresses::default(), "an old ticket takes no lease from another");
}

#[test]
fn a_lease_is_written_down_when_it_is_new_and_then_now_and_then() {
    let mut f = Fixture::new(&OFFICE);
    let a = f.acquire("a");
    let lease = Change::Lease { holder: holder("office", "a", 0), addresses: a };
    assert_eq!((f.pool.poll_change(), f.pool.poll_change()), (Some((1, lease.clone())), None));
    let mut written = 0;
    for _ in 0..WRITTEN_EVERY {
        f.pool.release(a);
        assert_eq!(f.acquire("a"), a);
        written += std::iter::from_fn(|| f.pool.poll_change())
            .inspect(|(_, change)| assert_eq!(*change, lease))
            .count();
    }
    assert!((1..10).contains(&written), "{written}");
}

#[test]
fn what_was_written_down_is_restored_unless_it_no_longer_fits() {
    let mut f = Fixture::new(&OFFICE);
    let at = |b, last| Addresses { v4: Some([10, b, 0, last].into()), v6: None };
    f.pool.restore(holder("office", "a", 0), at(0, 9));
    f.pool.restore(holder("office", "b", 0), at(0, 9));
    f.pool.restore(holder("office", "c", 0), at(9, 9));
    assert_eq!(f.acquire("a"), at(0, 9));
    assert_ne!(f.acquire("b"), at(0, 9));
    assert_eq!(v4(f.acquire("c")).octets()[1], 0);
}

fn pick(dice: &mut Seeded, of: usize) -> usize {
    usize::try_from(dice.below(of as u64)).expect("below a usize")
}

/// Under any order of events: no two identities that have a session, or packets waiting, hold one address.
#[test]
fn an_address_in_use_always_has_one_holder() {
    let (mut given, mut refused) = (0, 0);
    for seed in 0..200 {
        let mut dice = Seeded::new(seed);
        let mut f = Fixture::new(&["10.0.0.0/29", "10.0.0.4/32"]);
        f.several = seed % 3 == 0;
        // Who uses what: sessions, and devices that are away.
        let mut used: Vec<((&str, u64), Ipv4Addr)> = Vec::new();
        for _ in 0..400 {
            let (connection, who) = (["office", "guests"][usize::from(dice.below(2) == 1)], dice.below(5));
            f.connection = connection;
            f.from = nets(&[["10.0.0.0/29", "10.0.0.4/32"][usize::from(who == 4)]]);
            match dice.below(5) {
                0 | 1 => {
                    let wish = Ipv4Addr::from(0x0a00_0000 + u32::try_from(dice.below(8)).expect("below 8"));
                    let request = LeaseRequest { v6: false, ..both(&[wish.into()]) };
                    match f.ask(&format!("p{who}"), &request).v4 {
                        Some(address) => {
                            given += 1;
                            let other = used.iter().find(|(by, a)| *a == address && *by != (connection, who));
                            assert_eq!(other, None, "seed {seed}: {address} went to {connection} p{who}");
                            let own = used.iter().any(|(_, a)| *a == address);
                            assert!(!(f.several && own), "seed {seed}: two devices have {address}");
                            assert_eq!(
                                who == 4,
                                address.octets()[3] == 4,
                                "seed {seed}: {address} is set aside"
                            );
                            used.push(((connection, who), address));
                        }
                        None => refused += 1,
                    }
                }
                2 if !used.is_empty() => {
                    let (by, address) = used[pick(&mut dice, used.len())];
                    // Its device goes away, and something waits for it: the pin outlives the session.
                    assert!(f.pool.pin(address.into()), "seed {seed}: {by:?} has {address}");
                    f.pool.release(Addresses { v4: Some(address), v6: None });
                }
                _ if !used.is_empty() => {
                    let (_, address) = used.swap_remove(pick(&mut dice, used.len()));
                    f.pool.release(Addresses { v4: Some(address), v6: None });
                }
                _ => {}
            }
        }
    }
    assert!(given > 10_000 && refused > 1_000, "{given} given, {refused} refused");
}

#[test]
fn an_address_that_somebody_else_says_counts_before_what_a_tenant_had() {
    let mut f = Fixture::new(&["10.0.0.0/24", "fd00::/64"]);
    let fixed = |n: u8| LeaseRequest { fixed: Some([10, 0, 0, n].into()), ..both(&[]) };
    let first = f.acquire("a");
    f.pool.release(first);
    let a = f.ask("a", &fixed(77));
    assert_eq!((v4(a), a.v6), ([10, 0, 0, 77].into(), first.v6), "of the other family it keeps its own");
    assert_eq!(f.ask("b", &fixed(77)), Addresses::default(), "another uses it");
    assert_eq!(f.ask("a", &fixed(77)), a, "it itself may");
    let restored = f.acquire("c");
    assert_ne!(restored.v4, a.v4);
    f.pool.release(a);
    f.pool.release(a);
    let b = f.ask("b", &fixed(77));
    assert_eq!(v4(b), Ipv4Addr::from([10, 0, 0, 77]), "nobody used it");
    assert_ne!(f.acquire("a").v4, b.v4);
    assert_eq!(
        v4(f.ask("b", &fixed(78))),
        Ipv4Addr::from([10, 0, 0, 78]),
        "its other session keeps the former"
    );
    assert_ne!(f.ask("d", &fixed(77)).v4, b.v4);
    let outside = LeaseRequest { fixed: Some([192, 0, 2, 7].into()), ..both(&[]) };
    assert!(v4(f.ask("e", &outside)).octets().starts_with(&[10, 0, 0]), "it is none of the pool's");
    for (holder, claim) in &f.pool.holders {
        assert!(claim.addresses.iter().all(|a| f.pool.taken.get(&a) == Some(holder)), "{holder:?}");
    }
    assert_eq!(
        f.pool.taken.len(),
        f.pool.holders.values().map(|c| c.addresses.iter().count()).sum::<usize>()
    );
}

#[test]
fn of_several_devices_one_has_the_address_that_is_said() {
    let mut f = Fixture::new(&["10.0.0.0/24"]);
    f.several = true;
    let fixed = LeaseRequest { fixed: Some([10, 0, 0, 77].into()), ..both(&[]) };
    let first = f.ask("a", &fixed);
    assert_eq!(v4(first), Ipv4Addr::from([10, 0, 0, 77]));
    assert_eq!(f.ask("a", &fixed), Addresses::default(), "his other device uses it");
    f.pool.release(first);
    assert_eq!(f.ask("a", &fixed), first, "no device uses it");
}

/// Two gateways with one pool, of the same tenants.
fn two_gateways(prefixes: &[&str]) -> [Fixture; 2] {
    [0, 1].map(|slot| {
        let mut f = Fixture::new(prefixes);
        f.pool.set_share(Share { slot, slots: 2, alone: false });
        f
    })
}

#[test]
fn no_address_is_given_by_two_gateways_and_an_identity_has_its_own_at_both() {
    let [mut one, mut two] = two_gateways(&["10.0.0.0/26", "fd00::/64"]);
    for n in 0..200 {
        let (a, b) = (one.acquire(&format!("a{n}")), two.acquire(&format!("b{n}")));
        let both = || one.pool.taken.keys().any(|address| two.pool.taken.contains_key(address));
        assert!(!both(), "{a:?} {b:?}");
        assert_eq!((a.v4.is_some(), b.v4.is_some()), (n < 31, n < 30), "61 addresses: {n}");
    }
    let [mut one, mut two] = two_gateways(&OFFICE);
    let a = one.acquire("a");
    assert_eq!(two.pool.learn(holder("office", "a", 0), a), None);
    assert_eq!(two.acquire("a"), a, "it comes by full login");
    assert!(two.pool.poll_change().is_none_or(|(_, change)| matches!(change, Change::Lease { .. })));
    // A client that wishes for an address of the other gateway's part does not get it, unless a ticket gives it.
    let theirs = IpAddr::from([10, 0, 0, 8]);
    assert_ne!(two.ask("c", &both(&[theirs])).v4, Some([10, 0, 0, 8].into()));
    let kept = LeaseRequest { kept: vec![theirs], ..both(&[]) };
    assert_eq!(two.ask("d", &kept).v4, Some([10, 0, 0, 8].into()));
}

#[test]
fn a_gateway_that_cannot_ask_the_store_takes_nothing_from_anybody() {
    let mut f = Fixture::new(&["10.0.0.0/27", "10.0.1.7/32"]);
    f.pool.set_share(Share { slot: 1, slots: 2, alone: false });
    let mut given = Vec::new();
    while given.len() < 14 {
        given.push(f.acquire(&format!("a{}", given.len())));
    }
    given.iter().for_each(|a| f.pool.release(*a));
    f.pool.set_share(Share { slot: 1, slots: 2, alone: true });
    assert_eq!(f.acquire("new"), Addresses::default(), "all are somebody's, though unused");
    assert_eq!(f.acquire("a3"), given[3], "who has one keeps it");
    let fixed = LeaseRequest { fixed: Some([10, 0, 1, 7].into()), ..both(&[]) };
    assert_eq!(f.ask("fixed", &fixed), Addresses::default(), "both could give it");
    f.pool.reconfigure(nets(&["10.9.0.0/24"]));
    assert!(f.pool.taken.len() >= 14);
    f.pool.reconfigure(nets(&["10.0.0.0/27", "10.0.1.7/32"]));
    f.pool.set_share(Share { slot: 1, slots: 2, alone: false });
    assert_eq!(f.ask("fixed", &fixed).v4, Some([10, 0, 1, 7].into()));
    let new = f.acquire("new");
    assert!(new.v4.is_some() && new != given[3], "the longest unused goes");
}

#[test]
fn what_the_store_says_is_taken_over_without_touching_what_is_not_yet_written() {
    let mut f = Fixture::new(&OFFICE);
    f.pool.set_share(Share { slot: 0, slots: 2, alone: false });
    let at = |n| Addresses { v4: Some([10, 0, 0, n].into()), v6: None };
    let used = f.acquire("used");
    let fresh = f.acquire("fresh");
    f.pool.release(fresh);
    f.pool.written(1);
    assert_eq!(f.pool.learn(holder("office", "old", 0), at(31)), None);
    let ended = f.pool.learn_all(vec![
        (holder("office", "used", 0), at(33)),
        (holder("office", "x", 0), at(35)),
        (holder("office", "y", 0), used),
    ]);
    assert_eq!(ended, [used], "its session here is not that of its lease");
    assert_eq!(f.pool.holders.len(), 4, "{:?}", f.pool.holders);
    assert_eq!(f.acquire("y"), used);
    assert_eq!(v4(f.acquire("used")), Ipv4Addr::from([10, 0, 0, 33]));
    assert_eq!(f.acquire("fresh"), fresh, "its lease is on its way to the store");
    assert_eq!(v4(f.acquire("x")), Ipv4Addr::from([10, 0, 0, 35]));
    f.pool.unlearn(&holder("office", "x", 0));
    assert_eq!(v4(f.acquire("x")), Ipv4Addr::from([10, 0, 0, 35]), "it is used");
    assert!(f.pool.refused(&holder("office", "x", 0)).is_some());
    assert!(!f.pool.taken.contains_key(&IpAddr::from([10, 0, 0, 35])));
}

/// The store has this gateway's change after the one that is heard of, and says which of them counts.
#[test]
fn a_lease_that_changes_here_is_not_what_another_gateway_said_before() {
    let mut f = Fixture::new(&OFFICE);
    f.pool.set_share(Share { slot: 0, slots: 2, alone: false });
    let (used, left) = (f.acquire("used"), f.acquire("left"));
    f.pool.release(left);
    let [before, later] = [31, 33].map(|n| Addresses { v4: Some([10, 0, 0, n].into()), v6: None });
    for name in ["used", "left"] {
        assert_eq!(f.pool.learn(holder("office", name, 0), before), None);
    }
    assert_eq!((f.acquire("used"), f.acquire("left")), (used, left));
    f.pool.release(left);
    f.pool.written(2);
    assert_eq!(f.pool.learn(holder("office", "used", 0), later), Some(used));
}

/// Else another gateway would give it, as soon as it has read all leases.
#[test]
fn a_lease_in_use_that_the_store_has_lost_is_written_again() {
    let mut f = Fixture::new(&OFFICE);
    f.pool.set_share(Share { slot: 0, slots: 2, alone: false });
    let used = f.acquire("used");
    while f.pool.poll_change().is_some() {}
    f.pool.written(1);
    assert_eq!(f.pool.learn_all(vec![(holder("office", "used", 0), used)]), []);
    assert_eq!(f.pool.poll_change(), None, "the store has it");
    assert_eq!(f.pool.learn_all(Vec::new()), []);
    let again = Change::Lease { holder: holder("office", "used", 0), addresses: used };
    assert_eq!(f.pool.poll_change(), Some((2, again)));
    f.pool.release(used);
    assert_eq!(f.pool.learn_all(Vec::new()), []);
    assert!(f.pool.holders.is_empty(), "nobody uses it, and the store has lost it");
}

#[test]
fn of_leases_that_could_not_be_written_only_those_stay_that_no_other_gateway_gives() {
    let mut f = Fixture::new(&["10.0.0.0/26", "10.0.1.7/32"]);
    f.pool.set_share(Share { slot: 0, slots: 2, alone: false });
    let ours = f.acquire("ours");
    let kept = LeaseRequest { kept: vec![IpAddr::from([10, 0, 0, 9])], ..both(&[]) };
    let (theirs, durable) = (f.ask("theirs", &kept), f.acquire("durable"));
    assert_eq!(v4(theirs), Ipv4Addr::from([10, 0, 0, 9]), "of the other gateway's part, by its ticket");
    assert_eq!(f.pool.unwritten(&holder("office", "ours", 0)), None);
    assert_eq!(f.pool.unwritten(&holder("office", "theirs", 0)), Some(theirs));
    f.pool.written(3);
    assert_eq!(f.pool.unwritten(&holder("office", "durable", 0)), None);
    assert_eq!((f.acquire("ours"), f.acquire("durable")), (ours, durable));
    let fixed = LeaseRequest { fixed: Some([10, 0, 1, 7].into()), ..both(&[]) };
    let fixed = f.ask("fixed", &fixed);
    assert_eq!(f.pool.unwritten(&holder("office", "fixed", 0)), Some(fixed), "each gateway gives it");
}
