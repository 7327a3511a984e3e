//! A pair of SAs lent to another engine, as the kernel: what it is handed, what it hands back, and which numbers are whose meanwhile. Owns the one
//! rule that matters: each sequence number is sent by one engine and accepted by one engine, across any number of loans. Must never choose when to lend.
//!
//! The numbers are divided where the loan begins. Of those that are sent, the next [`RESERVE`] stay here, for packets that are still on their
//! way to this engine; the other one begins behind them. Of those that are received, the next few stay here in the same way if both engines see
//! all packets ([`Loan::new`]'s `overlap`): then no packet is lost while the other one takes up its work.
//!
//! An SA that comes back without its numbers is used no more: what the other engine has sent cannot be known.
//!
//! # Nonces
//! Ours are the sequence number. An engine that does the same ([`Ivs::Numbers`]) uses none twice, however often it has an SA. The kernel makes them from the sequence number and
//! 64 random bits of its own, new with each loan ([`Ivs::Random`]; Linux: `seqiv`). Of p such loans with N packets together, two IVs are alike with a probability below 8 p N / 2^64, since the exclusive or of two ranges of numbers
//! holds at most eight times the longer one. [`LOANS`] and [`PACKETS`] keep that at 2^-32, the bound of NIST SP 800-38D section 8; for these alone they are needed.

use core::time::Duration;
use dormouse_crypto::{Encr, Secret};
use dormouse_keying::{ChildId, Mode, Owner, Share};
use dormouse_sansio::{Carrier, Entropy, Instant, Path};

use crate::engine::Engine;
use crate::inbound::Inbound;
use crate::lifetime::Usage;
use crate::outbound::Outbound;
use crate::params::SaParams;
use crate::pmtu::Overhead;
use crate::replay::Seen;
use crate::selector::Selectors;
use crate::tunnel::{InstallError, Tunnel};

/// Numbers that stay here when an SA is lent: what a queue of the inner side holds.
pub const RESERVE: u64 = 1_024;
/// Numbers of received packets that stay here if both engines see all packets: more than come while a loan begins. If the peer lends its SA at the
/// same time, its numbers leap by [`RESERVE`].
const OVERLAP: u64 = RESERVE + 1_024;
/// Packets are counted for so long.
pub const BUSY: Duration = Duration::from_secs(1);
/// Loans of one SA for [`Ivs::Random`]. After the last one it stays here.
pub const LOANS: u8 = 8;
/// Packets that an SA sends if it was ever lent so; `LOANS * PACKETS` is 2^29.
pub const PACKETS: u64 = 1 << 26;

/// From what another engine makes the IVs of an AEAD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ivs {
    /// The sequence number alone, as this one does.
    Numbers,
    /// The number and random bits, new with each loan.
    Random,
}

impl Ivs {
    /// Packets that an SA may send if it is lent so.
    const fn most(self) -> u64 {
        match self {
            Self::Numbers => u64::MAX,
            Self::Random => PACKETS,
        }
    }
}

/// What another engine needs to go on with a pair of SAs. Each copy of it is zeroized; one engine may use it.
#[derive(Clone, Debug)]
pub struct Loan {
    /// Its name, which is the SPI of what we receive.
    pub child: ChildId,
    /// SPI of what we send.
    pub spi_out: u32,
    /// The cipher, an AEAD.
    pub encr: Encr,
    /// Keying material of what we receive, in the order of RFC 7296 section 2.17.
    pub keymat_in: Secret,
    /// Keying material of what we send.
    pub keymat_out: Secret,
    /// Whether sequence numbers have 64 bits.
    pub esn: bool,
    /// The traffic.
    pub selectors: Selectors,
    /// How ESP travels.
    pub path: Path,
    /// The largest inner packet that fits, in bytes.
    pub inner_mtu: usize,
    /// The last number that is not to be sent any more.
    pub sent: u64,
    /// The last number that may be sent.
    pub last: u64,
    /// What is not to be accepted any more.
    pub seen: Seen,
}

/// What comes back with a loan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Returned {
    /// The last number that was sent.
    pub sent: u64,
    /// What was accepted.
    pub seen: Seen,
    /// What it did.
    pub usage: Usage,
}

impl Loan {
    /// The same pair of SAs in an engine made of this crate, where it goes on from what it was handed.
    ///
    /// # Errors
    /// As [`Tunnel::new`].
    pub fn tunnel(&self, owner: Owner, entropy: &mut dyn Entropy) -> Result<Tunnel, InstallError> {
        let params = |spi, keymat: &Secret| {
            let window = u32::try_from(self.seen.bits.len() * 64).unwrap_or(u32::MAX);
            SaParams {
                esn: self.esn,
                replay_window: window,
                ..SaParams::new(spi, self.encr, None, keymat.clone())
            }
        };
        let mut inbound = Inbound::new(&params(self.child.spi(), &self.keymat_in))?;
        let mut outbound = Outbound::new(&params(self.spi_out, &self.keymat_out), entropy)?;
        inbound.go_on(&self.seen);
        outbound.go_on(self.sent, self.last);
        let overhead = Overhead::new(self.encr, None, Mode::Tunnel, &self.path);
        let link = u16::try_from(self.inner_mtu).unwrap_or(u16::MAX);
        Ok(Tunnel::of_halves(owner, (inbound, outbound), self.selectors.clone(), overhead, self.path, link))
    }
}

/// Why a tunnel stays here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// Only whole IP packets are lent.
    #[error("its mode is not tunnel mode")]
    Mode,
    /// It has zones.
    #[error("it is protected in zones")]
    Zones,
    /// It pads.
    #[error("it pads its packets")]
    Padding,
    /// It shares its traffic with others.
    #[error("it shares its traffic with another CHILD SA")]
    Share,
    /// Its cipher is none of those that are lent.
    #[error("its cipher is neither AES-GCM nor ChaCha20-Poly1305")]
    Cipher,
    /// Its selectors name a protocol or ports.
    #[error("its traffic selectors name a protocol or ports")]
    Selectors,
    /// It travels in UDP of HIP.
    #[error("its carrier is HIP's")]
    Carrier,
    /// It is lent, has few numbers left, or came back without its numbers.
    #[error("it is lent, has few numbers left, or came back without them")]
    Spent,
    /// Its keys were not kept.
    #[error("nothing is lent here")]
    Keys,
}

impl Tunnel {
    /// Whether an engine with such IVs could have it, as it is now.
    ///
    /// # Errors
    /// Why not.
    pub fn is_fit(&self, ivs: Ivs) -> Result<(), Unfit> {
        let Engine::Here(keys) = &self.engine else {
            return Err(if matches!(self.engine, Engine::Ours) { Unfit::Keys } else { Unfit::Spent });
        };
        let (encr, integ) = self.suite;
        let aead =
            matches!(encr, Encr::Aes128Gcm16 | Encr::Aes256Gcm16 | Encr::ChaCha20Poly1305) && integ.is_none();
        let fit = [
            (self.mode() == Mode::Tunnel, Unfit::Mode),
            (!self.outbound.is_zoned(), Unfit::Zones),
            (!self.outbound.pads(), Unfit::Padding),
            (self.share() == Share::Rest, Unfit::Share),
            (aead, Unfit::Cipher),
            (self.selectors.are_addresses(), Unfit::Selectors),
            (matches!(self.path.carrier, Carrier::RawEsp | Carrier::NatT), Unfit::Carrier),
            (
                (keys.loans < LOANS || ivs == Ivs::Numbers)
                    && self.outbound.sequence() + 2 * RESERVE < self.outbound.last().min(ivs.most()),
                Unfit::Spent,
            ),
        ];
        fit.into_iter().find(|(fit, _)| !fit).map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Packets in both directions: those carried here, and those that another engine has reported ([`Self::account`]).
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.inbound.counters().packets.saturating_add(self.outbound.counters().packets)
    }

    /// Whether `most` packets have passed here within [`BUSY`]. Asked for each packet or train, only of one that could be lent.
    pub fn is_busy(&mut self, now: Instant, most: u64) -> bool {
        let packets = self.packets();
        let Engine::Here(keys) = &mut self.engine else { return false };
        if now < keys.pause {
            return false;
        }
        let (since, before) = keys.since;
        if now.saturating_since(since) > BUSY || packets < before {
            keys.since = (now, packets);
            return false;
        }
        let busy = packets - before >= most;
        if busy {
            keys.since = (now, packets);
        }
        busy
    }

    /// It is not busy before `until`, however much passes.
    pub fn pause(&mut self, until: Instant) {
        if let Engine::Here(keys) | Engine::Lent { keys, .. } = &mut self.engine {
            keys.pause = until;
        }
    }

    /// It is lent no more.
    pub fn keep(&mut self) {
        if matches!(self.engine, Engine::Here(_)) {
            self.engine = Engine::Ours;
        }
    }

    /// Whether another engine has it.
    #[must_use]
    pub const fn is_lent(&self) -> bool {
        matches!(self.engine, Engine::Lent { .. })
    }

    /// Hands it to another engine: from now on this one sends and accepts only what was kept back. `None` if it is not fit.
    pub fn lend(&mut self, inner_mtu: usize, ivs: Ivs) -> Option<Loan> {
        self.is_fit(ivs).ok()?;
        let Engine::Here(mut keys) = std::mem::take(&mut self.engine) else { return None };
        keys.loans += u8::from(ivs == Ivs::Random);
        // Where each engine sees every packet, the number of a packet says whose it is.
        let overlap = if self.path.carrier == Carrier::RawEsp { OVERLAP } else { 0 };
        let seen = self.inbound.lend(overlap);
        let (sent, last) = self.outbound.lend(RESERVE, ivs.most());
        let loan = Loan {
            child: self.id(),
            spi_out: self.outbound.spi(),
            encr: self.suite.0,
            keymat_in: keys.inbound.clone(),
            keymat_out: keys.outbound.clone(),
            esn: self.outbound.esn(),
            selectors: self.selectors.clone(),
            path: self.path,
            inner_mtu,
            sent,
            last,
            seen,
        };
        self.engine = Engine::Lent { keys, told: Usage::default(), last };
        Some(loan)
    }

    /// What this one has done, where it is the other engine ([`Loan::tunnel`]).
    #[must_use]
    pub const fn usage(&self) -> Usage {
        Usage { sent: self.outbound.counters(), received: self.inbound.counters() }
    }

    /// What it gives back then.
    #[must_use]
    pub fn returned(&self) -> Returned {
        Returned { sent: self.outbound.sequence(), seen: self.inbound.seen(), usage: self.usage() }
    }

    /// The other engine says what it has done so far.
    pub fn account(&mut self, usage: &Usage) {
        if let Engine::Lent { told, .. } = &mut self.engine {
            self.inbound.add_counters(usage.received.since(told.received));
            self.outbound.add_counters(usage.sent.since(told.sent));
            *told = *usage;
        }
    }

    /// It comes back. `None`: without its numbers; then nothing passes any more in either direction. False if that is so, also because what is said
    /// cannot be true.
    pub fn give_back(&mut self, returned: Option<&Returned>) -> bool {
        let Engine::Lent { keys, last, .. } = std::mem::replace(&mut self.engine, Engine::Lost) else {
            return true;
        };
        let fits =
            |r: &&Returned| self.outbound.may_take_back(r.sent, last) && self.inbound.may_take_back(&r.seen);
        let Some(returned) = returned.filter(fits) else {
            self.outbound.end();
            self.inbound.end();
            return false;
        };
        self.outbound.take_back(returned.sent, last);
        self.inbound.take_back(&returned.seen);
        self.engine = if keys.loans == LOANS { Engine::Ours } else { Engine::Here(keys) };
        true
    }
}
