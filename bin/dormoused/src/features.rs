//! What this program was built without (the features of its Cargo.toml), as a user meets it: a configuration that needs a feature that was left out is
//! refused, with the key and the feature. Owns which keys need which. Keys in tokens are refused where a token would be opened.

use dormouse_node::config::ConfigError;
use dormouse_node::config::file::File;

/// A key of the configuration, the feature that it needs, and whether a file has it.
type Need = (&'static str, &'static str, fn(&File) -> bool);

/// What is left out here.
const WITHOUT: &[Need] = &[
    #[cfg(not(feature = "cluster"))]
    CLUSTER,
    #[cfg(not(feature = "dbus"))]
    NETWORK_MANAGER,
];
#[cfg(any(test, not(feature = "cluster")))]
const CLUSTER: Need = ("cluster", "cluster", |file| file.cluster.is_some());
#[cfg(any(test, not(feature = "dbus")))]
const NETWORK_MANAGER: Need = ("sleep.radio", "dbus", |file| {
    file.sleep.radio == dormouse_node::config::sleep::RadioDriver::NetworkManager
});

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
    match without_these.iter().find(|(_, _, needed)| needed(file)) {
        Some((key, feature, _)) => Err(ConfigError { key: (*key).to_owned(), problem: without(feature) }),
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
    }
}
