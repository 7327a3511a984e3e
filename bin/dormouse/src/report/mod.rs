//! `dormouse report`: one archive for whoever is to find a fault: what runs here, how it is configured, and what it says. Owns what is in it, and
//! that nothing secret is: the configuration passes `redact`, and what that takes away is taken out of every other file too.

mod archive;
mod redact;
mod secrets;

use crate::client::Client;
use crate::control_verbs::Output;
use crate::doctor;
use crate::enrol::authority::day;
use crate::enrol::place::{self, CONFIG};
use clap::Args;
use dormouse_control::{Error, ErrorKind, ExitCode, Reply, Response, Verb, line};
use dormouse_io::clock::unix_now;
use dormouse_io::token::Uri;
use dormouse_node::config;
use dormouse_report::Table;
use secrets::Secrets;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use zeroize::Zeroizing;

/// Lines of the log that are taken.
const LINES: &str = "1000";
/// Most bytes of one file.
const MOST: usize = 4 << 20;

/// Put together what is needed to find a fault, without secrets
///
/// Versions, the configuration without secrets and names of files, status, counters, the checks of `doctor` and the end of the daemon's log. Names
/// of hosts and users and addresses are in it: read it before you send it.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Where it goes, for its owner alone [default: dormouse-report-DAY.tar.gz here]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

/// A file of it.
struct Member {
    name: &'static str,
    what: &'static str,
    content: String,
}

pub(crate) fn run(args: &ReportArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    let now = unix_now();
    let name = format!("dormouse-report-{}", day(now));
    let path = args.out.clone().unwrap_or_else(|| format!("{name}.tar.gz").into());
    let members = members(&args.config, socket)?;
    let files: Vec<(String, Vec<u8>)> = members
        .iter()
        .map(|member| (member.name.to_owned(), member.content.as_bytes().to_vec()))
        .chain([("README.txt".to_owned(), readme(&members).into_bytes())])
        .collect();
    let failed = |e: std::io::Error| Error::new(ErrorKind::Other, format!("the archive: {e}"));
    let archive = archive::archive(&name, &files, now.0).map_err(failed)?;
    place::create(&path, &archive).map_err(|e| e.with_change("--out FILE"))?;
    let listed: Vec<_> =
        files.iter().map(|(name, content)| json!({ "name": name, "bytes": content.len() })).collect();
    let answer = json!({ "version": 1, "file": path, "members": listed });
    Output::new(json).print(&format!("{answer}\n"), || {
        let mut table = Table::words(["file", "bytes", "what"]);
        for member in &members {
            table.row([member.name.into(), member.content.len().to_string(), member.what.into()]);
        }
        format!(
            "{}\n{}secrets and names of files are removed; names of hosts and users, and addresses, are not: read it before you send it\n",
            path.display(),
            table.columns("  ", str::to_owned)
        )
    })
}

fn readme(members: &[Member]) -> String {
    let mut text = String::from(
        "A report of dormouse. Removed: pre-shared keys, whatever else the configuration holds that is neither a number, a switch, one of its own\n\
         words, an address, a name of a peer or an algorithm, and names of files; from all files. Not removed: names of hosts and users, addresses.\n\n",
    );
    for member in members {
        text += &format!("{}  {}\n", member.name, member.what);
    }
    text
}

/// Everything but the overview, without secrets.
///
/// # Errors
/// If the configuration is there and may not be read: what is secret is not known then, and might stand in the log.
fn members(config: &Path, socket: &Path) -> Result<Vec<Member>, Error> {
    let mut secrets = Secrets::default();
    let configuration = configuration(config, &mut secrets)?;
    let member = |name, what, content: String| Member { name, what, content };
    let mut all = vec![
        member("versions.txt", "programs, kernel, system", versions()),
        member("configuration.toml", "the configuration, without secrets", configuration),
        member("status.json", "what the daemon says of itself", asked(socket, Verb::Status)),
        member("counters.json", "what the daemon has counted", asked(socket, Verb::Stats)),
        member("doctor.json", "the checks of dormouse doctor", checks(config, socket)),
        member("log.txt", "the end of the daemon's log", log()),
    ];
    for member in &mut all {
        member.content = match member.name {
            // It is without them by its making, and stays TOML.
            "configuration.toml" => std::mem::take(&mut member.content),
            name if name.ends_with(".json") => secrets.taken_out_of_json(&member.content),
            _ => secrets.taken_out_of(&member.content),
        };
        // Now, as the half of a secret would not be found.
        member.content = bounded(std::mem::take(&mut member.content));
    }
    Ok(all)
}

fn bounded(mut text: String) -> String {
    if text.len() > MOST {
        let from = (text.len() - MOST..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.drain(..from);
    }
    text
}

/// The configuration as it may be shown. Secrets in files that it names are learnt, so that they are found wherever they might stand.
fn configuration(path: &Path, secrets: &mut Secrets) -> Result<String, Error> {
    for name in [path.to_owned()].into_iter().chain(std::fs::canonicalize(path).ok()) {
        secrets.add_file(&name);
    }
    let content = match place::read(path) {
        Ok(Some(content)) => content,
        Ok(None) => return Ok("# there is none\n".into()),
        Err(e) if e.kind == ErrorKind::Permission => return Err(e),
        Err(e) => return Ok(secrets.taken_out_of(&format!("# {}\n", e.message))),
    };
    let Ok(text) = str::from_utf8(content.as_bytes()) else {
        secrets.all_of(&Zeroizing::new(String::from_utf8_lossy(content.as_bytes()).into_owned()));
        return Ok("# left out: it is no UTF-8\n".into());
    };
    let (names, users): (Vec<PathBuf>, Vec<PathBuf>) = match config::parse(text) {
        Ok(file) => {
            let users = file.connection.values().filter_map(|c| c.remote.users.clone());
            (file.names().map(Path::to_owned).collect(), users.collect())
        }
        // Whoever says why shows the line.
        Err(_) => {
            secrets.add_lines(text);
            (redact::names(text), Vec::new())
        }
    };
    for name in names {
        // Of a key in a token, the file that holds its PIN.
        let pin = name.to_str().filter(|uri| Uri::is_one(uri)).map(|uri| Uri::parse(uri).ok()?.pin_source);
        let Some(name) = pin.unwrap_or(Some(name)) else { continue };
        secrets.add_file(&name);
        let Ok(Some(content)) = place::read(&name) else { continue };
        if let Ok(text) = str::from_utf8(content.as_bytes()) {
            secrets.add_content(text);
        }
    }
    // Each name and each hash of it, not only the whole.
    for users in users {
        if let Ok(Some(text)) = place::read_text(&users) {
            secrets.all_of(&text);
        }
    }
    Ok(redact::configuration(text, secrets))
}

fn output(program: &Path, arguments: &[&str]) -> String {
    match Command::new(program).args(arguments).output() {
        Ok(out) => {
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
        }
        Err(e) => format!("{} cannot be run: {e}\n", program.display()),
    }
}

fn versions() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_else(|e| format!("{path}: {e}\n"));
    format!(
        "dormouse {}\n{}{}{}",
        env!("CARGO_PKG_VERSION"),
        output(&doctor::dormoused(), &["--version"]),
        read("/proc/version"),
        read("/etc/os-release")
    )
}

/// What the daemon answers, or why not.
fn asked(socket: &Path, verb: Verb) -> String {
    match Client::connect(socket).and_then(|mut client| client.ask(verb)) {
        Ok((answer, _)) => answer,
        Err(e) => line(&Response::error(e)).unwrap_or_default(),
    }
}

fn checks(config: &Path, socket: &Path) -> String {
    let checks = doctor::all(config, socket);
    line(&Response::ok(Reply::Doctor(checks))).unwrap_or_default()
}

fn log() -> String {
    output(
        Path::new("journalctl"),
        &["--unit", "dormoused", "--no-pager", "--output", "short-iso", "--lines", LINES],
    )
}
