//! What the endpoint tells its driver. Must never act: an event is a fact that the driver applies (installs keys, moves
//! addresses, prints a line).

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_keying::{ChildSa, HeaderOrder, SaId, SleepVerdict};
use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::dormancy::{LoadReport, Refused};
use dormouse_wire::ike::{AuthMethod, Gateway};
use dormouse_wire::sleep::{Mark, SleepFlags};

use crate::config_payload::AssignedConfig;
use crate::credential::Credential;
use crate::elsewhere::Question;
use crate::error::NegotiationError;
use crate::takeover::Takeover;
use crate::ticket::ClientTicket;
use crate::ticket::lineage::{Name, Operation};
use crate::work::Order;

/// A fact for the driver. Events come in the order in which they must be applied.
#[derive(Debug)]
pub enum Event {
    /// An IKE SA is authenticated in both directions. Its first CHILD SA, if it has one, follows as [`Event::Child`].
    Established(Box<Established>),
    /// The client of a session that was established without being confirmed is there: it can be used.
    Confirmed {
        /// The SA.
        sa: SaId,
    },
    /// Gateway: the answer that completes a login, which waited until its client's addresses were on the disk, is sent. The SA may be gone;
    /// otherwise its CHILD SA, which was to receive alone, may send.
    Answered {
        /// The SA.
        sa: SaId,
    },
    /// Something about a CHILD SA: apply it to the ESP side.
    Child(ChildSa),
    /// A ticket for [`crate::Endpoint::resume`]. It replaces every earlier ticket of this SA; keep it where only its
    /// owner can read it.
    Ticket {
        /// The SA that it resumes.
        sa: SaId,
        /// The ticket with the secrets that belong to it.
        ticket: Box<ClientTicket>,
    },
    /// The ticket keys were rotated, and a ticket under the new key is on its way: to be made durable before anything is sent.
    TicketKeys {
        /// What [`crate::ticket::TicketKeys::import`] reads.
        exported: Secret,
    },
    /// Device: the first authentic IKE message of the gateway on an SA that was resumed at once: the gateway counts the ticket that
    /// came with it.
    Heard {
        /// The SA.
        sa: SaId,
    },
    /// Something to do to the store of lineages, in the order of these events; for one that names an SA the outcome goes to
    /// [`crate::Endpoint::stored`]. Nothing that is sent depends on it meanwhile.
    Store(Operation),
    /// Gateway: what the store is to do about an IKE SA that another gateway can take over. Nothing that is sent depends on it.
    Takeover(Takeover),
    /// This takes long, or a token does it: [`Order::carry_out`], beside the loop, and hand what comes of it to [`crate::Endpoint::done`], once. The
    /// handshake waits.
    Work {
        /// The SA that it is for.
        sa: SaId,
        /// What to do.
        order: Box<Order>,
    },
    /// Gateway: ask a RADIUS server, and hand what it says to [`crate::Endpoint::told_elsewhere`]. The handshake waits.
    AskElsewhere(Box<Question>),
    /// Fetch this by HTTP and hand what came to [`crate::Endpoint::fetched`]: a CRL by GET or, with a body, an OCSP answer by POST
    /// (`application/ocsp-request`). Handshakes may wait for it.
    Fetch {
        /// Names it in [`crate::Endpoint::fetched`].
        id: u64,
        /// `http://...`
        url: String,
        /// The question.
        body: Option<Vec<u8>>,
    },
    /// A CRL, or an OCSP answer that says that a certificate is revoked, for [`crate::Endpoint::restore_revocations`] of the next run.
    Revocations {
        /// Its name: the same for the next one from the same source, which replaces it.
        name: String,
        /// What to store.
        content: Vec<u8>,
    },
    /// `connect` or `resume` failed; the name `sa` is gone.
    Failed {
        /// The name that `connect` or `resume` returned.
        sa: SaId,
        /// Why, with what was offered and what was acceptable.
        error: NegotiationError,
    },
    /// A peer that tried to connect to us was refused. For the log; there is no SA.
    PeerFailed {
        /// Where it came from.
        path: Path,
        /// Who it said it was, as far as it got.
        claimed: Option<Identity>,
        /// Why.
        error: NegotiationError,
    },
    /// An additional CHILD SA that we asked for was refused; the IKE SA goes on.
    ChildFailed {
        /// The IKE SA that lives on.
        sa: SaId,
        /// Why.
        error: NegotiationError,
    },
    /// An established SA is gone with all its CHILD SAs, whose [`ChildSa::Remove`] events came before this one.
    Closed {
        /// The SA.
        sa: SaId,
        /// Why.
        reason: CloseReason,
    },
    /// The peer answered [`crate::Endpoint::probe`].
    ProbeAnswered {
        /// The SA.
        sa: SaId,
        /// From the first transmission to the answer.
        after: Duration,
    },
    /// The peer did not answer [`crate::Endpoint::probe`] in time. The SA still exists: the driver decides.
    ProbeFailed {
        /// The SA.
        sa: SaId,
    },
    /// An *unauthenticated* message from the peer's address says that it does not know this SA (INVALID_IKE_SPI). A hint
    /// only, at most one each few seconds: a probe with a short deadline is already under way.
    PeerLostSa {
        /// The SA that the peer seems to have lost.
        sa: SaId,
        /// It was said in answer to a request of ours that is under way (INVALID_IKE_SPI), rather than out of the blue
        /// (INVALID_SPI, RFC 7296 section 1.5).
        solicited: bool,
    },
    /// The path of the IKE SA changed (NAT traversal found, peer moved, address update done).
    PathChanged {
        /// The SA.
        sa: SaId,
        /// Where IKE messages go now.
        path: Path,
    },
    /// The peer refused an address update ([`crate::Endpoint::set_path`]): the SA is unusable from the new address.
    UpdateRefused {
        /// The SA.
        sa: SaId,
        /// The notification it sent, in the RFC's words.
        why: &'static str,
    },
    /// The peer told its other addresses (RFC 4555 section 3.6). Replaces what was told before.
    PeerAddresses {
        /// The SA.
        sa: SaId,
        /// The additional addresses; empty when it has none.
        addresses: Vec<IpAddr>,
    },
    /// Client: the gateway of this session sends us to another one, where we may go (RFC 5685). The session stays until it is closed.
    Redirected {
        /// The SA.
        sa: SaId,
        /// Where to.
        to: Gateway,
    },
    /// Client: the gateway of this session goes, and another one of its name takes the ticket (docs/wire/dormancy.md). The session stays until that
    /// one has it.
    Elsewhere {
        /// The SA.
        sa: SaId,
        /// The address of that gateway, if it was said.
        to: Option<IpAddr>,
    },
    /// Device: what became of [`crate::Endpoint::announce_sleep`]; exactly one follows each call, unless the SA ends before
    /// ([`Event::Closed`]). From now on the radio may go off.
    SleepAnswered {
        /// The SA.
        sa: SaId,
        /// What the gateway does with it.
        verdict: SleepVerdict,
    },
    /// Device: the gateway's estimate of how long sessions take to come back, new with each session and each announced sleep.
    LoadReport {
        /// The SA that it came on.
        sa: SaId,
        /// The estimate and its forecast.
        report: Box<LoadReport>,
    },
    /// Gateway: the device goes to sleep. Until [`Event::PeerAwake`] nothing is sent to it and no timer of the SA runs but the
    /// end of the hold. Comes again if it announces another sleep.
    PeerSleeps {
        /// The SA.
        sa: SaId,
        /// When the SA is deleted if the device does not wake before ([`Event::Closed`], [`CloseReason::Released`]).
        until: Instant,
        /// Whether that is a hold that was promised to the device; if not, it will come back by ticket.
        held: bool,
        /// What it was granted besides.
        flags: SleepFlags,
        /// How long it said that it may sleep; `None`: it does not know.
        expect: Option<Duration>,
        /// How far its ESP had come: an ESP packet beyond these is news from an awake device
        /// ([`crate::Endpoint::peer_awake`]), another one was only late.
        marks: Vec<Mark>,
    },
    /// Router: the first zone of an SA can be read from now on, or no longer (`docs/wire/mlike.md`).
    Header(HeaderOrder),
    /// There are keys for this router, or something to ask this gateway, and no IKE SA with it: a connection without children to it is to be
    /// made. Told again as often as there is something.
    LinkWanted {
        /// Who.
        peer: Identity,
    },
    /// Gateway: the device has woken up.
    PeerAwake {
        /// The SA.
        sa: SaId,
    },
}

/// See [`Event::Established`].
#[derive(Debug)]
pub struct Established {
    /// The SA.
    pub sa: SaId,
    /// Name of the connection (policy) it follows.
    pub connection: String,
    /// Who the peer proved to be.
    pub peer: Identity,
    /// Gateway: what admitted the peer.
    pub credential: Option<Credential>,
    /// Gateway: other clients are out of the peer's reach, and it out of theirs.
    pub isolate: bool,
    /// Whether this end opened the SA.
    pub initiator: bool,
    /// How the client authenticated, now or when its first ticket was made.
    pub method: AuthMethod,
    /// Whether that was as a user, by EAP.
    pub eap: bool,
    /// Whether a ticket replaced the Diffie-Hellman exchange (RFC 5723).
    pub resumed: bool,
    /// Gateway: whether it was taken over from another gateway that is gone (RFC 6311).
    pub taken_over: bool,
    /// Whether address updates are possible (RFC 4555).
    pub mobike: bool,
    /// Whether both ends know the dormancy extension (`docs/wire/dormancy.md`).
    pub dormancy: bool,
    /// Whether the client is known to be there. If not (it resumed at once, and nothing has come under the new keys yet), the
    /// session must not be used for sending nor announced before [`Event::Confirmed`]; ESP that arrives on it is to be told
    /// to [`crate::Endpoint::confirm`] first.
    pub confirmed: bool,
    /// Where IKE messages go now.
    pub path: Path,
    /// What the gateway assigned: addresses, name servers, routes. On a gateway: what it assigned to the peer.
    pub configuration: AssignedConfig,
    /// Gateway: the lineage of its tickets, by which gateways that share a store know a session.
    pub lineage: Option<Name>,
    /// A name of the SA that this one replaced by resumption or reauthentication, already closed without messages.
    pub replaced: Option<SaId>,
}

/// Why an established SA is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// [`crate::Endpoint::close`], and the peer has confirmed or never answered.
    Requested,
    /// The peer deleted it.
    ByPeer,
    /// The peer did not answer a request within the retransmission policy.
    TimedOut,
    /// The same peer opened a new SA and said that it has no other (INITIAL_CONTACT), or resumed this one.
    Replaced,
    /// Its lifetime ended before it could be rekeyed or reauthenticated.
    Expired,
    /// A certificate that it rested on has expired.
    CertificateExpired,
    /// Device: the gateway has deleted it at once, because it was resumed with a ticket that does not count, or that cannot be looked up.
    Refused(Refused),
    /// A certificate that it rested on was revoked.
    Revoked,
    /// The client has not authenticated anew within the announced lifetime (RFC 4478).
    LifetimeOver,
    /// An administrator has refused the peer, or the configuration takes it no longer.
    NotAdmitted,
    /// What the peer has (its addresses, what it reaches) is not what the configuration gives it now: it may come back for that.
    Reconfigured,
    /// The peer broke the protocol in an authenticated message.
    ProtocolError,
    /// Its device sleeps, and comes back by ticket: the hold is over, or others needed its place.
    Released,
    /// It was resumed at once, but nothing came under its keys, or the ticket was used elsewhere meanwhile.
    Unconfirmed,
    /// Another gateway has its client now, or has ended its session.
    Elsewhere,
    /// Gateways that share a store have let in more sessions of the identity than it may have, and this one began last.
    TooMany,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused(why) => return write!(f, "refused by the gateway: {why}"),
            Self::Requested => "closed on request",
            Self::ByPeer => "deleted by the peer",
            Self::TimedOut => "the peer does not answer",
            Self::Replaced => "replaced by a newer SA of the same peer",
            Self::Expired => "its lifetime ended",
            Self::CertificateExpired => "a certificate has expired",
            Self::Revoked => "a certificate was revoked",
            Self::LifetimeOver => "its authentication is no longer good: the announced lifetime is over",
            Self::NotAdmitted => "its peer is no longer admitted",
            Self::Reconfigured => "the configuration gives its peer something else now",
            Self::ProtocolError => "the peer broke the protocol",
            Self::Unconfirmed => "its client has not confirmed it",
            Self::Elsewhere => "its client is at another gateway",
            Self::TooMany => "its identity has more sessions at all gateways than it may have",
            Self::Released => "its device sleeps on, and comes back by ticket",
        })
    }
}
