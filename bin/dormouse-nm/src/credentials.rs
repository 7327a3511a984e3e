//! The files that a connection of NetworkManager names. Owns the rule which of them are read, and copies them to where the daemon finds them.
//!
//! The plug-in is root, and any user of the desktop may make a connection of his own. So what a user's connection names must be what that user
//! can read himself: a key must be his, a certificate his or everyone's. Each file is opened once, and judged by what was opened.

use crate::config::{CA, CERTIFICATE, KEY, SECRET};
use crate::profile::{Method, Profile};
use anyhow::{Context, Result, bail};
use dormouse_crypto::cert::Certificate;
use nix::unistd::{Uid, User};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use zeroize::Zeroizing;

/// Longest file that is taken for a certificate or a key, in bytes.
const LONGEST: u64 = 1 << 20;

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Certificate,
    Key,
}

/// Reads what the profile names, for whom it belongs to, and writes it to `run`, which is there and only root can look into. Returns who we are by it.
///
/// # Errors
/// Naming the file, and why it is not read.
pub(crate) fn copy(profile: &Profile, password: Option<&str>, run: &Path) -> Result<String> {
    let owners = owners(profile)?;
    clear(run, &[]);
    if let Some(ca) = &profile.ca {
        write(run, CA, &read(ca, Kind::Certificate, &owners)?)?;
    }
    let id = match &profile.method {
        Method::Certificate { certificate, key, .. } => {
            let own = read(certificate, Kind::Certificate, &owners)?;
            let shown = certificate.display();
            let all = Certificate::from_file_content(&own).map_err(|e| anyhow::anyhow!("{shown}: {e}"))?;
            let first = all.first().with_context(|| format!("{shown}: there is no certificate in it"))?;
            // The subject comes first, and the alternative names are what gateways go by.
            let id = first.identities().last().map(ToString::to_string).unwrap_or_default();
            write(run, CERTIFICATE, &own)?;
            write(run, KEY, &read(key, Kind::Key, &owners)?)?;
            id
        }
        Method::User(user) => user.clone(),
        Method::Shared => String::new(),
    };
    if profile.needs_password() {
        write(run, SECRET, password.context("the password is missing")?.as_bytes())?;
    }
    if id.is_empty() && profile.local_id.is_none() {
        bail!("local-identity: who we are is missing");
    }
    Ok(id)
}

/// The users whom a connection belongs to; none: it is the machine's, and was made by an administrator.
fn owners(profile: &Profile) -> Result<Vec<Uid>> {
    let find = |name: &String| {
        let user = User::from_name(name).with_context(|| format!("user {name}"))?;
        user.map(|user| user.uid).with_context(|| format!("connection.permissions: there is no user {name}"))
    };
    profile.owners.iter().map(find).collect()
}

fn read(path: &Path, kind: Kind, owners: &[Uid]) -> Result<Zeroizing<Vec<u8>>> {
    let shown = path.display();
    // A pipe is not waited for.
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    let file: File =
        OpenOptions::new().read(true).custom_flags(flags).open(path).with_context(|| shown.to_string())?;
    let meta = file.metadata().with_context(|| shown.to_string())?;
    let (his, everyones) = (owners.iter().any(|uid| uid.as_raw() == meta.uid()), meta.mode() & 0o004 != 0);
    if !(owners.is_empty() || his || kind == Kind::Certificate && everyones) {
        bail!("{shown}: does not belong to the user whose connection it is");
    }
    if !meta.is_file() || meta.len() > LONGEST {
        bail!("{shown}: is no file, or longer than {LONGEST} bytes");
    }
    let mut content = Zeroizing::new(Vec::new());
    file.take(LONGEST).read_to_end(&mut content).with_context(|| shown.to_string())?;
    Ok(content)
}

/// Removes the files of a connection, but for those named.
pub(crate) fn clear(run: &Path, but: &[&str]) {
    for entry in std::fs::read_dir(run).into_iter().flatten().flatten() {
        if !but.iter().any(|name| entry.file_name() == *name) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Writes a file for root alone.
///
/// # Errors
/// Naming the file, which must not be there.
pub(crate) fn write(run: &Path, name: &str, content: &[u8]) -> Result<()> {
    let path = run.join(name);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(content)).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::settings;
    use std::fs;
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    struct Place(std::path::PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn place(name: &str) -> Place {
        let place = std::env::temp_dir().join(format!("dormouse-nm-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        Place(place)
    }

    #[test]
    fn a_users_connection_has_root_read_nothing_that_is_not_his() {
        let place = place("owner");
        let file = place.0.join("file");
        fs::write(&file, "content").unwrap();
        let (mine, other) = (Uid::current(), Uid::from_raw(Uid::current().as_raw() + 1));
        for (mode, kind, owners, taken) in [
            (0o600, Kind::Key, vec![], true),
            (0o600, Kind::Key, vec![mine], true),
            (0o644, Kind::Key, vec![other], false),
            (0o600, Kind::Certificate, vec![other], false),
            (0o644, Kind::Certificate, vec![other], true),
            (0o600, Kind::Certificate, vec![other, mine], true),
        ] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&file, kind, &owners).is_ok(), taken, "{mode:o} {owners:?}");
        }
        assert!(read(&place.0, Kind::Key, &[]).is_err(), "a directory");
        let problem = read(&place.0.join("none"), Kind::Key, &[]).unwrap_err();
        assert!(format!("{problem:#}").contains("none"));
    }

    #[test]
    fn what_is_copied_only_its_owner_can_read_and_is_renewed_as_a_whole() {
        let place = place("copy");
        let run = place.0.join("run");
        fs::DirBuilder::new().mode(0o700).create(&run).unwrap();
        let data = [("address", "192.0.2.1"), ("method", "psk"), ("local-identity", "me")];
        let profile = Profile::read(&settings(&data, &[])).unwrap();
        for password in ["first", "second"] {
            copy(&profile, Some(password), &run).unwrap();
            assert_eq!(fs::read_to_string(run.join(SECRET)).unwrap(), password);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&run), mode(&run.join(SECRET))), (0o700, 0o600));
        assert!(copy(&profile, None, &run).unwrap_err().to_string().contains("password is missing"));
        let nameless = Profile { local_id: None, ..profile };
        assert!(copy(&nameless, Some("x"), &run).unwrap_err().to_string().contains("local-identity"));
    }
}
