//! What the shipped daemons took, beside what the paper says of throughput, processor, memory and power. Owns these figures of the paper;
//! must never show joules without the word "estimated".

use anyhow::{Context as _, Result};
use dormouse_energy::profile::Profile;
use dormouse_report::{Table, digits};

use super::claims::not_here;
use super::{NEAR, Writer, judged, ms, shown};
use crate::experiment::Exhibit;
use crate::judge::{Claim, Expect};
use crate::paper_002::campaign::{Carrier, Link, Point};
use crate::paper_002::pair::Key;

/// Mbit/s of TCP from tablet and laptop, with deviations: plain, with HIP, with WPA, with both; the laptop's with WPA are not given.
#[expect(clippy::approx_constant, reason = "a throughput, and no circle")]
const TABLET: [(f64, f64); 4] = [(4.86, 0.28), (3.27, 0.08), (4.84, 0.05), (3.14, 0.03)];
const LAPTOP: [(f64, f64); 2] = [(21.77, 0.23), (21.16, 0.18)];
/// How far a part of a few per cent may be from the paper's.
const MARGIN: f64 = 0.05;
/// Megabytes of memory that HIP needs.
const MEMORY: f64 = 3.0;

/// Watts of the paper's devices, and joules of their base exchanges, from their profiles.
#[derive(Clone, Copy)]
pub(super) struct Power {
    /// The tablet while it transfers, with HIP or without.
    transfer: f64,
    /// The phone.
    phone: f64,
    /// Its base exchange with a server in joules.
    exchange: f64,
    /// A busy processor of a small computer of today, above an idle one.
    core: f64,
}

/// That small computer's profile.
const TODAY: &str = "raspberry-pi-4";

impl Power {
    /// From the profiles that ship with the program.
    ///
    /// # Errors
    /// If one of them lacks a figure.
    pub(super) fn shipped() -> Result<Self> {
        let profile = |name| Profile::shipped(name).with_context(|| format!("no profile {name}"));
        let (tablet, phone) = (profile("nokia-770-002")?, profile("nokia-e51-002")?);
        Ok(Self {
            transfer: tablet.power("device.esp_traffic_power")?,
            phone: phone.power("device.average_power")?,
            exchange: phone.energy("hip.base_exchange_energy")?,
            core: profile(TODAY)?.power("cpu.core_power")?,
        })
    }
}

/// HIP as the paper's programs carried it.
const PAPERS: Option<Carrier> = Some(Carrier::Ip);
/// The four ways in the order of the paper: whether the air is encrypted, and HIP.
const WAYS: [(bool, Option<Carrier>, &str); 4] = [
    (false, None, "TCP"),
    (false, PAPERS, "TCP + HIP"),
    (true, None, "TCP + encrypted air"),
    (true, PAPERS, "TCP + HIP + encrypted air"),
];
/// Those that the paper has not.
const BESIDES: [(bool, Option<Carrier>, &str); 2] = [
    (false, Some(Carrier::Udp), "TCP + HIP in UDP"),
    (true, Some(Carrier::Udp), "TCP + HIP in UDP + encrypted air"),
];

impl Writer<'_> {
    /// Whether daemons were measured, or tried.
    pub(super) fn has_daemons(&self) -> bool {
        self.results
            .samples
            .iter()
            .any(|s| matches!(s.point, Point::Transfer { .. } | Point::Daemon { .. } | Point::Server { .. }))
    }

    /// Mbit/s.
    fn rate(&self, limited: bool, encrypted: bool, hip: Option<Carrier>) -> f64 {
        let point = Point::Transfer { hip, link: Link { encrypted, limited } };
        self.value(point, "throughput") * 8e-6
    }

    pub(super) fn transfers(&self) -> Exhibit<Table> {
        let rows = [true, false].into_iter().flat_map(|limited| {
            WAYS.into_iter().chain(BESIDES).enumerate().map(move |(n, (encrypted, hip, name))| {
                let point = Point::Transfer { hip, link: Link { encrypted, limited } };
                let paper = if limited { LAPTOP.get(n) } else { TABLET.get(n) };
                let paper = paper.map(|(mean, deviation)| format!("{mean} ± {deviation}"));
                let ours = self.mean(point, "throughput").map(|m| m.times(8e-6));
                vec![
                    if limited { "the laptop's air" } else { "no limit" }.to_owned(),
                    name.to_owned(),
                    paper.unwrap_or_else(|| "none given".to_owned()),
                    ms(ours),
                    shown(self.rate(limited, encrypted, hip) / self.rate(limited, false, None)),
                    ms(self.mean(point, "device_per_byte")),
                    ms(self.mean(point, "server_per_byte")),
                ]
            })
        });
        let head = [
            "limit",
            "over",
            "paper, Mbit/s",
            "ours, Mbit/s",
            "of plain TCP",
            "device's daemon, ns/B",
            "server's daemon, ns/B",
        ];
        let title = "From device to server: mean ± deviation. The paper's laptop beside air of its speed, its tablet beside air without a limit, where the processor is the limit as it was there";
        Exhibit::new("TCP throughput", Table::titled(title, head, rows))
    }

    pub(super) fn daemons(&self) -> Exhibit<Table> {
        let rows = [Key::Rsa2048, Key::P256].into_iter().flat_map(|key| {
            let point = Point::Daemon { key };
            let of = |name| self.value(point, name);
            let megabytes = |name| shown(of(name) / 1e6);
            let share = |cpu, time| shown(of(cpu) / of(time));
            let row = |phase: &str, paper: &str, cells: [String; 5]| {
                let begun = [format!("{}, {phase}", key.words()), paper.to_owned()];
                begun.into_iter().chain(cells).collect::<Vec<_>>()
            };
            let figure = |name| ms(self.mean(point, name));
            let none = String::new;
            [
                row(
                    "start",
                    "CPU close to 100 %",
                    [
                        figure("ready"),
                        figure("start_cpu"),
                        none(),
                        share("start_cpu", "ready"),
                        megabytes("start_memory"),
                    ],
                ),
                row(
                    "base exchange",
                    "1,677 to 6,416 ms",
                    [
                        figure("answered"),
                        figure("device_cpu"),
                        figure("server_cpu"),
                        share("device_cpu", "answered"),
                        megabytes("exchange_memory"),
                    ],
                ),
                row(
                    "a move",
                    "287 ms (tablet), 100 ms (laptop)",
                    [figure("moved"), none(), none(), none(), none()],
                ),
                row(
                    "idle",
                    "CPU low, 3 MB more memory",
                    [none(), none(), none(), shown(of("idle_cpu")), megabytes("idle_memory")],
                ),
            ]
        });
        let head = [
            "daemon",
            "paper's phone",
            "elapsed, ms",
            "device CPU, ms",
            "server CPU, ms",
            "device, part of a core",
            "device, resident MB",
        ];
        let title = "The daemon when it starts, in an exchange that the first packet of a connection waits for, when its address changes until packets are answered again, and idle: mean ± deviation";
        Exhibit::new("CPU and memory of the daemon", Table::titled(title, head, rows))
    }

    /// Joules for a byte on the paper's tablet, whose speed falls with HIP as it does here where the processor is the limit.
    fn per_byte(&self, power: Power, encrypted: bool, hip: Option<Carrier>) -> f64 {
        let speed = TABLET[0].0 * self.rate(false, encrypted, hip) / self.rate(false, false, None);
        power.transfer / (speed * 1e6 / 8.0)
    }

    pub(super) fn energy(&self, power: Power) -> Exhibit<Table> {
        let bytes = WAYS.into_iter().zip(TABLET).map(|((encrypted, hip, name), (rate, _))| {
            let point = Point::Transfer { hip, link: Link { encrypted, limited: false } };
            vec![
                format!("a byte, {name}"),
                format!("{} µJ (derived)", shown(power.transfer / (rate * 1e6 / 8.0) * 1e6)),
                format!("{} µJ", shown(self.per_byte(power, encrypted, hip) * 1e6)),
                format!("{} nJ", shown(self.value(point, "device_per_byte") * power.core)),
            ]
        });
        let [with_server, ..] = self.scenarios();
        let here = self.value(Point::Daemon { key: Key::Rsa2048 }, "device_cpu") * power.core;
        let exchange = vec![
            "a base exchange, RSA".to_owned(),
            format!("{} J (derived)", shown(power.exchange)),
            format!("{} J", shown(with_server * power.phone)),
            format!("{} mJ", shown(here)),
        ];
        let title = format!(
            "Energy, estimated: power of the paper's devices by their profiles, times the tablet's time for a byte at the speeds of air without a limit here, and the phone's for an exchange (CPU time here times {}); the daemon's CPU time here times the power of a core, profile {TODAY}",
            shown(self.slowness())
        );
        let head = ["of", "paper", "ours on its device, estimated", "device's daemon alone, estimated"];
        Exhibit::new("Power consumption", Table::titled(&title, head, bytes.chain([exchange])))
    }

    pub(super) fn daemon_claims(&self, power: Power) -> Vec<Claim> {
        let throughput = "TCP throughput";
        let paper = |a: usize, b: usize| TABLET[a].0 / TABLET[b].0;
        let part = |limited, a: (bool, Option<Carrier>), b: (bool, Option<Carrier>)| {
            self.by_round(|r| r.rate(limited, a.0, a.1) / r.rate(limited, b.0, b.1))
        };
        let [plain, hip, air, both] = WAYS.map(|(encrypted, hip, _)| (encrypted, hip));
        let laptop = LAPTOP[1].0 / LAPTOP[0].0;
        let daemon = Point::Daemon { key: Key::Rsa2048 };
        let of_plain = "of plain TCP";
        let times = paper(0, 1);
        vec![
            judged(
                throughput,
                "ESP takes a third of TCP's throughput where the processor is the limit",
                format!("{:.2} of plain TCP (tablet)", paper(1, 0)),
                of_plain,
                Expect::about(paper(1, 0), 3.0 * MARGIN),
                part(false, hip, plain),
            )
            .because(self.per_byte_here(false)),
            judged(
                throughput,
                "ESP takes hardly anything where the air is the limit",
                format!("{laptop:.2} of plain TCP (laptop)"),
                of_plain,
                Expect::about(laptop, MARGIN),
                part(true, hip, plain),
            )
            .because(self.per_byte_here(true)),
            judged(
                throughput,
                "encryption of the link has a minor impact (ours: a stand-in for WPA)",
                format!("{:.3} of plain TCP (tablet)", paper(2, 0)),
                of_plain,
                Expect::about(paper(2, 0), MARGIN),
                part(false, air, plain),
            )
            .because(self.below_here()),
            judged(
                throughput,
                "and so it has below HIP",
                format!("{:.2} of TCP with HIP (tablet)", paper(3, 1)),
                "of TCP with HIP",
                Expect::about(paper(3, 1), MARGIN),
                part(false, both, hip),
            )
            .because(self.below_here()),
            judged(
                "Power consumption",
                "HIP consumes more energy for a byte than plain TCP",
                format!("no figure; {times:.2} times by its power and throughput (derived)"),
                "times (estimated)",
                Expect::MORE,
                self.by_round(|r| r.per_byte(power, false, PAPERS) / r.per_byte(power, false, None)),
            ),
            not_here(
                "Power consumption",
                "the tablet takes as much power with HIP as without",
                "1.41 W each",
                Expect::TIE,
                "no meter of a tablet is here; its profile has these very figures",
            ),
            not_here(
                "Power consumption",
                "a base exchange takes less power than a transfer",
                "1.33 of 1.41 W",
                Expect::LESS,
                "the same",
            ),
            not_here(
                "Power consumption",
                "the phone's battery lasts two thirds as long while it makes base exchanges",
                "12 of 18 hours",
                Expect::within(12.0 / 18.0, NEAR),
                "no phone is here",
            ),
            judged(
                "CPU load of the daemon",
                "the daemon takes nearly the whole processor when it starts",
                "close to 100 %, a drawing without figures".to_owned(),
                "of a core",
                Expect::above(0.8),
                self.by_round(|r| r.value(daemon, "start_cpu") / r.value(daemon, "ready")),
            )
            .because(format!(
                "it takes {} ms of a processor in all, and is ready after {} ms",
                shown(self.value(daemon, "start_cpu")),
                shown(self.value(daemon, "ready"))
            )),
            judged(
                "CPU load of the daemon",
                "the daemon takes little when it is idle",
                "low, a drawing without figures".to_owned(),
                "of a core",
                Expect::below(0.01),
                self.by_round(|r| r.value(daemon, "idle_cpu")),
            ),
            judged(
                "RAM usage of the daemon",
                "HIP increases memory usage by 3 MB",
                format!("{} MB", digits(MEMORY)),
                "MB, without the pages of the program file",
                Expect::within(MEMORY, NEAR),
                self.by_round(|r| r.value(daemon, "own_memory") / 1e6),
            ),
        ]
    }

    /// Where the time of a byte goes: elapsed, and of the daemons' processors.
    fn per_byte_here(&self, limited: bool) -> String {
        let of = |hip| Point::Transfer { hip, link: Link { encrypted: false, limited } };
        let elapsed = |hip| shown(1e9 / self.value(of(hip), "throughput"));
        format!(
            "a byte takes {} ns without HIP and {} ns with it, in UDP {} ns; {} ns of the device's daemon and {} ns of the server's",
            elapsed(None),
            elapsed(PAPERS),
            elapsed(Some(Carrier::Udp)),
            shown(self.value(of(PAPERS), "device_per_byte")),
            shown(self.value(of(PAPERS), "server_per_byte"))
        )
    }

    /// The same of what stands for WPA.
    fn below_here(&self) -> String {
        let elapsed = |(encrypted, hip, _): (bool, Option<Carrier>, &str)| {
            shown(8e3 / self.rate(false, encrypted, hip))
        };
        let [plain, hip, air, both] = WAYS.map(elapsed);
        format!(
            "what stands for WPA copies each packet through a program of its own: a byte takes {air} ns over it instead of {plain}, with HIP {both} instead of {hip}"
        )
    }

    /// What a reader must know of them.
    pub(super) fn daemon_notes(&self) -> Vec<String> {
        if !self.has_daemons() {
            return vec![
                "Not measured here: throughput, power and memory of the daemons, which need root.".to_owned(),
            ];
        }
        [
            "Throughput: one TCP stream of this program's own between network namespaces, all on this machine's cores. WLAN is a veth pair, for the laptop with a limit of 22.76 Mbit/s (Ethernet headers included) from device to server, at which plain TCP has the paper's 21.77; acknowledgements have the way back to themselves, which they do not in the air.",
            "WPA is stood in for: ESP with AES-128-CCM (WPA2's cipher) by our own forwarding, between the device's radio and the access point, in processes of their own. It adds some 55 bytes to each packet where WPA adds 8 to 20, and without a limit of the air it is the slowest part.",
            "The power of a byte follows from the throughput alone: only its direction is judged.",
            "The paper's tablet had 4.86 Mbit/s because of its processor; the rows without a limit are the same case here. Plain TCP between namespaces copies no packet to any device, so ESP's part is larger than on a real one.",
            "The daemons have their default configuration, but that `carriers` is written into it: `ip`, IP protocols 139 and 50 as the paper's programs had them, wherever UDP is not named. ESP is AES-128-GCM in BEET mode; P-384; ECDSA P-256 where no key is named. In an exchange, device CPU and server CPU are of everything that the daemons do for it; the elapsed time ends with the answer to the first packet of a TCP connection.",
        ]
        .map(str::to_owned)
        .to_vec()
    }
}
