//! A real PostgreSQL for tests, as an administrator would set it up for gateways: TLS, passwords by SCRAM, commits that are on the disk; in a host
//! of a testbed, or on this machine's loopback; alone, or followed by standbys. Owns its processes and its directory; must never touch
//! another server of the machine.

use crate::host::Host;
use crate::pki::{Key, Pki};
use crate::process::{Process, cpu_time};
use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User, chown};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Where Debian has the server's programs, by version.
pub const PROGRAMS: &str = "/usr/lib/postgresql";
/// Who owns the server, and runs it where we are root, which it refuses.
const USER: &str = "postgres";
const PORT: u16 = 5432;
/// For a server to answer, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, which listens at one address and on a Unix socket in its directory. Stopped and removed when dropped; it ends with this process too.
#[derive(Debug)]
pub struct Postgres {
    /// `None`: on this machine as it is.
    host: Option<Host>,
    dir: PathBuf,
    address: String,
    port: u16,
    /// Which issues certificates for it and for its standbys.
    pki: Arc<Pki>,
    process: Mutex<Option<Process>>,
}

impl Postgres {
    /// Makes a server in `host`, at one of its addresses, and starts it. `dir`: is made, in a place that its user reaches, which the host's directory is not.
    ///
    /// # Errors
    /// If it does not come up; with its log.
    pub fn start(host: &Host, address: &str, dir: &Path) -> Result<Self> {
        Self::start_with(host, address, dir, "")
    }

    /// The same with more lines for its configuration.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_with(host: &Host, address: &str, dir: &Path, settings: &str) -> Result<Self> {
        Self::made(Some(host), address, PORT, dir, settings)
    }

    /// The same on this machine's loopback, at a port that is free, also without root; its certificate is for `localhost`.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn here(dir: &Path, settings: &str) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Self::made(None, "localhost", port, dir, settings)
    }

    fn made(host: Option<&Host>, address: &str, port: u16, dir: &Path, settings: &str) -> Result<Self> {
        let server =
            Self::new(host, address, port, dir, |dir| Ok(Arc::new(Pki::new(&dir.join("ca"), Key::P256)?)))?;
        let mut initdb = server.program("initdb")?;
        initdb.arg("-D").arg(server.data());
        done(initdb.args(["-U", USER, "-E", "UTF8", "--no-locale", "--no-instructions", "--no-sync"]))?;
        let access = "local replication postgres trust\nlocal all postgres trust\nlocal all all scram-sha-256\nhostssl all all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(server.data().join("pg_hba.conf"), access)?;
        server.configure(&format!("ssl = on\nmax_connections = 40\nshared_buffers = 32MB\n{settings}"))?;
        server.go()?;
        Ok(server)
    }

    /// With its directory, and nothing in it that a server needs.
    fn new(
        host: Option<&Host>,
        address: &str,
        port: u16,
        dir: &Path,
        pki: impl FnOnce(&Path) -> Result<Arc<Pki>>,
    ) -> Result<Self> {
        fs::create_dir(dir).with_context(|| dir.display().to_string())?;
        own(dir)?;
        let pki = pki(dir)?;
        let (host, dir, address, process) = (host.cloned(), dir.into(), address.into(), Mutex::default());
        Ok(Self { host, dir, address, port, pki, process })
    }

    /// Where it listens, its certificate, and these lines, which go before those that its configuration has.
    fn configure(&self, settings: &str) -> Result<()> {
        let data = self.data();
        let Self { address, port, dir, .. } = self;
        self.pki.issue_for(&format!("db-{}", self.name()), &[address], None, Key::P256)?;
        for (name, kind) in [("server.crt", "pem"), ("server.key", "key")] {
            fs::copy(self.pki.path(&format!("db-{}.{kind}", self.name())), data.join(name))?;
            fs::set_permissions(data.join(name), PermissionsExt::from_mode(0o600))?;
            own(&data.join(name))?;
        }
        let mut conf = fs::OpenOptions::new().append(true).open(data.join("postgresql.conf"))?;
        let sockets = dir.display();
        Ok(write!(
            conf,
            "unix_socket_directories = '{sockets}'\nlisten_addresses = '{address}'\nport = {port}\n{settings}\n"
        )?)
    }

    /// Makes a standby of this server at another address of its host, under this name in `synchronous_standby_names`, and starts it; it follows by the
    /// Unix socket. In a directory beside this one's.
    ///
    /// # Errors
    /// If it does not come up; with its log.
    pub fn standby(&self, address: &str, name: &str) -> Result<Self> {
        let dir = self.dir.with_extension(name);
        let new = Self::new(self.host.as_ref(), address, self.port, &dir, |_| Ok(self.pki.clone()))?;
        let mut copy = new.program("pg_basebackup")?;
        copy.arg("-D").arg(new.data()).args([
            "-U",
            USER,
            "-c",
            "fast",
            "--no-sync",
            "-p",
            &self.port.to_string(),
            "-h",
        ]);
        done(copy.arg(&self.dir))?;
        fs::write(new.data().join("standby.signal"), "")?;
        new.configure(&format!("primary_conninfo = '{}'", self.conninfo(name)))?;
        new.go()?;
        Ok(new)
    }

    /// For a standby of this name.
    fn conninfo(&self, name: &str) -> String {
        format!("host={} port={} user={USER} application_name={name}", self.dir.display(), self.port)
    }

    /// This standby follows another server from now on, under this name.
    ///
    /// # Errors
    /// With what it complains about.
    pub fn follow(&self, primary: &Self, name: &str) -> Result<()> {
        self.set("primary_conninfo", &primary.conninfo(name))
    }

    /// This standby takes writes from now on.
    ///
    /// # Errors
    /// If it does not.
    pub fn promote(&self) -> Result<()> {
        let promoted = self.sql("postgres", "select pg_promote()")?;
        ensure!(promoted == "t", "it is not promoted: {promoted}");
        Ok(())
    }

    /// Changes a setting of its configuration, at once.
    ///
    /// # Errors
    /// With what it complains about.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        self.sql("postgres", &format!("alter system set {name} = '{value}'"))?;
        self.sql("postgres", "select pg_reload_conf()").map(drop)
    }

    /// The name of its directory.
    fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Its files.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The authority of its certificate, a PEM file.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.pki.path("ca.pem")
    }

    /// The port at its address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// For a role, over TLS.
    #[must_use]
    pub fn url(&self, role: &str, database: &str) -> String {
        Self::url_of(&[self], role, database)
    }

    /// For a role, over TLS, at that of some servers which takes writes.
    #[must_use]
    pub fn url_of(servers: &[&Self], role: &str, database: &str) -> String {
        let hosts: Vec<String> = servers.iter().map(|s| format!("{}:{}", s.address, s.port)).collect();
        format!("postgresql://{role}@{}/{database}", hosts.join(","))
    }

    /// For the owner, on the socket.
    #[must_use]
    pub fn owner(&self, database: &str) -> String {
        self.url_here(USER, database)
    }

    /// For a role, on the socket.
    #[must_use]
    pub fn url_here(&self, role: &str, database: &str) -> String {
        let dir = self.dir.display().to_string().replace('/', "%2F");
        format!("postgresql://{role}@{dir}:{}/{database}", self.port)
    }

    /// Its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!(".s.PGSQL.{}", self.port))
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of its first process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::pid)
    }

    /// A program of the newest version, as the server's user.
    ///
    /// # Errors
    /// If there is none.
    pub fn program(&self, name: &str) -> Result<Command> {
        let versions = fs::read_dir(PROGRAMS).context(PROGRAMS)?.flatten().map(|e| e.path().join("bin"));
        let newest = versions.filter(|bin| bin.join("postgres").exists()).max().context("no postgres")?;
        let mut command =
            self.host.as_ref().map_or_else(|| Command::new("setpriv"), |host| host.command("setpriv"));
        command.args(["--pdeathsig", "QUIT"]);
        if Uid::effective().is_root() {
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        }
        command.arg(newest.join(name)).current_dir(&self.dir).env_remove("PGOPTIONS");
        Ok(command)
    }

    /// Starts it, again if it was stopped or killed, and waits until it answers.
    ///
    /// # Errors
    /// If it does not in time; with its log.
    pub fn go(&self) -> Result<()> {
        let mut running = self.process();
        *running = None;
        let until = Instant::now() + PATIENCE;
        let log = self.dir.join("log");
        loop {
            let mut server = self.program("postgres")?;
            server.arg("-D").arg(self.data());
            let file = log.clone();
            let mut process = lasting(move || Process::spawn("postgres", &mut server, &file))??;
            while process.ended().is_none() && Instant::now() < until {
                let mut ready = self.program("pg_isready")?;
                ready.arg("-q").arg("-h").arg(&self.dir).args(["-p", &self.port.to_string()]);
                if ready.status()?.success() {
                    *running = Some(process);
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            if Instant::now() > until {
                bail!("the server does not start: {}", process.log());
            }
            // What one that was killed has left runs still.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A crash: SIGKILL to its first process; the others end by themselves.
    pub fn kill(&self) {
        self.end(Signal::SIGKILL);
    }

    /// Ends it by a signal to its first process, and waits for that.
    pub fn end(&self, signal: Signal) {
        if let Some(mut process) = self.process().take() {
            process.signal(signal);
            let _ended = process.wait(PATIENCE);
        }
    }

    /// Lets all of its processes do nothing, or go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
        for pid in self.processes().into_iter().filter_map(|pid| i32::try_from(pid).ok()) {
            // One that has ended meanwhile does nothing.
            let _gone = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Its first process and those that this has started.
    fn processes(&self) -> Vec<u32> {
        let Some(first) = self.pid() else { return Vec::new() };
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        // proc_pid_stat(5): the second field behind the name, which may have spaces, is the parent.
        let parent = |pid: u32| -> Option<u32> {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit(") ").next()?.split_whitespace().nth(1)?.parse().ok()
        };
        all.filter(|pid| *pid == first || parent(*pid) == Some(first)).collect()
    }

    /// Processor time that its processes have used so far, but for those that have ended.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.processes().into_iter().map(cpu_time).sum()
    }

    /// What the owner's `psql` prints for a statement, without headings.
    ///
    /// # Errors
    /// With what it complains about.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String> {
        let mut psql = self.program("psql")?;
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database, "-c", statement]);
        let out = psql.args(["-p", &self.port.to_string(), "-h"]).arg(&self.dir).output()?;
        ensure!(out.status.success(), "{statement}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, and its processes with it.
        self.freeze(false);
        self.end(Signal::SIGQUIT);
        let _left = fs::remove_dir_all(&self.dir);
    }
}

/// Runs a program to its end.
fn done(command: &mut Command) -> Result<()> {
    let out = command.output()?;
    ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// The server's user has it, where that is not us.
fn own(path: &Path) -> Result<()> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let user = User::from_name(USER)?.context("no user postgres")?;
    Ok(chown(path, Some(user.uid), Some(user.gid))?)
}

/// Does some work on a thread that lives as long as this process: a child that is to end with its parent ends with the thread that has started it, and
/// tests have a thread each.
fn lasting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    type Work = Box<dyn FnOnce() + Send>;
    static THREAD: OnceLock<Sender<Work>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (sender, orders) = channel::<Work>();
        std::thread::spawn(move || orders.into_iter().for_each(|work| work()));
        sender
    });
    let (sender, result) = channel();
    let gone = |_| anyhow!("the thread that starts servers has ended");
    thread.send(Box::new(move || _ = sender.send(work()))).map_err(gone)?;
    Ok(result.recv()?)
}
