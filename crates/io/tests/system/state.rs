//! Files are whole or as before, and secrets are for their owner only.

use crate::common::{Directory, root};
use dormouse_io::state::{Error, StateDir, write_atomically};
use std::os::unix::fs::PermissionsExt;

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn secrets_that_others_can_read_are_refused_with_the_command_that_mends_it() {
    let directory = Directory::new("state-secret");
    let path = directory.join("psk");
    let state = StateDir::open(directory.path()).unwrap();
    std::fs::write(&path, "swordfish").unwrap();
    for bad in [0o644, 0o640, 0o604, 0o620, 0o601] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(bad)).unwrap();
        let error = state.read("psk").unwrap_err();
        assert!(matches!(error, Error::Exposed { mode, .. } if mode == bad), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("chmod 600")
                && text.contains(path.to_str().unwrap())
                && !text.contains("swordfish"),
            "{text}"
        );
    }
    for good in [0o600, 0o400] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(good)).unwrap();
        assert_eq!(state.read("psk").unwrap().unwrap().as_bytes(), b"swordfish");
    }
    std::fs::create_dir(directory.join("folder")).unwrap();
    assert!(matches!(state.read("folder"), Err(Error::Unfit { .. })));
    if root("the owner's part of secrets_that_others_can_read_are_refused") {
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(matches!(state.read("psk"), Err(Error::Foreign { owner: 12345, .. })));
    }
}

#[test]
fn a_write_replaces_in_one_step_and_leaves_no_crumbs() {
    let directory = Directory::new("state-write");
    let state = StateDir::open(&directory.join("new/deep")).unwrap();
    assert_eq!(mode(&directory.join("new/deep")), 0o700);
    assert_eq!(state.read("ticket").unwrap(), None);
    state.write("ticket", b"one").unwrap();
    state.write("ticket", b"two").unwrap();
    assert_eq!(state.read("ticket").unwrap().unwrap().as_bytes(), b"two");
    assert_eq!(mode(&state.path("ticket")), 0o600);
    assert_eq!(std::fs::read_dir(directory.join("new/deep")).unwrap().count(), 1);
    state.remove("ticket").unwrap();
    state.remove("ticket").unwrap();
    assert_eq!(state.read("ticket").unwrap(), None);
}

#[test]
fn what_an_interrupted_write_left_is_cleared_away() {
    let directory = Directory::new("state-crumbs");
    std::fs::write(directory.join("ticket.new-123"), "half").unwrap();
    std::fs::write(directory.join("ticket"), "whole").unwrap();
    std::fs::set_permissions(directory.join("ticket"), PermissionsExt::from_mode(0o600)).unwrap();
    let state = StateDir::open(directory.path()).unwrap();
    assert_eq!(state.read("ticket").unwrap().unwrap().as_bytes(), b"whole");
    assert!(!directory.join("ticket.new-123").exists());
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let error = StateDir::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("others may write") && error.contains("chmod 700"), "{error}");
}

#[test]
fn root_may_open_the_directory_of_the_user_that_it_becomes() {
    if !root("root_may_open_the_directory_of_the_user_that_it_becomes") {
        return;
    }
    let directory = Directory::new("state-owner");
    let state = StateDir::open(directory.path()).unwrap();
    state.write("ticket", b"x").unwrap();
    for path in [directory.path().to_owned(), state.path("ticket")] {
        std::os::unix::fs::chown(path, Some(12345), None).unwrap();
    }
    let state = StateDir::open(directory.path()).unwrap();
    assert_eq!(state.read("ticket").unwrap().unwrap().as_bytes(), b"x");
    std::os::unix::fs::chown(state.path("ticket"), Some(54321), None).unwrap();
    assert!(matches!(state.read("ticket"), Err(Error::Foreign { owner: 54321, .. })), "a stranger's file");
}

#[test]
fn a_failed_write_keeps_the_old_content() {
    let directory = Directory::new("state-fail");
    // A directory where the file should go: the last step fails.
    std::fs::create_dir(directory.join("ticket")).unwrap();
    let error = write_atomically(&directory.join("ticket"), b"x", 0o600).unwrap_err();
    assert!(error.to_string().contains("rename into place"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn names_cannot_lead_out_of_the_directory() {
    let directory = Directory::new("state-names");
    let state = StateDir::open(directory.path()).unwrap();
    for name in ["../../etc/passwd", "a/b", ".hidden", "x\0y", "ticket-büro"] {
        state.write(name, name.as_bytes()).unwrap();
        assert_eq!(state.path(name).parent(), Some(directory.path()));
        assert_eq!(state.read(name).unwrap().unwrap().as_bytes(), name.as_bytes());
    }
}

#[test]
fn a_full_disk_is_said_so_and_leaves_what_was_there() {
    if !root("a_full_disk_is_said_so_and_leaves_what_was_there") {
        return;
    }
    let directory = Directory::new("state-full");
    let path = directory.path().to_owned();
    // A file system of 64 KiB, in a mount namespace of a thread of its own: it goes with the thread.
    std::thread::spawn(move || {
        use nix::mount::{MsFlags, mount};
        use nix::sched::{CloneFlags, unshare};
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        mount(Some("none"), &path, Some("tmpfs"), MsFlags::empty(), Some("size=64k,mode=700")).unwrap();
        let state = StateDir::open(&path).unwrap();
        state.write("ticket", b"old").unwrap();
        let error = state.write("ticket", &vec![1; 100_000]).unwrap_err();
        assert!(is_disk_full(&error) && error.to_string().contains("ticket"), "{error}");
        assert_eq!(state.read("ticket").unwrap().unwrap().as_bytes(), b"old");
    })
    .join()
    .unwrap();
}

fn is_disk_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
}
