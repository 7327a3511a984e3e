//! What packagers need: completions and manual pages, made from the definitions that parse the command line. A shell's completions ask this
//! program at each key press, so that they know the names of connections.

use clap::Subcommand;
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};
use dormouse_control::{Error, ErrorKind, ExitCode};
use dormouse_report::write_whole;
use std::path::{Path, PathBuf};

use crate::manual;

/// Pages for shells and people
#[derive(Debug, Subcommand)]
pub(crate) enum Pages {
    /// Print completions for a shell
    Completions {
        /// Which
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write the manual pages: one for each command, and that of the configuration
    Man {
        /// Where to; the page of `dormouse` itself goes to standard output without it
        #[arg(value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}

/// In the environment: a shell asks for completions, and this is its name.
pub(crate) const VARIABLE: &str = "DORMOUSE_COMPLETE";

/// Answers a shell that asks for completions, and ends then.
pub(crate) fn complete(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// What a shell reads at its start.
fn registration(shell: Shell) -> Result<Vec<u8>, Error> {
    const NAME: &str = "dormouse";
    let shell = shell.to_string();
    let shells = Shells::builtins();
    let known = shells.completer(&shell);
    let known = known.ok_or_else(|| Error::new(ErrorKind::Request, format!("no completions for {shell}")))?;
    let mut text = Vec::new();
    let made = known.write_registration(VARIABLE, NAME, NAME, NAME, &mut text);
    made.map_err(|e| Error::new(ErrorKind::Other, format!("completions: {e}")))?;
    if shell == "zsh" {
        // The file is the body of a function when zsh finds it in its path: the first key press is to be answered too.
        text.extend_from_slice(
            b"[ \"$funcstack[1]\" != _dormouse ] || _clap_dynamic_completer_dormouse \"$@\"\n",
        );
    }
    Ok(text)
}

/// `command` is the whole command line.
pub(crate) fn run(pages: &Pages, mut command: clap::Command) -> Result<ExitCode, Error> {
    match pages {
        Pages::Completions { shell } => print(&registration(*shell)?)?,
        Pages::Man { directory: None } => print(&page(command)?)?,
        Pages::Man { directory: Some(directory) } => {
            std::fs::create_dir_all(directory).map_err(|e| failed(directory, &e))?;
            // Global options and the full names of subcommands are known once it is built.
            command.build();
            write_pages(directory, &command, "dormouse")?;
            let path = directory.join("dormouse.toml.5");
            write_whole(&path, manual::configuration().as_bytes()).map_err(|e| failed(&path, &e))?;
        }
    }
    Ok(ExitCode::Ok)
}

fn write_pages(directory: &Path, command: &clap::Command, name: &str) -> Result<(), Error> {
    let path = directory.join(format!("{name}.1"));
    let whole: &'static str = Box::leak(name.to_owned().into_boxed_str());
    write_whole(&path, &page(command.clone().name(whole))?).map_err(|e| failed(&path, &e))?;
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help" && !s.is_hide_set()) {
        write_pages(directory, sub, &format!("{name}-{}", sub.get_name()))?;
    }
    Ok(())
}

fn page(command: clap::Command) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let made = clap_mangen::Man::new(command).render(&mut text);
    made.map_err(|e| Error::new(ErrorKind::Other, format!("manual page: {e}")))?;
    Ok(text)
}

fn print(text: &[u8]) -> Result<(), Error> {
    use std::io::Write;
    match std::io::stdout().write_all(text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(failed(Path::new("standard output"), &e)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    let kind = if error.kind() == std::io::ErrorKind::PermissionDenied {
        ErrorKind::Permission
    } else {
        ErrorKind::Other
    };
    Error::new(kind, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// As a shell asks.
    fn completed(words: &[&str]) -> Vec<String> {
        let mut command = Cli::command();
        command.build();
        let words: Vec<_> = words.iter().map(Into::into).collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut command, words, last, None).unwrap();
        found.iter().map(|c| c.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_shell_is_told_verbs_options_and_values() {
        assert_eq!(completed(&["dormouse", "sus"]), ["suspend"]);
        assert_eq!(completed(&["dormouse", "up", "--no"]), ["--no-wait"]);
        assert_eq!(completed(&["dormouse", "mode", ""])[..2], ["energy", "balanced"]);
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let text = String::from_utf8(registration(shell).unwrap()).unwrap();
            assert!(text.contains(VARIABLE) && text.contains("dormouse"), "{shell}: {text}");
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let directory = std::env::temp_dir().join(format!("dormouse-man-{}", std::process::id()));
        run(&Pages::Man { directory: Some(directory.clone()) }, Cli::command()).unwrap();
        for verb in [
            "",
            "-up",
            "-down",
            "-rekey",
            "-suspend",
            "-resume",
            "-status",
            "-watch",
            "-doctor",
            "-wait",
            "-stats",
            "-trace",
            "-hip",
            "-hip-keygen",
        ] {
            let text = std::fs::read_to_string(directory.join(format!("dormouse{verb}.1"))).unwrap();
            assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{verb}");
        }
        let text = std::fs::read_to_string(directory.join("dormouse.1")).unwrap();
        assert!(text.contains("Exit codes"), "{text}");
        let text = std::fs::read_to_string(directory.join("dormouse.toml.5")).unwrap();
        assert!(text.contains(".SH \"[connection.NAME.child]\""), "{text}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
