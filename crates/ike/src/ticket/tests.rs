use dormouse_crypto::Secret;
use dormouse_crypto::suites::{Encr, Group, Integ, Prf};
use dormouse_sansio::Seeded;
use dormouse_wire::ike::{AuthMethod, Id, IdType, TsRange};

use super::*;
use crate::config::{ChildMode, Resumption};
use crate::limits;
use crate::proposal::{Additional, EspSuite, IkeSuite};

const NOW: UnixTime = UnixTime(1_700_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

fn content(seed: u64) -> TicketContent {
    TicketContent {
        id: TicketId::draw(&mut Seeded::new(seed)),
        issued: NOW,
        expires: NOW + DAY,
        authenticated: UnixTime(NOW.0 - 100),
        vouched_until: Some(NOW + WEEK),
        id_i: Id::new(IdType::Rfc822Addr, *b"joe@example.org"),
        id_r: Id::new(IdType::Fqdn, *b"gateway.example.org"),
        method: AuthMethod::DigitalSignature,
        suite: IkeSuite {
            encr: Encr::Aes256Gcm16,
            integ: None,
            prf: Prf::HmacSha256,
            group: Group::X25519,
            additional: Additional::from_places([
                Some(Group::MlKem768),
                None,
                Some(Group::Ecp384),
                None,
                None,
                None,
                None,
            ]),
        },
        sk_d: Secret::from([7; 32]),
        spi_i: 1,
        spi_r: 2,
        connection: "road".to_owned(),
        addresses: vec!["10.1.2.3".parse().unwrap(), "2001:db8::3".parse().unwrap()],
        children: vec![TicketChild {
            name: "net".to_owned(),
            suite: EspSuite {
                encr: Encr::Aes256Cbc,
                integ: Some(Integ::HmacSha256_128),
                group: Some(Group::Ecp256),
                additional: Additional::NONE,
                esn: true,
            },
            mode: ChildMode::Tunnel,
            ts_local: vec![TsRange::any_v4(), TsRange::any_v6()],
            ts_remote: vec![TsRange::addresses("10.1.2.3".parse().unwrap(), "10.1.2.3".parse().unwrap())],
        }],
    }
}

fn keys() -> TicketKeys {
    TicketKeys::generate(NOW, DAY, WEEK, &mut Seeded::new(1))
}

fn client() -> ClientTicket {
    let content = content(5);
    ClientTicket {
        child: content.children.first().cloned(),
        opaque: Secret::from(keys().seal(&content, &mut Seeded::new(2)).unwrap()),
        expires: content.expires,
        authenticated: content.authenticated,
        vouched_until: None,
        sk_d: content.sk_d.clone(),
        suite: content.suite,
        id_i: content.id_i.clone(),
        id_r: content.id_r.clone(),
        spis: (1, 2),
        connection: content.connection.clone(),
        gateway: "[2001:db8::1]:500".parse().unwrap(),
        addresses: content.addresses,
        dialect: Resumption::Strict,
    }
}

#[test]
fn a_revocation_ends_every_ticket_that_its_holder_had_and_no_other() {
    let holder = |c: &TicketContent| Holder::of(&c.connection, "joe@example.org");
    let (old, other) =
        (content(5), TicketContent { id_i: Id::new(IdType::Fqdn, *b"eve.example.org"), ..content(6) });
    let descendant = TicketContent { issued: NOW + DAY, expires: NOW + WEEK, ..content(7) };
    let elsewhere = TicketContent { connection: "another".to_owned(), ..content(8) };
    let anew = TicketContent { authenticated: NOW, ..content(9) };
    let mut guard = TicketGuard::new();
    let record = guard.revoke(&holder(&old), NOW, NOW, NOW + WEEK).unwrap();
    for guard in
        [&guard, &TicketGuard::load(record.as_bytes(), NOW), &TicketGuard::load(&guard.export(), NOW)]
    {
        for mine in [&old, &descendant] {
            assert_eq!(guard.check(mine, NOW), Err(TicketRefusal::Revoked));
        }
        for good in [&other, &elsewhere, &anew] {
            assert_eq!(guard.check(good, NOW), Ok(()));
        }
    }
    assert_eq!(guard.spend(&old, NOW), Err(TicketRefusal::Revoked), "also one that was let through before");
    guard.spend(&anew, NOW + WEEK).unwrap();
    assert_eq!(guard.len(), 1, "forgotten when the last of them has expired");
}

#[test]
fn a_ticket_opens_to_what_was_sealed() {
    let ticket = keys().seal(&content(5), &mut Seeded::new(2)).unwrap();
    assert_eq!(keys().open(&ticket, NOW).unwrap(), content(5));
    assert!(ticket.len() < 1_024, "fits in one datagram beside the rest: {}", ticket.len());
}

#[test]
fn every_changed_bit_and_every_cut_is_refused() {
    let ticket = keys().seal(&content(5), &mut Seeded::new(2)).unwrap();
    for i in 0..ticket.len() {
        for bit in 0..8 {
            let mut bad = ticket.clone();
            bad[i] ^= 1 << bit;
            assert!(keys().open(&bad, NOW).is_err(), "bit {bit} of byte {i}");
        }
        assert!(keys().open(&ticket[..i], NOW).is_err(), "cut to {i}");
    }
    let mut long = ticket;
    long.resize(limits::TICKET_MAX + 1, 0);
    assert_eq!(keys().open(&long, NOW), Err(TicketRefusal::Length(limits::TICKET_MAX + 1)));
}

#[test]
fn time_is_checked_at_both_ends() {
    let ticket = keys().seal(&content(5), &mut Seeded::new(2)).unwrap();
    let last = UnixTime((NOW + DAY).0 - 1);
    assert!(keys().open(&ticket, last).is_ok());
    assert_eq!(keys().open(&ticket, NOW + DAY), Err(TicketRefusal::Expired(0)));
    assert!(keys().open(&ticket, UnixTime(NOW.0 - 30)).is_ok(), "a corrected clock");
    assert_eq!(keys().open(&ticket, UnixTime(NOW.0 - 31)), Err(TicketRefusal::NotYetValid(31)));
}

#[test]
fn rotations_are_survived_until_every_ticket_of_a_key_has_expired() {
    let mut keys = keys();
    let mut entropy = Seeded::new(3);
    let ticket = keys.seal(&TicketContent { expires: NOW + WEEK * 3, ..content(5) }, &mut entropy).unwrap();
    assert!(!keys.rotate(UnixTime((NOW + DAY).0 - 1), &mut entropy), "not due");
    for day in 1..=7 {
        assert!(keys.rotate(NOW + DAY * day, &mut entropy), "day {day}");
        assert!(keys.open(&ticket, NOW + DAY * day).is_ok(), "day {day}");
    }
    // The successor was born on day 1; tickets live a week at most.
    assert!(keys.rotate(NOW + DAY * 9, &mut entropy));
    assert!(matches!(keys.open(&ticket, NOW + DAY * 9), Err(TicketRefusal::UnknownKey(_))));
}

#[test]
fn keys_survive_a_restart_and_stay_bounded() {
    let mut keys = TicketKeys::generate(NOW, Duration::from_secs(1), WEEK, &mut Seeded::new(1));
    let mut entropy = Seeded::new(4);
    for second in 1..100 {
        keys.rotate(NOW + Duration::from_secs(second), &mut entropy);
    }
    let ticket = keys.seal(&content(5), &mut entropy).unwrap();
    let again = TicketKeys::import(keys.export().as_bytes(), DAY, WEEK).unwrap();
    assert_eq!(again.open(&ticket, NOW).unwrap(), content(5));
    assert_eq!(again.export(), keys.export());
    let one = 8 + 8 + 32;
    assert_eq!(keys.export().len(), 2 + one * (limits::TICKET_KEYS_RETIRED_MAX + 1));
    assert!(matches!(TicketKeys::import(&[1, 0], DAY, WEEK), Err(KeyExportError::Empty)));
    let export = keys.export();
    for i in 0..export.len() {
        assert!(TicketKeys::import(&export.as_bytes()[..i], DAY, WEEK).is_err(), "cut to {i}");
    }
}

#[test]
fn another_gateways_ticket_names_its_unknown_key() {
    let ticket = keys().seal(&content(5), &mut Seeded::new(2)).unwrap();
    let other = TicketKeys::generate(NOW, DAY, WEEK, &mut Seeded::new(99));
    let id = u64::from_be_bytes(ticket[1..9].try_into().unwrap());
    assert_eq!(other.open(&ticket, NOW), Err(TicketRefusal::UnknownKey(id)));
}

#[test]
fn a_ticket_is_accepted_once_also_after_a_restart() {
    let mut guard = TicketGuard::new();
    let (a, b) = (content(5), content(6));
    assert_eq!(guard.check(&a, NOW), Ok(()));
    let record = guard.spend(&a, NOW).unwrap();
    assert_eq!(guard.spend(&a, NOW), Err(TicketRefusal::Spent));
    assert_eq!(guard.check(&a, NOW), Err(TicketRefusal::Spent));
    assert_eq!(guard.check(&b, NOW), Ok(()), "another ticket");

    let mut file = record.as_bytes().to_vec();
    file.extend_from_slice(&guard.spend(&b, NOW).unwrap().as_bytes()[..10]);
    let after_crash = TicketGuard::load(&file, NOW);
    assert_eq!(after_crash.check(&a, NOW), Err(TicketRefusal::Spent));
    assert_eq!(after_crash.check(&b, NOW), Ok(()), "its record was cut short: never answered");
    assert_eq!(TicketGuard::load(&guard.export(), NOW).len(), 2);
    assert!(TicketGuard::load(&guard.export(), NOW + DAY).is_empty(), "expired records are useless");
}

#[test]
fn a_full_memory_refuses_rather_than_forgets() {
    let mut guard = TicketGuard::new();
    for i in 0..limits::TICKETS_SPENT_MAX {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(i as u64).to_be_bytes());
        guard.spend(&TicketContent { id: TicketId(id), ..content(5) }, NOW).unwrap();
    }
    let one_more = content(6);
    let full = Err(TicketRefusal::MemoryFull(limits::TICKETS_SPENT_MAX));
    assert_eq!(guard.check(&one_more, NOW), full);
    let later = TicketContent { expires: NOW + DAY * 3, ..one_more };
    assert!(guard.spend(&later, NOW + DAY).is_ok(), "the others have expired");
    assert_eq!(guard.len(), 1);
}

#[test]
fn a_ticket_never_outlives_reauthentication() {
    let hours = |h: u64| Duration::from_secs(h * 3_600);
    let later = NOW + hours(5);
    assert_eq!(lifetime(hours(4), None, NOW, None, later), hours(4));
    assert_eq!(lifetime(hours(4), Some(hours(24)), NOW, None, later), hours(4));
    assert_eq!(lifetime(hours(4), Some(hours(8)), NOW, None, later), hours(3));
    assert_eq!(lifetime(hours(4), Some(hours(5)), NOW, None, later), Duration::ZERO);
    assert_eq!(lifetime(hours(4), Some(hours(8)), NOW, Some(later + hours(1)), later), hours(1));
    assert_eq!(
        lifetime(hours(4), None, NOW, Some(NOW), later),
        Duration::ZERO,
        "the certificate has expired"
    );
}

#[test]
fn the_stored_form_comes_back_whole_or_not_at_all() {
    let ticket = client();
    let stored = ticket.encode();
    assert_eq!(ClientTicket::decode(stored.as_bytes()).unwrap(), ticket);
    for i in 0..stored.len() {
        assert!(ClientTicket::decode(&stored.as_bytes()[..i]).is_err(), "cut to {i}");
    }
    let mut longer = stored.as_bytes().to_vec();
    longer.push(0);
    assert!(ClientTicket::decode(&longer).is_err());
    longer[3] = 9;
    let version = TicketFormatError::Version { got: 9, expect: 4 };
    assert_eq!(ClientTicket::decode(&longer), Err(version));
    assert!(ticket.is_valid(NOW) && !ticket.is_valid(NOW + DAY));
}

#[test]
fn nothing_shows_a_secret() {
    let shown = format!("{:?} {:?} {:?}", client(), content(5), keys());
    assert!(!shown.contains("[7, 7") && !shown.contains("0707"), "{shown}");
}

#[test]
fn any_bytes_are_decoded_without_harm() {
    let mut entropy = Seeded::new(8);
    let (content, stored) = (content(5).fuzz_encode(), client().encode());
    for round in 0..20_000 {
        for valid in [content.as_slice(), stored.as_bytes()] {
            let mut bytes = valid.to_vec();
            for _ in 0..1 + round % 3 {
                let at = usize::try_from(entropy_below(&mut entropy, bytes.len())).unwrap();
                bytes[at] = u8::try_from(entropy_below(&mut entropy, 256)).unwrap();
            }
            crate::fuzz::ticket_content(&bytes);
            crate::fuzz::client_ticket(&bytes);
            crate::fuzz::ticket_guard(&bytes);
            crate::fuzz::reassembly(&bytes);
        }
    }
}

fn entropy_below(entropy: &mut Seeded, bound: usize) -> u64 {
    use dormouse_sansio::Entropy;
    entropy.below(bound as u64)
}
