//! The command line as scripts see it: exit codes, texts and JSON, against a daemon that says what the test wants.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use dormouse_control::{
    Connection, ConnectionState, Error, ErrorKind, Event, EventKind, KeysOf, Reply, Request, Response, Role,
    SleepMode, Status, Verb, line,
};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with a socket in it, removed when dropped.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dormouse-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// A daemon for one client.
    fn daemon(&self, mut answer: impl FnMut(Verb) -> Vec<Response> + Send + 'static) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            for text in BufReader::new(&stream).lines() {
                let request = Request::parse(text.unwrap().as_bytes()).unwrap();
                for response in answer(request.verb) {
                    (&stream).write_all(line(&response).unwrap().as_bytes()).unwrap();
                }
            }
        });
    }

    fn run(&self, arguments: &str) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_dormouse"))
            .arg("--socket")
            .arg(self.socket())
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn connection(name: &str, state: ConnectionState) -> Connection {
    Connection {
        name: name.into(),
        role: Role::Client,
        state,
        peer: None,
        gateway: Some("gw.example.org".into()),
        path: None,
        addresses: vec!["10.9.0.2".into()],
        routes: Vec::new(),
        dns: Vec::new(),
        domains: Vec::new(),
        last_wake: None,
        ike: None,
        children: Vec::new(),
        ticket: Default::default(),
        traffic: Default::default(),
        nat: None,
        last_error: None,
        block: None,
    }
}

fn two_connections() -> Response {
    let connections =
        vec![connection("office", ConnectionState::Up), connection("home", ConnectionState::Waiting)];
    Response::ok(Reply::Status(Box::new(Status { connections, ..Status::default() })))
}

#[test]
fn without_a_daemon_the_exit_code_is_3_and_the_text_says_what_to_do() {
    let scene = Scene::new("nobody");
    let (code, out, err) = scene.run("status");
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(
        err.starts_with("error: no daemon answers at ") && err.contains("systemctl start dormoused"),
        "{err}"
    );
    drop(UnixListener::bind(scene.socket()).unwrap());
    assert_eq!(scene.run("up office").0, 3, "a socket without a listener");
    let (code, out, _) = scene.run("status --json");
    assert_eq!(code, 3);
    assert!(
        out.starts_with("{\"version\":1,\"status\":\"error\",\"error\":{\"kind\":\"no-daemon\""),
        "{out}"
    );
}

#[test]
fn usage_errors_are_2() {
    let scene = Scene::new("usage");
    for wrong in [
        "",
        "fly",
        "wait --timeout -1",
        "wait --state flying",
        "up --no-wait --timeout 3",
        "completions klingon",
        "rekey --ike --child",
        "rekey --peer joe.example",
        "down office --child c0ffee00",
        "down office --peer joe.example --child coffee",
        "hip",
        "hip up",
        "hip up server --no-wait --timeout 3",
        "hip keygen --kind dsa",
    ] {
        assert_eq!(scene.run(wrong).0, 2, "{wrong}");
    }
}

#[test]
fn each_kind_of_error_has_its_exit_code() {
    for (kind, expected) in [
        (ErrorKind::UnknownConnection, 2),
        (ErrorKind::NotConnected, 3),
        (ErrorKind::Authentication, 4),
        (ErrorKind::Proposal, 5),
        (ErrorKind::Timeout, 6),
        (ErrorKind::Permission, 7),
        (ErrorKind::TooBig, 8),
        (ErrorKind::AnswersLost, 9),
        (ErrorKind::Other, 1),
    ] {
        let scene = Scene::new(&format!("kind-{expected}"));
        scene.daemon(move |verb| match verb {
            Verb::Up { .. } => vec![Response::ok(Reply::Done)],
            Verb::Wait { .. } => vec![Response::error(
                Error::new(kind, "it went wrong")
                    .with_offer(vec!["aes256gcm16".into()], vec!["aes128-sha256".into()])
                    .with_change("connection.office.ike.proposals"),
            )],
            other => panic!("{other:?}"),
        });
        let (code, out, err) = scene.run("up office");
        assert_eq!((code, out.as_str()), (expected, ""), "{err}");
        for word in [
            "it went wrong",
            "offered:    aes256gcm16",
            "acceptable: aes128-sha256",
            "change:     connection.office",
        ] {
            assert!(err.contains(word), "{word} in {err}");
        }
        assert!(!err.contains('\x1b'), "no colour without a terminal");
    }
}

#[test]
fn up_waits_and_says_how_it_came_up() {
    let scene = Scene::new("up");
    scene.daemon(|verb| match verb {
        Verb::Up { connection: Some(c) } if c == "office" => vec![Response::ok(Reply::Done)],
        Verb::Wait { state: ConnectionState::Up, timeout_seconds: Some(60.0), .. } => {
            vec![Response::ok(Reply::Done)]
        }
        Verb::Status => vec![two_connections()],
        other => panic!("{other:?}"),
    });
    let (code, out, err) = scene.run("up office");
    assert_eq!((code, out.as_str(), err.as_str()), (0, "office  up, inside 10.9.0.2\n", ""));
}

/// At boot, whatever waits for the session may be there before the daemon.
#[test]
fn wait_waits_for_a_daemon_that_is_starting() {
    let scene = Scene::new("starting");
    let (code, _, err) = scene.run("wait office --timeout 0.3");
    assert!(code == 3 && err.contains("no daemon answers"), "{err}");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| scene.run("wait office --json"));
        std::thread::sleep(std::time::Duration::from_millis(300));
        scene.daemon(|verb| match verb {
            Verb::Wait { timeout_seconds: None, .. } => vec![Response::ok(Reply::Done)],
            other => panic!("{other:?}"),
        });
        let (code, out, err) = waits.join().unwrap();
        assert_eq!((code, out.contains("done"), err.as_str()), (0, true, ""));
    });
}

#[test]
fn up_may_return_at_once() {
    let scene = Scene::new("no-wait");
    scene.daemon(|verb| match verb {
        Verb::Up { connection: None } => vec![Response::ok(Reply::Done)],
        other => panic!("{other:?}"),
    });
    let (code, out, _) = scene.run("up --no-wait --json");
    assert_eq!((code, out.as_str()), (0, "{\"version\":1,\"status\":\"ok\",\"result\":\"done\"}\n"));
}

#[test]
fn rekey_and_down_say_which_sas_are_meant() {
    let [office, joe] = ["office", "joe.example"].map(str::to_owned);
    let rekey = |keys| Verb::Rekey { connection: Some("office".into()), peer: None, keys };
    for (arguments, expected, text) in [
        ("rekey office", rekey(KeysOf::All), "new keys are being made\n"),
        ("rekey office --ike", rekey(KeysOf::Ike), "new keys are being made\n"),
        ("rekey office --child", rekey(KeysOf::Child), "new keys are being made\n"),
        (
            "rekey office --peer joe.example",
            Verb::Rekey { connection: Some(office.clone()), peer: Some(joe.clone()), keys: KeysOf::All },
            "new keys are being made\n",
        ),
        (
            "down office --peer joe.example --child c0ffee00",
            Verb::DownChild { connection: office.clone(), peer: joe.clone(), spi: 0xc0ff_ee00 },
            "removed\n",
        ),
    ] {
        let scene = Scene::new(&format!("rekey-{}", arguments.len()));
        scene.daemon(move |verb| {
            assert_eq!(verb, expected);
            vec![Response::ok(Reply::Done)]
        });
        assert_eq!(scene.run(arguments), (0, text.to_owned(), String::new()), "{arguments}");
    }
}

#[test]
fn status_of_one_connection_answers_by_exit_code_too() {
    for (arguments, expected) in
        [("status", 0), ("status office", 0), ("status home", 3), ("status nowhere", 2)]
    {
        let scene = Scene::new(&format!("status-{expected}-{}", arguments.len()));
        scene.daemon(|_| vec![two_connections()]);
        let (code, out, err) = scene.run(arguments);
        assert_eq!(code, expected, "{arguments}: {out}{err}");
        assert_eq!(out.contains("home"), matches!(arguments, "status" | "status home"), "{out}");
        if expected == 2 {
            assert!(err.contains("'nowhere'") && err.contains("acceptable: office"), "{err}");
        }
    }
    let scene = Scene::new("status-json");
    scene.daemon(|_| vec![two_connections()]);
    let (_, out, _) = scene.run("status office --json");
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["result"]["status"]["connections"].as_array().map(Vec::len), Some(1));
    assert_eq!(value["result"]["status"]["connections"][0]["state"], "up");
}

#[test]
fn watch_prints_lines_until_the_daemon_stops() {
    let scene = Scene::new("watch");
    scene.daemon(|verb| {
        assert_eq!(verb, Verb::Watch);
        let event = |kind| {
            Response::ok(Reply::Event(Box::new(Event {
                at_unix: 3600.5,
                connection: Some("office".into()),
                kind,
            })))
        };
        vec![
            event(EventKind::Snapshot { state: ConnectionState::Up }),
            event(EventKind::Suspended),
            event(EventKind::Stopping),
        ]
    });
    let (code, out, _) = scene.run("watch");
    assert_eq!(code, 0);
    let expected = "01:00:00.500Z  office  up\n01:00:00.500Z  office  the device sleeps\n01:00:00.500Z  office  the daemon stops\n";
    assert_eq!(out, expected);
}

#[test]
fn a_daemon_that_dies_is_reported() {
    let scene = Scene::new("dies");
    let listener = UnixListener::bind(scene.socket()).unwrap();
    std::thread::spawn(move || drop(listener.accept()));
    let (code, _, err) = scene.run("stats");
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("is gone"), "{err}");
}

#[test]
fn a_socket_of_others_is_a_matter_of_permission() {
    let scene = Scene::new("permission");
    let _listener = UnixListener::bind(scene.socket()).unwrap();
    std::fs::set_permissions(scene.socket(), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let directory = std::fs::metadata(scene.0.parent().unwrap());
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&scene.0).unwrap()) == 0;
    if !root || directory.is_err() {
        eprintln!("skipped: a_socket_of_others_is_a_matter_of_permission needs root");
        return;
    }
    std::fs::set_permissions(&scene.0, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // A copy that every user may run: the build directory may be closed to others. By `cp`, because a file that this process
    // has open for writing, or a child that it has just forked, cannot be run.
    let copy = scene.0.join("dormouse");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_dormouse")).arg(&copy).status().unwrap();
    assert!(copied.success());
    let output = std::os::unix::process::CommandExt::uid(
        Command::new(&copy).arg("--socket").arg(scene.socket()).arg("status"),
        65534,
    )
    .output()
    .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert!(
        err.contains("you may not use") && err.contains("mode 0600") && err.contains("daemon.group"),
        "{err}"
    );
}

#[test]
fn doctor_works_without_a_daemon() {
    let scene = Scene::new("doctor");
    let missing = scene.0.join("dormouse.toml");
    let (code, out, err) = scene.run(&format!("doctor --json --config {}", missing.display()));
    assert_eq!(code, 1, "a configuration that does not exist is a failure: {err}");
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let checks = value["result"]["doctor"].as_array().unwrap();
    let named =
        |name: &str| checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("{name} in {out}"));
    assert_eq!(named("daemon")["outcome"], "warning");
    assert_eq!(named("configuration")["outcome"], "failure");
    assert!(named("configuration")["found"].as_str().unwrap().contains("dormouse.toml"));
    for name in [
        "tunnel device",
        "privileges",
        "packet marks",
        "UDP offloads",
        "clock",
        "name servers",
        "UDP port 500",
        "network",
    ] {
        assert!(!named(name)["found"].as_str().unwrap().is_empty(), "{name}");
    }
}

/// What bash offers for the last word, by the script that packages install.
fn offered(words: &[&str]) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_dormouse"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let asks = r#"source <(dormouse completions bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
                  _clap_complete_dormouse dormouse "${!#}"; printf '%s\n' "${COMPREPLY[@]}""#;
    let shell =
        Command::new("bash").args(["-c", asks, "bash"]).args(words).env("PATH", path).output().unwrap();
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
    String::from_utf8(shell.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_values() {
    let verbs = offered(&["dormouse", ""]);
    for verb in ["up", "down", "suspend", "resume", "status", "watch", "doctor", "wait", "stats", "trace"] {
        assert!(verbs.iter().any(|v| v == verb), "{verb} in {verbs:?}");
    }
    assert_eq!(offered(&["dormouse", "wait", "--state", "off"]), ["offline"]);
    assert_eq!(offered(&["dormouse", "up", "--no"]), ["--no-wait"]);
    // What the shell would carry out is a word as any other.
    assert_eq!(offered(&["dormouse", "$(id)"]), [""]);
    let scene = Scene::new("completions");
    for shell in ["zsh", "fish"] {
        let (code, out, _) = scene.run(&format!("completions {shell}"));
        assert!(code == 0 && out.contains("DORMOUSE_COMPLETE"), "{shell}: {out}");
    }
}

#[test]
fn the_mode_is_set_and_shown() {
    let daemon = |verb| match verb {
        Verb::Mode { mode: Some(SleepMode::Energy) } => vec![Response::ok(Reply::Done)],
        Verb::Mode { mode: None } => vec![Response::ok(Reply::Mode(SleepMode::Balanced))],
        Verb::Mode { .. } => vec![Response::error(
            Error::new(ErrorKind::Other, "the radio cannot be switched").with_change("sleep.radio"),
        )],
        other => panic!("{other:?}"),
    };
    for (name, arguments, expected) in [
        ("set", "mode energy", (0, "energy\n")),
        ("show", "mode", (0, "balanced\n")),
        (
            "json",
            "mode --json",
            (0, "{\"version\":1,\"status\":\"ok\",\"result\":{\"mode\":\"balanced\"}}\n"),
        ),
        ("refused", "mode balanced", (1, "")),
        ("unknown", "mode frantic", (2, "")),
    ] {
        let scene = Scene::new(&format!("mode-{name}"));
        scene.daemon(daemon);
        let (code, out, _) = scene.run(arguments);
        assert_eq!((code, out.as_str()), expected, "{arguments}");
    }
}

#[test]
fn an_instruments_recording_is_integrated_and_its_malformed_rows_are_named() {
    let scene = Scene::new("meter");
    let file = scene.0.join("log.csv");
    std::fs::write(&file, "t;U;I\n0;3,7;0,1\n1;3,7;0,3\n2;3,7;0,1\n").unwrap();
    let arguments = format!("meter --csv {} --columns t,U,I", file.display());
    let (code, out, err) = scene.run(&arguments);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("3 rows over 2.000 s") && out.contains("energy 1.480000 J"), "{out}");
    let (_, json, _) = scene.run(&format!("{arguments} --json"));
    assert!(json.starts_with('{') && json.contains("\"mean_watts\":0.74"), "{json}");
    std::fs::write(&file, "t;U;I\n0;3,7;0,1\n1;overload;0,3\n2;3,7;0,1\n").unwrap();
    let (code, _, err) = scene.run(&arguments);
    assert_eq!(code, 1);
    assert!(err.contains("line 3: volts is \"overload\", expected a number"), "{err}");
    let (code, _, err) = scene.run(&format!("meter --csv {} --columns t", file.display()));
    assert!(code == 1 && err.contains("1 columns, expected time and watts"), "{code} {err}");
    assert_eq!(scene.run("meter --csv somewhere").0, 2, "columns are missing");
}

#[test]
fn the_meters_of_a_device_are_shown_with_what_they_see() {
    let scene = Scene::new("meters");
    let battery = scene.0.join("sys/class/power_supply/BAT0");
    std::fs::create_dir_all(&battery).unwrap();
    for (file, content) in
        [("type", "Battery"), ("status", "Discharging"), ("energy_now", "50000000"), ("power_now", "8000000")]
    {
        std::fs::write(battery.join(file), content).unwrap();
    }
    let root = scene.0.display().to_string();
    let (code, out, err) = scene.run(&format!("meter --root {root}"));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("BAT0 (energy_now), 8.00 W") && out.contains("the whole device"), "{out}");
    assert!(out.contains("package        no:") && out.contains("used: battery BAT0"), "{out}");
    std::fs::write(battery.join("status"), "Charging").unwrap();
    let (code, out, _) = scene.run(&format!("meter --root {root}"));
    assert!(code == 1 && out.contains("\"Charging\", not discharging"), "{code} {out}");
    let (code, _, err) = scene.run(&format!("calibrate --root {root} {root}/profile.toml"));
    assert!(code == 1 && err.contains("unplug the device"), "{code} {err}");
}
