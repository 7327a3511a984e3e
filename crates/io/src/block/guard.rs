//! The block's guard: a process that stays root with `CAP_NET_ADMIN` while the daemon becomes an ordinary user, loads the rules that the
//! daemon orders, and puts them back when another program removes or changes them (`nft flush ruleset`). While they cannot be loaded it
//! tries again, each [`RETRY`] and whenever nftables changes.
//!
//! Unlike the other guards it restores nothing at its end: rules that the daemon did not order away stay in the kernel. A daemon that is
//! killed leaves the block as it was, and the next one takes it over ([`Guard::begin`]).

use super::{Rules, keep, listing, load};
use crate::helper::{self, Helper, Turn};
use crate::netlink::FilterChanges;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two attempts to load rules that are not as ordered.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Begin,
    Hold(Rules),
    Check,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    /// To [`Order::Begin`].
    Found(Vec<String>),
    /// To any order.
    Answer(News),
    Unasked(News),
}

/// What the guard says about the rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum News {
    /// They are as ordered.
    Held,
    /// Another program removed or changed the rules; they are there again.
    Restored,
    /// The rules are not there, and why.
    Lost(String),
}

/// The daemon's end. Dropping it changes no rule.
#[derive(Debug)]
pub struct Guard {
    helper: Helper,
    /// Orders that are not answered yet.
    due: usize,
}

impl Guard {
    /// Starts `program` with `arguments`, which must end up in [`serve`] with a path. Before privileges are dropped.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        Ok(Self { helper: Helper::spawn(program, arguments)?, due: 0 })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.helper.pid()
    }

    /// Waits for the connections that an earlier run has left something held for. Their rules stay until [`Guard::hold`].
    ///
    /// # Errors
    /// If nftables cannot be used here, in words.
    pub fn begin(&mut self) -> io::Result<Vec<String>> {
        self.helper.order(&Order::Begin)?;
        match self.helper.wait()? {
            Reply::Found(names) => Ok(names),
            Reply::Answer(News::Lost(why)) => Err(io::Error::other(why)),
            Reply::Answer(_) | Reply::Unasked(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Orders `rules` in the place of those that are there. Never waits.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn hold(&mut self, rules: &Rules) -> io::Result<()> {
        self.helper.order(&Order::Hold(rules.clone()))?;
        self.due += 1;
        Ok(())
    }

    /// Orders a look at whether the rules are there; they are put back if not. Never waits.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn check(&mut self) -> io::Result<()> {
        self.helper.order(&Order::Check)?;
        self.due += 1;
        Ok(())
    }

    /// Waits until every order is answered. What the answers say, and what came unasked between them, goes to `told`: the last one counts.
    ///
    /// # Errors
    /// If the guard is gone, or takes longer than any helper may.
    pub fn settle(&mut self, mut told: impl FnMut(News)) -> io::Result<()> {
        while self.due > 0 {
            let reply = self.helper.wait()?;
            self.take(reply).into_iter().for_each(&mut told);
        }
        Ok(())
    }

    /// What is new, if anything is. Never waits.
    ///
    /// # Errors
    /// If the guard is gone or talks nonsense: take it out of the poller.
    #[expect(
        clippy::should_implement_trait,
        reason = "the convention of the I/O parts: `next` never blocks and may fail"
    )]
    pub fn next(&mut self) -> io::Result<Option<News>> {
        while let Some(reply) = self.helper.next()? {
            if let Some(news) = self.take(reply) {
                return Ok(Some(news));
            }
        }
        Ok(None)
    }

    fn take(&mut self, reply: Reply) -> Option<News> {
        match reply {
            Reply::Found(_) => None,
            Reply::Answer(news) => {
                self.due = self.due.saturating_sub(1);
                Some(news)
            }
            Reply::Unasked(news) => Some(news),
        }
    }
}

crate::as_fd!(Guard, helper);

/// The guard itself: obeys the orders that come in on standard input, and watches nftables, until the daemon ends. What is always held it
/// writes into the file `path` ([`keep`]).
///
/// # Errors
/// If signals or capabilities cannot be given up, or the kernel has no nftables.
pub fn serve(path: &Path) -> io::Result<()> {
    let socket = helper::begin()?;
    if nix::unistd::geteuid().is_root() {
        crate::privileges::keep_net_admin_in_programs()?;
    }
    // It also hears of its own changes: one look more for each.
    let changes = FilterChanges::new()?;
    let mut keeper = Keeper { rules: Rules::default(), loaded: Ok(None), path: path.into(), kept: None };
    helper::serve_beside(&socket, Some(changes.as_fd()), |turn| {
        let said = match turn {
            Turn::Order(order) => Some(keeper.obey(order)),
            Turn::Beside => {
                changes.drain();
                keeper.look().map(Reply::Unasked)
            }
        };
        (said, keeper.loaded.is_err().then_some(RETRY))
    });
    // The daemon may have been killed in the middle of an order.
    keeper.look();
    Ok(())
}

/// What stands in the kernel because of us.
#[derive(Debug)]
struct Keeper {
    rules: Rules,
    /// The table as it was listed after it was loaded, `None` if there was to be none; or why it is not as ordered.
    loaded: Result<Option<String>, String>,
    path: PathBuf,
    /// What stands in the file, if it was written.
    kept: Option<Rules>,
}

impl Keeper {
    fn obey(&mut self, order: Result<Order, String>) -> Reply {
        Reply::Answer(match order {
            Ok(Order::Begin) => match super::held() {
                Ok(names) => return Reply::Found(names),
                Err(e) => News::Lost(e.to_string()),
            },
            Ok(Order::Hold(rules)) => {
                self.rules = rules;
                self.keep();
                self.load().map_or_else(News::Lost, |()| News::Held)
            }
            Ok(Order::Check) => {
                let news = self.look().unwrap_or(News::Held);
                self.loaded.clone().map_or_else(News::Lost, |_| news)
            }
            Err(why) => News::Lost(why),
        })
    }

    fn keep(&mut self) {
        let always = Some(self.rules.always());
        if self.kept != always {
            match keep(&self.path, &self.rules) {
                Ok(()) => self.kept = always,
                Err(error) => {
                    tracing::warn!(%error, file = %self.path.display(), "boot-time block rules could not be saved");
                }
            }
        }
    }

    fn load(&mut self) -> Result<(), String> {
        self.loaded = load(&self.rules).and_then(|()| listing()).map_err(|e| e.to_string());
        if matches!(&self.loaded, Ok(table) if table.is_some() == self.rules.held.is_empty()) {
            self.loaded = Err("another program changes nftables at the same time".into());
        }
        self.loaded.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Loads the rules again if they are not there, or are others. Something is said only if it is new.
    fn look(&mut self) -> Option<News> {
        let known = match &self.loaded {
            Ok(_) if self.rules.held.is_empty() => return None,
            Ok(table) if listing().is_ok_and(|now| now == *table) => return None,
            Ok(_) => None,
            Err(why) => Some(why.clone()),
        };
        match self.load() {
            Ok(()) if self.rules.held.is_empty() => Some(News::Held),
            Ok(()) => Some(News::Restored),
            Err(why) => Some(why).filter(|why| known.as_ref() != Some(why)).map(News::Lost),
        }
    }
}
