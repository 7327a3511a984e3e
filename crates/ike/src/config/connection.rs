//! What a connection is configured to be. Owns its parts that belong together, and their defaults.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use dormouse_crypto::cert::Identity;
use dormouse_wire::ike::Gateway;

use super::{
    AddressRequest, ChildConfig, Childless, EapPolicy, EspInUdp, Fragmentation, IdentityPattern, IkeProposal,
    Keepalive, Lifetime, Liveness, LocalAuth, OfferedConfig, PeerPolicy, PeerRule, Ports, Ppk,
    RedirectTarget, RemoteAuth, Resumption, Retransmission, Role, default_ike_proposals,
};

/// A peer, how both prove themselves, and what is protected between them.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its name, unique within the endpoint.
    pub name: String,
    /// Initiates, responds or both.
    pub role: Role,
    /// Who we say we are.
    pub local_id: Identity,
    /// Who the peer may be.
    pub remote_id: IdentityPattern,
    /// How we prove it.
    pub local_auth: LocalAuth,
    /// How the peer must prove it.
    pub remote_auth: RemoteAuth,
    /// Post-quantum pre-shared keys.
    pub ppk: PpkConfig,
    /// What is offered and accepted for the IKE SA, best first.
    pub ike_proposals: Vec<IkeProposal>,
    /// The CHILD_SAs; the first is made by IKE_AUTH.
    pub children: Vec<ChildConfig>,
    /// What to ask for as an initiator.
    pub request: AddressRequest,
    /// As the answering side.
    pub answering: AnsweringConfig,
    /// The peer's UDP ports.
    pub remote_ports: Ports,
    /// As a caller: tell the peer that this is our only SA with it, so that it drops what a crash left (RFC 7296, section 2.4).
    /// "This notification MUST NOT be sent by an entity that may be replicated" (RFC 7296 section 2.4)
    pub initial_contact: bool,
    /// Other addresses.
    pub mobility: MobilityConfig,
    /// IKE fragmentation.
    pub fragmentation: Fragmentation,
    /// When ESP is carried in UDP.
    pub esp_in_udp: EspInUdp,
    /// Timers.
    pub timing: TimingConfig,
    /// How sessions begin.
    pub opening: OpeningConfig,
    /// Session resumption.
    pub resumption: ResumptionConfig,
    /// The dormancy extension (`docs/wire/dormancy.md`), with peers that know it too: announced sleeps, load reports,
    /// resumption in one round trip.
    pub dormancy: bool,
}

impl Connection {
    /// A connection with the default algorithms, timers and one default child.
    #[must_use]
    pub fn new(
        name: &str,
        local_id: Identity,
        local_auth: LocalAuth,
        remote_id: IdentityPattern,
        remote_auth: RemoteAuth,
    ) -> Self {
        Self {
            name: name.to_owned(),
            role: Role::Initiator,
            local_id,
            remote_id,
            local_auth,
            remote_auth,
            ppk: PpkConfig::default(),
            ike_proposals: default_ike_proposals(),
            children: vec![ChildConfig::default()],
            request: AddressRequest::default(),
            answering: AnsweringConfig::default(),
            remote_ports: Ports::default(),
            initial_contact: true,
            mobility: MobilityConfig::default(),
            fragmentation: Fragmentation::default(),
            esp_in_udp: EspInUdp::default(),
            timing: TimingConfig::default(),
            opening: OpeningConfig::default(),
            resumption: ResumptionConfig::default(),
            dormancy: true,
        }
    }
}

impl Connection {
    /// Whether it has no CHILD SAs: it is between a gateway and a router, or between two routers, and carries keys (RFC 6023).
    #[must_use]
    pub fn is_childless(&self) -> bool {
        self.children.is_empty()
    }

    /// Whether it may be a caller's whose IKE_AUTH request asks for a CHILD SA, or, if it is `childless`, for none.
    pub(crate) fn suits(&self, childless: bool) -> bool {
        match childless {
            true => self.is_childless() || self.opening.childless != Childless::Never,
            false => !self.is_childless(),
        }
    }

    /// Whether, where we call, IKE_AUTH asks for no CHILD SA if the peer can do without.
    pub(crate) fn calls_childless(&self) -> bool {
        self.is_childless() || matches!(self.opening.childless, Childless::Prefer | Childless::Force)
    }

    /// Whether it is given up where one of the two ends does not.
    pub(crate) fn requires_childless(&self) -> bool {
        self.is_childless() || self.opening.childless == Childless::Force
    }
}

/// How the sessions of a connection begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpeningConfig {
    /// Initiator: zero bits of the hardest puzzle that is solved for a responder under load (RFC 8019); 0: none is.
    pub hardest_puzzle: u8,
    /// Whether IKE_AUTH makes the first CHILD SA, if there is one.
    pub childless: Childless,
    /// Initiator: to which gateways the gateway may send us (RFC 5685). Empty: we do not say that we follow.
    /// "After verifying the nonce data, the client initiates a new IKE_SA_INIT exchange with the VPN gateway listed in the REDIRECT payload,
    /// provided this is allowed by its Peer Authorization Database (PAD) entries." (RFC 5685 section 3)
    pub redirects: Vec<RedirectTarget>,
}

impl Default for OpeningConfig {
    /// A puzzle of a second's work; CHILD SAs at once; no other gateway.
    fn default() -> Self {
        Self { hardest_puzzle: 18, childless: Childless::default(), redirects: Vec::new() }
    }
}

/// The post-quantum pre-shared keys of a connection (RFC 8784, RFC 9867).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PpkConfig {
    /// Post-quantum pre-shared keys, best first (RFC 8784, RFC 9867): an initiator names them, a responder takes any of them.
    pub keys: Vec<Arc<Ppk>>,
    /// Whether there must be one of them in the keys. Otherwise the session goes on without, if the peer has none.
    pub required: bool,
    /// Whether they enter the keys before IKE_AUTH where the peer can (RFC 9867), so that this is protected too; otherwise in IKE_AUTH
    /// (RFC 8784).
    pub intermediate: bool,
}

impl Default for PpkConfig {
    /// None.
    fn default() -> Self {
        Self { keys: Vec::new(), required: false, intermediate: true }
    }
}

/// What a connection is to peers that call.
#[derive(Clone, Debug, Default)]
pub struct AnsweringConfig {
    /// What a peer may do that none of `peers` means.
    pub policy: PeerPolicy,
    /// What some peers have instead; the first that means a peer counts.
    pub peers: Vec<PeerRule>,
    /// Whether a peer is refused that none of `peers` means.
    pub peers_only: bool,
    /// What to hand out.
    pub offer: OfferedConfig,
    /// Where callers are sent that can be (RFC 5685), instead of being served.
    pub redirect_to: Option<Gateway>,
    /// The users who are taken by EAP, beside those who prove themselves as [`Connection::remote_auth`] says.
    pub eap: Option<Arc<EapPolicy>>,
}

/// How the two ends follow each other to other addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MobilityConfig {
    /// Address updates (RFC 4555).
    pub mobike: bool,
    /// Addresses at which we can be reached besides the one in use; the peer learns them, and may come there when the one in use does not
    /// answer (RFC 4555, section 3.4).
    pub additional_addresses: Vec<IpAddr>,
    /// As the answering side: move ESP to a new address of the peer only when the peer has answered from there (RFC 4555,
    /// section 3.7). Off, ESP moves at once, which saves a round trip of silence.
    /// "By default, the return routability check SHOULD be done before updating the IPsec SAs" (RFC 4555 section 3.7)
    pub return_routability: bool,
    /// Declare that no NAT may be in the path, so that a changed address is an attack (RFC 4555, section 3.9).
    pub no_nats_allowed: bool,
}

impl Default for MobilityConfig {
    /// MOBIKE, with what the peer can find out by itself.
    fn default() -> Self {
        Self {
            mobike: true,
            additional_addresses: Vec::new(),
            return_routability: false,
            no_nats_allowed: false,
        }
    }
}

/// When a connection repeats, asks and renews.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimingConfig {
    /// Repetition of requests.
    pub retransmission: Retransmission,
    /// NAT keepalives.
    pub keepalive: Keepalive,
    /// Liveness checks.
    pub liveness: Liveness,
    /// When the IKE SA is rekeyed (only the time counts).
    pub lifetime: Lifetime,
    /// When the peers authenticate anew, if ever.
    pub reauthenticate: Option<Duration>,
}

impl Default for TimingConfig {
    /// The IKE SA is rekeyed every day; no full authentication.
    fn default() -> Self {
        Self {
            retransmission: Retransmission::default(),
            keepalive: Keepalive::Auto,
            liveness: Liveness::default(),
            lifetime: Lifetime::of_time(Duration::from_secs(24 * 3_600)),
            reauthenticate: None,
        }
    }
}

/// How sessions are resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumptionConfig {
    /// Whether, and how.
    pub mode: Resumption,
    /// Whether a resumption by version 2 of `docs/wire/dormancy.md` needs a key exchange: a client makes one, a gateway takes none
    /// without.
    pub fresh_keys: bool,
    /// As the answering side: whether peers that do not know that version are given, and may use, tickets of RFC 5723, which have no
    /// forward secrecy.
    pub plain: bool,
    /// How long a ticket that we give is good; bounded by the next full authentication (RFC 5723, section 6.2). Whole seconds.
    /// "[...] a finite lifetime MUST be specified for the ticket" (RFC 5723 section 6.2)
    pub lifetime: Duration,
}

impl Default for ResumptionConfig {
    /// By either kind of ticket, which is good for a day.
    fn default() -> Self {
        Self {
            mode: Resumption::Strict,
            fresh_keys: true,
            plain: true,
            lifetime: Duration::from_secs(24 * 3_600),
        }
    }
}
