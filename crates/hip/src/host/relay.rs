//! Relays (RFC 9028), of a host as a whole. Owns what a relay sends on to its clients and from them, in HIP and in ESP, where a packet that
//! a relay of ours sent on comes from, and whose data our relays are to let through; must never relay for hosts that are not registered, nor to
//! addresses for which no client has a permission.

use core::net::SocketAddr;

use dormouse_keying::{Discard, Owner, SaId};
use dormouse_sansio::{Carrier, Class, Instant, Path};
use dormouse_wire::hip::{Hit, NotifyType, Packet, PacketType, Param, ParamType};

use super::Host;
use crate::association::{Association, Registering, Session, Stage};
use crate::exchange::register::{RELAY_UDP_ESP, RELAY_UDP_HIP};
use crate::exchange::relay::Permit;
use crate::exchange::{Fate, alive, candidates, locate, notify, relay as relay_of};
use crate::limits::MAX_R1_A_SECOND;
use crate::protect;
use crate::relay::{RelayTo, Relayed, Seen, read};

/// A packet of ours that this relay is to send on, if it is there.
/// "If a Control Relay Client sends a packet through a Control Relay Server, the Control Relay Client MUST always utilize the RELAY_TO
/// parameter." (RFC 9028 section 4.8)
pub(super) fn to_be_relayed(
    relay: &Association,
    packet: &[u8],
    path: Path,
    to: SocketAddr,
) -> Option<Vec<u8>> {
    let Stage::Up(session) = &relay.stage else { return None };
    if relay.path.remote != path.remote {
        return None;
    }
    protect::with_relay(&Packet::parse(packet).ok()?, ParamType::RelayTo, to, &session.agreed.keys.mac_out)
}

/// What a relay sends on to a client.
const fn for_clients(kind: PacketType) -> bool {
    matches!(
        kind,
        PacketType::I1
            | PacketType::I2
            | PacketType::Update
            | PacketType::Notify
            | PacketType::Close
            | PacketType::CloseAck
    )
}

impl Host {
    /// The association with this host, if it is a client for which this is relayed.
    fn relay_client(&self, now: Instant, client: Hit, service: u8) -> Option<(&Association, &Session)> {
        let ours = self.locals.iter().map(|l| l.identity.hit());
        ours.filter_map(|ours| self.by_tags.get(&(ours, client))).find_map(|id| {
            let association = self.associations.get(id)?;
            let session = served(association, now, service)?;
            (association.path.carrier == Carrier::HipUdp).then_some((association, session))
        })
    }

    /// A packet for another host, if we relay for its sender or its receiver. `None` if it has nothing to do with a relay.
    pub(super) fn relay_on(
        &mut self,
        now: Instant,
        path: Path,
        packet: &Packet<'_>,
    ) -> Option<Result<(), Discard>> {
        if self.config.relay_server.is_none() || path.carrier != Carrier::HipUdp {
            return None;
        }
        let from_client = packet.find(ParamType::RelayTo).is_some();
        let (sent_on, known) = if from_client {
            (self.sent_by_client(now, path, packet), true)
        } else {
            let (client, _) = self.relay_client(now, packet.header.receiver, RELAY_UDP_HIP)?;
            let permitted = self.forwards.permits(now, client.id, path.remote);
            (self.sent_to_client(now, path, packet), permitted)
        };
        Some(sent_on.and_then(|(to, bytes)| {
            let meter = self.relays.as_mut().map(|meters| &mut meters[usize::from(known)]);
            let most = self.config.difficulty.to_one_address;
            if !meter.is_some_and(|meter| meter.count(now, to.remote.ip(), most, MAX_R1_A_SECOND)) {
                return Err(Discard("more packets for a host than are sent on"));
            }
            self.outbox.push(to, Class::Urgent, &bytes);
            self.stats.relayed_control += 1;
            Ok(())
        }))
    }

    /// "If a Control Relay Server receives an R1 or I2 packet without the NAT traversal mode parameter, it MUST drop it" (RFC 9028 section
    /// 4.5)
    fn negotiates(packet: &Packet<'_>) -> Result<(), Discard> {
        let needs = matches!(packet.header.kind, PacketType::R1 | PacketType::I2);
        if needs && !candidates::is_in(packet) {
            return Err(Discard("to be relayed, and without NAT_TRAVERSAL_MODE"));
        }
        Ok(())
    }

    /// What goes on to a client.
    /// "If the destination HIT belongs to a successfully registered Control Relay Client [...], the Control Relay Server processes the packet.
    /// Otherwise, the Control Relay Server MUST drop the packet silently." (RFC 9028 section 4.5)
    /// "[...] MUST add a RELAY_FROM parameter to the control packets it relays to the Control Relay Clients." (RFC 9028 section 4.8)
    fn sent_to_client(
        &self,
        now: Instant,
        path: Path,
        packet: &Packet<'_>,
    ) -> Result<(Path, Vec<u8>), Discard> {
        let before = [ParamType::RelayFrom, ParamType::RelayHmac, ParamType::From, ParamType::RvsHmac];
        if before.into_iter().any(|kind| packet.find(kind).is_some()) {
            return Err(Discard("for another host, and relayed before"));
        }
        if !for_clients(packet.header.kind) {
            return Err(Discard("for a client, and nothing that is relayed"));
        }
        Self::negotiates(packet)?;
        let client = self.relay_client(now, packet.header.receiver, RELAY_UDP_HIP);
        let (association, session) = client.ok_or(Discard("for another host"))?;
        if association.path.remote == path.remote {
            return Err(Discard("from a client to itself"));
        }
        let key = &session.agreed.keys.mac_out;
        let sent_on = protect::with_relay(packet, ParamType::RelayFrom, path.remote, key);
        Ok((association.path, sent_on.ok_or(Discard("too long to be sent on"))?))
    }

    /// What goes on from a client, which has signed with its key where to.
    /// "The Control Relay Server drops the packet silently if the source HIT belongs to a Control Relay Client that has not successfully
    /// registered." (RFC 9028 section 4.5)
    fn sent_by_client(
        &mut self,
        now: Instant,
        path: Path,
        packet: &Packet<'_>,
    ) -> Result<(Path, Vec<u8>), Discard> {
        let client = self.relay_client(now, packet.header.sender, RELAY_UDP_HIP);
        let (association, session) = client.ok_or(Discard("to be relayed, and of no client"))?;
        if association.path.remote != path.remote {
            return Err(Discard("of a client that is not where it was"));
        }
        if !protect::relay_mac_is_right(packet, &session.agreed.keys.mac_in) {
            self.stats.bad_macs += 1;
            return Err(Discard("to be relayed, and with a wrong RELAY_HMAC"));
        }
        Self::negotiates(packet)?;
        let to = match packet.read(ParamType::RelayTo) {
            Some(Param::Transport(_, to)) => read(to).filter(|to| *to != path.local),
            _ => None,
        };
        let to = to.ok_or(Discard("to be relayed to no host"))?;
        let same = (to.is_ipv4() == path.local.is_ipv4()).then(|| path.local.ip());
        let local = same.or_else(|| self.peers.ours_to(to.ip()));
        let local = local.ok_or(Discard("to be relayed to where we do not reach"))?;
        let bytes = protect::without_relay_mac(packet).ok_or(Discard("too long to be sent on"))?;
        let local = SocketAddr::new(local, path.local.port());
        Ok((Path { local, remote: to, carrier: Carrier::HipUdp }, bytes))
    }

    /// ESP under an SPI that is none of ours: it goes on if a client has permitted it.
    /// "If permissions are set, the Data Relay Server MUST forward the packet to the Data Relay Client that created the permission. The Data
    /// Relay Server MUST also implement the similar checks for the reverse direction" (RFC 9028 section 4.12.2)
    pub(super) fn pass_data(&mut self, now: Instant, path: Path, datagram: &[u8]) -> bool {
        let Some(spi) = datagram.first_chunk().map(|spi| u32::from_be_bytes(*spi)) else { return false };
        if self.config.relay_server.is_none() || path.carrier != Carrier::HipUdp {
            return false;
        }
        let of = |id: SaId| {
            let association = self.associations.get(&id)?;
            served(association, now, RELAY_UDP_ESP).map(|_| association)
        };
        let inward = self.forwards.inward(now, path.remote, spi).and_then(of).map(|client| client.path);
        let inward = inward.filter(|to| to.remote != path.remote);
        let outward = || {
            let mut clients = self.forwards.outward(now, spi);
            let (_, to) = clients.find(|(id, _)| of(*id).is_some_and(|a| a.path.remote == path.remote))?;
            let same = (to.is_ipv4() == path.local.is_ipv4()).then(|| path.local.ip());
            let local = same.or_else(|| self.peers.ours_to(to.ip()))?;
            Some(Path {
                local: SocketAddr::new(local, path.local.port()),
                remote: to,
                carrier: Carrier::HipUdp,
            })
        };
        let Some(to) = inward.or_else(outward) else { return false };
        let passed = self.outbox.pass_on(to, datagram);
        self.stats.relayed_data += u64::from(passed);
        passed
    }

    // ---- clients ------------------------------------------------------------------------------------------------------------------

    /// A packet that names a relay: if it is one of ours, where it comes from is known from now on.
    /// "In addition, the Responder validates the RELAY_HMAC according to Section 5.8 and silently drops the packet if the validation fails."
    /// (RFC 9028 section 4.5)
    pub(super) fn through_relay(&mut self, path: Path, packet: &Packet<'_>) -> Result<(), Discard> {
        let servers = self.pairs().filter(|(_, server)| self.config.relays.contains(server));
        let servers = servers.filter_map(|pair| self.associations.get(self.by_tags.get(&pair)?));
        // Each identity of ours may be registered there, with keys of its own.
        let mut there = servers.filter_map(|a| match &a.stage {
            Stage::Up(session) if a.path == path && is_registered(session) => Some((a.id, session)),
            _ => None,
        });
        let mut known = false;
        let of = there.find_map(|(id, session)| {
            known = true;
            let right = protect::relay_mac_is_right(packet, &session.agreed.keys.mac_in);
            right.then_some((id, session.services.relay.reflexive, session.services.relay.relayed))
        });
        drop(there);
        let Some((server, reflexive, relayed)) = of else {
            self.stats.bad_macs += u64::from(known);
            return Err(Discard("relayed by none of our relays"));
        };
        if packet.find(ParamType::RvsHmac).is_some() || !for_clients(packet.header.kind) {
            return Err(Discard("relayed, and nothing that is relayed"));
        }
        let from = match packet.read(ParamType::RelayFrom) {
            Some(Param::Transport(_, from)) => read(from),
            _ => None,
        };
        let to = from.ok_or(Discard("relayed from no host"))?;
        // "A Control Relay Server SHOULD have a unique IP address per the Control Relay Client when [...] supports opportunistic mode" (RFC
        // 9028 section 7.2): who asks for any host is not answered through a relay.
        if packet.header.receiver == Hit::NULL {
            return Err(Discard("relayed without a receiver"));
        }
        let relay = RelayTo { server: path.remote, to };
        self.seen = Some(Seen { relay, reflexive, relayed, server });
        self.outbox.set_via(Some(relay));
        Ok(())
    }

    /// A relay of ours has sent something as a rendezvous server would.
    /// "[...] the Control Relay Client MUST send a NOTIFY message with RVS_HMAC_PROHIBITED_WITH_RELAY as the Notify Message Type to the Control
    /// Relay Server." (RFC 9028 section 7.8)
    pub(super) fn crossed(&mut self, now: Instant, server: SaId, packet: &Packet<'_>) -> Discard {
        self.on(now, Owner::Hip(server), |a, around| {
            notify::reject(a.peer, a.path, packet, around, NotifyType::RvsHmacProhibitedWithRelay);
        });
        Discard("relayed by a relay as if it were a rendezvous server")
    }

    /// A relay of ours has answered: it may have started again and know nothing of the peers that are reached through it, or we have moved. Those
    /// that were reached by another of its addresses are reached by this one, where it knows us. Each identity of ours is a client of its own.
    pub(super) fn permit_all(&mut self, now: Instant, (ours, relay): (Hit, Hit), path: Path) {
        if self.config.relays.contains(&relay) {
            let is_it = |server: SocketAddr| {
                server.port() == path.remote.port() && self.peers.is_known_at(relay, server.ip())
            };
            let elsewhere = |a: &&Association| {
                a.ours == ours
                    && a.relay.is_some_and(|relay| relay.server != path.remote && is_it(relay.server))
            };
            let moved: Vec<SaId> = self.associations.values().filter(elsewhere).map(|a| a.id).collect();
            for id in moved {
                self.change(now, id, |a, around| Ok(locate::relay_is_at(a, path, around)))
                    .unwrap_or_default();
            }
            self.behind(ours, path).into_iter().for_each(|id| self.permit(now, id, path.remote));
        }
    }

    /// The associations of this identity of ours with peers behind the relay at the end of this path.
    fn behind(&self, ours: Hit, path: Path) -> Vec<SaId> {
        let is_behind =
            |a: &&Association| a.ours == ours && a.relay.is_some_and(|relay| relay.server == path.remote);
        self.associations.values().filter(is_behind).map(|a| a.id).collect()
    }

    /// A relay of ours has taken us in. If it has started again, it has dropped what we asked peers behind it, and what they asked us: both are
    /// asked again, before either end gives the other up.
    pub(super) fn ask_behind(&mut self, now: Instant, (ours, relay): (Hit, Hit), path: Path) {
        if self.config.relays.contains(&relay) {
            for id in self.behind(ours, path) {
                self.change(now, id, |a, around| {
                    alive::ask_again(a, around);
                    Ok(Fate::Lives)
                })
                .unwrap_or_default();
            }
        }
    }

    /// The relay through which an I2 has come could not tell the data of its sender from that of another peer: both have the same SPI. Then the
    /// sender does not learn of it, gives up, and begins anew with another SPI.
    /// "Upon receiving an I2 with a colliding SPI, the Data Relay Client acting as the Responder MUST NOT include the relayed address candidate
    /// in the R2 message" (RFC 9028 section 4.12.3)
    pub(super) fn hide_if_taken(&mut self, packet: &Packet<'_>, before: Option<SaId>) {
        let (Some(seen), Some(Param::EspInfo(info))) = (&mut self.seen, packet.read(ParamType::EspInfo))
        else {
            return;
        };
        if let Some(Stage::Up(session)) = self.associations.get(&seen.server).map(|a| &a.stage)
            && session.services.relay.is_taken(info.new_spi, before)
        {
            seen.relayed = Relayed::default();
        }
    }

    /// The relay at this address lets the data of a peer through, as long as it goes there: for the identity of ours that the peer speaks with.
    pub(super) fn permit(&mut self, now: Instant, id: SaId, server: SocketAddr) {
        let association = self.associations.get(&id);
        let wanted = association.and_then(|a| match &a.stage {
            Stage::Up(session) if a.path.remote == server => {
                let (spi_out, spi_in) = (session.esp.spi_out, session.esp.child.spi());
                a.relay.map(|relay| Permit { peer: relay.to, spi_out, spi_in })
            }
            _ => None,
        });
        let ours = association.map(|a| a.ours);
        let relays = self.pairs().filter(|(_, server)| self.config.relays.contains(server));
        let relays = relays.filter_map(|pair| self.associations.get(self.by_tags.get(&pair)?));
        let relays = relays.filter(|a| a.path.remote == server && a.id != id);
        let relays: Vec<(SaId, bool)> = relays.map(|a| (a.id, Some(a.ours) == ours)).collect();
        // What is asked of the relay is for itself.
        let seen = self.seen.take();
        for (relay, is_ours) in relays {
            self.change(now, relay, |a, around| {
                relay_of::permit(a, id, wanted.filter(|_| is_ours), around);
                Ok(Fate::Lives)
            })
            .unwrap_or_default();
        }
        self.seen = seen;
        self.outbox.set_via(seen.map(|seen| seen.relay));
    }
}

/// The session of a client for which this is done.
fn served(association: &Association, now: Instant, service: u8) -> Option<&Session> {
    match &association.stage {
        Stage::Up(session) if session.services.served.until(service)? > now => Some(session),
        _ => None,
    }
}

/// Whether we are a client of this relay.
fn is_registered(session: &Session) -> bool {
    matches!(session.services.registration, Registering::Granted(_) | Registering::Asked)
}
