//! `dormouse advise`: recommends security settings. Thin over `dormouse_lab::advise`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use dormouse_lab::advise::{self, Options, Purpose, page};
use dormouse_lab::bench::Request;
use dormouse_lab::results::Results;
use dormouse_report::write_whole;

use crate::measure;

/// Recommend security settings for this device, with evidence
///
/// What the standards forbid (RFC 8221, 8247, 9395) is never recommended; of the rest, what measurements show to be best for
/// the stated use.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Result file of dormouse bench; without it the short campaign runs first, all of it as root
    #[arg(value_name = "RESULT")]
    file: Option<PathBuf>,
    /// What the device is used for
    #[arg(long = "for", value_name = "USE", value_enum, default_value_t = For::Bulk)]
    purpose: For,
    /// Also consider what is SHOULD NOT or on its way out, such as SHA1 and 3DES; never what is MUST NOT
    #[arg(long)]
    allow_discouraged: bool,
    /// Also write the advice as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum For {
    /// Large transfers
    Bulk,
    /// Calls, games, remote shells
    SmallPackets,
    /// A device on its battery
    Battery,
    /// A sensor: few small packets, every byte counts
    Sensor,
}

impl From<For> for Purpose {
    fn from(of: For) -> Self {
        match of {
            For::Bulk => Self::Bulk,
            For::SmallPackets => Self::SmallPackets,
            For::Battery => Self::Battery,
            For::Sensor => Self::Sensor,
        }
    }
}

/// Runs the verb.
///
/// # Errors
/// For a file that cannot be read, one that nothing follows from, or output that cannot be written.
pub(crate) fn run(args: &AdviseArgs, json: bool) -> anyhow::Result<ExitCode> {
    let results = results(args)?;
    let options = Options { purpose: args.purpose.into(), allow_discouraged: args.allow_discouraged };
    let advice = advise::advise(&results, options)?;
    if let Some(path) = &args.html {
        let page = page::page(&advice).html().map_err(anyhow::Error::msg)?;
        write_whole(path, page.as_bytes()).with_context(|| path.display().to_string())?;
    }
    let text =
        if json { serde_json::to_string_pretty(&advice)? + "\n" } else { page::document(&advice).text() };
    measure::say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The measurements: of the file, or made now.
fn results(args: &AdviseArgs) -> anyhow::Result<Results> {
    match &args.file {
        Some(path) => measure::read(path),
        None => measure::now(&Request { quick: true, seed: 1, ..Request::default() }),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_lab::advise::lines::Lines;
    use dormouse_node::config;

    /// The daemon takes the lines of every recommendation as they are pasted.
    #[test]
    fn the_lines_to_paste_are_valid_configuration() {
        for (suite, runner_up) in [
            ("aes128gcm16", Some("aes128-sha256")),
            ("aes256-sha512", Some("chacha20poly1305")),
            ("aes256ctr-sha256", Some("aes128ctr-sha1")),
            ("chacha20poly1305", None),
        ] {
            let lines = Lines::new(suite, runner_up);
            let text = format!(
                "[connection.NAME]\nrole = \"client\"\ngateway = \"vpn.example.org\"\n\
                 local = {{ id = \"device.example.org\", secret = \"not a secret\" }}\n\
                 remote = {{ id = \"vpn.example.org\" }}\n\n{}",
                lines.toml
            );
            let file = config::parse(&text).unwrap_or_else(|e| panic!("{suite}: {e}\n{text}"));
            let mut read = |path: &std::path::Path, _| Err(format!("{} is not read here", path.display()));
            let resolved =
                config::resolve(&file, &mut read).unwrap_or_else(|e| panic!("{suite}: {e}\n{text}"));
            let child = &resolved[0].ike.children[0];
            assert_eq!(child.proposals[0].encr[0].name(), suite.split('-').next().unwrap());
            assert!(lines.swanctl.contains(&format!("esp_proposals = {suite}-x25519")), "{}", lines.swanctl);
            assert_eq!(lines.swanctl.matches('{').count(), lines.swanctl.matches('}').count());
        }
    }
}
