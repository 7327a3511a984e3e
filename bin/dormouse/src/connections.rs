//! The names of connections, as a shell completes them.

use clap_complete::{ArgValueCandidates, CompletionCandidate};
use dormouse_control::{DEFAULT_SOCKET, Reply, Verb};
use dormouse_node::config;
use std::path::Path;

use crate::client::Client;

const CONFIG: &str = "/etc/dormouse/dormouse.toml";

/// For an argument that is the name of a connection.
pub(crate) fn of_connections() -> ArgValueCandidates {
    let here = || names(Path::new(CONFIG), Path::new(DEFAULT_SOCKET));
    ArgValueCandidates::new(move || here().into_iter().map(CompletionCandidate::new).collect())
}

/// Those of the configuration, or if it cannot be read those that the daemon tells; none if neither can be asked.
fn names(file: &Path, socket: &Path) -> Vec<String> {
    let written = std::fs::read_to_string(file).ok().and_then(|text| config::parse(&text).ok());
    if let Some(file) = written {
        return file.connection.into_keys().collect();
    }
    let asked = Client::connect(socket).and_then(|mut daemon| daemon.ask(Verb::Status));
    match asked {
        Ok((_, Reply::Status(status))) => status.connections.into_iter().map(|c| c.name).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory as _;

    /// Neither of the machine's own daemon nor of its configuration: both paths are the test's.
    #[test]
    fn connections_are_those_of_the_configuration() {
        let file = std::env::temp_dir().join(format!("dormouse-names-{}.toml", std::process::id()));
        let no_daemon = Path::new("/nonexistent/dormouse.sock");
        let client = "role = \"client\"\ngateway = \"vpn.example.org\"\n";
        std::fs::write(&file, format!("[connection.office]\n{client}[connection.home]\n{client}")).unwrap();
        assert_eq!(names(&file, no_daemon), ["home", "office"]);
        std::fs::write(&file, "nonsense").unwrap();
        assert_eq!(names(&file, no_daemon), [""; 0]);
        std::fs::remove_file(&file).unwrap();
        for verb in ["up", "down", "rekey", "status", "wait", "netcheck"] {
            let command = Cli::command();
            let verb = command.find_subcommand(verb).unwrap();
            let argument = verb.get_arguments().find(|a| a.get_id() == "connection").unwrap();
            assert!(argument.get::<ArgValueCandidates>().is_some(), "{verb}");
        }
    }
}
