//! Who calls: the choice of the connection by identity and proof, for a full exchange and for a resumption. Owns no state; must never
//! answer: the half-open SA does.

use std::sync::Arc;

use dormouse_crypto::cert::{Certificate, Identity};
use dormouse_sansio::{Instant, UnixTime};
use dormouse_wire::ike::{AuthMethod, Id, NotifyType, Payload};

use super::{HalfOpen, How};
use crate::auth::{self, Authentication, Believed, Proof};
use crate::config::{Connection, Ppk, RemoteAuth};
use crate::credential;
use crate::endpoint_config::EndpointConfig;
use crate::error::NegotiationError;
use crate::handshake::intermediate::PpkUse;
use crate::handshake::intermediate::ppk::NamedPpk;
use crate::payloads::View;
use crate::proposal;
use crate::revocation::Judgement;
use crate::session::Session;
use crate::shared::Shared;
use crate::ticket::TicketContent;
use crate::ticket::lineage::Name;

/// Who called, by which rules, with which proof.
#[derive(Debug)]
pub(in crate::handshake) struct Caller {
    pub(in crate::handshake) conn: Arc<Connection>,
    pub(in crate::handshake) identity: Identity,
    pub(in crate::handshake) session: Session,
    /// The PPK that is still to enter the keys (RFC 8784).
    pub(in crate::handshake) ppk: Option<Arc<Ppk>>,
}

/// The refusal of an IKE_AUTH request: the notification to the peer, and the error in the log.
pub(crate) struct Refusal {
    pub(in crate::handshake) kind: NotifyType,
    pub(in crate::handshake) error: NegotiationError,
}

impl HalfOpen {
    /// The configuration has changed. One that no ticket brings back is admitted when its caller has said who it is.
    ///
    /// # Errors
    /// Why the ticket's owner is no longer admitted.
    pub(crate) fn admit_again(
        &mut self,
        config: &EndpointConfig,
        unix: UnixTime,
    ) -> Result<(), credential::Refusal> {
        let How::Resume { ticket, .. } = &self.how else { return Ok(()) };
        let conn = config.named(&ticket.connection)?;
        let conn = config.admission.admits(conn, &ticket.peer, &ticket.credential, unix)?;
        if let Some(pending) = &mut self.pending {
            pending.caller.conn = conn.clone();
        }
        self.link.conn = conn;
        Ok(())
    }

    /// Finds the connection, and checks the proof by its rules. `None`: the status of a certificate is awaited.
    pub(super) fn identify(
        &self,
        shared: &mut Shared,
        now: Instant,
        payloads: &[Payload],
    ) -> Result<Option<Caller>, Refusal> {
        let view = View(payloads);
        let refuse = |error: NegotiationError| Refusal { kind: error.told(), error };
        let malformed = |what| Refusal {
            kind: NotifyType::InvalidSyntax,
            error: NegotiationError::Malformed { exchange: "IKE_AUTH", what },
        };
        if self.eap_key().is_some() {
            return self.identify_eap(shared, now, view);
        }
        let id_i = view.id_i().ok_or_else(|| malformed("no IDi payload"))?;
        let authentication = view.auth().ok_or_else(|| malformed("no AUTH payload"))?;
        let identity = auth::identity(id_i).map_err(|e| refuse(auth::AuthError::from(e).into()))?;
        let channel = self.channel.as_ref().ok_or_else(|| malformed("no keys"))?;
        let proof = Proof {
            prf: channel.suite.prf,
            sk_p: &channel.sk_pi,
            message: &self.request,
            nonce: &self.nonce_r,
            id: id_i,
            int_auth: &self.rounds.int_auth(),
        };
        if let How::Resume { ticket, .. } = &self.how {
            return self
                .identify_resumed(shared, now, ticket, identity, &proof, &authentication, view.id_r())
                .map(Some)
                .map_err(refuse);
        }
        let certificates = auth::certificates(payloads).map_err(|e| refuse(e.into()))?;
        let asked = view.id_r().and_then(|id| auth::identity(id).ok());
        let ppk = self.named_ppk(view).map_err(refuse)?;
        let former = view.lineage();
        self.identify_fully(
            shared,
            now,
            &proof,
            identity,
            asked,
            former,
            &authentication,
            &certificates,
            &ppk,
            super::is_childless(view),
        )
        .map_err(refuse)
    }

    /// "If no PPK_IDENTITY notification is found and the peers successfully exchanged USE_PPK notifications in the IKE_SA_INIT exchange,
    /// then the responder MUST send back an AUTHENTICATION_FAILED notification and then fail the negotiation." (RFC 8784 section 3)
    pub(super) fn named_ppk<'a>(&'a self, view: View<'a>) -> Result<NamedPpk<'a>, NegotiationError> {
        if self.rounds.ppk != PpkUse::Auth {
            return Ok(NamedPpk::Before(self.rounds.mixed()));
        }
        let id = view.notify(NotifyType::PpkIdentity).ok_or(NegotiationError::Ppk("the peer names none"))?;
        let without = view.notify(NotifyType::NoPpkAuth).map(|n| n.data.as_slice());
        Ok(NamedPpk::Here { id: &id.data, without })
    }

    #[expect(clippy::too_many_arguments, reason = "all are what section 4.3.3 binds together")]
    fn identify_resumed(
        &self,
        shared: &Shared,
        now: Instant,
        ticket: &TicketContent,
        identity: Identity,
        proof: &Proof<'_>,
        authentication: &Authentication,
        id_r: Option<&Id>,
    ) -> Result<Caller, NegotiationError> {
        // "The IDi value sent in the IKE_AUTH exchange MUST be identical to the value included in the ticket. [...] the IDr
        // value sent [...] MUST also be identical to the value included in the ticket." (RFC 5723 section 4.3.3)
        if *proof.id != ticket.id_i || id_r.is_some_and(|id| *id != ticket.id_r) {
            let expected = auth::identity(&ticket.id_i).map_or_else(|_| "?".to_owned(), |i| i.to_string());
            return Err(NegotiationError::WrongIdentity { expected, got: identity.to_string() });
        }
        auth::verify_resumption(proof, self.link.conn.resumption.mode, authentication)?;
        let conn = ticket.claim().admitted(shared, now).map_err(NegotiationError::TicketRejected)?;
        Ok(Caller { conn, identity: ticket.peer.clone(), session: Session::of_ticket(ticket), ppk: None })
    }

    /// "the names in the ID payload MUST correspond to the key used to generate the AUTH payload" (RFC 7296 section 1.2)
    #[expect(clippy::too_many_arguments, reason = "all are what section 2.15 binds together")]
    fn identify_fully(
        &self,
        shared: &mut Shared,
        now: Instant,
        proof: &Proof<'_>,
        identity: Identity,
        asked: Option<Identity>,
        former: Option<Name>,
        authentication: &Authentication,
        certificates: &[Certificate],
        ppk: &NamedPpk<'_>,
        childless: bool,
    ) -> Result<Option<Caller>, NegotiationError> {
        let How::Init { suite, .. } = &self.how else {
            return Err(NegotiationError::Malformed { exchange: "IKE_AUTH", what: "a resumed session" });
        };
        let by_psk = authentication.method == AuthMethod::SharedKeyMic;
        let is_asked =
            |conn: &Connection| asked.as_ref().is_none_or(|asked| asked.is_same_as(&conn.local_id));
        let by_eap = |conn: &&Arc<Connection>| {
            let eap = matches!(conn.remote_auth, RemoteAuth::Eap);
            eap && conn.role.answers() && is_asked(conn)
        };
        let mut error = NegotiationError::NoConnection {
            by_eap: shared.config.connections.iter().any(|conn| by_eap(&conn)),
            claimed: identity.to_string(),
            asked: asked.as_ref().map_or_else(|| "anyone".to_owned(), ToString::to_string),
            method: if by_psk { "a pre-shared key" } else { "a certificate" },
        };
        let mut connections = shared.config.connections.clone();
        // Who asks for no CHILD SA is rather a router that carries keys than a client that asks later.
        connections.sort_by_key(|conn| childless && !conn.is_childless());
        for conn in connections {
            let fits = conn.role.answers()
                && conn.suits(childless)
                && auth::called(&conn, &identity, certificates).is_some()
                && is_asked(&conn)
                && !matches!(conn.remote_auth, RemoteAuth::Eap)
                && matches!(conn.remote_auth, RemoteAuth::Psk(_)) == by_psk
                && proposal::permits(&conn.ike_proposals, suite);
            if !fits {
                continue;
            }
            let by_ppk = match ppk.of(&conn, proof, authentication) {
                Ok(by_ppk) => by_ppk,
                Err(why) => {
                    error = NegotiationError::Ppk(why);
                    continue;
                }
            };
            let proof = Proof { sk_p: by_ppk.sk_p.as_ref().unwrap_or(proof.sk_p), ..*proof };
            let (at, known) = (shared.unix(now), &mut shared.known_paths);
            match auth::verify(&proof, &conn, &by_ppk.authentication, certificates, at, known) {
                Ok(believed) => {
                    let Believed { identity, expires, shown } = believed;
                    let mut certificates = None;
                    if let Some(shown) = shown {
                        let names = shown.own.identities();
                        match shared.judge(now, (&conn, self.link.id), (&shown, &names), self.wait_until) {
                            Judgement::Admitted(judged) => certificates = Some(judged),
                            Judgement::Wait => {
                                let id = self.link.id;
                                let waits = conn
                                    .takes(&identity)
                                    .and_then(|theirs| shared.callers.wait(id, &theirs, &identity, false));
                                if waits.is_err() {
                                    shared.config.admission.revocation.stop_waiting(self.link.id);
                                }
                                return Ok(waits.map(|()| None)?);
                            }
                            Judgement::Refused(why) => {
                                error = why.into();
                                continue;
                            }
                        }
                    }
                    let used = by_ppk.used.as_deref();
                    let credential = shared.config.admission.credential(&conn, &identity, certificates, used);
                    let conn =
                        shared.config.admission.admits(&conn, &identity, &credential, shared.unix(now))?;
                    // A session of the lineage that it names as its former one ends ([`super::former_sessions`]): it may be a thief's.
                    shared.callers.room(&conn, &identity, Some(self.link.path.remote.ip()), former)?;
                    let session = Session {
                        id_i: proof.id.clone(),
                        id_r: auth::id_payload(&conn.local_id),
                        method: authentication.method,
                        authenticated: shared.unix(now),
                        vouched_until: expires,
                        credential: Some(credential),
                    };
                    return Ok(Some(Caller { conn, identity, session, ppk: by_ppk.ppk }));
                }
                Err(why) => error = why.into(),
            }
        }
        Err(error)
    }
}
