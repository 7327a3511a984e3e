//! Gateway: what the machine does for clients beside the tunnel, where `pool.forward` asks for it. Owns what is ordered; a guard process does
//! it, and undoes it when the daemon ends (`dormouse_io::forward`).

use anyhow::{Context, Result};
use dormouse_control as control;
use dormouse_io::forward::{self, Guard, News, Rules};
use dormouse_node::config::Resolved;
use std::path::Path;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Forward {
    /// Registered with the poller by the loop; gone if it failed, or if nothing was to be done at the start.
    pub(crate) guard: Option<Guard>,
    /// The tunnel interface, and those beside it.
    interfaces: (String, Vec<String>),
    rules: Rules,
    /// Why it is not as ordered.
    trouble: Option<String>,
}

impl Forward {
    /// Does what the connections ask for, and undoes what an earlier run has left (`kept`). As root, before privileges are given away.
    ///
    /// # Errors
    /// If the guard cannot be started. What it cannot do is logged, and `dormouse doctor` says it.
    pub(crate) fn new(
        interfaces: (String, Vec<String>),
        connections: &[Resolved],
        kept: &Path,
    ) -> Result<Self> {
        let rules = rules(&interfaces, connections);
        let mut new = Self { guard: None, interfaces, rules: Rules::default(), trouble: None };
        let left = || kept.exists() || forward::translates().unwrap_or(false);
        if rules.is_empty() && !left() {
            return Ok(new);
        }
        let kept = kept.to_str().context("--config: the path is not UTF-8")?;
        let mut guard = Guard::spawn(&std::env::current_exe()?, &[crate::FORWARD_GUARD, kept])?;
        guard.order(&rules)?;
        let news = guard.wait().context("the process that has clients forwarded")?;
        (new.guard, new.rules) = (Some(guard), rules);
        if let Some(warning) = new.take(news) {
            tracing::error!("{warning}");
        }
        Ok(new)
    }

    /// The configuration was read again; returns the keys that only a new start can obey.
    pub(crate) fn reconfigure(&mut self, connections: &[Resolved]) -> Vec<String> {
        let rules = rules(&self.interfaces, connections);
        let Some(guard) = &mut self.guard else {
            let asks = |c: &Resolved| match (&c.forwarding, c.renewals) {
                (Some(_), _) => Some(format!("connection.{}.pool.forward", c.name)),
                (None, Some(_)) => Some(format!("connection.{}.renewals", c.name)),
                (None, None) => None,
            };
            return connections.iter().filter_map(asks).collect();
        };
        if rules != self.rules || self.trouble.is_some() {
            self.trouble = guard.order(&rules).err().map(|e| e.to_string());
            self.rules = rules;
        }
        Vec::new()
    }

    /// What the guard has to say, for people.
    pub(crate) fn news(&mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        while let Some(guard) = &mut self.guard {
            match guard.next() {
                Ok(Some(news)) => warnings.extend(self.take(news)),
                Ok(None) => break,
                Err(e) => {
                    let warning = format!("the process that has clients forwarded is gone: {e}");
                    (self.guard, self.trouble) = (None, Some(warning.clone()));
                    warnings.push(warning);
                }
            }
        }
        warnings
    }

    fn take(&mut self, news: News) -> Option<String> {
        let (trouble, warning) = match news {
            News::Done => (None, None),
            News::Restored => (
                None,
                Some("another program removed or changed the rules that translate clients' addresses; they are there again".to_owned()),
            ),
            News::Failed(why) => {
                (Some(why.clone()), Some(format!("clients reach nothing behind this gateway: {why}")))
            }
        };
        self.trouble = trouble;
        warning
    }

    /// For `dormouse doctor`; `None` where nothing is asked for.
    pub(crate) fn check(&self) -> Option<control::Check> {
        let check = |outcome, found: String, change: Option<&str>| control::Check {
            name: "forwarding".into(),
            outcome,
            found,
            change: change.map(str::to_owned),
        };
        if let Some(why) = &self.trouble {
            let change = "mend it, then systemctl reload dormoused";
            return Some(check(control::CheckOutcome::Failure, why.clone(), Some(change)));
        }
        let nets = self.rules.translated.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let found = if nets.is_empty() {
            "switched on for clients".into()
        } else {
            format!("on; what comes from {nets} leaves from this machine's own addresses")
        };
        self.rules.forwards().then(|| check(control::CheckOutcome::Ok, found, None))
    }
}

/// What the connections ask for together.
fn rules((tunnel, beside): &(String, Vec<String>), connections: &[Resolved]) -> Rules {
    let all = || connections.iter().filter_map(|c| c.forwarding.as_ref());
    let has = |v4: bool| all().flat_map(|f| &f.pool).any(|net| net.addr().is_ipv4() == v4);
    let translated = all().filter(|f| f.translate).flat_map(|f| f.pool.clone()).collect();
    let (v4, v6) = (has(true), has(false));
    let renewals = connections.iter().filter_map(|c| c.renewals).collect();
    Rules { tunnel: tunnel.clone(), beside: beside.clone(), v4, v6, translated, renewals }
}
