//! The configuration of a host. Owns the defaults; must never read a file.

use std::collections::BTreeSet;

use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::hip::{DhGroup, HipCipher};
use dormouse_crypto::suites::{Encr, Integ};
use dormouse_keying::SleepFlags;
use dormouse_wire::hip::{Hit, Version};

use crate::hit::HitSuite;
use crate::limits::MAX_ASSOCIATIONS;
use crate::quirks::{Quirk, Quirks};

/// An ESP suite (RFC 7402 section 5.1.2).
/// "All HIP implementations MUST support AES-128-CBC and AES-256-CBC" (RFC 7402 section 3.3.5)
/// "[...] all implementations SHOULD implement the ESP NULL encryption algorithm" (RFC 7402 section 3.3.5)
/// "When the ESP NULL encryption is used, it MUST be used together with SHA-256 authentication as specified in Section 5.1.2." (RFC 7402
/// section 3.3.5)
/// Those without encryption are neither offered nor taken unless they are configured:
/// "[...] the suite MUST NOT be accepted if offered by the peer unless the local policy configuration regarding the peer host is explicitly
/// set to allow an authentication-only mode." (RFC 7402 section 3.3.5)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EspSuite {
    /// AES-128-GCM with a 16-byte ICV.
    Aes128Gcm16,
    /// AES-128-CBC with HMAC-SHA-256, which all must have.
    Aes128CbcSha256,
    /// AES-256-CBC with HMAC-SHA-256.
    Aes256CbcSha256,
    /// AES-128-CBC with HMAC-SHA1, for old peers.
    Aes128CbcSha1,
    /// AES-128-CCM with a 16-byte ICV.
    Aes128Ccm16,
    /// AES-128-CCM with an 8-byte ICV, for small devices.
    Aes128Ccm8,
    /// AES-128-GCM with an 8-byte ICV, for small devices.
    Aes128Gcm8,
    /// HMAC-SHA-256 without encryption: what is sent can be read. Never offered unless configured.
    NullSha256,
    /// AES-CMAC-96 without encryption.
    NullAesCmac,
    /// AES-128-GMAC, without encryption.
    NullAesGmac,
    /// HMAC-SHA1 without encryption: version 1 alone, in place of [`Self::NullSha256`].
    NullSha1,
}

impl EspSuite {
    /// Every suite of version 2.
    pub const ALL: [Self; 10] = [
        Self::Aes128Gcm16,
        Self::Aes128CbcSha256,
        Self::Aes256CbcSha256,
        Self::Aes128CbcSha1,
        Self::Aes128Ccm16,
        Self::Aes128Ccm8,
        Self::Aes128Gcm8,
        Self::NullSha256,
        Self::NullAesCmac,
        Self::NullAesGmac,
    ];

    /// Its number.
    #[must_use]
    pub const fn id(self) -> u16 {
        match self {
            Self::Aes128CbcSha1 => 1,
            Self::NullSha1 => 5,
            Self::NullSha256 => 7,
            Self::Aes128Ccm8 => 10,
            Self::Aes128Ccm16 => 11,
            Self::Aes128CbcSha256 => 8,
            Self::Aes256CbcSha256 => 9,
            Self::Aes128Gcm8 => 12,
            Self::Aes128Gcm16 => 13,
            Self::NullAesCmac => 14,
            Self::NullAesGmac => 15,
        }
    }

    /// Its algorithms, with a peer that has these quirks.
    pub(crate) fn algorithms_with(self, quirks: Quirks) -> (Encr, Option<Integ>) {
        let (encr, integ) = self.algorithms();
        let long_iv = matches!(self, Self::NullSha256 | Self::NullSha1) && quirks.has(Quirk::NullIv16);
        (
            if long_iv { Encr::NullIv16 } else { encr },
            integ.map(|integ| match integ {
                Integ::HmacSha256_128 if quirks.has(Quirk::EspIcv32) => Integ::HmacSha256Whole,
                _ => integ,
            }),
        )
    }

    /// Its algorithms.
    #[must_use]
    pub const fn algorithms(self) -> (Encr, Option<Integ>) {
        match self {
            Self::Aes128CbcSha1 => (Encr::Aes128Cbc, Some(Integ::HmacSha1_96)),
            Self::Aes128CbcSha256 => (Encr::Aes128Cbc, Some(Integ::HmacSha256_128)),
            Self::Aes256CbcSha256 => (Encr::Aes256Cbc, Some(Integ::HmacSha256_128)),
            Self::Aes128Gcm16 => (Encr::Aes128Gcm16, None),
            Self::Aes128Ccm16 => (Encr::Aes128Ccm16, None),
            Self::Aes128Ccm8 => (Encr::Aes128Ccm8, None),
            Self::Aes128Gcm8 => (Encr::Aes128Gcm8, None),
            Self::NullSha256 => (Encr::Null, Some(Integ::HmacSha256_128)),
            Self::NullAesCmac => (Encr::Null, Some(Integ::AesCmac96)),
            Self::NullAesGmac => (Encr::Aes128Gmac, None),
            Self::NullSha1 => (Encr::Null, Some(Integ::HmacSha1_96)),
        }
    }
}

/// Who may begin an association with us.
#[derive(Clone, PartialEq, Eq, Debug)]
/// "Wildcarding SHOULD be supported for such ACLs, and also for Responders that offer public or anonymous services." (RFC 7401 section 7)
pub enum Accept {
    /// Peers with these tags.
    Listed(BTreeSet<Hit>),
    /// Anyone who proves an identity.
    Any,
}

impl Accept {
    /// Whether this peer may.
    #[must_use]
    pub fn permits(&self, peer: Hit) -> bool {
        match self {
            Self::Listed(hits) => hits.contains(&peer),
            Self::Any => true,
        }
    }
}

/// Where a peer is found, before it is known better.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its addresses, the best first.
    pub addresses: Vec<IpAddr>,
    /// Whether HIP and ESP go in UDP, which passes NATs; else they have protocols of their own.
    pub udp: bool,
}

/// For whom we do something: as a rendezvous server (RFC 8004), which sends on I1 packets, and UPDATE packets of hosts that both moved; or as a
/// control and data relay (RFC 9028), which sends on all of HIP and ESP between its clients behind NATs and their peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registrar {
    /// Who may register.
    pub permits: Accept,
    /// The longest registration; a shorter one is granted as it was asked for, down to 10 seconds.
    pub longest: Duration,
    /// Clients at one time.
    pub max_clients: usize,
}

/// What is done for a peer that announces its sleep (`docs/wire/dormancy.md`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Its association is kept for so long at most.
    pub longest: Duration,
    /// What else is done for it, if it wants that.
    pub services: SleepFlags,
}

/// How hard our puzzles are, and the hardest that we solve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difficulty {
    /// K while there is no load.
    pub idle: u8,
    /// K at most.
    pub most: u8,
    /// I1 packets in a second from which on K rises; with each doubling by one more.
    pub busy_from: u32,
    /// The hardest puzzle that we solve for others.
    pub solve: u8,
    /// R1 packets in a second to one address, or to one /64 of IPv6.
    pub to_one_address: u32,
    /// I2 packets in a second that are worth public-key work. Above a quarter of it, K rises by one with each second.
    pub i2_a_second: u32,
    /// Of these, from one address, or from one /64 of IPv6.
    pub i2_from_one_address: u32,
}

/// Retransmission. The first wait doubles with each try.
/// "The UPDATE timer SHOULD be exponentially backed off for subsequent retransmissions." (RFC 7401 section 6.11)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// How long the first try waits for its answer.
    pub first_wait: Duration,
    /// Tries of an I1, I2, UPDATE or CLOSE, the first included.
    pub tries: u32,
    /// How long a generation of puzzles is sent out; solutions are accepted as long again.
    pub generation: Duration,
}

impl Timing {
    /// From the first try until the last is given up.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.first_wait.saturating_mul(1u32.checked_shl(self.tries).unwrap_or(u32::MAX).saturating_sub(1))
    }
}

/// When NATs on the way to a peer that is reached in UDP are shown that it is in use (RFC 9028 section 4.10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keepalive {
    /// After 15 seconds without another packet, and where no relay is in play only as long as the radio of neither end may sleep.
    #[default]
    Auto,
    /// Never.
    Off,
    /// After so long without another packet, 15 seconds at least.
    Every(Duration),
}

/// A host's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// Diffie-Hellman groups, the best first.
    pub groups: Vec<DhGroup>,
    /// Ciphers of ENCRYPTED, the best first.
    /// "As the default configuration, the HIP_CIPHER parameter MUST contain at least one of the mandatory Cipher IDs." (RFC 7401 section
    /// 5.2.8)
    pub ciphers: Vec<HipCipher>,
    /// ESP suites, the best first; six at most are offered.
    /// "As the default configuration, the ESP_TRANSFORM parameter MUST contain at least one of the mandatory Suite IDs." (RFC 7402 section
    /// 5.1.2)
    pub esp_suites: Vec<EspSuite>,
    /// Puzzles.
    pub difficulty: Difficulty,
    /// Who may begin an association.
    pub accept: Accept,
    /// Of those, who may in version 1: a host that has an identity of it for one old peer does not speak it with others.
    pub accept_v1: Accept,
    /// Denied peers: exchanges with them are refused, those that we begin as well as theirs.
    pub denied: BTreeSet<Hit>,
    /// Whether an I1 that names no receiver is answered.
    pub opportunistic: bool,
    /// Retransmission and lifetimes.
    pub timing: Timing,
    /// The first generation of puzzles: it must not go back when a host is started again (RFC 7401 section 4.1.4). Seconds of the wall
    /// clock will do.
    pub first_generation: u64,
    /// Whether each rekeying makes new key material by a new Diffie-Hellman exchange.
    pub rekey_with_dh: bool,
    /// After so many packets in one direction an ESP SA is replaced.
    pub soft_packets: u64,
    /// After so many bytes in one direction an ESP SA is replaced.
    pub soft_bytes: u64,
    /// Replay window of ESP in packets.
    pub replay_window: u32,
    /// Associations at one time. When there are so many, the one that was unused the longest gives way, if its peer is not configured.
    pub max_associations: usize,
    /// An association with a peer that is not configured ends when it was unused for so long: the UAL of RFC 7401. The others, which the
    /// configuration bounds, stay, so that a device that slept finds them.
    pub unused: Duration,
    /// Whether peers learn all our addresses, each time that they change, and another way is tried when the one in use does not answer
    /// (RFC 8047). Not in UDP.
    pub multihoming: bool,
    /// After so long without an authentic packet of a peer it is asked whether it is there; `None`: when it does not answer user data.
    pub liveness: Option<Duration>,
    /// Keep-alives.
    pub keepalive: Keepalive,
    /// Whether we are a rendezvous server.
    pub registrar: Option<Registrar>,
    /// Whether we are a control and data relay, which needs UDP.
    pub relay_server: Option<Registrar>,
    /// The relays at which we register, so that others reach us behind a NAT; none of them is one of [`Self::rendezvous`]. An association
    /// with each is kept as far as the network allows, by UDP.
    pub relays: BTreeSet<Hit>,
    /// The rendezvous servers at which we register. An association with each is kept as far as the network allows.
    pub rendezvous: BTreeSet<Hit>,
    /// For how long a registration is asked for; it is renewed when three quarters are over.
    pub registration: Duration,
    /// Our radio may sleep: peers learn it with the association, so that they are ready to do something for us.
    pub may_sleep: bool,
    /// What is done for peers that sleep; `None`: an announced sleep is not understood.
    pub hold: Option<Hold>,
    /// The UDP port of HIP, ours and the peers' (RFC 9028 section 4.1).
    pub udp_port: u16,
    /// We listen at that port besides protocol 139, and with a peer that does too, as it has shown in the base exchange, ESP goes in UDP
    /// (`docs/wire/hip-udp.md`).
    pub esp_in_udp: bool,
}

impl HostConfig {
    /// Whether this peer may begin an association with us.
    #[must_use]
    pub fn admits(&self, peer: Hit) -> bool {
        !self.denied.contains(&peer) && self.accept.permits(peer) && self.speaks_with(peer)
    }

    /// Whether some host of this version may begin an association with us.
    pub(crate) fn may_be_called(&self, version: Version) -> bool {
        let speaks = |hit: &Hit| HitSuite::of(*hit).is_some_and(|suite| suite.version() == version);
        match (&self.accept, version, &self.accept_v1) {
            (Accept::Listed(hits), ..) => hits.iter().any(|hit| speaks(hit) && self.admits(*hit)),
            (Accept::Any, Version::V1, Accept::Listed(hits)) => hits.iter().any(|hit| self.admits(*hit)),
            (Accept::Any, ..) => true,
        }
    }

    /// Whether the version that a peer's tag says is spoken with it.
    pub(crate) fn speaks_with(&self, peer: Hit) -> bool {
        HitSuite::of(peer) != Some(HitSuite::Sha1) || self.accept_v1.permits(peer)
    }
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            groups: DhGroup::ALL.to_vec(),
            ciphers: vec![HipCipher::Aes128Cbc, HipCipher::Aes256Cbc],
            esp_suites: vec![EspSuite::Aes128Gcm16, EspSuite::Aes256CbcSha256, EspSuite::Aes128CbcSha256],
            difficulty: Difficulty {
                idle: 4,
                most: 20,
                busy_from: 500,
                solve: 24,
                to_one_address: 200,
                i2_a_second: 1_000,
                i2_from_one_address: 50,
            },
            accept: Accept::Listed(BTreeSet::new()),
            accept_v1: Accept::Any,
            denied: BTreeSet::new(),
            opportunistic: false,
            timing: Timing {
                first_wait: Duration::from_secs(1),
                tries: 5,
                generation: Duration::from_secs(900),
            },
            first_generation: 1,
            rekey_with_dh: true,
            soft_packets: 1 << 32,
            soft_bytes: 1 << 40,
            replay_window: 1_024,
            max_associations: MAX_ASSOCIATIONS,
            unused: Duration::from_secs(3_600),
            multihoming: false,
            liveness: None,
            keepalive: Keepalive::Auto,
            registrar: None,
            relay_server: None,
            relays: BTreeSet::new(),
            rendezvous: BTreeSet::new(),
            registration: Duration::from_secs(86_400),
            may_sleep: false,
            hold: None,
            udp_port: 10_500,
            esp_in_udp: false,
        }
    }
}
