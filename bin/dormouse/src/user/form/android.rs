//! A profile of strongSwan's client for Android (`.sswan`, JSON): <https://docs.strongswan.org/docs/latest/os/androidVpnClientProfiles.html>. Owns its
//! form.

use super::{Content, Given, carries_all, der, for_strongswan, plain, uuid};
use crate::enrol::wrong;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormouse_control::Error;
use dormouse_crypto::Secret;
use serde_json::{Map, Value, json};

/// The profile. The password of a user is not in it: the app asks for it.
pub(super) fn profile(content: &Content<'_>) -> Result<Secret, Error> {
    let parties = content.parties;
    let (kind, local) = match content.given {
        Given::Certificate { .. } => {
            let p12 = content.pkcs12()?;
            ("ikev2-cert", json!({ "id": parties.id, "p12": STANDARD.encode(p12.as_bytes()) }))
        }
        Given::Password { user, .. } => ("ikev2-eap", json!({ "eap_id": user })),
    };
    let mut profile = Map::new();
    let mut put = |key: &str, value: Value| profile.insert(key.to_owned(), value);
    put("uuid", Value::from(uuid(content, "profile")));
    put("name", Value::from(format!("{} ({})", parties.name, content.user)));
    put("type", Value::from(kind));
    let ca = STANDARD.encode(der(content.ca)?);
    put("remote", json!({ "addr": parties.gateway, "id": parties.gateway_id, "cert": ca }));
    put("local", local);
    if carries_all(parties) {
        // Where a family is not carried it must not leave in clear.
        put("split-tunneling", json!({ "block-ipv4": true, "block-ipv6": true }));
    } else {
        let subnets: Vec<String> = parties.remote.iter().map(ToString::to_string).collect();
        put("split-tunneling", json!({ "subnets": subnets }));
    }
    // The app takes one proposal.
    for (key, all) in [("ike-proposal", &parties.ike_proposals), ("esp-proposal", &parties.esp_proposals)] {
        if let Some(proposal) = for_strongswan(all).into_iter().next() {
            put(key, Value::from(proposal));
        }
    }
    let text = serde_json::to_string_pretty(&profile).map_err(|e| wrong(e.to_string()))?;
    Ok(plain(&format!("{text}\n")))
}
