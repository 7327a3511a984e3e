//! CREATE_CHILD_SA that rekeys the IKE SA (RFC 7296 sections 1.3.2, 2.8.2, 2.18 and 2.25.2), from both ends, with every
//! collision. Owns the making of a successor; who takes over the name and the CHILD SAs is settled by
//! [`Action::Inherit`]. It must never rekey a CHILD SA.

use dormouse_crypto::DhPrivate;
use dormouse_crypto::suites::Group;
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{NotifyType, Payload, Proposal};

use crate::exchange::child::agree;
use crate::keys::{self, IkeKeys, Nonces, Spis};
use crate::link::{Channel, Link};
use crate::payloads::{View, notify};
use crate::proposal::{self, IkeSuite};
use crate::sa::{Answer, Birth, Exchange, Fate, IkeSa, PeerRekey, Stage, Task};
use crate::shared::{Action, Shared};
use crate::stats::{Kind, Stats};
use dormouse_keying::SaId;

/// An IKE SA that we asked for.
#[derive(Debug)]
pub(crate) struct NewIke {
    id: SaId,
    spi: u64,
    nonce: Vec<u8>,
    dh: DhPrivate,
    offered: Vec<Proposal>,
    tried: Vec<Group>,
    refusals: u32,
}

impl IkeSa {
    /// "The KEi payload MUST be included." (RFC 7296 section 1.3.2)
    /// "[...] implementations MUST perform a new Diffie-Hellman exchange when rekeying the IKE SA" (RFC 7296 section 2.18)
    pub(crate) fn begin_rekey_ike(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        again: Option<(Group, Vec<Group>)>,
        refusals: u32,
    ) {
        let conn = self.link.conn.clone();
        let (group, mut tried) = again.unwrap_or((self.channel.suite.group, Vec::new()));
        let Ok(dh) = DhPrivate::generate(group, &mut shared.entropy) else { return };
        tried.push(group);
        let id = shared.new_sa();
        let spi = shared.new_spi(id);
        let nonce = shared.nonce();
        let offered = proposal::ike_offer(&conn.ike_proposals, Some(spi));
        let payloads = [
            Payload::Sa(offered.clone()),
            Payload::Nonce(nonce.clone()),
            Payload::Ke { group: group.id(), data: dh.public_value().to_vec() },
        ];
        let new = NewIke { id, spi, nonce, dh, offered, tried, refusals };
        let exchange = Exchange::RekeyIke(Box::new(new));
        self.request(shared, now, &payloads, Kind::RekeyIke, Class::Upkeep, exchange);
    }

    pub(crate) fn rekey_answered(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        new: NewIke,
        view: View<'_>,
    ) -> Fate {
        if let Some(error) = view.error() {
            shared.by_spi.remove(&new.spi);
            if self.peers_rekey_wins(now, shared) {
                return Fate::Lives;
            }
            match error.kind {
                NotifyType::TemporaryFailure => self.retry(shared, now, Task::RekeyIke, new.refusals),
                NotifyType::InvalidKePayload => {
                    let wanted = <[u8; 2]>::try_from(error.data.as_slice()).map_or(0, u16::from_be_bytes);
                    if let Some(group) = proposal::retry_group(wanted, &new.offered, &new.tried) {
                        self.begin_rekey_ike(shared, now, Some((group, new.tried)), new.refusals);
                    }
                }
                other => {
                    tracing::warn!(sa = %self.link.id, error = %other, "the peer refuses to rekey the IKE SA")
                }
            }
            return Fate::Lives;
        }
        match self.successor_of_answer(shared, now, &new, view) {
            Ok(successor) => {
                self.settle_rekey(shared, now, &new, successor, view.nonce().unwrap_or_default())
            }
            Err(what) => {
                tracing::warn!(sa = %self.link.id, what, "unusable answer to the rekeying of the IKE SA");
                shared.by_spi.remove(&new.spi);
                self.peers_rekey_wins(now, shared);
            }
        }
        Fate::Lives
    }

    fn successor_of_answer(
        &self,
        shared: &mut Shared,
        now: Instant,
        new: &NewIke,
        view: View<'_>,
    ) -> Result<Box<IkeSa>, &'static str> {
        let chosen = view.sa().ok_or("no SA payload")?;
        let (suite, spi_r) = proposal::verify_ike(chosen, &new.offered).map_err(|_| "unusable choice")?;
        let nr = view.nonce().ok_or("no nonce")?;
        let (group, public) = view.ke().ok_or("no KE payload")?;
        if suite.group != new.dh.group() || group != suite.group.id() {
            return Err("it chose a group that we sent no key for");
        }
        let secret = new.dh.agree(public).map_err(|_| "unusable public value")?;
        let spis = Spis { i: new.spi, r: spi_r };
        let nonces = Nonces { i: &new.nonce, r: nr };
        self.successor(shared, now, new.id, suite, spis, nonces, &secret, true)
    }

    /// The new IKE SA, which knows everything but has taken over nothing yet.
    #[expect(clippy::too_many_arguments, reason = "each is one input of section 2.18")]
    fn successor(
        &self,
        shared: &mut Shared,
        now: Instant,
        id: SaId,
        suite: IkeSuite,
        spis: Spis,
        nonces: Nonces<'_>,
        secret: &dormouse_crypto::Secret,
        we_began: bool,
    ) -> Result<Box<IkeSa>, &'static str> {
        let seed = keys::skeyseed_rekeyed(self.channel.suite.prf, &self.channel.sk_d, nonces, secret);
        let keys = IkeKeys::derive(suite, &seed, nonces, spis).map_err(|_| "no keys")?;
        let link = Link {
            id,
            conn: self.link.conn.clone(),
            initiator: we_began,
            spis,
            path: self.link.path,
            fragmentation: self.link.fragmentation,
            stats: Stats::default(),
        };
        // "The new IKE SA MUST reset its message counters to 0." (RFC 7296 section 2.18)
        let birth = Birth {
            link,
            channel: Channel::new(keys, we_began),
            session: self.session.clone(),
            local_id: self.local_id.clone(),
            peer: self.peer.clone(),
            client: self.client,
            assigned: self.assigned.clone(),
            mobike: self.mobike,
            dormancy: self.dormancy,
            nat: self.nat,
            next_ids: (0, 0),
        };
        let mut sa = IkeSa::new(shared, now, birth);
        sa.stage = Stage::Heir;
        sa.reauth_at = self.reauth_at;
        Ok(Box::new(sa))
    }

    /// Our rekeying has succeeded: decide between its successor and the one that the peer's made, if any.
    ///
    /// RFC 7296 section 2.8.2: the SA made with the lowest of the four nonces is deleted by its creator, and the other
    /// inherits the CHILD SAs.
    /// "the other surviving new IKE SA MUST inherit all the Child SAs" (RFC 7296 section 2.8.2)
    fn settle_rekey(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        new: &NewIke,
        successor: Box<IkeSa>,
        nr: &[u8],
    ) {
        let ours = successor.link.id;
        shared.actions.push_back(Action::Spawn(successor));
        if self.stage != Stage::Live {
            // Somebody else has inherited already, or nobody shall.
            return shared.actions.push_back(Action::Delete(ours));
        }
        let our_lowest = new.nonce.as_slice().min(nr);
        let from = self.link.id;
        match self.peer_rekey.take() {
            Some(peers) if our_lowest < peers.lowest.as_slice() => {
                shared.actions.push_back(Action::Delete(ours));
                shared.actions.push_back(Action::Inherit { from, to: peers.heir });
                self.supersede(now);
            }
            peers => {
                shared.actions.extend(peers.map(|p| Action::Abandon(p.heir)));
                shared.actions.push_back(Action::Inherit { from, to: ours });
                self.supersede(now);
                // "the Delete payload to delete itself MUST be the last request sent over the old IKE SA" (RFC 7296 section
                // 2.8)
                self.begin_delete_ike(shared, now);
            }
        }
    }

    /// Our rekeying came to nothing. If the peer's succeeded meanwhile, its successor takes over.
    pub(crate) fn peers_rekey_wins(&mut self, now: Instant, shared: &mut Shared) -> bool {
        let Some(peers) = self.peer_rekey.take() else { return false };
        shared.actions.push_back(Action::Inherit { from: self.link.id, to: peers.heir });
        self.supersede(now);
        true
    }

    /// "[...] it SHOULD return TEMPORARY_FAILURE because it is an IKE SA that it is currently trying to close" (RFC 7296
    /// section 2.8.2)
    pub(crate) fn answer_rekey_ike(&mut self, shared: &mut Shared, now: Instant, view: View<'_>) -> Answer {
        // "[...] it is currently creating, rekeying, or closing a Child SA of that IKE SA, it SHOULD reply with
        // TEMPORARY_FAILURE" (RFC 7296 section 2.25.2)
        let busy_with_children = self.out.flights().any(|f| {
            matches!(f.exchange, Exchange::Child(_) | Exchange::DeleteChildren(_) | Exchange::DeleteIke)
        });
        if self.stage != Stage::Live || busy_with_children || self.peer_rekey.is_some() {
            return Answer::refuse(Kind::RekeyIke, NotifyType::TemporaryFailure);
        }
        match self.rekey_as_responder(shared, now, view) {
            Ok(payloads) => Answer::of(Kind::RekeyIke, payloads),
            Err(refusal) => Answer::of(Kind::RekeyIke, vec![refusal]),
        }
    }

    fn rekey_as_responder(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Result<Vec<Payload>, Payload> {
        let syntax = |_| notify(NotifyType::InvalidSyntax, []);
        let conn = self.link.conn.clone();
        let offered = view.sa().ok_or_else(|| syntax("no SA payload"))?;
        let ni = view.nonce().ok_or_else(|| syntax("no nonce"))?;
        let ke_group = view.ke().map(|(group, _)| group);
        let choice = proposal::select_ike(offered, &conn.ike_proposals, ke_group).map_err(|mismatch| {
            tracing::info!(sa = %self.link.id, %mismatch, "rekeying of the IKE SA refused");
            notify(NotifyType::NoProposalChosen, [])
        })?;
        let group = choice.suite.group;
        if ke_group != Some(group.id()) {
            return Err(notify(NotifyType::InvalidKePayload, group.id().to_be_bytes()));
        }
        if choice.spi == 0 {
            return Err(syntax("no SPI"));
        }
        let (key, secret) = agree(shared, Some(group), view).map_err(syntax)?;
        let secret = secret.ok_or_else(|| syntax("no KE payload"))?;
        let id = shared.new_sa();
        let spi = shared.new_spi(id);
        let nr = shared.nonce();
        let nonces = Nonces { i: ni, r: &nr };
        let spis = Spis { i: choice.spi, r: spi };
        let mut heir =
            self.successor(shared, now, id, choice.suite, spis, nonces, &secret, false).map_err(|what| {
                shared.by_spi.remove(&spi);
                syntax(what)
            })?;
        // The client may ask here too (RFC 5723 section 4.1).
        let ticket = heir.answer_ticket_request(shared, now, view);
        shared.actions.push_back(Action::Spawn(heir));
        if self.out.flights().any(|f| matches!(f.exchange, Exchange::RekeyIke(_))) {
            let lowest = ni.min(nr.as_slice()).to_vec();
            self.peer_rekey = Some(PeerRekey { heir: id, lowest });
        } else {
            shared.actions.push_back(Action::Inherit { from: self.link.id, to: id });
            self.supersede(now);
        }
        let mut payloads = vec![Payload::Sa(choice.answer(Some(spi))), Payload::Nonce(nr)];
        payloads.extend(key);
        payloads.extend(ticket.into_iter().flatten());
        Ok(payloads)
    }

    /// Takes over what belongs to the session from the SA that this one replaces.
    pub(crate) fn inherit(&mut self, old: &mut IkeSa, now: Instant) {
        self.stage = Stage::Live;
        self.unheard = !self.link.initiator;
        self.children = std::mem::take(&mut old.children);
        // "Control messages that pertain to Child SAs MUST be sent under the protection of the IKE SA that generated them (or
        // its successor if the IKE SA was rekeyed)." (RFC 7296 section 1.4)
        self.queue = std::mem::take(&mut old.queue);
        self.queue.retain(|p| !matches!(p.task, Task::RekeyIke | Task::DeleteIke));
        self.assigned = std::mem::take(&mut old.assigned);
        self.additional = std::mem::take(&mut old.additional);
        self.keepalive = old.keepalive.clone();
        self.link.path = old.link.path;
        self.nat = old.nat;
        self.seen_as = None;
        self.had_ticket |= old.had_ticket;
        self.announcing = old.announcing.take();
        self.asleep = old.asleep;
        self.last_in = old.last_in;
        self.last_out = old.last_out;
        self.link.stats = std::mem::take(&mut old.link.stats);
        if old.out.flights().any(|f| matches!(f.exchange, Exchange::Update(_))) {
            self.enqueue_first(Task::Update, now);
        }
        if self.renews_tickets() {
            // "When the IKE SA is rekeyed, the ticket is invalidated, and the client SHOULD request a new ticket." (RFC 5723
            // section 6.2)
            self.enqueue(Task::Ticket, now);
        }
        if let Some(at) = self.queue.iter().position(|p| p.task == Task::Sleep) {
            // It goes after everything else.
            let sleep = self.queue.remove(at);
            self.queue.extend(sleep);
        }
    }
}
