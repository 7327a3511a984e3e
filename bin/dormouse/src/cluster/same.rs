//! Which settings that must be the same at all gateways are not, by what each says in the database. Owns how they are compared and told; what these
//! settings are is [`dormouse_node::config::Same`]'s.

use super::status::is_heard;
use crate::enrol::names::harmless;
use dormouse_cluster::GatewayStatus;
use dormouse_sansio::UnixTime;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Settings that are told one by one; more are counted.
const TOLD: usize = 12;
/// Digits of a fingerprint, which says nothing to people.
const FINGERPRINT: usize = 16;

/// A setting, and which gateways have it how. `None`: they have it not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Difference {
    setting: String,
    values: BTreeMap<Option<String>, Vec<String>>,
}

/// The connection that a setting is of.
fn connection(setting: &str) -> Option<&str> {
    let name = setting.strip_prefix("connection.")?;
    let end = name.find('.').unwrap_or(name.len());
    setting.get(.."connection.".len() + end)
}

/// What gateways that are heard say of themselves and is not the same.
pub(super) fn differences(gateways: &[GatewayStatus], now: UnixTime) -> Vec<Difference> {
    let there: Vec<&GatewayStatus> =
        gateways.iter().filter(|it| is_heard(it, now) && !it.settings.is_empty()).collect();
    let versions: BTreeSet<&str> = there.iter().map(|it| it.version.as_str()).collect();
    let all: BTreeSet<&str> = there.iter().flat_map(|it| it.settings.keys()).map(String::as_str).collect();
    let of = |it: &GatewayStatus| {
        it.settings
            .keys()
            .filter_map(|setting| connection(setting))
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let connections: Vec<BTreeSet<String>> = there.iter().map(|it| of(it)).collect();
    let mut found = Vec::new();
    let whole: BTreeSet<&String> = connections.iter().flatten().collect();
    for whole in whole {
        let has = |n: usize| connections.get(n).is_some_and(|theirs| theirs.contains(whole));
        let values = (0..there.len()).map(|n| (has(n).then(String::new), there[n]));
        found.extend(difference(whole, values));
    }
    for setting in all {
        let of_one = connection(setting).map(str::to_owned);
        let values = there.iter().zip(&connections).filter_map(|(it, theirs)| {
            // Of a connection that it has not nothing more is said; nor of a setting that another release does not know.
            let known = of_one.as_ref().is_none_or(|of_one| theirs.contains(of_one));
            let value = it.settings.get(setting).cloned();
            (known && (value.is_some() || versions.len() == 1)).then_some((value, *it))
        });
        found.extend(difference(setting, values));
    }
    found
}

fn difference<'g>(
    setting: &str,
    each: impl Iterator<Item = (Option<String>, &'g GatewayStatus)>,
) -> Option<Difference> {
    let mut values: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    each.for_each(|(value, it)| values.entry(value).or_default().push(it.name.clone()));
    (values.len() > 1).then(|| Difference { setting: setting.to_owned(), values })
}

impl Difference {
    /// As in `on at gw1, off at gw2 and gw3`.
    fn values(&self) -> String {
        let fingerprint =
            |value: &str| value.len() == FINGERPRINT && value.bytes().all(|b| b.is_ascii_hexdigit());
        let mut letters = 'A'..='Z';
        let one = |(value, gateways): (&Option<String>, &Vec<String>)| {
            let what = match value.as_deref() {
                None => "absent".to_owned(),
                Some("") => "present".to_owned(),
                Some(value) if fingerprint(value) => format!("value {}", letters.next().unwrap_or('Z')),
                Some(value) => harmless(value),
            };
            format!("{what} at {}", harmless(&gateways.join(" and ")))
        };
        self.values.iter().rev().map(one).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn told(&self) -> String {
        format!("{} is not the same at all gateways: {}", harmless(&self.setting), self.values())
    }

    pub(super) fn value(&self) -> Value {
        let one = |(value, gateways): (&Option<String>, &Vec<String>)| json!({ "value": value, "gateways": gateways });
        json!({ "setting": self.setting, "values": self.values.iter().map(one).collect::<Vec<_>>() })
    }
}

/// In words, a line for each, and how many more there are.
pub(super) fn told(all: &[Difference]) -> Vec<String> {
    let mut told: Vec<String> = all.iter().take(TOLD).map(Difference::told).collect();
    if all.len() > TOLD {
        told.push(format!("so are {} settings more (dormouse cluster status --json)", all.len() - TOLD));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::gateway;
    use super::*;

    const NOW: UnixTime = UnixTime(1_000);

    fn says(name: &str, settings: &str) -> GatewayStatus {
        let parted = settings.split(' ').filter_map(|line| line.split_once('='));
        let settings = parted.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        GatewayStatus { settings, ..gateway(name, Some(NOW.0), 0) }
    }

    #[test]
    fn what_differs_is_named_with_who_has_it_how() {
        let same = "cluster.takeover=on connection.a.sessions=3 connection.a.pool.addresses=0123456789abcdef";
        let mut all = vec![says("gw1", same), says("gw2", same)];
        assert_eq!(differences(&all, NOW), []);
        all.push(says("gw3", &same.replace("=on", "=off").replace("89ab", "98ab")));
        assert_eq!(
            told(&differences(&all, NOW)),
            [
                "cluster.takeover is not the same at all gateways: on at gw1 and gw2, off at gw3",
                "connection.a.pool.addresses is not the same at all gateways: value A at gw3, value B at gw1 and gw2",
            ]
        );
        // What a gateway that is gone said last is of another time.
        all[2].seen = Some(UnixTime(NOW.0 - 31));
        assert_eq!(differences(&all, NOW), []);
    }

    #[test]
    fn a_connection_that_one_lacks_is_one_difference_and_another_release_may_lack_a_setting() {
        let (one, other) = ("cluster.takeover=on connection.a.x=1 connection.a.y=2", "cluster.takeover=on");
        let mut all = vec![says("gw1", one), says("gw2", other)];
        assert_eq!(
            told(&differences(&all, NOW)),
            ["connection.a is not the same at all gateways: present at gw1, absent at gw2"]
        );
        all[1] = says("gw2", "cluster.takeover=on connection.a.x=1");
        assert!(told(&differences(&all, NOW))[0].starts_with("connection.a.y is not"));
        all[1].version = "0.0.9".into();
        assert_eq!(differences(&all, NOW), []);
        // One of a release that says nothing of itself.
        all[1].settings.clear();
        assert_eq!(differences(&all, NOW), []);
    }

    #[test]
    fn very_many_are_counted() {
        let all: String = (0..20).map(|n| format!("connection.a.k{n}=1 ")).collect();
        let all = [says("gw1", &all), says("gw2", &all.replace("=1", "=2"))];
        let told = told(&differences(&all, NOW));
        assert!(told.len() == TOLD + 1 && told[TOLD].contains("8 settings more"), "{told:?}");
    }
}
