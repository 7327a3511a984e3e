//! Hosts and the links between them. Owns namespaces and their names; removes all of them when dropped.

use crate::process::Process;
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static COUNT: AtomicU32 = AtomicU32::new(0);
/// Names that are tried for a scratch directory.
const ATTEMPTS: u32 = 100;

/// A set of hosts with a scratch directory. Dropping it removes hosts, links and files.
#[derive(Debug)]
pub struct Testbed {
    tag: String,
    dir: PathBuf,
    hosts: Vec<String>,
    keep_files: bool,
}

/// One host: a network namespace with a loopback interface.
#[derive(Clone, Debug)]
pub struct Host {
    netns: String,
    dir: PathBuf,
    name: String,
}

impl Testbed {
    /// An empty testbed; sweeps namespaces whose owner is dead.
    ///
    /// # Errors
    /// If the scratch directory cannot be made.
    pub fn new() -> Result<Self> {
        sweep();
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let tag = format!("dm{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let dir = std::env::temp_dir().join(format!("dormouse-{tag}"));
            // One that exists is another user's, who could put files into it that root would obey.
            match fs::create_dir(&dir) {
                Ok(()) => return Ok(Self { tag, dir, hosts: Vec::new(), keep_files: false }),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => refused = Some((e, dir)),
                Err(e) => return Err(e).with_context(|| format!("making {}", dir.display())),
            }
        }
        let (error, dir) = refused.context("no attempt")?;
        Err(error).with_context(|| format!("making {} and {ATTEMPTS} before it", dir.display()))
    }

    /// Scratch directory of this testbed.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Leaves the scratch directory (logs, configurations) behind: for the inspection of a failure.
    pub fn keep_files(&mut self) {
        self.keep_files = true;
    }

    /// Adds a host.
    ///
    /// # Errors
    /// If the namespace cannot be made (not root, no namespaces in this kernel).
    pub fn host(&mut self, name: &str) -> Result<Host> {
        let netns = format!("{}-{name}", self.tag);
        sh("ip", ["netns", "add", &netns])?;
        self.hosts.push(netns.clone());
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir)?;
        let host = Host { netns, dir, name: name.into() };
        host.ip("link set lo up")?;
        // Asymmetric paths (a tunnel beside its carrier) are what these hosts are for.
        host.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
        host.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
        host.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
        Ok(host)
    }

    /// A veth pair between two hosts; each end is `(host, interface name, addresses with prefix length)`, and comes up. Returns once the
    /// kernel has noticed both carriers: until then it drops what is sent.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn link(&self, a: (&Host, &str, &[&str]), b: (&Host, &str, &[&str])) -> Result<()> {
        sh(
            "ip",
            [
                "link", "add", a.1, "netns", &a.0.netns, "type", "veth", "peer", "name", b.1, "netns",
                &b.0.netns,
            ],
        )?;
        for (host, dev, addresses) in [a, b] {
            for address in addresses {
                let nodad = if address.contains(':') { " nodad" } else { "" };
                host.ip(&format!("addr add {address} dev {dev}{nodad}"))?;
            }
            host.ip(&format!("link set dev {dev} up"))?;
        }
        for (host, dev, _) in [a, b] {
            host.eventually(&format!("grep -q up /sys/class/net/{dev}/operstate"), Duration::from_secs(10))?;
        }
        Ok(())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for netns in &self.hosts {
            remove_netns(netns);
        }
        if !self.keep_files {
            // Best effort: a file that is still being written must not turn a passed test into a failed one.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

impl Host {
    /// Name of the network namespace, for `ip netns exec`.
    #[must_use]
    pub fn netns(&self) -> &str {
        &self.netns
    }

    /// Scratch directory of this host.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Short name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run in this host.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, program: S) -> Command {
        let mut c = Command::new("ip");
        c.args(["netns", "exec", &self.netns]).arg(program);
        c
    }

    /// Runs a shell line in this host and returns its standard output.
    ///
    /// # Errors
    /// If it exits with another code than 0; the error holds what it printed.
    pub fn sh(&self, line: &str) -> Result<String> {
        let out = self.command("sh").args(["-c", line]).output()?;
        if !out.status.success() {
            bail!(
                "{}: `{line}` ended with {}: {}{}",
                self.name,
                out.status,
                String::from_utf8_lossy(&out.stderr),
                String::from_utf8_lossy(&out.stdout)
            );
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// `ip` inside this host.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn ip(&self, args: &str) -> Result<()> {
        let mut all = vec!["-n", &self.netns];
        all.extend(args.split_whitespace());
        sh("ip", all)
    }

    /// Sets a kernel parameter of this host.
    ///
    /// # Errors
    /// If the parameter does not exist here.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.sh(&format!("printf %s '{value}' > /proc/sys/{}", key.replace('.', "/"))).map(drop)
    }

    /// Gives this host a file of its own below `/etc`, seen by what is started in it from now on.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn etc(&self, name: &str, content: &str) -> Result<()> {
        let dir = own_etc(&self.netns);
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        // In its place: processes that run have this file mounted.
        fs::write(dir.join(name), content).with_context(|| dir.join(name).display().to_string())
    }

    /// Loads an nftables rule set.
    ///
    /// # Errors
    /// If `nft` refuses it.
    pub fn nft(&self, rules: &str) -> Result<()> {
        let file = self.dir.join("rules.nft");
        fs::write(&file, rules)?;
        self.sh(&format!("nft -f {}", file.display())).map(drop)
    }

    /// Makes this host a router that masquerades what leaves through `dev`, with conntrack's UDP timeouts in seconds.
    ///
    /// # Errors
    /// If the kernel lacks NAT.
    pub fn masquerade(&self, dev: &str, udp_timeout: u32) -> Result<()> {
        self.nft(&format!(
            "table ip dormouse {{ chain post {{ type nat hook postrouting priority 100; oifname \"{dev}\" masquerade; }}; }}"
        ))?;
        self.sysctl("net.ipv4.ip_forward", "1")?;
        for key in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
            self.sysctl(&format!("net.netfilter.{key}"), &udp_timeout.to_string())?;
        }
        Ok(())
    }

    /// Starts a program in this host; its output goes to `<dir>/<name>.log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn<S: AsRef<OsStr>>(&self, name: &str, program: S, args: &[&str]) -> Result<Process> {
        Process::spawn(name, self.command(program).args(args), &self.dir.join(format!("{name}.log")))
    }

    /// Runs `work` on a thread of its own inside this host: sockets that it opens belong to this host for their life.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<std::thread::JoinHandle<Result<T>>> {
        within(&self.netns, &self.name, work)
    }

    /// Does `work` on a thread in this host's network namespace: sockets that it opens belong there for their life.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or `work` panicked.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.within(work)?.join().map_err(|_| anyhow!("a thread of {} panicked", self.name))?
    }

    /// Waits until `line` succeeds in this host.
    ///
    /// # Errors
    /// With its last failure after `limit`.
    pub fn eventually(&self, line: &str, limit: Duration) -> Result<String> {
        let until = std::time::Instant::now() + limit;
        loop {
            match self.sh(line) {
                Ok(out) => return Ok(out),
                Err(e) if std::time::Instant::now() >= until => {
                    return Err(e.context(format!("not within {limit:?}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// Runs `work` on a thread of this name inside a network namespace: sockets that it opens belong there for their life.
pub(crate) fn within<T: Send + 'static>(
    netns: &str,
    thread: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<std::thread::JoinHandle<Result<T>>> {
    let missing = || format!("no network namespace {netns:?}");
    let file = fs::File::open(Path::new("/run/netns").join(netns)).with_context(missing)?;
    let thread = std::thread::Builder::new().name(thread.into());
    Ok(thread.spawn(move || {
        nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    })?)
}

fn sh<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(program: &str, args: I) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args);
    let out = command.output().with_context(|| format!("running {program}"))?;
    if !out.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

/// Kills what still runs in a namespace, then removes it. Best effort: used while unwinding.
fn remove_netns(netns: &str) {
    if let Ok(out) = Command::new("ip").args(["netns", "pids", netns]).output() {
        for pid in String::from_utf8_lossy(&out.stdout).split_whitespace() {
            let pid = pid.parse::<i32>().unwrap_or(0);
            // Our own threads may stand in the namespace: never signal ourselves.
            if pid > 0 && pid.unsigned_abs() != std::process::id() {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
        }
    }
    let _ = Command::new("ip").args(["netns", "del", netns]).output();
    let _ = fs::remove_dir_all(own_etc(netns));
}

/// What `ip netns exec` mounts over `/etc`, file by file.
fn own_etc(netns: &str) -> PathBuf {
    Path::new("/etc/netns").join(netns)
}

/// Removes namespaces and scratch directories whose owning process is gone.
fn sweep() {
    let dead = |tag: &str| {
        let pid: Option<u32> =
            tag.strip_prefix("dm").and_then(|t| t.split('-').next()).and_then(|p| p.parse().ok());
        pid.is_some_and(|p| !Path::new(&format!("/proc/{p}")).exists())
    };
    let names = |dir: &Path| -> Vec<String> {
        fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .collect()
    };
    for netns in names(Path::new("/run/netns")).iter().filter(|n| dead(n)) {
        remove_netns(netns);
    }
    let tmp = std::env::temp_dir();
    for name in names(&tmp) {
        if name.strip_prefix("dormouse-").is_some_and(dead) {
            let _ = fs::remove_dir_all(tmp.join(name));
        }
    }
}
