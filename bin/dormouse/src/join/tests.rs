use super::*;
use crate::enrol::authority::Authority;
use crate::enrol::bundle::tests::{NOW, sample, sample_of};

/// As the command line has them.
pub(super) fn args(file: PathBuf, name: Option<&str>, renew: bool, at: PathBuf) -> JoinArgs {
    let (name, networkmanager_dir) = (name.map(str::to_owned), at.clone());
    JoinArgs {
        file,
        passphrase_file: None,
        name,
        renew,
        networkmanager: false,
        print: false,
        networkmanager_dir,
        config: at,
    }
}

struct Device(PathBuf);

impl Drop for Device {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Device {
    fn new(name: &str, text: Option<&str>) -> Self {
        let dir = std::env::temp_dir().join(format!("dormouse-join-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("etc")).unwrap();
        let dir = fs::canonicalize(dir).unwrap();
        if let Some(text) = text {
            fs::write(dir.join("etc/dormouse.toml"), text).unwrap();
        }
        Self(dir)
    }

    fn file(&self, content: &[u8]) {
        fs::write(self.0.join("joe.dormouse"), content).unwrap();
        self.mode(0o600);
    }

    fn mode(&self, mode: u32) {
        fs::set_permissions(self.0.join("joe.dormouse"), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn join(&self, name: Option<&str>, renew: bool) -> Result<Joined, Error> {
        let (file, config) = (self.0.join("joe.dormouse"), self.0.join("etc/dormouse.toml"));
        join(&args(file, name, renew, config), NOW)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.0.join("etc/dormouse.toml")).unwrap_or_default()
    }

    fn file_text(&self) -> String {
        fs::read_to_string(self.0.join("joe.dormouse")).unwrap()
    }

    /// What the files hold, in the order of [`Self::names`].
    fn contents(&self) -> Vec<Vec<u8>> {
        self.names().iter().map(|name| fs::read(self.0.join("etc").join(name)).unwrap()).collect()
    }

    fn names(&self) -> Vec<String> {
        let all = fs::read_dir(self.0.join("etc")).unwrap().flatten();
        let mut all: Vec<String> = all.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }
}

#[test]
fn a_file_becomes_a_connection_with_files_of_its_own() {
    let device = Device::new("new", None);
    device.file(sample("office", "joe.example.org").as_bytes());
    let joined = device.join(None, false).unwrap();
    assert_eq!((joined.name.as_str(), joined.id.as_str()), ("office", "joe.example.org"));
    assert_eq!(device.names(), ["dormouse.toml", "office.ca.pem", "office.key", "office.pem"]);
    let mode =
        |name: &str| fs::metadata(device.0.join("etc").join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("office.key"), mode("office.pem"), mode("dormouse.toml")), (0o600, 0o644, 0o644));
    let file = config::parse(&device.text()).unwrap();
    let c = &file.connection["office"];
    assert!(c.auto && c.gateway.as_deref() == Some("vpn.example.org"));
    let mut read = |path: &Path, _| fs::read(path).map_err(|e| e.to_string());
    config::resolve(&file, &mut read).unwrap();
    assert!(!joined.exposed, "for its owner alone");
    for mode in [0o640, 0o604] {
        device.mode(mode);
        assert!(device.join(Some(&format!("more-{mode:o}")), false).unwrap().exposed, "{mode:o}");
    }
}

#[test]
fn what_is_configured_stays_and_a_second_one_of_the_same_name_is_refused() {
    let old = "# mine\n[daemon]\nlog = \"warn\" # quiet";
    let device = Device::new("add", Some(old));
    fs::set_permissions(device.0.join("etc/dormouse.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    device.file(sample("office", "joe.example.org").as_bytes());
    device.join(None, false).unwrap();
    let text = device.text();
    assert!(text.starts_with(old) && text.contains("\n\n[connection.office]\n"), "{text}");
    assert_eq!(fs::metadata(device.0.join("etc/dormouse.toml")).unwrap().permissions().mode() & 0o777, 0o600);
    let error = device.join(None, false).unwrap_err();
    assert_eq!(error.message, "there is a connection office already");
    assert_eq!(device.text(), text);
    device.join(Some("second"), false).unwrap();
    assert_eq!(config::parse(&device.text()).unwrap().connection.len(), 2);
}

#[test]
fn a_renewal_replaces_certificate_and_key_of_the_same_connection_alone() {
    let device = Device::new("renew", None);
    let (authority, _) = Authority::new("A test", NOW).unwrap();
    let sample = |id: &str| sample_of(&authority, "office", id);
    device.file(sample("joe.example.org").as_bytes());
    device.join(None, false).unwrap();
    let (text, before) = (device.text(), device.contents());
    device.file(sample("joe.example.org").as_bytes());
    let renewed = device.join(None, true).unwrap();
    assert_eq!(renewed.files, ["office.key", "office.pem"].map(|name| device.0.join("etc").join(name)));
    assert_eq!(device.text(), text);
    let changed: Vec<bool> = before.iter().zip(device.contents()).map(|(a, b)| *a != b).collect();
    assert_eq!(changed, [false, false, true, true], "{:?}", device.names());
    // A connection of before says from now on where the next one is had.
    let section = "\n[connection.office.renewals]\nat = \"10.10.0.1:4510\"\n";
    fs::write(device.0.join("etc/dormouse.toml"), text.replace(section, "")).unwrap();
    device.file(sample("joe.example.org").as_bytes());
    device.join(None, true).unwrap();
    assert_eq!(device.text(), text);
    device.file(sample("ann.example.org").as_bytes());
    let error = device.join(None, true).unwrap_err();
    assert_eq!(
        error.message,
        "connection.office.local.id is \"joe.example.org\", the file has \"ann.example.org\""
    );
    assert!(
        device
            .join(Some("other"), true)
            .unwrap_err()
            .message
            .contains("there is no connection other to renew")
    );
    device.file(sample("joe.example.org").as_bytes());
    fs::write(device.0.join("etc/dormouse.toml"), text.replace("office.key", "elsewhere.key")).unwrap();
    assert!(
        device.join(None, true).unwrap_err().message.contains("has its certificate, key or ca elsewhere")
    );
    fs::write(device.0.join("etc/dormouse.toml"), text.replace("vpn.example.org", "vpn.example.com"))
        .unwrap();
    assert!(device.join(None, true).unwrap_err().message.starts_with("connection.office.gateway is"));
}

/// The same names under another key: its maker must not become an authority of this device.
#[test]
fn a_renewal_by_another_authority_is_refused_and_leaves_all_as_it_was() {
    let device = Device::new("forged", None);
    device.file(sample("office", "joe.example.org").as_bytes());
    device.join(None, false).unwrap();
    let before = device.contents();
    let (other, _) = Authority::new("A test", NOW).unwrap();
    let forged = sample_of(&other, "office", "joe.example.org");
    device.file(forged.as_bytes());
    let error = device.join(None, true).unwrap_err();
    let said = "connection.office.remote.ca does not vouch for the new certificate: ";
    assert!(error.message.starts_with(said), "{error}");
    assert_eq!((error.kind, device.contents()), (ErrorKind::Authentication, before.clone()));
    // Nor does it help to name the known authority in it.
    let forged = Bundle::read(&forged, "x").unwrap();
    let known = fs::read_to_string(device.0.join("etc/office.ca.pem")).unwrap();
    device.file(device.file_text().replace(&forged.ca, &known).as_bytes());
    assert!(device.join(None, true).unwrap_err().message.starts_with(said));
    assert_eq!(device.contents(), before);
    fs::remove_file(device.0.join("etc/office.ca.pem")).unwrap();
    assert!(device.join(None, true).unwrap_err().message.ends_with("office.ca.pem does not exist"));
}

#[test]
fn nothing_is_written_where_something_is_wrong() {
    let good = String::from_utf8(sample("office", "joe.example.org").as_bytes().to_vec()).unwrap();
    let other = String::from_utf8(sample("office", "joe.example.org").as_bytes().to_vec()).unwrap();
    let key = |text: &str| text[text.find("key = ").unwrap()..].to_owned();
    for (file, old, name, said) in [
        (good.clone(), "", Some("../x"), "is no name of a connection here"),
        (
            good.replace("name = \"office\"", "name = \"a/../b\""),
            "",
            None,
            "\"a/../b\" is no name of a connection here",
        ),
        (good.clone(), "[daemon\n", None, "dormouse.toml: "),
        (good.clone(), "connection = {}\n", None, "dormouse.toml: "),
        (
            good.replace("id = \"joe.example.org\"", "id = \"ann.example.org\""),
            "",
            None,
            "the daemon would not take it: connection.office.local.id",
        ),
        (good.replace(&key(&good), &key(&other)), "", None, "is not the key of the certificate"),
        (
            good.replace("version = 1", "version = 9"),
            "",
            None,
            "is of version 9, this dormouse reads version 1",
        ),
    ] {
        let device = Device::new("wrong", Some(old));
        device.file(file.as_bytes());
        let error = device.join(name, false).expect_err(said);
        assert!(error.message.contains(said), "{said}: {error}");
        assert!(!error.to_string().contains("MIG"), "{error}");
        assert_eq!((device.names(), device.text()), (vec!["dormouse.toml".to_owned()], old.to_owned()));
    }
    let device = Device::new("taken", None);
    let error = device.join(None, false).unwrap_err();
    assert!(error.message.ends_with("joe.dormouse does not exist"), "{error}");
    device.file(good.as_bytes());
    std::os::unix::fs::symlink("/etc/passwd", device.0.join("etc/office.pem")).unwrap();
    let error = device.join(None, false).unwrap_err();
    assert!(error.message.contains("is there already, and no connection says whose it is"), "{error}");
}
