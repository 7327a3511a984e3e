//! What `dormouse top` draws, on a terminal that is only memory.

use super::draw::{Foot, draw, short, time};
use super::model::{Column, Model};
use super::press;
use dormouse_control::{
    Connection, ConnectionState, DaemonStatus, DeviceSleep, EnergyStatus, Gateway, Role, SaStatus, Session,
    SleepState, SleepStatus, StandIn, Status, Ticket, Traffic, WakeRung, WakeStatus,
};
use dormouse_sansio::Instant;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

fn daemon() -> DaemonStatus {
    DaemonStatus {
        release: "1.2.3".into(),
        interface: "dormouse0".into(),
        uptime_seconds: 93_784.0,
        ..DaemonStatus::default()
    }
}

fn gateway(sessions: usize) -> Status {
    let session = |n: usize| Session {
        connection: "staff".into(),
        peer: format!("user{n:03}.office.test"),
        addresses: vec![format!("10.55.0.{n}")],
        ike: SaStatus { spi: format!("{n:016x}"), ..SaStatus::default() },
        quiet_seconds: 75.0,
        traffic: Traffic { bytes_in: 1_000 * n as u64, bytes_out: 5, ..Traffic::default() },
        stand_in: (n == 1).then(|| StandIn {
            asleep: Some(DeviceSleep { packets: 3, ..DeviceSleep::default() }),
            ..StandIn::default()
        }),
        ..Session::default()
    };
    let gateway = Gateway {
        sessions_total: sessions,
        sessions: (0..sessions).map(session).collect(),
        half_open: 7,
        refused: 2,
        ..Gateway::default()
    };
    Status { daemon: daemon(), gateway: Some(gateway), ..Status::default() }
}

fn device() -> Status {
    let connection = Connection {
        name: "office".into(),
        role: Role::Client,
        state: ConnectionState::Asleep,
        peer: Some("gateway.test".into()),
        gateway: None,
        path: None,
        addresses: vec!["10.55.0.9".into()],
        routes: Vec::new(),
        dns: Vec::new(),
        domains: Vec::new(),
        last_wake: None,
        ike: None,
        children: Vec::new(),
        ticket: Ticket::default(),
        traffic: Traffic { bytes_in: 2_500_000, ..Traffic::default() },
        nat: None,
        last_error: None,
        block: None,
    };
    let wake = WakeStatus {
        ago_seconds: 62.0,
        cause: "traffic".into(),
        flow: Some("tcp 10.55.0.9:41000 -> 10.1.0.1:443".into()),
        slept_seconds: 30.0,
        took_ms: Some(140),
        rung: Some(WakeRung::Held),
    };
    let sleep = SleepStatus {
        state: SleepState::Asleep,
        asleep_seconds: Some(12.0),
        break_even_seconds: 22.3,
        sleeps: 42,
        wakes: vec![wake],
        energy: EnergyStatus {
            source: "profile laptop".into(),
            used_joules: 123.4,
            saved_joules: 456.7,
            ..EnergyStatus::default()
        },
        ..SleepStatus::default()
    };
    Status { daemon: daemon(), connections: vec![connection], sleep: Some(sleep), ..Status::default() }
}

fn seen(model: &Model, foot: Foot, (width, height): (u16, u16)) -> (Vec<String>, usize) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    let mut fits = 0;
    terminal.draw(|frame| fits = draw(frame, model, foot, true)).expect("memory");
    let buffer = terminal.backend().buffer().clone();
    let line =
        |y| (0..width).map(|x| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol())).collect::<String>();
    ((0..height).map(line).collect(), fits)
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

#[test]
fn a_gateway_in_80_by_24() {
    let mut model = Model::new(Column::In, String::new());
    model.status(at(0), gateway(100));
    let (lines, fits) = seen(&model, Foot::Keys, (80, 24));
    assert_eq!(lines[0].trim_end(), " dormouse 1.2.3 on dormouse0, up 1d02h");
    assert_eq!(
        lines[1].trim_end(),
        " gateway  100 sessions, 1 asleep (0 without a session), 7 half open, 2 newcomers refused"[..80]
            .trim_end()
    );
    assert!(lines[3].starts_with("WHO") && lines[3].contains("IN/s▼"), "{lines:#?}");
    assert!(lines[4].starts_with("user000.office.test") && lines[4].contains("10.55.0.0"), "{lines:#?}");
    assert!(lines[5].contains("asleep +3"), "{lines:#?}");
    assert!(lines[23].starts_with(" 1-19 of 100") && lines[23].contains("q quit"), "{lines:#?}");
    assert_eq!(fits, 19);
    let (wide, _) = seen(&model, Foot::Keys, (120, 24));
    assert!(wide[3].contains("QUIET") && wide[4].trim_end().ends_with("1m15s"), "{wide:#?}");
    // Any size at all.
    for size in [(1, 1), (20, 3), (80, 6), (300, 100)] {
        let _drawn = seen(&model, Foot::Keys, size);
    }
}

#[test]
fn a_device_says_what_the_radio_does_and_what_woke_it() {
    let mut model = Model::new(Column::In, String::new());
    model.status(at(0), device());
    let (lines, _) = seen(&model, Foot::Keys, (80, 24));
    let text = lines.join("\n");
    for part in [
        " radio    asleep for 12s, mode performance, 42 sleeps, pays after 22s",
        " energy   123 J used, 457 J saved (profile laptop)",
        " woken    1m02s ago by tcp 10.55.0.9:41000 -> 10.1.0.1:443, after 30s",
        "gateway.test",
        "office",
        " 1-1 of 1 ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn keys_filter_sort_move_and_end() {
    let mut model = Model::new(Column::In, String::new());
    model.status(at(0), gateway(100));
    let mut foot = Foot::Keys;
    let key = |model: &mut Model, foot: &mut Foot, code| {
        press(model, foot, KeyEvent::new(code, KeyModifiers::NONE), 19)
    };
    for code in "/user04q".chars().map(KeyCode::Char) {
        assert!(!key(&mut model, &mut foot, code), "q is a letter of the filter");
    }
    key(&mut model, &mut foot, KeyCode::Backspace);
    let (lines, _) = seen(&model, foot, (80, 24));
    assert!(lines[23].starts_with(" filter: user04_"), "{lines:#?}");
    key(&mut model, &mut foot, KeyCode::Enter);
    let (lines, _) = seen(&model, foot, (80, 24));
    assert!(lines[23].contains("1-10 of 10 (of 100, filter \"user04\")"), "{lines:#?}");
    key(&mut model, &mut foot, KeyCode::Char('/'));
    key(&mut model, &mut foot, KeyCode::Esc);
    key(&mut model, &mut foot, KeyCode::PageDown);
    assert_eq!((model.counts(), model.first), ((100, 100), 19));
    key(&mut model, &mut foot, KeyCode::End);
    assert_eq!(model.first, 99);
    key(&mut model, &mut foot, KeyCode::Home);
    key(&mut model, &mut foot, KeyCode::Char('r'));
    assert!(model.reversed && model.first == 0);
    assert!(key(&mut model, &mut foot, KeyCode::Char('q')));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(press(&mut model, &mut Foot::Filter, interrupt, 19), "also while a filter is written");
}

#[test]
fn quantities_are_short() {
    let of = |n: f64| short(n);
    assert_eq!(
        [0.0, 999.4, 999.6, 12_345.0, 99_960.0, 1e6, 2e18].map(of),
        ["0 ", "999 ", "1.0 k", "12.3 k", "100 k", "1.0 M", "2000 P"]
    );
    assert_eq!(
        [0.4, 59.6, 3_599.0, 86_399.0, 90_000.0].map(time),
        ["0s", "1m00s", "59m59s", "23h59m", "1d01h"]
    );
}
