use super::*;
use crate::enrol::authority::{Authority, Holder, Issued};
use crate::enrol::bundle::Given;
use crate::enrol::bundle::tests::NOW;
use crate::enrol::swanctl;
use crate::user::exported;
use dormouse_crypto::sign::{NewKey, SigningKey};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// A directory, an authority and its gateway.
struct World {
    dir: PathBuf,
    authority: Authority,
    gateway: Issued,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn parties(remote: &[&str]) -> Parties {
    Parties {
        name: "vpn".into(),
        gateway: "vpn.example.org".into(),
        gateway_id: "vpn.example.org".into(),
        id: "joe.vpn.example.org".into(),
        remote: remote.iter().map(|net| net.parse().unwrap()).collect(),
        ike_proposals: Vec::new(),
        esp_proposals: Vec::new(),
        renewals: None,
    }
}

impl World {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("dormouse-foreign-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let (authority, _) = Authority::new("A test", NOW).unwrap();
        let id = "vpn.example.org".parse().unwrap();
        let gateway = authority.issue(Holder::Gateway, NewKey::EcdsaP256, &id, NOW, 10).unwrap();
        fs::write(dir.join("passphrase"), "the passphrase\nmore").unwrap();
        fs::write(dir.join("password"), "secret-word\n").unwrap();
        Self { dir, authority, gateway }
    }

    fn device(&self) -> Issued {
        let id = "joe.vpn.example.org".parse().unwrap();
        self.authority.issue(Holder::Device, NewKey::EcdsaP256, &id, NOW, 10).unwrap()
    }

    /// What a client gets, written to a directory; the file that is joined by.
    fn export(&self, form: &str, parties: &Parties, given: Given<'_>, sign: bool) -> PathBuf {
        let key = SigningKey::from_pem(self.gateway.key.as_bytes()).unwrap();
        let (ca, own) = (self.authority.pem(), &self.gateway.certificate);
        let files = exported(form, "joe", parties, ca, given, own, sign.then_some(&key));
        let place = self.dir.join(form);
        let _ = fs::remove_dir_all(&place);
        for (name, content) in &files {
            let path = if name.is_empty() { place.join("joe") } else { place.join(name) };
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content.as_bytes()).unwrap();
        }
        match form {
            "swanctl" => place.join("conf.d/joe.conf"),
            "networkmanager" => place.join("joe.nmconnection"),
            _ => place.join("joe"),
        }
    }

    fn read(&self, path: &Path, secret: &str) -> Result<Profile, Error> {
        let content = Secret::from(fs::read(path).unwrap());
        let source = Source::File(self.dir.join(secret));
        if path.ends_with("conf.d/joe.conf") {
            let text = str::from_utf8(content.as_bytes()).unwrap();
            return swanctl::connection(path, text, None).map(|bundle| Profile { bundle, signer: None });
        }
        profile(path, &content, &source).map(|found| found.expect("known by its content"))
    }
}

const ALL: [&str; 4] = ["swanctl", "sswan", "mobileconfig", "networkmanager"];

#[test]
fn what_is_made_for_other_clients_is_joined_with_by_certificate_and_by_password() {
    let world = World::new("round");
    let split = parties(&["10.20.0.0/16"]);
    for form in ALL {
        let issued = world.device();
        let given = Given::Certificate { certificate: &issued.pem, key: &issued.key };
        let found = world.read(&world.export(form, &split, given, false), "passphrase").unwrap();
        let bundle = &found.bundle;
        let ends =
            (bundle.gateway.as_str(), bundle.gateway_id.as_str(), bundle.id.as_str(), bundle.name.as_str());
        assert_eq!(ends, ("vpn.example.org", "vpn.example.org", "joe.vpn.example.org", "vpn"), "{form}");
        let Proof::Certificate { key, .. } = &bundle.proof else { panic!("{form}: a certificate") };
        assert_eq!(key.0.as_bytes(), issued.key.as_bytes(), "{form}");
        assert_eq!(bundle.certificate().unwrap().unwrap(), issued.certificate, "{form}");
        let ca = Certificate::from_file_content(bundle.ca.as_bytes()).unwrap();
        assert_eq!(ca, [Certificate::from_pem(world.authority.pem().as_bytes()).unwrap()], "{form}");
        // Two of them leave it to the gateway.
        let carried: Vec<String> = bundle.remote.iter().map(ToString::to_string).collect();
        let said = matches!(form, "swanctl" | "sswan");
        assert_eq!(carried, if said { vec!["10.20.0.0/16"] } else { vec!["0.0.0.0/0", "::/0"] }, "{form}");

        let given = Given::Password { user: "joe.vpn.example.org", password: "secret-word" };
        let found = world.read(&world.export(form, &split, given, false), "password").unwrap();
        let Proof::Password { user, password } = &found.bundle.proof else { panic!("{form}: a password") };
        assert_eq!((user.as_str(), password.0.as_str()), ("joe.vpn.example.org", "secret-word"), "{form}");
        assert_eq!(found.bundle.id, "joe.vpn.example.org", "{form}");
    }
}

#[test]
fn a_signed_profile_is_opened_if_its_signature_is_right_and_the_signer_is_named() {
    let world = World::new("signed");
    let issued = world.device();
    let given = Given::Certificate { certificate: &issued.pem, key: &issued.key };
    let path = world.export("mobileconfig", &parties(&["0.0.0.0/0"]), given, true);
    let found = world.read(&path, "passphrase").unwrap();
    assert_eq!(found.signer.as_deref(), Some("CN=vpn.example.org"));
    let good = fs::read(&path).unwrap();
    let at = good.windows(15).position(|w| w == b"vpn.example.org").unwrap();
    let mut forged = good.clone();
    forged[at] = b'x';
    fs::write(&path, forged).unwrap();
    let error = world.read(&path, "passphrase").unwrap_err();
    assert!(error.message.contains("its signature is wrong"), "{error}");
}

#[test]
fn a_wrong_passphrase_is_said_and_no_secret_is() {
    let world = World::new("wrong");
    let issued = world.device();
    let given = Given::Certificate { certificate: &issued.pem, key: &issued.key };
    for form in ["sswan", "mobileconfig"] {
        let path = world.export(form, &parties(&["0.0.0.0/0"]), given, false);
        let error = world.read(&path, "password").unwrap_err();
        assert!(error.message.contains("the passphrase is another one"), "{form}: {error}");
        assert!(!error.to_string().contains("secret-word"), "{error}");
    }
}

/// The owner of a directory must not have root read a file of another for him.
#[test]
fn networkmanager_names_other_files_only_if_the_connection_is_roots() {
    let world = World::new("nm");
    let issued = world.device();
    let given = Given::Certificate { certificate: &issued.pem, key: &issued.key };
    let path = world.export("networkmanager", &parties(&["0.0.0.0/0"]), given, false);
    let away = world.dir.join("away");
    fs::create_dir_all(&away).unwrap();
    for name in ["joe.key", "joe.pem", "joe-ca.pem"] {
        fs::rename(path.with_file_name(name), away.join(name)).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("/etc/NetworkManager/certs", &away.display().to_string())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let error = world.read(&path, "passphrase").unwrap_err();
    assert!(error.message.contains("joe-ca.pem does not exist"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    use std::os::unix::fs::MetadataExt as _;
    let by_root = fs::metadata(&path).unwrap().uid() == 0;
    assert_eq!(world.read(&path, "passphrase").is_ok(), by_root);
    // A link beside it is no file beside it.
    std::os::unix::fs::symlink(away.join("joe.key"), path.with_file_name("joe.key")).unwrap();
    assert!(world.read(&path, "passphrase").is_err());
}

/// NetworkManager writes some characters with a `\`: such a password is not the one that the file seems to have.
#[test]
fn a_password_of_networkmanager_with_a_backslash_comes_from_a_file_or_not_at_all() {
    let world = World::new("nm-password");
    let given = Given::Password { user: "joe.vpn.example.org", password: "secret-word" };
    let path = world.export("networkmanager", &parties(&["0.0.0.0/0"]), given, false);
    let text = fs::read_to_string(&path).unwrap();
    let read = |password: &str, source: &Source| {
        let content = format!("{text}\n[vpn-secrets]\npassword={password}\n");
        fs::write(&path, &content).unwrap();
        profile(&path, &Secret::from(content.as_bytes()), source).map(|found| found.unwrap().bundle.proof)
    };
    let error = read("a\\\\b", &Source::Terminal).unwrap_err();
    assert!(error.message.ends_with("joe.nmconnection: a password with \\ is not taken over"), "{error}");
    assert!(error.change.unwrap().starts_with("--passphrase-file"));
    for (written, source, wanted) in [
        ("a\\\\b", Source::File(world.dir.join("password")), "secret-word"),
        ("a#}b", Source::Terminal, "a#}b"),
    ] {
        let Proof::Password { password, .. } = read(written, &source).unwrap() else { panic!("a password") };
        assert_eq!(password.0, wanted);
    }
}

#[test]
fn each_thing_that_is_not_taken_over_is_said() {
    let world = World::new("said");
    let read = |text: &str| {
        let path = world.dir.join("x");
        fs::write(&path, text).unwrap();
        world.read(&path, "password").unwrap_err()
    };
    let vpn = |more: &str| {
        format!(
            "<plist><dict><key>PayloadContent</key><array><dict><key>PayloadType</key><string>com.apple.vpn.managed</string>\
             <key>VPNType</key><string>IKEv2</string><key>IKEv2</key><dict>{more}</dict></dict></array></dict></plist>"
        )
    };
    for (text, said) in [
        ("{".to_owned(), "no profile of strongSwan's app: line 1"),
        (r#"{"type":"ikev2-eap-tls","remote":{"addr":"a"}}"#.into(), "only ikev2-cert and ikev2-eap"),
        (r#"{"type":"ikev2-cert","remote":{"addr":"a"}}"#.into(), "local.p12 is missing"),
        (
            r#"{"type":"ikev2-cert","remote":{"addr":"a"},"local":{"p12":"AAAA"}}"#.into(),
            "its key: no PKCS #12",
        ),
        (
            r#"{"type":"ikev2-eap","remote":{"addr":"a"},"local":{"eap_id":"joe"}}"#.into(),
            "names no authority",
        ),
        (
            r#"{"type":"ikev2-eap","remote":{"addr":"a;b"},"local":{"eap_id":"j"}}"#.into(),
            "neither a host name",
        ),
        ("<plist><dict/></plist>".into(), "PayloadContent is missing"),
        ("<plist><dict><key>PayloadContent</key><array/></dict></plist>".into(), "no IKEv2 connection"),
        (
            vpn("<key>AuthenticationMethod</key><string>SharedSecret</string>"),
            "AuthenticationMethod \"SharedSecret\"",
        ),
        (
            vpn("<key>AuthenticationMethod</key><string>Certificate</string>"),
            "PayloadCertificateUUID is missing",
        ),
        (
            vpn("<key>ExtendedAuthEnabled</key><true/><key>PayloadCertificateUUID</key><string>a</string>"),
            "EAP-TLS) is not taken over",
        ),
        (
            "[vpn]\nservice-type=org.freedesktop.NetworkManager.openvpn\n".into(),
            "service-type \"org.freedesk",
        ),
        ("[vpn]\nservice-type=org.freedesktop.NetworkManager.strongswan\n".into(), "address is missing"),
        ("bplist00".into(), "binary form"),
    ] {
        let error = read(&text);
        assert!(error.message.contains(said), "{said}: {error}");
        let graphic = error.to_string().chars().all(|c| !c.is_control() || c == '\n');
        assert!(graphic, "nothing that a terminal obeys: {error}");
    }
}

/// Profiles with a byte changed or cut off anywhere are read or refused, and end nothing.
#[test]
fn damaged_profiles_end_nothing() {
    let world = World::new("damaged");
    let given = Given::Password { user: "joe.vpn.example.org", password: "secret-word" };
    for form in ALL {
        let path = world.export(form, &parties(&["0.0.0.0/0"]), given, form == "mobileconfig");
        let good = fs::read(&path).unwrap();
        let bad = path.with_file_name(if form == "swanctl" { "joe.conf" } else { "bad" });
        for at in (0..good.len()).step_by(if form == "mobileconfig" { 29 } else { 3 }) {
            for byte in [0, b'"', b'<', b'=', b'\n', 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                if str::from_utf8(&bytes).is_err() && form == "swanctl" {
                    continue;
                }
                fs::write(&bad, bytes).unwrap();
                let content = Secret::from(fs::read(&bad).unwrap());
                let source = Source::File(world.dir.join("password"));
                let _ = profile(&bad, &content, &source);
            }
            fs::write(&bad, &good[..at]).unwrap();
            let content = Secret::from(good[..at].to_vec());
            let _ = profile(&bad, &content, &Source::File(world.dir.join("password")));
        }
    }
}
