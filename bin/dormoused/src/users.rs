//! Users with passwords whom all gateways have: what the shared database says of them goes before what this gateway's own file says. Owns how the two
//! become one; who may come with which password is the endpoint's affair.

use dormouse_ike::config::EapPolicy;
use dormouse_node::config::{NtHash, Resolved};
use dormouse_node::shared::{SharedPassword, SharedUser};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct SharedUsers {
    /// By connection, as its own file has them.
    files: BTreeMap<String, Arc<EapPolicy>>,
    /// As the database has them.
    entries: Vec<SharedUser>,
}

impl SharedUsers {
    /// With what the database says.
    pub(crate) fn new(entries: Vec<SharedUser>) -> Self {
        Self { files: BTreeMap::new(), entries }
    }

    /// The configuration was read: but for those in `kept`, connections have the users of their files.
    pub(crate) fn read(&mut self, connections: &[Resolved], kept: &BTreeSet<String>) {
        self.files.retain(|name, _| kept.contains(name));
        for c in connections.iter().filter(|c| !kept.contains(&c.name)) {
            if let Some(policy) = &c.ike.answering.eap {
                self.files.insert(c.name.clone(), policy.clone());
            }
        }
    }

    /// What the database says now. True if it has changed.
    pub(crate) fn set(&mut self, entries: Vec<SharedUser>) -> bool {
        let changed = self.entries != entries;
        self.entries = entries;
        changed
    }

    /// The connections get the users that they have now.
    pub(crate) fn apply(&self, connections: &mut [Resolved]) {
        for c in connections {
            let Some(policy) = self.files.get(&c.name) else { continue };
            let Some(users) = policy.users() else { continue };
            let of = self.entries.iter().filter(|entry| entry.connection == c.name);
            let (mut changes, mut closed) = (Vec::new(), Vec::new());
            for SharedUser { name, password, .. } in of {
                let hash = hash(password);
                if hash.is_none() && *password != SharedPassword::Removed {
                    closed.push(name.as_str());
                }
                changes.push((name.clone(), hash));
            }
            let (users, unfit) = users.changed(changes);
            if !closed.is_empty() {
                tracing::error!(
                    connection = c.name,
                    count = closed.len(),
                    first = ?closed.iter().take(5).collect::<Vec<_>>(),
                    "passwords of users do not open with this gateway's cluster key, so that they cannot log in: dormouse user add NAME --password"
                );
            }
            if !unfit.is_empty() {
                tracing::error!(
                    connection = c.name,
                    count = unfit.len(),
                    first = ?unfit.iter().take(5).collect::<Vec<_>>(),
                    "the shared database has names that no user can have"
                );
            }
            let mut ike = (*c.ike).clone();
            ike.answering.eap = Some(Arc::new((**policy).clone().with_users(users)));
            c.ike = Arc::new(ike);
        }
    }
}

/// One that does not open lets nobody in: the user may have been removed since.
fn hash(password: &SharedPassword) -> Option<NtHash> {
    let SharedPassword::Hash(hash) = password else { return None };
    <[u8; NtHash::LEN]>::try_from(hash.as_bytes()).ok().map(NtHash::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_crypto::Secret;
    use dormouse_ike::config::{EapMethod, EapUsers};
    use dormouse_node::config;

    fn gateway() -> Vec<Resolved> {
        let text = "[connection.a]\nrole = \"gateway\"\n[connection.a.local]\nid = \"gw\"\nsecret = \"a secret of the test\"\n\
            [connection.a.remote]\nid = \"*\"\nsecret = \"a secret of the test\"\n[connection.a.child]\nlocal = [\"10.0.0.0/8\"]\n";
        let file = config::parse(text).unwrap();
        let mut connections = config::resolve(&file, &mut |_, _| Err("none".into())).unwrap();
        let users = ["ann", "joe"].map(|name| (name.to_owned(), NtHash::from([1; 16])));
        let policy = EapPolicy::here(vec![EapMethod::MsChapV2], EapUsers::new(users).unwrap());
        let mut ike = (*connections[0].ike).clone();
        ike.answering.eap = Some(Arc::new(policy));
        connections[0].ike = Arc::new(ike);
        connections
    }

    fn entry(connection: &str, name: &str, password: SharedPassword) -> SharedUser {
        SharedUser { connection: connection.into(), name: name.into(), password }
    }

    #[test]
    fn the_database_goes_before_the_file_and_what_it_does_not_say_is_the_files() {
        let here = |byte| SharedPassword::Hash(Secret::from([byte; 16]));
        let count = |c: &[Resolved]| c[0].ike.answering.eap.as_ref().unwrap().users().unwrap().len();
        let mut connections = gateway();
        let mut users = SharedUsers::new(vec![
            entry("a", "bob", here(2)),
            entry("a", "joe", SharedPassword::Removed),
            entry("a", "eve", SharedPassword::Unreadable),
            entry("a", "short", SharedPassword::Hash(Secret::from([2; 15]))),
            entry("b", "carol", here(2)),
        ]);
        users.read(&connections, &BTreeSet::new());
        users.apply(&mut connections);
        assert_eq!(count(&connections), 2, "ann and bob");
        // Once more changes nothing; without the database the file counts alone.
        users.apply(&mut connections);
        assert_eq!(count(&connections), 2);
        users.entries.clear();
        users.apply(&mut connections);
        assert_eq!(count(&connections), 2, "ann and joe");
        // A reload that keeps the connection as it was does not take what is in force for the file.
        users.entries = vec![entry("a", "bob", here(2))];
        users.apply(&mut connections);
        assert_eq!(count(&connections), 3);
        users.read(&connections, &BTreeSet::from(["a".to_owned()]));
        users.entries.clear();
        users.apply(&mut connections);
        assert_eq!(count(&connections), 2);
    }
}
