//! What a mobile host asks: registration requests, the notice to the foreign agent before, and their identifications. Owns the order of
//! extensions.

use core::net::Ipv4Addr;

use dormouse_sansio::Instant;
use dormouse_wire::mobileip::{Message, Moved, Request, extension, kind, request};

use super::MobileHost;
use crate::association::Replay;
use crate::clock::is_after;

impl MobileHost {
    /// "This ordering is REQUIRED" (RFC 5944 section 3.6.1.3): what the home agent checks, then what is for the foreign agent alone.
    pub(super) fn request(&self, agent: Ipv4Addr, care_of: Ipv4Addr, lifetime: u16, id: u64) -> Vec<u8> {
        let co_located = self.link.as_ref().is_some_and(|l| l.co_located.is_some());
        // "The mobile node SHOULD set the 'D' bit if it is registering with a co-located care-of address. Otherwise, the 'D' bit MUST NOT be
        // set." (RFC 5944 section 3.6.1.2)
        let away = lifetime > 0;
        let mut flags = 0;
        if away && co_located {
            flags |= request::DECAPSULATES;
        }
        if away && self.config.reverse {
            flags |= request::REVERSE;
        }
        let (home, home_agent) = (self.config.home, self.config.home_agent);
        let mut message = Vec::new();
        Message::Request(Request { flags, lifetime, home, agent: home_agent, care_of, id })
            .emit(&mut message);
        // "An authorization-enabling extension MUST be included in all Registration Requests." (RFC 5944 section 3.3)
        self.config.association.sign(kind::MOBILE_HOME, &mut message);
        if agent == home_agent {
            return message;
        }
        if let Some(notice) = self.notice(care_of).filter(|_| away) {
            // Far below what an extension takes.
            let _ = extension(kind::EXPERIMENT, &notice, &mut message);
        }
        // "item (e) MUST be included when the mobile node and the foreign agent share a Mobility Security Association." (RFC 5944 section
        // 3.6.1.3)
        if let Some(association) = self.config.foreign.get(&agent) {
            association.sign(kind::MOBILE_FOREIGN, &mut message);
        }
        message
    }

    /// For the foreign agent before, if there is one that would believe it: what follows the type of an experimental message.
    fn notice(&self, care_of: Ipv4Addr) -> Option<Vec<u8>> {
        let (previous, id) = self.previous.filter(|(agent, _)| *agent != care_of)?;
        let association = self.config.foreign.get(&previous).filter(|_| self.config.sent_after > 0)?;
        let (home, lifetime) = (self.config.home, self.config.sent_after);
        let mut message = Vec::new();
        Message::Moved(Moved { previous, home, care_of, lifetime, id }).emit(&mut message);
        association.sign(kind::MOBILE_FOREIGN, &mut message);
        Some(message.split_off(1))
    }

    /// "The Identification field in a new Registration Request MUST NOT be the same as in an immediately preceding Request" (RFC 5944
    /// section 5.7)
    pub(super) fn next_id(&mut self, now: Instant) -> u64 {
        let id = match self.config.replay {
            // "the 64-bit Identification used in a Registration Request from the mobile node MUST be greater than that used in any previous
            // Registration Request" (RFC 5944 section 5.7.1)
            Replay::Timestamps(_) => {
                let time = self.clock.ntp(now).wrapping_add(self.skew);
                self.last_id.filter(|last| !is_after(time, *last)).map_or(time, |last| last.wrapping_add(1))
            }
            Replay::Nonces => u64::from(self.nonce) << 32 | self.random.next_u64() >> 32,
        };
        self.last_id = Some(id);
        id
    }
}
