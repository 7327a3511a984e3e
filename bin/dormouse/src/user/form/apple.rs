//! A configuration profile for the devices of Apple (`.mobileconfig`): <https://github.com/apple/device-management>, `com.apple.vpn.managed`. Owns
//! its form. One choice of algorithms is named, because what these devices offer by themselves differs from system to system.

use super::choice::{Abilities, Hash, choose};
use super::{Content, Given, der, uuid};
use crate::enrol::plist::Plist;
use crate::enrol::wrong;
use dormouse_control::Error;
use dormouse_crypto::Secret;
use dormouse_crypto::cms;
use dormouse_crypto::sign::KeyKind;
use dormouse_crypto::suites::{Encr, Group};

const ABILITIES: Abilities = Abilities {
    client: "a device of Apple",
    ike: &[Encr::Aes256Gcm16, Encr::Aes256Cbc, Encr::Aes128Gcm16, Encr::Aes128Cbc],
    esp: &[Encr::Aes256Gcm16, Encr::Aes128Gcm16, Encr::Aes256Cbc, Encr::Aes128Cbc],
    hashes: &[Hash::Sha256, Hash::Sha384],
    esp_hashes: &[Hash::Sha256, Hash::Sha384],
    groups: &[Group::Ecp256, Group::Ecp384, Group::Modp2048, Group::Modp3072, Group::X25519],
};

const fn cipher(encr: Encr) -> &'static str {
    match encr {
        Encr::Aes256Gcm16 => "AES-256-GCM",
        Encr::Aes128Gcm16 => "AES-128-GCM",
        Encr::Aes128Cbc => "AES-128",
        _ => "AES-256",
    }
}

fn parameters(encr: Encr, hash: Hash, group: Group) -> Plist {
    let hash = if hash == Hash::Sha256 { "SHA2-256" } else { "SHA2-384" };
    Plist::dict([
        ("EncryptionAlgorithm", Plist::text(cipher(encr))),
        ("IntegrityAlgorithm", Plist::text(hash)),
        ("DiffieHellmanGroup", Plist::Number(group.id().into())),
    ])
}

/// The profile. The password of a user, and the passphrase of a key, are not in it: the device asks for them when it takes it.
pub(super) fn profile(content: &Content<'_>) -> Result<Secret, Error> {
    let parties = content.parties;
    let (ike, esp) = choose(parties, &ABILITIES)?;
    let gateway = content.gateway_certificate()?;
    let issuer = gateway.issuer();
    let issuer = issuer.strip_prefix("CN=").ok_or_else(|| {
        wrong("the issuer of the gateway's certificate has more than a CN: these devices could not be told its name")
    })?;
    let mut vpn = vec![
        ("RemoteAddress", Plist::text(&parties.gateway)),
        ("RemoteIdentifier", Plist::text(&parties.gateway_id)),
        ("LocalIdentifier", Plist::text(&parties.id)),
        ("ServerCertificateIssuerCommonName", Plist::text(issuer)),
        ("CertificateType", Plist::text(certificate_type(content)?)),
        ("IKESecurityAssociationParameters", parameters(ike.encr, ike.hash, ike.group)),
        (
            "ChildSecurityAssociationParameters",
            parameters(esp.encr, esp.hash, esp.group.unwrap_or(ike.group)),
        ),
        ("EnablePFS", Plist::Number(esp.group.is_some().into())),
        ("DisableMOBIKE", Plist::Number(0)),
        ("DeadPeerDetectionRate", Plist::text("Medium")),
    ];
    let mut payloads = vec![ca(content)?];
    match content.given {
        Given::Certificate { .. } => {
            let (identity, id) = identity(content)?;
            payloads.push(identity);
            vpn.push(("AuthenticationMethod", Plist::text("Certificate")));
            vpn.push(("PayloadCertificateUUID", Plist::Text(id)));
            vpn.push(("ExtendedAuthEnabled", Plist::Number(0)));
        }
        Given::Password { user, .. } => {
            vpn.push(("AuthenticationMethod", Plist::text("None")));
            vpn.push(("ExtendedAuthEnabled", Plist::Number(1)));
            vpn.push(("AuthName", Plist::text(user)));
        }
    }
    if content.on_demand {
        vpn.push(("OnDemandEnabled", Plist::Number(1)));
        let rule = Plist::dict([("Action", Plist::text("Connect"))]);
        vpn.push(("OnDemandRules", Plist::Array(vec![rule])));
    }
    let vpn = Plist::Dict(vpn.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    payloads.push(payload(
        content,
        "com.apple.vpn.managed",
        "vpn",
        [("UserDefinedName", Plist::text(&parties.name)), ("VPNType", Plist::text("IKEv2")), ("IKEv2", vpn)],
    ));
    let profile = payload(content, "Configuration", "profile", [("PayloadContent", Plist::Array(payloads))]);
    signed(content, profile.document())
}

/// By whose key both ends sign; the device has one setting for it.
fn certificate_type(content: &Content<'_>) -> Result<&'static str, Error> {
    let key = content.gateway_certificate()?.public_key().map_err(|e| wrong(e.to_string()))?;
    match key.kind() {
        KeyKind::EcdsaP256 => Ok("ECDSA256"),
        KeyKind::EcdsaP384 => Ok("ECDSA384"),
        KeyKind::Rsa { .. } => Ok("RSA"),
        other => {
            Err(wrong(format!("the gateway's key is of a kind that these devices do not have: {other:?}")))
        }
    }
}

/// A payload with what each of them has; a later one of the same identifier takes its place.
fn payload<const N: usize>(content: &Content<'_>, kind: &str, part: &str, more: [(&str, Plist); N]) -> Plist {
    let identifier = format!("dormouse.{}.{}", content.parties.gateway, content.user);
    let identifier = if part == "profile" { identifier } else { format!("{identifier}.{part}") };
    let name = format!("{} ({})", content.parties.name, content.user);
    let mut items = vec![
        ("PayloadType", Plist::text(kind)),
        ("PayloadVersion", Plist::Number(1)),
        ("PayloadIdentifier", Plist::Text(identifier)),
        ("PayloadUUID", Plist::Text(uuid(content, part))),
        ("PayloadDisplayName", Plist::Text(name)),
    ];
    items.extend(more);
    Plist::Dict(items.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn ca(content: &Content<'_>) -> Result<Plist, Error> {
    let file = Plist::text(&format!("{}-ca.cer", content.user));
    let more = [("PayloadCertificateFileName", file), ("PayloadContent", Plist::Data(der(content.ca)?))];
    Ok(payload(content, "com.apple.security.root", "ca", more))
}

/// The key and its certificate, and by which name the connection finds them.
fn identity(content: &Content<'_>) -> Result<(Plist, String), Error> {
    let file = Plist::text(&format!("{}.p12", content.user));
    let p12 = Plist::Data(content.pkcs12()?.as_bytes().to_vec());
    let more = [("PayloadCertificateFileName", file), ("PayloadContent", p12)];
    Ok((payload(content, "com.apple.security.pkcs12", "identity", more), uuid(content, "identity")))
}

/// The same under the gateway's signature, if that was asked for.
fn signed(content: &Content<'_>, document: String) -> Result<Secret, Error> {
    let Some(key) = content.sign else { return Ok(Secret::from(document.into_bytes())) };
    let own = content.gateway_certificate()?;
    let message = cms::sign(document.as_bytes(), &[own], key);
    message
        .map(Secret::from)
        .ok_or_else(|| wrong("the gateway's key does not sign by a scheme that these devices have"))
}
