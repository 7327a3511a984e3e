//! Debian's strongSwan (charon, ESP in user space by its kernel-libipsec plugin) as a peer.

use anyhow::{Result, bail, ensure};
use dormouse_testbed::{Host, Need, Process, require};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CHARON: &str = "/usr/lib/ipsec/charon";
const PLUGINS: &str = "kernel-libipsec random nonce x509 revocation constraints pubkey pkcs1 pkcs8 pkcs12 pem openssl kdf hmac \
                       sha1 sha2 md4 des aes gcm ctr ccm chapoly curve25519 eap-identity eap-mschapv2 eap-tls eap-ttls attr kernel-netlink socket-default vici";

/// What the tests of this peer need of the machine.
pub const NEEDS: [Need; 8] = [
    Need::Root,
    Need::File(CHARON),
    Need::File("/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so"),
    Need::File("/usr/lib/ipsec/plugins/libstrongswan-eap-mschapv2.so"),
    Need::File("/usr/lib/ipsec/plugins/libstrongswan-eap-tls.so"),
    Need::File("/usr/lib/ipsec/plugins/libstrongswan-eap-ttls.so"),
    Need::Program("swanctl"),
    Need::File("/dev/net/tun"),
];

/// True, and said why, if this machine lacks what `test` needs.
#[must_use]
pub fn skip(test: &str) -> bool {
    !require(test, &NEEDS)
}

/// A running charon.
#[derive(Debug)]
pub struct StrongSwan {
    process: Process,
    dir: PathBuf,
    host: Host,
}

impl StrongSwan {
    /// Starts charon in `host`, with the `/usr` of `root` if there is one, and loads `swanctl_conf`. `credentials` are copied to where swanctl looks for them: pairs of a
    /// folder (`x509`, `x509ca`, `private`, `pkcs8`) and a file. `settings` goes into the `charon` section of strongswan.conf.
    ///
    /// # Errors
    /// If charon does not come up, or refuses the configuration.
    pub fn start(
        host: &Host,
        root: Option<&Path>,
        swanctl_conf: &str,
        credentials: &[(&str, PathBuf)],
        settings: &str,
    ) -> Result<Self> {
        let dir = host.dir().join("strongswan");
        for sub in ["run", "swanctl/x509", "swanctl/x509ca", "swanctl/private", "swanctl/pkcs8"] {
            fs::create_dir_all(dir.join(sub))?;
        }
        for (folder, file) in credentials {
            let name = file.file_name().unwrap_or_default();
            fs::copy(file, dir.join("swanctl").join(folder).join(name))?;
        }
        fs::write(dir.join("swanctl/swanctl.conf"), swanctl_conf)?;
        fs::write(
            dir.join("strongswan.conf"),
            format!(
                "charon {{\n load = {PLUGINS}\n {settings}\n install_routes = yes\n filelog {{ f {{ path = {log}\n default = 1\n \
                 ike = 2\n cfg = 2\n knl = 1\n flush_line = yes }} }}\n plugins {{ vici {{ socket = unix://{vici} }}\n kernel-libipsec \
                 {{ load = yes }} }}\n}}\n",
                log = dir.join("charon.log").display(),
                vici = dir.join("vici").display(),
            ),
        )?;
        // A private mount namespace (by `ip netns exec`) with a /run of its own: the pid file of another charon is elsewhere.
        let usr =
            root.map_or_else(String::new, |root| format!("mount --bind {}/usr /usr && ", root.display()));
        let script = format!("mount --bind {} /run && {usr}exec {CHARON}", dir.join("run").display());
        let mut command = host.command("sh");
        command.args(["-c", &script]);
        command.env("STRONGSWAN_CONF", dir.join("strongswan.conf")).env("SWANCTL_DIR", dir.join("swanctl"));
        // An earlier one's, which was killed.
        let _none = fs::remove_file(dir.join("vici"));
        let process = Process::spawn("charon", &mut command, &dir.join("charon.out"))?;
        let mut swan = Self { process, dir, host: host.clone() };
        let until = Instant::now() + Duration::from_secs(15);
        while !swan.dir.join("vici").exists() {
            if swan.process.ended().is_some() || Instant::now() > until {
                bail!("charon did not start: {}{}", swan.process.log(), swan.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        swan.ctl(&["--load-all"])?;
        Ok(swan)
    }

    /// Runs `swanctl` on it and returns what it prints.
    ///
    /// # Errors
    /// If swanctl fails; the error holds its output and the end of charon's log.
    pub fn ctl(&self, args: &[&str]) -> Result<String> {
        let mut command = self.host.command("swanctl");
        command.args(args).args(["--uri", &format!("unix://{}", self.dir.join("vici").display())]);
        command
            .env("STRONGSWAN_CONF", self.dir.join("strongswan.conf"))
            .env("SWANCTL_DIR", self.dir.join("swanctl"));
        let out = command.output()?;
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if !out.status.success() {
            bail!("swanctl {args:?}: {text}\n{}", self.log_tail());
        }
        Ok(text)
    }

    /// Its list of SAs.
    ///
    /// # Errors
    /// If swanctl fails.
    pub fn sas(&self) -> Result<String> {
        self.ctl(&["--list-sas"])
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("charon.log")).unwrap_or_default()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(60)..).unwrap_or(&lines).join("\n")
    }

    /// Waits until its log contains `text`.
    ///
    /// # Errors
    /// After `limit`.
    pub fn wait_log(&self, text: &str, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        while !self.log().contains(text) {
            if Instant::now() > until {
                bail!("strongSwan never logged '{text}':\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Of a device's log: it has offered that message ids may be synchronised (RFC 6311), has not offered the same of replay counters, and its gateway has
/// said nothing of either.
///
/// # Errors
/// If that is not so; with the lines about IKE_AUTH.
pub fn offers_message_ids_alone(log: &str) -> Result<()> {
    // Each fragment has a line, and the whole message one.
    let said = |what| log.lines().filter(move |line: &&str| line.contains(what));
    let (mut requests, mut responses) =
        (said("generating IKE_AUTH request"), said("parsed IKE_AUTH response"));
    let offers = requests.any(|line| line.contains("N(MSG_ID_SYN_SUP)")) && !log.contains("N(RPL_CTR_SYN");
    let answers =
        responses.any(|line| line.contains("_SYN")) || said("parsed IKE_AUTH response").count() == 0;
    let lines: Vec<&str> = said("IKE_AUTH").collect();
    ensure!(offers && !answers, "{}", lines.join("\n"));
    Ok(())
}
