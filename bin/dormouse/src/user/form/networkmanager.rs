//! A connection for NetworkManager with its plug-in for strongSwan (`network-manager-strongswan`): a key file, and the files that it names. Owns its
//! form.

use super::{Content, Given, carries_all, for_strongswan, plain, uuid};
use dormouse_crypto::Secret;
use std::fmt::Write as _;

/// Where the files are to be: of root alone, as the connection is.
pub(super) const DIRECTORY: &str = "/etc/NetworkManager/certs";

/// The files of a directory that goes to the device.
pub(super) fn files(content: &Content<'_>) -> Vec<(String, Secret)> {
    let (user, parties) = (content.user, content.parties);
    let mut files = vec![(format!("{user}-ca.pem"), plain(content.ca))];
    let mut vpn = format!(
        "service-type=org.freedesktop.NetworkManager.strongswan\naddress={}\nremote-identity={}\nlocal-identity={}\n\
         certificate={DIRECTORY}/{user}-ca.pem\n",
        parties.gateway, parties.gateway_id, parties.id
    );
    match content.given {
        Given::Certificate { certificate, key } => {
            files.push((format!("{user}.pem"), plain(certificate)));
            files.push((format!("{user}.key"), Secret::concat(&[key.as_bytes()])));
            let _ = writeln!(
                vpn,
                "method=key\nusercert={DIRECTORY}/{user}.pem\nuserkey={DIRECTORY}/{user}.key\npassword-flags=4"
            );
        }
        // The desktop asks for the password, and may keep it.
        Given::Password { user, .. } => {
            let _ = writeln!(vpn, "method=eap\nuser={user}\npassword-flags=1");
        }
    }
    vpn.push_str("virtual=yes\nencap=no\nipcomp=no\n");
    let (ike, esp) = (for_strongswan(&parties.ike_proposals), for_strongswan(&parties.esp_proposals));
    if ike.is_empty() && esp.is_empty() {
        vpn.push_str("proposal=no\n");
    } else {
        vpn.push_str("proposal=yes\n");
        for (key, all) in [("ike", ike), ("esp", esp)] {
            if !all.is_empty() {
                let _ = writeln!(vpn, "{key}={}", all.join(";"));
            }
        }
    }
    let split = if carries_all(parties) { "" } else { "never-default=true\n" };
    let text = format!(
        "# Made by dormouse user add --as networkmanager.\n[connection]\nid={} ({user})\nuuid={}\ntype=vpn\nautoconnect=false\n\n\
         [vpn]\n{vpn}\n[ipv4]\nmethod=auto\n{split}\n[ipv6]\nmethod=auto\n{split}",
        parties.name,
        uuid(content, "profile")
    );
    files.push((format!("{user}.nmconnection"), plain(&text)));
    files
}
