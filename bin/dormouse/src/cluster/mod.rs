//! `dormouse cluster`: what an administrator does to the database that gateways share, and sees of it. Owns the files that go to the gateways and
//! what is said of them; every statement is `dormouse_cluster`'s, and what a gateway does by itself is the daemon's.

pub(crate) mod access;
mod doctor;
mod same;
mod section;
mod status;

pub(crate) use doctor::checks;
pub(crate) use section::Section;

use crate::control_verbs::Output;
use crate::enrol::place::{self, CONFIG};
use crate::enrol::{failed, wrong};
use access::{OwnerArgs, block, told};
use clap::{Args, Subcommand};
use dormouse_cluster::Status;
use dormouse_cluster::admin::{Account, Admin, check_name};
use dormouse_control::{Error, ErrorKind, ExitCode};
use dormouse_crypto::Secret;
use dormouse_io::clock::unix_now;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::key_source::KeySource;
use dormouse_sansio::Entropy as _;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Where a gateway has what it shares.
const KEY: &str = "/etc/dormouse/cluster.key";
const PASSWORD: &str = "/etc/dormouse/cluster.password";

/// Several gateways that share a PostgreSQL database
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    verb: ClusterVerb,
}

#[derive(Debug, Subcommand)]
enum ClusterVerb {
    /// Make the tables, or bring them up to this release, and the key that all gateways have in a file. What is there stays
    Init(InitArgs),
    /// Let a gateway in: a role of its own, its password in a file, and the section for its configuration
    Add(AddArgs),
    /// Remove a gateway that is gone: its role and its slot. Its devices keep their addresses, and come back at the others
    Forget(ForgetArgs),
    /// Show the gateways, when each was last heard, ticket keys, and what is wrong. Ends with 1 if a gateway was not heard for 30 seconds, or a clock is
    /// more than 30 seconds off; with 3 if the database cannot be reached
    Status(StatusArgs),
}

#[derive(Debug, Args)]
struct InitArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// How many gateways may share the addresses, 1 to 64 [default: as it is; 4 at first]
    #[arg(long, value_name = "N")]
    gateways: Option<u8>,
    /// The key that wraps ticket keys; made if there is none, here and in the database
    #[arg(long, value_name = "FILE", default_value = KEY)]
    key_file: PathBuf,
}

#[derive(Debug, Args)]
struct AddArgs {
    /// What the gateway is called: 1 to 32 of a-z 0-9 -
    name: String,
    #[command(flatten)]
    owner: OwnerArgs,
    /// Put the password into `cluster.password` in this directory, to be carried to the gateway [default: /etc/dormouse]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where the gateway has the cluster's key
    #[arg(long, value_name = "FILE", default_value = KEY)]
    key_file: PathBuf,
    /// Show the password too
    #[arg(long)]
    show: bool,
    /// Make a new password for a gateway that has joined, which needs it from its next connection on, and replace the file
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct ForgetArgs {
    /// Which
    name: String,
    #[command(flatten)]
    owner: OwnerArgs,
    /// Ask nothing
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// The database, as its owner sees it [default: as the gateway of --config does]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// File with the password, if the URL has none
    #[arg(long, value_name = "FILE", requires = "database")]
    password_file: Option<PathBuf>,
    /// PEM file with the authorities of the server's certificate
    #[arg(long, value_name = "FILE", requires = "database")]
    ca: Option<PathBuf>,
    /// A gateway's configuration, whose section [cluster] says how to get in
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

pub(crate) fn run(args: &ClusterArgs, json: bool) -> Result<ExitCode, Error> {
    let out = Output::new(json);
    match &args.verb {
        ClusterVerb::Init(args) => init(args, &out),
        ClusterVerb::Add(args) => add(args, &out),
        ClusterVerb::Forget(args) => forget(args, json, &out),
        ClusterVerb::Status(args) => status::run(args, &out),
    }
}

/// What became of the cluster's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    Made,
    There,
    /// The database has ticket keys that another file opens.
    Elsewhere,
}

fn init(args: &InitArgs, out: &Output) -> Result<ExitCode, Error> {
    let owner = args.owner.read()?;
    // Before the database changes.
    require_file(&args.key_file)?;
    require_key(&args.key_file)?;
    let (before, status) = block(async {
        let mut admin = Admin::connect(&owner).await?;
        let before = admin.version().await?;
        admin.init(args.gateways).await?;
        Ok((before, admin.status().await?))
    })?;
    let key = key(&args.key_file, !status.keys.is_empty())?;
    let answer = json!({
        "version": 1,
        "database": status.server,
        "schema": status.schema,
        "schema_before": before,
        "slots": status.slots,
        "key_file": args.key_file,
        "key": match key { Key::Made => "made", Key::There => "there", Key::Elsewhere => "elsewhere" },
    });
    out.print(&format!("{answer}\n"), || made(&status, before, key, &args.key_file))
}

fn made(status: &Status, before: Option<i32>, key: Key, path: &Path) -> String {
    let path = path.display();
    let tables = match before {
        None => "new",
        Some(before) if before < status.schema => "brought up to this release",
        Some(_) => "as they were",
    };
    let key = match key {
        Key::Made => format!(
            "{path}, new. Every gateway needs this file: copy it there with scp, and keep a copy offline. Whoever has it and reads the database can open tickets"
        ),
        Key::There => format!("{path}, as it was"),
        Key::Elsewhere => "not here: the database has ticket keys, which the key file of its gateways opens. Copy it from one of them if this machine is to be a gateway".to_owned(),
    };
    format!(
        "{}: tables of version {}, {tables}; room for {} gateways\ncluster key: {key}\nnext: dormouse cluster add NAME, for each gateway\n",
        status.server, status.schema, status.slots
    )
}

/// Demands the name of a file: what is elsewhere is not made here.
fn require_file(path: &Path) -> Result<(), Error> {
    if KeySource::parse(path) == Ok(KeySource::File(path.to_owned())) {
        return Ok(());
    }
    let message = format!("{}: the key is made in a file", path.display());
    Err(wrong(message).with_change("--key-file FILE; then put its content there, and take the file away"))
}

/// The cluster's key, if there is one; demands that it is one.
fn require_key(path: &Path) -> Result<Option<Secret>, Error> {
    let found = place::read(path)?;
    let is_key = |content: &Secret| {
        let mut key = Zeroizing::new([0; 32]);
        hex::decode_to_slice(content.as_bytes().trim_ascii(), &mut *key).is_ok()
    };
    if found.as_ref().is_some_and(|content| !is_key(content)) {
        let message = format!("{} is there, and does not hold 64 hexadecimal digits", path.display());
        return Err(Error::new(ErrorKind::Other, message).with_change("move it away, or another --key-file"));
    }
    Ok(found)
}

fn key(path: &Path, has_keys: bool) -> Result<Key, Error> {
    if require_key(path)?.is_some() {
        return Ok(Key::There);
    }
    // Another one would open nothing.
    if has_keys {
        return Ok(Key::Elsewhere);
    }
    make_dir(path.parent().unwrap_or(Path::new(".")), 0o755)?;
    let mut bytes = Zeroizing::new([0; 32]);
    OsEntropy.fill(&mut *bytes);
    let mut digits = Zeroizing::new([0; 65]);
    digits[64] = b'\n';
    if hex::encode_to_slice(*bytes, &mut digits[..64]).is_err() {
        return Err(Error::new(ErrorKind::Other, "a key of 32 bytes has 64 digits"));
    }
    place::create(path, &*digits)?;
    Ok(Key::Made)
}

fn make_dir(dir: &Path, mode: u32) -> Result<(), Error> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(mode).create(dir).map_err(|e| failed(dir, &e))
}

fn add(args: &AddArgs, out: &Output) -> Result<ExitCode, Error> {
    check_name(&args.name).map_err(told)?;
    let owner = args.owner.read()?;
    let path = match &args.out {
        Some(dir) => dir.join("cluster.password"),
        None => PASSWORD.into(),
    };
    if fs::symlink_metadata(&path).is_ok() && !args.force {
        let message = format!("{} is there already", path.display());
        return Err(Error::new(ErrorKind::Other, message)
            .with_change("--out DIR for another gateway's; --force replaces it"));
    }
    make_dir(path.parent().unwrap_or(Path::new(".")), if args.out.is_some() { 0o700 } else { 0o755 })?;
    let Account { user, password } = block(async {
        let mut admin = Admin::connect(&owner).await?;
        let has_joined = admin.status().await?.gateways.iter().any(|gateway| gateway.name == args.name);
        if has_joined && !args.force {
            return Ok(None);
        }
        admin.add_gateway(&args.name, &mut OsEntropy).await.map(Some)
    })?
    .ok_or_else(|| {
        let message = format!(
            "gateway {} has joined: it would need its new password from its next connection on",
            args.name
        );
        Error::new(ErrorKind::Other, message).with_change("--force, and carry the file there")
    })?;
    let mut line = Secret::zeroed(password.len() + 1);
    line.as_mut_bytes()[..password.len()].copy_from_slice(password.as_bytes());
    line.as_mut_bytes()[password.len()] = b'\n';
    place::write(&[(path.clone(), line.as_bytes(), 0o600)]).map_err(|mut e| {
        e.message = format!("the role has a password, which is written nowhere: {}", e.message);
        e
    })?;
    let section = section(args);
    let shown = args.show.then(|| String::from_utf8_lossy(password.as_bytes()).into_owned());
    let answer = json!({
        "version": 1,
        "gateway": args.name,
        "role": user,
        "password_file": path,
        "section": section,
        "password": shown,
    });
    out.print(&format!("{answer}\n"), || added(args, &path, &section, shown.as_deref()))
}

/// What the gateway's configuration gets.
fn section(args: &AddArgs) -> String {
    let section = Section {
        database: &args.owner.database,
        name: &args.name,
        key_file: &args.key_file,
        password_file: Path::new(PASSWORD),
        ca: args.owner.ca.as_deref(),
    };
    section.text()
}

fn added(args: &AddArgs, path: &Path, section: &str, shown: Option<&str>) -> String {
    let mut out = format!("gateway {} may join: its password is in {}\n", args.name, path.display());
    if let Some(password) = shown {
        let _ = writeln!(out, "  {password}");
    }
    if args.out.is_some() {
        let _ = writeln!(out, "copy it to {PASSWORD} there with scp, with mode 0600");
    }
    let key = args.key_file.display();
    let ca = if args.owner.ca.is_some() { " and the authority's file" } else { "" };
    let _ = writeln!(
        out,
        "its /etc/dormouse/dormouse.toml gets this, and it needs {key}{ca} too:\n\n{section}\nnext, there: dormouse doctor, then systemctl restart dormoused"
    );
    out
}

fn forget(args: &ForgetArgs, json: bool, out: &Output) -> Result<ExitCode, Error> {
    check_name(&args.name).map_err(told)?;
    let owner = args.owner.read()?;
    let runs = block(async {
        let status = Admin::connect(&owner).await?.status().await?;
        let found = status.gateways.into_iter().find(|gateway| gateway.name == args.name);
        Ok(found.is_some_and(|gateway| status::is_heard(&gateway, status.now)))
    })?;
    if !args.yes {
        confirm(&args.name, runs, json)?;
    }
    let was_there = block(async { Admin::connect(&owner).await?.forget_gateway(&args.name).await })?;
    if !was_there {
        return Err(
            wrong(format!("there is no gateway {}", args.name)).with_change("dormouse cluster status")
        );
    }
    let answer = json!({ "version": 1, "forgotten": args.name, "was_heard": runs });
    out.print(&format!("{answer}\n"), || {
        let still = if runs {
            ". It ran until now: stop dormoused there, and take [cluster] out of its configuration"
        } else {
            ""
        };
        format!("gateway {} is forgotten: its role and its slot are gone{still}\n", args.name)
    })
}

fn confirm(name: &str, runs: bool, json: bool) -> Result<(), Error> {
    if json || !std::io::stdin().is_terminal() {
        return Err(wrong("there is no terminal to ask on").with_change("--yes"));
    }
    let fail = |e: std::io::Error| Error::new(ErrorKind::Other, format!("standard input: {e}"));
    let warning = if runs {
        ", which runs: stop it first, or it goes on alone until cluster.alone_for is over"
    } else {
        ""
    };
    eprint!("Forget gateway {name}{warning}? [y/N]: ");
    std::io::stderr().flush().map_err(fail)?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(fail)?;
    match matches!(line.trim(), "y" | "yes") {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Other, "nothing has changed")),
    }
}

/// The local clock when something was asked, and when it was answered.
fn timed<T>(ask: impl FnOnce() -> Result<T, Error>) -> Result<(T, [u64; 2]), Error> {
    let begun = unix_now().0;
    let answer = ask()?;
    Ok((answer, [begun, unix_now().0]))
}

#[cfg(test)]
mod tests;
