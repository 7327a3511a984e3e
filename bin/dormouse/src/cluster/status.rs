//! `dormouse cluster status`: the cluster as its database tells it. Owns what counts as wrong, and how it looks.

use super::access::{self, block};
use super::same::{self, Difference};
use super::{StatusArgs, timed};
use crate::control_verbs::Output;
use crate::enrol::authority::day;
use crate::enrol::names::harmless;
use crate::style::{Style, columns, duration};
use dormouse_cluster::admin::Admin;
use dormouse_cluster::{GatewayStatus, KeyStatus, StandbyStatus, Status, Viewer};
use dormouse_control::{Error, ExitCode};
use dormouse_report::Table;
use dormouse_sansio::UnixTime;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// A gateway is heard every 5 seconds; one that was silent for longer than this many is taken for gone.
pub(super) const SILENT: u64 = 30;
/// Clocks may differ by so many seconds: beyond, tickets may seem expired or not valid yet.
pub(super) const SKEW_MOST: i64 = 30;
/// So many are worth a word.
pub(super) const SKEW_SOME: i64 = 10;

pub(super) fn run(args: &StatusArgs, out: &Output) -> Result<ExitCode, Error> {
    let (status, asked) = timed(|| match &args.database {
        Some(url) => {
            let owner = access::owner(url, args.password_file.as_deref(), args.ca.as_deref())?;
            block(async { Admin::connect(&owner).await?.status().await })
        }
        None => {
            let settings = access::settings_of(&args.config)?;
            block(async { Viewer::connect(&settings).await?.status().await })
        }
    })?;
    let judged = Judged::of(&status, skew(asked, status.now));
    let answer = value(&status, &judged);
    out.print(&format!("{answer}\n"), || text(&status, &judged, out.style))?;
    Ok(if judged.failed { ExitCode::Failure } else { ExitCode::Ok })
}

/// Seconds that this machine's clock is ahead of the database's, which answered at some time between the two; 0 if it may be.
pub(super) fn skew([begun, ended]: [u64; 2], there: UnixTime) -> i64 {
    let ahead = |here: u64| i64::try_from(here).unwrap_or(i64::MAX).saturating_sub_unsigned(there.0);
    if ahead(begun) > 0 { ahead(begun) } else { ahead(ended).min(0) }
}

/// Whether a gateway was heard lately, by the clock of the database.
pub(super) fn is_heard(gateway: &GatewayStatus, now: UnixTime) -> bool {
    gateway.seen.is_some_and(|seen| now.0.saturating_sub(seen.0) <= SILENT)
}

/// How long ago a gateway was heard.
pub(super) fn heard(gateway: &GatewayStatus, now: UnixTime) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two units are shown")]
    let ago = |seen: UnixTime| {
        let drains = match (gateway.draining, is_heard(gateway, now)) {
            (true, true) => ", draining",
            (true, false) => ", drained",
            (false, _) => "",
        };
        format!("{} ago{drains}", duration(now.0.saturating_sub(seen.0) as f64))
    };
    gateway.seen.map_or_else(|| "never".into(), ago)
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Judged {
    pub(super) warnings: Vec<String>,
    /// Settings that are not the same at all gateways; among the warnings too.
    differences: Vec<Difference>,
    /// A fault that an operator must mend: the exit code is 1.
    pub(super) failed: bool,
}

impl Judged {
    /// `ahead`: seconds that this machine's clock is ahead of the database's.
    fn of(status: &Status, ahead: i64) -> Self {
        let mut it = Self::default();
        for gateway in &status.gateways {
            it.gateway(gateway, status.now);
        }
        it.clock("this machine", ahead);
        let mut versions: Vec<String> = status.gateways.iter().map(|g| harmless(&g.version)).collect();
        versions.sort();
        versions.dedup();
        if versions.len() > 1 {
            it.warn(format!("gateways run different releases: {}", versions.join(", ")));
        }
        it.differences = same::differences(&status.gateways, status.now);
        it.warnings.extend(same::told(&it.differences));
        if !status.gateways.is_empty() && !status.keys.iter().any(|key| seals(key, status.now)) {
            it.warn(
                "there is no ticket key of now: no tickets are given until a gateway has made one".into(),
            );
        }
        it.warnings.extend(status.warnings.iter().cloned());
        it
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    fn gateway(&mut self, gateway: &GatewayStatus, now: UnixTime) {
        let name = &gateway.name;
        if is_heard(gateway, now) {
            self.clock(name, gateway.clock);
            return;
        }
        if gateway.draining {
            // It was stopped on purpose, and its devices are elsewhere.
            return;
        }
        self.failed = true;
        let ago = match gateway.seen {
            Some(_) => format!("{name} was last heard {}", heard(gateway, now)),
            None => format!("{name} has joined, and was not heard yet"),
        };
        self.warn(format!(
            "{ago}: look there (dormouse doctor), or if it is gone for good: dormouse cluster forget {name}"
        ));
    }

    fn clock(&mut self, whose: &str, ahead: i64) {
        let by = ahead.unsigned_abs();
        if by > SKEW_SOME.unsigned_abs() {
            let way = if ahead > 0 { "ahead of" } else { "behind" };
            self.warn(format!("the clock of {whose} is {by} s {way} the database's: synchronise both"));
            self.failed |= by > SKEW_MOST.unsigned_abs();
        }
    }
}

fn seals(key: &KeyStatus, now: UnixTime) -> bool {
    (key.seal_from..key.seal_until).contains(&now)
}

/// What a key is for now.
fn phase(key: &KeyStatus, now: UnixTime) -> &'static str {
    match () {
        () if seals(key, now) => "seals",
        () if now < key.seal_from => "next",
        () if now < key.open_until => "opens",
        () => "over",
    }
}

fn value(status: &Status, judged: &Judged) -> Value {
    let now = status.now;
    let gateway = |it: &GatewayStatus| {
        json!({
            "name": it.name, "slot": it.slot, "address": it.address, "version": it.version,
            "heard": is_heard(it, now), "seen_unix": it.seen.map(|seen| seen.0),
            "seen_seconds_ago": it.seen.map(|seen| now.0.saturating_sub(seen.0)),
            "clock_ahead_seconds": it.clock, "sessions": it.sessions, "sleepers": it.sleepers,
            "lineages": it.lineages, "orders": it.orders, "draining": it.draining,
            "tickets_per_second": tickets_a_second(it.spent),
            "round_trip_seconds": it.round_trip.map(|trip| trip.as_secs_f64()),
            "session_seconds": it.session_time.map(|time| time.as_secs_f64()),
            "load_seconds": load(it).map(|load| load.as_secs_f64()),
        })
    };
    let standby = |it: &StandbyStatus| {
        json!({
            "name": it.name, "state": it.state, "sync": it.sync, "behind_bytes": it.behind,
            "lag_seconds": it.lag.map(|lag| lag.as_secs_f64()),
        })
    };
    let standbys = status.standbys.as_ref().map(|all| all.iter().map(standby).collect::<Vec<_>>());
    let key = |it: &KeyStatus| {
        json!({
            "id": format!("{:016x}", it.id), "day": it.day, "phase": phase(it, now),
            "age_seconds": now.0.saturating_sub(it.seal_from.0), "seal_from_unix": it.seal_from.0,
            "seal_until_unix": it.seal_until.0, "open_until_unix": it.open_until.0,
        })
    };
    json!({
        "version": 1, "database": status.server, "now_unix": now.0, "schema": status.schema,
        "slots": status.slots, "incarnation": status.incarnation,
        "lineages": status.lineages, "leases": status.leases, "denials": status.denials,
        "users": { "by_password": status.users[0], "by_certificate": status.users[1] },
        "sleepers": sum(status, |it| it.sleepers),
        "tickets_per_second": tickets_a_second(sum(status, |it| it.spent)),
        "gateways": status.gateways.iter().map(gateway).collect::<Vec<_>>(),
        "keys": status.keys.iter().map(key).collect::<Vec<_>>(),
        "standbys": standbys,
        "differing_settings": judged.differences.iter().map(Difference::value).collect::<Vec<_>>(),
        "warnings": judged.warnings, "failed": judged.failed,
    })
}

fn text(status: &Status, judged: &Judged, style: Style) -> String {
    let now = status.now;
    let emptied = match status.incarnation.saturating_sub(1) {
        0 => String::new(),
        n => format!(
            "; all tickets were revoked {n} times, because the database was an earlier state of itself"
        ),
    };
    let mut out = format!(
        "{}: tables of version {}, {} of {} gateways\n{} sessions on record, {} leases, {} denials{emptied}\n{} devices asleep, {} tickets a second, {} users with passwords, {} with certificates\n",
        style.strong(&harmless(&status.server)),
        status.schema,
        status.gateways.len(),
        status.slots,
        status.lineages,
        status.leases,
        status.denials,
        sum(status, |it| it.sleepers),
        rate(sum(status, |it| it.spent)),
        status.users[0],
        status.users[1],
    );
    out.push_str(&columns(&gateways(status), style));
    let mut keys = Table::new(["ticket key", "day", "now", "age", "opens until"]);
    #[expect(clippy::cast_precision_loss, reason = "two units are shown")]
    for key in &status.keys {
        let age = now.0.checked_sub(key.seal_from.0).map_or_else(|| "-".into(), |s| duration(s as f64));
        let made_for = day(UnixTime(u64::from(key.day) * 86_400));
        keys.row([format!("{:016x}", key.id), made_for, phase(key, now).into(), age, day(key.open_until)]);
    }
    out.push_str(&columns(&keys, style));
    match &status.standbys {
        Some(all) if all.is_empty() => {}
        Some(all) => out.push_str(&columns(&standbys(all), style)),
        None => out.push_str(
            "this role does not see how far standbys lag: grant pg_read_all_stats to dormouse_gateway\n",
        ),
    }
    for warning in &judged.warnings {
        let _ = writeln!(out, "{} {warning}", style.warning("warning:"));
    }
    out
}

/// Over all gateways that are heard: what a silent one said last is of another time.
fn sum(status: &Status, of: impl Fn(&GatewayStatus) -> u64) -> u64 {
    status.gateways.iter().filter(|it| is_heard(it, status.now)).map(of).fold(0, u64::saturating_add)
}

/// Of those of a minute.
#[expect(clippy::cast_precision_loss, reason = "a rate has some digits")]
fn tickets_a_second(in_a_minute: u64) -> f64 {
    in_a_minute as f64 / 60.0
}

fn rate(in_a_minute: u64) -> String {
    format!("{:.1}", tickets_a_second(in_a_minute))
}

/// What gateways are compared by: devices, awake and asleep, times how long a session takes; `None` while that is not known.
fn load(it: &GatewayStatus) -> Option<Duration> {
    let devices = u32::try_from(it.sessions.saturating_add(it.sleepers)).unwrap_or(u32::MAX);
    it.session_time.map(|time| time.saturating_mul(devices))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

fn standbys(all: &[StandbyStatus]) -> Table {
    let mut table = Table::new(["standby", "state", "commits wait", "behind", "lag"]);
    for it in all {
        table.row([
            harmless(&it.name),
            harmless(&it.state),
            if matches!(it.sync.as_str(), "sync" | "quorum") { "yes".into() } else { "no".into() },
            format!("{} kB", it.behind / 1_000),
            it.lag.map_or_else(|| "-".into(), milliseconds),
        ]);
    }
    table
}

fn gateways(status: &Status) -> Table {
    let head = [
        "gateway",
        "slot",
        "address",
        "version",
        "heard",
        "clock",
        "trip",
        "awake",
        "asleep",
        "session",
        "load",
        "on record",
        "tickets/s",
        "orders",
    ];
    let mut table = Table::new(head);
    for it in &status.gateways {
        table.row([
            harmless(&it.name),
            it.slot.to_string(),
            harmless(&it.address),
            harmless(&it.version),
            heard(it, status.now),
            format!("{:+} s", it.clock),
            it.round_trip.map_or_else(|| "-".into(), milliseconds),
            it.sessions.to_string(),
            it.sleepers.to_string(),
            it.session_time.map_or_else(|| "-".into(), milliseconds),
            load(it).map_or_else(|| "-".into(), |load| format!("{:.1}", load.as_secs_f64())),
            it.lineages.to_string(),
            rate(it.spent),
            it.orders.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn gateway(name: &str, seen: Option<u64>, clock: i64) -> GatewayStatus {
        GatewayStatus {
            name: name.into(),
            slot: 0,
            address: "vpn\x1b[2J.example.org".into(),
            version: "0.1.0".into(),
            seen: seen.map(UnixTime),
            clock,
            sessions: 12,
            sleepers: 30,
            draining: false,
            spent: 90,
            round_trip: Some(Duration::from_micros(1_240)),
            session_time: (name == "gw1").then_some(Duration::from_micros(12_500)),
            lineages: 40,
            orders: 2,
            settings: Default::default(),
        }
    }

    const DAY: u64 = 86_400;
    const NOW: u64 = 20_000 * DAY + 3_600;

    fn cluster(gateways: Vec<GatewayStatus>) -> Status {
        let key = |day: u64| KeyStatus {
            id: day,
            day: u32::try_from(day).unwrap(),
            seal_from: UnixTime(day * DAY),
            seal_until: UnixTime((day + 1) * DAY + 600),
            open_until: UnixTime((day + 2) * DAY),
        };
        Status {
            server: "database dormouse at db:5432".into(),
            now: UnixTime(NOW),
            schema: 1,
            slots: 4,
            incarnation: 1,
            gateways,
            lineages: 40,
            leases: 41,
            denials: 1,
            keys: vec![key(19_999), key(20_000), key(20_001)],
            standbys: Some(Vec::new()),
            users: [5, 6],
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_cluster_that_is_well_has_its_gateways_and_keys_and_no_warning() {
        let status = cluster(vec![gateway("gw1", Some(NOW - 4), 0), gateway("gw2", Some(NOW - 30), -10)]);
        let judged = Judged::of(&status, 1);
        assert_eq!(judged, Judged::default());
        let text = text(&status, &judged, Style::plain());
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "database dormouse at db:5432: tables of version 1, 2 of 4 gateways",
            "40 sessions on record, 41 leases, 1 denials",
            "60 devices asleep, 3.0 tickets a second, 5 users with passwords, 6 with certificates",
            "0000000000004e1f 2024-10-03 opens 1 d 1 h 2024-10-05",
            "0000000000004e20 2024-10-04 seals 1 h 2024-10-06",
            "0000000000004e21 2024-10-05 next - 2024-10-07",
        ] {
            assert!(lines.iter().any(|one| one == line), "{text}\nhas no\n{line}");
        }
        assert!(text.contains("30 s ago  -10 s  1.2 ms"), "{text}");
        assert!(!text.contains('\x1b') && !text.contains("revoked"), "{text:?}");
        let value = value(&status, &judged);
        assert_eq!(value["version"], 1);
        assert_eq!(
            (&value["gateways"][1]["heard"], &value["keys"][1]["phase"]),
            (&json!(true), &json!("seals"))
        );
        assert_eq!(value["gateways"][0]["seen_seconds_ago"], 4);
        assert_eq!((&value["tickets_per_second"], &value["sleepers"]), (&json!(3.0), &json!(60)));
        assert_eq!(value["gateways"][0]["round_trip_seconds"], json!(0.001_24));
        assert_eq!(value["gateways"][0]["load_seconds"], json!(0.525));
        assert_eq!(value["gateways"][1]["load_seconds"], Value::Null);
        assert!(text.contains("12.5 ms   0.5 "), "{text}");
    }

    #[test]
    fn standbys_have_their_lag_and_a_silent_gateway_counts_no_tickets() {
        let mut status = cluster(vec![gateway("gw1", Some(NOW), 0), gateway("gw2", Some(NOW - 31), 0)]);
        let standby = |name: &str, sync: &str, lag| StandbyStatus {
            name: name.into(),
            state: "streaming".into(),
            sync: sync.into(),
            behind: 16_500,
            lag,
        };
        let lag = Duration::from_millis(7);
        status.standbys = Some(vec![standby("db2", "quorum", Some(lag)), standby("db3\x1b", "async", None)]);
        let shown = |status: &Status| text(status, &Judged::default(), Style::plain());
        let lines = shown(&status);
        let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["db2", "streaming", "yes", "16", "kB", "7.0", "ms"]), "{lines:?}");
        assert!(lines.iter().any(|line| line.ends_with(&["no", "16", "kB", "-"])), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with(&["30", "devices", "asleep,", "1.5"])), "{lines:?}");
        let json = value(&status, &Judged::default());
        assert_eq!(
            (&json["standbys"][0]["lag_seconds"], &json["standbys"][1]["lag_seconds"]),
            (&json!(0.007), &Value::Null)
        );
        status.standbys = None;
        assert!(shown(&status).contains("pg_read_all_stats"));
        assert_eq!(value(&status, &Judged::default())["standbys"], Value::Null);
    }

    #[test]
    fn each_thing_that_is_wrong_is_said_and_what_must_be_seen_to_fails() {
        let of = |gateway, ahead| Judged::of(&cluster(vec![gateway]), ahead);
        let quiet = of(gateway("gw1", Some(NOW - 31), 0), 0);
        assert!(quiet.failed && quiet.warnings[0].starts_with("gw1 was last heard 31 s ago: "), "{quiet:?}");
        let drained = GatewayStatus { draining: true, ..gateway("gw1", Some(NOW - 31), 0) };
        assert_eq!(heard(&drained, UnixTime(NOW)), "31 s ago, drained");
        assert_eq!(of(drained, 0), Judged::default(), "it was stopped on purpose");
        let new = of(gateway("gw1", None, 0), 0);
        assert!(new.failed && new.warnings[0].contains("was not heard yet"), "{new:?}");
        for (gateway_ahead, own, warning, failed) in [
            (11, 0, "the clock of gw1 is 11 s ahead of the database's", false),
            (0, -31, "the clock of this machine is 31 s behind the database's", true),
        ] {
            let judged = of(gateway("gw1", Some(NOW), gateway_ahead), own);
            assert!(judged.warnings[0].starts_with(warning), "{judged:?}");
            assert_eq!((judged.warnings.len(), judged.failed), (1, failed));
        }
        let other = GatewayStatus { version: "0.2.0".into(), ..gateway("gw2", Some(NOW), 0) };
        let mut status = cluster(vec![gateway("gw1", Some(NOW), 0), other]);
        status.keys.clear();
        status.warnings = vec!["fsync".into()];
        status.incarnation = 3;
        let judged = Judged::of(&status, 0);
        assert!(judged.warnings[0].contains("0.1.0, 0.2.0") && judged.warnings[1].contains("no ticket key"));
        assert_eq!((judged.warnings.len(), judged.failed), (3, false));
        assert!(text(&status, &judged, Style::plain()).contains("revoked 2 times"));
    }

    #[test]
    fn a_clock_is_off_only_as_far_as_it_must_be() {
        for (asked, there, ahead) in
            [([100, 108], 104, 0), ([100, 108], 90, 10), ([100, 108], 120, -12), ([100, 100], 100, 0)]
        {
            assert_eq!(skew(asked, UnixTime(there)), ahead);
        }
    }
}
