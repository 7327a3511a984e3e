//! What has happened to each connection, in numbers. Owns the counts; there is one of each for every connection that the configuration has had.

use dormouse_node::Change;
use dormouse_node::ladder::Rung;
use std::collections::BTreeMap;

/// What has happened to one connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Happened {
    /// Client: how often each rung of the ladder brought the session up, and how many milliseconds that took in sum.
    pub(crate) up: BTreeMap<&'static str, (u64, u64)>,
    /// Client: how often each rung failed.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    /// Sessions of peers that began by a full exchange.
    pub(crate) full: u64,
    /// Sessions of peers that began by ticket.
    pub(crate) resumed: u64,
    /// Sessions of peers that have ended.
    pub(crate) ended: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, Happened>);

impl Tally {
    /// Counts what is announced.
    pub(crate) fn note(&mut self, change: &Change) {
        match change {
            Change::Up { connection, rung, took_ms } => {
                let (times, ms) = self.of(connection).up.entry(word(*rung)).or_default();
                *times += 1;
                *ms = ms.saturating_add(*took_ms);
            }
            Change::RungFailed { connection, rung, .. } => {
                *self.of(connection).failed.entry(word(*rung)).or_default() += 1;
            }
            Change::PeerUp { connection, resumed, .. } => {
                let it = self.of(connection);
                *(if *resumed { &mut it.resumed } else { &mut it.full }) += 1;
            }
            Change::PeerDown { connection, .. } => self.of(connection).ended += 1,
            Change::Down { .. } | Change::PeerFailed { .. } | Change::PeerRefused { .. } => {}
        }
    }

    fn of(&mut self, connection: &str) -> &mut Happened {
        self.0.entry(connection.to_owned()).or_default()
    }

    /// What has happened to a connection.
    pub(crate) fn get(&self, connection: &str) -> Option<&Happened> {
        self.0.get(connection)
    }

    /// Sessions of all peers that began by ticket.
    pub(crate) fn resumed(&self) -> u64 {
        self.0.values().map(|it| it.resumed).sum()
    }
}

fn word(rung: Rung) -> &'static str {
    crate::status::rung(rung).name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_counted_for_its_connection() {
        let mut tally = Tally::default();
        let (office, home) = (|| "office".to_owned(), || "home".to_owned());
        for took_ms in [5, 7] {
            tally.note(&Change::Up { connection: office(), rung: Rung::Resume, took_ms });
        }
        tally.note(&Change::Up { connection: home(), rung: Rung::Held, took_ms: 1 });
        for resumed in [true, false, true] {
            tally.note(&Change::PeerUp { connection: home(), peer: "a".into(), resumed });
        }
        tally.note(&Change::PeerDown { connection: home(), peer: "a".into(), why: "gone".into() });
        let at = |name| tally.get(name).cloned().unwrap_or_default();
        assert_eq!(at("office").up, [("ticket", (2, 12))].into());
        assert_eq!((at("home").up, at("home").full, at("home").resumed), ([("held", (1, 1))].into(), 1, 2));
        assert_eq!((at("home").ended, tally.resumed(), tally.get("other")), (1, 2, None));
    }
}
