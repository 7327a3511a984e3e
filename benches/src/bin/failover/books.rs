//! What is on record about the devices, held against where they are: the tables of the database, and what the gateways list. Owns the rules of a
//! balance; must never change anything.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_crypto::cert::Identity;
use dormouse_ike::ticket::lineage::TicketHolder;
use dormouse_testbed::crowd::device;
use serde_json::Value;

use crate::stage::{NAMES, Stage};

/// The name of the gateways' connection, by which a device is known there.
const CONNECTION: &str = "crowd";
/// What follows a resumption is written so soon: the lease, after the device has its answer.
const SETTLES: Duration = Duration::from_secs(20);
/// Entries that do not balance are said one by one up to so many.
const SAID: usize = 5;

/// The books, by gateway in the order of [`NAMES`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Books {
    /// Rows that say which ticket counts, and at which gateway.
    pub(crate) lineages: [usize; NAMES.len()],
    /// Addresses that have a holder. Which gateway wrote that down says little: one that is used again is written every 64th time.
    pub(crate) leases: usize,
    /// Sessions that a gateway lists; none of one that does not run.
    pub(crate) sessions: [Option<usize>; NAMES.len()],
    /// Sessions that a gateway was told to let go of, and has not yet.
    pub(crate) orders: [usize; NAMES.len()],
    /// What does not balance.
    pub(crate) faults: Vec<String>,
}

/// Reads the books until they balance, for a while: each device has one lineage, at the gateway where it is; one lease, of the address that its tunnel
/// has; and one session, there alone; and no gateway that runs has a session to let go of. `at` says where each device is, by its number.
///
/// # Errors
/// If a book cannot be read. One that does not balance is a fault in what is returned.
pub(crate) fn settle(stage: &Stage, at: &[usize]) -> Result<Books> {
    let until = Instant::now() + SETTLES;
    loop {
        ensure!(!stage.interrupted.load(Ordering::Relaxed), "interrupted");
        let books = read(stage, at)?;
        if books.faults.is_empty() || Instant::now() > until {
            return Ok(books);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn read(stage: &Stage, at: &[usize]) -> Result<Books> {
    let mut books = Books::default();
    let holder = |n: usize| {
        let TicketHolder(hash) = TicketHolder::of(CONNECTION, &Identity::Fqdn(device(n)));
        hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let expected = (0..at.len()).map(|n| (holder(n), vec![NAMES[at[n]].to_owned()])).collect();
    let rows = stage.sql("select encode(holder, 'hex'), gateway from dormouse.lineage")?;
    books.lineages = compare("lineages", &rows, &expected, &mut books.faults);

    let address = |n: usize| stage.crowd.inner(n).map_or_else(|| "none".to_owned(), |a| a.to_string());
    let expected = (0..at.len()).map(|n| (device(n), vec![address(n)])).collect();
    let rows = stage.sql("select encode(id_data, 'escape'), host(v4) from dormouse.lease")?;
    compare("leases", &rows, &expected, &mut books.faults);
    books.leases = rows.lines().count();

    let orders = stage.sql("select gateway, count(*) from dormouse.orders group by gateway")?;
    for (gateway, count) in orders.lines().filter_map(|line| line.split_once('|')) {
        if let Some(n) = NAMES.iter().position(|name| *name == gateway) {
            books.orders[n] = count.parse().unwrap_or(0);
        }
    }
    for (n, name) in NAMES.iter().enumerate() {
        // One that was killed does not answer.
        let Some(listed) = sessions(stage, n)? else { continue };
        books.sessions[n] = Some(listed.len());
        if books.orders[n] > 0 {
            books.faults.push(format!("{name} has not let go of {} sessions", books.orders[n]));
        }
        let mut here: Vec<String> =
            at.iter().enumerate().filter(|(_, at)| **at == n).map(|(device_, _)| device(device_)).collect();
        here.sort_unstable();
        if listed != here {
            books.faults.push(format!(
                "{name} lists {} sessions, and {} devices are there",
                listed.len(),
                here.len()
            ));
        }
    }
    Ok(books)
}

/// Rows of a table whose first column is a key, held against what each key's row should say. Returns in how many the last column is each gateway.
fn compare(
    table: &str,
    rows: &str,
    expected: &BTreeMap<String, Vec<String>>,
    faults: &mut Vec<String>,
) -> [usize; NAMES.len()] {
    let (mut count, mut seen, mut wrong) = ([0; NAMES.len()], BTreeMap::new(), Vec::new());
    for row in rows.lines() {
        let mut cells = row.split('|').map(str::to_owned);
        let (key, rest) = (cells.next().unwrap_or_default(), cells.collect::<Vec<_>>());
        if let Some(n) = rest.last().and_then(|gateway| NAMES.iter().position(|name| name == gateway)) {
            count[n] += 1;
        }
        match (expected.get(&key), seen.insert(key.clone(), ())) {
            (Some(should), None) if *should == rest => {}
            (Some(should), None) => {
                wrong.push(format!("{key} has {}, not {}", rest.join(" "), should.join(" ")))
            }
            (Some(_), Some(())) => wrong.push(format!("{key} has two")),
            (None, _) => wrong.push(format!("{key} is no device's")),
        }
    }
    wrong.extend(expected.keys().filter(|key| !seen.contains_key(*key)).map(|key| format!("{key} has none")));
    if let Some(more) = wrong.len().checked_sub(SAID).filter(|more| *more > 0) {
        wrong.truncate(SAID);
        wrong.push(format!("and {more} more"));
    }
    faults.extend(wrong.into_iter().map(|what| format!("{table}: {what}")));
    count
}

/// The peers of a gateway's sessions, sorted; none if it does not run.
fn sessions(stage: &Stage, gateway: usize) -> Result<Option<Vec<String>>> {
    let status = stage.gateways.get(gateway).context("no such gateway")?.daemon.cli(&["status", "--json"])?;
    if status.code != 0 {
        return Ok(None);
    }
    let listed = status.json.pointer("/result/status/gateway/sessions").and_then(Value::as_array);
    let listed = listed.context("no sessions in the status")?;
    let mut peers: Vec<String> =
        listed.iter().filter_map(|s| s["peer"].as_str().map(str::to_owned)).collect();
    peers.sort_unstable();
    Ok(Some(peers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_too_many_too_few_or_elsewhere_is_a_fault() {
        let expected: BTreeMap<String, Vec<String>> =
            [("a", "gw1"), ("b", "gw2")].map(|(key, at)| (key.to_owned(), vec![at.to_owned()])).into();
        let faults = |rows: &str| {
            let mut faults = Vec::new();
            (compare("t", rows, &expected, &mut faults), faults)
        };
        assert_eq!(faults("a|gw1\nb|gw2"), ([1, 1, 0], vec![]));
        for (rows, said) in [
            ("a|gw1", "t: b has none"),
            ("a|gw1\nb|gw3", "t: b has gw3, not gw2"),
            ("a|gw1\nb|gw2\nb|gw2", "t: b has two"),
            ("a|gw1\nb|gw2\nc|gw2", "t: c is no device's"),
        ] {
            assert_eq!(faults(rows).1, [said], "{rows}");
        }
        let many: String = (0..9).map(|n| format!("x{n}|gw1\n")).collect();
        assert_eq!(faults(&("a|gw1\nb|gw2\n".to_owned() + &many)).1.last().unwrap(), "t: and 4 more");
    }
}
