//! A recommendation as configuration: the lines of `dormouse.toml` and of strongSwan's `swanctl.conf`. Owns their text; that
//! the daemon accepts them is tested where both are at hand, in the command line.

use serde::Serialize;

use super::levels::parts;

/// What to paste.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Lines {
    /// For `/etc/dormouse/dormouse.toml`, with `NAME` for the connection's name.
    pub toml: String,
    /// For `swanctl.conf`, the same.
    pub swanctl: String,
}

/// Groups for the key exchange: curve 25519, which most implementations have, and the one that RFC 8247, section 2.4, requires.
const GROUPS: &str = "x25519-modp2048";

impl Lines {
    /// For a recommended suite, and a second choice for peers that lack it.
    #[must_use]
    pub fn new(suite: &str, runner_up: Option<&str>) -> Self {
        let suites: Vec<&str> = [Some(suite), runner_up].into_iter().flatten().collect();
        let mut ike: Vec<String> = suites.iter().map(|s| ike(s)).collect();
        ike.dedup();
        let esp: Vec<String> = suites.iter().map(|s| format!("{s}-{GROUPS}")).collect();
        let quoted = |list: &[String]| list.iter().map(|p| format!("\"{p}\"")).collect::<Vec<_>>().join(", ");
        let toml = format!(
            "[connection.NAME.ike]\n\
             proposals = [{}]\n\
             \n\
             [connection.NAME.child]\n\
             proposals = [{}]\n\
             mode = \"tunnel\"\n",
            quoted(&ike),
            quoted(&esp)
        );
        let swanctl = format!(
            "connections {{\n\
             \x20 NAME {{\n\
             \x20   version = 2\n\
             \x20   proposals = {}\n\
             \x20   encap = no\n\
             \x20   children {{\n\
             \x20     NAME {{\n\
             \x20       esp_proposals = {}\n\
             \x20       mode = tunnel\n\
             \x20     }}\n\
             \x20   }}\n\
             \x20 }}\n\
             }}\n",
            ike.join(", "),
            esp.join(", ")
        );
        Self { toml, swanctl }
    }
}

/// The IKE proposal beside a suite of ESP. IKE carries few bytes, so this follows RFC 8247, sections 2.1 to 2.4, and not the
/// measurement: the same AEAD, or AES-CBC with the suite's key length and SHA-256. CCM with an ICV of 12 bytes is not recommended in IKE (RFC 5282,
/// section 7.2), which gets 16.
fn ike(suite: &str) -> String {
    let (cipher, integrity) = parts(suite);
    match integrity {
        None => format!("{}-prfsha256-{GROUPS}", cipher.replace("ccm12", "ccm16")),
        Some(_) => {
            let cbc = if cipher.contains("256") { "aes256" } else { "aes128" };
            format!("{cbc}-sha256-prfsha256-{GROUPS}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ike_gets_no_icv_of_12_bytes() {
        let toml = Lines::new("aes256ccm12", Some("aes128ccm8")).toml;
        assert!(
            toml.contains("[\"aes256ccm16-prfsha256-x25519-modp2048\", \"aes128ccm8-prfsha256-"),
            "{toml}"
        );
        assert!(toml.contains("[\"aes256ccm12-x25519-modp2048\", \"aes128ccm8-x25519-modp2048\"]"), "{toml}");
    }
}
