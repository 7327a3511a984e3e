//! The hour as a document: one sentence and one chart of what sleeping was worth, the timelines over one axis, the table, and what its words
//! mean. Owns the look and the words; the only arithmetic here is from joules to hours of battery.

use std::collections::BTreeSet;

use dormouse_energy::profile::{Profile, names};
use dormouse_report::{Bar, Bars, Block, Document, Part, Subject, Table, Track, Tracks, percent, thousands};

use super::{Frame, PROFILE, traffic};
use crate::calibrate::figures::DEVICE_BASELINE_POWER;
use crate::demo::Point;
use crate::judge::stats::quantile;
use crate::results::{Figures, Results};

/// The policy that never sleeps, and the one that ships.
const NEVER: &str = "never";
const OURS: &str = "dormouse";
/// Hours of battery of a device whose radio is always on, to which others are compared.
const CHARGE: f64 = 10.0;

/// What a policy made of the hour.
struct Lived {
    policy: String,
    figures: Figures,
}

/// The document of the hour, if it was lived through; `page` for all of it, with timelines and glossary.
#[must_use]
pub fn document(results: &Results<Point>, page: bool) -> Option<Document> {
    let frame: Frame = serde_json::from_value(results.settings.clone()).ok()?;
    let of = |s: &crate::results::Sample<Point>| {
        Some(Lived { policy: s.policy.clone()?, figures: s.rounds.first()?.figures.clone() })
    };
    let all: Vec<Lived> = results.samples.iter().filter_map(of).collect();
    let mut document = Document {
        title: "A device's working hour".to_owned(),
        lead: lead(&all, &frame),
        synthetic: true,
        blocks: vec![Block::Bars(bars(&all, &frame))],
        about: "dormouse demo".to_owned(),
    };
    if page {
        document.blocks.push(Block::Tracks(tracks(&all)));
    }
    document.section("figures", "In figures", [Part::Table(table(&all, &frame))]);
    if page {
        document.section("words", "What the words mean", [Part::Terms(terms(&frame))]);
    }
    document.section("made", "How this was made", [Part::Text(made(&frame))]);
    Some(document)
}

impl Lived {
    fn one(&self, name: &str) -> Option<f64> {
        self.figures.one(name).filter(|v| v.is_finite())
    }

    /// As people call it.
    fn name(&self) -> String {
        match self.policy.as_str() {
            NEVER => "Radio always on",
            "paper" => "Paper's rule",
            OURS => "Dormouse",
            other => other,
        }
        .to_owned()
    }

    fn joules(&self) -> String {
        self.one("joules")
            .map_or_else(|| "–".to_owned(), |j| format!("{} J", thousands(j.max(0.0).round() as u64)))
    }

    /// What becomes of [`CHARGE`] hours of battery, with what the rest of the profile's device takes beside its radio. Nothing if the profile
    /// does not know, or joules were metered: then they may be the whole device's.
    fn battery(&self, frame: &Frame) -> Option<f64> {
        if frame.joules_from != format!("profile {PROFILE}") {
            return None;
        }
        let profile = Profile::shipped(PROFILE)?;
        let (rest, radio) =
            (profile.power(DEVICE_BASELINE_POWER).ok()?, profile.power(names::RADIO_IDLE_POWER).ok()?);
        let always = self.one("always_on_joules").filter(|joules| *joules > 0.0)?;
        // The same time for both, and so a ratio of powers.
        let taken = radio * self.one("joules")? / always;
        Some(CHARGE * (rest + radio) / (rest + taken))
    }

    fn lost(&self) -> Option<String> {
        let (lost, packets) = (self.one("lost")?, self.one("packets")?);
        let lost = if lost == 0.0 { "none".to_owned() } else { lost.to_string() };
        Some(format!("{lost} of {packets} packets lost"))
    }

    /// Seconds with the radio off, each from and until.
    fn off(&self) -> impl Iterator<Item = (f64, f64)> {
        self.figures.all("off_since").iter().copied().zip(self.figures.all("off_until").iter().copied())
    }
}

/// The sentence that stands first.
fn lead(all: &[Lived], frame: &Frame) -> String {
    let find = |policy: &str| all.iter().find(|lived| lived.policy == policy);
    let told = find(OURS).zip(find(NEVER)).and_then(|(ours, never)| {
        let change = ours.one("joules")? / never.one("joules")? - 1.0;
        let how = if change > 0.0 { "more" } else { "less" };
        let battery = ours.battery(frame).map(|h| format!(", so that {CHARGE:.0} hours of battery become {h:.1}"));
        Some(format!(
            "In one working hour, a laptop that lets Dormouse switch its radio off while nothing happens spent {} instead of {} on radio and VPN, \
             {} {how}{}, with {}; always on, {}.",
            ours.joules(),
            never.joules(),
            percent(change.abs()),
            battery.unwrap_or_default(),
            ours.lost()?,
            never.lost()?
        ))
    });
    told.unwrap_or_else(|| "One working hour of a laptop in its VPN.".to_owned())
}

fn bars(all: &[Lived], frame: &Frame) -> Bars {
    let bar = |(n, lived): (usize, &Lived)| {
        let hours = lived.battery(frame).map(|h| format!("{CHARGE:.0} hours of battery become {h:.1}"));
        let words: Vec<String> = [Some(lived.joules()), hours, lived.lost()].into_iter().flatten().collect();
        let value = lived.one("joules").unwrap_or(f64::NAN);
        Bar { name: lived.name(), value, words: words.join("; "), colour: n }
    };
    Bars {
        id: "energy".to_owned(),
        title: "What radio and VPN took in that hour".to_owned(),
        caption: format!(
            "Less is better. Joules come from the {}. Hours of battery are those of the whole device, for which {CHARGE:.0} hours with the radio \
             always on are taken.",
            frame.joules_from
        ),
        unit: "J".to_owned(),
        bars: all.iter().enumerate().map(bar).collect(),
    }
}

fn tracks(all: &[Lived]) -> Tracks {
    let minutes = |seconds: f64| seconds / 60.0;
    let end = minutes(traffic::HOUR as f64);
    let at = |times: &[f64]| times.iter().map(|at| (minutes(*at), minutes(*at))).collect();
    let subject = |lived: &Lived| {
        let mut on = Vec::new();
        let mut since = 0.0;
        for (off, again) in lived.off() {
            on.push((since, minutes(off)));
            since = minutes(again);
        }
        on.push((since, end));
        on.retain(|(from, until)| until > from);
        let all = |name| lived.figures.all(name);
        let lost = [all("lost_out"), all("lost_in")].concat();
        let track = |name: &str, colour, spans| Track { name: name.to_owned(), spans, colour };
        let tracks = vec![
            track("radio on", 4, on),
            track("sent", 0, at(all("sent_out"))),
            track("for it", 1, at(all("sent_in"))),
            track("lost", 3, at(&lost)),
        ];
        Subject { name: lived.name(), tracks }
    };
    Tracks {
        id: "timelines".to_owned(),
        title: "The hour, minute by minute".to_owned(),
        caption: "The same packets for all, over one axis. Areas: the radio is on. Each stroke is a packet: one that the device sends, one that \
                  comes for it, one that never arrived."
            .to_owned(),
        axis: "minute".to_owned(),
        range: (0.0, end),
        subjects: all.iter().map(subject).collect(),
    }
}

/// A row for each figure and a column for each policy: policies are few.
fn table(all: &[Lived], frame: &Frame) -> Table {
    let mut table = Table::new(std::iter::once(String::new()).chain(all.iter().map(Lived::name)));
    let mut row = |name: &str, of: &dyn Fn(&Lived) -> Option<String>| {
        let cells = all.iter().map(|lived| of(lived).unwrap_or_else(|| "–".to_owned()));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    let latency = |q| move |l: &Lived| quantile(l.figures.all("latency"), q).map(|ms| format!("{ms:.1}"));
    row("radio and VPN, J", &|l| Some(l.joules().trim_end_matches(" J").to_owned()));
    row("of what a radio that is always on takes", &|l| {
        Some(percent(l.one("joules")? / l.one("always_on_joules")?))
    });
    row(&format!("{CHARGE:.0} hours of battery become"), &|l| Some(format!("{:.1}", l.battery(frame)?)));
    row("time with the radio on", &|l| Some(percent(l.one("radio_on")?)));
    row("sleeps", &|l| Some(l.one("sleeps")?.to_string()));
    for (kind, name) in [("wakes", "woken:"), ("rung", "session back:")] {
        let names: BTreeSet<&str> =
            all.iter().flat_map(|l| l.figures.by(kind)).map(|(name, _)| name).collect();
        for one in names {
            row(&format!("{name} {one}"), &|l| {
                let count = l.figures.by(kind).find(|(name, _)| *name == one);
                Some(count.map_or(0.0, |(_, n)| n).to_string())
            });
        }
    }
    for (name, words) in [
        ("packets", "packets".to_owned()),
        ("lost", "lost".to_owned()),
        ("delayed", format!("later than {:.0} ms", frame.late_ms)),
        ("proxied", "answered by the gateway".to_owned()),
    ] {
        row(&words, &|l| Some(l.one(name)?.to_string()));
    }
    row("delay of own packets, ms: half are below", &latency(0.5));
    row("95 of 100 are below", &latency(0.95));
    row("the longest", &latency(1.0));
    table
}

/// What a reader need not know beforehand.
const TERMS: [(&str, &str); 11] = [
    ("J, joule", "A unit of energy: one watt for one second. A laptop's battery holds some 200,000."),
    (
        "profile",
        "What was measured once on such a device: joules are reckoned from it, not metered during the hour.",
    ),
    ("VPN", "The encrypted way from the device to its company's gateway, through which all its packets go."),
    ("Radio always on", "Never asleep: what devices do that guard a VPN today."),
    (
        "Paper's rule",
        "The rule of paper 000 (Shin, Myers and Gupta): off once most of the device's earlier silences that were as long as this one went on \
         for long enough to be worth it.",
    ),
    ("Dormouse", "The policy that ships: it learns from the device's own silences when switching off pays."),
    ("sleep", "The radio is off, the VPN's session waits. Nothing can reach the device meanwhile."),
    (
        "woken",
        "Why the radio went on again. traffic: the device had something to send; schedule: the gateway was to be asked what has come; \
         deadline: the session would have ended.",
    ),
    (
        "session back",
        "How the VPN went on. held: at once, nothing had to be said; mobike: it moved to a new address; ticket: one exchange with what was \
         kept of the session; full: all from the beginning, which takes the most energy.",
    ),
    (
        "lost",
        "A packet that never arrived. Some that come for a device asleep are not worth a wake, and count as lost too.",
    ),
    (
        "answered by the gateway",
        "The gateway stands in for the device: it answers pings and the like, so that these do not wake it.",
    ),
];

fn terms(frame: &Frame) -> Vec<(String, String)> {
    let late =
        format!("Arrived more than {:.0} ms after it was sent: it had to wait for the radio.", frame.late_ms);
    let all = TERMS.map(|(term, words)| (term.to_owned(), words.to_owned()));
    all.into_iter().chain([("later".to_owned(), late)]).collect()
}

fn made(frame: &Frame) -> String {
    format!(
        "{}, replayed {} times as fast between real daemons in network namespaces. Joules come from the {}. The radio and the \
         exchanges run at their own speed: {} times faster traffic makes their latency weigh as much more. The policies know this \
         device from the night and morning before, rehearsed in virtual time.",
        frame.traffic, frame.speed, frame.joules_from, frame.speed
    )
}
