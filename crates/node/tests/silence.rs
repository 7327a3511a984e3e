//! A gateway that never answers: each rung that is tried in vain is reported, with the gateway and the time that it had.

use dormouse_ike::EndpointConfig;
use dormouse_node::config::{parse, resolve};
use dormouse_node::ladder::Rung;
use dormouse_node::{Change, Event, FailureKind, Node};
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};

const CONFIG: &str = "[connection.office]\nrole = \"client\"\ngateway = \"vpn.test\"\n\
                      [connection.office.local]\nid = \"a.test\"\nsecret = \"a secret of the test\"\n\
                      [connection.office.remote]\nid = \"vpn.test\"\n[connection.office.wake]\nfull_ms = 4000\n";

#[test]
fn a_rung_without_an_answer_is_reported() {
    let file = parse(CONFIG).expect("TOML");
    let resolved = resolve(&file, &mut |_, _| Err("no files here".into())).expect("a configuration");
    let entropy = |seed| Box::new(Seeded::new(seed));
    let mut node = Node::new(resolved, EndpointConfig::default(), entropy(1), entropy(2));
    let mut now = Instant::ZERO;
    node.set_wall_clock(now, UnixTime(1_800_000_000));
    let (local, remote) = (([198, 51, 100, 7], 500).into(), ([192, 0, 2, 1], 500).into());
    node.set_network(now, "office", Some(Path { local, remote, carrier: Carrier::Ike }));
    assert!(node.up(now, "office"));
    let failure = loop {
        let mut lost = Vec::new();
        while node.poll_transmit(now, &mut lost).is_some() {}
        let told = std::iter::from_fn(|| node.poll_event()).find_map(|event| match event {
            Event::Changed(Change::RungFailed { rung, why, kind, .. }) => Some((rung, why, kind)),
            _ => None,
        });
        if let Some(told) = told {
            break told;
        }
        now = node.poll_timeout().expect("something is due until the failure is reported").at;
        assert!(now.as_nanos() < 60_000_000_000, "the failure was not reported");
        node.handle_timeout(now);
    };
    assert_eq!((failure.0, failure.2), (Rung::Full, FailureKind::Timeout));
    assert_eq!(failure.1, "vpn.test did not answer within 4s");
    let infos = node.client_infos(now);
    assert_eq!(infos[0].last_error.as_ref().map(|e| e.0.as_str()), Some(failure.1.as_str()));
}
