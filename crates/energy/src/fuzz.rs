//! The bodies of the fuzz targets: files that users write or instruments make, and what a policy has saved. Not for use in a
//! program.

use core::time::Duration;

use crate::meter::csv::{Columns, Rows};
use crate::model::Resumption;
use crate::profile::Profile;
use crate::radio;
use crate::schedule::{Policy, Scheduler};
use crate::{Direction, PacketInfo};
use dormouse_sansio::Instant;

/// Any bytes as a profile, as a baseline, and as an instrument's file: its first two lines are its columns and their units.
///
/// # Panics
/// If a property does not hold.
pub fn files(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    if let Ok(profile) = Profile::from_toml(text) {
        let written = profile.to_toml();
        assert!(written.is_ok_and(|w| Profile::from_toml(&w) == Ok(profile.clone())), "{profile:?}");
        if let Ok(model) = profile.model() {
            for resumption in [Resumption::Full, Resumption::Ticket, Resumption::Mobike, Resumption::HeldSa] {
                let _ = model.break_even(resumption, 3);
                let _ = model.sleep_cost(resumption, u32::MAX);
            }
        }
    }
    let _ = radio::baseline(text);
    let mut lines = data.split(|b| *b == b'\n');
    let mut list = || -> Vec<String> {
        let line = lines.next().and_then(|l| core::str::from_utf8(l).ok()).unwrap_or_default();
        line.split(',').filter(|c| !c.is_empty()).map(str::to_owned).collect()
    };
    let Ok(columns) = Columns::new(&list(), &list()) else { return };
    let mut rows = Rows::new(columns);
    let mut last = f64::NEG_INFINITY;
    for row in lines.filter_map(|line| rows.push(line).ok().flatten()) {
        assert!(
            row.watts.is_finite() && row.seconds.is_finite() && row.seconds >= last,
            "{row:?} after {last}"
        );
        last = row.seconds;
    }
}

/// Any bytes as the saved state of every policy that learns: one that is taken goes on deciding and learning, and what it saves
/// then is taken again.
///
/// # Panics
/// If a property does not hold.
pub fn state(data: &[u8]) {
    for policy in [Policy::Dormouse, Policy::PAPER] {
        let mut scheduler = policy.scheduler(20.0);
        if scheduler.restore(data).is_ok() {
            live(&mut *scheduler);
            let mut saved = Vec::new();
            scheduler.save(&mut saved);
            let again = policy.scheduler(20.0).restore(&saved);
            assert_eq!(again, Ok(()), "what {} saved is refused", policy.name());
        }
    }
}

/// A while in the life of a policy: silences of every length, and another break-even time.
///
/// # Panics
/// If what it decides is no time-out.
pub fn live(scheduler: &mut dyn Scheduler) {
    let mut now = Instant::ZERO;
    for round in 0..48_u64 {
        let idle = Duration::from_millis(300 << (round % 12));
        let packet = PacketInfo {
            direction: if round % 2 == 0 { Direction::Outgoing } else { Direction::Incoming },
            protocol: 17,
            remote_port: u16::try_from(round % 3).unwrap_or(0),
            size: 100,
            ..PacketInfo::default()
        };
        scheduler.observe(now, &packet);
        assert!(scheduler.decide().seconds() >= 0.0);
        let _ = scheduler.prediction();
        scheduler.learn(idle);
        now += idle;
        if round == 24 {
            scheduler.set_break_even(30.0);
        }
    }
}
