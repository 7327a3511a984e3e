//! What tests of verbs on recordings share: a directory with one, and the program run in it.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A directory for one test, removed with it.
pub(crate) struct Scene(pub(crate) PathBuf);

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Three clients: `phone` sends something every minute, and is answered; `tablet` every ten seconds; `watch` once.
pub(crate) fn talk() -> String {
    let mut lines = vec![(0, "watch,1700006400,60,out".to_owned())];
    for n in 0..100 {
        let at = n * 60;
        lines.push((at, format!("phone,{}.5,60,out", 1_700_006_400 + at)));
        lines.push((at, format!("phone,{}.6,80,in", 1_700_006_400 + at)));
    }
    lines.extend((0..100).map(|n| (n * 10, format!("tablet,{},60,out", 1_700_006_400 + n * 10))));
    lines.sort();
    let lines: Vec<String> = lines.into_iter().map(|l| l.1).collect();
    format!("client,time,bytes,direction\n{}\n", lines.join("\n"))
}

impl Scene {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dormouse-traffic-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("talk.csv"), talk()).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), content).unwrap();
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command.args(arguments.split(' ')).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    /// Exit code, standard output and standard error.
    pub(crate) fn run(&self, arguments: &str) -> (i32, String, String) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// The report of a run that succeeds.
    pub(crate) fn json(&self, arguments: &str) -> Value {
        let (code, out, err) = self.run(arguments);
        assert_eq!(code, 0, "{arguments}: {err}");
        serde_json::from_str(&out).unwrap()
    }
}

/// A pcap file of Ethernet frames with times in microseconds.
pub(crate) fn pcap(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for (at, frame) in frames {
        for field in [at / 1_000_000, at % 1_000_000, frame.len() as u64, frame.len() as u64] {
            out.extend((field as u32).to_le_bytes());
        }
        out.extend(frame);
    }
    out
}

/// A UDP datagram between two addresses on Ethernet, from this device to the router with the last bytes of link-layer addresses `mac` and 1.
pub(crate) fn datagram(mac: u8, [src, dst]: [[u8; 4]; 2], [sp, dp]: [u16; 2]) -> Vec<u8> {
    let mut frame =
        vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, mac, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    frame.extend([src, dst].concat());
    frame.extend([sp.to_be_bytes(), dp.to_be_bytes()].concat());
    frame.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}
