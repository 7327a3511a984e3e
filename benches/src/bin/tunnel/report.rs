//! The tables and the verdicts. Owns what is compared with what.

use dormouse_benches::{ByRound, Measured, Summary, Target, ratio, verdict};
use dormouse_report::Table;

use crate::measure::{self, Tcp};
use crate::subjects::{Kind, Subject, TUNNEL_MTU};
use crate::{CIPHER, DATAGRAMS, Once, REPETITIONS, row};

/// Bytes of IPv4 and TCP headers, with timestamps, in an inner packet.
const HEADERS: f64 = 52.0;

/// What was measured.
struct Results<'a> {
    subjects: &'a [Subject],
    ways: &'a [Tcp],
    streams: &'a Measured,
    once: &'a [Once],
}

pub(crate) fn print(subjects: &[Subject], ways: &[Tcp], streams: &Measured, once: &[Once]) {
    let results = Results { subjects, ways, streams, once };
    results.tcp();
    results.packets();
    results.conclude();
}

impl Results<'_> {
    /// The way in which TCP is used if nothing else is said.
    fn usual(&self) -> Option<&Tcp> {
        self.ways.first()
    }

    fn rate(&self, kind: Kind, how: &Tcp) -> ByRound {
        self.streams.figure(&row(kind, how), "rate")
    }

    /// The rates of a subject in the usual way.
    fn usual_rate(&self, kind: Kind) -> ByRound {
        self.usual().map(|how| self.rate(kind, how)).unwrap_or_default()
    }

    /// What TCP could carry if our tunnel were plaintext forwarding and the cipher alone, both cores always busy: of the time that a
    /// packet takes of each core, one seals and the other opens. Mbit/s by round.
    fn bound(&self) -> ByRound {
        let cipher = self.streams.figure(CIPHER, "packet");
        let bits = 8.0 * (f64::from(TUNNEL_MTU) - HEADERS);
        let plaintext = self.usual_rate(Kind::Plaintext);
        let both = plaintext.iter().filter_map(|(round, rate)| Some((round, rate, cipher.get(round)?)));
        // Nanoseconds for a packet: bits / (Mbit/s) are microseconds.
        both.map(|(round, rate, cipher)| (*round, bits / (bits / rate + cipher / 1e3))).collect()
    }

    fn tcp(&self) {
        println!(
            "TCP in Mbit/s, median [least most] of {REPETITIONS} runs of {} s, in turns; \"back\" is from gateway to client.",
            measure::SECONDS
        );
        println!(
            "The daemons of both ends, in the first way: CPU in percent of one core, nanoseconds of it and system calls for each segment."
        );
        let ways = self.ways.iter().map(Tcp::name);
        let head = ["".to_owned()].into_iter().chain(ways);
        let mut table = Table::new(head.chain(["ours is", "CPU %", "ns", "calls", "MB"].map(str::to_owned)));
        for (subject, once) in self.subjects.iter().zip(self.once) {
            let rates = self.ways.iter().map(|how| {
                let rate = Summary::of(self.rate(subject.kind, how).into_values());
                format!("{:.0} [{:.0} {:.0}]", rate.median, rate.least, rate.most)
            });
            let times = ratio(&self.usual_rate(Kind::Dormouse), &self.usual_rate(subject.kind));
            let of = |name| {
                let figure = self.usual().map(|how| self.streams.figure(&row(subject.kind, how), name));
                Summary::of(figure.unwrap_or_default().into_values()).median
            };
            let cells = [
                number(Some(times), 2),
                number(Some(of("busy")), 0),
                number(Some(of("packet")).filter(|ns| *ns > 0.0), 0),
                number(once.system_calls, 3),
                number(Some(once.memory).filter(|mb| *mb > 0.0), 1),
            ];
            let name = subject.kind.name().to_owned();
            table.row([name].into_iter().chain(rates).chain(cells));
        }
        print!("{}", table.text(""));
        let bound = Summary::of(self.bound().into_values()).median;
        println!("The bound that plaintext forwarding and AES-128-GCM alone set for TCP: {bound:.0} Mbit/s.");
    }

    fn packets(&self) {
        println!(
            "\nDatagrams: thousands a second of which less than 1 % was lost, to 5 %; \"or more\" where the sender offers no more. ns: CPU of both daemons for each."
        );
        println!(
            "Ping: round trips in microseconds, median and 99th of a hundred; under load beside a TCP stream."
        );
        let sizes = DATAGRAMS.map(|bytes| [format!("{bytes} B kpps"), "ns".to_owned()]).concat();
        let pings = ["ping", "99 %", "under load", "99 %"].map(str::to_owned);
        let mut table = Table::new(["".to_owned()].into_iter().chain(sizes).chain(pings));
        for (subject, once) in self.subjects.iter().zip(self.once) {
            let datagrams = once.datagrams.iter().flat_map(|carried| match carried {
                None => ["-".to_owned(), "-".to_owned()],
                Some(c) => {
                    let more = if c.sender_is_the_limit { " or more" } else { "" };
                    [format!("{:.0}{more}", c.kpps), format!("{:.0}", c.cpu)]
                }
            });
            let pings = [&once.idle, &once.loaded].into_iter().flat_map(|ping| {
                let told = ping.as_deref().map(measure::middle_and_high);
                let [median, high] = told.map_or([None, None], |p| p.map(Some));
                [number(median, 0), number(high, 0)]
            });
            table.row([subject.kind.name().to_owned()].into_iter().chain(datagrams).chain(pings));
        }
        print!("{}", table.text(""));
    }

    fn conclude(&self) {
        let rate = |kind| self.usual_rate(kind);
        let ours = rate(Kind::Dormouse);
        for (what, other, least) in [
            ("wireguard-go of today", Kind::WireguardGoNew, 3.0),
            ("Debian's wireguard-go", Kind::WireguardGo, 7.0),
            ("strongSwan, libipsec", Kind::StrongSwan, 12.0),
            ("our plaintext forwarding", Kind::Plaintext, 0.6),
            ("with ESP as protocol 50", Kind::Raw, 1.0),
        ] {
            verdict(&format!("TCP as shipped / {what}"), ratio(&ours, &rate(other)), Target::AtLeast(least));
        }
        verdict(
            "TCP as shipped / the bound of the cipher",
            ratio(&ours, &self.bound()),
            Target::AtLeast(0.9),
        );
        // Against the tunnel, whose throughput is within a few percent: `tunnel --starts`.
        let raw = ratio(&rate(Kind::Hip), &rate(Kind::HipRaw));
        verdict("TCP through HIP as shipped / with ESP as protocol 50", raw, Target::AtLeast(1.0));
        let once = |kind| self.subjects.iter().zip(self.once).find(|(s, _)| s.kind == kind).map(|(_, o)| o);
        let both = once(Kind::Dormouse).zip(once(Kind::Plaintext));
        let [small, _] = [0, 1].map(|size| {
            let kpps = |once: &Once| once.datagrams.get(size).copied().flatten().map(|c| c.kpps);
            both.and_then(|(ours, plain)| Some(kpps(ours)? / kpps(plain)?))
        });
        let share = small.unwrap_or(f64::NAN);
        verdict("64-byte datagrams as shipped / plaintext forwarding", share, Target::AtLeast(0.9));
        let idle = |once: &Once| once.idle.as_deref().map(measure::middle_and_high);
        let later = both.and_then(|(ours, plain)| Some(idle(ours)?[0] - idle(plain)?[0]));
        let later = later.unwrap_or(f64::NAN);
        verdict("microseconds of a ping beyond plaintext forwarding", later, Target::AtMost(30.0));
    }
}

/// With so many digits behind the point; a dash for none.
fn number(value: Option<f64>, digits: usize) -> String {
    value.filter(|v| !v.is_nan()).map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
}
