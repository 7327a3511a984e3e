//! Several recordings as one stream in order of time. Owns the k-way merge; must never depend on the order of files.
//!
//! A file is opened when the stream reaches its first time, so recordings that follow each other are open one at a time.
//! Packets of equal time come in the order of file names.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::flow::Spread;
use crate::input::Input;
use crate::seen::Seen;
use crate::source::{Reader, Source};
use crate::survey::FileSurvey;

/// The merged stream.
pub struct Merge<'a> {
    files: Vec<(&'a Input, &'a FileSurvey)>,
    spread: Spread,
    /// Files not yet opened, the next one last.
    waiting: Vec<usize>,
    /// Next packet of each open file but the current one.
    open: BinaryHeap<Reverse<(u64, usize)>>,
    slots: Vec<Option<(Source, Option<Seen>)>>,
    current: Option<usize>,
    /// The current file may go on up to this time (and beyond it loses its turn).
    until: (u64, usize),
    late: u64,
    done_bytes: u64,
}

impl<'a> Merge<'a> {
    /// Merges surveyed inputs. Inputs that could not be opened are passed over (the survey has noted why).
    #[must_use]
    pub fn new(mut files: Vec<(&'a Input, &'a FileSurvey)>, spread: Spread) -> Self {
        files.sort_by(|a, b| a.0.name().cmp(b.0.name()));
        let mut waiting: Vec<usize> = (0..files.len())
            .filter(|i| files.get(*i).is_some_and(|(_, s)| s.format.is_some() && s.records > 0))
            .collect();
        waiting.sort_by_key(|i| Reverse((files.get(*i).map(|(_, s)| s.first), *i)));
        let slots = files.iter().map(|_| None).collect();
        let mut merge = Self {
            files,
            spread,
            waiting,
            open: BinaryHeap::new(),
            slots,
            current: None,
            until: (0, 0),
            late: 0,
            done_bytes: 0,
        };
        merge.turn();
        merge
    }

    /// Packets that came too late to be put in their place.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late + self.slots.iter().flatten().map(|(s, _)| s.late()).sum::<u64>()
    }

    /// Bytes read so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.done_bytes + self.slots.iter().flatten().map(|(s, _)| s.reader().offset()).sum::<u64>()
    }

    /// The name that the packet's file gives its client.
    #[must_use]
    pub fn name(&self, file: usize, name: u32) -> Option<&str> {
        let (source, _) = self.slots.get(file)?.as_ref()?;
        source.reader().decoder().names()?.get_index(name.checked_sub(1)? as usize).map(String::as_str)
    }

    /// The next packet and the number of its file.
    #[inline]
    pub fn packet(&mut self) -> Option<(usize, Seen)> {
        loop {
            let at = self.current?;
            let (source, head) = self.slots.get_mut(at)?.as_mut()?;
            match *head {
                Some(seen) if (seen.at, at) <= self.until => {
                    *head = source.packet();
                    return Some((at, seen));
                }
                Some(seen) => self.open.push(Reverse((seen.at, at))),
                None => self.close(at),
            }
            self.turn();
        }
    }

    fn close(&mut self, at: usize) {
        if let Some((source, _)) = self.slots.get_mut(at).and_then(Option::take) {
            self.late += source.late();
            self.done_bytes += source.reader().offset();
        }
    }

    /// Whose turn is it, and how far?
    fn turn(&mut self) {
        self.current = None;
        loop {
            let next_closed = self.waiting.last().and_then(|i| Some((self.files.get(*i)?.1.first, *i)));
            let next_open = self.open.peek().map(|Reverse(head)| *head);
            match (next_closed, next_open) {
                (Some(closed), open) if open.is_none_or(|open| closed <= open) => {
                    self.waiting.pop();
                    self.start(closed.1);
                }
                (_, Some(_)) => break,
                (_, None) => return,
            }
        }
        let Some(Reverse((_, at))) = self.open.pop() else { return };
        self.current = Some(at);
        let next_open = self.open.peek().map(|Reverse(head)| *head);
        let next_closed = self.waiting.last().and_then(|i| Some((self.files.get(*i)?.1.first, *i)));
        self.until = [next_open, next_closed].into_iter().flatten().min().unwrap_or((u64::MAX, usize::MAX));
    }

    fn start(&mut self, at: usize) {
        let Some((input, survey)) = self.files.get(at) else { return };
        // The survey could open it; what changed since is a loss of the whole file, found by its record count.
        let Ok(reader) = Reader::open(input, survey.format) else { return };
        let mut source = Source::new(reader, survey.lateness, self.spread);
        let head = source.packet();
        if let Some(seen) = head {
            self.open.push(Reverse((seen.at, at)));
            if let Some(slot) = self.slots.get_mut(at) {
                *slot = Some((source, head));
            }
        }
    }
}
