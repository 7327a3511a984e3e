//! In the place of the Host Identity Protocol, in a program without the feature `hip`: no host has the role.

use crate::daemon::Daemon;
use dormouse_control::{Check, Error, ErrorKind, HipStatus, Reply};
use dormouse_ike::admission::Denial;
use dormouse_io::control::ClientId;
use dormouse_keying::SleepFlags;
use dormouse_node::config::ResolvedHip;
use dormouse_node::config::block::Blocking;
use dormouse_node::{Change, Node};
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::hip::Hit;
use std::collections::BTreeSet;
use std::time::Duration;

/// There is none.
#[derive(Debug)]
pub(crate) enum Directory {}

impl Directory {
    pub(crate) fn of(
        _: Option<ResolvedHip>,
        _: &BTreeSet<Denial>,
        _: bool,
        _: (Duration, SleepFlags),
        _: &mut Node,
    ) -> Option<Self> {
        None
    }

    pub(crate) fn timers(&self) -> std::iter::Empty<Deadline> {
        match *self {}
    }

    pub(crate) fn note(&mut self, _: &Change) {
        match *self {}
    }

    pub(crate) fn gone(&mut self, _: ClientId) {
        match *self {}
    }

    pub(crate) fn named(&self, _: &str) -> Option<Hit> {
        match *self {}
    }

    pub(crate) fn meant(&self, _: &str) -> Result<Hit, Error> {
        match *self {}
    }
}

fn refused() -> Error {
    Error::new(ErrorKind::Request, crate::features::without("hip"))
}

impl Daemon {
    pub(crate) fn begin_hip(&mut self, _: Instant) {}

    pub(crate) fn end_hip(&mut self, _: Instant) {}

    pub(crate) fn look_at_sources(&mut self, _: Instant) {}

    pub(crate) fn tell_hip_of_mode(&mut self, _: Instant) {}

    pub(crate) fn answer_hip(&mut self, _: Instant) {}

    pub(crate) fn hip_up(
        &mut self,
        _: Instant,
        _: ClientId,
        _: &str,
        _: Option<f64>,
    ) -> Option<Result<Reply, Error>> {
        Some(Err(refused()))
    }

    pub(crate) fn hip_down(&mut self, _: Instant, _: &str) -> Result<Reply, Error> {
        Err(refused())
    }

    pub(crate) fn deny_hit(&mut self, _: Instant, _: &Denial) -> Option<(usize, bool)> {
        None
    }

    pub(crate) fn allow_hit(&mut self, _: Instant, _: &Denial) -> bool {
        false
    }

    pub(crate) fn blocking_of_hip(&self, _: Option<&ResolvedHip>) -> Option<(String, Blocking)> {
        None
    }

    pub(crate) fn reconfigure_hip(
        &mut self,
        _: Instant,
        _: Option<ResolvedHip>,
        _: &BTreeSet<String>,
    ) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn hip_status(&self, _: Instant) -> Option<HipStatus> {
        None
    }

    pub(crate) fn hip_counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    pub(crate) fn hip_check(&self) -> Option<Check> {
        None
    }
}
