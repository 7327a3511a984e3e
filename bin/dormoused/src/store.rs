//! What outlives the daemon: tickets of clients, ticket keys and spent tickets of the gateway, leases. Owns the names of the
//! files; a failure to write is reported and the daemon goes on from memory.

use anyhow::{Context, Result};
use dormouse_crypto::Secret;
use dormouse_ike::load::LoadHistory;
use dormouse_ike::ticket::{ClientTicket, TicketGuard, TicketKeys};
use dormouse_io::entropy::OsEntropy;
use dormouse_io::leases::{self, LeaseStore, StoredLease};
use dormouse_io::state::{Log, StateDir};
use dormouse_node::pool::{Addresses, Change, Pool};
use dormouse_sansio::UnixTime;
use std::path::Path;
use std::time::Duration;

const TICKET_KEYS: &str = "ticket-keys";
const SPENT: &str = "spent-tickets";
const LEASES: &str = "leases.db";
const HISTORY: &str = "sleep-history";
const LOAD: &str = "load-history";
const REVOCATIONS: &str = "revocations-";
/// A new ticket key each day: what one key exposes is bounded by a day of tickets.
const ROTATE: Duration = Duration::from_secs(24 * 3600);
/// The log of spent tickets is rewritten without expired ones when it has grown to this many bytes.
const SPENT_MOST: u64 = 4 << 20;

/// The state directory, open.
#[derive(Debug)]
pub(crate) struct Store {
    dir: StateDir,
    spent: Option<Log>,
    leases: Option<LeaseStore>,
}

/// What the gateway side starts from.
pub(crate) struct GatewayState {
    pub(crate) keys: TicketKeys,
    pub(crate) guard: TicketGuard,
}

impl Store {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it cannot be made or is open to others; names it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let dir = StateDir::open(path).with_context(|| format!("daemon.state_dir: {}", path.display()))?;
        Ok(Self { dir, spent: None, leases: None })
    }

    /// Ticket keys and spent tickets of earlier runs; new keys if there are none, or if they are unreadable.
    ///
    /// # Errors
    /// If they cannot be read or written.
    pub(crate) fn gateway(&mut self, now: UnixTime, ticket_lifetime: Duration) -> Result<GatewayState> {
        let keep = ROTATE + ticket_lifetime;
        let stored = self.dir.read(TICKET_KEYS)?.map(|bytes| TicketKeys::import(&bytes, ROTATE, keep));
        let mut keys = match stored {
            Some(Ok(keys)) => keys,
            other => {
                if let Some(Err(e)) = other {
                    tracing::warn!(%e, "the ticket keys are unreadable and replaced: tickets in the field are refused");
                }
                TicketKeys::generate(now, ROTATE, keep, &mut OsEntropy)
            }
        };
        keys.rotate(now, &mut OsEntropy);
        self.dir.write(TICKET_KEYS, keys.export().as_bytes())?;
        let (mut log, records) = self.dir.log(SPENT)?;
        let guard = TicketGuard::load(&records, now);
        log.rewrite(&guard.export())?;
        self.spent = Some(log);
        Ok(GatewayState { keys, guard })
    }

    /// Opens the leases and puts them back into `pool`. A damaged file is put aside: a gateway that serves with new addresses is
    /// better than one that does not start.
    ///
    /// # Errors
    /// If the database cannot be opened or read, or is of a later release.
    pub(crate) fn leases(&mut self, pool: &mut Pool) -> Result<()> {
        let path = self.dir.path(LEASES);
        let open = || LeaseStore::open(&path).and_then(|store| store.load().map(|leases| (store, leases)));
        let (store, leases) = match open() {
            Err(leases::Error::Damaged { .. }) => {
                let kept = self.put_aside(LEASES);
                // They belong to the damaged file, and would damage a new one.
                for journal in ["-wal", "-shm"] {
                    self.dir.remove(&format!("{LEASES}{journal}"))?;
                }
                tracing::warn!(kept, "the leases are unreadable: clients get their addresses anew");
                open()?
            }
            other => other?,
        };
        for lease in leases {
            pool.restore(&lease.identity, Addresses { v4: lease.v4, v6: lease.v6 });
        }
        self.leases = Some(store);
        Ok(())
    }

    /// The ticket of a client connection, if there is one that can still be used.
    pub(crate) fn ticket(&self, connection: &str, now: UnixTime) -> Option<ClientTicket> {
        let bytes = match self.dir.read(&ticket_file(connection)) {
            Ok(bytes) => Secret::from(bytes?),
            Err(e) => {
                tracing::warn!(%e, "the ticket is not used");
                return None;
            }
        };
        match ClientTicket::decode(bytes.as_bytes()) {
            Ok(ticket) => Some(ticket).filter(|t| t.is_valid(now)),
            Err(e) => {
                tracing::warn!(%e, connection, "the stored ticket is unreadable and not used");
                None
            }
        }
    }

    /// Keeps or removes a client's ticket.
    /// "A ticket is associated with a certain identity, and MUST be managed securely on the client side." (RFC 5723 section
    /// 9.7) The file is its owner's alone.
    ///
    /// # Errors
    /// Names the file; a full disk leaves the old ticket, which the gateway has used up: the next start is a full exchange.
    pub(crate) fn set_ticket(&self, connection: &str, bytes: Option<&Secret>) -> Result<()> {
        let name = ticket_file(connection);
        match bytes {
            Some(bytes) => self.dir.write(&name, bytes.as_bytes())?,
            None => self.dir.remove(&name)?,
        }
        Ok(())
    }

    /// What the sleeper learned in earlier runs; `None` if this is the first.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn history(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.dir.read(HISTORY)?)
    }

    /// Keeps what the sleeper has learned.
    ///
    /// # Errors
    /// Names the file; the old content is still there then.
    pub(crate) fn set_history(&self, bytes: &[u8]) -> Result<()> {
        self.dir.write(HISTORY, bytes)?;
        Ok(())
    }

    /// A history that cannot be used is kept beside its place, for a look at why. Returns its new name.
    pub(crate) fn put_history_aside(&self) -> String {
        self.put_aside(HISTORY)
    }

    fn put_aside(&self, name: &str) -> String {
        let aside = format!("{name}.damaged");
        match std::fs::rename(self.dir.path(name), self.dir.path(&aside)) {
            Ok(()) => aside,
            Err(e) => format!("not kept: {e}"),
        }
    }

    /// What the gateway learned about latency and load in earlier runs; nothing if this is the first, or if the file is of no use,
    /// which costs some days of forecasts and no more.
    pub(crate) fn load_history(&self) -> LoadHistory {
        match self.dir.read(LOAD) {
            Ok(None) => LoadHistory::new(),
            Ok(Some(bytes)) => LoadHistory::import(&bytes).unwrap_or_else(|| {
                let kept = self.put_aside(LOAD);
                let bytes = bytes.len();
                tracing::warn!(bytes, kept, "the load of earlier runs is unreadable; learning begins afresh");
                LoadHistory::new()
            }),
            Err(e) => {
                tracing::warn!(%e, "the load of earlier runs cannot be read; learning begins afresh");
                LoadHistory::new()
            }
        }
    }

    /// Keeps what the gateway has learned about latency and load.
    ///
    /// # Errors
    /// Names the file; the old content is still there then.
    pub(crate) fn set_load_history(&self, exported: &[u8]) -> Result<()> {
        self.dir.write(LOAD, exported)?;
        Ok(())
    }

    /// What earlier runs learned about revoked certificates, by name.
    pub(crate) fn revocations(&self) -> Vec<(String, Vec<u8>)> {
        let names = self.dir.list(REVOCATIONS).unwrap_or_else(|e| {
            tracing::warn!(%e, "who was revoked in earlier runs is not known");
            Vec::new()
        });
        let read = |name: String| match self.dir.read(&name) {
            Ok(content) => Some((name, content?)),
            Err(e) => {
                tracing::warn!(%e, "not used");
                None
            }
        };
        names.into_iter().filter_map(read).collect()
    }

    /// Keeps what a source says about revoked certificates.
    ///
    /// # Errors
    /// Names the file; the old content is still there then.
    pub(crate) fn set_revocations(&self, source: &str, content: &[u8]) -> Result<()> {
        self.dir.write(&format!("{REVOCATIONS}{source}"), content)?;
        Ok(())
    }

    /// Removes one of [`Store::revocations`] that is of no use.
    pub(crate) fn forget_revocations(&self, name: &str) {
        if let Err(e) = self.dir.remove(name) {
            tracing::warn!(%e, "stays there");
        }
    }

    /// Takes note of a spent ticket. It is durable after [`Store::flush`], which is before any answer leaves: those of one turn of
    /// the loop wait for the disk together.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn spend(&mut self, record: &[u8], all: impl FnOnce() -> Vec<u8>) -> Result<()> {
        let Some(log) = &mut self.spent else { return Ok(()) };
        if log.len() > SPENT_MOST {
            log.rewrite(&all())?;
        }
        log.append(record)?;
        Ok(())
    }

    /// Keeps the ticket keys after a rotation.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn set_ticket_keys(&self, exported: &Secret) -> Result<()> {
        self.dir.write(TICKET_KEYS, exported.as_bytes())?;
        Ok(())
    }

    /// Takes note of a lease; [`Store::flush`] writes it.
    pub(crate) fn lease(&mut self, change: Change, now: UnixTime) {
        let Some(leases) = &mut self.leases else { return };
        match change {
            Change::Lease { identity, addresses } => {
                leases.record(StoredLease { identity, v4: addresses.v4, v6: addresses.v6, used: now });
            }
            Change::Evict { identity } => leases.forget(&identity),
        }
    }

    /// Writes what is pending, and waits for the disk.
    ///
    /// # Errors
    /// Names the file; nothing is lost, the next call tries again.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if let Some(spent) = &mut self.spent {
            spent.sync()?;
        }
        match &mut self.leases {
            Some(leases) if leases.pending() > 0 => Ok(leases.flush()?),
            _ => Ok(()),
        }
    }
}

/// A connection's name may hold anything that TOML allows; a file name may not.
fn ticket_file(connection: &str) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let escape = |b: u8| if plain(&b) { char::from(b).to_string() } else { format!("%{b:02x}") };
    format!("ticket-{}", connection.bytes().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory of this test's own, gone with it.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("dormoused-store-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_learned_about_load_survives_and_a_damaged_file_only_costs_the_forecast() {
        let scratch = Scratch::new("load");
        let store = Store::open(&scratch.0).unwrap();
        assert_eq!(store.load_history(), LoadHistory::new(), "the first run");
        let mut learned = LoadHistory::new();
        let now = UnixTime(1_800_000_000);
        (1..=50).for_each(|n| learned.record(now, n, Duration::from_millis(20 + n as u64)));
        store.set_load_history(&learned.export()).unwrap();
        let path = scratch.0.join(LOAD);
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.permissions().mode() & 0o7777, meta.len() < 2_048), (0o600, true));
        let mut restored = Store::open(&scratch.0).unwrap().load_history();
        let report = restored.report(now, 0);
        assert_eq!(report.alone_us, learned.report(now, 0).alone_us);
        assert!(report.alone_us.abs_diff(21_000) < 10 && report.per_client_us.abs_diff(1_000) < 10);
        // Cut short, as no atomic write would leave it.
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(store.load_history(), LoadHistory::new());
        assert!(!path.exists() && scratch.0.join("load-history.damaged").exists(), "put aside");
        store.set_load_history(&learned.export()).unwrap();
        assert_eq!(store.load_history().export(), learned.export(), "and learned again");
    }

    #[test]
    fn spent_tickets_are_in_the_log_after_a_flush() {
        let scratch = Scratch::new("spent");
        let mut store = Store::open(&scratch.0).unwrap();
        let Ok(_) = store.gateway(UnixTime(1_800_000_000), Duration::from_secs(3_600)) else {
            panic!("keys")
        };
        for n in 0..3u8 {
            store.spend(&[n; 40], Vec::new).unwrap();
        }
        store.flush().unwrap();
        assert_eq!(std::fs::read(scratch.0.join(SPENT)).unwrap().len(), 120);
    }

    #[test]
    fn damaged_leases_are_put_aside_and_written_anew() {
        let scratch = Scratch::new("leases");
        let prefix = || vec!["10.55.0.0/24".parse().unwrap()];
        let mut store = Store::open(&scratch.0).unwrap();
        let path = scratch.0.join(LEASES);
        std::fs::write(&path, vec![0x5a; 8_192]).unwrap();
        std::fs::write(scratch.0.join("leases.db-wal"), "of the damaged one").unwrap();
        store.leases(&mut Pool::new(prefix())).unwrap();
        assert_eq!(std::fs::read(scratch.0.join("leases.db.damaged")).unwrap(), vec![0x5a; 8_192]);
        let lease = Addresses { v4: Some([10, 55, 0, 9].into()), v6: None };
        store.lease(Change::Lease { identity: "a".into(), addresses: lease }, UnixTime(1_800_000_000));
        store.flush().unwrap();
        drop(store);
        let (mut store, mut pool) = (Store::open(&scratch.0).unwrap(), Pool::new(prefix()));
        store.leases(&mut pool).unwrap();
        let both = dormouse_node::pool::Families { v4: true, v6: true };
        assert_eq!(pool.acquire("a", both, &[]).v4, lease.v4, "kept again");
    }

    #[test]
    fn no_connection_name_leaves_the_directory() {
        assert_eq!(ticket_file("office"), "ticket-office");
        assert_eq!(ticket_file("../a b"), "ticket-%2e%2e%2fa%20b");
    }
}
