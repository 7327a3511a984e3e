//! The kernel's switches for forwarding. Owns what they were before, so that each is put back, also after a guard that was killed: what is to
//! be undone stands in a file of root's first.
//!
//! IPv4: `ip_forward` is that of all interfaces. IPv6: `conf/all/forwarding`; a machine that forwards takes no route from router
//! advertisements unless `accept_ra` is 2, so an interface that took them is told to go on. With `ip_forward` the kernel also changes whether
//! redirects are accepted (`inet_forward_change`), which is put back too.

use crate::state;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const V4: &str = "net/ipv4/ip_forward";
const V6: &str = "net/ipv6/conf/all/forwarding";
/// The kernel sets it to 1 when `ip_forward` is switched off, and to 0 when it is switched on.
const REDIRECTS: &str = "net/ipv4/conf/all/accept_redirects";
/// This boot: after another one, switches are as the system sets them.
const BOOT: &str = "kernel/random/boot_id";

/// A switch, relative to `/proc/sys`, and what it was.
type Was = (String, String);

/// What is to be undone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Undo {
    boot: String,
    v4: Option<Vec<Was>>,
    v6: Option<Vec<Was>>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Switches {
    /// `/proc/sys`.
    root: PathBuf,
    undo: Undo,
    kept: PathBuf,
}

impl Switches {
    /// Takes over what an earlier run of this boot has left on, by what stands in `kept`.
    pub(super) fn new(root: PathBuf, kept: &Path) -> Self {
        let boot = fs::read_to_string(root.join(BOOT)).unwrap_or_default().trim().to_owned();
        let left = state::read_secret(kept, 0).ok();
        let left = left.and_then(|text| serde_json::from_slice::<Undo>(text.as_bytes()).ok());
        let undo = left.filter(|undo| undo.boot == boot).unwrap_or_default();
        Self { root, undo: Undo { boot, ..undo }, kept: kept.into() }
    }

    /// Switches on what is wanted and is off, and what this has switched on and is not wanted off again.
    ///
    /// # Errors
    /// In words, with the line that helps. What could be done is done.
    pub(super) fn set(&mut self, v4: bool, v6: bool) -> Result<(), String> {
        let was = self.undo.clone();
        let four = self.one(v4, true);
        let six = self.one(v6, false);
        if self.undo.v4.is_none() && self.undo.v6.is_none() {
            let _ = fs::remove_file(&self.kept);
        } else if self.undo != was {
            let _ = self.keep();
        }
        four.and(six)
    }

    fn one(&mut self, wanted: bool, v4: bool) -> Result<(), String> {
        let switch = if v4 { V4 } else { V6 };
        let has = if v4 { &self.undo.v4 } else { &self.undo.v6 };
        match (wanted, has) {
            (true, _) if self.read(switch).is_ok_and(|now| now != "0") => Ok(()),
            (true, _) => {
                if has.is_none() {
                    let undo = if v4 { self.before_v4() } else { self.before_v6() };
                    *(if v4 { &mut self.undo.v4 } else { &mut self.undo.v6 }) = Some(undo);
                }
                // First what undoes it is safe; where it cannot be, only a guard that is killed leaves something on.
                if let Err(why) = self.keep() {
                    tracing::warn!(%why, "what forwarding was before is not written down");
                }
                if !v4 {
                    self.go_on_with_advertisements();
                }
                self.write(switch, "1").map_err(|e| {
                    let key = switch.replace('/', ".");
                    format!("{key} cannot be set ({e}): set it to 1 in /etc/sysctl.d/60-dormouse.conf, then sysctl --system")
                })
            }
            (false, None) => Ok(()),
            (false, Some(_)) => {
                // Off already, by someone who wants it so.
                if self.read(switch).is_ok_and(|now| now != "0") {
                    self.write(switch, "0").map_err(|e| format!("{}: {e}", switch.replace('/', ".")))?;
                }
                // What could not be switched off is still to be undone.
                let undo = if v4 { self.undo.v4.take() } else { self.undo.v6.take() };
                for (key, was) in undo.unwrap_or_default() {
                    // Its interface may be gone.
                    let _ = self.write(&key, &was);
                }
                Ok(())
            }
        }
    }

    /// Interfaces that forwarded already, which switching all of them off would end; and whether redirects were accepted.
    fn before_v4(&self) -> Vec<Was> {
        let redirects = self.read(REDIRECTS).map(|was| (REDIRECTS.to_owned(), was));
        self.conf("ipv4", "forwarding", "1").into_iter().chain(redirects).collect()
    }

    fn before_v6(&self) -> Vec<Was> {
        let mut all = self.conf("ipv6", "forwarding", "1");
        let forwarding: Vec<String> =
            all.iter().map(|(key, _)| key.replace("/forwarding", "/accept_ra")).collect();
        let accepting = self.conf("ipv6", "accept_ra", "1");
        all.extend(accepting.into_iter().filter(|(key, _)| !forwarding.contains(key)));
        all
    }

    fn go_on_with_advertisements(&self) {
        for (key, _) in self.undo.v6.iter().flatten().filter(|(key, _)| key.ends_with("/accept_ra")) {
            let _ = self.write(key, "2");
        }
    }

    /// The switches `name` of interfaces, and of those to come, that have this value.
    fn conf(&self, family: &str, name: &str, value: &str) -> Vec<Was> {
        let place = format!("net/{family}/conf");
        let entries = fs::read_dir(self.root.join(&place)).into_iter().flatten().flatten();
        let keys = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let keys = keys.filter(|interface| interface != "all");
        let keys = keys.map(|interface| format!("{place}/{interface}/{name}"));
        let mut found: Vec<Was> = keys
            .filter(|key| self.read(key).is_ok_and(|now| now == value))
            .map(|key| (key, value.into()))
            .collect();
        found.sort();
        found
    }

    fn read(&self, key: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.root.join(key))?.trim().to_owned())
    }

    fn write(&self, key: &str, value: &str) -> io::Result<()> {
        fs::write(self.root.join(key), value)
    }

    /// Writes down what is to be undone.
    fn keep(&self) -> Result<(), String> {
        let text = serde_json::to_vec(&self.undo).map_err(|e| e.to_string())?;
        state::write_atomically(&self.kept, &text, 0o600).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine(PathBuf);

    impl Machine {
        /// `/proc/sys` with the switches that are said; the others of two interfaces are off.
        fn new(name: &str, said: &[(&str, &str)]) -> Self {
            let new =
                Self(std::env::temp_dir().join(format!("dormouse-switches-{name}-{}", std::process::id())));
            let _ = fs::remove_dir_all(&new.0);
            new.put(BOOT, "boot-1\n");
            new.put(V4, "0\n");
            for interface in ["all", "default", "eth0", "eth1"] {
                for key in ["net/ipv4/conf/X/forwarding", "net/ipv6/conf/X/forwarding"] {
                    new.put(&key.replace('X', interface), "0\n");
                }
                new.put(&format!("net/ipv6/conf/{interface}/accept_ra"), "1\n");
            }
            said.iter().for_each(|(key, value)| new.put(key, value));
            new
        }

        fn put(&self, key: &str, value: &str) {
            let path = self.0.join(key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }

        fn get(&self, key: &str) -> String {
            fs::read_to_string(self.0.join(key)).unwrap().trim().to_owned()
        }

        fn switches(&self) -> Switches {
            Switches::new(self.0.clone(), &self.0.join("kept"))
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const RA: &str = "net/ipv6/conf/eth0/accept_ra";

    #[test]
    fn what_was_off_is_off_again_and_routes_of_advertisements_stay() {
        let machine = Machine::new("off", &[("net/ipv6/conf/eth1/accept_ra", "0\n")]);
        let mut switches = machine.switches();
        switches.set(true, true).unwrap();
        assert_eq!((machine.get(V4), machine.get(V6), machine.get(RA)), ("1".into(), "1".into(), "2".into()));
        assert_eq!(machine.get("net/ipv6/conf/eth1/accept_ra"), "0", "it took none");
        switches.set(false, false).unwrap();
        assert_eq!((machine.get(V4), machine.get(V6), machine.get(RA)), ("0".into(), "0".into(), "1".into()));
        assert!(!machine.0.join("kept").exists());
    }

    #[test]
    fn redirects_are_refused_again_by_who_refused_them() {
        let machine = Machine::new("redirects", &[(REDIRECTS, "0\n")]);
        let mut switches = machine.switches();
        switches.set(true, false).unwrap();
        // As the kernel does when forwarding is switched off.
        machine.put(REDIRECTS, "1");
        switches.set(false, false).unwrap();
        assert_eq!((machine.get(V4), machine.get(REDIRECTS)), ("0".into(), "0".into()));
    }

    #[test]
    fn what_cannot_be_switched_off_is_still_to_be_undone() {
        let machine = Machine::new("stuck", &[]);
        let mut switches = machine.switches();
        switches.set(true, true).unwrap();
        let whole = machine.0.join(V6);
        // No file can be written there; it reads as on.
        switches.root = machine.0.join("other");
        let stuck = machine.0.join("other").join(V6);
        fs::create_dir_all(stuck.parent().unwrap()).unwrap();
        machine.put(&format!("other/{V4}"), "1\n");
        std::os::unix::fs::symlink("/proc/version", &stuck).unwrap();
        assert!(switches.set(true, false).unwrap_err().contains("net.ipv6.conf.all.forwarding"));
        assert!(machine.0.join("kept").exists() && whole.exists());
        switches.root = machine.0.clone();
        switches.set(false, false).unwrap();
        assert_eq!(
            (machine.get(V6), machine.get(RA), machine.0.join("kept").exists()),
            ("0".into(), "1".into(), false)
        );
    }

    #[test]
    fn what_was_on_stays_on() {
        let machine = Machine::new("on", &[(V4, "1\n"), (V6, "1\n")]);
        let mut switches = machine.switches();
        switches.set(true, true).unwrap();
        assert_eq!(machine.get(RA), "1", "nothing is touched");
        switches.set(false, false).unwrap();
        assert_eq!((machine.get(V4), machine.get(V6)), ("1".into(), "1".into()));
        // One interface alone forwarded: the kernel switches it off with the others.
        let machine = Machine::new("one", &[("net/ipv4/conf/eth1/forwarding", "1\n")]);
        let mut switches = machine.switches();
        switches.set(true, false).unwrap();
        machine.put("net/ipv4/conf/eth1/forwarding", "0");
        switches.set(false, false).unwrap();
        assert_eq!((machine.get("net/ipv4/conf/eth1/forwarding"), machine.get(V4)), ("1".into(), "0".into()));
    }

    #[test]
    fn what_a_killed_guard_has_left_on_is_switched_off_by_the_next_in_the_same_boot() {
        let machine = Machine::new("killed", &[]);
        machine.switches().set(true, true).unwrap();
        let mut next = machine.switches();
        next.set(true, true).unwrap();
        next.set(false, false).unwrap();
        assert_eq!((machine.get(V4), machine.get(V6), machine.get(RA)), ("0".into(), "0".into(), "1".into()));

        machine.switches().set(true, false).unwrap();
        machine.put(BOOT, "boot-2\n");
        machine.switches().set(false, false).unwrap();
        assert_eq!(machine.get(V4), "1", "of another boot: the system has set it since");
    }

    #[test]
    fn what_cannot_be_set_is_said_with_the_line_that_helps() {
        let machine = Machine::new("missing", &[]);
        fs::remove_file(machine.0.join(V6)).unwrap();
        fs::create_dir(machine.0.join(V6)).unwrap();
        let why = machine.switches().set(true, true).unwrap_err();
        assert!(
            why.contains("net.ipv6.conf.all.forwarding cannot be set") && why.contains("to 1 in"),
            "{why}"
        );
        assert_eq!(machine.get(V4), "1", "the other family is");
        // Nowhere to write down what was: it is done all the same.
        let machine = Machine::new("unkept", &[]);
        let mut switches = Switches::new(machine.0.clone(), &machine.0.join("missing/kept"));
        switches.set(true, true).unwrap();
        switches.set(false, false).unwrap();
        assert_eq!((machine.get(V4), machine.get(V6)), ("0".into(), "0".into()));
    }
}
