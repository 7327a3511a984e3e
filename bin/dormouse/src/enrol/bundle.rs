//! What a device is given: one file with all that it needs. Owns the format `NAME.dormouse`, TOML of version 1: names, and certificates and key
//! as PEM. It names no files, so that who joins by it is led to none. Whose it is can say which gateway is spoken with, and nothing else.

use super::{names, wrong};
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::Certificate;
use dormouse_node::config::file::Hidden;
use dormouse_sansio::UnixTime;
use ipnet::IpNet;
use serde::Deserialize;
use std::fmt::Write as _;
use std::net::SocketAddr;

const VERSION: u32 = 1;

/// What a device is given.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    /// What the connection should be called.
    pub(crate) name: String,
    /// The gateway's name or address.
    pub(crate) gateway: String,
    /// The identity that the gateway proves.
    pub(crate) gateway_id: String,
    /// The device's identity.
    pub(crate) id: String,
    /// What the tunnel carries.
    pub(crate) remote: Vec<IpNet>,
    /// Algorithms of the IKE SA, where the gateway has its own.
    pub(crate) ike_proposals: Vec<String>,
    /// Algorithms of the CHILD SA, likewise.
    pub(crate) esp_proposals: Vec<String>,
    /// Where its certificate is renewed, inside the tunnel.
    pub(crate) renewals: Option<SocketAddr>,
    /// Who vouches for the gateway.
    pub(crate) ca: String,
    /// How the device proves who it is.
    pub(crate) proof: Proof,
}

/// How a device proves who it is.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// By a certificate, as PEM, and its key.
    Certificate { certificate: String, key: Hidden },
    /// By a name and a password (EAP-MSCHAPv2).
    Password { user: String, password: Hidden },
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    name: String,
    gateway: String,
    gateway_id: String,
    id: String,
    remote: Vec<IpNet>,
    #[serde(default)]
    ike_proposals: Vec<String>,
    #[serde(default)]
    esp_proposals: Vec<String>,
    renewals: Option<SocketAddr>,
    ca: String,
    certificate: Option<String>,
    key: Option<Hidden>,
    user: Option<String>,
    password: Option<Hidden>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Who speaks with whom, without what is secret.
#[derive(Clone, Debug)]
pub(crate) struct Parties {
    pub(crate) name: String,
    pub(crate) gateway: String,
    pub(crate) gateway_id: String,
    pub(crate) id: String,
    pub(crate) remote: Vec<IpNet>,
    pub(crate) ike_proposals: Vec<String>,
    pub(crate) esp_proposals: Vec<String>,
    /// Where a certificate is renewed, inside the tunnel.
    pub(crate) renewals: Option<SocketAddr>,
}

/// A text as a TOML string.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Prefixes as a TOML list.
pub(crate) fn list<T: ToString>(items: &[T]) -> String {
    format!("[{}]", items.iter().map(|item| quoted(&item.to_string())).collect::<Vec<_>>().join(", "))
}

/// What a device proves itself with, as the gateway has just made it.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    /// A certificate and its key, as PEM.
    Certificate { certificate: &'a str, key: &'a Secret },
    /// A name and a password.
    Password { user: &'a str, password: &'a str },
}

/// The file as it is written.
pub(crate) fn text(parties: &Parties, ca: &str, given: Given<'_>) -> Secret {
    let secret = if matches!(given, Given::Password { .. }) { "password" } else { "private key" };
    let mut head = format!(
        "# For one device: dormouse join FILE. It holds the device's {secret}; delete it afterwards.\n",
    );
    let _ = writeln!(head, "version = {VERSION}");
    for (key, value) in [
        ("name", &parties.name),
        ("gateway", &parties.gateway),
        ("gateway_id", &parties.gateway_id),
        ("id", &parties.id),
    ] {
        let _ = writeln!(head, "{key} = {}", quoted(value));
    }
    let _ = writeln!(head, "remote = {}", list(&parties.remote));
    for (key, proposals) in
        [("ike_proposals", &parties.ike_proposals), ("esp_proposals", &parties.esp_proposals)]
    {
        if !proposals.is_empty() {
            let _ = writeln!(head, "{key} = {}", list(proposals));
        }
    }
    if let (Some(at), Given::Certificate { .. }) = (parties.renewals, given) {
        let _ = writeln!(head, "renewals = {}", quoted(&at.to_string()));
    }
    let pem = |key: &str, pem: &str| format!("{key} = '''\n{}'''\n", pem.replace('\r', ""));
    head += &pem("ca", ca);
    match given {
        Given::Certificate { certificate, key } => {
            head += &pem("certificate", certificate);
            Secret::concat(&[head.as_bytes(), b"key = '''\n", key.as_bytes(), b"'''\n"])
        }
        Given::Password { user, password } => {
            let _ = writeln!(head, "user = {}", quoted(user));
            Secret::concat(&[head.as_bytes(), b"password = \"", password.as_bytes(), b"\"\n"])
        }
    }
}

impl Bundle {
    /// What another client's file says.
    pub(crate) fn of(parties: Parties, ca: String, proof: Proof) -> Self {
        let Parties { name, gateway, gateway_id, id, remote, ike_proposals, esp_proposals, renewals } =
            parties;
        Self { name, gateway, gateway_id, id, remote, ike_proposals, esp_proposals, renewals, ca, proof }
    }

    /// Reads a file; `shown` is its name for people. What stands in it is never shown: it may be a key, and another file's content.
    ///
    /// # Errors
    /// If it is none, of another version, or not of one piece.
    pub(crate) fn read(content: &Secret, shown: &str) -> Result<Self, Error> {
        let none = |why: String| {
            let message = format!("{shown} is no file of dormouse user add: {why}");
            Err(Error::new(ErrorKind::Other, message).with_change("dormouse user add NAME, at the gateway"))
        };
        let Ok(text) = str::from_utf8(content.as_bytes()) else { return none("not UTF-8".into()) };
        let line = |e: &toml::de::Error| {
            let at = e.span().map_or(0, |span| span.start);
            text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
        };
        match toml::from_str::<Versioned>(text) {
            Ok(found) if found.version != VERSION => {
                let message =
                    format!("{shown} is of version {}, this dormouse reads version {VERSION}", found.version);
                return Err(
                    Error::new(ErrorKind::Version, message).with_change("a newer dormouse on this device")
                );
            }
            Ok(_) => {}
            Err(e) => return none(format!("line {}", line(&e))),
        }
        let written: Written = match toml::from_str(text) {
            Ok(written) => written,
            Err(e) => return none(format!("line {}", line(&e))),
        };
        debug_assert_eq!(written.version, VERSION, "looked at before");
        let proof = match (written.certificate, written.key, written.user, written.password) {
            (Some(certificate), Some(key), None, None) => Proof::Certificate { certificate, key },
            (None, None, Some(user), Some(password)) => Proof::Password { user, password },
            _ => return none("neither a certificate and its key, nor a user and a password".into()),
        };
        let bundle = Self {
            name: written.name,
            gateway: written.gateway,
            gateway_id: written.gateway_id,
            id: written.id,
            remote: written.remote,
            ike_proposals: written.ike_proposals,
            esp_proposals: written.esp_proposals,
            renewals: written.renewals,
            ca: written.ca,
            proof,
        };
        names::gateway(&bundle.gateway)?;
        if bundle.remote.is_empty() {
            return none("it names nothing that the tunnel carries".into());
        }
        let pem = |what: &str, pem: &str| {
            Certificate::from_pem(pem.as_bytes())
                .map_err(|e| Error::new(ErrorKind::Other, format!("{shown}: {what}: {e}")))
        };
        pem("ca", &bundle.ca)?;
        if let Proof::Certificate { certificate, .. } = &bundle.proof {
            pem("certificate", certificate)?;
        }
        Ok(bundle)
    }

    /// The device's certificate, if it has one.
    pub(crate) fn certificate(&self) -> Result<Option<Certificate>, Error> {
        let Proof::Certificate { certificate, .. } = &self.proof else { return Ok(None) };
        Certificate::from_pem(certificate.as_bytes()).map(Some).map_err(|e| wrong(e.to_string()))
    }

    /// Demands that its certificate counts now; a password does until it is taken away.
    pub(crate) fn require_valid(&self, now: UnixTime, shown: &str) -> Result<(), Error> {
        let Some(certificate) = self.certificate()? else { return Ok(()) };
        if now > certificate.not_after() {
            let message = format!(
                "{shown}: its certificate has expired on {}",
                super::authority::day(certificate.not_after())
            );
            return Err(Error::new(ErrorKind::Authentication, message)
                .with_change("dormouse user renew NAME, at the gateway"));
        }
        if now < certificate.not_before() {
            let message = format!(
                "{shown}: its certificate counts from {} only; is the clock right?",
                super::authority::day(certificate.not_before())
            );
            return Err(Error::new(ErrorKind::Authentication, message).with_change("timedatectl"));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::enrol::authority::{Authority, Holder};
    use dormouse_crypto::sign::NewKey;

    pub(crate) const NOW: UnixTime = UnixTime(1_800_000_000);

    /// A bundle of an authority of its own.
    pub(crate) fn sample(name: &str, id: &str) -> Secret {
        sample_of(&Authority::new("A test", NOW).unwrap().0, name, id)
    }

    /// A bundle of this authority.
    pub(crate) fn sample_of(ca: &Authority, name: &str, id: &str) -> Secret {
        let issued = ca.issue(Holder::Device, NewKey::EcdsaP256, &id.parse().unwrap(), NOW, 10).unwrap();
        let parties = Parties {
            name: name.into(),
            gateway: "vpn.example.org".into(),
            gateway_id: "vpn.example.org".into(),
            id: id.into(),
            remote: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            ike_proposals: vec!["aes256gcm16-prfsha384-x25519".into()],
            esp_proposals: Vec::new(),
            renewals: Some("10.10.0.1:4510".parse().unwrap()),
        };
        text(&parties, ca.pem(), Given::Certificate { certificate: &issued.pem, key: &issued.key })
    }

    #[test]
    fn what_was_written_is_read() {
        let content = sample("office", "joe.example.org");
        let bundle = Bundle::read(&content, "joe.dormouse").unwrap();
        assert_eq!((bundle.name.as_str(), bundle.id.as_str()), ("office", "joe.example.org"));
        let Proof::Certificate { key, .. } = &bundle.proof else { panic!("a certificate") };
        assert!(key.0.starts_with("-----BEGIN PRIVATE KEY-----"), "PKCS #8");
        bundle.require_valid(NOW, "joe.dormouse").unwrap();
        assert!(!format!("{bundle:?}").contains("PRIVATE"), "never shown");
    }

    #[test]
    fn each_thing_that_is_wrong_with_a_file_is_said_and_nothing_of_its_content() {
        let good = String::from_utf8(sample("office", "joe.example.org").as_bytes().to_vec()).unwrap();
        let read = |text: &str| Bundle::read(&Secret::from(text.as_bytes()), "x").unwrap_err();
        for (text, said) in [
            ("root:$y$j9T$secret:19000:0\n".to_owned(), "x is no file of dormouse user add: line 1"),
            (String::new(), "x is no file of dormouse user add: line 1"),
            (good.replace("version = 1", "version = 2"), "x is of version 2, this dormouse reads version 1"),
            (
                good.replace("id = \"joe", "secret_file = \"/etc/shadow\"\nid = \"joe"),
                "x is no file of dormouse user add: line",
            ),
            (good.replace("[\"0.0.0.0/0\", \"::/0\"]", "[]"), "names nothing that the tunnel carries"),
            (good.replace("gateway = \"vpn.example.org\"", "gateway = \"a\\nb\""), "neither a host name"),
            (good.replacen("BEGIN CERTIFICATE", "BEGIN NONSENSE", 1), "x: ca: "),
        ] {
            let error = read(&text);
            assert!(error.message.contains(said), "{said}: {error}");
            assert!(!error.to_string().contains("secret") && !error.to_string().contains("MIG"), "{error}");
        }
        let error = Bundle::read(&Secret::from(*b"\xff\xfe"), "x").unwrap_err();
        assert!(error.message.contains("not UTF-8"), "{error}");
    }

    #[test]
    fn a_certificate_that_does_not_count_is_refused_with_what_helps() {
        let bundle = Bundle::read(&sample("office", "joe.example.org"), "x").unwrap();
        let late = bundle.require_valid(UnixTime(NOW.0 + 11 * 86_400), "x").unwrap_err();
        assert!(late.message.starts_with("x: its certificate has expired on 2027-01-2"), "{late}");
        assert_eq!(late.change.as_deref(), Some("dormouse user renew NAME, at the gateway"));
        let early = bundle.require_valid(UnixTime(NOW.0 - 86_400), "x").unwrap_err();
        assert!(early.message.contains("is the clock right?"), "{early}");
    }
}
