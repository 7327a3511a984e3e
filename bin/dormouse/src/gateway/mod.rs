//! `dormouse gateway init`: a machine becomes a gateway with an authority of its own; `renew`: it gets another certificate. Owns the order in which
//! files are made, and what is said of it. The daemon does what the machine needs besides, while it runs (`pool.forward`).

mod join;
mod look;
mod plan;
mod renew;

use crate::control_verbs::Output;
use crate::enrol::authority::{Authority, Holder, Issued, MOST_DAYS, day};
use crate::enrol::names::{self, Domain};
use crate::enrol::place::{self, CONFIG, PASSWORDS, PASSWORDS_HEAD, Place};
use crate::enrol::users::{self, User};
use crate::enrol::wrong;
use crate::renewal::serve;
use clap::{Args, Subcommand, ValueEnum};
use dormouse_control::{Check, Error, ErrorKind, ExitCode};
use dormouse_crypto::Secret;
use dormouse_crypto::sign::NewKey;
use dormouse_io::clock::unix_now;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::forward;
use dormouse_node::config;
use dormouse_sansio::Entropy as _;
use look::Surroundings;
use plan::{Plan, Said};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Most files that are kept of one that was replaced.
const MOST_KEPT: u32 = 99;

/// A gateway of one's own
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    verb: GatewayVerb,
}

#[derive(Debug, Subcommand)]
enum GatewayVerb {
    /// Make this machine a gateway: an authority, its certificate and the configuration. Asks what it is not told
    Init(InitArgs),
    /// Make a new key and certificate for this gateway before the old one ends: everything else stays as it is. A daemon that runs takes them up
    /// at once, and sessions go on
    Renew(renew::RenewArgs),
    /// Answer devices that renew their certificates through the tunnel: runs until it is stopped, as dormouse-renewals.service does
    Renewals(serve::RenewalsArgs),
}

#[derive(Debug, Args)]
struct InitArgs {
    /// Name or address at which devices reach this gateway
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What devices reach through it: `everything`, or networks
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    reach: Vec<String>,
    /// Addresses for the devices, a prefix a family
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    pool: Vec<String>,
    /// Name servers for the devices, or `none` [default: those of this machine that answer]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    dns: Vec<String>,
    /// Take users with a name and a password too (EAP-MSCHAPv2), as the clients of phones and of Windows log in: dormouse user add NAME
    /// --password. So it is without this too where there are such users already
    #[arg(long)]
    passwords: bool,
    /// Do not let devices renew their certificates themselves, through the tunnel: each needs a new file before its certificate ends
    #[arg(long)]
    no_renewals: bool,
    /// How long the gateway's certificate counts; devices of Apple take 825 days at most
    #[arg(long, value_name = "DAYS", default_value_t = MOST_DAYS)]
    days: u32,
    /// The kind of its key: `rsa` for the client that Android has itself, which knows nothing else (docs/clients.md)
    #[arg(long, value_enum, default_value_t = Keys::P256)]
    key: Keys,
    /// Ask nothing: what is not said is as it would be proposed
    #[arg(long, short)]
    yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Write a new configuration, gateway's key and certificate where there are some already; the old files stay as FILE.old (FILE.old-2 and so
    /// on). The authority is not replaced: all users can still connect. For a new certificate alone: dormouse gateway renew
    #[arg(long)]
    force: bool,
    /// The configuration to write; everything else goes beside it
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    #[command(flatten)]
    cluster: join::JoinArgs,
}

/// Kinds of key that a gateway's certificate may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Keys {
    /// ECDSA on P-256
    P256,
    /// RSA of 3,072 bits
    Rsa,
}

impl Keys {
    const fn kind(self) -> NewKey {
        match self {
            Self::P256 => NewKey::EcdsaP256,
            Self::Rsa => NewKey::Rsa3072,
        }
    }
}

pub(crate) fn run(args: &GatewayArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    match &args.verb {
        GatewayVerb::Init(args) => init(args, json),
        GatewayVerb::Renew(args) => renew::run(args, socket, json),
        GatewayVerb::Renewals(args) => serve::run(args, socket),
    }
}

/// For `dormouse doctor`: certificates of the gateway and of the authority that end soon, and the renewal of devices'.
pub(crate) fn checks(config: &Path, file: &config::file::File) -> Vec<Check> {
    let mut all = renew::checks(config, file, unix_now());
    all.extend(crate::renewal::checks(file));
    all
}

fn init(args: &InitArgs, json: bool) -> Result<ExitCode, Error> {
    let place = Place::of(&args.config);
    free(&place, args)?;
    let said = Said {
        name: args.name.clone(),
        reach: args.reach.clone(),
        pool: args.pool.clone(),
        dns: args.dns.clone(),
        no_renewals: args.no_renewals,
        passwords: args.passwords || fs::symlink_metadata(place.path(PASSWORDS)).is_ok(),
    };
    let mut random = [0; 5];
    OsEntropy.fill(&mut random);
    let asks = !args.yes && !args.dry_run && !json && std::io::stdin().is_terminal();
    let mut ask = |question: &str, usual: &str| if asks { asked(question, usual) } else { Ok(None) };
    if !asks && !args.yes && !args.dry_run && args.name.is_none() {
        return Err(wrong("there is no terminal to ask on").with_change("--name vpn.example.org, or --yes"));
    }
    let plan = Plan::make(&said, &Surroundings::look(), random, &mut ask, &mut look::ask)?;
    let closed = closed(plan.renewals);
    let out = Output::new(json);
    if args.dry_run {
        let text = configuration(&place, &plan, args)?;
        let answer = json!({ "version": 1, "would_write": { "config": place.config, "text": text } });
        return out.print(&format!("{answer}\n"), || {
            format!("{} would be:\n\n{text}\n{}", place.config.display(), notes(&plan, &closed))
        });
    }
    let done = make(&place, &plan, args)?;
    let answer = json!({
        "version": 1,
        "gateway": plan.id.to_string(),
        "pool": plan.pool,
        "dns": plan.dns,
        "renewals": plan.renewals,
        "files": done.files,
        "certificate_until_unix": done.until.0,
        "authority_until_unix": done.authority_until.0,
        "notes": plan.notes,
        "closed_firewall_chains": closed,
    });
    out.print(&format!("{answer}\n"), || {
        let next = if args.cluster.joins() {
            "first: dormouse doctor, which looks at the database too\n"
        } else {
            ""
        };
        next.to_owned() + &report(&place, &plan, &done, &closed)
    })
}

/// The plan's, and the cluster's section of a gateway that joins others.
fn configuration(place: &Place, plan: &Plan, args: &InitArgs) -> Result<String, Error> {
    Ok(plan.configuration(&place.path("")) + &args.cluster.section(place)?)
}

/// Demands that nothing is replaced that was not meant: neither the configuration nor, beside one of another name, what that one names.
fn free(place: &Place, args: &InitArgs) -> Result<(), Error> {
    let files = [place.config.clone(), place.path("gateway.pem"), place.path("gateway.key")];
    match files.iter().find(|path| fs::symlink_metadata(path).is_ok()) {
        Some(path) if !args.force && !args.dry_run => Err(taken(path)),
        _ => Ok(()),
    }
}

fn taken(path: &Path) -> Error {
    let message = format!("{} is there already", path.display());
    Error::new(ErrorKind::Other, message)
        .with_change(format!("--force replaces it, and keeps it as {}.old", path.display()))
}

/// Demands that the users that are there are users of this gateway too: their devices look for it by the name that they were made for.
fn fits_users(place: &Place, plan: &Plan) -> Result<(), Error> {
    let domain = Domain::of(&plan.pattern(), "remote.id")?;
    let before = place::read_text(&place.config)?.and_then(|text| config::parse(&text).ok());
    let renamed = |user: &User| {
        let c = before.as_ref().and_then(|file| file.connection.get(&user.connection));
        c.is_some_and(|c| !c.local.id.eq_ignore_ascii_case(&plan.id.to_string()))
    };
    let fits = |user: &User| domain.identity(&user.name).is_ok_and(|id| id.to_string() == user.id);
    let lost: Vec<String> = users::all(place)?
        .into_iter()
        .filter(|user| renamed(user) || !fits(user))
        .map(|user| format!("{} ({})", user.name, names::harmless(&user.id)))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    let message = format!(
        "as {}, with users {}, this gateway would be none to these users: {}",
        plan.id,
        plan.pattern(),
        lost.join(", ")
    );
    Err(wrong(message).with_change("--name as it was; or first dormouse user remove NAME, for each"))
}

/// What was made.
struct Done {
    files: Vec<PathBuf>,
    until: dormouse_sansio::UnixTime,
    authority_until: dormouse_sansio::UnixTime,
    /// There was one already.
    old_authority: bool,
    /// What was replaced, and where it is kept.
    kept: Vec<(PathBuf, PathBuf)>,
}

/// Makes and writes everything, the configuration last: without it nothing counts, and the next attempt goes on with the authority that is
/// there.
fn make(place: &Place, plan: &Plan, args: &InitArgs) -> Result<Done, Error> {
    let _lock = place.lock()?;
    // Another one may have been faster.
    free(place, args)?;
    fits_users(place, plan)?;
    let now = unix_now();
    let (authority, key) = authority(place, plan, now)?;
    let issued = authority.issue(Holder::Gateway, args.key.kind(), &plan.id, now, args.days)?;
    let text = configuration(place, plan, args)?;
    let passwords = place::read(&place.path(PASSWORDS))?;
    require_sound(place, &text, &authority, &issued, passwords.as_ref())?;
    place.make_private("ca")?;
    place.make_private(users::DIRECTORY)?;
    let mut replaced: Vec<place::Write<'_>> = vec![
        (place.path("gateway.key"), issued.key.as_bytes(), 0o600),
        (place.path("gateway.pem"), issued.pem.as_bytes(), 0o644),
        (place.config.clone(), text.as_bytes(), 0o644),
    ];
    let pem_at = place.path("ca.pem");
    let there = place::read(&pem_at)?;
    if there.as_ref().is_none_or(|pem| pem.as_bytes() != authority.pem().as_bytes()) {
        if there.is_some() && !args.force {
            return Err(taken(&pem_at));
        }
        replaced.insert(0, (pem_at, authority.pem().as_bytes(), 0o644));
    }
    let mut old = Vec::new();
    for (path, ..) in &replaced {
        if let Some(content) = place::read(path)? {
            old.push((path.clone(), unused(path)?, content));
        }
    }
    let mut files: Vec<place::Write<'_>> = Vec::new();
    if let Some(key) = &key {
        files.push((place.path("ca/ca.key"), key.as_bytes(), 0o600));
    }
    // They may hold secrets.
    files.extend(old.iter().map(|(_, kept, content)| (kept.clone(), content.as_bytes(), 0o600)));
    files.extend(replaced);
    // Users that are there stay.
    if plan.passwords && passwords.is_none() {
        files.insert(0, (place.path(PASSWORDS), PASSWORDS_HEAD.as_bytes(), 0o600));
    }
    place::write(&files)?;
    Ok(Done {
        files: files.into_iter().map(|(path, ..)| path).collect(),
        until: issued.certificate.not_after(),
        authority_until: authority.not_after(),
        old_authority: key.is_none(),
        kept: old.into_iter().map(|(path, kept, _)| (path, kept)).collect(),
    })
}

/// Where a file is kept that is replaced: a name that is free, as what was kept before may be the one that is wanted back.
fn unused(path: &Path) -> Result<PathBuf, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ends = std::iter::once(".old".to_owned()).chain((2..=MOST_KEPT).map(|n| format!(".old-{n}")));
    let mut paths = ends.map(|end| path.with_file_name(format!("{name}{end}")));
    paths.find(|path| fs::symlink_metadata(path).is_err()).ok_or_else(|| {
        let message = format!("{} was replaced {MOST_KEPT} times", path.display());
        Error::new(ErrorKind::Other, message).with_change(format!("rm {}.old*", path.display()))
    })
}

/// The authority that is there, or a new one and its key.
fn authority(
    place: &Place,
    plan: &Plan,
    now: dormouse_sansio::UnixTime,
) -> Result<(Authority, Option<Secret>), Error> {
    let (key_at, pem_at) = (place.path("ca/ca.key"), place.path("ca.pem"));
    match (place::read(&key_at)?, place::read(&pem_at)?) {
        (Some(file), _) => Ok((Authority::load(&file)?, None)),
        (None, Some(_)) => {
            let message = format!("{} is there, and its key {} is not", pem_at.display(), key_at.display());
            Err(Error::new(ErrorKind::Other, message).with_change("put the key there, or move ca.pem away"))
        }
        (None, None) => {
            Authority::new(&format!("Dormouse {}", plan.id), now).map(|(ca, key)| (ca, Some(key)))
        }
    }
}

/// What the daemon says of a configuration, before it is written.
fn require_sound(
    place: &Place,
    text: &str,
    authority: &Authority,
    issued: &Issued,
    passwords: Option<&Secret>,
) -> Result<(), Error> {
    let fail =
        |e: String| Error::new(ErrorKind::Other, format!("the configuration that was made is wrong: {e}"));
    let file = config::parse(text).map_err(fail)?;
    let mut read = |path: &Path, _secret: bool| match path {
        path if path == place.path("ca.pem") => Ok(authority.pem().as_bytes().to_vec()),
        path if path == place.path("gateway.pem") => Ok(issued.pem.as_bytes().to_vec()),
        path if path == place.path("gateway.key") => Ok(issued.key.as_bytes().to_vec()),
        path if path == place.path(PASSWORDS) => {
            Ok(passwords.map_or_else(Vec::new, |p| p.as_bytes().to_vec()))
        }
        other => Err(format!("{} was not made", other.display())),
    };
    config::resolve(&file, &mut read).map_err(|e| fail(e.to_string()))?;
    join::require_sound(&file)
}

/// Chains of the firewall that would drop what devices send: by the line that lets it through.
fn closed(renewals: Option<SocketAddr>) -> Vec<String> {
    let tunnel = config::file::Daemon::default().interface;
    let quoted = format!("\"{tunnel}\"");
    let mut lines = Vec::new();
    for chain in forward::closed("input", &["4500", "ipsec-nat-t"]).unwrap_or_default() {
        lines.push(format!("nft insert rule {chain} udp dport '{{ 500, 4500 }}' accept"));
        lines.push(format!("nft insert rule {chain} meta l4proto esp accept"));
    }
    if let Some(port) = renewals.map(|at| at.port().to_string()) {
        for chain in forward::closed("input", &[&port]).unwrap_or_default() {
            lines.push(format!("nft insert rule {chain} iifname {tunnel} tcp dport {port} accept"));
        }
    }
    for chain in forward::closed("forward", &[&quoted]).unwrap_or_default() {
        lines.push(format!("nft insert rule {chain} iifname {tunnel} accept"));
        lines.push(format!("nft insert rule {chain} oifname {tunnel} accept"));
    }
    lines
}

fn asked(question: &str, usual: &str) -> Result<Option<String>, Error> {
    let fail = |e: std::io::Error| Error::new(ErrorKind::Other, format!("standard input: {e}"));
    eprint!("{question} [{usual}]: ");
    std::io::stderr().flush().map_err(fail)?;
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).map_err(fail)? == 0 {
        return Err(wrong("no answer").with_change("--yes takes what is proposed"));
    }
    Ok(Some(line.trim().to_owned()))
}

fn notes(plan: &Plan, closed: &[String]) -> String {
    let mut out = String::new();
    for note in &plan.notes {
        let _ = writeln!(out, "note: {note}");
    }
    if !closed.is_empty() {
        out.push_str("note: this machine's firewall drops what it does not know; where it is configured, say also (or as it says that):\n");
        for line in closed {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

fn report(place: &Place, plan: &Plan, done: &Done, closed: &[String]) -> String {
    let list = |items: Vec<String>| if items.is_empty() { "none".into() } else { items.join(", ") };
    let texts = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
    let reach = if plan.reach.is_empty() { "everything".into() } else { list(texts(&plan.reach)) };
    let dir = place.path("");
    let dir = dir.display().to_string();
    let dir = dir.trim_end_matches('/');
    let mut out = format!(
        "{} is a gateway from the daemon's next start on\n  devices get   {}\n  they reach    {reach}, under this machine's own addresses\n  name servers  {}\n",
        plan.id,
        list(texts(&plan.pool)),
        list(plan.dns.iter().map(ToString::to_string).collect()),
    );
    let _ = writeln!(
        out,
        "  certificate   until {}; its authority's, until {}",
        day(done.until),
        day(done.authority_until)
    );
    let kept = if done.old_authority {
        "as it was"
    } else {
        "new; keep it safe, and copy it to where no network is"
    };
    let _ = writeln!(out, "  authority     {dir}/ca/ca.key, {kept}");
    let _ = match plan.renewals {
        Some(at) => writeln!(
            out,
            "  renewals      devices with our client renew their certificates at {at}, inside the tunnel alone (--no-renewals: they do not)"
        ),
        None => writeln!(out, "  renewals      none: dormouse user renew NAME makes each device's next file"),
    };
    out.push_str(&notes(plan, closed));
    let _ = writeln!(
        out,
        "next: systemctl enable --now dormoused (or restart it), then dormouse user add NAME{}\n\
         undo: systemctl disable --now dormoused, which also ends forwarding and translation; then {}\n\
         {} and {} stay, and so the authority: a later init takes it up, and its users can connect again. To remove it too, rm -r {} {}: \
         all users are lost for good then, and each needs a new file of a new authority",
        if plan.passwords { " (--password: one who logs in)" } else { "" },
        undo(place, done),
        place.path("ca").display(),
        place.path("ca.pem").display(),
        place.path("ca").display(),
        place.path("ca.pem").display(),
    );
    out
}

/// The commands that bring back what was there before.
fn undo(place: &Place, done: &Done) -> String {
    let old = |path: &Path| done.kept.iter().any(|(replaced, _)| replaced == path);
    let made = ["gateway.pem", "gateway.key", PASSWORDS].map(|name| place.path(name));
    let made = made.into_iter().chain([place.config.clone()]).filter(|path| done.files.contains(path));
    let made: Vec<String> = made.filter(|path| !old(path)).map(|path| path.display().to_string()).collect();
    let mut steps: Vec<String> = Vec::new();
    if !made.is_empty() {
        steps.push(format!("rm {}", made.join(" ")));
    }
    steps.extend(done.kept.iter().map(|(path, kept)| format!("mv {} {}", kept.display(), path.display())));
    steps.join(" && ")
}
