//! The database is lost after that: its server is killed, and the standby that has most of its log is promoted. Owns what an administrator does then,
//! and what is demanded of each device.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dormouse_testbed::crowd::Task;

use crate::books::{self, Books};
use crate::pulled::{self, GONE, Story};
use crate::stage::{AT_ONCE, NAMES, STANDBYS, Stage, require_standbys};

/// A gateway that has lost its server finds another one in this time.
const FINDS: Duration = Duration::from_secs(60);

/// What became of the devices.
#[derive(Debug)]
pub(crate) struct Promotion {
    /// Tickets that had not been used and were shown afterwards, by their devices and by who had copied them: none counts.
    pub(crate) refused: usize,
    /// How often all tickets were made worthless.
    pub(crate) emptied: u64,
    /// The books when all have logged in, and when all have come back by the tickets that they got then.
    pub(crate) after: [Books; 2],
}

/// Lets it happen to what is there at the end of a story, of which one standby was killed on the way.
///
/// # Errors
/// If a ticket counts that should not, or a device does not come back.
pub(crate) fn tell(stage: &mut Stage, story: &Story) -> Result<Promotion> {
    let devices = story.at.len();
    let at: Vec<usize> = (0..devices).map(|n| story.at.get(n).copied().unwrap_or(GONE)).collect();
    let (one, other) = (STANDBYS.len() - 1, 0);
    stage.standbys[one].go()?;
    caught_up(stage)?;
    // Copies of tickets that count, and would if the promoted server had forgotten no more than it says.
    let copied: Vec<usize> = (0..devices).take(story.tried).collect();
    for (n, owner) in copied.iter().enumerate() {
        stage.crowd.copy_ticket(*owner, devices + n)?;
    }
    stage.database.kill();
    let next = if received(stage, one)? > received(stage, other)? { one } else { other };
    let left = one + other - next;
    stage.standbys[next].promote()?;
    stage.standbys[left].follow(&stage.standbys[next], STANDBYS[left].0)?;
    require_standbys(&stage.standbys[next])?;
    std::mem::swap(&mut stage.database, &mut stage.standbys[next]);
    found(stage)?;

    let mut refused = 0;
    let owners = (0..devices).map(|device| (device, Task::Quick));
    let all: Vec<(usize, Task)> =
        owners.chain((0..copied.len()).map(|n| (devices + n, Task::Quick))).collect();
    for (n, owner) in copied.iter().enumerate() {
        stage.turn_to(devices + n, at[*owner])?;
    }
    for some in all.chunks(AT_ONCE) {
        let outcome = stage.crowd.release(some, || ())?;
        ensure!(outcome.done.is_empty(), "{} tickets of before count still", outcome.done.len());
        pulled::is_superseded(&outcome.failed)?;
        refused += outcome.failed.len();
    }
    stage.log_in(0..devices)?;
    let logged_in = books::settle(stage, &at)?;

    // Tickets of after count, once.
    for (n, owner) in copied.iter().enumerate() {
        stage.crowd.copy_ticket(*owner, devices + n)?;
    }
    let all: Vec<(usize, Task)> = (0..devices).map(|device| (device, Task::Quick)).collect();
    for some in all.chunks(AT_ONCE) {
        let outcome = stage.crowd.release(some, || ())?;
        if let Some((device, why)) = outcome.failed.first() {
            bail!("device {device} does not come back by its new ticket: {why}\n{}", stage.logs());
        }
    }
    pulled::again(stage, &copied, devices, &at)?;
    let resumed = books::settle(stage, &at)?;
    let emptied = stage.sql("select incarnation - 1 from dormouse.cluster")?;
    Ok(Promotion { refused, emptied: emptied.parse()?, after: [logged_in, resumed] })
}

/// Waits until all standbys follow again.
fn caught_up(stage: &Stage) -> Result<()> {
    until(stage, "the standby that was killed follows again", || {
        let following = "select count(*) from pg_stat_replication where state = 'streaming' and replay_lsn = pg_current_wal_lsn()";
        Ok(stage.sql(following)? == STANDBYS.len().to_string())
    })
}

/// How much of the log a standby has.
fn received(stage: &Stage, standby: usize) -> Result<u64> {
    let said = stage.standbys[standby].sql(
        "postgres",
        "select pg_wal_lsn_diff(coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')",
    )?;
    said.parse().with_context(|| format!("a place in the log: {said:?}"))
}

/// Waits until the gateways that run have found the server that takes writes, and let tickets count again.
fn found(stage: &Stage) -> Result<()> {
    let running = || stage.gateways.iter().take(NAMES.len()).enumerate().filter(|(n, _)| *n != GONE);
    let reaches = |log: String| {
        let [lost, again] = ["until the database can be reached", "the database is reached again"]
            .map(|words| log.rfind(words));
        lost < again
    };
    until(stage, "the gateways find the promoted server", || {
        let there = stage.sql("select count(*) from pg_stat_activity where usename like 'dormouse_gw%'")?;
        Ok(there == running().count().to_string()
            && running().all(|(_, gateway)| reaches(gateway.daemon.log())))
    })
}

fn until(stage: &Stage, what: &str, done: impl Fn() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + FINDS;
    while !done()? {
        ensure!(!stage.interrupted.load(Ordering::Relaxed), "interrupted");
        ensure!(Instant::now() < end, "not in time: {what}\n{}", stage.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
