//! In which order the addresses of a gateway are tried. Owns nothing; see [`super`].

use super::{Ladder, Rung, State};
use dormouse_sansio::{Instant, Path};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Most other addresses of a gateway that are tried.
const OTHERS_MOST: usize = 4;

impl Ladder {
    /// The ways to the gateway's other addresses, from where the network is now. Used when the one in use does not answer.
    pub fn others(&mut self, mut paths: Vec<Path>) {
        // Of very many that of the last session stays.
        paths.sort_by_key(|path| !self.home.contains(&path.remote.ip()));
        paths.truncate(OTHERS_MOST);
        self.others = paths;
    }

    /// The addresses of the gateway that had the last session: it may have the SA, and has what waits. With a ticket it is asked first.
    pub fn set_home(&mut self, addresses: BTreeSet<IpAddr>) {
        self.home = addresses;
    }

    /// See [`Ladder::set_home`].
    #[must_use]
    pub fn home(&self) -> &BTreeSet<IpAddr> {
        &self.home
    }

    /// The gateway in use has the session now.
    pub(super) fn is_at_home(&mut self) {
        if let Some(held) = self.held.filter(|held| !self.home.contains(&held.remote.ip())) {
            self.home = BTreeSet::from([held.remote.ip()]);
        }
    }

    /// Every way to the gateway that there is now.
    pub(super) fn ways(&self) -> impl Iterator<Item = Path> {
        self.path.into_iter().chain(self.others.iter().copied().filter(|_| self.path.is_some()))
    }

    /// The same in the order in which they are tried. Who logs in fully goes by the order that the name has.
    pub(super) fn entries(&self) -> Vec<Path> {
        let mut ways: Vec<Path> = self.ways().collect();
        if self.has_ticket || self.held.is_some() {
            ways.sort_by_key(|way| !self.home.contains(&way.remote.ip()));
        }
        ways
    }

    /// The way that the next handshake takes.
    pub(super) fn entry(&self) -> Option<Path> {
        let entries = self.entries();
        entries.get(self.turn % entries.len().max(1)).copied()
    }

    /// The way to this address, if there is one.
    pub(super) fn way_to(&self, address: IpAddr) -> Option<Path> {
        self.ways().find(|way| way.remote.ip() == address)
    }

    /// The address of the gateway that has the session, or of the one that is tried now, if there is a way to it.
    #[must_use]
    pub fn gateway_address(&self) -> Option<IpAddr> {
        self.held.or_else(|| self.entry()).map(|path| path.remote.ip())
    }

    /// The addresses to which there is a way besides this one.
    #[must_use]
    pub fn besides(&self, address: IpAddr) -> Vec<IpAddr> {
        self.ways().map(|way| way.remote.ip()).filter(|other| *other != address).collect()
    }

    /// The next login is at this address. False, and nothing done, if there is no way there.
    pub fn turn_to(&mut self, address: IpAddr) -> bool {
        let turn = self.entries().iter().position(|way| way.remote.ip() == address);
        self.turn = turn.unwrap_or(self.turn);
        turn.is_some()
    }

    /// The gateway at which it logs in sends it to another address of the name. False, and nothing done, if it does not log in, or there is no way there.
    pub fn send_on(&mut self, now: Instant, to: IpAddr) -> bool {
        let logs_in = self.state == State::Climbing(Rung::Full) && self.turn_to(to);
        if logs_in {
            self.connect(now);
        }
        logs_in
    }
}
