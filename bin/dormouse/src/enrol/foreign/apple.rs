//! Configuration profiles of Apple's devices. Owns the reading of one IKEv2 connection and of the payloads that belong to it; all else in a profile
//! is left out.

use super::{Ends, Wrong, identity, password, pem};
use crate::enrol::bundle::{Bundle, Proof};
use crate::enrol::names::shown;
use crate::enrol::passphrase::Source;
use crate::enrol::plist::Plist;
use dormouse_crypto::cert::Certificate;
use dormouse_node::config::file::Hidden;

/// The passphrase of a key, where the profile has it.
fn opened(payload: &Plist, source: &Source) -> Result<(Proof, Vec<Certificate>), Wrong> {
    let Some(Plist::Data(p12)) = payload.get("PayloadContent") else {
        return Err("the payload of the key has no content".into());
    };
    match payload.str("Password") {
        Some(passphrase) => {
            let found =
                dormouse_crypto::pkcs12::open(p12, passphrase).map_err(|e| format!("its key: {e}"))?;
            let key = str::from_utf8(found.key.as_bytes()).map_err(|e| e.to_string())?;
            let certificate = pem(std::slice::from_ref(&found.own))?;
            Ok((Proof::Certificate { certificate, key: Hidden(key.to_owned()) }, found.others))
        }
        None => identity(p12, source),
    }
}

pub(super) fn bundle(text: &str, source: &Source) -> Result<Bundle, Wrong> {
    let profile = Plist::read(text).map_err(|what| format!("no configuration profile: {what}"))?;
    let Some(Plist::Array(payloads)) = profile.get("PayloadContent") else {
        return Err("no configuration profile: PayloadContent is missing".into());
    };
    let of = |kind: &'static str| payloads.iter().filter(move |p| p.str("PayloadType") == Some(kind));
    let mut connections = of("com.apple.vpn.managed").filter(|p| p.str("VPNType") == Some("IKEv2"));
    let payload = connections.next().ok_or("there is no IKEv2 connection in it")?;
    if connections.next().is_some() {
        return Err("there are several IKEv2 connections in it: only one is taken over".into());
    }
    let vpn = payload.get("IKEv2").ok_or("its connection has no IKEv2 dictionary")?;
    let (proof, beside) = if vpn.is_set("ExtendedAuthEnabled") {
        if vpn.get("PayloadCertificateUUID").is_some() {
            return Err("EAP by a certificate (EAP-TLS) is not taken over".into());
        }
        let user = vpn.str("AuthName").ok_or("AuthName is missing: it does not say who logs in")?;
        let proof = match vpn.str("AuthPassword") {
            Some(text) => Proof::Password { user: user.to_owned(), password: Hidden(text.to_owned()) },
            None => password(user, source)?,
        };
        (proof, Vec::new())
    } else {
        match vpn.str("AuthenticationMethod") {
            Some("Certificate") => {}
            other => {
                let found = shown(other.unwrap_or_default());
                return Err(format!(
                    "AuthenticationMethod {found}: only Certificate, or EAP with a password, is taken over"
                )
                .into());
            }
        }
        let wanted = vpn.str("PayloadCertificateUUID").ok_or("PayloadCertificateUUID is missing")?;
        let mut keys = of("com.apple.security.pkcs12");
        let key = keys.find(|p| p.str("PayloadUUID").is_some_and(|id| id.eq_ignore_ascii_case(wanted)));
        opened(key.ok_or("the key that the connection names is not in it")?, source)?
    };
    let mut authorities = Vec::new();
    for payload in of("com.apple.security.root").chain(of("com.apple.security.pem")) {
        if let Some(Plist::Data(content)) = payload.get("PayloadContent") {
            authorities
                .extend(Certificate::from_file_content(content).map_err(|e| format!("an authority: {e}"))?);
        }
    }
    if authorities.is_empty() {
        authorities = beside;
    }
    let ends = Ends {
        name: payload.str("UserDefinedName").unwrap_or_default(),
        gateway: vpn.str("RemoteAddress").ok_or("RemoteAddress is missing")?,
        gateway_id: vpn.str("RemoteIdentifier"),
        id: vpn.str("LocalIdentifier"),
        // What the tunnel carries, the gateway says.
        remote: Vec::new(),
        // What such a profile names is one choice of one client: ours has all of them.
        proposals: [Vec::new(), Vec::new()],
    };
    ends.bundle(pem(&authorities)?, proof)
}
