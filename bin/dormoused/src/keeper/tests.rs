use super::*;
use crate::lineages;
use dormouse_ike::ticket::lineage::{Memory, Name, Row, TicketHolder};
use dormouse_io::store::Database;
use dormouse_keying::SaId;
use dormouse_node::pool::{Addresses, Lessee};
use dormouse_sansio::{Entropy, Seeded, UnixTime};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// A database of this test's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let scratch =
            Self(std::env::temp_dir().join(format!("dormoused-lineages-{}-{name}", std::process::id())));
        std::fs::create_dir_all(&scratch.0).unwrap();
        Database::open(&scratch.file(), &|_| None).unwrap();
        scratch
    }

    fn file(&self) -> PathBuf {
        self.0.join("gateway.db")
    }

    fn open(&self) -> lineages::Own {
        lineages::open(&self.file()).unwrap()
    }

    fn leases(&self) -> Leases {
        Leases(Database::open(&self.file(), &|_| None).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Any operation on few lineages, so that they meet.
fn any(rng: &mut Seeded, now: UnixTime) -> Operation {
    let mut name = |kinds: u64| Name([u8::try_from(rng.below(kinds)).unwrap(); 16]);
    let (lineage, own, before, next) = (name(40), name(4), name(4), name(4));
    let holder = TicketHolder([u8::try_from(rng.below(2)).unwrap(); 32]);
    let ends = now + Duration::from_secs(rng.below(200));
    match rng.below(20) {
        0..=7 => Operation::Insert(Row { id: lineage, holder, tip: own, ends }),
        8..=14 => Operation::Confirm { sa: SaId::new(1), lineage, own, before, next, ends },
        15..=17 => Operation::Advance { lineage, from: own, to: next, ends },
        18 => Operation::End { sa: None, lineage, holder },
        _ if rng.below(20) == 0 => Operation::EndAll { holder },
        _ if rng.below(40) == 0 => Operation::EndEvery,
        _ => Operation::End { sa: None, lineage, holder },
    }
}

#[test]
fn the_database_does_what_the_rules_say_and_survives_its_process() {
    let scratch = Scratch::new("rules");
    let mut rng = Seeded::new(7);
    let (mut store, mut rules) = (scratch.open(), Memory::default());
    let mut superseded = 0;
    for round in 0..400 {
        let now = UnixTime(1_800_000_000 + round);
        let batch: Vec<Operation> = (0..1 + rng.below(8)).map(|_| any(&mut rng, now)).collect();
        let expected: Vec<Outcome> = batch.iter().map(|operation| rules.apply(now, operation)).collect();
        assert_eq!(store.run(now, &batch).unwrap(), expected, "round {round}: {batch:?}");
        superseded += expected.iter().filter(|o| **o == Outcome::Superseded).count();
        if round % 50 == 0 {
            store = scratch.open();
        }
    }
    assert!(superseded > 50, "{superseded}");
}

#[test]
fn who_waits_is_told_and_everything_is_written_before_the_end() {
    let scratch = Scratch::new("keeper");
    let row = |n: u8| Row {
        id: Name([n; 16]),
        holder: TicketHolder([1; 32]),
        tip: Name([100; 16]),
        ends: UnixTime(u64::from(u32::MAX)),
    };
    let confirm = |sa: u64, n: u8| Operation::Confirm {
        sa: SaId::new(sa),
        lineage: Name([n; 16]),
        own: Name([100; 16]),
        before: Name([100; 16]),
        next: Name([101; 16]),
        ends: UnixTime(0),
    };
    let mut keeper = Keeper::new(scratch.open(), scratch.leases()).unwrap();
    keeper.put(Operation::Insert(row(1)));
    (1..=2).for_each(|sa| keeper.put(confirm(sa, 1)));
    let mut heard = Vec::new();
    while heard.len() < 2 {
        std::thread::yield_now();
        heard.extend(keeper.next());
    }
    let told = |sa, outcome| Report::Outcome(SaId::new(sa), outcome);
    assert_eq!(heard, [told(1, Outcome::Done), told(2, Outcome::Superseded)]);
    (2..30).for_each(|n| keeper.put(Operation::Insert(row(n))));
    drop(keeper);
    assert_eq!(scratch.open().run(UnixTime(0), &[confirm(3, 29)]).unwrap(), [Outcome::Done]);
}

/// A store that fails as long as the test wants.
struct Broken(std::sync::mpsc::Receiver<()>, Memory);

impl Store for Broken {
    type Error = &'static str;

    fn run(&mut self, now: UnixTime, operations: &[Operation]) -> Result<Vec<Outcome>, Self::Error> {
        match self.0.try_recv() {
            Ok(()) => Err("the disk is full"),
            Err(_) => Ok(operations.iter().map(|operation| self.1.apply(now, operation)).collect()),
        }
    }
}

#[test]
fn a_store_that_fails_is_reported_and_what_no_sa_waits_for_is_done_later() {
    let (fail, fails) = channel();
    fail.send(()).unwrap();
    let scratch = Scratch::new("broken");
    let mut keeper = Keeper::new(Broken(fails, Memory::default()), scratch.leases()).unwrap();
    let (lineage, holder) = (Name([1; 16]), TicketHolder([1; 32]));
    keeper.put(Operation::End { sa: Some(SaId::new(1)), lineage, holder });
    let mut heard = Vec::new();
    while !heard.contains(&Report::Reachable(true)) {
        std::thread::yield_now();
        heard.extend(keeper.next());
    }
    let sa = SaId::new(1);
    let told = [Report::Outcome(sa, Outcome::Failed), Report::Reachable(false)];
    assert_eq!(heard[..2], told, "at once");
    assert_eq!(
        heard[2..],
        [Report::Outcome(sa, Outcome::Done), Report::Reachable(true)],
        "and written later"
    );
}

#[test]
fn a_mark_is_reported_when_all_before_it_is_on_the_disk_and_not_before() {
    let (fail, fails) = channel();
    fail.send(()).unwrap();
    let scratch = Scratch::new("mark");
    let mut keeper = Keeper::new(Broken(fails, Memory::default()), scratch.leases()).unwrap();
    let until = |keeper: &mut Keeper, mark| {
        let mut heard = Vec::new();
        while !heard.contains(&Report::Written(mark)) {
            std::thread::yield_now();
            heard.extend(keeper.next());
        }
        heard
    };
    keeper.put(Operation::EndEvery);
    let mark = keeper.mark();
    let heard = until(&mut keeper, mark);
    let at = |report| heard.iter().position(|r| *r == report);
    assert!(
        at(Report::Reachable(false)).is_some_and(|failed| Some(failed) < at(Report::Written(mark))),
        "{heard:?}"
    );
    // Nothing is to be done.
    let next = keeper.mark();
    assert!(next > mark && until(&mut keeper, next).contains(&Report::Written(next)));
}

fn lessee(who: &str) -> Lessee {
    Lessee::new("office".into(), (2, who.as_bytes().to_vec()), 0).expect("an identity")
}

fn lease(who: &str, last: u8) -> Change {
    Change::Lease {
        holder: lessee(who),
        addresses: Addresses { v4: Some([10, 55, 0, last].into()), v6: None },
    }
}

/// What is said up to the lease of this number.
fn until_leased(keeper: &mut Keeper, number: u64) -> Vec<Report> {
    let mut heard = Vec::new();
    while !heard.contains(&Report::Leased(number)) {
        std::thread::yield_now();
        heard.extend(keeper.next());
    }
    heard
}

#[test]
fn a_lease_is_on_the_disk_when_it_is_said_to_be_and_the_last_before_the_end() {
    let scratch = Scratch::new("leases");
    let who = || -> Vec<(Vec<u8>, Option<Ipv4Addr>)> {
        let leases = scratch.leases().0.leases().unwrap();
        leases.into_iter().map(|lease| (lease.holder.identity.1, lease.v4)).collect()
    };
    let mut keeper = Keeper::new(scratch.open(), scratch.leases()).unwrap();
    keeper.lease(1, lease("a", 9));
    until_leased(&mut keeper, 1);
    assert_eq!(who(), [(b"a".to_vec(), Some([10, 55, 0, 9].into()))]);
    // The address goes to another.
    keeper.lease(2, Change::Evict { holder: lessee("a") });
    keeper.lease(3, lease("b", 9));
    until_leased(&mut keeper, 3);
    assert_eq!(who(), [(b"b".to_vec(), Some([10, 55, 0, 9].into()))]);
    keeper.lease(4, lease("c", 10));
    assert_eq!(keeper.finish().last(), Some(&Report::Leased(4)));
    assert_eq!(who().len(), 2);
}

#[test]
fn who_waits_for_a_lease_is_not_kept_by_a_disk_that_is_full() {
    let scratch = Scratch::new("full");
    let mut leases = scratch.leases();
    leases.0.limit(1).unwrap();
    // Until the disk is full. What did not fit is in every later transaction, so nothing is written any more.
    let mut more =
        (0..400).map(|n| lease(&format!("{n}{}", "x".repeat(100)), u8::try_from(n % 250).unwrap()));
    let fits = more.by_ref().take_while(|change| write_one(&mut leases, change)).count();
    let mut keeper = Keeper::new(scratch.open(), leases).unwrap();
    let numbers = 1..=u64::try_from(more.len()).unwrap();
    assert!(!numbers.is_empty(), "the file never was full");
    for (n, change) in numbers.clone().zip(more) {
        keeper.lease(n, change);
    }
    until_leased(&mut keeper, *numbers.end());
    assert_eq!(scratch.leases().0.leases().unwrap().len(), fits);
}

/// Whether this change could be written.
fn write_one(leases: &mut Leases, change: &Change) -> bool {
    let mut changes = Changes::default();
    changes.put(UnixTime(1_800_000_000), 1, change.clone());
    leases.write(changes).1.is_ok()
}
