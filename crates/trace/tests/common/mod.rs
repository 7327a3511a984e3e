//! What the tests share: the recordings, temporary files, a whole analysis, and pcap by hand.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use dormouse_energy::account::Settings;
use dormouse_energy::model::SleepCost;
use dormouse_trace::activity::Activity;
use dormouse_trace::analyse::{Analysis, Options, account, analyse, survey_all};
use dormouse_trace::clients::{Client, Directory};
use dormouse_trace::facts::Limits;
use dormouse_trace::flow::Spread;
use dormouse_trace::fold::Sessions;
use dormouse_trace::input::Input;
use dormouse_trace::periods::Collector;
use dormouse_trace::report::json::{Accounting, Report};
use dormouse_trace::table_file::{ActivityWriter, Layout};

/// A recording of the set used for tests, or `None` (and a word about it) where it is missing.
pub(crate) fn recording(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("DORMOUSE_TRACES").map_or(root, PathBuf::from);
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is missing (set DORMOUSE_TRACES)", path.display());
    None
}

/// A temporary file that is removed when dropped, also when the test fails.
pub(crate) struct Temporary(pub(crate) PathBuf);

impl Temporary {
    pub(crate) fn new(name: &str) -> Self {
        // Tests of one process run at once, and two may choose the same name.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(format!("dormouse-trace-{process}-{number}-{name}")))
    }

    pub(crate) fn with(name: &str, content: &[u8]) -> Self {
        let file = Self::new(name);
        std::fs::write(&file.0, content).expect("a temporary file");
        file
    }

    pub(crate) fn input(&self) -> Input {
        Input::file(&self.0)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn options() -> Options {
    Options {
        wanted: Vec::new(),
        format: None,
        spread: Spread::Even,
        settings: Settings::new(SleepCost::constant(22.3)),
        sessions: Sessions::Silence,
        limits: Limits::default(),
        policies: Options::policies(60.0),
        threads: 2,
    }
}

pub(crate) fn run(inputs: &[Input], options: &Options) -> Analysis<()> {
    analyse(inputs, options, &|_, _| (), &|_| ()).expect("an analysis")
}

pub(crate) fn report(inputs: &[Input], options: &Options) -> Report {
    let accounting = Accounting::of(options);
    Report::new(&run(inputs, options), accounting)
}

/// Writes the activities of inputs.
pub(crate) fn table(inputs: &[Input], options: &Options, output: &Temporary) {
    let survey = survey_all(inputs, None, options.limits, 1, &|_, _| ());
    let (directory, rule) = Directory::find(&survey.sites, &[]);
    let file = std::fs::File::create(&output.0).expect("a temporary file");
    let layout = Layout::of_name(&output.0.to_string_lossy());
    let mut writer = ActivityWriter::new(file, layout, 250_000_000, None).expect("a writer");
    let mut collector = Collector::new(250_000_000);
    let who = |id: u32| -> Option<Client> { directory.clients().get(id as usize).cloned() };
    let mut tap = |a: &Activity| collector.piece(a, &mut |p| writer.push(p, &who).expect("written"));
    account(inputs, survey, &directory, rule, options, &|_, _| (), &|_| (), &mut tap).expect("an analysis");
    collector.finish(&mut |p| writer.push(p, &who).expect("written"));
    writer.finish(&who).expect("written");
}

/// A pcap file of frames with times in microseconds.
pub(crate) fn pcap(link: u32, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
    out.extend(link.to_le_bytes());
    for (at, frame) in frames {
        for field in [at / 1_000_000, at % 1_000_000, frame.len() as u64, frame.len() as u64] {
            out.extend((field as u32).to_le_bytes());
        }
        out.extend(frame);
    }
    out
}

/// An IPv4 packet with UDP ports.
pub(crate) fn udp(src: [u8; 4], dst: [u8; 4], sp: u16, dp: u16) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    p.extend(src);
    p.extend(dst);
    p.extend(sp.to_be_bytes());
    p.extend(dp.to_be_bytes());
    p.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    p
}

pub(crate) const PHONE: [u8; 4] = [192, 168, 7, 20];
pub(crate) const SERVER: [u8; 4] = [203, 0, 113, 9];
pub(crate) const PHONE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 20];
pub(crate) const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Times in microseconds and whether the phone sent: eight packets, four silences of at least a quarter of a second.
pub(crate) const TALK: [(u64, bool); 8] = [
    (1_600_000_000_000_000, true),
    (1_600_000_000_050_000, false),
    (1_600_000_030_000_000, true),
    (1_600_000_030_100_000, false),
    (1_600_000_030_400_000, false),
    (1_600_000_100_000_000, true),
    (1_600_000_100_249_999, true),
    (1_600_000_200_000_000, true),
];

/// The talk as IPv4 packets.
pub(crate) fn talk() -> Vec<(u64, bool, Vec<u8>)> {
    let packet = |out: bool| if out { udp(PHONE, SERVER, 4000, 443) } else { udp(SERVER, PHONE, 443, 4000) };
    TALK.iter().map(|(at, out)| (*at, *out, packet(*out))).collect()
}

/// The talk as Ethernet frames.
pub(crate) fn talk_on_ethernet() -> Vec<(u64, Vec<u8>)> {
    let frame = |out: bool, packet: &[u8]| {
        let (dst, src) = if out { (ROUTER_MAC, PHONE_MAC) } else { (PHONE_MAC, ROUTER_MAC) };
        [&dst[..], &src, &[8, 0], packet].concat()
    };
    talk().into_iter().map(|(at, out, p)| (at, frame(out, &p))).collect()
}
