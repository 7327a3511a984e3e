//! A gateway that goes, and says so: the session comes back at another one while this one still carries it. Owns nothing; see [`super`].

use super::{Ladder, Rung, State};
use dormouse_sansio::{Instant, Path};
use std::net::IpAddr;

impl Ladder {
    /// The gateway goes, and takes its ticket to be good at another one of its name: at this address, or at any other. The SA that is held is used no
    /// more, and stays until another takes its place. False, and nothing done, if there is no way there, no ticket, or an exchange is under way.
    pub fn leave(&mut self, now: Instant, to: Option<IpAddr>) -> bool {
        let at_rest = matches!(self.state, State::Up | State::Climbing(Rung::Held));
        let (true, true, Some(held)) = (at_rest, self.has_ticket, self.held) else { return false };
        let here = held.remote.ip();
        // Its other addresses are the same gateway's.
        let stays = |ip: IpAddr| ip == here || self.home.contains(&ip);
        let meant = |way: &Path| !stays(way.remote.ip()) && to.is_none_or(|to| way.remote.ip() == to);
        let Some(turn) = self.entries().iter().position(meant) else { return false };
        (self.held, self.turn, self.unresumed) = (None, turn, 0);
        self.climb_started = now;
        self.without_sa(now);
        true
    }
}
