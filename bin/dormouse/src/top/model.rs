//! What `dormouse top` shows: every session, connection and device that sleeps as a row, with what it carries a second. Owns the rows, how they are sorted and
//! filtered, and where the window stands; knows neither the terminal nor the daemon, nor a clock.
//!
//! A gateway's sessions come page by page. What a round of pages no longer has is gone when the round is over.

use super::rows;
use dormouse_control::{Sessions, Status};
use dormouse_sansio::Instant;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One row.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Row {
    /// Whose: a peer's identity, or the name of a connection.
    pub(crate) who: String,
    pub(crate) connection: String,
    /// `up`, `asleep`, ...
    pub(crate) state: String,
    /// The inner address.
    pub(crate) address: String,
    /// Bytes received and sent in this session.
    pub(crate) bytes: (u64, u64),
    /// Seconds since anything came.
    pub(crate) quiet: Option<f64>,
    /// Packets that wait for it.
    pub(crate) waiting: usize,
    /// Bytes received and sent a second, between the last two looks.
    pub(crate) rate: (f64, f64),
}

/// By what rows are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    Who,
    Connection,
    State,
    Address,
    In,
    Out,
    Bytes,
    Quiet,
}

impl Column {
    pub(crate) const ALL: [Self; 8] = [
        Self::Who,
        Self::Connection,
        Self::State,
        Self::Address,
        Self::In,
        Self::Out,
        Self::Bytes,
        Self::Quiet,
    ];

    /// Its heading.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Who => "WHO",
            Self::Connection => "CONNECTION",
            Self::State => "STATE",
            Self::Address => "ADDRESS",
            Self::In => "IN/s",
            Self::Out => "OUT/s",
            Self::Bytes => "BYTES",
            Self::Quiet => "QUIET",
        }
    }

    /// How two rows are to each other: for numbers the largest first.
    fn order(self, a: &Row, b: &Row) -> Ordering {
        let sum = |r: &Row| r.bytes.0.saturating_add(r.bytes.1);
        match self {
            Self::Who => a.who.cmp(&b.who),
            Self::Connection => a.connection.cmp(&b.connection),
            Self::State => a.state.cmp(&b.state),
            Self::Address => a.address.cmp(&b.address),
            Self::In => b.rate.0.total_cmp(&a.rate.0),
            Self::Out => b.rate.1.total_cmp(&a.rate.1),
            Self::Bytes => sum(b).cmp(&sum(a)),
            Self::Quiet => b.quiet.unwrap_or(0.0).total_cmp(&a.quiet.unwrap_or(0.0)),
        }
    }
}

/// A row, and when it was looked at.
#[derive(Debug)]
struct Kept {
    row: Row,
    at: Instant,
    round: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Model {
    rows: BTreeMap<String, Kept>,
    /// The keys of the rows that are shown, as they are sorted.
    order: Vec<String>,
    round: u64,
    /// The status without its rows.
    pub(crate) status: Option<Status>,
    /// Why there is nothing new.
    pub(crate) trouble: Option<String>,
    /// How much of a round has come that is not over: sessions.
    pub(crate) coming: Option<usize>,
    pub(crate) sorted_by: Column,
    pub(crate) reversed: bool,
    pub(crate) filter: String,
    /// The first row that is shown.
    pub(crate) first: usize,
}

impl Model {
    /// Nothing yet, to be sorted and filtered so.
    pub(crate) const fn new(sorted_by: Column, filter: String) -> Self {
        Self {
            rows: BTreeMap::new(),
            order: Vec::new(),
            round: 0,
            status: None,
            trouble: None,
            coming: None,
            sorted_by,
            reversed: false,
            filter,
            first: 0,
        }
    }

    /// A status has come: another round begins. It is over at once, unless more pages follow.
    pub(crate) fn status(&mut self, now: Instant, mut status: Status) {
        self.round += 1;
        self.trouble = None;
        for (key, row) in rows::of_status(&mut status) {
            self.note(now, key, row);
        }
        let more = status.gateway.as_ref().is_some_and(|gateway| gateway.more.is_some());
        self.status = Some(status);
        self.end_page(more);
    }

    /// A page of the round has come.
    pub(crate) fn page(&mut self, now: Instant, page: &Sessions) {
        for session in &page.sessions {
            let (key, row) = rows::of_session(session);
            self.note(now, key, row);
        }
        self.end_page(page.more.is_some());
    }

    fn end_page(&mut self, more: bool) {
        let round = self.round;
        if more {
            self.coming = Some(self.rows.values().filter(|kept| kept.round == round).count());
        } else {
            self.coming = None;
            self.rows.retain(|_, kept| kept.round == round);
        }
        self.arrange();
    }

    fn note(&mut self, now: Instant, key: String, mut row: Row) {
        if let Some(before) = self.rows.get(&key) {
            let seconds = now.saturating_since(before.at).as_secs_f64();
            // New keys begin at nothing again.
            let rate = |new: u64, old: u64| new.checked_sub(old).filter(|_| seconds > 0.0);
            let of = |more: Option<u64>, last: f64| more.map_or(last, |more| more as f64 / seconds);
            row.rate = (
                of(rate(row.bytes.0, before.row.bytes.0), before.row.rate.0),
                of(rate(row.bytes.1, before.row.bytes.1), before.row.rate.1),
            );
        }
        self.rows.insert(key, Kept { row, at: now, round: self.round });
    }

    /// Sorts and filters anew.
    pub(crate) fn arrange(&mut self) {
        let wanted = self.filter.to_lowercase();
        let fits = |row: &Row| {
            let fields = [&row.who, &row.connection, &row.state, &row.address];
            wanted.is_empty() || fields.into_iter().any(|field| field.to_lowercase().contains(&wanted))
        };
        let mut shown: Vec<(&String, &Row)> =
            self.rows.iter().map(|(key, kept)| (key, &kept.row)).filter(|(_, row)| fits(row)).collect();
        let (by, reversed) = (self.sorted_by, self.reversed);
        shown.sort_by(|(a_key, a), (b_key, b)| {
            let order = by.order(a, b);
            let order = if reversed { order.reverse() } else { order };
            order.then_with(|| a.who.cmp(&b.who)).then_with(|| a_key.cmp(b_key))
        });
        self.order = shown.into_iter().map(|(key, _)| key.clone()).collect();
        self.first = self.first.min(self.order.len().saturating_sub(1));
    }

    /// Sorts by the next column, or the one before.
    pub(crate) fn sort_by_next(&mut self, forward: bool) {
        let all = Column::ALL;
        let at = all.iter().position(|column| *column == self.sorted_by).unwrap_or(0);
        let next = if forward { at + 1 } else { at + all.len() - 1 };
        self.sorted_by = all.get(next % all.len()).copied().unwrap_or(Column::In);
        self.arrange();
    }

    /// Moves the window by so many rows.
    pub(crate) fn scroll(&mut self, by: isize) {
        self.first = self.first.saturating_add_signed(by).min(self.order.len().saturating_sub(1));
    }

    /// Rows that fit the filter, of how many.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.order.len(), self.rows.len())
    }

    /// As many rows as fit into the window, from where it stands.
    pub(crate) fn window(&self, most: usize) -> impl Iterator<Item = &Row> {
        let shown = self.order.iter().skip(self.first).take(most);
        shown.filter_map(|key| Some(&self.rows.get(key)?.row))
    }

    /// What all rows carry a second, and how many of them sleep.
    pub(crate) fn sums(&self) -> ((f64, f64), usize) {
        let rows = || self.rows.values().map(|kept| &kept.row);
        let rate = rows().fold((0.0, 0.0), |sum, row| (sum.0 + row.rate.0, sum.1 + row.rate.1));
        (rate, rows().filter(|row| row.state == rows::ASLEEP).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_control::{Gateway, SaStatus, Session, Traffic};
    use std::time::Duration;

    fn session(n: usize, bytes: u64) -> Session {
        Session {
            connection: "staff".into(),
            peer: format!("user{n}.test"),
            ike: SaStatus { spi: format!("{n:016x}"), ..SaStatus::default() },
            traffic: Traffic { bytes_in: bytes, bytes_out: 2 * bytes, ..Traffic::default() },
            ..Session::default()
        }
    }

    fn status(sessions: Vec<Session>, more: Option<u64>) -> Status {
        let gateway = Gateway { sessions_total: sessions.len(), sessions, more, ..Gateway::default() };
        Status { gateway: Some(gateway), ..Status::default() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn who(model: &Model, most: usize) -> Vec<&str> {
        model.window(most).map(|row| row.who.as_str()).collect()
    }

    #[test]
    fn a_round_of_pages_ends_with_those_who_are_still_there() {
        let mut model = Model::new(Column::In, String::new());
        model.status(at(0), status(vec![session(1, 0), session(2, 0)], Some(2)));
        assert_eq!((model.coming, model.counts()), (Some(2), (2, 2)));
        model.page(at(1), &Sessions { sessions: vec![session(3, 0)], more: None });
        assert_eq!((model.coming, model.counts()), (None, (3, 3)));
        // The second has gone: it is shown until the next round is over.
        model.status(at(2), status(vec![session(1, 0)], Some(1)));
        assert_eq!(model.counts(), (3, 3));
        model.page(at(3), &Sessions { sessions: vec![session(3, 0)], more: None });
        assert_eq!(who(&model, 9), ["user1.test", "user3.test"]);
    }

    #[test]
    fn what_is_carried_a_second_is_what_came_between_two_looks() {
        let mut model = Model::new(Column::In, String::new());
        model.status(at(0), status(vec![session(1, 1_000), session(2, 0)], None));
        model.status(at(2), status(vec![session(1, 5_000), session(2, 9_000)], None));
        let rates: Vec<_> = model.window(9).map(|row| (row.who.as_str(), row.rate)).collect();
        assert_eq!(rates, [("user2.test", (4_500.0, 9_000.0)), ("user1.test", (2_000.0, 4_000.0))]);
        // New keys: their counters begin at nothing, and that is no speed.
        model.status(at(3), status(vec![session(1, 10), session(2, 9_000)], None));
        let rates: Vec<_> = model.window(9).map(|row| row.rate).collect();
        assert_eq!(rates, [(2_000.0, 4_000.0), (0.0, 0.0)]);
    }

    #[test]
    fn rows_are_sorted_filtered_and_scrolled() {
        let mut model = Model::new(Column::In, String::new());
        model.status(at(0), status((0..50).map(|n| session(n, n as u64)).collect(), None));
        model.sorted_by = Column::Bytes;
        model.arrange();
        assert_eq!(who(&model, 2), ["user49.test", "user48.test"]);
        model.reversed = true;
        model.arrange();
        assert_eq!(who(&model, 1), ["user0.test"]);
        model.filter = "USER4".into();
        model.arrange();
        assert_eq!((model.counts(), who(&model, 2)), ((11, 50), vec!["user4.test", "user40.test"]));
        model.scroll(1_000);
        assert_eq!(who(&model, 9), ["user49.test"]);
        model.scroll(-1_000);
        assert_eq!(model.first, 0);
        model.filter = "nobody".into();
        model.arrange();
        assert_eq!((model.counts(), model.window(9).count()), ((0, 50), 0));
        for _ in Column::ALL {
            model.sort_by_next(true);
        }
        assert_eq!(model.sorted_by, Column::Bytes, "once around");
        model.sort_by_next(false);
        assert_eq!(model.sorted_by, Column::Out);
    }
}
