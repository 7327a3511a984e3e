//! In the place of the database that gateways share, in a program without the feature `cluster`: no gateway can join one.

use super::counts::Counts;
use super::{Queue, Reports};
use dormouse_node::config::ResolvedCluster;
use dormouse_node::shared::Beginning;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// There is none.
pub(crate) enum Member {}

impl Member {
    /// # Errors
    /// Always; the configuration is refused before ([`crate::features`]).
    pub(crate) fn new(_: ResolvedCluster, _: &Path, _: Duration, _: Arc<Counts>) -> anyhow::Result<Self> {
        anyhow::bail!("cluster: {}", crate::features::without("cluster"))
    }

    pub(crate) fn takes_over(&self) -> bool {
        match *self {}
    }

    pub(crate) fn begin_soon(&self, _: Duration) -> anyhow::Result<Beginning> {
        match *self {}
    }
}

pub(super) fn serve(member: &Member, _: &Queue, _: &Reports) {
    match *member {}
}
