//! `dormouse page` as a browser, another user of the machine and a hostile web site find it; no daemon is there.

#![cfg(feature = "page")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The program, where it listens, and its secret.
struct Served(Child, String, String);

impl Served {
    fn new() -> Self {
        let nowhere = std::env::temp_dir().join(format!("dormouse-no-daemon-{}", std::process::id()));
        let mut process = Command::new(env!("CARGO_BIN_EXE_dormouse"))
            .arg("--socket")
            .arg(nowhere)
            .args(["page", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program");
        let mut line = String::new();
        let out = process.stdout.take().expect("its output");
        let _read = BufReader::new(out).read_line(&mut line);
        let (at, secret) =
            line.trim_end().strip_prefix("http://").unwrap_or_default().split_once('/').unwrap_or_default();
        Self(process, at.to_owned(), secret.trim_end_matches('/').to_owned())
    }

    /// What is answered to a request; nothing where it is only cut off.
    fn asked(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).expect("a server");
        let _cut_off = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _cut_off = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

#[test]
fn only_requests_with_the_whole_address_are_answered() {
    let served = Served::new();
    let (at, secret) = (&served.1, &served.2);
    assert_eq!(secret.len(), 32, "{secret}");
    let get = |path: &str, host: &str| served.asked(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let page = format!("/{secret}/");
    // It may not have looked for the daemon yet.
    let shown = (0..10_000).map(|_| get(&page, at)).find(|shown| !shown.contains("Waiting for the daemon"));
    let shown = shown.expect("it looks for the daemon");
    assert!(shown.starts_with("HTTP/1.1 200 ") && shown.contains("no daemon answers"), "{shown}");
    for field in [
        "Content-Security-Policy: default-src 'none'; style-src 'self';",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
    ] {
        assert!(shown.contains(field), "{field}\n{shown}");
    }
    assert!(get(&format!("{page}style.css"), at).contains("Content-Type: text/css"));

    let wrong = format!("/{}/", "0".repeat(32));
    for path in ["/", "/style.css", &wrong, &format!("/?token={secret}")] {
        assert!(get(path, at).starts_with("HTTP/1.1 404 "), "{path}");
    }
    assert!(get(&page, "evil.example").starts_with("HTTP/1.1 421 "));
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = served.asked(&format!("{method} {page} HTTP/1.1\r\nHost: {at}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 405 "), "{method}: {answer}");
    }
    let long = get(&format!("{page}?{}", "x".repeat(100_000)), at);
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 431 "), "cut off, or refused: {long}");
    // A hundred clients that send nothing do not keep another one out.
    let _slow: Vec<_> = (0..100).map(|_| TcpStream::connect(at)).collect();
    assert!(get(&page, "localhost").starts_with("HTTP/1.1 200 "));
}

#[test]
fn it_listens_on_loopback_alone() {
    for at in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let out = Command::new(env!("CARGO_BIN_EXE_dormouse")).args(["page", "--listen", at]).output();
        let out = out.expect("the program");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains("is not a loopback address"), "{said}");
        assert!(said.contains("--listen 127.0.0.1:0"), "{said}");
    }
}
