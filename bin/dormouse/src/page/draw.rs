//! How `dormouse page` looks. Owns the page; it is made of what is known alone, and everything in it that a peer could have chosen is text, never markup.

use super::Known;
use super::timeline::Timeline;
use crate::top::draw::{short, time};
use crate::top::model::Row;
use crate::top::rows::clean;
use dormouse_control::{EnergyStatus, Gateway, SleepState, SleepStatus, WakeStatus};
use dormouse_sansio::Instant;
use maud::{DOCTYPE, Markup, html};

/// The page's style.
pub(super) const STYLE: &str = include_str!("style.css");
/// Rows at most; those that receive the most come first.
const ROWS: usize = 200;
/// Wakes at most.
const WAKES: usize = 10;
/// The page is loaded anew after so many seconds.
const RENEW: u32 = 5;
/// Of the timeline's picture, in units of its own.
const WIDTH: f64 = 1_000.0;

/// The page, as it is at a time.
pub(super) fn page(known: &Known, now: Instant) -> String {
    let status = known.model.status.as_ref();
    let title = status.map_or_else(
        || "dormouse".to_owned(),
        |s| format!("dormouse {} on {}", clean(&s.daemon.release), clean(&s.daemon.interface)),
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta http-equiv="refresh" content=(RENEW);
                title { (title) }
                link rel="stylesheet" href="style.css";
            }
            body { main {
                h1 { (title) }
                (trouble(known, now))
                @if let Some(status) = status {
                    p.soft { "up " (time(status.daemon.uptime_seconds)) }
                    @if let Some(it) = status.in_clear.iter().find(|it| !it.intended) {
                        p.bad { "in clear " (clean(&it.connection)) ": " (clean(&it.what)) }
                    }
                    @if let Some(sleep) = &status.sleep { (device(sleep, &known.timeline, now)) }
                    @if let Some(it) = &status.gateway { (gateway(it, known.model.sums().1)) }
                    (rows(known))
                }
            } }
        }
    };
    page.into_string()
}

fn trouble(known: &Known, now: Instant) -> Markup {
    html! {
        @match (&known.model.trouble, known.answered) {
            (Some(why), Some(at)) => p.bad {
                (clean(why)) ". Below is what it said " (time(now.saturating_since(at).as_secs_f64())) " ago."
            },
            (Some(why), None) => p.bad { (clean(why)) ". The page looks for it again." },
            (None, None) => p { "Waiting for the daemon." },
            (None, Some(_)) => {}
        }
    }
}

fn device(it: &SleepStatus, timeline: &Timeline, now: Instant) -> Markup {
    html! {
        section {
            h2 { "Radio" }
            dl {
                dt { "state" }
                dd {
                    b { (it.state.name()) }
                    @if let Some(s) = it.asleep_seconds.filter(|_| it.state == SleepState::Asleep) { " for " (time(s)) }
                    ", mode " (it.mode.name()) ", " (it.sleeps) " sleeps, pays after " (time(it.break_even_seconds))
                }
                (energy(&it.energy))
                dt { "load" } dd { "clients at the gateway: " (it.gateway_load) }
            }
        }
        (day(timeline, now))
        section {
            h2 { "What woke it" }
            @if it.wakes.is_empty() { p.soft { "nothing yet" } } @else { (wakes(&it.wakes)) }
        }
    }
}

/// Joules; those of a profile are reckoned, those of a meter measured.
fn energy(it: &EnergyStatus) -> Markup {
    let source = clean(&it.source);
    let how = match it.uncertainty_joules {
        _ if !it.source.starts_with("meter") => format!("estimated, {source}"),
        Some(j) => format!("measured within {} J, {source}", j.round()),
        None => format!("measured, {source}"),
    };
    html! {
        dt { "used" } dd { (it.used_joules.round()) " J (" (how) ")" }
        dt { "saved" }
        dd {
            // A radio that has not slept yet has cost a little more.
            @if it.saved_joules < 0.0 { "nothing yet: " (-it.saved_joules.round()) " J more than" }
            @else { (it.saved_joules.round()) " J against" }
            " a radio that is always on (estimated)"
        }
    }
}

fn day(timeline: &Timeline, now: Instant) -> Markup {
    let first = timeline.stretches(now).next().map(|s| s.from);
    let Some(first) = first else { return html! {} };
    let all = now.saturating_since(first).as_secs_f64().max(1.0);
    let of = |asleep: bool| {
        let fitting = timeline.stretches(now).filter(|s| s.asleep == asleep);
        time(fitting.map(|s| s.to.saturating_since(s.from).as_secs_f64()).sum())
    };
    let place = |seconds: f64| format!("{:.2}", seconds / all * WIDTH);
    html! {
        section {
            h2 { "The day" }
            p { b.asleep { "asleep" } " " (of(true)) ", " b.awake { "awake" } " " (of(false)) span.soft { ", as far as it is known" } }
            svg viewBox="0 0 1000 28" preserveAspectRatio="none" role="img" aria-label="when the radio slept and was awake" {
                @for s in timeline.stretches(now) {
                    rect class=(if s.asleep { "asleep" } else { "awake" }) y="0" height="28"
                        x=(place(s.from.saturating_since(first).as_secs_f64()))
                        width=(place(s.to.saturating_since(s.from).as_secs_f64()));
                }
            }
            .ends { span { (time(all)) " ago" } span { "now" } }
        }
    }
}

fn wakes(all: &[WakeStatus]) -> Markup {
    let heads = ["ago", "cause", "flow", "slept", "took"];
    let cells = |it: &WakeStatus| {
        let by = it.rung.map(|rung| format!(" by {}", rung.name())).unwrap_or_default();
        [
            format!("{} ago", time(it.ago_seconds)),
            clean(&it.cause),
            it.flow.as_deref().map(clean).unwrap_or_default(),
            time(it.slept_seconds),
            it.took_ms.map(|ms| format!("{ms} ms{by}")).unwrap_or_default(),
        ]
    };
    table(&heads.map(|head| (head, false)), all.iter().take(WAKES).map(cells))
}

fn gateway(it: &Gateway, asleep: usize) -> Markup {
    html! {
        section {
            h2 { "Gateway" }
            dl {
                dt { "sessions" } dd { (it.sessions_total) }
                dt { "asleep" } dd { (asleep) " (" (it.absent_total) " without a session)" }
                dt { "load" } dd { (it.half_open) " half open, " (it.refused) " newcomers refused" }
            }
        }
    }
}

fn rows(known: &Known) -> Markup {
    let ((received, sent), _) = known.model.sums();
    let (_, all) = known.model.counts();
    let heads = [
        ("who", false),
        ("connection", false),
        ("state", false),
        ("address", false),
        ("in/s", true),
        ("out/s", true),
        ("bytes", true),
        ("quiet", true),
    ];
    html! {
        section {
            h2 { "Connections" }
            p { "traffic: in " (short(received)) "B/s, out " (short(sent)) "B/s" }
            @if all > ROWS { p.soft { "The " (ROWS) " of " (all) " that receive the most; dormouse top has all." } }
            @if all == 0 { p.soft { "none" } } @else { (table(&heads, known.model.window(ROWS).map(cells))) }
        }
    }
}

fn cells(row: &Row) -> [String; 8] {
    let waiting = if row.waiting > 0 { format!(" +{}", row.waiting) } else { String::new() };
    [
        row.who.clone(),
        row.connection.clone(),
        format!("{}{waiting}", row.state),
        row.address.clone(),
        short(row.rate.0),
        short(row.rate.1),
        short(row.bytes.0.saturating_add(row.bytes.1) as f64),
        row.quiet.map(time).unwrap_or_default(),
    ]
}

/// Heads with whether numbers are below, and rows.
fn table<const N: usize>(heads: &[(&str, bool); N], rows: impl Iterator<Item = [String; N]>) -> Markup {
    let class = |number: bool| number.then_some("n");
    html! {
        table {
            thead { tr { @for (head, number) in heads { th class=[class(*number)] { (head) } } } }
            tbody {
                @for row in rows {
                    tr { @for (cell, (head, number)) in row.iter().zip(heads) {
                        td class=[class(*number)] data-head=(head) { (cell) }
                    } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::News;
    use dormouse_control::{SaStatus, Session, Sessions, Status};
    use std::time::Duration;

    const EVIL: &str = "<script>alert(1)</script>\"'&\u{202e}";

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn session(n: usize) -> Session {
        let ike = SaStatus { spi: format!("{n:016x}"), ..SaStatus::default() };
        Session { connection: EVIL.into(), peer: format!("{EVIL}{n}"), ike, ..Session::default() }
    }

    fn drawn(status: Status) -> String {
        let mut known = Known::new();
        known.take(at(1_000), News::Status(Box::new(status)));
        page(&known, at(1_000))
    }

    #[test]
    fn what_a_peer_or_a_connection_calls_itself_is_text() {
        let gateway = Gateway { sessions_total: 1, sessions: vec![session(1)], ..Gateway::default() };
        let page = drawn(Status { gateway: Some(gateway), ..Status::default() });
        assert!(!page.contains("<script") && !page.contains('\u{202e}'), "{page}");
        let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;?";
        assert!(
            page.contains(&format!("{shown}1</td>")) && page.contains(&format!("{shown}</td>")),
            "{page}"
        );
    }

    #[test]
    fn a_crowd_is_cut_and_it_is_said_so() {
        let mut known = Known::new();
        let sessions: Vec<_> = (0..10).map(session).collect();
        let gateway =
            Gateway { sessions_total: 500, sessions, more: Some(10), half_open: 7, ..Gateway::default() };
        known.take(at(1), News::Status(Box::new(Status { gateway: Some(gateway), ..Status::default() })));
        known.take(at(2), News::Page(Sessions { sessions: (10..500).map(session).collect(), more: None }));
        let page = page(&known, at(2));
        assert!(
            page.contains("The 200 of 500 that receive the most") && page.contains("7 half open"),
            "{page}"
        );
        assert_eq!(page.matches("<tr>").count(), 1 + ROWS);
    }

    #[test]
    fn a_device_says_what_the_radio_does_what_it_costs_and_what_woke_it() {
        let wake = WakeStatus {
            ago_seconds: 62.0,
            cause: "traffic".into(),
            flow: Some("tcp 10.55.0.9:41000 -> 10.1.0.1:443".into()),
            slept_seconds: 30.0,
            took_ms: Some(140),
            ..WakeStatus::default()
        };
        let energy = |source: &str, uncertainty_joules| EnergyStatus {
            source: source.into(),
            used_joules: 123.4,
            saved_joules: 456.7,
            uncertainty_joules,
            ..EnergyStatus::default()
        };
        let mut sleep = SleepStatus {
            state: SleepState::Asleep,
            asleep_seconds: Some(12.0),
            wakes: vec![wake],
            energy: energy("profile laptop", None),
            ..SleepStatus::default()
        };
        let page = drawn(Status { sleep: Some(sleep.clone()), ..Status::default() });
        for part in [
            "<b>asleep</b> for 12s",
            "123 J (estimated, profile laptop)",
            "457 J",
            "tcp 10.55.0.9:41000 -&gt; 10.1.0.1:443",
            "140 ms",
            // The daemon knew of the sleep before the wake, and of this one: 92 s of which 50 are not known.
            "</b> 42s, <b class=\"awake\">awake</b> 0s",
            "1m32s ago",
            "x=\"0.00\" width=\"326.09\"",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        sleep.energy = EnergyStatus { saved_joules: -7.6, ..energy("meter battery", Some(3.2)) };
        let page = drawn(Status { sleep: Some(sleep), ..Status::default() });
        assert!(page.contains("nothing yet: 8 J more than a radio that is always on"), "{page}");
        assert!(page.contains("123 J (measured within 3 J, meter battery)"), "{page}");
    }
}
