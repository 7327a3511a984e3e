//! The node's state in the words of the control protocol. Owns the translation only.

use dormouse_control as control;
use dormouse_control::{ConnectionState, SaStatus, Ticket, Traffic, WakeRung};
use dormouse_ike::Description;
use dormouse_keying::SaId;
use dormouse_node::config::Resolved;
use dormouse_node::ladder::{Rung, State};
use dormouse_node::radius::Health;
use dormouse_node::{AbsentInfo, ChildInfo, ClientInfo, FailureKind, Node, Offer, SessionInfo, StandInInfo};
use dormouse_sansio::{Deadline, Instant, UnixTime};

pub(crate) fn state(info: &ClientInfo) -> ConnectionState {
    match info.state {
        State::Down => ConnectionState::Down,
        State::Offline if info.asleep => ConnectionState::Asleep,
        State::Offline => ConnectionState::Offline,
        State::Climbing(_) => ConnectionState::Connecting,
        State::Backoff => ConnectionState::Waiting,
        State::Up => ConnectionState::Up,
    }
}

pub(crate) fn rung(rung: Rung) -> WakeRung {
    match rung {
        Rung::Held => WakeRung::Held,
        Rung::Move => WakeRung::Mobike,
        Rung::Resume => WakeRung::Ticket,
        Rung::Full => WakeRung::Full,
    }
}

/// An error of the node in the words of the protocol, with the line to change.
pub(crate) fn error(connection: &str, message: &str, kind: FailureKind, offer: &Offer) -> control::Error {
    let (kind, key) = match kind {
        FailureKind::Authentication if message.contains("post-quantum pre-shared key") => {
            (control::ErrorKind::Authentication, Some("ppk"))
        }
        FailureKind::Authentication => (
            control::ErrorKind::Authentication,
            Some("local or remote: identity, auth, secret, certificate, ca"),
        ),
        FailureKind::Proposal if message.contains("ESP") => {
            (control::ErrorKind::Proposal, Some("child.proposals"))
        }
        FailureKind::Proposal if message.contains("traffic selectors") => {
            (control::ErrorKind::Proposal, Some("child.local or child.remote"))
        }
        FailureKind::Proposal => (control::ErrorKind::Proposal, Some("ike.proposals")),
        FailureKind::Timeout | FailureKind::Busy => (control::ErrorKind::Timeout, None),
        FailureKind::AnswersLost => (control::ErrorKind::AnswersLost, None),
        FailureKind::TooBig => (control::ErrorKind::TooBig, None),
        FailureKind::Other => (control::ErrorKind::Other, None),
    };
    let error =
        control::Error::new(kind, message).with_offer(offer.offered.clone(), offer.acceptable.clone());
    match key {
        Some(key) => error.with_change(format!("connection.{connection}.{key}")),
        None => error,
    }
}

pub(crate) fn connection(
    info: &ClientInfo,
    routes: Vec<String>,
    unix: UnixTime,
    now: Instant,
) -> control::Connection {
    let session = info.session.as_ref();
    let text = |list: Vec<std::net::IpAddr>| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    control::Connection {
        name: info.name.clone(),
        role: control::Role::Client,
        state: state(info),
        peer: session.map(|s| s.peer.clone()),
        gateway: Some(info.gateway.clone()),
        path: session.map(|s| s.path.to_string()),
        addresses: session.map(|s| text(s.addresses.clone())).unwrap_or_default(),
        routes,
        dns: session.map(|s| text(s.dns.clone())).unwrap_or_default(),
        domains: Vec::new(),
        last_wake: info.last_wake.map(|w| control::LastWake {
            rung: rung(w.rung),
            took_ms: u64::try_from(w.took.as_millis()).unwrap_or(u64::MAX),
        }),
        ike: session.map(|s| ike(s, now)),
        children: session.map(|s| s.children.iter().map(|c| child(s, c, now)).collect()).unwrap_or_default(),
        ticket: Ticket {
            held: info.ticket_expires.is_some(),
            expires_in_seconds: info.ticket_expires.map(|t| t.saturating_since(unix).as_secs_f64()),
        },
        traffic: session.map(traffic).unwrap_or_default(),
        nat: session.and_then(|s| s.ike.as_ref()).and_then(nat),
        last_error: info.last_error.as_ref().map(|(message, kind)| control::LastError {
            error: error(&info.name, message, *kind, &info.last_offer),
            retry_in_seconds: None,
        }),
        block: None,
    }
}

pub(crate) fn gateway(node: &Node, connections: &[Resolved], now: Instant) -> Option<control::Gateway> {
    use dormouse_node::config::file::Role;
    if !connections.iter().any(|c| c.role == Role::Gateway) {
        return None;
    }
    let control::Sessions { sessions, more } = sessions(node, None, now);
    let absent = |a: &AbsentInfo| control::AbsentDevice {
        connection: a.connection.clone(),
        peer: a.peer.clone(),
        routes: a.routes.iter().map(ToString::to_string).collect(),
        stand_in: stand_in(&a.stand_in, now),
    };
    let devices = node.absent_devices();
    Some(control::Gateway {
        absent_total: devices.len(),
        sessions_total: node.gateway_session_count(),
        sessions,
        more,
        absent: devices.iter().take(control::MOST).map(absent).collect(),
        half_open: node.ike().half_open(),
        refused: node.ike_stats().newcomers_refused(),
        pools: connections.iter().flat_map(|c| &c.pool).map(ToString::to_string).collect(),
        radius: radius(node, now),
    })
}

/// The servers, for `status`.
fn radius(node: &Node, now: Instant) -> Option<control::RadiusStatus> {
    let state = node.radius_state()?;
    let server = |health: &Health| control::RadiusServer {
        address: health.address.to_string(),
        answered: health.answered,
        unanswered: health.unanswered,
        discarded: health.discarded,
        answered_seconds_ago: health.last_answer.map(|at| (now - at).as_secs_f64()),
        silent: health.rests.as_ref().map(|(_, why)| why.clone()),
    };
    Some(control::RadiusStatus {
        nas_identifier: state.policy.name,
        timeout_seconds: state.policy.timeout.as_secs_f64(),
        tries: state.policy.tries,
        interim_seconds: state.policy.interim.map(|interim| interim.as_secs_f64()),
        servers: state.servers.iter().map(server).collect(),
        accounting: state.accounting.iter().map(server).collect(),
        questions: state.questions,
        reports: state.reports,
        reports_lost: state.lost,
    })
}

/// The gateway's sessions behind that of an SA, as many as one answer has.
pub(crate) fn sessions(node: &Node, after: Option<SaId>, now: Instant) -> control::Sessions {
    let session = |s: &SessionInfo| control::Session {
        connection: s.connection.clone(),
        peer: s.peer.clone(),
        path: s.path.to_string(),
        addresses: s.addresses.iter().map(ToString::to_string).collect(),
        resumed: s.resumed,
        ike: ike(s, now),
        children: s.children.iter().map(|c| child(s, c, now)).collect(),
        quiet_seconds: s.quiet.as_secs_f64(),
        traffic: traffic(s),
        stand_in: s.stand_in.as_ref().map(|it| stand_in(it, now)),
    };
    let mut infos: Vec<SessionInfo> = node.gateway_sessions_after(now, after, control::MOST + 1).collect();
    let are_more = infos.len() > control::MOST;
    infos.truncate(control::MOST);
    let last = infos.last().and_then(|s| s.owner.ike()).filter(|_| are_more);
    control::Sessions { sessions: infos.iter().map(session).collect(), more: last.map(SaId::get) }
}

pub(crate) fn stand_in(it: &StandInInfo, now: Instant) -> control::StandIn {
    let counters = &it.counters;
    control::StandIn {
        asleep: it.asleep.map(|a| control::DeviceSleep {
            since_seconds: (now - a.since).as_secs_f64(),
            until_seconds: (a.until - now).as_secs_f64(),
            packets: a.packets,
            bytes: a.bytes,
        }),
        handled: counters.handled,
        delivered: counters.delivered,
        answered: counters.answered.iter().map(|(kind, n)| (kind.name().to_owned(), *n)).collect(),
        dropped: counters.dropped.iter().map(|(reason, n)| (reason.name().to_owned(), *n)).collect(),
    }
}

fn ike(s: &SessionInfo, now: Instant) -> SaStatus {
    SaStatus {
        spi: s.owner.to_string(),
        suite: s.ike.as_ref().map(|d| d.suite.clone()).unwrap_or_default(),
        age_seconds: s.age.as_secs_f64(),
        rekey_in_seconds: s.ike.as_ref().and_then(|d| d.rekey_at).map(|at| (at - now).as_secs_f64()),
        ..SaStatus::default()
    }
}

/// What NAT detection found; nothing if the peer took no part in it.
fn nat(d: &Description) -> Option<control::Nat> {
    d.nat.supported.then(|| control::Nat {
        local: d.nat.local,
        remote: d.nat.remote,
        keepalive_seconds: d.keepalive.map(|k| k.as_secs_f64()),
    })
}

pub(crate) fn child(s: &SessionInfo, c: &ChildInfo, now: Instant) -> SaStatus {
    SaStatus {
        spi: format!("{:08x} {:08x}", c.id.spi(), c.spi_out),
        suite: c.suite.clone(),
        age_seconds: s.age.as_secs_f64(),
        rekey_in_seconds: c.rekey_at.map(|at| (at - now).as_secs_f64()),
        mode: c.mode.into(),
        zones: if c.zones > 1 { c.zones } else { 0 },
        readable: c.readable,
        share: if c.share.is_rest() { String::new() } else { c.share.to_string() },
        takes_all: c.takes_all,
        signal_dbm: c.signal,
        traffic: carried(c),
        routers: c.routers.iter().map(|h| format!("{}: {}", h.router, h.holding)).collect(),
    }
}

fn carried(c: &ChildInfo) -> Traffic {
    Traffic {
        packets_in: c.received.packets,
        bytes_in: c.received.bytes,
        packets_out: c.sent.packets,
        bytes_out: c.sent.bytes,
        dropped: 0,
    }
}

pub(crate) fn traffic(s: &SessionInfo) -> Traffic {
    s.children.iter().map(carried).fold(Traffic::default(), |t, c| Traffic {
        packets_in: t.packets_in + c.packets_in,
        bytes_in: t.bytes_in + c.bytes_in,
        packets_out: t.packets_out + c.packets_out,
        bytes_out: t.bytes_out + c.bytes_out,
        ..t
    })
}

pub(crate) fn deadline(d: &Deadline, now: Instant) -> control::DeadlineStatus {
    control::DeadlineStatus {
        why: d.why.into(),
        in_seconds: (d.at - now).as_secs_f64(),
        slack_seconds: d.slack.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_line_to_change_where_there_is_one() {
        let offer = Offer { offered: vec!["aes128gcm16".into()], acceptable: vec!["aes256gcm16".into()] };
        let change = |message: &str, kind| error("office", message, kind, &offer).change;
        for (message, kind, key) in [
            ("no ESP proposal chosen", FailureKind::Proposal, "connection.office.child.proposals"),
            ("traffic selectors", FailureKind::Proposal, "connection.office.child.local or child.remote"),
            ("no IKE proposal chosen", FailureKind::Proposal, "connection.office.ike.proposals"),
        ] {
            assert_eq!(change(message, kind).as_deref(), Some(key), "{message}");
        }
        assert_eq!(change("no answer", FailureKind::Timeout), None);
        let kind = error("office", "the peer cannot take us now", FailureKind::Busy, &offer).kind;
        assert_eq!(kind.exit_code(), control::ExitCode::Timeout, "nothing is to be mended");
        let said = error("office", "no IKE proposal chosen", FailureKind::Proposal, &offer);
        assert_eq!((said.offered, said.acceptable), (offer.offered, offer.acceptable));
    }
}
