//! A connection of NetworkManager as a configuration of `dormoused`. Owns the translation; reads and writes no file.

use crate::profile::{Method, Profile};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The one connection of each daemon.
pub(crate) const CONNECTION: &str = "vpn";

/// Where the daemon finds its files, and keeps what outlives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    /// Of root, in memory, for as long as the connection is there.
    pub(crate) run: PathBuf,
    /// Of the daemon's user: the ticket.
    pub(crate) state: PathBuf,
    /// UDP ports for IKE, and for IKE and ESP behind NATs.
    pub(crate) ports: [u16; 2],
}

/// Names within [`Places::run`].
pub(crate) const CONFIGURATION: &str = "dormouse.toml";
pub(crate) const SOCKET: &str = "sock";
pub(crate) const CA: &str = "ca.pem";
pub(crate) const CERTIFICATE: &str = "certificate.pem";
pub(crate) const KEY: &str = "key.pem";
pub(crate) const SECRET: &str = "secret";

/// A text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn path(place: &Path, name: &str) -> String {
    quoted(&place.join(name).display().to_string())
}

fn list<T: ToString>(items: &[T]) -> String {
    format!("[{}]", items.iter().map(|item| quoted(&item.to_string())).collect::<Vec<_>>().join(", "))
}

/// The file, which names others and holds no secret. `id`: who we are, where the profile does not say it.
///
/// Addresses, routes, name servers and what may pass beside the tunnel are NetworkManager's, so the daemon has nothing of what a machine has room
/// for once, and several run beside each other.
pub(crate) fn text(profile: &Profile, id: &str, places: &Places) -> String {
    let [ike, nat_t] = places.ports;
    let run = &places.run;
    let mut text = format!(
        "[daemon]\ninterface = {}\nstate_dir = {}\nsocket = {}\nike_port = {ike}\nnat_t_port = {nat_t}\n\
         dns = \"off\"\nroutes = \"off\"\n\n[sleep]\nradio = \"none\"\n\n",
        quoted(&profile.interface()),
        path(&places.state, ""),
        path(run, SOCKET),
    );
    let name = CONNECTION;
    let _ = write!(
        text,
        "[connection.{name}]\nrole = \"client\"\ngateway = {}\nblock = \"off\"\n\n[connection.{name}.local]\nid = {}\n",
        quoted(&profile.gateway),
        quoted(profile.local_id.as_deref().unwrap_or(id)),
    );
    let secret = path(run, SECRET);
    let _ = match &profile.method {
        Method::Certificate { eap, .. } => {
            let auth = if *eap { "auth = \"eap-tls\"\n" } else { "" };
            write!(text, "{auth}certificate = {}\nkey = {}\n", path(run, CERTIFICATE), path(run, KEY))
        }
        Method::User(user) => {
            write!(text, "auth = \"eap-mschapv2\"\nuser = {}\npassword_file = {secret}\n", quoted(user))
        }
        Method::Shared => writeln!(text, "secret_file = {secret}"),
    };
    let _ = write!(text, "\n[connection.{name}.remote]\nid = {}\n", quoted(&profile.gateway_id));
    let _ = match profile.ca {
        Some(_) => writeln!(text, "ca = [{}]", path(run, CA)),
        None => writeln!(text, "secret_file = {secret}"),
    };
    if !profile.ike.is_empty() {
        let _ = write!(text, "\n[connection.{name}.ike]\nproposals = {}\n", list(&profile.ike));
    }
    let _ = write!(text, "\n[connection.{name}.child]\nremote = {}\n", list(&profile.remote));
    if !profile.esp.is_empty() {
        let _ = writeln!(text, "proposals = {}", list(&profile.esp));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{EAP, settings};
    use dormouse_node::config::file::{DnsMode, Login, Role, Routes};
    use dormouse_node::config::{self, file::File};

    fn written(data: &[(&str, &str)]) -> File {
        let profile = Profile::read(&settings(data, &[])).unwrap();
        let places = Places { run: "/run/x".into(), state: "/var/lib/y".into(), ports: [40001, 40002] };
        let text = text(&profile, "by-default", &places);
        config::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    #[test]
    fn the_daemon_takes_what_is_written_and_changes_nothing_that_is_networkmanagers() {
        let file = written(&EAP);
        assert_eq!((file.daemon.dns, file.daemon.routes), (DnsMode::Off, Routes::Off));
        assert_eq!(file.daemon.interface, "dormouse-6d0c3f");
        let c = &file.connection[CONNECTION];
        assert_eq!(
            (c.role, c.local.auth, c.local.user.as_deref()),
            (Role::Client, Some(Login::MsChapV2), Some("joe"))
        );
        assert_eq!((c.local.id.as_str(), c.remote.id.as_str()), ("by-default", "vpn.example.org"));
        // No secret is in it, and what it means is sound.
        let mut read = |path: &Path, _| match path.to_str() {
            Some("/run/x/secret") => Ok(b"hazel".to_vec()),
            Some("/run/x/ca.pem") => Err("the authority".to_owned()),
            other => panic!("{other:?}"),
        };
        let problem =
            config::resolve(&file, &mut read).expect_err("the authority cannot be read").to_string();
        assert!(problem.contains("the authority"), "{problem}");
    }

    #[test]
    fn names_with_quotes_and_line_breaks_stay_names() {
        let gateway = "a\"\nrole = \"gateway";
        let file = written(&[("address", gateway), ("method", "psk"), ("local-identity", "me\\")]);
        let c = &file.connection[CONNECTION];
        assert_eq!(
            (c.role, c.gateway.as_deref(), c.local.id.as_str()),
            (Role::Client, Some(gateway), "me\\")
        );
        assert_eq!(c.local.secret_file, c.remote.secret_file);
        assert!(c.remote.ca.is_empty());
    }

    #[test]
    fn a_certificate_is_shown_in_ike_or_in_eap() {
        let data = [
            ("address", "192.0.2.1"),
            ("certificate", "/c/ca.pem"),
            ("method", "eap-tls"),
            ("usercert", "/c/joe.pem"),
            ("userkey", "/c/joe.key"),
            ("remote-ts", "10.0.0.0/8"),
            ("proposal", "yes"),
            ("ike", "aes256gcm16-prfsha384-x25519"),
        ];
        let file = written(&data);
        let c = &file.connection[CONNECTION];
        assert_eq!(
            (c.local.auth, c.local.key.as_deref()),
            (Some(Login::Tls), Some(Path::new("/run/x/key.pem")))
        );
        assert_eq!((c.ike.proposals.len(), c.child.proposals.len(), c.child.remote.len()), (1, 0, 1));
    }
}
