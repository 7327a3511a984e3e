//! Rendezvous (RFC 8004), of a host as a whole. Owns what a server sends on to its clients, where a packet that a server sent on comes
//! from, and when a server of ours is tried; must never believe an address that no server of ours has vouched for.

use core::net::{IpAddr, SocketAddr};

use dormouse_keying::Discard;
use dormouse_sansio::{Carrier, Class, Instant, Path};
use dormouse_wire::hip::{Hit, Packet, PacketType, Param, ParamType};

use super::Host;
use crate::address::mapped;
use crate::association::Stage;
use crate::exchange::register::RENDEZVOUS;
use crate::hit::speak_alike;
use crate::limits::{FIRST_RETRY, LAST_RETRY, MAX_R1_A_SECOND};
use crate::protect;

impl Host {
    /// How many clients we may still take, as a rendezvous server and as a relay.
    pub(super) fn clients_left(&self, now: Instant) -> [usize; 2] {
        let registrars = [(&self.config.registrar, false), (&self.config.relay_server, true)];
        registrars.map(|(registrar, relay)| {
            let most = registrar.as_ref().map_or(0, |registrar| registrar.max_clients);
            let left = most.saturating_sub(self.clients.at[usize::from(relay)]);
            // Registrations that are over are counted when there is need alone.
            let is_over = |(until, at): &&(Instant, bool)| *until <= now && *at == relay;
            if left > 0 || most == 0 { left } else { self.clients.until.values().filter(is_over).count() }
        })
    }

    /// A packet for another host: if that is a client of ours, it goes on to it.
    /// "When an RVS receives an I1 whose destination HIT is not its own, it consults its registration database to find a registration for
    /// the rendezvous service established by the HIT owner." (RFC 8004 section 4.3.2)
    /// "If it does not find an appropriate registration, it drops the packet." (RFC 8004 section 4.3.2)
    /// "After modification, it MUST recompute the checksum field using the updated HIP header, which possibly included new FROM and RVS_HMAC
    /// parameters, and a pseudo-header containing the updated source and destination IP addresses." (RFC 8004 section 3.3)
    /// "An RVS supporting the UPDATE forwarding extensions specified herein MUST modify the UPDATE in the same manner as it modifies the I1
    /// packet before forwarding." (RFC 8046 section 3.2.3)
    pub(super) fn relay(&mut self, now: Instant, path: Path, packet: &Packet<'_>) -> Result<(), Discard> {
        let receiver = packet.header.receiver;
        let another = Discard("for another host");
        let relays = self.relays.as_mut().map(|[strangers, _]| strangers).ok_or(another)?;
        if !matches!(packet.header.kind, PacketType::I1 | PacketType::Update) {
            return Err(another);
        }
        if packet.find(ParamType::From).is_some() || packet.find(ParamType::RvsHmac).is_some() {
            return Err(Discard("for another host, and relayed before"));
        }
        let ours = self.locals.iter().map(|l| l.identity.hit());
        let client = ours.filter_map(|ours| self.by_tags.get(&(ours, receiver))).find_map(|id| {
            let association = self.associations.get(id)?;
            match &association.stage {
                Stage::Up(session) if session.services.served.until(RENDEZVOUS)? > now => {
                    Some((association.path, &session.agreed.keys.mac_out))
                }
                _ => None,
            }
        });
        let (to, key) = client.ok_or(another)?;
        if to.remote == path.remote {
            return Err(Discard("from a client to itself"));
        }
        if !relays.count(now, to.remote.ip(), self.config.difficulty.to_one_address, MAX_R1_A_SECOND) {
            return Err(Discard("more packets for a client than are sent on"));
        }
        let sent_on = protect::relayed(packet, mapped(path.remote.ip()), key);
        self.outbox.push(to, Class::Urgent, &sent_on.ok_or(Discard("too long to be sent on"))?);
        self.stats.relayed += 1;
        Ok(())
    }

    /// Where a packet comes from: if a rendezvous server of ours sent it on, from the address that it names, and via the server.
    /// "When a rendezvous client receives an I1, it MUST validate any present RVS_HMAC parameter." (RFC 8004 section 4.3.2)
    /// "If the RVS_HMAC cannot be verified and a FROM parameter is present, the packet MUST be dropped." (RFC 8004 section 4.3.2)
    pub(super) fn origin(
        &mut self,
        now: Instant,
        path: Path,
        packet: &Packet<'_>,
    ) -> Result<(Path, Option<IpAddr>), Discard> {
        if packet.find(ParamType::RelayFrom).is_some() || packet.find(ParamType::RelayHmac).is_some() {
            return self.through_relay(path, packet).map(|()| (path, None));
        }
        let from = packet.find(ParamType::From);
        if from.is_none() && packet.find(ParamType::RvsHmac).is_none() {
            return Ok((path, None));
        }
        if !matches!(packet.header.kind, PacketType::I1 | PacketType::Update) {
            return Err(Discard("relayed, and neither I1 nor UPDATE"));
        }
        let servers = self.pairs().filter_map(|pair| self.associations.get(self.by_tags.get(&pair)?));
        let mut of = servers.filter_map(|a| match &a.stage {
            Stage::Up(session) if protect::rvs_mac_is_right(packet, &session.agreed.keys.mac_in) => {
                Some((a.id, self.config.relays.contains(&a.peer)))
            }
            _ => None,
        });
        let said = of.next();
        drop(of);
        match said {
            None => {
                self.stats.bad_macs += 1;
                return Err(Discard("relayed by none of our rendezvous servers"));
            }
            Some((id, true)) => return Err(self.crossed(now, id, packet)),
            Some((_, false)) => {}
        }
        let Some(Param::Addresses(_, from)) = from.and_then(|_| packet.read(ParamType::From)) else {
            return Ok((path, None));
        };
        // "A rendezvous client acting as Responder SHOULD drop opportunistic I1s that include a FROM parameter" (RFC 8004 section 4.3.2)
        if packet.header.receiver == Hit::NULL {
            return Err(Discard("relayed without a receiver"));
        }
        let from =
            from.first().map(|a| a.to_canonical()).filter(|a| !a.is_unspecified() && !a.is_multicast());
        let from = from.ok_or(Discard("relayed from no address"))?;
        let local = if from.is_ipv4() == path.local.is_ipv4() {
            Some(path.local.ip())
        } else {
            self.peers.ours_to(from)
        };
        let local = local.ok_or(Discard("relayed from an address that we cannot reach"))?;
        // FROM has no port: who is behind a NAT needs a relay (RFC 9028) instead.
        let port = if path.carrier == Carrier::HipUdp { self.config.udp_port } else { 0 };
        let origin = Path {
            local: SocketAddr::new(local, path.local.port()),
            remote: SocketAddr::new(from, port),
            ..path
        };
        Ok((origin, Some(path.remote.ip())))
    }

    /// Each identity of ours with each rendezvous server and relay of its version at which it is to be registered. Relays are of version 2.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (Hit, Hit)> {
        let config = &self.config;
        let servers = move || config.rendezvous.iter().chain(&config.relays);
        self.locals
            .iter()
            .map(|l| l.identity.hit())
            .flat_map(move |ours| servers().map(move |s| (ours, *s)))
            .filter(|(ours, server)| speak_alike(*ours, *server))
    }

    /// The servers that are to be tried, and when: those with which there is no association, and to which there is a way.
    pub(super) fn tries(&self) -> impl Iterator<Item = (Instant, (Hit, Hit))> {
        self.pairs()
            .filter(|(ours, server)| !self.is_live(*ours, *server))
            .filter(|(_, server)| !self.peers.ways(*server, self.config.udp_port).is_empty())
            .map(|pair| (self.tries.get(&pair).map_or(Instant::ZERO, |t| t.0), pair))
    }

    /// Whether there is an association that is not ending.
    fn is_live(&self, ours: Hit, peer: Hit) -> bool {
        !matches!(self.stage(ours, peer), None | Some(Stage::Closing(_) | Stage::Closed(_) | Stage::Failed))
    }

    /// Begins associations with the servers whose time has come.
    pub(super) fn register(&mut self, now: Instant) {
        while let Some((_, pair)) = self.tries().min().filter(|(at, _)| *at <= now) {
            let wait = self.tries.get(&pair).map_or(FIRST_RETRY, |t| t.1);
            self.tries.insert(pair, (now + wait, wait.saturating_mul(2).min(LAST_RETRY)));
            let ways = self.peers.ways(pair.1, self.config.udp_port);
            // What cannot be begun now is tried again.
            self.connect(now, pair.0, pair.1, &ways).ok();
        }
    }

    /// A server has answered: if it ends, the waits begin anew.
    pub(super) fn answered(&mut self, now: Instant, pair: (Hit, Hit)) {
        if let Some(next) = self.tries.get_mut(&pair) {
            *next = (now + FIRST_RETRY, FIRST_RETRY);
        }
    }
}
