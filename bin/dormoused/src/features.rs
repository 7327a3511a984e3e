//! What this program was built without (the features of its Cargo.toml), as a user meets it: a configuration that needs a feature that was left out is
//! refused, with the key and the feature. Owns which keys need which. Keys in tokens are refused where a token would be opened.

use dormouse_node::config::ConfigError;
use dormouse_node::config::file::File;
#[cfg(feature = "hip")]
pub(crate) use dormouse_node::config::resolve_hip;

/// A feature, and the first key of a configuration that needs it.
type Need = (&'static str, fn(&File) -> Option<String>);

/// What is left out here.
const WITHOUT: &[Need] = &[
    #[cfg(not(feature = "cluster"))]
    CLUSTER,
    #[cfg(not(feature = "dbus"))]
    NETWORK_MANAGER,
    #[cfg(not(feature = "hip"))]
    HIP,
    #[cfg(not(feature = "eap-tls"))]
    EAP_TLS,
];
#[cfg(any(test, not(feature = "cluster")))]
const CLUSTER: Need = ("cluster", |file| file.cluster.as_ref().map(|_| "cluster".to_owned()));
#[cfg(any(test, not(feature = "dbus")))]
const NETWORK_MANAGER: Need = ("dbus", |file| {
    let by_network_manager = file.sleep.radio == dormouse_node::config::sleep::RadioDriver::NetworkManager;
    by_network_manager.then(|| "sleep.radio".to_owned())
});
#[cfg(any(test, not(feature = "hip")))]
const HIP: Need = ("hip", |file| {
    of_connections(file, |c| (c.role == dormouse_node::config::file::Role::Hip).then_some("role"))
});
#[cfg(any(test, not(feature = "eap-tls")))]
const EAP_TLS: Need = ("eap-tls", |file| {
    use dormouse_node::config::file::{Eap, Login};
    of_connections(file, |c| {
        let users = c.remote.auth.iter().flat_map(|ways| &ways.0);
        let here = users.clone().any(|way| matches!(way, Eap::Tls | Eap::Ttls)).then_some("remote.auth");
        (c.local.auth == Some(Login::Tls)).then_some("local.auth").or(here)
    })
});

#[cfg(any(test, not(feature = "hip"), not(feature = "eap-tls")))]
fn of_connections(
    file: &File,
    key: fn(&dormouse_node::config::file::Connection) -> Option<&'static str>,
) -> Option<String> {
    file.connection.iter().find_map(|(name, c)| Some(format!("connection.{name}.{}", key(c)?)))
}

/// Without the feature, a connection of HIP is refused before ([`check`]).
#[cfg(not(feature = "hip"))]
pub(crate) fn resolve_hip(
    _: &File,
    _: &mut dormouse_node::config::ReadFile<'_>,
) -> Result<Option<dormouse_node::config::ResolvedHip>, ConfigError> {
    Ok(None)
}

/// What is said of a feature that is not there.
pub(crate) fn without(feature: &str) -> String {
    format!("this dormoused was built without the feature \"{feature}\" (docs/packager.md)")
}

/// Whether this program has all that the configuration needs.
///
/// # Errors
/// The first key that needs more.
pub(crate) fn check(file: &File) -> Result<(), ConfigError> {
    of(WITHOUT, file)
}

fn of(without_these: &[Need], file: &File) -> Result<(), ConfigError> {
    let missing = without_these.iter().find_map(|(feature, needs)| Some((needs(file)?, feature)));
    match missing {
        Some((key, feature)) => Err(ConfigError { key, problem: without(feature) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_node::config::parse;

    #[test]
    fn a_key_that_needs_what_was_left_out_is_named_with_the_feature() {
        let said =
            |text: &str, without: &[Need]| of(without, &parse(text).unwrap()).map_err(|e| e.to_string());
        let cluster = "[cluster]\ndatabase = \"postgresql://a@b/c\"\nname = \"a\"\nkey_file = \"/k\"\n";
        let error = said(cluster, &[NETWORK_MANAGER, CLUSTER]).unwrap_err();
        assert_eq!(
            error,
            "cluster: this dormoused was built without the feature \"cluster\" (docs/packager.md)"
        );
        assert_eq!(said(cluster, &[NETWORK_MANAGER]), Ok(()));
        let radio = "[sleep]\nradio = \"networkmanager\"\n";
        assert!(said(radio, &[CLUSTER, NETWORK_MANAGER]).unwrap_err().starts_with("sleep.radio: "));
        assert_eq!(said("[sleep]\nradio = \"link\"\n", &[CLUSTER, NETWORK_MANAGER]), Ok(()));
        let hip = "[connection.h]\nrole = \"hip\"\n";
        let error = said(hip, &[EAP_TLS, HIP]).unwrap_err();
        assert!(error.starts_with("connection.h.role: ") && error.contains("\"hip\""), "{error}");
        let of = |section: &str, auth: &str| {
            let role = if section == "local" { "client" } else { "gateway" };
            let text = format!(
                "[connection.a]\nrole = \"{role}\"\n[connection.a.{section}]\nid = \"x\"\nauth = {auth}\n"
            );
            said(&text, &[HIP, EAP_TLS]).map_err(|e| e.split(':').next().unwrap_or_default().to_owned())
        };
        assert_eq!(of("local", "\"eap-tls\""), Err("connection.a.local.auth".into()));
        assert_eq!(of("remote", "[\"eap-mschapv2\", \"eap-ttls\"]"), Err("connection.a.remote.auth".into()));
        assert_eq!(of("remote", "\"eap-tls\""), Err("connection.a.remote.auth".into()));
        for taken in ["eap-mschapv2", "radius"] {
            assert_eq!(of("remote", &format!("\"{taken}\"")), Ok(()));
        }
    }
}
