//! The gateway, the client that is there already, and the crowd: three hosts, of which the gateway's has a link to each other one. Owns what is there
//! before a storm, and the storm; all of it is removed with the stage.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_benches::thread_cpu;
use dormouse_lab::results::Figures;
use dormouse_sansio::Instant;
use dormouse_testbed::crowd::{Crowd, Done, GATEWAY_NAME, NETWORKS, Outcome, Pki, SERVER, Site, Task};
use dormouse_testbed::{Dormoused, Host, Testbed};
use serde_json::Value;

/// After so long, what the gateway keeps of tickets is on its disk.
const SETTLED: Duration = Duration::from_millis(500);
/// So many sessions at once are made before the storm, which they shall not be.
const AT_ONCE: usize = 50;
/// A storm is over when this part of its sessions is up: a client whose message was lost waits for its retransmission timer, when the gateway is idle again.
const MOST: f64 = 0.99;
/// The niceness of the crowd's thread where it comes last: the most there is.
pub(crate) const LAST: i32 = 19;
const SECRET: &str = "benchmark-pre-shared-key-0123456789";

/// See the module.
pub(crate) struct Stage {
    crowd: Crowd,
    clients: usize,
    cores: usize,
    client: Dormoused,
    gateway: Dormoused,
    pub(crate) client_host: Host,
    pub(crate) site: Site,
    // Last: namespaces are removed after the processes in them.
    _bed: Testbed,
}

/// What a storm was.
pub(crate) struct Storm {
    outcome: Outcome,
    /// Processor time that gateway, client and crowd used in it.
    cpu: [Duration; 3],
    repeated: u64,
    /// Datagrams that did not fit into a socket in the gateway's host, and in the crowd's.
    overruns: [u64; 2],
}

impl Stage {
    /// Builds the network, starts the gateway of `pki` and the client, and makes twice `clients` for the crowd.
    ///
    /// # Errors
    /// Without root or network namespaces, or if a daemon does not come up.
    pub(crate) fn build(pki: &Pki, clients: usize, cores: usize) -> Result<Self> {
        if let Some(others) = others(cores) {
            // And what this process starts from now on.
            pin(std::process::id(), &others)?;
        }
        let mut bed = Testbed::new()?;
        let (site, client_host) = (Site::new(&mut bed)?, bed.host("client")?);
        bed.link((&site.gateway, "wan1", &["10.77.0.1/24"]), (&client_host, "eth0", &["10.77.0.2/24"]))?;
        for host in [&site.gateway, &client_host] {
            // A socket that began with BBR goes on pacing by a timer when it is given another congestion control.
            host.sysctl("net.ipv4.tcp_congestion_control", "reno")?;
        }
        let toml = site.connection(&bed, pki)? + &other();
        let gateway = Dormoused::start(&site.gateway, "dns = \"off\"\n", &toml)?;
        let client = client(&client_host)?;
        let crowd = site.crowd(pki, 2 * clients, NETWORKS, &Default::default())?;
        Ok(Self { crowd, clients, cores, client, gateway, client_host, site, _bed: bed })
    }

    /// The second half of the crowd has tickets. The gateway has lost every session, by a crash and not its state, and the client has a new one.
    ///
    /// # Errors
    /// If a session cannot be made, or a daemon does not come up.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        let resuming = self.clients..2 * self.clients;
        let lacking = resuming.filter(|&number| !self.crowd.has_ticket(number));
        let lacking: Vec<(usize, Task)> = lacking.map(|number| (number, Task::Full)).collect();
        for some in lacking.chunks(AT_ONCE) {
            let outcome = self.crowd.release(some, || ()).context("sessions with tickets")?;
            ensure!(outcome.failed.is_empty(), "sessions with tickets: {:?}", outcome.failed);
        }
        std::thread::sleep(SETTLED);
        self.client.process().stop();
        self.gateway.process().kill();
        self.gateway.restart()?;
        if others(self.cores).is_some() {
            pin(self.gateway.process().pid(), "0")?;
        }
        self.client.restart()?;
        self.client.ok(&["wait", "other"])?;
        let passes = format!("ping -c 1 -W 1 {SERVER}");
        self.client_host.eventually(&passes, Duration::from_secs(10)).with_context(|| self.client.log())?;
        Ok(())
    }

    /// Half of the crowd makes full handshakes and the other half resumes, all at once; the crowd has the usual priority, or comes `last`.
    ///
    /// # Errors
    /// If one of the crowd is stuck, or the gateway does not have the sessions that the crowd has.
    pub(crate) fn storm(&mut self, last: bool) -> Result<Storm> {
        let both = |number| [(number, Task::Full), (self.clients + number, Task::Quick)];
        let tasks: Vec<(usize, Task)> = (0..self.clients).flat_map(both).collect();
        let (overruns, losses) = (self.site.overruns()?, self.crowd.losses());
        let (crowd, gateway, client) = (&mut self.crowd, &self.gateway, &self.client);
        // This thread is the crowd.
        let cpu = || [gateway.cpu(), client.cpu(), thread_cpu()];
        let mut used = [Duration::ZERO; 3];
        let released = at_priority(last, || {
            let mut before = used;
            let outcome = crowd.release(&tasks, || before = cpu());
            let after = cpu();
            (0..3).for_each(|n| used[n] = after[n].saturating_sub(before[n]));
            outcome
        })?;
        let outcome = released.with_context(|| tail(&self.gateway.log(), 20))?;
        self.check(&outcome)?;
        if let Some((number, why)) = outcome.failed.first() {
            let (count, log) = (outcome.failed.len(), tail(&self.gateway.log(), 3));
            eprintln!(
                "{count} of the crowd failed, as client {number}: {why}; the gateway's log ends:\n{log}"
            );
        }
        let after = self.site.overruns()?;
        Ok(Storm {
            outcome,
            cpu: used,
            repeated: self.crowd.losses().since(losses).repeated,
            overruns: [0, 1].map(|n: usize| after[n].saturating_sub(overruns[n])),
        })
    }

    /// The gateway has the sessions that its clients have.
    fn check(&self, outcome: &Outcome) -> Result<()> {
        let status = self.gateway.ok(&["status", "--json"])?;
        let sessions = status.json.pointer("/result/status/gateway/sessions").and_then(Value::as_array);
        let sessions = sessions.context("no sessions in the status")?.len();
        // The other client has one too. Of a client that failed the gateway may have one, or not.
        let (least, failed) = (outcome.done.len() + 1, outcome.failed.len());
        ensure!(
            (least..=least + failed).contains(&sessions),
            "the gateway has {sessions} sessions of {least}"
        );
        Ok(())
    }
}

impl Storm {
    /// From the moment at which all began until most sessions were up.
    pub(crate) fn busy(&self) -> [Instant; 2] {
        let mut ready: Vec<Duration> = self.outcome.done.iter().map(|done| done.ready).collect();
        ready.sort_unstable();
        let most = (MOST * ready.len() as f64).ceil() as usize;
        let most = ready.get(most.saturating_sub(1)).copied().unwrap_or_default();
        [self.outcome.released, self.outcome.released + most]
    }

    /// All but what went on beside it.
    pub(crate) fn figures(&self) -> Figures {
        let last = self.outcome.done.iter().map(|done: &Done| done.ready).max().unwrap_or_default();
        let [from, to] = self.busy();
        let [gateway, client, crowd] = self.cpu.map(millis);
        Figures::default()
            .with("storm.all", millis(last))
            .with("storm.most", millis(to - from))
            .with("sessions.up", self.outcome.done.len() as f64)
            .with("sessions.failed", self.outcome.failed.len() as f64)
            .with("cpu.gateway", gateway)
            .with("cpu.client", client)
            .with("cpu.crowd", crowd)
            .with("repeated", self.repeated as f64)
            .with("overruns.gateway", self.overruns[0] as f64)
            .with("overruns.crowd", self.overruns[1] as f64)
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The last `count` lines of a log.
fn tail(log: &str, count: usize) -> String {
    let lines: Vec<&str> = log.lines().rev().take(count).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Where the client comes in that is there already.
fn other() -> String {
    format!(
        "[connection.other]\nrole = \"gateway\"\n\
         [connection.other.local]\nid = \"{GATEWAY_NAME}\"\nsecret = \"{SECRET}\"\n\
         [connection.other.remote]\nid = \"other.bench\"\n\
         [connection.other.child]\nlocal = [\"{SERVER}/32\"]\nremote = [\"dynamic\"]\n\
         [connection.other.pool]\naddresses = [\"10.88.1.0/24\"]\n",
    )
}

/// The client that is there already. It proves itself by a secret: how it came is not what is measured.
fn client(host: &Host) -> Result<Dormoused> {
    let toml = format!(
        "[connection.other]\nrole = \"client\"\ngateway = \"10.77.0.1\"\nauto = true\n\
         child.remote = [\"{SERVER}/32\"]\n\
         [connection.other.local]\nid = \"other.bench\"\nsecret = \"{SECRET}\"\n\
         [connection.other.remote]\nid = \"{GATEWAY_NAME}\"\n"
    );
    Dormoused::start(host, "dns = \"off\"", &toml)
}

/// The cores that the gateway leaves to all others, where there is more than one.
fn others(cores: usize) -> Option<String> {
    (cores > 1).then(|| format!("1-{}", cores - 1))
}

/// Keeps a process, with all its threads, on these cores.
fn pin(pid: u32, cores: &str) -> Result<()> {
    let out = Command::new("taskset").args(["-a", "-c", "-p", cores, &pid.to_string()]).output();
    let out = out.context("running taskset")?;
    ensure!(out.status.success(), "taskset: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// Does `work`; if it comes `last`, with this thread at [`LAST`] niceness. That of other threads and of all processes stays.
fn at_priority<T>(last: bool, work: impl FnOnce() -> T) -> Result<T> {
    if !last {
        return Ok(work());
    }
    let thread = nix::unistd::gettid().to_string();
    let set = |nice: &str| -> Result<()> {
        let out = Command::new("renice").args(["-n", nice, "-p", &thread]).output();
        let out = out.context("running renice")?;
        ensure!(out.status.success(), "renice: {}", String::from_utf8_lossy(&out.stderr));
        Ok(())
    };
    // proc_pid_stat(5): the 19th, counted from behind the name, which may have spaces, it is the 17th.
    let stat = std::fs::read_to_string("/proc/thread-self/stat")?;
    let usual = stat.rsplit(") ").next().and_then(|fields| fields.split_whitespace().nth(16));
    let usual = usual.context("/proc/thread-self/stat")?;
    set(&LAST.to_string())?;
    let done = work();
    set(usual)?;
    Ok(done)
}
