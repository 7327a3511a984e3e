//! When the associations of a world of HIP begin and end. Owns what each host says of that, and the law of lifetimes; must never change what it
//! looks at.
//!
//! - An association ends for its lifetime once that is over, and never before.
//! - It ends then at once, unless the host itself sleeps, or the peer does: then as soon as the host is awake, and the peer has been so for
//!   [`PARTING`]; a peer that announces another sleep then is not let sleep on.

use super::ends::Ends;
use crate::machine::Machine;
use dormouse_hip::limits::PARTING;
use dormouse_hip::{Description, Host as Hip, Phase};
use dormouse_keying::SaId;
use dormouse_node::Change;
use dormouse_sansio::Instant;
use dormouse_wire::hip::Hit;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a host says of an association whose lifetime is over.
const OVER: &str = "its lifetime is over";
/// A process may find that so late.
const LATE: Duration = Duration::from_secs(1);

/// What one host has had with one peer.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Life {
    /// When the last association began.
    pub(super) begun: Instant,
    /// When the last one ended for its lifetime.
    pub(super) over: Option<Instant>,
    /// When the last one began or ended, for any reason.
    pub(super) changed: Instant,
    /// The last one, and since when it ought to have ended.
    last: Option<SaId>,
    late: Option<Instant>,
    /// Whether the peer sleeps, and when it woke last.
    asleep: bool,
    woke: Instant,
}

/// See the module. By machine and peer.
#[derive(Default)]
pub(super) struct Lives(BTreeMap<(usize, Hit), Life>);

impl Lives {
    /// What a machine has had with a peer.
    pub(super) fn of(&self, n: usize, peer: Hit) -> Life {
        self.0.get(&(n, peer)).copied().unwrap_or_default()
    }

    /// What has become of a machine's associations, and what it has now.
    pub(super) fn look(&mut self, now: Instant, n: usize, machine: &Machine, news: &[Change], ends: &Ends) {
        for change in news {
            self.hears(now, n, change, ends);
        }
        let Some(node) = machine.node() else { return };
        let asleep = node.is_suspended() || !machine.radio_is_on();
        let hip = node.manager::<Hip>();
        for it in hip.into_iter().flat_map(Hip::describe).filter(|it| it.phase == Phase::Established) {
            self.is_in_time(now, n, &it, asleep, ends);
        }
    }

    fn hears(&mut self, now: Instant, n: usize, change: &Change, ends: &Ends) {
        let (Change::PeerUp { peer, .. } | Change::PeerDown { peer, .. }) = change else { return };
        let Some(peer) = peer.parse().ok().map(Hit) else { return };
        let life = self.0.entry((n, peer)).or_default();
        life.changed = now;
        match change {
            Change::PeerDown { why, .. } if why == OVER => {
                let lasts = ends.lifetime(n);
                assert!(
                    lasts.is_some_and(|lasts| life.begun + lasts <= now),
                    "an association ended before its time; host {n} at {now:?}, {lasts:?}, {life:?}"
                );
                life.over = Some(now);
            }
            Change::PeerDown { .. } => {}
            _ => life.begun = now,
        }
    }

    fn is_in_time(&mut self, now: Instant, n: usize, it: &Description, asleep: bool, ends: &Ends) {
        let life = self.0.entry((n, it.peer)).or_default();
        if life.last != Some(it.id) {
            (life.last, life.late, life.asleep, life.woke) = (Some(it.id), None, false, Instant::ZERO);
        }
        if std::mem::replace(&mut life.asleep, it.peer_sleeps) && !it.peer_sleeps {
            life.woke = now;
        }
        let is_over = ends.lifetime(n).is_some_and(|lasts| life.begun + lasts <= now);
        if !is_over || asleep {
            life.late = None;
        } else if life.late.is_some() || !it.peer_sleeps {
            let since = *life.late.get_or_insert(now);
            assert!(
                now <= since.max(life.woke + PARTING) + LATE,
                "an association outlives its lifetime; host {n} at {now:?}, {life:?}, {it:?}"
            );
        }
    }
}
