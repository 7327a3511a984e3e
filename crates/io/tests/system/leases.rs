//! Leases survive, follow their identity, and a full disk loses none.

use crate::common::Directory;
use dormouse_io::leases::{Error, LeaseStore, StoredLease};
use dormouse_sansio::UnixTime;
use std::os::unix::fs::PermissionsExt;

fn lease(identity: &str, last: u8, used: u64) -> StoredLease {
    StoredLease {
        identity: identity.into(),
        v4: Some([10, 9, 0, last].into()),
        v6: Some(format!("fd09::{last:x}").parse().unwrap()),
        used: UnixTime(used),
    }
}

fn identities(store: &LeaseStore) -> Vec<String> {
    store.load().unwrap().into_iter().map(|l| l.identity).collect()
}

#[test]
fn leases_come_back_oldest_first() {
    let directory = Directory::new("leases");
    let path = directory.join("leases.db");
    let mut store = LeaseStore::open(&path).unwrap();
    store.record(lease("b@example.org", 2, 200));
    store.record(lease("a@example.org", 3, 100));
    store.record(StoredLease { v6: None, ..lease("c@example.org", 4, 300) });
    store.record(lease("a@example.org", 3, 400));
    assert_eq!(store.pending(), 3);
    assert!(store.load().unwrap().is_empty(), "nothing is written before the flush");
    store.flush().unwrap();
    drop(store);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let store = LeaseStore::open(&path).unwrap();
    assert_eq!(identities(&store), ["b@example.org", "c@example.org", "a@example.org"]);
    assert_eq!(store.load().unwrap()[2], lease("a@example.org", 3, 400));
}

#[test]
fn an_address_has_one_owner() {
    let directory = Directory::new("leases-owner");
    let mut store = LeaseStore::open(&directory.join("leases.db")).unwrap();
    store.record(lease("old", 2, 1));
    store.record(lease("gone", 3, 1));
    store.flush().unwrap();
    // The address of "old" goes to "new" without "old" being mentioned; "gone" is evicted in the same batch as its heir comes.
    store.record(lease("new", 2, 2));
    store.record(lease("a-heir", 3, 2));
    store.forget("gone");
    store.flush().unwrap();
    assert_eq!(identities(&store), ["a-heir", "new"]);
}

#[test]
fn a_full_disk_loses_nothing_and_names_the_file() {
    let directory = Directory::new("leases-full");
    let path = directory.join("leases.db");
    let mut store = LeaseStore::open(&path).unwrap();
    store.record(lease("first", 2, 1));
    store.flush().unwrap();
    store.limit(0).unwrap();
    for n in 0..2000 {
        let identity = format!("client-{n:04}.{}", "x".repeat(80));
        store.record(StoredLease {
            identity,
            v4: Some(std::net::Ipv4Addr::from(0x0a0a_0000 + n)),
            v6: None,
            used: UnixTime(2),
        });
    }
    let error = store.flush().unwrap_err();
    assert!(matches!(error, Error::DiskFull { pending: 2000, .. }), "{error}");
    assert!(error.to_string().contains("leases.db"), "{error}");
    assert_eq!(store.pending(), 2000);
    assert_eq!(identities(&store), ["first"], "all or nothing");
    store.limit(1 << 30).unwrap();
    store.flush().unwrap();
    assert_eq!((store.pending(), store.load().unwrap().len()), (0, 2001));
}

#[test]
fn a_file_of_a_later_release_and_a_file_of_something_else_are_left_alone() {
    let directory = Directory::new("leases-schema");
    let path = directory.join("leases.db");
    drop(LeaseStore::open(&path).unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 7).unwrap();
    drop(db);
    let error = LeaseStore::open(&path).unwrap_err();
    assert!(matches!(error, Error::Schema { found: 7, .. }), "{error}");
    std::fs::write(&path, vec![7; 9000]).unwrap();
    let _ = std::fs::remove_file(directory.join("leases.db-wal"));
    let error = LeaseStore::open(&path).unwrap_err().to_string();
    assert!(error.contains("leases.db"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 9000]);
}
