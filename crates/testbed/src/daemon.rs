//! Our own daemons in the hosts of a testbed, driven by the real command line. Owns where the binaries are found.

use crate::host::Host;
use crate::process::Process;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

/// The daemon's state directory, in that of its host.
const STATE: &str = "state";

/// Where the binary `name` is: `$DORMOUSE_BIN`, or beside the running program (also from a test, which lives one folder
/// deeper), or on the `PATH`.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let beside = || {
        let exe = std::env::current_exe().ok()?;
        let dir = exe.parent()?;
        [dir.join(name), dir.parent()?.join(name)].into_iter().find(|p| p.is_file())
    };
    let given = std::env::var_os("DORMOUSE_BIN").map(|dir| Path::new(&dir).join(name));
    given.or_else(beside).unwrap_or_else(|| name.into())
}

/// A running `dormoused`.
#[derive(Debug)]
pub struct Dormoused {
    process: Process,
    host: Host,
    config: PathBuf,
    socket: PathBuf,
    extra: Extra,
}

/// What a daemon is started with besides its configuration.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Added to its environment: where its D-Bus is, for one.
    pub environment: Vec<(String, String)>,
    /// More arguments.
    pub arguments: Vec<String>,
    /// The user that it becomes once it is set up; empty: root.
    pub user: String,
    /// Program and arguments that start it, with its own behind: what takes rights away from it.
    pub confined_by: Vec<String>,
}

/// What the command line answered.
#[derive(Debug)]
pub struct Answer {
    /// Exit code.
    pub code: i32,
    /// Standard output, parsed if it is JSON.
    pub json: Value,
    /// Standard output and error as text.
    pub text: String,
}

impl Dormoused {
    /// Starts the daemon in `host` from `toml`, to which a `[daemon]` section is added: state, socket and log of this host,
    /// the user root. Lines of `daemon` go into that section.
    ///
    /// # Errors
    /// If it does not come up; the error holds the end of its log.
    pub fn start(host: &Host, daemon: &str, toml: &str) -> Result<Self> {
        Self::start_with(host, Extra::default(), daemon, toml)
    }

    /// The same, with something more.
    ///
    /// # Errors
    /// As [`Dormoused::start`].
    pub fn start_with(host: &Host, extra: Extra, daemon: &str, toml: &str) -> Result<Self> {
        let user = if extra.user.is_empty() { "root" } else { &extra.user };
        let (config, socket) = configure(host, user, daemon, toml)?;
        Self::run(host, config, socket, extra)
    }

    /// Puts a file into the state directory of the daemon that will be started in `host`, as an earlier run might have left it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn leave_state(host: &Host, name: &str, content: &[u8]) -> Result<()> {
        let dir = host.dir().join(STATE);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let path = dir.join(name);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(content).with_context(|| path.display().to_string())
    }

    fn run(host: &Host, config: PathBuf, socket: PathBuf, extra: Extra) -> Result<Self> {
        let program = binary("dormoused");
        let mut command = match extra.confined_by.split_first() {
            None => host.command(program),
            Some((by, arguments)) => {
                let mut command = host.command(by);
                command.args(arguments).arg(program);
                command
            }
        };
        command.arg("--config").arg(&config).args(&extra.arguments);
        command.envs(extra.environment.iter().map(|(k, v)| (k, v)));
        let mut process = Process::spawn("dormoused", &mut command, &host.dir().join("dormoused.log"))?;
        let until = std::time::Instant::now() + Duration::from_secs(15);
        loop {
            if socket.exists() && std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                return Ok(Self { process, host: host.clone(), config, socket, extra });
            }
            if process.ended().is_some() || std::time::Instant::now() > until {
                bail!("dormoused did not come up:\n{}", process.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Where the control socket of a daemon in `host` is, or will be.
    #[must_use]
    pub fn socket_in(host: &Host) -> PathBuf {
        host.dir().join("dormouse.sock")
    }

    /// Starts it again, after a stop or a crash, from the same configuration and state.
    ///
    /// # Errors
    /// As [`Dormoused::start`].
    pub fn restart(&mut self) -> Result<()> {
        if self.process.ended().is_none() {
            self.process.stop();
        }
        let (config, socket) = (self.config.clone(), self.socket.clone());
        *self = Self::run(&self.host, config, socket, self.extra.clone())?;
        Ok(())
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// CPU time used so far.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        crate::process::cpu_time(self.process.pid())
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Runs `dormouse <args>` against it.
    ///
    /// # Errors
    /// If the program cannot be started; an exit code other than 0 is an answer.
    pub fn cli(&self, args: &[&str]) -> Result<Answer> {
        let mut command = self.host.command(binary("dormouse"));
        command.arg("--socket").arg(&self.socket).args(args);
        let Output { status, stdout, stderr } = command.output().context("running dormouse")?;
        let out = String::from_utf8_lossy(&stdout).into_owned();
        let json = serde_json::from_str(&out).unwrap_or(Value::Null);
        Ok(Answer { code: status.code().unwrap_or(-1), json, text: out + &String::from_utf8_lossy(&stderr) })
    }

    /// Starts `dormouse <args>` against it, for verbs that do not end by themselves; the output goes into the process's log.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&self, name: &str, args: &[&str]) -> Result<Process> {
        let mut command = self.host.command(binary("dormouse"));
        command.arg("--socket").arg(&self.socket).args(args);
        Process::spawn(name, &mut command, &self.host.dir().join(format!("{name}.log")))
    }

    /// Runs `dormouse <args>` and demands success.
    ///
    /// # Errors
    /// With what it printed and the end of the daemon's log, if it fails.
    pub fn ok(&self, args: &[&str]) -> Result<Answer> {
        let answer = self.cli(args)?;
        if answer.code != 0 {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!(
                "dormouse {args:?} ended with {}: {}\ndaemon's log:\n{}",
                answer.code,
                answer.text,
                tail.join("\n")
            );
        }
        Ok(answer)
    }
}

/// Writes the configuration of a daemon in `host`; returns its path and that of the control socket.
fn configure(host: &Host, user: &str, daemon: &str, toml: &str) -> Result<(PathBuf, PathBuf)> {
    let dir = host.dir();
    let (config, socket) = (dir.join("dormouse.toml"), Dormoused::socket_in(host));
    let text = format!(
        "[daemon]\nstate_dir = {:?}\nsocket = {socket:?}\nuser = {user:?}\n{daemon}\n{toml}",
        dir.join(STATE),
    );
    std::fs::write(&config, text)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&config, mode)?;
    Ok((config, socket))
}
