//! The section `[daemon.half_open]`: what newcomers must do under load. Owns its keys; what they mean is
//! [`dormouse_ike::config::HalfOpen`]'s.

use super::validate::PUZZLE_MOST;
use super::{ConfigError, file};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Handshakes of callers that have not shown yet that they are there: what is asked of newcomers, by their number.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HalfOpen {
    /// From this many on, newcomers must return a cookie before they cost any state.
    pub cookie_threshold: usize,
    /// So many at once. Beyond, a newcomer takes the place of an older one, of the IPv4 address or IPv6 /64 that has the most, or is
    /// refused. The more there are, the sooner they end.
    pub limit: usize,
    /// From this many of one IPv4 address or IPv6 /64 on, newcomers from there are asked to solve a puzzle (RFC 8019) with their cookie.
    /// Clients that do not are served by lot. As many as `limit`: never.
    pub per_prefix: usize,
    /// From this many on, of which no address or /64 counts for more than `per_prefix`, all newcomers are asked to solve a puzzle. As many
    /// as `limit`: never.
    pub puzzle_threshold: usize,
    /// Zero bits of the hardest puzzle. The first ones have 10 bits, and each further bit doubles the work: 16 are some tenths of a second.
    /// 0: each client chooses how much it works.
    pub puzzle_difficulty: u8,
}

impl Default for HalfOpen {
    fn default() -> Self {
        let ours = dormouse_ike::config::HalfOpen::default();
        Self {
            cookie_threshold: ours.cookie_threshold,
            limit: ours.max,
            per_prefix: ours.per_prefix,
            puzzle_threshold: ours.puzzle_threshold,
            puzzle_difficulty: ours.puzzle_difficulty,
        }
    }
}

impl HalfOpen {
    /// What the endpoint takes.
    #[must_use]
    pub fn resolve(&self) -> dormouse_ike::config::HalfOpen {
        dormouse_ike::config::HalfOpen {
            cookie_threshold: self.cookie_threshold,
            max: self.limit,
            per_prefix: self.per_prefix,
            puzzle_threshold: self.puzzle_threshold,
            puzzle_difficulty: self.puzzle_difficulty,
            ..dormouse_ike::config::HalfOpen::default()
        }
    }
}

pub(super) fn validate(daemon: &file::Daemon) -> Result<(), ConfigError> {
    let h = &daemon.half_open;
    if h.cookie_threshold >= h.limit {
        let problem = format!(
            "{} is not below daemon.half_open.limit ({}): newcomers would be refused before they are asked for a cookie",
            h.cookie_threshold, h.limit
        );
        return Err(ConfigError::new("daemon.half_open.cookie_threshold", problem));
    }
    if h.puzzle_difficulty > PUZZLE_MOST {
        let problem =
            format!("{} zero bits take clients minutes; {PUZZLE_MOST} is the most", h.puzzle_difficulty);
        return Err(ConfigError::new("daemon.half_open.puzzle_difficulty", problem));
    }
    Ok(())
}
