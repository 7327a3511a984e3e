//! What the tunnels of client connections and of HIP should carry, kept from leaving outside of them. Owns when something is held, and says what leaves
//! in clear all the same; the rules themselves are `dormouse_io::block`'s, their loading a guard process's.

use crate::args::Args;
use crate::load;
use anyhow::{Context, Result, anyhow};
use dormouse_control as control;
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_io::block::{self, Blocked, Guard, News, OnLink, Portal, Rules};
use dormouse_io::netlink::Netlink;
use dormouse_io::ownership::Namespace;
use dormouse_io::tun::Tun;
use dormouse_node::config::block::Blocking;
use dormouse_node::config::file::{self, Block as Mode};
use dormouse_node::config::{Resolved, ResolvedHip};
use dormouse_sansio::Instant;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest that a portal is open.
const PORTAL_MOST: Duration = Duration::from_secs(3600);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Block {
    /// Registered with the poller by the loop. `None`: nothing is ever held.
    pub(crate) guard: Option<Guard>,
    netlink: Netlink,
    /// The tunnel interface.
    tunnel: (u32, String),
    /// The interface of the kernel's ESP, and the port of NAT traversal.
    kernel: Option<(String, u16)>,
    /// Whom the daemon becomes.
    user: u32,
    /// Client connections and that of HIP.
    of: Of,
    /// Those that have been connected and not taken down, and whether the gateway gave name servers.
    connected: BTreeMap<String, bool>,
    on_link: Vec<OnLink>,
    portal: Option<Portal>,
    /// Why the rules are not as they should be.
    trouble: Option<String>,
}

impl Block {
    /// Takes over what an earlier run has left, and holds what is always held. As root, before privileges are given away. `kept`: where what is held is
    /// written down; `None` holds nothing, and leaves what another daemon holds.
    ///
    /// # Errors
    /// If something is to be held and nftables cannot be used here; names the key.
    pub(crate) fn new(
        tun: &Tun,
        kernel: Option<(String, u16)>,
        user: u32,
        of: Of,
        kept: Option<PathBuf>,
    ) -> Result<Self> {
        let mut new = Self {
            guard: None,
            netlink: Netlink::new()?,
            tunnel: (tun.index()?, tun.name().to_owned()),
            kernel,
            user,
            of,
            connected: BTreeMap::new(),
            on_link: Vec::new(),
            portal: None,
            trouble: None,
        };
        let Some(kept) = kept else { return Ok(new) };
        let Some((name, _)) = new.of.iter().find(|(_, b)| b.block != Mode::Off) else {
            // The configuration has changed. Without nftables there is nothing to be removed.
            if block::held().is_ok_and(|names| !names.is_empty()) {
                block::load(&Rules::default()).context("removing the block of an earlier run")?;
                tracing::info!("the block of an earlier run was removed");
            }
            block::keep(&kept, &Rules::default()).with_context(|| kept.display().to_string())?;
            return Ok(new);
        };
        let key = format!(
            "connection.{name}.block: what leaves outside of the tunnel cannot be held here; install nftables, or set block = \"off\""
        );
        let kept = kept.to_str().context("--config: the path is not UTF-8")?;
        let mut guard = Guard::spawn(&std::env::current_exe()?, &[crate::BLOCK_GUARD, kept])?;
        let left = guard.begin().with_context(|| key.clone())?;
        new.guard = Some(guard);
        let left =
            left.into_iter().filter(|name| new.of.get(name).is_some_and(|b| b.block == Mode::Connected));
        // Nothing is known yet of the gateway's name servers: those of the local network have to wait.
        new.connected = left.map(|name| (name, true)).collect();
        for name in new.connected.keys() {
            tracing::warn!(
                connection = name,
                "still held after a daemon that was killed, until it is taken down"
            );
        }
        new.look_around();
        new.hold_now();
        new.trouble.clone().map_or(Ok(new), |why| Err(anyhow!(why).context(key)))
    }

    /// Whether anything is ever held.
    pub(crate) fn is_used(&self) -> bool {
        self.guard.is_some()
    }

    fn is_held(&self, name: &str) -> bool {
        match self.of.get(name).map(|b| b.block) {
            Some(Mode::Always) => true,
            Some(Mode::Connected) => self.connected.contains_key(name),
            Some(Mode::Off) | None => false,
        }
    }

    fn rules(&self) -> Rules {
        let held = self.of.iter().filter(|(name, _)| self.is_held(name));
        Rules {
            tunnel: self.tunnel.1.clone(),
            kernel: self.kernel.clone(),
            user: self.user,
            held: held.map(|(name, b)| held_of(name, b, self.connected.get(name) == Some(&false))).collect(),
            on_link: self.on_link.clone(),
            portal: self.portal.clone(),
        }
    }

    /// Orders what is to be held; does not wait.
    fn hold(&mut self) {
        let rules = self.rules();
        if let Some(guard) = &mut self.guard
            && let Err(e) = guard.hold(&rules)
        {
            self.trouble = Some(e.to_string());
        }
    }

    /// The same, and waits until it is in force: milliseconds.
    fn hold_now(&mut self) {
        self.hold();
        self.settle();
    }

    fn settle(&mut self) {
        let Some(guard) = &mut self.guard else { return };
        let mut said = Vec::new();
        let settled = guard.settle(|news| said.push(news));
        for warning in said.into_iter().filter_map(|news| self.take(news)) {
            tracing::error!("{warning}");
        }
        if let Err(e) = settled {
            tracing::error!(%e, "applying the block rules failed");
            self.trouble = Some(e.to_string());
        }
    }

    /// What the guard says counts until it says something else. For people, if it is a reason to worry.
    fn take(&mut self, news: News) -> Option<String> {
        let (trouble, warning) = match news {
            News::Held => (None, None),
            News::Restored => (
                None,
                Some("another program removed or changed the rules that keep traffic in the tunnel; they are there again".to_owned()),
            ),
            News::Lost(why) => {
                let warning = format!("the rules that keep traffic in the tunnel are not there, and are tried again: {why}");
                (Some(why), Some(warning))
            }
        };
        self.trouble = trouble;
        warning
    }

    /// The tunnel carries something from now on; before its routes are set.
    pub(crate) fn connected(&mut self, name: &str, assigned: &AssignedConfig) {
        let names = !assigned.dns.is_empty();
        let changed = self.connected.insert(name.to_owned(), names) != Some(names);
        if self.is_held(name) && (changed || self.trouble.is_some()) {
            self.hold_now();
        }
    }

    /// The user takes it down.
    pub(crate) fn down(&mut self, name: &str) {
        let held = self.is_held(name);
        if self.connected.remove(name).is_some() && held {
            self.hold_now();
        }
    }

    /// The daemon stops in good order: what is not always held is open.
    pub(crate) fn end(&mut self) {
        self.connected.clear();
        self.portal = None;
        self.hold_now();
    }

    /// The configuration was read again. Connections that are new or changed need [`Block::can_hold`].
    ///
    /// # Errors
    /// If something is to be held and cannot be. What was held before is ordered again.
    pub(crate) fn reconfigure(&mut self, of: Of) -> Result<()> {
        let of = std::mem::replace(&mut self.of, of);
        let connected = self.connected.clone();
        self.connected.retain(|name, _| self.of.contains_key(name));
        self.hold_now();
        let holds = self.of.keys().any(|name| self.is_held(name));
        let Some(why) = self.trouble.clone().filter(|_| holds) else { return Ok(()) };
        (self.of, self.connected) = (of, connected);
        self.hold_now();
        Err(anyhow!(why).context("traffic outside the tunnel cannot be blocked now"))
    }

    /// Whether what is to be held for a connection can be: only a new start makes the guard.
    pub(crate) fn can_hold(&self, blocking: &Blocking) -> bool {
        self.guard.is_some() || blocking.block == Mode::Off
    }

    /// What is held for a connection, and when.
    #[cfg(feature = "hip")]
    pub(crate) fn of(&self, name: &str) -> Option<Blocking> {
        self.of.get(name).cloned()
    }

    /// Links, addresses or routes may have changed.
    pub(crate) fn network_changed(&mut self) {
        if self.is_used() && self.look_around() {
            self.hold();
        }
    }

    fn look_around(&mut self) -> bool {
        let found = self.netlink.local_networks(self.tunnel.0).unwrap_or_default().into_iter();
        let found: Vec<OnLink> = found.map(|(interface, net)| OnLink { interface, net }).collect();
        let changed = found != self.on_link;
        self.on_link = found;
        changed
    }

    /// What the guard has to say, for people.
    ///
    /// # Errors
    /// If it is gone: only a new start, as root, makes another one. The rules stay.
    pub(crate) fn news(&mut self) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        while let Some(guard) = &mut self.guard {
            let news = guard.next().context("the process that keeps traffic in the tunnel is gone")?;
            let Some(news) = news else { break };
            warnings.extend(self.take(news));
        }
        Ok(warnings)
    }

    /// Opens the way to the local routers and to `more` for a while; 0 seconds: closes it.
    pub(crate) fn open_portal(
        &mut self,
        now: Instant,
        more: Vec<IpAddr>,
        time: Duration,
    ) -> Result<control::Portal, control::Error> {
        let refuse = |kind, why: String| Err(control::Error::new(kind, why));
        if time > PORTAL_MOST {
            return refuse(control::ErrorKind::Request, format!("{time:?} is longer than {PORTAL_MOST:?}"));
        }
        if !self.of.keys().any(|name| self.is_held(name)) {
            return refuse(control::ErrorKind::Other, "nothing is held: every way is open already".into());
        }
        let mut addresses = self.netlink.routers().unwrap_or_default();
        addresses.extend(more);
        if addresses.is_empty() && !time.is_zero() {
            return refuse(control::ErrorKind::NotConnected, "there is no router: no network".into());
        }
        let until = now + time - Instant::ZERO;
        let portal = Portal { addresses: addresses.into_iter().collect(), until };
        self.portal = Some(portal).filter(|_| !time.is_zero());
        self.hold_now();
        if let Some(why) = &self.trouble {
            return refuse(control::ErrorKind::Other, why.clone());
        }
        tracing::warn!(addresses = ?self.portal.as_ref().map(|p| &p.addresses), ?time, "open for a captive portal");
        Ok(self.portal(now).unwrap_or(control::Portal { addresses: Vec::new(), seconds: 0.0 }))
    }

    /// What is open for a captive portal now.
    pub(crate) fn portal(&self, now: Instant) -> Option<control::Portal> {
        let portal = self.portal.as_ref()?;
        let left = portal.until.saturating_sub(now - Instant::ZERO);
        let open = control::Portal { addresses: portal.addresses.clone(), seconds: left.as_secs_f64() };
        Some(open).filter(|_| !left.is_zero())
    }

    /// The block of one connection.
    pub(crate) fn status(&self, name: &str) -> Option<control::BlockStatus> {
        let mode = match self.of.get(name)?.block {
            Mode::Off => control::BlockMode::Off,
            Mode::Connected => control::BlockMode::Connected,
            Mode::Always => control::BlockMode::Always,
        };
        Some(control::BlockStatus { mode, holds: self.is_held(name) && self.trouble.is_none() })
    }

    /// What leaves outside of the tunnels now. `routes`: what leads into the tunnel of a connection that is up; `None`: it is not.
    pub(crate) fn in_clear(
        &mut self,
        now: Instant,
        routes: impl Fn(&str) -> Option<Vec<IpNet>>,
    ) -> Vec<control::InClear> {
        if !self.is_used() {
            self.look_around();
        }
        let mut all = Vec::new();
        let local: Vec<_> = self.on_link.iter().map(|o| format!("{} over {}", o.net, o.interface)).collect();
        for (name, b) in &self.of {
            let mut say = |what: String, why: &str, intended| {
                all.push(control::InClear { connection: name.clone(), what, why: why.into(), intended });
            };
            if self.is_held(name) {
                if let Some(why) = &self.trouble {
                    say(list(&b.carried), &format!("the rules are not there: {why}"), false);
                }
                if b.local_network && !local.is_empty() {
                    say(format!("the local network {}", list(&local)), "local_network = true", true);
                    if self.connected.get(name) == Some(&false) {
                        say(
                            "names asked of the local network".into(),
                            "the gateway gives no name server",
                            false,
                        );
                    }
                }
                if let Some(portal) = self.portal(now) {
                    let what = format!("{} for {:.0} s", list(&portal.addresses), portal.seconds);
                    say(what, "dormouse portal", true);
                }
                continue;
            }
            let off = b.block == Mode::Off;
            match routes(name) {
                None if off => say(list(&b.carried), "the connection is not up, and block = \"off\"", false),
                None => say(
                    list(&b.carried),
                    "not connected yet, and block = \"connected\" begins with that",
                    false,
                ),
                Some(routes) => {
                    let astray = b.carried.iter().filter(|net| !routes.iter().any(|r| r.contains(*net)));
                    let astray: Vec<_> = astray.collect();
                    if !astray.is_empty() {
                        say(list(&astray), "the gateway does not carry it, and block = \"off\"", false);
                    }
                    if b.is_full() && !local.is_empty() {
                        let why = if b.local_network { "local_network = true" } else { "block = \"off\"" };
                        say(format!("the local network {}", list(&local)), why, b.local_network);
                    }
                }
            }
        }
        all
    }

    /// For `dormouse doctor`: looks whether the rules are there, and says what leaves.
    pub(crate) fn check(&mut self, in_clear: &[control::InClear]) -> control::Check {
        let check = |outcome, found: String, change: Option<&str>| control::Check {
            name: "in clear".into(),
            outcome,
            found,
            change: change.map(str::to_owned),
        };
        let say = |c: &control::InClear| format!("{}: {} ({})", c.connection, c.what, c.why);
        let (intended, astray): (Vec<_>, Vec<_>) = in_clear.iter().partition(|c| c.intended);
        let text = |list: &[&control::InClear]| list.iter().map(|c| say(c)).collect::<Vec<_>>().join("; ");
        if self.trouble.is_some() {
            return check(control::CheckOutcome::Failure, text(&astray), Some("systemctl restart dormoused"));
        }
        if !astray.is_empty() {
            let change = "block = \"connected\" or \"always\" for the connection (docs/leaks.md)";
            return check(control::CheckOutcome::Warning, text(&astray), Some(change));
        }
        let found = if intended.is_empty() { "nothing".into() } else { text(&intended) };
        check(control::CheckOutcome::Ok, found, None)
    }

    /// Looks whether the rules are there, and puts them back if not.
    pub(crate) fn look(&mut self) {
        if let Some(guard) = &mut self.guard
            && let Err(e) = guard.check()
        {
            self.trouble = Some(e.to_string());
        }
        self.settle();
    }
}

/// What is to be held, by connection.
pub(crate) type Of = BTreeMap<String, Blocking>;

/// For these connections, and that of HIP.
pub(crate) fn blocking(connections: &[Resolved], hip: Option<&ResolvedHip>) -> Of {
    let all = connections.iter().map(|c| (&c.name, &c.blocking));
    let all = all.chain(hip.map(|hip| (&hip.name, &hip.blocking)));
    all.filter_map(|(name, b)| Some((name.clone(), b.clone()?))).collect()
}

fn held_of(name: &str, b: &Blocking, local_names: bool) -> Blocked {
    Blocked {
        connection: name.to_owned(),
        carried: b.carried.clone(),
        exact: b.exact.clone(),
        own: b.own.clone(),
        local_network: b.local_network,
        local_names,
        always: b.block == Mode::Always,
        inward: b.inward,
    }
}

fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Where what is always held is written down: beside the configuration, where root alone may write.
pub(crate) fn kept_at(args: &Args) -> PathBuf {
    args.config.with_extension("held")
}

/// `dormoused --block-only`: holds what is always held, and ends; at boot, before there is a network. A daemon that runs does so itself.
/// A configuration that cannot be read is an error, but opens nothing: what the last good one always held is held.
///
/// # Errors
/// If the configuration is wrong, or nftables cannot be used here.
pub(crate) fn only(args: &Args) -> Result<()> {
    if let Some(pid) = Namespace::owner() {
        println!("process {pid} is the daemon and holds what is to be held");
        return Ok(());
    }
    let path = kept_at(args);
    let error = match hold_configured(args) {
        Ok(rules) => {
            if let Err(e) = block::keep(&path, &rules) {
                eprintln!(
                    "{}: {e}; a boot without a configuration would hold something else",
                    path.display()
                );
            }
            if rules.held.is_empty() {
                println!("no connection has block = \"always\": nothing is held");
            } else {
                println!("held, until dormoused --unblock: {}", names(&rules));
            }
            return Ok(());
        }
        Err(e) => e,
    };
    match block::kept(&path) {
        Ok(None) => Err(error),
        Ok(Some(rules)) => {
            block::load(&rules).with_context(|| {
                format!("{}; loading the previous rules failed too", dormouse_io::causes(&*error))
            })?;
            Err(error.context(format!("held, as an earlier configuration says: {}", names(&rules))))
        }
        Err(e) => Err(error.context(format!("nothing is held: {e}"))),
    }
}

/// What the configuration always holds; it is in force.
fn hold_configured(args: &Args) -> Result<Rules> {
    let file = load::written(args)?;
    let empty = file.connection.is_empty() && file.router.is_none();
    anyhow::ensure!(!empty, "{}: no connection is configured", args.config.display());
    let always = |(name, c): (&String, &file::Connection)| {
        Blocking::of(c).filter(|b| b.block == Mode::Always).map(|b| held_of(name, &b, false))
    };
    let held: Vec<Blocked> = file.connection.iter().filter_map(always).collect();
    let rules = Rules { tunnel: file.daemon.interface.clone(), held, ..Rules::default() };
    if !rules.held.is_empty() {
        block::load(&rules)?;
    }
    Ok(rules)
}

fn names(rules: &Rules) -> String {
    list(&rules.held.iter().map(|h| &h.connection).collect::<Vec<_>>())
}

/// `dormoused --unblock`: ends what a daemon has left held.
///
/// # Errors
/// If a daemon runs, or nftables cannot be used here.
pub(crate) fn end() -> Result<()> {
    if let Some(pid) = Namespace::owner() {
        anyhow::bail!(
            "process {pid} is the daemon: dormouse down, or set block = \"off\" and reload it, or stop it first"
        );
    }
    let names = block::held()?;
    block::load(&Rules::default())?;
    println!(
        "{}",
        if names.is_empty() { "nothing was held".into() } else { format!("open: {}", list(&names)) }
    );
    Ok(())
}
