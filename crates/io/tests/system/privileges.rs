//! Privileges, as far as they can be looked at without losing them; `tests/drop.rs` loses them.

use crate::common::{Directory, root};
use dormouse_io::privileges::{Error, Needed, drop_to, find_user, held, require};

#[test]
fn dropping_needs_a_single_thread() {
    if !root("dropping_needs_a_single_thread") {
        return;
    }
    let Some(account) = find_user("nobody").unwrap() else { panic!("nobody is not root") };
    // The harness runs each test on a thread of its own.
    assert!(matches!(drop_to(&account), Err(Error::Threads { threads }) if threads > 1));
}

#[test]
fn an_unknown_user_is_named_with_the_line_to_change() {
    let error = find_user("no-such-user-here").unwrap_err().to_string();
    assert!(error.contains("no-such-user-here") && error.contains("daemon.user = \"root\""), "{error}");
    assert_eq!(find_user("root").unwrap(), None);
}

#[test]
fn missing_capabilities_are_named() {
    let needed = Needed { raw: true, bind: true };
    let have = held().unwrap();
    match require(needed) {
        Ok(()) => assert!(
            have.capabilities.contains(&"CAP_NET_ADMIN") && have.capabilities.contains(&"CAP_NET_RAW")
        ),
        Err(e) => assert!(e.to_string().contains("CAP_NET_"), "{e}"),
    }
}

#[test]
fn the_state_directory_goes_to_the_user_with_its_files_but_not_what_they_point_to() {
    use std::os::unix::fs::MetadataExt;
    if !root("the_state_directory_goes_to_the_user_with_its_files_but_not_what_they_point_to") {
        return;
    }
    let Some(account) = find_user("nobody").unwrap() else { panic!("nobody is not root") };
    let directory = Directory::new("own");
    std::fs::create_dir(directory.join("state")).unwrap();
    for name in ["state/ticket", "secret-of-root", "another-secret"] {
        std::fs::write(directory.join(name), "x").unwrap();
    }
    std::os::unix::fs::symlink(directory.join("secret-of-root"), directory.join("state/link")).unwrap();
    std::fs::hard_link(directory.join("another-secret"), directory.join("state/hard")).unwrap();
    account.own(&directory.join("state")).unwrap();
    account.own(&directory.join("new")).unwrap();
    let owner = |name: &str| std::fs::metadata(directory.join(name)).unwrap().uid();
    assert!(owner("state") != 0 && owner("state/ticket") == owner("state") && owner("new") == owner("state"));
    assert_eq!((owner("secret-of-root"), owner("another-secret")), (0, 0));
}
