//! Keys in a token, by a real PKCS #11 module (SoftHSM): what is found, refused and signed.

use dormouse_crypto::Secret;
use dormouse_crypto::sign::{PublicKey, SigningKey};
use dormouse_io::token::{Token, Uri};
use dormouse_testbed::{Need, require};
use std::path::{Path, PathBuf};
use std::process::Command;

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const NEEDS: [Need; 3] = [Need::Program("softhsm2-util"), Need::File(MODULE), Need::Program("openssl")];
const DIR: &str = "DORMOUSE_TOKEN_TEST";

fn run(dir: &Path, program: &str, args: &[&str]) {
    let mut command = Command::new(program);
    let out = command.args(args).current_dir(dir).env("SOFTHSM2_CONF", dir.join("softhsm2.conf")).output();
    let out = out.expect("it starts");
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The module reads its environment once, so the test runs again in a process that has it.
#[test]
fn keys_in_a_token_sign_and_never_leave_it() {
    if !require("keys in a token", &NEEDS) {
        return;
    }
    let dir = std::env::temp_dir().join(format!("dormouse-token-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("tokens")).expect("a directory");
    let conf = format!("directories.tokendir = {}/tokens\n", dir.display());
    std::fs::write(dir.join("softhsm2.conf"), conf).expect("written");
    let token = ["--init-token", "--free", "--label", "a token", "--so-pin", "87654321", "--pin", "1234"];
    run(&dir, "softhsm2-util", &token);
    for (name, id, algorithm, option) in [
        ("rsa", "01", "RSA", "rsa_keygen_bits:2048"),
        ("p256", "02", "EC", "ec_paramgen_curve:P-256"),
        ("p384", "03", "EC", "ec_paramgen_curve:P-384"),
    ] {
        run(&dir, "openssl", &["genpkey", "-algorithm", algorithm, "-pkeyopt", option, "-out", name]);
        run(
            &dir,
            "openssl",
            &["pkey", "-in", name, "-pubout", "-outform", "DER", "-out", &format!("{name}.pub")],
        );
        let import = ["--import", name, "--token", "a token", "--label", name, "--id", id, "--pin", "1234"];
        run(&dir, "softhsm2-util", &import);
    }
    let again = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "within_the_environment_of_the_module", "--ignored", "--nocapture"])
        .env("SOFTHSM2_CONF", dir.join("softhsm2.conf"))
        .env(DIR, &dir)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&again.stdout).into_owned() + &String::from_utf8_lossy(&again.stderr);
    std::fs::remove_dir_all(&dir).expect("removed");
    assert!(again.status.success() && said.contains("1 passed"), "{said}");
    println!("{said}");
}

fn open(text: &str, pin: Option<&str>) -> Result<Token, String> {
    let uri = Uri::parse(&format!("{text}&module-path={MODULE}")).map_err(|e| e.to_string())?;
    let pin = pin.map(|pin| Secret::from(pin.as_bytes()));
    Token::open(&uri, pin.as_ref()).map_err(|e| e.to_string())
}

#[test]
#[ignore = "run by the test above, which sets the environment"]
fn within_the_environment_of_the_module() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("the test above"));
    let public = |name: &str| {
        let der = std::fs::read(dir.join(format!("{name}.pub"))).expect("a public key");
        PublicKey::from_spki_der(&der).expect("a public key")
    };
    let without = open("pkcs11:token=a%20token;object=rsa?", None).expect_err("private keys need the PIN");
    assert!(without.contains("no private key rsa"), "{without}");
    let wrong = open("pkcs11:token=a%20token;object=rsa?", Some("4321")).expect_err("another PIN");
    assert!(wrong.contains("refuses this PIN"), "{wrong}");
    // The token remembers it: not even the right one is tried, until a person has given it.
    let unasked = open("pkcs11:token=a%20token;object=rsa?", Some("1234")).expect_err("not tried");
    assert!(unasked.contains("was wrong") && unasked.contains("--login"), "{unasked}");
    let by_hand =
        ["--import", "p256", "--token", "a token", "--label", "spare", "--id", "09", "--pin", "1234"];
    run(&dir, "softhsm2-util", &by_hand);
    let nowhere = open("pkcs11:token=b;object=rsa?", Some("1234")).expect_err("no such token");
    assert!(nowhere.contains("a token"), "it lists those that there are: {nowhere}");
    for (name, selector) in [("rsa", "object=rsa"), ("p256", "id=%02"), ("p384", "object=p384;id=%03")] {
        // A final line break does not count.
        let token = || open(&format!("pkcs11:token=a%20token;{selector}?"), Some("1234\n")).expect(name);
        let key = SigningKey::elsewhere(public(name), Box::new(token())).expect(name);
        for scheme in key.schemes() {
            let message = [7; 1_500];
            let signature = key.sign(*scheme, &message).expect("signed");
            public(name).verify(*scheme, &message, &signature).expect("by RFC 7427");
            if let Ok(fixed) = key.sign_fixed(*scheme, &message) {
                public(name).verify_fixed(*scheme, &message, &fixed).expect("by RFC 4754");
            }
            let begun = dormouse_io::clock::BootClock::now();
            (0..100).for_each(|_| drop(key.sign(*scheme, &message)));
            println!("{name} {scheme}: {:?} each", (dormouse_io::clock::BootClock::now() - begun) / 100);
        }
        let other = if name == "p256" { "p384" } else { "p256" };
        assert!(
            SigningKey::elsewhere(public(other), Box::new(token())).is_err(),
            "another key's certificate"
        );
    }
}

#[test]
fn a_uri_that_is_not_understood_says_why_and_shows_no_pin() {
    for (uri, why) in [
        ("pkcs11:token=a", "which key"),
        ("pkcs11:object=a;slot-id=1", "slot-id"),
        ("pkcs11:object=%zz", "two digits"),
        ("pkcs11:object", "name=value"),
        ("pkcs11:object=a?pin-value=1234", "pin-source"),
    ] {
        let error = Uri::parse(uri).expect_err(uri).to_string();
        assert!(error.contains(why) && !error.contains("1234"), "{error}");
    }
    let uri = Uri::parse("pkcs11:token=a;object=b;type=private?pin-source=file:///etc/pin").expect("a key");
    assert_eq!(uri.pin_source, Some(PathBuf::from("/etc/pin")));
}
