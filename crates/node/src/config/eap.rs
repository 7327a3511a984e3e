//! Users, at both ends, as they are written. Owns the file of a gateway's users; must never show a password or its hash: not in
//! an error either.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file::{Connection, Eap, Hidden, Login, Role, Ways};
use super::resolve::{ConfigError, OpenToken, ReadFile, file_bytes, identity, local_auth};
use dormouse_crypto::Secret;
pub use dormouse_eap::NtHash;
use dormouse_ike::config as ike;
use serde::Deserialize;
use zeroize::Zeroizing;

/// A user of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    nt_hash: Hidden,
}

/// A client's user.
///
/// # Errors
/// The key to change.
pub(super) fn login(
    section: &str,
    c: &Connection,
    read: &mut ReadFile<'_>,
    token: &mut OpenToken<'_>,
) -> Result<Option<ike::LocalAuth>, ConfigError> {
    let local = &c.local;
    let wrong = |key: &str, problem: &str| Err(ConfigError::new(format!("{section}.{key}"), problem));
    let password = [
        ("password", local.password.is_some()),
        ("password_file", local.password_file.is_some()),
        ("user", local.user.is_some() && local.auth.is_none()),
    ];
    let tls = [("eap_only", local.eap_only), ("eap_server", local.eap_server.is_some())];
    let certificate = [("certificate", local.certificate.is_some()), ("key", local.key.is_some())];
    let secret = [("secret", local.secret.is_some()), ("secret_file", local.secret_file.is_some())];
    let given = |keys: &[(&'static str, bool)]| keys.iter().find(|(_, is)| *is).map(|(key, _)| *key);
    if local.auth.is_some() && c.role != Role::Client {
        return wrong(
            "auth",
            "a gateway proves itself by certificate and key; its users are taken by remote.auth",
        );
    }
    match local.auth {
        None => match (given(&password), given(&tls)) {
            (Some(key), _) => wrong(key, "is for auth = \"eap-mschapv2\", which is not there"),
            (None, Some(key)) => wrong(key, "is for auth = \"eap-tls\", which is not there"),
            (None, None) => Ok(None),
        },
        Some(Login::MsChapV2) => {
            if let Some(key) = given(&tls) {
                return wrong(key, "is for auth = \"eap-tls\"");
            }
            if let Some(key) = given(&[secret, certificate].concat()) {
                return wrong(key, "contradicts auth = \"eap-mschapv2\", where a password proves who we are");
            }
            by_password(section, c, read).map(Some)
        }
        Some(Login::Tls) => {
            if let Some(key) = given(&[&secret[..], &password].concat()) {
                return wrong(
                    key,
                    "contradicts auth = \"eap-tls\", where certificate and key prove who we are",
                );
            }
            by_certificate(section, c, read, token).map(Some)
        }
    }
}

fn by_password(
    section: &str,
    c: &Connection,
    read: &mut ReadFile<'_>,
) -> Result<ike::LocalAuth, ConfigError> {
    let local = &c.local;
    let wrong = |key: &str, problem: &str| Err(ConfigError::new(format!("{section}.{key}"), problem));
    let Some(user) = local.user.clone().filter(|user| !user.is_empty()) else {
        return wrong("user", "auth = \"eap-mschapv2\" needs the user's name");
    };
    let (key, password) = match (&local.password, &local.password_file) {
        (None, None) => {
            return wrong("password_file", "auth = \"eap-mschapv2\" needs the file with the password");
        }
        (Some(_), Some(_)) => return wrong("password_file", "there is a password too; keep one of them"),
        (Some(text), None) => ("password", Zeroizing::new(text.0.clone().into_bytes())),
        (None, Some(path)) => {
            let key = format!("{section}.password_file");
            ("password_file", Zeroizing::new(file_bytes(&key, path, true, read)?))
        }
    };
    let line = password.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let password = line.unwrap_or(&password);
    match std::str::from_utf8(password) {
        Ok("") => wrong(key, "is empty"),
        Ok(text) if NtHash::of_password(text).is_none() => wrong(key, "is too long for a password"),
        Ok(_) => {
            let proof = ike::EapProof::Password(Secret::from(password));
            Ok(ike::LocalAuth::Eap(Arc::new(ike::EapLogin { user, proof })))
        }
        Err(_) => wrong(key, "a password is text in UTF-8"),
    }
}

fn by_certificate(
    section: &str,
    c: &Connection,
    read: &mut ReadFile<'_>,
    token: &mut OpenToken<'_>,
) -> Result<ike::LocalAuth, ConfigError> {
    let local = &c.local;
    let wrong = |key: &str, problem: &str| Err(ConfigError::new(format!("{section}.{key}"), problem));
    if local.certificate.is_none() {
        return wrong("certificate", "auth = \"eap-tls\" needs the user's certificate, and its key");
    }
    let ike::LocalAuth::Cert { key, chain } = local_auth(section, local, read, token)? else {
        return wrong("certificate", "auth = \"eap-tls\" needs the user's certificate, and its key");
    };
    if key.is_elsewhere() {
        return wrong("key", "auth = \"eap-tls\" needs the key in a file, not in a token");
    }
    let user = local.user.clone().unwrap_or_else(|| local.id.clone());
    if user.is_empty() {
        return wrong("user", "is empty");
    }
    let of_server = format!("{section}.eap_server");
    let server = local.eap_server.as_ref().map(|name| identity(&of_server, name)).transpose()?;
    if server.is_some() && local.eap_only {
        let problem = "with eap_only the gateway itself must prove who it is inside EAP; keep one of them";
        return wrong("eap_server", problem);
    }
    let proof = ike::EapProof::Certificate { key, chain, alone: local.eap_only, server };
    Ok(ike::LocalAuth::Eap(Arc::new(ike::EapLogin { user, proof })))
}

/// A gateway's users.
///
/// # Errors
/// The key to change.
pub(super) fn policy(
    name: &str,
    c: &Connection,
    local: &ike::LocalAuth,
    read: &mut ReadFile<'_>,
) -> Result<Option<Arc<ike::EapPolicy>>, ConfigError> {
    let wrong = |key: &str, problem: &str| Err(ConfigError::new(format!("connection.{name}.{key}"), problem));
    let Some(Ways(ways)) = &c.remote.auth else {
        return match (&c.remote.users, c.remote.eap_only) {
            (Some(_), _) => wrong("remote.users", "is for auth = \"eap-mschapv2\", which is not there"),
            (None, true) => wrong("remote.eap_only", "is for auth = \"eap-tls\", which is not there"),
            (None, false) => Ok(None),
        };
    };
    if c.role != Role::Gateway {
        return wrong(
            "remote.auth",
            "users are a gateway's; a client says local.auth, local.user and local.password_file",
        );
    }
    if ways.is_empty() || (1..ways.len()).any(|n| ways[..n].contains(&ways[n])) {
        return wrong("remote.auth", "names one way or several, each once");
    }
    let ike::LocalAuth::Cert { key, .. } = local else {
        return wrong("local", "a gateway whose users have passwords proves itself by certificate and key");
    };
    if ways.contains(&Eap::Radius) {
        return match (ways.as_slice(), &c.remote.users) {
            (_, Some(_)) => {
                wrong("remote.users", "contradicts auth = \"radius\": the servers of [radius] know the users")
            }
            ([_], None) => Ok(Some(Arc::new(ike::EapPolicy::radius()))),
            _ => wrong(
                "remote.auth",
                "\"radius\" leaves the ways to the servers of [radius]; take the others out",
            ),
        };
    }
    let with_tls = ways.iter().any(|way| *way != Eap::MsChapV2);
    if with_tls && key.is_elsewhere() {
        return wrong("local.key", "eap-tls and eap-ttls need the gateway's key in a file, not in a token");
    }
    if ways.contains(&Eap::Tls) && c.remote.ca.is_empty() {
        return wrong("remote.ca", "auth = \"eap-tls\" needs the authorities of the users' certificates");
    }
    if c.remote.eap_only && !ways.contains(&Eap::Tls) {
        return wrong("remote.eap_only", "is for auth = \"eap-tls\", which is not there");
    }
    let by_password = ways.iter().any(|way| *way != Eap::Tls);
    let users = match &c.remote.users {
        None if by_password => {
            return wrong("remote.users", "users with passwords need the file of the users");
        }
        Some(_) if !by_password => {
            return wrong("remote.users", "is for users with passwords; auth = \"eap-tls\" takes none");
        }
        None => ike::EapUsers::default(),
        Some(path) => {
            let key = format!("connection.{name}.remote.users");
            let content = Zeroizing::new(file_bytes(&key, path, true, read)?);
            let error = |problem: String| ConfigError::new(&key, format!("{}: {problem}", path.display()));
            let users = users(&content).map_err(error)?;
            ike::EapUsers::new(users).map_err(|e| error(e.to_string()))?
        }
    };
    let methods = ways.iter().map(|way| match way {
        Eap::MsChapV2 => ike::EapMethod::MsChapV2,
        Eap::Tls => ike::EapMethod::Tls,
        Eap::Ttls | Eap::Radius => ike::EapMethod::Ttls,
    });
    let policy = ike::EapPolicy::here(methods.collect(), users);
    Ok(Some(Arc::new(if c.remote.eap_only { policy.alone() } else { policy })))
}

/// Whether TLS can be set up with what a gateway's connection has.
///
/// # Errors
/// The key to change.
pub(super) fn check(name: &str, conn: &ike::Connection) -> Result<(), ConfigError> {
    let wrong = |e: &dyn std::fmt::Display| ConfigError::new(format!("connection.{name}.remote.auth"), e);
    conn.check_eap().map_err(|e| wrong(&e))
}

/// The users of a file, with the hashes of their passwords.
///
/// # Errors
/// What is wrong with it, and where; without a hash.
pub fn users(content: &[u8]) -> Result<BTreeMap<String, NtHash>, String> {
    let text = std::str::from_utf8(content).map_err(|_| "is no text in UTF-8".to_owned())?;
    let entries: BTreeMap<String, Entry> = toml::from_str(text).map_err(|e| {
        // Its own words may quote the line, or a hash that stands in the wrong place.
        let line =
            e.span().and_then(|span| text.get(..span.start)).map_or(1, |b| b.matches('\n').count() + 1);
        format!("line {line}: a user is [\"NAME\"], each name once, and below it nt_hash = \"32 hexadecimal digits\" alone")
    })?;
    let hash = |(name, entry): (String, Entry)| match NtHash::from_hex(&entry.nt_hash.0) {
        Some(hash) => Ok((name, hash)),
        None => Err(format!("\"{name}\": nt_hash must have 32 hexadecimal digits")),
    };
    entries.into_iter().map(hash).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{parse, resolve};
    use super::*;
    use std::path::Path;

    const CLIENT: &str = "[connection.a]\nrole = \"client\"\ngateway = \"gw\"\n[connection.a.remote]\nid = \"gw\"\nca = [\"ca\"]\n\
                          [connection.a.local]\nid = \"joe\"\nauth = \"eap-mschapv2\"\n";
    const GATEWAY: &str = "[connection.a]\nrole = \"gateway\"\n[connection.a.local]\nid = \"gw\"\ncertificate = \"cert\"\nkey = \"key\"\n\
                           [connection.a.remote]\nid = \"*\"\n";
    const USERS: &str = "[joe]\nnt_hash = \"8846f7eaee8fb117ad06bdd830b7586c\"\n[\"ann@example.org\"]\nnt_hash = \"44EBBA8D5312B8D611474411F56989AE\"\n";

    fn of(text: &str, users: &str) -> Result<ike::Connection, String> {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["gw".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut read = |path: &Path, secret: bool| {
            let name = path.to_str().unwrap();
            assert_eq!(secret, ["key", "users", "password"].contains(&name), "{name}");
            match name {
                "ca" | "cert" => Ok(certificate.pem().into_bytes()),
                "key" => Ok(key.serialize_pem().into_bytes()),
                "users" => Ok(users.as_bytes().to_vec()),
                "password" => Ok("größer\r\n".as_bytes().to_vec()),
                "bytes" | "nothing" => unreachable!(),
                _ => Err("is not there".to_owned()),
            }
        };
        let resolved = resolve(&parse(text)?, &mut read).map_err(|e| e.to_string())?;
        Ok((*resolved[0].ike).clone())
    }

    fn password(login: &ike::EapLogin) -> &[u8] {
        match &login.proof {
            ike::EapProof::Password(password) => password.as_bytes(),
            ike::EapProof::Certificate { .. } => panic!("{login:?}"),
        }
    }

    fn wrong(text: &str, users: &str) -> String {
        of(text, users).map(drop).unwrap_err()
    }

    #[test]
    fn a_clients_password_is_a_line_of_text() {
        let conn = of(&format!("{CLIENT}user = \"joe\"\npassword_file = \"password\"\n"), "").unwrap();
        let ike::LocalAuth::Eap(login) = conn.local_auth else { panic!("{:?}", conn.local_auth) };
        assert_eq!((login.user.as_str(), password(&login)), ("joe", "größer".as_bytes()));
        let inline = of(&format!("{CLIENT}user = \"joe\"\npassword = \" 0x41 \"\n"), "").unwrap();
        let ike::LocalAuth::Eap(login) = inline.local_auth else { panic!("{:?}", inline.local_auth) };
        assert_eq!(password(&login), b" 0x41 ");
    }

    #[test]
    fn a_client_is_told_which_line_to_change() {
        let file = "password_file = \"password\"\n";
        for (more, key) in [
            ("", "connection.a.local.user: "),
            ("user = \"\"\n", "connection.a.local.user: "),
            ("user = \"joe\"\n", "connection.a.local.password_file: "),
            ("user = \"joe\"\npassword = \"\"\n", "connection.a.local.password: is empty"),
            (
                "user = \"joe\"\npassword_file = \"password\"\npassword = \"x\"\n",
                "connection.a.local.password_file: ",
            ),
            ("user = \"joe\"\nsecret = \"long enough\"\n", "connection.a.local.secret: "),
        ] {
            let error = wrong(&format!("{CLIENT}{more}"), "");
            assert!(error.starts_with(key), "{more}: {error}");
        }
        let without = CLIENT.replace("ca = [\"ca\"]\n", "") + "user = \"joe\"\n" + file;
        assert!(wrong(&without, "").starts_with("connection.a.remote.ca: "));
        let secret =
            CLIENT.replace("ca = [\"ca\"]\n", "secret = \"long enough\"\n") + "user = \"joe\"\n" + file;
        assert!(wrong(&secret, "").starts_with("connection.a.remote.ca: "));
        let unsaid =
            CLIENT.replace("auth = \"eap-mschapv2\"\n", "secret = \"long enough\"\n") + "user = \"joe\"\n";
        assert!(wrong(&unsaid, "").starts_with("connection.a.local.user: "));
        let theirs = CLIENT.replace("[connection.a.local]", "auth = \"eap-mschapv2\"\n[connection.a.local]");
        assert!(wrong(&(theirs + "user = \"joe\"\n" + file), "").starts_with("connection.a.remote.auth: "));
    }

    #[test]
    fn a_clients_certificate_inside_eap() {
        let client = CLIENT.replace("eap-mschapv2", "eap-tls");
        let own = "certificate = \"cert\"\nkey = \"key\"\n";
        let login = |more: &str| {
            let conn = of(&format!("{client}{own}{more}"), "")?;
            let ike::LocalAuth::Eap(login) = conn.local_auth else { panic!("{:?}", conn.local_auth) };
            Ok::<_, String>((*login).clone())
        };
        assert_eq!(login("").unwrap().user, "joe", "the id");
        let as_other = login("user = \"ann\"\neap_only = true\n").unwrap();
        assert_eq!(as_other.user, "ann");
        assert!(matches!(as_other.proof, ike::EapProof::Certificate { alone: true, server: None, .. }));
        let elsewhere = login("eap_server = \"radius\"\n").unwrap();
        assert!(matches!(elsewhere.proof, ike::EapProof::Certificate { alone: false, server: Some(_), .. }));
        for (more, key) in [
            ("password = \"x\"\n", "connection.a.local.password: contradicts"),
            ("secret = \"long enough\"\n", "connection.a.local.secret: contradicts"),
            ("user = \"\"\n", "connection.a.local.user: is empty"),
            ("eap_server = \"radius\"\neap_only = true\n", "connection.a.local.eap_server: "),
        ] {
            let error = login(more).unwrap_err();
            assert!(error.starts_with(key), "{more}: {error}");
        }
        assert!(wrong(&client, "").starts_with("connection.a.local.certificate: "));
        let half = format!("{client}certificate = \"cert\"\n");
        assert!(wrong(&half, "").starts_with("connection.a.local.key: "));
        let by_password = format!("{CLIENT}user = \"joe\"\npassword = \"x\"\neap_only = true\n");
        assert!(wrong(&by_password, "").starts_with("connection.a.local.eap_only: "));
        let without = CLIENT.replace("auth = \"eap-mschapv2\"\n", own) + "eap_only = true\n";
        assert!(wrong(&without, "").starts_with("connection.a.local.eap_only: "));
    }

    #[test]
    fn a_gateway_offers_ways_in_an_order() {
        let with = |ways: &str, more: &str| format!("{GATEWAY}auth = {ways}\n{more}");
        let ca = "ca = [\"ca\"]\n";
        let both =
            with("[\"eap-tls\", \"eap-mschapv2\"]", &format!("users = \"users\"\n{ca}eap_only = true\n"));
        let policy = of(&both, USERS).unwrap().answering.eap.unwrap();
        assert_eq!(policy.methods(), [ike::EapMethod::Tls, ike::EapMethod::MsChapV2]);
        let tls = of(&with("\"eap-tls\"", ca), "").unwrap().answering.eap.unwrap();
        assert_eq!((tls.methods(), tls.users().map(|u| u.len())), (&[ike::EapMethod::Tls][..], Some(0)));
        let ttls = of(&with("\"eap-ttls\"", "users = \"users\"\n"), USERS).unwrap();
        assert!(matches!(ttls.remote_auth, ike::RemoteAuth::Eap));
        for (text, key) in [
            (with("[]", ""), "connection.a.remote.auth: "),
            (with("[\"eap-tls\", \"eap-tls\"]", ca), "connection.a.remote.auth: "),
            (with("\"eap-tls\"", ""), "connection.a.remote.ca: "),
            (with("\"eap-tls\"", &format!("{ca}users = \"users\"\n")), "connection.a.remote.users: "),
            (with("[\"eap-tls\", \"eap-ttls\"]", ca), "connection.a.remote.users: "),
            (
                with("\"eap-mschapv2\"", "users = \"users\"\neap_only = true\n"),
                "connection.a.remote.eap_only: ",
            ),
            (format!("{GATEWAY}eap_only = true\n{ca}"), "connection.a.remote.eap_only: "),
        ] {
            let error = wrong(&text, USERS);
            assert!(error.starts_with(key), "{text}: {error}");
        }
        let error = wrong(&with("\"eap-md5\"", ""), "");
        assert!(error.contains("connection.a.remote.auth") && error.contains("`eap-tls`"), "{error}");
    }

    #[test]
    fn a_gateway_has_users_beside_certificates_or_alone() {
        let users = "auth = \"eap-mschapv2\"\nusers = \"users\"\n";
        let alone = of(&format!("{GATEWAY}{users}"), USERS).unwrap();
        assert!(matches!(alone.remote_auth, ike::RemoteAuth::Eap));
        assert_eq!(alone.answering.eap.and_then(|eap| Some(eap.users()?.len())), Some(2));
        let both = of(&format!("{GATEWAY}ca = [\"ca\"]\n{users}"), USERS).unwrap();
        assert!(matches!(both.remote_auth, ike::RemoteAuth::Cert { .. }) && both.answering.eap.is_some());
        let peers = format!("{GATEWAY}{users}[[connection.a.peers]]\nid = \"joe\"\nisolate = true\n");
        let rules = of(&peers, USERS).unwrap().answering.peers;
        assert!(rules.iter().all(|rule| rule.connection.answering.eap.is_some()));
    }

    #[test]
    fn a_gateway_is_told_what_is_wrong_without_a_hash() {
        let text = format!("{GATEWAY}auth = \"eap-mschapv2\"\nusers = \"users\"\n");
        let hash = "8846f7eaee8fb117ad06bdd830b7586c";
        for (users, what) in [
            (format!("[joe]\nnt_hash = \"{hash}0\"\n"), "\"joe\": nt_hash must have 32"),
            (format!("[joe]\nnt_hash = \"{hash}\n"), "line 2: "),
            (format!("[joe]\nnt_hash = \"{hash}\"\nhash = \"{hash}\"\n"), "line 3: a user is "),
            ("\n[joe]\n".to_owned(), "line 2: a user is "),
            (format!("joe = \"{hash}\"\n"), "line 1: a user is "),
            (format!("[joe]\nnt_hash = {hash}\n"), "line 2: a user is "),
            (format!("[joe]\nnt_hash = [\"{hash}\"]\n"), "line 2: a user is "),
            ("[joe]\nnt_hash = 8846777\n".to_owned(), "line 2: a user is "),
            (format!("[\"CN=joe\"]\nnt_hash = \"{hash}\"\n"), "\"CN=joe\" is no name"),
            (format!("[joe]\nnt_hash = \"{hash}\"\n[Joe]\nnt_hash = \"{hash}\"\n"), "the same identity"),
        ] {
            let error = wrong(&text, &users);
            assert!(
                error.starts_with("connection.a.remote.users: users: ") && error.contains(what),
                "{error}"
            );
            assert!(!error.contains(&hash[..8]), "{error}");
        }
        assert!(
            wrong(&text.replace("users = \"users\"\n", ""), "").starts_with("connection.a.remote.users: ")
        );
        assert!(
            wrong(&text.replace("auth = \"eap-mschapv2\"\n", "ca = [\"ca\"]\n"), "")
                .starts_with("connection.a.remote.users: ")
        );
        let psk = text.replace("certificate = \"cert\"\nkey = \"key\"", "secret = \"long enough\"");
        assert!(wrong(&psk, USERS).starts_with("connection.a.local: "));
        let own = text.replace("key = \"key\"", "key = \"key\"\nauth = \"eap-mschapv2\"");
        assert!(wrong(&own, USERS).starts_with("connection.a.local.auth: "));
    }
}
