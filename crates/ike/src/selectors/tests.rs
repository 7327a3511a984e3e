use proptest::prelude::*;

use super::*;

fn net(text: &str) -> TsRange {
    of_net(text.parse().unwrap())
}

fn part(text: &str, protocol: u8, start_port: u16, end_port: u16) -> TsRange {
    TsRange { protocol, start_port, end_port, ..net(text) }
}

fn narrowed(proposed: &[TsRange], policy: &[TsRange]) -> String {
    show(&narrow(&to_wire(proposed), policy))
}

#[test]
fn the_example_of_section_2_9() {
    // The initiator proposes the packet and the range; the responder's policy is a part of the range.
    let packet = part("198.51.100.66/32", 17, 53, 53);
    let range = net("198.51.100.0/24");
    assert_eq!(narrowed(&[packet, range], &[net("198.51.100.0/26")]), "198.51.100.0/26");
    assert_eq!(narrowed(&[packet, range], &[net("198.51.100.64/26")]), "198.51.100.64/26");
    assert_eq!(narrowed(&[packet], &[net("198.51.100.0/24")]), "198.51.100.66 udp port 53");
    assert_eq!(narrowed(&[packet, range], &[net("203.0.113.0/24")]), "nothing");
}

#[test]
fn families_never_mix() {
    let both = [net("0.0.0.0/0"), net("::/0")];
    assert_eq!(narrowed(&both, &[net("10.0.0.0/8")]), "10.0.0.0/8");
    assert_eq!(narrowed(&both, &[net("2001:db8::/32")]), "2001:db8::/32");
    assert_eq!(narrowed(&both, &both), "0.0.0.0/0, ::/0");
}

#[test]
fn protocols_and_ports_meet() {
    let any = net("10.0.0.0/8");
    let web = part("10.0.0.0/8", 6, 80, 443);
    assert_eq!(narrowed(&[any], &[web]), "10.0.0.0/8 tcp ports 80-443");
    assert_eq!(narrowed(&[web], &[part("10.1.0.0/16", 6, 400, 500)]), "10.1.0.0/16 tcp ports 400-443");
    assert_eq!(narrowed(&[web], &[part("10.0.0.0/8", 17, 80, 80)]), "nothing");
    assert_eq!(narrowed(&[web], &[part("10.0.0.0/8", 6, 1, 79)]), "nothing");
}

#[test]
fn icmp_types_and_codes_are_packed_into_ports() {
    let echo_request = part("10.0.0.0/8", 1, 8 << 8, 8 << 8 | 0xff);
    assert_eq!(
        narrowed(&[net("0.0.0.0/0")], &[echo_request]),
        "10.0.0.0/8 icmp type 8 code 0 to type 8 code 255"
    );
    let echo_reply = part("10.0.0.0/8", 1, 0, 0xff);
    assert_eq!(narrowed(&[echo_reply], &[echo_request]), "nothing");
}

#[test]
fn opaque_ports_meet_opaque_and_any() {
    let opaque = part("10.0.0.0/8", 6, u16::MAX, 0);
    assert_eq!(narrowed(&[opaque], &[part("10.0.0.0/8", 6, 0, u16::MAX)]), "10.0.0.0/8 tcp opaque");
    assert_eq!(narrowed(&[opaque], &[opaque]), "10.0.0.0/8 tcp opaque");
    assert_eq!(narrowed(&[opaque], &[part("10.0.0.0/8", 6, 80, 80)]), "nothing");
}

#[test]
fn nonsense_selects_nothing() {
    let everything = [net("0.0.0.0/0"), net("::/0")];
    let reversed = TsRange::addresses("10.0.0.9".parse().unwrap(), "10.0.0.1".parse().unwrap());
    let mixed =
        TsRange { start: "10.0.0.9".parse().unwrap(), end: "2001:db8::".parse().unwrap(), ..reversed };
    for bad in [reversed, mixed, part("10.0.0.0/8", 6, 9, 3), part("10.0.0.0/8", 0, 80, 80)] {
        assert_eq!(narrowed(&[bad], &everything), "nothing", "{bad:?}");
    }
    let unknown = TrafficSelector::Unknown { kind: 9, protocol: 0, body: vec![0; 8] };
    assert!(narrow(&[unknown], &everything).is_empty());
}

#[test]
fn the_number_is_bounded_and_the_first_choice_stays() {
    let hosts: Vec<_> = (0..200).map(|i| net(&format!("10.0.{i}.1/32"))).collect();
    let kept = narrow(&to_wire(&hosts), &[net("10.0.0.0/8")]);
    assert_eq!(kept.len(), SELECTORS_MAX);
    assert_eq!(kept[0], hosts[0]);
}

#[test]
fn dynamic_becomes_the_assigned_address_or_all_until_it_is_known() {
    let specs = [SelectorSpec::Dynamic, SelectorSpec::Net("192.0.2.0/24".parse().unwrap())];
    let known =
        resolve(&specs, Dynamic::Known(&["10.1.2.3".parse().unwrap(), "2001:db8::3".parse().unwrap()]));
    assert_eq!(show(&known), "10.1.2.3, 2001:db8::3, 192.0.2.0/24");
    assert_eq!(show(&resolve(&specs, Dynamic::Any { v4: true, v6: false })), "0.0.0.0/0, 192.0.2.0/24");
    assert_eq!(show(&resolve(&specs, Dynamic::Any { v4: false, v6: true })), "::/0, 192.0.2.0/24");
    let narrow = SelectorSpec::Narrow { net: "10.0.0.7/8".parse().unwrap(), protocol: 6, ports: (22, 22) };
    assert_eq!(show(&resolve(&[narrow], Dynamic::Known(&[]))), "10.0.0.0/8 tcp port 22");
}

#[test]
fn an_answer_must_stay_within_the_proposal() {
    let proposed = [net("10.0.0.0/8")];
    assert_eq!(verify(&to_wire(&[net("10.1.0.0/16")]), &proposed), Ok(vec![net("10.1.0.0/16")]));
    assert_eq!(verify(&[], &proposed), Err(SelectorError::Empty));
    let wide = verify(&to_wire(&[net("0.0.0.0/0")]), &proposed).unwrap_err();
    assert_eq!(wide.to_string(), "the answer selects 0.0.0.0/0, proposed was 10.0.0.0/8");
    let unknown = TrafficSelector::Unknown { kind: 9, protocol: 0, body: Vec::new() };
    assert!(verify(&[unknown], &proposed).is_err());
}

prop_compose! {
    /// Small numbers, so that selectors meet often; also malformed ones.
    fn any_selector()(
        protocol in prop_oneof![Just(0u8), Just(6), Just(17)],
        ports in prop_oneof![Just((0u16, u16::MAX)), Just((u16::MAX, 0)), (0u16..8, 0u16..8)],
        v6 in any::<bool>(),
        from in 0u8..16,
        to in 0u8..16,
    ) -> TsRange {
        let address = |n: u8| -> IpAddr {
            if v6 { [0, 0, 0, 0, 0, 0, 0, u16::from(n)].into() } else { [10, 0, 0, n].into() }
        };
        TsRange { protocol, start_port: ports.0, end_port: ports.1, start: address(from), end: address(to) }
    }
}

fn selects(range: &TsRange, address: IpAddr, protocol: u8, port: u16) -> bool {
    well_formed(range)
        && range.start.is_ipv4() == address.is_ipv4()
        && (range.start..=range.end).contains(&address)
        && (range.protocol == 0 || range.protocol == protocol)
        && (range.start_port..=range.end_port).contains(&port)
}

proptest! {
    #[test]
    fn the_result_is_a_subset_of_both_sides(
        proposed in prop::collection::vec(any_selector(), 0..6),
        policy in prop::collection::vec(any_selector(), 0..6),
    ) {
        for common in narrow(&to_wire(&proposed), &policy) {
            prop_assert!(proposed.iter().any(|p| covers(p, &common)));
            prop_assert!(policy.iter().any(|p| covers(p, &common)));
        }
    }

    #[test]
    fn the_result_is_the_whole_intersection(
        proposed in prop::collection::vec(any_selector(), 0..6),
        policy in prop::collection::vec(any_selector(), 0..6),
        host in 0u8..16,
        port in 0u16..8,
        protocol in prop_oneof![Just(6u8), Just(17)],
    ) {
        let address: IpAddr = [10, 0, 0, host].into();
        let hit = |ranges: &[TsRange]| ranges.iter().any(|r| selects(r, address, protocol, port));
        let common = narrow(&to_wire(&proposed), &policy);
        prop_assert_eq!(hit(&common), hit(&proposed) && hit(&policy));
    }

    #[test]
    fn narrowing_again_changes_nothing(
        proposed in prop::collection::vec(any_selector(), 0..6),
        policy in prop::collection::vec(any_selector(), 0..6),
    ) {
        let once = narrow(&to_wire(&proposed), &policy);
        prop_assert_eq!(narrow(&to_wire(&once), &policy), once.clone());
        prop_assert!(once.is_empty() || verify(&to_wire(&once), &proposed).is_ok());
    }
}
