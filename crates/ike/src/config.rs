//! What a peer and a connection are configured to be: plain data, filled in by the node from its file.
//! Owns the types and their defaults; must never parse a file, resolve a name, or hold run-time state.
//!
//! The defaults follow RFC 8247 (IKEv2) and RFC 8221 (ESP); what those forbid has no name in `dormouse_crypto::suites` and
//! cannot be configured.

mod connection;
mod dormancy;
mod eap;
mod identity;
mod peers;
mod redirect;
mod revocation;
mod timing;
mod zones;

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::{TrustStore, Usage};
use dormouse_crypto::sign::SigningKey;
use dormouse_keying::Share;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use crate::proposal::{
    AdditionalKe, EsnPolicy, EspProposal, IkeProposal, authenticated_esp_proposals, default_esp_proposals,
    default_ike_proposals,
};
pub use connection::{
    AnsweringConfig, Connection, MobilityConfig, OpeningConfig, PpkConfig, ResumptionConfig, TimingConfig,
};
pub use dormancy::{HoldPolicy, SleepFlags};
pub(crate) use eap::EapAsked;
pub use eap::{
    EapLogin, EapMethod, EapPolicy, EapProof, EapUser, EapUserError, EapUsers, identity as eap_identity,
};
pub use identity::IdentityPattern;
pub use peers::{PeerPolicy, PeerRule, Unique};
pub use redirect::RedirectTarget;
pub use revocation::{RevocationMode, RevocationPolicy};
pub use timing::{Lifetime, Retransmission, SoftLifetime};
pub use zones::{RouterPolicy, RouterRule, ZonePolicy};

/// Which side of the exchange a connection may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Only initiates.
    #[default]
    Initiator,
    /// Only responds.
    Responder,
    /// Both.
    Both,
}

impl Role {
    /// Whether the connection may respond to an initiator.
    #[must_use]
    pub const fn answers(self) -> bool {
        matches!(self, Self::Responder | Self::Both)
    }
}

/// How we prove who we are.
#[derive(Clone)]
pub enum LocalAuth {
    /// A key both sides know.
    Psk(Secret),
    /// A private key, and the certificates that vouch for it.
    Cert {
        /// The private key.
        key: Arc<SigningKey>,
        /// DER certificates: our own first, then the intermediates. The root is left out.
        chain: Vec<Vec<u8>>,
    },
    /// By EAP, as a user: as an initiator alone, at a gateway that proves itself by a certificate.
    Eap(Arc<EapLogin>),
}

/// How the peer must prove who it is.
#[derive(Clone)]
pub enum RemoteAuth {
    /// A key both sides know.
    Psk(Secret),
    /// A certificate.
    Cert {
        /// The authorities that are believed.
        trust: Arc<TrustStore>,
        /// What the certificate must be good for (RFC 4945, section 5.1.3).
        usage: Usage,
        /// Whether a peer may sign with SHA-1 by the old RSA method, knowing nothing else. Off unless there is no other way:
        /// SHA-1 in signatures is MUST NOT (RFC 8247, section 3.2).
        accept_rsa_sha1: bool,
        /// Whether its certificates must not be revoked.
        revocation: Arc<RevocationPolicy>,
    },
    /// By no proof of its own in IKE: as a user alone ([`AnsweringConfig::eap`]).
    Eap,
}

/// A post-quantum pre-shared key (RFC 8784): keeps the keys secret from a quantum computer, even if the key exchange is broken.
#[derive(PartialEq, Eq, Debug)]
pub struct Ppk {
    /// Its name, by which the other end finds it; sent in the protected part of the handshake.
    pub id: Vec<u8>,
    /// The key.
    pub secret: Secret,
}

impl fmt::Debug for LocalAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Psk(_) => f.write_str("Psk"),
            Self::Cert { chain, .. } => write!(f, "Cert({} certificates)", chain.len()),
            Self::Eap(login) => write!(f, "{login:?}"),
        }
    }
}

impl fmt::Debug for RemoteAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Psk(_) => "Psk",
            Self::Cert { .. } => "Cert",
            Self::Eap => "Eap",
        })
    }
}

/// One traffic selector of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SelectorSpec {
    /// The inner address that the configuration payload assigns to the initiator (on the side where it lives), or the
    /// outer address where none is assigned.
    Dynamic,
    /// Every address of the prefix, every protocol and port.
    Net(IpNet),
    /// A part of a prefix.
    Narrow {
        /// Addresses.
        net: IpNet,
        /// IP protocol number; 0 is any.
        protocol: u8,
        /// First and last port; for ICMP `type << 8 | code`; `(0, 65535)` is any.
        ports: (u16, u16),
    },
}

/// How inner packets are carried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ChildMode {
    /// Whole IP packets.
    #[default]
    Tunnel,
    /// The payload of packets between the two outer addresses.
    Transport,
}

/// One CHILD_SA of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildConfig {
    /// Its name, unique within the connection.
    pub name: String,
    /// What is offered and accepted, best first.
    pub proposals: Vec<EspProposal>,
    /// Traffic on our side.
    pub ts_local: Vec<SelectorSpec>,
    /// Traffic on the peer's side.
    pub ts_remote: Vec<SelectorSpec>,
    /// Tunnel or transport.
    pub mode: ChildMode,
    /// Whether its packets have zones of their own keys, in tunnel mode alone; `None`: one key protects all (`docs/wire/mlike.md`).
    pub zones: Option<ZonePolicy>,
    /// Extended sequence numbers.
    pub esn: EsnPolicy,
    /// Replay window in packets; ESP rounds it up to what it supports (at least 1,024).
    pub replay_window: u32,
    /// When it is rekeyed.
    pub lifetime: Lifetime,
    /// Inner packets are padded to a multiple of this many bytes, to hide their sizes (RFC 4303, section 2.7); 0: no more than the
    /// cipher needs.
    pub pad_to: u16,
    /// What we send on it where other children of the connection have the same selectors.
    pub share: Share,
}

impl ChildConfig {
    /// Whether its packets are authenticated and not encrypted.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let encrypts = |proposal: &EspProposal| proposal.encr.iter().any(|encr| encr.encrypts());
        !self.proposals.iter().any(encrypts)
    }
}

impl Default for ChildConfig {
    /// A road warrior's tunnel: our assigned address to everywhere.
    ///
    /// Rekeyed every four hours at most, and before 2^31 packets, so that sequence numbers never end even where the peer declined
    /// extended ones. 1 TiB of 16-byte blocks under one key stays far below the birthday bound of CBC (2^64 blocks).
    fn default() -> Self {
        let everywhere = vec![
            SelectorSpec::Net(IpNet::V4(Ipv4Net::default())),
            SelectorSpec::Net(IpNet::V6(Ipv6Net::default())),
        ];
        Self {
            name: "net".to_owned(),
            proposals: default_esp_proposals(),
            ts_local: vec![SelectorSpec::Dynamic],
            ts_remote: everywhere,
            mode: ChildMode::Tunnel,
            zones: None,
            esn: EsnPolicy::Prefer,
            replay_window: 2_048,
            lifetime: Lifetime {
                time: Some(Duration::from_secs(4 * 3_600)),
                bytes: Some(1 << 40),
                packets: Some(1 << 31),
                margin_percent: 10,
                jitter_percent: 10,
            },
            pad_to: 0,
            share: Share::Rest,
        }
    }
}

/// What the initiator asks for in its configuration payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddressRequest {
    /// An inner IPv4 address.
    pub v4: bool,
    /// An inner IPv6 address.
    pub v6: bool,
    /// Name servers and domains.
    pub dns: bool,
}

impl AddressRequest {
    /// Whether a configuration payload is sent: "CP(CFG_REQUEST) MUST contain at least an INTERNAL_ADDRESS attribute" (RFC 7296
    /// section 2.19).
    #[must_use]
    pub const fn any(self) -> bool {
        self.v4 || self.v6
    }
}

/// What a responder hands out besides addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfferedConfig {
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Domains that those servers answer for (RFC 8598).
    pub domains: Vec<String>,
    /// Split routes: the prefixes behind us. Empty: everything.
    pub subnets: Vec<IpNet>,
}

/// NAT keepalives (RFC 3948, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keepalive {
    /// At an interval found by probing the NAT.
    #[default]
    Auto,
    /// Never: a device that sleeps renews the mapping when it wakes.
    Off,
    /// At this interval, in seconds.
    Seconds(u32),
}

/// Checking that an idle peer is still there (RFC 7296, section 2.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// Probe after this much silence; `None`: never on a timer (a sleeping device is not asked).
    pub interval: Option<Duration>,
    /// Give the peer up this long after the first unanswered message of an exchange.
    pub timeout: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { interval: None, timeout: Duration::from_secs(30) }
    }
}

/// Session resumption (RFC 5723).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Resumption {
    /// No ticket is asked for, given or accepted.
    Off,
    /// As the RFC says.
    #[default]
    Strict,
    /// As libreswan 5.2 and later do it: AUTH covers the first message alone (see `auth::resumption_auth`), raw ESP after
    /// resumption unless encapsulation is forced, no fragmentation.
    Libreswan,
}

/// When ESP is carried in UDP, which every peer must accept at any time (RFC 7296 section 2.23).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EspInUdp {
    /// Where a NAT is on the way.
    Nat,
    /// There, and wherever both ends are Dormouse, with MOBIKE and the dormancy extension on: it costs 8 bytes a packet, and the kernel takes many
    /// datagrams at once, but packets of protocol 50 one by one.
    #[default]
    Auto,
    /// Always: we pretend that there is a NAT.
    Always,
}

impl EspInUdp {
    /// Whether NAT detection is made to find a NAT.
    pub(crate) fn is_forced(self) -> bool {
        self == Self::Always
    }
}

/// Whether IKE_AUTH makes the first CHILD SA, or CREATE_CHILD_SA does afterwards (RFC 6023).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Childless {
    /// IKE_AUTH makes it; a caller that wants it otherwise is refused.
    Never,
    /// IKE_AUTH makes it where we call; a caller may choose.
    #[default]
    Allow,
    /// Where we call, CREATE_CHILD_SA makes it if the peer can; a caller may choose.
    Prefer,
    /// CREATE_CHILD_SA makes it: other peers are left, and other callers refused.
    Force,
}

/// IKE fragmentation (RFC 7383).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragmentation {
    /// Whether it is offered and accepted.
    pub enabled: bool,
    /// Largest IP packet that carries a fragment, in bytes, IP and UDP headers included; kept within
    /// [`FRAGMENT_SIZE_MIN`](crate::limits::FRAGMENT_SIZE_MIN) and [`FRAGMENT_SIZE_MAX`](crate::limits::FRAGMENT_SIZE_MAX).
    pub size: usize,
}

impl Default for Fragmentation {
    /// 1,280 bytes: the IPv6 minimum, which nearly every path carries (RFC 7383, section 2.5.1).
    /// "For messages to be sent over IPv4, it is RECOMMENDED that a value of 576 bytes as a maximum IP datagram size be used."
    /// (RFC 7383 section 2.5.1)
    fn default() -> Self {
        Self { enabled: true, size: 1_280 }
    }
}

/// The two UDP ports (500 and 4500 unless moved, as tests do).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// Bare IKE.
    pub ike: u16,
    /// NAT traversal.
    pub natt: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { ike: 500, natt: 4500 }
    }
}

/// Bounds on what unauthenticated peers can make a responder keep: "it is RECOMMENDED that the parameters be settable" (RFC 8019
/// section 6). A prefix is an IPv4 address or the /64 of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HalfOpen {
    /// From this many half-open SAs on, every first message must carry a cookie (RFC 7296, section 2.6). 0: always.
    pub cookie_threshold: usize,
    /// No more than this many half-open SAs at all: then old ones give way, of the prefix that has the most, or the newcomer does.
    pub max: usize,
    /// From this many of one prefix on, newcomers from there are given puzzles (RFC 8019). `max`: never.
    pub per_prefix: usize,
    /// From this many on, no prefix counted for more than `per_prefix`, all newcomers are given puzzles. `max`: never.
    pub puzzle_threshold: usize,
    /// Zero bits of the hardest puzzle: given when half-open SAs are close to `max`. 0: each client chooses for itself, and works the less
    /// the more it has to lose.
    /// "[...] it is RECOMMENDED that the Initiator set the difficulty level to 0, unless the attack volume is very high" (RFC 8019 section
    /// 7.1.1.1): ours are given at such a volume alone.
    pub puzzle_difficulty: u8,
    /// A half-open SA is dropped after this long, and sooner under load.
    /// "When not under attack, the half-open SA timeout SHOULD be set high enough that the Initiator will have enough time to send
    /// multiple retransmissions" (RFC 8019 section 4.1)
    pub timeout: Duration,
}

impl Default for HalfOpen {
    fn default() -> Self {
        Self {
            cookie_threshold: 32,
            max: 1_024,
            per_prefix: 64,
            puzzle_threshold: 512,
            puzzle_difficulty: 16,
            timeout: Duration::from_secs(30),
        }
    }
}
