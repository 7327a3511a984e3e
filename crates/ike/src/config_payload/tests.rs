use super::*;

const ALL: AddressRequest = AddressRequest { v4: true, v6: true, dns: true };

fn offer() -> OfferedConfig {
    OfferedConfig {
        dns: vec!["10.0.0.53".parse().unwrap(), "2001:db8::53".parse().unwrap()],
        domains: vec!["example.org".to_owned()],
        subnets: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
    }
}

fn lease() -> Lease {
    Lease { v4: Some([10, 1, 2, 3].into()), v6: Some(("2001:db8::3".parse().unwrap(), 128)) }
}

#[test]
fn both_ends_agree_on_what_was_assigned() {
    let request = request(ALL, &[]);
    assert_eq!(parse_request(&request), Some(LeaseRequest { v4: true, v6: true, ..LeaseRequest::default() }));
    let (reply, assigned) = reply(&request, lease(), &offer());
    assert_eq!(parse_reply(&reply), Some(assigned.clone()));
    assert_eq!(assigned.addresses(), ["10.1.2.3".parse::<IpAddr>().unwrap(), "2001:db8::3".parse().unwrap()]);
    assert_eq!((assigned.dns.len(), assigned.domains.len(), assigned.subnets.len()), (2, 1, 2));
}

#[test]
fn earlier_addresses_are_asked_for_again() {
    let previous = ["10.9.9.9".parse().unwrap(), "2001:db8::9".parse().unwrap()];
    let parsed = parse_request(&request(ALL, &previous)).unwrap();
    assert_eq!(parsed.wanted, previous);
    let v6_only = AddressRequest { v6: true, ..AddressRequest::default() };
    let parsed = parse_request(&request(v6_only, &previous)).unwrap();
    assert_eq!((parsed.v4, parsed.wanted), (false, vec![previous[1]]));
}

#[test]
fn only_what_was_asked_for_is_sent() {
    let v4 = AddressRequest { v4: true, ..AddressRequest::default() };
    let (reply, assigned) = reply(&request(v4, &[]), lease(), &offer());
    assert!(
        reply.attributes.iter().all(|a| matches!(a.kind, Type::InternalIp4Address | Type::InternalIp4Subnet))
    );
    assert_eq!((assigned.v6, assigned.dns.len(), assigned.subnets.len()), (None, 0, 1));
}

#[test]
fn a_netmask_is_a_subnet_in_other_words() {
    let config = Config::new(
        ConfigType::Reply,
        vec![
            ConfigAttribute::ipv4(Type::InternalIp4Address, [10, 1, 2, 3].into()),
            ConfigAttribute::ipv4(Type::InternalIp4Netmask, [255, 255, 0, 0].into()),
        ],
    );
    assert_eq!(parse_reply(&config).unwrap().subnets, ["10.1.0.0/16".parse().unwrap()]);
}

#[test]
fn what_makes_no_sense_is_passed_over() {
    let bytes = |kind, value: &[u8]| ConfigAttribute { kind, value: value.to_vec() };
    let config = Config::new(
        ConfigType::Reply,
        vec![
            bytes(Type::InternalIp4Address, &[0, 0, 0, 0]),
            bytes(Type::InternalIp4Address, &[10, 1, 2]),
            bytes(Type::InternalIp6Address, &[0xff; 17]),
            bytes(Type::InternalIp4Dns, &[127, 0, 0, 53]),
            bytes(Type::InternalIp4Dns, &[10, 0, 0, 53]),
            bytes(Type::InternalIp4Dns, &[10, 0, 0, 53]),
            bytes(Type::InternalIp4Subnet, &[10, 0, 0, 0, 255, 0, 255, 0]),
            bytes(Type::InternalDnsDomain, b"example.org\nnameserver 192.0.2.66"),
            bytes(Type::InternalDnsDomain, b"Good.Example."),
            bytes(Type::InternalDnsDomain, b""),
            bytes(Type::Unknown(30_000), &[1]),
        ],
    );
    let assigned = parse_reply(&config).unwrap();
    assert_eq!(assigned.addresses(), [] as [IpAddr; 0]);
    assert_eq!(assigned.dns, ["10.0.0.53".parse::<IpAddr>().unwrap()]);
    assert_eq!(assigned.domains, ["good.example"]);
    assert_eq!(assigned.subnets, []);
    assert_eq!(parse_reply(&Config::new(ConfigType::Set, Vec::new())), None);
    assert_eq!(parse_request(&config), None);
}

#[test]
fn lists_are_bounded() {
    let many = (0..=255).map(|i| ConfigAttribute::ipv4(Type::InternalIp4Dns, [10, 0, 0, i].into()));
    let assigned = parse_reply(&Config::new(ConfigType::Reply, many.collect())).unwrap();
    assert_eq!(assigned.dns.len(), CONFIG_ENTRIES_MAX);
}

#[test]
fn domains_need_servers() {
    let domain = ConfigAttribute { kind: Type::InternalDnsDomain, value: b"example.org".to_vec() };
    let assigned = parse_reply(&Config::new(ConfigType::Reply, vec![domain])).unwrap();
    assert!(assigned.domains.is_empty(), "RFC 8598, section 3: without a server a domain means nothing");
}
