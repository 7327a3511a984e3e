//! DNS questions that a device has open, so that late answers are distinguished from stray ones. Owns no answer: a gateway is no resolver.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_sansio::Instant;
use dormouse_wire::dns::{Message, REFUSED, RESPONSE, Section};

use crate::limits::{QUESTION_AGE, QUESTIONS};

/// The bits of the flags that say what became of a question.
const RCODE: u16 = 0xf;

/// Who was asked, from which port, under which id.
type Key = (IpAddr, u16, u16);

/// The open questions of one device.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    open: BTreeMap<Key, Instant>,
    /// What the device was seen to say last to a DNS question.
    said: Option<u16>,
}

/// Id and flags, without reading the rest.
fn head(payload: &[u8]) -> Option<(u16, u16)> {
    let &[i0, i1, f0, f1, ..] = payload else { return None };
    Some((u16::from_be_bytes([i0, i1]), u16::from_be_bytes([f0, f1])))
}

impl Resolver {
    pub(crate) fn asked(&mut self, now: Instant, server: IpAddr, port: u16, payload: &[u8]) {
        let Some((id, flags)) = head(payload) else { return };
        if flags & RESPONSE != 0 {
            return;
        }
        if self.open.len() >= QUESTIONS {
            self.open.retain(|_, at| now - *at < QUESTION_AGE);
        }
        if self.open.len() >= QUESTIONS
            && let Some(oldest) = self.open.iter().min_by_key(|(key, at)| (**at, **key)).map(|(key, _)| *key)
        {
            self.open.remove(&oldest);
        }
        self.open.insert((server, port, id), now);
    }

    pub(crate) fn answered(&mut self, server: IpAddr, port: u16, payload: &[u8]) {
        if let Some((id, _)) = head(payload) {
            self.open.remove(&(server, port, id));
        }
    }

    pub(crate) fn served(&mut self, payload: &[u8]) {
        let response = head(payload).filter(|(_, flags)| flags & RESPONSE != 0);
        self.said = response.map(|(_, flags)| flags & RCODE).or(self.said);
    }

    /// Whether the device refuses DNS questions.
    pub(crate) fn refuses(&self) -> bool {
        self.said == Some(REFUSED)
    }

    /// How long an answer to the device is worth keeping, if it is one that the device waits for: no longer than its records
    /// last, for the device takes their age from the moment at which it gets them. A few seconds in any case: an answer that
    /// may not be kept at all still answers the question.
    pub(crate) fn waits_for(
        &self,
        now: Instant,
        server: IpAddr,
        port: u16,
        payload: &[u8],
    ) -> Option<Duration> {
        const LEAST: Duration = Duration::from_secs(5);
        let (id, _) = head(payload)?;
        let asked = self.open.get(&(server, port, id))?;
        if now - *asked >= QUESTION_AGE {
            return None;
        }
        let message = Message::parse(payload).ok().filter(|m| m.header.is_response())?;
        let ttl = message.section(Section::Answer).map(|r| r.ttl).min();
        Some(ttl.map_or(QUESTION_AGE, |ttl| Duration::from_secs(ttl.into()).clamp(LEAST, QUESTION_AGE)))
    }
}
