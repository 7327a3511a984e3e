//! What `dormouse doctor` finds out about the database that gateways share. Owns the judgement: the database is asked as the daemon asks it, with the
//! gateway's own login, and nothing is written.

use super::access::{self, block, told};
use super::status::{SKEW_MOST, SKEW_SOME, heard, is_heard, skew};
use super::{same, timed};
use crate::enrol::names::harmless;
use dormouse_cluster::{Error as Fault, GatewayStatus, Status, Viewer};
use dormouse_control::{Check, CheckOutcome, Error, ErrorKind};
use dormouse_node::config::file::File;

const REACHED: &str = "shared database";
const RIGHTS: &str = "its rights";
const KEY: &str = "cluster key";
const PASSWORDS: &str = "passwords of users";
const CLOCK: &str = "its clock";
const OTHERS: &str = "other gateways";
const SAME: &str = "same settings";
const SPREAD: &str = "spread of load";

/// What is found; nothing where no database is shared.
pub(crate) fn checks(file: &File) -> Vec<Check> {
    let settings = match access::settings(file) {
        Ok(None) => return Vec::new(),
        Ok(Some(settings)) => settings,
        // The check of the configuration says so too, where it may read all.
        Err(e) => {
            let outcome = match e.kind {
                ErrorKind::Permission => CheckOutcome::Skipped,
                _ => CheckOutcome::Failure,
            };
            return vec![check(REACHED, outcome, e.message)];
        }
    };
    let asked = timed(|| {
        block(async {
            let mut viewer = Viewer::connect(&settings).await?;
            let status = viewer.status().await?;
            let lacking = viewer.lacking().await?;
            // What it may not read is said already.
            let users = if lacking.is_empty() { Some(viewer.check_users().await?) } else { None };
            Ok((status, lacking, viewer.check_key().await, users))
        })
    });
    match asked {
        Ok(((status, lacking, key, users), times)) => {
            let mut found = vec![check(
                REACHED,
                CheckOutcome::Ok,
                format!("{} answers; its tables have version {}", status.server, status.schema),
            )];
            found.push(rights(&lacking));
            found.push(fits(key));
            found.extend(users.and_then(|(closed, open)| passwords(&closed, open)));
            found.push(clock(skew(times, status.now)));
            found.push(others(&status, &settings.gateway));
            found.extend(differing(&status));
            found.extend(spreads(file, &status, &settings.gateway));
            found
        }
        Err(Error { message, .. }) => vec![check(REACHED, CheckOutcome::Failure, message)],
    }
}

fn check(name: &str, outcome: CheckOutcome, found: impl Into<String>) -> Check {
    Check { name: name.into(), outcome, found: found.into(), change: None }
}

fn rights(lacking: &[String]) -> Check {
    if lacking.is_empty() {
        return check(RIGHTS, CheckOutcome::Ok, "this gateway's role has those that it needs");
    }
    let found = format!("this gateway's role lacks {}", lacking.join(", "));
    Check {
        change: Some("dormouse cluster init, as the owner of the database".into()),
        ..check(RIGHTS, CheckOutcome::Failure, found)
    }
}

fn fits(key: Result<usize, Fault>) -> Check {
    match key {
        Ok(0) => check(KEY, CheckOutcome::Ok, "there is no ticket key yet that it could open"),
        Ok(_) => check(KEY, CheckOutcome::Ok, "opens the ticket keys that the gateways share"),
        Err(e) => {
            let change = matches!(e, Fault::ClusterKey { .. })
                .then(|| "copy cluster.key_file from a gateway that works".to_owned());
            Check { change, ..check(KEY, CheckOutcome::Failure, told(e).message) }
        }
    }
}

/// Nothing where no user has a password.
fn passwords(closed: &[String], open: usize) -> Option<Check> {
    if closed.is_empty() {
        return (open > 0).then(|| {
            check(PASSWORDS, CheckOutcome::Ok, format!("{open}, which open under the cluster key"))
        });
    }
    let shown: Vec<String> = closed.iter().take(5).map(|name| harmless(name)).collect();
    let more = if closed.len() > 5 { format!(" and {} more", closed.len() - 5) } else { String::new() };
    let found = format!(
        "do not open under this gateway's cluster key, so that these users cannot log in: {}{more}",
        shown.join(", ")
    );
    Some(Check {
        change: Some("dormouse user add NAME --password, or the cluster key of the other gateways".into()),
        ..check(PASSWORDS, CheckOutcome::Warning, found)
    })
}

fn clock(ahead: i64) -> Check {
    let by = ahead.abs();
    let outcome = match by {
        _ if by > SKEW_MOST => CheckOutcome::Failure,
        _ if by > SKEW_SOME => CheckOutcome::Warning,
        _ => return check(CLOCK, CheckOutcome::Ok, "in step with this machine's"),
    };
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    let found =
        format!("this machine's clock is {by} s {way} the database's: tickets end too early or too late");
    Check { change: Some("timedatectl set-ntp true, here and there".into()), ..check(CLOCK, outcome, found) }
}

fn others(status: &Status, own: &str) -> Check {
    let others: Vec<_> = status.gateways.iter().filter(|gateway| gateway.name != own).collect();
    if others.is_empty() {
        return check(OTHERS, CheckOutcome::Ok, "none has joined yet");
    }
    let quiet: Vec<String> = others
        .iter()
        .filter(|gateway| !is_heard(gateway, status.now))
        .map(|gateway| format!("{} was heard {}", gateway.name, heard(gateway, status.now)))
        .collect();
    if quiet.is_empty() {
        return check(OTHERS, CheckOutcome::Ok, format!("{} heard", others.len()));
    }
    Check {
        change: Some("look there; for one that is gone: dormouse cluster forget NAME".into()),
        ..check(OTHERS, CheckOutcome::Warning, quiet.join("; "))
    }
}

/// Nothing while there is no other gateway to compare with.
fn differing(status: &Status) -> Option<Check> {
    let says = |gateway: &&GatewayStatus| is_heard(gateway, status.now) && !gateway.settings.is_empty();
    let saying = status.gateways.iter().filter(says).count();
    if saying < 2 {
        return None;
    }
    let different = same::told(&same::differences(&status.gateways, status.now));
    if different.is_empty() {
        let found = format!("{saying} gateways have the same connections and cluster.takeover");
        return Some(check(SAME, CheckOutcome::Ok, found));
    }
    let change = "make dormouse.toml the same there but for local and [cluster], and restart dormoused";
    Some(Check { change: Some(change.into()), ..check(SAME, CheckOutcome::Warning, different.join("; ")) })
}

/// Nothing where it is not wanted.
fn spreads(file: &File, status: &Status, own: &str) -> Option<Check> {
    let cluster = file.cluster.as_ref().filter(|cluster| cluster.spread)?;
    let others = status.gateways.iter().filter(|gateway| gateway.name != own);
    let same: Vec<&str> =
        others.filter(|other| other.address == cluster.address).map(|other| other.name.as_str()).collect();
    Some(spread(&cluster.address, &same))
}

/// `same`: other gateways that say the same of where they are.
fn spread(address: &str, same: &[&str]) -> Check {
    if address.is_empty() {
        let found =
            "cluster.spread is on, and no other gateway can send clients here: cluster.address is empty";
        let change = "cluster.address: the addresses of this gateway alone, as in \"192.0.2.1, 2001:db8::1\"";
        return Check { change: Some(change.into()), ..check(SPREAD, CheckOutcome::Warning, found) };
    }
    if same.is_empty() {
        return check(SPREAD, CheckOutcome::Ok, format!("others send clients to {}", harmless(address)));
    }
    let found = format!("{} has the same cluster.address as this gateway", same.join(", "));
    let change = "give each the addresses that are its alone";
    Check { change: Some(change.into()), ..check(SPREAD, CheckOutcome::Warning, found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_node::config;

    #[test]
    fn clocks_rights_and_keys_are_judged() {
        for (ahead, outcome) in [
            (10, CheckOutcome::Ok),
            (-11, CheckOutcome::Warning),
            (30, CheckOutcome::Warning),
            (31, CheckOutcome::Failure),
        ] {
            assert_eq!(clock(ahead).outcome, outcome, "{ahead}");
        }
        assert!(clock(-11).found.contains("11 s behind"));
        assert_eq!(rights(&[]).outcome, CheckOutcome::Ok);
        let lacking = rights(&["lease: update".into()]);
        assert!(lacking.outcome == CheckOutcome::Failure && lacking.found.ends_with("lacks lease: update"));
        let other = fits(Err(Fault::ClusterKey { server: "db".into(), day: 1 }));
        assert!(other.outcome == CheckOutcome::Failure && other.change.is_some(), "{other:?}");
        assert_eq!(fits(Ok(2)).outcome, CheckOutcome::Ok);
        for (address, same, outcome) in [
            ("192.0.2.1", &[][..], CheckOutcome::Ok),
            ("", &[], CheckOutcome::Warning),
            ("192.0.2.1", &["gw2"], CheckOutcome::Warning),
        ] {
            let check = spread(address, same);
            assert_eq!(
                (check.outcome, check.change.is_some()),
                (outcome, outcome != CheckOutcome::Ok),
                "{check:?}"
            );
        }
        assert_eq!(passwords(&[], 0), None);
        assert_eq!(passwords(&[], 3).unwrap().outcome, CheckOutcome::Ok);
        let closed = passwords(&["joe.example.org".into()], 3).unwrap();
        assert!(closed.outcome == CheckOutcome::Warning && closed.found.ends_with(": joe.example.org"));
    }

    #[test]
    fn a_gateway_alone_is_not_asked_and_one_whose_files_are_missing_is_told() {
        let gateway = "[connection.a]\nrole = \"gateway\"\n[connection.a.local]\nid = \"gw.test\"\n[connection.a.remote]\nid = \"*\"\n";
        assert!(checks(&config::parse(gateway).unwrap()).is_empty());
        let text = format!(
            "[cluster]\ndatabase = \"postgresql://a@db/d\"\nname = \"gw1\"\nkey_file = \"/nonexistent/key\"\n{gateway}"
        );
        let found = checks(&config::parse(&text).unwrap());
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert!(one.outcome == CheckOutcome::Failure && one.found.contains("cluster.key_file"), "{one:?}");
    }
}
