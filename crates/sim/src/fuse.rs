//! A process that dies between two things that it does, and is back after a time. Owns when that is; what starts it again is its world's.

use crate::topology::{MachineId, Topology};
use dormouse_sansio::Instant;
use std::time::Duration;

/// A process that is to die, or that has died and is to be back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fuse {
    who: MachineId,
    down: Duration,
    back: Option<Instant>,
}

/// What follows when the world has run as far as [`until`] says, or the process has died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// The end of the time was reached.
    End,
    /// The process has just died.
    Died,
    /// This process is back.
    Back(MachineId),
}

impl Fuse {
    /// The process dies instead of carrying out the output after the next `outputs`, and is back after `down`.
    pub(crate) fn light(net: &mut Topology, who: MachineId, outputs: u32, down: Duration) -> Self {
        net.machine_mut(who).fuse = Some(outputs);
        Self { who, down, back: None }
    }

    /// Whose it is.
    pub(crate) fn is_of(&self, who: MachineId) -> bool {
        self.who == who
    }

    /// The process that is still to die.
    pub(crate) fn lit(&self) -> Option<MachineId> {
        self.back.is_none().then_some(self.who)
    }
}

/// How far the world may run before someone is back.
pub(crate) fn until(fuse: Option<Fuse>, end: Instant) -> Instant {
    fuse.and_then(|f| f.back).map_or(end, |back| back.min(end))
}

/// The world has run.
pub(crate) fn after(fuse: &mut Option<Fuse>, net: &Topology) -> After {
    if let Some(lit) = fuse.as_mut().filter(|f| f.back.is_none() && net.machine(f.who).host().is_none()) {
        lit.back = Some(net.now + lit.down);
        return After::Died;
    }
    match fuse.take_if(|f| f.back.is_some_and(|back| back <= net.now)) {
        Some(fuse) => After::Back(fuse.who),
        None => After::End,
    }
}
