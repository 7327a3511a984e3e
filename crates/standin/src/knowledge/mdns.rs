//! Multicast DNS records that a device announced (RFC 6762). Owns each for as long as the device said that it holds.

use core::time::Duration;

use dormouse_sansio::Instant;
use dormouse_wire::dns::{ANY, IN, Message, Question, Record, Section, TOP_BIT};

use crate::limits::{RECORD_BYTES, RECORD_TTL, RECORDS};

/// A record and when it ends.
#[derive(Clone, Debug)]
struct Announced {
    record: Record,
    since: Instant,
    until: Instant,
}

/// All records of a device, in the order of their announcement.
#[derive(Debug, Default)]
pub(crate) struct Records {
    list: Vec<Announced>,
    bytes: usize,
}

fn cost(record: &Record) -> usize {
    record.name.as_bytes().len() + record.data.len()
}

fn same_set(a: &Record, b: &Record) -> bool {
    a.kind == b.kind && a.class & !TOP_BIT == b.class & !TOP_BIT && a.name.matches(&b.name)
}

impl Records {
    /// A response of the device: its answers and additional records are what it announces.
    pub(crate) fn announced(&mut self, now: Instant, message: &Message) {
        if !message.header.is_response() {
            return;
        }
        let told = || message.records.iter().filter(|r| r.section != Section::Authority);
        // A record with the top bit set replaces those of its name and type that this message does not repeat (section 10.2).
        self.retain(|old| {
            old.until > now
                && !told().any(|new| {
                    same_set(&old.record, new) && (new.class & TOP_BIT != 0 || new.data == old.record.data)
                })
        });
        for record in told() {
            // A TTL of 0 is a goodbye (section 10.1): the record is gone already if it has a flush bit or equal data.
            if record.ttl == 0 || record.class & !TOP_BIT != IN || self.holds(record) {
                continue;
            }
            let until = now + Duration::from_secs(record.ttl.into()).min(RECORD_TTL);
            if self.list.len() < RECORDS && self.bytes + cost(record) <= RECORD_BYTES {
                self.bytes += cost(record);
                self.list.push(Announced { record: record.clone(), since: now, until });
            }
        }
    }

    fn holds(&self, record: &Record) -> bool {
        self.list.iter().any(|a| same_set(&a.record, record) && a.record.data == record.data)
    }

    fn retain(&mut self, keep: impl Fn(&Announced) -> bool) {
        self.list.retain(keep);
        self.bytes = self.list.iter().map(|a| cost(&a.record)).sum();
    }

    /// What answers `question`: each record with the seconds that it still holds, at most those that it was announced with.
    pub(crate) fn answers<'a>(
        &'a self,
        now: Instant,
        question: &'a Question,
    ) -> impl Iterator<Item = (&'a Record, u32)> {
        let fits = move |a: &&Announced| {
            let class = question.class & !TOP_BIT;
            a.until > now
                && (question.kind == a.record.kind || question.kind == ANY)
                && (class == IN || class == ANY)
                && question.name.matches(&a.record.name)
        };
        self.list.iter().filter(fits).filter_map(move |a| {
            let passed = u32::try_from((now - a.since).as_secs()).unwrap_or(u32::MAX);
            // Rounded down, and never 0: that would be a goodbye.
            Some((&a.record, a.record.ttl.saturating_sub(passed))).filter(|(_, ttl)| *ttl > 0)
        })
    }
}

/// Whether the asker has `record` already, with half of its time at least left (RFC 6762 section 7.1).
pub(crate) fn is_known(query: &Message, record: &Record, ttl: u32) -> bool {
    let known = |k: &Record| same_set(k, record) && k.data == record.data && k.ttl >= ttl / 2;
    query.section(Section::Answer).any(known)
}
