//! A connection of strongSwan's `swanctl.conf`, and the files that it names. Owns its form.

use super::{Content, Given, for_strongswan, plain};
use dormouse_crypto::Secret;
use std::fmt::Write as _;

/// The connection for strongSwan. Its own proposals stay where the gateway has none that were configured and that it knows.
fn connection(content: &Content<'_>) -> Secret {
    let (user, parties) = (content.user, content.parties);
    let list = |items: Vec<String>| items.join(", ");
    let has = |v4: bool| parties.remote.iter().any(|net| net.addr().is_ipv4() == v4);
    let families = [(true, "0.0.0.0"), (false, "::")];
    let vips = families.iter().filter(|(v4, _)| has(*v4)).map(|(_, any)| (*any).to_owned()).collect();
    let proposals = |key: &str, all: &[String]| {
        let known = for_strongswan(all);
        if known.is_empty() { String::new() } else { format!("{key} = {}\n", known.join(", ")) }
    };
    let local = match content.given {
        Given::Certificate { .. } => format!("      auth = pubkey\n      certs = {user}.pem\n"),
        Given::Password { user, .. } => format!("      auth = eap-mschapv2\n      eap_id = {user}\n"),
    };
    let mut out = String::from("# Made by dormouse user add --as swanctl.\nconnections {\n");
    let _ = write!(
        out,
        "  {} {{\n    version = 2\n    remote_addrs = {}\n    vips = {}\n    mobike = yes\n    fragmentation = yes\n    dpd_delay = 60s\n\
         \x20   local {{\n{local}      id = {}\n    }}\n\
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
    match content.given {
        Given::Certificate { .. } => plain(&out),
        Given::Password { user: id, password } => {
            let _ = write!(out, "secrets {{\n  eap-{user} {{\n    id = {id}\n    secret = \"");
            Secret::concat(&[out.as_bytes(), password.as_bytes(), b"\"\n  }\n}\n"])
        }
    }
}

/// The files of a directory that goes into `/etc/swanctl`.
pub(super) fn files(content: &Content<'_>) -> Vec<(String, Secret)> {
    let user = content.user;
    let mut files = vec![
        (format!("conf.d/{user}.conf"), connection(content)),
        (format!("x509ca/{user}-ca.pem"), plain(content.ca)),
    ];
    if let Given::Certificate { certificate, key } = content.given {
        files.push((format!("x509/{user}.pem"), plain(certificate)));
        files.push((format!("private/{user}.key"), Secret::concat(&[key.as_bytes()])));
    }
    files
}
