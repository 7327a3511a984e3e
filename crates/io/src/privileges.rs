//! Privileges: what the daemon keeps once it is set up. Owns the drop; must run while the process has one thread, because
//! Linux keeps capabilities by thread.
//!
//! Order: open sockets below 1024, the TUN device, the control socket and the secrets as root; start
//! [`crate::resolver::Guard`]; [`drop_to`]; then open the state directory, which belongs to the user. `CAP_NET_ADMIN` stays
//! (addresses, routes, rules, the mark of sockets), and nothing else: raw sockets and ports below 1024 are opened before.
//!
//! A parent may have kept `CAP_SETPCAP` and `CAP_CHOWN` from us, as NetworkManager's unit does. Bounding set and secure bits stay as they are then:
//! what they would keep us from is getting a capability by running a program, which `no_new_privs`, set in any case, does too.

use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_keep_capabilities, set_no_new_privs,
};
use std::ffi::CString;

/// Capabilities that the set-up needs, besides `CAP_NET_ADMIN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needed {
    /// `CAP_NET_RAW`: raw sockets.
    pub raw: bool,
    /// `CAP_NET_BIND_SERVICE`: ports below 1024.
    pub bind: bool,
}

impl Needed {
    fn set(self) -> CapabilitySet {
        let mut set = CapabilitySet::NET_ADMIN;
        set.set(CapabilitySet::NET_RAW, self.raw);
        set.set(CapabilitySet::NET_BIND_SERVICE, self.bind);
        set
    }
}

/// Why privileges could not be dropped, or are missing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user does not exist.
    #[error(
        "user '{user}' does not exist; create it (systemd-sysusers, or: useradd --system {user}), or set daemon.user = \"root\" to keep full privileges"
    )]
    NoUser {
        /// The name.
        user: String,
    },
    /// The process has other threads already.
    #[error("{threads} threads run; privileges can only be dropped while there is one")]
    Threads {
        /// How many.
        threads: usize,
    },
    /// A capability that is needed is not there.
    #[error("{missing} is missing; start the daemon as root, or give the container the capability")]
    Missing {
        /// Which, in the kernel's words.
        missing: String,
    },
    /// A step failed.
    #[error("user '{user}': {step}: {source}")]
    Step {
        /// Whom we wanted to be.
        user: String,
        /// Which step.
        step: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// What the process is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rights {
    /// User id.
    pub uid: u32,
    /// Capabilities in effect, in the kernel's words.
    pub capabilities: Vec<&'static str>,
}

const NAMED: [(CapabilitySet, &str); 12] = [
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETPCAP, "CAP_SETPCAP"),
    (CapabilitySet::NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CapabilitySet::SYS_MODULE, "CAP_SYS_MODULE"),
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
];

fn names(set: CapabilitySet) -> Vec<&'static str> {
    NAMED.iter().filter(|(c, _)| set.contains(*c)).map(|(_, name)| *name).collect()
}

/// Capabilities in effect now (of those worth naming).
///
/// # Errors
/// The kernel's; none is expected.
pub fn held() -> std::io::Result<Rights> {
    Ok(Rights { uid: geteuid().as_raw(), capabilities: names(capabilities(None)?.effective) })
}

/// Checks before anything is changed that what set-up needs is there.
///
/// # Errors
/// [`Error::Missing`], naming it.
pub fn require(needed: Needed) -> Result<(), Error> {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |s| s.effective);
    let missing = needed.set() - effective;
    if missing.is_empty() { Ok(()) } else { Err(Error::Missing { missing: names(missing).join(", ") }) }
}

/// Looks the user up, so that a wrong name is found before anything is set up. `Ok(None)` for "root": nothing is dropped.
///
/// # Errors
/// [`Error::NoUser`].
pub fn find_user(name: &str) -> Result<Option<Account>, Error> {
    if name == "root" {
        return Ok(None);
    }
    match User::from_name(name) {
        Ok(Some(user)) => Ok(Some(Account { name: name.into(), uid: user.uid, gid: user.gid })),
        Ok(None) => Err(Error::NoUser { user: name.into() }),
        Err(e) => Err(Error::Step { user: name.into(), step: "look up", source: e.into() }),
    }
}

/// Whom the daemon becomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
}

impl Account {
    /// The user's number.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Gives a directory, made if it is missing (0700), and the files in it to the user, before the drop: the state directory,
    /// which service managers hand out as root's. Links are not followed. Without `CAP_CHOWN` the directory must be the user's already, and
    /// what is root's in it stays so.
    ///
    /// # Errors
    /// The kernel's.
    pub fn own(&self, directory: &std::path::Path) -> std::io::Result<()> {
        use nix::{fcntl::AtFlags, unistd::fchownat};
        use std::fs::OpenOptions;
        use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let (uid, gid) = (self.uid.as_raw(), self.gid.as_raw());
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            // Root without CAP_DAC_OVERRIDE cannot look into a directory that is the user's already.
            Err(e)
                if e.kind() == std::io::ErrorKind::PermissionDenied
                    && std::fs::metadata(directory)?.uid() == uid =>
            {
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let may = capabilities(None)?.effective.contains(CapabilitySet::CHOWN);
        if !may && std::fs::symlink_metadata(directory)?.uid() == uid {
            return Ok(());
        }
        // The directory last, for the same reason.
        for entry in entries {
            let flags = nix::libc::O_PATH | nix::libc::O_NOFOLLOW;
            let file = OpenOptions::new().read(true).custom_flags(flags).open(entry?.path())?;
            // A hard link that the user made is another name of a file that may be root's. Of what is open, not of a name that may
            // mean something else by now.
            if file.metadata()?.nlink() == 1 {
                fchownat(&file, "", Some(self.uid), Some(self.gid), AtFlags::AT_EMPTY_PATH)?;
            }
        }
        lchown(directory, Some(uid), Some(gid))
    }
}

/// Becomes `account` with `CAP_NET_ADMIN` alone and no way back. The process can then neither gain privileges by running
/// a program, nor regain a capability.
///
/// # Errors
/// [`Error::Threads`], or the step that failed. After an error the process must end: it may be half way.
pub fn drop_to(account: &Account) -> Result<Rights, Error> {
    become_account(account, CapabilitySet::NET_ADMIN)
}

/// Becomes `account` and keeps the right to read every file, if it is there, at hand but not in effect ([`reads_all`]), and nothing else:
/// for [`crate::files::serve`].
///
/// # Errors
/// As [`drop_to`].
pub fn keep_reading(account: &Account) -> Result<(), Error> {
    let has = capabilities(None).is_ok_and(|now| now.effective.contains(CapabilitySet::DAC_READ_SEARCH));
    let kept = if has { CapabilitySet::DAC_READ_SEARCH } else { CapabilitySet::empty() };
    become_account(account, kept)?;
    reads_all(false).map_err(|source| Error::Step {
        user: account.name.clone(),
        step: "set capabilities",
        source,
    })
}

/// Puts what [`keep_reading`] has kept into effect, or takes it out of effect. Fails if nothing was kept.
pub(crate) fn reads_all(all: bool) -> std::io::Result<()> {
    let effective = if all { CapabilitySet::DAC_READ_SEARCH } else { CapabilitySet::empty() };
    set_capabilities(None, CapabilitySets { effective, ..capabilities(None)? })?;
    Ok(())
}

fn become_account(account: &Account, kept: CapabilitySet) -> Result<Rights, Error> {
    let fail = |step: &'static str| {
        let user = account.name.clone();
        move |source: std::io::Error| Error::Step { user, step, source }
    };
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(Error::Threads { threads });
    }
    let now = capabilities(None).map_err(|e| fail("read capabilities")(e.into()))?;
    if !now.effective.contains(kept) {
        return Err(Error::Missing { missing: names(kept - now.effective).join(", ") });
    }
    clear_bounding_set().map_err(fail("clear the bounding set"))?;
    // The kernel would clear all capabilities as the user changes; and root would get them back by running a program.
    let bits = CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE;
    let locked = CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    let _ = clear_ambient_capability_set();
    if now.effective.contains(CapabilitySet::SETPCAP) {
        set_capabilities_secure_bits(bits | locked).map_err(|e| fail("lock the secure bits")(e.into()))?;
    } else {
        set_keep_capabilities(true).map_err(|e| fail("keep capabilities")(e.into()))?;
    }
    let name = CString::new(account.name.clone()).map_err(|e| fail("name")(e.into()))?;
    initgroups(&name, account.gid).map_err(|e| fail("set groups (needs CAP_SETGID)")(e.into()))?;
    setresgid(account.gid, account.gid, account.gid)
        .map_err(|e| fail("set group (needs CAP_SETGID)")(e.into()))?;
    setresuid(account.uid, account.uid, account.uid)
        .map_err(|e| fail("set user (needs CAP_SETUID)")(e.into()))?;
    restrict(kept, CapabilitySet::empty()).map_err(fail("set capabilities"))?;
    held().map_err(fail("read capabilities"))
}

/// Stays root but gives every capability away: what is left is what root owns, files among them. For
/// [`crate::resolver::Guard`], whose whole work is `/etc/resolv.conf` and one call to systemd-resolved.
///
/// # Errors
/// The kernel's.
pub fn drop_capabilities() -> std::io::Result<()> {
    clear_bounding_set()?;
    let _ = clear_ambient_capability_set();
    restrict(CapabilitySet::empty(), CapabilitySet::empty())
}

/// Stays root and keeps `CAP_NET_ADMIN` alone: for [`crate::radio::Guard`], which takes links down and up.
///
/// # Errors
/// The kernel's.
pub fn keep_net_admin() -> std::io::Result<()> {
    clear_bounding_set()?;
    let _ = clear_ambient_capability_set();
    restrict(CapabilitySet::NET_ADMIN, CapabilitySet::empty())
}

/// Gives up every capability of the calling thread, and of nothing else: for one that reads what strangers send.
///
/// # Errors
/// The kernel's.
pub(crate) fn renounce_in_thread() -> std::io::Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

/// The same, and programs that this process runs have it too: for [`crate::block::Guard`], which runs `nft`.
///
/// # Errors
/// The kernel's.
pub fn keep_net_admin_in_programs() -> std::io::Result<()> {
    // Root's programs get what is inheritable, the bounding set or not (capabilities(7)); but only what is in that set can become so.
    set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::NET_ADMIN, ..capabilities(None)? })?;
    clear_bounding_set()?;
    let _ = clear_ambient_capability_set();
    restrict(CapabilitySet::NET_ADMIN, CapabilitySet::NET_ADMIN)
}

fn restrict(kept: CapabilitySet, inheritable: CapabilitySet) -> std::io::Result<()> {
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    set_no_new_privs(true)?;
    Ok(())
}

fn clear_bounding_set() -> std::io::Result<()> {
    if !capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        // The kernel refuses to be asked about capabilities that it does not have: those are all the higher ones.
        match capability_is_in_bounding_set(one) {
            Ok(true) => remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            Err(_) => break,
        }
    }
    Ok(())
}
