//! In which form a device gets what it needs: our own file, or the files of another client. Owns which forms there are and what they share; writes
//! nothing.

mod android;
mod apple;
mod choice;
mod networkmanager;
mod swanctl;
mod windows;

use crate::enrol::bundle::{self, Given, Parties};
use crate::enrol::wrong;
use clap::ValueEnum;
use dormouse_control::Error;
use dormouse_crypto::cert::Certificate;
use dormouse_crypto::sign::{KeyKind, NewKey, SigningKey};
use dormouse_crypto::suites::Group;
use dormouse_crypto::{HashAlg, Secret, hash, pkcs12};
use dormouse_io::entropy::OsEntropy;

/// For which client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Form {
    /// `dormouse join`
    Dormouse,
    /// strongSwan: a directory that goes into /etc/swanctl
    Swanctl,
    /// strongSwan's app for Android: one profile
    Sswan,
    /// iPhone, iPad and Mac: one configuration profile
    Mobileconfig,
    /// NetworkManager with its plug-in for strongSwan: a directory
    Networkmanager,
    /// Windows 10 and 11: a directory with a script
    Windows,
}

/// What a device needs.
pub(super) struct Content<'a> {
    /// The user's name, which became names of files.
    pub(super) user: &'a str,
    pub(super) parties: &'a Parties,
    /// The authority's certificate, as PEM.
    pub(super) ca: &'a str,
    pub(super) given: Given<'a>,
    /// The gateway's own certificate, where it could be read.
    pub(super) gateway: Option<&'a Certificate>,
    /// What a key is encrypted under that goes to a client by PKCS #12.
    pub(super) passphrase: &'a str,
    /// The gateway's key, if the profile is to be signed.
    pub(super) sign: Option<&'a SigningKey>,
    /// Whether the device connects by itself.
    pub(super) on_demand: bool,
}

impl Content<'_> {
    /// Key and certificate in one file, under the passphrase.
    fn pkcs12(&self) -> Result<Secret, Error> {
        let Given::Certificate { certificate, key } = self.given else {
            return Err(wrong("a user with a password has no key"));
        };
        let (own, ca) = (der(certificate)?, der(self.ca)?);
        let sealed = pkcs12::seal(key, &[&own, &ca], self.user, self.passphrase, &mut OsEntropy);
        sealed.ok_or_else(|| wrong("the new key could not be encrypted"))
    }

    fn gateway_certificate(&self) -> Result<&Certificate, Error> {
        self.gateway.ok_or_else(|| {
            wrong("the gateway's own certificate could not be read, of which this client must know the kind")
        })
    }
}

impl Form {
    /// What the file or directory of a user is called.
    pub(super) fn file_name(self, name: &str) -> String {
        let end = match self {
            Self::Dormouse => "dormouse",
            Self::Swanctl => "swanctl",
            Self::Sswan => "sswan",
            Self::Mobileconfig => "mobileconfig",
            Self::Networkmanager => "networkmanager",
            Self::Windows => "windows",
        };
        format!("{name}.{end}")
    }

    /// What to do with it at the device.
    pub(super) fn advice(self, shown: &str, user: &str) -> String {
        match self {
            Self::Dormouse => format!("dormouse join {shown}"),
            Self::Swanctl => format!("cp -r {shown}/. /etc/swanctl/ && swanctl --load-all"),
            Self::Sswan => "open it with the app strongSwan VPN Client".into(),
            Self::Mobileconfig => "open it, then Settings, Profile Downloaded, Install".into(),
            Self::Networkmanager => format!(
                "install -d -m 700 {dir} && install -m 600 {shown}/{user}* {dir}/ && \
                 install -m 600 {shown}/{user}.nmconnection /etc/NetworkManager/system-connections/ && nmcli connection reload",
                dir = networkmanager::DIRECTORY
            ),
            Self::Windows => {
                format!("as administrator, in {shown}: powershell -ExecutionPolicy Bypass -File {user}.ps1")
            }
        }
    }

    /// Whether a key in it is under a passphrase.
    pub(super) const fn has_passphrase(self) -> bool {
        matches!(self, Self::Sswan | Self::Mobileconfig | Self::Windows)
    }

    /// Whether the password of a user is in it.
    pub(super) const fn has_password(self) -> bool {
        matches!(self, Self::Dormouse | Self::Swanctl)
    }

    /// Whether it is several files.
    pub(super) const fn is_directory(self) -> bool {
        matches!(self, Self::Swanctl | Self::Networkmanager | Self::Windows)
    }

    /// The kind of key that the client takes. strongSwan's app asks Android for RSA keys alone, and a device of Apple has one setting for the kinds of
    /// both ends.
    pub(super) const fn key(self, gateway: Option<KeyKind>) -> NewKey {
        match (self, gateway) {
            (Self::Sswan, _) | (Self::Mobileconfig, Some(KeyKind::Rsa { .. })) => NewKey::Rsa3072,
            _ => NewKey::EcdsaP256,
        }
    }

    /// The files; a single one without a name is no directory.
    ///
    /// # Errors
    /// If the gateway takes nothing that the client can do.
    pub(super) fn files(self, content: &Content<'_>) -> Result<Vec<(String, Secret)>, Error> {
        let one = |file: Secret| vec![(String::new(), file)];
        match self {
            Self::Dormouse => Ok(one(bundle::text(content.parties, content.ca, content.given))),
            Self::Swanctl => Ok(swanctl::files(content)),
            Self::Sswan => android::profile(content).map(one),
            Self::Mobileconfig => apple::profile(content).map(one),
            Self::Networkmanager => Ok(networkmanager::files(content)),
            Self::Windows => windows::files(content),
        }
    }
}

fn plain(text: &str) -> Secret {
    Secret::from(text.as_bytes())
}

/// A certificate in DER.
fn der(pem: &str) -> Result<Vec<u8>, Error> {
    Certificate::from_pem(pem.as_bytes()).map(|c| c.der().to_vec()).map_err(|e| wrong(e.to_string()))
}

/// Whether a device sends everything through the tunnel.
fn carries_all(parties: &Parties) -> bool {
    parties.remote.iter().any(|net| net.prefix_len() == 0)
}

/// The proposals as strongSwan 5.9 takes them, best first; none means its own ones. It knows neither additional key exchanges (`ke1_mlkem768`)
/// nor `none`, with or without a group, and a single word that it does not know costs the whole connection.
fn for_strongswan(all: &[String]) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for proposal in all.iter().filter(|proposal| !proposal.contains('_')) {
        let words: Vec<&str> = proposal.split('-').map(str::trim).filter(|word| *word != "none").collect();
        let mut texts = vec![words.join("-")];
        if proposal.split('-').any(|word| word.trim() == "none") {
            let without = words.into_iter().filter(|word| Group::by_name(word).is_none());
            texts.push(without.collect::<Vec<_>>().join("-"));
        }
        for text in texts {
            if !taken.contains(&text) {
                taken.push(text);
            }
        }
    }
    taken
}

/// By which a device knows the same profile again, also one that was renewed: made of the authority, the user and the part that it is of (RFC 9562,
/// section 5.8).
fn uuid(content: &Content<'_>, part: &str) -> String {
    uuid_of(content.ca, &content.parties.id, part)
}

/// The same, of the authority and the identity.
pub(crate) fn uuid_of(ca: &str, id: &str, part: &str) -> String {
    let of = [ca, id, part].join("\0");
    let digest = hash(HashAlg::Sha256, &[b"dormouse profile\0", of.as_bytes()]);
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(&digest).for_each(|(place, byte)| *place = *byte);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex::encode(bytes);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|at| hex.get(at).unwrap_or_default());
    parts.join("-")
}

#[cfg(test)]
mod tests;
