//! The first answer of a responder that keeps a half-open SA. Owns what it says; whether a caller gets it is the endpoint's decision.

use std::sync::Arc;

use dormouse_crypto::DhPrivate;
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{Notify, NotifyType, Payload, ProtocolId};

use super::{HalfOpen, How, Signature};
use crate::auth;
use crate::config::Connection;
use crate::handshake::FirstMessage;
use crate::handshake::intermediate::Rounds;
use crate::keys::Spis;
use crate::link::Link;
use crate::natd;
use crate::payloads::{self, notify};
use crate::shared::Shared;
use crate::stats::Kind;
use crate::ticket::Form;

/// What a first message asks for, found acceptable.
pub(crate) struct Wanted {
    pub(crate) conn: Arc<Connection>,
    pub(crate) how: How,
    pub(crate) rounds: Rounds,
    /// The payloads of the answer that come before the nonce.
    pub(crate) before_nonce: Vec<Payload>,
}

impl HalfOpen {
    /// Answers a first message.
    pub(crate) fn begin(
        shared: &mut Shared,
        now: Instant,
        first: &FirstMessage<'_>,
        mut wanted: Wanted,
    ) -> Self {
        let view = first.view();
        let mut link = first.link(shared, wanted.conn.clone());
        let nat = view.nat(Spis { i: link.spis.i, r: 0 }, &first.path);
        let nonce_r = shared.nonce();
        let kind = match wanted.how {
            How::Resume { .. } => Kind::Resume,
            How::Init { .. } => Kind::Init,
        };
        let list = answer(shared, first, &link, &mut wanted, nonce_r.clone(), nat);
        let response = link.clear(first.header.exchange, true, 0, &list);
        link.send(shared, Class::Timely, std::slice::from_ref(&response));
        link.stats.answer(kind);
        shared.stats.answer(kind);
        let hashes = view.notify(NotifyType::SignatureHashAlgorithms);
        Self {
            link,
            how: wanted.how,
            rounds: wanted.rounds,
            answered: None,
            channel: None,
            nonce_i: view.nonce().unwrap_or_default().to_vec(),
            nonce_r,
            request: first.datagram.to_vec(),
            response,
            nat,
            peer_hashes: hashes.map(|n| auth::parse_hash_algorithms(&n.data)),
            expires: now + shared.config.half_open.timeout,
            begun: now,
            clients: shared.half_open.len() + 1,
            waiting: None,
            wait_until: None,
            signature: Signature::NotYet,
            refused: None,
            pending: None,
            eap: None,
        }
    }
}

/// The payloads of the answer. Our half of a key exchange that a resumption has is drawn here.
fn answer(
    shared: &mut Shared,
    first: &FirstMessage<'_>,
    link: &Link,
    wanted: &mut Wanted,
    nonce_r: Vec<u8>,
    nat: natd::Detection,
) -> Vec<Payload> {
    let view = first.view();
    let mut list = std::mem::take(&mut wanted.before_nonce);
    list.push(Payload::Nonce(nonce_r));
    if let (How::Resume { ticket, dh }, Some((_, public))) = (&mut wanted.how, view.ke())
        && ticket.form == Form::Dormouse
        && let Ok(ours) = DhPrivate::generate(ticket.suite.group, &mut shared.entropy)
    {
        list.push(Payload::Ke { group: ours.group().id(), data: ours.public_value().to_vec() });
        *dh = Some((ours, public.to_vec()));
    }
    if nat.supported {
        // "Both the IKE initiator and responder MUST include in their IKE_SA_INIT packets Notify payloads of type [...]"
        // (RFC 7296 section 2.23)
        list.extend(payloads::nat_detection(link.spis, &link.path, link.conn.esp_in_udp.is_forced()));
    }
    if link.fragmentation {
        list.push(notify(NotifyType::Ikev2FragmentationSupported, []));
    }
    if matches!(wanted.how, How::Init { .. }) {
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
    list.extend(wanted.rounds.answered());
    list
}
