//! Registration (RFC 8003) for rendezvous (RFC 8004), at both ends. Owns REG_INFO, REG_REQUEST, REG_RESPONSE and REG_FAILED; must never
//! keep a registration beyond its association, whose path and keys it has.

use core::time::Duration;

use dormouse_sansio::Instant;
use dormouse_wire::hip::{Packet, Param, ParamType, RegFailed, RegInfo, Registration, Version};

use crate::association::{Association, Registering, Session, Stage};
use crate::config::{HostConfig, Registrar};
use crate::exchange::{Around, update};
use crate::limits::{LAST_RETRY, MAX_REGISTRATION_TYPES, SHORTEST_REGISTRATION};

/// The registration type of rendezvous (RFC 8004 section 4.1).
const RENDEZVOUS: u8 = 1;
/// Failure types (RFC 8003 section 4.5).
const NEEDS_CREDENTIALS: u8 = 0;
const UNAVAILABLE: u8 = 1;
const NO_RESOURCES: u8 = 2;

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

/// What our R1 offers.
pub(crate) fn info(registrar: &Registrar) -> Param {
    Param::RegInfo(RegInfo {
        min_lifetime: encoded(SHORTEST_REGISTRATION),
        max_lifetime: encoded(registrar.longest),
        types: vec![RENDEZVOUS],
    })
}

/// Whether a packet offers rendezvous.
/// "Moreover, the requester MUST NOT include the parameter unless the registrar's R1 packet or latest received UPDATE packet has contained
/// a REG_INFO parameter with the requested registration types." (RFC 8003 section 4.3)
pub(crate) fn is_offered(packet: &Packet<'_>) -> bool {
    let info = packet.read(ParamType::RegInfo);
    matches!(info, Some(Param::RegInfo(info)) if info.types.contains(&RENDEZVOUS))
}

/// What we ask for.
pub(crate) fn request(config: &HostConfig) -> Param {
    let registration = Registration { lifetime: encoded(config.registration), types: vec![RENDEZVOUS] };
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

/// Our answer as a registrar, and what it makes of the client: `Some(None)` if its registration ends.
/// "If the REG_REQUEST parameter is in an UPDATE packet, the registrar MUST NOT modify the registrations of registration types that are
/// not listed in the parameter." (RFC 8003 section 4.3)
/// "If the requester is in the allowed list (or the registrar does not require any authentication), the registrar MUST proceed with the
/// registration." (RFC 8003 section 3.3)
/// "[...] the registrar MUST reject the registrations requiring authentication with Failure Type 0 (zero)" (RFC 8003 section 3.3)
pub(crate) fn decide(
    asked: &Asked,
    peer: dormouse_wire::hip::Hit,
    has_room: bool,
    around: &Around<'_>,
) -> (Vec<Param>, Option<Option<Instant>>) {
    let failed = |failure, types: Vec<u8>| Param::RegFailed(RegFailed { failure, types });
    let others: Vec<u8> = asked.iter().map(|(t, _)| *t).filter(|t| *t != RENDEZVOUS).collect();
    let mut answer = Vec::new();
    let mut state = None;
    if let Some((_, wanted)) = asked.iter().find(|(t, _)| *t == RENDEZVOUS) {
        let granted = match &around.config.registrar {
            None => Err(UNAVAILABLE),
            Some(_) if *wanted == 0 => Ok(0),
            Some(registrar) if !registrar.permits.permits(peer) => Err(NEEDS_CREDENTIALS),
            Some(_) if !has_room => Err(NO_RESOURCES),
            // "[...] then it SHOULD grant the registration for the minimum or maximum lifetime, respectively." (RFC 8003 section 4.3)
            Some(registrar) => Ok(encoded(
                lifetime(*wanted).clamp(SHORTEST_REGISTRATION, registrar.longest.max(SHORTEST_REGISTRATION)),
            )),
        };
        match granted {
            Ok(granted) => {
                let registration = Registration { lifetime: granted, types: vec![RENDEZVOUS] };
                answer.push(Param::Registration(ParamType::RegResponse, registration));
                state = Some((granted != 0).then(|| around.now + lifetime(granted)));
            }
            Err(failure) => answer.push(failed(failure, vec![RENDEZVOUS])),
        }
    }
    if !others.is_empty() {
        answer.push(failed(UNAVAILABLE, others));
    }
    (answer, state)
}

/// What a registrar's R2 or UPDATE makes of our registration.
/// "The requester MUST be prepared to receive any registration lifetime" (RFC 8003 section 4.4)
pub(crate) fn answered(packet: &Packet<'_>, now: Instant) -> Registering {
    let granted = registrations(packet, ParamType::RegResponse).into_iter().find(|(t, _)| *t == RENDEZVOUS);
    match granted {
        // We never cancel: the registrar has.
        Some((_, 0)) => return Registering::Refused(UNAVAILABLE),
        Some((_, granted)) => {
            return Registering::Granted(now + lifetime(granted).max(SHORTEST_REGISTRATION) / 4 * 3);
        }
        None => {}
    }
    let failures = packet.params().iter().filter(|p| p.kind == ParamType::RegFailed);
    let failure = failures.take(MAX_REGISTRATION_TYPES).find_map(|p| match p.read(Version::V2) {
        Ok(Param::RegFailed(failed)) if failed.types.contains(&RENDEZVOUS) => Some(failed.failure),
        _ => None,
    });
    failure.map_or(Registering::No, Registering::Refused)
}

/// An UPDATE of the registrar has come: it says how our registration stands, in the acknowledgement of our request or in one of its own.
pub(crate) fn answer_came(session: &mut Session, packet: &Packet<'_>, acknowledges: bool, now: Instant) {
    match (session.registration, answered(packet, now)) {
        (Registering::No, _) => {}
        // It has our request and does not answer it: it is asked again much later.
        (Registering::Asked, Registering::No) if acknowledges => {
            session.registration = Registering::Granted(now + LAST_RETRY);
        }
        (_, Registering::No) => {}
        (_, stands) => session.registration = stands,
    }
}

/// The peer is no rendezvous server of ours any more.
pub(crate) fn forget(association: &mut Association) {
    if let Stage::Up(session) = &mut association.stage {
        session.registration = Registering::No;
    }
}

/// Our registration, if there is one, is asked for anew: for another time.
pub(crate) fn ask_again(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    if let Registering::Granted(at) = &mut session.registration {
        *at = around.now;
        renew(association, around);
    }
}

/// Our registration is renewed, if its time has come.
pub(crate) fn renew(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    if matches!(session.registration, Registering::Granted(at) if at <= around.now) {
        session.registration = Registering::Asked;
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
        answered(&Packet::parse(&bytes).unwrap(), Instant::ZERO)
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
