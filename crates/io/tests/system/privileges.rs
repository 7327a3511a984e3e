//! Privileges, as far as they can be looked at without losing them; `tests/drop.rs` loses them.

use crate::common::root;
use dormouse_io::privileges::{Error, Keep, drop_to, find_user, held, require};

#[test]
fn dropping_needs_a_single_thread() {
    if !root("dropping_needs_a_single_thread") {
        return;
    }
    let Some(account) = find_user("nobody").unwrap() else { panic!("nobody is not root") };
    // The harness runs each test on a thread of its own.
    assert!(matches!(drop_to(&account, Keep::default()), Err(Error::Threads { threads }) if threads > 1));
}

#[test]
fn an_unknown_user_is_named_with_the_line_to_change() {
    let error = find_user("no-such-user-here").unwrap_err().to_string();
    assert!(error.contains("no-such-user-here") && error.contains("daemon.user = \"root\""), "{error}");
    assert_eq!(find_user("root").unwrap(), None);
}

#[test]
fn missing_capabilities_are_named() {
    let needed = Keep { raw: true, bind: true };
    let have = held().unwrap();
    match require(needed) {
        Ok(()) => assert!(
            have.capabilities.contains(&"CAP_NET_ADMIN") && have.capabilities.contains(&"CAP_NET_RAW")
        ),
        Err(e) => assert!(e.to_string().contains("CAP_NET_"), "{e}"),
    }
}
