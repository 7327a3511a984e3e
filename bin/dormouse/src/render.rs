//! How the daemon's answers look to people. Owns layout only; decides nothing.

use crate::render_hip;
use crate::render_router;
use crate::render_sleep;
use crate::style::{Style, block_words, bytes, columns, duration, field};
use dormouse_control::{
    Check, CheckOutcome, Connection, ConnectionState, Denied, Event, EventKind, Gateway, Portal, SaStatus,
    Stats, Status, Traffic,
};
use dormouse_report::Table;
use std::fmt::Write as _;

/// Sessions of a gateway that are shown; the rest is counted.
const MOST_SESSIONS: usize = 50;
/// Timers listed.
const MOST_DEADLINES: usize = 50;

/// What is open for a captive portal.
pub(crate) fn portal(it: &Portal, style: Style) -> String {
    if it.addresses.is_empty() {
        return "closed\n".into();
    }
    let addresses: Vec<String> = it.addresses.iter().map(ToString::to_string).collect();
    let (open, time) = (style.warning(&format!("open: {}", addresses.join(", "))), duration(it.seconds));
    format!(
        "{open}\nwhat is sent there leaves in clear; it closes by itself in {time} (dormouse portal --for 0 closes it now)\n"
    )
}

/// Everything.
pub(crate) fn status(status: &Status, style: Style) -> String {
    let daemon = &status.daemon;
    let mut out = format!(
        "dormoused {}, process {}, up {}; {} (mtu {})\n",
        daemon.release,
        daemon.pid,
        duration(daemon.uptime_seconds),
        daemon.interface,
        daemon.mtu
    );
    field(&mut out, style, "listens", &daemon.listen.join(", "));
    field(&mut out, style, "DNS", &daemon.resolver);
    field(&mut out, style, "config", &daemon.config);
    for it in &status.in_clear {
        let title = if it.intended { "in clear" } else { "IN CLEAR" };
        let text = format!("{}: {} ({})", it.connection, it.what, it.why);
        field(&mut out, style, title, &if it.intended { style.warning(&text) } else { style.bad(&text) });
    }
    for one in &status.connections {
        out.push('\n');
        out.push_str(&connection(one, style));
    }
    if let Some(it) = &status.sleep {
        out.push('\n');
        out.push_str(&render_sleep::sleep(it, style));
    }
    if let Some(it) = &status.gateway {
        out.push('\n');
        out.push_str(&gateway(it, style));
    }
    if let Some(it) = &status.hip {
        out.push('\n');
        out.push_str(&render_hip::status(it, style));
    }
    if let Some(it) = &status.router {
        out.push('\n');
        out.push_str(&render_router::status(it, style));
    }
    out.push('\n');
    let offloads = status.offloads.iter().map(|o| match (&o.why, o.active) {
        (_, true) => style.good(&o.name),
        (Some(why), false) => format!("{} ({why})", style.warning(&format!("no {}", o.name))),
        (None, false) => style.dim(&format!("no {}", o.name)),
    });
    field(&mut out, style, "offloads", &offloads.collect::<Vec<_>>().join(", "));
    if status.deadlines.is_empty() {
        field(&mut out, style, "next wake", "none: nothing is due");
    }
    let more = (status.deadlines.len() + status.more_deadlines).saturating_sub(MOST_DEADLINES);
    for (i, deadline) in status.deadlines.iter().take(MOST_DEADLINES).enumerate() {
        let title = if i == 0 { "next wake" } else { "" };
        let slack = if deadline.slack_seconds > 0.0 {
            format!(" (or {} later)", duration(deadline.slack_seconds))
        } else {
            String::new()
        };
        field(
            &mut out,
            style,
            title,
            &format!("in {}{slack}: {}", duration(deadline.in_seconds), deadline.why),
        );
    }
    if more > 0 {
        field(&mut out, style, "", &format!("and {more} timers more"));
    }
    out
}

/// One client connection in a line.
pub(crate) fn summary(it: &Connection, style: Style) -> String {
    let mut out = format!("{}  {}", style.strong(&it.name), state(it.state, style));
    if it.state == ConnectionState::Up {
        if let Some(wake) = it.last_wake {
            let _ = write!(out, " ({}, {} ms)", wake.rung.name(), wake.took_ms);
        }
        if !it.addresses.is_empty() {
            let _ = write!(out, ", inside {}", it.addresses.join(", "));
        }
    }
    out
}

/// One client connection in full.
pub(crate) fn connection(it: &Connection, style: Style) -> String {
    let mut out = format!("{}  {}\n", style.strong(&it.name), state(it.state, style));
    let mut line = |title: &str, text: &str| field(&mut out, style, title, text);
    let peer = match (&it.peer, &it.gateway) {
        (Some(peer), Some(gateway)) if peer != gateway => format!("{peer} ({gateway})"),
        (peer, gateway) => peer.clone().or_else(|| gateway.clone()).unwrap_or_default(),
    };
    line("gateway", &peer);
    line("path", it.path.as_deref().unwrap_or_default());
    if let Some(nat) = it.nat {
        let where_ = match (nat.local, nat.remote) {
            (true, true) => "before both ends",
            (true, false) => "before us",
            (false, true) => "before the gateway",
            (false, false) => "none",
        };
        let keepalive =
            nat.keepalive_seconds.map_or_else(String::new, |s| format!(", keepalive every {}", duration(s)));
        line("NAT", &format!("{where_}{keepalive}"));
    }
    line("inside", &it.addresses.join(", "));
    line("routes", &it.routes.join(", "));
    line("DNS", &it.dns.join(", "));
    if let Some(wake) = it.last_wake {
        line("came up by", &format!("{} in {} ms", wake.rung.name(), wake.took_ms));
    }
    if let Some(ike) = &it.ike {
        line("IKE SA", &sa(ike));
    }
    for child in &it.children {
        line("CHILD SA", &sa(child));
        // Of one alone, it is what the connection carried.
        if it.children.len() > 1 {
            line("", &traffic(&child.traffic));
        }
    }
    let ticket = match (it.ticket.held, it.ticket.expires_in_seconds) {
        (false, _) => "none".to_owned(),
        (true, None) => "held".to_owned(),
        (true, Some(s)) => format!("held, expires in {}", duration(s)),
    };
    line("ticket", &ticket);
    if it.traffic != Traffic::default() {
        line("traffic", &traffic(&it.traffic));
    }
    if let Some(block) = it.block {
        line("block", &block_words(block, style));
    }
    if let Some(last) = &it.last_error {
        line("failed", &style.bad(&last.error.message));
        line("offered", &last.error.offered.join(", "));
        line("acceptable", &last.error.acceptable.join(", "));
        line("change", last.error.change.as_deref().unwrap_or_default());
        if let Some(s) = last.retry_in_seconds {
            line("next try", &format!("in {}", duration(s)));
        }
    }
    out
}

fn gateway(it: &Gateway, style: Style) -> String {
    let mut out = format!(
        "{}  {} sessions, {} half open{}{}\n",
        style.strong("gateway"),
        it.sessions_total,
        it.half_open,
        if it.refused > 0 { format!(", {} newcomers refused", it.refused) } else { String::new() },
        if it.pools.is_empty() { String::new() } else { format!("; addresses {}", it.pools.join(", ")) }
    );
    let mut table = Table::words(["peer", "inside", "path", "by", "age", "quiet", "in", "out"]);
    for s in it.sessions.iter().take(MOST_SESSIONS) {
        table.row([
            s.peer.clone(),
            s.addresses.join(" "),
            s.path.clone(),
            if s.resumed { "ticket" } else { "full" }.to_owned(),
            duration(s.ike.age_seconds),
            duration(s.quiet_seconds),
            bytes(s.traffic.bytes_in),
            bytes(s.traffic.bytes_out),
        ]);
    }
    out.push_str(&columns(&table, style));
    if it.sessions_total > MOST_SESSIONS {
        let _ = writeln!(out, "  and {} more (--json shows all)", it.sessions_total - MOST_SESSIONS);
    }
    out.push_str(&children(it, style));
    out.push_str(&sleepers(it, style));
    out.extend(it.radius.iter().map(|radius| crate::render_radius::status(radius, style)));
    out
}

/// CHILD SAs of which there is more to say than of their session: those in zones, and several of one session.
fn children(it: &Gateway, style: Style) -> String {
    let head = ["CHILD SA of", "SPIs", "zones", "sends", "in", "out", "header keys"];
    let mut table = Table::words(head);
    let told = it.sessions.iter().flat_map(|s| {
        let several = s.children.len() > 1;
        s.children.iter().filter(move |c| several || c.zones > 0).map(move |c| (&s.peer, c))
    });
    for (peer, child) in told.take(MOST_SESSIONS) {
        table.row([
            peer.clone(),
            child.spi.clone(),
            match child.zones {
                0 if child.readable => "not encrypted".to_owned(),
                0 => "whole".to_owned(),
                zones => zones.to_string(),
            },
            sends(child),
            bytes(child.traffic.bytes_in),
            bytes(child.traffic.bytes_out),
            child.routers.join(", "),
        ]);
    }
    columns(&table, style)
}

/// Devices that are stood in for, or were.
fn sleepers(it: &Gateway, style: Style) -> String {
    let sessions = it.sessions.iter().filter_map(|s| Some((&s.peer, "held", s.stand_in.as_ref()?)));
    let absent = it.absent.iter().map(|a| (&a.peer, "released", &a.stand_in));
    let counts = |by: &std::collections::BTreeMap<String, u64>| {
        by.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
    };
    let head = ["stood in for", "asleep", "given up in", "waiting", "delivered", "answered", "dropped"];
    let mut table = Table::words(head);
    let shown = sessions.chain(absent).filter(|(_, _, s)| s.asleep.is_some() || s.handled > 0);
    for (peer, how, s) in shown.take(MOST_SESSIONS) {
        let [asleep, until, waiting] = s.asleep.map_or_else(
            || ["awake".to_owned(), String::new(), String::new()],
            |a| {
                let waiting = format!("{} packets, {}", a.packets, bytes(a.bytes as u64));
                [format!("{} {how}", duration(a.since_seconds)), duration(a.until_seconds), waiting]
            },
        );
        let (delivered, answered, dropped) =
            (s.delivered.to_string(), counts(&s.answered), counts(&s.dropped));
        table.row([peer.clone(), asleep, until, waiting, delivered, answered, dropped]);
    }
    columns(&table, style)
}

/// One event in a line.
pub(crate) fn event(it: &Event, style: Style) -> String {
    let what = match &it.kind {
        EventKind::Snapshot { state: s } => state(*s, style),
        EventKind::Up { rung, took_ms } => format!("{} by {} in {took_ms} ms", style.good("up"), rung.name()),
        EventKind::RungFailed { rung, error } => format!("{} failed: {error}", rung.name()),
        EventKind::Down { why } => format!("{}: {why}", style.bad("down")),
        EventKind::Suspended => "the device sleeps".into(),
        EventKind::Resumed => "the device is back".into(),
        EventKind::Asleep { .. }
        | EventKind::Waking { .. }
        | EventKind::Awake { .. }
        | EventKind::SleepCalledOff
        | EventKind::Mode { .. } => render_sleep::event(&it.kind, style),
        EventKind::Network { local: Some(local), remote: Some(remote) } => {
            format!("network: {local} -> {remote}")
        }
        EventKind::Network { .. } => style.warning("no network"),
        EventKind::PeerUp { peer, resumed } => {
            format!("{peer} {}{}", style.good("came"), if *resumed { " by ticket" } else { "" })
        }
        EventKind::PeerDown { peer, why } => format!("{peer} went: {why}"),
        EventKind::PeerFailed { peer, error } => format!("{peer} {}: {error}", style.bad("was not reached")),
        EventKind::PeerRefused { from, claimed, why } => {
            let claimed = claimed.as_ref().map_or_else(String::new, |c| format!(", who says to be {c},"));
            format!("{from}{claimed} {}: {why}", style.warning("refused"))
        }
        EventKind::Warning { message } => style.warning(message),
        EventKind::Stopping => "the daemon stops".into(),
        EventKind::Unknown => style.dim("something that this release does not know"),
    };
    let connection = it.connection.as_ref().map_or_else(String::new, |c| format!("{}  ", style.strong(c)));
    format!("{}  {connection}{what}", style.dim(&clock(it.at_unix)))
}

/// Counters, one a line.
pub(crate) fn stats(stats: &Stats) -> String {
    let width = stats.counters.keys().map(String::len).max().unwrap_or(0);
    stats.counters.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = writeln!(out, "{name:<width$}  {value:>12}");
        out
    })
}

/// What a denial has met. `hit`: that of the HIP peer of this name, which is denied too.
pub(crate) fn denied(sessions: usize, known: bool, hit: Option<&str>) -> String {
    let both = hit.map(|hit| {
        format!("both are denied: a client of this name at the gateway, and the HIP peer {hit}\n")
    });
    let met = match (sessions, known) {
        (0, true) => "denied; it has no session now\n".to_owned(),
        (0, false) => "denied, but none who is meant is known here: no session, sleeping device or lease is of this name, and no \
                       connection or peer names it. A name must be as dormouse status shows it, upper and lower case before an @ included\n"
            .to_owned(),
        (1, _) => "denied; its session has ended\n".to_owned(),
        (n, _) => format!("denied; its {n} sessions have ended\n"),
    };
    both.unwrap_or_default() + &met
}

/// Who is denied, one a line.
pub(crate) fn denials(denials: &[Denied]) -> String {
    if denials.is_empty() {
        return "no peer is denied\n".to_owned();
    }
    let width = denials.iter().map(|d| d.whom.chars().count()).max().unwrap_or(0);
    let now = dormouse_io::clock::unix_now().0;
    denials.iter().fold(String::new(), |mut out, Denied { whom, since_unix }| {
        let since = duration(now.saturating_sub(*since_unix) as f64);
        let _ = writeln!(out, "{whom:<width$}  for {since}");
        out
    })
}

/// What a reload has left for a restart.
pub(crate) fn reloaded(restart: &[String]) -> String {
    match restart {
        [] => "in force\n".to_owned(),
        keys => format!("in force, but for what needs a restart: {}\n", keys.join(", ")),
    }
}

/// The checks of `doctor`, one a line, advice below.
pub(crate) fn checks(checks: &[Check], style: Style) -> String {
    let width = checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let mark = match check.outcome {
            CheckOutcome::Ok => style.good("ok  "),
            CheckOutcome::Warning => style.warning("warn"),
            CheckOutcome::Failure => style.bad("FAIL"),
            CheckOutcome::Skipped => style.dim("skip"),
        };
        let _ = writeln!(out, "{mark}  {:<width$}  {}", check.name, check.found);
        if let Some(change) = check.change.as_ref().filter(|_| check.outcome != CheckOutcome::Ok) {
            let _ = writeln!(out, "      {:<width$}  change: {}", "", style.strong(change));
        }
    }
    out
}

fn state(state: ConnectionState, style: Style) -> String {
    let name = state.name();
    match state {
        ConnectionState::Up => style.good(name),
        ConnectionState::Down => style.dim(name),
        ConnectionState::Asleep | ConnectionState::Connecting => name.into(),
        ConnectionState::Offline | ConnectionState::Waiting => style.warning(name),
    }
}

fn sa(sa: &SaStatus) -> String {
    let mut out = sa.suite.clone();
    if !sa.mode.is_empty() {
        let _ = write!(out, ", {}", sa.mode);
    }
    if sa.readable {
        out.push_str(", not encrypted");
    }
    if sa.zones > 0 {
        let _ = write!(out, ", {} zones", sa.zones);
    }
    if !sa.share.is_empty() {
        let _ = write!(out, ", {}", sends(sa));
    }
    let _ = write!(out, ", {} old", duration(sa.age_seconds));
    if let Some(s) = sa.rekey_in_seconds {
        let _ = write!(out, ", new keys in {}", duration(s));
    }
    if !sa.routers.is_empty() {
        let _ = write!(out, "; header keys: {}", sa.routers.join(", "));
    }
    out
}

/// What is sent on a CHILD SA that shares its traffic; of one that takes all for a time, also whether it does now.
fn sends(sa: &SaStatus) -> String {
    let signal = sa.signal_dbm.map(|dbm| format!("{dbm} dBm, ")).unwrap_or_default();
    match sa.takes_all {
        Some(takes) => format!("{} (now {signal}{})", sa.share, if takes { "taken" } else { "not taken" }),
        None => sa.share.clone(),
    }
}

fn traffic(t: &Traffic) -> String {
    let dropped = if t.dropped == 0 { String::new() } else { format!(", {} dropped", t.dropped) };
    format!(
        "in {} ({} packets), out {} ({} packets){dropped}",
        bytes(t.bytes_in),
        t.packets_in,
        bytes(t.bytes_out),
        t.packets_out
    )
}

/// Time of day, UTC.
fn clock(unix: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates; milliseconds since 1970 fit"
    )]
    let ms = (unix.max(0.0) * 1000.0) as u64;
    let s = ms / 1000;
    format!("{:02}:{:02}:{:02}.{:03}Z", s / 3600 % 24, s / 60 % 60, s % 60, ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_control::{
        BlockMode, BlockStatus, DaemonStatus, DeadlineStatus, InClear, LastWake, Nat, Offload, Role, Session,
        Ticket, WakeRung,
    };

    #[test]
    fn a_time_of_day_is_whole() {
        assert_eq!(clock(86_399.25), "23:59:59.250Z");
    }

    fn office() -> Connection {
        Connection {
            name: "office".into(),
            role: Role::Client,
            state: ConnectionState::Up,
            peer: Some("gw.example.org".into()),
            gateway: Some("203.0.113.5".into()),
            path: Some("192.0.2.7:4500 -> 203.0.113.5:4500 (UDP)".into()),
            addresses: vec!["10.9.0.2".into()],
            routes: vec!["0.0.0.0/0".into()],
            dns: vec!["10.9.0.1".into()],
            domains: Vec::new(),
            last_wake: Some(LastWake { rung: WakeRung::Ticket, took_ms: 48 }),
            ike: Some(SaStatus {
                suite: "aes256gcm16-prfsha384-x25519".into(),
                age_seconds: 60.0,
                ..SaStatus::default()
            }),
            children: vec![SaStatus {
                suite: "aes128gcm16".into(),
                age_seconds: 60.0,
                rekey_in_seconds: Some(3000.0),
                mode: "tunnel".into(),
                ..SaStatus::default()
            }],
            ticket: Ticket { held: true, expires_in_seconds: Some(82_800.0) },
            traffic: Traffic { packets_in: 12, bytes_in: 3400, packets_out: 9, bytes_out: 800, dropped: 1 },
            nat: Some(Nat { local: true, remote: false, keepalive_seconds: Some(120.0) }),
            last_error: None,
            block: Some(BlockStatus { mode: BlockMode::Connected, holds: true }),
        }
    }

    #[test]
    fn a_status_reads_like_this() {
        let all = Status {
            daemon: DaemonStatus {
                release: "0.1.0".into(),
                pid: 42,
                uptime_seconds: 7200.0,
                interface: "dormouse0".into(),
                mtu: 1400,
                listen: vec!["0.0.0.0".into()],
                resolver: "systemd-resolved (it runs)".into(),
                config: String::new(),
                suspended: false,
            },
            connections: vec![office()],
            hip: None,
            router: None,
            sleep: None,
            gateway: Some(Gateway {
                sessions_total: 1,
                sessions: vec![Session {
                    peer: "phone".into(),
                    addresses: vec!["10.9.0.3".into()],
                    path: "a -> b".into(),
                    children: vec![
                        SaStatus {
                            spi: "0000012c 00000190".into(),
                            zones: 2,
                            share: "1 packet in 10".into(),
                            traffic: Traffic { packets_out: 1, bytes_out: 800, ..Traffic::default() },
                            routers: vec!["r1.test: held".into(), "r2.test: wanted".into()],
                            ..SaStatus::default()
                        },
                        SaStatus {
                            traffic: Traffic { packets_out: 9, bytes_out: 7_200, ..Traffic::default() },
                            ..SaStatus::default()
                        },
                    ],
                    stand_in: Some(dormouse_control::StandIn {
                        asleep: Some(dormouse_control::DeviceSleep {
                            since_seconds: 90.0,
                            until_seconds: 600.0,
                            packets: 2,
                            bytes: 300,
                        }),
                        handled: 7,
                        delivered: 0,
                        answered: [("echo".to_owned(), 4)].into(),
                        dropped: [("discovery".to_owned(), 1)].into(),
                    }),
                    ..Session::default()
                }],
                half_open: 2,
                refused: 5,
                pools: vec!["10.9.0.0/24 1/253".into()],
                ..Gateway::default()
            }),
            in_clear: [(false, "::/0", "block = \"off\""), (true, "10.1.0.1", "dormouse portal")]
                .map(|(intended, what, why)| InClear {
                    connection: "office".into(),
                    what: what.into(),
                    why: why.into(),
                    intended,
                })
                .into(),
            portal: None,
            offloads: vec![
                Offload { name: "tun-tso".into(), active: true, why: None },
                Offload { name: "udp-gso".into(), active: false, why: Some("EIO".into()) },
            ],
            deadlines: vec![DeadlineStatus {
                why: "ike: liveness".into(),
                in_seconds: 50.0,
                slack_seconds: 30.0,
            }],
            more_deadlines: 0,
        };
        let expected = "\
dormoused 0.1.0, process 42, up 2 h; dormouse0 (mtu 1400)
  listens    0.0.0.0
  DNS        systemd-resolved (it runs)
  IN CLEAR   office: ::/0 (block = \"off\")
  in clear   office: 10.1.0.1 (dormouse portal)

office  up
  gateway    gw.example.org (203.0.113.5)
  path       192.0.2.7:4500 -> 203.0.113.5:4500 (UDP)
  NAT        before us, keepalive every 2 min
  inside     10.9.0.2
  routes     0.0.0.0/0
  DNS        10.9.0.1
  came up by ticket in 48 ms
  IKE SA     aes256gcm16-prfsha384-x25519, 60 s old
  CHILD SA   aes128gcm16, tunnel, 60 s old, new keys in 50 min
  ticket     held, expires in 23 h
  traffic    in 3.40 kB (12 packets), out 800 B (9 packets), 1 dropped
  block      connected, in force

gateway  1 sessions, 2 half open, 5 newcomers refused; addresses 10.9.0.0/24 1/253
  peer   inside    path    by    age  quiet  in   out
  phone  10.9.0.3  a -> b  full  0 s  0 s    0 B  0 B
  CHILD SA of  SPIs               zones  sends           in   out      header keys
  phone        0000012c 00000190  2      1 packet in 10  0 B  800 B    r1.test: held, r2.test: wanted
  phone                           whole                  0 B  7.20 kB
  stood in for  asleep           given up in  waiting           delivered  answered  dropped
  phone         1 min 30 s held  10 min       2 packets, 300 B  0          4 echo    1 discovery

  offloads   tun-tso, no udp-gso (EIO)
  next wake  in 50 s (or 30 s later): ike: liveness
";
        assert_eq!(status(&all, Style::plain()), expected);
        assert_eq!(summary(&office(), Style::plain()), "office  up (ticket, 48 ms), inside 10.9.0.2");
    }

    #[test]
    fn checks_are_aligned_and_advice_stands_below() {
        let check = |name: &str, outcome, change: Option<&str>| Check {
            name: name.into(),
            outcome,
            found: "found".into(),
            change: change.map(Into::into),
        };
        let list =
            [check("a", CheckOutcome::Ok, None), check("long name", CheckOutcome::Failure, Some("do this"))];
        let expected = "ok    a          found\nFAIL  long name  found\n                 change: do this\n";
        assert_eq!(checks(&list, Style::plain()), expected);
    }
}
