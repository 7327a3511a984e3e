//! The protocol as scripts see it: the words on the wire must not change by accident.

use dormouse_control::{
    ConnectionState, Error, ErrorKind, Event, EventKind, ExitCode, KeysOf, MAX_REQUEST, Reply, Request,
    Response, SleepMode, SleepStatus, Status, VERSION, Verb, WakeRung, line,
};

#[test]
fn requests_have_one_shape() {
    let up = line(&Request::new(Verb::Up { connection: Some("office".into()) })).unwrap();
    assert_eq!(up, "{\"version\":1,\"verb\":\"up\",\"connection\":\"office\"}\n");
    let wait = Verb::Wait { connection: None, state: ConnectionState::Up, timeout_seconds: Some(1.5) };
    let text = line(&Request::new(wait.clone())).unwrap();
    assert_eq!(
        text,
        "{\"version\":1,\"verb\":\"wait\",\"connection\":null,\"state\":\"up\",\"timeout_seconds\":1.5}\n"
    );
    assert_eq!(Request::parse(text.as_bytes()).unwrap().verb, wait);
    let remove = Verb::Down { connection: Some("office".into()), peer: Some("joe.example".into()) };
    let text = line(&Request::new(remove.clone())).unwrap();
    assert_eq!(
        text,
        "{\"version\":1,\"verb\":\"down\",\"connection\":\"office\",\"peer\":\"joe.example\"}\n"
    );
    assert_eq!(Request::parse(text.as_bytes()).unwrap().verb, remove);
    let end = Verb::DownChild { connection: "office".into(), peer: "joe.example".into(), spi: 0xc0ff_ee00 };
    let text = line(&Request::new(end.clone())).unwrap();
    let expected = "{\"version\":1,\"verb\":\"down-child\",\"connection\":\"office\",\"peer\":\"joe.example\",\"spi\":3237998080}\n";
    assert_eq!(text, expected);
    assert_eq!(Request::parse(text.as_bytes()).unwrap().verb, end);
    for (keys, word) in [(KeysOf::All, "all"), (KeysOf::Ike, "ike"), (KeysOf::Child, "child")] {
        let rekey = Verb::Rekey { connection: Some("office".into()), peer: None, keys };
        let text = line(&Request::new(rekey.clone())).unwrap();
        let expected =
            format!("{{\"version\":1,\"verb\":\"rekey\",\"connection\":\"office\",\"keys\":\"{word}\"}}\n");
        assert_eq!(text, expected);
        assert_eq!(Request::parse(text.as_bytes()).unwrap().verb, rekey);
    }
    let exercise = Verb::Exercise { connection: Some("office".into()), rung: WakeRung::Ticket };
    let text = line(&Request::new(exercise)).unwrap();
    let expected = "{\"version\":1,\"verb\":\"exercise\",\"connection\":\"office\",\"rung\":\"ticket\"}\n";
    assert_eq!(text, expected);
    let here = Verb::KeysHere { device: [192, 0, 2, 1].into(), previous: Some("r1".into()) };
    let text = line(&Request::new(here.clone())).unwrap();
    let expected = "{\"version\":1,\"verb\":\"keys-here\",\"device\":\"192.0.2.1\",\"previous\":\"r1\"}\n";
    assert_eq!(text, expected);
    assert_eq!(Request::parse(text.as_bytes()).unwrap().verb, here);
    let at = line(&Request::new(Verb::KeysAt { peer: "phone".into(), router: "r1".into() })).unwrap();
    assert_eq!(at, "{\"version\":1,\"verb\":\"keys-at\",\"peer\":\"phone\",\"router\":\"r1\"}\n");
}

#[test]
fn the_words_of_the_sleep_are_fixed() {
    let mode = line(&Request::new(Verb::Mode { mode: Some(SleepMode::Energy) })).unwrap();
    assert_eq!(mode, "{\"version\":1,\"verb\":\"mode\",\"mode\":\"energy\"}\n");
    let asked = Request::parse(br#"{"version":1,"verb":"mode"}"#).unwrap();
    assert_eq!(asked.verb, Verb::Mode { mode: None });
    let told = line(&Response::ok(Reply::Mode(SleepMode::Balanced))).unwrap();
    assert_eq!(told, "{\"version\":1,\"status\":\"ok\",\"result\":{\"mode\":\"balanced\"}}\n");
    let text = line(&SleepStatus::default()).unwrap();
    for field in ["mode", "state", "radio", "wakes_by_cause", "wakes", "energy", "saved_joules", "source"] {
        assert!(text.contains(&format!("\"{field}\"")), "{field} is missing in {text}");
    }
    let event = r#"{"at_unix":1.0,"event":"waking","cause":"traffic","flow":"udp","slept_seconds":2.0}"#;
    let event: Event = serde_json::from_str(event).unwrap();
    let kind = EventKind::Waking { cause: "traffic".into(), flow: Some("udp".into()), slept_seconds: 2.0 };
    assert_eq!(event.kind, kind);
}

#[test]
fn optional_fields_may_be_left_out_and_unknown_ones_are_ignored() {
    let request = Request::parse(br#"{"version":1,"verb":"down","colour":"red"}"#).unwrap();
    assert_eq!(request.verb, Verb::Down { connection: None, peer: None });
    assert_eq!(Request::parse(br#"{"version":1,"verb":"suspend"}"#).unwrap().verb, Verb::Suspend);
    let all = Verb::Rekey { connection: None, peer: None, keys: KeysOf::All };
    assert_eq!(Request::parse(br#"{"version":1,"verb":"rekey"}"#).unwrap().verb, all);
}

#[test]
fn bad_requests_say_what_is_wrong_with_them() {
    let kind = |text: &[u8]| Request::parse(text).unwrap_err().kind;
    assert_eq!(kind(b"\xff\x00 not json"), ErrorKind::Request);
    assert_eq!(kind(br#"{"version":1,"verb":"fly"}"#), ErrorKind::Request);
    assert_eq!(kind(br#"{"verb":"status"}"#), ErrorKind::Request);
    assert_eq!(kind(br#"{"version":1,"verb":"wait","state":"up","timeout_seconds":-1}"#), ErrorKind::Request);
    assert_eq!(kind(br#"{"version":1,"verb":"down","peer":"joe.example"}"#), ErrorKind::Request);
    assert_eq!(kind(br#"{"version":1,"verb":"rekey","peer":"joe.example"}"#), ErrorKind::Request);
    assert_eq!(kind(&vec![b' '; MAX_REQUEST + 1]), ErrorKind::Request);
    let other = Request::parse(br#"{"version":2,"verb":"hibernate"}"#).unwrap_err();
    assert_eq!(other.kind, ErrorKind::Version);
    assert!(other.message.contains('2') && other.message.contains(&VERSION.to_string()), "{other}");
}

#[test]
fn responses_round_trip() {
    let status = Reply::Status(Box::default());
    let event = Event {
        at_unix: 1.5,
        connection: Some("office".into()),
        kind: EventKind::Up { rung: WakeRung::Ticket, took_ms: 48 },
    };
    for reply in [Reply::Done, status, Reply::Event(Box::new(event)), Reply::Doctor(Vec::new())] {
        let text = line(&Response::ok(reply.clone())).unwrap();
        assert_eq!(Response::parse(text.as_bytes()).unwrap(), reply);
    }
    assert_eq!(
        line(&Response::ok(Reply::Done)).unwrap(),
        "{\"version\":1,\"status\":\"ok\",\"result\":\"done\"}\n"
    );
}

#[test]
fn an_error_carries_the_line_to_change() {
    let error = Error::new(ErrorKind::Proposal, "the gateway accepted none of our algorithms")
        .with_offer(vec!["aes256gcm16".into()], vec!["aes128-sha256".into()])
        .with_change("connection.office.ike.proposals = [\"aes128-sha256-prfsha256-x25519\"]");
    let text = line(&Response::error(error.clone())).unwrap();
    assert_eq!(Response::parse(text.as_bytes()).unwrap_err(), error);
    assert!(text.contains("\"status\":\"error\"") && text.contains("\"kind\":\"proposal\""), "{text}");
    let shown = error.to_string();
    assert!(
        shown.contains("offered: aes256gcm16")
            && shown.contains("acceptable: aes128-sha256")
            && shown.contains("connection.office")
    );
    assert_eq!(error.kind.exit_code(), ExitCode::NoProposal);
}

#[test]
fn words_of_a_later_release_do_not_break_this_one() {
    let text =
        br#"{"version":1,"status":"ok","result":{"event":{"at_unix":0,"event":"eclipse","moon":true}}}"#;
    let Reply::Event(event) = Response::parse(text).unwrap() else { panic!("not an event") };
    assert_eq!(event.kind, EventKind::Unknown);
    let text = br#"{"version":1,"status":"error","error":{"kind":"weather","message":"rain"}}"#;
    assert_eq!(Response::parse(text).unwrap_err().kind, ErrorKind::Other);
}

#[test]
fn exit_codes_are_those_that_scripts_know() {
    let codes: Vec<u8> = ExitCode::ALL.iter().map(|(c, _)| c.code()).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(ErrorKind::NoDaemon.exit_code().code(), 3);
    assert_eq!(ErrorKind::Authentication.exit_code().code(), 4);
    assert_eq!(ErrorKind::Timeout.exit_code().code(), 6);
    assert_eq!(ErrorKind::Permission.exit_code().code(), 7);
    assert_eq!(ErrorKind::TooBig.exit_code().code(), 8);
    assert_eq!(ErrorKind::AnswersLost.exit_code().code(), 9);
}

#[test]
fn an_empty_status_has_all_its_sections() {
    let text = line(&Status::default()).unwrap();
    for section in ["daemon", "connections", "offloads", "deadlines"] {
        assert!(text.contains(&format!("\"{section}\"")), "{section} is missing in {text}");
    }
}
