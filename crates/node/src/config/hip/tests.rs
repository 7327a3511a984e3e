use super::super::directory::{TAGS, tags, version};
use super::super::parse;
use super::*;

const OTHER: &str = "2001:22:a:b:c:d:e:f";

fn key() -> Vec<u8> {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
    pair.serialize_pem().into_bytes()
}

fn read(text: &str, hosts: &str) -> Result<Option<ResolvedHip>, String> {
    let file = parse(text)?;
    for (name, c) in &file.connection {
        super::super::validate::connection(name, c).map_err(|e| e.to_string())?;
    }
    let (key, hosts) = (key(), hosts.as_bytes().to_vec());
    let mut read = |path: &std::path::Path, secret: bool| match path.to_str() {
        Some("k") if secret => Ok(key.clone()),
        Some("h") if !secret => Ok(hosts.clone()),
        _ => Err("not there".to_owned()),
    };
    resolve_hip(&file, &mut read).map_err(|e| e.to_string())
}

const BARE: &str = "[connection.a]\nrole = \"hip\"\n[connection.a.hip]\nkey = \"k\"\n";

#[test]
fn peers_come_from_both_places_and_may_call() {
    let text = format!(
        "{BARE}hosts = \"h\"\n[[connection.a.hip.peers]]\nhit = \"{OTHER}\"\naddresses = [\"192.0.2.1\"]\n"
    );
    let hosts = "# a comment\n\n2001:21::7 far far.example 2001:db8::7 192.0.2.7 # behind\n";
    let it = read(&text, hosts).unwrap().unwrap();
    assert_eq!(it.peers.len(), 2);
    let far = it.peers.named("FAR.example").unwrap();
    assert_eq!(
        (far.names.as_slice(), far.peer.addresses.len()),
        (&["far".to_owned(), "far.example".into()][..], 2)
    );
    assert_eq!(it.peers.get(far.hit), Some(far));
    assert!(it.config.admits(tag(OTHER).unwrap()) && !it.config.admits(tag("2001:22::1").unwrap()));
    let held = it.blocking.unwrap();
    assert!(
        held.block == super::super::file::Block::Connected && held.inward && held.carried == [TAGS.into()]
    );
    assert!(!it.config.opportunistic && it.carriers == [HipCarrier::Ip, HipCarrier::Udp]);
}

#[test]
fn names_have_a_domain_unless_they_are_to_have_none() {
    let domain = |line: &str| read(&format!("{BARE}{line}\n"), "").map(|it| it.unwrap().domain);
    assert_eq!(domain("").unwrap(), "hip");
    assert_eq!(domain("domain = \"\"").unwrap(), "");
    assert_eq!(domain("domain = \"Peers.Example.\"").unwrap(), "peers.example");
    for bad in [".", "a..b", "a b", "a\\nb", "ä", &"x".repeat(64), &["x"; 65].join(".")] {
        let why = domain(&format!("domain = \"{bad}\"")).unwrap_err();
        assert!(why.contains("connection.a.hip.domain"), "{why}");
    }
    // Where it is asked for is in the route of the tags, and no tag.
    for of in [1, 2] {
        let server = super::super::directory::resolver(of);
        assert!(tags(of).contains(&server) && (of == 1 || tag(&server.to_string()).is_err()));
    }
}

#[test]
fn rendezvous_servers_are_addresses_or_peers_wherever_they_are_written() {
    let text = format!(
        "{BARE}hosts = \"h\"\nrendezvous = [\"FAR\"]\n[connection.a.hip.rendezvous_server]\nlongest = 60\n\
         [[connection.a.hip.peers]]\nhit = \"{OTHER}\"\nrendezvous = [\"far\", \"192.0.2.9\"]\n"
    );
    let it = read(&text, "2001:21::7 far 192.0.2.7\n2001:22::9 near @far @192.0.2.5\n").unwrap().unwrap();
    let via = |text: &str| {
        let known = it.peers.called(text).unwrap();
        assert!(known.is_reachable() && known.peer.addresses.is_empty());
        known.rendezvous.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(via(OTHER), ["192.0.2.7", "192.0.2.9"]);
    assert_eq!(via("near"), ["192.0.2.7", "192.0.2.5"]);
    assert_eq!(it.config.rendezvous, BTreeSet::from([tag("2001:21::7").unwrap()]));
    assert!(it.peers.iter().all(|known| known.quirks == hip::Quirks::NONE));
    let registrar = it.config.registrar.unwrap();
    assert_eq!((registrar.permits, registrar.longest.as_secs()), (hip::Accept::Any, 60));
}

#[test]
fn relays_are_reached_by_udp() {
    let text = format!(
        "{BARE}carriers = [\"udp\"]\nhosts = \"h\"\nrelays = [\"FAR\"]\n[connection.a.hip.relay_server]\nlongest = 60\nclients = [\"far\"]\n\
         [[connection.a.hip.peers]]\nhit = \"{OTHER}\"\nrelays = [\"far\", \"192.0.2.9\"]\n"
    );
    let it = read(&text, "2001:21::7 far 192.0.2.7\n").unwrap().unwrap();
    let known = it.peers.called(OTHER).unwrap();
    assert!(known.is_reachable() && known.rendezvous.is_empty());
    assert_eq!(known.relays, ["192.0.2.7", "192.0.2.9"].map(|a| a.parse::<IpAddr>().unwrap()));
    let far = tag("2001:21::7").unwrap();
    assert_eq!((it.config.relays, it.config.rendezvous), (BTreeSet::from([far]), BTreeSet::new()));
    let relay = it.config.relay_server.unwrap();
    assert_eq!((relay.permits, relay.longest.as_secs()), (hip::Accept::Listed([far].into()), 60));
}

/// A configured one is kept, the others are made of the tags; none is given twice.
#[test]
fn every_peer_has_an_address_of_its_own() {
    let text = format!(
        "{BARE}hosts = \"h\"\nlsi = \"1.0.0.0/8\"\nlsi_services = [\"tcp/22\"]\n[[connection.a.hip.peers]]\nhit = \"{OTHER}\"\n"
    );
    let hosts = "2001:21::7 far =1.0.0.1\n2001:21::aa00:1:203 near\n2001:21::bb00:1:203 nearer\n";
    let it = read(&text, hosts).unwrap().unwrap();
    let of = |text: &str| it.peers.called(text).unwrap().lsi.unwrap().to_string();
    assert_eq!(
        [of("far"), of("near"), of("nearer"), of(OTHER)],
        ["1.0.0.1", "1.1.2.3", "1.1.2.4", "1.14.0.15"]
    );
    let lsi = it.lsi.unwrap();
    assert!(lsi.prefix.contains(&lsi.ours) && it.peers.iter().all(|p| p.lsi != Some(lsi.ours)));
    assert_eq!(lsi.services, BTreeSet::from([(6, 22)]));
    assert!(it.blocking.unwrap().carried.contains(&lsi.prefix.into()));
}

/// With another prefix, which only a new start can change, those that are in force stay.
#[test]
fn identifiers_in_force_are_kept() {
    let peers = |prefix: &str, hosts: &str| {
        let text = format!("{BARE}hosts = \"h\"\nlsi = \"{prefix}\"\n");
        read(&text, hosts).unwrap().unwrap().peers
    };
    let before = peers("1.0.0.0/8", "2001:21::7 far =1.0.0.1\n2001:21::8 gone\n");
    let mut now = peers("198.18.0.0/15", "2001:21::7 far\n2001:21::9 new\n");
    now.keep_lsis(&before);
    let of = |text: &str| now.called(text).unwrap().lsi.map(|lsi| lsi.to_string());
    assert_eq!([of("far"), of("new")], [Some("1.0.0.1".to_owned()), None]);
}

/// The tag and what is held for it are of the version that is named, and so must be the peers.
#[test]
fn version_1_is_asked_for() {
    const OLD: &[u8] = include_bytes!("../../../../hip/tests/keys/rsa1024.pem");
    let with = |text: &str| {
        let file = parse(text).map_err(|e| e.to_string())?;
        let mut key = |_: &std::path::Path, _: bool| Ok(OLD.to_vec());
        resolve_hip(&file, &mut key).map_err(|e| e.to_string()).map(Option::unwrap)
    };
    let error = with(BARE).unwrap_err();
    assert!(error.contains("RSA-1024 is refused"), "{error}");
    let one = BARE.to_owned() + "version = 1\n";
    let peer = |hit: &str| format!("{one}[[connection.a.hip.peers]]\nhit = \"{hit}\"\n");
    let it = with(&peer("2001:1a:b::c")).unwrap();
    let held = it.blocking.unwrap().carried;
    assert_eq!(held, [tags(1).into()]);
    assert!(it.identities.len() == 1 && tags(1).contains(&it.identities[0].hit().0));
    let error = with(&peer(OTHER)).unwrap_err();
    assert!(error.contains("is a tag of version 2: say version = 2"), "{error}");
    for esp in ["aes128gcm16", "aes128-sha256"] {
        let error = with(&format!("{one}esp = [\"aes128-sha1\", \"{esp}\"]\n")).unwrap_err();
        assert!(error.starts_with("connection.a.hip.esp: version 1"), "{error}");
    }
    let it = with(&(one.clone() + "esp = [\"aes128-sha1\", \"null-sha256\"]\n")).unwrap();
    assert!(it.config.esp_suites.contains(&hip::EspSuite::NullSha256));
    let error = with(&(BARE.to_owned() + "version = 3\n")).unwrap_err();
    assert!(error.starts_with("connection.a.hip.version: "), "{error}");
}

/// One peer of version 1 among others: the host has a tag of each version, and speaks version 1 with that peer alone.
#[test]
fn one_peer_has_version_1_and_others_have_2() {
    const OLD: &[u8] = include_bytes!("../../../../hip/tests/keys/rsa1024.pem");
    const RSA: &[u8] = include_bytes!("../../../../hip/tests/keys/rsa.pem");
    let ecdsa = key();
    let with = |text: &str| {
        let file = parse(text).map_err(|e| e.to_string())?;
        let mut key = |path: &std::path::Path, _: bool| match path.to_str() {
            Some("old") => Ok(OLD.to_vec()),
            Some("rsa") => Ok(RSA.to_vec()),
            _ => Ok(ecdsa.clone()),
        };
        resolve_hip(&file, &mut key).map_err(|e| e.to_string()).map(Option::unwrap)
    };
    let peers = format!(
        "[[connection.a.hip.peers]]\nhit = \"{OTHER}\"\n[[connection.a.hip.peers]]\nhit = \"2001:1a:b::c\"\nversion = 1\n"
    );
    let versions = |it: &ResolvedHip| it.identities.iter().map(|i| version(i.hit())).collect::<Vec<_>>();
    for (text, least) in [
        (BARE.to_owned() + "key_v1 = \"old\"\n" + &peers, true),
        (BARE.replace("\"k\"", "\"rsa\"") + "accept = \"any\"\n" + &peers, false),
    ] {
        let it = with(&text).unwrap();
        assert_eq!(versions(&it), [2, 1]);
        assert_eq!(it.blocking.as_ref().unwrap().carried, [tags(2).into(), tags(1).into()]);
        for (peer, admitted) in
            [(OTHER, true), ("2001:1a:b::c", true), ("2001:22::1", !least), ("2001:1a:b::d", false)]
        {
            assert_eq!(it.config.admits(tag(peer).unwrap()), admitted, "{peer}");
        }
    }
    // The tag of version 1 is known before any peer has it.
    assert_eq!(versions(&with(&(BARE.to_owned() + "key_v1 = \"old\"\n")).unwrap()), [2, 1]);
    assert_eq!(versions(&with(&(BARE.to_owned() + "")).unwrap()), [2]);
    // The other way: a host of version 1 with one peer of version 2.
    let other = format!(
        "version = 1\nkey_v1 = \"old\"\n[[connection.a.hip.peers]]\nhit = \"{OTHER}\"\nversion = 2\n"
    );
    assert_eq!(versions(&with(&(BARE.to_owned() + &other)).unwrap()), [1, 2]);
    for (text, error) in [
        (BARE.to_owned() + &peers, "connection.a.hip.key: k: no key for version 1 of HIP"),
        (
            BARE.to_owned() + "key_v1 = \"old\"\ngroups = [\"ecp256\", \"modp2048\"]\n" + &peers,
            "connection.a.hip.groups: version 1 needs modp3072 or modp1536",
        ),
        (
            BARE.to_owned()
                + "key_v1 = \"old\"\nidentities = [{ name = \"i\", key = \"rsa\" }]\n"
                + &peers
                + "identity = \"i\"\n",
            "connection.a.hip.peers[1].identity: has another version of HIP than the peer",
        ),
        (
            BARE.to_owned() + "key_v1 = \"old\"\n" + &peers.replace("version = 1", "version = 2"),
            "connection.a.hip.peers[1].hit",
        ),
        (
            BARE.to_owned() + "key_v1 = \"old\"\n" + &peers.replace("version = 1", "version = 4"),
            "connection.a.hip.peers[1].version",
        ),
    ] {
        let said = with(&text).unwrap_err();
        assert!(said.starts_with(error), "{said}");
    }
}

/// The documented names are those that are known.
#[test]
fn quirks_are_of_the_peer_that_names_them() {
    let names = hip::Quirk::ALL.map(hip::Quirk::name);
    let peer = |lines: &str| {
        format!(
            "{BARE}carriers = [\"ip\", \"udp\"]\n[[connection.a.hip.peers]]\nhit = \"{OTHER}\"\n{lines}\n"
        )
    };
    let it = read(&peer(&format!("quirks = {names:?}")), "").unwrap().unwrap();
    assert_eq!(it.peers.called(OTHER).unwrap().quirks, hip::Quirk::ALL.into_iter().collect());
    let documented = include_str!("../hip.rs");
    assert!(names.iter().all(|name| documented.contains(&format!("`{name}`"))));
}

#[test]
fn each_thing_that_cannot_be_meant_is_named() {
    let peer = |lines: &str| format!("{BARE}[[connection.a.hip.peers]]\n{lines}\n");
    let listed = |lines: &str| peer(&format!("hit = \"{OTHER}\"\n{lines}"));
    let by_ip = |text: String| text.replace(BARE, &format!("{BARE}carriers = [\"ip\"]\n"));
    for (text, key) in [
        ("[connection.a]\nrole = \"hip\"\n".to_owned(), "connection.a.hip: "),
        (BARE.replace("\"k\"", "\"x\""), "connection.a.hip.key: "),
        (BARE.to_owned() + "carriers = []\n", "connection.a.hip.carriers: "),
        (BARE.to_owned() + "esp = []\n", "connection.a.hip.esp: "),
        (BARE.to_owned() + "ciphers = []\n", "connection.a.hip.ciphers: "),
        (BARE.to_owned() + "ciphers = [\"null\", \"null\"]\n", "connection.a.hip.ciphers: "),
        (BARE.to_owned() + "esp = [\"null-sha256\", \"null-sha256\"]\n", "connection.a.hip.esp: "),
        (BARE.to_owned() + "registration = 9\n", "connection.a.hip.registration: 10 s is the least"),
        (BARE.to_owned() + "rendezvous = [\"x\"]\n", "connection.a.hip.rendezvous: no peer is called"),
        (
            BARE.to_owned() + "[connection.a.hip.rendezvous_server]\nclients = [\"x\"]\n",
            "connection.a.hip.rendezvous_server.clients: no peer is called",
        ),
        (
            listed("quirks = [\"none\"]"),
            "connection.a.hip.peers[0].quirks: unknown quirk \"none\"; known are puzzle-",
        ),
        (by_ip(listed("quirks = [\"esp-in-udp\"]")), "connection.a.hip.peers[0].quirks: esp-in-udp needs"),
        (
            listed("").replace(OTHER, "2001:10::1"),
            "connection.a.hip.peers[0].hit: 2001:10::1 is a tag of version 1",
        ),
        (listed("rendezvous = [\"x\"]"), "connection.a.hip.peers[0].rendezvous: no peer is called"),
        (listed("rendezvous = [\"ff02::1\"]"), "connection.a.hip.peers[0].rendezvous: "),
        (listed("name = \"n\"\nrendezvous = [\"n\"]"), "connection.a.hip.peers[0].rendezvous: \"n\" is this"),
        (
            BARE.to_owned() + "rendezvous = [\"n\"]\n" + &listed("name = \"n\"").replace(BARE, ""),
            "connection.a.hip.rendezvous: no address of",
        ),
        (BARE.to_owned() + "relays = [\"x\"]\n", "connection.a.hip.relays: no peer is called"),
        (
            BARE.to_owned()
                + "relays = [\"n\"]\n"
                + &listed("name = \"n\"\naddresses = [\"192.0.2.1\"]").replace(BARE, ""),
            "connection.a.hip.relays: a relay is reached by UDP",
        ),
        (
            BARE.to_owned()
                + "carriers = [\"udp\"]\nrendezvous = [\"n\"]\nrelays = [\"n\"]\n"
                + &listed("name = \"n\"\naddresses = [\"192.0.2.1\"]").replace(BARE, ""),
            "connection.a.hip.relays: 2001:22:a:",
        ),
        (
            by_ip(listed("relays = [\"192.0.2.1\"]")),
            "connection.a.hip.peers[0].relays: a relay is reached by UDP",
        ),
        (
            by_ip(BARE.to_owned()) + "[connection.a.hip.relay_server]\n",
            "connection.a.hip.relay_server: a relay is",
        ),
        (BARE.to_owned() + "lsi_services = [\"tcp/22\"]\n", "connection.a.hip.lsi_services: needs"),
        (
            BARE.to_owned() + "lsi = \"1.0.0.0/8\"\nlsi_services = [\"22\"]\n",
            "connection.a.hip.lsi_services: \"22\"",
        ),
        (listed("lsi = \"1.0.0.1\""), "connection.a.hip.lsi: 2001:22:a:"),
        (BARE.to_owned() + "lsi = \"1.0.0.0/30\"\n", "connection.a.hip.lsi: "),
        (BARE.to_owned() + "lsi = \"0.0.0.0/0\"\n", "connection.a.hip.lsi: 0.0.0.0/0 is none"),
        (BARE.to_owned() + "lsi = \"2.0.0.0/7\"\n", "connection.a.hip.lsi: 2.0.0.0/7 is none"),
        (BARE.to_owned() + "lsi = \"127.1.0.0/16\"\n", "connection.a.hip.lsi: 127.1.0.0/16 is none"),
        (BARE.to_owned() + "lsi = \"224.0.0.0/8\"\n", "connection.a.hip.lsi: 224.0.0.0/8 is none"),
        (
            BARE.to_owned()
                + "lsi = \"192.0.0.0/8\"\n"
                + &listed("addresses = [\"192.0.2.1\"]").replace(BARE, ""),
            "connection.a.hip.lsi: 192.0.2.1 is in",
        ),
        (
            BARE.to_owned()
                + "lsi = \"198.0.0.0/8\"\n"
                + &listed("rendezvous = [\"198.51.100.7\"]").replace(BARE, ""),
            "connection.a.hip.lsi: 198.51.100.7 is in",
        ),
        (
            BARE.to_owned() + "lsi = \"1.0.0.0/8\"\n" + &listed("lsi = \"2.0.0.1\"").replace(BARE, ""),
            "connection.a.hip.lsi: 2.0.0.1",
        ),
        (BARE.to_owned() + "udp_port = 0\n", "connection.a.hip.udp_port: "),
        (BARE.to_owned() + "[connection.a.local]\nid = \"a\"\n", "connection.a.local: means nothing"),
        (BARE.to_owned() + "[connection.a.child]\nesn = false\n", "connection.a.child: means nothing"),
        (BARE.replace("role", "gateway = \"g\"\nrole"), "connection.a.gateway: means nothing"),
        (BARE.replace("role", "local_network = false\nrole"), "connection.a.local_network: means nothing"),
        (BARE.replace(".a", ".b") + BARE, "connection.b.role: a has this role too"),
        (BARE.replace("\"hip\"", "\"gateway\""), "connection.a.hip: is for role"),
        (peer("hit = \"server\""), "connection.a.hip.peers[0].hit: \"server\" is no HIT"),
        (peer("hit = \"2001:23::1\""), "connection.a.hip.peers[0].hit: "),
        (listed("name = \"a b\""), "connection.a.hip.peers[0].name: "),
        (by_ip(listed("carrier = \"udp\"")), "connection.a.hip.peers[0].carrier: "),
        (listed("addresses = [\"2001:22::1\"]"), "connection.a.hip.peers[0].addresses: "),
        (listed("") + &listed("").replace(BARE, ""), "connection.a.hip.peers[1].hit: "),
    ] {
        let error = read(&text, "").expect_err(key);
        assert!(error.starts_with(key), "{error} for {text}");
    }
    let error = read(&(BARE.to_owned() + "hosts = \"h\"\n"), "\nfar 192.0.2.1\n").unwrap_err();
    assert!(error.starts_with("connection.a.hip.hosts: h: line 2: \"far\""), "{error}");
}

/// What is fast is the default, and what encrypts nothing is not.
#[test]
fn carriers_and_ciphers_are_what_is_written() {
    use dormouse_crypto::hip::HipCipher::{Aes128Cbc, Aes256Cbc, Null};
    for (lines, in_udp, ciphers) in [
        ("", true, &[Aes128Cbc, Aes256Cbc][..]),
        ("carriers = [\"udp\", \"ip\"]\nciphers = [\"aes256\"]\n", true, &[Aes256Cbc][..]),
        ("esp_in_udp = \"nat\"\nciphers = [\"null\", \"aes128\"]\n", false, &[Null, Aes128Cbc][..]),
        ("carriers = [\"ip\"]\n", false, &[Aes128Cbc, Aes256Cbc][..]),
        ("carriers = [\"udp\"]\nesp_in_udp = \"auto\"\n", false, &[Aes128Cbc, Aes256Cbc][..]),
    ] {
        let it = read(&format!("{BARE}{lines}"), "").unwrap().unwrap();
        assert_eq!((it.config.esp_in_udp, it.config.ciphers.as_slice()), (in_udp, ciphers), "{lines}");
    }
    let error = read(&format!("{BARE}esp_in_udp = \"always\"\n"), "").unwrap_err();
    assert!(error.contains("esp_in_udp: unknown word, expected `auto` or `nat`"), "{error}");
}

/// Keep-alives are on where HIP is in UDP, and no more often than the RFC permits.
#[test]
fn keepalives_are_what_is_written() {
    use dormouse_hip::Keepalive::{Auto, Every, Off};
    for (lines, wanted) in [
        ("", Auto),
        ("keepalive = \"auto\"\n", Auto),
        ("keepalive = \"off\"\n", Off),
        ("keepalive = 15\n", Every(Duration::from_secs(15))),
        ("keepalive = 120\n", Every(Duration::from_secs(120))),
    ] {
        assert_eq!(read(&format!("{BARE}{lines}"), "").unwrap().unwrap().config.keepalive, wanted);
    }
    let error = read(&format!("{BARE}keepalive = 14\n"), "").unwrap_err();
    assert_eq!(error, "connection.a.hip.keepalive: 15 s is the least");
    assert!(read(&format!("{BARE}keepalive = \"often\"\n"), "").is_err());
}

/// Groups and puzzles are those of the key manager unless they are written, and groups that protect nothing have no name.
#[test]
fn groups_and_puzzles_are_what_is_written() {
    use dormouse_crypto::hip::DhGroup::{self, Ecp256, Modp1536};
    let usual = dormouse_hip::HostConfig::default();
    let it = read(BARE, "").unwrap().unwrap();
    assert_eq!((&it.config.groups, it.config.difficulty), (&usual.groups, usual.difficulty));
    let lines = "groups = [\"modp1536\", \"ecp256\"]\npuzzle = { idle = 9, solve = 30 }\n";
    let it = read(&format!("{BARE}{lines}"), "").unwrap().unwrap();
    assert_eq!(it.config.groups, [Modp1536, Ecp256]);
    let puzzle = it.config.difficulty;
    assert_eq!((puzzle.idle, puzzle.most, puzzle.solve), (9, usual.difficulty.most, 30));
    assert_eq!(puzzle.busy_from, usual.difficulty.busy_from);
    for group in DhGroup::ALL {
        assert!(
            super::algorithms::groups().iter().any(|named| named.group() == group),
            "{group:?} has a name"
        );
    }
    for (lines, problem) in [
        ("groups = []\n", "connection.a.hip.groups: one to six groups are offered, each once"),
        (
            "groups = [\"ecp256\", \"ecp256\"]\n",
            "connection.a.hip.groups: one to six groups are offered, each once",
        ),
        ("puzzle = { idle = 21 }\n", "connection.a.hip.puzzle.most: is less than hip.puzzle.idle"),
        ("puzzle = { solve = 33 }\n", "connection.a.hip.puzzle.solve: 32 is the most"),
        ("puzzle = { most = 33 }\n", "connection.a.hip.puzzle.most: 32 is the most"),
    ] {
        let error = read(&format!("{BARE}{lines}"), "").unwrap_err();
        assert!(error.starts_with(problem), "{error} for {lines}");
    }
    for lines in ["groups = [\"modp384\"]\n", "puzzle = { k = 3 }\n"] {
        assert!(read(&format!("{BARE}{lines}"), "").is_err(), "{lines}");
    }
}

/// A host has several identities, each peer is called by the one that it names, and what cannot be meant is named.
#[test]
fn identities_are_for_the_peers_that_name_them() {
    let keys = [key(), key(), key()];
    let with = |text: &str| {
        let file = parse(text).map_err(|e| e.to_string())?;
        let mut read = |path: &std::path::Path, secret: bool| match path.to_str() {
            Some("k") if secret => Ok(keys[0].clone()),
            Some("guest") if secret => Ok(keys[1].clone()),
            Some("shop") if secret => Ok(keys[2].clone()),
            _ => Err("not there".to_owned()),
        };
        resolve_hip(&file, &mut read).map_err(|e| e.to_string()).map(Option::unwrap)
    };
    let hits = [0, 1, 2].map(|i: usize| identity(&keys[i]).unwrap().hit());
    let two = "identities = [{ name = \"guest\", key = \"guest\" }, { name = \"shop\", key = \"shop\" }]\n";
    let peers = format!(
        "[[connection.a.hip.peers]]\nhit = \"{OTHER}\"\n[[connection.a.hip.peers]]\nhit = \"2001:22::7\"\nidentity = \"shop\"\n"
    );
    let it = with(&format!("{BARE}{two}{peers}")).unwrap();
    assert_eq!(it.identities.iter().map(dormouse_hip::Identity::hit).collect::<Vec<_>>(), hits);
    let named: Vec<_> = hits[1..].iter().map(|hit| it.named[hit].as_str()).collect();
    assert_eq!((named, it.named.len()), (vec!["guest", "shop"], 2));
    let chosen: Vec<_> = it.peers.iter().map(|known| known.identity).collect();
    assert_eq!(chosen, [None, Some(hits[2])]);
    let one =
        |name: &str, file: &str| format!("{BARE}identities = [{{ name = {name:?}, key = {file:?} }}]\n");
    for (text, problem) in [
        (format!("{BARE}{peers}"), "connection.a.hip.peers[1].identity: no identity is called \"shop\""),
        (one("a b", "guest"), "connection.a.hip.identities[0].name: "),
        (one("guest", "none"), "connection.a.hip.identities[0].key: not there"),
        (one("guest", "k"), "connection.a.hip.identities[0].key: k has another identity's key"),
        (
            format!("{BARE}{}", two.replace("\"guest\", key", "\"shop\", key")),
            "connection.a.hip.identities[1].name: ",
        ),
        (
            format!("{BARE}{two}[[connection.a.hip.peers]]\nhit = \"{}\"\n", hits[2]),
            "connection.a.hip.peers[0].hit: ",
        ),
    ] {
        let error = with(&text).unwrap_err();
        assert!(error.starts_with(problem), "{error} for {text}");
    }
}

#[test]
fn a_peer_may_have_a_lifetime() {
    let of = |line: &str| {
        let text = format!("{BARE}[[connection.a.hip.peers]]\nhit = \"{OTHER}\"\n{line}\n");
        read(&text, "").map(|it| it.unwrap().peers.get(tag(OTHER).unwrap()).unwrap().lifetime)
    };
    assert_eq!(of("").unwrap(), None);
    assert_eq!(of("lifetime = 0").unwrap(), None);
    assert_eq!(of("lifetime = 28800").unwrap(), Some(Duration::from_secs(28_800)));
    assert!(of("lifetime = -1").is_err());
}
