//! How the Host Identity Protocol's state looks to people. Owns layout only; decides nothing.

use crate::style::{Style, block_words, bytes, columns, duration, field};
use dormouse_control::{HipPeer, HipRegistration, HipState, HipStatus};
use dormouse_report::Table;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Associations that are shown; the rest is counted.
const MOST: usize = 50;

/// A peer's name, or its HIT.
pub(crate) fn called(peer: &HipPeer) -> String {
    peer.names.first().unwrap_or(&peer.hit).clone()
}

/// The identity of this host that a peer speaks with, if that is one with a name.
fn by(peer: &HipPeer, it: &HipStatus) -> String {
    let ours = it.identities.iter().find(|ours| ours.hit == peer.identity);
    ours.and_then(|ours| ours.name.as_ref()).map(|name| format!(" (as {name})")).unwrap_or_default()
}

/// This host and its associations.
pub(crate) fn status(it: &HipStatus, style: Style) -> String {
    let mut out = format!("{}  {}\n", style.strong(&it.connection), it.hit);
    for other in it.identities.iter().filter(|other| other.hit != it.hit || other.version == 1) {
        let version = if other.version == 1 { " (version 1)" } else { "" };
        match &other.name {
            Some(name) => field(&mut out, style, "identity", &format!("{}  {name}{version}", other.hit)),
            None => field(&mut out, style, &format!("version {}", other.version), &other.hit),
        }
    }
    if let Some(lsi) = &it.lsi {
        field(&mut out, style, "for IPv4", &format!("{lsi}, on this host alone"));
    }
    if let Some(names) = &it.names {
        let how = if names.asked { String::new() } else { format!(", if {} is asked", names.server) };
        field(&mut out, style, "names", &format!("NAME.{}{how}", names.domain));
    }
    field(&mut out, style, "listens", &it.carriers.join(", "));
    field(
        &mut out,
        style,
        "accepts",
        if it.accepts_any { "anyone who proves an identity" } else { "its peers" },
    );
    let roles = [(it.rendezvous_server, "a rendezvous server"), (it.relay_server, "a relay")];
    let roles: Vec<&str> = roles.iter().filter(|(is, _)| *is).map(|(_, role)| *role).collect();
    if !roles.is_empty() {
        let clients = it.peers.iter().filter(|p| p.registration == Some(HipRegistration::OfPeer)).count();
        field(&mut out, style, "serves", &format!("as {}, {clients} registered", roles.join(" and ")));
    }
    for p in &it.peers {
        match &p.registration {
            Some(HipRegistration::AtPeer) => {
                field(&mut out, style, "registered", &format!("at {}", called(p)))
            }
            Some(HipRegistration::Refused { why }) => {
                let text = format!("{} refuses: {why}", called(p));
                field(&mut out, style, "unregistered", &style.bad(&text));
            }
            Some(HipRegistration::OfPeer) | None => {}
        }
    }
    if let Some(block) = it.block {
        field(&mut out, style, "block", &block_words(block, style));
    }
    let mut table = Table::words(["peer", "state", "path", "ESP", "age", "quiet", "in", "out"]);
    let there = |p: &&HipPeer| p.state != HipState::Down || p.last_error.is_some() || it.peers.len() == 1;
    let shown: Vec<&HipPeer> = it.peers.iter().filter(there).collect();
    for p in shown.iter().take(MOST) {
        let of_esp =
            |f: &dyn Fn(&dormouse_control::SaStatus) -> String| p.esp.as_ref().map(f).unwrap_or_default();
        let old = if p.version == 1 { " (version 1)" } else { "" };
        table.row([
            called(p) + &by(p, it) + old,
            state(p, style),
            path(p),
            of_esp(&|esp| esp.suite.clone()),
            of_esp(&|esp| duration(esp.age_seconds)),
            p.quiet_seconds.map(duration).unwrap_or_default(),
            bytes(p.traffic.bytes_in),
            bytes(p.traffic.bytes_out),
        ]);
    }
    out.push_str(&columns(&table, style));
    let sleeping = shown.iter().filter_map(|p| Some((p, p.stand_in.as_ref()?.asleep?)));
    for (p, sleep) in sleeping.take(MOST) {
        let (since, until) = (duration(sleep.since_seconds), duration(sleep.until_seconds));
        let text = format!("{} since {since}, kept for {until}, {} packets wait", called(p), sleep.packets);
        field(&mut out, style, "asleep", &text);
    }
    if shown.len() > MOST {
        let _ = writeln!(out, "  and {} more (--json shows all)", shown.len() - MOST);
    }
    for error in shown.iter().filter_map(|p| p.last_error.as_ref()) {
        field(&mut out, style, "failed", &style.bad(&error.message));
        field(&mut out, style, "change", error.change.as_deref().unwrap_or_default());
    }
    out
}

/// The directory.
pub(crate) fn peers(it: &HipStatus, style: Style) -> String {
    if it.peers.is_empty() {
        return format!("no peer is configured: [[connection.{}.hip.peers]]\n", it.connection);
    }
    let mut table = Table::words(["name", "HIT", "version", "LSI", "state", "addresses"]);
    for p in &it.peers {
        let lsi = p.lsi.clone().unwrap_or_default();
        let version = p.version.to_string();
        let name = p.names.join(" ") + &by(p, it);
        table.row([name, p.hit.clone(), version, lsi, state(p, style), whereabouts(p)]);
    }
    columns(&table, style)
}

/// Addresses, those of rendezvous servers behind an `@`, as in the mapping file, and those of relays.
fn whereabouts(peer: &HipPeer) -> String {
    let servers = peer.rendezvous.iter().map(|server| format!("@{server}"));
    let relays = peer.relays.iter().map(|relay| format!("{relay} (relay)"));
    peer.addresses.iter().cloned().chain(servers).chain(relays).collect::<Vec<_>>().join(" ")
}

/// Lines for `/etc/hosts`.
pub(crate) fn hosts(it: &HipStatus) -> String {
    // One with which two identities of this host speak is listed twice.
    let mut listed = BTreeSet::new();
    let named = it.peers.iter().filter(|p| !p.names.is_empty() && listed.insert(&p.hit));
    let lines = named.flat_map(|p| [Some(&p.hit), p.lsi.as_ref()].map(|address| (address, p)));
    lines.filter_map(|(address, p)| Some(format!("{} {}\n", address?, p.names.join(" ")))).collect()
}

/// Where packets go and how.
fn path(peer: &HipPeer) -> String {
    let Some(path) = &peer.path else { return String::new() };
    let esp = if peer.esp_in_udp && !path.ends_with("(UDP)") { ", ESP in UDP" } else { "" };
    format!("{path}{}{esp}", if peer.relayed { ", a relay" } else { "" })
}

fn state(peer: &HipPeer, style: Style) -> String {
    match peer.state {
        _ if peer.denied => style.bad("denied"),
        HipState::Up if peer.asleep => style.strong("asleep"),
        HipState::Up => style.good(peer.state.name()),
        HipState::Down if peer.last_error.is_some() => style.warning("failed"),
        other => other.name().to_owned(),
    }
}
