//! A caller that proves itself by EAP (RFC 7296, section 2.16): its first IKE_AUTH request has no AUTH payload, and the ones that follow carry
//! the conversation. Owns the answers until both ends have the conversation's key, and what is kept of a caller that has proved nothing:
//! the first request, the last answer, a bounded number of round trips. Whom a user's name means, and whether he is let in, is decided by
//! the connections of now.
//!
//! "Extensible authentication is implemented in IKE as additional IKE_AUTH exchanges that MUST be completed in order to initialize the IKE SA."
//! (RFC 7296 section 2.16)
//!
//! A user who is denied, not one of the connection's or unknown gets the answers of one whose password is wrong.

mod elsewhere;
mod known;
mod talk;

use core::net::IpAddr;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::{ExchangeType, Id, NotifyType, Payload, unsupported_critical};
use known::{By, Said, Wanted};
use talk::{Talk, Told, told};

use super::identify::Refusal;
use super::{Caller, HalfOpen, How, Working, is_childless};
use crate::auth::{self, Proof, Proving};
use crate::config::{Connection, LocalAuth};
use crate::credential::{self, Credential};
use crate::error::{Discard, NegotiationError};
use crate::event::Event;
use crate::handshake::{Slot, Step};
use crate::limits::{STRANGERS_SIGNED_FOR_BY_TOKEN, STRANGERS_SIGNED_FOR_MAX};
use crate::payloads::{View, notify};
use crate::revocation::Judgement;
use crate::session::Session;
use crate::shared::Shared;
use crate::work::Task;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Eap {
    talk: Talk,
    /// The gateway has proved itself by nothing else.
    alone: bool,
    /// The first request: what it asks for is answered with the last.
    first: Vec<Payload>,
    /// Who we have proved to be.
    id_r: Id,
    /// The answer to the last request, for its repetitions.
    answered: Vec<Vec<u8>>,
    /// Where repetitions are answered: whence IKE_SA_INIT came, and then each request that follows an answer. From any other address a caller could
    /// have certificates sent, for each small request, to whom it wants to be flooded.
    hears: IpAddr,
    /// Whence IKE_SA_INIT came, and where its answer arrived, without which there are no keys: the caller is there. Any later packet's source can be
    /// forged: a stranger whose guesses were counted by that could keep a user out whose address he knows.
    began: IpAddr,
    /// Requests that are answered, and bytes of EAP that have come.
    rounds: u32,
    bytes: usize,
    said: Said,
    /// The key that the conversation has made: it is over.
    /// "This shared key generated during an IKE exchange MUST NOT be used for any other purpose." (RFC 7296 section 2.16) It goes with the
    /// half-open SA.
    msk: Option<Secret>,
    /// The user is told that it will fail: that is on record, as no word of his may follow.
    failed: bool,
}

impl HalfOpen {
    /// The id of the next request.
    pub(super) fn next_id(&self) -> u32 {
        self.rounds.next_id() + self.eap.as_ref().map_or(0, |eap| eap.rounds)
    }

    /// Whether the conversation has begun, and not come to its end.
    pub(super) fn converses(&self) -> bool {
        self.eap.as_ref().is_some_and(|eap| eap.msk.is_none())
    }

    /// The key that it has made.
    pub(super) fn eap_key(&self) -> Option<&Secret> {
        self.eap.as_ref().and_then(|eap| eap.msk.as_ref())
    }

    /// The last request of the caller with the first, which asks for what it wants.
    pub(super) fn with_first(&self, last: &[Payload]) -> Option<Vec<Payload>> {
        self.eap.as_ref().map(|eap| [&eap.first, last].concat())
    }

    /// Who calls, as far as it has said.
    pub(super) fn claimed(&self, view: View<'_>) -> Option<Identity> {
        let user = self.eap.as_ref().and_then(|eap| eap.said.claimed());
        user.or_else(|| view.id_i().and_then(|id| auth::identity(id).ok()))
    }

    /// Whether a request proposes EAP.
    /// "[...] by leaving out the AUTH payload from the first message in the IKE_AUTH exchange" (RFC 7296 section 2.16)
    pub(super) fn proposes_eap(&self, view: View<'_>) -> bool {
        self.eap.is_none() && matches!(self.how, How::Init { .. }) && view.auth().is_none()
    }

    /// A repetition of the last request gets its answer again.
    pub(super) fn repeat_eap(
        mut self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        datagram: &mut [u8],
    ) -> Step {
        let repeated = self.channel.as_ref().map(|channel| channel.is_repetition(datagram));
        match (repeated, &self.eap) {
            (Some(Ok(true)), Some(eap)) if eap.hears == path.remote.ip() => {
                let datagrams = eap.answered.clone();
                self.link.send_by(shared, path, Class::Timely, &datagrams);
                Step::to(Slot::HalfOpen(self))
            }
            (Some(Err(discard)), _) => Step::stay(Slot::HalfOpen(self), discard),
            (Some(Ok(_)), _) => Step::to(Slot::HalfOpen(self)),
            (None, _) => Step::stay(Slot::HalfOpen(self), Discard::InappropriateExchange),
        }
    }

    /// "[...] defer sending SAr2, TSi, and TSr until initiator authentication is complete in a subsequent IKE_AUTH exchange" (RFC 7296 section
    /// 2.16): it proves who we are, before the caller does, and begins the conversation. The first connection whose users could be meant stands in.
    ///
    /// It asks for the user's name (EAP-Identity), against the advice of RFC 7296 section 3.16: what the clients of phones and of Windows put into
    /// IDi is an address or a name of the device.
    pub(super) fn begin_eap(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        payloads: &[Payload],
    ) -> Step {
        let view = View(payloads);
        let claimed = self.claimed(view);
        if view.id_i().is_none() {
            let error = NegotiationError::Malformed { exchange: "IKE_AUTH", what: "no IDi payload" };
            return self.refuse(shared, path, claimed, notify(NotifyType::InvalidSyntax, []), error);
        }
        let asked = view.id_r().and_then(|id| auth::identity(id).ok());
        let wanted = Wanted { childless: is_childless(view), asked: asked.as_ref(), alone: false };
        let found = shared.config.connections.iter().find(|conn| wanted.fits(conn, &self.how));
        let Some(conn) = found.cloned() else {
            let text =
                |id: &Option<Identity>, none: &str| id.as_ref().map_or(none.to_owned(), Identity::to_string);
            let (who, whom) = (text(&claimed, "?"), text(&asked, "anyone"));
            let error =
                NegotiationError::NoConnection { claimed: who, asked: whom, method: "EAP", by_eap: false };
            return self.refuse_admission(shared, path, claimed, error);
        };
        // RFC 7296 section 2.23: the initiator may have moved to port 4500 with this message.
        self.link.path = path;
        self.link.conn = conn.clone();
        let id_r = auth::id_payload(&conn.local_id);
        // By its AUTH and CERT payloads the gateway says that it does not prove itself inside EAP alone (RFC 5998, section 3).
        let alone = view.has(NotifyType::EapOnlyAuthentication)
            && conn.answering.eap.as_ref().is_some_and(|policy| policy.is_alone());
        let proof = match std::mem::replace(&mut self.work, Working::Not) {
            _ if alone => Ok(None),
            Working::Signed(result) => {
                result.map(|proof| Some(Proving::Done(proof))).map_err(auth::AuthError::from)
            }
            _ => self.prove_first(&conn, &id_r, shared).map(Some),
        };
        let proof = match proof {
            Ok(None) => None,
            Ok(Some(Proving::Done(proof))) => Some(proof),
            Ok(Some(Proving::Sign(order))) => {
                let most = strangers_signed_for(&conn.local_auth);
                if !shared.callers.sign_for_stranger(self.link.id, most) {
                    return self.refuse_admission(
                        shared,
                        path,
                        claimed,
                        credential::Refusal::Signatures.into(),
                    );
                }
                self.waiting = Some((path, payloads.to_vec()));
                self.order(shared, Task::Sign(order), Working::Signing);
                return Step::to(Slot::HalfOpen(self));
            }
            Err(error) => return self.refuse_admission(shared, path, claimed, error.into()),
        };
        let wanted = Wanted { asked: Some(&conn.local_id), alone, ..wanted };
        let (talk, request) = match Talk::begin(shared, now, &conn, (&wanted, &self.how)) {
            Ok(begun) => begun,
            Err(why) => {
                let error = NegotiationError::Eap(Box::new(why));
                return self.refuse_admission(shared, path, claimed, error);
            }
        };
        let mut list = vec![Payload::IdR(id_r.clone())];
        if let Some(proof) = proof {
            list.extend(auth::cert_payloads(&conn.local_auth));
            list.push(proof.into());
        }
        list.push(Payload::Eap(request));
        let (first, answered, said) = (payloads.to_vec(), Vec::new(), Said::default());
        let (rounds, bytes, msk, failed) = (0, 0, None, false);
        let began = shared.half_open.came_from(self.link.id).unwrap_or(path.remote.ip());
        let eap =
            Eap { talk, alone, first, id_r, answered, hears: began, began, rounds, bytes, said, msk, failed };
        self.eap = Some(Box::new(eap));
        self.answer_eap(shared, path, &list)
    }

    /// "Therefore, in case of EAP, the responder always computes the AUTH payload in the first IKE_AUTH reply message without using a PPK"
    /// (RFC 8784 section 3)
    fn prove_first(&self, conn: &Connection, id_r: &Id, shared: &Shared) -> Result<Proving, auth::AuthError> {
        let Some(channel) = &self.channel else { return Err(auth::AuthError::NoCertificate) };
        let proof = Proof {
            prf: channel.suite.prf,
            sk_p: &channel.sk_pr,
            message: &self.response,
            nonce: &self.nonce_i,
            id: id_r,
            int_auth: &self.rounds.int_auth(),
        };
        auth::authenticate(&proof, &conn.local_auth, self.peer_hashes.as_deref(), shared.config.beside.sign)
    }

    /// Answers a request of the conversation, and keeps the answer.
    fn answer_eap(mut self: Box<Self>, shared: &mut Shared, path: Path, list: &[Payload]) -> Step {
        let header = self.link.header(ExchangeType::IkeAuth, true, self.next_id());
        let datagrams = self.channel.as_mut().map(|channel| channel.seal(&self.link, shared, &header, list));
        let datagrams = datagrams.unwrap_or_default();
        self.link.send_by(shared, path, Class::Timely, &datagrams);
        if let Some(eap) = &mut self.eap {
            eap.rounds += 1;
            eap.answered = datagrams;
        }
        Step::to(Slot::HalfOpen(self))
    }

    /// Goes on with the conversation.
    pub(super) fn converse(
        mut self: Box<Self>,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        payloads: &[Payload],
    ) -> Step {
        // A round trip of the conversation may come over another path of a NAT.
        self.link.path = path;
        if let Some(eap) = &mut self.eap {
            eap.hears = path.remote.ip();
        }
        let view = View(payloads);
        let claimed = self.claimed(view);
        if let Some(kind) = unsupported_critical(payloads) {
            let refusal = notify(NotifyType::UnsupportedCriticalPayload, [kind.code()]);
            let what = "a critical payload that is not supported";
            let error = NegotiationError::Malformed { exchange: "IKE_AUTH", what };
            return self.refuse(shared, path, claimed, refusal, error);
        }
        let told = match (view.eap(), self.eap.as_deref_mut()) {
            (Some(packet), Some(eap)) => told(shared, now, &self.how, eap, packet),
            _ => Err("no EAP payload"),
        };
        // Said just now.
        let claimed = self.claimed(view).or(claimed);
        self.tell(shared, path, claimed, told)
    }

    /// Tells the caller what the conversation wants it to hear.
    fn tell(
        mut self: Box<Self>,
        shared: &mut Shared,
        path: Path,
        claimed: Option<Identity>,
        told: Result<Told, &'static str>,
    ) -> Step {
        match told {
            Ok(Told::Answer(packet, failed)) => {
                if let Some((error, eap)) = failed.zip(self.eap.as_mut()) {
                    eap.failed = true;
                    tracing::debug!(%path, claimed = claimed.as_ref().map(tracing::field::display), %error, "refused");
                    shared.event(Event::PeerFailed { path, claimed, error });
                }
                self.answer_eap(shared, path, &[Payload::Eap(packet)])
            }
            // "[...] if the authentication method has failed, the responder MUST send an EAP payload containing the Failure message" (RFC
            // 7296 section 2.16)
            Ok(Told::Refused(packet, error)) => {
                let list = [Payload::Eap(packet), notify(NotifyType::AuthenticationFailed, [])];
                match self.eap.as_ref().is_some_and(|eap| eap.failed) {
                    true => self.answer_refused(shared, path, ExchangeType::IkeAuth, &list),
                    false => self.refuse_with(shared, path, ExchangeType::IkeAuth, claimed, &list, error),
                }
            }
            Ok(Told::Ask(response)) => self.ask_elsewhere(shared, path, response),
            Err(what) => {
                let error = NegotiationError::Malformed { exchange: "IKE_AUTH", what };
                self.refuse(shared, path, claimed, notify(NotifyType::InvalidSyntax, []), error)
            }
        }
    }

    /// Checks the caller's proof by the conversation's key, and whether the user is let in.
    /// `None`: the status of its certificate is awaited.
    pub(super) fn identify_eap(
        &self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Result<Option<Caller>, Refusal> {
        let refuse = |error: NegotiationError| Refusal { kind: error.told(), error };
        let malformed = |what| Refusal {
            kind: NotifyType::InvalidSyntax,
            error: NegotiationError::Malformed { exchange: "IKE_AUTH", what },
        };
        let eap = self.eap.as_ref().ok_or_else(|| malformed("no EAP conversation"))?;
        let (user, msk) = eap.said.user.as_ref().zip(eap.msk.as_ref()).ok_or_else(|| malformed("no user"))?;
        let id_i = view.id_i().ok_or_else(|| malformed("no IDi payload"))?;
        // "[...] the EAP AUTH payloads MUST be included in the two messages following the one containing the EAP Success message" (RFC 7296
        // section 2.16)
        let authentication = view.auth().ok_or_else(|| malformed("no AUTH payload after EAP"))?;
        let channel = self.channel.as_ref().ok_or_else(|| malformed("no keys"))?;
        let conn = shared.config.named(&user.connection).cloned().map_err(|e| refuse(e.into()))?;
        let proof = Proof {
            prf: channel.suite.prf,
            sk_p: &channel.sk_pi,
            message: &self.request,
            nonce: &self.nonce_r,
            id: id_i,
            int_auth: &self.rounds.int_auth(),
        };
        let ppk = self.named_ppk(view).map_err(refuse)?;
        let by_ppk =
            ppk.of(&conn, &proof, &authentication).map_err(|why| refuse(NegotiationError::Ppk(why)))?;
        let proof = Proof { sk_p: by_ppk.sk_p.as_ref().unwrap_or(proof.sk_p), ..proof };
        auth::verify_eap(&proof, msk, &by_ppk.authentication).map_err(|e| refuse(e.into()))?;
        let (unix, used) = (shared.unix(now), by_ppk.used.as_deref());
        let (shown, vouched_until) = match &user.by {
            By::Entry(shown) => (Credential { shown: shown.clone(), ppk: None }, None),
            By::Certificate(shown) => {
                let names = shown.own.identities();
                match shared.judge(now, (&conn, self.link.id), (shown, &names), self.wait_until) {
                    Judgement::Admitted(judged) => (judged, Some(shown.verified.expires)),
                    Judgement::Refused(why) => return Err(refuse(why.into())),
                    Judgement::Wait => {
                        let id = self.link.id;
                        let theirs = conn.takes(&user.identity);
                        let waits =
                            theirs.and_then(|theirs| shared.callers.wait(id, &theirs, &user.identity, false));
                        if waits.is_err() {
                            shared.config.admission.revocation.stop_waiting(id);
                        }
                        return waits.map(|()| None).map_err(|e| refuse(e.into()));
                    }
                }
            }
        };
        let admission = &shared.config.admission;
        let credential = admission.credential(&conn, &user.identity, Some(shown), used);
        let admitted = admission.admits(&conn, &user.identity, &credential, unix);
        let conn = admitted.map_err(|e| refuse(e.into()))?;
        let from = self.link.path.remote.ip();
        shared
            .callers
            .room(&conn, &user.identity, Some(from), view.lineage())
            .map_err(|e| refuse(e.into()))?;
        let session = Session {
            id_i: id_i.clone(),
            id_r: eap.id_r.clone(),
            method: authentication.method,
            authenticated: unix,
            vouched_until: vouched_until.or_else(|| self.granted().lasts.map(|lasts| unix + lasts)),
            credential: Some(credential),
        };
        Ok(Some(Caller { conn, identity: user.identity.clone(), session, ppk: by_ppk.ppk }))
    }
}

/// Signatures at once for callers that have proved nothing: those of a token, which makes two in a second, leave time for callers who have.
fn strangers_signed_for(by: &LocalAuth) -> usize {
    match by {
        LocalAuth::Cert { key, .. } if key.is_elsewhere() => STRANGERS_SIGNED_FOR_BY_TOKEN,
        _ => STRANGERS_SIGNED_FOR_MAX,
    }
}
