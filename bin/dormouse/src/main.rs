//! `dormouse`: the command line. Thin over the control protocol, the traces and the lab; owns arguments, rendering and exit codes.

#[cfg(feature = "lab")]
mod advise;
#[cfg(feature = "lab")]
mod bench;
mod book;
#[cfg(feature = "lab")]
mod calibrate;
mod client;
mod cluster;
mod completions;
mod connections;
mod control_verbs;
#[cfg(feature = "lab")]
mod demo;
mod doctor;
mod enrol;
mod exit;
mod gateway;
mod hip;
mod join;
#[cfg(feature = "lab")]
mod lab;
#[cfg(any(test, not(feature = "lab")))]
mod lab_elsewhere;
#[cfg(feature = "lab")]
mod lab_link;
#[cfg(feature = "lab")]
mod lab_topology;
#[cfg(feature = "lab")]
mod lab_verbs;
mod manual;
#[cfg(feature = "lab")]
mod measure;
mod meter;
mod netcheck;
#[cfg(feature = "lab")]
mod origin;
#[cfg(feature = "page")]
mod page;
mod radius;
#[cfg(feature = "lab")]
mod recordings;
mod reference;
mod render;
mod render_hip;
mod render_radius;
mod render_router;
mod render_sleep;
mod renewal;
mod report;
mod style;
#[cfg(feature = "top")]
mod top;
#[cfg(feature = "lab")]
mod trace;
mod user;

use clap::{CommandFactory as _, Parser, Subcommand};
use dormouse_control::DEFAULT_SOCKET;
#[cfg(not(feature = "lab"))]
use lab_elsewhere::LabVerb;
#[cfg(feature = "lab")]
use lab_verbs::LabVerb;
#[cfg(feature = "daemon")]
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

/// Keeps a mobile device inside its IPsec VPN at the lowest energy
#[derive(Debug, Parser)]
#[command(name = "dormouse", version, max_term_width = 100, after_long_help = exit::manual())]
struct Cli {
    /// Control socket of the daemon
    #[arg(long, global = true, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Print JSON instead of text: reports with their version; of the daemon its own words, one object a line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Control(control_verbs::ControlVerb),
    /// Check this machine, the daemon and its configuration, and say what to change
    Doctor(doctor::DoctorArgs),
    #[cfg(feature = "top")]
    Top(top::TopArgs),
    #[cfg(feature = "page")]
    Page(page::PageArgs),
    Netcheck(netcheck::NetcheckArgs),
    Report(report::ReportArgs),
    Gateway(gateway::GatewayArgs),
    Cluster(cluster::ClusterArgs),
    User(user::UserArgs),
    Join(join::JoinArgs),
    Renew(renewal::RenewArgs),
    Hip(hip::HipArgs),
    Meter(meter::MeterArgs),
    #[command(flatten)]
    Lab(LabVerb),
    /// Print the configuration reference (Markdown)
    Reference,
    #[command(flatten)]
    Pages(completions::Pages),
}

/// Whether this program was started by the name of the daemon, which is the same file in packages.
#[cfg(feature = "daemon")]
fn is_daemon() -> bool {
    std::env::args_os().next().is_some_and(|name| Path::new(&name).file_name() == Some("dormoused".as_ref()))
}

fn main() -> ExitCode {
    #[cfg(feature = "daemon")]
    if is_daemon() {
        return dormoused::main();
    }
    #[cfg(not(feature = "lab"))]
    lab_elsewhere::complete();
    completions::complete(Cli::command);
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Control(verb) => control_verbs::run(&verb, &cli.socket, cli.json).map(Into::into),
        Command::Doctor(args) => doctor::run(&args, &cli.socket, cli.json).map(Into::into),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&args, &cli.socket, cli.json).map(Into::into),
        #[cfg(feature = "page")]
        Command::Page(args) => page::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Netcheck(args) => netcheck::run(&args, cli.json).map(Into::into),
        Command::Report(args) => report::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Gateway(args) => gateway::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Cluster(args) => cluster::run(&args, cli.json).map(Into::into),
        Command::User(args) => user::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Join(args) => join::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Renew(args) => renewal::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Hip(args) => hip::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Pages(pages) => completions::run(&pages, Cli::command()).map(Into::into),
        Command::Meter(args) => return exit::of_anyhow(meter::run(&args, cli.json)),
        #[cfg(feature = "lab")]
        Command::Lab(verb) => return exit::of_anyhow(verb.run(&cli.socket, cli.json)),
        #[cfg(not(feature = "lab"))]
        Command::Lab(verb) => Err(verb.run()),
        Command::Reference => return reference::run(),
    };
    outcome.unwrap_or_else(|error| exit::report(&error, cli.json))
}
