//! Recordings as they come: whose traffic they are, what a session is, what is odd about them and what is lost, as `dormouse trace` and
//! `dormouse lab run paper-000` say it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Scene, datagram, pcap, talk};
use serde_json::{Value, json};

const PHONE: [u8; 4] = [192, 168, 7, 20];
const SERVER: [u8; 4] = [203, 0, 113, 9];
/// In microseconds since 1970.
const BEGIN: u64 = 1_700_000_000_000_000;

/// A device that has the phone's address sends something at these seconds.
fn sends(mac: u8, seconds: &[u64]) -> Vec<(u64, Vec<u8>)> {
    let packet = datagram(mac, [PHONE, SERVER], [4000, 443]);
    seconds.iter().map(|at| (BEGIN + at * 1_000_000, packet.clone())).collect()
}

/// Zeek's log of a client: two connections at once, and a third after most of an hour.
fn connections() -> String {
    let line = |uid: &str, at: u64| {
        format!(
            "{{\"ts\":{at}.0,\"uid\":\"{uid}\",\"id.orig_h\":\"10.0.0.5\",\"id.resp_h\":\"1.1.1.1\",\"duration\":60.0,\"orig_pkts\":3,\"resp_pkts\":0}}\n"
        )
    };
    line("Ca", 1_700_000_000) + &line("Cb", 1_700_000_020) + &line("Cc", 1_700_003_000)
}

/// Each client with its sessions, as `trace` has them and as the experiment has them in its raw data.
fn sessions(scene: &Scene, arguments: &str) -> [Vec<(String, u64)>; 2] {
    let trace = scene.json(&format!("trace {arguments} --json"));
    let of = |c: &Value| (c["label"].as_str().unwrap().to_owned(), c["sessions"].as_u64().unwrap());
    let told = trace["clients"].as_array().unwrap().iter().map(of).collect();
    scene.json(&format!("lab run paper-000 {arguments} --json --out raw.json"));
    let raw: Value = serde_json::from_slice(&std::fs::read(scene.0.join("raw.json")).unwrap()).unwrap();
    let of = |s: &Value| {
        let rounds = s["rounds"].as_array().unwrap().len() as u64;
        (s["point"]["client"].as_str().unwrap().to_owned(), rounds - 1)
    };
    [told, raw["samples"].as_array().unwrap().iter().map(of).collect()]
}

#[test]
fn an_experiment_takes_the_sites_and_sessions_that_trace_takes() {
    let scene = Scene::new("choices");
    scene.write("conn.log", connections());
    scene.write("more.log", connections().replace("17000", "17010"));
    let mut frames = sends(20, &[0, 60, 120, 180]);
    frames.insert(2, (BEGIN + 90_000_000, datagram(20, [[0; 4], [255; 4]], [68, 67])));
    scene.write("lease.pcap", pcap(&frames));
    for (arguments, expected) in [
        ("conn.log", &[1][..]),
        ("conn.log --session-by connection", &[3]),
        ("conn.log --session 600", &[2]),
        ("conn.log more.log --session 0", &[1, 1]),
        ("conn.log more.log --session 0 --site *.log=office", &[1]),
        ("conn.log more.log --session 600 --site *.log=office", &[4]),
        ("conn.log --flows edges --session 50", &[3]),
        ("talk.csv --client phone --client watch", &[1, 1]),
        ("lease.pcap", &[1]),
        ("lease.pcap --session-by association", &[2]),
    ] {
        let [trace, lab] = sessions(&scene, arguments);
        assert_eq!(trace, lab, "{arguments}");
        assert_eq!(trace.iter().map(|c| c.1).collect::<Vec<_>>(), expected, "{arguments}");
    }
}

#[test]
fn the_choice_stands_in_the_report_and_its_provenance() {
    let scene = Scene::new("chosen");
    scene.write("conn.log", connections());
    let report = scene.json(
        "lab run paper-000 conn.log --session-by connection --session 600 --site conn.log=office --json --out raw.json --html page.html",
    );
    let settings = &report["provenance"]["settings"];
    assert_eq!(
        (&settings["session_ends_after"], &settings["session_by"]),
        (&json!(600.0), &json!("connection"))
    );
    assert_eq!(settings["reading"]["sites"], json!(["conn.log=office"]));
    assert_eq!(report["provenance"]["inputs"][0]["file"], "conn.log");
    let words = "each connection that the input names (Zeek's uid, Suricata's flow_id), apart from the client's other traffic at the time, \
                 ended by a silence of more than 10.0 min, which is our choice";
    let page = std::fs::read_to_string(scene.0.join("page.html")).unwrap().replace("&#39;", "'");
    let text = std::fs::read_to_string(scene.0.join("raw.txt")).unwrap();
    // The text breaks lines.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (what, whole) in [("JSON", &report["notes"].to_string()), ("text", &text), ("page", &page)] {
        assert!(whole.contains(words), "{what}: {whole}");
    }
    assert!(report["traffic"].to_string().contains("of the site office"), "{}", report["traffic"]);
    // From the raw data alone the same follows.
    let verified = scene.json("lab verify raw.json --json");
    assert_eq!(verified["files"][0]["differences"], json!([]));
    // Of synthetic traffic both are known, and nothing is read where results are.
    for refused in [
        "lab run paper-000 --session 600",
        "lab run paper-000 --site *=home",
        "lab run paper-000 --results raw.json --session-by connection",
        "lab reproduce paper-000 --quick --session 600",
    ] {
        let (code, _, err) = scene.run(refused);
        assert!(code == 2 && err.contains("FILE"), "{refused}: {code}, {err}");
    }
    for (arguments, words) in [
        ("lab run paper-000 conn.log --site other.log=home", "none of the inputs"),
        ("lab run paper-000 conn.log --session=-1", "expected a positive number"),
    ] {
        let (code, _, err) = scene.run(arguments);
        assert!(code == 1 && err.contains(words), "{arguments}: {code}, {err}");
    }
}

#[test]
fn a_reproduction_is_not_continued_with_other_sessions() {
    let scene = Scene::new("continued");
    scene.write("conn.log", connections());
    let run = |options: &str| {
        scene.run(&format!("lab reproduce paper-000 --quick --recording conn.log --out all{options}"))
    };
    assert_eq!(run(" --session 600").0, 0);
    let raw: Value =
        serde_json::from_slice(&std::fs::read(scene.0.join("all/paper-000.json")).unwrap()).unwrap();
    assert_eq!(raw["settings"]["session_ends_after"], 600.0);
    assert_eq!(run(" --session 600").0, 0);
    let (code, _, err) = run("");
    assert!(
        code == 1 && err.contains("way of reading") && err.contains("another directory"),
        "{code}, {err}"
    );
}

/// Where a clock jumps, an address changes hands, or a file comes twice, both verbs say so.
#[test]
fn what_is_odd_about_recordings_is_said() {
    let scene = Scene::new("odd");
    let mut clock = sends(20, &[0, 30, 60, 90, 120]);
    // The clock is right from the third packet on, and put back by an hour for the last.
    clock[0].0 -= BEGIN;
    clock[1].0 -= BEGIN;
    clock[4].0 -= 3_600_000_000;
    scene.write("clock.pcap", pcap(&clock));
    let mut lessees = sends(20, &[0, 30, 60]);
    lessees.extend(sends(21, &[9000, 9030]));
    scene.write("lessees.pcap", pcap(&lessees));
    let clock = "clock.pcap: the times step once back by more than a second and once on by more than a day, first at record 3";
    let hands =
        "192.168.7.20 changed hands: 192.168.7.20 (02:00:00:00:00:14), then 192.168.7.20 (02:00:00:00:00:15)";
    for (file, words) in [("clock.pcap", clock), ("lessees.pcap", hands)] {
        for verb in ["trace", "lab run paper-000"] {
            let (code, text, err) = scene.run(&format!("{verb} {file}"));
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(code == 0 && text.contains(words), "{verb} {file}: {text}{err}");
        }
    }
    let report = scene.json("trace clock.pcap lessees.pcap --json");
    assert_eq!(
        (&report["files"][0]["clock"]["back"], &report["files"][0]["clock"]["record"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(report["handed"][0]["address"], "192.168.7.20");
    std::fs::hard_link(scene.0.join("talk.csv"), scene.0.join("again.csv")).unwrap();
    let once = scene.json("trace talk.csv --json");
    let more = scene.json("trace talk.csv ./talk.csv *.csv again.csv --json");
    assert_eq!(
        (&more["total"]["packets"], more["files"].as_array().unwrap().len()),
        (&once["total"]["packets"], 1)
    );
    scene.write("bad.csv", talk().replace("tablet,1700006410,60,out", "tablet,soon,60,out"));
    let (code, out, err) = scene.run("lab run paper-000 bad.csv --json");
    let report: Value = serde_json::from_str(&out).unwrap();
    let traffic = report["traffic"].to_string();
    assert!(traffic.contains("a stretch could not be read") && traffic.contains("is no time"), "{traffic}");
    assert_eq!((code, &report["provenance"]["inputs"][0]["lost"]), (1, &json!(1)), "{err}");
}

/// What was lost of a recording stands on the first page, in the provenance and on standard error, and the exit code is that of `trace`; so it is
/// when the report is made again from the raw data, and when a reproduction makes it.
#[test]
fn an_experiment_on_half_a_recording_does_not_succeed() {
    let scene = Scene::new("half");
    let frames = sends(20, &[0, 60, 120, 180, 240]);
    let mut half = pcap(&frames);
    half.truncate(half.len() - 10);
    scene.write("half.pcap", half);
    assert_eq!(scene.run("trace half.pcap").0, 1);
    let words = "not read whole: half.pcap: a stretch could not be read";
    for arguments in ["half.pcap --out raw.json --html page.html", "--results raw.json"] {
        let (code, text, err) = scene.run(&format!("lab run paper-000 {arguments}"));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, 1, "{arguments}: {err}");
        assert!(err.contains(&format!("incomplete: {words}")), "{arguments}: {err}");
        let (missing, claims) = (text.find(words).unwrap(), text.find("Claims").unwrap());
        assert!(missing < claims, "{arguments}: it stands behind the claims: {text}");
    }
    let page = std::fs::read_to_string(scene.0.join("page.html")).unwrap();
    assert!(page.contains(words), "{page}");
    let report = std::fs::read_to_string(scene.0.join("raw.report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["provenance"]["inputs"][0]["lost"], 1);
    let (code, said, _) = scene.run("lab reproduce paper-000 --quick --recording half.pcap --out all");
    assert!(code == 1 && said.contains(words), "{code}: {said}");
    // The same recording as a whole.
    scene.write("half.pcap", pcap(&frames));
    let report = scene.json("lab run paper-000 half.pcap --json");
    assert_eq!(report["provenance"]["inputs"][0].get("lost"), None);
}

/// A client whose connections are its sessions has more of them than a campaign has rounds.
#[test]
fn a_client_with_ten_thousand_sessions_has_raw_data() {
    let scene = Scene::new("many");
    let line = |n: u64| {
        let at = 1_700_000_000 + 3 * n;
        format!(
            "{{\"ts\":{at}.0,\"uid\":\"C{n}\",\"id.orig_h\":\"10.0.0.5\",\"id.resp_h\":\"1.1.1.1\",\"duration\":0.5,\"orig_pkts\":3,\"resp_pkts\":1}}\n"
        )
    };
    scene.write("conn.log", (0..10_500).map(line).collect::<String>());
    let [trace, lab] = sessions(&scene, "conn.log --session-by connection");
    assert_eq!(trace, lab);
    assert_eq!(lab.iter().map(|c| c.1).collect::<Vec<_>>(), [10_500]);
    let verified = scene.json("lab verify raw.json --json");
    assert_eq!(verified["files"][0]["differences"], json!([]));
}

/// More devices than are remembered: those beyond the limit do not vanish without a word.
#[test]
fn devices_beyond_the_limit_are_said_to_be_lost() {
    const REMEMBERED: u32 = 1 << 18;
    let scene = Scene::new("limits");
    let mut recording = pcap(&[]);
    // Frames of no protocol that is read: each device sends one.
    for n in 0..REMEMBERED + 10 {
        let [_, a, b, c] = n.to_be_bytes();
        let frame = [2, 0, 0, 0, 0, 1, 2, 0, 1, a, b, c, 0x88, 0xb5];
        let at = [1_700_000_000 + n / 1000, n % 1000, 14, 14];
        recording.extend(at.iter().flat_map(|field| field.to_le_bytes()));
        recording.extend(frame);
    }
    scene.write("crowd.pcap", recording);
    let (code, out, err) = scene.run("trace crowd.pcap --client 02:00:01:00:00:00 --json");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["lost_total"], &report["total"]["packets"]), (1, &json!(1), &json!(1)));
    let words = "10 records of further ends were not looked at for clients";
    assert!(report["lost"][0]["reason"].as_str().unwrap().contains(words), "{out}");
    assert!(err.contains("lost: crowd.pcap") && err.contains("262144 link-layer addresses"), "{err}");
}
