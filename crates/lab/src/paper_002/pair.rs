//! Two HIP hosts in one thread and virtual time, and the processor time that each step takes. Owns the hosts; must never lose a packet
//! or time what it does for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use dormouse_crypto::hip::{DhGroup, v1};
use dormouse_crypto::measure;
use dormouse_crypto::sign::SigningKey;
use dormouse_hip::config::Difficulty;
use dormouse_hip::{Accept, Host, HostConfig, Identity, Phase};
use dormouse_keying::{ChildId, ChildSa, Event, Install, KeyManager as _, SaId};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::hip::{DomainId, Hit};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize};
use serde::{Deserialize, Serialize};

use super::campaign::{OURS, PAPER};
use crate::campaign::cpu;

/// The initiator and the responder.
pub(super) const ENDS: [usize; 2] = [0, 1];
/// Between two exchanges, so that no responder takes them for a flood.
const APART: Duration = Duration::from_secs(1);
/// Packets that one exchange may take: more are a fault.
const MOST_PACKETS: usize = 16;

/// The key of an identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Key {
    /// RSA of 1,024 bits in version 1 of HIP, as the paper had it.
    Rsa1024V1,
    /// RSA of 2,048 bits.
    Rsa2048,
    /// ECDSA with P-256.
    P256,
    /// ECDSA with P-384.
    P384,
}

impl Key {
    pub(super) const ALL: [Self; 4] = [Self::Rsa1024V1, Self::Rsa2048, Self::P256, Self::P384];

    /// Groups and difficulties with which it is measured; the last is today's, if it knows that.
    pub(super) const fn settings(self) -> &'static [(u8, u8)] {
        match self {
            Self::Rsa1024V1 => &[PAPER],
            _ => &[PAPER, OURS],
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Rsa1024V1 => "RSA-1024 of HIPv1",
            Self::Rsa2048 => "RSA-2048",
            Self::P256 => "ECDSA P-256",
            Self::P384 => "ECDSA P-384",
        }
    }

    /// A fresh one, PKCS #8 in DER.
    ///
    /// # Errors
    /// If the library makes none.
    pub fn generate(self) -> Result<Vec<u8>> {
        let pair = match self {
            Self::Rsa1024V1 => return Ok(measure::rsa_1024()?.as_bytes().to_vec()),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            Self::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            Self::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        };
        Ok(pair?.serialize_der())
    }
}

/// What a host is set up with.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The private key of its identity, PKCS #8 in DER.
    pub key: &'a [u8],
    /// The only group of Diffie-Hellman.
    pub group: DhGroup,
    /// Difficulty of the puzzle.
    pub k: u8,
}

/// Who may call an initiator.
pub(super) const NOBODY: Accept = Accept::Listed(BTreeSet::new());

/// One end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) host: Host,
    pub(super) tag: Hit,
    address: IpAddr,
    installed: BTreeMap<ChildId, Install>,
    /// Packets and their bytes that it sent.
    sent: [u64; 2],
}

impl End {
    /// Without an association. `accept`: who may call it; who is called by no one makes no R1, which would be counted among what it does else.
    ///
    /// # Errors
    /// For a key that HIP does not take.
    pub(super) fn new(setup: Setup<'_>, accept: Accept, address: IpAddr, seed: u64) -> Result<Self> {
        // What is too short for version 2 is of version 1.
        let identity = match SigningKey::from_der(setup.key) {
            Ok(key) => Identity::new(key, DomainId::default())?,
            Err(_) => Identity::v1(v1::SigningKey::from_file_content(setup.key)?, DomainId::default())?,
        };
        let config = HostConfig {
            groups: vec![setup.group],
            difficulty: Difficulty {
                idle: setup.k,
                most: setup.k.max(20),
                ..HostConfig::default().difficulty
            },
            accept,
            max_associations: usize::MAX,
            ..HostConfig::default()
        };
        let tag = identity.hit();
        let spis = Box::new(BTreeSet::<ChildId>::new());
        let host = Host::new(config, vec![identity], spis, Box::new(Seeded::new(seed)));
        Ok(Self { host, tag, address, installed: BTreeMap::new(), sent: [0; 2] })
    }

    /// Does something to the host; the packets that come of it, and the processor time of both.
    ///
    /// # Errors
    /// Those of what is done.
    pub(super) fn act(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Host) -> Result<()>,
    ) -> Result<(Vec<Sent>, Duration)> {
        let before = cpu::thread();
        act(&mut self.host)?;
        let mut events = Vec::new();
        while let Some(event) = self.host.poll_event() {
            events.push(event);
        }
        let mut sent = Vec::new();
        let mut bytes = Vec::new();
        while let Some(transmit) = self.host.poll_transmit(now, &mut bytes) {
            sent.push((transmit.path, std::mem::take(&mut bytes)));
        }
        let took = cpu::thread() - before;
        for (_, packet) in &sent {
            self.sent = [self.sent[0] + 1, self.sent[1] + packet.len() as u64];
        }
        for event in events {
            match event {
                Event::Child(ChildSa::Install(install)) => {
                    self.installed.insert(install.child, *install);
                }
                Event::Child(ChildSa::Remove { child, .. }) => {
                    self.installed.remove(&child);
                }
                _ => {}
            }
        }
        Ok((sent, took))
    }

    /// What protects packets to this peer and from it, if there is an association.
    pub(super) fn newest(&self, peer: Hit) -> Option<&Install> {
        let found = self.host.describe().find(|d| d.peer == peer && d.phase == Phase::Established)?;
        self.installed.get(&found.child?)
    }
}

/// A packet and where it goes, as its sender sees it.
pub(super) type Sent = (Path, Vec<u8>);

/// The stages of a base exchange: the initiator's I1, the responder's R1, which the paper calls T1; the initiator's work on R1 with the
/// puzzle, the responder's on I2, the initiator's on R2.
pub(super) const STAGES: [&str; 5] = ["i1", "r1", "t2", "t3", "t4"];

/// See the module.
#[derive(Debug)]
pub struct Pair {
    now: Instant,
    ends: [End; 2],
    association: Option<SaId>,
}

impl Pair {
    /// Two hosts without an association.
    ///
    /// # Errors
    /// For a key that HIP does not take.
    pub fn new(initiator: Setup<'_>, responder: Setup<'_>, seed: u64) -> Result<Self> {
        let at = |n| IpAddr::from(Ipv4Addr::new(192, 0, 2, n));
        let calls = End::new(initiator, NOBODY, at(1), seed)?;
        let ends = [calls, End::new(responder, Accept::Any, at(2), seed ^ 1)?];
        Ok(Self { now: Instant::ZERO, ends, association: None })
    }

    /// Another initiator takes the place of the one that is there, which the responder still has.
    pub(super) fn replace_initiator(&mut self, setup: Setup<'_>, address: Ipv4Addr, seed: u64) -> Result<()> {
        let [initiator, _] = &mut self.ends;
        *initiator = End::new(setup, NOBODY, address.into(), seed)?;
        self.association = None;
        Ok(())
    }

    /// A base exchange: the processor time of its [`STAGES`]. An association that there is ends before.
    ///
    /// # Errors
    /// If it does not end with the same keys at both ends.
    pub fn base_exchange(&mut self) -> Result<[Duration; 5]> {
        self.end()?;
        self.uncount();
        self.now += APART;
        let [initiator, responder] = &mut self.ends;
        let (now, ours, peer) = (self.now, initiator.tag, responder.tag);
        let path = path(initiator.address, responder.address);
        let mut association = None;
        let (i1, of_i1) = initiator.act(now, |host| {
            association = Some(host.connect(now, ours, peer, &[path])?);
            Ok(())
        })?;
        let (r1, of_r1) = deliver(responder, now, one(i1)?)?;
        let (mut i2, mut t2) = deliver(initiator, now, one(r1)?)?;
        // The puzzle is solved in slices, so that packets are not kept waiting.
        while i2.is_empty() {
            let due = initiator.host.poll_timeout().context("the puzzle is given up")?.at;
            self.now = self.now.max(due);
            let now = self.now;
            let (sent, took) = initiator.act(now, |host| {
                host.handle_timeout(now);
                Ok(())
            })?;
            i2 = sent;
            t2 += took;
        }
        let (r2, t3) = deliver(responder, self.now, one(i2)?)?;
        let (rest, t4) = deliver(initiator, self.now, one(r2)?)?;
        ensure!(rest.is_empty(), "{} packets after R2", rest.len());
        self.association = association;
        self.check()?;
        Ok([of_i1, of_r1, t2, t3, t4])
    }

    /// The initiator moves to another address: processor time of both ends until the responder has verified it.
    ///
    /// # Errors
    /// If the responder does not follow.
    pub fn update(&mut self) -> Result<[Duration; 2]> {
        self.uncount();
        self.now += APART;
        let now = self.now;
        let id = self.association.context("no association")?;
        let [initiator, responder] = &mut self.ends;
        let at = if initiator.address == IpAddr::from([192, 0, 2, 1]) {
            [198, 51, 100, 7]
        } else {
            [192, 0, 2, 1]
        };
        initiator.address = at.into();
        let new = path(initiator.address, responder.address);
        let (sent, took) = initiator.act(now, |host| {
            host.moved(now, id, new);
            Ok(())
        })?;
        let mut total = [took, Duration::ZERO];
        self.pass(0, sent, &mut total)?;
        let [_, responder] = &self.ends;
        let there = responder.host.describe().next().map(|d| d.path.remote.ip());
        ensure!(
            there == Some(IpAddr::from(at)),
            "the responder sends to {there:?}, the initiator is at {at:?}"
        );
        Ok(total)
    }

    /// Packets of the last exchange, and their bytes without IP headers.
    #[must_use]
    pub fn traffic(&self) -> [u64; 2] {
        let [a, b] = &self.ends;
        [a.sent[0] + b.sent[0], a.sent[1] + b.sent[1]]
    }

    fn uncount(&mut self) {
        self.ends.iter_mut().for_each(|end| end.sent = [0; 2]);
    }

    /// Associations at the responder.
    pub(super) fn held(&self) -> usize {
        let [_, responder] = &self.ends;
        responder.host.describe().filter(|d| d.phase == Phase::Established).count()
    }

    fn end(&mut self) -> Result<()> {
        let Some(id) = self.association.take() else { return Ok(()) };
        let now = self.now;
        let [initiator, _] = &mut self.ends;
        let (sent, _) = initiator.act(now, |host| {
            host.close(now, id);
            Ok(())
        })?;
        self.pass(0, sent, &mut [Duration::ZERO; 2])
    }

    /// Carries packets from `from` to the other end and back until none is left.
    fn pass(&mut self, from: usize, mut sent: Vec<Sent>, total: &mut [Duration; 2]) -> Result<()> {
        let mut to = 1 - from;
        for _ in 0..MOST_PACKETS {
            if sent.is_empty() {
                return Ok(());
            }
            let (Some(end), Some(total)) = (self.ends.get_mut(to), total.get_mut(to)) else {
                bail!("two ends")
            };
            let (answer, took) = deliver(end, self.now, one(sent)?)?;
            *total += took;
            (sent, to) = (answer, 1 - to);
        }
        bail!("more than {MOST_PACKETS} packets")
    }

    /// Both ends have each other's keys.
    fn check(&self) -> Result<()> {
        let [a, b] = &self.ends;
        let (x, y) = a.newest(b.tag).zip(b.newest(a.tag)).context("an end has no association")?;
        let keys = x.keymat_in == y.keymat_out && x.keymat_out == y.keymat_in;
        ensure!(
            keys && x.child.spi() == y.spi_out && y.child.spi() == x.spi_out,
            "the ends have different SAs"
        );
        Ok(())
    }
}

fn path(local: IpAddr, remote: IpAddr) -> Path {
    Path { local: SocketAddr::new(local, 0), remote: SocketAddr::new(remote, 0), carrier: Carrier::RawHip }
}

fn deliver(end: &mut End, now: Instant, (path, mut bytes): Sent) -> Result<(Vec<Sent>, Duration)> {
    let path = Path { local: path.remote, remote: path.local, ..path };
    end.act(now, |host| host.handle_datagram(now, path, &mut bytes).map_err(Into::into))
}

fn one(mut sent: Vec<Sent>) -> Result<Sent> {
    ensure!(sent.len() == 1, "{} packets instead of one", sent.len());
    sent.pop().context("a packet")
}
