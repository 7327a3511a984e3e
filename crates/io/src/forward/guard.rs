//! The forwarding's guard: a process that stays root with `CAP_NET_ADMIN` while the daemon becomes an ordinary user, and undoes everything
//! when the daemon ends, however it ends. It puts the table back when another program removes or changes it (`nft flush ruleset`).

use super::switches::Switches;
use super::{Rules, TABLE, load};
use crate::helper::{self, Helper, Turn};
use crate::netlink::FilterChanges;
use crate::nft;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What the guard says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum News {
    /// Everything is as ordered.
    Done,
    /// Another program removed or changed the table; it is there again.
    Restored,
    /// Something is not as ordered, and why.
    Failed(String),
}

/// The daemon's end. Dropping it undoes everything and waits until that is done.
#[derive(Debug)]
pub struct Guard(Helper);

impl Guard {
    /// Starts `program` with `arguments`, which must end up in [`serve`] with a path. Before privileges are dropped.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        Helper::spawn(program, arguments).map(Self)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Orders `rules` in the place of those before. Never waits; [`Guard::next`] has the answer.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn order(&mut self, rules: &Rules) -> io::Result<()> {
        self.0.order(rules)
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
        self.0.next()
    }

    /// Waits for the answer to an order: at the start, when nothing else is to be done.
    ///
    /// # Errors
    /// As [`Guard::next`].
    pub fn wait(&mut self) -> io::Result<News> {
        self.0.wait()
    }

    /// Makes it undo everything and end without waiting for that, as dropping it does.
    pub fn release(&mut self) {
        self.0.release();
    }
}

crate::as_fd!(Guard, 0);

/// The guard itself: obeys the orders that come in on standard input, and watches nftables, until the daemon ends; then it undoes
/// everything. What that is stands in the file `kept` meanwhile.
///
/// # Errors
/// If signals or capabilities cannot be given up, or the kernel has no nftables.
pub fn serve(kept: &Path) -> io::Result<()> {
    let socket = helper::begin()?;
    if nix::unistd::geteuid().is_root() {
        crate::privileges::keep_net_admin_in_programs()?;
    }
    // It also hears of its own changes: one look more for each.
    let changes = FilterChanges::new()?;
    let mut keeper = Keeper {
        rules: Rules::default(),
        table: Ok(None),
        switches: Switches::new(PathBuf::from("/proc/sys"), kept),
    };
    helper::serve_beside(&socket, Some(changes.as_fd()), |turn| {
        let said = match turn {
            Turn::Order(Ok(rules)) => Some(keeper.obey(rules)),
            Turn::Order(Err(why)) => Some(News::Failed(why)),
            Turn::Beside => {
                changes.drain();
                keeper.look()
            }
        };
        (said, None)
    });
    if let News::Failed(why) = keeper.obey(Rules::default()) {
        tracing::error!(%why, "what clients were forwarded by is left behind");
    }
    Ok(())
}

/// What stands in the kernel because of us.
#[derive(Debug)]
struct Keeper {
    rules: Rules,
    /// The table as it was listed after it was loaded, `None` if there was to be none; or why it is not as ordered.
    table: Result<Option<String>, String>,
    switches: Switches,
}

impl Keeper {
    fn obey(&mut self, rules: Rules) -> News {
        self.rules = rules;
        self.put().map_or_else(News::Failed, |()| News::Done)
    }

    /// First translates, then forwards. What is to be translated and cannot be is not forwarded: it would leave from private addresses.
    fn put(&mut self) -> Result<(), String> {
        let table = self.load();
        let (v4, v6) = self.rules.forwarded(table.is_ok());
        let switches = self.switches.set(v4, v6);
        table.and(switches)
    }

    fn load(&mut self) -> Result<(), String> {
        let nothing = !self.rules.has_table();
        // Without nftables there is nothing to be removed.
        self.table = match nft::table(TABLE) {
            Ok(None) | Err(_) if nothing => Ok(None),
            _ => load(&self.rules).and_then(|()| nft::table(TABLE)).map_err(|e| e.to_string()),
        };
        if matches!(&self.table, Ok(found) if found.is_some() == nothing) {
            self.table = Err("another program changes nftables at the same time".into());
        }
        self.table.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Loads the table again if it is not there, or is another. Something is said only if it is new.
    fn look(&mut self) -> Option<News> {
        let known = match &self.table {
            Ok(_) if !self.rules.has_table() => return None,
            Ok(table) if nft::table(TABLE).is_ok_and(|now| now == *table) => return None,
            Ok(_) => None,
            Err(why) => Some(why.clone()),
        };
        match self.put() {
            Ok(()) => Some(News::Restored),
            Err(why) => Some(why).filter(|why| known.as_ref() != Some(why)).map(News::Failed),
        }
    }
}
