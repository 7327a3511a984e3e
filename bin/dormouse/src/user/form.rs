//! In which form a device gets what it needs: our own file, or the files of another client. Owns these forms; writes nothing.

use crate::enrol::bundle::{self, Parties};
use clap::ValueEnum;
use dormouse_crypto::Secret;
use std::fmt::Write as _;

/// For which client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Form {
    /// `dormouse join`
    Dormouse,
    /// strongSwan: a directory that goes into /etc/swanctl
    Swanctl,
}

/// What a device needs.
pub(super) struct Content<'a> {
    pub(super) parties: &'a Parties,
    pub(super) ca: &'a str,
    pub(super) certificate: &'a str,
    pub(super) key: &'a Secret,
}

impl Form {
    /// What the file or directory of a user is called.
    pub(super) fn file_name(self, name: &str) -> String {
        match self {
            Self::Dormouse => format!("{name}.dormouse"),
            Self::Swanctl => format!("{name}.swanctl"),
        }
    }

    /// What to do with it.
    pub(super) fn advice(self, shown: &str) -> String {
        match self {
            Self::Dormouse => format!("dormouse join {shown}"),
            Self::Swanctl => format!("cp -r {shown}/. /etc/swanctl/ && swanctl --load-all"),
        }
    }

    /// The files; a single one without a name is no directory.
    pub(super) fn files(self, user: &str, content: &Content<'_>) -> Vec<(String, Secret)> {
        let Content { parties, ca, certificate, key } = content;
        let plain = |text: &str| Secret::from(text.as_bytes());
        match self {
            Self::Dormouse => vec![(String::new(), bundle::text(parties, ca, certificate, key))],
            Self::Swanctl => vec![
                (format!("conf.d/{user}.conf"), plain(&swanctl(user, parties))),
                (format!("x509ca/{user}-ca.pem"), plain(ca)),
                (format!("x509/{user}.pem"), plain(certificate)),
                (format!("private/{user}.key"), Secret::concat(&[key.as_bytes()])),
            ],
        }
    }
}

/// The connection for strongSwan. Its own proposals stay where the gateway has none that were configured.
fn swanctl(user: &str, parties: &Parties) -> String {
    let list = |items: Vec<String>| items.join(", ");
    let has = |v4: bool| parties.remote.iter().any(|net| net.addr().is_ipv4() == v4);
    let families = [(true, "0.0.0.0"), (false, "::")];
    let vips = families.iter().filter(|(v4, _)| has(*v4)).map(|(_, any)| (*any).to_owned()).collect();
    let proposals = |key: &str, all: &[String]| {
        if all.is_empty() { String::new() } else { format!("{key} = {}\n", all.join(", ")) }
    };
    let mut out = String::from("# Made by dormouse user add --as swanctl.\nconnections {\n");
    let _ = write!(
        out,
        "  {} {{\n    version = 2\n    remote_addrs = {}\n    vips = {}\n    mobike = yes\n    fragmentation = yes\n    dpd_delay = 60s\n\
         \x20   local {{\n      auth = pubkey\n      certs = {user}.pem\n      id = {}\n    }}\n\
         \x20   remote {{\n      auth = pubkey\n      cacerts = {user}-ca.pem\n      id = {}\n    }}\n\
         {}    children {{\n      net {{\n        remote_ts = {}\n{}        start_action = trap\n      }}\n    }}\n  }}\n}}\n",
        parties.name,
        parties.gateway,
        list(vips),
        parties.id,
        parties.gateway_id,
        proposals("    proposals", &parties.ike_proposals),
        list(parties.remote.iter().map(ToString::to_string).collect()),
        proposals("        esp_proposals", &parties.esp_proposals),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_for_strongswan_names_its_files_and_families() {
        let parties = Parties {
            name: "vpn".into(),
            gateway: "vpn.example.org".into(),
            gateway_id: "vpn.example.org".into(),
            id: "joe.vpn.example.org".into(),
            remote: vec!["10.20.0.0/16".parse().unwrap()],
            ike_proposals: vec!["aes128-sha256-ecp256".into()],
            esp_proposals: Vec::new(),
        };
        let key = Secret::from(*b"key");
        let content = Content { parties: &parties, ca: "ca", certificate: "own", key: &key };
        let files = Form::Swanctl.files("joe", &content);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["conf.d/joe.conf", "x509ca/joe-ca.pem", "x509/joe.pem", "private/joe.key"]);
        let text = String::from_utf8(files[0].1.as_bytes().to_vec()).unwrap();
        for line in [
            "vips = 0.0.0.0\n",
            "remote_ts = 10.20.0.0/16\n",
            "certs = joe.pem\n",
            "cacerts = joe-ca.pem\n",
            "proposals = aes128-sha256-ecp256\n",
            "id = joe.vpn.example.org\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
