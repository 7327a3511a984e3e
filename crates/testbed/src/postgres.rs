//! A real PostgreSQL in a host of a testbed, as an administrator would set it up for gateways: TLS, passwords by SCRAM, commits that are on
//! the disk. Owns its process and its directory; must never touch another server of the machine.

use crate::host::Host;
use crate::pki::{Key, Pki};
use crate::process::{Process, cpu_time};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where Debian has the server's programs, by version.
pub const PROGRAMS: &str = "/usr/lib/postgresql";
/// Who runs it: it refuses root.
const USER: &str = "postgres";
const PORT: u16 = 5432;

/// A server, which listens at one address and on a Unix socket in its directory. Stopped and removed when dropped.
#[derive(Debug)]
pub struct Postgres {
    host: Host,
    dir: PathBuf,
    address: String,
    process: Option<Process>,
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
        fs::create_dir(dir).with_context(|| dir.display().to_string())?;
        own(dir)?;
        let mut new = Self { host: host.clone(), dir: dir.into(), address: address.into(), process: None };
        let data = new.data();
        let made = new
            .program("initdb")?
            .arg("-D")
            .arg(&data)
            .args(["-U", USER, "-E", "UTF8", "--no-locale", "--no-instructions", "--no-sync"])
            .output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let pki = Pki::new(&dir.join("ca"), Key::P256)?;
        pki.issue_for("db", &[address], None, Key::P256)?;
        for (name, from) in [("server.crt", "db.pem"), ("server.key", "db.key")] {
            fs::copy(pki.path(from), data.join(name))?;
            fs::set_permissions(data.join(name), PermissionsExt::from_mode(0o600))?;
            own(&data.join(name))?;
        }
        let mut conf = fs::OpenOptions::new().append(true).open(data.join("postgresql.conf"))?;
        let sockets = dir.display();
        write!(
            conf,
            "unix_socket_directories = '{sockets}'\nlisten_addresses = '{address}'\nport = {PORT}\nssl = on\nmax_connections = 40\nshared_buffers = 32MB\n{settings}\n"
        )?;
        let access =
            "local all postgres trust\nlocal all all scram-sha-256\nhostssl all all all scram-sha-256\n";
        fs::write(data.join("pg_hba.conf"), access)?;
        new.go()?;
        Ok(new)
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The authority of its certificate, a PEM file.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.dir.join("ca").join("ca.pem")
    }

    /// For a role, over TLS.
    #[must_use]
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgresql://{role}@{}:{PORT}/{database}", self.address)
    }

    /// For the owner, on the socket.
    #[must_use]
    pub fn owner(&self, database: &str) -> String {
        let dir = self.dir.display().to_string().replace('/', "%2F");
        format!("postgresql://{USER}@{dir}:{PORT}/{database}")
    }

    /// Its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!(".s.PGSQL.{PORT}"))
    }

    /// The id of its first process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// A program of the newest version, as the server's user.
    fn program(&self, name: &str) -> Result<Command> {
        let versions = fs::read_dir(PROGRAMS).context(PROGRAMS)?.flatten().map(|e| e.path().join("bin"));
        let newest = versions.filter(|bin| bin.join("postgres").exists()).max().context("no postgres")?;
        let mut command = self.host.command("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        command.arg(newest.join(name)).current_dir(&self.dir);
        Ok(command)
    }

    /// Starts it, again if it was stopped or killed, and waits until it answers.
    ///
    /// # Errors
    /// If it does not in time; with its log.
    pub fn go(&mut self) -> Result<()> {
        self.process = None;
        let until = Instant::now() + Duration::from_secs(30);
        let mut server = self.program("postgres")?;
        server.arg("-D").arg(self.data());
        let log = self.dir.join("log");
        let mut process = Process::spawn("postgres", &mut server, &log)?;
        loop {
            let ready = self.program("pg_isready")?.arg("-q").arg("-h").arg(&self.dir).output()?;
            if ready.status.success() {
                self.process = Some(process);
                return Ok(());
            }
            if process.ended().is_some() || Instant::now() > until {
                bail!("the server does not start: {}", process.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A crash: SIGKILL to its first process; the others end by themselves.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Lets it do nothing, or go on.
    pub fn freeze(&self, frozen: bool) {
        if let Some(process) = &self.process {
            process.signal(if frozen { Signal::SIGSTOP } else { Signal::SIGCONT });
        }
    }

    /// Processor time that its processes have used so far, but for those that have ended.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let Some(first) = self.process.as_ref().map(Process::pid) else { return Duration::ZERO };
        let others = fs::read_dir("/proc").into_iter().flatten().flatten();
        let others = others.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        // proc_pid_stat(5): the second field behind the name, which may have spaces, is the parent.
        let parent = |pid: u32| -> Option<u32> {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit(") ").next()?.split_whitespace().nth(1)?.parse().ok()
        };
        let mine = others.filter(|pid| *pid == first || parent(*pid) == Some(first));
        mine.map(cpu_time).sum()
    }

    /// What the owner's `psql` prints for a statement, without headings.
    ///
    /// # Errors
    /// With what it complains about.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String> {
        let out = self
            .program("psql")?
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database, "-c", statement, "-h"])
            .arg(&self.dir)
            .output()?;
        ensure!(out.status.success(), "{statement}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // At once, and its processes with it.
            process.signal(Signal::SIGCONT);
            process.signal(Signal::SIGQUIT);
            let _ended = process.wait(Duration::from_secs(5));
        }
        let _left = fs::remove_dir_all(&self.dir);
    }
}

fn own(path: &Path) -> Result<()> {
    let user = nix::unistd::User::from_name(USER)?.context("no user postgres")?;
    Ok(chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?)
}
