//! What outlives the daemon: tickets of clients; of the gateway ticket keys, leases, denials and lineages. Owns the names of the
//! files; a failure to write is reported and the daemon goes on from memory.

use crate::leases::Leases;
use crate::lineages;
use anyhow::{Context, Result, bail};
use dormouse_crypto::Secret;
use dormouse_ike::load::LoadHistory;
use dormouse_ike::ticket::{ClientTicket, TicketFormatError, TicketKeys};
use dormouse_io::entropy::OsEntropy;
use dormouse_io::ownership::Directory;
use dormouse_io::state::StateDir;
use dormouse_io::store::{self, Database, OldLease, StoredDenial, StoredLease};
use dormouse_node::pool::{Addresses, Lessee, Pool};
use dormouse_sansio::{Entropy as _, UnixTime};
use std::path::Path;
use std::time::Duration;

const TICKET_KEYS: &str = "ticket-keys";
/// What earlier releases remembered of used tickets; the database knows which ones count.
const SPENT: &str = "spent-tickets";
const DATABASE: &str = "gateway.db";
/// What earlier releases called it.
const LEASES: &str = "leases.db";
const FINGERPRINT_KEY: &str = "fingerprint-key";
/// Is there while the database holds denials.
const DENIED: &str = "denials-in-database";
const MARK: &[u8] = b"gateway.db holds denials: it is not replaced if it is damaged or gone.\n";
const HISTORY: &str = "sleep-history";
const LOAD: &str = "load-history";
const REVOCATIONS: &str = "revocations-";
/// A new ticket key each day: what one key exposes is bounded by a day of tickets.
const ROTATE: Duration = Duration::from_secs(24 * 3600);

/// The state directory, open.
#[derive(Debug)]
pub(crate) struct Store {
    dir: StateDir,
    database: Option<Database>,
    /// Denials that could not be written, and are in force until the daemon ends.
    unwritten: Vec<StoredDenial>,
    _owned: Directory,
}

impl Store {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it cannot be made, is open to others, or is another daemon's; names it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let dir = StateDir::open(path).with_context(|| format!("daemon.state_dir: {}", path.display()))?;
        let owned = Directory::take(path)?;
        Ok(Self { dir, database: None, unwritten: Vec::new(), _owned: owned })
    }

    /// Ticket keys of earlier runs; new ones if there are none, or if they are unreadable.
    ///
    /// # Errors
    /// If they cannot be read or written.
    pub(crate) fn ticket_keys(&mut self, now: UnixTime, ticket_lifetime: Duration) -> Result<TicketKeys> {
        let keep = ROTATE + ticket_lifetime;
        let stored =
            self.dir.read(TICKET_KEYS)?.map(|bytes| TicketKeys::import(bytes.as_bytes(), ROTATE, keep));
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
        self.dir.remove(SPENT)?;
        Ok(keys)
    }

    /// Connections to the gateway's database for what is written beside the loop; `None` if this is no gateway.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn beside(&self) -> Result<Option<(lineages::Own, Leases)>> {
        let path = self.dir.path(DATABASE);
        // It was migrated when it was opened here.
        let open = |_| Ok((lineages::open(&path)?, Leases(Database::open(&path, &|_| None)?)));
        self.database.as_ref().map(open).transpose()
    }

    /// The key of the fingerprints by which a gateway knows pre-shared keys again: made once.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub(crate) fn fingerprint_key(&self) -> Result<Secret> {
        if let Some(key) = self.dir.read(FINGERPRINT_KEY)?.filter(|key| key.len() == 32) {
            return Ok(key);
        }
        let mut key = Secret::zeroed(32);
        OsEntropy.fill(key.as_mut_bytes());
        self.dir.write(FINGERPRINT_KEY, key.as_bytes())?;
        Ok(key)
    }

    /// Opens the gateway's database, puts its leases back into `pool`, and gives the denials. `attribute`: whose a lease is that an
    /// earlier release wrote down. A damaged file is put aside: a gateway that serves with new addresses is better than one that does
    /// not start. Not one that has held denials: those must be read, or made again.
    ///
    /// # Errors
    /// If the database cannot be opened or read, or is of a later release; if it is damaged, empty or gone and has held denials.
    pub(crate) fn database(
        &mut self,
        pool: &mut Pool,
        attribute: &dyn Fn(&OldLease) -> Option<store::StoredLessee>,
    ) -> Result<Vec<StoredDenial>> {
        let path = self.dir.path(DATABASE);
        self.adopt_leases(&path)?;
        let open = || Database::open(&path, attribute);
        let database = match open() {
            Err(store::Error::Damaged { .. }) if !self.dir.path(DENIED).exists() => {
                let kept = self.put_aside(DATABASE);
                // They belong to the damaged file, and would damage a new one.
                for journal in ["-wal", "-shm"] {
                    self.dir.remove(&format!("{DATABASE}{journal}"))?;
                }
                tracing::warn!(kept, "the leases are unreadable: clients get their addresses anew");
                open()?
            }
            Err(e @ store::Error::Damaged { .. }) => return Err(e).with_context(|| self.held_denials()),
            other => other?,
        };
        let denials = database.denials()?;
        match (denials.is_empty(), self.dir.path(DENIED).exists()) {
            (true, true) => bail!("{}: no denial is in it; {}", path.display(), self.held_denials()),
            (false, false) => self.dir.write(DENIED, MARK)?,
            _ => {}
        }
        for StoredLease { holder, v4, v6, .. } in database.leases()? {
            let store::StoredLessee { connection, identity, device } = holder;
            if let Some(holder) = Lessee::new(connection, identity, device) {
                pool.restore(holder, Addresses { v4, v6 });
            }
        }
        self.database = Some(database);
        Ok(denials)
    }

    fn held_denials(&self) -> String {
        let marker = self.dir.path(DENIED).display().to_string();
        format!("it has held denials: restore it, or remove {marker} and deny again")
    }

    /// The file that earlier releases called otherwise; its journal is a part of it.
    fn adopt_leases(&self, path: &Path) -> Result<()> {
        let old = self.dir.path(LEASES);
        if path.exists() || !old.exists() {
            return Ok(());
        }
        for journal in ["-wal", "-shm"] {
            let with = |name: &str| self.dir.path(&format!("{name}{journal}"));
            match std::fs::rename(with(LEASES), with(DATABASE)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
        }
        // Last: until then the next start tries again.
        std::fs::rename(&old, path).with_context(|| format!("{} to {}", old.display(), path.display()))
    }

    /// Whom an administrator has refused, the oldest first, then those whose denial could not be written.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn denials(&self) -> Result<Vec<StoredDenial>> {
        let written = self.database.as_ref().map_or(Ok(Vec::new()), Database::denials)?;
        Ok(written.into_iter().chain(self.unwritten.iter().cloned()).collect())
    }

    /// Writes a denial down, durably. True if it is new.
    ///
    /// # Errors
    /// Names the file; the denial is listed until the daemon ends, and on disk nothing has changed.
    pub(crate) fn deny(&mut self, denial: &StoredDenial) -> Result<bool> {
        let Some(database) = &mut self.database else { return Ok(false) };
        let kept = database.deny(denial);
        self.unwritten.retain(|unwritten| unwritten.whom != denial.whom);
        let new = match kept {
            Ok(new) => new,
            Err(e) => {
                if database.denials()?.iter().all(|written| written.whom != denial.whom) {
                    self.unwritten.push(denial.clone());
                }
                return Err(e.into());
            }
        };
        // After it: there must be no mark without a denial. What is missing is made at the next start.
        if let Err(e) = self.dir.write(DENIED, MARK) {
            tracing::warn!("a database that is lost would be replaced, without its denials: {e}");
        }
        Ok(new)
    }

    /// Takes a denial back. False if there was none.
    ///
    /// # Errors
    /// Names the file; nothing has changed then.
    pub(crate) fn allow(&mut self, whom: &str) -> Result<bool> {
        let Some(database) = &mut self.database else { return Ok(false) };
        let of_memory = self.unwritten.extract_if(.., |denial| denial.whom == whom).count() > 0;
        let last = database.denials()?.iter().all(|denial| denial.whom == whom);
        if last {
            self.dir.remove(DENIED)?;
        }
        let was = database.allow(whom);
        if last && was.is_err() {
            self.dir.write(DENIED, MARK)?;
        }
        Ok(was? || of_memory)
    }

    /// The ticket of a client connection, if there is one that can still be used.
    pub(crate) fn ticket(&self, connection: &str, now: UnixTime) -> Option<ClientTicket> {
        let bytes = match self.dir.read(&ticket_file(connection)) {
            Ok(bytes) => bytes?,
            Err(e) => {
                tracing::warn!(%e, "the ticket is not used");
                return None;
            }
        };
        match ClientTicket::decode(bytes.as_bytes()) {
            Ok(ticket) => Some(ticket).filter(|t| now < t.expires),
            Err(TicketFormatError::Version { got, expect }) if got < expect => {
                tracing::info!(connection, "the stored ticket is of an earlier version, and not used");
                None
            }
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
        Ok(self.dir.read(HISTORY)?.map(|content| content.as_bytes().to_vec()))
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

    /// What the gateway learned about latency and load in earlier runs; `None` if this is the first, or if the file is of no use,
    /// which costs some days of forecasts and no more.
    pub(crate) fn load_history(&self) -> Option<LoadHistory> {
        let bytes = match self.dir.read(LOAD) {
            Ok(bytes) => bytes?,
            Err(e) => {
                tracing::warn!(%e, "the load of earlier runs cannot be read, and is not used");
                return None;
            }
        };
        let learned = LoadHistory::import(bytes.as_bytes());
        if learned.is_none() {
            let kept = self.put_aside(LOAD);
            let bytes = bytes.len();
            tracing::warn!(bytes, kept, "the load of earlier runs is unreadable, and is not used");
        }
        learned
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
            tracing::warn!(%e, "stored revocations cannot be read");
            Vec::new()
        });
        let read = |name: String| match self.dir.read(&name) {
            Ok(content) => Some((name, content?.as_bytes().to_vec())),
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

    /// Keeps the ticket keys after a rotation.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn set_ticket_keys(&self, exported: &Secret) -> Result<()> {
        self.dir.write(TICKET_KEYS, exported.as_bytes())?;
        Ok(())
    }
}

/// A connection's name may hold anything that TOML allows; a file name may not.
fn ticket_file(connection: &str) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let escape = |b: u8| if plain(&b) { char::from(b).to_string() } else { format!("%{b:02x}") };
    format!("ticket-{}", connection.bytes().map(escape).collect::<String>())
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests {
    use super::*;
    use dormouse_node::pool::Change;
    use dormouse_node::shared::Changes;
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
        assert_eq!(store.load_history(), None, "the first run");
        let mut learned = LoadHistory::new();
        let now = UnixTime(1_800_000_000);
        (1..=50).for_each(|n| learned.record(now, n, Duration::from_millis(20 + n as u64)));
        store.set_load_history(&learned.export()).unwrap();
        let path = scratch.0.join(LOAD);
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.permissions().mode() & 0o7777, meta.len() < 2_048), (0o600, true));
        drop(store);
        let store = Store::open(&scratch.0).unwrap();
        let mut restored = store.load_history().unwrap();
        let report = restored.report(now, 0);
        assert_eq!(report.alone_us, learned.report(now, 0).alone_us);
        assert!(report.alone_us.abs_diff(21_000) < 10 && report.per_client_us.abs_diff(1_000) < 10);
        // Cut short, as no atomic write would leave it.
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(store.load_history(), None);
        assert!(!path.exists() && scratch.0.join("load-history.damaged").exists(), "put aside");
        store.set_load_history(&learned.export()).unwrap();
        assert_eq!(store.load_history().unwrap().export(), learned.export(), "and learned again");
    }

    #[test]
    fn what_an_earlier_release_remembered_of_used_tickets_goes() {
        let scratch = Scratch::new("spent");
        let mut store = Store::open(&scratch.0).unwrap();
        std::fs::write(scratch.0.join(SPENT), [0; 48]).unwrap();
        let now = UnixTime(1_800_000_000);
        assert!(store.ticket_keys(now, Duration::from_secs(3_600)).is_ok());
        assert!(!scratch.0.join(SPENT).exists());
    }

    fn pool() -> Pool {
        Pool::new(["10.55.0.0/24".parse().unwrap()])
    }

    /// One is written beside the loop.
    fn lease(store: &Store) {
        let holder = Lessee::new("office".into(), (2, b"a".to_vec()), 0).expect("an identity");
        let addresses = Addresses { v4: Some([10, 55, 0, 9].into()), v6: None };
        let mut changes = Changes::default();
        changes.put(UnixTime(1_800_000_000), 1, Change::Lease { holder, addresses });
        let (_, mut leases) = store.beside().unwrap().expect("a database");
        leases.write(changes).1.unwrap();
    }

    fn leased(store: &Store) -> usize {
        store.database.as_ref().map_or(0, |d| d.leases().unwrap().len())
    }

    #[test]
    fn a_damaged_database_is_put_aside_unless_it_holds_denials() {
        let scratch = Scratch::new("database");
        let mut store = Store::open(&scratch.0).unwrap();
        let path = scratch.0.join(DATABASE);
        std::fs::write(&path, vec![0x5a; 8_192]).unwrap();
        std::fs::write(scratch.0.join("gateway.db-wal"), "of the damaged one").unwrap();
        store.database(&mut pool(), &|_| None).unwrap();
        assert_eq!(std::fs::read(scratch.0.join("gateway.db.damaged")).unwrap(), vec![0x5a; 8_192]);
        lease(&store);
        let denial = StoredDenial { whom: "joe@example.org".into(), since: UnixTime(1) };
        assert!(store.deny(&denial).unwrap());
        drop(store);
        let mut store = Store::open(&scratch.0).unwrap();
        assert_eq!(store.database(&mut pool(), &|_| None).unwrap(), [denial]);
        assert_eq!(leased(&store), 1, "kept again");
        drop(store);
        // A mark that could not be made with the denial is made at the next start.
        let marker = scratch.0.join(DENIED);
        std::fs::remove_file(&marker).unwrap();
        let mut store = Store::open(&scratch.0).unwrap();
        store.database(&mut pool(), &|_| None).unwrap();
        assert!(marker.exists());
        drop(store);
        let refused = || {
            let mut store = Store::open(&scratch.0).unwrap();
            let error = format!("{:#}", store.database(&mut pool(), &|_| None).unwrap_err());
            assert!(error.contains("held denials") && error.contains(DENIED), "{error}");
        };
        std::fs::write(&path, vec![0x5a; 8_192]).unwrap();
        refused();
        for gone in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(scratch.0.join(format!("{DATABASE}{gone}")));
        }
        refused();
        // What the refused start has made in its place is refused as well.
        refused();
        std::fs::remove_file(&marker).unwrap();
        let mut store = Store::open(&scratch.0).unwrap();
        assert!(store.database(&mut pool(), &|_| None).unwrap().is_empty());
        assert!(store.deny(&StoredDenial { whom: "joe".into(), since: UnixTime(1) }).unwrap());
        assert!(marker.exists() && store.allow("joe").unwrap() && !marker.exists());
    }

    #[test]
    fn the_file_of_an_earlier_release_is_taken_over() {
        let scratch = Scratch::new("adopted");
        let mut store = Store::open(&scratch.0).unwrap();
        store.database(&mut pool(), &|_| None).unwrap();
        lease(&store);
        drop(store);
        std::fs::rename(scratch.0.join(DATABASE), scratch.0.join(LEASES)).unwrap();
        let mut store = Store::open(&scratch.0).unwrap();
        store.database(&mut pool(), &|_| None).unwrap();
        assert_eq!((leased(&store), scratch.0.join(LEASES).exists()), (1, false));
    }

    #[test]
    fn no_connection_name_leaves_the_directory() {
        assert_eq!(ticket_file("office"), "ticket-office");
        assert_eq!(ticket_file("../a b"), "ticket-%2e%2e%2fa%20b");
    }
}
