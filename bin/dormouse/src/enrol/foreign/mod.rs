//! Profiles that other clients are given, for a device that is to be joined with us. Owns telling them apart, and what they share: a key under a
//! passphrase, and what is demanded of names and prefixes. Each reader takes over what it knows, and refuses what it does not know of authentication.
//!
//! Whose a file is can say which gateway is spoken with, by which key or password, and nothing else; no profile but NetworkManager's names files.

mod android;
mod apple;
mod networkmanager;

use super::bundle::{Bundle, Parties, Proof};
use super::names::{self, harmless};
use super::passphrase::Source;
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::cert::Certificate;
use dormouse_crypto::{Secret, cms, pkcs12};
use dormouse_node::config::file::Hidden;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::path::Path;

/// Most prefixes of a profile.
const MOST: usize = 1024;

/// What a profile says, and what is to be said of it.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) bundle: Bundle,
    /// Who has signed it: its signature is right, and nothing more is known.
    pub(crate) signer: Option<String>,
}

/// Reads a profile of another client; `None` if it is none.
///
/// # Errors
/// What is missing or is not done by us.
pub(crate) fn profile(path: &Path, content: &Secret, source: &Source) -> Result<Option<Profile>, Error> {
    let file = path.display().to_string();
    // Names that another has chosen may be in it.
    let fail =
        |what: String| Error::new(ErrorKind::Other, format!("{}: {}", harmless(&file), harmless(&what)));
    let bytes = content.as_bytes();
    let plain = |bundle: Bundle| Some(Profile { bundle, signer: None });
    if cms::is_one(bytes) {
        let signed = cms::open(bytes).map_err(|e| fail(e.to_string()))?;
        let text = str::from_utf8(signed.content).map_err(|_| fail("what is signed is not UTF-8".into()))?;
        let bundle = apple::bundle(text, source).map_err(|e| e.named(fail))?;
        return Ok(Some(Profile { bundle, signer: Some(harmless(&signed.signer.subject())) }));
    }
    if bytes.starts_with(b"bplist") {
        return Err(fail("a property list in Apple's binary form".into())
            .with_change("plutil -convert xml1 FILE, on a Mac"));
    }
    let Ok(text) = str::from_utf8(bytes) else { return Ok(None) };
    let start = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    if start.starts_with('<') {
        return apple::bundle(text, source).map(plain).map_err(|e| e.named(fail));
    }
    if start.starts_with('{') {
        return android::bundle(start, source).map(plain).map_err(|e| e.named(fail));
    }
    if networkmanager::is_one(text) {
        return networkmanager::bundle(path, text, source).map(plain).map_err(|e| e.named(fail));
    }
    Ok(None)
}

/// What is wrong: in words, or an error that is whole already.
enum Wrong {
    Words(String),
    Error(Error),
}

impl Wrong {
    fn named(self, fail: impl Fn(String) -> Error) -> Error {
        match self {
            Self::Words(what) => fail(what),
            Self::Error(error) => error,
        }
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Self::Words(what)
    }
}

impl From<&str> for Wrong {
    fn from(what: &str) -> Self {
        Self::Words(what.to_owned())
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What a profile says of both ends; the rest has one form for all.
struct Ends<'a> {
    /// What the profile calls the connection.
    name: &'a str,
    gateway: &'a str,
    gateway_id: Option<&'a str>,
    /// `None`: the name in the certificate, or the user's.
    id: Option<&'a str>,
    remote: Vec<IpNet>,
    proposals: [Vec<String>; 2],
}

impl Ends<'_> {
    fn bundle(self, ca: String, proof: Proof) -> Result<Bundle, Wrong> {
        names::gateway(self.gateway).map_err(|e| e.message)?;
        if ca.is_empty() {
            return Err("it names no authority that vouches for the gateway".into());
        }
        let id = match (self.id.filter(|id| !id.is_empty()), &proof) {
            (Some(id), _) => id.to_owned(),
            (None, Proof::Password { user, .. }) => user.clone(),
            (None, Proof::Certificate { certificate, .. }) => {
                let own = Certificate::from_pem(certificate.as_bytes()).map_err(|e| e.to_string())?;
                // The subject comes first, and the alternative names are what gateways go by.
                own.identities().last().map(ToString::to_string).unwrap_or_default()
            }
        };
        let mut remote = self.remote;
        if remote.is_empty() {
            remote = vec![IpNet::from(Ipv4Net::default()), Ipv6Net::default().into()];
        }
        if remote.len() > MOST {
            return Err(format!("more than {MOST} networks").into());
        }
        let [ike_proposals, esp_proposals] = self.proposals;
        let parties = Parties {
            name: connection_name(self.name, self.gateway),
            gateway: self.gateway.to_owned(),
            gateway_id: self.gateway_id.filter(|id| !id.is_empty()).unwrap_or(self.gateway).to_owned(),
            id,
            remote,
            ike_proposals,
            esp_proposals,
            renewals: None,
        };
        Ok(Bundle::of(parties, ca, proof))
    }
}

/// A name that a connection can have, out of what a profile is called: its first word, else the gateway's first label.
fn connection_name(shown: &str, gateway: &str) -> String {
    let words = [shown.split_whitespace().next(), gateway.split('.').next(), Some("vpn")];
    let fits = |word: &&str| names::connection(word).is_ok() && !word.bytes().all(|c| c.is_ascii_digit());
    words.into_iter().flatten().find(fits).unwrap_or("vpn").to_owned()
}

/// Key and certificate of a file of PKCS #12, and the certificates beside them.
fn identity(p12: &[u8], source: &Source) -> Result<(Proof, Vec<Certificate>), Wrong> {
    // Some files have an empty passphrase: it is tried before the user is asked.
    let found = match pkcs12::open(p12, "") {
        Err(pkcs12::Pkcs12Error::Passphrase) => {
            let passphrase = source.ask("passphrase of the key")?;
            pkcs12::open(p12, &passphrase)
        }
        other => other,
    };
    let found = found.map_err(|e| format!("its key: {e}"))?;
    let key = str::from_utf8(found.key.as_bytes()).map_err(|e| e.to_string())?;
    let certificate = pem(std::slice::from_ref(&found.own))?;
    Ok((Proof::Certificate { certificate, key: Hidden(key.to_owned()) }, found.others))
}

/// The password of a user, who was to be asked for it.
fn password(user: &str, source: &Source) -> Result<Proof, Wrong> {
    let password = source.ask(&format!("password of {}", harmless(user)))?;
    Ok(Proof::Password { user: user.to_owned(), password: Hidden(password.to_string()) })
}

/// Certificates as PEM, encoded anew.
fn pem(all: &[Certificate]) -> Result<String, String> {
    all.iter().map(Certificate::to_pem).collect::<Result<String, _>>().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests;
