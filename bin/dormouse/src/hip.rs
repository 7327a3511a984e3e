//! `dormouse hip`: hosts that reach each other by their identities. Owns the making of a key file; the rest is the daemon's.

use crate::client::Client;
use crate::control_verbs::{Output, seconds, unexpected};
use crate::render_hip;
use clap::{Args, Subcommand, ValueEnum};
use dormouse_control::{Error, ErrorKind, ExitCode, HipPeer, HipStatus, Reply, Response, Verb, line};
use dormouse_crypto::Secret;
use dormouse_crypto::hip::v1;
use dormouse_crypto::sign::NewKey;
use dormouse_io::state::{self, create_atomically, write_atomically};
use dormouse_node::config::hip::{identity, identity_v1};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// Talk to hosts by their identities (the Host Identity Protocol)
#[derive(Debug, Args)]
pub(crate) struct HipArgs {
    #[command(subcommand)]
    verb: HipVerb,
}

#[derive(Debug, Subcommand)]
enum HipVerb {
    /// Make this host's identity: a private key in a file of its own (mode 0600), and the host identity tag (HIT) that peers know it by
    Keygen {
        /// Where to
        #[arg(value_name = "FILE", default_value = "/etc/dormouse/hip.key")]
        file: PathBuf,
        /// Which kind of key
        #[arg(long, value_enum, default_value_t = Kind::EcdsaP256)]
        kind: Kind,
        /// Length of an RSA key: 3072, or 1024 for version 1
        #[arg(long, value_enum)]
        bits: Option<Bits>,
        /// Version of HIP that the key is for. 1 is for peers that know no other: RSA, also of 1,024 bits, or DSA of 1,024
        #[arg(long, value_name = "VERSION", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
        for_version: u8,
        /// Replace a key that is there: peers know this host by another HIT from then on
        #[arg(long)]
        force: bool,
    },
    /// Show the peers that are configured, and how far the association with each is
    Peers {
        /// As lines for /etc/hosts, so that programs find peers by their names
        #[arg(long)]
        hosts: bool,
    },
    /// Begin an association with a peer, and wait until it is there. A packet for the peer's HIT does the same
    Up {
        /// Its name or HIT
        peer: String,
        /// Return at once
        #[arg(long)]
        no_wait: bool,
        /// Give up waiting after so many seconds; the daemon goes on
        #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds, conflicts_with = "no_wait")]
        timeout: f64,
    },
    /// End the association with a peer, at both ends. The next packet for it begins another; dormouse deny refuses it
    Down {
        /// Its name or HIT
        peer: String,
    },
    /// Show this host's HIT and its associations; with a peer, the exit code says whether there is one with it
    Status {
        /// Only this peer, by its name or HIT
        peer: Option<String>,
    },
}

/// Kinds of keys.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// ECDSA on NIST P-256: small and quick
    EcdsaP256,
    /// ECDSA on NIST P-384
    EcdsaP384,
    /// RSA: for peers that know nothing else; slow to make and to sign with
    Rsa,
    /// DSA of 1,024 bits: for old peers, in version 1 alone
    Dsa,
}

/// Lengths of RSA keys.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Bits {
    /// In version 1 alone
    #[value(name = "1024")]
    B1024,
    #[value(name = "2048")]
    B2048,
    #[value(name = "3072")]
    B3072,
    #[value(name = "4096")]
    B4096,
}

pub(crate) fn run(args: &HipArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    let out = Output::new(json);
    if let HipVerb::Keygen { file, kind, bits, for_version, force } = &args.verb {
        return keygen(file, new_key(*kind, *bits, *for_version)?, *force, &out);
    }
    let mut client = Client::connect(socket)?;
    match &args.verb {
        HipVerb::Keygen { .. } => Ok(ExitCode::Ok),
        HipVerb::Up { peer, no_wait, timeout } => {
            let timeout_seconds = (!no_wait).then_some(*timeout);
            let (answer, _) = client.ask(Verb::HipUp { peer: peer.clone(), timeout_seconds })?;
            out.done(&answer, if *no_wait { "on its way" } else { "up" })
        }
        HipVerb::Down { peer } => {
            let (answer, _) = client.ask(Verb::HipDown { peer: peer.clone() })?;
            out.done(&answer, "down")
        }
        HipVerb::Peers { hosts } => {
            let (answer, status) = status(&mut client)?;
            out.print(&answer, || match hosts {
                true => render_hip::hosts(&status),
                false => render_hip::peers(&status, out.style),
            })
        }
        HipVerb::Status { peer: None } => {
            let (answer, status) = status(&mut client)?;
            out.print(&answer, || render_hip::status(&status, out.style))
        }
        HipVerb::Status { peer: Some(peer) } => {
            let (_, mut status) = status(&mut client)?;
            let known: Vec<String> = status.peers.iter().map(render_hip::called).collect();
            let hit = peer.parse::<Ipv6Addr>().ok();
            let is_it = |p: &HipPeer| hit.is_some() && p.hit.parse().ok() == hit;
            status.peers.retain(|p| is_it(p) || p.names.iter().any(|n| n.eq_ignore_ascii_case(peer)));
            let Some(one) = status.peers.first() else {
                let error = Error::new(ErrorKind::UnknownConnection, format!("no peer is called '{peer}'"));
                return Err(error.with_offer(Vec::new(), known));
            };
            let up = one.state == dormouse_control::HipState::Up;
            let answer = line(&Response::ok(Reply::Hip(Box::new(status.clone()))))?;
            out.print(&answer, || render_hip::status(&status, out.style))?;
            Ok(if up { ExitCode::Ok } else { ExitCode::NotConnected })
        }
    }
}

/// What the daemon says of the role: its own words, but only about that.
fn status(client: &mut Client) -> Result<(String, HipStatus), Error> {
    let (answer, reply) = client.ask(Verb::Status)?;
    let Reply::Status(status) = reply else { return Err(unexpected(&answer)) };
    let hip = status.hip.ok_or_else(|| {
        Error::new(ErrorKind::UnknownConnection, "this daemon has no connection of role \"hip\"")
            .with_change(format!("add [connection.NAME] with role = \"hip\" to {}", status.daemon.config))
    })?;
    Ok((line(&Response::ok(Reply::Hip(Box::new(hip.clone()))))?, hip))
}

/// What is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// A key of version 2; one of RSA is of version 1 too.
    V2(NewKey),
    /// A key of version 1 alone.
    V1(v1::NewKey),
}

impl Made {
    fn pem(self) -> Option<Secret> {
        match self {
            Self::V2(kind) => kind.pem(),
            Self::V1(kind) => kind.pem().ok(),
        }
    }
}

/// # Errors
/// If the version has no such key.
fn new_key(kind: Kind, bits: Option<Bits>, version: u8) -> Result<Made, Error> {
    let wrong = |why: &str, change: &str| Err(Error::new(ErrorKind::Request, why).with_change(change));
    let old = "only for a peer that knows no other version: --for-version 1";
    if bits.is_some() && !matches!(kind, Kind::Rsa) {
        return wrong("only an RSA key has a choice of lengths", "leave --bits out, or --kind rsa");
    }
    let bits = bits.unwrap_or(if version == 1 { Bits::B1024 } else { Bits::B3072 });
    match (kind, bits) {
        (Kind::EcdsaP256 | Kind::EcdsaP384, _) if version == 1 => {
            wrong("version 1 of HIP has no ECDSA", "--kind rsa or --kind dsa")
        }
        (Kind::EcdsaP256, _) => Ok(Made::V2(NewKey::EcdsaP256)),
        (Kind::EcdsaP384, _) => Ok(Made::V2(NewKey::EcdsaP384)),
        (Kind::Dsa, _) if version == 2 => wrong("version 2 of HIP has no DSA here", old),
        (Kind::Dsa, _) => Ok(Made::V1(v1::NewKey::Dsa1024)),
        (Kind::Rsa, Bits::B1024) if version == 2 => {
            wrong("RSA of 1,024 bits is too short for version 2 of HIP", old)
        }
        (Kind::Rsa, Bits::B1024) => Ok(Made::V1(v1::NewKey::Rsa1024)),
        (Kind::Rsa, Bits::B2048) => Ok(Made::V2(NewKey::Rsa2048)),
        (Kind::Rsa, Bits::B3072) => Ok(Made::V2(NewKey::Rsa3072)),
        (Kind::Rsa, Bits::B4096) => Ok(Made::V2(NewKey::Rsa4096)),
    }
}

fn keygen(file: &Path, kind: Made, force: bool, out: &Output) -> Result<ExitCode, Error> {
    let shown = file.display();
    if !force && file.symlink_metadata().is_ok() {
        return Err(there(file));
    }
    let failed = |what: &str| Error::new(ErrorKind::Other, format!("{shown}: {what}"));
    let pem = kind.pem().ok_or_else(|| failed("no key could be made"))?;
    let hit_v1 = identity_v1(pem.as_bytes()).map(|it| it.hit().to_string());
    let of_v2 = matches!(kind, Made::V2(_));
    let hit = if of_v2 { identity(pem.as_bytes()).map(|it| it.hit().to_string()) } else { hit_v1.clone() };
    let hit = hit.map_err(|e| failed(&e))?;
    let written = if force {
        write_atomically(file, pem.as_bytes(), 0o600)
    } else {
        create_atomically(file, pem.as_bytes(), 0o600)
    };
    written.map_err(|e| match &e {
        state::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => there(file),
        state::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            let error = Error::new(ErrorKind::Permission, format!("{shown} cannot be written: {source}"));
            error.with_change("as root, or name another file: the daemon reads it as root")
        }
        state::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            let folder = file.parent().unwrap_or(file).display();
            failed("there is no such folder").with_change(format!("mkdir {folder}, or name another file"))
        }
        _ => Error::new(ErrorKind::Other, e.to_string()),
    })?;
    let hit_v1 = hit_v1.ok();
    let reply = Reply::HipKey { file: shown.to_string(), hit: hit.clone(), hit_v1: hit_v1.clone() };
    let old = hit_v1.map(|old| format!("{old}  in version 1\n")).unwrap_or_default();
    out.print(&line(&Response::ok(reply))?, || if of_v2 { format!("{hit}\n{old}") } else { old })
}

/// A file is there, and stays as it is.
fn there(file: &Path) -> Error {
    let shown = file.display();
    let read = |pem: Vec<u8>| identity(&pem).or_else(|_| identity_v1(&pem)).ok();
    let hit = std::fs::read(file).ok().and_then(read).map(|it| it.hit());
    let what = hit.map_or_else(String::new, |hit| format!(", the key of {hit}"));
    Error::new(ErrorKind::Other, format!("{shown} is there already{what}"))
        .with_change("use it, name another file, or replace it for good by --force")
}
