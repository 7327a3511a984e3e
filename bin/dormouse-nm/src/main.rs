//! `dormouse-nm`: NetworkManager's plug-in for Dormouse. NetworkManager starts one for each connection that it brings up, and speaks
//! `org.freedesktop.NetworkManager.VPN.Plugin` with it; the plug-in starts a `dormoused` of that connection's own, and hands over to NetworkManager
//! what the gateway has given: addresses, routes and name servers are NetworkManager's from there on.
//!
//! The same program asks for a password on behalf of `nmcli` and desktops ([`dialog`]).

mod config;
mod credentials;
mod daemon;
mod dialog;
mod handover;
mod manager;
mod message;
mod profile;
mod service;
mod session;

use anyhow::{Context, Result};
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

/// What NetworkManager knows the plug-in by.
const SERVICE: &str = "org.freedesktop.NetworkManager.dormouse";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let served = if arguments.iter().any(|word| word == "--external-ui-mode") {
        dialog::serve(&arguments).map_err(Into::into)
    } else {
        plugin(&arguments)
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("dormouse-nm: {}", dormouse_io::causes(&*e));
            ExitCode::FAILURE
        }
    }
}

/// Serves one connection of NetworkManager, until it is down.
fn plugin(arguments: &[String]) -> Result<()> {
    let (mut name, mut filter) = (SERVICE.to_owned(), LevelFilter::INFO);
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--bus-name" => rest.next().context("--bus-name: a name is missing")?.clone_into(&mut name),
            "--debug" => filter = LevelFilter::DEBUG,
            // It ends with its connection either way.
            "--persist" => {}
            other => anyhow::bail!(
                "{other} is not understood: NetworkManager starts this program, with --bus-name NAME"
            ),
        }
    }
    // What is written to standard error ends up in NetworkManager's journal, which has times of its own.
    let text = tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false);
    text.with_writer(std::io::stderr).with_max_level(filter).init();
    session::serve(&name)
}
