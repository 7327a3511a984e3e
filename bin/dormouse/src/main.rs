//! `dormouse`: the command line. Thin over the control protocol, the traces and the lab; owns arguments, rendering and exit codes.

mod advise;
mod bench;
mod calibrate;
mod client;
mod completions;
mod control_verbs;
mod demo;
mod doctor;
mod enrol;
mod exit;
mod gateway;
mod hip;
mod join;
mod lab;
mod lab_link;
mod lab_topology;
mod measure;
mod meter;
mod netcheck;
mod origin;
mod radius;
mod recordings;
mod reference;
mod render;
mod render_hip;
mod render_radius;
mod render_router;
mod render_sleep;
mod report;
mod style;
mod trace;
mod user;

use clap::{CommandFactory as _, Parser, Subcommand};
use dormouse_control::DEFAULT_SOCKET;
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
    Netcheck(netcheck::NetcheckArgs),
    Report(report::ReportArgs),
    Gateway(gateway::GatewayArgs),
    User(user::UserArgs),
    Join(join::JoinArgs),
    Hip(hip::HipArgs),
    Trace(Box<trace::TraceArgs>),
    Advise(advise::AdviseArgs),
    Meter(meter::MeterArgs),
    Calibrate(Box<calibrate::CalibrateArgs>),
    Bench(Box<bench::BenchArgs>),
    Lab(lab::LabArgs),
    Demo(demo::DemoArgs),
    /// Print the configuration reference (Markdown)
    Reference,
    #[command(flatten)]
    Pages(completions::Pages),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Control(verb) => control_verbs::run(&verb, &cli.socket, cli.json).map(Into::into),
        Command::Doctor(args) => doctor::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Netcheck(args) => netcheck::run(&args, cli.json).map(Into::into),
        Command::Report(args) => report::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Gateway(args) => gateway::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::User(args) => user::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Join(args) => join::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Hip(args) => hip::run(&args, &cli.socket, cli.json).map(Into::into),
        Command::Pages(pages) => completions::run(&pages, Cli::command()).map(Into::into),
        Command::Advise(args) => return exit::of_anyhow(advise::run(&args, cli.json)),
        Command::Lab(args) => return exit::of_anyhow(lab::run(&args, cli.json)),
        Command::Meter(args) => return exit::of_anyhow(meter::run(&args, cli.json)),
        Command::Calibrate(args) => return exit::of_anyhow(calibrate::run(&args, &cli.socket, cli.json)),
        Command::Bench(args) => return exit::of_anyhow(bench::run(&args, cli.json)),
        Command::Demo(args) => return exit::of_anyhow(demo::run(&args, cli.json)),
        Command::Reference => return reference::run(),
        Command::Trace(args) => return exit::of_anyhow(trace::run(&args, cli.json)),
    };
    outcome.unwrap_or_else(|error| exit::report(&error, cli.json))
}
