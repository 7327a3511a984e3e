//! What differs between worlds besides the seed of their events: the network's figures, and how the two ends are configured. Owns
//! the odds of a configuration; a configuration that the daemon would refuse is none.

use crate::script::Edit;
use dormouse_ike::config::HoldPolicy;
use dormouse_node::{Limits, SleepFlags};
use dormouse_sansio::{Entropy, Seeded};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Silence after which the simulated gateway checks a peer, and gives it up, in seconds.
pub(crate) const LIVENESS: (u32, u32) = (20, 60);

/// Lines of a connection: pairs of section and line.
pub type Lines = Vec<(&'static str, String)>;

/// A server behind the gateway, in the network of the first CHILD SA.
pub(crate) const SERVER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2))];

/// A further CHILD SA, as [`Settings::random`] draws it.
struct Further {
    section: &'static str,
    network: &'static str,
    server: [IpAddr; 2],
    /// Its network lies within that of the first CHILD SA, which stands in for it at a gateway that does not have it.
    within: bool,
}

const FURTHER: [Further; 2] = [
    Further {
        section: "children.other",
        network: "[\"10.98.0.0/24\", \"fd98::/64\"]",
        server: [
            IpAddr::V4(Ipv4Addr::new(10, 98, 0, 2)),
            IpAddr::V6(Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, 2)),
        ],
        within: false,
    },
    Further {
        section: "children.part",
        network: "[\"10.99.0.128/25\", \"fd99::8000/113\"]",
        server: [
            IpAddr::V4(Ipv4Addr::new(10, 99, 0, 130)),
            IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 0x8002)),
        ],
        within: true,
    },
];

/// Which of the two protocols addresses are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Both, IPv6 first where there is a choice.
    Both,
}

impl Family {
    /// Those of a pair (IPv4, IPv6) that belong to it, in the order of preference.
    #[must_use]
    pub fn of<T: Copy>(self, [v4, v6]: [T; 2]) -> Vec<T> {
        match self {
            Self::V4 => vec![v4],
            Self::V6 => vec![v6],
            Self::Both => vec![v6, v4],
        }
    }
}

/// How the two ends prove who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// A secret of both.
    Secret,
    /// Certificates.
    Certificates,
    /// The gateway by its certificate, the device as a user with a password (EAP-MSCHAPv2), which is not the first method that it is asked for.
    Password,
    /// The gateway by its certificate, the device by its own inside EAP (EAP-TLS).
    Tls,
    /// The same, but the gateway proves itself inside EAP alone.
    TlsAlone,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses outside the tunnel.
    pub outer: Family,
    /// Addresses inside.
    pub inner: Family,
    /// How the two ends prove who they are.
    pub proof: Proof,
    /// One-way delay of the links.
    pub delay: Duration,
    /// Idle time after which the NAT forgets a mapping.
    pub nat_idle: Duration,
    /// The longest that either process takes to wake up: several things happen to it at once.
    pub lag: Duration,
    /// The gateway's pool is the other one.
    pub other_pool: bool,
    /// What the device's connection has besides the defaults.
    pub device: Lines,
    /// The same for the gateway's.
    pub gateway: Lines,
    /// What the gateway does with sessions of devices that announce a sleep.
    pub hold: HoldPolicy,
    /// Either end has another engine, to which it lends SAs after two packets.
    pub engine: bool,
    /// Bounds of the gateway's stand-in and how long it keeps anything, if it has one.
    pub stand_in: Option<(Limits, Duration)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            outer: Family::V4,
            inner: Family::V4,
            proof: Proof::Secret,
            delay: Duration::from_millis(20),
            nat_idle: Duration::from_secs(60),
            lag: Duration::ZERO,
            other_pool: false,
            device: Vec::new(),
            gateway: vec![("ike", format!("liveness = {}\nliveness_timeout = {}", LIVENESS.0, LIVENESS.1))],
            hold: HoldPolicy::default(),
            engine: false,
            stand_in: None,
        }
    }
}

impl Settings {
    /// Two ends that understand each other, each configured in its own way: suites, lifetimes, resumption, what is switched off.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Seeded::new(seed ^ 0x0c0f_f1ee_0000_5e77);
        let mut settings = Self {
            delay: Duration::from_millis(1 + rng.below(300)),
            nat_idle: Duration::from_secs(20 + rng.below(300)),
            ..Self::default()
        };
        let both = suites(&mut rng);
        for end in [&mut settings.device, &mut settings.gateway] {
            end.extend(both.iter().cloned());
            end.extend(whims(&mut rng));
        }
        let reauth = pick(&mut rng, &[0, 0, 0, 300, 1_200]);
        let liveness = pick(&mut rng, &[0, 30, 60]);
        settings.device.push(("ike", format!("reauth = {reauth}\nliveness = {liveness}")));
        settings
            .device
            .push(("ike", format!("keepalive = {}", pick(&mut rng, &["\"auto\"", "\"off\"", "20"]))));
        settings
            .gateway
            .push(("resumption", format!("ticket_lifetime = {}", pick(&mut rng, &[60, 3_600, 86_400]))));
        settings.hold.most = pick(&mut rng, &[0, 16_384]);
        settings.hold.longest = Duration::from_secs(pick(&mut rng, &[10, 600, 14_400]));
        if rng.below(2) == 0 {
            settings.hold.services = SleepFlags { stand_in: true, buffering: true };
            settings.stand_in = Some((Limits::default(), Duration::from_secs(pick(&mut rng, &[60, 3_600]))));
        }
        let families = [Family::V4, Family::V4, Family::V6, Family::Both];
        (settings.outer, settings.inner) = (pick(&mut rng, &families), pick(&mut rng, &families));
        let eap = Seeded::new(seed ^ 0x0ea9_0000_0000_7175).below(8);
        settings.proof = match (rng.below(3), eap) {
            (_, 0) => Proof::Password,
            (_, 1) => Proof::Tls,
            (_, 2) => Proof::TlsAlone,
            (0, _) => Proof::Certificates,
            _ => Proof::Secret,
        };
        settings.draw_ike(&mut rng);
        settings.draw_further(&mut rng, &both[1].1);
        settings.lag = Duration::from_millis(pick(&mut rng, &[0, 0, 3, 30]));
        settings
    }

    /// Changes the configuration of one end. True if it is written differently afterwards.
    pub(crate) fn edit(&mut self, gateway: bool, edit: Edit) -> bool {
        let lines = if gateway { &mut self.gateway } else { &mut self.device };
        let before = (lines.clone(), self.other_pool);
        match edit {
            Edit::Nothing => {}
            Edit::Pool => self.other_pool ^= gateway,
            Edit::Rekey(seconds) => {
                lines.retain(|(section, line)| *section != "child" || !line.starts_with("rekey"));
                lines.push(("child", format!("rekey = {seconds}")));
            }
        }
        let lines = if gateway { &self.gateway } else { &self.device };
        before != (lines.clone(), self.other_pool)
    }

    /// Keys of `ike` that depend on what was drawn before.
    fn draw_ike(&mut self, rng: &mut Seeded) {
        // No address is translated between IPv6 hosts, unless an end pretends it.
        let forced = |lines: &Lines| lines.iter().any(|(_, line)| line == "esp_in_udp = \"always\"");
        let no_nat = self.outer == Family::V6 && !forced(&self.device) && !forced(&self.gateway);
        for end in [&mut self.device, &mut self.gateway] {
            let (ms, tries) = pick(rng, &[(500, 6), (500, 6), (200, 10), (1_000, 4)]);
            let refuses = no_nat && rng.below(2) == 0;
            end.push(("ike", format!("retransmit_ms = {ms}\nretransmit_tries = {tries}")));
            end.push(("ike", format!("no_nats_allowed = {refuses}")));
        }
        self.device.push(("ike", format!("initial_contact = {}", rng.below(3) > 0)));
        self.gateway.push(("ike", format!("return_routability = {}", rng.below(3) == 0)));
    }

    /// Further CHILD SAs with the suite of the first one. An end may lack one that the other has.
    fn draw_further(&mut self, rng: &mut Seeded, suite: &str) {
        for Further { section, network, .. } in &FURTHER {
            let drawn = rng.below(3) > 0;
            let sides = [("remote", String::new()), ("local", "remote = [\"dynamic\"]\n".to_owned())];
            for (end, (side, other)) in [&mut self.device, &mut self.gateway].into_iter().zip(sides) {
                let (rekey, pad) = (pick(rng, &[10, 60, 3_600]), pick(rng, &[0, 0, 256]));
                if drawn && rng.below(4) > 0 {
                    let line = format!("{side} = {network}\n{other}{suite}\nrekey = {rekey}\npad_to = {pad}");
                    end.push((section, line));
                }
            }
        }
    }

    /// A server in the network of each CHILD SA that the two ends can agree upon.
    pub(crate) fn servers(&self) -> Vec<[IpAddr; 2]> {
        let has = |end: &Lines, section| end.iter().any(|(s, _)| *s == section);
        let made = |f: &&Further| has(&self.device, f.section) && (f.within || has(&self.gateway, f.section));
        std::iter::once(SERVER).chain(FURTHER.iter().filter(made).map(|f| f.server)).collect()
    }

    /// How often the two ends may be seen in the middle of a change that no event of the story has made.
    pub(crate) fn agreement_retries(&self) -> usize {
        let renews = |line: &str| line.starts_with("rekey") || line.starts_with("reauth");
        if self.device.iter().chain(&self.gateway).any(|(_, line)| renews(line)) { 5 } else { 0 }
    }
}

fn pick<T: Copy>(rng: &mut Seeded, of: &[T]) -> T {
    let at = usize::try_from(rng.below(of.len() as u64)).unwrap_or_default();
    of[at]
}

/// A line of either section for both ends.
fn suites(rng: &mut Seeded) -> [(&'static str, String); 2] {
    let ike = pick(
        rng,
        &[
            "",
            "aes256gcm16-prfsha384-x25519",
            "aes128-sha256-x25519",
            "chacha20poly1305-prfsha512-ecp256",
            "aes256gcm16-prfsha256-ecp256-ke1_mlkem512-ke2_mlkem1024",
        ],
    );
    let child = pick(
        rng,
        &[
            "",
            "aes128gcm16-x25519",
            "aes256-sha512",
            "aes128ctr-sha256-x25519",
            "chacha20poly1305",
            "aes128gcm16-x25519-ke1_mlkem768",
        ],
    );
    let list = |name: &str| if name.is_empty() { "[]".to_owned() } else { format!("[{name:?}]") };
    [("ike", format!("proposals = {}", list(ike))), ("child", format!("proposals = {}", list(child)))]
}

/// What an end does whether the other does or not.
fn whims(rng: &mut Seeded) -> Lines {
    let mut often = |of: u64| rng.below(of) > 0;
    let switches = [
        ("ike", "mobike", often(4)),
        ("ike", "dormancy", often(3)),
        ("ike", "fragmentation", often(3)),
        ("child", "esn", often(3)),
    ];
    let mut lines: Lines = switches.map(|(section, key, on)| (section, format!("{key} = {on}"))).to_vec();
    lines.extend([
        ("ike", format!("fragment_size = {}", pick(rng, &[576, 1_280]))),
        ("ike", format!("esp_in_udp = {:?}", pick(rng, &["auto", "auto", "nat", "always"]))),
        ("ike", format!("rekey = {}", pick(rng, &[30, 100, 14_400]))),
        ("child", format!("rekey = {}", pick(rng, &[10, 60, 3_600]))),
        ("child", format!("pad_to = {}", pick(rng, &[0, 0, 256]))),
        (
            "resumption",
            format!("mode = {:?}", pick(rng, &["strict", "strict", "strict", "libreswan", "off"])),
        ),
    ]);
    lines
}
