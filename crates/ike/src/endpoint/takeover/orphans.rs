//! IKE SAs that gateways have left behind which are silent now, by the SPIs at which their peers still send. Owns the list and its bounds: only what
//! is on it makes this gateway ask the store, each SA once in a while, and all of them at a pace. So a stranger's SPIs cost a look-up in
//! memory. Must never judge whether its gateway is gone: the store does, when it is asked.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_sansio::{Instant, Pace};

use crate::limits::{CLAIM_BURST, CLAIM_EVERY, ORPHANS_MOST};
use crate::takeover::Left;
use crate::ticket::lineage::Name;

/// The store is asked again for an SA of which it has said nothing.
const AGAIN: Duration = Duration::from_secs(5);

/// What a message is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spi {
    Ike(u64),
    Esp(u32),
}

#[derive(Debug)]
struct Orphan {
    left: Left,
    gateway: String,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waits,
    Asked(Instant),
    /// It is here, or was.
    Taken,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    all: BTreeMap<Name, Orphan>,
    by_ike: BTreeMap<u64, Name>,
    by_esp: BTreeMap<u32, Name>,
    pace: Pace,
}

/// What is to be done about a message of which no SA is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// It is of none that was left.
    Nothing,
    /// It is of one that was left, and which the store has been asked for, or will be.
    Left,
    /// The store is to be asked for this one.
    Ask(Name),
}

impl Orphans {
    /// All that this gateway has left; beyond the bound the rest logs in.
    pub(crate) fn set(&mut self, gateway: &str, list: Vec<Left>) {
        let gone: Vec<Name> =
            self.all.iter().filter(|(_, o)| o.gateway == gateway).map(|(name, _)| *name).collect();
        gone.into_iter().for_each(|lineage| self.remove(lineage));
        for left in list {
            if self.all.len() >= ORPHANS_MOST {
                tracing::warn!(gateway, most = ORPHANS_MOST, "more IKE SAs were left than can be taken over");
                return;
            }
            self.remove(left.lineage);
            self.by_ike.insert(left.spi, left.lineage);
            self.by_esp.extend(left.esp.iter().map(|spi| (*spi, left.lineage)));
            let orphan = Orphan { gateway: gateway.to_owned(), state: State::Waits, left };
            self.all.insert(orphan.left.lineage, orphan);
        }
    }

    /// The store does not give this one.
    pub(crate) fn remove(&mut self, lineage: Name) {
        let Some(orphan) = self.all.remove(&lineage) else { return };
        let own = |name: &mut Name| *name == lineage;
        if self.by_ike.get_mut(&orphan.left.spi).is_some_and(own) {
            self.by_ike.remove(&orphan.left.spi);
        }
        for spi in orphan.left.esp {
            if self.by_esp.get_mut(&spi).is_some_and(own) {
                self.by_esp.remove(&spi);
            }
        }
    }

    /// It is here now. What still comes for its old CHILD SAs is no news.
    pub(crate) fn taken(&mut self, lineage: Name) {
        if let Some(orphan) = self.all.get_mut(&lineage) {
            orphan.state = State::Taken;
        }
    }

    /// A message of no SA has come to this address of ours.
    pub(crate) fn find(&mut self, now: Instant, spi: Spi, local: IpAddr) -> Found {
        let lineage = match spi {
            Spi::Ike(spi) => self.by_ike.get(&spi),
            Spi::Esp(spi) => self.by_esp.get(&spi),
        };
        let Some((lineage, orphan)) = lineage.and_then(|name| Some((*name, self.all.get_mut(name)?))) else {
            return Found::Nothing;
        };
        if orphan.left.local.to_canonical() != local.to_canonical() {
            return Found::Nothing;
        }
        let due = match orphan.state {
            State::Waits => true,
            State::Asked(at) => at + AGAIN <= now,
            State::Taken => false,
        };
        if !due || !self.pace.may(now, CLAIM_EVERY, CLAIM_BURST) {
            return Found::Left;
        }
        orphan.state = State::Asked(now);
        Found::Ask(lineage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));
    const T0: Instant = Instant::ZERO;

    fn left(n: u8) -> Left {
        Left { lineage: Name([n; 16]), spi: n.into(), esp: vec![300 + u32::from(n)], local: HERE }
    }

    #[test]
    fn only_what_was_left_is_asked_for_at_its_address_and_once_in_a_while() {
        let mut orphans = Orphans::default();
        orphans.set("gw1", vec![left(1), left(2)]);
        let elsewhere = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(orphans.find(T0, Spi::Ike(3), HERE), Found::Nothing);
        assert_eq!(orphans.find(T0, Spi::Esp(1), HERE), Found::Nothing, "the other kind of SPI");
        assert_eq!(orphans.find(T0, Spi::Ike(1), elsewhere), Found::Nothing);
        assert_eq!(orphans.find(T0, Spi::Ike(1), HERE), Found::Ask(Name([1; 16])));
        assert_eq!(orphans.find(T0, Spi::Esp(301), HERE), Found::Left, "asked already");
        assert_eq!(orphans.find(T0 + AGAIN, Spi::Esp(301), HERE), Found::Ask(Name([1; 16])));
        orphans.taken(Name([1; 16]));
        assert_eq!(orphans.find(T0 + AGAIN * 9, Spi::Esp(301), HERE), Found::Left);
        orphans.remove(Name([2; 16]));
        assert_eq!(orphans.find(T0, Spi::Esp(302), HERE), Found::Nothing, "the store does not give it");
        // Its gateway is heard again.
        orphans.set("gw1", Vec::new());
        assert_eq!(orphans.find(T0, Spi::Ike(1), HERE), Found::Nothing);
        assert!(orphans.all.is_empty() && orphans.by_ike.is_empty() && orphans.by_esp.is_empty());
    }

    #[test]
    fn all_together_are_asked_for_at_a_pace() {
        let mut orphans = Orphans::default();
        let many = (0..2 * CLAIM_BURST).map(|n| {
            let mut name = [0; 16];
            name[..4].copy_from_slice(&n.to_be_bytes());
            Left { lineage: Name(name), spi: u64::from(n) + 1, esp: Vec::new(), local: HERE }
        });
        orphans.set("gw1", many.collect());
        let mut ask = |at| {
            let asked =
                |n: &u32| matches!(orphans.find(at, Spi::Ike(u64::from(*n) + 1), HERE), Found::Ask(_));
            (0..2 * CLAIM_BURST).filter(asked).count()
        };
        assert_eq!(ask(T0), CLAIM_BURST as usize);
        assert_eq!(ask(T0 + CLAIM_EVERY), 1);
    }
}
