//! The daemon's command line.

use clap::Parser;
use std::path::PathBuf;

/// Dormouse's daemon: a client or a gateway, as its configuration says.
#[derive(Clone, Debug, Parser)]
#[command(name = "dormoused", version)]
pub(crate) struct Args {
    /// Configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/dormouse/dormouse.toml")]
    pub(crate) config: PathBuf,
    /// Read the configuration and the files that it names, say what is wrong with them, and end.
    #[arg(long)]
    pub(crate) check: bool,
    /// Hold what is never to leave in clear (connections with `block = "always"`), and end: at boot, before there is a network.
    #[arg(long, conflicts_with_all = ["check", "unblock"])]
    pub(crate) block_only: bool,
    /// End what a daemon that no longer runs has left held, and end. Where a connection has `block = "always"`, the next start holds it again.
    #[arg(long, conflicts_with = "check")]
    pub(crate) unblock: bool,
    /// Keep state here instead of where the configuration says.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Listen for `dormouse` here instead of where the configuration says.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// What to log, instead of what the configuration says, such as `debug` or `info,dormouse_ike=trace`.
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Look for energy meters under another root directory.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) meter_root: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::CommandFactory as _;
    use std::collections::BTreeSet;

    #[test]
    fn the_manual_page_has_the_options_that_there_are() {
        let page = include_str!("../../../packaging/dormoused.8").replace("\\-", "-");
        let shown = page.lines().filter_map(|line| line.split("\\fB--").nth(1)?.split("\\fR").next());
        let shown: BTreeSet<String> = shown.map(str::to_owned).collect();
        let mut command = Args::command();
        command.build();
        let taken = command.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long());
        assert_eq!(shown, taken.map(str::to_owned).collect());
    }
}
