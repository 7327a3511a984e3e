//! Frequency governors: set for a while, and put back at the end, also after an error or a panic. Owns the files under `devices/system/cpu` while it
//! lives; must never leave another governor behind than it found.
//!
//! Three things put them back: [`Governors`] when it is dropped, also by a panic; the same after a signal, because the
//! campaign ends in good order then; and, should the process be killed, the guard file, from which the next campaign restores
//! before it does anything else ([`Governors::recover`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Where the system keeps them.
const SYS: &str = "/sys";
/// What they were, while they are something else.
const GUARD: &str = "/run/dormouse-governors";

/// The governors of this machine, once what a killed campaign left behind is put back.
///
/// # Errors
/// If there are none, or they cannot be put back.
pub(crate) fn here() -> Result<Governors> {
    recover()?;
    Governors::find(Path::new(SYS), Path::new(GUARD))
}

/// Puts back what a killed campaign left behind.
///
/// # Errors
/// As [`Governors::recover`].
pub(crate) fn recover() -> Result<Vec<PathBuf>> {
    Governors::recover(Path::new(SYS), Path::new(GUARD))
}

/// The governors of all processors.
#[derive(Debug)]
pub(crate) struct Governors {
    guard: PathBuf,
    /// File and former content.
    found: Vec<(PathBuf, String)>,
    available: Vec<String>,
    changed: bool,
}

impl Governors {
    /// Looks at them under `sys`; changes nothing.
    ///
    /// # Errors
    /// If the machine has none.
    pub(crate) fn find(sys: &Path, guard: &Path) -> Result<Self> {
        let cpus = sys.join("devices/system/cpu");
        let mut found = Vec::new();
        for entry in fs::read_dir(&cpus).with_context(|| cpus.display().to_string())? {
            let file = entry?.path().join("cpufreq/scaling_governor");
            if let Ok(text) = fs::read_to_string(&file) {
                found.push((file, text.trim().to_owned()));
            }
        }
        found.sort();
        let Some((first, _)) = found.first() else { bail!("this machine has no frequency governors") };
        let available = fs::read_to_string(first.with_file_name("scaling_available_governors"));
        let available = available.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        Ok(Self { guard: guard.to_owned(), found, available, changed: false })
    }

    /// Whether all of `wanted` can be set, as far as the machine says.
    ///
    /// # Errors
    /// Names the first that cannot, and those that can.
    pub(crate) fn check(&self, wanted: &[String]) -> Result<()> {
        match wanted.iter().find(|w| !self.available.contains(w)) {
            Some(unknown) => {
                bail!("no governor is called \"{unknown}\" here; there are {}", self.available.join(", "))
            }
            None => Ok(()),
        }
    }

    /// Sets all processors to `name`.
    ///
    /// # Errors
    /// If one of them refuses; then all are as they were found.
    pub(crate) fn set(&mut self, name: &str) -> Result<()> {
        if !self.changed {
            self.write_guard().with_context(|| format!("{}", self.guard.display()))?;
            self.changed = true;
        }
        for (file, _) in &self.found {
            if let Err(error) = fs::write(file, name) {
                let what = format!("setting governor \"{name}\" in {}", file.display());
                let _ = self.restore();
                return Err(anyhow::Error::from(error).context(what));
            }
        }
        Ok(())
    }

    /// Puts them back.
    ///
    /// # Errors
    /// Names those that could not be; the guard file stays for the next campaign then.
    pub(crate) fn restore(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let failed = self.found.iter().filter(|(file, before)| fs::write(file, before).is_err());
        let failed: Vec<String> =
            failed.map(|(file, before)| format!("{} is not {before} again", file.display())).collect();
        ensure!(failed.is_empty(), "{}", failed.join(", "));
        let _ = fs::remove_file(&self.guard);
        Ok(())
    }

    fn write_guard(&self) -> io::Result<()> {
        let text: String =
            self.found.iter().map(|(file, before)| format!("{}\t{before}\n", file.display())).collect();
        let temporary = self.guard.with_extension("new");
        fs::write(&temporary, text)?;
        fs::rename(&temporary, &self.guard)
    }

    /// Puts back what a killed campaign left behind; returns what it put back. Only files under `sys` are touched, also if
    /// the guard file names others.
    ///
    /// # Errors
    /// If there is a guard file that cannot be read, or a governor that cannot be set.
    pub(crate) fn recover(sys: &Path, guard: &Path) -> Result<Vec<PathBuf>> {
        let text = match fs::read_to_string(guard) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).with_context(|| guard.display().to_string()),
        };
        let cpus = sys.join("devices/system/cpu");
        let mut done = Vec::new();
        for (file, before) in text.lines().filter_map(|line| line.split_once('\t')) {
            let file = PathBuf::from(file);
            let ours = file.starts_with(&cpus)
                && file.ends_with("cpufreq/scaling_governor")
                && !file.components().any(|c| c.as_os_str() == "..");
            if ours {
                fs::write(&file, before).with_context(|| format!("putting {} back", file.display()))?;
                done.push(file);
            }
        }
        fs::remove_file(guard).with_context(|| guard.display().to_string())?;
        Ok(done)
    }
}

impl Drop for Governors {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            eprintln!("warning: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str, cpus: usize) -> Self {
            let root = std::env::temp_dir().join(format!("dormouse-governor-{name}-{}", std::process::id()));
            for n in 0..cpus {
                let dir = root.join(format!("devices/system/cpu/cpu{n}/cpufreq"));
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("scaling_governor"), ["ondemand\n", "powersave\n"][n % 2]).unwrap();
                fs::write(dir.join("scaling_available_governors"), "ondemand powersave performance\n")
                    .unwrap();
            }
            fs::create_dir_all(root.join("devices/system/cpu/cpuidle")).unwrap();
            Self(root)
        }

        fn guard(&self) -> PathBuf {
            self.0.join("guard")
        }

        fn file(&self, cpu: usize) -> PathBuf {
            self.0.join(format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))
        }

        fn now(&self) -> Vec<String> {
            [0, 1].map(|n| fs::read_to_string(self.file(n)).unwrap().trim().to_owned()).to_vec()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_processor_gets_its_own_governor_back() {
        let fake = Fake::new("back", 2);
        let mut governors = Governors::find(&fake.0, &fake.guard()).unwrap();
        governors.set("performance").unwrap();
        assert_eq!(fake.now(), ["performance", "performance"]);
        assert!(fake.guard().exists());
        drop(governors);
        assert_eq!(fake.now(), ["ondemand", "powersave"]);
        assert!(!fake.guard().exists());
    }

    #[test]
    fn a_panic_puts_them_back() {
        let fake = Fake::new("panic", 2);
        let result = std::panic::catch_unwind(|| {
            let mut governors = Governors::find(&fake.0, &fake.guard()).unwrap();
            governors.set("performance").unwrap();
            panic!("in the middle of a campaign");
        });
        assert!(result.is_err());
        assert_eq!(fake.now(), ["ondemand", "powersave"]);
    }

    #[test]
    fn after_a_kill_the_next_campaign_puts_them_back() {
        let fake = Fake::new("kill", 2);
        let mut governors = Governors::find(&fake.0, &fake.guard()).unwrap();
        governors.set("performance").unwrap();
        std::mem::forget(governors);
        assert_eq!(fake.now(), ["performance", "performance"]);
        assert_eq!(Governors::recover(&fake.0, &fake.guard()).unwrap(), [fake.file(0), fake.file(1)]);
        assert_eq!(fake.now(), ["ondemand", "powersave"]);
        assert!(Governors::recover(&fake.0, &fake.guard()).unwrap().is_empty(), "once");
    }

    #[test]
    fn a_guard_file_cannot_make_us_write_elsewhere() {
        let fake = Fake::new("hostile", 1);
        let victim = fake.0.join("victim");
        fs::write(&victim, "untouched").unwrap();
        let beside = fake.0.join("devices/system/cpu/../../../victim/cpufreq/scaling_governor");
        let text = format!("{}\tperformance\n{}\tperformance\nrubbish\n", victim.display(), beside.display());
        fs::write(fake.guard(), text).unwrap();
        assert!(Governors::recover(&fake.0, &fake.guard()).unwrap().is_empty());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    }

    #[test]
    fn what_cannot_be_set_is_refused_and_changes_nothing() {
        let fake = Fake::new("refused", 2);
        let mut governors = Governors::find(&fake.0, &fake.guard()).unwrap();
        let error = governors.check(&["turbo".into()]).unwrap_err().to_string();
        assert_eq!(error, "no governor is called \"turbo\" here; there are ondemand, powersave, performance");
        // A processor that refuses in the middle: its file has become a directory.
        fs::remove_file(fake.file(1)).unwrap();
        fs::create_dir(fake.file(1)).unwrap();
        let error = format!("{:#}", governors.set("performance").unwrap_err());
        assert!(error.starts_with("setting governor \"performance\" in "), "{error}");
        assert_eq!(fs::read_to_string(fake.file(0)).unwrap(), "ondemand", "put back at once");
        let none = Governors::find(&fake.0.join("nothing"), &fake.guard());
        assert!(none.is_err());
    }
}
