//! What has to be asked of the user, for `nmcli` and desktops, which draw it themselves (NetworkManager's "external UI mode"): the connection
//! comes by standard input, the questions go to standard output as a key file. Owns both forms; must never keep or log a secret.

use crate::profile::PASSWORD;
use std::fmt::Write as _;
use std::io::{self, BufRead, Write as _};
use zeroize::Zeroizing;

/// More than NetworkManager sends of any connection, in bytes.
const LONGEST: u64 = 1 << 20;
/// A hint that begins so is what the plug-in has to say.
const MESSAGE: &str = "x-vpn-message:";

/// What the caller wants.
#[derive(Default, PartialEq, Eq, Debug)]
struct Wish {
    name: String,
    message: Option<String>,
    /// The user may be asked.
    may_ask: bool,
    /// What is stored was refused.
    again: bool,
}

/// What the caller knows.
#[derive(Default)]
struct Known {
    method: String,
    user: String,
    password: Zeroizing<String>,
}

/// Reads the connection and writes the questions.
///
/// # Errors
/// The system's.
pub(crate) fn serve(arguments: &[String]) -> io::Result<()> {
    let known = known(io::Read::take(io::stdin().lock(), LONGEST))?;
    let mut out = io::stdout().lock();
    out.write_all(questions(&wish(arguments), &known).as_bytes())?;
    out.flush()
}

fn wish(arguments: &[String]) -> Wish {
    let (mut wish, mut rest) = (Wish::default(), arguments.iter());
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-n" | "--name" => rest.next().cloned().unwrap_or_default().clone_into(&mut wish.name),
            "-i" | "--allow-interaction" => wish.may_ask = true,
            "-r" | "--reprompt" => wish.again = true,
            "-t" | "--hint" => {
                let said = rest.next().and_then(|hint| hint.strip_prefix(MESSAGE)).map(str::to_owned);
                wish.message = said.or(wish.message);
            }
            _ => {}
        }
    }
    wish
}

/// `DATA_KEY=` and `DATA_VAL=` by turns, the same for secrets, until `DONE`.
fn known(input: impl io::Read) -> io::Result<Known> {
    let (mut known, mut key) = (Known::default(), String::new());
    for line in io::BufReader::new(input).lines() {
        let line = Zeroizing::new(line?);
        if line.as_str() == "DONE" {
            break;
        }
        if let Some(name) = line.strip_prefix("DATA_KEY=").or_else(|| line.strip_prefix("SECRET_KEY=")) {
            name.clone_into(&mut key);
        } else if let Some(value) = line.strip_prefix("DATA_VAL=") {
            match key.as_str() {
                "method" => value.clone_into(&mut known.method),
                "user" => value.clone_into(&mut known.user),
                _ => {}
            }
        } else if let Some(value) = line.strip_prefix("SECRET_VAL=").filter(|_| key == PASSWORD) {
            known.password = Zeroizing::new(value.to_owned());
        }
    }
    Ok(known)
}

/// A value of a key file: what begins or ends lines, and the escape itself, are escaped.
fn value(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' ' => out.push_str("\\s"),
            c => out.push(c),
        }
    }
    out
}

fn questions(wish: &Wish, known: &Known) -> Zeroizing<String> {
    let about = wish.message.clone().unwrap_or_else(|| match known.user.as_str() {
        "" => format!("The VPN {} needs a password", wish.name),
        user => format!("The VPN {} needs the password of {user}", wish.name),
    });
    let mut text = Zeroizing::new(String::with_capacity(1024 + 2 * known.password.len()));
    let _ = write!(
        text,
        "[VPN Plugin UI]\nVersion=2\nTitle={}\nDescription={}\n",
        value(&format!("VPN {}", wish.name)),
        value(&about)
    );
    if ["eap", "psk"].contains(&known.method.as_str()) {
        let asks = wish.may_ask && (wish.again || known.password.is_empty());
        let label = if known.method == "psk" { "Shared secret" } else { "Password" };
        let _ = write!(
            text,
            "\n[{PASSWORD}]\nValue={}\nLabel={}\nIsSecret=true\nShouldAsk={asks}\n",
            value(&known.password),
            value(label)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: &[&str], input: &str) -> String {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        questions(&wish(&arguments), &known(input.as_bytes()).unwrap()).to_string()
    }

    #[test]
    fn a_password_is_asked_for_where_it_is_missing_or_was_refused() {
        let head = "DATA_KEY=method\nDATA_VAL=eap\nDATA_KEY=user\nDATA_VAL=joe\n";
        let stored = format!("{head}\nSECRET_KEY=password\nSECRET_VAL=a b\\\n\nDONE\nSECRET_VAL=late\n");
        let missing = format!("{head}DONE\n");
        for (arguments, input, value, asks) in [
            (vec!["-n", "office", "-i"], &missing, "", true),
            (vec!["-n", "office"], &missing, "", false),
            (vec!["-i"], &stored, "a\\sb\\\\", false),
            (vec!["-i", "-r"], &stored, "a\\sb\\\\", true),
        ] {
            let text = asked(&arguments, input);
            let wanted =
                format!("[password]\nValue={value}\nLabel=Password\nIsSecret=true\nShouldAsk={asks}\n");
            assert!(text.starts_with("[VPN Plugin UI]\nVersion=2\n") && text.ends_with(&wanted), "{text}");
        }
        let said = asked(&["-i", "-t", "password", "-t", "x-vpn-message:it was\nrefused"], &missing);
        assert!(said.contains("Description=it\\swas\\nrefused\n"), "{said}");
        assert!(asked(&["-n", "office"], &missing).contains("of\\sjoe"));
    }

    #[test]
    fn a_certificate_needs_no_question() {
        let text = asked(&["-i"], "DATA_KEY=method\nDATA_VAL=key\nDONE\n");
        assert!(!text.contains("[password]"), "{text}");
    }
}
