//! A client's activities in order of time, and its sessions. Owns both; must never account anything.
//!
//! Handed activities by client and start, it lays out those that last ([`crate::activity`]) so that their pieces and everything that falls
//! between come in order of time, and says of each piece to which session it belongs and what silence came before it. Memory is bounded by
//! [`MAX_OPEN`] activities of one client that are open at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::str::FromStr;

use crate::activity::{Activity, Cursor, Mark};

/// Activities of one client that are laid out at once (some 10 MB).
pub const MAX_OPEN: usize = 1 << 16;
/// The shortest stretch in which packets are told apart, in nanoseconds, however short idle periods may be.
const FINEST: u64 = 500_000;

/// What ends a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sessions {
    /// A silence above the longest one, and nothing else.
    #[default]
    Silence,
    /// That, and joining the network anew: an 802.11 association, or DHCP without an address.
    Association,
    /// Each connection that the input names (Zeek's uid) is a session by itself.
    Connection,
}

impl FromStr for Sessions {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "silence" => Ok(Self::Silence),
            "association" => Ok(Self::Association),
            "connection" => Ok(Self::Connection),
            _ => Err(format!("{s:?} ends no session, expected silence, association or connection")),
        }
    }
}

impl Sessions {
    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::Association => "association",
            Self::Connection => "connection",
        }
    }
}

/// What a client repeats within so many nanoseconds belongs to one joining: an association, and DHCP's messages with their repetitions
/// (RFC 2131, section 4.1).
const JOINING: u64 = 60_000_000_000;

/// For whom a piece is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum View {
    /// For sessions and for the client as a whole.
    #[default]
    Both,
    /// For sessions alone: a connection is a session by itself, apart from the client's other traffic at the time.
    Sessions,
    /// For the client as a whole alone: that connection among everything else.
    Client,
}

/// A piece of an activity in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// The piece, with its session and the silences before it.
    pub activity: Activity,
    /// For whom it is.
    pub view: View,
}

/// Folds activities in order of client and start.
pub struct Fold {
    grain: u64,
    longest: Option<u64>,
    rule: Sessions,
    most: usize,
    client: Option<u32>,
    open: BinaryHeap<Reverse<(u64, u64, usize)>>,
    cursors: Vec<(Cursor, View)>,
    free: Vec<usize>,
    sequence: u64,
    crowded: u64,
    /// The client's last packet, and the last that it sent, in the views for the client and for sessions.
    last: [Option<u64>; 2],
    sent: [Option<u64>; 2],
    session: u32,
    joined: Option<u64>,
    /// What comes next begins a session.
    begins: bool,
}

impl Fold {
    /// Idle periods begin at `min_idle` nanoseconds; a silence above `longest` ends a session, if any does.
    #[must_use]
    pub fn new(min_idle: u64, longest: Option<u64>, rule: Sessions) -> Self {
        Self {
            grain: (min_idle / 2).max(FINEST),
            longest,
            rule,
            most: MAX_OPEN,
            client: None,
            open: BinaryHeap::new(),
            cursors: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            crowded: 0,
            last: [None; 2],
            sent: [None; 2],
            session: 0,
            joined: None,
            begins: false,
        }
    }

    /// Packets of activities that were too many to be laid out at once: they count as soon as there was no more room.
    #[must_use]
    pub const fn crowded(&self) -> u64 {
        self.crowded
    }

    /// Takes the next activity; what is due before it goes to `out`.
    #[inline]
    pub fn push(&mut self, activity: Activity, out: &mut dyn FnMut(&Piece)) {
        if self.client != Some(activity.client) {
            self.finish(out);
            self.client = Some(activity.client);
        }
        self.due(activity.start, out);
        if self.rule == Sessions::Connection && activity.mark == Mark::Connection {
            self.connection(activity, out);
            self.lay_out(activity, View::Client, out);
        } else if activity.packets == 1 {
            self.emit(activity, View::Both, out);
        } else {
            self.lay_out(activity, View::Both, out);
        }
    }

    /// The client is over; so is what is open.
    pub fn finish(&mut self, out: &mut dyn FnMut(&Piece)) {
        self.due(u64::MAX, out);
        (self.last, self.sent) = ([None; 2], [None; 2]);
        (self.session, self.begins, self.client, self.joined) = (0, false, None, None);
        self.cursors.clear();
        self.free.clear();
    }

    /// Everything up to a time.
    fn due(&mut self, until: u64, out: &mut dyn FnMut(&Piece)) {
        while let Some(Reverse((at, _, slot))) = self.open.peek().copied()
            && at <= until
        {
            self.open.pop();
            let Some((cursor, view)) = self.cursors.get_mut(slot) else { continue };
            let (piece, next, view) = (cursor.piece(self.grain), cursor.at(), *view);
            match next {
                Some(at) => self.wait(at, slot),
                None => self.free.push(slot),
            }
            piece.into_iter().for_each(|piece| self.emit(piece, view, out));
        }
    }

    fn wait(&mut self, at: u64, slot: usize) {
        self.sequence += 1;
        self.open.push(Reverse((at, self.sequence, slot)));
    }

    fn lay_out(&mut self, activity: Activity, view: View, out: &mut dyn FnMut(&Piece)) {
        if self.open.len() >= self.most
            && let Some(Reverse((_, _, slot))) = self.open.pop()
            && let Some((mut cursor, view)) = self.cursors.get(slot).copied()
        {
            self.free.push(slot);
            while let Some(piece) = cursor.piece(self.grain) {
                self.crowded = self.crowded.saturating_add(piece.packets);
                self.emit(piece, view, out);
            }
        }
        let cursor = Cursor::new(activity);
        let slot = self.free.pop().unwrap_or(self.cursors.len());
        match self.cursors.get_mut(slot) {
            Some(place) => *place = (cursor, view),
            None => self.cursors.push((cursor, view)),
        }
        self.wait(activity.start, slot);
    }

    /// A connection as a session by itself.
    fn connection(&mut self, activity: Activity, out: &mut dyn FnMut(&Piece)) {
        self.begins = self.last[1].is_some();
        (self.last[1], self.sent[1]) = (None, None);
        let mut cursor = Cursor::new(activity);
        while let Some(piece) = cursor.piece(self.grain) {
            self.emit(piece, View::Sessions, out);
        }
        self.begins = true;
    }

    fn emit(&mut self, mut activity: Activity, view: View, out: &mut dyn FnMut(&Piece)) {
        let at = usize::from(view == View::Sessions);
        let since = |last: Option<u64>| last.map(|last| activity.start.saturating_sub(last));
        let (silence, outgoing_silence) = (since(self.last[at]), since(self.sent[at]));
        if view != View::Client {
            let silent = silence.zip(self.longest).is_some_and(|(silence, longest)| silence > longest);
            let joins = self.rule == Sessions::Association && activity.mark == Mark::Joins;
            let anew = joins && self.joined.is_none_or(|then| activity.start.saturating_sub(then) > JOINING);
            if anew {
                self.joined = Some(activity.start);
            }
            let joins = anew && self.last[0].is_some();
            self.session += u32::from(core::mem::take(&mut self.begins) || silent || joins);
        }
        (activity.session, activity.silence, activity.outgoing_silence) =
            (self.session, silence, outgoing_silence);
        let both =
            if view == View::Both { [true, true] } else { [view == View::Client, view == View::Sessions] };
        for (n, _) in both.into_iter().enumerate().filter(|(_, of)| *of) {
            self.last[n] = self.last[n].max(Some(activity.end));
            if activity.outgoing > 0 {
                self.sent[n] = self.sent[n].max(activity.last_sent_at());
            }
        }
        out(&Piece { activity, view });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_energy::{Direction, PacketInfo};

    const SECOND: u64 = 1_000_000_000;

    fn activity(client: u32, start: u64, end: u64, packets: u64, outgoing: u64) -> Activity {
        let direction = if outgoing > 0 { Direction::Outgoing } else { Direction::Incoming };
        let first = PacketInfo { direction, ..PacketInfo::default() };
        let (start, end) = (start * SECOND, end * SECOND);
        Activity { client, start, end, packets, outgoing, first, last: first, ..Activity::default() }
            .consistent()
    }

    fn folded(fold: &mut Fold, activities: &[Activity]) -> Vec<Piece> {
        let mut out = Vec::new();
        activities.iter().for_each(|a| fold.push(*a, &mut |p| out.push(*p)));
        fold.finish(&mut |p| out.push(*p));
        out
    }

    fn fold(rule: Sessions) -> Fold {
        Fold::new(SECOND / 4, Some(3600 * SECOND), rule)
    }

    #[test]
    fn what_overlaps_comes_in_order_of_time_and_knows_the_silence_before_it() {
        let all = [
            activity(0, 0, 100, 3, 0),
            activity(0, 10, 10, 1, 1),
            activity(0, 20, 90, 2, 2),
            activity(0, 5000, 5000, 1, 1),
            activity(1, 3, 3, 1, 1),
        ];
        let pieces = folded(&mut fold(Sessions::Silence), &all);
        let told: Vec<_> = pieces
            .iter()
            .map(|p| {
                let a = p.activity;
                let seconds = |s: Option<u64>| s.map(|s| s / SECOND);
                (a.client, a.start / SECOND, a.session, seconds(a.silence), seconds(a.outgoing_silence))
            })
            .collect();
        assert_eq!(
            told,
            [
                (0, 0, 0, None, None),
                (0, 10, 0, Some(10), None),
                (0, 20, 0, Some(10), Some(10)),
                (0, 50, 0, Some(30), Some(30)),
                (0, 90, 0, Some(40), Some(70)),
                (0, 100, 0, Some(10), Some(10)),
                (0, 5000, 1, Some(4900), Some(4910)),
                (1, 3, 0, None, None),
            ]
        );
    }

    #[test]
    fn joining_ends_a_session_where_the_rule_says_so() {
        let joins = |at| Activity { mark: Mark::Joins, ..activity(0, at, at, 1, 1) };
        let all = [joins(0), joins(4), joins(60), joins(61), activity(0, 71, 71, 1, 1)];
        let sessions =
            |rule| folded(&mut fold(rule), &all).iter().map(|p| p.activity.session).collect::<Vec<_>>();
        // What is repeated within a minute is one joining, and no longer.
        assert_eq!(sessions(Sessions::Association), [0, 0, 0, 1, 1]);
        assert_eq!(sessions(Sessions::Silence), [0; 5]);
    }

    #[test]
    fn each_connection_is_a_session_and_the_client_sees_all_of_them() {
        let named = |a| Activity { mark: Mark::Connection, ..a };
        let all = [named(activity(0, 0, 100, 2, 2)), named(activity(0, 10, 20, 2, 2))];
        let pieces = folded(&mut fold(Sessions::Connection), &all);
        let of = |view: View| {
            let pieces = pieces.iter().filter(move |p| p.view == view).map(|p| p.activity);
            pieces.map(|a| (a.start / SECOND, a.session, a.silence.map(|s| s / SECOND))).collect::<Vec<_>>()
        };
        assert_eq!(of(View::Sessions), [(0, 0, None), (100, 0, Some(100)), (10, 1, None), (20, 1, Some(10))]);
        let times: Vec<_> = of(View::Client).iter().map(|p| (p.0, p.2)).collect();
        assert_eq!(times, [(0, None), (10, Some(10)), (20, Some(10)), (100, Some(80))]);
    }

    #[test]
    fn what_is_too_much_to_be_laid_out_at_once_is_counted() {
        let mut fold = Fold { most: 4, ..fold(Sessions::Silence) };
        let all: Vec<Activity> = (0..10).map(|n| activity(0, n, 1000, 3, 3)).collect();
        let pieces = folded(&mut fold, &all);
        assert_eq!(pieces.iter().map(|p| p.activity.packets).sum::<u64>(), 30);
        assert!((6..=18).contains(&fold.crowded()), "{}", fold.crowded());
    }
}
