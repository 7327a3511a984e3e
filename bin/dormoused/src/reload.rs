//! `dormouse reload` and SIGHUP: the configuration and the files that it names are read again, by a helper process that has kept the right
//! to. Owns what a difference between two configurations makes, and says what only a new start can change. A reload counts as a whole or
//! not at all: nothing changes before everything has been read and judged.

use crate::args::Args;
use crate::audit::Auditor;
use crate::block;
use crate::daemon::Daemon;
use crate::load;
use crate::renewals;
use anyhow::{Context, Result, anyhow};
use dormouse_control::{Error, ErrorKind, Reply};
use dormouse_io::clock::unix_now;
use dormouse_io::control::ClientId;
use dormouse_io::files::{self, Files, Reader};
use dormouse_io::privileges;
use dormouse_node::config::file::Role;
use dormouse_node::config::{Resolved, findings};
use dormouse_sansio::Instant;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

/// Keys of a client's connection that its session does not depend on.
const BESIDE: [&str; 4] = ["auto", "block", "local_network", "renewals"];

/// Who reads.
#[derive(Debug)]
enum Source {
    /// The daemon, which has kept its privileges.
    Own,
    Helper(Reader),
    /// The helper is gone.
    Gone,
}

/// Reloads that are asked for.
#[derive(Debug)]
pub(crate) struct Reload {
    source: Source,
    /// Who waits for what is being read; `None`: nothing is.
    asking: Option<Vec<ClientId>>,
    /// Who has asked since: the files may have changed again.
    again: Option<Vec<ClientId>>,
    /// The configuration in force as it is written, secrets left out.
    written: Value,
}

impl Reload {
    /// `user`: whom the daemon becomes; `None`: it stays root. As root, before privileges are given away.
    ///
    /// # Errors
    /// If the helper cannot be started.
    pub(crate) fn new(args: &Args, user: Option<&String>, written: Value) -> Result<Self> {
        let helper = |user: &String| {
            let arguments = [OsStr::new(crate::READER), args.config.as_os_str(), OsStr::new(user)];
            Reader::spawn(&std::env::current_exe()?, &arguments).map(Source::Helper)
        };
        let source =
            user.map_or(Ok(Source::Own), helper).context("the process that reads the configuration again")?;
        Ok(Self { source, asking: None, again: None, written })
    }

    /// To be watched by the loop.
    pub(crate) fn reader(&self) -> Option<&Reader> {
        if let Source::Helper(reader) = &self.source { Some(reader) } else { None }
    }
}

/// The helper: its configuration and user are arguments.
///
/// # Errors
/// See [`files::serve`].
pub(crate) fn serve() -> Result<()> {
    let mut arguments = std::env::args_os().skip(2);
    let (config, user) =
        arguments.next().zip(arguments.next()).context("configuration and user are missing")?;
    let account = privileges::find_user(&user.to_string_lossy())?.context("root needs no helper to read")?;
    Ok(files::serve(&account, Path::new(&config), &load::names)?)
}

/// What a configuration that was read again changes in connections, by name.
#[derive(PartialEq, Eq, Debug, Default)]
struct Difference {
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// Written differently: a client's session begins anew, a gateway's stay if they fit.
    changed: BTreeSet<String>,
    /// As they were, or not there, until a new start.
    kept: BTreeSet<String>,
    /// Keys that only a new start can change, as people write them.
    restart: Vec<String>,
}

impl Difference {
    /// `roles`: those that the daemon was started for; `unheld`: connections with something to be held that cannot be.
    fn of(old: &Value, new: &Value, roles: &BTreeSet<Role>, unheld: &BTreeSet<String>) -> Self {
        let mut it = Self::default();
        for section in ["daemon", "standin", "router", "cluster"] {
            for (key, old, new) in both(old, new, section) {
                if old != new {
                    it.restart.push(format!("{section}.{key}"));
                }
            }
        }
        let serves =
            |c: &Value| roles.iter().any(|role| serde_json::to_value(role).ok().as_ref() == c.get("role"));
        for (name, old, new) in both(old, new, "connection") {
            let role = |c: &Value| c.get("role").cloned();
            let only_by_restart = match (&old, &new) {
                (Some(old), Some(new)) if role(old) != role(new) => Some(".role"),
                (None, Some(new)) if !serves(new) => Some(""),
                (_, Some(_)) if unheld.contains(&name) => Some(".block"),
                _ => None,
            };
            if let Some(key) = only_by_restart {
                it.restart.push(format!("connection.{name}{key}"));
                it.kept.insert(name);
                continue;
            }
            match (old, new) {
                (None, _) => drop(it.added.insert(name)),
                (_, None) => drop(it.removed.insert(name)),
                (old, new) if session(old.as_ref()) != session(new.as_ref()) => drop(it.changed.insert(name)),
                _ => {}
            }
        }
        it
    }

    /// One line for the log.
    fn words(&self) -> String {
        let part = |what, names: &BTreeSet<String>| {
            let list = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            (!names.is_empty()).then(|| format!("{what} {list}"))
        };
        let parts = [part("new", &self.added), part("gone", &self.removed), part("changed", &self.changed)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// The entries of a section in both configurations, by name.
fn both(old: &Value, new: &Value, section: &str) -> Vec<(String, Option<Value>, Option<Value>)> {
    let part = |v: &Value| v.get(section).and_then(Value::as_object).cloned().unwrap_or_default();
    let (old, new) = (part(old), part(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().map(|n| (n.clone(), old.get(n).cloned(), new.get(n).cloned())).collect()
}

/// What of a connection its sessions depend on.
fn session(connection: Option<&Value>) -> Option<Value> {
    let mut connection = connection.cloned()?;
    if let Some(table) = connection.as_object_mut() {
        table.retain(|key, _| !BESIDE.contains(&key.as_str()));
    }
    Some(connection)
}

/// The sections of `new`, but for what stays as it was.
fn in_force(old: &Value, new: Value, kept: &BTreeSet<String>) -> Value {
    let mut now = new;
    for section in ["daemon", "standin"] {
        if let Some((to, from)) = now.get_mut(section).zip(old.get(section)) {
            to.clone_from(from);
        }
    }
    if let Some(now) = now.as_object_mut() {
        match old.get("router") {
            Some(router) => drop(now.insert("router".into(), router.clone())),
            None => drop(now.remove("router")),
        }
    }
    if let Some(connections) = now.get_mut("connection").and_then(Value::as_object_mut) {
        for name in kept {
            match old.get("connection").and_then(|c| c.get(name)) {
                Some(was) => drop(connections.insert(name.clone(), was.clone())),
                None => drop(connections.remove(name)),
            }
        }
    }
    now
}

impl Daemon {
    /// Has the configuration read again; `client` gets the outcome.
    pub(crate) fn reload(&mut self, now: Instant, client: Option<ClientId>) {
        if self.reload.asking.is_some() {
            self.reload.again.get_or_insert_default().extend(client);
        } else {
            self.read_again(now, client.into_iter().collect());
        }
    }

    fn read_again(&mut self, now: Instant, clients: Vec<ClientId>) {
        self.reload.asking = Some(clients);
        match &mut self.reload.source {
            Source::Own => {
                let files = files::collect(&self.args.config, &load::names);
                self.files_read(now, Ok(&files));
            }
            Source::Helper(reader) => {
                if let Err(e) = reader.ask() {
                    self.reader_failed(now, &e);
                }
            }
            Source::Gone => {
                let why = anyhow!("the process that could read it again is gone; restart the daemon");
                self.files_read(now, Err(why));
            }
        }
    }

    /// Something has come from the helper.
    pub(crate) fn files_come(&mut self, now: Instant) {
        let Source::Helper(reader) = &mut self.reload.source else { return };
        match reader.next() {
            Ok(None) => {}
            Ok(Some(files)) => self.files_read(now, Ok(&files)),
            Err(e) => self.reader_failed(now, &e),
        }
    }

    fn reader_failed(&mut self, now: Instant, why: &std::io::Error) {
        tracing::error!(%why, "the process that reads the configuration again is gone; a reload needs a restart from now on");
        self.reload.source = Source::Gone;
        if self.reload.asking.is_some() {
            self.files_read(
                now,
                Err(anyhow!("the process that reads it is gone: {why}; restart the daemon")),
            );
        }
    }

    fn files_read(&mut self, now: Instant, files: Result<&Files>) {
        let result = files.and_then(|files| self.take_up(now, files));
        match &result {
            Ok(restart) if restart.is_empty() => {
                tracing::info!("the configuration was read again and is in force");
            }
            Ok(restart) => tracing::warn!(
                keys = restart.join(", "),
                "the configuration was read again and is in force, but for what a restart takes"
            ),
            Err(e) => tracing::error!("the configuration stays as it was: {}", dormouse_io::causes(&**e)),
        }
        let answer = result.map(|restart| Reply::Reloaded { restart }).map_err(|e| {
            Error::new(
                ErrorKind::Other,
                format!("the configuration stays as it was: {}", dormouse_io::causes(&*e)),
            )
        });
        for client in self.reload.asking.take().unwrap_or_default() {
            self.verbs.reply(client, answer.clone());
        }
        if let Some(clients) = self.reload.again.take() {
            self.read_again(now, clients);
        }
    }

    /// Gives a client connection the ticket of an earlier run.
    pub(crate) fn restore_ticket(&mut self, connection: &str) {
        if let Some(ticket) = self.store.ticket(connection, unix_now()) {
            self.host.node_mut().restore_ticket(connection, ticket);
        }
    }

    /// Puts a configuration in the place of the one in force; returns the keys that need a restart.
    ///
    /// # Errors
    /// What is wrong with it; nothing has changed then.
    fn take_up(&mut self, now: Instant, files: &Files) -> Result<Vec<String>> {
        let loaded = load::resolve(&self.args, files)?;
        if loaded.connections.is_empty() && loaded.hip.is_none() && self.transit.is_none() {
            return Err(anyhow!(
                "no connection is configured, and this daemon became no router when it started"
            ));
        }
        let auditor = Auditor::new(&loaded.audit)?;
        load::warn(&findings(&loaded.daemon, &loaded.connections, unix_now()));
        let unheld = block::blocking(&loaded.connections, None);
        let unheld: BTreeSet<String> =
            unheld.into_iter().filter(|(_, b)| !self.block.can_hold(b)).map(|(name, _)| name).collect();
        let difference = Difference::of(&self.reload.written, &loaded.written, &self.roles, &unheld);
        let kept = |c: &&Resolved| difference.kept.contains(&c.name);
        let mut connections: Vec<Resolved> =
            loaded.connections.iter().filter(|c| !kept(c)).cloned().collect();
        connections.extend(self.connections.iter().filter(kept).cloned());
        connections.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(cluster) = &mut self.helpers.cluster {
            cluster.users.read(&connections, &difference.kept);
            cluster.users.apply(&mut connections);
            cluster.counts.reload(loaded.same);
        }
        tracing::debug!(difference = difference.words(), "reload");
        // First nothing leaves outside; the last thing that can fail.
        let hip = loaded.hip.filter(|hip| !difference.kept.contains(&hip.name));
        let mut of = block::blocking(&connections, None);
        of.extend(self.blocking_of_hip(hip.as_ref()));
        self.block.reconfigure(of)?;

        self.helpers.auditor = auditor;
        self.machine.keep_own_side(connections.iter().flat_map(Resolved::own_side).collect());
        self.machine.keep_own(renewals::addresses(&connections));
        self.connections = connections;
        self.host.node_mut().set_radius(now, loaded.radius);
        self.host.reconfigure(now, &self.connections, &difference.changed);
        let new =
            self.connections.iter().filter(|c| c.role == Role::Client && difference.added.contains(&c.name));
        for (name, auto) in new.map(|c| (c.name.clone(), c.auto)).collect::<Vec<_>>() {
            self.restore_ticket(&name);
            if auto {
                self.host.up(now, &name);
            }
        }
        let mut restart = difference.restart;
        if let Some(forward) = &mut self.machine.forward {
            restart.extend(forward.reconfigure(&self.connections));
        }
        restart.extend(self.reconfigure_hip(now, hip, &difference.kept));
        if let Some(device) = &mut self.device {
            let keys = device.reconfigure(now, &loaded.sleep, &mut self.host);
            restart.extend(keys.into_iter().map(str::to_owned));
            self.tell_hip_of_mode(now);
        }
        self.reload.written = in_force(&self.reload.written, loaded.written, &difference.kept);
        Ok(restart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn difference(old: &Value, new: &Value) -> Difference {
        Difference::of(old, new, &BTreeSet::from([Role::Gateway]), &BTreeSet::new())
    }

    #[test]
    fn connections_come_go_and_change_by_what_is_written() {
        let old = json!({"daemon": {}, "connection": {
            "a": {"role": "gateway", "peers": [{"id": "x"}]}, "b": {"role": "gateway"}, "c": {"role": "gateway", "remote": {"secret": "(hidden)"}}}});
        let new = json!({"daemon": {}, "connection": {
            "a": {"role": "gateway", "peers": []}, "c": {"role": "gateway", "remote": {"secret": "(hidden)"}}, "d": {"role": "gateway"}}});
        let found = difference(&old, &new);
        let expected = Difference {
            added: names(&["d"]),
            removed: names(&["b"]),
            changed: names(&["a"]),
            ..Difference::default()
        };
        assert_eq!(found, expected);
        assert_eq!(found.words(), "new d; gone b; changed a");
        assert_eq!(difference(&old, &old), Difference::default());
        assert_eq!(in_force(&old, new.clone(), &found.kept), new);
    }

    #[test]
    fn what_only_a_new_start_can_change_is_named_and_stays_as_it_was() {
        let old = json!({"daemon": {"log": "info", "mtu": 0}, "standin": {"enabled": true}, "connection": {
            "a": {"role": "gateway"}, "b": {"role": "gateway"}}});
        let new = json!({"daemon": {"log": "debug", "mtu": 0}, "standin": {"enabled": false}, "connection": {
            "a": {"role": "client"}, "b": {"role": "gateway", "isolate": true}, "c": {"role": "client"}}});
        let found = difference(&old, &new);
        assert_eq!(found.restart, ["daemon.log", "standin.enabled", "connection.a.role", "connection.c"]);
        assert_eq!((&found.kept, &found.changed), (&names(&["a", "c"]), &names(&["b"])));
        let now = in_force(&old, new.clone(), &found.kept);
        assert_eq!(
            now["connection"],
            json!({"a": {"role": "gateway"}, "b": {"role": "gateway", "isolate": true}})
        );
        // It is still said at the next reload.
        assert_eq!(difference(&now, &new).restart, found.restart);
    }

    #[test]
    fn an_access_router_comes_goes_and_changes_by_a_new_start_alone() {
        let router = json!({"router": {"device": "wlan0", "network": "eth0", "rate_kbit": 0}});
        let faster = json!({"router": {"device": "wlan0", "network": "eth0", "rate_kbit": 9}});
        for (old, new, keys) in [
            (&json!({}), &router, &["router.device", "router.network", "router.rate_kbit"][..]),
            (&router, &json!({}), &["router.device", "router.network", "router.rate_kbit"]),
            (&router, &faster, &["router.rate_kbit"]),
        ] {
            let found = difference(old, new);
            assert_eq!(found.restart, keys);
            assert_eq!(&in_force(old, new.clone(), &found.kept), old);
        }
    }

    #[test]
    fn a_clients_session_goes_on_if_only_what_is_beside_it_changes() {
        let of = |connection: Value| json!({"connection": {"a": connection}});
        let roles = BTreeSet::from([Role::Client]);
        let old = of(json!({"role": "client", "gateway": "x"}));
        let beside = of(
            json!({"role": "client", "gateway": "x", "block": "always", "local_network": false, "auto": true}),
        );
        let found = |new: &Value, unheld: &[&str]| Difference::of(&old, new, &roles, &names(unheld));
        assert_eq!(found(&beside, &[]), Difference::default());
        assert_eq!(found(&of(json!({"role": "client", "gateway": "y"})), &[]).changed, names(&["a"]));
        let unheld = found(&beside, &["a"]);
        assert_eq!((unheld.restart, unheld.kept), (vec!["connection.a.block".to_owned()], names(&["a"])));
    }
}
