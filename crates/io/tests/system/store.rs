//! Leases survive, follow their holder, and a full disk loses none; a denial is durable when the call returns.

use crate::common::Directory;
use dormouse_io::store::lineage::Lineages;
use dormouse_io::store::{Database, Error, OldLease, StoredDenial, StoredLease, StoredLessee};
use dormouse_sansio::UnixTime;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn holder(identity: &str) -> StoredLessee {
    StoredLessee { connection: "office".into(), identity: (2, identity.into()), device: 0 }
}

fn lease(identity: &str, last: u8, used: u64) -> StoredLease {
    StoredLease {
        holder: holder(identity),
        v4: Some([10, 9, 0, last].into()),
        v6: Some(format!("fd09::{last:x}").parse().unwrap()),
        used: UnixTime(used),
    }
}

fn open(path: &Path) -> Result<Database, Error> {
    Database::open(path, &|_: &OldLease| None)
}

fn identities(store: &Database) -> Vec<String> {
    let name = |l: StoredLease| String::from_utf8(l.holder.identity.1).unwrap();
    store.leases().unwrap().into_iter().map(name).collect()
}

#[test]
fn leases_come_back_oldest_first() {
    let directory = Directory::new("leases");
    let path = directory.join("gateway.db");
    let mut store = open(&path).unwrap();
    store.record(lease("b.example.org", 2, 200));
    store.record(lease("a.example.org", 3, 100));
    store.record(StoredLease { v6: None, ..lease("c.example.org", 4, 300) });
    store.record(lease("a.example.org", 3, 400));
    assert_eq!(store.pending(), 3);
    assert!(store.leases().unwrap().is_empty(), "nothing is written before the flush");
    store.flush().unwrap();
    drop(store);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let store = open(&path).unwrap();
    assert_eq!(identities(&store), ["b.example.org", "c.example.org", "a.example.org"]);
    assert_eq!(store.leases().unwrap()[2], lease("a.example.org", 3, 400));
}

#[test]
fn an_address_has_one_owner_and_an_identity_is_another_in_another_connection() {
    let directory = Directory::new("leases-owner");
    let mut store = open(&directory.join("gateway.db")).unwrap();
    store.record(lease("old", 2, 1));
    store.record(lease("gone", 3, 1));
    store.flush().unwrap();
    // The address of "old" goes to "new" without "old" being mentioned; "gone" is evicted in the same batch as its heir comes.
    store.record(lease("new", 2, 2));
    store.record(lease("a-heir", 3, 2));
    store.forget(holder("gone"));
    store.flush().unwrap();
    assert_eq!(identities(&store), ["a-heir", "new"]);
    let others = [
        StoredLessee { connection: "guests".into(), ..holder("new") },
        StoredLessee { identity: (11, "new".into()), ..holder("new") },
        StoredLessee { device: 1, ..holder("new") },
    ];
    for (last, other) in (10..).zip(others) {
        store.record(StoredLease { holder: other, ..lease("new", last, 3) });
    }
    store.flush().unwrap();
    assert_eq!(identities(&store), ["a-heir", "new", "new", "new", "new"]);
}

#[test]
fn leases_of_an_earlier_release_go_to_the_holder_that_is_named_or_nowhere() {
    let directory = Directory::new("leases-old");
    let path = directory.join("gateway.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "create table lease (identity text primary key not null, v4 text unique, v6 text unique, used integer not null) strict, without rowid;
        create index lease_by_use on lease (used);
        insert into lease values ('a.example.org', '10.9.0.3', 'fd09::3', 100), ('b.example.org', '10.9.0.4', null, 50);
        pragma user_version = 1;",
    )
    .unwrap();
    drop(db);
    let named = |old: &OldLease| (old.identity == "a.example.org").then(|| holder("a.example.org"));
    assert_eq!(Database::open(&path, &named).unwrap().leases().unwrap(), [lease("a.example.org", 3, 100)]);
    // Once: what was dropped does not come back, and what was taken over is not asked about again.
    assert_eq!(identities(&open(&path).unwrap()), ["a.example.org"]);
}

#[test]
fn a_full_disk_loses_nothing_and_names_the_file() {
    let directory = Directory::new("leases-full");
    let path = directory.join("gateway.db");
    let mut store = open(&path).unwrap();
    store.record(lease("first", 2, 1));
    store.flush().unwrap();
    store.limit(0).unwrap();
    for n in 0..2000 {
        let identity = format!("client-{n:04}.{}", "x".repeat(80));
        let v4 = Some(std::net::Ipv4Addr::from(0x0a0a_0000 + n));
        store.record(StoredLease { holder: holder(&identity), v4, v6: None, used: UnixTime(2) });
    }
    let error = store.flush().unwrap_err();
    assert!(matches!(error, Error::DiskFull { pending: 2000, .. }), "{error}");
    assert!(error.to_string().contains("gateway.db"), "{error}");
    assert_eq!(store.pending(), 2000);
    assert_eq!(identities(&store), ["first"], "all or nothing");
    store.limit(1 << 30).unwrap();
    store.flush().unwrap();
    assert_eq!((store.pending(), store.leases().unwrap().len()), (0, 2001));
}

#[test]
fn a_denial_is_there_once_until_it_is_taken_back() {
    let directory = Directory::new("denials");
    let path = directory.join("gateway.db");
    let mut store = open(&path).unwrap();
    let denial = |whom: &str, since| StoredDenial { whom: whom.into(), since: UnixTime(since) };
    assert!(store.deny(&denial("joe@example.org", 20)).unwrap());
    assert!(!store.deny(&denial("joe@example.org", 30)).unwrap());
    assert!(store.deny(&denial("sha256:00", 10)).unwrap());
    // Another process reads it at once: nothing waits for a flush.
    assert_eq!(
        open(&path).unwrap().denials().unwrap(),
        [denial("sha256:00", 10), denial("joe@example.org", 20)]
    );
    assert!(store.allow("joe@example.org").unwrap() && !store.allow("joe@example.org").unwrap());
    drop(store);
    assert_eq!(open(&path).unwrap().denials().unwrap(), [denial("sha256:00", 10)]);
}

#[test]
fn a_file_of_a_later_release_and_a_file_of_something_else_are_left_alone() {
    let directory = Directory::new("leases-schema");
    let path = directory.join("gateway.db");
    drop(open(&path).unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 77).unwrap();
    drop(db);
    let error = open(&path).unwrap_err();
    assert!(matches!(error, Error::Schema { found: 77, .. }), "{error}");
    std::fs::write(&path, vec![7; 9000]).unwrap();
    let _ = std::fs::remove_file(directory.join("gateway.db-wal"));
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("gateway.db"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 9000]);
}

#[test]
fn the_database_is_not_made_or_opened_by_a_link() {
    let directory = Directory::new("store-link");
    for target in ["elsewhere", "existing"] {
        if target == "existing" {
            drop(open(&directory.join(target)).unwrap());
        }
        let path = directory.join(&format!("{target}.db"));
        std::os::unix::fs::symlink(directory.join(target), &path).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("symbolic link") && error.contains(".db"), "{error}");
        assert!(Lineages::open(&path).is_err());
    }
    assert!(!directory.join("elsewhere").exists());
    // A link to the directory is the administrator's.
    std::fs::create_dir(directory.join("real")).unwrap();
    std::os::unix::fs::symlink(directory.join("real"), directory.join("state")).unwrap();
    drop(open(&directory.join("state/gateway.db")).unwrap());
    Lineages::open(&directory.join("state/gateway.db")).unwrap();
}
