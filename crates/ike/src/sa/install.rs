//! From what was agreed to a CHILD SA that carries traffic. Owns the derivation of its keys, which leave through [`Install`] at
//! once, and the start of its timers.

use core::net::IpAddr;

use dormouse_crypto::Secret;
use dormouse_crypto::packet_key::keymat_len;
use dormouse_sansio::Instant;

use super::IkeSa;
use crate::callers::hosts;
use crate::child::{Agreed, Busy, Child};
use crate::config::{ChildMode, Lifetime, SoftLifetime};
use crate::error::NegotiationError;
use crate::event::Event;
use crate::keys::{self, Nonces};
use crate::shared::Shared;
use dormouse_keying::{
    ChildId, ChildSa, HeaderGrant, HeaderSa, Install, Mode, Nodes, Owner, Protection, SoftBounds, ZoneKeys,
    ZoneMap, Zones,
};

/// The key material of an exchange, and whether we began it.
pub(crate) struct Origin<'a> {
    pub(crate) nonces: Nonces<'a>,
    /// Of its key exchanges; empty if it had none.
    pub(crate) secrets: &'a [Secret],
    pub(crate) we_began: bool,
    pub(crate) replaces: Option<ChildId>,
    /// Nothing is to be sent by it yet: the peer has not shown that it is there, or it is redundant.
    pub(crate) receives_only: bool,
}

impl IkeSa {
    /// Whether this SA may carry what was agreed: a host behind the peer must not be one that another identity is reached at, or another
    /// device of the same.
    pub(crate) fn check_hosts(&self, shared: &Shared, agreed: &Agreed) -> Result<(), NegotiationError> {
        let tunnel = agreed.mode == ChildMode::Tunnel && !self.core.client;
        let held = tunnel.then(|| self.held_by_another(shared, hosts(&agreed.ts_remote))).flatten();
        held.map_or(Ok(()), |host| Err(NegotiationError::AddressHeld(host)))
    }

    pub(crate) fn held_by_another(
        &self,
        shared: &Shared,
        hosts: impl IntoIterator<Item = IpAddr>,
    ) -> Option<IpAddr> {
        let core = &self.core;
        let lineage = core.descent.as_ref().map(|descent| descent.lineage);
        shared.callers.held_by_another(&core.link.conn, &core.peer, lineage, hosts)
    }

    /// The hosts that its CHILD SAs lead to.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = IpAddr> {
        let tunnels = self.children.iter().filter(|child| child.mode == ChildMode::Tunnel);
        tunnels.flat_map(|child| hosts(&child.ts_remote))
    }

    /// The peer is there, and reached at its hosts from now on.
    pub(crate) fn claim_hosts(&mut self, shared: &mut Shared) {
        let Some(caller) = self.caller() else { return };
        self.core.claims = true;
        let lineage = self.core.descent.as_ref().map(|descent| descent.lineage);
        shared.callers.claim(&caller, self.core.assigned.addresses(), lineage);
        shared.callers.claim(&caller, self.hosts(), None);
    }

    /// Derives the keys, tells the driver, and starts the timers.
    /// "The responder to a CREATE_CHILD_SA MUST be prepared to accept messages on an SA before sending its response" (RFC 7296
    /// section 2.8)
    pub(crate) fn install(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        agreed: Agreed,
        origin: &Origin<'_>,
    ) -> Result<ChildId, NegotiationError> {
        let id = ChildId::new(agreed.spi_in);
        let mut keymat = self.keymat(&agreed, origin).map_err(|error| {
            shared.free_esp_spi(agreed.spi_in);
            NegotiationError::Crypto(error.to_string())
        })?;
        let further = keymat.split_off(1);
        let (keymat_out, keymat_in) = keymat.swap_remove(0);
        let replaces = origin.replaces.filter(|old| self.children.get(*old).is_some());
        let config = self.core.link.conn.children.get(agreed.config);
        let lifetime = config.map(|c| c.lifetime);
        let soft = lifetime.map(|l| l.soft(&mut shared.entropy));
        let (rekey_at, expire_at) = match (lifetime, soft) {
            (Some(lifetime), Some(soft)) => moments(now, &lifetime, &soft, origin.we_began),
            _ => (None, None),
        };
        let header = (keymat_out.clone(), keymat_in.clone());
        self.distribute(shared, now, (&agreed, replaces), header, expire_at);
        let encr = agreed.suite.encr;
        let keys = |(keymat_out, keymat_in)| ZoneKeys { encr, keymat_in, keymat_out };
        shared.event(Event::Child(ChildSa::Install(Box::new(Install {
            owner: Owner::Ike(self.core.id()),
            child: id,
            spi_out: agreed.spi_out,
            keymat_in,
            keymat_out,
            encr: agreed.suite.encr,
            integ: agreed.suite.integ,
            esn: agreed.suite.esn,
            mode: match agreed.mode {
                ChildMode::Tunnel => Mode::Tunnel,
                ChildMode::Transport => Mode::Transport,
            },
            protection: match agreed.zones.clone() {
                None => Protection::Whole,
                Some(map) => {
                    let further = further.into_iter().map(keys).collect();
                    Protection::Zoned(Box::new(Zones { map, further }))
                }
            },
            pad_to: config.filter(|_| agreed.tfc_padding).map_or(0, |c| c.pad_to),
            ts_local: agreed.ts_local.clone(),
            ts_remote: agreed.ts_remote.clone(),
            original: agreed.original,
            path: self.esp_path(),
            replaces,
            send_now: (origin.we_began || replaces.is_none()) && !origin.receives_only,
            replay_window: config.map_or(0, |c| c.replay_window),
            soft: SoftBounds {
                packets: soft.and_then(|s| s.packets).unwrap_or(u64::MAX),
                bytes: soft.and_then(|s| s.bytes).unwrap_or(u64::MAX),
            },
            share: config.map(|c| c.share).unwrap_or_default(),
        }))));
        let child = Child {
            id,
            config: agreed.config,
            spi_in: agreed.spi_in,
            spi_out: agreed.spi_out,
            ts_local: agreed.ts_local,
            ts_remote: agreed.ts_remote,
            suite: agreed.suite,
            mode: agreed.mode,
            zones: agreed.zones,
            busy: Busy::No,
            installed: true,
            rekey_at,
            expire_at,
        };
        if let Some(caller) = self.caller().filter(|_| self.core.claims && child.mode == ChildMode::Tunnel) {
            shared.callers.claim(&caller, hosts(&child.ts_remote), None);
        }
        self.children.insert(child, replaces);
        Ok(id)
    }

    /// The keys of what we send, and of what we receive: of each zone, or of the whole, which is one.
    fn keymat(
        &self,
        agreed: &Agreed,
        origin: &Origin<'_>,
    ) -> Result<Vec<(Secret, Secret)>, dormouse_crypto::Error> {
        let (prf, sk_d) = (self.core.channel.suite.prf, &self.core.channel.sk_d);
        let zones = agreed.zones.as_ref().map_or(1, ZoneMap::zones);
        let keymat = keys::child_keymat(prf, sk_d, &agreed.suite, origin.nonces, origin.secrets, zones)?;
        let (ours, theirs) = match origin.we_began {
            true => (keymat.from_initiator, keymat.from_responder),
            false => (keymat.from_responder, keymat.from_initiator),
        };
        let one = keymat_len(agreed.suite.encr, agreed.suite.integ);
        let each = ours.as_bytes().chunks_exact(one).zip(theirs.as_bytes().chunks_exact(one));
        Ok(each.map(|(ours, theirs)| (Secret::from(ours), Secret::from(theirs))).collect())
    }

    /// Gateway: routers may be given the keys of the first zone.
    fn distribute(
        &self,
        shared: &mut Shared,
        now: Instant,
        (agreed, replaces): (&Agreed, Option<ChildId>),
        (keymat_out, keymat_in): (Secret, Secret),
        until: Option<Instant>,
    ) {
        let conn = &self.core.link.conn;
        let policy = conn.children.get(agreed.config).and_then(|child| child.zones.clone());
        let (Some(map), Some(policy)) = (agreed.zones.clone(), policy.filter(|_| !self.core.client)) else {
            return;
        };
        let of = |spi, keymat| HeaderSa { spi, keymat, reached: 0.into() };
        let grant = HeaderGrant {
            map,
            encr: agreed.suite.encr,
            esn: agreed.suite.esn,
            to_device: of(agreed.spi_out, keymat_out),
            from_device: of(agreed.spi_in, keymat_in),
            nodes: Nodes::ALL,
        };
        let path = self.esp_path();
        let session = (self.core.id(), path.remote.ip());
        let child = ChildId::new(agreed.spi_in);
        shared.header.distribution.install(
            now,
            child,
            replaces,
            session,
            policy,
            grant,
            path.local.ip(),
            until,
        );
    }
}

/// When it is rekeyed, and when it ends. The end that began goes first; the other steps in later, but long before the hard limit.
pub(super) fn moments(
    now: Instant,
    lifetime: &Lifetime,
    soft: &SoftLifetime,
    we_began: bool,
) -> (Option<Instant>, Option<Instant>) {
    let (soft, hard) = (soft.time.map(|t| now + t), lifetime.hard().map(|t| now + t));
    let later = |soft, hard| soft + lifetime.slack(hard - soft);
    let rekey_at = match (soft, hard) {
        (Some(soft), Some(hard)) if !we_began => Some(later(soft, hard)),
        _ => soft,
    };
    (rekey_at, hard)
}
