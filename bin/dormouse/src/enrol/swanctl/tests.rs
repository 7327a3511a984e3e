use super::*;
use crate::enrol::bundle::tests::sample;

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Dir {
    /// As swanctl has it, with the credentials of joe.
    fn new(name: &str) -> Self {
        let dir = Self(std::env::temp_dir().join(format!("dormouse-swanctl-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&dir.0);
        let bundle = Bundle::read(&sample("x", "joe.example.org"), "x").unwrap();
        let Proof::Certificate { certificate, key } = &bundle.proof else { panic!("a certificate") };
        for (folder, file, content) in [
            ("x509", "joe.pem", certificate),
            ("x509ca", "ca.pem", &bundle.ca),
            ("private", "another.key", &"nonsense".to_owned()),
            ("private", "joe.key", &key.0),
        ] {
            fs::create_dir_all(dir.0.join(folder)).unwrap();
            fs::write(dir.0.join(folder).join(file), content).unwrap();
        }
        dir
    }

    fn read(&self, text: &str) -> Result<Bundle, Error> {
        connection(&self.0.join("swanctl.conf"), text, None)
    }
}

const CONF: &str = "# office\nconnections {\n  office {\n    version = 2\n    remote_addrs = vpn.example.org, 192.0.2.1\n    vips = 0.0.0.0\n    \
    proposals = aes256gcm16-prfsha384-x25519, default\n    local {\n      auth = pubkey\n      certs = joe.pem\n      id = \"@joe.example.org\"\n    }\n    \
    remote { auth = pubkey }\n    children { net { remote_ts = 10.20.0.0/16,192.0.2.7 } more { remote_ts = fd20::/48 } }\n  }\n}\nsecrets { }\n";

#[test]
fn the_common_keys_are_taken_over() {
    let bundle = Dir::new("good").read(CONF).unwrap();
    assert_eq!((bundle.name.as_str(), bundle.gateway.as_str()), ("office", "vpn.example.org"));
    assert_eq!((bundle.id.as_str(), bundle.gateway_id.as_str()), ("joe.example.org", "vpn.example.org"));
    let remote: Vec<String> = bundle.remote.iter().map(ToString::to_string).collect();
    assert_eq!(remote, ["10.20.0.0/16", "192.0.2.7/32", "fd20::/48"]);
    assert_eq!(bundle.ike_proposals, ["aes256gcm16-prfsha384-x25519"]);
    assert!(bundle.esp_proposals.is_empty());
    let full = Dir::new("full").read(&CONF.replace("fd20::/48", "0.0.0.0/0")).unwrap();
    assert!(full.remote.contains(&Ipv6Net::default().into()), "the other family does not leave in clear");
    let nameless = Dir::new("nameless").read(&CONF.replace("id = \"@joe.example.org\"", "")).unwrap();
    assert_eq!(nameless.id, "CN=joe.example.org", "as strongSwan has it: the subject");
}

#[test]
fn such_a_file_is_known_by_what_it_holds_and_a_bundle_is_none() {
    for text in [
        CONF,
        "secrets {\n}\nconnections {\n}\n",
        "pools { }\n",
        "connections\n{\n}\n",
        "# Include config snippets\ninclude conf.d/*.conf\n",
    ] {
        assert!(is_one(text), "{text}");
    }
    let bundle = String::from_utf8(sample("connections", "joe.example.org").as_bytes().to_vec()).unwrap();
    let inside = bundle.replace("ca = \'\'\'\n", "ca = \'\'\'\nconnections {\n");
    assert_ne!(inside, bundle);
    let cut = &bundle[..bundle.len() / 2];
    for text in [&bundle, &inside, cut, "", "version = 1\n", "[connections]\n", "root:x:0:0::/:/bin/sh\n"] {
        assert!(!is_one(text), "{text}");
    }
}

#[test]
fn of_a_file_that_includes_others_it_is_said_which_to_name() {
    let dir = Dir::new("include");
    fs::create_dir(dir.0.join("conf.d")).unwrap();
    fs::write(dir.0.join("conf.d/office.conf"), CONF).unwrap();
    fs::write(dir.0.join("conf.d/README"), "").unwrap();
    let error = dir.read("# all\ninclude conf.d/*.conf\ninclude \u{1b}[2J\n").unwrap_err();
    let said = "there is no connection in it, but it includes \"conf.d/*.conf\", \"\\u{1b}[2J\"";
    assert!(error.message.ends_with(said), "{error}");
    assert_eq!(error.acceptable, [dir.0.join("conf.d/office.conf").display().to_string()]);
    assert!(error.change.unwrap().starts_with("dormouse join FILE"));
    connection(&dir.0.join("conf.d/office.conf"), CONF, None).unwrap();
}

/// Errors show names from the file with control characters escaped, so that the file cannot control the terminal.
#[test]
fn no_error_has_what_a_terminal_obeys() {
    let dir = Dir::new("terminal");
    let odd = "o\u{1b}[2Jf";
    let section = CONF.replace("  office {", &format!("  {odd} {{")).replace("version = 2", "version = 1");
    let several = CONF.replace("connections {\n", &format!("connections {{\n {odd} {{ version = 2 }}\n"));
    let gateway = CONF.replace("vpn.example.org, 192.0.2.1", odd);
    for text in [section, several, gateway] {
        let error = dir.read(&text).unwrap_err().to_string();
        assert!(error.contains("\\u{1b}") && !error.contains(char::is_control), "{error:?}");
    }
    let error = dir.read(&CONF.replace("vpn.example.org, 192.0.2.1", "a/b")).unwrap_err();
    assert!(error.message.contains("remote_addrs: \"a/b\" is neither a host name"), "{error}");
    fs::write(dir.0.join("x509ca").join(odd), "no certificate").unwrap();
    let error = dir.read(CONF).unwrap_err().to_string();
    assert!(error.contains("\\u{1b}") && !error.contains(char::is_control), "{error:?}");
}

/// Cut off anywhere, and with letters of several bytes: an answer, and no panic.
#[test]
fn what_was_cut_off_on_the_way_is_an_error() {
    let complete = settings(CONF).unwrap().len();
    let whole = CONF.trim_end().len();
    for end in 0..CONF.len() {
        match settings(&CONF[..end]) {
            Ok(found) => assert!(found.len() <= complete && (end < 22 || end > whole - 14), "{end}"),
            Err(why) => assert!(["{", "neither", "\""].iter().any(|part| why.contains(part)), "{why}"),
        }
    }
    for odd in ["ä { ö = ü }", "ä", "}", "= = =", "a = \"", "\u{202e}{", "a {\n}}"] {
        let _answer = settings(odd);
    }
}

/// A password that is cut off is told as a wrong one, by the gateway and later.
#[test]
fn a_password_is_taken_over_whole_or_not_at_all() {
    let dir = Dir::new("password");
    let by_password =
        CONF.replace("auth = pubkey\n      certs = joe.pem\n", "auth = eap-mschapv2\n      eap_id = joe\n");
    let read =
        |secret: &str| {
            dir.read(&by_password.replace(
                "secrets { }",
                &format!("secrets {{ eap-joe {{\n id = joe\n secret = {secret}\n}} }}"),
            ))
        };
    for (secret, wanted) in [
        ("\"a#b}c = {d\"", "a#b}c = {d"),
        ("\" a \" # joe's", " a "),
        ("plain # joe's", "plain"),
        ("\"one\" }\n more {", "one"),
    ] {
        let bundle = read(secret).unwrap();
        let Proof::Password { user, password } = &bundle.proof else { panic!("a password") };
        assert_eq!((user.as_str(), password.0.as_str()), ("joe", wanted));
    }
    for (secret, said) in [
        ("\"a\\\"b\"", "line 19: a \\ within quotes is not taken over"),
        ("\"ab", "a \" without another one in its line"),
        ("\"a\" b", "something behind a value in quotes"),
        ("a\"b#\"", "a value with a \" that does not begin with one"),
        ("0sYWJj", "the secret for \"joe\": only a password as text is taken over"),
        ("\"0x616263\"", "the secret for \"joe\": only a password as text is taken over"),
    ] {
        let error = read(secret).expect_err(said);
        assert!(error.message.contains(said), "{said}: {error}");
    }
}

/// Root joins with a directory of an attacker, who has links and other secrets in it.
#[test]
fn no_link_is_followed_and_nothing_but_certificates_and_the_key_is_taken_over() {
    let secret = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    let dir = Dir::new("links");
    let elsewhere = Dir::new("links-elsewhere");
    fs::write(elsewhere.0.join("gateway.key"), secret).unwrap();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(elsewhere.0.join(to), dir.0.join(name)).unwrap();
    };
    link("gateway.key", "x509ca/b.pem");
    let taken = dir.read(CONF).unwrap();
    assert_eq!(taken.ca.matches("BEGIN").count(), 1, "{}", taken.ca);
    assert!(!taken.ca.contains("PRIVATE"), "{}", taken.ca);
    let named = CONF.replace("remote { auth = pubkey }", "remote { cacerts = b.pem }");
    let error = dir.read(&named).unwrap_err();
    assert!(error.message.contains("x509ca/b.pem: a symbolic link"), "{error}");
    fs::rename(dir.0.join("private/joe.key"), elsewhere.0.join("joe.key")).unwrap();
    link("joe.key", "private/joe.key");
    assert!(dir.read(CONF).unwrap_err().message.contains("no key of CN=joe.example.org in"));
    fs::remove_dir_all(dir.0.join("private")).unwrap();
    link("private", "private");
    fs::rename(elsewhere.0.join("joe.key"), elsewhere.0.join("private/joe.key")).unwrap();
    assert!(dir.read(CONF).unwrap_err().message.contains("no key of CN=joe.example.org in"));

    // What stands beside the certificate and the key in their files.
    let dir = Dir::new("beside");
    for (name, before) in
        [("x509ca/ca.pem", secret), ("x509/joe.pem", secret), ("private/joe.key", "root:x:0\n")]
    {
        let content = fs::read_to_string(dir.0.join(name)).unwrap();
        fs::write(dir.0.join(name), format!("{before}{content}root:x:0\n")).unwrap();
    }
    let taken = dir.read(CONF).unwrap();
    let Proof::Certificate { certificate, key } = &taken.proof else { panic!("a certificate") };
    for pem in [&taken.ca, certificate] {
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----\n"), "{pem}");
        assert!(pem.ends_with("-----END CERTIFICATE-----\n") && pem.matches("BEGIN").count() == 1, "{pem}");
    }
    assert!(key.0.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    assert!(key.0.ends_with("-----END PRIVATE KEY-----\n"));
    fs::write(dir.0.join("x509ca/ca.pem"), secret).unwrap();
    assert!(dir.read(CONF).unwrap_err().message.contains("x509ca/ca.pem: "));
}

#[test]
fn each_thing_that_is_not_taken_over_is_said() {
    for (from, to, said) in [
        ("version = 2", "version = 1", "connections.office: version = \"1\": only IKEv2 is spoken"),
        (
            "auth = pubkey\n",
            "auth = eap-tls\n",
            "local.auth = \"eap-tls\": only pubkey and eap-mschapv2 is taken over",
        ),
        ("remote { auth = pubkey }", "remote { auth = psk }", "remote.auth = \"psk\""),
        (
            "remote_addrs = vpn.example.org, 192.0.2.1",
            "remote_addrs = %any",
            "remote_addrs does not say where the gateway is",
        ),
        ("certs = joe.pem", "", "local.certs names no certificate"),
        ("certs = joe.pem", "certs = ../../../etc/passwd", "is not a plain name of a file in x509"),
        ("certs = joe.pem", "certs = a.pem, b.pem", "several files of x509: only one is taken over"),
        ("certs = joe.pem", "certs = ann.pem", "x509/ann.pem does not exist"),
        ("remote { auth = pubkey }", "remote { cacerts = other.pem }", "x509ca/other.pem does not exist"),
        ("10.20.0.0/16", "dynamic", "remote_ts: \"dynamic\" is no prefix"),
        ("remote_ts = ", "local_ts = ", "children: no remote_ts says what the tunnel carries"),
        ("secrets { }", "secrets {", "a { without its }"),
        ("secrets { }", "}", "line 17: a } without its {"),
        ("secrets { }", "nonsense", "neither a section nor a setting"),
        ("secrets { }", "a { a { a { a { a { a { a { a { a {", "sections too deep"),
        ("connections {\n", "connections {\n other { version = 2 }\n", "there are several connections in it"),
        ("connections", "pools", "there is no connection in it"),
    ] {
        let error = Dir::new("wrong").read(&CONF.replace(from, to)).expect_err(said);
        assert!(error.message.contains(said), "{said}: {error}");
    }
    let dir = Dir::new("keyless");
    fs::remove_file(dir.0.join("private/joe.key")).unwrap();
    let error = dir.read(CONF).unwrap_err();
    assert!(error.message.contains("no key of CN=joe.example.org in"), "{error}");
    fs::remove_file(dir.0.join("x509ca/ca.pem")).unwrap();
    assert!(dir.read(CONF).unwrap_err().message.contains("no certificate of an authority"));
}
