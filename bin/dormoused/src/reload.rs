//! SIGHUP: the configuration is read again. Owns what can be changed while the daemon runs, and says what cannot; a file that is
//! wrong changes nothing.

use crate::daemon::Daemon;
use crate::load;
use dormouse_sansio::Instant;
use serde_json::Value;

impl Daemon {
    /// Reads the configuration again. `[sleep]` is applied at once, but for what a running radio or a learned history is bound
    /// to; so are `block` and `local_network` of connections, and the files with certificates, keys and secrets of connections that are written as before. What else changes in
    /// connections, `[daemon]` and `[standin]` needs a restart, which is said key by key.
    pub(crate) fn reload(&mut self, now: Instant) {
        let loaded = match load::load(&self.args) {
            Ok(loaded) => loaded,
            Err(e) => {
                tracing::error!("the configuration stays as it was: {e:#}");
                return;
            }
        };
        load::warn(&dormouse_node::config::findings(&loaded.connections, dormouse_io::clock::unix_now()));
        let mut restart = changed(&self.written, &loaded.written);
        for connection in &loaded.connections {
            if !restart.contains(&format!("connection.{}", connection.name)) {
                self.host.node_mut().renew(now, &connection.ike);
            }
        }
        restart.extend(self.block.reconfigure(&loaded.connections));
        if let Some(device) = &mut self.device {
            let keys = device.reconfigure(now, &loaded.sleep, &mut self.host);
            restart.extend(keys.into_iter().map(str::to_owned));
        }
        if restart.is_empty() {
            tracing::info!("the configuration was read again and is in force");
        } else {
            tracing::warn!(
                keys = restart.join(", "),
                "the configuration was read again; a restart takes what changed here"
            );
        }
    }
}

/// The keys of `[daemon]`, `[standin]` and the connections that differ, as people write them.
fn changed(old: &Value, new: &Value) -> Vec<String> {
    let mut keys = Vec::new();
    for section in ["daemon", "connection", "standin"] {
        let part = |v: &Value| v.get(section).and_then(Value::as_object).cloned().unwrap_or_default();
        let (old, new) = (part(old), part(new));
        let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let differs = |name: &&&String| fixed(old.get(**name)) != fixed(new.get(**name));
        keys.extend(names.iter().filter(differs).map(|name| format!("{section}.{name}")));
    }
    keys
}

/// What of a connection, or of another key, cannot change while the daemon runs.
fn fixed(value: Option<&Value>) -> Option<Value> {
    let mut value = value.cloned()?;
    if let Some(table) = value.as_object_mut() {
        table.retain(|key, _| key != "block" && key != "local_network");
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::changed;
    use serde_json::json;

    #[test]
    fn what_differs_is_named() {
        let old = json!({"daemon": {"log": "info", "mtu": 0}, "connection": {"a": {"auto": true}, "b": {}}, "sleep": {"mode": 1}});
        let new = json!({"daemon": {"log": "debug", "mtu": 0}, "connection": {"a": {"auto": false}, "c": {}}, "sleep": {"mode": 2}});
        assert_eq!(changed(&old, &new), ["daemon.log", "connection.a", "connection.b", "connection.c"]);
        assert!(changed(&old, &old).is_empty());
        let held = json!({"daemon": {"log": "info", "mtu": 0}, "connection": {"a": {"auto": true, "block": "always"}, "b": {"local_network": false}}});
        assert!(changed(&old, &held).is_empty());
    }
}
