//! Profiles of strongSwan's app for Android. Owns the reading of their keys; what they say of the app itself is left out.

use super::{Ends, Proof, Wrong, identity, password, pem};
use crate::enrol::bundle::Bundle;
use crate::enrol::names::shown;
use crate::enrol::passphrase::Source;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormouse_crypto::cert::Certificate;
use ipnet::IpNet;
use serde::Deserialize;
use std::net::IpAddr;

#[derive(Deserialize)]
struct Profile {
    #[serde(default)]
    name: String,
    #[serde(rename = "type")]
    kind: String,
    remote: Remote,
    #[serde(default)]
    local: Local,
    #[serde(rename = "split-tunneling", default)]
    split: Split,
    #[serde(rename = "ike-proposal")]
    ike: Option<String>,
    #[serde(rename = "esp-proposal")]
    esp: Option<String>,
}

#[derive(Deserialize)]
struct Remote {
    addr: String,
    id: Option<String>,
    cert: Option<String>,
}

#[derive(Deserialize, Default)]
struct Local {
    id: Option<String>,
    eap_id: Option<String>,
    p12: Option<String>,
}

#[derive(Deserialize, Default)]
struct Split {
    #[serde(default)]
    subnets: Subnets,
}

/// A list, or one text with spaces.
#[derive(Deserialize)]
#[serde(untagged)]
enum Subnets {
    List(Vec<String>),
    Text(String),
}

impl Default for Subnets {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

fn bytes(base64: &str) -> Option<Vec<u8>> {
    let text: String = base64.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(text).ok()
}

pub(super) fn bundle(text: &str, source: &Source) -> Result<Bundle, Wrong> {
    // Its own words could quote what is secret.
    let profile: Profile = serde_json::from_str(text)
        .map_err(|e| format!("no profile of strongSwan's app: line {}, column {}", e.line(), e.column()))?;
    let (proof, beside) = match profile.kind.as_str() {
        "ikev2-cert" => {
            let p12 = profile.local.p12.as_deref().ok_or("the profile has no key: local.p12 is missing")?;
            identity(&bytes(p12).ok_or("local.p12 is no base64")?, source)?
        }
        "ikev2-eap" => {
            let user = profile.local.eap_id.as_deref().or(profile.local.id.as_deref());
            (
                password(user.ok_or("local.eap_id is missing: it does not say who logs in")?, source)?,
                Vec::new(),
            )
        }
        other => {
            let kind = shown(other);
            return Err(format!("type {kind}: only ikev2-cert and ikev2-eap are taken over").into());
        }
    };
    let ca = match &profile.remote.cert {
        Some(cert) => {
            let content = bytes(cert).ok_or("remote.cert is no base64")?;
            let all = Certificate::from_file_content(&content).map_err(|e| format!("remote.cert: {e}"))?;
            pem(&all)?
        }
        None => pem(&beside)?,
    };
    let subnets = match &profile.split.subnets {
        Subnets::List(list) => list.iter().map(String::as_str).collect(),
        Subnets::Text(text) => text.split_whitespace().collect::<Vec<_>>(),
    };
    let one = |word: &&str| {
        let single = || word.parse::<IpAddr>().map(IpNet::from);
        let net = word.trim().parse::<IpNet>().or_else(|_| single());
        net.map(|net| net.trunc())
            .map_err(|_| format!("split-tunneling.subnets: {} is no prefix", shown(word)))
    };
    let remote = subnets.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    let id = match &proof {
        Proof::Certificate { .. } => profile.local.id.as_deref(),
        Proof::Password { .. } => None,
    };
    let proposals = [&profile.ike, &profile.esp].map(|one| one.iter().cloned().collect());
    let (gateway, gateway_id) = (profile.remote.addr.as_str(), profile.remote.id.as_deref());
    Ends { name: &profile.name, gateway, gateway_id, id, remote, proposals }.bundle(ca, proof)
}
