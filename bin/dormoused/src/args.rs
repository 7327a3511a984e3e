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
