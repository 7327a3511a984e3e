//! The first answer of a responder that keeps a half-open SA. Owns what it says; whether a caller gets it is the endpoint's decision.

use std::sync::Arc;

use dormouse_crypto::Drawn;
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{ExchangeType, Notify, NotifyType, Payload, ProtocolId};

use super::{HalfOpen, How, Working};
use crate::auth;
use crate::config::Connection;
use crate::handshake::FirstMessage;
use crate::handshake::intermediate::Rounds;
use crate::keys::Spis;
use crate::payloads::{self, View, notify};
use crate::shared::Shared;
use crate::stats::Kind;
use crate::work::Task;

/// What a first message asks for, found acceptable.
pub(crate) struct Wanted {
    pub(crate) conn: Arc<Connection>,
    pub(crate) how: How,
    pub(crate) rounds: Rounds,
    /// The payloads of the answer that come before the nonce.
    pub(crate) before_nonce: Vec<Payload>,
}

impl HalfOpen {
    /// Takes a first message, and answers it, at once or when our public value is there. `None` if there is no key for it.
    pub(crate) fn begin(
        shared: &mut Shared,
        now: Instant,
        first: &FirstMessage<'_>,
        wanted: Wanted,
    ) -> Option<Self> {
        let Wanted { conn, how, rounds, before_nonce } = wanted;
        let view = first.view();
        let drawn = how.group().map(|group| Drawn::draw(group, &mut shared.entropy)).transpose();
        let (drawn, ours) = match drawn.ok()? {
            Some(drawn) if how.group().is_some_and(shared.config.beside.agree) => (Some(drawn), None),
            Some(drawn) => (None, Some(drawn.complete().ok()?)),
            None => (None, None),
        };
        let link = first.link(shared, conn);
        let nat = view.nat(Spis { i: link.spis.i, r: 0 }, &first.path);
        let nonce_r = shared.nonce();
        let hashes = view.notify(NotifyType::SignatureHashAlgorithms);
        let mut half = Self {
            link,
            how,
            rounds,
            answered: None,
            channel: None,
            nonce_i: view.nonce().unwrap_or_default().to_vec(),
            nonce_r,
            request: first.datagram.to_vec(),
            response: Vec::new(),
            nat,
            peer_hashes: hashes.map(|n| auth::parse_hash_algorithms(&n.data)),
            expires: now + shared.config.half_open.timeout,
            begun: now,
            clients: shared.half_open.len() + 1,
            waiting: None,
            wait_until: None,
            work: Working::Not,
            refused: None,
            pending: None,
            eap: None,
        };
        ours.into_iter().for_each(|ours| half.how.set_ours(ours));
        match drawn {
            Some(drawn) => {
                half.order(shared, Task::Complete(Box::new(drawn)), Working::Beginning(before_nonce));
            }
            None => half.answer_first(shared, view, before_nonce),
        }
        Some(half)
    }

    /// Answers the first message.
    pub(super) fn answer_first(&mut self, shared: &mut Shared, view: View<'_>, before_nonce: Vec<Payload>) {
        let (exchange, kind) = match self.how {
            How::Resume { .. } => (ExchangeType::IkeSessionResume, Kind::Resume),
            How::Init { .. } => (ExchangeType::IkeSaInit, Kind::Init),
        };
        let list = self.first_answer(shared, view, before_nonce);
        self.response = self.link.clear(exchange, true, 0, &list);
        self.link.send(shared, Class::Timely, std::slice::from_ref(&self.response));
        self.link.stats.answer(kind);
        shared.stats.answer(kind);
    }

    /// The payloads of the answer.
    fn first_answer(&mut self, shared: &Shared, view: View<'_>, before_nonce: Vec<Payload>) -> Vec<Payload> {
        let (mut list, ours) = (before_nonce, self.how.our_payload());
        let (nonce, link) = (Payload::Nonce(self.nonce_r.clone()), &self.link);
        let resumes = matches!(self.how, How::Resume { .. });
        list.extend(if resumes { [Some(nonce), ours] } else { [ours, Some(nonce)] }.into_iter().flatten());
        if self.nat.supported {
            // "Both the IKE initiator and responder MUST include in their IKE_SA_INIT packets Notify payloads of type [...]"
            // (RFC 7296 section 2.23)
            list.extend(payloads::nat_detection(link.spis, &link.path, link.conn.esp_in_udp.is_forced()));
        }
        if link.fragmentation {
            list.push(notify(NotifyType::Ikev2FragmentationSupported, []));
        }
        if !resumes {
            if view.has(NotifyType::SignatureHashAlgorithms) {
                list.push(notify(NotifyType::SignatureHashAlgorithms, auth::hash_algorithms()));
            }
            list.extend(auth::certreq_payload(&link.conn.remote_auth));
            if shared.config.has_childless() {
                // "A supporting responder MUST include the Notify payload, described in Section 4, within the IKE_SA_INIT response." (RFC 6023
                // section 3)
                // "Protocol ID (1 octet) MUST be 1, as this message is related to an IKEv2 SA." (RFC 6023 section 4)
                let supported = Notify::new(NotifyType::ChildlessIkev2Supported, []);
                list.push(Payload::Notify(Notify { protocol: ProtocolId::Ike, ..supported }));
            }
        }
        list.extend(self.rounds.answered());
        list
    }
}
