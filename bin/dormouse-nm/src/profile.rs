//! A connection of NetworkManager, as it is handed over on the bus. Owns which keys of `vpn.data` there are and what they mean; reads no file.
//!
//! The keys are those of strongSwan's plug-in, where that one has them, so that its connections become ours by another service type.

use crate::SERVICE;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;
use std::path::PathBuf;
use zbus::OwnedVariant;
use zeroize::Zeroizing;

/// A connection's settings, as NetworkManager hands them over: groups of keys.
pub(crate) type Settings = BTreeMap<String, BTreeMap<String, OwnedVariant>>;

/// The keys of `vpn.data` that mean something here.
const KEYS: [&str; 16] = [
    "address",
    "certificate",
    "remote-identity",
    "local-identity",
    "method",
    "usercert",
    "userkey",
    "user",
    "password-flags",
    "remote-ts",
    "proposal",
    "ike",
    "esp",
    // Of strongSwan's plug-in, where we do what they ask for without being asked.
    "virtual",
    "encap",
    "ipcomp",
];
/// The only secret.
pub(crate) const PASSWORD: &str = "password";
/// Longest value of a key, and most prefixes or proposals, that are taken.
const LONGEST: usize = 4096;
const MOST: usize = 64;

/// What cannot be meant: the key, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub(crate) struct Wrong {
    key: &'static str,
    problem: String,
}

fn wrong(key: &'static str, problem: impl Into<String>) -> Wrong {
    Wrong { key, problem: problem.into() }
}

/// How this end proves who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// By a certificate, in IKE or (`eap`) inside of EAP-TLS.
    Certificate { certificate: PathBuf, key: PathBuf, eap: bool },
    /// By a user's name and a password (EAP-MSCHAPv2).
    User(String),
    /// By a shared secret, which is the password.
    Shared,
}

/// One connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Profile {
    /// Its identity at NetworkManager: hexadecimal digits and hyphens alone.
    pub(crate) uuid: String,
    /// What people call it.
    pub(crate) id: String,
    /// Whose it is; empty: the machine's.
    pub(crate) owners: Vec<String>,
    pub(crate) gateway: String,
    pub(crate) gateway_id: String,
    /// Who vouches for the gateway; `None` with a shared secret.
    pub(crate) ca: Option<PathBuf>,
    /// Absent: what the certificate or the user's name says.
    pub(crate) local_id: Option<String>,
    pub(crate) method: Method,
    pub(crate) remote: Vec<IpNet>,
    pub(crate) ike: Vec<String>,
    pub(crate) esp: Vec<String>,
}

/// A value of another type counts as none.
fn get<T: TryFrom<OwnedVariant>>(settings: &Settings, group: &str, key: &str) -> Option<T> {
    let value = settings.get(group)?.get(key)?.try_clone().ok()?;
    T::try_from(value).ok()
}

/// The password among the secrets of the settings.
pub(crate) fn password(settings: &Settings) -> Option<Zeroizing<String>> {
    let mut secrets: BTreeMap<String, String> = get(settings, "vpn", "secrets")?;
    let password = secrets.remove(PASSWORD).map(Zeroizing::new);
    secrets.into_values().for_each(|other| drop(Zeroizing::new(other)));
    password.filter(|password| !password.is_empty())
}

impl Profile {
    /// # Errors
    /// The first key that cannot be meant.
    pub(crate) fn read(settings: &Settings) -> Result<Self, Wrong> {
        let data: BTreeMap<String, String> = get(settings, "vpn", "data").unwrap_or_default();
        let service: String = get(settings, "vpn", "service-type").unwrap_or_default();
        if service != SERVICE {
            return Err(wrong("vpn.service-type", format!("{service:?} is not {SERVICE}")));
        }
        if let Some(other) = data.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(wrong("vpn.data", format!("{other:?} is no key of this plug-in")));
        }
        if data.values().any(|value| value.len() > LONGEST) {
            return Err(wrong("vpn.data", format!("a value has more than {LONGEST} bytes")));
        }
        let uuid: String = get(settings, "connection", "uuid").unwrap_or_default();
        // It becomes the name of a directory.
        let plain = uuid.len() == 36 && uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if !plain {
            return Err(wrong("connection.uuid", format!("{uuid:?} is no UUID")));
        }
        let text = |key: &str| data.get(key).map(|v| v.trim()).filter(|v| !v.is_empty()).map(str::to_owned);
        let gateway = text("address").ok_or_else(|| wrong("address", "the gateway is missing"))?;
        let method = method(&data, &text)?;
        let ca = text("certificate").map(|path| file("certificate", &path)).transpose()?;
        if ca.is_none() && method != Method::Shared {
            return Err(wrong(
                "certificate",
                "a file with the authority that vouches for the gateway is missing",
            ));
        }
        let own = text("proposal").is_some_and(|word| word == "yes");
        let proposals = |key: &'static str| if own { list(key, text(key)) } else { Ok(Vec::new()) };
        Ok(Self {
            uuid,
            id: get(settings, "connection", "id").unwrap_or_default(),
            owners: owners(get(settings, "connection", "permissions").unwrap_or_default())?,
            gateway_id: text("remote-identity").unwrap_or_else(|| gateway.clone()),
            gateway,
            ca,
            local_id: text("local-identity"),
            method,
            remote: prefixes(text("remote-ts"))?,
            ike: proposals("ike")?,
            esp: proposals("esp")?,
        })
    }

    /// Whether there is nothing to prove without a password.
    pub(crate) fn needs_password(&self) -> bool {
        !matches!(self.method, Method::Certificate { .. })
    }

    /// The name of the tunnel's interface: as long as this connection is there it has the same, and no other has it.
    pub(crate) fn interface(&self) -> String {
        let digits: String = self.uuid.chars().filter(char::is_ascii_hexdigit).take(8).collect();
        format!("dormouse-{}", &digits[..digits.len().min(6)])
    }
}

fn method(data: &BTreeMap<String, String>, text: &impl Fn(&str) -> Option<String>) -> Result<Method, Wrong> {
    let path = |key: &'static str| {
        let path = text(key).ok_or_else(|| wrong(key, "a file is missing"))?;
        file(key, &path)
    };
    match data.get("method").map_or("", String::as_str) {
        word @ ("key" | "cert" | "eap-tls") => Ok(Method::Certificate {
            certificate: path("usercert")?,
            key: path("userkey")?,
            eap: word == "eap-tls",
        }),
        "eap" => text("user").map(Method::User).ok_or_else(|| wrong("user", "the user's name is missing")),
        "psk" => Ok(Method::Shared),
        other => Err(wrong("method", format!("{other:?} is none of key, eap, eap-tls and psk"))),
    }
}

fn file(key: &'static str, path: &str) -> Result<PathBuf, Wrong> {
    let path = PathBuf::from(path.strip_prefix("file://").unwrap_or(path));
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(wrong(key, format!("{} is not a whole path", path.display())))
    }
}

/// What stands between semicolons or commas.
fn list(key: &'static str, text: Option<String>) -> Result<Vec<String>, Wrong> {
    let text = text.unwrap_or_default();
    let words = text.split([';', ',']).map(str::trim).filter(|word| !word.is_empty());
    let list: Vec<String> = words.map(str::to_owned).collect();
    if list.len() > MOST { Err(wrong(key, format!("has more than {MOST} entries"))) } else { Ok(list) }
}

/// What the tunnel carries; everything, if nothing is said.
fn prefixes(text: Option<String>) -> Result<Vec<IpNet>, Wrong> {
    let key = "remote-ts";
    let mut nets = Vec::new();
    for word in list(key, text)? {
        let single = || word.parse::<std::net::IpAddr>().map(IpNet::from);
        let net = word.parse().or_else(|_| single());
        nets.push(net.map_err(|_| wrong(key, format!("{word:?} is no prefix")))?);
    }
    if nets.is_empty() {
        nets = vec![Ipv4Net::default().into(), Ipv6Net::default().into()];
    }
    Ok(nets)
}

/// `user:NAME:` each.
fn owners(permissions: Vec<String>) -> Result<Vec<String>, Wrong> {
    let name = |entry: String| {
        let name = entry.strip_prefix("user:").and_then(|rest| rest.split(':').next()).map(str::to_owned);
        name.filter(|name| !name.is_empty())
            .ok_or_else(|| wrong("connection.permissions", format!("{entry:?} names no user")))
    };
    permissions.into_iter().map(name).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const UUID: &str = "6d0c3f5e-8a51-4c52-9e77-0f5b1c7f2a10";

    pub(crate) fn settings(data: &[(&str, &str)], secrets: &[(&str, &str)]) -> Settings {
        let map = |pairs: &[(&str, &str)]| {
            let owned = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            OwnedVariant::from(owned.collect::<BTreeMap<String, String>>())
        };
        let text = |text: &str| OwnedVariant::try_from(zbus::Variant::from(text)).unwrap();
        let connection = [("id", "office"), ("uuid", UUID)].map(|(k, v)| (k.to_owned(), text(v)));
        let vpn = BTreeMap::from([
            ("service-type".to_owned(), text(SERVICE)),
            ("data".to_owned(), map(data)),
            ("secrets".to_owned(), map(secrets)),
        ]);
        BTreeMap::from([("connection".to_owned(), BTreeMap::from(connection)), ("vpn".to_owned(), vpn)])
    }

    pub(crate) const EAP: [(&str, &str); 5] = [
        ("address", "vpn.example.org"),
        ("certificate", "/etc/NetworkManager/certs/joe-ca.pem"),
        ("method", "eap"),
        ("user", "joe"),
        ("password-flags", "1"),
    ];

    fn with(more: &[(&'static str, &'static str)]) -> Result<Profile, Wrong> {
        let mut data: BTreeMap<&str, &str> = EAP.into();
        data.extend(more.iter().copied());
        Profile::read(&settings(&data.into_iter().collect::<Vec<_>>(), &[]))
    }

    #[test]
    fn a_user_with_a_password_needs_no_more_than_gateway_authority_and_name() {
        let profile = with(&[]).unwrap();
        assert_eq!((profile.gateway_id.as_str(), profile.id.as_str()), ("vpn.example.org", "office"));
        assert_eq!((&profile.method, profile.needs_password()), (&Method::User("joe".into()), true));
        assert_eq!(profile.remote.len(), 2, "all of both families");
        assert_eq!(profile.interface(), "dormouse-6d0c3f");
        let secret = settings(&EAP, &[("password", "hazel"), ("other", "x")]);
        assert_eq!(password(&secret).as_deref().map(String::as_str), Some("hazel"));
        assert!(password(&settings(&EAP, &[("password", "")])).is_none());
    }

    #[test]
    fn a_certificate_needs_no_password_and_proposals_count_where_they_are_switched_on() {
        let files =
            [("usercert", "file:///c/joe.pem"), ("userkey", "/c/joe.key"), ("ike", "a;b"), ("esp", "c")];
        let all = |method| [("method", method)].into_iter().chain(files).collect::<Vec<_>>();
        for (method, eap) in [("key", false), ("cert", false), ("eap-tls", true)] {
            let profile = with(&all(method)).unwrap();
            let (certificate, key) = ("/c/joe.pem".into(), "/c/joe.key".into());
            assert_eq!(profile.method, Method::Certificate { certificate, key, eap });
            assert!(!profile.needs_password() && profile.ike.is_empty());
        }
        let mut more = all("key");
        more.extend([("proposal", "yes"), ("remote-ts", "10.0.0.0/8, fd00::/8;192.0.2.7")]);
        let profile = with(&more).unwrap();
        assert_eq!((profile.ike, profile.esp), (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
        let nets: Vec<String> = profile.remote.iter().map(ToString::to_string).collect();
        assert_eq!(nets, ["10.0.0.0/8", "fd00::/8", "192.0.2.7/32"]);
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        for (more, said) in [
            ([("address", " ")], "address: the gateway is missing"),
            ([("certificate", "")], "certificate: a file"),
            ([("certificate", "ca.pem")], "certificate: ca.pem is not a whole path"),
            ([("method", "agent")], "method: \"agent\" is none of"),
            ([("method", "key")], "usercert: a file is missing"),
            ([("user", "")], "user: "),
            ([("remote-ts", "10.0.0.0/8;x")], "remote-ts: \"x\" is no prefix"),
            ([("adress", "a")], "\"adress\" is no key"),
        ] {
            let problem = with(&more).expect_err(said).to_string();
            assert!(problem.contains(said), "{said}: {problem}");
        }
        let mut other = settings(&EAP, &[]);
        let path = OwnedVariant::try_from(zbus::Variant::from("../../etc/passwd/x/x/x/x/x/x/x/x/x")).unwrap();
        other.get_mut("connection").unwrap().insert("uuid".into(), path);
        assert!(Profile::read(&other).unwrap_err().to_string().contains("is no UUID"));
        assert_eq!(owners(vec!["user:joe:".into()]).unwrap(), ["joe"]);
        assert!(owners(vec!["group:x".into()]).is_err());
    }
}
