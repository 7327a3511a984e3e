//! A script of PowerShell for the client that Windows has itself. Owns its form: every text in it is quoted, and none has more than one line.
//! Without the script the client offers nothing that is strong enough for a gateway here (docs/clients.md).

use super::choice::{Abilities, Hash, choose};
use super::{Content, Given, carries_all, der, plain};
use dormouse_control::Error;
use dormouse_crypto::Secret;
use dormouse_crypto::suites::{Encr, Group};
use std::fmt::Write as _;

const ABILITIES: Abilities = Abilities {
    client: "Windows",
    ike: &[Encr::Aes256Cbc, Encr::Aes128Cbc],
    esp: &[Encr::Aes256Gcm16, Encr::Aes128Gcm16, Encr::Aes256Cbc, Encr::Aes128Cbc],
    hashes: &[Hash::Sha256, Hash::Sha384],
    // Of -AuthenticationTransformConstants there is SHA256128, and none with SHA-384.
    esp_hashes: &[Hash::Sha256],
    groups: &[Group::Modp2048, Group::Ecp256, Group::Ecp384],
};

/// A text as PowerShell takes it literally. It ends such a text at several characters that look like an apostrophe.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars().filter(|c| !c.is_control()) {
        if matches!(c, '\'' | '\u{2018}'..='\u{201b}') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
    out
}

/// The script, the authority, and for a user with a certificate its file.
pub(super) fn files(content: &Content<'_>) -> Result<Vec<(String, Secret)>, Error> {
    let (user, parties) = (content.user, content.parties);
    let mut files = vec![(format!("{user}-ca.cer"), Secret::from(der(content.ca)?))];
    if matches!(content.given, Given::Certificate { .. }) {
        files.push((format!("{user}.p12"), content.pkcs12()?));
    }
    let (ike, esp) = choose(parties, &ABILITIES)?;
    let beside = |file: &str| format!("(Join-Path $PSScriptRoot {})", quoted(file));
    let mut out = String::from(
        "#Requires -Version 5.1\n#Requires -RunAsAdministrator\n# Made by dormouse user add --as windows.\n\
         $ErrorActionPreference = 'Stop'\n",
    );
    let _ = writeln!(out, "$name = {}", quoted(&parties.name));
    let _ = writeln!(
        out,
        "Import-Certificate -FilePath {} -CertStoreLocation Cert:\\LocalMachine\\Root | Out-Null",
        beside(&format!("{user}-ca.cer"))
    );
    let method = match content.given {
        Given::Certificate { .. } => {
            let _ = writeln!(
                out,
                "$passphrase = Read-Host -AsSecureString 'Passphrase of the key'\n\
                 Import-PfxCertificate -FilePath {} -Password $passphrase -CertStoreLocation Cert:\\LocalMachine\\My | Out-Null",
                beside(&format!("{user}.p12"))
            );
            "MachineCertificate"
        }
        Given::Password { user, .. } => {
            let _ = writeln!(out, "# The user name is {user}", user = quoted(user));
            "Eap -RememberCredential"
        }
    };
    let split = if carries_all(parties) { "" } else { " -SplitTunneling" };
    let _ = writeln!(
        out,
        "Get-VpnConnection -AllUserConnection | Where-Object Name -eq $name | Remove-VpnConnection -AllUserConnection -Force\n\
         Add-VpnConnection -AllUserConnection -Name $name -ServerAddress {} -TunnelType Ikev2 -EncryptionLevel Maximum \
         -AuthenticationMethod {method}{split} -Force",
        quoted(&parties.gateway)
    );
    let hash = |hash| if hash == Hash::Sha256 { "SHA256" } else { "SHA384" };
    let group = match ike.group {
        Group::Modp2048 => "Group14",
        Group::Ecp384 => "ECP384",
        _ => "ECP256",
    };
    let (authentication, cipher) = match esp.encr {
        Encr::Aes256Gcm16 => ("GCMAES256", "GCMAES256"),
        Encr::Aes128Gcm16 => ("GCMAES128", "GCMAES128"),
        Encr::Aes128Cbc => ("SHA256128", "AES128"),
        _ => ("SHA256128", "AES256"),
    };
    let pfs = match esp.group {
        Some(Group::Modp2048) => "PFS2048",
        Some(Group::Ecp384) => "ECP384",
        Some(Group::Ecp256) => "ECP256",
        _ => "None",
    };
    let _ = writeln!(
        out,
        "Set-VpnConnectionIPsecConfiguration -AllUserConnection -ConnectionName $name -EncryptionMethod {} -IntegrityCheckMethod {} \
         -DHGroup {group} -CipherTransformConstants {cipher} -AuthenticationTransformConstants {authentication} -PfsGroup {pfs} -Force",
        if ike.encr == Encr::Aes128Cbc { "AES128" } else { "AES256" },
        hash(ike.hash),
    );
    if !carries_all(parties) {
        for net in &parties.remote {
            let _ = writeln!(
                out,
                "Add-VpnConnectionRoute -AllUserConnection -ConnectionName $name -DestinationPrefix {}",
                quoted(&net.to_string())
            );
        }
    }
    files.push((format!("{user}.ps1"), plain(&out.replace('\n', "\r\n"))));
    Ok(files)
}
