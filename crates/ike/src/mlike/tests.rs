//! Who may have which keys, without the exchanges that carry them.

use super::gateway::{Distribution, Holding};
use super::links::{Link, Links};
use super::*;
use crate::config::{RouterRule, ZonePolicy};
use crate::limits::KEY_RENEWAL_EVERY;
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use dormouse_wire::ike::mlike::{Reason, Request, Why};

mod keyring;

const GATEWAY: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(198, 51, 100, 1));

fn name(router: &str) -> Identity {
    router.parse().expect("an identity")
}

fn at(address: &str) -> IpAddr {
    address.parse().expect("an address")
}

fn rule(router: &str, serves: &[&str], neighbours: &[&str]) -> RouterRule {
    RouterRule {
        id: name(router),
        serves: serves.iter().map(|net| net.parse().expect("a prefix")).collect(),
        neighbours: neighbours.iter().copied().map(name).collect(),
    }
}

fn policy(routers: &[RouterRule]) -> ZonePolicy {
    ZonePolicy { routers: routers.to_vec(), ..ZonePolicy::default() }
}

fn grant(to_device: u32, from_device: u32) -> HeaderGrant {
    let sa = |spi| HeaderSa { spi, keymat: Secret::from([7; 20]), reached: 0.into() };
    HeaderGrant {
        map: ZoneMap::default(),
        encr: Encr::Aes128Gcm16,
        esn: true,
        to_device: sa(to_device),
        from_device: sa(from_device),
        nodes: Nodes::ALL,
    }
}

/// A gateway, and routers that call it.
#[derive(Default)]
struct Gateway {
    keys: Distribution,
    links: Links,
    now: Instant,
}

impl Gateway {
    /// A device that is seen at this address, with one SA.
    fn device(&mut self, session: u64, from: &str, spis: (u32, u32), policy: &ZonePolicy) -> ChildId {
        self.renewed(session, from, spis, policy, None)
    }

    fn renewed(
        &mut self,
        session: u64,
        from: &str,
        spis: (u32, u32),
        policy: &ZonePolicy,
        replaces: Option<ChildId>,
    ) -> ChildId {
        let (child, session) = (ChildId::new(spis.1), (SaId::new(session), at(from)));
        let grant = grant(spis.0, spis.1);
        self.keys.install(self.now, child, replaces, session, policy.clone(), grant, GATEWAY, None);
        child
    }

    fn link(&mut self, sa: u64, router: &str) {
        let link = Link { peer: name(router), from: at("203.0.113.9") };
        let (peer, up) = self.links.note(SaId::new(sa), Some(link)).expect("a new link");
        self.keys.link_changed(&peer, up);
    }

    /// Carries out what is to be done: routers take all that they are given, and obey.
    fn work(&mut self) {
        while self.keys.has_orders() {
            for (_, keys) in self.keys.orders(self.now, &self.links).exchanges {
                match keys {
                    Keys::Give { child, router } => {
                        assert!(self.keys.given(self.now, child, &router).is_some());
                        self.keys.answered(child, &router, true, Vec::new());
                    }
                    Keys::Revoke { router } => {
                        let ids = self.keys.to_revoke(&router);
                        self.keys.revoked(&router, &ids);
                    }
                    other => panic!("a gateway does not send {other:?}"),
                }
            }
        }
    }

    fn holding(&self, child: ChildId, router: &str) -> Option<Holding> {
        let holder = self.keys.holders(child).iter().find(|h| h.router == name(router));
        holder.map(|holder| holder.holding)
    }

    fn asks(&mut self, router: &str, why: Why, spi: u32) -> Result<Option<GrantId>, Reason> {
        let given = self.keys.asked(self.now, &name(router), Request { why, spi });
        given.map(|given| given.map(|given| given.grant.id()))
    }

    /// What is rekeyed until then, each with when.
    fn renewals(&mut self, until: Duration) -> Vec<(Duration, ChildId)> {
        let (begin, mut due) = (self.now, Vec::new());
        while let Some(deadline) = self.keys.deadline().filter(|d| d.at <= begin + until) {
            self.now = self.now.max(deadline.at);
            let since = self.now - begin;
            due.extend(self.keys.take_renewals(self.now).into_iter().map(|child| (since, child)));
        }
        due
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Devices choose the SPIs of what they receive.
#[test]
fn a_device_that_takes_anothers_spi_does_not_steer_requests_about_it() {
    let everywhere = policy(&[rule("r1", &["192.0.2.0/24"], &[]), rule("r2", &["192.0.3.0/24"], &[])]);
    let mut gateway = Gateway::default();
    // Of what the gateway receives, the first has the SPI that others have chosen.
    let victim = gateway.device(1, "192.0.2.1", (1_000, 2_000), &everywhere);
    for (session, (from, spis)) in
        (2..).zip([("192.0.3.1", (1_000, 300)), ("192.0.3.2", (2_000, 301)), ("192.0.3.3", (1_000, 9_000))])
    {
        gateway.device(session, from, spis, &everywhere);
    }
    let id = Some(GrantId { to_device: 1_000, from_device: 2_000 });
    assert_eq!(gateway.asks("r1", Why::None, 1_000), Ok(id));
    assert_eq!(gateway.asks("r1", Why::None, 2_000), Ok(id));
    assert_eq!(gateway.holding(victim, "r1"), Some(Holding::Held));
    // Two of those that are near have chosen the same: first one, then the other.
    let first = gateway.asks("r2", Why::None, 1_000).expect("some");
    let second = gateway.asks("r2", Why::None, 1_000).expect("some");
    assert!(first != second && first != id && second != id);
}

/// Of several devices, none of them near a router, none is taken to be where the router says.
#[test]
fn a_router_claims_a_device_by_an_spi_that_one_device_has_chosen() {
    let nowhere = policy(&[rule("r1", &[], &[])]);
    let mut gateway = Gateway::default();
    gateway.device(1, "192.0.2.1", (1_000, 2_000), &nowhere);
    assert!(gateway.asks("r1", Why::None, 1_000).is_ok());
    for (session, spis) in [(2, (1_001, 2_001)), (3, (1_001, 2_002))] {
        gateway.device(session, "192.0.2.1", spis, &nowhere);
    }
    assert_eq!(gateway.asks("r1", Why::None, 1_001), Err(Reason::Unknown));
    assert!(gateway.asks("r1", Why::None, 2_002).is_ok(), "that one is the gateway's own");
}

#[test]
fn a_router_does_not_claim_a_device_whose_address_is_another_routers() {
    let mixed = policy(&[rule("r1", &["192.0.2.0/24"], &[]), rule("r2", &[], &[])]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &mixed);
    for why in [Why::None, Why::Migrated] {
        assert_eq!(gateway.asks("r2", why, 2_000), Err(Reason::NotNear));
    }
    gateway.link(9, "r1");
    gateway.work();
    assert_eq!(gateway.holding(child, "r1"), Some(Holding::Held), "it is there still");
    let elsewhere = gateway.device(2, "10.0.0.1", (1_001, 2_001), &mixed);
    assert!(gateway.asks("r2", Why::None, 2_001).is_ok(), "no address tells");
    assert_eq!(gateway.holding(elsewhere, "r2"), Some(Holding::Held));
}

#[test]
fn a_device_that_was_near_for_a_moment_shuts_no_router_out() {
    let two = policy(&[rule("r1", &["192.0.2.0/24"], &[]), rule("r2", &["192.0.3.0/24"], &[])]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &two);
    gateway.work();
    assert_eq!(gateway.holding(child, "r1"), Some(Holding::Wanted), "there is no IKE SA with it");
    gateway.keys.note_address(SaId::new(1), at("192.0.3.1"));
    gateway.work();
    assert_eq!(gateway.holding(child, "r1"), None, "it refused nothing");
    gateway.keys.note_address(SaId::new(1), at("192.0.2.1"));
    gateway.work();
    gateway.link(9, "r1");
    gateway.work();
    assert_eq!(gateway.holding(child, "r1"), Some(Holding::Held));
}

#[test]
fn neighbours_that_a_router_no_longer_tells_are_none() {
    let three = policy(&[rule("r1", &["192.0.2.0/24"], &[]), rule("r2", &[], &[]), rule("r3", &[], &[])]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &three);
    (1..).zip(["r1", "r2", "r3"]).for_each(|(sa, router)| gateway.link(sa, router));
    gateway.work();
    let told = |gateway: &mut Gateway, names: &[&str]| {
        gateway.keys.answered(child, &name("r1"), true, names.iter().copied().map(name).collect());
        gateway.work();
        ["r2", "r3"].map(|router| gateway.holding(child, router) == Some(Holding::Held))
    };
    assert_eq!(told(&mut gateway, &["r2"]), [true, false]);
    assert_eq!(told(&mut gateway, &["r3"]), [false, true]);
    assert_eq!(told(&mut gateway, &[]), [false, false]);
}

/// With proactive distribution a router tells its neighbours before the device comes to it.
#[test]
fn what_a_router_told_before_the_device_came_counts() {
    let three = policy(&[
        rule("r1", &["192.0.2.0/24"], &["r2"]),
        rule("r2", &["192.0.3.0/24"], &[]),
        rule("r3", &[], &[]),
    ]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &three);
    (1..).zip(["r1", "r2", "r3"]).for_each(|(sa, router)| gateway.link(sa, router));
    gateway.work();
    gateway.keys.answered(child, &name("r2"), true, vec![name("r3")]);
    gateway.work();
    assert_eq!(gateway.holding(child, "r3"), None);
    gateway.keys.note_address(SaId::new(1), at("192.0.3.1"));
    gateway.work();
    assert_eq!(gateway.holding(child, "r3"), Some(Holding::Held));
}

#[test]
fn new_keys_are_asked_for_again_later_each_time_until_there_are_some() {
    let one = policy(&[rule("r1", &[], &[])]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &one);
    assert!(gateway.asks("r1", Why::Migrated, 2_000).is_ok());
    let asked = gateway.renewals(60 * MINUTE);
    assert!(asked.iter().all(|(_, due)| *due == child));
    let gaps: Vec<u32> = asked
        .windows(2)
        .map(|w| ((w[1].0 - w[0].0).as_secs() / KEY_RENEWAL_EVERY.as_secs()) as u32)
        .collect();
    assert_eq!(gaps, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64], "{asked:?}");
    let next = gateway.renewed(1, "192.0.2.1", (1_001, 2_001), &one, Some(child));
    assert_eq!((gateway.renewals(60 * MINUTE), gateway.keys.deadline().is_none()), (Vec::new(), true));
    assert!(gateway.asks("r1", Why::Migrated, 2_001).is_ok());
    gateway.keys.remove(next);
    assert!(gateway.keys.deadline().is_none(), "an SA that is gone is not renewed");
}

#[test]
fn a_router_that_may_not_have_keys_and_says_that_it_has_some_makes_them_worthless() {
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &policy(&[rule("r1", &[], &[])]));
    assert_eq!(gateway.asks("r9", Why::Migrated, 2_000), Err(Reason::NotPermitted));
    assert_eq!(gateway.renewals(MINUTE)[0].1, child);
    assert!(gateway.asks("r9", Why::None, 2_000).is_err() && gateway.holding(child, "r9").is_none());
}

/// The router to which keys went need not tell.
#[test]
fn a_router_that_gave_keys_on_tells_who_has_them() {
    let two = policy(&[rule("r1", &[], &[]), rule("r2", &[], &[])]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &two);
    assert_eq!(
        gateway.keys.gave(Instant::ZERO, &name("r1"), 2_000, &name("r2")),
        Err(Reason::Unknown),
        "it has none"
    );
    assert!(gateway.asks("r1", Why::None, 2_000).is_ok());
    assert_eq!(gateway.keys.gave(Instant::ZERO, &name("r1"), 2_000, &name("r2")), Ok(()));
    assert_eq!(
        ["r1", "r2"].map(|router| gateway.holding(child, router)),
        [Some(Holding::Forgotten), Some(Holding::Held)]
    );
    assert!(gateway.keys.holders(child).iter().all(|holder| holder.had));
    assert_eq!(gateway.renewals(MINUTE)[0].1, child);
    // One that the configuration does not name is not kept, and keys are new all the same.
    let other = gateway.device(2, "192.0.2.2", (1_001, 2_001), &two);
    assert!(gateway.asks("r1", Why::None, 2_001).is_ok());
    assert_eq!(gateway.keys.gave(Instant::ZERO, &name("r1"), 2_001, &name("r9")), Ok(()));
    assert_eq!(gateway.keys.holders(other).len(), 1);
    assert!(gateway.renewals(MINUTE).iter().any(|(_, due)| *due == other));
}

#[test]
fn routers_that_the_configuration_drops_lose_their_keys_and_new_ones_are_made() {
    let (r1, r2) = (rule("r1", &["192.0.2.0/24"], &["r2"]), rule("r2", &[], &[]));
    let both = policy(&[r1.clone(), r2]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &both);
    (1..).zip(["r1", "r2"]).for_each(|(sa, router)| gateway.link(sa, router));
    gateway.work();
    gateway.keys.reconfigure(child, &both);
    assert!(!gateway.keys.has_orders() && gateway.keys.deadline().is_none(), "nothing has changed");
    gateway.keys.reconfigure(child, &ZonePolicy { most_routers: 3, ..both });
    gateway.work();
    assert!(gateway.keys.deadline().is_none() && gateway.holding(child, "r2") == Some(Holding::Held));
    gateway.keys.reconfigure(child, &policy(&[r1]));
    gateway.work();
    assert_eq!(
        ["r1", "r2"].map(|router| gateway.holding(child, router)),
        [Some(Holding::Held), Some(Holding::Forgotten)]
    );
    assert_eq!(gateway.renewals(MINUTE)[0].1, child);
}

#[test]
fn keys_of_a_router_that_is_believed_no_longer_are_made_anew() {
    let one = policy(&[rule("r1", &["192.0.2.0/24"], &[])]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &one);
    gateway.device(2, "192.0.3.1", (1_001, 2_001), &one);
    gateway.link(1, "r1");
    gateway.work();
    gateway.keys.distrust(&name("r1"));
    let mut due: Vec<ChildId> = gateway.renewals(MINUTE).into_iter().map(|(_, child)| child).collect();
    due.dedup();
    assert_eq!(due, [child], "those that it has had, and no others");
}

/// What happens in two hours in which routers say these things once a second, each in its turn, about a device's only SA: how often it is rekeyed.
fn rekeyed(gateway: &mut Gateway, said: &[(&str, Why)], policy: &ZonePolicy) -> usize {
    let (mut from_device, mut child) = (2_000, gateway.device(1, "192.0.2.1", (1_000, 2_000), policy));
    let mut count = 0;
    for (router, why) in said.iter().cycle().take(7_200) {
        let _said = gateway.asks(router, *why, from_device);
        gateway.work();
        gateway.now += Duration::from_secs(1);
        if !gateway.keys.take_renewals(gateway.now).is_empty() {
            (count, from_device) = (count + 1, from_device + 1);
            let before = child;
            child = gateway.renewed(1, "192.0.2.1", (from_device - 1_000, from_device), policy, Some(child));
            gateway.keys.remove(before);
        }
    }
    count
}

/// Each rekeying costs the device's radio.
#[test]
fn what_routers_say_makes_a_device_rekey_ever_less_often() {
    let rules = [rule("r1", &[], &[]), rule("r2", &[], &[]), rule("r3", &[], &[])];
    let one = ZonePolicy { most_routers: 1, ..policy(&rules) };
    // 10 s, 20 s and so on are 21 minutes to the eighth, and then it is every 640 s.
    let most = 8 + (7_200 - 1_270) / 640;
    // One that has keys of a neighbour each time; one that may have none; one that says so of what it was never given.
    for said in [("r1", Why::Migrated), ("r9", Why::Migrated), ("r9", Why::Here)] {
        let count = rekeyed(&mut Gateway::default(), &[said], &one);
        assert!((7..=most).contains(&count), "{said:?}: {count}");
    }
    // Two that pull the device to and fro.
    let (mut gateway, pull) = (Gateway::default(), [("r1", Why::None), ("r2", Why::None)]);
    let count = rekeyed(&mut gateway, &pull, &one);
    assert!((7..=2 * most).contains(&count), "{count}");
}

#[test]
fn a_router_that_lies_holds_up_no_other_nor_the_operator() {
    let two = policy(&[rule("r1", &[], &[]), rule("r2", &[], &[])]);
    let due = |honest: &dyn Fn(&mut Gateway)| {
        let mut gateway = Gateway::default();
        let mut spi = 2_000;
        let mut child = gateway.device(1, "192.0.2.1", (1_000, spi), &two);
        for _ in 0..8 {
            assert!(gateway.asks("r1", Why::Migrated, spi).is_ok());
            gateway.now = gateway.keys.deadline().expect("new keys").at;
            assert_eq!(gateway.keys.take_renewals(gateway.now), [child]);
            spi += 1;
            child = gateway.renewed(1, "192.0.2.1", (spi - 1_000, spi), &two, Some(child));
        }
        assert!(gateway.asks("r1", Why::Migrated, spi).is_ok());
        let made = gateway.now;
        honest(&mut gateway);
        gateway.keys.deadline().expect("new keys").at - made
    };
    assert_eq!(due(&|_| {}), KEY_RENEWAL_EVERY * 64);
    assert_eq!(due(&|gateway| assert!(gateway.asks("r2", Why::Migrated, 2_008).is_ok())), KEY_RENEWAL_EVERY);
    assert_eq!(due(&|gateway| gateway.keys.distrust(&name("r1"))), KEY_RENEWAL_EVERY);
}

/// Mobile IP: no address tells where the device is.
#[test]
fn a_router_that_has_the_keys_already_says_that_the_device_has_come() {
    let rules = [rule("r1", &[], &["r2"]), rule("r2", &[], &["r3"]), rule("r3", &[], &[])];
    let ahead = ZonePolicy { proactive: true, most_routers: 8, ..policy(&rules) };
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &ahead);
    for (sa, router) in (1..).zip(["r1", "r2", "r3"]) {
        gateway.link(sa, router);
    }
    assert!(gateway.asks("r1", Why::None, 2_000).is_ok());
    gateway.work();
    assert_eq!((gateway.holding(child, "r2"), gateway.holding(child, "r3")), (Some(Holding::Held), None));
    assert_eq!(gateway.asks("r2", Why::Here, 2_000), Ok(None));
    gateway.work();
    let held = ["r1", "r2", "r3"].map(|router| gateway.holding(child, router));
    assert_eq!(held, [Some(Holding::Forgotten), Some(Holding::Held), Some(Holding::Held)]);
    assert_eq!(gateway.renewals(60 * MINUTE), [], "a router has them from the gateway alone");
    assert_eq!(gateway.asks("r9", Why::Here, 2_000), Err(Reason::NotPermitted));
}

#[test]
fn keys_that_a_router_has_and_was_not_given_are_made_anew() {
    let named = policy(&[rule("r1", &[], &[]), rule("r2", &[], &[])]);
    let mut gateway = Gateway::default();
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &named);
    assert_eq!(gateway.asks("r2", Why::Here, 2_000), Ok(None));
    assert_eq!(gateway.renewals(MINUTE).first(), Some(&(KEY_RENEWAL_EVERY, child)));
}

#[test]
fn a_router_that_cannot_use_its_keys_holds_none_and_has_seen_them() {
    let mut gateway = Gateway::default();
    let one = policy(&[rule("r1", &["192.0.2.0/24"], &[])]);
    let child = gateway.device(1, "192.0.2.1", (1_000, 2_000), &one);
    assert_eq!(gateway.asks("r1", Why::Unusable, 2_000), Err(Reason::Unknown), "it was given none");
    gateway.link(1, "r1");
    gateway.work();
    assert_eq!(gateway.asks("r1", Why::Unusable, 2_000), Ok(None));
    gateway.work();
    assert_eq!(gateway.holding(child, "r1"), Some(Holding::Refused), "nor is it given them again");
    assert!(gateway.keys.holders(child).iter().all(|holder| holder.had));
    // It says so before it has answered.
    gateway.keys.answered(child, &name("r1"), true, Vec::new());
    assert_eq!(gateway.holding(child, "r1"), Some(Holding::Refused));
    assert!(gateway.asks("r1", Why::None, 2_000).is_ok(), "it asks for them");
    assert_eq!(gateway.holding(child, "r1"), Some(Holding::Held));
}

// ---- proposals ----

#[test]
fn what_must_have_zones_is_proposed_with_ciphers_that_seal_them() {
    let all: Vec<EspProposal> = ["aes128-sha256", "aes128ccm16", "aes256gcm16"]
        .into_iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    assert_eq!(fitting(&all, false).len(), all.len());
    let fit = fitting(&all, true);
    assert!(fit.len() == 1 && fit[0].encr == [Encr::Aes256Gcm16]);
    assert_eq!(fitting(&all[..1], true).len(), 1, "none fits: the refusal names it");
}
