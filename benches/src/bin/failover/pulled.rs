//! A gateway is pulled out: its process is killed, and its devices come to the others at once, by ticket. Owns the order of what happens, and what is
//! demanded of each device; what is on record afterwards is [`crate::books`]'.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_benches::thread_cpu;
use dormouse_ike::CloseReason;
use dormouse_lab::results::Figures;
use dormouse_testbed::crowd::{Done, Task};
use dormouse_wire::ike::dormancy::Refused;

use crate::books::{self, Books};
use crate::stage::{AT_ONCE, Load, NAMES, Stage};

/// Devices expect to sleep for so long.
const AWAY: Duration = Duration::from_secs(3_600);
/// The gateway that is pulled out.
pub(crate) const GONE: usize = 0;
/// Tickets that were used are used again for so many devices at most.
const TRIED: usize = 100;

/// Who is where when it happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) devices: usize,
    /// All are at the gateway that is pulled out, or a third of them.
    pub(crate) all_there: bool,
    /// Every device sleeps, or every second one.
    pub(crate) all_asleep: bool,
    /// The database has standbys, of which one must have each commit; or none.
    pub(crate) followed: bool,
    /// One of the standbys is killed while devices come back.
    pub(crate) one_dies: bool,
}

/// What happened.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) asleep: usize,
    /// How long all logins took.
    pub(crate) logins: Duration,
    pub(crate) before: Books,
    /// The devices that came to another gateway, with the times of each, in the order in which they were back.
    pub(crate) back: Vec<Done>,
    /// Where each device is afterwards.
    pub(crate) at: Vec<usize>,
    /// Processor time meanwhile: of the gateways, the database, the crowd.
    pub(crate) gateways: [Duration; NAMES.len()],
    pub(crate) database: Duration,
    pub(crate) crowd: Duration,
    pub(crate) load: Load,
    /// IKE messages that devices sent again.
    pub(crate) repeated: u64,
    /// Used tickets that were used again.
    pub(crate) tried: usize,
    pub(crate) after: Books,
}

impl Plan {
    /// Where each device logs in.
    fn homes(self) -> Vec<usize> {
        let home = |device: usize| if self.all_there { GONE } else { device % NAMES.len() };
        (0..self.devices).map(home).collect()
    }

    /// Where each device is afterwards: those of the gateway that is gone go to the others in turn.
    fn moved(self) -> Vec<usize> {
        let others: Vec<usize> = (0..NAMES.len()).filter(|n| *n != GONE).collect();
        let mut next = others.iter().copied().cycle();
        self.homes()
            .into_iter()
            .map(|home| if home == GONE { next.next().unwrap_or(home) } else { home })
            .collect()
    }
}

/// Builds a stage and lets it happen. Whether the books balance is for the caller to judge; all else that is wrong is an error.
///
/// # Errors
/// If the stage cannot be built, a device does not come back by its ticket or with another address, or a used ticket is taken.
pub(crate) fn tell(plan: Plan, interrupted: &Arc<AtomicBool>) -> Result<(Story, Stage)> {
    let (homes, at) = (plan.homes(), plan.moved());
    let moving: Vec<usize> = (0..plan.devices).filter(|n| homes[*n] == GONE).collect();
    let tried = moving.len().min(TRIED);
    let mut stage =
        Stage::build(plan.devices + tried, plan.followed, interrupted).context("setting the stage")?;
    let began = std::time::Instant::now();
    for (device, home) in homes.iter().enumerate() {
        stage.turn_to(device, *home)?;
    }
    stage.log_in(0..plan.devices)?;
    let logins = began.elapsed();
    let asleep: Vec<usize> = (0..plan.devices).filter(|n| plan.all_asleep || n % 2 == 0).collect();
    for some in asleep.chunks(AT_ONCE) {
        stage.crowd.sleep_these(some, AWAY).with_context(|| stage.logs())?;
    }
    let before = books::settle(&stage, &homes)?;
    ensure!(before.faults.is_empty(), "before anything happens: {}", before.faults.join("; "));
    let addresses: Vec<_> = (0..plan.devices).map(|n| stage.crowd.inner(n)).collect();

    // Copies of the tickets that are about to be used.
    let copied: Vec<usize> =
        moving.iter().copied().step_by((moving.len() / tried.max(1)).max(1)).take(tried).collect();
    for (n, owner) in copied.iter().enumerate() {
        stage.crowd.copy_ticket(*owner, plan.devices + n)?;
    }
    // So that no run has one in its middle, and each pays for the first change of every page after it.
    stage.sql("checkpoint")?;
    for device in &moving {
        stage.turn_to(*device, at[*device])?;
    }
    let mut story = pull(&mut stage, &moving, plan.one_dies)?;
    (story.asleep, story.logins, story.before) = (asleep.len(), logins, before);

    again(&mut stage, &copied, plan.devices, &at)?;
    story.tried = copied.len();
    // Everybody's session works, where it is now: those that stayed wake as well.
    let all: Vec<(usize, Task)> = (0..plan.devices).map(|n| (n, Task::Held)).collect();
    for some in all.chunks(AT_ONCE) {
        let awake = stage.crowd.release(some, || ())?;
        if let Some((device, why)) = awake.failed.first() {
            bail!("device {device} has lost its session: {why}");
        }
    }
    for (device, address) in addresses.iter().enumerate() {
        let now = stage.crowd.inner(device);
        ensure!(now == *address, "device {device} had {address:?} and has {now:?}");
    }
    story.after = books::settle(&stage, &at)?;
    story.at = at;
    Ok((story, stage))
}

/// After so long a standby is killed that is to die while devices come back: some have then, and the others have not.
const STRIKES: Duration = Duration::from_millis(10);

/// The gateway is killed, and its devices come to those to which they have turned. `one_dies`: so does the last standby meanwhile.
fn pull(stage: &mut Stage, moving: &[usize], one_dies: bool) -> Result<Story> {
    stage.gateways.get_mut(GONE).context("no gateway")?.daemon.process().kill();
    let tasks: Vec<(usize, Task)> = moving.iter().map(|device| (*device, Task::Quick)).collect();
    let (losses, load) = (stage.crowd.losses(), stage.load()?);
    let Stage { crowd, gateways, database, standbys, .. } = stage;
    let cpu = || {
        let of = |n: usize| gateways.get(n).map_or(Duration::ZERO, |g| g.daemon.cpu());
        // This thread is the crowd.
        (std::array::from_fn::<_, { NAMES.len() }, _>(of), database.cpu(), thread_cpu())
    };
    let mut before = Default::default();
    let outcome = std::thread::scope(|scope| {
        if let (true, Some(standby)) = (one_dies, standbys.last()) {
            scope.spawn(|| {
                std::thread::sleep(STRIKES);
                standby.kill();
            });
        }
        crowd.release(&tasks, || before = cpu())
    });
    let after = cpu();
    let outcome = outcome.with_context(|| stage.logs())?;
    if let Some((device, why)) = outcome.failed.first() {
        bail!(
            "{} devices do not come back, as device {device}: {why}\n{}",
            outcome.failed.len(),
            stage.logs()
        );
    }
    let (was, (gateways, database, crowd)): ([Duration; NAMES.len()], _) = (before.0, after);
    Ok(Story {
        asleep: 0,
        logins: Duration::ZERO,
        before: Books::default(),
        back: outcome.done,
        at: Vec::new(),
        gateways: std::array::from_fn(|n| gateways[n].saturating_sub(was[n])),
        database: database.saturating_sub(before.1),
        crowd: crowd.saturating_sub(before.2),
        load: stage.load()?.since(load),
        repeated: stage.crowd.losses().since(losses).repeated,
        tried: 0,
        after: Books::default(),
    })
}

/// Tickets that have been used are used again, from elsewhere, at the gateway that took them and at the other one: all are refused.
pub(crate) fn again(stage: &mut Stage, copied: &[usize], first: usize, at: &[usize]) -> Result<()> {
    let others: Vec<usize> = (0..NAMES.len()).filter(|n| *n != GONE).collect();
    for (n, owner) in copied.iter().enumerate() {
        let here = at.get(*owner).copied().unwrap_or(GONE);
        let elsewhere = others.iter().copied().find(|other| *other != here).unwrap_or(here);
        stage.turn_to(first + n, if n % 2 == 0 { here } else { elsewhere })?;
    }
    let thieves: Vec<(usize, Task)> = (0..copied.len()).map(|n| (first + n, Task::Quick)).collect();
    let outcome = stage.crowd.release(&thieves, || ())?;
    ensure!(outcome.done.is_empty(), "{} tickets were taken a second time", outcome.done.len());
    is_superseded(&outcome.failed)
}

/// Those that were refused were because their tickets do not count any more.
///
/// # Errors
/// With another reason.
pub(crate) fn is_superseded(failed: &[(usize, String)]) -> Result<()> {
    let refused = CloseReason::Refused(Refused::Superseded).to_string();
    match failed.iter().find(|(_, why)| *why != refused) {
        Some((device, why)) => bail!("device {device}, whose ticket does not count any more: {why}"),
        None => Ok(()),
    }
}

impl Story {
    /// When all of them were back that satisfy `of`, and how many they are.
    fn back(&self, of: impl Fn(&Done) -> bool) -> (Duration, usize) {
        let these: Vec<&Done> = self.back.iter().filter(|done| of(done)).collect();
        (these.iter().map(|done| done.answered).max().unwrap_or_default(), these.len())
    }

    /// When all were back.
    pub(crate) fn took(&self) -> Duration {
        self.back(|_| true).0
    }

    /// The same at one gateway, and how many came there.
    pub(crate) fn took_at(&self, gateway: usize) -> (Duration, usize) {
        self.back(|done| self.at.get(done.client) == Some(&gateway))
    }

    /// All of it as figures.
    pub(crate) fn figures(&self) -> Figures {
        let mut figures = Figures::default()
            .with("sessions.back", self.back.len() as f64)
            .with("sessions.asleep", self.asleep as f64)
            .with("took.all", millis(self.took()))
            .with("took.logins", millis(self.logins))
            .with("cpu.crowd", millis(self.crowd))
            .with("cpu.database", millis(self.database))
            .with("transactions", self.load.transactions)
            .with("wal", self.load.bytes)
            .with("repeated", self.repeated as f64)
            .with("refused", self.tried as f64);
        for (n, name) in NAMES.iter().enumerate().filter(|(n, _)| *n != GONE) {
            let (took, count) = self.took_at(n);
            figures = figures
                .with(&format!("took.{name}"), millis(took))
                .with(&format!("sessions.{name}"), count as f64)
                .with(&format!("cpu.{name}"), millis(self.gateways[n]));
        }
        figures
    }
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_of_the_gateway_that_is_gone_are_shared_out_and_the_others_stay() {
        let asleep =
            Plan { devices: 9, all_there: false, all_asleep: true, followed: false, one_dies: false };
        let plan = asleep;
        assert_eq!(plan.homes(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(plan.moved(), [1, 1, 2, 2, 1, 2, 1, 1, 2]);
        let plan = Plan { devices: 4, all_there: true, all_asleep: false, ..asleep };
        assert_eq!((plan.homes(), plan.moved()), (vec![0; 4], vec![1, 2, 1, 2]));
    }
}
