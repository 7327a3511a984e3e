//! How a command ends: what it says when it fails, and its exit code.

use crate::style::Style;
use dormouse_control::{Error, ErrorKind, ExitCode, Response, line};
use std::fmt::Write as _;

/// Reports an error where it belongs (JSON to standard output, text to standard error) and gives the exit code.
pub(crate) fn report(error: &Error, json: bool) -> std::process::ExitCode {
    if json {
        print!("{}", line(&Response::error(error.clone())).unwrap_or_default());
    } else {
        eprint!("{}", render(error, Style::stderr()));
    }
    error.kind.exit_code().into()
}

/// The same for the verbs that are not about the daemon.
pub(crate) fn of_anyhow(result: anyhow::Result<std::process::ExitCode>) -> std::process::ExitCode {
    result.unwrap_or_else(|error| {
        let text = dormouse_io::causes(&*error);
        let denied = |cause: &(dyn std::error::Error + 'static)| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
        };
        let kind = if error.chain().any(denied) { ErrorKind::Permission } else { ErrorKind::Other };
        eprint!("{}", render(&Error::new(kind, text), Style::stderr()));
        kind.exit_code().into()
    })
}

/// What happened; what was offered; what would be accepted; what to change.
pub(crate) fn render(error: &Error, style: Style) -> String {
    let mut out = format!("{} {}\n", style.bad("error:"), error.message);
    let mut list = |title: &str, items: &[String]| {
        for (i, item) in items.iter().enumerate() {
            let title = if i == 0 { title } else { "" };
            let _ = writeln!(out, "  {:<11} {item}", title);
        }
    };
    list("offered:", &error.offered);
    list("acceptable:", &error.acceptable);
    if let Some(change) = &error.change {
        let _ = writeln!(out, "  {:<11} {}", "change:", style.strong(change));
    }
    out
}

/// The exit codes, for the manual.
pub(crate) fn manual() -> String {
    let mut out = String::from("Exit codes:\n");
    for (code, meaning) in ExitCode::ALL {
        let _ = writeln!(out, "  {}  {meaning}", code.code());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_offered_what_is_acceptable_and_the_line_to_change() {
        let error = Error::new(ErrorKind::Proposal, "office: the gateway accepted none of our algorithms")
            .with_offer(
                vec!["aes256gcm16-prfsha384-x25519".into(), "aes128gcm16".into()],
                vec!["aes128-sha256".into()],
            )
            .with_change("connection.office.ike.proposals = [\"aes128-sha256\"]");
        let expected = "error: office: the gateway accepted none of our algorithms\n  \
                        offered:    aes256gcm16-prfsha384-x25519\n              aes128gcm16\n  \
                        acceptable: aes128-sha256\n  \
                        change:     connection.office.ike.proposals = [\"aes128-sha256\"]\n";
        assert_eq!(render(&error, Style::plain()), expected);
    }
}
