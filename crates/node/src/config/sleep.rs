//! The `[sleep]` section: when the device's radio sleeps, and by whom it is switched. Owns its keys and what they mean.

use super::file::Seconds;
use super::{ConfigError, ReadFile};
use crate::sleeper::{Mode, Settings};
use dormouse_energy::model::Resumption;
use dormouse_energy::profile::Profile;
use dormouse_energy::schedule::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Client, or host of HIP: when the radio sleeps. Without this section it never does, until `dormouse mode energy` or `dormouse mode
/// balanced` asks for it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sleep {
    /// `energy`: the policy decides. `balanced`: it decides within bounds on added latency and lost packets, by backing off where
    /// sleeping does not pay. `performance`: the radio stays on. `dormouse mode` changes it until the next start.
    pub mode: Mode,
    /// Who decides: `dormouse` (learns, and never costs much more than `break-even`), `paper`, `break-even`, `never`, or a
    /// number: that many seconds after the last packet.
    pub policy: PolicyName,
    /// Shortest silence that counts as an idle period, in milliseconds.
    pub min_idle_ms: u32,
    /// Wake at least this often, for what the gateway keeps for us: seconds, or text such as `"15m"`. 0: only for a reason.
    pub wake_every: Span,
    /// Wake to renew a session that would expire, instead of coming back by ticket or by a full exchange.
    pub renew: bool,
    /// `balanced`: a packet should not wait longer than this for the radio and the session.
    pub latency_ms: u32,
    /// `balanced`: once more packets than this were lost within an hour because the radio was off, it stays on.
    pub lost_per_hour: u32,
    /// The device's figures: the name of a profile that ships with the program, or the path of a file.
    pub profile: String,
    /// Count joules with this machine's meter (battery, or platform counter) where it has one that sees the radio, rather than with
    /// the profile.
    pub meter: bool,
    /// The policy is shown a clock that runs so many times as fast as the machine's, 1 to 1,000: to live through recorded traffic in
    /// less time than it took. Times and joules of `dormouse status` are then those of the fast clock.
    pub speed: u32,
    /// Who switches the radio. `auto`: the first that works of NetworkManager, the radio's rfkill switch, the link state of an
    /// 802.11 interface, and the commands below. `none`: the radio is left alone.
    pub radio: RadioDriver,
    /// The radio's interface. Empty: the only 802.11 interface, or the one with the default route.
    pub interface: String,
    /// `command`: program and arguments that switch the radio off, run as root without a shell.
    pub command_off: Vec<String>,
    /// `command`: program and arguments that switch it on.
    pub command_on: Vec<String>,
    /// `command`: program and arguments that end with 0 if the radio is on, with 1 if it is off. Empty: not known.
    pub command_state: Vec<String>,
    /// `command`: a program that takes longer is killed, and has failed.
    pub command_timeout: Seconds,
}

impl Default for Sleep {
    fn default() -> Self {
        Self {
            mode: Mode::Performance,
            policy: PolicyName(Policy::Dormouse),
            min_idle_ms: 250,
            wake_every: Span(0),
            renew: false,
            latency_ms: 1500,
            lost_per_hour: 20,
            profile: "laptop-000".into(),
            speed: 1,
            meter: true,
            radio: RadioDriver::Auto,
            interface: String::new(),
            command_off: Vec::new(),
            command_on: Vec::new(),
            command_state: Vec::new(),
            command_timeout: Seconds(10),
        }
    }
}

/// Who switches the radio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RadioDriver {
    /// The first that works.
    Auto,
    /// NetworkManager.
    #[serde(rename = "networkmanager")]
    NetworkManager,
    /// The radio's rfkill switch.
    Rfkill,
    /// The link state of the interface.
    Link,
    /// The user's own programs.
    Command,
    /// No driver: the radio is left alone.
    None,
}

/// A policy as it is written.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema)]
#[schemars(with = "String")]
pub struct PolicyName(pub Policy);

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Seconds(f64),
            Name(String),
        }
        let expected = "\"dormouse\", \"paper\", \"break-even\", \"never\" or a number of seconds";
        let policy = match Written::deserialize(d)? {
            Written::Seconds(s) if (0.0..=86_400.0).contains(&s) => Some(Policy::Timeout(s)),
            Written::Seconds(_) => None,
            Written::Name(name) => {
                let all = [Policy::Dormouse, Policy::PAPER, Policy::BreakEven, Policy::Never];
                all.into_iter().find(|p| p.name() == name)
            }
        };
        policy.map(Self).ok_or_else(|| serde::de::Error::custom(format!("expected {expected}")))
    }
}

impl Serialize for PolicyName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Policy::Timeout(seconds) => s.serialize_f64(seconds),
            policy => s.serialize_str(policy.name()),
        }
    }
}

/// A time in whole seconds, or text with a unit: `90`, `"90s"`, `"15m"`, `"2h"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema)]
#[schemars(with = "u32")]
pub struct Span(pub u32);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Seconds(u32),
            Text(String),
        }
        let seconds = match Written::deserialize(d)? {
            Written::Seconds(s) => Some(s),
            Written::Text(text) => {
                let units = [("s", 1u32), ("min", 60), ("m", 60), ("h", 3600), ("d", 86_400)];
                let one = |(unit, factor): (&str, u32)| {
                    let n: u32 = text.strip_suffix(unit)?.trim().parse().ok()?;
                    n.checked_mul(factor)
                };
                units.into_iter().find_map(one)
            }
        };
        seconds.map(Self).ok_or_else(|| {
            serde::de::Error::custom("expected seconds, or text such as \"90s\", \"15m\" or \"2h\"")
        })
    }
}

impl Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u32(self.0)
    }
}

/// The section, ready for use.
#[derive(Clone, Debug)]
pub struct ResolvedSleep {
    /// For the sleeper.
    pub settings: Settings,
    /// Use this machine's meter.
    pub meter: bool,
    /// How many times as fast the policy's clock runs.
    pub speed: u32,
    /// Who switches the radio.
    pub driver: RadioDriver,
    /// Its interface, if it is named.
    pub interface: Option<String>,
    /// Programs that switch it off and on, and that tell its state.
    pub commands: Option<Commands>,
}

/// The user's own programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commands {
    /// Switches off.
    pub off: Vec<String>,
    /// Switches on.
    pub on: Vec<String>,
    /// Tells the state; may be empty.
    pub state: Vec<String>,
    /// After this time each of them has failed.
    pub timeout: Duration,
}

/// The shortest time between scheduled wakes that makes sense: less is no sleep.
const WAKE_EVERY_LEAST: u32 = 10;

/// Resolves the section. A profile that is no shipped one is read from its file.
///
/// # Errors
/// The first thing that is wrong.
pub fn resolve_sleep(sleep: &Sleep, read: &mut ReadFile<'_>) -> Result<ResolvedSleep, ConfigError> {
    let error = |key: &str, problem: String| ConfigError { key: format!("sleep.{key}"), problem };
    if (1..WAKE_EVERY_LEAST).contains(&sleep.wake_every.0) {
        let problem = format!("{} s is no sleep; {WAKE_EVERY_LEAST} is the least", sleep.wake_every.0);
        return Err(error("wake_every", problem));
    }
    if !(1..=1000).contains(&sleep.speed) {
        return Err(error("speed", format!("{} is not within 1 to 1,000", sleep.speed)));
    }
    let profile = match Profile::shipped(&sleep.profile) {
        Some(profile) => profile,
        None if sleep.profile.contains('/') => {
            let bytes = read(Path::new(&sleep.profile), false).map_err(|e| error("profile", e))?;
            let text = String::from_utf8(bytes).map_err(|e| error("profile", e.to_string()))?;
            Profile::from_toml(&text).map_err(|e| error("profile", format!("{}: {e}", sleep.profile)))?
        }
        None => {
            let known: Vec<&str> = Profile::shipped_names().collect();
            let problem = format!(
                "there is no profile {:?}; shipped are {}; a path has a '/'",
                sleep.profile,
                known.join(", ")
            );
            return Err(error("profile", problem));
        }
    };
    let model = profile.model().map_err(|e| error("profile", e.to_string()))?;
    if model.radio.idle_power <= 0.0 {
        return Err(error("profile", format!("{}: an idle radio without power saves nothing", profile.name)));
    }
    let commands = match (sleep.command_off.is_empty(), sleep.command_on.is_empty()) {
        (true, true) if sleep.driver_is(RadioDriver::Command) => {
            return Err(error("command_off", "radio = \"command\" needs command_off and command_on".into()));
        }
        (true, true) => None,
        (false, false) => Some(Commands {
            off: sleep.command_off.clone(),
            on: sleep.command_on.clone(),
            state: sleep.command_state.clone(),
            timeout: Duration::from_secs(sleep.command_timeout.0.into()),
        }),
        (off_missing, _) => {
            let key = if off_missing { "command_off" } else { "command_on" };
            return Err(error(key, "what is switched one way must be switched the other way too".into()));
        }
    };
    Ok(ResolvedSleep {
        settings: Settings {
            mode: sleep.mode,
            policy: sleep.policy.0,
            min_idle: Duration::from_millis(sleep.min_idle_ms.max(1).into()),
            wake_every: (sleep.wake_every.0 > 0).then(|| Duration::from_secs(sleep.wake_every.0.into())),
            renew: sleep.renew,
            latency: Duration::from_millis(sleep.latency_ms.into()),
            lost_per_hour: sleep.lost_per_hour.into(),
            model,
            profile: profile.name,
            resumption: Resumption::MobikeThenTicket,
        },
        meter: sleep.meter && sleep.speed == 1,
        speed: sleep.speed,
        driver: sleep.radio,
        interface: Some(sleep.interface.clone()).filter(|i| !i.is_empty()),
        commands,
    })
}

impl Sleep {
    fn driver_is(&self, driver: RadioDriver) -> bool {
        self.radio == driver
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn resolved(lines: &str) -> Result<ResolvedSleep, String> {
        let file = parse(&format!("[sleep]\n{lines}"))
            .map_err(|e| e.lines().last().unwrap_or_default().to_owned())?;
        resolve_sleep(&file.sleep, &mut |path, _| Err(format!("{}: not here", path.display())))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn nothing_said_means_that_the_radio_stays_on() {
        let sleep = resolved("").expect("the defaults");
        assert_eq!(sleep.settings.mode, Mode::Performance);
        assert_eq!((sleep.driver, sleep.commands), (RadioDriver::Auto, None));
    }

    #[test]
    fn times_and_policies_as_people_write_them() {
        for (text, seconds) in
            [("900", 900), ("\"15m\"", 900), ("\"15 min\"", 900), ("\"2h\"", 7200), ("\"90s\"", 90)]
        {
            let sleep = resolved(&format!("wake_every = {text}\npolicy = 12.5")).expect(text);
            assert_eq!(sleep.settings.wake_every, Some(Duration::from_secs(seconds)), "{text}");
            assert_eq!(sleep.settings.policy, Policy::Timeout(12.5));
        }
        assert_eq!(resolved("policy = \"paper\"").expect("known").settings.policy, Policy::PAPER);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (lines, words) in [
            ("wake_every = 3", "sleep.wake_every"),
            ("wake_every = \"soon\"", "15m"),
            ("speed = 0", "sleep.speed: 0"),
            ("policy = \"guess\"", "break-even"),
            ("profile = \"toaster\"", "laptop-000"),
            ("profile = \"/nowhere\"", "sleep.profile: /nowhere"),
            ("radio = \"command\"", "sleep.command_off"),
            ("command_off = [\"/bin/true\"]", "sleep.command_on"),
        ] {
            let said = resolved(lines).expect_err(lines);
            assert!(said.contains(words), "{lines}: {said}");
        }
    }
}
