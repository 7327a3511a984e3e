//! How many resumptions a second the database takes: gateways, each on a thread with its connection, confirm tickets that another one
//! issued (so each also writes an order and rings a bell), in batches, and write the leases that go with them.
//!
//! `cargo run --release -p dormouse-cluster --example confirmations -- URL-OF-OWNER [gateways] [batch] [tickets]`. The database is one
//! that is used for nothing else: what Dormouse has in it is removed.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use dormouse_cluster::admin::{Admin, Owner, role};
use dormouse_cluster::{Database, LeaseChange, LeaseKey, Settings};
use dormouse_crypto::Secret;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, Row, TicketHolder};
use dormouse_keying::SaId;
use dormouse_sansio::{Entropy, Seeded, UnixTime};

const NOW: UnixTime = UnixTime(1_600_000_000);
const LATER: UnixTime = UnixTime(1_600_086_400);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let url = arguments.first().expect("the URL of the database, as its owner").clone();
    let (gateways, batch, tickets) = (number(1, 2), number(2, 64), number(3, 40_000));
    let accounts = block(prepare(&url, gateways));
    let origin = accounts.first().expect("one gateway at least").clone();
    block(async {
        let (mut origin, _) = Database::join(&origin, 0).await.expect("join");
        for first in (0..tickets).step_by(1_000) {
            let rows: Vec<Operation> = (first..(first + 1_000).min(tickets)).map(row).collect();
            origin.run(NOW, &rows).await.expect("insert");
        }
    });
    // The first one only issued; it moves nothing.
    let start = Arc::new(Barrier::new(accounts.len()));
    let threads: Vec<_> = accounts
        .into_iter()
        .skip(1)
        .enumerate()
        .map(|(n, settings)| {
            let start = start.clone();
            std::thread::spawn(move || block(wake(settings, n as u64, gateways, batch, tickets, &start)))
        })
        .collect();
    start.wait();
    // Threads measure by the runtime's clock; the slowest counts.
    let took: Vec<(Duration, Vec<Duration>)> =
        threads.into_iter().map(|t| t.join().expect("a gateway")).collect();
    let slowest = took.iter().map(|(all, _)| *all).max().unwrap_or_default();
    let mut each: Vec<Duration> = took.into_iter().flat_map(|(_, each)| each).collect();
    each.sort_unstable();
    let at = |share: usize| each.get(each.len() * share / 100).or(each.last()).copied().unwrap_or_default();
    let rate = tickets as f64 / slowest.as_secs_f64();
    println!(
        "{gateways} gateways, batches of {batch}: {tickets} confirmations with leases in {slowest:.2?}: {rate:.0}/s; a batch takes {:.2?} (median), {:.2?} (99 %)",
        at(50),
        at(99)
    );
}

fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

async fn prepare(url: &str, gateways: u64) -> Vec<Settings> {
    let owner = Owner { url: url.into(), password: None, authorities: Vec::new() };
    let mut admin = Admin::connect(&owner).await.expect("connect as the owner");
    assert_eq!(admin.version().await.expect("version"), None, "an empty database is needed");
    admin.init(Some(64)).await.expect("init");
    let mut accounts = Vec::new();
    for n in 0..=gateways {
        let gateway = format!("bench{n}");
        let account = admin.add_gateway(&gateway, &mut Seeded::new(n)).await.expect("add a gateway");
        accounts.push(Settings {
            url: url.replacen("postgres@", &format!("{}@", role(&gateway)), 1),
            password: Some(account.password),
            authorities: Vec::new(),
            gateway,
            address: String::new(),
            key: Secret::from([7; 32]),
        });
    }
    accounts
}

/// Spread as random names are.
fn name(ticket: u64) -> Name {
    Name::draw(&mut Seeded::new(ticket) as &mut dyn Entropy)
}

fn user(ticket: u64) -> LeaseKey {
    let identity = (2, format!("user{ticket}.example").into_bytes());
    LeaseKey { connection: "staff".into(), identity, device: 0 }
}

fn row(ticket: u64) -> Operation {
    let mut holder = [0; 32];
    Seeded::new(ticket + 1_000_000).fill(&mut holder);
    Operation::Insert(Row { id: name(ticket), holder: TicketHolder(holder), tip: name(ticket), ends: LATER })
}

async fn wake(
    settings: Settings,
    share: u64,
    gateways: u64,
    batch: u64,
    tickets: u64,
    start: &Barrier,
) -> (Duration, Vec<Duration>) {
    let (mut database, _) = Database::join(&settings, 0).await.expect("join");
    let mine: Vec<u64> = (share..tickets).step_by(usize::try_from(gateways).expect("few")).collect();
    start.wait();
    let began = tokio::time::Instant::now();
    let mut each = Vec::new();
    for wave in mine.chunks(usize::try_from(batch).expect("few")) {
        let asked = tokio::time::Instant::now();
        let confirm = |ticket: &u64| {
            let (lineage, next) = (name(*ticket), name(*ticket + 10_000_000));
            let ends = UnixTime(LATER.0 + 60);
            Operation::Confirm { sa: SaId::new(*ticket), lineage, own: lineage, before: lineage, next, ends }
        };
        let operations: Vec<Operation> = wave.iter().map(confirm).collect();
        let outcomes = database.run(NOW, &operations).await.expect("confirm");
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Done));
        each.push(asked.elapsed());
        let lease = |ticket: &u64| {
            let v4 = std::net::Ipv4Addr::from(0x0a00_0000 + u32::try_from(*ticket).expect("few"));
            LeaseChange::Lease { holder: user(*ticket), v4: Some(v4), v6: None }
        };
        let changes: Vec<LeaseChange> = wave.iter().map(lease).collect();
        database.write_leases(NOW, &changes).await.expect("leases");
    }
    (began.elapsed(), each)
}
