use super::*;
use crate::enrol::authority::{Authority, Holder, Issued};
use crate::enrol::plist::Plist;
use dormouse_sansio::UnixTime;
use serde_json::Value;

const NOW: UnixTime = UnixTime(1_800_000_000);

struct World {
    ca: Authority,
    gateway: Issued,
    device: Issued,
}

fn parties(remote: &[&str], ike: &[&str]) -> Parties {
    Parties {
        name: "vpn".into(),
        gateway: "vpn.example.org".into(),
        gateway_id: "vpn.example.org".into(),
        id: "joe.vpn.example.org".into(),
        remote: remote.iter().map(|net| net.parse().unwrap()).collect(),
        ike_proposals: ike.iter().map(|one| (*one).to_owned()).collect(),
        esp_proposals: Vec::new(),
        renewals: None,
    }
}

impl World {
    fn new(gateway: NewKey) -> Self {
        let (ca, _) = Authority::new("A test", NOW).unwrap();
        let issue = |holder, kind, id: &str| ca.issue(holder, kind, &id.parse().unwrap(), NOW, 10).unwrap();
        let gateway = issue(Holder::Gateway, gateway, "vpn.example.org");
        let device = issue(Holder::Device, NewKey::EcdsaP256, "joe.vpn.example.org");
        Self { gateway, device, ca }
    }

    fn files(&self, form: Form, parties: &Parties, password: bool) -> Result<Vec<(String, String)>, Error> {
        let given = if password {
            Given::Password { user: &parties.id, password: "abcde-fghij" }
        } else {
            Given::Certificate { certificate: &self.device.pem, key: &self.device.key }
        };
        let files = form.files(&Content {
            user: "joe",
            parties,
            ca: self.ca.pem(),
            given,
            gateway: Some(&self.gateway.certificate),
            passphrase: "the passphrase",
            sign: None,
            on_demand: true,
        })?;
        let text = |content: Secret| String::from_utf8_lossy(content.as_bytes()).into_owned();
        Ok(files.into_iter().map(|(name, content)| (name, text(content))).collect())
    }

    fn file(&self, form: Form, parties: &Parties, password: bool, end: &str) -> String {
        let files = self.files(form, parties, password).unwrap();
        files.into_iter().find(|(name, _)| name.ends_with(end)).unwrap().1
    }
}

#[test]
fn a_connection_for_strongswan_names_its_files_and_families() {
    let (world, parties) =
        (World::new(NewKey::EcdsaP256), parties(&["10.20.0.0/16"], &["aes128-sha256-ecp256"]));
    let files = world.files(Form::Swanctl, &parties, false).unwrap();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["conf.d/joe.conf", "x509ca/joe-ca.pem", "x509/joe.pem", "private/joe.key"]);
    for line in [
        "vips = 0.0.0.0\n",
        "remote_ts = 10.20.0.0/16\n",
        "certs = joe.pem\n",
        "cacerts = joe-ca.pem\n",
        "proposals = aes128-sha256-ecp256\n",
        "id = joe.vpn.example.org\n",
    ] {
        assert!(files[0].1.contains(line), "{line}: {}", files[0].1);
    }
    let text = world.file(Form::Swanctl, &parties, true, ".conf");
    for line in ["auth = eap-mschapv2\n", "eap_id = joe.vpn.example.org\n", "secret = \"abcde-fghij\"\n"] {
        assert!(text.contains(line) && !text.contains("certs = joe.pem"), "{line}: {text}");
    }
}

#[test]
fn a_profile_for_android_has_what_its_makers_name() {
    let world = World::new(NewKey::EcdsaP256);
    let read = |parties: &Parties, password| -> Value {
        serde_json::from_str(&world.file(Form::Sswan, parties, password, "")).unwrap()
    };
    let all = read(&parties(&["0.0.0.0/0", "::/0"], &[]), false);
    assert_eq!((&all["type"], &all["local"]["id"]), (&"ikev2-cert".into(), &"joe.vpn.example.org".into()));
    assert_eq!(all["split-tunneling"]["block-ipv6"], true, "nothing leaves in clear");
    assert!(all.get("ike-proposal").is_none() && all["uuid"].as_str().unwrap().len() == 36);
    let proposals = ["aes256gcm16-prfsha384-x25519-ke1_mlkem768", "aes256-sha256-ecp256"];
    let split = read(&parties(&["10.20.0.0/16"], &proposals), true);
    assert_eq!(
        (&split["type"], &split["local"]["eap_id"]),
        (&"ikev2-eap".into(), &"joe.vpn.example.org".into())
    );
    assert_eq!(split["split-tunneling"]["subnets"][0], "10.20.0.0/16");
    assert_eq!(split["ike-proposal"], "aes256-sha256-ecp256", "the first without what the app does not know");
    assert_eq!(split["uuid"], all["uuid"], "one that is renewed takes the place of the former");
    assert!(!split.to_string().contains("abcde"), "the app asks for the password");
    assert_eq!(Form::Sswan.key(Some(KeyKind::EcdsaP256)), NewKey::Rsa3072);
}

#[test]
fn a_profile_for_apples_devices_names_both_ends_one_choice_and_the_kind_of_keys() {
    for (kind, wanted) in [(NewKey::EcdsaP256, "ECDSA256"), (NewKey::Rsa2048, "RSA")] {
        let world = World::new(kind);
        let of = |password| {
            let text = world.file(Form::Mobileconfig, &parties(&["0.0.0.0/0"], &[]), password, "");
            assert!(!text.contains("abcde") && !text.contains("passphrase"), "neither is in it");
            Plist::read(&text).unwrap()
        };
        let profile = of(false);
        let payload = |profile: &Plist, kind: &str| {
            let Some(Plist::Array(all)) = profile.get("PayloadContent") else { panic!("payloads") };
            all.iter().find(|p| p.str("PayloadType") == Some(kind)).cloned()
        };
        let vpn = payload(&profile, "com.apple.vpn.managed").unwrap();
        let ike = vpn.get("IKEv2").unwrap();
        assert_eq!((vpn.str("VPNType"), ike.str("CertificateType")), (Some("IKEv2"), Some(wanted)));
        assert_eq!(ike.str("ServerCertificateIssuerCommonName"), Some("A test"));
        let identity = payload(&profile, "com.apple.security.pkcs12").unwrap();
        assert_eq!(ike.str("PayloadCertificateUUID"), identity.str("PayloadUUID"));
        assert!(payload(&profile, "com.apple.security.root").is_some() && ike.is_set("OnDemandEnabled"));
        let parameters = ike.get("IKESecurityAssociationParameters").unwrap();
        let named = (parameters.str("EncryptionAlgorithm"), parameters.get("DiffieHellmanGroup"));
        assert_eq!(named, (Some("AES-256-GCM"), Some(&Plist::Number(19))));
        let profile = of(true);
        let vpn = payload(&profile, "com.apple.vpn.managed").unwrap();
        let ike = vpn.get("IKEv2").unwrap();
        assert_eq!(
            (ike.str("AuthenticationMethod"), ike.str("AuthName")),
            (Some("None"), Some("joe.vpn.example.org"))
        );
        assert!(
            ike.is_set("ExtendedAuthEnabled") && payload(&profile, "com.apple.security.pkcs12").is_none()
        );
    }
}

#[test]
fn a_script_for_windows_names_what_the_gateway_takes_and_quotes_what_it_is_told() {
    let world = World::new(NewKey::EcdsaP256);
    let files = world.files(Form::Windows, &parties(&["10.20.0.0/16"], &[]), false).unwrap();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["joe-ca.cer", "joe.p12", "joe.ps1"]);
    let text = &files[2].1;
    for part in [
        "-ServerAddress 'vpn.example.org' -TunnelType Ikev2 -EncryptionLevel Maximum -AuthenticationMethod MachineCertificate -SplitTunneling",
        "-EncryptionMethod AES256 -IntegrityCheckMethod SHA256 -DHGroup Group14 -CipherTransformConstants GCMAES256",
        "-DestinationPrefix '10.20.0.0/16'\r\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.split("\r\n").all(|line| !line.contains('\n')) && !text.contains("the passphrase"));
    let text = world.file(Form::Windows, &parties(&["0.0.0.0/0"], &["aes256-sha384-ecp384"]), true, ".ps1");
    assert!(
        text.contains("-AuthenticationMethod Eap -RememberCredential -Force")
            && text.contains("-DHGroup ECP384")
    );
    assert!(!text.contains("SplitTunneling") && !text.contains("abcde") && !text.contains(".p12"), "{text}");
    for (text, wanted) in [
        ("a'; Remove-Item C:\\ #", "'a''; Remove-Item C:\\ #'"),
        (
            "\u{2018}\u{2019}\u{201a}\u{201b}",
            "'\u{2018}\u{2018}\u{2019}\u{2019}\u{201a}\u{201a}\u{201b}\u{201b}'",
        ),
        ("$(calc)`n\"\n", "'$(calc)`n\"'"),
    ] {
        assert_eq!(windows::quoted(text), wanted);
    }
}

#[test]
fn a_connection_for_networkmanager_names_its_files() {
    let (world, parties) =
        (World::new(NewKey::EcdsaP256), parties(&["10.20.0.0/16"], &["aes128-sha256-ecp256"]));
    let text = world.file(Form::Networkmanager, &parties, false, ".nmconnection");
    for line in [
        "service-type=org.freedesktop.NetworkManager.strongswan\n",
        "usercert=/etc/NetworkManager/certs/joe.pem\n",
        "userkey=/etc/NetworkManager/certs/joe.key\n",
        "method=key\n",
        "virtual=yes\n",
        "ike=aes128-sha256-ecp256\n",
        "never-default=true\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = world.file(Form::Networkmanager, &parties, true, ".nmconnection");
    assert!(text.contains("method=eap\nuser=joe.vpn.example.org\n") && !text.contains("abcde"), "{text}");
}

/// `swanctl` 5.9.8 discards a connection whose proposals have a word that it does not know.
#[test]
fn clients_of_strongswan_are_told_proposals_in_the_words_that_they_know() {
    let world = World::new(NewKey::EcdsaP256);
    let hybrid = "aes256gcm16-prfsha384-x25519-ke1_mlkem768";
    let mut some = parties(&["0.0.0.0/0"], &[hybrid, "aes256-sha256-ecp256"]);
    some.esp_proposals = ["aes256gcm16-x25519-none", "aes256gcm16-none", "aes256-sha256-ecp256-ke1_mlkem768"]
        .map(str::to_owned)
        .into();
    let text = world.file(Form::Swanctl, &some, false, ".conf");
    for line in
        ["    proposals = aes256-sha256-ecp256\n", "esp_proposals = aes256gcm16-x25519, aes256gcm16\n"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = world.file(Form::Networkmanager, &some, false, ".nmconnection");
    let lines = "proposal=yes\nike=aes256-sha256-ecp256\nesp=aes256gcm16-x25519;aes256gcm16\n";
    assert!(text.contains(lines), "{text}");
    let text = world.file(Form::Sswan, &some, true, "");
    let profile: Value = serde_json::from_str(&text).unwrap();
    let told = (&profile["ike-proposal"], &profile["esp-proposal"]);
    assert_eq!(told, (&"aes256-sha256-ecp256".into(), &"aes256gcm16-x25519".into()));

    // Nothing that they know: their own.
    let mut none = parties(&["0.0.0.0/0"], &[hybrid]);
    none.esp_proposals = vec!["aes256gcm16-x25519-ke1_mlkem768".into()];
    let text = world.file(Form::Swanctl, &none, false, ".conf");
    assert!(!text.contains("proposals"), "{text}");
    let text = world.file(Form::Networkmanager, &none, false, ".nmconnection");
    assert!(text.contains("proposal=no\n") && !text.contains("mlkem"), "{text}");
    assert!(!world.file(Form::Sswan, &none, true, "").contains("-proposal"));
}

#[test]
fn no_client_is_told_what_its_gateway_would_refuse() {
    let world = World::new(NewKey::EcdsaP256);
    let only = parties(&["0.0.0.0/0"], &["chacha20poly1305-prfsha512-x25519"]);
    for form in [Form::Mobileconfig, Form::Windows] {
        let error = world.files(form, &only, true).unwrap_err();
        assert!(
            error.message.contains("has no algorithms that the gateway's ike.proposals would take"),
            "{error}"
        );
    }
    let mut esp = parties(&["0.0.0.0/0"], &[]);
    esp.esp_proposals = vec!["aes256-sha384".into()];
    let error = world.files(Form::Windows, &esp, true).unwrap_err();
    assert!(error.message.contains("that the gateway's child.proposals would take"), "{error}");
    assert!(world.file(Form::Mobileconfig, &esp, true, "").contains("SHA2-384"), "these have it");
    let hybrid = parties(&["0.0.0.0/0"], &["aes256gcm16-prfsha256-ecp256-ke1_mlkem768"]);
    assert!(world.files(Form::Mobileconfig, &hybrid, true).is_err(), "it demands what these do not have");
}
