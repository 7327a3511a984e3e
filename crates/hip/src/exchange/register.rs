//! Registration (RFC 8003) for rendezvous (RFC 8004) and relays (RFC 9028), at both ends. Owns REG_INFO, REG_REQUEST, REG_RESPONSE and
//! REG_FAILED; must never keep a registration beyond its association, whose path and keys it has.

use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_wire::hip::{Hit, Packet, Param, ParamType, RegFailed, RegInfo, Registration, Version};

use crate::association::{Association, Registering, Session, Stage};
use crate::config::{HostConfig, Registrar};
use crate::exchange::{Around, keepalive, update};
use crate::limits::{LAST_RETRY, MAX_REGISTRATION_TYPES, SHORTEST_REGISTRATION};

/// The registration type of rendezvous (RFC 8004 section 4.1), and those of relaying HIP and ESP (RFC 9028 section 5.9).
pub(crate) const RENDEZVOUS: u8 = 1;
pub(crate) const RELAY_UDP_HIP: u8 = 2;
pub(crate) const RELAY_UDP_ESP: u8 = 3;
/// Failure types (RFC 8003 section 4.5).
const NEEDS_CREDENTIALS: u8 = 0;
const UNAVAILABLE: u8 = 1;
const NO_RESOURCES: u8 = 2;
/// Rendezvous beside a relay (RFC 9028 section 7.8).
const ONE_OF_BOTH: u8 = 9;

/// What is done for a client, and until when each of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Served(Vec<(u8, Instant)>);

impl Served {
    /// Until when a service is given; `None`: it is not.
    pub(crate) fn until(&self, service: u8) -> Option<Instant> {
        self.0.iter().find(|(of, _)| *of == service).map(|(_, until)| *until)
    }

    pub(crate) fn has(&self, service: u8) -> bool {
        self.until(service).is_some()
    }

    /// What of it is given at this time.
    fn at(&self, now: Instant) -> Self {
        Self(self.0.iter().copied().filter(|(_, until)| *until > now).collect())
    }

    /// Whether anything is relayed.
    pub(crate) fn relays(&self) -> bool {
        self.has(RELAY_UDP_HIP) || self.has(RELAY_UDP_ESP)
    }

    /// When the last of it ends; `None` for who is no client.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.0.iter().map(|(_, until)| *until).max()
    }

    /// Takes what was decided.
    pub(crate) fn change(&mut self, decided: &[(u8, Option<Instant>)]) {
        for (service, until) in decided {
            self.0.retain(|(of, _)| of != service);
            self.0.extend(until.map(|until| (*service, until)));
        }
    }
}

/// What we want of this peer.
pub(crate) fn wanted(config: &HostConfig, peer: Hit) -> &'static [u8] {
    if config.relays.contains(&peer) {
        &[RELAY_UDP_HIP, RELAY_UDP_ESP]
    } else if config.rendezvous.contains(&peer) {
        &[RENDEZVOUS]
    } else {
        &[]
    }
}

/// "The non-zero values of the lifetime field used throughout this document MUST be interpreted as an exponent value representing a
/// lifetime duration of 2^((lifetime - 64)/8) seconds." (RFC 8003 section 4.1)
/// "The special value 0 (zero) of the lifetime field MUST be interpreted as representing a special lifetime duration of 0 (zero)
/// seconds" (RFC 8003 section 4.1)
fn lifetime(encoded: u8) -> Duration {
    let seconds = 2f64.powf((f64::from(encoded) - 64.0) / 8.0);
    if encoded == 0 { Duration::ZERO } else { Duration::from_secs_f64(seconds) }
}

/// The longest encoded lifetime that is not above this one.
fn encoded(time: Duration) -> u8 {
    (1..=255).rev().find(|e| lifetime(*e) <= time).unwrap_or(1)
}

/// Who does this service for others, if we do it.
fn registrar(config: &HostConfig, service: u8) -> Option<&Registrar> {
    match service {
        RENDEZVOUS => config.registrar.as_ref(),
        RELAY_UDP_HIP | RELAY_UDP_ESP => config.relay_server.as_ref(),
        _ => None,
    }
}

/// What our R1 offers.
pub(crate) fn info(config: &HostConfig) -> Option<Param> {
    let all = [RENDEZVOUS, RELAY_UDP_HIP, RELAY_UDP_ESP];
    let types: Vec<u8> = all.into_iter().filter(|t| registrar(config, *t).is_some()).collect();
    let longest = types.iter().filter_map(|t| Some(registrar(config, *t)?.longest)).max()?;
    let (min_lifetime, max_lifetime) = (encoded(SHORTEST_REGISTRATION), encoded(longest));
    Some(Param::RegInfo(RegInfo { min_lifetime, max_lifetime, types }))
}

/// Whether a packet offers all that we want.
/// "Moreover, the requester MUST NOT include the parameter unless the registrar's R1 packet or latest received UPDATE packet has contained
/// a REG_INFO parameter with the requested registration types." (RFC 8003 section 4.3)
pub(crate) fn is_offered(packet: &Packet<'_>, wanted: &[u8]) -> bool {
    let info = packet.read(ParamType::RegInfo);
    let all = |info: &RegInfo| wanted.iter().all(|t| info.types.contains(t));
    !wanted.is_empty() && matches!(info, Some(Param::RegInfo(info)) if all(&info))
}

/// What we ask for.
/// "If the Control Relay Server offered both RENDEZVOUS or RELAY_UDP_HIP, the Control Relay Client MUST choose only one of them in the
/// REG_REQUEST parameter." (RFC 9028 section 7.8)
pub(crate) fn request(config: &HostConfig, wanted: &[u8]) -> Param {
    let registration = Registration { lifetime: encoded(config.registration), types: wanted.to_vec() };
    Param::Registration(ParamType::RegRequest, registration)
}

/// What a peer asks for: lifetime by type.
pub(crate) type Asked = Vec<(u8, u8)>;

/// Lifetime and types of all parameters of one kind.
/// "[...] while the registrar MUST be able to process one or more REG_REQUEST parameters in received I2 or UPDATE packets." (RFC 8003
/// section 4.3)
/// "[...] while the requester MUST be able to process one or more REG_RESPONSE parameters in received R2 or UPDATE packets." (RFC 8003
/// section 4.4)
fn registrations(packet: &Packet<'_>, kind: ParamType) -> Asked {
    let params = packet.params().iter().filter(|p| p.kind == kind).take(MAX_REGISTRATION_TYPES);
    let mut all = Asked::new();
    for param in params {
        if let Ok(Param::Registration(_, Registration { lifetime, types })) = param.read(Version::V2) {
            all.extend(types.iter().take(MAX_REGISTRATION_TYPES).map(|t| (*t, lifetime)));
        }
    }
    all.truncate(MAX_REGISTRATION_TYPES);
    all
}

/// What a peer asks for, if it does.
pub(crate) fn asked(packet: &Packet<'_>) -> Option<Asked> {
    let asked = registrations(packet, ParamType::RegRequest);
    (!asked.is_empty()).then_some(asked)
}

/// What was decided of each service: until when it is given, or that it ends.
pub(crate) type Decided = Vec<(u8, Option<Instant>)>;

/// Our answer as a registrar to a request that came by `path`, and what it makes of the client.
/// "If the REG_REQUEST parameter is in an UPDATE packet, the registrar MUST NOT modify the registrations of registration types that are
/// not listed in the parameter." (RFC 8003 section 4.3)
/// "If the requester is in the allowed list (or the registrar does not require any authentication), the registrar MUST proceed with the
/// registration." (RFC 8003 section 3.3)
/// "[...] the registrar MUST reject the registrations requiring authentication with Failure Type 0 (zero)" (RFC 8003 section 3.3)
/// "[...] the Control Relay Client MUST offer only RELAY_UDP_HIP service in the REG_RESPONSE parameter and include a REG_FAILED parameter
/// in the same message, with RENDEZVOUS as the Registration Type and 9 as the Failure Type." (RFC 9028 section 7.8)
pub(crate) fn decide(
    asked: &Asked,
    (peer, path): (Hit, Path),
    served: &Served,
    is_client: bool,
    around: &Around<'_>,
) -> (Vec<Param>, Decided) {
    let relayed = |t: u8| t == RELAY_UDP_HIP || t == RELAY_UDP_ESP;
    let served = &served.at(around.now);
    let both = served.relays() || asked.iter().any(|(t, wanted)| relayed(*t) && *wanted != 0);
    let (mut granted, mut failed) = (Asked::new(), BTreeMap::new());
    for (service, wanted) in asked {
        let registrar = registrar(around.config, *service)
            .filter(|_| !relayed(*service) || path.carrier == Carrier::HipUdp);
        let crossed = if *service == RENDEZVOUS { both } else { served.has(RENDEZVOUS) };
        let grant = match registrar {
            None => Err(UNAVAILABLE),
            Some(_) if *wanted == 0 => Ok(0),
            Some(registrar) if !registrar.permits.permits(peer) => Err(NEEDS_CREDENTIALS),
            Some(_) if crossed => Err(ONE_OF_BOTH),
            Some(_) if !is_client && around.clients_left[usize::from(relayed(*service))] == 0 => {
                Err(NO_RESOURCES)
            }
            // "[...] then it SHOULD grant the registration for the minimum or maximum lifetime, respectively." (RFC 8003 section 4.3)
            Some(registrar) => Ok(encoded(
                lifetime(*wanted).clamp(SHORTEST_REGISTRATION, registrar.longest.max(SHORTEST_REGISTRATION)),
            )),
        };
        match grant {
            Ok(time) => granted.push((*service, time)),
            Err(failure) => failed.entry(failure).or_insert_with(Vec::new).push(*service),
        }
    }
    // "The registrar MUST NOT include more than one REG_RESPONSE parameter in its R2 or UPDATE packets" (RFC 8003 section 4.4) So what is asked
    // for at once has the shortest of its times, and that something ends beside it is not told.
    let time = granted.iter().map(|(_, time)| *time).filter(|time| *time != 0).min();
    let lasts = |granted: u8| time.filter(|_| granted != 0);
    let told = granted.iter().filter(|(_, granted)| lasts(*granted) == time);
    let response =
        Registration { lifetime: time.unwrap_or(0), types: told.map(|(service, _)| *service).collect() };
    let response = Param::Registration(ParamType::RegResponse, response);
    let response = (!granted.is_empty()).then_some(response);
    let refusal = |(failure, types)| Param::RegFailed(RegFailed { failure, types });
    let until = |granted| lasts(granted).map(|time| around.now + lifetime(time));
    let decided = granted.iter().map(|(service, granted)| (*service, until(*granted))).collect();
    (response.into_iter().chain(failed.into_iter().map(refusal)).collect(), decided)
}

/// What a registrar's R2 or UPDATE makes of our registration.
/// "The requester MUST be prepared to receive any registration lifetime" (RFC 8003 section 4.4)
pub(crate) fn answered(packet: &Packet<'_>, wanted: &[u8], now: Instant) -> Registering {
    let granted = registrations(packet, ParamType::RegResponse);
    let of = |t: &u8| granted.iter().find(|(of, _)| of == t).map(|(_, lifetime)| *lifetime);
    let shortest = wanted.iter().map(of).collect::<Option<Vec<u8>>>().and_then(|all| all.into_iter().min());
    match shortest {
        // We never cancel: the registrar has.
        Some(0) => return Registering::Refused(UNAVAILABLE),
        // A server that has started again knows no client, and only who asks it learns of that.
        Some(granted) => {
            let renewed = lifetime(granted).max(SHORTEST_REGISTRATION) / 4 * 3;
            return Registering::Granted(now + renewed.min(LAST_RETRY));
        }
        None => {}
    }
    let failures = packet.params().iter().filter(|p| p.kind == ParamType::RegFailed);
    let failure = failures.take(MAX_REGISTRATION_TYPES).find_map(|p| match p.read(Version::V2) {
        Ok(Param::RegFailed(failed)) if failed.types.iter().any(|t| wanted.contains(t)) => {
            Some(failed.failure)
        }
        _ => None,
    });
    failure.map_or(Registering::No, Registering::Refused)
}

/// An UPDATE of the registrar has come: it says how our registration stands, in the acknowledgement of our request or in one of its own.
pub(crate) fn answer_came(
    session: &mut Session,
    packet: &Packet<'_>,
    acknowledges: bool,
    around: &Around<'_>,
) {
    let (now, wanted) = (around.now, wanted(around.config, session.agreed.identity.hit()));
    match (session.services.registration, answered(packet, wanted, now)) {
        (Registering::No, _) => {}
        // It has our request and does not answer it: it is asked again much later.
        (Registering::Asked, Registering::No) if acknowledges => {
            session.services.registration = Registering::Granted(now + LAST_RETRY);
        }
        (_, Registering::No) => {}
        (_, stands) => session.services.registration = stands,
    }
}

/// The peer is no rendezvous server, and no relay, of ours any more.
pub(crate) fn forget(association: &mut Association, around: &Around<'_>) {
    if let Stage::Up(session) = &mut association.stage {
        session.services.registration = Registering::No;
        session.services.relay = super::relay::Client::default();
    }
    keepalive::begin(association, around);
}

/// Our registration, if there is one, is asked for anew: for another time.
pub(crate) fn ask_again(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    if let Registering::Granted(at) = &mut session.services.registration {
        *at = around.now;
        renew(association, around);
    }
}

/// Our registration is renewed, if its time has come.
pub(crate) fn renew(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    if matches!(session.services.registration, Registering::Granted(at) if at <= around.now) {
        session.services.registration = Registering::Asked;
        update::send(association, None, around);
    }
}

#[cfg(test)]
mod tests {
    use dormouse_wire::hip::{Draft, Header, Hit, PacketType};

    use super::*;

    /// What an UPDATE with these parameters says of our registration.
    fn said(params: &[Param]) -> Registering {
        let (sender, receiver) = (Hit::NULL, Hit::NULL);
        let header = Header { kind: PacketType::Update, version: Version::V2, controls: 0, sender, receiver };
        let mut draft = Draft::new(&header);
        params.iter().for_each(|param| draft.add(param));
        let bytes = draft.finish().unwrap();
        answered(&Packet::parse(&bytes).unwrap(), &[RENDEZVOUS], Instant::ZERO)
    }

    #[test]
    fn every_answer_of_a_registrar_is_understood() {
        let granted = |lifetime, types: &[u8]| {
            let types = types.to_vec();
            Param::Registration(ParamType::RegResponse, Registration { lifetime, types })
        };
        let failed = |failure, types: &[u8]| Param::RegFailed(RegFailed { failure, types: types.to_vec() });
        assert_eq!(said(&[]), Registering::No);
        assert_eq!(said(&[granted(120, &[2])]), Registering::No, "another service");
        // Two parameters, and 2^7 seconds, of which three quarters are 96.
        let stands = said(&[granted(64, &[2]), granted(120, &[7, 1])]);
        assert_eq!(stands, Registering::Granted(Instant::ZERO + Duration::from_secs(96)));
        let short = said(&[granted(1, &[1])]);
        assert_eq!(short, Registering::Granted(Instant::ZERO + SHORTEST_REGISTRATION / 4 * 3));
        // 2^17 seconds.
        let long = said(&[granted(200, &[1])]);
        assert_eq!(long, Registering::Granted(Instant::ZERO + LAST_RETRY), "asked for again each hour");
        assert_eq!(said(&[granted(0, &[1])]), Registering::Refused(1), "cancelled");
        assert_eq!(said(&[failed(1, &[2]), failed(2, &[1])]), Registering::Refused(2));
    }

    /// RFC 8003 section 4.1: from some 4 milliseconds to some 178 days, 64 being one second.
    #[test]
    fn lifetimes_are_exponents() {
        assert_eq!(lifetime(0), Duration::ZERO);
        assert_eq!(lifetime(64), Duration::from_secs(1));
        assert_eq!(lifetime(64 + 8 * 7), Duration::from_secs(128));
        assert_eq!(lifetime(255).as_secs() / 86_400, 178);
        assert_eq!(lifetime(1).as_millis(), 4);
        for (seconds, e) in [(1, 64), (127, 119), (128, 120), (86_400, 195)] {
            assert_eq!(encoded(Duration::from_secs(seconds)), e, "{seconds} s");
        }
        assert_eq!((encoded(Duration::ZERO), encoded(Duration::MAX)), (1, 255));
    }
}
