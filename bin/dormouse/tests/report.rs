//! `dormouse report` as who has a fault to report sees it: a known secret in every place that may hold one, and none in the archive.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use dormouse_control::{Error, ErrorKind, Response, line};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Secrets have this in them, and nothing else has.
const MARK: &str = "xyzzy";

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("dormouse-report-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    }

    /// With a log that tells everything.
    fn report(&self, more: &[&str]) -> (i32, String) {
        self.write("bin/journalctl", &format!("#!/bin/sh\ncat {}/log\n", self.0.display()), 0o755);
        let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command.env("PATH", path).current_dir(&self.0).arg("--socket").arg(self.0.join("socket"));
        let out = command
            .arg("report")
            .arg("--config")
            .arg(self.0.join("dormouse.toml"))
            .args(more)
            .output()
            .unwrap();
        let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (out.status.code().unwrap(), text)
    }

    /// The files of an archive, by `tar`.
    fn unpacked(&self, archive: &Path) -> Vec<(String, String)> {
        let to = self.0.join("unpacked");
        fs::create_dir_all(&to).unwrap();
        assert!(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&to).status().unwrap().success());
        let inside = fs::read_dir(&to).unwrap().next().unwrap().unwrap().path();
        let all = fs::read_dir(inside).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = all
            .map(|path| {
                (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap())
            })
            .collect();
        all.sort();
        all
    }
}

#[test]
fn no_secret_of_a_configuration_is_in_the_archive() {
    let place = Place::new("secret");
    let psk = place.write("keys-xyzzy-1/psk-xyzzy-2.secret", "psk-in-a-file-xyzzy-3\n", 0o600);
    let key = place.write(
        "keys-xyzzy-1/device-xyzzy-4.key",
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vwxyzzy5\n-----END PRIVATE KEY-----\n",
        0o600,
    );
    let pin = place.write("pin-xyzzy-13", "pin-xyzzy-14\n", 0o600);
    let users = "[joe]\nnt_hash = \"xyzzy-16\"\n[ann]\nnt_hash = \"xyzzy-17\"\n";
    let users = place.write("users.toml", users, 0o600);
    let text = format!(
        "[daemon]\nlog = \"debug\"\nstate_dir = \"/srv/state-xyzzy-6\"\n\
         [sleep]\nradio = \"command\"\ncommand_off = [\"/opt/xyzzy-7/radio\", \"--token\", \"xyzzy-8\"]\ncommand_on = [\"true\"]\n\
         [connection.office]\nrole = \"client\"\ngateway = \"vpn.example.org\"\n\
         [connection.office.local]\nid = \"me.example.org\"\nsecret = \"inline \\\"xyzzy-9\\\"\"\n\
         [connection.office.remote]\nid = \"vpn.example.org\"\nsecret_file = \"{psk}\"\n\
         crl = [\"http://user:xyzzy-10@example.org/x.crl\"]\n\
         [[connection.office.ppk.keys]]\nid = \"one\"\nsecret = \"0xxyzzy11\"\n\
         [connection.other]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n\
         [connection.other.local]\nid = \"me.example.org\"\ncertificate = \"{0}/office-xyzzy-12.pem\"\nkey = \"{key}\"\n\
         [connection.other.remote]\nid = \"b\"\n\
         [connection.token]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n\
         [connection.token.local]\nid = \"t\"\ncertificate = \"/x.pem\"\nkey = \"pkcs11:token=a;object=xyzzy-15?pin-source=file:{pin}\"\n\
         [connection.token.remote]\nid = \"b\"\n\
         [connection.users]\nrole = \"gateway\"\n[connection.users.local]\nid = \"gw\"\n\
         [connection.users.remote]\nid = \"*\"\nauth = \"eap-mschapv2\"\nusers = \"{users}\"\n",
        place.0.display()
    );
    place.write("dormouse.toml", &text, 0o600);
    // Whoever writes a log badly: all of the configuration, the files, and lines of their own.
    let files = [&psk, &key, &pin].map(|path| fs::read_to_string(path).unwrap()).concat();
    place.write(
        "log",
        &format!(
            "it says:\n{text}{files}key file {key}\nann has xyzzy-17\nsession of me.example.org is up\n"
        ),
        0o600,
    );
    let listener = UnixListener::bind(place.0.join("socket")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let _ = stream.read_line(&mut String::new());
            let told = Error::new(ErrorKind::Other, "the psk is inline \"xyzzy-9\" or psk-in-a-file-xyzzy-3");
            let _ = stream.get_mut().write_all(line(&Response::error(told)).unwrap().as_bytes());
        }
    });

    let archive = place.0.join("report.tar.gz");
    let (code, said) = place.report(&["--out", "report.tar.gz"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("configuration.toml") && said.contains("read it before you send it"), "{said}");
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let all = place.unpacked(&archive);
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "README.txt",
        "configuration.toml",
        "counters.json",
        "doctor.json",
        "log.txt",
        "status.json",
        "versions.txt",
    ];
    assert_eq!(names, expected);
    for (name, content) in &all {
        assert!(!content.contains(MARK), "{name}: {content}");
        assert!(!content.contains("MC4CAQ"), "{name}: {content}");
        assert!(!content.is_empty(), "{name}");
    }
    let of = |name: &str| &all.iter().find(|(found, _)| found == name).unwrap().1;
    assert!(of("log.txt").contains("session of me.example.org is up"), "{}", of("log.txt"));
    for part in
        ["[connection.office]", "gateway = \"vpn.example.org\"", "log = \"debug\"", "radio = \"command\""]
    {
        assert!(of("configuration.toml").contains(part), "{part}: {}", of("configuration.toml"));
    }
    assert!(
        of("versions.txt").contains("dormouse 0.") && of("versions.txt").contains("Linux"),
        "{}",
        of("versions.txt")
    );
    for name in ["status.json", "counters.json", "doctor.json"] {
        serde_json::from_str::<serde_json::Value>(of(name)).unwrap();
    }
    // What is there is not replaced.
    let (code, said) = place.report(&["--out", "report.tar.gz"]);
    assert!(code == 1 && said.contains("is there already"), "{code}: {said}");
}

/// The daemon's parser shows the line that it stumbles over: so do its log and `doctor`.
#[test]
fn nor_one_of_a_configuration_that_cannot_be_read() {
    let place = Place::new("broken");
    let text = "[connection.office.local]\nid = \"me\"\nsecret = \"xyzzy-1\n";
    place.write("dormouse.toml", text, 0o600);
    place.write("log", "3 | secret = \"xyzzy-1\n  | no closing xyzzy-1\n", 0o600);
    let (code, said) = place.report(&["--json"]);
    assert_eq!(code, 0, "{said}");
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    let file = place.0.join(answer["file"].as_str().unwrap());
    for (name, content) in place.unpacked(&file) {
        assert!(!content.contains(MARK), "{name}: {content}");
    }
    // Nor one that is TOML and none of ours, in a file that is elsewhere: its line is shown as it is written.
    let psk = place.write("psk", "psk-in-a-file-xyzzy-4\n", 0o600);
    let line = "local = { id = \"me\", secret = \"p\\u00e4ss\\u0078yzzy-2\", nonsense = 1 } # was xyzzy-3";
    let text = format!("[connection.office]\n{line}\nremote.secret_file = \"{psk}\"\n");
    let real = place.write("real-xyzzy-5/dormouse.toml", &text, 0o600);
    fs::remove_file(place.0.join("dormouse.toml")).unwrap();
    std::os::unix::fs::symlink(&real, place.0.join("dormouse.toml")).unwrap();
    place.write("log", &format!("{real}: 2 | {line}\npsk-in-a-file-xyzzy-4\n"), 0o600);
    fs::remove_dir_all(place.0.join("unpacked")).unwrap();
    let (code, said) = place.report(&["--out", "third.tar.gz"]);
    assert_eq!(code, 0, "{said}");
    for (name, content) in place.unpacked(&place.0.join("third.tar.gz")) {
        assert!(!content.contains("yzzy"), "{name}: {content}");
    }
    // Without a configuration, too.
    fs::remove_file(place.0.join("dormouse.toml")).unwrap();
    let (code, said) = place.report(&["--out", "second.tar.gz"]);
    assert_eq!(code, 0, "{said}");
}
