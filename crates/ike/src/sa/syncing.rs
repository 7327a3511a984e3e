//! An IKE SA that was taken over from a gateway that is gone, until its peer has agreed on message ids (RFC 6311 section 5.1). Owns the exchange
//! with message id 0 and its repetitions; must never send or hear anything else meanwhile.
//!
//! "The request and the response MUST both be sent with a Message ID value of zero." (RFC 6311 section 5.1): it is outside of the
//! window, so it is not one of the exchanges of [`crate::exchange`].

use core::time::Duration;

use dormouse_sansio::{Class, Deadline, Instant, Path};
use dormouse_wire::ike::{ExchangeType, Header, NotifyType, Payload};

use super::IkeSa;
use super::messages::Fate;
use super::stage::{Stage, Standing};
use crate::error::Discard;
use crate::event::CloseReason;
use crate::exchange::child::CreateChild;
use crate::exchange::rekey::RekeyIke;
use crate::payloads::notify;
use crate::shared::Shared;
use crate::stats::Kind;
use crate::window::{Incoming, Outgoing};
use dormouse_keying::ChildId;

/// Message ids that one owner has at most above those that it has written down: a gateway writes at each rekeying, and sends requests of
/// its own every few seconds at most.
const IDS_OF_OWNER: u32 = 1 << 20;
/// A CHILD SA of the former owner is replaced within this time, or the IKE SA ends: it carries nothing.
pub(crate) const REPLACED_WITHIN: Duration = Duration::from_secs(60);

/// What it waits for.
#[derive(Debug)]
pub(crate) struct Syncing {
    nonce: [u8; 4],
    /// M1 and P1: the ids of our next request and of the peer's.
    ids: (u32, u32),
    datagrams: Vec<Vec<u8>>,
    sent: u32,
    due: Instant,
    until: Instant,
}

impl Syncing {
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::strict(self.due.min(self.until), "retransmission")
    }
}

/// The id that our next request has, if the gateway which wrote down that `next` is its own was followed by so many owners, the last of which we are.
/// "M1 MUST be chosen so that it is larger than any value known to have been used." (RFC 6311 section 5.1)
/// "It is RECOMMENDED to increment the known value at least by the size of the IKE sender window." (RFC 6311 section 5.1)
/// It grows with the number of owners, which the store counts: "The member SHOULD communicate the sent values to the other cluster members, so that if a second failover
/// event takes place, the synchronization message is not replayed." (RFC 6311 section 5.1)
pub(crate) fn next_request(next: u32, owners_since: u16) -> u32 {
    next.saturating_add(IDS_OF_OWNER.saturating_mul(owners_since.into()))
}

pub(crate) fn data(nonce: [u8; 4], (send, receive): (u32, u32)) -> Vec<u8> {
    [nonce, send.to_be_bytes(), receive.to_be_bytes()].concat()
}

/// Nonce, EXPECTED_SEND_REQ_MESSAGE_ID and EXPECTED_RECV_REQ_MESSAGE_ID of a message that has nothing else.
/// "Both the request and the response MUST NOT contain any additional payloads, other than an optional IPSEC_REPLAY_COUNTER_SYNC
/// notification in the request." (RFC 6311 section 5.1)
pub(crate) fn read(payloads: &[Payload]) -> Option<([u8; 4], u32, u32)> {
    let [Payload::Notify(n)] = payloads else { return None };
    let data: [u8; 12] = n.data.as_slice().try_into().ok()?;
    let [a, b, c, d, e, f, g, h, i, j, k, l] = data;
    let ids = (u32::from_be_bytes([e, f, g, h]), u32::from_be_bytes([i, j, k, l]));
    (n.kind == NotifyType::Ikev2MessageIdSync).then_some(([a, b, c, d], ids.0, ids.1))
}

impl IkeSa {
    /// Whether it was taken over, and its peer has not agreed on message ids yet.
    pub(crate) fn is_syncing(&self) -> bool {
        matches!(self.stage, Stage::Syncing(_))
    }

    /// Tells the peer that another gateway has the SA now, and at which ids messages go on: `ids` of ours and of the peer's.
    /// "To avoid denial-of-service (DoS) attacks resulting from replayed messages, the peer MUST NOT initiate counter
    /// synchronization for any particular IKE SA more than once per failover event." (RFC 6311 section 7): an SA is taken over once by a gateway,
    /// which does this then.
    /// "IKE Message ID Synchronization messages MUST NOT be sent fragmented" (RFC 7383 section 3)
    pub(crate) fn begin_sync(&mut self, shared: &mut Shared, now: Instant, ids: (u32, u32)) {
        let mut nonce = [0; 4];
        shared.entropy.fill(&mut nonce);
        let request = [notify(NotifyType::Ikev2MessageIdSync, data(nonce, ids))];
        let core = &mut self.core;
        let header = core.link.header(ExchangeType::Informational, false, 0);
        let datagrams = core.channel.seal_whole(&core.link, shared, &header, &request);
        core.link.send(shared, Class::Urgent, &datagrams);
        core.link.stats.begin(Kind::Informational);
        shared.stats.begin(Kind::Informational);
        let (wait, until) = (core.link.wait(shared, 1), now + core.link.patience(shared));
        core.last_out = now;
        let syncing = Syncing { nonce, ids, datagrams, sent: 1, due: now + wait, until };
        self.stage = Stage::Syncing(Box::new(syncing));
    }

    /// Sends the request again, or gives up: the peer has gone, or knows the SA no more.
    pub(super) fn sync_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        let Stage::Syncing(syncing) = &mut self.stage else { return Fate::Lives };
        if syncing.until <= now {
            return Fate::Ends(CloseReason::TimedOut);
        }
        if syncing.due <= now {
            syncing.sent += 1;
            syncing.due = now + self.core.link.wait(shared, syncing.sent);
            self.core.link.send_again(shared, Class::Urgent, &syncing.datagrams);
        }
        Fate::Lives
    }

    /// An answer, while the SA waits for one. What is not the answer is dropped silently, and the request repeated.
    /// "A response MUST be silently dropped if the received nonce does not match the one that was sent." (RFC 6311 section 5.1)
    pub(super) fn take_sync(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<Fate, Discard> {
        if header.message_id != 0 || header.exchange != ExchangeType::Informational {
            return Err(Discard::UnexpectedResponse);
        }
        let opened = self.core.channel.open(now, datagram)?.ok_or(Discard::Fragment)?;
        let Stage::Syncing(syncing) = &self.stage else { return Err(Discard::UnexpectedResponse) };
        let (nonce, (m1, p1)) = (syncing.nonce, syncing.ids);
        let answer = opened.ok().and_then(|payloads| read(&payloads));
        // "M2 MUST be at least the higher of the received M1, and one more than the highest sender value received from the cluster." (RFC 6311
        // section 5.1)
        // "P2 MUST be the higher of the received P1 value, and one more than the highest sender value used by the peer." (RFC 6311 section
        // 5.1)
        let (p2, m2) = match answer {
            Some((said, p2, m2)) if said == nonce && m2 >= m1 && p2 >= p1 => (p2, m2),
            _ => return Err(Discard::Refused),
        };
        self.core.requests = Outgoing::begin(m2, self.core.requests.window());
        self.core.answers = Incoming::new(p2, shared.config.window);
        self.core.channel.forget_before(p2, m2);
        self.core.answered(shared);
        self.stage = Stage::Live(Standing::Heard);
        self.heard(shared, now, path);
        tracing::info!(sa = %self.core.id(), peer = %self.core.peer, %path, "IKE SA taken over from another gateway");
        let children: Vec<ChildId> = self.children.ids();
        for child in children {
            self.enqueue(CreateChild::rekey(child), now);
        }
        // The keys that were left are used no longer than that takes: and a strongSwan answers with message id 0 once under a key: it makes its
        // IVs of message ids, so another owner after us needs other keys.
        self.enqueue(RekeyIke::new(), now);
        self.pump(shared, now);
        Ok(Fate::Lives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_begins_above_all_that_the_one_before_can_have_used() {
        assert_eq!(next_request(7, 1), 7 + IDS_OF_OWNER);
        assert_eq!(next_request(7, 3), 7 + 3 * IDS_OF_OWNER);
        assert_eq!(next_request(u32::MAX - 1, u16::MAX), u32::MAX, "it is rekeyed at once, or ends");
    }

    #[test]
    fn an_answer_has_one_payload_of_the_right_length() {
        let good = notify(NotifyType::Ikev2MessageIdSync, data([1, 2, 3, 4], (5, 6)));
        assert_eq!(read(std::slice::from_ref(&good)), Some(([1, 2, 3, 4], 5, 6)));
        assert_eq!(read(&[good.clone(), good]), None);
        assert_eq!(read(&[notify(NotifyType::Ikev2MessageIdSync, [0; 11])]), None);
        assert_eq!(read(&[notify(NotifyType::Cookie2, [0; 12])]), None);
    }
}
