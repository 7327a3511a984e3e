//! `dormouse trace` and `dormouse lab` as people and scripts use them: what they print, and how they end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Scene, talk};
use serde_json::Value;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

#[test]
fn the_report_has_the_fields_that_programs_rely_on() {
    let scene = Scene::new("fields");
    let report = scene.json("trace talk.csv --json --break-even 22.3");
    assert_eq!(report["version"], 2);
    assert_eq!(report["synthetic"], false);
    let clients = report["clients"].as_array().unwrap();
    let names: Vec<_> = clients.iter().map(|c| c["client"].as_str().unwrap()).collect();
    assert_eq!(names, ["phone", "tablet", "watch"]);
    for row in clients.iter().chain([&report["total"]]) {
        for field in ["packets", "idle_periods", "idle_seconds"] {
            assert!(row[field].is_number(), "{field} of {row}");
        }
        for policy in ["never", "timeout", "break-even", "paper", "dormouse", "clairvoyant"] {
            let of = &row["policies"][policy];
            for field in ["saved_fraction", "cycles", "missed_opportunities", "packets_lost"] {
                assert!(of[field].is_number(), "{policy}.{field} of {row}");
            }
            assert!(of.get("share_of_clairvoyant").is_some(), "{policy} of {row}");
        }
    }
    let phone = &clients[0];
    assert_eq!((phone["packets"].as_u64(), phone["idle_periods"].as_u64()), (Some(200), Some(99)));
    let saved = phone["policies"]["clairvoyant"]["saved_fraction"].as_f64().unwrap();
    assert!((saved - (59.9 - 22.3) / 59.9).abs() < 1e-9, "{saved}");
    let waited = phone["policies"]["break-even"]["saved_fraction"].as_f64().unwrap();
    assert!((waited - (59.9 - 44.6) / 59.9).abs() < 1e-9, "{waited}");
    assert_eq!(clients[1]["policies"]["never"]["share_of_clairvoyant"], Value::Null);
    // The flag may stand before or behind the verb; provenance has the command as it was given.
    let mut other = scene.json("--json trace talk.csv --break-even 22.3");
    assert_eq!(other["provenance"]["command"][1], "--json");
    other["provenance"]["command"] = report["provenance"]["command"].clone();
    assert_eq!(other, report);
}

/// JSON and page say which program made them, by which command, of which recordings; what is read from standard input is hashed too.
#[test]
fn a_report_says_where_it_comes_from() {
    let scene = Scene::new("provenance");
    scene.write("empty.csv", "client,time,bytes\n");
    // By sha256sum.
    let sha256 = "8f680495a0f49398c4975e95e7806a6edd6baa1a5de1f75ad481516fb424d1a9";
    let report = scene.json("trace talk.csv empty.csv --json --html page.html --break-even 22.3");
    let provenance = &report["provenance"];
    assert_eq!(provenance["versions"]["dormouse"], env!("CARGO_PKG_VERSION"));
    for known in ["commit", "modified", "executable", "kernel", "build"] {
        assert!(provenance["versions"][known].is_string(), "{known}: {provenance}");
    }
    let command: Vec<_> = provenance["command"].as_array().unwrap().iter().skip(1).collect();
    assert_eq!(
        command,
        ["trace", "talk.csv", "empty.csv", "--json", "--html", "page.html", "--break-even", "22.3"]
    );
    let inputs = provenance["inputs"].as_array().unwrap();
    assert_eq!(inputs[1]["file"], "talk.csv");
    assert_eq!(inputs[1]["bytes"], talk().len());
    let hash = inputs[0]["sha256"].as_str().unwrap();
    assert_eq!((hash, &inputs[0]["file"]), (sha256, &Value::from("empty.csv")));
    let page = std::fs::read_to_string(scene.0.join("page.html")).unwrap();
    assert!(page.contains("Provenance") && page.contains(hash) && page.contains("executable"));
    // The same bytes by another way have the same hash.
    let child = scene.command("trace - --json").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_ref().unwrap().write_all(talk().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let piped: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(piped["provenance"]["inputs"][0]["sha256"], inputs[1]["sha256"]);
    // The terminal's text has no such section.
    assert!(!scene.run("trace talk.csv").1.contains("Provenance"));
}

#[test]
fn options_change_what_they_say() {
    let scene = Scene::new("options");
    let one = scene.json("trace talk.csv --json --client phone");
    assert_eq!((one["clients"].as_array().unwrap().len(), &one["rule"]), (1, &Value::from("as asked")));
    let coarse = scene.json("trace talk.csv --json --min-idle 30");
    assert_eq!(coarse["clients"][1]["idle_periods"], 0);
    let all = scene.json("trace talk.csv --json --break-even 22.3 --wake-on all");
    let outgoing = scene.json("trace talk.csv --json --break-even 22.3 --wake-on outgoing");
    assert_eq!(all["total"]["policies"]["break-even"]["packets_lost"], 0);
    assert_eq!(outgoing["wake_on"], "outgoing");
    let psm = scene.json("trace talk.csv --json --baseline psm")["break_even"].as_f64().unwrap();
    let active = scene.json("trace talk.csv --json --baseline active")["break_even"].as_f64().unwrap();
    assert!(psm > 8.0 * active, "{psm} against {active}");
    scene.write("watts", "0.25\n");
    assert_eq!(scene.json("trace talk.csv --json --baseline watts")["break_even"].as_f64(), Some(psm));
    let figure = |value: f64, unit: &str| {
        format!("{{ value = {value}, unit = \"{unit}\", kind = \"estimated\", source = \"test\" }}")
    };
    let state = |name: &str, rest: String| format!("[[state]]\nname = \"{name}\"\n{rest}\n");
    let off = format!("off = true\npower = {}\nleave_energy = {}", figure(0.0, "W"), figure(46.0, "J"));
    scene.write(
        "radio.toml",
        format!(
            "name = \"r\"\n{}{}",
            state("active", format!("power = {}", figure(2.0, "W"))),
            state("off", off)
        ),
    );
    let states = scene.json("trace talk.csv --json --baseline radio.toml --resumption held");
    assert_eq!(states["break_even"].as_f64(), Some(23.0));
    scene.write("flows.csv", "ts,te,td,sa,da,sp,dp,pr,ipkt,ibyt\n2023-11-15 00:00:00,2023-11-15 00:10:00,600,10.0.0.5,1.1.1.1,4000,443,TCP,601,60100\n");
    let even = scene.json("trace flows.csv --json --client 10.0.0.0/8");
    let edges = scene.json("trace flows.csv --json --client 10.0.0.5 --flows edges");
    assert_eq!((&even["total"]["packets"], &edges["total"]["packets"]), (&601.into(), &2.into()));
    assert_eq!(edges["total"]["idle_seconds"], 600.0);
}

#[test]
fn compressed_piped_and_matched_files_are_the_same_recording() {
    let scene = Scene::new("wrapping");
    // The site of a recording without a label is itself.
    let of = |mut report: Value| {
        for client in report["clients"].as_array_mut().unwrap() {
            client.as_object_mut().unwrap().remove("site").unwrap();
        }
        report["clients"].clone()
    };
    let plain = of(scene.json("trace talk.csv --json"));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(talk().as_bytes()).unwrap();
    scene.write("talk.csv.gz", gz.finish().unwrap());
    scene.write("talk.csv.zst", zstd::encode_all(talk().as_bytes(), 1).unwrap());
    for file in ["talk.csv.gz", "talk.csv.zst", "t?lk.csv", "*.gz"] {
        assert_eq!(of(scene.json(&format!("trace {file} --json"))), plain, "{file}");
    }
    let mut child =
        scene.command("trace - --json").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(talk().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(of(serde_json::from_slice(&output.stdout).unwrap()), plain);
    scene.json("trace talk.csv --json --periods talk.parquet");
    let back = of(scene.json("trace talk.parquet --json"));
    assert_eq!(back[0]["idle_seconds"], plain[0]["idle_seconds"]);
    assert_eq!(back[0]["policies"]["paper"], plain[0]["policies"]["paper"]);
    scene.json("trace talk.csv --json --periods talk.arrow");
    assert_eq!(of(scene.json("trace talk.arrow --json")), back);
}

#[test]
fn recordings_are_kept_apart_unless_they_are_called_one_site() {
    let scene = Scene::new("sites");
    scene.write("more.csv", talk().replace("17000", "18000"));
    let packets = |arguments: &str| -> Vec<(String, u64)> {
        let report = scene.json(&format!("trace {arguments} --json"));
        let of = |c: &Value| (c["label"].as_str().unwrap().to_owned(), c["packets"].as_u64().unwrap());
        report["clients"].as_array().unwrap().iter().map(of).collect()
    };
    let phone = |label: &str, packets: u64| (label.to_owned(), packets);
    assert_eq!(
        packets("talk.csv ./talk.csv more.csv --client phone"),
        [phone("phone in more.csv", 200), phone("phone in talk.csv", 200)]
    );
    assert_eq!(packets("talk.csv more.csv --client phone --site *.csv=home"), [phone("phone", 400)]);
    let (_, table, _) = scene.run("trace talk.csv more.csv");
    assert!(table.contains("3 names occur in several recordings"), "{table}");
    scene.json("trace talk.csv more.csv --json --periods both.parquet");
    assert_eq!(packets("both.parquet --client phone").len(), 2);
    scene.json("trace talk.csv more.csv --json --periods both/");
    let parts = scene.0.join("both").read_dir().unwrap().count();
    assert!(parts > 1);
    let (whole, parted) = (packets("both.parquet"), packets("both"));
    assert_eq!((parted.len(), parted.iter().map(|p| p.1).sum::<u64>()), (6, 2 * 301));
    assert_eq!(parted[0].0, whole[0].0.replace("both.parquet", "both"));
    scene.write("both/part-of-another.parquet", "");
    let (code, _, err) = scene.run("trace talk.csv --json --periods both");
    assert!(code == 1 && err.contains("another table's part-of-another.parquet"), "{err}");
}

/// What a merged report says of where it comes from: its own command and the results that it read, and of these by which commands they were made of
/// which recordings.
fn comes_from_results(origin: &Value, of_one: &Value, options: &str) {
    assert_eq!(origin["versions"], of_one["versions"]);
    assert!(origin["versions"]["commit"].is_string() && origin["versions"]["modified"].is_string());
    assert_eq!((&origin["command"][1], &origin["command"][2]), (&"trace".into(), &"merge".into()));
    let [results, parts] = ["inputs", "of_inputs"].map(|key| origin[key].as_array().unwrap());
    let recordings = of_one["inputs"].as_array().unwrap();
    assert_eq!((results.len(), parts.len(), recordings.len()), (3, 3, 3));
    for ((result, part), recording) in results.iter().zip(parts).zip(recordings) {
        let name = recording["file"].as_str().unwrap();
        assert_eq!(result["file"], format!("{name}.results"));
        assert_eq!(result["sha256"].as_str().unwrap().len(), 64);
        assert_ne!(result["sha256"], recording["sha256"]);
        assert_eq!(part["inputs"], serde_json::json!([recording]), "{name}");
        assert_eq!(part["versions"], of_one["versions"]);
        let command = part["command"].as_array().unwrap();
        let given: Vec<&str> = command.iter().skip(1).map(|word| word.as_str().unwrap()).collect();
        assert_eq!(given.join(" "), format!("trace {name} --results {name}.results{options}"));
    }
}

/// What several machines have accounted, each its own recordings, makes the report of one machine that reads all of them, but for where it comes from.
#[test]
fn results_of_several_machines_make_the_report_of_one() {
    let scene = Scene::new("merge");
    let made = scene.run("trace generate --clients 40 --days 3 made.parquet");
    assert_eq!(made.0, 0, "{made:?}");
    // Clients of the same name at two places.
    scene.write("talk-2.csv", talk().replace(",60,out", ",61,out"));
    let files = ["made.parquet", "talk.csv", "talk-2.csv"];
    for options in
        ["", " --timeout 5 --session-by association", " --session 0 --wake-on outgoing --flows edges"]
    {
        for file in files {
            let one = scene.run(&format!("trace {file} --results {file}.results{options}"));
            assert_eq!(one.0, 0, "{one:?}");
        }
        let mut merged =
            scene.json("trace merge talk.csv.results made.parquet.results talk-2.csv.results --json");
        let mut one = scene.json(&format!("trace {}{options} --json", files.join(" ")));
        let [origin, of_one] = [&mut merged, &mut one]
            .map(|report| report.as_object_mut().unwrap().remove("provenance").unwrap());
        comes_from_results(&origin, &of_one, options);
        assert_eq!(merged, one, "{options:?}");
        assert!(merged["clients"].as_array().unwrap().iter().any(|c| c["label"] == "phone in talk-2.csv"));
        let text = scene.run("trace merge *.results");
        assert_eq!((text.0, &text.1), (0, &scene.run(&format!("trace {}{options}", files.join(" "))).1));
    }
    // The results are of the last options: others are not added to them, nor is one client twice, nor half a file.
    let refused = |arguments: &str, why: &str| {
        let (code, _, said) = scene.run(arguments);
        assert!(code == 1 && said.contains(why), "{arguments}: {code}, {said}");
    };
    assert_eq!(scene.run("trace talk.csv --results other.results --timeout 6").0, 0);
    refused("trace merge made.parquet.results other.results", "other settings");
    std::fs::copy(scene.0.join("talk.csv.results"), scene.0.join("again.results")).unwrap();
    refused("trace merge talk.csv.results again.results", "two results of phone");
    let whole = std::fs::read_to_string(scene.0.join("made.parquet.results")).unwrap();
    let lines = whole.lines().count();
    for cut in [0, 1, lines / 2, lines - 1] {
        let half: Vec<&str> = whole.lines().take(cut).collect();
        scene.write("half.results", half.join("\n"));
        refused("trace merge half.results", if cut == 0 { "empty" } else { "cut off" });
    }
    scene.write("half.results", &whole[..whole.len() / 2]);
    refused("trace merge half.results", "half.results: client");
    scene.write("half.results", format!("{whole}{whole}"));
    refused("trace merge half.results", "behind its end");
    refused("trace merge talk.csv", "no results of clients");
    refused("trace merge nowhere.results", "nowhere.results");
}

#[test]
fn what_ends_a_session_can_be_chosen() {
    let scene = Scene::new("sessions");
    let line = |uid: &str, at: u64| {
        format!(
            "{{\"ts\":{at}.0,\"uid\":\"{uid}\",\"id.orig_h\":\"10.0.0.5\",\"id.resp_h\":\"1.1.1.1\",\"duration\":60.0,\"orig_pkts\":3,\"resp_pkts\":0}}\n"
        )
    };
    scene.write("conn.log", line("Ca", 1_700_000_000) + &line("Cb", 1_700_000_100));
    let report = |rule: &str| scene.json(&format!("trace conn.log --json --session-by {rule}"));
    let (silence, connection) = (report("silence"), report("connection"));
    assert_eq!((&silence["total"]["sessions"], &silence["total"]["idle_periods"]), (&1.into(), &5.into()));
    assert_eq!(
        (&connection["total"]["sessions"], &connection["total"]["idle_periods"]),
        (&2.into(), &4.into())
    );
    assert_eq!(connection["session_by"], "connection");
}

#[test]
fn what_is_synthetic_says_so_in_every_output() {
    let scene = Scene::new("synthetic");
    for name in ["day.csv", "day.csv.zst", "day.pcapng", "day.pcapng.gz", "day.parquet", "day.arrow"] {
        let made = scene.json(&format!("trace generate {name} --clients 5 --seed 3 --json"));
        assert_eq!((&made["synthetic"], &made["file"]), (&true.into(), &name.into()));
        assert!(made["label"].as_str().unwrap().starts_with("SYNTHETIC"));
        let report = scene.json(&format!("trace {name} --json --html page.html --periods out.parquet"));
        assert_eq!(report["synthetic"], true, "{name}");
        assert_eq!(report["total"]["packets"], made["packets"], "{name}");
        let (_, table, _) = scene.run(&format!("trace {name}"));
        assert!(table.starts_with("SYNTHETIC"), "{table}");
        let page = std::fs::read_to_string(scene.0.join("page.html")).unwrap();
        assert!(page.to_lowercase().contains("synthetic traffic"), "{name}");
        let again = scene.json("trace out.parquet --json");
        assert_eq!(again["synthetic"], true, "{name} by way of its idle periods");
    }
    let text = std::fs::read_to_string(scene.0.join("day.csv")).unwrap();
    assert!(text.starts_with("# SYNTHETIC") && text.contains("synthetic-00004"));
}

#[test]
fn damaged_input_is_read_as_far_as_it_goes_and_ends_with_1() {
    let scene = Scene::new("damaged");
    scene.write("bad.csv", talk().replace("tablet,1700006410,60,out", "tablet,soon,60,out"));
    let (code, out, err) = scene.run("trace bad.csv --json");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["lost_total"]), (1, &1.into()));
    assert_eq!(report["clients"][1]["packets"], 99);
    assert!(err.contains("bad.csv") && err.contains("\"soon\" is no time"), "{err}");
    scene.write("nonsense", [0x7f; 100]);
    let (code, out, err) = scene.run("trace nonsense talk.csv --json");
    assert_eq!(code, 1, "{err}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["clients"].as_array().unwrap().len(), 3);
    assert!(err.contains("nonsense") && err.contains("7f 7f"), "{err}");
}

#[test]
fn what_cannot_be_done_is_said_with_its_name() {
    let scene = Scene::new("refused");
    for (arguments, code, words) in [
        ("trace missing.pcap", 1, "missing.pcap: no such file"),
        ("trace no*thing", 1, "no*thing: no such file"),
        ("trace .", 1, ".: a directory without part-*.parquet"),
        ("trace talk.csv --break-even -3", 2, "unexpected argument"),
        ("trace talk.csv --break-even=-3", 1, "expected a positive number"),
        ("trace talk.csv --wake-on sometimes", 2, "[possible values: all, outgoing]"),
        ("trace talk.csv --flows odd", 2, "expected even or edges"),
        ("trace talk.csv --session-by luck", 2, "expected silence, association or connection"),
        ("trace talk.csv --session-by connection --periods out", 1, "not with --session-by connection"),
        ("trace talk.csv --min-idle 0.0001", 1, "at least a millisecond"),
        ("trace talk.csv --site other.csv=home", 1, "none of the inputs"),
        ("trace talk.csv --site talk.csv", 1, "expected FILE=LABEL"),
        ("trace talk.csv --resumption magic", 2, "mobike+ticket"),
        ("trace talk.csv --profile nothing", 1, "laptop-000"),
        ("trace talk.csv --profile pda-001", 1, "pda-001"),
        ("trace talk.csv --baseline nothing", 1, "neither active nor psm"),
        ("trace talk.csv --baseline talk.csv", 1, "expected a power in watts"),
        ("trace talk.csv --html /dev/full", 1, "/dev/full"),
        ("trace talk.csv --periods /dev/full", 1, "/dev/full"),
        ("trace talk.csv --periods /nowhere/out", 1, "/nowhere/out"),
        ("trace generate day.txt", 1, ".pcapng"),
        ("trace generate day.parquet.gz --clients 1", 1, "drop the last suffix"),
        ("trace generate", 2, "<FILE>"),
        ("trace record nowhere7 out.pcap", 1, "nowhere7"),
        ("lab run paper-007", 2, "paper-000"),
        ("lab run paper-000-live --clients 0", 2, "0"),
        ("lab run paper-000 --resume raw.json", 1, "measures nothing"),
        ("lab run paper-000 --results talk.csv", 1, "talk.csv"),
        ("lab verify talk.csv", 1, "talk.csv"),
        ("lab verify .", 1, "no raw data"),
        ("lab reproduce", 2, "<EXPERIMENT>"),
        ("lab reproduce --all", 2, "--quick"),
        ("lab reproduce paper-007 --quick", 2, "paper-000"),
        ("lab reproduce paper-000 --quick --out talk.csv", 1, "talk.csv"),
        ("lab link --rate 2x", 2, "bits in a second"),
        ("lab link --bit-errors 1/0", 2, "1/64k"),
        ("lab link --bursts 0.1,2,1", 2, "0 to 1"),
        ("lab link --delay 5", 2, "5ms"),
        ("lab run paper-002 --clients 10001", 1, "1 to 10000"),
        ("lab run paper-002 --results talk.csv", 1, "talk.csv"),
    ] {
        let (found, _, err) = scene.run(arguments);
        assert_eq!(found, code, "{arguments}: {err}");
        assert!(err.contains(words), "{arguments}: {err}");
    }
    std::os::unix::fs::symlink("/dev/full", scene.0.join("full.csv")).unwrap();
    let (code, _, err) = scene.run("trace generate full.csv --clients 2");
    assert_eq!(code, 1);
    assert!(err.contains("full.csv") && err.contains("No space left"), "{err}");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = scene.command("trace talk.csv").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"));
    assert!(!scene.0.join("out.pcap").exists(), "a capture that cannot begin leaves no file");
}

#[test]
fn what_needs_a_privilege_ends_with_7_without_it() {
    let scene = Scene::new("privilege");
    for (arguments, words) in [
        ("trace record lo out.pcap --duration 0.1", "CAP_NET_RAW"),
        ("lab run paper-000-live --clients 1", "needs root"),
        ("lab link", "needs root"),
    ] {
        let mut command = scene.command(arguments);
        if std::fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t") {
            command.uid(65_534).gid(65_534);
        }
        // Where no user may run the program there is nothing to test.
        let Ok(output) = command.output() else {
            return eprintln!("skipped: the program is in a closed directory");
        };
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{arguments}: {err}");
        assert!(err.contains(words), "{arguments}: {err}");
    }
}

#[test]
fn the_lab_lists_and_runs_its_experiments() {
    let scene = Scene::new("lab");
    let list = scene.json("lab list --json");
    let names: Vec<_> = list["experiments"].as_array().unwrap().iter().map(|e| e["name"].clone()).collect();
    for name in ["paper-000", "paper-000-live", "paper-002"] {
        assert!(names.contains(&name.into()), "{names:?}");
    }
    let report = scene.json("lab run paper-000 --clients 20 --json --html lab.html --out raw.json");
    let verified = scene.json("lab verify raw.json --json");
    let file = &verified["files"][0];
    // The report in three forms, and its exhibits.
    assert!(file["compared"].as_array().unwrap().len() > 3, "{file}");
    assert_eq!(file["differences"], serde_json::json!([]));
    let tampered =
        std::fs::read_to_string(scene.0.join("raw.txt")).unwrap().replacen("contradicted", "confirmed", 1);
    std::fs::write(scene.0.join("raw.txt"), tampered).unwrap();
    let (code, out, _) = scene.run("lab verify .");
    assert!(code == 1 && out.contains("raw.txt: line") && out.contains("confirmed"), "{out}");
    assert_eq!(report["synthetic"], true);
    let figures = report["figures"].as_array().unwrap();
    for place in ["Fig. 2", "Fig. 4", "Fig. 5", "Fig. 7", "Fig. 8", "Fig. 9", "Fig. 11", "Fig. 12"] {
        assert!(figures.iter().any(|f| f["place"].as_str().is_some_and(|p| p.starts_with(place))), "{place}");
    }
    let claims = report["claims"].to_string();
    for stated in ["78 %", "more than 50 %", "alpha 0.5 and beta 0.8", "within 3.5 points", "60 %", "70 %"] {
        assert!(claims.contains(stated), "{stated}");
    }
    let page = std::fs::read_to_string(scene.0.join("lab.html")).unwrap();
    assert!(page.contains("not public") && page.to_lowercase().contains("synthetic"));
}
