use dormouse_crypto::Secret;
use dormouse_crypto::cert::Issued;
use dormouse_crypto::suites::{Encr, Group, Integ, Prf};
use dormouse_keying::SaId;
use dormouse_sansio::Seeded;
use dormouse_wire::ike::{AuthMethod, Id, IdType, TsRange};

use super::lineage::{Memory, Name, Operation, Outcome, Row, TicketHolder};
use super::*;
use crate::config::{ChildMode, Resumption};
use crate::credential::{Credential, Shown};
use crate::limits;
use crate::proposal::{Additional, EspSuite, IkeSuite};

const NOW: UnixTime = UnixTime(1_700_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

fn content(seed: u64) -> TicketContent {
    TicketContent {
        lineage: Name::draw(&mut Seeded::new(seed)),
        own: Name::draw(&mut Seeded::new(seed + 1)),
        before: Name::draw(&mut Seeded::new(seed + 2)),
        form: Form::Dormouse,
        issued: NOW,
        expires: NOW + DAY,
        authenticated: UnixTime(NOW.0 - 100),
        vouched_until: Some(NOW + WEEK),
        id_i: Id::new(IdType::Rfc822Addr, *b"joe@example.org"),
        peer: "joe@example.org".parse().unwrap(),
        id_r: Id::new(IdType::Fqdn, *b"gateway.example.org"),
        method: AuthMethod::DigitalSignature,
        credential: Credential {
            shown: Shown::Certificates {
                fingerprint: [3; 32],
                names: vec![[1; 8], [2; 8]],
                chain: vec![Issued { issuer_key: [4; 32], serial: vec![5; 20] }],
                anchor: [6; 32],
                lenient: crate::credential::Lenient {
                    usage: dormouse_crypto::cert::Usage::IkeOrServerAuth,
                    sha1: true,
                    unasked: true,
                },
            },
            ppk: Some([9; 16]),
        },
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
        secret: Secret::from([7; 32]),
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
        credential: Some(content.credential.clone()),
        form: content.form,
        secret: content.secret.clone(),
        lineage: Some(content.lineage),
        unheard: 0,
        fingerprint: [8; 16],
        suite: content.suite,
        id_i: content.id_i.clone(),
        id_r: content.id_r.clone(),
        connection: content.connection.clone(),
        gateway: "[2001:db8::1]:500".parse().unwrap(),
        addresses: content.addresses,
        dialect: Resumption::Strict,
    }
}

const HOLDER: TicketHolder = TicketHolder([1; 32]);

/// A lineage whose tip is the SA `tip`, and a ticket of `own`, before which there was `before`.
fn insert(store: &mut Memory, lineage: u8, tip: u8, ends: u64) {
    let (id, tip) = (Name([lineage; 16]), Name([tip; 16]));
    let row = Row { id, holder: HOLDER, tip, ends: NOW + Duration::from_secs(ends) };
    assert_eq!(store.apply(NOW, &Operation::Insert(row)), Outcome::Done);
}

fn confirm(store: &mut Memory, lineage: u8, [own, before, next]: [u8; 3]) -> bool {
    let [lineage, own, before, next] = [lineage, own, before, next].map(|n| Name([n; 16]));
    let (sa, ends) = (SaId::new(1), NOW + DAY);
    store.apply(NOW, &Operation::Confirm { sa, lineage, own, before, next, ends }) == Outcome::Done
}

#[test]
fn a_ticket_counts_while_the_tip_is_its_sa_or_the_one_before() {
    let mut store = Memory::default();
    insert(&mut store, 1, 10, 9);
    assert!(!confirm(&mut store, 2, [10, 10, 11]), "no row, no resumption");
    assert!(confirm(&mut store, 1, [10, 10, 11]), "the ticket of the login");
    assert!(!confirm(&mut store, 1, [10, 10, 12]), "once");
    assert!(confirm(&mut store, 1, [12, 11, 13]), "a ticket of 12, whose confirmation was lost");
    for old in [[11, 10, 14], [12, 11, 14], [14, 12, 15]] {
        assert!(!confirm(&mut store, 1, old), "{old:?} is of a fork, or older");
    }
    let advance = |store: &mut Memory, from: u8, to: u8| {
        let (lineage, from, to) = (Name([1; 16]), Name([from; 16]), Name([to; 16]));
        store.apply(NOW, &Operation::Advance { lineage, from, to, ends: NOW })
    };
    advance(&mut store, 12, 20);
    assert!(confirm(&mut store, 1, [13, 12, 21]), "never advanced blindly");
    advance(&mut store, 21, 22);
    assert!(confirm(&mut store, 1, [22, 21, 23]), "rekeyed");
    store.apply(NOW, &Operation::End { sa: None, lineage: Name([1; 16]), holder: TicketHolder([2; 32]) });
    assert!(confirm(&mut store, 1, [23, 22, 24]), "it is not another holder's to end");
    store.apply(NOW, &Operation::End { sa: None, lineage: Name([1; 16]), holder: HOLDER });
    assert!(!confirm(&mut store, 1, [24, 23, 25]), "logged out");
}

#[test]
fn a_holder_has_few_lineages_and_those_go_that_end_first() {
    let mut store = Memory::default();
    for n in 0..40 {
        insert(&mut store, n, 100, 100 - u64::from(n % 2) * 50 + u64::from(n));
    }
    assert_eq!(store.rows().count(), limits::LINEAGES_PER_HOLDER);
    assert!(confirm(&mut store, 39, [100, 100, 101]), "the newest is there");
    assert!(!confirm(&mut store, 1, [100, 100, 101]), "the one that ends first is not");
    store.apply(NOW, &Operation::EndAll { holder: HOLDER });
    assert_eq!(store.rows().count(), 0);
    insert(&mut store, 1, 100, 10);
    let later = Row { id: Name([2; 16]), holder: HOLDER, tip: Name([100; 16]), ends: NOW + WEEK };
    store.apply(NOW + DAY, &Operation::Insert(later));
    assert_eq!(store.rows().count(), 1, "what has ended goes with the next login");
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
fn keys_of_a_store_seal_from_their_time_on_and_open_until_theirs() {
    let key = |id: u64, day: u32| SharedKey {
        id,
        seals_from: NOW + DAY * day,
        opens_until: NOW + DAY * (day + 8),
        secret: [id as u8; 32],
    };
    // In any order, and the next one before it seals.
    let mut here = TicketKeys::shared(vec![key(2, 1), key(1, 0)]);
    let there = TicketKeys::shared(vec![key(1, 0), key(2, 1)]);
    let mut entropy = Seeded::new(3);
    let issued = |day: u32| TicketContent { issued: NOW + DAY * day, expires: NOW + WEEK * 9, ..content(5) };
    let id = |ticket: &[u8]| u64::from_be_bytes(ticket[1..9].try_into().unwrap());
    let first = here.seal(&issued(0), &mut entropy).unwrap();
    let second = here.seal(&issued(1), &mut entropy).unwrap();
    assert_eq!((id(&first), id(&second)), (1, 2));
    assert_eq!(there.open(&first, NOW).unwrap(), issued(0), "at another gateway");
    let last = UnixTime((NOW + DAY * 8).0 - 1);
    assert!(!here.rotate(last, &mut entropy) && here.open(&first, last).is_ok());
    assert!(!here.rotate(NOW + DAY * 8, &mut entropy), "none is made, nothing is to be stored");
    assert_eq!(here.open(&first, NOW + DAY * 8), Err(TicketRefusal::UnknownKey(1)));
    assert!(here.open(&second, NOW + DAY * 8).is_ok());
    here.rotate(NOW + DAY * 9, &mut entropy);
    // A gateway that was cut off for long gives no tickets, and one whose clock is behind.
    let why = here.seal(&issued(9), &mut entropy).unwrap_err().to_string();
    assert!(why.contains("no ticket key of the gateways' database is for this time"), "{why}");
    let early = TicketContent { issued: UnixTime(NOW.0 - 1), ..issued(0) };
    assert_eq!(there.seal(&early, &mut entropy), Err(SealError::NoKey));
}

#[test]
fn another_gateways_ticket_names_its_unknown_key() {
    let ticket = keys().seal(&content(5), &mut Seeded::new(2)).unwrap();
    let other = TicketKeys::generate(NOW, DAY, WEEK, &mut Seeded::new(99));
    let id = u64::from_be_bytes(ticket[1..9].try_into().unwrap());
    assert_eq!(other.open(&ticket, NOW), Err(TicketRefusal::UnknownKey(id)));
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
    let version = TicketFormatError::Version { got: 9, expect: 6 };
    assert_eq!(ClientTicket::decode(&longer), Err(version));
    assert!(ticket.is_valid(NOW) && !ticket.is_valid(NOW + DAY));
    assert!(!ClientTicket { unheard: 2, ..client() }.is_valid(NOW), "two sessions heard nothing");
    let mut refused = client();
    refused.refused();
    assert!(!refused.is_valid(NOW) && refused.lineage == ticket.lineage);
    assert_eq!(ClientTicket::decode(refused.encode().as_bytes()), Ok(refused));
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
            crate::fuzz::lineages(&bytes);
            crate::fuzz::reassembly(&bytes);
        }
    }
}

fn entropy_below(entropy: &mut Seeded, bound: usize) -> u64 {
    use dormouse_sansio::Entropy;
    entropy.below(bound as u64)
}
