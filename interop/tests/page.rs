//! `dormouse page` in a real browser, with the daemons of a device and of a gateway: what it says, that it fits a phone, and that it says when the daemon goes.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{NET, PATIENCE, POOL, SECRET, by_secret};
use dormouse_testbed::browser::validate_at;
use dormouse_testbed::{Access, Dormoused, Need, Roaming, binary, require};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];

/// The program, and the address that it prints.
struct Served {
    process: Child,
    url: String,
}

impl Served {
    fn of(socket: &Path) -> Result<Self> {
        let mut process = Command::new(binary("dormouse"))
            .arg("--socket")
            .arg(socket)
            .arg("page")
            .stdout(Stdio::piped())
            .spawn()?;
        let mut url = String::new();
        let out = process.stdout.take().context("its output")?;
        let read = BufReader::new(out).read_line(&mut url);
        let served = Self { process, url: url.trim_end().to_owned() };
        read?;
        Ok(served)
    }

    fn text(&self) -> Result<String> {
        let rest = self.url.strip_prefix("http://").context("an address")?;
        let (at, path) = rest.split_once('/').context("a path")?;
        let mut stream = TcpStream::connect(at)?;
        stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Waits until it says this.
    fn until(&self, wanted: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = self.text()?;
            if text.contains(wanted) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "not in time: {wanted}\n{text}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// In a window of a phone and of a desk these words are there, and nothing leaves the window.
    fn shows(&self, test: &str, words: &[&str]) {
        for look in validate_at(test, &self.url).into_iter().flatten() {
            assert!(look.sideways.is_empty(), "{test}, {} pixels: {:?}", look.width, look.sideways);
            for one in words {
                assert!(look.document.contains(one), "{test}: {one}\n{}", look.document);
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

#[test]
fn a_browser_shows_what_a_device_and_a_gateway_do() -> Result<()> {
    if !require("the page of both ends", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let toml = format!("[standin]\n{}", by_secret("gateway", "gateway.test", "*.test", SECRET, POOL));
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &toml)?;
    let client = by_secret("client", "device.test", "gateway.test", SECRET, NET);
    let toml = format!("[sleep]\nradio = \"none\"\n{client}");
    let device = Dormoused::start(&world.device, "dns = \"off\"", &toml)?;
    device.ok(&["up", "peer"])?;

    let at_device = Served::of(&Dormoused::socket_in(&world.device))?;
    let at_gateway = Served::of(&Dormoused::socket_in(&world.gateway))?;
    at_device.until("<b>awake</b>")?;
    device.ok(&["suspend"])?;
    at_device.until("<b>asleep</b> for ")?;
    at_gateway.until(">asleep</td>")?;
    at_gateway.shows("the page of a gateway", &["Gateway", "device.test", "half open", "traffic: in"]);
    device.ok(&["resume"])?;
    at_device.until(">user</td>")?;
    let words = [
        "Radio",
        "J (estimated, profile ",
        "What woke it",
        "The day",
        "<rect class=\"asleep\"",
        "gateway.test",
    ];
    at_device.shows("the page of a device", &words);

    // The daemon goes, and another one comes.
    drop(gateway);
    at_gateway.until("Below is what it said")?;
    at_gateway.shows("the page without a daemon", &["Below is what it said", "device.test"]);
    let toml = by_secret("gateway", "gateway.test", "*.test", SECRET, POOL);
    let _again = Dormoused::start(&world.gateway, "dns = \"off\"", &toml)?;
    let end = Instant::now() + PATIENCE;
    while at_gateway.text()?.contains("Below is what it said") {
        ensure!(Instant::now() < end, "it does not find the daemon again");
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
