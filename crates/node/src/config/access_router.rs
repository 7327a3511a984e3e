//! The `[router]` section: this machine stands between a radio and the network. Owns its keys, and what they cannot mean.

use super::resolve::ConfigError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Access router: packets between the interface towards devices and the one towards the network are led through the daemon, which repairs
/// what the radio loses (docs/radio-repair.md). The kernel must forward (`net.ipv4.ip_forward = 1`). Header keys come by connections with a
/// section `keys`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// The interface behind which devices are: the radio.
    pub device: String,
    /// The interface towards the network, and the gateways of the devices.
    pub network: String,
    /// How losses of the radio are repaired.
    #[serde(default)]
    pub repair: Repair,
    /// What the radio carries towards devices, in 1,000 bits of IP packets a second, or somewhat less: packets then wait here rather than
    /// in front of the radio, where what is repeated could not overtake them. 0: they wait below.
    #[serde(default)]
    pub rate_kbit: u32,
}

/// How an access router repairs a radio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Repair {
    /// Not at all: packets go on as they come.
    None,
    /// By the headers of TCP, in clear or in zones whose header keys a gateway gave.
    #[default]
    Snoop,
    /// By the numbers of ESP, of devices that report what they get (`zones.reports` of theirs): for all traffic in tunnels in zones whose header
    /// keys a gateway gave.
    EspArq,
}

impl Repair {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snoop => "snoop",
            Self::EspArq => "esp-arq",
        }
    }
}

/// The section, if it is there.
///
/// # Errors
/// The first thing that cannot be meant.
pub(super) fn validate(router: Option<&Router>, tunnel: &str) -> Result<(), ConfigError> {
    let Some(router) = router else { return Ok(()) };
    for (key, name) in [("router.device", &router.device), ("router.network", &router.network)] {
        if !dormouse_sansio::fit_interface(name) {
            let problem = format!("\"{name}\" is no name of an interface: 1 to 15 of a-z A-Z 0-9 - _ . @");
            return Err(ConfigError::new(key, problem));
        }
        if name == tunnel {
            let problem = format!("\"{name}\" is daemon.interface, the tunnel's own");
            return Err(ConfigError::new(key, problem));
        }
    }
    if router.device == router.network {
        let problem = "is router.device too; a router stands between two interfaces";
        return Err(ConfigError::new("router.network", problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{parse, resolve};

    fn wrong(section: &str) -> Option<String> {
        let file = parse(&format!("[router]\n{section}\n")).expect("it parses");
        resolve(&file, &mut |_, _| Err("no files".into())).err().map(|e| e.key)
    }

    #[test]
    fn a_router_stands_between_two_interfaces() {
        assert_eq!(wrong("device = \"wlan0\"\nnetwork = \"eth0\""), None);
        assert_eq!(wrong("device = \"\"\nnetwork = \"eth0\"").as_deref(), Some("router.device"));
        assert_eq!(wrong("device = \"eth0\"\nnetwork = \"eth0\"").as_deref(), Some("router.network"));
        assert_eq!(wrong("device = \"eth0\"\nnetwork = \"dormouse0\"").as_deref(), Some("router.network"));
        assert!(parse("[router]\ndevice = \"wlan0\"\n").is_err(), "both are needed");
        assert!(parse("[router]\ndevice = \"a\"\nnetwork = \"b\"\nrepair = \"magic\"\n").is_err());
        assert_eq!(parse("").expect("it parses").router, None, "off unless asked for");
    }
}
